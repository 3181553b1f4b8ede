"""What is asked for, and what it comes to: whatever is not said is as it was for the pairs that are compared with."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from collab.config import Budget
from collab.credit.labels import labellings
from collab.credit.pair_store import StoredPairs, check_name, last_name, pair_names, read_head, read_pairs
from collab.credit.pairing import Recipe
from collab.credit.pairs import Sources
from collab.errors import ConfigError, UsageError
from collab.library import Library
from collab.preferences.adversaries import (
    SAMPLER,
    AdversaryChoice,
    adversary_named,
    adversary_of,
    deciding,
)
from collab.preferences.parties import CriticChoice, critic_named, labelled

NO_CAP = 0
"""Said for a cap: as many pairs of a state as there are."""
ORACLE = "oracle"

_SOURCES = {
    "adversary": Sources(adversary=1, contrast=0),
    "contrast": Sources(adversary=0, contrast=1),
    "correction": Sources(adversary=0, correction=1),
    "mix": Sources(adversary=1, contrast=1),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """Pairs that are asked for, in names and numbers; None where nothing is said."""

    run: Path
    critic: str | None = None
    """A critic that asks no model, the agents file of a critic, or a labelling of the run; unsaid and without earlier
    pairs: the run's only labelling, or the oracle."""
    labels: str | None = None
    """What the critic's labelling is called; None for the critic's name. Without a critic: whose scores decide."""
    adversary: str | None = None
    """Unsaid and without earlier pairs: the sampler."""
    sources: Sources | None = None
    threshold: float | None = None
    cap: int | None = None
    """`NO_CAP` for no limit."""
    attempts: int | None = None
    until_error: bool | None = None
    """Whether an episode has pairs up to its first error alone."""
    name: str | None = None
    """Of the new pairs; None for a free one."""
    against: str | None = None
    """The pairs to compare with; None for those that were stored last."""
    budget: Budget = field(default_factory=Budget)
    concurrency: int | None = None
    """Steps that are asked about at once; None for as many as episodes of the run were played at once."""
    kept: frozenset[str] = frozenset()
    """Names of pairs and labels that whoever made the run keeps for its own; nothing new is called so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a wish comes to."""

    critic: CriticChoice
    adversary: AdversaryChoice | None
    """None where the recipe needs none."""
    recipe: Recipe
    before: StoredPairs | None
    """The pairs to compare with; None when the run has none."""


def sources_of(text: str) -> Sources:
    """Read a source, "mix" or weights like "adversary=3,contrast=1"; ConfigError when it is none."""
    if text in _SOURCES:
        return _SOURCES[text]
    weights: dict[str, float] = {}
    for item in text.split(","):
        name, _, weight = (part.strip() for part in item.partition("="))
        try:
            if name not in Sources.__dataclass_fields__ or name in weights:
                raise ValueError
            weights[name] = float(weight)
        except ValueError:
            raise ConfigError(
                f"--source {text!r}: allowed are adversary, contrast, correction, mix, or weights: "
                "adversary=3,contrast=1"
            ) from None
    return Sources(**({"adversary": 0.0} | weights))


def plan_of(wish: Wish, library: Library, *, seed: int, capabilities: Collection[str]) -> Plan:
    """Fill in what is not said.

    Args:
        seed: of the run.
        capabilities: of its environment.

    Raises:
        UsageError: a name, a number or a combination does not fit.
        RunFormatError: the earlier pairs cannot be read.
    """
    if wish.name is not None:
        check_name(wish.name)
        _check_free(wish, "--name", wish.name)
    against = wish.against or last_name(wish.run)
    before = None if against is None else read_pairs(wish.run, against)
    recipe = _recipe(wish, Recipe(seed=seed) if before is None else before.head.recipe)
    adversary = _adversary(wish, library, before) if recipe.sources.adversary else None
    if adversary is None and wish.adversary is not None:
        raise UsageError("--adversary: pairs of what was said ask nobody; leave it out, or say --source mix")
    plan = Plan(
        critic=_critic(wish, library, before, seed, capabilities), adversary=adversary, recipe=recipe, before=before
    )
    _check_budget(wish, plan)
    if plan.critic.labels not in labellings(wish.run):
        _check_free(wish, "--critic" if wish.labels is None else "--labels", plan.critic.labels)
    if wish.name is not None and wish.name in pair_names(wish.run):
        _check_same(wish.run, wish.name, plan)
    return plan


def _recipe(wish: Wish, before: Recipe) -> Recipe:
    cap = before.cap if wish.cap is None else (wish.cap or None)
    return Recipe(
        sources=wish.sources or before.sources,
        threshold=before.threshold if wish.threshold is None else wish.threshold,
        cap=cap,
        attempts=before.attempts if wish.attempts is None else wish.attempts,
        until_error=before.until_error if wish.until_error is None else wish.until_error,
        seed=before.seed,
    )


def _adversary(wish: Wish, library: Library, before: StoredPairs | None) -> AdversaryChoice:
    if wish.adversary is not None:
        return adversary_named(library, wish.adversary)
    return adversary_named(library, SAMPLER) if before is None else adversary_of(before.head)


def _critic(
    wish: Wish, library: Library, before: StoredPairs | None, seed: int, capabilities: Collection[str]
) -> CriticChoice:
    if wish.critic is not None:
        return critic_named(library, wish.critic, wish.run, seed, wish.labels)
    if wish.labels is not None:
        return labelled(wish.run, wish.labels)
    there = labellings(wish.run)
    name = None if before is None else before.head.labels
    if name is None and len(there) > 1:
        raise UsageError(f"{wish.run}: has labels by {', '.join(there)}; say whose decide: --critic NAME")
    if name is None and not there and ORACLE not in capabilities:
        raise UsageError(
            f"{wish.run}: nobody judged it, and its environment knows no solutions; say --critic NAME, for example "
            "critic-replay"
        )
    name = name or next(iter(there), ORACLE)
    return labelled(wish.run, name) if name in there else critic_named(library, name, wish.run, seed)


def _check_budget(wish: Wish, plan: Plan) -> None:
    """Refuse a limit that would never be reached."""
    limited = wish.budget.usd is not None or wish.budget.tokens is not None
    asked = [plan.critic.definition.kind, *([] if plan.adversary is None else [plan.adversary.part.kind])]
    if limited and plan.critic.free and (plan.adversary is None or plan.adversary.free):
        raise UsageError(
            f"--budget: {' and '.join(asked)} cost neither money nor tokens; limit minutes, or leave it out"
        )


def _check_free(wish: Wish, option: str, name: str) -> None:
    """Refuse a name under which something else would be taken for what made the run."""
    if name in wish.kept:
        raise UsageError(
            f"{option} {name}: {wish.run} belongs to a training, which calls its own so and goes on with what it finds "
            "under that name; choose another"
        )


def _check_same(run: Path, name: str, plan: Plan) -> None:
    """Refuse a name that pairs of another origin have, before anybody is asked for what could not be stored."""
    head, told = read_head(run, name), {} if plan.adversary is None else plan.adversary.told
    made_so = (head.recipe, head.labels, deciding(head.adversary_options))
    if made_so != (plan.recipe, plan.critic.labels, deciding(told)):
        raise UsageError(f"--name {name}: {run} has other pairs of that name; choose another, or leave it out")
    if left := (head.unjudged if plan.critic.known else 0) + sum(head.failed.values()):
        raise UsageError(
            f"--name {name}: {run} has pairs of that name, made when {left} steps were not judged or could not be "
            "asked about; have them asked about under another name, or leave it out"
        )
