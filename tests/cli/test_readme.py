"""The README shows commands that exist, with options that exist, and files that are there."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from collab.cli.main import main
from collab.loop.interfaces import load_algorithm, load_method

README = Path(__file__).parents[2] / "README.md"
PAGES = [README, *sorted((README.parent / "docs").glob("*.md"))]
GUIDES = [page for page in PAGES if page.stem in ("README", "tour", "servers", "devices", "extending", "algorithms")]
COMMAND = re.compile(r"^\$ collab (.+?)(?:\s+#.*)?$", re.MULTILINE)
COMMANDS = sorted({command for page in GUIDES for command in COMMAND.findall(page.read_text().replace("\\\n", ""))})


def test_there_are_commands_to_check():
    assert len(COMMANDS) > 10


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_and_its_options_exist(command, capsys):
    words = shlex.split(command)
    group = words[: 2 if words[0] in ("runs", "env", "graph", "agents", "critic", "pairs") else 1]
    assert main([*group, "--help"]) == 0
    shown = capsys.readouterr().out
    assert all(word in shown for word in words if word.startswith("--"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert target.startswith(("https://", "http://")) or (page.parent / target).exists(), target


def test_the_readme_stays_short():
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 250


WRITES = re.compile(r"(?:--(?:out|export|figures|svg|parquet|local-dir)[ =]|-m venv |[^-]> )([\w./-]+)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_commands_write_is_ignored_by_git(page):
    """So that whoever follows the page in a checkout keeps it clean."""
    text = page.read_text(encoding="utf-8").replace("\\\n", "")
    commands = re.findall(r"^\$ (.+?)(?:\s+#.*)?$", text, flags=re.MULTILINE)
    written = sorted({path for command in commands for path in WRITES.findall(command) if not path.startswith("/")})
    asked = ["git", "check-ignore", "--no-index", "--stdin"]
    done = subprocess.run(
        asked, input="\n".join(written), cwd=README.parent, capture_output=True, text=True, check=False
    )
    assert sorted(done.stdout.split()) == written
    if page.stem == "tour":
        assert {"runs/first", "data/first", "figures", "appendix.md", "report.html"} <= set(written)


def test_make_says_how_long_tests_take():
    text = (README.parent / "Makefile").read_text(encoding="utf-8")
    for target in ("test", "check", "test-all"):
        assert re.search(rf'^{target}:.*\n\t@echo "[^"]*\b(minutes|hour)\b', text, re.MULTILINE), target


INTERVAL = re.compile(r"\[([+-][\d.]+), ([+-][\d.]+)\]")


def holds_zero(line: str) -> bool:
    return any(float(low) <= 0 <= float(high) for low, high in INTERVAL.findall(line))


def words_of(page: Path) -> str:
    return " ".join(page.read_text(encoding="utf-8").split())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_says_more_of_a_result_than_its_interval(page):
    for line in page.read_text(encoding="utf-8").splitlines():
        if holds_zero(line):
            assert not re.search(r"(?<!not )\breached\b", line), line
    assert "the paper's recipe" not in words_of(page).lower()


def test_the_readme_states_the_critic_and_the_result_at_a_low_temperature():
    readme, results = README.read_text(encoding="utf-8"), words_of(README.parent / "docs" / "results.md")
    assert "By default, and in these runs, the critic is the environment's own solution" in words_of(README)
    for preset in ("collab", "qwen2.5-0.5b"):
        assert load_method(load_algorithm("collabuiagents"), preset).critic == "critic-oracle"
    rows = [line for line in readme.splitlines() if line.startswith("|") and INTERVAL.search(line)]
    assert any("temperature 0.3" in line for line in rows)
    assert any("temperature 1.5" in line for line in rows)
    for line in rows:
        assert ("not separable" in line) == holds_zero(line), line
        untrained, trained = re.findall(r"([\d.]+) %", line)
        low, high = INTERVAL.search(line).groups()
        (difference,) = re.findall(r"([+-][\d.]+) points", line)
        found = rf"\| full method \|.*{re.escape(f'{difference} [{low}, {high}]')}"
        assert re.search(found, results), "the page of results has the same"
        assert f" {untrained} [" in results
        assert f" {trained} [" in results


def test_the_papers_arm_is_called_what_it_is():
    for name in ("results", "recipe"):
        assert "the paper's settings, rate not tuned" in words_of(README.parent / "docs" / f"{name}.md").lower()
