"""The oracle teacher: exact answers, solutions and judgements from the environment itself.

    teacher = OracleTeacher(talk=Talk(reader=reader))
    output = await teacher.teach(scene, "demonstration")

    basic          what reading the screen tells, and what tapping does, found by tapping on a fork
    instruction    one step asked for in words, tried on a fork so that it really does something
    demonstration  the next action of the solution, in the prompt that an agent would get there; in a hurry the action
                   after it (`find_skip`)
    preference     the same prompt; the solution's action against a mistake that leads elsewhere and is not good
    judgement      a policy's candidates in place of the solution's action, and why they are right or wrong

An environment that cannot fork gives fewer rows, one without solutions neither demonstrations nor preferences. Omitted
rows are counted.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from collab.data.example import LEVELS, POLICY_LEVELS, Example, Level
from collab.envs.base import Forkable, HasOracle
from collab.envs.solution import GOOD, SolutionEnvironment, SolutionScorer
from collab.envs.text import flatten, format_element
from collab.errors import ModelFailure
from collab.prompts.parse import read_reply
from collab.rewards.mistakes import draw_worse
from collab.rewards.oracle import describe_view
from collab.rewards.structured_replies import format_reason, format_reply
from collab.seeds import derive, generator
from collab.synthesis import facts
from collab.synthesis.conversation import Talk
from collab.synthesis.facts import ActionBuilder
from collab.synthesis.instructions import Instruction, build_two_steps, propose_instructions
from collab.synthesis.judgement import Analysis, Candidate, CandidateSource
from collab.synthesis.renaming import as_told, as_told_beside, find_spelling, rename_apps, rename_labels, rename_opened
from collab.synthesis.screens import build_decision_point, describe_effect, has_effect, is_view_changed, try_action
from collab.synthesis.teacher import Scene, Sort, StoredInstruction, TeacherOutput
from collab.synthesis.wording import ELEMENT, SCREEN, ElementKind, ScreenKind, ask_about_element, ask_about_screen
from collab.types import Action, Element, ElementTarget, Prompt, StepResult

UNTOLD = "it types words that the prompt does not tell"
"""Cause of a refusal: words that the prompt no longer shows could only be made up."""
_TYPED = {"input_text": "text", "type_string": "content"}
_WORD = re.compile(r"[^\W\d_]{3,}")


class Refusal(Exception):
    """A refused row; its message is the counted cause."""


@dataclass(slots=True, kw_only=True)
class ExampleCollector:
    """Collects the rows of one scene and level."""

    scene: Scene
    level: Level
    teacher: str
    rng: random.Random
    shown: Scene | None = None
    """The renamed scene in prompts (`renaming`); None without renaming."""
    rows: list[Example] = field(default_factory=list)
    instructions: list[StoredInstruction] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)

    def add(self, kind: str, prompt: Prompt, answer: str) -> None:
        """Add a question and its answer."""
        self._write(kind, prompt, answer)

    def decide(
        self, kind: str, prompt: Prompt, action: Action, *, because: str | None = None, rejected: str | None = None
    ) -> None:
        """Add a decision and its reply.

        Args:
            action: canonical on the scene.
            because: element line that the reply names first; None for the action's target.
            rejected: the rejected reply of a preference.

        Raises:
            Refusal: the prompt lacks the reply's element, typed words or app, or the reply does not parse as its
                action.
        """
        space, screen = self.scene.suite.space, (self.shown or self.scene).observation
        aimed = isinstance(action.target, ElementTarget) or because is not None
        # A reason about an element that the prompt does not show would teach guessing.
        if aimed and (because or format_reason(action, screen, space)) not in prompt.shared:
            raise Refusal("its element is not in the prompt")
        # Typed words must be in the prompt too.
        if not _list_typed_words(action) <= _split_words(prompt.shared):
            raise Refusal(UNTOLD)
        if self.level == "instruction" and _is_unnamed_app(action, prompt.shared):
            raise Refusal("the app to open is not in the prompt")
        text = format_reply(as_told(action, prompt.shared), screen, space, because)
        # Parse the reply: an unreadable one would teach a wrong form.
        if read_reply(text, space, screen).action != action:
            raise Refusal("the reply is not read back as its action")
        self._write(kind, prompt, text, action.type, rejected)

    def _write(
        self, kind: str, prompt: Prompt, said: str, action_type: str | None = None, rejected: str | None = None
    ) -> None:
        row = Example(
            level=self.level,
            kind=kind,
            prompt=prompt,
            reply=said,
            rejected=rejected,
            action_type=action_type,
            provenance=self.scene.build_provenance(self.teacher),
        )
        self.rows.append(row)


def _list_typed_words(action: Action) -> frozenset[str]:
    """Return the words that an action types, without numbers, dates and codes, which may be derived."""
    typed = action.get(_TYPED[action.type]) if action.type in _TYPED else None
    return _split_words(typed) if isinstance(typed, str) else frozenset()


def _is_unnamed_app(action: Action, told: str) -> bool:
    return action.type == "open_app" and find_spelling(str(action["app_name"]), told) is None


def _split_words(text: str) -> frozenset[str]:
    return frozenset(word.casefold() for word in _WORD.findall(text))


def require_fitting(ask: Callable[[], Prompt]) -> Prompt:
    """Build a prompt; Refusal if it does not fit into the context."""
    try:
        return ask()
    except ModelFailure:
        raise Refusal("the prompt does not fit into the context") from None


_ANSWERS = {
    "screen-purpose": facts.describe_purpose,
    "screen-aim": facts.describe_aim,
    "screen-summary": facts.summarize_screen,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
    """Most rows per scene."""

    screens: int = 1
    """Questions about the screen."""
    elements: int = 4
    """Questions about elements, each about another one where there are enough."""
    instructions: Mapping[Sort, int] = field(default_factory=lambda: {"do": 4, "complete": 1, "answer": 1})
    """Appendix B asks for one or two that are complete already, and at most one answer."""
    seats: int = 1
    """Decisions per step of a solution, each from another seat of another conversation."""
    renamed: float = 0.0
    """Share of screens and decisions that are taught under other names, in [0, 1)."""
    two_steps: float = 0.0
    """Share of screens with an instruction of two steps, in [0, 1)."""
    hurry: float = 0.0
    """Share of demonstrated decisions in a hurry, in [0, 1); see `find_skip`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OracleTeacher:
    """Makes rows from the environment's own knowledge."""

    talk: Talk
    amounts: Amounts = Amounts()
    candidates: CandidateSource | None = None
    """Samples what level judgement judges; None without that level."""
    name: str = "oracle"

    @property
    def levels(self) -> frozenset[Level]:
        """Levels that it can teach: judgements only of a policy's candidates."""
        return frozenset(POLICY_LEVELS if self.candidates is None else LEVELS)

    async def teach(self, scene: Scene, level: Level) -> TeacherOutput:
        """Make rows of one level; see `Teacher.teach`."""
        if level == "judgement":
            return await self._judge_candidates(scene)
        examples = ExampleCollector(
            scene=scene, level=level, teacher=self.name, rng=generator(derive(scene.seed, level))
        )
        if level == "basic":
            await self._teach_basic(examples)
        elif level == "instruction":
            await self._teach_instruction(examples)
        else:
            for seat in range(self.amounts.seats):
                await self._teach_decision(examples, seat)
        return TeacherOutput(
            rows=tuple(examples.rows), instructions=tuple(examples.instructions), refused=examples.refused
        )

    # ----------------------------------------------------------------------------------------------- basic

    async def _teach_basic(self, examples: ExampleCollector) -> None:
        rng, screen = examples.rng, examples.scene.observation
        kinds: tuple[ScreenKind, ...] = tuple(SCREEN)
        # Draw without repetition: equal questions give equal rows.
        for kind in rng.sample(kinds, min(self.amounts.screens, len(kinds))):
            examples.add(
                kind, self.talk.reader.build_question(screen, ask_about_screen(kind, rng)), _ANSWERS[kind](screen)
            )
        chosen = rng.sample(screen.elements, min(self.amounts.elements, len(screen.elements)))
        for element in chosen:
            asked: ElementKind = rng.choice(tuple(ELEMENT))
            try:
                answer = await _describe_element(examples.scene, element, asked)
            except Refusal as refusal:
                # Count a question without an answer and continue.
                examples.refused[str(refusal)] += 1
                continue
            prompt = self.talk.reader.build_question(screen, ask_about_element(asked, element, rng))
            examples.add(asked, prompt, f"{format_element(element)}\n{answer}")

    # ----------------------------------------------------------------------------------------- instruction

    async def _teach_instruction(self, examples: ExampleCollector) -> None:
        # Sometimes under other names: policies must read labels, not remember them.
        if examples.rng.random() < self.amounts.renamed:
            examples.shown = rename_labels(examples.scene, examples.rng)
        first: Instruction | None = None
        for sort, found in propose_instructions(examples.shown or examples.scene, examples.rng).items():
            wanted = self.amounts.instructions.get(sort, 0)
            for instruction in found:
                if wanted == 0:
                    break
                try:
                    await self._step(examples, instruction)
                    wanted -= 1
                    first = first or (instruction if sort == "do" else None)
                except Refusal as refusal:
                    examples.refused[str(refusal)] += 1
        # Never with renamed labels, as the real screen follows.
        if first is not None and examples.shown is None and examples.rng.random() < self.amounts.two_steps:
            await self._teach_two_steps(examples, first)

    async def _step(self, examples: ExampleCollector, instruction: Instruction) -> None:
        """Add one instruction if following it has an effect."""
        scene = examples.scene
        action, result = scene.suite.space.canonical(instruction.action, scene.observation), None
        if instruction.sort == "do":
            result = await try_action(scene, action)
            if result is not None and not has_effect(scene, result):
                raise Refusal("the instruction changes nothing")
            if result is not None and _is_opening_nothing(instruction, action, scene, result):
                raise Refusal("what is to be opened does not open")
        kind = "one-step" if instruction.sort == "do" else f"one-step-{instruction.sort}"
        # As a task it is told from nothing done by what is seen: a notice alone is too little.
        is_seen = instruction.sort != "do" or (result is not None and is_view_changed(scene, result))
        self._ask(examples, kind, replace(instruction, action=action), [action] if is_seen else [])

    async def _teach_two_steps(self, examples: ExampleCollector, first: Instruction) -> None:
        """Add an instruction of two steps at each of its moments."""
        scene = examples.scene
        first = replace(first, action=scene.suite.space.canonical(first.action, scene.observation))
        moments = await build_two_steps(scene, first, examples.rng)
        # Two steps may lead back to where they began: then nothing would be left to do.
        lead_on = moments and describe_view(moments[-1].scene.observation) != describe_view(scene.observation)
        for number, moment in enumerate(moments):
            # As a task it begins with its first moment; the others are on the way.
            way = [one.instruction.action for one in moments] if number == 0 and lead_on else []
            try:
                self._ask(replace(examples, scene=moment.scene), "two-step", moment.instruction, way)
            except Refusal as refusal:
                examples.refused[str(refusal)] += 1

    def _ask(self, examples: ExampleCollector, kind: str, instruction: Instruction, way: Sequence[Action]) -> None:
        """Add an instruction; a share of `Amounts.renamed` of those that open an app renames it.

        Args:
            way: its actions as a task (`Scene.store_instruction`); empty if it is none.
        """
        shown, goal, action = examples.shown or examples.scene, instruction.goal, instruction.action
        if action.type == "open_app" and examples.rng.random() < self.amounts.renamed:
            renaming = rename_opened(action, examples.rng)
            shown = renaming.rename_scene(replace(shown, history=instruction.history))
            instruction = replace(instruction, history=shown.history)
            goal, action = renaming.rename_goal(goal), renaming.rename_action(action)
        prompt = require_fitting(lambda: self.talk.build_first_decision(shown, goal, instruction.history, examples.rng))
        replace(examples, shown=shown).decide(kind, prompt, action, because=instruction.because)
        # Under other names the real screen does not show what the goal names.
        if way and shown is examples.scene and not instruction.needs_history:
            examples.instructions += examples.scene.store_instruction(goal, instruction.sort, way, examples.rows[-1])

    # ------------------------------------------------------------------------- demonstration and preference

    async def _teach_decision(self, examples: ExampleCollector, seat: int) -> None:
        scene = examples.scene
        rng = generator(derive(scene.seed, "decision", seat))  # the same prompt on both levels
        try:
            right = _find_next_action(scene)
            renaming = rename_apps(scene, scene.task.goal, rng) if rng.random() < self.amounts.renamed else None
            shown = scene if renaming is None else renaming.rename_scene(scene)
            said = right if renaming is None else renaming.rename_action(right)
            # Peers speak as ever: who is in a hurry does not listen, and agents that hurry do so independently.
            prompt = require_fitting(lambda: self.talk.build_decision(shown, said, rng))
            if examples.level == "demonstration" and rng.random() < self.amounts.hurry:
                skipping = await find_skip(scene, right)
                if skipping is not None:
                    said = skipping if renaming is None else renaming.rename_action(skipping)
                    replace(examples, shown=shown).decide("hurry", prompt, said)
                    return
            rejected = None
            if examples.level == "preference":
                wrong = await self._find_worse(scene, right, rng)
                wrong = wrong if renaming is None else renaming.rename_action(wrong)
                wrong = as_told_beside(wrong, said, prompt.shared)
                rejected = format_reply(wrong, shown.observation, scene.suite.space)
            kind = "process" if rejected else "recovery" if scene.met == "mistake" else "solution"
            replace(examples, shown=shown).decide(kind, prompt, said, rejected=rejected)
        except Refusal as refusal:
            examples.refused[str(refusal)] += 1

    async def _find_worse(self, scene: Scene, right: Action, rng: random.Random) -> Action:
        """Find an action that the environment judges worse than the right one; Refusal without one."""
        environment = scene.environment
        able = isinstance(environment, Forkable) and isinstance(environment, HasOracle)
        critic = SolutionScorer(environment) if able else None  # type: ignore[arg-type]
        found = await draw_worse(environment, right, build_decision_point(scene), rng, critic=critic)
        if found is None:
            raise Refusal("no worse action was found")
        return found.action

    # ------------------------------------------------------------------------------------------- judgement

    async def _judge_candidates(self, scene: Scene) -> TeacherOutput:
        try:
            right = _find_next_action(scene)
            # The judge reads no history: words from earlier screens could only be guessed.
            if not _list_typed_words(right) <= _split_words(f"{scene.task.goal}\n{scene.observation.text}"):
                raise Refusal(UNTOLD)
        except Refusal as refusal:
            return TeacherOutput(refused=Counter({str(refusal): 1}))
        assert self.candidates is not None, "level judgement needs a policy"
        return await self.candidates.teach(scene, right, partial(explain_candidate, scene, right), self.name)


async def explain_candidate(scene: Scene, right: Action, candidate: Candidate) -> Analysis | str:
    """Write the analysis of a candidate, or return the cause for leaving it out."""
    space, environment = scene.suite.space, scene.environment
    step = f"The next step is: {space.describe(right, scene.observation)}."
    if candidate.is_right:
        return Analysis(f"{step} This is that step.")
    scorer = SolutionScorer(environment) if isinstance(environment, SolutionEnvironment) else None
    verdict = None if scorer is None else await scorer(candidate.action)
    if verdict is None or not verdict.known:
        return Analysis(f"{step} This is another one.")
    # A solution is one way of several: what leads on as well is not wrong.
    if verdict.score >= GOOD:
        return "another step that leads on as well"
    # Numbers of steps are left out: the judge could only guess them.
    return Analysis(f"{step} This is another one: {verdict.reason.partition(':')[0]}.")


async def _describe_element(scene: Scene, element: Element, kind: ElementKind) -> str:
    """Return the answer to a question about an element, without the element's line."""
    if kind == "element-information":
        return facts.describe_information(element)
    # Try the tap on a fork instead of guessing from the role.
    actions = ActionBuilder(scene.suite.space)
    tap = actions.tap(element.index)
    tapped = None if tap is None else await try_action(scene, tap)
    effect = "" if tap is None or tapped is None else describe_effect(scene, tap, tapped)
    dead = tapped is not None and not has_effect(scene, tapped)
    if kind == "element-effect":
        if not effect:
            raise Refusal("what a tap does cannot be tried here")
        return effect
    if kind == "element-function":
        return (
            f"{facts.describe_function(element)} When tapped: {effect}" if effect else facts.describe_function(element)
        )
    own = facts.find_own_action(element, actions)
    # An action without effect does not answer "what can be done".
    action = None if dead and own == tap else own
    return "None: it does nothing." if action is None else scene.suite.space.format(action)


async def find_skip(scene: Scene, right: Action) -> Action | None:
    """Find what a demonstrator in a hurry does: the action after next, where this screen already allows it.

    Args:
        right: the solution's next action, canonical on the scene.

    Returns:
        Its canonical form. None where nothing follows, where what follows is not on this screen yet, or where it is as
        good (another order of the same steps); and in an environment that cannot fork or knows no solutions.
    """
    environment, space = scene.environment, scene.suite.space
    if not isinstance(environment, SolutionEnvironment):
        return None
    fork = await environment.fork()
    try:
        result = await fork.step(right)
        following = fork.oracle() if isinstance(fork, HasOracle) and not result.done else None
    finally:
        await fork.close()
    found = _find_here(space.canonical(following[0], result.observation), result, scene) if following else None
    if found is None or found == right:
        return None
    return None if (await SolutionScorer(environment)(found)).score >= GOOD else found


def _find_here(action: Action, result: StepResult, scene: Scene) -> Action | None:
    """Return an action of the screen behind a step as it is done on the scene's; None if its element is missing."""
    if isinstance(action.target, ElementTarget):
        wanted = result.observation.elements[action.target.index]
        # An element is recognised by role and label, for its place among the others may differ.
        there = [one for one in scene.observation.elements if (one.role, one.label) == (wanted.role, wanted.label)]
        if len(there) != 1:
            return None
        action = replace(action, target=ElementTarget(index=there[0].index))
    return scene.suite.space.canonical(action, scene.observation)


def _is_opening_nothing(instruction: Instruction, action: Action, scene: Scene, result: StepResult) -> bool:
    """Return whether an entry should be opened but the tap selects it or leads elsewhere."""
    if not instruction.goal.startswith("Open ") or not isinstance(action.target, ElementTarget):
        return False
    entry = scene.observation.elements[action.target.index]
    return entry.role == "list item" and flatten(entry.label) not in result.observation.title


def _find_next_action(scene: Scene) -> Action:
    """Return the solution's next action, canonical on the scene; Refusal without one."""
    if not isinstance(scene.environment, HasOracle):
        raise Refusal("the environment knows no solutions")
    remaining = scene.environment.oracle()
    if not remaining:
        raise Refusal("no way leads on" if remaining is None else "the episode is over")
    return scene.suite.space.canonical(remaining[0], scene.observation)
