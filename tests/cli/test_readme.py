"""The README shows commands that exist, with options that exist, and files that are there."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from collab.cli.main import main
from collab.evidence.plan import read_plan
from collab.loop.interfaces import load_algorithm, load_method

README = Path(__file__).parents[2] / "README.md"
PAGES = [README, *(page for folder in ("docs", "agents") for page in sorted((README.parent / folder).rglob("*.md")))]
COMMAND = re.compile(r"^\$ collab (.+?)(?:\s+#.*)?$", re.MULTILINE)
COMMANDS = sorted({command for page in PAGES for command in COMMAND.findall(page.read_text().replace("\\\n", ""))})


def test_there_are_commands_to_check():
    assert len(COMMANDS) > 10


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_and_its_options_exist(command, capsys):
    words = shlex.split(command)
    group = words[
        : 2 if words[0] in ("runs", "env", "graph", "agents", "critic", "verifier", "pairs", "checkpoint") else 1
    ]
    assert main([*group, "--help"]) == 0
    shown = capsys.readouterr().out
    known = set(re.findall(r"--[a-z][a-z-]*", shown))
    assert {word.partition("=")[0] for word in words if word.startswith("--")} <= known


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(README.parent)))
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert target.startswith(("https://", "http://")) or (page.parent / target).exists(), target


def test_the_readme_stays_short():
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 250


WRITES = re.compile(r"(?:--(?:out|export|figures|svg|parquet|local-dir)[ =]|-m venv |[^-]> )([\w./-]+)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(README.parent)))
def test_what_commands_write_is_ignored_by_git(page):
    """Following the page leaves a checkout clean."""
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
    for target in ("test", "check", "test-all", "vendors", "ray"):
        assert re.search(rf'^{target}:.*\n\t@echo "[^"]*\b(minutes|hour)\b', text, re.MULTILINE), target


SPAN = re.MULTILINE | re.DOTALL
INTERVAL = re.compile(r"\[([+-][\d.]+), ([+-][\d.]+)\]")


def holds_zero(line: str) -> bool:
    return any(float(low) <= 0 <= float(high) for low, high in INTERVAL.findall(line))


def words_of(page: Path) -> str:
    return " ".join(page.read_text(encoding="utf-8").split())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(README.parent)))
def test_no_page_says_more_of_a_result_than_its_interval(page):
    for line in page.read_text(encoding="utf-8").splitlines():
        if holds_zero(line) and re.search(r"(?<!not )\breached\b", line):
            limit = re.search(r": (-\d+) or more \|", line)  # what was wanted allows a loss
            assert limit is not None, line
            (low, _), *_ = INTERVAL.findall(line)
            assert float(low) >= float(limit[1]) or "less lies in the interval, too" in line, line
    assert "the paper's recipe" not in words_of(page).lower()


def test_the_readme_states_the_critic_and_the_cold_result_that_the_demo_shows():
    readme = README.read_text(encoding="utf-8")
    said = "By default, and in the runs of teams, the critic knows the environment's own solution of each task"
    assert said in words_of(README)
    for preset in ("collab", "qwen2.5-0.5b"):
        assert load_method(load_algorithm("collabuiagents"), preset).critic == "critic-oracle"
    assert "all agents sampled at temperature 0.3:" in words_of(README)
    (row,) = [line for line in readme.splitlines() if re.match(r"\| \d+ \|", line) and INTERVAL.search(line)]
    assert not holds_zero(row)
    shown = re.search(
        r"^one agent .*? (\d+)/24 .*?^team of four.*? (\d+)/24 .*?^the team after.*? (\d+)/24 ", readme, SPAN
    )
    gained = re.search(r"^Training: ([+-][\d.]+) points \[([+-][\d.]+), ([+-][\d.]+)\]", readme, re.MULTILINE)
    assert [int(cell) for cell in row.split("|")[1:4]] == [int(one) for one in shown.groups()]
    rounded = [f"{float(one):+.0f}" for one in gained.groups()]
    assert row.endswith("| {} points [{}, {}] |".format(*rounded))
    # The tour and the shipped team's card tell of the same play.
    assert gained[0] in (README.parent / "docs" / "tour.md").read_text(encoding="utf-8")


def test_the_papers_arm_is_called_by_its_rate():
    labels = [
        arm.label for name, arm in read_plan(README.parent / "docs/results/plan.yaml").arms.items() if "paper" in name
    ]
    assert labels
    assert all(re.fullmatch(r"the paper's settings, rate [\d.e-]+", label) for label in labels)
