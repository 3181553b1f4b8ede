"""The reliability picture of a calibration: what the critic said against how often it was right, as SVG.

Each column of scores is a bar as high as the share of its actions that are good, with a dot at the mean score; on the
dashed diagonal the two agree. Underneath stand the numbers of actions: a column of three says little.
"""

from __future__ import annotations

from html import escape

from collab.rewards.calibration.metrics import Bin
from collab.rewards.calibration.record import CalibrationRecord

_SIDE, _LEFT, _TOP = 360, 64, 84
"""Pixels: side of the square, and where it begins."""
_GAP, _STRIP = 52, 64
"""Pixels: from the square to the strip of counts, and how high that is."""
_LONGEST = 46
"""Letters of a line that fit."""
_WIDTH, _HEIGHT = _LEFT + _SIDE + 28, _TOP + _SIDE + _GAP + _STRIP + 40
_INK, _PALE, _GRID, _BAR, _DOT, _COUNT = "#1B1F24", "#57606A", "#E3E6EA", "#9CC7E4", "#0072B2", "#C9CED6"
_FLOOR = _TOP + _SIDE


def to_svg(record: CalibrationRecord) -> str:
    """Draw a stand-alone SVG document; ValueError for a calibration that is not finished."""
    if record.numbers is None:
        raise ValueError("a calibration without numbers has no picture")
    auc, ece = record.numbers.auc, record.numbers.ece
    told = f"AUC {_number(auc)}, calibration error {_number(ece)}, {sum(_counts(record))} scored actions"
    who, where = f"{record.critic} ({record.label})", f"on {record.environment}"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="system-ui, sans-serif" role="img">',
        f"<title>{_escaped(f'Reliability of {who} {where}: {told}')}</title>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#FFFFFF"/>',
        _text(_LEFT, 26, _short(who), size=15, weight=600, fill=_INK),
        _text(_LEFT, 46, _short(where), size=12),
        _text(_LEFT, 64, told, size=12),
        *_axes(),
        *(line for column in record.numbers.picture for line in _column(column)),
        f'<path d="M{_LEFT},{_FLOOR} L{_LEFT + _SIDE},{_TOP}" stroke="{_PALE}" stroke-dasharray="5 4" fill="none"/>',
        *(_dot(column) for column in record.numbers.picture if column.count),
        *_strip(record),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _axes() -> list[str]:
    """Grid, ticks and names of both axes."""
    lines = []
    for tick in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0):
        x, y = _x(tick), _y(tick)
        lines += [
            f'<path d="M{_LEFT},{y:g} h{_SIDE} M{x:g},{_TOP} v{_SIDE}" stroke="{_GRID}" fill="none"/>',
            _text(_LEFT - 8, y + 4, f"{tick:g}", size=11, anchor="end"),
            _text(x, _FLOOR + 16, f"{tick:g}", size=11, anchor="middle"),
        ]
    middle = _TOP + _SIDE / 2
    turned = f'transform="rotate(-90 20 {middle:g})"'
    lines.append(_text(_LEFT + _SIDE / 2, _FLOOR + 34, "score", size=12, anchor="middle"))
    return [*lines, _text(20, middle, "share of good actions", size=12, anchor="middle", more=turned)]


def _column(column: Bin) -> list[str]:
    """The bar of one column; nothing for an empty one."""
    if column.good is None:
        return []
    left, width, top = _x(column.low), _x(column.high) - _x(column.low), _y(column.good)
    told = f"scores {column.low:.2g} to {column.high:.2g}: {column.count} actions, {column.good:.0%} good"
    return [
        f'<rect x="{left + 1.5:.2f}" y="{top:.2f}" width="{width - 3:.2f}" height="{_FLOOR - top:.2f}" '
        f'fill="{_BAR}" fill-opacity="0.75"><title>{_escaped(told)}</title></rect>'
    ]


def _dot(column: Bin) -> str:
    x, y = _x(column.mean_score or 0.0), _y(column.good or 0.0)
    return f'<circle cx="{x:.2f}" cy="{y:.2f}" r="5" fill="{_DOT}" stroke="#FFFFFF" stroke-width="1.5"/>'


def _strip(record: CalibrationRecord) -> list[str]:
    """How many actions stand in each column."""
    counts = _counts(record)
    most, floor = max([*counts, 1]), _FLOOR + _GAP + _STRIP
    lines = [f'<path d="M{_LEFT},{floor} h{_SIDE}" stroke="{_GRID}" fill="none"/>']
    for place, count in enumerate(counts):
        width = _SIDE / len(counts)
        left, height = _LEFT + place * width, (_STRIP - 16) * count / most
        lines += [
            f'<rect x="{left + 1.5:.2f}" y="{floor - height:.2f}" width="{width - 3:.2f}" height="{height:.2f}" '
            f'fill="{_COUNT}"/>',
            _text(left + width / 2, floor - height - 4, str(count), size=11, anchor="middle"),
        ]
    return [*lines, _text(_LEFT + _SIDE / 2, floor + 22, "actions with such a score", size=12, anchor="middle")]


def _counts(record: CalibrationRecord) -> list[int]:
    return [] if record.numbers is None else [column.count for column in record.numbers.picture]


def _x(score: float) -> float:
    return _LEFT + _SIDE * score


def _y(share: float) -> float:
    return _FLOOR - _SIDE * share


def _short(words: str) -> str:
    return words if len(words) <= _LONGEST else f"{words[: _LONGEST - 1]}…"


def _number(value: float | None) -> str:
    return "not known" if value is None else f"{value:.3f}"


def _text(
    x: float,
    y: float,
    words: str,
    *,
    size: int,
    anchor: str = "start",
    weight: int = 400,
    fill: str = _PALE,
    more: str = "",
) -> str:
    place = f'x="{x:g}" y="{y:g}" font-size="{size}" font-weight="{weight}" text-anchor="{anchor}" fill="{fill}"'
    return f"<text {place}{' ' + more if more else ''}>{_escaped(words)}</text>"


def _escaped(words: str) -> str:
    return escape("".join(letter if letter.isprintable() else " " for letter in words))
