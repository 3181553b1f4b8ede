"""Simple SMS Messenger: conversations, one conversation, and a new one."""

from __future__ import annotations

import datetime
import random
from dataclasses import replace
from functools import partial

from collab.envs.simphone.app import App, Item, View, button, icon, item, row, text, text_field
from collab.envs.simphone.content.messages import (
    ADDRESSES,
    INBOX,
    MESSENGER,
    SENT,
    SMS,
    THREADS,
    Conversation,
    add_message,
    find_conversation,
    list_conversations,
    mark_read,
    remove_messages,
)
from collab.envs.simphone.content.people import extract_digits, list_people, name_of
from collab.envs.simphone.content.pools import SENTENCES, draw_number
from collab.envs.simphone.state import (
    Notification,
    Page,
    Phone,
    TableRow,
    close_app,
    dismiss,
    keep,
    notify,
    pop,
    push,
    put_field,
    rows,
    start,
    swap,
    toast,
)

PACKAGE = MESSENGER
_ID = PACKAGE + ":id/"
_LATEST_MS = 253_402_300_799_000
"""The last second that a date can be made of."""
_END = 1 << 20
"""Further down than any conversation is long."""


def conversation_list(phone: Phone, page: Page) -> View:
    """Show all conversations, the newest first, each with its latest message."""
    body: list[Item] = [_conversation(phone, one) for one in list_conversations(phone)]
    if not body:
        body = [text("No stored conversations have been found", _ID + "no_conversations_placeholder")]
    return View(
        title="Messages",
        body=body,
        fab=icon("New conversation", _ID + "conversations_fab", _start_conversation),
    )


def new_conversation(phone: Phone, page: Page) -> View:
    """Ask for the receiver: a number, or a contact by name."""
    typed = page.fields.get("address", "").strip()
    # By name or by number, whatever is typed.
    found = [
        one
        for one in list_people(phone)
        if one.number and (typed.casefold() in one.name.casefold() or typed in one.number)
    ]
    address = text_field(page, "address", "Add Contact or Number…", _ID + "new_conversation_address", enter=_confirm)
    confirm = icon("Confirm recipient", _ID + "new_conversation_confirm", _confirm)
    body: list[Item] = [row(address, confirm)]
    body += [
        item(one.name, f"{_ID}contact/{one.id}", partial(_start_with, address=one.number), value=one.number)
        for one in found
    ]
    return View(title="New conversation", body=body)


def conversation(phone: Phone, page: Page) -> View:
    """Show one conversation: its messages, oldest first, and the line to write on."""
    address = str(page.data["address"])
    # A conversation without messages exists on this page only, until the first one is sent.
    found = find_conversation(phone, address)
    messages = found.messages if found else ()
    body: list[Item] = [_bubble(one, page) for one in messages]
    compose = text_field(page, "message", "Type a message…", _ID + "thread_type_message", multiline=True)
    # A long press chooses a message; actions are then its own and not the conversation's.
    chosen = page.data.get("chosen")
    actions = (
        (
            icon("Copy to clipboard", _ID + "cab_copy_to_clipboard", _copy),
            icon("Delete", _ID + "cab_delete", _ask_delete),
        )
        if chosen is not None
        else (icon("Dial number", _ID + "dial_number", _dial),)
    )
    return View(
        title=name_of(phone, address) or address,
        body=body,
        footer=row(compose._replace(height=210), button("SMS", _ID + "thread_send_message", _send)),
        actions=actions,
        back=_unselect if chosen is not None else None,
        # Read is what was left: unread marks vanish on leaving, as in the app.
        leave=partial(_read, address=address),
    )


def delete(phone: Phone, page: Page) -> View:
    """Show the question before a message is deleted."""
    return View(
        title="Delete",
        style="dialog",
        body=[text("Are you sure you want to delete this message?", _ID + "message")],
        actions=(
            button("No", _ID + "no", pop),
            button("Yes", _ID + "yes", partial(_delete, id=int(page.data["id"]))),
        ),
    )


def open_conversation(phone: Phone, address: str) -> Phone:
    """Show the conversation with a number, from any app."""
    phone = start(close_app(phone, PACKAGE), PACKAGE, APP.pages)
    return _start_with(phone, address, closing=0)


def receive(phone: Phone, address: str, body: str) -> Phone:
    """Receive a message: store it unread, and notify unless its conversation is in sight."""
    phone = add_message(phone, address, body, INBOX, read=False)
    known = find_conversation(phone, address)
    address = known.address if known else address
    page = Page(screen="messages.conversation", data={"address": address}, scroll=_END)
    if phone.foreground == PACKAGE and phone.page.data.get("address") == address:
        return phone
    title = name_of(phone, address) or address
    return notify(phone, Notification(key=_key(address), package=PACKAGE, title=title, text=body, opens=page))


def _key(address: str) -> str:
    return f"sms/{address}"


def _read(phone: Phone, address: str) -> Phone:
    known = find_conversation(phone, address)
    return mark_read(phone, known.thread) if known is not None else phone


def _conversation(phone: Phone, one: Conversation) -> Item:
    title = name_of(phone, one.address) or one.address
    title = f"{title} (unread)" if one.unread else title
    open_it = partial(_start_with, address=one.address, closing=0)
    return item(
        title, f"{_ID}conversation/{one.thread}", open_it, value=f"{one.latest['body']} · {_format_date(phone, one)}"
    )


def _format_date(phone: Phone, one: Conversation) -> str:
    sent_ms = min(max(int(one.latest["date"] or 0), 0), _LATEST_MS)  # another program may have written anything
    when = datetime.datetime.fromtimestamp(sent_ms / 1000, tz=datetime.UTC)
    today = datetime.datetime.fromtimestamp(phone.now_ms / 1000, tz=datetime.UTC).date()
    return f"{when:%H:%M}" if when.date() == today else f"{when:%b} {when.day}"


def _bubble(one: TableRow, page: Page) -> Item:
    who = "You: " if one["type"] == SENT else ""
    node = text(f"{who}{one['body']}", f"{_ID}message/{one['_id']}", hold=partial(keep, chosen=one["_id"]))
    return node._replace(flags=("selected",)) if page.data.get("chosen") == one["_id"] else node


def _start_conversation(phone: Phone) -> Phone:
    return push(phone, Page(screen="messages.new", focus="address"))


def _confirm(phone: Phone) -> Phone:
    address = phone.page.fields.get("address", "").strip()
    if not address:
        return toast(phone, "Enter a contact or number")
    if not extract_digits(address):
        match = next((one.number for one in list_people(phone) if one.name.casefold() == address.casefold()), None)
        if match is None:
            return toast(phone, "No such contact")
        address = match
    return _start_with(phone, address)


def _start_with(phone: Phone, address: str, closing: int = 1) -> Phone:
    known = find_conversation(phone, address)
    if known is not None:
        phone, address = mark_read(dismiss(phone, _key(known.address)), known.thread), known.address
    page = Page(screen="messages.conversation", data={"address": address}, scroll=_END)
    return swap(phone, page) if closing else push(phone, page)


def _send(phone: Phone) -> Phone:
    body = phone.page.fields.get("message", "").strip()
    if not body:
        return phone
    address = str(phone.page.data["address"])
    return put_field(add_message(phone, address, body, SENT), "message", "")


def _dial(phone: Phone) -> Phone:
    return toast(phone, "Calls are not possible: no network")


def _unselect(phone: Phone) -> Phone:
    return keep(phone, chosen=None)


def _copy(phone: Phone) -> Phone:
    chosen = phone.page.data["chosen"]
    body = next((str(one["body"]) for one in rows(phone, SMS) if one["_id"] == chosen), "")
    return toast(_unselect(replace(phone, clipboard=body)), "Value copied to clipboard")


def _ask_delete(phone: Phone) -> Phone:
    return push(phone, Page(screen="messages.delete", data={"id": phone.page.data["chosen"]}))


def _delete(phone: Phone, id: int) -> Phone:
    return _unselect(pop(remove_messages(phone, lambda one: one["_id"] == id)))


def _add_noise(phone: Phone, rng: random.Random) -> Phone:
    for age in range(rng.randint(1, 4), 0, -1):
        when = phone.now_ms - age * 86_400_000 - rng.randrange(40_000_000)
        phone = add_message(phone, draw_number(rng), rng.choice(SENTENCES), INBOX, date=when)
    return phone


APP = App(
    package=PACKAGE,
    names=("Simple SMS Messenger", "Messages", "SMS Messenger"),
    activity=".activities.MainActivity",
    pages=(Page(screen="messages.list"),),
    screens={
        "messages.list": conversation_list,
        "messages.new": new_conversation,
        "messages.conversation": conversation,
        "messages.delete": delete,
    },
    tables=(SMS, THREADS, ADDRESSES),
    noise=_add_noise,
)
