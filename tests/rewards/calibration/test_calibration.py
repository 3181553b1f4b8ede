"""Steps of known worth, and what a calibration sees of critics whose faults are known."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from itertools import count
from typing import Any

import pytest

from collab.envs.simphone.suite import SimPhoneSuite
from collab.errors import ModelFailure, UnknownName, UsageError
from collab.library import find_builtin_root
from collab.models.openai import OpenAIModel
from collab.rewards.base import Critic, label_of
from collab.rewards.calibration.cases import AGENTS, KnownCase, build_calibration_set
from collab.rewards.calibration.metrics import Calibration, measure, plan_passes
from collab.rewards.llm import LanguageCritic, read_critic_prompts
from collab.rewards.oracle import SolutionCritic
from collab.testing.fake_server import FakeServer
from collab.utils.concurrency import run_together

TASKS = ["ContactsAddContact", "SystemWifiTurnOn", "ClockStopWatchRunning"]
TEXTS = read_critic_prompts(find_builtin_root() / "prompts" / "critic")
Score = Callable[[int, dict[str, Any]], float]
"""(place in the list, proposal) → score."""


def draw(seed: int = 0, tasks: list[str] = TASKS) -> list[KnownCase]:
    return asyncio.run(build_calibration_set(SimPhoneSuite(), tasks, seed=seed))


@pytest.fixture(scope="module")
def known() -> list[KnownCase]:
    return draw()


# ---------------------------------------------------------------------------------------------------- known steps


def test_every_worth_is_what_the_oracle_finds_in_the_state(known: list[KnownCase]) -> None:
    worths: Counter[str] = Counter()
    for one in known:
        judgement = asyncio.run(SolutionCritic().judge(one.case))
        for cell, worth in one.worth.items():
            assert judgement.of(cell).score == {"good": 1.0, "neutral": 0.5, "bad": 0.0}[worth]
            worths[worth] += 1
    assert worths["good"] == len(known) > 8
    assert worths["neutral"] > len(known) // 2
    assert worths["bad"] > len(known) // 2


def test_only_the_action_tells_proposals_apart(known: list[KnownCase]) -> None:
    for one in known:
        for cell in one.case.matrix:
            assert cell.action is not None
            words = one.case.space.describe(cell.action, one.case.observation)
            assert cell.reason == f"The task needs this next: {words}."
        assert len(one.case.group_proposals()) == len(one.worth)
    good = Counter(cell.agent for one in known for cell, worth in one.worth.items() if worth == "good")
    assert len(good) == len(AGENTS)  # who is right is drawn


def test_the_seed_decides(known: list[KnownCase]) -> None:
    assert [one.case.digest for one in draw()] == [one.case.digest for one in known]
    assert [one.case.digest for one in draw(1)] != [one.case.digest for one in known]


def test_longer_reasons_say_nothing_more(known: list[KnownCase]) -> None:
    one = known[0]
    longer, chosen = one.lengthen_reasons(3)
    assert len(chosen) == (len(one.worth) + 1) // 2
    for before, after in zip(one.case.matrix, longer.case.matrix, strict=True):
        assert after.action == before.action
        assert after.reason.startswith(before.reason)
        assert (after.reason != before.reason) == (after.cell in chosen)
    assert longer.worth == one.worth


def test_what_cannot_be_known_is_refused() -> None:
    suite = SimPhoneSuite()
    with pytest.raises(UnknownName, match="did you mean"):
        asyncio.run(build_calibration_set(suite, ["ContactsAddContac"], seed=0))
    suite.capabilities = frozenset({"screenshot"})
    with pytest.raises(UsageError, match="calibrate on another environment"):
        asyncio.run(build_calibration_set(suite, TASKS, seed=0))


# ---------------------------------------------------------------------------------------------------- calibration


async def calibrate(
    make: Callable[[int, int], Critic], known: list[KnownCase], *, permutations: int = 3, concurrency: int = 4
) -> Calibration:
    """Judge all known steps 3 + `permutations` times by the critic that `make` builds from a seed and an attempt."""
    judged = {}
    for one in plan_passes(known, permutations):
        critic = make(one.seed, one.attempt)
        judged[one.name] = await run_together([partial(critic.judge, case) for case in one.cases], concurrency)
    return measure(label_of(make(0, 0)), known, judged)


def test_the_oracle_is_right_about_everything(known: list[KnownCase]) -> None:
    found = asyncio.run(calibrate(lambda seed, attempt: SolutionCritic(), known, permutations=1))
    assert (found.critic, found.cases, found.missing) == ("oracle-2", len(known), {})
    assert (found.accuracy, found.auc) == (1.0, 1.0)
    assert found.mean_scores == {"good": 1.0, "neutral": 0.5, "bad": 0.0}
    assert found.retest is not None
    assert (found.retest.same, found.retest.difference, found.retest.count) == (1.0, 0.0, found.cells)
    assert (found.position_effects, found.position_bias, found.length_bias) == ({}, None, 0.0)


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret-0123456789")


def measured(known: list[KnownCase], score: Score, **options: Any) -> Calibration:
    """A model over HTTP that scores like this, asked by a critic with these options."""

    def says(body: Mapping[str, Any]) -> str:
        lines = re.findall(r'^\{"agent".*\}$', body["messages"][-1]["content"], re.MULTILINE)
        asked = [json.loads(line) for line in lines]
        return json.dumps({"scores": [{**one, "score": score(place, one)} for place, one in enumerate(asked)]})

    async def go(url: str) -> Calibration:
        model = OpenAIModel(model="fake", base_url=url, retries=0)

        def make(seed: int, attempt: int) -> Critic:
            return LanguageCritic(model=model, texts=TEXTS, seed=seed, attempt=attempt, **options)

        try:
            return await calibrate(make, known, permutations=2, concurrency=2)
        finally:
            await model.close()

    with FakeServer(says=says) as server:
        return asyncio.run(go(server.url))


def test_one_that_says_the_same_of_everything_tells_nothing_apart(known: list[KnownCase]) -> None:
    found = measured(known, lambda place, one: 0.5)
    good = found.cases / found.cells
    assert found.auc == 0.5
    assert found.accuracy == pytest.approx(1 - good)  # nothing is rewarded, and that is right for all but the good
    assert found.ece == pytest.approx(abs(0.5 - good))
    assert (found.position_bias, found.length_bias) == (0.0, 0.0)


def test_one_that_likes_what_stands_first_is_found_out(known: list[KnownCase]) -> None:
    found = measured(known, lambda place, one: 0.9 if place == 0 else 0.1)
    assert found.position_bias == pytest.approx(0.8)
    assert found.position_effects == {0: pytest.approx(0.6)} | dict.fromkeys((1, 2, 3), pytest.approx(-0.2))
    assert found.length_bias == 0.0
    assert found.retest is not None
    assert found.retest.same == 1.0  # the same names the second time


def test_where_nothing_changes_its_place_nothing_is_said_of_places(known: list[KnownCase]) -> None:
    found = measured(known, lambda place, one: 0.9 if place == 0 else 0.1, permute=False)
    assert (found.position_effects, found.position_bias) == ({}, None)


def test_one_that_likes_long_reasons_is_found_out(known: list[KnownCase]) -> None:
    found = measured(known, lambda place, one: 0.8 if len(one["reason"]) > 200 else 0.3)
    assert found.length_bias == pytest.approx(0.5)
    assert found.position_bias == pytest.approx(0.0)


def test_one_that_changes_its_mind_is_found_out(known: list[KnownCase]) -> None:
    cells, asked = sum(len(one.worth) for one in known), count()
    found = measured(known, lambda place, one: 0.9 if next(asked) // cells == 1 else 0.1)  # otherwise the second time
    assert found.retest is not None
    assert (found.retest.same, found.retest.count) == (0.0, cells)
    assert found.retest.difference == pytest.approx(0.8)


def test_what_it_leaves_out_is_counted_beside_the_numbers(known: list[KnownCase]) -> None:
    found = measured(known, lambda place, one: 7.0 if place == 0 else 0.5)
    assert sum(found.missing.values()) == found.cases
    assert sum(column.count for column in found.picture) == found.cells - found.cases


def test_a_server_that_is_gone_is_a_failure(known: list[KnownCase]) -> None:
    model = OpenAIModel(model="fake", base_url="http://127.0.0.1:9/v1", retries=0)
    with pytest.raises(ModelFailure):
        asyncio.run(calibrate(lambda seed, attempt: LanguageCritic(model=model, texts=TEXTS), known))
