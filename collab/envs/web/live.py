"""Live pages: any site as an environment, with tasks from a YAML file.

    suite = LiveSuite(tasks=Path("shop.yaml"), allow_hosts=["shop.example", "*.cdn.example"])

Rules of this environment, beside those of `window` (tabs, dialogs, downloads) and `hosts` (what may be reached):

- An episode begins in a fresh window (no cookies, no storage) at the task's start address. Pages are what they are
  that day: the seed changes nothing, and an episode cannot be rebuilt from its actions.
- An action touches the element that was seen or nothing: where the page, the tab or what stands at that place became
  another while the action was chosen, its effect is "the page changed; nothing happened", and the episode goes on.
- Pages are read out of reach of their scripts, frames of other origins and closed shadow roots included (see
  `worlds`). Of what would make a text too long, the text says what was left out. A closed root is missed only where a
  plain element (no name with a hyphen) has one that shows all of its own content in slots and adds to it.
- A start page is played as soon as it arrives; a picture or script of it that never comes is not waited for.
- Credentials in a start address answer the site's sign-in prompt. They are in no observation, error or record.
- After an action the page settles: two looks 0.1 s apart are equal, nothing it needs is loading and no new tab is
  being opened, for at most `settle_s` after it arrived. A navigation, a new tab's included, has `nav_timeout_s`; where
  a new tab did not come in that time, further ones have `settle_s` until one does.
- The page is judged after every step; the episode ends as soon as the task is solved, or, with `on_finish`, only
  when the agent finishes. `user_input` ends it unsolved unless the task has a `user_reply`.
- `StepResult.info["refused"]` lists the connections that the gate refused during the step: what to add to
  `allow_hosts` when a page looks broken.
- A page that crashes or does not answer within `answer_timeout_s` is an EnvironmentFailure; the next `reset` opens a
  new window.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal
from zoneinfo import available_timezones

from collab.envs.actions import WEB
from collab.envs.base import TaskInfo
from collab.envs.grammar import ActionSpace
from collab.envs.task_files import task_infos
from collab.envs.web.browser import Browser, surroundings
from collab.envs.web.hosts import HostPolicy
from collab.envs.web.live_environment import NAME, LiveEnvironment, LiveOptions
from collab.envs.web.live_tasks import load_tasks
from collab.envs.web.sites import site_folder
from collab.errors import ConfigError, UnknownName
from collab.redact import HIDDEN, hide_in_addresses
from collab.types import Task


class LiveSuite:
    """Tasks on live pages.

    Args:
        tasks: a YAML file with the key `tasks`, or the list itself (see `live_tasks`).
        sites: host → folder of static pages that is shown under that name without any server; "built-in" stands for
            the example shop. Plain http only; such hosts are always allowed.
        allow_hosts: hosts that pages may connect to (see `hosts`); None or empty for every public host.
        allow_private: also private and loopback addresses.
        allow_files: also `file:` addresses.
        self_signed_hosts: hosts whose certificates are believed whoever signed them; entries as in `allow_hosts`.
        width, height: size of window and screen, in CSS pixels.
        scale: device pixels per CSS pixel, as pages are told; pictures stay in CSS pixels.
        locale: language that pages are asked for, and that dates and numbers are written in.
        timezone: name of the time zone that pages are shown in, whatever that of the machine is.
        colours: the colour scheme that pages are told the user prefers.
        dialogs: how alert, confirm and prompt are answered.
        max_tabs: further tabs are closed again.
        nav_timeout_s: how long a page may take to arrive.
        settle_s: how long a page may go on changing after an action.
        answer_timeout_s: a page that does not answer for so long has hung.
        executable_path: the browser; None finds one.

    Raises:
        ConfigError: a task does not fit its schema, or begins at an address that is not allowed.
    """

    name = NAME
    label: str = NAME
    version: str
    """Names the screen, too: on another one the same page can be another."""
    space: ActionSpace = WEB
    capabilities: frozenset[str] = frozenset({"screenshot"})

    def __init__(
        self,
        *,
        tasks: Path | list[dict[str, Any]],
        sites: dict[str, str] | None = None,
        allow_hosts: list[str] | None = None,
        allow_private: bool = False,
        allow_files: bool = False,
        self_signed_hosts: list[str] | None = None,
        width: int = 1280,
        height: int = 800,
        scale: float = 1.0,
        locale: str = "en-US",
        timezone: str = "UTC",
        colours: Literal["light", "dark"] = "light",
        dialogs: Literal["accept", "dismiss"] = "accept",
        max_tabs: int = 8,
        nav_timeout_s: float = 30.0,
        settle_s: float = 3.0,
        answer_timeout_s: float = 10.0,
        executable_path: str | None = None,
    ) -> None:
        self._policy = HostPolicy(
            allow_hosts=tuple(allow_hosts or ()),
            allow_private=allow_private,
            allow_files=allow_files,
            self_signed_hosts=tuple(self_signed_hosts or ()),
            sites={host.lower(): site_folder(host, folder) for host, folder in (sites or {}).items()},
        )
        self._tasks = {task.name: task for task in load_tasks(tasks)}
        for task in self._tasks.values():
            if HIDDEN in task.start:
                problem = "what was secret in it is not kept in a run"
                advice = "keep tasks with such addresses in a file of their own, which is read again: tasks: FILE"
                raise ConfigError(f"web task {task.name}: start {task.shown_start}: {problem}; {advice}")
            if refusal := self._policy.refusal(task.address):
                advice = "see allow_hosts, allow_private and allow_files"
                raise ConfigError(f"web task {task.name}: start {task.shown_start}: {refusal}; {advice}")
        self.version = f"2 ({width}×{height}, scale {scale:g}, {locale}, {_zone(timezone)}, {colours})"
        self._options = LiveOptions(
            surroundings=surroundings(width, height, scale=scale, locale=locale, timezone=timezone, colours=colours),
            dialogs=dialogs,
            max_tabs=max_tabs,
            nav_timeout_s=nav_timeout_s,
            settle_s=settle_s,
            answer_timeout_s=answer_timeout_s,
        )
        self._browser = Browser(executable_path=executable_path)

    def take_name(self, definition: str) -> None:
        """Let results carry the name of the definition that this suite was built from, e.g. "web[lab]"."""
        self.label = NAME if definition == NAME else f"{NAME}[{definition}]"

    def tasks(self) -> Sequence[TaskInfo]:
        """All tasks, in the order of the file."""
        return task_infos(self._tasks.values())

    def instance(self, name: str, seed: int) -> Task:
        """The task; the seed only tells its instances apart. UnknownName when there is none."""
        if name not in self._tasks:
            raise UnknownName.of("task", name, self._tasks)
        task = self._tasks[name]
        return Task(
            environment=self.name,
            name=name,
            seed=seed,
            goal=hide_in_addresses(task.goal),
            params={"start": task.shown_start},
            max_steps=task.max_steps,
            difficulty=task.difficulty,
            apps=tuple(task.apps),
        )

    async def open(self) -> LiveEnvironment:
        """A fresh environment; the browser is started if it does not run."""
        await self._browser.start()
        return LiveEnvironment(self._browser, self._policy, self._tasks, self._options)

    async def close(self) -> None:
        """End the browser. May be called twice."""
        await self._browser.close()


def _zone(name: str) -> str:
    known = set() if name == "UTC" else available_timezones()  # there may be no list on this machine
    if known and name not in known:
        raise ConfigError(f"timezone is {name!r}, allowed: a name such as UTC or Europe/Paris")
    return name
