"""Python that docs and docstrings show: what it imports and calls exists."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.sources import nodes, tree

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "collab").rglob("*.py"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]

CALL = re.compile(r"(\.?)\b([A-Za-z_]\w*)\(")
FENCE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
ELSEWHERE = frozenset(
    {"AsyncOpenAI", "findall", "from_pretrained", "from_string", "initialize_task", "is_successful", "load_dataset"}
)
"""Names of other packages that an example may call."""
YOURS = frozenset({"Mine", "MyLabeller", "MyLearner"})
"""Names that an example leaves to its reader."""
FORMULAS = frozenset({"P", "SR", "r"})
"""Functions of a formula in a docstring."""


def defined_names(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield what a piece of code defines: functions, classes, imports, variables, parameters and fields."""
    for node in nodes:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).split(".")[0]


METHODS = {name for kind in (str, bytes, list, dict, set, Path) for name in dir(kind)}
FOREIGN = METHODS | set(dir(builtins)) | ELSEWHERE | YOURS | FORMULAS


@pytest.fixture(scope="module")
def known() -> frozenset[str]:
    """Every name that an example may call."""
    return frozenset(name for path in SOURCES for name in defined_names(nodes(path))) | FOREIGN


def unknown_calls(code: str, known: frozenset[str]) -> list[str]:
    """Return the functions and methods that lines of code call and that exist nowhere."""
    code = re.sub(r"#.*|\"[^\"\n]*\"|'[^'\n]*'", "", code)
    return sorted({name for _, name in CALL.findall(code)} - known)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_an_example_of_a_page_imports_and_calls_what_exists(page: Path, known: frozenset[str]) -> None:
    for block in FENCE.findall(page.read_text(encoding="utf-8")):
        written = tuple(ast.walk(ast.parse(block)))
        own = set(defined_names(written))
        assert not set(unknown_calls(block, known)) - own, block
        for node in written:
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "collab":
                home = ROOT.joinpath(*(node.module or "").split("."))
                file = home.with_suffix(".py") if home.with_suffix(".py").exists() else home / "__init__.py"
                names = set(defined_names(nodes(file))) | {path.stem for path in home.glob("*.py")}
                assert {alias.name for alias in node.names} <= names, f"{page.name}: from {node.module}"


def test_an_example_of_a_docstring_calls_what_exists(known: frozenset[str]) -> None:
    wrong = []
    for path in SOURCES:
        for line in (ast.get_docstring(tree(path)) or "").splitlines():
            # Examples are indented; in lists of terms no word stands right before a parenthesis.
            if line.startswith("    ") and (unknown := unknown_calls(line, known)):
                wrong.append(f"{path.relative_to(ROOT)}: {', '.join(unknown)}")
    assert not wrong, "\n".join(wrong)
