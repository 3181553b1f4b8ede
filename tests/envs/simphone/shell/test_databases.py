"""Databases and content providers from the phone's shell."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collab.envs.simphone.adb.automator import PhoneHandle
from collab.envs.simphone.apps import STANDARD
from collab.envs.simphone.content.messages import SMS_DATABASE, list_conversations, list_sent
from collab.envs.simphone.content.people import add_person, list_people
from collab.envs.simphone.core import FACTORY, add_noise
from collab.envs.simphone.shell import run, tree
from collab.envs.simphone.ui.screen import look
from collab.seeds import generator
from tests.envs.simphone.shell.commands import MESSAGES, SDCARD, after, out
from tests.properties import examples


def test_sms_are_told_as_the_content_provider_tells_them():
    line = out("content query --uri content://sms/inbox", MESSAGES)
    assert line.startswith("Row: 0 _id=1, thread_id=1, address=+15551111, person=NULL, date=1697384000000, ")
    assert ", body=Hi, you = me, ok?, service_center=NULL, " in line
    assert out("content query --uri content://sms/sent --projection address:body", MESSAGES) == (
        "Row: 0 address=+1 555-2222, body=Yo\n"
    )
    assert out("content query --uri content://sms/sent") == "No result found.\n"


def test_sms_are_inserted_changed_and_deleted_through_the_provider():
    insert = "content insert --uri content://sms --bind address:s:+1777 --bind body:s:'a b' --bind type:i:2"
    phone = after(insert, MESSAGES)
    assert [row["body"] for row in list_sent(phone)] == ["Yo", "a b"]
    phone = after("content update --uri content://sms --bind read:i:1 --where \"address='+1777'\"", phone)
    assert out("content query --uri content://sms --projection read --where \"body='a b'\"", phone) == "Row: 0 read=1\n"
    phone = after("content delete --uri content://sms --where 'type=2'", phone)
    assert list_sent(phone) == []
    assert len(list_conversations(phone)) == 1


def test_contacts_are_told_as_androidworld_reads_them():
    phone, _ = add_person(FACTORY, "Ada", "Lovelace", "+44 20 7946")
    query = "content query --uri content://contacts/phones/ --projection display_name:number"
    assert out(query, phone) == "Row: 0 display_name=Ada Lovelace, number=+44 20 7946\n"
    assert list_people(after("pm clear com.android.providers.contacts", phone)) == []


def test_sql_runs_on_the_phones_databases():
    query = (
        f'sqlite3 {SMS_DATABASE} "SELECT address, body, person FROM (SELECT *, NULL AS person FROM sms) ORDER BY _id;"'
    )
    assert out(query, MESSAGES) == "+15551111|Hi, you = me, ok?|\n+1 555-2222|Yo|\n"
    phone = after(f'sqlite3 {SMS_DATABASE} "DELETE FROM sms; DELETE FROM threads;"', MESSAGES)
    assert list_conversations(phone) == []
    assert run(MESSAGES, f'sqlite3 {SMS_DATABASE} "SELECT * FROM nowhere"').stderr == "Error: no such table: nowhere\n"


def test_a_database_file_of_ones_own_is_made_and_used():
    path = f"{SDCARD}/Download/own.db"
    phone = after(f"sqlite3 {path} 'CREATE TABLE t (x); INSERT INTO t VALUES (7)'")
    assert out(f"sqlite3 {path} 'SELECT x FROM t'", phone) == "7\n"
    assert run(FACTORY, "sqlite3 /etc/own.db 'CREATE TABLE t (x)'").exit_code == 1


def test_a_name_full_of_sql_stays_a_name():
    name = "Robert'); DROP TABLE sms;--"
    phone, _ = add_person(MESSAGES, name, "", "+1666")
    query = f"content query --uri content://sms --where \"address='{name}'\""
    assert run(phone, query).phone.rows == phone.rows
    assert list_people(phone)[0].name == name
    assert (
        len(list_conversations(after("content delete --uri 'content://sms' --where '1); DROP TABLE shown'", phone)))
        == 2
    )


@pytest.mark.parametrize(
    "sql",
    [
        "ATTACH DATABASE '/tmp/collab-shell-test.db' AS x",
        "VACUUM INTO '/tmp/collab-shell-test.db'",
        "SELECT load_extension('x')",
        "PRAGMA temp_store_directory='/tmp'",
        "SELECT readfile('/etc/passwd')",
        "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x FROM c) SELECT count(*) FROM c",
        "SELECT zeroblob(1000000000)",
    ],
)
def test_sql_reaches_nothing_but_its_database(sql):
    result = run(MESSAGES, f'sqlite3 {SMS_DATABASE} "{sql}"')
    assert result.exit_code == 1
    assert result.phone.rows == MESSAGES.rows
    assert not Path("/tmp/collab-shell-test.db").exists()


def test_a_broken_database_is_made_anew_as_apps_do():
    phone = tree.write_bytes(MESSAGES, SMS_DATABASE, b"this is no database")
    assert list_conversations(phone) == []
    assert out(f"sqlite3 {SMS_DATABASE} 'SELECT count(*) FROM sms'", phone) == "0\n"


def test_the_commands_of_sqlite_itself_list_and_dump_and_the_others_are_errors():
    sqlite = f"sqlite3 {SMS_DATABASE}"
    assert out(f"{sqlite} .tables") == "canonical_addresses\nsms\nthreads\n"
    assert out(f"{sqlite} '.schema sms'").startswith("CREATE TABLE sms (`_id` INTEGER PRIMARY KEY, ")
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(out(f"{sqlite} .dump", MESSAGES))
        count = connection.execute("SELECT count(*) FROM sms").fetchone()[0]
    assert count == len(MESSAGES.rows[SMS_DATABASE, "sms"]) > 0
    for command in (".shell id", ".read /etc/passwd", ".nonsense", ".tables a b"):
        result = run(FACTORY, f"{sqlite} '{command}'")
        assert (result.exit_code, result.stdout) == (1, ""), command
        assert result.stderr == f'Error: unknown command or invalid arguments:  "{command.split()[0][1:]}"\n'


def test_a_database_without_a_table_or_with_odd_values_is_read_as_apps_read_it():
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE sms (_id, thread_id, address, date, read, type, body, more)")
        connection.execute("INSERT INTO sms VALUES ('7', 'x', 5, 'soon', 1.9, 1, x'c3bcff', 1)")
        connection.commit()
        data = connection.serialize()
    phone = tree.write_bytes(MESSAGES, SMS_DATABASE, data)
    (one,) = list_conversations(phone)
    assert one.messages[0]["date"] == 0
    assert one.messages[0]["body"] == "ü\ufffd"
    look(after("monkey -p com.simplemobiletools.smsmessenger 1", phone))


@pytest.mark.parametrize(("stored", "read"), [(b"0", 0), ("1.5", 1.5), ("high", 0), (" 2e1 ", 20)])
def test_text_in_a_numeric_column_is_read_as_a_number(stored, read):
    path = next(path for path in STANDARD.tables if path.endswith("joplin.sqlite"))
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(tree.read_bytes(FACTORY, path))
        connection.execute("DROP TABLE notes")
        names = next([name for name, _ in one.columns] for one in STANDARD.tables[path] if one.name == "notes")
        connection.execute(f"CREATE TABLE notes ({', '.join(f'`{name}`' for name in names)})")
        connection.execute("INSERT INTO notes (id, altitude) VALUES ('a', ?)", [stored])
        connection.commit()
        phone = tree.write_bytes(FACTORY, path, connection.serialize())
    assert [row["altitude"] for row in phone.rows[path, "notes"]] == [read]


VALUES = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.floats(), st.text(max_size=5), st.binary(max_size=5))


@given(st.sampled_from(sorted(STANDARD.tables)), st.data())
@settings(max_examples=examples(60), deadline=None)
def test_whatever_a_database_holds_the_phone_can_show_and_dump_it(path, data):
    with closing(sqlite3.connect(":memory:")) as connection:
        for table in STANDARD.tables[path]:
            names = [name for name, _ in table.columns]
            listed = ", ".join(f"`{name}`" for name in names)
            connection.execute(f"CREATE TABLE {table.name} ({listed})")
            for _ in range(data.draw(st.integers(0, 3))):
                row = data.draw(st.lists(VALUES, min_size=len(names), max_size=len(names)))
                connection.execute(f"INSERT INTO {table.name} VALUES ({', '.join('?' * len(names))})", row)
        connection.commit()
        pushed = connection.serialize()
    phone = tree.write_bytes(FACTORY, path, pushed)
    again = tree.write_bytes(phone, path, tree.read_bytes(phone, path))
    assert again.rows == phone.rows
    handle = PhoneHandle(phone)
    for app in STANDARD.all:
        handle.put(run(handle.phone, f"monkey -p {app.package} 1").phone)
        look(handle.phone)


def test_every_database_survives_being_pulled_and_pushed():
    phone = add_noise(generator(3))
    for path in STANDARD.tables:
        assert tree.write_bytes(phone, path, tree.read_bytes(phone, path)).rows.items() >= phone.rows.items()


def test_an_apps_data_is_saved_and_restored_as_androidworld_does_it():
    folder, copy = "/data/data/com.arduia.expense", "/data/data/android_world/snapshots/com.arduia.expense"
    base = f"{folder}/databases/accounting.db"
    phone = after(f"mkdir -p {copy}; sqlite3 {base} \"INSERT INTO expense VALUES (1, 'Tea', 250, 3, '', 0, 0)\"")
    assert out(f"sqlite3 {base} 'SELECT name, amount FROM expense'", phone) == "Tea|250\n"
    phone = after(f"cp -a {folder}/. {copy}/ && rm -r {folder}/* && sqlite3 {base} 'DELETE FROM expense'", phone)
    assert out(f"sqlite3 {base} 'SELECT name, amount FROM expense'", phone) == ""
    phone = after(f"cp -a {copy}/. {folder}/; restorecon -RD {folder}; chmod 777 -R {folder}", phone)
    assert out(f"sqlite3 {base} 'SELECT name, amount FROM expense'", phone) == "Tea|250\n"
