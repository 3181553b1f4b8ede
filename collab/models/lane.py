"""The sequences of one policy that are being computed now, and the packed passes that advance them.

A pass advances every running sequence by one token and computes, in the same product, prompt pieces of sequences that
just came in. A sequence joins the running ones as soon as its prompt is there and leaves with its last token; nobody
waits for companions.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import torch
from torch import Tensor

from collab.models.attention import Pass, Rows, Segment, Shared, places_of
from collab.models.checkpoint import Checkpoint
from collab.models.generation import Generation
from collab.models.kv_cache import Node, PrefixCache
from collab.models.rows import RowStore
from collab.models.sampling import sample

LONG = 192
"""Pieces of so many tokens are attended to where they are; shorter ones are copied into the row, where one product
serves many rows."""
_SHORTEST = 32
"""Rows of fewer tokens lie on the shelf of those of so many."""


@dataclass(slots=True, eq=False)
class Running:
    """A generation with its place in the cache."""

    generation: Generation
    path: list[Node]
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


@dataclass(slots=True)
class _Work:
    """What one pass computes beside the next token of each row."""

    nodes: list[Node] = field(default_factory=list)
    tails: list[Running] = field(default_factory=list)
    shares: list[tuple[Generation, int]] = field(default_factory=list)
    """For whom how many tokens are computed."""
    tokens: int = 0

    def fits(self, tokens: int, most: int) -> bool:
        """Whether so many more can be computed; a single piece may be larger than the pass."""
        return not self.tokens or self.tokens + tokens <= most

    def add(self, running: Running, tokens: int) -> None:
        """Note that so many tokens are computed for a sequence."""
        self.shares.append((running.generation, tokens))
        self.tokens += tokens


@dataclass(frozen=True, slots=True)
class _Layout:
    """A pass as tensors."""

    ids: Tensor
    positions: Tensor
    keep: Tensor
    """Tokens whose logits are drawn from: each row's, then each tail's last."""
    plan: Pass
    tails: list[Tensor]
    """Keys and values of the tails, to become rows."""


class Lane:
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
        self._held: tuple[list[Shared], Tensor] | None = None
        """Which rows attend to which long pieces, and their places; None when the rows have changed."""

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
        work = self._next_work(prefill)
        self.computed = work.tokens
        rows = self._rows()
        self._checkpoint.use(self.adapter)
        self._reserve(work.tails)
        layout = self._layout(rows, work)
        begun = time.perf_counter()
        logits = self._checkpoint.forward(layout.ids, layout.positions, layout.keep, layout.plan)
        for generation, tokens in work.shares:
            generation.computed_tokens += tokens
        drawing = [running.generation for running in (*rows, *work.tails)]
        if drawing:
            sample(drawing, logits, self._checkpoint)
        self.compute_s += time.perf_counter() - begun
        self._keep(rows, work, layout.tails)
        return self._leave()

    def forget_abandoned(self) -> None:
        """Let go of sequences that came in and whose answer nobody waits for any more."""
        for running in [running for running in self._entering if running.generation.job.abandoned()]:
            self._entering.remove(running)
            self._cache.release(running.path)

    def put_back(self) -> list[Generation]:
        """Give up all sequences, with what they have sampled, to be computed later; their memory is free then."""
        everyone = [*self._rows(), *self._entering]
        for running in everyone:
            self._cache.release(running.path)
        self._shelves.clear()
        self._entering.clear()
        self._held = None
        return [running.generation for running in everyone]

    # ---------------------------------------------------------------------------------------------------- shelves

    def _rows(self) -> list[Running]:
        """All rows, in the order of a pass."""
        return [running for shelf in self._shelves.values() for running in shelf.rows]

    def _reserve(self, tails: list[Running]) -> None:
        """Make room for the rows of sequences that come in."""
        rooms: dict[int, list[int]] = {}
        for running in tails:
            rooms.setdefault(_digits(running), []).append(_room(running))
        for digits, coming in rooms.items():
            shelf = self._shelves.setdefault(digits, _Shelf(RowStore(self._checkpoint.shape)))
            shelf.store.reserve(len(shelf.rows) + len(coming), max(coming))

    # ------------------------------------------------------------------------------------------------- planning

    def _next_work(self, prefill: int) -> _Work:
        """Missing pieces and tails of the sequences that came in, in order, as far as the pass has room."""
        work = _Work()
        for running in self._entering:
            for node in running.path:
                if node.ready or node in work.nodes:
                    continue
                if not work.fits(len(node.ids), prefill):
                    return work
                work.nodes.append(node)
                work.add(running, len(node.ids))
            if not work.fits(len(running.tail), prefill):
                return work
            work.tails.append(running)
            work.add(running, len(running.tail))
        return work

    def _layout(self, rows: list[Running], work: _Work) -> _Layout:
        device = self._checkpoint.device
        ids = [running.generation.tokens[-1] for running in rows]
        positions = [_length(running) - 1 for running in rows]
        segments: list[Segment] = []
        above: list[list[Node]] = []
        """For each segment, all nodes its tokens attend to."""
        for node in work.nodes:
            segments.append(Segment(first=len(ids), length=len(node.ids), kv=self._cache.allocate(node)))
            above.append(_ancestors(node))
            ids.extend(node.ids)
            positions.extend(range(node.start, node.start + len(node.ids)))
        for running in work.tails:
            kv = self._checkpoint.shape.empty(len(running.tail))
            segments.append(Segment(first=len(ids), length=len(running.tail), kv=kv))
            above.append(running.path)
            ids.extend(running.tail)
            positions.extend(range(running.start, running.start + len(running.tail)))
        last = [segment.first + segment.length - 1 for segment in segments[len(work.nodes) :]]
        return _Layout(
            ids=torch.tensor(ids, device=device),
            positions=torch.tensor(positions, device=device),
            keep=torch.tensor([*range(len(rows)), *last], dtype=torch.long, device=device),
            plan=self._plan(rows, segments, above, len(ids)),
            tails=[segment.kv for segment in segments[len(work.nodes) :]],
        )

    def _plan(self, rows: list[Running], segments: list[Segment], above: list[list[Node]], count: int) -> Pass:
        own: list[Rows] = []
        first = 0
        for shelf in self._shelves.values():
            lengths = shelf.store.lengths
            if lengths:
                at = torch.tensor(lengths, device=self._checkpoint.device)
                own.append(Rows(first=first, kv=shelf.store.kv, lengths=at, longest=max(lengths) + 1))
                first += len(lengths)
        if self._held is None or segments:
            runs = [segment.tokens for segment in segments] + [part.tokens for part in own]
            self._held = self._attended(rows, segments, above, runs, count)
        shared, places = self._held
        if segments:
            self._held = None
        return Pass(rows=own, segments=segments, shared=shared, places=places)

    def _attended(
        self, rows: list[Running], segments: list[Segment], above: list[list[Node]], runs: list[slice], count: int
    ) -> tuple[list[Shared], Tensor]:
        """Long pieces with who attends to them, and the places of all parts.

        `runs` are the tokens that attend to keys of their own: of each segment, then of each shelf.
        """
        device = self._checkpoint.device
        tokens: dict[Node, list[int]] = {}
        for number, running in enumerate(rows):
            for node in running.path:
                if len(node.ids) >= LONG:
                    tokens.setdefault(node, []).append(number)
        for segment, nodes in zip(segments, above, strict=True):
            for node in nodes:
                tokens.setdefault(node, []).extend(range(segment.first, segment.first + segment.length))
        shared = [
            Shared(kv=self._cache.allocate(node), tokens=torch.tensor(places, device=device))
            for node, places in tokens.items()
        ]
        every = torch.arange(count, device=device)
        return shared, places_of([part.tokens for part in shared] + [every[tokens] for tokens in runs], count)

    # ------------------------------------------------------------------------------------------- coming and going

    def _keep(self, rows: list[Running], work: _Work, tails: list[Tensor]) -> None:
        """Take over what a pass has computed; takes no memory."""
        for node in work.nodes:
            node.ready = True
        for shelf in self._shelves.values():
            shelf.store.lengths[:] = [length + 1 for length in shelf.store.lengths]
        for running, tail in zip(work.tails, tails, strict=True):
            self._entering.remove(running)
            shelf = self._shelves[_digits(running)]
            shelf.store.add([*map(self._cache.allocate, _short(running)), tail])
            shelf.rows.append(running)
            self._held = None

    def _leave(self) -> list[Generation]:
        done: list[Generation] = []
        for shelf in self._shelves.values():
            for running in [running for running in shelf.rows if running.generation.result is not None]:
                shelf.remove(running)
                self._cache.release(running.path)
                self._held = None
                done.append(running.generation)
        return done


def _ancestors(node: Node) -> list[Node]:
    nodes: list[Node] = []
    while node.parent is not None:
        node = node.parent
        nodes.append(node)
    return nodes[::-1]


def _short(running: Running) -> list[Node]:
    """Those pieces of its prompt that are copied into its row."""
    return [node for node in running.path if len(node.ids) < LONG]


def _begun(running: Running) -> int:
    """Tokens that its row holds at first."""
    return sum(len(node.ids) for node in _short(running)) + len(running.tail)


def _digits(running: Running) -> int:
    """Which shelf its row lies on: rows there differ in length by a factor of two at most when they begin."""
    return max(_begun(running), _SHORTEST).bit_length()


def _room(running: Running) -> int:
    """Tokens that its row will hold at most."""
    return _begun(running) + running.generation.limit - len(running.generation.tokens)


def _length(running: Running) -> int:
    """Tokens of prompt and reply so far."""
    return len(running.generation.job.prompt) + len(running.generation.tokens)
