"""Features of states and tasks that value models read: which encoder gives them, and where they are kept.

    write_fresh_features(state, group, experience, choice)   # of this epoch's episodes, once
    features = load_features(state, group, experience)       # of the remembered ones
    seconds, size = time_encoding(config, tried, choice)     # for `--plan`

A hidden state is that of the step's own prompt. Encoders of their own read a state in words (`describe_state`) and the
screenshots of this step and the one before, as the public code does; of an episode without one of its screenshots there
are no features. Each epoch's file names the encoder that computed it, and one training has one encoder.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import field_validator, model_validator

from collab.algorithms.experience import JudgedEpisode, TurnBuilder, open_turn_builders
from collab.algorithms.turn_learner import Experience, get_lesson_dir
from collab.config import Definition
from collab.errors import ConfigError, RunFormatError, UnknownName
from collab.loop.config import TrainingConfig
from collab.loop.interfaces import TriedStep
from collab.loop.policy import Policy, build_chat_tokenizer, make_path_absolute
from collab.loop.state import LoopState
from collab.store.blobs import read_blob
from collab.trainers.recipe import ValueRecipe
from collab.types import Observation, Step
from collab.utils.files import report_write_errors, resolve_within

if TYPE_CHECKING:
    from collab.models.features import FeatureEncoder, FeatureInput

FEATURES = "features.safetensors"
"""Beside a lesson."""
HISTORY = 3
"""Latest actions in the words of a state."""
_TIMED = 20
"""Updates that a plan measures."""
NO_SCREENSHOT = "a screenshot of it is not recorded"

Matrix = NDArray[np.float32]
"""(rows, size of the encoder)."""


class EncoderChoice(Definition):
    """The frozen encoder whose features value models read (see `collab.models.features`)."""

    kind: Literal["hidden", "transformers"] = "hidden"
    """"hidden" reads the hidden state of the first policy's checkpoint, "transformers" encoders of their own."""
    text: str | None = None
    """Directory of a text encoder (BERT, RoBERTa …), which reads screen, latest actions and task; None reads none."""
    image: str | None = None
    """Directory of an image encoder (SigLIP, DINOv2, CLIP, BLIP-2 …), which reads the screenshot and the one before;
    None reads none."""

    @field_validator("text", "image")
    @classmethod
    def _make_absolute(cls, path: str | None) -> str | None:
        # So that a training resumes from anywhere.
        return None if path is None else make_path_absolute(path)

    @model_validator(mode="after")
    def _has_directories(self) -> EncoderChoice:
        named = [name for name in ("text", "image") if getattr(self, name) is not None]
        if self.kind == "hidden" and named:
            raise ValueError(f"{named[0]}: is of kind transformers; set kind: transformers, or leave it out")
        if self.kind == "transformers" and not named:
            raise ValueError("kind: transformers needs the directory of an encoder in text, in image, or in both")
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeFeatures:
    """Features of an episode."""

    states: Matrix
    """(steps, size)."""
    task: Matrix
    """Features of its instruction alone, (1, size)."""


def open_encoders(choice: EncoderChoice, device: str) -> FeatureEncoder:
    """Load encoders of texts and pictures; ConfigError if there is none at its place."""
    from collab.models.features import TransformersEncoder

    try:
        return TransformersEncoder(text=choice.text, image=choice.image, device=device)
    except ConfigError as error:
        raise ConfigError(f"values.encoder: {error}") from None


def describe_state(goal: str, steps: Sequence[Step], index: int) -> str:
    """Return a state in words; the task stands last, for encoders cut what is too long at its beginning."""
    step = steps[index]
    done = [f"{one.history.action} -> {one.history.effect}" for one in steps[max(0, index - HISTORY) : index]]
    return "\n".join([step.observation.text, *done, f"Task: {goal}"])


def write_fresh_features(state: LoopState, group: str, experience: Experience, choice: EncoderChoice) -> None:
    """Write the features of this epoch's episodes, unless they are written."""
    from safetensors.numpy import save_file

    place = get_lesson_dir(state.folder, experience.number, group)
    if (place / FEATURES).exists():
        return
    # The checkpoint that the training began with, not the policy of the epoch: features stay comparable.
    encoder = _open_encoder(choice, state.first, state.config.groups[group], state.device)
    found: dict[str, Matrix] = {}
    runs = [one.run for one in experience.fresh]
    with open_turn_builders(state.config, state.folder, runs, experience.policy) as builders:
        for index, one in enumerate(experience.fresh):
            inputs = _list_inputs(state, choice, builders[one.run], one)
            if inputs is None:
                continue  # such an episode is left out by name when it is estimated
            found[f"{index}.states"] = encoder.encode(inputs)
            found[f"{index}.task"] = encoder.encode([_describe_task(choice, one.goal, inputs[0])])
    with report_write_errors(place, state.folder.resume):
        place.mkdir(parents=True, exist_ok=True)
        part = place / f".{FEATURES}"
        save_file(found, part, metadata={"encoder": encoder.digest})
        part.replace(place / FEATURES)


def load_features(state: LoopState, group: str, experience: Experience) -> dict[tuple[str, str], EpisodeFeatures]:
    """Return the features of the remembered episodes, by key; one that has none is missing.

    Raises:
        RunFormatError: two epochs have features of different encoders.
    """
    from safetensors import safe_open

    wanted, found = {one.key for one in experience.episodes}, dict[tuple[str, str], EpisodeFeatures]()
    digests: dict[int, str] = {}
    for epoch in dict.fromkeys((experience.number, *(one.epoch for one in experience.episodes))):
        path = get_lesson_dir(state.folder, epoch, group) / FEATURES
        with safe_open(path, framework="np") as file:
            digests[epoch] = (file.metadata() or {}).get("encoder", "")
            names = set(file.keys())
            for index, one in enumerate(experience.judged[epoch]):
                if one.key in wanted and f"{index}.task" in names:
                    states, task = (file.get_tensor(f"{index}.{name}") for name in ("states", "task"))
                    found[one.key] = EpisodeFeatures(states=states, task=task)
        if digests[epoch] != digests[experience.number]:
            raise RunFormatError(
                f"{path}: features of another encoder than those of epoch {experience.number}; values cannot be fitted "
                "on both; put back the encoder that the training began with, or train anew"
            )
    return found


def time_encoding(config: TrainingConfig, tried: TriedStep, choice: EncoderChoice) -> tuple[float, int]:
    """Encode the tried step, and return the seconds that it takes and the size of its features.

    Raises:
        ConfigError, ModelFailure: as a `FeatureEncoder`.
    """
    from collab.models.features import FeatureInput

    slots, steps = next(iter(config.groups.values())), tried.trajectory.steps
    encoder = _open_encoder(choice, tried.policy, slots, tried.device)
    inputs: list[FeatureInput] | None
    if choice.kind == "hidden":
        chat = build_chat_tokenizer(config.run.agents[slots[0]], tried.policy.of(slots))
        inputs = [FeatureInput(ids=chat.prompt_ids(tried.select_cells(slots)[1][0]).ids)]
    else:
        inputs = _list_seen(choice, tried.trajectory.task.goal, steps, tried.out)
    if inputs is None:
        raise ConfigError(f"values.encoder.image: {NO_SCREENSHOT}; leave it out, or name a text encoder alone")
    encoder.encode(inputs)  # the first computation also takes what a library sets up once
    began = time.perf_counter()
    size = encoder.encode(inputs).shape[1]
    return time.perf_counter() - began, size


def time_updates(recipe: ValueRecipe, size: int) -> float:
    """Fit a value model on random features of that size, and return the seconds of an optimizer step, for `--plan`."""
    from collab.trainers.rl.values import ValueModel

    rng = np.random.default_rng(0)
    features = rng.normal(size=(recipe.batch, size)).astype(np.float32)
    outcomes = [float(one) for one in rng.integers(2, size=recipe.batch)]
    model, names = ValueModel(recipe, size=size, seed=0), [str(one) for one in range(recipe.batch)]
    model.fit(features, outcomes, names, steps=1, seed=0)  # the first computation also sets up the scale
    began = time.perf_counter()
    model.fit(features, outcomes, names, steps=_TIMED, seed=1)
    return (time.perf_counter() - began) / _TIMED


# ------------------------------------------------------------------------------------------------------ inside


def _open_encoder(choice: EncoderChoice, first: Policy, slots: Sequence[str], device: str) -> FeatureEncoder:
    """Load the encoder of the policy of some slots, which a training begins with."""
    from collab.models.features import HiddenEncoder

    if choice.kind == "hidden":
        return HiddenEncoder(path=first.of(slots), adapter=first.get_adapter(slots), device=device)
    return open_encoders(choice, device)


def _describe_task(choice: EncoderChoice, goal: str, first: FeatureInput) -> FeatureInput:
    """Return what the encoder reads of a task; an image encoder alone knows it by its episode's first screen."""
    from collab.models.features import FeatureInput

    return FeatureInput(text=goal, pictures=() if choice.text else first.pictures)


def _list_inputs(
    state: LoopState, choice: EncoderChoice, builder: TurnBuilder, episode: JudgedEpisode
) -> list[FeatureInput] | None:
    """Return what the encoder reads of each state; None if a prompt or a screenshot is not known."""
    from collab.models.features import FeatureInput

    if choice.kind == "hidden":
        prompts = builder.list_prompts(episode.trajectory)
        return None if prompts is None else [FeatureInput(ids=ids) for ids in prompts]
    run = Path(resolve_within(state.folder.path, episode.run))
    return _list_seen(choice, episode.goal, builder.recorded.trajectories[episode.trajectory].steps, run)


def _list_seen(choice: EncoderChoice, goal: str, steps: Sequence[Step], run: Path) -> list[FeatureInput] | None:
    """Return what an encoder of its own reads of each step of an episode; None if a screenshot is not known.

    Args:
        run: directory with the screenshots.
    """
    from collab.models.features import FeatureInput

    pictures: list[bytes] = []
    if choice.image is not None:
        pictures = [seen for one in steps if (seen := _read_screenshot(run, one.observation)) is not None]
        if len(pictures) < len(steps):
            return None
    return [
        FeatureInput(text=describe_state(goal, steps, index), pictures=tuple(pictures[max(0, index - 1) : index + 1]))
        for index in range(len(steps))
    ]


def _read_screenshot(run: Path, observation: Observation) -> bytes | None:
    """Return a screen's picture, as it was taken or drawn from its record; None if there is neither."""
    from collab.envs.simphone.ui.screen import RENDERER

    if observation.screenshot is not None:
        try:
            return read_blob(run, observation.screenshot)
        except UnknownName:
            return None
    if observation.renderer != RENDERER:
        return None
    from collab.envs.simphone.ui.render import render_png

    return render_png(observation)
