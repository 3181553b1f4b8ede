"""Runs that are damaged: what is taken away of them."""

import json
import random
import shutil
from pathlib import Path
from urllib.parse import quote

import pytest

from collab.errors import RunFormatError
from collab.view.export import export
from collab.view.markdown import report as markdown
from collab.view.schema.episodes import EpisodeFilter


@pytest.fixture
def damaged(recorded, tmp_path):
    """A copy of a recorded run to be spoilt."""
    return Path(shutil.copytree(recorded, tmp_path / "damaged"))


def segment(run: Path) -> Path:
    [path] = (run / "events").glob("*.jsonl")
    return path


def cut_in_half(run: Path) -> None:
    content = segment(run).read_bytes()
    segment(run).write_bytes(content[: len(content) // 2])


def spoil_a_step(run: Path) -> None:
    lines = segment(run).read_bytes().splitlines(keepends=True)
    [place, *_] = [place for place, line in enumerate(lines) if b'"type":"step"' in line]
    lines[place] = lines[place].replace(b'"index"', b'"in<b>"', 1)
    segment(run).write_bytes(b"".join(lines))


def spoil_a_start(run: Path) -> None:
    """The index, which has its own size of the log, still knows the episode."""
    content = segment(run).read_bytes()
    start = next(line for line in content.splitlines(keepends=True) if b'"type":"episode_started"' in line)
    segment(run).write_bytes(content.replace(start, start.replace(b'"task"', b'"tusk"', 1)))


def spoil_texts(run: Path) -> None:
    """The shared parts of prompts."""
    content = segment(run).read_bytes()
    segment(run).write_bytes(content.replace(b'"type":"text"', b'"type":"tax_"'))


def drop_the_index(run: Path) -> None:
    (run / "index.sqlite").unlink()


def spoil_the_index(run: Path) -> None:
    path = run / "index.sqlite"
    content = bytearray(path.read_bytes())
    rng = random.Random(3)
    for _ in range(400):
        content[rng.randrange(100, len(content))] = rng.randrange(256)
    path.write_bytes(bytes(content))


def spoil_judgements(run: Path) -> None:
    [path] = (run / "labels").glob("*/events/*.jsonl")
    path.write_bytes(path.read_bytes()[:-7] + b"\xff\xfe{]\n")


def spoil_pairs(run: Path) -> None:
    [path] = (run / "pairs").glob("*/pairs.jsonl")
    path.write_bytes(b'{"id": 3}\n' + path.read_bytes()[20:])


def lose_the_head(run: Path) -> None:
    (run / "run.json").write_text('{"format_version": "1.1", "command": 7}')


slowly = pytest.mark.slow


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        pytest.param(cut_in_half, True, id="half"),
        pytest.param(spoil_judgements, True, id="judgements", marks=slowly),
        pytest.param(lose_the_head, True, id="head"),
        pytest.param(spoil_a_step, True, id="step", marks=slowly),
        pytest.param(drop_the_index, False, id="no index", marks=slowly),
        pytest.param(spoil_the_index, False, id="spoilt index", marks=slowly),
        pytest.param(spoil_pairs, True, id="pairs", marks=slowly),
    ],
)
def test_what_is_readable_is_taken_and_what_is_not_is_told(damaged, inspect, read_report, tmp_path, spoil, told):
    spoil(damaged)
    before = {path: path.read_bytes() for path in damaged.rglob("*") if path.is_file()}
    inspector = inspect(damaged)
    run = inspector.list_runs().runs[0].id
    out = tmp_path / "report.html"
    made = export(inspector, run, out, most=1)
    assert made.episodes == 1
    assert made.steps >= 1
    answers = read_report(out).answers
    assert bool(answers[f"run/{run}/problems"]["problems"]) is told
    text = markdown(inspector.get_run(run), inspector.get_overview(run), inspector.list_problems(run).problems)
    assert ("## What cannot be read" in text) is told
    assert {path: path.read_bytes() for path in damaged.rglob("*") if path.is_file()} == before, "nothing is written"


def test_an_episode_that_cannot_be_opened_is_left_out_and_named(damaged, inspect, read_report, tmp_path):
    spoil_a_start(damaged)
    inspector = inspect(damaged)
    run = inspector.list_runs().runs[0].id
    rows = inspector.list_episodes(run, EpisodeFilter()).rows
    assert len(rows) == 3, "the index still knows all"
    made = export(inspector, run, tmp_path / "report.html", most=2)
    assert made.episodes == 1
    assert [why.partition(":")[0] for why in made.unread] == [rows[0].id]
    page = read_report(tmp_path / "report.html")
    assert [row["id"] for row in page.answers[f"run/{run}/episodes"]["rows"]] == [rows[1].id]
    left = page.answers[f"run/{run}/episode?episode={quote(rows[1].id, safe='')}"]
    assert (left["previous"], left["next"]) == (None, None)


def test_a_report_of_nothing_is_refused(damaged, inspect, tmp_path):
    inspector = inspect(damaged)
    run = inspector.list_runs().runs[0].id
    id = inspector.list_episodes(run, EpisodeFilter()).rows[0].id
    spoil_a_start(damaged)
    with pytest.raises(RunFormatError, match="no episode that was to be taken can be opened"):
        export(inspector, run, tmp_path / "report.html", episodes=[id])
    assert not (tmp_path / "report.html").exists()


def test_no_complaint_tells_where_a_run_lies(damaged, inspect, read_report, tmp_path):
    spoil_texts(damaged)
    (damaged / "run.json").write_text("{")
    inspector = inspect(damaged)
    run = inspector.list_runs().runs[0].id
    export(inspector, run, tmp_path / "report.html", most=1)
    answers = read_report(tmp_path / "report.html").answers
    cells = [answer for address, answer in answers.items() if "/cell?" in address]
    assert {cell["unread"].partition(":")[0] for cell in cells} == {"damaged"}
    assert any("damaged" in one["reason"] for one in answers[f"run/{run}/problems"]["problems"])
    assert str(tmp_path) not in json.dumps(answers)
