"""Write a worse reply to a rewarded cell's own input: the `Adversary` protocol and its four kinds.

    proposal = await adversary.propose(occasion)
    proposal.text, proposal.maker               # a reply as reason and action, and the adversary that wrote it

    SamplerAdversary     draws a plausible wrong action on this very screen (`collab.rewards.mistakes`); asks no model
    LanguageAdversary    asks a language model to play a very clumsy user
    MixtureAdversary     draws one of several by weight for each occasion
    BudgetedAdversary    asks another one until a limit is reached; calls in flight are still kept
    `collab.preferences.proposals.RememberingAdversary` asks once and keeps the answers beside the run.

An adversary is asked only where r = 1, and under the same (o_t, H_{t-1}, C_t^{i,j}, q), including the messages that the
cell heard (CollabUIAgents, eq. 7). Its replies are not trusted: `collab.preferences.negatives` filters them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Protocol, get_args

from collab.agents.agent import compute_prefix_limit
from collab.config import Budget
from collab.errors import ConfigError, RunError, UnknownName
from collab.models.base import Model, count_lost_calls
from collab.prompts.parse import read_reply, strip_thoughts, write_reply
from collab.prompts.render import Templates, read_texts
from collab.rewards.base import CriticInput
from collab.rewards.mistakes import WEIGHTS, DecisionPoint, MistakeKind, draw_mistakes, list_task_words
from collab.rewards.structured_replies import ask, format_reason
from collab.rollout.collector import UsageMeter
from collab.seeds import derive, generator
from collab.types import Action, Prompt, Sampling, Segment, Usage, Utterance
from collab.utils.concurrency import GRACE_S, REQUESTED, Stopped, wait_unless_stopped


@dataclass(frozen=True, slots=True, kw_only=True)
class Occasion:
    """A rewarded cell and its input.

    Raises:
        ValueError: the cell has no action, so nothing could be worse.
    """

    case: CriticInput
    cell: Utterance
    prompt: Prompt
    """The cell's own prompt: system, shared part and the messages it heard, byte for byte."""
    rewarded: frozenset[Action]
    """Canonical actions of all rewarded cells of the step; none of them counts as worse."""
    seed: int
    """For this reply alone."""
    right: Action = field(init=False)
    """The cell's action."""

    def __post_init__(self) -> None:
        if self.cell.action is None:
            raise ValueError(f"{self.case.trajectory}, step {self.case.step}: {self.cell.cell} did not parse")
        object.__setattr__(self, "right", self.cell.action)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdversaryProposal:
    """A reply that is meant to be worse."""

    text: str
    """Reason and action in a policy's form; it may not parse."""
    maker: str
    """Adversary and manner: "sampler-1: other element", "llm-1: gpt-4o-mini"."""
    spent: Usage = Usage()
    """What the model calls behind it cost."""


class CannotPropose(Exception):
    """The adversary can never be asked about this occasion; the message is the cause that is counted."""


class Adversary(Protocol):
    """Writes worse replies."""

    @property
    def name(self) -> str:
        """Its kind, e.g. "sampler"."""

    @property
    def version(self) -> str:
        """Changes whenever the same occasion and options could be answered otherwise."""

    async def propose(self, occasion: Occasion) -> AdversaryProposal | None:
        """Return a worse reply, or None where the adversary finds none. Called for many occasions at once.

        Raises:
            CannotPropose: it can never be asked about this occasion; others are not concerned.
            ModelFailure: no model answered; asking again may help.
        """
        ...


def is_given_rewards(adversary: Adversary) -> bool:
    """Return whether answers depend on the step's other rewards: True unless the adversary has a `is_given_rewards`."""
    return bool(getattr(adversary, "is_given_rewards", True))


def label_of(adversary: Adversary) -> str:
    """Return the adversary's name and version, e.g. "sampler-1"."""
    return f"{adversary.name}-{adversary.version}"


class AdversaryBudgetSpent(RunError):
    """Nothing more may be asked; the message says why."""


@dataclass(slots=True, kw_only=True)
class BudgetedAdversary:
    """Another adversary, asked until the budget is used up."""

    adversary: Adversary
    budget: Budget
    meter: UsageMeter
    """Cost so far; updated by every answer."""
    stop: asyncio.Event
    """Set from outside to end."""
    at_once: int
    """Calls in flight where money or tokens are limited: at most so many are paid beyond the limit."""
    answered: int = 0
    _flying: int = 0
    _idle: asyncio.Event = field(default_factory=asyncio.Event)
    _room: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        self._room = asyncio.Semaphore(self.at_once)

    @property
    def name(self) -> str:
        """The other adversary's."""
        return self.adversary.name

    @property
    def version(self) -> str:
        """The other adversary's."""
        return self.adversary.version

    @property
    def is_given_rewards(self) -> bool:
        """The other adversary's."""
        return is_given_rewards(self.adversary)

    @property
    def lost(self) -> int:
        """Calls that were sent and never answered whole: what they cost is not known."""
        return count_lost_calls(self.adversary)

    async def propose(self, occasion: Occasion) -> AdversaryProposal | None:
        """Return the other adversary's proposal.

        Raises:
            AdversaryBudgetSpent: nothing more may be asked, and no call is in flight any more.
            CannotPropose, ModelFailure: from the other adversary.
        """
        if self.budget.usd is None and self.budget.tokens is None:
            return await self._ask(occasion)
        async with self._room:
            return await self._ask(occasion)

    async def _ask(self, occasion: Occasion) -> AdversaryProposal | None:
        # Checked before each call, as all workers share the budget.
        why = REQUESTED if self.stop.is_set() else self.meter.explain_exceeded(self.budget)
        if why is not None:
            # Answers in flight count against the budget, too, so wait for them before it is reported as spent.
            while self._flying:
                await self._idle.wait()
            raise AdversaryBudgetSpent(why)
        self._flying += 1
        self._idle.clear()
        try:
            asking = self.adversary.propose(occasion)
            # A stop waits a moment for the answer: it is paid for either way.
            proposal = await wait_unless_stopped(asking, self.stop, "an adversary was asked", grace_s=GRACE_S)
        except Stopped:
            raise AdversaryBudgetSpent(REQUESTED) from None
        finally:
            self._flying -= 1
            if not self._flying:
                self._idle.set()
        self.answered += 1
        if proposal is not None:
            self.meter.spent += proposal.spent
        return proposal


_DRAWS = 40
"""Drawn mistakes before the sampler gives up."""


class SamplerAdversary:
    """Draws wrong actions and asks no model, a deviation from eq. 7; a pure function of the occasion.

    The two sides of its pair differ in the action and not in the style: a cell whose reason names its element as the
    screen shows it is answered that way, and any other keeps its own reason.

    Args:
        weights: how often each kind of mistake is tried, by name; unnamed kinds never are. None for
            `collab.rewards.mistakes.WEIGHTS`.

    Raises:
        UnknownName: there is no such kind.
        ConfigError: a weight is negative or no number, or all are 0.
    """

    name = "sampler"
    version = "1"

    def __init__(self, *, weights: Mapping[str, float] | None = None) -> None:
        self._weights: Mapping[MistakeKind, float] = WEIGHTS if weights is None else _check(weights)

    async def propose(self, occasion: Occasion) -> AdversaryProposal | None:
        """Return the first drawn mistake that no rewarded cell of the step made, or None where none is possible."""
        case = occasion.case
        spot = DecisionPoint(
            observation=case.observation, space=case.space, last=case.last, words=list_task_words(case.task.goal)
        )
        drawn = draw_mistakes(occasion.right, spot, generator(occasion.seed), weights=self._weights)
        for mistake in islice(drawn, _DRAWS):
            if mistake.action not in occasion.rewarded:
                text = write_reply(_format_because(occasion, mistake.action), mistake.action, case.space)
                return AdversaryProposal(text=text, maker=f"{label_of(self)}: {mistake.kind}")
        return None


def _format_because(occasion: Occasion, wrong: Action) -> str:
    """Format the mistaken reason in the manner of the cell's own."""
    screen, space = occasion.case.observation, occasion.case.space
    shows = occasion.cell.reason == format_reason(occasion.right, screen, space)
    return format_reason(wrong, screen, space) if shows else occasion.cell.reason


def _check(weights: Mapping[str, float]) -> dict[MistakeKind, float]:
    kinds: tuple[MistakeKind, ...] = get_args(MistakeKind)
    for kind in weights:
        if kind not in kinds:
            raise UnknownName.of("kind of mistake", kind, kinds)
    if not all(0 <= weight < float("inf") for weight in weights.values()) or not any(weights.values()):
        raise ConfigError(f"weights of mistakes: {dict(weights)}; each is a number from 0, and one at least is above 0")
    return {kind: weights[kind] for kind in kinds if weights.get(kind)}


class MixtureAdversary:
    """Draws one of several adversaries; the draw depends on the occasion's seed alone.

    Args:
        parts: adversaries with their weights; 0 leaves one out.

    Raises:
        ConfigError: a weight is negative or no number, or all are 0.
    """

    name = "mixture"

    def __init__(self, parts: Sequence[tuple[Adversary, float]]) -> None:
        weights = [weight for _, weight in parts]
        if not all(0 <= weight < float("inf") for weight in weights) or not any(weights):
            raise ConfigError(
                f"weights of adversaries: {weights}; each is a number from 0, and one at least is above 0"
            )
        self._parts = [(adversary, weight) for adversary, weight in parts if weight]

    @property
    def version(self) -> str:
        """Its parts with their versions."""
        return "+".join(label_of(adversary) for adversary, _ in self._parts)

    @property
    def is_given_rewards(self) -> bool:
        """Return whether one of its parts does."""
        return any(is_given_rewards(adversary) for adversary, _ in self._parts)

    @property
    def lost(self) -> int:
        """Calls that were sent and never answered whole: what they cost is not known."""
        return sum(count_lost_calls(adversary) for adversary, _ in self._parts)

    async def propose(self, occasion: Occasion) -> AdversaryProposal | None:
        """Draw an adversary and return its proposal; CannotPropose and ModelFailure pass through."""
        rng = generator(derive(occasion.seed, "mixture"))
        adversaries, weights = zip(*self._parts, strict=True)
        drawn: Adversary = rng.choices(adversaries, weights=weights)[0]
        return await drawn.propose(occasion)


FOLDER = "adversary"
"""Name of the folder in `prompts/`."""
TOO_LONG = "what the cell read and the role do not fit into the adversary's context"
SAMPLING = Sampling(temperature=0.7, max_tokens=256)
"""Open in the paper; warm, so that mistakes differ. Room for a policy's reply."""
_ROLE = "clumsy"


def read_adversary_prompts(folder: Path) -> dict[str, str]:
    """Return a folder's templates by name; ConfigError when one is missing or cannot be read."""
    return read_texts(folder, (_ROLE,), "an adversary needs", "adversary")


class AdversaryPrompt:
    """The role, ready to be put behind a cell's input.

    Args:
        text: a Jinja template; it may ask for `right` (the right action in words) and `actions` (the list of actions,
            empty where the input already shows it).

    Raises:
        ConfigError: it is no template.
    """

    def __init__(self, text: str) -> None:
        self._templates = Templates(FOLDER, {_ROLE: text}, (_ROLE,))

    @classmethod
    def read(cls, texts: Mapping[str, str]) -> AdversaryPrompt:
        """Return the role of templates from `read_adversary_prompts`; ConfigError where it is missing."""
        if _ROLE not in texts:
            raise ConfigError(f"prompts/{FOLDER}: {_ROLE}.jinja missing")
        return cls(texts[_ROLE])

    def build_prompt(self, occasion: Occasion) -> Prompt:
        """Build the model's prompt; ConfigError when the template uses an undefined name."""
        space, read = occasion.case.space, occasion.prompt
        listing = space.listing()
        role = self._templates.render(
            _ROLE,
            right=space.describe(occasion.right, occasion.case.observation),
            actions="" if listing in read.system else listing,
        )
        return replace(read, segments=(*read.segments, Segment(text="\n\n" + role)))


class LanguageAdversary:
    """Asks a model once per occasion; kind `llm`.

    The model reads the cell's input byte for byte (rules, task, history, screen, messages, header), then the role. So
    it shares the cell's prefix in every cache, and the reply form is the cell's own. The words of the role are ours. It
    is given the right action, so that it does not repeat it by chance. The released code leaves out the cell's input.

    Args:
        model: is not closed.
        texts: templates from `read_adversary_prompts`.
        context_tokens: for prompt, reply and chat template together; longer prompts are not asked.
        call_s: limit of one call in seconds, with retries, without waiting in line.

    Raises:
        ConfigError: the template does not fit, the context leaves no room for a prompt, or the model reads the solution
            instead of the role.
    """

    name = "llm"
    version = "1"
    is_given_rewards = False
    """It reads the cell's input and the cell's action alone."""

    def __init__(
        self,
        *,
        model: Model,
        texts: Mapping[str, str],
        sampling: Sampling = SAMPLING,
        context_tokens: int = 8192,
        call_s: float = 120.0,
    ) -> None:
        if model.privileged:
            raise ConfigError(f"{model.policy.base} looks at solutions; an adversary needs a language model")
        self._room = compute_prefix_limit(context_tokens, messages=0, max_tokens=sampling.max_tokens)
        if self._room < 1:
            raise ConfigError(
                f"adversary llm: context_tokens {context_tokens} leave no room for a prompt beside a reply of "
                f"max_tokens {sampling.max_tokens}; raise the one or lower the other"
            )
        self._model, self._clumsy = model, AdversaryPrompt.read(texts)
        self._sampling, self._call_s = sampling, call_s

    @property
    def lost(self) -> int:
        """Calls that were sent and never answered whole: what they cost is not known."""
        return count_lost_calls(self._model)

    async def propose(self, occasion: Occasion) -> AdversaryProposal:
        """Return the model's reply: in a policy's form where it parses, else unchanged.

        Raises:
            CannotPropose: the prompt leaves no room for a reply.
            ModelFailure: the call failed after its retries or took longer than its limit.
        """
        prompt, sampling = self._clumsy.build_prompt(occasion), self._sampling
        if sum(map(self._model.count_tokens, (prompt.system, prompt.shared, prompt.suffix))) > self._room:
            raise CannotPropose(TOO_LONG)
        who, seed = "the adversary", occasion.seed
        reply = await ask(self._model, prompt, sampling, seed=seed, call_s=self._call_s, who=who)
        text = strip_thoughts(reply.text)
        parsed = read_reply(text, occasion.case.space, occasion.case.observation)
        if parsed.action is not None:
            text = write_reply(parsed.reason, parsed.action, occasion.case.space)
        maker = f"{label_of(self)}: {self._model.policy.base}"
        spent = Usage.of_call(reply.prompt_tokens, reply.completion_tokens, reply.cost_usd)
        return AdversaryProposal(text=text, maker=maker, spent=spent)
