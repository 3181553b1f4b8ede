"""The rehearsal: a stand-in for a trained policy that looks up the solution and errs on purpose.

It uses the same prompts, parsing, messages and votes as any model, so a team can be watched before a policy exists. It
is not a language model: it never reads its prompt. A team's gain under it only follows from independent errors per
cell; no number measured with it is a result.

In an agent with a dialect it speaks that, so without errors it plays demonstrations that a policy with the same prompt
can imitate.

    P(error) = min(0.95, error_base + error_slope · temperature)

A mistake is a random valid action that differs from the right one. One mistake in fifty ends the episode. An ending
that wins the vote is final, unlike most mistakes, so more of them would measure endings rather than teams.
"""

from __future__ import annotations

import contextlib
import random
import time
from dataclasses import replace

from collab.dialects.base import World
from collab.dialects.speaker import Speaker
from collab.envs.grammar import ActionSpace
from collab.envs.random_actions import ENDINGS, draw_action
from collab.errors import ConfigError, ModelFailure
from collab.models.base import Capabilities, Meter, Privilege, Reply, Request
from collab.models.tokenizer import estimate_tokens
from collab.prompts.parse import write_reply
from collab.types import Action, PolicyRef

MOST_ERRORS = 0.95
"""Upper bound of the error rate."""

ENDING_SHARE = 0.02
"""Share of mistakes that end the episode."""

_DRAWS = 100
"""Draws before giving up when each one happens to be the right action."""


class RehearsalModel:
    """Follows the environment's oracle, with mistakes.

    Args:
        error_base: error rate at temperature 0, in [0, 1].
        error_slope: added per unit of temperature, at least 0.

    Raises:
        ConfigError: a rate is out of range.
    """

    privileged = True

    def __init__(self, *, error_base: float = 0.05, error_slope: float = 0.5) -> None:
        if not 0 <= error_base <= 1 or error_slope < 0:
            raise ConfigError(
                f"rehearsal: error_base {error_base:g} must be in [0, 1], error_slope {error_slope:g} ≥ 0"
            )
        self.policy = PolicyRef(base="rehearsal")
        self.meter = Meter()
        self.error_base = error_base
        self.error_slope = error_slope

    def error_rate(self, temperature: float) -> float:
        """Return the probability that a cell is a mistake."""
        return min(MOST_ERRORS, self.error_base + self.error_slope * temperature)

    async def generate(self, request: Request) -> Reply:
        """Return the oracle's next action or a drawn mistake.

        Raises:
            ModelFailure: the request has no oracle, the action space allows no mistake or no ending, or the agent's
                dialect has no word for the action.
        """
        started = time.perf_counter()
        try:
            reply = Reply(text=self._speak(request))
        except ModelFailure:
            self.meter.count_failure(latency_s=time.perf_counter() - started)
            raise
        self.meter.count_answer(latency_s=time.perf_counter() - started, prompt_tokens=None, completion_tokens=None)
        return reply

    def _speak(self, request: Request) -> str:
        if request.privilege is None:
            raise ModelFailure(
                "rehearsal: no oracle was handed over; it can only play in environments that know solutions"
            )
        privilege = request.privilege
        remaining = privilege.oracle()
        right = _find_next_action(remaining, privilege.space)
        why = "the oracle's next action." if remaining is not None else "no way leads on from here."
        # The cell's seed draws the error, so a rehearsed run can be repeated.
        rng = random.Random(request.seed)
        if rng.random() < self.error_rate(request.sampling.temperature):
            return _write_mistake(right, privilege, rng)
        try:
            return _write_action(f"Rehearsal: {why}", right, privilege)
        except LookupError as error:
            raise ModelFailure(f"rehearsal: {error.args[0]}; choose other tasks, or another dialect") from None

    async def probe(self) -> Capabilities:
        """Return that only seeds are supported."""
        return Capabilities(seed=True, notes=("rehearsal: not a language model",))

    def count_tokens(self, text: str) -> int:
        """Return an estimate, so that prompts are sized as for a model."""
        return estimate_tokens(text)

    async def close(self) -> None:
        """Do nothing: there is nothing to free."""


def make_success_action(space: ActionSpace) -> Action:
    """Return the action that says "done": status complete on a phone, finish on the web.

    Raises:
        ModelFailure: the space has no action that ends an episode.
    """
    for spec in space.specs:
        if spec.name in ENDINGS:
            fields = {field.name: "complete" for field in spec.fields if "complete" in field.choices}
            return space.make(spec.name, **fields)
    raise ModelFailure(f"rehearsal: the action space {space.name!r} has none of {', '.join(sorted(ENDINGS))}")


def _find_next_action(remaining: tuple[Action, ...] | None, space: ActionSpace) -> Action:
    """Return the solution's next action, or the ending if none is left or the task cannot be solved any more."""
    # After an irreparable mistake (a sent message), end the failed episode as a person would.
    return remaining[0] if remaining else make_success_action(space)


def _write_action(reason: str, action: Action, privilege: Privilege) -> str:
    """Write an action in the agent's dialect, of several steps the first; LookupError if it has no word for it."""
    if privilege.dialect is None:
        return write_reply(reason, action, privilege.space)
    world: World = "web" if privilege.space.name == "web" else "mobile"
    speaker = Speaker(privilege.dialect, world, lambda: privilege.observation, remembers=False)
    return speaker.write(next(speaker.say(action)), reason)


def _write_mistake(right: Action, privilege: Privilege, rng: random.Random) -> str:
    """Write a random valid action other than `right`, compared in canonical form.

    Raises:
        ModelFailure: the screen or the dialect allows no other action, so there is no mistake to draw.
    """
    space, observation = privilege.space, privilege.observation
    endings = replace(space, specs=tuple(spec for spec in space.specs if spec.name in ENDINGS))
    avoided = space.canonical(right, observation)
    for _ in range(_DRAWS):
        if endings.specs and rng.random() < ENDING_SHARE:
            drawn = draw_action(endings, observation, rng)
        else:
            drawn = draw_action(space, observation, rng, ending=False)
        if space.canonical(drawn, observation) != avoided:
            with contextlib.suppress(LookupError):
                return _write_action("Rehearsal: a drawn mistake.", drawn, privilege)
    raise ModelFailure(f"rehearsal: no action but {space.format(right)} exists here, so no mistake can be drawn")
