"""Phone: favourites, recent calls, contacts and a keypad. There is no network, so no call goes out."""

from __future__ import annotations

from functools import partial

from collab.envs.simphone.app import App, Item, View, button, grid, icon, item, line, tab, text
from collab.envs.simphone.content.people import list_people
from collab.envs.simphone.state import Page, Phone, keep, push, toast

PACKAGE = "com.google.android.dialer"
_ID = PACKAGE + ":id/"
_TABS = {"favorites": "Favorites", "recents": "Recents", "contacts": "Contacts"}


def main(phone: Phone, page: Page) -> View:
    """Show the chosen tab."""
    chosen = str(page.data["page"])
    body: list[Item] = []
    if chosen == "contacts":
        body = [item(one.name, f"{_ID}contact/{one.id}", _call, value=one.number or None) for one in list_people(phone)]
    if not body:
        words = {"favorites": "No one is on your speed dial yet", "recents": "Your call history is empty"}
        body = [text(words.get(chosen, "No contacts"), _ID + "empty")]
    return View(
        title="Phone",
        body=body,
        fab=icon("Key pad", _ID + "dialpad_fab", partial(push, page=Page(screen="dialer.keypad"))),
        footer=line(
            *(tab(name, f"{_ID}tab_{key}", key == chosen, partial(keep, page=key)) for key, name in _TABS.items())
        ),
    )


def keypad(phone: Phone, page: Page) -> View:
    """Show digits and a call button."""
    number = str(page.data.get("number", ""))
    keys = [button(key, f"{_ID}key_{key}", partial(_press, key=key)) for key in "123456789*0#"]
    return View(
        title="Key pad",
        body=[
            text(number or "Enter a number", _ID + "digits"),
            *grid(keys, columns=3),
            line(button("Call", _ID + "call", _call), button("Backspace", _ID + "delete", partial(_press, key=""))),
        ],
    )


def _press(phone: Phone, key: str) -> Phone:
    number = str(phone.page.data.get("number", ""))
    return keep(phone, number=number + key if key else number[:-1])


def _call(phone: Phone) -> Phone:
    return toast(phone, "Calls are not possible: no network")


APP = App(
    package=PACKAGE,
    names=("Phone", "Dialer"),
    activity=".extensions.GoogleDialtactsActivity",
    pages=(Page(screen="dialer.main", data={"page": "favorites"}),),
    screens={"dialer.main": main, "dialer.keypad": keypad},
)
