"""The telephony provider: text messages, in Android's mmssms database."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from collab.envs.simphone.content.people import extract_digits
from collab.envs.simphone.state import Phone, Table, TableRow, insert, remove, rows, to_whole, update
from collab.types import Scalar

SMS_DATABASE = "/data/data/com.android.providers.telephony/databases/mmssms.db"
SMS = Table(
    path=SMS_DATABASE,
    name="sms",
    columns=(
        ("_id", "INTEGER PRIMARY KEY"),
        ("thread_id", "INTEGER"),
        ("address", "TEXT"),
        ("person", "INTEGER"),
        ("date", "INTEGER"),
        ("date_sent", "INTEGER DEFAULT 0"),
        ("protocol", "INTEGER"),
        ("read", "INTEGER DEFAULT 0"),
        ("status", "INTEGER DEFAULT -1"),
        ("type", "INTEGER"),
        ("reply_path_present", "INTEGER"),
        ("subject", "TEXT"),
        ("body", "TEXT"),
        ("service_center", "TEXT"),
        ("locked", "INTEGER DEFAULT 0"),
        ("sub_id", "INTEGER DEFAULT -1"),
        ("error_code", "INTEGER DEFAULT -1"),
        ("creator", "TEXT"),
        ("seen", "INTEGER DEFAULT 0"),
    ),
    used=("_id", "thread_id", "address", "date", "read", "type", "sub_id", "body", "seen"),
)
THREADS = Table(
    path=SMS_DATABASE,
    name="threads",
    columns=(
        ("_id", "INTEGER PRIMARY KEY AUTOINCREMENT"),
        ("date", "INTEGER DEFAULT 0"),
        ("message_count", "INTEGER DEFAULT 0"),
        ("recipient_ids", "TEXT"),
        ("snippet", "TEXT"),
        ("snippet_cs", "INTEGER DEFAULT 0"),
        ("read", "INTEGER DEFAULT 1"),
        ("archived", "INTEGER DEFAULT 0"),
        ("type", "INTEGER DEFAULT 0"),
        ("error", "INTEGER DEFAULT 0"),
        ("has_attachment", "INTEGER DEFAULT 0"),
    ),
    used=("_id", "date", "message_count", "recipient_ids", "snippet", "read"),
)
ADDRESSES = Table(
    path=SMS_DATABASE,
    name="canonical_addresses",
    columns=(("_id", "INTEGER PRIMARY KEY AUTOINCREMENT"), ("address", "TEXT")),
)
INBOX, SENT = 1, 2
"""Android's message types."""
MESSENGER = "com.simplemobiletools.smsmessenger"
"""The app that stores messages, as Android notes with each of them."""
_SIM = 1
"""Subscription of the only SIM card."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """All messages with one number."""

    thread: int
    address: str
    messages: tuple[TableRow, ...]
    """Oldest first."""

    @property
    def latest(self) -> TableRow:
        """The newest message."""
        return self.messages[-1]

    @property
    def unread(self) -> bool:
        """Return whether any received message has not been opened."""
        return any(not row["read"] for row in self.messages)


def list_conversations(phone: Phone) -> list[Conversation]:
    """Return all conversations, the one with the newest message first."""
    threads: dict[int, list[TableRow]] = {}
    for row in sorted(rows(phone, SMS), key=_sort_key):
        threads.setdefault(to_whole(row["thread_id"]), []).append(row)
    found = [
        Conversation(thread=thread, address=str(messages[0]["address"]), messages=tuple(messages))
        for thread, messages in threads.items()
    ]
    return sorted(found, key=lambda one: _sort_key(one.latest), reverse=True)


def find_conversation(phone: Phone, address: str) -> Conversation | None:
    """Return the conversation with a number; None when there is none yet."""
    wanted = extract_digits(address) or address
    return next(
        (one for one in list_conversations(phone) if (extract_digits(one.address) or one.address) == wanted), None
    )


def list_sent(phone: Phone) -> list[TableRow]:
    """Return messages sent from this phone, oldest first."""
    return sorted((row for row in rows(phone, SMS) if row["type"] == SENT), key=_sort_key)


def add_message(
    phone: Phone, address: str, body: str, type: int, *, date: int | None = None, read: bool = True
) -> Phone:
    """Store a message; the date is now unless given (milliseconds)."""
    date = phone.now_ms if date is None else date
    known = find_conversation(phone, address)
    message: dict[str, Scalar] = {"date": date, "body": body, "read": int(read)}
    # A conversation's summary is what lists show, so it changes with every message.
    summary = _summarise([*known.messages, message] if known else [message])
    if known is None:
        phone, recipient = insert(phone, ADDRESSES, address=address)
        phone, thread = insert(phone, THREADS, recipient_ids=str(recipient), **summary)
    else:
        thread = known.thread
        phone = update(phone, THREADS, partial(_is, thread), **summary)
    message |= {"thread_id": thread, "address": address, "type": type, "seen": int(read)}
    return insert(phone, SMS, sub_id=_SIM, creator=MESSENGER, **message)[0]


def change_messages(phone: Phone, matches: Callable[[TableRow], bool], **values: Scalar) -> Phone:
    """Change columns of all messages that match."""
    threads = _find_threads(phone, matches)
    phone = update(phone, SMS, matches, **values)
    return _update_summaries(phone, threads | _find_threads(phone, matches))


def remove_messages(phone: Phone, matches: Callable[[TableRow], bool]) -> Phone:
    """Delete all messages that match; a conversation goes with its last one."""
    threads = _find_threads(phone, matches)
    return _update_summaries(remove(phone, SMS, matches), threads)


def mark_read(phone: Phone, thread: int) -> Phone:
    """Note that a conversation was opened."""
    if all(row["read"] for row in rows(phone, SMS) if row["thread_id"] == thread):
        return phone
    return change_messages(phone, lambda row: row["thread_id"] == thread, read=1, seen=1)


def _find_threads(phone: Phone, matches: Callable[[TableRow], bool]) -> set[Scalar]:
    return {row["thread_id"] for row in rows(phone, SMS) if matches(row)}


def _update_summaries(phone: Phone, threads: set[Scalar]) -> Phone:
    """Note in the rows of conversations what is in them, as Android's triggers do."""
    for thread in threads:
        messages = [row for row in rows(phone, SMS) if row["thread_id"] == thread]
        if messages:
            phone = update(phone, THREADS, partial(_is, thread), **_summarise(messages))
        else:
            phone = remove(phone, THREADS, partial(_is, thread))
    return phone


def _summarise(messages: list[TableRow]) -> dict[str, Scalar]:
    """Summarise a conversation's messages for its row; of two at the same time the later one is the newest."""
    newest = sorted(messages, key=lambda row: to_whole(row["date"]))[-1]
    return {
        "date": newest["date"],
        "message_count": len(messages),
        "snippet": newest["body"],
        "read": int(all(row["read"] for row in messages)),
    }


def _is(id: Scalar, row: TableRow) -> bool:
    return row["_id"] == id


def _sort_key(row: TableRow) -> tuple[int, int]:
    return to_whole(row["date"]), to_whole(row["_id"])
