"""Answer one prompt token by token, for both engines, and draw tokens by temperature and top-p.

A row's draw depends on its logits, settings and random number alone (inverse of the cumulative distribution), so other
rows of the batch cannot change it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from collab.errors import ModelFailure
from collab.models.checkpoint import Checkpoint
from collab.models.tokenizer import ChatTokenizer, PromptIds
from collab.models.vision import Picture
from collab.types import Sampling


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DecodeRequest:
    """One prompt to answer."""

    prompt: PromptIds
    sampling: Sampling
    seed: int
    pictures: tuple[Picture, ...] = ()
    """In the order of the prompt."""
    adapter: str | None = None
    """The adapter that answers; None for the base weights."""
    abandoned: Callable[[], bool] = lambda: False
    """Whether the caller has left; the engine's thread calls it after every token."""
    started: Callable[[], None] = lambda: None
    """The engine's thread calls it when the job leaves the queue; again after each `put_back`."""
    put_back: Callable[[], None] = lambda: None
    """The engine's thread calls it when the job returns to the queue because memory ran out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledReply:
    """Tokens and text sampled for one job."""

    text: str
    finish: str
    """"stop" or "length"."""
    prompt_tokens: int
    computed_tokens: int
    """Tokens computed for this job before sampling: uncached prompt tokens, and those recomputed after memory ran
    out."""
    sampled: int
    """Number of sampled tokens, the end of the turn included."""
    tokens: tuple[int, ...]
    """Without the end of the turn and without a stop string."""
    logprobs: tuple[float, ...]
    behaviour_logprobs: tuple[float, ...]
    end_token: int | None
    """The end of the turn; None, as the next two, when none was sampled: a cut reply, a stop string."""
    end_logprob: float | None
    end_behaviour_logprob: float | None
    queue_s: float
    """From submission to the first start."""
    work_s: float
    """From the start to the last token."""
    width: float
    """Sequences computed together, averaged over the sampled tokens."""


@dataclass(slots=True, eq=False)
class Generation:
    """A job in progress."""

    job: DecodeRequest
    chat: ChatTokenizer
    ends: frozenset[int]
    """Ids that end a reply."""
    limit: int
    """Most tokens that may be sampled."""
    rng: random.Random
    uniform: float = field(init=False)
    """Random number in [0, 1) for the next token; unchanged until that token is taken."""
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    behaviour: list[float] = field(default_factory=list)
    computed_tokens: int = 0
    widths: int = 0
    """Sum of batch widths over the sampled tokens."""
    submitted_at: float = field(default_factory=time.perf_counter)
    started_at: float | None = None
    """None while it waits."""
    result: SampledReply | ModelFailure | None = None
    """None while in progress."""

    def __post_init__(self) -> None:
        self.uniform = self.rng.random()

    @classmethod
    def of(cls, job: DecodeRequest, chat: ChatTokenizer, ends: frozenset[int], context: int) -> Generation:
        """Build the generation of a job; it has already failed if the prompt leaves no room in `context` tokens."""
        room = context - len(job.prompt)
        limit = min(job.sampling.max_tokens, room)
        # `random.Random`, not torch's generator: a reply depends on its own seed alone, on every device.
        new = cls(job=job, chat=chat, ends=ends, limit=limit, rng=random.Random(job.seed))
        if room < 1:
            seen = sum(picture.tokens for picture in job.pictures)
            told, advice = (f" ({seen} of pictures)", "make pictures smaller, or ") if seen else ("", "")
            new.result = ModelFailure(
                f"{chat.path}: the prompt has {len(job.prompt)} tokens{told}, the model's context is {context}; "
                f"{advice}lower context_tokens in the agents file"
            )
        elif not len(job.prompt):
            new.result = ModelFailure(f"{chat.path}: the prompt is empty")
        return new

    def start(self) -> None:
        """Note that the job left the queue."""
        if self.started_at is None:
            self.started_at = time.perf_counter()
        self.job.started()

    def restart(self) -> None:
        """Restart with the same draws, so that a reply does not depend on how often memory ran out."""
        self.rng = random.Random(self.job.seed)
        self.uniform = self.rng.random()
        self.widths = 0
        for sampled in (self.tokens, self.logprobs, self.behaviour):
            sampled.clear()

    def fail_for_memory(self, device: str) -> None:
        """Fail the job: even alone it does not fit into the memory of `device`."""
        self.result = ModelFailure(
            f"{self.chat.path}: a prompt of {len(self.job.prompt)} tokens alone does not fit into the memory of "
            f"{device}; lower context_tokens, or use a smaller dtype"
        )

    def take(self, token: int, logprob: float, behaviour: float, width: int) -> None:
        """Append a sampled token, which may be the last."""
        # The next number is drawn only now: a pass that ran out of memory repeats the same draw.
        self.uniform = self.rng.random()
        self.widths += width
        # The end of the turn counts as sampled but is not part of the reply's text.
        if token in self.ends:
            self._finish("stop", sampled=len(self.tokens) + 1, end=(token, logprob, behaviour))
            return
        self.tokens.append(token)
        self.logprobs.append(logprob)
        self.behaviour.append(behaviour)
        if self.job.sampling.stop and self._stop_at_string():
            return
        if len(self.tokens) >= self.limit or self.job.abandoned():
            # An abandoned reply ends as if too long; its text is not read.
            self._finish("length", sampled=len(self.tokens))

    def _stop_at_string(self) -> bool:
        """Stop if the text contains a stop string; cut text and tokens before it."""
        # Decode the whole text: a stop string may begin within a token.
        text = self.chat.decode(self.tokens)
        places = [place for place in (text.find(stop) for stop in self.job.sampling.stop) if place >= 0]
        if not places:
            return False
        # A token that holds some of the kept text stays.
        cut, sampled = text[: min(places)], len(self.tokens)
        while self.tokens and len(self.chat.decode(self.tokens[:-1])) >= len(cut):
            self.tokens.pop()
        self._finish("stop", sampled=sampled, text=cut)
        return True

    def _finish(
        self, finish: str, sampled: int, text: str | None = None, end: tuple[int, float, float] | None = None
    ) -> None:
        kept, now = len(self.tokens), time.perf_counter()
        end_token, end_logprob, end_behaviour = end or (None, None, None)
        started = now if self.started_at is None else self.started_at
        self.result = SampledReply(
            text=self.chat.decode(self.tokens) if text is None else text,
            finish=finish,
            prompt_tokens=len(self.job.prompt),
            computed_tokens=self.computed_tokens,
            sampled=sampled,
            tokens=tuple(self.tokens),
            logprobs=tuple(self.logprobs[:kept]),
            behaviour_logprobs=tuple(self.behaviour[:kept]),
            end_token=end_token,
            end_logprob=end_logprob,
            end_behaviour_logprob=end_behaviour,
            queue_s=started - self.submitted_at,
            work_s=now - started,
            width=self.widths / sampled,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """One token per row; every tensor has shape (rows,)."""

    tokens: Tensor
    logprobs: Tensor
    """Under the plain policy (temperature 1, no top-p), in nats."""
    behaviour: Tensor
    """Under the distribution drawn from; 0 when greedy."""


def sample(drawing: list[Generation], logits: Tensor, checkpoint: Checkpoint) -> Tensor:
    """Draw one token for each generation and append it.

    Memory is allocated before anything is appended.

    Args:
        drawing: n generations.
        logits: (n, vocabulary).
        checkpoint: for messages.

    Returns:
        The tokens, (n,).
    """
    # (n,); checked before drawing: a NaN in one row must fail one reply, not the batch.
    broken = (~logits.isfinite().all(-1)).tolist()
    samplings = [generation.job.sampling for generation in drawing]
    device = logits.device
    drawn = draw(
        # Zeros in place of NaN keep the row drawable; its draw is discarded below.
        logits.nan_to_num(0.0),
        temperature=torch.tensor([sampling.temperature for sampling in samplings], device=device),
        top_p=torch.tensor([sampling.top_p for sampling in samplings], dtype=torch.float64, device=device),
        # float64: in float32, the sum over a large vocabulary would miss the last tokens.
        uniforms=torch.tensor([generation.uniform for generation in drawing], dtype=torch.float64, device=device),
    )
    # One transfer from the device for all rows.
    values = zip(drawn.tokens.tolist(), drawn.logprobs.tolist(), drawn.behaviour.tolist(), strict=True)
    for generation, bad, (token, logprob, behaviour) in zip(drawing, broken, values, strict=True):
        if bad:
            generation.result = ModelFailure(
                f"{checkpoint.chat.path}: the model computed NaN or infinite logits after {len(generation.tokens)} "
                f"tokens ({checkpoint.dtype} on {checkpoint.device}); try dtype: float32, or check the weights"
            )
        else:
            generation.take(token, logprob, behaviour, width=len(drawing))
    return drawn.tokens


def draw(logits: Tensor, temperature: Tensor, top_p: Tensor, uniforms: Tensor) -> Drawn:
    """Draw a token for each row.

    Args:
        logits: (rows, vocabulary), finite.
        temperature: (rows,); 0 takes the most probable token.
        top_p: (rows,), in (0, 1]; draws from the smallest set of most probable tokens that reaches it.
        uniforms: (rows,), float64, in [0, 1).
    """
    plain = logits.float().log_softmax(-1)  # (rows, vocabulary), log p of the plain policy
    greedy = temperature == 0  # (rows,)
    tokens = plain.argmax(-1)
    behaviour = torch.zeros_like(tokens, dtype=torch.float32)
    # Rows without top-p skip sorting the vocabulary, which costs more than drawing.
    for rows, pick in ((~greedy & (top_p >= 1), _draw_any), (~greedy & (top_p < 1), _draw_nucleus)):
        if rows.any():
            below = plain[rows] - plain[rows].amax(-1, keepdim=True)  # at most 0, so no temperature overflows
            # (picked rows, vocabulary): p_T ∝ p^(1/T)
            bent = (below / temperature[rows, None]).softmax(-1, dtype=torch.float64)
            tokens[rows], chosen = pick(bent, top_p[rows], uniforms[rows])
            behaviour[rows] = chosen.log().float()
    return Drawn(tokens=tokens, logprobs=plain.gather(-1, tokens[:, None])[:, 0], behaviour=behaviour)


def _draw_any(probabilities: Tensor, top_p: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
    """Draw from the whole vocabulary."""
    tokens = _invert_cumulative(probabilities, uniforms)
    return tokens, probabilities.gather(-1, tokens[:, None])[:, 0]


def _draw_nucleus(probabilities: Tensor, top_p: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
    """Draw from the smallest set of most probable tokens whose mass reaches top-p."""
    sorted_, order = probabilities.sort(dim=-1, descending=True, stable=True)  # (rows, vocabulary), most probable first
    # Keep tokens while the mass before them is below top-p: the smallest set that reaches it.
    kept = sorted_.masked_fill(sorted_.cumsum(-1) - sorted_ >= top_p[:, None], 0.0)
    # Always keep the first: rounding must not leave an empty set.
    kept[:, 0] = sorted_[:, 0]
    position = _invert_cumulative(kept, uniforms)
    chosen = kept.gather(-1, position[:, None])[:, 0] / kept.sum(-1)
    return order.gather(-1, position[:, None])[:, 0], chosen


def _invert_cumulative(weights: Tensor, uniforms: Tensor) -> Tensor:
    """Return the first position whose cumulative weight exceeds uniform · total."""
    cumulative = weights.cumsum(-1)  # (rows, vocabulary)
    # uniform · total, as the last cumulative weight need not be exactly 1.
    total = cumulative[:, -1:].contiguous()
    position = torch.searchsorted(cumulative, uniforms[:, None] * total, right=True)
    last = torch.searchsorted(cumulative, total)  # rounding must not pass the last weight
    return torch.minimum(position, last)[:, 0]
