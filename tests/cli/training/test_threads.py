"""How many threads a local model computes in, and that idle ones do not spin."""

import os
import subprocess
import sys

import pytest

from collab.cli.main import main

LEAVING = """
import atexit, os, sys
atexit.register(lambda: print(os.environ.get("OMP_WAIT_POLICY"), os.environ.get("OMP_NUM_THREADS")))
sys.argv = ["collab", "graph", "show", "team"]
from collab.__main__ import run
run()
"""


@pytest.mark.variations
@pytest.mark.parametrize(("given", "policy"), [({}, "PASSIVE"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "ACTIVE")])
def test_idle_threads_sleep_unless_the_user_says_otherwise(given, policy):
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}
    done = subprocess.run(
        [sys.executable, "-c", LEAVING], capture_output=True, text=True, timeout=60, check=True, env=inherited | given
    )
    assert done.stdout.splitlines()[-1] == f"{policy} None"


def test_idle_threads_sleep_in_a_program_that_imports_collab():
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}
    code = "import collab, os; print(os.environ['OMP_WAIT_POLICY'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=inherited)
    assert done.stdout == "PASSIVE\n"


def test_the_number_of_threads_can_be_chosen(monkeypatch, tmp_path, capsys):
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    try:
        asked = [
            "rollout",
            "--agents",
            "rehearsal",
            "--episodes",
            "1",
            "--out",
            str(tmp_path / "run"),
            "--threads",
            "3",
        ]
        assert main(asked) == 0
        assert (torch.get_num_threads(), os.environ["OMP_NUM_THREADS"]) == (3, "3")
    finally:
        torch.set_num_threads(before)
    assert main(["rollout", "--threads", "0"]) == 2
    assert "--threads" in capsys.readouterr().err
