"""How a transfer is told: in one line while it goes on, its plan, and what came of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from collab.cli.output import say, table
from collab.cli.training_text import below as below_training
from collab.cli.training_text import describe as describe_training
from collab.cli.training_text import news as news_of_training
from collab.cli.watch import describe as describe_collection

if TYPE_CHECKING:
    from collab.transfer.parts import Progress
    from collab.transfer.plan import Line, Plan
    from collab.transfer.run import TransferResult


def describe(progress: Progress) -> str:
    """One line: which part, and how far that is."""
    from collab.collector import Progress as Collecting
    from collab.loop.state import Progress as Training

    parts = [f"part {progress.number}/{progress.parts}", progress.part]
    if isinstance(progress.inner, Collecting):
        parts.append(describe_collection(progress.inner))
    elif isinstance(progress.inner, Training):
        parts.append(describe_training(progress.inner))
    return " | ".join(part for part in parts if part)


def below(progress: Progress) -> list[str]:
    """What a screen shows beside that line while the training goes on: its epochs."""
    return below_training(progress.training) if progress.inner is progress.training is not None else []


def news(progress: Progress) -> list[str]:
    """What a log is told of epochs of the training that are over."""
    return [] if progress.training is None else news_of_training(progress.training)


def show_plan(plan: Plan) -> None:
    """Print all parts, and what the training will take."""
    from collab.loop.estimate import format_plan

    columns = ["part", "state", "environment", "split", "team", "seeds", "episodes", "calls per step"]
    table(columns, [_cells(line) for line in plan.parts])
    if plan.training is not None:
        say(f"\nthe training\n{format_plan(plan.training)}")


def _cells(line: Line) -> tuple[object, ...]:
    seeds = ",".join(map(str, line.seeds))
    return line.part, line.state, line.environment, line.split, line.team, seeds, line.episodes, line.calls_per_step


def result_data(result: TransferResult) -> dict[str, Any]:
    """For scripts; the result is None where it stopped early."""
    outcome = None if result.told is None else result.told.outcome.model_dump(mode="json")
    return {"out": str(result.path), "stopped": result.stopped, "result": outcome}


def show_result(result: TransferResult) -> None:
    """Print the tables and differences, once there are any."""
    if result.told is not None:
        say(result.told.markdown)
        say(f"transfer  {result.path}")
