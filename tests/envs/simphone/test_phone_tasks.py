"""Every task: drawn by seed, solved by its oracle, judged on state, recovered after junk."""

from __future__ import annotations

import ast
import json
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest

from collab.envs.grammar import MOBILE
from collab.envs.random_actions import random_action
from collab.envs.simphone.core import SimPhone
from collab.envs.simphone.suite import SimPhoneSuite
from collab.envs.simphone.tasks import BY_NAME, TASKS

SUITE = SimPhoneSuite()
NAMES = [spec.name for spec in TASKS]
UNKNOWN = MOBILE.make("unknown")
DONE = MOBILE.make("status", goal_status="complete")
FACTS = Path(__file__).parents[4] / "shared" / "data" / "androidworld_tasks.json"
TRUE_AT_THE_START = {name for name in NAMES if name.startswith("System") and name.endswith("Verify")}


def started(name: str, seed: int, **changes: object) -> SimPhone:
    phone = SimPhone()
    phone.reset(replace(SUITE.instance(name, seed), **changes))  # type: ignore[arg-type]
    return phone


def completed(printed: str, rows: list[dict[str, object]]) -> list[dict[str, object]]:
    """Rows as AndroidWorld prints them, cut off after some 200 characters; what is missing comes from `rows`."""
    texts = re.split(r"(?:Expense|Recipe|CalendarEvent)\(", printed)[1:]
    found = [
        {key: ast.literal_eval(value) for key, value in re.findall(r"(\w+)=('[^']*'|\"[^\"]*\"|-?\d+)[,)]", text)}
        for text in texts
    ]
    if rows[0] == rows[-1]:  # duplicates stay duplicates
        found = found[:1] * len(rows)
    found += [{}] * (len(rows) - len(found))
    return [{**row, **known} for row, known in zip(rows, found, strict=True)]


@pytest.mark.parametrize("name", NAMES)
def test_oracle_solves_within_the_budget(name: str) -> None:
    for seed in range(6):
        phone = started(name, seed)
        solution = phone.oracle()
        assert solution is not None
        assert solution[-1] == DONE
        results = [phone.step(action) for action in solution]
        assert [result.done for result in results] == [False] * (len(results) - 1) + [True], seed
        assert results[-1].outcome is not None
        assert results[-1].outcome.score == 1.0, (seed, results[-1].outcome)
        assert results[-1].terminated


@pytest.mark.variations
@pytest.mark.parametrize("name", NAMES)
def test_oracle_shrinks_by_one_with_each_of_its_steps(name: str) -> None:
    phone = started(name, 11, max_steps=100)
    left = phone.oracle()
    assert left
    for _ in range(len(left) - 1):
        unplanned = phone.fork()
        unplanned.step(UNKNOWN)  # makes it forget the plan and changes nothing
        unplanned.step(left[0])
        phone.step(left[0])
        assert phone.oracle() == unplanned.oracle() == left[1:]
        left = left[1:]


@pytest.mark.parametrize("name", NAMES)
def test_saying_complete_at_once_is_not_enough(name: str) -> None:
    for seed in range(3):
        result = started(name, seed).step(DONE)
        assert result.terminated
        assert result.outcome is not None
        assert (result.outcome.score == 1.0) == (name in TRUE_AT_THE_START)
        assert result.outcome.success == (name in TRUE_AT_THE_START)


def test_the_goal_reached_without_status_scores_nothing() -> None:
    phone = started("SystemWifiTurnOn", 0)
    solution = phone.oracle()
    assert solution is not None
    for action in solution[:-1]:
        result = phone.step(action)
    assert phone.score() == 1.0
    while not result.done:
        result = phone.step(None)
    assert result.truncated
    assert result.outcome is not None
    assert not result.outcome.success


def test_infeasible_scores_nothing() -> None:
    phone = started("SystemWifiTurnOnVerify", 0)
    result = phone.step(MOBILE.make("status", goal_status="infeasible"))
    assert result.terminated
    assert result.outcome is not None
    assert result.outcome.score == 0.0


def test_composite_scores_count_halves() -> None:
    phone = started("TurnOffWifiAndTurnOnBluetooth", 0)
    solution = phone.oracle()
    assert solution is not None
    for action in solution:
        if phone.phone.settings["global/wifi_on"] == "0":
            break
        phone.step(action)
    result = phone.step(DONE)
    assert result.outcome is not None
    assert result.outcome.score == 0.5
    assert not result.outcome.success


@pytest.mark.parametrize("name", NAMES)
def test_same_seed_same_episode_and_other_seeds_differ(name: str) -> None:
    for seed in (0, 1):
        first, second = started(name, seed), started(name, seed)
        assert SUITE.instance(name, seed) == SUITE.instance(name, seed)
        assert first.phone == second.phone
        for action in first.oracle() or ():
            assert first.step(action) == second.step(action)
    goals = {SUITE.instance(name, seed).goal for seed in range(12)}
    assert len(goals) > 1, "phrasings are drawn by seed"


@pytest.mark.parametrize("name", NAMES)
def test_goals_are_filled_in_and_parameters_are_json(name: str) -> None:
    for seed in range(10):
        task = SUITE.instance(name, seed)
        assert "{" not in task.goal
        assert json.loads(json.dumps(task.params)) == dict(task.params)
        assert task.max_steps == BY_NAME[name].max_steps


@pytest.mark.parametrize("name", NAMES)
def test_one_instance_is_asked_for_in_three_ways_or_more(name: str) -> None:
    params = SUITE.instance(name, 0).params
    assert len({BY_NAME[name].goal(params, random.Random(seed)) for seed in range(60)}) >= 3


@pytest.mark.skipif(not FACTS.exists(), reason="AndroidWorld's facts are not beside the checkout")
@pytest.mark.parametrize("name", NAMES)
def test_names_budgets_and_parameters_are_androidworlds(name: str) -> None:
    facts = next(fact for fact in json.loads(FACTS.read_text())["tasks"] if fact["name"] == name)
    spec = BY_NAME[name]
    assert spec.max_steps == facts["step_budget"]
    assert spec.difficulty == facts["difficulty"]
    assert list(spec.apps) == facts["apps"]
    assert spec.verify == ("verification" in facts["tags"])
    allowed = set(facts["param_names"]) | set(facts["params_schema"].get("properties", ()))
    for seed in range(5):
        assert set(SUITE.instance(name, seed).params) <= allowed


@pytest.mark.skipif(not FACTS.exists(), reason="AndroidWorld's facts are not beside the checkout")
def test_oracle_plays_androidworlds_own_instances() -> None:
    """An instance drawn elsewhere, given by its parameters alone, is set up, solved and judged here."""
    played = 0
    for fact in json.loads(FACTS.read_text())["tasks"]:
        if fact["name"] not in BY_NAME:
            continue
        params = {key: value for key, value in fact["example_params_seed30"].items() if key != "seed"}
        own = SUITE.instance(fact["name"], 0)
        for name in {"noise_candidates", "noise_row_objects"} & params.keys():  # the lists are cut off in the facts
            params[name] = own.params[name]
        if "row_objects" in params:
            params["row_objects"] = completed(params["row_objects"], own.params["row_objects"])
        phone = SimPhone()
        phone.reset(replace(own, params=params))
        for action in phone.oracle() or ():
            result = phone.step(action)
        assert result.outcome is not None, fact["name"]
        assert result.outcome.success, fact["name"]
        played += 1
    assert played == len(TASKS)


@pytest.mark.slow
def test_junk_never_raises_and_observations_stay_sound() -> None:
    steps = 0
    for place, name in enumerate(NAMES):
        phone = started(name, 5, max_steps=10_000)
        rng = random.Random(place)
        words = ("Settings", "markor", "Simple SMS Messenger", "Contacts", "a\nb", "", "🙂", "x" * 300, "+15550100")
        for _ in range(120):
            action = random_action(MOBILE, phone.frame.observation, rng, ending=False, words=words)
            result = phone.step(action)
            assert result.info["effect"]
            elements = result.observation.elements
            assert [element.index for element in elements] == list(range(len(elements)))
            assert all(element.box is not None and element.box.area > 0 for element in elements)
            assert all(element.box.right <= 1080 and element.box.bottom <= 2400 for element in elements if element.box)
            assert len({element.key for element in elements}) == len(elements), "keys are unique on a screen"
            steps += 1
    assert steps > 4000


@pytest.mark.parametrize("seeds", [(0,), pytest.param((1, 2, 3), marks=pytest.mark.slow)])
def test_oracle_recovers_after_junk(seeds: tuple[int, ...]) -> None:
    """Half-typed text, wrong pages, open dialogs: nearly everything can be mended; only lost data cannot."""
    tried = lost = 0
    for name in NAMES:
        for seed in seeds:
            phone = started(name, seed, max_steps=10_000)
            rng = random.Random(seed)
            for _ in range(3):
                solution = phone.oracle() or ()
                for action in solution[: rng.randrange(len(solution) or 1)]:
                    phone.step(action)
                for _ in range(rng.randrange(1, 5)):
                    phone.step(random_action(MOBILE, phone.frame.observation, rng, ending=False))
            tried += 1
            solution = phone.oracle()
            if solution is None:
                lost += 1
                continue
            results = [phone.step(action) for action in solution]
            assert results[-1].outcome is not None, (name, seed)
            assert results[-1].outcome.success, (name, seed)
    assert lost <= 0.05 * tried, f"{lost} of {tried}"


def test_oracle_knows_when_nothing_can_be_done() -> None:
    phone = started("MarkorMoveNote", 0)
    assert phone.oracle()
    source = f"/storage/emulated/0/Documents/Markor/{SUITE.instance('MarkorMoveNote', 0).params['source_folder']}"
    for action in (phone.oracle() or ())[:1]:
        phone.step(action)
    assert phone.frame.index(f"net.gsantner.markor:id/item/{source.rpartition('/')[2]}") is not None
    index = phone.frame.index(f"net.gsantner.markor:id/item/{source.rpartition('/')[2]}")
    phone.step(MOBILE.make("long_press", index=index))
    phone.step(MOBILE.make("click", index=phone.frame.index("net.gsantner.markor:id/action_delete")))
    phone.step(MOBILE.make("click", index=phone.frame.index("net.gsantner.markor:id/delete__ok")))
    assert phone.oracle() is None
