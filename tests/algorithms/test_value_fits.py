"""Whole trainings by DigiRL in which values read encoders of their own, or cannot be fitted.

The policy is a random one that solves nothing. Unless a test wants otherwise, every step is learned.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from collab.algorithms import state_features as features
from collab.algorithms.experience import TurnBuilder
from collab.algorithms.state_features import FEATURES, describe_state
from collab.algorithms.turn_learner import get_lesson_dir
from collab.errors import CollabError, ConfigError, NothingToLearn, RunFormatError, UnknownName, UsageError
from collab.library import Library
from collab.loop.estimate import format_plan, plan
from collab.loop.interfaces import Labels, NoLabels, Rollout, load_algorithm
from collab.loop.loop import TrainingResult, resume, start
from collab.loop.phases import load_trajectories
from collab.loop.ranges import NONE_ASKED
from collab.loop.record import TrainingDir
from collab.loop.state import LoopState
from collab.models.features import FeatureInput, TransformersEncoder
from collab.store.run import RunStore
from collab.testing.corridor import CorridorEnvironment, CorridorSuite
from collab.testing.toy_team import configure_toy_training, write_library
from collab.trainers.rl.step_estimates import ESTIMATES, read_estimates
from collab.trainers.rl.turns import read_lesson
from tests.models.test_features import draw, make_bert, save_image, save_text

DIGIRL = load_algorithm("digirl")
EVERY_STEP = ("offline=null", "curriculum=null", "advantage=null")
SMALL = (
    *("episodes=3", "updates=1", "rl.batch_rows=2", "held_out.before=false", "held_out.every=9", "held_out.episodes=1"),
    *(
        "determinism=fast",
        "agents.*.sampling.max_tokens=8",
        "value_updates={step: 2, instruct: 2}",
        "values.held_out=0",
    ),
)
Train = Callable[..., TrainingResult]


@pytest.fixture(scope="module")
def library_of_tiny(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Library:
    return write_library(tmp_path_factory.mktemp("library"), tiny)


@pytest.fixture(scope="module")
def encoders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("encoders")
    torch.set_num_threads(1)
    return {"text": save_text(folder / "text", make_bert), "image": save_image(folder / "image", "dinov2")}


@pytest.fixture
def train(library_of_tiny: Library, tmp_path: Path) -> Train:
    def run(*settings: str, algorithm: str = "digirl", out: str = "run") -> TrainingResult:
        asked = [one for one in SMALL if algorithm == "digirl" or not one.startswith("value")]
        config = asyncio.run(
            configure_toy_training(library_of_tiny, *asked, *settings, algorithm=algorithm, graph="single", seed=3)
        )
        return asyncio.run(start(config, tmp_path / out, device="cpu"))

    return run


class PicturedCorridor(CorridorEnvironment):
    """A corridor with screenshots, each screen of another shade."""

    async def screenshot(self, marks: bool = False) -> bytes:
        """Return a plain picture, darker after each step."""
        assert self._state is not None
        return draw(60 * self._state.steps)


@pytest.fixture
def pictured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Corridors are pictured ones."""

    async def open_pictured(suite: CorridorSuite) -> PicturedCorridor:
        return PicturedCorridor(suite)

    monkeypatch.setattr(CorridorSuite, "open", open_pictured)
    monkeypatch.setattr(CorridorSuite, "capabilities", CorridorSuite.capabilities | {"screenshot"})


def choose(**directories: Path) -> str:
    named = ", ".join(f"{kind}: {json.dumps(str(path))}" for kind, path in directories.items())
    return f"values.encoder={{kind: transformers, {named}}}"


# ----------------------------------------------------------------------------------------------------- encoders


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["both", pytest.param("hidden", marks=pytest.mark.slow)])
def test_a_plan_counts_the_encoding_of_states_and_the_fits(
    kind: str, library_of_tiny: Library, encoders: dict[str, Path], pictured: None
) -> None:
    """Encoding takes longer the more is played, fits take as long as there are updates."""
    encoder = [] if kind == "hidden" else [choose(**encoders)]
    asked = [*EVERY_STEP, *encoder, "episodes=400", "value_updates={step: 2000, instruct: 2000}"]
    config = asyncio.run(
        configure_toy_training(library_of_tiny, *SMALL, *asked, algorithm="digirl", graph="single", seed=3)
    )
    found = asyncio.run(plan(config, library_of_tiny, device="cpu"))
    (part,) = found.labels
    assert part.seconds is not None
    assert part.asked == NONE_ASKED.scale_to_steps(found.steps)
    # 8,000 updates take more than a second on any machine; with them, each state costs as much in every step.
    assert 1 < part.seconds.low < part.seconds.high
    assert found.total_s is not None
    assert found.total_s.low > part.seconds.low + found.play_s.low
    assert "valuing 0:" in format_plan(found)


@pytest.mark.medium
@pytest.mark.timeout(600)
def test_values_read_encoders_of_texts_and_pictures(
    train: Train, encoders: dict[str, Path], pictured: None, tmp_path: Path
) -> None:
    kept = {kind: shutil.copytree(path, tmp_path / kind) for kind, path in encoders.items()}
    result = train(*EVERY_STEP, choose(**kept), "determinism=exact")
    folder, encoder = TrainingDir(result.path), TransformersEncoder(text=str(kept["text"]), image=str(kept["image"]))
    assert folder.read()["encoder"] == encoder.digest
    # A state is its words, its screenshot and the one before; its task is the words alone.
    with safe_open(get_lesson_dir(folder, 1, "shared") / FEATURES, "np") as file:
        assert file.metadata() == {"encoder": encoder.digest}
        states, task = file.get_tensor("0.states"), file.get_tensor("0.task")
    place = folder.get_epoch(1).rollout
    episode = load_trajectories(place)[0]
    steps = list(episode.steps)
    with RunStore.open(place).open_reader() as reader:
        seen = [reader.read_blob(str(one.observation.screenshot)) for one in steps]
    goal = episode.task.goal
    assert len(steps) == len(states) == 3
    inputs = [
        FeatureInput(text=describe_state(goal, steps, index), pictures=tuple(seen[max(0, index - 1) : index + 1]))
        for index in range(3)
    ]
    assert states.tobytes() == encoder.encode(inputs).tobytes()
    assert task.tobytes() == encoder.encode([FeatureInput(text=goal)]).tobytes()
    assert inputs[2].text.endswith(f"\nTask: {goal}")
    assert len({states[index].tobytes() for index in range(3)}) == 3
    # All episodes failed, which is fitted, and said.
    assert any(
        "V        of states: accuracy -, AUC -, ECE - " in line for line in DIGIRL.format_lines(result.records[2])
    )
    assert any("fitted on failed episodes alone" in line for line in DIGIRL.format_lines(result.records[2]))

    # Moved, and resumed in its second epoch, it ends with the same values and weights.
    moved = TrainingDir(shutil.copytree(result.path, tmp_path / "elsewhere/moved"))
    shutil.rmtree(moved.get_epoch(2).path)
    moved.write({name: part for name, part in moved.read().items() if name != "summary"})
    again = shutil.copytree(moved.path, tmp_path / "again")
    resumed = asyncio.run(resume(moved.path))
    assert result.summary is not None
    assert resumed.summary == result.summary

    # Other weights at the same place are refused before anything is played.
    weights = kept["text"] / "model.safetensors"
    save_file({name: 2 * tensor for name, tensor in load_file(weights).items()}, weights, {"format": "pt"})
    with pytest.raises(RunFormatError, match=r"values\.encoder: \S+text, \S+image has changed since the"):
        asyncio.run(resume(again))
    shutil.rmtree(kept["image"])
    with pytest.raises(ConfigError, match=r"values\.encoder: \S+image: no such model directory"):
        asyncio.run(resume(again))
    assert not TrainingDir(again).get_epoch(2).path.exists()


@pytest.mark.timeout(600)
def test_an_episode_without_its_screenshots_is_left_out_by_name(
    train: Train, encoders: dict[str, Path], pictured: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an image encoder alone, which knows a task by the screen that its episode begins with."""
    read, lost = features.read_blob, list[str]()

    def read_but_one(run: Path, hash: str) -> bytes:
        if not lost:
            lost.append(hash)
            raise UnknownName("no such picture")
        return read(run, hash)

    monkeypatch.setattr(features, "read_blob", read_but_one)
    result = train(*EVERY_STEP, "epochs=1", choose(image=encoders["image"]))
    (_, record) = result.records
    assert record.metrics["left_out"] == {"a screenshot of it is not recorded": 3}
    assert record.metrics["kept"] == {"episodes": 2, "steps": 6}


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        (["{text}"], ConfigError, r"values\.encoder: /nowhere: no such model directory; name the one of an encoder"),
        (["{kind: transformers}"], ConfigError, "needs the directory of an encoder in text, in image, or in both"),
        (["{kind: hidden, text: /nowhere}"], ConfigError, "text: is of kind transformers; set kind: transformers"),
        (["{kind: clip}"], ConfigError, r"values\.encoder\.kind.*'hidden' or 'transformers'"),
        (["TEXT as image"], ConfigError, r"values\.encoder: \S+ models of type bert are no encoders of pictures"),
        (["IMAGE as text"], ConfigError, r"values\.encoder: \S+ models of type dinov2 are no encoders of texts"),
        (["IMAGE"], UsageError, r"values\.encoder\.image: fake\[corridor\] has no screenshots; leave"),
    ],
)
def test_encoders_are_refused_in_one_line(
    settings: list[str],
    error: type[CollabError],
    message: str,
    train: Train,
    encoders: dict[str, Path],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    (what,) = settings
    known = {
        "{text}": choose(text=Path("/nowhere")),
        "TEXT as image": choose(image=encoders["text"]),
        "IMAGE as text": choose(text=encoders["image"]),
        "IMAGE": choose(image=encoders["image"]),
    }
    if what == "TEXT as image":
        request.getfixturevalue("pictured")
    with pytest.raises(error, match=message) as caught:
        train(known.get(what, f"values.encoder={what}"))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_pictures_that_are_not_recorded_are_refused(train: Train, encoders: dict[str, Path], pictured: None) -> None:
    with pytest.raises(UsageError, match=r"values\.encoder\.image: needs screenshots, and run\.pictures is false"):
        train(choose(image=encoders["image"]), "run.pictures=false")


# ----------------------------------------------------------------------------------------------------- faults


@pytest.mark.timeout(600)
def test_values_that_are_no_numbers_leave_the_policy_as_it_was(train: Train) -> None:
    """Also in the first epoch, and the training goes on to its end."""
    result = train("values.loss=mse", "values.learning_rate=1.0e+30", "values.held_out=0")
    assert result.summary is not None
    _, first, second = result.records
    for record in (first, second):
        assert record.trained == {}
        assert record.untrained["shared"].startswith(
            "values could not be fitted: V of tasks: value model, step 2: loss"
        )
        assert record.untrained["shared"].endswith("; a lower values.learning_rate, in another training, may mend that")
        assert record.metrics["left_out"] == {"values could not be fitted": record.metrics["remembered"]["steps"]}
        lines = DIGIRL.format_lines(record)
        assert any("its fit was undone, and no turn is learned in this epoch" in line for line in lines)
        assert DIGIRL.build_columns(record)["V accuracy"] is None
    assert first.weights == second.weights == result.records[0].weights


def test_values_without_an_episode_to_fit_choose_nothing_and_ask_for_more(train: Train) -> None:
    result = train(*EVERY_STEP, "values.held_out=0.999", "episodes=1", "epochs=1")
    told = result.records[1].untrained["shared"]
    assert "no remembered episode that is not held out from fitting" in told
    assert told.endswith("; the next epoch's episodes, or more of them (steps or episodes), mend that")


class NoVerdicts(NoLabels):
    """Has no verdict on any episode."""

    async def label(self, state: LoopState, rollouts: Sequence[Rollout]) -> Sequence[Labels]:
        """Return no reward."""
        return [Labels(value={}) for _ in rollouts]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("algorithm", ["digirl", "filtered-bc"])
def test_without_a_judged_episode_there_is_nothing_to_learn(
    algorithm: str, train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load_algorithm(algorithm), "labeller", NoVerdicts())
    with pytest.raises(NothingToLearn, match="nothing to learn from this first rollout: no episode was judged; begin"):
        train("epochs=1", algorithm=algorithm)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["capacity=2"], r"every episode is longer than capacity=2, the longest has 3 steps; begin"),
        (
            [],
            r"0 of 3 judged episodes solved; steps without a turn to learn: 9 its prompt cannot be made again",
        ),
    ],
)
def test_episodes_that_cannot_be_learned_are_one_line(
    settings: list[str], message: str, train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too long for the buffer, or with prompts that cannot be made again."""
    if not settings:
        monkeypatch.setattr(TurnBuilder, "list_prompts", lambda builder, trajectory: None)
    with pytest.raises(NothingToLearn, match=message) as caught:
        train(*EVERY_STEP, *settings, "epochs=1")
    assert "\n" not in str(caught.value)


@pytest.mark.medium
@pytest.mark.timeout(600)
def test_an_epoch_without_features_after_the_first_trains_nothing_and_goes_on(
    train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The buffer holds the newest episode alone."""
    known = TurnBuilder.list_prompts

    def forget(builder: TurnBuilder, trajectory: str) -> Any:
        return None if "/2/" in builder.run else known(builder, trajectory)

    monkeypatch.setattr(TurnBuilder, "list_prompts", forget)
    result = train(*EVERY_STEP, "capacity=3", "epochs=3")
    assert result.summary is not None
    assert [set(one.trained) for one in result.records] == [set(), {"shared"}, set(), {"shared"}]
    assert result.records[2].untrained == {"shared": "no turn to learn in this epoch"}
    assert DIGIRL.format_lines(result.records[2]) == [
        "solved   0",
        "beyond   capacity: 2 episodes of this epoch",
        "kept     0 of 1 episodes, 0 of 3 steps",
        "left out 3: 3 its prompt cannot be made again exactly",
    ]


@pytest.mark.medium
@pytest.mark.timeout(600)
def test_episodes_that_left_the_buffer_may_still_be_chosen(train: Train) -> None:
    settings = ("offline=null", "advantage=null", "epochs=2", "episodes=2", "capacity=3", "values.hidden=8")
    folders = {
        pool: TrainingDir(train(*settings, f"curriculum={{pool: {pool}, top: 1, positive: false}}", out=pool).path)
        for pool in ("buffer", "all")
    }
    found = {
        pool: {one.run for one in read_estimates(get_lesson_dir(folder, 2, "shared"))}
        for pool, folder in folders.items()
    }
    assert found == {"buffer": {"./epochs/2/rollout"}, "all": {"./epochs/1/rollout", "./epochs/2/rollout"}}
    metrics = {pool: json.loads(folder.get_epoch(2).record.read_text())["metrics"] for pool, folder in folders.items()}
    # Values know the buffer alone, so both are fitted alike.
    assert metrics["all"]["values"]["instruct"]["trained"] == metrics["buffer"]["values"]["instruct"]["trained"] == 1
    assert metrics["all"]["remembered"]["episodes"] == 4


def test_one_step_fills_a_batch_and_one_class_is_fitted(train: Train) -> None:
    """One episode of one step: every turn of a batch is the same, drawn with replacement."""
    short = ("episodes=1", "rl.batch_rows=4", "epochs=1", "run.environment.backends.fake.options.max_steps=1")
    result = train(*EVERY_STEP, *short)
    (_, record), folder = result.records, get_lesson_dir(TrainingDir(result.path), 1, "shared")
    lesson = read_lesson(folder)
    assert [list(step) for step in lesson.order] == [[0, 0, 0, 0]]
    (estimate,) = read_estimates(folder)
    assert (estimate.value_next, estimate.weight, (folder / ESTIMATES).exists()) == (0.0, 1.0, True)
    step = record.metrics["values"]["step"]
    assert (step["trained"], step["solved"], step["auc"]) == (1, 0.0, None)
