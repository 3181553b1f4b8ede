"""The negatives of one judged step: ask the adversary, filter its replies, ask again where one is no use.

    found = await negatives(case, step, wanted(step, sources, seed), adversary, prefix=reader.prefix, seed=seed)
    made = pair(replace(step, negatives=found.negatives), sources, seed)

Every question has a seed of its own, by name: run seed, epoch, task, episode, step, agent, round and attempt. What is
found depends on these and on the record alone.

`lint` is the filter: it tells which synthesised replies are no use as the worse side of a pair, and why.

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
from collab.rewards.query import find_first_failure
from collab.types import Action, CellRef, Observation, Usage

EQUALS_CHOSEN = "equals the chosen action"
EQUALS_REWARDED = "equals a rewarded action"
SAME_STATE = "leads to the same state"
REWARDED_STATE = "leads where a rewarded action does"


def explain_refusal(action: Action, chosen: Action, rewarded: Collection[Action]) -> str | None:
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
    why = explain_refusal(parsed.action, chosen, rewarded)
    if why is None and reach is not None:
        why = await _find_same(reach, parsed.action, chosen, rewarded)
    return why or parsed.action


async def _find_same(reach: Reach, action: Action, chosen: Action, rewarded: Collection[Action]) -> str | None:
    """Whether it leads where it must not, as a cause; each action is tried once."""
    found = await reach(action)
    if found == await reach(chosen):
        return SAME_STATE
    for other in rewarded:
        if found == await reach(other):
            return REWARDED_STATE
    return None


NOTHING_WORSE = "the adversary knew nothing worse"


@dataclass(frozen=True, slots=True, kw_only=True)
class Negatives:
    """What an adversary was good for."""

    negatives: Mapping[CellRef, Negative]
    refused: Counter[str] = field(default_factory=Counter)
    """Replies that were dropped, by cause, and occasions on which nothing worse was known. Cells about which
    the adversary could not be asked count once, however often that was tried."""
    spent: Usage = Usage()
    """What asking cost, dropped replies included."""
    untried: int = 0
    """Of `collect_negatives`: those that nobody could try, for the state cannot be brought back."""


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
    """Return a negative for each of some rewarded cells, as far as the adversary finds one.

    All cells are asked about at once. Where one fails, the others are still waited for: whoever remembers answers has
    theirs.

    Args:
        prefix: stored text of a prompt's shared part by its hash (`RunReader.read_prefix`).
        seed: of the run.
        attempts: how often a cell is asked about; each reply that is dropped counts.
        paid: an empty list that gets what each answer cost, also where this raises in the end; None to keep none.

    Raises:
        EnvironmentFailure, ModelFailure: nothing was found, and asking again may help.
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
                    never[cell, proposal] = None  # asked again all the same: of several, another may be drawn
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
    """All at once and each to its end; what was answered is paid before a failure is raised."""
    asking = [_ask_proposal(adversary, occasion) for occasion in occasions]
    found = await asyncio.gather(*asking, return_exceptions=True)
    spent += [one.spent for one in found if isinstance(one, AdversaryProposal)]
    failure = find_first_failure(found)
    if failure is not None:
        raise failure
    return [one for one in found if not isinstance(one, BaseException)]


async def _ask_proposal(adversary: Adversary, occasion: Occasion) -> AdversaryProposal | str | None:
    """What it says, or the cause for which it cannot be asked."""
    where = f"step {occasion.case.step} of {occasion.case.trajectory}"
    with boundary(ModelFailure, f"adversary {adversary.name} on {where}"):
        try:
            return await adversary.propose(occasion)
        except CannotPropose as refusal:
            return str(refusal)


async def _check(occasion: Occasion, proposal: AdversaryProposal | None, reach: Reach | None) -> Negative | str:
    """A negative, or why there is none."""
    if proposal is None:
        return NOTHING_WORSE
    found = await lint(
        proposal.text,
        occasion.case.space,
        occasion.case.observation,
        chosen=occasion.right,
        rewarded=occasion.rewarded,
        reach=reach,
    )
    return found if isinstance(found, str) else Negative(text=proposal.text, action=found, maker=proposal.maker)
