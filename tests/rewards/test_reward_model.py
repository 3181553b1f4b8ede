"""A reward model as the critic: which text it reads, what its numbers come to, and what is missing."""

from __future__ import annotations

import asyncio
import math
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collab.errors import ConfigError
from collab.library import find_builtin_root
from collab.models.reward_model import RewardModel
from collab.rewards.base import NO_NUMBER, UNREAD, CriticInput, build_inputs
from collab.rewards.reward_model import TOO_LONG, ModelCritic, ScoringPrompts, read_scoring_prompts, score_of
from collab.rewards.structured_replies import hash_prompt
from collab.testing.tiny_checkpoint import make_tiny_checkpoint

TEXTS = read_scoring_prompts(find_builtin_root() / "prompts" / "critic-model")
NUMBER = st.floats(-700, 700)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch").set_num_threads(1)
    return make_tiny_checkpoint(tmp_path_factory.mktemp("reward"), labels=1, hidden=32)


@pytest.fixture(scope="module")
def scorer(folder: Path) -> Iterator[RewardModel]:
    model = RewardModel(path=str(folder))
    yield model
    asyncio.run(model.close())


@pytest.fixture(scope="module")
def case(phone) -> CriticInput:  # type: ignore[no-untyped-def]
    """A step behind the first whose cells propose several actions, one of them more than once."""
    suite, _, episodes = phone
    return next(
        case
        for episode in episodes
        for case in build_inputs(episode, suite.space)
        if case.history and 1 < len(case.group_proposals()) < len([cell for cell in case.matrix if cell.action])
    )


# ------------------------------------------------------------------------------------------------------- the text


def test_a_step_is_read_as_it_is_written_down(case: CriticInput) -> None:
    prompts = ScoringPrompts(TEXTS)
    state = prompts.render_state(case, 10)
    assert state.system.startswith("You see a task in a phone, what was done before and the screen; ")
    first = case.history[0]
    assert state.user.startswith(f"Task: {case.task.goal}\n\nDone before:\n1. {first.action} -> {first.effect}\n")
    assert state.user.endswith(f"\n\n{case.observation.text}")
    assert "Done before" not in prompts.render_state(case, 0).user
    for action in case.group_proposals():
        words, written = prompts.render_action(case, action).splitlines()
        assert words == case.space.describe(action, case.observation)
        assert case.space.parse(written) == action


def test_only_the_last_steps_are_told_by_their_numbers(case: CriticInput) -> None:
    long = replace(case, history=(case.history[0],) * 12)
    told = ScoringPrompts(TEXTS).render_state(long, 2).user.splitlines()
    assert [line.partition(".")[0] for line in told if " -> " in line] == ["11", "12"]


def test_templates_that_do_not_fit_are_named(case: CriticInput, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"need system\.jinja, state\.jinja, action\.jinja"):
        read_scoring_prompts(tmp_path)
    with pytest.raises(ConfigError, match=r"prompts/critic-model: action\.jinja missing"):
        ScoringPrompts({"system": "x", "state": "y"})
    for text, told in (("{{ mood }}", "'mood' is undefined"), ("  ", "says nothing of an action")):
        with pytest.raises(ConfigError, match=rf"prompts/critic-model/action\.jinja: {told}"):
            ScoringPrompts({**TEXTS, "action": text}).render_action(case, next(iter(case.group_proposals())))


# ------------------------------------------------------------------------------------------------------ the score


def test_scores_worked_out_by_hand() -> None:
    assert score_of([0.0]) == score_of([3.0, 3.0]) == 0.5
    assert score_of([math.log(3)]) == pytest.approx(0.75)
    assert score_of([1.0, 1.0 + math.log(4)]) == pytest.approx(0.8)  # of "good", the second
    assert score_of([-1000.0]) == 0.0
    for logits in ([math.nan], [math.inf], [math.inf, math.inf], [0.0, math.nan]):
        assert score_of(logits) is None


@given(NUMBER, NUMBER)
def test_a_score_grows_with_its_logit_and_two_labels_are_their_difference(one: float, other: float) -> None:
    low, high = score_of([min(one, other)]), score_of([max(one, other)])
    assert low is not None
    assert high is not None
    assert 0 <= low <= high <= 1
    assert score_of([one, other]) == score_of([other - one])


# ----------------------------------------------------------------------------------------------------- the critic


def test_every_distinct_action_is_scored_once_for_all_who_proposed_it(case: CriticInput, scorer: RewardModel) -> None:
    critic = ModelCritic(scorer=scorer, texts=TEXTS)
    judgement, proposed = asyncio.run(critic.judge(case)), case.group_proposals()
    assert len(judgement.calls) == len(proposed)
    for (action, cells), call, prompt in zip(
        proposed.items(), judgement.calls, critic.build_prompts(case), strict=True
    ):
        assert call.cells == tuple(cell.cell for cell in cells)
        assert call.prompt == hash_prompt(prompt)
        assert prompt.user.endswith(ScoringPrompts(TEXTS).render_action(case, action))
        (score,) = {judgement.of(cell.cell).score for cell in cells}
        logit = float(call.reply.removeprefix("logit "))
        assert score == pytest.approx(1 / (1 + math.exp(-logit)), abs=1e-5)
        assert judgement.of(cells[0].cell).reason == call.reply
        assert (call.model, call.completion_tokens, call.cost_usd) == (scorer.policy.base, 0, 0.0)
        assert call.prompt_tokens == scorer.length(
            ScoringPrompts(TEXTS).render_state(case, 10), [prompt.segments[0].text]
        )
    assert len({judgement.of(cells[0].cell).score for cells in proposed.values()}) == len(proposed)


def test_a_step_has_the_same_scores_whoever_is_judged_beside_it(case: CriticInput, scorer: RewardModel) -> None:
    critic = ModelCritic(scorer=scorer, texts=TEXTS)
    other = replace(case, task=replace(case.task, goal="Something else."))

    async def at_once() -> list[object]:
        return [one.rewards for one in await asyncio.gather(*(critic.judge(each) for each in (other, case, other)))]

    alone = asyncio.run(critic.judge(case)).rewards
    assert asyncio.run(at_once())[1] == alone


def test_cells_that_did_not_parse_are_missing_and_a_step_of_them_is_not_read(
    case: CriticInput, scorer: RewardModel
) -> None:
    silent = replace(case.matrix, utterances=tuple(replace(cell, action=None) for cell in case.matrix))
    judgement = asyncio.run(ModelCritic(scorer=scorer, texts=TEXTS).judge(replace(case, matrix=silent)))
    assert judgement.missing == Counter({UNREAD: len(silent.utterances)})
    assert judgement.calls == ()


def test_history_gives_way_before_the_step_does_and_what_does_not_fit_is_missing(
    case: CriticInput, scorer: RewardModel
) -> None:
    long = replace(case, history=case.history * 10)
    bare = [scorer.length(ScoringPrompts(TEXTS).render_state(long, told), ["x" * 40]) for told in (0, 1)]
    tight = ModelCritic(scorer=scorer, texts=TEXTS, context_tokens=bare[1] + 40)
    assert all("Done before" in prompt.user and "\n1. " not in prompt.user for prompt in tight.build_prompts(long))
    judgement = asyncio.run(ModelCritic(scorer=scorer, texts=TEXTS, context_tokens=100).judge(long))
    assert judgement.missing == Counter({TOO_LONG: sum(cell.action is not None for cell in case.matrix)})
    with pytest.raises(ConfigError, match="history -1"):
        ModelCritic(scorer=scorer, texts=TEXTS, history=-1)


def test_a_checkpoint_that_computes_nan_leaves_everything_missing(
    case: CriticInput, folder: Path, tmp_path: Path
) -> None:
    from safetensors.torch import load_file, save_file

    spoilt = Path(shutil.copytree(folder, tmp_path / "spoilt"))
    weights = load_file(spoilt / "model.safetensors")
    weights["score.weight"].fill_(math.nan)
    save_file(weights, spoilt / "model.safetensors", metadata={"format": "pt"})
    model = RewardModel(path=str(spoilt))
    judgement = asyncio.run(ModelCritic(scorer=model, texts=TEXTS).judge(case))
    asyncio.run(model.close())
    assert judgement.missing == Counter({NO_NUMBER: sum(cell.action is not None for cell in case.matrix)})
    assert {one.reward for one in judgement.rewards.rewards} == {None}
