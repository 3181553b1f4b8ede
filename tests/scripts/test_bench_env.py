import json
import sys
from pathlib import Path

import pytest


@pytest.fixture
def bench_env(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "scripts")
    import bench_env

    return bench_env


def test_a_ratio_above_one_is_better_than_aimed_at(bench_env):
    from collab.testing.benchmarks import judge_all

    measured = {"phone": {"steps_per_s": 6000, "reset_ms": 4.0}, "miniwob": {"not_measured": "no browser"}}
    goals = {goal["figure"]: goal["ratio"] for goal in judge_all(measured, bench_env.TARGETS)}
    assert goals == {"phone steps_per_s": 2.0, "phone reset_ms": 0.5}


def test_targets_name_figures_of_parts(bench_env):
    assert {one.part for one in bench_env.TARGETS} == set(bench_env.PARTS)


@pytest.mark.slow
def test_the_framework_is_measured_on_twelve_calls(bench_env, monkeypatch, capsys, tmp_path):
    out = tmp_path / "bench.json"
    monkeypatch.setattr(sys, "argv", ["bench_env.py", "--quick", "--only", "deliberation", "--out", str(out)])
    bench_env.main()
    *_, text, line = capsys.readouterr().out.strip().splitlines()
    facts = json.loads(text)
    assert facts == json.loads(out.read_text())
    assert facts["deliberation"]["calls_per_step"] == 12
    assert facts["deliberation"]["step_ms"] > 0
    assert facts["machine"]["cores"] >= 1
    assert line.startswith("deliberation step_ms ")


def test_a_part_that_cannot_be_measured_says_why(bench_env, monkeypatch, capsys):
    from collab.errors import MissingExtra

    async def missing(quick):
        raise MissingExtra.of("playwright", "web", "MiniWoB++")

    monkeypatch.setitem(bench_env.PARTS, "miniwob", missing)
    monkeypatch.setattr(sys, "argv", ["bench_env.py", "--only", "miniwob"])
    bench_env.main()
    assert "not measured: MiniWoB++ needs playwright" in capsys.readouterr().out


@pytest.mark.slow
def test_phones_in_a_crowd_are_really_there(bench_env):
    import asyncio

    from bench_phones import advance_phone

    from collab.envs.simphone.suite import SimPhoneSuite

    suite = SimPhoneSuite()
    one, same, other = advance_phone(suite, 3, 5), advance_phone(suite, 3, 5), advance_phone(suite, 4, 5)
    assert one.phone == same.phone != other.phone
    figures = asyncio.run(bench_env.bench_crowd(quick=True))
    assert figures["phones"] == 200
    assert figures["screens"] > 100
    assert 30 < figures["resident_mb"] < 4000


def test_the_real_client_is_timed_on_screens_of_many_tasks(bench_env, monkeypatch):
    import asyncio

    import bench_phones

    found = bench_phones.screens
    monkeypatch.setattr(bench_phones, "screens", lambda quick: found(quick)[:3])
    figures = asyncio.run(bench_env.bench_adb(quick=True))
    assert figures["dumps"] == 6
    assert 0 < figures["dump_ms"] <= figures["dump_ms_p95"]
