import random
from collections import Counter

import pytest

from collab.envs.grammar import MOBILE, WEB, ActionSpace, ActionSpec
from collab.envs.random_actions import ENDINGS, NASTY_WORDS, WORDS, draw_action, draw_junk_action
from collab.types import Action, Element, ElementTarget, Observation, Point

BOTH = pytest.mark.parametrize("space", [MOBILE, WEB], ids=["mobile", "web"])


def screen(count):
    elements = tuple(Element(index=index, role="button", label="b") for index in range(count))
    return Observation(space="mobile", title="", text="", elements=elements)


def draws(draw, count=3000, seed=1):
    rng = random.Random(seed)
    return [draw(rng) for _ in range(count)]


@BOTH
@pytest.mark.parametrize("count", [0, 1, 9])
def test_random_actions_parse_and_name_elements_that_exist(space, count):
    for action in draws(lambda rng: draw_action(space, screen(count), rng), 500):
        assert space.parse(space.format(action)) == action
        assert space.check(action, screen(count)) is None


@BOTH
def test_every_type_is_drawn_about_as_often(space):
    counts = Counter(action.type for action in draws(lambda rng: draw_action(space, screen(5), rng)))
    assert set(counts) == {spec.name for spec in space.listed_specs}
    expected = 3000 / len(space.listed_specs)
    assert all(0.7 * expected < count < 1.3 * expected for count in counts.values())


def test_every_element_is_drawn():
    actions = draws(lambda rng: draw_action(MOBILE, screen(5), rng))
    assert {action.target.index for action in actions if action.target} == set(range(5))
    assert {action.target is None for action in actions if action.type == "scroll"} == {True, False}


@BOTH
def test_endings_can_be_left_out(space):
    assert ENDINGS & set(space.types)
    actions = draws(lambda rng: draw_action(space, screen(2), rng, ending=False), 500)
    assert not {action.type for action in actions} & ENDINGS


@BOTH
def test_without_elements_nothing_is_aimed(space):
    actions = draws(lambda rng: draw_action(space, screen(0), rng), 500)
    assert all(action.target is None for action in actions)


def test_words_can_be_given():
    texts = {a.get("text") for a in draws(lambda rng: draw_action(MOBILE, screen(1), rng, words=("only",)), 300)}
    assert texts == {"only", None}
    assert {a.get("text") for a in draws(lambda rng: draw_action(MOBILE, screen(1), rng))} == {*WORDS, None}


@BOTH
def test_the_same_generator_gives_the_same_actions(space):
    one, other = (draws(lambda rng: draw_junk_action(space, screen(4), rng), 100, seed=5) for _ in range(2))
    assert one == other
    assert one != draws(lambda rng: draw_junk_action(space, screen(4), rng), 100, seed=6)


@BOTH
def test_junk_parses_and_is_of_every_kind(space):
    actions = draws(lambda rng: draw_junk_action(space, screen(4), rng))
    written = [action for action in actions if isinstance(action, Action)]
    assert len(written) < len(actions)
    assert all(space.parse(space.format(action)) == action for action in written)
    aimed = [action.target for action in written if action.target is not None]
    assert any(isinstance(target, ElementTarget) and target.index > 100 for target in aimed)
    assert any(isinstance(target, ElementTarget) and target.index < 4 for target in aimed)
    assert any(isinstance(target, Point) for target in aimed) is space.points
    said = {value for action in written for _, value in action.arguments}
    assert said >= set(NASTY_WORDS)
    assert {action.type for action in written} >= ENDINGS & set(space.types)


def test_a_space_without_targets_has_junk_too():
    space = ActionSpace(
        name="tiny", syntax="json", index_field="index", points=False, specs=(ActionSpec(name="go", phrase="", doc=""),)
    )
    assert draws(lambda rng: draw_junk_action(space, screen(3), rng), 5) == [None] * 5
