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

from collab.models.attention import Pass, Rows, Segment, Shared
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


@dataclass(slots=True, kw_only=True)
class _Run:
    """What one pass computes of the prompt of a sequence that came in: pieces that follow each other."""

    running: Running
    known: int
    """How many nodes of its path are there already, or are computed for another sequence of the same pass."""
    nodes: list[Node] = field(default_factory=list)
    """Those that are computed now."""
    enters: bool = False
    """Whether its tail is computed, too, so that it becomes a row."""

    @property
    def ids(self) -> list[int]:
        """The tokens that are computed."""
        return [*(token for node in self.nodes for token in node.ids), *(self.running.tail if self.enters else ())]

    @property
    def start(self) -> int:
        """Position of the first of them."""
        return self.nodes[0].start if self.nodes else self.running.start

    @property
    def above(self) -> list[Node]:
        """What they attend to beside themselves."""
        return self.running.path[: self.known]


@dataclass(slots=True)
class _Work:
    """What one pass computes beside the next token of each row."""

    runs: list[_Run] = field(default_factory=list)
    coming: set[Node] = field(default_factory=set)
    """All nodes that are computed."""
    tokens: int = 0

    def fits(self, tokens: int, most: int) -> bool:
        """Whether so many more can be computed; a single piece may be larger than the pass."""
        return not self.tokens or self.tokens + tokens <= most

    @property
    def entering(self) -> list[Running]:
        """Whose tails are computed, in their order."""
        return [run.running for run in self.runs if run.enters]


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
        self._held: list[Shared] | None = None
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
        work = self._next_work(prefill)
        self.computed = work.tokens
        rows = self._rows()
        self._checkpoint.use(self.adapter)
        self._reserve(work.entering)
        layout = self._layout(rows, work)
        begun = time.perf_counter()
        logits = self._checkpoint.forward(layout.ids, layout.positions, layout.keep, layout.plan)
        for run in work.runs:
            run.running.generation.computed_tokens += len(run.ids)
        drawing = [running.generation for running in (*rows, *work.entering)]
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
            missing = [node for node in running.path if not node.ready and node not in work.coming]
            run = _Run(running=running, known=len(running.path) - len(missing))
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
            if not run.enters:
                break
        return work

    def _layout(self, rows: list[Running], work: _Work) -> _Layout:
        device = self._checkpoint.device
        ids = [running.generation.tokens[-1] for running in rows]
        positions = [_length(running) - 1 for running in rows]
        segments: list[Segment] = []
        tails: list[Tensor] = []
        last: list[int] = []
        for run in work.runs:
            kept = [self._cache.allocate(node) for node in run.nodes]
            if run.enters:
                tails.append(self._checkpoint.shape.empty(len(run.running.tail)))
                kept.append(tails[-1])
            above = [self._cache.allocate(node) for node in run.above if len(node.ids) < LONG]
            segments.append(Segment(first=len(ids), kept=kept, above=above))
            new = run.ids
            positions.extend(range(run.start, run.start + len(new)))
            ids.extend(new)
            if run.enters:
                last.append(len(ids) - 1)
        return _Layout(
            ids=torch.tensor(ids, device=device),
            positions=torch.tensor(positions, device=device),
            keep=torch.tensor([*range(len(rows)), *last], dtype=torch.long, device=device),
            plan=Pass(rows=self._own(), segments=segments, shared=self._shared(rows, work, segments)),
            tails=tails,
        )

    def _own(self) -> list[Rows]:
        """What the rows hold themselves, shelf by shelf."""
        own: list[Rows] = []
        first = 0
        for shelf in self._shelves.values():
            lengths = shelf.store.lengths
            if lengths:
                at = torch.tensor(lengths, device=self._checkpoint.device)
                own.append(Rows(first=first, kv=shelf.store.kv, lengths=at, longest=max(lengths) + 1))
                first += len(lengths)
        return own

    def _shared(self, rows: list[Running], work: _Work, segments: list[Segment]) -> list[Shared]:
        """Long pieces, with who attends to them."""
        if self._held is not None and not segments:
            return self._held
        tokens: dict[Node, list[int]] = {}
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
            Shared(kv=self._cache.allocate(node), tokens=torch.tensor(places, device=device))
            for node, places in tokens.items()
        ]
        self._held = None if segments else shared
        return shared

    # ------------------------------------------------------------------------------------------- coming and going

    def _keep(self, rows: list[Running], work: _Work, tails: list[Tensor]) -> None:
        """Take over what a pass has computed; takes no memory."""
        for node in work.coming:
            node.ready = True
        for shelf in self._shelves.values():
            shelf.store.lengths[:] = [length + 1 for length in shelf.store.lengths]
        for running, tail in zip(work.entering, tails, strict=True):
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
