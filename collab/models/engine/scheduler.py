"""Schedule a local model's jobs: jobs from all episodes in, one stream of packed passes, answers out.

    engine.submit(job)
    while engine.busy:
        for job, answer in engine.step():
            …

Every step is one pass per policy with work: the next token of each running sequence, and prompt pieces of new ones. A
sequence runs as soon as its prompt is computed and leaves with its last token. A common beginning of prompts is
computed once. When memory runs out, all sequences return to the queue and fewer run at a time. None is lost, and all
keep their sampled tokens.

Two modes. "fast" packs all available work, so sums depend on the batch in the last bits (about 1e-6 in float32).
"exact" cuts every prompt into fixed blocks and computes one block or one token of one sequence per pass. A reply is
then bit for bit a function of its request, and cached blocks are still found. Twelve calls cost twelve times the
token time of one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from collab.errors import ModelFailure
from collab.models.checkpoint import Checkpoint, is_out_of_memory
from collab.models.engine.attention import PackedPass, PassSegment, Rows, SharedKeys
from collab.models.engine.kv_cache import PrefixCache, PrefixNode, RowStore
from collab.models.engine.request_queue import Bound, RequestQueue
from collab.models.engine.sampling import DecodeRequest, Generation, SampledReply, sample

LONG = 192
"""Pieces of so many tokens are shared; shorter ones are copied into the row, where one product serves many rows."""
_SHORTEST = 32
"""Rows of fewer tokens use the shelf of this length."""


@dataclass(slots=True, eq=False)
class Running:
    """A generation with its nodes in the cache."""

    generation: Generation
    path: list[PrefixNode]
    """Its prompt without the tail."""
    tail: tuple[int, ...]
    """The end of its prompt, and tokens sampled before it was put back. Never empty."""

    @property
    def start(self) -> int:
        """Return the position of the tail's first token."""
        return self.path[-1].start + len(self.path[-1].ids) if self.path else 0


@dataclass(slots=True, eq=False)
class _Shelf:
    """Rows of similar lengths, served by one product."""

    store: RowStore
    rows: list[Running] = field(default_factory=list)
    """Owners of the store's rows, in its order."""

    def remove(self, running: Running) -> None:
        """Remove a row; the last one takes its place."""
        row = self.rows.index(running)
        self.rows[row] = self.rows[self.store.remove(row)]
        self.rows.pop()


@dataclass(slots=True, kw_only=True)
class _PieceRun:
    """Consecutive prompt pieces of a new sequence that one pass computes."""

    running: Running
    known: int
    """Number of nodes of its path that are ready or computed for another sequence in this pass."""
    nodes: list[PrefixNode] = field(default_factory=list)
    """Nodes computed in this pass."""
    enters: bool = False
    """Whether its tail is computed too, so that it becomes a row."""

    @property
    def ids(self) -> list[int]:
        """Return the computed tokens."""
        return [*(token for node in self.nodes for token in node.ids), *(self.running.tail if self.enters else ())]

    @property
    def start(self) -> int:
        """Return the position of the first computed token."""
        return self.nodes[0].start if self.nodes else self.running.start

    @property
    def above(self) -> list[PrefixNode]:
        """Return the earlier nodes that these tokens attend to."""
        return self.running.path[: self.known]


@dataclass(slots=True)
class _PassWork:
    """Work of one pass beside the next token of each row."""

    runs: list[_PieceRun] = field(default_factory=list)
    coming: set[PrefixNode] = field(default_factory=set)
    """All computed nodes."""
    tokens: int = 0

    def can_fit(self, tokens: int, most: int) -> bool:
        """Return whether so many more tokens fit; a single piece may be larger than the pass."""
        return not self.tokens or self.tokens + tokens <= most

    @property
    def entering(self) -> list[Running]:
        """Return the sequences whose tails are computed, in order."""
        return [run.running for run in self.runs if run.enters]


@dataclass(frozen=True, slots=True)
class _PassLayout:
    """A pass as tensors."""

    ids: Tensor
    positions: Tensor
    keep: Tensor
    """Tokens to draw after: each row's, then each tail's last."""
    plan: PackedPass
    tails: list[Tensor]
    """Keys and values of the tails, which become rows."""


class DecodeBatch:
    """One policy's sequences.

    Args:
        adapter: the checkpoint's adapter; None for the base weights.
    """

    def __init__(self, checkpoint: Checkpoint, cache: PrefixCache, adapter: str | None) -> None:
        self.adapter = adapter
        self.compute_s = 0.0
        """Seconds in forward passes and in drawing tokens."""
        self.computed = 0
        """Prompt tokens of the last pass."""
        self._checkpoint = checkpoint
        self._cache = cache
        self._entering: list[Running] = []
        self._shelves: dict[int, _Shelf] = {}
        """Keyed by the number of binary digits of their rows' initial lengths."""
        self._held: list[SharedKeys] | None = None
        """Rows that attend to each long piece; None after the rows changed."""

    def __len__(self) -> int:
        return len(self._entering) + sum(len(shelf.rows) for shelf in self._shelves.values())

    @property
    def bytes(self) -> int:
        """Return the memory of the rows."""
        return sum(shelf.store.bytes for shelf in self._shelves.values())

    def enter(self, running: Running) -> None:
        """Add a sequence."""
        self._entering.append(running)

    def step(self, prefill: int) -> list[Generation]:
        """Run one pass. If memory runs out, nothing has been sampled and everything can be put back.

        Args:
            prefill: most prompt tokens to compute; a single piece may be longer.

        Returns:
            Generations that are finished now.
        """
        # One product for prompts and running rows keeps the device busy.
        work = self._collect_work(prefill)
        self.computed = work.tokens
        rows = self._list_rows()
        self._checkpoint.use(self.adapter)
        # Allocate before computing anything, so that running out of memory changes nothing.
        self._reserve(work.entering)
        layout = self._lay_out(rows, work)
        begun = time.perf_counter()
        # (rows + tails, vocabulary)
        logits = self._checkpoint.forward(layout.ids, layout.positions, layout.keep, layout.plan)
        # Counted even if no sequence was ready to draw: long prompts take several passes.
        for run in work.runs:
            run.running.generation.computed_tokens += len(run.ids)
        drawing = [running.generation for running in (*rows, *work.entering)]
        if drawing:
            sample(drawing, logits, self._checkpoint)
        self.compute_s += time.perf_counter() - begun
        # From here on nothing allocates: sampled tokens cannot be lost any more.
        self._keep(rows, work, layout.tails)
        return self._remove_finished()

    def forget_abandoned(self) -> None:
        """Drop entering sequences whose callers have left."""
        for running in [running for running in self._entering if running.generation.job.abandoned()]:
            self._entering.remove(running)
            self._cache.release(running.path)

    def put_back(self) -> list[Generation]:
        """Remove and return all sequences with their sampled tokens, and free their memory."""
        # Rows first: they have sampled most and return to the front of the queue.
        everyone = [*self._list_rows(), *self._entering]
        for running in everyone:
            self._cache.release(running.path)
        self._shelves.clear()
        self._entering.clear()
        self._held = None
        return [running.generation for running in everyone]

    # ---------------------------------------------------------------------------------------------------- shelves

    def _list_rows(self) -> list[Running]:
        """Return all rows, in the order of a pass."""
        return [running for shelf in self._shelves.values() for running in shelf.rows]

    def _reserve(self, tails: list[Running]) -> None:
        """Allocate rows for entering sequences."""
        # By shelf: each shelf is one tensor and grows once per pass.
        rooms: dict[int, list[int]] = {}
        for running in tails:
            rooms.setdefault(_find_shelf(running), []).append(_count_final(running))
        for digits, coming in rooms.items():
            shelf = self._shelves.setdefault(digits, _Shelf(RowStore(self._checkpoint.shape)))
            shelf.store.reserve(len(shelf.rows) + len(coming), max(coming))

    # ------------------------------------------------------------------------------------------------- planning

    def _collect_work(self, prefill: int) -> _PassWork:
        """Return missing pieces and tails of entering sequences, in order, as far as they fit into the pass."""
        work = _PassWork()
        for running in self._entering:
            # Pieces of other sequences in this pass count as known: keys are written before anything attends.
            missing = [node for node in running.path if not node.ready and node not in work.coming]
            run = _PieceRun(running=running, known=len(running.path) - len(missing))
            # Pieces in order, the tail last: a piece attends to all before it.
            for tokens, node in [*((len(node.ids), node) for node in missing), (len(running.tail), None)]:
                if not work.can_fit(tokens, prefill):
                    break
                work.tokens += tokens
                if node is None:
                    run.enters = True
                else:
                    run.nodes.append(node)
                    work.coming.add(node)
            if run.nodes or run.enters:
                work.runs.append(run)
            # First come, first served: short prompts must not overtake a long one for ever.
            if not run.enters:
                break
        return work

    def _lay_out(self, rows: list[Running], work: _PassWork) -> _PassLayout:
        # Order of tokens: first one new token per row, then the prompt segments.
        device = self._checkpoint.device
        ids = [running.generation.tokens[-1] for running in rows]
        positions = [_count_current(running) - 1 for running in rows]
        segments: list[PassSegment] = []
        tails: list[Tensor] = []
        last: list[int] = []
        for run in work.runs:
            kept = [self._cache.allocate(node) for node in run.nodes]
            # A tail belongs to its sequence alone: it begins a row and is not cached.
            if run.enters:
                tails.append(self._checkpoint.shape.empty(len(run.running.tail)))
                kept.append(tails[-1])
            # Earlier short pieces are joined into one product here; long ones are in `shared`.
            above = [self._cache.allocate(node) for node in run.above if len(node.ids) < LONG]
            segments.append(PassSegment(first=len(ids), kept=kept, above=above))
            new = run.ids
            # Positions count within each sequence, not within the pass.
            positions.extend(range(run.start, run.start + len(new)))
            ids.extend(new)
            # Only a tail's last token needs logits.
            if run.enters:
                last.append(len(ids) - 1)
        return _PassLayout(
            ids=torch.tensor(ids, device=device),
            positions=torch.tensor(positions, device=device),
            keep=torch.tensor([*range(len(rows)), *last], dtype=torch.long, device=device),
            plan=PackedPass(
                rows=self._collect_own_keys(), segments=segments, shared=self._collect_shared_keys(rows, work, segments)
            ),
            tails=tails,
        )

    def _collect_own_keys(self) -> list[Rows]:
        """Return the rows' own keys, shelf by shelf."""
        own: list[Rows] = []
        first = 0
        for shelf in self._shelves.values():
            lengths = shelf.store.lengths
            if lengths:
                at = torch.tensor(lengths, device=self._checkpoint.device)
                own.append(Rows(first=first, kv=shelf.store.kv, lengths=at, longest=max(lengths) + 1))
                first += len(lengths)
        return own

    def _collect_shared_keys(
        self, rows: list[Running], work: _PassWork, segments: list[PassSegment]
    ) -> list[SharedKeys]:
        """Return long pieces with the tokens that attend to them."""
        # Rows keep attending to the same long pieces, so the table is rebuilt only when rows change.
        if self._held is not None and not segments:
            return self._held
        # One product per piece for all its tokens: this is where sharing saves time.
        tokens: dict[PrefixNode, list[int]] = {}
        for number, running in enumerate(rows):
            for node in running.path:
                if len(node.ids) >= LONG:
                    tokens.setdefault(node, []).append(number)
        for run, segment in zip(work.runs, segments, strict=True):
            for node in run.above:
                if len(node.ids) >= LONG:
                    tokens.setdefault(node, []).extend(range(segment.tokens.start, segment.tokens.stop))
        device = self._checkpoint.device
        shared = [
            SharedKeys(kv=self._cache.allocate(node), tokens=torch.tensor(places, device=device))
            for node, places in tokens.items()
        ]
        # With segments the table holds tokens of this pass and cannot be kept.
        self._held = None if segments else shared
        return shared

    # ------------------------------------------------------------------------------------------- coming and going

    def _keep(self, rows: list[Running], work: _PassWork, tails: list[Tensor]) -> None:
        """Keep the results of a pass; allocates nothing."""
        # Mark nodes ready only now: a failed pass must leave none that looks computed.
        for node in work.coming:
            node.ready = True
        for shelf in self._shelves.values():
            # Grow lengths before adding rows: new rows hold just their prompt.
            shelf.store.lengths[:] = [length + 1 for length in shelf.store.lengths]
        for running, tail in zip(work.entering, tails, strict=True):
            self._entering.remove(running)
            shelf = self._shelves[_find_shelf(running)]
            shelf.store.add([*map(self._cache.allocate, _list_short_pieces(running)), tail])
            shelf.rows.append(running)
            self._held = None

    def _remove_finished(self) -> list[Generation]:
        done: list[Generation] = []
        for shelf in self._shelves.values():
            # Iterate over a copy: rows move while others are removed.
            for running in [running for running in shelf.rows if running.generation.result is not None]:
                shelf.remove(running)
                self._cache.release(running.path)
                self._held = None
                done.append(running.generation)
        return done


def _list_short_pieces(running: Running) -> list[PrefixNode]:
    """Return the prompt pieces that are copied into the row."""
    return [node for node in running.path if len(node.ids) < LONG]


def _count_initial(running: Running) -> int:
    """Return the number of tokens that the row starts with."""
    return sum(len(node.ids) for node in _list_short_pieces(running)) + len(running.tail)


def _find_shelf(running: Running) -> int:
    """Return the row's shelf, where initial lengths differ by at most a factor of two."""
    return max(_count_initial(running), _SHORTEST).bit_length()


def _count_final(running: Running) -> int:
    """Return the largest number of tokens that the row may hold."""
    return _count_initial(running) + running.generation.limit - len(running.generation.tokens)


def _count_current(running: Running) -> int:
    """Return the number of tokens of prompt and reply so far."""
    return len(running.generation.job.prompt) + len(running.generation.tokens)


_BLOCK = 256
"""Tokens of a block in exact mode."""
_SMALLEST_PREFILL = 256


class Engine:
    """An engine whose prompts share prefixes. Not thread-safe.

    Args:
        checkpoint: its `share_prefixes` has returned None.
        exact: whether to use exact mode.
        width: most running sequences, if memory allows; exact mode runs one.
        prefill: most prompt tokens per pass, if memory allows.
        cache_bytes: memory for prompt pieces that no sequence uses.
    """

    def __init__(self, checkpoint: Checkpoint, *, exact: bool, width: int, prefill: int, cache_bytes: int) -> None:
        self.checkpoint = checkpoint
        self.cache = PrefixCache(checkpoint.shape, cache_bytes)
        self._exact = exact
        self._width = Bound(most=1 if exact else width)
        most = _BLOCK if exact else prefill
        self._prefill = Bound(most=most, least=min(most, _SMALLEST_PREFILL))
        self._line = RequestQueue(checkpoint)
        self._lanes: dict[str | None, DecodeBatch] = {}
        self._alone: Generation | None = None
        """The only sequence that ran since memory last ran out; None if there were several."""
        self.peak_bytes = 0
        """Peak memory of keys and values so far."""

    @property
    def busy(self) -> bool:
        """Return whether a step would do anything."""
        return bool(self._line or self._running)

    @property
    def compute_s(self) -> float:
        """Return the seconds in forward passes and in drawing tokens since creation or `clear`."""
        return sum(lane.compute_s for lane in self._lanes.values())

    def submit(self, job: DecodeRequest) -> None:
        """Queue a job."""
        self._line.submit(job)

    @torch.inference_mode()
    def step(self) -> list[tuple[DecodeRequest, SampledReply | ModelFailure]]:
        """Advance everything by one pass; return the finished jobs with their results, each exactly once."""
        # Prompts that are too long are answered without a pass.
        done = self._line.over()
        self._admit()
        running = self._running
        try:
            # One pass per policy switches adapters once per pass, not once per sequence.
            for lane in self._lanes.values():
                lane.forget_abandoned()
                if len(lane):
                    done += lane.step(self._prefill.size)
                    self._prefill.note_fit(lane.computed)
            self._width.note_fit(running)
        except (RuntimeError, MemoryError) as error:
            # Only out-of-memory can be solved by fewer sequences.
            if not is_out_of_memory(error):
                raise
            done += self._shrink()
        self.peak_bytes = max(self.peak_bytes, self.cache.held_bytes + sum(lane.bytes for lane in self._lanes.values()))
        return [(generation.job, _require_result(generation)) for generation in done]

    def forget(self, adapter: str | None) -> bool:
        """Drop an adapter's cache; return False, and drop nothing, while it still computes."""
        lane = self._lanes.get(adapter)
        if lane is not None and len(lane):
            return False
        self._lanes.pop(adapter, None)
        self.cache.forget(adapter)
        return True

    def clear(self) -> None:
        """Drop all jobs and caches, after an error that belongs to no single job."""
        self._line.clear()
        self._lanes.clear()
        self.cache = PrefixCache(self.checkpoint.shape, self.cache.budget_bytes)

    # ---------------------------------------------------------------------------------------------------- parts

    @property
    def _running(self) -> int:
        """Return the number of running sequences."""
        return sum(map(len, self._lanes.values()))

    def _admit(self) -> None:
        """Start as many waiting jobs as may run, first come, first served; waiting jobs hold no memory."""
        for _ in range(self._width.size - self._running):
            generation = self._line.next()
            if generation is None:
                return
            generation.start()
            self._find_batch(generation.job.adapter).enter(self._cut_prompt(generation))

    def _find_batch(self, adapter: str | None) -> DecodeBatch:
        if adapter not in self._lanes:
            self._lanes[adapter] = DecodeBatch(self.checkpoint, self.cache, adapter)
        return self._lanes[adapter]

    def _cut_prompt(self, generation: Generation) -> Running:
        """Cut a prompt into pieces; earlier sampled tokens belong to the last one."""
        prompt, sampled = generation.job.prompt, tuple(generation.tokens)
        # Exact mode: with fixed blocks, a block's sums are equal in every prompt.
        if self._exact:
            pieces = list(_cut(prompt.ids + sampled, _BLOCK))
        else:
            # Fast mode: the prompt's own pieces, which other cells share.
            whole = [piece for piece in prompt.pieces if piece]
            whole[-1] += sampled
            pieces = [part for piece in whole for part in _cut(piece, self._prefill.size)]
        path = self.cache.path(generation.job.adapter, pieces[:-1])
        return Running(generation=generation, path=path, tail=pieces[-1])

    def _shrink(self) -> list[Generation]:
        """Free all memory and continue with fewer sequences; one that does not fit alone fails."""
        back = [generation for lane in self._lanes.values() for generation in lane.put_back()]
        self.cache.shrink(0)
        left = [generation for generation in back if generation.result is None]
        # First fewer sequences, then smaller passes; a sequence that ran alone has failed for good.
        if self._width.halve(len(back)) or self._prefill.halve(self._prefill.size) or self._alone not in left:
            self._alone = left[0] if len(left) == 1 else None
            if self._exact:  # otherwise sampled tokens would be computed in blocks, not one by one
                for generation in left:
                    generation.restart()
            self._line.put_back(left)
            return [generation for generation in back if generation.result is not None]
        for generation in left:
            generation.fail_for_memory(str(self.checkpoint.device))
        return back


def _cut(ids: tuple[int, ...], size: int) -> Iterator[tuple[int, ...]]:
    for first in range(0, len(ids), size):
        yield ids[first : first + size]


def _require_result(generation: Generation) -> SampledReply | ModelFailure:
    assert generation.result is not None, "it is over"
    return generation.result
