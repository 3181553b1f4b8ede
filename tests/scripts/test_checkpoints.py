"""Scripts of shipped checkpoints: what they ask of `collab` (a recorder here), and how they resume."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from collab.config import AgentDefinition, EnvironmentDefinition, override
from collab.library import Library, find_builtin_root
from collab.rollout.build import build
from collab.synthesis.config import SynthConfig
from collab.trainers.recipe import load_preset

SCRIPTS = find_builtin_root() / "scripts"
RECORDER = """#!/usr/bin/env bash
printf '%q ' "$@" >> calls; echo >> calls
what=$1
while [[ $# -gt 0 ]]; do
  if [[ $1 == --out || $1 == --resume ]]; then folder=$2; fi
  shift
done
[[ -n ${folder:-} ]] || exit 0
mkdir -p "$folder"
declare -A manifests=([synth]=synth.json [finetune]=finetune.json [rollout]=run.json [train]=training.json)
if [[ -n ${manifests[$what]:-} ]]; then
  touch "$folder/${manifests[$what]}"
  if [[ -e break && $(basename "$folder") == "$(cat break)" ]]; then rm break; exit 1; fi
  touch "$folder/$([[ $what == synth ]] && echo card.md || echo final)"
fi
"""
STAGES = "rows preferences demonstrations blank copy basic instruction demonstration dpo".split()
EARLY = "demonstrations final".split()
UNDEMONSTRATED = "rows learned copy basic final".split()
SILENT = "rows demonstrations learned copy basic instruction final".split()
SCRIPTED = pytest.mark.parametrize(
    ("name", "stages"),
    [
        ("train_pocket.sh", STAGES),
        ("train_early.sh", EARLY),
        ("train_undemonstrated.sh", UNDEMONSTRATED),
        ("train_silent.sh", SILENT),
    ],
    ids=["pocket", "early", "undemonstrated", "silent"],
)

Script = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """Runs a script in an empty folder."""
    recorder = tmp_path / "collab"
    recorder.write_text(RECORDER)
    recorder.chmod(0o755)

    def run(name: str, scripts: Path = SCRIPTS, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", str(scripts / name), "out here"],
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


@SCRIPTED
def test_every_stage_begins_from_the_one_before_with_the_same_seed(
    script: Script, tmp_path: Path, name: str, stages: list[str]
) -> None:
    assert script(name, SEED="7").returncode == 0
    made = calls(tmp_path)
    assert [Path(option(call, "--out") or "").name for call in made] == stages
    assert {option(call, "--seed") for call in made} == {"7"}
    begun, *trained = [call for call in made if option(call, "--base")]
    assert option(begun, "--base") == ("built-in:pocket" if name == "train_early.sh" else "out here/blank")
    before = stages[-len(trained) - 1 : -1]
    assert [option(call, "--base") for call in trained] == [f"out here/{stage}/final" for stage in before]
    assert script(name, SEED="7").returncode == 0
    assert calls(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "taught"),
    [
        ("train_undemonstrated.sh", ["basic,instruction", None, "basic", "instruction"]),
        ("train_silent.sh", ["basic,instruction", "demonstration", None, "basic", "instruction", "demonstration"]),
    ],
    ids=["undemonstrated", "silent"],
)
def test_a_base_from_nothing_reads_the_tokens_of_the_pocket(
    script: Script, tmp_path: Path, name: str, taught: list[str | None]
) -> None:
    assert script(name).returncode == 0
    pocket = find_builtin_root() / "agents" / "pocket"
    blank = tmp_path / "out here" / "blank"
    assert {one.name for one in blank.iterdir()} == {"tokenizer.json", "tokenizer_config.json"}
    assert all(one.read_bytes() == (pocket / one.name).read_bytes() for one in blank.iterdir())
    levels = [option(call, "--levels") for call in calls(tmp_path) if call[0] in ("synth", "finetune")]
    assert levels == taught


def test_no_row_of_the_silent_base_holds_a_message(script: Script, tmp_path: Path) -> None:
    assert script("train_silent.sh").returncode == 0
    made = [call for call in calls(tmp_path) if call[0] == "synth"]
    shares = [[word for word in call if word.startswith("talk=")][-1] for call in made]
    assert shares == ["talk=0", "talk=0"], "the last setting counts"


def test_the_policy_that_looks_learns_twice_and_resumes(script: Script, tmp_path: Path) -> None:
    (tmp_path / "break").write_text("more")
    assert script("train_sighted.sh", SEED="7").returncode == 1
    begun = calls(tmp_path)
    assert [Path(option(call, "--out") or "").name for call in begun] == ["blank", "few", "first", "seeing", "more"]
    assert [option(call, "--seed") for call in begun] == ["7", "7", "7", None, "8"]
    assert script("train_sighted.sh", SEED="7").returncode == 0
    again = calls(tmp_path)
    assert [call[:3] for call in again[:3]] == [
        ["runs", "resume", "out here/few"],
        ["train", "--resume", "out here/first"],
        ["runs", "resume", "out here/more"],
    ]
    assert [call[0] for call in again[3:]] == ["train", "export"]
    (learned,) = (call for call in again if "--offline" in call)
    assert option(learned, "--offline") == "out here/more"
    assert "run.agents.*.options.path=out here/seeing" in learned
    assert again[-1][1] == "out here/second@last"


@pytest.mark.parametrize("stage", ["preferences", "instruction"])
def test_what_was_stopped_resumes_where_it_was(script: Script, tmp_path: Path, stage: str) -> None:
    (tmp_path / "break").write_text(stage)
    assert script("train_pocket.sh").returncode == 1
    begun = calls(tmp_path)
    assert script("train_pocket.sh").returncode == 0
    resumed, *rest = calls(tmp_path)
    assert resumed[1:] == ["--resume", f"out here/{stage}"]
    assert [Path(option(call, "--out") or "").name for call in begun + rest] == STAGES


def test_a_folder_that_was_never_begun_is_no_obstacle(script: Script, tmp_path: Path) -> None:
    (tmp_path / "break").write_text("basic")
    script("train_pocket.sh")
    calls(tmp_path)
    (tmp_path / "out here" / "basic" / "finetune.json").unlink()
    assert script("train_pocket.sh").returncode == 0
    first = calls(tmp_path)[0]
    assert option(first, "--out") == "out here/basic"


def test_what_is_not_its_own_is_left_as_it_is(script: Script, tmp_path: Path) -> None:
    mine = tmp_path / "out here" / "rows" / "thesis.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("two years of work")
    done = script("train_pocket.sh")
    assert (done.returncode, calls(tmp_path), mine.read_text()) == (2, [], "two years of work")
    assert done.stderr == "error: out here is there already and holds something else; name another folder\n"
    mine.unlink()
    mine.parent.rmdir()
    assert script("train_pocket.sh").returncode == 0, "an empty folder is as good as none"


def test_another_seed_in_the_same_folder_is_refused(script: Script, tmp_path: Path) -> None:
    script("train_pocket.sh")
    calls(tmp_path)
    done = script("train_pocket.sh", SEED="1")
    assert (done.returncode, calls(tmp_path)) == (2, [])
    assert "out here holds what another seed or recipe made" in done.stderr


@pytest.mark.parametrize("changed", ["collab/trainers/presets/pocket.yaml", "prompts/pocket/shared.jinja"])
def test_other_settings_in_the_same_folder_are_refused(script: Script, tmp_path: Path, changed: str) -> None:
    checkout = tmp_path / "checkout"
    for part in ("scripts/train_pocket.sh", "scripts/stages.sh", "collab/trainers/presets/pocket.yaml"):
        (checkout / part).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(find_builtin_root() / part, checkout / part)
    shutil.copytree(find_builtin_root() / "prompts" / "pocket", checkout / "prompts" / "pocket")
    assert script("train_pocket.sh", checkout / "scripts").returncode == 0
    calls(tmp_path)
    with (checkout / changed).open("a") as file:
        file.write("# another\n")
    done = script("train_pocket.sh", checkout / "scripts")
    assert (done.returncode, calls(tmp_path)) == (2, [])
    assert "out here holds what another seed or recipe made" in done.stderr


@SCRIPTED
def test_every_level_that_is_made_is_trained_on(script: Script, tmp_path: Path, name: str, stages: list[str]) -> None:
    """A set of rows is asked for the levels that the stages take from it."""
    assert script(name).returncode == 0
    made: dict[str, set[str]] = {}
    taken: dict[str, set[str]] = {}
    for call in calls(tmp_path):
        if call[0] == "synth":
            made[option(call, "--out") or ""] = set((option(call, "--levels") or "").split(","))
        elif call[0] == "finetune":
            levels = {"copy": "", "dpo": "preference"}.get(option(call, "--stage") or "")
            default = "basic,instruction,demonstration" if levels is None else levels
            for folder in (option(call, "--data") or "").split(","):
                taken.setdefault(folder, set()).update((option(call, "--levels") or default).split(","))
    assert made == {folder: made[folder] & taken[folder] for folder in made}


@SCRIPTED
def test_settings_are_ones_that_collab_knows(script: Script, tmp_path: Path, name: str, stages: list[str]) -> None:
    assert script(name).returncode == 0
    for call in calls(tmp_path):
        settings = [call[place + 1] for place, word in enumerate(call) if word == "--set"]
        if call[0] == "synth":
            assert {setting.partition("=")[0] for setting in settings} <= set(SynthConfig.model_fields)
        elif call[0] == "finetune":
            override(load_preset("pocket").get_recipe(option(call, "--stage")), settings)


def test_every_stage_is_measured_as_it_will_play_and_stands_in_the_table(script: Script, tmp_path: Path) -> None:
    done = script("evaluate_pocket.sh")
    assert done.returncode == 0, done.stderr
    *played, told = calls(tmp_path)
    agent = Library().load("agents", "pocket", AgentDefinition)
    folders: dict[str, dict[str, list[str]]] = {}
    for call in played:
        folder = Path(option(call, "--out") or "")
        folders.setdefault(str(folder.parent), {})[folder.name] = call
        assert (call[0], option(call, "--seeds")) == ("eval", "30,31,32")
        settings = dict(call[place + 1].split("=") for place, word in enumerate(call) if word == "--set")
        stage = folder.parent.name
        alone = {"agents.*.sampling.temperature": "0"} if stage != "team" else {}
        assert option(call, "--graph") == ("single" if alone else "team")
        assert settings == {
            "agents.*.options.path": {"untrained": "out here/blank", "team": "out here/dpo/final"}.get(
                stage, f"out here/{stage}/final"
            ),
            "agents.*.prompt": agent.prompt,
            "agents.*.history": str(agent.history),
            "agents.*.context_tokens": str(agent.context_tokens),
            "agents.*.sampling.max_tokens": str(agent.sampling.max_tokens),
            **alone,
        }
    for parts in folders.values():
        assert {name: option(call, "--split") for name, call in parts.items()} == {
            **{split: split for split in ("new-seeds", "unseen-tasks", "unseen-app")},
            "pages": None,
        }
        assert option(parts["pages"], "--env") == "mobile-miniwob"
    assert told[:2] == ["runs", "table"]
    rows = dict(word.lstrip("+").split("=") for word in told if "=" in word)
    assert rows == {Path(folder).name: folder for folder in folders}
    assert set(rows) == {"untrained", *STAGES[5:], "team"}


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
