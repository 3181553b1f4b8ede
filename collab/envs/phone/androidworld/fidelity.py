"""One task instance on one phone: AndroidWorld sets it up, our oracle solves it, AndroidWorld judges it.

States are judged by them and by us: untouched, solved through the phone's screens, and solved but for one change
(see `spoil`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from collab.envs.phone.adb.handle import PhoneHandle
from collab.envs.phone.androidworld.hands import Hands, Instance, Stuck, play
from collab.envs.phone.androidworld.judge import Judge, Refused
from collab.envs.phone.androidworld.spoil import Changed, blurred, disturbed, spoilt
from collab.envs.phone.fresh import lived_in
from collab.envs.phone.state import Phone
from collab.envs.phone.tasks import BY_NAME
from collab.seeds import derive, generator

State: TypeAlias = Literal["untouched", "solved", "spoilt", "blurred", "disturbed"]
_ONLY_AGREED = ("blurred", "disturbed")
"""States in which either score may be right, as long as both judges give it."""
VERIFY = frozenset(name for name in BY_NAME if name.startswith("System") and name.endswith("Verify"))
"""Tasks that are set up solved: the agent only has to say so. (A stopwatch must still be brought to the screen.)"""
MAY_SAMPLE_NOTHING = frozenset({"RecipeDeleteMultipleRecipesWithConstraint"})
"""Tasks whose generator may draw an instance without a target, which is solved from the start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Both scores of one state."""

    theirs: float | None
    """AndroidWorld's; None when it raised."""
    ours: float
    error: str | None = None
    """What it raised."""

    @property
    def agreed(self) -> bool:
        """Whether both say the same."""
        return self.theirs == self.ours


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of one instance."""

    task: str
    suite_seed: int
    marks: Mapping[State, Mark]
    """A state that could not be made is missing."""
    steps: int | None = None
    """Actions of our solution, `status` included; None when there is none."""
    max_steps: int | None = None
    """AndroidWorld's step budget."""
    changed: str | None = None
    """The decisive field that was changed; None when the task has none."""
    problem: str | None = None
    """Why a state is missing: setting up failed, or our oracle knew no way."""
    solved_from_the_start: bool = False
    """Whether the untouched phone has to count as solved."""

    @property
    def misses(self) -> list[str]:
        """What is not as it should be; empty when all is."""
        wrong = [] if self.problem is None else [self.problem]
        for state, mark in self.marks.items():
            reached = state == "solved" or (state == "untouched" and self.solved_from_the_start)
            if mark.theirs is None:
                wrong.append(f"{state}: AndroidWorld raised {mark.error}")
            elif state not in _ONLY_AGREED and (mark.theirs == 1.0) != reached:
                wrong.append(f"{state}: AndroidWorld says {mark.theirs:g}")
            if mark.theirs is not None and not mark.agreed:
                wrong.append(f"{state}: AndroidWorld says {mark.theirs:g}, SimPhone {mark.ours:g}")
        return wrong


class Examiner:
    """Examines instances one after the other.

    Args:
        handle: the phone that the judge reaches through adb.
        hands: who executes our solution's actions.
    """

    def __init__(self, judge: Judge, handle: PhoneHandle, *, hands: Hands) -> None:
        self._judge, self._handle, self._hands = judge, handle, hands

    def examine(self, name: str, suite_seed: int) -> Verdict:
        """Set up, judge, solve, judge, spoil, judge, tear down.

        Args:
            name: AndroidWorld's name of the task; it must be one of ours.
            suite_seed: AndroidWorld's seed of a suite; the task's first instance in it is taken.

        Raises:
            EnvironmentFailure: the judge's process ended.
        """
        self._handle.put(lived_in(generator(derive(suite_seed, "fidelity", name))))
        try:
            told = self._judge.ask("start", task=name, suite_seed=suite_seed)
        except Refused as refused:
            return Verdict(task=name, suite_seed=suite_seed, marks={}, problem=f"set-up: AndroidWorld raised {refused}")
        verdict = self._judged(name, suite_seed, told)
        try:
            self._judge.ask("end")
        except Refused as refused:
            return Verdict(
                task=name, suite_seed=suite_seed, marks={}, problem=f"tear-down: AndroidWorld raised {refused}"
            )
        return verdict

    def _judged(self, name: str, suite_seed: int, told: Mapping[str, Any]) -> Verdict:
        params, start = told["params"], self._handle.phone
        instance = Instance(spec=BY_NAME[name], params=params, start=start)
        marks: dict[State, Mark] = {"untouched": self._mark(instance, start)}
        nothing_to_do = name in MAY_SAMPLE_NOTHING and not params.get("row_objects", True)
        steps, changed, problem = None, None, None
        try:
            steps, solved = play(instance, self._handle, self._hands)
        except Stuck as stuck:
            problem = str(stuck)
        else:
            marks["solved"] = self._mark(instance, solved)
            changes: dict[State, Changed | None] = {
                "spoilt": spoilt(name, start, solved),
                "blurred": blurred(start, solved),
                "disturbed": disturbed(start, solved),
            }
            marks |= {state: self._mark(instance, made[1]) for state, made in changes.items() if made is not None}
            changed = None if changes["spoilt"] is None else changes["spoilt"][0]
        return Verdict(
            task=name,
            suite_seed=suite_seed,
            marks=marks,
            steps=steps,
            max_steps=told["max_steps"],
            changed=changed,
            problem=problem,
            solved_from_the_start=name in VERIFY or nothing_to_do,
        )

    def _mark(self, instance: Instance, phone: Phone) -> Mark:
        """Both scores of a state; the phone is in it afterwards, whatever judging did to it."""
        self._handle.put(phone)
        self._judge.ask("answer", text=phone.answer)
        theirs, error = None, None
        try:
            theirs = float(self._judge.ask("score")["score"])
        except Refused as refused:
            error = str(refused)
        self._handle.put(phone)
        return Mark(theirs=theirs, ours=instance.score(phone), error=error)
