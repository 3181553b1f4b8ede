"""Pro Expense, the app that nothing is trained on: its words give it away, and no other app says them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator

import pytest

from collab.config import EnvironmentDefinition
from collab.data.splits import split_words
from collab.envs.grammar import MOBILE
from collab.envs.random_actions import draw_action
from collab.envs.simphone.apps.expense import PACKAGE
from collab.envs.simphone.core import SimPhone
from collab.envs.simphone.state import LAUNCHER, Phone
from collab.envs.simphone.suite import SimPhoneSuite
from collab.envs.simphone.touch import act
from collab.envs.simphone.ui.screen import Frame, look
from collab.library import Library, find_builtin_root
from collab.seeds import generator

DEFINITION = Library().load("envs", "androidworld", EnvironmentDefinition)
WORDS = set(DEFINITION.unseen.words)
EVERYDAY = {"category", "entry", "items", "logs", "statistics", "update"}
"""Words of its screens that any other app, prompt or notification may use, too."""
WHOLE = SimPhoneSuite()
TRAINING = SimPhoneSuite(without=DEFINITION.unseen.apps)


def core(suite: SimPhoneSuite) -> SimPhone:
    return asyncio.run(suite.open()).core


def phone_of(suite: SimPhoneSuite, task: str, seed: int) -> Phone:
    phone = core(suite)
    phone.reset(suite.instance(task, seed))
    return phone.phone


def after(frame: Frame, kind: str, **arguments: object) -> Phone:
    return act(frame, MOBILE.canonical(MOBILE.make(kind, **arguments), frame.observation))


def screens(phone: Phone, app: str) -> Iterator[Frame]:
    """Every kind of screen that taps reach in an app; two are of one kind when they differ in numbers alone."""
    todo = [look(after(look(phone), "open_app", app_name=app))]
    package = todo[0].phone.foreground
    seen = set()
    while todo:
        frame = todo.pop()
        kind = (frame.page.screen, re.sub(r"\d+", "", frame.observation.title))
        if kind in seen:
            continue
        seen.add(kind)
        yield frame
        reached = [
            after(frame, how, index=i) for i in range(len(frame.placed.nodes)) for how in ("click", "long_press")
        ]
        todo.extend(look(phone) for phone in reached if phone.foreground == package)


def own_screens(seed: int) -> list[Frame]:
    found = [*screens(phone_of(WHOLE, "ExpenseDeleteMultiple", seed), "Pro Expense")]
    return [*found, *screens(phone_of(WHOLE, "ExpenseAddSingle", seed), "Pro Expense")]


@pytest.fixture(scope="module")
def others() -> set[str]:
    """Words that training phones show, goals ask for and prompts say."""
    found: set[str] = set()
    for seed, info in enumerate(TRAINING.tasks()):
        tasks = [TRAINING.instance(info.name, seed + other) for other in range(12)]
        found = found.union(*(split_words(f"{task.goal} {task.params}") for task in tasks))
        phone = core(TRAINING)
        phone.reset(tasks[0])
        for action in phone.oracle() or ():
            found |= split_words(phone.frame.observation.text)
            phone.step(action)
    phone = phone_of(TRAINING, "MarkorDeleteNewestNote", 0)
    for app in phone.apps.all:
        if app.package != LAUNCHER:
            for frame in screens(phone, app.name):
                found |= split_words(frame.observation.text)
    prompts = (find_builtin_root() / "prompts").rglob("*.jinja")
    return found.union(*(split_words(path.read_text(encoding="utf-8")) for path in prompts))


def test_every_screen_of_the_app_says_one_of_its_words() -> None:
    frames = own_screens(seed=0)
    assert {frame.page.screen for frame in frames} >= set(frames[0].phone.apps.by_package[PACKAGE].screens)
    for frame in frames:
        assert split_words(frame.observation.text) & WORDS, frame.observation.text


def test_every_goal_of_its_tasks_says_one_of_its_words() -> None:
    tasks = [info.name for info in WHOLE.tasks() if "pro expense" in info.apps]
    assert len(tasks) == 8
    for name in tasks:
        for seed in range(40):
            assert split_words(WHOLE.instance(name, seed).goal) & WORDS


@pytest.mark.medium
def test_the_words_are_those_of_its_screens_that_no_other_app_says(others: set[str]) -> None:
    """Words that its screens show whatever they hold; change `unseen.words` in envs/androidworld.yaml when it fails."""
    fixed = set.intersection(
        *({word for frame in own_screens(seed) for word in split_words(frame.observation.text)} for seed in range(1, 9))
    )
    assert fixed - others - EVERYDAY <= WORDS


def test_no_training_phone_goal_or_prompt_says_one_of_them(others: set[str]) -> None:
    assert not others & WORDS
    assert len(others) > 1000


def test_a_distracting_training_phone_does_not_say_one_either() -> None:
    suite = SimPhoneSuite(preset="hostile", without=DEFINITION.unseen.apps)
    titles = set()
    for seed, info in enumerate(suite.tasks()[::2]):
        phone, rng = core(suite), generator(seed)
        observation = phone.reset(suite.instance(info.name, seed))
        for _ in range(8):
            assert not split_words(observation.text) & WORDS, observation.text
            titles.add(observation.title)
            observation = phone.step(draw_action(MOBILE, observation, rng, ending=False)).observation
    assert len(titles) > 20


def test_every_word_is_used_by_the_app() -> None:
    goals = {
        WHOLE.instance(name, seed).goal
        for name in ("ExpenseAddMultiple", "ExpenseAddMultipleFromMarkor")
        for seed in range(20)
    }
    said = split_words(PACKAGE).union(
        *(split_words(goal) for goal in goals), *(split_words(frame.observation.text) for frame in own_screens(0))
    )
    assert said >= WORDS
