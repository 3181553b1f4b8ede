"""The seam to whoever says something worse: `Adversary` answers a rewarded cell's own input badly.

    proposal = await adversary.propose(occasion)
    proposal.text, proposal.maker               # a reply in reason + action form, and who made it how

    sampler    a plausible wrong action on this very screen             collab.credit.adversary_sampler
    llm        a language model that plays somebody very clumsy         collab.credit.adversary_language
    mixture    one of several, by weight                                collab.credit.adversary_mixture
    any        asked once, its answers kept beside the run              collab.credit.adversary_memory

Only where r = 1, and under the same (o_t, H_{t-1}, C_t^{i,j}, q) (CollabUIAgents, eq. 7): the messages that the cell
heard are part of it. What an adversary says is not trusted; `collab.credit.lint` looks at it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from collab.credit.case import Case
from collab.types import FREE, Action, Prompt, Spent, Utterance


@dataclass(frozen=True, slots=True, kw_only=True)
class Occasion:
    """A rewarded cell, and what it read.

    Raises:
        ValueError: the cell has no action, so nothing could be worse.
    """

    case: Case
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
class Proposal:
    """A reply that is meant to be worse."""

    text: str
    """Reason and action, as a policy would say them; whether it can be read is not promised."""
    maker: str
    """Which adversary said it, and how: "sampler-1: other element", "llm-1: gpt-4o-mini"."""
    spent: Spent = FREE
    """What the model calls behind it cost."""


class Refusal(Exception):
    """An adversary that cannot be asked about an occasion, ever; the message is the cause that is counted."""


class Adversary(Protocol):
    """Says something worse."""

    @property
    def name(self) -> str:
        """Which adversary, e.g. "sampler"."""

    @property
    def version(self) -> str:
        """Changes whenever the same occasion and options could be answered otherwise."""

    async def propose(self, occasion: Occasion) -> Proposal | None:
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
