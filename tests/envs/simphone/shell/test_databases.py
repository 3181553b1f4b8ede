import io
import shlex
import sqlite3
import string
import struct
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from collab.envs.simphone.adb.automator import PhoneHandle
from collab.envs.simphone.apps import STANDARD
from collab.envs.simphone.content.messages import INBOX, SENT, SMS_DATABASE, add_message, list_conversations, list_sent
from collab.envs.simphone.content.people import add_person, list_people
from collab.envs.simphone.core import FACTORY, add_noise
from collab.envs.simphone.shell import console, run, tree
from collab.envs.simphone.shell.commands import COMMANDS
from collab.envs.simphone.state import LAUNCHER, write
from collab.envs.simphone.ui.screen import look
from collab.seeds import generator

SDCARD = "/storage/emulated/0"
MESSAGES = add_message(
    add_message(FACTORY, "+15551111", "Hi, you = me, ok?", INBOX, date=1_697_384_000_000), "+1 555-2222", "Yo", SENT
)


def out(command, phone=FACTORY):
    return run(phone, command).stdout


def after(command, phone=FACTORY):
    return run(phone, command).phone


# ------------------------------------------------------------------------------------------------------ language


@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("echo a; echo b", "a\nb\n"),
        ("true && echo yes || echo no", "yes\n"),
        ("false && echo yes || echo no", "no\n"),
        ("! false && echo yes", "yes\n"),
        ("echo 'a  b' \"c $x\" d\\ e", "a  b c  d e\n"),
        ("echo 'it'\"'\"'s'", "it's\n"),
        ("x=1; y=$x$x; echo ${y}0 '$x' \"$x\"", "110 $x 1\n"),
        ("echo $(echo a; echo b) `echo c`", "a b c\n"),
        ('echo "$(echo a; echo b)"', "a\nb\n"),
        ("nosuch; echo $?", "127\n"),
        ("echo a | grep b; echo $?", "1\n"),
        ("printf '%s-%d\\n' a 1 b 2", "a-1\nb-2\n"),
        ("echo b a | tr ' ' '\\n' | sort | head -n 1", "a\n"),
        ("for f in a b; do echo $f; done", "a\nb\n"),
        ("if false; then echo 1; elif true; then echo 2; else echo 3; fi", "2\n"),
        ("if [ 2 -gt 1 -a x = x ]; then echo yes; fi", "yes\n"),
        ("(cd /sdcard; pwd); pwd", f"{SDCARD}\n/\n"),
        ("{ echo a; echo b; } | wc -l", "2\n"),
        ("(exit 3); echo $?; exit 4; echo no", "3\n"),
        ("echo '# no comment' # comment", "# no comment\n"),
        ("echo a >/dev/null; echo b 2>/dev/null", "b\n"),
        ("nosuch 2>&1 | wc -l", "1\n"),
        ("echo *", "data dev proc storage system\n"),
        ("echo '*' \"*\" /nowhere/*", "* * /nowhere/*\n"),
        ('[ -z "" ] && [ -n x ] && [ a != b ] && echo ok', "ok\n"),
        ("while false; do echo x; done; echo end", "end\n"),
        ("echo a &\necho b", "a\nb\n"),
        ("/system/bin/echo hi", "hi\n"),
    ],
)
def test_the_shell_language(command, output):
    assert out(command) == output


@pytest.mark.parametrize(
    "command", ["if true", "echo 'a", 'echo "', "(", "a &&", "| b", "fi", "for x", "echo $(", "&& a"]
)
def test_what_is_no_command_is_a_syntax_error(command):
    result = run(FACTORY, command)
    assert result.exit_code == 1
    assert result.stderr.startswith("/system/bin/sh: syntax error: ")
    assert result.phone is FACTORY


def test_an_unknown_command_is_told_as_a_phone_tells_it():
    result = run(FACTORY, "foo --bar")
    assert (result.stdout, result.stderr, result.exit_code) == (
        "",
        "/system/bin/sh: foo: inaccessible or not found\n",
        127,
    )


def test_the_null_device_is_empty_and_swallows():
    assert out("cat < /dev/null") == ""
    assert out("echo gone > /dev/null; echo still here") == "still here\n"


def test_streams_are_kept_apart_and_in_order():
    result = run(FACTORY, "echo 1; nosuch; echo 2")
    assert result.stdout == "1\n2\n"
    assert result.output == "1\n/system/bin/sh: nosuch: inaccessible or not found\n2\n"


@given(st.text(alphabet=string.printable + "äß🎉\ud800\x00", max_size=60))
@settings(max_examples=300, deadline=None)
def test_no_text_breaks_the_shell(text):
    result = run(FACTORY, text)
    assert 0 <= result.exit_code <= 255
    look(result.phone)
    assert isinstance(result.output_bytes, bytes)


ARGUMENTS = st.lists(
    st.sampled_from(
        f"""-a -n -p -d -e -t -r -l -i -type -name f d 1 -1 999999999999999999999 x '' / /sdcard /sdcard/x /nowhere . ..
        * -delete broadcast force-stop clear grant list packages put get system secure global screen_brightness
        com.android.settings com.android.settings/.Settings org.nope org.nope/.A clipper.set tel:5 sms: content://sms
        android.intent.action.MAIN android.intent.action.INSERT vnd.android.cursor.dir/contact --uri --where --bind
        android.intent.action.CALL android.intent.action.VIEW query insert delete body:s:x type:i:z --projection _id
        tap swipe text keyevent 540 1200 66 keycombination 113 29 dump call alarm @99999999999 +%Y%q%N 0231010124.99
        -eq -o ! ( ) %s %d ü 🎉 a=b -W -S -c -E remove SELECT*FROMsms activity recents window package enable night yes
        uimode 2>&1 - nan inf 1e9 {SMS_DATABASE}""".split()
    ),
    max_size=6,
)
STARTS = [
    *COMMANDS,
    *(
        "am start",
        "am start -a",
        "am start -n",
        "am broadcast -a",
        "am stack",
        "pm list",
        "pm grant",
        "dumpsys activity",
    ),
    *("content query --uri content://sms", "content insert --uri content://sms", "content delete --uri content://sms"),
    *("content query --uri", "settings put system", "settings get", "input keyevent", "input swipe", "input tap"),
    *("find /sdcard", "sqlite3 " + SMS_DATABASE, "cmd uimode", "ime set", "uiautomator dump", "service call"),
]


@given(st.sampled_from(sorted(STARTS)), ARGUMENTS, st.booleans())
@settings(max_examples=500, deadline=None)
def test_no_arguments_break_a_command(command, arguments, piped):
    quoted = " ".join([command, *(one if one == "*" else shlex.quote(one.strip("'")) for one in arguments)])
    result = run(MESSAGES, f"echo some text | {quoted}" if piped else quoted)
    assert 0 <= result.exit_code <= 255
    look(result.phone)


@given(st.text(max_size=200))
@settings(max_examples=100, deadline=None)
def test_what_is_quoted_arrives_unchanged(text):
    expected = text.encode("utf-8", "replace").decode().replace("\0", "")
    assert out(f"printf %s {shlex.quote(expected)}") == expected


def test_endless_work_is_stopped():
    assert run(FACTORY, "while true; do true; done").exit_code == 137
    assert run(FACTORY, "x=aaaaaaaaaaaaaaaa; while true; do x=$x$x; echo $x; done").exit_code == 137
    assert run(FACTORY, "echo " + "$(" * 500 + ")" * 500).exit_code == 1
    assert run(FACTORY, "(" * 5000).exit_code == 1
    assert run(FACTORY, "! " * 20_000 + "true").exit_code == 0


@pytest.mark.parametrize(
    "pattern",
    ["(a+)+$", "(a|aa)*b", "((a*)b?)*c", "(", "x" * 600, "a*" * 12 + "b", "(a?){50}a{50}", "a?" * 50 + "a{50}"],
)
def test_expressions_that_could_take_for_ever_are_refused(pattern):
    result = run(FACTORY, f"echo {'a' * 50} | grep -E '{pattern}'")
    assert result.exit_code == 2
    assert result.stderr.startswith("grep: bad REGEX: ")


@pytest.mark.slow
def test_an_expression_is_given_up_when_there_is_too_much_text_for_it():
    path = "/storage/emulated/0/text"
    one, many = (write(FACTORY, path, f"{'a' * 300}\n" * count) for count in (1, 9))
    assert out(f"grep -c 'a*a*a*b' {path}", one) == "0\n"
    assert run(many, f"grep -c 'a*a*a*b' {path}").stderr.endswith("may take too long on so much text\n")
    lines = write(FACTORY, path, "".join(f"{n} name=Ada, number=+49{n}\n" for n in range(2000)))
    assert out(f"grep -cE 'name=.*, number=.*7$' {path}", lines) == "200\n"


@pytest.mark.parametrize(
    ("pattern", "found"), [("^(foo|bar)$", True), ("fo+", True), ("[(+]o", False), ("f(o)(o)?", True)]
)
def test_ordinary_expressions_are_used(pattern, found):
    assert run(FACTORY, f"echo foo | grep -qE '{pattern}'").exit_code == int(not found)


# --------------------------------------------------------------------------------------------------------- files


def test_files_are_written_read_copied_moved_and_removed():
    phone = after("mkdir -p /sdcard/a/b && echo hello > /sdcard/a/x.txt && echo more >> /sdcard/a/x.txt")
    assert out("cat /sdcard/a/x.txt", phone) == "hello\nmore\n"
    phone = after(
        "cp -a /sdcard/a/. /sdcard/copy/; mv /sdcard/a/x.txt '/sdcard/a/b/y z.txt'", after("mkdir /sdcard/copy", phone)
    )
    assert out("find /sdcard/a /sdcard/copy -type f | sort", phone) == "/sdcard/a/b/y z.txt\n/sdcard/copy/x.txt\n"
    phone = after("rm -r /sdcard/a /sdcard/copy/*", phone)
    assert out("ls /sdcard/copy; ls -d /sdcard/a", phone) == ""


def test_a_long_listing_is_what_androidworld_reads():
    phone = write(FACTORY, f"{SDCARD}/Music/my song.mp3", "12345", changed_ms=1_697_384_040_250)
    lines = out(f"ls {SDCARD}/Music -ll -au", phone).splitlines()
    (line,) = [line for line in lines if line.startswith("-")]
    parts = line.split(None, 8)
    assert parts[4:] == ["5", "2023-10-15", "15:34:00.250000000", "+0000", "my song.mp3"]


def test_find_lists_and_deletes_as_androidworld_asks():
    phone = add_noise(generator(1))
    phone = write(phone, f"{SDCARD}/Documents/a.md", "x")
    found = out(f"find {SDCARD}/Documents -type f -o -type d", phone).splitlines()
    assert f"{SDCARD}/Documents/a.md" in found
    assert f"{SDCARD}/Documents" in found
    either = f"find {SDCARD}/Documents '(' -name a.md -o -name Documents ')'"
    assert out(f"{either} -type d", phone).splitlines() == [f"{SDCARD}/Documents"]
    assert out(f"{either} ! '(' -type d ')'", phone).splitlines() == [f"{SDCARD}/Documents/a.md"]
    assert "missing )" in run(phone, f"find {SDCARD} '(' -type f").stderr
    odd = write(phone, f"{SDCARD}/Documents/%s.md", "x")
    assert out(f"stat -c '%n %s' {SDCARD}/Documents/%s.md", odd) == f"{SDCARD}/Documents/%s.md 1\n"
    cleared = after(f"find {SDCARD}/ -mindepth 1 -type f -delete", phone)
    assert out(f"find {SDCARD} -type f", cleared) == ""
    assert out("ls /sdcard", cleared).count("\n") >= 12
    assert run(phone, "find / -delete").phone.stacks == phone.stacks


@pytest.mark.parametrize(
    ("command", "error"),
    [
        ("cat /sdcard/none", "cat: /sdcard/none: No such file or directory\n"),
        ("cat /sdcard", "cat: /sdcard: Is a directory\n"),
        ("rm /sdcard/none", "rm: /sdcard/none: No such file or directory\n"),
        ("rm /sdcard/Music", "rm: /sdcard/Music: is directory\n"),
        ("mkdir /sdcard/a/b", "mkdir: '/sdcard/a/b': No such file or directory\n"),
        ("mkdir /sdcard/Music", "mkdir: '/sdcard/Music': File exists\n"),
        ("mkdir /system/x", "mkdir: '/system/x': Read-only file system\n"),
        ("ls /none", "ls: /none: No such file or directory\n"),
        ("cd /none", "/system/bin/sh: cd: /none: No such file or directory\n"),
        ("echo x > /none/y", "/system/bin/sh: can't create /none/y: Read-only file system\n"),
        ("echo x > /sdcard/none/y", "/system/bin/sh: can't create /sdcard/none/y: No such file or directory\n"),
        ("cat < /sdcard/none", "/system/bin/sh: can't open /sdcard/none: No such file or directory\n"),
        ("mv /sdcard/none /sdcard/x", "mv: bad '/sdcard/none': No such file or directory\n"),
        ("[ a -eq b ]", "/system/bin/sh: test: a: bad number\n"),
    ],
)
def test_failures_are_told_in_the_systems_words(command, error):
    result = run(FACTORY, command)
    assert result.stderr == error
    assert result.exit_code != 0


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "/sdcard/../../../etc/passwd",
        "../../../../etc/passwd",
        "/proc/self/environ",
        "/storage/../etc/hosts",
    ],
)
def test_no_path_leaves_the_phone(path):
    assert run(FACTORY, f"cat {path}").exit_code == 1
    assert not run(FACTORY, f"[ -e {path} ]").stdout
    assert run(FACTORY, f"echo x > {path}").exit_code == 1


@given(st.binary(max_size=300))
@settings(max_examples=100, deadline=None)
def test_files_keep_their_bytes(data):
    path = f"{SDCARD}/Download/x"
    assert tree.read_bytes(tree.write_bytes(FACTORY, path, data), path) == data


def test_normal_paths_have_no_aliases_and_end_at_the_root():
    assert tree.normalise("../../..", "/sdcard") == "/"
    assert tree.normalise("//sdcard//Music/./x/..") == f"{SDCARD}/Music"
    assert tree.normalise("Music", "/sdcard") == f"{SDCARD}/Music"
    assert tree.normalise("/data/user/0/org.x") == "/data/data/org.x"


# ----------------------------------------------------------------------------------------------------- databases


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
@settings(max_examples=60, deadline=None)
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


# -------------------------------------------------------------------------------------------------------- system


def test_settings_are_read_written_and_listed():
    phone = after("settings put system screen_brightness 255; settings put global made_up 'a b'")
    assert out(
        "settings get system screen_brightness; settings get global made_up; settings get secure none", phone
    ) == ("255\na b\nnull\n")
    assert "made_up=a b\n" in out("settings list global", phone)
    assert after("settings delete global made_up", phone).settings.get("global/made_up") is None


@pytest.mark.parametrize("value", ["abc", "-5", "99999999999999999999", "'1; rm'", "''"])
def test_a_setting_that_no_app_could_read_is_refused(value):
    result = run(FACTORY, f"settings put system screen_brightness {value}")
    assert "Invalid value" in result.stderr
    assert result.phone.settings == FACTORY.settings


def test_radios_are_switched():
    assert after("svc wifi disable").settings["global/wifi_on"] == "0"
    assert after("svc bluetooth enable").settings["global/bluetooth_on"] == "1"
    assert run(FACTORY, "svc toaster enable").exit_code == 1


def test_the_clock_is_read_and_set():
    assert out("date") == "Sun Oct 15 15:34:00 UTC 2023\n"
    assert out("date +%s") == "1697384040\n"
    phone = after("date 1015153423.00")
    assert phone.now_ms == FACTORY.now_ms
    assert out("date '+%Y-%m-%d %H:%M:%S'", after("date 0102030424.05")) == "2024-01-02 03:04:05\n"
    assert run(FACTORY, "date 9999999999").exit_code == 1
    assert after("sleep 1.5").now_ms == FACTORY.now_ms + 1500


def test_the_screen_is_told_as_tools_read_it():
    assert out("wm size") == "Physical size: 1080x2400\n"
    assert "logicalFrame=[0, 0, 1080, 2400]" in out("dumpsys input | grep logicalFrame")
    assert "mCurrentRotation=ROTATION_0" in out("dumpsys window | grep mCurrentRotation")
    assert "mCallState=0" in out("dumpsys telephony.registry")
    assert out("whoami") == "root\n"
    assert out("getprop ro.build.version.sdk") == "33\n"
    assert run(FACTORY, "service call alarm 3 s16 UTC").exit_code == 0
    assert run(FACTORY, "restorecon -RD /data/data/x").exit_code == 0


# ---------------------------------------------------------------------------------------------------------- apps


def test_activities_start_by_component_and_intent():
    phone = after("am start -W -n com.android.settings/.Settings")
    assert phone.foreground == "com.android.settings"
    assert "visible=true topActivity=ComponentInfo{com.android.settings/com.android.settings.Settings}" in out(
        "am stack list | grep -E visible=true", phone
    )
    assert run(FACTORY, "am start -n com.android.settings/.Nope").exit_code == 1
    assert run(FACTORY, "am start -n org.nope/.Main").exit_code == 1
    assert after("am start -a android.intent.action.VIEW -d content://contacts/people/").foreground.endswith("contacts")
    assert run(FACTORY, "am start -a android.intent.action.VIEW -d https://example.org").exit_code == 1


def test_a_contact_is_added_the_way_androidworld_adds_one():
    command = (
        'am start -a android.intent.action.INSERT -t vnd.android.cursor.dir/contact -e name "Ada Lovelace" -e phone 555'
    )
    phone = after(command)
    save = next(one for one in look(phone).observation.elements if one.label == "Save")
    phone = after(f"input tap {save.box.center[0]} {save.box.center[1]}; input keyevent 4", phone)
    assert [(one.name, one.number) for one in list_people(phone)] == [("Ada Lovelace", "555")]


def test_a_message_is_written_by_intent():
    phone = after("am start -a android.intent.action.SENDTO -d sms:5551234 --es sms_body 'on my way'")
    assert look(phone).observation.title.endswith("5551234")
    assert phone.page.fields["message"] == "on my way"


def test_apps_are_stopped_and_cleared():
    phone = after("monkey -p com.google.android.contacts -c android.intent.category.LAUNCHER 1")
    assert after("am force-stop com.google.android.contacts", phone).foreground == LAUNCHER
    recents = out("dumpsys activity recents", phone)
    number = recents.split(" id=")[1].split()[0]
    assert "com.google.android.contacts" not in after(f"am stack remove {number}", phone).stacks
    granted = after("pm grant com.android.camera2 android.permission.CAMERA")
    assert granted.memory["com.android.camera2"]["camera"] is True
    cleared = run(granted, "pm clear com.android.camera2")
    assert cleared.stdout == "Success\n"
    assert "com.android.camera2" not in cleared.phone.memory
    assert run(FACTORY, "pm clear org.nope").stdout == "Failed\n"
    assert "package:com.google.android.contacts\n" in out("pm list packages")


def test_the_clipboard_is_reached_only_from_its_app():
    assert "result=0\n" in out("am broadcast -a clipper.get")
    phone = after("am start -n ca.zgrs.clipper/.Main && am broadcast -a clipper.set -e text 'a \"b\" c'")
    assert phone.clipboard == 'a "b" c'
    assert 'result=-1, data="a "b" c"\n' in out("am broadcast -a clipper.get", phone)


def test_fingers_and_keys_act_on_the_screen():
    phone = after("am start -n com.google.android.contacts/com.android.contacts.activities.PeopleActivity")
    phone = after("input tap 540 371 && input text hello%sworld && input keyevent 67", phone)
    assert phone.page.fields["search"] == "hello worl"
    phone = after("input keycombination 113 29 && input keyevent 67", phone)
    assert phone.page.fields["search"] == ""
    assert after("input keyevent HOME", phone).foreground == LAUNCHER
    assert run(phone, "input text ü").exit_code == 255
    assert run(phone, "input tap x y").exit_code == 255
    assert run(phone, "input dance").exit_code == 255


def test_a_long_press_is_a_swipe_that_stays():
    phone = MESSAGES
    phone = after("monkey -p com.simplemobiletools.smsmessenger 1; input swipe 540 1200 540 1200 50", phone)
    assert phone.foreground == "com.simplemobiletools.smsmessenger"


def test_a_slider_follows_the_finger():
    phone = after("am start -n com.android.settings/.Settings")
    for label in ("Display", "Brightness level"):
        box = next(one.box for one in look(phone).observation.elements if one.label == label)
        phone = after(f"input tap {box.center[0]} {box.center[1]}", phone)
    box = next(one.box for one in look(phone).observation.elements if one.role == "slider")
    y = box.center[1]
    assert (
        after(f"input swipe {box.left + 400} {y} {box.right - 1} {y}", phone).settings["system/screen_brightness"]
        == "255"
    )
    assert after(f"input swipe {box.left + 400} {y} {box.left} {y}", phone).settings["system/screen_brightness"] == "1"


def test_the_screen_is_dumped_to_a_file():
    phone = after("uiautomator dump /sdcard/window_dump.xml")
    assert out("cat /sdcard/window_dump.xml", phone).startswith("<?xml")
    assert run(FACTORY, "screencap -p").output_bytes.startswith(b"\x89PNG")


def test_a_raw_picture_has_the_size_before_its_pixels():
    raw = run(FACTORY, "screencap").output_bytes
    assert struct.unpack("<II", raw[:8]) == (1080, 2400)
    assert len(raw) == 16 + 4 * 1080 * 2400
    picture = Image.open(io.BytesIO(run(FACTORY, "screencap -p").output_bytes)).convert("RGBA")
    assert picture.tobytes() == raw[16:]


def test_the_console_brings_messages():
    phone = console(FACTORY, "sms send +15550001 Hello, how are you?").phone
    (one,) = list_conversations(phone)
    assert (one.address, one.latest["body"], one.unread) == ("+15550001", "Hello, how are you?", True)
    assert console(FACTORY, "fold proteins").exit_code == 1


def test_running_changes_nothing_of_the_phone_given():
    before = replace(FACTORY)
    run(FACTORY, "rm -r /sdcard/*; settings put global wifi_on 0; pm clear com.android.settings; input keyevent 3")
    assert before == FACTORY


def test_packages_without_a_screen_are_listed_and_not_the_users() -> None:
    listed = out("pm list packages").split()
    assert {"package:com.android.systemui", "package:com.android.providers.telephony"} <= set(listed)
    assert len(listed) == len(set(listed))
    assert "package:com.android.systemui\n" in out("pm list packages -s")
    assert "com.android.systemui" not in out("pm list packages -3")
    assert out("pm path com.android.systemui").startswith("package:/")
