"""Measure what k replies to each visited state cost, of which the environment sees none (Android Coach, figure 4).

    python scripts/bench_ssma.py --quick                 # a minute: 16 states, k = 1 and 4
    python scripts/bench_ssma.py --out ssma.json

A policy plays episodes on the simulated phone; then, for k = 1, 2, 4 and 8, the parts of a step of Android Coach are
timed on all the states that it visited, in seconds per state:

play     the environment's step and the reply that is executed
fit      Q fitted to the executed reply, in as many passes as the preset has
rehearse with `--rehearsed`, Q fitted besides to so many candidates of a synthesis an epoch
sample   k fresh replies from the policy's engine, as it sampled them
rate     Q of k replies, and of the executed one
learn    log-probabilities before the update, then forward and backward pass of the policy on k replies, and AdamW

Left out are the critic's reward of the executed action, the comparison of Q with the truth, and building prompts again.
"sample" is of real replies. "rate" and "learn" are of k replies that have nothing in common but their prompt, which is
the dearest case: equal replies are computed once. Arms: "shared" computes what replies of a pass have in common once,
"padded" computes each reply with its whole prompt. Every k is timed `--rounds` times, upwards and downwards in turn,
and the median counts. A phone that takes its time is added: `--latency` times "play", as in the paper emulators took
1.7 times as long as loading and asking the model did (figure 1). The result is each k's whole step over that of k = 1
in the same arm.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from collab.algorithms.coach.fitting import build_row
from collab.algorithms.coach.samples import VisitedState, list_states, sample_states
from collab.algorithms.experience import TurnBuilder, list_judged
from collab.api import collect
from collab.config import override
from collab.library import resolve_checkpoint
from collab.loop.examples import RecordedRun
from collab.loop.interfaces import load_algorithm, load_method
from collab.models.tokenizer import open_chat
from collab.rollout.build import build_suite, build_team
from collab.rollout.run import read_recorded_config
from collab.store.rewards import ReplyRef
from collab.store.run import RunStore
from collab.testing.benchmarks import describe_device
from collab.trainers.base_model import open_base
from collab.trainers.prepare import FinetuneTask
from collab.trainers.rl.token_values import TokenValues
from collab.trainers.rl.turns import Lesson, Turn, prepare_turns
from collab.trainers.run import begin, train
from collab.utils.files import write_json

PAPER = {1: 1.0, 2: 1.22, 4: 1.62, 8: 2.18}
"""k → whole step over that of k = 1, as published."""


async def play(options: argparse.Namespace, out: Path) -> float:
    """Play until there are enough states, and return seconds per step."""
    began = time.perf_counter()
    result = await collect(
        agents=options.agents,
        graph="single",
        episodes=options.states,  # more than needed
        concurrency=options.at_once,
        settings={"agents.*.sampling.temperature": 1.0},
        out=out,
        progress=False,
    )
    steps = sum(len(one.steps) for one in result.trajectories)
    return (time.perf_counter() - began) / steps


async def measure_sampling(
    states: Sequence[VisitedState], k: int, run: Path, at_once: int, name: str
) -> tuple[float, float]:
    """Sample k replies at each state, as `name`; return seconds per state, and the share of different replies."""
    began = time.perf_counter()
    found = await sample_states(states, k=k, run=run, name=name, seed=k, policy="benchmark", concurrency=at_once)
    seconds = (time.perf_counter() - began) / len(states)
    distinct = [len({one.text for one in each}) / len(each) for each in found.replies.values()]
    return seconds, sum(distinct) / len(distinct)


def vary(turn: Turn, number: int, vocabulary: int) -> Turn:
    """Return another reply of the same length to the same prompt, which differs from its first token on."""
    rng = np.random.default_rng([number, len(turn.prompt)])
    return replace(turn, reply=rng.integers(5, vocabulary, len(turn.reply)).astype(np.int32), behaviour=None)


def measure_learning(
    turns: Sequence[Turn], k: int, checkpoint: str, sharing: str, options: argparse.Namespace, out: Path
) -> dict[str, float]:
    """Fit Q, rate and learn k different replies to each state; return seconds per state of each."""
    method: Any = load_method(load_algorithm("coach"))
    recipe, values = (override(one, [f"sharing={sharing}"]) for one in (method.rl, method.values))
    base = open_base(checkpoint, recipe)
    model = TokenValues(values, base, device=options.device)
    model.fit([build_row(turns[0])], [1.0], seed=0)  # what a library sets up once
    began = time.perf_counter()
    rows = [build_row(one) for one in turns]
    model.fit(rows, [1.0] * len(turns), seed=0, known=model.compute(rows))
    fitted = time.perf_counter()
    # Rows of an epoch, beside as many of its states as there are here.
    again = [rows[number % len(rows)] for number in range(round(options.rehearsed * len(turns) / method.steps))]
    if again:
        model.fit(again, [1.0] * len(again), seed=0)
    rehearsed = time.perf_counter()
    replies = [vary(one, number, options.vocabulary) for one in turns for number in range(k)]
    # The executed reply beside the candidates of its state, whose prompt they share.
    beside = [[turns[state], *replies[state * k : (state + 1) * k]] for state in range(len(turns))]
    model.compute([build_row(one) for state in beside for one in state])
    rated = time.perf_counter()
    size = max(1, recipe.batch_rows // k) * k
    order = [list(range(start, min(start + size, len(replies)))) for start in range(0, len(replies), size)]
    whole = time_lesson(replies, order, checkpoint, recipe, options.device, out / "whole")
    # Loading and saving are no part of a step of the algorithm's own.
    bare = time_lesson(replies[:1], [[0]], checkpoint, recipe, options.device, out / "bare")
    return {
        "fit": (fitted - began) / len(turns),
        **({"rehearse": (rehearsed - fitted) / len(turns)} if again else {}),
        "rate": (rated - rehearsed) / len(turns),
        "learn": (whole - bare) / len(turns),
    }


def time_lesson(
    turns: Sequence[Turn], order: Sequence[Sequence[int]], checkpoint: str, recipe: Any, device: str, out: Path
) -> float:
    """Learn a lesson and return the seconds of it, loading and saving included."""
    weights = [0.1 * (-1) ** number for number in range(len(turns))]
    lesson = Lesson(turns=turns, weights=weights, order=order)
    prepared = prepare_turns(FinetuneTask(stage="rl", base=checkpoint, preset="benchmark", recipe=recipe), lesson)
    folder = begin(prepared, out)
    began = time.perf_counter()
    train(prepared, folder, device=device)
    return time.perf_counter() - began


async def measure(options: argparse.Namespace, place: Path) -> dict[str, Any]:
    """Play, then time every part for every k in both arms."""
    run = place / "run"
    played = await play(options, run)
    config = read_recorded_config(run)
    (agent,) = config.agents.values()
    checkpoint = resolve_checkpoint(str(agent.options["path"]))
    method: Any = load_method(load_algorithm("coach"))
    options.vocabulary = open_base(checkpoint, method.rl).config.vocab_size
    suite, team = build_suite(config), build_team(config)
    with RunStore.open(run).open_reader() as reader:
        chats = {slot: open_chat(checkpoint) for slot in config.agents}
        builder = TurnBuilder.of(RecordedRun.of(config, reader), run=str(run), path=run, chats=chats)
        episodes = list(reader.iterate_trajectories())
        judged = list_judged(str(run), 1, episodes, {one.id: float(one.success) for one in episodes})
        states = list(list_states(judged, builder, team.network.agents, suite.space))[: options.states]
        turns = [build_turn(builder, state) for state in states]
        await measure_sampling(states[:1], 1, run, options.at_once, "loading")
        timed: dict[tuple[int, str], list[dict[str, float]]] = {}
        shares: dict[int, float] = {}
        for number in range(options.rounds):
            for k in options.k if number % 2 == 0 else options.k[::-1]:
                sampled, shares[k] = await measure_sampling(states, k, run, options.at_once, f"k{k}-{number}")
                for arm, sharing in (("shared", "prefix"), ("padded", "none")):
                    learned = measure_learning(turns, k, checkpoint, sharing, options, place / f"{arm}-{k}-{number}")
                    timed.setdefault((k, arm), []).append({"play": played, "sample": sampled, **learned})
                    print(f"round {number + 1}: k = {k}, {arm}: {learned}", flush=True)
    cells = [build_cell(k, arm, timed[k, arm], shares[k]) for k in options.k for arm in ("shared", "padded")]
    await team.close()
    await suite.close()
    tokens = {
        "prompt": np.mean([len(one.prompt) for one in turns]),
        "reply": np.mean([len(one.reply) for one in turns]),
    }
    return {
        "states": len(states),
        "tokens": {name: round(float(one), 1) for name, one in tokens.items()},
        "cells": cells,
        "ratios": compute_ratios(cells, options.latency),
        "machine": describe_device(options.device),
    }


def build_turn(builder: TurnBuilder, state: VisitedState) -> Turn:
    """Return the executed reply at a state."""
    turn, _ = builder.build(ReplyRef(trajectory=state.trajectory, step=state.step, cell=state.cell.cell))
    assert isinstance(turn, Turn), turn
    return turn


def compute_ratios(cells: Sequence[dict[str, Any]], latency: float) -> list[dict[str, Any]]:
    """Return each whole step over that of k = 1 in its arm, without and with the environment's time.

    Args:
        latency: of the environment, relative to what playing a step takes without it.
    """
    first = {one["arm"]: one["whole"] for one in cells if one["k"] == 1}
    waited = latency * cells[0]["seconds"]["play"]
    return [
        {
            "k": one["k"],
            "arm": one["arm"],
            "without": round(one["whole"] / first[one["arm"]], 2),
            "with": round((one["whole"] + waited) / (first[one["arm"]] + waited), 2),
            "paper": PAPER.get(one["k"]),
        }
        for one in cells
    ]


def build_cell(k: int, arm: str, rounds: Sequence[dict[str, float]], distinct: float) -> dict[str, Any]:
    """Return the medians of the rounds of one k, and their sum."""
    seconds = {part: statistics.median(one[part] for one in rounds) for part in rounds[0]}
    return {"k": k, "arm": arm, "seconds": seconds, "whole": sum(seconds.values()), "distinct": distinct}


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="16 states, k = 1 and 4, one round")
    parser.add_argument("--states", type=int, default=96, help="at most so many states")
    parser.add_argument("--k", type=int, nargs="+", default=[1, 2, 4, 8], help="replies to a state, 1 among them")
    parser.add_argument("--latency", type=float, default=1.7, help="of the environment, in times of playing")
    parser.add_argument("--rounds", type=int, default=3, help="how often everything is timed")
    parser.add_argument("--agents", default="early", help="agents file of a local checkpoint")
    parser.add_argument("--at-once", type=int, default=48, help="episodes and states at once")
    parser.add_argument("--rehearsed", type=int, default=0, help="candidates that an epoch's fit learns again")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, help="JSON file")
    options = parser.parse_args()
    if options.quick:
        options.states, options.k, options.rounds = 16, [1, 4], 1
    if 1 not in options.k:
        parser.error("--k: 1 is what the others are compared with; name it, too")
    with tempfile.TemporaryDirectory() as place:
        found = asyncio.run(measure(options, Path(place)))
    for one in found["ratios"]:
        paper = f", published {one['paper']}" if one["paper"] else ""
        print(f"k = {one['k']}, {one['arm']}: ×{one['without']} alone, ×{one['with']} with a slow phone{paper}")
    if options.out is not None:
        write_json(options.out, found)


if __name__ == "__main__":
    main()
