"""A language model as a teacher (CollabUIAgents, Appendix B): `LanguageTeacher`.

    basic          one call per screen: questions about it and about some of its elements
    instruction    one call per screen: one-step instructions with reason and action
    demonstration  the steps of an episode that the model played by itself and solved
    preference     its steps that the critic rewards, against a clumsy agent's
    judgement      why a candidate in place of such a step is right or wrong, which it is told

All replies are checked, and refusals are counted by cause (`collab.synthesis.llm_prompts`). Deviations from the paper:
prompts of our own; replies are JSON; demonstrations, which the paper lacks, come only from solved episodes.

An episode has two passes. `play` requests and executes steps until the episode is over. `replay` repeats the actions
without the model and yields the scenes, once it is known whether the episode succeeded. It needs a deterministic
environment; otherwise no scene is yielded.

For preferences, a proposal is rewarded if the critic's score is above one half (CollabUIAgents, eq. 6: ⌈score − 0.5⌉;
exactly 0.5 earns nothing). A missing score gives no pair. A rewarded proposal is paired with the adversary's bad reply
under the same input (eq. 7). A negative is dropped and counted if it cannot be read, equals the proposal on this
screen, or leads to the same state where the environment can fork.

Of one screen's instructions, at most two may end with "done" and at most one with an answer (Appendix C.4.3). One call
asks all basic questions on a screen, and four on each drawn element (table 9).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import get_args

from collab.data.example import LEVELS, POLICY_LEVELS, Example, Level
from collab.envs.base import Environment, Forkable, HasGoal, Suite
from collab.envs.grammar import ActionSpace
from collab.errors import EnvironmentFailure
from collab.rewards.oracle import reach
from collab.rewards.structured_replies import (
    AnalysisItem,
    AnswerItem,
    InstructionItem,
    ProposalItem,
    ScoreItem,
    hash_prompt,
    read_items,
)
from collab.rollout.episode import build_history_entry
from collab.seeds import derive, generator
from collab.store.rewards import CellReward
from collab.synthesis.caller import Caller
from collab.synthesis.conversation import Reader
from collab.synthesis.judgement import Analysis, Candidate, CandidateSource
from collab.synthesis.llm_prompts import (
    FOREIGN,
    NOT_SHOWN,
    Decided,
    TeacherPrompts,
    explain_unfounded,
    is_answer,
    is_completion,
    is_foreign,
    is_shown,
    read_action,
)
from collab.synthesis.screens import is_view_changed, try_action
from collab.synthesis.teacher import Scene, StoredInstruction, TeacherOutput
from collab.synthesis.wording import ElementKind, ScreenKind, ask_about_element, ask_about_screen
from collab.types import Action, CellRef, HistoryEntry, Prompt, Task

PATIENCE = 3
"""Refused proposals in a row after which an episode is given up."""

Propose = Callable[[Scene], Awaitable[Decided | Counter[str]]]
"""The next step of a scene, or why there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TeacherStep:
    """A step that was proposed and carried out."""

    decided: Decided | None
    """None where no proposal fitted and nothing was done."""
    executed: Action | None
    screen: str
    """Digest of the screen before."""
    changed: bool
    """Whether it had a visible effect; ending an episode counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TeacherEpisode:
    """A whole episode."""

    steps: tuple[TeacherStep, ...]
    success: bool
    refused: Mapping[str, int] = field(default_factory=Counter)


async def play(suite: Suite, environment: Environment, task: Task, *, seed: int, propose: Propose) -> TeacherEpisode:
    """Play one episode; may raise EnvironmentFailure and ModelFailure."""
    scene = await _begin(suite, environment, task, seed)
    steps: list[TeacherStep] = []
    refused: Counter[str] = Counter()
    idle = 0
    # As an agent would play it, but with one teacher that decides alone.
    while True:
        found = await propose(scene)
        decided = found if isinstance(found, Decided) else None
        if not isinstance(found, Decided):
            refused += found
        idle = 0 if decided else idle + 1
        # A teacher that decides nothing several times in a row would do so to the end.
        if idle == PATIENCE:
            return TeacherEpisode(steps=tuple(steps), success=False, refused=refused)
        result = await environment.step(executed := decided.action if decided else None)
        after = result.observation
        # Steps that change nothing are kept with that mark: they teach nothing, and are left out later.
        changed = result.terminated or after.digest != scene.observation.digest
        steps.append(TeacherStep(decided=decided, executed=executed, screen=scene.observation.digest, changed=changed))
        if result.done:
            success = result.outcome is not None and result.outcome.success
            return TeacherEpisode(steps=tuple(steps), success=success, refused=refused)
        # The history is worded as in a rollout, so that rows look like what a policy will read.
        entry = build_history_entry(suite.space, scene.observation, executed, decided.reason if decided else "", result)
        scene = _advance_scene(scene, entry, executed, seed=seed)
        scene = replace(scene, observation=after)


async def replay(
    suite: Suite, environment: Environment, task: Task, played: TeacherEpisode, *, seed: int
) -> AsyncIterator[Scene]:
    """Yield the scenes of an episode's executed steps, with the environment in their state.

    Raises:
        EnvironmentFailure: the environment differs from the first pass.
    """
    scene = await _begin(suite, environment, task, seed)
    for number, step in enumerate(played.steps):
        if scene.observation.digest != step.screen:
            raise EnvironmentFailure(f"{suite.label}: {task.name} is not what it was before step {number}")
        if step.decided is not None:
            yield scene
        if number == len(played.steps) - 1:
            return  # whatever follows the last step, nothing is taught there
        result = await environment.step(step.executed)
        reason = step.decided.reason if step.decided else ""
        entry = build_history_entry(suite.space, scene.observation, step.executed, reason, result)
        scene = replace(_advance_scene(scene, entry, step.executed, seed=seed), observation=result.observation)


async def _begin(suite: Suite, environment: Environment, task: Task, seed: int) -> Scene:
    observation = await environment.reset(task)
    # Some environments state the goal only after the reset.
    if isinstance(environment, HasGoal):
        task = replace(task, goal=environment.goal())
    return Scene(
        suite=suite,
        environment=environment,
        task=task,
        step=0,
        observation=observation,
        met="rollout",
        seed=derive(seed, "scene", 0),
    )


def _advance_scene(scene: Scene, entry: HistoryEntry, executed: Action | None, *, seed: int) -> Scene:
    step = scene.step + 1
    history = (*scene.history, entry)
    taken = (*scene.taken, executed)
    return replace(scene, step=step, history=history, taken=taken, seed=derive(seed, "scene", step))


TOO_LONG = "the task does not fit into the context"


@dataclass(frozen=True, slots=True, kw_only=True)
class TeacherContext:
    """Model, prompts and policy shared by all roles."""

    name: str
    """Name of the agents file that teaches."""
    caller: Caller
    prompts: TeacherPrompts
    reader: Reader
    """The policy that rows are made for."""


_CELL = CellRef("teacher", 0)


async def propose(context: TeacherContext, scene: Scene) -> Decided | Counter[str]:
    """Return the next step of a task, or the causes of its refusal; ModelFailure if the model cannot be reached."""
    state = context.reader.build_alone(scene)
    if state is None:
        return Counter({TOO_LONG: 1})
    return await _decide(context, scene, _act(context, state), "act")


async def prefer(context: TeacherContext, scene: Scene, proposed: Decided) -> TeacherOutput:
    """Pair a rewarded proposal with a bad reply; no row if a role gives nothing."""
    judged = await score(context, scene, proposed)
    if judged.score is None:
        return TeacherOutput(refused=Counter({f"critic: {judged.missing}": 1}))
    if not judged.reward:
        return TeacherOutput(refused=Counter({"critic: not rewarded": 1}))
    wrong = await mislead(context, scene, proposed)
    if not isinstance(wrong, Decided):
        return TeacherOutput(refused=Counter({f"adversary: {why}": count for why, count in wrong.items()}))
    return step_row(context, scene, "preference", proposed, wrong)


async def score(context: TeacherContext, scene: Scene, proposed: Decided) -> CellReward:
    """Return the critic's score of a proposal; an absent, unreadable or out-of-range score is missing."""
    state = context.reader.build_alone(scene)
    if state is None:
        return _build_missing(TOO_LONG)
    words = scene.suite.space.describe(proposed.action, scene.observation)
    prompt = context.prompts.build_critic(state.shared.strip(), [(words, proposed.reason)])
    found = read_items(await context.caller.ask(prompt, scene.seed, "critic"), ScoreItem)
    scores = [item for item in found.good if item.id == 1]
    if len({item.score for item in scores}) != 1:
        return _build_missing("two scores for one action" if scores else next(iter(found.refused), "no score"))
    return CellReward(cell=_CELL, score=scores[0].score, reason=scores[0].reason)


async def mislead(context: TeacherContext, scene: Scene, right: Decided) -> Decided | Counter[str]:
    """Return a bad reply under the same input, or the causes of its refusal."""
    state = context.reader.build_alone(scene)
    # The policy could never read a prompt that does not fit.
    if state is None:
        return Counter({TOO_LONG: 1})
    words = scene.suite.space.describe(right.action, scene.observation)
    wrong = await _decide(context, scene, context.prompts.build_clumsy(state.shared.strip(), words), "clumsy")
    if not isinstance(wrong, Decided):
        return wrong
    # "Bad" must differ from "good" in its action and in its result.
    if wrong.action == right.action:
        return Counter({"the same action as the good one": 1})
    if await _is_same_state(scene, wrong.action, right.action):
        return Counter({"leads to the same state as the good one": 1})
    return wrong


def step_row(
    context: TeacherContext, scene: Scene, level: Level, good: Decided, bad: Decided | None = None
) -> TeacherOutput:
    """Build the row of one step with the policy's prompt; a preference has both sides."""
    prompt = context.reader.build_alone(scene)
    if prompt is None:
        return TeacherOutput(refused=Counter({TOO_LONG: 1}))
    # Both sides must act on what the prompt shows: cut prompts may lack the element.
    if not all(is_shown(side.action, scene.observation, prompt) for side in (good, bad or good)):
        return TeacherOutput(refused=Counter({NOT_SHOWN: 1}))
    row = Example(
        level=level,
        kind="solution" if bad is None else "process",
        prompt=prompt,
        reply=good.reply,
        rejected=None if bad is None else bad.reply,
        action_type=good.action.type,
        provenance=scene.build_provenance(context.name, hash_prompt(_act(context, prompt))),
    )
    return TeacherOutput(rows=(row,))


def _act(context: TeacherContext, state: Prompt) -> Prompt:
    return context.prompts.act(state.shared.strip())


async def _decide(context: TeacherContext, scene: Scene, prompt: Prompt, role: str) -> Decided | Counter[str]:
    found = read_items(await context.caller.ask(prompt, scene.seed, role), ProposalItem)
    if len(found.good) != 1:
        return found.refused or Counter({"several actions in one reply": 1})
    decided = read_action(found.good[0], scene.suite.space, scene.observation, goal=scene.task.goal)
    return decided if isinstance(decided, Decided) else Counter({decided: 1})


def _build_missing(why: str) -> CellReward:
    return CellReward(cell=_CELL, score=None, missing=why)


async def _is_same_state(scene: Scene, one: Action, other: Action) -> bool:
    """Return whether two actions lead to the same state; False if the environment cannot fork."""
    world = scene.environment
    return isinstance(world, Forkable) and await reach(world, one) == await reach(world, other)


async def analyse(context: TeacherContext, scene: Scene, right: Action, candidate: Candidate) -> Analysis | str:
    """Request the analysis of a candidate whose label is told, or return the cause for leaving it out."""
    if not candidate.is_right and await _is_same_state(scene, candidate.action, right):
        return "leads to the same state as the demonstrated step"
    state = context.reader.build_alone(scene)
    if state is None:
        return TOO_LONG
    space, screen = scene.suite.space, scene.observation
    prompt = context.prompts.build_analysis(
        state.shared.strip(),
        (space.describe(candidate.action, screen), candidate.reason),
        space.describe(right, screen),
        is_right=candidate.is_right,
    )
    found = read_items(await context.caller.ask(prompt, scene.seed, "analysis"), AnalysisItem)
    if len(found.good) != 1:
        return next(iter(found.refused), "several analyses in one reply")
    text = found.good[0].analysis
    return FOREIGN if is_foreign(text, scene.task.goal, screen.text) else Analysis(text, hash_prompt(prompt))


MOST_COMPLETIONS, MOST_ANSWERS = 2, 1


async def teach_instructions(context: TeacherContext, scene: Scene, count: int) -> TeacherOutput:
    """Request `count` instructions and build one row per valid one."""
    prompt = context.prompts.build_instructions(scene.observation.text, count)
    found = read_items(await context.caller.ask(prompt, scene.seed, "instructions"), InstructionItem)
    refused, asked, taken = Counter(found.refused), hash_prompt(prompt), _ScreenInstructions()
    rows: list[Example] = []
    instructions: list[StoredInstruction] = []
    # Item by item: one bad instruction must not cost the others.
    for item in found.good:
        decided = _check_item(item, scene, taken)
        row = (
            _build_instruction_row(context, scene, item.instruction, decided, asked)
            if isinstance(decided, Decided)
            else decided
        )
        if isinstance(row, Example) and isinstance(decided, Decided):
            rows.append(row)
            instructions += await _store_instruction(scene, item.instruction, decided.action, row)
        elif isinstance(row, str):
            refused[row] += 1
    return TeacherOutput(rows=tuple(rows), instructions=tuple(instructions), refused=refused)


async def _store_instruction(scene: Scene, goal: str, action: Action, row: Example) -> tuple[StoredInstruction, ...]:
    """Return an instruction as a task; empty if it cannot be played, or its step changes nothing that is seen."""
    space = scene.suite.space
    if is_completion(action, space) or is_answer(action):
        return scene.store_instruction(goal, "answer" if is_answer(action) else "complete", [action], row)
    result = await try_action(scene, action)
    if result is None or not is_view_changed(scene, result):
        return ()
    return scene.store_instruction(goal, "do", [action], row)


@dataclass(slots=True)
class _ScreenInstructions:
    """Instructions of a screen so far."""

    instructions: set[str] = field(default_factory=set)
    completions: int = 0
    answers: int = 0

    def explain_refusal(self, instruction: str, action: Action, space: ActionSpace) -> str | None:
        """Return why another instruction is too much; None if it is accepted."""
        folded = instruction.casefold()
        completes, answers = is_completion(action, space), is_answer(action)
        # Bounded per screen: easy kinds would crowd out the others.
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


def _check_item(item: InstructionItem, scene: Scene, taken: _ScreenInstructions) -> Decided | str:
    space, observation = scene.suite.space, scene.observation
    if is_foreign(item.instruction, "", observation.text):
        return FOREIGN
    decided = read_action(item, space, observation, goal=item.instruction)
    if isinstance(decided, str):
        return decided
    why = explain_unfounded(item.instruction, decided.action, space, observation)
    return why or taken.explain_refusal(item.instruction, decided.action, space) or decided


def _build_instruction_row(
    context: TeacherContext, scene: Scene, instruction: str, decided: Decided, asked: str
) -> Example | str:
    prompt = context.reader.build_alone(scene, instruction)
    if prompt is None:
        return TOO_LONG
    # What the prompt does not show cannot be learned from it.
    if not is_shown(decided.action, scene.observation, prompt):
        return NOT_SHOWN
    return Example(
        level="instruction",
        kind="one-step",
        prompt=prompt,
        reply=decided.reply,
        action_type=decided.action.type,
        provenance=scene.build_provenance(context.name, asked),
    )


@dataclass(frozen=True, slots=True)
class Question:
    """One question of a call."""

    kind: str
    text: str


def draw_questions(scene: Scene, elements: int) -> list[Question]:
    """Draw the questions about a scene and at most `elements` of its elements, by the scene's seed."""
    rng = generator(derive(scene.seed, "questions"))
    questions = [Question(kind, ask_about_screen(kind, rng)) for kind in get_args(ScreenKind)]
    shown = scene.observation.elements
    for element in rng.sample(shown, min(elements, len(shown))):
        questions += [Question(kind, ask_about_element(kind, element, rng)) for kind in get_args(ElementKind)]
    return questions


async def teach_basics(context: TeacherContext, scene: Scene, elements: int) -> TeacherOutput:
    """Build one row per question that was answered once, in the question's language."""
    questions = draw_questions(scene, elements)
    prompt = context.prompts.build_screen(scene.observation.text, [question.text for question in questions])
    found = read_items(await context.caller.ask(prompt, scene.seed, "screen"), AnswerItem)
    refused = Counter(found.refused)
    answers: dict[int, AnswerItem] = {}
    # Each question once: a second answer may contradict the first.
    for answer in found.good:
        why = _explain_refusal(answer, len(questions), answers, scene)
        if why is None:
            answers[answer.question] = answer
        else:
            refused[why] += 1
    # Questions that the reply skipped are counted, or losses would not add up.
    unanswered = sum(number not in {one.question for one in found.good} for number in range(1, len(questions) + 1))
    if found.good and unanswered:
        refused["a question without an answer"] += unanswered
    asked = hash_prompt(prompt)
    rows = [
        _build_basic_row(context, scene, questions[number - 1], answers[number], asked) for number in sorted(answers)
    ]
    return TeacherOutput(rows=tuple(rows), refused=refused)


def _explain_refusal(answer: AnswerItem, questions: int, before: dict[int, AnswerItem], scene: Scene) -> str | None:
    if not 1 <= answer.question <= questions:
        return "an answer to a question that was not asked"
    if answer.question in before:
        return "a second answer to a question"
    return FOREIGN if is_foreign(answer.answer, "", scene.observation.text) else None


def _build_basic_row(
    context: TeacherContext, scene: Scene, question: Question, answer: AnswerItem, asked: str
) -> Example:
    return Example(
        level="basic",
        kind=question.kind,
        prompt=context.reader.build_question(scene.observation, question.text),
        reply=answer.answer,
        provenance=scene.build_provenance(context.name, asked),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageTeacher:
    """Teaches by a model; its draws depend on the scene's seed alone."""

    context: TeacherContext
    elements: int = 4
    """Number of elements per screen that questions are asked about."""
    instructions: int = 8
    """That are asked for per screen."""
    candidates: CandidateSource | None = None
    """Samples what level judgement judges; None without that level."""
    _played: dict[tuple[str, int], TeacherEpisode] = field(default_factory=dict)
    """Episodes whose screens are being met again, by task and seed."""

    @property
    def name(self) -> str:
        """Name of the agents file whose model teaches."""
        return self.context.name

    @property
    def levels(self) -> frozenset[Level]:
        """Levels that it can teach: judgements only of a policy's candidates."""
        return frozenset(POLICY_LEVELS if self.candidates is None else LEVELS)

    async def teach(self, scene: Scene, level: Level) -> TeacherOutput:
        """Make rows of one level; see `Teacher.teach`."""
        if level == "basic":
            return await teach_basics(self.context, scene, self.elements)
        if level == "instruction":
            return await teach_instructions(self.context, scene, self.instructions)
        if level == "demonstration":
            return self._demonstrate(scene)
        if level == "judgement":
            return await self._judge_candidates(scene)
        taken = self._get_taken(scene)
        proposed = taken.decided if taken and taken.decided else await propose(self.context, scene)
        if not isinstance(proposed, Decided):
            return TeacherOutput(refused=proposed)
        return await prefer(self.context, scene, proposed)

    async def follow(
        self, suite: Suite, environment: Environment, task: Task, *, seed: int
    ) -> AsyncIterator[Scene | TeacherOutput]:
        """Play an episode by the model's proposals; yield the refusals, then a scene per executed step.

        May raise EnvironmentFailure and ModelFailure.
        """
        # The second pass needs a deterministic environment.
        if "deterministic" not in suite.capabilities:
            yield TeacherOutput(refused=Counter({"the world cannot be played a second time": 1}))
            return
        played = await play(suite, environment, task, seed=seed, propose=lambda scene: propose(self.context, scene))
        yield TeacherOutput(refused=played.refused)
        # `teach` looks up the executed steps here.
        key = (task.name, task.seed)
        self._played[key] = played
        try:
            async for scene in replay(suite, environment, task, played, seed=seed):
                yield scene
        finally:
            del self._played[key]

    def _get_taken(self, scene: Scene) -> TeacherStep | None:
        played = self._played.get((scene.task.name, scene.task.seed))
        return played.steps[scene.step] if played else None

    def _demonstrate(self, scene: Scene) -> TeacherOutput:
        decided = self._find_demonstrated(scene)
        if isinstance(decided, str):
            return TeacherOutput(refused=Counter({decided: 1}))
        return step_row(self.context, scene, "demonstration", decided)

    async def _judge_candidates(self, scene: Scene) -> TeacherOutput:
        decided = self._find_demonstrated(scene)
        if isinstance(decided, str) or self.candidates is None:
            return TeacherOutput(refused=Counter({str(decided): 1}))
        explain = partial(analyse, self.context, scene, decided.action)
        return await self.candidates.teach(scene, decided.action, explain, self.name)

    def _find_demonstrated(self, scene: Scene) -> Decided | str:
        """Return the step of a solved episode, or why it demonstrates nothing."""
        played, taken = self._played.get((scene.task.name, scene.task.seed)), self._get_taken(scene)
        if played is None or taken is None or taken.decided is None:
            return "the end of the episode is unknown"
        if not played.success:
            return "a step of an episode that was not solved"
        return taken.decided if taken.changed else "a step that changed nothing"
