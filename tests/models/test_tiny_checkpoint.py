from pathlib import Path

import pytest
from safetensors.numpy import load_file

from collab.errors import ConfigError
from collab.testing.tiny_checkpoint import make_tiny_checkpoint


def test_the_seed_decides_the_weights(tmp_path: Path) -> None:
    first, again, other = (
        make_tiny_checkpoint(tmp_path / name, seed=seed, hidden=16, layers=1)
        for name, seed in (("first", 1), ("again", 1), ("other", 2))
    )
    assert (first / "model.safetensors").read_bytes() == (again / "model.safetensors").read_bytes()
    assert (first / "tokenizer.json").read_bytes() == (again / "tokenizer.json").read_bytes()
    assert (first / "model.safetensors").read_bytes() != (other / "model.safetensors").read_bytes()


def test_sizes_are_as_asked(tmp_path: Path) -> None:
    folder = make_tiny_checkpoint(tmp_path, hidden=24, layers=3, vocabulary=300)
    weights = load_file(folder / "model.safetensors")
    assert weights["model.embed_tokens.weight"].shape == (300, 24)
    assert sum(name.endswith("q_proj.weight") for name in weights) == 3
    assert not list(folder.glob("*.bin"))


@pytest.mark.parametrize("sizes", [{"hidden": 20}, {"hidden": 0}, {"vocabulary": 100}, {"layers": 0}, {"context": 0}])
def test_impossible_sizes_are_refused(tmp_path: Path, sizes: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="tiny checkpoint: hidden"):
        make_tiny_checkpoint(tmp_path, **sizes)
