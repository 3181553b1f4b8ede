"""Ways through Simple Calendar Pro that its tasks share."""

from __future__ import annotations

from collab.envs.phone.apps.calendar import cell_key
from collab.envs.phone.apps.calendar_pickers import PACKAGE
from collab.envs.phone.events import month_of
from collab.envs.phone.screen import Frame
from collab.envs.phone.tasks import plans
from collab.types import Action

ID = PACKAGE + ":id/"
APP_NAME = "Simple Calendar Pro"


def to_view(frame: Frame, view: str) -> Action | None:
    """Show the month or the list; None when it is in front."""
    if not plans.in_app(frame, PACKAGE):
        return plans.open_app(APP_NAME)
    if plans.here(frame) == f"calendar.main/{view}":
        return None
    if frame.page.screen == "calendar.main":
        return plans.aim(frame, ID + "change_view")
    if frame.page.screen == "calendar.views":
        return plans.aim(frame, f"{ID}view/{view}")
    return leave(frame)


def to_day(frame: Frame, day: int) -> Action | None:
    """Show a day's events; None when they are in front."""
    if plans.in_app(frame, PACKAGE) and frame.page.screen == "calendar.day" and frame.page.data["day"] == day:
        return None
    step = to_view(frame, "month")
    if step is not None:
        return step
    if frame.index(cell_key(day)) is not None or cell_key(day) in frame.placed.hidden:
        return plans.aim(frame, cell_key(day))
    later = month_of(day) > int(frame.page.data["month"])
    return plans.aim(frame, ID + ("top_right_arrow" if later else "top_left_arrow"))


def to_search(frame: Frame, words: str) -> Action | None:
    """Search for words; None when the results are in front."""
    if not plans.in_app(frame, PACKAGE):
        return plans.open_app(APP_NAME)
    if frame.page.screen == "calendar.search":
        return plans.fill(frame, ID + "top_toolbar_search", words)
    return plans.aim(frame, ID + "search") if frame.page.screen == "calendar.main" else leave(frame)


def leave(frame: Frame) -> Action:
    """Close the page in front without saving anything."""
    if frame.page.screen == "calendar.discard":
        return plans.aim(frame, ID + "discard")
    return plans.back()
