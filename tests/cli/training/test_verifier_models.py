"""Verifiers that ask a model, by the command line and a server on loopback."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from collab.cli.main import main
from collab.data.parquet import read_rows
from collab.rewards.answers import EMPTY
from collab.rewards.verifiers.judge import VERDICT
from collab.store.run import RunStore
from collab.testing.fake_server import FakeServer, Fault
from tests.cli.conftest import LIBRARY

PLAY = ("rollout", "--env", "corridor", "--graph", "single", "--agents", "rehearsal")
AGREE = ("verifier", "agree", "--runs", "first")
SOLVED = "declare the task complete"


def read(result: tuple[int, str, str], code: int = 0) -> Any:
    assert result[0] == code, result[2]
    return json.loads(result[1])


@pytest.fixture(scope="module")
def recorded_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with solved and unsolved episodes; not to be changed."""
    run = tmp_path_factory.mktemp("recorded") / "first"
    options = ("--episodes", "24", "--set", "agents.*.options.error_base=0.6", "--library", LIBRARY, "--out", str(run))
    assert main((*PLAY, *options)) == 0
    return run


@pytest.fixture
def outcomes(collab, recorded_run: Path) -> dict[str, bool]:
    """A copy of that run in `first`; whether each episode was solved."""
    shutil.copytree(recorded_run, "first")
    with RunStore.open(Path("first")).open_reader() as reader:
        return {one.id: one.success for one in reader.iterate_trajectories()}


def get_text(body: Mapping[str, Any]) -> str:
    content = body["messages"][-1]["content"]
    return content if isinstance(content, str) else str(content[-1]["text"])


def see_truth(body: Mapping[str, Any]) -> str:
    """Judge the corridor rightly: solved is what was declared complete behind the last room."""
    done = f"On The end: {SOLVED}" in get_text(body)
    return f"I looked at the last action.\nVerdict: {done}"


def write_verifier(server: FakeServer, kind: str = "text-judge", name: str = "mine", **fields: Any) -> str:
    options = {"model": "fake", "base_url": server.url, "api_key_env": "", "retries": 0}
    definition = {"kind": kind, "options": {"model": {"kind": "openai", "options": options}}, **fields}
    Path(f"{name}.yaml").write_text(json.dumps(definition))
    return f"{name}.yaml"


def test_a_text_judge_agrees_and_its_cost_and_words_are_kept(collab, outcomes: dict[str, bool]) -> None:
    with FakeServer(says=see_truth) as server:
        code, out, err = collab(*AGREE, "--verifier", write_verifier(server))
        assert code == 0, err
        assert re.search(r"^agreement +100\.0% .* \(24/24\)", out, re.MULTILINE)
        assert re.search(r"^spent    24 calls, \d", out, re.MULTILINE)
        (stored,) = Path("first/verdicts/mine/events").glob("*.jsonl")
        verdicts = [json.loads(line) for line in stored.read_text().splitlines()]
        assert {one["trajectory"]: one["success"] for one in verdicts} == outcomes
        assert {one["reason"] for one in verdicts} == {"I looked at the last action."}
        assert all(len(one["calls"]) == 1 and one["calls"][0]["prompt_tokens"] for one in verdicts)
        asked = len(server.requests)
        # At another address, the same verifier's verdicts are there already.
        with FakeServer(says=see_truth) as other:
            found = read(collab(*AGREE, "--verifier", write_verifier(other), "--json"))
            assert found["agreement"]["spent"]["calls"] == 24
            assert (found["spent"]["calls"], other.requests) == (0, [])
        assert asked == len(server.requests)


def test_one_that_says_yes_to_all_is_not_let_through(collab, outcomes: dict[str, bool]) -> None:
    with FakeServer(says=lambda body: "Verdict: True") as server:
        found = read(collab(*AGREE, "--verifier", write_verifier(server), "--json"))
    numbers = found["agreement"]["numbers"]
    assert numbers["positives"]["value"] == 1.0
    assert numbers["negatives"]["value"] == 0.0
    assert numbers["kappa"] == 0.0
    assert numbers["agreement"]["count"] == sum(outcomes.values())


@pytest.mark.parametrize(
    ("reply", "cause"),
    [("I would say that all went well, but who knows.", VERDICT.absent), ("", EMPTY)],
)
def test_one_that_answers_prose_or_nothing_is_stopped_in_one_line(
    collab, outcomes: dict[str, bool], reply: str, cause: str
) -> None:
    with FakeServer(says=lambda body: reply) as server:
        code, out, err = collab(*AGREE, "--verifier", write_verifier(server), "--concurrency", "1")
    assert (code, out) == (1, "")
    (told,) = (line for line in err.splitlines() if line.startswith("stopped: "))
    assert told.startswith("stopped: no verdict in 10 replies in a row; the last answer begins ")
    assert f"({cause})" in told
    assert "remove first/verdicts/mine to have this verifier asked about them again" in told
    assert not Path("calibrations").exists()


def test_missing_verdicts_are_counted_and_never_failures(collab, outcomes: dict[str, bool]) -> None:
    with FakeServer(says=lambda body: "Hm." if "Type " in get_text(body) else see_truth(body)) as server:
        code, out, err = collab(*AGREE, "--verifier", write_verifier(server))
    assert code == 0, err
    silent = sum(name.startswith("TypeWord") for name in outcomes)
    assert f"missing  {silent} of 24: {silent} {VERDICT.absent}" in out
    assert re.search(rf"^agreement +100\.0% .* \({24 - silent}/{24 - silent}\)", out, re.MULTILINE)
    assert re.search(r"^TypeWord +- +- +-$", out, re.MULTILINE)
    assert f"gate     not to be learned from: gave {24 - silent} of 24 verdicts" in out


def test_a_server_that_fails_is_asked_again_by_the_same_command(collab, outcomes: dict[str, bool]) -> None:
    left = [Fault(status=400, message="not today")] * 3

    def refuse(body: Mapping[str, Any]) -> Fault | None:
        return left.pop() if left and "Is the task done?" in get_text(body) else None

    with FakeServer(says=see_truth, refuses=refuse) as server:
        mine = write_verifier(server)
        code, _, err = collab(*AGREE, "--verifier", mine, "--concurrency", "1")
        assert code == 1
        assert "stopped: 3 of 48 verdicts failed (" in err
        assert "not today" in err
        assert err.splitlines()[-1].endswith("resume with the same command: verdicts are kept")
        found = read(collab(*AGREE, "--verifier", mine, "--json"))
    assert (found["spent"]["calls"], found["agreement"]["spent"]["calls"]) == (3, 24)
    assert found["agreement"]["numbers"]["agreement"]["value"] == 1.0


@pytest.mark.medium
def test_a_killed_process_loses_at_most_the_verdict_on_its_way(
    collab, outcomes: dict[str, bool], soon: Callable[[Callable[[], bool]], bool]
) -> None:
    with FakeServer(says=see_truth, delay_s=0.05) as server:
        mine = write_verifier(server)
        words = [*AGREE, "--verifier", mine, "--concurrency", "1"]
        process = subprocess.Popen([sys.executable, "-m", "collab.__main__", *words])
        try:
            assert soon(lambda: sum("Is the task done?" in get_text(body) for body in server.delivered) >= 5)
        finally:
            process.kill()
            process.wait()
        found = read(collab(*words, "--json"))
        asked = [get_text(body) for body in server.delivered if "Is the task done?" in get_text(body)]
    assert found["agreement"]["numbers"]["agreement"]["total"] == 24
    assert found["spent"]["calls"] <= 24 - 5 + 1
    assert 24 <= len(asked) <= 25


def test_a_budget_stops_it_and_the_same_command_goes_on(collab, outcomes: dict[str, bool]) -> None:
    with FakeServer(says=see_truth) as server:
        mine = write_verifier(server)
        code, _, err = collab(*AGREE, "--verifier", mine, "--budget", "tokens=500", "--concurrency", "1")
        assert (code, "stopped: budget used up: " in err) == (1, True)
        first = len(server.requests)
        found = read(collab(*AGREE, "--verifier", mine, "--json"))
    assert 0 < found["spent"]["calls"] < 24
    assert found["agreement"]["numbers"]["agreement"]["total"] == 24
    assert first < 24


def test_settings_of_the_verifier_make_another_one(collab, outcomes: dict[str, bool]) -> None:
    with FakeServer(says=see_truth) as server:
        mine = write_verifier(server)
        assert collab(*AGREE, "--verifier", mine)[0] == 0
        code, _, err = collab(*AGREE, "--verifier", mine, "--set", "verifier.history=2")
        assert code == 2
        assert "verdicts 'mine' of first were made with history 30, now it is 2; keep both with another name" in err
        other = ("--set", "verifier.history=2", "--verdicts", "short", "--json")
        assert read(collab(*AGREE, "--verifier", mine, *other))["out"] == "calibrations/short"
        code, _, err = collab(*AGREE, "--verifier", mine, "--set", "verifier.screens=2")
        assert (code, "verifier.screens" in err) == (2, True)


def test_a_screenshot_judge_needs_a_model_that_sees_and_pictures(collab, outcomes: dict[str, bool]) -> None:
    phone = ("--tasks", "SystemWifiTurnOn,SystemBluetoothTurnOff", "--out", "phone")
    assert collab("rollout", "--graph", "single", "--agents", "rehearsal", *phone)[0] == 0
    with FakeServer(says=lambda body: "Verdict: True") as blind:
        code, out, err = collab(
            "verifier", "agree", "--runs", "phone", "--verifier", write_verifier(blind, "screenshot-judge")
        )
        assert (code, out) == (2, "")
        assert "agents/mine.yaml: looks at pictures of screens, but its model takes no pictures; use a model" in err
        assert "takes no pictures" in collab("agents", "check", "mine.yaml")[2]
    with FakeServer(["images"], says=lambda body: "Verdict: True") as server:
        mine = write_verifier(server, "screenshot-judge", "seeing", prompt="")
        code, _, err = collab(*AGREE, "--verifier", mine)
        assert code == 2
        assert "first: has no pictures of its last screens, and verifier seeing.yaml looks at them; use one that" in err
        found = read(collab("verifier", "agree", "--runs", "phone", "--verifier", mine, "--json"))
        asked = [body for body in server.requests if "Is the task done?" in get_text(body)]
    assert found["agreement"]["numbers"]["agreement"]["total"] == 2
    for body in asked:
        pictures = [part for part in body["messages"][-1]["content"] if part["type"] == "image_url"]
        assert len(pictures) == 1
        assert pictures[0]["image_url"]["url"].startswith("data:image/png;base64,")
    assert len(asked) == 2


def test_the_model_of_a_verifier_is_asked_one_tiny_prompt(collab) -> None:
    with FakeServer() as server:
        code, out, _ = collab("agents", "check", write_verifier(server))
    assert code == 0
    assert out.startswith("mine.yaml: ok (text-judge, model fake)\n")
    assert "answered '" in out
    Path("empty.yaml").write_text("kind: text-judge\n")
    code, _, err = collab("agents", "check", "empty.yaml")
    assert code == 2
    assert "a verifier of kind text-judge asks an engine, written as {kind: openai" in err


def test_rows_are_the_questions_with_the_outcomes_and_leave_whole_tasks_out(
    collab, outcomes: dict[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A verifier that answers as its rows do is right about their tasks, and knows nothing of the others."""
    pytest.importorskip("pyarrow")
    with FakeServer() as server:
        mine = write_verifier(server, prompt="verifier-model")
        code, out, err = collab("verifier", "rows", "--runs", "first", "--verifier", mine, "--out", "rows")
        assert code == 0, err
        rows = list(read_rows(Path("rows/demonstration.parquet")))
        head = json.loads(Path("rows/rows.json").read_text())
        (held_out,) = head["held_out"]
        assert (
            {row.provenance.task for row in rows}
            == set(head["tasks"])
            == {
                "OpenDoors",
                "PressButton",
                "TypeWord",
            }
            - {held_out}
        )
        expected = {name: won for name, won in outcomes.items() if not name.startswith(held_out)}
        assert len(rows) == head["rows"] == len(expected)
        assert sum(row.reply == "Verdict: True" for row in rows) == head["successes"] == sum(expected.values())
        counted = f"{len(rows)} rows of fake[corridor], {head['successes']} of successes"
        assert out.splitlines()[0] == f"{counted}, written to rows/demonstration.parquet"
        assert f"held out 1 task: {held_out}" in out
        answers = {row.prompt.user: row.reply for row in rows}
        monkeypatch.setattr(
            "collab.testing.fake_server.write_reply", lambda body: answers.get(get_text(body), "Verdict: True")
        )
        known = ("--tasks", ",".join(head["tasks"]), "--json")
        found = read(collab(*AGREE, "--verifier", mine, *known))["agreement"]
        agreement = found["numbers"]["agreement"]
        assert (agreement["count"], agreement["total"], agreement["value"]) == (len(rows), len(rows), 1.0)
        left = read(collab(*AGREE, "--verifier", mine, "--held-out", "rows", "--json"))["agreement"]
        assert left["tasks"] == [held_out]
        assert left["numbers"]["episodes"] == 24 - len(rows)
        code, _, err = collab("verifier", "rows", "--runs", "first", "--verifier", mine, "--out", "rows")
        assert (code, "--out rows: is there already" in err) == (2, True)
        for bad, message in (
            (("--verifier", mine, "--hold-out", "1"), "--hold-out 1: leaves none of 3 tasks for rows"),
            (("--verifier", "verifier-rules"), "asks no model; name one that reads text, such as verifier-model"),
            (("--verifier", write_verifier(server, "screenshot-judge", "eye")), "looks at pictures, which rows do not"),
        ):
            code, _, err = collab("verifier", "rows", "--runs", "first", *bad, "--out", "other")
            assert (code, message in err) == (2, True), err
        code, _, err = collab(*AGREE, "--verifier", mine, "--held-out", "nowhere")
        assert (code, "nowhere/rows.json: no such file; name a directory that collab verifier rows" in err) == (2, True)
