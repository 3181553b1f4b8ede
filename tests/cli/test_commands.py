"""Every command that only looks: its output for people, and its JSON for scripts."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from collab.cli import env
from collab.cli.main import app, main
from collab.envs.check import CheckReport
from collab.envs.web import browser
from collab.errors import UsageError
from collab.testing.fake_server import FakeServer

LIBRARY = str(Path(__file__).parent / "library")

COMMANDS = {
    "": [
        "demo",
        "doctor",
        "eval",
        "export",
        "finetune",
        "report",
        "rollout",
        "serve",
        "synth",
        "train",
        "train-marl",
        "transfer",
        "verify-resume",
        "view",
    ],
    "agents": ["check", "dialects", "list"],
    "checkpoint": ["add-vision", "new"],
    "critic": ["calibrate", "rows"],
    "verifier": ["agree", "rows"],
    "env": ["check", "list", "splits", "tasks"],
    "graph": ["list", "show", "validate"],
    "pairs": ["explain", "list", "rebuild", "rows", "show"],
    "phone": ["serve"],
    "runs": ["export", "list", "overlap", "resume", "show", "table"],
    "workers": ["status"],
}

Result = tuple[int, str, str]


@pytest.fixture
def collab(run_command, monkeypatch: pytest.MonkeyPatch):
    """Runs a command with the test library: (exit code, stdout, stderr)."""
    monkeypatch.setenv("COLLAB_LIBRARY", LIBRARY)
    return run_command


def read(result: Result) -> Any:
    """The one JSON document of a command that went well."""
    code, out, _ = result
    assert code == 0
    return json.loads(out)


def test_the_list_of_commands_is_pinned():
    groups = {group.name: group.typer_instance for group in app.registered_groups}
    found = {name: sorted(one.name for one in group.registered_commands) for name, group in groups.items()}
    assert found | {"": sorted(one.name for one in app.registered_commands)} == COMMANDS


@pytest.mark.parametrize(
    "path",
    [[], *([group] for group in COMMANDS if group), *([g, c] if g else [c] for g, cs in COMMANDS.items() for c in cs)],
)
def test_every_command_explains_itself(collab, path):
    code, out, err = collab(*path, "--help")
    assert code == 0
    assert f"Usage: collab {' '.join(path)}".rstrip() in out
    assert not err


def test_a_group_alone_prints_its_help(collab):
    code, out, err = collab("graph")
    assert code == 2
    assert "validate" in out
    assert not err


def test_version(collab):
    import collab as package

    assert collab("--version") == (0, f"collab {package.__version__}\n", "")


# ---------------------------------------------------------------------------------------------------------- graph


def test_graph_list_names_built_in_and_own_graphs(collab):
    code, out, _ = collab("graph", "list")
    assert code == 0
    assert {"team", "single", "cycle"} <= {line.split()[0] for line in out.splitlines()}
    assert read(collab("graph", "list", "--json"))["team"]["edges"] == {"sampler": "ordered", "p": 0.5, "widths": None}


def test_graph_show_prints_layers_and_writes_pictures(collab, tmp_path):
    code, out, _ = collab("graph", "show", "layered4", "--svg", str(tmp_path / "team.svg"))
    assert code == 0
    assert "layer 3   dee  hears ben, cyd" in out
    assert (tmp_path / "team.svg").read_text().startswith("<svg")
    assert collab("graph", "show", "layered4", "--mermaid")[1].startswith("flowchart LR\n")


def test_graph_show_draws_sampled_edges_with_the_seed(collab):
    shown = [read(collab("graph", "show", "team", "--seed", seed, "--json"))["drawn_edges"] for seed in ("1", "1", "2")]
    assert shown[0] == shown[1] != shown[2]


def test_graph_show_says_when_the_picture_cannot_be_written(collab, tmp_path):
    code, _, err = collab("graph", "show", "team", "--svg", str(tmp_path / "no" / "team.svg"))
    assert (code, err.count("\n")) == (1, 1)
    assert "cannot be written" in err


def test_graph_validate_tells_every_broken_graph(collab):
    code, out, err = collab("graph", "validate")
    assert code == 2
    assert "team: ok" in out
    assert "error: cycle: the edges form a cycle: ada → ben → cyd → ada" in err
    assert "error: stranger: edge ada → bob: no slot called 'bob'" in err
    code, out, _ = collab("graph", "validate", "cycle", "team", "--json")
    assert (code, {name: one["ok"] for name, one in json.loads(out).items()}) == (2, {"cycle": False, "team": True})


# --------------------------------------------------------------------------------------------------------- agents


def test_agents_list(collab):
    code, out, _ = collab("agents", "list")
    assert code == 0
    assert "parrot" in out
    assert read(collab("agents", "list", "--json"))["rehearsal"]["kind"] == "rehearsal"


def test_agents_check_sends_one_tiny_prompt(collab):
    code, out, _ = collab("agents", "check", "parrot")
    assert code == 0
    assert "answered 'Reason: the first one." in out


def test_agents_check_takes_the_settings_of_a_run(collab):
    command = ("agents", "check", "parrot", "rehearsal", "--no-call", "--json")
    settings = ("--set", "agents.*.history=0", "--set", "agents.parrot.options.name=polly")
    assert read(collab(*command, *settings))["parrot"]["model"] == "polly"
    for setting, hint in (
        ("agents.parot.history=0", "no setting called 'parot'; did you mean parrot?; in --set"),
        ("agents.*.histroy=0", "agents.parrot.histroy: no key called 'histroy'; did you mean history?"),
        ("history=0", "no key called 'history'"),
    ):
        code, _, err = collab(*command, "--set", setting)
        assert (code, err.count("\n")) == (2, 1)
        assert hint in err


def test_agents_check_leaves_a_rehearsal_unasked_and_says_what_it_is(collab):
    answer = read(collab("agents", "check", "rehearsal", "--json"))["rehearsal"]
    assert (answer["note"].partition(";")[0], answer["reply"]) == ("rehearsal: not a language model", None)
    assert "rehearsal: not a language model" in collab("agents", "check", "rehearsal")[1]


def test_agents_check_shows_what_a_server_supports(collab, tmp_path):
    with FakeServer(supports={"seed", "logprobs"}) as server:
        path = tmp_path / "served.yaml"
        path.write_text(f"kind: openai\noptions: {{model: fake, base_url: {server.url}}}\n")
        answer = read(collab("agents", "check", str(path), "--json"))[str(path)]
        assert answer["capabilities"]["seed"] is True
        assert answer["capabilities"]["images"] is False
        assert answer["reply"]["text"]
        seen = len(server.requests)
        assert read(collab("agents", "check", str(path), "--no-call", "--json"))[str(path)]["reply"] is None
        assert len(server.requests) == seen


def test_agents_that_should_see_with_a_model_that_cannot_are_refused(collab, tmp_path):
    with FakeServer() as server:
        path = tmp_path / "agent.yaml"
        options = f"{{model: fake, base_url: '{server.url}', api_key_env: ''}}"
        path.write_text(f"kind: openai\noptions: {options}\nmodality: both\n")
        for command in (
            ("agents", "check", str(path)),
            ("rollout", "--env", "corridor", "--agents", str(path), "--out", str(tmp_path / "run")),
        ):
            code, _, err = collab(*command)
            assert (code, err.count("\n")) == (2, 1)
            assert "modality: both, but its model takes no pictures; use modality: text" in err
    assert not (tmp_path / "run").exists()


def test_agents_check_shows_the_hit_rate_of_the_prefix_cache(collab, tmp_path):
    with FakeServer(supports={"metrics"}) as server:
        path = tmp_path / "served.yaml"
        path.write_text(f"kind: openai\noptions: {{model: fake, base_url: {server.url}, concurrency: 4}}\n")
        _, out, _ = collab("agents", "check", str(path))
        cache = read(collab("agents", "check", str(path), "--json"))[str(path)]["prefix_cache"]
    assert re.search(r"prefix cache: \d+% of \d+ prompt tokens found", out)
    assert "concurrency: 4 of at most 4" in out
    assert cache["rate"] == cache["hits"] / cache["queries"] > 0.4, "the second of two checks asks the same"


# ------------------------------------------------------------------------------------------------------------ env


def test_env_list(collab):
    assert "corridor" in collab("env", "list")[1]
    assert list(read(collab("env", "list", "--json"))["corridor"]["backends"]) == ["fake", "slow", "broken", "partly"]


def test_env_tasks_can_be_chosen_by_tag(collab):
    assert "fake[corridor]: 3 tasks, 3 with a known solution" in collab("env", "tasks", "corridor")[1]
    found = read(collab("env", "tasks", "corridor", "--tasks", "tag:press", "--json"))
    assert [task["name"] for task in found["tasks"]] == ["PressButton", "OpenDoors"]
    assert found["environment"] == "fake[corridor]"


def test_env_check_passes_an_honest_environment(collab):
    code, out, _ = collab("env", "check", "corridor", "--quick")
    assert code == 0
    assert "fake[corridor] (version 1): ok" in out
    assert "not claimed" in out


def test_env_check_takes_settings_as_a_run_does(collab):
    preset = "environment.backends.simphone.options.preset"
    code, out, _ = collab(
        "env", "check", "androidworld", "--quick", "--tasks", "ClockTimerEntry", "--set", f"{preset}=daily"
    )
    assert code == 0
    assert "androidworld[simphone, daily] (version simphone-2, daily): ok" in out


def test_env_check_names_every_broken_promise(collab):
    code, out, _ = collab("env", "check", "corridor", "--quick", "--backend", "broken", "--tasks", "TypeWord")
    assert code == 1
    assert "BROKEN" in out
    assert "failed: TypeWord: budget: seed 0: fake environment: broke at step 1, as asked by fail_at" in out
    code, out, _ = collab("env", "check", "corridor", "--quick", "--backend", "broken", "--json")
    assert (code, json.loads(out)[0]["ok"]) == (1, False)


# --------------------------------------------------------------------------------------------------------- doctor


@pytest.mark.slow
def test_doctor_says_what_is_there_and_what_mends_the_rest(collab, monkeypatch):
    monkeypatch.setattr("collab.store.manifest.get_version", lambda package: None if package == "pyarrow" else "1.0")
    code, out, _ = collab("doctor", "--timeout", "2")
    assert code == 0
    assert "parquet: pip install 'collab-marl[parquet]'" in out
    assert "cannot be reached" in out, "the dead server of the test library"
    checks = {check["name"]: check for check in json.loads(collab("doctor", "--json")[1])["checks"]}
    assert checks["core"]["status"] == "ok"
    assert "typer 1.0" in checks["core"]["detail"]
    assert checks["agents/dead"]["mend"].endswith("collab agents check dead")


def test_doctor_shows_the_capabilities_of_a_server_that_answers(collab, tmp_path, monkeypatch):
    with FakeServer(supports={"seed"}) as server:
        (tmp_path / "agents").mkdir()
        definition = f"kind: openai\noptions: {{model: fake, base_url: {server.url}}}\n"
        (tmp_path / "agents" / "served.yaml").write_text(definition)
        _, out, _ = collab("doctor", "--library", str(tmp_path))
    assert "fake answers; supports seed" in out


def test_doctor_says_which_key_is_missing(collab, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    _, out, _ = collab("doctor", "--timeout", "1")
    assert "the environment variable OPENAI_API_KEY is not set" in out
    assert "agents/openai: export your key in it" in out


def test_doctor_without_a_browser_gives_the_command(collab, monkeypatch):
    def nothing() -> None:
        raise UsageError("there is no browser")

    monkeypatch.setattr(browser, "find_browser", nothing)
    code, out, _ = collab("doctor", "--timeout", "1")
    assert code == 0, "a browser is optional"
    assert "browser: run `playwright install chromium`" in out


def test_doctor_fails_on_what_was_asked_for_and_does_not_work(collab, monkeypatch, tmp_path):
    monkeypatch.setenv("COLLAB_BROWSER", str(tmp_path / "nowhere"))
    code, out, _ = collab("doctor", "--timeout", "1", "--json")
    found = json.loads(out)
    assert (code, found["ok"]) == (1, False)
    assert [check["name"] for check in found["checks"] if check["status"] == "broken"] == ["browser"]


def test_doctor_names_a_file_that_cannot_be_read(collab, tmp_path):
    (tmp_path / "graphs").mkdir()
    (tmp_path / "graphs" / "odd.yaml").write_text("slots: [ada]\nround: 2\n")
    code, out, _ = collab("doctor", "--library", str(tmp_path))
    assert code == 1
    assert "odd.yaml:2: round: no key called 'round'; did you mean rounds?" in out


def test_check_all_leaves_out_what_would_do_lasting_things(collab, monkeypatch):
    checked = []

    async def remember(name, *rest):
        checked.append(name)
        return CheckReport(label=name, version="1", findings=(), seconds=0.0)

    monkeypatch.setattr(env, "_check", remember)
    code, _, err = collab("env", "check", "--all")
    assert code == 0
    assert {"androidworld", "miniwob", "mobile-miniwob", "web"} <= set(checked)
    assert "device" not in checked
    assert "have lasting effects: device" in err
    collab("env", "check", "device")
    assert checked[-1] == "device"


# ------------------------------------------------------------------------------------------------------------ help


def every_command(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, inner in getattr(command, "commands", {}).items():
        yield from every_command(inner, (*path, name))
    if not hasattr(command, "commands"):
        yield path, command


BUILT = dict(every_command(get_command(app)))


@pytest.mark.parametrize("path", BUILT, ids=" ".join)
def test_every_help_has_an_example_that_can_be_typed_and_flags_without_values(path, capsys):
    assert main([*path, "--help"]) == 0
    shown = capsys.readouterr().out
    assert "bool" not in shown
    _, _, example = " ".join(shown.split()).partition("Example: ")
    words = shlex.split(example)
    assert tuple(words[: len(path) + 1]) == ("collab", *path)
    BUILT[path].make_context(" ".join(path), words[len(path) + 1 :])


def test_an_option_is_no_value_of_another_one(collab, tmp_path):
    code, _, err = collab("rollout", "--env", "corridor", "--agents", "rehearsal", "--out", "--json")
    assert (code, err) == (2, "error: --out needs a value, and --json is an option; give it one, or leave --out out\n")
    assert not Path("--json").exists()
    code, _, err = collab("runs", "list", "--json", "--help")
    assert code == 0
