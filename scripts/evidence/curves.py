"""Curves over epochs, as SVG: success on the held-out seed, and the likelihood of chosen replies.

A line is an arm, in the mean of its run seeds; a dot is one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from collab.utils.plotting import create_axes, plot_style
from evidence.figures import Spot, records_of
from evidence.plan import Plan
from evidence.record import EpochNumbers, Records

if TYPE_CHECKING:
    from matplotlib.figure import FigureBase

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F", "#000000", "#8C564B")
"""After Okabe and Ito, told apart by readers who see few colours; dashes tell the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One line."""

    name: str
    dots: tuple[tuple[int, float], ...]
    """(epoch, value), one per run seed."""
    look: int = 0
    """Which colour and dash it has; 0 is the thick line. An arm looks the same on every picture."""

    @property
    def means(self) -> list[tuple[int, float]]:
        """(epoch, mean value), by epoch."""
        epochs = sorted({epoch for epoch, _ in self.dots})
        values = {epoch: [value for one, value in self.dots if one == epoch] for epoch in epochs}
        return [(epoch, sum(those) / len(those)) for epoch, those in values.items()]


def success_curves(plan: Plan, records: Records) -> list[Curve]:
    """Held-out success in percent, by arm; only arms with a finished training."""
    return _curves(plan, records, _success)


def likelihood_curves(plan: Plan, records: Records) -> list[Curve]:
    """How much likelier chosen sides are at the end of an epoch than under the reference, in nats, by arm."""
    return _curves(plan, records, _likelihood)


def _success(epoch: EpochNumbers) -> float | None:
    return 100 * sum(row[3] for row in epoch.held_out) / len(epoch.held_out) if epoch.held_out else None


def _likelihood(epoch: EpochNumbers) -> float | None:
    return epoch.chosen_gain


def _curves(plan: Plan, records: Records, value: Callable[[EpochNumbers], float | None]) -> list[Curve]:
    found = []
    trained = {name: arm for name, arm in plan.arms.items() if arm.method is not None}
    for look, (name, arm) in enumerate(trained.items()):
        trainings = records_of(plan, records, Spot(arm=name, phase="train"))
        told = [(epoch.epoch, value(epoch)) for one in trainings for epoch in one.epochs]
        dots = tuple((number, known) for number, known in told if known is not None)
        if dots:
            found.append(Curve(name=arm.told, dots=dots, look=look))
    return found


@plot_style()
def draw_curves(title: str, unit: str, curves: Sequence[Curve]) -> FigureBase:
    """Draw all curves in one picture; ValueError without a curve."""
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
    axes.xaxis.set_major_locator(MaxNLocator(10, integer=True, min_n_ticks=1))
    axes.set_xlabel("epoch")
    axes.grid()
    axes.legend(loc="upper left", bbox_to_anchor=(1.02, 1), frameon=False, handlelength=3)
    return axes.figure
