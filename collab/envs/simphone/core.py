"""SimPhone's synchronous core: one episode at a time, without a clock or a thread of its own.

phone = SimPhone()
observation = phone.reset(task)
result = phone.step(MOBILE.make("open_app", app_name="Settings"))

A phone as it leaves the factory, and the same phone after some use.

Data that no task asks about: people, messages, files and entries that stand around what matters.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from collab.envs.grammar import MOBILE
from collab.envs.simphone.app import Apps
from collab.envs.simphone.apps import STANDARD
from collab.envs.simphone.apps.markor import MARKOR
from collab.envs.simphone.distractions.interruptions import KINDS, find_way_out
from collab.envs.simphone.distractions.looks import apply_manner
from collab.envs.simphone.distractions.presets import PRESETS, Distractions, Noise, Schedule, disturb, schedule
from collab.envs.simphone.state import LAUNCHER, ROOT, STANDARD_FOLDERS, START_MS, FileEntry, Phone
from collab.envs.simphone.tasks import BY_NAME, TaskSpec
from collab.envs.simphone.tasks.plans import PlanError, aim_at, press_back
from collab.envs.simphone.touch import act, describe_effect
from collab.envs.simphone.ui.screen import Frame, look
from collab.errors import EnvironmentFailure, UnknownName
from collab.seeds import derive, generator
from collab.types import Action, Observation, Outcome, StepResult, Task

_DAY_MS = 86_400_000


def build_factory(apps: Apps) -> Phone:
    """Build a fresh phone, on its home screen."""
    folder = FileEntry(content=None, changed_ms=START_MS - 30 * _DAY_MS)
    paths = ("/storage", "/storage/emulated", ROOT, *(f"{ROOT}/{name}" for name in STANDARD_FOLDERS), MARKOR)
    return Phone(
        apps=apps,
        settings={name: value for app in apps.all for name, value in app.settings.items()},
        files=dict.fromkeys(paths, folder),
        stacks={LAUNCHER: apps.by_package[LAUNCHER].pages},
    )


FACTORY = build_factory(STANDARD)


def add_noise(rng: random.Random, phone: Phone = FACTORY) -> Phone:
    """Return a fresh phone with data in it that no task asks about."""
    for app in phone.apps.all:
        phone = app.noise(phone, rng)
    return phone


_ROUNDS: dict[Noise, int] = {"none": 0, "some": 1, "plenty": 3}
"""How often each app adds something."""


def build_noisy(phone: Phone, amount: Noise, seed: int, task: str) -> Phone:
    """Add data as after some use to the fresh phone of an instance; `seed` and `task` are the instance's."""
    for number in range(_ROUNDS[amount]):
        names = (task, number) if number else (task,)
        phone = add_noise(generator(derive(seed, "noise", *names)), phone)
    return phone


_WAIT = MOBILE.make("wait")
_LONGEST_SOLUTION = 120
"""Steps after which a plan counts as going round in circles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhoneEpisode:
    """A task instance, the phone it started with, and what comes between."""

    task: Task
    spec: TaskSpec
    start: Phone
    schedule: Schedule = field(default_factory=dict)

    def score(self, phone: Phone) -> float:
        """Return how far the goal holds on `phone`, in [0, 1]."""
        return self.spec.score(self.start, phone, self.task.params)

    def advance(self, frame: Frame, action: Action, step: int) -> Phone:
        """Return the phone after an action, the `step`-th of the episode."""
        return disturb(act(frame, action), frame.phone, self.schedule.get(step))

    def solve(self, frame: Frame, steps: int = 0) -> tuple[Action, ...] | None:
        """Play the plan to its end on a copy; None when it gets lost, stuck, or ends without full score.

        Args:
            steps: taken so far; what will interrupt the rest depends on it.
        """
        actions: list[Action] = []
        # Bounded: a plan that goes in a circle would never end.
        while len(actions) < _LONGEST_SOLUTION:
            try:
                planned = self._plan_action(frame)
            except PlanError:
                return None
            action = MOBILE.canonical(planned, frame.observation)
            actions.append(action)
            if action.type == "status":
                # A solution counts only with the full score: half of one teaches the wrong half.
                return tuple(actions) if self.score(frame.phone) == 1.0 else None
            phone = self.advance(frame, action, steps + len(actions))
            # A plan that changes nothing is stuck.
            if phone == frame.phone:
                return None
            frame = look(phone)
        return None

    def _plan_action(self, frame: Frame) -> Action:
        """Plan the next action; whatever hides the app goes first."""
        phone = frame.phone
        if phone.cover is not None:
            return aim_at(frame, find_way_out(phone.cover))
        if phone.loading:
            return _WAIT
        return press_back() if phone.panel is not None else self.spec.plan(frame, self.task.params, self.start)


def build_episode(spec: TaskSpec, task: Task, factory: Phone, distractions: Distractions) -> PhoneEpisode:
    """Return an instance at its start, and what will interrupt it: drawn from the task's name and seed alone."""
    phone = build_noisy(factory, distractions.noise, task.seed, task.name)
    phone = spec.prepare(phone, task.params, generator(derive(task.seed, "state", task.name)))
    episode = PhoneEpisode(task=task, spec=spec, start=apply_manner(phone, distractions, task.seed, task.name))
    if not distractions.interruptions and not distractions.slowness:
        return episode
    solution = episode.solve(look(episode.start))
    spare = 0 if solution is None else task.max_steps - len(solution)
    drawn = schedule(distractions, KINDS, task.seed, task.name, spare=spare, last=task.max_steps)
    return replace(episode, schedule=drawn)


class SimPhone:
    """A phone with one running episode.

    Args:
        distractions: what makes the phone harder to use.
        factory: the phone before its first use; it knows its apps.
        tasks: what can be asked of it, by name.
    """

    def __init__(
        self,
        *,
        distractions: Distractions = PRESETS["calm"],
        factory: Phone = FACTORY,
        tasks: Mapping[str, TaskSpec] = BY_NAME,
    ) -> None:
        self._distractions = distractions
        self._factory = factory
        self._tasks = tasks
        self._episode: PhoneEpisode | None = None
        """None when no step is possible: before the first reset and after the end."""
        self._scored: PhoneEpisode | None = None
        """The episode that `score` judges, also after its end; None before the first reset."""
        self._frame = look(factory)
        self._steps = 0
        self._solution: tuple[Action, ...] | None = None
        self._solved = False
        """Whether `_solution` belongs to the present state."""

    @property
    def phone(self) -> Phone:
        """The present state."""
        return self._frame.phone

    @property
    def episode(self) -> PhoneEpisode | None:
        """The running episode; None before the first reset and after the end."""
        return self._episode

    @property
    def frame(self) -> Frame:
        """The present look: state, screen and observation together."""
        return self._frame

    def reset(self, task: Task) -> Observation:
        """Make the task's initial state; UnknownName when it is not a task of this phone."""
        spec = self._tasks.get(task.name)
        if spec is None:
            raise UnknownName.of("task", task.name, self._tasks, "see them with: collab env tasks androidworld")
        self._episode = self._scored = build_episode(spec, task, self._factory, self._distractions)
        self._frame = look(self._episode.start)
        self._steps, self._solved = 0, False
        return self._frame.observation

    def step(self, action: Action | None) -> StepResult:
        """Execute the canonical form of an action; None waits.

        Raises:
            EnvironmentFailure: no episode is running.
        """
        episode = self._require_running()
        self._steps += 1
        action = action or _WAIT
        # Actions of another space are steps, too, or an agent could wait for free.
        if action.space != MOBILE.name:
            self._follow(action)
            return self._continue_episode(episode, f"nothing changed: {action.type} is not an action of a phone")
        action = MOBILE.canonical(action, self._frame.observation)
        if action.type == "status":
            # The last word of some models holds the answer; one that was given before counts.
            if action.get("answer") and not self.phone.answer:
                self._frame = look(replace(self.phone, answer=str(action["answer"])))
            return self._end_episode(episode, str(action["goal_status"]))
        before, after = self._frame, episode.advance(self._frame, action, self._steps)
        # Looked at again only where something changed, as looking is the dear part.
        if after is not before.phone:
            self._frame = look(after)
        self._follow(action)
        return self._continue_episode(episode, describe_effect(before, self._frame, action))

    def fork(self) -> SimPhone:
        """Return an independent copy in the same state: the state is immutable, so nothing of it is copied."""
        return copy.copy(self)

    def score(self) -> float:
        """Return how far the goal holds now, in [0, 1], also after the end; EnvironmentFailure before any episode."""
        return (self._scored or self._require_running()).score(self.phone)

    def oracle(self) -> tuple[Action, ...] | None:
        """Return the remaining best actions, up to `status`; () when the episode is over, None when unknown."""
        if self._episode is None:
            return ()
        if not self._solved:
            self._solution = self._episode.solve(self._frame, self._steps)
            self._solved = True
        return self._solution

    def _require_running(self) -> PhoneEpisode:
        if self._episode is None:
            raise EnvironmentFailure("SimPhone: no episode is running; call reset(task) first")
        return self._episode

    def _follow(self, action: Action) -> None:
        """Keep the rest of a known solution when the action was its first step."""
        known = self._solution if self._solved else None
        self._solved = bool(known and known[0] == action)
        self._solution = known[1:] if known and self._solved else None

    def _end_episode(self, episode: PhoneEpisode, status: str) -> StepResult:
        complete = status == "complete"
        score = episode.score(self.phone) if complete else 0.0
        reason = f"the goal holds to {score:.0%}" if complete else "the agent called the task infeasible"
        self._episode = None
        return StepResult(
            observation=self._frame.observation,
            terminated=True,
            outcome=Outcome(success=score == 1.0, score=score, reason=reason),
            info={"effect": f"declared the task {status}"},
        )

    def _continue_episode(self, episode: PhoneEpisode, words: str) -> StepResult:
        truncated = self._steps >= episode.task.max_steps
        outcome = None
        if truncated:
            self._episode = None
            outcome = Outcome(success=False, score=0.0, reason="the step budget ended before the agent said status")
        return StepResult(
            observation=self._frame.observation, truncated=truncated, outcome=outcome, info={"effect": words}
        )
