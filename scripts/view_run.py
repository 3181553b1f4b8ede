"""Make a recorded run as large as one likes, for measuring what looks at runs; see bench_view.py.

SimPhone episodes are really played by the rehearsal team (four agents, three rounds). Laid end to end they are one long
walk, and each episode of the large run is a stretch of it, written by the run's own writer: screens, words, votes and
effects are real ones, and no step stands twice within dozens of episodes. What a rehearsal lacks is drawn by seed, in
the sizes of a small language model: token counts, token ids and log-probabilities of each reply, success of the episode
(one in a hundred broke instead), a critic's score of each cell; and pairs are made of these. Every step's prompt is a
text of its own, as in a real run. Where a stretch leads from one played episode to the next, the screen jumps.

    python scripts/view_run.py runs/big                          # 1,000 episodes of 20 steps, 240,000 cells
    python scripts/view_run.py runs/small --episodes 30 --played 12
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

import collab
from collab.envs.grammar import MOBILE
from collab.preferences.pairs import CountedPairs, PairRecipe, RunPairs, Sources, build_pairs
from collab.preferences.store import write_pairs
from collab.rewards.base import CriticInput, Judgement, build_inputs
from collab.rewards.credit import JudgedStep
from collab.rewards.labels import LabelHead, LabelWriter, read_labels
from collab.seeds import derive
from collab.store.manifest import Manifest
from collab.store.rewards import CellReward, RewardMatrix
from collab.store.run import RunStore, RunWriter
from collab.types import EpisodeError, Outcome, PlannedTask, Step, Task, Trajectory, Utterance
from collab.utils.files import hash_text

CRITIC = "bench-1"
LABELS = PAIRS = "bench"
REPLY_TOKENS = (20, 60)
"""Tokens of a reply, from and below."""
BROKEN = 0.01
"""Share of episodes that ended with an error."""
RECIPE = PairRecipe(sources=Sources(adversary=0.0, contrast=1.0), cap=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How large a run is made."""

    episodes: int = 1000
    steps: int = 20
    """Per episode."""
    played: int = 176
    """Episodes that are really played: about nine steps each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """One episode to be written."""

    trajectory: Trajectory
    texts: Mapping[str, str]
    """SHA-256 → shared part of a step's prompts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """What was really played, end to end."""

    manifest: Manifest
    episodes: Sequence[Trajectory]
    steps: Sequence[Step]
    prefixes: Mapping[str, str]
    """SHA-256 → the shared part of a step's prompts, as it was played."""

    def task(self, number: int) -> Task:
        """What episode number so and so plays."""
        return self.episodes[number % len(self.episodes)].task

    def stretch(self, number: int, length: int) -> Stretch:
        """Episode number so and so: the next `length` steps of the walk under a task that was played."""
        begin = number * length
        steps = [self.steps[(begin + place) % len(self.steps)] for place in range(length)]
        hashes = {cell.prompt.prefix for step in steps for cell in step.matrix}
        texts = {hash: f"{self.prefixes[hash]}\n\nEpisode {number}." for hash in hashes}
        names = {hash: hash_text(text) for hash, text in texts.items()}
        spoken = tuple(_add_numbers(replace(step, index=place), names, number) for place, step in enumerate(steps))
        source, task = self.episodes[number % len(self.episodes)], self.task(number)
        trajectory = replace(source, id=f"{task.name}/{number}", episode=number, steps=spoken)
        return Stretch(trajectory=trajectory, texts={names[hash]: text for hash, text in texts.items()})


def walk(played: int) -> Walk:
    """Play with the rehearsal team, a few seconds per hundred episodes on a quiet machine."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "walk"
        asyncio.run(collab.collect(env="androidworld", agents="rehearsal", graph="team", episodes=played, out=out))
        with RunStore.open(out).open_reader() as reader:
            episodes = list(reader.iterate_trajectories())
            steps = [step for one in episodes for step in one.steps]
            hashes = {cell.prompt.prefix for step in steps for cell in step.matrix}
            return Walk(
                manifest=reader.manifest,
                episodes=episodes,
                steps=steps,
                prefixes={hash: reader.read_prefix(hash) for hash in hashes},
            )


def make_run(out: Path, size: Size) -> Path:
    """Write a run with judgements and pairs into the new directory `out`; UsageError when something is there."""
    path = walk(size.played)
    names = Counter(path.task(number).name for number in range(size.episodes))
    manifest = replace(
        path.manifest,
        planned=size.episodes,
        tasks=tuple(PlannedTask(name=name, difficulty=None, episodes=count) for name, count in names.items()),
    )
    pairings = []
    with RunStore.create(out, manifest).open_writer() as writer:
        with LabelWriter(out, LABELS, LabelHead(critic=CRITIC)) as labels:
            for number in range(size.episodes):
                stretch = path.stretch(number, size.steps)
                _record(writer, stretch)
                judged = [_judge_at_random(case, number) for case in build_inputs(stretch.trajectory, MOBILE)]
                for judgement in judged:
                    labels.record(judgement)
                pairings.append(_build_pairs(stretch.trajectory, judged))
        writer.finish()
    _write_pairs(out, pairings)
    return out


def _add_numbers(step: Step, names: Mapping[str, str], number: int) -> Step:
    """The step with what a language model would have told beside each reply, under prompts of its episode's own.

    Args:
        names: of the prompts' shared parts, as played → in this episode.
    """
    rng = np.random.default_rng(derive(number, "reply", step.index))
    counts = rng.integers(*REPLY_TOKENS, len(step.matrix.utterances)).tolist()
    cells = tuple(
        _add_tokens(replace(cell, prompt=replace(cell.prompt, prefix=names[cell.prompt.prefix])), count, rng)
        for cell, count in zip(step.matrix, counts, strict=True)
    )
    return replace(step, matrix=replace(step.matrix, utterances=cells), deliberation_s=3.0, environment_s=0.05)


def _add_tokens(cell: Utterance, count: int, rng: np.random.Generator) -> Utterance:
    logprobs = tuple((-rng.exponential(0.2, count)).tolist())
    return replace(
        cell,
        seed=int(rng.integers(2**31)),
        prompt_tokens=1200,
        completion_tokens=count,
        tokens=tuple(rng.integers(0, 32000, count).tolist()),
        tokenizer="bench",
        logprobs=logprobs,
        behaviour_logprobs=logprobs,
        latency_s=0.4,
    )


def _record(writer: RunWriter, stretch: Stretch) -> None:
    one = stretch.trajectory
    writer.begin_episode(
        one.id,
        one.task,
        episode=one.episode,
        epoch=0,
        environment=one.environment,
        environment_version=one.environment_version,
        privileged=one.privileged,
    )
    for step in one.steps:
        for hash in {cell.prompt.prefix for cell in step.matrix}:
            writer.store_text(hash, stretch.texts[hash])
        writer.step(one.id, step)
    drawn = np.random.default_rng(derive(one.episode, "outcome")).random()
    broke = EpisodeError(type="EnvironmentFailure", message="the phone was gone", step=len(one.steps))
    writer.end_episode(
        one.id,
        outcome=None if drawn < BROKEN else Outcome(success=drawn < 0.6, score=float(drawn < 0.6)),
        error=broke if drawn < BROKEN else None,
        final=None if drawn < BROKEN else one.final,
        seconds=60.0,
    )


def _judge_at_random(case: CriticInput, number: int) -> Judgement:
    """Scores by seed, higher for what was executed; one cell in fifty has none."""
    rng = np.random.default_rng(derive(number, "score", case.step))
    rewards = []
    for cell in case.matrix:
        level = 0.7 if cell.action is not None and cell.action == case.executed else 0.3
        score, missing = round(float(np.clip(rng.normal(level, 0.2), 0, 1)), 2), bool(rng.random() < 0.02)
        rewards.append(
            CellReward(
                cell=cell.cell,
                score=None if missing else score,
                reason="" if missing else "Brings the goal nearer, as far as the screen tells.",
                missing="no score in the answer" if missing else None,
            )
        )
    matrix = RewardMatrix(trajectory=case.trajectory, step=case.step, critic=CRITIC, rewards=tuple(rewards))
    return Judgement(case=case.digest, rewards=matrix)


def _build_pairs(trajectory: Trajectory, judged: Sequence[Judgement]) -> CountedPairs:
    steps = [JudgedStep.of(trajectory, judgement) for judgement in judged]
    return build_pairs(steps, RECIPE.sources, RECIPE.seed, cap=RECIPE.cap)


def _write_pairs(out: Path, pairings: Sequence[CountedPairs]) -> None:
    made = RunPairs(
        pairs=tuple(pair for one in pairings for pair in one.pairs),
        counts=sum((one.counts for one in pairings), Counter[str]()),
        off_context=sum(one.off_context for one in pairings),
    )
    write_pairs(out, PAIRS, made, recipe=RECIPE, labels=read_labels(out, LABELS), adversary=None)


def main() -> None:
    """Make one and say where it is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("out", type=Path, metavar="RUN")
    usual = Size()
    parser.add_argument("--episodes", type=int, default=usual.episodes)
    parser.add_argument("--steps", type=int, default=usual.steps, help="per episode")
    parser.add_argument("--played", type=int, default=usual.played, help="episodes that are really played")
    options = parser.parse_args()
    print(make_run(options.out, Size(episodes=options.episodes, steps=options.steps, played=options.played)))


if __name__ == "__main__":
    main()
