"""Make the pairs of a recorded run, or make them anew in another way.

Options that are not given are as they were for the pairs that are compared with.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from collab.config import Budget, RunConfig
from collab.envs.base import Suite
from collab.errors import ConfigError, RunFormatError, UsageError
from collab.library import Library
from collab.models.base import count_lost_calls
from collab.preferences.adversary import Adversary, AdversaryBudgetSpent, BudgetedAdversary, SamplerAdversary, label_of
from collab.preferences.explain import PairDifference, compare_pairs, count_causes, read_current_labels
from collab.preferences.pairs import PairRecipe, RunPairs, Sources, TooManyFailures, build_run_pairs
from collab.preferences.proposals import ProposalMemory, RememberingAdversary
from collab.preferences.registry import (
    SAMPLER,
    AdversaryChoice,
    open_adversary,
    parse_adversary,
    read_adversary,
    select_deciding,
)
from collab.preferences.store import (
    PairSet,
    check_name,
    find_last_name,
    hash_critic,
    list_pair_sets,
    read_pair_head,
    read_pairs,
    write_pairs,
)
from collab.rewards.base import CriticInput, build_inputs
from collab.rewards.labelling import LabellingProgress, label_cases
from collab.rewards.labels import LabelHead, LabelSet, LabelWriter, count_missing, list_label_sets, read_labels
from collab.rewards.registry import (
    CriticChoice,
    explain_difference,
    find_critic,
    find_labelling,
    free_name,
    open_critic,
)
from collab.rewards.restore import StateRebuilder
from collab.rollout.build import build_suite
from collab.rollout.collector import UsageMeter
from collab.rollout.run import read_stored_config
from collab.store.reader import RunReader
from collab.store.rewards import PreferencePair
from collab.types import Trajectory, Usage
from collab.utils.progress import Pace
from collab.utils.text import format_amount

ORACLE = "oracle"

_SOURCES = {
    "adversary": Sources(adversary=1, contrast=0),
    "contrast": Sources(adversary=0, contrast=1),
    "correction": Sources(adversary=0, correction=1),
    "mix": Sources(adversary=1, contrast=1),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildRequest:
    """Options of a rebuild; None where one is not given."""

    run: Path
    critic: str | None = None
    """A critic that asks no model, the agents file of a critic, or a label set of the run. None without earlier pairs
    is the run's only label set, or the oracle."""
    labels: str | None = None
    """Name of the critic's label set; None for the critic's name. Without a critic: the label set that decides."""
    adversary: str | None = None
    """None without earlier pairs is the sampler."""
    sources: Sources | None = None
    threshold: float | None = None
    cap: int | None = None
    """0 for no limit."""
    attempts: int | None = None
    stop_at_first_error: bool | None = None
    """Whether an episode has pairs only up to its first error."""
    name: str | None = None
    """Name of the new pairs; None for a free one."""
    against: str | None = None
    """Name of the pairs to compare with; None for the last stored ones."""
    budget: Budget = field(default_factory=Budget)
    concurrency: int | None = None
    """Steps that are asked about at once; None for the run's own concurrency."""
    kept: frozenset[str] = frozenset()
    """Names of pairs and labels that are reserved for the training that made the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildPlan:
    """A request with all defaults filled in."""

    critic: CriticChoice
    adversary: AdversaryChoice | None
    """None where the recipe needs none."""
    recipe: PairRecipe
    before: PairSet | None
    """The pairs to compare with; None when the run has none."""


def parse_sources(text: str) -> Sources:
    """Read a source, "mix" or weights like "adversary=3,contrast=1"; ConfigError when it is none."""
    # The common cases have names; weights are for mixtures.
    if text in _SOURCES:
        return _SOURCES[text]
    weights: dict[str, float] = {}
    for item in text.split(","):
        name, _, weight = (part.strip() for part in item.partition("="))
        try:
            if name not in Sources.__dataclass_fields__ or name in weights:
                raise ValueError
            weights[name] = float(weight)
        except ValueError:
            raise ConfigError(
                f"--source {text!r}: allowed are adversary, contrast, correction, mix, or weights: "
                "adversary=3,contrast=1"
            ) from None
    # Unnamed sources get 0: the adversary's default weight holds only where no source is named.
    return Sources(**({"adversary": 0.0} | weights))


def plan_rebuild(request: RebuildRequest, library: Library, *, seed: int, capabilities: Collection[str]) -> RebuildPlan:
    """Fill in what is not given.

    Args:
        seed: of the run.
        capabilities: of the run's environment.

    Raises:
        UsageError: a name, a number or a combination does not fit.
        RunFormatError: the earlier pairs cannot be read.
    """
    # A name is checked before anything is read: it becomes a folder.
    if request.name is not None:
        check_name(request.name)
        _check_free(request, "--name", request.name)
    # Missing options are as in the set before, so that a rebuild changes exactly what was asked for.
    against = request.against or find_last_name(request.run)
    before = None if against is None else read_pairs(request.run, against)
    recipe = _build_recipe(request, PairRecipe(seed=seed) if before is None else before.head.recipe)
    # Without a source that needs one, no adversary is opened, whatever the earlier set had.
    adversary = _choose_adversary(request, library, before) if recipe.sources.adversary else None
    if adversary is None and request.adversary is not None:
        raise UsageError("--adversary: pairs of recorded replies ask no adversary; leave it out, or add --source mix")
    plan = RebuildPlan(
        critic=_choose_critic(request, library, before, seed, capabilities),
        adversary=adversary,
        recipe=recipe,
        before=before,
    )
    # A limit on something that is not counted would never stop anything.
    _check_budget(request, plan)
    # New labels need a free name; existing labels are extended.
    if plan.critic.labels not in list_label_sets(request.run):
        _check_free(request, "--critic" if request.labels is None else "--labels", plan.critic.labels)
    # Resuming under a name must mean the same pairs, or the two halves would differ.
    if request.name is not None and request.name in list_pair_sets(request.run):
        _check_same(request.run, request.name, plan)
    return plan


def _build_recipe(request: RebuildRequest, before: PairRecipe) -> PairRecipe:
    cap = before.cap if request.cap is None else (request.cap or None)
    return PairRecipe(
        sources=request.sources or before.sources,
        threshold=before.threshold if request.threshold is None else request.threshold,
        cap=cap,
        attempts=before.attempts if request.attempts is None else request.attempts,
        stop_at_first_error=before.stop_at_first_error
        if request.stop_at_first_error is None
        else request.stop_at_first_error,
        seed=before.seed,
    )


def _choose_adversary(request: RebuildRequest, library: Library, before: PairSet | None) -> AdversaryChoice:
    if request.adversary is not None:
        return parse_adversary(library, request.adversary)
    return parse_adversary(library, SAMPLER) if before is None else read_adversary(before.head)


def _choose_critic(
    request: RebuildRequest, library: Library, before: PairSet | None, seed: int, capabilities: Collection[str]
) -> CriticChoice:
    # A named critic decides, then the earlier pairs' labels, then the only labels of the run.
    if request.critic is not None:
        return find_critic(library, request.critic, request.run, seed, request.labels)
    if request.labels is not None:
        return find_labelling(request.run, request.labels)
    there = list_label_sets(request.run)
    name = None if before is None else before.head.labels
    # Several label sets and none named: a guess would decide what is trained.
    if name is None and len(there) > 1:
        raise UsageError(f"{request.run}: has labels by {', '.join(there)}; choose which decide: --critic NAME")
    # Without labels and without an oracle, every critic would cost something.
    if name is None and not there and ORACLE not in capabilities:
        raise UsageError(
            f"{request.run}: has no labels, and its environment knows no solutions; add --critic NAME, for example "
            "critic-replay"
        )
    name = name or next(iter(there), ORACLE)
    return find_labelling(request.run, name) if name in there else find_critic(library, name, request.run, seed)


def _check_budget(request: RebuildRequest, plan: RebuildPlan) -> None:
    """Raise UsageError for a limit that would never be reached."""
    limited = request.budget.usd is not None or request.budget.tokens is not None
    asked = [plan.critic.definition.kind, *([] if plan.adversary is None else [plan.adversary.part.kind])]
    if limited and plan.critic.free and (plan.adversary is None or plan.adversary.free):
        raise UsageError(
            f"--budget: {' and '.join(asked)} cost neither money nor tokens; limit minutes, or leave it out"
        )


def _check_free(request: RebuildRequest, option: str, name: str) -> None:
    """Raise UsageError for a name that the run's training uses itself."""
    if name in request.kept:
        raise UsageError(
            f"{option} {name}: {request.run} belongs to a training, which uses that name itself and would resume from "
            "these; choose another"
        )


def _check_same(run: Path, name: str, plan: RebuildPlan) -> None:
    """Raise UsageError if pairs of another origin have this name, before a model is asked in vain."""
    head, told = read_pair_head(run, name), {} if plan.adversary is None else plan.adversary.as_json
    made_so = (head.recipe, head.labels, select_deciding(head.adversary_options))
    if made_so != (plan.recipe, plan.critic.labels, select_deciding(told)):
        raise UsageError(f"--name {name}: {run} has other pairs of that name; choose another, or leave it out")
    if left := (head.unjudged if plan.critic.known else 0) + sum(head.failed.values()):
        raise UsageError(
            f"--name {name}: {run} has pairs of that name, made when {left} steps were not judged or could not be "
            "asked about; ask about them under another name, or leave it out"
        )


@dataclass(slots=True, kw_only=True)
class RebuildProgress:
    """Progress of a rebuild; a live object."""

    steps: int = 0
    """Steps to be judged."""
    paired: tuple[int, int] | None = None
    """Judged steps of which pairs are made, and all; None before."""
    labelling: LabellingProgress | None = None
    """None while no critic is asked."""
    adversary: BudgetedAdversary | None = None
    """None while no adversary is asked."""
    judging: Pace = field(default_factory=Pace)
    pairing: Pace = field(default_factory=Pace)


RebuildWatch = Callable[[RebuildProgress], None]
"""Called once, with a live object that is updated during the work."""
EpisodeSource = Callable[[RunReader], Iterable[Trajectory]]
"""Returns the finished episodes of a run that count, by task and number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedDifference:
    """The new pairs compared with the earlier ones."""

    against: str
    """Name of the earlier pairs."""
    difference: PairDifference
    added: Counter[str]
    """Why added pairs were not there before, by cause (`collab.preferences.explain`)."""
    dropped: Counter[str]
    """Why dropped pairs are not there any more, by cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuiltPairs:
    """Result of a rebuild."""

    stored: PairSet | None
    """None when the rebuild ended early."""
    new: bool
    """Whether the pairs were stored now; False where the very same existed."""
    changes: ExplainedDifference | None
    """None when the run had no pairs before, or the rebuild ended early."""
    judged: int
    """Steps that were judged now."""
    asked: int
    """Questions that the adversary answered now, without answers recalled from the store."""
    missing: Counter[str]
    """Cells of judged steps without a score, by cause; they are in no pair."""
    spent: Usage
    """Cost of critic and adversary in this process."""
    counted: int
    """Episodes that were paired."""
    left_out: int
    """Broken or unfinished episodes; they are in no pair."""
    beyond: int
    """Finished episodes that `played` left out; 0 before pairing. They are in no pair either."""
    stopped: str | None
    """Why the rebuild ended early, else None. The same request resumes it."""


@contextlib.asynccontextmanager
async def build_stored_suite(run: Path) -> AsyncIterator[Suite]:
    """Open the environments in which a run was played; see `collab.rollout.build.build_suite` for the errors."""
    suite = build_suite(read_stored_config(run))
    try:
        yield suite
    finally:
        await suite.close()


async def rebuild(
    request: RebuildRequest,
    library: Library,
    *,
    played: EpisodeSource = RunReader.iterate_trajectories,
    watch: RebuildWatch = lambda progress: None,
    stop: asyncio.Event | None = None,
) -> RebuiltPairs:
    """Judge what is not judged, ask the adversary what it was not asked, and store the pairs.

    Every judgement and answer is stored at once; the same request again resumes after it.

    Args:
        played: the episodes to judge and pair: all finished ones, unless a training learns from some of them only.

    Raises:
        UsageError: an option does not fit, and nothing was asked; or the name holds other pairs.
        RunFormatError: the run, its labels or its pairs cannot be read, or its environment has another version now.
        EnvironmentFailure, ModelFailure: an environment or a model cannot be reached.
        StoreFailure: a file cannot be written; earlier files stay.
    """
    config = read_stored_config(request.run)
    # Other environments than the recorded ones would not parse these replies.
    async with build_stored_suite(request.run) as suite:
        plan = plan_rebuild(request, library, seed=config.seed, capabilities=suite.capabilities)
        # A model must not be asked about pictures that it cannot see.
        _check_seen(config, plan)
        with RunReader(request.run) as reader:
            work = _Rebuild(
                request=request,
                plan=plan,
                suite=suite,
                reader=reader,
                played=played,
                concurrency=request.concurrency or config.concurrency,
                call_s=config.environment.limits.call_s,
                stop=stop or asyncio.Event(),
            )
            watch(work.progress)
            return await work.run()


def _check_seen(config: RunConfig, plan: RebuildPlan) -> None:
    """Raise UsageError where a model would be asked to err on screens that it is not shown."""
    blind = [slot for slot, agent in config.agents.items() if agent.modality == "image"]
    if blind and plan.adversary is not None and plan.adversary.has_model:
        raise UsageError(
            f"{blind[0]} saw pictures alone (modality: image), and a language model as adversary is shown no "
            "pictures; use --adversary sampler, or pairs of recorded replies: --source contrast"
        )


@dataclass(slots=True, kw_only=True)
class _Rebuild:
    """One rebuilding from labels to stored pairs."""

    request: RebuildRequest
    plan: RebuildPlan
    suite: Suite
    reader: RunReader
    played: EpisodeSource
    concurrency: int
    """Steps that are asked about at once."""
    call_s: float
    stop: asyncio.Event
    counted: int | None = None
    """Episodes that were paired; None before."""
    progress: RebuildProgress = field(default_factory=RebuildProgress)
    meter: UsageMeter = field(default_factory=UsageMeter)

    async def run(self) -> RebuiltPairs:
        """Judge, pair and store."""
        # Judge first, then pair: each part is stored by itself, so that a repeated command finds it.
        stopped = await self._judge()
        if stopped is not None:
            return self._build_result(stopped=stopped)
        labels = read_labels(self.request.run, self.plan.critic.labels)
        try:
            made, who = await self._build_pairs(labels)
        except (AdversaryBudgetSpent, TooManyFailures) as reached:
            return self._build_result(stopped=str(reached))
        # Stored under a free name, unless the same pairs are there already.
        name, new = self._store(made, labels, who)
        stored, before = read_pairs(self.request.run, name), self.plan.before
        changes = None if before is None else compare_with_earlier(self.request.run, before, stored)
        return self._build_result(stored=stored, new=new, changes=changes, missing=count_missing(labels))

    async def _judge(self) -> str | None:
        """Judge every step that is not judged, and return why this ended early, or None."""
        run, choice, limits = self.request.run, self.plan.critic, self.request.budget
        known = read_labels(run, choice.labels) if choice.labels in list_label_sets(run) else None
        self.progress.steps = sum(known is None or known.of(case) is None for case in self._build_inputs())
        if known is not None and (not self.progress.steps or (known.judged and not choice.known)):
            return None  # an unknown critic cannot fill its gaps; the pairs count them as unjudged
        async with open_critic(choice, limits, self.call_s, self.stop) as (critic, head):
            if known is not None:
                self._check_same(known, head)
            with LabelWriter(run, choice.labels, head) as writer:
                found = await label_cases(
                    self._build_inputs(StateRebuilder(self.suite)),
                    critic,
                    writer,
                    concurrency=self.concurrency,
                    budget=limits,
                    stop=self.stop,
                    watch=self._watch,
                )
        self.meter.spent = found.spent
        return found.stopped

    def _check_same(self, known: LabelSet, head: LabelHead) -> None:
        """Raise UsageError if another critic judged the earlier steps."""
        run, other = self.request.run, explain_difference(known.name, known.head, head)
        if other is not None:
            raise UsageError(
                f"{run}: labels {known.name!r}, which lack {format_amount(self.progress.steps, 'step')}, "
                f"were made with {other}; "
                f"have all steps judged under another name: --critic NAME --labels "
                f"{free_name(known.name, list_label_sets(run))}"
            )

    def _watch(self, labelling: LabellingProgress) -> None:
        self.progress.labelling = labelling

    def _build_inputs(self, states: StateRebuilder | None = None) -> Iterator[CriticInput]:
        return (
            case
            for trajectory in self.played(self.reader)
            for case in build_inputs(trajectory, self.suite.space, states)
        )

    async def _build_pairs(self, labels: LabelSet) -> tuple[RunPairs, str | None]:
        """Build the pairs, and return them with the name of the adversary that was asked, or None."""
        choice, limits = self.plan.adversary, self.request.budget
        if choice is None:
            return await self._build_pairs_with(
                labels, SamplerAdversary()
            ), None  # no source needs it, so it is never asked
        async with open_adversary(choice, limits, self.call_s, self.stop) as adversary:
            asked = BudgetedAdversary(
                adversary=adversary, budget=limits, meter=self.meter, stop=self.stop, at_once=self.concurrency
            )
            self.progress.adversary = asked
            with ProposalMemory(self.request.run) as memory:
                remembering = RememberingAdversary(asked, memory, options=select_deciding(choice.as_json))
                begun = count_lost_calls(adversary)
                try:
                    made = await self._build_pairs_with(labels, remembering)
                finally:
                    self.meter.spent += Usage(lost=count_lost_calls(adversary) - begun)
                # Lost calls of earlier processes are part of the cost of these pairs.
                return replace(made, spent=made.spent + remembering.before), label_of(adversary)

    async def _build_pairs_with(self, labels: LabelSet, adversary: Adversary) -> RunPairs:
        return await build_run_pairs(
            self._count(),
            labels,
            self.plan.recipe,
            space=self.suite.space,
            prefix=self.reader.read_prefix,
            adversary=adversary,
            states=StateRebuilder(self.suite),
            concurrency=self.concurrency,
            watch=self._watch_pairing,
        )

    def _watch_pairing(self, done: int, planned: int) -> None:
        self.progress.paired = done, planned

    def _count(self) -> Iterator[Trajectory]:
        self.counted = 0
        for one in self.played(self.reader):
            self.counted += 1
            yield one

    def _store(self, made: RunPairs, labels: LabelSet, who: str | None) -> tuple[str, bool]:
        """Store the pairs, and return their name and whether they are new."""
        run, recipe = self.request.run, self.plan.recipe
        told = {} if self.plan.adversary is None else self.plan.adversary.as_json
        made_so = (recipe, labels.name, hash_critic(labels.head), who, select_deciding(told))
        names = list_pair_sets(run)
        for name in names[::-1] if self.request.name is None else ():
            with contextlib.suppress(RunFormatError):  # what is spoilt is not the same
                head = read_pair_head(run, name)
                same = (*head.origin[:-1], select_deciding(head.adversary_options)) == made_so
                if same and read_pairs(run, name).pairs == made.pairs:
                    return name, False
        name = self.request.name or free_name(labels.name, {*names, *self.request.kept})
        write_pairs(run, name, made, recipe=recipe, labels=labels, adversary=who, options=told)
        return name, name not in names

    def _build_result(
        self,
        *,
        stored: PairSet | None = None,
        new: bool = False,
        changes: ExplainedDifference | None = None,
        missing: Counter[str] | None = None,
        stopped: str | None = None,
    ) -> RebuiltPairs:
        labelling, adversary = self.progress.labelling, self.progress.adversary
        finished = sum(one.state == "finished" for one in self.reader.list_episodes())
        return RebuiltPairs(
            stored=stored,
            new=new,
            changes=changes,
            judged=0 if labelling is None else labelling.judged,
            asked=0 if adversary is None else adversary.answered,
            missing=missing or Counter(),
            spent=self.meter.spent,
            counted=self.counted or 0,
            left_out=len(self.reader.list_episodes()) - finished,
            beyond=0 if self.counted is None else finished - self.counted,
            stopped=stopped,
        )


def compare_with_earlier(run: Path, before: PairSet, after: PairSet) -> ExplainedDifference:
    """Compare two sets of pairs of a run, and count the causes; RunFormatError when labels cannot be read."""
    found = compare_pairs(before.pairs, after.pairs)

    def why(missing: Iterable[PreferencePair], others: PairSet) -> Counter[str]:
        return count_causes(missing, others.pairs, read_current_labels(run, others.head), others.head.recipe.threshold)

    return ExplainedDifference(
        against=before.name, difference=found, added=why(found.added, before), dropped=why(found.dropped, after)
    )
