"""Tokens of a piece of text within a prompt, for tokenizers that put a space before every text.

The tokenizers of Llama-2, Mistral and Phi-3 put a space before every text: "tap" alone becomes the tokens of " tap".
A server puts it only at the beginning of the prompt, or behind each control token. `InnerText` gives a piece the
tokens that its characters have within the whole prompt, except for merges across two pieces.
"""

from __future__ import annotations

import json
import re
from typing import Any


class InnerText:
    """A tokenizer that puts a space before texts, and its copy that does not.

    Args:
        whole: the transformers tokenizer.
        rules: JSON of `tokenizers` for the copy.
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
        self._spaced = self._has_space_behind_added()

    @classmethod
    def of(cls, tokenizer: Any) -> InnerText | None:
        """Build it for a tokenizer; None if the tokenizer puts no space."""
        if not tokenizer.is_fast:
            return None
        rules = json.loads(tokenizer.backend_tokenizer.to_str())
        bare = {**rules, **{name: _strip_space_prefix(rules.get(name)) for name in ("normalizer", "pre_tokenizer")}}
        return None if bare == rules else cls(tokenizer, json.dumps(bare))

    def data(self, text: str) -> tuple[int, ...]:
        """Return the ids of a text behind other text; control tokens in it are plain characters."""
        return tuple(self._data.encode(text, add_special_tokens=False).ids)

    def opening(self, head: str, shared: str) -> tuple[int, ...]:
        """Return the ids of a prompt's beginning.

        Args:
            head: template text, with control tokens.
            shared: data behind it.
        """
        last = self._find_last_control(head)
        if last is None:
            return self._encode_template(head) + self.data(shared) if head else self._encode_first(shared)
        return self._encode_template(head[: last.end()]) + self._encode_behind_added(
            last.group(), head[last.end() :] + shared
        )

    def closing(self, tail: str) -> tuple[int, ...]:
        """Return the ids of the template text behind the user's text."""
        first = self._found.search(tail)
        if first is None:
            return self.data(tail)
        plain = tail[: first.start()]
        if self._added[first.group()].lstrip:
            plain = plain.rstrip()
        return self.data(plain) + self._encode_template(tail[first.start() :])

    def behind(self, tail: str, text: str) -> tuple[int, ...]:
        """Return the ids of a data text behind a prompt that ends with the template text `tail`."""
        last = self._find_last_control(tail)
        if last is None:
            return self.data(text)
        rest = tail[last.end() :]
        if rest and not (rest.isspace() and self._added[last.group()].rstrip):
            return self.data(text)
        return self._encode_behind_added(last.group(), text)

    def _find_last_control(self, text: str) -> re.Match[str] | None:
        """Return the last control token in a template text."""
        return next(iter([*self._found.finditer(text)][-1:]), None)

    def _encode_behind_added(self, token: str, text: str) -> tuple[int, ...]:
        if self._added[token].rstrip:
            text = text.lstrip()
        return self._encode_first(text) if self._spaced and text else self.data(text)

    def _encode_first(self, text: str) -> tuple[int, ...]:
        """Return the ids of data with the space before it."""
        ids = self._whole.encode(text, add_special_tokens=False, split_special_tokens=True, verbose=False)
        return tuple(ids)

    def _encode_template(self, text: str) -> tuple[int, ...]:
        return tuple(self._whole.encode(text, add_special_tokens=False, split_special_tokens=False))

    def _has_space_behind_added(self) -> bool:
        """Return whether a space is put behind control tokens, not only at the very beginning."""
        for content, token in self._added.items():
            if token.special and not token.rstrip:
                behind = self._encode_template(content + "a")[1:]
                return behind != self.data("a")
        return bool(self._added) and self._encode_template(next(iter(self._added)) + "a")[1:] != self.data("a")


def _strip_space_prefix(rule: Any) -> Any:
    """Return a normalizer or pre-tokenizer without its leading space; None if nothing is left."""
    if not isinstance(rule, dict):
        return rule
    kind = rule.get("type")
    # Each kind adds the space in its own way.
    if kind == "Prepend":
        return None
    if kind == "Metaspace":
        return {**rule, "prepend_scheme": "never"}
    if kind == "ByteLevel" and rule.get("add_prefix_space"):
        return {**rule, "add_prefix_space": False}
    # A sequence holds further rules.
    for name in ("normalizers", "pretokenizers"):
        if kind == "Sequence" and name in rule:
            return {**rule, name: [part for part in map(_strip_space_prefix, rule[name]) if part is not None]}
    return rule
