"""SimPhone as an environment suite: the embedded default behind `--env androidworld`.

Results carry the label "androidworld[simphone]" and are never called AndroidWorld success rates.

Apps and tasks that are not part of this project: a Python package each, with an `APP`, `TASKS`, or both. What they
declare is checked when they are imported, and what their functions return at each call, so that a mistake is reported
with its place in the package. Tasks without an app of their own are set in the apps that every phone has.
"""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from collab.envs.base import TaskInfo
from collab.envs.grammar import MOBILE
from collab.envs.simphone.app import App, Item, NodeLine, ScreenFunction, UiNode, View
from collab.envs.simphone.apps import INSTALLED, build_apps, camera, clock, contacts, dialer, messages, settings
from collab.envs.simphone.core import SimPhone, build_factory
from collab.envs.simphone.distractions.presets import (
    DistractionPreset,
    Noise,
    Tongue,
    adjust_preset,
    describe_distractions,
)
from collab.envs.simphone.state import Page, Phone
from collab.envs.simphone.tasks import BY_NAME, TASKS
from collab.envs.simphone.tasks.spec import TaskSpec
from collab.errors import (
    ConfigError,
    EnvironmentFailure,
    UnknownName,
    describe_error,
    locate_function,
    note_outside,
    outside_place,
)
from collab.seeds import derive, generator
from collab.types import Action, Observation, StepResult, Task

_A_PHONE = "a Phone that shows one of its screens"
_HANDLERS_OF_NODES = ("tap", "hold", "enter", "slide")


@dataclass(frozen=True, slots=True, kw_only=True)
class Brought:
    """Apps and tasks that a package brings to the phone."""

    app: App | None
    """None when it brings only tasks."""
    tasks: Sequence[TaskSpec]
    version: str
    """Names the package and the version of what it brings."""


def bring(module: str) -> Brought:
    """Import an app, tasks, or both from outside.

    Args:
        module: name of an importable package or module.

    Raises:
        ConfigError: it cannot be imported, or its `APP` or `TASKS` are not what they should be.
    """
    note_outside(module)
    try:
        found = importlib.import_module(module)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - code from outside raises what it likes
        where = "install the package, or name its parent folder in PYTHONPATH"
        more = f"; {where}" if outside_place(error) is None else ""
        raise ConfigError(f"simphone: the app {module!r} cannot be imported: {describe_error(error)}{more}") from None
    app, tasks = getattr(found, "APP", None), getattr(found, "TASKS", ())
    if not isinstance(tasks, Sequence) or not all(isinstance(spec, TaskSpec) for spec in tasks):
        raise ConfigError(f"simphone: TASKS of {module} must be a list of TaskSpec, got {tasks!r:.80}")
    if not isinstance(app, App) and not (app is None and tasks):
        raise ConfigError(
            f"simphone: {module} has no APP of type collab.envs.simphone.app.App, got {app!r:.80}; "
            "a package without an app needs TASKS"
        )
    tasks = [_check_task(spec, module) for spec in tasks]
    app = None if app is None else _check_app(app, module)
    version = f"{app.package}-{app.version}" if app is not None else f"{module}-{getattr(found, 'VERSION', '1')}"
    return Brought(app=app, tasks=tasks, version=version)


def _check_task(spec: TaskSpec, module: str) -> TaskSpec:
    """Check what a task says of itself; return it with functions whose answers are checked, too."""
    where = f"simphone: task {spec.name!r} of {module}"
    # What a task declares can be checked at once …
    says: tuple[tuple[str, bool, str], ...] = (
        ("name", isinstance(spec.name, str) and bool(spec.name), "a name"),
        ("apps", _are_names(spec.apps), "a tuple of names, such as ('contacts',)"),
        ("complexity", _is_number(spec.complexity) and spec.complexity >= 0.1, "a number of 0.1 or more"),
        ("difficulty", spec.difficulty in ("easy", "medium", "hard"), "easy, medium or hard"),
    )
    # … what its functions answer, only when they are asked: they are wrapped, and checked then.
    functions: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
        ("goal", lambda answer: isinstance(answer, str), "a text"),
        ("draw", _is_json_mapping, "a dict of JSON values"),
        ("prepare", _is_phone, _A_PHONE),
        ("score", lambda answer: _is_number(answer) and 0 <= answer <= 1, "a number from 0 to 1"),
        ("plan", lambda answer: isinstance(answer, Action), "an Action"),
    )
    says += tuple((name, callable(getattr(spec, name)), "a function") for name, *_ in functions)
    # The first mistake is reported with task and module: tasks may come from outside packages.
    for name, fits, wanted in says:
        if not fits:
            raise ConfigError(f"{where}: {name} must be {wanted}, got {getattr(spec, name)!r:.80}")
    watched: dict[str, Any] = {
        name: _watch_answers(getattr(spec, name), fits, f"{where}: {name}", what) for name, fits, what in functions
    }
    return replace(spec, apps=tuple(spec.apps), **watched)


def _check_app(app: App, module: str) -> App:
    """Check what an app says of itself; return it with screens and handlers that are checked, too."""
    where = f"simphone: the app of {module}"

    def is_own_page(page: object) -> bool:
        return isinstance(page, Page) and page.screen in app.screens

    says = (
        ("package", isinstance(app.package, str) and bool(app.package), "a package name"),
        ("names", _are_names(app.names), "a tuple of names, such as ('Pantry',)"),
        ("screens", all(map(callable, app.screens.values())), "functions by name"),
        ("pages", bool(app.pages) and all(map(is_own_page, app.pages)), "a tuple of Page, each of one of its screens"),
    )
    for name, fits, wanted in says:
        if not fits:
            raise ConfigError(f"{where}: {name} must be {wanted}, got {getattr(app, name)!r:.80}")
    screens = {name: _watch_screen(screen, f"{where}: screen {name!r}") for name, screen in app.screens.items()}
    return replace(app, screens=screens, noise=_watch_answers(app.noise, _is_phone, f"{where}: noise", _A_PHONE))


def _watch_screen(screen: ScreenFunction, where: str) -> ScreenFunction:
    """Wrap a screen so that a view of another form raises, and so do handlers that return no phone."""
    place = locate_function(screen)
    draw = _watch_answers(screen, _is_view, where, "a View of texts, nodes and functions")

    def call(phone: Phone, page: Page) -> View:
        # Checked as a whole first, so that what follows may take nodes for nodes.
        view: View = draw(phone, page)

        def watch(handler: Any, what: str) -> Any:
            return handler and _watch_answers(handler, _is_phone, f"{where}: {what}", _A_PHONE, place)

        def watch_node(node: UiNode) -> UiNode:
            handlers = {name: watch(getattr(node, name), f"{name} of {node.key!r}") for name in _HANDLERS_OF_NODES}
            swipes = {way: watch(swipe, f"swipe {way} on {node.key!r}") for way, swipe in node.swipes.items()}
            return node._replace(**handlers, swipes=swipes)

        def watch_item(item: Item) -> Item:
            if isinstance(item, UiNode):
                return watch_node(item)
            return item._replace(nodes=tuple(map(watch_node, item.nodes)))

        # A node's own handlers, then those of the view: a touch may reach any of them.
        return replace(
            view,
            body=[watch_item(item) for item in view.body],
            actions=tuple(map(watch_node, view.actions)),
            navigation=view.navigation and watch_node(view.navigation),
            footer=view.footer and watch_item(view.footer),
            fab=view.fab and watch_node(view.fab),
            back=watch(view.back, "back"),
            leave=watch(view.leave, "leave"),
            swipes={way: watch(swipe, f"swipe {way}") for way, swipe in view.swipes.items()},
        )

    return call


def _is_phone(answer: object) -> bool:
    """Return whether an answer is a phone whose page can be shown."""
    try:
        return isinstance(answer, Phone) and answer.page.screen in answer.apps.screens
    except (AttributeError, LookupError, TypeError):  # an app in front that does not run, a page that is none
        return False


def _is_view(answer: object) -> bool:
    """Return whether an answer is a view that can be laid out."""
    if not isinstance(answer, View):
        return False
    try:
        items = [*answer.body, *answer.actions, *filter(None, (answer.navigation, answer.footer, answer.fab))]
        nodes = [node for one in items for node in (one.nodes if isinstance(one, NodeLine) else (one,))]
        handlers = (answer.back, answer.leave, *answer.swipes.values())
        return isinstance(answer.title, str) and all(map(_is_node, nodes)) and _are_handlers(handlers)
    except (AttributeError, TypeError):  # a list or a mapping that is none
        return False


def _is_node(node: object) -> bool:
    return (
        isinstance(node, UiNode)
        and all(isinstance(text, str) for text in (node.role, node.label, node.key, *node.flags))
        and all(text is None or isinstance(text, str) for text in (node.value, node.field))
        and _are_handlers((node.tap, node.hold, node.enter, node.slide, *node.swipes.values()))
    )


def _are_handlers(values: Iterable[object]) -> bool:
    return all(value is None or callable(value) for value in values)


def _watch_answers(
    function: Callable[..., Any], fits: Callable[[Any], bool], where: str, wanted: str, otherwise: str | None = None
) -> Callable[..., Any]:
    """Wrap a function so that an answer of another kind raises, with the function's file and line.

    Args:
        otherwise: the place to name for a function that is not written by the user.

    Raises:
        EnvironmentFailure: when it is called and answers something else.
    """

    def call(*args: Any) -> Any:
        answer = function(*args)
        if not fits(answer):
            got, place = _describe_answer(answer), locate_function(function) or otherwise
            raise EnvironmentFailure(f"{where} must return {wanted}, got {got}{f' (at {place})' if place else ''}")
        return answer

    return call


def _describe_answer(answer: object) -> str:
    """Return an answer in a few words; of a phone what is in front, as all of it would be long."""
    if not isinstance(answer, Phone):
        return f"{answer!r:.80}"
    return f"{answer.foreground} showing {[page.screen for page in answer.stacks.get(answer.foreground, ())]}"


def _are_names(value: object) -> bool:
    return isinstance(value, tuple | list) and bool(value) and all(isinstance(name, str) for name in value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _is_json_mapping(value: object) -> bool:
    try:
        return isinstance(value, dict) and bool(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        return False


NAME = "androidworld"
ESSENTIAL = frozenset(
    app.package for app in (camera.APP, clock.APP, contacts.APP, dialer.APP, messages.APP, settings.APP)
)
"""Packages of apps that others open, or that a task may ask to open: no phone is without them."""


class PhoneEnvironment:
    """One phone behind the `Environment` protocol; also `Forkable`, `HasOracle`, `HasScore` and `HasScreenshot`."""

    space = MOBILE

    def __init__(self, core: SimPhone) -> None:
        self.core = core
        """The synchronous phone that does the work."""

    async def reset(self, task: Task) -> Observation:
        """Make the task's initial state; UnknownName when it is not a task of this phone."""
        return self.core.reset(task)

    async def step(self, action: Action | None) -> StepResult:
        """Execute the canonical form of an action; None waits a second."""
        return self.core.step(action)

    async def fork(self) -> PhoneEnvironment:
        """Return an independent copy in the same state."""
        return PhoneEnvironment(self.core.fork())

    def oracle(self) -> tuple[Action, ...] | None:
        """Return the remaining best actions from the present state; None when the task cannot be solved from here."""
        return self.core.oracle()

    def score(self) -> float:
        """Return how far the goal holds now, in [0, 1]."""
        return self.core.score()

    async def screenshot(self, marks: bool = False) -> bytes:
        """Return the present screen as PNG bytes; `marks` draws numbered boxes."""
        from collab.envs.simphone.ui.render import render_png  # Pillow loads only for a look

        return render_png(self.core.frame.observation, marks)

    async def close(self) -> None:
        """Give nothing back."""


class SimPhoneSuite:
    """All SimPhone tasks.

    Args:
        preset: how distracting the phone is. The arguments from `interruptions` to `noise` set single knobs of it
            otherwise (`distractions.presets.Distractions`); None leaves them as the preset has them.
        apps: importable packages that bring an app, tasks, or both (docs/simphone.md).
        without: visible names of apps that are not installed, as tasks name them; their tasks are left out.

    Raises:
        ConfigError: an app cannot be imported, clashes with another, or cannot be left out.
        UnknownName: there is no app to leave out by that name.
    """

    name = NAME
    space = MOBILE
    capabilities = frozenset({"fork", "oracle", "score", "screenshot", "deterministic"})

    def __init__(
        self,
        *,
        preset: DistractionPreset = "calm",
        interruptions: float | None = None,
        slowness: float | None = None,
        longest_wait: int | None = None,
        share: float | None = None,
        shuffle: bool | None = None,
        restyle: bool | None = None,
        rename: bool | None = None,
        language: Tongue | None = None,
        noise: Noise | None = None,
        apps: Sequence[str] = (),
        without: Sequence[str] = (),
    ) -> None:
        changes: dict[str, object] = {"interruptions": interruptions, "slowness": slowness, "share": share}
        changes |= {"longest_wait": longest_wait, "shuffle": shuffle, "restyle": restyle, "rename": rename}
        changes |= {"language": language, "noise": noise}
        self._distractions = adjust_preset(preset, changes)
        brought = [bring(module) for module in apps]
        every = [*INSTALLED, *(one.app for one in brought if one.app is not None)]
        missing = _find_missing(every, without)
        names = {name.casefold() for app in missing for name in app.names}
        specs = [*TASKS, *(spec for one in brought for spec in one.tasks)]
        self._factory = build_factory(build_apps(app for app in every if app not in missing))
        self._tasks = _index_by_name([spec for spec in specs if not names.intersection(map(str.casefold, spec.apps))])
        lacks = "".join(f", without {app.name}" for app in missing)
        hard = "".join(f", {words}" for words in describe_distractions(preset, self._distractions))
        self.label = f"androidworld[{'+'.join(('simphone', *apps))}{lacks}{hard}]"
        self.version = "+".join(("simphone-2", *(one.version for one in brought))) + lacks + hard

    def tasks(self) -> Sequence[TaskInfo]:
        """Return all tasks, by name."""
        return [
            TaskInfo(
                name=spec.name,
                apps=spec.apps,
                difficulty=spec.difficulty,
                max_steps=spec.max_steps,
                tags=(*_tag_origin(spec), *spec.apps, *(("verify",) if spec.verify else ())),
                oracle=True,
            )
            for spec in self._tasks.values()
        ]

    def instance(self, name: str, seed: int) -> Task:
        """Draw an instance; UnknownName when there is no such task."""
        spec = self._tasks.get(name)
        if spec is None:
            raise UnknownName.of("task", name, self._tasks, "see them with: collab env tasks androidworld")
        params = spec.draw(generator(derive(seed, "params", name)))
        return Task(
            environment=NAME,
            name=name,
            seed=seed,
            goal=spec.goal(params, generator(derive(seed, "goal", name))),
            params=params,
            max_steps=spec.max_steps,
            difficulty=spec.difficulty,
            apps=spec.apps,
        )

    async def open(self) -> PhoneEnvironment:
        """Return a fresh phone; as many as the caller likes."""
        return PhoneEnvironment(self.phone())

    def phone(self) -> SimPhone:
        """Return a fresh phone for callers that are not asynchronous."""
        return SimPhone(distractions=self._distractions, factory=self._factory, tasks=self._tasks)

    async def close(self) -> None:
        """Give nothing back."""


def _tag_origin(spec: TaskSpec) -> tuple[str, ...]:
    """Return the tag of AndroidWorld's tasks; a task from outside is none of them, whatever it says."""
    return (f"wave-{spec.wave}",) if BY_NAME.get(spec.name) is spec else ()


def _find_missing(every: Sequence[App], without: Sequence[str]) -> list[App]:
    """Return the apps that are called by these names."""
    called = {name.casefold(): app for app in every for name in app.names}
    found = []
    for name in without:
        app = called.get(name.casefold())
        if app is None:
            raise UnknownName.of("app to leave out (simphone, option without)", name, called)
        if app.package in ESSENTIAL:
            free = sorted(other.name for other in every if other.package not in ESSENTIAL)
            raise ConfigError(f"simphone: without {name!r}: other apps and tasks need it; free: {', '.join(free)}")
        found.append(app)
    return [app for app in every if app in found]


def _index_by_name(specs: Sequence[TaskSpec]) -> dict[str, TaskSpec]:
    found: dict[str, TaskSpec] = {}
    for spec in sorted(specs, key=lambda spec: spec.name):
        if spec.name in found:
            raise ConfigError(f"simphone: two tasks are called {spec.name!r}; give the one from outside another name")
        found[spec.name] = spec
    return found
