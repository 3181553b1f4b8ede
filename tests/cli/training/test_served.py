"""A small judge and an adversary behind a real server: calibrated as in this process, and trained with to the end."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from collab.data.example import Example
from collab.library import find_builtin_root
from collab.loop.record import LABELS, TrainingDir
from collab.preferences.adversary import AdversaryPrompt, read_adversary_prompts
from collab.preferences.store import read_pairs
from collab.prompts.parse import read_reply
from collab.rewards.labels import read_labels
from collab.testing import toy_team
from collab.testing.corridor import CorridorSuite
from collab.testing.toy_team import build_toy_examples, write_library

TAUGHT = ("epochs=40", "batch_rows=8", "learning_rate=0.01", "optimizer=adamw", "precision=float32", "context=4096")


def write_critic(file: str, model: dict[str, Any]) -> str:
    definition = {"kind": "prm", "options": {"model": model}, "prompt": "critic-prm", "context_tokens": 2048}
    Path(file).write_text(json.dumps({**definition, "sampling": {"temperature": 0.0, "max_tokens": 64}}))
    return file


async def build_clumsy_examples() -> list[Example]:
    """Every other button than the right one, asked for as an adversary is."""
    suite, folder = CorridorSuite(), find_builtin_root() / "prompts/adversary"
    role = AdversaryPrompt(read_adversary_prompts(folder)["clumsy"])
    rows = []
    for one in await build_toy_examples():
        environment = await suite.open()
        screen = await environment.reset(suite.instance("PressButton", one.provenance.seed))
        pressed = read_reply(one.reply, suite.space, screen).action
        for index in range(1, 5):
            right = suite.space.make("click", index=index)
            occasion: Any = SimpleNamespace(
                case=SimpleNamespace(space=suite.space, observation=screen), prompt=one.prompt, right=right
            )
            if right != pressed:
                rows.append(replace(one, prompt=role.build_prompt(occasion)))
    return rows


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_team_learns_from_a_judge_and_an_adversary_behind_a_server(
    collab, real_server: str, tiny: Path, finetuned: Path, tmp_path: Path
) -> None:
    library = write_library(tmp_path / "library", finetuned)
    asked = ("--env", "corridor", "--library", str(library.own))

    def run(*command: str, settings: tuple[str, ...] = ()) -> str:
        code, out, err = collab(*command, *(word for one in settings for word in ("--set", one)))
        assert code == 0, err
        return f"{out}{err}"

    def serve(checkpoint: Path) -> dict[str, Any]:
        return {"kind": "openai", "options": {"model": str(checkpoint), "base_url": real_server, "concurrency": 4}}

    def compute_here(checkpoint: Path) -> dict[str, Any]:
        return {"kind": "local", "options": {"path": str(checkpoint), "max_batch": 8, "device": "cpu"}}

    untaught = write_critic("untaught.yaml", compute_here(finetuned))
    run("critic", "rows", *asked, "--critic", untaught, "--cases", "24", "--seed", "11", "--out", "rows")
    taught = ("finetune", "--stage", "sft", "--base", str(finetuned), "--data", "rows", "--levels", "demonstration")
    run(*taught, "--preset", "prm-pocket", "--device", "cpu", "--out", "judge", settings=TAUGHT)
    judge = Path("judge/final").resolve()

    def calibrate(critic: str, out: str) -> dict[str, Any]:
        steps = ("--cases", "6", "--seed", "1", "--out", out)
        run("critic", "calibrate", *asked, "--critic", critic, *steps, settings=("permutations=0",))
        return dict(json.loads(Path(out, "calibration.json").read_text()))

    here = calibrate(write_critic("here.yaml", compute_here(judge)), "calibrations/here")
    served = calibrate(write_critic("served.yaml", serve(judge)), "calibrations/served")
    assert served["numbers"] == here["numbers"], "the same words, read in the same way"
    assert served["spent"] == here["spent"]
    assert here["numbers"]["auc"] > 0.7
    clumsy = toy_team.finetune(tiny, tmp_path / "clumsy", asyncio.run(build_clumsy_examples())).resolve()
    Path(library.own, "agents/clumsy.yaml").write_text(json.dumps({**serve(clumsy), "prompt": "pocket"}))
    sources = ("pairs={adversary: 1, contrast: 0, correction: 0}", "adversary=clumsy", "critic=served.yaml")
    small = ("epochs=1", "episodes=6", "steps=null", "held_out.episodes=2", "held_out.before=false")
    train = ("train-marl", *asked, "--graph", "pair", "--agents", "toy", "--device", "cpu")
    run(*train, "--out", "run", settings=(*small, *sources))
    epoch = TrainingDir(Path("run")).get_epoch(1)
    labels = read_labels(epoch.rollout, LABELS)
    scores = {one.score for step in labels.judged.values() for one in step.rewards.rewards}
    assert {1.0} <= scores <= {0.0, 1.0, None}
    pairs = read_pairs(epoch.rollout, LABELS).pairs
    assert pairs
    for pair in pairs:
        assert (pair.source, pair.adversary) == ("adversary", f"llm-1: {clumsy}")
    record = json.loads(epoch.record.read_text())
    assert record["trained"]["shared"]["steps"] > 0
    assert record["spent"]["critic"]["calls"] > 0
    assert record["spent"]["adversary"]["calls"] >= len(pairs)
