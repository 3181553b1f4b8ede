"""Exported policies: how they are named, what the directory holds, and that it can be played."""

from __future__ import annotations

import json
import resource
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

from collab.cli.main import main
from collab.config import AgentDefinition, override
from collab.errors import ConfigError, StoreFailure, UsageError
from collab.library import Library
from collab.loop.config import TrainingConfig
from collab.loop.export import describe_training, export, find, read_licence
from collab.loop.record import EpochRecord, ExampleCounts, Success, TrainingDir
from collab.models.checkpoint_card import hash_weights
from collab.models.vllm import CONFIG, WEIGHTS
from collab.testing.tiny_checkpoint import make_tiny_checkpoint
from collab.trainers.run_dir import FinetuneDir
from collab.utils.files import write_json

Training = Callable[..., TrainingDir]


@pytest.fixture
def training(configure_toy: Callable[..., TrainingConfig], tmp_path: Path) -> Training:
    """Makes a training of two epochs, the first of them the best, whose policies differ by slot and epoch."""

    def make(policies: str = "shared", *settings: str) -> TrainingDir:
        base = make_tiny_checkpoint(tmp_path / "base", hidden=32, layers=1)
        config = configure_toy(f"policies={policies}")
        config = override(config, [f"run.agents.*.options.path={base}", *settings])
        folder = TrainingDir(tmp_path / "run")
        digest = dict.fromkeys(config.run.graph.slots, hash_weights(base))
        folder.begin({"config": config.model_dump(mode="json"), "base": digest, "summary": {"best": 1}})
        for number in (1, 2):
            write_epoch(folder, config, number)
        return folder

    return make


def write_epoch(folder: TrainingDir, config: TrainingConfig, number: int) -> None:
    weights = {}
    for group, slots in config.groups.items():
        seed = 10 * number + sorted(config.groups).index(group)
        final = folder.get_epoch(number).get_training_dir(group) / "final"
        make_tiny_checkpoint(final, seed=seed, hidden=32, layers=1)
        weights |= dict.fromkeys(slots, f"./{final.relative_to(folder.path)}")
    record = EpochRecord(
        algorithm="collabuiagents",
        epoch=number,
        version=number,
        weights=weights,
        success=Success(successes=3, episodes=4, low=0.301, high=0.954, broken=0),
        examples={group: ExampleCounts(examples=5, digest="") for group in config.groups},
        hash="",
    )
    write_json(folder.get_epoch(number).record, record.model_dump(mode="json"))


def same_weights(one: Path, other: Path) -> bool:
    first, second = (AutoModelForCausalLM.from_pretrained(path).state_dict() for path in (one, other))
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def front(card: str) -> Mapping[str, Any]:
    """The front matter of a card."""
    found: Mapping[str, Any] = yaml.safe_load(card.split("---\n")[1])
    return found


def test_a_shared_policy_is_one_directory_that_tells_its_origin(training: Training, tmp_path: Path) -> None:
    folder = training("shared", "declared.*.temperature=[0.1,0.9]", "run.agents.*.sampling.temperature=1.5")
    done = export(find(f"{folder.path}@best"), tmp_path / "deep" / "out", merge=True, dtype=None)
    assert same_weights(done.path, folder.get_epoch(1).get_training_dir("shared") / "final")
    assert done.digests == {".": hash_weights(done.path)}
    agent = Library().load("agents", done.agents, AgentDefinition)
    assert (agent.kind, agent.options["path"], agent.prompt) == ("local", str(done.path), "pocket")
    assert (agent.context_tokens, agent.sampling.temperature, agent.sampling.max_tokens) == (2048, [0.1, 0.9], 40)
    card = (done.path / "README.md").read_text()
    assert "| success | 75.0% of 4 episodes" in card
    assert "95 % interval 30.1% to 95.4%" in card
    assert f"| base | base, digest `{hash_weights(tmp_path / 'base')[:12]}` |" in card
    assert "| epochs | 1 of 2 planned |" in card
    assert "5 pairs |" in card
    assert "adversary sampler, reference" in card
    assert f"| weights | whole; SHA-256 `{done.digests['.']}` |" in card
    assert str(tmp_path) not in card, "a card tells no places of a machine"
    assert front(card)["license"] == "unknown"
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["out"]


def test_a_card_names_no_adversary_that_no_source_needs(training: Training, tmp_path: Path) -> None:
    folder = training("shared", "method.pairs.adversary=0")
    done = export(find(f"{folder.path}@best"), tmp_path / "out", merge=False, dtype=None)
    assert "adversary" not in (done.path / "README.md").read_text()


def test_a_card_tells_replies_where_nothing_was_compared(training: Training, tmp_path: Path) -> None:
    folder = training()
    head = folder.read()
    head["config"]["method"]["objective"] = "rft"
    folder.write(head)
    done = export(find(f"{folder.path}@best"), tmp_path / "out", merge=False, dtype=None)
    assert "5 rewarded replies |" in (done.path / "README.md").read_text()


def test_epochs_are_named_and_the_last_is_the_last_that_is_over(training: Training, tmp_path: Path) -> None:
    folder = training()
    for number, (name, epoch) in enumerate({"@last": 2, "@epoch1": 1}.items()):
        done = export(find(f"{folder.path}{name}"), tmp_path / str(number), merge=False, dtype=None)
        assert done.digests["."] == hash_weights(folder.get_epoch(epoch).get_training_dir("shared") / "final")
    start = export(find(f"{folder.path}@epoch0"), tmp_path / "start", merge=False, dtype=None)
    assert start.digests["."] == hash_weights(tmp_path / "base")
    assert "| success | not measured |" in (start.path / "README.md").read_text()


def test_policies_of_their_own_are_a_directory_each(training: Training, tmp_path: Path) -> None:
    folder = training("per_agent", "declared.*.temperature=[0.1,0.9]", "run.agents.*.sampling.temperature=1.5")
    done = export(find(f"{folder.path}@best"), tmp_path / "out", merge=False, dtype=None)
    assert done.agents == f"ada={done.path}/ada/agents.yaml,ben={done.path}/ben/agents.yaml"
    for slot, temperature in (("ada", 0.1), ("ben", 0.9)):
        agent = Library().load("agents", str(done.path / slot / "agents.yaml"), AgentDefinition)
        assert (agent.options["path"], agent.sampling.temperature) == (str(done.path / slot), temperature)
        assert same_weights(done.path / slot, folder.get_epoch(1).get_training_dir(slot) / "final")
    assert done.digests["ada"] != done.digests["ben"]
    assert "--agents ada=ada/agents.yaml,ben=ben/agents.yaml" in (done.path / "README.md").read_text()


def test_agents_that_play_differently_have_a_file_each(training: Training, tmp_path: Path) -> None:
    folder = training("shared", "run.agents.ben.history=2")
    done = export(find(f"{folder.path}@best"), tmp_path / "out", merge=False, dtype=None)
    assert done.agents == f"ada={done.path}/agents-ada.yaml,ben={done.path}/agents-ben.yaml"
    assert Library().load("agents", str(done.path / "agents-ben.yaml"), AgentDefinition).history == 2


def test_a_finetuning_run_is_its_result(tiny: Path, tmp_path: Path) -> None:
    run = tmp_path / "sft"
    run.mkdir()
    write_json(run / "finetune.json", {"format": 1})
    team = TrainingDir(tmp_path / "team")
    team.begin({})
    FinetuneDir(team.get_epoch(1).get_training_dir("shared")).begin({"stage": "dpo"})
    with pytest.raises(UsageError, match="not done; resume with: collab train --resume"):
        find(str(team.get_epoch(1).get_training_dir("shared")))
    with pytest.raises(UsageError, match="not done; resume with: collab finetune --resume"):
        find(str(run))
    make_tiny_checkpoint(run / "final", hidden=32, layers=1)
    (run / "final" / "README.md").write_text("---\nlicense: mit\n---\n# Mine\n")
    card = {"stage": "sft", "preset": "mine", "recipe": {"context": 300}, "base": {"path": str(tiny), "digest": "abc"}}
    write_json(run / "final" / "card.json", card)
    done = export(find(str(run)), tmp_path / "out", merge=False, dtype=None)
    assert Library().load("agents", done.agents, AgentDefinition).context_tokens == 300
    told = (done.path / "README.md").read_text()
    assert "fine-tuned (sft)" in told
    assert front(told)["license"] == "mit"


def test_names_without_a_policy_are_refused(training: Training, tmp_path: Path) -> None:
    folder = training()
    with pytest.raises(UsageError, match=r"name an epoch: .*@best"):
        find(str(folder.path))
    with pytest.raises(UsageError, match="leave --base out"):
        find(f"{folder.path}@best", str(tmp_path))
    with pytest.raises(ConfigError, match="name RUN@best"):
        find(str(tmp_path / "nowhere"))


def test_it_is_there_whole_or_not_at_all(tiny: Path, tmp_path: Path) -> None:
    out, before = tmp_path / "out", resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    try:
        with pytest.raises(StoreFailure, match="cannot write"):
            export(find(str(tiny)), out, merge=False, dtype=None)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(tmp_path.iterdir())
    out.mkdir()
    with pytest.raises(UsageError, match="is there already"):
        export(find(str(tiny)), out, merge=False, dtype=None)
    assert not list(out.iterdir())


@pytest.mark.parametrize(
    ("config", "served"),
    [
        ({"r": 64}, "$ vllm serve BASE --enable-lora --max-lora-rank 64 --lora-modules team=.\n"),
        ({"r": 20, "rank_pattern": {"q_proj": 33}}, " --max-lora-rank 64 "),
        ({"r": 600}, None),
    ],
)
def test_an_adapters_card_starts_a_server_that_bears_its_rank(
    tiny: Path, tmp_path: Path, config: Mapping[str, Any], served: str | None
) -> None:
    """Unless told, vLLM refuses adapters of a rank above 16; one that it never bears has no such line."""
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    write_json(adapter / CONFIG, {"peft_type": "LORA", "base_model_name_or_path": str(tiny), **config})
    save_file({"weight": torch.zeros(1)}, adapter / WEIGHTS[0])
    done = export(find(str(adapter)), tmp_path / "out", merge=False, dtype=None)
    card = (done.path / "README.md").read_text()
    assert "vllm" not in card if served is None else served in card
    assert "$ collab rollout --agents agents.yaml\n" in card


def test_a_card_tells_how_much_an_epoch_plays(configure_toy: Callable[..., TrainingConfig], tmp_path: Path) -> None:
    for settings, told in ((["episodes=7"], "7 episodes"), (["episodes=null", "steps=50"], "50 steps")):
        facts = describe_training(TrainingDir(tmp_path), configure_toy(*settings), {}, 0, "shared")
        assert facts.lines["data"].startswith(f"{told} an epoch in corridor")


def test_a_card_tells_what_replies_were_sampled_with(
    configure_toy: Callable[..., TrainingConfig], tmp_path: Path
) -> None:
    for settings, told in (((), "seed 0), "), (("run.sampling_seed=1",), "seed 0 (sampled with 1)), ")):
        config = configure_toy(*settings)
        assert told in describe_training(TrainingDir(tmp_path), config, {}, 0, "shared").lines["data"]
        assert {one.sampling_seed for one in (config.run, *config.held_out)} == {1 if settings else None}


def test_a_card_tells_rates_and_heat(configure_toy: Callable[..., TrainingConfig], tmp_path: Path) -> None:
    asked = ("dpo.learning_rate=0.004", "learning_rate_decay=0.5", "exploration_temperatures=1.4")
    facts = describe_training(TrainingDir(tmp_path), configure_toy(*asked), {}, 0, "shared")
    assert facts.lines["method"].endswith(
        "learning rate 0.004, times 0.5 from epoch to epoch; rollouts sampled at temperature 1.4"
    )


def test_a_card_tells_of_an_adapter_that_training_began_with(
    configure_toy: Callable[..., TrainingConfig], tmp_path: Path
) -> None:
    facts = describe_training(
        TrainingDir(tmp_path), configure_toy(), {"base": {"ada": "b" * 64 + "+" + "a" * 64}}, 0, "shared"
    )
    assert facts.lines["base"].endswith(f", digest `{'b' * 12}`, with an adapter over it, digest `{'a' * 12}`")


def test_the_licence_is_what_the_base_says_of_itself(tmp_path: Path) -> None:
    assert read_licence(str(tmp_path)) is read_licence("built-in:none") is None
    for text, licence in (("---\nlicense: apache-2.0\n---\n", "apache-2.0"), ("# x\n", None), ("---\n[\n---\n", None)):
        (tmp_path / "README.md").write_text(text)
        assert read_licence(str(tmp_path)) == licence


def test_the_command_writes_what_the_local_engine_plays(
    capsys: pytest.CaptureFixture[str], library: Library, tiny: Path, tmp_path: Path
) -> None:
    assert main(["export", str(tiny), "--out", str(tmp_path / "out"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    play = ["rollout", "--env", "corridor", "--graph", "pair", "--library", str(library.own), "--episodes", "1"]
    short = ["--set", "agents.*.sampling.max_tokens=4", "--set", "agents.*.options.device=cpu"]
    assert main([*play, *short, "--agents", told["agents"], "--out", str(tmp_path / "run"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)
    assert main(["export", str(tiny), "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err.startswith("error: --out ")
