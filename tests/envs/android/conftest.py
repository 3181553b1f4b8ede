"""No test asks at the terminal that started it."""

import pytest

from collab.envs.android import device_guard


@pytest.fixture(autouse=True)
def without_terminal(monkeypatch, tmp_path):
    monkeypatch.setattr(device_guard, "TERMINAL", tmp_path / "none" / "tty")
