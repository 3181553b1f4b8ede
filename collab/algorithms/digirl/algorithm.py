"""DigiRL: from episodes of the first policy to its own, learning the steps that values say were good.

    collab train --algo digirl --env androidworld --graph single --agents early --out runs/digirl

Parts: `config` (the method and its ablations), `learner` (value models, filters, turns); what it shares with other
algorithms is `collab.algorithms.turn_learner`, and its formulas are in `collab.trainers.rl.estimators`.

Source: DigiRL (Bai et al. 2024). Deviations:

- policy and value models read text. The paper's policy reads pictures, its value models BLIP-2 features of two screens;
  here features are hidden states of the first policy's checkpoint (`collab.models.features` has encoders of pictures)
- the offline phase is an epoch whose rollout the first policy plays; the paper reads recorded episodes
- value models are fitted on states that were acted in. The public code fits V_step also on the state behind the last
  action, which no prompt was made for
- an episode is judged once, at its end, by the environment or by a verifier; the paper asks an evaluator after every
  step
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from collab.algorithms.digirl.config import ABLATIONS, DigiRLMethod
from collab.algorithms.digirl.learner import DigiRLLearner
from collab.algorithms.outcome_labeller import TurnAlgorithm, build_verdict_columns, format_verdicts
from collab.envs.base import Suite
from collab.errors import UsageError
from collab.loop.config import TrainingConfig
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
        graph = config.run.graph
        cells = len(graph.slots) * graph.rounds
        if cells > 1:
            raise UsageError(
                f"--algo digirl: learns from what one agent said, but the graph has {cells} cells a step; use --graph "
                "single"
            )
        return super().list_doubts(config, suite)

    def build_columns(self, record: EpochRecord) -> dict[str, object]:
        """Return the shares of what was kept, and how well V of states predicts."""
        found = record.metrics
        if "kept" not in found:
            return build_verdict_columns(record)
        kept, remembered, step = found["kept"], found["remembered"], found["values"]["step"]
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


def _format_values(name: str, found: dict[str, Any]) -> str:
    told = {word: found.get(key) for word, key in (("accuracy", "accuracy"), ("AUC", "auc"), ("ECE", "ece"))}
    parts: Sequence[str] = [f"{word} {'-' if value is None else f'{value:.2f}'}" for word, value in told.items()]
    return f"V        of {'states' if name == 'step' else 'tasks'}: {', '.join(parts)} on tasks held out"
