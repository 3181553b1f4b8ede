"""A fake phone with three toy tasks, for tests and first steps: a corridor of rooms.

    suite = CorridorSuite(fail_at=2)
    environment = await suite.open()
    observation = await environment.reset(suite.instance("OpenDoors", seed=7))

Every room wants a certain button, or a certain word in its input. The right one opens the next room; anything wrong
leads back to the start. The task is solved by the action `status complete` behind the last room. The corridor is text
only, exact in `fork` and `oracle`, and fails, hangs or slows down on demand, so that a rollout's handling of failures
can be tested without a real device. It is no benchmark, and nothing measured on it is a result.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from collab.envs.base import TaskInfo
from collab.envs.grammar import MOBILE, ActionSpace
from collab.envs.text import describe_screen
from collab.errors import EnvironmentFailure, UnknownName, UsageError
from collab.seeds import derive
from collab.types import Action, Box, Element, ElementTarget, Observation, Outcome, StepResult, Task

NAMES = ("Red", "Blue", "Green", "Yellow", "White", "Black")
WORDS = ("hello", "Zürich", "milk and bread", "42", "Ada Lovelace")

TASKS = (
    TaskInfo(
        name="PressButton", apps=("corridor",), difficulty="easy", max_steps=8, tags=("fake", "press"), oracle=True
    ),
    TaskInfo(name="TypeWord", apps=("corridor",), difficulty="easy", max_steps=8, tags=("fake", "type"), oracle=True),
    TaskInfo(
        name="OpenDoors", apps=("corridor",), difficulty="hard", max_steps=16, tags=("fake", "press"), oracle=True
    ),
)


class CorridorSuite:
    """Three seeded toy tasks, with failures on demand.

    Args:
        max_steps: budget of every task; None keeps each task's own.
        declared: whether a task is solved only by `status complete` behind the last room; else by getting there.
        fail_at: step (from 0) that raises EnvironmentFailure; None for never.
        hang_at: step (from 0) that never returns; None for never.
        slow_s: seconds that every step takes.
        troubled: tasks on which fail_at, hang_at and slow_s act; None for all.
    """

    name = "fake"
    label = "fake[corridor]"
    version = "1"
    space: ActionSpace = MOBILE
    capabilities: frozenset[str] = frozenset({"fork", "oracle", "score", "deterministic"})

    def __init__(
        self,
        *,
        max_steps: int | None = None,
        declared: bool = True,
        fail_at: int | None = None,
        hang_at: int | None = None,
        slow_s: float = 0.0,
        troubled: list[str] | None = None,
    ) -> None:
        self.max_steps = max_steps
        self.declared = declared
        self.fail_at = fail_at
        self.hang_at = hang_at
        self.slow_s = slow_s
        self.troubled = troubled
        self.active = 0
        """How many environments are open now."""

    def tasks(self) -> Sequence[TaskInfo]:
        """Return the three tasks."""
        return [replace(info, max_steps=self.max_steps or info.max_steps) for info in TASKS]

    def instance(self, name: str, seed: int) -> Task:
        """Draw an instance; UnknownName if there is no such task."""
        infos = {info.name: info for info in self.tasks()}
        if name not in infos:
            raise UnknownName.of("task", name, infos)
        # Drawn by name and seed: instances are the same in every process.
        rng = random.Random(derive(seed, "fake task", name))
        rooms = [_draw_room(name, rng) for _ in range(rng.randint(3, 5) if name == "OpenDoors" else 1)]
        info = infos[name]
        return Task(
            environment=self.name,
            name=name,
            seed=seed,
            goal=_format_goal(name, [room["want"] for room in rooms]),
            params={"rooms": rooms},
            max_steps=info.max_steps,
            difficulty=info.difficulty,
            apps=info.apps,
        )

    async def open(self) -> CorridorEnvironment:
        """Return a fresh environment."""
        return CorridorEnvironment(self)

    async def close(self) -> None:
        """Do nothing: no state is shared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    """State of an episode; replaced, never changed, so that a fork may share it."""

    task: Task
    room: int = 0
    """Rooms behind the agent."""
    steps: int = 0
    outcome: Outcome | None = None

    @property
    def rooms(self) -> Sequence[Mapping[str, Any]]:
        rooms: Sequence[Mapping[str, Any]] = self.task.params["rooms"]
        return rooms


class CorridorEnvironment:
    """One corridor. Made by `CorridorSuite.open`."""

    def __init__(self, suite: CorridorSuite, state: _State | None = None) -> None:
        self._suite = suite
        self._state = state
        self._open = True
        suite.active += 1

    async def reset(self, task: Task) -> Observation:
        """Return to the first room."""
        if task.environment != self._suite.name or "rooms" not in task.params:
            raise UnknownName.of("task", task.name, (info.name for info in TASKS))
        self._state = _State(task=task)
        return _observe(self._state)

    async def step(self, action: Action | None) -> StepResult:
        """Execute an action; UsageError before `reset` and after the end."""
        state = self._running()
        # Trouble is asked for by tests: a step that hangs or fails.
        await self._make_trouble(state)
        canonical = MOBILE.canonical(action, _observe(state)) if action is not None else None
        state, effect = _act(state, canonical)
        state = replace(state, steps=state.steps + 1)
        # Without a declaration, being behind the last room is success by itself.
        if not self._suite.declared and state.outcome is None and state.room == len(state.rooms):
            state = replace(state, outcome=Outcome(success=True, score=1.0, reason="behind the last room"))
        ended = state.outcome is not None
        # The budget ends an episode only if nothing else has.
        if not ended and state.steps >= state.task.max_steps:
            state = replace(state, outcome=Outcome(success=False, score=0.0, reason="the steps were used up"))
        self._state = state
        return StepResult(
            observation=_observe(state),
            terminated=ended,
            truncated=not ended and state.outcome is not None,
            outcome=state.outcome,
            info={"effect": effect},
        )

    async def fork(self) -> CorridorEnvironment:
        """Return an independent copy in the same state."""
        return CorridorEnvironment(self._suite, self._state)

    def oracle(self) -> tuple[Action, ...] | None:
        """Return the remaining presses and texts, then `status complete`; () after the end."""
        state = self._state
        if state is None or state.outcome is not None:
            return ()
        ahead = (replace(state, room=room) for room in range(state.room, len(state.rooms)))
        said = (MOBILE.make("status", goal_status="complete"),) if self._suite.declared else ()
        return (*(_find_solution(one) for one in ahead), *said)

    def score(self) -> float:
        """Return the share of the rooms behind the agent; UsageError before `reset`."""
        if self._state is None:
            raise UsageError("fake environment: score without an episode; call reset first")
        return self._state.room / len(self._state.rooms)

    async def close(self) -> None:
        """Decrement the count of open environments; may be called twice."""
        self._suite.active -= self._open
        self._open = False

    def _running(self) -> _State:
        if self._state is None or self._state.outcome is not None:
            raise UsageError("fake environment: step outside an episode; call reset first")
        return self._state

    async def _make_trouble(self, state: _State) -> None:
        suite = self._suite
        if suite.troubled is not None and state.task.name not in suite.troubled:
            return
        if suite.slow_s:
            await asyncio.sleep(suite.slow_s)
        if state.steps == suite.fail_at:
            raise EnvironmentFailure(f"fake environment: broke at step {state.steps}, as asked by fail_at")
        if state.steps == suite.hang_at:
            await asyncio.Event().wait()


def _draw_room(name: str, rng: random.Random) -> dict[str, Any]:
    """Draw a room: the wanted button among others, or a wanted word (no buttons)."""
    if name == "TypeWord":
        return {"want": rng.choice(WORDS), "buttons": []}
    buttons = rng.sample(NAMES, 4)
    return {"want": rng.choice(buttons), "buttons": buttons}


def _format_goal(name: str, wants: Sequence[str]) -> str:
    ending = "and then say that the task is complete."
    if name == "TypeWord":
        return f'Type "{wants[0]}" into the field {ending}'
    if name == "PressButton":
        return f"Press the button {wants[0]} {ending}"
    return f"Go through the doors {', '.join(wants)} in this order {ending}"


def _observe(state: _State) -> Observation:
    """Draw the screen, a pure function of the state."""
    if state.room == len(state.rooms):
        title = "The end"
        rows = [("text", "Nothing is left to do")]
    else:
        room = state.rooms[state.room]
        title = f"Room {state.room + 1} of {len(state.rooms)}"
        # Buttons, or one field to type in: the two kinds of rooms.
        rows = [("text", title), *([("button", label) for label in room["buttons"]] or [("input", "Word")])]
    elements = tuple(
        Element(
            index=index,
            role=role,
            label=label,
            value="" if role == "input" else None,
            flags=("editable",) if role == "input" else (),
            box=Box(40, 200 + 160 * index, 1040, 340 + 160 * index),
            key=f"{role}/{label}",
        )
        for index, (role, label) in enumerate(rows)
    )
    return Observation(space=MOBILE.name, title=title, elements=elements, text=describe_screen(title, elements))


def _find_solution(state: _State) -> Action:
    room = state.rooms[state.room]
    if not room["buttons"]:
        return MOBILE.make("input_text", index=1, text=room["want"])
    return MOBILE.make("click", index=1 + room["buttons"].index(room["want"]))


def _act(state: _State, action: Action | None) -> tuple[_State, str]:
    """Return the state after an action, and the effect on the screen."""
    if action is None:
        return state, "nothing changed"
    if action.type == "status":
        done = action["goal_status"] == "complete" and state.room == len(state.rooms)
        reason = f"{state.room} of {len(state.rooms)} rooms, declared {action['goal_status']}"
        return replace(state, outcome=Outcome(success=done, score=float(done), reason=reason)), "the episode ended"
    # Going back is allowed, so that errors can be made good.
    if action.type == "navigate_back" and state.room:
        return replace(state, room=state.room - 1), "back in the room before"
    offer = _find_offer(state, action)
    if offer is None:
        return state, "nothing changed"
    if offer == state.rooms[state.room]["want"]:
        return replace(state, room=state.room + 1), "the next room opened"
    # Wrong means back to the start: errors cost steps, as they do elsewhere.
    return replace(state, room=0), "wrong: back at the start"


def _find_offer(state: _State, action: Action) -> str | None:
    """Return the label that an action presses or the word that it types; None if it does neither."""
    elements = _observe(state).elements
    touched = None
    if isinstance(action.target, ElementTarget) and action.target.index < len(elements):
        touched = elements[action.target.index]
    if action.type == "click" and touched is not None and touched.role == "button":
        return touched.label
    field_shown = elements[-1].role == "input"
    if action.type == "input_text" and field_shown and (action.target is None or touched is elements[-1]):
        return str(action["text"])
    return None
