"""How one model behind one server wants to be asked: what it refuses is left out, or said in another way.

    dialect = Dialect()
    answer = await dialect.ask(send, body)          # without what the server refuses, from now on

A server tells what it does not take in the words of its refusal. A step is kept only after it has helped: a refusal
that comes back without the field was about something else.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from collab.models.retry import ServerRefusal

Answer = TypeVar("Answer")
Body: TypeAlias = dict[str, Any]
Send: TypeAlias = Callable[[Body], Awaitable[Answer]]
"""Sends a body; raises ServerRefusal when the server says no."""

_TELLING = (400, 403, 404, 405, 409, 413, 415, 422, 424, 500, 501)
"""Statuses with which servers refuse a field."""
_UNSPOKEN = (400, 422, 424, 500, 501)
"""Of them, those that may be about a field without naming it."""
_LONGEST_QUOTE = 120
"""Characters of a server's words in a note."""
_TOO_LONG = (
    *("context length", "context_length", "context size", "context window", "too long", "too large"),
    "output limit was reached",
)
"""A prompt that does not fit is refused with the name of the reply's limit, which is not at fault."""


def _renamed(old: str, new: str) -> Callable[[Body], Body]:
    return lambda body: {new if name == old else name: value for name, value in body.items()}


def _without(field: str) -> Callable[[Body], Body]:
    return lambda body: {name: value for name, value in body.items() if name != field}


def merge_system(body: Body) -> Body:
    """Put the system text at the beginning of the first user turn."""
    first, *rest = body["messages"]
    if first["role"] != "system" or not rest:
        return body
    content = rest[0]["content"]
    if isinstance(content, list):
        content = [{"type": "text", "text": first["content"]}, *content]
    else:
        content = f"{first['content']}\n\n{content}"
    return body | {"messages": [{**rest[0], "content": content}, *rest[1:]]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One way of asking otherwise."""

    field: str
    """Of the body, without which there is nothing to change."""
    change: Callable[[Body], Body]
    named: str
    """Pattern of what a refusal calls the field."""
    says: str
    """In a note: "{field}: {says} (the server's words)"."""


def _left_out(field: str, named: str) -> Step:
    return Step(field=field, change=_without(field), named=named, says="left out, refused")


def _called(field: str, name: str, named: str) -> Step:
    return Step(field=field, change=_renamed(field, name), named=named, says=f"called {name}")


STEPS = {
    "max_completion_tokens": _called("max_tokens", "max_completion_tokens", r"max_(completion_)?tokens"),
    "max_tokens": _called("max_completion_tokens", "max_tokens", r"max_completion_tokens"),
    "system": Step(
        field="messages",
        change=merge_system,
        named=r"system|\broles?\b|alternate|developer instruction",
        says="the system text stands in the user's turn",
    ),
    "random_seed": _called("seed", "random_seed", r"random_seed"),
    "logprobs": _left_out("logprobs", r"log[ _-]?prob"),
    "return_token_ids": _left_out("return_token_ids", r"token_ids"),
    "seed": _left_out("seed", r"\bseed"),
    "top_p": _left_out("top_p", r"top[_ -]?p\b"),
    "temperature": _left_out("temperature", r"temperature"),
    "stop": _left_out("stop", r"\bstop\b|stop[_ ]sequence"),
    "structured_outputs": _left_out("structured_outputs", r"structured_outputs|guided|regex"),
}
"""The step that loses least comes first."""
GUESSES = ("max_completion_tokens", "system", "top_p", "temperature", "stop")
"""Steps that are tried one after the other where a plain request is refused without a word on why."""


class Dialect:
    """What is known of how to ask one model; shared by all who ask it."""

    def __init__(self) -> None:
        self.steps: tuple[str, ...] = ()
        """In the order in which they were learned."""
        self.notes: tuple[str, ...] = ()
        """What was learned, one line each."""

    def adapt(self, body: Body, more: Sequence[str] = ()) -> Body:
        """Return a body as the server takes it.

        Args:
            more: further steps, which are tried.
        """
        for name in (*self.steps, *more):
            if STEPS[name].field in body:
                body = STEPS[name].change(body)
        return body

    def learn(self, steps: Sequence[str], refusal: ServerRefusal) -> None:
        """Keep steps that have helped."""
        new = [step for step in steps if step not in self.steps]
        words = refusal.words if len(refusal.words) <= _LONGEST_QUOTE else f"{refusal.words[:_LONGEST_QUOTE]}…"
        self.steps += tuple(new)
        self.notes += tuple(f"{STEPS[step].field}: {STEPS[step].says} ({words})" for step in new)

    async def ask(self, send: Send[Answer], body: Body, *, guesses: Sequence[str] = ()) -> Answer:
        """Ask; where the server refuses a field, ask without it, and keep that if it helps.

        Args:
            send: sends a body as it is.
            guesses: steps to try where the server does not say what it refuses.

        Raises:
            ServerRefusal: nothing has helped; the first one, which is about the request as it was meant.
        """
        tried: list[str] = []
        first: ServerRefusal | None = None
        while True:
            adapted = self.adapt(body, tried)
            try:
                answer = await send(adapted)
            except ServerRefusal as refusal:
                step = next_step(refusal, adapted, tried)
                if step is None:
                    first = first if first is not None and refusal.status in _TELLING else refusal
                    break
                first = first or refusal
                tried.append(step)
            else:
                if first is not None:
                    self.learn(tried, first)
                return answer
        if _is_about_fields(first):
            possible = [step for step in guesses if step in possible_steps(self.adapt(body), tried)]
            for steps in [[step] for step in possible] + ([possible] if len(possible) > 1 else []):
                with contextlib.suppress(ServerRefusal):
                    answer = await send(self.adapt(body, steps))
                    self.learn(steps, first)
                    return answer
        raise first


def next_step(refusal: ServerRefusal, body: Body, tried: Sequence[str] = ()) -> str | None:
    """Return the step that a refusal asks for; None where it names nothing that can be left out.

    Args:
        body: that was refused.
        tried: steps that were taken already.
    """
    words = refusal.words.lower()
    if refusal.status not in _TELLING or any(phrase in words for phrase in _TOO_LONG):
        return None
    return next((name for name in possible_steps(body, tried) if re.search(STEPS[name].named, words)), None)


def possible_steps(body: Body, tried: Sequence[str] = ()) -> list[str]:
    """Return the steps that would change a body, but for those that were tried."""
    return [
        name for name, step in STEPS.items() if name not in tried and step.field in body and step.change(body) != body
    ]


def _is_about_fields(refusal: ServerRefusal) -> bool:
    """Whether it may be one field that a server refuses, though it does not say which."""
    if any(phrase in refusal.words.lower() for phrase in _TOO_LONG):
        return False
    return refusal.status in _UNSPOKEN or (refusal.status in _TELLING and "parameter" in refusal.words.lower())
