"""A model as UI agent, critic and adversary, on scenes of the corridor; what it says decides what becomes of it."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from collab.library import find_builtin_root
from collab.prompts.parse import read_reply
from collab.prompts.render import Template, read_templates
from collab.rewards.structured_replies import hash_prompt
from collab.synthesis.conversation import Reader
from collab.synthesis.llm_prompts import TeacherPrompts, read_teacher_prompts
from collab.synthesis.llm_teacher import Caller, LanguageTeacher, TeacherContext, draw_questions
from collab.synthesis.screens import explore
from collab.synthesis.teacher import Scene, TeacherOutput
from collab.testing.corridor import CorridorSuite
from collab.testing.scripted import ScriptedModel, answer_as_teacher
from collab.types import Prompt, Sampling

Rule = Callable[[str], str]
"""What is said to the text of a prompt."""


def good(asked: str) -> str:
    return answer_as_teacher({"messages": [{"role": "user", "content": asked}]})


def instead(mark: str, reply: object) -> Rule:
    """A good teacher that says this to prompts with a certain phrase."""
    text = reply if isinstance(reply, str) else json.dumps(reply, ensure_ascii=False)
    return lambda asked: text if mark in asked else good(asked)


def teaching(rule: Rule = good) -> tuple[LanguageTeacher, ScriptedModel]:
    def said(prompt: Prompt, seed: int) -> str:
        return rule(prompt.user)

    model = ScriptedModel(rule=said)
    prompts = TeacherPrompts(read_teacher_prompts(find_builtin_root() / "prompts" / "teacher"), CorridorSuite.space)
    reader = Reader(template=Template("default", read_templates(find_builtin_root() / "prompts" / "default")))
    caller = Caller(model=model, sampling=Sampling(temperature=0.1, max_tokens=2048))
    return LanguageTeacher(context=TeacherContext(name="tutor", caller=caller, prompts=prompts, reader=reader)), model


async def first_scene(suite: CorridorSuite, task: str) -> Scene:
    environment = await suite.open()
    async for scene in explore(suite, environment, suite.instance(task, 3), seed=1, steps=1):
        return scene
    raise AssertionError("no scene")


def output(level: Any, rule: Rule = good, task: str = "PressButton") -> TeacherOutput:
    async def teach() -> TeacherOutput:
        return await teaching(rule)[0].teach(await first_scene(CorridorSuite(), task), level)

    return asyncio.run(teach())


def episode(
    level: Any, rule: Rule = good, task: str = "OpenDoors", suite: CorridorSuite | None = None
) -> TeacherOutput:
    """What is taught of a whole episode that the model plays by itself."""

    async def teach() -> TeacherOutput:
        world = suite or CorridorSuite()
        teacher, _ = teaching(rule)
        environment, rows, refused = await world.open(), [], Counter[str]()
        async for item in teacher.follow(world, environment, world.instance(task, 3), seed=1):
            found = item if isinstance(item, TeacherOutput) else await teacher.teach(item, level)
            rows += found.rows
            refused.update(found.refused)
        return TeacherOutput(rows=tuple(rows), refused=refused)

    return asyncio.run(teach())


# ---------------------------------------------------------------------------------------------------------- basic


def test_every_question_is_asked_once_and_answered_in_the_policys_own_prompt():
    found = output("basic")
    assert Counter(row.kind for row in found.rows) == {
        **dict.fromkeys(("screen-purpose", "screen-aim", "screen-summary"), 1),
        **dict.fromkeys(("element-function", "element-information", "element-effect", "element-action"), 4),
    }
    assert not found.refused
    for row in found.rows:
        assert row.prompt.system == ""
        assert "Screen: Room 1 of 1" in row.prompt.user
        assert row.reply.startswith('This is "Room 1 of 1"')
        assert row.provenance.teacher == "tutor"
        assert row.action_type is None


def test_rows_name_the_very_prompt_that_was_answered():
    async def teach() -> tuple[TeacherOutput, Prompt]:
        teacher, model = teaching()
        found = await teacher.teach(await first_scene(CorridorSuite(), "PressButton"), "basic")
        return found, model.requests[0].prompt

    found, prompt = asyncio.run(teach())
    assert {row.provenance.teacher_prompt for row in found.rows} == {hash_prompt(prompt)}


def test_teachers_are_asked_at_temperature_01_with_seeds_of_the_scene():
    async def teach() -> list[tuple[float, int]]:
        teacher, model = teaching()
        scene = await first_scene(CorridorSuite(), "PressButton")
        for level in ("basic", "instruction", "basic"):
            await teacher.teach(scene, level)
        return [(request.sampling.temperature, request.seed) for request in model.requests]

    (one, first), (_, second), (_, third) = asyncio.run(teach())
    assert one == 0.1
    assert first == third != second


def test_half_of_the_answers_is_kept_and_the_rest_is_counted():
    said = [
        {"question": 1, "answer": "It shows a room."},
        {"question": 1, "answer": "Again."},
        {"question": 99, "answer": "Nobody asked."},
        {"question": 2, "answer": "这是一个房间，里面有几个按钮。"},
        {"question": 3},
    ]
    found = output("basic", instead("Questions about", said))
    assert [row.reply for row in found.rows] == ["It shows a room."]
    assert found.refused == {
        "a second answer to a question": 1,
        "an answer to a question that was not asked": 1,
        "another language": 1,
        "an item does not fit the schema": 1,
        "a question without an answer": 17,
    }


def test_questions_follow_from_the_scenes_seed_alone():
    scene = asyncio.run(first_scene(CorridorSuite(), "PressButton"))
    assert draw_questions(scene, 2) == draw_questions(scene, 2)
    assert len(draw_questions(scene, 2)) == 3 + 2 * 4


# ---------------------------------------------------------------------------------------------------- instruction


def test_instructions_become_decisions_with_the_instruction_as_goal():
    found = output("instruction")
    assert len(found.rows) == 5
    assert not found.refused
    tap = found.rows[0]
    assert tap.prompt.user.startswith("Task: Press ")
    assert "Done before" not in tap.prompt.user
    assert tap.action_type == "click"
    assert tap.reply.startswith("Reason: The button ")


def test_at_most_two_completions_and_one_answer_per_screen():
    done = {"action_type": "status", "goal_status": "complete"}
    said = [{"instruction": f"Show room {word}.", "reason": "It is here.", "action": done} for word in "abc"]
    answer = {"action_type": "answer", "text": "Room 1 of 1"}
    said += [{"instruction": f"Which room {word}?", "reason": "It is here.", "action": answer} for word in "de"]
    said += [{"instruction": "SHOW ROOM A.", "reason": "It is here.", "action": done}]
    found = output("instruction", instead('{"instructions": [', {"instructions": said}))
    assert [row.action_type for row in found.rows] == ["status", "status", "answer"]
    assert found.refused == {
        "too many instructions that are already fulfilled": 1,
        "too many questions": 1,
        "the same instruction twice": 1,
    }


def test_nonsense_teaches_nothing_and_is_counted():
    for level in ("basic", "instruction"):
        found = output(level, lambda asked: "I am a teapot.")
        assert not found.rows
        assert found.refused["the reply is not JSON"] == 1


# ----------------------------------------------------------------------------------- demonstration and preference


def test_steps_of_a_solved_episode_are_demonstrations():
    found = episode("demonstration")
    suite = CorridorSuite()
    rooms = len(suite.instance("OpenDoors", 3).params["rooms"])
    assert [row.action_type for row in found.rows] == ["click"] * rooms + ["status"]
    assert [row.provenance.step for row in found.rows] == list(range(rooms + 1))
    assert "Done before" in found.rows[-1].prompt.user
    assert not found.refused


def test_steps_of_an_episode_that_failed_are_not_demonstrated():
    early = {"reason": "I think it is done.", "action": {"action_type": "status", "goal_status": "complete"}}
    found = episode("demonstration", instead("Which single step", early))
    assert not found.rows
    assert found.refused == {"a step of an episode that was not solved": 1}


def test_an_episode_is_given_up_after_three_unusable_proposals():
    found = episode("demonstration", instead("Which single step", "hm"))
    assert not found.rows
    assert found.refused == {"the reply is not JSON": 3}


def test_a_world_that_cannot_be_played_twice_is_left_out():
    class Once(CorridorSuite):
        capabilities = frozenset({"fork", "oracle"})

    found = episode("demonstration", suite=Once())
    assert found.refused == {"the world cannot be played a second time": 1}


def test_a_rewarded_step_is_set_against_a_clumsy_one():
    found = episode("preference", task="PressButton")
    assert [(row.kind, row.action_type) for row in found.rows] == [("process", "click"), ("process", "status")]
    for row in found.rows:
        assert row.rejected == 'Reason: I would rather leave.\nAction: {"action_type": "navigate_home"}'
        chosen, rejected = (read_reply(text, CorridorSuite.space, screen()) for text in (row.reply, row.rejected))
        assert chosen.action != rejected.action


def screen() -> Any:
    return asyncio.run(first_scene(CorridorSuite(), "PressButton")).observation


@pytest.mark.parametrize("score", [0.5, 0.0])
def test_one_half_earns_nothing_and_no_adversary_is_asked(score):
    async def calls() -> tuple[TeacherOutput, list[str]]:
        teacher, model = teaching(instead('{"scores": [', [{"id": 1, "score": score}]))
        found = await teacher.teach(await first_scene(CorridorSuite(), "PressButton"), "preference")
        return found, [request.prompt.user for request in model.requests]

    found, asked = asyncio.run(calls())
    assert found.refused == {"critic: not rewarded": 1}
    assert not any("very clumsy" in one for one in asked)


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ([{"id": 1, "score": 1.5}], "critic: an item does not fit the schema"),
        ([{"id": 2, "score": 0.9}], "critic: no score"),
        ([{"id": 1, "score": 0.9}, {"id": 1, "score": 0.1}], "critic: two scores for one action"),
        ("very good!", "critic: the reply is not JSON"),
    ],
)
def test_a_score_that_is_missing_stays_missing(said, cause):
    found = output("preference", instead('{"scores": [', said))
    assert not found.rows
    assert found.refused == {cause: 1}


def test_a_score_above_one_half_is_rewarded():
    found = output("preference", instead('{"scores": [', [{"id": 1, "score": 0.51}]))
    assert len(found.rows) == 1


@pytest.mark.parametrize(
    ("clumsy", "cause"),
    [
        ("oops", "adversary: the reply is not JSON"),
        ({"reason": "x", "action": {"action_type": "jump"}}, "adversary: the action does not fit: unknown_type"),
        (
            {"reason": "x", "action": {"action_type": "click", "index": 99}},
            "adversary: the action does not fit: no_such_element",
        ),
    ],
)
def test_a_negative_that_cannot_be_read_is_dropped_and_counted(clumsy, cause):
    assert output("preference", instead("very clumsy", clumsy)).refused == {cause: 1}


def test_a_negative_that_is_the_good_action_is_dropped():
    def same(asked: str) -> str:
        return good(asked.replace("very clumsy", "").replace("For a lesson", "Which single step"))

    assert output("preference", same).refused == {"adversary: the same action as the good one": 1}


def test_a_negative_that_leads_to_the_same_state_is_dropped():
    wait = {"reason": "I am not sure.", "action": {"action_type": "wait"}}
    idle = {"reason": "I am lost.", "action": {"action_type": "keyboard_enter"}}

    def rule(asked: str) -> str:
        said = wait if "Which single step" in asked else idle if "very clumsy" in asked else None
        return json.dumps(said) if said else good(asked)

    assert output("preference", rule).refused == {"adversary: leads to the same state as the good one": 1}
