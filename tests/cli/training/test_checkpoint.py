"""`collab checkpoint new`: which rows its tokenizer learns from."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from collab.cli.main import main
from collab.config import load_environment
from collab.data.example import Example, Provenance
from collab.data.parquet import ExampleWriter
from collab.library import Library
from collab.rollout.plan import load_splits
from collab.synthesis.journal import Head, SynthesisDir
from collab.types import Prompt, Segment


def row(environment: str, task: str) -> Example:
    origin = Provenance(
        environment=environment,
        environment_version="1",
        task=task,
        seed=1,
        step=0,
        screen="0" * 64,
        apps=(),
        teacher="oracle",
    )
    prompt = Prompt(system="Rules.", shared="Task: tap Save.", segments=(Segment(text="You are ada."),))
    return Example(level="basic", kind="one-step", prompt=prompt, reply=f"On {environment}: 1", provenance=origin)


def test_nothing_is_learned_from_what_is_kept_for_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    kept = asyncio.run(load_splits("androidworld", load_environment(Library(), "androidworld")))["unseen-tasks"].tasks[
        0
    ]
    (tmp_path / "rows, all").mkdir()
    with ExampleWriter(tmp_path / "rows, all" / "basic.parquet") as out:
        for one in (row("abroad[test]", "TaskOne"), row("androidworld[simphone]", kept)):
            out.add(one)
    assert main(["checkpoint", "new", "--data=~/rows, all", f"--out={tmp_path / 'new'}"]) == 2
    told = capsys.readouterr().err
    assert "rows of abroad: not checked against evaluation splits: no environment of that name is defined" in told
    assert "1 of 1 instances overlap with what is kept for evaluation (unseen-tasks 1)" in told
    assert not (tmp_path / "new").exists()


def test_broken_rows_may_be_left_out_and_an_unfinished_set_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    data = tmp_path / "data"
    SynthesisDir(data).begin(Head(config={}, environment="abroad[test]", environment_version="1"))
    path = data / "basic.parquet"
    with ExampleWriter(path) as file:
        for number in range(3):
            file.add(row("abroad[test]", f"Task{number}"))
    fields = parquet.read_table(path).to_pylist()
    fields[0]["reply"] = ""
    parquet.write_table(pyarrow.Table.from_pylist(fields, schema=parquet.read_schema(path)), path)
    command = ["checkpoint", "new", f"--data={data}", f"--out={tmp_path / 'new'}", "--set=layers=0"]
    assert main(command) == 2
    assert "row 1: reply: is empty" in capsys.readouterr().err
    assert main([*command, "--max-broken=1"]) == 2
    told = capsys.readouterr().err
    assert "left out: 1 broken rows, reply" in told
    assert f"{data}: is not finished; resume it with: collab synth --resume {data}" in told
    assert "layers" in told
