"""Start, resume and estimate a calibration.

An estimate writes nothing and asks no model. It builds the known steps and the questions, so their number and length
are exact (as exact as the model's own count of tokens). The length of replies has only an upper limit.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from collab.config import Budget, hide_secrets, validate_recorded
from collab.errors import EnvironmentFailure, RunFormatError, boundary
from collab.models.base import is_scorer
from collab.rewards.base import CriticInput, Judgement
from collab.rewards.calibration.cases import KnownCase, KnownWorth
from collab.rewards.calibration.config import CalibrationConfig, CalibrationResources, open_resources
from collab.rewards.calibration.metrics import CalibrationPass, measure, plan_passes
from collab.rewards.calibration.record import (
    PICTURE,
    CalibrationDir,
    CalibrationRecord,
)
from collab.rewards.flip import find_asked
from collab.rewards.labelling import LabellingProgress, label_cases
from collab.rewards.labels import LabelHead, LabelWriter, read_labels
from collab.rewards.registry import doubt_key
from collab.types import Prompt, Usage
from collab.utils.files import hash_text, report_write_errors, write_atomic
from collab.utils.plotting import BAR, INK, PALE, PALETTE, create_axes, plot_style, to_svg
from collab.utils.progress import Pace
from collab.utils.text import format_amount

if TYPE_CHECKING:
    from matplotlib.figure import FigureBase


@dataclass(slots=True, kw_only=True)
class CalibrationProgress:
    """Progress of a calibration; a live object."""

    planned: int = 0
    """Judgements in all passes; 0 while the known steps are built."""
    labelling: LabellingProgress = field(default_factory=LabellingProgress)
    """Counts all passes of this process."""
    pace: Pace = field(default_factory=Pace)

    @property
    def done(self) -> int:
        """Finished judgements, those of earlier processes included."""
        return self.labelling.known + self.labelling.judged


Watch = Callable[[CalibrationProgress], None]
"""Called once, with a live object that is updated during the work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationResult:
    """Result of a calibration."""

    path: Path
    record: CalibrationRecord
    progress: CalibrationProgress
    stopped: str | None
    """Why the calibration ended early; None when it is finished."""


async def start(
    config: CalibrationConfig, out: Path, *, watch: Watch = lambda progress: None, stop: asyncio.Event | None = None
) -> CalibrationResult:
    """Calibrate a critic, recorded in the new directory `out`.

    Raises:
        UsageError: something does not fit, or `out` already holds something; nothing was started.
        EnvironmentFailure: no environment can be opened, or it broke.
        ModelFailure: the critic's server does not answer.
        StoreFailure: the directory cannot be written; what was recorded stays.
    """
    config = hide_secrets(config)
    folder = CalibrationDir(out)
    # Check the directory before an environment is opened, which takes long.
    folder.check_free()
    async with open_resources(config) as place:
        # Open an environment once, so that a missing browser shows before the record exists.
        with boundary(EnvironmentFailure, f"opening {place.suite.label}"):
            await (await place.suite.open()).close()
        # Digest, texts and seeds say exactly which critic was measured; another one does not match.
        record = CalibrationRecord(
            critic=config.critic_name,
            label=place.critic.label,
            digest=place.critic.digest,
            config=config.model_dump(mode="json"),
            environment=place.suite.label,
            environment_version=place.suite.version,
            model=await place.describe_model(),
            prompts={name: hash_text(text) for name, text in config.texts.items()},
            seeds={one.name: place.derive_seed(one.seed) for one in plan_passes((), config.permutations)},
        )
        folder.begin(record)
        with folder.lock():
            return await _work(record, place, folder, watch, stop)


async def resume(
    path: Path,
    *,
    budget: Budget | None = None,
    watch: Watch = lambda progress: None,
    stop: asyncio.Event | None = None,
) -> CalibrationResult:
    """Resume a calibration that stopped or died; a finished one is only read.

    Args:
        budget: limits from here on; None grants the calibration's own budget once more.

    Raises:
        RunFormatError: it cannot be read, or the environment or the critic has changed.
        UsageError: another process is writing it.
    """
    folder = CalibrationDir(path)
    record = folder.read_record()
    # A finished calibration asks nothing any more.
    if record.numbers is not None:
        return CalibrationResult(path=path, record=record, progress=CalibrationProgress(), stopped=None)
    config = validate_recorded(CalibrationConfig, record.config, str(folder.file))
    if budget is not None:
        config = config.model_copy(update={"budget": budget})
    async with open_resources(config) as place:
        # Another environment or critic behind the same names would mix two calibrations.
        _check_unchanged(path, record, place)
        await place.describe_model()
        with folder.lock():
            return await _work(record, place, folder, watch, stop)


def _check_unchanged(path: Path, record: CalibrationRecord, place: CalibrationResources) -> None:
    """Raise RunFormatError if the critic or the environment's version has changed."""
    if record.environment_version != place.suite.version:
        raise RunFormatError(
            f"{path}: made with {record.environment} version {record.environment_version}, this is version "
            f"{place.suite.version}; resume it with the Collab version that wrote it"
        )
    if record.digest != place.critic.digest:
        raise RunFormatError(
            f"{path}: was begun with {record.label}, which judged otherwise than {place.critic.label} does now; "
            "resume it with the Collab version that wrote it, or calibrate anew"
        )


async def _work(
    record: CalibrationRecord,
    place: CalibrationResources,
    folder: CalibrationDir,
    watch: Watch,
    stop: asyncio.Event | None,
) -> CalibrationResult:
    config, progress, path = place.config, CalibrationProgress(), folder.path
    watch(progress)
    # Known steps are rebuilt from seeds on every start: only judgements are stored.
    known = await place.build_known()
    asked = plan_passes(known, config.permutations)
    progress.planned = len(asked) * len(known)
    # Pass by pass, so that a stop leaves whole passes behind.
    for one in asked:
        await _ask(one, place, path, progress, stop)
        if progress.labelling.stopped is not None:
            return CalibrationResult(path=path, record=record, progress=progress, stopped=progress.labelling.stopped)
    # Read back from the files: judgements of earlier processes count as much as those of this one.
    judged = {one.name: _read_judged(path, one) for one in asked}
    # With a failed judgement, the passes would cover different steps.
    failures = [why for _, found in judged.values() for why in found]
    if failures:
        told = f"{len(failures)} of {format_amount(progress.planned, 'judgement')} failed ({failures[0]})"
        return CalibrationResult(path=path, record=record, progress=progress, stopped=told)
    # Answers that could not be read were paid for.
    lost = [one for known_pass in asked for one in read_labels(path, known_pass.name).lost]
    record = _add_numbers(record, known, {name: found for name, (found, _) in judged.items()}, config.bins)
    record = replace(record, spent=sum(lost, record.spent or Usage()))
    # The diagram before the record: a finished record means that all files exist.
    with report_write_errors(path, folder.resume):
        write_atomic(path / PICTURE, to_svg(draw_reliability(record)).encode())
    folder.write(record)
    return CalibrationResult(path=path, record=record, progress=progress, stopped=None)


async def _ask(
    one: CalibrationPass,
    place: CalibrationResources,
    path: Path,
    progress: CalibrationProgress,
    stop: asyncio.Event | None,
) -> None:
    """Judge all steps of a pass that are not judged yet; each judgement is stored before the next question."""
    critic, config = place.critic, place.config
    head = LabelHead(critic=critic.label, options={"digest": critic.digest}, seed=place.derive_seed(one.seed))
    with LabelWriter(path, one.name, head, home=lambda path: CalibrationDir(path).read()) as writer:
        await label_cases(
            one.cases,
            place.build_critic(one.seed, one.attempt),
            writer,
            concurrency=config.concurrency,
            budget=config.budget,
            stop=stop,
            so_far=progress.labelling,
            most_silent=None,  # the share of missing scores is one of the results
        )


def _read_judged(path: Path, one: CalibrationPass) -> tuple[list[Judgement], list[str]]:
    """Return the stored judgements of a pass, in the order of its steps, and the messages of failures."""
    labels = read_labels(path, one.name)
    found = [labels.of(case) for case in one.cases]
    return [judgement for judgement in found if judgement is not None], [why.message for why in labels.failed.values()]


def _add_numbers(
    record: CalibrationRecord, known: Sequence[KnownCase], judged: Mapping[str, Sequence[Judgement]], bins: int
) -> CalibrationRecord:
    """Add the numbers to a record."""
    total = LabellingProgress()
    prompts = hashlib.sha256()
    for judgement in (judgement for found in judged.values() for judgement in found):
        total.count(judgement)
        # Over all prompts that were asked: a change of wording shows as another hash.
        for call in judgement.calls:
            prompts.update(call.prompt.encode())
    return replace(
        record,
        numbers=measure(record.label, known, judged, bins),
        asked=prompts.hexdigest() if total.spent.calls else None,
        spent=total.spent,
    )


@runtime_checkable
class HasQuestions(Protocol):
    """A critic that shows its questions."""

    def build_prompts(self, case: CriticInput) -> list[Prompt]:
        """Build the prompts of a step's calls without asking."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationEstimate:
    """The expected size of a calibration."""

    cases: int
    passes: int
    """How often each case is judged."""
    worth: Mapping[KnownWorth, int]
    """Proposed actions of one pass by worth."""
    calls: int | None
    """Model calls in all passes; 0 where no model is asked, None where a critic does not show its questions."""
    prompt_tokens: int | None
    completion_tokens: int | None
    """Upper limit; both None like `calls`."""
    unfit: int | None = 0
    """Judgements without any score, as the step does not fit into the critic's context; None like `calls`."""
    doubts: tuple[str, ...] = ()
    """What would keep the calibration from its first question, e.g. a key that is not there."""


async def estimate(config: CalibrationConfig) -> CalibrationEstimate:
    """Estimate calls and tokens of a calibration.

    Raises:
        UsageError: a part cannot be built, or no step is of known worth.
        EnvironmentFailure: the environment broke.
    """
    # Nothing is asked: the critic is opened only to see its prompts.
    async with open_resources(config, asks=False) as place:
        # Environments are opened, though: the number of known steps is not known otherwise.
        known = await place.build_known()
        asked = plan_passes(known, config.permutations)
        calls: int | None = 0
        tokens: int | None = 0
        unfit: int | None = 0
        model = place.critic.model
        if model is not None:
            # One critic per pass, as each has its own order and seed.
            critics = [(find_asked(place.build_critic(one.seed, one.attempt)), one.cases) for one in asked]
            found = [
                list(one.build_prompts(case))
                for one, cases in critics
                if isinstance(one, HasQuestions)
                for case in cases
            ]
            prompts = [prompt for asked_of_one in found for prompt in asked_of_one]
            # A critic that does not show its questions leaves calls and tokens unknown, not zero.
            shows = all(isinstance(critic, HasQuestions) for critic, _ in critics)
            unfit = sum(not asked_of_one for asked_of_one in found) if shows else None
            calls = len(prompts) if shows else None
            counted = (model.count_tokens(prompt.system) + model.count_tokens(prompt.user) for prompt in prompts)
            tokens = sum(counted) if shows else None
        # A reward model replies in numbers and no tokens.
        replies = 0 if is_scorer(model) else config.critic.sampling.max_tokens
        worth = Counter(worth for one in known for worth in one.worth.values())
        return CalibrationEstimate(
            cases=len(known),
            passes=len(asked),
            worth={name: worth[name] for name in ("good", "neutral", "bad")},
            calls=calls,
            prompt_tokens=tokens,
            completion_tokens=None if calls is None else calls * replies,
            unfit=unfit,
            doubts=tuple(doubt_key(config.critic, f"agents/{config.critic_name}")),
        )


@plot_style()
def draw_reliability(record: CalibrationRecord) -> FigureBase:
    """Draw the reliability diagram; ValueError for a calibration that is not finished.

    Each column of scores is a bar as high as the share of its actions that are good, with a dot at the mean score; on
    the dashed diagonal the two agree. Below are the numbers of actions: a column of three is weak evidence.
    """
    if record.numbers is None:
        raise ValueError("a calibration without numbers has no picture")
    columns = record.numbers.picture
    auc, ece = (f"{one:.3f}" if one is not None else "not known" for one in (record.numbers.auc, record.numbers.ece))
    counted = f"AUC {auc}, calibration error {ece}, {sum(column.count for column in columns)} scored actions"
    title, note = f"{record.critic} ({record.label})", f"on {record.environment}; {counted}"
    axes = create_axes(title, note, width=360, height=360)
    lefts, widths = [column.low for column in columns], [column.high - column.low for column in columns]
    # A well calibrated critic's columns lie on the diagonal.
    axes.bar(lefts, [column.good or 0.0 for column in columns], widths, align="edge", color=BAR, edgecolor="white")
    axes.plot([0, 1], [0, 1], color=PALE, linestyle="--", linewidth=1)
    dots = [(column.mean_score or 0.0, column.good or 0.0) for column in columns if column.count]
    axes.plot([x for x, _ in dots], [y for _, y in dots], "o", color=PALETTE[0], markersize=9, markeredgecolor="white")
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="score", ylabel="share of good actions")
    axes.grid()
    # The number of actions per column: a column of two is no evidence.
    strip = axes.inset_axes((0, -0.36, 1, 0.18))
    bars = strip.bar(lefts, [column.count for column in columns], widths, align="edge", color="#C9CED6", ec="white")
    strip.bar_label(bars, padding=2, color=INK)
    strip.set(xlim=(0, 1), xticks=[], yticks=[], xlabel="actions with such a score")
    strip.spines["left"].set_visible(False)
    return axes.figure
