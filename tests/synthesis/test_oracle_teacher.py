"""What the oracle teaches is true: answers agree with what really happens, replies with the solution."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import pytest

from collab.agents.agent import Agent
from collab.agents.agent import StepContext as Deliberation
from collab.data.example import Example, Level
from collab.envs.base import Environment
from collab.envs.simphone.suite import SimPhoneSuite
from collab.envs.solution import GOOD, SolutionEnvironment, SolutionScorer
from collab.envs.text import flatten, format_element
from collab.graphs.deliberation import Network
from collab.prompts.parse import read_reply
from collab.prompts.render import PromptContext, PromptMessage, build_prefix, rebuild
from collab.seeds import generator
from collab.synthesis import facts
from collab.synthesis.conversation import Reader, Seat, Talk
from collab.synthesis.instructions import propose_instructions
from collab.synthesis.oracle_teacher import UNTOLD, Amounts, OracleTeacher
from collab.synthesis.screens import explore, follow
from collab.synthesis.teacher import Scene, TeacherOutput
from collab.testing.scripted import ScriptedModel
from collab.types import Action, CellRef, Observation, Prompt, Sampling, StepResult, Task

Walk: TypeAlias = Callable[..., int]
INDEX = re.compile(r"\[(\d+)\]")


def test_the_effects_that_are_taught_are_those_of_really_tapping(exploring: Walk, teacher: OracleTeacher) -> None:
    checked: Counter[str] = Counter()

    async def visit(scene: Scene) -> None:
        for row in (await teacher.teach(scene, "basic")).rows:
            if row.kind != "element-effect":
                continue
            named, _, answer = row.reply.partition("\n")
            index = int(INDEX.findall(row.prompt.suffix)[-1])
            assert named == format_element(scene.observation.elements[index])
            result = await (await scene.environment.fork()).step(scene.suite.space.make("click", index=index))  # type: ignore[attr-defined]
            effect = result.info["effect"]
            assert answer.casefold().startswith(effect.casefold().rstrip("."))
            if result.observation.title != scene.observation.title:
                assert result.observation.title in answer
            checked["moved" if result.observation.title != scene.observation.title else "stayed"] += 1

    for task in ("SystemWifiTurnOn", "ContactsAddContact", "SimpleCalendarAddOneEvent"):
        exploring(task, visit, 25)
    assert min(checked["moved"], checked["stayed"]) >= 5


def test_teaching_never_moves_the_scene_and_is_the_same_twice(following: Walk, teacher: OracleTeacher) -> None:
    async def visit(scene: Scene) -> None:
        before = scene.environment.oracle()  # type: ignore[attr-defined]
        for level in sorted(teacher.levels):
            first, second = await teacher.teach(scene, level), await teacher.teach(scene, level)
            assert first == second
        assert scene.environment.oracle() == before  # type: ignore[attr-defined]

    assert following("ContactsAddContact", visit) == 7


@pytest.mark.parametrize("task", ["SystemWifiTurnOn", "MarkorCreateNote", "SimpleSmsSend", "ClockTimerEntry"])
def test_instructions_are_fulfilled_by_what_is_taught(exploring: Walk, teacher: OracleTeacher, task: str) -> None:
    kinds: Counter[str] = Counter()

    async def visit(scene: Scene) -> None:
        for row in (await teacher.teach(scene, "instruction")).rows:
            kinds[row.kind] += 1
            read = read_reply(row.reply, scene.suite.space, scene.observation)
            assert read.action is not None
            assert read.action.type == row.action_type
            if row.kind == "one-step":
                result = await (await scene.environment.fork()).step(read.action)  # type: ignore[attr-defined]
                assert result.observation.digest != scene.observation.digest
            elif row.kind == "one-step-complete":
                assert read.action == scene.suite.space.make("status", goal_status="complete")
            else:
                assert str(read.action["text"]) in scene.observation.text or read.action["text"] in ("on", "off")

    exploring(task, visit)
    assert set(kinds) == {"one-step", "one-step-complete", "one-step-answer"}


def test_what_is_to_be_opened_opens(following: Walk, phones: SimPhoneSuite, reader: Reader) -> None:
    """Where notes are being selected, a tap on one selects it, too."""
    teacher = OracleTeacher(talk=Talk(reader=reader), amounts=Amounts(instructions={"do": 40}))
    opened, refused = Counter[bool](), Counter[str]()

    async def visit(scene: Scene) -> None:
        output = await teacher.teach(scene, "instruction")
        refused.update(output.refused)
        for row in output.rows:
            action = read_reply(row.reply, scene.suite.space, scene.observation).action
            if "\nTask: Open " in f"\n{row.prompt.shared}" and action is not None and action.target is not None:
                element = scene.observation.elements[action.target.index]  # type: ignore[union-attr]
                result = await (await scene.environment.fork()).step(action)  # type: ignore[attr-defined]
                opened[element.role != "list item" or flatten(element.label) in result.observation.title] += 1

    for task in ("MarkorMoveNote", "MarkorDeleteNote", "FilesMoveFile"):
        following(task, visit)
    assert opened[True] >= 3
    assert not opened[False]
    assert refused["what is to be opened does not open"] >= 3


def test_no_instruction_could_mean_two_elements(exploring: Walk) -> None:
    async def visit(scene: Scene) -> None:
        found = propose_instructions(scene, generator(1))
        for one in found["do"]:
            aimed = one.action.target
            if aimed is None:
                continue
            element = scene.observation.elements[aimed.index]  # type: ignore[union-attr]
            alike = [e for e in scene.observation.elements if (e.role, e.label) == (element.role, element.label)]
            assert alike == [element]
            assert flatten(element.label) in one.goal

    exploring("SystemWifiTurnOn", visit, 30)


def test_neither_words_nor_history_give_away_that_a_task_is_complete(exploring: Walk) -> None:
    """What was just done is told as the history tells it; so are things still to do, with and without a history."""
    seen: Counter[tuple[str, bool, bool]] = Counter()

    async def visit(scene: Scene) -> None:
        for sort, found in propose_instructions(scene, generator(scene.seed)).items():
            for one in found:
                words = scene.suite.space.describe(one.action, scene.observation)
                plain = one.goal.casefold() == f"{words}.".casefold()
                done = bool(one.history) and one.goal.casefold() == f"{one.history[-1].action}.".casefold()
                assert not (sort == "do" and done)
                seen[sort, plain or done, bool(one.history)] += 1

    exploring("SystemWifiTurnOn", visit, 30)
    assert all(seen["do", plain, told] > 10 for plain in (True, False) for told in (True, False))
    assert seen["complete", True, True] > 5
    assert min(seen["complete", False, True], seen["complete", False, False]) > 5


# ------------------------------------------------------------------------------------------ demonstrations


@dataclass(frozen=True, kw_only=True)
class Listening(Reader):
    """A reader that remembers from which seats it was asked, and what was heard there."""

    asked: list[tuple[Seat, dict[CellRef, str]]] = field(default_factory=list)

    def build_decision(self, context: PromptContext, seat: Seat, heard: Mapping[CellRef, PromptMessage]) -> Prompt:
        self.asked.append((seat, {cell: heard[cell].text for cell in heard}))
        return super().build_decision(context, seat, heard)


async def asked_by_agents(scene: Scene, reader: Listening, seat: Seat, heard: dict[CellRef, str]) -> Prompt:
    """What a real network asks in a seat, its peers saying what they are said to have said."""

    def speak(prompt: Prompt, seed: int) -> str:
        return heard.get(seat.dag.list_cells(seat.rounds)[seed], "Reason: none\nAction: none")

    agents = {
        name: Agent(
            slot=name,
            definition="scripted",
            model=ScriptedModel(rule=speak),
            template=reader.template,
            sampling=Sampling(max_tokens=reader.max_tokens),
            context_tokens=reader.context_tokens,
            history=reader.history,
        )
        for name in seat.dag.slots
    }
    context = PromptContext(
        goal=scene.task.goal, space=scene.suite.space, observation=scene.observation, history=scene.history
    )
    order = seat.dag.list_cells(seat.rounds)
    deliberation = Deliberation(context=context, seed_of=lambda slot, round: order.index(CellRef(slot, round)))
    network = Network(dag=seat.dag, agents=agents, rounds=seat.rounds)
    matrix, (shared,) = await network.deliberate(deliberation)
    return rebuild(build_prefix(shared.system, shared.text), matrix[seat.cell].prompt)


@pytest.mark.parametrize("context_tokens", [8192, 1150])
def test_a_demonstration_asks_what_real_agents_ask(following: Walk, reader: Reader, context_tokens: int) -> None:
    listening = Listening(template=reader.template, context_tokens=context_tokens, max_tokens=48)
    teacher = OracleTeacher(talk=Talk(reader=listening, share=0.7), amounts=Amounts(seats=4))
    heard: Counter[bool] = Counter()

    async def visit(scene: Scene) -> None:
        listening.asked.clear()
        output = await teacher.teach(scene, "demonstration")
        assert not output.refused
        for row, (seat, said) in zip(output.rows, listening.asked, strict=True):
            heard[bool(said)] += 1
            real = await asked_by_agents(scene, listening, seat, said)
            assert (real.system, real.user, real.layout) == (row.prompt.system, row.prompt.user, row.prompt.layout)
            assert "".join(segment.text for segment in row.prompt.segments) == row.prompt.suffix

    following("SimpleSmsSend", visit)
    assert min(heard[True], heard[False]) >= 3


@pytest.mark.parametrize("wrong", [0.0, 0.3])
def test_demonstrations_are_the_solution_and_say_the_element_first(
    following: Walk, teacher: OracleTeacher, wrong: float
) -> None:
    kinds: Counter[str] = Counter()

    async def visit(scene: Scene) -> None:
        output = await teacher.teach(scene, "demonstration")
        (row,) = output.rows
        kinds[row.kind] += 1
        read = read_reply(row.reply, scene.suite.space, scene.observation)
        assert read.action == scene.environment.oracle()[0]  # type: ignore[attr-defined]
        if read.action.target is not None:  # type: ignore[union-attr]
            assert f"\n{read.reason}\n" in f"{row.prompt.shared}\n"
            assert read.reason == format_element(scene.observation.elements[read.action.target.index])  # type: ignore[union-attr]

    following("ContactsAddContact", visit, wrong, 7)
    assert set(kinds) == ({"solution", "recovery"} if wrong else {"solution"})


@pytest.mark.parametrize("level", ["demonstration", "preference"])
def test_what_a_prompt_does_not_tell_is_not_typed_from_memory(
    following: Walk, teacher: OracleTeacher, level: Level
) -> None:
    """Recipes are read in one app and typed in another: later than the history reaches, no agent could know them."""
    refused, typed = Counter[str](), 0

    async def visit(scene: Scene) -> None:
        nonlocal typed
        output = await teacher.teach(scene, level)
        refused.update(output.refused)
        for row in output.rows:
            action = read_reply(row.reply, scene.suite.space, scene.observation).action
            if action is not None and action.type == "input_text":
                typed += 1
                assert all(word.casefold() in row.prompt.shared.casefold() for word in str(action["text"]).split())

    following("RecipeAddSingleRecipe", visit)
    assert (typed, refused.total()) == (6, 0)
    following("RecipeAddMultipleRecipesFromMarkor", visit)
    assert refused[UNTOLD] >= 6


def test_an_element_that_does_nothing_has_no_action(exploring: Walk, phones: SimPhoneSuite, reader: Reader) -> None:
    teacher = OracleTeacher(talk=Talk(reader=reader), amounts=Amounts(elements=8))
    said: Counter[bool] = Counter()

    async def visit(scene: Scene) -> None:
        for row in (await teacher.teach(scene, "basic")).rows:
            element = (
                scene.observation.elements[int(INDEX.findall(row.prompt.suffix)[-1])] if "el" in row.kind else None
            )
            if row.kind != "element-action" or element is None or facts.is_typed_into(element):
                continue
            tap = phones.space.make("click", index=element.index)
            result = await (await scene.environment.fork()).step(tap)  # type: ignore[attr-defined]
            dead = result.observation.digest == scene.observation.digest
            nothing = row.reply.endswith("\nNone: it does nothing.")
            assert nothing == (dead or element.role in facts.SILENT)
            said[nothing] += element.role not in facts.SILENT

    exploring("ClockTimerEntry", visit, 30)
    exploring("SystemWifiTurnOn", visit, 30)
    assert min(said[True], said[False]) >= 3


def test_peers_are_right_wrong_and_unreadable(following: Walk, reader: Reader) -> None:
    teacher = OracleTeacher(talk=Talk(reader=reader, share=1.0), amounts=Amounts(seats=12))
    heard: Counter[str] = Counter()

    async def visit(scene: Scene) -> None:
        for row in (await teacher.teach(scene, "demonstration")).rows:
            right = read_reply(row.reply, scene.suite.space, scene.observation).action
            assert len(row.prompt.segments) > 1
            for said in row.prompt.segments[1:-1:3]:
                action = read_reply(said.text, scene.suite.space, scene.observation).action
                heard["unreadable" if action is None else "right" if action == right else "wrong"] += 1

    following("ContactsAddContact", visit)
    total = heard.total()
    assert 0.3 < heard["right"] / total < 0.65
    assert 0.3 < heard["wrong"] / total < 0.65
    assert heard["unreadable"] >= 1


def test_preferences_share_the_demonstrations_prompts_and_reject_what_is_worse(
    following: Walk, teacher: OracleTeacher
) -> None:
    async def visit(scene: Scene) -> None:
        (shown,) = (await teacher.teach(scene, "demonstration")).rows
        (row,) = (await teacher.teach(scene, "preference")).rows
        assert (row.prompt, row.reply) == (shown.prompt, shown.reply)
        assert row.rejected is not None
        critic = SolutionScorer(scene.environment)  # type: ignore[arg-type]
        chosen, rejected = (
            read_reply(text, scene.suite.space, scene.observation).action for text in (row.reply, row.rejected)
        )
        assert (await critic(chosen)).score == GOOD
        assert rejected is not None
        assert (await critic(rejected)).score < GOOD

    following("ContactsAddContact", visit)


def test_what_cannot_be_taught_is_counted(phones: SimPhoneSuite, reader: Reader) -> None:
    """A prompt too small for the screen: what it does not show is not pointed at; a lost task has no next action."""

    async def check() -> tuple[Counter[str], int]:
        least = reader.count_tokens(reader.template.render_system(phones.space)) + 32 + 2 * (32 + 16)
        narrow = replace(reader, slots=("ada",), context_tokens=least + 75, max_tokens=32)
        small = OracleTeacher(talk=Talk(reader=narrow, share=0.0))
        tiny = OracleTeacher(talk=Talk(reader=replace(reader, context_tokens=300)))
        environment, refused, made = await phones.open(), Counter[str](), 0
        async for scene in follow(phones, environment, phones.instance("SystemBrightnessMax", 5), seed=1):
            for teacher in (small, tiny):
                output = await teacher.teach(scene, "demonstration")
                refused.update(output.refused)
                made += len(output.rows)
        output = await small.teach(scene, "demonstration")  # the episode is over
        refused.update(output.refused)
        return refused, made

    refused, made = asyncio.run(check())
    assert made >= 1
    assert refused["the prompt does not fit into the context"] == 5
    assert refused["its element is not in the prompt"] >= 1
    assert refused["the episode is over"] == 1


class Opaque:
    """A phone that can neither be copied nor knows solutions."""

    def __init__(self, phone: Environment) -> None:
        self._phone = phone

    async def reset(self, task: Task) -> Observation:
        return await self._phone.reset(task)

    async def step(self, action: Action | None) -> StepResult:
        return await self._phone.step(action)

    async def close(self) -> None:
        await self._phone.close()


def test_an_environment_that_can_do_less_is_asked_for_less(phones: SimPhoneSuite, reader: Reader) -> None:
    teacher = OracleTeacher(talk=Talk(reader=reader), amounts=Amounts(elements=8))

    async def check() -> tuple[Counter[str], Counter[str]]:
        environment, task = Opaque(await phones.open()), phones.instance("ContactsAddContact", 5)
        kinds, refused = Counter[str](), Counter[str]()
        async for scene in explore(phones, environment, task, seed=1, steps=6):
            for level in sorted(teacher.levels):
                output = await teacher.teach(scene, level)
                kinds.update(row.kind for row in output.rows)
                refused.update(output.refused)
        assert [scene async for scene in follow(phones, environment, task, seed=1)] == []
        return kinds, refused

    kinds, refused = asyncio.run(check())
    assert {"one-step", "element-function", "element-information", "element-action"} <= set(kinds)
    assert not {"element-effect", "solution", "process"} & set(kinds)
    assert refused["the environment knows no solutions"] == 14
    assert refused["what a tap does cannot be tried here"] > 3


def test_every_row_says_where_it_comes_from(outputs: Callable[[str, Level], list[TeacherOutput]]) -> None:
    for level in ("basic", "instruction", "demonstration", "preference"):
        rows = [row for output in outputs("MarkorCreateNote", level) for row in output.rows]
        assert rows
        assert {row.level for row in rows} == {level}
        assert {(row.provenance.task, row.provenance.seed, row.provenance.teacher) for row in rows} == {
            ("MarkorCreateNote", 5, "oracle")
        }
        assert all(row.provenance.apps[0] == "markor" for row in rows)
        assert all((row.rejected is not None) == (level == "preference") for row in rows)


def test_a_demonstrator_in_a_hurry_skips_a_step_and_is_wrong(following: Walk, reader: Reader) -> None:
    hasty = OracleTeacher(talk=Talk(reader=reader), amounts=Amounts(hurry=0.999))
    careful = OracleTeacher(talk=Talk(reader=reader))
    skipped: list[tuple[str, str]] = []

    async def visit(scene: Scene) -> None:
        (row,), (usual,) = [(await one.teach(scene, "demonstration")).rows for one in (hasty, careful)]
        assert row.prompt == usual.prompt, "who is in a hurry reads the same"
        if row.kind != "hurry":
            assert row == usual
            return
        said, right = (read_reply(one.reply, scene.suite.space, scene.observation).action for one in (row, usual))
        assert isinstance(scene.environment, SolutionEnvironment)
        assert (await SolutionScorer(scene.environment)(said)).score < GOOD
        assert right is not None
        assert said is not None
        skipped.append((right.type, said.type))
        # What was skipped comes first, and the screen behind it asks for what was done.
        fork = await scene.environment.fork()
        assert isinstance(fork, SolutionEnvironment)
        behind = await fork.step(right)
        solution = fork.oracle()
        assert solution
        following = scene.suite.space.canonical(solution[0], behind.observation)
        assert (following.type, following.arguments) == (said.type, said.arguments)

    following("ContactsAddContact", visit)
    following("ClockTimerEntry", visit)
    assert ("click", "status") in skipped, "a form is left without saving"
    assert len(skipped) >= 2


def test_without_a_hurry_no_demonstration_is_wrong(rows: tuple[Example, ...]) -> None:
    assert {row.kind for row in rows if row.level == "demonstration"} <= {"solution", "recovery"}
