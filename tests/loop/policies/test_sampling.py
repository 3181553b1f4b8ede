"""Sampling temperatures of trained policies, and which evaluations may be compared."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from collab.cli.main import main
from collab.errors import UsageError
from collab.loop.loop import hash_base_weights
from collab.loop.policy import build_first_policy
from collab.loop.record import Success, TrainingDir
from collab.testing import toy_team
from collab.testing.tiny_checkpoint import make_tiny_checkpoint
from collab.transfer.config import TransferRequest, configure

HOT = "run.agents.*.sampling.temperature=1.5"
PLAY = ("--env", "corridor", "--graph", "pair", "--episodes", "1", "--set", "environment.limits.max_steps=1")
Result = tuple[int, str, str]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("declared")
    tiny = make_tiny_checkpoint(folder / "tiny", hidden=32, layers=2, context=4096)
    toy_team.write_library(folder / "library", tiny.resolve())
    return folder / "library"


@pytest.fixture
def collab(library: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("COLLAB_LIBRARY", str(library))
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> Result:
        code = main(arguments)
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return call


@pytest.fixture
def trained(library: Path, tmp_path: Path) -> str:
    """A training that is over and was played hot; the untrained team is the best."""
    from collab.library import Library

    config = asyncio.run(toy_team.configure_toy_training(Library(own=library), HOT))
    folder = TrainingDir(tmp_path / "marl")
    folder.path.mkdir()
    folder.write(
        {
            "config": config.model_dump(mode="json"),
            "created": "2026-11-22T00:00:00.000Z",
            "base": hash_base_weights(build_first_policy(config.run, config.method)),
            "summary": {"best": 0, "epochs": 2, "stopped_early": False, "hash": ""},
        }
    )
    return f"{folder.path}@best"


def temperatures(run: str) -> list[float]:
    models: dict[str, Any] = json.loads((Path(run) / "run.json").read_text())["models"]
    return [model["sampling"]["temperature"] for model in models.values()]


def test_another_end_of_episodes_than_the_measured_one_is_told(collab, trained: str) -> None:
    manifest = Path(trained.removesuffix("@best")) / "training.json"
    told = json.loads(manifest.read_text())
    told["config"]["run"]["success_check"] = "every_step"
    manifest.write_text(json.dumps(told))
    code, _, err = collab("eval", *PLAY, "--agents", trained, "--out", "ended")
    assert code == 0
    assert "measured episodes that ended as soon as they were solved (success_check=every_step), and plays with" in err
    assert "success_check=end, which a policy may not be used to; as it was measured: --set success_check=every" in err


@pytest.mark.slow
def test_a_trained_policy_is_played_as_its_agents_file_says(collab, trained: str) -> None:
    code, out, err = collab("eval", *PLAY, "--agents", trained, "--out", "cold")
    assert (code, temperatures("cold")) == (0, [0.7, 0.7])
    assert "sampled  at temperature 0.7" in out
    assert "measured its team at temperature 1.5, and it is played at temperature 0.7" in err
    assert "--set 'agents.*.sampling.temperature=1.5'" in err
    code, out, err = collab(
        "eval", *PLAY, "--agents", trained, "--set", "agents.*.sampling.temperature=1.5", "--out", "hot"
    )
    assert (code, temperatures("hot"), "measured its team" in err) == (0, [1.5, 1.5], False)
    assert "sampled  at temperature 1.5" in out
    assert json.loads(collab("runs", "show", "hot", "--json")[1])["sampling"]["ada"] == {
        "temperature": 1.5,
        "top_p": 1.0,
        "max_tokens": 40,
    }


@pytest.mark.slow
def test_hot_is_not_compared_with_cold_unless_forced(collab) -> None:
    collab("eval", *PLAY, "--agents", "toy", "--out", "cold")
    collab("eval", *PLAY, "--agents", "toy", "--set", "agents.*.sampling.temperature=1.5", "--out", "hot")
    for command in (("eval", "--compare", "cold", "hot"), ("runs", "table", "cold", "hot")):
        code, out, err = collab(*command)
        assert (code, out) == (2, "")
        assert "sampled differently: temperature 0.7 against temperature 1.5" in err
        assert "--force" in err
    code, out, err = collab("eval", "--compare", "cold", "hot", "--force")
    assert code == 0
    assert "temperature 0.7" in out.splitlines()[0]
    assert "temperature 1.5" in out.splitlines()[1]
    assert "sampled differently" in err
    code, out, _ = collab("runs", "table", "cold", "hot", "--force")
    assert (code, "Sampled: cold at temperature 0.7; hot at temperature 1.5." in out) == (0, True)
    assert "sampled at | temperature 1.5" in collab("report", "hot")[1]


def test_an_export_plays_as_the_agents_file_that_the_training_began_with(collab, trained: str) -> None:
    code, _, err = collab("export", trained, "--out", "exported")
    assert code == 0, err
    [file] = Path("exported").glob("agents*.yaml")
    assert yaml.safe_load(file.read_text())["sampling"]["temperature"] == 0.7


def test_training_on_continues_as_hot_and_remembers_the_agents_file(library: Path, trained: str) -> None:
    from collab.library import Library

    config = asyncio.run(toy_team.configure_toy_training(Library(own=library), agents=trained))
    assert config.run.agents["ada"].sampling.temperature == 1.5
    assert config.as_declared.agents["ada"].sampling.temperature == 0.7


def test_a_transfer_refuses_teams_that_are_sampled_differently_before_it_plays(library: Path, trained: str) -> None:
    from collab.library import Library

    hot = library / "agents" / "warm.yaml"
    hot.write_text((library / "agents" / "toy.yaml").read_text().replace("0.7", "1.1"))
    given = TransferRequest(
        mode="direct", agents=trained, base=str(hot), env="corridor", graph="pair", tasks=("TypeWord",), split=None
    )
    with pytest.raises(UsageError, match=r"temperature 1\.1 against temperature 0\.7.*run\.agents"):
        asyncio.run(configure(Library(own=library), given))


def test_a_held_out_line_names_temperatures_and_replies_without_an_action() -> None:
    from collab.loop.record import EpochRecord
    from collab.loop.report import format_epoch

    success = Success(
        **{"successes": 1, "episodes": 20, "low": 0.0, "high": 0.2, "broken": 0},
        replies=240,
        without_action={"cut": 30},
        sampled="temperature 1.5",
    )
    told = format_epoch(
        EpochRecord(algorithm="collabuiagents", epoch=0, version=0, weights={}, success=success, hash="")
    )
    assert told[0] == "held out 5.0% (0.0% - 20.0%), 1 of 20 episodes, at temperature 1.5"
    assert told[1] == "replies without an action, held out: 30 of 240 (30 cut by max_tokens)"
