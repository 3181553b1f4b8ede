"""A policy is trained on the rows of an epoch that fit into its context; without rows it keeps its weights."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collab.algorithms.collabuiagents.algorithm import CollabUIAgents
from collab.algorithms.collabuiagents.learner import NO_PAIR, CollabExamples, build_finetuning, store_examples
from collab.config import Budget, override
from collab.data.example import Example
from collab.errors import RunFormatError
from collab.loop import finetuning as training
from collab.loop.finetuning import NO_NUMBER, clear_checkpoints, finetune
from collab.loop.interfaces import load_method
from collab.loop.loop import run_epoch
from collab.loop.policy import build_first_policy
from collab.loop.record import EpochRecord
from collab.loop.state import Halted, LoopState
from collab.testing import toy_team
from collab.trainers.run_dir import FinetuneDir
from collab.utils.files import write_json


@pytest.fixture(scope="module")
def preferences() -> list[Example]:
    """Six rows of different replies."""
    examples = asyncio.run(toy_team.build_toy_examples())[:6]
    return [replace(row, level="preference", rejected=f"No. {number}") for number, row in enumerate(examples)]


def learned(loop: LoopState, rows: Sequence[Example]) -> tuple[dict[str, object], dict[str, str]]:
    """What becomes of the one policy in epoch 1."""
    made = CollabExamples(rows={"shared": list(rows)}, refused={"shared": Counter()})
    store_examples(loop.config, loop.folder, 1, made)
    trained, untrained = asyncio.run(
        finetune(loop, 1, build_finetuning(loop, 1, build_first_policy(loop.config.run, loop.config.method)))
    )
    return dict(trained), untrained


def test_rows_that_are_all_too_long_are_no_pair(
    configure_toy, process, preferences: list[Example], tiny: Path, tmp_path: Path
) -> None:
    loop = process(configure_toy(f"run.agents.*.options.path={tiny}", "dpo.context=16"), tmp_path)
    for _ in range(2):  # and again, in a process that resumes
        trained, untrained = learned(loop, preferences)
        assert trained == {}
        assert untrained["shared"].startswith(f"{NO_PAIR}: none of 6 fits into dpo.context=16, the longest has ")


def test_a_policy_whose_loss_is_no_number_stays_and_is_not_trained_again(
    configure_toy, process, preferences: list[Example], tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = ("dpo.learning_rate=1e30", "dpo.max_grad_norm=1e30", "dpo.epochs=4", "dpo.warmup=0", "dpo.anchor=1")
    config = configure_toy(f"run.agents.*.options.path={tiny}", *lost)
    loop = process(config, tmp_path)
    trained, untrained = learned(loop, preferences)
    assert trained == {}
    assert untrained["shared"].startswith(f"{NO_NUMBER} (step ")
    assert loop.progress.so_far is not None
    assert loop.progress.so_far.untrained == untrained
    folder = FinetuneDir(loop.folder.get_epoch(1).get_training_dir("shared"))
    assert folder.read_metrics()
    assert "NaN" not in folder.metrics.read_text()
    monkeypatch.setattr(training, "_train", None)  # a resuming process must not train again
    assert learned(process(config, tmp_path), preferences) == (trained, untrained)
    clear_checkpoints(loop.folder.get_epoch(1), ["shared"])
    assert not (folder.path / "checkpoints").exists()
    assert folder.read_metrics()
    (folder.path / "untrained.json").write_text("{")
    with pytest.raises(
        RunFormatError, match=r"untrained\.json: cannot be read: .*; remove it, and the policy is trained"
    ):
        learned(process(config, tmp_path), preferences)


@pytest.mark.variations
@pytest.mark.parametrize(("minutes", "why"), [(None, "stopped on request"), (10, "budget used up: minutes=10")])
def test_what_stops_a_policy_between_two_steps_is_reported(
    configure_toy,
    process,
    preferences: list[Example],
    tiny: Path,
    tmp_path: Path,
    monkeypatch,
    minutes: float | None,
    why: str,
) -> None:
    loop = process(configure_toy(f"run.agents.*.options.path={tiny}", "dpo.epochs=4"), tmp_path)
    loop.budget = Budget(minutes=minutes)

    def end(_loop: LoopState, _progress: object) -> None:
        if minutes is None:
            loop.stop.set()
        else:
            loop.started -= 60 * minutes

    monkeypatch.setattr(LoopState, "inner", end)
    steps = rf"after step \d of \d+ of {re.escape(str(loop.folder.get_epoch(1).get_training_dir('shared')))}"
    with pytest.raises(Halted, match=rf"^{why}, {steps}$"):
        learned(loop, preferences)


def test_log_p_is_told_of_pairs_whatever_step_they_are_in(
    configure_toy, process, preferences: list[Example], tiny: Path, tmp_path: Path
) -> None:
    """Of four steps of one row, one has a pair: it is the first and the last to tell of one."""
    rows = [preferences[0], *(replace(row, rejected=row.reply) for row in preferences[1:4])]
    small = ("dpo.batch_rows=1", "dpo.rows_at_once=1", "dpo.epochs=1", "dpo.log_every=1")
    loop = process(configure_toy(f"run.agents.*.options.path={tiny}", *small), tmp_path)
    trained: dict[str, Any] = learned(loop, rows)[0]
    lines = FinetuneDir(loop.folder.get_epoch(1).get_training_dir("shared")).read_metrics()
    assert len(lines) == 4
    (pair,) = [line for line in lines if "logp_chosen" in line]
    found = trained["shared"].metrics
    assert found["logp_chosen"] == found["logp_chosen_first"] == pair["logp_chosen"]
    assert found["chosen_gain"] == pytest.approx(pair["reward_chosen"] / loop.config.method.dpo.beta)
    assert found["margin"] == pair["margin"]


@pytest.mark.slow
@pytest.mark.parametrize("sharing", ["none", "prefix"])
def test_a_step_is_as_large_as_what_fits(
    sharing: str, configure_toy, process, preferences: list[Example], tiny: Path, tmp_path: Path
) -> None:
    """One row of three is too long; a step would have room for four, in passes of one."""
    rows = [*preferences[:2], replace(preferences[2], reply="Press it. " * 2000)]
    asked = (f"run.agents.*.options.path={tiny}", "dpo.batch_rows=4", "dpo.rows_at_once=1", f"dpo.sharing={sharing}")
    loop = process(configure_toy(*asked), tmp_path)
    learned(loop, rows)
    manifest = FinetuneDir(loop.folder.get_epoch(1).get_training_dir("shared")).read()
    assert (manifest["recipe"]["batch_rows"], manifest["data"]["dropped"]) == (2, {"preference": 1})


def test_states_of_optimizers_go_though_a_process_was_killed_before(configure_toy, process, tmp_path: Path) -> None:
    loop = process(configure_toy(), tmp_path)
    epoch = loop.folder.get_epoch(1)
    folder = FinetuneDir(epoch.get_training_dir("shared"))
    (folder.path / "checkpoints" / "step-1").mkdir(parents=True)
    folder.final.mkdir()
    write_json(
        epoch.record,
        EpochRecord(algorithm="collabuiagents", epoch=1, version=1, weights={}, hash="").model_dump(mode="json"),
    )
    policy = build_first_policy(loop.config.run, loop.config.method)
    assert asyncio.run(run_epoch(loop, CollabUIAgents(), 1, policy)).epoch == 1
    assert (folder.final.exists(), (folder.path / "checkpoints").exists()) == (True, False)


def test_rates_fall_from_epoch_to_epoch_and_nothing_else_changes() -> None:
    method = override(load_method(CollabUIAgents()), ["learning_rate_decay=0.5", "dpo.learning_rate=0.008"])
    found = [method.build_recipe(number) for number in (1, 2, 3)]
    assert [recipe.learning_rate for recipe in found] == [0.008, 0.004, 0.002]
    assert all(recipe.model_copy(update={"learning_rate": 0.008}) == method.dpo for recipe in found)


def test_each_epoch_is_trained_at_its_own_rate(
    configure_toy, process, preferences: list[Example], tiny: Path, tmp_path: Path
) -> None:
    asked = (f"run.agents.*.options.path={tiny}", "learning_rate_decay=0.5", "dpo.learning_rate=0.004")
    loop = process(configure_toy(*asked), tmp_path)
    policy = build_first_policy(loop.config.run, loop.config.method)
    made = CollabExamples(rows={"shared": preferences[:2]}, refused={"shared": Counter()})
    store_examples(loop.config, loop.folder, 2, made)
    asyncio.run(finetune(loop, 2, build_finetuning(loop, 2, policy)))
    assert FinetuneDir(loop.folder.get_epoch(2).get_training_dir("shared")).read()["recipe"]["learning_rate"] == 0.002
