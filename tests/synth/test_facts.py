"""What is said of screens and elements, in so many words."""

from __future__ import annotations

import pytest

from collab.config import EnvironmentDefinition
from collab.envs.actions import MOBILE, WEB
from collab.envs.text import describe_screen
from collab.library import Library
from collab.seeds import generator
from collab.splits.overlap import words_of
from collab.synth import facts
from collab.synth.hands import Hands
from collab.synth.instructions import PHRASES
from collab.synth.questions import ELEMENT, SCREEN, about_element, named
from collab.synth.texts import drawn_text
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
    assert facts.purpose(SCREEN_SEEN) == (
        'It is the screen "Edit contact" of Contacts. It is there to fill in First name and Last name; '
        "turn on or off Favourite."
    )
    assert facts.aim(SCREEN_SEEN) == (
        "Fill in First name and Last name; turn on or off Favourite; open Phone; tap Close."
    )
    assert facts.summary(SCREEN_SEEN) == (
        '"Contacts: Edit contact" shows 6 elements. A message says "Saved". 1 icon: Close. '
        '2 input: First name ("Ada") and Last name (empty). 1 switch: Favourite (on). '
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
    assert facts.information(ELEMENTS[index]) == said


@pytest.mark.parametrize(
    ("index", "action"),
    [
        (0, MOBILE.make("click", index=0)),
        (1, MOBILE.make("input_text", index=1, text="…")),
        (3, MOBILE.make("click", index=3)),
        (5, None),
    ],
)
def test_the_action_that_goes_with_an_element(index: int, action: Action | None) -> None:
    assert facts.own_action(ELEMENTS[index], Hands(MOBILE)) == action


def test_a_change_is_told_by_its_effect_and_what_is_new() -> None:
    other = Observation(space="mobile", title="Contacts", elements=(), text="Screen: Contacts")
    assert facts.change(SCREEN_SEEN, other, "opened Contacts") == "Opened Contacts."
    assert facts.change(SCREEN_SEEN, other, "nothing is asked") == 'Nothing is asked. The screen is "Contacts".'
    longer = Observation(
        space="mobile",
        title=TITLE,
        elements=(*ELEMENTS, Element(index=6, role="button", label="Undo")),
        text="",
    )
    assert facts.change(SCREEN_SEEN, longer, "saved") == 'Saved. New on the screen: button "Undo" [6].'
    assert facts.change(SCREEN_SEEN, SCREEN_SEEN, 'asked "Sure?"') == 'Asked "Sure?".'


def test_long_lists_are_cut() -> None:
    assert facts.listed(["A"]) == "A"
    assert facts.listed(["A", "B", "A"]) == "A and B"
    assert facts.listed(list("ABCDEFGH")) == "A, B, C, D, E and 3 more"


def test_hands_have_a_verb_where_the_space_has_an_action() -> None:
    phone, page = Hands(MOBILE), Hands(WEB)
    assert (phone.tap(3), page.tap(3)) == (MOBILE.make("click", index=3), WEB.make("click", id=3))
    assert page.type(1, "a", instead=True) == WEB.make("type_string", id=1, content="a")
    assert phone.type(1, "a", instead=True) == MOBILE.make("input_text", index=1, text="a", clear_text=True)
    assert (phone.done(), page.done()) == (MOBILE.make("status", goal_status="complete"), WEB.make("finish"))
    assert page.answer("yes") == WEB.make("finish", answer="yes")
    assert (page.hold(1), page.open("Clock"), page.home()) == (None, None, None)


def test_every_question_names_its_element_and_has_several_phrasings() -> None:
    assert named(ELEMENTS[1]) == 'input "First name" [1]'
    for kind, phrasings in ELEMENT.items():
        assert len(set(phrasings)) >= 3
        assert 'input "First name" [1]' in about_element(kind, ELEMENTS[1], generator(0))
    assert all(len(set(phrasings)) >= 3 for phrasings in SCREEN.values())


def test_one_instruction_never_asks_for_two_things() -> None:
    """A phrasing belongs to one wish, apart from opening what is open already."""
    told = [phrase for wanted, phrases in PHRASES.items() if wanted != "is open" for phrase in phrases]
    assert len(told) == len(set(told))


def test_drawn_texts_are_many_and_say_nothing_that_is_kept() -> None:
    kept = set(Library().load("envs", "androidworld", EnvironmentDefinition).unseen.words)
    rng = generator(0)
    texts = [drawn_text(rng) for _ in range(4000)]
    assert len(set(texts)) > 2500
    assert not set().union(*map(words_of, texts)) & kept
    assert all(text and text == text.strip() for text in texts)
