"""Check that a suite's environments behave as `collab.envs.base` says (`collab env check NAME`).

    report = await check_env(suite, options={})
    for finding in report.failures:
        print(finding.task, finding.claim, finding.detail)

`CLAIMS` lists what is checked: every suite resets, observes and ends alike, and it can do what its capabilities name
(fork, oracle, screenshot, determinism). Each claim is a coroutine over a `Subject`, one instance of one task. It plays
on environments of its own and returns one line on what it saw, or raises EnvironmentFailure with one line on what is
broken. Steps after the end of an episode are not checked.
"""

from __future__ import annotations

import asyncio
import json
import random
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from collab.envs.base import Environment, Forkable, HasGoal, HasOracle, HasScore, HasScreenshot, Suite, TaskInfo
from collab.envs.grammar import ActionSpace
from collab.envs.random_actions import ENDINGS, draw_action, draw_junk_action
from collab.envs.replay import Recording, compute_fingerprint, replay, replay_elsewhere
from collab.errors import CollabError, EnvironmentFailure, UnknownName, boundary
from collab.seeds import derive, generator
from collab.types import Action, Observation, StepResult, Task
from collab.utils.text import format_amount


def require(holds: bool, broken: str) -> None:
    """Raise EnvironmentFailure with `broken` unless the promise holds."""
    if not holds:
        raise EnvironmentFailure(broken)


def check_observation(space: ActionSpace, observation: Observation, where: str) -> None:
    """Check that elements are indexed 0 to n − 1 and named in the text, boxes on screen, text storable."""
    require(observation.space == space.name, f"{where}: made for space {observation.space!r}")
    require(observation.width > 0 and observation.height > 0, f"{where}: the screen has no size")
    for index, element in enumerate(observation.elements):
        require(element.index == index, f"{where}: element {index} says it is {element.index}")
        # Agents refer to elements by these numbers, so the text must have them.
        require(f"[{index}]" in observation.text, f"{where}: the text does not name [{index}]")
        box = element.box
        if box is not None:
            across = 0 <= box.left <= box.right <= observation.width
            down = 0 <= box.top <= box.bottom <= observation.height
            require(across and down, f"{where}: element {index} lies beside the screen: {tuple(box)}")
    # Half a surrogate pair can be shown and not stored.
    try:
        f"{observation.title}{observation.text}".encode()
    except UnicodeEncodeError as error:
        raise EnvironmentFailure(f"{where}: the text cannot be stored: {error}") from None


def check_result(result: StepResult, where: str) -> None:
    """Check for an outcome exactly at the end, a score in [0, 1], and info that JSON can carry."""
    require(not (result.terminated and result.truncated), f"{where}: terminated and truncated at once")
    has = result.outcome is not None
    require(has == result.done, f"{where}: {'an' if has else 'no'} outcome, done is {result.done}")
    if result.outcome is not None:
        require(0 <= result.outcome.score <= 1, f"{where}: score {result.outcome.score}, allowed: 0 to 1")
    effect = result.info.get("effect", "")
    require(isinstance(effect, str), f'{where}: info["effect"] is {effect!r}, allowed: text')
    try:
        json.dumps(dict(result.info))
    except (TypeError, ValueError) as error:
        raise EnvironmentFailure(f"{where}: info is not JSON: {error}") from None


def require_same(one: Observation, other: Observation, broken: str) -> None:
    """Check that two observations show the same; the message adds the first line that differs."""
    if compute_fingerprint(one) == compute_fingerprint(other):
        return
    lines = zip(one.text.splitlines(), other.text.splitlines(), strict=False)
    differing = next((f": {before!r}, {after!r}" for before, after in lines if before != after), "")
    raise EnvironmentFailure(broken + differing)


_PNG = b"\x89PNG\r\n\x1a\n"


@dataclass(slots=True, kw_only=True)
class Subject:
    """One instance of one task, under examination."""

    suite: Suite
    info: TaskInfo
    seed: int
    junk_steps: int
    recordings: list[Recording] = field(default_factory=list)
    """Episodes to be rebuilt in a fresh process later."""

    @property
    def task(self) -> Task:
        """The instance, drawn anew."""
        return self.suite.instance(self.info.name, self.seed)

    def make_rng(self, purpose: str) -> random.Random:
        """Return the randomness of one claim on this instance."""
        return generator(derive(self.seed, "check", purpose, self.info.name))

    @asynccontextmanager
    async def start(self) -> AsyncIterator[tuple[Environment, Observation]]:
        """Yield a fresh environment after `reset`; closed at the end."""
        async with close_twice(await self.suite.open()) as environment:
            yield environment, await environment.reset(self.task)


@asynccontextmanager
async def close_twice(environment: Environment) -> AsyncIterator[Environment]:
    """Close an environment at the end: twice, since that is promised too."""
    try:
        yield environment
    finally:
        await environment.close()
        await environment.close()


Claim: TypeAlias = Callable[[Subject], Awaitable[str]]


# ------------------------------------------------------------------------------------------------ for every suite


async def check_seeding(subject: Subject) -> str:
    """Check that the same task and seed give the same start, also in a used environment."""
    require(subject.task == subject.task, "instance() gives two different tasks for one seed")
    # Two environments at once: seeding must not depend on what another one does.
    async with subject.start() as (one, first), subject.start() as (two, second):
        require_same(first, second, "two environments start differently")
        goals = [each.goal() if isinstance(each, HasGoal) else subject.task.goal for each in (one, two)]
        require(goals[0] == goals[1], f"two goals: {goals[0]!r} and {goals[1]!r}")
        require(bool(goals[0].strip()), "there is no goal, neither in the task nor after reset")
        observation = first
        rng = subject.make_rng("seeded")
        # Used before it is reset: what an episode leaves behind shows in the second start.
        for _ in range(5):
            result = await one.step(draw_action(subject.suite.space, observation, rng, ending=False))
            if result.done:
                break
            observation = result.observation
        require_same(first, await one.reset(subject.task), "reset after an episode starts differently")
    return f"{format_amount(len(first.elements), 'element')}, the same three times"


async def check_observations(subject: Subject) -> str:
    """Check that elements are indexed 0 to n − 1 and named in the text, and that boxes lie on the screen."""
    count = 0
    async with subject.start() as (environment, observation):
        rng = subject.make_rng("sound")
        # Random actions reach screens that solutions never see.
        for number in range(subject.junk_steps + 1):
            check_observation(subject.suite.space, observation, f"after {format_amount(number, 'step')}")
            count += len(observation.elements)
            result = await environment.step(draw_action(subject.suite.space, observation, rng, ending=False))
            if result.done:
                check_observation(subject.suite.space, result.observation, "at the end")
                break
            observation = result.observation
    return f"{format_amount(count, 'element')} in place"


async def check_junk(subject: Subject) -> str:
    """Check that no action raises, and that every result is well formed."""
    rng = subject.make_rng("unshaken")
    episodes = 1
    async with subject.start() as (environment, observation):
        for number in range(subject.junk_steps):
            action = draw_junk_action(subject.suite.space, observation, rng)
            result = await environment.step(action)
            check_result(result, f"step {number}, {_describe_action(subject.suite, action)}")
            observation = result.observation
            if result.done:
                observation = await environment.reset(subject.task)
                episodes += 1
    return f"{subject.junk_steps} junk actions in {format_amount(episodes, 'episode')}"


async def check_ending(subject: Subject) -> str:
    """Check that the agent can end the episode, and gets an outcome."""
    spec = next((spec for spec in subject.suite.space.specs if spec.name in ENDINGS), None)
    if spec is None:
        return "this action space has no action that ends"
    fields = {field.name: field.choices[0] for field in spec.fields if not field.optional and field.choices}
    async with subject.start() as (environment, _):
        result = await environment.step(subject.suite.space.make(spec.name, **fields))
        require(result.terminated, f"{spec.name} does not terminate the episode")
        check_result(result, spec.name)
    return f"{spec.name} ends it"


async def check_budget(subject: Subject) -> str:
    """Check that doing nothing ends exactly when the budget is used up."""
    limit = subject.task.max_steps
    async with subject.start() as (environment, _):
        for number in range(1, limit + 1):
            result = await environment.step(None)
            check_result(result, f"step {number} of {limit}, nothing done")
            if result.terminated:
                return f"over by itself after {number} of {limit} steps"
            require(result.truncated == (number == limit), _describe_budget(number, limit, result.truncated))
    return f"truncated after {limit} steps"


# --------------------------------------------------------------------------------------------- where declared


async def check_fork(subject: Subject) -> str:
    """Check that a fork behaves like the original, and that neither notices what the other does."""
    # A generator of its own per promise: checks can be run alone and draw the same.
    suite, rng = subject.suite, subject.make_rng("forks")
    async with subject.start() as (original, observation):
        if not isinstance(original, Forkable):
            raise EnvironmentFailure("claims fork, but the environment has no fork()")
        # A few steps first: forks of an initial state may work by chance.
        prefix, observation = await _wander(suite, original, observation, rng, steps=min(3, subject.task.max_steps - 1))
        path: list[Action | None] = []
        async with close_twice(await original.fork()) as twin:
            # A third one is stepped elsewhere and closed: neither the original nor its twin may notice.
            async with close_twice(await original.fork()) as loner:
                await _wander(suite, loner, observation, subject.make_rng("loner"), steps=5)
            # The same actions on both, chosen on the original, must give the same screens and ends.
            for _ in range(6):
                action = _choose_action(suite, original, observation, rng)
                path.append(action)
                one, other = await original.step(action), await twin.step(action)
                require_same(
                    one.observation, other.observation, f"the fork differs {format_amount(len(path), 'step')} later"
                )
                require((one.done, one.outcome) == (other.done, other.outcome), "the fork ends differently")
                observation = one.observation
                if one.done:
                    break
    # Replayed from the start: only then it shows that stepping forks left no trace in the original.
    if "deterministic" in suite.capabilities:
        again = await replay(suite, subject.task, [*prefix, *path])
        require(again[-1] == compute_fingerprint(observation), "stepping a fork changed the original")
    return f"equal for {format_amount(len(path), 'step')}"


async def check_oracle(subject: Subject) -> str:
    """Check that the oracle succeeds within the budget, from the start and after a few random actions."""
    suite, budget = subject.suite, subject.task.max_steps
    async with subject.start() as (environment, observation):
        steps = await _follow(suite, environment, observation, "from the start", budget)
        require(steps is not None, f"from the start: not over after {format_amount(budget, 'step')}")
    async with subject.start() as (environment, observation):
        prefix, observation = await _wander(suite, environment, observation, subject.make_rng("solved"), steps=3)
        if isinstance(environment, HasOracle) and environment.oracle():
            await _follow(suite, environment, observation, "after three random actions", budget - len(prefix))
    return f"solved in {steps} of {format_amount(budget, 'step')}"


async def check_score(subject: Subject) -> str:
    """Check that the score can be asked for before, during and behind an episode, in [0, 1], and changes nothing."""
    async with subject.start() as (environment, observation), subject.start() as (twin, _):
        if not isinstance(environment, HasScore):
            raise EnvironmentFailure("claims score, but the environment has no score()")
        rng, scores = subject.make_rng("scored"), [environment.score()]
        for _ in range(subject.junk_steps):
            action = _choose_action(subject.suite, environment, observation, rng)
            result, unasked = await environment.step(action), await twin.step(action)
            scores.append(environment.score())
            require_same(result.observation, unasked.observation, "asking for the score changes what follows")
            observation = result.observation
            if result.done:
                break
        odd = next((one for one in scores if not 0 <= one <= 1), None)
        require(odd is None, f"score {odd}, allowed: 0 to 1")
    return f"asked for {len(scores)} times, {scores[0]:g} at the start"


async def check_rebuild(subject: Subject) -> str:
    """Check that task, seed and actions rebuild the episode in a fresh environment."""
    suite, rng = subject.suite, subject.make_rng("rebuilt")
    actions: list[Action | None] = []
    async with subject.start() as (environment, observation):
        seen = [compute_fingerprint(observation)]
        for number in range(subject.junk_steps):
            # Sensible and senseless actions in turn: both must rebuild the same.
            action = (
                _choose_action(suite, environment, observation, rng)
                if number % 2
                else draw_junk_action(suite.space, observation, rng)
            )
            result = await environment.step(action)
            actions.append(action)
            seen.append(compute_fingerprint(result.observation))
            # Fingerprints, not observations: they are compared in another process.
            observation = result.observation
            if result.done:
                break
    recording = Recording(task=subject.task, actions=tuple(actions), fingerprints=tuple(seen))
    require_same_episode(recording, await replay(suite, recording.task, actions), "a fresh environment")
    subject.recordings.append(recording)
    return f"equal over {format_amount(len(actions), 'step')}"


async def check_screenshot(subject: Subject) -> str:
    """Check that a screenshot is a PNG of the observation's size, with and without marks."""
    async with subject.start() as (environment, observation):
        if not isinstance(environment, HasScreenshot):
            raise EnvironmentFailure("claims screenshot, but the environment has no screenshot()")
        for marks in (False, True):
            picture = await environment.screenshot(marks=marks)
            require(picture[:8] == _PNG, f"not a PNG: it starts with {picture[:8]!r}")
            width, height = struct.unpack(">II", picture[16:24])
            claimed = observation.width, observation.height
            require((width, height) == claimed, f"{width} × {height} pixels, the observation says {claimed}")
    return f"{width} × {height}, {len(picture) // 1024} KiB"


def require_same_episode(recording: Recording, seen: tuple[str, ...], where: str) -> None:
    """Raise EnvironmentFailure that names the first step at which a rebuilt episode differs."""
    for number, (before, after) in enumerate(zip(recording.fingerprints, seen, strict=True)):
        require(
            before == after, f"{where} shows another screen after {number} of {format_amount(len(seen) - 1, 'step')}"
        )


# ------------------------------------------------------------------------------------------------------ actions


def _choose_action(
    suite: Suite, environment: Environment, observation: Observation, rng: random.Random
) -> Action | None:
    """Choose the oracle's next action where there is one, else a random one."""
    solution = environment.oracle() if isinstance(environment, HasOracle) else None
    return solution[0] if solution else draw_action(suite.space, observation, rng, ending=False)


async def _wander(
    suite: Suite, environment: Environment, observation: Observation, rng: random.Random, *, steps: int
) -> tuple[list[Action | None], Observation]:
    """Take random steps that do not end the episode, as far as that is in the agent's hands."""
    actions: list[Action | None] = []
    for _ in range(steps):
        action = draw_action(suite.space, observation, rng, ending=False)
        result = await environment.step(action)
        actions.append(action)
        observation = result.observation
        if result.done:
            break
    return actions, observation


async def _follow(
    suite: Suite, environment: Environment, observation: Observation, where: str, budget: int
) -> int | None:
    """Step along the oracle to success; how many steps it took, None when the budget ran out first."""
    if not isinstance(environment, HasOracle):
        raise EnvironmentFailure("claims oracle, but the environment has no oracle()")
    # The budget is the task's own number of steps: a solution that needs more is none.
    for number in range(1, budget + 1):
        solution = environment.oracle()
        if not solution:
            raise EnvironmentFailure(
                f"{where}: no solution after {format_amount(number - 1, 'step')}, and the episode is not over"
            )
        action = solution[0]
        # A solution is asked at every step and has to be possible on the screen shown.
        missing = suite.space.check(action, observation)
        require(missing is None, f"{where}: solution names {missing.detail if missing else ''}")
        # Rehearsals speak it as text, so it must survive formatting and parsing.
        require(suite.space.parse(suite.space.format(action)) == action, f"{where}: solution is not in the grammar")
        result = await environment.step(action)
        observation = result.observation
        # Truncated is no failure of the solution yet: the caller decides what a budget is worth.
        if result.truncated:
            return None
        if result.terminated:
            reason = result.outcome.reason if result.outcome else "no outcome"
            # An end without success breaks the promise.
            require(
                bool(result.outcome and result.outcome.success),
                f"{where}: no success in {format_amount(number, 'step')}: {reason}",
            )
            return number
    return None


def _describe_budget(number: int, limit: int, truncated: bool) -> str:
    return (
        f"truncated after {format_amount(number, 'step')}, the budget is {limit}"
        if truncated
        else f"still not over after the budget of {limit} steps"
    )


def _describe_action(suite: Suite, action: Action | None) -> str:
    text = "nothing" if action is None else suite.space.format(action)
    return text if len(text) < 80 else text[:77] + "…"


SUITE = "(suite)"
"""Stands where a task's name would, in findings about the suite as a whole."""

CAPABILITIES = ("fork", "oracle", "score", "screenshot", "deterministic")

CLAIMS: tuple[tuple[str, str | None, Claim], ...] = (
    ("same start", None, check_seeding),
    ("observations", None, check_observations),
    ("junk actions", None, check_junk),
    ("agent's end", None, check_ending),
    ("budget", None, check_budget),
    ("fork", "fork", check_fork),
    ("oracle", "oracle", check_oracle),
    ("score", "score", check_score),
    ("rebuild", "deterministic", check_rebuild),
    ("screenshot", "screenshot", check_screenshot),
)
"""Name of each claim, the capability that declares it (None: every suite), and its check."""

FRESH_PROCESS = "rebuild in a fresh process"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Result of checking one claim on one task."""

    task: str
    claim: str
    status: Literal["passed", "failed", "skipped"]
    detail: str
    """One line: what was seen, what was broken, or why it was left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """Result of a whole check."""

    label: str
    """Label of the suite."""
    version: str
    findings: tuple[Finding, ...]
    seconds: float

    @property
    def failures(self) -> tuple[Finding, ...]:
        """The broken promises."""
        return tuple(finding for finding in self.findings if finding.status == "failed")

    @property
    def ok(self) -> bool:
        """Return whether no promise was broken."""
        return not self.failures


async def check_env(
    suite: Suite,
    *,
    tasks: Sequence[str] | None = None,
    seeds: Sequence[int] = (0, 1),
    junk_steps: int = 30,
    options: Mapping[str, Any] | None = None,
    timeout_s: float = 120.0,
    progress: Callable[[Finding], None] | None = None,
) -> CheckReport:
    """Hold a suite to its claims.

    Args:
        suite: is not closed.
        tasks: names; None for all.
        seeds: instances of each task; a claim passes when it holds on all of them.
        junk_steps: length of the random episodes.
        options: keyword arguments that make the same suite again, so that episodes can be rebuilt in a fresh
            process; None leaves that claim out.
        timeout_s: seconds for one claim on one instance; more counts as hanging.
        progress: called with every finding.

    Raises:
        UnknownName: a name in `tasks` is no task of the suite.
    """
    start = time.perf_counter()
    findings: list[Finding] = []

    def note(finding: Finding) -> None:
        findings.append(finding)
        if progress is not None:
            progress(finding)

    recordings: list[Recording] = []
    chosen = _select_tasks(suite, tasks)
    note(_check_suite(suite))
    for info in chosen:
        for name, capability, claim in CLAIMS:
            reason = _explain_skip(suite, info, capability)
            if reason:
                note(Finding(task=info.name, claim=name, status="skipped", detail=reason))
                continue
            subjects = [
                Subject(suite=suite, info=info, seed=seed, junk_steps=junk_steps, recordings=recordings)
                for seed in seeds
            ]
            note(await _judge(info.name, name, claim, subjects, timeout_s))
            await asyncio.sleep(0)  # a world in pure Python never waits; here it can be cancelled
    if "deterministic" in suite.capabilities:
        for finding in await _rebuild_elsewhere(suite, options, recordings, timeout_s):
            note(finding)
    return CheckReport(
        label=suite.label, version=suite.version, findings=tuple(findings), seconds=time.perf_counter() - start
    )


def _select_tasks(suite: Suite, names: Sequence[str] | None) -> list[TaskInfo]:
    infos = {info.name: info for info in suite.tasks()}
    for name in names or ():
        if name not in infos:
            raise UnknownName.of("task", name, infos)
    return [info for info in infos.values() if names is None or info.name in names]


def _explain_skip(suite: Suite, info: TaskInfo, capability: str | None) -> str:
    """Return why a claim is not checked on a task; empty when it is."""
    if capability is not None and capability not in suite.capabilities:
        return "not claimed"
    if capability == "oracle" and not info.oracle:
        return "no known solution"
    return ""


def _check_suite(suite: Suite) -> Finding:
    """Check names, capabilities, the task list, and what happens to a wrong name."""
    try:
        infos = list(suite.tasks())
        names = [info.name for info in infos]
        require(bool(names), "has no tasks")
        require(len(set(names)) == len(names), "two tasks have the same name")
        # Listed twice, for a generator that is used up would pass the first time.
        require(infos == list(suite.tasks()), "tasks() changes between two calls")
        require(bool(suite.version), "has no version")
        unknown = suite.capabilities - set(CAPABILITIES)
        require(not unknown, f"claims {', '.join(sorted(unknown))}, known: {', '.join(CAPABILITIES)}")
        solvable = [info.name for info in infos if info.oracle]
        # A task with a solution in a suite that claims none would be passed over.
        require(not solvable or "oracle" in suite.capabilities, "tasks have solutions, but oracle is not claimed")
        # An unknown name must raise our own error, which commands can explain.
        with boundary(EnvironmentFailure, "a name that is no task must raise UnknownName, it raised"):
            suite.instance("no such task", 0)
        raise EnvironmentFailure("a name that is no task must raise UnknownName, it was accepted")
    except UnknownName:
        return Finding(task=SUITE, claim="suite", status="passed", detail=f"{format_amount(len(names), 'task')}")
    except EnvironmentFailure as broken:
        return Finding(task=SUITE, claim="suite", status="failed", detail=str(broken))


async def _judge(task: str, name: str, claim: Claim, subjects: Sequence[Subject], timeout_s: float) -> Finding:
    """Check one claim on all instances of a task, up to the first that breaks it."""
    detail = "no seeds given"
    for subject in subjects:
        try:
            with boundary(EnvironmentFailure, "raised"):
                async with asyncio.timeout(timeout_s):
                    detail = await claim(subject)
        except CollabError as broken:
            return Finding(task=task, claim=name, status="failed", detail=f"seed {subject.seed}: {broken}")
    return Finding(task=task, claim=name, status="passed" if subjects else "skipped", detail=detail)


async def _rebuild_elsewhere(
    suite: Suite, options: Mapping[str, Any] | None, recordings: Sequence[Recording], timeout_s: float
) -> list[Finding]:
    """Rebuild all recorded episodes in one fresh process."""

    def finding(task: str, status: Literal["passed", "failed", "skipped"], detail: str) -> Finding:
        return Finding(task=task, claim=FRESH_PROCESS, status=status, detail=detail)

    # Without options nothing can be built in another process.
    if options is None:
        return [finding(SUITE, "skipped", "options= was not given")]
    try:
        with boundary(EnvironmentFailure, "the fresh process"):
            # Per episode, as each is played there from its beginning.
            async with asyncio.timeout(timeout_s * max(1, len(recordings))):
                episodes = [(recording.task, recording.actions) for recording in recordings]
                rebuilt = await replay_elsewhere(suite, options, episodes)
    except CollabError as broken:
        return [finding(SUITE, "failed", str(broken))]
    # Each episode by itself: one that differs must not hide the others.
    findings = []
    for recording, seen in zip(recordings, rebuilt, strict=True):
        try:
            require_same_episode(recording, seen, "a fresh process")
        except EnvironmentFailure as broken:
            findings.append(finding(recording.task.name, "failed", f"seed {recording.task.seed}: {broken}"))
    return findings or [finding(SUITE, "passed", f"{format_amount(len(recordings), 'episode')} equal")]
