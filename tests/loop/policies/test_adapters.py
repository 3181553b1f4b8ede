"""Adapters: trained further in every epoch, played over their base, and merged on export."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from peft import PeftModel
from transformers import AutoModelForCausalLM

from collab.loop.export import export, find
from collab.loop.loop import start
from collab.loop.trained import load_policy_agents, parse_policy
from collab.models.checkpoint_card import hash_weights
from collab.prompts.parse import write_reply
from collab.testing import toy_team
from collab.testing.corridor import CorridorSuite
from collab.testing.fake_server import FakeServer
from collab.trainers.run_dir import FinetuneDir

pytestmark = pytest.mark.slow
LORA = "dpo.lora={rank: 4, alpha: 8}"


def train_toy(configure_toy: Any, out: Path, *settings: str) -> Path:
    """A training of two epochs that both have something to learn."""
    config = configure_toy("epochs=2", "held_out.before=false", "dpo.learning_rate=0.01", LORA, *settings)
    result = asyncio.run(start(config, out, device="cpu"))
    assert result.summary is not None
    assert all(record.trained for record in result.records if record.epoch)
    return out


def manifest(run: Path, epoch: int) -> dict[str, Any]:
    return FinetuneDir(run / f"epochs/{epoch}/training").read()


def test_an_adapter_is_resumed_and_exported(configure_finetuned, finetuned: Path, tmp_path: Path) -> None:
    run = train_toy(configure_finetuned, tmp_path / "run")
    records = [json.loads((run / f"epochs/{number}/epoch.json").read_text()) for number in (1, 2)]
    for number, record in enumerate(records, 1):
        assert set(record["adapters"].values()) == {f"./epochs/{number}/training/final"}
        assert set(record["weights"].values()) == {str(finetuned)}
    finals = [run / f"epochs/{number}/training/final" for number in (1, 2)]
    assert manifest(run, 1)["adapter"] is None
    assert manifest(run, 2)["adapter"]["digest"] == hash_weights(finals[0]) != hash_weights(finals[1])
    assert [manifest(run, number)["reference_adapter"] for number in (1, 2)] == [None, None]
    played = json.loads((run / "epochs/2/rollout/run.json").read_text())["config"]["agents"]["ada"]["options"]
    assert (played["path"], played["adapter"], played["version"]) == (str(finetuned), "./epochs/1/training/final", 1)
    name = parse_policy(f"{run}@epoch2")
    assert name is not None
    assert load_policy_agents(name, ("ada", "ben"))["ben"].options["adapter"] == str(finals[1].resolve())
    _check_exports(run, finetuned, finals[1], tmp_path)


def _check_exports(run: Path, base: Path, adapter: Path, place: Path) -> None:
    """The adapter itself, and its sum with the base: transformers and PEFT compute the same of both."""
    ids = torch.arange(40)[None] * 7 % 300
    whole = export(find(f"{run}@epoch2"), place / "whole", merge=True, dtype=None)
    alone = export(find(f"{run}@epoch2"), place / "alone", merge=False, dtype=None)
    assert hash_weights(alone.path) == hash_weights(adapter)
    over = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), alone.path)
    with torch.no_grad():
        expected = over(input_ids=ids).logits
        found = AutoModelForCausalLM.from_pretrained(whole.path)(input_ids=ids).logits
        plain = AutoModelForCausalLM.from_pretrained(base)(input_ids=ids).logits
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert float((found - plain).abs().max()) > 1e-2


def test_a_server_gets_what_each_epoch_left(finetuned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It plays the checkpoint first; then each adapter is loaded under run and epoch, played, and forgotten."""
    monkeypatch.chdir(tmp_path)
    Path("fake").symlink_to(finetuned)  # the name by which the server knows its checkpoint
    space = CorridorSuite().space
    library = toy_team.write_library(tmp_path / "library", finetuned)
    assert library.own is not None

    def says(body: Mapping[str, Any]) -> str:
        return write_reply("Press it.", space.make("click", index=1 + body.get("seed", 0) % 4), space)

    with FakeServer({"adapters", "seed"}, says=says) as server:
        agents = {"kind": "openai", "options": {"model": "fake", "base_url": server.url}, "prompt": "pocket"}
        agents |= {"context_tokens": 2048, "sampling": {"temperature": 0.7, "max_tokens": 40}}
        (library.own / "agents/served.yaml").write_text(yaml.safe_dump(agents))
        config = asyncio.run(toy_team.configure_toy_training(library, "determinism=fast", LORA, agents="served"))
        result = asyncio.run(start(config, tmp_path / "marl", device="cpu"))
    assert [bool(record.trained) for record in result.records] == [False, True, True]
    loaded = [name for what, name in server.commands if what == "load"]
    assert [name.rpartition("-")[0] for name in loaded] == ["marl-epoch1-v1", "marl-epoch1-v1", "marl-epoch2-v2"]
    assert [name for what, name in server.commands if what == "unload"] == loaded
    assert len(set(loaded)) == 2
    assert {body["model"] for body in server.requests} == {"fake", *loaded}


def test_the_epoch_before_is_a_reference_of_its_own(configure_finetuned, tmp_path: Path) -> None:
    run = train_toy(configure_finetuned, tmp_path / "run", "reference=previous", "policies=per_agent", "episodes=6")
    for slot in ("ada", "ben"):
        before, after = (FinetuneDir(run / f"epochs/{number}/training/{slot}") for number in (1, 2))
        told = after.read()
        assert told["adapter"] == told["reference_adapter"]
        assert told["adapter"]["digest"] == hash_weights(before.final)
        assert after.read_metrics()[0]["margin"] == pytest.approx(0, abs=1e-6)
