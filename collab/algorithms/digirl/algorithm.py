"""DigiRL: from episodes of the first policy to its own, learning the steps that values say were good.

    collab train --algo digirl --env androidworld --graph single --agents early --out runs/digirl

Parts: `config` (the method and its ablations), `learner` (value models, filters, turns); what it shares with other
algorithms is `collab.algorithms.turn_learner`, and its formulas are in `collab.trainers.rl.estimators`.

Source: DigiRL (Bai et al. 2024). Deviations:

- the policy reads text; the paper's reads pictures. Value models read hidden states of the first policy's checkpoint
  (the paper: BLIP-2 features of two screens) unless `values.encoder` names encoders of texts or pictures
- the offline phase is an epoch whose rollout the first policy plays; the paper reads recorded episodes
- value models are fitted on states that were acted in. The public code fits V_step also on the state behind the last
  action, which no prompt was made for
- an episode is judged once, at its end, by the environment or by a verifier; the paper asks an evaluator after every
  step
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collab.algorithms.digirl.config import ABLATIONS, DigiRLMethod, EncoderChoice
from collab.algorithms.digirl.learner import NAMES, STEP, DigiRLLearner
from collab.algorithms.outcome_labeller import TurnAlgorithm, build_verdict_columns, format_verdicts
from collab.config import Budget
from collab.envs.base import Suite
from collab.errors import ConfigError, RunFormatError, UsageError
from collab.loop.config import TrainingConfig
from collab.loop.interfaces import Checked
from collab.loop.record import EpochRecord

if TYPE_CHECKING:
    from collab.models.features import FeatureEncoder


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
        graph = config.run.graph
        cells = len(graph.slots) * graph.rounds
        if cells > 1:
            raise UsageError(
                f"--algo digirl: learns from what one agent said, but the graph has {cells} cells a step; use --graph "
                "single"
            )
        return super().list_doubts(config, suite)

    async def check(self, config: TrainingConfig, suite: Suite, budget: Budget, options: Mapping[str, Any]) -> Checked:
        """Load the encoders of values, if they are not the policy itself, and record their digest."""
        found = await super().check(config, suite, budget, options)
        choice = _get_encoder(config)
        if choice.kind == "hidden":
            return found
        if choice.image is not None:
            _check_pictured(config, suite)
        return replace(found, head={**found.head, "encoder": _open_encoder(choice).digest})

    def check_resumed(self, config: TrainingConfig, head: Mapping[str, Any]) -> None:
        """Compare the encoders with those that the training began with."""
        choice = _get_encoder(config)
        if choice.kind == "hidden":
            return  # the loop compares the first policy's checkpoint
        if _open_encoder(choice).digest != head.get("encoder"):
            named = ", ".join(path for path in (choice.text, choice.image) if path is not None)
            raise RunFormatError(
                f"values.encoder: {named} has changed since the training began; put back what was there, or train anew"
            )

    def build_columns(self, record: EpochRecord) -> dict[str, object]:
        """Return the shares of what was kept, and how well V of states predicts."""
        found = record.metrics
        if "kept" not in found:
            return build_verdict_columns(record)
        kept, remembered, step = found["kept"], found["remembered"], found["values"].get(STEP, {})
        return {
            **build_verdict_columns(record),
            "episodes kept": f"{kept['episodes']} of {remembered['episodes']}",
            "steps kept": f"{kept['steps']} of {remembered['steps']}",
            "V accuracy": None if step.get("accuracy") is None else f"{step['accuracy']:.0%}",
        }

    def format_lines(self, record: EpochRecord) -> list[str]:
        """Format what was kept and how well values predict, line by line."""
        found = record.metrics
        if "kept" not in found:
            return format_verdicts(record)
        kept, remembered = found["kept"], found["remembered"]
        lines = [
            *format_verdicts(record),
            f"kept     {kept['episodes']} of {remembered['episodes']} episodes, {kept['steps']} of "
            f"{remembered['steps']} steps",
        ]
        return [*lines, *(_format_values(name, one) for name, one in found["values"].items())]


def _get_encoder(config: TrainingConfig) -> EncoderChoice:
    assert isinstance(config.method, DigiRLMethod), "the loop gives each algorithm its own method"
    return config.method.values.encoder


def _open_encoder(choice: EncoderChoice) -> FeatureEncoder:
    """Load encoders on the processor: their digest is the same everywhere."""
    from collab.models.features import TransformersEncoder

    try:
        return TransformersEncoder(text=choice.text, image=choice.image, device="cpu")
    except ConfigError as error:
        raise ConfigError(f"values.encoder: {error}") from None


def _check_pictured(config: TrainingConfig, suite: Suite) -> None:
    """Refuse an image encoder where no screenshot is recorded."""
    advice = "leave values.encoder.image out, or name a text encoder alone"
    if "screenshot" not in suite.capabilities:
        raise UsageError(f"values.encoder.image: {suite.label} has no screenshots; {advice}")
    if not config.run.pictures:
        raise UsageError(
            f"values.encoder.image: needs screenshots, and run.pictures is false; set run.pictures=true, or {advice}"
        )


def _format_values(name: str, found: dict[str, Any]) -> str:
    """Format one value model's fit, e.g. "V        of states: accuracy 0.85, AUC -, ECE 0.14 on tasks held out"."""
    head = f"V        of {NAMES[name]}: "
    if "diverged" in found:
        return f"{head}{found['diverged']}; its fit was undone, and no turn is learned in this epoch"
    told = {word: found.get(key) for word, key in (("accuracy", "accuracy"), ("AUC", "auc"), ("ECE", "ece"))}
    parts: Sequence[str] = [f"{word} {'-' if value is None else f'{value:.2f}'}" for word, value in told.items()]
    notes = []
    # One class is fitted like two; that an AUC is missing, or that values are all alike, needs its reason.
    if found.get("solved") in (0, 1):
        notes.append(f"fitted on {'solved' if found['solved'] else 'failed'} episodes alone")
    if found.get("auc") is None:
        notes.append("all of these ended alike" if found.get("held_out") else "none is held out")
    return f"{head}{', '.join(parts)} on tasks held out{''.join(f'; {one}' for one in notes)}"
