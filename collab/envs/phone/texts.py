"""The telephony provider: text messages, in Android's mmssms database."""

from __future__ import annotations

from dataclasses import dataclass

from collab.envs.phone.databases import Table, insert, rows, update
from collab.envs.phone.people import digits
from collab.envs.phone.state import Phone, Row

SMS_DATABASE = "/data/data/com.android.providers.telephony/databases/mmssms.db"
SMS = Table(
    path=SMS_DATABASE,
    name="sms",
    columns=(
        ("_id", "INTEGER PRIMARY KEY"),
        ("thread_id", "INTEGER"),
        ("address", "TEXT"),
        ("date", "INTEGER"),
        ("read", "INTEGER DEFAULT 0"),
        ("type", "INTEGER"),
        ("body", "TEXT"),
    ),
)
THREADS = Table(
    path=SMS_DATABASE,
    name="threads",
    columns=(("_id", "INTEGER PRIMARY KEY AUTOINCREMENT"), ("date", "INTEGER DEFAULT 0"), ("recipient_ids", "TEXT")),
)
ADDRESSES = Table(
    path=SMS_DATABASE,
    name="canonical_addresses",
    columns=(("_id", "INTEGER PRIMARY KEY AUTOINCREMENT"), ("address", "TEXT")),
)
INBOX, SENT = 1, 2
"""Android's message types."""


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
        threads.setdefault(int(row["thread_id"] or 0), []).append(row)
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
    if known is None:
        phone, recipient = insert(phone, ADDRESSES, address=address)
        phone, thread = insert(phone, THREADS, date=date, recipient_ids=str(recipient))
    else:
        thread = known.thread
        phone = update(phone, THREADS, lambda row: row["_id"] == thread, date=date)
    phone, _ = insert(phone, SMS, thread_id=thread, address=address, date=date, read=int(read), type=type, body=body)
    return phone


def mark_read(phone: Phone, thread: int) -> Phone:
    """Note that a conversation was opened."""
    if all(row["read"] for row in rows(phone, SMS) if row["thread_id"] == thread):
        return phone
    return update(phone, SMS, lambda row: row["thread_id"] == thread, read=1)


def _age(row: Row) -> tuple[int, int]:
    return int(row["date"] or 0), int(row["_id"] or 0)
