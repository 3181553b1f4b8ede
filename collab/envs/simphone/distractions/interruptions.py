"""Interruptions: each has a button that gets rid of it, and another that leads further away.

Whatever is done on a cover changes the cover alone: the app below, its data and everything that a task's success is
judged by stay as they were. A cover is a short sequence of stages, and every stage can be left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Literal, NamedTuple

from collab.envs.simphone.app import Item, UiNode, View, button, line, text
from collab.envs.simphone.content.pools import draw_name
from collab.envs.simphone.state import LAUNCHER, Cover, Notification, Phone, dismiss, notify
from collab.seeds import generator
from collab.types import Action

_ID = "com.android.systemui:id/"


class Button(NamedTuple):
    """A button of a stage."""

    label: str
    id: str
    to: str | None = None
    """Stage it leads to; None: the interruption is over."""


class InterruptionStage(NamedTuple):
    """One screen of an interruption."""

    style: Literal["screen", "dialog", "sheet", "banner"]
    title: str
    """{app} stands for the app in front."""
    lines: tuple[str, ...]
    """{about} stands for what the cover is about."""
    out: Button
    """Gets rid of it."""
    on: Button | None = None
    """Leads astray."""
    patience: int = 0
    """Actions after which it gives way to `then` by itself; 0: it stays."""
    then: str | None = None
    """Stage that follows when patience is over; None: nothing."""


STAGES: Mapping[tuple[str, str], InterruptionStage] = {
    ("call", "first"): InterruptionStage(
        "screen", "Incoming call", ("{about}",), Button("Decline", "decline"), Button("Answer", "answer", "talking")
    ),
    ("call", "talking"): InterruptionStage("screen", "Ongoing call", ("{about}",), Button("End call", "end_call")),
    ("battery", "first"): InterruptionStage(
        "dialog",
        "Battery is low",
        ("15% left. Battery Saver makes it last longer.",),
        Button("No thanks", "battery_dismiss"),
        Button("Battery Saver", "battery_saver", "saver"),
    ),
    ("battery", "saver"): InterruptionStage(
        "screen",
        "Battery Saver",
        ("Battery Saver restricts background activity and some animations.", "Turns on by itself at 10%"),
        Button("Go back", "battery_back"),
    ),
    ("update", "first"): InterruptionStage(
        "dialog",
        "System update available",
        ("Your phone has to restart to install it.",),
        Button("Later", "update_later"),
        Button("Install now", "update_install", "installing"),
    ),
    ("update", "installing"): InterruptionStage(
        "screen",
        "Installing system update…",
        ("Step 1 of 2. Do not turn off your phone.",),
        Button("Cancel update", "update_cancel"),
    ),
    ("rating", "first"): InterruptionStage(
        "sheet",
        "Do you like {app}?",
        ("Rate it in the app store. It takes only a moment.",),
        Button("Not now", "rating_dismiss"),
        Button("Rate now", "rating_open", "store"),
    ),
    ("rating", "store"): InterruptionStage(
        "screen", "App store", ("{app}", "Tap the stars to rate this app."), Button("Leave the store", "store_close")
    ),
    ("alarm", "first"): InterruptionStage(
        "screen", "Alarm", ("15:34",), Button("Stop", "alarm_stop"), Button("Snooze", "alarm_snooze", "snoozed")
    ),
    ("alarm", "snoozed"): InterruptionStage(
        "banner", "Alarm", ("Snoozed",), Button("Dismiss alarm", "alarm_dismiss"), patience=3, then="first"
    ),
    ("banner", "first"): InterruptionStage(
        "banner",
        "{about}",
        (),
        Button("Dismiss", "heads_up_dismiss"),
        Button("Read more", "heads_up_open", "opened"),
        patience=4,
    ),
    ("banner", "opened"): InterruptionStage(
        "screen", "{about}", ("There is nothing more to read here yet.",), Button("Close", "heads_up_close")
    ),
}
KINDS = tuple(dict.fromkeys(kind for kind, _ in STAGES))
_HEADS_UP = "heads_up"
"""Key of the notification that a banner shows; it stays in the shade unless the banner is touched."""
_STICKY = ("call", "alarm")
"""Back does not get rid of these, and going elsewhere only shrinks them."""
_TAPS = ("click", "double_tap", "long_press")
_BANNERS = (
    "Rain is expected from 17:00",
    "3 apps have been updated",
    "Your photos of last week are ready",
    "Your screen time was 2 h 14 min yesterday",
    "A new Wi-Fi network is in reach",
)


def begin(phone: Phone, kind: str, seed: int) -> Phone:
    """Show an interruption; do nothing while another is shown."""
    if phone.cover is not None:
        return phone
    rng = generator(seed)
    if kind == "rating" and phone.foreground == LAUNCHER:
        kind = "battery"  # there is no app to be rated
    about = {"call": draw_name(rng), "banner": rng.choice(_BANNERS)}.get(kind, "")
    if kind == "banner":
        phone = notify(phone, Notification(key=_HEADS_UP, package="android", title=about))
    return replace(phone, cover=_make_cover(Cover(kind=kind, about=about), "first"))


def is_banner(cover: Cover) -> bool:
    """Return whether it leaves the screen below it in use."""
    return cover.small or STAGES[cover.kind, cover.stage].style == "banner"


def find_way_out(cover: Cover) -> str:
    """Return the key of the button that gets rid of it."""
    return _ID + STAGES[cover.kind, cover.stage].out.id


# ------------------------------------------------------------------------------------------------------- on the screen


def build_covering(phone: Phone, cover: Cover) -> View:
    """Return the screen of an interruption that is no banner."""
    stage = STAGES[cover.kind, cover.stage]
    title, lines = _choose_words(phone, cover, stage)
    keys = ("cover_about" if words == "{about}" else f"cover_text_{place}" for place, words in enumerate(stage.lines))
    texts: list[Item] = [text(words, _ID + key) for words, key in zip(lines, keys, strict=True)]
    buttons = tuple(_build_buttons(stage))
    if stage.style == "screen":
        return View(title=title, body=texts, footer=line(*buttons))
    style: Literal["dialog", "sheet"] = "sheet" if stage.style == "sheet" else "dialog"
    return View(title=title, style=style, body=texts, actions=buttons)


def build_banner(phone: Phone, cover: Cover) -> tuple[UiNode, ...]:
    """Return a banner's text, then its buttons."""
    stage = STAGES[cover.kind, cover.stage]
    title, lines = _choose_words(phone, cover, stage)
    said = text(title, _ID + "heads_up_text", value=lines[0] if lines else None)
    return said, *_build_buttons(stage)


def _choose_words(phone: Phone, cover: Cover, stage: InterruptionStage) -> tuple[str, list[str]]:
    app = phone.apps.by_package[phone.foreground].name
    said = [words.format(app=app, about=cover.about) for words in (stage.title, *stage.lines)]
    return said[0], said[1:]


def _build_buttons(stage: InterruptionStage) -> list[UiNode]:
    buttons = (stage.out, stage.on) if stage.on is not None else (stage.out,)
    return [button(one.label, _ID + one.id, partial(_press, to=one.to)) for one in buttons]


def _press(phone: Phone, to: str | None) -> Phone:
    if phone.cover is not None and phone.cover.kind == "banner":
        phone = dismiss(phone, _HEADS_UP)
    if phone.cover is None or to is None:
        return replace(phone, cover=None)
    return replace(phone, cover=_make_cover(phone.cover, to))


def _make_cover(cover: Cover, stage: str) -> Cover:
    return replace(cover, stage=stage, small=False, left=STAGES[cover.kind, stage].patience)


# ----------------------------------------------------------------------------------------------------------- touching


def act_on(phone: Phone, cover: Cover, node: UiNode | None, action: Action, below: Callable[[Phone], Phone]) -> Phone:
    """Act on the interruption that is shown.

    Args:
        node: what the action is aimed at; None for no target.
        below: does the action on the phone as if nothing were over it; the cover itself is left as it is.
    """
    if is_banner(cover):
        return _age_banner(cover, below(phone))
    # Waiting outlasts most interruptions.
    if action.type in ("wait", "answer"):
        return below(phone)
    # Leaving the screen makes a sticky one small, and does not end it.
    if action.type in ("navigate_home", "open_app"):
        stays = replace(cover, small=True) if cover.kind in _STICKY else None
        return replace(below(replace(phone, cover=None)), cover=stays)
    if action.type == "navigate_back":
        return phone if cover.kind in _STICKY else replace(phone, cover=None)
    if action.type in _TAPS and node is not None and node.tap is not None:
        return node.tap(phone)
    return phone


def _age_banner(cover: Cover, phone: Phone) -> Phone:
    """Let a banner go by itself after a while, or make way for what it announced."""
    if phone.cover != cover or not cover.left:
        return phone
    if cover.left > 1:
        return replace(phone, cover=replace(cover, left=cover.left - 1))
    then = STAGES[cover.kind, cover.stage].then
    return replace(phone, cover=None if then is None else _make_cover(cover, then))
