"""Find and read definitions: the YAML files of `agents/`, `graphs/` and `envs/`, and the templates of `prompts/`.

A name is looked up in this order: an explicit path, the user's own library (`--library DIR`, a folder with the same
four rooms), the built-in one. The built-in one lies beside the package in a checkout and inside it in a wheel;
`find_builtin_root` knows both homes.

Every mistake in a file is reported with its line.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, ClassVar, Generic, Literal, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from yaml.composer import Composer

from collab.errors import ConfigError, UnknownName
from collab.utils.files import read_plain
from collab.utils.redact import redact
from collab.utils.trust import check_trusted, vouch

LibraryRoom = Literal["agents", "graphs", "envs", "prompts"]
ROOMS: tuple[LibraryRoom, ...] = ("agents", "graphs", "envs", "prompts")

ModelT = TypeVar("ModelT", bound=BaseModel)


def find_builtin_root() -> Path:
    """Return the folder of built-in definitions: the checkout's top level, or a wheel's `collab/library`."""
    package = Path(__file__).resolve().parent
    wheel = package / "library"
    return wheel if wheel.is_dir() else package.parent


BUILT_IN = "built-in:"
"""Prefix of a checkpoint that comes with the package, e.g. "built-in:pocket"."""


def resolve_checkpoint(path: str) -> str:
    """Return the place of a checkpoint: a path or hub id as it is, "built-in:NAME" beside `agents/NAME.yaml`.

    Runs record the name, not the place, so that they can be resumed on another machine.

    Raises:
        UnknownName: no checkpoint of that name comes with the package.
    """
    if not path.startswith(BUILT_IN):
        return str(Path(path).expanduser()) if path.startswith("~") else path
    name, home = path.removeprefix(BUILT_IN), find_builtin_root() / "agents"
    known = sorted(file.parent.name for file in home.glob("*/config.json"))
    if name not in known:
        raise UnknownName.of("built-in checkpoint", name, known)
    return str(home / name)


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryEntry(Generic[ModelT]):
    """A definition of a room for a listing: its content, or why it cannot be read."""

    name: str
    path: Path
    definition: ModelT | None
    """None if `error` says why."""
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """Folders in which definitions are looked up."""

    own: Path | None = None
    """The user's folder; None for the built-in definitions alone."""
    named: bool = True
    """Whether the user named it, so that parts in its definitions may run (`collab.utils.trust`)."""

    def __post_init__(self) -> None:
        if self.own is not None and not self.own.is_dir():
            raise ConfigError(
                f"--library {self.own}: no such folder; give one that holds agents/, graphs/ or envs/, or see what is "
                "built in with: collab agents list"
            )

    @classmethod
    def for_recorded_training(cls, own: str | None) -> Library:
        """Return the library that a recorded training names, which may be foreign."""
        return cls(own=None if own is None else Path(own), named=False)

    def list_names(self, room: LibraryRoom) -> tuple[str, ...]:
        """List all names of a room, sorted; the user's own definitions hide built-in ones of the same name."""
        return tuple(sorted(self._find_paths(room)))

    def read_entries(self, room: LibraryRoom, model: type[ModelT]) -> tuple[LibraryEntry[ModelT], ...]:
        """Read all definitions of a room, sorted by name; an unreadable one becomes an entry with its error."""
        found: list[LibraryEntry[ModelT]] = []
        for name, path in sorted(self._find_paths(room).items()):
            try:
                found.append(LibraryEntry(name=name, path=path, definition=self._read(path, model), error=None))
            except ConfigError as error:
                found.append(LibraryEntry(name=name, path=path, definition=None, error=str(error)))
        return tuple(found)

    def find_path(self, room: LibraryRoom, name: str) -> Path:
        """Return the path of the definition `name`.

        Raises:
            UnknownName: no path, own or built-in definition has that name.
        """
        explicit = Path(name)
        if (explicit.suffix in (".yaml", ".yml") or len(explicit.parts) > 1) and explicit.exists():
            return explicit
        known = self._find_paths(room)
        if name in known:
            return known[name]
        raise UnknownName.of(
            _SINGULAR[room], name, self.list_names(room), f"see them with: collab {_COMMAND[room]} list"
        )

    def load(self, room: LibraryRoom, name: str, model: type[ModelT]) -> ModelT:
        """Read and check one definition.

        Raises:
            UnknownName: there is none of that name.
            ConfigError: it is not YAML or does not fit; the message names file, line and field.
        """
        return self._read(self.find_path(room, name), model)

    def _find_paths(self, room: LibraryRoom) -> dict[str, Path]:
        """Return name → path; the user's own definitions hide built-in ones of the same name."""
        homes = (find_builtin_root(),) if self.own is None else (find_builtin_root(), self.own)
        return {_strip_suffix(path): path for home in homes for path in reversed(_list_entries(home / room, room))}

    def _read(self, path: Path, model: type[ModelT]) -> ModelT:
        """Read a definition; in the user's own library, which may have been received, it must be no link."""
        own = self.own if self.own is not None and path.is_relative_to(self.own) else None
        return read(path, model, within=own, named=self.named or own is None)


_SINGULAR = {"agents": "agents file", "graphs": "graph", "envs": "environment", "prompts": "prompt"}
_COMMAND = {"agents": "agents", "graphs": "graph", "envs": "env", "prompts": "agents"}


def _list_entries(folder: Path, room: LibraryRoom) -> list[Path]:
    if not folder.is_dir():
        return []
    if room == "prompts":
        return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    files = sorted(path for path in folder.iterdir() if path.suffix in (".yaml", ".yml"))
    return files if room != "envs" else [path for path in files if not _is_tasks_file(path)]


def _is_tasks_file(path: Path) -> bool:
    """Return whether a file holds only tasks, to which environments beside it refer in their option `tasks`."""
    try:
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        if re.search(r"^backends?\s*:", text, re.MULTILINE):
            return False
        data = parse_yaml(text, str(path)).data
    except (OSError, UnicodeDecodeError, ConfigError):
        return False  # listed as what it may be, with what is wrong with it
    tasks = data.get("tasks") if isinstance(data, dict) and set(data) == {"tasks"} else None
    return isinstance(tasks, list) and all(isinstance(task, dict) for task in tasks)


def _strip_suffix(path: Path) -> str:
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
        """Return the line of the deepest part of `path` that is in the file; None for an empty file."""
        known: tuple[Hashable, ...] = ()
        for part in path:
            if (*known, part) in self.lines:
                known = (*known, part)
        return self.lines.get(known)


LARGEST = 2**21
"""Bytes of a definition or template."""
_DEEPEST = 50
_VALUES = 200_000
"""Values of a document, aliases unfolded."""
_WRITTEN = 80_000
"""Values and keys of a document as written: a second's work."""
_READ_TWICE = 2**14
"""Characters of a broken document that is read again for PyYAML's own message."""
_DIGITS = 64
"""Digits of a number."""
_KEY_DIGITS = 15
"""Digits of a number as a key: longer ones could all have one hash."""
_PREFIXES = 16
"""Lines that declare a prefix of tags; a definition needs none, and libyaml compares each with all before."""
_TAG = "tag:yaml.org,2002:"
_TAGS = {f"{_TAG}{name}" for name in ("str", "int", "float", "bool", "null", "seq", "map", "merge")}


class _BoundedLoader(Composer):
    """YAML of definitions: plain values in bounded depth and number; dates stay texts."""

    yaml_implicit_resolvers: ClassVar[dict[str, list[tuple[str, re.Pattern[str]]]]] = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag in _TAGS]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def __init__(self) -> None:
        Composer.__init__(self)
        self._depth = self._written = 0
        self._sizes: dict[int, int] = {}
        """Node → how many values it stands for; 0 while it is being composed."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Compose a node as PyYAML does; refuse endless and excessive values."""
        mark = self.peek_event().start_mark  # type: ignore[attr-defined]  # of the parser beside it
        alias = self.check_event(yaml.AliasEvent)  # type: ignore[attr-defined]
        self._depth += 1
        self._written += 1
        if self._depth > _DEEPEST:
            raise yaml.MarkedYAMLError(problem=f"more than {_DEEPEST} levels deep", problem_mark=mark)
        if self._written > _WRITTEN:
            raise yaml.MarkedYAMLError(problem=f"more than {_WRITTEN:,} values and keys", problem_mark=mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        if alias:
            if id(node) not in self._sizes:
                raise yaml.MarkedYAMLError(problem="a value that holds itself", problem_mark=mark)
        elif node is not None:
            self._sizes[id(node)] = self._count_values(node)
        return node

    def _count_values(self, node: yaml.Node) -> int:
        """Return how many values a node stands for; raises if it has too many, or no value of a definition."""
        problem, size = None, 1
        if node.tag not in _TAGS:
            # Tags can build objects; plain values cannot.
            problem = f"the tag {node.tag.replace(_TAG, '!!')!r:.80} is not allowed; write plain values"
        elif isinstance(node, yaml.MappingNode):
            if not all(isinstance(key, yaml.ScalarNode) for key, _ in node.value):
                problem = "a key is a plain word, no list and no mapping"
            elif any(key.tag != f"{_TAG}str" and len(key.value) > _KEY_DIGITS for key, _ in node.value):
                problem = f"a key that is a number of more than {_KEY_DIGITS} characters; quote it"
            else:
                # Sizes of children are known, so an alias of an alias is counted without being unfolded.
                size += sum(self._sizes[id(value)] for _, value in node.value)
        elif isinstance(node, yaml.SequenceNode):
            size += sum(self._sizes[id(item)] for item in node.value)
        elif node.tag in (f"{_TAG}int", f"{_TAG}float") and len(node.value) > _DIGITS:
            # Python converts long numbers in quadratic time.
            problem = f"a number of {len(node.value)} characters; at most {_DIGITS} are read"
        if size > _VALUES:
            problem = f"more than {_VALUES:,} values, counting what aliases stand for"
        if problem is not None:
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
        return size


class _Loader(_BoundedLoader, yaml.SafeLoader):
    """Parse in Python, about 50 KB a second, with errors that name the expected token."""

    def __init__(self, text: str) -> None:
        yaml.SafeLoader.__init__(self, text)
        _BoundedLoader.__init__(self)


_FastLoader: type[Any] | None = None
if yaml.__with_libyaml__:

    class _LibyamlLoader(_BoundedLoader, yaml.CSafeLoader):
        """Parse in C, at least ten times as fast."""

        def __init__(self, text: str) -> None:
            yaml.CSafeLoader.__init__(self, text)
            _BoundedLoader.__init__(self)

    _FastLoader = _LibyamlLoader


def load_yaml(text: str) -> tuple[Any, yaml.Node | None]:
    """Load untrusted YAML in bounded time and memory: its data, and its nodes with their lines.

    Raises:
        yaml.YAMLError: it is not YAML, or none that a definition may hold: see `_BoundedLoader`.
    """
    if text.count("%TAG") > _PREFIXES and len(re.findall("^%TAG", text, re.MULTILINE)) > _PREFIXES:
        raise yaml.YAMLError(f"more than {_PREFIXES} %TAG lines; write plain values")
    try:
        return _load(text, _FastLoader or _Loader)
    except yaml.YAMLError:
        if _FastLoader is None or len(text) > _READ_TWICE:
            raise
    return _load(text, _Loader)


def _load(text: str, kind: type[Any]) -> tuple[Any, yaml.Node | None]:
    try:
        loader = kind(text)
        try:
            node = loader.get_single_node()
            return (None if node is None else loader.construct_document(node)), node
        finally:
            loader.dispose()
    except ValueError as error:  # e.g. of a tag that does not fit its value
        raise yaml.YAMLError(str(error)) from None


def parse_yaml(text: str, source: str) -> Document:
    """Parse with `load_yaml`; duplicate keys are refused.

    Raises:
        ConfigError: not YAML, or a duplicate key; names the line.
    """
    try:
        data, node = load_yaml(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(f"{source}:{line}: not YAML: {error.problem}") from None
    except yaml.YAMLError as error:
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
            name = key.value
            # YAML takes the last of two equal keys silently.
            if name in seen:
                raise ConfigError(f"{source}:{key.start_mark.line + 1}: the key {name!r:.80} is given twice")
            seen.add(name)
            lines[(*path, name)] = key.start_mark.line + 1
            _walk(value, (*path, name), lines, source)
    elif isinstance(node, yaml.SequenceNode):
        for position, item in enumerate(node.value):
            _walk(item, (*path, position), lines, source)


def read_text(path: Path, *, within: Path | None = None) -> str:
    """Return the text of a definition or template.

    Args:
        within: folder that may have been received: no link in it is followed. None follows links, as for built-in files
            and those that the user names.

    Raises:
        ConfigError: it is no plain file, too long, not UTF-8, or cannot be read.
    """
    try:
        return read_plain(path, limit=LARGEST, within=within, follow=within is None).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: cannot be read: not UTF-8 (byte {error.start}); save it as UTF-8") from None
    except OSError as error:
        raise ConfigError(f"{error.filename or path}: cannot be read: {error.strerror}") from None


def read(path: Path, model: type[ModelT], *, within: Path | None = None, named: bool = True) -> ModelT:
    """Read one YAML file into its pydantic model; see `Library.load` for the errors, `read_text` for `within`.

    Args:
        named: whether the user named it, or its library; then the parts it names may run.
    """
    document = parse_yaml(read_text(path, within=within), str(path))
    if named:
        vouch(document.data)
    else:
        check_trusted(document.data, str(path))
    return check(document, model)


def list_presets(folder: Path) -> dict[str, Path]:
    """List the YAML files of a folder of presets, by name."""
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def read_preset(name: str, known: Mapping[str, Path], model: type[ModelT]) -> ModelT:
    """Read a preset by name, or from the user's YAML file.

    Raises:
        UnknownName: no preset has that name.
        ConfigError: the file cannot be read or does not fit.
    """
    if name.endswith((".yaml", ".yml")):
        path = Path(name).expanduser()
        if not path.is_file():
            raise ConfigError(f"--preset {name}: no such file; presets by name: {', '.join(known)}")
        return read(path, model)
    if name not in known:
        raise UnknownName.of("preset", name, known, "or give the path of a YAML file")
    return read(known[name], model)


def check(document: Document, model: type[ModelT]) -> ModelT:
    """Check parsed YAML against its model; ConfigError names the first misfit, its line, and the number of others."""
    data = {} if document.data is None else document.data
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise ConfigError(explain(error, document.source, document, model)) from None


def explain(
    error: ValidationError, source: str, document: Document | None = None, model: type[BaseModel] | None = None
) -> str:
    """Format a pydantic error in one line: file, line, field, problem and allowed values; no key is repeated."""
    return redact(_explain(error, source, document, model))


def _explain(error: ValidationError, source: str, document: Document | None, model: type[BaseModel] | None) -> str:
    errors = error.errors()
    worst = _choose_error(errors, model)
    path, known = _place(model, worst["loc"])
    line = document.line(path) if document is not None else None
    where = f"{source}:{line}" if line is not None else source
    name = ".".join(str(part) for part in path)
    # What each branch of a union would take is one problem; what lies deeper in another branch is no other one.
    places = [_place(model, one["loc"])[0] for one in errors]
    others = len({place for place in places if place[: len(path)] != path and path[: len(place)] != place})
    more = f" (and {others} more)" if others else ""
    if worst["type"] in _UNKNOWN_KEY:
        hint = UnknownName.of("key", str(path[-1]), known).args[0] if known else f"unknown key {path[-1]!r}"
        return f"{where}: {name}: {hint}{more}"
    if worst["type"] == "value_error":
        said, given = str(worst["ctx"]["error"]), worst["input"]
        got = "" if isinstance(given, Mapping) else f", got {given!r:.80}"  # of many fields the text tells the bad one
        return f"{where}: {f'{name}: ' if name else ''}{said}{got}{more}"
    got = "" if worst["type"] in ("missing", "missing_argument") else f", got {worst['input']!r:.80}"
    # Of a section, a file can only hold what becomes an instance.
    problems = dict.fromkeys(
        _INSTANCE.sub("", one["msg"]) for one, place in zip(errors, places, strict=True) if place == path
    )
    first, *others_said = problems
    whole = " or ".join([first, *(other.removeprefix(_SHOULD) for other in others_said)])
    return f"{where}: {name or 'file'}: {whole}{got}{more}"


_INSTANCE = re.compile(r" or (an )?instance of \w+$")
_SHOULD = "Input should be "
"""Begins the messages of pydantic."""


def _choose_error(errors: Sequence[ErrorDetails], model: type[BaseModel] | None) -> ErrorDetails:
    """Choose the error to report: an unknown key, since a missing one may be misspelt; else the first.

    Among the branches of a union, the one that got furthest counts.
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
    """Return the keys and positions that lead to an error, and the names of fields beside the last of them.

    pydantic puts the chosen branch of a union between them, which is in no file.
    """
    path: list[Hashable] = []
    inside, current, named = _list_union_members(None), _list_union_members(model), True
    for part in location:
        # A union's member is named in the location, and is no key of the file.
        if len(current) > 1 and not named:
            current, named = [item for item in current if getattr(item, "__name__", "") == part] or current, True
        elif "[" not in str(part):
            path.append(part)
            inside, named = current, False
            current = [
                found
                for item in current
                for found in _list_union_members(_find_annotation(item, part))
                if found is not None
            ]
    known = [name for item in inside if _is_model(item) for name in item.model_fields]
    return tuple(path), known


def _find_annotation(annotation: Any, part: Hashable) -> Any:
    """Return the annotation at a key or position of an annotated value; None if unknown."""
    if _is_model(annotation):
        return annotation.model_fields[part].annotation if part in annotation.model_fields else None
    arguments = get_args(annotation)
    if not arguments or get_origin(annotation) is Literal:
        return None
    return arguments[0] if isinstance(part, int) else arguments[-1]


def _list_union_members(annotation: Any) -> list[Any]:
    """List the members of a union except None, which pydantic does not count; another annotation is its own member."""
    if get_origin(annotation) in (Union, UnionType):
        return [branch for item in get_args(annotation) if item is not NoneType for branch in _list_union_members(item)]
    return [annotation]


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)
