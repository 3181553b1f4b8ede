"""Tasks on live pages: what a task file says, and how a page is judged.

    tasks:
      - name: buy-a-mug
        start: http://shop.test/
        goal: Buy one blue mug.
        success: {selector: "#order", text: Thank you}

Everything that `success` names must hold at once, in the tab that is shown.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote, urlsplit, urlunsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from collab.envs import task_files
from collab.envs.text import cut
from collab.envs.web.worlds import evaluate_in_page, find_world
from collab.utils.redact import hide_in_addresses
from collab.utils.text import format_amount

if TYPE_CHECKING:
    from playwright.async_api import Page


class PageSuccess(BaseModel):
    """When a task is solved. Give at least one of address, prefix, selector, script, answer."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    address: str | None = None
    """Regular expression, searched in the page's address."""
    prefix: str | None = None
    """What the page's address begins with."""
    selector: str | None = None
    """CSS selector: an element that matches must be there."""
    text: str | None = None
    """Only elements that contain this text count (spaces and case do not matter); needs `selector`."""
    attributes: dict[str, str] = {}
    """Only elements with these attribute values count; needs `selector`."""
    count: int | None = Field(default=None, ge=0)
    """Exactly so many must match; None for at least one. Needs `selector`."""
    visible: bool = True
    """Whether only elements that can be seen count."""
    script: str | None = None
    """JavaScript expression, evaluated in the page: true, false or a score from 0 to 1. One that throws is false."""
    answer: str | list[str] | None = None
    """What `finish(answer=…)` must say, or any of several (spaces and case do not matter)."""

    @field_validator("address")
    @classmethod
    def _compiles(cls, value: str | None) -> str | None:
        try:
            re.compile(value or "")
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from None
        return value

    @model_validator(mode="after")
    def _says_something(self) -> PageSuccess:
        if all(value is None for value in (self.address, self.prefix, self.selector, self.script, self.answer)):
            raise ValueError("give at least one of address, prefix, selector, script, answer")
        if self.selector is None and (self.text is not None or self.attributes or self.count is not None):
            raise ValueError("text, attributes and count need a selector")
        return self


class LiveTask(BaseModel):
    """One task of a task file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=r"^[\w.-]+$")
    start: str
    """Address the episode begins at."""
    goal: str = Field(min_length=1)
    success: PageSuccess
    on_finish: bool = False
    """Judge only when the agent finishes (or its steps run out); False ends the episode as soon as it is solved."""
    user_reply: str | None = None
    """What the user says to `user_input`; None ends the episode there, unsolved: no user is watching."""
    max_steps: int = Field(default=30, ge=1)
    difficulty: Literal["easy", "medium", "hard"] | None = None
    apps: list[str] = []
    tags: list[str] = []

    @property
    def address(self) -> str:
        """The start address without a user part, as the browser is sent there."""
        try:
            parts = urlsplit(self.start)
        except ValueError:  # no address at all, as the host policy will say
            return self.start
        return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))

    @property
    def credentials(self) -> dict[str, str] | None:
        """Return the credentials in the start address, for the site's own sign-in prompt; None without any."""
        parts = urlsplit(self.start)
        if "@" not in parts.netloc:
            return None
        name, _, password = parts.netloc.rpartition("@")[0].partition(":")
        origin = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        return {"username": unquote(name), "password": unquote(password), "origin": origin}

    @property
    def shown_start(self) -> str:
        """The start address for messages and records, without secrets."""
        return str(hide_in_addresses(self.address))


def load_tasks(tasks: Path | list[dict[str, Any]]) -> tuple[LiveTask, ...]:
    """Read tasks on live pages; see `task_files.load_tasks`."""
    return task_files.load_tasks(tasks, LiveTask, "web tasks")


# ------------------------------------------------------------------------------------------------------- judging


@dataclass(frozen=True, slots=True, kw_only=True)
class PageVerdict:
    """Score of a page."""

    score: float
    """In [0, 1]; 1 is solved."""
    reason: str

    @property
    def solved(self) -> bool:
        """Return whether everything holds."""
        return self.score >= 1.0


async def judge(success: PageSuccess, page: Page, answer: str | None) -> PageVerdict:
    """Judge a page.

    Args:
        success: the task's condition.
        page: the tab that is shown.
        answer: the agent's answer; None before it finished, or without one.

    Raises:
        playwright.async_api.Error: the page is gone.
    """
    missing = _explain_address_misfit(success, page.url) or _answer_misfit(success, answer)
    if missing is None and success.selector is not None:
        missing = await _explain_selector_misfit(success, page)
    if missing is not None:
        return PageVerdict(score=0.0, reason=missing)
    if success.script is not None:
        return await _judge_by_script(success.script, page)
    return PageVerdict(score=1.0, reason="everything the task asks for holds")


def _explain_address_misfit(success: PageSuccess, url: str) -> str | None:
    told = cut(hide_in_addresses(url), 200)
    if success.address is not None and not re.search(success.address, url):
        return f"the address {told} does not match {success.address}"
    if success.prefix is not None and not url.startswith(success.prefix):
        return f"the address {told} does not begin with {hide_in_addresses(success.prefix)}"
    return None


def _answer_misfit(success: PageSuccess, answer: str | None) -> str | None:
    if success.answer is None:
        return None
    accepted = [success.answer] if isinstance(success.answer, str) else success.answer
    if answer is not None and _normalise(answer) in map(_normalise, accepted):
        return None
    return "no answer was given" if answer is None else f"the answer {answer[:100]!r} is not the expected one"


_COUNT = """([selector, text, attributes, visible]) => {
  const plain = (value) => value.replace(/\\s+/g, " ").trim().toLowerCase();
  const call = (el, name, ...rest) => Element.prototype[name].call(el, ...rest);  // a form's fields may hide its own
  const seen = (el) => call(el, "getClientRects").length > 0
    && call(el, "checkVisibility", { visibilityProperty: true, opacityProperty: true });
  const own = (el, kind, name) => Reflect.get(kind.prototype, name, el);
  const isField = (el) => /^(INPUT|TEXTAREA|SELECT)$/.test(own(el, Element, "tagName"));
  const told = (el) => (isField(el) ? el.value : own(el, Node, "textContent"));
  const fits = (el) => (!visible || seen(el))
    && (text === null || plain(told(el)).includes(plain(text)))
    && Object.entries(attributes).every(([name, value]) => call(el, "getAttribute", name) === value);
  try { return [...document.querySelectorAll(selector)].filter(fits).length; } catch (error) { return String(error); }
}"""


async def _explain_selector_misfit(success: PageSuccess, page: Page) -> str | None:
    asked = json.dumps([success.selector, success.text, success.attributes, success.visible])
    found = await (await find_world(page)).evaluate(f"({_COUNT})({asked})")
    if isinstance(found, str):
        return f"the selector {success.selector} cannot be used: {found[:200]}"
    if found == success.count or (success.count is None and found):
        return None
    wanted = "at least one" if success.count is None else str(success.count)
    what = f"{success.selector}" + (f" with the text {success.text!r}" if success.text is not None else "")
    return f"{format_amount(found, 'element')} match {what}, wanted: {wanted}"


async def _judge_by_script(script: str, page: Page) -> PageVerdict:
    value, thrown = await evaluate_in_page(page, f"(async () => ({script}\n))()")
    if thrown is not None:
        return PageVerdict(score=0.0, reason=f"the success script threw {_join_lines(thrown)}")
    if isinstance(value, (bool, int, float)) and math.isfinite(value) and 0 <= value <= 1:
        return PageVerdict(score=float(value), reason=f"the success script gave {json.dumps(value)}")
    return PageVerdict(
        score=0.0, reason=f"the success script gave {_join_lines(value)!r}, allowed: true, false, 0 to 1"
    )


def _join_lines(value: object) -> str:
    return cut(str(value), 200)


def _normalise(text: str) -> str:
    return " ".join(text.split()).casefold()
