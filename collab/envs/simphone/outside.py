"""Apps and tasks that are not part of this project: a Python package each, with an `APP`, `TASKS`, or both.

What they declare is checked when they are imported. What their functions return is checked at each call, so that a
mistake is reported with its place in the package and not as an error of whatever uses the answer.
"""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from collab.envs.simphone.app import App, Item, NodeLine, ScreenFunction, UiNode, View
from collab.envs.simphone.state import Page, Phone
from collab.envs.simphone.tasks.spec import TaskSpec
from collab.errors import ConfigError, EnvironmentFailure, describe_error, locate_function, note_outside, outside_place
from collab.types import Action

_A_PHONE = "a Phone that shows one of its screens"
_HANDLERS_OF_NODES = ("tap", "hold", "enter", "slide")


@dataclass(frozen=True, slots=True, kw_only=True)
class Brought:
    """What a package brings to the phone."""

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
