"""Where everything of a transfer lies, what is to be done, and how far it is."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from collab.config import RunConfig, validate
from collab.errors import RunFormatError
from collab.loop.phases import is_over
from collab.loop.record import TrainingDir
from collab.store.manifest import FILE as RUN_FILE
from collab.store.run_dir import HeadFile
from collab.transfer.config import Arm, Place, TransferConfig
from collab.transfer.outcome import Outcome, Told
from collab.utils.files import read_plain, write_atomic, write_json, writing

FILE = "transfer.json"
FORMAT = 3
"""Version of `transfer.json` and of what lies beside it."""

State: TypeAlias = Literal["missing", "begun", "over"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One evaluation: a team in an environment."""

    place: Place
    arm: Arm
    runs: tuple[RunConfig, ...]
    """One per seed; of the continued team those of the transferred one, whose weights it does not have."""

    @property
    def name(self) -> str:
        """Its directory, e.g. "second/base"."""
        return f"{self.place}/{self.arm}"


def parts_before(config: TransferConfig) -> list[Part]:
    """What is played before training goes on; for direct that is all."""
    found = [
        Part(place="second", arm="base", runs=tuple(config.base)),
        Part(place="second", arm="transferred", runs=tuple(config.transferred)),
    ]
    return found if config.training is None else [*found, Part(place="first", arm="transferred", runs=_first(config))]


def parts_after(config: TransferConfig) -> list[Part]:
    """What is played by the team that training leaves; nothing for direct."""
    if config.training is None:
        return []
    return [
        Part(place="second", arm="continued", runs=tuple(config.transferred)),
        Part(place="first", arm="continued", runs=_first(config)),
    ]


def _first(config: TransferConfig) -> tuple[RunConfig, ...]:
    return tuple(config.first)


@dataclass(frozen=True, slots=True)
class TransferFolder:
    """A transfer on disk."""

    path: Path

    @property
    def file(self) -> Path:
        """`transfer.json`."""
        return self.path / FILE

    @property
    def result(self) -> Path:
        """There once the transfer is over."""
        return self.path / "result.json"

    @property
    def table(self) -> Path:
        """The result for people; written before `result`."""
        return self.path / "result.md"

    @property
    def training(self) -> TrainingDir:
        """Training in the second environment."""
        return TrainingDir(self.path / "training")

    @property
    def resume(self) -> str:
        """The command that goes on with it."""
        return f"collab transfer --resume {shlex.quote(str(self.path))}"

    def part(self, part: Part) -> Path:
        """Directory of an evaluation."""
        return self.path / part.place / part.arm

    def state(self, part: Part) -> State:
        """How far an evaluation is; broken episodes do not keep it from being over."""
        places = [self.part(part) / f"seed-{run.seed}" for run in part.runs]
        begun = [place for place in places if (place / RUN_FILE).exists()]
        if len(begun) == len(places) and all(is_over(place) for place in begun):
            return "over"
        return "begun" if begun else "missing"

    def state_of_training(self) -> State:
        """How far training is."""
        if not self.training.file.exists():
            return "missing"
        return "over" if "summary" in self.training.read() else "begun"

    @property
    def head(self) -> HeadFile:
        """`transfer.json`, to be created, read and locked."""
        return HeadFile(path=self.file, noun="transfer", format=FORMAT, resume=self.resume)

    def told(self) -> Told | None:
        """What came of it; None while it is not over. RunFormatError when it cannot be read."""
        if not self.result.exists():
            return None
        try:
            content = json.loads(read_plain(self.result))
            table = read_plain(self.table).decode("utf-8")
        except (OSError, ValueError) as error:
            raise RunFormatError(f"{self.result}: cannot be read: {error}; remove it, and it is made again") from None
        return Told(outcome=validate(Outcome, content, str(self.result)), markdown=table)

    def close(self, told: Told) -> None:
        """Write what came of it; StoreFailure when it cannot be written."""
        with writing(self.result, self.resume):
            write_atomic(self.table, told.markdown.encode("utf-8"))
            write_json(self.result, told.outcome.model_dump(mode="json"))
