"""Texts in the middle of a prompt, for tokenizers that put a space before every text that they read.

Those of Llama-2, Mistral and Phi-3 are of this kind: read by itself, "tap" becomes the tokens of " tap". A server reads
the whole prompt at once and puts the space where the prompt begins, or behind each control token. Pieces are read here
so that they give the tokens which their characters have there, but for merges over the seam between two pieces.
"""

from __future__ import annotations

import json
import re
from typing import Any


class InnerText:
    """A tokenizer and the same without the space.

    Args:
        whole: of transformers.
        rules: of its copy without the space, as `tokenizers` writes them.
    """

    def __init__(self, whole: Any, rules: str) -> None:
        from tokenizers import Tokenizer

        self._whole = whole
        self._data = Tokenizer.from_str(rules)
        self._data.encode_special_tokens = True
        self._data.no_padding()
        self._data.no_truncation()
        self._added = {token.content: token for token in whole.added_tokens_decoder.values()}
        self._found = re.compile("|".join(map(re.escape, sorted(self._added, key=len, reverse=True))) or r"(?!)")
        self._spaced = self._puts_space_behind_added()

    @classmethod
    def of(cls, tokenizer: Any) -> InnerText | None:
        """Return what reads texts in the middle; None for a tokenizer that reads them as it reads any."""
        if not tokenizer.is_fast:
            return None
        rules = json.loads(tokenizer.backend_tokenizer.to_str())
        bare = {**rules, **{name: _without_space(rules.get(name)) for name in ("normalizer", "pre_tokenizer")}}
        return None if bare == rules else cls(tokenizer, json.dumps(bare))

    def data(self, text: str) -> tuple[int, ...]:
        """Return the ids of a text that stands behind other text; control tokens in it are plain characters."""
        return tuple(self._data.encode(text, add_special_tokens=False).ids)

    def opening(self, head: str, shared: str) -> tuple[int, ...]:
        """Return the ids of a prompt's beginning.

        Args:
            head: of the template; its control tokens count.
            shared: data that follows it.
        """
        last = self._last(head)
        if last is None:
            return self._template(head) + self.data(shared) if head else self._first(shared)
        return self._template(head[: last.end()]) + self._behind_added(last.group(), head[last.end() :] + shared)

    def closing(self, tail: str) -> tuple[int, ...]:
        """Return the ids of what the template writes behind the user's text."""
        first = self._found.search(tail)
        if first is None:
            return self.data(tail)
        plain = tail[: first.start()]
        if self._added[first.group()].lstrip:
            plain = plain.rstrip()
        return self.data(plain) + self._template(tail[first.start() :])

    def behind(self, tail: str, text: str) -> tuple[int, ...]:
        """Return the ids of a text as it follows the end of a prompt.

        Args:
            tail: what the template writes behind the user's text.
            text: data.
        """
        last = self._last(tail)
        if last is None:
            return self.data(text)
        rest = tail[last.end() :]
        if rest and not (rest.isspace() and self._added[last.group()].rstrip):
            return self.data(text)
        return self._behind_added(last.group(), text)

    def _last(self, text: str) -> re.Match[str] | None:
        """The last control token in a text of the template."""
        return next(iter([*self._found.finditer(text)][-1:]), None)

    def _behind_added(self, token: str, text: str) -> tuple[int, ...]:
        if self._added[token].rstrip:
            text = text.lstrip()
        return self._first(text) if self._spaced and text else self.data(text)

    def _first(self, text: str) -> tuple[int, ...]:
        """Ids of data with the space before it."""
        ids = self._whole.encode(text, add_special_tokens=False, split_special_tokens=True, verbose=False)
        return tuple(ids)

    def _template(self, text: str) -> tuple[int, ...]:
        return tuple(self._whole.encode(text, add_special_tokens=False, split_special_tokens=False))

    def _puts_space_behind_added(self) -> bool:
        """Whether a text behind a control token is read as one that begins; some do so at the very beginning only."""
        for content, token in self._added.items():
            if token.special and not token.rstrip:
                behind = self._template(content + "a")[1:]
                return behind != self.data("a")
        return bool(self._added) and self._template(next(iter(self._added)) + "a")[1:] != self.data("a")


def _without_space(rule: Any) -> Any:
    """A normalizer or pre-tokenizer without what it puts before a text; None where nothing is left."""
    if not isinstance(rule, dict):
        return rule
    kind = rule.get("type")
    if kind == "Prepend":
        return None
    if kind == "Metaspace":
        return {**rule, "prepend_scheme": "never"}
    if kind == "ByteLevel" and rule.get("add_prefix_space"):
        return {**rule, "add_prefix_space": False}
    for name in ("normalizers", "pretokenizers"):
        if kind == "Sequence" and name in rule:
            return {**rule, name: [part for part in map(_without_space, rule[name]) if part is not None]}
    return rule
