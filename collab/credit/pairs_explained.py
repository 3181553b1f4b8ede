"""Why a pair exists: from its sides to the screen, the prompt that was read, and the critic's words.

    labels = labels_of(run, stored.head)                   # stored pairs were made by them
    told = explained(pair, reader, labels, space)
    told.chosen.score, told.chosen.because, told.screen, told.prompt

    look = Explainer(reader, labels, space)                # for many pairs: reads an episode once
    sides = [look.sides(pair) for pair in pairs]

Everything is looked up where it is stored; what is stored no more, or was judged by another critic since, is None.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from collab.credit.case import Case, cases
from collab.credit.critic import CriticCall, Judgement
from collab.credit.labels import Labels, labellings, read_labels
from collab.credit.pair_store import PairHead, critic_digest
from collab.credit.pairs import heard_alike
from collab.envs.grammar import ActionSpace
from collab.errors import UsageError
from collab.prompts.parse import read_reply
from collab.prompts.render import rebuild
from collab.store.reader import RunReader
from collab.types import Action, CellRef, Observation, PreferencePair, Prompt, ReplyRef, Utterance


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side of a pair."""

    text: str
    """The whole reply."""
    action: str
    """In words, its element by label; "none" where a synthesised reply cannot be read any more."""
    cell: CellRef | None
    """Who said it; None when it was synthesised."""
    score: float | None = None
    because: str = ""
    """The critic's score and reason; None and empty when the critic gave none, or was not asked."""
    call: CriticCall | None = None
    """The model call behind it; None where no model was asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """A pair of one state with all that it rests on."""

    pair: PreferencePair
    goal: str
    screen: Observation
    prompt: Prompt
    """What both sides answer (`PreferencePair.answered`)."""
    chosen: Side
    rejected: Side
    off_context: bool
    """Whether one of the sides was said after hearing other messages; False when the worse was synthesised."""


def labels_of(run: Path, head: PairHead) -> Labels | None:
    """The labels by which stored pairs were made, as they are now.

    Returns:
        None for pairs by the outcome alone, and where these labels are not stored any more, also where others stand
        under their name: of another critic, with other options or by another seed.

    Raises:
        RunFormatError: the labels cannot be read.
    """
    if head.labels is None or head.labels not in labellings(run):
        return None
    labels = read_labels(run, head.labels)
    return labels if critic_digest(labels.head) == head.critic_digest else None


def explained(pair: PreferencePair, reader: RunReader, labels: Labels | None, space: ActionSpace) -> Explained:
    """Look up what a pair rests on; see `Explainer` for arguments and errors."""
    return Explainer(reader, labels, space).explained(pair)


class Explainer:
    """Looks up what pairs of one run rest on; quick where pairs of one episode follow each other.

    Args:
        reader: of the run that the pairs were made of.
        labels: whose words to show, for stored pairs those of `labels_of`; None, or of another critic's name than a
            pair's, shows none.
    """

    def __init__(self, reader: RunReader, labels: Labels | None, space: ActionSpace) -> None:
        self._reader, self._labels, self._space = reader, labels, space
        self._episode, self._cases = "", dict[int, Case]()

    def explained(self, pair: PreferencePair) -> Explained:
        """All that a pair rests on.

        Raises:
            UnknownName: the run has no such episode, step or prompt.
            UsageError: the pair is one of whole trajectories, or the run holds something else in its place.
        """
        case = self._case(pair)
        chosen, rejected = self._sides(pair, case)
        cell = case.matrix[_answered(pair).cell]
        return Explained(
            pair=pair,
            goal=case.task.goal,
            screen=case.observation,
            prompt=rebuild(self._reader.prefix(cell.prompt.prefix), cell.prompt),
            chosen=chosen,
            rejected=rejected,
            off_context=any(not heard_alike(cell, case.matrix[ref.cell]) for ref in (*pair.chosen, *pair.rejected)),
        )

    def sides(self, pair: PreferencePair) -> tuple[Side, Side]:
        """The chosen and the rejected side; raises as `explained` does."""
        return self._sides(pair, self._case(pair))

    def _sides(self, pair: PreferencePair, case: Case) -> tuple[Side, Side]:
        judgement = None if self._labels is None else self._labels.of(case)
        if judgement is not None and judgement.rewards.critic != pair.critic:
            judgement = None
        said = [_said(case, case.matrix[ref.cell], judgement) for ref in (*pair.chosen, *pair.rejected)]
        chosen, rejected = [*said, *([] if pair.synthetic is None else [_synthesised(case, pair.synthetic)])]
        return chosen, rejected

    def _case(self, pair: PreferencePair) -> Case:
        """The step that a pair is about, as it is recorded now."""
        where = _answered(pair)
        if where.trajectory != self._episode:
            found = cases(self._reader.trajectory(where.trajectory), self._space)
            self._episode, self._cases = where.trajectory, {case.step: case for case in found}
        if where.step not in self._cases:
            self._reader.step(where.trajectory, where.step)  # raises, and says which steps there are
        case = self._cases[where.step]
        if case.matrix[where.cell].prompt.hash != pair.prompt:
            raise UsageError(f"pair {pair.id[:12]}: {where.trajectory} was played again since; make its pairs again")
        return case


def _answered(pair: PreferencePair) -> ReplyRef:
    if pair.answered is None:
        raise UsageError(f"pair {pair.id[:12]} is one of whole trajectories: it rests on their outcomes alone")
    return pair.answered


def _said(case: Case, cell: Utterance, judgement: Judgement | None) -> Side:
    words = _words(case, cell.action)
    if judgement is None:
        return Side(text=cell.text, action=words, cell=cell.cell)
    word, call = judgement.of(cell.cell), judgement.call_of(cell.cell)
    return Side(text=cell.text, action=words, cell=cell.cell, score=word.score, because=word.reason, call=call)


def _synthesised(case: Case, text: str) -> Side:
    read = read_reply(text, case.space, case.observation)
    return Side(text=text, action=_words(case, read.action), cell=None)


def _words(case: Case, action: Action | None) -> str:
    return "none" if action is None else case.space.describe(action, case.observation)
