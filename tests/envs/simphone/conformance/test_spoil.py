"""A solved phone with one decisive field changed is not solved any more, whatever the task."""

import pytest

from collab.envs.simphone.adb.automator import PhoneHandle
from collab.envs.simphone.apps.expense import EXPENSE
from collab.envs.simphone.conformance.fidelity import (
    OTHER,
    JudgedInstance,
    blur,
    build_own_executor,
    disturb,
    play,
    spoil,
)
from collab.envs.simphone.core import SimPhone
from collab.envs.simphone.suite import SimPhoneSuite
from collab.envs.simphone.tasks import BY_NAME
from collab.envs.simphone.tasks.spec import is_similar

SUITE = SimPhoneSuite()
KEY = (EXPENSE.path, EXPENSE.name)


def solved(name, seed=5):
    """(instance, phone after its solution)."""
    task = SUITE.instance(name, seed)
    phone = SimPhone()
    phone.reset(task)
    instance = JudgedInstance(spec=BY_NAME[name], params=task.params, start=phone.phone)
    handle = PhoneHandle()
    steps, end = play(instance, handle, build_own_executor(handle))
    assert 1 < steps <= task.max_steps
    return instance, end


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_every_task_has_a_decisive_field(name):
    instance, end = solved(name)
    assert instance.score(end) == 1.0
    changed = spoil(name, instance.start, end)
    assert changed is not None
    what, phone = changed
    assert what
    assert instance.score(phone) < 1.0


def test_a_number_becomes_another_number_and_words_become_other_words():
    instance, end = solved("NotesTodoItemCount")
    what, phone = spoil("NotesTodoItemCount", instance.start, end)
    assert (what, int(phone.answer)) == ("answer", int(end.answer) + 1)
    instance, end = solved("TasksDueOnDate")
    assert spoil("TasksDueOnDate", instance.start, end)[1].answer == OTHER
    assert not is_similar(OTHER, end.answer)


def test_what_was_removed_comes_back_in_its_place():
    instance, end = solved("ExpenseDeleteSingle")
    _, phone = spoil("ExpenseDeleteSingle", instance.start, end)
    assert phone.rows == instance.start.rows


def test_case_is_forgiven_and_a_bystander_is_not():
    instance, end = solved("ExpenseAddSingle")
    what, phone = blur(instance.start, end)
    (row,) = [row for row in phone.rows[KEY] if row not in end.rows[KEY]]
    assert what == "expense.name"
    assert row["name"] == end.rows[KEY][-1]["name"].swapcase()
    assert instance.score(phone) == 1.0
    what, phone = disturb(instance.start, end)
    assert what == "expense.name"
    assert phone.rows[KEY][-1] == end.rows[KEY][-1]
    assert instance.score(phone) == 0.0


def test_files_are_blurred_and_disturbed_too():
    instance, end = solved("MarkorEditNote")
    path = next(path for path, entry in end.files.items() if entry != instance.start.files[path])
    assert blur(instance.start, end)[1].files[path].content == end.files[path].content.swapcase()
    _, phone = disturb(instance.start, end)
    (gone,) = set(end.files) - set(phone.files)
    assert end.files[gone] == instance.start.files[gone]


def test_an_answer_or_a_clipboard_is_blurred():
    instance, end = solved("SimpleCalendarNextEvent")
    assert blur(instance.start, end)[1].answer == end.answer.swapcase() != end.answer
    instance, end = solved("SystemCopyToClipboard")
    assert blur(instance.start, end)[1].clipboard == end.clipboard.swapcase()


@pytest.mark.parametrize("name", ["NotesTodoItemCount", "ContactsAddContact"])
def test_digits_have_no_case(name):
    instance, end = solved(name)
    assert blur(instance.start, end) is None


def test_switches_have_nothing_to_blur_or_disturb():
    instance, end = solved("SystemWifiTurnOff")
    assert blur(instance.start, end) is None
    assert disturb(instance.start, end) is None


def test_nothing_is_found_where_nothing_was_done():
    instance, _ = solved("ExpenseDeleteSingle")
    assert spoil("ExpenseDeleteSingle", instance.start, instance.start) is None
