"""A critic from its agents file: which one it is, what it is made with, and when its digest is another."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from collab.config import PartDefinition
from collab.errors import ConfigError, UnknownName, UsageError
from collab.library import Library
from collab.rewards.llm import LanguageCritic
from collab.rewards.outcome import OutcomeCritic
from collab.rewards.registry import (
    CriticDefinition,
    CriticResources,
    load_critic,
    make_token_counter,
    read_critic_texts,
)
from collab.rollout.build import is_critic, refuse_critic
from collab.testing.tiny_checkpoint import make_tiny_checkpoint

ENGINE = {"kind": "scripted", "options": {"replies": ["{}"]}}


def build_resources(**changes: Any) -> CriticResources:
    definition = CriticDefinition.model_validate({"kind": "llm", "options": {"model": ENGINE}, **changes})
    return CriticResources.of("a-test", definition, read_critic_texts(Library(), definition))


def served(digest_of: Mapping[str, Any]) -> str:
    options = {"model": "m", "base_url": "http://127.0.0.1:1/v1", **digest_of}
    return build_resources(options={"model": {"kind": "openai", "options": options}}).digest


@pytest.mark.parametrize("name", ["critic-oracle", "critic-outcome", "critic-replay", "critic-llm"])
def test_what_comes_with_the_package_is_made(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret-0123456789")
    library = Library()
    definition = load_critic(library, name)
    made = CriticResources.of(name, definition, read_critic_texts(library, definition))
    assert made.build_critic(seed=3, attempt=1).name == made.label.rpartition("-")[0] == load_critic(library, name).kind
    assert (made.model is not None) == bool(made.texts) == (name == "critic-llm")


def test_critics_of_one_bench_share_its_model() -> None:
    made = build_resources(options={"model": ENGINE, "per": "round"})
    one, other = made.build_critic(seed=1), made.build_critic(seed=2)
    assert isinstance(one, LanguageCritic)
    assert one is not other
    assert isinstance(build_resources(kind="outcome", options={"replay": True}).build_critic(), OutcomeCritic)


def test_the_digest_is_of_what_decides_scores() -> None:
    plain = build_resources()
    same = plain.digest
    assert build_resources(description="in other words").digest == same
    changed = [
        build_resources(options={"model": ENGINE, "per": "round"}).digest,
        build_resources(sampling={"temperature": 0.7, "max_tokens": 2048}).digest,
        build_resources(history=3).digest,
        build_resources(kind="oracle", options={}).digest,
        CriticResources.of(
            "a-test", build_resources().definition, {**build_resources().texts, "system": "Be kind."}
        ).digest,
    ]
    assert len({same, *changed}) == 1 + len(changed)


def test_a_reward_model_is_told_by_its_weights_and_not_by_its_place(tmp_path: Path) -> None:
    def scoring(folder: Path, **changes: Any) -> str:
        made = build_resources(kind="model", options={"path": str(folder), **changes}, prompt="critic-model")
        assert made.build_critic().name == "model"
        return made.digest

    first, other = (
        make_tiny_checkpoint(tmp_path / name, labels=1, hidden=16, layers=1, seed=seed)
        for seed, name in enumerate(("first", "other"))
    )
    moved = first.rename(tmp_path / "moved")
    same = scoring(moved)
    assert scoring(moved, max_batch=2, device="cpu") == same
    assert len({same, scoring(other), scoring(moved, dtype="float32")}) == 3


def test_who_only_counts_needs_no_key_and_is_the_same_critic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    definition = load_critic(Library(), "critic-llm")
    texts = read_critic_texts(Library(), definition)
    with pytest.raises(ConfigError, match="OPENAI_API_KEY is not set"):
        CriticResources.of("critic-llm", definition, texts)
    counting = CriticResources.of("critic-llm", definition, texts, asks=False)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret-0123456789")
    assert counting.digest == CriticResources.of("critic-llm", definition, texts).digest
    own = PartDefinition(kind="openai", options={"model": "m", "base_url": "http://127.0.0.1:1/v1"})
    assert make_token_counter(own) == own
    assert make_token_counter(PartDefinition(kind="local", options={"path": "p"})).options == {"path": "p"}


def test_how_a_model_is_reached_does_not_count() -> None:
    assert served({"base_url": "http://127.0.0.1:2/v1", "concurrency": 2, "retries": 0}) == served({})
    assert served({"model": "n"}) != served({})
    assert served({"version": 1}) != served({})


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"options": {}}, "options.model: got None; a critic of kind llm asks an engine"),
        ({"options": {"model": "gpt-4o"}}, "options.model: got 'gpt-4o'"),
        ({"options": {"model": {"kind": "opnai"}}}, "did you mean openai"),
        ({"options": {"model": {"kind": "rehearsal"}}}, "looks at solutions"),
        ({"options": {"model": ENGINE, "per": "episode"}}, "'step' or 'round'"),
        ({"kind": "outcome"}, "model"),
        ({"kind": "model", "options": {}, "prompt": "critic-model"}, "options of model: path"),
        ({"kind": "model", "options": {"path": "/none"}, "prompt": "critic-model"}, "/none: no such model directory"),
        ({"kind": "collab.testing.scripted:ScriptedModel", "options": {"replies": ["x"]}}, "is no critic"),
    ],
)
def test_what_does_not_fit_is_one_line(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError) as refused:
        build_resources(**changes).build_critic()
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_kind_that_is_none_is_named_with_its_file(tmp_path: Path) -> None:
    (tmp_path / "judge.yaml").write_text("kind: oracel\n")
    with pytest.raises(UnknownName, match=r"critics kind \(in agents/.*did you mean oracle"):
        load_critic(Library(), str(tmp_path / "judge.yaml"))


def test_who_speaks_does_not_judge_and_who_judges_does_not_speak() -> None:
    with pytest.raises(ConfigError, match="agents/vllm: kind openai speaks and does not judge"):
        load_critic(Library(), "vllm")
    assert [is_critic(kind) for kind in ("llm", "oracle", "openai", "package.module:Class")] == [
        True,
        True,
        False,
        False,
    ]
    refuse_critic("openai", "agents/vllm")
    with pytest.raises(ConfigError, match=r"agents/x: a critic \(kind llm\) judges and does not speak"):
        refuse_critic("llm", "agents/x")
    with pytest.raises(ConfigError, match=r"agents/x: a verifier \(kind rules\) judges and does not speak"):
        refuse_critic("rules", "agents/x")


def test_who_lacks_a_key_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    library = Library()
    definition = load_critic(library, "critic-llm")
    with pytest.raises(ConfigError, match=r"^agents/critic-llm: options\.model: openai: the env"):
        CriticResources.of("critic-llm", definition, read_critic_texts(library, definition))
