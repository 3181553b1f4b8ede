"""A text judge's questions about recorded episodes with the environment's outcomes, to train a verifier of one's own.

    found = await write_rows(RowsRequest(runs=[run], verifier=choice), Path("data/judge"))
    # collab finetune --stage sft --base DIR --data data/judge

The questions are those that the verifier would ask about these episodes, by its own prompt and settings. A share of the
tasks is held out whole: measure the trained verifier on their episodes (`collab verifier agree --held-out data/judge`),
since agreement on tasks that it was trained on says little about others.

    DIR/demonstration.parquet     the rows
    DIR/rows.json                 runs, verifier, tasks of the rows, and tasks that were held out
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

from collab.data.example import Example, Provenance
from collab.data.parquet import ExampleWriter
from collab.errors import RunFormatError, UsageError
from collab.rewards.verifiers.base import VerifierInput
from collab.rewards.verifiers.judge import TOO_LONG, VERDICT, JudgeQuestion
from collab.rewards.verifiers.registry import VerifierChoice, open_verifier
from collab.rewards.verifiers.rules import find_asked
from collab.rewards.verifiers.verdicts import iterate_cases
from collab.seeds import derive, generator
from collab.store.run import RunStore
from collab.utils.files import read_json, report_write_errors, write_json

FILE, HEAD = "demonstration.parquet", "rows.json"
HELD_OUT = 0.2
"""Share of the tasks that is held out unless another is asked for."""


@runtime_checkable
class AsksInWords(Protocol):
    """A verifier that shows its questions."""

    def build_question(self, case: VerifierInput) -> JudgeQuestion | str:
        """Build the question about an episode, or return why it cannot be asked."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsRequest:
    """Source of rows."""

    runs: Sequence[Path]
    verifier: VerifierChoice
    held_out: float = HELD_OUT
    """Share of the tasks, at least one unless it is 0."""
    seed: int = 0
    """Decides which tasks are held out."""


@dataclass(slots=True, kw_only=True)
class WrittenRows:
    """`rows.json`."""

    verifier: str
    runs: Sequence[str]
    seed: int
    tasks: Sequence[str] = ()
    """Tasks of the rows."""
    held_out: Sequence[str] = ()
    """Tasks without a row."""
    rows: int = 0
    successes: int = 0
    """Rows whose episode succeeded."""
    unfit: int = 0
    """Episodes that do not fit into the verifier's context."""
    environments: list[str] = field(default_factory=list)
    """Labels."""


async def write_rows(request: RowsRequest, out: Path) -> WrittenRows:
    """Write a row for every episode with an outcome of the tasks that are not held out; no model is asked.

    Args:
        out: directory that is made.

    Raises:
        UsageError: it is there; the verifier cannot be built, asks nothing in words or looks at pictures; the runs have
            no episode to judge; or all tasks would be held out.
        RunFormatError: a run cannot be read.
        StoreFailure: the files cannot be written.
    """
    if out.exists():
        raise UsageError(f"--out {out}: is there already; name another directory, or remove it")
    tasks = _list_tasks(request.runs)
    held_out = draw_held_out(tasks, request.held_out, request.seed)
    found = WrittenRows(
        verifier=request.verifier.name,
        runs=[str(run) for run in request.runs],
        seed=request.seed,
        tasks=[task for task in tasks if task not in held_out],
        held_out=held_out,
    )
    async with open_verifier(request.verifier, asks=False) as resources:
        verifier = find_asked(resources.build_verifier())
        if not isinstance(verifier, AsksInWords) or "screenshot" in verifier.sees:
            what = "looks at pictures, which rows do not hold" if "screenshot" in verifier.sees else "asks no model"
            raise UsageError(
                f"--verifier {request.verifier.name}: {what}; name one that reads text, such as verifier-model"
            )
        # Built before the file is begun, so that a mistake in a run leaves nothing behind.
        rows = [row for run in request.runs for row in _build_rows(run, verifier, found)]
    with ExampleWriter(out / FILE) as file:
        for row in rows:
            file.add(row)
    with report_write_errors(out):
        write_json(out / HEAD, asdict(found))
    return found


def draw_held_out(tasks: Sequence[str], share: float, seed: int) -> list[str]:
    """Draw the tasks that are held out, sorted; UsageError if none would be left."""
    count = math.ceil(share * len(tasks))
    if count >= len(tasks):
        raise UsageError(
            f"--hold-out {share:g}: leaves none of {len(tasks)} tasks for rows; hold out fewer, or name more runs"
        )
    return sorted(generator(derive(seed, "held-out tasks")).sample(sorted(tasks), count))


def read_held_out(directory: Path) -> list[str]:
    """Return the tasks that rows in a directory held out; RunFormatError if they cannot be read."""
    path = directory / HEAD
    head = read_json(path, f"{path}: no such file; name a directory that collab verifier rows has made")
    tasks = head.get("held_out") if isinstance(head, dict) else None
    if not isinstance(tasks, list) or not tasks or not all(isinstance(one, str) for one in tasks):
        raise RunFormatError(f"{path}: names no held-out tasks")
    return tasks


def _list_tasks(runs: Sequence[Path]) -> list[str]:
    tasks: set[str] = set()
    for run in runs:
        with RunStore.open(run).open_reader() as reader:
            tasks |= {one.task for one in reader.list_episodes() if one.state == "finished"}
    if not tasks:
        raise UsageError("--runs: no episode in them has an outcome to learn from")
    return sorted(tasks)


def _build_rows(run: Path, verifier: AsksInWords, found: WrittenRows) -> Iterator[Example]:
    """Yield the rows of a run, and count them."""
    with RunStore.open(run).open_reader() as reader:
        found.environments = sorted({*found.environments, reader.manifest.environment})
        for case in iterate_cases(reader.iterate_trajectories(), reader):
            if case.episode.task.name in found.held_out or case.outcome is None:
                continue
            question = verifier.build_question(case)
            if isinstance(question, str):
                found.unfit += question == TOO_LONG
                continue
            found.rows += 1
            found.successes += case.outcome.success
            yield _build_row(case, question, case.outcome.success)


def _build_row(case: VerifierInput, question: JudgeQuestion, success: bool) -> Example:
    origin = Provenance.of_step(case.episode, step=case.step, screen=case.screens[-1].digest, teacher="rules")
    reply = VERDICT.format(success)
    return Example(level="demonstration", kind="verdict", prompt=question.prompt, reply=reply, provenance=origin)
