"""Settings read whatever the tables hold, as Android does."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from collab.envs.grammar import MOBILE
from collab.envs.simphone.apps import settings
from collab.envs.simphone.apps.settings import DEFAULTS, PAGES, TIMEOUT
from collab.envs.simphone.apps.system import open_quick_settings, open_shade
from collab.envs.simphone.core import FACTORY
from collab.envs.simphone.shell import run
from collab.envs.simphone.state import Manner, Phone, put_field, put_setting, start
from collab.envs.simphone.touch import act
from collab.envs.simphone.ui.screen import look
from tests.properties import examples

APP = start(FACTORY, settings.PACKAGE, settings.APP.pages)
KEY = settings.PACKAGE + ":id/"
DIALOGS = ("internet", "brightness", "timeout", "search")
VALUES = st.one_of(
    st.integers(-(10**12), 10**12).map(str),
    st.sampled_from(["", "null", "-1", "+7", "1.5", "٣", "1_000", " 1", "true", "NaN", "0x10", "99999999999999999999"]),
    st.text(max_size=8),
)


def screens(phone: Phone) -> list[Phone]:
    return [
        *(settings.open_page(phone, name) for name in (*PAGES, *DIALOGS)),
        open_shade(phone),
        open_quick_settings(phone),
    ]


@hypothesis_settings(deadline=None, max_examples=examples(40))
@given(st.dictionaries(st.sampled_from(sorted(DEFAULTS)), VALUES, min_size=1), st.randoms(use_true_random=False))
def test_every_screen_shows_and_obeys_whatever_the_tables_hold(values: dict[str, str], rng: random.Random) -> None:
    phone = APP
    for name, value in values.items():
        phone = put_setting(phone, name, value)
    for shown in screens(phone):
        frame = look(shown)
        for element in frame.observation.elements:
            if element.role == "slider":
                assert element.value is not None
                assert 0 <= int(element.value.rstrip("%")) <= 100
        index = rng.randrange(len(frame.observation.elements))
        look(act(frame, MOBILE.make("click", index=index)))


def found(words: str, phone: Phone = APP) -> list[str]:
    frame = look(phone)
    phone = act(frame, MOBILE.make("click", index=frame.index(KEY + "search_action_bar")))
    assert phone.keyboard
    phone = act(look(phone), MOBILE.make("input_text", text=words))
    return [one.label for one in look(phone).observation.elements if "/result/" in one.key or "no_results" in one.key]


def test_search_finds_rows_of_any_page_in_the_words_that_are_shown() -> None:
    assert found("blue") == ["Bluetooth", "Use Bluetooth", "When Bluetooth is on, the phone can find devices nearby"]
    assert found("kettle") == ["No results"]
    german = replace(APP, manner=Manner(language="german"))
    assert found("flugmodus", german) == ["Flugmodus"]
    assert found("airplane", german) == ["Flugmodus"]


def test_a_result_opens_the_page_on_which_it_stands_or_to_which_it_leads() -> None:
    phone = settings.open_page(APP, "search")
    typed = put_field(phone, "words", "airplane")
    frame = look(typed)
    page = act(frame, MOBILE.make("click", index=frame.index(KEY + "result/network/Airplane mode")))
    assert page.page.data == {"page": "network"}
    assert act(look(page), MOBILE.make("navigate_back")).page.fields["words"] == "airplane"
    frame = look(put_field(phone, "words", "timeout"))
    page = act(frame, MOBILE.make("click", index=frame.index(KEY + "result/display/Screen timeout")))
    assert page.page.screen == "settings.timeout"


@pytest.mark.parametrize(
    ("value", "label"),
    [
        ("15000", "15 seconds"),
        ("45000", "30 seconds"),
        ("600000", "10 minutes"),
        ("1", "15 seconds"),
        ("-1", "15 seconds"),
        ("2147483647", "30 minutes"),
        ("2147483648", "1 minute"),  # does not fit into 32 bits: the default holds
    ],
)
def test_any_screen_timeout_is_described_by_the_longest_choice_that_fits(value: str, label: str) -> None:
    phone = settings.open_page(put_setting(APP, TIMEOUT, value), "display")
    frame = look(phone)
    row = frame.observation.elements[frame.index(settings.PACKAGE + ":id/timeout") or 0]
    assert row.value == label
    dialog = look(settings.open_page(phone, "timeout"))
    checked = [element.label for element in dialog.observation.elements if "checked" in element.flags]
    assert checked == ([label] if value in ("15000", "600000") or row.value == "1 minute" else [])


def test_a_switch_that_makes_no_sense_stands_at_its_default_and_can_be_turned() -> None:
    phone = settings.open_page(put_setting(APP, "global/airplane_mode_on", "maybe"), "network")
    key = settings.PACKAGE + ":id/global/airplane_mode_on"
    frame = look(phone)
    index = frame.index(key)
    assert "checked" not in frame.observation.elements[index or 0].flags
    turned = act(frame, MOBILE.make("click", index=index))
    assert turned.settings["global/airplane_mode_on"] == "1"


@pytest.mark.parametrize(
    ("command", "accepted"),
    [
        ("settings put system screen_off_timeout 2147483647", True),
        ("settings put system screen_off_timeout 2147483648", False),
        ("settings put system screen_off_timeout soon", False),
        ("settings put global wifi_on maybe", True),
        ("settings put secure location_mode ''", True),
        ("settings put system screen_brightness 4000", True),
    ],
)
def test_settings_put_checks_the_system_table_alone(command: str, accepted: bool) -> None:
    result = run(APP, command)
    assert (result.exit_code == 0) is accepted
    for shown in screens(result.phone):
        look(shown)
