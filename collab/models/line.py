"""Who waits for a local model, and how much of it may run at once.

Memory decides the second: what does not fit is made smaller, and grows again, more and more carefully, while it does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from collab.models.checkpoint import Checkpoint
from collab.models.generation import Generation, Job


class Line:
    """Jobs in the order in which they came; nobody is answered twice, nobody is lost."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._waiting: deque[Generation] = deque()
        self._over: list[Generation] = []

    def __len__(self) -> int:
        return len(self._waiting) + len(self._over)

    def submit(self, job: Job) -> None:
        """Put a job in line; one whose prompt is too long is over already."""
        generation = Generation.of(job, self._checkpoint.chat, self._checkpoint.ends, self._checkpoint.context)
        (self._waiting if generation.result is None else self._over).append(generation)

    def next(self) -> Generation | None:
        """The first for whose answer somebody still waits; None when there is none."""
        while self._waiting:
            generation = self._waiting.popleft()
            if not generation.job.abandoned():
                return generation
        return None

    def over(self) -> list[Generation]:
        """Those that were over before they began, each once."""
        over, self._over = self._over, []
        return over

    def put_back(self, generations: Iterable[Generation]) -> None:
        """Let these go on before all others, in the order in which they came."""
        for generation in sorted(generations, key=lambda one: one.submitted_at, reverse=True):
            if generation.started_at is not None:
                generation.job.put_back()
            self._waiting.appendleft(generation)

    def clear(self) -> None:
        """Give up all."""
        self._waiting.clear()
        self._over.clear()


@dataclass(slots=True, kw_only=True)
class Bound:
    """A size that memory sets: halved when it runs out; an eighth more, up to `most`, after `patience` uses went well.

    Whenever a size that was tried again did not fit, the patience doubles: it is tried less and less often.
    """

    most: int
    least: int = 1
    patience: int = 64
    size: int = field(init=False)
    _calm: int = field(init=False, default=0)
    """Uses that went well since the size last changed."""
    _grown: bool = field(init=False, default=False)
    """Whether it has grown since memory last ran out."""

    def __post_init__(self) -> None:
        self.size = self.most

    def halve(self, used: int) -> bool:
        """After memory ran out with so much in use; False when it cannot become smaller."""
        if min(used, self.size) <= self.least:
            return False
        self.size = max(self.least, min(used, self.size) // 2)
        self.patience *= 2 if self._grown else 1
        self._calm, self._grown = 0, False
        return True

    def fitted(self, used: int) -> None:
        """After so much fitted; what uses less than the bound proves nothing."""
        if self.size == self.most or used < self.size:
            return
        self._calm += 1
        if self._calm >= self.patience:
            self.size = min(self.most, self.size + max(1, self.size // 8))
            self._calm, self._grown = 0, True
