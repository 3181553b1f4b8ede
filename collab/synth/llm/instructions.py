"""Instruction knowledge from a model: things to ask for on a screen that take one step, with reason and action.

Of the instructions of one screen, at most two have a step that says that all is done and at most one a step that
answers (CollabUIAgents, Appendix C.4.3); more are counted and left out.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from collab.credit.asking import prompt_hash
from collab.credit.replies import Instruction, read_items
from collab.envs.grammar import ActionSpace
from collab.synth.llm.checks import NOT_SHOWN, Decided, is_answer, is_completion, is_shown, read_action, unfounded
from collab.synth.llm.desk import TOO_LONG, Desk
from collab.synth.llm.language import FOREIGN, is_foreign
from collab.synth.rows import Row
from collab.synth.teacher import Lesson, Scene
from collab.types import Action

MOST_COMPLETIONS, MOST_ANSWERS = 2, 1


async def teach_instructions(desk: Desk, scene: Scene, count: int) -> Lesson:
    """One row per instruction that holds.

    Args:
        count: instructions that are asked for.
    """
    prompt = desk.prompts.instructions(scene.observation.text, count)
    found = read_items(await desk.caller.ask(prompt, scene.seed, "instructions"), Instruction)
    refused, asked, taken = Counter(found.refused), prompt_hash(prompt), _Taken()
    rows: list[Row] = []
    for item in found.good:
        decided = _checked(item, scene, taken)
        row = (
            _instruction_row(desk, scene, item.instruction, decided, asked) if isinstance(decided, Decided) else decided
        )
        if isinstance(row, Row):
            rows.append(row)
        else:
            refused[row] += 1
    return Lesson(rows=tuple(rows), refused=refused)


@dataclass(slots=True)
class _Taken:
    """What a screen's instructions hold so far."""

    instructions: set[str] = field(default_factory=set)
    completions: int = 0
    answers: int = 0

    def refuses(self, instruction: str, action: Action, space: ActionSpace) -> str | None:
        """Why another one is too much; None when it is taken in."""
        folded = instruction.casefold()
        completes, answers = is_completion(action, space), is_answer(action)
        if folded in self.instructions:
            return "the same instruction twice"
        if completes and self.completions == MOST_COMPLETIONS:
            return "too many instructions that are already fulfilled"
        if answers and self.answers == MOST_ANSWERS:
            return "too many questions"
        self.instructions.add(folded)
        self.completions += completes
        self.answers += answers
        return None


def _checked(item: Instruction, scene: Scene, taken: _Taken) -> Decided | str:
    space, observation = scene.suite.space, scene.observation
    if is_foreign(item.instruction, "", observation.text):
        return FOREIGN
    decided = read_action(item, space, observation, goal=item.instruction)
    if isinstance(decided, str):
        return decided
    why = unfounded(item.instruction, decided.action, space, observation)
    return why or taken.refuses(item.instruction, decided.action, space) or decided


def _instruction_row(desk: Desk, scene: Scene, instruction: str, decided: Decided, asked: str) -> Row | str:
    prompt = desk.decision(scene, instruction)
    if prompt is None:
        return TOO_LONG
    if not is_shown(decided.action, scene.observation, prompt):
        return NOT_SHOWN
    return Row(
        level="instruction",
        kind="one-step",
        prompt=prompt,
        reply=decided.reply,
        action_type=decided.action.type,
        provenance=scene.provenance(desk.name, asked),
    )
