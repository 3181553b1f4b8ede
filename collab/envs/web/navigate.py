"""The web actions that leave the page: go, jump_to, switch_tab."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar
from urllib.parse import urljoin

from collab.envs.text import cut
from collab.envs.web.hosts import HostPolicy
from collab.envs.web.window import Window
from collab.redact import hide_in_addresses
from collab.types import Action

AnswerT = TypeVar("AnswerT")


async def navigate(window: Window, action: Action, policy: HostPolicy, timeout_s: float) -> str | None:
    """Execute go, jump_to or switch_tab.

    Returns why it did not work, in words; None when the page itself shows what happened.

    Raises:
        playwright.async_api.Error: the page crashed.
    """
    if action.type == "switch_tab":
        return await window.show(int(str(action["i"])))
    if action.type == "go":
        return await _go(window, back=action["direction"] == "backward", timeout_s=timeout_s)
    url = full_address(str(action["url"]), window.page.url)
    refusal, told = policy.refusal(url), cut(hide_in_addresses(url), 200)
    if refusal is not None:
        return f"{told} was not opened: {refusal}"
    if action.get("new_tab"):
        await window.new_tab()
    problem = await arriving(window, window.page.goto(url, wait_until="commit", timeout=timeout_s * 1000))
    return f"{told} was not opened: {problem}" if isinstance(problem, str) else None


async def _go(window: Window, *, back: bool, timeout_s: float) -> str | None:
    page = window.page
    before = page.url
    move = page.go_back if back else page.go_forward
    response = await arriving(window, move(wait_until="commit", timeout=timeout_s * 1000))
    if isinstance(response, str):
        return response
    return "there is no such page in the tab's history" if response is None and page.url == before else None


async def arriving(window: Window, navigation: Awaitable[AnswerT]) -> AnswerT | str:
    """The navigation's response (None where there is none to have), or why it failed, in words."""
    from playwright.async_api import Error

    window.distrusted = None
    try:
        return await navigation
    except Error as error:
        if window.crashed:
            raise
        first = str(error).strip().split("\n", 1)[0]
        if window.distrusted is not None:  # the browser calls this aborted
            return f"net::{window.distrusted}"
        return cut(first.partition(": ")[2].partition(" at http")[0] or first, 200)


def full_address(url: str, current: str) -> str:
    """What an address bar makes of it: a path belongs to the current site, a bare host gets https."""
    if url.startswith(("/", "?", "#")) and not url.startswith("//"):
        return urljoin(current, url)
    bare = url.removeprefix("//")
    head = bare.partition("/")[0]
    if "://" in bare or bare.startswith("about:") or not ("." in head or head.startswith("localhost")):
        return url
    return f"https://{bare}"
