"""Policies by name and by slot."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from collab.config import RunConfig, override
from collab.errors import ConfigError, GraphError, RunFormatError, UnknownName, UsageError
from collab.loop.config import TrainingConfig
from collab.loop.loop import hash_base_weights, resume
from collab.loop.policy import assign_policy, build_first_policy, make_paths_absolute
from collab.loop.record import EpochRecord, Success, TrainingDir
from collab.loop.trained import PolicyName, load_policy_agents, parse_policy
from collab.models.checkpoint_card import hash_weights
from collab.models.vllm import CONFIG, WEIGHTS
from collab.store.run_dir import RunLimits
from collab.utils.files import place_within


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


def test_a_training_without_an_epoch_is_told_how_to_name_one(tmp_path: Path) -> None:
    (tmp_path / "training.json").write_text("{}")
    with pytest.raises(UsageError, match=r"a training of a team; name an epoch: .*@best, .*@last or .*@epoch1"):
        parse_policy(str(tmp_path))


def test_an_at_in_the_path_of_an_agents_file_names_no_epoch(tmp_path: Path) -> None:
    """What is there is taken first; of what is not, the library says that it lacks it."""
    folder = tmp_path / "me@work"
    folder.mkdir()
    for name in ("mine.yaml", "mine@best"):
        (folder / name).touch()
        assert parse_policy(f"{folder}/{name}") is None
        assert parse_policy(f"ada={folder}/{name},ben=pocket") is None
    assert parse_policy(f"{folder}/missing.yaml") is parse_policy(f"ada={folder}/missing.yaml,ben=pocket") is None
    assert parse_policy(f"{folder}@best") == PolicyName(run=folder, epoch=None)
    odd = tmp_path / "rate=0.1"
    odd.mkdir()
    assert parse_policy(f"{odd}@last") == PolicyName(run=odd, epoch=None, last=True)


@pytest.mark.parametrize(
    "text", ["ada=runs/x@best,ben=runs/y@best", "ben=runs/y@best,ada=me@work/p.yaml", "ada=pocket, ben=runs/y@newest"]
)
def test_an_epoch_fills_all_slots_or_none(text: str) -> None:
    with pytest.raises(UsageError, match=r"--agents '(ada=runs/x|ben=runs/y)@\w+': .* fills all slots .*collab export"):
        parse_policy(text)


def test_a_run_is_played_by_a_policy_and_nothing_else_changes(configure_toy) -> None:
    run = configure_toy().run
    policy = build_first_policy(run, configure_toy().method).replace_trained(2, {"ada": "new"})
    team = assign_policy(run, policy, "exact")
    assert [(one.options["path"], one.options["version"]) for one in team.agents.values()] == [
        ("new", 2),
        (run.agents["ben"].options["path"], 2),
    ]
    assert team.agents["ada"].sampling == run.agents["ada"].sampling
    assert team.model_copy(update={"agents": run.agents}) == run


KEPT = "dpo.lora={rank: 4, alpha: 8}"


def test_an_adapter_is_played_over_the_first_checkpoint(configure_toy) -> None:
    config = configure_toy(KEPT)
    assert config.method.is_adapter_kept
    first = build_first_policy(config.run, config.method)
    policy = first.replace_trained(2, {"ada": "adapter"}, adapters=True)
    assert (policy.weights, policy.get_adapter(["ada"]), policy.get_adapter(["ben"])) == (
        first.weights,
        "adapter",
        None,
    )
    team = assign_policy(config.run, policy, "exact")
    ada, ben = (team.agents[slot].options for slot in ("ada", "ben"))
    assert (ada["path"], ada["adapter"], ada["version"]) == (first.weights["ada"], "adapter", 2)
    assert "adapter" not in ben
    assert "adapter" not in assign_policy(team, first, "exact").agents["ada"].options


def test_what_training_begins_with_includes_an_adapter(configure_toy, tmp_path: Path) -> None:
    """Resuming with another adapter than the first is refused, and has another hash."""
    adapter, base = tmp_path / "adapter", tmp_path / "base"
    for folder, name in ((adapter, WEIGHTS[0]), (base, "model.safetensors")):
        folder.mkdir()
        (folder / name).write_bytes(b"weights")
    (adapter / CONFIG).write_text("{}")
    plain = override(configure_toy(KEPT), [f"run.agents.*.options.path={base}"])
    config = override(plain, [f"run.agents.*.options.adapter={adapter}"])
    known, alone = (hash_base_weights(build_first_policy(one.run, one.method)) for one in (config, plain))
    assert known == {slot: f"{digest}+{hash_weights(adapter)}" for slot, digest in alone.items()}
    run = TrainingDir(tmp_path / "run")
    run.begin({"config": config.model_dump(mode="json"), "base": known, **RunLimits(device="cpu").head})
    (adapter / WEIGHTS[0]).write_bytes(b"others")
    with pytest.raises(RunFormatError, match=f"its first checkpoint has changed: {base} has"):
        asyncio.run(resume(run.path))
    (base / "model.safetensors").unlink()
    with pytest.raises(RunFormatError, match=f"the checkpoint that it began with, {base}, is not there; put it back"):
        asyncio.run(resume(run.path))


def test_a_training_names_its_checkpoints_from_anywhere(
    configure_toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative name keeps its meaning when the training is resumed in another folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    run = override(configure_toy().run, ["agents.*.options.path=mine"])
    assert {agent.options["path"] for agent in make_paths_absolute(run).agents.values()} == {str(tmp_path / "mine")}
    named = override(run, ["agents.*.options.path=built-in:pocket"])
    assert make_paths_absolute(named) == named


def served(config: TrainingConfig, model: Path | str, **options: object) -> RunConfig:
    """The same run with agents on a server."""
    own = {"model": str(model), "base_url": "http://127.0.0.1:1/v1", **options}
    agents = {
        slot: one.model_copy(update={"kind": "openai", "options": own}) for slot, one in config.run.agents.items()
    }
    return config.run.model_copy(update={"agents": agents})


def test_a_served_checkpoint_is_trained_as_adapters(configure_toy, tiny: Path, tmp_path: Path) -> None:
    """The server has the checkpoint and is told of adapters; whatever else is trained cannot be given to it."""
    config = configure_toy(KEPT, "determinism=fast")
    run = served(config, tiny)
    first = build_first_policy(run, config.method)
    assert set(first.weights.values()) == {str(tiny.resolve())}
    options = (
        assign_policy(run, first.replace_trained(1, {"ada": "adapter"}, adapters=True), "fast").agents["ada"].options
    )
    assert (options["model"], options["adapter"], options["version"]) == (str(tiny), "adapter", 1)
    assert not {"path", "determinism"} & options.keys()
    with pytest.raises(
        UsageError, match=r"of kind openai; with dpo.lora, lora.merge=false and saved=float32 each epoch"
    ):
        build_first_policy(run, configure_toy("determinism=fast").method)
    with pytest.raises(UsageError, match="determinism: exact needs kind local"):
        build_first_policy(run, configure_toy(KEPT).method)
    with pytest.raises(UsageError, match="with model 'Qwen/nowhere'; its weights must lie here"):
        build_first_policy(served(config, "Qwen/nowhere"), config.method)


def test_an_adapter_to_begin_with_is_resumed(configure_toy, tiny: Path, tmp_path: Path) -> None:
    config = configure_toy(KEPT, "determinism=fast")
    with pytest.raises(ConfigError, match=r"adapter .* is no directory with adapter_config.json here"):
        build_first_policy(served(config, tiny, adapter=str(tmp_path)), config.method)
    (tmp_path / "adapter_config.json").write_text("{}")
    first = build_first_policy(served(config, tiny, adapter=str(tmp_path)), config.method)
    assert set(first.adapters.values()) == {str(tmp_path.resolve())}
    local = {"path": str(tiny), "adapter": str(tmp_path)}
    agents = {slot: one.model_copy(update={"options": local}) for slot, one in config.run.agents.items()}
    with pytest.raises(ConfigError, match=r"has an adapter, which this method does not train further"):
        build_first_policy(config.run.model_copy(update={"agents": agents}), configure_toy().method)


def test_an_epoch_that_trained_nothing_leaves_the_policy(configure_toy) -> None:
    policy = build_first_policy(configure_toy().run, configure_toy().method)
    assert policy.replace_trained(3, {}) is policy


@pytest.fixture
def trained(configure_toy, tmp_path: Path) -> TrainingDir:
    """A training whose first epoch is over and the best."""
    folder = TrainingDir(tmp_path / "run")
    config = configure_toy()
    folder.begin({"config": config.model_dump(mode="json"), "summary": {"best": 1}})
    success = Success(successes=1, episodes=2, low=0.1, high=0.9, broken=0)
    weights = {slot: "./epochs/1/training/final" for slot in config.run.graph.slots}
    record = EpochRecord(algorithm="collabuiagents", epoch=1, version=1, weights=weights, success=success, hash="")
    folder.get_epoch(1).path.mkdir(parents=True)
    folder.get_epoch(1).record.write_text(record.model_dump_json())
    return folder


def test_best_and_numbered_epochs_fill_the_slots(trained: TrainingDir) -> None:
    final = str(trained.path.resolve() / "epochs/1/training/final")
    for epoch, last in ((None, False), (None, True), (1, False)):
        agents = load_policy_agents(PolicyName(run=trained.path, epoch=epoch, last=last), ("ben", "ada"))
        assert {slot: agent.options["path"] for slot, agent in agents.items()} == {"ada": final, "ben": final}
    record = EpochRecord(
        algorithm="collabuiagents",
        epoch=2,
        version=2,
        weights={"ada": "whole", "ben": "whole"},
        adapters={"ada": "./a"},
        hash="",
    )
    trained.get_epoch(2).path.mkdir(parents=True)
    trained.get_epoch(2).record.write_text(record.model_dump_json())
    ada = load_policy_agents(PolicyName(run=trained.path, epoch=2), ("ada", "ben"))["ada"].options
    assert (ada["path"], ada["adapter"]) == ("whole", str(trained.path.resolve() / "a"))
    first = load_policy_agents(PolicyName(run=trained.path, epoch=0), ("ada", "ben"))
    assert {agent.options["version"] for agent in first.values()} == {0}


def test_the_last_epoch_of_a_training_in_which_none_is_over_is_refused(trained: TrainingDir) -> None:
    """It is not the untrained team, which is called @epoch0."""
    trained.get_epoch(1).record.unlink()
    with pytest.raises(UsageError, match="run@last: no epoch is over yet; resume it: collab train --resume"):
        load_policy_agents(PolicyName(run=trained.path, epoch=None, last=True), ("ada", "ben"))


def test_a_graph_with_other_agents_is_refused(trained: TrainingDir) -> None:
    """Some of its own are not."""
    with pytest.raises(
        GraphError, match=r"was trained as ada, ben, the graph has ada, ben, cyd; choose .* some of them"
    ):
        load_policy_agents(PolicyName(run=trained.path, epoch=1), ("ada", "ben", "cyd"))
    assert list(load_policy_agents(PolicyName(run=trained.path, epoch=1), ("ben",))) == ["ben"]


def test_an_epoch_that_is_not_over_and_a_folder_that_is_none_are_named(trained: TrainingDir, tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="epoch2"):
        load_policy_agents(PolicyName(run=trained.path, epoch=2), ("ada", "ben"))
    with pytest.raises(RunFormatError, match=r"no training\.json"):
        load_policy_agents(PolicyName(run=tmp_path, epoch=1), ("ada", "ben"))


def test_places_within_a_training_are_told_relative_to_it(tmp_path: Path) -> None:
    assert place_within(tmp_path, str(tmp_path.resolve() / "epochs/1")) == "./epochs/1"
    assert place_within(tmp_path / "run", "/elsewhere") == "/elsewhere"
    assert place_within(tmp_path, "built-in:pocket") == "built-in:pocket"
