"""The data card: what is in a set of rows, where it comes from, what was left out, and how to make it again."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping

from collab.credit.asking import text_hash
from collab.synth.journal import Head
from collab.synth.plan import SynthConfig
from collab.synth.report import Report
from collab.wording import amount

_NO_APP, _WORDS = "(none named)", "(answer in words)"


def write_card(head: Head, config: SynthConfig, report: Report, checked: Iterable[str]) -> str:
    """The card as Markdown, of a set of which no unit is broken.

    Args:
        checked: names of the evaluation splits that the rows were compared with.
    """
    counts = ", ".join(f"{count} {level}" for level, count in report.by_level.items())
    parts = [
        f"# {head.environment}: {amount(report.rows, 'row')} ({counts})",
        "Agentic fine-tuning data that an environment and a teacher made by themselves (CollabUIAgents, Appendix B).",
        "## Where it comes from",
        _table(("", ""), _origin(head, config, report, checked)),
        "## What is in it",
        *(_counted(title, counts) for title, counts in _contents(report)),
        "## What was left out",
        _table(("level", "cause", "times"), _losses(report)),
        "## Limits",
        _limits(config),
        "## How to make it again",
        f"```console\n$ {command(config)}\n```",
        _again(config),
        "## Licence",
        _licence(head, config),
    ]
    return "\n\n".join(parts) + "\n"


def command(config: SynthConfig) -> str:
    """The command that makes the same set anew."""
    words = ["collab", "synth", "--env", config.environment_name, "--backend", config.environment.backend]
    words += ["--levels", ",".join(config.levels), "--teacher", config.teacher_name, "--prompt", config.prompt_name]
    words += ["--episodes", str(config.episodes), "--screens", str(config.screens), "--seed", str(config.seed)]
    words += [f"--tasks={task}" for task in config.asked_tasks]
    words += [f"--set={setting}" for setting in config.settings]
    return shlex.join([*words, "--out", "DIR"])


def _origin(head: Head, config: SynthConfig, report: Report, checked: Iterable[str]) -> list[tuple[str, str]]:
    split, without = config.split, len(config.unsolved)
    rows = [
        ("environment", f"{head.environment}, version {head.environment_version}"),
        ("split", f"{split.name}, SHA-256 `{split.hash}`" if split else "none"),
        ("checked against", ", ".join(checked) or "nothing is kept"),
        ("tasks", str(len(config.tasks)) + (f"; {without} without a known solution are left out" if without else "")),
        ("run seed", str(config.seed)),
        ("teacher", _teacher(head, config)),
        ("policy's prompt", f"{config.prompt_name}, {_hashes(config.prompt)}"),
        ("screens taught", str(report.screens)),
        ("collab", head.versions.get("collab", "unknown")),
    ]
    if config.teacher is not None:
        spent = report.spent
        cost = f", {spent.cost_usd:.2f} USD" if spent.cost_usd else ""
        cost += f", and what {spent.lost} calls cost that were sent and never answered" if spent.lost else ""
        rows += [
            ("teacher's prompts", _hashes(config.teacher_prompts)),
            ("teacher's sampling", f"temperature {config.sampling.temperature}, at most {config.sampling.max_tokens}"),
            (
                "spent",
                f"{amount(spent.calls, 'call')}, {spent.prompt_tokens + spent.completion_tokens} tokens{cost}",
            ),
        ]
    return rows


def _teacher(head: Head, config: SynthConfig) -> str:
    if config.teacher is None:
        return "oracle: the environment's own state and solutions, no language model"
    policy = head.model["policy"]
    adapter = f", adapter {policy['adapter']}" if policy["adapter"] else ""
    return f"{config.teacher_name}: the model {policy['base']}{adapter}"


def _hashes(texts: Mapping[str, str]) -> str:
    return ", ".join(f"{name} `{text_hash(text)[:12]}`" for name, text in sorted(texts.items()))


def _contents(report: Report) -> list[tuple[str, Mapping[str, int]]]:
    return [
        ("level", report.by_level),
        ("level / kind", report.by_kind),
        ("app of the screen", {app or _NO_APP: count for app, count in report.by_app.items()}),
        ("action type", {action or _WORDS: count for action, count in report.by_action.items()}),
    ]


def _losses(report: Report) -> list[tuple[str, str, str]]:
    refused = [
        (level, cause, str(count)) for level, causes in report.refused.items() for cause, count in causes.items()
    ]
    dropped = [("all, of rows that were made", cause, str(count)) for cause, count in report.dropped.items()]
    return [*refused, *dropped] or [("all", "nothing", "0")]


def _limits(config: SynthConfig) -> str:
    if config.teacher is None:
        return (
            "Answers are exact, and as plain as the rules that write them: they hold no more than the screen and the "
            "environment's state do, in few phrasings. Solutions are the environment's own, one way of several."
        )
    return (
        "A language model wrote the replies. Every action can be carried out on its screen; whether reasons and "
        "answers are true was judged by the same model at most. The test for other languages knows scripts and seven "
        "European languages only."
    )


def _again(config: SynthConfig) -> str:
    if config.teacher is None:
        return "The same version of the environment gives the same rows, whatever is interrupted or done at once."
    return "The same screens are met again; what the model says about them is as repeatable as its server."


def _licence(head: Head, config: SynthConfig) -> str:
    screens = f"Screens, tasks and labels belong to {head.environment}; those of SimPhone are Apache-2.0, as is Collab."
    if config.teacher is None:
        return f"{screens} The replies were made by Collab itself: Apache-2.0."
    model = head.model["policy"]["base"]
    return f"{screens} The replies were written by {model}: its maker's terms say what they may be used for."


def _counted(title: str, counts: Mapping[str, int]) -> str:
    return _table((title, "rows"), [(name, str(count)) for name, count in counts.items()])


def _table(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [columns, tuple("---" for _ in columns), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '∣') for cell in line)} |" for line in lines)
