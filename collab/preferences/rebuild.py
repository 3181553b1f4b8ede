"""Making the pairs of a recorded run, or making them anew in another way."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from collab.collector import Progress as Meter
from collab.config import RunConfig
from collab.credit.adversary import Adversary, label_of
from collab.credit.adversary_memory import ProposalMemory, RememberingAdversary
from collab.credit.adversary_sampler import SamplerAdversary
from collab.credit.case import Case, cases
from collab.credit.labelling import Labelling, label
from collab.credit.labels import LabelHead, Labels, LabelWriter, labellings, read_labels
from collab.credit.pair_store import StoredPairs, critic_digest, pair_names, read_head, read_pairs, write_pairs
from collab.credit.pairing import OutOfPatience, Paired, pair_up
from collab.credit.pairs_difference import Difference, causes, difference
from collab.credit.pairs_explained import labels_of
from collab.credit.rebuild import Rebuilder
from collab.envs.base import Suite
from collab.errors import RunFormatError, UsageError
from collab.library import Library
from collab.models.meter import lost_by
from collab.preferences.adversaries import deciding, opened_adversary
from collab.preferences.allowance import AllowedAdversary, Exhausted
from collab.preferences.parties import free_name, opened_critic
from collab.preferences.same_critic import other_than
from collab.preferences.wish import Plan, Wish, plan_of
from collab.resolve import build_suite
from collab.runs import stored_config
from collab.store.cost import total
from collab.store.reader import RunReader
from collab.types import PreferencePair, Spent, Trajectory
from collab.wording import amount


@dataclass(slots=True, kw_only=True)
class Progress:
    """How far it is; a live object."""

    steps: int = 0
    """Steps to be judged."""
    labelling: Labelling | None = None
    """None while no critic is asked."""
    adversary: AllowedAdversary | None = None
    """None while no adversary is asked."""


Watch = Callable[[Progress], None]
"""Called once, with a live object that changes while the work goes on."""
Played = Callable[[RunReader], Iterable[Trajectory]]
"""The episodes of a run that count, by task and number; finished ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What the new pairs are beside the earlier ones."""

    against: str
    """Name of the earlier pairs."""
    difference: Difference
    added: Counter[str]
    """Why those that came were not there before, by cause (`collab.credit.pairs_difference`)."""
    dropped: Counter[str]
    """Why those that went are not there any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """Pairs that were made, and how."""

    stored: StoredPairs | None
    """None when it ended early."""
    new: bool
    """Whether they were stored now; False where the very same were there."""
    changes: Changes | None
    """None when the run had no pairs before, or it ended early."""
    judged: int
    """Steps that were judged now."""
    asked: int
    """Questions that the adversary answered now; what it had answered before was recalled."""
    missing: Counter[str]
    """Cells of judged steps that have no score, by cause: nothing is paired of them."""
    spent: Spent
    """What critic and adversary cost now."""
    counted: int
    """Episodes that were paired."""
    left_out: int
    """Episodes that broke or are not finished: nothing is paired of them."""
    beyond: int
    """Finished ones that do not count, once there are pairs; nothing is paired of them either."""
    stopped: str | None
    """Why it ended early; None when pairs are there. The same wish again goes on."""


@contextlib.asynccontextmanager
async def stored_suite(run: Path) -> AsyncIterator[Suite]:
    """The environments that a run was played in; see `collab.resolve.build_suite` for the errors."""
    suite = build_suite(stored_config(run))
    try:
        yield suite
    finally:
        await suite.close()


async def rebuild(
    wish: Wish,
    library: Library,
    *,
    played: Played = RunReader.trajectories,
    watch: Watch = lambda progress: None,
    stop: asyncio.Event | None = None,
) -> Rebuilt:
    """Judge what is not judged, ask the adversary what it was not asked, and store the pairs.

    What was judged or answered is written down as it comes; the same wish again goes on behind it.

    Args:
        played: what is judged and paired; all finished episodes, unless whoever made the run learns from some of them.

    Raises:
        UsageError: something does not fit; nothing was asked. Or the name holds other pairs.
        RunFormatError: the run, its labels or its pairs cannot be read, or its environment has another version now.
        EnvironmentFailure, ModelFailure: whoever is to be asked cannot be reached.
        StoreFailure: something cannot be written; what was written stays.
    """
    config = stored_config(wish.run)
    async with stored_suite(wish.run) as suite:
        plan = plan_of(wish, library, seed=config.seed, capabilities=suite.capabilities)
        _check_seen(config, plan)
        with RunReader(wish.run) as reader:
            work = _Work(
                wish=wish,
                plan=plan,
                suite=suite,
                reader=reader,
                played=played,
                concurrency=wish.concurrency or config.concurrency,
                call_s=config.environment.limits.call_s,
                stop=stop or asyncio.Event(),
            )
            watch(work.progress)
            return await work.done()


def _check_seen(config: RunConfig, plan: Plan) -> None:
    """UsageError where a model would be asked to err on screens that it is not shown."""
    blind = [slot for slot, agent in config.agents.items() if agent.modality == "image"]
    if blind and plan.adversary is not None and plan.adversary.asks_a_model:
        raise UsageError(
            f"{blind[0]} saw pictures alone (modality: image), and a model that makes worse sides up is shown no "
            "pictures; use --adversary sampler, or pairs of what was said: --source contrast"
        )


@dataclass(slots=True, kw_only=True)
class _Work:
    """One rebuilding from labels to stored pairs."""

    wish: Wish
    plan: Plan
    suite: Suite
    reader: RunReader
    played: Played
    concurrency: int
    """Steps that are asked about at once."""
    call_s: float
    stop: asyncio.Event
    counted: int | None = None
    """Episodes that were paired; None before."""
    progress: Progress = field(default_factory=Progress)
    meter: Meter = field(default_factory=lambda: Meter(planned=0))

    async def done(self) -> Rebuilt:
        """All of it."""
        stopped = await self._judge()
        if stopped is not None:
            return self._result(stopped=stopped)
        labels = read_labels(self.wish.run, self.plan.critic.labels)
        try:
            made, who = await self._pair(labels)
        except (Exhausted, OutOfPatience) as reached:
            return self._result(stopped=str(reached))
        name, new = self._store(made, labels, who)
        stored, before = read_pairs(self.wish.run, name), self.plan.before
        changes = None if before is None else changes_of(self.wish.run, before, stored)
        return self._result(stored=stored, new=new, changes=changes, missing=labels.missing)

    async def _judge(self) -> str | None:
        """Judge every step that is not; says why it ended early."""
        run, choice, limits = self.wish.run, self.plan.critic, self.wish.budget
        known = read_labels(run, choice.labels) if choice.labels in labellings(run) else None
        self.progress.steps = sum(known is None or known.of(case) is None for case in self._cases())
        if known is not None and (not self.progress.steps or (known.judged and not choice.known)):
            return None  # what whoever is not known here left out is counted among the pairs
        async with opened_critic(choice, limits, self.call_s, self.stop) as (critic, head):
            if known is not None:
                self._check_same(known, head)
            with LabelWriter(run, choice.labels, head) as writer:
                found = await label(
                    self._cases(Rebuilder(self.suite)),
                    critic,
                    writer,
                    concurrency=self.concurrency,
                    budget=limits,
                    stop=self.stop,
                    watch=self._watched,
                )
        self.meter.calls, self.meter.cost_usd = found.calls, found.cost_usd
        self.meter.prompt_tokens, self.meter.completion_tokens = found.prompt_tokens, found.completion_tokens
        self.meter.lost = found.lost
        return found.stopped

    def _check_same(self, known: Labels, head: LabelHead) -> None:
        """Refuse to have steps judged by another critic than the one that judged the others; UsageError."""
        run, other = self.wish.run, other_than(known.name, known.head, head)
        if other is not None:
            raise UsageError(
                f"{run}: labels {known.name!r}, which lack {amount(self.progress.steps, 'step')}, "
                f"were made with {other}; "
                f"have all steps judged under another name: --critic NAME --labels "
                f"{free_name(known.name, labellings(run))}"
            )

    def _watched(self, labelling: Labelling) -> None:
        self.progress.labelling = labelling

    def _cases(self, states: Rebuilder | None = None) -> Iterator[Case]:
        return (case for trajectory in self.played(self.reader) for case in cases(trajectory, self.suite.space, states))

    async def _pair(self, labels: Labels) -> tuple[Paired, str | None]:
        """The pairs, and who was asked for worse sides."""
        choice, limits = self.plan.adversary, self.wish.budget
        if choice is None:
            return await self._paired(labels, SamplerAdversary()), None  # no source needs it, so it is never asked
        async with opened_adversary(choice, limits, self.call_s, self.stop) as adversary:
            asked = AllowedAdversary(
                adversary=adversary, budget=limits, meter=self.meter, stop=self.stop, at_once=self.concurrency
            )
            self.progress.adversary = asked
            with ProposalMemory(self.wish.run) as memory:
                remembering = RememberingAdversary(asked, memory, options=deciding(choice.told))
                begun = lost_by(adversary)
                try:
                    made = await self._paired(labels, remembering)
                finally:
                    self.meter.lost += lost_by(adversary) - begun
                # What earlier processes asked in vain is part of what these pairs cost.
                return replace(made, spent=total([made.spent, remembering.before])), label_of(adversary)

    async def _paired(self, labels: Labels, adversary: Adversary) -> Paired:
        return await pair_up(
            self._counted(),
            labels,
            self.plan.recipe,
            space=self.suite.space,
            prefix=self.reader.prefix,
            adversary=adversary,
            states=Rebuilder(self.suite),
            concurrency=self.concurrency,
        )

    def _counted(self) -> Iterator[Trajectory]:
        self.counted = 0
        for one in self.played(self.reader):
            self.counted += 1
            yield one

    def _store(self, made: Paired, labels: Labels, who: str | None) -> tuple[str, bool]:
        """The name under which the pairs are stored, and whether they were not there before."""
        run, recipe = self.wish.run, self.plan.recipe
        told = {} if self.plan.adversary is None else self.plan.adversary.told
        made_so = (recipe, labels.name, critic_digest(labels.head), who, deciding(told))
        names = pair_names(run)
        for name in names[::-1] if self.wish.name is None else ():
            with contextlib.suppress(RunFormatError):  # what is spoilt is not the same
                head = read_head(run, name)
                same = (*head.origin[:-1], deciding(head.adversary_options)) == made_so
                if same and read_pairs(run, name).pairs == made.pairing.pairs:
                    return name, False
        name = self.wish.name or free_name(labels.name, {*names, *self.wish.kept})
        write_pairs(run, name, made, recipe=recipe, labels=labels, adversary=who, options=told)
        return name, name not in names

    def _result(
        self,
        *,
        stored: StoredPairs | None = None,
        new: bool = False,
        changes: Changes | None = None,
        missing: Counter[str] | None = None,
        stopped: str | None = None,
    ) -> Rebuilt:
        labelling, adversary = self.progress.labelling, self.progress.adversary
        finished = sum(one.state == "finished" for one in self.reader.episodes())
        return Rebuilt(
            stored=stored,
            new=new,
            changes=changes,
            judged=0 if labelling is None else labelling.judged,
            asked=0 if adversary is None else adversary.answered,
            missing=missing or Counter(),
            spent=self.meter.spent,
            counted=self.counted or 0,
            left_out=len(self.reader.episodes()) - finished,
            beyond=0 if self.counted is None else finished - self.counted,
            stopped=stopped,
        )


def changes_of(run: Path, before: StoredPairs, after: StoredPairs) -> Changes:
    """What came and went between two sets of pairs of a run, and why; RunFormatError when labels cannot be read."""
    found = difference(before.pairs, after.pairs)

    def why(missing: Iterable[PreferencePair], others: StoredPairs) -> Counter[str]:
        return causes(missing, others.pairs, labels_of(run, others.head), others.head.recipe.threshold)

    return Changes(
        against=before.name, difference=found, added=why(found.added, before), dropped=why(found.dropped, after)
    )
