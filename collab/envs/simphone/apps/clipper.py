"""Clipper: a small app that shows the clipboard and copies text to it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from collab.envs.simphone.app import App, Item, View, button, heading, item, text, text_field
from collab.envs.simphone.state import Page, Phone, recall, remember, toast

PACKAGE = "ca.zgrs.clipper"
_ID = PACKAGE + ":id/"


def main(phone: Phone, page: Page) -> View:
    """Show the clipboard, a field for something new, and earlier clips."""
    clips = recall(phone, PACKAGE, "clips", ())
    body: list[Item] = [
        text(f"Clipboard: {phone.clipboard}" if phone.clipboard else "The clipboard is empty", _ID + "clipboard"),
        text_field(page, "text", "Text to copy", _ID + "text"),
        button("Copy to clipboard", _ID + "copy", _copy_typed),
    ]
    if clips:
        body.append(heading("Earlier clips", _ID + "earlier"))
        body += [item(clip, f"{_ID}clip/{place}", partial(_copy, clip=clip)) for place, clip in enumerate(clips)]
    return View(title="Clipper", body=body)


def _copy_typed(phone: Phone) -> Phone:
    typed = phone.page.fields.get("text", "")
    return _copy(phone, typed) if typed else toast(phone, "Nothing to copy")


def _copy(phone: Phone, clip: str) -> Phone:
    clips = recall(phone, PACKAGE, "clips", ())
    phone = remember(phone, PACKAGE, clips=(clip, *(other for other in clips if other != clip)))
    return toast(replace(phone, clipboard=clip), "Copied to clipboard")


APP = App(
    package=PACKAGE,
    names=("Clipper",),
    activity=".Main",
    pages=(Page(screen="clipper.main"),),
    screens={"clipper.main": main},
)
