"""Rebuilding an episode from what was written down: task, seed, executed actions.

`replay` does it in this process; `replay_elsewhere` starts a fresh Python for it, where nothing is left over from
before: no cache, no global state, another hash seed. Both give one fingerprint per observation, the first after
`reset`. `check_env` compares them with those of the original episode.
"""

from __future__ import annotations

import asyncio
import dataclasses
import importlib
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collab.envs.base import Suite
from collab.errors import EnvironmentFailure
from collab.types import Action, Observation, ParseFailure, Task
from collab.utils.files import hash_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """An episode as it can be rebuilt, and what was seen in it."""

    task: Task
    actions: tuple[Action | None, ...]
    fingerprints: tuple[str, ...]
    """One more than actions: before the first, and after each."""


def compute_fingerprint(observation: Observation) -> str:
    """Return the SHA-256 of what a policy reads and of all elements with their places."""
    whole = f"{observation.digest}\x1f{observation.elements!r}\x1f{observation.width}x{observation.height}"
    return hash_text(whole)


async def replay(suite: Suite, task: Task, actions: Sequence[Action | None]) -> tuple[str, ...]:
    """Play recorded actions on a fresh environment; the fingerprints of what was seen."""
    environment = await suite.open()
    try:
        seen = [compute_fingerprint(await environment.reset(task))]
        for action in actions:
            seen.append(compute_fingerprint((await environment.step(action)).observation))
    finally:
        await environment.close()
    return tuple(seen)


async def replay_elsewhere(
    suite: Suite, options: Mapping[str, Any], episodes: Sequence[tuple[Task, Sequence[Action | None]]]
) -> tuple[tuple[str, ...], ...]:
    """Play recorded episodes in a fresh Python process.

    Args:
        suite: its class is imported there, under the same import path.
        options: keyword arguments that make the same suite again; JSON values.
        episodes: task and actions of each.

    Raises:
        EnvironmentFailure: the process failed; the message ends with the last line it wrote.
    """
    request = {
        "suite": f"{type(suite).__module__}:{type(suite).__qualname__}",
        "options": dict(options),
        "episodes": [
            {
                "task": dataclasses.asdict(task),
                "actions": [None if action is None else suite.space.format(action) for action in actions],
            }
            for task, actions in episodes
        ],
    }
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder, "answer.json")  # not standard output, where anything may be printed
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "collab.envs.replay", str(answer)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        try:
            _, errors = await process.communicate(json.dumps(request).encode())
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode != 0:
            last = errors.decode("utf-8", "replace").strip().splitlines()[-1:] or ["no message"]
            raise EnvironmentFailure(f"a fresh process could not rebuild the episode: {last[0]}")
        return tuple(tuple(seen) for seen in json.loads(answer.read_text()))


async def _serve(request: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Run the fresh process."""
    module, _, name = request["suite"].partition(":")
    suite: Suite = getattr(importlib.import_module(module), name)(**request["options"])
    try:
        return [
            await replay(suite, _read_task(episode["task"]), [read_action(suite, text) for text in episode["actions"]])
            for episode in request["episodes"]
        ]
    finally:
        await suite.close()


def _read_task(fields: Mapping[str, Any]) -> Task:
    return Task(**{**fields, "apps": tuple(fields["apps"])})


def read_action(suite: Suite, text: str | None) -> Action | None:
    """Parse a recorded action; None is a step without an action. EnvironmentFailure if it cannot be read."""
    if text is None:
        return None
    parsed = suite.space.parse(text)
    if isinstance(parsed, ParseFailure):
        raise EnvironmentFailure(f"a recorded action cannot be read: {parsed.detail}")
    return parsed


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(asyncio.run(_serve(json.load(sys.stdin)))))
