"""A critic's rewards in a training: which critic, whether it may judge, and its judgements of a rollout.

A method has the settings of `CriticMethod`, and its configuration the critic of `CriticConfig`.

    known = await admit_critic(config, suite, calibrations=folder)        # before anything is played or paid
    labels = await judge_rollout(state, run, out, played)                 # each step once, beside the rollout

A judgement depends only on the step, the critic and its seed. No step is asked twice, so a killed process resumes where
it stopped.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, SerializeAsAny

from collab.config import Budget, PartDefinition, RunConfig
from collab.envs.base import Suite
from collab.errors import ConfigError, RunFormatError, UsageError
from collab.library import Library
from collab.loop.config import Method, TrainingConfig
from collab.loop.estimate import build_questions, count_prompt_tokens
from collab.loop.interfaces import TriedStep
from collab.loop.ranges import NONE_ASKED, Questions, Range
from collab.loop.record import LABELS, hash_json
from collab.loop.state import LoopState
from collab.models.base import Model
from collab.preferences.rebuild import ORACLE
from collab.rewards.base import Critic, CriticInput, Judgement, build_inputs
from collab.rewards.calibration.record import (
    EXEMPT,
    FOLDER,
    CalibrationRecord,
    admit,
    find_last_calibration,
    format_calibration,
)
from collab.rewards.calibration.run import HasQuestions
from collab.rewards.flip import find_asked
from collab.rewards.labelling import LabellingProgress, format_last_reply, label_cases
from collab.rewards.labels import FOLDER as LABELS_FOLDER
from collab.rewards.labels import LabelSet, LabelWriter, list_label_sets, read_labels
from collab.rewards.llm import TOO_LONG
from collab.rewards.registry import (
    MODEL,
    CriticChoice,
    CriticDefinition,
    CriticResources,
    doubt_key,
    load_critic,
    open_critic,
    read_critic_texts,
)
from collab.rewards.restore import StateRebuilder
from collab.rollout.build import build_suite
from collab.store.rewards import REWARDED_ABOVE
from collab.types import Trajectory
from collab.utils.text import format_amount

MOST_UNJUDGED = 0.5
"""Share of an epoch's steps that may be unjudged, unless an algorithm allows less."""


class CriticMethod(Method):
    """Settings of a critic whose rewards are learned from."""

    critic: str = "critic-llm"
    """Agents file of the critic; its rewards are learned from."""
    min_critic_auc: float | None = Field(default=0.7, ge=0, le=1)
    """AUC that the critic's latest calibration must reach (`collab critic calibrate`); None lets any critic judge. The
    oracle needs no calibration."""
    critic_flip: float | None = Field(default=None, ge=0, lt=1)
    """Share of the critic's rewards that are inverted on purpose, to measure what wrong credit costs; None for `flip`
    of its agents file."""

    @property
    def why_unasked(self) -> str | None:
        """Return why no critic is asked at all, in words; None if one is."""
        return None

    @property
    def rewarded_above(self) -> float:
        """Return the score above which a cell is rewarded."""
        return REWARDED_ABOVE

    @property
    def most_unjudged(self) -> float:
        """Return the largest share of an epoch's steps that may be unjudged."""
        return MOST_UNJUDGED


class CriticConfig(TrainingConfig):
    """A training by a critic's rewards: the team and the critic."""

    method: SerializeAsAny[CriticMethod]
    critic: CriticDefinition
    """The critic."""
    critic_texts: dict[str, str] = Field(default_factory=dict)
    """Template → text of its questions; empty if it asks nothing."""

    def build_critic_choice(self, labels: str, seed: int) -> CriticChoice:
        """Return the critic, for labels of that name and a run of that seed."""
        told = {"critic": self.critic.model_dump(mode="json", exclude={"description"}), "texts": self.critic_texts}
        name, definition, texts = self.method.critic, self.critic, self.critic_texts
        return CriticChoice(labels=labels, name=name, seed=seed, options=told, definition=definition, texts=texts)


def configure_critic(library: Library, method: CriticMethod) -> dict[str, Any]:
    """Return the fields of `CriticConfig` with the content of the critic's file; ConfigError if it does not fit."""
    critic = load_critic(library, method.critic)
    if method.critic_flip is not None:
        critic = critic.model_copy(update={"flip": method.critic_flip})
    # With another threshold, an inverted score could earn what the critic's own score earns.
    if critic.flip and method.why_unasked is None and method.rewarded_above != REWARDED_ABOVE:
        raise ConfigError(
            f"critic {method.critic}: {critic.flip:.3g} of its rewards are flipped on purpose, which are scores "
            f"above {REWARDED_ABOVE:g}, but pairs.threshold is {method.rewarded_above:g}; "
            f"set pairs.threshold={REWARDED_ABOVE:g} or critic_flip=0"
        )
    return {"critic": critic, "critic_texts": read_critic_texts(library, critic)}


def get_critic_config(state: LoopState) -> CriticConfig:
    """Return the configuration of a training by a critic's rewards."""
    assert isinstance(state.config, CriticConfig), "the algorithm configures a critic"
    return state.config


# --------------------------------------------------------------------------------------------------------- before


async def admit_critic(
    config: CriticConfig, suite: Suite, *, calibrations: Path = FOLDER, allow_uncalibrated: bool = False
) -> str:
    """Check that a training's critic may judge; return a line about its calibration.

    Args:
        suite: of the run.
        calibrations: a directory with one calibration each, or a calibration itself.
        allow_uncalibrated: let it judge in any case.

    Raises:
        ConfigError: it has no calibration, or one below the method's `min_critic_auc`; or it or the environment cannot
            be built.
        RunFormatError: its calibration is needed and cannot be read.
    """
    if (why := config.method.why_unasked) is not None:
        return f"not asked, {why}"
    name, kind, least = config.method.critic, config.critic.kind, config.method.min_critic_auc
    # Calibrations are found by the critic's digest: the same name with other weights or prompts has none.
    resources = CriticResources.of(name, config.critic, config.critic_texts)
    try:
        found = _find_calibration(
            resources.digest, calibrations, needed=least is not None and not allow_uncalibrated and kind not in EXEMPT
        )
    finally:
        await resources.close()
    # A calibration in the same environment says most; of others the latest is shown, with a caution.
    if found is not None and found.environment != suite.label:
        found = find_last_calibration(calibrations, resources.digest, suite.label) or found
    # The gate comes before the cautions: a critic that may not judge stops the training, whatever else is known.
    if least is not None:
        admit(
            found,
            least,
            critic=name,
            kind=kind,
            folder=calibrations,
            library=config.library,
            allow_uncalibrated=allow_uncalibrated,
            flip=config.method.critic_flip,
        )
    if found is not None:
        cautions = _warn_other_environment(found, suite.label) + _warn_other_address(found, config)
        return f"calibrated {found.created}: {format_calibration(found)}{cautions}"
    # The oracle reads the solution: there is nothing about it to measure.
    if kind in EXEMPT:
        return "needs no calibration: it scores against the environment's own solution"
    return f"no finished calibration of it in {calibrations}"


def _find_calibration(digest: str, folder: Path, *, needed: bool) -> CalibrationRecord | None:
    """Return the critic's latest calibration, or None. An unreadable file is an error only if one is needed."""
    try:
        return find_last_calibration(folder, digest)
    except RunFormatError:
        if needed:
            raise
        return None


def _warn_other_environment(found: CalibrationRecord, label: str) -> str:
    """Return a warning if the calibration was made in another environment; else empty."""
    if label == found.environment:
        return ""
    return f"; warning: that is not {label}, which is trained in: how well it judges there was not measured"


def _warn_other_address(found: CalibrationRecord, config: CriticConfig) -> str:
    """Return a warning if the calibrated model had another address, since only its name is equal; else empty."""
    then, now = _describe_address(found.config.get("critic")), _describe_address(config.critic.model_dump(mode="json"))
    if then == now:
        return ""
    return (
        f"; measured with the model at {then}, but the critic uses the one at {now}: take care that both have the same "
        "weights"
    )


def _describe_address(critic: Any) -> str:
    """Return the address of a critic's model, in words."""
    try:
        return str(critic["options"]["model"]["options"]["base_url"])
    except (LookupError, TypeError):
        return "its usual address"


def list_critic_doubts(config: CriticConfig, suite: Suite) -> list[str]:
    """Return doubts about the critic, a line each; nothing is opened.

    Args:
        suite: of the run.

    Raises:
        UsageError: the oracle is the critic but knows no solution, so every score would be missing.
    """
    if config.method.why_unasked is not None:
        return []
    return [
        *doubt_key(config.critic, f"critic {config.method.critic}"),
        *_warn_of_flipped(config),
        *_doubt_oracle(config, suite),
    ]


def _warn_of_flipped(config: CriticConfig) -> list[str]:
    """Return a warning if a share of the critic's rewards is inverted on purpose."""
    method, flip = config.method, config.critic.flip
    if not flip:
        return []
    return [f"critic {method.critic}: labels flipped on purpose, {flip:.3g} of them; --set critic_flip=0 leaves them"]


def _doubt_oracle(config: CriticConfig, suite: Suite) -> list[str]:
    """Return a warning if the oracle lacks solutions of some tasks."""
    if config.critic.kind != ORACLE:
        return []
    # The suite is asked, not the library: solutions belong to the environment's version.
    able, solved = ORACLE in suite.capabilities, {info.name for info in suite.tasks() if info.oracle}
    tasks, without = config.run.tasks, [task for task in config.run.tasks if task not in solved]
    critic, lost = f"critic {config.method.critic}", "and every score would be missing"
    other = "name a critic that needs none, e.g. --set critic=critic-llm"
    # Nothing could ever be learned: refused. A part of the tasks is only mentioned, as it may be meant.
    if not able:
        raise UsageError(f"{critic}: {suite.label} knows no solutions, {lost}; {other}")
    if len(without) == len(tasks):
        raise UsageError(
            f"{critic}: none of the {len(tasks)} chosen tasks of {suite.label} has a known solution, {lost}; "
            f"choose with --tasks tag:oracle, or {other}"
        )
    if not without:
        return []
    return [
        f"{len(without)} of {len(tasks)} tasks have no known solution, so their steps earn no score; "
        "leave them out: --tasks tag:oracle"
    ]


async def check_critic_answers(config: CriticConfig, budget: Budget) -> None:
    """Open and close the critic, unless none is asked; raises as `open_critic`."""
    if config.method.why_unasked is None:
        choice = config.build_critic_choice(config.method.critic, config.run.seed)
        async with open_critic(choice, budget, config.run.environment.limits.call_s):
            pass


# ------------------------------------------------------------------------------------------------------ judgements


async def judge_rollout(state: LoopState, run: RunConfig, out: Path, played: Sequence[Trajectory]) -> LabelSet:
    """Judge every step of a rollout that is not judged yet, and read the judgements.

    A step stays unjudged and is counted if asking the critic failed. Ten such steps in a row stop the training. So do
    steps of which more than the method's `most_unjudged` failed, were asked about in vain, or did not fit into the
    critic's context. A step about which no model is asked, as of a task that an oracle cannot solve, is no fault.

    Raises:
        Halted: it stopped before its end, or too much of it is unjudged.
        StoreFailure: the judgements cannot be written.
    """
    state.begin("critic")
    suite = await state.open_suite(run)
    # Only the first labelling of a rollout is timed as a whole: a resumed one would report a part as the total.
    with state.time_part("critic", whole=LABELS not in list_label_sets(out) or "critic" in state.seconds):
        # Asked first what is left: opening a critic may start a server.
        if _is_left(out, played, suite):
            told = await _label(state, run, out, played, suite)
            state.spend(told.spent)
            state.halt(told.stopped)
    labels = read_labels(out, LABELS)
    # Checked on what is stored, so that a resume stops for the same reason as the process before.
    state.halt(_explain_unjudged(labels, out, get_critic_config(state).method.most_unjudged))
    return labels


def _explain_unjudged(labels: LabelSet, out: Path, most: float) -> str | None:
    """Return why an epoch cannot be learned from if more than this share of it is unjudged; else None.

    The critic may have been unreachable, have given no score, or have had no room for the step; the sum of these steps
    counts. A resume asks again only about unreachable ones: if these decide, the message names them first.
    """
    # The three causes exclude each other, so their sum never counts a step twice.
    judged, failed = list(labels.judged.values()), list(labels.failed.values())
    silent = [one for one in judged if one.silent]
    long = [one for one in judged if _is_too_long(one) and not one.silent]
    steps = len(failed) + len(judged)
    # With more, what is learned depends on which calls failed, and not on what was played.
    if len(failed) + len(silent) + len(long) <= most * steps:
        return None
    too_long = (len(long), f"{len(long)} of {format_amount(steps, 'step')} do not fit into the critic's context")
    mute = (len(silent), f"the critic gave no score about {len(silent)} of {format_amount(steps, 'step')}")
    unreached = (len(failed), f"the critic could not be asked about {len(failed)} of {format_amount(steps, 'step')}")
    # Without the unreached steps there would be enough: asking them again is the next move, so they are named first.
    if len(silent) + len(long) <= most * steps:
        causes, more = [unreached, too_long, mute], f"the last: {failed[-1].message}"
    elif len(long) >= len(silent):
        # Settled answers decide: asking again would change nothing, so the next move is another training.
        causes = [too_long, mute, unreached]
        more = (
            "begin another training with a larger context_tokens in the critic's agents file, or with a smaller "
            "history there"
        )
    else:
        causes = [mute, too_long, unreached]
        more = (
            f"{format_last_reply(silent[-1])}; begin another training with another critic, "
            f"or remove {out / LABELS_FOLDER / LABELS} to have this one asked again"
        )
    # Causes with no step are left out; the order above puts the decisive one first.
    return "; ".join([", ".join(told for count, told in causes if count), more])


def _is_too_long(one: Judgement) -> bool:
    """Return whether a step was not shown to the critic because it does not fit."""
    return TOO_LONG in one.missing and all(cell.score is None for cell in one.rewards.rewards)


def _is_left(out: Path, played: Sequence[Trajectory], suite: Suite) -> bool:
    """Return whether a step is left to judge; opening a critic for nothing may take a server's time."""
    if LABELS not in list_label_sets(out):
        return True
    known = read_labels(out, LABELS)
    return any(known.of(case) is None for one in played for case in build_inputs(one, suite.space))


async def _label(
    state: LoopState, run: RunConfig, out: Path, played: Sequence[Trajectory], suite: Suite
) -> LabellingProgress:
    # A generator, so that states are rebuilt only for steps that are asked about.
    states = StateRebuilder(suite)
    async with open_labelling(state, run, out, state.compute_left()) as (critic, writer):
        return await label_cases(
            (case for one in played for case in build_inputs(one, suite.space, states)),
            critic,
            writer,
            concurrency=run.concurrency,
            budget=state.compute_left(),
            stop=state.stop,
            watch=state.inner,
            so_far=LabellingProgress(threshold=get_critic_config(state).method.rewarded_above),
        )


@contextlib.asynccontextmanager
async def open_labelling(
    state: LoopState, run: RunConfig, out: Path, budget: Budget
) -> AsyncIterator[tuple[Critic, LabelWriter]]:
    """Open the critic of a rollout and the writer of its labels; raises as `open_critic` and `LabelWriter`."""
    choice, call_s = get_critic_config(state).build_critic_choice(LABELS, run.seed), run.environment.limits.call_s
    async with open_critic(choice, budget, call_s, state.stop) as (critic, head):
        with LabelWriter(out, LABELS, head) as writer:
            yield critic, writer


def hash_judgements(judgements: Iterable[Judgement]) -> str:
    """Return the SHA-256 of judgements, whatever their order."""
    # Sorted, for judgements are stored in order of arrival, which concurrency changes.
    return hash_json(sorted(_hash_judgement(one) for one in judgements))


def _hash_judgement(judgement: Judgement) -> str:
    scores = [[*one.cell, one.score, one.missing] for one in judgement.rewards.rewards]
    said = [[call.prompt, call.seed, call.reply] for call in judgement.calls]
    return hash_json([*judgement.key, judgement.case, judgement.rewards.critic, scores, said])


# ------------------------------------------------------------------------------------------------------------- plan


async def estimate_critic_questions(choice: CriticChoice, name: str, case: CriticInput) -> Questions | None:
    """Estimate the calls and tokens that a critic needs for a step; None if it does not show its questions.

    Args:
        name: of its agents file, for messages.

    Raises:
        ConfigError: it cannot be built.
    """
    # A critic without a model (the oracle) asks nothing, and opening it could start a server.
    if choice.free:
        return NONE_ASKED
    resources = CriticResources.of(name, choice.definition, choice.texts, asks=False)
    try:
        critic, model = find_asked(resources.build_critic(seed=choice.seed)), resources.model
        if not isinstance(model, Model):
            return (
                None if model is None else NONE_ASKED
            )  # a critic of one's own, or a model that scores in this process
        if not isinstance(critic, HasQuestions):
            # Only a critic that shows its prompts can be counted without being asked.
            return None
        prompts = critic.build_prompts(case)
        tokens = sum(count_prompt_tokens(model, prompt) for prompt in prompts)
    finally:
        await resources.close()
    # At most: replies may use all their tokens. How long they really are is not known before.
    said = Range(low=0, high=len(prompts) * choice.definition.sampling.max_tokens)
    engine = PartDefinition.model_validate(choice.definition.options[MODEL])
    return build_questions(Range(low=len(prompts), high=len(prompts)), Range(low=tokens, high=tokens), said, engine)


async def build_first_input(tried: TriedStep) -> CriticInput:
    """Return the tried step as a critic reads it."""
    suite = build_suite(tried.run)
    try:
        return next(build_inputs(tried.trajectory, suite.space))
    finally:
        await suite.close()
