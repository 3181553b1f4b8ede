"""Small differences that AndroidWorld's judges forgive, or do not: the same here, on phones that were changed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from collab.envs.grammar import MOBILE
from collab.envs.simphone.apps.markor import MARKOR
from collab.envs.simphone.apps.messages import PACKAGE as MESSENGER
from collab.envs.simphone.content.messages import SENT, add_message, list_sent
from collab.envs.simphone.core import SimPhone
from collab.envs.simphone.state import Phone, delete, read, write
from collab.envs.simphone.suite import SimPhoneSuite
from collab.envs.simphone.tasks import BY_NAME
from collab.envs.simphone.touch import act
from collab.envs.simphone.ui.screen import look

SUITE = SimPhoneSuite()


def started(name: str, seed: int = 3) -> tuple[SimPhone, Phone, dict[str, object]]:
    phone = SimPhone()
    task = SUITE.instance(name, seed)
    phone.reset(task)
    return phone, phone.phone, dict(task.params)


def open_app(phone: Phone, name: str) -> Phone:
    frame = look(phone)
    return act(frame, MOBILE.canonical(MOBILE.make("open_app", app_name=name), frame.observation))


# -------------------------------------------------------------------------------------------------------- messages


def written(number: str, form: str) -> str:
    """A number such as +15551234567 as people write it."""
    digits = number.removeprefix("+1")
    parts = {"area": digits[:3], "middle": digits[3:6], "end": digits[6:], "all": number, "digits": digits}
    return form.format(**parts)


@pytest.mark.parametrize("name", ["SimpleSmsSend", "SimpleSmsReply", "SimpleSmsResend", "MarkorCreateNoteAndSms"])
@pytest.mark.parametrize(
    ("form", "counts"),
    [
        ("{all}", True),
        ("+1-{area}-{middle}-{end}", True),
        ("+1 {area} {middle} {end}", True),
        ("+1 {area}-{middle} - {end}", True),
        ("{digits}", False),  # a country code is no decoration
        ("1{digits}", False),
        ("+1 ({area}) {middle}-{end}", False),
        ("+1.{area}.{middle}.{end}", False),
    ],
)
def test_a_number_may_have_spaces_and_dashes_and_nothing_else(name: str, form: str, counts: bool) -> None:
    _, start, params = started(name)
    text = str(params.get("message", params.get("text")))
    end = add_message(start, written(str(params["number"]), form), text, SENT, date=start.now_ms)
    end = open_app(end, "Simple SMS Messenger")
    assert end.foreground == MESSENGER
    half = 0.5 if name.startswith("Markor") else 1.0  # the other half is the note
    assert BY_NAME[name].score(start, end, params) == (half if counts else 0.0)


def test_a_message_that_was_sent_to_a_number_with_dashes_can_be_sent_again_without() -> None:
    _, start, params = started("SimpleSmsResend")
    dashed = written(str(params["number"]), "+1-{area}-{middle}-{end}")
    key = next(key for key, rows in start.rows.items() if rows and "address" in rows[0] and "body" in rows[0])
    rows = tuple({**row, "address": dashed} if row["type"] == SENT else row for row in start.rows[key])
    start = replace(start, rows={**start.rows, key: rows})
    assert [row["address"] for row in list_sent(start)] == [dashed]
    end = add_message(start, str(params["number"]), str(params["message"]), SENT, date=start.now_ms)
    assert BY_NAME["SimpleSmsResend"].score(start, end, params) == 1.0


@pytest.mark.parametrize(
    ("change", "counts"), [(str.upper, True), (lambda text: text + "!!", True), (str.split, False)]
)
def test_words_of_a_message_may_differ_a_little(change, counts: bool) -> None:  # type: ignore[no-untyped-def]
    _, start, params = started("SimpleSmsSend")
    said = change(str(params["message"]))
    said = said if isinstance(said, str) else said[0]
    end = open_app(add_message(start, str(params["number"]), said, SENT, date=start.now_ms), "Simple SMS Messenger")
    assert BY_NAME["SimpleSmsSend"].score(start, end, params) == float(counts)


# ----------------------------------------------------------------------------------------------------------- files


def windows(text: str) -> str:
    return text.replace("\n", "\r\n")


def solved(name: str, seed: int) -> tuple[Phone, Phone, dict[str, object]]:
    phone, start, params = started(name, seed)
    solution = phone.oracle()
    assert solution is not None
    for action in solution[:-1]:
        phone.step(action)
    return start, phone.phone, params


NOTES = {
    "MarkorCreateNote": "file_name",
    "MarkorCreateNoteFromClipboard": "file_name",
    "MarkorEditNote": "file_name",
    "MarkorMergeNotes": "new_file_name",
    "MarkorChangeNoteContent": "new_name",
    "MarkorAddNoteHeader": "new_name",
    "MarkorCreateNoteAndSms": "file_name",
}


@pytest.mark.parametrize("name", NOTES)
def test_a_note_with_windows_line_ends_counts_as_the_same_note(name: str) -> None:
    start, end, params = solved(name, 3)
    path = f"{MARKOR}/{params[NOTES[name]]}"
    assert BY_NAME[name].score(start, end, params) == 1.0
    crlf = write(end, path, windows(read(end, path)))
    assert "\r\n" in read(crlf, path) or "\n" not in read(end, path)
    assert BY_NAME[name].score(start, crlf, params) == 1.0
    assert BY_NAME[name].score(start, delete(end, path), params) < 1.0


@pytest.mark.parametrize("name", NOTES)
def test_blanks_around_a_note_count_only_where_it_must_be_exact(name: str) -> None:
    start, end, params = solved(name, 3)
    path = f"{MARKOR}/{params[NOTES[name]]}"
    blank = write(end, path, f"\r\n  {read(end, path)}\n \r\n")
    exact = name == "MarkorAddNoteHeader"
    assert BY_NAME[name].score(start, blank, params) == (0.0 if exact else 1.0)


def test_a_merged_note_needs_its_empty_lines_with_any_line_ends() -> None:
    start, end, params = solved("MarkorMergeNotes", 3)
    path = f"{MARKOR}/{params['new_file_name']}"
    joined = write(end, path, read(end, path).replace("\n\n", "\r\n"))
    assert BY_NAME["MarkorMergeNotes"].score(start, joined, params) == 0.0


# ----------------------------------------------------------------------------------------------- clipboard, answers


@pytest.mark.parametrize(
    ("form", "counts"),
    [("{}", True), ("{}\r\n", True), ('"{}"', True), ("\n" * 9 + "{}", True), ("x" * 9 + "{}", False)],
)
def test_the_clipboard_is_judged_without_quotes_and_line_ends_around_it(form: str, counts: bool) -> None:
    _, start, params = started("SystemCopyToClipboard")
    end = replace(start, clipboard=form.format(params["clipboard_content"]))
    assert BY_NAME["SystemCopyToClipboard"].score(start, end, params) == float(counts)


def test_one_time_said_twice_is_not_one_answer() -> None:
    phone, start, params = started("SimpleCalendarNextMeetingWithPerson")
    solution = phone.oracle()
    assert solution is not None
    said = next(str(action["text"]) for action in solution if action.type == "answer")
    score = BY_NAME["SimpleCalendarNextMeetingWithPerson"].score
    assert score(start, replace(start, answer=f"  {said.lower()} "), params) == 1.0
    assert score(start, replace(start, answer=f"{said}, {said}"), params) == 0.0


# ------------------------------------------------------------------------------------------------------ names of apps


@pytest.mark.parametrize(
    ("said", "package"),
    [
        ("Simple Calendar", "com.simplemobiletools.calendar.pro"),
        ("simple calendar pro (by Simple Mobile Tools)", "com.simplemobiletools.calendar.pro"),
        ("Settings app", "com.android.settings"),
        ("SYSTEM SETTINGS", "com.android.settings"),
        ("Simple SMS", "com.simplemobiletools.smsmessenger"),
        ("Phone app", "com.google.android.dialer"),
        ("Files by Google", "com.google.android.documentsui"),
        ("Tasks.org", "org.tasks"),
        ("recipe app", "com.flauschcode.broccoli"),
        ("Joplin Notes app", "net.cozic.joplin"),
        ("net.gsantner.markor", "net.gsantner.markor"),
        ("Einstellungen-App", "com.android.settings"),
        ("Set", None),
        ("My Settings", None),
        ("Google Maps", None),
        ("com.google.android.apps.nexuslauncher", None),
        ("", None),
    ],
)
def test_an_app_opens_by_a_name_that_begins_what_is_said(said: str, package: str | None) -> None:
    _, start, _ = started("SystemBrightnessMax")
    home = start.foreground
    assert open_app(start, said).foreground == (package or home)
