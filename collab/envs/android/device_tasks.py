"""Tasks on a device: what a task file says, and how a screen is judged.

    tasks:
      - name: wifi-page
        goal: Open the page with the Wi-Fi networks.
        start: Settings
        success: {text: Internet, package: com.android.settings}

Nothing on a device can be looked into, so a task is judged by what the last screen shows and what the agent answered,
when the agent says that it is complete. Everything that `success` names must hold.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from collab.envs import task_files
from collab.types import Observation, Outcome


class Success(BaseModel):
    """When a task is solved. Give at least one of text, package, answer."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    text: str | list[str] | None = None
    """Texts that the last screen must show, in a label or a value (spaces and case do not matter)."""
    package: str | None = None
    """App that must be in front."""
    answer: str | list[str] | None = None
    """What `answer` must have said, or any of several (spaces and case do not matter)."""

    @model_validator(mode="after")
    def _says_something(self) -> Success:
        if self.text is None and self.package is None and self.answer is None:
            raise ValueError("give at least one of text, package, answer")
        return self


class DeviceTask(BaseModel):
    """One task of a task file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=r"^[\w.-]+$")
    goal: str = Field(min_length=1)
    success: Success
    start: str | None = None
    """App to open at the beginning, by name or package; None for the home screen."""
    max_steps: int = Field(default=30, ge=1)
    difficulty: Literal["easy", "medium", "hard"] | None = None
    apps: list[str] = []
    tags: list[str] = []


def load_tasks(tasks: Path | list[dict[str, Any]]) -> tuple[DeviceTask, ...]:
    """Read tasks on a device; see `task_files.load_tasks`."""
    return task_files.load_tasks(tasks, DeviceTask, "device tasks")


def judge(success: Success, observation: Observation, package: str, answer: str | None) -> Outcome:
    """Judge the screen at the end.

    Args:
        package: of the app in front.
        answer: what the agent answered last; None when it did not.
    """
    missing = next(
        (
            reason
            for reason in (_unseen(success, observation), _elsewhere(success, package), _unsaid(success, answer))
            if reason
        ),
        None,
    )
    solved = missing is None
    return Outcome(success=solved, score=float(solved), reason=missing or "everything the task names holds")


def _unseen(success: Success, observation: Observation) -> str | None:
    wanted = [success.text] if isinstance(success.text, str) else success.text or []
    seen = _plain(" ".join(f"{one.label} \n {one.value or ''}" for one in observation.elements))
    return next((f"the screen does not show {text!r}" for text in wanted if _plain(text) not in seen), None)


def _elsewhere(success: Success, package: str) -> str | None:
    return f"{package} is in front" if success.package not in (None, package) else None


def _unsaid(success: Success, answer: str | None) -> str | None:
    if success.answer is None:
        return None
    accepted = [success.answer] if isinstance(success.answer, str) else success.answer
    said = _plain(answer or "")
    return None if said in [_plain(one) for one in accepted] else f"the answer was {answer!r}"


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())
