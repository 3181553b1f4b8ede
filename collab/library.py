"""Find and read definitions: the YAML files of `agents/`, `graphs/` and `envs/`, and the templates of `prompts/`.

A name is looked up in this order: an explicit path, the user's own library (`--library DIR`, a folder with the same
four rooms), the built-in one. The built-in one lies beside the package in a checkout and inside it in a wheel; `root`
knows both homes.

Every mistake in a file is reported with its line.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Generic, Literal, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from collab.errors import ConfigError, UnknownName

Room = Literal["agents", "graphs", "envs", "prompts"]
ROOMS: tuple[Room, ...] = ("agents", "graphs", "envs", "prompts")

ModelT = TypeVar("ModelT", bound=BaseModel)


def root() -> Path:
    """Folder of the built-in definitions: the checkout's top level, or `collab/library` of an installed wheel."""
    package = Path(__file__).resolve().parent
    wheel = package / "library"
    return wheel if wheel.is_dir() else package.parent


BUILT_IN = "built-in:"
"""Begins the name of a checkpoint that comes with the package, e.g. "built-in:pocket"."""


def checkpoint(path: str) -> str:
    """Where a checkpoint lies: a path or a model hub id as it is, "built-in:NAME" beside `agents/NAME.yaml`.

    The name and not the place is what runs record, so that they can be resumed on another machine.

    Raises:
        UnknownName: no checkpoint of that name comes with the package.
    """
    if not path.startswith(BUILT_IN):
        return str(Path(path).expanduser()) if path.startswith("~") else path
    name, home = path.removeprefix(BUILT_IN), root() / "agents"
    known = sorted(file.parent.name for file in home.glob("*/config.json"))
    if name not in known:
        raise UnknownName.of("built-in checkpoint", name, known)
    return str(home / name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry(Generic[ModelT]):
    """A definition of a room as a listing shows it: what it holds, or why it cannot be read."""

    name: str
    path: Path
    definition: ModelT | None
    """None exactly when `error` says why."""
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """Where definitions are looked up."""

    own: Path | None = None
    """The user's folder; None when only the built-in definitions count."""

    def __post_init__(self) -> None:
        if self.own is not None and not self.own.is_dir():
            raise ConfigError(f"--library {self.own}: no such folder; give one that holds agents/, graphs/ or envs/")

    def names(self, room: Room) -> tuple[str, ...]:
        """All names of a room, sorted; the user's own first win over built-in ones of the same name."""
        return tuple(sorted({_stem(path) for home in self._homes() for path in _entries(home / room, room)}))

    def entries(self, room: Room, model: type[ModelT]) -> tuple[Entry[ModelT], ...]:
        """All definitions of a room, sorted by name; one that cannot be read hides no other."""
        found: list[Entry[ModelT]] = []
        for name in self.names(room):
            path = self.path(room, name)
            try:
                found.append(Entry(name=name, path=path, definition=read(path, model), error=None))
            except ConfigError as error:
                found.append(Entry(name=name, path=path, definition=None, error=str(error)))
        return tuple(found)

    def path(self, room: Room, name: str) -> Path:
        """Where the definition `name` lies.

        Raises:
            UnknownName: no path, own or built-in definition answers to it.
        """
        explicit = Path(name)
        if (explicit.suffix in (".yaml", ".yml") or len(explicit.parts) > 1) and explicit.exists():
            return explicit
        for home in self._homes():
            for path in _entries(home / room, room):
                if _stem(path) == name:
                    return path
        raise UnknownName.of(_SINGULAR[room], name, self.names(room), f"see them with: collab {_COMMAND[room]} list")

    def load(self, room: Room, name: str, model: type[ModelT]) -> ModelT:
        """Read and check one definition.

        Raises:
            UnknownName: there is none of that name.
            ConfigError: it is not YAML or does not fit; the message names file, line and field.
        """
        return read(self.path(room, name), model)

    def _homes(self) -> tuple[Path, ...]:
        return (root(),) if self.own is None else (self.own, root())


_SINGULAR = {"agents": "agents file", "graphs": "graph", "envs": "environment", "prompts": "prompt"}
_COMMAND = {"agents": "agents", "graphs": "graph", "envs": "env", "prompts": "agents"}


def _entries(folder: Path, room: Room) -> list[Path]:
    if not folder.is_dir():
        return []
    if room == "prompts":
        return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    files = sorted(path for path in folder.iterdir() if path.suffix in (".yaml", ".yml"))
    return files if room != "envs" else [path for path in files if not _is_tasks_file(path)]


def _is_tasks_file(path: Path) -> bool:
    """Whether a file holds nothing but tasks, which environments beside it name in their option `tasks`."""
    try:
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        if re.search(r"^backends?\s*:", text, re.MULTILINE):
            return False
        data = parse_yaml(text, str(path)).data
    except (OSError, UnicodeDecodeError, ConfigError):
        return False  # listed as what it may be, with what is wrong with it
    tasks = data.get("tasks") if isinstance(data, dict) and set(data) == {"tasks"} else None
    return isinstance(tasks, list) and all(isinstance(task, dict) for task in tasks)


def _stem(path: Path) -> str:
    return path.stem if path.suffix in (".yaml", ".yml") else path.name


# ---------------------------------------------------------------------------------------------------- YAML


@dataclass(frozen=True, slots=True)
class Document:
    """A YAML file with the line of every key."""

    source: str
    """Path, for messages."""
    data: Any
    lines: Mapping[tuple[Hashable, ...], int] = field(default_factory=dict)
    """Line (from 1) of each path of keys and list positions."""

    def line(self, path: Sequence[Hashable]) -> int | None:
        """Line of the deepest part of `path` that is in the file; None for an empty file."""
        known: tuple[Hashable, ...] = ()
        for part in path:
            if (*known, part) in self.lines:
                known = (*known, part)
        return self.lines.get(known)


def parse_yaml(text: str, source: str) -> Document:
    """Parse with `yaml.SafeLoader`; duplicate keys are refused.

    Raises:
        ConfigError: not YAML, or a key stands twice; names the line.
    """
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        data = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(f"{source}:{line}: not YAML: {error.problem}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{source}: not YAML: {' '.join(str(error).split())}") from None
    lines: dict[tuple[Hashable, ...], int] = {}
    if node is not None:
        _walk(node, (), lines, source)
    return Document(source, data, lines)


def _walk(node: yaml.Node, path: tuple[Hashable, ...], lines: dict[tuple[Hashable, ...], int], source: str) -> None:
    lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else str(key.value)
            if name in seen:
                raise ConfigError(f"{source}:{key.start_mark.line + 1}: the key {name!r} stands twice")
            seen.add(name)
            lines[(*path, name)] = key.start_mark.line + 1
            _walk(value, (*path, name), lines, source)
    elif isinstance(node, yaml.SequenceNode):
        for position, item in enumerate(node.value):
            _walk(item, (*path, position), lines, source)


def read(path: Path, model: type[ModelT]) -> ModelT:
    """Read one YAML file into its pydantic model; see `Library.load` for the errors."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    document = parse_yaml(text, str(path))
    return check(document, model)


def presets_in(folder: Path) -> dict[str, Path]:
    """The YAML files of a folder of presets, by name."""
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def read_preset(name: str, known: Mapping[str, Path], model: type[ModelT]) -> ModelT:
    """A preset by name, or from a YAML file of one's own.

    Raises:
        UnknownName: no preset has that name.
        ConfigError: the file cannot be read or does not fit.
    """
    if name.endswith((".yaml", ".yml")):
        path = Path(name).expanduser()
        if not path.is_file():
            raise ConfigError(f"--preset {name}: no such file")
        return read(path, model)
    if name not in known:
        raise UnknownName.of("preset", name, known, "or give the path of a YAML file")
    return read(known[name], model)


def check(document: Document, model: type[ModelT]) -> ModelT:
    """Check parsed YAML against its model; ConfigError names the first misfit, its line, and how many more."""
    data = {} if document.data is None else document.data
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise ConfigError(explain(error, document.source, document, model)) from None


def explain(
    error: ValidationError, source: str, document: Document | None = None, model: type[BaseModel] | None = None
) -> str:
    """One line for a pydantic error: where (file, line, field), what was wrong, what is allowed."""
    errors = error.errors()
    worst = _worst(errors, model)
    path, known = _place(model, worst["loc"])
    line = document.line(path) if document is not None else None
    where = f"{source}:{line}" if line is not None else source
    name = ".".join(str(part) for part in path)
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    if worst["type"] in _UNKNOWN_KEY:
        hint = UnknownName.of("key", str(path[-1]), known).args[0] if known else f"unknown key {path[-1]!r}"
        return f"{where}: {name}: {hint}{more}"
    if worst["type"] == "value_error":
        said, given = str(worst["ctx"]["error"]), worst["input"]
        got = "" if isinstance(given, Mapping) else f", got {given!r:.80}"  # of many fields the text tells the bad one
        return f"{where}: {f'{name}: ' if name else ''}{said}{got}{more}"
    got = "" if worst["type"] in ("missing", "missing_argument") else f", got {worst['input']!r:.80}"
    return f"{where}: {name or 'file'}: {worst['msg']}{got}{more}"


def _worst(errors: Sequence[ErrorDetails], model: type[BaseModel] | None) -> ErrorDetails:
    """The error to tell: an unknown key, as a missing one may be misspelt; else the first.

    Of the branches of a union it is the one that got furthest.
    """
    unknown = [one for one in errors if one["type"] in _UNKNOWN_KEY]
    if unknown:
        return unknown[0]
    first, _ = _place(model, errors[0]["loc"])
    paths = [_place(model, one["loc"])[0] for one in errors]
    lengths = [len(path) if path[: len(first)] == first else 0 for path in paths]
    return errors[lengths.index(max(lengths))]


_UNKNOWN_KEY = ("extra_forbidden", "unexpected_keyword_argument")


def _place(model: type[BaseModel] | None, location: Sequence[Hashable]) -> tuple[tuple[Hashable, ...], list[str]]:
    """The keys and positions that lead to an error, and the field names that the last of them is among.

    pydantic puts the chosen branch of a union between them; no file holds it.
    """
    path: list[Hashable] = []
    inside, current, named = _branches(None), _branches(model), True
    for part in location:
        if len(current) > 1 and not named:
            current, named = [item for item in current if getattr(item, "__name__", "") == part] or current, True
        elif "[" not in str(part):
            path.append(part)
            inside, named = current, False
            current = [found for item in current for found in _branches(_within(item, part)) if found is not None]
    known = [name for item in inside if _is_model(item) for name in item.model_fields]
    return tuple(path), known


def _within(annotation: Any, part: Hashable) -> Any:
    """What stands at a key or position of a value that is annotated so; None when it cannot be told."""
    if _is_model(annotation):
        return annotation.model_fields[part].annotation if part in annotation.model_fields else None
    arguments = get_args(annotation)
    if not arguments or get_origin(annotation) is Literal:
        return None
    return arguments[0] if isinstance(part, int) else arguments[-1]


def _branches(annotation: Any) -> list[Any]:
    """The members of a union but None, which pydantic does not count; of anything else itself."""
    if get_origin(annotation) in (Union, UnionType):
        return [branch for item in get_args(annotation) if item is not NoneType for branch in _branches(item)]
    return [annotation]


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)
