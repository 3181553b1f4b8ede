"""Android Coach's learner: returns, Q, candidates and their advantages, and what is left of them on disk.

In an epoch, with r_o the verdict on an episode and r^p_t the critic's reward of its action at step t (1 or 0):

    R_t    =  ω_p Σ_{τ≥t} γ^{τ−t} r^p_τ + ω_o r_o       of executed replies             (`estimators.coach_returns`)
    Q      is fitted to R_t, from where the epoch before left it                        (`token_values.TokenValues`)
           and with `rehearsed` to 1 and 0 of synthesised replies that are right and wrong
    a_1…k  ~  π(· | s_t)                                fresh replies, not executed     (`samples`)
    A_i    =  Q of a_i − mean Q of the others           by the fitted Q                 (`estimators.leave_one_out`)

Q of a reply is the mean of the value head over its tokens, the end of the turn included. Replies to one state that are
token for token the same are valued once, count as often as they were given, and are learned as often. A state whose
replies all have one Q teaches nothing and is left out of the optimizer's steps, as is one of whose k > 1 replies a
single one is left; where few do, a line of the epoch says what to raise.

Each epoch leaves `candidates.parquet` beside the lesson, and the values of `collab.algorithms.value_store`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from collab.algorithms.candidates import check_candidates, pretrain
from collab.algorithms.coach.config import CoachMethod, narrow_config
from collab.algorithms.coach.fitting import (
    UNVALUED,
    DistinctReply,
    Visited,
    fit_to_returns,
    is_alone,
    rate_replies,
    read_judged,
)
from collab.algorithms.coach.metrics import CoachMetrics, compute_mean, correlate
from collab.algorithms.coach.samples import SAMPLES, SampledStates, SamplingProgress, list_states, sample_states
from collab.algorithms.coach.truth import RatedReply, Truth, compare_with_truth, try_candidates
from collab.algorithms.experience import JudgedEpisode, TurnBuilder, open_turn_builders
from collab.algorithms.turn_learner import (
    VALUING,
    DrawnLesson,
    Experience,
    TurnLearner,
    get_lesson_dir,
    hash_beside_lessons,
)
from collab.algorithms.value_store import (
    NO_NUMBERS,
    VALUES,
    advise_lower_rate,
    check_values,
    load_values,
    make_values,
    read_value_metrics,
    save_values,
)
from collab.envs.base import Suite
from collab.envs.grammar import ActionSpace
from collab.loop.config import TrainingConfig
from collab.loop.interfaces import Rollout
from collab.loop.policy import Policy
from collab.loop.record import LABELS
from collab.loop.state import LoopState
from collab.preferences.rebuild import ORACLE
from collab.rewards.labels import read_labels
from collab.rollout.build import build_team
from collab.seeds import derive, generator
from collab.store.rewards import ReplyRef
from collab.trainers.rl.candidates import CANDIDATES, CandidateEstimate, write_candidates
from collab.trainers.rl.estimators import coach_returns
from collab.trainers.rl.step_estimates import StepEstimate
from collab.types import Usage
from collab.utils.concurrency import run_in_background
from collab.utils.files import hash_file, report_write_errors, resolve_within
from collab.utils.text import format_amount

if TYPE_CHECKING:
    from collab.trainers.rl.token_values import TokenValues

PART = "samples"
"""Name of the sampling in the records of an epoch."""
ALIKE = "its replies have one value"
SAME = "its replies are the same"
ALONE = "it has one reply, and none to compare that with"
UNSAMPLED = "it has no candidate"
WARMING = "Q learns alone in this epoch"
NONE = SampledStates(replies={}, failed={}, skipped={})


class CoachLearner(TurnLearner):
    """Learns candidates by how their Q compares."""

    def check(self, config: TrainingConfig, first: Policy) -> None:
        """Refuse checkpoints that the recipe cannot train, or that cannot carry Q, and candidates that do not fit."""
        super().check(config, first)
        mine = narrow_config(config)
        check_values(config, first, mine.method.values)
        check_candidates(mine, first)

    async def make_lesson(self, state: LoopState, group: str, experience: Experience) -> DrawnLesson:
        """Fit Q to the returns, sample candidates, and draw those that teach something."""
        method, number = narrow_config(state.config).method, experience.number
        lesson, executed = (DrawnLesson(refuses=method.retokenised == "refuse") for _ in range(2))
        runs = {one.run for one in experience.episodes}
        with open_turn_builders(state.config, state.folder, runs, experience.policy) as builders:
            (builder,) = builders.values()  # an epoch has one rollout, played by this very policy
            suite = await state.open_suite(builder.recorded.run)
            visited = _visit(state, experience.episodes, builder, executed)
            with state.time_part(VALUING, whole=True):
                model, start = await run_in_background(load_values, state, group, number, method.values)
                known = await run_in_background(read_judged, state, group, start is None)
                told = dict[str, Any]()
                if known is not None and start is None:
                    told |= await run_in_background(pretrain, state, group, model, known, known.rows)
                told |= await run_in_background(fit_to_returns, state, group, number, model, visited, known)
            # A Q that learns nothing either is not waited for.
            is_warming = number <= method.warmup_epochs and told.get("lost") != UNVALUED
            # And one without numbers compares nothing, so nothing is sampled for it.
            sampled = NONE
            if "unread" not in told:
                sampled = await _sample(state, experience, builder, suite, visited, is_warming)
            _add_candidates(visited, builder, sampled, lesson)
            with state.time_part(VALUING, whole=True):
                told |= await run_in_background(rate_replies, model, visited, method)
                if "unread" in told:
                    del model  # two would not fit where one just does
                    model, begun = await run_in_background(_begin_again, state, group)
                    told |= {"pretrained": begun.get("pretrained", 0), "lost": begun.get("lost") or told.get("lost")}
            truth = await _look_at_truth(state, number, builder, suite, visited)
        idle = WARMING if is_warming else NO_NUMBERS if "unread" in told else None
        lesson.estimates = [_describe(one, idle, method) for one in visited]
        if idle is None:
            _draw(state, group, number, visited, lesson)
            # One reply alone has nothing to differ from.
            told["compared"] = sum(one.replies > 1 for one in visited)
        told |= {"truth": truth, "unvalued": dict(executed.refused)}
        metrics = _measure(visited, sampled, method).model_copy(update=told)
        save_values(state, group, number, model, start, metrics)
        place = get_lesson_dir(state.folder, number, group)
        with report_write_errors(place, state.folder.resume):
            write_candidates([row for one in visited for row in _list_rows(one, suite.space)], place)
        return lesson

    def read_metrics(self, state: LoopState, number: int, group: str) -> dict[str, Any]:
        """Return Q and candidates of an epoch in numbers."""
        found = read_value_metrics(state, number, group)
        return {"coach": found} if found else {}

    def read_obstacle(self, state: LoopState, number: int, group: str) -> str | None:
        """Return that the policy waits for Q, or that Q lost its numbers, in epochs in which it is so."""
        found = read_value_metrics(state, number, group)
        if found.get("lost") == UNVALUED:
            return None
        if number <= narrow_config(state.config).method.warmup_epochs:
            return WARMING
        # A Q whose fit was undone may still tell replies apart; if it does not, this is why.
        lost = found["lost"] if found and not found["apart"] else None
        return advise_lower_rate(found.get("unread") or lost)

    def read_hashes(self, state: LoopState, number: int) -> dict[str, str]:
        """Return the digests of Q and of the candidates."""
        places = [get_lesson_dir(state.folder, number, group) / CANDIDATES for group in state.config.groups]
        return {
            "values": hash_beside_lessons(state, number, VALUES),
            PART: "".join(hash_file(place) for place in places),
        }

    def read_spent(self, state: LoopState, rollout: Rollout) -> dict[str, Usage]:
        """Return the usage of the candidates."""
        if LABELS not in SAMPLES.list_names(rollout.path):
            return {}
        stored = SAMPLES.read(rollout.path, LABELS)
        return {PART: sum((*(one.spent for one in stored.judged.values()), *stored.lost), Usage())}


def _begin_again(state: LoopState, group: str) -> tuple[TokenValues, dict[str, Any]]:
    """Return the Q that the next epoch begins with where this one's gives no numbers, and its fit to candidates.

    It begins as the first epoch's did, but learns no epoch alone.
    """
    model = make_values(state, group, narrow_config(state.config).method.values)
    known = read_judged(state, group, True)
    return model, {} if known is None else pretrain(state, group, model, known, known.rows)


# ------------------------------------------------------------------------------------------------------ returns


def _visit(
    state: LoopState, episodes: Sequence[JudgedEpisode], builder: TurnBuilder, executed: DrawnLesson
) -> list[Visited]:
    """Return the states of episodes with their returns.

    Args:
        builder: of their run.
        executed: counts executed replies that cannot be valued, by cause.
    """
    method = narrow_config(state.config).method
    rewards, causes = ({}, {}) if method.why_unasked else _read_step_rewards(_locate(state, builder.run), method)
    found = []
    for episode in episodes:
        process = [rewards.get((episode.trajectory, step)) for step in range(episode.steps)]
        # A step without a reward adds nothing to a sum, as a wrong one does.
        targets = coach_returns(
            [math.nan if one is None else one for one in process],
            episode.reward,
            gamma=method.gamma,
            process_weight=method.step_weight,
            outcome_weight=method.outcome_weight,
            outcome_gamma=method.outcome_gamma,
        )
        for step in builder.recorded.trajectories[episode.trajectory].steps:
            cell = next(iter(step.matrix))
            ref = ReplyRef(trajectory=episode.trajectory, step=step.index, cell=cell.cell)
            found.append(
                Visited(
                    episode=episode,
                    step=step.index,
                    agent=cell.agent,
                    executed=executed.check(builder.build(ref)),
                    step_reward=process[step.index],
                    unrewarded=causes.get((episode.trajectory, step.index)),
                    target=float(targets[step.index]),
                )
            )
    return found


def _read_step_rewards(
    run: Path, method: CoachMethod
) -> tuple[dict[tuple[str, int], float], dict[tuple[str, int], str]]:
    """Return trajectory and step → 1 if the critic rewards the executed action, else 0; and → why it gave no score."""
    labels = read_labels(run, LABELS)
    given = {key: one.rewards.rewards[0] for key, one in labels.judged.items()}
    rewards = {key: float(one.score > method.rewarded_above) for key, one in given.items() if one.score is not None}
    causes = {key: str(one.missing) for key, one in given.items() if one.score is None}
    return rewards, dict.fromkeys(labels.failed, "the critic could not be asked") | causes


# --------------------------------------------------------------------------------------------------- candidates


async def _sample(
    state: LoopState,
    experience: Experience,
    builder: TurnBuilder,
    suite: Suite,
    visited: Sequence[Visited],
    is_warming: bool,
) -> SampledStates:
    """Sample replies to each visited state that has none yet; raises `Halted` if it stops.

    Args:
        is_warming: sample only as many states as are compared with the truth, because nothing else is done with them.
    """
    path, config, method = _locate(state, builder.run), builder.recorded.run, narrow_config(state.config).method
    tried = method.truth_states if ORACLE in suite.capabilities else 0
    if is_warming and not tried:
        return NONE
    state.begin(PART)
    team = build_team(config)
    try:
        chosen = None
        if is_warming:
            rng = generator(derive(state.config.run.seed, "warm-up states", experience.number))
            # Only those whose prompts can be made again may be drawn.
            every = [(one.episode.trajectory, one.step) for one in visited if one.executed is not None]
            chosen = set(rng.sample(every, min(tried, len(every))))
        states = list(list_states(experience.episodes, builder, team.network.agents, suite.space, chosen))
        progress = SamplingProgress(planned=len(states))
        state.inner(progress)
        # Only the first sampling of a rollout is timed as a whole: a resumed one would report a part as the total.
        with state.time_part(PART, whole=LABELS not in SAMPLES.list_names(path)):
            try:
                found = await sample_states(
                    states,
                    k=method.k,
                    run=path,
                    name=LABELS,
                    seed=config.seed,
                    policy=f"version {experience.policy.version}",
                    concurrency=config.concurrency,
                    budget=state.compute_left(),
                    stop=state.stop,
                    progress=progress,
                )
            finally:
                state.spend(progress.spent)
    finally:
        await team.close()
    state.halt(found.stopped)
    return found


def _locate(state: LoopState, run: str) -> Path:
    """Return the directory of a run that an episode names."""
    return Path(resolve_within(state.folder.path, run))


def _add_candidates(
    visited: Sequence[Visited], builder: TurnBuilder, sampled: SampledStates, lesson: DrawnLesson
) -> None:
    """Give each state its distinct replies."""
    for one in visited:
        replies = sampled.replies.get((one.episode.trajectory, one.step), ())
        if not replies:
            continue
        ref = ReplyRef(trajectory=one.episode.trajectory, step=one.step, cell=replies[0].cell)
        known: dict[bytes, DistinctReply] = {}
        prompt = None if one.executed is None else one.executed.prompt
        for said, built in zip(replies, builder.build_all(ref, replies, prompt), strict=True):
            turn = lesson.check(built)
            if turn is None:
                continue
            if (same := known.get(turn.reply.tobytes())) is not None:
                same.count += 1
            else:
                known[turn.reply.tobytes()] = DistinctReply(turn=turn, said=said)
        one.candidates = list(known.values())


async def _look_at_truth(
    state: LoopState, number: int, builder: TurnBuilder, suite: Suite, visited: Sequence[Visited]
) -> Truth | None:
    """Try the candidates of some states in the environment; None where none is tried."""
    most = narrow_config(state.config).method.truth_states
    several = [one for one in visited if len({each.said.action for each in one.candidates}) > 1]
    several = generator(derive(state.config.run.seed, "truth", number)).sample(several, min(most, len(several)))
    if not several:
        return None
    asked = [
        (
            builder.recorded.trajectories[one.episode.trajectory],
            one.step,
            list(dict.fromkeys(each.said.action for each in one.candidates)),
        )
        for one in several
    ]
    found, failures = await try_candidates(suite, asked)
    for one, scores in zip(several, found, strict=True):
        for candidate in one.candidates:
            # None, a reply without an action, was tried as any other.
            candidate.truth = scores.get(candidate.said.action)
    known = [
        [
            RatedReply(value=each.value, truth=each.truth, count=each.count)
            for each in one.candidates
            if each.truth is not None
        ]
        for one in several
    ]
    known = [each for each in known if each]
    if failures:
        tried = format_amount(len(several), "state")
        state.note(
            f"epoch {number}: the environment broke at {len(failures)} of {tried} where Q is compared with the truth, "
            f"first: {failures[0]}"
        )
    return compare_with_truth(known, len(failures)) if known or failures else None


# ------------------------------------------------------------------------------------------------------- lesson


def _draw(state: LoopState, group: str, number: int, visited: Sequence[Visited], lesson: DrawnLesson) -> None:
    """Add the candidates that teach something, and the order in which they do: those of a state in one step."""
    taught = [one for one in visited if one.is_taught]
    rng = generator(derive(state.config.run.seed, "turns", number, group))
    drawn = narrow_config(state.config).method.draw(number, len(taught), rng) if taught else []
    places = [[lesson.add(each.turn, each.advantage) for each in one.candidates] for one in taught]
    lesson.order += [
        [
            place
            for one in step
            for place, each in zip(places[one], taught[one].candidates, strict=True)
            for _ in range(each.count)
        ]
        for step in drawn
    ]


def _describe(one: Visited, idle: str | None, method: CoachMethod) -> StepEstimate:
    """Return the estimate of a step; `idle` is why no step of the epoch is learned, None if there is no such reason."""
    if not one.candidates:
        missing = UNSAMPLED
    elif is_alone(one.replies, method):
        missing = ALONE
    else:
        missing = SAME if len(one.candidates) == 1 else ALIKE
    why = idle or ("kept" if one.is_taught else missing)
    return StepEstimate(
        run=one.episode.run,
        trajectory=one.episode.trajectory,
        step=one.step,
        reward=one.episode.reward,
        value=one.value,
        step_reward=one.step_reward,
        target=one.target,
        weight=float(why == "kept"),
        why=why,
    )


def _list_rows(one: Visited, space: ActionSpace) -> Iterable[CandidateEstimate]:
    for each in one.candidates:
        yield CandidateEstimate(
            run=one.episode.run,
            trajectory=one.episode.trajectory,
            step=one.step,
            count=each.count,
            text=each.said.text,
            action=None if each.said.action is None else space.format(each.said.action),
            value=each.value,
            advantage=each.advantage,
            truth=each.truth,
        )


def _measure(visited: Sequence[Visited], sampled: SampledStates, method: CoachMethod) -> CoachMetrics:
    # Means are over visited states: long episodes count more.
    known = [one for one in visited if one.before is not None]
    values, targets = (np.array([getattr(one, name) for one in known], np.float64) for name in ("before", "target"))
    spread = float(np.var(targets)) if known else 0.0
    firsts = [one for one in visited if one.step == 0]
    lengths = [one.episode.steps for one in firsts]
    several = [one for one in visited if one.candidates]
    return CoachMetrics(
        states=len(several),
        apart=sum(one.is_apart for one in visited),
        distinct=compute_mean(len(one.candidates) / one.replies for one in several),
        distinct_actions=compute_mean(
            len({each.said.action for each in one.candidates}) / one.replies for one in several
        ),
        failed=dict(sampled.failed),
        unsampled=dict(Counter(sampled.skipped.values())),
        unrewarded=dict(Counter(one.unrewarded for one in visited if one.unrewarded is not None)),
        rewards={} if method.why_unasked else _compute_reward_rates(visited),
        explained=1 - float(np.var(targets - values)) / spread if spread else None,
        mean_return=compute_mean(one.target for one in visited),
        mean_length=compute_mean(lengths),
        length_correlation=correlate(lengths, [one.target for one in firsts]),
    )


def _compute_reward_rates(visited: Sequence[Visited]) -> dict[str, list[float | None]]:
    agents = sorted({one.agent for one in visited})
    return {
        name: [compute_mean(one.step_reward for one in visited if one.agent == name and one.step_reward is not None)]
        for name in agents
    }
