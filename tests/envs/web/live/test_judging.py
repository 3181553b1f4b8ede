"""How episodes on live pages end and are judged."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from collab.envs.web.browser import Browser
from collab.envs.web.live import LiveEnvironment, LiveSuite
from collab.envs.web.live_tasks import PageSuccess, judge
from collab.errors import UnknownName, UsageError
from collab.types import Task
from tests.envs.web.live.site import Player, Server

pytestmark = pytest.mark.browser


@pytest.mark.slow
def test_the_user_is_absent_unless_the_task_says_what_he_answers(on_page: Callable[..., None]) -> None:
    async def absent(player: Player) -> None:
        await player.start("page")
        result = await player.do("user_input", message="Which one?")
        assert result.terminated
        assert result.outcome is not None
        assert (result.outcome.success, result.outcome.reason) == (False, "the user was asked 'Which one?'")

    async def present(player: Player) -> None:
        await player.start("page")
        result = await player.do("user_input", message="Which one?")
        assert not result.done
        assert player.seen.notice == "the user replied 'the red one'"
        result = await player.do("finish", answer="YES")
        assert result.outcome is not None
        assert result.outcome.success

    on_page("<p>", absent)
    on_page("<p>", present, task={"user_reply": "the red one"})


@pytest.mark.slow
def test_budgets_end_episodes_and_on_finish_waits_for_the_agent(on_page: Callable[..., None]) -> None:
    solved = {"success": {"script": "true"}, "max_steps": 2}

    async def at_once(player: Player) -> None:
        await player.start("page")
        result = await player.environment.step(None)
        assert (result.terminated, result.truncated) == (True, False)

    async def later(player: Player) -> None:
        await player.start("page")
        assert not (await player.environment.step(None)).done
        result = await player.environment.step(None)
        assert (result.terminated, result.truncated) == (False, True)
        assert result.outcome is not None
        assert result.outcome.success

    async def never(player: Player) -> None:
        await player.start("page")
        await player.environment.step(None)
        result = await player.environment.step(None)
        assert result.truncated
        assert result.outcome is not None
        assert (result.outcome.success, result.outcome.score) == (False, 0.25)

    on_page("<p>", at_once, task=solved)
    on_page("<p>", later, task=solved | {"on_finish": True})
    on_page("<p>", never, task={"success": {"script": "0.25"}, "max_steps": 2})


def test_a_task_of_another_environment_is_unknown(on_page: Callable[..., None]) -> None:
    async def script(player: Player) -> None:
        with pytest.raises(UnknownName):
            await player.environment.reset(Task(environment="web", name="other", seed=0, goal=""))
        with pytest.raises(UsageError, match="call reset first"):
            await player.environment.step(None)

    on_page("<p>", script)


@pytest.mark.parametrize(
    ("success", "score"),
    [
        ({"address": r"/page$"}, 1),
        ({"address": "^/page"}, 0),
        ({"prefix": "http://127.0.0.1"}, 1),
        ({"prefix": "https://"}, 0),
        ({"selector": "p"}, 1),
        ({"selector": "p", "count": 2}, 1),
        ({"selector": "p", "count": 3}, 0),
        ({"selector": "p", "count": 3, "visible": False}, 1),
        ({"selector": "p", "text": "HELLO   there"}, 1),
        ({"selector": "p", "text": "hidden"}, 0),
        ({"selector": "p", "text": "hidden", "visible": False}, 1),
        ({"selector": "p", "attributes": {"data-a": "1"}, "count": 1}, 1),
        ({"selector": "input", "text": "typed"}, 1),
        ({"selector": "b"}, 0),
        ({"selector": "b", "count": 0}, 1),
        ({"selector": "::nonsense::"}, 0),
        ({"script": "document.title === 'T'"}, 1),
        ({"script": "0.5"}, 0.5),
        ({"script": "2"}, 0),
        ({"script": "'yes'"}, 0),
        ({"script": "null.x"}, 0),
        ({"script": "(("}, 0),
        ({"script": "Promise.resolve(true) // a comment"}, 1),
        ({"script": "true", "selector": "b"}, 0),
        ({"answer": ["no", "forty two"]}, 1),
        ({"answer": "no"}, 0),
    ],
)
def test_judging(judged: Callable[[PageSuccess], tuple[float, str]], success: dict[str, Any], score: float) -> None:
    found, reason = judged(PageSuccess.model_validate(success))
    assert found == score, reason
    assert reason
    assert "\n" not in reason


@pytest.fixture(scope="module")
def judged(
    runner: asyncio.Runner, browser: Browser, server: Server
) -> Iterator[Callable[[PageSuccess], tuple[float, str]]]:
    html = "<title>T</title><p data-a=1>hello there</p><p>two</p><p hidden>hidden</p><input value=typed>"
    task = {"name": "page", "start": server.add("/page", html), "goal": "-", "success": {"answer": "-"}}
    suite = LiveSuite(tasks=[task], allow_private=True)
    suite._browser = browser

    async def start() -> LiveEnvironment:
        environment = await suite.open()
        await environment.reset(suite.instance("page", 0))
        return environment

    environment = runner.run(start())

    def verdict(success: PageSuccess) -> tuple[float, str]:
        found = runner.run(judge(success, environment.window.page, "Forty  Two"))
        return found.score, found.reason

    yield verdict
    runner.run(environment.close())
