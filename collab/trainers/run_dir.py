"""The directory of a fine-tuning run: manifest, metrics and checkpoints; and that of a new checkpoint.

A checkpoint is written under a temporary name and renamed when complete.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from collab.errors import CollabError, RunFormatError, StoreFailure, UsageError
from collab.models.checkpoint_card import CARD, write_layout
from collab.models.tokenizer import silence_transformers
from collab.store.run_dir import LOCK, RunDir
from collab.utils.files import hash_file, report_write_errors, sync_directory, sync_files, write_atomic, write_json

_STATE = "trainer_state.json"
"""Trainer's own state; written last into a checkpoint."""
_DIGESTS = "digests.json"
"""SHA-256 of every file of a checkpoint."""


class FinetuneDir(RunDir):
    """A fine-tuning run on disk."""

    HEAD, NOUN, FORMAT, COMMAND = "finetune.json", "fine-tuning run", 1, "collab finetune --resume"
    LISTED = True

    @property
    def final(self) -> Path:
        """The result; a directory once the run is done."""
        return self.path / "final"

    @property
    def partial(self) -> Path:
        """Return the folder in which a checkpoint is written before it is whole."""
        return self.path / "checkpoints" / ".partial"

    @property
    def moments(self) -> Path:
        """The optimizer's moments behind the last step, of a run that hands them on."""
        return self.path / "optimizer.safetensors"

    @property
    def metrics(self) -> Path:
        """A line per logged step."""
        return self.path / "metrics.jsonl"

    def abandon(self) -> None:
        """Undo `begin`: nothing was trained."""
        if not self.metrics.exists():
            self.file.unlink(missing_ok=True)
            (self.path / LOCK).unlink(missing_ok=True)

    def place(self, now: Mapping[str, Any]) -> None:
        """Update the manifest's paths from the current one, as files may have moved; StoreFailure if not writable."""
        known = self.read()
        placed = {**known, "data": {**known["data"], "paths": now["data"]["paths"]}}
        for name in ("base", "reference", "adapter", "reference_adapter"):
            if known.get(name):
                placed[name] = {**known[name], "path": now[name]["path"]}
        if placed != known:
            self.write(placed)

    # ----------------------------------------------------------------------------------------------- checkpoints

    def find_checkpoint(self) -> Path | None:
        """Return the newest complete checkpoint; None without one."""
        found = self._list_checkpoints()
        return found[-1][1] if found else None

    def keep_checkpoint(self, step: int, keep: int) -> None:
        """Make what was written for `step` a checkpoint of the run, and remove the oldest ones beyond `keep`."""
        written = self.partial / f"checkpoint-{step}"
        target = self.path / "checkpoints" / f"step-{step}"
        files = sorted(file for file in written.rglob("*") if file.is_file())
        write_json(written / _DIGESTS, {str(file.relative_to(written)): hash_file(file) for file in files})
        sync_files(written)
        shutil.rmtree(target, ignore_errors=True)
        written.rename(target)
        sync_directory(target.parent)
        for _, old in self._list_checkpoints()[:-keep]:
            shutil.rmtree(old, ignore_errors=True)

    def check_whole(self, checkpoint: Path) -> None:
        """Check that a checkpoint's files match their digests; else RunFormatError."""
        path = checkpoint / _DIGESTS
        try:
            digests = json.loads(path.read_text(encoding="utf-8"))
            changed = [name for name, digest in digests.items() if hash_file(checkpoint / name) != digest]
        except (OSError, ValueError, AttributeError) as error:
            changed = [str(error)]
        if changed:
            raise RunFormatError(
                f"{checkpoint}: damaged since it was written ({', '.join(changed)}); "
                f"remove it to resume from the one before, then: {self.resume}"
            )

    def clear_partial(self) -> None:
        """Remove what a killed run left half-written."""
        shutil.rmtree(self.partial, ignore_errors=True)
        for left in self.path.glob(".final*"):
            shutil.rmtree(left, ignore_errors=True)

    def _list_checkpoints(self) -> list[tuple[int, Path]]:
        folders = (self.path / "checkpoints").glob("step-*")
        whole = [folder for folder in folders if (folder / _STATE).is_file()]
        return sorted((int(folder.name.removeprefix("step-")), folder) for folder in whole)

    # --------------------------------------------------------------------------------------------------- metrics

    def forget_metrics_after(self, step: int) -> None:
        """Drop lines of steps that will be trained again, and half a line at the end.

        Raises:
            StoreFailure: it cannot be written.
        """
        if self.metrics.is_file():
            lines = [line for line in _read_lines(self.metrics) if line["step"] <= step]
            with report_write_errors(self.metrics, self.resume):
                write_atomic(self.metrics, "".join(json.dumps(line) + "\n" for line in lines).encode())

    def add_metrics(self, line: Mapping[str, Any]) -> None:
        """Append one line."""
        with report_write_errors(self.metrics, self.resume), self.metrics.open("a") as file:
            file.write(json.dumps(dict(line)) + "\n")

    def read_metrics(self) -> list[dict[str, Any]]:
        """Return all lines so far."""
        return list(_read_lines(self.metrics)) if self.metrics.is_file() else []

    def read_seconds(self) -> float:
        """Return how long all processes took for the logged steps so far."""
        lines = self.read_metrics()
        return lines[-1]["seconds"] if lines else 0.0


@contextlib.contextmanager
def report_save_errors(what: Path, next_move: str) -> Iterator[None]:
    """Turn every library's write errors into one StoreFailure.

    A full disk is an OSError, in torch a RuntimeError, in safetensors its own error, in tokenizers an Exception.
    """
    try:
        yield
    except CollabError:
        raise
    except Exception as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise StoreFailure(
            f"{what}: cannot write: {first}; what was written before is kept: "
            f"make room or fix the rights, then {next_move}"
        ) from error


def check_new(directory: Path) -> None:
    """Refuse a place for a new checkpoint where something is already, with a UsageError; an empty directory is free."""
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise UsageError(f"{directory}: something is there already; name a new directory")


def write_new(
    directory: Path, model: Any, tokenizer: Any, card: Mapping[str, Any], settings: Mapping[str, Any] | None = None
) -> None:
    """Write a new checkpoint (safetensors) with its tokenizer and cards; StoreFailure leaves nothing behind.

    Args:
        directory: new or empty.
        model: with transformers' `save_pretrained`, as `tokenizer`.
        card: its origin, for `card.json`.
        settings: more JSON files, by name; None for none.
    """
    partial = directory.with_name(f".{directory.name}.partial")
    try:
        with report_save_errors(directory, "try again"), silence_transformers():
            shutil.rmtree(partial, ignore_errors=True)  # of a process that was killed
            model.save_pretrained(partial)
            tokenizer.save_pretrained(partial)
            for name, value in (settings or {}).items():
                write_json(partial / name, value)
            write_layout(partial)
            write_json(partial / CARD, card)
            sync_files(partial)
            partial.rename(directory)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _read_lines(path: Path) -> Iterator[dict[str, Any]]:
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            continue  # written when the run was killed; the step is trained again
        yield line


def average_over_pairs(
    lines: Sequence[Mapping[str, Any]], name: str, *, first: bool = False, count: str = "compared"
) -> float | None:
    """Return the mean of a pair metric such as `margin` over the last quarter of lines, weighted by their pairs.

    Args:
        lines: logged metrics; a line without `count` counts as one row.
        first: average the first quarter instead.
        count: "compared" for metrics of pairs, "anchored" for those of anchor rows.

    Returns:
        None without such rows.
    """
    told = [(line[name], line.get(count, 1)) for line in _select_quarter(lines, name, first=first)]
    return sum(value * rows for value, rows in told) / sum(rows for _, rows in told) if told else None


def compute_chosen_gain(lines: Sequence[Mapping[str, Any]], beta: float) -> float | None:
    """Return the chosen replies' mean log-ratio to the reference, in nats; None without pairs.

    Unlike log p alone, it does not depend on the batch's replies.
    """
    reward = average_over_pairs(lines, "reward_chosen")
    return None if reward is None else reward / beta


def _select_quarter(lines: Sequence[Mapping[str, Any]], name: str, *, first: bool) -> Sequence[Mapping[str, Any]]:
    told = [line for line in lines if line.get(name) is not None]
    size = max(1, len(told) // 4)
    return told[:size] if first else told[-size:]
