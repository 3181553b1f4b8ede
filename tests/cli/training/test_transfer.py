"""`collab transfer`: what is refused before anything begins, and a direct transfer from end to end."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from collab.cli.main import main
from collab.cli.text import training as training_text
from collab.cli.transfer import format_below, format_news
from collab.config import Budget
from collab.loop.record import EpochRecord, Success
from collab.loop.state import TrainingProgress as Training
from collab.rollout.collector import RolloutProgress as Collecting
from collab.transfer.result import TransferDir
from collab.transfer.run import TRAINING, TransferProgress, Work

FILES = {
    "envs/street.yaml": (
        "backend: fake\nbackends:\n  fake: {kind: fake, options: {max_steps: 2}}\ntasks: [PressButton]\n"
    ),
    "graphs/alone.yaml": "slots: [ada]\nrounds: 1\n",
    "agents/idler.yaml": 'kind: scripted\noptions: {replies: [\'Reason: done. Action: {"action_type": "wait"}\']}\n',
}
MEASURED = EpochRecord(
    algorithm="collabuiagents",
    epoch=0,
    version=0,
    weights={},
    success=Success(successes=1, episodes=2, low=0.095, high=0.905, broken=0),
    hash="",
)


@pytest.fixture
def library(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / "library" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "library"


@pytest.fixture
def asked(library: Path) -> list[str]:
    """A direct transfer of an agent that only waits, compared with itself."""
    team = ["--agents", "idler", "--base", "idler", "--env", "street", "--graph", "alone"]
    return ["transfer", "--mode", "direct", *team, "--library", str(library), "--seeds", "30,31", "--episodes", "2"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "--mode is missing"),
        (("--mode", "both"), "'direct', 'continual'"),
        (("--mode", "direct"), "--agents is missing"),
        (("--mode", "direct", "--agents", "pocket"), "--env is missing"),
        (("--mode", "direct", "--agents", "pocket", "--env", "street"), "name what to compare with: --base"),
        (("--mode", "continual", "--agents", "pocket", "--env", "street"), "name RUN@best, RUN@last or RUN@epoch3"),
        (("--mode", "direct", "--agents", "nowhere@best", "--env", "street"), "no such directory"),
        (("--mode", "direct", "--agents", "pocket", "--env", "street", "--seeds", "x"), "write whole numbers"),
        (("--mode", "direct", "--agents", "pocket", "--env", "street", "--seeds", "1"), "1 is a seed for training"),
        (
            ("--mode", "direct", "--preset", "paper", "--allow-uncalibrated"),
            "trains nothing; leave out --preset, --allow-uncalibrated",
        ),
        (("--mode", "direct", "--ablation", "rft"), "trains nothing; leave out --ablation"),
        (("--mode", "direct", "--instructions", "data"), "trains nothing; leave out --instructions"),
        (("--mode", "direct", "--report-to", "tensorboard"), "trains nothing; leave out --report-to"),
        (("--resume", "nowhere", "--ablation", "rft"), "as it is; leave out --ablation"),
        (("--resume", "nowhere"), "no such directory"),
        (("--resume", "nowhere", "--plan"), "no such directory"),
        (("--resume", "nowhere", "--env", "street", "--set", "a=1"), "as it is; leave out --env, --set"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    capsys: pytest.CaptureFixture[str], library: Path, arguments: tuple[str, ...], said: str
) -> None:
    given = () if "--resume" in arguments else ("--library", str(library))
    assert main(["transfer", *given, *arguments]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    (line,) = shown.err.splitlines()
    assert said in line


@pytest.mark.slow
def test_a_transfer_is_planned_played_and_told_again(
    capsys: pytest.CaptureFixture[str], asked: list[str], tmp_path: Path
) -> None:
    out = str(tmp_path / "out")
    assert main([*asked, "--plan", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert [(line["part"], line["state"], line["episodes"]) for line in plan["parts"]] == [
        ("second/base", "missing", 4),
        ("second/transferred", "missing", 4),
    ]
    assert not Path(out).exists()
    assert main(asked) == 2
    assert "--out is missing" in capsys.readouterr().err
    assert main([*asked, "--out", out]) == 0
    assert "- Δ_generalization of the transferred team: +0.0 [+0.0, +0.0] points" in capsys.readouterr().out
    assert main([*asked, "--out", out]) == 2
    assert f"resume it: collab transfer --resume {out}" in capsys.readouterr().err
    assert main(["transfer", "--resume", out, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["result"] == json.loads((tmp_path / "out/result.json").read_text())
    assert main(["transfer", "--resume", out, "--plan"]) == 0
    assert capsys.readouterr().out.count(" over ") == 2
    assert main(["transfer", "--resume", out, "--plan", "--device", "tpu"]) == 2
    assert "no device called 'tpu'" in capsys.readouterr().err


def test_a_stop_says_how_to_resume(capsys: pytest.CaptureFixture[str], asked: list[str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main([*asked, "--out", str(out), "--budget", "tokens=1", "--json"]) == 1
    shown = capsys.readouterr()
    assert json.loads(shown.out)["result"] is None
    assert f"resume with: {TransferDir(out).resume}" in shown.err
    assert main(["transfer", "--resume", str(out), "--budget", "tokens=1000000"]) == 0


def test_any_resume_command_continues_a_transfer(
    capsys: pytest.CaptureFixture[str], asked: list[str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    assert main([*asked, "--out", str(out), "--budget", "tokens=1"]) == 1
    capsys.readouterr()
    assert main(["runs", "resume", str(out), "--budget", "tokens=1000000", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["result"] == json.loads((out / "result.json").read_text())


def test_the_epochs_of_its_training_are_shown_and_told_as_those_of_any_training() -> None:
    """On a screen while it trains; in a log once, also when the last one ended with the training itself."""
    progress = TransferProgress(parts=5)
    work = Work(config=None, folder=None, budget=Budget(), stop=asyncio.Event(), device="cpu", progress=progress)
    work.begin("second/base")
    work.watch(Collecting(planned=1))
    assert (format_below(progress), format_news(progress)) == ([], [])
    work.begin(TRAINING)
    training = Training(algorithm="collabuiagents", epochs=1)
    work.watch(training)
    training.close(MEASURED)
    shown, told = format_below(progress), format_news(progress)
    assert shown == training_text.format_below(training) != []
    assert told == training_text.format_news(training) != []
    work.begin("second/continued")
    work.watch(Collecting(planned=1))
    assert (format_below(progress), format_news(progress)) == ([], told)


def test_epochs_are_told_by_the_command(
    capsys: pytest.CaptureFixture[str], asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = Training(algorithm="collabuiagents", epochs=1)
    training.close(MEASURED)
    monkeypatch.setattr(Work, "watch", lambda work, inner: setattr(work.progress, "training", training))
    out = str(tmp_path / "out")
    assert main([*asked, "--out", out, "--budget", "tokens=1"]) == 1
    line = training_text.format_news(training)[0]
    assert line in capsys.readouterr().err.splitlines()
    assert main(["transfer", "--resume", out, "--budget", "tokens=1000000"]) == 0
    assert line in capsys.readouterr().err.splitlines()
