"""Tests of agents play from the command line."""

from tests.cli.conftest import collab, run_command

__all__ = ["collab", "run_command"]
