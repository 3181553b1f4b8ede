"""The sequences of one policy that are being computed now, and the packed passes that advance them.

A pass advances every running sequence by one token and computes, in the same product, prompt pieces of sequences that
just came in. A sequence joins the running ones as soon as its prompt is there and leaves with its last token; it never
waits for companions.

The scheduler of a local model: jobs from all episodes in, one stream of packed passes, answers out.

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

Also the queue of a local model, and the bound on how much runs at once. Memory decides the bound: after a failure it is
halved, and grows again while everything fits, more and more carefully.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from collab.errors import ModelFailure
from collab.models.checkpoint import Checkpoint, is_out_of_memory
from collab.models.engine.attention import PackedPass, PassSegment, Rows, SharedKeys
from collab.models.engine.kv_cache import PrefixCache, PrefixNode, RowStore
from collab.models.engine.sampling import DecodeRequest, Generation, SampledReply, sample

LONG = 192
"""Pieces of so many tokens are attended to where they are; shorter ones are copied into the row, where one product
serves many rows."""
_SHORTEST = 32
"""Rows of fewer tokens lie on the shelf of those of so many."""


@dataclass(slots=True, eq=False)
class Running:
    """A generation with its place in the cache."""

    generation: Generation
    path: list[PrefixNode]
    """Its prompt but for the end."""
    tail: tuple[int, ...]
    """The end of its prompt, and what was sampled before it was put back, if it was. Never empty."""

    @property
    def start(self) -> int:
        """Position of the tail's first token."""
        return self.path[-1].start + len(self.path[-1].ids) if self.path else 0


@dataclass(slots=True, eq=False)
class _Shelf:
    """Rows of similar lengths: one product serves them, as long as the longest of them is."""

    store: RowStore
    rows: list[Running] = field(default_factory=list)
    """Whose rows the store holds, in its order."""

    def remove(self, running: Running) -> None:
        """Take a row out; the last one takes its place."""
        row = self.rows.index(running)
        self.rows[row] = self.rows[self.store.remove(row)]
        self.rows.pop()


@dataclass(slots=True, kw_only=True)
class _PieceRun:
    """What one pass computes of the prompt of a sequence that came in: pieces that follow each other."""

    running: Running
    known: int
    """How many nodes of its path are there already, or are computed for another sequence of the same pass."""
    nodes: list[PrefixNode] = field(default_factory=list)
    """Those that are computed now."""
    enters: bool = False
    """Whether its tail is computed, too, so that it becomes a row."""

    @property
    def ids(self) -> list[int]:
        """Return the tokens that are computed."""
        return [*(token for node in self.nodes for token in node.ids), *(self.running.tail if self.enters else ())]

    @property
    def start(self) -> int:
        """Position of the first of them."""
        return self.nodes[0].start if self.nodes else self.running.start

    @property
    def above(self) -> list[PrefixNode]:
        """Return the nodes that they attend to beside themselves."""
        return self.running.path[: self.known]


@dataclass(slots=True)
class _PassWork:
    """What one pass computes beside the next token of each row."""

    runs: list[_PieceRun] = field(default_factory=list)
    coming: set[PrefixNode] = field(default_factory=set)
    """All nodes that are computed."""
    tokens: int = 0

    def fits(self, tokens: int, most: int) -> bool:
        """Whether so many more can be computed; a single piece may be larger than the pass."""
        return not self.tokens or self.tokens + tokens <= most

    @property
    def entering(self) -> list[Running]:
        """Return the sequences whose tails are computed, in their order."""
        return [run.running for run in self.runs if run.enters]


@dataclass(frozen=True, slots=True)
class _PassLayout:
    """A pass as tensors."""

    ids: Tensor
    positions: Tensor
    keep: Tensor
    """Tokens whose logits are drawn from: each row's, then each tail's last."""
    plan: PackedPass
    tails: list[Tensor]
    """Keys and values of the tails, to become rows."""


class DecodeBatch:
    """One policy's sequences.

    Args:
        adapter: which of the checkpoint's adapters computes; None for the base weights.
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
        """By the binary digits of the lengths that their rows began with."""
        self._held: list[SharedKeys] | None = None
        """Which rows attend to which long pieces; None when the rows have changed."""

    def __len__(self) -> int:
        return len(self._entering) + sum(len(shelf.rows) for shelf in self._shelves.values())

    @property
    def bytes(self) -> int:
        """Memory of the rows."""
        return sum(shelf.store.bytes for shelf in self._shelves.values())

    def enter(self, running: Running) -> None:
        """Take in a sequence."""
        self._entering.append(running)

    def step(self, prefill: int) -> list[Generation]:
        """One pass. When memory runs out on the way, nothing has been sampled and everything can be put back.

        Args:
            prefill: prompt tokens that may be computed; a single piece may be longer.

        Returns:
            Generations that have their result now.
        """
        # Prompts enter while others are being continued: one product for both keeps the device busy.
        work = self._collect_work(prefill)
        self.computed = work.tokens
        rows = self._list_rows()
        self._checkpoint.use(self.adapter)
        # Memory is taken before anything is computed or noted, so that running out of it changes nothing.
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
        # From here on nothing takes memory: what was sampled cannot be lost any more.
        self._keep(rows, work, layout.tails)
        return self._remove_finished()

    def forget_abandoned(self) -> None:
        """Let go of sequences that came in and whose answer nobody waits for any more."""
        for running in [running for running in self._entering if running.generation.job.abandoned()]:
            self._entering.remove(running)
            self._cache.release(running.path)

    def put_back(self) -> list[Generation]:
        """Give up all sequences, with what they have sampled, to be computed later; their memory is free then."""
        # Rows first: they have sampled most, and go back to the front of the line.
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
        """Make room for the rows of sequences that come in."""
        # By shelf, because each shelf is one tensor and grows once per pass.
        rooms: dict[int, list[int]] = {}
        for running in tails:
            rooms.setdefault(_find_shelf(running), []).append(_count_final(running))
        for digits, coming in rooms.items():
            shelf = self._shelves.setdefault(digits, _Shelf(RowStore(self._checkpoint.shape)))
            shelf.store.reserve(len(shelf.rows) + len(coming), max(coming))

    # ------------------------------------------------------------------------------------------------- planning

    def _collect_work(self, prefill: int) -> _PassWork:
        """Return missing pieces and tails of entering sequences, in order, as far as the pass has room."""
        work = _PassWork()
        for running in self._entering:
            # What another sequence of this pass computes counts as known: keys are written before anything attends.
            missing = [node for node in running.path if not node.ready and node not in work.coming]
            run = _PieceRun(running=running, known=len(running.path) - len(missing))
            # Pieces in order, the tail last: a piece attends to all before it.
            for tokens, node in [*((len(node.ids), node) for node in missing), (len(running.tail), None)]:
                if not work.fits(tokens, prefill):
                    break
                work.tokens += tokens
                if node is None:
                    run.enters = True
                else:
                    run.nodes.append(node)
                    work.coming.add(node)
            if run.nodes or run.enters:
                work.runs.append(run)
            # First come, first served: a long prompt in front is not overtaken by short ones for ever.
            if not run.enters:
                break
        return work

    def _lay_out(self, rows: list[Running], work: _PassWork) -> _PassLayout:
        # The pass is one line of tokens: first one new token per row, then the segments of prompts.
        device = self._checkpoint.device
        ids = [running.generation.tokens[-1] for running in rows]
        positions = [_count_current(running) - 1 for running in rows]
        segments: list[PassSegment] = []
        tails: list[Tensor] = []
        last: list[int] = []
        for run in work.runs:
            kept = [self._cache.allocate(node) for node in run.nodes]
            # A tail belongs to its sequence alone: it becomes the beginning of a row and no node of the cache.
            if run.enters:
                tails.append(self._checkpoint.shape.empty(len(run.running.tail)))
                kept.append(tails[-1])
            # Short pieces above are joined into one product here; long ones stand in `shared`, where many attend to
            # them.
            above = [self._cache.allocate(node) for node in run.above if len(node.ids) < LONG]
            segments.append(PassSegment(first=len(ids), kept=kept, above=above))
            new = run.ids
            # Positions count in each sequence by itself, whatever its place in the pass.
            positions.extend(range(run.start, run.start + len(new)))
            ids.extend(new)
            # Only a tail's last token is drawn from; logits of other prompt tokens would be thrown away.
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
        """Return what the rows hold themselves, shelf by shelf."""
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
        """Return long pieces, with the tokens that attend to them."""
        # Rows attend to the same long pieces token after token, so the table is made anew only when rows change.
        if self._held is not None and not segments:
            return self._held
        # One product per piece for all that attend to it: this is where sharing saves time.
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
        # With segments it names tokens of this pass alone and cannot be kept.
        self._held = None if segments else shared
        return shared

    # ------------------------------------------------------------------------------------------- coming and going

    def _keep(self, rows: list[Running], work: _PassWork, tails: list[Tensor]) -> None:
        """Take over what a pass has computed; takes no memory."""
        # Ready only now: a pass that failed half-way must leave no node that looks computed.
        for node in work.coming:
            node.ready = True
        for shelf in self._shelves.values():
            # Lengths before new rows: those that enter hold just their prompt yet.
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
            # A copy, as rows move while others are taken out.
            for running in [running for running in shelf.rows if running.generation.result is not None]:
                shelf.remove(running)
                self._cache.release(running.path)
                self._held = None
                done.append(running.generation)
        return done


def _list_short_pieces(running: Running) -> list[PrefixNode]:
    """Return those pieces of its prompt that are copied into its row."""
    return [node for node in running.path if len(node.ids) < LONG]


def _count_initial(running: Running) -> int:
    """Return the tokens that its row holds at first."""
    return sum(len(node.ids) for node in _list_short_pieces(running)) + len(running.tail)


def _find_shelf(running: Running) -> int:
    """Return the shelf of its row: rows there differ in length by a factor of two at most when they begin."""
    return max(_count_initial(running), _SHORTEST).bit_length()


def _count_final(running: Running) -> int:
    """Return the tokens that its row will hold at most."""
    return _count_initial(running) + running.generation.limit - len(running.generation.tokens)


def _count_current(running: Running) -> int:
    """Return the tokens of prompt and reply so far."""
    return len(running.generation.job.prompt) + len(running.generation.tokens)


class RequestQueue:
    """Jobs in the order in which they came; none is answered twice, none is lost."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._waiting: deque[Generation] = deque()
        self._over: list[Generation] = []

    def __len__(self) -> int:
        return len(self._waiting) + len(self._over)

    def submit(self, job: DecodeRequest) -> None:
        """Put a job in line; one whose prompt is too long is over already."""
        generation = Generation.of(job, self._checkpoint.chat, self._checkpoint.ends, self._checkpoint.context)
        (self._waiting if generation.result is None else self._over).append(generation)

    def next(self) -> Generation | None:
        """Return the first job that is still waited for; None when there is none."""
        while self._waiting:
            generation = self._waiting.popleft()
            if not generation.job.abandoned():
                return generation
        return None

    def over(self) -> list[Generation]:
        """Return those that were over before they began, each once."""
        over, self._over = self._over, []
        return over

    def put_back(self, generations: Iterable[Generation]) -> None:
        """Let these go on before all others, in the order in which they came."""
        # Appended at the front from the last to the first, which restores the order of arrival.
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
        """Halve the size after memory ran out with so much in use; False when it cannot become smaller."""
        # At the least size only one sequence is left, and halving would not help it.
        if min(used, self.size) <= self.least:
            return False
        self.size = max(self.least, min(used, self.size) // 2)
        # A growth that failed was too early: wait twice as long before the next.
        self.patience *= 2 if self._grown else 1
        self._calm, self._grown = 0, False
        return True

    def note_fit(self, used: int) -> None:
        """Note that so much fitted; less than the bound proves nothing."""
        # A pass that used less than the bound says nothing about the bound.
        if self.size == self.most or used < self.size:
            return
        self._calm += 1
        if self._calm >= self.patience:
            self.size = min(self.most, self.size + max(1, self.size // 8))
            self._calm, self._grown = 0, True


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
        cache_bytes: memory for computed prompt pieces that no sequence uses at the moment.
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
        """The one that had all memory for itself since memory last ran out; None when there were several."""
        self.peak_bytes = 0
        """Most memory that keys and values have taken so far."""

    @property
    def busy(self) -> bool:
        """Whether a step would do anything."""
        return bool(self._line or self._running)

    @property
    def compute_s(self) -> float:
        """Return the seconds spent in forward passes and in drawing tokens since it was made or cleared."""
        return sum(lane.compute_s for lane in self._lanes.values())

    def submit(self, job: DecodeRequest) -> None:
        """Put a job in line."""
        self._line.submit(job)

    @torch.inference_mode()
    def step(self) -> list[tuple[DecodeRequest, SampledReply | ModelFailure]]:
        """Advance everything by one pass; returns the jobs that have their result now, each job exactly once."""
        # Too long prompts are answered without a pass.
        done = self._line.over()
        self._admit()
        running = self._running
        try:
            # One pass per policy: an adapter is switched once per pass, not once per sequence.
            for lane in self._lanes.values():
                lane.forget_abandoned()
                if len(lane):
                    done += lane.step(self._prefill.size)
                    self._prefill.note_fit(lane.computed)
            self._width.note_fit(running)
        except (RuntimeError, MemoryError) as error:
            # Memory is the one error that fewer sequences can mend.
            if not is_out_of_memory(error):
                raise
            done += self._shrink()
        self.peak_bytes = max(self.peak_bytes, self.cache.held_bytes + sum(lane.bytes for lane in self._lanes.values()))
        return [(generation.job, _require_result(generation)) for generation in done]

    def forget(self, adapter: str | None) -> bool:
        """Drop what was computed with an adapter; False, and nothing is dropped, while it still computes."""
        lane = self._lanes.get(adapter)
        if lane is not None and len(lane):
            return False
        self._lanes.pop(adapter, None)
        self.cache.forget(adapter)
        return True

    def clear(self) -> None:
        """Give up all jobs and forget everything, after an error that belongs to no single job."""
        self._line.clear()
        self._lanes.clear()
        self.cache = PrefixCache(self.checkpoint.shape, self.cache.budget_bytes)

    # ---------------------------------------------------------------------------------------------------- parts

    @property
    def _running(self) -> int:
        """Return the number of running sequences."""
        return sum(map(len, self._lanes.values()))

    def _admit(self) -> None:
        """Start as many waiting jobs as there is room for, first come, first served."""
        # Only as many as may run: what waits holds no memory.
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
        """Cut a prompt into pieces; what was sampled before belongs to the last."""
        prompt, sampled = generation.job.prompt, tuple(generation.tokens)
        # Exact mode: blocks at fixed places make a block's sums the same in every prompt that contains it.
        if self._exact:
            pieces = list(_cut(prompt.ids + sampled, _BLOCK))
        else:
            # Fast mode: pieces as the prompt was written, because those are what other cells share.
            whole = [piece for piece in prompt.pieces if piece]
            whole[-1] += sampled
            pieces = [part for piece in whole for part in _cut(piece, self._prefill.size)]
        path = self.cache.path(generation.job.adapter, pieces[:-1])
        return Running(generation=generation, path=path, tail=pieces[-1])

    def _shrink(self) -> list[Generation]:
        """Free all memory and continue with fewer sequences. One that does not even fit alone has failed."""
        # Everything is freed, not only what failed: what was computed is found again or computed again.
        back = [generation for lane in self._lanes.values() for generation in lane.put_back()]
        self.cache.shrink(0)
        left = [generation for generation in back if generation.result is None]
        # Fewer sequences, then smaller passes; a sequence that had all memory to itself and failed has no way left.
        if self._width.halve(len(back)) or self._prefill.halve(self._prefill.size) or self._alone not in left:
            self._alone = left[0] if len(left) == 1 else None
            if self._exact:  # what was sampled would be computed in blocks, not token by token
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
