"""One prompt being answered, token by token, whichever engine computes the tokens."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from collab.errors import ModelFailure
from collab.models.chat import ChatTokenizer, PromptIds
from collab.models.vision import Picture
from collab.types import Sampling


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Job:
    """One prompt to answer."""

    prompt: PromptIds
    sampling: Sampling
    seed: int
    pictures: tuple[Picture, ...] = ()
    """In the order in which the prompt shows them."""
    adapter: str | None = None
    """Which of the engine's adapters answers; None for the base weights."""
    abandoned: Callable[[], bool] = lambda: False
    """Whether nobody waits for the answer any more; asked after every token, from the engine's thread."""
    started: Callable[[], None] = lambda: None
    """Called from the engine's thread whenever the job leaves the line; more than once only if it was put back."""
    put_back: Callable[[], None] = lambda: None
    """Called from the engine's thread whenever the job has to go back to the line: memory has run out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What was sampled for one job."""

    text: str
    finish: str
    """"stop" or "length"."""
    prompt_tokens: int
    computed_tokens: int
    """Tokens that were computed for this job before it was sampled on: prompt tokens that were not there already, and
    those that were computed again after memory ran out."""
    sampled: int
    """How many tokens were sampled, the end of the turn included."""
    tokens: tuple[int, ...]
    """Without the end of the turn, and without what spells a stop string."""
    logprobs: tuple[float, ...]
    behaviour_logprobs: tuple[float, ...]
    queue_s: float
    """From being submitted to being taken up for the first time."""
    work_s: float
    """From being taken up to the last token."""
    width: float
    """How many sequences were computed together, on average over the sampled tokens."""


@dataclass(slots=True, eq=False)
class Generation:
    """A job while it is being answered."""

    job: Job
    chat: ChatTokenizer
    ends: frozenset[int]
    """Ids that end a reply."""
    limit: int
    """Tokens that may be sampled."""
    rng: random.Random
    uniform: float = field(init=False)
    """In [0, 1), what the next token is drawn with; the same one until that token is taken."""
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    behaviour: list[float] = field(default_factory=list)
    computed_tokens: int = 0
    widths: int = 0
    """Sum of the batch widths over the sampled tokens."""
    submitted_at: float = field(default_factory=time.perf_counter)
    started_at: float | None = None
    """None while it waits."""
    result: Answer | ModelFailure | None = None
    """None while it goes on."""

    def __post_init__(self) -> None:
        self.uniform = self.rng.random()

    @classmethod
    def of(cls, job: Job, chat: ChatTokenizer, ends: frozenset[int], context: int) -> Generation:
        """A job that begins; one whose prompt leaves no room in `context` tokens has failed already."""
        room = context - len(job.prompt)
        limit = min(job.sampling.max_tokens, room)
        new = cls(job=job, chat=chat, ends=ends, limit=limit, rng=random.Random(job.seed))
        if room < 1:
            new.result = ModelFailure(
                f"{chat.path}: the prompt has {len(job.prompt)} tokens, the model's context is {context}; "
                "lower context_tokens in the agents file"
            )
        elif not len(job.prompt):
            new.result = ModelFailure(f"{chat.path}: the prompt is empty")
        return new

    def start(self) -> None:
        """Note that it left the line."""
        if self.started_at is None:
            self.started_at = time.perf_counter()
        self.job.started()

    def restart(self) -> None:
        """Begin anew: the seed draws as it did the first time."""
        self.rng = random.Random(self.job.seed)
        self.uniform = self.rng.random()
        self.widths = 0
        for sampled in (self.tokens, self.logprobs, self.behaviour):
            sampled.clear()

    def too_big(self, device: str) -> None:
        """It has failed: even alone it does not fit into the memory of `device`."""
        self.result = ModelFailure(
            f"{self.chat.path}: a prompt of {len(self.job.prompt)} tokens alone does not fit into the memory of "
            f"{device}; lower context_tokens, or use a smaller dtype"
        )

    def take(self, token: int, logprob: float, behaviour: float, width: int) -> None:
        """Note the next sampled token; it may be the last."""
        self.uniform = self.rng.random()
        self.widths += width
        if token in self.ends:
            self._finish("stop", sampled=len(self.tokens) + 1)
            return
        self.tokens.append(token)
        self.logprobs.append(logprob)
        self.behaviour.append(behaviour)
        if self.job.sampling.stop and self._stopped():
            return
        if len(self.tokens) >= self.limit or self.job.abandoned():
            self._finish("length", sampled=len(self.tokens))

    def _stopped(self) -> bool:
        """End when the text contains a stop string.

        The text ends before it; the tokens end with the last one that spells some of that text.
        """
        text = self.chat.decode(self.tokens)
        places = [place for place in (text.find(stop) for stop in self.job.sampling.stop) if place >= 0]
        if not places:
            return False
        cut, sampled = text[: min(places)], len(self.tokens)
        while self.tokens and len(self.chat.decode(self.tokens[:-1])) >= len(cut):
            self.tokens.pop()
        self._finish("stop", sampled=sampled, text=cut)
        return True

    def _finish(self, finish: str, sampled: int, text: str | None = None) -> None:
        kept, now = len(self.tokens), time.perf_counter()
        started = now if self.started_at is None else self.started_at
        self.result = Answer(
            text=self.chat.decode(self.tokens) if text is None else text,
            finish=finish,
            prompt_tokens=len(self.job.prompt),
            computed_tokens=self.computed_tokens,
            sampled=sampled,
            tokens=tuple(self.tokens),
            logprobs=tuple(self.logprobs[:kept]),
            behaviour_logprobs=tuple(self.behaviour[:kept]),
            queue_s=started - self.submitted_at,
            work_s=now - started,
            width=self.widths / sampled,
        )
