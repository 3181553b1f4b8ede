"""Play one episode, from reset to outcome.

    observation = await environment.reset(task)
    while not done:
        matrix = await network.deliberate(scene)
        decision = vote(matrix)
        result = await environment.step(decision.action)

A `Recorder` gets every step before the next one begins. An episode may break: a dead browser, a model server without an
answer, an expired limit. It is returned as data, with its error and no outcome.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from typing import TypeAlias

from collab.agents.agent import StepContext
from collab.config import Delay, Limits, SuccessCheck
from collab.envs.base import ENDS_AT_SUCCESS, Environment, HasGoal, HasOracle, HasScore, HasScreenshot, Suite
from collab.envs.grammar import ActionSpace
from collab.envs.solution import FIRST_ERROR, look_ahead, score_step
from collab.envs.text import cut_middle
from collab.errors import EnvironmentFailure, ModelFailure, boundary
from collab.graphs.deliberation import Network, vote
from collab.models.base import Oracle, Reply
from collab.prompts.render import PromptContext, SharedPrompt, StepChange, build_prefix
from collab.rollout.protocols import check_result, check_screen, draw_instance
from collab.seeds import Seeds, derive, draw_lognormal, generator
from collab.store.rewards import REWARDED_ABOVE
from collab.store.run import Recorder
from collab.types import (
    Action,
    EpisodeError,
    HistoryEntry,
    Observation,
    Outcome,
    Step,
    StepResult,
    Task,
    Trajectory,
    Utterance,
)
from collab.utils.redact import HIDDEN, hide_text

MAX_WORDS = 4000
"""Characters kept of an effect, and of any other text beside the screen: effects go into prompts."""

SOLVED_AT_START = "solved at the start"
"""Reason of the outcome of an episode without a step."""

Admit: TypeAlias = Callable[[str], Awaitable[None]]
"""Waits until the named episode may begin or continue; never returns if it is not wanted."""


class NotAdmitted(Exception):
    """The episode is not to begin; raised by an `Admit` before an episode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """One planned episode."""

    task: str
    number: int
    """Number of the task's instance, from 0."""
    seed: int
    """Seed of the instance."""
    epoch: int = 0

    @property
    def id(self) -> str:
        """Name of the episode, unique in its run."""
        name = f"{self.task}/{self.number}"
        return name if self.epoch == 0 else f"epoch{self.epoch}/{name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Settings of all episodes of a collection."""

    suite: Suite
    seeds: Seeds
    limits: Limits = field(default_factory=Limits)
    delay: Delay = field(default_factory=Delay)
    pictures: bool = True
    """Store pictures of screens that no renderer can draw again."""
    success_check: SuccessCheck = "end"
    """See `RunConfig`."""

    @property
    def label(self) -> str:
        """Label of the results: that of the suite, and when an episode ends if that is not the suite's affair."""
        return f"{self.suite.label}{ENDS_AT_SUCCESS if self.success_check == 'every_step' else ''}"


async def play(
    environment: Environment,
    network: Network,
    episode: Episode,
    stage: Stage,
    recorder: Recorder,
    *,
    done: Sequence[Step] = (),
    watch: Callable[[Step], None] = lambda step: None,
    spent: Callable[[Reply], None] = lambda reply: None,
    admit: Admit | None = None,
) -> Trajectory:
    """Play one episode to its end.

    Args:
        done: recorded steps; they are executed again without asking any model, and the episode continues after them.
            Needs a suite that is "deterministic".
        watch: called after every new step.
        spent: called with every reply, those of unfinished steps and of summaries included.
        admit: awaited before every step; the episode's time limit stands still meanwhile.

    Raises:
        StoreFailure: the recorder cannot write. Failures of the environment or a model do not raise.
    """
    started = time.perf_counter()
    # Tasks are made from name and seed alone: a resumed episode gets the same instance.
    task = draw_instance(stage.suite, episode.task, episode.seed)
    task = replace(task, max_steps=stage.limits.limit_steps(task.max_steps))
    trajectory = Trajectory(
        id=episode.id,
        task=task,
        episode=episode.number,
        epoch=episode.epoch,
        steps=(),
        final=None,
        outcome=None,
        environment=stage.label,
        environment_version=stage.suite.version,
        privileged=network.privileged,
    )
    steps: list[Step] = []
    # Begun means recorded: a failure before that still has to leave an episode in the log.
    begun = False
    try:
        # Everything the environment raises becomes data of this episode; one dead browser must not end the collection.
        with boundary(EnvironmentFailure, f"episode {episode.id} (limit {stage.limits.episode_s:g} s)"):
            async with asyncio.timeout(stage.limits.episode_s) as limit:
                player = _EpisodePlayer(environment, network, episode, stage, recorder, watch, spent)
                trajectory = replace(trajectory, task=await player.reset(task))
                if done:
                    # Replay asks no model: the recorded steps stay as they are, and only the world is brought back.
                    await player.replay(done, steps)
                    recorder.resume(episode.id, len(done))
                else:
                    # Recorded after `reset`, because only then the environment has stated the goal.
                    recorder.begin(trajectory)
                begun = True
                final, outcome = await player.run(steps, _build_asking(admit, episode.id, limit))
        trajectory = replace(trajectory, steps=tuple(steps), final=final, outcome=outcome)
    except (EnvironmentFailure, ModelFailure) as failure:
        # Steps before the failure are kept: they were paid for, and show where it broke.
        error = EpisodeError(type=type(failure).__name__, message=str(failure), step=len(steps))
        trajectory = replace(trajectory, steps=tuple(steps), error=error)
        # An episode that broke while being resumed must not be begun a second time in the log.
        if not begun and done:
            recorder.resume(episode.id, len(done))  # what was recorded stays
        elif not begun:
            recorder.begin(trajectory)
    trajectory = replace(trajectory, seconds=time.perf_counter() - started)
    # Broken episodes end, too: one without an end is one whose process died.
    recorder.end(trajectory)
    return trajectory


def _build_asking(admit: Admit | None, episode: str, limit: asyncio.Timeout) -> Callable[[], Awaitable[None]]:
    """Return a function that asks whether the episode may continue; its limit stands still meanwhile."""

    async def ask() -> None:
        ends, clock = limit.when(), asyncio.get_running_loop().time
        if admit is None or ends is None:
            return
        # The limit is for playing: waiting for a turn, e.g. for a slot of the budget, must not use it up.
        left = ends - clock()
        limit.reschedule(None)
        await admit(episode)
        limit.reschedule(clock() + left)

    return ask


def _hide_secrets(observation: Observation) -> Observation:
    """Return a screen as it is recorded: without secrets of this machine."""
    return replace(
        observation,
        title=hide_text(observation.title),
        url=observation.url and hide_text(observation.url),
        notice=observation.notice and hide_text(observation.notice),
        text=hide_text(observation.text),
    )


class _EpisodePlayer:
    """The state of one running episode."""

    def __init__(
        self,
        environment: Environment,
        network: Network,
        episode: Episode,
        stage: Stage,
        recorder: Recorder,
        watch: Callable[[Step], None],
        spent: Callable[[Reply], None],
    ) -> None:
        self.environment, self.network, self.episode = environment, network, episode
        self.stage, self.recorder, self.watch, self.spent = stage, recorder, watch, spent
        # The same for whoever plays this instance.
        self.delay_s = draw_lognormal(generator(derive(episode.seed, "delay")), stage.delay.step_s, stage.delay.spread)
        self.history: list[HistoryEntry] = []
        self.summary = ""
        self.before: tuple[Observation, Mapping[str, bytes]] | None = None
        """Screen and pictures before the last executed step; None before the first."""
        self.goal = ""
        self.observation: Observation
        self.result: StepResult | None = None
        """Result of the last executed step; None before the first."""
        self.left: int | None = None
        """Actions left of the environment's solution; None where unknown, or not asked for."""

    async def reset(self, task: Task) -> Task:
        """Make the initial state; return the task with the environment's goal."""
        with boundary(EnvironmentFailure, f"reset of {task.name} (limit {self.stage.limits.step_s:g} s)"):
            # Tasks may state their goal only once they are set up, e.g. with drawn names in it.
            async with asyncio.timeout(self.stage.limits.step_s):
                seen = await self.environment.reset(task)
                self.observation = check_screen(seen, self.environment.reset)
                if self.stage.limits.stop_at_first_error:
                    self.left = await look_ahead(self.environment)
        if isinstance(self.environment, HasGoal):
            task = replace(task, goal=self.environment.goal())
        self.goal = task.goal
        return task

    async def replay(self, done: Sequence[Step], steps: list[Step]) -> None:
        """Execute recorded steps again, without asking any model; `steps` grows meanwhile."""
        for step in done:
            # Secrets are hidden in the record, so both sides are compared hidden.
            if _hide_secrets(self.observation).digest != step.observation.digest:
                raise EnvironmentFailure(
                    f"{self.episode.id}: the screen before step {step.index} is not the recorded one; "
                    "the environment has changed since the episode began"
                )
            # The step that is played next may be told what this one changed.
            told = step is done[-1] and any(agent.step_summaries for agent in self.network.agents.values())
            images = await self._look() if told else {}
            self.before = (self.observation, images)
            with boundary(EnvironmentFailure, f"replay of step {step.index}"):
                self.result = await self._execute(step.executed)
            # From the record: a summary asked for anew could differ, and so would all later prompts.
            self.history.append(step.history)
            self.summary = step.summary
            self.observation = self.result.observation
            steps.append(step)

    async def run(self, steps: list[Step], ask: Callable[[], Awaitable[None]]) -> tuple[Observation, Outcome | None]:
        """Deliberate and act until the episode is over; `steps` grows meanwhile. `ask` is awaited before each.

        Where success is checked at every step, an episode that starts solved has none.
        """
        if self.result is None and self._is_solved():
            return self.observation, Outcome(success=True, score=1.0, reason=SOLVED_AT_START)
        while self.result is None or not self.result.done:
            # A stop is checked for between two steps, where nothing is half-done.
            await ask()
            with boundary(EnvironmentFailure, f"step {len(steps)} (limit {self.stage.limits.step_s:g} s)"):
                async with asyncio.timeout(self.stage.limits.step_s):
                    step, self.result = await self._step(len(steps))
            steps.append(step)
            self.observation = self.result.observation
            # Recorded before the next step begins, so a kill loses at most one step.
            self.recorder.step(self.episode.id, step)
            self.watch(step)
        return self.result.observation, self.result.outcome

    async def _step(self, index: int) -> tuple[Step, StepResult]:
        # The picture comes first, for its hash belongs to the observation that prompts and record share.
        images = await self._look()
        begun = time.perf_counter()
        # Summarise before speaking: all cells of a step must read the same summary.
        summary_reply = await self._summarise(index, images)
        scene = StepContext(
            context=PromptContext(
                goal=self.goal,
                space=self.stage.suite.space,
                observation=self.observation,
                history=tuple(self.history),
                summary=self.summary,
            ),
            seed_of=self._build_seeds(index),
            oracle=_remember_oracle(self.environment) if isinstance(self.environment, HasOracle) else None,
            images=images,
            spent=self.spent,
        )
        # eq. 5: the actions of all cells and rounds are collected first, then one vote decides.
        matrix, shared = await self.network.deliberate(scene)
        decision = vote(matrix)
        # Shared prompts are stored before the step that refers to them, or a kill would leave a dangling hash.
        self._store(shared)
        # No parsed action still takes a step: the world may change meanwhile, and the step limit ends silent teams.
        executed = decision.action or _choose_idle(self.stage.suite.space)
        self.before = (self.observation, images)
        decided = time.perf_counter()
        with boundary(EnvironmentFailure, f"action {_describe_action(self.stage.suite.space, executed)}"):
            # Cut here, because effects go into every later prompt and into the record.
            result = _cut_words(await self._execute(executed))
        acted = time.perf_counter()
        # The history keeps the reason of the cell that represents the vote, not of every voter.
        reason = matrix[decision.representative].reason if decision.representative else ""
        entry = build_history_entry(self.stage.suite.space, self.observation, executed, reason, result)
        self.history.append(entry)
        return (
            Step(
                index=index,
                observation=self.observation,
                matrix=matrix,
                vote=decision,
                executed=executed,
                no_action=decision.action is None,
                history=entry,
                terminated=result.terminated,
                truncated=result.truncated,
                summary=self.summary,
                summary_reply=summary_reply,
                info=result.info,
                deliberation_s=decided - begun,
                environment_s=acted - decided,
            ),
            result,
        )

    async def _execute(self, action: Action | None) -> StepResult:
        """Execute an action.

        Where success is checked at every step, the step that solves the task ends the episode; where episodes stop at
        their first error, such a step ends it unsolved.
        """
        result = check_result(await self.environment.step(action), self.environment.step)
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        # Also behind the last step of the budget; an end by the environment itself has its own outcome.
        if not result.terminated and self._is_solved():
            outcome = Outcome(success=True, score=1.0, reason="solved by this step")
            return replace(result, terminated=True, truncated=False, outcome=outcome)
        if not self.stage.limits.stop_at_first_error:
            return result
        before, self.left = self.left, None if result.done else await look_ahead(self.environment)
        verdict = score_step(before, result, self.left)
        if result.done or not verdict.known or verdict.score > REWARDED_ABOVE:
            return result
        # Truncated, not terminated: the task was not over.
        outcome = Outcome(success=False, score=0.0, reason=f"{FIRST_ERROR}: {verdict.reason}")
        return replace(result, truncated=True, outcome=outcome)

    def _is_solved(self) -> bool:
        """Return whether the environment says that the task is solved now; False where it is asked only at the end."""
        if self.stage.success_check == "end":
            return False
        assert isinstance(self.environment, HasScore), "a run checks that its suite has a score"
        return self.environment.score() == 1

    def _build_seeds(self, step: int) -> Callable[[str, int], int]:
        """Return a function from (slot, round) to the seed of that call."""
        episode, seeds = self.episode, self.stage.seeds
        # By name and number, so that concurrency and resuming never change what a cell samples.
        return lambda slot, round: seeds.cell(episode.epoch, episode.task, episode.number, step, slot, round)

    def _store(self, shared: tuple[SharedPrompt, ...]) -> None:
        for part in shared:
            self.recorder.store_text(part.prefix, build_prefix(part.system, part.text))

    async def _summarise(self, index: int, images: Mapping[str, bytes]) -> Utterance | None:
        """Let the first agent that keeps a summary write on it; return its reply, None without one.

        Args:
            images: of the present screen.
        """
        # Only the first one writes: several summaries of one history would differ between agents.
        writers = [agent for agent in self.network.agents.values() if agent.summary or agent.step_summaries]
        if not writers or not self.history or self.before is None:
            return None
        seed = self.stage.seeds.summary(self.episode.epoch, self.episode.task, self.episode.number, index)
        if writers[0].step_summaries:
            before, seen = self.before
            change = StepChange(goal=self.goal, entry=self.history[-1], before=before, after=self.observation)
            reply, asked = await writers[0].summarise_step(change, {**seen, **images}, seed, self.spent)
            line = f"{len(self.history)}. {' '.join(reply.text.split())}"
            self.summary = f"{self.summary}\n{line}" if self.summary else line
            self._store((asked,))
            return reply
        context = PromptContext(
            goal=self.goal,
            space=self.stage.suite.space,
            observation=self.observation,
            history=tuple(self.history),
            summary=self.summary,
        )
        reply, asked = await writers[0].summarise(context, len(self.history) - 1, seed, self.spent)
        self.summary = reply.text.strip()
        self._store((asked,))
        return reply

    async def _look(self) -> dict[str, bytes]:
        """Take a picture if an agent sees it, or if the record could not be drawn later."""
        # A renderer draws the screen again from the record; only pictures that nothing can redraw are kept.
        seen = any(agent.modality != "text" for agent in self.network.agents.values())
        kept = self.stage.pictures and self.observation.renderer is None
        if not isinstance(self.environment, HasScreenshot) or not (seen or kept):
            return {}
        with boundary(EnvironmentFailure, "screenshot"):
            png = await self.environment.screenshot(any(agent.sees_marks for agent in self.network.agents.values()))
        key = self.recorder.store_picture(png)
        self.observation = replace(self.observation, screenshot=key)
        return {key: png} if seen else {}


def can_replay(suite: Suite, steps: Sequence[Step]) -> bool:
    """Return whether an interrupted episode can continue after these recorded steps; else it starts again."""
    return "deterministic" in suite.capabilities and bool(steps) and not any(map(_is_hidden, steps))


def _is_hidden(step: Step) -> bool:
    """Return whether a secret was hidden in a replayed action, or in texts for later prompts."""
    said = () if step.executed is None else (value for _, value in step.executed.arguments)
    told = (*said, step.summary, *astuple(step.history))
    return any(isinstance(text, str) and HIDDEN in text for text in told)


def build_history_entry(
    space: ActionSpace, before: Observation, executed: Action | None, reason: str, result: StepResult
) -> HistoryEntry:
    """Describe a step for later prompts: the action, and its effect on the screen."""
    return HistoryEntry(
        action=_describe_action(space, executed, before), reason=reason, effect=_describe_effect(before, result)
    )


def _remember_oracle(environment: HasOracle) -> Oracle:
    """Return the environment's oracle, asked at most once per step however many cells look."""
    # A list as a cell for one value: None is an answer, too, and must not be asked for again.
    answer: list[tuple[Action, ...] | None] = []

    def ask() -> tuple[Action, ...] | None:
        if not answer:
            answer.append(environment.oracle())
        return answer[0]

    return ask


def _choose_idle(space: ActionSpace) -> Action | None:
    """Return the action for a step without any parsed cell: a phone waits, a page is looked at again."""
    return space.make("wait") if any(spec.name == "wait" for spec in space.listed_specs) else None


def _describe_action(space: ActionSpace, action: Action | None, observation: Observation | None = None) -> str:
    return "no action" if action is None else space.describe(action, observation)


def _cut_words(result: StepResult) -> StepResult:
    """Return the result with overlong texts about the step cut."""
    info = {name: cut_middle(told, MAX_WORDS) if isinstance(told, str) else told for name, told in result.info.items()}
    return replace(result, info=info)


def _describe_effect(before: Observation, result: StepResult) -> str:
    """Return the effect in the environment's words, or else by comparing the screens."""
    # The environment's own words say more than a comparison, e.g. "the button is disabled".
    told = result.info.get("effect")
    if isinstance(told, str) and told:
        return told
    if result.observation.digest == before.digest:
        return "nothing changed"
    if result.observation.title != before.title:
        return f"now on {result.observation.title}"
    return "the screen changed"
