"""Screens that belong to the system and show over any app: the menu of a text field."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from collab.envs.phone.apps import system_recents, system_shade
from collab.envs.phone.state import Page, Phone, focus_on, pop, put_field, toast
from collab.envs.phone.widgets import Item, View, item

TEXT_MENU = "system.text_menu"
_MENU_ID = "android:id/"


def text_menu(phone: Phone, page: Page) -> View:
    """What a long press on a text field offers; it acts on the field's whole text."""
    text = str(page.data["text"])
    body: list[Item] = []
    if text:
        body += [
            item("Cut", _MENU_ID + "cut", partial(_cut, page)),
            item("Copy", _MENU_ID + "copy", partial(_copy, page)),
        ]
    if phone.clipboard:
        body.append(item("Paste", _MENU_ID + "paste", partial(_paste, page)))
    body.append(item("Done", _MENU_ID + "done", partial(_close_menu, page)))
    return View(title="Text selection", body=body, style="menu")


def _close_menu(page: Page, phone: Phone) -> Phone:
    return focus_on(pop(phone), str(page.data["field"]))


def _copy(page: Page, phone: Phone) -> Phone:
    return toast(replace(_close_menu(page, phone), clipboard=str(page.data["text"])), "Copied")


def _cut(page: Page, phone: Phone) -> Phone:
    return put_field(_copy(page, phone), str(page.data["field"]), "")


def _paste(page: Page, phone: Phone) -> Phone:
    phone = _close_menu(page, phone)
    field = str(page.data["field"])
    return put_field(phone, field, phone.page.fields.get(field, "") + phone.clipboard)


SCREENS = {TEXT_MENU: text_menu, **system_shade.SHADE_SCREENS, **system_recents.RECENTS_SCREENS}
