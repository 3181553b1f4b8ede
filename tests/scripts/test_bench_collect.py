"""The benchmark of playing on: its bound, its arms, and a run of it."""

import json
import sys
from pathlib import Path

import pytest


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "scripts"))
    import bench_collect

    return bench_collect


def test_the_bound_is_that_of_list_scheduling(bench) -> None:
    """Two workers, episodes of 5, 1, 1 and 9 s: they end after 1, 2, 5 and 11 s."""
    assert [bench.schedule(total, 2, iter([5.0, 1.0, 1.0, 9.0, 9.0, 9.0])) for total in (1, 2, 3, 4)] == [1, 2, 5, 11]


@pytest.mark.slow
def test_who_plays_on_waits_for_no_slow_episode(bench, monkeypatch, tmp_path, capsys) -> None:
    """At least 2.7 and 4.7 times as fast at a spread of 100, and no worker is idle."""
    out = tmp_path / "collect.json"
    monkeypatch.setattr(sys, "argv", ["bench_collect.py", "--quick", "--seeds", "2", "--out", str(out)])
    bench.main()
    few, many = json.loads(out.read_text())
    assert (few["workers"], many["workers"]) == (8, 32)
    assert few["gain"] > 2.7
    assert many["gain"] > 4.7
    assert min(few["of_bound"], many["of_bound"]) > 0.95
    for one in (few, many):
        assert 1 < one["over_rounds"] < one["gain"], "who waits less often waits less"
        first, second = (draw["gain"] for draw in one["draws"])
        assert first != second
        assert one["gain"] == pytest.approx((first + second) / 2)
    assert max(few["host"], many["host"]) < 1
    assert "8 workers, spread 100: " in capsys.readouterr().out


def test_equal_episodes_gain_nothing(bench) -> None:
    found = bench.measure(4, 1.0, 0)
    assert found["gain"] == pytest.approx(1.0, abs=0.02)
