"""Whatever goes wrong: one clear line on stderr, the right exit code, no traceback, nothing lost."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from collab.cli.main import main

LIBRARY = str(Path(__file__).parent / "library")
COMMAND = [sys.executable, "-c", "from collab.cli.main import run; run()"]

BLIND = """
import os, sys

class Blind:
    def __init__(self, finder):
        self.finder = finder
    def find_spec(self, name, path=None, target=None):
        hidden = name.partition(".")[0] in os.environ["HIDDEN"].split(",")
        return None if hidden else self.finder.find_spec(name, path, target)
    def __getattr__(self, name):
        return getattr(self.finder, name)

sys.meta_path[:] = [Blind(finder) for finder in sys.meta_path]
"""
"""A sitecustomize that hides installed packages."""


@pytest.fixture(autouse=True)
def somewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("COLLAB_LIBRARY", LIBRARY)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 2) -> str:
    """The one line that a command ends with."""
    assert main(arguments) == code
    shown = capsys.readouterr()
    lines = shown.err.splitlines()
    assert lines[-1].startswith("error: ")
    assert sum(line.startswith("error: ") for line in lines) == 1
    assert "Traceback" not in shown.err
    return lines[-1]


def start(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own."""
    done = subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        check=False,
        env=os.environ | environment,
    )
    assert "Traceback" not in done.stderr
    return done


# ------------------------------------------------------------------------------------------------- names and numbers


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["rolout"], "Did you mean 'rollout'?"),
        (["graph", "shw", "team"], "Did you mean 'show'?"),
        (["rollout", "--episods", "3"], "--episodes"),
        (["rollout", "--episodes", "three"], "'--episodes': Input should be a valid integer"),
        (["rollout", "--episodes", "three"], ", got 'three'; see collab rollout --help"),
        (["rollout", "--episodes", "0"], "greater than or equal to 1, got '0'"),
        (["rollout", "--concurrency", "0"], "greater than or equal to 1, got '0'"),
        (["graph", "show"], "Missing argument 'NAME'"),
        (["runs", "export", "x"], "Missing option '--parquet'"),
        (["graph", "show", "teem"], "no graph called 'teem'; did you mean team?"),
        (["rollout", "--env", "coridor"], "no environment called 'coridor'; did you mean corridor"),
        (["rollout", "--env", "corridor", "--agents", "parott"], "no agents file called 'parott'; did you mean parrot"),
        (["rollout", "--env", "corridor", "--tasks", "OpenDors"], "did you mean OpenDoors"),
        (["rollout", "--env", "corridor", "--tasks", "OpenDors"], "see them with: collab env tasks corridor"),
        (["rollout", "--env", "corridor", "--tasks", ","], "--tasks ',': nothing is named"),
        (["env", "tasks", "corridor", "--tasks", ""], "--tasks '': nothing is named"),
        (["rollout", "--env", "corridor", "--tasks", "tag:prss"], "did you mean press?"),
        (["rollout", "--env", "corridor", "--backend", "slwo"], "did you mean slow?"),
        (["env", "tasks", "corridor", "--backend", "slwo"], "did you mean slow?"),
        (["rollout", "--env", "corridor", "--agents", "ada=parrot"], "no agent for: ben, cyd, dee"),
        (["rollout", "--env", "corridor", "--agents", "bob=parrot"], "the graph has no slot 'bob'"),
        (["rollout", "--env", "corridor", "--budget", "dollars=3"], "known: minutes, tokens, usd"),
        (["rollout", "--env", "corridor", "--budget", "usd=much"], "not a number"),
        (["rollout", "--env", "corridor", "--budget", "tokens=-1"], "greater than 0"),
        (["rollout", "--env", "corridor", "--budget", ""], "--budget is empty"),
        (["rollout", "--env", "corridor", "--budget", "usd=1,usd=2"], "usd is given twice"),
        (["rollout", "--env", "corridor", "--set", "graf.rounds=2"], "did you mean graph?"),
        (["rollout", "--env", "corridor", "--set", "graph.rounds"], "write it as a.b=value"),
        (["rollout", "--env", "corridor", "--set", "graph.rounds=two"], "graph.rounds"),
        (
            ["rollout", "--env", "corridor", "--set", "agents.*.sampling.temperature=-1"],
            "temperature: Input should be gr",
        ),
        (
            ["rollout", "--env", "corridor", "--set", "agents.*.sampling.temperature=[0, x, 1, 1]"],
            "temperature.1: Input",
        ),
        (["rollout", "--library", "nowhere"], "no such folder"),
        (["env", "check"], "--all"),
        (["env", "check", "corridor", "--seeds", "x"], "write whole numbers with commas"),
        (["env", "check", "corridor", "--set", "graph.rounds=2"], "only settings of the environment matter here"),
        (["env", "check", "corridor", "--set", "environment.backend=none"], "none"),
        (["runs", "show", "nowhere"], "not a run directory"),
        (["runs", "list", "nowhere"], "nowhere: no such folder"),
        (["runs", "resume", "nowhere"], "not a run directory"),
        (["eval", "--compare", "nowhere", "nowhere"], "not a run directory"),
        (["eval", "--compare", "nowhere"], "'--compare'"),
    ],
)
def test_a_mistake_is_one_line_and_starts_nothing(capsys, somewhere, arguments, hint):
    assert hint in complaint(capsys, *arguments)
    assert not (somewhere / "runs").exists()


def test_a_run_directory_is_never_written_over(capsys, somewhere):
    (somewhere / "mine").mkdir()
    (somewhere / "mine" / "thesis.txt").write_text("two years of work")
    asked = ["rollout", "--env", "corridor", "--agents", "rehearsal", "--out", "mine"]
    assert "is there already" in complaint(capsys, *asked)
    assert [path.name for path in (somewhere / "mine").iterdir()] == ["thesis.txt"]


# ------------------------------------------------------------------------------------------------------------- files


def test_a_cyclic_graph_is_named_with_its_cycle(capsys):
    line = complaint(capsys, "rollout", "--env", "corridor", "--graph", "cycle")
    assert "ada → ben → cyd → ada" in line


def test_an_edge_to_a_stranger_is_named(capsys):
    assert "no slot called 'bob'" in complaint(capsys, "graph", "show", "stranger")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "backend: fake\nbackends: {fake: {kind: fake}}\ntask: all\n",
            ":3: task: no key called 'task'; did you mean tasks?",
        ),
        (
            "backend: fake\nbackends:\n  fake: {kind: fake, opts: {}}\n",
            ":3: backends.fake.opts: no key called 'opts'; did you mean options?",
        ),
        ("backend: fake\nbackends: {fake: {kind: fake}}\nlimits:\n  step_s: -1\n", ":4: limits.step_s"),
        ("backend: fake\nbackend: fake\n", ":2: the key 'backend' is given twice"),
        ("backend: [fake\n", "not YAML"),
        (
            "backend: fake\nbackends: {fake: {kind: fakery}}\n",
            "called 'fakery'; did you mean fake",
        ),
        ("backend: fake\nbackends: {fake: {kind: fake, options: {fail_att: 3}}}\n", "fail_att"),
        ("backend: fake\nbackends: {fake: {kind: fake, options: {fail_at: soon}}}\n", "fail_at"),
        ("backend: fake\nbackends: {fake: {kind: 'no.such:Thing'}}\n", "no.such:Thing cannot be imported"),
    ],
)
def test_a_wrong_file_is_told_with_its_line(capsys, somewhere, text, expected):
    path = somewhere / "mine.yaml"
    path.write_text(text)
    line = complaint(capsys, "rollout", "--env", str(path))
    assert expected in line


def test_a_damaged_run_cannot_be_read_but_says_why(capsys, somewhere):
    (somewhere / "run").mkdir()
    head = somewhere / "run" / "run.json"
    head.write_text("{")
    assert "not JSON" in complaint(capsys, "runs", "show", "run")
    head.write_text(json.dumps({"format_version": "99.0"}))
    assert "99.0" in complaint(capsys, "runs", "resume", "run")


def test_an_episode_or_a_step_that_is_not_there_is_told_with_what_is(capsys):
    assert main(["rollout", "--env", "corridor", "--episodes", "2", "--agents", "parrot", "--out", "run"]) == 0
    capsys.readouterr()
    for step in ([], ["--step", "0"]):
        line = complaint(capsys, "runs", "show", "run", "--episode", "PressButton/9", *step)
        assert line == "error: no episode called 'PressButton/9'; did you mean PressButton/0?"
    line = complaint(capsys, "runs", "show", "run", "--episode", "PressButton/0", "--step", "99")
    assert line.endswith("no step 99 of episode PressButton/0; it has 8, counted from 0")


def test_a_number_that_no_index_holds_is_no_obstacle(capsys):
    huge = "environment.limits.max_steps=99999999999999999999"
    command = [
        "rollout",
        "--env",
        "corridor",
        "--agents",
        "rehearsal",
        "--episodes",
        "1",
        "--set",
        huge,
        "--out",
        "run",
    ]
    assert main(command) == 0
    assert main(["runs", "show", "run"]) == 0


def test_a_half_written_line_is_told_and_the_rest_is_shown(capsys, somewhere):
    assert main(["rollout", "--env", "corridor", "--agents", "rehearsal", "--episodes", "2", "--out", "run"]) == 0
    segment = next(path for path in (somewhere / "run").rglob("*.jsonl"))
    segment.write_bytes(segment.read_bytes()[:-40])
    for leftover in (somewhere / "run").glob("index.sqlite*"):
        leftover.unlink()
    capsys.readouterr()
    assert main(["runs", "show", "run"]) == 0
    shown = capsys.readouterr()
    assert "PressButton/0" in shown.out
    assert shown.err.startswith("unreadable: ")


# ----------------------------------------------------------------------------------------- what is missing or is dead


@pytest.fixture
def hidden(somewhere: Path):
    """Runs a command in a process that does not find some packages."""
    (somewhere / "sitecustomize.py").write_text(BLIND)

    def call(packages: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return start(*arguments, HIDDEN=packages, PYTHONPATH=str(somewhere))

    return call


@pytest.mark.parametrize(
    ("asked", "purpose"),
    [
        (["rollout", "--env", "corridor", "--agents", "parrot", "--executor", "ray", "--out", "run"], "--executor ray"),
        (["eval", "--env", "corridor", "--agents", "parrot", "--executor", "ray", "--out", "run"], "--executor ray"),
        (["workers", "status"], "a look at a Ray cluster"),
    ],
)
def test_ray_that_is_not_installed_is_named(
    asked: list[str], purpose: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "ray" else find(name))
    told = f"error: {purpose} needs ray, which is not installed; run: pip install 'collab-marl[ray]'"
    assert told in complaint(capsys, *asked)
    assert not Path("run").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("packages", "arguments", "extra"),
    [
        ("playwright", ["rollout", "--env", "miniwob", "--agents", "parrot", "--tasks", "click-button"], "web"),
        ("torch,transformers", ["agents", "check", "local.yaml"], "train"),
        ("torch,transformers", ["rollout", "--env", "corridor", "--agents", "local.yaml"], "train"),
        ("torch,transformers", ["train-marl", "--env", "corridor", "--agents", "local.yaml", "--plan"], "train"),
        ("torch", ["finetune", "--base", ".", "--data", "run", "--out", "tuned", "--preset", "pocket"], "train"),
        ("trl", ["train", "--algo", "filtered-bc", "--env", "corridor", "--agents", "early", "--plan"], "train"),
        ("pyarrow", ["runs", "export", "run", "--parquet", "tables"], "parquet"),
    ],
)
def test_a_missing_extra_is_named_with_its_command(hidden, somewhere, packages, arguments, extra):
    (somewhere / "local.yaml").write_text(f"kind: local\noptions: {{path: {somewhere}}}\n")
    assert main(["rollout", "--env", "corridor", "--agents", "rehearsal", "--episodes", "1", "--out", "run"]) == 0
    done = hidden(packages, *arguments)
    assert done.returncode == 2
    assert f"which is not installed; run: pip install 'collab-marl[{extra}]'" in done.stderr.splitlines()[-1]


@pytest.mark.slow
def test_no_browser_is_told_with_what_installs_one(somewhere):
    command = ["rollout", "--env", "miniwob", "--agents", "parrot", "--tasks", "click-button"]
    done = start(*command, COLLAB_BROWSER=str(somewhere / "nowhere"), PATH="")
    assert done.returncode == 2
    assert "playwright install chromium" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("command", [["agents", "check", "dead"], ["rollout", "--env", "corridor", "--agents", "dead"]])
def test_a_dead_server_is_told_with_its_address(capsys, command):
    assert "http://127.0.0.1:1/v1" in complaint(capsys, *command, code=1)


def test_an_unset_key_is_named(capsys, monkeypatch, somewhere):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    (somewhere / "remote.yaml").write_text("kind: openai\noptions: {model: some-model}\n")
    assert "OPENAI_API_KEY" in complaint(capsys, "agents", "check", "remote.yaml")


# --------------------------------------------------------------------------------------------------------------- output


@pytest.mark.slow
def test_a_full_disk_stops_the_run_and_room_lets_it_resume(somewhere):
    limited = ["import resource", "resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))"]
    script = "; ".join([*limited, "from collab.cli.main import run", "run()"])
    command = [
        "rollout",
        "--env",
        "corridor",
        "--agents",
        "rehearsal",
        "--episodes",
        "12",
        "--concurrency",
        "1",
        "--out",
        "run",
    ]
    done = subprocess.run(
        [sys.executable, "-c", script, *command], capture_output=True, text=True, timeout=60, check=False
    )
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert last.startswith("error: ")
    assert "collab runs resume run" in last
    recorded = json.loads(start("runs", "show", "run", "--json").stdout)["episodes"]
    assert 0 < len(recorded) < 12
    whole = json.loads(
        start("rollout", "--env", "corridor", "--agents", "rehearsal", "--episodes", "12", "--json").stdout
    )["episodes"]
    resumed = start("runs", "resume", "run", "--json")
    assert resumed.returncode == 0
    assert json.loads(resumed.stdout)["episodes"] == whole


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_output_that_cannot_be_written_is_one_line(form):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*COMMAND, "graph", "list", *form], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False
        )
    assert done.returncode == 1
    assert done.stderr == "error: the output cannot be written: No space left on device\n"


def test_a_reader_who_leaves_is_no_drama():
    process = subprocess.Popen(
        [*COMMAND, "graph", "list", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(timeout=60) == 1


@pytest.mark.slow
def test_a_terminal_without_unicode_gets_question_marks():
    done = start("graph", "show", "cycle", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert done.returncode == 2
    assert "ada ? ben ? cyd ? ada" in done.stderr
    assert json.loads(start("graph", "list", "--json", PYTHONIOENCODING="ascii").stdout)


def test_text_from_outside_cannot_steer_the_terminal(capsys, somewhere):
    (somewhere / "odd.yaml").write_text('description: "\\e[2J\\e[31mred [bold]x[/bold] :smile:"\nslots: [ada]\n')
    own = somewhere / "own"
    (own / "graphs").mkdir(parents=True)
    (somewhere / "odd.yaml").rename(own / "graphs" / "odd.yaml")
    assert main(["graph", "list", "--library", str(own)]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "[bold]x[/bold] :smile:" in out


# -------------------------------------------------------------------------------------------------------------- bugs


def test_a_bug_is_one_line_unless_a_traceback_is_asked_for(capsys, monkeypatch):
    def broken(*_: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("collab.rollout.build.build_dag", broken)
    monkeypatch.delenv("COLLAB_DEBUG", raising=False)
    line = complaint(capsys, "graph", "show", "team", code=1)
    assert line.startswith("error: ZeroDivisionError: division by zero (a bug of collab: run again with COLLAB_DEBUG=1")
    monkeypatch.setenv("COLLAB_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        main(["graph", "show", "team"])


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["rollout", "--agents", "local"], "collab agents check local"),
        (["rollout", "--agents", "local"], "--set 'agents.*.options.path=DIR'"),
        (["agents", "check", "local", "--no-call"], "collab agents check local"),
        (["agents", "check", "critic-prm", "--no-call"], "with options.model.options.path of the agents file"),
        (["train-marl", "--agents", "local", "--plan"], "hf download"),
        (["rollout", "--agents", "runs/x@best"], "collab runs list"),
        (["transfer", "--resume", "nowhere"], "collab runs list"),
        (["export", "nowhere", "--out", "x"], "collab runs list"),
        (["runs", "show", "nowhere"], "collab runs list"),
        (["report", "nowhere"], "collab runs list"),
        (["pairs", "list", "nowhere"], "collab runs list"),
        (["runs", "export", "nowhere", "--parquet", "x"], "collab runs list"),
        (["runs", "list", "nowhere"], "collab runs list"),
        (
            ["finetune", "--stage", "sft", "--base", "x", "--data", "nowhere", "--preset", "pocket", "--out", "y"],
            "collab ",
        ),
        (["rollout", "--agents", "nowhere"], "collab agents list"),
        (["rollout", "--graph", "nowhere"], "collab graph list"),
        (["rollout", "--env", "nowhere"], "collab env list"),
        (["rollout", "--library", "nowhere"], "collab agents list"),
        (["rollout", "--split", "nowhere", "--agents", "rehearsal"], "collab env splits androidworld"),
        (["rollout", "--agents", "ada=runs/x@best,ben=y"], "collab export runs/x@best --out DIR"),
        (["rollout", "--agents", "rehearsal", "--tasks", "nowhere"], "collab env tasks"),
        (["rollout", "--agents", "rehearsal", "--tasks", "tag:nowhere"], "collab env tasks"),
        (["rollout", "--agents", "rehearsal", "--backend", "nowhere"], "collab env list"),
        (["pairs", "list", "run"], "collab pairs rebuild"),
        (["eval", "--compare", "nowhere", "nowhere"], "collab runs list"),
        (["runs", "table", "nowhere"], "collab "),
        (["view", "nowhere"], "collab runs list"),
        (["runs", "overlap", "nowhere"], "collab runs list"),
    ],
)
def test_what_is_not_there_names_the_next_command(somewhere, capsys, arguments, command):
    pytest.importorskip("transformers")
    if arguments[-1] == "run":
        main(["rollout", "--env", "corridor", "--agents", "rehearsal", "--episodes", "1", "--out", "run"])
    capsys.readouterr()
    assert command in complaint(capsys, *arguments)


def test_a_dead_server_names_the_next_command(somewhere, capsys):
    assert main(["rollout", "--env", "corridor", "--agents", "dead"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "start the server or correct base_url" in line
    assert "then try: collab agents check dead; vLLM's own: collab serve" in line


def test_a_dead_server_of_a_critic_names_the_command_that_asks_it_once(somewhere, capsys):
    judge = somewhere / "my judge.yaml"
    engine = "{kind: openai, options: {model: nobody, base_url: 'http://127.0.0.1:1/v1', retries: 0}}"
    judge.write_text(f"kind: llm\noptions: {{model: {engine}}}\n")
    assert main(["critic", "calibrate", "--critic", str(judge), "--env", "corridor", "--cases", "4"]) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert f"then try: collab agents check '{judge}'; vLLM's own" in line
    assert main(["agents", "check", str(judge)]) == 1
    assert "cannot be reached" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("tasks", "said"),
    [
        ("search", "tasks: write all, or a list of names and tags: tasks: [search], got 'search'"),
        ("tag:easy", "tasks: write all, or a list of names and tags: tasks: [tag:easy], got 'tag:easy'"),
        ("5", "tasks: Input should be 'all' or a valid list, got 5"),
        ("[TypeWord, 5]", "tasks.1: Input should be a valid string, got 5"),
    ],
)
def test_tasks_of_an_environment_that_are_no_list_say_how_they_are_written(somewhere, capsys, tasks, said):
    file = Path(LIBRARY, "envs/corridor.yaml")
    Path("mine.yaml").write_text(f"{file.read_text()}tasks: {tasks}\n")
    line = len(file.read_text().splitlines()) + 1
    for command in (("env", "tasks", "mine.yaml"), ("rollout", "--env", "mine.yaml", "--agents", "rehearsal")):
        assert complaint(capsys, *command) == f"error: mine.yaml:{line}: {said}"
