"""Contacts: the list, a person, and the form for a new one."""

from __future__ import annotations

import random
from functools import partial

from collab.envs.simphone.app import (
    App,
    Item,
    View,
    button,
    heading,
    icon,
    item,
    line,
    radio,
    spinner,
    text,
    text_field,
)
from collab.envs.simphone.apps.messages import open_conversation
from collab.envs.simphone.content.people import (
    CONTACT_TABLES,
    LABELS,
    Person,
    add_person,
    change_person,
    find_person,
    list_people,
    remove_person,
)
from collab.envs.simphone.content.pools import draw_name, draw_number
from collab.envs.simphone.state import Page, Phone, keep, pop, push, swap, toast

PACKAGE = "com.google.android.contacts"
_ID = PACKAGE + ":id/"
_FIELDS = ("first", "last", "company", "phone", "email")


def contact_list(phone: Phone, page: Page) -> View:
    """Show all contacts by name; the search field narrows the list."""
    wanted = page.fields.get("search", "").strip().casefold()
    found = [one for one in list_people(phone) if wanted in one.name.casefold()]
    body: list[Item] = [text_field(page, "search", "Search contacts", _ID + "search")]
    body += [item(one.name, f"{_ID}contact/{one.id}", partial(_open, id=one.id)) for one in found]
    if not found:
        body.append(text("No contacts", _ID + "empty"))
    return View(title="Contacts", body=body, fab=icon("Create contact", _ID + "floating_action_button", _create))


def detail(phone: Phone, page: Page) -> View:
    """Show one person."""
    one = find_person(phone, int(page.data["id"]))
    # A contact may have been deleted under an open page.
    if one is None:
        return View(title="Contact", body=[text("This contact does not exist any more", _ID + "gone")])
    body: list[Item] = [heading(one.name, _ID + "name")]
    if one.number:
        body.append(
            line(
                button("Call", _ID + "call", _call), button("Text", _ID + "text", partial(_open_conversation, one=one))
            )
        )
        body.append(item(one.number, _ID + "number", _call, value=one.label))
    return View(
        title="Contact details",
        body=body,
        actions=(
            icon("Edit contact", _ID + "menu_edit", partial(_edit, one=one)),
            icon("More options", _ID + "more", partial(push, page=Page(screen="contacts.menu", data=page.data))),
        ),
    )


def editor(phone: Phone, page: Page) -> View:
    """Show the form of a new or an existing contact; nothing is stored before Save."""
    label = str(page.data["label"])
    return View(
        title="Create contact" if page.data["id"] is None else "Edit contact",
        navigation=icon("Close", _ID + "close", _close_editor),
        actions=(icon("Save", _ID + "toolbar_button", _save),),
        body=[
            text_field(page, "first", "First name", _ID + "first"),
            text_field(page, "last", "Last name", _ID + "last"),
            text_field(page, "company", "Company", _ID + "company"),
            text_field(page, "phone", "Phone", _ID + "phone"),
            spinner("Phone label", _ID + "label", label, partial(push, page=Page(screen="contacts.label"))),
            text_field(page, "email", "Email", _ID + "email"),
        ],
        back=_close_editor,
    )


def label_menu(phone: Phone, page: Page) -> View:
    """Show the choice of a number's label."""
    now = phone.stacks[phone.foreground][-2].data["label"]
    body: list[Item] = [radio(name, f"{_ID}label/{name}", name == now, partial(_label, name=name)) for name in LABELS]
    return View(title="Phone label", body=body, style="menu")


def discard(phone: Phone, page: Page) -> View:
    """Show what the form asks when it is closed with something in it."""
    return View(
        title="Discard your changes?",
        style="dialog",
        body=[],
        actions=(
            button("Keep editing", _ID + "keep", pop),
            button("Discard", _ID + "discard", partial(pop, count=2)),
        ),
    )


def menu(phone: Phone, page: Page) -> View:
    """Show more that can be done with a person."""
    ask = partial(swap, page=Page(screen="contacts.delete", data=page.data))
    return View(title="More options", style="menu", body=[item("Delete", _ID + "menu_delete", ask)])


def delete(phone: Phone, page: Page) -> View:
    """Show the question before a contact is deleted."""
    return View(
        title="Delete this contact?",
        style="dialog",
        body=[],
        actions=(
            button("Cancel", _ID + "cancel", pop),
            button("Delete", _ID + "delete", partial(_delete, id=int(page.data["id"]))),
        ),
    )


def _open(phone: Phone, id: int) -> Phone:
    return push(phone, Page(screen="contacts.detail", data={"id": id}))


def _create(phone: Phone) -> Phone:
    return push(phone, Page(screen="contacts.editor", data={"id": None, "label": "Mobile"}))


def _edit(phone: Phone, one: Person) -> Phone:
    fields = {"first": one.first, "last": one.last, "phone": one.number}
    return push(phone, Page(screen="contacts.editor", data={"id": one.id, "label": one.label}, fields=fields))


def _label(phone: Phone, name: str) -> Phone:
    return keep(pop(phone), label=name)


def _call(phone: Phone) -> Phone:
    return toast(phone, "Calls are not possible: no network")


def _open_conversation(phone: Phone, one: Person) -> Phone:
    return open_conversation(phone, one.number)


def _close_editor(phone: Phone) -> Phone:
    if any(phone.page.fields.get(name) for name in _FIELDS):
        return push(phone, Page(screen="contacts.discard"))
    return pop(phone)


def _save(phone: Phone) -> Phone:
    page = phone.page
    first, last, number = (page.fields.get(name, "").strip() for name in ("first", "last", "phone"))
    if not (first or last or number):
        return toast(phone, "Nothing to save")
    label = str(page.data["label"])
    if page.data["id"] is None:
        phone, id = add_person(phone, first, last, number, label)
        return toast(swap(phone, Page(screen="contacts.detail", data={"id": id})), "Contact saved")
    return toast(pop(change_person(phone, int(page.data["id"]), first, last, number, label)), "Contact saved")


def _delete(phone: Phone, id: int) -> Phone:
    return toast(pop(remove_person(phone, id), count=2), "Contact deleted")


def _add_noise(phone: Phone, rng: random.Random) -> Phone:
    for _ in range(rng.randint(2, 6)):
        first, _, last = draw_name(rng).partition(" ")
        phone, _ = add_person(phone, first, last, draw_number(rng), rng.choice(("Mobile", "Home", "Work")))
    return phone


APP = App(
    package=PACKAGE,
    names=("Contacts",),
    activity="com.android.contacts.activities.PeopleActivity",
    pages=(Page(screen="contacts.list"),),
    screens={
        "contacts.list": contact_list,
        "contacts.detail": detail,
        "contacts.editor": editor,
        "contacts.label": label_menu,
        "contacts.discard": discard,
        "contacts.menu": menu,
        "contacts.delete": delete,
    },
    tables=CONTACT_TABLES,
    noise=_add_noise,
)
