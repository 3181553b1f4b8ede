"""The rules of the house, checked on the source itself."""

import ast
import functools
import io
import json
import re
import subprocess
import sys
import tokenize
import tomllib
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

import collab
from collab.library import ROOMS as DECLARATION_ROOMS
from tests.sources import nodes, tree

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "collab").rglob("*.py"))
TESTS = sorted(path for path in (ROOT / "tests").rglob("*.py") if "fixtures" not in path.parts)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

ORDER = (
    *("errors", "utils", "seeds", "library", "types", "config"),
    *("envs", "prompts", "dialects", "models", "agents", "graphs", "store", "data", "evaluation", "rollout"),
    *("rewards", "preferences", "synthesis", "trainers", "loop", "algorithms"),
    *("testing", "transfer", "evidence", "view", "api", "cli", "__main__"),
)
"""A room imports only rooms that stand before it."""

NEIGHBOURS = ("collab.envs.simphone", "collab.envs.web", "collab.envs.android")
"""Kinds of environments: none knows of another."""

HEAVY = {"torch", "transformers", "playwright", "ray", "openai", "PIL", "pyarrow", "uiautomator2"}

PUBLIC = ["CollabError", "Library", "RunResult", "collect", "evaluate", "open_run", "train"]


@functools.cache
def comments(path: Path) -> dict[int, str]:
    """Each comment of a file by its line."""
    tokens = tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline)
    return {one.start[0]: one.string for one in tokens if one.type == tokenize.COMMENT}


def shown(path: Path, node: ast.expr | ast.stmt) -> str:
    return f"{path.relative_to(ROOT)}:{node.lineno}"


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> Iterator[tuple[str, ast.stmt]]:
    """Every module that a file imports anywhere, with `from package import name` told as package.name."""
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((f"{node.module}.{alias.name}", node) for alias in node.names)


def dotted(node: ast.expr) -> str:
    """The name that an expression spells, e.g. "os.system"; empty when it is not a plain name."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return ""


def calls(path: Path) -> Iterator[tuple[str, ast.Call]]:
    return ((dotted(node.func), node) for node in nodes(path) if isinstance(node, ast.Call))


def package_names(path: Path) -> set[str]:
    """What a file uses of the package itself, e.g. {"__version__"} for `collab.__version__`."""
    used = (node for node in nodes(path) if isinstance(node, ast.Attribute))
    return {node.attr for node in used if dotted(node.value) == "collab"}


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    return [path for name in listed.decode().split("\0") if name and (path := ROOT / name).is_file()]


# ----------------------------------------------------------------------------------------------------- imports


def test_every_room_has_a_place_in_the_order() -> None:
    rooms = {path.relative_to(ROOT / "collab").parts[0].removesuffix(".py") for path in SOURCES} - {"__init__"}
    assert rooms <= set(ORDER), "give the new room a place in ORDER"


def test_a_room_imports_only_rooms_before_it() -> None:
    wrong: list[str] = []
    for path in SOURCES:
        home = module_name(path).split(".")
        if len(home) == 1:
            continue
        for name, node in imports(path):
            parts = name.split(".")
            if parts[0] != "collab" or parts[1:2] == [home[1]] or name == "collab.__version__":
                continue
            if name == "collab" and package_names(path) == {"__version__"}:
                continue
            if len(parts) == 1 or parts[1] not in ORDER or ORDER.index(parts[1]) > ORDER.index(home[1]):
                wrong.append(f"{shown(path, node)}: {home[1]} imports {name}")
    assert not wrong, "\n".join(wrong)


def test_the_loop_knows_no_algorithm() -> None:
    """A new one is a folder of its own, and its words stay in it."""
    known = (
        r"\b(objectives?|critics?|adversar\w+|pairs?|preferred|correct(ed|ions?)|replay_fraction|anchors?)\b"
        r"|\b(worse|beta|margins?|dpo|DpoRecipe|rft|collabuiagents)\b|isinstance\(recipe"
    )
    words = re.compile(known, re.IGNORECASE)
    wrong = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sorted((ROOT / "collab" / "loop").glob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if words.search(line)
    ]
    assert not wrong, "\n".join(wrong)


def test_the_inspector_knows_no_algorithm() -> None:
    """It draws what the hooks of any algorithm return."""
    wrong = [
        f"{shown(path, node)}: imports {name}"
        for path in sorted((ROOT / "collab" / "view").rglob("*.py"))
        for name, node in imports(path)
        if name.startswith("collab.algorithms")
    ]
    assert not wrong, "\n".join(wrong)


def test_kinds_of_environments_do_not_know_each_other() -> None:
    wrong = [
        f"{shown(path, node)}: imports {name}"
        for path in SOURCES
        for name, node in imports(path)
        for mine in NEIGHBOURS
        for other in NEIGHBOURS
        if mine != other and f"{module_name(path)}.".startswith(f"{mine}.") and f"{name}.".startswith(f"{other}.")
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
def test_imports_are_absolute() -> None:
    wrong = [
        shown(path, node)
        for path in [*SOURCES, *(ROOT / "scripts").rglob("*.py")]
        for node in nodes(path)
        if isinstance(node, ast.ImportFrom) and node.level
    ]
    assert not wrong, "\n".join(wrong)


# ------------------------------------------------------------------------------------------- files and folders

MOST_LINES, MOST_FILES, SMALL, JOINED = 600, 20, 250, 600
"""Of a file, of a folder, of a module that belongs to its only user, and of both together."""
LONGEST_SCRIPT = 250
TABLES = {"collab.cli.main", "collab.dialects.registry", "collab.envs.simphone.apps", "collab.envs.simphone.tasks"}
"""Modules that list others: being named by one of these alone makes no module a part of it."""


def lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def test_a_file_can_be_read_at_one_sitting() -> None:
    long = {str(path.relative_to(ROOT)): lines(path) for path in (*SOURCES, *TESTS) if lines(path) > MOST_LINES}
    assert not long, long


def test_the_size_that_decisions_state_is_true() -> None:
    """To a tenth; count again where it is not."""
    told = (ROOT / "docs" / "decisions.md").read_text(encoding="utf-8")
    found = re.search(r"has about ([\d,]+) files and ([\d,]+) lines, the tests ([\d,]+) lines", told)
    assert found is not None
    stated = [int(one.replace(",", "")) for one in found.groups()]
    counted = [len(SOURCES), sum(map(lines, SOURCES)), sum(map(lines, TESTS))]
    assert all(abs(now - then) <= then / 10 for now, then in zip(counted, stated, strict=True)), counted


def test_scripts_are_thin() -> None:
    """What several of them share, and what the package can use, lies in the package."""
    scripts = (ROOT / "scripts").glob("*.py")
    long = {path.name: lines(path) for path in scripts if lines(path) > LONGEST_SCRIPT}
    assert not long, long


def test_a_folder_can_be_looked_through() -> None:
    counts = Counter(path.parent for path in (*SOURCES, *TESTS))
    full = {str(folder.relative_to(ROOT)): count for folder, count in counts.items() if count > MOST_FILES}
    assert not full, full


def test_a_small_module_has_several_users() -> None:
    """With one user, in its own folder, it is a part of that user, as long as both fit into one file."""
    modules = {module_name(path): path for path in SOURCES}
    users: dict[str, set[str]] = {name: set() for name in modules}
    for user, path in modules.items():
        for name, _ in imports(path):
            used = name if name in modules else name.rpartition(".")[0]
            if used in modules and used != user:
                users[used].add(user)
    wrong = [
        f"{name} ({lines(path)} lines) is used by {user} alone ({lines(modules[user])} lines)"
        for name, path in modules.items()
        for user in users[name]
        if len(users[name]) == 1
        and user not in TABLES
        and not name.startswith("collab.testing.")  # what others test with
        and user.rpartition(".")[0] == name.rpartition(".")[0]
        and lines(path) < SMALL
        and lines(path) + lines(modules[user]) <= JOINED
    ]
    assert not wrong, "\n".join(wrong)


def test_a_class_name_has_one_meaning() -> None:
    homes: dict[str, list[str]] = {}
    for path in SOURCES:
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name.lstrip("_"), []).append(str(path.relative_to(ROOT)))
    double = {name: places for name, places in homes.items() if len(places) > 1}
    assert not double, double


# ------------------------------------------------------------------------------------------------ light import


def loaded(statement: str, *arguments: str) -> set[str]:
    """Modules in memory after a fresh interpreter has run the statement."""
    tell = "import json, sys; print(); print(json.dumps(sorted(sys.modules)))"
    code = f"{statement}\n{tell}"
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert not loaded("import collab") & HEAVY


def test_the_python_interface_loads_neither_torch_nor_training_nor_the_command_line() -> None:
    modules = loaded("import collab.api")
    assert not modules & (HEAVY | {"typer", "rich"})
    rooms = {name.split(".")[1] for name in modules if name.startswith("collab.")}
    assert not rooms & (TRAINING | {"cli"})


@pytest.mark.medium
def test_what_trains_nothing_needs_no_torch() -> None:
    """Pages, calibration, pairs, synthesis, estimates and the list of trainings work without the extra `train`."""
    rooms = ("view.server", "rewards.calibration.run", "preferences.rebuild", "synthesis.run", "loop.interfaces")
    estimates = ("trainers.rl.estimators", "trainers.rl.replay")
    modules = loaded("import " + ", ".join(f"collab.{room}" for room in (*rooms, *estimates)))
    assert not modules & {"torch", "transformers", "trl", "peft"}


REFUSED = (
    ["train-marl", "--env", "androidworld", "--graph", "team", "--agents", "early", "--set", "nothing=1"],
    ["train", "--algo", "filtered-bc", "--env", "nowhere", "--graph", "team", "--agents", "early"],
    ["finetune", "--stage", "sft", "--base", "built-in:early", "--data", "nowhere", "--out", "new"],
    ["transfer", "--mode", "direct", "--agents", "early", "--base", "early", "--env", "nowhere"],
)


@pytest.mark.medium
def test_a_mistake_is_told_before_torch_is_loaded() -> None:
    """Loading it takes seconds."""
    refuse_all = """
import json, sys
from collab.cli.main import main
for words in json.loads(sys.argv[1]):
    assert main(words) == 2, words
    assert not sys.modules.keys() & {"torch", "transformers", "trl", "peft", "datasets"}, words
"""
    loaded(refuse_all, json.dumps(REFUSED))


def test_help_loads_the_command_line_alone() -> None:
    show_help = """
import sys
from collab.cli.main import run
sys.argv = ["collab", "--help"]
try:
    run()
except SystemExit as stop:
    assert not stop.code, stop.code
"""
    modules = loaded(show_help)
    assert not modules & HEAVY
    ours = {name for name in modules if name.split(".")[0] == "collab" and not name.startswith("collab.cli.")}
    utilities = ("", ".concurrency", ".progress", ".text")
    assert ours == {"collab", "collab.cli", "collab.errors", *(f"collab.utils{name}" for name in utilities)}


TRAINING = {"rewards", "preferences", "synthesis", "trainers", "loop", "algorithms", "transfer", "testing", "view"}
"""Rooms that only those need who train, transfer or look."""

RUN_COMMANDS = """
import json, sys
from collab.cli.main import main
for words in json.loads(sys.argv[1]):
    assert main(words) == 0, words
"""


def training_rooms_after(*commands: list[str]) -> set[str]:
    """Modules of training rooms that commands have loaded."""
    names = {name for name in loaded(RUN_COMMANDS, json.dumps(commands)) if name.split(".")[0] == "collab"}
    return {name for name in names if name.split(".")[1:2] and name.split(".")[1] in TRAINING}


@pytest.mark.medium
def test_a_rollout_and_a_list_of_runs_load_no_room_of_training(tmp_path: Path) -> None:
    play = ["--env", "androidworld", "--agents", "rehearsal", "--tasks", "ContactsAddContact", "--episodes", "1"]
    short = ["--set", "environment.limits.max_steps=1"]
    rollout = ["rollout", *play, *short, "--out", str(tmp_path / "run")]
    lists = (["runs", "list", str(tmp_path)], ["env", "list"], ["graph", "list"])
    assert not training_rooms_after(rollout, *lists)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_rollout_of_a_checkpoint_loads_no_room_of_training(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from collab.testing.tiny_checkpoint import make_tiny_checkpoint
    from collab.testing.toy_team import write_library

    write_library(tmp_path / "library", make_tiny_checkpoint(tmp_path / "tiny", hidden=32, layers=2, context=4096))
    play = ("--env", "corridor", "--graph", "pair", "--agents", "toy", "--episodes", "1")
    library, out = ["--library", str(tmp_path / "library")], ["--out", str(tmp_path / "run")]
    found = training_rooms_after(["rollout", *play, *library, *out])
    assert found == {"collab.testing", "collab.testing.corridor"}, "the toy environment alone, which is played"


# -------------------------------------------------------------------------------------------------- public API


def test_the_public_names_are_these_and_sorted() -> None:
    assert collab.__all__ == PUBLIC == sorted(PUBLIC)


def test_every_public_name_exists_and_is_documented() -> None:
    for name in collab.__all__:
        assert getattr(collab, name).__doc__, name


# -------------------------------------------------------------------------------------------------------- code


def test_libraries_do_not_print() -> None:
    wrong = [
        shown(path, call)
        for path in SOURCES
        if "cli" not in path.relative_to(ROOT).parts
        for name, call in calls(path)
        if name in {"print", "sys.stdout.write", "sys.stderr.write"}
    ]
    assert not wrong, "\n".join(wrong)


def test_no_code_is_run_from_data() -> None:
    modules = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
    functions = {"eval", "exec", "os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput"}
    loaders = {"yaml.load", "yaml.load_all", "yaml.unsafe_load", "yaml.full_load", "torch.load", "torch.save"}
    wrong = [
        f"{shown(path, node)}: import {name}"
        for path in [*SOURCES, *(ROOT / "scripts").rglob("*.py")]
        for name, node in imports(path)
        if name.split(".")[0] in modules
    ]
    for path in [*SOURCES, *(ROOT / "scripts").rglob("*.py")]:
        for name, call in calls(path):
            shell = any(
                keyword.arg == "shell"
                and not (isinstance(keyword.value, ast.Constant) and keyword.value.value is False)
                for keyword in call.keywords
            )
            if name in functions | loaders or shell or name.endswith("create_subprocess_shell"):
                wrong.append(f"{shown(path, call)}: {name}")
    assert not wrong, "\n".join(wrong)


def test_every_module_says_what_it_is_for() -> None:
    wrong = [str(path.relative_to(ROOT)) for path in SOURCES if len((ast.get_docstring(tree(path)) or "").split()) < 3]
    assert not wrong, "\n".join(wrong)


def test_nothing_is_left_to_do_in_a_comment() -> None:
    marks = re.compile(r"\b(TODO|FIXME|XXX)\b")
    wrong = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in SOURCES
        for line, comment in comments(path).items()
        if marks.search(comment)
    ]
    assert not wrong, "\n".join(wrong)


LONGEST_UNEXPLAINED = 20
"""Lines of a body, without its docstring, from which on a comment says why."""

LITERALS = {
    "collab/store/parquet.py": ("_build_episode_row", "_step", "_build_cell_row"),
    "collab/trainers/estimate.py": ("format_plan",),
    "collab/trainers/prepare.py": ("build_manifest",),
    "collab/transfer/config.py": ("_configure_second",),
    "collab/view/runs.py": ("build_unreadable_row",),
}
"""File → functions that are one long literal or call, whose names say it all."""


def uncommented_functions(path: Path) -> Iterator[tuple[str, int]]:
    """Yield name and line of each long function without a comment in its body."""
    remark = re.compile(r"#\s*(?!noqa\b|type:)")
    remarks = [line for line, comment in comments(path).items() if remark.match(comment)]
    for node in nodes(path):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        rest = node.body[1:] if ast.get_docstring(node) else node.body
        if not rest:
            continue
        # A comment before the first statement belongs to the body, though no statement's lines hold it.
        begin = node.body[0].end_lineno or 0 if ast.get_docstring(node) else node.lineno
        end = node.end_lineno or 0
        is_long = end - rest[0].lineno + 1 > LONGEST_UNEXPLAINED
        if is_long and not any(begin < line <= end for line in remarks):
            yield node.name, node.lineno


def test_a_long_function_says_why() -> None:
    """A name says what is done; in a function longer than a glance, a comment says why it is done so."""
    allowed = {(file, name) for file, names in LITERALS.items() for name in names}
    assert len(allowed) <= 15
    found = {
        (path.relative_to(ROOT).as_posix(), name): line
        for path in SOURCES
        for name, line in uncommented_functions(path)
    }
    missing = {place: line for place, line in found.items() if place not in allowed}
    wrong = [f"{file}:{line}: {name} has no comment" for (file, name), line in missing.items()]
    assert not wrong, "\n".join(wrong)
    assert allowed <= set(found), f"short or commented now: {sorted(allowed - set(found))}"


def test_no_file_names_a_place_on_somebodys_machine() -> None:
    places = re.compile(rb"(?<![\w.])/(?:work|home|Users|root|opt/pypi|opt/wheels)/[\w.]")
    wrong = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip().decode(errors='replace')}"
        for path in tracked()
        if path.suffix not in {".png", ".webp", ".parquet"}
        for number, line in enumerate(path.read_bytes().splitlines(), start=1)
        if places.search(line)
    ]
    assert not wrong, "\n".join(wrong)


# ------------------------------------------------------------------------------------- declarations and the wheel


def declarations() -> set[str]:
    return {
        f"{room}/{path.relative_to(ROOT / room).as_posix()}"
        for room in DECLARATION_ROOMS
        for path in (ROOT / room).rglob("*")
        if path.is_file()
    }


def test_declaration_rooms_hold_no_python() -> None:
    assert len(DECLARATION_ROOMS) == 4
    assert not [name for name in declarations() if name.endswith((".py", ".pyc", ".pyi"))]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked wheel of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (archive,) = folder.glob("collab_marl-*.whl")
    with zipfile.ZipFile(archive) as opened:
        opened.extractall(folder / "site")
    return folder / "site"


@pytest.mark.medium
def test_the_wheel_holds_the_declarations_and_all_code(wheel: Path) -> None:
    files = {path.relative_to(wheel / "collab").as_posix() for path in (wheel / "collab").rglob("*") if path.is_file()}
    library = {name for name in files if name.startswith("library/")}
    code = {
        path.relative_to(ROOT / "collab").as_posix()
        for path in (ROOT / "collab").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert library == {f"library/{name}" for name in declarations()}
    assert files - library == code
    assert {path.name for path in wheel.iterdir()} == {"collab", f"collab_marl-{collab.__version__}.dist-info"}


def test_an_installed_wheel_finds_its_definitions(wheel: Path) -> None:
    show = "from collab.library import Library, find_builtin_root; print(find_builtin_root())"
    code = f"import sys; sys.path.insert(0, {str(wheel)!r}); {show}; print(*Library().list_names('graphs'))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=wheel, capture_output=True, text=True, check=True)
    home, names = done.stdout.splitlines()
    assert Path(home) == wheel / "collab" / "library"
    assert {"single", "team"} <= set(names.split())


# ----------------------------------------------------------------------------------------------- installing it


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {name.lower().replace("_", "-"): version for name, version in pairs}


def test_everything_that_make_installs_is_pinned_and_fits() -> None:
    listed = re.search(r"^EXTRAS := (.+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert listed is not None
    extras = PROJECT["optional-dependencies"]
    installed = [*listed.group(1).split(","), "ray"]
    wanted = [*PROJECT["dependencies"], *(line for extra in installed for line in extras[extra])]
    pinned = pins()
    for requirement in map(Requirement, wanted):
        assert requirement.specifier.contains(pinned[requirement.name.lower().replace("_", "-")]), str(requirement)


def test_what_trains_is_new_enough_for_what_is_asked_of_it() -> None:
    """`torch.optim.Muon` came with torch 2.9; how models are split was tried with accelerate 1.15."""
    wanted = {one.name: one.specifier for one in map(Requirement, PROJECT["optional-dependencies"]["train"])}
    assert wanted["torch"].contains("2.9.0")
    assert not wanted["torch"].contains("2.8.0")
    assert not wanted["accelerate"].contains("1.14.0")


def test_torch_is_pinned_for_every_kind_of_machine() -> None:
    pinned = pins()
    assert pinned["torch"] == "2.13.0"
    assert not [name for name in pinned if name.startswith(("nvidia", "cuda", "triton", "torchvision"))]
    assert not [version for version in pinned.values() if "+" in version or "@" in version]


def test_the_core_needs_no_extra() -> None:
    core = {Requirement(line).name for line in PROJECT["dependencies"]}
    assert not core & {"torch", "transformers", "playwright", "ray", "uiautomator2", "pyarrow", "fastapi"}
    assert {"train", "web", "android", "view", "track"} <= set(PROJECT["optional-dependencies"])


def test_the_citation_names_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == collab.__version__
    assert citation["license"] == PROJECT["license"]
