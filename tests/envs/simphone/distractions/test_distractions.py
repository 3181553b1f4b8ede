"""All kinds together: solvable within the budget, exact, told by the label."""

import asyncio
import itertools
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collab.envs.grammar import MOBILE
from collab.envs.random_actions import draw_action
from collab.envs.simphone.content.people import RAW_CONTACTS
from collab.envs.simphone.core import FACTORY, SimPhone, build_noisy
from collab.envs.simphone.distractions.interruptions import KINDS
from collab.envs.simphone.distractions.presets import PRESETS, Distractions, adjust_preset, schedule
from collab.envs.simphone.state import rows
from collab.envs.simphone.suite import SimPhoneSuite
from collab.envs.simphone.tasks import TASKS
from collab.errors import ConfigError
from collab.types import Action

SUITE = SimPhoneSuite()
NAMES = [spec.name for spec in TASKS]
STORM = Distractions(interruptions=0.5, slowness=0.5, share=1.0, shuffle=True, restyle=True, rename=True)
"""Something happens as often as it can."""


def started(name: str, seed: int, distractions: Distractions) -> SimPhone:
    phone = SimPhone(distractions=distractions)
    phone.reset(SUITE.instance(name, seed))
    return phone


# ------------------------------------------------------------------------------------------------------ solvable


@pytest.mark.medium
@pytest.mark.variations
@pytest.mark.parametrize(
    ("distractions", "seed"),
    [(PRESETS["daily"], 0), (PRESETS["hostile"], 1), (STORM, 2)],
    ids=["daily", "hostile", "storm"],
)
def test_every_task_is_solved_within_its_budget(distractions: Distractions, seed: int) -> None:
    for name in NAMES:
        phone = started(name, seed, distractions)
        solution = phone.oracle()
        assert solution is not None, name
        assert len(solution) <= SUITE.instance(name, seed).max_steps, name
        results = [phone.step(action) for action in solution]
        assert results[-1].outcome is not None
        assert results[-1].outcome.success, name


def test_storm_disturbs_and_costs_steps() -> None:
    calm = sum(len(started(name, 0, PRESETS["calm"]).oracle() or ()) for name in NAMES[::4])
    storm = sum(len(started(name, 0, STORM).oracle() or ()) for name in NAMES[::4])
    assert storm > 1.2 * calm


def test_oracle_knows_what_will_come_after_wrong_turns() -> None:
    followed = 0
    for seed in range(30):
        name = NAMES[seed % len(NAMES)]
        phone = started(name, seed, STORM)
        rng = random.Random(seed)
        for _ in range(3):
            phone.step(draw_action(MOBILE, phone.frame.observation, rng, ending=False))
        solution = phone.oracle()
        if not solution or len(solution) > SUITE.instance(name, seed).max_steps - 3:
            continue
        followed += 1
        results = [phone.step(action) for action in solution]
        assert results[-1].outcome is not None
        assert results[-1].outcome.success, (name, seed)
    assert followed > 10


def test_oracle_forgets_a_solution_when_a_step_is_lost() -> None:
    phone = started("SystemWifiTurnOff", 2, STORM)
    first = phone.oracle()
    phone.step(Action(space="web", type="hover"))
    solution = phone.oracle()
    assert first
    assert solution
    results = [phone.step(action) for action in solution]
    assert results[-1].outcome is not None
    assert results[-1].outcome.success


# --------------------------------------------------------------------------------------------------------- exact


@pytest.mark.parametrize("preset", ["daily", "hostile"])
def test_equal_actions_lead_to_equal_screens_also_in_a_fork(preset: str) -> None:
    for name in NAMES[::7]:
        one, other = (started(name, 3, PRESETS[preset]) for _ in range(2))  # type: ignore[index]
        rng, fork = random.Random(name), None
        for step in range(9):
            action = draw_action(MOBILE, one.frame.observation, rng, ending=False)
            fork = one.fork() if step == 4 else fork
            seen = one.step(action)
            assert seen == other.step(action)
            if fork is not None:
                assert fork.step(action) == seen
            if seen.done:
                break


def test_what_comes_depends_on_the_seed() -> None:
    looks = {started("SystemWifiTurnOff", seed, PRESETS["hostile"]).frame.observation.text for seed in range(8)}
    assert len(looks) > 4


@given(
    st.floats(0, 0.5), st.floats(0, 0.5), st.floats(0, 1), st.integers(1, 4), st.integers(0, 999), st.integers(-3, 40)
)
def test_schedule_stays_within_its_share(
    interruptions: float, slowness: float, share: float, longest: int, seed: int, spare: int
) -> None:
    distractions = Distractions(interruptions=interruptions, slowness=slowness, share=share, longest_wait=longest)
    drawn = schedule(distractions, KINDS, seed, "a task", spare=spare, last=30)
    assert sum(one.cost for one in drawn.values()) <= share * max(0, spare)
    assert all(0 < step < 30 for step in drawn)
    assert all(one.cost == 1 or (one.kind == "slow" and 1 <= one.cost <= longest) for one in drawn.values())
    steps = sorted(drawn)
    assert all(later > step + drawn[step].cost for step, later in itertools.pairwise(steps))
    assert drawn == schedule(distractions, KINDS, seed, "a task", spare=spare, last=30)


def test_calm_is_the_phone_as_it_is() -> None:
    phone = started("ContactsAddContact", 1, PRESETS["calm"])
    assert (phone.phone.manner, phone.phone.cover, phone.phone.loading) == (FACTORY.manner, None, 0)
    for action in phone.oracle() or ():
        seen = phone.step(action).observation
        assert not {"font", "accent", "pictures", "banner"} & set(seen.drawing or ())


# --------------------------------------------------------------------------------------------------------- knobs


def test_label_and_version_tell_what_was_asked_for() -> None:
    assert SimPhoneSuite(preset="calm").label == "androidworld[simphone]"
    assert SimPhoneSuite(preset="hostile").label == "androidworld[simphone, hostile]"
    changed = SimPhoneSuite(preset="daily", language="german", interruptions=0.0)
    assert changed.label == "androidworld[simphone, daily, interruptions=0.0, language=german]"
    assert SimPhoneSuite(noise="none").label == "androidworld[simphone, noise=none]"
    versions = {SimPhoneSuite(preset=preset).version for preset in PRESETS}
    assert len(versions | {changed.version, SimPhoneSuite(noise="none").version}) == 5


def test_a_knob_set_as_the_preset_has_it_changes_nothing() -> None:
    assert adjust_preset("daily", {"shuffle": True, "language": None}) == PRESETS["daily"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"interruptions": 1.5}, "interruptions is 1.5"),
        ({"share": -0.1}, "share is -0.1"),
        ({"longest_wait": 0}, "longest_wait is 0"),
        ({"interruptions": 0.6, "slowness": 0.6}, "together"),
    ],
)
def test_bad_knobs_are_refused_in_one_line(changes: dict[str, float], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as error:
        adjust_preset("calm", changes)
    assert "\n" not in str(error.value)


def test_noise_grows() -> None:
    none, some, plenty = (
        len(rows(build_noisy(FACTORY, one, 5, "a task"), RAW_CONTACTS)) for one in ("none", "some", "plenty")
    )
    assert none < some < plenty


def test_suite_hands_its_preset_to_every_phone() -> None:
    suite = SimPhoneSuite(preset="hostile", language="german")
    environment = asyncio.run(suite.open())
    seen = asyncio.run(environment.reset(replace(suite.instance("SystemWifiTurnOff", 0), max_steps=99)))
    assert seen.title == "Startbildschirm"
