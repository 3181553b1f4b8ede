"""Critics by their kind, as a definition names them."""

from __future__ import annotations

from typing import Any

import pytest

from collab.config import PartDefinition
from collab.errors import ConfigError, UnknownName
from collab.library import find_builtin_root
from collab.rewards.llm import LanguageCritic, read_critic_prompts
from collab.rewards.oracle import SolutionCritic
from collab.rewards.outcome import OutcomeCritic
from collab.rollout.build import build
from collab.testing.scripted import ScriptedModel

GIVEN = {
    "model": ScriptedModel(replies=["{}"]),
    "texts": read_critic_prompts(find_builtin_root() / "prompts" / "critic"),
    "seed": 3,
    "suite": "something that no built-in critic takes",
}


def made(kind: str, **options: Any) -> Any:
    return build("critics", PartDefinition(kind=kind, options=options), "a test", GIVEN)


def test_each_kind_gives_its_critic() -> None:
    assert isinstance(made("oracle"), SolutionCritic)
    assert isinstance(made("outcome", replay=True), OutcomeCritic)
    assert isinstance(made("llm", per="round", score="all"), LanguageCritic)
    assert [made(kind).name for kind in ("oracle", "outcome", "llm")] == ["oracle", "outcome", "llm"]


@pytest.mark.parametrize(
    ("kind", "options", "told"),
    [
        ("llm", {"per": "episode"}, "'step' or 'round'"),
        ("llm", {"model": "gpt-4o"}, "model"),
        ("outcome", {"repeat": True}, "repeat"),
        ("llm", {"context_tokens": 10}, "must be above 2096"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(kind: str, options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told) as refused:
        made(kind, **options)
    assert "\n" not in str(refused.value)


def test_a_kind_that_is_none_is_named() -> None:
    with pytest.raises(UnknownName, match="did you mean oracle"):
        made("oracel")
