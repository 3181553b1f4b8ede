"""Value models of states and tasks, and the turns that they choose.

In an online epoch, with y the verdict on an episode (1 or 0) and H the step limit of its task:

    V of tasks     ←  classify y from the task's words                       (eq. 2.5)
    V of states    ←  classify y from each state of an episode               (eq. 2.6)
    episodes       =  the share p with the largest y − V of their task       (eq. 2.4, `keep_episodes`)
    steps          =  those of them with an advantage above 1/H              (eq. 2.3, `step_advantage`)
    policy         ←  imitate these turns                                    (eq. 2.2, `losses.nll`)

In the offline phase the episodes are those that were solved. Value models are classifiers on frozen features of the
checkpoint that the training began with (`collab.models.features`), fitted on four fifths of the tasks; the rest tells
how well they predict.

Each epoch leaves, beside the lesson: `features.safetensors`, of its own states and tasks, and `values/`, the fitted
models with their optimizers. So nothing is encoded twice, and a resumed epoch fits from where the one before ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from collab.algorithms.digirl.config import DigiRLMethod
from collab.algorithms.experience import JudgedEpisode, open_turn_builders
from collab.algorithms.turn_learner import Experience, TurnLearner, estimate_alike, get_lesson_dir
from collab.loop.examples import OTHER_PROMPT
from collab.loop.record import hash_json
from collab.loop.state import LoopState
from collab.seeds import derive
from collab.trainers.rl.estimators import awr_weights, keep_episodes, keep_steps, step_advantage
from collab.trainers.rl.turns import StepEstimate
from collab.utils.concurrency import run_in_background
from collab.utils.files import hash_file, read_json, report_write_errors, write_json

if TYPE_CHECKING:
    from collab.trainers.rl.values import ValueModel

FEATURES, VALUES, METRICS = "features.safetensors", "values", "values.json"
"""Beside a lesson; the metrics are written last."""
STEP, INSTRUCT = "step", "instruct"
"""The two value models."""
NOT_SOLVED, NOT_CHOSEN = "not solved", "its outcome is what was expected of its task"
TOO_LITTLE = "its advantage is at most the threshold"

Matrix = NDArray[np.float32]
"""(rows, size of the encoder)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeFeatures:
    """Features of an episode."""

    states: Matrix
    """(steps, size)."""
    task: Matrix
    """Features of its instruction alone, (1, size)."""


class DigiRLLearner(TurnLearner):
    """Learns the steps that V of states and V of tasks choose."""

    async def estimate(self, state: LoopState, group: str, experience: Experience) -> list[StepEstimate]:
        """Encode the new states, fit both value models, and estimate every remembered step."""
        await run_in_background(_encode_fresh, state, group, experience)
        return await run_in_background(_fit_and_estimate, state, group, experience)

    def read_metrics(self, state: LoopState, number: int) -> dict[str, Any]:
        """Return how much was kept, and how well values predict; of several policies, by name."""
        found = {
            group: read_json(get_lesson_dir(state.folder, number, group) / METRICS, "remove the epoch's examples")
            for group in state.config.groups
        }
        return found["shared"] if list(found) == ["shared"] else found

    def read_hashes(self, state: LoopState, number: int) -> dict[str, str]:
        """Return the digest of the value models."""
        places = [get_lesson_dir(state.folder, number, group) / VALUES for group in state.config.groups]
        files = sorted(file for place in places for file in place.rglob("*") if file.is_file())
        return {"values": hash_json([[str(file.relative_to(state.folder.path)), hash_file(file)] for file in files])}


# ------------------------------------------------------------------------------------------------------ features


def _encode_fresh(state: LoopState, group: str, experience: Experience) -> None:
    """Write the features of this epoch's episodes, unless they are written."""
    from safetensors.numpy import save_file

    from collab.models.features import FeatureInput, HiddenEncoder

    place = get_lesson_dir(state.folder, experience.number, group)
    if (place / FEATURES).exists():
        return
    slots = state.config.groups[group]
    # The checkpoint that the training began with, not the policy of the epoch: features stay comparable.
    encoder = HiddenEncoder(path=state.first.of(slots), adapter=state.first.get_adapter(slots), device=state.device)
    found: dict[str, Matrix] = {}
    with open_turn_builders(
        state.config, state.folder, (one.run for one in experience.fresh), experience.policy
    ) as builders:
        for index, one in enumerate(experience.fresh):
            prompts = builders[one.run].list_prompts(one.trajectory)
            if prompts is None:
                continue  # such an episode is left out by name when it is estimated
            found[f"{index}.states"] = encoder.encode([FeatureInput(ids=ids) for ids in prompts])
            found[f"{index}.task"] = encoder.encode([FeatureInput(text=one.goal)])
    with report_write_errors(place, state.folder.resume):
        place.mkdir(parents=True, exist_ok=True)
        part = place / f".{FEATURES}"
        save_file(found, part, metadata={"encoder": encoder.digest})
        part.replace(place / FEATURES)


def _load_features(state: LoopState, group: str, experience: Experience) -> dict[tuple[str, str], EpisodeFeatures]:
    """Return the features of the remembered episodes, by key; one whose prompts could not be rebuilt is missing."""
    from safetensors import safe_open

    wanted, found = {one.key for one in experience.episodes}, dict[tuple[str, str], EpisodeFeatures]()
    for epoch in dict.fromkeys(one.epoch for one in experience.episodes):
        path = get_lesson_dir(state.folder, epoch, group) / FEATURES
        with safe_open(path, framework="np") as file:
            names = set(file.keys())
            for index, one in enumerate(experience.judged[epoch]):
                if one.key in wanted and f"{index}.task" in names:
                    states, task = (file.get_tensor(f"{index}.{name}") for name in ("states", "task"))
                    found[one.key] = EpisodeFeatures(states=states, task=task)
    return found


# -------------------------------------------------------------------------------------------------------- values


def _fit_and_estimate(state: LoopState, group: str, experience: Experience) -> list[StepEstimate]:
    """Fit both value models, write them with how well they predict, and estimate every remembered step."""
    method, number = state.config.method, experience.number
    assert isinstance(method, DigiRLMethod), "the loop gives each algorithm its own method"
    features = _load_features(state, group, experience)
    # Of episodes whose prompts could not be rebuilt nothing is known: they are neither fitted on nor learned.
    known = [one for one in experience.episodes if one.key in features]
    states = np.concatenate([features[one.key].states for one in known])
    instructions = np.concatenate([features[one.key].task for one in known])
    rewards = np.array([one.reward for one in known])
    lengths = [one.steps for one in known]
    models = _load_models(state, group, number, states.shape[1])
    before = models[INSTRUCT].values(instructions) if method.curriculum and not method.curriculum.fits_first else None
    fitted = _fit(state, group, number, models, known, states, instructions)
    values = np.split(models[STEP].values(states), np.cumsum(lengths)[:-1])
    expected = models[INSTRUCT].values(instructions) if before is None else before
    chosen = choose_episodes(method, number, rewards, expected)
    valued = {
        one.key: estimate_episode(method, one, value, task, why)
        for one, value, task, why in zip(known, values, expected.tolist(), chosen, strict=True)
    }
    estimates = [
        estimate
        for one in experience.episodes
        for estimate in valued.get(one.key) or estimate_alike(one, weight=0.0, why=OTHER_PROMPT)
    ]
    _write_metrics(state, group, number, estimates, chosen, fitted)
    return estimates


def _load_models(state: LoopState, group: str, number: int, size: int) -> dict[str, ValueModel]:
    """Return the value models that the last epoch with any left; new ones before that."""
    from collab.trainers.rl.values import ValueModel

    method = state.config.method
    assert isinstance(method, DigiRLMethod), "the loop gives each algorithm its own method"
    places = (get_lesson_dir(state.folder, epoch, group) / VALUES for epoch in range(number - 1, 0, -1))
    place = next((one for one in places if (one / INSTRUCT).exists()), None)
    if place is not None:
        return {name: ValueModel.load(place / name) for name in (STEP, INSTRUCT)}
    seeds = {name: derive(state.config.run.seed, "value model", group, name) for name in (STEP, INSTRUCT)}
    return {name: ValueModel(method.values, size=size, seed=seed) for name, seed in seeds.items()}


def _fit(
    state: LoopState,
    group: str,
    number: int,
    models: Mapping[str, ValueModel],
    known: Sequence[JudgedEpisode],
    states: Matrix,
    instructions: Matrix,
) -> dict[str, Any]:
    """Fit both models on the remembered episodes, write them, and return how well each predicts."""
    method = state.config.method
    assert isinstance(method, DigiRLMethod), "the loop gives each algorithm its own method"
    updates = method.value_updates if number > 1 or method.offline is None else method.offline.values
    data: dict[str, tuple[Matrix, list[float], list[str], int]] = {
        INSTRUCT: (instructions, [one.reward for one in known], [one.task for one in known], updates.instruct),
        STEP: (
            states,
            [one.reward for one in known for _ in range(one.steps)],
            [one.task for one in known for _ in range(one.steps)],
            updates.step,
        ),
    }
    found: dict[str, Any] = {}
    place = get_lesson_dir(state.folder, number, group) / VALUES
    # Every state of an episode has the target of its outcome: V learns how often one gets home from there.
    with report_write_errors(place, state.folder.resume):
        for name, (features, targets, tasks, steps) in data.items():
            seed = derive(state.config.run.seed, "value updates", number, group, name)
            fitted = models[name].fit(features, targets, tasks, steps=steps, seed=seed)
            found[name] = asdict(fitted)
            models[name].save(place / name)
    return found


# ------------------------------------------------------------------------------------------------------ estimates


def choose_episodes(
    method: DigiRLMethod, number: int, rewards: NDArray[np.float64], expected: NDArray[np.float64]
) -> list[str]:
    """Return for each episode "kept", or why it is not learned."""
    if method.get_offline(number) is not None:
        return ["kept" if reward > 0 else NOT_SOLVED for reward in rewards]
    if method.curriculum is None:
        return ["kept" for _ in rewards]
    how = method.curriculum
    kept = keep_episodes(rewards - expected, top=how.top, least=how.least, positive=how.positive, form=how.form)
    return ["kept" if one else NOT_CHOSEN for one in kept]


def estimate_episode(
    method: DigiRLMethod, episode: JudgedEpisode, values: NDArray[np.float64], expected: float, why: str
) -> list[StepEstimate]:
    """Return the estimates of an episode's steps.

    Args:
        values: V of each state, (steps,).
        expected: V of its task.
        why: "kept", or why the episode is not learned.
    """
    how, reward = method.advantage, episode.reward
    # Advantages are computed for every episode, also for one that is not chosen: the inspector shows them all.
    if how is None:
        advantages, weights = None, np.ones(episode.steps)
    else:
        advantages = (
            reward - values
            if how.form == "monte-carlo"
            else step_advantage(reward, values, decay=how.decay, form=how.form)
        )
        threshold = 1 / episode.limit if how.threshold == "limit" else how.threshold
        weights = keep_steps(advantages, threshold).astype(float)
        if method.reweighting is not None:
            weights = awr_weights(advantages, method.reweighting.temperature, most=method.reweighting.most)
    return [
        StepEstimate(
            run=episode.run,
            trajectory=episode.trajectory,
            step=step,
            reward=reward,
            value=float(values[step]),
            value_next=float(values[step + 1]) if step + 1 < episode.steps else 0.0,
            instruct_value=expected,
            instruct_advantage=reward - expected,
            advantage=None if advantages is None else float(advantages[step]),
            weight=float(weights[step]) if why == "kept" else 0.0,
            why=why if why != "kept" or weights[step] else TOO_LITTLE,
        )
        for step in range(episode.steps)
    ]


def _write_metrics(
    state: LoopState,
    group: str,
    number: int,
    estimates: Sequence[StepEstimate],
    chosen: Sequence[str],
    fitted: Mapping[str, Any],
) -> None:
    """Write how much is kept, and how well the value models predict."""
    place = get_lesson_dir(state.folder, number, group)
    found = {
        "remembered": {"episodes": len(chosen), "steps": len(estimates)},
        "kept": {"episodes": chosen.count("kept"), "steps": sum(one.weight > 0 for one in estimates)},
        "left_out": dict(Counter(one.why for one in estimates if not one.weight)),
        "values": dict(fitted),
    }
    with report_write_errors(place, state.folder.resume):
        write_json(place / METRICS, found)
