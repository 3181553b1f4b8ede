import re

from hypothesis import given, settings
from hypothesis import strategies as st

from collab.envs.text import (
    MAX_ELEMENTS,
    MAX_LABEL,
    bound_elements,
    cut,
    cut_middle,
    describe_screen,
    flatten,
    format_element,
)
from collab.types import Element
from tests.properties import examples

anything = st.text(st.characters())
elements = st.builds(
    lambda label, value, flags: Element(index=7, role="input", label=label, value=value, flags=tuple(flags)),
    anything,
    st.none() | anything,
    st.lists(st.sampled_from(["checked", "focused", "surface"]), max_size=2),
)


def test_label_before_index():
    assert format_element(Element(index=7, role="button", label="Save")) == 'button "Save" [7]'
    assert (
        format_element(Element(index=8, role="input", label="Name", value="Ada", flags=("focused",)))
        == 'input "Name": "Ada" [8] (focused)'
    )


def test_what_is_missing_is_left_out():
    assert format_element(Element(index=0, role="image", label="")) == "image [0]"
    assert format_element(Element(index=0, role="input", label="Name", value="")) == 'input "Name": "" [0]'
    assert format_element(Element(index=1, role="slider", label="", value="30%")) == 'slider: "30%" [1]'


def test_flags_in_their_order_without_the_hidden_ones():
    flags = ("checked", "disabled", "surface")
    assert (
        format_element(Element(index=0, role="switch", label="Wi-Fi", flags=flags))
        == 'switch "Wi-Fi" [0] (checked, disabled)'
    )
    assert format_element(Element(index=0, role="canvas", label="", flags=("surface",))) == "canvas [0]"


def test_a_screen():
    two = [Element(index=0, role="text", label="a\nb"), Element(index=1, role="button", label="OK")]
    assert describe_screen("Notes:\tnew", two, ["Message: saved"]) == (
        'Screen: Notes: new\nMessage: saved\ntext "a b" [0]\nbutton "OK" [1]'
    )


def test_flat():
    assert flatten("one  two\n\nthree\t") == "one two three"
    assert flatten("as it is ") == "as it is "
    assert flatten("a\x00b\x1b[31m\u2028c\ud800") == "a b [31m c"
    assert flatten("👨‍👩‍👧 שלום naïve") == "👨‍👩‍👧 שלום naïve"


@settings(deadline=None, max_examples=examples(300))
@given(anything)
def test_flat_is_one_line_that_can_be_stored_and_stays(text):
    once = flatten(text)
    assert len(once.splitlines()) <= 1
    once.encode()
    assert flatten(once) == once
    assert not re.search(r"[\x00-\x1f\x7f]|  ", once)


@settings(deadline=None, max_examples=examples(300))
@given(elements)
def test_every_element_is_one_line_with_its_index(element):
    text = format_element(element)
    assert len(text.splitlines()) == 1
    assert text.startswith("input")
    assert "[7]" in text
    assert "surface" not in text or "surface" in element.label + (element.value or "")
    text.encode()


@given(st.text("ab e\u0301\u200d👩👧🏽\u05b0", max_size=90), st.integers(12, 80))
def test_cuts_are_short_and_between_characters(text, length):
    for short in (cut(text, length), cut_middle(text, length)):
        begin, mark, rest = short.partition("…")
        assert len(begin.rstrip()) <= length
        if mark:
            end = rest.rpartition("… ")[2]
            after = flatten(text)[len(begin) :] if short.endswith("…") else text[len(begin.removesuffix(" ")) :]
            assert not after.startswith(("\u0301", "\u200d", "\u05b0", "🏽"))
            assert not begin.endswith("\u200d")
            assert not end.startswith(("\u0301", "\u200d", "\u05b0", "🏽"))


def test_a_long_text_says_how_much_is_left_out():
    assert cut_middle("a" * 10 + "b" * 100 + "c" * 10, 15) == "aaaaaaaaaa … 107 characters left out … ccc"
    assert cut("a" * 30, 10) == "a" * 9 + "…"


def test_what_is_short_stays_the_very_same_element():
    one = Element(index=0, role="input", label="Name", value="Ada")
    long = Element(index=1, role="text", label="x" * 20_000)
    kept, bounded, *_ = all_of_them = bound_elements([one, *[long] * 2000])
    assert kept is one
    assert len(bounded.label) <= MAX_LABEL
    assert bounded.value is None
    assert len(all_of_them) == MAX_ELEMENTS
