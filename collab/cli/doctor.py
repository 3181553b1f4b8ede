"""`collab doctor`: check packages, browser and model servers, and print how to add what is missing."""

from __future__ import annotations

import asyncio
import importlib.metadata
import platform
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

import collab
from collab.cli import options
from collab.cli.output import emit, print_table, say, to_data
from collab.cli.progress import run_interruptible

if TYPE_CHECKING:
    from collab.config import AgentDefinition
    from collab.library import Library
    from collab.models.base import Capabilities

DISTRIBUTION = "collab-marl"

_REQUIREMENT = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)[^;]*(?:;.*\bextra\s*==\s*['\"](?P<extra>[^'\"]+)['\"])?")
_LEAST_DISK = 500 * 2**20
"""Bytes: a day of episodes with pictures."""
_DEVELOPERS = "dev"
"""The extra for developers of collab."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at."""

    area: str
    name: str
    status: Literal["ok", "missing", "broken"]
    """missing: something optional is not there; broken: something that was asked for does not work."""
    detail: str
    mend: str | None = None
    """The command or the step that mends it; None when nothing is to be done."""


def doctor(
    *,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="S", min=0.1, help="Seconds to wait for a model server's answer.")
    ] = 5.0,
    library: options.LibraryFolder = None,
    as_json: options.Json = False,
) -> None:
    """Check this machine: packages, browser, model servers, disk; print what is missing and how to add it.

    Exits with 1 when something is broken. Missing extras do not count as broken.
    """
    # Everything is examined before anything is printed, so that JSON and text agree.
    checks = list(_examine(options.open_library(library), timeout))
    broken = any(check.status == "broken" for check in checks)
    if as_json:
        emit({"ok": not broken, "checks": to_data(checks)})
    else:
        print_table(
            ["", "", "status", "found"], [(check.area, check.name, check.status, check.detail) for check in checks]
        )
        mends = [check for check in checks if check.mend is not None]
        say("\nto mend:" if mends else "\nnothing is missing")
        for check in mends:
            say(f"  {check.name}: {check.mend}")
    # Only "broken" fails: an extra that is missing may be a choice.
    if broken:
        raise typer.Exit(1)


def _examine(definitions: Library, timeout_s: float) -> Iterator[Check]:
    python = f"{platform.python_version()} at {sys.executable}"
    yield Check(area="collab", name="version", status="ok", detail=f"{collab.__version__} on Python {python}")
    yield from _check_packages()
    yield _check_browser()
    yield from _check_definitions(definitions)
    yield from _check_servers(definitions, timeout_s)
    yield _check_disk(Path())


def _check_packages() -> Iterator[Check]:
    """Yield one line for what collab itself needs, and one per extra."""
    from collab.store.manifest import get_version

    groups: dict[str, list[str]] = {}
    # Asked of the installed package itself, so that the list cannot grow old.
    try:
        requirements = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        mend = "pip install -e . in the checkout"
        yield Check(area="packages", name="collab", status="broken", detail="not installed as a package", mend=mend)
        return
    # The same names as in `pip install`: per extra, what it brings.
    for requirement in requirements:
        if match := _REQUIREMENT.match(requirement):
            groups.setdefault(match["extra"] or "", []).append(match["name"])
    for extra, packages in groups.items():
        # Tools for development are no feature that could be missing.
        if extra == _DEVELOPERS:
            continue
        found = {package: get_version(package) for package in packages}
        missing = [package for package, version in found.items() if version is None]
        detail = ", ".join(f"{package} {version or 'is missing'}" for package, version in found.items())
        mend = f"pip install '{DISTRIBUTION}[{extra}]'" if extra else f"pip install {DISTRIBUTION}"
        yield Check(
            area="packages",
            name=extra or "core",
            # An extra that is missing is a choice; a missing core package is broken.
            status="ok" if not missing else "missing" if extra else "broken",
            detail=detail,
            mend=mend if missing else None,
        )


def _check_browser() -> Check:
    from collab.envs.web.browser import INSTALL, VARIABLE, find_browser
    from collab.errors import UsageError

    try:
        choice = find_browser()
    except UsageError as error:
        named = str(error).startswith(VARIABLE)  # asked for by the user, so more than merely not there
        status: Literal["broken", "missing"] = "broken" if named else "missing"
        return Check(area="web", name="browser", status=status, detail=str(error), mend=INSTALL)
    return Check(
        area="web", name="browser", status="ok", detail=f"{choice.version or 'unknown version'} at {choice.path}"
    )


def _check_definitions(definitions: Library) -> Iterator[Check]:
    """Check that every YAML file can be read."""
    from collab.config import AgentsFile, EnvironmentDefinition, GraphDefinition
    from collab.errors import UsageError
    from collab.library import LibraryRoom

    rooms: tuple[tuple[LibraryRoom, type[AgentsFile | EnvironmentDefinition | GraphDefinition]], ...] = (
        ("envs", EnvironmentDefinition),
        ("graphs", GraphDefinition),
        ("agents", AgentsFile),
    )
    for room, model in rooms:
        # Each broken file by itself; a room without one is a single line.
        names, problem = definitions.list_names(room), None
        for name in names:
            try:
                definitions.load(room, name, model)
            except UsageError as error:
                problem = str(error)
                yield Check(area="files", name=f"{room}/{name}", status="broken", detail=problem, mend="edit the file")
        if problem is None:
            yield Check(area="files", name=room, status="ok", detail=", ".join(names))


def _check_servers(definitions: Library, timeout_s: float) -> Iterator[Check]:
    """Ask every model server of the agents files; unreadable files were reported before."""
    from collab.config import AgentDefinition
    from collab.errors import UsageError

    asked: set[str] = set()
    for name in definitions.list_names("agents"):
        try:
            definition = definitions.load("agents", name, AgentDefinition)
        except UsageError:
            continue
        # The same server behind several files is asked once.
        if definition.kind == "openai" and repr(definition.options) not in asked:
            asked.add(repr(definition.options))
            yield run_interruptible(_ask, name, definition, timeout_s)
    if not asked:
        yield Check(
            area="models",
            name="servers",
            status="ok",
            detail="no agents file names one (kind: openai); see docs/servers.md",
        )


async def _ask(name: str, definition: AgentDefinition, timeout_s: float) -> Check:
    """Find out what one server supports; one attempt and a short wait, whatever the file says."""
    from collab.errors import ModelFailure, RunError, UsageError, boundary
    from collab.models.base import Model
    from collab.rollout.build import build

    hasty = definition.model_copy(update={"options": definition.options | {"retries": 0, "timeout_s": timeout_s}})
    try:
        model: Model = build("models", hasty, f"agents/{name}")
        try:
            with boundary(ModelFailure, f"agents/{name} (limit {timeout_s:g} s)"):
                async with asyncio.timeout(timeout_s):
                    capabilities = await model.probe()
        finally:
            await model.close()
    except UsageError as error:  # its first clause is the problem, the others are the next move
        mend = str(error).partition("; ")[2]
        return Check(area="models", name=f"agents/{name}", status="missing", detail=str(error), mend=mend)
    except RunError as error:
        mend = f"start the server, or correct base_url and model in that file; then: collab agents check {name}"
        return Check(area="models", name=f"agents/{name}", status="missing", detail=str(error), mend=mend)
    detail = f"{model.policy.base} answers; supports {_format_capabilities(capabilities)}"
    return Check(area="models", name=f"agents/{name}", status="ok", detail=detail)


def _format_capabilities(capabilities: Capabilities) -> str:
    able = [word.replace("_", " ") for word, yes in to_data(capabilities).items() if yes is True]
    return ", ".join(able) or "plain text only"


def _check_disk(folder: Path) -> Check:
    free = shutil.disk_usage(folder).free
    enough = free >= _LEAST_DISK
    return Check(
        area="disk",
        name="free space",
        status="ok" if enough else "broken",
        detail=f"{free / 2**30:.1f} GiB at {folder.resolve()}",
        mend=None if enough else "make room, or give --out on another disk",
    )
