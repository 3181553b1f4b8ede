"""Waits on a model server as a person meets them: bounded, told, and ended by one signal."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from collab.rewards.labels import read_labels
from collab.synthesis.card import gather
from collab.synthesis.journal import read_records
from collab.testing.fake_server import FakeServer, Fault
from collab.utils import progress
from collab.utils.concurrency import note_doing

TOMORROW = Fault(status=429, headers={"Retry-After": "86400"}, message="quota used up, come back tomorrow")
FAULTS = [TOMORROW, Fault(broken="hang"), Fault(broken="drip")]
PLAY = ("rollout", "--env", "corridor", "--graph", "single", "--episodes", "1", "--out", "run", "--agents", "served")

Result = tuple[int, str, str]


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    """Handlers of signals as they were before."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def serve(server: FakeServer, name: str = "served.yaml", kind: str = "openai", **options: object) -> None:
    settings = {"model": "fake", "base_url": server.url, "api_key_env": "", **options}
    Path(name).write_text(json.dumps({"kind": kind, "options": settings}))


@contextlib.contextmanager
def terminated_when(ready: Callable[[], bool]) -> Iterator[None]:
    """Send this process one SIGTERM, a moment after something has come about in the block."""
    over = threading.Event()

    def wait() -> None:
        while not ready():
            if over.wait(0.02):
                return
        if not over.wait(0.1):
            os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.variations
@pytest.mark.parametrize("fault", FAULTS, ids=["retry-after", "hang", "drip"])
def test_a_check_ends_in_time_with_the_servers_words(collab, fault: Fault) -> None:
    with FakeServer(refuses=lambda body: fault) as server:
        serve(server)
        started = time.monotonic()
        code, _, err = collab("agents", "check", "served.yaml", "--timeout", "1")
    assert code == 1
    assert time.monotonic() - started < 20
    assert "not all was answered within 1 s (--timeout)" in err
    assert ("answered 429: quota used up, come back tomorrow" in err) == (fault is TOMORROW)


def test_a_list_of_models_that_never_comes_stops_nobody(collab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collab.models.probe._LIST_S", 0.2)
    with FakeServer(models=Fault(broken="drip")) as server:
        serve(server)
        code, out, err = collab("agents", "check", "served.yaml")
    assert code == 0, err
    assert "list of models: none within 0.2 s" in out


@pytest.mark.parametrize("fault", FAULTS, ids=["retry-after", "hang", "drip"])
def test_one_signal_ends_a_rollout_that_waits_before_it_begins(collab, fault: Fault) -> None:
    with FakeServer(refuses=lambda body: fault) as server:
        serve(server)
        with terminated_when(lambda: bool(server.requests)):
            code, _, err = collab(*PLAY[:-1], "served.yaml")
    assert code == 1
    assert "stopped on request before anything was begun" in err
    assert not Path("run").exists()


@pytest.mark.variations
@pytest.mark.parametrize("fault", FAULTS, ids=["retry-after", "hang", "drip"])
def test_one_signal_ends_a_rollout_that_waits_in_the_middle(collab, fault: Fault) -> None:
    def refuses(body: object) -> Fault | None:
        return fault if "Task" in str(body) else None

    with FakeServer(refuses=refuses) as server:
        serve(server)
        with terminated_when(lambda: any("Task" in str(body) for body in server.requests)):
            code, _, err = collab(*PLAY[:-1], "served.yaml")
    assert code == 1
    assert "resume with: collab runs resume run" in err


@pytest.mark.variations
@pytest.mark.parametrize("fault", [TOMORROW, Fault(broken="hang")], ids=["retry-after", "hang"])
@pytest.mark.parametrize("when", ["before", "in the middle"])
def test_one_signal_ends_a_calibration(collab, fault: Fault, when: str) -> None:
    def refuses(body: object) -> Fault | None:
        return (
            fault if when == "before" or ("Say hello" not in str(body) and "random letters" not in str(body)) else None
        )

    with FakeServer(refuses=refuses) as server:
        options = {"model": "fake", "base_url": server.url, "api_key_env": ""}
        critic = {"kind": "llm", "options": {"model": {"kind": "openai", "options": options}}, "prompt": "critic"}
        Path("judge.yaml").write_text(json.dumps(critic))
        started = time.monotonic()
        with terminated_when(lambda: bool(server.requests) and refuses(server.requests[-1]) is not None):
            code, _, err = collab("critic", "calibrate", "--env", "corridor", "--critic", "judge.yaml", "--cases", "2")
    assert code == 1, err
    assert "stopped" in err
    assert time.monotonic() - started < 40


@pytest.mark.slow
def test_what_an_adversary_was_asked_in_vain_is_told_as_of_unknown_cost(collab, caplog) -> None:
    assert collab(*PLAY[:-1], "rehearsal")[0] == 0

    def refuses(body: object) -> Fault | None:
        return Fault(broken="hang") if "Task" in str(body) else None

    with FakeServer(refuses=refuses) as server:
        serve(server)
        with terminated_when(lambda: any("Task" in str(body) for body in server.requests)):
            collab(
                "pairs", "rebuild", "run", "--critic", "oracle", "--adversary", "served.yaml", "--source", "adversary"
            )
    assert "adversary: " in caplog.text
    assert "never answered whole; the cost is not known" in caplog.text
    lost = sum(one.get("lost", 0) for one in lines("run/proposals"))
    assert lost > 0
    with FakeServer() as server:
        serve(server)
        again = ("pairs", "rebuild", "run", "--critic", "oracle", "--adversary", "served.yaml", "--source", "adversary")
        code, out, err = collab(*again)
    assert code == 0, err
    told = "call was" if lost == 1 else "calls were"
    assert f"{lost} {told} sent and never answered whole; what they cost is not known" in out
    assert json.loads(next(Path("run/pairs").glob("*/pairs.json")).read_text())["spent"]["lost"] == lost


def serve_critic(server: FakeServer) -> None:
    options = {"model": "fake", "base_url": server.url, "api_key_env": ""}
    critic = {"kind": "llm", "options": {"model": {"kind": "openai", "options": options}}, "prompt": "critic"}
    Path("judge.yaml").write_text(json.dumps(critic))


def hangs_in_the_middle(body: object) -> Fault | None:
    return Fault(broken="hang") if not any(words in str(body) for words in ("Say hello", "random letters")) else None


def lines(folder: str) -> list[dict[str, object]]:
    """What a folder of events holds."""
    return [json.loads(line) for file in sorted(Path(folder).glob("**/*.jsonl")) for line in file.open()]


@pytest.mark.slow
def test_what_a_critic_was_asked_in_vain_is_recorded_beside_the_run(collab) -> None:
    assert collab(*PLAY[:-1], "rehearsal")[0] == 0
    judge = ("pairs", "rebuild", "run", "--critic", "judge.yaml", "--labels", "odd", "--concurrency", "1")
    with FakeServer(refuses=hangs_in_the_middle) as server:
        serve_critic(server)
        with terminated_when(lambda: any(map(hangs_in_the_middle, server.requests))):
            _, out, _ = collab(*judge)
    (lost,) = [one["lost"] for one in lines("run/labels/odd") if one["type"] == "unanswered"]
    assert lost
    assert f"{lost} call" in out
    assert "sent and never answered whole; what they cost is not known" in out
    told = read_labels(Path("run"), "odd")
    assert sum(one.lost for one in told.lost) == lost


@pytest.mark.slow
def test_what_a_calibration_asked_in_vain_is_part_of_what_it_spent(collab) -> None:
    calibrate = ("critic", "calibrate", "--env", "corridor", "--critic", "judge.yaml", "--cases", "1", "--out", "made")
    healed = threading.Event()
    with FakeServer(refuses=lambda body: None if healed.is_set() else hangs_in_the_middle(body)) as server:
        serve_critic(server)
        with terminated_when(lambda: any(map(hangs_in_the_middle, server.requests))):
            _, out, _ = collab(*calibrate, "--json")
        lost = json.loads(out)["spent"]["lost"]
        assert lost > 0
        healed.set()
        code, out, err = collab("critic", "calibrate", "--resume", "made")
    assert code == 0, err
    assert "sent and never answered whole; what they cost is not known" in out
    assert json.loads(Path("made/calibration.json").read_text())["spent"]["lost"] == lost


def test_what_a_teacher_was_asked_in_vain_is_part_of_what_a_synthesis_spent(collab) -> None:
    make = ("synth", "--env", "corridor", "--teacher", "served.yaml", "--screens", "1", "--episodes", "0")
    with FakeServer(refuses=hangs_in_the_middle) as server:
        serve(server)
        with terminated_when(lambda: any(map(hangs_in_the_middle, server.requests))):
            code, out, err = collab(*make, "--out", "made")
        assert code == 1, err
        (lost,) = [one["lost"] for one in lines("made") if "lost" in one]
        assert "sent and never answered whole; what they cost is not known" in out
        assert gather(read_records(Path("made"))).spent.lost == lost


def test_a_wait_beyond_the_calls_limit_is_not_begun(collab) -> None:
    def refuses(body: object) -> Fault | None:
        return TOMORROW if "Task" in str(body) else None

    with FakeServer(refuses=refuses) as server:
        serve(server)
        started = time.monotonic()
        collab(*PLAY[:-1], "served.yaml", "--set", "environment.limits.call_s=5")
        _, out, _ = collab("runs", "show", "run")
    assert time.monotonic() - started < 30
    assert "answered 429: quota used up, come back tomorrow (1 attempt; the next after 60 s, beyond the call's" in out
    assert "it asks to wait 86400 s" in out


def test_calls_that_were_sent_and_cancelled_are_told_as_of_unknown_cost(collab) -> None:
    def refuses(body: object) -> Fault | None:
        return Fault(broken="hang") if "Task" in str(body) else None

    with FakeServer(refuses=refuses) as server:
        serve(server)
        with terminated_when(lambda: any("Task" in str(body) for body in server.requests)):
            _, out, _ = collab(*PLAY[:-1], "served.yaml")
    assert "1 call was sent and never answered whole; what they cost is not known" in out
    _, cost, _ = collab("runs", "show", "run", "--cost", "--json")
    assert json.loads(cost)["spent"]["lost"] == 1


def test_a_server_that_cuts_prompts_is_told(collab) -> None:
    def cut(answer: dict[str, object]) -> dict[str, object]:
        return answer | {"usage": {"prompt_tokens": 64, "completion_tokens": 5}}

    with FakeServer(shapes=cut) as server:
        serve(server)
        _, _, err = collab(*PLAY[:-1], "served.yaml")
    assert "cuts long prompts: of about" in err
    assert "tokens it read 64; give it a longer context, or lower context_tokens in the agents file" in err
    lines = [line for path in Path("run/events").iterdir() for line in path.read_text().splitlines()]
    assert any("cuts long prompts" in line for line in lines if '"note"' in line)


def test_a_server_that_counts_all_is_not_suspected(collab) -> None:
    with FakeServer() as server:
        serve(server)
        _, _, err = collab(*PLAY[:-1], "served.yaml")
    assert "cuts" not in err


def test_a_temperature_that_the_server_does_not_take_is_told(collab) -> None:
    def refuses(body: dict[str, object]) -> Fault | None:
        return Fault(status=400, message="temperature: only 1 is supported") if "temperature" in body else None

    with FakeServer(refuses=refuses) as server:
        serve(server)
        _, out, _ = collab("agents", "check", "served.yaml")
        assert "temperature: left out, refused (temperature: only 1 is supported)" in out
        _, _, err = collab(*PLAY[:-1], "served.yaml")
    assert "takes no temperature 0.1: it samples at its own" in err
    notes = json.loads(Path("run/run.json").read_text())["models"]["ada"]["capabilities"]["notes"]
    assert any("temperature: left out" in note for note in notes)


@pytest.mark.medium
def test_a_wait_before_anything_is_begun_is_told_with_the_servers_words(collab, tmp_path: Path) -> None:
    """A console's own process: its thread tells what is waited for."""
    with FakeServer(refuses=lambda body: TOMORROW) as server:
        serve(server)
        command = [sys.executable, "-m", "collab.__main__", *PLAY[:-1], "served.yaml"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as process:
            assert process.stderr is not None
            told = list[str]()
            for line in process.stderr:
                told.append(line)
                if "attempt 2 of 5 in 60 s …" in line:
                    process.send_signal(signal.SIGTERM)
            code = process.wait()
    assert code == 1
    assert any("answered 429: quota used up, come back tomorrow; attempt 2 of 5 in 60 s …" in line for line in told), (
        told
    )


def test_on_a_terminal_a_wait_is_told_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SILENCE_S", 0.0)
    shown = list[tuple[str, Sequence[str]]]()
    screen = progress._Live(lambda text, below: shown.append((text, below)))
    telling = progress._Texts(str, lambda what: ["epoch 1"], lambda what: ())
    screen.show_opening()
    with note_doing("asking fake what it supports"):
        screen.show_opening()
        screen.show("0/1 episode", telling)
    screen.show("0/1 episode", telling)
    assert shown == [
        ("starting", ()),
        ("asking fake what it supports …", ()),
        ("0/1 episode", ("epoch 1", "asking fake what it supports …")),
        ("0/1 episode", ("epoch 1",)),
    ]
