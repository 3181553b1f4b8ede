"""The page of results and its pictures: made from files of finished units alone."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure, FigureBase
from matplotlib.lines import Line2D

from collab.errors import ConfigError
from collab.evidence.page import (
    WIDTH,
    Curve,
    Gain,
    collect_curves,
    collect_gains,
    draw_curves,
    draw_gains,
    fill_template,
    find_level,
    judge_training,
    render_page,
)
from collab.evidence.plan import Plan, read_plan
from collab.evidence.record import UnitRecord, read_all
from collab.evidence.tables import MISSING, Results
from collab.library import find_builtin_root
from collab.utils.plotting import to_svg

MakeRecord = Callable[..., UnitRecord]
DOCS = find_builtin_root() / "docs"
PLAN, QUICK = (read_plan(DOCS / f"results/{name}.yaml") for name in ("plan", "quick"))
PAGE = DOCS / "results/page.md.jinja"
TEAM = "untrained-team"


def build_results(*made: UnitRecord, plan: Plan = PLAN) -> Results:
    """Return the results of some units."""
    return Results(plan, {one.unit: one for one in made})


def render_text(*made: UnitRecord) -> str:
    """Return the page of some units."""
    return fill_template(build_results(*made), PAGE)[0]


def join_section(text: str, head: str) -> str:
    """Return what a page says under a head, in one line."""
    return " ".join(text.partition(f"## {head}\n")[2].partition("\n## ")[0].split())


# ----------------------------------------------------------------------------------------------------- the page


def test_nothing_is_made_up_where_nothing_was_measured() -> None:
    text = render_text()
    assert f"**Nothing has been measured yet**: none of {len(PLAN.units)} units is done." in text
    cells = [cell.strip() for line in text.splitlines() if line.startswith("| ") for cell in line.strip("|").split("|")]
    labels = {one.label for named in (PLAN.arms, PLAN.phases, PLAN.goals) for one in named.values()}
    numbers = {cell for cell in cells if any(letter.isdigit() for letter in cell)}
    assert numbers - labels == {str(seed) for seed in PLAN.seeds}
    assert cells.count(MISSING) > 50


def test_the_page_s_own_words_hold_no_result_and_no_long_line(make_record: MakeRecord) -> None:
    """Temperatures, and how sure replies are at one, are the only decimals.

    Lines count that are filled in, but for tables, lists and commands.
    """
    text = render_text(make_record(TEAM, None, "new-seeds", "1110", base="b" * 64))
    own = [line for line in text.splitlines() if not line.startswith(("| ", "- ", "$ "))]
    assert set(re.findall(r"\d+\.\d+", "\n".join(own))) == {"0.3", "0.15", "0.050", "0.1"}
    copied = PAGE.read_text().splitlines()
    assert max(len(line) for line in own if line not in copied) <= WIDTH
    assert "weights `bbbbbbbbbbbb`" in text


def test_the_page_says_what_takes_time_and_which_training_raised_an_alarm(make_record: MakeRecord) -> None:
    made = make_record("full", 0, "train", epochs=["10", "11"])
    alarmed = [one.model_copy(update={"alarm": "!" if one.epoch else None}) for one in made.epochs]
    text = render_text(made.model_copy(update={"epochs": alarmed}))
    assert_columns_are_explained(join_section(text, "What a training takes"))
    assert "| full method, train, run seed 0 | -1.00, alarm |" in join_section(text, "Over the epochs")


PARTS = ("playing", "environment", "inference", "critic", "adversary", "values", "samples", "training", "other")


def assert_columns_are_explained(text: str) -> None:
    """The words of a table of times name its columns and no others."""
    header = re.search(r"\| minutes \| (.*?) \|\s+\| ---", text)
    assert header is not None
    words = re.search(r"Minutes are those.*?policy learns\.", text)
    assert words is not None
    columns = [one for one in header[1].split(" | ") if one in PARTS]
    assert [one for one in PARTS if re.search(rf"\b{one}\b", words[0], re.IGNORECASE)] == columns


@pytest.mark.parametrize("page", ["results.md", "algorithms/results.md"])
def test_committed_pages_explain_the_columns_that_they_have(page: str) -> None:
    """Values and samples are parts of some algorithms alone."""
    assert_columns_are_explained(" ".join((DOCS / page).read_text(encoding="utf-8").split()))


def test_units_that_took_long_code_and_machines_are_told(make_record: MakeRecord) -> None:
    made = make_record("full", 0, "train", epochs=["1"], code=["a" * 64, "b" * 64])
    made = made.model_copy(update={"seconds": made.seconds.model_copy(update={"whole": 2460.0})})
    evaluation = make_record("full", 0, "new-seeds", "1")
    machine = evaluation.machine | {"model": "A Processor", "threads": "1", "preloaded": "fast.so"}
    known = [made, make_record("full", 1, "train", epochs=["1"]), evaluation.model_copy(update={"machine": machine})]
    text = join_section(render_text(*known), "Every unit")
    assert "1 of 3 took longer: `full/seed-0/train`." in text
    assert "3 digests below" in text
    assert "- 1: 2 processors, Linux, Python 3.12, torch 2.13" in text
    assert (
        "- 2: 2 processors, A Processor, 1 thread a process, preloaded fast.so, Linux, Python 3.12, torch 2.13" in text
    )
    computed_by = re.findall(r"\| \[(\S*?)\]\(\S*\)(?: \| [^|]*){3} \| (\d) \|", text)
    assert computed_by == [("full/seed-0/train", "1"), ("full/seed-1/train", "1"), ("full/seed-0/new-seeds", "2")]
    text = join_section(render_text(evaluation), "Every unit")
    assert "0 of 1 took longer." in text
    assert "one digest below" in text


def test_episodes_that_broke_are_told_and_count_as_not_solved(make_record: MakeRecord) -> None:
    evaluation = make_record("full", 0, "new-seeds", "1110")
    assert evaluation.measured is not None
    *solved, lost = evaluation.measured.episodes
    told = "Broken episodes of full/seed-0/new-seeds: 1 of 4 (ModelFailure), counted as not solved."
    assert told not in render_text(evaluation)
    rows = [*solved, (*lost[:-1], "ModelFailure")]
    broken = evaluation.model_copy(update={"measured": evaluation.measured.model_copy(update={"episodes": rows})})
    text = render_text(broken)
    assert told in join_section(text, "Every unit")
    assert "75.0 [" in text


def test_a_page_is_written_with_the_pictures_that_it_shows(tmp_path: Path, make_record: MakeRecord) -> None:
    played = [make_record("full", 0, "new-seeds", "1110"), make_record(TEAM, None, "new-seeds", "0110")]
    made = [make_record("full", 0, "train", epochs=["10", "11"]), *played]
    render_page(build_results(*made), PAGE, tmp_path / "results.md")
    text = (tmp_path / "results.md").read_text()
    assert f"3 of {len(PLAN.units)} units are done" in text
    assert "$ collab train-marl --out full" in text
    assert "| [full/seed-0/train](results/units/full/seed-0/train.json) | 10 | training `hhhhhhhhhhhh` |" in text
    pictures = sorted(path.name for path in (tmp_path / "results").iterdir())
    assert pictures == ["gains.svg", "likelihood.svg", "success.svg"]
    assert all(f"](results/{name})" in text for name in pictures)
    render_page(build_results(), PAGE, tmp_path / "results.md")
    assert list((tmp_path / "results").iterdir()) == []


def list_commands(text: str) -> list[str]:
    """Return the commands of a page as a shell reads them, each loop over run seeds unrolled."""
    commands: list[str] = []
    for line in re.findall(r"^\$ (.*)$", text, flags=re.MULTILINE):
        loop = re.fullmatch(r"for seed in ([\d ]+); do (.*); done", line)
        commands += [loop[2].replace("$seed", seed) for seed in loop[1].split()] if loop else [line]
    return sorted(commands)


@pytest.mark.medium
def test_the_page_is_the_one_that_the_committed_files_make(tmp_path: Path) -> None:
    known = read_all(DOCS / "results/units", PLAN)
    render_page(Results(PLAN, known), PAGE, tmp_path / "results.md")
    pictures = sorted(path.name for path in (tmp_path / "results").iterdir())
    assert pictures == sorted(path.name for path in (DOCS / "results").glob("*.svg"))
    for name in ("results.md", *(f"results/{picture}" for picture in pictures)):
        assert (DOCS / name).read_bytes() == (tmp_path / name).read_bytes(), f"make {name} anew: --render"
    assert list_commands((DOCS / "results.md").read_text()) == sorted(record.command for record in known.values())
    assert all("/" not in json.dumps(record.machine) for record in known.values())


@pytest.mark.medium
@pytest.mark.parametrize("name", ["wrong-credit", "edges", "algorithms", "pages"])
def test_the_page_of_another_plan_is_the_one_that_its_files_make(tmp_path: Path, name: str) -> None:
    folder = DOCS / name / "results"
    results = Results(plan := read_plan(folder / "plan.yaml"), read_all(folder / "units", plan))
    render_page(results, folder / "page.md.jinja", tmp_path / "results.md")
    assert folder.with_suffix(".md").read_text() == (tmp_path / "results.md").read_text(), "make it anew: --render"


def test_loops_over_run_seeds_are_exactly_the_commands_that_were_given(make_record: MakeRecord) -> None:
    units = [unit for unit in PLAN.units if unit.arm in ("full", TEAM) and unit.phase == "new-seeds-greedy"]
    made = [
        make_record(unit.arm, unit.seed, unit.phase, "1", command=PLAN.shown_command(unit, "b" * 64)) for unit in units
    ]
    text = render_text(*made)
    assert text.count("$ for seed in 0 1 2; do ") == 1
    assert list_commands(text) == sorted(record.command for record in made)


@pytest.mark.parametrize(
    ("template", "told"),
    [
        ("{{ results.format_rate('full/train') }}{% if %}", r"page\.md\.jinja:1: Expected an expression"),
        ("{{ nobody }}", r"page\.md\.jinja: 'nobody' is undefined"),
    ],
)
def test_a_template_that_cannot_be_filled_is_named(tmp_path: Path, template: str, told: str) -> None:
    (tmp_path / "page.md.jinja").write_text(template)
    with pytest.raises(ConfigError, match=told):
        render_page(build_results(), tmp_path / "page.md.jinja", tmp_path / "page.md")


# ------------------------------------------------------------------------------------------------------ pictures


def list_texts(figure: FigureBase) -> set[str]:
    """Return the words of a picture, as its file holds them."""
    return {str(one.text) for one in ElementTree.fromstring(to_svg(figure)).iter() if one.tag.endswith("}text")}


def find_axes(figure: FigureBase) -> Axes:
    """Return the only axes of a picture."""
    assert isinstance(figure, Figure)
    (axes,) = figure.axes
    return axes


def list_points(line: Line2D) -> list[tuple[float, float]]:
    """Return x and y of each point of a line."""
    return [(float(x), float(y)) for x, y in np.asarray(line.get_xydata())]


def test_a_gain_is_the_paired_difference_to_the_other_arm_in_every_phase_that_both_played(
    make_record: MakeRecord,
) -> None:
    known = build_results(
        *(make_record(TEAM, None, phase, "0110") for phase in ("new-seeds", "unseen-tasks")),
        *(make_record("full", seed, "new-seeds", "1110") for seed in (0, 1)),
        make_record("full", 0, "unseen-tasks", "0110"),
        make_record("rft", 0, "new-seeds", "0000"),
        make_record("rft", 0, "unseen-app", "1111"),
    )
    gains = collect_gains(known, ["full", "rft", "no-cr"], ["new-seeds", "unseen-tasks", "unseen-app"], TEAM)
    assert [(one.arm, one.phase, one.points) for one in gains] == [
        ("full method", "new instances", 25.0),
        ("full method", "unseen tasks", 0.0),
        ("rewarded replies alone, no pairs", "new instances", -50.0),
    ]
    found = known.compare(f"{TEAM}/new-seeds", "full/new-seeds")
    assert found is not None
    assert gains[0].interval == tuple(100 * end for end in found.interval)


GAINS = [
    Gain(arm="full <method> & co", phase="new", points=8.0, interval=(2.0, 14.0)),
    Gain(arm="full <method> & co", phase="unseen", points=1.0, interval=(-3.0, 5.0)),
    Gain(arm="without it", phase="new", points=-4.0, interval=(-9.0, -1.0)),
]


def test_gains_have_a_line_each_beside_their_arm_a_mark_by_phase_and_their_intervals() -> None:
    figure = draw_gains("a < b", "points", GAINS)
    axes = find_axes(figure)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["full <method> & co", "without it"]
    assert list(axes.get_yticks()) == [0.5, 3], "an arm's name is amid its lines"
    assert axes.get_ylim() == (4, -1), "the first arm is the uppermost"
    zero, *marks = axes.get_lines()
    assert [x for x, _ in list_points(zero)] == [0, 0]
    bars = [one for one in axes.collections if isinstance(one, LineCollection)]
    assert len(marks) == len(bars) == 2
    for phase, line, bar, drawn in zip(("new", "unseen"), marks, bars, ([0, 3], [1]), strict=True):
        own = [one for one in GAINS if one.phase == phase]
        points, rows = zip(*list_points(line), strict=True)
        assert (line.get_label(), list(points)) == (phase, [one.points for one in own])
        assert list(rows) == drawn, "an arm with fewer phases takes less room"
        ends = [[(float(x), float(y)) for x, y in segment] for segment in bar.get_segments()]
        assert ends == [[(end, row) for end in one.interval] for one, row in zip(own, rows, strict=True)]
    new, unseen = marks
    assert new.get_marker() != unseen.get_marker()
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["new", "unseen"]
    assert {"a < b", "points", "new", "unseen", "full <method> & co", "without it"} <= list_texts(figure)


def test_without_a_gain_the_text_says_so(make_record: MakeRecord) -> None:
    with pytest.raises(ValueError, match="no gain"):
        draw_gains("empty", "points", [])
    for made in ([], [make_record("full", 0, "new-seeds", "11")], [make_record(TEAM, None, "new-seeds", "11")]):
        text, pictures = fill_template(build_results(*made), PAGE)
        assert f"Trained minus untrained team, cold, points of success with 95 % intervals: {MISSING}." in text
        assert "gains.svg" not in pictures


def test_a_curve_goes_through_the_means_of_the_run_seeds(make_record: MakeRecord) -> None:
    known = build_results(
        make_record("full", 0, "train", epochs=["10", "11"]), make_record("full", 1, "train", epochs=["00", "01"])
    )
    (curve,) = collect_curves(known, "train", "success")
    assert curve.means == [(0, 25.0), (1, 75.0)]


def test_a_picture_of_curves_is_whole_and_survives_any_name() -> None:
    curve = Curve(name="<w/o & co>", dots=((0, 1.0), (1, 1.0)))
    figure = draw_curves("a < b", "percent", [curve, replace(curve, dots=((2, -3.5),))])
    assert {"a < b", "percent", "epoch", "<w/o & co>"} <= list_texts(figure)
    lengths = [len(list_points(line)) for line in find_axes(figure).get_lines()]
    assert lengths == [2, 2, 1, 1], "each curve, and its dots"
    with pytest.raises(ValueError, match="no curve"):
        draw_curves("empty", "percent", [])


def test_a_level_is_what_an_untrained_arm_solved(make_record: MakeRecord) -> None:
    known = build_results(make_record(TEAM, None, "held-out", "1110"))
    label = PLAN.arms[TEAM].label
    level = find_level(known, f"{TEAM}/held-out")
    assert level == (label, 75.0)
    figure = draw_curves("a", "percent", [Curve(name="b", dots=((1, 1.0),))], level)
    (line,) = [line for line in find_axes(figure).get_lines() if line.get_label() == label]
    assert [y for _, y in list_points(line)] == [75.0, 75.0]
    assert label in list_texts(figure)
    assert find_level(known, None) is find_level(build_results(), f"{TEAM}/held-out") is None


def test_an_arm_looks_the_same_on_every_picture(make_record: MakeRecord) -> None:
    """Though learning from rewarded replies alone compares nothing, and has no curve on the second."""
    plain = make_record("rft", 0, "train", epochs=["10"])
    mute = plain.model_copy(update={"epochs": [one.model_copy(update={"chosen_gain": None}) for one in plain.epochs]})
    others = (make_record(arm, 0, "train", epochs=["10"]) for arm in ("full", "no-cr"))
    known = build_results(mute, *others)
    first, second = (
        {one.name: one.look for one in collect_curves(known, "train", value)} for value in ("success", "chosen_gain")
    )
    assert len(set(first.values())) == len(first) == 3
    assert first["full method"] == 0
    assert second == {name: look for name, look in first.items() if name in second} != first


# ------------------------------------------------------------------------------------------------ the quick form


def divide_episodes(make_record: MakeRecord, seed: int | None, outcomes: str, **more: Any) -> list[UnitRecord]:
    """Return an arm's evaluations of the quick form: what is played is divided among units."""
    arm, parts = TEAM if seed is None else "full", [name for name in QUICK.phases if name != "train"]
    size, found = len(outcomes) // len(parts), []
    for place, phase in enumerate(parts):
        one = make_record(arm, seed, phase, outcomes[place * size : (place + 1) * size], **more)
        assert one.measured is not None
        rows = [(task, 100 * place + instance, *rest) for task, instance, *rest in one.measured.episodes]
        found.append(one.model_copy(update={"measured": one.measured.model_copy(update={"episodes": rows})}))
    return found


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("0110" * 18, "1111" * 16 + "0110" * 2, "better"),
        ("0110" * 18, "0110" * 18, "not shown better"),
        ("0110" * 18, "0111" + "0110" * 17, "not shown better"),
        ("0110" * 18, "1100" * 9 + "0111" * 1 + "0110" * 8, "not shown better"),
    ],
    ids=["half of all more", "nothing", "one more", "one more of many that differ"],
)
def test_the_quick_form_asks_for_more_than_luck(make_record: MakeRecord, before: str, after: str, said: str) -> None:
    made = [*divide_episodes(make_record, None, before), *divide_episodes(make_record, 0, after)]
    text, better = judge_training(build_results(*made, plan=QUICK))
    (line,) = (one for one in text.splitlines() if one.startswith("difference in points"))
    assert re.search(
        rf"95 % interval over 72 paired episodes of \d+ tasks; at least [+-]\d+\.\d with 90%: {said}$", line
    )
    assert better == (said == "better")


def test_the_quick_form_tells_what_all_units_took(make_record: MakeRecord) -> None:
    """By hand: 600 s of training as above, and six times 100 s, 95 of them playing and 10 in the environment."""
    training = make_record("full", 0, "train", epochs=["10", "11"])
    seconds = training.seconds.model_copy(
        update={"whole": 100.0, "playing": 95.0, "environment": 10.0, "inference": 85.0, "critic": None}
    )
    played = [part for seed in (0, None) for part in divide_episodes(make_record, seed, "111", seconds=seconds)]
    text, _ = judge_training(build_results(training, *played, plan=QUICK))
    assert "| all units | 20 | 72% | 6% | 67% | 5% | 0% | 10% | 12% |" in text.splitlines()
    assert_columns_are_explained(" ".join(text.split()))
    silent = training.model_copy(update={"seconds": training.seconds.model_copy(update={"critic": None})})
    text, _ = judge_training(build_results(silent, *played, plan=QUICK))
    assert "| all units | 20 | 72% | 6% | 67% | not told | 0% | 10% | not told |" in text.splitlines()
