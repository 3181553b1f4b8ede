"""Verdicts: rules, noise, what is missing, and what a rollout gets of them."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collab.errors import UsageError
from collab.rewards.verifiers.base import OutcomeVerifier, Verdict, VerifierInput, build_verdict
from collab.rewards.verifiers.registry import VerifierChoice, VerifierDefinition
from collab.rewards.verifiers.rules import NOT_OVER, NoisyVerifier, RulesVerifier
from collab.rewards.verifiers.store import VERDICTS
from collab.rewards.verifiers.verdicts import VerifiedRollout, VerifyingProgress, verify_rollout
from collab.store.run import RunStore
from collab.types import EpisodeError, Outcome, Trajectory
from collab.utils.concurrency import PATIENCE
from collab.utils.trust import vouch


class Moody:
    """A verifier of a user that fails, errs and misbehaves by the name of the task; see `TROUBLE`."""

    name, version, sees = "moody", "1", frozenset({"text"})

    async def verify(self, case: VerifierInput) -> Any:
        ASKED.append(case.trajectory)
        trouble = TROUBLE.get(case.episode.task.name)
        if trouble == "raises":
            raise RuntimeError("its head aches")
        if trouble == "prose":
            return "I would say that it went well."
        if trouble == "silent":
            return build_verdict(case, self, None, missing="it shrugs")
        return build_verdict(case, self, True)


ASKED: list[str] = []
TROUBLE: dict[str, str] = {}


@pytest.fixture(autouse=True)
def calm() -> None:
    ASKED.clear()
    TROUBLE.clear()


@pytest.fixture
def run(corridor, tmp_path: Path) -> Path:  # type: ignore[no-untyped-def]
    shutil.copytree(corridor[1], tmp_path / "run")
    return tmp_path / "run"


def choose(kind: str = "rules", **fields: Any) -> VerifierChoice:
    vouch({"kind": kind})
    return VerifierChoice(name=kind, definition=VerifierDefinition(kind=kind, **fields))


def verify(run: Path, choice: VerifierChoice, **options: Any) -> VerifiedRollout:
    with RunStore.open(run).open_reader() as reader:
        episodes = list(reader.iterate_trajectories())
        return asyncio.run(verify_rollout(episodes, reader, choice, **options))


def judge(verifier: OutcomeVerifier, case: VerifierInput) -> Verdict:
    return asyncio.run(verifier.verify(case))


def test_rules_take_the_outcome_and_judge_no_middle(corridor) -> None:  # type: ignore[no-untyped-def]
    for episode in corridor[2]:
        verdict = judge(RulesVerifier(), VerifierInput(episode=episode))
        assert (verdict.success, verdict.score, verdict.missing) == (episode.success, episode.outcome.score, None)
        assert verdict.step == len(episode.steps)
        middle = judge(RulesVerifier(), VerifierInput(episode=episode, step=1))
        assert (middle.success, middle.missing, middle.step) == (None, NOT_OVER, 1)


def test_an_input_shows_the_episode_up_to_the_judged_screen(corridor) -> None:  # type: ignore[no-untyped-def]
    episode = corridor[2][0]
    whole, middle = VerifierInput(episode=episode), VerifierInput(episode=episode, step=2)
    assert (len(whole.screens), len(whole.actions)) == (len(episode.steps) + 1, len(episode.steps))
    assert whole.screens[-1] == episode.final
    assert (len(middle.screens), len(middle.actions)) == (3, 2)
    assert middle.screens[-1] == episode.steps[2].observation
    assert whole.digest != middle.digest
    other = replace(episode, outcome=Outcome(success=False, score=0.0))
    assert VerifierInput(episode=other).digest != whole.digest
    assert VerifierInput(episode=other, step=2).digest == middle.digest


def test_a_verdict_is_given_or_missing_and_never_both() -> None:
    told: dict[str, Any] = dict(trajectory="a/0", step=1, case="c", verifier="v-1")
    with pytest.raises(ValueError, match="success or missing"):
        Verdict(**told, success=True, missing="no")
    with pytest.raises(ValueError, match="success or missing"):
        Verdict(**told, success=None)


def invent(number: int, success: bool) -> VerifierInput:
    from collab.types import Task

    task = Task(environment="fake", name="T", seed=number, goal="g")
    outcome = Outcome(success=success, score=float(success))
    episode = Trajectory(id=f"T/{number}", task=task, episode=number, epoch=0, steps=(), final=None, outcome=outcome)
    return VerifierInput(episode=episode)


def test_noise_inverts_its_shares_and_the_same_ones_again() -> None:
    noisy = NoisyVerifier(verifier=RulesVerifier(), false_positives=0.3, false_negatives=0.1, seed=5)
    found = {(number, won): judge(noisy, invent(number, won)) for number in range(1000) for won in (True, False)}
    wrong = {
        won: sum(one.success is not won for (_, truth), one in found.items() if truth is won) for won in (True, False)
    }
    assert 60 < wrong[True] < 140
    assert 250 < wrong[False] < 350
    for (_, won), one in found.items():
        assert one.original == (won if one.success is not won else None)
        assert one.score == float(bool(one.success))
        assert one.verifier == "rules-1+fp0.3+fn0.1"
    again = NoisyVerifier(verifier=RulesVerifier(), false_positives=0.3, false_negatives=0.1, seed=5)
    other = replace(again, seed=6)
    assert all(judge(again, invent(*key)) == one for key, one in list(found.items())[:50])
    assert any(judge(other, invent(*key)).success != one.success for key, one in list(found.items())[:50])


def test_noise_leaves_what_is_missing_missing(corridor) -> None:  # type: ignore[no-untyped-def]
    noisy = NoisyVerifier(verifier=RulesVerifier(), false_positives=1.0, false_negatives=1.0)
    verdict = judge(noisy, VerifierInput(episode=corridor[2][0], step=1))
    assert (verdict.success, verdict.missing, verdict.original) == (None, NOT_OVER, None)


def test_a_rollout_is_judged_once_and_its_digest_does_not_depend_on_when(run: Path) -> None:
    with RunStore.open(run).open_reader() as reader:
        episodes = {one.id: one for one in reader.iterate_trajectories()}
        first, second = list(episodes.values())
        choice = choose()
        one_by_one = asyncio.run(verify_rollout([second], reader, choice, name="parts"))
        assert list(one_by_one.verdicts) == [second.id]
        one_by_one = asyncio.run(verify_rollout([first, second], reader, choice, name="parts"))
    whole, progress = verify(run, choice), VerifyingProgress()
    assert whole.successes == {name: one.success for name, one in episodes.items()}
    assert one_by_one.digest == whole.digest
    assert verify(run, choice, progress=progress).digest == whole.digest
    assert (progress.known, progress.judged) == (2, 0)
    assert VERDICTS.list_names(run) == ["parts", "rules"]
    flipped = verify(run, choose(false_positives=1.0, false_negatives=1.0), name="wrong")
    assert flipped.digest != whole.digest
    assert flipped.successes == {name: not won for name, won in whole.successes.items()}


def test_broken_episodes_are_not_judged(run: Path) -> None:
    with RunStore.open(run).open_reader() as reader:
        (first, second) = reader.iterate_trajectories()
        broken = replace(first, outcome=None, error=EpisodeError(type="EnvironmentFailure", message="gone", step=0))
        found = asyncio.run(verify_rollout([broken, second], reader, choose()))
    assert list(found.verdicts) == [second.id]
    assert not found.missing


def test_an_error_and_prose_are_missing_verdicts_and_asked_again(run: Path) -> None:
    TROUBLE.update(OpenDoors="raises", TypeWord="prose")
    choice = choose(f"{__name__}:Moody")
    found = verify(run, choice, name="moody")
    assert not found.verdicts
    assert not found.successes
    causes = sorted(found.missing)
    assert len(causes) == 2
    assert "RuntimeError: its head aches" in causes[1]
    assert "Verdict wanted, got 'I would say that it went well.'" in causes[0]
    TROUBLE.update(OpenDoors="silent", TypeWord="")
    found = verify(run, choice, name="moody")
    assert found.missing == {"it shrugs": 1}
    assert list(found.successes.values()) == [True]
    assert len(ASKED) == 4
    verify(run, choice, name="moody")
    assert len(ASKED) == 4, "a missing verdict is a result and not asked for again"


def test_another_verifier_under_the_same_name_is_refused(run: Path) -> None:
    verify(run, choose(), name="mine")
    with pytest.raises(UsageError, match=r"verdicts 'mine' of .* were made with verifier 'rules-1', now it is"):
        verify(run, choose(false_positives=0.5), name="mine")
    verify(run, choose(false_positives=0.5), name="noisy", seed=1)
    with pytest.raises(UsageError, match="were made with seed 1, now it is 2; keep both"):
        verify(run, choose(false_positives=0.5), name="noisy", seed=2)


def test_a_verifier_that_always_fails_stops_the_work(run: Path) -> None:
    with RunStore.open(run).open_reader() as reader:
        first = next(reader.iterate_trajectories())
        many = [replace(first, id=f"OpenDoors/{number}") for number in range(3 * PATIENCE)]
        TROUBLE.update(OpenDoors="raises")
        found = asyncio.run(verify_rollout(many, reader, choose(f"{__name__}:Moody"), name="moody", concurrency=1))
    assert found.stopped is not None
    assert found.stopped.startswith(f"{PATIENCE} failures in a row, the last: verifier moody on step")
    assert len(found.failed) == PATIENCE
