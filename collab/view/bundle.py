"""The pages' modules as one script, for a report that is one file.

    script = bundled(folder, "main.js")

Every module becomes a function that is called once and gives back what it exports, in the order in which they need one
another. Knows the static imports and exports that our modules are written with; whatever else it meets (default
exports, exported variables that change, dynamic imports, cycles) is an error, so that no report is made that differs
from the pages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_IMPORT = re.compile(r'^import\s+(?:(?P<what>\{[^}]*\}|\*\s+as\s+\w+)\s+from\s+)?"\./(?P<from>[\w.-]+)";?[ \t]*$', re.M)
_EXPORT = re.compile(r"^export\s+(?P<kind>async\s+function\*?|function\*?|class|const)\s+(?P<name>[\w$]+)", re.M)
_LIST = re.compile(r"^export\s+\{(?P<names>[^}]*)\};?[ \t]*$", re.M)
_LEFT = re.compile(r"^(?:import|export)\b.*$|\bimport\s*\(|\bimport\.meta\b", re.M)
_COMMENT = re.compile(r"^[ \t]*/\*\*.*?\*/[ \t]*\n", re.M | re.S)
"""Comments on lines of their own: nobody reads them in a report, and they may quote markup."""
_TYPED = re.compile(r"/\*\*.*?\*/", re.S)
_NAMED = re.compile(r"([\w$]+)(?:\s+as\s+([\w$]+))?")


class NotBundled(ValueError):
    """A module is written in a way that one script cannot repeat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Module:
    name: str
    needs: tuple[str, ...]
    body: str
    """With what it imports taken from the other modules, and what it exports given back."""


def bundled(folder: Path, entry: str) -> str:
    """One script that does what the module `entry` in a folder does.

    Raises:
        NotBundled: a module uses something else than static imports and exports by name, or they need one another.
        OSError: a module cannot be read.
    """
    parts = ['"use strict";', "(() => {", "const modules = Object.create(null);"]
    parts += [f'modules["{one.name}"] = (() => {{\n{one.body}\n}})();' for one in _ordered(folder, entry)]
    script = "\n".join([*parts, "})();"]) + "\n"
    if "</script" in script.lower() or "<!--" in script:
        raise NotBundled("a module holds </script or <!--, which would end the script early; write it in two pieces")
    return script


def _ordered(folder: Path, entry: str) -> Iterator[_Module]:
    """The modules, each behind those that it needs."""
    done: set[str] = set()

    def visit(name: str, way: tuple[str, ...]) -> Iterator[_Module]:
        if name in way:
            raise NotBundled(f"{' → '.join([*way, name])}: modules need one another in a circle")
        if name in done:
            return
        module = _read(folder / name)
        for other in module.needs:
            yield from visit(other, (*way, name))
        done.add(name)
        yield module

    return visit(entry, ())


def _read(path: Path) -> _Module:
    source = _COMMENT.sub("", path.read_text(encoding="utf-8").replace("\r\n", "\n"))
    needs = list(dict.fromkeys(found["from"] for found in _IMPORT.finditer(source)))
    exports = [(found["name"], found["name"]) for found in _EXPORT.finditer(source)]
    for found in _LIST.finditer(source):
        exports += [(own, other or own) for own, other in _NAMED.findall(found["names"])]
    body = _IMPORT.sub(_taken, source)
    body = _LIST.sub("", _EXPORT.sub(lambda found: f"{found['kind']} {found['name']}", body))
    left = _LEFT.search(_TYPED.sub("", body))
    if left is not None:
        raise NotBundled(f"{path.name}: {left[0].strip()[:80]!r} is no static import or export by name")
    return _Module(name=path.name, needs=tuple(needs), body=f"{body.rstrip()}\n{_given(exports)}")


def _taken(found: re.Match[str]) -> str:
    """An import, as what another module gave back."""
    what, source = found["what"], f'modules["{found["from"]}"]'
    if what is None:
        return ""
    if what.startswith("*"):
        return f"const {what.split()[-1]} = {source};"
    names = ", ".join(f"{name}: {own}" if own else name for name, own in _NAMED.findall(what))
    return f"const {{ {names} }} = {source};"


def _given(exports: Sequence[tuple[str, str]]) -> str:
    return f"return {{ {', '.join(f'{name}: {own}' if name != own else own for own, name in exports)} }};"
