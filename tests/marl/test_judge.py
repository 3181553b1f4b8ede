"""What of an epoch is judged and paired: once, and timed where one process did all of it."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from collab.api import resolved
from collab.config import RunConfig, run_config
from collab.credit.labels import FOLDER, Labels
from collab.library import Library
from collab.marl.hashing import epoch_hash
from collab.marl.judge import NAME, judge, judged, pair
from collab.marl.layout import EpochFolder, MarlFolder
from collab.marl.play import trajectories_of
from collab.marl.row_store import COUNTS
from collab.resolve import with_prompts
from collab.runs import start


@pytest.fixture(scope="module")
def rehearsed(library: Library, tmp_path_factory: pytest.TempPathFactory) -> tuple[RunConfig, Path]:
    """Two episodes that nobody has judged yet; not to be changed."""
    out = tmp_path_factory.mktemp("judge") / "run"

    async def play() -> RunConfig:
        planned = run_config(library=library, env="corridor", graph="pair", agents="show", episodes=2)
        run = with_prompts(await resolved(planned, once_per_task=False), library)
        await start(run, library, out)
        return run

    return asyncio.run(play()), out


@pytest.fixture
def epoch(rehearsed: tuple[RunConfig, Path], tmp_path: Path) -> EpochFolder:
    """An epoch whose rollout is over."""
    folder = MarlFolder(tmp_path).epoch(1)
    shutil.copytree(rehearsed[1], folder.rollout)
    return folder


def forget_one(epoch: EpochFolder) -> None:
    """As if nobody could have been asked about the last step."""
    (log,) = (epoch.rollout / FOLDER / NAME / "events").glob("*.jsonl")
    lines = log.read_bytes().splitlines(keepends=True)
    assert json.loads(lines[-1])["type"] == "judged"
    log.write_bytes(b"".join(lines[:-1]))


def told(labels: Labels | None) -> tuple[int, str]:
    assert labels is not None
    return len(labels.judged), epoch_hash(judged=labels.judged.values())


def test_only_who_did_all_of_a_part_tells_its_seconds(
    configured, process, rehearsed: tuple[RunConfig, Path], epoch: EpochFolder, tmp_path: Path
) -> None:
    (run, _), out = rehearsed, epoch.rollout
    played = trajectories_of(out)
    first, second, third = (process(configured(), tmp_path) for _ in range(3))
    labels = asyncio.run(judge(first, run, out, played))
    asyncio.run(judge(second, run, out, played))
    assert (set(first.seconds), set(second.seconds)) == ({"critic"}, set())
    asyncio.run(pair(second, run, out, played, labels))
    asyncio.run(pair(third, run, out, played, labels))
    assert (set(second.seconds), set(third.seconds)) == ({"adversary"}, set())
    shutil.rmtree(out / "pairs")  # killed before they were there, with what the adversary had said
    asyncio.run(pair(third, run, out, played, labels))
    assert third.seconds == {}


@pytest.mark.parametrize("made", ["pairs", "rows"])
def test_nobody_is_asked_again_once_something_was_made_of_it(
    made: str, configured, process, rehearsed: tuple[RunConfig, Path], epoch: EpochFolder, tmp_path: Path
) -> None:
    (run, _), played = rehearsed, trajectories_of(epoch.rollout)
    loop = process(configured(*(["objective=rft"] if made == "rows" else [])), tmp_path)
    whole = told(asyncio.run(judged(loop, run, epoch, played)))
    forget_one(epoch)
    labels = asyncio.run(judged(loop, run, epoch, played[:0]))
    assert labels is not None
    short = told(labels)
    assert short[0] == whole[0] - 1
    if made == "pairs":
        asyncio.run(pair(loop, run, epoch.rollout, played, labels))
    else:
        epoch.rows.mkdir()
        (epoch.rows / COUNTS).write_text("{}")
    assert told(asyncio.run(judged(loop, run, epoch, played))) == short
    shutil.rmtree(epoch.rollout / "pairs" if made == "pairs" else epoch.rows)
    assert told(asyncio.run(judged(loop, run, epoch, played))) == whole
