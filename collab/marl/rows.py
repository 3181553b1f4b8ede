"""What of a rollout is learned, as rows: a reply with its own prompt, in the pieces in which a policy reads it.

    made = rows_of(evidence, suite.space, Scribe.of(record, chats, config))
    made.rows["shared"], made.counts("shared", older=[])

By the method's objective, "dpo" has a row per pair, the chosen and the rejected reply under the chosen one's prompt,
and behind these one per anchor, a rewarded reply without a pair of its own, on both sides;
"rft" a row per rewarded reply; "trajectory-dpo" a row per reply of both episodes of a pair, each under its own prompt.

Rows stand in the order of the episodes: by task, episode, step, agent and round; of a pair of whole trajectories the
chosen one's come first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from collab.config import RunConfig
from collab.credit.case import cases
from collab.credit.critic import Judgement
from collab.credit.judged_step import BEHIND_ERROR, JudgedStep, behind_errors, rewarded
from collab.credit.labels import Labels
from collab.credit.pair_store import StoredPairs
from collab.credit.pairs import sureness
from collab.envs.grammar import ActionSpace
from collab.learn.examples import rows_digest
from collab.marl.scribe import Lesson, Scribe
from collab.marl.summary import RowCounts
from collab.synth.rows import Level, Row
from collab.types import CellRef, PreferencePair, ReplyRef, Trajectory, Utterance

WHOLE = "compares whole trajectories"
"""Why a pair has no row of its own."""


@dataclass(slots=True, kw_only=True)
class Made:
    """Rows by policy, and what there is none of."""

    rows: dict[str, list[Row]] = field(default_factory=dict)
    replies: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """Of pairs of whole trajectories: replies of the chosen and of the rejected side."""
    refused: dict[str, Counter[str]] = field(default_factory=dict)
    retokenised: Counter[str] = field(default_factory=Counter)
    anchors: Counter[str] = field(default_factory=Counter)
    """Rows by policy that compare a reply with itself."""
    unjudged: int = 0
    """Steps of which nobody said what in them is rewarded; 0 where pairs were made of judgements, which tell it."""

    @classmethod
    def of(cls, scribe: Scribe) -> Made:
        """Nothing yet, for each policy."""
        groups = list(scribe.config.groups)
        return cls(
            rows={group: [] for group in groups},
            replies={group: [] for group in groups},
            refused={group: Counter() for group in groups},
        )

    def counts(self, group: str, older: Sequence[Row]) -> RowCounts:
        """In the form of the record.

        Args:
            older: rows of older epochs beside them.
        """
        replies, rows = self.replies[group], [*self.rows[group], *older]
        return RowCounts(
            pairs=len(replies) or len(self.rows[group]) - self.anchors[group],
            anchors=self.anchors[group],
            replies=replies,
            older=len(older),
            refused=dict(self.refused[group]),
            repeated=0 if replies else len(rows) - len({row.id for row in rows}),
            unjudged=self.unjudged,
            retokenised=self.retokenised[group],
            digest=rows_digest(rows),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is known of a rollout when rows are made of it."""

    run: RunConfig
    played: Sequence[Trajectory]
    """By task and number."""
    labels: Labels | None
    """None where nobody was asked to judge."""
    pairs: StoredPairs | None
    """None where nothing was compared."""


def rows_of(found: Evidence, space: ActionSpace, scribe: Scribe) -> Made:
    """The rows of a rollout, by the method's objective.

    Args:
        space: of the suite that was played in.
    """
    if scribe.config.method.objective == "trajectory-dpo" and found.pairs is not None:
        return trajectory_rows(found.pairs.pairs, scribe)
    if found.pairs is not None:
        made = pair_rows(found.pairs.pairs, scribe)
        if scribe.config.method.pairs.anchors:
            assert found.labels is not None, "pairs of one state are made of judgements"
            add_anchors(made, found.pairs.pairs, found.played, found.labels, space, scribe)
        return made
    assert found.labels is not None, "what is not compared was judged"
    return rewarded_rows(found.played, found.labels, space, scribe)


def pair_rows(pairs: Iterable[PreferencePair], scribe: Scribe) -> Made:
    """A row per pair of one state, for the policy whose input it is."""
    made = Made.of(scribe)
    for pair in pairs:
        if pair.answered is None:
            made.refused[scribe.groups[pair.chosen[0].cell.agent]][WHOLE] += 1
        else:
            _add(made, scribe.groups[pair.answered.cell.agent], scribe, _preferred(pair, pair.answered))
    return made


def add_anchors(
    made: Made,
    pairs: Iterable[PreferencePair],
    played: Iterable[Trajectory],
    labels: Labels,
    space: ActionSpace,
    scribe: Scribe,
) -> None:
    """Put rewarded replies without a pair of their own behind the rows of pairs, of each state as the method says.

    A reply that is the better side under another cell's input has none under its own. Those are taken first that their
    policy was surest of: what a hot policy says of little likelihood is no model to hold on to. A policy without any
    pair has nothing to hold on against, and gets none.

    Args:
        space: of the suite that was played in.
    """
    method = scribe.config.method.pairs
    paired = {pair.answered for pair in pairs}
    learning = {agent for agent, group in scribe.groups.items() if made.rows[group]}
    steps = list(filter(None, _judged(played, labels, space, method.threshold)))
    behind = _behind(steps, scribe)
    for step in (one for one in steps if one.judgement.key not in behind):
        alone = [cell for cell in rewarded(step) if cell.cell.agent in learning and step.ref(cell.cell) not in paired]
        surest = {cell.cell for cell in sorted(alone, key=sureness, reverse=True)[: method.anchors]}
        for cell in (cell for cell in alone if cell.cell in surest):
            group, ref = scribe.groups[cell.cell.agent], step.ref(cell.cell)
            lesson = replace(_lesson(ref, step.judgement, "preference", "anchor"), rejected=ref)
            made.anchors[group] += _add(made, group, scribe, lesson)


def rewarded_rows(played: Iterable[Trajectory], labels: Labels, space: ActionSpace, scribe: Scribe) -> Made:
    """A row per rewarded reply: what is left when nothing is compared (CollabUIAgents, table 3, "PO → RFT").

    Of a state with more rewarded replies than `pairs.cap`, those are kept that pairs would be kept of.

    Args:
        space: of the suite that was played in.
    """
    made, steps = Made.of(scribe), list(_judged(played, labels, space, scribe.config.method.pairs.threshold))
    judged = list(filter(None, steps))
    made.unjudged = len(steps) - len(judged)
    behind = _behind(judged, scribe)
    for step in judged:
        for lesson in _rewarded(step, scribe):
            group = scribe.groups[lesson.said.cell.agent]
            if step.judgement.key in behind:
                made.refused[group][BEHIND_ERROR] += 1
            else:
                _add(made, group, scribe, lesson)
    return made


def trajectory_rows(pairs: Iterable[PreferencePair], scribe: Scribe) -> Made:
    """A row per reply of both trajectories of a pair, for each policy its own replies.

    A pair is refused whole, by the first cause that one of its replies has.
    """
    made = Made.of(scribe)
    for pair in pairs:
        for group, slots in scribe.config.groups.items():
            sides = [_whole(side, kind, slots) for side, kind in ((pair.chosen, "solved"), (pair.rejected, "unsolved"))]
            found = [scribe.row(lesson) for side in sides for lesson in side]
            made.retokenised[group] += any(again for _, again in found)
            refused = [row for row, _ in found if isinstance(row, str)]
            if refused:
                made.refused[group][refused[0]] += 1
            else:
                made.rows[group] += [row for row, _ in found if isinstance(row, Row)]
                made.replies[group].append((len(sides[0]), len(sides[1])))
    return made


# ------------------------------------------------------------------------------------------------------ inside


def _add(made: Made, group: str, scribe: Scribe, lesson: Lesson) -> bool:
    """Put a reply among the rows, or count why not; whether it is one."""
    row, again = scribe.row(lesson)
    made.retokenised[group] += again
    if isinstance(row, Row):
        made.rows[group].append(row)
        return True
    made.refused[group][row] += 1
    return False


def _preferred(pair: PreferencePair, answered: ReplyRef) -> Lesson:
    return Lesson(
        said=pair.chosen[0],
        answered=answered,
        level="preference",
        kind=pair.source,
        rejected=pair.rejected[0] if pair.synthetic is None else pair.synthetic,
        teacher=pair.critic or "outcome",
        asked=pair.calls[0] if pair.calls else None,
    )


def _judged(
    played: Iterable[Trajectory], labels: Labels, space: ActionSpace, threshold: float
) -> Iterator[JudgedStep | None]:
    """The steps of a rollout, in its order; None for one that nobody judged."""
    for trajectory in played:
        for case in cases(trajectory, space):
            judgement = labels.of(case)
            yield None if judgement is None else JudgedStep.of(trajectory, judgement, threshold)


def _behind(steps: Iterable[JudgedStep], scribe: Scribe) -> frozenset[tuple[str, int]]:
    """The steps (trajectory, step) that teach nothing because of where they stand."""
    return behind_errors(steps) if scribe.config.method.pairs.until_error else frozenset()


def _rewarded(step: JudgedStep, scribe: Scribe) -> Iterator[Lesson]:
    """What of a step is learned."""
    cells = rewarded(step)
    kept = _kept(step, cells, scribe.record.run.seed, scribe.config.method.pairs.cap)
    for cell in cells:
        if cell.cell in kept:
            yield _lesson(step.ref(cell.cell), step.judgement, "demonstration", "rewarded")


def _lesson(said: ReplyRef, judgement: Judgement, level: Level, kind: str) -> Lesson:
    """A reply that a critic rewarded."""
    call = judgement.call_of(said.cell)
    return Lesson(
        said=said,
        level=level,
        kind=kind,
        teacher=judgement.rewards.critic,
        asked=None if call is None else call.prompt,
    )


def _kept(step: JudgedStep, cells: Sequence[Utterance], seed: int, cap: int | None) -> set[CellRef]:
    """Cells that the seed ranks first, as pairs of them would be ranked; all where there is no cap."""
    ranked = sorted(cells, key=lambda cell: step.seed(seed, "pair cap", cell.cell))
    return {cell.cell for cell in ranked[:cap]}


def _whole(side: Sequence[ReplyRef], kind: str, slots: Sequence[str]) -> list[Lesson]:
    """All that a policy said in an episode."""
    return [
        Lesson(said=ref, level="demonstration", kind=kind, teacher="outcome") for ref in side if ref.cell.agent in slots
    ]
