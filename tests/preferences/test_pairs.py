"""Pairs of judged steps: computed by hand on small matrices, and laws that hold on any."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collab.envs.grammar import MOBILE
from collab.errors import ConfigError
from collab.preferences.explain import NOT_CORRECTED, OTHER_BETTER, compare_pairs, count_causes
from collab.preferences.negatives import EQUALS_REWARDED
from collab.preferences.pairs import (
    ALL_RIGHT,
    BEYOND_CAP,
    NOBODY_RIGHT,
    NOTHING,
    Sources,
    build_pairs,
    build_step_pairs,
    find_correction,
    is_heard_alike,
    list_contrasts,
    list_wanted,
)
from collab.preferences.trajectory_pairs import build_trajectory_pairs
from collab.prompts.parse import write_reply
from collab.rewards.base import CriticCall, Judgement
from collab.rewards.credit import JudgedStep, Negative, find_behind_errors, list_rewarded, list_rewarded_actions
from collab.store.rewards import CellReward, PreferencePair, RewardMatrix
from collab.types import Action, ActionMatrix, CellRef, Outcome, PolicyRef, PromptRef, Sampling, Trajectory, Utterance
from tests.properties import examples

ADVERSARY, CONTRAST, MIX = Sources(), Sources(adversary=0, contrast=1), Sources(adversary=1, contrast=1)
CORRECTION = Sources(adversary=0, correction=1)
Said = tuple[int | None, float | None]
"""Index that is clicked, None for a reply that does not parse; and the critic's score, None when missing."""


def click(index: int) -> Action:
    return MOBILE.make("click", index=index)


def cell(ref: CellRef, index: int | None, heard: tuple[CellRef, ...] = ()) -> Utterance:
    action = None if index is None else click(index)
    return Utterance(
        agent=ref.agent,
        round=ref.round,
        heard=heard,
        text="?" if action is None else write_reply(f"{ref.agent} thinks so.", action, MOBILE),
        reason=f"{ref.agent} thinks so.",
        action=action,
        failure=None,
        prompt=PromptRef(prefix="p", suffix=f"You are {ref.agent}, round {ref.round}.", layout="1"),
        policy=PolicyRef(base="m", version=2),
        sampling=Sampling(),
        seed=0,
    )


def judged(
    said: Mapping[tuple[str, int], Said],
    *,
    trajectory: str = "T/0",
    step: int = 3,
    negatives: Mapping[tuple[str, int], int] = {},
    calls: bool = False,
    heard: Mapping[tuple[str, int], tuple[CellRef, ...]] = {},
) -> JudgedStep:
    refs = {place: CellRef(*place) for place in said}
    cells = tuple(cell(refs[place], index, heard.get(place, ())) for place, (index, _) in said.items())
    rewards = tuple(
        CellReward(cell=refs[place], score=score, missing=None if score is not None else "no score")
        for place, (_, score) in said.items()
    )
    asked = [CriticCall(prompt=f"call {ref.round}", model="m", seed=0, reply="", cells=(ref,)) for ref in refs.values()]
    matrix = ActionMatrix(agents=tuple(dict.fromkeys(a for a, _ in said)), rounds=2, edges=(), utterances=cells)
    return JudgedStep(
        epoch=0,
        task=trajectory.split("/")[0],
        episode=int(trajectory.split("/")[1]),
        matrix=matrix,
        judgement=Judgement(
            case="",
            rewards=RewardMatrix(trajectory=trajectory, step=step, critic="oracle-2", rewards=rewards),
            calls=tuple(asked) if calls else (),
        ),
        negatives={
            refs[place]: Negative(text=f"bad {index}", action=click(index), maker="sampler-1: random")
            for place, index in negatives.items()
        },
    )


def sides(pairs: tuple[PreferencePair, ...]) -> list[tuple[CellRef, CellRef | str | None]]:
    return [(one.chosen[0].cell, one.rejected[0].cell if one.rejected else one.synthetic) for one in pairs]


A0, A1, B0, B1 = CellRef("ada", 0), CellRef("ada", 1), CellRef("ben", 0), CellRef("ben", 1)
TEAM = {A0: (7, 0.9), B0: (3, 0.0), A1: (7, 0.51), B1: (None, None)}
"""Ada is right twice, Ben wrong once and mute once."""


# --------------------------------------------------------------------------------------------------- by hand


@pytest.mark.parametrize(
    ("decided", "erred"),
    [(7, False), (3, True), (None, True), (4, True), (5, False), (6, False)],
    ids=["rewarded", "unrewarded", "nothing", "exactly the threshold", "missing", "once rewarded"],
)
def test_a_team_errs_by_what_it_decides(decided: int | None, erred: bool) -> None:
    said: dict[tuple[str, int], Said] = {A0: (7, 0.9), B0: (3, 0.0), A1: (4, 0.5), B1: (5, None)}
    step = judged({**said, ("cem", 0): (6, None), ("cem", 1): (6, 0.6)})
    assert replace(step, decided=None if decided is None else click(decided)).erred == erred


def test_what_stands_behind_the_first_error_of_its_episode() -> None:
    right, wrong = click(7), click(3)
    plan = {"T/0": (right, wrong, right, wrong, right), "T/1": (right, right), "U/0": (wrong, right)}
    steps = [
        replace(judged(TEAM, trajectory=name, step=number), decided=decided)
        for name, all_of in plan.items()
        for number, decided in enumerate(all_of)
    ]
    assert find_behind_errors(steps) == {("T/0", 2), ("T/0", 3), ("T/0", 4), ("U/0", 1)}
    assert find_behind_errors(steps[::-1]) == find_behind_errors(steps)


def test_each_rewarded_cell_with_a_negative_makes_one_adversary_pair() -> None:
    step = judged(TEAM, negatives={A0: 5}, calls=True)
    made = build_step_pairs(step, ADVERSARY, seed=0)
    assert sides(made.pairs) == [(A0, "bad 5")]
    assert made.counts == {"adversary": 1, NOTHING: 1}
    (one,) = made.pairs
    assert (one.source, one.adversary, one.critic, one.calls) == (
        "adversary",
        "sampler-1: random",
        "oracle-2",
        ("call 0",),
    )
    assert one.prompt == step.matrix[A0].prompt.hash
    assert one.policy == PolicyRef(base="m", version=2)
    assert (one.chosen[0].trajectory, one.chosen[0].step) == ("T/0", 3)


def test_a_contrast_sets_a_rewarded_cell_against_an_unrewarded_one() -> None:
    made = build_step_pairs(judged(TEAM, calls=True), CONTRAST, seed=0)
    assert sides(made.pairs) == [(A0, B0), (A1, B0)]
    assert made.counts == {"contrast": 2}
    assert [one.calls for one in made.pairs] == [("call 0",), ("call 1", "call 0")]
    assert made.pairs[0].synthetic is None


@pytest.mark.parametrize(
    ("ben", "why"),
    [
        ((3, None), "a missing score is no reward of 0"),
        ((None, 0.0), "a reply that did not parse is no action"),
        ((7, 0.0), "the same action was rewarded"),
        ((3, 0.6), "it is rewarded, too"),
    ],
)
def test_what_cannot_be_the_worse_side(ben: Said, why: str) -> None:
    made = build_step_pairs(judged({A0: (7, 1.0), B0: ben}), CONTRAST, seed=0)
    assert not made.pairs, why
    assert made.counts[NOTHING] == len(list_rewarded(judged({A0: (7, 1.0), B0: ben})))


def test_exactly_one_half_earns_nothing_and_may_be_the_worse_side() -> None:
    assert sides(build_step_pairs(judged({A0: (7, 1.0), B0: (3, 0.5)}), CONTRAST, seed=0).pairs) == [(A0, B0)]
    assert not build_step_pairs(judged({A0: (7, 0.5), B0: (3, 0.0)}), CONTRAST, seed=0).counts


def test_a_contrast_of_cells_that_heard_the_same_comes_first_and_the_others_are_told() -> None:
    said = {A0: (7, 1.0), B0: (3, 0.0), A1: (4, 0.0), B1: (7, 1.0)}
    step = judged(said, heard={A1: (A0,), B1: (B0, A1)})
    assert [one.cell for one in list_contrasts(step, step.matrix[A0])] == [B0]
    assert [one.cell for one in list_contrasts(step, step.matrix[B1])] == [A1, B0]
    made = build_step_pairs(step, CONTRAST, seed=0)
    assert (len(made.pairs), made.off_context) == (2, 1)


def test_what_a_cell_was_told_is_held_against_it_before_what_it_never_heard() -> None:
    """Ben heard in the second round what he himself had said, which is wrong, and not what Ada says now."""
    said = {A0: (7, 1.0), B0: (3, 0.0), A1: (4, 0.0), B1: (7, 1.0)}
    step = judged(said, heard={A1: (A0,), B1: (B0,)})
    assert [one.cell for one in list_contrasts(step, step.matrix[B1])] == [B0]
    silent = judged(said | {B0: (7, 1.0)}, heard={A1: (A0,), B1: (B0,)})
    assert [one.cell for one in list_contrasts(silent, silent.matrix[B1])] == [A1]


def test_a_mix_leaves_to_the_other_source_what_one_has_nothing_for() -> None:
    unanimous = judged({A0: (7, 1.0), B0: (7, 1.0)}, negatives={A0: 5, B0: 4})
    assert build_step_pairs(unanimous, MIX, seed=0).counts == {"adversary": 2}
    silent = judged({A0: (7, 1.0), B0: (3, 0.0)})
    assert build_step_pairs(silent, Sources(adversary=1e9, contrast=1e-9), seed=0).counts == {"contrast": 1}


def test_weights_decide_how_often_a_source_is_drawn() -> None:
    steps = [judged({A0: (7, 1.0), B0: (3, 0.0)}, step=step, negatives={A0: 5}) for step in range(400)]
    counts = build_pairs(steps, Sources(adversary=3, contrast=1), seed=1).counts
    assert counts.total() == 400
    assert 260 <= counts["adversary"] <= 340  # 300 expected, standard deviation 8.7


def test_an_adversary_is_asked_only_where_its_word_will_be_used() -> None:
    step = judged({A0: (7, 1.0), B0: (3, 0.0), A1: (7, 1.0), B1: (9, 1.0)})
    assert list_wanted(step, ADVERSARY, seed=0) == (A0, A1, B1)
    assert list_wanted(step, CONTRAST, seed=0) == ()
    for seed in range(20):
        asked = list_wanted(step, MIX, seed)
        told = replace(step, negatives={ref: Negative(text="bad", action=click(1), maker="m") for ref in asked})
        made = build_step_pairs(told, MIX, seed)
        assert {one.chosen[0].cell for one in made.pairs if one.source == "adversary"} == set(asked)
        assert made.counts["contrast"] == 3 - len(asked)


def test_a_negative_that_another_critic_rewards_is_used_no_more() -> None:
    step = judged({A0: (7, 1.0), B0: (5, 1.0)}, negatives={A0: 5})
    made = build_step_pairs(step, ADVERSARY, seed=0)
    assert not made.pairs
    assert made.counts == {EQUALS_REWARDED: 1, NOTHING: 2}


def test_a_cap_keeps_that_many_of_a_state() -> None:
    step = judged({CellRef(name, 0): (7, 1.0) for name in "abcdef"} | {B0: (3, 0.0)})
    made = build_step_pairs(step, CONTRAST, seed=0, cap=2)
    assert made.counts == {"contrast": 2, BEYOND_CAP: 4}
    assert sides(made.pairs) == sorted(sides(made.pairs))
    assert len({sides(build_step_pairs(step, CONTRAST, seed, cap=2).pairs)[0] for seed in range(20)}) > 1
    with pytest.raises(ConfigError, match="at most 0 pairs per state"):
        build_step_pairs(step, CONTRAST, seed=0, cap=0)


@pytest.mark.parametrize("weights", [(0, 0, 0), (-1, 2, 0), (float("nan"), 1, 0), (float("inf"), 1, 0), (1, 0, 1.5)])
def test_weights_that_mean_nothing_are_refused(weights: tuple[float, float, float]) -> None:
    with pytest.raises(ConfigError, match="pair sources"):
        Sources(adversary=weights[0], contrast=weights[1], correction=weights[2])


def test_a_cell_that_erred_is_corrected_under_its_own_input() -> None:
    step = judged(TEAM, calls=True)
    (one,) = build_step_pairs(step, CORRECTION, seed=0).pairs
    assert sides((one,)) == [(A0, B0)]
    assert one.source == "correction"
    assert one.prompt == step.matrix[B0].prompt.hash != step.matrix[A0].prompt.hash
    assert one.answered == step.make_ref(B0)
    assert one.calls == ("call 0",)
    both = build_step_pairs(step, Sources(adversary=0, contrast=1, correction=1), seed=0)
    assert both.counts == {"contrast": 2, "correction": 1}
    assert [found.answered for found in both.pairs] == [step.make_ref(place) for place in (A0, A1, B0)]
    assert len({found.id for found in both.pairs}) == 3


def test_what_most_propose_corrects_in_the_words_that_were_surest() -> None:
    said = {A0: (7, 0.9), B0: (3, 0.0), A1: (7, 0.8), B1: (5, 1.0)}
    step = judged(said, heard={B0: (A0,)})
    assert find_correction(step, step.matrix[B0]) == step.matrix[A0], "of equals the first"
    sure = {A0: (-2.0, -1.0), A1: (-0.5, -2.0), B1: (-0.1,)}
    cells = tuple(replace(cell, logprobs=sure.get(cell.cell)) for cell in step.matrix)
    told = replace(step, matrix=replace(step.matrix, utterances=cells))
    assert find_correction(told, told.matrix[B0]) == told.matrix[A1], "7 was proposed twice, and said there with -2.5"
    assert find_correction(told, told.matrix[A0]) is None, "its own action is rewarded"
    alike = judged(said, heard={B0: (A0,), B1: (A0,)})
    assert find_correction(alike, alike.matrix[B0]) == alike.matrix[B1], "who heard the same knows best"
    alone = judged({A0: (7, 0.1), B0: (3, 0.0)})
    assert find_correction(alone, alone.matrix[B0]) is None
    assert not build_step_pairs(alone, CORRECTION, seed=0).pairs


def test_why_there_is_nothing_to_correct_is_counted() -> None:
    """By the cells that are concerned; a missing score is neither right nor wrong."""
    wrong = judged({A0: (7, 0.1), B0: (3, 0.5), A1: (4, None)})
    right = judged({A0: (7, 0.9), B0: (3, 1.0), A1: (4, None)})
    unknown = judged({A0: (7, None)})
    made = build_pairs([wrong, right, unknown], CORRECTION, seed=0)
    assert (made.pairs, made.counts) == ((), {NOBODY_RIGHT: 2, ALL_RIGHT: 2})
    mixed = build_step_pairs(right, Sources(adversary=0, contrast=1, correction=1), seed=0)
    assert mixed.counts == {NOTHING: 2}, "told once"


def test_corrections_are_drawn_by_chance_and_by_name() -> None:
    steps = [judged(TEAM, step=index) for index in range(200)]
    made = build_pairs(steps, Sources(adversary=0, correction=0.3), seed=5)
    assert 40 < made.counts["correction"] < 80
    assert made.off_context == 0
    assert build_step_pairs(judged(TEAM, heard={B0: (A0,)}), CORRECTION, seed=0).off_context == 1
    assert {one.id for one in made.pairs} < {one.id for one in build_pairs(steps, CORRECTION, seed=5).pairs}


# ------------------------------------------------------------------------------------------------------ laws

CELLS = [CellRef(agent, round) for round in range(2) for agent in ("ada", "ben", "cyd")]
SAID = st.fixed_dictionaries(
    {ref: st.tuples(st.none() | st.integers(0, 3), st.none() | st.sampled_from([0.0, 0.5, 0.6, 1.0])) for ref in CELLS}
)
STEPS = st.builds(
    lambda said, negatives, step, episode: judged(said, negatives=negatives, step=step, trajectory=f"T/{episode}"),
    SAID,
    st.dictionaries(st.sampled_from(CELLS), st.integers(0, 3)),
    st.integers(0, 5),
    st.integers(0, 2),
)
SOURCES = st.sampled_from([ADVERSARY, CONTRAST, MIX, CORRECTION, Sources(adversary=1, contrast=2, correction=0.5)])


@given(STEPS, SOURCES, st.integers(0, 2**32), st.none() | st.integers(1, 4))
def test_no_pair_prefers_an_action_to_itself_or_to_a_rewarded_one(
    step: JudgedStep, sources: Sources, seed: int, cap: int | None
) -> None:
    made = build_step_pairs(step, sources, seed, cap=cap)
    for one in made.pairs:
        chosen = step.matrix[one.chosen[0].cell]
        worse = step.matrix[one.rejected[0].cell].action if one.rejected else step.negatives[chosen.cell].action
        assert worse is not None
        assert worse != chosen.action
        assert worse not in list_rewarded_actions(step)
        assert one.answered is not None
        assert one.prompt == step.matrix[one.answered.cell].prompt.hash
    assert len({one.answered for one in made.pairs}) == len(made.pairs) <= (cap or len(CELLS))
    names = ("adversary", "contrast", "correction")
    assert sum(made.counts[name] for name in names) == len(made.pairs)
    if cap is None and (sources.adversary or sources.contrast):
        assert sum(made.counts[why] for why in ("adversary", "contrast", NOTHING)) == len(list_rewarded(step))


@given(STEPS, SOURCES, st.integers(0, 2**32))
def test_missing_rewards_are_on_neither_side(step: JudgedStep, sources: Sources, seed: int) -> None:
    missing = {one.cell for one in step.judgement.rewards.rewards if one.score is None}
    for one in build_step_pairs(step, sources, seed).pairs:
        assert not missing & {ref.cell for ref in (*one.chosen, *one.rejected)}


@settings(max_examples=examples(50))
@given(st.lists(STEPS, max_size=5, unique_by=lambda step: step.place), SOURCES, st.randoms(use_true_random=False))
def test_the_order_of_what_is_given_changes_nothing(
    steps: list[JudgedStep], sources: Sources, rng: random.Random
) -> None:
    mixed = [_shuffled(step, rng) for step in steps]
    rng.shuffle(mixed)
    first, second = build_pairs(steps, sources, 4, cap=3), build_pairs(mixed, sources, 4, cap=3)
    assert first == second
    found = [one.answered for one in first.pairs if one.answered is not None]
    places = [(one.trajectory, one.step, one.cell) for one in found]
    assert len(places) == len(first.pairs)
    assert places == sorted(places)


def _shuffled(step: JudgedStep, rng: random.Random) -> JudgedStep:
    """The same step with its cells, rewards and negatives told in another order."""
    cells, rewards = list(step.matrix), list(step.judgement.rewards.rewards)
    negatives = list(step.negatives.items())
    for listed in (cells, rewards, negatives):
        rng.shuffle(listed)  # type: ignore[arg-type]
    matrix = replace(step.matrix, utterances=tuple(cells))
    told = replace(step.judgement, rewards=replace(step.judgement.rewards, rewards=tuple(rewards)))
    return replace(step, matrix=matrix, judgement=told, negatives=dict(negatives))


@given(STEPS, st.integers(0, 2**32))
def test_ids_tell_pairs_apart_and_do_not_know_the_critic(step: JudgedStep, seed: int) -> None:
    made = build_step_pairs(step, MIX, seed)
    assert len({one.id for one in made.pairs}) == len(made.pairs)
    other = replace(step.judgement, rewards=replace(step.judgement.rewards, critic="llm-1"))
    again = build_step_pairs(replace(step, judgement=other), MIX, seed)
    assert [one.id for one in again.pairs] == [one.id for one in made.pairs]


def test_ids_depend_on_what_was_said_and_read() -> None:
    step = judged({A0: (7, 1.0), B0: (3, 0.0)})
    (one,) = build_step_pairs(step, CONTRAST, seed=0).pairs
    for change in (
        {"text": "other words"},
        {"prompt": PromptRef(prefix="p", suffix="You are somebody else.", layout="1")},
    ):
        first, *others = step.matrix.utterances
        changed = replace(step, matrix=replace(step.matrix, utterances=(replace(first, **change), *others)))  # type: ignore[arg-type]
        assert build_step_pairs(changed, CONTRAST, seed=0).pairs[0].id != one.id
    assert build_step_pairs(judged({A0: (7, 1.0), B0: (3, 0.0)}, step=4), CONTRAST, seed=0).pairs[0].id != one.id


def test_those_that_heard_the_same_read_the_same_screen() -> None:
    one, other = cell(A0, 1), cell(B0, 2)
    assert is_heard_alike(one, other)
    assert not is_heard_alike(one, replace(other, heard=(A0,)))
    assert not is_heard_alike(one, replace(other, prompt=replace(other.prompt, prefix="of another agents file")))


# ------------------------------------------------------------------------------------------------- difference


def test_another_critic_turns_adds_and_drops_pairs() -> None:
    before = build_pairs(
        [judged({A0: (7, 1.0), B0: (3, 0.0)}), judged({A0: (7, 1.0), B0: (3, 0.0)}, step=4)], CONTRAST, 0
    )
    after = build_pairs(
        [
            judged({A0: (7, 0.0), B0: (3, 1.0)}),
            judged({A0: (7, 1.0), B0: (3, None)}, step=4),
            judged({A0: (1, 1.0), B0: (2, 0.0)}, step=5),
        ],
        CONTRAST,
        0,
    )
    found = compare_pairs(before.pairs, after.pairs)
    assert [(old.chosen[0].cell, new.chosen[0].cell) for old, new in found.flipped] == [(A0, B0)]
    assert [one.chosen[0].step for one in found.dropped] == [4]
    assert [one.chosen[0].step for one in found.added] == [5]
    assert not found.kept
    assert not found.empty


def test_a_contrast_and_a_correction_of_the_same_replies_turn_each_by_itself() -> None:
    both = Sources(adversary=0, contrast=1, correction=1)
    before, after = (
        build_step_pairs(judged({A0: (7, score), B0: (3, 1 - score)}, calls=True), both, seed=0).pairs
        for score in (1.0, 0.0)
    )
    changed = compare_pairs(before, after)
    assert [(one.source, other.source) for one, other in changed.flipped] == [("correction",) * 2, ("contrast",) * 2]
    assert changed.added == changed.dropped == changed.kept == ()


def test_why_a_correction_is_gone() -> None:
    before = build_step_pairs(judged({A0: (7, 1.0), B0: (3, 0.0), A1: (9, 0.0)}), CORRECTION, seed=0).pairs
    after = build_step_pairs(judged({A0: (7, 0.0), B0: (3, 0.0), A1: (9, 1.0)}), CORRECTION, seed=0).pairs
    gone = compare_pairs(before, after).dropped
    assert count_causes(gone, after, None, 0.5) == {OTHER_BETTER: 1}
    assert count_causes(before, (), None, 0.5) == {NOT_CORRECTED: 2}


def test_another_negative_is_another_pair_and_never_turned() -> None:
    said = {A0: (7, 1.0)}
    before = build_step_pairs(judged(said, negatives={A0: 5}), ADVERSARY, 0).pairs
    after = build_step_pairs(judged(said, negatives={A0: 4}), ADVERSARY, 0).pairs
    found = compare_pairs(before, after)
    assert (found.dropped, found.added, found.flipped) == (before, after, ())


@settings(max_examples=examples(50))
@given(STEPS, STEPS, st.integers(0, 99))
def test_every_pair_is_in_exactly_one_part_of_the_difference(one: JudgedStep, other: JudgedStep, seed: int) -> None:
    before, after = build_step_pairs(one, MIX, seed).pairs, build_step_pairs(other, MIX, seed).pairs
    found = compare_pairs(before, after)
    old = [*found.dropped, *found.kept, *(pair for pair, _ in found.flipped)]
    new = [*found.added, *found.kept, *(pair for _, pair in found.flipped)]
    assert sorted(pair.id for pair in old) == sorted(pair.id for pair in before)
    assert sorted(pair.id for pair in new) == sorted(pair.id for pair in after)
    assert compare_pairs(before, before).empty
    turned = compare_pairs(after, before)
    assert set(turned.flipped) == {(new, old) for old, new in found.flipped}
    assert (turned.added, turned.dropped) == (found.dropped, found.added)


# ------------------------------------------------------------------------------------------------ trajectories


def test_whole_trajectories_are_paired_by_outcome(corridor) -> None:  # type: ignore[no-untyped-def]
    _, _, (doors, word) = corridor

    def played(number: int, success: bool | None, like: Trajectory = doors) -> Trajectory:
        outcome = None if success is None else Outcome(success=success, score=float(success))
        return replace(like, id=f"{like.task.name}/{number}", episode=number, outcome=outcome)

    given = [
        *(played(0, True), played(1, False), played(2, None), played(3, True), played(4, False), played(5, False)),
        *(played(0, True, word), played(1, None, word)),
    ]
    made = build_trajectory_pairs(given, seed=0)
    assert [one.chosen[0].trajectory for one in made] == ["OpenDoors/0", "OpenDoors/3"]
    rejected = {one.rejected[0].trajectory for one in made}
    assert len(rejected) == 2
    assert rejected < {"OpenDoors/1", "OpenDoors/4", "OpenDoors/5"}
    for one in made:
        assert len(one.chosen) == len(one.rejected) == sum(1 for step in doors.steps for _ in step.matrix)
        assert (one.prompt, one.critic, one.synthetic, one.source) == (None, None, None, "trajectory")
        assert one.policy == doors.steps[0].matrix.utterances[0].policy
    assert build_trajectory_pairs(reversed(given), seed=0) == made
