"""Measure how many replies a second the local engine gives when many episodes ask at once (AppVLM's action server).

    python scripts/bench_action_server.py --quick                 # a minute: 16 episodes, one by one and at once
    python scripts/bench_action_server.py --out server.json       # 48 episodes, also 48 at once

Episodes are played side by side, greedily, and all requests to their model are kept. Then each arm has a fresh engine
answer these requests in their order, as many waiting at any time as there are episodes. Arms differ in how many the
engine computes together (`max_batch`): with 1 it answers one request after the other, as the published server does, but
keeps what it has computed of prompts like the others. No environment is in the time, pictures are drawn already;
weights are loaded before.

A batch rounds sums in another order than a single sequence, which may tip the balance between two tokens: how many
replies of an arm are others than one by one is printed. An agent that sees is measured by naming one:
`--agents NAME --library DIR`.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from collab.api import collect
from collab.config import AgentDefinition
from collab.library import Library
from collab.models.base import Reply, Request
from collab.models.local import LocalModel
from collab.testing.benchmarks import describe_device
from collab.utils.files import write_json

TARGET = 3.0
"""Replies a second over one by one, with 16 at once or more."""


async def record_requests(options: argparse.Namespace) -> list[Request]:
    """Play all episodes and return what they asked their model, in order."""
    asked, answer = list[Request](), LocalModel.generate

    async def generate(self: LocalModel, request: Request) -> Reply:
        asked.append(request)
        return await answer(self, request)

    LocalModel.generate = generate  # type: ignore[method-assign]
    try:
        with tempfile.TemporaryDirectory() as folder:
            await collect(
                agents=options.agents,
                graph="single",
                episodes=options.episodes,
                concurrency=options.episodes,
                settings={
                    "agents.*.sampling.temperature": 0.0,
                    "agents.*.sampling.max_tokens": options.tokens,
                    "environment.limits.max_steps": options.steps,
                },
                library=options.library,
                out=Path(folder) / "run",
                progress=False,
            )
    finally:
        LocalModel.generate = answer  # type: ignore[method-assign]
    return asked


async def answer_all(
    asked: Sequence[Request], options: argparse.Namespace, at_once: int
) -> tuple[dict[str, Any], list[str]]:
    """Answer all requests by an engine of a width; return what was measured, and the replies."""
    agent = Library(own=options.library).load("agents", options.agents, AgentDefinition)
    model = LocalModel(**{**agent.options, "max_batch": at_once})
    await model.probe()
    gate = asyncio.Semaphore(options.episodes)

    async def ask(request: Request) -> Reply:
        async with gate:
            return await model.generate(request)

    try:
        began = time.perf_counter()
        replies = await asyncio.gather(*map(ask, asked))
        seconds = time.perf_counter() - began
    finally:
        await model.close()
    measured = {
        "at_once": at_once,
        "replies": len(replies),
        "seconds": round(seconds, 2),
        "replies_per_s": round(len(replies) / seconds, 2),
        "mean_width": round(sum(reply.width or 0.0 for reply in replies) / len(replies), 1),
    }
    return measured, [reply.text for reply in replies]


def compare_arms(measured: Sequence[dict[str, Any]], replies: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    """Return all arms beside the first: its ratio of replies a second, and how many replies are others."""
    first, said = measured[0], replies[0]
    return [
        {
            **one,
            "over_one_by_one": round(one["replies_per_s"] / first["replies_per_s"], 2),
            "different": sum(mine != theirs for mine, theirs in zip(own, said, strict=True)),
        }
        for one, own in zip(measured, replies, strict=True)
    ]


async def measure(options: argparse.Namespace, widths: Sequence[int]) -> list[dict[str, Any]]:
    """Measure one by one and all widths on the same requests."""
    asked = await record_requests(options)
    arms = [await answer_all(asked, options, width) for width in (1, *widths)]
    return compare_arms([one for one, _ in arms], [own for _, own in arms])


def main() -> None:
    """Measure, print a line per arm, and write all numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="16 episodes of at most 4 steps, one by one and at once")
    parser.add_argument("--agents", default="early", help="an agents file of kind local")
    parser.add_argument("--library", type=Path, help="folder with its agents/")
    parser.add_argument("--episodes", type=int, default=48, help="that ask at once")
    parser.add_argument("--steps", type=int, default=8, help="of an episode, at most")
    parser.add_argument("--tokens", type=int, default=64, help="longest reply")
    parser.add_argument("--at-once", type=int, nargs="+", help="replies computed together; default: 16 and 48")
    parser.add_argument("--out", type=Path, help="JSON with all numbers")
    options = parser.parse_args()
    if options.quick:
        options.episodes, options.steps = 16, 4
    widths = options.at_once or ([16] if options.quick else [16, 48])
    if max(widths) > options.episodes:
        parser.error(f"--at-once {max(widths)}: more than the {options.episodes} episodes that ask; raise --episodes")
    found = asyncio.run(measure(options, widths))
    for one in found:
        print(
            f"{one['at_once']} at once: {one['replies_per_s']} replies/s, ×{one['over_one_by_one']} of one by one; "
            f"{one['replies']} replies, {one['mean_width']} computed together on average, {one['different']} others"
        )
    if options.out is not None:
        write_json(options.out, {"machine": describe_device("cpu"), "agents": options.agents, "arms": found})
    least = min(one["over_one_by_one"] for one in found[1:])
    if least < TARGET:
        raise SystemExit(f"×{least} of one by one is less than the target of ×{TARGET:g}")


if __name__ == "__main__":
    main()
