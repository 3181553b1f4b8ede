"""The learner of AppVLM: which solved steps are imitated, how often, and from which weights; and what is played.

Behind each fine-tuning it also measures step accuracy, beside success: on held-out instances whose solution the
environment knows, the policy is asked greedily at every step of that solution, with the solution's steps as its history
(the paper's accuracy on AndroidControl). A step is right if the team votes for the solution's action, or a point that
means the same (`is_demonstrated`). An agent with a dialect is compared with the solution as its demonstrations say it.
Another way to the goal counts as wrong, so the number compares policies and says little of how good one is.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from collab.agents.agent import StepContext
from collab.algorithms.appvlm.config import AppVLMMethod
from collab.algorithms.experience import JudgedEpisode, read_experience
from collab.algorithms.lesson_counts import LessonCounts
from collab.algorithms.turn_learner import Experience, TurnLearner, estimate_alike
from collab.config import Definition, RunConfig, validate
from collab.dialects.ground import read_in_dialect
from collab.dialects.speaker import Speaker
from collab.envs.base import Environment, HasGoal, HasOracle, HasScore, HasScreenshot, Suite, limit_environments
from collab.envs.grammar import ActionSpace
from collab.errors import ConfigError, EnvironmentFailure, ModelFailure
from collab.graphs.deliberation import Network, vote
from collab.loop.checks import check_bases
from collab.loop.config import TrainingConfig
from collab.loop.interfaces import Labels, Rollout, Update
from collab.loop.loop import update_policy
from collab.loop.phases import DrawnTasks
from collab.loop.policy import Policy, assign_policy, build_chat_tokenizer
from collab.loop.record import TrainingDir, hash_json
from collab.loop.state import LoopState
from collab.models.base import Reply
from collab.prompts.render import PromptContext
from collab.rollout.build import Team, build_team, with_prompts
from collab.rollout.collector import UsageMeter
from collab.rollout.episode import Episode, build_history_entry
from collab.rollout.plan import plan_episodes
from collab.rollout.protocols import draw_instance
from collab.seeds import derive, generator
from collab.store.run import RunStore
from collab.synthesis.judgement import is_demonstrated
from collab.trainers.rl.step_estimates import StepEstimate
from collab.types import Action, HistoryEntry, Observation, Step, Usage
from collab.utils.concurrency import find_plain_error
from collab.utils.files import read_json, report_write_errors, resolve_within, write_json

COLLECTING = "this round only collects; the last one of its iteration learns"
REPEATED = "the screen stayed as it was"
"""Why a solved step is left out."""
DEMONSTRATED = "demonstrated"
"""Step accuracy in the records of an epoch."""
FILE = "step-accuracy.json"
"""In the folder of an epoch's examples."""


class AppVLMCounts(LessonCounts):
    """The counts of a lesson, and the balance of its tasks."""

    solved_tasks: int
    """Tasks with a solution; 0 where nothing is learned."""
    below_tau: int
    """Those with fewer than τ."""
    repeated: int
    """Solutions that are learned more than once in a pass."""


class StepAccuracy(Definition):
    """Steps of demonstrations that a policy would take."""

    right: int
    steps: int
    """Steps of all demonstrations."""
    instances: int
    """Demonstrated ones."""
    unknown: int
    """Instances without a step: their solution is not known, they are solved at the start, or they broke."""

    def __str__(self) -> str:
        """Return the share, e.g. "61% of 212"."""
        return f"{self.right / self.steps:.0%} of {self.steps}" if self.steps else "none of 0"


class Demonstrated(StepAccuracy):
    """Step accuracy behind an epoch."""

    before: StepAccuracy | None = None
    """That of the first policy, measured with the first epoch that learns."""


class UnsolvedTasks(DrawnTasks):
    """The curriculum: all tasks in the first round of an iteration, then those that were solved less than τ times."""

    def list_tasks(self, state: LoopState, number: int) -> Sequence[str]:
        """Return the tasks of an epoch; all of them where none is left."""
        method, tasks = get_method(state.config), super().list_tasks(state, number)
        if method.tau is None or (number - 1) % method.rounds == 0:
            return tasks
        solved = count_solutions(_read_solved(state.folder, number - 1))
        return [task for task in tasks if solved[task] < method.tau] or tasks


class AppVLMLearner(TurnLearner):
    """Learns the replies of solved episodes of all epochs so far."""

    def check(self, config: TrainingConfig, first: Policy) -> None:
        """Check the checkpoints that fine-tuning begins with: they are trained alike, and read the same tokens."""
        super().check(config, first)
        start = name_start(config)
        if start is None:
            return
        check_bases(config, start)
        for slot, agent in config.run.agents.items():
            ours, other = (build_chat_tokenizer(agent, one.weights[slot]) for one in (first, start))
            if ours.fingerprint != other.fingerprint:
                raise ConfigError(
                    f"undemonstrated={start.weights[slot]}: has another tokenizer than {first.weights[slot]}, whose "
                    "replies it would learn; name the checkpoint that this one was fine-tuned from"
                )

    def choose_start(self, state: LoopState, number: int, policy: Policy) -> Policy:
        """Return the policy of the epoch before, and for the final fine-tuning that which `final_from` names."""
        method = get_method(state.config)
        if not method.is_final(number) or method.final_from == "previous":
            return policy
        return name_start(state.config) or state.first

    async def estimate(self, state: LoopState, group: str, experience: Experience) -> list[StepEstimate]:
        """Return weight 1 for the steps of solved episodes that changed the screen; nothing in a round that collects.

        A policy learns nothing from such a round.
        """
        method = get_method(state.config)
        if not method.is_learning(experience.number):
            return []
        solved = [one for one in experience.episodes if one.reward]
        idle = set(_iterate_repeats(state.folder, solved)) if method.drop_repeats else set[tuple[str, str, int]]()
        found = list[StepEstimate]()
        for one in experience.episodes:
            is_solved = one.reward > 0
            steps = estimate_alike(one, weight=float(is_solved), why="kept" if is_solved else "not solved")
            found += [
                replace(step, weight=0.0, why=REPEATED) if (*one.key, step.step) in idle else step for step in steps
            ]
        return found

    def draw(
        self, state: LoopState, experience: Experience, said: Sequence[StepEstimate], rng: random.Random
    ) -> list[list[int]]:
        """Return the replies of each optimizer step, those of repeated solutions as often as these are."""
        method = get_method(state.config)
        copies = _balance(state, experience.number, experience.episodes)
        places = [place for place, one in enumerate(said) for _ in range(copies[one.run, one.trajectory])]
        return [[places[one] for one in step] for step in method.draw(experience.number, len(places), rng)]

    async def update_from_recorded(
        self, state: LoopState, labelled: Sequence[tuple[Rollout, Labels]], policy: Policy
    ) -> Update:
        """Update as every learner of turns, then measure step accuracy; raises `Halted` if it stops."""
        update, number = await super().update_from_recorded(state, labelled, policy), labelled[0][0].number
        method = get_method(state.config)
        if not method.demonstrations or not method.is_learning(number):
            return update
        found = await _measure(state, number, update_policy(state, number, policy, update.trained))
        if found is None:
            return update
        told, spent = found
        metrics = told.model_dump(mode="json")
        return replace(
            update,
            metrics={**update.metrics, DEMONSTRATED: metrics},
            spent={**update.spent, DEMONSTRATED: spent},
            hashes={**update.hashes, DEMONSTRATED: hash_json(metrics)},
        )

    def read_metrics(self, state: LoopState, number: int, group: str) -> dict[str, Any]:
        """Return the balance of tasks."""
        method, found = get_method(state.config), list[JudgedEpisode]()
        if method.is_learning(number):
            found = _read_solved(state.folder, number)
        copies, solved = _balance(state, number, found), count_solutions(found)
        return {
            "solved_tasks": len(solved),
            "below_tau": sum(method.tau is not None and count < method.tau for count in solved.values()),
            "repeated": sum(count > 1 for count in copies.values()),
        }

    def read_obstacle(self, state: LoopState, number: int, group: str) -> str | None:
        """Return that a round only collects, where it does."""
        return None if get_method(state.config).is_learning(number) else COLLECTING


def get_method(config: TrainingConfig) -> AppVLMMethod:
    """Return the method of a configuration of this algorithm."""
    assert isinstance(config.method, AppVLMMethod), "the loop gives each algorithm its own method"
    return config.method


def name_start(config: TrainingConfig) -> Policy | None:
    """Return the policy that learned no demonstration, if the final fine-tuning begins with it; else None."""
    method = get_method(config)
    if method.final_from != "undemonstrated" or method.undemonstrated is None:
        return None
    return Policy(version=0, weights=dict.fromkeys(config.run.graph.slots, method.undemonstrated))


def count_solutions(episodes: Iterable[JudgedEpisode]) -> Counter[str]:
    """Return task → solved episodes."""
    return Counter(one.task for one in episodes if one.reward)


def balance_tasks(episodes: Iterable[JudgedEpisode], tau: int | None, rng: random.Random) -> dict[tuple[str, str], int]:
    """Return how often each solved episode is learned in a pass, by its key.

    Args:
        tau: as in the method.
        rng: draws which solutions of a task are repeated once more than its others.
    """
    by_task = dict[str, list[JudgedEpisode]]()
    for one in episodes:
        if one.reward:
            by_task.setdefault(one.task, []).append(one)
    found = dict[tuple[str, str], int]()
    for solved in by_task.values():
        least, more = divmod(max(tau or 0, len(solved)), len(solved))
        for place, one in enumerate(rng.sample(solved, len(solved))):
            found[one.key] = least + (place < more)
    return found


def find_repeats(steps: Sequence[Step]) -> set[int]:
    """Return the indices of steps whose next screen is the same, picture and text; never the last one."""
    seen = [(one.observation.digest, one.observation.screenshot) for one in steps]
    return {one.index for one, now, then in zip(steps, seen, seen[1:], strict=False) if now == then}


# ----------------------------------------------------------------------------------------------- demonstrations


async def _measure(state: LoopState, number: int, policy: Policy) -> tuple[Demonstrated, Usage] | None:
    """Measure the step accuracy of a policy behind an epoch, unless that was done; None where no solution is known."""
    state.begin(DEMONSTRATED)
    suite = await state.open_suite(state.config.held_out[0])
    if "oracle" not in suite.capabilities:
        return None
    path = state.folder.get_epoch(number).examples / FILE
    if not path.exists():
        method, spent, before = get_method(state.config), UsageMeter(), None
        state.inner(spent)
        with state.time_part(DEMONSTRATED, whole=True):
            if number == method.rounds:
                before = await compare_with_solutions(state, state.first, suite, spent)
            found = await compare_with_solutions(state, policy, suite, spent)
        state.spend(spent.spent)
        told = Demonstrated(**found.model_dump(), before=before)
        with report_write_errors(path, state.folder.resume):
            write_json(path, {"found": told.model_dump(mode="json"), "spent": asdict(spent.spent)})
    content = read_json(path, "remove it, and it is measured again")
    return validate(Demonstrated, content["found"], str(path)), Usage(**content["spent"])


async def compare_with_solutions(state: LoopState, policy: Policy, suite: Suite, spent: UsageMeter) -> StepAccuracy:
    """Ask a policy at each step of the solutions of held-out instances, greedily."""
    # Temperature 0, so that a difference between policies is not one of sampling.
    run = assign_policy(state.config.held_out[0], policy, state.config.method.determinism)
    agents = {
        slot: one.model_copy(update={"sampling": one.sampling.model_copy(update={"temperature": 0.0})})
        for slot, one in run.agents.items()
    }
    run = with_prompts(run.model_copy(update={"agents": agents}), state.library)
    gate, team = asyncio.Semaphore(limit_environments(suite, run.concurrency)), build_team(run)

    def count(reply: Reply) -> None:
        spent.spent += Usage.of_call(reply.prompt_tokens, reply.completion_tokens, reply.cost_usd)

    async def walk(episode: Episode) -> list[bool]:
        async with gate:
            state.compute_left()  # between two instances it may be stopped
            with contextlib.suppress(EnvironmentFailure, ModelFailure):
                return await _walk(team, run, suite, episode, count)
            return []

    try:
        async with asyncio.TaskGroup() as group:
            walks = [
                group.create_task(walk(one)) for one in plan_episodes(run)[: get_method(state.config).demonstrations]
            ]
    except ExceptionGroup as failures:
        raise find_plain_error(failures) from None
    finally:
        await team.close()
    found = [one.result() for one in walks]
    return StepAccuracy(
        right=sum(map(sum, found)),
        steps=sum(map(len, found)),
        instances=sum(map(bool, found)),
        unknown=sum(not one for one in found),
    )


async def _walk(
    team: Team, run: RunConfig, suite: Suite, episode: Episode, spent: Callable[[Reply], None]
) -> list[bool]:
    """Follow the solution of an instance; return for each of its steps whether the team would take it.

    It ends where the environment is solved, if rollouts do (`success_check`).
    """
    space, network, found, history = suite.space, team.build_network(episode), list[bool](), list[HistoryEntry]()
    task, environment = draw_instance(suite, episode.task, episode.seed), await suite.open()
    try:
        # As an episode begins; a page may write its own goal.
        seen = await environment.reset(task)
        goal = environment.goal() if isinstance(environment, HasGoal) else task.goal
        for step in range(task.max_steps):
            if run.success_check == "every_step" and isinstance(environment, HasScore) and environment.score() == 1:
                break
            ahead = environment.oracle() if isinstance(environment, HasOracle) else None
            if not ahead:
                break
            # Asked as in an episode, and the solution's action is executed, whatever the answer.
            images = await _look(environment, network)
            seen = replace(seen, screenshot=next(iter(images), seen.screenshot))
            context = PromptContext(goal=goal, space=space, observation=seen, history=tuple(history))
            seed_of = functools.partial(run.seeds.cell, episode.epoch, episode.task, episode.number, step)
            matrix, _ = await network.deliberate(
                StepContext(context=context, seed_of=seed_of, images=images, spent=spent)
            )
            said, chosen = _say(ahead[0], network, space, seen), vote(matrix).action
            if said is not None:
                found.append(chosen is not None and is_demonstrated(chosen, said, seen))
            right = said or space.canonical(ahead[0], seen)
            result = await environment.step(right)
            history.append(build_history_entry(space, seen, right, "", result))
            if result.done:
                break
            seen = result.observation
    finally:
        await environment.close()
    return found


def _say(action: Action, network: Network, space: ActionSpace, seen: Observation) -> Action | None:
    """Return a solution's action as it is demonstrated: in the agent's dialect, of several steps the first.

    None if the dialect has no word for it.
    """
    dialect = network.agents[network.dag.slots[0]].dialect
    if dialect is None:
        return space.canonical(action, seen)
    speaker = Speaker(dialect, "web" if space.name == "web" else "mobile", lambda: seen, remembers=False)
    try:
        text = speaker.write(next(speaker.say(action)), "")
    except LookupError:
        return None
    return read_in_dialect(text, dialect, space, seen).action


async def _look(environment: Environment, network: Network) -> dict[str, bytes]:
    """Return the picture of the present screen as agents see it, by its SHA-256; empty if none sees it."""
    if not isinstance(environment, HasScreenshot) or all(one.modality == "text" for one in network.agents.values()):
        return {}
    png = await environment.screenshot(any(one.sees_marks for one in network.agents.values()))
    return {hashlib.sha256(png).hexdigest(): png}


# ------------------------------------------------------------------------------------------------------ inside


def _balance(state: LoopState, number: int, episodes: Iterable[JudgedEpisode]) -> Mapping[tuple[str, str], int]:
    """Return how often each solution is learned in an epoch; the same at every call."""
    rng = generator(derive(state.config.run.seed, "balance", number))
    return balance_tasks(episodes, get_method(state.config).tau, rng)


def _read_solved(folder: TrainingDir, number: int) -> list[JudgedEpisode]:
    """Return the solved episodes of all epochs up to this one, each once, oldest first."""
    found = {one.key: one for epoch in range(1, number + 1) for one in read_experience(folder, epoch)}
    return [one for one in found.values() if one.reward]


def _iterate_repeats(folder: TrainingDir, episodes: Iterable[JudgedEpisode]) -> Iterator[tuple[str, str, int]]:
    """Yield run, trajectory and index of the steps in these episodes whose next screen is the same."""
    by_run = dict[str, list[str]]()
    for one in episodes:
        by_run.setdefault(one.run, []).append(one.trajectory)
    for run, trajectories in by_run.items():
        with RunStore.open(Path(resolve_within(folder.path, run))).open_reader() as reader:
            for id in trajectories:
                yield from ((run, id, step) for step in find_repeats(reader.read_trajectory(id).steps))
