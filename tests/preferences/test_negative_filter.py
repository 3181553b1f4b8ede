"""The negative filter drops unfit rejected replies with their cause, on real screens."""

from __future__ import annotations

import asyncio

import pytest

from collab.envs.base import Environment, HasOracle
from collab.envs.grammar import MOBILE
from collab.preferences.negatives import EQUALS_CHOSEN, EQUALS_REWARDED, REWARDED_STATE, SAME_STATE, filter_negative
from collab.prompts.parse import write_reply
from collab.rewards.base import CriticInput, build_inputs
from collab.rewards.oracle import open_reach
from collab.rewards.restore import StateRebuilder
from collab.types import Action

CONTACTS = MOBILE.make("open_app", app_name="Contacts")


def home(phone, states: bool = True) -> CriticInput:  # type: ignore[no-untyped-def]
    """The first step of a phone's episode: its launcher."""
    suite, _, (trajectory, _) = phone
    return next(iter(build_inputs(trajectory, suite.space, StateRebuilder(suite) if states else None)))


def icon(case: CriticInput, label: str) -> Action:
    (index,) = (element.index for element in case.observation.elements if element.label == label)
    return MOBILE.make("click", index=index)


def linted(
    case: CriticInput, said: str | Action, *, chosen: Action = CONTACTS, rewarded: tuple[Action, ...] = ()
) -> object:
    text = said if isinstance(said, str) else write_reply("I think so.", said, case.space)
    right = case.space.canonical(chosen, case.observation)

    async def look() -> Action | str:
        told = {"chosen": right, "rewarded": [case.space.canonical(one, case.observation) for one in rewarded]}
        if case.state is None:
            return await filter_negative(text, case.space, case.observation, **told)
        async with open_reach(case.state) as reach:
            return await filter_negative(text, case.space, case.observation, **told, reach=reach)

    return asyncio.run(look())


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ("", "does not parse: empty"),
        ("I would rather not say.", "does not parse: no_action"),
        ('Reason: so.\nAction: {"action_type": "teleport"}', "does not parse: unknown_type"),
        ('Reason: so.\nAction: {"action_type": "click", "index": 99}', "does not parse: no_such_element"),
        ('Reason: so.\nAction: {"action_type": "open_app", "app_name": " CONTACTS "}', EQUALS_CHOSEN),
    ],
)
def test_what_cannot_be_read_here_or_means_the_same_is_dropped(phone, said: str, cause: str) -> None:  # type: ignore[no-untyped-def]
    assert linted(home(phone), said) == cause


def test_what_another_rewarded_cell_did_is_dropped(phone) -> None:  # type: ignore[no-untyped-def]
    case = home(phone)
    camera = icon(case, "Camera")
    assert linted(case, camera) == camera
    assert linted(case, camera, rewarded=(camera,)) == EQUALS_REWARDED


def test_another_way_to_the_same_state_is_dropped_where_it_can_be_tried(phone) -> None:  # type: ignore[no-untyped-def]
    tapped = icon(home(phone), "Contacts")
    assert linted(home(phone), tapped) == SAME_STATE
    assert linted(home(phone, states=False), tapped) == tapped
    assert linted(home(phone), MOBILE.make("navigate_home"), chosen=MOBILE.make("wait")) == SAME_STATE


def test_another_way_to_where_a_rewarded_action_leads_is_dropped(phone) -> None:  # type: ignore[no-untyped-def]
    """Camera is chosen; a cell that opened Contacts by name was rewarded, so its icon is no worse."""
    case = home(phone)
    tapped = icon(case, "Contacts")
    assert linted(case, tapped, chosen=icon(case, "Camera")) == tapped
    assert linted(case, tapped, chosen=icon(case, "Camera"), rewarded=(CONTACTS,)) == REWARDED_STATE


class Unforked:
    """A state whose environment hides that it can fork."""

    def __init__(self, case: CriticInput) -> None:
        self.case, self.opened_times = case, 0

    def open(self):  # type: ignore[no-untyped-def]
        self.opened_times += 1
        return _Plain(self.case)


class _Plain:
    def __init__(self, case: CriticInput) -> None:
        assert case.state is not None
        self.inner = case.state.open()

    async def __aenter__(self) -> Environment:
        environment = await self.inner.__aenter__()
        return _Steps(environment)

    async def __aexit__(self, *why: object) -> None:
        await self.inner.__aexit__(*why)  # type: ignore[arg-type]


class _Steps:
    def __init__(self, environment: Environment) -> None:
        self.reset, self.step, self.close = environment.reset, environment.step, environment.close


def test_a_world_that_cannot_fork_is_made_anew_for_each_action_once(phone) -> None:  # type: ignore[no-untyped-def]
    case = home(phone)
    state = Unforked(case)

    async def compare() -> list[bool]:
        async with open_reach(state) as reach:
            app = await reach(CONTACTS)
            return [await reach(one) == app for one in (icon(case, "Contacts"), icon(case, "Camera"), CONTACTS)]

    assert asyncio.run(compare()) == [True, False, True]
    assert state.opened_times == 1 + 3


def test_trying_leaves_the_state_as_it_was(phone) -> None:  # type: ignore[no-untyped-def]
    case = home(phone)

    async def tried() -> None:
        assert case.state is not None
        async with case.state.open() as environment:
            assert isinstance(environment, HasOracle)
            before = environment.oracle()
        async with open_reach(case.state) as reach:
            first = await reach(CONTACTS)
            assert await reach(icon(case, "Settings")) != first
        async with case.state.open() as environment:
            assert isinstance(environment, HasOracle)
            assert environment.oracle() == before

    asyncio.run(tried())
