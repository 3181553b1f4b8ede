"""GELab-Zero and Step-GUI: a thought, then one line of fields with tabs between, such as `action:CLICK	point:x,y`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from collab.dialects.actions import Grid, tidy
from collab.dialects.base import Dialect, Spelling, SpokenCall, Verb, World, verb


@dataclass(frozen=True, slots=True, kw_only=True)
class TabbedFields:
    """`explain:…	action:NAME	field:value	summary:…`; texts hold no tab and no line break."""

    _ACTION = re.compile(r"(?:^|\t|\n)[ ]*+action[ ]*+:[ ]*+([A-Za-z_]{1,40})", re.IGNORECASE)

    def find(self, text: str, verbs: Sequence[Verb]) -> Iterator[SpokenCall]:
        """Yield lines with an action; fields before it belong to the reason."""
        # Some write the tab as two characters. Only before a field is it one: a typed text may hold them, too.
        names = {"action", "explain", "summary", *(name for one in verbs for name in one.argument_names)}
        text = re.sub(rf"\\t(?=[ ]*+(?:{'|'.join(names)})[ ]*+:)", "\t ", text)  # places stay the same
        found = list(self._ACTION.finditer(text))[:50]
        ends = [*(one.start() for one in found[1:]), len(text)]
        for one, end in zip(found, ends, strict=False):
            pairs = (field.partition(":") for field in re.split(r"[\t\n]", text[one.end() : end]))
            fields = {name.strip().lower(): value.strip() for name, colon, value in pairs if colon}
            yield SpokenCall(name=one[1], arguments=fields, start=one.start())

    def write(self, calls: Sequence[SpokenCall], reason: str, world: World) -> str:
        """Write one line per action behind the thought."""
        lines = "\n".join(f"explain:{_flatten(reason)}\t{self._write_call(call)}\tsummary:" for call in calls)
        return f"<THINK> {reason} </THINK>\n{lines}"

    def _write_call(self, call: SpokenCall) -> str:
        named = {"action": call.name, **call.arguments}
        return "\t".join(f"{name}:{_flatten(str(value))}" for name, value in named.items())

    def list_verbs(self, verbs: Sequence[Verb], forms: Sequence[SpokenCall], world: World) -> str:
        """Format one form per line."""
        lines = [f"{self._write_call(form)}  - {one.doc}" for one, form in zip(verbs, forms, strict=True)]
        return "Actions (a tab between two fields):\n" + "\n".join(lines)


def _flatten(text: str) -> str:
    return " ".join(text.split())


GELAB = Dialect(
    name="gelab",
    title="GELab-Zero, Step-GUI",
    models=r"gelab|step-gui",
    source="https://github.com/stepfun-ai/gelab-zero",
    syntax=TabbedFields(),
    verbs=tuple(
        replace(one, world="mobile")
        for one in (
            verb("CLICK", "click", "tap a point", point="point"),
            verb("TYPE", "type", "type value into the field at point", text="value", point="point?"),
            verb("COMPLETE", "done", "end the task; return is the report for the user", text="return?"),
            verb("WAIT", "wait", "wait for value seconds", seconds="value?"),
            verb("AWAKE", "open_app", "open the app that value names", text="value"),
            verb("INFO", "ask_user", "ask the user value", text="value"),
            verb("ABORT", "failed", "give up; value says why", text="value?"),
            verb("SLIDE", "swipe", "move the finger", point="point1", to="point2"),
            verb("LONGPRESS", "long_press", "hold a point", point="point"),
        )
    ),
    grid=Grid(span=1000),
    spelling=Spelling(point=lambda point: f"{tidy(point[0])},{tidy(point[1])}"),
    harmless={"explain": (), "summary": ()},
    labels=re.compile(r"\bexplain:"),
    opening="You operate {world} for its user, from screenshots and the steps so far.",
    unit="Points are x,y from 0 to 1000, from the top left.",
    answer="Answer in two parts:\n<THINK> why this action </THINK>\n"
    "explain:the purpose\taction:NAME and its fields\tsummary:all that has been done, this action included",
    task="The user's task: {goal}\nDone so far: {history}",
    step="{number}. {action}: {reason}",
    no_steps="nothing",
)

DIALECTS = (GELAB,)
