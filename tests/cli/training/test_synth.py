"""`collab synth`: what it prints, what it refuses, and with which exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

Result = tuple[int, str, str]


SMALL = ("--env", "corridor", "--episodes", "3", "--screens", "6")


def read(result: Result, code: int = 0) -> Any:
    assert result[0] == code, result[2]
    return json.loads(result[1])


def test_it_says_what_was_made_and_where(collab):
    code, out, err = collab("synth", *SMALL, "--out", "data")
    assert code == 0
    assert out.startswith("fake[corridor]\nrows     ")
    assert "card     data/card.md" in out
    assert err == (
        "oracle teaches basic, instruction, demonstration, preference on 6 screens and 3 episodes of corridor, "
        "recorded in data\n"
    )


def test_json_is_one_document_whose_numbers_are_the_cards(collab):
    found = read(collab("synth", *SMALL, "--levels", "preference,basic", "--out", "data", "--json"))
    assert found["stopped"] is None
    assert found["units"] == {"planned": 4, "done": 4, "broken": 0}
    assert list(found["report"]["by_level"]) == ["basic", "preference"]
    assert sum(found["report"]["by_level"].values()) == found["report"]["rows"]
    assert found["report"] == json.loads(Path("data/synth.json").read_text())["report"]


def test_plan_makes_nothing(collab):
    code, out, _ = collab("synth", *SMALL, "--plan")
    assert code == 0
    assert out.startswith("6 screens on 1 walk, 3 episodes of ")
    assert not list(Path().iterdir())
    planned = read(collab("synth", *SMALL, "--plan", "--json"))
    assert planned["calls"] == {}
    assert set(planned["rows"]) == {"basic", "instruction", "demonstration", "preference"}


def test_the_plan_of_a_model_asks_no_model(collab):
    planned = read(collab("synth", *SMALL, "--teacher", "dead", "--plan", "--json"))
    assert planned["calls"]["questions"] >= 6
    assert planned["calls"]["critic"] == planned["calls"]["adversary"]


def test_a_budget_of_minutes_stops_with_exit_1_and_the_command_to_resume(collab):
    asked = ("--env", "corridor", "--backend", "slow", "--episodes", "60", "--screens", "0")
    code, out, err = collab("synth", *asked, "--budget", "minutes=0.002", "--out", "data")
    assert code == 1
    assert not out
    assert err.splitlines()[-1].startswith("stopped: budget used up: ")
    assert err.endswith("; resume with: collab synth --resume data\n")
    found = read(collab("synth", "--resume", "data", "--budget", "minutes=0.002", "--json"), code=1)
    assert found["resume"] == "collab synth --resume data"
    assert found["report"] is None


def test_a_set_that_lacks_what_broke_ends_with_exit_1_and_the_command_to_resume(collab):
    asked = ("--env", "corridor", "--backend", "partly", "--episodes", "6", "--screens", "0")
    code, out, err = collab("synth", *asked, "--out", "data")
    assert code == 1
    assert out.splitlines()[-1] == "card     none before the set is whole"
    assert err.splitlines()[-1].startswith("2 of 6 walks and episodes broke (fake environment: broke at step 0")
    assert err.endswith("; make them again with: collab synth --resume data\n")
    found = read(collab("synth", "--resume", "data", "--json"), code=1)
    assert found["resume"] == "collab synth --resume data"
    assert set(found["report"]["broken"]) == {"episode/0", "episode/3"}
    assert found["units"] == {"planned": 6, "done": 6, "broken": 2}
    assert not Path("data/card.md").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--levels", "basics"), "no level called 'basics'; did you mean basic?"),
        (("--levels", ","), "--levels ',': nothing is named"),
        (("--levels", "judgement"), "the actions of a policy are judged; name it with --agents, e.g. early"),
        (("--agents", "early"), "--agents: is for level judgement, which is not asked for"),
        (("--levels", "judgement", "--agents", "critic-prm"), "a critic (kind prm) judges and does not speak"),
        (("--levels", "judgement", "--agents", "rehearsal"), "agents/rehearsal looks at solutions and samples no"),
        (("--teacher", "nobody"), "no agents file called 'nobody'"),
        (
            ("--teacher", "rehearsal"),
            "agents/rehearsal is no language model and looks at solutions; use --teacher oracle",
        ),
        (("--prompt", "nothing"), "no prompt called 'nothing'"),
        (("--env", "nowhere"), "no environment called 'nowhere'"),
        (("--env", "web"), "web knows no solutions, so it cannot teach by itself; give --teacher an agents file"),
        (("--env", "device"), "device: what is done there stays done, and exploring acts at random"),
        (("--tasks", "Nothing"), "no task of corridor called 'Nothing'"),
        (("--seed", "30"), "run seed 30 is not one of split train of fake (all but 30 to 49)"),
        (("--screens", "0", "--episodes", "0"), "neither screens nor episodes are asked for"),
        (("--levels", "preference", "--episodes", "0"), "only episodes teach preference, and none is asked for"),
        (("--set", "elements=-1"), "elements"),
        (("--set", "nothing=1"), "nothing"),
        (("--budget", "tokens=5"), "--budget: the oracle costs neither money nor tokens"),
        (("--teacher", "dead", "--budget", "minutes=0"), "--budget"),
        ((), "--out is missing: name the directory that is to be made"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(collab, arguments: tuple[str, ...], message: str):
    out = () if not arguments else ("--out", "data")
    code, shown, err = collab("synth", *SMALL, *arguments, *out)
    assert code == 2, err
    assert not shown
    assert message in err
    assert err.count("\n") == 1
    assert not Path("data").exists()


def test_a_server_that_is_not_there_is_found_before_anything_is_made(collab):
    code, _, err = collab("synth", *SMALL, "--teacher", "dead", "--out", "data")
    assert code == 1
    assert err.startswith("error: ")
    assert not Path("data").exists()


def test_a_directory_that_holds_another_synthesis_is_refused(collab):
    assert collab("synth", *SMALL, "--out", "data")[0] == 0
    code, _, err = collab("synth", *SMALL, "--out", "data")
    assert code == 2
    assert "data: a synthesis is there already; give another --out, or resume it: collab synth --resume data" in err


def test_resume_takes_what_its_directory_says(collab):
    assert collab("synth", *SMALL, "--out", "data")[0] == 0
    code, _, err = collab("synth", "--resume", "data", "--env", "corridor", "--seed", "1", "--plan")
    assert code == 2
    assert "--resume continues the synthesis as it is; leave out --env, --seed, --plan" in err
    code, _, err = collab("synth", "--resume", "nowhere")
    assert code == 2
    assert "nowhere: no such directory; name the directory of a synthesis" in err


def test_tasks_without_a_solution_are_left_out_unless_they_are_named(collab):
    code, _, err = collab("synth", "--env", "mobile-miniwob", "--tasks", "click-button,bisect-angle", "--out", "data")
    assert code == 2
    assert "have no known solution" in err
    assert "choose with --tasks tag:oracle" in err
