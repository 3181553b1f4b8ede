"""Verdicts of both judges on all instances, as a page of Markdown and as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from collab.envs.simphone.conformance.fidelity import MAY_SAMPLE_NOTHING, VERIFY, FidelityVerdict, JudgedState

_STATES: tuple[JudgedState, ...] = ("untouched", "solved", "spoilt")
_AGREED: tuple[JudgedState, ...] = ("blurred", "disturbed")


def format_summary(verdicts: Sequence[FidelityVerdict]) -> str:
    """Format one line: tasks and instances without a miss, and how often the two judges agree."""
    tasks = group_by_task(verdicts)
    right = sum(not any(verdict.misses for verdict in of_task) for of_task in tasks.values())
    marks = [mark for verdict in verdicts for mark in verdict.marks.values()]
    agreed = sum(mark.agreed for mark in marks)
    instances = sum(not verdict.misses for verdict in verdicts)
    return (
        f"{right} of {len(tasks)} tasks and {instances} of {len(verdicts)} instances are as they should be; "
        f"both judges give the same score in {agreed} of {len(marks)} states"
    )


def group_by_task(verdicts: Sequence[FidelityVerdict]) -> Mapping[str, list[FidelityVerdict]]:
    """Return verdicts by task, in the order in which tasks come first."""
    tasks: dict[str, list[FidelityVerdict]] = {}
    for verdict in verdicts:
        tasks.setdefault(verdict.task, []).append(verdict)
    return tasks


def list_misses(verdicts: Sequence[FidelityVerdict]) -> list[str]:
    """Return what is not as it should be, one line for each instance that has something."""
    return [
        f"{verdict.task}, suite seed {verdict.suite_seed}: {'; '.join(verdict.misses)}"
        for verdict in verdicts
        if verdict.misses
    ]


def list_flawed(verdicts: Sequence[FidelityVerdict]) -> list[str]:
    """Return instances in which AndroidWorld drew no target, so that nothing has to be done."""
    return [
        f"{verdict.task}, suite seed {verdict.suite_seed}"
        for verdict in verdicts
        if verdict.task in MAY_SAMPLE_NOTHING and verdict.solved_from_the_start
    ]


def to_json(verdicts: Sequence[FidelityVerdict]) -> list[dict[str, Any]]:
    """Return verdicts for a JSON file, each with its misses."""
    return [{**dataclasses.asdict(verdict), "misses": verdict.misses} for verdict in verdicts]


def format_table(verdicts: Sequence[FidelityVerdict]) -> str:
    """Return a Markdown table with a row for each task: AndroidWorld's scores by state, suite seed after suite seed."""
    lines = [
        "| Task | untouched | solved | spoilt | by changing | blurred | disturbed | steps | budget |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for task, of_task in group_by_task(verdicts).items():
        scores, agreed = (_format_scores(of_task, states) for states in (_STATES, _AGREED))
        changed = ", ".join(dict.fromkeys(one.changed for one in of_task if one.changed)) or "–"
        steps = " ".join("–" if one.steps is None else str(one.steps) for one in of_task)
        budget = next((str(one.max_steps) for one in of_task if one.max_steps is not None), "–")
        lines.append(f"| {task}{_mark(task)} | {scores} | {changed} | {agreed} | {steps} | {budget} |")
    return "\n".join(lines) + "\n"


def _format_scores(of_task: Sequence[FidelityVerdict], states: tuple[JudgedState, ...]) -> str:
    return " | ".join(" ".join(_score(verdict, state) for verdict in of_task) for state in states)


def _score(verdict: FidelityVerdict, state: JudgedState) -> str:
    mark = verdict.marks.get(state)
    if mark is None:
        return "–"
    return "error" if mark.theirs is None else f"{mark.theirs:g}"


def _mark(task: str) -> str:
    return " ¹" if task in VERIFY else " ²" if task in MAY_SAMPLE_NOTHING else ""


def format_page(
    verdicts: Sequence[FidelityVerdict], *, command: str, commit: str, by_their_executor: Sequence[FidelityVerdict] = ()
) -> str:
    """Return the whole result as a page of Markdown.

    Args:
        command: that made it.
        commit: of AndroidWorld's repository.
        by_their_executor: the same instances solved by AndroidWorld's execution of our actions.
    """
    return _PAGE.format(
        summary=format_summary(verdicts),
        command=command,
        commit=commit,
        seeds=", ".join(dict.fromkeys(str(verdict.suite_seed) for verdict in verdicts)),
        table=format_table(verdicts),
        misses=_format_list(list_misses(verdicts)),
        empty="; ".join(list_flawed(verdicts)) or "none",
        executor=_EXECUTOR.format(
            summary=format_summary(by_their_executor), misses=_format_list(list_misses(by_their_executor))
        )
        if by_their_executor
        else "",
    )


def _format_list(lines: Sequence[str]) -> str:
    return "".join(f"- {line}\n" for line in lines) or "None.\n"


_EXECUTOR = """\

## With AndroidWorld's executor

{summary}.

Here AndroidWorld also executes our oracle's actions: its `execute_action` turns them into adb taps, keys, swipes and
intents. It types no letter outside ASCII, so "Sauté" is planned as "Saute", which its judges forgive. Its swipes begin
in the middle of the screen, so a slider is tapped at its end.

### Misses

{misses}"""


_PAGE = """\
# AndroidWorld's own judges on SimPhone

{summary}.

AndroidWorld's task classes set a SimPhone up through adb, and our oracle solves the task through the phone's screens.
Then AndroidWorld's `is_successful` judges the phone. It pulls databases and files, queries content providers and reads
the elements on the screen, all through adb. Neither side sees the other's score. These states are judged:

- *untouched*: set up, nothing done; must score less than 1;
- *solved*: after our oracle; must score 1;
- *spoilt*: solved, but with one decisive field changed beyond what fuzzy matching forgives; must score less than 1;
- *blurred*: solved, with upper and lower case swapped in one text; both judges must say the same;
- *disturbed*: solved, with another row of the table reworded or another file removed; both judges must say the same.

So SimPhone stores the data that AndroidWorld's judges read, in the places where they read it. The table says nothing
about the success of a policy, trained on SimPhone, on an emulator.

AndroidWorld's commit is `{commit}`; of each task, the first instance in the suites with
seeds {seeds} was taken. The command:

```console
$ {command}
```

Numbers are in the order of the seeds. *steps* counts the actions of our oracle, `status` included; *budget* is
AndroidWorld's limit. A dash: the state does not exist.

{table}
¹ Set up solved: the agent only has to confirm, so *untouched* scores 1.
² AndroidWorld's generator sometimes draws no target; then *untouched* scores 1 and there is nothing to change. Here:
{empty}.

## Misses

{misses}{executor}
## Running it

AndroidWorld is in no package registry and its requirements clash with ours, so it lives in its own environment:

```console
$ git clone https://github.com/google-research/android_world && cd android_world
$ python3.11 -m venv .venv
$ .venv/bin/pip install "setuptools<80" absl-py==2.1.0 android-env==1.2.3 dm_env==1.6 fuzzywuzzy==0.18.0 \\
    grpcio-tools==1.71.0 protobuf==5.29.5 immutabledict==2.0.0 jsonschema==4.17.3 numpy==1.26.3 pandas==2.1.4 \\
    "opencv-python-headless<4.12" pillow pydub requests tenacity termcolor
$ .venv/bin/python setup.py generate_protos
```

No emulator, no ffmpeg and no other app is needed. The phone's clock advances when AndroidWorld waits for a device, so
an instance takes a fifth of a second.

## AndroidWorld's agents on SimPhone

The same interface serves all of AndroidWorld, its suites and agents included. `collab phone serve` prints the port. In
AndroidWorld's environment, with `collab/envs/simphone/conformance/client` on the path:

```python
import simphone_env

env = simphone_env.connect(port, "emulator-5554")  # AndroidWorld's own AsyncAndroidEnv
```
"""
