"""The sampling adversary: mistakes are possible here, never the right action, never to the same place."""

from __future__ import annotations

import asyncio
from itertools import islice

from hypothesis import given, settings
from hypothesis import strategies as st

from collab.envs.grammar import MOBILE, WEB, ActionSpace
from collab.envs.random_actions import draw_action
from collab.envs.simphone.suite import PhoneEnvironment, SimPhoneSuite
from collab.envs.solution import GOOD, SolutionScorer
from collab.envs.text import describe_screen
from collab.prompts.parse import read_reply, write_reply
from collab.rewards.mistakes import WEIGHTS, DecisionPoint, draw_mistake, draw_mistakes, draw_worse
from collab.seeds import generator
from collab.types import Box, Element, Observation

SUITE = SimPhoneSuite()
LABELS = st.text(max_size=12)
ELEMENTS = st.lists(
    st.builds(
        lambda role, label, value, box: (role, label, value, box),
        st.sampled_from(["button", "input", "switch", "canvas"]),
        LABELS,
        st.none() | LABELS,
        st.none() | st.tuples(st.integers(0, 500), st.integers(0, 900)),
    ),
    max_size=6,
)


def screen_of(parts: list[tuple[str, str, str | None, tuple[int, int] | None]], space: ActionSpace) -> Observation:
    elements = tuple(
        Element(
            index=index,
            role=role,
            label=label,
            value=value,
            box=None if box is None else Box(*box, box[0] + 90, box[1] + 60),
            flags=("surface",) if role == "canvas" else (),
        )
        for index, (role, label, value, box) in enumerate(parts)
    )
    return Observation(space=space.name, title="Test", elements=elements, text=describe_screen("Test", elements))


@given(st.sampled_from([MOBILE, WEB]), ELEMENTS, st.integers(0, 2**32))
def test_a_mistake_can_be_said_here_and_is_never_the_right_action(space, parts, seed) -> None:  # type: ignore[no-untyped-def]
    rng, screen = generator(seed), screen_of(parts, space)
    right = space.canonical(draw_action(space, screen, rng), screen)
    spot = DecisionPoint(observation=screen, space=space, last=draw_action(space, screen, rng))
    drawn = list(islice(draw_mistakes(right, spot, rng), 12))
    assert drawn
    for one in drawn:
        assert one.action != right
        assert space.canonical(one.action, screen) == one.action
        assert read_reply(write_reply("so", one.action, space), space, screen).action == one.action


@settings(max_examples=25)
@given(st.sampled_from([info.name for info in SUITE.tasks()]), st.integers(0, 10**6), st.integers(0, 30))
def test_on_a_phone_a_worse_action_is_not_good_and_leads_elsewhere(task: str, seed: int, depth: int) -> None:
    core = SUITE.phone()
    core.reset(SUITE.instance(task, seed))
    solution = core.oracle() or ()
    for action in solution[: depth % len(solution)]:
        core.step(action)
    right = (core.oracle() or ())[0]

    async def check() -> None:
        environment = PhoneEnvironment(core)
        spot = DecisionPoint(observation=core.frame.observation, space=MOBILE)
        critic = SolutionScorer(environment)
        found = await draw_worse(environment, right, spot, generator(seed), critic=critic)
        assert found is not None
        assert found.action != right
        assert (await critic(found.action)).score < GOOD
        one, other = core.fork(), core.fork()
        first, second = one.step(right), other.step(found.action)
        assert (one.phone, first.outcome) != (other.phone, second.outcome)

    asyncio.run(check())


def test_all_kinds_of_mistakes_are_made_and_the_seed_decides() -> None:
    screen = screen_of(
        [("input", "Name", "", None), ("button", "Save", None, None), ("button", "Close", None, None)], MOBILE
    )
    right = MOBILE.make("input_text", index=0, text="Ada Lovelace")
    spot = DecisionPoint(observation=screen, space=MOBILE, last=MOBILE.make("click", index=0))
    drawn = list(islice(draw_mistakes(right, spot, generator(1)), 300))
    assert {one.kind for one in drawn} == set(WEIGHTS)
    assert drawn == list(islice(draw_mistakes(right, spot, generator(1)), 300))


def test_where_nothing_else_is_possible_there_is_no_mistake() -> None:
    alone = ActionSpace(name="one", syntax="json", index_field="index", points=False, specs=(MOBILE.spec("wait"),))
    screen = screen_of([], MOBILE)
    assert draw_mistake(alone.make("wait"), DecisionPoint(observation=screen, space=alone), generator(0)) is None
