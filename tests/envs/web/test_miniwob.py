from __future__ import annotations

import asyncio
import contextlib
import io
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import TypeAlias

import pytest
from PIL import Image

from collab.envs.base import Bounded, Forkable, HasGoal, HasOracle, HasScreenshot
from collab.envs.grammar import WEB
from collab.envs.random_actions import draw_action
from collab.envs.web.miniwob import MiniwobEnvironment, MiniwobSuite, judge_page
from collab.envs.web.miniwob_page import ALL, DESKTOP, PHONE, MiniwobPage, PageEpisode, Shown
from collab.envs.web.mobile import MobileMiniwobSuite
from collab.envs.web.solutions import SOLVED
from collab.errors import EnvironmentFailure, UnknownName
from collab.types import StepResult

FEW = ("choose-list", "login-user", "email-inbox")
"""Pages of different kinds, for the checks that are too slow for all."""


Check: TypeAlias = Callable[[MiniwobSuite], Awaitable[None]]
SUITE = MiniwobSuite
"""What the fixture `play` runs checks on."""


def play_alone(check: Check, **options: object) -> None:
    """Run a check on a suite of its own."""

    async def run() -> None:
        suite = MiniwobSuite(**options)  # type: ignore[arg-type]
        try:
            await check(suite)
        finally:
            await suite.close()

    asyncio.run(run())


async def follow(environment: MiniwobEnvironment) -> StepResult:
    """Do what the oracle says until the end."""
    while True:
        plan = environment.oracle()
        assert plan, (environment.goal(), plan)
        result = await environment.step(plan[0])
        if result.done:
            return result


# -------------------------------------------------------------------------------------------- without a browser


def test_names() -> None:
    assert len(ALL) == 130
    assert len(PHONE) == 91
    assert not set(PHONE) & set(DESKTOP)
    suite = MiniwobSuite()
    infos = suite.tasks()
    assert [info.name for info in infos] == list(ALL)
    assert {info.name for info in infos if info.oracle} == SOLVED
    assert len([info for info in infos if "click" in info.tags]) > 30
    assert {"email-inbox", "email-inbox-reply"} <= {info.name for info in infos if "email" in info.tags}


def test_an_instance_is_a_name_and_a_seed() -> None:
    suite = MiniwobSuite(max_steps=7)
    task = suite.instance("click-test", 3)
    assert (task.name, task.seed, task.goal, task.max_steps) == ("click-test", 3, "", 7)
    with pytest.raises(UnknownName, match="did you mean click-test"):
        suite.instance("click-tset", 0)


@pytest.mark.parametrize(
    ("raw", "reward", "rule", "success", "score"),
    [
        (1.0, 0.4, "raw==1", True, 1.0),
        (0.6, 0.6, "raw==1", False, 0.6),
        (0.6, 0.6, "raw>0", True, 0.6),
        (1.0, 0.4, "original", True, 0.4),
        (-1.0, -1.0, "raw>0", False, 0.0),
    ],
)
def test_reward_rules(raw: float, reward: float, rule: str, success: bool, score: float) -> None:
    ended = PageEpisode(goal="", done=True, raw=raw, reward=reward, reason="")
    judged = judge_page(ended, rule)  # type: ignore[arg-type]
    assert (judged.success, judged.score) == (success, score)
    running = PageEpisode(goal="", done=False, raw=raw, reward=reward, reason="")
    assert not judge_page(running, rule).success  # type: ignore[arg-type]


# ----------------------------------------------------------------------------------------------- with a browser


@pytest.mark.medium
@pytest.mark.browser
def test_an_episode(play: Callable[[Check], None]) -> None:
    async def check(suite: MiniwobSuite) -> None:
        environment = await suite.open()
        first = await environment.reset(suite.instance("click-button", 7))
        assert isinstance(environment, (Forkable, HasGoal))
        assert isinstance(environment, HasOracle)
        assert isinstance(environment, HasScreenshot)
        assert environment.goal() == 'Click on the "Next" button.'
        assert 'button "Next" [1]' in first.text
        assert "127.0.0.1" not in first.text
        looked = await environment.step(None)
        assert (looked.done, looked.info["effect"]) == (False, "nothing changed")
        result = await environment.step(WEB.make("click", id=1))
        assert result.terminated
        assert result.outcome is not None
        assert result.outcome.success
        assert environment.oracle() == ()
        again = await environment.step(WEB.make("click", id=0))
        assert again.outcome == result.outcome
        assert again.info["effect"] == "nothing changed: the episode is over"

    play(check)


@pytest.mark.browser
def test_pages_cannot_be_left_and_nonsense_changes_nothing(play: Callable[[Check], None]) -> None:
    async def check(suite: MiniwobSuite) -> None:
        environment = await suite.open()
        first = await environment.reset(suite.instance("login-user", 7))
        nonsense = [
            WEB.make("jump_to", url="http://example.org"),
            WEB.make("go", direction="backward"),
            WEB.make("switch_tab", i=1),
            WEB.make("user_input", message="?"),
            WEB.make("click", id=99),
            WEB.make("select", id=0, option="x"),
            WEB.make("type_string", id=4, content="text for a button"),
            WEB.make("scroll_page", direction="up"),
        ]
        for action in nonsense:
            result = await environment.step(action)
            assert result.observation.digest == first.digest, action
            assert result.info["effect"], action
            assert not result.done
        ended = await environment.step(WEB.make("finish"))
        assert ended.terminated
        assert ended.outcome is not None
        assert not ended.outcome.success

    play(check)


@pytest.mark.browser
def test_the_budget_ends_an_episode(play: Callable[[Check], None]) -> None:
    async def check(suite: MiniwobSuite) -> None:
        environment = await suite.open()
        await environment.reset(replace(suite.instance("click-test-2", 0), max_steps=3))
        results = [await environment.step(None) for _ in range(3)]
        assert [result.truncated for result in results] == [False, False, True]
        assert results[-1].outcome is not None

    play(check)


@pytest.mark.medium
@pytest.mark.browser
def test_same_seed_same_start_whatever_came_before(play: Callable[[Check], None]) -> None:
    async def check(suite: MiniwobSuite) -> None:
        one, other = await suite.open(), await suite.open()
        for name in FEW:
            task = suite.instance(name, 11)
            first = await one.reset(task)
            shown, rng = first, random.Random(name)
            for _ in range(5):
                result = await one.step(draw_action(WEB, shown, rng, ending=False))
                shown = result.observation
                if result.done:
                    break
            assert (await one.reset(task)).elements == first.elements, name
            assert (await other.reset(task)).elements == first.elements, name
            goal = other.goal()
            assert ((await other.reset(suite.instance(name, 12))).digest, other.goal()) != (first.digest, goal), name

    play(check)


@pytest.mark.browser
def test_a_plain_click_needs_no_second_look_and_other_things_do(play: Callable[[Check], None]) -> None:
    async def check(suite: MiniwobSuite) -> None:
        environment = await suite.open()
        shown = await environment.reset(suite.instance("choose-list", 3))
        page = environment._page
        assert page is not None
        by_role = {element.role: element for element in shown.elements}
        button = by_role["button"]
        spot = page.find_spot(button.key)
        assert spot is not None
        assert button.box is not None
        assert button.box.contains(*spot)
        assert page.find_spot(by_role["drop-down"].key) is None  # a list is opened by focus, not by a click
        assert page.find_spot("html[1]/body[1]/gone[1]") is None
        await environment.step(WEB.make("click", id=button.index))
        assert await page.tab.evaluate("WOB_DONE_GLOBAL")

    play(check)


@pytest.mark.browser
def test_scrolling_leaves_nothing_under_the_mouse(play: Callable[[Check], None]) -> None:
    async def check(suite: MiniwobSuite) -> None:
        environment = await suite.open()
        shown = await environment.reset(suite.instance("social-media-all", 0))
        icon = next(element for element in shown.elements if element.label == "share")
        shown = (await environment.step(WEB.make("hover", id=icon.index))).observation
        assert shown.elements[icon.index].label == "share hover"
        shown = (await environment.step(WEB.make("scroll_page", direction="up"))).observation
        assert [element.label for element in shown.elements if "hover" in element.label] == []

    play(check)


@pytest.mark.browser
def test_a_fork_equals_its_original_and_is_independent(play: Callable[[Check], None]) -> None:
    async def check(suite: MiniwobSuite) -> None:
        environment = await suite.open()
        await environment.reset(suite.instance("search-engine", 4))
        plan = environment.oracle()
        assert plan is not None
        for action in plan[:2]:
            await environment.step(action)
        twin = await environment.fork()
        assert (await follow(twin)).terminated
        await twin.close()
        ended = await follow(environment)
        assert ended.outcome is not None
        assert ended.outcome.success

    play(check)


@pytest.mark.browser
def test_a_crashed_page_is_a_failure_and_is_replaced(play: Callable[[Check], None]) -> None:
    async def check(suite: MiniwobSuite) -> None:
        environment = await suite.open()
        task = suite.instance("click-test-2", 0)
        first = await environment.reset(task)
        assert environment._page is not None
        await environment._page.tab.context.close()
        with pytest.raises(EnvironmentFailure, match="click-test-2"):
            await environment.step(WEB.make("click", id=0))
        with pytest.raises(EnvironmentFailure, match="call reset first"):
            await environment.step(None)
        assert (await environment.reset(task)).digest == first.digest

    play(check)


@pytest.mark.browser
def test_a_crash_is_told_at_once(play: Callable[[Check], None]) -> None:
    from playwright.async_api import Error

    async def check(suite: MiniwobSuite) -> None:
        environment = await suite.open()
        task = suite.instance("click-test-2", 0)
        first = await environment.reset(task)
        assert environment._page is not None
        with pytest.raises(Error):
            await environment._page.tab.goto("chrome://crash", timeout=3000)
        with pytest.raises(EnvironmentFailure, match=r"closed|crashed"):  # and not "timed out"
            await environment.step(None)
        assert (await environment.reset(task)).digest == first.digest

    play(check)


@pytest.mark.browser
@pytest.mark.slow
def test_a_page_that_hangs_is_given_up_in_time() -> None:
    async def check(suite: MiniwobSuite) -> None:
        environment = await suite.open()
        task = suite.instance("click-test-2", 0)
        first = await environment.reset(task)
        assert environment._page is not None
        await environment._page.tab.evaluate("() => { setTimeout(() => { for (;;); }, 100); }")
        with pytest.raises(EnvironmentFailure, match="timed out"):
            await environment.step(None)
        assert (await environment.reset(task)).digest == first.digest

    play_alone(check, timeout_s=2.0)


@pytest.mark.browser
def test_few_pages_load_at_once_and_waiting_for_a_turn_takes_no_time(
    play: Callable[[Check], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All at once on a busy machine, none would be there within its time."""
    loading: set[MiniwobPage] = set()
    timed = most_loading = most_timed = 0
    really_start, really_guarded = MiniwobPage.start, MiniwobEnvironment._guard_page

    async def start(page: MiniwobPage, name: str, seed: int) -> Shown:
        nonlocal most_loading
        loading.add(page)
        most_loading = max(most_loading, len(loading))
        await asyncio.sleep(0.1)
        shown = await really_start(page, name, seed)
        loading.discard(page)
        return shown

    @contextlib.asynccontextmanager
    async def guarded(environment: MiniwobEnvironment) -> AsyncIterator[MiniwobPage]:
        nonlocal timed, most_timed
        timed += 1
        most_timed = max(most_timed, timed)
        async with really_guarded(environment) as page:
            yield page
        timed -= 1

    async def check(suite: MiniwobSuite) -> None:
        monkeypatch.setattr(suite._tabs, "starts", asyncio.Semaphore(2))
        opened = [await suite.open() for _ in range(3)]
        task = suite.instance("click-test", 0)
        screens = await asyncio.gather(*(environment.reset(task) for environment in opened))
        assert len({screen.digest for screen in screens}) == 1

    monkeypatch.setattr(MiniwobPage, "start", start)
    monkeypatch.setattr(MiniwobEnvironment, "_guard_page", guarded)
    play(check)
    assert (most_loading, most_timed) == (2, 2)


@pytest.mark.parametrize("suite", [MiniwobSuite(pages=3), MobileMiniwobSuite(pages=3)])
def test_no_more_episodes_are_begun_than_there_are_tabs(suite: Bounded) -> None:
    assert isinstance(suite, Bounded)
    assert suite.most_environments == 3


@pytest.mark.browser
@pytest.mark.slow
def test_more_episodes_than_tabs_is_said_not_hung() -> None:
    async def check(suite: MiniwobSuite) -> None:
        one, other = await suite.open(), await suite.open()
        await one.reset(suite.instance("click-test", 0))
        suite._tabs._patience_s = 0.2
        with pytest.raises(EnvironmentFailure, match="with 1 tab in use"):
            await other.reset(suite.instance("click-test", 0))
        await one.close()
        suite._tabs._patience_s = 60
        assert (await other.reset(suite.instance("click-test", 0))).elements

    play_alone(check, pages=1)


@pytest.mark.browser
@pytest.mark.slow
def test_as_many_episodes_as_there_are_tabs_may_all_be_judged_at_once() -> None:
    """Each keeps its tab meanwhile, so what judging forks must not wait for those."""

    async def check(suite: MiniwobSuite) -> None:
        suite._tabs._patience_s = 5
        episodes = [await suite.open() for _ in range(2)]
        await asyncio.gather(*(one.reset(suite.instance("click-test", 0)) for one in episodes))
        forks = await asyncio.gather(*(one.fork() for one in episodes))
        deeper = await asyncio.gather(*(one.fork() for one in forks))
        assert len({screen.digest for screen in [(await one.step(None)).observation for one in deeper]}) == 1
        for one in (*deeper, *forks, *episodes):
            await one.close()

    play_alone(check, pages=2)


@pytest.mark.browser
@pytest.mark.slow
def test_the_page_counts_time_only_by_the_original_rule() -> None:
    async def check(suite: MiniwobSuite) -> None:
        environment = await suite.open()
        await environment.reset(suite.instance("click-test-2", 0))
        for _ in range(19):
            result = await environment.step(None)
            if result.done:
                break
        assert result.terminated
        assert result.outcome is not None
        assert result.outcome.score == 0

    play_alone(check, reward="original")


@pytest.mark.browser
def test_a_screenshot_is_a_picture_of_the_window(play: Callable[[Check], None]) -> None:
    async def check(suite: MiniwobSuite) -> None:
        environment = await suite.open()
        await environment.reset(suite.instance("click-shape", 0))
        plain, marked = await environment.screenshot(), await environment.screenshot(marks=True)
        assert plain[:8] == marked[:8] == b"\x89PNG\r\n\x1a\n"
        assert Image.open(io.BytesIO(plain)).size == (320, 240)
        assert plain != marked

    play(check)


@pytest.mark.browser
@pytest.mark.parametrize("name", ["click-color", "enter-date", pytest.param("search-engine", marks=pytest.mark.slow)])
def test_a_solution_solves(name: str, play: Callable[[Check], None]) -> None:
    async def check(suite: MiniwobSuite) -> None:
        environment = await suite.open()
        for seed in range(3):
            await environment.reset(suite.instance(name, seed))
            result = await follow(environment)
            assert result.outcome is not None
            assert result.outcome.success, (seed, environment.goal())

    play(check)


# --------------------------------------------------------------------------------------------------- all pages


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_solution_solves_ten_seeds(play: Callable[[Check], None]) -> None:
    async def check(suite: MiniwobSuite) -> None:
        environment = await suite.open()
        failed = []
        for name in sorted(SOLVED):
            for seed in range(100, 110):
                await environment.reset(suite.instance(name, seed))
                result = await follow(environment)
                if result.outcome is None or not result.outcome.success:
                    failed.append((name, seed))
        assert not failed

    play(check)


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_page_starts_repeats_forks_and_survives(play: Callable[[Check], None]) -> None:
    async def check(suite: MiniwobSuite) -> None:
        environment = await suite.open()
        same = []
        for name in ALL:
            task = suite.instance(name, 5)
            first = await environment.reset(task)
            goal = environment.goal()
            assert goal, name
            assert first.elements, name
            shown, rng, twin = first, random.Random(name), None
            for number in range(6):
                result = await environment.step(draw_action(WEB, shown, rng, ending=False))
                shown = result.observation
                if result.done:
                    break
                if number == 3:
                    twin = await environment.fork()
                    await twin.close()
            assert (await environment.reset(task)).elements == first.elements, name
            again = await environment.reset(suite.instance(name, 6))
            if (again.digest, environment.goal()) == (first.digest, goal):
                same.append(name)
        assert len(same) < 20, same

    play(check)


@pytest.mark.slow
@pytest.mark.browser
def test_goals_are_the_same_in_every_time_zone_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages draw times and dates, and write them with the browser's own clock and calendar."""
    names = (
        "enter-time",
        "enter-date",
        "choose-date",
        "choose-date-easy",
        "daily-calendar",
        "book-flight",
        "buy-ticket",
    )
    told: list[list[str]] = []

    async def check(suite: MiniwobSuite) -> None:
        environment = await suite.open()
        seen = []
        for name in names:
            screen = await environment.reset(suite.instance(name, 4))
            seen.append(f"{name}: {environment.goal()}\n{screen.text}")
        told.append(seen)

    for zone in ("America/New_York", "Asia/Tokyo"):
        monkeypatch.setenv("TZ", zone)
        monkeypatch.setenv("LANG", "de_DE.UTF-8" if zone == "Asia/Tokyo" else "C.UTF-8")
        play_alone(check, pages=1)
    assert told[0] == told[1]
