"""Draw wrong actions that a clumsy agent might take on this very screen.

    spot = DecisionPoint(observation=observation, space=space, last=last, words=words)
    for mistake in draw_mistakes(right, spot, rng): ...        # a stream, most plausible kinds most often
    mistake = await draw_worse(environment, right, spot, rng)  # one that really leads elsewhere

It replaces the language model that plays "a very clumsy agent" in CollabUIAgents (eq. 7). A mistake always parses, is
on the screen, and never canonically equals the right action. Where the environment can fork, `draw_worse` also excludes
actions that lead to the same state.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from collab.envs.base import Environment, Forkable
from collab.envs.grammar import ActionSpace
from collab.envs.random_actions import ENDINGS, WORDS, draw_action
from collab.envs.solution import GOOD, SolutionScorer
from collab.rewards.oracle import reach
from collab.types import Action, ElementTarget, Observation, ParseFailure

MistakeKind: TypeAlias = Literal[
    "other element", "other text", "other type", "premature end", "repetition", "undo", "random"
]

WEIGHTS: dict[MistakeKind, int] = {
    "other element": 9,
    "other text": 4,
    "other type": 2,
    "premature end": 2,
    "repetition": 2,
    "undo": 2,
    "random": 2,
}
"""Weight of each kind, among those that the right action and the screen allow."""

_UNDO = ("navigate_back", "navigate_home", "go")
_DRAWS = 40
"""Most drawn mistakes of one search."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionPoint:
    """A state in which an action is chosen."""

    observation: Observation
    space: ActionSpace
    last: Action | None = None
    """The action executed last; None when there is none to repeat."""
    words: tuple[str, ...] = WORDS
    """Source of wrong texts, beside the labels on the screen."""
    texts: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        seen = (text for element in self.observation.elements for text in (element.label, element.value) if text)
        object.__setattr__(self, "texts", tuple(dict.fromkeys((*self.words, *seen))) or WORDS)

    def can_propose(self, action: Action) -> bool:
        """Return whether an agent could propose it here: it parses, and its element is on the screen."""
        if self.space.check(action, self.observation) is not None:
            return False
        return not isinstance(self.space.parse(self.space.format(action)), ParseFailure)


def list_task_words(goal: str) -> tuple[str, ...]:
    """Return the words of a task that are worth typing in the wrong place."""
    words = (raw.strip(".,;:!?\"'()") for raw in goal.split())
    return tuple(word for word in words if len(word) > 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """A wrong action."""

    action: Action
    """Canonical on the screen it was drawn for."""
    kind: MistakeKind


def draw_mistakes(
    right: Action, spot: DecisionPoint, rng: random.Random, *, weights: Mapping[MistakeKind, float] = WEIGHTS
) -> Iterator[Mistake]:
    """Draw wrong actions without end, with repetitions; end only where no other action is possible.

    Args:
        weights: how often each kind is tried; unnamed kinds never are.
    """
    avoided = spot.space.canonical(right, spot.observation)
    barren = 0
    # The number of failed draws is bounded, as some screens allow one action only.
    while barren < _DRAWS:
        kind = rng.choices(tuple(weights), weights=tuple(weights.values()))[0]
        drawn = _DRAW[kind](right, spot, rng)
        if drawn is not None and spot.can_propose(drawn):
            action = spot.space.canonical(drawn, spot.observation)
            # A "mistake" that is canonically the right action would be a wrong label.
            if action != avoided:
                barren = 0
                yield Mistake(action=action, kind=kind)
                continue
        barren += 1


def draw_mistake(right: Action, spot: DecisionPoint, rng: random.Random) -> Mistake | None:
    """Draw one wrong action, wherever it leads; None where only the right one is possible."""
    return next(draw_mistakes(right, spot, rng), None)


async def draw_worse(
    environment: Environment,
    right: Action,
    spot: DecisionPoint,
    rng: random.Random,
    *,
    critic: SolutionScorer | None = None,
) -> Mistake | None:
    """Draw one wrong action that leads elsewhere than the right one; `draw_mistake` where the environment cannot fork.

    Args:
        environment: in the state that `spot` shows; it is not stepped.
        critic: judges in the same state; good actions are refused, too (another order of the same steps).

    Returns:
        None when none was found in forty draws.

    Raises:
        EnvironmentFailure: the environment broke.
    """
    if not isinstance(environment, Forkable):
        return draw_mistake(right, spot, rng)
    avoided = await reach(environment, spot.space.canonical(right, spot.observation))
    for drawn, _ in zip(draw_mistakes(right, spot, rng), range(_DRAWS), strict=False):
        if critic is not None and (await critic(drawn.action)).score >= GOOD:
            continue
        if await reach(environment, drawn.action) != avoided:
            return drawn
    return None


# ------------------------------------------------------------------------------------------------------- kinds


def _change_element(right: Action, spot: DecisionPoint, rng: random.Random) -> Action | None:
    """Draw the same action on another element, more often than not one of the same role."""
    if not isinstance(right.target, ElementTarget):
        return None
    index = right.target.index
    others = [element for element in spot.observation.elements if element.index != index]
    role = spot.observation.elements[index].role if index < len(spot.observation.elements) else ""
    alike = [element for element in others if element.role == role]
    chosen = alike if alike and rng.random() < 0.6 else others
    return replace(right, target=ElementTarget(index=rng.choice(chosen).index)) if chosen else None


def _change_text(right: Action, spot: DecisionPoint, rng: random.Random) -> Action | None:
    """Draw the same action with one argument changed: another choice or text, or a misspelling."""
    # Text arguments are where wrong actions look most alike.
    spec = spot.space.spec(right.type)
    given = [field for field in spec.fields if field.kind == "text" and right.get(field.name) is not None]
    if not given:
        return None
    changed = rng.choice(given)
    value = str(right[changed.name])
    others = [text for text in changed.choices or spot.texts if text != value]
    # Misspelt half of the time: such a text is harder to recognise as wrong.
    if not changed.choices and value and rng.random() < 0.5:
        others = [_misspell(value, rng)]
    if not others:
        return None
    drawn = rng.choice(others)
    arguments = tuple((name, drawn if name == changed.name else old) for name, old in right.arguments)
    return replace(right, arguments=arguments)


def _misspell(text: str, rng: random.Random) -> str:
    """Make one mistake in a text: drop or double a character, drop a word, or cut it short."""
    words, place = text.split(), rng.randrange(len(text))
    slips = [text[:place] + text[place + 1 :], text[: place + 1] + text[place:], text[: max(1, len(text) // 2)]]
    if len(words) > 1:
        gone = rng.randrange(len(words))
        slips.append(" ".join(words[:gone] + words[gone + 1 :]))
    return rng.choice(slips)


def _change_type(right: Action, spot: DecisionPoint, rng: random.Random) -> Action | None:
    """Draw another action on the right element."""
    if not isinstance(right.target, ElementTarget):
        return None
    specs = tuple(spec for spec in spot.space.specs if spec.target == "required" and spec.name != right.type)
    if not specs:
        return None
    drawn = draw_action(replace(spot.space, specs=specs), spot.observation, rng, words=spot.texts)
    return replace(drawn, target=right.target)


def _end_early(right: Action, spot: DecisionPoint, rng: random.Random) -> Action | None:
    specs = tuple(spec for spec in spot.space.specs if spec.name in ENDINGS)
    return draw_action(replace(spot.space, specs=specs), spot.observation, rng) if specs else None


def _repeat(right: Action, spot: DecisionPoint, rng: random.Random) -> Action | None:
    return spot.last


def _undo(right: Action, spot: DecisionPoint, rng: random.Random) -> Action | None:
    specs = tuple(spec for spec in spot.space.specs if spec.name in _UNDO)
    return draw_action(replace(spot.space, specs=specs), spot.observation, rng) if specs else None


def _draw_random(right: Action, spot: DecisionPoint, rng: random.Random) -> Action | None:
    aimless = any(spec.target != "required" and spec.name not in ENDINGS for spec in spot.space.specs)
    if not aimless and not spot.observation.elements:
        return None
    return draw_action(spot.space, spot.observation, rng, ending=False, words=spot.texts)


_DRAW: dict[MistakeKind, Callable[[Action, DecisionPoint, random.Random], Action | None]] = {
    "other element": _change_element,
    "other text": _change_text,
    "other type": _change_type,
    "premature end": _end_early,
    "repetition": _repeat,
    "undo": _undo,
    "random": _draw_random,
}
