"""`collab env`: the worlds, their tasks, and the proof that they keep their promises.

`collab phone`: SimPhones that real adb and uiautomator2 clients can drive.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from collab.cli import options
from collab.cli.output import emit, print_table, say, to_data
from collab.cli.progress import handle_signals, run_interruptible
from collab.utils.progress import LINE_S, note
from collab.utils.text import clean_line, format_amount, split_names

if TYPE_CHECKING:
    from collab.config import EnvironmentDefinition
    from collab.data.splits import Split
    from collab.envs.base import Suite
    from collab.envs.check import CheckReport, Finding
    from collab.envs.simphone.adb.automator import PhoneHandle
    from collab.library import Library


app = typer.Typer(help="Environments: where agents act.", no_args_is_help=True)

FEW = 10
"""Tasks of a quick check."""

Name = Annotated[str, typer.Argument(metavar="NAME", help="An environment, or the path of a YAML file.")]


@app.command("list")
def list_environments(*, library: options.LibraryFolder = None, as_json: options.Json = False) -> None:
    """List all environments."""
    from collab.config import EnvironmentDefinition

    found, broken = options.read_definitions(options.open_library(library), "envs", EnvironmentDefinition)
    if as_json:
        emit({name: env.model_dump(mode="json") for name, env in found.items()} | options.build_error_data(broken))
        return
    print_table(
        ["environment", "backend", "others", "description"],
        [
            (name, env.backend, ", ".join(other for other in env.backends if other != env.backend), env.description)
            for name, env in found.items()
        ],
    )


@app.command("tasks")
def list_tasks(
    name: Name,
    *,
    tasks: options.Tasks = None,
    split: options.Split = None,
    backend: options.Backend = None,
    library: options.LibraryFolder = None,
    as_json: options.Json = False,
) -> None:
    """List the tasks that an environment plays; an oracle is a known solution, which a rehearsal needs.

    Where its file names tasks, those are listed; --tasks all shows whatever the backend has.
    """
    from collab.data.splits import find_split
    from collab.rollout.plan import resolve_task_names

    definitions = options.open_library(library)
    definition = load(definitions, name, backend)
    # The suite is opened only to list its tasks, and closed before anything is printed.
    suite = build_named_suite(name, definition)
    try:
        names = set(resolve_task_names(suite, split_names("--tasks", tasks) or definition.own_tasks, name, definition))
        infos = [info for info in suite.tasks() if info.name in names]
    finally:
        run_interruptible(suite.close)
    # A split narrows what was chosen; it never adds tasks.
    if split is not None:
        own = find_split(_load_splits(definitions, name, backend), split, name).tasks
        infos = [info for info in infos if info.name in own]
    if as_json:
        emit({"environment": suite.label, "version": suite.version, "tasks": to_data(infos)})
        return
    print_table(
        ["task", "apps", "difficulty", "steps", "oracle", "tags"],
        [
            (
                info.name,
                ", ".join(info.apps),
                info.difficulty,
                info.max_steps,
                "yes" if info.oracle else "no",
                ", ".join(info.tags),
            )
            for info in infos
        ],
    )
    # How many have a known solution decides whether a rehearsal or the oracle can be used.
    say(
        f"\n{suite.label}: {format_amount(len(infos), 'task')}, "
        f"{sum(info.oracle for info in infos)} with a known solution"
    )


def _load_splits(definitions: Library, name: str, backend: str | None) -> dict[str, Split]:
    from collab.rollout.plan import load_splits

    return run_interruptible(load_splits, name, load(definitions, name, backend))


@app.command("splits")
def list_splits(
    name: Name,
    *,
    backend: options.Backend = None,
    library: options.LibraryFolder = None,
    as_json: options.Json = False,
) -> None:
    """Show what is for training and what is kept for evaluation: tasks, run seeds, and a hash of both."""
    from collab.data.splits import to_json

    splits = _load_splits(options.open_library(library), name, backend)
    if as_json:
        emit([to_json(split) | {"hash": split.hash} for split in splits.values()])
        return
    print_table(
        ["split", "tasks", "run seeds", "hash", "what"],
        [(one.name, len(one.tasks), one.seeds, one.hash[:12], one.what) for one in splits.values()],
    )


@app.command("check")
def check_environments(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAMES]...", help="Environments or YAML files.")] = None,
    *,
    every: Annotated[
        bool,
        typer.Option("--all", help="Check every environment except those where random actions have lasting effects."),
    ] = False,
    quick: Annotated[
        bool,
        typer.Option("--quick", help=f"Check one seed, short random episodes and {FEW} tasks of each environment."),
    ] = False,
    tasks: options.Tasks = None,
    seeds: Annotated[str, typer.Option("--seeds", metavar="0,1,…", help="Instances of each task.")] = "0,1",
    backend: options.Backend = None,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="S", min=0.1, help="Seconds allowed for one check of one instance.")
    ] = 120.0,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="environment.a.b=c", help="Override one setting, as for a run. May be repeated."),
    ] = None,
    library: options.LibraryFolder = None,
    as_json: options.Json = False,
) -> None:
    """Check on every task that environments keep their promises; exit with 1 when one does not.

    Equal seeds give equal screens, junk never crashes, budgets end; where an environment says so: forks are exact,
    the known solution solves, an episode can be rebuilt in a fresh process, screens can be drawn.
    """
    from collab.config import EnvironmentDefinition
    from collab.errors import UsageError

    # With --all, unreadable files count as broken; named ones raise by themselves.
    definitions = options.open_library(library)
    fine, broken = options.read_definitions(definitions, "envs", EnvironmentDefinition) if every else ({}, {})
    chosen = list(names or _select_harmless(fine))
    if not chosen:
        raise UsageError(f"name the environments to check, or --all for: {', '.join(definitions.list_names('envs'))}")
    effort = _Effort(seeds=(0,) if quick else _parse_numbers(seeds), junk_steps=10 if quick else 30, quick=quick)
    wanted = split_names("--tasks", tasks)
    # Loaded before the first is checked: a misspelt setting must not show after minutes.
    worlds = [(name, _override_definition(load(definitions, name, backend), settings or [])) for name in chosen]
    reports = [run_interruptible(_check, name, world, wanted, effort, timeout) for name, world in worlds]
    if as_json:
        emit([to_data(report) | {"ok": report.ok} for report in reports])
    else:
        for report in reports:
            _print_check(report)
    if broken or not all(report.ok for report in reports):
        raise typer.Exit(1)


def _select_harmless(found: Mapping[str, EnvironmentDefinition]) -> list[str]:
    """Return all environments except those where random actions would have lasting effects."""
    lasting = [name for name, definition in found.items() if definition.lasting]
    if lasting:
        note(f"left out, because actions there have lasting effects: {', '.join(lasting)}; check one by its name")
    return [name for name in found if name not in lasting]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Effort:
    seeds: tuple[int, ...]
    junk_steps: int
    quick: bool


def _override_definition(definition: EnvironmentDefinition, settings: list[str]) -> EnvironmentDefinition:
    """Return the definition with the settings applied; UsageError for a setting that is not the environment's."""
    from collab.config import override, strip_run_prefix
    from collab.errors import UsageError

    settings = [strip_run_prefix(setting) for setting in settings]
    for setting in settings:
        if not setting.startswith("environment."):
            raise UsageError(f"--set {setting!r}: only settings of the environment matter here, environment.a.b=value")
    return override(definition, [setting.removeprefix("environment.") for setting in settings])


async def _check(
    name: str, definition: EnvironmentDefinition, wanted: list[str], effort: _Effort, timeout_s: float
) -> CheckReport:
    from collab.envs.check import check_env
    from collab.rollout.plan import order_tasks, resolve_task_names

    suite = build_named_suite(name, definition)
    try:
        wanted = wanted or definition.own_tasks
        tasks = resolve_task_names(suite, wanted, name, definition)
        # Quick: a few tasks that differ, not the first ones of the list.
        if effort.quick:
            tasks = order_tasks(suite, wanted, tasks, 0)[:FEW]
        return await check_env(
            suite,
            tasks=tasks,
            seeds=effort.seeds,
            junk_steps=effort.junk_steps,
            options=definition.part.options,
            timeout_s=timeout_s,
            progress=_build_teller(name, tasks),
        )
    finally:
        await suite.close()


def _build_teller(name: str, tasks: list[str]) -> Callable[[Finding], None]:
    """Build a function that prints the progress of a check every few seconds."""
    told = time.monotonic()
    seen: set[str] = set()

    def show(finding: Finding) -> None:
        nonlocal told
        seen.add(finding.task)
        if time.monotonic() - told >= LINE_S:
            told = time.monotonic()
            note(f"{name}: task {len(seen.intersection(tasks))} of {len(tasks)}, {finding.task}")

    return show


def _print_check(report: CheckReport) -> None:
    """Print one row per claim, then every broken promise and what could not be shown."""
    # Counted per claim: hundreds of findings become one row per promise.
    claims: dict[str, Counter[str]] = {}
    reasons: dict[str, Counter[str]] = {}
    for finding in report.findings:
        claims.setdefault(finding.claim, Counter())[finding.status] += 1
        if finding.status == "skipped":
            reasons.setdefault(finding.claim, Counter())[finding.detail] += 1
    say(f"{report.label} (version {report.version}): {'ok' if report.ok else 'BROKEN'} in {report.seconds:.1f} s\n")
    print_table(
        ["claim", "passed", "failed", "left out", "why"],
        [
            (claim, count["passed"], count["failed"], count["skipped"], ", ".join(reasons.get(claim, ())))
            for claim, count in claims.items()
        ],
    )
    # Failures in full, below the table: each is a fault of the environment.
    for finding in report.failures:
        say(clean_line(f"failed: {finding.task}: {finding.claim}: {finding.detail}"))
    # "oracle" may be skipped for some tasks; which ones, users ask next.
    solvable = claims.get("oracle", Counter())
    if solvable["skipped"] and solvable["passed"] + solvable["failed"]:
        unsolved = [one.task for one in report.findings if one.claim == "oracle" and one.status == "skipped"]
        say(f"without a known solution: {', '.join(unsolved)}")
    say()


def _parse_numbers(text: str) -> tuple[int, ...]:
    from collab.errors import ConfigError

    try:
        return tuple(int(item) for item in split_names("--seeds", [text]))
    except ValueError:
        raise ConfigError(f"--seeds {text!r}: write whole numbers with commas, e.g. 0,1,2") from None


def load(definitions: Library, name: str, backend: str | None) -> EnvironmentDefinition:
    """Load an environment's definition, with another backend if one is chosen."""
    from collab.config import load_environment
    from collab.errors import UnknownName

    definition = load_environment(definitions, name)
    if backend is None:
        return definition
    if backend not in definition.backends:
        raise UnknownName.of(f"backend of {name}", backend, definition.backends, "see them with: collab env list")
    return definition.model_copy(update={"backend": backend})


def build_named_suite(name: str, definition: EnvironmentDefinition) -> Suite:
    """Build the suite of a definition; close it afterwards."""
    from collab.rollout.build import build_environment

    return build_environment(name, definition)


phone_app = typer.Typer(help="Simulated phones for adb and uiautomator2.", no_args_is_help=True)

FIRST_PORT = 5554
"""Console port of the first emulator; serials count on in twos, as the emulator's do."""


@phone_app.command("serve")
def serve(
    *,
    phones: Annotated[int, typer.Option("--phones", metavar="N", min=1, max=64, help="Number of phones.")] = 1,
    port: Annotated[
        int, typer.Option("--port", metavar="PORT", min=0, max=65535, help="Port to listen on; 0 for a free one.")
    ] = 0,
    task: Annotated[
        str | None,
        typer.Option("--task", metavar="NAME", help="Start from this task's initial state; scored at the end."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="S", help="Phone k gets instance S + k of the task.")] = 0,
    apps: Annotated[
        list[str] | None, typer.Option("--app", metavar="PACKAGE", help="Outside app that may run; may be repeated.")
    ] = None,
) -> None:
    """Serve phones on the loopback interface until Ctrl-C, as an adb server would.

    A client can begin other tasks on them: collab rollout --env androidworld --backend device.
    """
    from collab.envs.simphone.adb.automator import PhoneHandle
    from collab.envs.simphone.adb.http import begin
    from collab.envs.simphone.suite import SimPhoneSuite

    suite = SimPhoneSuite(apps=apps or [])
    # Serials as emulators have them, so that tools recognise the devices.
    handles = {f"emulator-{FIRST_PORT + 2 * place}": PhoneHandle(suite=suite) for place in range(phones)}
    for place, handle in enumerate(handles.values()):
        if task is not None:
            begin(handle, name=task, seed=seed + place)
    run_interruptible(_serve, handles, port)
    # After the server has ended, what was done on each phone can be judged.
    for serial, handle in handles.items():
        if handle.exam is not None:
            say(f"{serial}: {handle.exam.task.name} holds to {handle.exam.score(handle.phone):.0%}")


async def _serve(phones: dict[str, PhoneHandle], port: int) -> None:
    from collab.envs.simphone.adb.server import HOST, PhoneServer

    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    with handle_signals(lambda number: loop.call_soon_threadsafe(stop.set)):
        async with PhoneServer(phones, port=port) as server:
            say(f"export ANDROID_ADB_SERVER_PORT={server.port}")
            for serial, handle in phones.items():
                if handle.exam is not None:
                    say(f"# {serial}: {handle.exam.task.goal}")
            note(
                f"serving {format_amount(len(phones), 'phone')} on {HOST}:{server.port}; try: adb devices. "
                "Stop with Ctrl-C."
            )
            await stop.wait()
