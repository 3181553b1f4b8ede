"""The pocket's scripts: what they ask of `collab` (a recorder here), and that they go on where they stopped."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from collab.config import EnvironmentDefinition, override
from collab.learn.preset import load_preset
from collab.library import Library, root
from collab.resolve import build
from collab.synth.plan import SynthConfig

SCRIPTS = root() / "scripts"
RECORDER = """#!/usr/bin/env bash
printf '%q ' "$@" >> calls; echo >> calls
what=$1
while [[ $# -gt 0 ]]; do
  if [[ $1 == --out || $1 == --resume ]]; then folder=$2; fi
  shift
done
mkdir -p "$folder"
if [[ $what != checkpoint ]]; then
  touch "$folder/$([[ $what == synth ]] && echo synth.json || echo finetune.json)"
  if [[ -e break && $(basename "$folder") == "$(cat break)" ]]; then rm break; exit 1; fi
  touch "$folder/$([[ $what == synth ]] && echo card.md || echo final)"
fi
"""
STAGES = "rows preferences demonstrations blank copy basic instruction demonstration dpo".split()

Script = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """Runs a script in an empty folder."""
    recorder = tmp_path / "collab"
    recorder.write_text(RECORDER)
    recorder.chmod(0o755)

    def run(name: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", str(SCRIPTS / name), "out here"],
            cwd=tmp_path,
            env={"PATH": "/usr/bin:/bin", "COLLAB": str(recorder), **environment},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


def calls(folder: Path) -> list[list[str]]:
    path = folder / "calls"
    found = [shlex.split(line) for line in path.read_text().splitlines()] if path.exists() else []
    path.unlink(missing_ok=True)
    return found


def option(call: list[str], name: str) -> str | None:
    return call[call.index(name) + 1] if name in call else None


def test_every_stage_begins_from_the_one_before_with_the_same_seed(script: Script, tmp_path: Path) -> None:
    assert script("train_pocket.sh", SEED="7").returncode == 0
    made = calls(tmp_path)
    assert [Path(option(call, "--out") or "").name for call in made] == STAGES
    assert {option(call, "--seed") for call in made} == {"7"}
    before = ["blank", *(f"{stage}/final" for stage in STAGES[4:-1])]
    assert [option(call, "--base") for call in made[4:]] == [f"out here/{stage}" for stage in before]
    assert script("train_pocket.sh", SEED="7").returncode == 0
    assert calls(tmp_path) == []


@pytest.mark.parametrize("stage", ["preferences", "instruction"])
def test_what_was_stopped_goes_on_where_it_was(script: Script, tmp_path: Path, stage: str) -> None:
    (tmp_path / "break").write_text(stage)
    assert script("train_pocket.sh").returncode == 1
    begun = calls(tmp_path)
    assert script("train_pocket.sh").returncode == 0
    resumed, *rest = calls(tmp_path)
    assert resumed[1:] == ["--resume", f"out here/{stage}"]
    assert [Path(option(call, "--out") or "").name for call in begun + rest] == STAGES


def test_a_folder_that_was_never_begun_is_no_obstacle(script: Script, tmp_path: Path) -> None:
    (tmp_path / "out here" / "copy").mkdir(parents=True)
    assert script("train_pocket.sh").returncode == 0
    assert len(calls(tmp_path)) == len(STAGES)


def test_another_seed_in_the_same_folder_is_refused(script: Script, tmp_path: Path) -> None:
    script("train_pocket.sh")
    calls(tmp_path)
    done = script("train_pocket.sh", SEED="1")
    assert (done.returncode, calls(tmp_path)) == (2, [])
    assert "out here holds what another seed or recipe made" in done.stderr


def test_settings_are_ones_that_collab_knows(script: Script, tmp_path: Path) -> None:
    script("train_pocket.sh")
    for call in calls(tmp_path):
        settings = [call[place + 1] for place, word in enumerate(call) if word == "--set"]
        if call[0] == "synth":
            assert {setting.partition("=")[0] for setting in settings} <= set(SynthConfig.model_fields)
        elif call[0] == "finetune":
            override(load_preset("pocket").recipe(option(call, "--stage")), settings)


def test_pages_are_those_of_the_rule() -> None:
    pytest.importorskip("miniwob")
    text = (SCRIPTS / "evaluate_pocket.sh").read_text()
    named = re.search(r"pages=(.+?)\n\n", text, re.DOTALL)
    assert named is not None
    environment = Library().load("envs", "mobile-miniwob", EnvironmentDefinition)
    infos = build("environments", environment.part, "mobile-miniwob").tasks()
    chosen = {one.name for one in infos if one.name.startswith(("click-", "enter-", "focus-text"))}
    assert set(named.group(1).replace("\\\n", "").split(",")) == chosen - {
        one.name for one in infos if "look" in one.tags
    }
