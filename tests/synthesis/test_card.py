"""The data card tells what the files hold, number by number."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from collab.data.example import POLICY_LEVELS, Example
from collab.data.parquet import read_rows
from collab.synthesis.card import build_command
from collab.synthesis.config import SynthConfig
from collab.synthesis.journal import Done, read_records
from collab.synthesis.run import start
from collab.utils.files import hash_text

Wanted = Callable[..., SynthConfig]


def made(config: SynthConfig, path: Path) -> tuple[str, list[Example]]:
    """The card and the rows of a synthesis."""
    asyncio.run(start(config, path))
    files = [path / f"{level}.parquet" for level in POLICY_LEVELS]
    return (path / "card.md").read_text(), [row for file in files if file.is_file() for row in read_rows(file)]


def table(card: str, title: str) -> dict[str, int]:
    """A table of the card with counts, by its first column's title."""
    body = card.partition(f"| {title} | rows |\n| --- | --- |\n")[2].partition("\n\n")[0]
    return {name: int(count) for name, count in re.findall(r"^\| (.+) \| (\d+) \|$", body, re.MULTILINE)}


@pytest.fixture(params=["oracle", pytest.param("tutor", marks=pytest.mark.slow)])
def config(request: pytest.FixtureRequest, build_config: Wanted) -> SynthConfig:
    return build_config(teacher=request.param, tasks=["PressButton", "OpenDoors"], settings=["history=3"])


def test_every_number_is_that_of_the_files(config: SynthConfig, tmp_path: Path):
    card, rows = made(config, tmp_path / "out")
    apps = Counter(row.provenance.apps[-1].casefold() for row in rows)
    assert table(card, "level") == Counter(row.level for row in rows)
    assert table(card, "level / kind") == Counter(f"{row.level} / {row.kind}" for row in rows)
    assert table(card, "app of the screen") == apps
    assert table(card, "action type") == Counter(row.action_type or "(answer in words)" for row in rows)
    assert f": {len(rows)} rows (" in card.splitlines()[0]


@pytest.mark.slow
def test_what_was_left_out_is_told_by_level_and_cause(build_config: Wanted, tmp_path: Path, voice: Any):
    says = voice.says
    voice.says = lambda body: "{}" if '{"instructions": [' in str(body["messages"][-1]["content"]) else says(body)
    card, _ = made(build_config(teacher="tutor"), tmp_path / "out")
    refused: Counter[tuple[str, str]] = Counter()
    for done in read_records(tmp_path / "out"):
        if not isinstance(done, Done):
            continue
        for level, causes in done.refused.items():
            refused.update({(level, cause): count for cause, count in causes.items()})
    assert refused
    for (level, cause), count in refused.items():
        assert f"| {level} | {cause} | {count} |" in card


def test_it_names_teacher_prompts_seed_versions_split_and_licence(config: SynthConfig, tmp_path: Path):
    card, _ = made(config, tmp_path / "out")
    assert f"| split | train, SHA-256 `{config.split.hash}` |" in card
    assert "| environment | fake[corridor], version 1 |" in card
    assert "| run seed | 0 |" in card
    assert "| checked against | new-seeds, unseen-tasks, unseen-app, hopeless |" in card
    assert f"question `{hash_text(config.prompt['question'])[:12]}`" in card
    assert "## Licence" in card
    if config.teacher is None:
        assert "no language model" in card
    else:
        assert "| teacher | tutor: the model fake |" in card
        assert f"clumsy `{hash_text(config.teacher_prompts['clumsy'])[:12]}`" in card
        assert "temperature 0.1" in card


def test_its_command_makes_the_same_set(config: SynthConfig, tmp_path: Path):
    card, _ = made(config, tmp_path / "out")
    line = build_command(config)
    assert f"$ {line}\n" in card
    assert "--tasks=PressButton --tasks=OpenDoors --set=history=3 --out DIR" in line
    assert "--levels basic,instruction,demonstration,preference" in line
