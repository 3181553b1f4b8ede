"""The benchmark of publishing a policy, of draws by priority, and of writing a lesson."""

import json
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_weights_draws_and_lessons_meet_their_targets(monkeypatch, tmp_path) -> None:
    """0.2 s for 14 MB, 5 s for a million draws and 2 s for 10,000 turns on an idle core; a busy one gets ten times."""
    pytest.importorskip("torch")
    pytest.importorskip("pyarrow")
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "scripts"))
    import bench_publish

    out = tmp_path / "found.json"
    monkeypatch.setattr(sys, "argv", ["bench_publish.py", "--out", str(out)])
    bench_publish.main()
    found = json.loads(out.read_text())
    assert 13e6 < found["publish"]["bytes"] < 15e6
    assert sorted(found["publish"]["seconds"])[5] < 2
    assert found["replay"]["draws"] >= 1_000_000
    assert found["replay"]["seconds"] < 50
    assert found["lesson"]["turns"] == 10_000
    assert found["lesson"]["seconds"] < 20
