"""`collab finetune`: fine-tune a checkpoint on training examples.

Rows are read, checked against the evaluation splits, tokenised, and reported.

`collab checkpoint`: checkpoints from nothing, and one that sees out of one that reads.

`collab export`: trained weights as a directory in the form that transformers and vLLM read.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from collab.cli import options
from collab.cli.output import emit, say, to_data
from collab.cli.progress import handle_signals, print_finished, run_interruptible
from collab.utils.progress import note
from collab.utils.text import format_amount, split_names

if TYPE_CHECKING:
    from collab.data.example import Example, Level
    from collab.data.tokenize import Data
    from collab.library import Library
    from collab.trainers.callbacks import FinetuneProgress
    from collab.trainers.prepare import FinetuneTask, Prepared
    from collab.trainers.run import Result
    from collab.trainers.run_dir import FinetuneDir


def prepare_task(task: FinetuneTask, definitions: Library, allow_overlap: bool, device: str) -> Prepared:
    """Read, check and tokenise rows, and print a report about them."""
    from collab.trainers.prepare import list_levels, prepare

    # Leaks are refused before tokenising, which takes long.
    read = _read_task_rows(task)
    rows = read.rows if read is not None else ()
    refuse_leaks(rows, definitions, allow_overlap)
    # What was named is there: only now torch is loaded, which takes seconds.
    from collab.trainers.estimate import doubt_precision

    prepared = prepare(task, rows)
    # Printed before training, so that a wrong folder shows here.
    _print_base(prepared)
    settings = ["precision"] if task.recipe.precision == "bfloat16" else []
    if (doubt := doubt_precision(settings, device)) is not None:
        print_line(f"warning: {doubt}")
    if read is not None:
        counts = ", ".join(f"{level} {count}" for level, count in read.levels.items())
        print_line(
            f"data: {format_amount(len(rows), 'row')} ({counts}), {format_amount(read.repeated, 'repetition')} left out"
        )
        print_missing(task.data, read)
        for absent in (level for level in list_levels(task) if level not in read.levels):
            print_line(f"no rows of level {absent}")
    # Rows that are too long are lost without an error, so they are printed with the number that would keep them.
    for level, count in prepared.encoded.dropped.items():
        print_line(
            f"dropped: {format_amount(count, 'row')} of level {level} longer than context {task.recipe.context}; "
            f"the longest row has {prepared.encoded.longest} tokens"
        )
    return prepared


def _print_base(prepared: Prepared) -> None:
    print_line(f"base: {prepared.base}")
    if prepared.base.chat.doubt is not None:
        print_line(f"warning: {prepared.base.path}: {prepared.base.chat.doubt}")


def rebuild_prepared(folder: FinetuneDir, said: Sequence[str]) -> Prepared:
    """Rebuild the training of a run from its manifest.

    Raises:
        UsageError: options are given beside it, or base, data or order have changed.
    """
    from collab.errors import UsageError
    from collab.trainers.prepare import prepare, read_task
    from collab.trainers.run import check_same

    if said:
        raise UsageError(f"--resume continues the run as it is; leave out {', '.join(said)}")
    manifest = folder.read()
    if folder.final.is_dir():
        raise UsageError(f"{folder.path}: the run is done; its checkpoint is {folder.final}")
    task = read_task(manifest)
    read = _read_task_rows(task)
    prepared = prepare(task, read.rows if read is not None else ())
    check_same(prepared, manifest)
    _print_base(prepared)
    checkpoint = folder.find_checkpoint()
    print_line(f"resuming {folder.path} from {'its beginning' if checkpoint is None else checkpoint.name}")
    return prepared


def _read_task_rows(task: FinetuneTask) -> Data | None:
    """Read the rows of the task's levels; None for a stage that makes its own."""
    from collab.trainers.prepare import list_levels

    return read_rows(task.data, list_levels(task), max_broken=task.max_broken) if task.data else None


def read_rows(folders: Sequence[str], levels: Sequence[Level], *, max_broken: int = 0) -> Data:
    """Read rows of some levels from directories as they were named; see `collab.data.tokenize.read_data`."""
    from collab.data.tokenize import read_data

    return read_data([Path(folder).expanduser() for folder in folders], levels, max_broken=max_broken)


def refuse_leaks(rows: Sequence[Example], definitions: Library, allowed: bool) -> None:
    """Raise OverlapError for rows that are kept for evaluation; print allowed overlaps and rows that were not compared.

    Raises:
        OverlapError: some rows are kept for evaluation, and that is not allowed.
    """
    from collab.synthesis.card import check_rows, list_undefined

    for name in list_undefined(rows, definitions):
        print_line(f"rows of {name}: not checked against evaluation splits: no environment of that name is defined")
    for found in run_interruptible(check_rows, rows, definitions, allow_overlap=allowed):
        print_line(str(found))


def print_missing(folders: Sequence[str], data: Data) -> None:
    """Print what is missing in data: units that broke when it was made, and rows that are left out now."""
    from collab.synthesis.units import describe_missing

    for line in filter(None, (describe_missing(Path(folder).expanduser()) for folder in folders)):
        print_line(line)
    for field, count in data.broken.items():
        print_line(f"left out: {count} broken rows, {field}")


def print_line(text: str) -> None:
    """Print one line on stderr, from the first process alone."""
    from collab.trainers.prepare import get_world

    if get_world()[0] == 0:
        note(text)


WHAT, HOW = "What is trained", "How it is trained"
"""Headings in the help."""

LINE_S = 5.0
"""Between two lines of progress."""

Stage = Annotated[
    str | None, typer.Option("--stage", metavar="STAGE", help="Stage: copy, sft or dpo.", rich_help_panel=WHAT)
]
Base = Annotated[
    Path | None,
    typer.Option("--base", metavar="DIR", help="Checkpoint to start from, with a chat template.", rich_help_panel=WHAT),
]
DataFolders = Annotated[
    list[str] | None,
    typer.Option(
        "--data",
        metavar="DIRS",
        help="Directories of rows, comma-separated or repeated. Give a name with a comma in its own --data.",
        rich_help_panel=WHAT,
    ),
]
PresetName = Annotated[
    str,
    typer.Option(
        "--preset",
        metavar="NAME|FILE",
        help="Recipe: paper-qwen2-7b, qwen2.5-0.5b, pocket, prm-7b, prm-pocket or a YAML file.",
        rich_help_panel=WHAT,
    ),
]
Levels = Annotated[
    list[str] | None,
    typer.Option("--levels", metavar="NAMES", help="Levels to train with sft, in this order.", rich_help_panel=WHAT),
]
Out = Annotated[Path | None, typer.Option("--out", metavar="OUT", help="Run directory to make.", rich_help_panel=WHAT)]
Resume = Annotated[
    Path | None,
    typer.Option("--resume", metavar="OUT", help="Resume a run that was stopped or killed.", rich_help_panel=WHAT),
]
OnlyPlan = Annotated[
    bool,
    typer.Option("--plan", help="Print tokens, steps, memory and time, and train nothing.", rich_help_panel=HOW),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="a=b", help="Override one setting of the recipe. May be repeated.", rich_help_panel=HOW
    ),
]
Seed = Annotated[
    int, typer.Option("--seed", metavar="S", help="Seed of the data order and of new adapters.", rich_help_panel=HOW)
]
MaxMinutes = Annotated[
    float | None,
    typer.Option(
        "--max-minutes",
        metavar="M",
        help="Stop after M minutes, with a checkpoint to resume from.",
        rich_help_panel=HOW,
    ),
]
Device = Annotated[
    str,
    typer.Option(
        "--device", metavar="NAME", help="Device to train on: auto (a GPU if there is one) or cpu.", rich_help_panel=HOW
    ),
]
ReportTo = Annotated[
    list[str] | None,
    typer.Option(
        "--report-to", metavar="NAMES", help="Also log metrics to tensorboard or trackio.", rich_help_panel=HOW
    ),
]
MaxBroken = Annotated[
    int,
    typer.Option("--max-broken", metavar="N", min=0, help="Broken rows to leave out at most.", rich_help_panel=HOW),
]
AllowOverlap = Annotated[
    bool,
    typer.Option("--allow-overlap", help="Train on rows that are kept for evaluation, too.", rich_help_panel=HOW),
]


def finetune(
    context: typer.Context,
    *,
    stage: Stage = None,
    base: Base = None,
    data: DataFolders = None,
    preset: PresetName = "pocket",
    levels: Levels = None,
    out: Out = None,
    resume: Resume = None,
    plan: OnlyPlan = False,
    settings: Settings = None,
    seed: Seed = 0,
    max_minutes: MaxMinutes = None,
    device: Device = "auto",
    report_to: ReportTo = None,
    max_broken: MaxBroken = 0,
    allow_overlap: AllowOverlap = False,
    library: options.LibraryFolder = None,
    threads: options.Threads = None,
    as_json: options.Json = False,
) -> None:
    """Train a checkpoint on rows of data, with SFT or DPO."""
    from collab.loop.record import refuse_part
    from collab.trainers.prepare import check_device, check_installed, check_reports
    from collab.trainers.run import begin
    from collab.trainers.run_dir import FinetuneDir

    # A part of a training is resumed by the training: alone it would break the epoch's hashes.
    if resume is not None:
        refuse_part(resume)
    # Machine and packages first, as they cost nothing to check.
    check_installed()
    reports = split_names("--report-to", report_to)
    check_reports(reports)
    check_device(device)
    _check_minutes(max_minutes)
    folder = FinetuneDir(resume or _check_out(out, plan))
    # A finished run has nothing to resume; its result is printed again.
    if resume is not None and folder.final.is_dir() and not plan:
        _print_finished(folder, as_json)
        return
    if resume is None:
        folders, chosen = options.split_folders("--data", data), split_names("--levels", levels)
        task = _build_task(stage, base, folders, preset, chosen, settings, seed, max_broken)
        prepared = prepare_task(task, options.open_library(library), allow_overlap, device)
    else:
        prepared = rebuild_prepared(folder, _list_given_options(context))
    # A plan has read and tokenised everything, but makes no directory.
    if plan:
        _show_plan(prepared, device, as_json)
        return
    # The head is written only when nothing can be refused any more.
    if resume is None:
        begin(prepared, folder.path)
    _train(prepared, folder, max_minutes, as_json, device=device, report_to=reports)


def resume_finetuning(path: Path, *, max_minutes: float | None = None, as_json: bool) -> None:
    """Resume a fine-tuning run, on a GPU if there is one, and print how it ended.

    Args:
        max_minutes: None for no limit.

    Raises:
        UsageError: base, data or order are no longer what they were.
        typer.Exit: it stopped early.
    """
    from collab.trainers.prepare import check_installed
    from collab.trainers.run_dir import FinetuneDir

    folder = FinetuneDir(path)
    if folder.final.is_dir():
        _print_finished(folder, as_json)
        return
    check_installed()
    _train(rebuild_prepared(folder, []), folder, max_minutes, as_json, device="auto")


# ------------------------------------------------------------------------------------------------- what is asked


def _build_task(
    stage: str | None,
    base: Path | None,
    data: Sequence[str],
    preset: str,
    levels: Sequence[str],
    settings: Sequence[str] | None,
    seed: int,
    max_broken: int,
) -> FinetuneTask:
    """Build the task of the options.

    Raises:
        UsageError: one is missing or does not fit.
    """
    from collab.config import override
    from collab.errors import UsageError
    from collab.trainers.prepare import FinetuneTask
    from collab.trainers.recipe import STAGES, load_preset

    name = _require_option("--stage", stage)
    if name not in STAGES:
        raise UsageError(f"--stage {name}: allowed are {', '.join(STAGES)}")
    recipe = load_preset(preset).get_recipe(name)
    # Levels belong to one stage; silently ignored they would look obeyed.
    if levels and name != "sft":
        raise UsageError(f"--levels means nothing to --stage {name}; it is for sft")
    chosen = [f"levels=[{', '.join(levels)}]"] if levels else []
    recipe = override(recipe, [*chosen, *(settings or [])])
    # Stage "copy" makes its data itself; every other one needs some.
    if (name == "copy") == bool(data):
        advice = "makes its own sequences, leave --data out" if data else "needs --data"
        raise UsageError(f"--stage {name}: {advice}")
    folder = str(_require_option("--base", base))
    return FinetuneTask(
        stage=name, base=folder, preset=preset, recipe=recipe, seed=seed, data=tuple(data), max_broken=max_broken
    )


def _list_given_options(context: typer.Context) -> list[str]:
    """List the task options that are given on the command line."""
    options = {"settings": "--set", "max_broken": "--max-broken", "allow_overlap": "--allow-overlap"}
    options |= {name: f"--{name}" for name in ("stage", "base", "data", "preset", "levels", "out", "seed")}
    sources = {name: context.get_parameter_source(name) for name in options}
    return [options[name] for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"]


def _check_minutes(minutes: float | None) -> None:
    """Raise UsageError for an invalid number of minutes."""
    from collab.errors import UsageError

    if minutes is not None and not minutes >= 0:
        raise UsageError(f"--max-minutes {minutes}: allowed are numbers from 0")


def _check_out(out: Path | None, plan: bool) -> Path:
    """Return where the run goes, checked to be free before any work is done; None for a plan."""
    from collab.trainers.prepare import get_world
    from collab.trainers.run_dir import FinetuneDir

    if plan:
        return Path()
    path: Path = _require_option("--out", out)
    if get_world()[0] == 0:
        FinetuneDir(path).check_free()
    return path


def _require_option(option: str, value: Any) -> Any:
    from collab.errors import UsageError

    if value is None:
        raise UsageError(f"{option} is missing; see collab finetune --help")
    return value


# --------------------------------------------------------------------------------------------------- what happens


def _show_plan(prepared: Prepared, device: str, as_json: bool) -> None:
    from collab.trainers.estimate import format_plan, plan
    from collab.trainers.prepare import get_world

    found = plan(prepared, device)
    if get_world()[0] != 0:
        return
    if as_json:
        emit(to_data(found))
    else:
        say(format_plan(found))


def _train(prepared: Prepared, folder: FinetuneDir, max_minutes: float | None, as_json: bool, **options: Any) -> None:
    """Train until the end or a stop, and print how it ended."""
    with _watch_for_stop(folder, max_minutes) as stopping:
        result = _train_with_progress(prepared, folder, stopping, **options)
    _finish(result, folder, as_json)


def _train_with_progress(
    prepared: Prepared, folder: FinetuneDir, stopping: Callable[[], bool], **options: Any
) -> Result:
    from collab.trainers.run import train

    last, alarmed = -LINE_S, False

    def watch(progress: FinetuneProgress) -> None:
        nonlocal last, alarmed
        # Lines of a log are spaced in time; the last step and a first alarm are always shown.
        now, news = time.monotonic(), progress.alarm is not None and not alarmed
        if now - last >= LINE_S or progress.step == progress.steps or news:
            last, alarmed = now, alarmed or news
            print_line(str(progress))

    return train(prepared, folder, watch=watch, stopping=stopping, note=print_line, **options)


@contextlib.contextmanager
def _watch_for_stop(folder: FinetuneDir, max_minutes: float | None) -> Iterator[Callable[[], bool]]:
    """Return a function that reports whether to stop: by time, Ctrl-C or SIGTERM. A second signal ends the process."""
    until = None if max_minutes is None else time.monotonic() + 60 * max_minutes
    asked = threading.Event()

    def ask(number: signal.Signals) -> None:
        asked.set()
        print_line("stopping with a checkpoint after this step; once more to leave at once")

    with handle_signals(ask, leaving=f"resume with: {folder.resume}"):
        yield lambda: asked.is_set() or (until is not None and time.monotonic() >= until)


def _print_finished(folder: FinetuneDir, as_json: bool) -> None:
    """Print that a run to be resumed is done."""
    from collab.trainers.prepare import get_world
    from collab.trainers.run import Result

    if get_world()[0] == 0:
        more = f"collab finetune --base {shlex.quote(str(folder.final))} --out DIR"
        print_finished(folder.path, f"to train on, begin another: {more}")
    last = (folder.read_metrics() or [{"step": 0, "loss": float("nan")}])[-1]
    _finish(Result(step=last["step"], steps=last["step"], final=folder.final, loss=last["loss"]), folder, as_json)


def _finish(result: Result, folder: FinetuneDir, as_json: bool) -> None:
    """Print how a run ended; one that stopped early ends the command with exit code 1."""
    from collab.trainers.prepare import get_world

    if get_world()[0] != 0:
        return
    if as_json:
        emit(to_data(result))
    elif result.final is not None:
        say(f"trained {format_amount(result.steps, 'step')}, loss {result.loss:.4g}: {result.final}")
    if result.final is None:
        note(f"stopped after step {result.step} of {result.steps}; resume with: {folder.resume}")
        raise typer.Exit(1)


app = typer.Typer(help="Make checkpoints that know nothing yet.", no_args_is_help=True)


@app.callback()
def _top() -> None:
    """Make checkpoints that know nothing yet."""


NewFolder = Annotated[Path, typer.Option("--out", metavar="DIR", help="Directory to make.")]
Sizes = Annotated[list[str] | None, typer.Option("--set", metavar="a=b", help="Override one size, e.g. layers=3.")]
WeightSeed = Annotated[int, typer.Option("--seed", metavar="S", help="Seed of the random weights.")]


@app.command("new")
def make_checkpoint(
    *,
    data: Annotated[
        list[str],
        typer.Option(
            "--data",
            metavar="DIRS",
            help="Directories of rows that the tokenizer learns from, comma-separated or repeated. Give a name with a "
            "comma in its own --data.",
        ),
    ],
    out: NewFolder,
    preset: Annotated[str, typer.Option("--preset", metavar="NAME|FILE", help="pocket or a YAML file.")] = "pocket",
    settings: Sizes = None,
    seed: WeightSeed = 0,
    max_broken: Annotated[
        int, typer.Option("--max-broken", metavar="N", min=0, help="Broken rows to leave out at most.")
    ] = 0,
    allow_overlap: Annotated[
        bool, typer.Option("--allow-overlap", help="Learn from rows that are kept for evaluation, too.")
    ] = False,
    library: options.LibraryFolder = None,
    as_json: options.Json = False,
) -> None:
    """Make an untrained checkpoint: tokenizer, chat template, random weights."""
    from collab.config import override
    from collab.data.example import LEVELS
    from collab.errors import UsageError
    from collab.trainers.pretrain import create_checkpoint
    from collab.trainers.recipe import load_preset

    # A preset without an architecture fine-tunes a published checkpoint; there is nothing to make.
    architecture = load_preset(preset).architecture
    if architecture is None:
        raise UsageError(f"--preset {preset}: has no architecture; its base is a published checkpoint")
    folders = options.split_folders("--data", data)
    read = read_rows(folders, LEVELS, max_broken=max_broken)
    # The tokenizer learns from rows too: instances that are kept for evaluation must not be in them.
    refuse_leaks(read.rows, options.open_library(library), allow_overlap)
    print_missing(folders, read)
    made = create_checkpoint(out, override(architecture, settings or []), read.rows, seed=seed)
    _tell(made, "untrained", as_json)


@app.command("add-vision")
def add_vision(
    *,
    base: Annotated[
        str, typer.Option("--base", metavar="DIR|built-in:NAME", help="A Qwen2 that collab checkpoint new began.")
    ],
    out: NewFolder,
    settings: Sizes = None,
    seed: WeightSeed = 0,
    as_json: options.Json = False,
) -> None:
    """Make a checkpoint that sees: a Qwen2-VL with the base's decoder and an untrained vision tower."""
    from collab.config import override
    from collab.trainers.vision_tower import VisionTower, add_vision_tower

    made = add_vision_tower(base, out, override(VisionTower(), settings or []), seed=seed)
    _tell(made, "its vision tower is untrained", as_json)


def _tell(made: Path, state: str, as_json: bool) -> None:
    from collab.models.checkpoint_card import CARD

    # Read back from the card, so that the printed text is the written one.
    card = json.loads((made / CARD).read_text(encoding="utf-8"))
    if as_json:
        emit({"path": str(made), **card})
    else:
        say(f"{made}: {card['parameters']:,} parameters, {card['tokens']:,} tokens, {state}")


def export(
    *,
    policy: Annotated[
        str,
        typer.Argument(
            metavar="RUN@best|DIR|built-in:NAME",
            help="An epoch of a trained team (RUN@best, RUN@last, RUN@epoch3), a fine-tuning run, a checkpoint or an "
            "adapter.",
        ),
    ],
    out: NewFolder,
    merge: Annotated[
        bool, typer.Option("--merge", help="Add an adapter to the weights of its base; the result is whole.")
    ] = False,
    dtype: Annotated[
        Literal["bfloat16", "float32"] | None,
        typer.Option("--dtype", help="Data type of the written weights; default: unchanged."),
    ] = None,
    base: Annotated[
        str | None,
        typer.Option("--base", metavar="DIR", help="Base of the adapter, if it has moved."),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Write a policy as a directory in the form that transformers and vLLM read, with a card and an agents file.

    A team whose agents have policies of their own becomes one directory per agent.
    """
    from collab.loop.export import export as write
    from collab.loop.export import find, list_directories

    done = write(find(policy, base), out, merge=merge, dtype=dtype)
    if as_json:
        emit(to_data(done))
        return
    for folder, digest in list_directories(done):
        say(f"{folder}: weights {digest}")
    say(f"play it: --agents {shlex.quote(done.agents)}")
