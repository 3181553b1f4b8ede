"""Progress on a terminal and in a log, and Ctrl-C that loses nothing."""

import asyncio
import functools
import gc
import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from collab.cli import progress as watch
from collab.cli.main import main
from collab.cli.progress import run_interruptible
from collab.rollout.collector import RolloutProgress
from collab.types import Usage
from collab.utils import progress as display
from collab.utils.text import format_clock, shorten_number

LIBRARY = str(Path(__file__).parent / "library")
COMMAND = [sys.executable, "-c", "from collab.cli.main import run; run()"]
SLOW = [
    "rollout",
    "--env",
    "corridor",
    "--agents",
    "rehearsal",
    "--backend",
    "slow",
    "--episodes",
    "12",
    "--out",
    "run",
]


@pytest.fixture(autouse=True)
def somewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("COLLAB_LIBRARY", LIBRARY)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_progress_tells_everything_there_is_to_know(monkeypatch):
    progress = RolloutProgress(planned=20, done=5, succeeded=4, broken=1)
    progress.spent = Usage(calls=1200, prompt_tokens=2_000_000, cost_usd=0.5)
    for number in range(4):
        progress.workload.plan(f"Task/{number}", 5)
    progress.workload.begin("Task/0")
    monkeypatch.setattr("collab.rollout.collector.time.monotonic", functools.partial(float, time.monotonic() + 10))
    progress.workload.count("Task/0", 5)
    progress.workload.end("Task/0")
    monkeypatch.undo()
    monkeypatch.setenv("COLLAB_LIBRARY", LIBRARY)
    progress.started = time.monotonic() - 10
    assert str(progress) == (
        "5/20 episodes over, 4 solved | 1 broken | 1200 calls, 2.00M tokens, 120.0 calls/s | 0.50 USD | about 0:30 left"
    )
    progress.computed_tokens, progress.cacheable_tokens = 250_000, 1_000_000
    assert "calls/s | 250.0k prompt tokens computed (75% prefix hits) | 0.50 USD" in str(progress)
    progress.widths, progress.wide_calls = 240.0, 20
    assert "prefix hits) | batches 12.0 wide | 0.50 USD" in str(progress)
    progress.queue_s, progress.work_s, progress.timed_calls = 60.0, 1500.0, 1000
    assert "wide | 0.06 s in line, 1.50 s at work | 0.50 USD" in str(progress)
    assert str(RolloutProgress(planned=1, done=1, spent=Usage(calls=1, prompt_tokens=1))).startswith(
        "1/1 episode over, 0 solved | 1 call, 1 token, "
    )
    assert str(RolloutProgress(planned=3)).startswith("0/3 episodes | 0 calls, 0 tokens, ")
    by_steps = RolloutProgress(planned=800, done=9, wanted_steps=800, steps_before=70, steps=30)
    assert str(by_steps).startswith("100/800 steps | 9 episodes over, 0 solved | 0 calls, ")
    beyond = RolloutProgress(planned=250, done=1, wanted_steps=250, steps_before=70, steps=281)
    assert str(beyond).startswith("250/250 steps, ending episodes that were begun | 1 episode over, 0 solved")


@pytest.mark.parametrize(("number", "text"), [(0, "0"), (9999, "9999"), (12_340, "12.3k"), (4_560_000, "4.56M")])
def test_short_numbers(number, text):
    assert shorten_number(number) == text


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (7.4, "0:07"), (750, "12:30"), (3723, "1:02:03")])
def test_durations(seconds, text):
    assert format_clock(seconds) == text


def test_without_a_terminal_progress_is_plain_lines(monkeypatch, capsys):
    monkeypatch.setattr(display._Lines, "interval_s", 0.05)
    assert main([*SLOW[:7], "--episodes", "4", "--json"]) == 0
    shown = capsys.readouterr()
    lines = shown.err.splitlines()
    assert lines[0].startswith("playing 4 episodes of corridor")
    assert len(lines) > 2
    assert all(re.match(r"\d+/4 episodes( over, \d solved)? \| ", line) for line in lines[1:])
    assert "\x1b" not in shown.err
    json.loads(shown.out)


@pytest.mark.slow
def test_on_a_terminal_progress_is_one_live_line():
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, *SLOW[:7], "--episodes", "6"],
        stdout=subprocess.PIPE,
        stderr=theirs,
        env=os.environ | {"TERM": "xterm"},
    )
    os.close(theirs)
    seen = b""
    while process.poll() is None or select.select([ours], [], [], 0)[0]:
        if select.select([ours], [], [], 0.1)[0]:
            try:
                seen += os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
    os.close(ours)
    assert process.wait(timeout=60) == 0
    assert b"playing 6 episodes" in seen
    assert b"calls/s" in seen
    assert b"\x1b[2K" in seen, "the line is written over"


class Terminal(io.StringIO):
    """One of 24 lines, as far as the live screen makes use of it."""

    height = 24

    def __init__(self) -> None:
        super().__init__()
        self.lines, self.row, self.column = [""], 0, 0

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        for code, plain in re.findall(r"(\x1b\[[?\d;]*[A-Za-z]|[\r\n])|([^\x1b\r\n]+)", text):
            line = self.lines[self.row]
            if code == "\r":
                self.column = 0
            elif code == "\n":  # the driver adds the return
                self.row, self.column = self.row + 1, 0
                self.lines += [""] * (self.row == len(self.lines))
            elif code.endswith("A"):
                self.row = max(self.row - int(code[2:-1]), len(self.lines) - self.height, 0)
            elif code == "\x1b[2K":
                self.lines[self.row] = ""
            elif plain:
                end = self.column + len(plain)
                self.lines[self.row] = line[: self.column].ljust(self.column) + plain + line[end:]
                self.column = end
        return len(text)

    def shown(self) -> list[str]:
        """All lines that were not erased, also those that went out at the top."""
        return [line.rstrip() for line in self.lines if line.strip()]


@pytest.mark.parametrize("leaves", [False, True])
def test_nothing_stale_stays_of_a_screen_that_is_longer_than_the_terminal(monkeypatch, leaves):
    terminal = Terminal()
    for name, value in {"LINES": "24", "COLUMNS": "80", "TERM": "xterm"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(display._Live, "interval_s", 0.001)
    seen: list[str] = []

    async def job(watching: display.Watch, stop: asyncio.Event) -> str:
        watching(None)
        async with asyncio.timeout(60):
            while not (shown := terminal.shown())[-1].endswith("..."):
                await asyncio.sleep(0.001)
        seen.extend(shown)
        if leaves:
            raise KeyboardInterrupt
        return "result"

    print("before", file=terminal)
    tell = {"describe": lambda _: "line 0", "below": lambda _: [f"line {number}" for number in range(1, 36)]}
    if leaves:
        with pytest.raises(KeyboardInterrupt):
            watch.work(job, Path("run"), **tell)
    else:
        assert watch.work(job, Path("run"), **tell) == "result"
    print("after", file=terminal)
    assert seen[0] == "before"
    assert [line.split()[-1] for line in seen[1:]] == [*map(str, range(23)), "..."]
    assert terminal.shown() == ["before", "after"]


def begin(run: Path) -> "subprocess.Popen[str]":
    """A slow run that has played something."""
    process = subprocess.Popen([*COMMAND, *SLOW], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not any(
        b'"episode_finished"' in path.read_bytes() for path in run.rglob("*.jsonl")
    ):
        assert process.poll() is None
        time.sleep(0.05)
    return process


@pytest.mark.medium
@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_the_first_ctrl_c_stops_cleanly_and_resuming_loses_nothing(somewhere, capsys, number):
    process = begin(somewhere / "run")
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "Traceback" not in err
    assert "press Ctrl-C again to leave at once" in err
    assert err.splitlines()[-1] == "stopped: stopped on request; resume with: collab runs resume run"
    assert "the others count as not solved" in out
    assert main(["runs", "list", "run", "--json"]) == 0
    assert 0 < json.loads(capsys.readouterr().out)[0]["done"] < 12
    assert main(["runs", "resume", "run", "--json"]) == 0
    resumed = json.loads(capsys.readouterr().out)
    assert main([*SLOW[:5], "--episodes", "12", "--json"]) == 0
    assert resumed["episodes"] == json.loads(capsys.readouterr().out)["episodes"]


def test_ctrl_c_while_commands_are_loaded_is_one_line(somewhere):
    (somewhere / "sitecustomize.py").write_text(
        "import sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'typer':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupt())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", "from collab.__main__ import run; run()", "graph", "list"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | {"PYTHONPATH": str(somewhere)},
    )
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "error: interrupted\n")


def test_ctrl_c_before_a_command_begins_is_one_line(capsys, monkeypatch):
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("collab.cli.main.app", interrupt)
    assert main(["graph", "list"]) == 1
    assert capsys.readouterr().err == "error: interrupted\n"


@pytest.mark.parametrize("handler", [signal.default_int_handler, signal.SIG_IGN], ids=["a terminal", "background"])
def test_a_signal_before_the_work_begins_leaves_no_warning(monkeypatch, handler: Callable[..., object]) -> None:
    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("collab.cli.progress.asyncio.run", interrupt)
    monkeypatch.setattr("collab.cli.progress.signal.getsignal", lambda _: handler)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(KeyboardInterrupt):
            run_interruptible(asyncio.sleep, 0)
        gc.collect()
    assert not caught


LOOP = "from collab.cli.progress import run_interruptible"
COMPUTE = """
from collab.cli.progress import run_interruptible
async def compute():
    while True:
        sum(range(1000))
"""
"""Nothing is awaited, as while a plan measures a step."""


@pytest.mark.parametrize(
    ("body", "before"),
    [
        pytest.param("time.sleep(60)", "", id="waiting"),
        pytest.param("run_interruptible(asyncio.sleep, 60)", LOOP, id="in a loop", marks=pytest.mark.variations),
        pytest.param("run_interruptible(compute)", COMPUTE, id="computing in a loop"),
        pytest.param(
            "time.sleep(60)",
            "signal.signal(signal.SIGINT, signal.SIG_IGN)",
            id="in a shell's background",
            marks=pytest.mark.variations,
        ),
    ],
)
def test_sigterm_is_one_line_and_leaves_no_temporary_folder(tmp_path: Path, body: str, before: str) -> None:
    command = "\n".join(
        [
            "import asyncio, signal, tempfile, time",
            before,
            "from collab.cli.main import app, run",
            "@app.command('wait')",
            "def wait() -> None:",
            "    with tempfile.TemporaryDirectory():",
            "        print('ready', flush=True)",
            f"        {body}",
            "run()",
        ]
    )
    process = subprocess.Popen(
        [sys.executable, "-c", command, "wait"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    assert list(tmp_path.iterdir())
    process.terminate()
    _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (1, "error: interrupted\n")
    assert not list(tmp_path.iterdir())


@pytest.mark.variations
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(["    await asyncio.sleep(60)"], id="waiting"),
        pytest.param(["    await run_in_background(time.sleep, 60)"], id="amid an optimizer step, in a thread"),
        pytest.param(["    await asyncio.to_thread(time.sleep, 60)"], id="in a thread that the loop waits for"),
        pytest.param(["    hashlib.pbkdf2_hmac('sha256', b'', b'', 10**9)"], id="in a library that hears nothing"),
        pytest.param(
            [
                "    while True:",
                "        try:",
                "            await asyncio.sleep(0)",
                "        except BaseException:",
                "            pass",
            ],
            id="deaf to every exception",
        ),
        pytest.param(
            [
                "    loop = asyncio.get_running_loop()",
                "    loop._run_once = lambda: time.sleep(60)",
                "    await asyncio.sleep(0)",
            ],
            id="in the loop's own calls",
        ),
        pytest.param(["    with lock:", "        lock.acquire()"], id="behind a lock for ever"),
    ],
)
def test_the_second_ctrl_c_leaves_at_once_wherever_it_comes(somewhere, body: list[str]):
    stubborn = "\n".join(
        [
            "import asyncio, collab.cli.rollout as rollout, collab.rollout.run as runs, hashlib, sys, threading, time",
            "from collab.utils.concurrency import run_in_background",
            "from collab.rollout.collector import RolloutProgress",
            "lock = threading.Lock()",
            "async def start(*_, watch, stop, **__):",
            "    watch(RolloutProgress(planned=1))",
            "    print('ready', flush=True)",
            *body,
            "runs.start = start",
            "from collab.cli.main import run; run()",
        ]
    )
    process = subprocess.Popen(
        [sys.executable, "-c", stubborn, *SLOW], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    assert any(line.startswith("stopping: ") for line in iter(process.stderr.readline, ""))
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 1
    assert err == "error: interrupted; resume with: collab runs resume run\n"


def test_a_word_comes_within_two_seconds() -> None:
    assert display.SILENCE_S + display._LOOK_S <= 2


@pytest.mark.slow
def test_nobody_waits_for_long_without_a_word(tmp_path: Path) -> None:
    """Neither for what says what it is, nor for what does not; what was said once is not said again."""
    code = """
import sys, time
from collab.utils.concurrency import note_doing
from collab.cli.output import say
from collab.utils import progress as herald
from collab.utils.progress import note
herald.SILENCE_S = 0.3
herald.begin()
time.sleep(1)
note("begun")
with note_doing("hashing a"):
    time.sleep(1)
    with note_doing("loading b"):
        time.sleep(1)
    with herald.pause_output(), note_doing("starting c"):
        time.sleep(1)
with note_doing("quick"):
    time.sleep(0.01)
say("done")
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)
    assert done.stdout == "done\n"
    assert done.stderr.splitlines()[:4] == ["loading …", "begun", "hashing a …", "loading b …"]
    assert "starting c …" not in done.stderr


@pytest.mark.slow
def test_a_process_that_loads_a_model_says_so_where_it_takes_long(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    slow = tmp_path / "sitecustomize.py"
    slow.write_text("import collab.utils.progress as herald\nherald.SILENCE_S = 0.05\nherald._LOOK_S = 0.01\n")
    command = [sys.executable, "-m", "collab.__main__", "rollout", "--agents", "pocket", "--episodes", "1"]
    rest = ["--tasks", "SystemWifiTurnOn", "--set", "environment.limits.max_steps=1", "--out", str(tmp_path / "run")]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run([*command, *rest], capture_output=True, text=True, env=environment, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert "loading transformers …" in lines
    assert "loading built-in:pocket …" in lines or "loading …" in lines
