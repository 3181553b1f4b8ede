"""Asking within limits: when they are reached, what is in flight is still kept, and then work stops.

The seam to whoever says something worse: `Adversary` answers a rewarded cell's own input badly.

    proposal = await adversary.propose(occasion)
    proposal.text, proposal.maker               # a reply in reason + action form, and who made it how

    sampler    a plausible wrong action on this very screen             collab.preferences.adversary
    llm        a language model that plays somebody very clumsy         collab.preferences.adversary
    mixture    one of several, by weight                                collab.preferences.adversary
    any        asked once, its answers kept beside the run              collab.preferences.replies

Only where r = 1, and under the same (o_t, H_{t-1}, C_t^{i,j}, q) (CollabUIAgents, eq. 7): the messages that the cell
heard are part of it. What an adversary says is not trusted; `collab.preferences.negatives` looks at it.

The sampling adversary behind the seam: a plausible wrong action, in the manner in which the cell speaks.

    adversary = SamplerAdversary(weights={"other element": 3, "premature end": 1})
    proposal = await adversary.propose(occasion)

What can be drawn, and how plausible it is, is told in `collab.rewards.perturb`. Deviation from CollabUIAgents (eq. 7):
no model is asked. So that the two sides of a pair differ in what they do and not in how they talk, a cell that names
its element as the screen shows it is answered that way, and any other keeps its own reason.

Several adversaries, one drawn by weight for each occasion.

adversary = MixtureAdversary([(SamplerAdversary(), 3), (LanguageAdversary(model=model, texts=texts), 1)])

A language model as adversary: it plays somebody very clumsy, under the rewarded cell's own input.

    texts = read_adversary_prompts(library.path("prompts", "adversary"))
    adversary = LanguageAdversary(model=model, texts=texts)

It reads what the cell read, byte for byte (rules, task, history, screen, messages, header), then the role. So it shares
the cell's prefix in every cache, and the reply form is the cell's own. Deviations from CollabUIAgents (eq. 7): the
words of the role are ours; the right action is told, so that it is not repeated by chance; the released code leaves
out what the cell read.
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
from collab.prompts.parse import read_reply, write_reply
from collab.prompts.render import Templates, read_texts
from collab.rewards.base import CriticInput
from collab.rewards.perturb import WEIGHTS, DecisionPoint, MistakeKind, draw_mistakes, list_task_words
from collab.rewards.query import ask, format_reason, strip_thoughts
from collab.rollout.collector import UsageMeter
from collab.seeds import derive, generator
from collab.types import Action, Prompt, Sampling, Segment, Usage, Utterance
from collab.utils.concurrency import GRACE_S, REQUESTED, Stopped, wait_unless_stopped


@dataclass(frozen=True, slots=True, kw_only=True)
class Occasion:
    """A rewarded cell, and what it read.

    Raises:
        ValueError: the cell has no action, so nothing could be worse.
    """

    case: CriticInput
    cell: Utterance
    prompt: Prompt
    """What the cell answered: system, shared part and the messages it heard, byte for byte."""
    rewarded: frozenset[Action]
    """Canonical actions of all rewarded cells of the step: none of them is worse."""
    seed: int
    """Of this reply alone."""
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
    """Reason and action, as a policy would say them; whether it can be read is not promised."""
    maker: str
    """Which adversary said it, and how: "sampler-1: other element", "llm-1: gpt-4o-mini"."""
    spent: Usage = Usage()
    """What the model calls behind it cost."""


class CannotPropose(Exception):
    """An adversary that cannot be asked about an occasion, ever; the message is the cause that is counted."""


class Adversary(Protocol):
    """Says something worse."""

    @property
    def name(self) -> str:
        """Which adversary, e.g. "sampler"."""

    @property
    def version(self) -> str:
        """Changes whenever the same occasion and options could be answered otherwise."""

    async def propose(self, occasion: Occasion) -> AdversaryProposal | None:
        """Answer badly; None where it knows nothing worse. Called for many occasions at once.

        Raises:
            Refusal: it cannot be asked about this one; others are not concerned.
            ModelFailure: nobody answered, and asking again may help.
        """
        ...


def reads_rewarded(adversary: Adversary) -> bool:
    """Whether answers depend on what else of a step was rewarded; unless an adversary says otherwise, they do."""
    return bool(getattr(adversary, "reads_rewarded", True))


def label_of(adversary: Adversary) -> str:
    """Who it is, with its version, e.g. "sampler-1"."""
    return f"{adversary.name}-{adversary.version}"


class AdversaryBudgetSpent(RunError):
    """Nothing more may be asked; says why."""


@dataclass(slots=True, kw_only=True)
class BudgetedAdversary:
    """Another adversary, asked as long as there is room."""

    adversary: Adversary
    budget: Budget
    meter: UsageMeter
    """What was spent so far; counts on."""
    stop: asyncio.Event
    """Set from outside to end."""
    at_once: int
    """Calls in flight together where money or tokens are limited: so many are paid beyond a limit at most."""
    answered: int = 0
    _flying: int = 0
    _idle: asyncio.Event = field(default_factory=asyncio.Event)
    _room: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        self._room = asyncio.Semaphore(self.at_once)

    @property
    def name(self) -> str:
        """Of the one that is asked."""
        return self.adversary.name

    @property
    def version(self) -> str:
        """Of the one that is asked."""
        return self.adversary.version

    @property
    def reads_rewarded(self) -> bool:
        """Of the one that is asked."""
        return reads_rewarded(self.adversary)

    @property
    def lost(self) -> int:
        """Calls that were sent and never answered whole: what they cost is not known."""
        return count_lost_calls(self.adversary)

    async def propose(self, occasion: Occasion) -> AdversaryProposal | None:
        """What the other says.

        Raises:
            Exhausted: nothing more may be asked, and nobody is being asked any more.
            Refusal, ModelFailure: as the other raises them.
        """
        if self.budget.usd is None and self.budget.tokens is None:
            return await self._ask(occasion)
        async with self._room:
            return await self._ask(occasion)

    async def _ask(self, occasion: Occasion) -> AdversaryProposal | None:
        # Looked at before each call, as the budget is shared by all workers.
        why = REQUESTED if self.stop.is_set() else self.meter.explain_exceeded(self.budget)
        if why is not None:
            # Answers on their way count against the budget, too, so they are waited for before it is called spent.
            while self._flying:
                await self._idle.wait()
            raise AdversaryBudgetSpent(why)
        self._flying += 1
        self._idle.clear()
        try:
            asking = self.adversary.propose(occasion)
            # A stop leaves a question a moment: its answer may come, and is paid for either way.
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
"""Mistakes that are looked at before it gives up."""


class SamplerAdversary:
    """Draws wrong actions; a pure function of the occasion.

    Args:
        weights: how often each kind of mistake is tried, by name; one that is not named never is. None for
            `collab.rewards.perturb.WEIGHTS`.

    Raises:
        UnknownName: there is no such kind.
        ConfigError: a weight is negative or no number, or all are 0.
    """

    name = "sampler"
    version = "1"

    def __init__(self, *, weights: Mapping[str, float] | None = None) -> None:
        self._weights: Mapping[MistakeKind, float] = WEIGHTS if weights is None else _check(weights)

    async def propose(self, occasion: Occasion) -> AdversaryProposal | None:
        """The first drawn mistake that no rewarded cell of the step made; None where none is possible."""
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
    """The mistaken reason, in the manner of the cell's own."""
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
    """Lets one of several answer; which one depends on the occasion's seed alone.

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
    def reads_rewarded(self) -> bool:
        """Whether one of its parts does."""
        return any(reads_rewarded(adversary) for adversary, _ in self._parts)

    @property
    def lost(self) -> int:
        """Calls that were sent and never answered whole: what they cost is not known."""
        return sum(count_lost_calls(adversary) for adversary, _ in self._parts)

    async def propose(self, occasion: Occasion) -> AdversaryProposal | None:
        """What the drawn one says; Refusal and ModelFailure as that one raises them."""
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
    """The texts of a folder by template name; ConfigError when one is missing or cannot be read."""
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

    def build_prompt(self, occasion: Occasion) -> Prompt:
        """What the model is asked; ConfigError when the template asks for something that nobody tells it."""
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

    Args:
        model: is not closed.
        texts: templates, see `read_adversary_prompts`.
        context_tokens: of prompt, reply and a chat's frame together; what does not fit is not asked.
        call_s: limit of one call in seconds, retries included and waiting in line not.

    Raises:
        ConfigError: the template does not fit, the context leaves no room for a prompt, or the model looks at solutions
            and would play nobody.
    """

    name = "llm"
    version = "1"
    reads_rewarded = False
    """It reads what the cell read, and what the cell said."""

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
        if _ROLE not in texts:
            raise ConfigError(f"prompts/{FOLDER}: {_ROLE}.jinja missing")
        self._room = compute_prefix_limit(context_tokens, messages=0, max_tokens=sampling.max_tokens)
        if self._room < 1:
            raise ConfigError(
                f"adversary llm: context_tokens {context_tokens} leave no room for a prompt beside a reply of "
                f"max_tokens {sampling.max_tokens}; raise the one or lower the other"
            )
        self._model, self._clumsy = model, AdversaryPrompt(texts[_ROLE])
        self._sampling, self._call_s = sampling, call_s

    @property
    def lost(self) -> int:
        """Calls that were sent and never answered whole: what they cost is not known."""
        return count_lost_calls(self._model)

    async def propose(self, occasion: Occasion) -> AdversaryProposal:
        """Its reply, written as policies do where it can be read, and as it came where it cannot.

        Raises:
            Refusal: the prompt leaves no room for a reply.
            ModelFailure: the call failed after its retries or took longer than its limit.
        """
        prompt, sampling = self._clumsy.build_prompt(occasion), self._sampling
        if sum(map(self._model.count_tokens, (prompt.system, prompt.shared, prompt.suffix))) > self._room:
            raise CannotPropose(TOO_LONG)
        who, seed = "the adversary", occasion.seed
        reply = await ask(self._model, prompt, sampling, seed=seed, call_s=self._call_s, who=who)
        text = strip_thoughts(reply.text).strip()
        parsed = read_reply(text, occasion.case.space, occasion.case.observation)
        if parsed.action is not None:
            text = write_reply(parsed.reason, parsed.action, occasion.case.space)
        maker = f"{label_of(self)}: {self._model.policy.base}"
        spent = Usage.of_call(reply.prompt_tokens, reply.completion_tokens, reply.cost_usd)
        return AdversaryProposal(text=text, maker=maker, spent=spent)
