"""Proof that a killed training ends like one that nobody disturbed: the same is trained twice, and hashes are compared.

    proof = verify(Path("verified"), kills=7, seed=0)
    proof.same, proof.points, proof.first_difference

What is trained is a tiny team in a corridor (`school`), with `determinism: exact`, on a processor, an example per
optimizer step (`STEPS`) or a few (`SPLIT`), and each three times, so that optimizers have a state to lose. Processes
are killed as functions of this package are called, and nowhere else (`lives`). Those that go on start with one thread,
however many the training began with, and find that number where it was written down. The directory keeps both
trainings, `undisturbed` and `killed`, and `log.txt`, all that their processes said.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from collab.errors import UsageError
from collab.learn.prepare import check_installed
from collab.loop.config import TrainingConfig
from collab.loop.hashing import measured_hash, played_hash
from collab.loop.interfaces import algorithm_named, load_config, read_training
from collab.loop.layout import TrainingDir
from collab.loop.phases import each_trajectory, measured_episodes
from collab.loop.record import read_record
from collab.store.files import writing
from collab.testing.lives import Point, draw, in_full, live, whole_life
from collab.testing.school import found_school, small_training, write_library

STEPS = ("batch_rows=1", "rows_at_once=1", "epochs=3")
"""Settings of a recipe with which even one example makes several optimizer steps."""
SPLIT = ("batch_rows=4", "rows_at_once=4")
"""Settings of a recipe with which several threads have something to split: their number shows in the weights' last
bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One part of both trainings, by hash."""

    epoch: int | None
    """None for the run as a whole."""
    part: str
    undisturbed: str
    killed: str

    @property
    def same(self) -> bool:
        """Whether it came out alike."""
        return self.undisturbed == self.killed


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What came of a verification."""

    path: Path
    points: tuple[Point, ...]
    """Where a process was killed, in the order of time."""
    planned: tuple[Point, ...]
    """Where each of them was to be killed: not quite there where its life made fewer calls than the undisturbed one."""
    missed: tuple[Point, ...] = ()
    """Where one was to be killed and none was: it came to neither the point nor anything behind the part."""
    parts: tuple[Compared, ...]
    """In the order of time; the run hash is the last."""

    @property
    def first_difference(self) -> Compared | None:
        """None where all is the same."""
        return next((one for one in self.parts if not one.same), None)

    @property
    def same(self) -> bool:
        """Whether all parts came out alike, and a process was killed wherever one was to be."""
        return bool(self.points) and not self.missed and self.first_difference is None

    @property
    def elsewhere(self) -> dict[int, Point]:
        """Number of a kill, from 1 → where it was planned; only those that were killed elsewhere."""
        both = enumerate(zip(self.points, self.planned, strict=True), start=1)
        return {number: planned for number, (point, planned) in both if point != planned}


def verify(
    out: Path,
    *,
    kills: int = 7,
    seed: int = 0,
    epochs: int = 2,
    threads: int = 1,
    algorithm: str = "collabuiagents",
    settings: Sequence[str] = (),
    tell: Callable[[str], None] = lambda text: None,
) -> Proof:
    """Train undisturbed, train with kills, compare.

    Args:
        out: a directory that is made, or an empty one.
        kills: wanted; see `draw`.
        seed: of the points.
        epochs: of either training.
        threads: that either is begun with; with several, more is trained at once (`SPLIT`).
        algorithm: that trains both, by its name.
        settings: of both, as `--set` of a training has them; they come after its own.
        tell: takes a line about what is done next.

    Raises:
        UsageError: `out` holds something, or this system cannot fork.
        ConfigError: a setting does not fit.
        MissingExtra: torch or transformers is not installed.
        TrainingFailure: a training failed by itself.
        StoreFailure: something cannot be written.
    """
    check_installed()
    recipe = algorithm_named(algorithm).method.RECIPE
    steps = [f"{recipe}.{one}" for one in (*STEPS, *(SPLIT if threads > 1 else ()))]
    wanted = (f"epochs={epochs}", *steps, *(("episodes=4",) if threads > 1 else ()), *settings)
    _check(algorithm, wanted)
    _make(out)
    _load()
    log = out / "log.txt"
    config = _found(algorithm, out, log, wanted, tell)
    tell(f"training undisturbed: epochs={config.method.epochs}, threads={threads}")
    whole, killed = TrainingDir(out / "undisturbed"), TrainingDir(out / "killed")
    trace = whole_life(config, whole.path, log, threads=threads)
    points = draw(trace, kills=kills, seed=seed)
    tell(f"training again, killed {len(points)} times")
    died = [live(config, killed.path, log, point, threads=threads) for point in points]
    live(config, killed.path, log, None, threads=threads)
    return Proof(
        path=out,
        points=tuple(place for place in died if place is not None),
        planned=tuple(point for point, place in zip(points, died, strict=True) if place is not None),
        missed=tuple(point for point, place in zip(points, died, strict=True) if place is None),
        parts=tuple(compared(whole, killed)),
    )


def _check(algorithm: str, settings: Sequence[str]) -> None:
    """ConfigError where the training could not be put together, before anything is made."""
    with tempfile.TemporaryDirectory() as place:
        asyncio.run(small_training(write_library(Path(place), Path(place) / "none"), *settings, algorithm=algorithm))


def _make(out: Path) -> None:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out}: something is there already; name a new directory")
    with writing(out, "verify again"):
        out.mkdir(parents=True, exist_ok=True)


def _load() -> None:
    """Load once what all processes need; only they compute, so that forking is safe, by themselves in one thread."""
    import peft  # noqa: F401
    import pyarrow.parquet  # noqa: F401
    import torch

    import collab.learn.trainer
    import collab.models.worker  # noqa: F401

    torch.set_num_threads(1)


def _found(
    algorithm: str, out: Path, log: Path, settings: Sequence[str], tell: Callable[[str], None]
) -> TrainingConfig:
    """The team, taught in a process of its own."""
    told = out / "config.json"

    def found() -> None:
        config = asyncio.run(small_training(found_school(out), *settings, algorithm=algorithm))
        told.write_text(config.model_dump_json(), encoding="utf-8")

    tell("teaching a tiny checkpoint")
    in_full(found, log)
    return load_config(json.loads(told.read_text(encoding="utf-8")), str(told))


def compared(whole: TrainingDir, killed: TrainingDir) -> Iterator[Compared]:
    """Two trainings that are over, part by part; what only one of them has differs.

    Raises:
        RunFormatError: one of them cannot be read.
    """
    hashes = [dict(_hashes(folder)) for folder in (whole, killed)]
    for key in dict.fromkeys([*hashes[0], *hashes[1]]):
        one, other = (found.get(key, "missing") for found in hashes)
        yield Compared(epoch=key[0], part=key[1], undisturbed=one, killed=other)


def _hashes(folder: TrainingDir) -> Iterator[tuple[tuple[int | None, str], str]]:
    """(epoch, part) → hash, in the order of time."""
    head, config = read_training(folder)
    for number in range(head["summary"]["epochs"] + 1):
        epoch = folder.epoch(number)
        if number:
            yield (number, "rollout"), played_hash(each_trajectory(epoch.rollout, config.method.steps))
            for part, digest in read_record(epoch.record).hashes.items():
                if part not in ("rollout", "evaluation"):  # these are hashed anew, from what lies there
                    yield (number, part), digest
        yield (number, "evaluation"), measured_hash(measured_episodes(config, epoch.evaluation))
    yield (None, "run"), head["summary"]["hash"]
