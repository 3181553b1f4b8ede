"""The published method, with a critic and an adversary behind a server on loopback."""

from __future__ import annotations

import json
import re
from collections import Counter, deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from collab.cli.main import main
from collab.preferences.store import read_pairs
from collab.rewards.base import ABSENT, OUT_OF_RANGE
from collab.testing import toy_team
from collab.testing.fake_server import FakeServer

pytestmark = pytest.mark.slow

CRITIC = """\
kind: llm
options: {model: {kind: openai, options: {model: fake, base_url: URL, retries: 0}}}
"""
ADVERSARY = """\
kind: openai
options: {model: fake, base_url: URL, retries: 0}
sampling: {temperature: 0.3, max_tokens: 64}
"""
WRONG = 'Reason: That should do.\nAction: {"action_type": "navigate_home"}'
SMALL = (
    *("epochs=1", "episodes=4", "held_out.episodes=2", "dpo.context=2048", "dpo.batch_rows=4"),
    *("dpo.lora={rank: 4, alpha: 8, merge: true}", "run.agents.*.sampling.max_tokens=40"),
)

Bad = Callable[[list[dict[str, Any]]], str]


class Voice:
    """Judge correctly, or in the next way of `bad`; as an adversary, always go home."""

    def __init__(self) -> None:
        self.bad: deque[Bad] = deque()
        self.asked = Counter[str]()
        self.sampled: set[tuple[str, float]] = set()

    def __call__(self, body: Mapping[str, Any]) -> str:
        text = str(body["messages"][-1]["content"])
        proposals = [json.loads(line) for line in re.findall(r'^\{"agent".*\}$', text, re.MULTILINE)]
        who = "critic" if proposals else "adversary" if "very clumsy" in text else "probe"
        self.asked[who] += 1
        self.sampled |= {(who, body["temperature"])} if who != "probe" else set()
        if who != "critic":
            return WRONG
        (button,) = re.findall(r"Press the button (\S+) and then", text)
        wanted = "complete" if "Nothing is left to do" in text else f'"{button}"'
        scores = [{**one, "score": 0.9 if wanted in one["action"] else 0.1, "reason": "seen"} for one in proposals]
        spoilt = self.bad and len(scores) > 1  # of one score alone, none would be left
        return self.bad.popleft()(scores) if spoilt else json.dumps({"scores": scores})


def shown(capsys: pytest.CaptureFixture[str], *arguments: object) -> Any:
    code = main([*map(str, arguments), "--json"])
    said = capsys.readouterr()
    assert code == 0, said.err
    return json.loads(said.out)


def test_a_team_is_trained_as_published_by_models_behind_a_server(
    finetuned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret-0123456789")
    monkeypatch.chdir(tmp_path)
    library = toy_team.write_library(tmp_path / "library", finetuned)
    assert library.own is not None
    voice, where = Voice(), ("--env", "corridor", "--library", library.own)
    with FakeServer(supports={"seed"}, says=voice) as server:
        for name, text in (("critic-llm", CRITIC), ("openai", ADVERSARY)):
            (library.own / "agents" / f"{name}.yaml").write_text(text.replace("URL", server.url))
        asked = ("--critic", "critic-llm", "--cases", 4, "--set", "permutations=0")
        measured = shown(capsys, "critic", "calibrate", *where, *asked)
        assert measured["calibration"]["numbers"]["auc"] == 1.0
        assert voice.asked["adversary"] == 0
        voice.bad.extend(
            [
                lambda scores: "They all look fine to me.",
                lambda scores: json.dumps(scores[:-1]),
                lambda scores: json.dumps([{**scores[0], "score": 7}, *scores[1:]]),
                lambda scores: "",
            ]
        )
        settings = [item for one in SMALL for item in ("--set", one)]
        team = ("--graph", "pair", "--agents", "toy", "--preset", "paper", *settings)
        told = shown(capsys, "train-marl", *where, *team, "--device", "cpu", "--out", "run")
    assert not voice.bad
    (record,) = [one for one in told["epochs"] if one["epoch"] == 1]
    missing = record["metrics"]["missing"]
    assert missing["the critic: the reply is not JSON"] > 0
    assert missing["the critic: the reply is empty"] > 0
    assert missing[ABSENT] > 0
    assert missing[OUT_OF_RANGE] > 0
    stored = read_pairs(tmp_path / "run/epochs/1/rollout", "training")
    assert len(stored.pairs) > 0
    assert {(pair.source, pair.critic, pair.adversary) for pair in stored.pairs} == {
        ("adversary", "llm-3", "llm-1: fake")
    }
    assert {pair.synthetic for pair in stored.pairs} == {WRONG}
    assert voice.sampled == {("critic", 0.1), ("adversary", 0.1)}
    assert voice.asked["adversary"] >= len(stored.pairs)
    assert record["trained"]["shared"]["steps"] > 0
    assert not [path for path in (tmp_path / "run").rglob("*.json*") if b"very-secret" in path.read_bytes()]
