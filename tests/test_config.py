"""Putting a run together from names, slots, overrides and budgets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from collab.config import Budget, RunConfig, SamplingDefinition, fill_slots, load_environment, override
from collab.errors import ConfigError, GraphError, UnknownName
from collab.library import Library
from collab.rollout.plan import run_config

ENV = "backend: fake\nbackends:\n  fake: {kind: fake}\n"


@pytest.fixture
def library(tmp_path: Path) -> Library:
    for room, name, text in [
        ("envs", "toy", ENV),
        ("graphs", "pair", "slots: [ada, ben]\nrounds: 2\n"),
        ("agents", "echo", "kind: scripted\noptions: {replies: [hello]}\n"),
        ("agents", "other", "kind: scripted\n"),
    ]:
        path = tmp_path / room / f"{name}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return Library(own=tmp_path)


def config(library: Library, **changes: object) -> RunConfig:
    arguments: dict[str, object] = {"env": "toy", "graph": "pair", "agents": "echo"}
    return run_config(library=library, **(arguments | changes))


def test_fill_slots() -> None:
    assert fill_slots("x", ["a", "b"]) == {"a": "x", "b": "x"}
    assert fill_slots("a=x, b=y", ["a", "b"]) == {"a": "x", "b": "y"}
    with pytest.raises(GraphError, match="no agent for: b"):
        fill_slots("a=x", ["a", "b"])
    with pytest.raises(GraphError, match="no slot 'c'"):
        fill_slots("a=x,c=y", ["a", "b"])
    with pytest.raises(GraphError, match="once"):
        fill_slots("a=x,a=y", ["a", "b"])


def test_mixed_team(library: Library) -> None:
    made = config(library, agents="ada=echo,ben=other")
    assert made.agent_names == {"ada": "echo", "ben": "other"}
    assert made.agents["ada"].options == {"replies": ["hello"]}


def test_round_trip_through_json(library: Library) -> None:
    made = config(library, seed=7, episodes=3)
    assert RunConfig.model_validate_json(made.model_dump_json()) == made


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("/models/mine #2", "/models/mine #2"),
        ("#2", "#2"),
        ("7 #2", "7 #2"),
        ("'/models/mine #2'", "/models/mine #2"),
        ("{a: 'b #2'}", {"a": "b #2"}),
        ("a#b", "a#b"),
        (" 7 ", 7),
        ("", None),
    ],
)
def test_values_hold_no_comments(library: Library, text: str, value: Any) -> None:
    made = override(config(library), [f"environment.backends.fake.options.path={text}"])
    assert made.environment.backends["fake"].options["path"] == value


def test_overrides(library: Library) -> None:
    made = override(
        config(library), ["graph.rounds=4", "agents.*.history=1", "agents.ada.sampling.temperature=0.9", "seed=3"]
    )
    assert made.graph.rounds == 4
    assert [agent.history for agent in made.agents.values()] == [1, 1]
    assert made.agents["ada"].sampling.temperature == 0.9
    assert made.seed == 3


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("graph.ruonds=4", "graph.ruonds"),
        ("grahp.rounds=4", "did you mean graph"),
        ("graph.rounds", "write it as a.b=value"),
        ("graph.rounds=0", "greater than or equal to 1"),
        ("graph.rounds.x=1", "'2' is a plain value without 'x'"),
        ("graph.rounds=[", "not YAML"),
        ("environment.tasks=- a #b", "'#' begins a comment there; put what it belongs to in quotes"),
        ("graph.rounds=[4] # or 5", "'#' begins a comment there; put what it belongs to in quotes"),
    ],
)
def test_bad_overrides(library: Library, setting: str, message: str) -> None:
    with pytest.raises((ConfigError, UnknownName), match=message):
        override(config(library), [setting])


def test_unknown_names(library: Library) -> None:
    with pytest.raises(UnknownName, match="no environment called 'toi'; did you mean toy"):
        config(library, env="toi")
    with pytest.raises(UnknownName, match="no backend of toy called 'emulator'; known: fake"):
        config(library, backend="emulator")


def test_a_task_file_is_looked_up_beside_its_definition_then_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("my/envs/tasks/a.yaml", "here/tasks/a.yaml", "here/tasks/b.yaml"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text("tasks: []")
    given = {"a": "tasks/a.yaml", "b": "tasks/b.yaml", "c": "tasks/c.yaml", "d": [], "e": str(tmp_path / "x.yaml")}
    backends = "".join(f"  {name}: {{kind: web, options: {{tasks: {tasks}}}}}\n" for name, tasks in given.items())
    (tmp_path / "my" / "envs" / "shop.yaml").write_text(f"backend: a\nbackends:\n{backends}  f: {{kind: web}}\n")
    monkeypatch.chdir(tmp_path / "here")
    found = load_environment(Library(own=tmp_path / "my"), "shop").backends
    wanted = given | {"a": str(tmp_path / "my/envs/tasks/a.yaml"), "b": str(tmp_path / "here/tasks/b.yaml")}
    assert {name: part.options.get("tasks") for name, part in found.items()} == wanted | {"f": None}


def test_temperatures_per_slot() -> None:
    sampling = SamplingDefinition(temperature=[0.1, 0.3])
    assert sampling.of(1, 2, "agents/x").temperature == 0.3
    assert sampling.of(0, 1, "agents/x").temperature == 0.1
    with pytest.raises(ConfigError, match="2 values, the graph has 3 slots"):
        sampling.of(0, 3, "agents/x")


def test_budget() -> None:
    assert Budget.parse("usd=2, tokens=1e6") == Budget(usd=2, tokens=1_000_000)
    with pytest.raises(UnknownName, match="did you mean tokens"):
        Budget.parse("token=5")
    with pytest.raises(ConfigError, match="not a number"):
        Budget.parse("usd=lots")
    with pytest.raises(ConfigError, match="greater than 0"):
        Budget.parse("minutes=0")
    for endless in ("minutes=inf", "usd=inf", "tokens=inf", "usd=nan"):
        with pytest.raises(ConfigError, match="finite"):
            Budget.parse(endless)
