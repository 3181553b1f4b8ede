"""What lies at a path that a user names: a run, runs of several seeds, a training, a transfer or fine-tuning."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["run", "series", "runs", "training", "transfer", "finetuning"]
_WORDS: dict[Kind, str] = {
    "run": "a run",
    "series": "an evaluation over several seeds",
    "runs": "a folder of runs",
    "training": "a training",
    "transfer": "a transfer",
    "finetuning": "a fine-tuning run",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What was found."""

    path: Path
    kind: Kind
    """It is "series" where each run lies in a seed's folder, and "runs" for any other folder with runs in it."""
    runs: tuple[Path, ...]
    """All runs that lie in it, however deep; of a run itself alone. A training's are in the order of its epochs."""

    @property
    def what(self) -> str:
        """In words, with its path."""
        return f"{self.path}: {_WORDS[self.kind]}"


def find_recorded(path: Path) -> Recorded:
    """Look what a path holds, without reading any of it. What holds nothing counts as a run, which cannot be opened."""
    from collab.learn.folder import RunFolder
    from collab.marl.layout import MarlFolder
    from collab.report import runs_in
    from collab.store.log import segments
    from collab.store.manifest import FILE
    from collab.transfer.layout import TransferFolder

    kinds: dict[Kind, Path] = {
        "run": path / FILE,
        "training": MarlFolder(path).file,
        "transfer": TransferFolder(path).file,
        "finetuning": RunFolder(path).manifest_path,
    }
    kind = next((kind for kind, head in kinds.items() if head.is_file()), None)
    if kind == "run" or (kind is None and segments(path)):
        return Recorded(path=path, kind="run", runs=(path,))
    runs = tuple(sorted(runs_in(path), key=_by_number))
    if kind is None and not runs:
        return Recorded(path=path, kind="run", runs=(path,))
    together = all(run.parent == path and run.name.startswith("seed-") for run in runs)
    return Recorded(path=path, kind=kind or ("series" if together else "runs"), runs=runs)


def commands_instead(found: Recorded, command: str) -> str:
    """Return one line for a command that takes one run: what was found, and what to type for one of its runs.

    Args:
        command: with "{}" where the run stands.
    """
    if not found.runs:
        return f"{found.what} without a run in it; look at it with: collab runs show {shlex.quote(str(found.path))}"
    runs = f"its {len(found.runs)} runs" if len(found.runs) > 1 else "its run"
    more = "" if len(found.runs) == 1 else ", and so on for each"
    return f"{found.what}; name one of {runs}: {command.format(quoted(command, found.runs[0]))}{more}"


def quoted(command: str, path: Path) -> str:
    """A path as it is written in that command: for a shell, or within the quotes of a call."""
    return str(path) if '"' in command else shlex.quote(str(path))


def refuse_several(found: Recorded, command: str) -> None:
    """UsageError where a command that takes one run is given something else; as `commands_instead`."""
    from collab.errors import UsageError

    if found.kind != "run":
        raise UsageError(commands_instead(found, command))


def _by_number(path: Path) -> list[tuple[int, str]]:
    """A key by which epoch 10 stands behind epoch 9."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in path.parts]
