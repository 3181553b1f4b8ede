"""DigiRL: which steps it learns and why, that it goes on where it was killed, and what it refuses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from collab.algorithms.digirl.config import ABLATIONS, DigiRLMethod
from collab.algorithms.digirl.learner import (
    BEYOND_SHARE,
    NOT_BETTER,
    NOT_SOLVED,
    TOO_LITTLE,
    choose_episodes,
    estimate_episode,
)
from collab.algorithms.experience import JudgedEpisode
from collab.cli.main import main
from collab.config import override
from collab.errors import ConfigError
from collab.loop.configure import apply_ablation
from collab.loop.interfaces import load_algorithm, load_method

DIGIRL = load_algorithm("digirl")


def make_method(*settings: str) -> DigiRLMethod:
    method = override(load_method(DIGIRL), settings)
    assert isinstance(method, DigiRLMethod)
    return method


def make_episode(reward: float, steps: int = 3, limit: int = 10) -> JudgedEpisode:
    return JudgedEpisode(
        run="./epochs/2/rollout",
        trajectory="Task/0",
        epoch=2,
        task="Task",
        instance="Task#1",
        goal="Do it.",
        limit=limit,
        steps=steps,
        reward=reward,
        versions=(1, 1),
    )


def test_the_steps_of_an_episode_by_hand() -> None:
    """V = .2, .5, .8, λ = .5, solved: A = .475, .65, 1 (published), all above 1/10; failed: .225, -.2, 0."""
    method = make_method()
    found = estimate_episode(method, make_episode(1.0), np.array([0.2, 0.5, 0.8]), 0.25, "kept")
    assert [one.advantage for one in found] == pytest.approx([0.475, 0.65, 1.0])
    assert [(one.value, one.value_next) for one in found] == [(0.2, 0.5), (0.5, 0.8), (0.8, 0.0)]
    assert {(one.instruct_value, one.instruct_advantage, one.threshold, one.weight, one.why) for one in found} == {
        (0.25, 0.75, 0.1, 1.0, "kept")
    }
    failed = estimate_episode(method, make_episode(0.0), np.array([0.2, 0.5, 0.1]), 0.25, "kept")
    assert [one.advantage for one in failed] == pytest.approx([0.225, -0.2, 0.0])
    # A good step of a failed episode is learned: that is what values are for.
    assert [(one.weight, one.why) for one in failed] == [(1.0, "kept"), (0.0, TOO_LITTLE), (0.0, TOO_LITTLE)]
    strict = estimate_episode(
        make_method("advantage.threshold=0.5"), make_episode(1.0), np.array([0.2, 0.5, 0.8]), 0, "kept"
    )
    assert [one.weight for one in strict] == [0.0, 1.0, 1.0]
    unchosen = estimate_episode(method, make_episode(1.0), np.array([0.2, 0.5, 0.8]), 0.25, NOT_BETTER)
    assert {(one.weight, one.why) for one in unchosen} == {(0.0, NOT_BETTER)}


def test_an_episode_of_one_step_is_worth_its_outcome() -> None:
    """A = y. Where the limit is one step, too, the threshold is 1/1: only a certain success passes."""
    values = np.array([0.4])
    for reward, limit, weight in ((1.0, 10, 1.0), (0.0, 10, 0.0), (1.0, 1, 1.0), (0.0, 1, 0.0)):
        (found,) = estimate_episode(make_method(), make_episode(reward, 1, limit), values, 0.5, "kept")
        assert (found.advantage, found.value_next, found.weight) == (reward, 0.0, weight)
    # Less than certain is not enough there, whatever the form of the advantage.
    plain = make_method("advantage.form=monte-carlo")
    (found,) = estimate_episode(plain, make_episode(1.0, 1, 1), values, 0.5, "kept")
    assert (found.advantage, found.weight, found.why) == (pytest.approx(0.6), 0.0, TOO_LITTLE)


def test_episodes_are_chosen_by_what_their_task_promised() -> None:
    rewards, expected = np.array([1.0, 1.0, 0.0, 0.0]), np.array([0.9, 0.1, 0.5, 0.0])
    method = make_method("curriculum.top=0.25", "curriculum.least=1")
    assert choose_episodes(method, 2, rewards, expected) == [BEYOND_SHARE, "kept", NOT_BETTER, NOT_BETTER]
    # At least so many, but never one that went no better than expected.
    many = make_method("curriculum.top=0.25", "curriculum.least=4")
    assert choose_episodes(many, 2, rewards, expected) == ["kept", "kept", NOT_BETTER, NOT_BETTER]
    assert choose_episodes(make_method("curriculum=null"), 2, rewards, expected) == ["kept"] * 4
    # The offline phase learns what was solved.
    assert choose_episodes(method, 1, rewards, expected) == ["kept", "kept", NOT_SOLVED, NOT_SOLVED]
    assert choose_episodes(make_method("curriculum=null"), 1, rewards, expected) == ["kept"] * 2 + [NOT_SOLVED] * 2
    # The public code takes a quantile there: with few successes it is that of failures, and all pass.
    released = load_method(DIGIRL, "released")
    assert isinstance(released, DigiRLMethod)
    assert choose_episodes(released, 1, np.array([1.0] + [0.0] * 19), np.zeros(20)) == ["kept"] * 20
    assert (
        choose_episodes(released, 1, np.array([1.0] * 5 + [0.0] * 15), np.zeros(20)) == ["kept"] * 5 + [NOT_SOLVED] * 15
    )
    # Weights alone tell episodes apart in plain advantage-weighted regression.
    vanilla = make_method("curriculum=null", "advantage.form=monte-carlo", "reweighting={}")
    assert choose_episodes(vanilla, 1, rewards, expected) == ["kept"] * 4


def test_each_ablation_changes_what_it_says() -> None:
    values, episode = np.array([0.2, 0.5, 0.8]), make_episode(1.0)
    changed = {name: apply_ablation(DIGIRL, load_method(DIGIRL), name, graph="single")[0] for name in ABLATIONS}
    whole = changed["no-step-advantage"]
    assert isinstance(whole, DigiRLMethod)
    assert [(one.advantage, one.weight) for one in estimate_episode(whole, episode, values, 0, "kept")] == [
        (None, 1.0)
    ] * 3
    vanilla = changed["vanilla-awr"]
    assert isinstance(vanilla, DigiRLMethod)
    assert vanilla.curriculum is None
    found = estimate_episode(vanilla, episode, values, 0, "kept")
    assert [one.advantage for one in found] == pytest.approx([0.8, 0.5, 0.2])
    assert [one.weight for one in found] == pytest.approx(np.exp([0.8, 0.5, 0.2]).tolist())
    weighed = changed["awr-exp"]
    assert isinstance(weighed, DigiRLMethod)
    found = estimate_episode(weighed, episode, values, 0, "kept")
    assert [one.weight for one in found] == pytest.approx(np.exp([0.475, 0.65, 1.0]).tolist())
    assert {one.threshold for one in found} == {None}, "all steps are learned"
    assert changed["offline-only"].epochs == 1
    assert changed["mse-values"].values.loss == "mse"  # type: ignore[attr-defined]


def test_the_offline_phase_has_its_own_steps_and_updates() -> None:
    method = make_method("offline={steps: 300, updates: 40, values: {step: 9, instruct: 8}}", "steps=60", "updates=3")
    assert [(method.get_steps(one), method.get_updates(one)) for one in (1, 2)] == [(300, 40), (60, 3)]
    assert (method.get_episodes(1), method.get_episodes(2)) == (300, None)
    assert make_method("offline=null").get_updates(1) == 8
    assert [make_method("held_out.every=3", "epochs=5").is_measured(one) for one in range(6)] == [
        *(True, False, False, True, False, True)
    ]


def test_reweighting_without_advantages_is_refused() -> None:
    with pytest.raises(ConfigError, match="reweighting: weighs steps by their advantage, but advantage is null"):
        make_method("advantage=null", "reweighting={}")


def test_the_released_advantage_needs_a_number_for_its_threshold() -> None:
    with pytest.raises(ConfigError, match=r"threshold: limit, but the form released subtracts 0\.05 .*; set adv"):
        make_method("advantage.form=released")
    assert make_method("advantage={form: released, threshold: 0}").advantage is not None


def test_a_team_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    asked = ["--env", "androidworld", "--graph", "team", "--agents", "early", "--device", "cpu"]
    assert main(["train", "--algo", "digirl", *asked, "--out", str(tmp_path / "run")]) == 2
    assert (
        "learns from what one agent said, but the graph has 12 cells a step; use --graph single"
        in capsys.readouterr().err
    )
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_killed_training_ends_like_an_undisturbed_one(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "collab.__main__", "verify-resume", "--algo", "digirl"]
    done = subprocess.run([*command, "--quick", "--seed", "1"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the same: killed 2 times" in done.stdout
    assert "values" in done.stdout
