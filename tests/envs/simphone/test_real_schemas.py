"""Android's own databases as tools that pull them, or ask sqlite3, find them."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from collab.envs.simphone.content.messages import INBOX, SENT, SMS_DATABASE, add_message, list_conversations, mark_read
from collab.envs.simphone.content.people import CONTACTS_DATABASE, add_person, change_person, list_people, remove_person
from collab.envs.simphone.core import FACTORY
from collab.envs.simphone.shell import run, tree
from collab.envs.simphone.state import Phone

ADA, ADA_ID = add_person(FACTORY, "Ada", "Lovelace", "+44 20 7946", "Work")
TALK = add_message(add_message(FACTORY, "+1555", "Hi", INBOX, read=False), "+1555", "Yo", SENT)


def asked(phone: Phone, path: str, sql: str) -> list[tuple[object, ...]]:
    """What a pulled database says."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(tree.read_bytes(phone, path))
        return connection.execute(sql).fetchall()


def columns(path: str, table: str) -> list[str]:
    return [str(column[1]) for column in asked(FACTORY, path, f"PRAGMA table_info({table})")]


def changed(phone: Phone, path: str, sql: str) -> Phone:
    result = run(phone, f'sqlite3 {path} "{sql}"')
    assert result.exit_code == 0, result.output
    return result.phone


def test_messages_have_all_columns_of_android() -> None:
    assert (
        columns(SMS_DATABASE, "sms")
        == (
            "_id thread_id address person date date_sent protocol read status type reply_path_present subject body "
            "service_center locked sub_id error_code creator seen"
        ).split()
    )
    assert (
        columns(SMS_DATABASE, "threads")
        == ("_id date message_count recipient_ids snippet snippet_cs read archived type error has_attachment").split()
    )
    found = asked(TALK, SMS_DATABASE, "SELECT person, status, locked, sub_id, error_code, creator, seen FROM sms")
    assert found == [
        (None, -1, 0, 1, -1, "com.simplemobiletools.smsmessenger", 0),
        (None, -1, 0, 1, -1, "com.simplemobiletools.smsmessenger", 1),
    ]


def test_a_conversation_sums_up_its_messages() -> None:
    summary = "SELECT message_count, snippet, read, has_attachment FROM threads"
    assert asked(TALK, SMS_DATABASE, summary) == [(2, "Yo", 0, 0)]
    assert asked(mark_read(TALK, 1), SMS_DATABASE, summary) == [(2, "Yo", 1, 0)]
    fewer = run(TALK, "content delete --uri content://sms --where \"body='Yo'\"").phone
    assert asked(fewer, SMS_DATABASE, summary) == [(1, "Hi", 0, 0)]
    assert asked(run(TALK, "content delete --uri content://sms").phone, SMS_DATABASE, summary) == []
    early = add_message(TALK, "+1555", "Before", INBOX, date=5)
    assert asked(early, SMS_DATABASE, summary) == [(3, "Yo", 0, 0)]


def test_contacts_are_joined_as_on_android() -> None:
    assert {"accounts", "contacts", "raw_contacts", "data", "mimetypes"} <= {
        name for (name,) in asked(ADA, CONTACTS_DATABASE, "SELECT name FROM sqlite_master")
    }
    joined = (
        "SELECT raw_contacts.display_name_alt, mimetype, data1, data2, has_phone_number, lookup, deleted, is_primary "
        "FROM data JOIN mimetypes ON mimetype_id = mimetypes._id "
        "JOIN raw_contacts ON raw_contact_id = raw_contacts._id "
        "JOIN contacts ON contact_id = contacts._id JOIN accounts ON account_id = accounts._id ORDER BY data._id"
    )
    item = "vnd.android.cursor.item"
    assert asked(ADA, CONTACTS_DATABASE, joined) == [
        ("Lovelace, Ada", f"{item}/name", "Ada Lovelace", "Ada", 1, "0r1", 0, 0),
        ("Lovelace, Ada", f"{item}/phone_v2", "+44 20 7946", "3", 1, "0r1", 0, 0),
    ]
    unlisted = change_person(ADA, ADA_ID, "Ada", "Byron", "", "Mobile")
    assert asked(unlisted, CONTACTS_DATABASE, joined) == [
        ("Byron, Ada", f"{item}/name", "Ada Byron", "Ada", 0, "0r1", 0, 0)
    ]
    assert asked(remove_person(ADA, ADA_ID), CONTACTS_DATABASE, "SELECT * FROM contacts") == []


def test_what_is_written_into_columns_that_no_app_reads_stays() -> None:
    starred = changed(ADA, CONTACTS_DATABASE, "UPDATE raw_contacts SET starred = 1, sync4 = 'x'")
    assert asked(starred, CONTACTS_DATABASE, "SELECT starred, sync4, version FROM raw_contacts") == [(1, "x", 1)]
    assert list_people(starred) == list_people(ADA)
    locked = changed(TALK, SMS_DATABASE, "UPDATE sms SET locked = 1 WHERE body = 'Hi'")
    shown = run(locked, "content query --uri content://sms --projection body:locked --sort _id").stdout
    assert shown == "Row: 0 body=Hi, locked=1\nRow: 1 body=Yo, locked=0\n"
    assert changed(locked, SMS_DATABASE, "UPDATE sms SET locked = 0").rows == TALK.rows


def test_a_kind_of_data_that_the_phone_does_not_know_becomes_known() -> None:
    insert = "content insert --uri content://com.android.contacts/data --bind raw_contact_id:i:1"
    phone = run(ADA, f"{insert} --bind mimetype:s:x/y --bind data1:s:z").phone
    assert asked(phone, CONTACTS_DATABASE, "SELECT mimetype FROM mimetypes WHERE _id = 12") == [("x/y",)]
    assert asked(phone, CONTACTS_DATABASE, "SELECT data1 FROM data WHERE mimetype_id = 12") == [("z",)]
    refused = run(ADA, f"{insert} --bind data1:s:z")
    assert "data.mimetype_id" in refused.output
    assert (refused.exit_code, refused.phone) == (1, ADA)


def test_a_broken_database_of_contacts_is_made_anew() -> None:
    broken = tree.write_bytes(ADA, CONTACTS_DATABASE, b"nothing of a database" * 99)
    assert list_people(broken) == []
    again, _ = add_person(broken, "Max", "Born", "0777")
    assert [one.number for one in list_people(again)] == ["0777"]
    assert len(asked(again, CONTACTS_DATABASE, "SELECT * FROM mimetypes")) == 11


def test_a_date_that_is_none_breaks_no_conversation() -> None:
    odd = run(TALK, "content update --uri content://sms --bind date:s:soon").phone
    assert [one.latest["body"] for one in list_conversations(odd)] == ["Yo"]
