import dataclasses
import inspect
import math
from dataclasses import FrozenInstanceError, replace

import pytest

import collab.types
from collab.envs.grammar import MOBILE
from collab.store.rewards import CellReward
from collab.types import (
    Action,
    ActionMatrix,
    Box,
    CellRef,
    Element,
    Observation,
    Outcome,
    Point,
    PolicyRef,
    Prompt,
    PromptRef,
    Sampling,
    Segment,
    StepResult,
    Task,
    Trajectory,
    Utterance,
)

NOUNS = [noun for _, noun in inspect.getmembers(collab.types, inspect.isclass) if dataclasses.is_dataclass(noun)]


@pytest.mark.parametrize("noun", NOUNS, ids=lambda noun: noun.__name__)
def test_nouns_are_frozen_slotted_and_keyword_only(noun):
    assert noun.__dataclass_params__.frozen
    assert hasattr(noun, "__slots__")
    assert all(field.kw_only for field in dataclasses.fields(noun))
    assert noun.__doc__
    assert not noun.__doc__.startswith(f"{noun.__name__}(")


def test_nouns_cannot_be_changed():
    outcome = Outcome(success=True, score=1.0)
    with pytest.raises(FrozenInstanceError):
        outcome.score = 0.0
    with pytest.raises(TypeError):
        Outcome(True, 1.0)


def test_box():
    box = Box(10, 20, 30, 60)
    assert box.center == (20, 40)
    assert box.area == 800
    assert Box(10, 10, 5, 20).area == 0
    inside = [(10, 20), (29, 59), (29.9, 59.9)]
    outside = [(9, 20), (30, 20), (10, 60), (10, 19.9)]
    assert all(box.contains(x, y) for x, y in inside)
    assert not any(box.contains(x, y) for x, y in outside)
    assert (box.left, box.top, box.right, box.bottom) == tuple(box)


def observation(**changes):
    fields = {"space": "mobile", "title": "Notes", "elements": (), "text": "Screen: Notes"}
    return Observation(**(fields | changes))


def test_the_digest_is_what_a_policy_can_see():
    base = observation()
    assert len(base.digest) == 64
    assert base.digest == observation().digest
    seen = [{"title": "Note"}, {"text": "Screen"}, {"url": "http://a"}, {"notice": "saved"}, {"space": "web"}]
    assert len({observation(**change).digest for change in seen} | {base.digest}) == 6
    hidden = [
        {"elements": (Element(index=0, role="text", label="a"),)},
        {"width": 100},
        {"drawing": {"dark": True}},
        {"screenshot": "0" * 64},
    ]
    assert {observation(**change).digest for change in hidden} == {base.digest}
    assert observation(title="ab", text="c").digest != observation(title="a", text="bc").digest
    assert observation(text="\ud800").digest != base.digest


def test_prompt_parts_join_without_seams():
    prompt = Prompt(
        system="s", shared="Task: x\n", segments=(Segment(text="Ada: "), Segment(text="hi\n", tokens=(1, 2)))
    )
    assert prompt.suffix == "Ada: hi\n"
    assert prompt.user == "Task: x\nAda: hi\n"
    assert replace(prompt, segments=()).user == "Task: x\n"


def utterance(agent, round, action=None):
    return Utterance(
        agent=agent,
        round=round,
        heard=(),
        text="",
        reason="",
        action=action,
        failure=None,
        prompt=PromptRef(prefix="", suffix="", layout="1"),
        policy=PolicyRef(base="m"),
        sampling=Sampling(),
        seed=0,
    )


def test_a_matrix_is_found_by_cell_and_read_in_order():
    cells = (utterance("ada", 0), utterance("ben", 0), utterance("ada", 1), utterance("ben", 1))
    matrix = ActionMatrix(agents=("ada", "ben"), rounds=2, edges=(("ada", "ben"),), utterances=cells)
    assert [one.cell for one in matrix] == [("ada", 0), ("ben", 0), ("ada", 1), ("ben", 1)]
    assert matrix["ben", 1] is cells[3]
    assert matrix[CellRef("ada", 0)] is cells[0]
    with pytest.raises(KeyError):
        matrix["eve", 0]


def test_results_are_done_in_two_ways():
    result = StepResult(observation=observation())
    assert not result.done
    assert replace(result, terminated=True).done
    assert replace(result, truncated=True).done


def test_only_a_solved_episode_is_a_success():
    task = Task(environment="e", name="t", seed=0, goal="g")
    episode = Trajectory(id="t/0", task=task, episode=0, epoch=0, steps=(), final=None, outcome=None)
    assert not episode.success
    assert not replace(episode, outcome=Outcome(success=False, score=0.9)).success
    assert replace(episode, outcome=Outcome(success=True, score=1.0)).success


@pytest.mark.parametrize(("score", "reward"), [(0.0, 0), (0.5, 0), (0.51, 1), (1.0, 1), (None, None)])
def test_a_reward_is_one_above_a_half(score, reward):
    assert CellReward(cell=CellRef("ada", 0), score=score).reward == reward


def test_actions_are_values():
    one = MOBILE.make("scroll", direction="up", index=3)
    other = Action(space="mobile", type="scroll", target=one.target, arguments=(("direction", "up"),))
    assert one == other
    assert hash(one) == hash(other)
    assert len({one, other, MOBILE.make("scroll", direction="down", index=3)}) == 2


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan])
def test_actions_hold_finite_numbers(number):
    with pytest.raises(ValueError, match="is no finite number"):
        Action(space="mobile", type="click", target=Point(x=0.0, y=number))
    with pytest.raises(ValueError, match="is no finite number"):
        Action(space="mobile", type="wait", arguments=(("seconds", number),))
