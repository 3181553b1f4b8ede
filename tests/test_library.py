"""Definitions are found by name, and every mistake in a file is one line with its place."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from pydantic import BaseModel

from collab.config import AgentDefinition, GraphDefinition
from collab.errors import ConfigError, UnknownName
from collab.library import Library, check, checkpoint, parse_yaml, root


def write(folder: Path, room: str, name: str, text: str) -> Path:
    path = folder / room / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_root_holds_the_four_rooms() -> None:
    assert all((root() / room).is_dir() for room in ("agents", "graphs", "envs", "prompts"))


def test_order_of_lookup(tmp_path: Path) -> None:
    own = write(tmp_path, "graphs", "mine", "slots: [one]\n")
    library = Library(own=tmp_path)
    assert library.path("graphs", "mine") == own
    assert library.path("graphs", str(own)) == own
    assert "mine" in library.names("graphs")
    with pytest.raises(UnknownName):
        Library().path("graphs", "mine")


def test_did_you_mean(tmp_path: Path) -> None:
    write(tmp_path, "graphs", "pyramid", "slots: [one]\n")
    with pytest.raises(UnknownName, match=r"no graph called 'pyramd'; did you mean pyramid\?"):
        Library(own=tmp_path).path("graphs", "pyramd")


def test_own_folder_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such folder"):
        Library(own=tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("slots: [a]\nruonds: 2\n", r"bad\.yaml:2: ruonds: .*did you mean rounds\?"),
        ("slots: [a]\nrounds: many\n", r"bad\.yaml:2: rounds: .*valid integer.*got 'many'"),
        ("slots: [a]\nrounds: 2\nrounds: 3\n", r"bad\.yaml:3: the key 'rounds' stands twice"),
        ("slots: [a\nrounds: 2\n", r"bad\.yaml:\d: not YAML"),
        ("slots: [a, a]\n", r"bad\.yaml:1: .*two slots have the same name"),
        ("", r"bad\.yaml: slots: Field required"),
        ("slots: [a, b]\nedges:\n  - [a, b, c]\n", r"bad\.yaml:3: edges"),
        ("slots: [a]\nrewire: epoch\n", r"needs edges with a sampler"),
        ("slots: [a]\nedges:\n  samplr: chain\n", r"bad\.yaml:3: edges\.samplr: .*did you mean sampler\?"),
        ("slots: [a, b]\nedges: {sampler: ordered, p: 2}\n", r"bad\.yaml:2: edges\.p: .* less than .* 1, got 2 "),
        ("slots: [a, b]\nedges: 3\n", r"bad\.yaml:2: edges: Input should be a valid list, got 3"),
        ("slotz: [a]\n", r"bad\.yaml:1: slotz: .*did you mean slots\? \(and 1 more\)"),
    ],
)
def test_mistakes_name_their_line(tmp_path: Path, text: str, message: str) -> None:
    write(tmp_path, "graphs", "bad", text)
    with pytest.raises(ConfigError, match=message) as caught:
        Library(own=tmp_path).load("graphs", "bad", GraphDefinition)
    said = str(caught.value)
    assert not [part for part in ("\n", "Value error", "got {", ": file: ") if part in said], said


class Item(BaseModel, extra="forbid"):
    name: str = ""
    parts: tuple[Item, ...] | None = None
    named: dict[str, Item] = {}


class Shelf(BaseModel, extra="forbid"):
    items: list[Item] | Literal["none"] = "none"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("items:\n- name: a\n- nmae: b\n", "shelf:3: items.1.nmae: no key called 'nmae'; did you mean name or named?"),
        (
            "items: [{named: {x: {prats: }}}]\n",
            "shelf:1: items.0.named.x.prats: no key called 'prats'; did you mean parts?",
        ),
        (
            "items: [{named: {Item: {q: }}}]\n",
            "shelf:1: items.0.named.Item.q: no key called 'q'; known: name, named, parts",
        ),
        ("items: [{parts: [{q: 1}]}]\n", "shelf:1: items.0.parts.0.q: no key called 'q'; known: name, named, parts"),
        ("items: [{name: 3}]\n", "shelf:1: items.0.name: Input should be a valid string, got 3"),
    ],
)
def test_a_wrong_key_in_a_list_or_a_mapping_is_guessed_too(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check(parse_yaml(text, "shelf"), Shelf)
    assert str(caught.value).startswith(message)


def test_unreadable_file(tmp_path: Path) -> None:
    path = write(tmp_path, "agents", "binary", "")
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="cannot be read"):
        Library(own=tmp_path).load("agents", "binary", AgentDefinition)


def test_a_checkpoint_is_a_path_unless_it_is_built_in() -> None:
    assert checkpoint("checkpoints/mine") == "checkpoints/mine"
    assert checkpoint("~/mine") == str(Path.home() / "mine")
    with pytest.raises(UnknownName, match="no built-in checkpoint called 'pokcet'"):
        checkpoint("built-in:pokcet")


def test_a_built_in_checkpoint_lies_beside_its_agents_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collab.library.root", lambda: tmp_path)
    (tmp_path / "agents" / "small").mkdir(parents=True)
    (tmp_path / "agents" / "small" / "config.json").write_text("{}", encoding="utf-8")
    assert checkpoint("built-in:small") == str(tmp_path / "agents" / "small")
