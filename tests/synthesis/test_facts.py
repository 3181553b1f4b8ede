"""What is said of screens and elements, in so many words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from collab.config import EnvironmentDefinition
from collab.data.splits import split_words
from collab.envs.grammar import MOBILE, WEB
from collab.envs.text import describe_screen
from collab.library import Library
from collab.seeds import generator
from collab.synthesis import facts
from collab.synthesis.facts import ActionBuilder
from collab.synthesis.wording import (
    ELEMENT,
    PHRASES,
    SCREEN,
    TAPS,
    ask,
    ask_about_element,
    draw_text,
    format_element_name,
    list_wordings,
    name_as_user,
)
from collab.types import Action, Element, Observation

ELEMENTS = (
    Element(index=0, role="icon", label="Close"),
    Element(index=1, role="input", label="First name", value="Ada"),
    Element(index=2, role="input", label="Last name", value="", flags=("focused",)),
    Element(index=3, role="switch", label="Favourite", flags=("checked",)),
    Element(index=4, role="list item", label="Phone", value="+1202"),
    Element(index=5, role="text", label=""),
)
TITLE = "Contacts: Edit contact"
SCREEN_SEEN = Observation(
    space="mobile", title=TITLE, elements=ELEMENTS, text=describe_screen(TITLE, ELEMENTS), notice="Saved"
)


def test_a_screen_is_told_by_its_title_and_what_it_offers() -> None:
    assert facts.describe_purpose(SCREEN_SEEN) == (
        'It is the screen "Edit contact" of Contacts. It is there to fill in First name and Last name; '
        "turn on or off Favourite."
    )
    assert facts.describe_aim(SCREEN_SEEN) == (
        "Fill in First name and Last name; turn on or off Favourite; open Phone; tap Close."
    )
    assert facts.summarize_screen(SCREEN_SEEN) == (
        '"Contacts: Edit contact" shows 6 elements. A message says "Saved". 1 icon: Close. '
        '2 inputs: First name ("Ada") and Last name (empty). 1 switch: Favourite (on). '
        "1 list item: Phone (+1202). 1 text: without a label."
    )


@pytest.mark.parametrize(
    ("index", "said"),
    [
        (0, 'It says "Close".'),
        (1, '"First name" holds "Ada".'),
        (2, '"Last name" is empty. It is focused.'),
        (3, '"Favourite" is on.'),
        (4, '"Phone": "+1202".'),
        (5, "It says nothing."),
    ],
)
def test_an_element_tells_its_text_content_and_state(index: int, said: str) -> None:
    assert facts.describe_information(ELEMENTS[index]) == said


@pytest.mark.parametrize(
    ("index", "action"),
    [
        (0, MOBILE.make("click", index=0)),
        (1, MOBILE.make("input_text", index=1, text="…")),
        (3, MOBILE.make("click", index=3)),
        (5, None),
        (6, MOBILE.make("click", index=6)),
    ],
)
def test_the_action_that_goes_with_an_element(index: int, action: Action | None) -> None:
    shown = (*ELEMENTS, Element(index=6, role="drop-down", label="Size", value="small"))
    assert facts.find_own_action(shown[index], ActionBuilder(MOBILE)) == action


def test_a_field_is_no_place_to_type_its_own_name_into() -> None:
    assert facts.describe_function(ELEMENTS[1]) == 'It is the field "First name", to type into.'
    assert facts.describe_function(replace(ELEMENTS[1], label="")) == "It is a field to type into."


def test_a_list_of_a_page_is_set_and_not_tapped() -> None:
    listed = Element(index=6, role="drop-down", label="Size", value="small")
    assert facts.find_own_action(listed, ActionBuilder(WEB)) == WEB.make("select", id=6, option="…")
    assert facts.describe_function(listed) == 'It is a list from which "Size" is chosen.'


def test_a_change_is_told_by_its_effect_and_what_is_new() -> None:
    other = Observation(space="mobile", title="Contacts", elements=(), text="Screen: Contacts")
    assert facts.describe_change(SCREEN_SEEN, other, "opened Contacts") == "Opened Contacts."
    assert (
        facts.describe_change(SCREEN_SEEN, other, "nothing is asked") == 'Nothing is asked. The screen is "Contacts".'
    )
    longer = Observation(
        space="mobile",
        title=TITLE,
        elements=(*ELEMENTS, Element(index=6, role="button", label="Undo")),
        text="",
    )
    assert facts.describe_change(SCREEN_SEEN, longer, "saved") == 'Saved. Now there is button "Undo" [6].'
    assert (
        facts.describe_change(SCREEN_SEEN, longer, "the page changed")
        == 'The page changed and now shows button "Undo" [6].'
    )
    assert facts.describe_change(SCREEN_SEEN, SCREEN_SEEN, 'asked "Sure?"') == 'Asked "Sure?".'


def test_what_only_moved_to_another_place_is_not_different() -> None:
    moved = tuple(replace(element, index=element.index + 1) for element in ELEMENTS)
    lower = replace(SCREEN_SEEN, elements=(Element(index=0, role="button", label="OK"), *moved))
    assert facts.describe_change(SCREEN_SEEN, lower, "asked") == 'Asked. Now there is button "OK" [0].'
    twice = replace(SCREEN_SEEN, elements=(*ELEMENTS, replace(ELEMENTS[0], index=6)))
    assert facts.describe_change(SCREEN_SEEN, twice, "copied") == 'Copied. Now there is icon "Close" [6].'
    cursor = replace(SCREEN_SEEN, elements=(*ELEMENTS[:2], replace(ELEMENTS[2], flags=()), *ELEMENTS[3:]))
    assert facts.describe_change(SCREEN_SEEN, cursor, "left it") == 'Left it. Now there is input "Last name": "" [2].'


def test_long_lists_are_cut() -> None:
    assert facts.join_names(["A"]) == "A"
    assert facts.join_names(["A", "B", "A"]) == "A and B"
    assert facts.join_names(list("ABCDEFGH")) == "A, B, C, D, E and 3 more"


def test_hands_have_a_verb_where_the_space_has_an_action() -> None:
    phone, page = ActionBuilder(MOBILE), ActionBuilder(WEB)
    assert (phone.tap(3), page.tap(3)) == (MOBILE.make("click", index=3), WEB.make("click", id=3))
    assert page.type(1, "a", instead=True) == WEB.make("type_string", id=1, content="a")
    assert phone.type(1, "a", instead=True) == MOBILE.make("input_text", index=1, text="a", clear_text=True)
    assert (phone.declare_done(), page.declare_done()) == (
        MOBILE.make("status", goal_status="complete"),
        WEB.make("finish"),
    )
    assert page.answer("yes") == WEB.make("finish", answer="yes")
    assert (page.hold(1), page.open("Clock"), page.go_home()) == (None, None, None)


def test_every_question_names_its_element_and_has_several_phrasings() -> None:
    assert format_element_name(ELEMENTS[1]) == 'input "First name" [1]'
    for kind, phrasings in ELEMENT.items():
        assert len(set(phrasings)) >= 3
        assert 'input "First name" [1]' in ask_about_element(kind, ELEMENTS[1], generator(0))
    assert all(len(set(phrasings)) >= 3 for phrasings in SCREEN.values())


_ANY = ("start", "back", "home", "scroll down", "scroll up", "is open")
_WISHES = {
    "switch": ("turn on", "turn off", "is on"),
    "checkbox": ("turn on", "turn off", "tick", "untick", "is on"),
    "radio": ("choose",),
    "input": ("type", "replace", "value"),
    "slider": ("more", "less", "value"),
    "drop-down": ("tap", "set", "value"),
    **{role: ("tap", "hold", "note") for role in ("list item", "link", "tab", "option", "spinner", "button", "chip")},
}


@pytest.mark.parametrize("role", _WISHES)
def test_one_instruction_never_asks_for_two_things(role: str) -> None:
    told = [phrase for wanted in (*_WISHES[role], *_ANY) for phrase in list_wordings(wanted, role)]
    assert len(told) == len(set(told))


def test_every_wish_has_the_wordings_that_people_use() -> None:
    assert {wanted for wishes in _WISHES.values() for wanted in wishes} | set(_ANY) == set(PHRASES)
    assert all(len(set(phrases)) >= 3 for phrases in PHRASES.values())
    assert set(TAPS) <= set(_WISHES)
    save, rng = Element(index=7, role="button", label="Save"), generator(0)
    said = {ask("tap", rng, role="button", it=name_as_user(save, rng, alone=True)) for _ in range(400)}
    assert {'Click on the "Save" button.', 'Press "Save".', "Tap Save.", 'Push the button "Save".'} <= said
    typed = {ask("type", rng, it=name_as_user(ELEMENTS[2], rng, alone=True), text="Ito") for _ in range(800)}
    assert {'Enter "Ito" into the "Last name" field.', 'Last name: "Ito".', 'The field "Last name": "Ito".'} <= typed


def test_an_element_is_called_by_its_label_and_where_others_share_it_by_its_role() -> None:
    rng = generator(0)
    tricky = ("Back", "a. b", 'say "x"', "pHD8", "x" * 40)
    bare = {label for label in tricky for _ in range(99) if name_as_user(_button(label), rng, alone=True) == label}
    assert bare == {"pHD8"}
    shared = {name_as_user(_button("OK"), rng, alone=False) for _ in range(40)}
    assert shared == {'the button "OK"', 'the "OK" button'}
    assert {ask("type", rng, it=name, text="x") for name in ("pHD8",) for _ in range(99)} >= {'pHD8: "x".'}


def _button(label: str) -> Element:
    return Element(index=0, role="button", label=label)


def test_drawn_texts_are_many_and_say_nothing_that_is_kept() -> None:
    kept = set(Library().load("envs", "androidworld", EnvironmentDefinition).unseen.words)
    rng = generator(0)
    texts = [draw_text(rng) for _ in range(4000)]
    assert len(set(texts)) > 2500
    assert not set().union(*map(split_words, texts)) & kept
    assert all(text and text == text.strip() for text in texts)
