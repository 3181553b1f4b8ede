"""`collab runs show --failures`: why episodes of a played run failed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from collab.evaluation.failures import read_failures
from collab.store.run import RunStore

PLAY = ("rollout", "--env", "corridor", "--graph", "single", "--episodes", "12")


def read(result: tuple[int, str, str]) -> Any:
    assert result[0] == 0, result[2]
    return json.loads(result[1])


def test_they_are_looked_at_once_and_shown_from_then_on(collab) -> None:  # type: ignore[no-untyped-def]
    collab(*PLAY, "--agents", "rehearsal", "--set", "agents.*.options.error_base=0.7", "--out", "first")
    with RunStore.open(Path("first")).open_reader() as reader:
        failed = [one for one in reader.iterate_trajectories() if not one.success]
    out = collab("runs", "show", "first")[1]
    assert f"why {len(failed)} episodes failed: collab runs show first --failures" in out
    assert read(collab("runs", "show", "first", "--json"))["failures"] == {
        "failed": len(failed),
        "unseen": len(failed),
        "modes": {},
        "coarse": {},
    }
    code, out, err = collab("runs", "show", "first", "--failures")
    assert code == 0, err
    assert f"why {len(failed)} episodes failed\nmode " in out
    stored = read_failures(Path("first"))
    assert set(stored) == {one.id for one in failed}
    # In the corridor a way is always known, so distances are there for every step.
    for one in failed:
        distances = stored[one.id].distances
        assert distances is not None
        assert len(distances) == len(one.steps) + 1
        assert distances[0] == len(one.task.params["rooms"])
    counts = read(collab("runs", "show", "first", "--json"))["failures"]
    assert (counts["unseen"], sum(counts["modes"].values())) == (0, len(failed))
    for mode, count in counts["modes"].items():
        assert re.search(rf"^{mode} .* {count}  ", out, re.MULTILINE)
    before = Path("first/failures.json").stat().st_mtime_ns
    assert collab("runs", "show", "first", "--failures")[0] == 0
    assert Path("first/failures.json").stat().st_mtime_ns == before
    worst = failed[0]
    shown = collab("runs", "show", "first", "--episode", worst.id)[1]
    ahead = ", ".join(map(str, stored[worst.id].distances or ()))
    assert re.search(rf"^failure  {stored[worst.id].mode}: .*; actions left along it: {ahead}$", shown, re.MULTILINE)
    assert read(collab("runs", "show", "first", "--episode", worst.id, "--json"))["failure"]["mode"]


def test_one_that_presses_the_wrong_door_for_ever_makes_no_attempt(collab) -> None:  # type: ignore[no-untyped-def]
    collab(*PLAY, "--agents", "parrot", "--tasks", "TypeWord", "--out", "first")
    counts = read(collab("runs", "show", "first", "--failures", "--json"))["failures"]
    assert counts == {"failed": 12, "unseen": 0, "modes": {"no attempt": 12}, "coarse": {"stuck midway": 12}}


def test_broken_episodes_are_technical(collab) -> None:  # type: ignore[no-untyped-def]
    collab(*PLAY, "--agents", "rehearsal", "--backend", "partly", "--out", "first")
    assert read(collab("runs", "show", "first", "--failures", "--json"))["failures"]["modes"]["technical"] == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--episode", "TypeWord/0"), "--failures shows the whole run; leave out --episode or --failures"),
        ((), "failures.json: cannot be read: "),
    ],
)
def test_a_mistake_is_one_line(collab, arguments: tuple[str, ...], message: str) -> None:  # type: ignore[no-untyped-def]
    collab(*PLAY, "--agents", "parrot", "--tasks", "TypeWord", "--out", "first")
    Path("first/failures.json").write_text("{")
    code, out, err = collab("runs", "show", "first", "--failures", *arguments)
    assert (code, message in err) == (2, True), err
    assert not out


def test_another_version_of_the_environment_leaves_the_record_alone_and_says_so(  # type: ignore[no-untyped-def]
    collab, monkeypatch: pytest.MonkeyPatch
) -> None:
    collab(*PLAY, "--agents", "parrot", "--tasks", "TypeWord", "--out", "first")
    monkeypatch.setattr("collab.testing.corridor.CorridorSuite.version", "2")
    code, out, err = collab("runs", "show", "first", "--failures")
    assert code == 0
    assert "distances to the goal are not known everywhere: TypeWord/0: recorded in fake[corridor] version 1" in err
    assert re.search(r"^stuck +stuck midway +12 ", out, re.MULTILINE)
