"""Several adversaries, one drawn by weight for each occasion.

adversary = MixtureAdversary([(SamplerAdversary(), 3), (LanguageAdversary(model=model, texts=texts), 1)])
"""

from __future__ import annotations

from collections.abc import Sequence

from collab.credit.adversary import Adversary, Occasion, Proposal, label_of, reads_rewarded
from collab.errors import ConfigError
from collab.models.meter import lost_by
from collab.seeds import derive, generator


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
        return sum(lost_by(adversary) for adversary, _ in self._parts)

    async def propose(self, occasion: Occasion) -> Proposal | None:
        """What the drawn one says; Refusal and ModelFailure as that one raises them."""
        rng = generator(derive(occasion.seed, "mixture"))
        adversaries, weights = zip(*self._parts, strict=True)
        drawn: Adversary = rng.choices(adversaries, weights=weights)[0]
        return await drawn.propose(occasion)
