from __future__ import annotations

import random
import re
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import pytest

from collab.envs.grammar import MOBILE
from collab.envs.random_actions import draw_action
from collab.envs.web.miniwob_page import PHONE
from collab.envs.web.mobile import MobileMiniwobSuite
from collab.envs.web.solutions import SOLVED
from collab.errors import UnknownName
from collab.types import Box, Observation

Check: TypeAlias = Callable[[MobileMiniwobSuite], Awaitable[None]]
SUITE = MobileMiniwobSuite
"""What the fixture `play` runs checks on."""


def index(shown: Observation, role: str, label: str | None = None) -> int:
    return next(e.index for e in shown.elements if e.role == role and label in (None, e.label))


def test_the_91_names() -> None:
    suite = MobileMiniwobSuite()
    assert [info.name for info in suite.tasks()] == sorted(PHONE)
    assert {info.max_steps for info in suite.tasks()} == {30}
    with pytest.raises(UnknownName):
        suite.instance("stock-market", 0)


@pytest.mark.medium
@pytest.mark.browser
def test_a_tap_ends_a_page_and_only_full_reward_counts(play: Callable[[Check], None]) -> None:
    async def check(suite: MobileMiniwobSuite) -> None:
        environment = await suite.open()
        task = suite.instance("click-button", 7)
        shown = await environment.reset(task)
        assert (shown.space, shown.width, shown.height, shown.url) == ("mobile", 1080, 1920, None)
        result = await environment.step(MOBILE.make("click", index=index(shown, "button", "Next")))
        assert result.terminated
        assert result.outcome is not None
        assert result.outcome.success
        assert (await environment.reset(task)).digest == shown.digest
        given_up = await environment.step(MOBILE.make("status", goal_status="infeasible"))
        assert given_up.terminated
        assert given_up.outcome is not None
        assert not given_up.outcome.success

    play(check)


@pytest.mark.browser
def test_a_tap_on_a_run_of_text_lands_on_it(play: Callable[[Check], None]) -> None:
    """A proposal of the list is shown as one, and screen pixels are three times the page's."""

    async def check(suite: MobileMiniwobSuite) -> None:
        environment = await suite.open()
        await environment.reset(suite.instance("use-autocomplete", 1))
        shown = (await environment.step(MOBILE.make("input_text", index=0, text="Ce", press_enter=False))).observation
        assert "#text" in shown.elements[index(shown, "text", "Central African Republic")].key
        tapped = await environment.step(MOBILE.make("click", index=index(shown, "text", "Central African Republic")))
        field = tapped.observation.elements[index(tapped.observation, "input", "Tags:")]
        assert field.value == "Central African Republic"

    play(check)


@pytest.mark.browser
def test_shapes_are_told_in_the_pixels_of_their_boxes(play: Callable[[Check], None]) -> None:
    """A box of mere colour lies where its label says, a drawn shape that far from its drawing's corner."""

    async def check(suite: MobileMiniwobSuite) -> None:
        environment = await suite.open()
        for name, drawing in (("visual-addition", False), ("grid-coordinate", True)):
            shown = await environment.reset(suite.instance(name, 1))
            corner = next(e.box for e in shown.elements if e.role == "drawing") if drawing else Box(0, 0, 0, 0)
            assert corner is not None
            shapes = [element for element in shown.elements if element.role == "shape"]
            assert len(shapes) > 2
            for shape in shapes:
                told = re.search(r", (\d+)×(\d+) at (-?\d+),(-?\d+)$", shape.label)
                assert told is not None
                assert shape.box is not None
                x, y = shape.box.center
                size = shape.box.right - shape.box.left, shape.box.bottom - shape.box.top
                # Boxes end at whole pixels of the page, which are three of the screen.
                assert [int(number) for number in told.groups()] == pytest.approx(
                    [*size, x - corner.left, y - corner.top], abs=3
                )

    play(check)


@pytest.mark.browser
def test_a_point_and_its_element_are_one_target(play: Callable[[Check], None]) -> None:
    async def check(suite: MobileMiniwobSuite) -> None:
        environment = await suite.open()
        task = suite.instance("focus-text-2", 3)
        shown = await environment.reset(task)
        box = shown.elements[1].box
        assert box is not None
        x, y = box.center
        by_index = await environment.step(MOBILE.make("click", index=1))
        await environment.reset(task)
        by_point = await environment.step(MOBILE.make("click", x=x, y=y))
        assert by_point.observation.digest == by_index.observation.digest

    play(check)


@pytest.mark.browser
def test_text_is_typed_after_what_stands_there_or_in_its_place(play: Callable[[Check], None]) -> None:
    async def check(suite: MobileMiniwobSuite) -> None:
        environment = await suite.open()
        shown = await environment.reset(suite.instance("login-user", 1))
        at = index(shown, "input")

        async def value(**fields: object) -> str | None:
            result = await environment.step(MOBILE.make("input_text", **fields))
            return result.observation.elements[at].value

        assert await value(index=at, text="ada") == "ada"
        assert await value(index=at, text=" l") == "ada l"
        assert await value(index=at, text="bob", clear_text=True) == "bob"
        assert await value(text="by") == "bobby"
        assert await value(text="", clear_text=True, press_enter=False) == ""
        assert await value(text="bob") == "bob"
        before = shown.digest
        refused = await environment.step(MOBILE.make("input_text", index=index(shown, "button"), text="x"))
        assert "takes no text" in refused.info["effect"]
        assert refused.observation.digest != before
        blurred = await environment.step(MOBILE.make("navigate_back"))
        assert not [e for e in blurred.observation.elements if "focused" in e.flags]

    play(check)


@pytest.mark.browser
def test_a_list_opens_and_an_option_is_tapped(play: Callable[[Check], None]) -> None:
    async def check(suite: MobileMiniwobSuite) -> None:
        environment = await suite.open()
        shown = await environment.reset(suite.instance("choose-list", 2))
        opened = (await environment.step(MOBILE.make("click", index=index(shown, "drop-down")))).observation
        options = [e for e in opened.elements if e.role == "option"]
        result = await environment.step(MOBILE.make("click", index=options[-1].index))
        assert result.observation.elements[index(shown, "drop-down")].value == options[-1].label

    play(check)


@pytest.mark.browser
def test_swipes_scroll_and_drag(play: Callable[[Check], None]) -> None:
    async def check(suite: MobileMiniwobSuite) -> None:
        environment = await suite.open()
        shown = await environment.reset(suite.instance("social-media-all", 2))
        down = (await environment.step(MOBILE.make("scroll", direction="down"))).observation
        assert down.digest != shown.digest
        back = (await environment.step(MOBILE.make("swipe", direction="down"))).observation
        assert [e.label for e in back.elements] == [e.label for e in shown.elements]
        top = await environment.step(MOBILE.make("scroll", direction="up"))
        assert top.info["effect"] == "nothing changed: nothing more to scroll"
        shown = await environment.reset(suite.instance("use-slider", 3))
        handle = next(e for e in shown.elements if "surface" in e.flags or "slider" in e.label)
        moved = await environment.step(MOBILE.make("swipe", index=handle.index, direction="right"))
        held = await environment.step(MOBILE.make("swipe", index=handle.index, direction="left"))
        assert shown.digest != moved.observation.digest or shown.digest != held.observation.digest

    play(check)


@pytest.mark.browser
def test_what_a_single_page_cannot_do_is_said(play: Callable[[Check], None]) -> None:
    async def check(suite: MobileMiniwobSuite) -> None:
        environment = await suite.open()
        shown = await environment.reset(suite.instance("click-test-2", 1))
        for action in (
            MOBILE.make("navigate_home"),
            MOBILE.make("open_app", app_name="Clock"),
            MOBILE.make("unknown"),
            MOBILE.make("navigate_back"),
            MOBILE.make("click", x=5000, y=5000),
            MOBILE.make("input_text", text="nobody listens"),
            MOBILE.make("input_text", text=""),
        ):
            result = await environment.step(action)
            assert str(result.info["effect"]).startswith("nothing changed"), action
            assert result.observation.digest == shown.digest
        assert (await environment.step(MOBILE.make("wait"))).observation.digest == shown.digest
        assert not (await environment.step(MOBILE.make("answer", text="42"))).done

    play(check)


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_page_starts_repeats_forks_and_survives(play: Callable[[Check], None]) -> None:
    async def check(suite: MobileMiniwobSuite) -> None:
        environment = await suite.open()
        for name in PHONE:
            task = suite.instance(name, 5)
            first = await environment.reset(task)
            assert environment.goal(), name
            assert first.elements, name
            shown, rng = first, random.Random(name)
            for number in range(6):
                result = await environment.step(draw_action(MOBILE, shown, rng, ending=False))
                shown = result.observation
                if result.done:
                    break
                if number == 3:
                    await (await environment.fork()).close()
            assert (await environment.reset(task)).elements == first.elements, name

    play(check)


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_solutions_of_the_pages_solve_them_on_the_phone(play: Callable[[Check], None]) -> None:
    async def check(suite: MobileMiniwobSuite) -> None:
        environment = await suite.open()
        failed = []
        for name in sorted(SOLVED & set(PHONE)):
            for seed in range(100, 110):
                await environment.reset(suite.instance(name, seed))
                result = None
                while result is None or not result.done:
                    plan = environment.oracle()
                    assert plan, (name, seed, environment.goal())
                    result = await environment.step(plan[0])
                if result.outcome is None or not result.outcome.success:
                    failed.append((name, seed))
        assert not failed

    play(check)
