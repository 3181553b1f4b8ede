"""Options that several commands share, those of trainings among them, described once.

What all commands have in common: an example in their help, flags that look like flags, and no option as a value.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from collab.utils.progress import note
from collab.utils.text import format_amount, split_names

if TYPE_CHECKING:
    from collab.config import RunConfig
    from collab.library import Library, LibraryRoom, ModelT


PLAY, LIMITS = "What is played", "How it is played"
"""Headings in the help of `rollout` and `eval`."""

_SAMPLE = 20
"""Tasks that are named of those that were drawn; a run's `run.json` has all."""

LibraryFolder = Annotated[
    Path | None,
    typer.Option(
        "--library",
        metavar="DIR",
        envvar="COLLAB_LIBRARY",
        help="Your own folder with agents/, graphs/, envs/, prompts/; looked up before the built-in definitions.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else there.")]


def _compute_in(threads: int | None) -> None:
    """Set the number of torch's threads; torch reads the variable when it is loaded."""
    if threads is not None:
        os.environ["OMP_NUM_THREADS"] = str(threads)
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(threads)


Threads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        metavar="N",
        min=1,
        callback=_compute_in,
        expose_value=False,
        help="Threads that a local model computes in; default: one per core. Where other programs use the cores, 1 is "
        "fastest.",
    ),
]
Environment = Annotated[
    str, typer.Option("--env", metavar="NAME", help="Environment to play; see collab env list.", rich_help_panel=PLAY)
]
Graph = Annotated[
    str,
    typer.Option("--graph", metavar="NAME", help="Communication graph; see collab graph list.", rich_help_panel=PLAY),
]
Agents = Annotated[
    str,
    typer.Option(
        "--agents",
        metavar="NAME|a=X,b=Y|DIR@best",
        help="Agents: one agents file for all slots of the graph, or one per slot (see collab agents list); or an "
        "epoch of a trained team: DIR@best, DIR@last, DIR@epoch3.",
        rich_help_panel=PLAY,
    ),
]
Tasks = Annotated[
    list[str] | None,
    typer.Option(
        "--tasks",
        metavar="NAMES",
        help="Task names, comma-separated or repeated; tag:WORD for all with a tag, all for all. "
        "Default: those of the environment's file. See collab env tasks.",
        rich_help_panel=PLAY,
    ),
]
Split = Annotated[
    str | None,
    typer.Option(
        "--split",
        metavar="NAME",
        help="Play only one split: train, new-seeds, unseen-tasks, unseen-app or hopeless. See collab env splits.",
        rich_help_panel=PLAY,
    ),
]
Instructions = Annotated[
    Path | None,
    typer.Option(
        "--instructions",
        metavar="DIR",
        help="Train on the instructions that collab synth made in this environment into DIR, instead of its own tasks; "
        "held-out evaluations still play its own tasks.",
        rich_help_panel=PLAY,
    ),
]
Backend = Annotated[
    str | None,
    typer.Option(
        "--backend",
        metavar="NAME",
        help="Implementation of the environment; default: the one in its file.",
        rich_help_panel=PLAY,
    ),
]
Serial = Annotated[
    str | None,
    typer.Option(
        "--serial", metavar="SERIAL", help="Serial number of the device, as adb devices lists it.", rich_help_panel=PLAY
    ),
]
AllowApps = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-apps",
        metavar="NAMES",
        help="Apps of the device that agents may use, comma-separated or repeated: names, packages or Name=package.",
        rich_help_panel=PLAY,
    ),
]
AllowEffects = Annotated[
    bool,
    typer.Option(
        "--allow-effects",
        help="Let agents send, call, buy, delete, grant permissions and swipe rows there without asking each time.",
        rich_help_panel=PLAY,
    ),
]
Episodes = Annotated[
    int | None,
    typer.Option(
        "--episodes",
        metavar="N",
        min=1,
        help="Number of episodes in all; default: every task once.",
        rich_help_panel=PLAY,
    ),
]
Seed = Annotated[
    int, typer.Option("--seed", metavar="S", help="Seed of all task instances and random draws.", rich_help_panel=PLAY)
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out", metavar="RUN", help="Run directory to make; default: a new one in runs/.", rich_help_panel=LIMITS
    ),
]
Concurrency = Annotated[
    int,
    typer.Option(
        "--concurrency", metavar="K", min=1, help="Number of episodes to play at once.", rich_help_panel=LIMITS
    ),
]
Where = Literal["local", "ray"]
"""Executors."""
Executor = Annotated[
    Where,
    typer.Option(
        "--executor",
        help="Place where episodes are played: local, in this process; ray, by workers on this machine or on all "
        "machines of its Ray cluster.",
        rich_help_panel=LIMITS,
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        metavar="N",
        min=1,
        help="Number of Ray workers; each plays one episode at a time. Default: as many as --concurrency.",
        rich_help_panel=LIMITS,
    ),
]
EngineConcurrency = Annotated[
    int | None,
    typer.Option(
        "--concurrency",
        metavar="K",
        min=1,
        help="Number of episodes to play at once. Default for a local policy: max_batch of its agents file divided by "
        "the number of agents, from 4 to 48; else 4. Training plays at most one per 16 steps of an epoch.",
        rich_help_panel=LIMITS,
    ),
]
BudgetText = Annotated[
    str | None,
    typer.Option(
        "--budget",
        metavar="usd=…,tokens=…,minutes=…",
        help="Stop cleanly, resumable, when one of these is used up.",
        rich_help_panel=LIMITS,
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="a.b=c",
        help="Override one setting of the run, e.g. graph.rounds=2 or agents.*.history=3. May be repeated.",
        rich_help_panel=LIMITS,
    ),
]

Force = Annotated[
    bool,
    typer.Option(
        "--force",
        help="Compare although runs are not finished, more than 2 % of their episodes broke, or they were sampled at "
        "different temperatures.",
    ),
]


def _trust(yes: bool) -> bool:
    from collab.utils.trust import trust_all

    trust_all(yes)
    return yes


Trust = Annotated[
    bool,
    typer.Option(
        "--trust",
        help="Run the parts that a recorded run names, even if they are neither built in nor installed. Use it only "
        "for runs whose author you trust.",
        callback=_trust,
    ),
]


def read_definitions(
    definitions: Library, room: LibraryRoom, model: type[ModelT]
) -> tuple[dict[str, ModelT], dict[str, str]]:
    """Read all definitions of a room, by name, and the errors of those that cannot be read.

    The errors are also printed on stderr, so that a listing shows all usable ones.
    """
    entries = definitions.read_entries(room, model)
    broken = {one.name: one.error for one in entries if one.error is not None}
    for name, error in broken.items():
        note(f"{room}/{name} is left out: {error}")
    return {one.name: one.definition for one in entries if one.definition is not None}, broken


def build_error_data(broken: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Build the entries of a JSON listing for definitions that cannot be read."""
    return {name: {"error": error} for name, error in broken.items()}


def open_library(folder: Path | None) -> Library:
    """Open the built-in definitions, with the user's own before them."""
    from collab.library import Library

    return Library(own=folder)


def print_doubts(config: RunConfig) -> None:
    """Warn of chat templates that do not fit a model's training."""
    from collab.rollout.build import list_template_doubts

    for line in list_template_doubts(config):
        note(line)


def print_sample(tasks: Sequence[str], episodes: int, what: str, among: str = "") -> None:
    """Print which tasks are played where there are fewer episodes than tasks.

    Args:
        tasks: in the order in which they are played.
        what: the run that plays them, e.g. "seed 30".
        among: restriction of the tasks, e.g. " of at most 20 steps".
    """
    if episodes >= len(tasks):
        return
    listed = ", ".join(tasks[: min(episodes, _SAMPLE)]) + (f" and {episodes - _SAMPLE} more" * (episodes > _SAMPLE))
    note(f"{what} plays {episodes} of {format_amount(len(tasks), 'task')}{among}: {listed}")


def split_folders(option: str, values: list[str] | None) -> list[str]:
    """Split an option into directories, as `split_names`; the name of an existing directory may hold commas."""
    return split_names(option, values, whole=lambda value: Path(value).expanduser().is_dir())


def require_out(out: Path | None) -> Path:
    """Return where a command writes; UsageError where `--out` was left out."""
    from collab.errors import UsageError

    if out is None:
        raise UsageError("--out is missing: name the directory that is to be made, or --plan to make nothing")
    return out


def list_given_options(context: typer.Context, names: Iterable[str]) -> list[str]:
    """List those of the parameters that stand on the command line, as options."""
    sources = {name: context.get_parameter_source(name) for name in names}
    there = [name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"]
    return ["--set" if name == "settings" else f"--{name.replace('_', '-')}" for name in there]


def refuse_beside_resume(
    context: typer.Context, free: Collection[str], what: str, how: str = "--resume continues"
) -> None:
    """Raise UsageError for options that the resumed directory already knows.

    Args:
        free: parameters that may stand beside --resume.
        what: name of the work, e.g. "the training".
        how: the option, and what it does.
    """
    from collab.errors import UsageError

    if beside := list_given_options(context, [name for name in context.params if name not in {*free, "trust"}]):
        raise UsageError(f"{how} {what} as it is; leave out {', '.join(beside)}")


HOW = "How it is trained"
"""A heading in the help."""

AUTO = "auto"
"""Default device of training."""

COLLAB = "collabuiagents"
"""Default algorithm of training."""

Algo = Annotated[
    str,
    typer.Option(
        "--algo",
        metavar="NAME",
        help="Algorithm to train with.",
        rich_help_panel=HOW,
    ),
]
ContinualAlgo = Annotated[
    str | None,
    typer.Option(
        "--algo",
        metavar="NAME",
        help="Algorithm of the further training; default: the one that trained the team.",
        rich_help_panel=HOW,
    ),
]
Preset = Annotated[
    str | None,
    typer.Option(
        "--preset",
        metavar="NAME|FILE",
        help="The method of the algorithm, by name or a YAML file; default: the algorithm's own.",
        rich_help_panel=HOW,
    ),
]
AblationName = Annotated[
    str | None,
    typer.Option(
        "--ablation",
        metavar="NAME",
        help="Change one thing of the method, for a comparison.",
        rich_help_panel=HOW,
    ),
]
TrainingOut = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Directory to make.", rich_help_panel=LIMITS)
]
TrainingSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="a=b",
        help="Override a setting of the method, e.g. epochs=2 or dpo.beta=0.3, or of the run, e.g. graph.rounds=2. "
        "May be repeated.",
        rich_help_panel=HOW,
    ),
]
Device = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="NAME",
        help="Device to train on: auto (a GPU if there is one) or cpu. --resume keeps the run's device.",
        show_default=AUTO,
        rich_help_panel=HOW,
    ),
]
Calibrations = Annotated[
    Path | None,
    typer.Option(
        "--calibrations",
        metavar="DIR",
        help="Folder with calibrations of the algorithm's critic or verifier; default: calibrations/.",
        rich_help_panel=HOW,
    ),
]
AllowUncalibrated = Annotated[
    bool,
    typer.Option(
        "--allow-uncalibrated",
        help="Let the critic or verifier judge without a sufficient calibration.",
        rich_help_panel=HOW,
    ),
]
ReportTo = Annotated[
    list[str] | None,
    typer.Option(
        "--report-to",
        metavar="NAMES",
        help="Also log training metrics to tensorboard or trackio. --resume keeps the run's choice.",
        rich_help_panel=HOW,
    ),
]
Resume = Annotated[
    Path | None,
    typer.Option(
        "--resume",
        metavar="DIR",
        help="Resume the stopped or killed work in this directory.",
        rich_help_panel=LIMITS,
    ),
]


EXAMPLES = {
    "demo": "collab demo --quick",
    "rollout": "collab rollout --env androidworld --graph team --agents rehearsal --episodes 20 --out runs/first",
    "eval": "collab eval --graph team --agents runs/marl@last --split new-seeds --seeds 30,31,32 --out runs/team",
    "synth": "collab synth --env androidworld --teacher oracle --episodes 8 --screens 40 --out data/first",
    "finetune": "collab finetune --stage sft --base checkpoints/qwen2-7b --data data/first --preset paper-qwen2-7b "
    "--out runs/sft",
    "train": "collab train --algo filtered-bc --env androidworld --graph team --agents early --out runs/bc",
    "train-marl": "collab train-marl --env androidworld --graph team --agents early --out runs/marl",
    "transfer": "collab transfer --mode direct --agents runs/marl@last --env mobile-miniwob --tasks tag:oracle "
    "--out runs/moved",
    "export": "collab export runs/marl@last --out checkpoints/mine",
    "verify-resume": "collab verify-resume --quick",
    "checkpoint new": "collab checkpoint new --data data/first --out checkpoints/new",
    "checkpoint add-vision": "collab checkpoint add-vision --base built-in:pocket --out checkpoints/seeing",
    "runs list": "collab runs list runs",
    "runs show": "collab runs show runs/first --episode ContactsAddContact/0 --step 2",
    "runs resume": "collab runs resume runs/first --budget minutes=30",
    "runs export": "collab runs export runs/first --parquet tables/first",
    "runs overlap": "collab runs overlap runs/train",
    "runs table": "collab runs table one=runs/single team=runs/team --against previous",
    "workers status": "collab workers status runs/distrl",
    "view": "collab view runs/first",
    "env list": "collab env list",
    "env tasks": "collab env tasks androidworld --tasks tag:contacts",
    "env splits": "collab env splits androidworld",
    "env check": "collab env check miniwob --quick",
    "graph list": "collab graph list",
    "graph show": "collab graph show layered4 --svg layered4.svg",
    "graph validate": "collab graph validate debate --library my",
    "agents list": "collab agents list",
    "agents dialects": "collab agents dialects qwen2.5-vl",
    "agents check": "collab agents check local --set 'agents.*.options.path=checkpoints/mine'",
    "critic rows": "collab critic rows --critic critic-llm --cases 1000 --out data/judge",
    "critic calibrate": "collab critic calibrate --critic critic-llm --cases 100 --plan",
    "verifier rows": "collab verifier rows --runs runs/first --verifier verifier-model --out data/verifier",
    "verifier agree": "collab verifier agree --runs runs/first --verifier verifier-llm",
    "pairs rebuild": "collab pairs rebuild runs/first --source mix",
    "pairs list": "collab pairs list runs/first --limit 10",
    "pairs show": "collab pairs show runs/first 88f3cde3",
    "pairs rows": "collab pairs rows runs/first --out data/adversary",
    "pairs explain": "collab pairs explain runs/first 88f3cde3 --prompt",
    "phone serve": "collab phone serve",
    "report": "collab report runs/first --figures figures",
    "serve": "collab serve Qwen/Qwen2-7B-Instruct --vllm vllm-env/bin/vllm",
    "doctor": "collab doctor",
}
"""Command → one that can be typed; stands below its help."""


class Command(TyperCommand):
    """A command that takes no option for the value of another one."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return options and arguments, flags without the type that would look like a value."""
        return _clear_flag_metavars(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the command line.

        Raises:
            UsageError: an option stands where a value is expected, as when a script's variable is empty.
        """
        _refuse_options_as_values(self.get_params(ctx), args)
        return super().parse_args(ctx, args)


class AlgorithmCommand(Command):
    """A command whose help lists presets, ablations and own options of every algorithm."""

    keeps_graph: ClassVar[bool] = False
    """Whether it refuses ablations that play another graph."""

    def format_help(self, *place: Any) -> None:
        """Format the help, with what built-in and installed algorithms take."""
        # Only here, as the registry takes a second to import and no other command's help needs it.
        from collab.errors import CollabError
        from collab.library import list_presets
        from collab.loop.interfaces import load_algorithm
        from collab.rollout.build import list_kinds

        names, known = sorted(list_kinds("algorithms")), {}
        for name in names:
            # A package that cannot be imported is an error only for a training by it.
            with contextlib.suppress(CollabError):
                known[name] = load_algorithm(name)
        # `train-marl` has one algorithm: it refuses --algo with any other.
        is_own = self.name == "train-marl"
        taken = {COLLAB: known[COLLAB]} if is_own else known
        lists: dict[str, dict[str, Sequence[str]]] = {
            "preset": {name: list(list_presets(one.presets)) for name, one in taken.items()},
            "ablation": {
                name: [key for key, change in one.ablations.items() if not (self.keeps_graph and change.graph)]
                for name, one in taken.items()
            },
        }
        # An option that only some algorithms have is refused with any other.
        own: dict[str, list[str]] = {}
        for name, algorithm in known.items():
            for key in algorithm.options:
                own.setdefault(key, []).append(name)
        shown = {one: one.help for one in self.params if isinstance(one, TyperOption)}
        for one in shown:
            if one.name == "algo":
                one.help, one.hidden = f"{one.help} One of: {', '.join(names)}.", is_own
            elif one.name in lists:
                parts = [f"{name}: {', '.join(some)}" for name, some in lists[one.name].items() if some]
                one.help = f"{one.help} Of {'; of '.join(parts)}."
            elif one.name in own:
                one.help = f"{one.help} Of {', '.join(own[one.name])} alone."
        # The lists belong to this text: another call in the same process makes its own.
        try:
            super().format_help(*place)
        finally:
            for one, text in shown.items():
                one.help = text


class GraphKeepingCommand(AlgorithmCommand):
    """Such a command for a team that keeps its graph."""

    keeps_graph = True


class Group(TyperGroup):
    """A group of such commands."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return options, flags without a type."""
        return _clear_flag_metavars(super().get_params(ctx))


def prepare(app: typer.Typer, path: Sequence[str] = ()) -> None:
    """Give all commands of an app these classes and their examples."""
    app.info.cls = Group
    for command in app.registered_commands:
        if not issubclass(command.cls or TyperCommand, Command):
            command.cls = Command
        example = EXAMPLES.get(" ".join((*path, command.name or "")))
        command.epilog = None if example is None else f"Example: {example}"
    for group in app.registered_groups:
        group.cls = Group
        if group.typer_instance is not None:
            prepare(group.typer_instance, (*path, group.name or ""))


def _clear_flag_metavars(params: list[Any]) -> list[Any]:
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params


def _refuse_options_as_values(params: Sequence[Any], args: Sequence[str]) -> None:
    options = [param for param in params if param.param_type_name == "option"]
    known = {name for option in options for name in (*option.opts, *option.secondary_opts)}
    taking = {name for option in options if not option.is_flag for name in option.opts}
    for name, value in pairwise(args):
        if name == "--":
            return
        if name in taking and value.partition("=")[0] in known:
            from collab.errors import UsageError

            raise UsageError(f"{name} needs a value, and {value} is an option; give it one, or leave {name} out")
