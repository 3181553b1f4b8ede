"""Explain why a pair exists, and compare two sets of pairs.

    labels = read_current_labels(run, stored.head)         # those by which stored pairs were made
    explainer = PairExplainer(reader, labels, space)
    explanation = explainer.explain(pair)
    explanation.chosen.score, explanation.chosen.because, explanation.screen, explanation.prompt
    sides = [explainer.find_sides(pair) for pair in pairs]

    changes = compare_pairs(before, after)
    count_causes(changes.dropped, after, after_labels, threshold)  # why they are not there any more

An explanation reads only stored data. What is stored no more, or was judged by another critic since, is None.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, get_args

from collab.envs.grammar import ActionSpace
from collab.errors import UsageError
from collab.preferences.pairs import PairSource, is_heard_alike
from collab.preferences.store import PairHead, hash_critic
from collab.preferences.trajectory_pairs import SOURCE as WHOLE
from collab.prompts.parse import read_reply
from collab.prompts.render import rebuild
from collab.rewards.base import CriticCall, CriticInput, Judgement, build_inputs
from collab.rewards.labels import LabelSet, list_label_sets, read_labels
from collab.store.reader import RunReader
from collab.store.rewards import PreferencePair, ReplyRef
from collab.types import Action, CellRef, Observation, Prompt, Utterance
from collab.utils.text import format_amount, format_causes


@dataclass(frozen=True, slots=True, kw_only=True)
class PairSide:
    """One side of a pair."""

    text: str
    """The whole reply."""
    action: str
    """In words, its element by label; "none" where a synthesised reply does not parse any more."""
    cell: CellRef | None
    """The cell that wrote it; None when it was synthesised."""
    score: float | None = None
    because: str = ""
    """The critic's score and reason; None and empty when the critic gave none, or was not asked."""
    call: CriticCall | None = None
    """The model call behind it; None where no model was asked."""
    original: float | None = None
    """The critic's own score where it was inverted on purpose; else None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairExplanation:
    """A pair of one state with all that it rests on."""

    pair: PreferencePair
    goal: str
    screen: Observation
    prompt: Prompt
    """What both sides answer (`PreferencePair.answered`)."""
    chosen: PairSide
    rejected: PairSide
    off_context: bool
    """Whether a side was written under other messages than the prompt; False for a synthesised rejected reply."""


def read_current_labels(run: Path, head: PairHead) -> LabelSet | None:
    """Return the labels by which stored pairs were made, as they are now.

    Returns:
        None for pairs by the outcome alone, and where the labels are gone or replaced by others (critic, options or
        seed).

    Raises:
        RunFormatError: the labels cannot be read.
    """
    if head.labels is None or head.labels not in list_label_sets(run):
        return None
    labels = read_labels(run, head.labels)
    return labels if hash_critic(labels.head) == head.critic_digest else None


class PairExplainer:
    """Explains pairs of one run; fast where pairs of one episode follow each other.

    Args:
        reader: of the run whose pairs these are.
        labels: the scores to show, for stored pairs from `read_current_labels`; None, or labels of another critic than
            the pair's, show none.
    """

    def __init__(self, reader: RunReader, labels: LabelSet | None, space: ActionSpace) -> None:
        self._reader, self._labels, self._space = reader, labels, space
        self._episode, self._cases = "", dict[int, CriticInput]()

    def explain(self, pair: PreferencePair) -> PairExplanation:
        """Return the screen, prompt, sides and scores that a pair rests on.

        Raises:
            UnknownName: the run has no such episode, step or prompt.
            UsageError: the pair is one of whole trajectories, or the run holds something else in its place.
        """
        case = self._build_input(pair)
        chosen, rejected = self._build_sides(pair, case)
        cell = case.matrix[_find_answered(pair).cell]
        return PairExplanation(
            pair=pair,
            goal=case.task.goal,
            screen=case.observation,
            prompt=rebuild(self._reader.read_prefix(cell.prompt.prefix), cell.prompt),
            chosen=chosen,
            rejected=rejected,
            # Off-context, as in pairing: a side was written under other messages than the pair's prompt.
            off_context=any(not is_heard_alike(cell, case.matrix[ref.cell]) for ref in (*pair.chosen, *pair.rejected)),
        )

    def find_sides(self, pair: PreferencePair) -> tuple[PairSide, PairSide]:
        """Return the chosen and the rejected side; raises as `explain` does."""
        return self._build_sides(pair, self._build_input(pair))

    def _build_sides(self, pair: PreferencePair, case: CriticInput) -> tuple[PairSide, PairSide]:
        judgement = None if self._labels is None else self._labels.of(case)
        if judgement is not None and judgement.rewards.critic != pair.critic:
            judgement = None
        said = [_build_said_side(case, case.matrix[ref.cell], judgement) for ref in (*pair.chosen, *pair.rejected)]
        chosen, rejected = [*said, *([] if pair.synthetic is None else [_build_synthesised_side(case, pair.synthetic)])]
        return chosen, rejected

    def _build_input(self, pair: PreferencePair) -> CriticInput:
        """Return the step of a pair as it is recorded now."""
        where = _find_answered(pair)
        if where.trajectory != self._episode:
            found = build_inputs(self._reader.read_trajectory(where.trajectory), self._space)
            self._episode, self._cases = where.trajectory, {case.step: case for case in found}
        if where.step not in self._cases:
            self._reader.step(where.trajectory, where.step)  # raises, and says which steps there are
        case = self._cases[where.step]
        if case.matrix[where.cell].prompt.hash != pair.prompt:
            raise UsageError(f"pair {pair.id[:12]}: {where.trajectory} was played again since; make its pairs again")
        return case


def _find_answered(pair: PreferencePair) -> ReplyRef:
    if pair.answered is None:
        raise UsageError(f"pair {pair.id[:12]} is one of whole trajectories: it rests on their outcomes alone")
    return pair.answered


def _build_said_side(case: CriticInput, cell: Utterance, judgement: Judgement | None) -> PairSide:
    words = _describe_action(case, cell.action)
    if judgement is None:
        return PairSide(text=cell.text, action=words, cell=cell.cell)
    word, call = judgement.of(cell.cell), judgement.call_of(cell.cell)
    return PairSide(
        text=cell.text,
        action=words,
        cell=cell.cell,
        score=word.score,
        because=word.reason,
        call=call,
        original=word.original,
    )


def _build_synthesised_side(case: CriticInput, text: str) -> PairSide:
    read = read_reply(text, case.space, case.observation)
    return PairSide(text=text, action=_describe_action(case, read.action), cell=None)


def _describe_action(case: CriticInput, action: Action | None) -> str:
    return "none" if action is None else case.space.describe(action, case.observation)


OTHER_WORSE = "paired with another rejected reply"
NOT_REWARDED = "the chosen reply is not rewarded"
NO_SCORE = "the chosen reply has no score"
WITHOUT_PAIR = "the chosen reply is rewarded and has no pair"
IN_NO_PAIR = "the chosen reply is in no pair"
OTHER_BETTER = "corrected by another chosen reply"
NOT_CORRECTED = "the cell that erred there is not corrected"


@dataclass(frozen=True, slots=True, kw_only=True)
class PairDifference:
    """Each tuple in the order in which its pairs were given."""

    added: tuple[PreferencePair, ...]
    dropped: tuple[PreferencePair, ...]
    flipped: tuple[tuple[PreferencePair, PreferencePair], ...]
    """(before, after): the same two replies, preferred the other way round, also by another source; each pair once."""
    kept: tuple[PreferencePair, ...]
    """The later set's."""

    @property
    def empty(self) -> bool:
        """Return whether both sets prefer the same."""
        return not (self.added or self.dropped or self.flipped)


def compare_pairs(before: Iterable[PreferencePair], after: Iterable[PreferencePair]) -> PairDifference:
    """Compare two sets of pairs of one run by the replies they prefer; the critic does not count.

    A pair with a synthesised reply is never flipped, only added or dropped.
    """
    old, new = ({pair.id: pair for pair in pairs} for pairs in (before, after))
    gone = [pair for pair in old.values() if pair.id not in new]
    came = [pair for pair in new.values() if pair.id not in old]
    turned = _find_turned(gone, came)
    moved = {pair.id for pair in turned.values()}
    return PairDifference(
        added=tuple(pair for pair in came if pair.id not in turned),
        dropped=tuple(pair for pair in gone if pair.id not in moved),
        flipped=tuple((turned[pair.id], pair) for pair in came if pair.id in turned),
        kept=tuple(pair for pair in new.values() if pair.id in old),
    )


def count_causes(
    missing: Iterable[PreferencePair], others: Iterable[PreferencePair], labels: LabelSet | None, threshold: float
) -> Counter[str]:
    """Count why some pairs are not among others, by cause.

    Args:
        others: the set that lacks them: the later one for dropped pairs, the earlier one for added pairs.
        labels: by which the others were made, as they are now; None where they are not stored any more.
        threshold: a score above it was rewarded there.
    """
    there = list(others)
    chosen = {pair.chosen for pair in there if pair.source != "correction"}
    corrected = {pair.answered for pair in there if pair.source == "correction"}
    return Counter(
        (OTHER_BETTER if pair.answered in corrected else NOT_CORRECTED)
        if pair.source == "correction"
        else _find_cause(pair, chosen, labels, threshold)
        for pair in missing
    )


def _find_cause(
    pair: PreferencePair, chosen: set[tuple[ReplyRef, ...]], labels: LabelSet | None, threshold: float
) -> str:
    if pair.chosen in chosen:
        return OTHER_WORSE
    if labels is None or len(pair.chosen) != 1:
        return IN_NO_PAIR
    (where,) = pair.chosen
    judgement = labels.judged.get((where.trajectory, where.step))
    score = None if judgement is None else judgement.of(where.cell).score
    if score is None:
        return NO_SCORE
    return WITHOUT_PAIR if score > threshold else NOT_REWARDED


def _find_turned(gone: Iterable[PreferencePair], came: Iterable[PreferencePair]) -> dict[str, PreferencePair]:
    """Return the ID of each pair that came → the pair that went and preferred its replies the other way round.

    Two sources may pair the same replies: pairs of one source are matched first, and each pair once.
    """
    # By the replies themselves, and not by ids: a turned pair has another id.
    waiting: dict[tuple[tuple[ReplyRef, ...], ...], list[PreferencePair]] = {}
    for pair in gone:
        if pair.rejected:
            waiting.setdefault((pair.rejected, pair.chosen), []).append(pair)
    found: dict[str, PreferencePair] = {}
    arrived = list(came)
    # First those of the same source, then any: a pair is turned by its nearest counterpart.
    for alike in (True, False):
        for pair in arrived:
            others = waiting.get((pair.chosen, pair.rejected), [])
            fitting = [other for other in others if other.source == pair.source or not alike]
            if fitting and pair.id not in found:
                found[pair.id] = fitting[0]
                others.remove(fitting[0])
    return found


SOURCES = frozenset({*get_args(PairSource), WHOLE})
"""Names of pair counts that are sources; the other names are reasons for a missing pair."""


class HasPairCounts(Protocol):
    """Counts of a set of pairs or of an epoch's record; see `collab.preferences.store.PairHead`."""

    @property
    def counts(self) -> Mapping[str, int]:
        """Pairs by source, and why a rewarded cell has none."""

    @property
    def off_context(self) -> int:
        """Pairs of two cells that heard other messages than each other."""

    @property
    def refused(self) -> Mapping[str, int]:
        """Dropped replies of the adversary, by cause."""

    @property
    def failed(self) -> Mapping[str, int]:
        """Steps about which it could not be asked, by class of error."""

    @property
    def unjudged(self) -> int:
        """Steps without a judgement."""

    @property
    def untried(self) -> int:
        """Negatives that could not be tried, as their state cannot be restored."""


def count_sources(counts: HasPairCounts) -> dict[str, int]:
    """Return pairs by source."""
    return {name: count for name, count in counts.counts.items() if name in SOURCES}


def count_unpaired(counts: HasPairCounts) -> dict[str, int]:
    """Return by cause the replies without a pair: refused, failed, unjudged and untried ones, too."""
    unused = {cause: count for cause, count in counts.counts.items() if cause not in SOURCES}
    left = {"not judged": counts.unjudged, "not tried": counts.untried}
    total = Counter[str]()
    for some in (unused, counts.refused, counts.failed, {cause: count for cause, count in left.items() if count}):
        total.update(some)
    return dict(total)


def count_lines(counts: HasPairCounts) -> list[str]:
    """Format all counts, one line per kind that came up."""
    # One order for all counts, so that two sets can be compared line by line.
    pairs = count_sources(counts)
    lines = [
        *format_causes("pairs", pairs),
        *format_causes("no pair", {name: count for name, count in counts.counts.items() if name not in pairs}),
        *format_causes("refused", counts.refused),
        *format_causes("failed", counts.failed),
    ]
    if counts.off_context:
        lines.append(f"context  {format_amount(counts.off_context, 'pair')} off-context")
    if counts.unjudged:
        lines.append(f"unjudged {format_amount(counts.unjudged, 'step')}")
    if counts.untried:
        lines.append(f"untried  {format_amount(counts.untried, 'synthesised side')}: their state cannot be restored")
    return lines
