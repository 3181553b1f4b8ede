"""Show a training, a transfer, a fine-tuning run or runs of several seeds, and list them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collab.cli.output import emit, print_table, say
from collab.utils.progress import note
from collab.utils.text import format_amount

if TYPE_CHECKING:
    from collab.evaluation.report import Kind, Recorded
    from collab.loop.loop import TrainingResult


# ------------------------------------------------------------------------------------------------------ as results


def show_recorded(found: Recorded, *, as_json: bool) -> None:
    """Print the results of anything but a single run.

    Raises:
        UsageError: it holds runs that are not one evaluation.
        RunFormatError: it cannot be read.
    """
    from collab.errors import UsageError

    # Only the user knows which of several runs is meant.
    if found.kind == "runs":
        where = shlex.quote(str(found.path))
        raise UsageError(f"{found.what}; see which with: collab runs list {where}, and show one of them")
    shows = {
        "series": _show_series,
        "training": _show_training,
        "transfer": _show_transfer,
        "finetuning": _show_finetuning,
    }
    shows[found.kind](found, as_json)


def find_episode(found: Recorded, episode: str) -> Path:
    """Return the run of several that holds an episode.

    Raises:
        UnknownName: none does.
        UsageError: several do.
    """
    from collab.errors import UnknownName, UsageError
    from collab.store.run import RunStore

    holding, known = list[Path](), set[str]()
    for run in found.runs:
        with RunStore.open(run).open_reader() as reader:
            # All ids are collected, so that an unknown one is answered with what there is.
            ids = {one.id for one in reader.list_episodes()}
        known |= ids
        if episode in ids:
            holding.append(run)
    if not holding:
        raise UnknownName.of(f"episode in {found.path}", episode, known)
    # Runs of several seeds may hold the same episode.
    if len(holding) > 1:
        command = f"collab runs show {shlex.quote(str(holding[0]))} --episode {shlex.quote(episode)}"
        raise UsageError(
            f"{found.path}: {format_amount(len(holding), 'run')} have an episode {episode}; name one of them: {command}"
        )
    return holding[0]


def _show_series(found: Recorded, as_json: bool) -> None:
    from collab.cli.progress import resume_command
    from collab.cli.text.report import build_evaluation_data, show_evaluation
    from collab.evaluation.report import read_evaluation

    evaluation, states = read_evaluation(found.path), _read_states(found.runs)
    if as_json:
        emit({"run": str(found.path), "status": _combine_states(states), **build_evaluation_data(evaluation)})
        return
    say(f"runs     {found.path} ({_combine_states(states)}, {format_amount(len(found.runs), 'seed')})")
    show_evaluation(evaluation)
    # The next command, ready to paste.
    if _combine_states(states) in ("stopped", "dead"):
        say(f"resume with: {resume_command(found.path)}")
    say(f"look closer: collab runs show {shlex.quote(str(found.runs[0]))}")


def _read_states(runs: Sequence[Path]) -> list[str]:
    """Return the states of several runs; "dead" for one that has no files yet."""
    from collab.store.run import RunStore

    states, planned = list[str](), set[int]()
    for run in runs:
        with RunStore.open(run).open_reader() as reader:
            states.append(reader.status)
            planned |= set(reader.manifest.config.get("series") or ())
    missing = max(0, len(planned) - len(runs))
    return [*states, *["stopped"] * missing]


def _combine_states(states: Collection[str]) -> str:
    """Return the state of all together: that of the least finished."""
    return next((state for state in ("running", "dead", "stopped") if state in states), "finished")


def _show_training(found: Recorded, as_json: bool) -> None:
    from collab.cli.text.training import build_result_data, show_result
    from collab.loop.record import TrainingDir

    result, status = _read_training(found.path)
    if as_json:
        emit({"status": status, **build_result_data(result)})
        return
    say(f"training {found.path} ({status})")
    show_result(result)
    if status == "stopped":
        say(f"resume with: {TrainingDir(found.path).resume}")
    if found.runs:
        say(f"look closer: collab runs show {shlex.quote(str(found.runs[-1]))}")


def _read_training(path: Path) -> tuple[TrainingResult, str]:
    """Read a training as it is now, and whether it runs, is finished or stopped."""
    from collab.config import validate
    from collab.loop.interfaces import read_training
    from collab.loop.loop import TrainingResult
    from collab.loop.record import Summary, TrainingDir, read_records

    folder = TrainingDir(path)
    head, config = read_training(folder)
    summary = validate(Summary, head["summary"], str(folder.file)) if "summary" in head else None
    records = tuple(read_records(folder, config.method.epochs))
    status = _find_status(path, summary is not None)
    return TrainingResult(path=path, records=records, summary=summary, stopped=None if summary else status), status


def _find_status(path: Path, is_over: bool) -> str:
    from collab.store.run_dir import find_owner

    return "running" if find_owner(path) is not None else "finished" if is_over else "stopped"


def _show_transfer(found: Recorded, as_json: bool) -> None:
    from collab.cli.transfer import build_result_data, show_result
    from collab.transfer.result import TransferDir
    from collab.transfer.run import TransferResult

    folder = TransferDir(found.path)
    told, states = folder.read_outcome(), _read_parts(found.path)
    # A transfer without a result may be stopped or running.
    status = _find_status(found.path, told is not None)
    result = TransferResult(path=found.path, told=told, stopped=None if told else status)
    if as_json:
        emit({"status": status, "parts": states, **build_result_data(result)})
        return
    say(f"transfer {found.path} ({status})")
    if told is None:
        # Which parts are there matters only until all are.
        print_table(["part", "state"], states.items())
    show_result(result)
    if status == "stopped":
        say(f"resume with: {folder.resume}")
    if found.runs:
        say(f"look closer: collab runs show {shlex.quote(str(found.runs[0]))}")


def _read_parts(path: Path) -> dict[str, str]:
    """Return each part of a transfer → its progress."""
    from collab.transfer.result import TransferDir, list_parts_after, list_parts_before
    from collab.transfer.run import read_stored_config

    folder = TransferDir(path)
    config = read_stored_config(folder)
    training = {} if config.training is None else {"training": folder.find_training_state()}
    before, after = (
        {part.name: folder.find_state(part) for part in parts(config)}
        for parts in (list_parts_before, list_parts_after)
    )
    return {**before, **training, **after}


def _show_finetuning(found: Recorded, as_json: bool) -> None:
    from collab.trainers.run_dir import FinetuneDir

    folder = FinetuneDir(found.path)
    manifest, metrics = folder.read(), folder.read_metrics()
    status = _find_status(found.path, folder.final.is_dir())
    last = metrics[-1] if metrics else {}
    if as_json:
        emit({"run": str(found.path), "status": status, "stage": manifest.get("stage"), "metrics": metrics})
        return
    say(f"finetune {found.path} ({status}, {manifest.get('stage')})")
    if last:
        say("last     " + ", ".join(f"{name} {value}" for name, value in last.items() if value is not None))
    if status == "stopped":
        say(f"resume with: {folder.resume}")
    elif folder.final.is_dir():
        say(f"play it: --agents with path: {folder.final}")


# ----------------------------------------------------------------------------------------------------- in a list


def list_rows_beneath(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield a row for each training, transfer and fine-tuning run in a folder, however deep.

    Unreadable ones are reported and left out.
    """
    from collab.errors import CollabError
    from collab.evaluation.report import HEADS

    rows: dict[Kind, Callable[[Path], dict[str, Any]]] = {
        "training": _build_training_row,
        "transfer": _build_transfer_row,
        "finetuning": _build_finetuning_row,
    }
    for kind, row in rows.items():
        for path in sorted(folder.rglob(HEADS[kind])):
            # One unreadable training must not hide the others.
            try:
                yield _NOT_OF_EPISODES | row(path.parent)
            except CollabError as error:
                note(f"skipped: {error}")


_NOT_OF_EPISODES: dict[str, Any] = {
    **dict.fromkeys(("algorithm", "succeeded", "broken", "replies", "sampling", "note")),
    "privileged": False,
}
"""Episode columns in the row of anything but a run; a training names its algorithm."""


def _build_training_row(path: Path) -> dict[str, Any]:
    from collab.loop.interfaces import read_training
    from collab.loop.record import TrainingDir

    result, status = _read_training(path)
    head, config = read_training(TrainingDir(path))
    best = None if result.summary is None else result.summary.best
    # Of the best epoch, by which trainings are compared; the last one may be worse.
    success = next((one.success for one in result.records if one.epoch == best), None)
    return {
        "run": str(path),
        "created": head.get("created") or "",
        "command": "train",
        "algorithm": config.algorithm,
        "environment": config.run.environment_name,
        "graph": config.run.graph_name,
        "agents": "+".join(dict.fromkeys(config.run.agent_names.values())),
        "seed": config.run.seed,
        "sampling_seed": config.run.sampling_seed,
        "planned": config.method.epochs,
        "done": max((one.epoch for one in result.records), default=0),
        "unit": "epochs",
        "status": status,
        "note": None if success is None else _format_best(best, success.value),
    }


def _format_best(best: int | None, success: float) -> str:
    name = f"best epoch {best}" if best else "no epoch was better than the untrained team"
    return f"{name}: {success:.1%} held out"


def _build_transfer_row(path: Path) -> dict[str, Any]:
    from collab.transfer.result import TransferDir
    from collab.transfer.run import read_stored_config

    folder = TransferDir(path)
    config, states = read_stored_config(folder), _read_parts(path)
    run = config.transferred[0]
    return {
        "run": str(path),
        "created": folder.read().get("created") or "",
        "command": "transfer",
        "environment": run.environment_name,
        "graph": run.graph_name,
        "agents": config.agents,
        "seed": run.seed,
        "sampling_seed": None,
        "planned": len(states),
        "done": sum(state == "over" for state in states.values()),
        "unit": "parts",
        "status": _find_status(path, folder.result.exists()),
    }


def _build_finetuning_row(path: Path) -> dict[str, Any]:
    from collab.trainers.run_dir import FinetuneDir

    folder = FinetuneDir(path)
    manifest, metrics = folder.read(), folder.read_metrics()
    return {
        "run": str(path),
        "created": manifest.get("created") or "",
        "command": "finetune",
        "environment": None,
        "graph": None,
        "agents": Path(str((manifest.get("base") or {}).get("path", ""))).name or None,
        "seed": manifest.get("seed"),
        "sampling_seed": None,
        "planned": None,
        "done": metrics[-1]["step"] if metrics else 0,
        "unit": "optimizer steps",
        "status": _find_status(path, folder.final.is_dir()),
    }
