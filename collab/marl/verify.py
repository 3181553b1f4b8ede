"""Proof that a killed training ends like one that nobody disturbed: the same is trained twice, and hashes are compared.

    proof = verify(Path("verified"), kills=7, seed=0)
    proof.same, proof.points, proof.first_difference

What is trained is a tiny team in a corridor (`school`), with `determinism: exact`, on a processor, a pair per optimizer
step (`STEPS`) or a few (`SPLIT`), and each pair three times, so that optimizers have a state to lose. Processes are
killed as functions of this package are called, and nowhere else (`lives`). Those that go on start with one thread,
however many the training began with, and find that number where it was written down. The directory keeps both
trainings, `undisturbed` and `killed`, and `log.txt`, all that their processes said.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from collab.credit.labels import read_labels
from collab.credit.pair_store import read_pairs
from collab.errors import UsageError
from collab.learn.prepare import check_installed
from collab.marl.config import MarlConfig, read_training
from collab.marl.hashing import epoch_hash
from collab.marl.judge import NAME
from collab.marl.layout import MarlFolder
from collab.marl.lives import Point, draw, in_full, live, whole_life
from collab.marl.play import measured, trajectories_of
from collab.marl.school import found_school, small_training, write_library
from collab.marl.summary import read_record
from collab.store.files import writing

STEPS = ("dpo.batch_rows=1", "dpo.rows_at_once=1", "dpo.epochs=3")
"""Settings with which even one pair makes several optimizer steps."""
SPLIT = ("episodes=4", "dpo.batch_rows=4", "dpo.rows_at_once=4")
"""Settings with which several threads have something to split: their number shows in the weights' last bits."""


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
    wanted = (f"epochs={epochs}", *STEPS, *(SPLIT if threads > 1 else ()), *settings)
    _check(wanted)
    _make(out)
    _load()
    log = out / "log.txt"
    config = _found(out, log, wanted, tell)
    tell(f"training undisturbed: epochs={config.method.epochs}, threads={threads}")
    whole, killed = MarlFolder(out / "undisturbed"), MarlFolder(out / "killed")
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


def _check(settings: Sequence[str]) -> None:
    """ConfigError where the training could not be put together, before anything is made."""
    with tempfile.TemporaryDirectory() as place:
        asyncio.run(small_training(write_library(Path(place), Path(place) / "none"), *settings))


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


def _found(out: Path, log: Path, settings: Sequence[str], tell: Callable[[str], None]) -> MarlConfig:
    """The team, taught in a process of its own."""
    told = out / "config.json"

    def found() -> None:
        config = asyncio.run(small_training(found_school(out), *settings))
        told.write_text(config.model_dump_json(), encoding="utf-8")

    tell("teaching a tiny checkpoint")
    in_full(found, log)
    return MarlConfig.model_validate_json(told.read_text(encoding="utf-8"))


def compared(whole: MarlFolder, killed: MarlFolder) -> Iterator[Compared]:
    """Two trainings that are over, part by part; what only one of them has differs.

    Raises:
        RunFormatError: one of them cannot be read.
    """
    hashes = [dict(_hashes(folder)) for folder in (whole, killed)]
    for key in dict.fromkeys([*hashes[0], *hashes[1]]):
        one, other = (found.get(key, "missing") for found in hashes)
        yield Compared(epoch=key[0], part=key[1], undisturbed=one, killed=other)


def _hashes(folder: MarlFolder) -> Iterator[tuple[tuple[int | None, str], str]]:
    """(epoch, part) → hash, in the order of time."""
    head, config = read_training(folder)
    for number in range(head["summary"]["epochs"] + 1):
        epoch = folder.epoch(number)
        if number:
            yield (number, "rollout"), epoch_hash(played=trajectories_of(epoch.rollout, config.method.steps))
            if config.method.is_judged:
                yield (number, "critic"), epoch_hash(judged=read_labels(epoch.rollout, NAME).judged.values())
            if config.method.objective != "rft":
                yield (number, "pairs"), epoch_hash(pairs=read_pairs(epoch.rollout, NAME).pairs)
            record = read_record(epoch.record)
            yield (number, "rows"), epoch_hash(learned={group: one.digest for group, one in record.rows.items()})
            yield (number, "weights"), epoch_hash(weights={group: one.digest for group, one in record.trained.items()})
        yield (number, "evaluation"), epoch_hash(measured=measured(config, epoch.evaluation))
    yield (None, "run"), head["summary"]["hash"]
