import asyncio
import inspect
import sys

import pytest

import collab.errors
from collab.errors import (
    CollabError,
    ConfigError,
    EnvironmentFailure,
    MissingExtra,
    ModelFailure,
    RunError,
    UnknownName,
    UsageError,
    boundary,
)

CLASSES = [one for _, one in inspect.getmembers(collab.errors, inspect.isclass) if issubclass(one, CollabError)]


@pytest.mark.parametrize("error", CLASSES, ids=lambda error: error.__name__)
def test_the_picture_shows_the_tree(error):
    lines = [line.split("  ")[0] for line in collab.errors.__doc__.splitlines() if error.__name__ in line]
    assert lines, f"{error.__name__} is missing from the docstring"
    depth = len(error.__mro__) - CollabError.__mro__.__len__()
    drawn = next(line for line in collab.errors.__doc__.splitlines() if line.strip(" │├└─").startswith(error.__name__))
    assert drawn.index(error.__name__) == 4 + 4 * depth


@pytest.mark.parametrize("error", CLASSES, ids=lambda error: error.__name__)
def test_a_users_mistake_exits_2_and_a_failure_1(error):
    assert error.exit_code == (2 if issubclass(error, UsageError) else 1)
    assert error.__doc__


def test_unknown_names_come_with_a_guess():
    known = ["chain4", "star4", "complete4"]
    assert str(UnknownName.of("graph", "chian4", known)) == "no graph called 'chian4'; did you mean chain4?"
    assert str(UnknownName.of("graph", "xyz", known)) == "no graph called 'xyz'; known: chain4, complete4, star4"
    assert str(UnknownName.of("graph", "xyz", [])) == "no graph called 'xyz'; known: none"
    assert str(UnknownName.of("task", "star", ["star1", "star2"], "see them with: collab env tasks x")) == (
        "no task called 'star'; did you mean star2 or star1?; see them with: collab env tasks x"
    )


def test_many_names_are_cut():
    message = str(UnknownName.of("task", "zzz", (f"Task{n:03}" for n in range(500))))
    assert message.endswith("Task010, Task011 and 488 more")
    assert str(UnknownName.of("task", "zzz", (f"Task{n:03}" for n in range(12)))).endswith("Task010, Task011")
    assert "\n" not in message


def test_a_missing_extra_says_the_command():
    message = str(MissingExtra.of("playwright", "web", "MiniWoB++"))
    assert message == "MiniWoB++ needs playwright, which is not installed; run: pip install 'collab-marl[web]'"


def test_the_first_package_that_is_not_there_is_named_and_none_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "this", raising=False)
    MissingExtra.unless("json", "this", extra="web", purpose="MiniWoB++")
    assert "this" not in sys.modules
    with pytest.raises(MissingExtra, match=r"^MiniWoB\+\+ needs nowhere_1, .*'collab-marl\[web\]'$"):
        MissingExtra.unless("json", "nowhere_1", "nowhere_2", extra="web", purpose="MiniWoB++")
    monkeypatch.setitem(sys.modules, "json", None)
    with pytest.raises(MissingExtra, match="needs json"):
        MissingExtra.unless("json", extra="web", purpose="MiniWoB++")


def test_boundary_relabels_foreign_errors_once():
    with pytest.raises(ModelFailure, match=r"^asking the server: ValueError: no luck$") as caught:
        with boundary(ModelFailure, "asking the server"):
            raise ValueError("no luck")
    assert isinstance(caught.value.__cause__, ValueError)


def test_boundary_lets_typed_errors_pass_unchanged():
    for error in (ConfigError("x"), EnvironmentFailure("y"), CollabError("z")):
        with pytest.raises(CollabError) as caught, boundary(ModelFailure, "outer"):
            with boundary(ModelFailure, "inner"):
                raise error
        assert caught.value is error


def test_boundary_names_timeouts():
    async def slow():
        with boundary(EnvironmentFailure, "the step"):
            async with asyncio.timeout(0.01):
                await asyncio.sleep(5)

    with pytest.raises(EnvironmentFailure, match=r"^the step timed out$"):
        asyncio.run(slow())


@pytest.mark.parametrize("signal", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
def test_boundary_does_not_touch_what_is_no_error(signal):
    with pytest.raises(signal), boundary(RunError, "work"):
        raise signal


def test_boundary_is_quiet_when_nothing_happens():
    with boundary(RunError, "work"):
        done = True
    assert done
