"""The negative linter: which synthesised replies are no use as the worse side of a pair, and why.

    found = await lint(text, space, observation, chosen=action, rewarded=actions, reach=reach)
    found                             # the canonical action, or why it is dropped

    does not parse                    as a policy's reply would not, on this very screen; with the kind of failure
    equals the chosen action          canonically, on this screen
    equals a rewarded action          of any cell of the step
    leads to the same state           as the chosen one, where the state can be copied and both be tried
    leads where a rewarded one does   likewise: the same thing said in other words than any cell used

(CollabUIAgents has no such check; a pair whose sides do the same teaches nothing, or the wrong thing.) What cells said
by themselves is not tried: the critic judged it. Nor is a made-up action judged: another way to the goal, that leads to
a state of its own and that nobody proposed, passes for worse.
"""

from __future__ import annotations

from collections.abc import Collection

from collab.credit.reached import Reach
from collab.envs.grammar import ActionSpace
from collab.prompts.parse import read_reply
from collab.types import Action, Observation

EQUALS_CHOSEN = "equals the chosen action"
EQUALS_REWARDED = "equals a rewarded action"
SAME_STATE = "leads to the same state"
REWARDED_STATE = "leads where a rewarded action does"


def refusal(action: Action, chosen: Action, rewarded: Collection[Action]) -> str | None:
    """Why a canonical action cannot stand against the chosen one; None when it can, as far as words tell."""
    if action == chosen:
        return EQUALS_CHOSEN
    return EQUALS_REWARDED if action in rewarded else None


async def lint(
    text: str,
    space: ActionSpace,
    observation: Observation,
    *,
    chosen: Action,
    rewarded: Collection[Action] = (),
    reach: Reach | None = None,
) -> Action | str:
    """What a synthesised reply does, or why it is dropped.

    Causes are short words without data of the case, so that they add up.

    Args:
        chosen: what it is to stand against; canonical.
        rewarded: canonical actions of all rewarded cells of the step.
        reach: tries an action in the state of the step; None where that cannot be copied or made again.

    Raises:
        EnvironmentFailure: the environment broke while an action was tried.
    """
    parsed = read_reply(text, space, observation)
    if parsed.action is None:
        kind = "empty" if parsed.failure is None else parsed.failure.kind
        return f"does not parse: {kind}"
    why = refusal(parsed.action, chosen, rewarded)
    if why is None and reach is not None:
        why = await _same(reach, parsed.action, chosen, rewarded)
    return why or parsed.action


async def _same(reach: Reach, action: Action, chosen: Action, rewarded: Collection[Action]) -> str | None:
    """Whether it leads where it must not, as a cause; each action is tried once."""
    found = await reach(action)
    if found == await reach(chosen):
        return SAME_STATE
    for other in rewarded:
        if found == await reach(other):
            return REWARDED_STATE
    return None
