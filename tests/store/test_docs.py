"""`docs/run-format.md` shows real events."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace

import pytest

from collab.store.events import TYPES, decode, encode
from collab.store.manifest import Manifest
from collab.store.run import RunStore

TEXT = (Path(__file__).parents[2] / "docs" / "run-format.md").read_text(encoding="utf-8")
EXAMPLES = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", TEXT, re.S)]


def test_every_event_is_described_with_an_example() -> None:
    assert sorted(example["type"] for example in EXAMPLES) == sorted(TYPES)
    assert all(f"**`{name}`**" in TEXT for name in TYPES)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example["type"])
def test_an_example_is_what_would_be_written(example: dict[str, object]) -> None:
    """Field by field, in order: a field that is added or renamed must be shown."""
    record = decode(json.dumps(example).encode())
    assert record.event is not None
    assert encode(record).decode() == json.dumps(example, ensure_ascii=False, separators=(",", ":")) + "\n"


def test_every_field_of_the_head_is_described() -> None:
    assert all(f"`{field.name}`" in TEXT for field in fields(Manifest))


def test_the_shown_reader_reads(store: RunStore, make: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    with store.open_writer() as writer:
        make.play(writer, "A/0", 2)
        writer.note("line \u2028 separators are no line ends")
    monkeypatch.chdir(store.path.parent)
    store.path.rename("RUN")
    found: dict[str, list[dict[str, object]]] = {}
    code = re.search(r"```python\n(.*?)```", TEXT, re.S)
    assert code is not None
    exec(code[1], found)
    assert [event["seq"] for event in found["events"]] == list(range(6))
