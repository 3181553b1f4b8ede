"""Each ablation changes one thing, none changes nothing, and `--set` applies after it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from collab.algorithms.collabuiagents.config import ABLATIONS
from collab.algorithms.collabuiagents.learner import build_sft_recipe
from collab.algorithms.judging import admit_critic
from collab.config import override
from collab.errors import ConfigError, UnknownName, UsageError
from collab.loop.config import Method
from collab.loop.configure import apply_ablation
from collab.loop.interfaces import load_algorithm, load_method
from collab.testing.corridor import CorridorSuite

COLLAB = load_algorithm("collabuiagents")
CHANGED = {
    "no-cr": {"objective", "pairs.anchors", "pairs.stop_at_first_error", "replay_fraction"},
    "rft": {"objective", "pairs.anchors"},
    "no-edge-update": {"edges"},
    "single-agent": {"pairs.adversary", "pairs.correction"},
    "adversary-pairs": {"pairs.adversary", "pairs.correction"},
    "contrast-pairs": {"pairs.contrast", "pairs.correction"},
    "all-steps": {"pairs.stop_at_first_error"},
    "no-anchor": {"dpo.anchor", "pairs.anchors"},
    "anchor": {"dpo.anchor"},
    "mixed-pairs": {"pairs.contrast"},
    "correction-pairs": {"pairs.adversary", "pairs.correction"},
}
"""What differs from the preset that it is an ablation of."""
OF_THE_PAPER = {"anchor", "mixed-pairs", "correction-pairs"}


def flat(method: Method) -> dict[str, Any]:
    told = method.model_dump()
    inner = {f"{name}.{key}": value for name in ("pairs", "dpo") for key, value in told.pop(name).items()}
    return told | inner


@pytest.mark.parametrize("name", ABLATIONS)
def test_an_ablation_changes_one_thing(name: str) -> None:
    full = load_method(COLLAB, "paper" if name in OF_THE_PAPER else "collab")
    method, graph = apply_ablation(COLLAB, full, name, graph="team")
    before, after = flat(full), flat(method)
    assert {key for key in before if before[key] != after[key]} == CHANGED[name]
    assert graph == ("single" if name == "single-agent" else "team")


@pytest.mark.parametrize(
    ("preset", "name"),
    [("paper", "no-anchor"), ("paper", "adversary-pairs"), ("collab", "correction-pairs"), ("collab", "anchor")],
)
def test_an_ablation_that_changes_nothing_is_refused(preset: str, name: str) -> None:
    with pytest.raises(ConfigError, match="changes nothing"):
        apply_ablation(COLLAB, load_method(COLLAB, preset), name, graph="team")


def test_an_unknown_ablation_is_named_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="no-cr"):
        apply_ablation(COLLAB, load_method(COLLAB, "collab"), "no-rc", graph="team")


def test_the_untrained_team_is_no_ablation_and_it_is_said_how_it_is_measured() -> None:
    with pytest.raises(UnknownName, match=r"nothing is trained .* collab eval --agents NAME .* --agents RUN@epoch0"):
        apply_ablation(COLLAB, load_method(COLLAB, "collab"), "untrained-team", graph="team")


def test_settings_come_behind_the_ablation_and_it_is_told(configure_toy) -> None:
    config = configure_toy("dpo.beta=0.7", ablation="no-edge-update")
    assert (config.method.dpo.beta, config.method.edges) == (0.7, None)
    assert config.called == "collab, ablation no-edge-update"
    assert configure_toy().called == "collab"


@pytest.mark.parametrize(
    ("ablation", "setting"),
    [
        ("rft", "objective=dpo"),
        ("no-edge-update", "edges={sampler: uniform}"),
        ("no-edge-update", "edges.sampler=uniform"),
        ("no-anchor", "dpo.anchor=1"),
        ("contrast-pairs", "pairs={adversary: 1}"),
        ("single-agent", "run.graph.slots=[ada, ben]"),
    ],
)
def test_a_setting_cannot_undo_the_ablation(ablation: str, setting: str, configure_toy) -> None:
    with pytest.raises(UsageError, match=f"--ablation {ablation} stands for .*; leave out one of the two"):
        configure_toy(setting, ablation=ablation)


def test_one_agent_plays_the_graph_single_in_training_and_evaluation(configure_toy) -> None:
    config = configure_toy(ablation="single-agent")
    assert [(one.graph_name, one.graph.slots) for one in (config.run, *config.held_out)] == [("single", ["ada"])] * 2


def test_trajectories_of_tasks_that_are_played_once_are_refused(configure_toy) -> None:
    assert configure_toy("episodes=2", ablation="no-cr").method.objective == "trajectory-dpo"
    with pytest.raises(UsageError, match=r"1 episode of 1 task.*--set tasks=1 --set episodes=4"):
        configure_toy("episodes=1", ablation="no-cr")
    with pytest.raises(UsageError, match="replay_fraction"):
        configure_toy("replay_fraction=0.3", ablation="no-cr")


def test_a_critic_that_is_not_asked_needs_no_calibration(configure_toy, tmp_path: Path) -> None:
    asked = ("critic=critic-outcome", "min_critic_auc=0.9")
    with pytest.raises(ConfigError, match="calibrate"):
        asyncio.run(admit_critic(configure_toy(*asked), CorridorSuite(), calibrations=tmp_path))
    config = configure_toy(*asked, ablation="no-cr")
    assert "not asked" in asyncio.run(admit_critic(config, CorridorSuite(), calibrations=tmp_path))


def test_steps_say_how_many_episodes_are_planned(configure_toy) -> None:
    assert configure_toy("episodes=null", "steps=50").run.episodes == 50
    assert configure_toy("episodes=9", "steps=50").run.episodes == 9
    assert configure_toy("episodes=null").run.episodes == 1


def test_fine_tuning_takes_over_the_recipe() -> None:
    recipe = override(load_method(COLLAB).dpo, ["lora={rank: 4, merge: true}", "batch_rows=7"])
    same = build_sft_recipe(recipe)
    shared = set(type(recipe).model_fields) & set(type(same).model_fields)
    assert {"learning_rate", "lora", "batch_rows", "rows_at_once", "epochs", "precision"} < shared
    assert all(getattr(recipe, name) == getattr(same, name) for name in shared)
    assert same.prompt_weight == 0
