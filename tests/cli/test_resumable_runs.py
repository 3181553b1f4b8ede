"""Commands on runs take folders of several seeds, trainings and transfers, too, or say which command to use."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from collab.cli.main import main
from collab.evaluation.report import HEADS
from collab.store.manifest import FILE
from collab.testing.tiny_checkpoint import make_tiny_checkpoint

Command = Callable[..., tuple[int, str, str]]
LIBRARY = Path(__file__).parent / "library"
FIRST = """kind: scripted
options:
  replies:
    - 'Reason: the first. Action: {"action_type": "click", "index": 1}'
    - 'Reason: done. Action: {"action_type": "status", "goal_status": "complete"}'
"""
ALONE = (
    "--env",
    "corridor",
    "--seed",
    "30",
    "--graph",
    "single",
    "--agents",
    "first",
    "--episodes",
    "6",
    "--concurrency",
    "1",
)
PLAY = ("--env", "corridor", "--graph", "chain4", "--set", "graph.rounds=1")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds, a direct transfer and a training that was stopped at once, side by side in `runs`."""
    place, patch = tmp_path_factory.mktemp("recorded"), pytest.MonkeyPatch()
    library = shutil.copytree(LIBRARY, place / "library")
    (library / "agents/toy.yaml").write_text("kind: local\noptions: {path: tiny}\n")
    (library / "agents/idler.yaml").write_text(
        'kind: scripted\noptions: {replies: [\'Reason: done. Action: {"action_type": "wait"}\']}\n'
    )
    (library / "agents/first.yaml").write_text(FIRST)
    (library / "envs/street.yaml").write_text(
        "backend: fake\nbackends:\n  fake: {kind: fake, options: {max_steps: 2}}\n"
    )
    with patch.context() as here:
        here.setenv("COLLAB_LIBRARY", str(library))
        here.chdir(place)
        seeds = ("eval", *PLAY, "--agents", "rehearsal", "--seeds", "30,31", "--out", "runs/seeds")
        assert main(seeds) == 0
        assert main(["pairs", "rebuild", "runs/seeds/seed-30"]) == 0
        team = (
            "--agents",
            "idler",
            "--base",
            "idler",
            "--env",
            "street",
            "--graph",
            "single",
            "--tasks",
            "PressButton",
        )
        moved = ("transfer", "--mode", "direct", *team, "--seeds", "30,31", "--split", "none")
        assert main([*moved, "--out", "runs/moved"]) == 0
        make_tiny_checkpoint(place / "tiny", hidden=32, layers=1)
        train = ("train", "--env", "corridor", "--graph", "single", "--agents", "toy", "--device", "cpu")
        small = ("--set", "epochs=1", "--set", "episodes=1", "--set", "held_out.episodes=1")
        assert main([*train, *small, "--out", "runs/trained", "--budget", "minutes=0.000001"]) == 1
    return place


@pytest.fixture
def collab(place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.setenv("COLLAB_LIBRARY", str(place / "library"))
    monkeypatch.chdir(place)
    capsys.readouterr()

    def call(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return call


def read(result: tuple[int, str, str], code: int = 0) -> Any:
    assert result[0] == code, result[2]
    return json.loads(result[1])


# ------------------------------------------------------------------------------------------------------------ list


def test_a_folder_is_known_by_the_head_that_its_maker_writes() -> None:
    """The command line names the heads itself, for looking at a folder imports nothing of what made it."""
    pytest.importorskip("torch")
    from collab.loop.record import TrainingDir
    from collab.store.run import RunStore
    from collab.trainers.run_dir import FinetuneDir
    from collab.transfer.result import TransferDir

    makers = {"run": RunStore, "training": TrainingDir, "transfer": TransferDir, "finetuning": FinetuneDir}
    assert {kind: maker.HEAD for kind, maker in makers.items()} == HEADS


def test_the_list_knows_trainings_and_transfers(collab: Command) -> None:
    rows = {row["run"]: row for row in read(collab("runs", "list", "runs", "--json"))}
    told = {
        name: (row["command"], row["done"], row["planned"], row["unit"], row["status"]) for name, row in rows.items()
    }
    assert told["runs/moved"] == ("transfer", 2, 2, "parts", "finished")
    assert told["runs/trained"] == ("train", 0, 1, "epochs", "stopped")
    assert (rows["runs/trained"]["algorithm"], rows["runs/moved"]["algorithm"]) == ("collabuiagents", None)
    assert told["runs/seeds/seed-31"] == ("eval", 3, 3, "episodes", "finished")
    out = collab("runs", "list", "runs")[1]
    assert "0/1 epoch " in out
    assert "train collabuiagents" in out
    assert "2/2 parts" in out


# ------------------------------------------------------------------------------------------------------------ show


def test_several_seeds_are_shown_together(collab: Command) -> None:
    code, out, _ = collab("runs", "show", "runs/seeds")
    assert code == 0
    assert out.startswith("runs     runs/seeds (finished, 2 seeds)\n")
    assert "(6/6)" in out
    assert "look closer: collab runs show runs/seeds/seed-30" in out
    assert read(collab("runs", "show", "runs/seeds", "--json"))["success"]["episodes"] == 6


def test_an_episode_of_several_runs_is_found_or_its_run_asked_for(collab: Command) -> None:
    code, _, err = collab("runs", "show", "runs/seeds", "--episode", "TypeWord/0")
    assert code == 2
    assert "2 runs have an episode TypeWord/0; name one of them: collab runs show runs/seeds/seed-30 --episode" in err
    code, _, err = collab("runs", "show", "runs/seeds", "--episode", "TypeWort/0")
    assert (code, "did you mean TypeWord/0" in err) == (2, True)
    code, _, _ = collab("runs", "show", "runs/moved/second/base", "--episode", "PressButton/0")
    assert code == 2, "both seeds have it"


def test_cost_of_several_runs_names_the_command_for_one(collab: Command) -> None:
    code, _, err = collab("runs", "show", "runs/seeds", "--cost")
    assert (code, err.count("\n")) == (2, 1)
    assert "an evaluation over several seeds; name one of its 2 runs: collab runs show runs/seeds/seed-30 --cost" in err


def test_a_transfer_and_a_training_are_shown(collab: Command) -> None:
    code, out, _ = collab("runs", "show", "runs/moved")
    assert code == 0
    assert out.startswith("transfer runs/moved (finished)\n")
    assert "Δ_generalization" in out
    assert read(collab("runs", "show", "runs/moved", "--json"))["parts"]["second/base"] == "over"
    code, out, _ = collab("runs", "show", "runs/trained")
    assert code == 0
    assert out.startswith("training runs/trained (stopped)\n")
    assert "resume with: collab train --resume runs/trained\n" in out
    assert read(collab("runs", "show", "runs/trained", "--json"))["summary"] is None


def test_a_folder_of_different_runs_is_listed_and_not_shown(collab: Command) -> None:
    for command in ("show", "resume"):
        code, _, err = collab("runs", command, "runs")
        assert (code, err.count("\n")) == (2, 1)
        assert "collab runs list runs" in err


# ----------------------------------------------------------------------------------------------------------- report


def test_reports_of_several_runs_hold_each(collab: Command) -> None:
    code, out, _ = collab("report", "runs/seeds")
    assert code == 0
    assert out.startswith("# runs/seeds\n\n**rehearsal: not a language model**")
    assert "| together | 100.0 [61.0, 100.0] (6) |" in out
    assert out.count("\n## Run ") == 2
    code, out, _ = collab("report", "runs/moved")
    assert code == 0
    assert "Δ_generalization" in out
    assert out.count("\n## Run ") == 4
    assert collab("report", "runs/trained")[0] == 0
    code, _, err = collab("report", "runs/seeds", "--figures", "figures")
    assert (code, "collab report runs/seeds/seed-30 --figures DIR" in err) == (2, True)


# ----------------------------------------------------------------------------------------------------------- resume


@pytest.mark.slow
def test_several_seeds_are_resumed_also_where_one_was_never_begun(collab: Command, tmp_path: Path) -> None:
    command = ("eval", *PLAY, "--agents", "idler", "--seeds", "30,31,32", "--out", str(tmp_path / "cut"))
    whole = read(collab(*command[:-1], str(tmp_path / "whole"), "--json"))
    code, _, err = collab(*command, "--budget", "tokens=1")
    assert code == 1
    assert "(not begun: seed 31, 32)" in err
    shown = collab("runs", "show", str(tmp_path / "cut"))[1]
    assert f"resume with: collab runs resume {tmp_path / 'cut'}\n" in shown
    again = read(collab("runs", "resume", str(tmp_path / "cut"), "--budget", "minutes=9", "--json"))
    assert again["stopped"] is None
    for one, other in zip(whole["runs"], again["runs"], strict=True):
        assert one["episodes"] == other["episodes"]
    finished = read(collab("runs", "resume", str(tmp_path / "cut"), "--json"))
    assert finished["success"] == again["success"]


def test_what_plays_in_no_workers_is_not_moved(collab: Command) -> None:
    code, _, err = collab("runs", "resume", "runs/moved", "--executor", "local")
    assert (code, "runs/moved is neither a run, an evaluation nor a training; leave them out" in err) == (2, True)


@pytest.mark.slow
def test_what_is_finished_is_said_to_be_so_and_how_to_have_more(collab: Command, tmp_path: Path) -> None:
    made, asked = str(tmp_path / "made"), str(tmp_path / "asked")
    assert collab("synth", "--env", "corridor", "--screens", "2", "--episodes", "1", "--out", made)[0] == 0
    calibrate = ("critic", "calibrate", "--critic", "critic-oracle", "--env", "corridor", "--cases", "2")
    assert collab(*calibrate, "--out", asked)[0] == 0
    more = {
        "runs/seeds": "more seeds: collab eval … --seeds 30,31,N --out runs/seeds",
        "runs/seeds/seed-30": "begin another run: collab eval --episodes N --out DIR",
        "runs/moved": "begin another: collab transfer --mode direct --agents NAME --env NAME --out DIR",
        made: "begin another: collab synth --screens N --episodes N --seed S --out DIR",
        asked: "begin another: collab critic calibrate --critic critic-oracle --cases N --out DIR",
    }
    for path, words in more.items():
        code, out, err = collab("runs", "resume", path)
        assert (code, err.count(f"{path} is finished; ")) == (0, 1)
        assert words in err
        assert out
        assert "going on" not in err
        assert read(collab("runs", "resume", path, "--json"))
    assert "seed-30 is finished; " in collab("pairs", "rebuild", "runs/seeds/seed-30")[2]


def test_a_finished_run_is_told_although_its_model_is_gone(collab: Command, place: Path, tmp_path: Path) -> None:
    run = shutil.copytree(place / "runs/seeds/seed-31", tmp_path / "run")
    text = (run / FILE).read_text()
    (run / FILE).write_text(text.replace('"kind": "rehearsal"', '"kind": "gone:Model"'))
    assert (run / FILE).read_text() != text
    code, out, err = collab("runs", "resume", str(run), "--trust")
    assert (code, f"{run} is finished; " in err, "success  100.0%" in out) == (0, True, True)


def test_overlap_takes_folders_of_runs_and_names_the_option(collab: Command) -> None:
    code, _, err = collab("runs", "overlap", "runs/seeds")
    assert (code, err.count("6 of 6 instances overlap with what is kept for evaluation")) == (2, 1)
    assert err.endswith("; leave these out (--split train plays none of them), or add --allow-overlap\n")
    assert collab("runs", "overlap", "runs/seeds", "--allow-overlap")[0] == 0
    code, _, err = collab("runs", "overlap", "runs/seeds", "runs/moved")
    assert (code, "at a time: collab runs overlap runs/seeds/seed-30" in err) == (2, True)


# ------------------------------------------------------------------------------------------------------------ pairs


def test_pairs_of_several_runs(collab: Command) -> None:
    listed = read(collab("pairs", "list", "runs/seeds", "--limit", "2", "--json"))
    (run,) = listed["runs"]
    assert run["run"] == "runs/seeds/seed-30"
    found = collab("pairs", "show", "runs/seeds", run["pairs"][0]["short"])
    assert found[0] == 0
    code, _, err = collab("pairs", "rebuild", "runs/seeds")
    assert (code, err.count("\n")) == (2, 1)
    assert "name one of its 2 runs: collab pairs rebuild runs/seeds/seed-30" in err
    code, _, err = collab("pairs", "list", "runs/moved")
    assert (code, err.count("\n")) == (2, 1)
    assert "no pairs yet; to make some: runs/moved: a transfer; name one of its 4 runs: collab pairs rebuild" in err
    code, _, err = collab("pairs", "show", "runs/seeds", "ffffffff")
    assert code == 2


# ----------------------------------------------------------------------------------------------------------- export


def test_everything_is_exported_into_one_folder_and_nothing_overwritten(collab: Command, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    out = tmp_path / "tables"
    found = read(collab("runs", "export", "runs/seeds", "--parquet", str(out), "--json"))
    names = ["episodes", "steps", "cells", "rewards", "pairs", "preferences"]
    assert [Path(file).stem for file in found["files"]] == names
    tables = {name: parquet.read_table(out / f"{name}.parquet").to_pylist() for name in names}
    assert {row["run"] for row in tables["cells"]} == {"runs/seeds/seed-30", "runs/seeds/seed-31"}
    cell = next(row for row in tables["cells"] if row["score"] is not None)
    assert cell["system"].startswith("You operate a phone")
    assert cell["user"]
    assert cell["reward"] == int(cell["score"] > 0.5)
    assert json.loads(tables["steps"][0]["edges"])
    pair = tables["pairs"][0]
    assert pair["chosen_score"] > 0.5
    assert (pair["system"], bool(pair["user"]), pair["run"]) == (cell["system"], True, "runs/seeds/seed-30")
    preference = tables["preferences"][0]
    assert [turn["role"] for turn in preference["prompt"]] == ["system", "user"]
    assert preference["chosen"] == [{"role": "assistant", "content": pair["chosen"]}]
    before = {path: path.read_bytes() for path in out.iterdir()}
    code, _, err = collab("runs", "export", "runs/moved", "--parquet", str(out))
    assert (code, err.count("\n")) == (2, 1)
    assert "nothing is overwritten; name another folder with --parquet" in err
    assert before == {path: path.read_bytes() for path in out.iterdir()}
    for name in ("moved", "trained"):
        assert collab("runs", "export", f"runs/{name}", "--parquet", str(tmp_path / name))[0] == (
            0 if name == "moved" else 2
        )


def test_datasets_loads_the_folder_as_one(collab: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    out, cache = str(tmp_path / "tables"), str(tmp_path / "cache")
    assert collab("runs", "export", "runs/seeds", "--parquet", out)[0] == 0
    names = datasets.get_dataset_config_names(out)
    assert set(names) == {"episodes", "steps", "cells", "rewards", "pairs", "preferences"}
    whole = datasets.load_dataset(out, cache_dir=cache)
    assert {"user", "text", "score", "run", "split"} <= set(whole["train"].column_names), (
        "cells, unless another is named"
    )
    for name in names:
        assert len(datasets.load_dataset(out, name, cache_dir=cache)["train"]) > 0


def test_a_run_without_judgements_still_gives_demonstrations(collab: Command, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    played = ("rollout", *ALONE, "--out", str(tmp_path / "first"))
    assert collab(*played)[0] == 0
    assert collab("runs", "export", str(tmp_path / "first"), "--parquet", str(tmp_path / "out"))[0] == 0
    rows = parquet.read_table(tmp_path / "out/demonstrations.parquet").to_pylist()
    assert rows
    assert [turn["role"] for turn in (*rows[0]["prompt"], *rows[0]["completion"])] == ["system", "user", "assistant"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_trl_trains_on_what_is_exported(collab: Command, tmp_path: Path) -> None:
    datasets, trl = pytest.importorskip("datasets"), pytest.importorskip("trl")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tiny = str(make_tiny_checkpoint(tmp_path / "tiny", hidden=32, layers=1, context=4096))
    assert collab("rollout", *ALONE, "--out", str(tmp_path / "first"))[0] == 0
    assert collab("runs", "export", str(tmp_path / "first"), "--parquet", str(tmp_path / "played"))[0] == 0
    assert collab("runs", "export", "runs/seeds", "--parquet", str(tmp_path / "judged"))[0] == 0
    common = {"max_steps": 1, "per_device_train_batch_size": 2, "report_to": [], "use_cpu": True, "bf16": False}
    for folder, name, trainer, config in (
        ("judged", "preferences", trl.DPOTrainer, trl.DPOConfig),
        ("played", "demonstrations", trl.SFTTrainer, trl.SFTConfig),
    ):
        rows = datasets.load_dataset(str(tmp_path / folder), name, cache_dir=str(tmp_path / "cache"))["train"]
        one = trainer(
            model=AutoModelForCausalLM.from_pretrained(tiny),
            processing_class=AutoTokenizer.from_pretrained(tiny),
            train_dataset=rows,
            args=config(output_dir=str(tmp_path / name), max_length=2048, **common),
        )
        assert one.train().global_step == 1


def test_what_holds_nothing_says_what_to_do(collab: Command, tmp_path: Path) -> None:
    for command in (("show",), ("resume",), ("export", "--parquet", str(tmp_path / "out"))):
        code, _, err = collab("runs", command[0], str(tmp_path), *command[1:])
        assert (code, err.count("\n")) == (2, 1)
        assert f"not a run directory (no {FILE}); collab runs list shows the runs there are" in err
