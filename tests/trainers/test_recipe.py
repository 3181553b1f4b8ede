"""The presets that come with the package: whole, described, and as the paper says where it says it."""

import pytest

from collab.config import override
from collab.errors import ConfigError
from collab.trainers.recipe import DpoRecipe, SftRecipe, list_builtin_presets, load_preset


@pytest.mark.parametrize("name", sorted(list_builtin_presets()))
def test_a_preset_is_whole(name: str) -> None:
    preset = load_preset(name)
    assert preset.description
    assert isinstance(preset.get_recipe("sft"), SftRecipe)
    if not name.startswith("prm-"):
        assert isinstance(preset.get_recipe("dpo"), DpoRecipe)


def test_a_process_reward_model_is_trained_as_in_its_paper() -> None:
    """Android Coach, Appendix A.1."""
    recipe = load_preset("prm-7b").sft
    assert recipe.levels == ("judgement",)
    assert (recipe.learning_rate, recipe.schedule, recipe.warmup) == (1e-5, "cosine", 0.1)
    assert (recipe.batch_rows, recipe.epochs, recipe.max_grad_norm) == (32, 2, 1.0)
    assert (recipe.optimizer, recipe.betas, recipe.weight_decay, recipe.lora) == ("adamw", (0.9, 0.95), 0.01, None)
    with pytest.raises(ConfigError, match="--stage dpo: the preset has no recipe for it; it has sft"):
        load_preset("prm-7b").get_recipe("dpo")


def test_the_paper_is_followed() -> None:
    """CollabUIAgents, Appendix B."""
    preset = load_preset("paper-qwen2-7b")
    assert (preset.sft.context, preset.sft.learning_rate, preset.sft.epochs) == (8192, 1e-4, 3)
    assert (preset.dpo.context, preset.dpo.learning_rate, preset.dpo.epochs) == (8500, 5e-6, 3)
    assert preset.dpo.lora is not None
    assert preset.sft.precision == preset.dpo.precision == "bfloat16"
    assert preset.sft.levels == ("basic", "instruction", "demonstration")
    assert preset.sft.order == "curriculum"


def test_the_pocket_is_made_from_nothing() -> None:
    preset = load_preset("pocket")
    assert preset.architecture is not None
    assert preset.get_recipe("copy").epochs == 1
    with pytest.raises(ConfigError, match="--stage copy: the preset has no recipe for it"):
        load_preset("qwen2.5-0.5b").get_recipe("copy")


@pytest.mark.parametrize(
    ("stage", "setting", "message"),
    [
        ("sft", "levels=[preference]", "preferences are for dpo"),
        ("sft", "levels=[]", "name some of basic, instruction, demonstration"),
        ("copy", "longest=500", "must fit into context"),
        ("sft", "lora={rank: 0}", "lora.rank: Input should be greater than or equal to 1"),
        ("sft", "epochs=0", "epochs: Input should be greater than or equal to 1"),
        ("sft", "levels=[basic, basic]", "name each once"),
        ("sft", "betas=[0.9, 1]", r"betas.1: Input should be less than 1"),
        ("sft", "learning_rate=.inf", "learning_rate: Input should be a finite number"),
        ("sft", "lora={targets: []}", "lora.targets: List should have at least 1 item"),
        ("dpo", "lora={dropout: 0.1}", "lora.dropout 0.1: preference training compares with a reference"),
        ("dpo", "beta=0", "beta: Input should be greater than 0"),
    ],
)
def test_what_makes_no_sense_is_refused(stage, setting: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        override(load_preset("pocket").get_recipe(stage), [setting])


def test_sizes_that_do_not_divide_are_refused() -> None:
    architecture = load_preset("pocket").architecture
    with pytest.raises(ConfigError, match=r"hidden 250 must be a multiple of 2 x heads \(4\)"):
        override(architecture, ["hidden=250", "heads=4"])
