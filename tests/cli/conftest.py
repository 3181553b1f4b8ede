"""What tests of commands share: one call of the command line in an empty folder, with the library beside them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from collab.cli.main import main

LIBRARY = str(Path(__file__).parent / "library")


Command = Callable[..., tuple[int, str, str]]
"""Takes the words of a command; gives exit code, stdout and stderr."""


@pytest.fixture
def run_command(capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs a command where the test stands."""

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


@pytest.fixture
def collab(run_command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    """Runs a command with the test library in an empty folder."""
    monkeypatch.setenv("COLLAB_LIBRARY", LIBRARY)
    monkeypatch.chdir(tmp_path)
    return run_command
