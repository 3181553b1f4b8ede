"""Curves over epochs, as SVG: success on the held-out seed, and the likelihood of chosen replies.

A line is an arm, in the mean of its run seeds; a dot is one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from collab.view.plots import number, ticks_of
from evidence.figures import Spot, records_of
from evidence.plan import Plan
from evidence.record import EpochNumbers, Records

_WIDTH, _HEIGHT, _LEFT, _TOP, _FLOOR, _RIGHT = 720, 400, 64, 64, 348, 460
"""Pixels: of the picture, and where the square of the curves lies in it."""
_INK, _PALE, _GRID = "#1B1F24", "#57606A", "#E3E6EA"
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


def to_svg(title: str, unit: str, curves: Sequence[Curve]) -> str:
    """Draw a stand-alone SVG document; ValueError without a curve."""
    values = [value for curve in curves for _, value in curve.dots]
    if not values:
        raise ValueError("no curve, no picture")
    scale = _Scale.of([epoch for curve in curves for epoch, _ in curve.dots], values)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="system-ui, sans-serif" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#FFFFFF"/>',
        _text(_LEFT, 28, title, size=15, weight=600, fill=_INK),
        _text(_LEFT, 48, unit, size=12),
        *_axes(scale),
        *(line for place, curve in enumerate(curves) for line in _curve(place, curve, scale)),
        _text((_LEFT + _RIGHT) / 2, _FLOOR + 38, "epoch", size=12, anchor="middle"),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scale:
    epochs: tuple[int, int]
    ticks: tuple[float, ...]
    """Of values, ascending; the first and the last are where the square ends."""

    @classmethod
    def of(cls, epochs: Sequence[int], values: Sequence[float]) -> _Scale:
        last = max(max(epochs), min(epochs) + 1)
        return cls(epochs=(min(epochs), last), ticks=tuple(ticks_of((min(values), max(values)))))

    def x(self, epoch: float) -> float:
        first, last = self.epochs
        return _LEFT + 12 + (_RIGHT - _LEFT - 24) * (epoch - first) / (last - first)

    def y(self, value: float) -> float:
        low, high = self.ticks[0], self.ticks[-1]
        return _FLOOR - (_FLOOR - _TOP) * (value - low) / (high - low)


def _axes(scale: _Scale) -> list[str]:
    lines = []
    for value in scale.ticks:
        y = scale.y(value)
        lines += [
            f'<path d="M{_LEFT},{y:.1f} H{_RIGHT}" stroke="{_GRID}" fill="none"/>',
            _text(_LEFT - 8, y + 4, number(value), size=11, anchor="end"),
        ]
    first, last = scale.epochs
    for epoch in range(first, last + 1):
        x = scale.x(epoch)
        lines += [
            f'<path d="M{x:.1f},{_TOP} V{_FLOOR}" stroke="{_GRID}" fill="none"/>',
            _text(x, _FLOOR + 18, str(epoch), size=11, anchor="middle"),
        ]
    return lines


def _curve(place: int, curve: Curve, scale: _Scale) -> list[str]:
    colour = _COLOURS[curve.look % len(_COLOURS)]
    dash = f' stroke-dasharray="{2 + 3 * (curve.look % 3)} 4"' if curve.look else ""
    points = " L".join(f"{scale.x(epoch):.1f},{scale.y(value):.1f}" for epoch, value in curve.means)
    legend = _TOP + 8 + 20 * place
    return [
        f'<path d="M{points}" stroke="{colour}" stroke-width="{1.5 if curve.look else 2.5}" fill="none"{dash}>'
        f"<title>{escape(curve.name)}</title></path>",
        *(
            f'<circle cx="{scale.x(epoch):.1f}" cy="{scale.y(value):.1f}" r="3" fill="{colour}" fill-opacity="0.6">'
            f"<title>{escape(f'{curve.name}, epoch {epoch}: {value:.3g}')}</title></circle>"
            for epoch, value in curve.dots
        ),
        f'<path d="M{_RIGHT + 16},{legend} h24" stroke="{colour}" stroke-width="2" fill="none"{dash}/>',
        _text(_RIGHT + 48, legend + 4, curve.name, size=12, fill=_INK),
    ]


def _text(
    x: float, y: float, words: str, *, size: int, anchor: str = "start", weight: int = 400, fill: str = _PALE
) -> str:
    place = f'x="{x:g}" y="{y:g}" font-size="{size}" font-weight="{weight}" text-anchor="{anchor}" fill="{fill}"'
    return f"<text {place}>{escape(words)}</text>"
