"""A page of results: a Jinja template, filled from the files of finished units alone.

    render_page(results, Path("docs/results/page.md.jinja"), Path("docs/results.md"))

A template knows `results` (see `collab.evidence.tables`), `done` and `total` (numbers of units), `base` (digest of the
weights that all began with), `missing` (the words for what is not measured), `difference` (of two spots, in words),
`trainings` (see `collab.evidence.trainings`), `curves` and `gains` (draw a picture and return its line), and the filter
`fill` (a paragraph). The same files give the same page, wherever it is made.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from textwrap import wrap
from typing import TYPE_CHECKING

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from collab.errors import ConfigError
from collab.evaluation.comparison import compare
from collab.evaluation.report import show_difference, show_rate
from collab.evidence.plan import Spot
from collab.evidence.tables import MISSING, Results
from collab.evidence.trainings import Trainings
from collab.library import read_text
from collab.utils.files import report_write_errors, write_atomic
from collab.utils.plotting import PALE, PALETTE, create_axes, make_printable, mark_style, plot_style, to_svg
from collab.utils.text import format_markdown_table

if TYPE_CHECKING:
    from matplotlib.figure import FigureBase

WIDTH = 120
"""Characters of a line of prose."""
SURE = 0.9
"""How sure the short form must be that a team is better: with few episodes, a training that changes nothing may win."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One line: an arm, in the mean of its run seeds."""

    name: str
    dots: tuple[tuple[int, float], ...]
    """(epoch, value), one per run seed."""
    look: int = 0
    """Which colour and dash it has; 0 is the thick line. An arm looks the same on every picture."""

    @property
    def means(self) -> list[tuple[int, float]]:
        """(epoch, mean value), by epoch."""
        epochs = sorted({epoch for epoch, _ in self.dots})
        return [(epoch, mean(value for one, value in self.dots if one == epoch)) for epoch in epochs]


def collect_curves(results: Results, phase: str, value: str, arms: Collection[str] | None = None) -> list[Curve]:
    """Return a curve per arm that has one.

    Args:
        results: of all units.
        phase: of the trainings.
        value: name of an `EpochNumbers` property, e.g. "success", "chosen_gain".
        arms: names; None for all.
    """
    curves = []
    for look, (name, arm) in enumerate(results.plan.trained.items()):
        if arms is not None and name not in arms:
            continue
        values = [(one.epoch, getattr(one, value)) for own in results.of(f"{name}/{phase}") for one in own.epochs]
        if dots := tuple((epoch, number) for epoch, number in values if number is not None):
            curves.append(Curve(name=arm.label, dots=dots, look=look))
    return curves


def find_level(results: Results, spot: Spot | None) -> tuple[str, float] | None:
    """Return label and success, in percent, of an arm in a phase; None while it is not measured, and for None."""
    if spot is None or not (measured := results.find_measured(spot)):
        return None
    solved = [success for one in measured.values() for _, _, _, success, *_ in one.episodes]
    return results.plan.get_label(spot), 100 * mean(solved)


@plot_style()
def draw_curves(title: str, unit: str, curves: Sequence[Curve], level: tuple[str, float] | None = None) -> FigureBase:
    """Draw all curves in one picture; ValueError without a curve.

    Args:
        title: of the picture.
        unit: of the values.
        curves: a line each.
        level: name and value of a line across all epochs, as what was there before them; None for none.
    """
    from matplotlib.ticker import MaxNLocator

    if not any(curve.dots for curve in curves):
        raise ValueError("no curve, no picture")
    axes = create_axes(title, unit, width=420, height=300)
    for curve in curves:
        colour = _COLOURS[curve.look % len(_COLOURS)]
        dash = (0, (2 + 3 * (curve.look % 3), 2)) if curve.look else "-"
        width = 1.5 if curve.look else 2.5
        axes.plot(*zip(*curve.means, strict=True), color=colour, linestyle=dash, linewidth=width, label=curve.name)
        axes.plot(*zip(*curve.dots, strict=True), "o", color=colour, markersize=6, alpha=0.6, markeredgewidth=0)
    if level is not None:
        axes.axhline(level[1], color=PALE, linewidth=1.5, label=level[0])
    axes.xaxis.set_major_locator(MaxNLocator(10, integer=True, min_n_ticks=1))
    axes.set_xlabel("epoch")
    axes.grid()
    axes.legend(loc="upper left", bbox_to_anchor=(1.02, 1), frameon=False, handlelength=3)
    return axes.figure


_COLOURS = (*PALETTE[:6], "#7F7F7F", "#000000", "#8C564B")
"""Readers who see few colours can tell them apart; dashes do the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """One arm in one phase, in points over another arm."""

    arm: str
    phase: str
    """As readers know it."""
    points: float
    interval: tuple[float, float]


def collect_gains(results: Results, arms: Sequence[str], phases: Sequence[str], against: str) -> list[Gain]:
    """Return the difference of each arm to another one, in each phase that both have played.

    Raises:
        UsageError: results cannot be compared.
    """
    found = []
    for arm in arms:
        for phase in phases:
            difference = results.compare(f"{against}/{phase}", f"{arm}/{phase}")
            if difference is not None:
                low, high = (100 * end for end in difference.interval)
                label = results.plan.phases[phase].label
                gain = Gain(
                    arm=results.plan.arms[arm].label,
                    phase=label,
                    points=100 * difference.difference,
                    interval=(low, high),
                )
                found.append(gain)
    return found


@plot_style()
def draw_gains(title: str, unit: str, gains: Sequence[Gain]) -> FigureBase:
    """Draw a line per gain, those of an arm together: a mark by phase, with its interval; ValueError without a gain."""
    if not gains:
        raise ValueError("no gain, no picture")
    arms, phases = (list(dict.fromkeys(getattr(one, name) for one in gains)) for name in ("arm", "phase"))
    ordered = sorted(gains, key=lambda one: (arms.index(one.arm), phases.index(one.phase)))
    lines = [(index + arms.index(one.arm), one) for index, one in enumerate(ordered)]  # one is free between two arms
    last = lines[-1][0]
    axes = create_axes(title, unit, width=460, height=20 + 12 * (last + 1))
    axes.axvline(0, color=PALE, linewidth=1)
    for place, phase in enumerate(phases):
        rows, own = zip(*((row, one) for row, one in lines if one.phase == phase), strict=True)
        look = mark_style(place)
        axes.hlines(rows, *zip(*(one.interval for one in own), strict=True), color=look["color"], linewidth=1.5)
        axes.plot([one.points for one in own], rows, linestyle="none", label=phase, **look)
    middles = [mean(row for row, one in lines if one.arm == arm) for arm in arms]
    axes.set_yticks(middles, [make_printable(arm, 60) for arm in arms])
    axes.set_ylim(last + 1, -1)
    axes.grid(axis="x")
    axes.legend(loc="upper left", bbox_to_anchor=(1.02, 1), frameon=False)
    return axes.figure


def render_page(results: Results, template: Path, page: Path) -> None:
    """Write the page, and beside it the folder of its pictures, named as the page without its suffix.

    Raises:
        ConfigError: the template cannot be read or filled.
        UsageError: results cannot be compared.
        StoreFailure: something cannot be written.
    """
    text, pictures = fill_template(results, template, page.stem)
    folder = page.with_suffix("")
    with report_write_errors(page, "give the same command again"):
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.glob("*.svg"):
            if path.name not in pictures:
                path.unlink()
        for name, picture in pictures.items():
            write_atomic(folder / name, picture.encode())
        write_atomic(page, text.encode())


def fill_template(results: Results, template: Path, folder: str = "results") -> tuple[str, dict[str, str]]:
    """Return the page's text and its pictures by name; errors as of `render_page`.

    Args:
        results: of all units.
        template: in Jinja.
        folder: of the pictures, as the page names it.
    """
    pictures: dict[str, str] = {}

    def show(name: str, title: str, unit: str, figure: FigureBase | None) -> str:
        if figure is None:
            return f"{title}, {unit}: {MISSING}."
        pictures[name] = to_svg(figure)
        return f"![{title}]({folder}/{name})"

    def curves(
        name: str,
        title: str,
        unit: str,
        phase: str,
        value: str,
        arms: Collection[str] | None = None,
        level: Spot | None = None,
    ) -> str:
        found = collect_curves(results, phase, value, arms)
        return show(name, title, unit, draw_curves(title, unit, found, find_level(results, level)) if found else None)

    def gains(name: str, title: str, unit: str, arms: Sequence[str], phases: Sequence[str], against: str) -> str:
        found = collect_gains(results, arms, phases, against)
        return show(name, title, unit, draw_gains(title, unit, found) if found else None)

    # A name that is not known is an error, so that a page never says nothing in place of a number.
    environment = ImmutableSandboxedEnvironment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    environment.filters["fill"] = fill_lines
    try:
        text = environment.from_string(read_text(template)).render(
            results=results,
            records=results.records,
            plan=results.plan,
            done=len(results.records),
            total=len(results.plan.units),
            base=next((record.base for record in results.records.values()), ""),
            missing=MISSING,
            rate=results.format_rate,
            difference=results.format_difference,
            curves=curves,
            gains=gains,
            pictures=pictures,
            trainings=Trainings(results),
        )
    except jinja2.TemplateSyntaxError as error:
        raise ConfigError(f"{template}:{error.lineno}: {error.message}") from None
    except jinja2.TemplateError as error:
        raise ConfigError(f"{template}: {error.message}") from None
    return text, pictures


def fill_lines(text: str) -> str:
    """Return a paragraph in lines of at most 120 characters."""
    return "\n".join(wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False)) + "\n"


def judge_training(results: Results) -> tuple[str, bool]:
    """Say whether the full method is shown to beat the untrained team on the same instances, and what took how long.

    It is where the lower bound of the difference, one-sided with `SURE`, lies above 0. All that an arm plays is pooled,
    whatever its units.

    Raises:
        ValueError: a part of what one of both plays was not measured.
        UsageError: too many episodes broke.
    """
    arms, trainings = ("untrained-team", "full"), Trainings(results)
    first, second = map(results.pool_arm, arms)
    found, least = compare(first, second), compare(first, second, level=2 * SURE - 1).interval[0]
    labels = [results.plan.arms[arm].label for arm in arms]
    rows = [[label, show_rate(report.planned)] for label, report in zip(labels, (first, second), strict=True)]
    lines = [
        format_markdown_table(["", "success in % [95 %] (episodes)"], rows),
        "",
        f"difference in points {show_difference(found)}, 95 % interval over {found.pairs} paired episodes of "
        f"{found.tasks} tasks; at least {100 * least:+.1f} with {SURE:.0%}: {'' if least > 0 else 'not shown '}better",
        "",
        trainings.format_time_table(whole=True),
        "",
        fill_lines(trainings.describe_parts()).rstrip(),
    ]
    return "\n".join(lines), least > 0
