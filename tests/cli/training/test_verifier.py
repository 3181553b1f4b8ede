"""`collab verifier`: what it prints, what it refuses, and what lies beside the run."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from collab.cli.main import main
from collab.store.run import RunStore
from tests.cli.conftest import LIBRARY

PLAY = ("rollout", "--env", "corridor", "--graph", "single", "--agents", "rehearsal", "--episodes", "12")


def read(result: tuple[int, str, str], code: int = 0) -> Any:
    assert result[0] == code, result[2]
    return json.loads(result[1])


@pytest.fixture(scope="module")
def recorded_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with solved and unsolved episodes; not to be changed."""
    run = tmp_path_factory.mktemp("recorded") / "first"
    options = ("--set", "agents.*.options.error_base=0.6", "--library", LIBRARY, "--out", str(run))
    assert main((*PLAY, *options)) == 0
    return run


@pytest.fixture
def outcomes(collab, recorded_run: Path) -> dict[str, bool]:
    """A copy of that run in `first`; whether each episode was solved."""
    shutil.copytree(recorded_run, "first")
    with RunStore.open(Path("first")).open_reader() as reader:
        outcomes = {one.id: one.success for one in reader.iterate_trajectories()}
    assert {True, False} == set(outcomes.values())
    return outcomes


def write_noisy(positives: float, negatives: float) -> str:
    Path("noisy.yaml").write_text(f"kind: rules\nfalse_positives: {positives}\nfalse_negatives: {negatives}\n")
    return "noisy.yaml"


AGREE = ("verifier", "agree", "--runs", "first")


def test_rules_agree_with_themselves(collab, outcomes: dict[str, bool]) -> None:
    code, out, err = collab(*AGREE, "--verifier", "verifier-rules")
    assert code == 0, err
    assert "verifier-rules judges the episodes of 1 run" in err
    assert out.startswith("verifier-rules (rules-1) against rules-1 on fake[corridor]: 12 episodes, 3 tasks\n")
    assert re.search(r"^agreement +100\.0% \[75\.8%, 100\.0%\] \(12/12\) +episodes on which", out, re.MULTILINE)
    assert re.search(r"^kappa +1\.000 ", out, re.MULTILINE)
    assert "\nmissing  0 of 12\n" in out
    assert "\nspent    nothing: no model is asked\n" in out
    assert "\ngate     its verdicts may be learned from\n" in out
    assert out.endswith("written  calibrations/verifier-rules/agreement.json\n")
    stored = [
        json.loads(line)
        for path in Path("first/verdicts/verifier-rules/events").glob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    assert {one["trajectory"]: one["success"] for one in stored} == outcomes


def test_a_verifier_that_is_always_wrong_is_found_out(collab, outcomes: dict[str, bool]) -> None:
    code, out, _ = collab(*AGREE, "--verifier", write_noisy(1, 1))
    assert code == 0
    solved = sum(outcomes.values())
    unsolved = 12 - solved
    assert re.search(r"^agreement +0\.0% ", out, re.MULTILINE)
    assert re.search(rf"^false positives +100\.0% \[.*\] \({unsolved}/{unsolved}\)", out, re.MULTILINE)
    assert re.search(rf"^false negatives +100\.0% \[.*\] \({solved}/{solved}\)", out, re.MULTILINE)
    assert re.search(rf"^rules-1\+fp1\+fn1: success +0 +{unsolved}$", out, re.MULTILINE)
    assert "gate     not to be learned from: agrees in 0.0%" in out


def test_json_is_the_record_and_a_second_call_judges_nothing(collab, outcomes: dict[str, bool]) -> None:
    found = read(collab(*AGREE, "--verifier", write_noisy(1, 0), "--out", "made", "--json"))
    assert (found["out"], found["stopped"], found["left_out"]) == ("made", None, 0)
    assert found["verdicts"] == {"planned": 24, "done": 24}
    assert found["agreement"] == json.loads(Path("made/agreement.json").read_text())
    numbers = found["agreement"]["numbers"]
    assert numbers["confusion"]["false_positives"] == numbers["positives"]["count"] == 12 - sum(outcomes.values())
    assert numbers["agreement"]["low"] < numbers["agreement"]["value"] < numbers["agreement"]["high"]
    assert sum(one["agreement"]["total"] for one in numbers["by_task"]) == 12
    before = sorted((path, path.read_bytes()) for path in Path("first/verdicts").rglob("*.jsonl"))
    again = read(collab(*AGREE, "--verifier", "noisy.yaml", "--out", "again", "--json"))
    assert again["agreement"]["numbers"] == numbers
    assert before == sorted((path, path.read_bytes()) for path in Path("first/verdicts").rglob("*.jsonl"))


def test_an_episode_shows_what_verifiers_said_of_it(collab, outcomes: dict[str, bool]) -> None:
    collab(*AGREE, "--verifier", write_noisy(1, 1))
    name, won = next(iter(outcomes.items()))
    told = ("failure", "success") if won else ("success", "failure")
    out = collab("runs", "show", "first", "--episode", name)[1]
    assert f"\nverdict  noisy: {told[0]}, inverted on purpose, " in out
    assert f"\nverdict  rules: {told[1]}, " in out
    found = read(collab("runs", "show", "first", "--episode", name, "--json"))["verdicts"]
    assert (found["noisy"]["success"], found["noisy"]["original"]) == (not won, won)


def test_tasks_restrict_it_and_any_verifier_may_be_the_reference(collab, outcomes: dict[str, bool]) -> None:
    noisy = write_noisy(1, 1)
    found = read(collab(*AGREE, "--verifier", noisy, "--against", "verifier-rules", "--tasks", "TypeWord", "--json"))
    assert found["agreement"]["numbers"]["episodes"] == sum(name.startswith("TypeWord") for name in outcomes)
    assert found["agreement"]["tasks"] == ["TypeWord"]
    found = read(collab(*AGREE, "--verifier", "rules", "--against", noisy, "--json"))
    assert found["agreement"]["against"] == "rules-1+fp1+fn1"
    assert found["agreement"]["numbers"]["agreement"]["value"] == 0.0


def test_broken_episodes_are_left_out_and_told(collab) -> None:
    play = (*PLAY, "--backend", "partly", "--out", "partly")
    collab(*play)
    code, out, _ = collab("verifier", "agree", "--runs", "partly", "--verifier", "verifier-rules")
    assert code == 0
    assert "left out 4 episodes without an outcome" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--verifier", "verifier-ruels"), "no verifier called 'verifier-ruels'; did you mean verifier-rules"),
        (("--verifier", "critic-oracle"), "agents/critic-oracle: a critic (kind oracle) scores single actions"),
        (("--verifier", "parrot"), "agents/parrot: kind scripted speaks and does not judge"),
        (("--verifier", "nothing.at:All"), "nothing.at:All cannot be imported"),
        ((), "--verifier is missing"),
        (("--verifier", "rules"), "--against rules: its verdicts are called 'rules', as the verifier's own"),
        (("--verifier", "verifier-rules", "--tasks", "Nothing"), "no task of these runs called 'Nothing'"),
        (("--verifier", "verifier-rules", "--out", "first"), "--out first: is there already"),
        (("--verifier", "verifier-rules", "--verdicts", "a/b"), "verdicts called 'a/b': a name has letters"),
        (("--verifier", "verifier-rules", "--runs", "nowhere"), "nowhere: not a run directory"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(
    collab, outcomes: dict[str, bool], arguments: tuple[str, ...], message: str
) -> None:
    code, out, err = collab(*AGREE, *arguments)
    told = [line for line in err.splitlines() if line != "loading …" and not line.endswith("episodes of 1 run")]
    assert (code, out, len(told)) == (2, "", 1), err
    assert message in told[0]
    assert not Path("calibrations").exists()


def test_runs_must_be_named_and_of_one_environment(collab, outcomes: dict[str, bool]) -> None:
    code, _, err = collab("verifier", "agree", "--verifier", "verifier-rules")
    assert (code, "--runs is missing" in err) == (2, True)
    collab("rollout", "--agents", "rehearsal", "--graph", "single", "--tasks", "SystemWifiTurnOn", "--out", "phone")
    code, _, err = collab(*AGREE, "--runs", "phone", "--verifier", "verifier-rules")
    assert code == 2
    assert "--runs: first is of fake[corridor] version 1, phone is of androidworld[simphone]" in err.replace(
        "phone of", "phone is of"
    )


def test_a_verifier_is_listed_checked_and_does_not_play(collab) -> None:
    *_, verifiers = collab("agents", "list")[1].split("\n\n")
    assert verifiers.splitlines()[0].split() == ["verifiers", "kind", "description"]
    assert "verifier-rules  rules" in verifiers
    listed = read(collab("agents", "list", "--json"))
    assert (listed["verifier-rules"]["verifier"], listed["critic-oracle"]["verifier"]) == (True, False)
    assert listed["verifier-noisy"]["false_positives"] == 0.1
    assert "false_positives" not in listed["rehearsal"]
    code, out, _ = collab("agents", "check", "verifier-rules")
    assert (code, out.splitlines()[0]) == (0, "verifier-rules: ok (rules, no model)")
    assert "collab verifier agree --verifier verifier-rules --runs RUN" in out
    Path("odd.yaml").write_text("kind: rules\nfalse_positives: 2\n")
    code, _, err = collab("agents", "check", "odd.yaml")
    assert (code, "false_positives" in err) == (2, True)
    code, _, err = collab(*PLAY[:-4], "--agents", "verifier-rules", "--episodes", "1", "--out", "run")
    assert (code, "a verifier (kind rules) judges and does not speak" in err) == (2, True)
