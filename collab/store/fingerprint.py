"""Hashes of runs, and of the code that plays them.

The run hash is equal for runs with the same screens, replies and decisions.

It covers tasks, screens, prompts, replies, token ids, actions, votes and outcomes, and no times, costs,
log-probabilities, ends of replies, file names or log order: a run that was killed and resumed hashes like one that was
not. It compares runs on one machine; another machine may round a model's numbers, and so sample, differently.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from collab.errors import RunFormatError
from collab.store.manifest import collect_versions
from collab.store.run import RunStore
from collab.types import Observation, Step, Trajectory, Utterance


def hash_run(store: RunStore) -> str:
    """Return the SHA-256 over all episodes, sorted by epoch, task and number.

    Raises:
        RunFormatError: steps are lost; a hash of the rest would prove nothing.
    """
    digest = hashlib.sha256()
    with store.open_reader() as reader:
        for summary in reader.list_episodes():
            trajectory = reader.read_trajectory(summary.id)
            if summary.missing or len(trajectory.steps) != summary.steps:
                raise RunFormatError(f"{store.path}: steps of episode {summary.id} are lost: a run in part has no hash")
            digest.update(hash_trajectory(trajectory).encode())
    return digest.hexdigest()


def hash_trajectory(trajectory: Trajectory) -> str:
    """Return the SHA-256 of one episode, by the same rule."""
    task = trajectory.task
    digest = hashlib.sha256()
    digest.update(_encode_json([trajectory.epoch, task.name, trajectory.episode, trajectory.id]))
    digest.update(_encode_json([task.environment, task.seed, task.goal, task.params, task.max_steps]))
    for step in trajectory.steps:
        digest.update(_encode_json(_step(step)))
    outcome, error = trajectory.outcome, trajectory.error
    ending = [asdict(outcome) if outcome else None, [error.type, error.step] if error else None]
    digest.update(_encode_json([*ending, _get_screen_digest(trajectory.final)]))
    return digest.hexdigest()


def _step(step: Step) -> list[Any]:
    vote, matrix = step.vote, step.matrix
    return [
        step.index,
        _get_screen_digest(step.observation),
        [matrix.agents, matrix.rounds, matrix.edges],
        [_encode_cell(cell) for cell in matrix],
        [asdict(vote.action) if vote.action else None, vote.representative],
        [[asdict(ballot.action), ballot.cells] for ballot in vote.ballots],
        vote.abstained,
        asdict(step.executed) if step.executed else None,
        [step.no_action, step.terminated, step.truncated],
        asdict(step.history),
    ]


def _encode_cell(cell: Utterance) -> list[Any]:
    """Encode a cell without the policy's name, since equal weights may lie at another path."""
    return [
        [cell.agent, cell.round, cell.heard],
        [cell.text, cell.reason, cell.tokens],
        [asdict(cell.action) if cell.action else None, cell.failure.kind if cell.failure else None],
        [cell.prompt.prefix, cell.prompt.suffix, cell.prompt.layout, cell.prompt.trimmed],
        [cell.policy.version, asdict(cell.sampling), cell.seed],
        *([] if cell.proposal is None else [_encode_cell(cell.proposal)]),
    ]


def _get_screen_digest(observation: Observation | None) -> str | None:
    return None if observation is None else observation.digest


def _encode_json(value: Any) -> bytes:
    """Encode as canonical JSON, one line."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode("ascii") + b"\n"


CODE = frozenset({".py", ".yaml", ".js"})
"""Files of the package that can change what a run does."""


def list_code() -> dict[str, Path]:
    """Return name → file of the package's own code; definitions that come with it (`collab.library`) aside."""
    package = Path(__file__).resolve().parents[1]
    files = {file.relative_to(package).as_posix(): file for file in package.rglob("*") if file.suffix in CODE}
    return {f"collab/{name}": file for name, file in files.items() if not name.startswith("library/")}


def hash_files(files: Mapping[str, Path]) -> str:
    """Return the SHA-256 over names and contents of files."""
    digest = hashlib.sha256()
    for name, file in sorted(files.items()):
        digest.update(f"{name}\x1f{hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()


@functools.cache
def describe_package() -> str:
    """Return version and code of the package, e.g. "0.1.0 (code 1f3a5c7e9b0d)"; changed code counts as another."""
    return f"{collect_versions(())['collab']} (code {hash_files(list_code())[:12]})"
