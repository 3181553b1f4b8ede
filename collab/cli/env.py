"""`collab env`: the worlds, their tasks, and the proof that they keep their promises."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from collab.cli import options
from collab.cli.output import data, emit, say, table

if TYPE_CHECKING:
    from collab.config import EnvironmentDefinition
    from collab.envs.base import Suite
    from collab.library import Library

app = typer.Typer(help="Environments: where agents act.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="An environment, or the path of a YAML file.")]


@app.command("list")
def list_environments(*, library: options.LibraryFolder = None, as_json: options.Json = False) -> None:
    """List all environments."""
    from collab.config import EnvironmentDefinition

    definitions = options.library(library)
    found = {name: definitions.load("envs", name, EnvironmentDefinition) for name in definitions.names("envs")}
    if as_json:
        emit({name: env.model_dump(mode="json") for name, env in found.items()})
        return
    table(
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
    backend: options.Backend = None,
    library: options.LibraryFolder = None,
    as_json: options.Json = False,
) -> None:
    """List the tasks of an environment; an oracle is a known solution, which a rehearsal needs."""
    from collab.resolve import task_names

    definitions = options.library(library)
    suite = open_suite(definitions, name, backend)
    try:
        chosen = set(task_names(suite, options.listed(tasks) or ["all"]))
        infos = [info for info in suite.tasks() if info.name in chosen]
    finally:
        asyncio.run(suite.close())
    if as_json:
        emit({"environment": suite.label, "version": suite.version, "tasks": data(infos)})
        return
    table(
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
    say(f"\n{suite.label}: {len(infos)} tasks, {sum(info.oracle for info in infos)} with a known solution")


def load(definitions: Library, name: str, backend: str | None) -> EnvironmentDefinition:
    """The definition of an environment, with another backend chosen if asked for."""
    from collab.config import EnvironmentDefinition
    from collab.errors import UnknownName

    definition = definitions.load("envs", name, EnvironmentDefinition)
    if backend is None:
        return definition
    if backend not in definition.backends:
        raise UnknownName.of(f"backend of {name}", backend, definition.backends)
    return definition.model_copy(update={"backend": backend})


def open_suite(definitions: Library, name: str, backend: str | None) -> Suite:
    """Build the suite of an environment; close it afterwards."""
    from collab.resolve import build

    definition = load(definitions, name, backend)
    suite: Suite = build("environments", definition.part, f"envs/{name} (backend {definition.backend})")
    return suite
