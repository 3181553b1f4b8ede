"""AppVLM: what a round plays, what is imitated and how often, where the final fine-tuning begins; step accuracy."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from collab.algorithms.appvlm.algorithm import format_accuracy
from collab.algorithms.appvlm.config import AppVLMMethod
from collab.algorithms.appvlm.learner import (
    COLLECTING,
    Demonstrated,
    StepAccuracy,
    UnsolvedTasks,
    balance_tasks,
    find_repeats,
)
from collab.algorithms.experience import JudgedEpisode
from collab.algorithms.turn_learner import get_lesson_dir
from collab.cli.main import main
from collab.config import override
from collab.errors import ConfigError, RunFormatError, UsageError
from collab.library import Library
from collab.loop.configure import configure
from collab.loop.interfaces import load_algorithm, load_method
from collab.loop.loop import TrainingResult, resume, start
from collab.loop.record import TrainingDir
from collab.loop.report import format_epochs
from collab.seeds import generator
from collab.testing.toy_team import configure_toy_training, write_library
from collab.trainers.prepare import read_task
from collab.trainers.rl.step_estimates import read_estimates
from collab.trainers.rl.turns import Turn, read_lesson
from collab.trainers.run_dir import FinetuneDir
from collab.utils.files import write_json

APPVLM = load_algorithm("appvlm")


def remember(task: str, number: int, reward: float = 1.0) -> JudgedEpisode:
    """An episode of two steps."""
    return JudgedEpisode(
        run="./epochs/1/rollout",
        trajectory=f"{task}/{number}",
        epoch=1,
        task=task,
        instance=f"{task}#{number}",
        goal="Press the red button",
        limit=8,
        steps=2,
        reward=reward,
        versions=(0, 0),
    )


def load(*settings: str) -> AppVLMMethod:
    method = override(load_method(APPVLM), list(settings))
    assert isinstance(method, AppVLMMethod)
    return method


def test_a_task_with_few_solutions_counts_as_one_with_tau_of_them() -> None:
    played = [*(remember("rare", one) for one in range(2)), *(remember("often", one) for one in range(4))]
    played += [remember("rare", 9, reward=0.0), remember("never", 0, reward=0.0)]
    copies = balance_tasks(played, 3, generator(0))
    assert sorted(copies[one.key] for one in played if one.task == "rare" and one.reward) == [1, 2]
    assert [copies[one.key] for one in played if one.task == "often"] == [1, 1, 1, 1]
    assert sum(copies.values()) == 3 + 4
    assert balance_tasks(played, 3, generator(0)) == copies
    assert set(balance_tasks(played, None, generator(0)).values()) == {1}


def test_the_earlier_of_two_equal_screens_is_a_repeat() -> None:
    def look(index: int, text: str, picture: str | None = None) -> SimpleNamespace:
        return SimpleNamespace(index=index, observation=SimpleNamespace(digest=text, screenshot=picture))

    screens = [look(0, "home"), look(1, "list"), look(2, "list"), look(3, "list"), look(4, "home")]
    assert find_repeats(screens) == {1, 2}  # type: ignore[arg-type]
    # The text may say the same while the picture has changed; the last step has no next screen.
    assert find_repeats([look(0, "list", "one"), look(1, "list", "two")]) == set()  # type: ignore[list-item]
    assert find_repeats(screens[:1]) == set()  # type: ignore[arg-type]


def test_epochs_are_rounds_of_iterations_and_a_final_one() -> None:
    method = load("epochs=5", "rounds=2")
    epochs = range(1, 6)
    assert [method.is_played(one) for one in epochs] == [True, True, True, True, False]
    assert [method.is_learning(one) for one in epochs] == [False, True, False, True, True]
    assert [method.is_measured(one) for one in (0, *epochs)] == [True, False, True, False, True, True]
    for epochs_, rounds in ((4, 2), (1, 1), (2, 2)):
        with pytest.raises(ConfigError, match=rf"epochs: {epochs_}, but iterations of {rounds} rounds and the final"):
            load(f"epochs={epochs_}", f"rounds={rounds}")
    with pytest.raises(ConfigError, match="each fine-tuning begins with a new optimizer; set it false"):
        load("rl.keeps_optimizer=true")
    with pytest.raises(ConfigError, match=r"set rl\.lora\.merge=true"):
        load("final_from=undemonstrated", "rl.lora={rank: 4, alpha: 8}")
    order = load("passes=2", "final_passes=1", "rl.batch_rows=2", "epochs=3").draw(2, 3, generator(0))
    assert [len(one) for one in order] == [2, 1, 2, 1]
    assert Counter(one for step in order for one in step) == {0: 2, 1: 2, 2: 2}


def test_later_rounds_play_what_was_solved_too_seldom(tmp_path: Path) -> None:
    folder = TrainingDir(tmp_path)
    for epoch, solved in enumerate((("a", "a", "b"), ("b", "b")), start=1):
        place = folder.get_epoch(epoch).examples
        place.mkdir(parents=True)
        found = [remember(task, 10 * epoch + number) for number, task in enumerate(solved)]
        write_json(place / "experience.json", [one.model_dump(mode="json") for one in found])

    def ask(number: int, *settings: str) -> list[str]:
        config = SimpleNamespace(
            method=load("epochs=9", "tau=2", *settings), run=SimpleNamespace(tasks=["a", "b", "c"])
        )
        state = SimpleNamespace(config=config, folder=folder)
        return list(UnsolvedTasks().list_tasks(state, number))  # type: ignore[arg-type]

    assert ask(1) == ask(3) == ["a", "b", "c"]
    assert ask(2) == ["b", "c"]
    assert ask(2, "tau=null") == ["a", "b", "c"]
    assert ask(3, "rounds=4") == ["c"]
    assert ask(3, "rounds=4", "tau=1") == ["c"]


def test_every_ablation_changes_one_thing() -> None:
    changed = {
        name: {field for field, value in load(*one.settings) if value != getattr(load(), field)}
        for name, one in APPVLM.ablations.items()
    }
    assert changed == {
        "no-final": {"final_from"},
        "no-tau": {"tau"},
        "keep-repeats": {"drop_repeats"},
        "awo": {"final_from"},
    }


def test_awo_needs_a_checkpoint_without_demonstrations() -> None:
    asked = {"env": "androidworld", "graph": "single", "agents": "early", "algorithm": "appvlm", "ablation": "awo"}
    with pytest.raises(UsageError, match="name it with --set undemonstrated=DIR"):
        asyncio.run(_begin(Library(), **asked))


async def _begin(library: Library, **asked: str) -> None:
    config = await configure(library, **asked)  # type: ignore[arg-type]
    await start(config, Path("/nowhere/at/all"), device="cpu")


def test_step_accuracy_is_told_in_a_line() -> None:
    before = StepAccuracy(right=3, steps=4, instances=2, unknown=0)
    told = Demonstrated(right=1, steps=2, instances=2, unknown=1, before=before)
    assert format_accuracy(told) == [
        "steps    50% of 2 demonstrated ones are what the policy would do; 75% of 4 before any training; 1 instance "
        "without any"
    ]


# ------------------------------------------------------------------------------------------------ a whole training


@pytest.fixture(scope="module")
def library(finetuned: Path, tmp_path_factory: pytest.TempPathFactory) -> Library:
    return write_library(tmp_path_factory.mktemp("toy"), finetuned)


def train(library: Library, out: Path, *settings: str) -> TrainingResult:
    config = asyncio.run(configure_toy_training(library, *settings, algorithm="appvlm", graph="single"))
    return asyncio.run(start(config, out, device="cpu", options={"allow_uncalibrated": True}))


def _name(turn: Turn) -> tuple[str, str]:
    """The episode of a turn."""
    return turn.run, turn.ref.trajectory


def read_base(training: Path, epoch: int) -> str:
    """The checkpoint that an epoch's fine-tuning began with."""
    return read_task(FinetuneDir(TrainingDir(training).get_epoch(epoch).get_training_dir("shared")).read()).base


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_final_policy_learns_everything_anew_from_the_base(
    library: Library, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    result = train(library, out)
    assert result.summary is not None
    _, collected, learned, final = result.records
    assert collected.untrained == {"shared": COLLECTING}
    assert collected.success is None
    assert (collected.recorded, learned.recorded) == ([], [])
    assert final.recorded == ["./epochs/1/rollout", "./epochs/2/rollout"]
    assert final.steps == collected.steps + learned.steps
    assert final.spent["rollout"].calls == 0
    assert not TrainingDir(out).get_epoch(3).rollout.exists()
    assert read_base(out, 2) == read_base(out, 3) == next(iter(result.records[0].weights.values()))
    # Both learn from all that was solved, and the final one, with as many passes, in another order.
    lessons = [read_lesson(get_lesson_dir(TrainingDir(out), one, "shared")) for one in (2, 3)]
    learned_of = [{(one.run, one.ref.trajectory, one.ref.step) for one in lesson.turns} for lesson in lessons]
    assert learned_of[0] == learned_of[1]
    assert {run for run, _, _ in learned_of[1]} == {"./epochs/1/rollout", "./epochs/2/rollout"}
    assert set(lessons[1].weights) == {1.0}
    solved = {one for one in read_estimates(get_lesson_dir(TrainingDir(out), 3, "shared")) if one.weight}
    assert all(one.reward == 1 for one in solved)
    told = "\n".join(format_epochs(result.records))
    assert f"epoch 1 | trained  shared stays as it was: {COLLECTING}" in told
    assert "epoch 3 | recorded " in told
    assert "epoch 3 | balance  1 task solved" in told
    assert "before any training" in told
    found = final.metrics["demonstrated"]
    assert (found["instances"], found["unknown"]) == (2, 0)
    assert 0 <= found["right"] <= found["steps"] > 0
    assert "step accuracy" in APPVLM.build_columns(final)
    # The rounds that the last epoch learns again are those of the training that is replayed.
    assert main(["train", "--replay", str(out), "--out", str(tmp_path / "again")]) == 0
    assert f"epoch 3: its lessons and weights are those of {out}" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_task_below_tau_is_repeated_and_ablations_begin_elsewhere(library: Library, tmp_path: Path) -> None:
    """With a verifier whose verdicts are given once, in the epoch that plays, and read again in the last one."""
    result = train(library, tmp_path / "no-final", "tau=60", "final_from=previous", "verifier=verifier-noisy")
    assert [one["judged"] for one in result.records[-1].metrics["verdicts"]] == [8, 8]
    assert ["verifier" in one.spent for one in result.records] == [False, True, True, False]
    number = result.records[-1].epoch
    lesson = read_lesson(get_lesson_dir(TrainingDir(result.path), number, "shared"))
    taken = Counter(_name(lesson.turns[place]) for step in lesson.order for place in step)
    kept = Counter(map(_name, lesson.turns))
    assert sum(taken[one] // kept[one] for one in kept) == 60
    assert read_base(result.path, number).endswith("epochs/2/training/final")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_checkpoint_that_was_exchanged_is_not_gone_on_with(library: Library, tiny: Path, tmp_path: Path) -> None:
    settings = ("final_from=undemonstrated", f"undemonstrated={tiny}", "demonstrations=0")
    result = train(library, tmp_path / "awo", *settings)
    assert read_base(result.path, 3) == str(tiny.resolve())
    head = TrainingDir(result.path)
    content = head.read()
    head.write({**{name: one for name, one in content.items() if name != "summary"}, "undemonstrated": {"solo": "0"}})
    with pytest.raises(RunFormatError, match=r"undemonstrated=.*has changed since the training began"):
        asyncio.run(resume(result.path))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_killed_training_ends_like_an_undisturbed_one() -> None:
    command = [sys.executable, "-m", "collab", "verify-resume", "--algo", "appvlm", "--quick", "--seed", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the same: killed 2 times" in done.stdout
