"""Android Coach: candidates are compared within their state, sampled once, and learned as often as they were given."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import shutil
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collab.agents.agent import Agent
from collab.algorithms.coach.config import CoachMethod
from collab.algorithms.coach.samples import SAMPLES
from collab.algorithms.coach.truth import RatedReply, compare_with_truth
from collab.algorithms.turn_learner import get_lesson_dir
from collab.algorithms.value_store import VALUES
from collab.cli.main import main
from collab.config import override
from collab.errors import EnvironmentFailure, ModelFailure, RunFormatError
from collab.loop.interfaces import load_algorithm, load_method
from collab.loop.loop import TrainingResult, resume, start
from collab.loop.record import LABELS, TrainingDir
from collab.models.tokenizer import open_chat
from collab.rewards.base import CellScore, CriticCall, CriticInput, Judgement, build_judgement
from collab.rewards.labels import read_labels
from collab.rewards.oracle import SolutionCritic
from collab.seeds import generator
from collab.store.run import RunStore
from collab.testing.toy_team import configure_toy_training, write_library, write_toy_candidates
from collab.trainers.base_model import open_base
from collab.trainers.rl.candidates import read_candidates
from collab.trainers.rl.step_estimates import read_estimates
from collab.trainers.rl.token_values import JudgedReplies, TokenValues
from collab.trainers.rl.turns import read_lesson

COACH = load_algorithm("coach")
SMALL = (
    *("episodes=4", "k=3", "rl.batch_rows=6", "values={learning_rate: 1e-3, batch_rows: 8, sharing: prefix}"),
    *("determinism=fast", "held_out.before=false", "held_out.episodes=1", "rl.save_every=200"),
)


def make_method(*settings: str) -> CoachMethod:
    method = override(load_method(COACH), settings)
    assert isinstance(method, CoachMethod)
    return method


def train_in_corridor(checkpoint: Path, folder: Path, *settings: str, seed: int = 4) -> TrainingResult:
    """Train on a processor where tasks are easy enough to be solved at times."""
    library = write_library(folder / "library", checkpoint)
    config = asyncio.run(configure_toy_training(library, *SMALL, *settings, algorithm="coach", seed=seed))
    return asyncio.run(start(config, folder / "run", device="cpu"))


def test_replies_to_a_state_are_learned_in_one_step() -> None:
    method = make_method("k=4", "rl.batch_rows=16", "passes=2")
    steps = method.draw(1, 10, generator(0))
    assert [len(step) for step in steps] == [4, 4, 2] * 2
    assert sorted(state for step in steps[:3] for state in step) == list(range(10))
    assert [len(step) for step in make_method("k=8", "rl.batch_rows=4").draw(1, 2, generator(0))] == [1, 1]


def test_q_is_measured_against_what_the_environment_knows() -> None:
    def rate(*replies: tuple[float, float, int]) -> list[RatedReply]:
        return [RatedReply(value=value, truth=truth, count=count) for value, truth, count in replies]

    # In the first state Q takes the right one of three, in the second it takes the wrong one of two.
    found = compare_with_truth([rate((0.9, 1, 1), (0.5, 0, 2), (0.2, 0, 1)), rate((0.4, 0, 3), (0.3, 1, 1))])
    assert (found.states, found.pairs, found.rank_accuracy) == (2, 3, 2 / 3)
    assert (found.regret, found.chance) == (0.5, pytest.approx((0.75 + 0.75) / 2))
    assert found.auc == pytest.approx(4 / 6)
    # A Q that knows nothing is as good as chance, and a state with one kind of reply says nothing of order.
    blank = compare_with_truth([rate((0, 1, 1), (0, 0, 3))])
    assert (blank.rank_accuracy, blank.regret, blank.chance) == (0.5, 0.75, 0.75)
    assert compare_with_truth([rate((0, 1, 1), (0, 1, 1))]).rank_accuracy is None


@pytest.mark.medium
@pytest.mark.timeout(900)
def test_a_training_rates_candidates_and_ends_alike_when_it_is_resumed(
    finetuned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    result = train_in_corridor(finetuned, tmp_path, "epochs=2", "determinism=exact", "episodes=5", seed=6)
    folder = TrainingDir(result.path)
    assert result.summary is not None
    rollout, lessons = folder.get_epoch(2).rollout, get_lesson_dir(folder, 2, "shared")
    steps = list(read_estimates(lessons))
    rows = defaultdict(list)
    for one in read_candidates(lessons):
        rows[one.trajectory, one.step].append(one)

    # Three replies to each executed step, of which equal ones are one row.
    assert rows.keys() == {(one.trajectory, one.step) for one in steps}
    assert all(sum(one.count for one in each) == 3 for each in rows.values())
    assert all(len({one.text for one in each}) == len(each) for each in rows.values())
    assert all(sum(one.count * one.advantage for one in each) == pytest.approx(0, abs=1e-9) for each in rows.values())
    stored = SAMPLES.read(rollout, LABELS).judged
    assert {key: Counter(one.text for one in state.replies) for key, state in stored.items()} == {
        key: Counter({one.text: one.count for one in each}) for key, each in rows.items()
    }

    assert (result.records[2].spent["values"].seconds or 0) > 0, "a part of an epoch's time"

    # Returns are those of the formula, from the verdict and the critic's reward of each executed action.
    judged = read_labels(rollout, LABELS).judged
    by_episode = defaultdict(list)
    for one in steps:
        by_episode[one.trajectory].append(one)
    for name, each in by_episode.items():
        rewards = [judged[name, step].rewards.rewards[0].score for step in range(len(each))]
        assert [one.step_reward for one in each] == [None if one is None else float(one > 0.5) for one in rewards]
        for place, one in enumerate(each):
            rest = [0.95**k * (later.step_reward or 0) for k, later in enumerate(each[place:])]
            assert one.target == pytest.approx(0.2 * sum(rest) + one.reward)

    # The executed reply is rated with the others: where one of them is the same, it has the same Q.
    with RunStore.open(rollout).open_reader() as reader:
        played = {
            (one.id, step.index): next(iter(step.matrix)).text
            for one in reader.iterate_trajectories()
            for step in one.steps
        }
    same = [
        (one.value, each.value)
        for one in steps
        for each in rows[one.trajectory, one.step]
        if each.text == played[one.trajectory, one.step]
    ]
    assert len(same) > 1
    assert [one for one, _ in same] == pytest.approx([other for _, other in same], abs=1e-5)

    # What is learned are the candidates of states in which they differ, as often as they were given.
    lesson = read_lesson(lessons)
    apart = {key: each for key, each in rows.items() if any(one.advantage for one in each)}
    assert {(one.trajectory, one.step) for one in steps if one.weight} == apart.keys()
    assert sorted(lesson.weights) == pytest.approx(sorted(one.advantage for each in apart.values() for one in each))
    taken = Counter(row for step in lesson.order for row in step)
    assert sorted(taken.values()) == sorted(one.count for each in apart.values() for one in each)
    for step in lesson.order:
        together = {(lesson.turns[row].ref.trajectory, lesson.turns[row].ref.step) for row in step}
        assert sum(one.count for key in together for one in apart[key]) == len(step) <= 6

    told = result.records[2].metrics["coach"]
    assert (told["states"], told["apart"], told["failed"]) == (len(steps), len(apart), {})
    assert told["truth"]["states"] > 0
    lines = COACH.format_lines(result.records[2])
    assert any(line.startswith(f"replies  {len(apart)} of {len(steps)} states have replies") for line in lines)
    assert {"critic", "values", "samples"} <= result.records[2].hashes.keys()
    assert result.records[2].spent["samples"].calls == 3 * len(steps)

    # Moved, with half of its candidates lost, it samples those alone and ends with the same weights.
    moved = TrainingDir(shutil.copytree(result.path, tmp_path / "elsewhere"))
    for part in ("examples", "training", "policy", "evaluation"):
        shutil.rmtree(moved.get_epoch(2).path / part, ignore_errors=True)
    moved.get_epoch(2).record.unlink()
    moved.write({name: part for name, part in moved.read().items() if name != "summary"})
    (log,) = (moved.get_epoch(2).rollout / "samples" / LABELS / "events").glob("*.jsonl")
    kept = log.read_bytes().splitlines(keepends=True)[: len(steps) // 2]
    log.write_bytes(b"".join(kept))
    asked = []
    answer = Agent.answer_again

    async def count(self: Agent, *args: Any) -> Any:
        asked.append(args)
        return await answer(self, *args)

    monkeypatch.setattr(Agent, "answer_again", count)
    assert asyncio.run(resume(moved.path)).summary == result.summary
    assert len(asked) == 3 * (len(steps) - len(kept))
    assert main(["runs", "show", str(moved.path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["epochs"][2]["metrics"]["coach"]["states"] == len(steps)


@pytest.mark.medium
@pytest.mark.timeout(600)
def test_replies_that_failed_are_left_out_and_counted(
    finetuned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of three fails everywhere, and two of three at every fourth state: these have no candidates."""
    answer = Agent.answer_again

    async def fail(self: Agent, cell: Any, prompt: Any, seed: int, scene: Any) -> Any:
        state = states.setdefault(id(cell), len(states))
        numbers[state] += 1
        if numbers[state] <= (2 if state % 4 == 0 else 1):
            raise ModelFailure("no answer")
        return await answer(self, cell, prompt, seed, scene)

    states: dict[int, int] = {}
    numbers: Counter[int] = Counter()
    monkeypatch.setattr(Agent, "answer_again", fail)
    result = train_in_corridor(finetuned, tmp_path, "epochs=1")
    assert result.stopped is None
    told, lines = result.records[1].metrics["coach"], COACH.format_lines(result.records[1])
    steps = list(read_estimates(get_lesson_dir(TrainingDir(result.path), 1, "shared")))
    missed = [state for state in states.values() if state % 4 == 0]
    assert len(steps) == len(states) > 4
    assert told["unsampled"] == {"no answer": len(missed)}
    assert told["states"] == len(steps) - len(missed)
    assert told["failed"] == {"no answer": told["states"]}, "one at each of the others"
    assert f"failed {told['states']}: {told['states']} no answer" in [" ".join(one.split()) for one in lines]
    assert sum(one.why == "it has no candidate" for one in steps) == len(missed)
    assert result.records[1].spent["samples"].calls == 2 * told["states"] + len(missed), "what answered is paid for"


@pytest.mark.medium
@pytest.mark.timeout(600)
@pytest.mark.parametrize("lost", ["withheld", pytest.param("failed", marks=pytest.mark.slow)])
def test_a_reply_whose_companions_are_lost_teaches_nothing_and_is_counted(
    lost: str, finetuned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of two fails at every state but each fourth, or cannot be learned: the other one has nothing beside it."""
    answer = Agent.answer_again

    async def lose(self: Agent, cell: Any, prompt: Any, seed: int, scene: Any) -> Any:
        state = states.setdefault(id(cell), len(states))
        numbers[state] += 1
        if state % 4 == 0 or numbers[state] > 1:
            return await answer(self, cell, prompt, seed, scene)
        if lost == "failed":
            raise ModelFailure("no answer")
        return replace(await answer(self, cell, prompt, seed, scene), finish="content_filter")

    states: dict[int, int] = {}
    numbers: Counter[int] = Counter()
    monkeypatch.setattr(Agent, "answer_again", lose)
    result = train_in_corridor(finetuned, tmp_path, "epochs=1", "k=2")
    lessons = get_lesson_dir(TrainingDir(result.path), 1, "shared")
    rows = defaultdict(list)
    for one in read_candidates(lessons):
        rows[one.trajectory, one.step].append(one)
    alone = [each for each in rows.values() if sum(one.count for one in each) == 1]
    assert len(alone) == sum(state % 4 > 0 for state in states.values()) > 2
    assert any(each[0].value for each in alone), "Q is not 0, so it could be taken for an advantage"
    assert {each[0].advantage for each in alone} == {0.0}
    why = Counter(one.why for one in read_estimates(lessons))
    assert why["it has one reply, and none to compare that with"] == len(alone)
    assert result.records[1].metrics["left_out"]["it has one reply, and none to compare that with"] == len(alone)
    assert main(["runs", "show", str(result.path)]) == 0
    assert f"{len(alone)} it has one reply, and none to compare that with" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_fit_of_q_whose_values_are_no_numbers_is_undone_and_named(
    finetuned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also the one to synthesised candidates; replies are compared by Q as it was, here 0."""
    read, times = JudgedReplies.read, []

    def count(*given: Any) -> JudgedReplies:
        times.append(given)
        return read(*given)

    monkeypatch.setattr(JudgedReplies, "read", count)
    write_toy_candidates(tmp_path / "made")
    values = "values={learning_rate: 3.0e+37, batch_rows: 256, sharing: prefix}"
    settings = (values, f"pretraining={tmp_path / 'made'}", "pretraining_passes=1", "rehearsed=4")
    result = train_in_corridor(finetuned, tmp_path, "epochs=2", *settings)
    assert result.summary is not None
    assert len(times) == 2, "a process reads candidates once, behind the check before anything is played"
    for record in result.records[1:]:
        told = record.metrics["coach"]
        assert (told["steps"], told["loss"], told["pretrained"], told["unread"]) == (0, None, 0, None)
        assert told["lost"].endswith("some are no numbers; its fit was undone")
        assert told["states"] == record.steps
        assert record.metrics["left_out"] == {"its replies have one value": record.steps}
        assert any(told["lost"] in line for line in COACH.format_lines(record) if line.startswith("Q "))


@pytest.mark.timeout(600)
@pytest.mark.slow
def test_a_q_that_is_no_number_teaches_nothing_and_stops_nothing(
    finetuned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The next epoch begins with a new one, also when it is resumed there."""
    save = TokenValues.save

    def spoil(self: TokenValues, folder: Path) -> None:
        if "epochs/1/" in str(folder):
            self._model.head.bias.data.fill_(np.nan)
        save(self, folder)

    monkeypatch.setattr(TokenValues, "save", spoil)
    result = train_in_corridor(finetuned, tmp_path, "epochs=3", "episodes=4", "determinism=exact")
    assert result.summary is not None
    _, first, second, third = result.records
    assert first.trained
    assert second.trained == {}
    assert second.untrained["shared"].endswith(
        "some are no numbers; the next epoch begins with a new Q; a lower values.learning_rate, in another training, "
        "may mend that"
    )
    assert second.metrics["left_out"] == {"its values are no numbers": second.steps}
    assert second.metrics["coach"]["states"] == 0
    assert "samples" in first.spent
    assert "samples" not in second.spent, "nothing is sampled to no end"
    assert second.weights == first.weights
    assert third.metrics["coach"]["unread"] is None
    assert third.metrics["coach"]["steps"] > 0
    assert main(["runs", "show", str(result.path)]) == 0
    shown = capsys.readouterr().out
    assert "some are no numbers; it was not fitted; values of tokens" in shown
    assert f"{second.steps} its values are no numbers" in shown

    folder = TrainingDir(result.path)
    shutil.rmtree(folder.get_epoch(3).path)
    folder.write({name: part for name, part in folder.read().items() if name != "summary"})
    assert asyncio.run(resume(result.path)).summary == result.summary


@pytest.mark.medium
@pytest.mark.timeout(600)
@pytest.mark.parametrize("tried", [3, pytest.param(0, marks=pytest.mark.slow)])
def test_while_q_learns_alone_replies_are_sampled_where_q_is_compared_with_the_truth(
    tried: int, finetuned: Path, tmp_path: Path
) -> None:
    result = train_in_corridor(
        finetuned, tmp_path, f"epochs={2 if tried else 1}", "warmup_epochs=1", f"truth_states={tried}"
    )
    first, *later = result.records[1:]
    assert first.untrained == {"shared": "Q learns alone in this epoch"}
    assert first.metrics["coach"]["states"] == tried
    assert ("samples" in first.spent) is bool(tried)
    if tried:
        assert first.spent["samples"].calls == 3 * tried
        assert first.metrics["coach"]["truth"]["states"] in range(1, tried + 1)
    for record in later:
        assert record.metrics["coach"]["states"] == record.steps
        assert record.spent["samples"].calls == 3 * record.steps


def take_actions_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave every second sampled reply without an action."""
    answer = Agent.answer_again

    async def mumble(self: Agent, cell: Any, prompt: Any, seed: int, scene: Any) -> Any:
        said = await answer(self, cell, prompt, seed, scene)
        return said if seed % 2 else replace(said, action=None)

    monkeypatch.setattr(Agent, "answer_again", mumble)


@pytest.mark.medium
@pytest.mark.timeout(600)
def test_states_of_unknown_worth_are_no_truth_and_broken_ones_stop_nothing(
    finetuned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every second state breaks, and the others have no known solution, whether a reply gives an action or not."""
    count = itertools.count()

    async def score(state: Any, actions: Any) -> dict[Any, CellScore]:
        if next(count) % 2:
            raise EnvironmentFailure("the emulator is gone")
        return {action: CellScore.none("the environment knows no solution") for action in actions}

    take_actions_away(monkeypatch)
    monkeypatch.setattr("collab.algorithms.coach.truth.score_actions", score)
    result = train_in_corridor(finetuned, tmp_path, "epochs=1")
    assert result.stopped is None
    found = result.records[1].metrics["coach"]["truth"]
    broken = next(count) // 2
    assert (found["states"], found["pairs"], found["broken"]) == (0, 0, broken)
    assert broken > 1
    lines = COACH.format_lines(result.records[1])
    assert any(f"n = 0 states beside {broken} at which the environment broke" in line for line in lines)
    candidates = list(read_candidates(get_lesson_dir(TrainingDir(result.path), 1, "shared")))
    assert {one.truth for one in candidates} == {None}
    assert any(one.action is None for one in candidates)


@pytest.mark.medium
@pytest.mark.timeout(600)
def test_a_reply_without_an_action_is_worth_what_a_step_without_one_is(
    finetuned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It changes nothing, as in an episode; an action may lead on or astray."""
    take_actions_away(monkeypatch)
    result = train_in_corridor(finetuned, tmp_path, "epochs=1")
    candidates = list(read_candidates(get_lesson_dir(TrainingDir(result.path), 1, "shared")))
    known = [one for one in candidates if one.truth is not None]
    assert {one.truth for one in known if one.action is None} == {0.5}
    assert {one.truth for one in known if one.action is not None} > {1.0}


def rate_candidates(path: Path, checkpoint: Path, training: Path) -> tuple[list[float], list[float]]:
    """Return Q of right candidates and of wrong ones, behind the first epoch of a training."""
    method: Any = load_method(COACH)
    judged = JudgedReplies.read(path, open_chat(str(checkpoint)), 2048)
    place = get_lesson_dir(TrainingDir(training), 1, "shared") / VALUES
    model = TokenValues.load(place, method.values, open_base(str(checkpoint), method.rl), device="cpu")
    rated = list(zip((float(one.mean()) for one in model.compute(judged.rows)), judged.targets, strict=True))
    return [value for value, target in rated if target], [value for value, target in rated if not target]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_q_that_was_fitted_to_candidates_knows_the_difference(finetuned: Path, tmp_path: Path) -> None:
    count = write_toy_candidates(tmp_path / "made")
    library = write_library(tmp_path / "library", finetuned)
    told, known = {}, {}
    taught = (f"pretraining={tmp_path / 'made'}", "pretraining_passes=4", "rehearsed=5")
    for name, settings in (("blank", ()), ("taught", taught)):
        settings = (
            *settings,
            *SMALL,
            "episodes=8",
            "values.passes=6",
            "warmup_epochs=1",
            "epochs=1",
            "determinism=exact",
        )
        config = asyncio.run(configure_toy_training(library, *settings, algorithm="coach", seed=3))
        result = asyncio.run(start(config, tmp_path / name, device="cpu"))
        told[name] = result.records[1].metrics["coach"]
        assert result.records[1].untrained == {"shared": "Q learns alone in this epoch"}
        known[name] = [one.value for one in read_estimates(get_lesson_dir(TrainingDir(result.path), 1, "shared"))]
    assert (told["blank"]["pretrained"], told["taught"]["pretrained"]) == (0, count)
    # Whole states are drawn: a screen of the corridor has several right buttons and as many wrong words.
    assert told["blank"]["rehearsed"] == 0
    assert 5 <= told["taught"]["rehearsed"] < count
    # This policy presses buttons alone: before any return is known, each is thought right.
    assert told["blank"]["explained"] == pytest.approx(0)
    assert np.mean(known["taught"]) > np.mean(known["blank"])
    assert told["taught"]["mean_return"] == told["blank"]["mean_return"], "the same is played"
    right, wrong = rate_candidates(tmp_path / "made/candidate.parquet", finetuned, tmp_path / "taught")
    assert np.mean(right) > np.mean(wrong) + 0.3
    assert any("fitted to" in line and "at first" in line for line in COACH.format_lines(result.records[1]))

    # Other candidates than at the beginning are not taken for these.
    folder = TrainingDir(tmp_path / "taught")
    shutil.rmtree(folder.get_epoch(1).examples)
    folder.get_epoch(1).record.unlink()
    folder.write({name: part for name, part in folder.read().items() if name != "summary"})
    path = tmp_path / "made" / "candidate.parquet"
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(RunFormatError, match="not the candidates that this training began with; put them back"):
        asyncio.run(resume(folder.path))


@pytest.mark.medium
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("every", "is_asked"), [(5, True), (2, False), pytest.param(15, True, marks=pytest.mark.slow)])
def test_a_judge_that_says_neither_too_often_stops_the_epoch(
    every: int, is_asked: bool, finetuned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a fifth of the steps is asked about in vain it stops, resumable; fewer are left out and counted.

    Steps about which no model is asked, as an oracle does not know their solution, stop nothing.
    """
    judge, count = SolutionCritic.judge, itertools.count()

    async def mumble(self: SolutionCritic, case: CriticInput) -> Judgement:
        found = await judge(self, case)
        if next(count) % every:
            return found
        cells = tuple(one.cell for one in case.matrix)
        call = CriticCall(prompt="", model="prm", seed=0, reply="Hm.", cells=cells)
        cause = "neither True nor False" if is_asked else "the environment knows no solution"
        return build_judgement(case, self, dict.fromkeys(cells, CellScore.none(cause)), [call] if is_asked else [])

    monkeypatch.setattr(SolutionCritic, "judge", mumble)
    result = train_in_corridor(finetuned, tmp_path, "epochs=1", "episodes=4" if every == 2 else "episodes=8")
    if every == 5:
        assert "the critic gave no score about" in str(result.stopped)
        assert "Hm." in str(result.stopped)
        assert not TrainingDir(result.path).get_epoch(1).record.exists()
        # Its answers are settled, until they are thrown away as the message says.
        assert asyncio.run(resume(result.path)).stopped == result.stopped
        monkeypatch.setattr(SolutionCritic, "judge", judge)
        (named,) = re.findall(r"or remove (\S+) to have this one asked again", str(result.stopped))
        shutil.rmtree(named)
        again = asyncio.run(resume(result.path))
        assert again.summary is not None
        assert "neither True nor False" not in again.records[1].metrics["coach"]["unrewarded"]
        return
    assert result.stopped is None
    steps = list(read_estimates(get_lesson_dir(TrainingDir(result.path), 1, "shared")))
    missing = [one for one in steps if one.step_reward is None]
    # The exact critic has no score for a last step that the budget ended; these are left out as well.
    assert 1 < len(missing) < len(steps)
    told = result.records[1].metrics["coach"]["unrewarded"]
    assert sum(told.values()) == len(missing)
    cause = "neither True nor False" if is_asked else "the environment knows no solution"
    lines = [line for line in COACH.format_lines(result.records[1]) if line.startswith(f"unrewarded {len(missing)}: ")]
    assert f"{told[cause]} {cause}" in lines[0]
