"""`collab critic`: what it prints, what it refuses, and with which exit code."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import typer

from collab.cli.critic import app
from collab.data.parquet import read_rows
from collab.testing.fake_server import FakeServer

_COMMAND: Any = typer.main.get_command(app).commands["calibrate"]  # type: ignore[attr-defined]
SMALL = ("critic", "calibrate", "--env", "corridor", "--critic", "critic-oracle", "--cases", "4")

Result = tuple[int, str, str]


def read(result: Result, code: int = 0) -> Any:
    assert result[0] == code, result[2]
    return json.loads(result[1])


def test_it_says_how_far_a_critic_can_be_trusted_on_phones(collab):
    code, out, err = collab("critic", "calibrate", "--critic", "critic-oracle", "--cases", "3")
    assert code == 0, err
    opening = (
        "critic-oracle judges 3 steps of androidworld, tasks drawn by seed 0, recorded in calibrations/critic-oracle"
    )
    assert err.splitlines()[0] == opening
    head, _, *lines = out.splitlines()
    assert head.startswith("critic-oracle (oracle-2) on androidworld[simphone, without Pro Expense]: 3 steps, ")
    rows = {line[:18].strip(): line[18:].split()[0] for line in lines[1:7]}
    assert rows == {
        "accuracy": "1.000",
        "AUC": "1.000",
        "calibration error": rows["calibration error"],
        "test-retest": "1.000",
        "position bias": "-",
        "length bias": "0.000",
    }
    assert "missing      0 of " in out
    assert Path("calibrations/critic-oracle/reliability.svg").exists()


def test_a_critic_whose_labels_are_flipped_agrees_as_often_as_it_was_told_to(collab):
    flipped = (*SMALL[:-2], "--set", "permutations=0", "--set", "critic.flip=0.25")
    code, out, _ = collab(*flipped, "--cases", "60", "--plan")
    assert (code, out.splitlines()[1]) == (0, "flipped 0.25 of the rewards are inverted on purpose")
    found = read(collab(*flipped, "--cases", "60", "--out", "made", "--json"))["calibration"]
    assert found["label"] == "oracle-2+flip0.25"
    # Of 4 · 60 actions: 0.75 ± 0.03, and 1 − 2 · 0.25 · 0.75 of them the same when asked again.
    assert 0.65 < found["numbers"]["accuracy"] < 0.85
    assert 0.5 < found["numbers"]["retest"]["same"] < 0.75


@pytest.mark.parametrize("share", ["1", "-0.1", ".nan", "often"])
def test_a_share_of_flipped_labels_out_of_range_is_one_line(collab, share: str):
    code, out, err = collab(*SMALL, "--set", f"critic.flip={share}")
    assert (code, out) == (2, "")
    assert re.fullmatch(r"(loading …\n)?error: --set: critic\.flip: .*\n", err)
    assert not list(Path().iterdir())


def test_json_is_one_document_whose_numbers_are_the_files(collab):
    found = read(collab(*SMALL, "--out", "made", "--json"))
    assert (found["stopped"], found["judgements"]) == (None, {"planned": 24, "done": 24})
    assert {**found["calibration"], "format": 1} == json.loads(Path("made/calibration.json").read_text())
    assert read(collab("critic", "calibrate", "--resume", "made", "--json"))["calibration"] == found["calibration"]


def test_what_is_missing_is_told_by_cause(collab):
    code, out, _ = collab(*SMALL[:-3], "critic-outcome", "--cases", "4", "--out", "made")
    assert code == 0
    assert "it was not carried out" in out
    assert "AUC                -" in out


def test_plan_makes_nothing(collab):
    code, out, _ = collab(*SMALL, "--plan")
    assert code == 0
    assert out.startswith("4 steps of corridor with 4 good, ")
    assert out.endswith("calls  none: no model is asked\n")
    assert read(collab(*SMALL, "--plan", "--json"))["passes"] == 6
    assert not list(Path().iterdir())


def test_plan_needs_no_key(collab, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    asked = ("critic", "calibrate", "--env", "corridor", "--critic", "critic-llm", "--cases", "4")
    assert read(collab(*asked, "--plan", "--json"))["calls"] == 4 * 6
    told = collab(*asked, "--plan")[1]
    assert "time   not known before a model answers" in told
    assert "note   agents/critic-llm: openai: the environment variable OPENAI_API_KEY is not set" in told
    code, _, err = collab(*asked)
    assert (code, "OPENAI_API_KEY is not set" in err) == (2, True)
    assert not list(Path().iterdir())
    monkeypatch.setenv("OPENAI_API_KEY", "nothing")
    assert "note " not in collab(*asked, "--plan")[1]


def test_help_names_settings_that_there_are(collab):
    (told,) = (param.help for param in _COMMAND.params if param.name == "settings")
    examples = re.search(r"e\.g\. (\S+) or (\S+)\.", told)
    assert examples is not None
    given = [item for one in examples.groups() for item in ("--set", one)]
    asked = ("critic", "calibrate", "--env", "corridor", "--critic", "critic-llm", "--cases", "4")
    assert read(collab(*asked, "--plan", "--json", *given))["passes"] == 3 + 5
    assert {param.rich_help_panel for param in _COMMAND.params} <= {"What is asked", "How it is asked", None}


def test_a_budget_stops_with_exit_1_and_the_command_to_resume(collab):
    code, out, err = collab(*SMALL, "--budget", "minutes=0.0000001", "--out", "made")
    assert code == 1
    assert not out
    assert err.splitlines()[-1].startswith("stopped: budget used up: ")
    assert err.endswith("; resume with: collab critic calibrate --resume made\n")
    found = read(collab("critic", "calibrate", "--resume", "made", "--budget", "minutes=5", "--json"))
    assert found["calibration"]["numbers"]["auc"] == 1.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--critic", "critic-model"), "checkpoints/my-critic: no such model directory"),
        (("--critic", "critic-model", "--set", "critic.prompt=critic"), "need state.jinja, action.jinja"),
        (("--critic", "parrot"), "agents/parrot: kind scripted speaks and does not judge"),
        (("--env", "web"), "web cannot be copied or rebuilt, or knows no solutions"),
        (("--set", "nothing=1"), "nothing"),
        (("--set", "critic.options.replay=true"), "replay"),
        (("--budget", "usd=1"), "--budget: agents/critic-oracle asks no model"),
        (("--seed", "31"), "run seed 31 is not one of split train"),
        (("--resume", "made"), "--resume continues the calibration as it is; leave out --env, --critic, --cases"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(collab, arguments: tuple[str, ...], message: str):
    code, out, err = collab(*SMALL, *arguments)
    assert (code, out) == (2, ""), err
    assert message in err
    assert err.count("\n") == 1
    assert not list(Path().iterdir())


def test_a_critic_must_be_named(collab):
    code, _, err = collab("critic", "calibrate")
    assert code == 2
    assert "--critic is missing: name an agents file that judges" in err


@pytest.mark.parametrize("name", ["critic-llm", "critic-model", "critic-oracle"])
def test_a_critic_does_not_play(collab, name: str):
    asked = ("rollout", "--env", "corridor", "--graph", "single", "--agents", name, "--episodes", "1", "--out", "run")
    code, _, err = collab(*asked)
    assert code == 2
    assert f"agents/{name}: a critic (kind {name.removeprefix('critic-')}) judges and does not speak" in err
    assert err.count("\n") == 1
    assert not Path("run").exists()


def test_a_critic_that_asks_no_model_is_checked_by_its_definition(collab):
    code, out, _ = collab("agents", "check", "critic-oracle")
    assert (code, out.splitlines()[0]) == (0, "critic-oracle: ok (oracle, no model)")
    assert "collab critic calibrate --critic critic-oracle" in out
    Path("odd.yaml").write_text("kind: outcome\noptions: {replay: maybe}\n")
    code, _, err = collab("agents", "check", "odd.yaml")
    assert (code, "replay" in err) == (2, True)


def test_the_model_of_a_critic_is_asked_one_tiny_prompt(collab):
    with FakeServer() as server:
        options = {"model": "fake", "base_url": server.url, "api_key_env": ""}
        engine = {"kind": "openai", "options": options}
        Path("judge.yaml").write_text(json.dumps({"kind": "llm", "options": {"model": engine}, "prompt": "critic"}))
        code, out, _ = collab("agents", "check", "judge.yaml")
    assert code == 0
    assert out.startswith("judge.yaml: ok (llm, model fake)\n")
    assert "answered '" in out


def answer_as_rows_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the fake server answer each question as its row does."""
    answers = {row.prompt.user: row.reply for row in read_rows(Path("rows/demonstration.parquet"))}
    monkeypatch.setattr(
        "collab.testing.fake_server.write_reply",
        lambda body: answers.get(body["messages"][-1]["content"], "I cannot say."),
    )


def test_rows_of_a_critic_are_its_questions_with_the_right_answers(collab, monkeypatch: pytest.MonkeyPatch):
    """A judge that answers as its rows do is found to be right."""
    pytest.importorskip("pyarrow")
    with FakeServer() as server:
        options = {"model": "fake", "base_url": server.url, "api_key_env": ""}
        judge = {"kind": "llm", "options": {"model": {"kind": "openai", "options": options}}, "prompt": "critic"}
        Path("judge.yaml").write_text(json.dumps(judge))
        asked = ("--env", "corridor", "--critic", "judge.yaml", "--cases", "4")
        code, out, err = collab("critic", "rows", *asked, "--out", "rows")
        assert code == 0, err
        assert out.startswith("8 rows of corridor, written to rows/demonstration.parquet\n")
        answer_as_rows_do(monkeypatch)
        found = read(collab("critic", "calibrate", *asked, "--set", "permutations=0", "--json"))["calibration"]
    assert found["numbers"]["accuracy"] == 1.0
    assert found["numbers"]["mean_scores"]["good"] == 1.0
    assert found["numbers"]["mean_scores"]["bad"] == 0.0
    assert collab("critic", "rows", *asked, "--out", "rows")[0] == 2
    code, _, err = collab("critic", "rows", "--env", "corridor", "--critic", "critic-oracle", "--out", "other")
    assert (code, "asks nothing in words" in err) == (2, True)
    written = ("critic", "rows", "--env", "corridor", "--critic", "judge.yaml", "--cases", "20", "--plain")
    assert read(collab(*written, "--out", "plain", "--json"))["rows"] == 40
    plain = [json.loads(row.reply) for row in read_rows(Path("plain/demonstration.parquet"))]
    assert all(1.0 in scores.values() and len(scores) > 1 for scores in plain[::2]), "a step's whole questions"
    assert all(0 < len(part) < len(whole) for whole, part in zip(plain[::2], plain[1::2], strict=True))
    right = sum(1.0 in part.values() for part in plain[1::2])
    assert 0 < right < 20, "of a part of the proposals none may be right"


def test_plain_rows_answer_the_questions_of_critic_plain(collab, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("pyarrow")
    with FakeServer() as server:
        engine = {"kind": "openai", "options": {"model": "fake", "base_url": server.url, "api_key_env": ""}}
        judge = {"kind": "llm", "options": {"model": engine, "per": "round"}, "prompt": "critic-plain"}
        Path("judge.yaml").write_text(json.dumps(judge))
        asked = ("--env", "corridor", "--critic", "judge.yaml", "--cases", "4")
        code, _, err = collab("critic", "rows", *asked, "--plain", "--out", "rows")
        assert code == 0, err
        answer_as_rows_do(monkeypatch)
        found = read(collab("critic", "calibrate", *asked, "--set", "permutations=0", "--json"))["calibration"]
        prompts = [one["messages"] for one in server.requests]
    assert found["numbers"]["accuracy"] == 1.0
    assert found["numbers"]["missing"] == {}
    assert all("Actions:" not in str(one) for one in prompts), "it lists no actions, which proposals name in words"


def test_the_list_of_agents_keeps_them_apart(collab):
    speakers, critics, _ = collab("agents", "list")[1].split("\n\n")
    assert "rehearsal" in speakers
    assert "critic-" not in speakers
    assert critics.count("\ncritic-") == 6
    listed = read(collab("agents", "list", "--json"))
    assert (listed["critic-llm"]["critic"], listed["rehearsal"]["critic"]) == (True, False)
