"""A critic may judge a training if its calibration is good enough for the method."""

from __future__ import annotations

import asyncio
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from collab.algorithms.collabuiagents.algorithm import list_doubts
from collab.algorithms.judging import admit_critic
from collab.cli.main import main
from collab.config import Budget, override
from collab.errors import ConfigError, RunFormatError, UsageError
from collab.library import Library
from collab.loop.config import TrainingConfig
from collab.loop.loop import check_training
from collab.loop.policy import build_first_policy
from collab.rewards.calibration.metrics import Calibration, KnownStep, compute_reliability
from collab.rewards.calibration.record import CalibrationDir, CalibrationRecord
from collab.rewards.registry import CriticResources
from collab.rollout.build import build_suite
from collab.testing.corridor import CorridorSuite
from collab.testing.toy_team import configure_toy_training

NEEDS_NONE = "needs no calibration: it scores against the environment's own solution"


def calibrate(
    folder: Path,
    config: TrainingConfig,
    auc: float,
    environment: str = "fake[corridor]",
    created: str = "2026-01-01T00:00:00.000Z",
) -> Path:
    """Write down that the critic of a training was measured with this AUC; returns the folder of calibrations."""
    bench = CriticResources.of(config.method.critic, config.critic, config.critic_texts)
    numbers = Calibration(
        critic=bench.label,
        cases=3,
        cells=9,
        missing={},
        mean_scores={"good": 0.8, "bad": 0.2},
        accuracy=0.75,
        auc=auc,
        picture=compute_reliability([KnownStep(score=0.8, good=True)]),
        ece=0.2,
        retest=None,
        position_effects={},
        position_bias=None,
        length_bias=None,
    )
    record = CalibrationRecord(
        critic=config.method.critic,
        label=bench.label,
        digest=bench.digest,
        config={"critic": config.critic.model_dump(mode="json")},
        environment=environment,
        environment_version="1",
        created=created,
        numbers=numbers,
    )
    place = folder / created[:10]
    place.mkdir(parents=True)
    CalibrationDir(place).write(record)
    return folder


def known(config: TrainingConfig, folder: Path, *, allow_uncalibrated: bool = False) -> str:
    return asyncio.run(
        admit_critic(config, build_suite(config.run), calibrations=folder, allow_uncalibrated=allow_uncalibrated)
    )


def doubts(config: TrainingConfig) -> list[str]:
    return list_doubts(config, build_suite(config.run))


def test_an_uncalibrated_critic_judges_only_if_that_is_allowed(configure_toy, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"critic critic-outcome: no finished calibration .*critic calibrate.*--allow-uncalibrated"
    ):
        known(configure_toy("critic=critic-outcome"), tmp_path)
    assert "no finished calibration" in known(configure_toy("critic=critic-outcome"), tmp_path, allow_uncalibrated=True)
    assert "no finished calibration" in known(configure_toy("critic=critic-outcome", "min_critic_auc=null"), tmp_path)


def test_a_calibration_must_reach_what_the_method_wants(configure_toy, tmp_path: Path) -> None:
    folder = calibrate(tmp_path, configure_toy("critic=critic-outcome"), 0.65)
    with pytest.raises(ConfigError, match=r"AUC 0\.650 .* at least 0\.7 is wanted"):
        known(configure_toy("critic=critic-outcome"), folder)
    said = known(configure_toy("critic=critic-outcome", "min_critic_auc=0.65"), folder)
    assert said.startswith("calibrated 2026-01-01T00:00:00.000Z: AUC 0.650, accuracy 0.750")
    assert known(configure_toy("critic=critic-outcome"), folder, allow_uncalibrated=True) == said


def test_what_was_measured_of_another_critic_says_nothing(configure_toy, tmp_path: Path) -> None:
    folder = calibrate(tmp_path, configure_toy("critic=critic-outcome"), 1.0)
    assert known(configure_toy(), folder) == NEEDS_NONE


@pytest.mark.parametrize("settings", [(), ("critic_flip=0.25",)])
def test_what_is_said_to_do_next_can_be_done(configure_toy, tmp_path: Path, settings: tuple[str, ...]) -> None:
    """The critic is another than the one that was measured, and is one of the user's own library."""
    shutil.copytree(str(configure_toy().library), tmp_path / "my library")
    (tmp_path / "my library/agents/judge.yaml").write_text("kind: outcome\noptions: {replay: true}\n")
    config = asyncio.run(configure_toy_training(Library(own=tmp_path / "my library"), "critic=judge", *settings))
    folder = calibrate(tmp_path / "my calibrations", configure_toy("critic=critic-outcome"), 1.0)
    (folder / "2026-01-01").rename(folder / "judge")
    with pytest.raises(ConfigError) as refused:
        known(config, folder)
    command = shlex.split(str(refused.value).partition("make one with: ")[2].partition(", or let it judge")[0])
    assert main([*command[1:], "--env", "corridor", "--cases", "2"]) == 0
    assert known(config, folder, allow_uncalibrated=True).startswith("calibrated 2")


def test_what_cannot_be_read_stops_only_whom_it_may_be_of(configure_toy, tmp_path: Path) -> None:
    (tmp_path / "spoilt").mkdir()
    (tmp_path / "spoilt/calibration.json").write_text("{")
    with pytest.raises(RunFormatError, match="spoilt"):
        known(configure_toy("critic=critic-outcome"), tmp_path)
    assert "no finished calibration" in known(configure_toy("critic=critic-outcome"), tmp_path, allow_uncalibrated=True)
    assert known(configure_toy(), tmp_path) == NEEDS_NONE


def test_a_model_at_another_address_is_told_beside_its_calibration(
    configure_toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret-0123456789")

    def served(port: int) -> TrainingConfig:
        address = f"http://127.0.0.1:{port}/v1"
        path = tmp_path / str(port) / "judge.yaml"
        path.parent.mkdir()
        options = f"{{model: mine, base_url: '{address}'}}"
        path.write_text(f"kind: llm\noptions: {{model: {{kind: openai, options: {options}}}}}\n")
        found: TrainingConfig = configure_toy(f"critic={path}")
        return found

    first, moved = served(8001), served(8002)
    folder = calibrate(tmp_path / "measured", first, 0.9)
    assert "take care" not in known(first, folder)
    assert known(moved, folder).endswith(
        "; measured with the model at http://127.0.0.1:8001/v1, but the critic uses the one at "
        "http://127.0.0.1:8002/v1: take care that both have the same weights"
    )


def test_a_calibration_in_another_environment_is_a_warning(configure_toy, tmp_path: Path) -> None:
    config = configure_toy("critic=critic-outcome")
    here = known(config, calibrate(tmp_path / "here", config, 0.9))
    assert here.endswith(", 0 of 9 scores missing, on 3 steps of fake[corridor]")
    there = known(config, calibrate(tmp_path / "there", config, 0.9, "mobile-miniwob"))
    assert there.endswith(
        ", on 3 steps of mobile-miniwob; warning: that is not fake[corridor], which is trained in: how well it judges "
        "there was not measured"
    )


def test_what_was_measured_in_the_environment_that_is_trained_in_counts_before_later_ones(
    configure_toy, tmp_path: Path
) -> None:
    config = configure_toy("critic=critic-outcome", "min_critic_auc=0.8")
    calibrate(tmp_path, config, 0.9)
    calibrate(tmp_path, config, 0.5, "mobile-miniwob", "2026-02-02T00:00:00.000Z")
    assert known(config, tmp_path).endswith("on 3 steps of fake[corridor]")


def test_the_oracle_needs_none(configure_toy, tmp_path: Path) -> None:
    assert known(configure_toy("min_critic_auc=1"), tmp_path) == NEEDS_NONE


def test_the_oracle_judges_only_where_solutions_are_known(configure_toy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Elsewhere each score would be missing, and each epoch played for nothing."""
    config = configure_toy()
    assert doubts(config) == []
    monkeypatch.setattr(CorridorSuite, "capabilities", CorridorSuite.capabilities - {"oracle"})
    with pytest.raises(UsageError, match=r"critic critic-oracle: .* knows no solutions, .*--set critic=critic-llm"):
        asyncio.run(check_training(config, build_first_policy(config.run, config.method), Budget(), {}))


def test_tasks_without_a_solution_are_told_and_refused_where_there_are_no_others(
    configure_toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks, both = CorridorSuite.tasks, ["run.tasks=[PressButton, TypeWord]"]
    config = override(configure_toy(), both)

    def without(*unsolved: str) -> None:
        monkeypatch.setattr(
            CorridorSuite,
            "tasks",
            lambda suite: [replace(info, oracle=info.name not in unsolved) for info in tasks(suite)],
        )

    without("TypeWord")
    (told,) = doubts(config)
    assert told.startswith("1 of 2 tasks have no known solution")
    assert told.endswith("leave them out: --tasks tag:oracle")
    assert doubts(override(configure_toy("critic=critic-outcome"), both)) == []
    without("PressButton", "TypeWord")
    with pytest.raises(UsageError, match=r"none of the 2 chosen tasks .* has a known solution.*--tasks tag:oracle"):
        doubts(config)


def test_labels_that_are_flipped_on_purpose_are_told(configure_toy) -> None:
    said = "critic critic-oracle: labels flipped on purpose, 0.25 of them; --set critic_flip=0 leaves them"
    assert doubts(configure_toy("critic_flip=0.25")) == [said]
    assert doubts(configure_toy("critic_flip=0")) == []


def test_an_adversary_that_is_never_asked_is_told(configure_toy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret-0123456789")
    none, one = "pairs={correction: 1, contrast: 0, adversary: 0}", "pairs={correction: 0, contrast: 0, adversary: 1}"
    (told,) = doubts(configure_toy("adversary=openai", none))
    assert told.startswith("adversary openai is not asked")
    assert doubts(configure_toy("adversary=openai", one)) == []
    assert doubts(configure_toy("adversary=sampler", none)) == []


def test_a_team_that_plays_hotter_than_it_learns_is_told(configure_toy) -> None:
    hot = "run.agents.*.sampling.temperature=1.5"
    (told,) = doubts(configure_toy(hot))
    assert "sampled at temperature 1.5 and learned from at 1, " in told
    assert told.endswith("--set dpo.temperature=1.5")
    assert doubts(configure_toy(hot, "dpo.temperature=1.5")) == []
    assert doubts(configure_toy("run.agents.*.sampling.temperature=0.3")) == []
    assert doubts(configure_toy(hot, "exploration_temperatures=[0.3, 1.0]")) == []
    (told,) = doubts(configure_toy("exploration_temperatures=[0.3, 1.2]"))
    assert "sampled at temperature 1.2 and learned from at 1, " in told


def test_a_key_that_is_not_there_is_told_before_anything_is_asked(
    configure_toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    missing = "openai: the environment variable OPENAI_API_KEY is not set"
    assert any(f"critic critic-llm: {missing}" in line for line in doubts(configure_toy("critic=critic-llm")))
    mixed = configure_toy("adversary=sampler=3,openai=1", "pairs.adversary=1")
    assert any(f"adversary: {missing}" in line for line in doubts(mixed))
    assert not any(missing in line for line in doubts(configure_toy()))
