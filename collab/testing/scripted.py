"""A model with scripted replies: for tests, of this project and of its users.

    model = ScriptedModel(replies=["Reason: nothing loads yet. Action: wait()", "…"])
    model = ScriptedModel(rule=lambda prompt, seed: f"Action: click(id={seed % 3})")

It fails and hangs on demand, so that code around a model can be tested without a server.

`answer_as_teacher` gives a good teacher's replies in the corridor of `collab.testing.corridor`:

    with FakeServer(says=answer_as_teacher) as server: ...

It reads only the prompts of `prompts/teacher`, as a model would, and is a pure function of them. It is no language
model, and nothing measured with it is a result.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from collab.errors import ConfigError, ModelFailure
from collab.models.base import Capabilities, Meter, Reply, Request
from collab.models.tokenizer import estimate_prompt, estimate_tokens
from collab.types import PolicyRef, Prompt


class ScriptedModel:
    """Replies from a list or from a rule.

    Args:
        replies: used by position of the call, over and over. The order of concurrent calls decides which call gets
        which;
            use a rule if that must not matter.
        rule: a pure function of (prompt, seed); excludes `replies`.
        fail_calls: positions (from 0) of calls that raise ModelFailure.
        hang_calls: positions of calls that never return.
        delay_s: seconds that every call takes.
        name: of the policy in a run.

    Raises:
        ConfigError: not exactly one of `replies` and `rule` was given.
    """

    privileged = False

    def __init__(
        self,
        *,
        replies: list[str] | None = None,
        rule: Callable[[Prompt, int], str] | None = None,
        fail_calls: list[int] | None = None,
        hang_calls: list[int] | None = None,
        delay_s: float = 0.0,
        name: str = "scripted",
    ) -> None:
        if bool(replies) == (rule is not None):
            raise ConfigError("a scripted model needs either replies (at least one) or a rule")
        self.policy = PolicyRef(base=name)
        self.meter = Meter()
        self.requests: list[Request] = []
        """Everything that was asked, in order."""
        self._replies = replies or []
        self._rule = rule
        self._fail = frozenset(fail_calls or ())
        self._hang = frozenset(hang_calls or ())
        self._delay_s = delay_s

    @property
    def calls(self) -> int:
        """Number of calls, failed and hanging ones included."""
        return len(self.requests)

    async def generate(self, request: Request) -> Reply:
        """Return the next scripted reply; ModelFailure at a call that is to fail."""
        position = len(self.requests)
        # Noted before anything else: tests count requests, also those that hang or fail.
        self.requests.append(request)
        started = time.perf_counter()
        # Hangs for ever: what waits must have a limit of its own.
        if position in self._hang:
            await asyncio.Event().wait()
        await asyncio.sleep(self._delay_s)
        # Metered like a real failure, so that counts in tests are those of a run.
        if position in self._fail:
            self.meter.count_failure(latency_s=time.perf_counter() - started)
            raise ModelFailure(f"{self.policy.base}: call {position} is set to fail")
        text = self._choose_text(request, position)
        reply = Reply(
            text=text,
            prompt_tokens=estimate_prompt(request.prompt),
            completion_tokens=self.count_tokens(text),
        )
        self.meter.count_answer(
            latency_s=time.perf_counter() - started,
            prompt_tokens=reply.prompt_tokens,
            completion_tokens=reply.completion_tokens,
        )
        return reply

    def _choose_text(self, request: Request, position: int) -> str:
        if self._rule is not None:
            return self._rule(request.prompt, request.seed)
        return self._replies[position % len(self._replies)]

    async def probe(self) -> Capabilities:
        """Return few capabilities; a rule depends on the seed."""
        return Capabilities(seed=self._rule is not None, counts_tokens=True, notes=("scripted: not a language model",))

    def count_tokens(self, text: str) -> int:
        """Estimate the tokens of a text."""
        return estimate_tokens(text)

    async def close(self) -> None:
        """Do nothing: no resource is held."""


_BUTTON = re.compile(r'button "([^"]+)" \[(\d+)\]')
_INPUT = re.compile(r'input "Word".*? \[(\d+)\]')
_QUESTION = re.compile(r"^(\d+)\. ", re.MULTILINE)
_ROOM = re.compile(r"Screen: Room (\d+) of \d+")
_COMPLETE = {"action_type": "status", "goal_status": "complete"}


def answer_as_teacher(body: Mapping[str, Any]) -> str:
    """Return the reply to one chat; without a known teacher's prompt, repeat the last turn."""
    # Recognised by a phrase of each prompt, as a real model would have to.
    asked = str(body["messages"][-1]["content"])
    if "Questions about this screen:" in asked:
        return _dump_json({"answers": _build_answers(asked)})
    if '{"instructions": [' in asked:
        return _dump_json({"instructions": _build_instructions(asked)})
    if '{"scores": [' in asked:
        return _dump_json({"scores": [{"id": 1, "reason": "It is the step that the task needs now.", "score": 0.9}]})
    if '{"analysis":' in asked:
        return _dump_json({"analysis": "The corridor needs another door here, or this very one."})
    if "very clumsy" in asked:
        return _dump_json({"reason": "I would rather leave.", "action": {"action_type": "navigate_home"}})
    if "Which single step" in asked:
        return _dump_json(_step(asked))
    return asked


def _build_answers(asked: str) -> list[dict[str, Any]]:
    screen, _, questions = asked.partition("Questions about this screen:")
    title = screen.splitlines()[0].removeprefix("Screen: ")
    told = f'This is "{title}", and it is a part of the corridor.'
    return [{"question": int(number), "answer": told} for number in _QUESTION.findall(questions)]


def _build_instructions(asked: str) -> list[dict[str, Any]]:
    taps = [
        {
            "instruction": f"Press {label}.",
            "reason": f"The button {label} is on the screen.",
            "action": {"action_type": "click", "index": int(index)},
        }
        for label, index in _BUTTON.findall(asked)
    ]
    shown = {"instruction": "Show me this room.", "reason": "The room is on the screen.", "action": _COMPLETE}
    return [*taps, shown]


def _step(asked: str) -> dict[str, Any]:
    room, goal = _ROOM.search(asked), asked.partition("Task: ")[2].splitlines()[0]
    if room is None:
        return {"reason": "Nothing is left to do.", "action": _COMPLETE}
    field, typed = _INPUT.search(asked), re.search(r'Type "([^"]+)"', goal)
    if field and typed:
        action = {"action_type": "input_text", "index": int(field.group(1)), "text": typed.group(1)}
        return {"reason": "The word belongs into the field.", "action": action}
    doors = re.sub(r".*(?:button|doors) (.*?) (?:and then|in this order).*", r"\1", goal).split(", ")
    wanted = doors[int(room.group(1)) - 1]
    index = dict(_BUTTON.findall(asked))[wanted]
    return {"reason": f"The task wants {wanted} here.", "action": {"action_type": "click", "index": int(index)}}


def _dump_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
