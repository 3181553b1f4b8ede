"""What could be asked on a screen: nothing that could mean two things, and nothing that is worded untruly."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from collab.envs.grammar import MOBILE, WEB, ActionSpace
from collab.envs.simphone.suite import SimPhoneSuite
from collab.envs.text import describe_screen
from collab.seeds import generator
from collab.synthesis.instructions import Instruction, propose_instructions
from collab.synthesis.screens import describe_effect
from collab.synthesis.teacher import Scene
from collab.types import Element, ElementTarget, HistoryEntry, Observation, StepResult, Task

SEEDS = range(300)


class Place:
    """The part of a suite that wording an instruction looks at."""

    def __init__(self, space: ActionSpace, phones: SimPhoneSuite) -> None:
        self.space, self.tasks = space, phones.tasks


def scene(
    phones: SimPhoneSuite, title: str, *elements: tuple[str, str, str | None], space: ActionSpace = MOBILE
) -> Scene:
    shown = tuple(
        Element(index=index, role=role, label=label, value=value) for index, (role, label, value) in enumerate(elements)
    )
    seen = Observation(space=space.name, title=title, elements=shown, text=describe_screen(title, shown))  # type: ignore[arg-type]
    return Scene(
        suite=cast(Any, Place(space, phones)),
        environment=cast(Any, None),
        task=Task(name="t", environment="e", goal="g", seed=1, max_steps=9),
        step=0,
        observation=seen,
        met="exploration",
        seed=1,
    )


def asked(where: Scene) -> list[Instruction]:
    """All that many draws come up with."""
    return [one for seed in SEEDS for found in propose_instructions(where, generator(seed)).values() for one in found]


def test_elements_that_cannot_be_told_apart_are_left_out_and_others_say_their_role(phones: SimPhoneSuite) -> None:
    elements = (("button", "OK", None), ("button", "ok", None), ("link", "Help", None), ("tab", "Help", None))
    aimed = [one for one in asked(scene(phones, "Form", *elements)) if isinstance(one.action.target, ElementTarget)]
    goals = {(one.goal, cast(ElementTarget, one.action.target).index) for one in aimed}
    assert {index for _, index in goals} == {2, 3}
    assert all("link" in goal if index == 2 else "tab" in goal for goal, index in goals)


def test_no_app_is_to_be_started_that_an_element_is_called_like(phones: SimPhoneSuite) -> None:
    def started(where: Scene) -> set[object]:
        return {one.action["app_name"] for one in asked(where) if one.action.type == "open_app"}

    assert {"clock", "markor"} <= started(scene(phones, "Home", ("app", "Clock", None)))
    assert not {"clock", "markor"} & started(scene(phones, "Markor: Apps", ("list item", "Clock", None)))


def test_a_screen_is_open_already_unless_one_of_its_elements_is_called_so(phones: SimPhoneSuite) -> None:
    heading, entry = ("heading", "Music", None), ("list item", "Music", None)
    told = {one.goal for one in asked(scene(phones, "Files: Music", heading)) if one.sort == "complete"}
    assert {"Show Files: Music.", 'Show me "Music" in Files.', "Go to Music in Files."} <= told
    assert not [one for one in asked(scene(phones, "Files: Music", heading, entry)) if one.sort == "complete"]


def test_replacing_is_never_asked_in_words_that_could_mean_adding(phones: SimPhoneSuite) -> None:
    where = scene(phones, "Form", ("input", "Name", "Ada"), ("input", "Town", ""))
    found = [one for one in asked(where) if one.action.type == "input_text"]
    replacing = [one.goal for one in found if one.action.get("clear_text")]
    assert replacing
    assert not [goal for goal in replacing if goal.startswith(("Type", "Enter", "Write", "Put", "Fill"))]
    assert any(one.goal.startswith("Type") for one in found if not one.action.get("clear_text"))


def test_what_stands_beside_an_entry_is_not_called_its_content(phones: SimPhoneSuite) -> None:
    def questions(role: str) -> set[str]:
        return {one.goal for one in asked(scene(phones, "Notes", (role, "a.txt", "today"))) if one.sort == "answer"}

    assert 'What stands next to "a.txt"?' in questions("list item")
    assert not questions("list item") & questions("input")
    assert {'What does "a.txt" say?', 'Read "a.txt" to me.'} <= questions("input")


@pytest.mark.parametrize("role", ["switch", "checkbox", "radio"])
def test_what_is_so_already_is_complete_and_what_is_not_is_done(phones: SimPhoneSuite, role: str) -> None:
    where = scene(phones, "Settings", (role, "Alpha", None), (role, "Beta", None))
    on = replace(where.observation.elements[0], flags=("checked",))
    where = replace(where, observation=replace(where.observation, elements=(on, where.observation.elements[1])))
    found = [one for one in asked(where) if "Alpha" in one.goal or "Beta" in one.goal]
    told = {(one.sort, one.goal.replace('"', "")) for one in found}
    wish, undo = {"switch": ("Turn {} on.", "Turn {} off."), "checkbox": ("Tick {}.", "Untick {}.")}.get(
        role, ("Pick {}.", "")
    )
    assert ("complete", wish.format("Alpha")) in told
    assert ("do", wish.format("Beta")) in told
    assert ("do", wish.format("Alpha")) not in told
    assert ("complete", wish.format("Beta")) not in told
    if undo:
        assert ("do", undo.format("Alpha")) in told
        assert ("complete", undo.format("Beta")) in told
        assert not {("complete", undo.format("Alpha")), ("do", undo.format("Beta"))} & told
        answers = {(one.goal.replace('"', ""), one.action["text"]) for one in found if one.sort == "answer"}
        assert {text for goal, text in answers if "Alpha" in goal} == {"on"}
        assert {text for goal, text in answers if "Beta" in goal} == {"off"}


@pytest.mark.parametrize(("effect", "over"), [("opened Help", True), ("nothing changed", False)])
def test_only_what_did_something_needs_not_be_done_again(phones: SimPhoneSuite, effect: str, over: bool) -> None:
    done = HistoryEntry(action='tap button "Help"', effect=effect, reason="")
    where = replace(scene(phones, "Form", ("button", "Help", None)), history=(done,))
    goals = {one.goal for one in asked(where) if one.sort == "complete"}
    assert ('Tap button "Help".' in goals) is over


@pytest.mark.parametrize(("space", "action"), [(WEB, "select"), (MOBILE, "click")])
def test_a_list_is_set_to_its_own_options_where_each_is_one_of_a_kind(
    phones: SimPhoneSuite, space: ActionSpace, action: str
) -> None:
    elements = (
        ("drop-down", "Size", "small"),
        ("option", "small", None),
        ("option", "large", None),
        ("option", "odd", None),
        ("option", "odd", None),
        ("button", "Submit", None),
        ("option", "elsewhere", None),
    )
    wanted = [one for one in asked(scene(phones, "Shop", *elements, space=space)) if one.goal.startswith("Set the ")]
    assert {(one.sort, one.goal.partition(" to ")[2]) for one in wanted} == {
        ("do", '"large".'),
        ("complete", '"small".'),
    }
    assert {one.action.type for one in wanted if one.sort == "do"} == {action}
    assert {one.action.get("option") for one in wanted if one.sort == "do"} == {"large" if space is WEB else None}


def test_of_an_episode_that_an_action_ended_only_its_effect_is_told(phones: SimPhoneSuite) -> None:
    where = scene(phones, "Form", ("button", "Submit", None))
    after = scene(phones, "Form", ("button", "Submit", None), ("text", "Done", None)).observation
    over = StepResult(observation=after, terminated=True, truncated=False, info={"effect": "the page ended the task"})
    tap = MOBILE.make("click", index=0)
    assert describe_effect(where, tap, over) == "The page ended the task."
