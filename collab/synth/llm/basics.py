"""Basic knowledge from a model: what a screen is for, and what some of its elements are, say and do.

One call asks everything about a screen: the questions on the whole, and four on each element that was drawn
(CollabUIAgents, table 9).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import get_args

from collab.credit.asking import prompt_hash
from collab.credit.replies import Answer, read_items
from collab.seeds import derive, generator
from collab.synth.llm.desk import Desk
from collab.synth.llm.language import FOREIGN, is_foreign
from collab.synth.questions import ElementKind, ScreenKind, about_element, about_screen
from collab.synth.rows import Row
from collab.synth.teacher import Lesson, Scene


@dataclass(frozen=True, slots=True)
class Question:
    """One question of a call."""

    kind: str
    text: str


def draw_questions(scene: Scene, elements: int) -> list[Question]:
    """What is asked about a scene: decided by its seed.

    Args:
        elements: at most so many are asked about.
    """
    rng = generator(derive(scene.seed, "questions"))
    questions = [Question(kind, about_screen(kind, rng)) for kind in get_args(ScreenKind)]
    shown = scene.observation.elements
    for element in rng.sample(shown, min(elements, len(shown))):
        questions += [Question(kind, about_element(kind, element, rng)) for kind in get_args(ElementKind)]
    return questions


async def teach_basics(desk: Desk, scene: Scene, elements: int) -> Lesson:
    """One row per question that was answered once, in the language of the question."""
    questions = draw_questions(scene, elements)
    prompt = desk.prompts.screen(scene.observation.text, [question.text for question in questions])
    found = read_items(await desk.caller.ask(prompt, scene.seed, "screen"), Answer)
    refused = Counter(found.refused)
    answers: dict[int, Answer] = {}
    for answer in found.good:
        why = _refusal(answer, len(questions), answers, scene)
        if why is None:
            answers[answer.question] = answer
        else:
            refused[why] += 1
    unanswered = sum(number not in {one.question for one in found.good} for number in range(1, len(questions) + 1))
    if found.good and unanswered:
        refused["a question without an answer"] += unanswered
    asked = prompt_hash(prompt)
    rows = [_basic_row(desk, scene, questions[number - 1], answers[number], asked) for number in sorted(answers)]
    return Lesson(rows=tuple(rows), refused=refused)


def _refusal(answer: Answer, questions: int, before: dict[int, Answer], scene: Scene) -> str | None:
    if not 1 <= answer.question <= questions:
        return "an answer to a question that was not asked"
    if answer.question in before:
        return "a second answer to a question"
    return FOREIGN if is_foreign(answer.answer, "", scene.observation.text) else None


def _basic_row(desk: Desk, scene: Scene, question: Question, answer: Answer, asked: str) -> Row:
    return Row(
        level="basic",
        kind=question.kind,
        prompt=desk.reader.question(scene.observation, question.text),
        reply=answer.answer,
        provenance=scene.provenance(desk.name, asked),
    )
