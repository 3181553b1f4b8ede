"""Secrets stand in no file of a run, and hiding them breaks nothing: no number, no name, no replay."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collab.cli.main import main
from collab.store.fingerprint import hash_run
from collab.store.run import RunStore
from collab.utils.redact import HIDDEN

LIBRARY = str(Path(__file__).parents[1] / "cli" / "library")
SEEN = ["Nothing is left", "Room 1 of", "say that the task", "complete"]
"""What pages, goals, prompts and actions of the corridor say."""
STRUCTURE = ["00000000", "observation", "trajectory", "utterances", "rehearsal", "corridor", "episode_started"]
STRUCTURE += ["PressButton", "environment", "finished", "arguments", "goal_status", "input_text"]
"""What stands in numbers, names of fields, kinds and ids."""


def played(out: Path) -> RunStore:
    command = ["rollout", "--env", "corridor", "--agents", "rehearsal", "--library", LIBRARY, "--concurrency", "1"]
    assert main([*command, "--episodes", "3", "--seed", "5", "--out", str(out)]) == 0
    return RunStore.open(out)


def texts(value: Any) -> Iterator[str]:
    """Every text of JSON data that is no key."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)


def cut(run: Path, to: Path, lines: int) -> Path:
    """The run as a kill would have left it after so many lines."""
    shutil.copytree(run, to)
    (segment,) = (to / "events").iterdir()
    segment.write_bytes(b"".join(segment.read_bytes().splitlines(keepends=True)[:lines]))
    (to / "index.sqlite").unlink()
    return to


@pytest.mark.variations
@pytest.mark.parametrize("secret", [*SEEN, *STRUCTURE])
def test_a_run_with_a_secret_is_whole_and_continues_to_the_same_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, secret: str
) -> None:
    monkeypatch.setenv("SOME_TOKEN", secret)
    store = played(tmp_path / "run")
    with store.open_reader() as reader:
        assert reader.problems == ()
        assert reader.status == "finished"
        assert [(one.state, one.missing) for one in reader.list_episodes()] == [("finished", ())] * 3
        count = sum(one.steps or 0 for one in reader.list_episodes())
    for lines in (4, 8):
        assert main(["runs", "resume", str(cut(store.path, tmp_path / f"cut-{lines}", lines))]) == 0
        assert hash_run(RunStore.open(tmp_path / f"cut-{lines}")) == hash_run(store)
    (store.path / "index.sqlite").unlink()
    with store.open_reader() as reader:
        assert sum(one.steps or 0 for one in reader.list_episodes()) == count


@pytest.mark.variations
@pytest.mark.parametrize("secret", SEEN)
def test_no_file_that_is_written_holds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], secret: str
) -> None:
    monkeypatch.setenv("SOME_TOKEN", secret)
    run = played(tmp_path / "run").path
    assert main(["pairs", "rebuild", str(run)]) == 0
    assert main(["runs", "export", str(run), "--parquet", str(tmp_path / "tables")]) == 0
    assert main(["report", str(run)]) == 0
    assert main(["view", str(run), "--export", str(tmp_path / "page.html")]) == 0
    for path in sorted(run.rglob("*.json*")):
        for line in path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]:
            assert not [text for text in texts(json.loads(line)) if secret in text], path
    dump = "\n".join(sqlite3.connect(run / "index.sqlite").iterdump())
    assert not [line for line in dump.splitlines() if secret in line.removeprefix("INSERT")]
    if secret != "complete":  # a word of the page itself
        assert secret not in (tmp_path / "page.html").read_text()
    pandas = pytest.importorskip("pyarrow.parquet")
    for table in (tmp_path / "tables").rglob("*.parquet"):
        assert not [text for row in pandas.read_table(table).to_pylist() for text in texts(row) if secret in text]
    capsys.readouterr()
    main(["runs", "show", str(run), "--episode", "PressButton/0"])
    shown = capsys.readouterr()
    assert secret not in shown.out + shown.err
    main(["runs", "show", str(run), "--json"])
    shown = capsys.readouterr()
    assert not [text for text in [*texts(json.loads(shown.out)), shown.err] if secret in text]


def test_numbers_names_and_escapes_survive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", 'ab"cä\\d\nef')
    from collab.utils.redact import hide_values

    data = {"text": 'x ab"cä\\d\nef y', "tokens": [1], "logprobs": [0.0], "name": 'ab"cä\\d\nef', "n": 0.1}
    assert hide_values(data) == {
        "text": f"x {HIDDEN} y",
        "tokens": None,
        "logprobs": None,
        "name": data["name"],
        "n": 0.1,
    }
    assert hide_values({"params": {"name": 'ab"cä\\d\nef'}}) == {"params": {"name": HIDDEN}}
    assert hide_values({"arguments": [['ab"cä\\d\nef', 'ab"cä\\d\nef']]}) == {"arguments": [['ab"cä\\d\nef', HIDDEN]]}
