"""Instructions that `collab synth` made, as tasks of the environment in which it made them; kind `instructions`.

    run = await use_instructions(run, Path("data/web"))     # a training's rollouts: the tasks are instructions now

An episode begins on the screen of its instruction: the wrapped environment is reset, and the recorded actions are
repeated. It ends with a declaration, or two steps after the teacher's would have. It is solved if the state is the one
that the teacher's actions lead to, the same answer was given, if any, and the teacher's last action ends it, too.

An oracle's instructions have that way as their solution. Of a model's, success says only that a team agrees with it,
so they have none: a critic that needs a solution is refused.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from collab.config import PartDefinition, RunConfig, Unseen
from collab.data.splits import TrainingInstance, fold, list_kept_by, refuse_overlap
from collab.envs.base import Bounded, Environment, Forkable, HasScreenshot, Suite, TaskInfo
from collab.envs.random_actions import ENDINGS
from collab.envs.replay import read_action
from collab.errors import EnvironmentFailure, UnknownName, UsageError
from collab.rewards.oracle import Seen, describe_state
from collab.rollout.build import build, build_environment
from collab.rollout.plan import load_splits
from collab.synthesis.config import ORACLE
from collab.synthesis.journal import INSTRUCTIONS, Head, SynthesisDir
from collab.synthesis.teacher import StoredInstruction
from collab.synthesis.units import describe_missing
from collab.types import Action, Observation, Outcome, StepResult, Task
from collab.utils.files import hash_file

KIND = "instructions"
_SPARE = 2
"""Steps of an episode beyond the teacher's: room for a mistake and the way back."""
_ADAPTER = TypeAdapter(StoredInstruction)


async def use_instructions(run: RunConfig, data: Path) -> RunConfig:
    """Return a run whose tasks are the instructions that were met in its tasks.

    It belongs to no split any more: splits have the environment's own tasks.

    Args:
        run: with its tasks resolved; of the training split, or of none.
        data: directory of a finished synthesis.

    Raises:
        UsageError: the instructions cannot be read, are another environment's, or none belongs to a task of the run.
        RunFormatError: the directory holds no synthesis.
        OverlapError: an instruction was met in an instance that is kept for evaluation.
    """
    _, digest, found = load_instructions(data)
    # With the digest, so that a training is resumed with the same instructions or not at all.
    inner = run.environment.part.model_dump(mode="json")
    part = PartDefinition(kind=KIND, options={"environment": inner, "data": str(data.resolve()), "sha256": digest})
    changes = {"backend": KIND, "backends": {KIND: part}, "tasks": "all", "unseen": Unseen()}
    environment = run.environment.model_copy(update=changes)
    await build_environment(run.environment_name, environment).close()
    chosen = {name: one for name, one in found.items() if one.task in run.tasks}
    if not chosen:
        raise UsageError(
            f"{data}: none of its {len(found)} instructions was met in one of the {len(run.tasks)} chosen tasks; "
            "choose others with --tasks, or leave --tasks out"
        )
    if run.split is not None:
        splits = await load_splits(run.environment_name, run.environment)
        instances = (
            TrainingInstance(task=one.task, seed=one.seed, apps=one.apps, texts=(one.goal,), source=f"{data}: {name}")
            for name, one in chosen.items()
        )
        refuse_overlap(instances, list_kept_by(splits.values()), remedy="make others with: collab synth")
    return run.model_copy(update={"environment": environment, "tasks": list(chosen), "split": None})


def unwrap_environment(part: PartDefinition) -> PartDefinition:
    """Return the environment in which a part's instructions were made; without instructions the part itself."""
    return PartDefinition.model_validate(part.options["environment"]) if part.kind == KIND else part


def load_instructions(data: Path, digest: str | None = None) -> tuple[Head, str, dict[str, StoredInstruction]]:
    """Return a synthesis, the SHA-256 of its instructions, and the instructions by name.

    Args:
        digest: the SHA-256 that the file must have; None for that which the synthesis wrote.

    Raises:
        UsageError: there is no such directory, it is not finished, none can be played, or the file has changed.
        RunFormatError: the directory holds no synthesis.
    """
    path, again = data / INSTRUCTIONS, f"collab synth --env NAME --out {shlex.quote(str(data))}"
    if not data.is_dir():
        raise UsageError(f"{data}: there is no such directory with instructions; make it with: {again}")
    head = SynthesisDir(data).read_head()
    if head.finished is None:
        raise UsageError(describe_missing(data) or f"{data}: is not finished")
    if INSTRUCTIONS not in head.files:
        rows = head.report.get("by_level", {}).get("instruction", 0)
        raise UsageError(
            f"{data}: has no {INSTRUCTIONS}, for none of its {rows} rows of level instruction can be played; make "
            "others in an environment that can fork, with --levels instruction and more --screens: collab synth"
        )
    # Other instructions would make another training of the rest: equal names are not enough.
    written = str(head.files[INSTRUCTIONS]["sha256"])
    found = hash_file(path) if path.is_file() else None
    if found != (digest or written) or found is None:
        state = "is gone" if found is None else f"has changed: its SHA-256 is {found[:12]}"
        raise UsageError(
            f"{path}: {state}, needed: {(digest or written)[:12]}; put back what was there, or begin anew with other "
            "instructions"
        )
    lines = path.read_text(encoding="utf-8").splitlines()
    instructions = [_read_line(line, f"{path}:{number}") for number, line in enumerate(lines, start=1)]
    return head, found, {one.name: one for one in instructions}


def _read_line(line: str, where: str) -> StoredInstruction:
    try:
        return _ADAPTER.validate_python(json.loads(line))
    except (ValidationError, ValueError) as error:
        raise UsageError(f"{where}: is no instruction ({str(error).splitlines()[0]}); synthesise anew") from None


class InstructionSuite:
    """The instructions of a synthesis as tasks.

    Args:
        environment: the environment in which they were made.
        data: directory of the synthesis.
        sha256: that the file of instructions must have; None for that which the synthesis wrote.

    Raises:
        UsageError: as `load_instructions`; or the environment is another one.
    """

    def __init__(self, *, environment: PartDefinition, data: str, sha256: str | None = None) -> None:
        head, digest, self.instructions = load_instructions(Path(data), sha256)
        part = PartDefinition.model_validate(environment)
        inner: Suite = build("environments", part, f"the environment of the instructions in {data}")
        self.inner = inner
        if (inner.label, inner.version) != (head.environment, head.environment_version):
            raise UsageError(
                f"{data}: its instructions are of {head.environment}, version {head.environment_version}; this is "
                f"{inner.label}, version {inner.version}; name the environment and split in which they were made, or "
                "make others with: collab synth"
            )
        teacher = next(iter(self.instructions.values())).teacher
        self.name, self.space = inner.name, inner.space
        self.label = f"{inner.label} instructions by {teacher}"
        self.version = f"{inner.version}, instructions {digest[:12]}"
        # A model's step is an opinion and no solution.
        self.has_solutions = teacher == ORACLE
        solutions = {"oracle"} if self.has_solutions else frozenset()
        # The inner environment scores its own tasks, and no instruction.
        self.capabilities = inner.capabilities - {"oracle", "score"} | solutions
        if isinstance(inner, Bounded):
            self.most_environments = inner.most_environments
        self._ways: dict[str, tuple[Seen, ...]] = {}

    def tasks(self) -> Sequence[TaskInfo]:
        """Return a task per instruction."""
        return [
            TaskInfo(
                name=name,
                apps=one.apps,
                max_steps=len(one.actions) + _SPARE,
                tags=(one.sort, one.task),
                oracle=self.has_solutions,
            )
            for name, one in self.instructions.items()
        ]

    def instance(self, name: str, seed: int) -> Task:
        """Return the task of an instruction; its state is the same for every seed."""
        one = self.find(name)
        return Task(
            environment=self.name,
            name=name,
            seed=seed,
            goal=one.goal,
            params={"instruction": json.loads(json.dumps(asdict(one)))},
            max_steps=len(one.actions) + _SPARE,
            apps=one.apps,
        )

    def find(self, name: str) -> StoredInstruction:
        """Return an instruction by name; UnknownName if there is none."""
        if name not in self.instructions:
            raise UnknownName.of("instruction", name, self.instructions)
        return self.instructions[name]

    async def open(self) -> InstructionEnvironment:
        """Return a fresh environment."""
        inner = await self.inner.open()
        return (PicturedEnvironment if isinstance(inner, HasScreenshot) else InstructionEnvironment)(self, inner)

    async def find_way(self, one: StoredInstruction, inner: Environment) -> tuple[Seen, ...]:
        """Return the states on the teacher's way, the first one that of the instruction's screen.

        Args:
            inner: is played for it, once for each instruction.
        """
        if one.name not in self._ways:
            last, said = await self.reach(one, inner), ""
            way = [(*describe_state(inner, last), said)]
            for action in map(self.read, one.actions[:-1]):
                said = get_answer(action, said)
                way.append((*describe_state(inner, await inner.step(action)), said))
            self._ways[one.name] = tuple(way)
        return self._ways[one.name]

    async def reach(self, one: StoredInstruction, inner: Environment) -> StepResult:
        """Bring an environment to the screen of an instruction; EnvironmentFailure if that does not come back."""
        task = replace(self.inner.instance(one.task, one.seed), max_steps=one.max_steps)
        last = StepResult(observation=await inner.reset(task))
        for action in one.before:
            if not last.done:
                last = await inner.step(read_action(self, action))
        if last.done or last.observation.digest != one.screen:
            raise EnvironmentFailure(
                f"{self.label}: the screen of {one.name} does not come back after {len(one.before)} actions of "
                f"{one.task} (seed {one.seed})"
            )
        return last

    def read(self, text: str) -> Action:
        """Parse an action of a teacher."""
        action = read_action(self, text)
        assert action is not None, "only null is no action"
        return action

    async def close(self) -> None:
        """Close the wrapped suite."""
        await self.inner.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class _InstructionState:
    """State of an episode; replaced, never changed, so that a fork may share it."""

    task: Task
    instruction: StoredInstruction
    way: tuple[Seen, ...]
    """States on the teacher's way."""
    last: StepResult
    """Last result of the wrapped environment, whose own episode may be over before this one."""
    state: Seen
    """The present one, of the wrapped environment."""
    said: str = ""
    """The last answer, folded; empty for none."""
    steps: int = 0
    is_over: bool = False

    @property
    def place(self) -> int | None:
        """Return how many of the teacher's actions lead to the present state; None beside its way."""
        seen = (*self.state, self.said)
        return next((place for place in reversed(range(len(self.way))) if self.way[place] == seen), None)


class InstructionEnvironment:
    """One instruction at a time. Made by `InstructionSuite.open`."""

    def __init__(self, suite: InstructionSuite, inner: Environment, episode: _InstructionState | None = None) -> None:
        self.inner = inner
        self._suite = suite
        self._episode = episode

    async def reset(self, task: Task) -> Observation:
        """Bring back the screen of the instruction; EnvironmentFailure if it is another one now."""
        one = self._suite.find(task.name)
        way = await self._suite.find_way(one, self.inner)
        last = await self._suite.reach(one, self.inner)
        self._episode = _InstructionState(
            task=task, instruction=one, way=way, last=last, state=describe_state(self.inner, last)
        )
        return last.observation

    async def step(self, action: Action | None) -> StepResult:
        """Execute an action; a declaration ends the episode. UsageError outside an episode."""
        episode = self._require_running()
        episode = replace(episode, steps=episode.steps + 1)
        if action is not None and action.type in ENDINGS:
            return self._end(episode, action)
        # Behind the end of the wrapped episode nothing changes any more; the end is still to be declared.
        if episode.last.done:
            info: Mapping[str, object] = {"effect": "nothing changed"}
        else:
            last = await self.inner.step(action)
            episode, info = replace(episode, last=last, state=describe_state(self.inner, last)), last.info
        episode = replace(episode, said=get_answer(action, episode.said))
        is_over = episode.steps >= episode.task.max_steps
        self._episode = replace(episode, is_over=is_over)
        outcome = Outcome(success=False, score=0.0, reason="the steps were used up") if is_over else None
        return StepResult(observation=episode.last.observation, truncated=is_over, outcome=outcome, info=info)

    async def fork(self) -> InstructionEnvironment:
        """Return an independent copy in the same state."""
        assert isinstance(self.inner, Forkable), "instructions are made in environments that fork"
        return type(self)(self._suite, await self.inner.fork(), self._episode)

    def oracle(self) -> tuple[Action, ...] | None:
        """Return the rest of the teacher's actions; None beside its way, and if the teacher is a model."""
        episode = self._episode
        if episode is None or episode.is_over:
            return ()
        if not self._suite.has_solutions or episode.place is None:
            return None
        return tuple(self._suite.read(text) for text in episode.instruction.actions[episode.place :])

    async def close(self) -> None:
        """Close the wrapped environment."""
        await self.inner.close()

    def _require_running(self) -> _InstructionState:
        if self._episode is None or self._episode.is_over:
            raise UsageError(f"{self._suite.label}: step outside an episode; call reset first")
        return self._episode

    def _end(self, episode: _InstructionState, action: Action) -> StepResult:
        """End the episode by an action of the agents."""
        self._episode = replace(episode, is_over=True)
        one, screen = episode.instruction, episode.last.observation
        wanted = self._suite.read(one.actions[-1])
        success = episode.place == len(episode.way) - 1 and _is_same_ending(action, wanted)
        how = "as" if success else "not as"
        outcome = Outcome(success=success, score=float(success), reason=f"{how} the teacher, {one.teacher}, did it")
        return StepResult(observation=screen, terminated=True, outcome=outcome, info={"effect": "the episode ended"})


class PicturedEnvironment(InstructionEnvironment):
    """The same over an environment that can be looked at."""

    async def screenshot(self, marks: bool = False) -> bytes:
        """Return the present screen as PNG bytes; `marks` draws a numbered box on every element."""
        assert isinstance(self.inner, HasScreenshot), "only these are wrapped so"
        return await self.inner.screenshot(marks)


def get_answer(action: Action | None, before: str) -> str:
    """Return the last answer behind an action, without regard to case and spacing; `before` if it gives none."""
    return fold(str(action["text"])) if action is not None and action.type == "answer" else before


def _is_same_ending(one: Action, other: Action) -> bool:
    """Return whether two actions end an episode alike; answers are compared without regard to case and spacing."""
    said = [{name: fold(str(value)) for name, value in action.arguments} for action in (one, other)]
    return one.type == other.type and said[0] == said[1]
