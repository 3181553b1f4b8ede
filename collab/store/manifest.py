"""The head of a run directory, `run.json`."""

from __future__ import annotations

import functools
import importlib.metadata
import json
import platform
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeGuard

from pydantic import TypeAdapter, ValidationError

import collab
from collab.errors import RunFormatError
from collab.seeds import Seeds
from collab.store.log import list_segments
from collab.types import PlannedTask
from collab.utils.files import check_plain, read_plain, write_atomic
from collab.utils.redact import hide_values

FORMAT_VERSION = "1.2"
"""Version of the run format that this code writes: major.minor."""

FILE = "run.json"

_OTHERS = {
    "training.json": "collab train",
    "transfer.json": "collab transfer",
    "finetune.json": "collab finetune",
    "calibration.json": "collab critic calibrate",
    "synth.json": "collab synth",
}
"""File at the head of another directory that runs may lie beneath → the command that made it."""

PACKAGES = ("openai", "torch", "transformers", "peft", "trl", "playwright", "miniwob", "uiautomator2")
"""Packages whose version can change what a run does."""


def format_now() -> str:
    """Format the current time as the store writes it: UTC, ISO 8601, milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def collect_versions(packages: Iterable[str] = PACKAGES) -> dict[str, str]:
    """Return versions of Python, the platform, Collab and the installed `packages`; imports none of them."""
    found = {"python": platform.python_version(), "platform": platform.platform(), "collab": collab.__version__}
    found.update({package: version for package in packages if (version := get_version(package)) is not None})
    return found


@functools.cache
def get_version(package: str) -> str | None:
    """Return the version of an installed package, looked up once per process; None if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Everything that decides a run, resolved: enough to resume it or to run it again."""

    command: str
    """Command that made the run: "rollout", "eval" …"""
    config: Mapping[str, Any]
    """The resolved configuration; JSON values, no secrets."""
    seed: int
    """The run seed, from which all others are derived."""
    environment: str = ""
    """Label for results, e.g. "androidworld[simphone]"."""
    environment_version: str = ""
    """Environment version of the suite; a run is only resumed with the same."""
    graph: str = ""
    agents: str = ""
    """As the user named them."""
    planned: int | None = None
    """How many episodes a whole run has; None when it has no fixed number."""
    tasks: tuple[PlannedTask, ...] = ()
    """Their tasks; empty if these are not fixed either."""
    models: Mapping[str, Any] = field(default_factory=dict)
    """Per agent definition: the policy and the capabilities its probe found; JSON values."""
    home: str = ""
    """Path from the run to the training or other directory that it is part of; weights named "./…" lie below that one.
    Empty for a run by itself."""
    privileged: bool = False
    """Whether a model of the run looks at solutions: such runs never enter result tables."""
    versions: Mapping[str, str] = field(default_factory=collect_versions)
    created: str = field(default_factory=format_now)
    """UTC, ISO 8601."""

    @property
    def seeds(self) -> Seeds:
        """The run seed, and the seed of sampled replies if there was one."""
        beside = self.config.get("sampling_seed")
        return Seeds(self.seed, beside if isinstance(beside, int) else None)


class DamagedHead(RunFormatError):
    """`run.json` is missing or damaged; the log may hold a copy."""


_MANIFEST: TypeAdapter[Manifest] = TypeAdapter(Manifest)


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Write `run.json` atomically; OSError if the file system refuses."""
    content = {"format_version": FORMAT_VERSION, **_MANIFEST.dump_python(manifest, mode="json")}
    text = json.dumps(hide_values(content), indent=2, ensure_ascii=True).encode() + b"\n"
    write_atomic(directory / FILE, text)


def _find_maker(directory: Path) -> str | None:
    """Return the command that makes directories of this kind where it makes something else than runs."""
    return next((command for file, command in _OTHERS.items() if (directory / file).exists()), None)


def find_home(directory: Path) -> Path | None:
    """Return the training or other directory that a run is part of; None for a run by itself."""
    return next((parent for parent in directory.resolve().parents if _find_maker(parent) is not None), None)


def _suggest_next_move(directory: Path) -> str:
    """Suggest a next move for a directory that is no run."""
    command = _find_maker(directory)
    run = next((parent for parent in directory.parents if (parent / FILE).exists()), None)
    if command is None and run is not None:
        where = shlex.quote(str(run))
        return f"it lies in the run {run}, whose labels and pairs resume with: collab pairs rebuild {where}"
    if command is None:
        return "collab runs list shows the runs there are"
    where = shlex.quote(str(directory))
    return (
        f"{command} made it and resumes it with: {command} --resume {where}; its runs, if any: collab runs list {where}"
    )


def read_manifest(directory: Path) -> Manifest:
    """Read `run.json`.

    Raises:
        DamagedHead: it is missing, or not as it was written.
        RunFormatError: a newer major version wrote it, or permissions are missing.
    """
    path = directory / FILE
    try:
        content = json.loads(read_plain(path))
    except FileNotFoundError:
        # Each cause has its own message, as each has another next move.
        raise DamagedHead(f"{directory}: not a run directory (no {FILE}); {_suggest_next_move(directory)}") from None
    except OSError as error:
        raise RunFormatError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise DamagedHead(f"{path}: not JSON: {error}") from None
    if not isinstance(content, dict):
        raise DamagedHead(f"{path}: holds {type(content).__name__}, not an object")
    version = content.get("format_version")
    # Versions before fields: another version's fields would fail with misleading messages.
    if not is_version(version):
        raise DamagedHead(f"{path}: format_version is {version!r}, not of the form {FORMAT_VERSION}")
    check_version(version, str(path))
    try:
        return _MANIFEST.validate_python(content)
    except ValidationError as error:
        first = error.errors()[0]
        raise DamagedHead(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def find_manifest(directory: Path) -> Manifest | None:
    """Read `run.json`; None if it is damaged but a log holds a copy. Raises as `read_manifest` does.

    Raises:
        RunFormatError: something in the directory is no plain file or folder.
    """
    if directory.is_dir():
        check_plain(directory)
    try:
        return read_manifest(directory)
    except DamagedHead:
        # A synthesis or a training has a log, too, which is no run's.
        if not list_segments(directory) or _find_maker(directory) is not None:
            raise
        return None


def is_version(version: object) -> TypeGuard[str]:
    """Return whether it has the form of a version, e.g. "1.0"."""
    major, dot, minor = version.partition(".") if isinstance(version, str) else ("", "", "")
    return bool(dot) and major.isdecimal() and minor.isdecimal()


def check_version(version: str, where: str) -> None:
    """Refuse another major version; a newer minor one is fine."""
    readable = FORMAT_VERSION.partition(".")[0]
    if version.partition(".")[0] != readable:
        raise RunFormatError(
            f"{where}: written in run format {version}; Collab {collab.__version__} reads format {readable}.x:"
            " install the Collab that wrote it"
        )
