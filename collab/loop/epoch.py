"""What an epoch leaves: the policy after it, what it took, and its record, written last."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from collab.evaluation import Report
from collab.loop.finetuning import clear_checkpoints
from collab.loop.hashing import hash_json, measured_hash, named_hash, played_hash
from collab.loop.interfaces import Algorithm, EpochPlan, Labels, Rollout, Update
from collab.loop.layout import EpochDir
from collab.loop.phases import measure, measured_episodes, paid_for
from collab.loop.policy import Policy, place_within
from collab.loop.record import EpochRecord, Spending, Success, Trained, read_record
from collab.loop.state import LoopState
from collab.report import runs_in
from collab.store.cost import total
from collab.store.files import write_json, writing


async def measure_start(state: LoopState, policy: Policy) -> EpochRecord:
    """Evaluate the untrained team as epoch 0, where the method asks for that."""
    folder = state.folder.epoch(0)
    if folder.record.exists():
        return read_closed(state, folder)
    count_earlier(state, None, folder)
    report = await measure(state, policy, folder) if state.config.method.held_out.before else None
    hashes = {"evaluation": measured_hash(measured_episodes(state.config, folder.evaluation))}
    paid = paid_for(runs_in(folder.evaluation))
    record = EpochRecord(
        algorithm=state.config.algorithm,
        epoch=0,
        **_weights(policy, state.folder.path),
        success=None if report is None else Success.of(report),
        spent={"evaluation": Spending.of(paid, state.seconds.get("evaluation"))},
        hashes=hashes,
        hash=named_hash(hashes),
    )
    return _close(state, folder, record)


def count_earlier(state: LoopState, algorithm: Algorithm | None, folder: EpochDir) -> None:
    """Count what an earlier process spent on an epoch that is not over.

    Args:
        algorithm: whose labels count, too; None where nothing is labelled.
    """
    spent = paid_for([folder.rollout, *runs_in(folder.evaluation)])
    if algorithm is not None:
        spent = total([spent, algorithm.labeller.spent(folder.rollout)])
    state.progress.tokens += spent.prompt_tokens + spent.completion_tokens
    state.progress.cost_usd += spent.cost_usd


def read_closed(state: LoopState, folder: EpochDir) -> EpochRecord:
    """Read the record of an epoch that is over."""
    record = read_record(folder.record)
    clear_checkpoints(folder, state.config.groups)  # of a process that was killed before it did
    state.progress.close(record)
    return record


def updated_policy(state: LoopState, number: int, policy: Policy, trained: Mapping[str, Trained]) -> Policy:
    """Return the policy with its newly trained weights; untrained slots keep theirs."""
    root, groups = state.folder.path.resolve(), state.config.groups
    new = {slot: str(root / one.checkpoint) for group, one in trained.items() for slot in groups[group]}
    return policy.updated(number, new, adapters=state.config.method.keeps_adapters)


def close_epoch(
    state: LoopState,
    folder: EpochDir,
    policy: Policy,
    plan: EpochPlan,
    played: Mapping[str, Any],
    rollout: Rollout,
    labels: Labels,
    update: Update,
    report: Report,
) -> EpochRecord:
    """Write the record of an epoch.

    Args:
        policy: that it left.
        played: `facts_of_play` of the rollout.
        report: of the evaluation.
    """
    hashes = {
        "rollout": played_hash(rollout.trajectories),
        **labels.hashes,
        "examples": named_hash({group: one.digest for group, one in update.examples.items()}),
        "weights": named_hash({group: one.digest for group, one in update.trained.items()}),
        "evaluation": measured_hash(measured_episodes(state.config, folder.evaluation)),
    }
    record = EpochRecord(
        algorithm=state.config.algorithm,
        epoch=rollout.number,
        **_weights(policy, state.folder.path),
        heat=dict(plan.heat),
        success=Success.of(report),
        **played,
        metrics={**labels.metrics, **update.metrics},
        examples=dict(update.examples),
        trained=dict(update.trained),
        untrained=dict(update.untrained),
        spent=_spent(state, folder, labels, update),
        hashes=hashes,
        hash=hash_json(list(hashes.items())),
    )
    return _close(state, folder, record)


# ------------------------------------------------------------------------------------------------------ inside


def _weights(policy: Policy, root: Path) -> dict[str, Any]:
    return {
        "version": policy.version,
        "weights": {slot: place_within(root, path) for slot, path in policy.weights.items()},
        "adapters": {slot: place_within(root, path) for slot, path in policy.adapters.items()},
    }


def _spent(state: LoopState, folder: EpochDir, labels: Labels, update: Update) -> dict[str, Spending]:
    """What the parts of an epoch took, in the order of time."""
    seconds = state.seconds
    return {
        "rollout": Spending.of(paid_for([folder.rollout]), seconds.get("rollout")),
        **{part: Spending.of(paid, seconds.get(part)) for part, paid in labels.spent.items()},
        "training": Spending(
            seconds=seconds.get("training"), prompt_tokens=sum(one.tokens for one in update.trained.values())
        ),
        "evaluation": Spending.of(paid_for(runs_in(folder.evaluation)), seconds.get("evaluation")),
    }


def _close(state: LoopState, folder: EpochDir, record: EpochRecord) -> EpochRecord:
    with writing(folder.record, state.folder.resume):
        folder.path.mkdir(parents=True, exist_ok=True)
        write_json(folder.record, record.model_dump(mode="json"))
    clear_checkpoints(folder, state.config.groups)
    state.seconds.clear()
    state.progress.close(record)
    return record
