"""The run hash: equal for runs with the same screens, replies and decisions.

It covers tasks, screens, prompts, replies, token ids, actions, votes and outcomes, and no times, costs,
log-probabilities, ends of replies, file names or log order: a run that was killed and resumed hashes like one that was
not. It compares runs on one machine; another machine may round a model's numbers, and so sample, differently.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import Any

from collab.errors import RunFormatError
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
