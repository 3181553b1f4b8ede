"""Learn turns of judged episodes: the learner that reinforcement algorithms share.

    class MyLearner(TurnLearner):
        async def estimate(self, state, group, experience) -> list[StepEstimate]: ...

An algorithm decides what each remembered step is worth (`estimate`); the rest is the same for all:

    remember    the judged episodes of this epoch's rollout, alone or in a replay buffer with a capacity in steps
    estimate    a weight for each of their steps, with all that led to it
    draw        the turns of each optimizer step, among those with a weight, as the method says
    write       the lesson: turns, estimates, order (`collab.trainers.rl.turns`)
    train       the policy on the lesson, from the optimizer's moments of the epoch before

Each part is written before the next begins. An epoch without a turn to learn trains nothing and says so; in the first
epoch that ends the training.

A `ReplayMethod` remembers, and draws uniformly with replacement. It may begin with an offline phase: its first epoch
then has its own number of steps, played by the first policy, and its own number of updates. Methods that learn from the
present policy's episodes alone are in `collab.algorithms.on_policy`.
"""

from __future__ import annotations

import random
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field, model_validator

from collab.algorithms.barren import NOTHING, BarrenEpoch, pass_over
from collab.algorithms.experience import (
    JudgedEpisode,
    SeenPictures,
    TurnBuilder,
    fill_buffer,
    open_turn_builders,
    read_experience,
    write_experience,
)
from collab.algorithms.lesson_counts import count_kept
from collab.config import Definition
from collab.errors import RunFormatError, UsageError
from collab.loop.checks import check_bases
from collab.loop.config import Method, TrainingConfig
from collab.loop.estimate import build_likely_examples
from collab.loop.examples import RETOKENISED, read_counts, write_counts
from collab.loop.finetuning import Finetuning, build_task, finetune
from collab.loop.interfaces import Labels, Rollout, TriedStep, Update, join_labels
from collab.loop.policy import Policy, build_chat_tokenizer, get_template
from collab.loop.ranges import Estimate, LabelEstimate, Range
from collab.loop.record import ExampleCounts, TrainingDir, hash_json
from collab.loop.state import LoopState
from collab.models.vision import Picture
from collab.rewards.verifiers.registry import RULES
from collab.seeds import derive, generator
from collab.store.rewards import ReplyRef
from collab.trainers.prepare import FinetuneTask, Prepared
from collab.trainers.recipe import RLRecipe
from collab.trainers.rl.step_estimates import StepEstimate, read_estimates
from collab.trainers.rl.turns import (
    GROUP,
    EncodedTurn,
    Lesson,
    Look,
    Turn,
    prepare_turns,
    read_lesson,
    write_lesson,
)
from collab.trainers.run_dir import FinetuneDir
from collab.types import Step, Usage, Utterance
from collab.utils.files import hash_file, resolve_within
from collab.utils.text import format_amount

VALUING = "values"
"""Name of the work of value models in the records of an epoch."""


class OfflinePhase(Definition):
    """The first epoch of a training that begins with episodes of the first policy, or with recorded runs."""

    steps: int = Field(ge=1)
    """Environment steps that are played; of recorded runs those that they have."""
    updates: int = Field(ge=1)
    """Optimizer steps of the policy."""


class TurnMethod(Method):
    """Settings of learning turns, which reinforcement algorithms share."""

    RECIPE: ClassVar[str] = "rl"
    REMEDY: ClassVar[str] = ""
    """What of the method's own settings may mend that, in words before others."""
    rl: RLRecipe
    verifier: str = RULES
    """Verifier whose verdicts on rollouts are learned from, an agents file or a kind (docs/verifiers.md). The rules are
    the environment's own outcome. Held-out evaluations are always the environment's."""

    @model_validator(mode="after")
    def _check_processes(self) -> TurnMethod:
        if self.processes > 1:
            raise ValueError(f"processes: {self.processes}, but turns are learned by one process; leave it out")
        return self

    @property
    def is_everything_learned(self) -> bool:
        """True if episodes are learned from that do not fit into the capacity, too."""
        return False

    @property
    def most_barren(self) -> int:
        """Return how many first epochs may find nothing to learn before a training ends."""
        return 1

    def get_capacity(self, number: int) -> int | None:
        """Return how many environment steps an epoch remembers; None for all of its own, and no others."""
        return None

    def get_offline(self, number: int) -> OfflinePhase | None:
        """Return the offline phase if an epoch is that; None for an online epoch."""
        return None

    @abstractmethod
    def draw(self, number: int, turns: int, rng: random.Random) -> list[list[int]]:
        """Return the turns of each optimizer step of an epoch, as positions among those that may be learned.

        Args:
            turns: how many there are, at least 1.
        """

    @abstractmethod
    def count_drawn(self, rolled: Range) -> Range:
        """Return how many turns a training draws in all; `rolled` are the steps of all rollouts."""


def draw_passes(turns: int, passes: int, size: int, rng: random.Random) -> list[list[int]]:
    """Return every turn once per pass, each pass in an order of its own, in steps of `size`."""
    steps = list[list[int]]()
    for _ in range(passes):
        order = list(range(turns))
        rng.shuffle(order)
        steps += [order[start : start + size] for start in range(0, turns, size)]
    return steps


class ReplayMethod(TurnMethod):
    """Settings of learning remembered turns."""

    offline: OfflinePhase | None = None
    """The first epoch, if it is another than the rest; None where all are alike."""
    updates: int = Field(default=8, ge=1)
    """Optimizer steps of the policy per epoch."""
    capacity: int = Field(default=5000, ge=1)
    """Environment steps that are remembered; whole episodes are forgotten, the oldest first. An offline phase learns
    from all its episodes at once."""

    def get_capacity(self, number: int) -> int | None:
        """Return the capacity; None in an offline phase."""
        return None if self.get_offline(number) else self.capacity

    def draw(self, number: int, turns: int, rng: random.Random) -> list[list[int]]:
        """Draw as many steps as the epoch has updates."""
        # Uniformly with replacement, so that a step is full even if few turns are worth learning.
        return [[rng.randrange(turns) for _ in range(self.rl.batch_rows)] for _ in range(self.get_updates(number))]

    def count_drawn(self, rolled: Range) -> Range:
        """Return all rows of all updates, whatever is played."""
        drawn = float(sum(map(self.get_updates, range(1, self.epochs + 1))) * self.rl.batch_rows)
        return Range(low=drawn, high=drawn)

    def get_steps(self, number: int) -> int | None:
        """Return the step budget of an epoch."""
        phase = self.get_offline(number)
        return self.steps if phase is None else phase.steps

    def get_episodes(self, number: int) -> int | None:
        """Return as many episodes as the steps of the offline phase could need."""
        phase = self.get_offline(number)
        return None if phase is None else phase.steps

    def get_updates(self, number: int) -> int:
        """Return the optimizer steps of an epoch."""
        phase = self.get_offline(number)
        return self.updates if phase is None else phase.updates

    def get_offline(self, number: int) -> OfflinePhase | None:
        """Return the offline phase if an epoch is that; None for an online epoch."""
        return self.offline if number == 1 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Experience:
    """Remembered episodes, from which an algorithm estimates."""

    number: int
    """Number of the epoch."""
    policy: Policy
    """That the epoch begins with."""
    episodes: Sequence[JudgedEpisode]
    """Remembered, oldest first."""
    judged: Mapping[int, Sequence[JudgedEpisode]]
    """Epoch → all its judged episodes, remembered or not."""

    @property
    def fresh(self) -> Sequence[JudgedEpisode]:
        """This epoch's episodes, remembered or not."""
        return self.judged[self.number]


class TurnLearner:
    """Learns remembered turns; see `Learner`."""

    def check(self, config: TrainingConfig, first: Policy) -> None:
        """Refuse checkpoints that the recipe cannot train, and a verifier where the algorithm has no place for one."""
        method = config.method
        assert isinstance(method, TurnMethod), "the loop gives each algorithm its own method"
        if method.verifier != RULES and "verifier" not in type(config).model_fields:
            raise UsageError(
                f"verifier={method.verifier}: --algo {config.algorithm} learns from the environment's outcomes alone; "
                "leave it out, or make the algorithm a TurnAlgorithm"
            )
        check_bases(config, first)

    async def estimate(self, state: LoopState, group: str, experience: Experience) -> list[StepEstimate]:
        """Return an estimate of every step of the remembered episodes, in their order; raises `Halted` if it stops."""
        raise NotImplementedError

    def select_replies(self, step: Step) -> Iterable[Utterance]:
        """Return the replies of a step that are learned if it is; here all of them, in every round."""
        return step.matrix

    def draw(
        self, state: LoopState, experience: Experience, said: Sequence[StepEstimate], rng: random.Random
    ) -> list[list[int]]:
        """Return the replies of each optimizer step, as positions among those that may be learned.

        Args:
            said: of each of these replies, at least one, the estimate of its step.
        """
        method = state.config.method
        assert isinstance(method, TurnMethod), "the loop gives each algorithm its own method"
        return method.draw(experience.number, len(said), rng)

    def choose_start(self, state: LoopState, number: int, policy: Policy) -> Policy:
        """Return the policy whose weights an epoch trains; here the one that it begins with."""
        return policy

    def read_metrics(self, state: LoopState, number: int, group: str) -> dict[str, Any]:
        """Return metrics that the estimates of an epoch left on disk, beside those of the lesson."""
        return {}

    def read_obstacle(self, state: LoopState, number: int, group: str) -> str | None:
        """Return why the estimates of an epoch let a policy learn nothing, if that is not for its episodes' sake."""
        return None

    def read_hashes(self, state: LoopState, number: int) -> dict[str, str]:
        """Return part → SHA-256 of what the estimates of an epoch left on disk beside the lesson."""
        return {}

    def read_spent(self, state: LoopState, rollout: Rollout) -> dict[str, Usage]:
        """Return part → usage of model calls that the estimates of an epoch took, earlier processes included."""
        return {}

    async def update(self, state: LoopState, rollout: Rollout, labels: Labels, policy: Policy) -> Update:
        """Remember, estimate and draw, then train every policy on its lesson."""
        return await self.update_from_recorded(state, [(rollout, labels)], policy)

    async def update_from_recorded(
        self, state: LoopState, labelled: Sequence[tuple[Rollout, Labels]], policy: Policy
    ) -> Update:
        """Update as `update` does, from several runs; see `RecordedLearner`."""
        first = labelled[0][0]
        folder, number, method = state.folder, first.number, state.config.method
        assert isinstance(method, TurnMethod), "the loop gives each algorithm its own method"
        told = join_labels([labels for _, labels in labelled]).metrics
        judged = [(rollout, read_rewards(rollout, labels)) for rollout, labels in labelled]
        fresh = write_experience(folder, number, judged)
        capacity = method.get_capacity(number)
        experience = _remember(folder, number, policy, capacity)
        held = {one.key for one in experience.episodes}
        beyond = sum(one.key not in held for one in fresh)
        if beyond and not method.is_everything_learned:
            state.note(
                f"epoch {number}: {beyond} of {format_amount(len(fresh), 'episode')} do not fit into "
                f"capacity={capacity} steps and are not learned from; raise it in another training: --set "
                "capacity=N"
            )
        if method.rl.keeps_optimizer:
            _forget_moments(folder, number, state.config.groups, method.rl)
        # Examples are written once: a resumed epoch trains on the files, not on what a newer library would estimate.
        counts = read_counts(folder.get_epoch(number).examples, ExampleCounts)
        if counts is None:
            state.begin("examples")
            counts = {group: await self._write_lesson(state, group, experience) for group in state.config.groups}
            write_counts(folder, number, counts)
        lessons = self._read_lessons(state, number)
        metrics = {
            "solved": sum(one.reward > 0 for one in fresh),
            **({"beyond_capacity": beyond} if beyond else {}),
            **(lessons["shared"] if list(lessons) == ["shared"] else lessons),
        }
        state.progress.update(examples=counts, metrics={**told, **metrics})
        obstacles = {group: self.read_obstacle(state, number, group) for group in state.config.groups}
        if not any(one.examples for one in counts.values()) and not any(obstacles.values()):
            causes = sum((Counter(one["left_out"]) for one in lessons.values()), Counter[str]())
            causes += sum((Counter(one.refused) for one in counts.values()), Counter[str]())
            barren = BarrenEpoch(
                rollout=first,
                episodes=fresh,
                verifier=None if labelled[0][1].value is None else method.verifier,
                causes=causes,
                capacity=capacity,
            )
            pass_over(state, method, barren)
        finetuning = Finetuning(
            nothing=NOTHING,
            has_examples=lambda group: counts[group].examples > 0,
            prepare=lambda group: _prepare(state, number, group, self.choose_start(state, number, policy)),
        )
        trained, untrained = await finetune(state, number, finetuning)
        return Update(
            trained=trained,
            untrained={group: obstacles[group] or why for group, why in untrained.items()},
            examples=counts,
            metrics=metrics,
            # Timed where this process made the lesson; a value model asks nothing.
            spent={**self.read_spent(state, first), **({VALUING: Usage()} if VALUING in state.seconds else {})},
            hashes=self.read_hashes(state, number),
        )

    def _read_lessons(self, state: LoopState, number: int) -> dict[str, dict[str, Any]]:
        """Return how much of what was remembered each lesson keeps, with metrics of the estimates, by policy."""
        return {
            group: {
                **count_kept(read_estimates(get_lesson_dir(state.folder, number, group))),
                **self.read_metrics(state, number, group),
            }
            for group in state.config.groups
        }

    async def make_lesson(self, state: LoopState, group: str, experience: Experience) -> DrawnLesson:
        """Estimate what is remembered, and draw the turns of each optimizer step; raises `Halted` if it stops."""
        config, method, number = state.config, state.config.method, experience.number
        assert isinstance(method, TurnMethod), "the loop gives each algorithm its own method"
        estimates = await self.estimate(state, group, experience)
        kept = [one for one in estimates if one.weight]
        with open_turn_builders(config, state.folder, (one.run for one in kept), experience.policy) as builders:
            said = [
                (ReplyRef(trajectory=one.trajectory, step=one.step, cell=cell.cell), one)
                for one in kept
                for cell in self.select_replies(builders[one.run].recorded.get_step(one.trajectory, one.step))
                if cell.agent in config.groups[group]
            ]
            # By a seed of its own, so that the order is the same however often the epoch is begun.
            rng = generator(derive(config.run.seed, "turns", number, group))
            drawn = self.draw(state, experience, [one for _, one in said], rng) if said else []
            lesson = DrawnLesson(refuses=method.retokenised == "refuse", estimates=estimates)
            lesson.draw(drawn, said, builders)
            return lesson

    async def _write_lesson(self, state: LoopState, group: str, experience: Experience) -> ExampleCounts:
        made, number = await self.make_lesson(state, group, experience), experience.number
        lesson = Lesson(turns=made.turns, weights=made.weights, order=made.order, estimates=made.estimates)
        digest = write_lesson(lesson, get_lesson_dir(state.folder, number, group), state.folder.resume)
        return ExampleCounts(
            examples=len(lesson.turns),
            written=len(lesson.turns),
            refused=dict(made.refused),
            retokenised=made.retokenised,
            digest=digest,
        )


def hash_beside_lessons(state: LoopState, number: int, name: str) -> str:
    """Return the SHA-256 over the files of one folder beside the lesson of each policy, by their place and content."""
    places = [get_lesson_dir(state.folder, number, group) / name for group in state.config.groups]
    files = sorted(file for place in places for file in place.rglob("*") if file.is_file())
    return hash_json([[str(file.relative_to(state.folder.path)), hash_file(file)] for file in files])


def read_rewards(rollout: Rollout, labels: Labels) -> dict[str, float]:
    """Return id of an episode → 1 for a success, else 0, as the labels have it, or else the environment's outcome."""
    if labels.value is not None:
        return dict(labels.value)
    return {one.id: float(one.success) for one in rollout.trajectories if one.error is None}


def estimate_alike(
    episode: JudgedEpisode, *, weight: float, why: str, advantage: float | None = None
) -> list[StepEstimate]:
    """Return estimates of an episode's steps that all have one weight and advantage, for one reason, and no value."""
    return [
        StepEstimate(
            run=episode.run,
            trajectory=episode.trajectory,
            step=step,
            reward=episode.reward,
            advantage=advantage,
            weight=weight,
            why=why,
        )
        for step in range(episode.steps)
    ]


async def estimate_turns(
    config: TrainingConfig, tried: TriedStep, rolled: Range, labels: Sequence[LabelEstimate] = ()
) -> Estimate:
    """Estimate learning for `--plan`, with each turn taken to be as long as these; `rolled` as `Algorithm.estimate`."""
    from collab.trainers.estimate import forecast

    method = config.method
    assert isinstance(method, TurnMethod), "the loop gives each algorithm its own method"
    slots = next(iter(config.groups.values()))  # the first policy's cost stands for all
    base, (said, read) = tried.policy.of(slots), tried.select_cells(slots)
    recipe = method.rl.model_copy(update=get_template(config.run.agents[slots[0]]))
    chat = build_chat_tokenizer(config.run.agents[slots[0]], base)
    items = [
        EncodedTurn(group=GROUP, ids=one.ids, scored_from=one.scored_from, weight=1.0, temperature=1.0)
        for one in build_likely_examples(said, read, chat)
    ]
    drawn = method.count_drawn(rolled).times(len(config.groups))
    training = forecast(FinetuneTask(stage="rl", base=base, preset=config.preset, recipe=recipe), items, tried.device)
    return Estimate(
        noun="turns",
        examples=drawn,
        replies=drawn,
        fixed=drawn.low == drawn.high,
        labels=labels,
        training=training,
    )


def get_lesson_dir(folder: TrainingDir, number: int, group: str) -> Path:
    """Return where the lesson of a policy lies."""
    return folder.get_epoch(number).examples / group


# ------------------------------------------------------------------------------------------------------ inside


def _remember(folder: TrainingDir, number: int, policy: Policy, capacity: int | None) -> Experience:
    """Return what the epoch estimates from: the newest episodes of all epochs whose steps fit; see `get_capacity`."""
    judged = {epoch: read_experience(folder, epoch) for epoch in range(1, number + 1)}
    if capacity is None:
        return Experience(number=number, policy=policy, episodes=judged[number], judged=judged)
    known = {one.key: one for listed in judged.values() for one in listed}
    held = fill_buffer(known.values(), capacity).episodes
    episodes = [known[one.run, one.trajectory] for one in held]
    return Experience(number=number, policy=policy, episodes=episodes, judged=judged)


@dataclass(slots=True, kw_only=True)
class DrawnLesson:
    """Turns and order of a lesson, while it is made."""

    refuses: bool
    """Whether a reply whose sampled tokens are unknown is left out."""
    estimates: Sequence[StepEstimate] = ()
    turns: list[Turn] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)
    order: list[list[int]] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    """Reason → replies that are not learned."""
    retokenised: int = 0

    def draw(
        self,
        drawn: Sequence[Sequence[int]],
        said: Sequence[tuple[ReplyRef, StepEstimate]],
        builders: Mapping[str, TurnBuilder],
    ) -> None:
        """Build the turns that were drawn, each once; one that cannot be built is left out of its steps and counted.

        Args:
            drawn: per optimizer step, positions in `said`.
        """
        places = dict[int, int | None]()
        for step in drawn:
            for one in step:
                if one not in places:
                    ref, estimate = said[one]
                    turn = self.check(builders[estimate.run].build(ref))
                    places[one] = None if turn is None else self.add(turn, estimate.weight)
            self.order.append([place for one in step if (place := places[one]) is not None])

    def check(self, built: tuple[Turn | str, bool]) -> Turn | None:
        """Count what `TurnBuilder` built, and return the turn; None if it is not learned."""
        turn, again = built
        self.retokenised += again
        if again and self.refuses:
            turn = RETOKENISED
        if isinstance(turn, str):
            self.refused[turn] += 1
            return None
        return turn

    def add(self, turn: Turn, weight: float) -> int:
        """Add a turn and return its place."""
        self.turns.append(turn)
        self.weights.append(weight)
        return len(self.turns) - 1


def _prepare(state: LoopState, number: int, group: str, policy: Policy) -> Prepared:
    """Prepare the training of a policy on its lesson."""
    method = state.config.method
    assert isinstance(method, TurnMethod), "the loop gives each algorithm its own method"
    task = build_task(state, number, group, policy, method.build_recipe(number), "rl")
    if method.rl.keeps_optimizer:
        moments = _find_moments(state.folder, number, group, method.rl)
        task = replace(task, moments=None if moments is None else str(moments))
    lesson = read_lesson(get_lesson_dir(state.folder, number, group))
    return prepare_turns(task, lesson, _open_pictures(state, group, policy))


def _open_pictures(state: LoopState, group: str, policy: Policy) -> Look | None:
    """Return a function that reads the pictures of a turn; None where a policy sees none."""
    run, seen = state.config.run, dict[str, SeenPictures]()
    # Slots that share a policy may show it pictures of different sizes.
    for slot in state.config.groups[group]:
        chat = build_chat_tokenizer(run.agents[slot], policy.weights[slot])
        found = SeenPictures.of(run.agents[slot], run.agent_names[slot], chat)
        if found is not None:
            seen[slot] = found
    if not seen:
        return None

    def look(turn: Turn) -> tuple[Picture, ...]:
        shown = seen.get(turn.ref.cell.agent)
        return () if shown is None else shown.read(Path(resolve_within(state.folder.path, turn.run)), turn.pictures)

    return look


def _find_moments(folder: TrainingDir, number: int, group: str, recipe: RLRecipe) -> Path | None:
    """Return the optimizer's moments that the last epoch with an update of a policy left; None before any.

    Raises:
        RunFormatError: that epoch must have left some, and they are gone.
    """
    for one in range(number - 1, 0, -1):
        trained = FinetuneDir(folder.get_epoch(one).get_training_dir(group))
        if trained.moments.exists():
            return trained.moments
        if trained.final.is_dir() and (recipe.lora is None or not recipe.lora.merge):
            raise RunFormatError(
                f"{trained.moments}: epoch {number} begins with these moments of the optimizer, and they are gone; put "
                "the file back, or begin another training"
            )
    return None


def _forget_moments(folder: TrainingDir, number: int, groups: Iterable[str], recipe: RLRecipe) -> None:
    """Remove moments that no later epoch begins with: those before the last ones of each policy."""
    for group in groups:
        last = _find_moments(folder, number, group, recipe)
        for one in range(1, number):
            path = FinetuneDir(folder.get_epoch(one).get_training_dir(group)).moments
            if path != last:
                path.unlink(missing_ok=True)
