"""Rows as Parquet: one file per level, for this project and for any other tool.

    with RowWriter(folder / "basic.parquet") as out:
        out.add(row)
    for row in read_rows(folder / "basic.parquet"): ...

A file appears under its name only when it is whole. Reading checks every field; a broken row is named by file, number
and field, and refused, or skipped and counted where the caller asks for that.

`segments` are the pieces of a prompt in which it is tokenised; pictures and sampled token ids are not part of a row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, cast

from collab.errors import ConfigError, MissingExtra, UsageError
from collab.store.files import writing
from collab.synth.rows import LEVELS, Level, Provenance, Row
from collab.types import Prompt, Segment

COLUMNS: Mapping[str, str] = {
    "id": "string",
    "level": "string",
    "kind": "string",
    "system": "string",
    "shared": "string",
    "segments": "list<string>",
    "layout": "string",
    "reply": "string",
    "rejected": "string",
    "action_type": "string",
    "environment": "string",
    "environment_version": "string",
    "task": "string",
    "seed": "int64",
    "step": "int64",
    "screen": "string",
    "apps": "list<string>",
    "teacher": "string",
    "teacher_prompt": "string",
}
"""Name → type."""
OPTIONAL = frozenset({"rejected", "action_type", "teacher_prompt"})
"""Columns that may be null."""
ROW_GROUP = 4096
"""Rows that are written, and read, at once."""


class RowWriter:
    """A Parquet file that appears when it is whole; left by an error, nothing stays behind.

    Args:
        path: replaced if it is there.

    Raises:
        MissingExtra: pyarrow is not installed.
        StoreFailure: the folder cannot be written.
    """

    def __init__(self, path: Path) -> None:
        MissingExtra.unless("pyarrow", extra="parquet", purpose="data for fine-tuning")
        self.path = path
        self.count = 0
        """Rows added."""
        self._temporary = path.with_name(f".{path.name}")
        self._rows: list[dict[str, Any]] = []
        self._writer: Any = None

    def __enter__(self) -> RowWriter:
        """Begin the file."""
        import pyarrow.parquet

        with writing(self.path.parent, "synthesise again"):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = pyarrow.parquet.ParquetWriter(self._temporary, _schema())
        return self

    def add(self, row: Row) -> None:
        """Add a row.

        Raises:
            ValueError: its prompt holds pictures or sampled token ids, which a table does not keep.
            StoreFailure: the disk is full.
        """
        if row.prompt.images or any(segment.tokens is not None for segment in row.prompt.segments):
            raise ValueError(f"row {row.id}: pictures and token ids are not part of a row")
        self._rows.append(_fields(row))
        self.count += 1
        if len(self._rows) >= ROW_GROUP:
            self._flush()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Put the file in its place, or leave none."""
        try:
            if error is None:
                self._flush()
                with writing(self.path.parent, "synthesise again"):
                    self._writer.close()
                    self._temporary.replace(self.path)
        finally:
            self._writer.close()
            self._temporary.unlink(missing_ok=True)

    def _flush(self) -> None:
        import pyarrow

        if self._rows:
            with writing(self.path.parent, "synthesise again"):
                self._writer.write_table(pyarrow.Table.from_pylist(self._rows, schema=_schema()))
            self._rows = []


def read_rows(path: Path, *, skipped: Counter[str] | None = None) -> Iterator[Row]:
    """Read the rows of a file, one row group at a time.

    Args:
        skipped: broken rows are left out and counted here by field; None refuses the first one.

    Raises:
        MissingExtra: pyarrow is not installed.
        UsageError: the file is missing or no Parquet.
        ConfigError: a column is missing or of another type, or a row is broken.
    """
    MissingExtra.unless("pyarrow", extra="parquet", purpose="data for fine-tuning")
    import pyarrow
    import pyarrow.parquet

    if not path.is_file():
        raise UsageError(f"{path}: there is no such file of rows; make one with: collab synth")
    try:
        file = pyarrow.parquet.ParquetFile(path)
    except (OSError, pyarrow.ArrowException) as error:
        raise UsageError(f"{path}: cannot be read as Parquet: {error}") from None
    with file:
        _check_columns(path, file.schema_arrow)
        for number, fields in enumerate(_raw(path, file), start=1):
            problem = _problem(fields)
            if problem is None:
                yield _row(fields)
            elif skipped is None:
                raise ConfigError(f"{path}: row {number}: {problem}")
            else:
                skipped[problem.partition(":")[0]] += 1


def _raw(path: Path, file: Any) -> Iterator[dict[str, Any]]:
    """Rows as plain fields."""
    import pyarrow

    try:
        for batch in file.iter_batches(batch_size=ROW_GROUP, columns=list(COLUMNS)):
            yield from batch.to_pylist()
    except (OSError, pyarrow.ArrowException, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: is damaged: {error}") from None


def _schema() -> Any:
    import pyarrow

    types = {"list<string>": pyarrow.list_(pyarrow.string())}
    return pyarrow.schema([(name, types.get(kind) or pyarrow.type_for_alias(kind)) for name, kind in COLUMNS.items()])


def _check_columns(path: Path, schema: Any) -> None:
    for field in _schema():
        place = schema.get_field_index(field.name)
        if place < 0:
            raise ConfigError(f"{path}: column {field.name} is missing; columns: {', '.join(schema.names)}")
        if str(schema.field(place).type).replace("element:", "item:") != str(field.type).replace("element:", "item:"):
            raise ConfigError(
                f"{path}: column {field.name} is {schema.field(place).type}, expected {COLUMNS[field.name]}"
            )


def _fields(row: Row) -> dict[str, Any]:
    prompt, origin = row.prompt, asdict(row.provenance)
    fields = {
        "level": row.level,
        "kind": row.kind,
        "system": prompt.system,
        "shared": prompt.shared,
        "segments": [segment.text for segment in prompt.segments],
        "layout": prompt.layout,
        "reply": row.reply,
        "rejected": row.rejected,
        "action_type": row.action_type,
        **origin,
    }
    clean = {name: _clean(value) for name, value in fields.items()}
    return {"id": _row(clean).id, **clean}


def _clean(value: Any) -> Any:
    """What Parquet can hold: lone surrogates become question marks."""
    if isinstance(value, (list, tuple)):
        return [_clean(item) for item in value]
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def _problem(fields: Mapping[str, Any]) -> str | None:
    """What is wrong with a row: its field, a colon, and what stands there; None when nothing is."""
    for name, value in fields.items():
        if value is None and name not in OPTIONAL:
            return f"{name}: is null"
        if isinstance(value, list) and None in value:
            return f"{name}: holds a null"
    if fields["level"] not in LEVELS:
        return f"level: is {fields['level']!r}, allowed: {', '.join(LEVELS)}"
    if (fields["rejected"] is None) is (fields["level"] == "preference"):
        return "rejected: a preference needs the other side, and nothing else has one"
    if not fields["reply"]:
        return "reply: is empty"
    if fields["id"] != _row(fields).id:
        return "id: is not that of the prompt and reply; the row was changed after it was made"
    return None


def _row(fields: Mapping[str, Any]) -> Row:
    segments = tuple(Segment(text=text) for text in fields["segments"])
    origin = {name: fields[name] for name in Provenance.__slots__}
    return Row(
        level=cast(Level, fields["level"]),
        kind=fields["kind"],
        prompt=Prompt(system=fields["system"], shared=fields["shared"], segments=segments, layout=fields["layout"]),
        reply=fields["reply"],
        rejected=fields["rejected"],
        action_type=fields["action_type"],
        provenance=Provenance(**origin | {"apps": tuple(fields["apps"])}),
    )
