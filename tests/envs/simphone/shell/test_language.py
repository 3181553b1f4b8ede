"""The language of the phone's shell: quoting, pipes, errors and bounds."""

import shlex
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collab.envs.simphone.content.messages import SMS_DATABASE
from collab.envs.simphone.core import FACTORY
from collab.envs.simphone.shell import run
from collab.envs.simphone.shell.commands import COMMANDS
from collab.envs.simphone.state import write
from collab.envs.simphone.ui.screen import look
from tests.envs.simphone.shell.commands import MESSAGES, SDCARD, out
from tests.properties import examples


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
@settings(max_examples=examples(300), deadline=None)
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
@settings(max_examples=examples(500), deadline=None)
def test_no_arguments_break_a_command(command, arguments, piped):
    quoted = " ".join([command, *(one if one == "*" else shlex.quote(one.strip("'")) for one in arguments)])
    result = run(MESSAGES, f"echo some text | {quoted}" if piped else quoted)
    assert 0 <= result.exit_code <= 255
    look(result.phone)


@given(st.text(max_size=200))
@settings(max_examples=examples(100), deadline=None)
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
