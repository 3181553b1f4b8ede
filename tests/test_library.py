"""Definitions are found by name, and every mistake in a file is one line with its place."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest
from pydantic import BaseModel

from collab import library
from collab.config import AgentDefinition, GraphDefinition, override
from collab.errors import ConfigError, UnknownName
from collab.library import Library, check, find_builtin_root, parse_yaml, resolve_checkpoint


def write(folder: Path, room: str, name: str, text: str) -> Path:
    path = folder / room / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_root_holds_the_four_rooms() -> None:
    assert all((find_builtin_root() / room).is_dir() for room in ("agents", "graphs", "envs", "prompts"))


def test_order_of_lookup(tmp_path: Path) -> None:
    own = write(tmp_path, "graphs", "mine", "slots: [one]\n")
    library = Library(own=tmp_path)
    assert library.find_path("graphs", "mine") == own
    assert library.find_path("graphs", str(own)) == own
    assert "mine" in library.list_names("graphs")
    with pytest.raises(UnknownName):
        Library().find_path("graphs", "mine")


def test_did_you_mean(tmp_path: Path) -> None:
    write(tmp_path, "graphs", "pyramid", "slots: [one]\n")
    with pytest.raises(UnknownName, match=r"no graph called 'pyramd'; did you mean pyramid\?"):
        Library(own=tmp_path).find_path("graphs", "pyramd")


def test_own_folder_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such folder"):
        Library(own=tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("slots: [a]\nruonds: 2\n", r"bad\.yaml:2: ruonds: .*did you mean rounds\?"),
        ("slots: [a]\nrounds: many\n", r"bad\.yaml:2: rounds: .*valid integer.*got 'many'"),
        ("slots: [a]\nrounds: 2\nrounds: 3\n", r"bad\.yaml:3: the key 'rounds' is given twice"),
        ("slots: [a\nrounds: 2\n", r"bad\.yaml:\d: not YAML"),
        ("slots: [a, a]\n", r"bad\.yaml:1: .*two slots have the same name"),
        ("", r"bad\.yaml: slots: Field required"),
        ("slots: [a, b]\nedges:\n  - [a, b, c]\n", r"bad\.yaml:3: edges"),
        ("slots: [a]\nrewire: epoch\n", r"needs edges with a sampler"),
        ("slots: [a]\nedges:\n  samplr: chain\n", r"bad\.yaml:3: edges\.samplr: .*did you mean sampler\?"),
        ("slots: [a, b]\nedges: {sampler: ordered, p: 2}\n", r"bad\.yaml:2: edges\.p: .* less than .* 1, got 2$"),
        ("slots: [a, b]\nedges: 3\n", r"bad\.yaml:2: edges: .* a valid list or a valid dictionary, got 3$"),
        ("slots: [a]\nedges: [1]\n", r"bad\.yaml:2: edges\.0: .*, got 1$"),
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
    assert resolve_checkpoint("checkpoints/mine") == "checkpoints/mine"
    assert resolve_checkpoint("~/mine") == str(Path.home() / "mine")
    with pytest.raises(UnknownName, match="no built-in checkpoint called 'pokcet'"):
        resolve_checkpoint("built-in:pokcet")


def test_a_built_in_checkpoint_lies_beside_its_agents_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collab.library.find_builtin_root", lambda: tmp_path)
    (tmp_path / "agents" / "small").mkdir(parents=True)
    (tmp_path / "agents" / "small" / "config.json").write_text("{}", encoding="utf-8")
    assert resolve_checkpoint("built-in:small") == str(tmp_path / "agents" / "small")


# ------------------------------------------------------------------------------- files that were meant to do harm

BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{one}: &{one} [{', '.join([f'*{before}'] * 10)}]\n" for before, one in zip("abcdefghi", "bcdefghij", strict=True)
)
MERGES = "k0: &k0 {x: 1}\n" + "".join(f"k{n}: &k{n} {{<<: [{', '.join([f'*k{n - 1}'] * 10)}]}}\n" for n in range(1, 9))
HOSTILE = {
    "alias bomb": (BOMB, r"more than 200,000 values"),
    "merge bomb": (MERGES, r"more than 200,000 values"),
    "holds itself": ("slots: &a [*a]\n", r"bad\.yaml:1: .*holds itself"),
    "holds itself as a mapping": ("slots: &a\n  b: *a\n", r"bad\.yaml:2: .*holds itself"),
    "brackets": ("slots: " + "[" * 100_000 + "\n", r"bad\.yaml:1: .*50 levels"),
    "braces": ("slots: " + "{a: " * 50_000 + "\n", r"bad\.yaml:1: .*50 levels"),
    "nested keys": ("\n".join(" " * n + "k:" for n in range(1500)), r"bad\.yaml:\d+: .*50 levels"),
    "nested dashes": ("- " * 5000, r"bad\.yaml:1: .*50 levels"),
    "a key twice": ("slots: [a]\nslots: [b]\n", r"bad\.yaml:2: the key 'slots' is given twice"),
    "NUL": ("slots: [a\0]\n", r"not YAML"),
    "a list": ("- slots\n", r"dictionary|mapping"),
    "a text": ("hello\n", r"dictionary|mapping"),
    "a number": ("12\n", r"dictionary|mapping"),
    "nothing but aliases": ("*a\n", r"bad\.yaml:1: not YAML: found undefined alias"),
    "a long number": ("slots: [a]\nrounds: " + "1" * 5000, r"bad\.yaml:2: .*a number of 5000 characters"),
    "a long hexadecimal number": (
        "slots: [a]\nrounds: 0x" + "f" * 90_000,
        r"bad\.yaml:2: .*a number of 90002 characters",
    ),
    "a long sexagesimal number": ("slots: [a]\nrounds: 1" + ":1" * 90_000, r"bad\.yaml:2: .*a number of"),
    "a date": ("slots: [a]\nrounds: 2026-11-25\n", r"bad\.yaml:2: rounds: .*integer.*got '2026-11-25'"),
    "an impossible date": ("slots: [a]\nrounds: 2026-13-45\n", r"bad\.yaml:2: rounds: .*integer.*got '2026-13-45'"),
    "a date as a key": ("slots: [a]\n2026-11-25: 1\n", r"bad\.yaml:2: 2026-11-25"),
    "a number as a key": ("slots: [a]\n12: 1\n", r"bad\.yaml"),
    "a list as a key": ("? [a]\n: 1\n", r"bad\.yaml:1: .*a key is a plain word"),
    "a tag": ("slots: !!python/object/apply:os.system [a]\n", r"bad\.yaml:1: .*tag '!!python"),
    "bytes": ("description: !!binary YQ==\nslots: [a]\n", r"bad\.yaml:1: .*tag '!!binary'"),
    "a set": ("slots: !!set {a}\n", r"bad\.yaml:1: .*tag '!!set'"),
    "an equals sign": ("slots: =\n", r"bad\.yaml:1: slots: Input should be a valid list, got '='"),
    "two documents": ("slots: [a]\n---\nslots: [b]\n", r"bad\.yaml:2: not YAML"),
    "keys of one hash": (
        "".join(f"{n * (2**61 - 1)}:\n" for n in range(1, 100)),
        r"bad\.yaml:1: .*a key that is a number of more than 15 characters",
    ),
    "prefixes of tags": (
        "".join(f"%TAG !a{n}! tag:x,2000:\n" for n in range(20_000)) + "---\nslots: [a]\n",
        r"bad\.yaml: .*more than 16 %TAG lines",
    ),
    "no number": ("slots: [a]\nrounds: !!int x\n", r"bad\.yaml.*not YAML"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_file_is_one_line_and_hides_no_other(tmp_path: Path, what: str) -> None:
    text, message = HOSTILE[what]
    write(tmp_path, "graphs", "bad", text)
    write(tmp_path, "graphs", "good", "slots: [one]\n")
    started = time.process_time()
    with pytest.raises(ConfigError, match=message) as caught:
        Library(own=tmp_path).load("graphs", "bad", GraphDefinition)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400 + len(str(tmp_path))
    found = {one.name: one for one in Library(own=tmp_path).read_entries("graphs", GraphDefinition)}
    assert (found["bad"].definition, found["bad"].error) == (None, str(caught.value))
    assert found["good"].definition is not None
    assert time.process_time() - started < 20, "bounded"


@pytest.mark.parametrize(
    ("text", "line"),
    [("- 1\n" * 5000, 1000), ("[" + "1," * 5000 + "1]", 1), ("".join(f"k{n}: 1\n" for n in range(900)), 500)],
)
def test_what_is_written_is_counted_as_it_is_read(text: str, line: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert parse_yaml(text, "here").data
    monkeypatch.setattr(library, "_WRITTEN", 1000)
    with pytest.raises(ConfigError, match=rf"^here:{line}: not YAML: more than 1,000 values and keys$"):
        parse_yaml(text + "[" * 10_000, "here")


def test_a_file_is_read_by_libyaml_and_the_same_without(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "".join(f"- name: task {n}\n  goal: &g{n} All is well\n  on: [1, 2.5, no, ~, *g{n}]\n" for n in range(20))
    with monkeypatch.context() as patch:
        patch.setattr(library, "_Loader", None)
        document = parse_yaml(text, "here")
    monkeypatch.setattr(library, "_FastLoader", None)
    assert parse_yaml(text, "here") == document


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("slots: [a]\n".encode("utf-16"), r"not UTF-8 \(byte 0\)"),
        (b"slots: [\xff]\n", r"not UTF-8 \(byte 8\)"),
        (b"# " + b"x" * 2**22, r"longer than 2,097,152 bytes"),
        (b"", r"slots: Field required"),
    ],
    ids=["utf-16", "latin-1", "huge", "empty"],
)
def test_bytes_that_are_no_definition(tmp_path: Path, content: bytes, message: str) -> None:
    write(tmp_path, "graphs", "bad", "").write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        Library(own=tmp_path).load("graphs", "bad", GraphDefinition)


def test_what_people_write_with_aliases_is_read(tmp_path: Path) -> None:
    text = "slots: [ada, ben]\nrounds: 2\nedges:\n  - &pair [ada, ben]\n"
    assert parse_yaml("a: &x {b: 1}\nc: {<<: *x, d: 2}\n", "here").data == {"a": {"b": 1}, "c": {"b": 1, "d": 2}}
    assert parse_yaml("on: 2026-11-25\n", "here").data == {True: "2026-11-25"}
    write(tmp_path, "graphs", "good", text)
    assert Library(own=tmp_path).load("graphs", "good", GraphDefinition).rounds == 2


def _pipe(path: Path, elsewhere: Path) -> None:
    os.mkfifo(path)


def _link(path: Path, elsewhere: Path) -> None:
    path.symlink_to(elsewhere)


def _socket(path: Path, elsewhere: Path) -> None:
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as made, contextlib.chdir(path.parent):
        made.bind(path.name)


@pytest.mark.parametrize(("make", "said"), [(_pipe, "a pipe"), (_link, "a link"), (_socket, "a socket")])
def test_what_is_no_plain_file_is_refused_by_name_and_hides_no_other(
    tmp_path: Path, make: Callable[[Path, Path], None], said: str
) -> None:
    elsewhere = tmp_path / "elsewhere.yaml"
    elsewhere.write_text("slots: [secret]\n")
    own = tmp_path / "own"
    write(own, "graphs", "good", "slots: [one]\n")
    make(own / "graphs" / "bad.yaml", elsewhere)
    library = Library(own=own)
    with pytest.raises(ConfigError, match=rf"bad\.yaml: cannot be read: is {said}"):
        library.load("graphs", "bad", GraphDefinition)
    found = {one.name: one for one in library.read_entries("graphs", GraphDefinition)}
    assert said in (found["bad"].error or "")
    assert found["good"].definition is not None


def test_a_linked_room_is_refused_by_name(tmp_path: Path) -> None:
    write(tmp_path / "other", "graphs", "bad", "slots: [secret]\n")
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "graphs").symlink_to(tmp_path / "other" / "graphs")
    found = {one.name: one for one in Library(own=tmp_path / "own").read_entries("graphs", GraphDefinition)}
    assert "own/graphs: cannot be read: is a link" in (found["bad"].error or "")
    assert found["chain4"].definition is not None


def test_a_file_that_the_user_names_may_be_a_link(tmp_path: Path) -> None:
    write(tmp_path, "graphs", "good", "slots: [one]\n")
    (tmp_path / "link.yaml").symlink_to(tmp_path / "graphs" / "good.yaml")
    assert Library().load("graphs", str(tmp_path / "link.yaml"), GraphDefinition).slots == ["one"]


@pytest.mark.parametrize("value", ["[" * 50_000, "&a [*a]", "0x" + "f" * 5000, "!!binary x", "2026-13-45x: ["])
def test_a_hostile_setting_is_one_line(value: str) -> None:
    graph = Library().load("graphs", "chain4", GraphDefinition)
    with pytest.raises(ConfigError, match="the value is not YAML") as caught:
        override(graph, [f"rounds={value}"])
    assert "\n" not in str(caught.value)
