"""How sure policies are of what they say, told by the script from recorded runs."""

from __future__ import annotations

import re
from pathlib import Path

import measure_sureness
import pytest

from collab.cli.main import main
from collab.testing.toy_team import write_library


def play(checkpoint: Path, folder: Path, temperature: float) -> Path:
    """Play the toy team in the corridor."""
    library, out = write_library(folder / "library", checkpoint).own, folder / f"at-{temperature}"
    asked = ["--env", "corridor", "--graph", "single", "--agents", "toy", "--library", str(library)]
    sampling = ["--set", f"agents.*.sampling.temperature={temperature}"]
    assert main(["rollout", *asked, *sampling, "--episodes", "4", "--seed", "3", "--out", str(out)]) == 0
    return out


def test_a_greedy_policy_is_sure_and_one_at_temperature_1_is_what_it_is(
    finetuned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [str(play(finetuned, tmp_path, one)) for one in (0.0, 0.3, 1.0)]
    capsys.readouterr()
    assert measure_sureness.main(folders) == 0
    rows = re.findall(r"at-[\d.]+ \| (\d+) \| ([\d.]+) \| ([\d.]+) \|", capsys.readouterr().out)
    (greedy, cold, plain) = [(int(count), float(sampled), float(own)) for count, sampled, own in rows]
    assert greedy[0] > 0
    assert greedy[1] == 0 < greedy[2]
    assert 0 < cold[1] < cold[2]
    assert plain[1] == plain[2] > cold[1]


def test_runs_without_log_probabilities_are_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert measure_sureness.main([str(tmp_path)]) == 2
    assert capsys.readouterr().err == (
        f"error: {tmp_path}: no reply has log-probabilities; a model of kind: local records them\n"
    )
