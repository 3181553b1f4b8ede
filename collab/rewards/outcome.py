"""The outcome as a critic: executed actions get the episode's outcome as their score.

    OutcomeCritic()                 cells of the executed action: 1 when the episode succeeded, else 0; others missing
    OutcomeCritic(replay=True)      others too: by playing the episode again with each in the executed one's place

The score of an executed action claims that its episode succeeded or not, and not that this action helped or harmed. It
re-assigns no credit. The ablation "w/o CR" (CollabUIAgents) asks no critic, but compares whole trajectories
(`collab.preferences.trajectory_pairs`).

The score of a replayed action claims that the same instance, with this action in place of the executed one and every
other executed action as it was, succeeds or not. A 1 is exact. A 0 is weaker: the action may have been right while the
later actions no longer fit. Where the replay does not end, the cell is missing.

Replay is for environments that can be rebuilt and know no solution; where one is known, `oracle` is more precise.
"""

from __future__ import annotations

from collab.errors import EnvironmentFailure, boundary
from collab.rewards.base import CellScore, CriticInput, Judgement, RestorableState, build_judgement, to_all_equal
from collab.rewards.oracle import NO_STATE
from collab.types import Action, Outcome

NO_OUTCOME = "the episode has no outcome"
NOT_EXECUTED = "it was not carried out"
NO_END = "the replay came to no end"


class OutcomeCritic:
    """Judges actions by the end of the episode; kind `outcome`.

    Args:
        replay: also judge actions that were proposed and not executed, where the state can be restored.
    """

    name = "outcome"
    version = "1"

    def __init__(self, *, replay: bool = False) -> None:
        self._replay = replay

    async def judge(self, case: CriticInput) -> Judgement:
        """Judge a step; EnvironmentFailure when the world broke during a replay."""
        words = {action: await self._build_score(case, action) for action in case.group_proposals()}
        return build_judgement(case, self, to_all_equal(case, words))

    async def _build_score(self, case: CriticInput, action: Action) -> CellScore:
        if case.outcome is None:
            return CellScore.none(NO_OUTCOME)
        if action == case.executed:
            return _format("the episode", case.outcome)
        if not self._replay:
            return CellScore.none(NOT_EXECUTED)
        if case.state is None:
            return CellScore.none(NO_STATE)
        ended = await _replay(case.state, (action, *case.later))
        return CellScore.none(NO_END) if ended is None else _format("the episode, replayed with this action,", ended)


async def _replay(state: RestorableState, actions: tuple[Action | None, ...]) -> Outcome | None:
    """Replay an episode with these actions, and return its outcome; None when it does not end with them."""
    async with state.open() as environment:
        for action in actions:
            with boundary(EnvironmentFailure, "replay with another action"):
                result = await environment.step(action)
            if result.done:
                return result.outcome
    return None


def _format(what: str, outcome: Outcome) -> CellScore:
    ended = f"{what} {'succeeded' if outcome.success else 'did not succeed'}"
    return CellScore(score=float(outcome.success), reason=f"{ended}: {outcome.reason}" if outcome.reason else ended)
