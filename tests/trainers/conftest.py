"""Rows, recipes and a checkpoint that tests of fine-tuning share; small, and made anew from seeds."""

from __future__ import annotations

import random
import types
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collab.config import override
from collab.data.example import Example, Level, Provenance
from collab.data.parquet import ExampleWriter
from collab.data.tokenize import read_data
from collab.models.tokenizer import ChatTokenizer
from collab.testing.tiny_checkpoint import make_tiny_checkpoint
from collab.trainers.prepare import FinetuneTask, Prepared, prepare
from collab.trainers.recipe import Recipe, Stage, load_preset
from collab.types import Prompt, Segment

WORDS = "tap the Save button scroll down type hello in field 7 then go back".split()


def _row(number: int, level: Level = "basic", *, words: int = 12, task: str = "TaskOne", seed: int = 1) -> Example:
    """One row; its number decides its text."""
    rng = random.Random(f"{level}{number}")
    origin = Provenance(
        environment="nowhere[test]",
        environment_version="1",
        task=task,
        seed=seed,
        step=0,
        screen="0" * 64,
        apps=(),
        teacher="oracle",
    )
    text = " ".join(rng.choice(WORDS) for _ in range(words))
    return Example(
        level=level,
        kind="one-step",
        prompt=Prompt(system="Rules.", shared=text, segments=(Segment(text="\nYou are ada."),)),
        reply=f"Action: {number}",
        rejected=f"Nothing at all: {number}" if level == "preference" else None,
        provenance=origin,
    )


def _rows(count: int, levels: Sequence[Level] = ("basic", "instruction", "demonstration")) -> list[Example]:
    """So many of each level, of different lengths."""
    return [_row(number, level, words=3 + number * 7 % 40) for level in levels for number in range(count)]


def _recipe(stage: Stage, *settings: str) -> Recipe:
    """The pocket's recipe, small and in float32."""
    small = ["context=200", "batch_rows=8", "precision=float32", "saved=float32", "log_every=1", "save_every=4"]
    if stage == "copy":
        small += ["steps=6", "longest=20", "gap=5"]
    if stage == "sft":
        small += ["prompt_weight=0"]
    return override(load_preset("pocket").get_recipe(stage), [*small, *settings])


def _task(base: Path, stage: Stage, *settings: str, seed: int = 0) -> FinetuneTask:
    """A task on that checkpoint."""
    return FinetuneTask(stage=stage, base=str(base), preset="pocket", recipe=_recipe(stage, *settings), seed=seed)


def _states(base: Path, place: Path, processes: int, *settings: str, held: bool = False, **changes: Any) -> Prepared:
    """A training by so many processes of states with 3, 1 and 2 pairs, whose rows lie in that directory.

    Args:
        held: whether the second row is no pair, but held on to.
        changes: of the task, such as the adapters that it goes on from.
    """
    rows = []
    for state, size in enumerate((3, 1, 2)):
        own = _row(state, "preference", words=20)
        headers = [(Segment(text=f"\nYou are number {number}."),) for number in range(size)]
        rows += [replace(own, prompt=replace(own.prompt, segments=header)) for header in headers]
    if held:
        rows[1] = replace(rows[1], rejected=rows[1].reply)
    if not place.exists():
        _write(place, rows)
    options = ["sharing=prefix", "anchor=0.5", "batch_rows=6", "rows_at_once=4", "epochs=3", "learning_rate=1e-3"]
    task = replace(_task(base, "dpo", *options, *settings), data=(str(place),), **changes)
    return prepare(task, read_data([place], ["preference"]).rows, processes=processes)


def _write(folder: Path, written: Sequence[Example]) -> Path:
    """Rows as the Parquet files of a data directory."""
    for level in dict.fromkeys(one.level for one in written):
        with ExampleWriter(folder / f"{level}.parquet") as out:
            for one in written:
                if one.level == level:
                    out.add(one)
    return folder


@pytest.fixture(scope="session")
def samples() -> types.SimpleNamespace:
    """What makes rows, recipes, tasks and data directories."""
    return types.SimpleNamespace(row=_row, rows=_rows, recipe=_recipe, task=_task, states=_states, write=_write)


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint that trains in milliseconds; not to be changed."""
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)  # tiny matrices: threads only get in each other's way
    return make_tiny_checkpoint(tmp_path_factory.mktemp("learn") / "base", hidden=32, layers=2, context=512)


@pytest.fixture(params=[pytest.param("cpu", id=pytest.HIDDEN_PARAM), pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """Where a test computes: the processor, and (marked) a GPU, which does not round float32 to TF32 meanwhile."""
    if request.param == "cpu":
        yield "cpu"
        return
    import torch

    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    yield request.param
    torch.set_float32_matmul_precision(before)


@pytest.fixture(scope="session")
def chat(base: Path) -> ChatTokenizer:
    """Its tokenizer."""
    return ChatTokenizer(str(base))
