"""Play, measure, compare, show and resume runs from the command line."""

import gc
import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from collab.store import log
from collab.store.run import RunStore, RunWriter
from collab.types import Step

LIBRARY = str(Path(__file__).parent / "library")
REHEARSAL = "rehearsal: not a language model"

Result = tuple[int, str, str]


def read(result: Result, code: int = 0) -> Any:
    assert result[0] == code
    return json.loads(result[1])


def outcomes(found: Any) -> dict[str, Any]:
    return {one["id"]: (one["seed"], one["success"], one["steps"]) for one in found["episodes"]}


# -------------------------------------------------------------------------------------------------------- rollout


def test_rollout_records_a_run_and_says_where(collab):
    code, out, err = collab(
        "rollout", "--env", "corridor", "--agents", "rehearsal", "--episodes", "4", "--out", "first"
    )
    assert code == 0
    assert f"fake[corridor]  ({REHEARSAL})" in out
    assert "run      first" in out
    assert err == "playing 4 episodes of corridor with rehearsal on team, recorded in first\n"
    assert (Path("first") / "run.json").is_file()


def test_rollout_as_json_is_one_document_that_counts_what_was_spent(collab):
    found = read(collab("rollout", "--env", "corridor", "--agents", "parrot", "--tasks", "TypeWord", "--json"))
    assert found["run"].startswith("runs/")
    assert found["note"] is None
    assert found["stopped"] is None
    assert found["spent"]["calls"] == 12 * found["spent"]["steps"]
    assert found["spent"]["prompt_tokens"] > found["spent"]["completion_tokens"] > 0
    assert [found["spent"][name] for name in ("computed_tokens", "prefix_hit_rate", "mean_width")] == [None] * 3


def test_a_number_without_quotes_is_done_and_recorded_as_it_was_written(collab, tmp_path: Path):
    agents = tmp_path / "library/agents/prices.yaml"
    agents.parent.mkdir(parents=True)
    reply = 'Reason: it says so. Action: {"action_type": "answer", "text": 21.00}'
    agents.write_text(f"kind: scripted\noptions:\n  replies:\n    - '{reply}'\n")
    found = ("--env", "corridor", "--graph", "single", "--tasks", "PressButton", "--library", str(agents.parents[1]))
    shutil.copytree(LIBRARY, agents.parents[1], dirs_exist_ok=True)
    assert collab("rollout", *found, "--agents", "prices", "--out", "run")[0] == 0
    step = read(collab("runs", "show", "run", "--episode", "PressButton/0", "--step", "0", "--json"))
    assert step["step"]["action"] == 'answer "21.00"'


def test_the_same_seed_gives_the_same_episodes(collab):
    command = ("rollout", "--env", "corridor", "--agents", "rehearsal", "--episodes", "6", "--json", "--seed")
    first, again, other = (outcomes(read(collab(*command, seed))) for seed in ("5", "5", "6"))
    assert first == again
    assert {seed for seed, _, _ in first.values()}.isdisjoint(seed for seed, _, _ in other.values())


def test_every_task_is_played_once_unless_a_number_is_given(collab):
    assert len(read(collab("rollout", "--env", "corridor", "--agents", "rehearsal", "--json"))["episodes"]) == 3
    chosen = collab("rollout", "--env", "corridor", "--agents", "rehearsal", "--tasks", "tag:press,TypeWord", "--json")
    assert len(read(chosen)["episodes"]) == 3
    assert (
        len(
            read(collab("rollout", "--env", "corridor", "--agents", "rehearsal", "--set", "episodes=2", "--json"))[
                "episodes"
            ]
        )
        == 2
    )


def test_settings_reach_the_run(collab):
    one_round = collab(
        "rollout",
        "--env",
        "corridor",
        "--agents",
        "rehearsal",
        "--set",
        "graph.rounds=1",
        "--set",
        "agents.*.history=0",
        "--json",
    )
    assert read(one_round)["spent"]["calls"] == 4 * read(one_round)["spent"]["steps"]


def test_different_agents_can_fill_the_slots(collab):
    agents = "ada=parrot,ben=parrot,cyd=rehearsal,dee=rehearsal"
    assert collab("rollout", "--env", "corridor", "--agents", agents, "--out", "mixed")[0] == 0
    assert "parrot" in read(collab("runs", "list", "mixed", "--json"))[0]["agents"]


def test_an_agents_file_lies_anywhere(collab, tmp_path):
    home = tmp_path / "me@work"
    home.mkdir()
    mine = home / "mine.yaml"
    mine.write_text((Path(LIBRARY) / "agents/parrot.yaml").read_text())
    asked = ("rollout", "--env", "corridor", "--episodes", "1", "--agents")
    assert collab(*asked, str(mine), "--out", "one")[0] == 0
    assert collab(*asked, f"ada={mine},ben=parrot,cyd=parrot,dee={mine}", "--out", "two")[0] == 0
    for name in (f"{home}/absent.yaml", f"ada={home}/absent.yaml,ben=parrot,cyd=parrot,dee=parrot"):
        code, _, err = collab(*asked, name, "--out", "three")
        assert (code, f"no agents file called '{home}/absent.yaml'" in err) == (2, True)


@pytest.mark.slow
def test_a_budget_stops_a_run_and_resuming_finishes_it(collab, tmp_path):
    whole = read(collab("rollout", "--env", "corridor", "--agents", "parrot", "--episodes", "6", "--json"))
    options = ("--env", "corridor", "--agents", "parrot", "--episodes", "6", "--concurrency", "1", "--out", "short")
    code, out, err = collab("rollout", *options, "--budget", "tokens=200000", "--json")
    stopped = json.loads(out)
    assert code == 1
    assert "budget used up" in stopped["stopped"]
    assert stopped["resume"] == "collab runs resume short"
    assert "resume with: collab runs resume short" in err
    assert len(stopped["episodes"]) < 6
    for _ in range(4):  # the budget counts anew in every process
        code, out, _ = collab("runs", "resume", "short", "--json")
        if code == 0:
            break
        assert "tokens before that" in json.loads(out)["stopped"]
    found = json.loads(out)
    assert outcomes(found) == outcomes(whole)
    assert found["spent_in_all"]["calls"] >= whole["spent"]["calls"] > found["spent"]["calls"]
    collab("rollout", *options[:-1], "again", "--budget", "tokens=200000")
    assert "with what was spent before it was resumed" in collab("runs", "resume", "again")[1]


def test_the_workers_of_a_run_are_listed_by_what_they_recorded(collab):
    play = ("--env", "corridor", "--agents", "parrot", "--episodes", "3", "--concurrency", "2")
    assert collab("rollout", *play, "--out", "run")[0] == 0
    code, out, _ = collab("workers", "status", "run")
    head, *rows = out.splitlines()
    assert code == 0
    assert head.split("  ")[0] == "worker"
    assert [row.split()[:3] for row in rows] == [["worker", "1", "gone"], ["worker", "2", "gone"]]

    # While a process writes the run, its workers play or are free; one that was lost is gone.
    with RunStore.open(Path("run")).open_reader() as reader:
        task = next(reader.iterate_trajectories()).task
    about = {"epoch": 0, "environment": "x", "environment_version": "1"}
    with RunWriter(Path("run")) as writer:
        writer.begin_episode("Task/7", task, episode=7, worker="worker 10 on north (process 5)", **about)
        writer.interrupt_episode("Task/7", "its process died")
        writer.resume_episode("Task/7", 0, worker="worker 10 on north (process 6)")
        states = json.loads(collab("workers", "status", "run", "--json")[1])
    assert [(one["name"], one["state"], one["episode"], one["taken_over"], one["cut_off"]) for one in states] == [
        ("worker 1", "free", None, 0, 0),
        ("worker 2", "free", None, 0, 0),
        ("worker 10 on north (process 5)", "gone", None, 0, 1),
        ("worker 10 on north (process 6)", "playing", "Task/7", 1, 0),
    ]
    assert sum(one["played"] for one in states) == 3
    assert all((one["idle_s"] is None) == (one["state"] == "gone") for one in states)

    # Of a training, the workers of all its rollouts.
    for number in (1, 2):
        shutil.copytree("run", Path("training", "epochs", str(number), "rollout"))
    Path("training", "training.json").write_text("{}")
    states = json.loads(collab("workers", "status", "training", "--json")[1])
    assert sum(one["played"] for one in states) == 6

    code, _, err = collab("workers", "status", "nothing")
    assert (code, "nothing" in err) == (2, True)


def test_broken_episodes_are_told_apart_from_missed_ones(collab):
    code, out, _ = collab(
        "rollout", "--env", "corridor", "--agents", "rehearsal", "--backend", "broken", "--episodes", "3"
    )
    assert code == 1, "nothing was played"
    assert "3 broken: EnvironmentFailure: fake environment: broke at step 1" in out
    assert "nan" not in out


def test_ten_failures_in_a_row_stop_the_run(collab):
    code, _, err = collab(
        "rollout", "--env", "corridor", "--agents", "rehearsal", "--backend", "broken", "--episodes", "30"
    )
    assert code == 1
    assert "10 infrastructure failures in a row" in err
    assert "resume with: collab runs resume runs/" in err


# ----------------------------------------------------------------------------------------------------------- eval


def test_eval_shows_intervals_tasks_difficulties_and_seeds(collab):
    code, out, _ = collab("eval", "--env", "corridor", "--agents", "parrot", "--episodes", "6")
    assert code == 0
    assert "success  0.0% [0.0%, 39.0%] (0/6)" in out
    lines = [line.split() for line in out.splitlines()]
    assert ["easy", "0.0%", "0.0%", "-", "49.0%", "0/4"] in lines
    assert ["TypeWord", "0.0%", "0.0%", "-", "65.8%", "0/2"] in lines
    assert ["TypeWord/1", "no"] in [line[:1] + line[2:3] for line in lines], "every episode is listed"


def test_tables_count_what_was_never_played_as_the_headline_does(collab):
    """Nine planned, three per task. The first reply uses the budget up: nothing is over, in any group."""
    options = ("--env", "corridor", "--agents", "parrot", "--episodes", "9", "--concurrency", "1", "--out", "short")
    assert collab("eval", *options, "--budget", "tokens=1")[0] == 1
    _, out, _ = collab("runs", "show", "short")
    lines = [line.split() for line in out.splitlines()]
    assert ["success", "0.0%", "[0.0%,", "29.9%]", "(0/9)"] in lines
    assert ["easy", "0.0%", "0.0%", "-", "39.0%", "0/6", "-", "0"] in lines
    assert ["OpenDoors", "0.0%", "0.0%", "-", "56.1%", "0/3", "-", "0"] in lines


def test_the_rate_over_completed_episodes_stands_beside_that_over_all(collab):
    options = ("--env", "corridor", "--agents", "parrot", "--episodes", "6", "--concurrency", "1", "--out", "short")
    assert collab("eval", *options, "--budget", "tokens=200000")[0] == 1
    over = read(collab("runs", "show", "short", "--json"))["success_completed"]["episodes"]
    assert 0 < over < 6
    out = collab("runs", "show", "short")[1]
    assert f"{over} of 6 episodes are over; the others count as not solved\n" in out
    assert f"(0/{over}) of completed episodes\n" in out


def test_tables_show_what_broke_beside_the_rate_over_the_rest(collab):
    collab("eval", "--env", "corridor", "--backend", "broken", "--agents", "parrot", "--episodes", "6", "--out", "one")
    lines = [line.split() for line in collab("runs", "show", "one")[1].splitlines()]
    assert ["task", "success", "95", "%", "interval", "episodes", "of", "completed", "broken"] in lines
    assert ["TypeWord", "0.0%", "0.0%", "-", "65.8%", "0/2", "-", "2"] in lines


def test_eval_uses_the_evaluation_seed_and_lists_the_seeds(collab):
    found = read(collab("eval", "--env", "corridor", "--agents", "parrot", "--json"))
    assert found["by_difficulty"]["easy"] == {
        "value": 0,
        "interval": [0, pytest.approx(0.6576, abs=1e-4)],
        "successes": 0,
        "episodes": 2,
        "completed": {"value": 0, "interval": [0, pytest.approx(0.6576, abs=1e-4)], "successes": 0, "episodes": 2},
        "broken": 0,
    }
    again = read(collab("eval", "--env", "corridor", "--agents", "parrot", "--seed", "30", "--json"))
    assert outcomes(found) == outcomes(again)


def test_a_rehearsal_is_called_one_everywhere(collab):
    assert REHEARSAL in collab("eval", "--env", "corridor", "--agents", "rehearsal", "--out", "one")[1]
    assert read(collab("eval", "--env", "corridor", "--agents", "rehearsal", "--json"))["note"] == REHEARSAL
    assert REHEARSAL in collab("runs", "list", ".")[1]
    assert REHEARSAL in collab("runs", "show", "one")[1]
    assert REHEARSAL in collab("runs", "show", "one", "--episode", "TypeWord/0")[1]
    assert REHEARSAL in collab("runs", "show", "one", "--episode", "TypeWord/0", "--step", "0")[1]
    assert read(collab("runs", "show", "one", "--json"))["note"] == REHEARSAL
    assert REHEARSAL in collab("rollout", "--env", "corridor", "--agents", "rehearsal")[1]


def test_two_runs_are_compared_over_equal_instances(collab):
    collab("eval", "--env", "corridor", "--agents", "parrot", "--out", "one")
    collab("eval", "--env", "corridor", "--agents", "parrot", "--graph", "single", "--out", "two")
    code, out, _ = collab("eval", "--compare", "one", "two")
    assert code == 0
    assert (
        "difference  +0.0 percentage points [+0.0, +0.0] (second minus first, 3 equal instances of 3 tasks; "
        "fewer than 10: the interval says little)"
    ) in out
    found = read(collab("eval", "--compare", "one", "two", "--json"))
    assert (found["pairs"], found["difference"], found["first"]["run"]) == (3, 0, "one")


def test_a_comparison_refuses_rehearsals(collab):
    collab("eval", "--env", "corridor", "--agents", "parrot", "--out", "one")
    collab("eval", "--env", "corridor", "--agents", "rehearsal", "--out", "two")
    for force in ([], ["--force"]):
        code, out, err = collab("eval", "--compare", "one", "two", *force)
        assert (code, out) == (2, "")
        assert err == "error: a rehearsal follows the solutions: it is not a result and cannot be compared\n"


def test_a_comparison_of_broken_runs_needs_force(collab):
    for name in ("one", "two"):
        collab("eval", "--env", "corridor", "--agents", "parrot", "--backend", "broken", "--out", name)
    code, _, err = collab("eval", "--compare", "one", "two")
    assert code == 2
    assert "--force" in err
    assert collab("eval", "--compare", "one", "two", "--force")[0] == 0


# ----------------------------------------------------------------------------------------------------------- runs


def test_runs_are_listed_oldest_first_and_broken_folders_skipped(collab):
    for name in ("b", "a"):
        collab("rollout", "--env", "corridor", "--agents", "rehearsal", "--episodes", "1", "--out", f"runs/{name}")
    Path("runs/odd").mkdir()
    Path("runs/odd/run.json").write_text("not JSON")
    code, out, err = collab("runs", "list")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[1:]] == ["runs/b", "runs/a"]
    assert err.startswith("skipped: runs/odd/run.json: not JSON")


def test_no_runs_is_no_error(collab):
    assert collab("runs", "list") == (0, "no runs in runs; make one with: collab rollout\n", "")
    assert read(collab("runs", "list", "--json")) == []


def test_results_are_told_without_reading_what_was_said(collab, monkeypatch):
    for name in ("one", "two"):
        collab("eval", "--env", "corridor", "--agents", "parrot", "--out", name)

    def refuse(directory: Path, place: log.Place) -> bytes:
        raise AssertionError(f"{place} was read")

    monkeypatch.setattr(log, "read", refuse)
    assert collab("runs", "show", "one")[0] == 0
    assert len(read(collab("runs", "list", ".", "--json"))) == 2
    assert collab("eval", "--compare", "one", "two")[0] == 0
    assert collab("runs", "show", "one", "--episode", "TypeWord/0")[0] == 1, "an episode is read from the log"


def test_a_run_is_shown_the_same_without_its_index(collab):
    options = ("--backend", "broken", "--tasks", "TypeWord,OpenDoors", "--out", "one")
    collab("rollout", "--env", "corridor", "--agents", "rehearsal", *options)
    with_index = collab("runs", "show", "one", "--json")
    (Path("one") / "index.sqlite").unlink()
    assert collab("runs", "show", "one", "--json") == with_index


def test_a_run_that_does_not_say_what_was_planned_counts_what_is_missing_all_the_same(collab):
    options = ("--env", "corridor", "--agents", "parrot", "--concurrency", "1", "--out", "short")
    assert collab("eval", *options, "--budget", "tokens=1")[0] == 1
    head = json.loads(Path("short/run.json").read_text())
    del head["tasks"]
    Path("short/run.json").write_text(json.dumps(head))
    found = read(collab("runs", "show", "short", "--json"))
    assert found["success"]["episodes"] == 3
    assert {name: group["episodes"] for name, group in found["by_task"].items()} == {"unknown": 3}


def test_a_run_can_be_looked_at_closer_and_closer(collab):
    collab("rollout", "--env", "corridor", "--agents", "rehearsal", "--episodes", "3", "--out", "one")
    whole = read(collab("runs", "show", "one", "--json"))
    assert (whole["status"], whole["problems"]) == ("finished", [])
    episode = read(collab("runs", "show", "one", "--episode", "OpenDoors/0", "--json"))
    assert len(episode["steps"]) == {one["id"]: one["steps"] for one in whole["episodes"]}["OpenDoors/0"]
    step = read(collab("runs", "show", "one", "--episode", "OpenDoors/0", "--step", "1", "--json"))["step"]
    assert len(step["cells"]) == 12
    assert step["observation"].startswith("Screen: Room ")
    _, out, _ = collab("runs", "show", "one", "--episode", "OpenDoors/0", "--step", "1")
    assert "ada, round 2 (heard ada 1" in out
    assert "/12 votes; effect: " in out


def test_resuming_a_finished_run_changes_nothing(collab):
    first = read(collab("eval", "--env", "corridor", "--agents", "rehearsal", "--out", "one", "--json"))
    again = read(collab("runs", "resume", "one", "--json"))
    assert outcomes(first) == outcomes(again)
    assert again["spent"]["calls"] == 0


def test_export_writes_tables(collab):
    pytest.importorskip("pyarrow")
    collab("rollout", "--env", "corridor", "--agents", "rehearsal", "--episodes", "2", "--out", "one")
    found = read(collab("runs", "export", "one", "--parquet", "tables", "--json"))
    assert found["note"] == REHEARSAL
    assert [Path(file).name for file in found["files"]] == ["episodes.parquet", "steps.parquet", "cells.parquet"]
    assert all(Path(file).stat().st_size for file in found["files"])


def test_settings_mean_the_same_with_and_without_run_in_front(collab):
    command = ("rollout", "--env", "corridor", "--agents", "rehearsal", "--out")
    assert collab(*command, "plain", "--set", "graph.rounds=1", "--set", "episodes=2")[0] == 0
    assert collab(*command, "run", "--set", "run.graph.rounds=1", "--set", "run.episodes=2")[0] == 0
    plain, run = (json.loads(Path(name, "run.json").read_text())["config"] for name in ("plain", "run"))
    assert plain == run
    assert (run["episodes"], run["graph"]["rounds"]) == (2, 1)
    code, _, err = collab("eval", "--env", "corridor", "--seeds", "30,31", "--set", "run.seed=3")
    assert (code, "both say which" in err) == (2, True)
    for setting in ("run.agents.*.history=2", "agents.*.history=2"):
        assert collab("agents", "check", "rehearsal", "--no-call", "--set", setting)[0] == 0
    for setting in ("run.environment.limits.max_steps=9", "environment.limits.max_steps=9"):
        assert collab("env", "check", "corridor", "--quick", "--tasks", "TypeWord", "--set", setting)[0] == 0


def test_a_prompt_folder_may_hold_only_what_differs_and_mistakes_in_it_end_nothing_begun(collab, tmp_path, monkeypatch):
    library = shutil.copytree(LIBRARY, tmp_path / "library")
    (library / "agents/brief.yaml").write_text(
        'kind: scripted\nprompt: brief\noptions: {replies: [\'Action: {"action_type": "wait"}\']}\n'
    )
    (library / "prompts/brief").mkdir(parents=True)
    (library / "prompts/brief/header.jinja").write_text("You are {{ agent }}. Be brief.\n")
    monkeypatch.setenv("COLLAB_LIBRARY", str(library))
    command = ("rollout", "--env", "corridor", "--agents", "brief", "--graph", "single", "--episodes", "1", "--out")
    assert collab(*command, "run")[0] == 0
    assert set(json.loads(Path("run/run.json").read_text())["config"]["prompts"]["brief"]) > {"system", "header"}
    (library / "prompts/brief/header.jinja").write_text("You are {{ agnet }}.\n")
    code, _, err = collab(*command, "other")
    assert (code, err.count("error: ")) == (2, 1)
    assert "prompts/brief/header.jinja: 'agnet' is undefined; it may ask for agent, round, rounds" in err
    assert err.rstrip().endswith("correct it; then try: collab agents check brief")
    code, _, checked = collab("agents", "check", "brief", "--no-call")
    assert code == 2
    assert err.endswith(checked)
    assert not Path("other").exists()


@pytest.mark.slow
def test_episodes_that_are_over_are_kept_on_the_disk_alone(collab, monkeypatch) -> None:
    alive: dict[int, int] = {}
    end, ended = RunWriter.end_episode, itertools.count(1)

    def count(writer: RunWriter, *rest: object, **named: object) -> None:
        number = next(ended)
        if number in (6, 24):
            gc.collect()
            alive[number] = sum(type(one) is Step for one in gc.get_objects())
        end(writer, *rest, **named)

    monkeypatch.setattr(RunWriter, "end_episode", count)
    asked = ("--env", "corridor", "--agents", "rehearsal", "--graph", "single", "--set", "concurrency=2")
    code, _, err = collab("rollout", *asked, "--episodes", "24", "--out", "long")
    assert code == 0, err
    assert alive[24] - alive[6] < 15, "18 episodes were played meanwhile, of three steps and more each"
