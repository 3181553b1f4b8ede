"""Labels that are wrong on purpose: another critic, of whose rewards a share is inverted.

    critic = FlippedCritic(SolutionCritic(), share=0.1, seed=3)
    judgement = await critic.judge(case)
    judgement.rewards.rewards[0].original         # the critic's own score where it was inverted, else None

It measures what a method loses when credit is assigned wrongly. CollabUIAgents argues (section 3.2) that pairs against
an adversary's reply stay right even then.

An inverted score is 0 where the critic rewards (score above 0.5) and 1 where it does not, so the reward always changes.
A missing score stays missing. Cells of a step with the same action are inverted together: a critic that errs about an
action errs about all cells that propose it. The draw depends on seed, attempt, episode, step and action alone, so a
resumed run and any other process draw the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from collab.models.base import count_lost_calls
from collab.rewards.base import Critic, CriticInput, Judgement, drop_invalid_scores, label_of
from collab.seeds import derive, generator
from collab.store.rewards import CellReward


@dataclass(frozen=True, slots=True, kw_only=True)
class FlippedCritic:
    """Judges as another critic does, and inverts a share of its rewards."""

    critic: Critic
    """The critic whose rewards are inverted."""
    share: float
    """Probability that a reward is inverted, 0 ≤ share < 1."""
    seed: int = 0
    attempt: int = 0
    """Another number draws anew, as `LanguageCritic` answers anew."""
    version: str = field(init=False)
    """The other critic's, with the share."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "version", self.critic.version + format_suffix(self.share))

    @property
    def name(self) -> str:
        """The other critic's."""
        return self.critic.name

    @property
    def lost(self) -> int:
        """Calls without a complete answer; their cost is unknown."""
        return count_lost_calls(self.critic)

    async def judge(self, case: CriticInput) -> Judgement:
        """Judge a step; raises as the other critic does."""
        # Invalid scores go first: an inverted one would look valid.
        found = drop_invalid_scores(await self.critic.judge(case))
        flipped = {action for action in case.group_proposals() if self._is_flipped(case, case.space.format(action))}
        cells = {cell.cell for cell in case.matrix if cell.action in flipped}
        rewards = tuple(invert(one) if one.cell in cells else one for one in found.rewards.rewards)
        matrix = replace(found.rewards, critic=label_of(self), rewards=rewards)
        return replace(found, rewards=matrix)

    def _is_flipped(self, case: CriticInput, action: str) -> bool:
        drawn = generator(derive(self.seed, "flipped label", *case.key, action, self.attempt))
        return bool(drawn.random() < self.share)


def format_suffix(share: float) -> str:
    """Return what follows a critic's version where a share of its labels is inverted: "+flip0.1", or empty."""
    return f"+flip{share:g}" if share else ""


def invert(one: CellReward) -> CellReward:
    """Return a reward with its score inverted: 0 for a score above 0.5, else 1; a missing score stays missing."""
    return one if one.reward is None else replace(one, score=float(1 - one.reward), original=one.score)


def find_asked(critic: Critic) -> Critic:
    """Return the critic that is asked: the one behind a `FlippedCritic`, else itself."""
    return critic.critic if isinstance(critic, FlippedCritic) else critic
