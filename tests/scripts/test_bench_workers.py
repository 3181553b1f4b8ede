"""The benchmark of Ray workers: a run of it with two workers."""

import importlib.util
import json
import os
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs ray: pip install 'collab-marl[ray]'"),
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning"),
]


def test_both_parts_are_measured(monkeypatch, tmp_path, capsys) -> None:
    scripts, out = Path(__file__).parents[2] / "scripts", tmp_path / "workers.json"
    monkeypatch.syspath_prepend(str(scripts))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(scripts.parent), os.environ.get("PYTHONPATH", "")]))
    import bench_workers

    small = ["--workers", "2", "--epochs", "3", "--senders", "2", "--each", "40"]
    monkeypatch.setattr(sys, "argv", ["bench_workers.py", *small, "--out", str(out)])
    bench_workers.main()
    found = json.loads(out.read_text())
    for arm in ("waiting", "playing"):
        one = found["ray"][arm]
        assert 0 < one["busy"] < 1
        assert 0 < one["of_bound"] < 1
    assert found["ray"]["gain"] > 0
    assert found["ingest"]["steps"] > 8
    assert (found["ingest"]["seen"], found["ingest"]["with_torch"]) == (2, 0)
    told = capsys.readouterr().out
    assert "of the bound; host " in told
    assert "ingest: " in told
