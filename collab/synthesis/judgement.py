"""Rows of levels `candidate` and `judgement`: a policy's candidates, and questions about them with the right answers.

    source = CandidateSource(caller=caller, reader=reader, prompts=ProcessPrompts(texts))
    output = await source.teach(scene, right, explain, "oracle")

On a demonstrated step a policy samples candidates in its own prompt (Android Coach, section 3.2 and Appendix B.3). A
candidate is right if its action is the demonstrated one (`is_demonstrated`), else wrong. The teacher, who knows which,
writes the analysis. Question and answer are those of the critic that will be trained
(`collab.rewards.process_reward`).

A row of level `candidate` is the policy's own prompt and reply, from which a critic of actions learns whether it is
right (`collab train --algo coach`); it is no example to imitate.

Equal questions are asked once. `collab.synthesis.card` balances right and wrong rows of each task in the end.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from collab.data.example import Example
from collab.prompts.parse import read_reply
from collab.rewards.process_reward import JUDGMENT, ProcessPrompts
from collab.rewards.structured_replies import find_first_failure
from collab.synthesis.caller import Caller
from collab.synthesis.conversation import Reader
from collab.synthesis.teacher import Scene, TeacherOutput
from collab.types import Action, ElementTarget, Observation, Point, Prompt, Target

NEAR = 0.14
"""Share of the screen's width within which two points are the same (Appendix B.3, after GUIOdyssey)."""
RIGHT, WRONG = "right", "wrong"
"""Kinds of rows."""
TOO_LONG = "the step does not fit into the policy's context"
UNREAD_ANSWER = "the answer is not read back from its words"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A step that the policy proposed in place of a demonstrated one."""

    action: Action
    """Canonical on its screen."""
    reason: str
    is_right: bool
    """Whether it is the demonstrated action."""
    question: Prompt
    """The question to the judge."""
    prompt: Prompt
    """The policy's own prompt."""
    reply: str
    """The policy's words."""


@dataclass(frozen=True, slots=True)
class Analysis:
    """Words on why a candidate is right or wrong."""

    text: str
    teacher_prompt: str | None = None
    """SHA-256 of the teacher's prompt; None for the oracle."""


Explain = Callable[[Candidate], Awaitable[Analysis | str]]
"""Writes a candidate's analysis, or returns the cause for leaving the candidate out."""


def is_demonstrated(action: Action, right: Action, observation: Observation) -> bool:
    """Return whether a canonical action is the demonstrated one: equal, or a point near it or in its element."""
    if action == right:
        return True
    if (action.type, action.arguments) != (right.type, right.arguments):
        return False
    # Elements are compared by name; only points may miss by a little.
    one, other = action.target, right.target
    if not isinstance(one, Point) and not isinstance(other, Point):
        return False
    return (
        _is_within(one, other, observation) or _is_within(other, one, observation) or _is_near(one, other, observation)
    )


def _is_within(point: Target | None, target: Target | None, observation: Observation) -> bool:
    if not isinstance(point, Point) or not isinstance(target, ElementTarget):
        return False
    box = observation.elements[target.index].box
    return box is not None and box.contains(point.x, point.y)


def _is_near(one: Target | None, other: Target | None, observation: Observation) -> bool:
    places = [_find_place(target, observation) for target in (one, other)]
    first, second = places
    return first is not None and second is not None and math.dist(first, second) <= NEAR * observation.width


def _find_place(target: Target | None, observation: Observation) -> tuple[float, float] | None:
    """Return a target's place in pixels, an element's centre; None where it has none."""
    if isinstance(target, Point):
        return target.x, target.y
    box = None if target is None else observation.elements[target.index].box
    return None if box is None else box.center


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateSource:
    """Samples candidates of a policy, and builds the rows of the judge."""

    caller: Caller
    """Calls the policy's model."""
    reader: Reader
    """Builds the policy's own prompt, which need not be that of other levels' rows."""
    prompts: ProcessPrompts
    """Build the judge's questions."""
    count: int = 8
    """Candidates per step."""

    async def teach(self, scene: Scene, right: Action, explain: Explain, teacher: str) -> TeacherOutput:
        """Make the rows of a demonstrated step.

        Args:
            right: the demonstrated action, canonical on the scene.
            teacher: name of the teacher in rows.

        Raises:
            ModelFailure: the policy's model, or the teacher's, cannot be reached.
        """
        candidates, refused = await self._sample(scene, right)
        rows: list[Example] = []
        for candidate in candidates:
            found = await explain(candidate)
            if isinstance(found, str):
                refused[found] += 1
                continue
            reply = JUDGMENT.format(candidate.is_right, found.text)
            # Read back, as the critic will: words of a model may hold half a thought.
            if JUDGMENT.read(reply).value is not candidate.is_right:
                refused[UNREAD_ANSWER] += 1
                continue
            kind = RIGHT if candidate.is_right else WRONG
            source = scene.build_provenance(teacher, found.teacher_prompt)
            row = Example(level="judgement", kind=kind, prompt=candidate.question, reply=reply, provenance=source)
            rows += [replace(row, level="candidate", prompt=candidate.prompt, reply=candidate.reply), row]
        return TeacherOutput(rows=tuple(rows), refused=refused)

    async def _sample(self, scene: Scene, right: Action) -> tuple[list[Candidate], Counter[str]]:
        """Return the candidates with different questions, and causes of those that are none."""
        prompt, space, screen = self.reader.build_alone(scene), scene.suite.space, scene.observation
        if prompt is None:
            return [], Counter({TOO_LONG: 1})
        asking = [self.caller.ask(prompt, scene.seed, f"candidate {number}") for number in range(self.count)]
        # Wait for all replies even if one fails: those in flight are paid for.
        replies = await asyncio.gather(*asking, return_exceptions=True)
        failure = find_first_failure(replies)
        if failure is not None:
            raise failure
        found: dict[str, Candidate] = {}
        refused: Counter[str] = Counter()
        for text in map(str, replies):
            parsed = read_reply(text, space, screen)
            if parsed.action is None:
                refused[f"a candidate without an action: {parsed.failure.kind if parsed.failure else 'empty'}"] += 1
                continue
            question = self.prompts.build_prompt(scene.task.goal, screen, parsed.action, space, parsed.reason)
            found.setdefault(
                question.user,
                Candidate(
                    action=parsed.action,
                    reason=parsed.reason,
                    is_right=is_demonstrated(parsed.action, right, screen),
                    question=question,
                    prompt=prompt,
                    reply=text,
                ),
            )
        return list(found.values()), refused
