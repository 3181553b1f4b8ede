"""DistRL's learner: which remembered episodes are learned again, and what each of their replies is worth now.

In an epoch, of every episode that is new, drawn, or was not looked at for long, with r_T the verdict on it:

    ρ̄_t   =  min(1, π(a_t | s_t) / μ(a_t | s_t))     now, over when it was sampled      (`estimators.importance_ratios`)
    V_t    =  value of its state, as the epoch before left it                            (`values.ValueModel`)
    v_t    =  V_t, corrected over the episode by r, V and ρ̄                              (`estimators.retrace_values`)
    A_t    =  r_t + pen_t + γ v_{t+1} − V_t, or the paper's                              (`compute_advantages`)
    w_t    =  A_t − λ_inv · invalid_t                                                    what multiplies ρ̄ log π

New episodes enter the buffer with their own priority. Whole episodes are drawn by priority until they have the turns
of all optimizer steps; these are shuffled and dealt out. V is fitted to v, cut to [0, 1], on what was drawn; then the
priorities of all that was looked at are computed again, with the fitted V. In the loss, ρ̄ is that of each optimizer
step.

A network that was never fitted knows nothing: before its first use V is fitted to the returns of the first episodes.
An episode is remembered if each of its replies can be learned, for values are corrected over whole episodes.

Each epoch leaves beside the lesson: features of its own states, `values/`, `replay.json` (what is remembered, with what
decides each priority), and `distrl.json` with metrics, which is written last.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from collab.algorithms.distrl.config import DistRLMethod
from collab.algorithms.experience import JudgedEpisode, TurnBuilder, open_turn_builders
from collab.algorithms.state_features import (
    EncoderChoice,
    EpisodeFeatures,
    load_features,
    time_encoding,
    time_updates,
    write_fresh_features,
)
from collab.algorithms.turn_learner import (
    VALUING,
    DrawnLesson,
    Experience,
    TurnLearner,
    estimate_alike,
    get_lesson_dir,
    hash_beside_lessons,
)
from collab.config import Definition
from collab.errors import Diverged, RunFormatError
from collab.loop.config import TrainingConfig
from collab.loop.examples import OTHER_PROMPT, UNKNOWN
from collab.loop.interfaces import TriedStep
from collab.loop.policy import Policy
from collab.loop.ranges import NONE_ASKED, LabelEstimate
from collab.loop.state import LoopState
from collab.rewards.calibration.metrics import (
    KnownStep,
    compute_accuracy,
    compute_auc,
    compute_ece,
    compute_reliability,
)
from collab.seeds import derive, generator
from collab.store.rewards import ReplyRef
from collab.trainers.rl.estimators import (
    discounted_returns,
    gae,
    importance_ratios,
    retrace_advantage,
    retrace_values,
)
from collab.trainers.rl.replay import PrioritisedReplay, Surprise
from collab.trainers.rl.step_estimates import StepEstimate
from collab.trainers.rl.turns import Turn
from collab.types import Step
from collab.utils.concurrency import run_in_background
from collab.utils.files import hash_file, read_json, report_write_errors, write_json

if TYPE_CHECKING:
    from collab.trainers.rl.values import ValueModel

VALUES, REPLAY, METRICS = "values", "replay.json", "distrl.json"
"""Beside a lesson; the metrics are written last."""
STEP_COST = 0.05
"""Subtracted from the public code's advantage."""
BINS = 10
"""Number of bins of a histogram."""
NOT_DRAWN = "not drawn in this epoch"
AS_EXPECTED = "its advantage is 0"
TOO_OLD = "its policy is more than max_staleness versions behind"
TOO_LONG = "its episode has more steps than are remembered, or newer ones took their room"

Vector = NDArray[np.float64]


class StateValueQuality(Definition):
    """Quality of V on the states of new episodes, which no fit has seen."""

    states: int
    accuracy: float | None
    auc: float | None
    ece: float | None
    """As in `collab.rewards.calibration.metrics`, of V against the outcome of its episode; None if undefined."""


class DistRLMetrics(Definition):
    """Numbers of the replay and its corrections in an epoch, for its record."""

    remembered_episodes: int
    remembered_steps: int
    drawn_episodes: int
    """Different ones."""
    drawn: int
    """Replies of drawn episodes, each as often as it was drawn; the last ones do not fit into the optimizer steps."""
    staleness: dict[int, int] = Field(default_factory=dict)
    """Versions between the policy that replied and the one that learns → drawn replies, those of `undated` left out."""
    undated: int = 0
    """Drawn replies of runs that were recorded before the training: their policies are no versions of it."""
    ratio: float | None = None
    """Mean ρ̄ of drawn replies; None where none was drawn."""
    lowest_ratio: float | None = None
    """ρ̄ that a tenth of them stays below."""
    ratios: tuple[int, ...] = ()
    """Drawn replies by ρ̄, in `BINS` equal bins of [0, 1]; empty where none was drawn."""
    underflowed: int = 0
    """Replies so unlikely now that ρ̄ is 0."""
    entropy: float | None = None
    """Mean entropy of the policy over drawn replies, in nats per token."""
    penalised: int = 0
    """Drawn steps that repeat the one before."""
    invalid: int = 0
    """Drawn replies that are no action."""
    priorities: tuple[float, float, float] | None = None
    """Lowest, median and highest priority after the epoch; None where nothing is remembered."""
    priority_counts: tuple[int, ...] = ()
    """Remembered episodes by priority, in `BINS` equal bins from 0 to the highest."""
    values: StateValueQuality | None = None
    """None where V was not fitted before, or no episode is new."""
    value_loss: float | None = None
    """Mean loss of the fit of V; None where it was lost."""
    lost: str | None = None
    """Why the fit was undone; None if it was not."""


class DistRLLearner(TurnLearner):
    """Learns remembered episodes by their corrected advantages."""

    async def make_lesson(self, state: LoopState, group: str, experience: Experience) -> DrawnLesson:
        """Remember, draw, correct and deal out."""
        with state.time_part(VALUING, whole=True):
            return await run_in_background(_make_lesson, state, group, experience)

    def read_metrics(self, state: LoopState, number: int, group: str) -> dict[str, Any]:
        """Return what was remembered, drawn and corrected."""
        path = get_lesson_dir(state.folder, number, group) / METRICS
        return {"distrl": read_json(path, "remove the epoch's examples")} if path.exists() else {}

    def read_hashes(self, state: LoopState, number: int) -> dict[str, str]:
        """Return the digests of V and of what is remembered."""
        places = [get_lesson_dir(state.folder, number, group) / REPLAY for group in state.config.groups]
        return {
            "values": hash_beside_lessons(state, number, VALUES),
            "replay": "".join(hash_file(place) for place in places),
        }


async def estimate_values(config: TrainingConfig, tried: TriedStep) -> LabelEstimate:
    """Estimate what values take, for `--plan`: encoding of every step, and the updates."""
    method = narrow_method(config)
    seconds, size = await run_in_background(time_encoding, config, tried, EncoderChoice())
    each = await run_in_background(time_updates, method.values, size)
    updates = sum(map(method.get_value_updates, range(1, method.epochs + 1)))
    return LabelEstimate(
        name="values", doing="valuing", asked=NONE_ASKED, seconds=seconds, fixed_s=each * updates * len(config.groups)
    )


def narrow_method(config: TrainingConfig) -> DistRLMethod:
    """Return the method as the algorithm's own."""
    assert isinstance(config.method, DistRLMethod), "the loop gives each algorithm its own method"
    return config.method


# --------------------------------------------------------------------------------------------------------- epoch


@dataclass(slots=True, kw_only=True, eq=False)
class _ReadEpisode:
    """A remembered episode as the policy and V see it now; (T,) numbers each."""

    episode: JudgedEpisode
    turns: Sequence[Turn]
    ages: Sequence[int | None]
    """Versions between the policy that replied and the present one; None in a run recorded before the training."""
    states: NDArray[np.float32]
    """Features, (T, size)."""
    rewards: Vector
    penalties: Vector
    ratios: Vector
    """ρ̄."""
    log_probabilities: Vector
    """log π of whole replies, at most 0."""
    entropies: Vector
    underflowed: int
    """Replies with a ρ̄ of 0."""
    values: Vector
    targets: Vector
    advantages: Vector
    weights: Vector
    """All four are empty before `correct`."""

    def measure(self, model: ValueModel, method: DistRLMethod) -> Surprise:
        """Return what its steps teach by the present V."""
        errors = np.abs(gae(self.rewards, model.values(self.states), gamma=method.gamma, decay=0.0))
        # The paper's entropy of a step is how unlikely its reply is.
        entropies = -self.log_probabilities if method.priorities.entropy_of == "reply" else self.entropies
        return Surprise(
            error=float(errors.mean()),
            ratio=float(self.ratios.mean()),
            entropy=float(entropies.mean()),
            most_error=float(errors.max()),
            most_entropy=float(entropies.max()),
        )

    def correct(self, model: ValueModel, method: DistRLMethod) -> None:
        """Compute values, targets, advantages and weights by the present V."""
        self.values = model.values(self.states)
        self.targets = compute_targets(method, self.rewards, self.values, self.ratios)
        self.advantages = compute_advantages(method, self.rewards, self.values, self.targets, self.penalties)
        invalid = np.array([one.invalid for one in self.turns], dtype=np.float64)
        self.weights = self.advantages - method.invalid_weight * invalid


def compute_targets(method: DistRLMethod, rewards: Vector, values: Vector, ratios: Vector) -> Vector:
    """Return what V of each state of an episode is fitted to before it is cut to [0, 1], (T,); arguments likewise."""
    if method.target == "returns":
        return discounted_returns(rewards, method.gamma)
    if method.target == "solved":
        return (discounted_returns(rewards, method.gamma) > 0).astype(np.float64)
    return retrace_values(rewards, values, ratios, gamma=method.gamma, trace=method.trace, form=method.target)


def compute_advantages(
    method: DistRLMethod, rewards: Vector, values: Vector, targets: Vector, penalties: Vector
) -> Vector:
    """Return the advantage of each step of an episode, (T,); arguments likewise."""
    if method.advantage == "released":
        returns = discounted_returns(rewards, method.gamma)
        own = rewards + returns - STEP_COST
        return (retrace_advantage(own, values, values, gamma=method.gamma, penalties=penalties) > 0).astype(np.float64)
    if method.advantage == "paper":
        returns = np.append(discounted_returns(rewards, method.gamma), 0.0)[1:]
        found = retrace_advantage(rewards + returns, values, values, gamma=method.gamma, penalties=penalties)
    else:
        found = retrace_advantage(rewards, values, targets, gamma=method.gamma, penalties=penalties)
    return found if method.advantage_range is None else found.clip(*method.advantage_range)


def compute_penalties(method: DistRLMethod, steps: Sequence[Step]) -> Vector:
    """Return the penalty of each step, at most 0, (T,): for an action that was just tried on an equal screen."""
    found, repeats = np.zeros(len(steps)), 0
    for place, step in enumerate(steps[1:], 1):
        before = steps[place - 1]
        is_same = step.executed == before.executed and step.observation.digest == before.observation.digest
        repeats = repeats + 1 if is_same and step.executed is not None else 0
        found[place] = -method.repeat_penalty * (repeats if method.repeats_add_up else min(repeats, 1))
    return found


def _make_lesson(state: LoopState, group: str, experience: Experience) -> DrawnLesson:
    method, number = narrow_method(state.config), experience.number
    known = {one.key: one for listed in experience.judged.values() for one in listed}
    replay = _load_replay(state, group, number)
    # The buffer decides what is remembered: an episode that cannot be learned takes no room in it.
    listed = [*(known[one.key] for one in replay.buffer.episodes), *experience.fresh]
    write_fresh_features(state, group, experience, EncoderChoice())
    features = load_features(state, group, replace(experience, episodes=listed))
    lesson, fit = DrawnLesson(refuses=True), _Fit()
    with open_turn_builders(state.config, state.folder, {one.run for one in listed}, experience.policy) as builders:
        reader = _EpisodeReader(state, group, number, experience.policy, features, builders, lesson)
        fresh = [one for episode in experience.fresh if (one := reader.read(episode)) is not None]
        model = _load_values(state, group, number, features)
        if model.steps:
            fit.quality = measure_values(model, fresh)
        elif fresh:
            # A network that was never fitted knows nothing, and must not decide what is drawn.
            returns = [discounted_returns(one.rewards, method.gamma) for one in fresh]
            fit.run(state, group, number, model, fresh, returns)
        for one in fresh:
            replay.add(one.episode.ref, one.measure(model, method), epoch=number)
        # Whole episodes, because values are corrected over them; then single turns, so that a step has many.
        rng = generator(derive(state.config.run.seed, "drawn episodes", number, group))
        refs = replay.draw(method.get_updates(number) * method.rl.batch_rows, rng)
        drawn = [one for ref in refs if (one := reader.read(known[ref.key])) is not None]
        different = list({one.episode.key: one for one in drawn}.values())
        for one in different:
            one.correct(model, method)
        if different:
            fit.run(state, group, number, model, different, [one.targets for one in different])
        # Priorities by the fitted V: of all that the policy of this epoch has read, then of those that it should.
        measured = {one.episode.key: one for one in (*fresh, *different)}
        rest = (one for one in replay.list_stalest(len(replay.buffer.episodes)) if one.key not in measured)
        stalest = [reader.read(known[one.key]) for one in islice(rest, method.priorities.refreshed)]
        for read in (*measured.values(), *(one for one in stalest if one is not None)):
            if read.episode.key in replay:
                replay.measure(read.episode.key, read.measure(model, method), epoch=number)
    _deal_out(lesson, drawn, method, number, rng)
    remembered = [known[one.key] for one in replay.buffer.episodes]
    lesson.estimates = [
        *(estimate for one in remembered for estimate in _estimate(one, reader.found.get(one.key), replay)),
        *(
            estimate
            for one in experience.fresh
            if one.key not in replay
            for estimate in estimate_alike(one, weight=0.0, why=reader.refused.get(one.key, TOO_LONG))
        ),
    ]
    metrics = _describe(replay, drawn, fit)
    place = get_lesson_dir(state.folder, number, group)
    with report_write_errors(place, state.folder.resume):
        place.mkdir(parents=True, exist_ok=True)
        model.save(place / VALUES)
        write_json(place / REPLAY, replay.state())
        write_json(place / METRICS, metrics.model_dump(mode="json"))
    return lesson


def _deal_out(
    lesson: DrawnLesson, drawn: Sequence[_ReadEpisode], method: DistRLMethod, number: int, rng: random.Random
) -> None:
    """Add the turns of drawn episodes to a lesson, and deal them out to its optimizer steps.

    A turn of weight 0 is dealt out, too: it counts in the mean of its optimizer step, as in the public code. If no turn
    has a weight, there is nothing to learn.
    """
    if not any(one.weights.any() for one in drawn):
        return
    places = dict[tuple[tuple[str, str], int], int]()
    taken = list[int]()
    for one in drawn:
        for step, (turn, weight) in enumerate(zip(one.turns, one.weights.tolist(), strict=True)):
            key = one.episode.key, step
            if key not in places:
                places[key] = lesson.add(turn, weight)
            taken.append(places[key])
    rng.shuffle(taken)
    size, most = method.rl.batch_rows, method.get_updates(number)
    lesson.order = [taken[start : start + size] for start in range(0, len(taken), size)][:most]


def _estimate(episode: JudgedEpisode, read: _ReadEpisode | None, replay: PrioritisedReplay) -> list[StepEstimate]:
    """Return the estimates of a remembered episode's steps."""
    priority = replay.get_priority(episode.key)
    if read is None or not len(read.weights):
        return [replace(one, priority=priority) for one in estimate_alike(episode, weight=0.0, why=NOT_DRAWN)]
    # Numbers of the present policy and V, with which the step is learned.
    return [
        StepEstimate(
            run=episode.run,
            trajectory=episode.trajectory,
            step=step,
            reward=episode.reward,
            value=float(read.values[step]),
            value_next=float(read.values[step + 1]) if step + 1 < episode.steps else 0.0,
            target=float(read.targets[step]),
            advantage=float(read.advantages[step]),
            penalty=float(read.penalties[step]),
            ratio=float(read.ratios[step]),
            entropy=float(read.entropies[step]),
            staleness=age,
            priority=priority,
            weight=float(read.weights[step]),
            why="kept" if read.weights[step] else AS_EXPECTED,
        )
        for step, age in enumerate(read.ages)
    ]


def _describe(replay: PrioritisedReplay, drawn: Sequence[_ReadEpisode], fit: _Fit) -> DistRLMetrics:
    """Return the metrics of an epoch; numbers of replies count each as often as it was drawn."""
    # Drawn replies alone: those that are only remembered were not scored by this policy.
    priorities = sorted(replay.get_priority(one.key) for one in replay.buffer.episodes)
    told: dict[str, Any] = {}
    ages = Counter(age for one in drawn for age in one.ages)
    undated = ages.pop(None, 0)
    if drawn:
        ratios, entropies = (np.concatenate([getattr(one, name) for one in drawn]) for name in ("ratios", "entropies"))
        told = {
            "ratio": float(ratios.mean()),
            "lowest_ratio": float(np.quantile(ratios, 0.1)),
            "ratios": _count_in_bins(ratios, 1.0),
            "underflowed": sum(one.underflowed for one in drawn),
            "entropy": float(entropies.mean()),
            "penalised": sum(int((one.penalties < 0).sum()) for one in drawn),
            "invalid": sum(turn.invalid for one in drawn for turn in one.turns),
        }
    if priorities:
        told["priorities"] = priorities[0], priorities[len(priorities) // 2], priorities[-1]
        told["priority_counts"] = _count_in_bins(priorities, priorities[-1])
    return DistRLMetrics(
        remembered_episodes=len(replay),
        remembered_steps=replay.buffer.steps,
        drawn_episodes=len({one.episode.key for one in drawn}),
        drawn=sum(len(one.turns) for one in drawn),
        staleness={age: ages[age] for age in sorted(age for age in ages if age is not None)},
        undated=undated,
        values=fit.quality,
        value_loss=fit.loss,
        lost=fit.lost,
        **told,
    )


def _count_in_bins(values: Sequence[float] | Vector, most: float) -> tuple[int, ...]:
    """Return how many values lie in each of the equal bins of [0, most]."""
    counts, _ = np.histogram(values, bins=BINS, range=(0.0, most or 1.0))
    return tuple(counts.tolist())


# ------------------------------------------------------------------------------------------------------ episodes


class _EpisodeReader:
    """Reads remembered episodes as the present policy sees them, each once.

    Args:
        policy: that the epoch begins with.
        lesson: counts replies that cannot be learned, by cause.
    """

    def __init__(
        self,
        state: LoopState,
        group: str,
        number: int,
        policy: Policy,
        features: Mapping[tuple[str, str], EpisodeFeatures],
        builders: Mapping[str, TurnBuilder],
        lesson: DrawnLesson,
    ) -> None:
        from collab.trainers.rl.policy_gradient import PolicyScorer

        slots, self._version = state.config.groups[group], policy.version
        self.found: dict[tuple[str, str], _ReadEpisode] = {}
        self.refused: dict[tuple[str, str], str] = {}
        """Episode → why it cannot be learned."""
        self._method, self._number = narrow_method(state.config), number
        self._recorded = {one.run for one in state.config.recorded}
        self._features, self._builders, self._lesson = features, builders, lesson
        self._scorer = PolicyScorer(policy.of(slots), policy.get_adapter(slots), state.device)

    def read(self, episode: JudgedEpisode) -> _ReadEpisode | None:
        """Return an episode; None if a reply of it cannot be learned."""
        if episode.key not in self.found and episode.key not in self.refused:
            read = self._read(episode)
            if isinstance(read, str):
                self.refused[episode.key] = read
            else:
                self.found[episode.key] = read
        return self.found.get(episode.key)

    def _read(self, episode: JudgedEpisode) -> _ReadEpisode | str:
        """Return an episode, or why it cannot be learned."""
        builder = self._builders[episode.run]
        steps, turns = builder.recorded.trajectories[episode.trajectory].steps, list[Turn]()
        most = self._method.max_staleness
        # Recorded runs count versions of another training, or of none.
        is_dated = episode.run not in self._recorded
        # Of new episodes alone: what is remembered grows old in any case.
        is_arriving = is_dated and episode.epoch == self._number
        if is_arriving and most is not None and self._version - episode.versions[0] > most:
            return TOO_OLD
        if episode.key not in self._features:
            return OTHER_PROMPT
        for step in steps:
            (cell,) = step.matrix
            ref = ReplyRef(trajectory=episode.trajectory, step=step.index, cell=cell.cell)
            turn = self._lesson.check(builder.build(ref))
            if turn is None or turn.behaviour is None:
                return UNKNOWN
            turns.append(turn)
        scored = [self._scorer.score(turn) for turn in turns]
        behaviour = [float(turn.behaviour.astype(np.float64).sum()) for turn in turns if turn.behaviour is not None]
        ratios = importance_ratios([logp for logp, _ in scored], behaviour)
        nothing = np.empty(0)
        return _ReadEpisode(
            episode=episode,
            turns=turns,
            ages=[self._version - turn.version if is_dated else None for turn in turns],
            states=self._features[episode.key].states,
            rewards=np.array([0.0] * (episode.steps - 1) + [episode.reward]),
            penalties=compute_penalties(self._method, steps),
            ratios=ratios.values,
            log_probabilities=np.array([logp for logp, _ in scored]),
            entropies=np.array([entropy for _, entropy in scored]),
            underflowed=ratios.underflowed,
            values=nothing,
            targets=nothing,
            advantages=nothing,
            weights=nothing,
        )


def _load_replay(state: LoopState, group: str, number: int) -> PrioritisedReplay:
    """Return what the epoch before remembered; an empty buffer in the first epoch."""
    method = narrow_method(state.config)
    exponent, weights = method.priorities.exponent, method.priorities.weights
    if number == 1:
        return PrioritisedReplay(method.capacity, exponent=exponent, weights=weights)
    path = get_lesson_dir(state.folder, number - 1, group) / REPLAY
    try:
        return PrioritisedReplay.of(read_json(path, ""), exponent=exponent, weights=weights)
    except (RunFormatError, ValueError, LookupError, TypeError) as error:
        raise RunFormatError(
            f"{path}: epoch {number} begins with these episodes, and they cannot be read: {error}; put the file back, "
            "or begin another training"
        ) from None


# -------------------------------------------------------------------------------------------------------- values


@dataclass(slots=True, kw_only=True)
class _Fit:
    """Fits of V in an epoch."""

    quality: StateValueQuality | None = None
    loss: float | None = None
    """Loss of the last one; None where it was lost."""
    lost: str | None = None
    count: int = 0

    def run(
        self,
        state: LoopState,
        group: str,
        number: int,
        model: ValueModel,
        episodes: Sequence[_ReadEpisode],
        targets: Sequence[Vector],
    ) -> None:
        """Fit V to targets, (T,) of each episode, cut to [0, 1]; a fit that diverges is undone and noted."""
        self.count += 1
        try:
            found = model.fit(
                np.concatenate([one.states for one in episodes]),
                np.concatenate(targets).clip(0, 1).tolist(),
                [f"{one.episode.epoch}/{one.episode.trajectory}" for one in episodes for _ in one.turns],
                steps=narrow_method(state.config).get_value_updates(number),
                seed=derive(state.config.run.seed, "value updates", number, group, self.count),
            )
            self.loss = found.loss
        except Diverged as diverged:
            # The policy learns all the same: its advantages rest on V before.
            self.loss, self.lost = None, f"{diverged.what}; its fit was undone"


def _load_values(
    state: LoopState, group: str, number: int, features: Mapping[tuple[str, str], EpisodeFeatures]
) -> ValueModel:
    """Return V as the epoch before left it, or a new one."""
    from collab.trainers.rl.values import ValueModel

    place = get_lesson_dir(state.folder, number - 1, group) / VALUES
    if number > 1 and place.exists():
        return ValueModel.load(place)
    size = next((one.states.shape[1] for one in features.values()), 1)
    return ValueModel(narrow_method(state.config).values, size=size, seed=derive(state.config.run.seed, "value", group))


def measure_values(model: ValueModel, fresh: Sequence[_ReadEpisode]) -> StateValueQuality | None:
    """Return how well V predicts new episodes; None without any."""
    if not fresh:
        return None
    steps = [
        KnownStep(score=float(value), good=one.episode.reward > 0.5)
        for one in fresh
        for value in model.values(one.states).clip(0, 1)
    ]
    return StateValueQuality(
        states=len(steps),
        accuracy=compute_accuracy(steps),
        auc=compute_auc(steps),
        ece=compute_ece(compute_reliability(steps)),
    )
