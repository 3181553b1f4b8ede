"""What a teacher may say of actions and instructions."""

from __future__ import annotations

import pytest

from collab.envs.grammar import MOBILE, WEB
from collab.envs.text import describe_screen
from collab.prompts.parse import read_reply
from collab.rewards.structured_replies import ProposalItem
from collab.synthesis.llm_prompts import Decided, explain_unfounded, is_answer, is_completion, is_shown, read_action
from collab.types import Element, Observation, Prompt

ELEMENTS = (
    Element(index=0, role="text", label="Contacts"),
    Element(index=1, role="button", label="Save"),
    Element(index=2, role="input", label="Name", value=""),
)


def screen(space: str = "mobile") -> Observation:
    return Observation(space=space, title="Contacts", elements=ELEMENTS, text=describe_screen("Contacts", ELEMENTS))


def said(action: object, reason: str = "It saves the contact.") -> ProposalItem:
    return ProposalItem.model_validate({"reason": reason, "action": action})


def test_an_action_is_read_as_a_policys_reply_is_and_can_be_said_again():
    decided = read_action(said({"action_type": "click", "index": 1}), MOBILE, screen(), goal="")
    assert isinstance(decided, Decided)
    assert decided.action == MOBILE.make("click", index=1)
    assert decided.reply == 'Reason: It saves the contact.\nAction: {"action_type": "click", "index": 1}'
    assert read_reply(decided.reply, MOBILE, screen()).action == decided.action


def test_a_call_is_read_where_the_space_writes_calls():
    decided = read_action(said("click(id=1)"), WEB, screen("web"), goal="")
    assert isinstance(decided, Decided)
    assert decided.action == WEB.make("click", id=1)


@pytest.mark.parametrize(
    ("action", "kind"),
    [
        ({"action_type": "fly"}, "unknown_type"),
        ({"action_type": "click"}, "missing_field"),
        ({"action_type": "click", "index": 3}, "no_such_element"),
        ({"action_type": "click", "index": "Save"}, "bad_field"),
        ({"action_type": "wait", "why": "so"}, "bad_field"),
        ("press the button", "no_action"),
    ],
)
def test_what_cannot_be_done_on_the_screen_is_refused_by_its_kind(action, kind):
    assert read_action(said(action), MOBILE, screen(), goal="") == f"the action does not fit: {kind}"


def test_a_reason_in_another_language_is_refused():
    reason = "Der Kontakt ist noch nicht da und die Nummer ist für das Feld."
    assert read_action(said({"action_type": "wait"}, reason), MOBILE, screen(), goal="") == "another language"


def test_what_a_step_aims_at_must_stand_in_the_prompt():
    whole, cut = (Prompt(system="", shared=text, segments=()) for text in (screen().text, "Screen: Contacts"))
    assert is_shown(MOBILE.make("click", index=1), screen(), whole)
    assert not is_shown(MOBILE.make("click", index=1), screen(), cut)
    assert is_shown(MOBILE.make("wait"), screen(), cut)


def test_an_instruction_names_no_numbers():
    tap = MOBILE.make("click", index=1)
    assert explain_unfounded("Press [1].", tap, MOBILE, screen()) == "the instruction names an element by number"
    assert explain_unfounded("Click element 1", tap, MOBILE, screen()) == "the instruction names an element by number"
    assert explain_unfounded("Save the contact.", tap, MOBILE, screen()) is None


def test_what_is_typed_must_have_been_given():
    typed = MOBILE.make("input_text", index=2, text="Ada  Lovelace")
    assert explain_unfounded("Call them ada lovelace.", typed, MOBILE, screen()) is None
    unfounded = "the step holds a text that is neither in the instruction nor on the screen"
    assert explain_unfounded("Fill in the name.", typed, MOBILE, screen()) == unfounded


def test_an_answer_may_stand_on_the_screen():
    assert explain_unfounded("Where am I?", MOBILE.make("answer", text="contacts"), MOBILE, screen()) is None
    assert explain_unfounded("Where am I?", MOBILE.make("answer", text="at home"), MOBILE, screen()) is not None


def test_completions_and_answers_are_told_apart_in_both_spaces():
    done, infeasible = (MOBILE.make("status", goal_status=status) for status in ("complete", "infeasible"))
    assert is_completion(done, MOBILE)
    assert not is_completion(infeasible, MOBILE)
    assert is_completion(WEB.make("finish"), WEB)
    assert not is_completion(WEB.make("finish", answer="42"), WEB)
    assert is_answer(MOBILE.make("answer", text="42"))
    assert is_answer(WEB.make("finish", answer="42"))
    assert not is_answer(WEB.make("finish"))
