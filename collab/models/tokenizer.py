"""Turn prompts into token ids by a checkpoint's chat template, so that prompts share exact prefixes.

The template is rendered around a marker and split there. The text before the marker (system text, opening of the user
turn), the shared part, each segment and the closing are tokenised one by one. The ids of a piece depend on the piece
alone, so prompts with equal first pieces have equal first ids.

Only the template's own text and the rules in the system text may contain control tokens. All other text (a web page, a
message) is data: "<|im_end|>" on a page becomes plain characters.

A template that prints the date gets a given one, so that the prompt is the same tomorrow.

Without a tokenizer, the length is estimated by kinds of characters and errs upwards, so that a prompt which passes the
size guard fits. Short words count one token, longer ones one per four letters. Digits and punctuation count one each,
the most that a byte-level tokenizer needs. Other scripts count close to their bytes.
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
from collab.models.inner_text import InnerText
from collab.prompts.sandbox import WRONG, Sandbox, format_error, render
from collab.types import Prompt, Segment
from collab.utils.concurrency import note_doing

_PIECES = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d|\n+|[ \t]{2,}|[^\sA-Za-z\d]")
"""Runs of letters up to a change of case, single digits, line breaks, indentation, and every other character alone; a
single space belongs to the next piece."""
_LEAST_PIECES = re.compile(
    r"(?P<run>[A-Za-z\d]+)|(?P<dense>[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af])|(?P<word>[^\W\d_]+)|(?P<mark>[^\w\s]+|_+)"
)
"""Runs of ASCII letters and digits, single characters of dense scripts, words of others, and runs of marks."""


def estimate_prompt(prompt: Prompt) -> int:
    """Return an estimate for a whole prompt; caches count its system and shared part once per step."""
    return estimate_tokens(prompt.system) + estimate_tokens(prompt.shared) + estimate_tokens(prompt.suffix)


@lru_cache(maxsize=256)
def estimate_tokens(text: str) -> int:
    """Return an estimate of the number of tokens, erring upwards."""
    return sum(_estimate_length(piece) for piece in _PIECES.findall(text))


def _estimate_length(piece: str) -> int:
    if piece.isascii():
        return -(-len(piece) // 4) if piece.isalpha() else 1
    size = len(piece.encode("utf-8", "surrogatepass"))
    return 1 if size == 2 else size - 1  # a three-byte character is two tokens at worst in most vocabularies


def estimate_least_tokens(*texts: str) -> int:
    """Return an estimate of the number of tokens in a large vocabulary, erring downwards."""
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


_NO_THOUGHT: tuple[dict[str, Any], ...] = ({"enable_thinking": False}, {"thinking": False})
"""Variables that switch thoughts off in templates."""
_CLOCK = "strftime_now"
"""Function that chat templates call to print the date."""
_DIRECTIVES = (
    "%a %A %b %B %d %-d %e %m %-m %y %Y %H %-H %I %-I %p %M %-M %S %-S %f %j %-j %U %W %w %u %V %G %c %x %X %D %F %T %R"
    " %z %Z"
)
"""Directives of strftime that a template can use."""
_TEMPLATES = ("chat_template.jinja", "chat_template.json", "tokenizer_config.json")
"""Files that hold chat templates."""
OWN_PATH = "options.path of the agents file"
"""Advice on naming a checkpoint; what builds a model for a place of its own replaces it (`rollout.build_model`)."""

_MARKER = "collab-7d0f4be1-user-text"
"""Placeholder of the user's text during rendering; plain characters that no template alters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptIds:
    """A prompt as token ids, piece by piece."""

    pieces: tuple[tuple[int, ...], ...]
    """Head with the shared part, then one piece per segment, then the closing piece."""

    @property
    def ids(self) -> tuple[int, ...]:
        """All ids in one tuple."""
        return tuple(token for piece in self.pieces for token in piece)

    def __len__(self) -> int:
        return sum(map(len, self.pieces))


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Places of a prompt's pictures."""

    token: int
    """Token id for a piece of a picture; the chat template writes it once per picture."""
    counts: tuple[int, ...]
    """Number of tokens per picture."""
    after: tuple[int, ...] = ()
    """Ids behind the last picture."""
    closing: str = ""
    """Text that closes the prompt, after the template's."""


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
        download: whether a hub id may be fetched; otherwise it must be in this machine's cache.
        date: for templates that print the date; None for today.
        template: variables for the chat template, e.g. {"enable_thinking": False}.

    Raises:
        ConfigError: the tokenizer cannot be read, has no chat template, or the template does not take these variables.
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
        self._template_variables = dict(template or {})
        self._check_variables()
        self.fingerprint = hash_tokenizer(self._tokenizer)
        """Equal for tokenizers with equal ids; stored with every id list."""
        added = self._tokenizer.added_tokens_decoder
        self.control = frozenset(id for id, token in added.items() if token.special)
        """Ids of control tokens, such as ends of turns."""
        self._inner = InnerText.of(self._tokenizer)
        self._frame = lru_cache(maxsize=8)(self._render_frame)
        self._encode_template = lru_cache(maxsize=16)(self._encode_raw)
        self._encode_data = lru_cache(maxsize=256)(self._encode_plain)
        self._frame("Rules.")  # refuse an unusable template now
        self.start: int | None = self._tokenizer.bos_token_id
        """Id that begins a text; None without one."""
        self.size: int = max(self._tokenizer.get_vocab().values()) + 1
        """One more than the largest id."""
        own, closing = self._tokenizer.eos_token_id, self._reply_closing()
        self.turn_end: int | None = own if closing is None else closing
        """Id that ends a reply: the template's, else the tokenizer's; None without either."""
        self.turn_ends: frozenset[int] = frozenset({own, closing} - {None})
        """Ids that end a reply: the tokenizer's and the template's."""
        self._lead, self.doubt = self._compare_reply()

    def prompt_ids(self, prompt: Prompt, places: Places | None = None) -> PromptIds:
        """Return the token ids of a prompt; texts that agents share give equal pieces.

        Args:
            places: of the pictures before or behind the text; None without pictures.

        Raises:
            ConfigError: the chat template has no place for pictures, or the family reads none behind the text.
        """
        head, tail = self._frame(prompt.system, 0 if places is None else len(places.counts), prompt.pictures_last)
        closing = self._encode_tail(tail if places is None else tail + places.closing)
        if places is not None:
            opening = self._encode_template(head)
            if not prompt.pictures_last:
                opening = self._expand_pictures(opening, places)
            elif places.closing:
                raise ConfigError(
                    f"{self.path}: the agent's dialect shows the picture behind the text, and this family reads it "
                    "before the text; use another dialect, or leave it out"
                )
            else:
                closing = self._expand_pictures(closing, places)
            opening += self._encode_data(prompt.shared)
        elif self._inner is not None:
            opening = self._inner.opening(head, prompt.shared)
        else:
            opening = self._encode_template(head) + self._encode_data(prompt.shared)
        return PromptIds(pieces=(opening, *map(self._encode_segment, prompt.segments), closing))

    def list_tokens_from(self, id: int) -> list[tuple[int, str]]:
        """Return the tokens of this id and above, as (id, text), in order."""
        vocabulary: dict[str, int] = self._tokenizer.get_vocab()
        return sorted((number, token) for token, number in vocabulary.items() if number >= id)

    def encode(self, text: str) -> tuple[int, ...]:
        """Return the ids of a text as data."""
        return self._encode_plain(text)

    def encode_reply(self, text: str) -> tuple[int, ...]:
        """Return the ids of a reply behind a prompt, with the template's spaces before it."""
        if self._inner is None:
            return self._encode_plain(self._lead + text)
        return self._inner.behind(self._frame("")[1], self._lead + text)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids with control tokens; invalid bytes become U+FFFD."""
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text

    # -------------------------------------------------------------------------------------------------- helpers

    def _encode_segment(self, segment: Segment) -> tuple[int, ...]:
        """Return a message's ids: as generated, unless they are from another tokenizer or contain control tokens."""
        if segment.tokens is not None and segment.tokenizer == self.fingerprint:
            if self.control.isdisjoint(segment.tokens):
                return segment.tokens
        return self._encode_data(segment.text)

    def _expand_pictures(self, ids: tuple[int, ...], places: Places) -> tuple[int, ...]:
        """Repeat each picture's token as often as the picture needs."""
        found = [index for index, token in enumerate(ids) if token == places.token]
        if len(found) != len(places.counts):
            raise ConfigError(
                f"{self.path}: the chat template shows {len(found)} places for {len(places.counts)} pictures; "
                "use the template that came with the model, or modality: text"
            )
        spread: list[int] = []
        for start, index, count in zip([0, *(place + 1 for place in found)], found, places.counts, strict=False):
            spread += (*ids[start:index], *(places.token,) * count)
        return (*spread, *places.after, *ids[found[-1] + 1 :])

    def _encode_plain(self, text: str) -> tuple[int, ...]:
        if self._inner is not None:
            return self._inner.data(text)
        return tuple(self._tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True, verbose=False))

    def _encode_tail(self, text: str) -> tuple[int, ...]:
        return self._encode_template(text) if self._inner is None else self._inner.closing(text)

    def _encode_raw(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(text, add_special_tokens=False, split_special_tokens=False))

    def _render_frame(self, system: str, pictures: int = 0, pictures_last: bool = False) -> tuple[str, str]:
        """Render the text around the user's text; without a system role, the system text joins the user turn."""
        user = {"role": "user", "content": _format_content(_MARKER, pictures, pictures_last)}
        if system:
            try:
                text = self._render([{"role": "system", "content": system}, user])
                if system.strip() in text:
                    return self._split(text)
            except (jinja2.TemplateError, ValueError, TypeError):
                pass  # the template refuses the role; the other form below reports further errors
            user = {"role": "user", "content": _format_content(f"{system}\n\n{_MARKER}", pictures, pictures_last)}
        try:
            return self._split(self._render([user]))
        except (jinja2.TemplateError, ValueError, TypeError) as error:
            use = "has no place for pictures" if pictures else "cannot be used"
            raise ConfigError(f"{self.path}: the chat template {use}: {take_first_line(error)}") from None

    def _reply_closing(self) -> int | None:
        """Return the control token that closes a reply in the template; None without one."""
        closing = self._encode_template(self._encode_after_reply())
        return closing[0] if closing and closing[0] in self.control else None

    def _encode_after_reply(self) -> str:
        user = {"role": "user", "content": "Hello."}
        try:
            text = self._render([user, {"role": "assistant", "content": _MARKER}], opening=False)
            return self._split(text)[1]
        except (jinja2.TemplateError, ValueError):
            return ""  # a template without replies: only the configured ends apply

    def _render(
        self, messages: list[dict[str, Any]], opening: bool = True, over: Mapping[str, Any] | None = None
    ) -> str:
        template = self._dated_template
        variables = {**self._template_variables, **(over or {})}
        told = {"messages": messages, "add_generation_prompt": opening, **self._tokenizer.special_tokens_map}
        # Checked within bounds first: a checkpoint's template may never end.
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
        """The chat template with a fixed clock; None if it does not use the clock."""
        own: str = self._tokenizer.get_chat_template()
        return _make_clock(self._noon) + own if _CLOCK in own else None

    def _check_variables(self) -> None:
        taken = inspect.signature(self._tokenizer.apply_chat_template).parameters.keys() - {"kwargs"}
        odd = sorted({str(name) for name in self._template_variables} & (taken | {"messages", _CLOCK}))
        if odd:
            raise ConfigError(
                f"{self.path}: chat_template_kwargs: {odd[0]!r} is no variable of a chat template; name those that it "
                "reads, e.g. enable_thinking (the date is the option date)"
            )

    def _compare_reply(self) -> tuple[str, str | None]:
        """Compare the text before an open reply with that before a finished one.

        Returns:
            Spaces that the template puts before a reply; and a warning about any other difference, or None.
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
        """Return the text before an open and before a finished reply, from their first difference; empty if unknown."""
        user = {"role": "user", "content": "Hello."}
        reply = {"role": "assistant", "content": _MARKER}
        try:
            opened = self._render([user], over=over)
            # A marker in place of the reply shows the text before it.
            written, found, _ = self._render([user, reply], opening=False, over=over).rpartition(_MARKER)
        except (jinja2.TemplateError, ValueError, TypeError):
            return "", ""
        if not found:
            return "", ""
        # After the longest common beginning the template treats an open reply differently.
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
    """Return this process's date, which stays the same past midnight."""
    return datetime.date.today()


def _make_clock(now: datetime.datetime) -> str:
    """Return a piece of template that prints nothing and makes `strftime_now` return this moment."""
    told = "".join(f"|replace({one!r}, {now.strftime(one)!r})" for one in _DIRECTIVES.split())
    return f"{{% macro {_CLOCK}(format) %}}{{{{ format{told}|replace('%%', '%') }}}}{{% endmacro %}}{{{{ '' }}}}"


def has_date(path: str) -> bool:
    """Return whether a checkpoint's chat template reads the date; arguments as `is_in_template`."""
    return is_in_template(path, _CLOCK.encode())


def is_in_template(path: str, text: bytes) -> bool:
    """Return whether a file with a checkpoint's chat template contains a text; loads nothing.

    Args:
        path: directory, or a model hub id in this machine's cache.
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
    """Render a chat template within bounds; jinja2.TemplateError where it fails.

    A checkpoint's template may loop for ever, and transformers' sandbox does not stop it.
    """
    try:
        render(_bound_template(template), **told)
    except jinja2.TemplateError:
        raise
    except WRONG as error:
        raise jinja2.TemplateRuntimeError(format_error(error)) from None


@lru_cache(maxsize=8)
def _bound_template(template: str) -> jinja2.Template:
    """Compile a template with bounds and with transformers' filters and tags."""
    from transformers.utils.chat_template_utils import _compile_jinja_template

    return Sandbox.like(_compile_jinja_template("").environment).from_string(template)


def _format_content(text: str, pictures: int, pictures_last: bool) -> str | list[dict[str, str]]:
    """Return a turn's content: plain text, or parts with pictures before or behind it."""
    if not pictures:
        return text
    shown, told = [{"type": "image"} for _ in range(pictures)], [{"type": "text", "text": text}]
    return told + shown if pictures_last else shown + told


def hash_tokenizer(tokenizer: Any) -> str:
    """Return the SHA-256 over all that decides ids: vocabulary, merges and rules, without padding and truncation."""
    if tokenizer.is_fast:
        rules = json.loads(tokenizer.backend_tokenizer.to_str())
        rules = {name: value for name, value in rules.items() if name not in ("padding", "truncation")}
    else:
        rules = {"vocabulary": tokenizer.get_vocab(), "control": tokenizer.all_special_ids}
    return hashlib.sha256(json.dumps(rules, sort_keys=True).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def take_first_line(error: BaseException) -> str:
    """Return the first line of an error's message; its type if empty."""
    lines = [line.strip() for line in str(error).strip().splitlines()]
    if isinstance(error, KeyError):
        return f"there is no {error}"
    if len(lines) > 1 and lines[0].endswith(":"):  # a heading says nothing by itself
        return f"{lines[0]} {lines[1]}"
    return lines[0] if lines else type(error).__name__


@contextlib.contextmanager
def silence_transformers() -> Iterator[None]:
    """Silence transformers' progress bars and warnings; errors report what matters."""
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
    """Return the error for a checkpoint that needs its own Python code; None for other errors of transformers.

    Args:
        named: name of the checkpoint in the message.
        error: raised by transformers.
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
            f"name yours with {OWN_PATH}, or set download: true to fetch it from the model hub"
        )
    return make_code_error(path, error) or ConfigError(
        f"{path}: the tokenizer cannot be loaded: {take_first_line(error)}"
    )
