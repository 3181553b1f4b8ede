"""A checkpoint says which prompt layout it was trained on, and is not loaded under another."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from collab.errors import ConfigError
from collab.models.checkpoint_card import (
    CARD,
    FILE,
    check_layout,
    check_over,
    hash_played_weights,
    hash_weights,
    write_layout,
)
from collab.models.local import LocalModel, check_files
from collab.testing.tiny_checkpoint import make_tiny_checkpoint
from collab.utils import files


def test_the_present_layout_and_none_are_fine(tmp_path: Path) -> None:
    check_layout(tmp_path)
    write_layout(tmp_path)
    check_layout(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"prompt_layout": "0"}', "trained on prompt layout '0', prompts here have layout '1'"),
        ("{}", "cannot be read"),
        ("[", "cannot be read"),
    ],
)
def test_anything_else_is_refused(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / FILE).write_text(content)
    with pytest.raises(ConfigError, match=message):
        check_layout(tmp_path)


def test_weights_other_than_those_it_was_written_with_are_refused(tmp_path: Path) -> None:
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(b"these")
    write_layout(tmp_path)
    check_layout(tmp_path)
    weights.write_bytes(b"those")
    with pytest.raises(ConfigError, match="not the weights that this checkpoint was written with"):
        check_layout(tmp_path)
    weights.unlink()
    with pytest.raises(ConfigError, match="no file"):
        check_layout(tmp_path)


def test_a_checkpoint_that_names_its_layout_only_is_fine(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('{"prompt_layout": "1"}')
    check_layout(tmp_path)


def test_a_local_model_checks_its_checkpoint(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    checkpoint = make_tiny_checkpoint(tmp_path)
    (checkpoint / FILE).write_text('{"prompt_layout": "99"}')
    with pytest.raises(ConfigError, match="trained on prompt layout '99'"):
        LocalModel(path=str(checkpoint))


def test_weights_that_are_gone_are_told_as_such(tmp_path: Path) -> None:
    """And not as weights of another format."""
    pytest.importorskip("torch")
    checkpoint = make_tiny_checkpoint(tmp_path)
    write_layout(checkpoint)
    (checkpoint / "model.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"not the weights that .* was written with .*no file.*; copy the whole"):
        check_files(str(checkpoint))
    (checkpoint / FILE).unlink()
    with pytest.raises(ConfigError, match=r"no \*\.safetensors weights"):
        check_files(str(checkpoint))


def test_an_adapter_speaks_together_with_its_base(tmp_path: Path) -> None:
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    for place in (base, adapter):
        place.mkdir()
        (place / "some.safetensors").write_bytes(place.name.encode())
    assert hash_played_weights(base, None) == hash_weights(base)
    both = hash_played_weights(base, str(adapter))
    assert both == f"{hash_weights(base)}+{hash_weights(adapter)}"
    (adapter / "some.safetensors").write_bytes(b"others")
    assert hash_played_weights(base, str(adapter)) != both


def test_large_weights_are_read_once_while_they_are_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_LARGE", 5)
    read: list[Path] = []
    whole = files._hash_contents

    def noted(path: Path) -> str:
        read.append(path)
        return whole(path)

    monkeypatch.setattr(files, "_hash_contents", noted)
    large, small = tmp_path / "large.safetensors", tmp_path / "small.safetensors"
    large.write_bytes(b"these")
    small.write_bytes(b"this")
    first = hash_weights(tmp_path)
    assert hash_weights(tmp_path) == first
    names = sorted(path.name for path in read)  # several threads read
    assert names == ["large.safetensors", "small.safetensors", "small.safetensors"]
    large.write_bytes(b"those")
    os.utime(large, ns=(1, 1))
    assert hash_weights(tmp_path) != first


@pytest.mark.parametrize("card", [None, '{"base": null}', '{"base": {}}', "{}"])
def test_a_card_that_names_no_base_says_nothing_against_one(tmp_path: Path, card: str | None) -> None:
    if card is not None:
        (tmp_path / CARD).write_text(card)
    check_over(tmp_path, tmp_path, "name that one")


@pytest.mark.parametrize("card", ["[", "[]", '{"base": "a name"}'])
def test_a_card_that_is_none_is_named(tmp_path: Path, card: str) -> None:
    (tmp_path / CARD).write_text(card)
    with pytest.raises(ConfigError, match=r"card.json: cannot be read"):
        check_over(tmp_path, tmp_path, "name that one")
