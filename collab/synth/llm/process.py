"""The three roles on one step of a task: who proposes it, who judges it, who gets it wrong.

A proposal is worth learning when the critic's score is above one half (CollabUIAgents, eq. 6: ⌈score − 0.5⌉, so that
exactly 0.5 earns nothing); a score that is missing is no reward and no pair. Only a rewarded proposal is set against
the adversary's bad reply under the same input (eq. 7). A negative is dropped and counted if it cannot be read, means
the same as the proposal on this screen, or leads to the same state where the environment can fork.
"""

from __future__ import annotations

from collections import Counter

from collab.credit.asking import prompt_hash
from collab.credit.reached import reached
from collab.credit.replies import Proposal, Score, read_items
from collab.envs.base import Forkable
from collab.synth.llm.checks import NOT_SHOWN, Decided, is_shown, read_action
from collab.synth.llm.desk import TOO_LONG, Desk
from collab.synth.rows import Level, Row
from collab.synth.teacher import Lesson, Scene
from collab.types import Action, CellRef, CellReward, Prompt

_CELL = CellRef("teacher", 0)


async def propose(desk: Desk, scene: Scene) -> Decided | Counter[str]:
    """The next step of a task, or why there is none; ModelFailure when the model cannot be reached."""
    state = desk.decision(scene)
    if state is None:
        return Counter({TOO_LONG: 1})
    return await _decide(desk, scene, _act(desk, state), "act")


async def prefer(desk: Desk, scene: Scene, proposed: Decided) -> Lesson:
    """A preference between a rewarded proposal and a bad reply; no row when one of the three roles gives nothing."""
    judged = await score(desk, scene, proposed)
    if judged.score is None:
        return Lesson(refused=Counter({f"critic: {judged.missing}": 1}))
    if not judged.reward:
        return Lesson(refused=Counter({"critic: not rewarded": 1}))
    wrong = await mislead(desk, scene, proposed)
    if not isinstance(wrong, Decided):
        return Lesson(refused=Counter({f"adversary: {why}": count for why, count in wrong.items()}))
    return step_row(desk, scene, "preference", proposed, wrong)


async def score(desk: Desk, scene: Scene, proposed: Decided) -> CellReward:
    """The critic's word on a proposal; a score that is absent, out of range or unreadable stays missing."""
    state = desk.decision(scene)
    if state is None:
        return _missing(TOO_LONG)
    words = scene.suite.space.describe(proposed.action, scene.observation)
    prompt = desk.prompts.critic(state.shared.strip(), [(words, proposed.reason)])
    found = read_items(await desk.caller.ask(prompt, scene.seed, "critic"), Score)
    scores = [item for item in found.good if item.id == 1]
    if len({item.score for item in scores}) != 1:
        return _missing("two scores for one action" if scores else next(iter(found.refused), "no score"))
    return CellReward(cell=_CELL, score=scores[0].score, reason=scores[0].reason)


async def mislead(desk: Desk, scene: Scene, right: Decided) -> Decided | Counter[str]:
    """A bad reply under the same input, or why there is none."""
    state = desk.decision(scene)
    if state is None:
        return Counter({TOO_LONG: 1})
    words = scene.suite.space.describe(right.action, scene.observation)
    wrong = await _decide(desk, scene, desk.prompts.clumsy(state.shared.strip(), words), "clumsy")
    if not isinstance(wrong, Decided):
        return wrong
    if wrong.action == right.action:
        return Counter({"the same action as the good one": 1})
    if await _same_state(scene, wrong.action, right.action):
        return Counter({"leads to the same state as the good one": 1})
    return wrong


def step_row(desk: Desk, scene: Scene, level: Level, good: Decided, bad: Decided | None = None) -> Lesson:
    """The row of one step as a policy would be asked for it; of a preference with both sides."""
    prompt = desk.decision(scene)
    if prompt is None:
        return Lesson(refused=Counter({TOO_LONG: 1}))
    if not all(is_shown(side.action, scene.observation, prompt) for side in (good, bad or good)):
        return Lesson(refused=Counter({NOT_SHOWN: 1}))
    row = Row(
        level=level,
        kind="solution" if bad is None else "process",
        prompt=prompt,
        reply=good.reply,
        rejected=None if bad is None else bad.reply,
        action_type=good.action.type,
        provenance=scene.provenance(desk.name, prompt_hash(_act(desk, prompt))),
    )
    return Lesson(rows=(row,))


def _act(desk: Desk, state: Prompt) -> Prompt:
    return desk.prompts.act(state.shared.strip())


async def _decide(desk: Desk, scene: Scene, prompt: Prompt, role: str) -> Decided | Counter[str]:
    found = read_items(await desk.caller.ask(prompt, scene.seed, role), Proposal)
    if len(found.good) != 1:
        return found.refused or Counter({"several actions in one reply": 1})
    decided = read_action(found.good[0], scene.suite.space, scene.observation, goal=scene.task.goal)
    return decided if isinstance(decided, Decided) else Counter({decided: 1})


def _missing(why: str) -> CellReward:
    return CellReward(cell=_CELL, score=None, missing=why)


async def _same_state(scene: Scene, one: Action, other: Action) -> bool:
    """Whether two actions cannot be told apart by what they lead to; False where the environment cannot fork."""
    world = scene.environment
    return isinstance(world, Forkable) and await reached(world, one) == await reached(world, other)
