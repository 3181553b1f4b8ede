"""The example shop in a real Chromium: its tasks are solved; tabs, history, downloads and dialogs."""

import asyncio
import io
import random
from collections.abc import Callable
from typing import Any

import pytest
from PIL import Image
from playwright.async_api import Error, Page

from collab.envs.grammar import WEB
from collab.envs.random_actions import draw_action
from collab.envs.web import live
from collab.envs.web.actions import perform
from collab.envs.web.dom import Snapshot, look
from collab.envs.web.window import BrowserWindow
from collab.errors import UsageError
from tests.envs.web.live.site import SHIPPED, Player, Script, Server

pytestmark = pytest.mark.browser


async def _search(player: Player, word: str) -> None:
    await player.do("click", "Accept")
    await player.do("type_string", "Search", content=word, press_enter=True)


async def find_the_price(player: Player) -> None:
    await _search(player, "pen")
    await player.do("click", "Fountain pen")
    assert "€ 21.00" in player.labels
    await player.do("finish", answer=" € 21.00 ")


async def search(player: Player) -> None:
    await _search(player, "mug")


async def read_the_sizes(player: Player) -> None:
    await player.do("click", "Only what is needed")
    await player.do("click", "Sizes")


async def fill_the_cart(player: Player) -> None:
    await _search(player, "lamp")
    await player.do("click", "Desk lamp")
    await player.do("select", "Colour", option="white")
    await player.do("type_string", "Amount", content="2")
    await player.do("click", "Put into the cart")


async def buy_a_mug(player: Player) -> None:
    await _search(player, "mug")
    await player.do("click", "Blue mug")
    await player.do("click", "Put into the cart")
    await player.do("click", "Go to checkout")
    await player.do("click", "Buy now")
    assert player.seen.url == "http://shop.test/checkout.html", "an empty form must not pass"
    await player.do("type_string", "Name", content="Ada Lovelace")
    await player.do("type_string", "Street", content="St James's Square 12\nLondon")
    await player.do("type_string", "Deliver on", content="2026-01-02")
    await player.do("click", "Invoice")
    await player.do("click", "Buy now")
    assert "Please accept the terms." in player.labels
    await player.do("click", "I accept the terms")
    await player.do("click", "Buy now")


SOLUTIONS = (find_the_price, search, read_the_sizes, fill_the_cart, buy_a_mug)
QUICK = ("search", "read-the-sizes")


@pytest.mark.parametrize(
    "name",
    [
        task["name"] if task["name"] in QUICK else pytest.param(task["name"], marks=pytest.mark.slow)
        for task in SHIPPED["tasks"]
    ],
)
def test_every_shipped_task_can_be_solved(in_shop: Callable[[Script], None], name: str) -> None:
    async def script(player: Player) -> None:
        await player.start(name)
        await {solution.__name__: solution for solution in SOLUTIONS}[name.replace("-", "_")](player)
        assert player.last.terminated
        assert not player.last.truncated
        assert player.last.outcome is not None
        assert player.last.outcome.success, player.last.outcome.reason
        with pytest.raises(UsageError, match="no episode is running"):
            await player.environment.step(None)

    in_shop(script)


@pytest.mark.medium
def test_an_episode_begins_in_a_fresh_window_and_looks_the_same_again(in_shop: Callable[[Script], None]) -> None:
    async def script(player: Player) -> None:
        first = await player.start("fill-the-cart")
        assert "Cookies" in player.labels
        await player.do("click", "Accept")
        assert "Cookies" not in player.labels
        assert (await player.start("fill-the-cart")) == first

    in_shop(script)


def test_a_pop_up_hides_what_cannot_be_clicked(in_shop: Callable[[Script], None]) -> None:
    async def script(player: Player) -> None:
        seen = await player.start("search")
        assert [element.label for element in seen.elements if element.role in ("button", "link", "input")] == [
            "Accept",
            "Only what is needed",
        ]

    in_shop(script)


@pytest.mark.medium
def test_tabs_open_switch_and_close(in_shop: Callable[[Script], None]) -> None:
    async def script(player: Player) -> None:
        await player.start("search")
        await player.do("click", "Accept")
        result = await player.do("click", "Sizes")
        assert [(tab.url, tab.active) for tab in player.seen.tabs] == [
            ("http://shop.test/", False),
            ("http://shop.test/sizes.html", True),
        ]
        assert "new tab" in result.info["effect"]
        assert "Tabs: 0 'Corner Shop', 1 'Sizes – Corner Shop' (shown)" in player.seen.text
        await player.do("switch_tab", i=0)
        assert player.seen.title == "Corner Shop"
        assert "no tab 7" in (await player.do("switch_tab", i=7)).info["effect"]
        await player.do("switch_tab", i=1)
        assert "closed" in (await player.do("click", "Close this tab")).info["effect"]
        assert [tab.url for tab in player.seen.tabs] == ["http://shop.test/"]
        await player.do("jump_to", url="/cart.html", new_tab=True)
        assert [tab.url for tab in player.seen.tabs] == ["http://shop.test/", "http://shop.test/cart.html"]

    in_shop(script)


@pytest.mark.medium
def test_a_click_that_closes_its_own_tab_is_told_as_that(
    in_shop: Callable[[Script], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a slow machine the tab is gone before the mouse is heard of again, and the browser calls that an error."""

    async def late(page: Page, *rest: Any) -> str | None:
        told = await perform(page, *rest)
        while not page.is_closed():
            await asyncio.sleep(0.01)
        raise Error(f"Target page, context or browser has been closed; {told}")

    async def script(player: Player) -> None:
        await player.start("search")
        await player.do("click", "Accept")
        await player.do("click", "Sizes")
        monkeypatch.setattr(live, "perform", late)
        assert "closed" in (await player.do("click", "Close this tab")).info["effect"]

    in_shop(script)


@pytest.mark.parametrize(
    "opener",
    [
        '<a href="/later" target="_blank">Open</a>',
        pytest.param("""<button onclick="window.open('/later')">Open</button>""", marks=pytest.mark.slow),
        pytest.param('<a href="/moved" target="_blank" rel="noopener">Open</a>', marks=pytest.mark.slow),
    ],
)
def test_a_new_tab_is_awaited_however_late_its_page(on_page: Callable[..., None], server: Server, opener: str) -> None:
    """The browser tells of the tab only when its page begins to arrive; the one behind it is quiet meanwhile."""
    server.add("/later", "<title>Late</title><p>at last</p>")
    server.redirects["/moved"] = "/later"
    server.delays_s["/later"] = 0.8

    async def script(player: Player) -> None:
        await player.start("page")
        result = await player.do("click", "Open")
        assert result.info["effect"] == "a new tab shows 'Late'"
        assert "at last" in player.labels

    on_page(opener, script, settle_s=0.3)


def test_a_new_tab_is_awaited_from_its_announcement_on_and_no_longer_than_it_takes(
    on_page: Callable[..., None], server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before its page is asked for, too."""
    server.add("/later", "<title>Late</title>")
    server.delays_s["/later"] = 0.5
    monkeypatch.setattr(BrowserWindow, "_on_request", lambda window, request: None)

    async def script(player: Player) -> None:
        await player.start("page")
        result = await player.do("click", "Open")
        assert result.info["effect"] == "a new tab shows 'Late'"
        assert not player.environment.window.is_loading()

    on_page('<a href="/later" target="_blank">Open</a>', script, settle_s=20.0)


@pytest.mark.slow
def test_a_page_that_comes_late_has_its_time_to_settle(on_page: Callable[..., None], server: Server) -> None:
    """Here it comes after the time in which one must settle that is there at once."""
    server.add("/later", '<p>wait</p><script src="/more"></script>')
    server.add("/more", "document.body.append('at last')")
    server.delays_s.update({"/later": 2.5, "/more": 0.6})

    async def script(player: Player) -> None:
        await player.start("page")
        for label in ("New", "Same"):
            await player.do("click", label)
            assert str(player.seen.url).endswith("/later")
            assert "at last" in " ".join(player.labels)
            await player.do("switch_tab", i=0)

    on_page('<a href="/later" target="_blank">New</a> <a href="/later">Same</a>', script, settle_s=2.0)


def test_a_last_tab_that_closes_while_it_is_looked_at_leaves_an_empty_one(
    on_page: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def closing(page: Page) -> Snapshot:
        snapshot = await look(page)
        if snapshot.url != "about:blank":
            await page.close()
        return snapshot

    async def script(player: Player) -> None:
        await player.start("page")
        monkeypatch.setattr(live, "look", closing)
        seen = (await player.environment.step(None)).observation
        assert seen.url == "about:blank"
        assert "the last tab was closed" in str(seen.notice)

    on_page("<p>a word</p>", script)


@pytest.mark.medium
def test_a_new_tab_without_a_page_is_not_awaited_for_ever(
    on_page: Callable[..., None], server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither one whose server has no content to give nor one that takes too long, and each only once."""
    server.statuses["/nothing"] = 204
    server.delays_s["/later"] = 8.0
    awaited: list[bool] = []

    async def script(player: Player) -> None:
        async def noting(page: Page) -> Snapshot:
            awaited.append(player.environment.window.is_navigating())
            return await look(page)

        await player.start("page")
        for label in ("Nothing", "Late"):
            await player.do("click", label)
            assert len(player.seen.tabs) == 1
            assert not player.environment.window.is_loading()
        monkeypatch.setattr(live, "look", noting)
        await player.do("click", "Late")
        assert not any(awaited), "what did not come is not believed a second time"

    html = '<a href="/nothing" target="_blank">Nothing</a> <a href="/later" target="_blank">Late</a>'
    on_page(html, script, nav_timeout_s=1.5, settle_s=0.4)


def test_what_is_told_belongs_to_the_tab_that_is_shown(
    on_page: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when it came before the other one while that was being looked at."""

    looks: list[Snapshot] = []

    async def overtaken(page: Page) -> Snapshot:
        looks.append(await look(page))
        if len(looks) == 2:
            await page.context.new_page()
        return looks[-1]

    async def script(player: Player) -> None:
        await player.start("page")
        monkeypatch.setattr(live, "look", overtaken)
        result = await player.environment.step(None)
        assert [tab.title for tab in result.observation.tabs] == ["First", ""]
        assert result.observation.url == "about:blank"
        assert result.observation.elements == ()

    on_page("<title>First</title><p>a word</p>", script)


def test_history_moves_and_says_when_it_ends(in_shop: Callable[[Script], None]) -> None:
    async def script(player: Player) -> None:
        await player.start("fill-the-cart")
        await player.do("click", "Accept")
        await player.do("click", "Cart")
        await player.do("go", direction="backward")
        assert player.seen.url == "http://shop.test/"
        await player.do("go", direction="forward")
        assert player.seen.url == "http://shop.test/cart.html"
        assert "no such page" in (await player.do("go", direction="forward")).info["effect"]

    in_shop(script)


def test_a_download_is_refused_and_told(in_shop: Callable[[Script], None]) -> None:
    async def script(player: Player) -> None:
        await player.start("search")
        await player.do("click", "Accept")
        await player.do("click", "price list")
        assert player.seen.notice == "the download of 'prices.zip' was refused"
        assert player.seen.url == "http://shop.test/"
        await player.do("jump_to", url="http://shop.test/prices.zip")
        assert "'prices.zip' was refused" in str(player.seen.notice)

    in_shop(script)


@pytest.mark.slow
def test_a_confirm_dialog_is_answered_and_told(in_shop: Callable[[Script], None]) -> None:
    async def script(player: Player) -> None:
        await player.start("buy-a-mug")
        await fill_the_cart(player)
        result = await player.do("click", "Empty the cart")
        assert player.seen.notice == "the page asked (confirm) 'Empty the whole cart?' and was answered OK"
        assert result.info["effect"] == player.seen.notice
        assert "Your cart is empty." in player.labels

    in_shop(script)


def test_foreign_hosts_files_and_inner_addresses_are_not_opened(in_shop: Callable[[Script], None]) -> None:
    async def script(player: Player) -> None:
        await player.start("fill-the-cart")
        await player.do("click", "Accept")
        await player.do("click", "partner")
        assert "elsewhere.test:80 is not on the list of allowed hosts" in str(player.seen.notice)
        assert player.seen.url == "http://shop.test/"
        for url in ("file:///etc/passwd", "http://169.254.169.254/", "http://localhost:8000/", "javascript:alert(1)"):
            result = await player.do("jump_to", url=url)
            assert "was not opened" in result.info["effect"]
            assert player.seen.url == "http://shop.test/"

    in_shop(script)


@pytest.mark.slow
def test_junk_never_raises(in_shop: Callable[[Script], None]) -> None:
    async def script(player: Player) -> None:
        rng = random.Random(5)
        seen = await player.start("buy-a-mug")
        for _ in range(25):
            action = draw_action(WEB, seen, rng, ending=False)
            result = await player.environment.step(action)
            seen = result.observation
            assert isinstance(result.info["effect"], str)
            if result.done:
                seen = await player.start("buy-a-mug")
        result = await player.do("click", id=999)
        assert "999" in result.info["effect"]

    in_shop(script)


def test_the_picture_has_numbers_when_asked(in_shop: Callable[[Script], None]) -> None:
    async def script(player: Player) -> None:
        await player.start("search")
        plain, marked = await player.environment.screenshot(), await player.environment.screenshot(marks=True)
        images = [Image.open(io.BytesIO(png)).convert("RGB") for png in (plain, marked)]
        assert {image.size for image in images} == {(1280, 800)}
        assert images[0].tobytes() != images[1].tobytes()

    in_shop(script)
