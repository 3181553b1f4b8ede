"""A solved phone with one decisive field changed is not solved any more, whatever the task."""

import pytest

from collab.envs.phone.adb.handle import PhoneHandle
from collab.envs.phone.androidworld.hands import Instance, our_hands, play
from collab.envs.phone.androidworld.spoil import OTHER, spoilt
from collab.envs.phone.core import SimPhone
from collab.envs.phone.suite import SimPhoneSuite
from collab.envs.phone.tasks import BY_NAME
from collab.envs.phone.tasks.spec import similar

SUITE = SimPhoneSuite()


def solved(name, seed=5):
    """(instance, phone after its solution)."""
    task = SUITE.instance(name, seed)
    phone = SimPhone()
    phone.reset(task)
    instance = Instance(spec=BY_NAME[name], params=task.params, start=phone.phone)
    handle = PhoneHandle()
    steps, end = play(instance, handle, our_hands(handle))
    assert 1 < steps <= task.max_steps
    return instance, end


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_every_task_has_a_decisive_field(name):
    instance, end = solved(name)
    assert instance.score(end) == 1.0
    changed = spoilt(name, instance.start, end)
    assert changed is not None
    what, phone = changed
    assert what
    assert instance.score(phone) < 1.0


def test_a_number_becomes_another_number_and_words_become_other_words():
    instance, end = solved("NotesTodoItemCount")
    what, phone = spoilt("NotesTodoItemCount", instance.start, end)
    assert (what, int(phone.answer)) == ("answer", int(end.answer) + 1)
    instance, end = solved("TasksDueOnDate")
    assert spoilt("TasksDueOnDate", instance.start, end)[1].answer == OTHER
    assert not similar(OTHER, end.answer)


def test_what_was_removed_comes_back_in_its_place():
    instance, end = solved("ExpenseDeleteSingle")
    _, phone = spoilt("ExpenseDeleteSingle", instance.start, end)
    assert phone.rows == instance.start.rows


def test_nothing_is_found_where_nothing_was_done():
    instance, _ = solved("ExpenseDeleteSingle")
    assert spoilt("ExpenseDeleteSingle", instance.start, instance.start) is None
