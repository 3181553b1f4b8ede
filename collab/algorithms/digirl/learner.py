"""Value models of states and tasks, and the turns that they choose.

In an online epoch, with y the verdict on an episode (1 or 0) and H the step limit of its task:

    V of tasks     ←  classify y from the task's words                       (eq. 2.5)
    V of states    ←  classify y from each state of an episode               (eq. 2.6)
    episodes       =  the share p with the largest y − V of their task       (eq. 2.4, `keep_episodes`)
    steps          =  those of them with an advantage above 1/H              (eq. 2.3, `step_advantage`)
    policy         ←  imitate these turns                                    (eq. 2.2, `losses.nll`)

In the offline phase the episodes are those that were solved. Value models are classifiers on frozen features of the
checkpoint that the training began with (`collab.models.features`), fitted on four fifths of the episodes; the rest
tells how well they predict.

Each epoch leaves, beside the lesson: `features.safetensors`, of its own states and tasks, and `values/`, the fitted
models with their optimizers. So nothing is encoded twice, and a resumed epoch fits from where the one before ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from collab.algorithms.digirl.config import DigiRLMethod
from collab.algorithms.experience import JudgedEpisode
from collab.algorithms.state_features import (
    NO_SCREENSHOT,
    Matrix,
    load_features,
    time_encoding,
    time_updates,
    write_fresh_features,
)
from collab.algorithms.turn_learner import (
    VALUING,
    Experience,
    TurnLearner,
    estimate_alike,
    get_lesson_dir,
    hash_beside_lessons,
)
from collab.errors import Diverged
from collab.loop.config import TrainingConfig
from collab.loop.examples import OTHER_PROMPT
from collab.loop.interfaces import TriedStep
from collab.loop.ranges import NONE_ASKED, LabelEstimate
from collab.loop.state import LoopState
from collab.seeds import derive
from collab.trainers.rl.estimators import awr_weights, keep_episodes, keep_steps, step_advantage
from collab.trainers.rl.step_estimates import StepEstimate
from collab.utils.concurrency import run_in_background
from collab.utils.files import read_json, report_write_errors, write_json

if TYPE_CHECKING:
    from collab.trainers.rl.values import ValueModel

VALUES, METRICS = "values", "values.json"
"""Beside a lesson; the metrics are written last."""
STEP, INSTRUCT = "step", "instruct"
"""The two value models."""
NAMES = {STEP: "states", INSTRUCT: "tasks"}
"""Value model → what it values."""
NOT_SOLVED, NOT_BETTER = "not solved", "its outcome is no better than was expected of its task"
BEYOND_SHARE = "outcomes of others were expected less"
NO_ROW = "no remembered episode that is not held out from fitting"
TOO_LITTLE = "its advantage is at most the threshold"
NO_VALUES = "values could not be fitted"


class DigiRLLearner(TurnLearner):
    """Learns the steps that V of states and V of tasks choose."""

    async def estimate(self, state: LoopState, group: str, experience: Experience) -> list[StepEstimate]:
        """Encode the new states, fit both value models, and estimate every step that may be chosen."""
        method = state.config.method
        assert isinstance(method, DigiRLMethod), "the loop gives each algorithm its own method"
        with state.time_part(VALUING, whole=True):
            await run_in_background(write_fresh_features, state, group, experience, method.values.encoder)
            return await run_in_background(_fit_and_estimate, state, group, experience)

    def read_metrics(self, state: LoopState, number: int, group: str) -> dict[str, Any]:
        """Return how well values predict."""
        return {"values": _read_fitted(state, number, group)}

    def read_obstacle(self, state: LoopState, number: int, group: str) -> str | None:
        """Return that a fit of values was lost, if one was."""
        return _explain_lost(_read_fitted(state, number, group))

    def read_hashes(self, state: LoopState, number: int) -> dict[str, str]:
        """Return the digest of the value models."""
        return {"values": hash_beside_lessons(state, number, VALUES)}


async def estimate_values(config: TrainingConfig, tried: TriedStep) -> LabelEstimate:
    """Estimate what values take, for `--plan`: encoding of every step, and the updates of both models."""
    method = config.method
    assert isinstance(method, DigiRLMethod), "the loop gives each algorithm its own method"
    seconds, size = await run_in_background(time_encoding, config, tried, method.values.encoder)
    each = await run_in_background(time_updates, method.values.recipe, size)
    updates = map(method.get_value_updates, range(1, method.epochs + 1))
    return LabelEstimate(
        name="values",
        doing="valuing",
        asked=NONE_ASKED,
        seconds=seconds,
        fixed_s=each * sum(one.step + one.instruct for one in updates) * len(config.groups),
    )


# -------------------------------------------------------------------------------------------------------- values


def _fit_and_estimate(state: LoopState, group: str, experience: Experience) -> list[StepEstimate]:
    """Fit both value models, write them with how well they predict, and estimate every step that may be chosen."""
    method, number, buffer = state.config.method, experience.number, {one.key for one in experience.episodes}
    assert isinstance(method, DigiRLMethod), "the loop gives each algorithm its own method"
    if method.is_everything_learned:
        everything = [one for epoch in sorted(experience.judged) for one in experience.judged[epoch]]
        experience = replace(experience, episodes=everything)
    features = load_features(state, group, experience)
    unknown = NO_SCREENSHOT if method.values.encoder.image is not None else OTHER_PROMPT
    # Of episodes without features nothing is known: they are neither fitted on nor learned.
    known = [one for one in experience.episodes if one.key in features]
    valued: dict[tuple[str, str], list[StepEstimate]] = {}
    fitted = dict[str, Any]()
    if known:
        states = np.concatenate([features[one.key].states for one in known])
        instructions = np.concatenate([features[one.key].task for one in known])
        models = _load_models(state, group, number, states.shape[1])
        # A network that was never fitted knows nothing, so the first choice is made behind the first fit in any case.
        first = method.curriculum is None or method.curriculum.fits_first or not models[INSTRUCT].steps
        # Values are fitted on the replay buffer, also where older episodes may be chosen.
        held = np.array([one.key in buffer for one in known])
        on = [one for one in known if one.key in buffer]
        rows = np.repeat(held, [one.steps for one in known])
        before, unread = (None, None) if first else _read_values(models[INSTRUCT], instructions)
        fitted = _fit(state, group, number, models, on, states[rows], instructions[held])
        found, lost = _read_values(models[STEP], states)
        expected, unfitted = (before, unread) if not first else _read_values(models[INSTRUCT], instructions)
        for name, why in ((STEP, lost), (INSTRUCT, unfitted)):
            if why is not None and "lost" not in fitted[name]:
                fitted[name] = {"lost": why}
        if found is None or expected is None or _explain_lost(fitted):
            valued = {one.key: estimate_alike(one, weight=0.0, why=NO_VALUES) for one in known}
        else:
            values = np.split(found, np.cumsum([one.steps for one in known])[:-1])
            chosen = choose_episodes(method, number, np.array([one.reward for one in known]), expected)
            valued = {
                one.key: estimate_episode(method, one, value, task, why)
                for one, value, task, why in zip(known, values, expected.tolist(), chosen, strict=True)
            }
    estimates = [
        estimate
        for one in experience.episodes
        for estimate in valued.get(one.key) or estimate_alike(one, weight=0.0, why=unknown)
    ]
    place = get_lesson_dir(state.folder, number, group)
    with report_write_errors(place, state.folder.resume):
        place.mkdir(parents=True, exist_ok=True)
        write_json(place / METRICS, fitted)
    return estimates


def _read_values(model: ValueModel, features: Matrix) -> tuple[NDArray[np.float64] | None, str | None]:
    """Return the values of a model, and None; or None, and why they are no numbers."""
    try:
        return model.values(features), None
    except Diverged as diverged:
        return None, diverged.what


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
    return {name: ValueModel(method.values.recipe, size=size, seed=seed) for name, seed in seeds.items()}


def _fit(
    state: LoopState,
    group: str,
    number: int,
    models: Mapping[str, ValueModel],
    known: Sequence[JudgedEpisode],
    states: Matrix,
    instructions: Matrix,
) -> dict[str, Any]:
    """Fit both models on the remembered episodes, write them, and return how well each predicts.

    A fit that is not possible or diverged is undone and noted as {"lost": why}; the next epoch begins with the model it
    left.
    """
    method = state.config.method
    assert isinstance(method, DigiRLMethod), "the loop gives each algorithm its own method"
    updates = method.get_value_updates(number)
    data: dict[str, tuple[Matrix, list[float], list[str], int]] = {
        INSTRUCT: (instructions, [one.reward for one in known], [name_episode(one) for one in known], updates.instruct),
        STEP: (
            states,
            [one.reward for one in known for _ in range(one.steps)],
            [name_episode(one) for one in known for _ in range(one.steps)],
            updates.step,
        ),
    }
    found: dict[str, Any] = {}
    place = get_lesson_dir(state.folder, number, group) / VALUES
    # Every state of an episode has the target of its outcome: V learns how often one gets home from there.
    with report_write_errors(place, state.folder.resume):
        for name, (features, targets, episodes, steps) in data.items():
            seed = derive(state.config.run.seed, "value updates", number, group, name)
            try:
                # A network that was never fitted knows nothing, and must choose nothing.
                if all(models[name].is_held_out(one) for one in episodes) and not models[name].steps:
                    found[name] = {"lost": NO_ROW}
                else:
                    found[name] = asdict(models[name].fit(features, targets, episodes, steps=steps, seed=seed))
            except Diverged as diverged:
                found[name] = {"lost": diverged.what}
            models[name].save(place / name)
    return found


# ------------------------------------------------------------------------------------------------------ estimates


def choose_episodes(
    method: DigiRLMethod, number: int, rewards: NDArray[np.float64], expected: NDArray[np.float64]
) -> list[str]:
    """Return for each episode "kept", or why it is not learned."""
    how, is_offline = method.curriculum, method.get_offline(number) is not None
    # Advantage-weighted regression without a curriculum chooses nothing: weights alone tell episodes apart.
    if how is None and (method.reweighting is not None or not is_offline):
        return ["kept" for _ in rewards]
    if is_offline:
        # The public code takes a quantile of outcomes, which lets failures through where successes are few.
        kept = (
            keep_episodes(rewards, top=how.top, form="quantile", positive=False)
            if how and how.form == "quantile"
            else rewards > 0
        )
        return ["kept" if one else NOT_SOLVED for one in kept]
    assert how is not None
    surprise = rewards - expected
    kept = keep_episodes(surprise, top=how.top, least=how.least, positive=how.positive, form=how.form)
    return [
        "kept" if one else BEYOND_SHARE if more > 0 else NOT_BETTER for one, more in zip(kept, surprise, strict=True)
    ]


def name_episode(episode: JudgedEpisode) -> str:
    """Return the name by which an episode is held out from fits or not: it is the same wherever a training lies."""
    return f"{episode.epoch}/{episode.trajectory}"


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
        advantages, weights, threshold = None, np.ones(episode.steps), None
    else:
        advantages = (
            reward - values
            if how.form == "monte-carlo"
            else step_advantage(reward, values, decay=how.decay, form=how.form)
        )
        if method.reweighting is None:
            threshold = 1 / episode.limit if how.threshold == "limit" else how.threshold
            weights = keep_steps(advantages, threshold).astype(float)
        else:
            threshold = None
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
            threshold=threshold,
            weight=float(weights[step]) if why == "kept" else 0.0,
            why=why if why != "kept" or weights[step] else TOO_LITTLE,
        )
        for step in range(episode.steps)
    ]


def _read_fitted(state: LoopState, number: int, group: str) -> dict[str, Any]:
    found: dict[str, Any] = read_json(
        get_lesson_dir(state.folder, number, group) / METRICS, "remove the epoch's examples"
    )
    return found


def _explain_lost(fitted: Mapping[str, Any]) -> str | None:
    """Return in words which fits were lost; None if none was."""
    lost = {name: one["lost"] for name, one in fitted.items() if "lost" in one}
    if not lost:
        return None
    told = "; ".join(f"V of {NAMES[name]}: {why}" for name, why in lost.items())
    # Rows come with more episodes; only a diverged fit is mended by settings.
    advice = "a lower values.learning_rate, in another training, may mend that"
    if set(lost.values()) == {NO_ROW}:
        advice = "the next epoch's episodes, or more of them (steps or episodes), mend that"
    return f"{NO_VALUES}: {told}; {advice}"
