"""The benchmark of several replies to a state: its ratios, and a small run of it."""

import json
import sys
from pathlib import Path

import pytest


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "scripts"))
    import bench_ssma

    return bench_ssma


def test_a_slow_phone_hides_what_replies_cost(bench) -> None:
    """k = 1 takes 4 and k = 4 takes 5: ×1.25 alone, and (5 + 3.4) / (4 + 3.4) behind a phone of 1.7 times 2 of playing.

    Medians of three rounds; the slow one of each does not count.
    """
    timed = {("shared", 1): 2.0, ("shared", 4): 3.0, ("padded", 1): 4.0, ("padded", 4): 10.0}
    cells = [
        bench.build_cell(k, arm, [{"play": 2.0, "learn": learn + late} for late in (9.0, 0.0, 0.0)], 0.5)
        for (arm, k), learn in timed.items()
    ]
    found = {(one["k"], one["arm"]): (one["without"], one["with"]) for one in bench.compute_ratios(cells, 1.7)}
    assert found[1, "shared"] == found[1, "padded"] == (1.0, 1.0)
    assert found[4, "shared"] == (1.25, round(8.4 / 7.4, 2))
    assert found[4, "padded"] == (2.0, round(15.4 / 9.4, 2))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_part_is_timed_for_every_k(bench, monkeypatch, tmp_path, capsys) -> None:
    out = tmp_path / "ssma.json"
    asked = ["--states", "3", "--k", "1", "2", "--rounds", "2", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", ["bench_ssma.py", *asked])
    bench.main()
    found = json.loads(out.read_text())
    assert [(one["k"], one["arm"]) for one in found["cells"]] == [
        *((1, "shared"), (1, "padded"), (2, "shared"), (2, "padded"))
    ]
    assert all(set(one["seconds"]) == {"play", "sample", "fit", "rate", "learn"} for one in found["cells"])
    assert all(seconds > 0 for one in found["cells"] for seconds in one["seconds"].values())
    assert "k = 2, shared: ×" in capsys.readouterr().out


def test_without_k_of_1_there_is_nothing_to_compare_with(bench, monkeypatch, capsys) -> None:
    monkeypatch.setattr(sys, "argv", ["bench_ssma.py", "--k", "2", "4"])
    with pytest.raises(SystemExit) as ended:
        bench.main()
    assert ended.value.code == 2
    assert "--k: 1 is what the others are compared with; name it, too" in capsys.readouterr().err
