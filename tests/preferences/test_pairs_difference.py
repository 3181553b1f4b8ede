"""Why pairs came and went."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from collab.preferences.explain import (
    IN_NO_PAIR,
    NO_SCORE,
    NOT_REWARDED,
    OTHER_WORSE,
    WITHOUT_PAIR,
    compare_pairs,
    count_causes,
)
from collab.rewards.base import Judgement
from collab.rewards.labels import LabelHead, LabelSet
from collab.store.rewards import CellReward, PreferencePair, ReplyRef, RewardMatrix
from collab.types import CellRef

SCORES = {"ada": 1.0, "ben": 0.5, "cyd": None}


def ref(agent: str, step: int = 0) -> ReplyRef:
    return ReplyRef(trajectory="Task/0", step=step, cell=CellRef(agent, 0))


def pair(agent: str, worse: str = "no", step: int = 0) -> PreferencePair:
    return PreferencePair(
        id=f"{agent} {step} {worse}", source="adversary", chosen=(ref(agent, step),), rejected=(), synthetic=worse
    )


def labels() -> LabelSet:
    rewards = tuple(
        CellReward(cell=CellRef(agent, 0), score=score, missing=None if score is not None else "unsure")
        for agent, score in SCORES.items()
    )
    judged = Judgement(case="c", rewards=RewardMatrix(trajectory="Task/0", step=0, critic="hand-1", rewards=rewards))
    return LabelSet(name="hand", head=LabelHead(critic="hand-1"), judged={judged.key: judged}, failed={})


def test_every_cause_is_told() -> None:
    missing = [pair("ada"), pair("ben"), pair("cyd"), pair("ada", step=1)]
    assert count_causes(missing, [], labels(), 0.5) == {WITHOUT_PAIR: 1, NOT_REWARDED: 1, NO_SCORE: 2}
    assert count_causes(missing, [], labels(), 0.4) == {WITHOUT_PAIR: 2, NO_SCORE: 2}
    others = [pair("ada", "another"), pair("ben", "another")]
    assert count_causes(missing, others, labels(), 0.5) == {OTHER_WORSE: 2, NO_SCORE: 2}


def test_without_labels_only_the_pairs_tell() -> None:
    missing = [pair("ada"), pair("ben")]
    assert count_causes(missing, [pair("ada", "another")], None, 0.5) == Counter({OTHER_WORSE: 1, IN_NO_PAIR: 1})
    whole = PreferencePair(
        id="t", source="trajectory", chosen=(ref("ada"), ref("ada", 1)), rejected=(ref("ben"), ref("ben", 1))
    )
    assert count_causes([whole], [], labels(), 0.5) == {IN_NO_PAIR: 1}


def said(better: str, worse: str, source: str) -> PreferencePair:
    """A pair of what two agents said."""
    return PreferencePair(id=f"{source} {better} {worse}", source=source, chosen=(ref(better),), rejected=(ref(worse),))


def test_a_pair_is_flipped_by_another_source_too() -> None:
    before, after = said("ada", "ben", "contrast"), said("ben", "ada", "correction")
    found = compare_pairs([before], [after])
    assert (found.flipped, found.added, found.dropped) == (((before, after),), (), ())


@given(st.data())
def test_each_pair_is_told_once(data: st.DataObject) -> None:
    agents, sources = ("ada", "ben", "cyd"), ("contrast", "correction")
    every = [said(one, other, source) for one in agents for other in agents for source in sources if one != other]
    before, after = (data.draw(st.lists(st.sampled_from(every), unique=True)) for _ in range(2))
    found = compare_pairs(before, after)
    assert {one.id for one in before} == {
        one.id for one in (*found.kept, *found.dropped, *(a for a, _ in found.flipped))
    }
    assert len(before) == len(found.kept) + len(found.dropped) + len(found.flipped)
    assert len(after) == len(found.kept) + len(found.added) + len(found.flipped)
    assert all((one.chosen, one.rejected) == (other.rejected, other.chosen) for one, other in found.flipped)
    assert not {(one.chosen, one.rejected) for one in found.added} & {
        (one.rejected, one.chosen) for one in found.dropped
    }
    back = compare_pairs(after, before)
    assert len(back.flipped) == len(found.flipped)
    went, came = ({one.id: one for one in side if one not in found.kept} for side in (before, after))
    for one in went.values():
        alike = f"{one.source} {one.rejected[0].cell.agent} {one.chosen[0].cell.agent}"
        if alike in came:
            assert (one, came[alike]) in found.flipped
