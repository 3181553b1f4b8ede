"""Pairs beside a run: whole or not there, unchanged once written, and broken files are named."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collab.errors import RunFormatError, StoreFailure, UnknownName, UsageError
from collab.preferences.pairs import PairRecipe, RunPairs, Sources
from collab.preferences.store import FILE, HEAD, hash_critic, list_pair_sets, read_pairs, write_pairs
from collab.rewards.labels import LabelHead, LabelSet
from collab.store.manifest import Manifest
from collab.store.rewards import PreferencePair, ReplyRef
from collab.store.run import RunStore
from collab.store.run_dir import RunLock
from collab.types import CellRef, PolicyRef, Usage

RECIPE = PairRecipe(sources=Sources(adversary=2, contrast=1), threshold=0.25, cap=3, attempts=2, seed=9)
LABELS = LabelSet(
    name="oracle", head=LabelHead(critic="oracle-2", options={"replay": True}, seed=4), judged={}, failed={}
)


def pair(number: int, synthetic: str | None = "Reason: no.\nAction: status(\u00e9\ud83d)") -> PreferencePair:
    return PreferencePair(
        id=hashlib.sha256(bytes([number])).hexdigest(),
        source="contrast" if synthetic is None else "adversary",
        chosen=(ReplyRef(trajectory="Task/0", step=number, cell=CellRef("ada", 1)),),
        rejected=(ReplyRef(trajectory="Task/0", step=number, cell=CellRef("ben", 2)),) if synthetic is None else (),
        synthetic=synthetic,
        adversary=None if synthetic is None else "sampler-1: other element",
        policy=PolicyRef(base="base", adapter="adapter", version=2),
        prompt="p" * 64,
        critic="oracle-2",
        calls=("c" * 64,),
    )


def count_as_run(*pairs: PreferencePair) -> RunPairs:
    return RunPairs(
        pairs=pairs,
        counts=Counter(adversary=len(pairs)),
        off_context=1,
        refused=Counter({"does not parse": 2}),
        failed=Counter(ModelFailure=1),
        unjudged=3,
        untried=4,
        spent=Usage(calls=5, prompt_tokens=6, completion_tokens=7, cost_usd=0.5),
    )


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return RunStore.create(tmp_path / "run", Manifest(command="rollout", config={}, seed=0)).path


def write(run: Path, name: str, made: RunPairs, recipe: PairRecipe = RECIPE, labels: LabelSet | None = LABELS) -> Path:
    return write_pairs(run, name, made, recipe=recipe, labels=labels, adversary="sampler-1", options={"weights": None})


def test_what_is_written_is_read(run: Path) -> None:
    made = count_as_run(pair(2), pair(1, None))
    folder = write(run, "first", made)
    found = read_pairs(run, "first")
    assert (found.name, found.pairs) == ("first", made.pairs)
    head = found.head
    assert (head.recipe, head.labels, head.critic) == (RECIPE, "oracle", "oracle-2")
    assert (head.critic_digest, head.adversary) == (hash_critic(LABELS.head), "sampler-1")
    assert (head.counts, head.refused, head.failed) == (made.counts, made.refused, made.failed)
    assert (head.off_context, head.unjudged, head.untried, head.spent) == (1, 3, 4, made.spent)
    assert head.sha256 == hashlib.sha256((folder / FILE).read_bytes()).hexdigest()
    assert head.versions["collab"]
    assert sorted(path.name for path in folder.iterdir()) == [HEAD, FILE]


def test_pairs_by_the_outcome_alone_name_no_critic(run: Path) -> None:
    made = replace(
        count_as_run(), refused=Counter(), spent=Usage(calls=0, prompt_tokens=0, completion_tokens=0, cost_usd=0)
    )
    write_pairs(run, "outcome", made, recipe=PairRecipe(), labels=None, adversary=None)
    head = read_pairs(run, "outcome").head
    assert (head.labels, head.critic, head.critic_digest, head.adversary, head.pairs) == (None, None, None, None, 0)


def test_the_same_again_is_left_as_it_is_and_other_pairs_are_refused(run: Path) -> None:
    made = count_as_run(pair(1, "said"))
    before = (write(run, "first", made) / HEAD).read_bytes()
    write(run, "first", replace(made, spent=Usage(calls=0, prompt_tokens=0, completion_tokens=0, cost_usd=0)))
    assert (run / "pairs" / "first" / HEAD).read_bytes() == before
    other = replace(LABELS, head=LabelHead(critic="oracle-2", seed=5))
    changes: list[tuple[RunPairs, PairRecipe, LabelSet]] = [
        (count_as_run(pair(2, "said")), RECIPE, LABELS),
        (made, replace(RECIPE, threshold=0.5), LABELS),
        (made, RECIPE, other),
    ]
    for change in changes:
        with pytest.raises(UsageError, match="choose another name"):
            write(run, "first", *change)
    assert read_pairs(run, "first").pairs == made.pairs


def test_names_come_in_the_order_in_which_they_were_written(run: Path) -> None:
    assert list_pair_sets(run) == []
    for name in ("second", "first"):
        write(run, name, count_as_run())
    heads = {name: read_pairs(run, name).head.created for name in ("second", "first")}
    assert list_pair_sets(run) == sorted(heads, key=lambda name: (heads[name], name))


def test_a_disk_that_is_full_leaves_nothing(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr("collab.preferences.store.sync_directory", full)
        with pytest.raises(StoreFailure, match="No space left"):
            write(run, "first", count_as_run(pair(1, "said")))
    assert list_pair_sets(run) == []
    assert [path.name for path in (run / "pairs").iterdir()] == ["lock"]
    write(run, "first", count_as_run(pair(1, "said")))


def test_what_a_killed_process_left_is_no_set_and_goes_away(run: Path) -> None:
    left = run / "pairs" / ".first.0badcafe"
    left.mkdir(parents=True)
    (left / FILE).write_text("half")
    assert list_pair_sets(run) == []
    write(run, "first", count_as_run(pair(1, "said")))
    assert list_pair_sets(run) == ["first"]
    assert not left.exists()


def test_secrets_are_hidden_and_what_is_read_is_what_was_written(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    for _ in range(2):
        folder = write(run, "first", count_as_run(pair(1, "I type sk-very-secret.")))
    assert b"sk-very-secret" not in (folder / FILE).read_bytes()
    assert read_pairs(run, "first").pairs[0].synthetic == "I type [redacted]."


def test_broken_and_foreign_files_are_named_with_their_place(run: Path) -> None:
    folder = write(run, "first", count_as_run(pair(1, "said"), pair(2, "said")))
    head, lines = (folder / HEAD).read_text(), (folder / FILE).read_text().splitlines(keepends=True)

    again = re.escape(f"put {folder} somewhere else and make its pairs again: collab pairs rebuild {run}")

    def spoilt(file: str, text: str, match: str) -> None:
        (folder / file).write_text(text)
        with pytest.raises(RunFormatError, match=f"{match}.*; {again}$"):
            read_pairs(run, "first")
        (folder / HEAD).write_text(head)
        (folder / FILE).write_text("".join(lines))

    spoilt(FILE, lines[0] + '{"id": 1}\n', r"first/pairs\.jsonl:2: is spoilt")
    spoilt(FILE, lines[0] + "half a li", r"first/pairs\.jsonl:2: is spoilt")
    spoilt(FILE, lines[0], "holds 1 pairs that are not the 2")
    spoilt(FILE, "".join(lines[::-1]), "holds 2 pairs that are not the 2")
    spoilt(HEAD, "{", r"pairs\.json: cannot be read: not JSON")
    spoilt(HEAD, "[]", r"pairs\.json: file: ")
    spoilt(HEAD, json.dumps(json.loads(head) | {"format": 2}), "format 2, this version reads format 1")
    spoilt(HEAD, json.dumps(json.loads(head) | {"pairs": "many"}), r"pairs\.json: pairs: ")
    wrong = json.loads(head)["recipe"] | {"threshold": 3}
    spoilt(HEAD, json.dumps(json.loads(head) | {"recipe": wrong}), r"pairs\.json: recipe: .*threshold 3")
    (folder / FILE).unlink()
    with pytest.raises(RunFormatError, match=f"pairs\\.jsonl: cannot be read.*; {again}$"):
        read_pairs(run, "first")


def test_wrong_names_and_places_are_refused(run: Path, tmp_path: Path) -> None:
    write(run, "first", count_as_run())
    with pytest.raises(UnknownName, match=r"no pairs of .*called 'frist'; did you mean first\?"):
        read_pairs(run, "frist")
    with pytest.raises(UsageError, match="a file of that name lies beside pairs"):
        write(run, "lock", count_as_run())
    for name in ("../x", "", ".hidden", "a" * 65):
        with pytest.raises(UsageError, match="a name has letters"):
            write(run, name, count_as_run())
    with pytest.raises(RunFormatError, match="not a run directory"):
        write(tmp_path / "nothing", "first", count_as_run())
    assert not (tmp_path / "nothing").exists()


def test_two_writers_do_not_meet(run: Path) -> None:
    write(run, "first", count_as_run())
    lock = RunLock(run / "pairs")
    with pytest.raises(UsageError, match="is being written by process"):
        write(run, "second", count_as_run())
    lock.release()
    shutil.rmtree(run / "pairs" / "first")
    write(run, "first", count_as_run(pair(1, "said")))


def test_the_document_names_every_field(run: Path) -> None:
    folder = write(run, "first", count_as_run(pair(1, "said")))
    text = (Path(__file__).parents[2] / "docs" / "run-format.md").read_text(encoding="utf-8")
    told = text[text.index("## `pairs/`") : text.index("## `lock`")]
    for name in (*json.loads((folder / FILE).read_text()), *json.loads((folder / HEAD).read_text())):
        assert f"`{name}`" in told or name in ("versions", "created"), name
