"""Small whole transfers: they end, and resume where they were killed."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import collab.transfer.run as parts
import collab.transfer.run as transferring
from collab.cli.main import main
from collab.config import AgentDefinition, Budget
from collab.errors import ModelFailure, RunFormatError, UnknownName, UsageError
from collab.evaluation.report import find_runs
from collab.library import Library
from collab.loop.config import TrainingConfig
from collab.loop.loop import TrainingResult
from collab.loop.phases import load_trajectories
from collab.loop.record import EpochRecord, Spending, TrainingDir, hash_measured
from collab.seeds import Seeds
from collab.store.manifest import FILE as RUN_FILE
from collab.store.run_dir import RunLimits
from collab.testing import toy_team
from collab.testing.corridor import CorridorSuite
from collab.transfer.config import TransferConfig, TransferRequest, configure
from collab.transfer.result import TransferDir
from collab.transfer.run import TransferResult, Work, hash_weights_played, list_untrained, plan, resume, start
from collab.types import Usage

CHILD = """
import asyncio, os, signal, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
import collab.trainers.trainer, collab.models.local, peft, pyarrow.parquet  # once, for all that are born here
import collab.store.run, collab.transfer.result
from collab.trainers.run_dir import FinetuneDir
from collab.store.run import RunWriter
from collab.transfer.config import TransferConfig
from collab.transfer.run import Work
from collab.transfer.run import resume, start

out, told, points = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
write_manifest, write_atomic = collab.store.run.write_manifest, collab.transfer.result.write_atomic
begin, keep, step = Work.begin, FinetuneDir.keep_checkpoint, RunWriter.step

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def until(what, where):
    def begun(work, part):
        begin(work, part)
        if (what, where) == ("begin", part):
            die()

    def kept(folder, *rest):
        keep(folder, *rest)
        if what == "checkpoint":
            die()

    def recorded(writer, *rest, **named):
        step(writer, *rest, **named)
        if what == "step" and where in str(writer.directory):
            die()

    def headed(path, manifest):
        if what == "manifest" and where in str(path):
            die()
        write_manifest(path, manifest)

    def tabled(path, content):
        write_atomic(path, content)
        if what == "table":
            die()

    Work.begin, FinetuneDir.keep_checkpoint, RunWriter.step = begun, kept, recorded
    collab.store.run.write_manifest, collab.transfer.result.write_atomic = headed, tabled
    if (out / "transfer.json").exists():
        asyncio.run(resume(out, device="cpu"))
    else:
        asyncio.run(start(TransferConfig.model_validate_json(told.read_text()), out, device="cpu"))

for point in points:
    what, _, where = point.partition(":")
    born = os.fork()
    if not born:
        until(what, where)
        os._exit(0)
    print(point, os.waitstatus_to_exitcode(os.waitpid(born, 0)[1]), flush=True)
"""
"""A transfer in one process after the other; each kills itself at a point. argv: directory, configuration, points."""

POINTS = (
    "manifest:second/base/seed-31",
    "step:second/transferred",
    "begin:first/transferred",
    "begin:training",
    "checkpoint",
    "begin:second/continued",
    "step:first/continued/seed-31",
    "table",
)
PRESSES = TransferRequest(
    mode="direct",
    agents="presser",
    base="idler",
    env="street",
    graph="alone",
    episodes=8,
    concurrency=1,
    seeds=(30, 31),
)
"""An agent that always presses the first button, against one that presses none."""


def put(library: Library, transfer_request: TransferRequest) -> TransferConfig:
    return asyncio.run(configure(library, transfer_request))


def run(config: TransferConfig, out: Path, **options: object) -> TransferResult:
    return asyncio.run(start(config, out, device="cpu", **options))


def test_what_was_granted_is_granted_again(library: Library, tmp_path: Path, monkeypatch) -> None:
    seen: list[tuple[Budget, str]] = []

    async def looked(work: Work) -> str:
        seen.append((work.budget, work.device))
        return "enough was seen"

    monkeypatch.setattr(transferring, "_run_all", looked)
    begun = Budget(tokens=500)
    run(put(library, PRESSES), tmp_path / "out", budget=begun)
    for told in ({}, {"budget": Budget(minutes=1), "device": "auto"}, {}):
        asyncio.run(resume(tmp_path / "out", **told))
    assert seen == [(begun, "cpu"), (begun, "cpu"), (Budget(minutes=1), "auto"), (begun, "cpu")]


def test_places_for_metrics_reach_the_training(library: Library, tmp_path: Path, monkeypatch) -> None:
    """Which need not be installed here; and they are remembered."""
    seen: list[tuple[str, ...]] = []

    async def enough(*_: object, report_to: Sequence[str], **rest: object) -> SimpleNamespace:
        seen.append(tuple(report_to))
        return SimpleNamespace(spent=Usage(), stopped="enough was seen")

    async def nothing(*_: object) -> list[str]:
        return []

    for name, part in {"start_training": enough, "_run_all": transferring.train, "_check": nothing}.items():
        monkeypatch.setattr(transferring, name, part)
    monkeypatch.setattr("collab.loop.loop.check_reports", lambda names: None)
    config = put(library, PRESSES)
    more = {
        "mode": "continual",
        "training": asyncio.run(toy_team.configure_toy_training(library)),
        "first": config.base,
    }
    run(config.model_copy(update=more), tmp_path / "out", report_to=["tensorboard"])
    asyncio.run(resume(tmp_path / "out"))
    asyncio.run(resume(tmp_path / "out", report_to=[]))
    assert seen == [("tensorboard",), ("tensorboard",), ()]


def test_threads_that_were_written_down_are_those_that_it_resumes_in(
    library: Library, tmp_path: Path, monkeypatch
) -> None:
    seen: list[int] = []

    async def looked(work: Work) -> str:
        seen.append(torch.get_num_threads())
        return "enough was seen"

    monkeypatch.setattr(transferring, "_run_all", looked)
    run(put(library, PRESSES), tmp_path / "out")
    head, before, told = TransferDir(tmp_path / "out"), torch.get_num_threads(), list[str]()
    assert "threads" not in head.read(), "nothing is trained"
    head.write({**head.read(), "threads": before + 1})
    asyncio.run(resume(tmp_path / "out", note=told.append))
    assert (seen, len(told), torch.get_num_threads()) == ([before, before + 1], 1, before)


def first_buttons() -> int:
    """Instances of these seeds whose first button is the right one."""
    suite = CorridorSuite(max_steps=4)
    tasks = [
        suite.instance("PressButton", Seeds(seed).task("PressButton", number))
        for seed in PRESSES.seeds
        for number in range(8)
    ]
    return sum(task.params["rooms"][0]["buttons"].index(task.params["rooms"][0]["want"]) == 0 for task in tasks)


def test_direct_compares_a_team_with_its_base(library: Library, tmp_path: Path) -> None:
    config = put(library, PRESSES)
    result = run(config, tmp_path / "out")
    assert result.told is not None
    outcome, right = result.told.outcome, first_buttons()
    assert 0 < right < 16
    assert {arm: (one.successes, one.episodes) for arm, one in outcome.second.success.items()} == {
        "base": (0, 16),
        "transferred": (right, 16),
    }
    assert outcome.generalization["transferred"].value == right / 16
    assert json.loads((tmp_path / "out/result.json").read_text()) == outcome.model_dump(mode="json")
    assert (tmp_path / "out/result.md").read_text() == result.told.markdown
    assert asyncio.run(resume(tmp_path / "out")) == result


def test_what_is_there_is_not_played_again(library: Library, tmp_path: Path) -> None:
    config, folder = put(library, PRESSES), TransferDir(tmp_path / "out")
    result = run(config, folder.path)
    manifests = {path: (path / RUN_FILE).stat().st_mtime_ns for path in find_runs(folder.path)}
    lost = folder.path / "second/transferred/seed-31"
    shutil.rmtree(lost)
    folder.result.unlink()
    found = asyncio.run(plan(config, folder))
    assert [(line.part, line.state) for line in found.parts] == [
        ("second/base", "over"),
        ("second/transferred", "begun"),
    ]
    assert asyncio.run(resume(folder.path)).told == result.told
    again = {path: (path / RUN_FILE).stat().st_mtime_ns for path in find_runs(folder.path)}
    assert [path for path, written in manifests.items() if again[path] != written] == [lost]


def test_it_stops_when_asked_to_and_when_a_budget_is_used_up(library: Library, tmp_path: Path) -> None:
    async def stopped() -> TransferResult:
        stop = asyncio.Event()
        stop.set()
        return await start(put_now, tmp_path / "out", stop=stop)

    put_now = put(library, PRESSES)
    assert asyncio.run(stopped()).stopped == "stopped on request"
    spent = asyncio.run(resume(tmp_path / "out", budget=Budget(tokens=1)))
    assert spent.told is None
    assert "budget" in (spent.stopped or "")
    assert asyncio.run(resume(tmp_path / "out")).told is not None


def test_of_a_training_only_what_this_process_spent_counts(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record of its last epoch also tells what an earlier process spent on it."""
    spent = {"rollout": Spending(calls=9, prompt_tokens=900, completion_tokens=90, cost_usd=9.0)}
    record = EpochRecord(algorithm="collabuiagents", epoch=1, version=1, weights={}, hash="", spent=spent)

    async def trained(work: Work, budget: Budget) -> TrainingResult:
        return TrainingResult(
            path=tmp_path, records=(record,), summary=None, stopped=None, spent=Usage(prompt_tokens=34, cost_usd=0.5)
        )

    monkeypatch.setattr(parts, "_train_on", trained)
    work = Work(
        config=put(library, PRESSES),
        folder=TransferDir(tmp_path),
        budget=Budget(tokens=100, usd=1),
        stop=asyncio.Event(),
        device="cpu",
        progress=parts.TransferProgress(parts=5),
    )
    assert asyncio.run(parts.train(work)) is None
    assert work.compute_left() == Budget(tokens=66, usd=0.5)


def test_a_plan_tries_the_training_on_the_device_that_it_is_for(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    async def planned(config: TrainingConfig, library: Library, device: str) -> SimpleNamespace:
        seen.append(device)
        return SimpleNamespace(episodes=1)

    monkeypatch.setattr("collab.loop.estimate.plan", planned)
    config = put(library, PRESSES)
    more = {
        "mode": "continual",
        "training": asyncio.run(toy_team.configure_toy_training(library)),
        "first": config.base,
    }
    config, folder = config.model_copy(update=more), TransferDir(tmp_path / "out")
    folder.begin(RunLimits(device="cpu").head)
    for begun, device in ((None, None), (None, "cpu"), (folder, None), (folder, "auto")):
        asyncio.run(plan(config, begun, device))
    assert seen == ["auto", "cpu", "cpu", "auto"]
    with pytest.raises(UnknownName, match="no device called 'tpu'"):
        asyncio.run(plan(config, None, "tpu"))


@pytest.mark.parametrize("arm", ["base", "transferred"])
def test_a_team_that_does_not_answer_is_found_before_anything_is_written(
    arm: str, library: Library, tmp_path: Path
) -> None:
    config = put(library, PRESSES)
    away = AgentDefinition(kind="openai", options={"base_url": "http://127.0.0.1:9/v1", "model": "m", "retries": 0})
    runs = [run.model_copy(update={"agents": dict.fromkeys(run.agents, away)}) for run in getattr(config, arm)]
    with pytest.raises(ModelFailure, match=r"127\.0\.0\.1:9"):
        run(config.model_copy(update={arm: runs}), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_taken_directory_and_changed_words_are_refused(library: Library, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    config = put(library, PRESSES)
    with pytest.raises(UsageError, match="something is there already"):
        run(config, tmp_path)
    folder = TransferDir(tmp_path / "out")
    told = config.model_dump(mode="json")
    for one in told["transferred"]:
        one["prompts"]["default"] = dict.fromkeys(one["prompts"]["default"], "other words")
    folder.begin({"config": told, "weights": {}, **RunLimits().head})
    with pytest.raises(UsageError, match="prompts/default has changed since the transfer began"):
        asyncio.run(resume(folder.path))
    with pytest.raises(RunFormatError, match="nowhere: no such directory; name the directory of a transfer"):
        asyncio.run(resume(tmp_path / "nowhere"))


@pytest.mark.parametrize(("kind", "where"), [("local", "path"), ("openai", "model")])
def test_an_adapter_that_changed_since_is_noticed(kind: str, where: str, library: Library, tmp_path: Path) -> None:
    """The team is the base with an adapter over it: two teams, though one checkpoint."""
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    for place in (base, adapter):
        place.mkdir()
        (place / "some.safetensors").write_bytes(place.name.encode())
    config = put(library, PRESSES)
    for run_config, over in ((config.base[0], {}), (config.transferred[0], {"adapter": str(adapter)})):
        run_config.agents["ada"] = AgentDefinition(kind=kind, options={where: str(base), **over})
    known = hash_weights_played(config)
    assert set(known) == {"base/ada", "transferred/ada"}
    assert known["transferred/ada"].startswith(f"{known['base/ada']}+")
    folder = TransferDir(tmp_path / "out")
    folder.begin({"config": config.model_dump(mode="json"), "weights": known, **RunLimits().head})
    (adapter / "some.safetensors").write_bytes(b"others")
    with pytest.raises(RunFormatError, match="the weights of transferred/ada have changed"):
        asyncio.run(resume(folder.path))


# ----------------------------------------------------------------------------------------------- with real training


@pytest.fixture(scope="module")
def transfer_request(home: Path) -> TransferRequest:
    """Train on in the street for an epoch, whatever it is good for; with so many episodes some have pairs."""
    return TransferRequest(
        mode="continual",
        agents=f"{home}@epoch1",
        env="street",
        graph="pair",
        seeds=(30, 31),
        episodes=2,
        settings=(*toy_team.SMALL, "epochs=1", "dpo.epochs=1", "episodes=8", "held_out.before=false"),
    )


@pytest.fixture(scope="module")
def whole(
    taught: Library, transfer_request: TransferRequest, tmp_path_factory: pytest.TempPathFactory
) -> TransferResult:
    """An undisturbed continual transfer."""
    return run(put(taught, transfer_request), tmp_path_factory.mktemp("whole") / "out")


def episodes_of(path: Path) -> dict[str, str]:
    """Evaluation → hash of its episodes."""
    found = {}
    for place in ("second/base", "second/transferred", "second/continued", "first/transferred", "first/continued"):
        runs = sorted((path / place).iterdir())
        found[place] = hash_measured({number: load_trajectories(run) for number, run in enumerate(runs)})
    return found


def test_what_the_second_training_did_not_train_is_found_in_its_records(tmp_path: Path) -> None:
    folder = TransferDir(tmp_path)
    for number, lost in {1: {"shared": "step 2: loss is nan"}, 2: {}}.items():
        record = EpochRecord(
            algorithm="collabuiagents", epoch=number, version=0, weights={}, untrained=lost, hash="e" * 64
        )
        place = folder.training.get_epoch(number).record
        place.parent.mkdir(parents=True)
        place.write_text(record.model_dump_json(), encoding="utf-8")
    assert list_untrained(folder, 3) == ["epoch 1, shared: step 2: loss is nan"]


@pytest.mark.slow
def test_continual_trains_on_and_measures_both_environments(whole: TransferResult, home: Path) -> None:
    assert whole.told is not None
    outcome, training = whole.told.outcome, TrainingDir(whole.path / "training").read()
    assert TransferDir(whole.path).read()["threads"] == training["threads"] == torch.get_num_threads()
    assert outcome.epoch == training["summary"]["best"] == 1
    assert outcome.untrained == []
    assert outcome.first is not None
    assert set(outcome.first.success) == {"transferred", "continued"}
    assert set(outcome.generalization) == {"transferred", "continued"}
    assert outcome.forgetting is not None
    assert outcome.forgetting.pairs == 4
    learned = json.loads((home / "epochs/1/epoch.json").read_text())["trained"]["shared"]["digest"]
    assert set(training["base"].values()) == {learned}, "it goes on from what the first training left"
    assert training["config"]["method"]["reference"] == "initial"
    played = episodes_of(whole.path)
    assert len(set(played.values())) == 5, "base, team and continued team say different things in either place"


@pytest.mark.slow
def test_the_command_reports_its_training_where_it_is_asked_to(
    taught: Library, transfer_request: TransferRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    asked = [
        "--mode",
        transfer_request.mode,
        "--agents",
        transfer_request.agents,
        "--env",
        transfer_request.env,
        "--graph",
        transfer_request.graph,
        "--seeds",
        "30",
    ]
    settings = [word for one in transfer_request.settings for word in ("--set", one)]
    more = [
        "--library",
        str(taught.own),
        "--episodes",
        "1",
        "--allow-uncalibrated",
        "--device",
        "cpu",
        "--report-to",
        "tensorboard",
    ]
    assert main(["transfer", *asked, *settings, *more, "--out", str(tmp_path / "out")]) == 0, capsys.readouterr().err
    (events,) = (tmp_path / "out/training/epochs/1/training/tensorboard").glob("events.out.tfevents.*")
    found = event_accumulator.EventAccumulator(str(events.parent))
    found.Reload()
    assert found.Scalars("train/loss")


@pytest.mark.slow
def test_what_was_killed_anywhere_comes_to_the_same(
    whole: TransferResult, taught: Library, transfer_request: TransferRequest, tmp_path: Path
) -> None:
    told, out = tmp_path / "config.json", tmp_path / "out"
    told.write_text(put(taught, transfer_request).model_dump_json())
    command = [sys.executable, "-c", CHILD, str(out), str(told), *POINTS, "never"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [*(f"{point} -9" for point in POINTS), "never 0"], done.stderr
    assert asyncio.run(resume(out)).told == whole.told
    assert episodes_of(out) == episodes_of(whole.path)
    hashes = [TrainingDir(path / "training").read()["summary"]["hash"] for path in (out, whole.path)]
    assert hashes[0] == hashes[1]


@pytest.mark.slow
def test_a_team_of_filtered_bc_is_transferred_by_the_same_command(
    taught: Library, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its own algorithm trains it on there, and a killed transfer resumes with it."""
    home, out, given = tmp_path / "home", tmp_path / "out", ("--library", str(taught.own), "--device", "cpu")
    small = [word for one in ("epochs=1", "episodes=12", "held_out.episodes=2") for word in ("--set", one)]
    easy = ("--set", "run.environment.backends.fake.options.declared=false")
    play = ("--env", "corridor", "--graph", "pair", "--agents", "toy")
    train = ["train", "--algo", "filtered-bc", *play, *small, *easy, *given, "--out", str(home)]
    assert main(train) == 0, capsys.readouterr().err
    moved = ("--agents", f"{home}@last", "--env", "street", "--graph", "pair")
    measured = ("--seeds", "30", "--episodes", "2", "--out", str(out))
    transfer = ["transfer", "--mode", "continual", *moved, *small, *easy, *given, *measured]
    assert main([*transfer, "--budget", "minutes=0.000001"]) == 1
    assert f"collab transfer --resume {out}" in capsys.readouterr().err
    assert main(["transfer", "--resume", str(out), "--budget", "minutes=60"]) == 0, capsys.readouterr().err
    assert "Δ_generalization" in capsys.readouterr().out
    trained = TrainingDir(out / "training").read()
    assert (trained["config"]["algorithm"], "hash" in trained["summary"]) == ("filtered-bc", True)


@pytest.mark.slow
def test_weights_that_changed_since_are_refused(whole: TransferResult, tmp_path: Path) -> None:
    head = TransferDir(whole.path).read()
    folder = TransferDir(tmp_path / "out")
    folder.begin({**head, "weights": {**head["weights"], "base/ada": "0" * 64}})
    with pytest.raises(RunFormatError, match="the weights of base/ada have changed"):
        asyncio.run(resume(folder.path))
