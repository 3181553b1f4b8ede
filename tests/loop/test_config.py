"""Methods: what the presets say, and what is refused."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from collab.algorithms.collabuiagents.config import CollabConfig
from collab.config import override
from collab.errors import ConfigError, UnknownName, UsageError
from collab.library import Library, list_presets
from collab.loop.configure import configure
from collab.loop.interfaces import load_algorithm, load_method
from collab.preferences.adversary import SAMPLING

COLLAB = load_algorithm("collabuiagents")
PRESETS = list_presets(COLLAB.presets)


def test_the_papers_method_is_the_published_one() -> None:
    """Section 3 and Appendix B: edges drawn anew, the adversary's negatives alone, plain DPO, 5e-6, three epochs."""
    method = load_method(COLLAB, "paper")
    assert (method.epochs, method.policies, method.reference) == (3, "shared", "initial")
    assert method.edges is not None
    assert (method.pairs.adversary, method.pairs.contrast) == (1, 0)
    assert (method.dpo.learning_rate, method.dpo.epochs, method.dpo.context, method.dpo.anchor) == (5e-6, 1, 8500, 0)
    assert (method.critic, method.adversary.kind) == ("critic-llm", "llm")


def test_every_preset_says_what_it_is_for() -> None:
    assert set(PRESETS) == {"paper", "collab", "qwen2.5-0.5b"}
    assert all(load_method(COLLAB, name).description for name in PRESETS)


def test_no_epoch_is_chosen_by_what_results_are_told_of() -> None:
    """Results use the run seeds 40, 41 and 42."""
    assert not {seed for name in PRESETS for seed in load_method(COLLAB, name).held_out.seeds} & {40, 41, 42}


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("dpo={learning_rate: 1, lora: {rank: 4}}", "saved: bfloat16 would round .* set dpo.saved=float32"),
        ("held_out.seeds=[39, 39]", "twice"),
        ("epochs=0", "greater than or equal to 1"),
        ("replay_fraction=1", "less than 1"),
        ("min_critic_auc=1.1", "less than or equal to 1"),
        ("rerference=previous", "reference"),
        ("pairs={adversary: 0, contrast: 0}", "above 0"),
        ("pairs={anchors: 1} dpo.anchor=0", "no loss term uses them; set pairs.anchors=0"),
        ("adversary={kind: llm}", "agent: openai"),
        ("adversary=sampler=0", "weight above 0"),
        ("adversary=sampler=often", "sampler=3,openai=1"),
    ],
)
def test_what_does_not_fit_is_refused(setting: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        override(load_method(COLLAB, "collab"), re.split(r" (?=dpo)", setting))


def test_an_unknown_preset_is_named_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="paper"):
        load_method(COLLAB, "papr")
    with pytest.raises(ConfigError, match="no such file"):
        load_method(COLLAB, "papr.yaml")


def test_a_team_is_put_together_on_its_side_of_the_split(configure_toy) -> None:
    config = configure_toy()
    assert config.run.split is not None
    assert config.run.split.name == "train"
    assert [(one.seed, one.split.name if one.split else None) for one in config.held_out] == [(39, "new-seeds")]
    assert config.groups == {"shared": ("ada", "ben")}
    assert configure_toy("policies=per_agent").groups == {"ada": ("ada",), "ben": ("ben",)}
    assert configure_toy("run.graph.rounds=3").run.graph.rounds == 3


@pytest.mark.parametrize(("said", "temperature"), [("", SAMPLING.temperature), (", sampling: {temperature: 0.1}", 0.1)])
def test_an_adversary_is_sampled_as_adversaries_are_whatever_its_file_says(
    configure_toy, tmp_path: Path, said: str, temperature: float
) -> None:
    playing = "kind: openai\noptions: {model: any}\nsampling: {temperature: 0.3}\n"
    (tmp_path / "clumsy.yaml").write_text(playing)
    config = configure_toy(f"adversary={{kind: llm, agent: {tmp_path / 'clumsy.yaml'}{said}}}")
    for one in (config, CollabConfig.model_validate_json(config.model_dump_json())):
        assert one.erring.agent is not None
        assert one.erring.agent.sampling.temperature == temperature
        assert one.erring.agent.sampling.max_tokens == SAMPLING.max_tokens


def test_adversaries_take_turns_by_weight(configure_toy, tmp_path: Path) -> None:
    (tmp_path / "clumsy.yaml").write_text("kind: openai\noptions: {model: any}\n")
    config = configure_toy(f"adversary=sampler=3,{tmp_path / 'clumsy.yaml'}=1")
    for one in (config, CollabConfig.model_validate_json(config.model_dump_json())):
        assert [(each.part.kind, weight) for each, weight in one.erring.turns] == [("sampler", 3), ("llm", 1)]


@pytest.mark.parametrize(
    ("settings", "choices", "said"),
    [
        ((), {"agents": "show"}, "rehearsal and not a language model"),
        ((), {"agents": "vllm"}, "kind: local"),
        ((), {"agents": "nobody@first"}, "RUN@best"),
        ((), {"seed": 39}, "held_out.seeds"),
        ((), {"seed": 31}, "kept for evaluation"),
        ((), {"split": "unseen-tasks"}, "--split unseen-tasks"),
        (("critic=local",), {}, "speaks and does not judge"),
        (("run.agents.ada.options.path=elsewhere",), {}, "policies: shared"),
        (("run.agents.*.modality=both",), {}, "no pictures"),
        (("run.agents.*.options.adapter=x",), {}, "adapter"),
    ],
)
def test_teams_that_cannot_be_trained_are_refused(
    configure_toy, settings: tuple[str, ...], choices: dict[str, object], said: str
) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        configure_toy(*settings, **choices)
    assert "\n" not in str(caught.value)


def test_a_method_of_ones_own_is_read_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("epochs: 2\ndpo:\n  learning_rate: 1.0e-4\n  betta: 0.1\n")
    with pytest.raises(ConfigError, match=r"mine.yaml:4: dpo.betta"):
        load_method(COLLAB, str(path))


def test_settings_of_the_run_mean_the_same_with_and_without_run_in_front(configure_toy) -> None:
    plain = configure_toy("graph.rounds=3", "agents.*.history=1", "concurrency=7", "epochs=2", "dpo.beta=0.3")
    written = ("run.graph.rounds=3", "run.agents.*.history=1", "run.concurrency=7", "run.epochs=2", "run.dpo.beta=0.3")
    assert plain == configure_toy(*written)
    assert (plain.run.graph.rounds, plain.run.concurrency, plain.method.epochs) == (3, 7, 2)


@pytest.mark.parametrize(
    ("settings", "asked", "found"),
    [
        ((), None, 48),  # 192 sequences by four agents
        (("run.agents.*.options.max_batch=64",), None, 16),
        (("run.agents.*.options.max_batch=8",), None, 4),
        (("run.concurrency=7",), None, 7),
        (("steps=160",), None, 10),  # what is begun behind the last step is lost
        (("steps=16",), None, 4),
        (("steps=16",), 9, 9),
        ((), 5, 5),
        (("determinism=exact",), None, 4),
    ],
)
def test_as_many_episodes_as_fill_the_engine_are_played_at_once(
    settings: tuple[str, ...], asked: int | None, found: int
) -> None:
    choices = {"algorithm": "collabuiagents", "env": "androidworld", "graph": "team", "agents": "pocket"}
    config = asyncio.run(configure(Library(), **choices, settings=settings, concurrency=asked))
    assert {config.run.concurrency, *(one.concurrency for one in config.held_out)} == {found}
    assert config.size == f"{config.method.steps} steps"
    # Rollouts explore; evaluations are played as the agents file says.
    assert [one.temperature for one in config.as_explored.sampling.values()] == [0.5, 0.8, 1.0, 1.0]
    assert [one.temperature for one in config.held_out[0].sampling.values()] == [0.1, 0.3, 0.5, 0.8]
