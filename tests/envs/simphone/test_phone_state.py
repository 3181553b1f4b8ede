"""Forks, replays, canonical actions, databases and the suite around the phone."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from contextlib import closing

import pytest

from collab.envs.base import Forkable, HasOracle, HasScreenshot
from collab.envs.grammar import MOBILE
from collab.envs.random_actions import draw_action
from collab.envs.simphone import state
from collab.envs.simphone.apps import STANDARD, system
from collab.envs.simphone.content.messages import SMS_DATABASE, list_conversations
from collab.envs.simphone.content.people import CONTACTS_DATABASE, list_people
from collab.envs.simphone.core import SimPhone
from collab.envs.simphone.distractions.presets import Distractions
from collab.envs.simphone.shell.tree import load_database
from collab.envs.simphone.suite import SimPhoneSuite
from collab.envs.simphone.tasks import TASKS
from collab.errors import EnvironmentFailure, UnknownName
from collab.types import Action, Element, ElementTarget, Observation

SUITE = SimPhoneSuite()
NAMES = [spec.name for spec in TASKS]
WORDS = ("Settings", "markor", "Simple SMS Messenger", "Contacts", "Clock", "Files", "two\nlines", "milk")


def wander(phone: SimPhone, rng: random.Random, steps: int) -> list[Action]:
    """Play a mix of oracle and random steps; stops when the episode ends."""
    played: list[Action] = []
    for _ in range(steps):
        solution = phone.oracle() if rng.random() < 0.5 else None
        if solution and solution[0].type != "status":
            action = solution[0]
        else:
            action = draw_action(MOBILE, phone.frame.observation, rng, ending=False, words=WORDS)
        played.append(action)
        if phone.step(action).done:
            break
    return played


def start(name: str, seed: int = 1) -> SimPhone:
    phone = SimPhone()
    phone.reset(SUITE.instance(name, seed))
    return phone


@pytest.mark.parametrize("name", NAMES[::4])
def test_a_fork_equals_its_original_and_is_independent(name: str) -> None:
    rng = random.Random(3)
    phone = start(name)
    wander(phone, rng, 4)
    fork = phone.fork()
    frozen, observation = phone.phone, phone.frame.observation
    assert fork.phone == phone.phone
    assert fork.frame.observation == observation
    assert fork.oracle() == phone.oracle()
    wander(fork, rng, 3)
    assert phone.phone is frozen
    assert phone.frame.observation is observation
    one, other = phone.fork(), phone.fork()
    for _ in range(4):
        action = draw_action(MOBILE, one.frame.observation, rng, ending=False, words=WORDS)
        assert one.step(action) == other.step(action)


@pytest.mark.parametrize("name", NAMES[1::4])
def test_an_episode_is_rebuilt_from_task_and_actions(name: str) -> None:
    phone = start(name)
    played = wander(phone, random.Random(8), 8)
    again = start(name)
    for action in played:
        again.step(action)
    assert again.phone == phone.phone
    assert again.frame.observation == phone.frame.observation


@pytest.mark.parametrize("name", NAMES[2::4])
def test_equal_canonical_actions_lead_to_equal_states(name: str) -> None:
    rng = random.Random(name)
    phone = start(name)
    for _ in range(8):
        target = rng.choice(phone.frame.observation.elements)
        x, y = inner_point(phone.frame.observation, target)
        if x is not None and y is not None:
            for type in ("click", "long_press", "double_tap"):
                by_index, by_point = phone.fork(), phone.fork()
                index = by_index.step(MOBILE.make(type, index=target.index))
                point = by_point.step(MOBILE.make(type, x=x, y=y))
                normal = phone.fork().step(MOBILE.make(type, x=(x + 0.5) / 1080, y=(y + 0.5) / 2400, normalised=True))
                assert index == point == normal
                assert by_index.phone == by_point.phone
        wander(phone, rng, 1)
        if phone.oracle() == ():
            break


def inner_point(observation: Observation, target: Element) -> tuple[int | None, int | None]:
    """A point that means `target`; None for a surface or an element that others cover."""
    assert target.box is not None
    y = target.box.top + 5
    for x in (target.box.left + 3, (target.box.left + target.box.right) // 2):
        action = MOBILE.canonical(MOBILE.make("click", x=x, y=y), observation)
        if action.target == ElementTarget(index=target.index):
            return x, y
    return None, None


def test_databases_are_real_sqlite_files_and_come_back() -> None:
    phone = start("SimpleSmsSendReceivedAddress").phone
    tables = [table for app in STANDARD.all for table in app.tables]
    data = state.dump(phone, SMS_DATABASE, tables)
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(data)
        bodies = {body for (body,) in connection.execute("SELECT body FROM sms WHERE type = 1")}
        assert bodies == {row["body"] for one in list_conversations(phone) for row in one.messages}
        connection.execute("DELETE FROM sms")
        connection.commit()
        emptied = connection.serialize()
    assert load_database(phone, SMS_DATABASE, data) == phone
    assert list_conversations(load_database(phone, SMS_DATABASE, emptied)) == []
    contacts = state.dump(phone, CONTACTS_DATABASE, tables)
    assert list_people(load_database(phone, CONTACTS_DATABASE, contacts)) == list_people(phone)


def test_screen_names_are_unique_over_all_apps() -> None:
    assert len(STANDARD.screens) == len(system.SCREENS) + sum(len(app.screens) for app in STANDARD.all)


def test_suite_opens_independent_environments() -> None:
    async def scenario() -> None:
        suite = SimPhoneSuite()
        assert (suite.name, suite.label, suite.version) == ("androidworld", "androidworld[simphone]", "simphone-2")
        assert len(suite.tasks()) == len(TASKS) >= 30
        assert all(info.oracle for info in suite.tasks())
        task = suite.instance("ContactsAddContact", 4)
        one, other = await suite.open(), await suite.open()
        assert isinstance(one, Forkable)
        assert isinstance(one, HasOracle)
        assert isinstance(one, HasScreenshot)
        assert await one.reset(task) == await other.reset(task)
        solution = one.oracle()
        assert solution is not None
        for action in solution:
            result = await one.step(action)
        assert result.outcome is not None
        assert result.outcome.success
        assert one.oracle() == ()
        fork = await other.fork()
        await fork.step(solution[0])
        assert other.core.phone != fork.core.phone
        assert (await other.step(None)).info["effect"] == "one second passed"
        await one.close()
        await one.close()
        await suite.close()

    asyncio.run(scenario())


def test_unknown_tasks_and_steps_after_the_end_are_refused() -> None:
    with pytest.raises(UnknownName, match="ContactsAddContact"):
        SUITE.instance("ContactAddContact", 0)
    phone = start("SystemWifiTurnOn")
    phone.step(MOBILE.make("status", goal_status="complete"))
    with pytest.raises(EnvironmentFailure, match="reset"):
        phone.step(None)


def test_noise_changes_the_phone_and_not_the_task() -> None:
    task = SUITE.instance("MarkorCreateNote", 2)
    quiet, noisy = SimPhone(distractions=Distractions(noise="none")), SimPhone()
    quiet.reset(task)
    noisy.reset(task)
    assert list_people(quiet.phone) == []
    assert list_people(noisy.phone)
    assert quiet.oracle()


def test_answers_are_kept() -> None:
    phone = start("SystemWifiTurnOn")
    result = phone.step(MOBILE.make("answer", text=" 42 "))
    assert phone.phone.answer == "42"
    assert result.info["effect"] == "noted the answer"
