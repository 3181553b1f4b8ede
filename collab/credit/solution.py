"""The oracle as a critic of recorded steps: every distinct action is done once, in the very state it was proposed in.

    critic = SolutionCritic()
    judgement = await critic.judge(case)           # of a case with a state

Scores are those of `collab.credit.oracle`: 1 where fewer actions of the environment's own solution are left afterwards
or the task ends with success, 0.5 where as many are left, 0 where more are left, no way leads on, or the task ends
without success. Cells with the same canonical action share a score. A cell is missing, never scored, where the state
cannot be brought back, the environment knows no way, neither before nor after the action, or the step budget ended the
episode with this step, so that nobody can ask what would be left.

"Fewer" is measured against the environment's own solution, which need not be the shortest: another order of the same
steps may look neutral. Version 1 took what a page names for all that is left.
"""

from __future__ import annotations

from collab.credit.case import Case, State
from collab.credit.critic import Judgement, Word, judgement_of, to_all_equal
from collab.credit.oracle import Knowing, OracleCritic, Verdict, execute_action, named, verdict
from collab.envs.base import HasOracle
from collab.errors import EnvironmentFailure, boundary
from collab.types import Action

NO_STATE = "the state cannot be brought back"
NO_SOLUTION = "the environment knows no solution"


class SolutionCritic:
    """Judges actions by the environment's own solution; kind `oracle`."""

    name = "oracle"
    version = "2"

    async def judge(self, case: Case) -> Judgement:
        """Judge a step; EnvironmentFailure when the world broke."""
        actions = list(case.proposals())
        if case.state is None:
            words = dict.fromkeys(actions, Word.none(NO_STATE))
        else:
            with boundary(EnvironmentFailure, f"{case.trajectory}: judging step {case.step}"):
                tried = await _try_actions(case.state, actions)
            words = {action: _word(found) for action, found in tried.items()}
        return judgement_of(case, self, to_all_equal(case, words))


async def _try_actions(state: State, actions: list[Action]) -> dict[Action, Verdict | None]:
    """What comes of each action: on forks of one state where it can be copied, else in one state each."""
    found: dict[Action, Verdict | None] = {}
    for action in actions:
        async with state.opened() as environment:
            if isinstance(environment, Knowing):
                critic = OracleCritic(environment)
                return {each: await critic(each) for each in actions}
            if not isinstance(environment, HasOracle):
                return dict.fromkeys(actions)
            before = named(environment)
            found[action] = verdict(before, *await execute_action(environment, action))
    return found


def _word(found: Verdict | None) -> Word:
    if found is None:
        return Word.none(NO_SOLUTION)
    if not found.known:
        return Word.none(found.reason)
    return Word(score=found.score, reason=found.reason)
