"""Collect the negatives of one judged step: ask the adversary, filter its replies, ask again where one is dropped.

    found = await collect_negatives(
        case, step, list_wanted(step, sources, seed), adversary, prefix=reader.read_prefix, seed=seed
    )
    made = build_step_pairs(replace(step, negatives=found.negatives), sources, seed)

Every question has a seed of its own, derived from run seed, epoch, task, episode, step, agent, round and attempt. The
result depends on these and on the record alone.

`filter_negative` returns the canonical action of a synthesised reply, or why it cannot be a rejected one:

    does not parse                    as a policy's reply would not, on this very screen; with the kind of failure
    equals the chosen action          canonically, on this screen
    equals a rewarded action          of any cell of the step
    leads to the same state           as the chosen one, where the state can be copied and both be tried
    leads where a rewarded one does   likewise: the same effect in other words than any cell used

CollabUIAgents has no such check; a pair whose sides do the same teaches nothing, or the wrong thing. Replies of cells
are not tried, because the critic judged them. Synthesised actions are not judged: another way to the goal that leads to
a state of its own, and that no cell proposed, passes for worse.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from collab.envs.grammar import ActionSpace
from collab.errors import ConfigError, ModelFailure, boundary
from collab.preferences.adversary import Adversary, AdversaryProposal, CannotPropose, Occasion
from collab.prompts.parse import read_reply
from collab.prompts.render import rebuild
from collab.rewards.base import CriticInput
from collab.rewards.credit import JudgedStep, Negative, list_rewarded_actions
from collab.rewards.oracle import Reach, open_reach
from collab.rewards.structured_replies import find_first_failure
from collab.types import Action, CellRef, Observation, Usage

EQUALS_CHOSEN = "equals the chosen action"
EQUALS_REWARDED = "equals a rewarded action"
SAME_STATE = "leads to the same state"
REWARDED_STATE = "leads where a rewarded action does"


def explain_refusal(action: Action, chosen: Action, rewarded: Collection[Action]) -> str | None:
    """Explain why a canonical action cannot be rejected against the chosen one; None when its words allow it."""
    if action == chosen:
        return EQUALS_CHOSEN
    return EQUALS_REWARDED if action in rewarded else None


async def filter_negative(
    text: str,
    space: ActionSpace,
    observation: Observation,
    *,
    chosen: Action,
    rewarded: Collection[Action] = (),
    reach: Reach | None = None,
) -> Action | str:
    """Return the canonical action of a synthesised reply, or why it is dropped, as a short cause that can be counted.

    Args:
        chosen: the action it is to be compared with; canonical.
        rewarded: canonical actions of all rewarded cells of the step.
        reach: tries an action in the step's state; None where that can be neither copied nor rebuilt.

    Raises:
        EnvironmentFailure: the environment broke while an action was tried.
    """
    parsed = read_reply(text, space, observation)
    if parsed.action is None:
        kind = "empty" if parsed.failure is None else parsed.failure.kind
        return f"does not parse: {kind}"
    why = explain_refusal(parsed.action, chosen, rewarded)
    if why is None and reach is not None:
        why = await _find_same(reach, parsed.action, chosen, rewarded)
    return why or parsed.action


async def _find_same(reach: Reach, action: Action, chosen: Action, rewarded: Collection[Action]) -> str | None:
    """Return the cause if the action leads to the chosen or a rewarded action's state, else None; tries each once."""
    found = await reach(action)
    if found == await reach(chosen):
        return SAME_STATE
    for other in rewarded:
        if found == await reach(other):
            return REWARDED_STATE
    return None


NOTHING_WORSE = "the adversary found nothing worse"


@dataclass(frozen=True, slots=True, kw_only=True)
class Negatives:
    """The negatives of one step, and the replies that were dropped."""

    negatives: Mapping[CellRef, Negative]
    refused: Counter[str] = field(default_factory=Counter)
    """Dropped replies by cause, and occasions on which the adversary found nothing worse. Cells about which it could
    not be asked count once, however often that was tried."""
    spent: Usage = Usage()
    """Cost of all questions, those of dropped replies included."""
    untried: int = 0
    """Negatives of `collect_negatives` that were not tried, as the state cannot be restored."""


async def collect_negatives(
    case: CriticInput,
    step: JudgedStep,
    cells: Iterable[CellRef],
    adversary: Adversary,
    *,
    prefix: Callable[[str], str],
    seed: int,
    attempts: int = 3,
    paid: list[Usage] | None = None,
) -> Negatives:
    """Return a negative for each of some rewarded cells, where the adversary finds one.

    All cells are asked about at once. Where one fails, the others are still waited for, so that their answers are kept.

    Args:
        prefix: stored text of a prompt's shared part by its hash (`RunReader.read_prefix`).
        seed: of the run.
        attempts: questions per cell; each dropped reply counts.
        paid: an empty list that gets each answer's cost, even where this raises; None to keep none.

    Raises:
        EnvironmentFailure, ModelFailure: a call failed; asking again may help.
        UnknownName: the run has no such prefix.
        ConfigError: fewer attempts than one.
    """
    if attempts < 1:
        raise ConfigError(f"an adversary asked {attempts} times per cell; allowed: 1 or more")
    asked, found, refused = sorted(set(cells)), dict[CellRef, Negative](), Counter[str]()
    never = dict[tuple[CellRef, str], None]()
    spent = list[Usage]() if paid is None else paid
    if not asked:
        return Negatives(negatives={})
    async with _open_reach(case) as reach:
        for attempt in range(attempts):
            left = {cell: step.derive_seed(seed, "adversary", cell, attempt) for cell in asked if cell not in found}
            occasions = [_build_occasion(case, step, cell, prefix, own) for cell, own in left.items()]
            for occasion, proposal in zip(
                occasions, await _collect_proposals(adversary, occasions, spent), strict=True
            ):
                cell = occasion.cell.cell
                if isinstance(proposal, str):
                    never[cell, proposal] = None  # asked again all the same: a mixture may draw another adversary
                    continue
                checked = await _check(occasion, proposal, reach)
                if isinstance(checked, Negative):
                    found[cell] = checked
                else:
                    refused[checked] += 1
    refused.update(cause for _, cause in never)
    untried = len(found) if case.state is None else 0
    return Negatives(negatives=found, refused=refused, spent=sum(spent, Usage()), untried=untried)


def _build_occasion(
    case: CriticInput, step: JudgedStep, cell: CellRef, prefix: Callable[[str], str], seed: int
) -> Occasion:
    said = step.matrix[cell]
    read = rebuild(prefix(said.prompt.prefix), said.prompt)
    return Occasion(case=case, cell=said, prompt=read, rewarded=list_rewarded_actions(step), seed=seed)


@contextlib.asynccontextmanager
async def _open_reach(case: CriticInput) -> AsyncIterator[Reach | None]:
    if case.state is None:
        yield None
        return
    async with open_reach(case.state) as reach:
        yield reach


async def _collect_proposals(
    adversary: Adversary, occasions: Sequence[Occasion], spent: list[Usage]
) -> list[AdversaryProposal | str | None]:
    """Ask about all occasions at once and wait for all; costs are added to `spent` before a failure is raised."""
    asking = [_ask_proposal(adversary, occasion) for occasion in occasions]
    found = await asyncio.gather(*asking, return_exceptions=True)
    spent += [one.spent for one in found if isinstance(one, AdversaryProposal)]
    failure = find_first_failure(found)
    if failure is not None:
        raise failure
    return [one for one in found if not isinstance(one, BaseException)]


async def _ask_proposal(adversary: Adversary, occasion: Occasion) -> AdversaryProposal | str | None:
    """Return the proposal, or the cause for which the adversary cannot be asked."""
    where = f"step {occasion.case.step} of {occasion.case.trajectory}"
    with boundary(ModelFailure, f"adversary {adversary.name} on {where}"):
        try:
            return await adversary.propose(occasion)
        except CannotPropose as refusal:
            return str(refusal)


async def _check(occasion: Occasion, proposal: AdversaryProposal | None, reach: Reach | None) -> Negative | str:
    """Return a negative, or why there is none."""
    if proposal is None:
        return NOTHING_WORSE
    found = await filter_negative(
        proposal.text,
        occasion.case.space,
        occasion.case.observation,
        chosen=occasion.right,
        rewarded=occasion.rewarded,
        reach=reach,
    )
    return found if isinstance(found, str) else Negative(text=proposal.text, action=found, maker=proposal.maker)
