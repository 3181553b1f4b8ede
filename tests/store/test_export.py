from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from collab.errors import MissingExtra, StoreFailure
from collab.preferences.export import README, export_runs
from collab.store.run import RunStore
from collab.types import EpisodeError


def test_tables_hold_the_run(store: RunStore, make: SimpleNamespace, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    with store.open_writer() as writer:
        odd = replace(make.step(1), observation=make.screen("lone \ud800"))
        whole = make.step(0)
        *others, late = whole.matrix
        late = replace(late, computed_tokens=20, queue_s=0.25, width=3.5)
        late = replace(late, finish="stop", end_token=2, end_logprob=-0.5, end_behaviour_logprob=-0.25)
        make.play(writer, "A/0", [replace(whole, matrix=replace(whole.matrix, utterances=(*others, late))), odd])
        make.begin(writer, "A/1")
        writer.end_episode("A/1", error=EpisodeError(type="ModelFailure", message="gone", step=0))
        make.begin(writer, "B/0")
        writer.step("B/0", make.step(0))
    files = export_runs([store.path], tmp_path / "out").files
    assert [path.name for path in files] == ["episodes.parquet", "steps.parquet", "cells.parquet"]
    assert sorted((tmp_path / "out").iterdir()) == sorted([*files, tmp_path / "out" / README])
    episodes, steps, cells = (parquet.read_table(path).to_pylist() for path in files)
    assert [(row["trajectory"], row["state"], row["success"], row["steps"]) for row in episodes] == [
        ("A/0", "finished", True, 2),
        ("A/1", "failed", None, 0),
        ("B/0", "unfinished", None, 1),
    ]
    assert (episodes[1]["error"], json.loads(episodes[0]["params"])) == ("ModelFailure", {"rooms": 2})
    assert [(row["trajectory"], row["step"], row["title"]) for row in steps] == [
        ("A/0", 0, "Room 0"),
        ("A/0", 1, "lone ?"),
        ("B/0", 0, "Room 0"),
    ]
    assert len(cells) == 12
    last = cells[3]
    assert (last["agent"], last["round"], last["ballot"], last["position"]) == ("ben", 1, 1, 3)
    assert json.loads(last["action"])["type"] == "input_text"
    assert (last["computed_tokens"], last["queue_s"], last["width"]) == (20, 0.25, 3.5)
    assert (cells[2]["computed_tokens"], cells[2]["queue_s"], cells[2]["width"]) == (None, None, None)
    assert (last["tokens"], last["logprobs"]) == ([5, 6, 7], [-0.5, -0.25, -0.125])
    ends = ("finish", "end_token", "end_logprob", "end_behaviour_logprob")
    assert [last[name] for name in ends] == ["stop", 2, -0.5, -0.25]
    assert [cells[2][name] for name in ends] == [None] * 4
    assert (cells[1]["action"], cells[1]["failure"], cells[1]["ballot"]) == (None, "no_action", None)


def test_an_empty_run_gives_empty_tables(store: RunStore, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    for path in export_runs([store.path], tmp_path / "out").files:
        assert parquet.read_table(path).num_rows == 0


def test_a_missing_extra_is_named(store: RunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"collab-marl\[parquet\]"):
        export_runs([store.path], tmp_path / "out")


def test_what_cannot_be_written_is_one_line(store: RunStore, make: SimpleNamespace, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreFailure, match="then export again"):
        export_runs([store.path], tmp_path / "file")
