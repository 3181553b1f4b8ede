"""Other names: told everywhere in a row, while what is done in the environment stays the same."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from collab.envs.grammar import MOBILE
from collab.envs.simphone.suite import SimPhoneSuite
from collab.envs.text import describe_screen
from collab.prompts.parse import read_reply
from collab.seeds import generator
from collab.synthesis.conversation import Reader, Talk
from collab.synthesis.oracle_teacher import Amounts, ExampleCollector, OracleTeacher, Refusal
from collab.synthesis.renaming import Renaming, as_told, as_told_beside, rename_apps, rename_labels, rename_opened
from collab.synthesis.screens import list_app_names
from collab.synthesis.teacher import Scene
from collab.types import Element, HistoryEntry, Observation, Task

PRO = Renaming({"simple calendar pro": "Mirado Notes", "tasks": "Lantern"})


def scene(phones: SimPhoneSuite, *, goal: str = "g", title: str = "Tasks: My Tasks") -> Scene:
    elements = (
        Element(index=0, role="button", label="Save"),
        Element(index=1, role="input", label="Title", value="Save"),
        Element(index=2, role="app", label="Markor"),
        Element(index=3, role="text", label="A note that is far too long to be the name of anything"),
    )
    seen = Observation(
        space=MOBILE.name,
        title=title,
        elements=elements,
        text=describe_screen(title, elements, ["There is more below."]),
    )
    return Scene(
        suite=phones,
        environment=cast(Any, None),
        task=Task(name="t", environment="e", goal=goal, seed=1, max_steps=9),
        step=1,
        observation=seen,
        history=(HistoryEntry(action='open the app "tasks"', reason="", effect="opened Tasks: My Tasks"),),
        met="rollout",
        seed=1,
    )


def test_an_app_has_its_new_name_wherever_the_old_one_is_told(phones: SimPhoneSuite) -> None:
    said = "What does Simple Calendar Pro say? Open the simple calendar pro, not SIMPLE CALENDAR PROS."
    assert PRO.text(said) == "What does Mirado Notes say? Open the mirado notes, not SIMPLE CALENDAR PROS."
    shown = PRO.rename_scene(scene(phones, goal="Which tasks does Tasks hold?"))
    assert shown.task.goal == "Which tasks does Lantern hold?"
    assert shown.observation.title == "Lantern: My Lantern"
    assert shown.observation.text.split("\n")[:3] == [
        "Screen: Lantern: My Lantern",
        "There is more below.",
        'button "Save" [0]',
    ]
    assert shown.history[0].action == 'open the app "lantern"'
    assert shown.history[0].effect == "opened Lantern: My Lantern"
    assert PRO.rename_action(MOBILE.make("open_app", app_name="tasks")) == MOBILE.make("open_app", app_name="lantern")


def test_only_apps_that_a_goal_calls_by_name_are_renamed(phones: SimPhoneSuite) -> None:
    here = scene(phones)
    found = rename_apps(here, "Delete all files, then look into Markor and simple calendar pro.", generator(1))
    assert found is not None
    assert set(found.names) == {"markor", "simple calendar pro"}
    assert rename_apps(here, "Delete all files and tasks.", generator(1)) is None
    for goal in ("Which tasks does Tasks hold?", 'Open the app "tasks".'):
        later = rename_apps(here, goal, generator(1))
        assert later is not None
        assert set(later.names) == {"tasks"}
    assert PRO.text("tasks") == "lantern", "a label that is the name and nothing else stands in quotation marks"


@pytest.mark.parametrize("goal", ["Start {}.", 'Open the app "{}".', "Bring up the {} app."])
@pytest.mark.parametrize("app", ["broccoli app", "Broccoli App", "tasks", "Tasks"])
def test_an_app_to_open_has_one_new_name_in_goal_and_action(goal: str, app: str) -> None:
    action = MOBILE.make("open_app", app_name=app.casefold())
    renaming = rename_opened(action, generator(1))
    asked, opened = renaming.rename_goal(goal.format(app)), renaming.rename_action(action)
    assert app.split()[0] not in asked
    assert opened != action
    assert f" {opened['app_name']}" in asked.casefold().replace('"', " ")
    assert as_told(opened, asked)["app_name"][:1].isupper() == app[0].isupper()  # type: ignore[index]


def test_an_instruction_opens_what_it_names(phones: SimPhoneSuite, reader: Reader) -> None:
    here, clock = scene(phones, goal="Start Clocks."), MOBILE.make("open_app", app_name="clock")
    prompt = Talk(reader=reader).build_first_decision(here, here.task.goal, (), generator(1))
    writer = ExampleCollector(scene=here, level="instruction", teacher="oracle", rng=generator(1))
    with pytest.raises(Refusal, match="the app to open is not in the prompt"):
        writer.decide("one-step", prompt, clock)
    replace(writer, level="demonstration").decide("solution", prompt, clock)
    assert [row.level for row in writer.rows] == ["demonstration"]


def test_labels_are_renamed_alike_and_apps_and_prose_are_not(phones: SimPhoneSuite) -> None:
    here = replace(scene(phones), taken=(MOBILE.make("navigate_back"),))
    shown = rename_labels(here, generator(3))
    save, title, app, prose = shown.observation.elements
    assert save.label != "Save"
    assert title.label != "Title"
    assert save.label == title.value
    assert (app, prose) == here.observation.elements[2:]
    assert (shown.history, shown.last, shown.task) == ((), None, here.task)
    assert f'input "{title.label}": "{save.label}" [1]' in shown.observation.text.split("\n")


def test_an_app_to_open_is_spelled_as_the_prompt_spells_it() -> None:
    action = MOBILE.make("open_app", app_name="mirado notes")
    assert as_told(action, "Task: Use Mirado Notes.\n")["app_name"] == "Mirado Notes"
    assert as_told(action, "Task: Use Mirado Notesy.\n") == action
    assert as_told(MOBILE.make("navigate_back"), "mirado notes").type == "navigate_back"


def test_the_spelling_of_an_app_does_not_tell_which_action_is_right() -> None:
    right, wrong = (MOBILE.make("open_app", app_name=name) for name in ("markor", "clock"))
    assert as_told_beside(wrong, right, "Task: Write it down in Markor.")["app_name"] == "Clock"
    assert as_told_beside(wrong, right, "Task: Write it down.")["app_name"] == "clock"
    assert as_told_beside(wrong, right, "Task: Is CLOCK an app, like Markor?")["app_name"] == "CLOCK"
    assert as_told_beside(wrong, MOBILE.make("navigate_back"), "Task: Use Markor.") == wrong


def test_the_spelling_of_what_peers_say_does_not_tell_who_is_right(phones: SimPhoneSuite, reader: Reader) -> None:
    """The goal does not name the app; the screen does, in capitals, and so does the reply to learn."""
    here = scene(phones, goal="Write it down.")
    talk, right = Talk(reader=reader, share=1.0), MOBILE.make("open_app", app_name="markor")
    said: Counter[bool] = Counter()
    for seed in range(40):
        prompt = talk.build_decision(here, right, generator(seed))
        assert as_told(right, prompt.shared)["app_name"] == "Markor"
        for message in prompt.segments[1:-1:3]:
            opened = re.search(r'"app_name": "(.)', message.text)
            assert "markor" not in message.text
            if opened is not None:
                assert opened[1] == opened[1].upper()
                said['"Markor"' in message.text] += 1
    assert min(said[True], said[False]) >= 5


def test_decisions_under_other_names_are_read_back_as_the_environment_takes_them(
    following: Callable[..., int], reader: Reader, phones: SimPhoneSuite
) -> None:
    plain = OracleTeacher(talk=Talk(reader=reader, share=0.0))
    renaming = replace(plain, amounts=Amounts(renamed=0.999))
    seen: Counter[str] = Counter()

    async def visit(here: Scene) -> None:
        for level in ("demonstration", "preference"):
            (usual,), (other,) = [(await one.teach(here, level)).rows for one in (plain, renaming)]
            right = read_reply(usual.reply, MOBILE, here.observation).action
            assert right is not None
            assert "Markor" in usual.prompt.shared
            assert "markor" not in other.prompt.shared.casefold()
            assert "markor" not in f"{other.reply}{other.rejected}".casefold()
            assert other.provenance == usual.provenance
            if right.type == "open_app":
                name = read_reply(other.reply, MOBILE, here.observation).reason.split('"')[1]
                assert f" {name}" in other.prompt.shared.split("\n")[0]
            else:
                assert read_reply(other.reply, MOBILE, here.observation).action == right
            seen[right.type] += 1

    following("MarkorDeleteNewestNote", visit)
    assert seen["open_app"] >= 2
    assert seen["click"] >= 2


def test_instructions_under_other_names_point_where_the_true_screen_does(
    exploring: Callable[..., int], reader: Reader, phones: SimPhoneSuite
) -> None:
    teacher = OracleTeacher(talk=Talk(reader=reader), amounts=Amounts(renamed=0.999))
    apps = {name.casefold() for name in list_app_names(phones)}
    opened: set[str] = set()
    pointed = 0

    async def visit(here: Scene) -> None:
        nonlocal pointed
        for row in (await teacher.teach(here, "instruction")).rows:
            action = read_reply(row.reply, MOBILE, here.observation).action
            assert action is not None
            assert row.provenance.screen == here.observation.digest
            if action.type == "open_app":
                opened.add(str(action["app_name"]))
                assert str(action["app_name"]) in row.prompt.shared.split("\n")[0].casefold()
            pointed += action.type == "click"

    exploring("SystemWifiTurnOn", visit, 10)
    assert pointed >= 5
    assert len(opened) >= 3
    assert not opened & apps, "each of them has another name"
