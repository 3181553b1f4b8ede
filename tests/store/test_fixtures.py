"""A run of every released format version stays readable."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path

import pytest

from collab.store.fingerprint import hash_run
from collab.store.manifest import FORMAT_VERSION
from collab.store.run import RunStore

FOLDER = Path(__file__).parents[1] / "fixtures" / "runs"
RUNS = sorted(path.parent for path in FOLDER.glob("*/run.json"))


def facts(store: RunStore) -> object:
    spec = importlib.util.spec_from_file_location("make_runs", FOLDER / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return json.loads(json.dumps(module.facts(store)))


def test_the_present_format_has_a_run() -> None:
    assert FORMAT_VERSION in [path.name for path in RUNS]


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.name)
def test_it_reads_as_it_was_written(path: Path) -> None:
    found = facts(RunStore.open(path))
    assert found == json.loads((path / "expected.json").read_text())


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.name)
def test_it_can_be_resumed(path: Path, tmp_path: Path) -> None:
    store = RunStore(tmp_path / "run")
    shutil.copytree(path, store.path)
    before = hash_run(store)
    with store.open_writer() as writer:
        assert hash_run(store) == before
        writer.finish()
    assert store.open_reader().status == "finished"
    assert hash_run(store) == before


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.name)
def test_its_pictures_can_be_seen(path: Path) -> None:
    reader = RunStore.open(path).open_reader()
    names = [
        step.observation.screenshot
        for one in reader.list_episodes()
        for step in reader.read_trajectory(one.id).steps
        if step.observation.screenshot
    ]
    assert names
    assert all(reader.read_blob(name)[8:12] == b"WEBP" for name in names)
