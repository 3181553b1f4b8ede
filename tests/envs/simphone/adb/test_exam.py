"""What the service `collab:` answers."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collab.envs.simphone.adb.automator import PhoneHandle
from collab.envs.simphone.adb.http import examine
from collab.envs.simphone.core import SimPhone
from collab.envs.simphone.suite import SimPhoneSuite


def ask(handle, what, **details):
    return examine(handle, json.dumps({"ask": what, **details}))


def test_a_task_is_begun_and_judged_as_on_the_python_face():
    handle, phone = PhoneHandle(), SimPhone()
    phone.reset(SimPhoneSuite().instance("SystemWifiTurnOff", 5))
    assert ask(handle, "begin", name="SystemWifiTurnOff", seed=5) == {}
    assert handle.phone == phone.phone
    assert ask(handle, "score") == {"score": 0.0}
    for action in phone.oracle():
        phone.step(action)
    handle.put(phone.phone)
    assert ask(handle, "score") == {"score": 1.0}


def test_an_answer_is_heard():
    handle = PhoneHandle()
    ask(handle, "answer", text="forty-two")
    assert handle.phone.answer == "forty-two"


@pytest.mark.parametrize("what", ["score", "oracle"])
def test_nothing_is_judged_before_a_task_has_begun(what):
    assert ask(PhoneHandle(), what) == {"error": "no task has begun"}


def test_an_unknown_task_is_named():
    assert "did you mean SystemWifiTurnOff" in ask(PhoneHandle(), "begin", name="SystemWifiTurnof", seed=0)["error"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
QUESTION = st.sampled_from(["tasks", "instance", "begin", "answer", "oracle", "score", ""])


@given(
    st.text()
    | st.builds(
        lambda what, rest: json.dumps({"ask": what, **rest}),
        QUESTION | JSON,
        st.fixed_dictionaries({}, optional={"name": JSON, "seed": JSON, "text": JSON}),
    )
)
def test_junk_is_answered(question):
    json.dumps(examine(PhoneHandle(), question))
