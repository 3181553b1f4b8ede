"""What makes a critic another than the one that made labels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collab.models.checkpoint_card import hash_played_weights
from collab.rewards.labels import LabelHead
from collab.rewards.registry import CriticDefinition, build_head, explain_difference

TEXTS = {"system.jinja": "You judge. " * 9, "user.jinja": "Judge."}


def asking(**options: Any) -> CriticDefinition:
    """A critic that asks an engine with these options."""
    return CriticDefinition(kind="llm", options={"model": {"kind": "openai", "options": {"model": "m"} | options}})


def told(definition: CriticDefinition, **options: Any) -> LabelHead:
    """The head of labels that such a critic made."""
    critic = definition.model_dump(mode="json", exclude={"description"})
    return LabelHead(critic="llm-3", options={"critic": critic, "texts": TEXTS, **options}, seed=7)


def difference(stored: LabelHead, definition: CriticDefinition, texts: dict[str, str] = TEXTS) -> str | None:
    return explain_difference("mine", stored, build_head(definition, texts, stored))


@pytest.mark.parametrize(
    ("definition", "texts", "words"),
    [
        (asking(), TEXTS, None),
        (asking(base_url="http://127.0.0.1:1/v1", concurrency=2), TEXTS, None),
        (asking().model_copy(update={"description": "The same.", "prompt": "elsewhere"}), TEXTS, None),
        (asking(model="n"), TEXTS, "options.model.options.model 'm', now it is 'n'"),
        (asking().model_copy(update={"history": 3}), TEXTS, "history 10, now it is 3"),
        (asking(), TEXTS | {"user.jinja": "Say."}, "texts.user.jinja 'Judge.', now it is 'Say.'"),
        (asking(), TEXTS | {"system.jinja": "Judge."}, "other texts.system.jinja"),
        (CriticDefinition(kind="outcome"), {}, "critic 'llm-3', now it is 'outcome-1'"),
    ],
)
def test_what_decides_scores_is_compared(
    definition: CriticDefinition, texts: dict[str, str], words: str | None
) -> None:
    assert difference(told(asking()), definition, texts) == words


def test_another_version_of_a_class_is_another_critic() -> None:
    older = replace(told(asking()), critic="llm-0")
    assert difference(older, asking()) == "critic 'llm-0', now it is 'llm-3'"


def test_weights_are_compared_where_they_lie(tmp_path: Path) -> None:
    (file,) = [tmp_path / "model.safetensors"]
    file.write_bytes(b"some")
    scorer = CriticDefinition(kind="model", options={"path": str(tmp_path)})
    asked = CriticDefinition(kind="llm", options={"model": {"kind": "local", "options": {"path": str(tmp_path)}}})
    for definition, critic in ((scorer, "model-1"), (asked, "llm-3")):
        file.write_bytes(b"some")
        stored = replace(told(definition, weights=hash_played_weights(tmp_path, None)), critic=critic)
        assert difference(stored, definition) is None
        file.write_bytes(b"other")
        assert difference(stored, definition) == "other weights"
    gone = scorer.model_copy(update={"options": {"path": str(tmp_path / "gone")}})
    stored = replace(told(gone, weights="0" * 64), critic="model-1")
    assert difference(stored, gone) is None


def test_a_reward_model_that_was_moved_is_the_same_where_its_weights_are_known(tmp_path: Path) -> None:
    def scorer(folder: Path) -> CriticDefinition:
        return CriticDefinition(kind="model", options={"path": str(folder)})

    first, moved = tmp_path / "first", tmp_path / "moved"
    moved.mkdir()
    (moved / "model.safetensors").write_bytes(b"some")
    weighed = replace(told(scorer(first), weights=hash_played_weights(moved, None)), critic="model-1")
    assert difference(weighed, scorer(moved)) is None
    assert str(difference(weighed, scorer(tmp_path / "nowhere"))).startswith("other options.path")
    unweighed = replace(told(scorer(first)), critic="model-1")
    assert str(difference(unweighed, scorer(moved))).startswith("other options.path")
    (moved / "model.safetensors").write_bytes(b"others")
    assert difference(weighed, scorer(moved)) == "other weights"


def test_labels_that_do_not_tell_how_they_were_made_are_of_their_critic_alone() -> None:
    by_oracle, by_hand = LabelHead(critic="oracle-2"), LabelHead(critic="hand-1")
    oracle = CriticDefinition(kind="oracle")
    assert explain_difference("mine", by_oracle, build_head(oracle, {}, by_oracle)) is None
    assert (
        explain_difference("mine", by_hand, build_head(oracle, {}, by_hand)) == "critic 'hand-1', now it is 'oracle-2'"
    )


def test_a_secret_is_compared_as_it_was_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    from collab.utils.redact import hide_text

    monkeypatch.setenv("JUDGE_API_KEY", "org-abcdefgh12345678")
    secret, hidden = "org-abcdefgh12345678", hide_text("org-abcdefgh12345678")
    assert hidden != secret
    assert difference(told(asking(organization=hidden)), asking(organization=secret)) is None
