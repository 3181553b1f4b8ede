"""Check that parts have what their group needs, and that environments return what they should.

A part from outside that does not is named, with its file and line, before anything else uses it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from collab.envs.base import Environment, Suite, TaskInfo
from collab.errors import ConfigError, EnvironmentFailure, check_answer, describe_code_place
from collab.types import Element, Observation, Outcome, StepResult, Task

_PROTOCOLS: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "environments": (
        "environment",
        ("tasks", "instance", "open", "close"),
        ("name", "label", "version", "space", "capabilities"),
    ),
    "models": ("model", ("generate", "probe", "count_tokens", "close"), ("policy", "privileged")),
    "scorers": ("scorer", ("length", "score", "close"), ("policy", "context")),
    "critics": ("critic", ("judge",), ("name", "version")),
    "verifiers": ("verifier", ("verify",), ("name", "version", "sees")),
    "adversaries": ("adversary", ("propose",), ("name", "version")),
    "algorithms": ("algorithm", ("configure", "check", "estimate"), ()),
}
"""Per group: the noun for its parts, the methods of their class, and what an object of it has (`Suite`, `Model`, …)."""


def check_class(group: str, made: object, what: str) -> None:
    """Check that a part's class has the methods of its group; ConfigError if not."""
    # Only that methods exist is checked: their behaviour shows in the check commands.
    noun, needed, _ = _PROTOCOLS[group]
    if not inspect.isclass(made):
        raise ConfigError(f"{what} is no {noun}: it is no class, but {type(made).__name__}")
    lacking = [one for one in needed if not callable(getattr(made, one, None))]
    if lacking:
        raise ConfigError(f"{what} is no {noun}: it has no {', '.join(lacking)}")


def check_object(group: str, made: object, what: str) -> None:
    """Check that a part has the attributes of its group; ConfigError if not."""
    noun, _, needed = _PROTOCOLS[group]
    lacking = [one for one in needed if not hasattr(made, one)]
    if lacking:
        raise ConfigError(f"{what} is no {noun}: it has no {', '.join(lacking)}")


def list_tasks(suite: Suite) -> list[TaskInfo]:
    """Return a suite's tasks; EnvironmentFailure if it returns something else."""
    return [check_answer(info, TaskInfo, suite.tasks, EnvironmentFailure) for info in suite.tasks()]


def draw_instance(suite: Suite, name: str, seed: int) -> Task:
    """Return an instance of a task; EnvironmentFailure if the suite returns something else."""
    return check_answer(suite.instance(name, seed), Task, suite.instance, EnvironmentFailure)


def check_environment(made: Environment, suite: Suite) -> Environment:
    """Return what a suite's `open` returned; EnvironmentFailure if it lacks what an environment does."""
    if all(callable(getattr(made, name, None)) for name in ("reset", "step", "close")):
        return made
    place = describe_code_place(suite.open)
    raise EnvironmentFailure(f"open must return an environment with reset, step and close, got {made!r:.80}{place}")


def check_screen(seen: Observation, function: Callable[..., Any]) -> Observation:
    """Return what an environment's `function` returned; EnvironmentFailure if it is no screen."""
    check_answer(seen, Observation, function, EnvironmentFailure)
    for text in (seen.title, seen.text):
        check_answer(text, str, function, EnvironmentFailure)
    for element in check_answer(seen.elements, tuple, function, EnvironmentFailure):
        check_answer(element, Element, function, EnvironmentFailure)
    return seen


def check_result(result: StepResult, step: Callable[..., Any]) -> StepResult:
    """Return what an environment's `step` returned; EnvironmentFailure if it is no result of a step."""
    check_answer(result, StepResult, step, EnvironmentFailure)
    check_screen(result.observation, step)
    check_answer(result.info, Mapping, step, EnvironmentFailure)
    if result.done:
        check_answer(result.outcome, Outcome, step, EnvironmentFailure)
    return result
