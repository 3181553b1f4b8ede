"""The printed text of a training shows all that its records hold, while it runs and at the end."""

from __future__ import annotations

import asyncio
import io
import re
import sys
from pathlib import Path

import pytest

from collab.cli import progress as watch
from collab.cli.text.training import format_below, format_news, show_result
from collab.loop.loop import TrainingResult
from collab.loop.record import EpochRecord, ExampleCounts, Spending, Success, Summary, Trained
from collab.loop.state import TrainingProgress
from collab.rollout.collector import RolloutProgress as Collecting
from collab.rollout.collector import UsageMeter
from collab.types import Usage
from collab.utils import progress as display

START = EpochRecord(
    algorithm="collabuiagents",
    epoch=0,
    version=0,
    weights={},
    success=Success(successes=60, episodes=200, low=0.241, high=0.367, broken=0),
    spent={"evaluation": Spending(seconds=30, calls=100, prompt_tokens=9000, completion_tokens=1000)},
    hash="0",
)
TRAINED = Trained(
    checkpoint="./epoch1",
    digest="",
    dropped=2,
    steps=12,
    tokens=120_000,
    loss=0.4125,
    metrics={
        "margin": 1.25,
        "accuracy": 0.84,
        "logp_chosen": -12.5,
        "logp_chosen_first": -13.0,
        "chosen_gain": 0.25,
    },
    alarm="the chosen replies fall",
)
METRICS = {
    "rewarded": 0.6,
    "rewards": {"ada": [0.5, 0.625], "ben": [None, 0.25]},
    "missing": {"the critic gave no score": 4},
    "unasked": {"ModelFailure, the last: bad answered 500": 5},
    "pairs": {
        "counts": {"adversary": 30, "contrast": 10, "no worse cell": 5},
        "off_context": 3,
        "refused": {"reaches the same state": 7},
        "failed": {"ModelFailure": 2},
        "unjudged": 6,
        "untried": 8,
    },
}
FIRST = EpochRecord(
    algorithm="collabuiagents",
    epoch=1,
    version=1,
    weights={},
    played=Success(successes=20, episodes=40, low=0.352, high=0.648, broken=1),
    steps=310,
    success=Success(successes=76, episodes=200, low=0.316, high=0.449, broken=0),
    agreement=0.71,
    metrics=METRICS,
    examples={"shared": ExampleCounts(examples=40, refused={"longer than the context": 1}, digest="")},
    trained={"shared": TRAINED},
    untrained={"ben": "no valid pair in this epoch"},
    spent={
        "rollout": Spending(seconds=60, calls=600, prompt_tokens=50_000, completion_tokens=10_000),
        "critic": Spending(seconds=20, calls=300, prompt_tokens=20_000, completion_tokens=5000, cost_usd=0.25),
        "adversary": Spending(),
        "training": Spending(seconds=10, prompt_tokens=120_000),
        "evaluation": Spending(seconds=30, calls=100, prompt_tokens=9000, completion_tokens=1000),
    },
    hash="1",
)
TOLD = [
    "held out 38.0% (31.6% - 44.9%), 76 of 200 episodes",
    "played   50.0% (35.2% - 64.8%), 20 of 40 episodes, 1 broken, 310 steps",
    "agreed   71% of a step's cells, those without an action included, voted for the winner",
    "trained  shared: loss 0.412, 12 steps, 120.0k tokens, 2 examples longer than the context",
    "alarm    shared: the chosen replies fall",
    "trained  ben stays as it was: no valid pair in this epoch",
    "rewarded ada 50% 62%, ben - 25% (rounds 1 to 2)",
    "compared shared: margin 1.250, accuracy 84.0%, log p(chosen) -12.5 (+0.25 against the reference)",
    "pairs    40: 30 adversary, 10 contrast",
    "no pair  5: 5 no worse cell",
    "refused  7: 7 reaches the same state",
    "failed   2: 2 ModelFailure",
    "context  3 pairs off-context",
    "unjudged 6 steps",
    "untried  8 synthesised sides: their state cannot be restored",
    "no score 4: 4 the critic gave no score",
    "unasked  5: 5 ModelFailure, the last: bad answered 500",
    "left out shared: 1 example: longer than the context",
    "spent    rollout 1:00 600 calls 60.0k tokens; critic 0:20 300 calls 25.0k tokens 0.25 USD; "
    "training 0:10 120.0k tokens; evaluation 0:30 100 calls 10.0k tokens",
]


@pytest.fixture
def progress() -> TrainingProgress:
    """In the second epoch of three, of which one took two minutes."""
    made = TrainingProgress(
        algorithm="collabuiagents",
        epochs=3,
        part="rollout",
        inner=Collecting(planned=40, done=4, spent=Usage(prompt_tokens=500, cost_usd=0.5)),
    )
    made.close(START)
    made.close(FIRST)
    made.begin(2)
    made.inner = Collecting(planned=40, spent=Usage(prompt_tokens=500, cost_usd=0.5))
    made.spent = Usage(prompt_tokens=2000, cost_usd=0.25)
    return made


def test_a_line_tells_success_with_its_interval_tokens_cost_and_time_left(progress: TrainingProgress) -> None:
    """10,000 of epoch 0, 60,000 + 25,000 + 10,000 of epoch 1, 2,000 + 500 of this one; two epochs of 2:00 to go."""
    line = str(progress)
    assert line.startswith("epoch 2/3 | rollout | 0/40 episodes | ")
    assert "held-out success 38.0% (31.6% - 44.9%) after epoch 1 | " in line
    assert re.search(r" \| in all 107\.5k tokens, 1\.00 USD, at most about (4:00|3:5\d) left$", line)


def test_time_left_is_told_once_it_is_known() -> None:
    assert str(TrainingProgress(algorithm="collabuiagents", epochs=3, part="rollout")) == (
        "epoch 0/3 | rollout | in all 0 tokens, time left known after an epoch"
    )
    killed = FIRST.model_copy(update={"spent": {"rollout": Spending(calls=4)}})
    assert "time left known after" in str(
        TrainingProgress(algorithm="collabuiagents", epochs=3, epoch=2, records=[START, killed])
    )
    over = TrainingProgress(algorithm="collabuiagents", epochs=3, epoch=1, records=[START, FIRST])
    assert str(over).endswith("at most about 4:00 left")


def test_a_screen_and_a_log_tell_all_of_an_epoch(progress: TrainingProgress, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINES", "40")
    shown = format_below(progress)
    assert shown[-len(TOLD) - 1 :] == ["epoch 1", *TOLD]
    assert any(re.match(r" +0 +30\.0% ", line) for line in shown)
    assert format_news(progress)[-len(TOLD) :] == [f"epoch 1 | {line}" for line in TOLD]
    assert (
        format_below(TrainingProgress(algorithm="collabuiagents", epochs=3))
        == format_news(TrainingProgress(algorithm="collabuiagents", epochs=3))
        == []
    )


@pytest.mark.parametrize(("height", "epochs"), [(60, 6), (32, 5), (29, 2), (24, 1)])
def test_a_low_screen_shows_fewer_epochs_and_what_was_learned(
    monkeypatch: pytest.MonkeyPatch, height: int, epochs: int
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("LINES", str(height))
    made = TrainingProgress(algorithm="collabuiagents", epochs=9)
    for number in range(1, 8):
        made.close(FIRST.model_copy(update={"epoch": number}))
    shown = format_below(made)
    assert sum(bool(re.match(r" +\d  ", line)) for line in shown) == epochs
    visible = shown[: height - 2]
    assert any(line.startswith("trained  shared") for line in visible)
    assert any(line.startswith("alarm    shared") for line in visible)


@pytest.mark.parametrize("room", [66, 80, 100, 130])
def test_a_narrow_screen_keeps_money_likelihood_and_time(
    progress: TrainingProgress, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(room))
    table = format_below(progress)[1:4]
    assert max(map(len, table)) <= room
    assert {"epoch", "success", "pairs", "loss", "p(chosen)", "USD", "time"} <= set(table[0].split())
    assert ("tokens" in table[0]) == (room > 66)


def test_a_screen_tells_of_an_epoch_that_continues_as_soon_as_a_part_is_over() -> None:
    """In the lines of an epoch that is over; its last line is what each part took."""
    progress = TrainingProgress(algorithm="collabuiagents", epochs=3)
    progress.close(START)
    start = format_below(progress)
    progress.begin(1)
    assert format_below(progress) == start
    judged = {name: METRICS[name] for name in ("rewarded", "rewards", "missing", "unasked")}
    for found, lines in (
        ({name: getattr(FIRST, name) for name in ("played", "steps", "agreement")}, TOLD[1:3]),
        ({"metrics": judged}, [*TOLD[1:3], TOLD[6], *TOLD[15:17]]),
        ({"metrics": METRICS}, [*TOLD[1:3], TOLD[6], *TOLD[8:17]]),
        ({name: getattr(FIRST, name) for name in ("examples", "trained", "untrained")}, TOLD[1:-1]),
    ):
        progress.update(**found)
        place = format_below(progress).index("epoch 1, so far")
        assert format_below(progress)[place + 1 : place + 1 + len(lines) + 2] == [*lines, "", "epoch 0"]
    progress.close(FIRST)
    assert "epoch 1, so far" not in format_below(progress)
    progress.update(steps=1)
    progress.begin(2)
    assert progress.so_far is None


def test_what_an_adversary_was_asked_so_far_is_told(progress: TrainingProgress) -> None:
    progress.part, progress.inner = "adversary", UsageMeter()
    assert str(progress).startswith("epoch 2/3 | adversary | held-out success")
    progress.inner.spent = Usage(calls=1200, prompt_tokens=90_000)
    assert str(progress).startswith("epoch 2/3 | adversary | 1,200 calls, 90.0k tokens | held-out success")


def test_the_result_tells_all_of_every_epoch(capsys: pytest.CaptureFixture[str]) -> None:
    show_result(TrainingResult(path=Path("run"), records=(START, FIRST), summary=None, stopped=None))
    lines = capsys.readouterr().out.splitlines()
    assert [f"epoch 1 | {line}" for line in TOLD] == lines[-len(TOLD) :]
    assert lines[2].split() == (
        "1 38.0% 31.6% - 44.9% 71% 60% 40 1.250 0.840 -12.500 (+0.25) 0.412 95.0k 0.25 2:00".split()
    )


def shown_by(progress: TrainingProgress) -> None:
    """A training that ends an epoch while it is watched."""

    async def job(watch: display.Watch, stop: asyncio.Event) -> None:
        watch(progress)
        await asyncio.sleep(0.1)
        progress.close(FIRST.model_copy(update={"epoch": 2}))

    watch.work(job, Path("run"), below=format_below, news=format_news)


def test_a_log_hears_of_each_epoch_once_and_of_the_last_one_before_the_end(
    progress: TrainingProgress, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(display._Lines, "interval_s", 0.02)
    shown_by(progress)
    lines = capsys.readouterr().err.splitlines()
    for epoch in (1, 2):
        told = [line for line in lines if line.startswith(f"epoch {epoch} | ")]
        assert told == [f"epoch {epoch} | {line}" for line in TOLD]
    live = [line.startswith("epoch 2/3 | rollout | ") for line in lines]
    assert any(live)
    # One may have been due in the moment of the end.
    last = lines[:-1] if live[-1] else lines
    assert last[-len(TOLD) :] == [f"epoch 2 | {line}" for line in TOLD]


def test_a_terminal_shows_a_screen_in_its_place(progress: TrainingProgress, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("LINES", "60")
    monkeypatch.setattr(display._Live, "interval_s", 0.02)
    shown_by(progress)
    shown = terminal.getvalue()
    assert "rewarded ada 50% 62%, ben - 25%" in shown
    assert "epoch 1 | held out" not in shown, "a log's lines"
    assert shown.count("\x1b[2K") > len(TOLD), "the screen is wiped in the end"


@pytest.mark.parametrize(
    ("best", "said"),
    [
        (0, "best  epoch 0, the untrained team: none of 1 epoch was better: --agents runs/x@best"),
        (1, "best  epoch 1 of 1: --agents runs/x@best"),
        (None, "best  not known, for no epoch was measured"),
    ],
)
def test_the_best_epoch_is_called_what_it_is(best: int | None, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    summary = Summary(best=best, epochs=1, stopped_early=False, hash="0")
    result = TrainingResult(path=Path("runs/x"), records=(START, FIRST), summary=summary, stopped=None)
    show_result(result)
    assert said in capsys.readouterr().out.splitlines()
    told = said.replace("best  ", "best ", 1).partition(": --agents")[0]
    assert repr(result) == f"<TrainingResult runs/x: 1 epoch, {told}>"
