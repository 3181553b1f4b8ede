"""Measure what a training needs between two epochs: to publish a policy, draw by priority, and write a lesson.

    python scripts/bench_publish.py --out publish.json

publish  from a trained policy on disk to its first reply, with the pocket's weights in float32 (14 MB): models stay in
         the training's own process, so this is all that workers wait for
replay   a million draws by priority, of 10,000 remembered episodes, as many at a time as an epoch draws
lesson   10,000 turns with prompts of 245 tokens and replies of 36, as on the phone, and their estimates
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from collab.library import resolve_checkpoint
from collab.models.base import Request
from collab.models.checkpoint_card import write_layout
from collab.models.local import LocalModel
from collab.store.rewards import ReplyRef
from collab.trainers.rl.replay import EpisodeRef, PrioritisedReplay, Surprise
from collab.trainers.rl.step_estimates import StepEstimate
from collab.trainers.rl.turns import Lesson, Turn, write_lesson
from collab.types import CellRef, Prompt, Sampling, Segment
from collab.utils.files import write_json


async def publish(checkpoint: Path) -> float:
    """Return the seconds from a checkpoint on disk to the first reply of its weights."""
    began = time.perf_counter()
    model = LocalModel(path=str(checkpoint), device="cpu", dtype="float32")
    await model.probe()
    prompt = Prompt(system="", shared="Which button?", segments=(Segment(text="."),))
    await model.generate(Request(prompt=prompt, sampling=Sampling(max_tokens=1), seed=1))
    seconds = time.perf_counter() - began
    await model.close()
    return seconds


def measure_publish() -> dict[str, Any]:
    """Measure the publication of a policy, ten times behind one that loads the code."""
    with tempfile.TemporaryDirectory() as folder:
        seconds = []
        for number in range(11):
            checkpoint = Path(folder, str(number))
            shutil.copytree(resolve_checkpoint("built-in:pocket"), checkpoint)
            weights = checkpoint / "model.safetensors"
            save_file(
                {name: one.to(torch.float32) for name, one in load_file(weights).items()}, weights, {"format": "pt"}
            )
            write_layout(checkpoint)
            seconds.append(asyncio.run(publish(checkpoint)))
        size = weights.stat().st_size
    median, slowest = statistics.median(seconds[1:]), max(seconds[1:])
    print(
        f"publish: {size / 1e6:.1f} MB in {median:.3f} s (slowest of ten {slowest:.3f}, with the code {seconds[0]:.2f})"
    )
    return {"bytes": size, "seconds": seconds}


def measure_replay() -> dict[str, Any]:
    """Measure draws of 10,000 remembered episodes of 1 to 19 steps, until they have the 2,560 steps of an epoch."""
    rng = random.Random(0)
    replay = PrioritisedReplay(capacity=200_000)
    for number in range(10_000):
        surprise = Surprise(
            error=rng.random(), ratio=rng.random(), entropy=rng.random(), most_error=1.0, most_entropy=1.0
        )
        episode = EpisodeRef(run="run", trajectory=str(number), steps=rng.randint(1, 19), versions=(0, 0))
        replay.add(episode, surprise, epoch=1)
    draws, began = 0, time.perf_counter()
    while draws < 1_000_000:
        draws += len(replay.draw(2_560, rng))
    seconds = time.perf_counter() - began
    print(f"replay: {draws:,} draws in {seconds:.2f} s")
    return {"draws": draws, "seconds": seconds}


def measure_lesson() -> dict[str, Any]:
    """Measure the writing of a lesson, its digest included."""
    rng, count = np.random.default_rng(0), 10_000
    turns = [
        Turn(
            run="./epochs/1/rollout",
            ref=ReplyRef(trajectory=f"PressButton/{number // 10}", step=number % 10, cell=CellRef("ada", 1)),
            prompt=rng.integers(0, 50_000, 245, dtype=np.int32),
            reply=rng.integers(0, 50_000, 36, dtype=np.int32),
            behaviour=rng.random(36, dtype=np.float32),
            version=1,
            temperature=1.0,
            state=f"{number:064x}",
            instance=f"PressButton#{number // 10}",
        )
        for number in range(count)
    ]
    estimates = [
        StepEstimate(run=one.run, trajectory=one.ref.trajectory, step=one.ref.step, reward=1, weight=1, why="kept")
        for one in turns
    ]
    order = [tuple(range(start, start + 16)) for start in range(0, count, 16)]
    lesson = Lesson(turns=turns, weights=[1.0] * count, order=order, estimates=estimates)
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2):  # the first one loads the code
            began = time.perf_counter()
            write_lesson(lesson, Path(folder, "lesson"), "again")
            seconds = time.perf_counter() - began
    print(f"lesson: {count:,} turns written in {seconds:.2f} s")
    return {"turns": count, "seconds": seconds}


def main() -> None:
    """Measure all, print a line of each, and write all numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="JSON with all numbers")
    options = parser.parse_args()
    found = {"publish": measure_publish(), "replay": measure_replay(), "lesson": measure_lesson()}
    if options.out is not None:
        write_json(options.out, found)


if __name__ == "__main__":
    main()
