"""The environment's own outcome as the verifier, and verdicts that are wrong on purpose.

    verifier = NoisyVerifier(verifier=RulesVerifier(), false_positives=0.1, false_negatives=0.0, seed=3)
    verdict = await verifier.verify(case)
    verdict.original        # the verifier's own verdict where it was inverted, else None

The rules are exact where the environment has a checker, and free. `NoisyVerifier` inverts a share of another verifier's
verdicts, to measure what an algorithm loses when episodes are judged wrongly. A missing verdict stays missing. The draw
depends on seed, episode and step alone, so a resumed run, another process and another order draw the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from collab.models.base import count_lost_calls
from collab.rewards.base import label_of
from collab.rewards.verifiers.base import OutcomeVerifier, Sight, Verdict, VerifierInput, build_verdict
from collab.seeds import derive, generator

NOT_OVER = "the environment judges an episode at its end alone"


class RulesVerifier:
    """Takes the environment's outcome; kind `rules`."""

    name = "rules"
    version = "1"
    sees: frozenset[Sight] = frozenset({"state"})

    async def verify(self, case: VerifierInput) -> Verdict:
        """Return the outcome; missing in the middle of an episode."""
        outcome = case.outcome
        if outcome is None:
            return build_verdict(case, self, None, missing=NOT_OVER)
        return build_verdict(case, self, outcome.success, score=outcome.score, reason=outcome.reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisyVerifier:
    """Judges as another verifier does, and inverts a share of its verdicts."""

    verifier: OutcomeVerifier
    """The verifier whose verdicts are inverted."""
    false_positives: float = 0.0
    """Probability that a failure becomes a success."""
    false_negatives: float = 0.0
    """Probability that a success becomes a failure."""
    seed: int = 0
    version: str = field(init=False)
    """The other verifier's, with both shares."""

    def __post_init__(self) -> None:
        version = self.verifier.version + format_suffix(self.false_positives, self.false_negatives)
        object.__setattr__(self, "version", version)

    @property
    def name(self) -> str:
        """The other verifier's."""
        return self.verifier.name

    @property
    def sees(self) -> frozenset[Sight]:
        """Return the kinds of input that the other verifier reads."""
        return self.verifier.sees

    @property
    def lost(self) -> int:
        """Calls without a complete answer; their cost is unknown."""
        return count_lost_calls(self.verifier)

    async def verify(self, case: VerifierInput) -> Verdict:
        """Judge an episode; raises as the other verifier does."""
        found = replace(await self.verifier.verify(case), verifier=label_of(self))
        if found.success is None:
            return found
        share = self.false_negatives if found.success else self.false_positives
        if generator(derive(self.seed, "noisy verdict", found.case, *case.key)).random() >= share:
            return found
        score = None if found.score is None else 1 - found.score
        return replace(found, success=not found.success, original=found.success, score=score)


def format_suffix(false_positives: float, false_negatives: float) -> str:
    """Return what follows a verifier's version where verdicts are inverted: "+fp0.1+fn0.2", or empty."""
    shares = {"fp": false_positives, "fn": false_negatives}
    return "".join(f"+{name}{share:g}" for name, share in shares.items() if share)


def find_asked(verifier: OutcomeVerifier) -> OutcomeVerifier:
    """Return the verifier that is asked: the one behind a `NoisyVerifier`, else itself."""
    return verifier.verifier if isinstance(verifier, NoisyVerifier) else verifier
