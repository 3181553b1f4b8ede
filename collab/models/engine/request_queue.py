"""Jobs in order of arrival, and a size that memory bounds."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from collab.models.checkpoint import Checkpoint
from collab.models.engine.sampling import DecodeRequest, Generation


class RequestQueue:
    """Jobs in order of arrival; none is answered twice or lost."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._waiting: deque[Generation] = deque()
        self._over: list[Generation] = []

    def __len__(self) -> int:
        return len(self._waiting) + len(self._over)

    def submit(self, job: DecodeRequest) -> None:
        """Queue a job; one whose prompt is too long is finished at once."""
        generation = Generation.of(job, self._checkpoint.chat, self._checkpoint.ends, self._checkpoint.context)
        (self._waiting if generation.result is None else self._over).append(generation)

    def next(self) -> Generation | None:
        """Return the first job whose caller still waits; None without one."""
        while self._waiting:
            generation = self._waiting.popleft()
            if not generation.job.abandoned():
                return generation
        return None

    def over(self) -> list[Generation]:
        """Return jobs that were finished before they began, each once."""
        over, self._over = self._over, []
        return over

    def put_back(self, generations: Iterable[Generation]) -> None:
        """Put jobs back at the front, in order of arrival."""
        for generation in sorted(generations, key=lambda one: one.submitted_at, reverse=True):
            if generation.started_at is not None:
                generation.job.put_back()
            self._waiting.appendleft(generation)

    def clear(self) -> None:
        """Drop all jobs."""
        self._waiting.clear()
        self._over.clear()


@dataclass(slots=True, kw_only=True)
class Bound:
    """A size limited by memory: halved when memory runs out, an eighth larger after `patience` good uses.

    Each time a larger size fails, the patience doubles, so that it is tried less and less often.
    """

    most: int
    least: int = 1
    patience: int = 64
    size: int = field(init=False)
    _calm: int = field(init=False, default=0)
    """Good uses since the size last changed."""
    _grown: bool = field(init=False, default=False)
    """Whether it has grown since memory last ran out."""

    def __post_init__(self) -> None:
        self.size = self.most

    def halve(self, used: int) -> bool:
        """Halve the size after memory ran out with so much in use; return False if it cannot become smaller."""
        # At the least size only one sequence is left; halving would not help.
        if min(used, self.size) <= self.least:
            return False
        self.size = max(self.least, min(used, self.size) // 2)
        # The last growth was too early: wait twice as long before the next.
        self.patience *= 2 if self._grown else 1
        self._calm, self._grown = 0, False
        return True

    def note_fit(self, used: int) -> None:
        """Note that so much fitted; less than the bound proves nothing."""
        if self.size == self.most or used < self.size:
            return
        self._calm += 1
        if self._calm >= self.patience:
            self.size = min(self.most, self.size + max(1, self.size // 8))
            self._calm, self._grown = 0, True
