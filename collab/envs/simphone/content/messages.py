"""The telephony provider: text messages, in Android's mmssms database."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from collab.envs.simphone.content.people import digits
from collab.envs.simphone.state import Phone, Row, Table, insert, remove, rows, update, whole
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
    messages: tuple[Row, ...]
    """Oldest first."""

    @property
    def latest(self) -> Row:
        """The newest message."""
        return self.messages[-1]

    @property
    def unread(self) -> bool:
        """Whether any received message has not been opened."""
        return any(not row["read"] for row in self.messages)


def conversations(phone: Phone) -> list[Conversation]:
    """All conversations, the one with the newest message first."""
    threads: dict[int, list[Row]] = {}
    for row in sorted(rows(phone, SMS), key=_age):
        threads.setdefault(whole(row["thread_id"]), []).append(row)
    found = [
        Conversation(thread=thread, address=str(messages[0]["address"]), messages=tuple(messages))
        for thread, messages in threads.items()
    ]
    return sorted(found, key=lambda one: _age(one.latest), reverse=True)


def conversation_with(phone: Phone, address: str) -> Conversation | None:
    """The conversation with a number; None when there is none yet."""
    wanted = digits(address) or address
    return next((one for one in conversations(phone) if (digits(one.address) or one.address) == wanted), None)


def sent(phone: Phone) -> list[Row]:
    """Messages sent from this phone, oldest first."""
    return sorted((row for row in rows(phone, SMS) if row["type"] == SENT), key=_age)


def add_message(
    phone: Phone, address: str, body: str, type: int, *, date: int | None = None, read: bool = True
) -> Phone:
    """Store a message; the date is now unless given (milliseconds)."""
    date = phone.now_ms if date is None else date
    known = conversation_with(phone, address)
    message: dict[str, Scalar] = {"date": date, "body": body, "read": int(read)}
    summary = _summary([*known.messages, message] if known else [message])
    if known is None:
        phone, recipient = insert(phone, ADDRESSES, address=address)
        phone, thread = insert(phone, THREADS, recipient_ids=str(recipient), **summary)
    else:
        thread = known.thread
        phone = update(phone, THREADS, partial(_is, thread), **summary)
    message |= {"thread_id": thread, "address": address, "type": type, "seen": int(read)}
    return insert(phone, SMS, sub_id=_SIM, creator=MESSENGER, **message)[0]


def change_messages(phone: Phone, matches: Callable[[Row], bool], **values: Scalar) -> Phone:
    """Change columns of all messages that match."""
    threads = _threads_of(phone, matches)
    phone = update(phone, SMS, matches, **values)
    return _summed_up(phone, threads | _threads_of(phone, matches))


def remove_messages(phone: Phone, matches: Callable[[Row], bool]) -> Phone:
    """Delete all messages that match; a conversation goes with its last one."""
    threads = _threads_of(phone, matches)
    return _summed_up(remove(phone, SMS, matches), threads)


def mark_read(phone: Phone, thread: int) -> Phone:
    """Note that a conversation was opened."""
    if all(row["read"] for row in rows(phone, SMS) if row["thread_id"] == thread):
        return phone
    return change_messages(phone, lambda row: row["thread_id"] == thread, read=1, seen=1)


def _threads_of(phone: Phone, matches: Callable[[Row], bool]) -> set[Scalar]:
    return {row["thread_id"] for row in rows(phone, SMS) if matches(row)}


def _summed_up(phone: Phone, threads: set[Scalar]) -> Phone:
    """Note in the rows of conversations what is in them, as Android's triggers do."""
    for thread in threads:
        messages = [row for row in rows(phone, SMS) if row["thread_id"] == thread]
        if messages:
            phone = update(phone, THREADS, partial(_is, thread), **_summary(messages))
        else:
            phone = remove(phone, THREADS, partial(_is, thread))
    return phone


def _summary(messages: list[Row]) -> dict[str, Scalar]:
    """What the row of a conversation says of its messages; of two at the same time the later one is the newest."""
    newest = sorted(messages, key=lambda row: whole(row["date"]))[-1]
    return {
        "date": newest["date"],
        "message_count": len(messages),
        "snippet": newest["body"],
        "read": int(all(row["read"] for row in messages)),
    }


def _is(id: Scalar, row: Row) -> bool:
    return row["_id"] == id


def _age(row: Row) -> tuple[int, int]:
    return whole(row["date"]), whole(row["_id"])
