"""Examples as Parquet: one file per level, for this project and for other tools.

    with ExampleWriter(folder / "basic.parquet") as out:
        out.add(row)
    for row in read_rows(folder / "basic.parquet"): ...

A file appears under its name only once it is complete. Reading checks every field. A broken row is refused with file,
number and field, or skipped and counted if the caller wants that.

`segments` are the tokenised pieces of a prompt; pictures are not part of a row. Sampled token ids of a reply or a
message stand in their own columns (`SAMPLED`), only in files that are written with `ExampleWriter(path, sampled=True)`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, cast

from collab.data.example import LEVELS, Example, Level, Provenance, Sampled
from collab.errors import ConfigError, MissingExtra, UsageError
from collab.types import Prompt, Segment
from collab.utils.files import report_write_errors

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
SAMPLED: Mapping[str, str] = {
    "reply_sampled": "struct<tokenizer: string, tokens: list<int32>>",
    "rejected_sampled": "struct<tokenizer: string, tokens: list<int32>>",
    "segments_sampled": "list<struct<tokenizer: string, tokens: list<int32>>>",
}
"""Name → type of columns that a file may lack. They, or the entry of a segment, are null for the tokens of the text."""
ROW_GROUP = 4096
"""Rows per write and read."""


class ExampleWriter:
    """A Parquet file that appears once it is complete; after an error, nothing stays behind.

    Args:
        path: replaced if it is there.
        sampled: whether sampled token ids are kept, too; else a row with some is refused.

    Raises:
        MissingExtra: pyarrow is not installed.
        StoreFailure: the folder cannot be written.
    """

    def __init__(self, path: Path, *, sampled: bool = False) -> None:
        MissingExtra.unless("pyarrow", extra="parquet", purpose="data for fine-tuning")
        self.path = path
        self.count = 0
        """Rows added."""
        self._sampled = sampled
        self._temporary = path.with_name(f".{path.name}")
        self._rows: list[dict[str, Any]] = []
        self._writer: Any = None

    def __enter__(self) -> ExampleWriter:
        """Open the file for writing."""
        import pyarrow.parquet

        with report_write_errors(self.path.parent, "synthesise again"):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = pyarrow.parquet.ParquetWriter(self._temporary, _build_schema(self._sampled))
        return self

    def add(self, row: Example) -> None:
        """Add a row.

        Raises:
            ValueError: its prompt holds pictures, or it holds sampled token ids that this file does not keep.
            StoreFailure: the disk is full.
        """
        if row.prompt.images:
            raise ValueError(f"row {row.id}: pictures are not part of a row")
        if not self._sampled and any(_build_sampled_fields(row).values()):
            raise ValueError(f"row {row.id}: token ids are not part of a row of {self.path.name}")
        self._rows.append(_build_fields(row))
        self.count += 1
        if len(self._rows) >= ROW_GROUP:
            self._flush()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Move the file into place, or leave none."""
        try:
            if error is None:
                self._flush()
                with report_write_errors(self.path.parent, "synthesise again"):
                    self._writer.close()
                    self._temporary.replace(self.path)
        finally:
            self._writer.close()
            self._temporary.unlink(missing_ok=True)

    def _flush(self) -> None:
        import pyarrow

        if self._rows:
            with report_write_errors(self.path.parent, "synthesise again"):
                self._writer.write_table(pyarrow.Table.from_pylist(self._rows, schema=_build_schema(self._sampled)))
            self._rows = []


def read_rows(path: Path, *, skipped: Counter[str] | None = None) -> Iterator[Example]:
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
        # Opening reads the schema alone; rows come one group at a time.
        file = pyarrow.parquet.ParquetFile(path)
    except (OSError, pyarrow.ArrowException) as error:
        raise UsageError(f"{path}: cannot be read as Parquet: {error}") from None
    with file:
        _check_columns(path, file.schema_arrow)
        for number, fields in enumerate(_to_fields(path, file), start=1):
            problem = _find_problem(fields)
            if problem is None:
                yield _read_example(fields)
            elif skipped is None:
                # Without a counter the first broken row ends the reading, with its place.
                raise ConfigError(f"{path}: row {number}: {problem}")
            else:
                skipped[problem.partition(":")[0]] += 1


def _to_fields(path: Path, file: Any) -> Iterator[dict[str, Any]]:
    """Yield rows as plain fields."""
    import pyarrow

    names = [*COLUMNS, *(name for name in SAMPLED if name in file.schema_arrow.names)]
    try:
        for batch in file.iter_batches(batch_size=ROW_GROUP, columns=names):
            yield from (dict.fromkeys(SAMPLED) | fields for fields in batch.to_pylist())
    except (OSError, pyarrow.ArrowException, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: is damaged: {error}") from None


def _build_schema(sampled: bool) -> Any:
    import pyarrow

    said = pyarrow.struct([("tokenizer", pyarrow.string()), ("tokens", pyarrow.list_(pyarrow.int32()))])
    types = {
        "list<string>": pyarrow.list_(pyarrow.string()),
        SAMPLED["reply_sampled"]: said,
        SAMPLED["segments_sampled"]: pyarrow.list_(said),
    }
    kinds = {**COLUMNS, **(SAMPLED if sampled else {})}
    return pyarrow.schema([(name, types.get(kind) or pyarrow.type_for_alias(kind)) for name, kind in kinds.items()])


def _check_columns(path: Path, schema: Any) -> None:
    for field in _build_schema(sampled=True):
        place = schema.get_field_index(field.name)
        if place < 0 and field.name in COLUMNS:
            raise ConfigError(f"{path}: column {field.name} is missing; columns: {', '.join(schema.names)}")
        if place >= 0 and _format_type(schema.field(place).type) != _format_type(field.type):
            kind = {**COLUMNS, **SAMPLED}[field.name]
            raise ConfigError(f"{path}: column {field.name} is {schema.field(place).type}, expected {kind}")


def _format_type(kind: Any) -> str:
    """Format a type as text, whatever the name of list items."""
    return str(kind).replace("element:", "item:")


def _build_fields(row: Example) -> dict[str, Any]:
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
        **_build_sampled_fields(row),
        **origin,
    }
    clean = {name: _clean(value) for name, value in fields.items()}
    # The id is that of the cleaned row, as it will be read back.
    return {"id": _read_example(clean).id, **clean}


def _build_sampled_fields(row: Example) -> dict[str, Any]:
    """Build the columns of `SAMPLED`."""
    sides, segments = (row.reply_sampled, row.rejected_sampled), row.prompt.segments
    reply, rejected = (None if one is None else {"tokenizer": one.tokenizer, "tokens": one.tokens} for one in sides)
    heard = [None if one.tokens is None else {"tokenizer": one.tokenizer, "tokens": one.tokens} for one in segments]
    return {
        "reply_sampled": reply,
        "rejected_sampled": rejected,
        "segments_sampled": heard if any(heard) else None,
    }


def _clean(value: Any) -> Any:
    """Replace lone surrogates, which Parquet cannot hold, by question marks."""
    if isinstance(value, (list, tuple)):
        return [_clean(item) for item in value]
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def _find_problem(fields: Mapping[str, Any]) -> str | None:
    """Return what is wrong with a row: its field, a colon, and the value; None if nothing is."""
    # Types are Parquet's own; what is checked here is what a type cannot say.
    for name, value in fields.items():
        if value is None and name not in OPTIONAL and name not in SAMPLED:
            return f"{name}: is null"
        if isinstance(value, list) and None in value and name not in SAMPLED:
            return f"{name}: holds a null"
        if name in SAMPLED and not all(map(_is_sampled, value if isinstance(value, list) else [value])):
            return f"{name}: lacks the tokenizer, or holds something else than token ids"
    if len(fields["segments_sampled"] or fields["segments"]) != len(fields["segments"]):
        return f"segments_sampled: are {len(fields['segments_sampled'])}, segments are {len(fields['segments'])}"
    if fields["level"] not in LEVELS:
        return f"level: is {fields['level']!r}, allowed: {', '.join(LEVELS)}"
    if (fields["rejected"] is None) is (fields["level"] == "preference"):
        return "rejected: a preference needs the other side, and nothing else has one"
    if not fields["reply"]:
        return "reply: is empty"
    # Last, as the id covers all other fields: a changed row is found even if every field fits.
    if fields["id"] != _read_example(fields).id:
        return "id: is not that of the prompt and reply; the row was changed after it was made"
    return None


def _is_sampled(said: Mapping[str, Any] | None) -> bool:
    """Return whether a value of `SAMPLED` is token ids with their tokenizer, or nothing."""
    if said is None:
        return True
    tokens = said["tokens"]
    return None not in (said["tokenizer"], tokens) and all(token is not None and token >= 0 for token in tokens)


def _read_sampled(said: Mapping[str, Any] | None) -> Sampled | None:
    return None if said is None else Sampled(tokens=tuple(said["tokens"]), tokenizer=said["tokenizer"])


def _read_segment(text: str, said: Mapping[str, Any] | None) -> Segment:
    if said is None:
        return Segment(text=text)
    return Segment(text=text, tokens=tuple(said["tokens"]), tokenizer=said["tokenizer"])


def _read_example(fields: Mapping[str, Any]) -> Example:
    heard = fields["segments_sampled"] or [None] * len(fields["segments"])
    segments = tuple(map(_read_segment, fields["segments"], heard))
    origin = {name: fields[name] for name in Provenance.__slots__}
    return Example(
        level=cast(Level, fields["level"]),
        kind=fields["kind"],
        prompt=Prompt(system=fields["system"], shared=fields["shared"], segments=segments, layout=fields["layout"]),
        reply=fields["reply"],
        reply_sampled=_read_sampled(fields["reply_sampled"]),
        rejected=fields["rejected"],
        rejected_sampled=_read_sampled(fields["rejected_sampled"]),
        action_type=fields["action_type"],
        provenance=Provenance(**origin | {"apps": tuple(fields["apps"])}),
    )
