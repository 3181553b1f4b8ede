"""Play many episodes at once.

A few workers, each with its own environment, take episodes from one queue. They play in this process, or wherever the
executor has them (`collab.rollout.executors`). A worker whose episode broke discards its environment and opens a fresh
one; the others notice nothing. No worker waits for another, so one slow environment slows only itself.

Collection ends when the queue is empty, on request (Ctrl-C), when a budget is used up, or after ten infrastructure
failures in a row. In the last three cases the running episodes are abandoned: their steps are recorded, and resuming
continues after them.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from collab.config import Budget
from collab.envs.base import limit_environments
from collab.errors import EnvironmentFailure, EnvironmentGone
from collab.graphs.deliberation import Network
from collab.models.base import Reply
from collab.rollout.episode import Admit, Episode, NotAdmitted, Stage
from collab.rollout.executors.base import EpisodeWorker, Executor, LocalExecutor
from collab.rollout.protocols import draw_instance
from collab.store.run import InterruptibleRecorder
from collab.types import EpisodeError, Step, Trajectory, Usage
from collab.utils.concurrency import WorkerPool
from collab.utils.text import format_amount, format_clock, format_count, shorten_number

CLOSED = "the rest of its episodes may not begin any more"
"""Why a collection ended whose `admit` refused episodes."""
_NAMED = 3
"""Episodes that a warning names."""
_RECENT = 64
"""Latest steps that give the pace: it changes with other load and with fewer parallel pieces."""


@dataclass(slots=True)
class _Piece:
    budget: int
    group: str
    steps: int = 0
    """Made so far, those of an earlier process included."""
    state: str = "planned"
    """Or "running", or "over"."""
    since: float = 0.0
    """When its last step was made, or when it was begun."""
    cold: bool = False
    """Whether its next step waits for what is loaded first: a model, a browser."""

    @property
    def share(self) -> float:
        """Used share of the budget, in [0, 1]."""
        return min(1.0, self.steps / self.budget)


@dataclass(slots=True)
class Workload:
    """Estimates the remaining time of pieces of work from their step budgets; a live object.

        workload = Workload()
        workload.plan("Task/0", 30)
        workload.begin("Task/0")
        workload.count("Task/0")            # for every step
        workload.end("Task/0")
        workload.estimate_seconds_left()    # None before the first step

    Short pieces end first, so the mean of finished ones is too small. The used share of a budget is therefore estimated
    like lifetimes with censoring (Kaplan and Meier 1958): a running piece counts as one that takes longer than its time
    so far. Before any is over, each is assumed to use its whole budget.
    """

    _pieces: dict[str, _Piece] = field(default_factory=dict)
    _recent: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))
    """Seconds of the latest steps."""
    _first: float | None = None
    """Seconds of the first step, loading included."""
    _most: int = 1
    """Most pieces that ran at once."""

    def plan(self, name: str, budget: int, group: str = "") -> None:
        """Add a piece.

        Args:
            budget: steps at most.
            group: pieces of one group are assumed to use similar shares of their budgets.
        """
        self._pieces[name] = _Piece(budget=max(1, budget), group=group)

    def begin(self, name: str, done: int = 0) -> None:
        """Note that a piece is begun, or resumed after `done` steps."""
        piece = self._pieces[name]
        piece.state, piece.steps, piece.since, piece.cold = "running", done, time.monotonic(), self._first is None
        self._most = max(self._most, self._running)

    def count(self, name: str, steps: int = 1) -> None:
        """Note steps of a piece."""
        piece, now = self._pieces[name], time.monotonic()
        each = (now - piece.since) / max(1, steps)
        if self._first is None:
            self._first = each
        if not piece.cold:
            self._recent.append(each)
        piece.steps, piece.since, piece.cold = piece.steps + steps, now, False

    def end(self, name: str) -> None:
        """Note that a piece is over."""
        self._pieces[name].state = "over"

    def estimate_pace(self) -> float | None:
        """Estimate the seconds per step of all running pieces together; None before the first step."""
        alone = self._estimate_step_seconds()
        return None if alone is None else alone / max(1, self._running)

    def estimate_seconds_left(self) -> float | None:
        """Estimate the remaining seconds; None before the first step.

        The last pieces cannot share their steps with others: the longest of them takes its own time.
        """
        alone = self._estimate_step_seconds()
        if alone is None:
            return None
        running, planned = self._estimate_left()
        left = [*running, *planned]
        return alone * max(sum(left) / max(1, min(self._most, len(left))), max(left, default=0.0))

    @property
    def _running(self) -> int:
        return sum(piece.state == "running" for piece in self._pieces.values())

    def _estimate_step_seconds(self) -> float | None:
        """Return the seconds per step of one piece, beside the others."""
        return sum(self._recent) / len(self._recent) if self._recent else self._first

    def _estimate_left(self) -> tuple[list[float], list[float]]:
        """Estimate the remaining steps of each running piece, and of each planned one."""
        running: list[float] = []
        planned: list[float] = []
        # By group, because tasks differ in how long they take.
        for group in {piece.group for piece in self._pieces.values()}:
            pieces = [piece for piece in self._pieces.values() if piece.group == group]
            # Running pieces are censored observations: they show that some take at least so long.
            curve = _compute_survival(
                [one.share for one in pieces if one.state == "over"],
                [one.share for one in pieces if one.state == "running"],
            )
            running += [one.budget * _estimate_remaining(curve, one.share) for one in pieces if one.state == "running"]
            whole = _estimate_remaining(curve, 0.0)
            planned += [one.budget * whole for one in pieces if one.state == "planned"]
        return running, planned


def _compute_survival(over: Iterable[float], running: Iterable[float]) -> list[tuple[float, float]]:
    """Return the Kaplan-Meier curve: (share of the budget, probability of using more), by share."""
    shares = sorted([(share, False) for share in over] + [(share, True) for share in running])
    curve, survival = [(0.0, 1.0)], 1.0
    for place, (share, goes_on) in enumerate(shares):
        if not goes_on:
            survival *= 1 - 1 / (len(shares) - place)
            curve.append((share, survival))
    return curve


def _estimate_remaining(curve: Sequence[tuple[float, float]], used: float) -> float:
    """Estimate the share of a budget that will be used beyond `used`."""
    area, here = 0.0, 1.0
    ends = [share for share, _ in curve[1:]] + [1.0]
    for (share, survival), end in zip(curve, ends, strict=True):
        if share <= used:
            here = survival
        area += survival * max(0.0, end - max(share, used))
    return area / here if here > 0 else 1.0 - used


USED_UP = "budget used up"
"""Beginning of the message that a limit ended something."""


@dataclass(slots=True, kw_only=True)
class UsageMeter:
    """Usage of model calls, compared with a budget; a live object."""

    spent: Usage = Usage()
    """By this process; lost calls are known when its work has ended."""
    earlier: Usage = Usage()
    """By earlier processes on the same work."""
    started: float = field(default_factory=time.monotonic)

    def __str__(self) -> str:
        """Return one line: calls and tokens; empty before the first call."""
        return f"{self.spent.calls:,} calls, {format_count(self.tokens, 'token')}" if self.spent.calls else ""

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens of this process."""
        return self.spent.tokens

    @property
    def spent_in_all(self) -> Usage:
        """Usage of all processes."""
        return self.earlier + self.spent

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.monotonic() - self.started

    def explain_exceeded(self, budget: Budget) -> str | None:
        """Return which limit is used up, in words; None while there is room."""
        usd, tokens = self.earlier.cost_usd, self.earlier.tokens
        if budget.usd is not None and self.spent.cost_usd >= budget.usd:
            before = f", {usd:.4f} USD before that" if usd else ""
            return f"{USED_UP}: {self.spent.cost_usd:.4f} of {budget.usd:g} USD{before}"
        if budget.tokens is not None and self.tokens >= budget.tokens:
            before = f", {tokens} tokens before that" if tokens else ""
            return f"{USED_UP}: {self.tokens} of {format_amount(budget.tokens, 'token')}{before}"
        if budget.minutes is not None and self.seconds >= budget.minutes * 60:
            return f"{USED_UP}: {round(self.seconds / 60, 2):g} of {budget.minutes:g} minutes"
        return None


@dataclass(slots=True, kw_only=True)
class RolloutProgress(UsageMeter):
    """Progress of a collection; a live object for displays."""

    planned: int
    is_open: bool = False
    """Whether it ends before the planned episodes are over, which its caller decides: their number says nothing."""
    done: int = 0
    """Episodes over, with an outcome or an error; those of an earlier process included."""
    before: int = 0
    """Episodes of `done` that were over when this process began."""
    succeeded: int = 0
    broken: int = 0
    """Episodes that ended with an error."""
    steps: int = 0
    """Environment steps that this process made."""
    wanted_steps: int | None = None
    """Steps at which it ends although more episodes are planned; None if all of them are played."""
    steps_before: int = 0
    """Those of the `wanted_steps` that an earlier process made."""
    computed_tokens: int = 0
    """Computed prompt tokens, over the calls that report them."""
    cacheable_tokens: int = 0
    """Prompt tokens of the calls that report how many were computed."""
    widths: float = 0.0
    """Sum of the batch widths of the `wide_calls`."""
    wide_calls: int = 0
    """Calls that report how many sequences were computed together."""
    queue_s: float = 0.0
    """Seconds in the queue, over the calls that report both this and the next."""
    work_s: float = 0.0
    """Seconds from the queue to the last token, prompt and reply."""
    timed_calls: int = 0
    """Calls that report their time in the queue and at work."""
    warnings: dict[str, int] = field(default_factory=dict)
    """Warning about replies that still count → number of them."""
    losses: list[str] = field(default_factory=list)
    """Workers that died while they played, in words; others played their episodes on."""
    on_loss: Callable[[str], None] = lambda why: None
    """Takes such a line as soon as there is one."""
    start_solved: list[str] = field(default_factory=list)
    """Episodes that were solved before any step."""
    workload: Workload = field(default_factory=Workload)
    """The episodes that this process plays, by their step budgets."""

    def lose(self, why: str) -> None:
        """Count a worker that died while it played."""
        self.losses.append(why)
        self.on_loss(why)

    @property
    def hit_rate(self) -> float | None:
        """Share of prompt tokens from a prefix cache, at least 0, over calls that report it; None before the first."""
        return max(0.0, 1 - self.computed_tokens / self.cacheable_tokens) if self.cacheable_tokens else None

    @property
    def mean_width(self) -> float | None:
        """Mean number of sequences computed together, over the calls that report it; None before the first."""
        return self.widths / self.wide_calls if self.wide_calls else None

    @property
    def calls_per_s(self) -> float:
        """Model calls per second, averaged over the whole time."""
        return self.spent.calls / self.seconds if self.seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """Estimate from steps and step budgets; None before the first step, once the wanted steps are made, if open."""
        if self.is_open:
            return None
        if self.wanted_steps is None:
            return self.workload.estimate_seconds_left()
        missing, pace = self.wanted_steps - self.steps_before - self.steps, self.workload.estimate_pace()
        return None if pace is None or missing <= 0 else pace * missing

    def __str__(self) -> str:
        """Return one line: episodes or steps, solved ones, calls, tokens, calls per second, time left.

        It also has prefix hits, widths of batches and the mean time of a call, if known.
        """
        # No rate before the end: short episodes end first, and they are solved more often.
        solved = f" over, {self.succeeded} solved" if self.done else ""
        done = format_amount(self.done, "episode")
        parts = [f"{done if self.is_open else f'{self.done}/' + format_amount(self.planned, 'episode')}{solved}"]
        # With a step budget, steps are what is planned, and episodes only follow.
        if self.wanted_steps is not None:
            played = min(self.steps_before + self.steps, self.wanted_steps)
            ending = ", ending episodes that were begun" if played == self.wanted_steps else ""
            parts = [
                f"{played}/{format_amount(self.wanted_steps, 'step')}{ending}",
                f"{done}{solved}",
            ]
        if self.broken:
            parts.append(f"{self.broken} broken")
        if self.losses:
            parts.append(f"{format_amount(len(self.losses), 'worker')} replaced")
        # Of all processes: a resumed run's cost includes what was spent before.
        whole = self.spent_in_all
        tokens = format_count(whole.tokens, "token")
        parts.append(f"{format_count(whole.calls, 'call')}, {tokens}, {self.calls_per_s:.1f} calls/s")
        # Only local engines and some servers report their cache; a missing number is left out, not shown as 0.
        if self.hit_rate is not None:
            computed = shorten_number(self.computed_tokens)
            parts.append(f"{computed} prompt tokens computed ({self.hit_rate:.0%} prefix hits)")
        if self.mean_width is not None:
            parts.append(f"batches {self.mean_width:.1f} wide")
        # Waiting and working apart: the first mends with more servers, the second with a faster one.
        if self.timed_calls:
            queue_s, work_s = (total / self.timed_calls for total in (self.queue_s, self.work_s))
            parts.append(f"{queue_s:.2f} s in line, {work_s:.2f} s at work")
        if whole.cost_usd:
            parts.append(f"{whole.cost_usd:.2f} USD")
        if self.seconds_left is not None:
            parts.append(f"about {format_clock(self.seconds_left)} left")
        return " | ".join(parts)

    def count_reply(self, reply: Reply) -> None:
        """Add the usage of one call, whether or not its step is ever finished."""
        self.spent += Usage.of_call(reply.prompt_tokens, reply.completion_tokens, reply.cost_usd)
        # Counted, not repeated: the same warning comes with every call.
        if reply.warning:
            self.warnings[reply.warning] = self.warnings.get(reply.warning, 0) + 1
        # Rates only over calls that report both: others would lower them.
        if reply.computed_tokens is not None and reply.prompt_tokens is not None:
            self.computed_tokens += reply.computed_tokens
            self.cacheable_tokens += reply.prompt_tokens
        if reply.width is not None:
            self.widths += reply.width
            self.wide_calls += 1
        if reply.queue_s is not None and reply.work_s is not None:
            self.queue_s += reply.queue_s
            self.work_s += reply.work_s
            self.timed_calls += 1

    def describe_start_solved(self) -> str | None:
        """Describe episodes that were solved before any step; None if there was none."""
        found = self.start_solved
        if not found:
            return None
        named = f"{', '.join(found[:_NAMED])}{' …' if len(found) > _NAMED else ''}"
        return (
            f"{format_amount(len(found), 'episode')} started solved: counted as success without a step, which teaches "
            f"and measures nothing: {named}"
        )

    def count_episode(self, trajectory: Trajectory) -> None:
        """Count a finished episode."""
        self.done += 1
        self.succeeded += trajectory.success
        self.broken += trajectory.error is not None
        if trajectory.success and not trajectory.steps:
            self.start_solved.append(trajectory.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    """Result of a collection."""

    over: tuple[str, ...]
    """Ids of the finished episodes, in the order of the plan; the recorder has the episodes themselves."""
    stopped: str | None
    """Why it ended early; None if every planned episode is over."""


async def collect(
    plan: Sequence[Episode],
    network_of: Callable[[Episode], Network],
    stage: Stage,
    recorder: InterruptibleRecorder,
    *,
    executor: Executor | None = None,
    concurrency: int = 4,
    budget: Budget | None = None,
    unfinished: Mapping[str, Sequence[Step]] | None = None,
    progress: RolloutProgress | None = None,
    stop: asyncio.Event | None = None,
    admit: Admit | None = None,
) -> Collection:
    """Play all episodes of a plan.

    Args:
        network_of: returns the team of an episode, on the episode's graph.
        executor: plays the episodes; None plays them in this process.
        unfinished: recorded steps of interrupted episodes, by episode id; see `collab.rollout.episode.play`.
        stop: set from outside to end the collection at once.
        admit: awaited before an episode begins and before each of its steps; None begins one whenever a worker is free.
            An episode for which it raises `NotAdmitted` is not played.

    Raises:
        StoreFailure: the recorder cannot write; running episodes are abandoned.
    """
    budget, progress = budget or Budget(), progress or RolloutProgress(planned=len(plan))
    collector = _Collector(
        pool=WorkerPool(
            plan,
            exceeded=lambda: progress.explain_exceeded(budget),
            stop=stop,
            failing="infrastructure failures in a row",
            has_clock=budget.minutes is not None,
        ),
        executor=executor or LocalExecutor(stage.suite),
        network_of=network_of,
        stage=stage,
        recorder=recorder,
        unfinished=unfinished or {},
        progress=progress,
        admit=admit,
    )
    budgets = {info.name: stage.limits.limit_steps(info.max_steps) for info in stage.suite.tasks()}
    for episode in plan:
        progress.workload.plan(episode.id, budgets.get(episode.task, 1))
    await collector.pool.run(limit_environments(stage.suite, min(concurrency, len(plan))), collector.work)
    order = {episode.id: position for position, episode in enumerate(plan)}
    is_whole = len(collector.over) == len(plan)  # whatever ran out, ran out with the last episode
    return Collection(
        over=tuple(sorted(collector.over, key=order.__getitem__)),
        stopped=None if is_whole else collector.pool.stopped or CLOSED,
    )


@dataclass(slots=True, kw_only=True)
class _Collector:
    pool: WorkerPool[Episode]
    executor: Executor
    network_of: Callable[[Episode], Network]
    stage: Stage
    recorder: InterruptibleRecorder
    unfinished: Mapping[str, Sequence[Step]]
    progress: RolloutProgress
    admit: Admit | None
    over: list[str] = field(default_factory=list)

    async def work(self) -> None:
        """Play episodes until none is left or the work is stopped."""
        worker = self.executor.open_worker()
        try:
            for episode in self.pool.take():
                if self.admit is not None:
                    try:
                        await self.admit(episode.id)
                    except NotAdmitted:
                        continue
                try:
                    trajectory = await self._play(worker, episode)
                except EnvironmentFailure as failure:  # no environment could be opened
                    trajectory = self._build_unplayed(episode, failure)
                self._count(trajectory)
        finally:
            await worker.close()

    async def _play(self, worker: EpisodeWorker, episode: Episode) -> Trajectory:
        # Steps of an interrupted episode are played again without a model, and are not new work.
        done = self.unfinished.get(episode.id, ())
        self.progress.workload.begin(episode.id, len(done))
        return await worker.play(
            episode,
            self.network_of(episode),
            self.stage,
            self.recorder,
            done=done,
            watch=lambda step: self._count_step(episode),
            spent=self._count_reply,
            admit=self.admit,
            lost=self.progress.lose,
        )

    def _build_unplayed(self, episode: Episode, failure: EnvironmentFailure) -> Trajectory:
        # An episode that could not even be opened still stands in the record, with its cause.
        trajectory = Trajectory(
            id=episode.id,
            task=draw_instance(self.stage.suite, episode.task, episode.seed),
            episode=episode.number,
            epoch=episode.epoch,
            steps=(),
            final=None,
            outcome=None,
            error=EpisodeError(type=type(failure).__name__, message=str(failure), step=0),
            environment=self.stage.label,
            environment_version=self.stage.suite.version,
        )
        self.recorder.begin(trajectory)
        self.recorder.end(trajectory)
        return trajectory

    def _count_step(self, episode: Episode) -> None:
        self.progress.steps += 1
        self.progress.workload.count(episode.id)

    def _count_reply(self, reply: Reply) -> None:
        self.progress.count_reply(reply)
        self.pool.can_continue()

    def _count(self, trajectory: Trajectory) -> None:
        self.over.append(trajectory.id)  # not the episode, which takes 0.2 MB
        self.progress.count_episode(trajectory)
        self.progress.workload.end(trajectory.id)
        if trajectory.error is not None and trajectory.error.type == EnvironmentGone.__name__:
            self.pool.halt(trajectory.error.message)
        self.pool.count(None if trajectory.error is None else trajectory.error.message)
