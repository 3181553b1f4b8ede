"""The run that the inspector is measured on, made small, and the benchmark itself."""

import hashlib
import json
import sys
import time

import pytest

from collab.preferences.store import list_pair_sets, read_pairs
from collab.prompts.render import rebuild
from collab.rewards.labels import read_labels
from collab.store.run import RunStore


def test_a_made_run_is_one_that_everything_can_read(tmp_path):
    from view_run import LABELS, PAIRS, Size, make_run

    run = make_run(tmp_path / "big", Size(episodes=3, steps=4, played=2))
    with RunStore.open(run).open_reader() as reader:
        assert (reader.status, reader.problems) == ("finished", ())
        episodes = reader.list_episodes()
        assert [one.steps for one in episodes] == [4, 4, 4]
        assert reader.query("SELECT count(*) FROM cells") == [(3 * 4 * 12,)]
        prefixes = []
        for one in episodes:
            for step in reader.read_trajectory(one.id).steps:
                cell = step.matrix.utterances[-1]
                text = reader.read_prefix(cell.prompt.prefix)
                assert hashlib.sha256(text.encode()).hexdigest() == cell.prompt.prefix
                assert rebuild(text, cell.prompt).system
                assert len(cell.tokens) == len(cell.logprobs) == cell.completion_tokens
                prefixes.append(cell.prompt.prefix)
        assert len(set(prefixes)) == 12, "every step has a prompt of its own"
    judged = read_labels(run, LABELS).judged
    assert {len(one.rewards.rewards) for one in judged.values()} == {12}
    assert len(judged) == 12
    assert list_pair_sets(run) == [PAIRS]
    assert 12 <= len(read_pairs(run, PAIRS).pairs) <= 24, "at most two of a state"


def test_every_target_is_a_figure_of_its_part():
    from bench_view import TARGETS

    from collab.testing.benchmarks import judge_all

    measured = {one.part: {one.name: one.target / 2} for one in TARGETS}
    assert [goal["ratio"] for goal in judge_all(measured, TARGETS)] == [2.0] * len(TARGETS)


def test_a_step_takes_what_its_page_waits_for():
    from bench_view import bench_steps

    class Slow:
        """Takes 20 ms about an episode, and no time for all else."""

        def get(self, path, **query):
            time.sleep(0.02 if path.endswith("/episode") else 0)

        def ask(self, path, **query):
            self.get(path, **query)
            return {"cells": [{"agent": "ada", "round": 0}]}

    figures = bench_steps(Slow(), "run", [("a/0", 0), ("a/0", 1)])
    assert figures["step_ms_max"] >= figures["episode_ms_max"] >= 20
    assert figures["step_ms"] >= 20


@pytest.mark.slow
def test_the_real_server_is_measured(tmp_path, monkeypatch, capsys):
    import bench_view
    from view_run import Size

    monkeypatch.setattr(bench_view, "QUICK", Size(episodes=4, steps=3, played=2))
    monkeypatch.setattr(sys, "argv", ["bench_view.py", "--quick", "--out", str(tmp_path / "bench.json")])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    bench_view.main()
    facts = json.loads((tmp_path / "bench.json").read_text())
    assert facts == json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (facts["open"]["steps"], facts["open"]["cells"]) == (12, 144)
    assert 0 < facts["steps"]["episode_ms"] < facts["steps"]["step_ms"] <= facts["steps"]["step_ms_max"]
    assert facts["bare"]["index_s"] > 0
    assert facts["bare"]["step_ms_max"] > 0
    assert 0.2 < facts["export"]["report_mb"] < 5
    assert 20 < facts["memory"]["server_mb"] < 1000
