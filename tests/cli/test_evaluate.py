"""Evaluations over several seeds, comparisons of them, tables, and greedy replies; played for real, without a model."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from collab.cli.main import main
from collab.testing.fake_server import FakeServer, Fault

DEFINITIONS = {
    "envs/corridor.yaml": """
backend: fake
backends: {fake: {kind: fake}, broken: {kind: fake, options: {fail_at: 1}}}
""",
    "agents/first.yaml": """
kind: scripted
options:
  replies:
    - 'Reason: it is. Action: {"action_type": "click", "index": 1}'
    - 'Reason: it was. Action: {"action_type": "status", "goal_status": "complete"}'
""",
    "agents/still.yaml": """
kind: scripted
options: {replies: ['Reason: it moves. Action: {"action_type": "wait"}']}
sampling: {temperature: [0.1, 0.3, 0.5, 0.8]}
""",
}
PLAY = (
    "eval",
    "--env",
    "corridor",
    "--agents",
    "rehearsal",
    "--graph",
    "single",
    "--concurrency",
    "1",
    "--episodes",
    "6",
)

Result = tuple[int, str, str]


def write_definitions(library: Path) -> None:
    for name, text in DEFINITIONS.items():
        path = library / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def collab(run_command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Runs a command with a library of its own in an empty folder: (exit code, stdout, stderr)."""
    write_definitions(tmp_path / "library")
    (tmp_path / "here").mkdir()
    monkeypatch.setenv("COLLAB_LIBRARY", str(tmp_path / "library"))
    monkeypatch.chdir(tmp_path / "here")
    return run_command


def read(result: Result, code: int = 0) -> Any:
    assert result[0] == code, result[2]
    return json.loads(result[1])


def complaint(result: Result) -> str:
    code, out, err = result
    assert (code, out, err.count("\n")) == (2, "", 1), result
    return err


def manifest(run: str) -> Any:
    return json.loads((Path(run) / "run.json").read_text())


# ------------------------------------------------------------------------------------------------------ several seeds


def test_several_seeds_are_several_runs_told_together(collab):
    code, out, err = collab(*PLAY, "--agents", "first", "--seeds", "30,31,32", "--out", "first")
    assert code == 0
    assert [path.name for path in sorted(Path("first").iterdir())] == ["seed-30", "seed-31", "seed-32"]
    assert "playing seed 31: 6 episodes, recorded in first/seed-31\n" in err
    one = [read(collab("runs", "show", f"first/seed-{seed}", "--json")) for seed in (30, 31, 32)]
    solved = [run["success"]["successes"] for run in one]
    assert 0 < sum(solved) < 18
    lines = [line.split() for line in out.splitlines()]
    assert f"({sum(solved)}/18)" in lines[1]
    assert ["30", "31", "32"] == [line[0] for line in lines if line[-1:] and line[-1].startswith("first/seed-")]
    assert [f"{wins}/6" for wins in solved] == [line[5] for line in lines if line[-1:] and "first/seed-" in line[-1]]
    assert f"{sum(run['by_task']['PressButton']['successes'] for run in one)}/6" in next(
        line for line in lines if line[:1] == ["PressButton"]
    )


def test_the_same_command_plays_only_what_is_missing(collab):
    command = (*PLAY, "--agents", "first", "--out", "first", "--json", "--seeds")
    before = read(collab(*command, "30,31"))
    written = {path: path.stat().st_mtime_ns for path in Path("first/seed-30").rglob("*.jsonl*")}
    assert written
    result = collab(*command, "30,31,32")
    assert result[2].splitlines() == [
        "first/seed-30 is over",
        "first/seed-31 is over",
        "playing seed 32: 6 episodes, recorded in first/seed-32",
    ]
    assert read(result)["runs"][:2] == before["runs"]
    assert {path: path.stat().st_mtime_ns for path in written} == written


def test_a_budget_is_for_all_seeds_and_the_same_command_resumes(collab):
    command = (*PLAY, "--agents", "first", "--out", "first", "--seeds", "30,31", "--json")
    tokens = read(collab(*PLAY, "--agents", "first", "--out", "alone", "--json"))["spent"]["prompt_tokens"]
    code, out, err = collab(*command, "--budget", f"tokens={tokens + tokens // 2}")
    assert code == 1
    assert "budget used up" in json.loads(out)["stopped"]
    assert err.endswith("resume with the same command and --out first\n")
    assert [len(run["episodes"]) < 6 for run in json.loads(out)["runs"]] == [False, True]
    whole = read(collab(*command))
    assert [len(run["episodes"]) for run in whole["runs"]] == [6, 6]
    assert whole["stopped"] is None


def test_a_seed_that_was_not_begun_is_named(collab):
    result = collab(*PLAY, "--agents", "first", "--out", "first", "--seeds", "30,31,32", "--budget", "tokens=1")
    assert result[0] == 1
    assert "(not begun: seed 31, 32); resume with the same command and --out first" in result[2]
    assert "0 of 6 episodes are over" in result[1]


def test_several_seeds_are_resumed_elsewhere(collab):
    """As if their Ray cluster had gone: begun and missing seeds are played here."""
    command = (*PLAY, "--agents", "first", "--out", "first", "--seeds", "30,31", "--json")
    assert read(collab(*command, "--budget", "tokens=1"), 1)["stopped"]
    head = Path("first/seed-30/run.json")
    begun = json.loads(head.read_text())
    begun["config"] |= {"executor": "ray", "concurrency": 8}
    head.write_text(json.dumps(begun))
    code, _, err = collab("runs", "resume", "first", "--executor", "local", "--workers", "2")
    assert (code, "--workers 2: counts Ray workers" in err) == (2, True)
    budget = ("--budget", "minutes=9", "--json")
    found = read(collab("runs", "resume", "first", "--executor", "local", "--concurrency", "1", *budget))
    assert found["stopped"] is None
    missing = json.loads(Path("first/seed-31/run.json").read_text())["config"]
    assert (missing["executor"], missing["concurrency"]) == ("local", 1)


def test_seeds_within_a_split_on_the_phone(collab):
    """Real screens and real checkers; the agent waits, and waiting solves nothing."""
    options = (
        "--graph",
        "single",
        "--agents",
        "still",
        "--split",
        "unseen-app",
        "--set",
        "environment.limits.max_steps=2",
    )
    found = read(collab("eval", *options, "--seeds", "30,31", "--out", "unseen", "--json"))
    assert (found["split"], found["success"]["episodes"], found["success"]["successes"]) == ("unseen-app", 16, 0)
    assert {run["seed"] for run in found["runs"]} == {30, 31}
    refused = collab("eval", *options, "--seeds", "30,50", "--out", "other")
    assert "run seed 50 is not one of split unseen-app" in complaint(refused)
    assert not Path("other").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--seeds", "30,31", "--seed", "30"), "--seed and --seeds both say which"),
        (("--seeds", "30,31", "--set", "seed=3"), "--set seed=… and --seeds both say which"),
        (("--seeds", "30,x"), "--seeds '30,x': write whole numbers with commas, e.g. 30,31,32"),
        (("--seeds", ","), "--seeds ',': nothing is named"),
        (("--seeds", "30,30"), "run seed 30 is given twice"),
    ],
)
def test_mistakes_with_seeds(collab, options, message):
    assert message in complaint(collab(*PLAY, "--agents", "first", "--out", "first", *options))
    assert not Path("first").exists()


def test_a_rehearsal_of_several_seeds_is_called_one(collab):
    assert "rehearsal: not a language model" in collab(*PLAY, "--seeds", "30,31", "--out", "one")[1]


# ------------------------------------------------------------------------------------------------------ comparisons


@pytest.fixture(scope="module")
def recorded_arms(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two evaluations over two seeds: `still` solves nothing, `first` something; not to be changed."""
    folder = tmp_path_factory.mktemp("recorded")
    write_definitions(folder / "library")
    for name in ("still", "first"):
        own = ("--library", str(folder / "library"), "--agents", name, "--out", str(folder / name))
        assert main((*PLAY, *own, "--seeds", "30,31")) == 0
    return folder


@pytest.fixture
def arms(collab, recorded_arms: Path):
    """A copy of those evaluations in `still` and `first`."""
    for name in ("still", "first"):
        shutil.copytree(recorded_arms / name, name)
    return collab


def test_folders_of_several_seeds_are_compared(arms):
    found = read(arms("eval", "--compare", "still", "first", "--json"))
    back = read(arms("eval", "--compare", "first", "still", "--json"))
    assert (found["pairs"], found["tasks"]) == (12, 3)
    assert found["difference"] == found["second"]["value"] > 0
    assert back["difference"] == -found["difference"]
    assert back["interval"] == [-found["interval"][1], -found["interval"][0]]
    won = [(one["task"], one["seed"]) for one in found["won"]]
    assert (found["discordant"], found["lost"], len(won)) == (len(won), [], found["second"]["successes"])
    assert back["lost"] == found["won"]
    code, out, _ = arms("eval", "--compare", "still", "first")
    assert code == 0
    assert f"discordant  {len(won)} of 12 equal instances: {len(won)} won, 0 lost" in out
    assert all(f"won         {task}, seed " in out for task, _ in won)
    assert all(str(seed) in out for _, seed in won)
    same = read(arms("eval", "--compare", "first", "first", "--json"))
    assert (same["difference"], same["interval"]) == (0, [0, 0])


def test_a_run_is_compared_with_a_folder_over_what_both_played(arms):
    assert read(arms("eval", "--compare", "still/seed-31", "first", "--json"))["pairs"] == 6


def test_a_folder_of_several_evaluations_is_no_evaluation(arms):
    err = complaint(arms("eval", "--compare", ".", "first"))
    assert "first/seed-30 and still/seed-30 differ in agents" in err


@pytest.mark.slow
def test_the_same_instances_with_other_luck_are_another_evaluation_and_say_so(collab):
    play = (*PLAY, "--agents", "still", "--seeds", "30")
    plain = read(collab(*play, "--out", "plain", "--json"))
    command = (*play, "--set", "sampling_seed=1", "--out", "other")
    assert "\n30 (sampled with 1) " in collab(*command)[1]
    other = read(collab(*command, "--json"))
    assert [(one["seed"], one["sampling_seed"]) for one in (*plain["runs"], *other["runs"])] == [(30, None), (30, 1)]
    assert read(collab("eval", "--compare", "plain", "other", "--json"))["pairs"] == 6
    assert "run seeds 30, 30 (sampled with 1)." in collab("runs", "table", "plain", "other")[1]
    cells = [line["cells"][0] for line in read(collab("runs", "table", "plain", "other", "--json"))["lines"]]
    assert [cell["seeds"] for cell in cells] == [[{"seed": 30, "sampling_seed": seed}] for seed in (None, 1)]
    assert "seed 30 (sampled with 1)\n" in collab("runs", "show", "other/seed-30")[1]
    head = read(collab("runs", "show", "other/seed-30", "--json"))
    assert (head["seed"], head["sampling_seed"]) == (30, 1)
    assert "begun with other settings (sampling_seed)" in complaint(collab(*command[:-1], "plain"))


# ------------------------------------------------------------------------------------------------------ tables


def test_a_table_of_arms(arms):
    code, out, err = arms("runs", "table", "waits=still", "first", "again=first/seed-30", "--against", "previous")
    assert (code, err) == (0, "")
    head, _, waits, first, again, _, legend = out.splitlines()
    assert head == "|  | fake[corridor] | difference |"
    assert waits.startswith("| waits | 0.0 [0.0, 24.2] (12) |  |")
    assert first.startswith("| first | ")
    assert again.endswith("| +0.0 [+0.0, +0.0] (6) |")
    assert "run seeds 30, 31." in legend
    assert "the line above" in legend


def test_a_table_as_json_says_what_the_comparison_says(arms):
    found = read(arms("runs", "table", "still", "first", "--json"))
    compared = read(arms("eval", "--compare", "still", "first", "--json"))
    assert found["columns"] == [{"environment": "fake[corridor]", "split": None}]
    cell = found["lines"][1]["cells"][0]
    assert cell["difference"] == {key: compared[key] for key in ("difference", "interval", "pairs", "tasks")}
    assert {"run": "first", **cell["success"]} == compared["second"]
    assert list(cell["by_seed"]) == ["30", "31"]
    assert cell["runs"] == ["first/seed-30", "first/seed-31"]


def test_a_name_given_again_adds_to_its_line(arms):
    found = read(arms("runs", "table", "it=first/seed-30", "it=first/seed-31", "--json"))
    assert [line["name"] for line in found["lines"]] == ["it"]
    assert found["lines"][0]["cells"][0]["success"]["episodes"] == 12


def test_rollouts_are_left_out_of_tables_and_named(arms):
    arms("rollout", "--env", "corridor", "--agents", "first", "--graph", "single", "--out", "first/train")
    code, out, err = arms("runs", "table", "first")
    assert code == 0
    assert "(12)" in out
    assert err == "left out: first/train was made by collab rollout, not by collab eval\n"
    assert arms("runs", "table", "first/train")[0] == 2


def test_tables_refuse_rehearsals_and_broken_runs(arms):
    assert arms("eval", "--env", "corridor", "--agents", "rehearsal", "--graph", "single", "--out", "rehearsal")[0] == 0
    err = complaint(arms("runs", "table", "first", "second=rehearsal"))
    assert err == (
        "error: second, fake[corridor]: a rehearsal follows the solutions: it is not a result and cannot be compared\n"
    )
    arms(*PLAY, "--agents", "first", "--backend", "broken", "--out", "broken")
    assert "broken, fake[corridor]: 6 of 6 episodes broke" in complaint(arms("runs", "table", "first", "broken"))
    assert arms("runs", "table", "first", "broken", "--force")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere",), "nowhere: not a run directory"),
        (("=first",), "'=first': write it as NAME=PATH"),
        (("first=",), "'first=': write it as NAME=PATH"),
    ],
)
def test_mistakes_with_tables(collab, arguments, message):
    assert message in complaint(collab("runs", "table", *arguments))


# ------------------------------------------------------------------------------------------------------ greedy


def test_one_setting_makes_every_agent_greedy(collab):
    options = ("eval", "--env", "corridor", "--graph", "team", "--agents", "still", "--tasks", "TypeWord")
    collab(*options, "--out", "sampled")
    assert [one["sampling"]["temperature"] for one in manifest("sampled")["models"].values()] == [0.1, 0.3, 0.5, 0.8]
    collab(*options, "--out", "greedy", "--set", "agents.*.sampling.temperature=0")
    assert [one["sampling"]["temperature"] for one in manifest("greedy")["models"].values()] == [0, 0, 0, 0]


def _takes_one_temperature(body: Any) -> Fault | None:
    if body.get("temperature", 1) == 1:
        return None
    return Fault(status=400, message="'temperature' does not support 0.3 with this model, only the default (1)")


def test_what_a_model_makes_of_its_sampling_is_told_and_compared(collab) -> None:
    """One that takes no temperature, another one by `extra`, and a longer reply are no equals of the file's."""
    says = 'Reason: it is. Action: {"action_type": "wait"}'
    play = (*PLAY[:3], *PLAY[5:-2], "--episodes", "1", "--agents", "served.yaml")
    options: dict[str, object] = {"model": "fake", "api_key_env": ""}
    extra = {"extra": {"temperature": 1.5, "top_k": 3}}
    kinds: dict[str, tuple[dict[str, object], Any]] = {
        "plain": ({}, None),
        "own": ({}, _takes_one_temperature),
        "extra": (extra, None),
        "short": ({}, None),
    }
    told = {}
    for name, (more, refuses) in kinds.items():
        with FakeServer(says=lambda body: says, refuses=refuses, supports=["seed"]) as server:
            definition = {"kind": "openai", "options": {**options, "base_url": server.url, **more}}
            sampling = {"temperature": 0.3, "max_tokens": 64 if name == "short" else 256}
            Path("served.yaml").write_text(json.dumps(definition | {"sampling": sampling}))
            code, out, err = collab(*play, "--out", name)
            assert code == 0, err
            (told[name],) = (line for line in out.splitlines() if line.startswith("sampled"))
    assert told == {
        "plain": "sampled  at temperature 0.3",
        "own": "sampled  at the model's own temperature",
        "extra": "sampled  at temperature 1.5, top_k 3",
        "short": "sampled  at temperature 0.3",
    }
    for other, words in {
        "own": "temperature 0.3 against the model's own temperature",
        "extra": "temperature 0.3 against temperature 1.5, top_k 3",
        "short": "temperature 0.3, max_tokens 256 against temperature 0.3, max_tokens 64",
    }.items():
        code, _, err = collab("eval", "--compare", "plain", other)
        assert (code, words in err) == (2, True), err
        code, _, err = collab("eval", "--compare", "plain", other, "--force")
        assert (code, "the two were sampled differently" in err) == (0, True), err
    assert collab("eval", "--compare", "own", "own")[0] == 0


@pytest.mark.parametrize("name", ["model", "messages", "seed", "n", "stream"])
def test_what_every_call_sends_itself_is_no_extra(collab, name: str) -> None:
    options = {"model": "fake", "base_url": "http://127.0.0.1:9/v1", "api_key_env": "", "extra": {name: 1}}
    Path("served.yaml").write_text(json.dumps({"kind": "openai", "options": options}))
    code, _, err = collab(*PLAY[:3], *PLAY[5:], "--agents", "served.yaml", "--out", "run")
    assert code == 2
    assert f"extra.{name} would replace what every call sends itself" in err
    assert not Path("run").exists()
