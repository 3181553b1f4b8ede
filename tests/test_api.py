"""The Python face does what the commands do, in a script as in a notebook, where a loop of events runs already."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import collab
from collab.api import _TAKES
from collab.cli.main import main
from collab.errors import UsageError

LIBRARY = str(Path(__file__).parent / "cli" / "library")
DOCS = Path(__file__).parents[1] / "docs" / "python.md"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLLAB_LIBRARY", LIBRARY)
    return tmp_path


def played(path: str) -> list[tuple[str, int]]:
    with collab.open_run(path) as run:
        return sorted((one.id, one.seed) for one in run.list_episodes())


def test_settings_tasks_and_agents_mean_what_they_mean_on_the_command_line() -> None:
    command = ["rollout", "--env", "corridor", "--agents", "rehearsal", "--tasks", "tag:press,TypeWord", "--seed", "3"]
    assert main([*command, "--set", "graph.rounds=1", "--set", "agents.*.history=2", "--out", "one"]) == 0
    given = {"graph.rounds": 1, "agents.*.history": 2}
    slots = dict.fromkeys(("ada", "ben", "cyd", "dee"), "rehearsal")
    asyncio.run(
        collab.collect(
            env="corridor",
            agents=slots,
            tasks="tag:press,TypeWord",
            seed=3,
            settings=given,
            out="two",
            budget="minutes=9",
        )
    )
    with collab.open_run("one") as one, collab.open_run("two") as two:
        for part in ("tasks", "graph", "agents", "episodes", "seed"):
            assert one.manifest.config[part] == two.manifest.config[part]
    assert played("one") == played("two")


@pytest.mark.parametrize("settings", ["graph.rounds=1", ["graph.rounds=1"], {"graph.rounds": 1}])
def test_settings_have_three_forms(settings: object) -> None:
    result = asyncio.run(collab.evaluate(env="corridor", agents="rehearsal", settings=settings, out="run"))  # type: ignore[arg-type]
    assert result.report.planned.episodes == 3
    with collab.open_run("run") as run:
        assert run.manifest.config["graph"]["rounds"] == 1
        assert run.manifest.seed == 30


def test_several_seeds_are_one_evaluation_that_continues() -> None:
    async def notebook() -> None:
        first = await collab.evaluate(env="corridor", agents="rehearsal", seeds="30,31", out="both", progress=False)
        assert repr(first).startswith("<SeriesResult both: seeds 30, 31, success ")
        more = await collab.evaluate(env="corridor", agents="rehearsal", seeds=[30, 31, 32], out="both", progress=False)
        assert list(more.by_seed) == [30, 31, 32]  # type: ignore[union-attr]
        assert more.report.planned.episodes == 9

    asyncio.run(notebook())
    with pytest.raises(UsageError, match=r'several seeds; name one of its 3 runs: collab.open_run\("both/seed-30"\)'):
        collab.open_run("both")


def test_it_works_in_a_running_loop_and_shows_progress_and_is_short(capsys: pytest.CaptureFixture[str]) -> None:
    async def notebook() -> collab.RunResult:
        return await collab.collect(env="corridor", agents="rehearsal", episodes=2, out="run")

    result = asyncio.run(notebook())
    shown = capsys.readouterr()
    assert shown.err == "playing 2 episodes of corridor with rehearsal on team, recorded in run\n"
    assert shown.out == ""
    told = "success 100.0% [34.2%, 100.0%] (2/2), fewer than 10: the interval says little"
    assert repr(result) == f"<RunResult run: fake[corridor], rehearsal, {told}>"
    for value in (*result.trajectories, result.report, result.trajectories[0].steps[0], collab.open_run("run")):
        assert len(repr(value)) < 160
    asyncio.run(collab.collect(env="corridor", agents="rehearsal", episodes=1, out="quiet", progress=False))
    assert capsys.readouterr().err == ""


def test_mistakes_are_those_of_the_commands() -> None:
    with pytest.raises(UsageError, match="did you mean corridor"):
        asyncio.run(collab.collect(env="coridor", agents="rehearsal"))
    with pytest.raises(UsageError, match="nothing is named"):
        asyncio.run(collab.collect(env="corridor", agents="rehearsal", tasks=","))
    with pytest.raises(UsageError, match="means nothing to the backend"):
        asyncio.run(collab.collect(env="corridor", agents="rehearsal", serial="x"))
    with pytest.raises(UsageError, match="both say which"):
        asyncio.run(collab.evaluate(env="corridor", agents="rehearsal", seed=1, seeds=[1, 2]))
    assert not Path("runs").exists()


@pytest.mark.parametrize(("name", "value"), [("episodes", 0), ("seed", "first"), ("concurrency", 0)])
def test_a_number_out_of_its_bounds_is_refused_in_one_line(name: str, value: object) -> None:
    with pytest.raises(UsageError, match=f"^what was asked for: {name}: Input should be .*, got {value!r}$"):
        asyncio.run(collab.collect(env="corridor", agents="rehearsal", **{name: value}))  # type: ignore[arg-type]
    assert not Path("runs").exists()


PLAYS, EVALUATES, TRAINS_ONE = (collab.collect, collab.evaluate, collab.train), (collab.evaluate,), (collab.train,)
WRONG: list[tuple[tuple[Callable[..., Any], ...], str, object, str]] = [
    *(
        (PLAYS, name, value, "takes a name or the path of a YAML file")
        for name in ("env", "graph")
        for value in (None, 3)
    ),
    *((PLAYS, "agents", value, "takes a name, ") for value in (["a"], None, 5, b"a", {}, {"ada": 3}, {1: "pocket"})),
    *((PLAYS, "tasks", value, "takes names, ") for value in (5, None, [3], b"a", {"a": 1}, iter("a"))),
    *((PLAYS, "settings", value, 'takes "graph.rounds=2"') for value in (3, [3], {3: 4}, None)),
    *((PLAYS, "budget", value, "takes a text, e.g.") for value in (4, ["usd=1"], {"usd": 1})),
    *((PLAYS, name, value, "takes the path of a folder") for name in ("out", "library") for value in (7, [], False)),
    *((PLAYS, name, 3, "takes a text") for name in ("backend", "split")),
    *((PLAYS, name, "no", "takes True or False") for name in ("trust", "progress")),
    *(
        (PLAYS[:2], name, value, "takes ")
        for name, value in (("serial", 5), ("allow_apps", 5), ("allow_effects", "no"))
    ),
    *((EVALUATES, "seeds", value, "takes several whole numbers") for value in (30, 3.5, {30: 31})),
    *(
        (TRAINS_ONE, name, 5, "takes ")
        for name in ("preset", "ablation", "calibrations", "allow_uncalibrated", "device", "report_to")
    ),
    (TRAINS_ONE, "out", None, "takes the path of a folder"),
    *(((collab.open_run,), "path", value, "takes the path of a folder") for value in (None, 5, ["run"], b"run")),
]


@pytest.mark.parametrize(("functions", "name", "value", "allowed"), WRONG)
def test_a_value_of_a_wrong_kind_is_refused_in_one_line(
    functions: tuple[Callable[..., Any], ...], name: str, value: object, allowed: str
) -> None:
    for function in functions:
        given = {"agents": "pocket", "out": "run"} if function is collab.train else {}
        with pytest.raises(UsageError) as caught:
            asyncio.run(function(**{**given, name: value}))
        call, text = f"collab.{function.__name__}", str(caught.value)
        assert text.startswith(f"{call}: {name} {allowed}")
        assert text.endswith(f"; got {value!r:.80} ({type(value).__name__}); see help({call})")
        assert "\n" not in text
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize("value", [{1}, object, 3j, Path("a")])
def test_a_setting_that_no_file_can_hold_is_refused_in_one_line(value: object) -> None:
    with pytest.raises(UsageError, match=r"^settings: graph\.rounds takes what a YAML file holds: .*; got ") as caught:
        asyncio.run(collab.collect(env="corridor", agents="rehearsal", settings={"graph.rounds": value}))
    assert str(caught.value).endswith(f"; got {value!r} ({type(value).__name__})")


def test_every_parameter_but_numbers_is_checked() -> None:
    taken = {name for function in (*PLAYS, collab.open_run) for name in inspect.signature(function).parameters}
    assert taken - set(_TAKES) == {"episodes", "seed", "workers", "concurrency"}


@pytest.mark.filterwarnings("error")
def test_several_seeds_are_written_without_a_warning() -> None:
    asyncio.run(collab.evaluate(env="corridor", agents="rehearsal", seeds=[30, 31], episodes=1, out="both"))


def test_what_is_no_run_cannot_be_opened() -> None:
    with pytest.raises(UsageError, match="not a run directory"):
        collab.open_run("nowhere")


# ------------------------------------------------------------------------------------------------------------ docs

BLOCKS = re.findall(r"^```python\n(.*?)^```", DOCS.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
TRAINS = [block for block in BLOCKS if "collab.train(" in block]


async def run_as_cells(blocks: list[str]) -> dict[str, object]:
    """Run blocks as a notebook runs its cells: in one loop of events, with `await` at the top."""
    names: dict[str, object] = {}
    for block in blocks:
        code = compile(block, "a cell", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        waiting = eval(code, names)
        if inspect.iscoroutine(waiting):
            await waiting
    return names


def test_the_examples_of_the_docs_run_as_cells_of_a_notebook(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(BLOCKS) > len(TRAINS) == 1
    asyncio.run(run_as_cells([block for block in BLOCKS if block not in TRAINS]))
    out = capsys.readouterr().out
    assert "100.0% [51.0%, 100.0%] (4/4), fewer than 10: the interval says little\n" in out
    assert "30 100.0% [34.2%, 100.0%] (2/2), fewer than 10: the interval says little\n31 100.0%" in out


@pytest.mark.slow
def test_the_example_that_trains_runs_too(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    names = asyncio.run(run_as_cells(["import collab", *TRAINS]))
    best = "(1 of 1|0, the untrained team: none of 1 epoch was better)"
    assert re.fullmatch(rf"<TrainingResult runs/small: 1 epoch, best epoch {best}>", repr(names["trained"]))
    assert "critic critic-oracle: needs no calibration" in capsys.readouterr().err
    asyncio.run(collab.collect(agents="runs/small@best", episodes=1, out="played"))
    with pytest.raises(UsageError, match="a training; name one of its 2 runs"):
        collab.open_run("runs/small")


def test_every_function_takes_what_its_command_takes() -> None:
    from typer.main import get_command

    from collab.cli.main import app

    command = get_command(app)
    missing = {}
    for name, function in (("rollout", collab.collect), ("eval", collab.evaluate), ("train", collab.train)):
        options = {option.name for option in command.commands[name].params} - {"as_json", "help", "threads"}  # type: ignore[attr-defined]
        missing[name] = options - set(inspect.signature(function).parameters)
    assert missing == {"rollout": set(), "eval": {"comparing", "force"}, "train": {"resume", "plan", "replay"}}


def test_public_names_are_listed_for_completion() -> None:
    assert set(collab.__all__) <= set(dir(collab))
