"""PPO: learn each turn by how much better its episode went than a value model expected of its state.

    collab train --algo ppo --env androidworld --graph single --agents early --out runs/ppo

Parts: `learner` (values and advantages); what it shares with GRPO is `collab.algorithms.on_policy`, the value model is
`collab.trainers.rl.token_values`.

Source: Schulman et al. 2017, with the advantages of Schulman et al. 2016; as a baseline of Android Coach (appendix
A.2), whose settings are the preset `paper`: the verdict as the only reward, λ = 1, no penalty. Deviations:

- a step of an episode is one action, its reply as a whole, and has one advantage, which all its tokens share. Android
  Coach trains with verl, where each token is an action and has a value of its own
- V reads the state's prompt at its last token; its body is another copy of the checkpoint that the training began with
- with `pretraining`, V is fitted to the candidates that Android Coach's Q is fitted to first, as in the paper; it reads
  their prompts alone, where the paper's reads the replies, too
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from collab.algorithms.candidates import PretrainedConfig, hash_candidates, list_foreign
from collab.algorithms.on_policy import OnPolicyAlgorithm
from collab.algorithms.ppo.learner import PPOLearner, PPOMethod, StateValues, estimate_values, format_quality
from collab.config import validate
from collab.envs.base import Suite
from collab.library import Library
from collab.loop.config import Method, TrainingConfig
from collab.loop.interfaces import EpochSummary, PredictionQuality, TriedStep
from collab.loop.ranges import Estimate, Range
from collab.loop.record import EpochRecord


class PPO(OnPolicyAlgorithm):
    """Proximal policy optimisation on outcomes, with a value head."""

    name = "ppo"
    description = "PPO: each turn is learned by how much better its episode went than a value model expected"
    method = PPOMethod
    config = PretrainedConfig
    presets = Path(__file__).parent / "presets"
    default_preset = "sound"
    toy = (  # easy enough to be solved at times
        *("episodes=12", "rl.batch_rows=8", "values={learning_rate: 1e-3, batch_rows: 8}"),
        "run.environment.backends.fake.options.declared=false",
    )
    learner = PPOLearner()

    def configure(self, library: Library, method: Method) -> dict[str, Any]:
        """Return the verifier with the content of its file, and the digest of the candidates."""
        assert isinstance(method, PPOMethod), "the loop gives each algorithm its own method"
        return {**super().configure(library, method), "pretraining_digest": hash_candidates(method)}

    def list_doubts(self, config: TrainingConfig, suite: Suite) -> list[str]:
        """Refuse what has no ratio; return doubts about the verifier and the candidates."""
        assert isinstance(config.method, PPOMethod), "the loop gives each algorithm its own method"
        return [*super().list_doubts(config, suite), *list_foreign(config.method, suite.label)]

    async def estimate(self, config: TrainingConfig, tried: TriedStep, rolled: Range) -> Estimate:
        """Estimate verdicts, values, and learning from every turn."""
        found = await super().estimate(config, tried, rolled)
        return replace(found, labels=(*found.labels, await estimate_values(config, tried)))

    def summarize(self, record: EpochRecord) -> EpochSummary:
        """Return how well values predicted, beside what all learners of turns tell."""
        values = _read_values(record)
        if values is None:
            return super().summarize(record)
        quality = PredictionQuality(
            held_out=values.states,
            accuracy=values.accuracy,
            auc=values.auc,
            ece=values.ece,
            note=values.unread or values.lost,
        )
        return replace(super().summarize(record), predictions={"states": quality})

    def format_lines(self, record: EpochRecord) -> list[str]:
        """Format how well values predicted behind what all learners of turns tell, line by line."""
        values = _read_values(record)
        return [*super().format_lines(record), *([] if values is None else [f"V        {format_quality(values)}"])]


def _read_values(record: EpochRecord) -> StateValues | None:
    """Return the quality of an epoch's values; None before an epoch has learned."""
    found = record.metrics.get("values")
    return None if found is None else validate(StateValues, found, f"epoch {record.epoch}: metrics of its epoch.json")
