"""What all commands have in common: an example in their help, flags that look like flags, and no option as a value."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

EXAMPLES = {
    "demo": "collab demo --quick",
    "rollout": "collab rollout --env androidworld --graph team --agents rehearsal --episodes 20 --out runs/first",
    "eval": "collab eval --graph team --agents runs/marl@best --split new-seeds --seeds 30,31,32 --out runs/team",
    "synth": "collab synth --env androidworld --teacher oracle --episodes 8 --screens 40 --out data/first",
    "finetune": "collab finetune --stage sft --base checkpoints/qwen2-7b --data data/first --preset paper-qwen2-7b "
    "--out runs/sft",
    "train": "collab train --algo filtered-bc --env androidworld --graph team --agents pocket --out runs/bc",
    "train-marl": "collab train-marl --env androidworld --graph team --agents pocket --set epochs=2 --out runs/marl",
    "transfer": "collab transfer --mode direct --agents runs/marl@best --env mobile-miniwob --tasks tag:oracle "
    "--out runs/moved",
    "export": "collab export runs/marl@best --out checkpoints/mine",
    "verify-resume": "collab verify-resume --quick",
    "checkpoint new": "collab checkpoint new --data data/first --out checkpoints/new",
    "runs list": "collab runs list runs",
    "runs show": "collab runs show runs/first --episode ContactsAddContact/0 --step 2",
    "runs resume": "collab runs resume runs/first --budget minutes=30",
    "runs export": "collab runs export runs/first --parquet tables/first",
    "runs overlap": "collab runs overlap runs/train",
    "runs table": "collab runs table one=runs/single team=runs/team --against previous",
    "view": "collab view runs/first",
    "env list": "collab env list",
    "env tasks": "collab env tasks androidworld --tasks tag:contacts",
    "env splits": "collab env splits androidworld",
    "env check": "collab env check miniwob --quick",
    "graph list": "collab graph list",
    "graph show": "collab graph show layered4 --svg layered4.svg",
    "graph validate": "collab graph validate debate --library my",
    "agents list": "collab agents list",
    "agents check": "collab agents check local --set 'agents.*.options.path=checkpoints/mine'",
    "critic calibrate": "collab critic calibrate --critic critic-llm --cases 100 --plan",
    "pairs rebuild": "collab pairs rebuild runs/first --source mix",
    "pairs list": "collab pairs list runs/first --limit 10",
    "pairs show": "collab pairs show runs/first 88f3cde3",
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
        return _plain_flags(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the command line.

        Raises:
            UsageError: an option stands where a value is expected, as when a script's variable is empty.
        """
        _refuse_options_as_values(self.get_params(ctx), args)
        return super().parse_args(ctx, args)


class Group(TyperGroup):
    """A group of such commands."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return options, flags without a type."""
        return _plain_flags(super().get_params(ctx))


def prepare(app: typer.Typer, path: Sequence[str] = ()) -> None:
    """Give all commands of an app these classes and their examples."""
    app.info.cls = Group
    for command in app.registered_commands:
        command.cls = Command
        example = EXAMPLES.get(" ".join((*path, command.name or "")))
        command.epilog = None if example is None else f"Example: {example}"
    for group in app.registered_groups:
        group.cls = Group
        if group.typer_instance is not None:
            prepare(group.typer_instance, (*path, group.name or ""))


def _plain_flags(params: list[Any]) -> list[Any]:
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
