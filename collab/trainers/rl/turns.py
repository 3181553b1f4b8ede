"""Turns: single replies of recorded episodes, as reinforcement learning reads them, and the order in which it does.

    lesson = Lesson(turns=turns, estimates=estimates, weights=weights, order=((0, 3), (1, 0)))
    digest = write_lesson(lesson, folder)
    prepared = prepare_turns(task, read_lesson(folder))

All that is learned is written before it is learned: what each turn was (`turns.parquet`), what was estimated of every
step (`estimates.parquet`, see `collab.trainers.rl.step_estimates`), and which turns each optimizer step takes
(`order.json`). So a training that is resumed and the inspector read the same. Steps that were only estimated have no
turn: an estimate is small, a turn holds its whole prompt.

An optimizer step draws with replacement, so the same turn may be in it twice.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from collab.data.tokenize import Encoded, EncodedExample, Ids, NothingFits
from collab.errors import MissingExtra, RunFormatError
from collab.models.vision import Picture
from collab.store.rewards import ReplyRef
from collab.trainers.base_model import open_adapter, open_base, silence_libraries
from collab.trainers.batching import BatchStep, is_prefix_shared
from collab.trainers.prepare import FinetuneTask, Prepared, check_installed
from collab.trainers.rl.step_estimates import StepEstimate, read_table, write_estimates, write_table
from collab.types import CellRef
from collab.utils.files import read_json, report_write_errors, write_json

GROUP = "turn"
"""Level of the steps, for the record."""
TURNS, ORDER = "turns.parquet", "order.json"
"""Files of a lesson, beside its estimates; the order is written last."""

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Turn:
    """One executed reply with its prompt, in the tokens in which it was read and sampled."""

    run: str
    """Directory of its run; "./…" lies within the training."""
    ref: ReplyRef
    prompt: Ids
    """(P,)."""
    reply: Ids
    """(C,); with the end of the turn exactly if the policy said it, so not where it was cut at its longest length."""
    behaviour: Floats | None
    """Log-probability of each token of `reply` under the distribution sampled from, (C,), in nats; None if unknown."""
    version: int
    """Version of the policy that said it."""
    temperature: float
    """At which it was sampled."""
    state: str
    """SHA-256 of the prompt's shared part: turns of one state have the same."""
    instance: str
    """Task instance, as "task#seed"."""
    invalid: bool = False
    """Whether the reply was no action: the policy said it, and something else was done, or nothing."""
    pictures: tuple[str, ...] = ()
    """SHA-256 of the pictures that it was shown, as its run stores them; their tokens are in `prompt`."""


Look: TypeAlias = Callable[[Turn], Sequence[Picture]]
"""Reads the pictures of a turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """Turns and order that one policy learns in one epoch."""

    turns: Sequence[Turn]
    """Those that some optimizer step takes, each once."""
    weights: Sequence[float]
    """What multiplies the loss of each turn."""
    order: Sequence[Sequence[int]]
    """Per optimizer step, positions of its turns."""
    estimates: Sequence[StepEstimate] = ()
    """Estimates of every step that was considered."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EncodedTurn(EncodedExample):
    """A turn as a sequence of which the reply is scored."""

    weight: float
    """What multiplies its loss."""
    temperature: float
    """What logits are divided by before its probability is taken."""
    behaviour: Floats | None = None
    """Recorded log-probability of each scored token; None if unknown."""
    look: Callable[[], Sequence[Picture]] | None = None
    """Reads its pictures when a pass needs them: all of them would not fit into memory. None without any."""

    @property
    def sides(self) -> tuple[Ids]:
        """Sequences that a pass computes."""
        return (self.ids,)

    @property
    def state(self) -> str:
        """SHA-256 of the prompt: turns of one state have the same."""
        return hashlib.sha256(self.ids[: self.scored_from].astype("<i4").tobytes()).hexdigest()


def encode_turn(turn: Turn, weight: float, look: Look | None = None) -> EncodedTurn:
    """Return a turn as one sequence; `look` reads its pictures, if it has any."""
    return EncodedTurn(
        group=GROUP,
        ids=np.concatenate((turn.prompt, turn.reply)).astype(np.int32),
        scored_from=len(turn.prompt),
        weight=weight,
        # A greedy reply has no probability under what it was sampled from; it is learned as the plain policy's.
        temperature=turn.temperature or 1.0,
        behaviour=turn.behaviour,
        look=None if look is None or not turn.pictures else functools.partial(look, turn),
    )


def prepare_turns(task: FinetuneTask, lesson: Lesson, look: Look | None = None) -> Prepared:
    """Prepare the training on a lesson; nothing is written and no weight is loaded.

    Args:
        look: reads pictures; None for a policy that sees none.

    Turns longer than the recipe's context are left out of their steps and counted, and so is a step without any other.

    Raises:
        NothingFits: no turn is short enough.
        ConfigError: base and recipe do not fit together.
        MissingExtra: a package is not installed.
    """
    check_installed()
    with silence_libraries():
        base = open_base(task.base, task.recipe)
    found = [encode_turn(turn, weight, look) for turn, weight in zip(lesson.turns, lesson.weights, strict=True)]
    longest = max(map(len, found), default=0)
    fitting = {row for row, one in enumerate(found) if len(one) <= task.recipe.context}
    if not fitting:
        raise NothingFits(len(found), task.recipe.context, longest)
    # Positions stay those of the lesson: a turn that does not fit is in no step, and nothing is renumbered.
    steps = [[row for row in step if row in fitting] for step in lesson.order]
    at_once = task.recipe.rows_at_once or task.recipe.batch_rows
    shared = is_prefix_shared(task.recipe)
    ordered = [BatchStep(group=GROUP, parts=_split(rows, found, at_once, shared)) for rows in steps if rows]
    dropped = len(found) - len(fitting)
    return Prepared(
        task=task,
        base=base,
        encoded=Encoded(items=found, dropped={GROUP: dropped} if dropped else {}, longest=longest),
        steps=ordered[: task.recipe.max_steps],
        rows=hash_lesson(lesson),
        world=1,
        adapter=open_adapter(task.adapter, task.recipe, task.base),
    )


def _split(
    rows: Sequence[int], items: Sequence[EncodedTurn], at_once: int, shared: bool
) -> tuple[tuple[int, ...], ...]:
    """Return the forward passes of a step: turns of one temperature, sorted by length so that little is padded.

    Args:
        shared: turns of one prompt are neighbours, and a pass has all of them if there are at most `at_once`.
    """
    passes: list[tuple[int, ...]] = []
    for temperature in sorted({items[row].temperature for row in rows}):
        alike = [row for row in rows if items[row].temperature == temperature]
        if shared:
            passes += _gather_states(alike, items, at_once)
        else:
            alike.sort(key=lambda row: len(items[row]))
            passes += [tuple(alike[start : start + at_once]) for start in range(0, len(alike), at_once)]
    return tuple(passes)


def _gather_states(rows: Sequence[int], items: Sequence[EncodedTurn], at_once: int) -> list[tuple[int, ...]]:
    """Return forward passes that keep turns of one prompt together."""
    states: dict[str, list[int]] = {}
    for row in sorted(rows, key=lambda row: (items[row].scored_from, row)):
        states.setdefault(items[row].state, []).append(row)
    return fill_passes(states.values(), at_once)


def fill_passes(states: Iterable[Sequence[int]], at_once: int) -> list[tuple[int, ...]]:
    """Return forward passes of at most `at_once` rows each, in order, that cut no state unless it has more rows."""
    passes: list[tuple[int, ...]] = []
    for state in states:
        for start in range(0, len(state), at_once):
            part = tuple(state[start : start + at_once])
            if passes and len(passes[-1]) + len(part) <= at_once:
                passes[-1] += part
            else:
                passes.append(part)
    return passes


# ------------------------------------------------------------------------------------------------------ files


def hash_lesson(lesson: Lesson) -> str:
    """Return the SHA-256 over all that is learned: tokens, weights, temperatures and order."""
    digest = hashlib.sha256()
    for turn, weight in zip(lesson.turns, lesson.weights, strict=True):
        for ids in (turn.prompt, turn.reply):
            digest.update(len(ids).to_bytes(8, "little") + ids.astype("<i4").tobytes())
        digest.update(np.array([weight, turn.temperature], "<f8").tobytes() + "".join(turn.pictures).encode())
    digest.update(json.dumps([list(step) for step in lesson.order]).encode())
    return digest.hexdigest()


def write_lesson(lesson: Lesson, folder: Path, next_move: str) -> str:
    """Write a lesson and return its digest.

    Args:
        folder: is created; files of an earlier attempt are replaced.
        next_move: command that resumes after a full disk.

    Raises:
        MissingExtra: pyarrow is not installed.
        StoreFailure: the disk is full or permissions are missing.
    """
    MissingExtra.unless("pyarrow", extra="parquet", purpose="what is learned by reinforcement")
    digest = hash_lesson(lesson)
    with report_write_errors(folder, next_move):
        folder.mkdir(parents=True, exist_ok=True)
        write_table(folder / TURNS, [_flatten(turn) for turn in lesson.turns], _TURN)
        write_estimates(lesson.estimates, folder)
        weights, order = list(lesson.weights), [list(step) for step in lesson.order]
        write_json(folder / ORDER, {"digest": digest, "weights": weights, "steps": order})
    return digest


def read_lesson(folder: Path) -> Lesson:
    """Read a lesson, without estimates; RunFormatError if it is not what was written."""
    remedy = "remove its folder, and it is made again"
    order = read_json(folder / ORDER, remedy)
    try:
        turns = [_read_turn(row) for row in read_table(folder / TURNS, _TURN)]
        lesson = Lesson(turns=turns, weights=order["weights"], order=[tuple(step) for step in order["steps"]])
        digest = hash_lesson(lesson)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise RunFormatError(f"{folder}: the lesson cannot be read: {error}; {remedy}") from None
    if digest != order["digest"]:
        raise RunFormatError(f"{folder}: the lesson has changed since it was written; {remedy}")
    return lesson


def _flatten(turn: Turn) -> dict[str, Any]:
    """Return a turn as a row of the table."""
    return {
        "run": turn.run,
        "trajectory": turn.ref.trajectory,
        "step": turn.ref.step,
        "agent": turn.ref.cell.agent,
        "round": turn.ref.cell.round,
        "prompt": turn.prompt,
        "reply": turn.reply,
        "behaviour": turn.behaviour,
        "version": turn.version,
        "temperature": turn.temperature,
        "state": turn.state,
        "instance": turn.instance,
        "invalid": turn.invalid,
        "pictures": turn.pictures,
    }


def _read_turn(row: Mapping[str, Any]) -> Turn:
    behaviour = row["behaviour"]
    return Turn(
        run=row["run"],
        ref=ReplyRef(trajectory=row["trajectory"], step=row["step"], cell=CellRef(row["agent"], row["round"])),
        prompt=np.array(row["prompt"], np.int32),
        reply=np.array(row["reply"], np.int32),
        behaviour=None if behaviour is None else np.array(behaviour, np.float32),
        version=row["version"],
        temperature=row["temperature"],
        state=row["state"],
        instance=row["instance"],
        invalid=row["invalid"],
        pictures=tuple(row["pictures"]),
    )


_TURN = {
    **{"run": "string", "trajectory": "string", "step": "int32", "agent": "string", "round": "int32"},
    **{"prompt": "list<int32>", "reply": "list<int32>", "behaviour": "list<float>", "version": "int32"},
    **{"temperature": "double", "state": "string", "instance": "string", "invalid": "bool"},
    "pictures": "list<string>",
}
"""Column → type of `turns.parquet`."""
