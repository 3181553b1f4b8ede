"""When observations and results are well formed. Every function raises EnvironmentFailure with one line otherwise."""

from __future__ import annotations

import json

from collab.envs.grammar import ActionSpace
from collab.envs.replay import fingerprint
from collab.errors import EnvironmentFailure
from collab.types import Observation, StepResult


def require(holds: bool, broken: str) -> None:
    """Raise EnvironmentFailure with `broken` unless the promise holds."""
    if not holds:
        raise EnvironmentFailure(broken)


def check_observation(space: ActionSpace, observation: Observation, where: str) -> None:
    """Elements are indexed 0 to n − 1, the text names every index, boxes lie on the screen, the text can be stored."""
    require(observation.space == space.name, f"{where}: made for space {observation.space!r}")
    require(observation.width > 0 and observation.height > 0, f"{where}: the screen has no size")
    for index, element in enumerate(observation.elements):
        require(element.index == index, f"{where}: element {index} says it is {element.index}")
        require(f"[{index}]" in observation.text, f"{where}: the text does not name [{index}]")
        box = element.box
        if box is not None:
            across = 0 <= box.left <= box.right <= observation.width
            down = 0 <= box.top <= box.bottom <= observation.height
            require(across and down, f"{where}: element {index} lies beside the screen: {tuple(box)}")
    try:
        f"{observation.title}{observation.text}".encode()
    except UnicodeEncodeError as error:
        raise EnvironmentFailure(f"{where}: the text cannot be stored: {error}") from None


def check_result(result: StepResult, where: str) -> None:
    """An outcome exactly when the episode is over, a score in [0, 1], and info that JSON can carry."""
    require(not (result.terminated and result.truncated), f"{where}: terminated and truncated at once")
    has = result.outcome is not None
    require(has == result.done, f"{where}: {'an' if has else 'no'} outcome, done is {result.done}")
    if result.outcome is not None:
        require(0 <= result.outcome.score <= 1, f"{where}: score {result.outcome.score}, allowed: 0 to 1")
    effect = result.info.get("effect", "")
    require(isinstance(effect, str), f'{where}: info["effect"] is {effect!r}, allowed: text')
    try:
        json.dumps(dict(result.info))
    except (TypeError, ValueError) as error:
        raise EnvironmentFailure(f"{where}: info is not JSON: {error}") from None


def require_same(one: Observation, other: Observation, broken: str) -> None:
    """Two observations show the same; the message adds the first line that differs."""
    if fingerprint(one) == fingerprint(other):
        return
    lines = zip(one.text.splitlines(), other.text.splitlines(), strict=False)
    differing = next((f": {before!r}, {after!r}" for before, after in lines if before != after), "")
    raise EnvironmentFailure(broken + differing)
