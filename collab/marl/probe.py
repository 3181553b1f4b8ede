"""One step of a training, really tried: played, judged and paired, and what is learned of it really trained.

It happens in a temporary directory, with the policy and the environment of the training, and the episode is left
there: its task has as many steps as in the training. A model behind critic or adversary is not asked; what it would be
asked is put together and counted.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from collab.background import doing
from collab.collector import Progress as Playing
from collab.config import Budget, RunConfig
from collab.credit.case import Case, cases
from collab.envs.base import Bounded
from collab.errors import ModelFailure, RunError
from collab.learn.examples import Example, Ids, Pair, turn_end
from collab.learn.prepare import Task
from collab.library import Library
from collab.marl.config import MarlConfig
from collab.marl.expense import NONE_ASKED, Questions, adversary_questions, critic_questions
from collab.marl.judge import judge, pair
from collab.marl.layout import MarlFolder
from collab.marl.loop_state import Halted, Loop, Progress
from collab.marl.policy import Policy, chat_of, template_of
from collab.marl.train import rewarded_recipe
from collab.models.chat import ChatTokenizer
from collab.prompts.render import rebuild
from collab.resolve import build_suite
from collab.runs import start
from collab.store.run import RunStore
from collab.types import Outcome, Prompt, Step, Trajectory, Utterance

if TYPE_CHECKING:
    from collab.learn.forecast import Forecast


_BEFORE_SECOND = 2
"""Times that an episode asks before its second step: to be begun, and to make its first one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What the step took."""

    calls: int
    """Of the policies."""
    at_once: int
    """Episodes that are played at once; of policies in this process so many were tried together."""
    seconds: float
    """Per step, with so many episodes at once: a server is taken to answer them as fast as one."""
    prompt_tokens: int
    completion_tokens: int
    """Of all its calls."""
    critic: Questions | None
    """What its critic asks a model; None where that cannot be told."""
    adversary: Questions | None
    judge_s: float | None
    """None where a model would have been asked, and nothing was."""
    pair_s: float | None
    usd: float | None
    """What its calls cost; None where the file of a policy names no prices."""
    training: Forecast


async def probe(config: MarlConfig, run: RunConfig, library: Library, policy: Policy, device: str) -> Probe:
    """Try one step.

    Args:
        run: a rollout of the training.
        device: where policies are trained.

    Raises:
        UsageError, RunError: as the parts of the training would.
        ModelFailure: the step did not come about.
    """
    at_once = await _at_once(run)
    tried = at_once if all(agent.kind == "local" for agent in run.agents.values()) else 1
    short = run.model_copy(update={"episodes": tried, "concurrency": tried})
    measuring = doing("measuring a step of the team and what judges it")
    with measuring, tempfile.TemporaryDirectory(prefix="collab-plan-") as place:
        out = Path(place) / "run"
        all_played = await _played(short, library, out)
        played = all_played[0]
        step, case = played.steps[0], await _case(short, played)
        prompts = prompts_of(out, step)
        judge_s, pair_s = await _judged(config, short, library, Path(place), [played])
    with doing("measuring a step of training"):
        training = _trained(config, policy, step, prompts, device)
    return Probe(
        calls=len(prompts),
        at_once=at_once,
        seconds=fmean(one.steps[0].deliberation_s + one.steps[0].environment_s for one in all_played) / at_once,
        prompt_tokens=sum(cell.prompt_tokens or 0 for cell in step.matrix.utterances),
        completion_tokens=sum(cell.completion_tokens or 0 for cell in step.matrix.utterances),
        critic=await critic_questions(config.judging("plan", short.seed), config.method.critic, case)
        if config.method.is_judged
        else NONE_ASKED,
        adversary=await adversary_questions(config, prompts) if config.method.objective == "dpo" else NONE_ASKED,
        judge_s=judge_s,
        pair_s=pair_s,
        usd=_cost(step),
        training=training,
    )


async def _at_once(run: RunConfig) -> int:
    """How many episodes a rollout plays at once."""
    suite = build_suite(run)
    try:
        most = suite.most_environments if isinstance(suite, Bounded) else run.concurrency
    finally:
        await suite.close()
    return max(1, min(run.concurrency, run.episodes, most))


async def _played(run: RunConfig, library: Library, out: Path) -> list[Trajectory]:
    """The first step of each episode; at least one episode.

    Their end is taken for a success, so that a critic that knows nothing else has something to tell.

    Raises:
        ModelFailure: there is none.
        UsageError, RunError: as of `start`.
    """
    stop = asyncio.Event()
    asked = Counter[str]()
    so_far: Playing | None = None

    def watch(progress: Playing) -> None:
        nonlocal so_far
        so_far = progress

    async def admit(episode: str) -> None:
        asked[episode] += 1
        if so_far is None or asked[episode] <= _BEFORE_SECOND:
            return
        while so_far.done + sum(count > _BEFORE_SECOND for count in asked.values()) < run.episodes:
            await asyncio.sleep(0.05)  # for others to make their first step, or to be over
        stop.set()
        await asyncio.Event().wait()  # the run ends meanwhile

    await start(run, library, out, watch=watch, stop=stop, admit=admit)
    with RunStore.open(out).reader() as reader:
        played = [one for one in (*reader.trajectories(), *reader.unfinished()) if one.steps]
    if not played:
        raise ModelFailure("the one step that is tried broke; play one to see why: collab rollout --episodes 1")
    return [replace(one, outcome=one.outcome or Outcome(success=True, score=1.0)) for one in played]


def prompts_of(out: Path, step: Step) -> list[Prompt]:
    """What the cells of a recorded step read, in conversation order."""
    with RunStore.open(out).reader() as reader:
        return [rebuild(reader.prefix(cell.prompt.prefix), cell.prompt) for cell in step.matrix.utterances]


def likely_pairs(cells: Sequence[Utterance], prompts: Sequence[Prompt], chat: ChatTokenizer) -> list[Pair]:
    """A pair for each cell, with its own prompt and reply; the worse side is as long, and differs from its start."""
    end = turn_end(chat)
    pairs = []
    for cell, prompt in zip(cells, prompts, strict=True):
        said: Ids = np.array((*chat.encode(cell.text), end), np.int32)
        read: Ids = np.array(chat.prompt_ids(prompt).ids, np.int32)
        pairs.append(
            Pair(group="preference", prompt=read, chosen=said, rejected=said[::-1].copy(), state=cell.prompt.prefix)
        )
    return pairs


def likely_replies(cells: Sequence[Utterance], prompts: Sequence[Prompt], chat: ChatTokenizer) -> list[Example]:
    """The good sides of `likely_pairs`, to be learned alone."""
    return [
        Example(group="demonstration", ids=np.concatenate((pair.prompt, pair.chosen)), scored_from=len(pair.prompt))
        for pair in likely_pairs(cells, prompts, chat)
    ]


def _cost(step: Step) -> float | None:
    """Of the calls of all slots, in USD; None where one of them does not tell."""
    known = [cell.cost_usd for cell in step.matrix.utterances if cell.cost_usd is not None]
    return sum(known) if len(known) == len(step.matrix.utterances) else None


async def _case(run: RunConfig, played: Trajectory) -> Case:
    suite = build_suite(run)
    try:
        return next(cases(played, suite.space))
    finally:
        await suite.close()


async def _judged(
    config: MarlConfig, run: RunConfig, library: Library, place: Path, played: Sequence[Trajectory]
) -> tuple[float | None, float | None]:
    """Seconds of judging and of pairing, where these ask no model; pairing needs judgements.

    Raises:
        RunError: the step can be neither judged nor paired.
    """
    if not config.method.is_judged:
        return 0.0, 0.0
    if not config.judging("plan", run.seed).free:
        return None, None
    loop = Loop(
        config=config,
        folder=MarlFolder(place),
        library=library,
        budget=Budget(),
        stop=asyncio.Event(),
        device="cpu",
        progress=Progress(epochs=config.method.epochs),
    )
    try:
        labels = await judge(loop, run, place / "run", played)
        if config.method.objective != "dpo":
            return loop.seconds["critic"], 0.0
        if not config.erring.free:
            return loop.seconds["critic"], None
        await pair(loop, run, place / "run", played, labels)
    except Halted as why:
        raise RunError(f"the one step that is tried: {why}") from None
    return loop.seconds["critic"], loop.seconds["adversary"]


def _trained(config: MarlConfig, policy: Policy, step: Step, prompts: Sequence[Prompt], device: str) -> Forecast:
    """What might be learned of this step, trained for nothing; of policies that are trained apart, the first one's."""
    from collab.learn.forecast import forecast

    method, slots = config.method, next(iter(config.groups.values()))
    base = policy.of(slots)
    own = [(cell, read) for cell, read in zip(step.matrix.utterances, prompts, strict=True) if cell.agent in slots]
    said, read, chat = [cell for cell, _ in own], [read for _, read in own], chat_of(config.run.agents[slots[0]], base)
    recipe = method.dpo.model_copy(update=template_of(config.run.agents[slots[0]]))
    if method.objective == "rft":
        task = Task(stage="sft", base=base, preset=config.preset, recipe=rewarded_recipe(recipe))
        return forecast(task, likely_replies(said, read, chat), device, processes=method.processes)
    task = Task(stage="dpo", base=base, preset=config.preset, recipe=recipe)
    if method.reference == "initial" and method.epochs > 1 and not method.keeps_adapters:
        task = replace(task, reference=base)  # a second checkpoint from the second epoch on
    return forecast(task, likely_pairs(said, read, chat), device, processes=method.processes)
