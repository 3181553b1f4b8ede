from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from collab.errors import RunFormatError
from collab.store.fingerprint import hash_run
from collab.store.run import RunStore
from collab.types import EpisodeError, PolicyRef, Step, Usage


def edit(step: Step, **changes: object) -> Step:
    """The same step with one cell changed."""
    first, *rest = step.matrix.utterances
    return replace(step, matrix=replace(step.matrix, utterances=(replace(first, **changes), *rest)))


def hash_written(path: Path, make: SimpleNamespace, change: Callable[[Step], Step] = lambda step: step) -> str:
    store = RunStore.create(path, make.manifest())
    with store.open_writer() as writer:
        make.play(writer, "A/0", [change(make.step(0)), make.step(1)])
        make.play(writer, "B/0", 1)
    return hash_run(store)


def test_times_order_places_and_interruptions_do_not_count(tmp_path: Path, make: SimpleNamespace) -> None:
    whole = hash_written(tmp_path / "whole", make)
    store = RunStore.create(tmp_path / "torn", make.manifest(seed=9, planned=None))
    slower = replace(make.step(0), deliberation_s=99.0, environment_s=0.5)
    dearer = edit(slower, latency_s=7.0, cost_usd=0.1, computed_tokens=9, queue_s=3.0, width=5.0)
    moved = edit(dearer, policy=PolicyRef(base="/elsewhere/tiny"), logprobs=(-0.5,) * 3)
    with store.open_writer() as writer:
        writer.note("begun")
        make.begin(writer, "B/0")
        writer.step("B/0", make.step(0))
        writer.end_episode("B/0", error=EpisodeError(type="ModelFailure", message="gone", step=1))
        make.begin(writer, "A/0")
        writer.step("A/0", moved)
    with store.open_writer() as writer:
        writer.resume_episode("A/0")
        make.play(writer, "B/0", 1)
        writer.step("A/0", make.step(1))
        end = RunStore(tmp_path / "whole").open_reader().read_trajectory("A/0")
        writer.end_episode("A/0", outcome=end.outcome, final=end.final, seconds=1000.0)
        writer.record_spent(Usage(calls=8, prompt_tokens=1, completion_tokens=1, cost_usd=1.0))
    assert hash_run(store) == whole


@pytest.mark.parametrize(
    "change",
    [
        lambda step: edit(step, tokens=(5, 6, 8)),
        lambda step: edit(step, text="Reason: other."),
        lambda step: edit(step, seed=12),
        lambda step: edit(step, policy=PolicyRef(base="tiny", version=1)),
        lambda step: edit(step, prompt=replace(step.matrix.utterances[0].prompt, prefix="aa" * 32)),
        lambda step: replace(step, executed=None),
        lambda step: replace(step, vote=replace(step.vote, tie=True, action=None)),
        lambda step: replace(step, observation=replace(step.observation, text="another screen")),
    ],
)
def test_what_was_seen_said_and_done_counts(
    tmp_path: Path, make: SimpleNamespace, change: Callable[[Step], Step]
) -> None:
    assert hash_written(tmp_path / "one", make) != hash_written(tmp_path / "other", make, change)


def test_a_run_in_part_has_no_hash(tmp_path: Path, make: SimpleNamespace) -> None:
    hash_written(tmp_path / "run", make)
    segment = next((tmp_path / "run" / "events").iterdir())
    lines = segment.read_bytes().splitlines(keepends=True)
    lines[2] = b"x" * (len(lines[2]) - 1) + b"\n"
    segment.write_bytes(b"".join(lines))
    for _ in range(2):  # with an index that knows nothing of it, then without
        with pytest.raises(RunFormatError, match="A/0 are lost"):
            hash_run(RunStore.open(tmp_path / "run"))
        (tmp_path / "run" / "index.sqlite").unlink(missing_ok=True)
