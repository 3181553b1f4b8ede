"""A checkpoint says which prompt layout it was trained on, and is not loaded under another."""

from __future__ import annotations

from pathlib import Path

import pytest

from collab.errors import ConfigError
from collab.models.layout import FILE, check_layout, played_digest, weights_digest, write_layout
from collab.models.local import LocalModel
from collab.models.tiny import make_tiny_checkpoint


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


def test_an_adapter_speaks_together_with_its_base(tmp_path: Path) -> None:
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    for place in (base, adapter):
        place.mkdir()
        (place / "some.safetensors").write_bytes(place.name.encode())
    assert played_digest(base, None) == weights_digest(base)
    both = played_digest(base, str(adapter))
    assert both == f"{weights_digest(base)}+{weights_digest(adapter)}"
    (adapter / "some.safetensors").write_bytes(b"others")
    assert played_digest(base, str(adapter)) != both
