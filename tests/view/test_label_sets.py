"""Labels of a run are the same whether the whole file was read or only the lines of one episode."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from pathlib import Path

import pytest

from collab.preferences.store import list_pair_sets
from collab.store.run import RunStore
from collab.view import common, readers
from collab.view.common import find_lines_about
from collab.view.inspector import Inspector
from collab.view.labels import LabelSetIndex, PairSetIndex, add_spent, index_label_set
from collab.view.readers import ReaderPool


@pytest.fixture
def run(recorded: Path, tmp_path: Path) -> Path:
    """A copy to be changed."""
    return Path(shutil.copytree(recorded, tmp_path / "runs" / "one"))


def episodes(run: Path) -> list[str]:
    with RunStore.open(run).open_reader() as reader:
        return [one.id for one in reader.list_episodes()]


# --------------------------------------------------------------------------------------------------- some or all of it


@pytest.mark.parametrize("block", [1, 7, 100, 1 << 22])
def test_lines_that_name_an_episode_are_all_whole_ones_that_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(common, "_BLOCK", block)
    told = ["Übung/1", "Task/1", "Task/10", 'a"b\\/2', "Task/1", "\ud800"]
    written = [json.dumps({"trajectory": id, "step": place}) + "\n" for place, id in enumerate(told)]
    path = tmp_path / "lines.jsonl"
    path.write_text("".join(written) + json.dumps({"trajectory": "Task/1", "step": 6})[:-1])  # half a line
    for id in told:
        found = list(find_lines_about(path, id))
        assert [line.decode() for _, line in found] == [
            line for line in written if json.loads(line)["trajectory"] == id
        ]
        assert all(path.read_bytes()[offset:].startswith(line) for offset, line in found)
    assert not list(find_lines_about(path, "Task"))


def test_about_one_episode_is_what_the_whole_says_of_it(recorded: Path) -> None:
    whole = index_label_set(recorded, "oracle")
    (name,) = list_pair_sets(recorded)
    stored = PairSetIndex(recorded, name)
    for id in episodes(recorded):
        mine = {key: said for key, said in whole.said.items() if key[0] == id}
        assert LabelSetIndex(recorded, "oracle").about(id) == mine != {}
        some = PairSetIndex(recorded, name, about=id)
        for _, step in mine:
            assert list(some.of(id, step)) == list(stored.of(id, step))
            assert some.count(id, step) == stored.count(id, step)


def test_a_step_is_answered_without_reading_all_and_afterwards_alike(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inspector = Inspector([recorded], index_cache=tmp_path)
    id = inspector.list_ids()[0]
    with monkeypatch.context() as patched:
        patched.setattr("collab.view.labels.index_label_set", None)
        patched.setattr(PairSetIndex, "_read_all", None)
        before = [inspector.get_episode(id, one) for one in episodes(recorded)]
        steps = [inspector.get_step(id, view.row.id, row.step) for view in before for row in view.steps]
    inspector.get_overview(id)
    assert [inspector.get_episode(id, one) for one in episodes(recorded)] == before
    assert [inspector.get_step(id, one.episode, one.step) for one in steps] == steps
    inspector.close()


def test_what_was_appended_to_is_looked_at_again(run: Path, tmp_path: Path) -> None:
    pool = ReaderPool(tmp_path / "index_cache")
    (id, *_) = episodes(run)
    with pool.open_run(run) as one:
        before = one.beside.read_scores("oracle", id)
        (path,) = (run / "labels" / "oracle" / "events").iterdir()
        more = json.loads(next(line for line in path.read_text().splitlines() if json.dumps(id) in line))
        more["rewards"]["step"] = 99
        with path.open("a") as file:
            file.write(json.dumps(more) + "\n")
        assert set(one.beside.read_scores("oracle", id)) == {*before, (id, 99)}
    pool.close()


def test_runs_that_were_named_are_opened_before_any_request(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inspector = Inspector([recorded], index_cache=tmp_path)
    inspector.warm_up()
    monkeypatch.setattr("collab.view.readers.RunReader", None)
    monkeypatch.setattr("collab.view.labels.index_label_set", None)
    assert inspector.get_overview(inspector.list_ids()[0]).labels == "oracle"
    inspector.close()


def test_of_a_folder_the_newest_run_is_opened_before_any_request(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others would take their time, each."""
    for name, at in (("old", 1), ("new", 3), ("older", 2)):
        shutil.copytree(recorded, tmp_path / "runs" / name)
        os.utime(tmp_path / "runs" / name, (at, at))
    inspector = Inspector([tmp_path / "runs"], index_cache=tmp_path)
    inspector.warm_up()
    monkeypatch.setattr("collab.view.readers.RunReader", None)
    shown = {}
    for root in inspector._context.roots.top():
        with contextlib.suppress(TypeError):
            shown[root.path.name] = inspector.get_overview(root.id).labels
    assert shown == {"new": "oracle"}


# ----------------------------------------------------------------------------------------------------------- whose word


def test_the_labelling_that_was_learned_from_comes_first(run: Path, tmp_path: Path) -> None:
    pool = ReaderPool(tmp_path / "index_cache")
    with pool.open_run(run) as one:
        assert (one.beside.choose_label_set(None), one.beside.choose_label_set("")) == ("oracle", None)
        (run / "labels" / "oracle").rename(run / "labels" / "zz")
        shutil.copytree(run / "labels" / "zz", run / "labels" / "training")
        shutil.copytree(run / "labels" / "zz", run / "labels" / "a")
        assert one.beside.list_label_sets() == ["a", "training", "zz"]
        assert (one.beside.choose_label_set(None), one.beside.choose_label_set("zz")) == ("training", "zz")
        assert one.beside.choose_label_set("oracle", known=False) is None
    pool.close()


def test_what_critics_and_adversaries_took_is_in_the_sums_of_a_run(run: Path, tmp_path: Path) -> None:
    played = Inspector([run], index_cache=tmp_path / "index_cache")
    without = played.get_row(played.list_ids()[0])
    played.close()
    (path,) = (run / "labels" / "oracle" / "events").iterdir()
    first, *rest = path.read_text().splitlines(keepends=True)
    said = json.loads(first)
    call = {"prompt_tokens": 100, "completion_tokens": 7, "cost_usd": 0.5}
    said["calls"] = [call, call | {"cost_usd": None}, call | {"prompt_tokens": None}]
    path.write_text(json.dumps(said) + "\n" + "".join(rest))
    shutil.copytree(run / "labels" / "oracle", run / "labels" / "second")
    (head,) = (run / "pairs").glob("*/pairs.json")
    asked = {"calls": 4, "prompt_tokens": 40, "completion_tokens": 0, "cost_usd": 0.25}
    head.write_text(json.dumps(json.loads(head.read_text()) | {"spent": asked}))
    inspector = Inspector([run], index_cache=tmp_path / "index_cache")
    id = inspector.list_ids()[0]
    row, (epoch,) = inspector.get_row(id), inspector.get_overview(id, "").epochs
    assert (row.calls, row.cost_usd) == (without.calls + 2 * 3 + 4, 2 * 1.0 + 0.25)
    assert (row.prompt_tokens or 0) == (without.prompt_tokens or 0) + 2 * 200 + 40
    told = {one.part: (one.calls, one.prompt_tokens, one.completion_tokens, one.cost_usd) for one in epoch.spent}
    assert (told["critic"], told["adversary"]) == ((6, 400, 42, 2.0), (4, 40, None, 0.25))
    assert sum(one.calls for one in epoch.spent) == row.calls
    assert without.cost_usd is None, "an oracle and a rehearsal have no price, which is not 0"
    inspector.close()


def test_sums_are_over_those_that_tell() -> None:
    assert add_spent([]) == (0, None, None, None)
    assert add_spent([(1, None, 5, None), (2, 3, None, None)]) == (3, 3, 5, None)


# ------------------------------------------------------------------------------------------------------- spare indices


def test_spare_indices_are_deleted_when_their_runs_are_closed(run: Path, tmp_path: Path) -> None:
    (run / "index.sqlite").unlink()
    folder = tmp_path / "index_cache"
    folder.mkdir()
    mine = readers.locate_cached_index(run, folder)
    old = [mine, folder / f"{'0' * 64}.sqlite", folder / f".{'1' * 64}.sqlite.0a1b", folder / "notes.txt"]
    long_ago = time.time() - (readers.UNUSED_DAYS - 1) * 86400
    for path in old:
        path.write_bytes(b"x")
        os.utime(path, (long_ago, long_ago))
    pool = ReaderPool(folder)
    with pool.open_run(run):
        pass
    pool.close()
    assert sorted(path.name for path in folder.iterdir()) == sorted(path.name for path in old), "not that long ago"
    for path in old[1:]:
        os.utime(path, (long_ago - 2 * 86400, long_ago - 2 * 86400))
    ReaderPool(folder).close()
    assert sorted(path.name for path in folder.iterdir()) == sorted([mine.name, "notes.txt"])
    ReaderPool(tmp_path / "nowhere").close()
