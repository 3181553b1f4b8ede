"""A training on synthesised instructions: rollouts play them, evaluations the environment's own tasks."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from collab.algorithms.collabuiagents.metrics import read_metrics
from collab.config import Budget
from collab.errors import UsageError
from collab.library import Library
from collab.loop.config import TrainingConfig
from collab.loop.estimate import plan
from collab.loop.loop import TrainingResult, resume, start
from collab.loop.record import TrainingDir
from collab.synthesis.config import SynthesisRequest
from collab.synthesis.config import configure as configure_synthesis
from collab.synthesis.run import start as synthesise

ConfigureToy = Callable[..., TrainingConfig]
LABEL = "fake[corridor] instructions by oracle"


@pytest.fixture(scope="module")
def data(library: Library, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Instructions that were met in the task of the toy training."""
    request = SynthesisRequest(env="corridor", levels=("instruction",), episodes=2, screens=2)
    place = tmp_path_factory.mktemp("synthesised") / "data"
    asyncio.run(synthesise(asyncio.run(configure_synthesis(library, request)), place))
    return place


def list_names(data: Path) -> set[str]:
    return {json.loads(line)["name"] for line in (data / "instructions.jsonl").read_text().splitlines()}


def train(config: TrainingConfig, out: Path, **options: Any) -> TrainingResult:
    return asyncio.run(start(config, out, device="cpu", **options))


def test_rollouts_have_another_environment_than_evaluations(configure_toy: ConfigureToy, data: Path) -> None:
    config, plain = configure_toy("episodes=5", instructions=data), configure_toy("episodes=5")
    assert config.held_out == plain.held_out
    assert set(config.run.tasks) == list_names(data)
    assert config.run.environment.part.kind == "instructions"
    assert config.run.environment.part.options["environment"] == plain.run.environment.part.model_dump()
    changed = {"environment", "tasks", "split"}
    assert config.run.model_dump(exclude=changed) == plain.run.model_dump(exclude=changed)


def test_instructions_of_other_tasks_are_refused(configure_toy: ConfigureToy, data: Path) -> None:
    with pytest.raises(UsageError, match=r"none of its \d+ instructions was met in one of the 1 chosen tasks"):
        configure_toy(tasks=("OpenDoors",), instructions=data)


def test_a_critic_that_needs_solutions_is_refused_for_a_models_instructions(
    configure_finetuned: ConfigureToy, data: Path, tmp_path: Path
) -> None:
    other = Path(shutil.copytree(data, tmp_path / "data"))
    path = other / "instructions.jsonl"
    path.write_text(path.read_text().replace('"teacher": "oracle"', '"teacher": "gpt"'))
    head = json.loads((other / "synth.json").read_text())
    head["files"][path.name]["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    (other / "synth.json").write_text(json.dumps(head))
    with pytest.raises(UsageError, match=r"instructions by gpt knows no solutions.*critic=critic-llm"):
        train(configure_finetuned("epochs=1", instructions=other), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_training_on_them_learns_is_stopped_and_ends_with_the_same_hash(
    configure_toy: ConfigureToy, data: Path, tmp_path: Path
) -> None:
    few = ("epochs=1", "episodes=3", "held_out.episodes=1", "held_out.before=false", "dpo.save_every=50")
    settings = (*few, "exploration_temperatures=1.0")
    config = configure_toy(*settings, agents="early", instructions=data)
    whole = train(config, tmp_path / "whole")
    played, record = tmp_path / "whole" / "epochs" / "1", whole.records[1]
    assert json.loads((played / "rollout" / "run.json").read_text())["environment"] == LABEL
    measured = json.loads((played / "evaluation" / "seed-39" / "run.json").read_text())
    assert measured["environment"] == "fake[corridor]"
    assert {one["name"] for one in measured["tasks"]} == {"PressButton"}
    # The oracle knows the instructions' solutions, so their cells are labelled and paired.
    assert sum(read_metrics(record).pairs.counts.values()) > 0
    assert record.trained["shared"].steps > 0

    stopped = train(config, tmp_path / "run", budget=Budget(tokens=4000))
    assert stopped.summary is None
    # Moved or changed instructions would make another training of the rest.
    text = (data / "instructions.jsonl").read_text()
    try:
        (data / "instructions.jsonl").write_text(text + "\n")
        with pytest.raises(UsageError, match=r"instructions\.jsonl: has changed.*put back what was there"):
            asyncio.run(resume(tmp_path / "run", budget=Budget(tokens=10**9)))
    finally:
        (data / "instructions.jsonl").write_text(text)
    again = asyncio.run(resume(tmp_path / "run", budget=Budget(tokens=10**9)))
    assert again.summary == whole.summary
    assert TrainingDir(tmp_path / "run").read()["summary"] == (whole.summary.model_dump() if whole.summary else None)


@pytest.mark.slow
def test_a_plan_counts_instructions_and_tasks_by_their_own_budgets(
    configure_finetuned: ConfigureToy, data: Path
) -> None:
    config = configure_finetuned("epochs=1", "episodes=4", instructions=data)
    found = asyncio.run(plan(config, Library.for_recorded_training(config.library)))
    # Instructions have one more step than the three of the corridor's task.
    assert found.steps.high > 3 * 4
    assert found.episodes == 4 + 2 * 2
