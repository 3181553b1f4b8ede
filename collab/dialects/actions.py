"""The common vocabulary of dialects: actions, and the units of their points and pictures.

    said = GuiAction(kind="swipe", point=(500, 800), to=(500, 200))
    x, y, clamped = grid.to_pixel(said.point, sent, screen)

Values are read as any family writes them, and rejected with one line if they are none.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from collab.envs.syntax import Reject, shorten_value

Pair: TypeAlias = tuple[float, float]
"""A point in a dialect's grid."""
Size: TypeAlias = tuple[int, int]
"""Width and height in pixels."""
KINDS = (
    *("click", "double_click", "triple_click", "right_click", "middle_click", "long_press", "hover"),
    *("drag", "swipe", "scroll", "type", "keys", "enter", "select"),
    *("back", "forward", "home", "recents", "open_app", "open_url"),
    *("wait", "screenshot", "answer", "ask_user", "note", "done", "failed"),
    *("hold_keys", "release_keys", "mouse_down", "mouse_up", "zoom"),
)
"""Every kind of `GuiAction`."""
DIRECTIONS = ("up", "down", "left", "right")
SLACK = 0.05
"""Share of the grid by which a point may lie beyond its edge: it is moved to the edge and counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuiAction:
    """One action in the common vocabulary; fields that its kind does not use are None."""

    kind: str
    """One of `KINDS`."""
    point: Pair | None = None
    to: Pair | None = None
    """Where a drag or swipe ends."""
    index: int | None = None
    """Number of an element, in dialects that name elements."""
    text: str | None = None
    """What is typed, answered, asked or reported; name of an app, address, option, or keys joined by "+"."""
    direction: str | None = None
    amount: float | None = None
    """Size of a scroll, in the dialect's own unit."""
    seconds: float | None = None
    hold: str | None = None
    """Keys that are held meanwhile, joined by "+"."""
    enter: bool = False
    clear: bool = False
    ignored: tuple[str, ...] = field(default=(), compare=False)
    """Arguments of the reply that have no part in it, as they were given."""

    def __str__(self) -> str:
        """Format it in one line, e.g. "swipe (500, 800) to (500, 200)"."""
        words = [self.kind.replace("_", " ")]
        words += [self.direction] if self.direction is not None else []
        words += [f"[{self.index}]"] if self.index is not None else []
        words += [f"({self.point[0]:g}, {self.point[1]:g})"] if self.point is not None else []
        words += [f"to ({self.to[0]:g}, {self.to[1]:g})"] if self.to is not None else []
        words += [shorten_value(self.text)] if self.text is not None else []
        words += [f"by {self.amount:g}"] if self.amount is not None else []
        words += [f"for {self.seconds:g} s"] if self.seconds is not None else []
        words += [f"with {self.hold} held"] if self.hold is not None else []
        words += [name for name in ("enter", "clear") if getattr(self, name)]
        return " ".join(words)


# -------------------------------------------------------------------------------------------------- points and sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Unit of a dialect's points."""

    span: float | None
    """Number that means the right or lower edge; None for pixels of the picture that was sent."""
    digits: int = 0
    """Decimal places of a written number."""

    @property
    def title(self) -> str:
        """The unit in words."""
        if self.span is None:
            return "pixels of the sent picture"
        return "fractions of 1" if self.span == 1 else f"0-{self.span:g}"

    def to_pixel(self, point: Pair, sent: Size, screen: Size) -> tuple[int, int, bool]:
        """Return the screen pixel of a point, and whether it was moved to the edge.

        Args:
            sent: size of the picture that the model saw.
            screen: size of the screen.

        Raises:
            Reject: it lies further outside than `SLACK`.
        """
        units = [self.span or size for size in sent]
        shares = [value / unit for value, unit in zip(point, units, strict=True)]
        if not all(0 <= share <= 1 + SLACK for share in shares):  # (-1, -1) is a refusal
            allowed = f"0 to {self.span:g}" if self.span else f"a picture of {sent[0]} × {sent[1]}"
            raise Reject("outside", f"point ({point[0]:g}, {point[1]:g}) is outside the screen, allowed: {allowed}")
        # Multiplied first: 570 of 1000 is pixel 1368 of 2400, and the share 0.57 of 2400 a little less.
        x, y = (
            min(max(math.floor(value * size / unit), 0), size - 1)
            for value, size, unit in zip(point, screen, units, strict=True)
        )
        return x, y, max(shares) > 1

    def from_pixel(self, x: float, y: float, sent: Size, screen: Size) -> Pair:
        """Return the point that means this screen pixel, as the dialect writes it."""
        first, second = (
            self._round((value + 0.5) / size * (self.span or other))
            for value, size, other in zip((x, y), screen, sent, strict=True)
        )
        return first, second

    def _round(self, value: float) -> float:
        return round(value, self.digits) if self.digits else float(math.floor(value))


@dataclass(frozen=True, slots=True, kw_only=True)
class Resize:
    """Rule for the size in which a picture is sent; without any field, the picture is sent as it is."""

    factor: int = 1
    """Both sides become multiples of it."""
    least: int = 0
    """Pixels of the smallest picture."""
    most: int = 0
    """Pixels of the largest picture; 0 for no limit."""
    long_side: int = 0
    """Longest side; 0 for no limit."""
    sizes: tuple[Size, ...] = ()
    """Sizes that are taken for pictures of their shape."""

    @property
    def title(self) -> str:
        """The rule in words."""
        if self.sizes:
            names = ", ".join(f"{width}×{height}" for width, height in self.sizes)
            return f"{names} by shape, else a long side of {self.long_side}"
        if self.long_side:
            return f"long side at most {self.long_side}"
        if self.factor > 1:
            return f"multiples of {self.factor}, {self.least:,} to {self.most:,} pixels"
        return "as it is"

    def fit(self, width: int, height: int) -> Size:
        """Return the size in which a picture of this size is sent."""
        for wide, high in self.sizes:
            if wide < width and abs(wide / high - width / height) < 0.02:
                return wide, high
        longest = max(width, height)
        if self.long_side and longest > self.long_side:
            shrink = self.long_side / longest
            return max(1, round(width * shrink)), max(1, round(height * shrink))
        return self._fit_factor(width, height) if self.factor > 1 else (width, height)

    def _fit_factor(self, width: int, height: int) -> Size:
        """Return multiples of `factor` near the size, within the limits; the rule of Qwen's image processors."""
        unit = self.factor
        wide, high = (max(unit, round(side / unit) * unit) for side in (width, height))
        # Both sides shrink or grow by one number, so that the shape is kept as far as the multiples allow.
        if wide * high > self.most:
            scale = math.sqrt(width * height / self.most)
            return max(unit, math.floor(width / scale / unit) * unit), max(
                unit, math.floor(height / scale / unit) * unit
            )
        if wide * high < self.least:
            scale = math.sqrt(self.least / (width * height))
            return math.ceil(width * scale / unit) * unit, math.ceil(height * scale / unit) * unit
        return wide, high


# ------------------------------------------------------------------------------------------------------ values


def tidy(number: float) -> float:
    """Return a number without a needless fraction: 3.0 becomes 3."""
    return int(number) if isinstance(number, float) and number.is_integer() else number


_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,3})?")
_POINT_NOISE = re.compile(r"""<\|?/?[a-z_]{1,20}\|?>|[\s()\[\]{},;"']""")
"""Tokens, brackets and commas around the numbers of a point."""


def read_point(value: Any) -> Pair:
    """Read a point as any family writes it: a pair, two corners of a box (their middle), or a text of either.

    Raises:
        Reject: it is none.
    """
    numbers: list[float] = []
    if isinstance(value, str):
        words = _POINT_NOISE.sub(" ", value[:200]).split()
        if all(_NUMBER.fullmatch(word) for word in words):
            numbers = [float(word) for word in words]
    else:
        numbers = list(_flatten(value))
    if len(numbers) not in (2, 4) or not all(abs(number) < 1e6 for number in numbers):
        raise Reject("bad_field", f"point {shorten_value(value)}, allowed: two numbers, or a box of four")
    half = len(numbers) // 2
    middle = (numbers[0] + numbers[-half]) / 2 if half == 2 else numbers[0]
    return middle, (numbers[1] + numbers[3]) / 2 if half == 2 else numbers[1]


def _flatten(value: Any, depth: int = 0) -> Iterable[float]:
    """Yield the numbers of nested lists; a text among them counts as what it spells."""
    if isinstance(value, bool) or depth > 3:
        yield math.inf
    elif isinstance(value, int | float):
        yield float(value) if abs(value) < 1e9 else math.inf
    elif isinstance(value, str) and len(value) <= 40 and _NUMBER.fullmatch(value.strip()):
        yield float(value)
    elif isinstance(value, list | tuple) and len(value) <= 4:
        for one in value:
            yield from _flatten(one, depth + 1)
    else:
        yield math.inf


def read_number(value: Any) -> float:
    """Read a number, or the number at the beginning of a text ("2 seconds").

    Raises:
        Reject: there is none, or it is too large.
    """
    found = _NUMBER.match(value.strip()[:40]) if isinstance(value, str) else None
    number = float(found[0]) if found else value
    if isinstance(number, bool) or not isinstance(number, int | float) or not abs(number) < 1e9:
        raise Reject("bad_field", f"{shorten_value(value)}, allowed: a number")
    return float(number)


_KEY_SIGNS = {"+": "plus", " ": "space"}
"""Keys that a text joined by "+" needs a name for."""


def read_keys(value: Any) -> str:
    """Read a key or a combination, as a list or joined by "+", a space or a comma; joined by "+" in the result."""
    parts = [str(one) for one in value] if isinstance(value, list | tuple) else [str(value)]
    if len(parts) == 1 and len(parts[0].strip()) > 1:
        # Between keys "+" and "," join them; at the end, apart from the last key, they are keys: "ctrl +", "ctrl++".
        parts = re.findall(r"[^\s,+]+|(?<=[\s+])[,+](?=\s*\Z)", re.sub(r"[\[\]()'\"]", " ", parts[0]))
    keys = [_KEY_SIGNS.get(part) or part.strip().lower() for part in parts if part]
    keys = [key for key in keys if key]
    if not 1 <= len(keys) <= 6 or any(len(key) > 30 for key in keys):
        raise Reject("bad_field", f"keys {shorten_value(value)}, allowed: one to six keys")
    return "+".join(keys)


def read_text(value: Any) -> str:
    """Read a text; a number counts as its digits, a list as its parts."""
    if isinstance(value, bool) or not isinstance(value, str | int | float | list | tuple):
        raise Reject("bad_field", f"{shorten_value(value)}, allowed: a text")
    text = value if isinstance(value, str) else shorten_value(value)
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise Reject("bad_field", f"{shorten_value(value)} holds half a character, allowed: a text")
    return text


def _read_direction(value: Any) -> str:
    if isinstance(value, str) and value.strip().lower() in DIRECTIONS:
        return value.strip().lower()
    raise Reject("bad_field", f"direction {shorten_value(value)}, allowed: {' or '.join(DIRECTIONS)}")


def _read_boolean(value: Any) -> bool:
    return value if isinstance(value, bool) else str(value).strip().lower() in ("true", "1", "yes")


def _read_index(value: Any) -> int:
    number = read_number(value)
    if number < 0 or not number.is_integer():
        raise Reject("bad_field", f"{shorten_value(value)}, allowed: the number of an element")
    return int(number)


READERS: dict[str, Callable[[Any], Any]] = {
    "point": read_point,
    "to": read_point,
    "index": _read_index,
    "text": read_text,
    "direction": _read_direction,
    "amount": read_number,
    "seconds": read_number,
    "hold": read_keys,
    "enter": _read_boolean,
    "clear": _read_boolean,
}
