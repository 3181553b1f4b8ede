"""Adversaries by name and by weight: what a text or YAML comes to, and that it is the same after it was stored."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from collab.config import Budget, SamplingDefinition
from collab.errors import UsageError
from collab.library import Library
from collab.preferences.adversary import SAMPLING, label_of
from collab.preferences.pairs import PairRecipe, RunPairs
from collab.preferences.registry import (
    AdversaryChoice,
    AdversarySpec,
    open_adversary,
    parse_adversary,
    read_adversary,
    resolve_adversary,
)
from collab.preferences.store import read_pair_head, write_pairs
from collab.store.manifest import Manifest
from collab.store.run import RunStore

NOTHING = RunPairs(pairs=())
PLAYING = "kind: scripted\noptions: {replies: [x]}\nsampling: {temperature: 0.3, max_tokens: 64}\n"


@pytest.fixture
def library(tmp_path: Path) -> Library:
    (tmp_path / "agents").mkdir()
    for name in ("clumsy", "other"):
        (tmp_path / "agents" / f"{name}.yaml").write_text(PLAYING)
    return Library(own=tmp_path)


def stored(choice: AdversaryChoice, folder: Path) -> AdversaryChoice:
    """The same after it stood in a run's pairs."""
    run = RunStore.create(folder / "run", Manifest(command="rollout", config={}, seed=0)).path
    write_pairs(run, "one", NOTHING, recipe=PairRecipe(), labels=None, adversary="llm-1", options=choice.as_json)
    return read_adversary(read_pair_head(run, "one"))


@pytest.mark.parametrize(
    ("written", "temperature", "tokens"),
    [
        ("clumsy", SAMPLING.temperature, SAMPLING.max_tokens),
        ("{kind: llm, agent: clumsy}", SAMPLING.temperature, SAMPLING.max_tokens),
        ("{kind: llm, agent: clumsy, sampling: {temperature: 0.1}}", 0.1, SamplingDefinition().max_tokens),
    ],
)
def test_how_a_file_plays_is_not_how_it_errs(
    library: Library, tmp_path: Path, written: str, temperature: float, tokens: int
) -> None:
    choice = parse_adversary(library, written)
    assert choice.agent is not None
    assert (choice.agent.sampling.temperature, choice.agent.sampling.max_tokens) == (temperature, tokens)
    again = stored(choice, tmp_path)
    assert (again, again.as_json) == (choice, choice.as_json)


WRITTEN = {
    "kind": "mixture",
    "parts": [
        {"kind": "sampler", "weight": 3},
        {"kind": "llm", "agent": "clumsy"},
        {"kind": "llm", "agent": "other", "weight": 0},
    ],
}


def test_names_with_weights_are_a_mixture_as_it_is_written_out(library: Library, tmp_path: Path) -> None:
    choice = parse_adversary(library, "sampler=3, clumsy=1,other=0")
    assert [(one.part.kind, weight) for one, weight in choice.turns] == [("sampler", 3), ("llm", 1), ("llm", 0)]
    assert choice == resolve_adversary(library, AdversarySpec.model_validate(WRITTEN))
    again = stored(choice, tmp_path)
    assert (again, again.as_json) == (choice, choice.as_json)
    assert not choice.free
    assert parse_adversary(library, "sampler=1").free

    async def who() -> str:
        async with open_adversary(choice, Budget(), 5.0) as adversary:
            return label_of(adversary)

    assert asyncio.run(who()) == "mixture-sampler-1+llm-1"


def test_a_model_is_asked_within_the_context_of_its_agents_file(library: Library, tmp_path: Path) -> None:
    (tmp_path / "agents" / "small.yaml").write_text(PLAYING + "context_tokens: 300\n")

    async def opened() -> None:
        async with open_adversary(parse_adversary(library, "small"), Budget(), 5.0):
            raise AssertionError("nothing fits into that")

    with pytest.raises(UsageError, match=r"context_tokens 300 leave no room .* max_tokens 256"):
        asyncio.run(opened())


def test_a_limit_holds_for_every_part_of_a_mixture(library: Library) -> None:
    async def opened() -> None:
        async with open_adversary(parse_adversary(library, "sampler=3,clumsy=1"), Budget(usd=1), 5.0):
            raise AssertionError("nobody counts that")

    with pytest.raises(UsageError, match="--budget usd: agents file of the adversary does not say what it costs"):
        asyncio.run(opened())


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("smapler", "did you mean sampler"),
        ("smapler=1,clumsy=1", "did you mean sampler"),
        ("critic-llm", r"agents/critic-llm: a critic \(kind llm\) judges"),
        ("sampler,clumsy", "each name once with its weight: sampler=3,openai=1"),
        ("sampler=1,sampler=2", "each name once"),
        ("sampler=often", "each name once"),
        ("sampler=-1,clumsy=1", "greater than or equal to 0"),
        ("sampler=inf", "finite"),
        ("sampler=0,clumsy=0", "one at least with a weight above 0"),
        ("{kind: sampler", "is not YAML"),
        ("{kind: mixture}", "needs parts"),
        ("{kind: mixture, agent: clumsy, parts: [{kind: sampler}]}", "stand in each part"),
        ("{kind: sampler, parts: [{kind: sampler}]}", "write kind: mixture"),
        ("{kind: sampler, sampling: {temperature: 1}}", "leave out agent and sampling"),
        ("{kind: somebody, sampling: {temperature: 1}}", "kind somebody has sampling and asks no model"),
        ("{kind: sampler, options: {weights: {undoo: 1}}}", "undo"),
        ("{kind: llm}", "agent: openai"),
        ("{kind: sampler, prompt: adversary-guided}", "leave out prompt"),
        ("{kind: llm, agent: clumsy, prompt: adversary-guidde}", "did you mean adversary-guided"),
        ("{kind: mixture, prompt: adversary-guided, parts: [{kind: sampler}]}", "stand in each part"),
        ("{kind: smapler}", "did you mean sampler"),
    ],
)
def test_what_does_not_fit_is_one_line_before_any_call(library: Library, text: str, told: str) -> None:
    with pytest.raises(UsageError, match=told) as refused:
        parse_adversary(library, text)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("written", ["sampler=3,clumsy=1", WRITTEN])
def test_a_method_says_it_in_either_way(written: Any) -> None:
    asked = AdversarySpec.model_validate(written)
    assert asked.kind == "mixture"
    assert AdversarySpec.model_validate(asked.model_dump(mode="json")) == asked
