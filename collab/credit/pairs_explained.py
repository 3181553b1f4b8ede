"""Why a pair exists: from its sides to the screen, the prompt that was read, and the critic's words.

    told = explained(pair, reader, labels, space)
    told.chosen.score, told.chosen.because, told.screen, told.prompt

Everything is looked up where it is stored; what is stored no more, or was judged by another critic since, is None.
"""

from __future__ import annotations

from dataclasses import dataclass

from collab.credit.case import Case, cases
from collab.credit.critic import CriticCall, Judgement
from collab.credit.labels import Labels
from collab.credit.pairs import heard_alike
from collab.envs.grammar import ActionSpace
from collab.errors import UsageError
from collab.prompts.parse import read_reply
from collab.prompts.render import rebuild
from collab.store.reader import RunReader
from collab.types import Action, CellRef, Observation, PreferencePair, Prompt, Utterance


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
    """What both sides answer: the chosen cell's own input."""
    chosen: Side
    rejected: Side
    off_context: bool
    """Whether the rejected side was said after hearing other messages; False when it was synthesised."""


def explained(pair: PreferencePair, reader: RunReader, labels: Labels | None, space: ActionSpace) -> Explained:
    """Look up what a pair rests on.

    Args:
        reader: of the run that the pair was made of.
        labels: whose words to show; None, or of another critic than the pair's, shows none.

    Raises:
        UnknownName: the run has no such episode, step or prompt.
        UsageError: the pair is one of whole trajectories, or the run holds something else in its place.
    """
    case = _case(pair, reader, space)
    (where,) = pair.chosen
    cell, judgement = case.matrix[where.cell], None if labels is None else labels.of(case)
    if judgement is not None and judgement.rewards.critic != pair.critic:
        judgement = None
    sides = [_said(case, case.matrix[ref.cell], judgement) for ref in (*pair.chosen, *pair.rejected)]
    chosen, rejected = [*sides, *([] if pair.synthetic is None else [_synthesised(case, pair.synthetic)])]
    return Explained(
        pair=pair,
        goal=case.task.goal,
        screen=case.observation,
        prompt=rebuild(reader.prefix(cell.prompt.prefix), cell.prompt),
        chosen=chosen,
        rejected=rejected,
        off_context=any(not heard_alike(cell, case.matrix[ref.cell]) for ref in pair.rejected),
    )


def _case(pair: PreferencePair, reader: RunReader, space: ActionSpace) -> Case:
    """The step that a pair is about, as it is recorded now."""
    if len(pair.chosen) != 1:
        raise UsageError(f"pair {pair.id[:12]} is one of whole trajectories: it rests on their outcomes alone")
    (where,) = pair.chosen
    index = reader.step(where.trajectory, where.step).index
    case = next(case for case in cases(reader.trajectory(where.trajectory), space) if case.step == index)
    if case.matrix[where.cell].prompt.hash != pair.prompt:
        raise UsageError(f"pair {pair.id[:12]}: {where.trajectory} was played again since; make its pairs again")
    return case


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
