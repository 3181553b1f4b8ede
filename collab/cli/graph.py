"""`collab graph`: show which agent hears which, as text and as pictures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from collab.cli import options
from collab.cli.output import emit, fail, print_table, say
from collab.utils.text import format_amount

if TYPE_CHECKING:
    from collab.config import GraphDefinition
    from collab.graphs.dag import Dag

app = typer.Typer(help="Communication graphs: which agent hears which.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="A graph, or the path of a YAML file.")]
SeedOption = Annotated[int, typer.Option("--seed", metavar="S", help="Seed of a sampled graph's edges.")]


@app.command("list")
def list_graphs(*, library: options.LibraryFolder = None, as_json: options.Json = False) -> None:
    """List all graphs."""
    from collab.config import GraphDefinition

    found, broken = options.read_definitions(options.open_library(library), "graphs", GraphDefinition)
    if as_json:
        emit({name: _build_definition_data(graph) for name, graph in found.items()} | options.build_error_data(broken))
        return
    print_table(
        ["graph", "slots", "rounds", "edges", "rewire", "description"],
        [
            (name, len(graph.slots), graph.rounds, _describe_edges(graph), graph.rewire, graph.description)
            for name, graph in found.items()
        ],
    )


@app.command("show")
def show_graph(
    name: Name,
    *,
    seed: SeedOption = 0,
    svg: Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="Write a picture to FILE.")] = None,
    mermaid: Annotated[
        bool, typer.Option("--mermaid", help="Print a Mermaid flowchart instead of the layers.")
    ] = False,
    library: options.LibraryFolder = None,
    as_json: options.Json = False,
) -> None:
    """Show the layers of a graph: within a round, a layer speaks when all before it have spoken."""
    from collab.config import GraphDefinition
    from collab.graphs.draw import draw_graph, to_mermaid, to_text
    from collab.rollout.build import build_first_dag
    from collab.utils.plotting import to_svg

    graph = options.open_library(library).load("graphs", name, GraphDefinition)
    dag = build_first_dag(graph, seed)
    # The picture is written first, so that it exists even if printing fails.
    if svg is not None:
        _write(svg, to_svg(draw_graph(dag, graph.description)))
    if as_json:
        emit(_build_definition_data(graph) | _build_dag_data(dag) | {"seed": seed, "mermaid": to_mermaid(dag)})
    elif mermaid:
        say(to_mermaid(dag).rstrip("\n"))
    else:
        # Drawn edges depend on the seed.
        drawn = f" (drawn with seed {seed})" if _is_sampled(graph) else ""
        agents, rounds = format_amount(len(graph.slots), "agent"), format_amount(graph.rounds, "round")
        size = f"{agents}, {rounds}, {_describe_edges(graph)} edges"
        say(f"{name}: {size}{drawn}\n")
        say(to_text(dag).rstrip("\n"))
    if svg is not None and not as_json:
        say(f"\npicture written to {svg}")


@app.command("validate")
def validate_graphs(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAMES]...", help="Graphs or YAML files; none: all.")
    ] = None,
    *,
    library: options.LibraryFolder = None,
    as_json: options.Json = False,
) -> None:
    """Check that graphs are acyclic and well-formed; exit code 2 when one is not."""
    from collab.config import GraphDefinition
    from collab.errors import UsageError
    from collab.rollout.build import build_first_dag

    definitions = options.open_library(library)
    # All of them are checked: one broken file must not hide another.
    problems: dict[str, str | None] = {}
    for name in names or definitions.list_names("graphs"):
        try:
            build_first_dag(definitions.load("graphs", name, GraphDefinition))
            problems[name] = None
        except UsageError as error:
            problems[name] = str(error)
    # JSON goes to stdout whole; problems go to stderr in both cases.
    if as_json:
        emit({name: {"ok": problem is None, "problem": problem} for name, problem in problems.items()})
    for name, problem in problems.items():
        if problem is not None:
            fail(f"{name}: {problem}")
        elif not as_json:
            say(f"{name}: ok")
    # Exit code 2 as for any wrong definition, so that scripts can use it.
    if any(problems.values()):
        raise typer.Exit(2)


def _is_sampled(graph: GraphDefinition) -> bool:
    from collab.config import EdgeSampler

    return isinstance(graph.edges, EdgeSampler)


def _describe_edges(graph: GraphDefinition) -> str:
    from collab.config import EdgeSampler

    if not isinstance(graph.edges, EdgeSampler):
        return str(len(graph.edges))
    return graph.edges.sampler if graph.edges.p is None else f"{graph.edges.sampler}({graph.edges.p:g})"


def _build_definition_data(graph: GraphDefinition) -> dict[str, Any]:
    return graph.model_dump(mode="json")


def _build_dag_data(dag: Dag) -> dict[str, Any]:
    heard = {slot: dag.list_predecessors(slot) for slot in dag.slots}
    return {"drawn_edges": dag.edges, "layers": dag.layers, "hears": heard}


def _write(path: Path, text: str) -> None:
    from collab.errors import StoreFailure

    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StoreFailure(f"{path}: cannot be written: {error.strerror}") from None
