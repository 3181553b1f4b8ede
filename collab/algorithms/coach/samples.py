"""Candidates: fresh replies of the present policy to every prompt that an episode answered; none is executed.

    RUN/samples/NAME/sample.json        policy, number of replies and seed; written once
    RUN/samples/NAME/events/*.jsonl     one line per state, and one per state at which the policy could not be asked

    states = list(list_states(episodes, builder, agents, space))
    sampled = await sample_states(states, k=4, run=out, name="training", seed=7, policy="early 3", concurrency=48)
    sampled.replies["ContactsAddContact/0", 3]       # the replies at its fourth step

The files are those of labels (`collab.rewards.labels`), so a killed process resumes where it stopped and asks about no
state twice. The i-th reply has the seed derive(seed, "candidate", episode, step, i), whatever is asked beside it. A
reply that gives no action is a candidate like any other. Where some of a state's replies failed, the others stand;
where more than half did, the state has none, and the others are paid for all the same.

Source: Android Coach, section 3.3, whose released code samples in the same way.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter

from collab.agents.agent import Agent
from collab.algorithms.experience import JudgedEpisode, TurnBuilder
from collab.config import Budget
from collab.envs.grammar import ActionSpace
from collab.errors import ModelFailure
from collab.models.base import count_lost_calls
from collab.prompts.render import PromptContext
from collab.rewards.base import CriticCall
from collab.rewards.labelling import Judging, JudgingProgress, label_all
from collab.rewards.labels import LabelKind, StoredHead, StoredLabelWriter
from collab.rewards.structured_replies import PartlyAnswered
from collab.seeds import derive
from collab.store.rewards import ReplyRef
from collab.types import Prompt, Usage, Utterance
from collab.utils.text import format_amount


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleHead(StoredHead):
    """`sample.json`: everything that decides the candidates."""

    policy: str
    """Name and version of the policies that are asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledState:
    """The candidates of a state."""

    trajectory: str
    step: int
    case: str
    """SHA-256 of the prompt."""
    replies: tuple[Utterance, ...]
    """In the order of their seeds; fewer than were asked for where some failed."""
    failed: Mapping[str, int] = field(default_factory=dict)
    """Cause → replies that could not be had for it."""

    @property
    def key(self) -> tuple[str, int]:
        """Trajectory and step."""
        return self.trajectory, self.step

    @property
    def calls(self) -> tuple[CriticCall, ...]:
        """No critic was asked."""
        return ()

    @property
    def spent(self) -> Usage:
        """Cost of the replies."""
        return _sum_costs(self.replies)


def _sum_costs(replies: Iterable[Utterance]) -> Usage:
    return sum((Usage.of_call(one.prompt_tokens, one.completion_tokens, one.cost_usd) for one in replies), Usage())


SAMPLES: LabelKind[SampledState, SampleHead] = LabelKind(
    folder="samples",
    file="sample.json",
    noun="samples",
    head=TypeAdapter(SampleHead),
    label=TypeAdapter(SampledState),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class VisitedState:
    """A recorded step whose prompt is answered again."""

    trajectory: str
    step: int
    cell: Utterance
    """The executed reply."""
    prompt: Prompt
    agent: Agent
    scene: PromptContext

    @property
    def key(self) -> tuple[str, int]:
        """Trajectory and step."""
        return self.trajectory, self.step

    @property
    def digest(self) -> str:
        """SHA-256 of the prompt."""
        return self.cell.prompt.hash


@dataclass(slots=True, kw_only=True)
class SamplingProgress(JudgingProgress):
    """Progress of sampling; a live object."""

    planned: int

    def __str__(self) -> str:
        """Return one line: states, and tokens."""
        tokens = f" | {self.tokens:,} tokens" if self.tokens else ""
        return f"candidates of {self.judged + self.known}/{format_amount(self.planned, 'state')}{tokens}"

    def count(self, state: SampledState) -> None:
        """Add one state."""
        self.judged += 1
        self.spent += state.spent


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledStates:
    """The candidates of a rollout, those of earlier processes included."""

    replies: Mapping[tuple[str, int], Sequence[Utterance]]
    """Trajectory and step → replies."""
    failed: Mapping[str, int]
    """Cause → replies that could not be had for it, at states that have others."""
    skipped: Mapping[tuple[str, int], str]
    """Trajectory and step → why a state has no candidate."""
    stopped: str | None = None
    """Why it ended early; None when every state was asked about."""


def list_states(
    episodes: Iterable[JudgedEpisode],
    builder: TurnBuilder,
    agents: Mapping[str, Agent],
    space: ActionSpace,
    chosen: Collection[tuple[str, int]] | None = None,
) -> Iterator[VisitedState]:
    """Yield the states of one run's episodes whose prompts can be made again.

    Args:
        builder: of that run.
        agents: slot → agent, with the policy that played.
        space: of the run's environment.
        chosen: trajectory and step of those that are wanted; None for all.
    """
    for episode in episodes:
        trajectory = builder.recorded.trajectories[episode.trajectory]
        for step in trajectory.steps:
            if chosen is not None and (episode.trajectory, step.index) not in chosen:
                continue
            for cell in step.matrix:
                ref = ReplyRef(trajectory=episode.trajectory, step=step.index, cell=cell.cell)
                if (prompt := builder.read_prompt(ref)) is not None:
                    yield VisitedState(
                        trajectory=episode.trajectory,
                        step=step.index,
                        cell=cell,
                        prompt=prompt,
                        agent=agents[cell.agent],
                        scene=PromptContext(goal=episode.goal, space=space, observation=step.observation),
                    )


async def sample_states(
    states: Sequence[VisitedState],
    *,
    k: int,
    run: Path,
    name: str,
    seed: int,
    policy: str,
    concurrency: int,
    budget: Budget | None = None,
    stop: asyncio.Event | None = None,
    progress: SamplingProgress | None = None,
) -> SampledStates:
    """Sample k replies at each state that has none yet, and return those of all states.

    Args:
        run: directory of the run that the states are of; the candidates lie beside it.
        policy: name and version of the policies, for the head.
        concurrency: states that are asked about at the same time.
        stop: set from outside to end; the states in flight get a few more seconds.

    Raises:
        UsageError: the stored candidates of that name are another policy's, or of another number or seed.
        StoreFailure: they cannot be written; what was recorded stays.
    """
    told = progress or SamplingProgress(planned=len(states))

    async def sample(state: VisitedState) -> SampledState:
        seeds = [derive(seed, "candidate", state.trajectory, state.step, number) for number in range(k)]
        found = await asyncio.gather(
            *(state.agent.answer_again(state.cell, state.prompt, one, state.scene) for one in seeds),
            return_exceptions=True,
        )
        # All are waited for, so that replies beside a failure are kept.
        for one in found:
            if isinstance(one, BaseException) and not isinstance(one, ModelFailure):
                raise one
        failures = [one for one in found if isinstance(one, ModelFailure)]
        replies = tuple(one for one in found if isinstance(one, Utterance))
        if 2 * len(failures) > k:
            raise PartlyAnswered(failures[-1], _sum_costs(replies))
        return SampledState(
            trajectory=state.trajectory,
            step=state.step,
            case=state.digest,
            replies=replies,
            failed=Counter(map(str, failures)),
        )

    sampling = Judging(
        who="policy",
        name=policy,
        judge=sample,
        asked=_AskedModels(states),
        count=told.count,
        is_silent=lambda state: False,
        describe_silence=lambda count, last: "",
    )
    head = SampleHead(policy=policy, options={"k": k}, seed=seed)
    with StoredLabelWriter(SAMPLES, run, name, head) as writer:
        await label_all(states, sampling, writer, told, concurrency=concurrency, budget=budget or Budget(), stop=stop)
    return read_samples(states, run, name, told.stopped)


def read_samples(states: Sequence[VisitedState], run: Path, name: str, stopped: str | None = None) -> SampledStates:
    """Return the stored candidates of these states; raises as `LabelKind.read`."""
    stored = SAMPLES.read(run, name)
    known = {state.key: found for state in states if (found := stored.of(state)) is not None}
    return SampledStates(
        replies={key: one.replies for key, one in known.items()},
        failed=sum((Counter(one.failed) for one in known.values()), Counter[str]()),
        skipped={
            state.key: why.message
            for state in states
            if state.key not in known and (why := stored.failed.get(state.key)) is not None
        },
        stopped=stopped,
    )


class _AskedModels:
    """The models behind some states, as one whose lost calls are counted."""

    def __init__(self, states: Iterable[VisitedState]) -> None:
        self._models = {id(one.agent.model): one.agent.model for one in states}

    @property
    def lost(self) -> int:
        """Calls without a complete answer."""
        return sum(count_lost_calls(model) for model in self._models.values())


async def time_sampling(state: VisitedState, k: int, at_once: int) -> float:
    """Answer a prompt as if so many states were asked about at once, and return the seconds per state."""
    began = time.perf_counter()
    asked = [state.agent.answer_again(state.cell, state.prompt, seed, state.scene) for seed in range(k * at_once)]
    await asyncio.gather(*asked)
    return (time.perf_counter() - began) / at_once
