"""A method that cannot train a checkpoint is found before anybody plays."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from collab.config import override
from collab.errors import ConfigError
from collab.marl.suited import check_suited

LORA = ("dpo.lora={rank: 2, alpha: 4}", "dpo.final_norm_learning_rate=null")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (("dpo.context=100000",), r"^[^-].*: reads \d+ tokens, the recipe has context 100000; --set dpo\.context=\d+"),
        ((*LORA, "dpo.lora.targets=[q_proj, nowhere]"), "lora.targets nowhere: no linear layer"),
    ],
)
def test_what_does_not_fit_a_checkpoint_is_refused(
    configured, tiny: Path, settings: tuple[str, ...], said: str
) -> None:
    fits = override(configured(*LORA), [f"run.agents.*.options.path={tiny}"])
    check_suited(fits)
    with pytest.raises(ConfigError, match=said):
        check_suited(override(configured(*settings), [f"run.agents.*.options.path={tiny}"]))


def test_layers_that_share_no_prefixes_are_refused_unless_each_prompt_is_computed_alone(
    configured, tiny: Path, tmp_path: Path
) -> None:
    sliding = tmp_path / "sliding"
    shutil.copytree(tiny, sliding)
    config = json.loads((sliding / "config.json").read_text())
    config |= {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 0, "layer_types": None}
    (sliding / "config.json").write_text(json.dumps(config))
    path = f"run.agents.*.options.path={sliding}"
    with pytest.raises(ConfigError, match=r"not all full attention \(sliding_attention\); set dpo.sharing=none"):
        check_suited(override(configured("dpo.sharing=prefix"), [path]))
    check_suited(override(configured("dpo.sharing=none"), [path]))


def test_an_adapter_of_other_modules_than_the_recipes_is_refused(configured, tiny: Path, tmp_path: Path) -> None:
    """It would be played, judged and paid for before training found it out."""
    model = AutoModelForCausalLM.from_pretrained(tiny)
    get_peft_model(model, LoraConfig(r=2, lora_alpha=4, target_modules=["q_proj"])).save_pretrained(tmp_path / "q")
    options = [f"run.agents.*.options.path={tiny}", f"run.agents.*.options.adapter={tmp_path / 'q'}"]
    check_suited(override(configured(*LORA, "dpo.lora.targets=[q_proj]"), options))
    with pytest.raises(ConfigError, match=r"made for other modules .* it has q_proj: set lora.targets to these"):
        check_suited(override(configured(*LORA), options))
