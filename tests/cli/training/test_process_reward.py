"""A process reward model on the command line: its rows, its calibration, and its words in the inspector."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from collab.data.parquet import read_rows
from collab.loop.loop import start
from collab.loop.record import LABELS, TrainingDir
from collab.rewards.labels import read_labels
from collab.rewards.process_reward import JUDGMENT
from collab.testing.fake_server import FakeServer
from collab.testing.toy_team import configure_toy_training, write_library
from collab.view.inspector import Inspector

PLAY = ("--env", "corridor", "--agents", "rehearsal", "--graph", "chain4", "--episodes", "2", "--out", "run")


def read(result: tuple[int, str, str], code: int = 0) -> Any:
    assert result[0] == code, result[2]
    return json.loads(result[1])


def write_judge(server: FakeServer) -> None:
    options = {"model": "fake", "base_url": server.url, "api_key_env": "", "retries": 0}
    Path("prm.yaml").write_text(
        json.dumps({"kind": "prm", "options": {"model": {"kind": "openai", "options": options}}})
    )


def see_doors(body: Mapping[str, Any]) -> str:
    """Call every tap right, as if all of a corridor were doors."""
    proposed = body["messages"][-1]["content"].splitlines()[-1]
    return JUDGMENT.format("click" in proposed, f"I looked at {proposed}.")


def test_one_that_answers_as_its_rows_do_is_found_to_be_right(collab, monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeServer() as server:
        write_judge(server)
        asked = ("--env", "corridor", "--critic", "prm.yaml", "--cases", "4")
        written = read(collab("critic", "rows", *asked, "--out", "rows", "--json"))["rows"]
        rows = list(read_rows(Path("rows/demonstration.parquet")))
        assert written == len(rows) > 4, "a row per action"
        assert {JUDGMENT.read(row.reply).value for row in rows} == {True, False}
        answers = {row.prompt.user: row.reply for row in rows}
        monkeypatch.setattr(
            "collab.testing.fake_server.write_reply",
            lambda body: answers.get(body["messages"][-1]["content"], "I cannot say."),
        )
        out = collab("critic", "calibrate", *asked, "--set", "permutations=0")
        assert out[0] == 0, out[2]
        assert re.search(r"^accuracy +1\.000", out[1], re.MULTILINE)
        assert re.search(r"^AUC +1\.000", out[1], re.MULTILINE)
        assert "missing      0 of" in out[1]
    code, _, err = collab("critic", "rows", *asked, "--plain", "--out", "plain")
    assert (code, "answers with True or False anyway" in err) == (2, True)


def test_one_that_says_neither_is_counted_and_stopped(collab) -> None:
    with FakeServer(says=lambda body: "That is a bold move.") as server:
        write_judge(server)
        asked = ("--env", "corridor", "--critic", "prm.yaml", "--cases", "2", "--set", "permutations=0")
        code, out, _ = collab("critic", "calibrate", *asked)
        assert code == 0
        missing, cells = re.findall(
            rf"^missing +(\d+) of (\d+): \d+ the critic: {JUDGMENT.absent}$", out, re.MULTILINE
        )[0]
        assert missing == cells
        # A training asks in the same way, and stops in the same way.
        assert collab("rollout", *PLAY, "--set", "graph.rounds=1", "--episodes", "4")[0] == 0
        code, _, err = collab("pairs", "rebuild", "run", "--critic", "prm.yaml")
        assert code == 1
        assert "no score in 10 judgements in a row; the last answer begins 'That is a bold move.'" in err
        assert f"(the critic: {JUDGMENT.absent})" in err


def test_its_analysis_is_shown_where_a_critic_gives_its_reason(collab) -> None:
    with FakeServer(says=see_doors) as server:
        write_judge(server)
        assert collab("rollout", *PLAY, "--set", "graph.rounds=1")[0] == 0
        code, _, err = collab("pairs", "rebuild", "run", "--critic", "prm.yaml")
        assert code == 0, err
    labels = read_labels(Path("run"), "prm")
    assert labels.head.critic == "prm-1"
    inspector = Inspector([Path("run")])
    run = inspector.list_runs().runs[0].id
    shown = {
        cell.because.text
        for trajectory, step in labels.judged
        for cell in inspector.get_step(run, trajectory, step).cells
        if cell.score is not None
    }
    assert shown
    assert all(re.fullmatch(r"I looked at .+\.", one) for one in shown)


def know_doors(body: Mapping[str, Any]) -> str:
    """Judge as someone who knows a corridor: the named button leads on, the end is declared at the end."""
    asked = body["messages"][-1]["content"]
    label = re.search(r'^Proposed: tap button "(\w+)"', asked, re.MULTILINE)
    there = "Nothing is left to do" in asked
    return JUDGMENT.format(there if label is None else label[1] in asked.splitlines()[0], "I know the way.")


@pytest.mark.medium
@pytest.mark.timeout(600)
@pytest.mark.variations
@pytest.mark.parametrize(("algo", "more"), [("coach", ("episodes=6", "k=2")), ("collabuiagents", ("episodes=3",))])
def test_a_training_learns_from_its_judgements(
    collab, finetuned: Path, tmp_path: Path, algo: str, more: tuple[str, ...]
) -> None:
    library = write_library(tmp_path / "library", finetuned)
    with FakeServer(says=know_doors) as server:
        write_judge(server)
        quick = ("determinism=fast", "held_out.before=false", "held_out.episodes=1")
        settings = ("critic=prm.yaml", "epochs=1", *quick, *more)
        config = asyncio.run(configure_toy_training(library, *settings, algorithm=algo))
        result = asyncio.run(start(config, tmp_path / "run", options={"allow_uncalibrated": True}, device="cpu"))
    assert result.summary is not None
    epoch = TrainingDir(tmp_path / "run").get_epoch(1)
    labels = read_labels(epoch.rollout, LABELS)
    assert labels.head.critic == "prm-1"
    assert {one.score for step in labels.judged.values() for one in step.rewards.rewards} >= {0.0, 1.0}
    record = json.loads(epoch.record.read_text())
    assert record["trained"]["shared"]["steps"] > 0
    assert record["spent"]["critic"]["calls"] > 0


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_one_that_was_trained_on_a_policys_judgements_teaches_that_policy(
    collab, finetuned: Path, tmp_path: Path
) -> None:
    """Rows of its own replies, a checkpoint from them, its calibration, and a training that asks it; no server.

    Q of that training is first fitted to the same synthesis's candidates.
    """
    asked = ("--env", "corridor", "--library", str(write_library(tmp_path / "library", finetuned).own))

    def run(*command: str, settings: tuple[str, ...] = ()) -> str:
        code, out, err = collab(*command, *(word for one in settings for word in ("--set", one)))
        assert code == 0, err
        return f"{out}{err}"

    run(
        *("synth", "--levels", "candidate", "--agents", "toy", *asked),
        *("--episodes", "24", "--screens", "0", "--out", "made"),
    )
    rows = list(read_rows(Path("made/judgement.parquet")))
    assert {one.kind for one in rows} == {"right", "wrong"}
    recipe = ("epochs=30", "batch_rows=8", "learning_rate=0.01", "optimizer=adamw", "precision=float32", "context=4096")
    taught = ("finetune", "--stage", "sft", "--base", str(finetuned), "--data", "made", "--preset", "prm-pocket")
    run(*taught, "--device", "cpu", "--out", "prm", settings=recipe)
    model = {"kind": "local", "options": {"path": str(Path("prm/final").resolve()), "max_batch": 8, "device": "cpu"}}
    critic = {"kind": "prm", "options": {"model": model}, "prompt": "critic-prm"}
    Path("judge.yaml").write_text(json.dumps({**critic, "sampling": {"temperature": 0.0, "max_tokens": 128}}))

    calibrate = ("critic", "calibrate", *asked, "--critic", "judge.yaml", "--cases", "6")
    measured = run(*calibrate, settings=("permutations=0",))
    missing, steps = map(int, re.findall(r"^missing +(\d+) of (\d+)", measured, re.MULTILINE)[0])
    assert missing < steps, "it says True or False; of screens of other tasks than its rows', at times neither"

    small = ("episodes=6", "steps=null", "k=2", "warmup_epochs=0", "rl.batch_rows=8", "held_out.episodes=2")
    values = "values={learning_rate: 1e-3, batch_rows: 8, sharing: prefix}"
    taught_first = ("pretraining=made", "pretraining_passes=1", "rehearsed=8")
    easy = "run.environment.backends.fake.options.declared=false"
    train = ("train", "--algo", "coach", *asked, "--graph", "single", "--agents", "toy", "--allow-uncalibrated")
    told = run(
        *(*train, "--device", "cpu", "--out", "run"),
        settings=("critic=judge.yaml", "epochs=1", "rl.context=2048", *small, values, easy, *taught_first),
    )
    assert "another environment" not in told
    assert "critic judge.yaml: " in told
    assert "no finished calibration" not in told
    epoch = TrainingDir(Path("run")).get_epoch(1)
    labels = read_labels(epoch.rollout, LABELS)
    assert labels.head.critic.startswith("prm-")
    scores = [one.score for step in labels.judged.values() for one in step.rewards.rewards]
    assert {0.0, 1.0} >= set(scores) - {None} > set()
    record = json.loads(epoch.record.read_text())
    assert record["trained"]["shared"]["steps"] > 0
    metrics = record["metrics"]["coach"]
    assert metrics["rewards"]
    assert metrics["pretrained"] == len(list(read_rows(Path("made/candidate.parquet"))))
    assert 8 <= metrics["rehearsed"] < metrics["pretrained"]
