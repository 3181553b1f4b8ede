"""OS-Atlas-Pro: thoughts, then lines such as `CLICK <point>[[x, y]]</point>` and `TYPE [text]`.

The grounding model OS-Atlas-Base answers with boxes alone, `(x1,y1),(x2,y2)`: a box is read as a click on its middle.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from collab.dialects.actions import Grid, Resize, tidy
from collab.dialects.base import Dialect, Spelling, SpokenCall, Verb, World, verb
from collab.envs.syntax import Reject, shorten_value


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionLines:
    """One action per line behind `actions:`, its only argument behind the name."""

    _LABEL = re.compile(r"^[ \t*]*+actions?[ \t*]*+:", re.IGNORECASE | re.MULTILINE)
    _LINE = re.compile(r"^[ \t\-*]*+([A-Z]+(?:_[A-Z]+)*+)\b[ \t]*+([^\n]*+)", re.MULTILINE)
    _BOX = re.compile(r"(?:<\|box_start\|>|\A\s*)\((\d+),[ ]?(\d+)\),[ ]?\((\d+),[ ]?(\d+)\)")

    def find(self, text: str, verbs: Sequence[Verb]) -> Iterator[SpokenCall]:
        """Yield lines that begin with a verb; without any, a box."""
        labels = list(self._LABEL.finditer(text))
        start = labels[-1].end() if labels else 0
        if labels:  # the first action may stand in the label's line
            text = f"{' ' * (start - 1)}\n{text[start:]}"
        known = {one.says for one in verbs}
        lines = [one for one in self._LINE.finditer(text, start) if one[1] in known][:50]
        first = labels[-1].start() if labels else lines[0].start() if lines else 0
        if lines:
            places = [first, *(one.start() for one in lines[1:])]
            yield from (self._read(one, place) for one, place in zip(lines, places, strict=True))
            return
        box = self._BOX.search(text)
        if box is not None:
            yield SpokenCall(name="CLICK", arguments={"": [int(one) for one in box.groups()]}, start=box.start())
            return
        unknown = self._LINE.match(text, start) or re.compile(r"\s*+([A-Z_]{3,40})\b").match(text, start)
        if labels and unknown is not None:
            raise Reject("unknown_type", f"action {shorten_value(unknown[1])}, allowed: {', '.join(sorted(known))}")

    def _read(self, line: re.Match[str], place: int) -> SpokenCall:
        rest = line[2].strip()
        if rest.startswith("[") and rest.endswith("]"):
            rest = rest[1:-1]
        return SpokenCall(name=line[1], arguments={"": rest} if rest else {}, start=place)

    def write(self, calls: Sequence[SpokenCall], reason: str, world: World) -> str:
        """Write actions behind the thoughts."""
        lines = "\n".join(map(self._write_call, calls))
        return f"thoughts:\n{reason}\nactions:\n{lines}"

    def _write_call(self, call: SpokenCall) -> str:
        value = call.arguments.get("")
        if value is None:
            return call.name
        text = str(value)
        return f"{call.name} {text if text.startswith('<point>') else '[' + ' '.join(text.split()) + ']'}"

    def list_verbs(self, verbs: Sequence[Verb], forms: Sequence[SpokenCall], world: World) -> str:
        """Format one form per line."""
        lines = [f"{self._write_call(form)} - {one.doc}" for one, form in zip(verbs, forms, strict=True)]
        return "Actions:\n" + "\n".join(lines)


OS_ATLAS = Dialect(
    name="os-atlas",
    title="OS-Atlas-Pro, OS-Atlas-Base",
    models=r"os-?atlas",
    source="https://huggingface.co/OS-Copilot/OS-Atlas-Pro-7B",
    syntax=ActionLines(),
    verbs=(
        verb("CLICK", "click", "tap or click a point", point=""),
        verb("TYPE", "type", "type a text", text=""),
        verb("SCROLL", "scroll", "show what lies in a direction: UP, DOWN, LEFT or RIGHT", direction=""),
        *(
            replace(one, world="mobile")
            for one in (
                verb("LONG_PRESS", "long_press", "hold a point", point=""),
                verb("OPEN_APP", "open_app", "open an app by its name", text=""),
                verb("PRESS_BACK", "back", "go back"),
                verb("PRESS_HOME", "home", "go to the home screen"),
                verb("PRESS_RECENT", "recents", "show the recent apps"),
            )
        ),
        verb("ENTER", "enter", "press Enter"),
        verb("WAIT", "wait", "wait for a change"),
        verb("COMPLETE", "done", "end the task as solved"),
        verb("IMPOSSIBLE", "failed", "end the task as not solvable"),
    ),
    grid=Grid(span=1000),
    resize=Resize(factor=28, least=3_136, most=12_845_056),
    spelling=Spelling(
        point=lambda point: f"<point>[[{tidy(point[0])}, {tidy(point[1])}]]</point>", direction=str.upper
    ),
    labels=re.compile(r"\b(?:thoughts?|actions?):|<\|[a-z_]+\|>", re.IGNORECASE),
    unit="Points are [[x, y]] from 0 to 1000.",
    answer="Answer in two parts:\nthoughts:\nwhy this action\nactions:\none action from the list",
    task="Task: {goal}\nHistory:\n{history}",
    step="Step {number}: {action}",
    no_steps="None",
)

DIALECTS = (OS_ATLAS,)
