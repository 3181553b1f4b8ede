"""Why pairs came and went."""

from __future__ import annotations

from collections import Counter

from collab.credit.critic import Judgement
from collab.credit.labels import LabelHead, Labels
from collab.credit.pairs_difference import IN_NO_PAIR, NO_SCORE, NOT_REWARDED, OTHER_WORSE, WITHOUT_PAIR, causes
from collab.types import CellRef, CellReward, PreferencePair, ReplyRef, RewardMatrix

SCORES = {"ada": 1.0, "ben": 0.5, "cyd": None}


def ref(agent: str, step: int = 0) -> ReplyRef:
    return ReplyRef(trajectory="Task/0", step=step, cell=CellRef(agent, 0))


def pair(agent: str, worse: str = "no", step: int = 0) -> PreferencePair:
    return PreferencePair(
        id=f"{agent} {step} {worse}", source="adversary", chosen=(ref(agent, step),), rejected=(), synthetic=worse
    )


def labels() -> Labels:
    rewards = tuple(
        CellReward(cell=CellRef(agent, 0), score=score, missing=None if score is not None else "unsure")
        for agent, score in SCORES.items()
    )
    judged = Judgement(case="c", rewards=RewardMatrix(trajectory="Task/0", step=0, critic="hand-1", rewards=rewards))
    return Labels(name="hand", head=LabelHead(critic="hand-1"), judged={judged.key: judged}, failed={})


def test_every_cause_is_told() -> None:
    missing = [pair("ada"), pair("ben"), pair("cyd"), pair("ada", step=1)]
    assert causes(missing, [], labels(), 0.5) == {WITHOUT_PAIR: 1, NOT_REWARDED: 1, NO_SCORE: 2}
    assert causes(missing, [], labels(), 0.4) == {WITHOUT_PAIR: 2, NO_SCORE: 2}
    others = [pair("ada", "another"), pair("ben", "another")]
    assert causes(missing, others, labels(), 0.5) == {OTHER_WORSE: 2, NO_SCORE: 2}


def test_without_labels_only_the_pairs_tell() -> None:
    missing = [pair("ada"), pair("ben")]
    assert causes(missing, [pair("ada", "another")], None, 0.5) == Counter({OTHER_WORSE: 1, IN_NO_PAIR: 1})
    whole = PreferencePair(
        id="t", source="trajectory", chosen=(ref("ada"), ref("ada", 1)), rejected=(ref("ben"), ref("ben", 1))
    )
    assert causes([whole], [], labels(), 0.5) == {IN_NO_PAIR: 1}
