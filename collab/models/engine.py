"""The scheduler of a local model: jobs from all episodes in, one stream of packed passes, answers out.

    engine.submit(job)
    while engine.busy:
        for job, answer in engine.step():
            …

Every step is one pass per policy that has work: the next token of all running sequences, and prompts of those that
came in. What several prompts begin with is computed once and attended to where it is. A sequence that ends makes room
at once. When memory runs out, all sequences go back to the line and fewer of them run at a time; none is lost, and none
loses what it has sampled.

Two modes. "fast" packs whatever is there; sums then depend on the company in the last bits (about 1e-6 in float32).
"exact" cuts every prompt into the same blocks, whoever wrote its pieces, and computes one block or one token of one
sequence per pass: it runs one sequence at a time, and a pass has room for one block. A reply is bit for bit a function
of its request then, and still finds blocks that were computed before. Its price is the width: twelve calls cost twelve
times the tokens' time of one.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from collab.errors import ModelFailure
from collab.models.checkpoint import Checkpoint, out_of_memory
from collab.models.generation import Answer, Generation, Job
from collab.models.kv_cache import PrefixCache
from collab.models.lane import Lane, Running
from collab.models.line import Bound, Line

_BLOCK = 256
"""Tokens of a block in exact mode."""
_SMALLEST_PREFILL = 256


class Engine:
    """A checkpoint whose prompts share prefixes. Not for use by several threads at once.

    Args:
        checkpoint: for which `share_prefixes` has returned None.
        exact: the mode.
        width: sequences running at once, where memory allows it; exact mode runs one.
        prefill: prompt tokens computed in one pass at most, where memory allows it.
        cache_bytes: memory for computed prompt pieces that nobody uses at the moment.
    """

    def __init__(self, checkpoint: Checkpoint, *, exact: bool, width: int, prefill: int, cache_bytes: int) -> None:
        self.checkpoint = checkpoint
        self.cache = PrefixCache(checkpoint.shape, cache_bytes)
        self._exact = exact
        self._width = Bound(most=1 if exact else width)
        most = _BLOCK if exact else prefill
        self._prefill = Bound(most=most, least=min(most, _SMALLEST_PREFILL))
        self._line = Line(checkpoint)
        self._lanes: dict[str | None, Lane] = {}
        self._alone: Generation | None = None
        """The one that had all memory for itself since memory last ran out; None when there were several."""
        self.peak_bytes = 0
        """Most memory that keys and values have taken so far."""

    @property
    def busy(self) -> bool:
        """Whether a step would do anything."""
        return bool(self._line or self._running)

    @property
    def compute_s(self) -> float:
        """Seconds spent in forward passes and in drawing tokens since it was made or cleared."""
        return sum(lane.compute_s for lane in self._lanes.values())

    def submit(self, job: Job) -> None:
        """Put a job in line."""
        self._line.submit(job)

    @torch.inference_mode()
    def step(self) -> list[tuple[Job, Answer | ModelFailure]]:
        """Advance everything by one pass; returns the jobs that have their result now, each job exactly once."""
        done = self._line.over()
        self._admit()
        running = self._running
        try:
            for lane in self._lanes.values():
                lane.forget_abandoned()
                if len(lane):
                    done += lane.step(self._prefill.size)
                    self._prefill.fitted(lane.computed)
            self._width.fitted(running)
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
            done += self._shrink()
        self.peak_bytes = max(self.peak_bytes, self.cache.held_bytes + sum(lane.bytes for lane in self._lanes.values()))
        return [(generation.job, _result(generation)) for generation in done]

    def forget(self, adapter: str | None) -> bool:
        """Drop what was computed with an adapter; False, and nothing is dropped, while it still computes."""
        lane = self._lanes.get(adapter)
        if lane is not None and len(lane):
            return False
        self._lanes.pop(adapter, None)
        self.cache.forget(adapter)
        return True

    def clear(self) -> None:
        """Give up all jobs and forget everything: after an error that is nobody's own."""
        self._line.clear()
        self._lanes.clear()
        self.cache = PrefixCache(self.checkpoint.shape, self.cache.budget_bytes)

    # ---------------------------------------------------------------------------------------------------- parts

    @property
    def _running(self) -> int:
        """Sequences that run."""
        return sum(map(len, self._lanes.values()))

    def _admit(self) -> None:
        """Let in whom there is room for, first come, first served."""
        for _ in range(self._width.size - self._running):
            generation = self._line.next()
            if generation is None:
                return
            generation.start()
            self._lane(generation.job.adapter).enter(self._begun(generation))

    def _lane(self, adapter: str | None) -> Lane:
        if adapter not in self._lanes:
            self._lanes[adapter] = Lane(self.checkpoint, self.cache, adapter)
        return self._lanes[adapter]

    def _begun(self, generation: Generation) -> Running:
        """Cut a prompt into pieces; what was sampled before belongs to the last."""
        prompt, sampled = generation.job.prompt, tuple(generation.tokens)
        if self._exact:
            pieces = list(_cut(prompt.ids + sampled, _BLOCK))
        else:
            whole = [piece for piece in prompt.pieces if piece]
            whole[-1] += sampled
            pieces = [part for piece in whole for part in _cut(piece, self._prefill.size)]
        path = self.cache.path(generation.job.adapter, pieces[:-1])
        return Running(generation=generation, path=path, tail=pieces[-1])

    def _shrink(self) -> list[Generation]:
        """Free all memory and go on with fewer sequences; one that fits not even alone in all of it has failed."""
        back = [generation for lane in self._lanes.values() for generation in lane.put_back()]
        self.cache.shrink(0)
        left = [generation for generation in back if generation.result is None]
        if self._width.halve(len(back)) or self._prefill.halve(self._prefill.size) or self._alone not in left:
            self._alone = left[0] if len(left) == 1 else None
            if self._exact:  # what was sampled would be computed in blocks, not token by token
                for generation in left:
                    generation.restart()
            self._line.put_back(left)
            return [generation for generation in back if generation.result is not None]
        for generation in left:
            generation.too_big(str(self.checkpoint.device))
        return back


def _cut(ids: tuple[int, ...], size: int) -> Iterator[tuple[int, ...]]:
    for first in range(0, len(ids), size):
        yield ids[first : first + size]


def _result(generation: Generation) -> Answer | ModelFailure:
    assert generation.result is not None, "it is over"
    return generation.result
