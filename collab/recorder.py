"""Where an episode is written while it happens: in a run directory, or nowhere."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Protocol

from collab.redact import redact
from collab.store.writer import RunWriter
from collab.types import Step, Trajectory


class Recorder(Protocol):
    """Where an episode is written while it happens."""

    def begin(self, trajectory: Trajectory) -> None:
        """An episode begins, or begins again; it has no steps yet."""
        ...

    def resume(self, trajectory: str, step: int) -> None:
        """An interrupted episode goes on at `step`; what stands before it was recorded earlier and replayed."""
        ...

    def text(self, key: str, text: str) -> None:
        """A prompt prefix, by its SHA-256; the same one may come often."""
        ...

    def picture(self, png: bytes) -> str:
        """A screen; returns the SHA-256 it is stored under, at once, and encodes later."""
        ...

    def step(self, trajectory: str, step: Step) -> None:
        """A finished step; when this returns, the step survives the death of the process."""
        ...

    def end(self, trajectory: Trajectory) -> None:
        """The episode is over, with an outcome or an error."""
        ...


class RunRecorder:
    """A recorder that writes a run directory."""

    def __init__(self, writer: RunWriter) -> None:
        self._writer = writer
        self.text = writer.text
        self.picture = writer.picture
        self.step = writer.step

    def begin(self, trajectory: Trajectory) -> None:
        """An episode begins, or begins again."""
        self._writer.begin_episode(
            trajectory.id,
            trajectory.task,
            episode=trajectory.episode,
            epoch=trajectory.epoch,
            environment=trajectory.environment,
            environment_version=trajectory.environment_version,
            privileged=trajectory.privileged,
        )

    def resume(self, trajectory: str, step: int) -> None:
        """An interrupted episode goes on."""
        self._writer.resume_episode(trajectory, step)

    def end(self, trajectory: Trajectory) -> None:
        """The episode is over."""
        error = trajectory.error
        self._writer.end_episode(
            trajectory.id,
            outcome=trajectory.outcome,
            error=error and replace(error, message=redact(error.message)),
            final=trajectory.final,
            seconds=trajectory.seconds,
        )


class Silent:
    """A recorder that keeps nothing: for trajectories that are only needed in memory."""

    def begin(self, trajectory: Trajectory) -> None:
        """Keep nothing."""

    def resume(self, trajectory: str, step: int) -> None:
        """Keep nothing."""

    def text(self, key: str, text: str) -> None:
        """Keep nothing."""

    def picture(self, png: bytes) -> str:
        """Keep nothing; the picture is still named by its content."""
        return hashlib.sha256(png).hexdigest()

    def step(self, trajectory: str, step: Step) -> None:
        """Keep nothing."""

    def end(self, trajectory: Trajectory) -> None:
        """Keep nothing."""
