"""The scheduler of a local model: jobs from all episodes in, one stream of packed passes, answers out.

    engine.submit(job)
    while engine.busy:
        for job, answer in engine.step():
            …

Every step is one pass per policy that has work: the next token of all running sequences, and prompts of those that
came in. What several prompts begin with is computed once and attended to where it is. A sequence that ends makes room
at once. When memory runs out, fewer sequences run at a time; none is lost, and none loses what it has sampled.

Two modes. "fast" packs whatever is there; sums then depend on the company in the last bits (about 1e-6 in float32).
"exact" cuts every prompt into the same blocks, whoever wrote its pieces, and computes one block or one token of one
sequence per pass: a reply is bit for bit a function of its request, and still finds blocks that were computed before.
Its price is the width: twelve calls cost twelve times the tokens' time of one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import torch

from collab.errors import ModelFailure
from collab.models.checkpoint import Checkpoint, out_of_memory
from collab.models.generation import Answer, Generation, Job
from collab.models.kv_cache import PrefixCache
from collab.models.lane import Lane, Running

_BLOCK = 256
"""Tokens of a block in exact mode."""
_SMALLEST_PREFILL = 256


class Engine:
    """A checkpoint whose prompts share prefixes. Not for use by several threads at once.

    Args:
        checkpoint: for which `share_prefixes` has returned None.
        exact: the mode.
        width: sequences running at once; exact mode runs one.
        prefill: prompt tokens computed in one pass at most.
        cache_bytes: memory for computed prompt pieces that nobody uses at the moment.
    """

    def __init__(self, checkpoint: Checkpoint, *, exact: bool, width: int, prefill: int, cache_bytes: int) -> None:
        self.checkpoint = checkpoint
        self.cache = PrefixCache(checkpoint.shape, cache_bytes)
        self._exact = exact
        self._width = 1 if exact else width
        self._prefill = _BLOCK if exact else prefill
        self._waiting: deque[Generation] = deque()
        self._lanes: dict[str | None, Lane] = {}
        self._done: list[Generation] = []
        self.peak_bytes = 0
        """Most memory that keys and values have taken so far."""

    @property
    def busy(self) -> bool:
        """Whether a step would do anything."""
        return bool(self._done or self._waiting or any(map(len, self._lanes.values())))

    @property
    def compute_s(self) -> float:
        """Seconds spent in forward passes and in drawing tokens since it was made or cleared."""
        return sum(lane.compute_s for lane in self._lanes.values())

    def submit(self, job: Job) -> None:
        """Put a job in line."""
        generation = Generation.of(job, self.checkpoint.chat, self.checkpoint.ends, self.checkpoint.context)
        (self._waiting if generation.result is None else self._done).append(generation)

    @torch.inference_mode()
    def step(self) -> list[tuple[Job, Answer | ModelFailure]]:
        """Advance everything by one pass; returns the jobs that have their result now, each job exactly once."""
        done, self._done = self._done, []
        self._admit()
        for lane in self._lanes.values():
            if len(lane):
                done += self._advance(lane)
        self.peak_bytes = max(self.peak_bytes, self.cache.used_bytes + sum(lane.bytes for lane in self._lanes.values()))
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
        self._waiting.clear()
        self._done.clear()
        self._lanes.clear()
        self.cache = PrefixCache(self.checkpoint.shape, self.cache.budget_bytes)

    # ---------------------------------------------------------------------------------------------------- parts

    def _admit(self) -> None:
        """Let in whom there is room for, first come, first served."""
        running = sum(map(len, self._lanes.values()))
        while self._waiting and running < self._width:
            generation = self._waiting.popleft()
            if generation.job.abandoned():
                continue
            generation.start()
            self._lane(generation.job.adapter).enter(self._running(generation))
            running += 1

    def _lane(self, adapter: str | None) -> Lane:
        if adapter not in self._lanes:
            self._lanes[adapter] = Lane(self.checkpoint, self.cache, adapter, alone=self._exact)
        return self._lanes[adapter]

    def _running(self, generation: Generation) -> Running:
        """Cut a prompt into pieces; what was sampled before belongs to the last."""
        prompt, sampled = generation.job.prompt, tuple(generation.tokens)
        if self._exact:
            pieces = list(_cut(prompt.ids + sampled, _BLOCK))
        else:
            whole = [piece for piece in prompt.pieces if piece]
            whole[-1] += sampled
            pieces = [part for piece in whole for part in _cut(piece, self._prefill)]
        path = self.cache.path(generation.job.adapter, pieces[:-1])
        return Running(generation=generation, path=path, tail=pieces[-1])

    def _advance(self, lane: Lane) -> list[Generation]:
        try:
            return lane.step(self._prefill)
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
            return self._shrink(lane)

    def _shrink(self, lane: Lane) -> list[Generation]:
        """Make a pass smaller that did not fit; a single sequence that does not fit has failed."""
        self.cache.shrink(0)
        if len(lane) > 1:
            self._width = max(1, len(lane) // 2)
            self._waiting.extendleft(reversed(lane.put_back(len(lane) - self._width)))
            return []
        if self._prefill > _SMALLEST_PREFILL and not self._exact:
            self._prefill = max(_SMALLEST_PREFILL, self._prefill // 2)
            self._waiting.extendleft(lane.put_back(1))
            return []
        [failed] = lane.put_back(1)
        failed.too_big(str(self.checkpoint.device))
        return [failed]


def _cut(ids: tuple[int, ...], size: int) -> Iterator[tuple[int, ...]]:
    for first in range(0, len(ids), size):
        yield ids[first : first + size]


def _result(generation: Generation) -> Answer | ModelFailure:
    assert generation.result is not None, "it is over"
    return generation.result
