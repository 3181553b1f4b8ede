"""DigiRL: from episodes of the first policy to its own, learning the steps that values say were good.

    collab train --algo digirl --env androidworld --graph single --agents early --out runs/digirl

Parts: `config` (the method and its ablations), `learner` (value models, filters, turns); what it shares with other
algorithms is `collab.algorithms.turn_learner`, and its formulas are in `collab.trainers.rl.estimators`.

Source: DigiRL (Bai et al. 2024). Deviations:

- the policy reads text; the paper's reads pictures. Value models read hidden states of the first policy's checkpoint
  (the paper: BLIP-2 features of two screens) unless `values.encoder` names encoders of texts or pictures
- the offline phase is an epoch: its rollout is played by the first policy, or recorded before as in the paper
- value models are fitted on states that were acted in. The public code fits V_step also on the state behind the last
  action, which no prompt was made for
- preset `sound` has an episode judged once, at its end, by the environment or by a verifier; the paper asks an
  evaluator after every step (`success_check`)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict

from collab.algorithms.digirl.config import ABLATIONS, DigiRLMethod
from collab.algorithms.digirl.learner import NAMES, STEP, DigiRLLearner, estimate_values
from collab.algorithms.lesson_counts import LessonCounts, name_policies, read_counts_of
from collab.algorithms.state_features import EncoderChoice, open_encoders
from collab.algorithms.turn_algorithm import TurnAlgorithm, refuse_teams
from collab.config import Budget, Definition
from collab.envs.base import Suite
from collab.errors import RunFormatError, UsageError
from collab.loop.config import TrainingConfig
from collab.loop.interfaces import Checked, EpochSummary, PredictionQuality, TriedStep
from collab.loop.ranges import Estimate, Range
from collab.loop.record import EpochRecord


class DigiRL(TurnAlgorithm):
    """Offline-to-online imitation of advantageous steps."""

    name = "digirl"
    description = "DigiRL: values of states and tasks choose which own steps are imitated, first offline, then online"
    method = DigiRLMethod
    presets = Path(__file__).parent / "presets"
    default_preset = "sound"
    ablations = ABLATIONS
    toy = (  # easy enough to be solved at times
        *("episodes=12", "updates=2", "rl.batch_rows=4", "curriculum.top=0.5", "curriculum.least=2"),
        *("offline={steps: 20, updates: 2, values: {step: 3, instruct: 3}}", "values.hidden=8"),
        "run.environment.backends.fake.options.declared=false",
    )
    toy_graph = "single"
    learner = DigiRLLearner()

    def list_doubts(self, config: TrainingConfig, suite: Suite) -> list[str]:
        """Refuse teams, as values are of what one agent did; return doubts about the verifier."""
        refuse_teams(self.name, config)
        found = super().list_doubts(config, suite)
        method = config.method
        assert isinstance(method, DigiRLMethod), "the loop gives each algorithm its own method"
        if method.is_everything_learned:
            found.append("curriculum.pool=all: every epoch reads all episodes so far, so it grows in time and memory")
        return found

    async def check(self, config: TrainingConfig, suite: Suite, budget: Budget, options: Mapping[str, Any]) -> Checked:
        """Load the encoders of values, if they are not the policy itself, and record their digest.

        It is the same on all devices.
        """
        found = await super().check(config, suite, budget, options)
        choice = _get_encoder(config)
        if choice.kind == "hidden":
            return found
        if choice.image is not None:
            _check_pictured(config, suite)
        return replace(found, head={**found.head, "encoder": open_encoders(choice, "cpu").digest})

    def check_resumed(self, config: TrainingConfig, head: Mapping[str, Any]) -> None:
        """Compare the encoders with those that the training began with."""
        choice = _get_encoder(config)
        if choice.kind == "hidden":
            return  # the loop compares the first policy's checkpoint
        if open_encoders(choice, "cpu").digest != head.get("encoder"):
            named = ", ".join(path for path in (choice.text, choice.image) if path is not None)
            raise RunFormatError(
                f"values.encoder: {named} has changed since the training began; put back what was there, or train anew"
            )

    async def estimate(self, config: TrainingConfig, tried: TriedStep, rolled: Range) -> Estimate:
        """Estimate verdicts, values, and learning from the turns that are drawn."""
        found = await super().estimate(config, tried, rolled)
        return replace(found, labels=(*found.labels, await estimate_values(config, tried)))

    def summarize(self, record: EpochRecord) -> EpochSummary:
        """Return how well values predict, beside what all learners of turns tell; of several policies, by name."""
        predictions = {
            f"{NAMES[name]}{of}": PredictionQuality(
                held_out=values.held_out,
                accuracy=values.accuracy,
                auc=values.auc,
                ece=values.ece,
                is_fitted=values.lost is None,
                note=values.note,
            )
            for of, one in name_policies(read_counts_of(record, DigiRLCounts))
            for name, values in one.values.items()
        }
        return replace(super().summarize(record), predictions=predictions)

    def build_columns(self, record: EpochRecord) -> dict[str, object]:
        """Return the shares of what was kept, and how well V of states predicts."""
        states = self.summarize(record).predictions.get(NAMES[STEP])
        if states is None:
            return super().build_columns(record)
        accuracy = None if states.accuracy is None else f"{states.accuracy:.0%}"
        return {**super().build_columns(record), "V accuracy": accuracy}

    def format_lines(self, record: EpochRecord) -> list[str]:
        """Format how well values predict behind what all learners of turns tell, line by line."""
        predictions = self.summarize(record).predictions
        return [*super().format_lines(record), *(_format_quality(name, one) for name, one in predictions.items())]


class FittedValues(Definition):
    """Quality of a value model: the fields of `collab.trainers.rl.values.ValueMetrics` that are read again."""

    model_config = ConfigDict(extra="ignore")

    held_out: int = 0
    solved: float | None = None
    accuracy: float | None = None
    auc: float | None = None
    ece: float | None = None
    lost: str | None = None
    """Why the fit was undone, in place of all else; None if it was not."""

    @property
    def note(self) -> str | None:
        """Words for what its numbers do not tell; None if nothing."""
        if self.lost is not None:
            return f"{self.lost}; its fit was undone, and no turn is learned in this epoch"
        notes = []
        # One class is fitted like two; that an AUC is missing, or that values are all alike, needs its reason.
        if self.solved in (0, 1):
            notes.append(f"fitted on {'solved' if self.solved else 'failed'} episodes alone")
        if self.auc is None:
            notes.append("all of these ended alike" if self.held_out else "none is held out")
        return "; ".join(notes) or None


class DigiRLCounts(LessonCounts):
    """The counts of a lesson, and the values that chose it."""

    values: dict[Literal["instruct", "step"], FittedValues]


def _get_encoder(config: TrainingConfig) -> EncoderChoice:
    assert isinstance(config.method, DigiRLMethod), "the loop gives each algorithm its own method"
    return config.method.values.encoder


def _check_pictured(config: TrainingConfig, suite: Suite) -> None:
    """Refuse an image encoder where no screenshot is recorded."""
    advice = "leave values.encoder.image out, or name a text encoder alone"
    if "screenshot" not in suite.capabilities:
        raise UsageError(f"values.encoder.image: {suite.label} has no screenshots; {advice}")
    if not config.run.pictures:
        raise UsageError(
            f"values.encoder.image: needs screenshots, and run.pictures is false; set run.pictures=true, or {advice}"
        )


def _format_quality(rated: str, found: PredictionQuality) -> str:
    """Format one value model's fit, e.g. "V        of states: accuracy 0.85, AUC 0.61, ECE 0.14 on …"."""
    told = {"accuracy": found.accuracy, "AUC": found.auc, "ECE": found.ece}
    parts = [f"{word} {'-' if value is None else f'{value:.2f}'}" for word, value in told.items()]
    numbers = f"{', '.join(parts)} on episodes held out, n = {found.held_out}" if found.is_fitted else ""
    return f"V        of {rated}: {'; '.join(one for one in (numbers, found.note) if one)}"
