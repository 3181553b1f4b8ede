"""An adversary with a budget stops asking when the budget is used up."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from collab.config import Budget
from collab.preferences.adversary import AdversaryBudgetSpent, AdversaryProposal, BudgetedAdversary, Occasion
from collab.rollout.collector import UsageMeter
from collab.types import Usage


class Priced:
    """Says the same for 120 tokens and 0.1 USD, after others had their turn."""

    name, version = "priced", "1"

    def __init__(self) -> None:
        self.flying = self.most = 0

    async def propose(self, occasion: Occasion) -> AdversaryProposal | None:
        self.flying += 1
        self.most = max(self.most, self.flying)
        await asyncio.sleep(0)
        self.flying -= 1
        return AdversaryProposal(
            text="no", maker="priced", spent=Usage(calls=1, prompt_tokens=100, completion_tokens=20, cost_usd=0.1)
        )


def asked(times: int, at_once: int, **limits: Any) -> tuple[UsageMeter, Priced, int]:
    """What was spent, by whom, and how often it was refused, when so many ask together."""
    meter, inner = UsageMeter(), Priced()

    async def all_of_them() -> list[object]:
        allowed = BudgetedAdversary(
            adversary=inner, budget=Budget(**limits), meter=meter, stop=asyncio.Event(), at_once=at_once
        )
        occasions: list[Any] = [None] * times
        return list(await asyncio.gather(*map(allowed.propose, occasions), return_exceptions=True))

    found = asyncio.run(all_of_them())
    assert all(isinstance(one, AdversaryBudgetSpent | AdversaryProposal) for one in found)
    return meter, inner, sum(isinstance(one, AdversaryBudgetSpent) for one in found)


@pytest.mark.parametrize("limits", [{"tokens": 300}, {"usd": 0.25}])
def test_no_more_is_paid_beyond_a_limit_than_is_in_flight(limits: dict[str, float]) -> None:
    """The third call goes over the limit; what waits with it is asked no more."""
    meter, inner, refused = asked(6, 1, **limits)
    assert (meter.spent.calls, inner.most, refused) == (3, 1, 3)
    meter, inner, refused = asked(12, 2, **limits)
    assert (inner.most, meter.spent.calls + refused) == (2, 12)
    assert meter.spent.calls <= 4


def test_without_such_a_limit_all_are_asked_together() -> None:
    meter, inner, refused = asked(6, 1, minutes=5)
    assert (meter.spent.calls, inner.most, refused) == (6, 6, 0)
