"""A checkpoint that the method cannot train is refused before the first episode."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    Gemma2Config,
    GPTJConfig,
    Llama4TextConfig,
    MambaConfig,
    PreTrainedConfig,
    Qwen2Config,
)

from collab.config import override
from collab.errors import ConfigError
from collab.loop.checks import check_bases
from collab.loop.config import TrainingConfig
from collab.loop.policy import build_first_policy


def check(config: TrainingConfig) -> None:
    check_bases(config, build_first_policy(config.run, config.method))


LORA = ("dpo.lora={rank: 2, alpha: 4}",)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (("dpo.context=100000",), r"^[^-].*: reads \d+ tokens, the recipe has context 100000; --set dpo\.context=\d+"),
        ((*LORA, "dpo.lora.targets=[q_proj, nowhere]"), "lora.targets nowhere: no linear layer"),
    ],
)
def test_what_does_not_fit_a_checkpoint_is_refused(
    configure_toy, tiny: Path, settings: tuple[str, ...], said: str
) -> None:
    fits = override(configure_toy(*LORA), [f"run.agents.*.options.path={tiny}"])
    check(fits)
    with pytest.raises(ConfigError, match=said):
        check(override(configure_toy(*settings), [f"run.agents.*.options.path={tiny}"]))


def test_layers_that_share_no_prefixes_are_refused_unless_each_prompt_is_computed_alone(
    configure_toy, tiny: Path, tmp_path: Path
) -> None:
    sliding = tmp_path / "sliding"
    shutil.copytree(tiny, sliding)
    config = json.loads((sliding / "config.json").read_text())
    config |= {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 0, "layer_types": None}
    (sliding / "config.json").write_text(json.dumps(config))
    path = f"run.agents.*.options.path={sliding}"
    with pytest.raises(ConfigError, match=r"not all full attention \(sliding_attention\); set dpo.sharing=none"):
        check(override(configure_toy("dpo.sharing=prefix"), [path]))
    check(override(configure_toy("dpo.sharing=none"), [path]))


def test_an_adapter_of_other_modules_than_the_recipes_is_refused(configure_toy, tiny: Path, tmp_path: Path) -> None:
    """It would be played, judged and paid for before training found it out."""
    model = AutoModelForCausalLM.from_pretrained(tiny)
    get_peft_model(model, LoraConfig(r=2, lora_alpha=4, target_modules=["q_proj"])).save_pretrained(tmp_path / "q")
    options = [f"run.agents.*.options.path={tiny}", f"run.agents.*.options.adapter={tmp_path / 'q'}"]
    check(override(configure_toy(*LORA, "dpo.lora.targets=[q_proj]"), options))
    with pytest.raises(ConfigError, match=r"made for other modules .* it has q_proj: set lora.targets to these"):
        check(override(configure_toy(*LORA), options))


SMALL = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
GPTJ = GPTJConfig(n_embd=64, n_layer=2, n_head=4, rotary_dim=8, n_positions=4096)
GEMMA = Gemma2Config(**SMALL, num_key_value_heads=2, head_dim=16)
ROUTED = Qwen2Config(**SMALL, output_router_logits=False, router_aux_loss_coef=0.01)
MAMBA = MambaConfig(hidden_size=64, num_hidden_layers=2, state_size=8, time_step_rank=8)


def write_model(config: PreTrainedConfig, tiny: Path, folder: Path) -> str:
    """A random checkpoint of this configuration; the setting that plays it."""
    tokenizer = AutoTokenizer.from_pretrained(tiny)
    tokenizer.save_pretrained(folder)
    config.vocab_size, config.bos_token_id, config.eos_token_id, config.pad_token_id = len(tokenizer), None, 2, 0
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return f"run.agents.*.options.path={folder}"


@pytest.mark.parametrize(
    ("config", "settings", "said"),
    [
        (GPTJ, ("dpo.sharing=prefix",), r"attention of their own; set dpo\.sharing=none"),
        (GEMMA, ("dpo.temperature=1.5",), r"more than a product .* train it with temperature 1"),
        (MAMBA, (*LORA, "dpo.lora.targets=all-linear"), r"lora\.targets: .*out_proj.* name others"),
    ],
)
def test_what_a_family_cannot_do_is_found_before_the_first_episode(
    configure_toy, tiny: Path, tmp_path: Path, config: PreTrainedConfig, settings: tuple[str, ...], said: str
) -> None:
    path = write_model(config, tiny, tmp_path / "model")
    plain = ("dpo.sharing=none", "dpo.temperature=1")
    check(override(configure_toy(*plain), [path]))
    with pytest.raises(ConfigError, match=said):
        check(override(configure_toy(*plain, *settings), [path]))


def test_a_family_without_a_part_of_its_layers_alone_is_found_before_the_first_episode(
    configure_toy, tiny: Path, tmp_path: Path
) -> None:
    config = Llama4TextConfig(
        **SMALL, intermediate_size_mlp=96, num_key_value_heads=2, head_dim=16, num_local_experts=2
    )
    path = write_model(config, tiny, tmp_path / "model")
    with pytest.raises(ConfigError, match=r"llama4_text cannot be trained here: .* without its output layer"):
        check(override(configure_toy(), [path]))


def test_experts_that_cannot_be_counted_are_found_before_the_first_episode(
    configure_toy, tiny: Path, tmp_path: Path
) -> None:
    path = write_model(ROUTED, tiny, tmp_path / "model")
    with pytest.raises(ConfigError, match=r"no num_experts, .* set router_aux_loss_coef to 0 in its config\.json"):
        check(override(configure_toy(), [path]))
