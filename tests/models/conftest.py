"""A tiny checkpoint for tests of models in this process."""

from pathlib import Path

import pytest
import torch

from collab.testing.tiny_checkpoint import make_tiny_checkpoint


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)  # tiny matrices: threads only get in each other's way
    return make_tiny_checkpoint(tmp_path_factory.mktemp("tiny"), context=600)
