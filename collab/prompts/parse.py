"""Parse a reply into an action, or the reason why there is none.

A reply is free text (the reason), then `Action:` and one action in the space's own syntax. The parser accepts
variations around the action (missing markers, code fences, markdown, text after it) and is strict about the action
itself. It never raises.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from collab.envs.grammar import SPACES, ActionSpace
from collab.types import Action, Cause, Observation, ParseFailure

# Possessive quantifiers (*+) keep these linear on hostile text.
_MARKER = re.compile(r"^[ \t*#>`-]*+action[\s*]*+:[\s*]*+", re.IGNORECASE | re.MULTILINE)
"""At the start of a line; elsewhere it may stand inside the action itself ("action: …" in a typed text)."""
_REASON = re.compile(r"[\s*]*+(?:reason|thought)[\s*]*+:[\s*]*+", re.IGNORECASE)
_CALL = re.compile(r"(?<![A-Za-z0-9_])[A-Za-z_][A-Za-z0-9_]*+\s*+\(")
_THOUGHT_ENDS = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "<thought>": "</thought>",
    "<reasoning>": "</reasoning>",
    "<reason>": "</reason>",
    "<seed:think>": "</seed:think>",
    "[think]": "[/think]",
    "<|channel|>analysis": "<|channel|>final",
}
"""Tag that opens a thought within a reply → tag that closes it; in any case of letters."""
_TAG = re.compile(
    rf"^[ \t]*+(?:(?:reason|thought)[ \t*]*+:[ \t*]*+)?(?P<opening>{'|'.join(map(re.escape, _THOUGHT_ENDS))})"
    rf"|{'|'.join(map(re.escape, _THOUGHT_ENDS.values()))}",
    re.IGNORECASE | re.MULTILINE,
)
"""Opens a thought at the start of a line or reason, as elsewhere it may be typed or quoted; closes one anywhere."""
_WITHHELD: dict[str, tuple[Cause, str]] = {
    "reasoning": ("reasoning", "the reply is all reasoning, and no text follows it"),
    "refusal": ("refusal", "the model refused"),
    "tool_call": ("tool_call", "the model called a tool instead of writing"),
    "content_filter": ("content_filter", "the server's content filter ended the reply"),
}
"""`Reply.finish` → cause, and its words."""
_LONGEST = 100_000
"""Characters of a reply that are read at all."""
_ATTEMPTS = 20
"""Places of a reply that are tried; bounds the work on hostile text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedReply:
    """Parts of a reply."""

    reason: str
    """Text before the action; empty when there was none."""
    action: Action | None
    """Canonical on its observation; None if the reply gave none."""
    failure: ParseFailure | None
    """None exactly when `action` is not None."""
    remarks: tuple[str, ...] = ()
    """`Utterance.remarks`."""


def read_reply(
    text: str, space: ActionSpace, observation: Observation, *, finish: str | None = None, aside: str = ""
) -> ParsedReply:
    """Read a policy's reply. The last `Action:` counts; without one, the last thing that looks like an action.

    What stands in a thought (`<think>`) was only considered, and is never the reply's action.

    Args:
        finish: end of the reply as the model reports it (`Reply.finish`); gives the cause if there is no action. None
            if unknown.
        aside: `Reply.aside`.
    """
    parsed = _read(text, space, observation)
    if parsed.failure is None:
        return parsed
    return replace(parsed, failure=_explain(parsed.failure, text, space, finish, aside))


def _explain(failure: ParseFailure, text: str, space: ActionSpace, finish: str | None, aside: str) -> ParseFailure:
    """Return the cause of a reply without an action, if more is known than that it does not parse."""
    # What the server says comes first: an empty reply may be a filtered one.
    withheld = read_withheld(finish, aside)
    if withheld is not None:
        return withheld
    cut = finish == "length"
    # Thoughts may hold calls that were only considered, so they explain a reply without an action.
    if failure.kind in ("empty", "no_action", "malformed"):
        said, never_closed = _blank_thoughts(text[:_LONGEST], space)
        if never_closed is not None or (text.strip() and not said.strip()):
            where = "nothing follows the thought" if never_closed is None else f"{never_closed} is never closed"
            ended = ", and max_tokens cut it" if cut else ""
            return ParseFailure(kind="reasoning", detail=f"the reply is all reasoning: {where}{ended}")
    if cut and failure.kind in ("empty", "no_action", "malformed"):
        return ParseFailure(kind="cut", detail=f"max_tokens cut the reply before its action ({failure.detail})")
    # The last guess: an action of the other space, as models mix them up.
    return _find_other_space(text, space) or failure


def read_withheld(finish: str | None, aside: str) -> ParseFailure | None:
    """Return what came in place of a text, by `Reply.finish` and `Reply.aside`; None if a text was possible."""
    words = None if finish is None else _WITHHELD.get(finish)
    if words is None:
        return None
    return ParseFailure(kind=words[0], detail=f"{words[1]}: {aside}" if aside else words[1])


def strip_thoughts(text: str) -> str:
    """Return a reply with its thoughts (`<think>`) blanked out and no space around it; empty if they never end."""
    return _blank_thoughts(text, None)[0].strip()


def read_thoughts(text: str) -> str:
    """Return the thoughts (`<think>`) of a reply without their tags, on one line; empty without any."""
    rest = _blank_thoughts(text, None)[0]
    thoughts = "".join(own if own != left else " " for own, left in zip(text, rest, strict=True))
    return " ".join(_TAG.sub(" ", thoughts).split())


def _blank_thoughts(text: str, space: ActionSpace | None) -> tuple[str, str | None]:
    """Return a reply with spaces in place of its thoughts, and the tag of one that is never closed, or None.

    A template may have opened the first thought: what a tag closes without another that opens it is one, too. A tag in
    a text that an action types closes nothing; `space` says what an action looks like, None for a reply without.
    """
    begin, tag, spans = 0, "", list[tuple[int, int]]()
    typed: list[tuple[int, int]] | None = None
    for found in _TAG.finditer(text):
        closed = found[0].lower()
        if found["opening"]:
            begin, tag = (begin, tag) if tag else (found.start(), found["opening"])
            continue
        if not tag:
            typed = [*_find_candidates(text, 0, space)] if typed is None and space else typed or []
            if any(start < found.start() < end for start, end in typed):
                continue
            spans = [(0, found.end())]
        elif closed == _THOUGHT_ENDS[tag.lower()]:
            spans.append((begin, found.end()))
            tag = ""
    if tag:
        spans.append((begin, len(text)))
    return _blank(text, spans), tag or None


def _blank(text: str, spans: Sequence[tuple[int, int]]) -> str:
    """Return the text with spaces in these parts of it, which follow each other."""
    pieces, position = list[str](), 0
    for begin, end in spans:
        pieces += [text[position:begin], " " * (end - begin)]
        position = end
    return "".join([*pieces, text[position:]])


def list_spaces(text: str) -> list[ActionSpace]:
    """List the built-in spaces of which a reply holds an action."""
    return [one for one in SPACES.values() if len(text) <= _LONGEST and _holds_action(text, one)]


def _holds_action(text: str, space: ActionSpace) -> bool:
    said, _ = _blank_thoughts(text, space)
    marker = _find_last_marker(said)
    spans = list(_find_candidates(said, marker.end() if marker else 0, space))[:_ATTEMPTS]
    return any(not isinstance(space.parse(said[begin:end]), ParseFailure) for begin, end in spans)


def _find_other_space(text: str, space: ActionSpace) -> ParseFailure | None:
    """Return the failure of a reply with an action of another built-in space; None for all others."""
    for other in list_spaces(text):
        if other.name != space.name and other.syntax != space.syntax:
            detail = f"an action of the space {other.name}, and this environment takes {_describe_form(space)}"
            return ParseFailure(kind="other_space", detail=detail)
    return None


def _describe_form(space: ActionSpace) -> str:
    return "a JSON object" if space.syntax == "json" else "a call such as click(id=7)"


def _read(text: str, space: ActionSpace, observation: Observation) -> ParsedReply:
    # Cheap refusals first; each kind is counted apart, as each has another cause.
    if not text.strip():
        return _make_failure("", ParseFailure(kind="empty", detail="the reply is empty"))
    # A bound on work: scanning is linear, but replies of megabytes come from models that loop.
    if len(text) > _LONGEST:
        detail = f"the reply has {len(text)} characters, at most {_LONGEST} are read"
        return _make_failure("", ParseFailure(kind="malformed", detail=detail))
    # The last marker counts: models quote the form before they use it.
    said, _ = _blank_thoughts(text, space)
    marker = _find_last_marker(said)
    start = marker.end() if marker else 0
    found = list(_find_candidates(said, start, space))
    if not found:
        return _make_failure(
            text, ParseFailure(kind="no_action", detail=f"no action found, expected {_describe_form(space)}")
        )
    # After a marker the first candidate is meant; without one the last, as reasoning comes before acting.
    begin, end = found[0] if marker else found[-1]
    reason = text[: marker.start() if marker else begin]
    # Two steps: well-formed first, then possible on this very screen.
    parsed = space.parse(said[begin:end])
    if isinstance(parsed, ParseFailure):
        return _make_failure(reason, parsed)
    failure = space.check(parsed, observation)
    if failure is not None:
        return _make_failure(reason, failure)
    # Canonical, so that votes on the same element agree however it was named.
    return ParsedReply(reason=_clean(reason), action=space.canonical(parsed, observation), failure=None)


def write_reply(reason: str, action: Action, space: ActionSpace) -> str:
    """Write a reply that `read_reply` reads back."""
    return f"Reason: {reason}\nAction: {space.format(action)}"


def _make_failure(reason: str, failure: ParseFailure) -> ParsedReply:
    return ParsedReply(reason=_clean(reason), action=None, failure=failure)


def _clean(reason: str) -> str:
    without_fence = re.sub(r"```\w*\s*$", "", reason)
    label = _REASON.match(without_fence)
    return without_fence[label.end() if label else 0 :].strip().strip("*`").strip()


def _find_last_marker(text: str) -> re.Match[str] | None:
    matches = list(_MARKER.finditer(text))
    return matches[-1] if matches else None


def _find_candidates(text: str, start: int, space: ActionSpace) -> Iterator[tuple[int, int]]:
    """Yield spans from `start` on that look like an action, first to last; at most `_ATTEMPTS` from either end."""
    if space.syntax == "json":
        opens = [match.start() for match in re.finditer(r"\{", text[start:])]
        opens = opens if len(opens) <= 2 * _ATTEMPTS else opens[:_ATTEMPTS] + opens[-_ATTEMPTS:]
        yield from _find_json_spans(text, [start + position for position in opens])
    else:
        calls = [(match.start(), match.end()) for match in _CALL.finditer(text, start)]
        calls = [(start_, end) for start_, end in calls if text[start_ : end - 1].strip() in space.types] or calls
        calls = calls if len(calls) <= 2 * _ATTEMPTS else calls[:_ATTEMPTS] + calls[-_ATTEMPTS:]
        yield from ((begin, _find_closing(text, end)) for begin, end in calls)


def _find_json_spans(text: str, opens: list[int]) -> Iterator[tuple[int, int]]:
    decoder = json.JSONDecoder()
    last_end = -1
    broken: tuple[int, int] | None = None
    found = False
    for begin in opens:
        if begin < last_end:
            continue  # inside the object before
        try:
            _, last_end = decoder.raw_decode(text, begin)
        except (ValueError, RecursionError):
            broken = broken or (begin, _find_closing(text, begin + 1))
            continue
        found = True
        yield begin, last_end
    if not found and broken is not None:
        yield broken  # so that the failure can say what stood there


def _find_closing(text: str, position: int) -> int:
    """Return the index after the parenthesis that closes a call opened just before `position`; else the end of text."""
    # Brackets and quotes are counted, not matched by a pattern: arguments may hold both.
    depth, quote, escaped = 1, "", False
    for index in range(position, len(text)):
        char = text[index]
        if quote:
            if escaped:
                escaped = False
            elif char == "\\":
                escaped = True
            elif char == quote:
                quote = ""
        elif char in "\"'":
            quote = char
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
            if depth == 0:
                return index + 1
    return len(text)
