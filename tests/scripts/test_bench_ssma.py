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
    """k = 1 takes 2 and k = 4 takes 3: ×1.5 alone, and (3 + 3.4) / (2 + 3.4) behind a phone of 1.7 steps."""
    cells = [{"k": k, "arm": "shared", "whole": whole} for k, whole in ((1, 2.0), (4, 3.0))]
    cells += [{"k": k, "arm": "padded", "whole": whole} for k, whole in ((1, 4.0), (4, 10.0))]
    found = {(one["k"], one["arm"]): (one["without"], one["with"]) for one in bench.compute_ratios(cells, 1.7)}
    assert found[1, "shared"] == found[1, "padded"] == (1.0, 1.0)
    assert found[4, "shared"] == (1.5, round(6.4 / 5.4, 2))
    assert found[4, "padded"] == (2.5, round(13.4 / 7.4, 2))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_part_is_timed_for_every_k(bench, monkeypatch, tmp_path, capsys) -> None:
    out = tmp_path / "ssma.json"
    monkeypatch.setattr(sys, "argv", ["bench_ssma.py", "--states", "3", "--k", "1", "2", "--out", str(out)])
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
