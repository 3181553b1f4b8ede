"""The language of the house, checked on the source itself: help, docstrings and messages in plain words."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.test_house import ROOT, SOURCES, calls, module_name, shown, tracked, tree

FRAGMENTS = {"of", "from", "who", "whose", "what", "where", "whether", "which", "how", "then", "those"}
"""First words of help that is no sentence: it names neither a thing nor what happens."""


def option_help() -> Iterator[tuple[str, str]]:
    """Yield the place and the help of each option and argument of the command line."""
    for path in sorted((ROOT / "collab" / "cli").rglob("*.py")):
        for name, call in calls(path):
            if name not in {"typer.Option", "typer.Argument"}:
                continue
            for keyword in call.keywords:
                if keyword.arg == "help":
                    texts = (node.value for node in ast.walk(keyword.value) if isinstance(node, ast.Constant))
                    yield shown(path, call), "".join(text for text in texts if isinstance(text, str))


def test_help_names_a_thing_or_says_what_happens() -> None:
    found = list(option_help())
    assert len(found) > 100
    wrong = [f"{place}: {text}" for place, text in found if text.split()[0].lower().strip(".,:;") in FRAGMENTS]
    assert not wrong, "\n".join(wrong)


PREFIXES = ("is_", "are_", "has_", "can_", "was_", "does_")
FIELD_WORDS = {"contains", "matches", "test", "exist"}
"""Names that every library gives to such a question; those of the shell and of uiautomator2."""


def test_a_question_is_named_like_one() -> None:
    """Methods and functions; an adjective may name a property (`run.busy`), a verb may not (`run.fits`)."""
    wrong = [
        f"{shown(path, node)}: {node.name}"
        for path in SOURCES
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef)
        and node.returns is not None
        and ast.unparse(node.returns) == "bool"
        and (ast.get_docstring(node) or "").startswith("Return whether")
        and not node.name.startswith("__")
        and not node.name.lstrip("_").startswith(PREFIXES)
        and node.name.lstrip("_") not in FIELD_WORDS
        and not any(ast.unparse(one) == "property" for one in node.decorator_list)
    ]
    assert not wrong, "\n".join(wrong)


NO_SUBJECT = re.compile(r"(Of|What|Whose|Who|Whether|How|Where) ")


def test_a_docstring_starts_with_a_noun_or_a_verb() -> None:
    """A note below an attribute may also be a question; what is a fragment in any place begins with "Of" or "Whose"."""
    wrong: list[str] = []
    for path in SOURCES:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node) or ""
                if NO_SUBJECT.match(text):
                    wrong.append(f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}: {text.splitlines()[0]}")
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                if str(node.value.value).startswith(("Of ", "Whose ")):
                    wrong.append(f"{shown(path, node)}: {str(node.value.value).splitlines()[0]}")
    assert not wrong, "\n".join(wrong)


BANNED = re.compile(
    r"\b(go|goes|going|gone|went) on\b|\b(whoever|whomever|somebody|anybody|amid|be they|tells? of|told by)\b",
    re.IGNORECASE,
)
"""Words that messages and docstrings do without: name the component, "resume", "print"."""


def messages(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of each string of a file that a person may read: help, errors and docstrings."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def test_messages_and_docstrings_use_plain_words() -> None:
    """Goals of tasks and the teacher's questions are data, which agents read."""
    data = {ROOT / "collab/synthesis/wording.py", *(ROOT / "collab/envs/simphone/tasks").glob("*.py")}
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {found.group()}"
        for path in SOURCES
        if path not in data
        for line, text in messages(path)
        if (found := BANNED.search(text))
    ]
    assert not wrong, "\n".join(wrong)


def test_the_paper_is_cited_by_its_own_sections() -> None:
    """3.2 is credit assignment and edge update, 3.3 transfer; there is no 3.4."""
    cited = re.compile(r"CollabUIAgents,\s+section (\d[\d.]*\d|\d)|section (\d[\d.]*\d|\d) of the paper")
    texts = {path: path.read_text(encoding="utf-8") for path in tracked() if path.suffix in {".py", ".md"}}
    found = {
        (number, path.relative_to(ROOT).as_posix())
        for path, text in texts.items()
        for number in ("".join(one) for one in cited.findall(text))
    }
    assert {number for number, _ in found} == {"3", "3.2", "3.3"}, found
    assert all("transfer" in path for number, path in found if number == "3.3")
    assert not any("transfer" in path for number, path in found if number == "3.2")


def test_a_docstring_names_only_what_exists() -> None:
    """Pages of docs/, and in the table of the inspector's answers their classes."""
    pages = re.compile(r"\bdocs/[\w/-]+\.md\b(?!\.)")
    wrong = [
        f"{path.relative_to(ROOT)}: {page}"
        for path in SOURCES
        for page in pages.findall(path.read_text(encoding="utf-8"))
        if not (ROOT / page).is_file()
    ]
    schema = ROOT / "collab" / "view" / "schema"
    answers = re.findall(r"\b([a-z]+)\.([A-Z]\w+)", ast.get_docstring(tree(schema / "__init__.py")) or "")
    assert len(answers) > 10
    for module, name in answers:
        source = schema / f"{module}.py"
        classes = (
            {node.name for node in tree(source).body if isinstance(node, ast.ClassDef)} if source.is_file() else {}
        )
        if name not in classes:
            wrong.append(f"collab/view/schema/__init__.py: {module}.{name}")
    assert not wrong, "\n".join(wrong)


def list_names(body: list[ast.stmt]) -> dict[str, ast.stmt]:
    """The names that the statements of a module or a class define, with their statements."""
    found: dict[str, ast.stmt] = {}
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)]
            found |= dict.fromkeys(names, node)
    return found


def test_names_of_the_package_in_prose_exist() -> None:
    """Of docstrings, comments and pages: `collab.module.name` and `collab.module.Class.member`."""
    modules = {module_name(path): path for path in SOURCES}
    quoted = re.compile(r"`(collab(?:\.\w+){2,})\b[^`\n]*`")
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    wrong = []
    for path in [*SOURCES, *pages]:
        for name in quoted.findall(path.read_text(encoding="utf-8")):
            module = name
            while module not in modules:
                module = module.rpartition(".")[0]
            body = tree(modules[module]).body
            for part in filter(None, name.removeprefix(module).split(".")):
                node = list_names(body).get(part)
                if node is None:
                    wrong.append(f"{path.relative_to(ROOT)}: {name}")
                if not isinstance(node, ast.ClassDef):
                    break  # members of values and functions are not listed here
                body = node.body
    assert not wrong, "\n".join(wrong)
