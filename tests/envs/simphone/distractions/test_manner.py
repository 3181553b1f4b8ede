"""The manner of an episode: order, sizes and colours."""

import random
from dataclasses import replace

import pytest

from collab.envs.grammar import MOBILE
from collab.envs.random_actions import draw_action
from collab.envs.simphone.core import FACTORY, SimPhone
from collab.envs.simphone.distractions.looks import draw_manner
from collab.envs.simphone.distractions.presets import PRESETS, Distractions
from collab.envs.simphone.state import ACCENTS, HEIGHT, LAUNCHER, WIDTH, Manner, Page, Phone, push, start
from collab.envs.simphone.suite import SimPhoneSuite
from collab.envs.simphone.tasks import TASKS
from collab.envs.simphone.ui.render import render
from collab.envs.simphone.ui.screen import look
from collab.envs.simphone.ui.theme import ACCENTS as COLOURS
from collab.envs.simphone.ui.theme import DARK, LIGHT, apply_accent

SETTINGS = "com.android.settings"


def settings(manner: Manner) -> Phone:
    phone = replace(FACTORY, manner=manner)
    return start(phone, SETTINGS, FACTORY.apps.by_package[SETTINGS].pages)


def drawer(manner: Manner) -> Phone:
    return push(replace(FACTORY, manner=manner), Page(screen="launcher.drawer"))


def keys(phone: Phone) -> list[str]:
    """All keys of the screen in their order, those out of sight included."""
    placed = look(phone).placed
    return [*(node.key for node in placed.nodes), *placed.hidden]


@pytest.mark.parametrize("screen", [settings, drawer, lambda manner: replace(FACTORY, manner=manner)])
def test_an_order_is_the_episodes_own_and_loses_nothing(screen) -> None:  # type: ignore[no-untyped-def]
    usual = keys(screen(Manner()))
    orders = [keys(screen(Manner(order=seed))) for seed in range(4)]
    assert all(sorted(order) == sorted(usual) for order in orders)
    assert len({tuple(order) for order in orders}) > 1
    assert orders[0] == keys(screen(Manner(order=0)))


def test_the_search_stays_above_the_settings() -> None:
    searches = [look(settings(Manner(order=seed))).placed.nodes[1].key for seed in range(6)]
    assert set(searches) == {SETTINGS + ":id/search_action_bar"}


def test_the_order_of_pages_with_a_meaning_stays() -> None:
    page = Page(screen="contacts.editor", data={"id": None, "label": "Mobile"})
    forms = [push(replace(FACTORY, manner=Manner(order=seed)), page) for seed in (None, 1, 2)]
    assert keys(forms[0]) == keys(forms[1]) == keys(forms[2])


def test_an_entry_keeps_its_rank_while_others_go() -> None:
    phone = drawer(Manner(order=5))
    every = [key for key in keys(phone) if "/app/" in key]
    page = replace(phone.page, fields={"search": "c"})
    stack = (*phone.stacks[LAUNCHER][:-1], page)
    some = [key for key in keys(replace(phone, stacks={**phone.stacks, LAUNCHER: stack})) if "/app/" in key]
    assert 1 < len(some) < len(every)
    assert some == [key for key in every if key in some]


def test_rows_margins_and_text_change_their_places() -> None:
    usual, high = look(settings(Manner())).placed, look(settings(Manner(rows=1.2, inset=40))).placed
    one, other = usual.boxes[2], high.boxes[2]
    assert (one.left, one.right) == (0, WIDTH)
    assert (other.left, other.right) == (40, WIDTH - 40)
    assert other.bottom - other.top == round(150 * 1.2) + 50
    assert len(high.hidden) > len(usual.hidden)


def test_a_style_is_drawn_by_seed() -> None:
    manners = [draw_manner(PRESETS["hostile"], seed, "a task") for seed in range(60)]
    assert {manner.accent for manner in manners} == {None, *ACCENTS}
    assert len({manner.font for manner in manners}) == 4
    assert {manner.language for manner in manners} == {"english", "german"}
    assert manners == [draw_manner(PRESETS["hostile"], seed, "a task") for seed in range(60)]
    assert draw_manner(Distractions(), 1, "a task") == Manner()


def test_everything_lies_on_the_screen_in_any_style() -> None:
    suite = SimPhoneSuite(preset="hostile")
    for number, spec in enumerate(TASKS[::4]):
        phone, rng = SimPhone(distractions=PRESETS["hostile"]), random.Random(number)
        phone.reset(suite.instance(spec.name, number))
        for _ in range(8):
            result = phone.step(draw_action(MOBILE, phone.frame.observation, rng, ending=False))
            for one in result.observation.elements:
                assert one.box is not None
                assert 0 <= one.box.left < one.box.right <= WIDTH, one
                assert 0 <= one.box.top < one.box.bottom <= HEIGHT, one
            if result.done:
                break


def test_colours_have_light_and_dark_forms() -> None:
    assert set(COLOURS) == set(ACCENTS)
    for name in ACCENTS:
        assert apply_accent(LIGHT, name).accent != LIGHT.accent
        assert apply_accent(DARK, name).accent not in (DARK.accent, apply_accent(LIGHT, name).accent)
    assert apply_accent(LIGHT, None) is LIGHT


def test_size_and_colour_are_drawn() -> None:
    usual, own = (
        render(look(settings(manner)).observation) for manner in (Manner(), Manner(font=1.3, accent="green", inset=0))
    )
    assert usual.size == own.size
    assert usual.tobytes() != own.tobytes()
