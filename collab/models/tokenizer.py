"""Prompts as token ids: a checkpoint's chat template and tokenizer, used so that prompts share exact prefixes.

The template is rendered once around a marker and split there. What stands before the marker (system text, the opening
of the user turn), the shared part, each segment and the closing piece are then tokenised one by one: the ids of a
piece depend on nothing but itself, so two prompts that begin with the same pieces begin with the same ids.

Only the template's own text and the rules in the system text may contain control tokens. Whatever else a prompt holds
(a web page, a message) is data: "<|im_end|>" on a page becomes the plain characters of it.

Tokenizers of Llama-2's kind put a space before a text that they read; inside a prompt they must not, and a piece is
read as the same characters would be in the middle of the whole text.

A template that tells the date gets one that is given, not that of the moment: the same prompt tomorrow.

Where the tokenizer is not at hand, the length in tokens is estimated: a count by kinds of characters, chosen to err
upwards: the size guard of the prompts may cut a little too early, but a prompt that it lets pass fits. Short common
words count one token as in any large vocabulary, longer ones one per four letters; digits and punctuation count one
each, which is the most a byte-level tokenizer makes of them; other scripts count close to their bytes, which no byte-
level tokenizer exceeds.

The tokenizers of Llama-2, Mistral and Phi-3 put a space before every text that they read: read by itself, "tap" becomes
the tokens of " tap". A server reads the whole prompt at once and puts the space where the prompt begins, or behind each
control token. Pieces are read here so that they give the tokens which their characters have there, but for merges over
the seam between two pieces.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import inspect
import json
import math
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any

import jinja2

from collab.errors import ConfigError, MissingExtra
from collab.prompts.sandbox import WRONG, Sandbox, format_error, render
from collab.types import Prompt, Segment
from collab.utils.concurrency import note_doing

_PIECES = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d|\n+|[ \t]{2,}|[^\sA-Za-z\d]")
"""Runs of letters up to a change of case, single digits, line breaks, indentation, and every other character by
itself; a single space belongs to what follows it."""
_LEAST_PIECES = re.compile(
    r"(?P<run>[A-Za-z\d]+)|(?P<dense>[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af])|(?P<word>[^\W\d_]+)|(?P<mark>[^\w\s]+|_+)"
)
"""Runs of ASCII letters and digits, single characters of dense scripts, words of others, and runs of marks."""


def estimate_prompt(prompt: Prompt) -> int:
    """An estimate for a whole prompt; its system and shared part are counted once per step, not once per cell."""
    return estimate_tokens(prompt.system) + estimate_tokens(prompt.shared) + estimate_tokens(prompt.suffix)


@lru_cache(maxsize=256)
def estimate_tokens(text: str) -> int:
    """An estimate of the number of tokens; 0 for an empty text."""
    return sum(_estimate_length(piece) for piece in _PIECES.findall(text))


def _estimate_length(piece: str) -> int:
    if piece.isascii():
        return -(-len(piece) // 4) if piece.isalpha() else 1
    size = len(piece.encode("utf-8", "surrogatepass"))
    return 1 if size == 2 else size - 1  # a three-byte character is two tokens at worst in most vocabularies


def estimate_least_tokens(*texts: str) -> int:
    """Return the fewest tokens that texts can have in a large vocabulary; an estimate that errs downwards.

    A word is at least a token, three digits are one, two characters of a dense script nearly one; a run of marks may
    half belong to its neighbours.
    """
    return math.floor(sum(_estimate_least_length(piece) for text in texts for piece in _LEAST_PIECES.finditer(text)))


def _estimate_least_length(piece: re.Match[str]) -> float:
    match piece.lastgroup:
        case "run":
            return 1 if piece[0].isalpha() else -(-len(piece[0]) // 3)
        case "dense":
            return 0.4
        case "mark":
            return 0.5
        case _:
            return 1


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
        bare = {**rules, **{name: _strip_space_prefix(rules.get(name)) for name in ("normalizer", "pre_tokenizer")}}
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
        last = self._find_last_control(head)
        if last is None:
            return self._render_template(head) + self.data(shared) if head else self._encode_first(shared)
        return self._render_template(head[: last.end()]) + self._encode_behind_added(
            last.group(), head[last.end() :] + shared
        )

    def closing(self, tail: str) -> tuple[int, ...]:
        """Return the ids of what the template writes behind the user's text."""
        first = self._found.search(tail)
        if first is None:
            return self.data(tail)
        plain = tail[: first.start()]
        if self._added[first.group()].lstrip:
            plain = plain.rstrip()
        return self.data(plain) + self._render_template(tail[first.start() :])

    def behind(self, tail: str, text: str) -> tuple[int, ...]:
        """Return the ids of a text as it follows the end of a prompt.

        Args:
            tail: what the template writes behind the user's text.
            text: data.
        """
        last = self._find_last_control(tail)
        if last is None:
            return self.data(text)
        rest = tail[last.end() :]
        if rest and not (rest.isspace() and self._added[last.group()].rstrip):
            return self.data(text)
        return self._encode_behind_added(last.group(), text)

    def _find_last_control(self, text: str) -> re.Match[str] | None:
        """The last control token in a text of the template."""
        return next(iter([*self._found.finditer(text)][-1:]), None)

    def _encode_behind_added(self, token: str, text: str) -> tuple[int, ...]:
        if self._added[token].rstrip:
            text = text.lstrip()
        return self._encode_first(text) if self._spaced and text else self.data(text)

    def _encode_first(self, text: str) -> tuple[int, ...]:
        """Ids of data with the space before it."""
        ids = self._whole.encode(text, add_special_tokens=False, split_special_tokens=True, verbose=False)
        return tuple(ids)

    def _render_template(self, text: str) -> tuple[int, ...]:
        return tuple(self._whole.encode(text, add_special_tokens=False, split_special_tokens=False))

    def _puts_space_behind_added(self) -> bool:
        """Whether a text behind a control token is read as one that begins; some do so at the very beginning only."""
        for content, token in self._added.items():
            if token.special and not token.rstrip:
                behind = self._render_template(content + "a")[1:]
                return behind != self.data("a")
        return bool(self._added) and self._render_template(next(iter(self._added)) + "a")[1:] != self.data("a")


def _strip_space_prefix(rule: Any) -> Any:
    """A normalizer or pre-tokenizer without what it puts before a text; None where nothing is left."""
    if not isinstance(rule, dict):
        return rule
    kind = rule.get("type")
    # Each kind puts a space before the text in its own way; pieces of a prompt must not get one each.
    if kind == "Prepend":
        return None
    if kind == "Metaspace":
        return {**rule, "prepend_scheme": "never"}
    if kind == "ByteLevel" and rule.get("add_prefix_space"):
        return {**rule, "add_prefix_space": False}
    # Sequences are rules of rules.
    for name in ("normalizers", "pretokenizers"):
        if kind == "Sequence" and name in rule:
            return {**rule, name: [part for part in map(_strip_space_prefix, rule[name]) if part is not None]}
    return rule


_NO_THOUGHT: tuple[dict[str, Any], ...] = ({"enable_thinking": False}, {"thinking": False})
"""Variables by which templates are told to open no thought."""
_CLOCK = "strftime_now"
"""What chat templates call to tell the date."""
_DIRECTIVES = (
    "%a %A %b %B %d %-d %e %m %-m %y %Y %H %-H %I %-I %p %M %-M %S %-S %f %j %-j %U %W %w %u %V %G %c %x %X %D %F %T %R"
    " %z %Z"
)
"""Of strftime; what a template can ask for."""
_TEMPLATES = ("chat_template.jinja", "chat_template.json", "tokenizer_config.json")
"""Files in which chat templates stand."""
_MARKER = "collab-7d0f4be1-user-text"
"""Stands for the user's text while the template is rendered; plain characters, so that no template alters it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptIds:
    """A prompt as token ids, in the pieces in which it was tokenised."""

    pieces: tuple[tuple[int, ...], ...]
    """Head with the shared part, then one piece per segment, then the closing piece."""

    @property
    def ids(self) -> tuple[int, ...]:
        """All ids in one."""
        return tuple(token for piece in self.pieces for token in piece)

    def __len__(self) -> int:
        return sum(map(len, self.pieces))


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """How the pictures of a prompt stand in it."""

    token: int
    """Id that stands for a piece of a picture; the chat template shows it once per picture."""
    counts: tuple[int, ...]
    """How many of them each picture takes."""
    after: tuple[int, ...] = ()
    """Ids that follow the last picture."""
    closing: str = ""
    """Text that closes the prompt, after the template's own."""


def open_chat(
    path: str,
    download: bool = False,
    *,
    date: datetime.date | None = None,
    template: Mapping[str, Any] | None = None,
) -> ChatTokenizer:
    """Return the tokenizer of a checkpoint, built once as long as its files stay the same; as `ChatTokenizer`.

    Each thread has its own: whether control tokens count is a state of a tokenizer while it encodes.
    """
    try:
        files = sorted((one.name, one.stat().st_size, one.stat().st_mtime_ns) for one in os.scandir(path))
        variables = json.dumps(template or {}, sort_keys=True)
    except (OSError, TypeError):  # a name of the model hub, or something that no file holds
        return ChatTokenizer(path, download, date=date, template=template)
    return build_chat(path, download, date or get_prompt_date(), variables, threading.get_ident(), tuple(files))


@lru_cache(maxsize=4)
def build_chat(path: str, download: bool, date: datetime.date, template: str, *key: object) -> ChatTokenizer:
    """Build a tokenizer once per key; see `open_chat`."""
    return ChatTokenizer(path, download, date=date, template=json.loads(template))


class ChatTokenizer:
    """The tokenizer and the chat template of one checkpoint.

    Args:
        path: directory, or a model hub id.
        download: whether a hub id may be fetched; otherwise only what is cached on this machine is looked at.
        date: that the template tells; None for today's.
        template: variables for the chat template, e.g. {"enable_thinking": False}.

    Raises:
        ConfigError: the tokenizer cannot be read, or has no chat template, or it does not take these variables.
        MissingExtra: transformers is not installed.
    """

    def __init__(
        self,
        path: str,
        download: bool = False,
        *,
        date: datetime.date | None = None,
        template: Mapping[str, Any] | None = None,
    ) -> None:
        MissingExtra.unless("transformers", extra="train", purpose="a local model")
        with note_doing("loading transformers"):
            from transformers import AutoTokenizer

        try:
            with silence_transformers():
                self._tokenizer: Any = AutoTokenizer.from_pretrained(
                    path, local_files_only=not download, trust_remote_code=False
                )
        except Exception as error:  # the libraries that read tokenizers have errors of their own
            raise _make_unreadable_error(path, download, error) from error
        if not self._tokenizer.chat_template:
            raise ConfigError(
                f"{path}: the tokenizer has no chat template; use a checkpoint made for chat, "
                "or put a chat_template.jinja beside it"
            )
        self.path = path
        self.download = download
        self._noon = datetime.datetime.combine(date or get_prompt_date(), datetime.time(12))
        self._render_template = dict(template or {})
        self._check_variables()
        self.fingerprint = _hash_tokenizer(self._tokenizer)
        """Equal for tokenizers that give equal ids; stored with every id list."""
        added = self._tokenizer.added_tokens_decoder
        self.control = frozenset(id for id, token in added.items() if token.special)
        """Ids with a meaning of their own, such as the ends of turns."""
        self._inner = InnerText.of(self._tokenizer)
        self._frame = lru_cache(maxsize=8)(self._render_frame)
        self._encode_template = lru_cache(maxsize=16)(self._encode_raw)
        self._encode_data = lru_cache(maxsize=256)(self._encode_plain)
        self._frame("Rules.")  # a template that cannot be used should say so now
        self.start: int | None = self._tokenizer.bos_token_id
        """Id that begins a text; None when texts begin with nothing."""
        self.size: int = max(self._tokenizer.get_vocab().values()) + 1
        """One more than the largest id."""
        own, closing = self._tokenizer.eos_token_id, self._reply_closing()
        self.turn_end: int | None = own if closing is None else closing
        """Id to end a reply with: the template's, else the tokenizer's own; None when there is neither."""
        self.turn_ends: frozenset[int] = frozenset({own, closing} - {None})
        """Ids that end a reply: the tokenizer's own, and the one that the template closes a reply with."""
        self._lead, self.doubt = self._compare_reply()

    def prompt_ids(self, prompt: Prompt, places: Places | None = None) -> PromptIds:
        """Token ids of a prompt. Texts that agents share give equal pieces.

        Args:
            places: of the pictures that go before the text; None when there are none.

        Raises:
            ConfigError: the chat template has no place for pictures.
        """
        head, tail = self._frame(prompt.system, 0 if places is None else len(places.counts))
        if places is not None:
            tail += places.closing
            opening = self._expand_pictures(self._encode_template(head), places) + self._encode_data(prompt.shared)
        elif self._inner is not None:
            opening = self._inner.opening(head, prompt.shared)
        else:
            opening = self._encode_template(head) + self._encode_data(prompt.shared)
        return PromptIds(pieces=(opening, *map(self._encode_segment, prompt.segments), self._encode_tail(tail)))

    def list_tokens_from(self, id: int) -> list[tuple[int, str]]:
        """Return the tokens of this id and above, as (id, text), in order."""
        vocabulary: dict[str, int] = self._tokenizer.get_vocab()
        return sorted((number, token) for token, number in vocabulary.items() if number >= id)

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of a text as data."""
        return self._encode_plain(text)

    def encode_reply(self, text: str) -> tuple[int, ...]:
        """Ids of a reply as they follow a prompt, with the spaces that the template puts before it."""
        if self._inner is None:
            return self._encode_plain(self._lead + text)
        return self._inner.behind(self._frame("")[1], self._lead + text)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, control tokens shown; bytes that are no character come out as U+FFFD."""
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text

    # -------------------------------------------------------------------------------------------------- helpers

    def _encode_segment(self, segment: Segment) -> tuple[int, ...]:
        """A message stands in the tokens it was generated in, unless they are foreign or would act as control."""
        if segment.tokens is not None and segment.tokenizer == self.fingerprint:
            if self.control.isdisjoint(segment.tokens):
                return segment.tokens
        return self._encode_data(segment.text)

    def _expand_pictures(self, opening: tuple[int, ...], places: Places) -> tuple[int, ...]:
        """The opening with as many tokens for each picture as it takes."""
        found = [index for index, token in enumerate(opening) if token == places.token]
        if len(found) != len(places.counts):
            raise ConfigError(
                f"{self.path}: the chat template shows {len(found)} places for {len(places.counts)} pictures; "
                "use the template that came with the model, or modality: text"
            )
        spread: list[int] = []
        for start, index, count in zip([0, *(place + 1 for place in found)], found, places.counts, strict=False):
            spread += (*opening[start:index], *(places.token,) * count)
        return (*spread, *places.after, *opening[found[-1] + 1 :])

    def _encode_plain(self, text: str) -> tuple[int, ...]:
        if self._inner is not None:
            return self._inner.data(text)
        return tuple(self._tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True, verbose=False))

    def _encode_tail(self, text: str) -> tuple[int, ...]:
        return self._encode_template(text) if self._inner is None else self._inner.closing(text)

    def _encode_raw(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(text, add_special_tokens=False, split_special_tokens=False))

    def _render_frame(self, system: str, pictures: int = 0) -> tuple[str, str]:
        """What stands before and after the user's text; the system text goes there when the template has no place."""
        user = {"role": "user", "content": _format_content(_MARKER, pictures)}
        if system:
            try:
                text = self._render([{"role": "system", "content": system}, user])
                if system.strip() in text:
                    return self._split(text)
            except (jinja2.TemplateError, ValueError, TypeError):
                pass  # the template refuses the role; if it refuses the other form too, that one says why
            user = {"role": "user", "content": _format_content(f"{system}\n\n{_MARKER}", pictures)}
        try:
            return self._split(self._render([user]))
        except (jinja2.TemplateError, ValueError, TypeError) as error:
            use = "has no place for pictures" if pictures else "cannot be used"
            raise ConfigError(f"{self.path}: the chat template {use}: {take_first_line(error)}") from None

    def _reply_closing(self) -> int | None:
        """The control token that the template closes a reply with; None when it uses none."""
        closing = self._encode_template(self._encode_after_reply())
        return closing[0] if closing and closing[0] in self.control else None

    def _encode_after_reply(self) -> str:
        user = {"role": "user", "content": "Hello."}
        try:
            text = self._render([user, {"role": "assistant", "content": _MARKER}], opening=False)
            return self._split(text)[1]
        except (jinja2.TemplateError, ValueError):
            return ""  # a template without replies: the configured ends must do

    def _render(
        self, messages: list[dict[str, Any]], opening: bool = True, over: Mapping[str, Any] | None = None
    ) -> str:
        template = self._dated_template
        variables = {**self._render_template, **(over or {})}
        told = {"messages": messages, "add_generation_prompt": opening, **self._tokenizer.special_tokens_map}
        # Checked before rendering: a template may read variables that it does not get.
        _check_template(template or self._tokenizer.get_chat_template(), told | variables)
        text: str = self._tokenizer.apply_chat_template(
            messages,
            chat_template=template,
            tokenize=False,
            add_generation_prompt=opening,
            **variables,
        )
        return text

    @cached_property
    def _dated_template(self) -> str | None:
        """The chat template with a clock of its own, as transformers' tells the moment; None where it asks for none."""
        own: str = self._tokenizer.get_chat_template()
        return _make_clock(self._noon) + own if _CLOCK in own else None

    def _check_variables(self) -> None:
        taken = inspect.signature(self._tokenizer.apply_chat_template).parameters.keys() - {"kwargs"}
        odd = sorted({str(name) for name in self._render_template} & (taken | {"messages", _CLOCK}))
        if odd:
            raise ConfigError(
                f"{self.path}: chat_template_kwargs: {odd[0]!r} is no variable of a chat template; name those that it "
                "reads, e.g. enable_thinking (the date is the option date)"
            )

    def _compare_reply(self) -> tuple[str, str | None]:
        """Compare how replies are opened with how the template writes finished ones.

        Returns:
            Spaces that the template puts before a reply; and what else differs and what to do, None for nothing.
        """
        opened, written = self._find_openings({})
        if not (opened + written).strip():
            return "" if opened else written, None
        better = next((over for over in _NO_THOUGHT if not "".join(self._find_openings(over)).strip()), None)
        advice = "" if better is None else f", e.g. {json.dumps(better)}"
        return "", (
            f"the chat template opens a reply with {opened!r} and writes a finished one with {written!r} before it: "
            f"replies are played and trained where the model does not expect them; set chat_template_kwargs{advice}"
        )

    def _find_openings(self, over: Mapping[str, Any]) -> tuple[str, str]:
        """What stands before a reply that is opened, and before a finished one, from where the two differ.

        Both are empty for a template without replies.
        """
        user = {"role": "user", "content": "Hello."}
        reply = {"role": "assistant", "content": _MARKER}
        try:
            opened = self._render([user], over=over)
            # A marker in place of the reply shows where it stands, and what comes before it.
            written, found, _ = self._render([user, reply], opening=False, over=over).rpartition(_MARKER)
        except (jinja2.TemplateError, ValueError, TypeError):
            return "", ""
        if not found:
            return "", ""
        # The longest common beginning: from there on the template treats an open reply in another way.
        same = next(
            (place for place, (one, other) in enumerate(zip(opened, written, strict=False)) if one != other),
            min(len(opened), len(written)),
        )
        return opened[same:], written[same:]

    def _split(self, text: str) -> tuple[str, str]:
        before, found, after = text.rpartition(_MARKER)
        if not found:
            raise ValueError("it does not show the user's text")
        if _MARKER in before:
            raise ValueError("it shows the user's text more than once")
        return before, after


@cache
def get_prompt_date() -> datetime.date:
    """Return the date that this process tells: one for all that it begins, also past midnight."""
    return datetime.date.today()


def _make_clock(now: datetime.datetime) -> str:
    """Return a piece of template that writes nothing and makes `strftime_now` tell this moment."""
    told = "".join(f"|replace({one!r}, {now.strftime(one)!r})" for one in _DIRECTIVES.split())
    return f"{{% macro {_CLOCK}(format) %}}{{{{ format{told}|replace('%%', '%') }}}}{{% endmacro %}}{{{{ '' }}}}"


def reads_date(path: str) -> bool:
    """Whether a checkpoint's chat template reads the date; arguments as of `is_in_template`."""
    return is_in_template(path, _CLOCK.encode())


def is_in_template(path: str, text: bytes) -> bool:
    """Whether a text stands in a file that may hold a checkpoint's chat template; nothing is loaded.

    Args:
        path: directory, or a model hub id, of which this machine's cache is looked at.
    """
    if Path(path).is_dir():
        files = [Path(path) / name for name in _TEMPLATES]
    else:
        from huggingface_hub import try_to_load_from_cache

        try:
            found = [try_to_load_from_cache(path, name) for name in _TEMPLATES]
        except ValueError:  # no such id
            return False
        files = [Path(file) for file in found if isinstance(file, str)]
    return any(text in file.read_bytes() for file in files if file.is_file())


def _check_template(template: str, told: dict[str, Any]) -> None:
    """Fill a chat template in within bounds, before transformers does it without; jinja2.TemplateError where it fails.

    A checkpoint may come from anywhere, and the sandbox of transformers ends no loop.
    """
    try:
        render(_bound_template(template), **told)
    except jinja2.TemplateError:
        raise
    except WRONG as error:
        raise jinja2.TemplateRuntimeError(format_error(error)) from None


@lru_cache(maxsize=8)
def _bound_template(template: str) -> jinja2.Template:
    """The template where the same filters and tags mean the same as in transformers."""
    from transformers.utils.chat_template_utils import _compile_jinja_template

    return Sandbox.like(_compile_jinja_template("").environment).from_string(template)


def _format_content(text: str, pictures: int) -> str | list[dict[str, str]]:
    """A turn as templates take it: plain text, or parts when it holds pictures."""
    if not pictures:
        return text
    return [*({"type": "image"} for _ in range(pictures)), {"type": "text", "text": text}]


def _hash_tokenizer(tokenizer: Any) -> str:
    """SHA-256 over everything that decides ids: vocabulary, merges and rules, without padding and truncation."""
    if tokenizer.is_fast:
        rules = json.loads(tokenizer.backend_tokenizer.to_str())
        rules = {name: value for name, value in rules.items() if name not in ("padding", "truncation")}
    else:
        rules = {"vocabulary": tokenizer.get_vocab(), "control": tokenizer.all_special_ids}
    return hashlib.sha256(json.dumps(rules, sort_keys=True).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def take_first_line(error: BaseException) -> str:
    """Return the first line of what an error says; its type where it says nothing."""
    lines = [line.strip() for line in str(error).strip().splitlines()]
    if isinstance(error, KeyError):
        return f"there is no {error}"
    if len(lines) > 1 and lines[0].endswith(":"):  # a heading says nothing by itself
        return f"{lines[0]} {lines[1]}"
    return lines[0] if lines else type(error).__name__


@contextlib.contextmanager
def silence_transformers() -> Iterator[None]:
    """Keep transformers from drawing progress bars and printing warnings: what matters is told in an error."""
    from transformers.utils import logging

    shown, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if shown:
            logging.enable_progress_bar()


def make_code_error(named: str, error: BaseException) -> ConfigError | None:
    """Return the error for a checkpoint that could only be read by running the Python beside it; None for another one.

    Args:
        named: how the message calls it.
        error: what transformers said.
    """
    if "trust_remote_code" not in str(error):
        return None
    return ConfigError(
        f"{named}: can only be read by running Python that comes with it (auto_map), and code of a checkpoint is never "
        "run here; use a model that transformers knows by itself, or serve this one (kind: openai)"
    )


def _make_unreadable_error(path: str, download: bool, error: Exception) -> ConfigError:
    """Return the error for a tokenizer that cannot be loaded."""
    if not download and not Path(path).is_dir():
        return ConfigError(
            f"{path}: no such directory, and no model of that name in this machine's cache; "
            "name yours with --set 'agents.*.options.path=DIR', or set download: true to fetch it from the model hub"
        )
    return make_code_error(path, error) or ConfigError(
        f"{path}: the tokenizer cannot be loaded: {take_first_line(error)}"
    )
