"""Docstrings of attributes and arguments, as rows of a reference page.

Keys, types, limits and defaults come from pydantic models, their meaning from the docstrings below attributes and from
the section "Args" of a function.
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import annotated_types
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined


@functools.cache
def attribute_docs(model: type) -> dict[str, tuple[str, str]]:
    """Return the annotation of each attribute of a class and its bases, and its docstring on one line.

    Bases of other packages are left out.
    """
    found: dict[str, tuple[str, str]] = {}
    for kind in reversed(model.__mro__):
        if kind.__module__.partition(".")[0] != model.__module__.partition(".")[0]:
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
        lines = body.body if isinstance(body, ast.ClassDef) else []
        for line, after in zip(lines, [*lines[1:], None], strict=True):
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                doc = after.value if isinstance(after, ast.Expr) else None
                text = " ".join(str(doc.value).split()) if isinstance(doc, ast.Constant) else ""
                found[line.target.id] = ast.unparse(line.annotation), text
    return found


def list_keys(model: type[BaseModel], like: type[BaseModel] | None = None) -> Iterator[tuple[str, ...]]:
    """Yield key, type, default and meaning of each field of a model.

    Args:
        like: another model that says what keys of the same names are, where this one does not.
    """
    docs, others = attribute_docs(model), attribute_docs(like) if like is not None else {}
    for name, field in model.model_fields.items():
        meaning = docs[name][1] or others.get(name, ("", ""))[1]
        yield f"`{name}`", _format_kind(docs[name][0], field), _format_default(field), meaning


def list_settings(
    model: type[BaseModel], prefix: str = "", around: tuple[type[BaseModel], ...] = ()
) -> Iterator[tuple[str, ...]]:
    """Yield every setting of a model as a dotted path, nested models' among them: path, type, default, meaning."""
    docs = attribute_docs(model)
    for name, field in model.model_fields.items():
        inner, star = _find_nested(field)
        path = f"{prefix}{name}{star}"
        if inner is None or inner in (model, *around):
            yield f"`{path}`", _format_kind(docs[name][0], field), _format_default(field), docs[name][1]
        else:
            yield from list_settings(inner, f"{path}.", (model, *around))


def _find_nested(field: FieldInfo) -> tuple[type[BaseModel] | None, str]:
    """Return the model that a field holds, by name where it is a mapping of them."""
    text = str(field.annotation)
    models = [one for one in _parts_of(field.annotation) if isinstance(one, type) and issubclass(one, BaseModel)]
    if len(models) != 1 or "list[" in text:
        return None, ""
    return models[0], ".*" if "dict[" in text or "Mapping[" in text else ""


def _parts_of(annotation: Any) -> Iterator[Any]:
    yield annotation
    for one in getattr(annotation, "__args__", ()):
        yield from _parts_of(one)


def _format_kind(annotation: str, field: FieldInfo) -> str:
    bounds = [_bound(one) for one in field.metadata]
    return f"`{format_type(annotation)}`" + "".join(f", {bound}" for bound in bounds if bound)


_ALIASES = {"Temperature": "float", "Name": "str", "RunName": "str"}
"""Names that stand for a type with limits."""


def format_type(text: str) -> str:
    """Format a type without the limits that it carries."""
    text = re.sub(r"Annotated\[(\w+), Field\(.*?\)\]", r"\1", text)
    return re.sub(r"\w+", lambda word: _ALIASES.get(word.group(), word.group()), text).replace("'", '"')


def _bound(one: Any) -> str:
    signs = {annotated_types.Ge: "≥", annotated_types.Gt: ">", annotated_types.Le: "≤", annotated_types.Lt: "<"}
    for kind, sign in signs.items():
        if isinstance(one, kind):
            return f"{sign} {getattr(one, kind.__name__.lower()):g}"
    return "not empty" if isinstance(one, annotated_types.MinLen) else ""


def _format_default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True) if not field.is_required() else PydanticUndefined
    if value is PydanticUndefined:
        return "needed"
    return "as below" if isinstance(value, BaseModel) else f"`{format_yaml(value)}`"


def format_yaml(value: Any) -> str:
    """Format a value as YAML on one line."""
    names = {None: "null", True: "true", False: "false"}
    if isinstance(value, bool) or value is None:
        return names[value]
    if isinstance(value, tuple | list):
        return "[" + ", ".join(format_yaml(one) for one in value) + "]"
    return '""' if value == "" else str(value)


def summarise(made: Callable[..., Any]) -> str:
    """Return the first paragraph of a docstring."""
    return (inspect.getdoc(made) or "").partition("\n\n")[0]


def argument_docs(doc: str) -> dict[str, str]:
    """Return what the section "Args" of a docstring says of each argument."""
    section = re.search(r"^Args:\n((?:[ \t]+.*\n?|\n)+)", doc, re.MULTILINE)
    found: dict[str, str] = {}
    names: list[str] = []
    for line in section.group(1).splitlines() if section else ():
        begun = re.match(r"    (\w+(?:, \w+)*): (.*)", line)
        if begun:
            names = begun.group(1).split(", ")
            found |= dict.fromkeys(names, begun.group(2))
        else:
            found |= {name: f"{found[name]} {line.strip()}".strip() for name in names}
    return found
