"""`collab runs show --cost`: what a run cost, for people and for scripts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from collab.cli.main import main
from collab.store.run import RunStore
from collab.testing.fake_server import FakeServer
from collab.types import Usage
from collab.utils import progress

LIBRARY = str(Path(__file__).parent / "library")
PLAYED = ["rollout", "--env", "corridor", "--agents", "rehearsal", "--episodes", "2", "--out", "run"]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """Two episodes by a team of four in three rounds."""
    monkeypatch.setenv("COLLAB_LIBRARY", LIBRARY)
    monkeypatch.chdir(tmp_path)
    assert main(PLAYED) == 0
    capsys.readouterr()
    return tmp_path / "run"


def shown(capsys: pytest.CaptureFixture[str], *more: str) -> str:
    assert main(["runs", "show", "run", "--cost", *more]) == 0
    return capsys.readouterr().out


def test_json_tells_every_sum_and_who_was_silent(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(shown(capsys, "--json"))
    with RunStore.open(run).open_reader() as reader:
        cells = [cell for one in reader.iterate_trajectories() for step in one.steps for cell in step.matrix]
    assert found["calls"] == len(cells) == 12 * found["steps"] > 0
    assert found["latency_s"] == pytest.approx(sum(cell.latency_s for cell in cells))
    assert (found["prompt_tokens"], found["prefix_hit_rate"], found["queue_s"]) == (None, None, None)
    assert set(found["not_told"].values()) == {len(cells)}
    assert [(one["round"], one["calls"]) for one in found["by_round"]] == [(n, len(cells) // 3) for n in range(3)]
    assert sum(one["calls"] for one in found["by_layer"]) == len(cells)
    assert found["spent"]["calls"] == len(cells)
    assert found["processes"] == {"worked": 1, "told": 1}


def test_agents_and_models_have_rows_and_it_is_told_whose_proposals_won(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = json.loads(shown(capsys, "--json"))
    with RunStore.open(run).open_reader() as reader:
        steps = [step for one in reader.iterate_trajectories() for step in one.steps]
    agents = ["ada", "ben", "cyd", "dee"]
    assert [(one["agent"], one["calls"]) for one in found["by_agent"]] == [(name, 3 * len(steps)) for name in agents]
    assert [(one["model"], one["calls"]) for one in found["by_model"]] == [("rehearsal", found["calls"])]
    winners = [step.vote.ballots[0].cells if step.vote.ballots else () for step in steps]
    spoken = [[cell.cell for cell in step.matrix] for step in steps]
    first = [min(cells, key=said.index).agent for cells, said in zip(winners, spoken, strict=True) if cells]
    assert found["proposals"] == [
        {
            "agent": name,
            "model": "rehearsal",
            "cells": 3 * len(steps),
            "without_action": sum(cell.action is None for step in steps for cell in step.matrix if cell.agent == name),
            "won": sum(cell.agent == name for cells in winners for cell in cells),
            "first": first.count(name),
        }
        for name in agents
    ]
    assert sum(one["won"] for one in found["proposals"]) > 0
    lines = shown(capsys).splitlines()
    assert [line.split()[:2] for line in lines if line.startswith("agent ")][:4] == [["agent", one] for one in agents]
    assert any(line.startswith("model rehearsal") for line in lines)
    won = next(line.split() for line in lines if line.startswith("ada "))
    assert won[:4] == ["ada", "rehearsal", str(3 * len(steps)), "0"]


def test_people_see_dashes_where_nothing_was_told(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys).splitlines()
    rows = {line[:7].strip(): line[7:].split() for line in lines if line.startswith(("in all", "round", "layer"))}
    assert rows["in all"][1:9] == ["-"] * 8
    assert [rows[f"round {n}"][0] for n in (1, 2, 3)] == [str(int(rows["in all"][0]) // 3)] * 3
    calls = rows["in all"][0]
    silent = "prompt tokens, computed tokens, reply tokens, USD, width, queue and work"
    assert f"missing from {calls} calls: {silent}" in lines
    assert lines[-1] == f"spent    {calls} calls, 0 prompt and 0 reply tokens"


def test_a_prefix_cache_shows_while_it_plays_at_the_end_and_in_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLLAB_LIBRARY", LIBRARY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(progress._Lines, "interval_s", 0.01)
    with FakeServer({"metrics"}, delay_s=0.01) as server:
        Path("served.yaml").write_text(f"kind: openai\noptions: {{model: fake, base_url: '{server.url}'}}\n")
        short = ("--agents", "served.yaml", "--set", "environment.limits.max_steps=2", "--json")
        assert main([*PLAYED, *short]) == 0
    told = capsys.readouterr()
    spent = json.loads(told.out)["spent"]
    found = json.loads(shown(capsys, "--json"))
    assert 0.5 < spent["prefix_hit_rate"] == found["prefix_hit_rate"] < 1
    assert 0 < spent["computed_tokens"] == found["computed_tokens"] < spent["prompt_tokens"]
    assert all(one["prefix_hit_rate"] is not None for one in found["by_round"] + found["by_layer"])
    assert "% prefix hits)" in told.err
    assert " s in line, " in told.err
    assert " s at work" in told.err


def test_calls_beyond_the_recorded_steps_are_said(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    counted = json.loads(shown(capsys, "--json"))["calls"]
    with RunStore.open(run).open_writer() as writer:
        writer.record_spent(Usage(calls=5, prompt_tokens=50, completion_tokens=6, cost_usd=0.25))
    line = shown(capsys).splitlines()[-1]
    assert line == (
        f"spent    {counted + 5} calls, 50 prompt and 6 reply tokens, 0.2500 USD; "
        "5 calls are not counted above (steps never finished, summaries, episodes begun anew)"
    )
    with RunStore.open(run).open_writer() as writer:
        writer.note("died without a word")
    assert shown(capsys).splitlines()[-1].endswith("2 of 3 processes that worked on the run told what they spent")


def test_it_is_about_the_whole_run(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", "show", "run", "--cost", "--episode", "OpenDoors/0"]) == 2
    assert "--cost shows the whole run" in capsys.readouterr().err


def test_a_step_that_cannot_be_read_is_said_to_be_missing(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = json.loads(shown(capsys, "--json"))
    segment = next((run / "events").iterdir())
    lines = segment.read_bytes().splitlines(keepends=True)
    place = next(number for number, line in enumerate(lines) if b'"type":"step"' in line)
    lines[place] = b"x" * (len(lines[place]) - 1) + b"\n"
    segment.write_bytes(b"".join(lines))
    (run / "index.sqlite").unlink()
    after = json.loads(shown(capsys, "--json"))
    assert (before["problems"], before["calls"] - after["calls"]) == ([], 12)
    assert any(f":{place + 1}: not JSON" in problem for problem in after["problems"])
    assert main(["runs", "show", "run", "--cost"]) == 0
    assert "unreadable, and not counted: events/" in capsys.readouterr().err
