"""Policies by name and by slot."""

from __future__ import annotations

from pathlib import Path

import pytest

from collab.errors import GraphError, RunFormatError, UnknownName, UsageError
from collab.marl.layout import MarlFolder
from collab.marl.policy import PolicyName, agents_of, first_policy, parse_policy, playing, told
from collab.marl.summary import Record, Success


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("runs/x@best", PolicyName(run=Path("runs/x"), epoch=None)),
        ("runs/x@epoch3", PolicyName(run=Path("runs/x"), epoch=3)),
        ("runs/x@last", PolicyName(run=Path("runs/x"), epoch=None, last=True)),
        ("odd@place/x@epoch10", PolicyName(run=Path("odd@place/x"), epoch=10)),
        ("pocket", None),
    ],
)
def test_a_policy_is_named_by_its_training(text: str, name: PolicyName | None) -> None:
    assert parse_policy(text) == name


@pytest.mark.parametrize("text", ["runs/x@newest", "runs/x@epoch", "@best", "runs/x@epoch-1"])
def test_other_names_with_an_at_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="RUN@best or RUN@epoch3"):
        parse_policy(text)


def test_a_run_is_played_by_a_policy_and_nothing_else_changes(configured) -> None:
    run = configured().run
    policy = first_policy(run, configured().method).updated(2, {"ada": "new"})
    team = playing(run, policy, "exact")
    assert [(one.options["path"], one.options["version"]) for one in team.agents.values()] == [
        ("new", 2),
        (run.agents["ben"].options["path"], 2),
    ]
    assert team.agents["ada"].sampling == run.agents["ada"].sampling
    assert team.model_copy(update={"agents": run.agents}) == run


def test_an_epoch_that_trained_nothing_leaves_the_policy(configured) -> None:
    policy = first_policy(configured().run, configured().method)
    assert policy.updated(3, {}) is policy


@pytest.fixture
def trained(configured, tmp_path: Path) -> MarlFolder:
    """A training whose first epoch is over and the best."""
    folder = MarlFolder(tmp_path / "run")
    config = configured()
    folder.create({"config": config.model_dump(mode="json"), "summary": {"best": 1}})
    success = Success(successes=1, episodes=2, low=0.1, high=0.9, broken=0)
    weights = {slot: "./epochs/1/training/final" for slot in config.run.graph.slots}
    record = Record(epoch=1, version=1, weights=weights, success=success, hash="")
    folder.epoch(1).path.mkdir(parents=True)
    folder.epoch(1).record.write_text(record.model_dump_json())
    return folder


def test_best_and_numbered_epochs_fill_the_slots(trained: MarlFolder) -> None:
    final = str(trained.path.resolve() / "epochs/1/training/final")
    for epoch, last in ((None, False), (None, True), (1, False)):
        agents = agents_of(PolicyName(run=trained.path, epoch=epoch, last=last), ("ben", "ada"))
        assert {slot: agent.options["path"] for slot, agent in agents.items()} == {"ada": final, "ben": final}
    first = agents_of(PolicyName(run=trained.path, epoch=0), ("ada", "ben"))
    assert {agent.options["version"] for agent in first.values()} == {0}


def test_a_graph_with_other_agents_is_refused(trained: MarlFolder) -> None:
    with pytest.raises(GraphError, match="was trained as ada, ben, the graph has ada, ben, cyd"):
        agents_of(PolicyName(run=trained.path, epoch=1), ("ada", "ben", "cyd"))


def test_an_epoch_that_is_not_over_and_a_folder_that_is_none_are_named(trained: MarlFolder, tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="epoch2"):
        agents_of(PolicyName(run=trained.path, epoch=2), ("ada", "ben"))
    with pytest.raises(RunFormatError, match=r"no marl\.json"):
        agents_of(PolicyName(run=tmp_path, epoch=1), ("ada", "ben"))


def test_places_within_a_training_are_told_relative_to_it(tmp_path: Path) -> None:
    assert told(tmp_path, str(tmp_path.resolve() / "epochs/1")) == "./epochs/1"
    assert told(tmp_path / "run", "/elsewhere") == "/elsewhere"
    assert told(tmp_path, "built-in:pocket") == "built-in:pocket"
