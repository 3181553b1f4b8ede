"""The method of CollabUIAgents: settings of critic, adversary and DPO beside those of every training.

    method = override(load_method(algorithm, "collab"), ["epochs=2", "dpo.beta=0.3"])

`objective` names what an epoch learns from: "dpo", "trajectory-dpo" (ablation no-cr) or "rft" (ablation rft).

Each ablation takes one part of a preset away. Source: CollabUIAgents, table 3 (w/o CR, PO → RFT, w/o edge update,
single-agent systems); the pair sources and the anchor are ours. The untrained team is none of these, because nothing is
trained: `collab eval` plays it, and epoch 0 of every training measures it on the held-out seeds.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import Field, SerializeAsAny, model_validator

from collab.algorithms.judging import CriticConfig, CriticMethod
from collab.config import Definition, RunConfig
from collab.loop.config import Ablation
from collab.preferences.pairs import PairRecipe, Sources
from collab.preferences.rebuild import ORACLE
from collab.preferences.registry import AdversaryChoice, AdversarySpec, choice_from_json
from collab.trainers.recipe import DpoRecipe

Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Objective: TypeAlias = Literal["dpo", "trajectory-dpo", "rft"]


class PairSettings(Definition):
    """Settings of pairs built from judgements; see `collab.preferences.pairs`."""

    adversary: Weight = 1.0
    """Weight of synthesised rejected replies (the paper's)."""
    contrast: Weight = 0.0
    """Weight of rejected replies that another cell of the same step gave."""
    correction: float = Field(default=0.0, ge=0, le=1)
    """Probability that a cell that erred learns, under its own input, the reply of a rewarded cell."""
    threshold: float = Field(default=0.5, ge=0, lt=1)
    """A score above it is rewarded."""
    cap: int | None = Field(default=None, ge=1)
    """At most so many pairs of one state; None for all."""
    attempts: int = Field(default=3, ge=1)
    """Questions to the adversary per cell."""
    stop_at_first_error: bool = False
    """Whether an episode teaches only up to its first error, that step included. An error is a step without a parsed
    action, or one whose executed action was judged and not rewarded; an unjudged action is none. Holds for anchors and
    rewarded replies (`rft`), too."""
    anchors: int = Field(default=0, ge=0)
    """At most so many rewarded replies of a state are learned without a pair under their own input, the likeliest
    first (by the likelihood of the whole reply). A row compares each with itself: the preference loss then has no
    gradient, but its anchor term has. Where agents agree, nothing else keeps the policy from drifting. A policy without
    any pair in an epoch learns nothing in it."""

    @model_validator(mode="after")
    def _check_sources(self) -> PairSettings:
        if not (self.adversary or self.contrast or self.correction):
            raise ValueError(
                "adversary, contrast and correction are 0: there is no pair; give one of them a weight above 0"
            )
        return self

    def build_recipe(self, seed: int) -> PairRecipe:
        """Return the settings as a recipe of the pairing."""
        return PairRecipe(
            sources=Sources(adversary=self.adversary, contrast=self.contrast, correction=self.correction),
            threshold=self.threshold,
            cap=self.cap,
            attempts=self.attempts,
            stop_at_first_error=self.stop_at_first_error,
            seed=seed,
        )


class CollabMethod(CriticMethod):
    """Settings of credit re-assignment, as in `presets/*.yaml`."""

    RECIPE: ClassVar[str] = "dpo"

    objective: Objective = "dpo"
    """What is learned from an epoch: "dpo" from chosen and rejected replies; "trajectory-dpo" from solved and
    unsolved episodes of a task, whatever any critic says (ablation "w/o CR"); "rft" from rewarded replies, with nothing
    to compare them with (ablation "PO → RFT")."""
    reference: Literal["initial", "previous"] = "initial"
    """The reference of DPO: the policy before any training, or that of the epoch before."""
    adversary: AdversarySpec = AdversarySpec(kind="sampler")
    """The adversary that writes rejected replies: a name, names with weights ("sampler=3,openai=1"), or written out."""
    pairs: PairSettings = PairSettings()
    end_at_first_error: bool = False
    """Whether a rollout's episode ends with its first error if `pairs.stop_at_first_error` lets it teach no further. It
    needs an exact critic: with any but the oracle, or with flipped rewards, episodes are played whole."""
    replay_fraction: float = Field(default=0.0, ge=0, lt=1)
    """Share of pairs of older epochs among those that are trained, as far as there are enough. If the team comes from
    another training (`--agents RUN@last`), its epochs count as older ones."""
    dpo: DpoRecipe

    @model_validator(mode="after")
    def _check_anchors(self) -> CollabMethod:
        if self.pairs.anchors and not (self.dpo.anchor and self.objective == "dpo"):
            raise ValueError(
                f"pairs.anchors: {self.pairs.anchors}, but with objective {self.objective} and dpo.anchor "
                f"{self.dpo.anchor:g} no loss term uses them; set pairs.anchors=0"
            )
        return self

    @model_validator(mode="after")
    def _check_whole_epochs(self) -> CollabMethod:
        # Each of these has no meaning between whole episodes, and would be ignored silently.
        if self.objective != "trajectory-dpo":
            return self
        if self.pairs.stop_at_first_error:
            raise ValueError(
                "pairs.stop_at_first_error: true, but whole trajectories are compared; "
                "set pairs.stop_at_first_error=false"
            )
        if self.critic_flip:
            raise ValueError(
                f"critic_flip: {self.critic_flip:g}, but whole trajectories are compared and no critic is asked; "
                "set critic_flip=null"
            )
        if self.replay_fraction:
            raise ValueError(
                f"replay_fraction: {self.replay_fraction:g}, but whole trajectories are compared within their epoch; "
                "set replay_fraction=0"
            )
        if self.processes > 1:
            raise ValueError(
                f"processes: {self.processes}, but whole trajectories are trained by one process; set processes=1"
            )
        return self

    @property
    def is_judged(self) -> bool:
        """Return whether a critic is asked at all."""
        return self.objective != "trajectory-dpo"

    @property
    def why_unasked(self) -> str | None:
        """Return why no critic is asked, in words; None if one is."""
        return None if self.is_judged else f"objective {self.objective} learns from outcomes alone"

    @property
    def rewarded_above(self) -> float:
        """Return the score above which a cell is rewarded."""
        return self.pairs.threshold

    @property
    def is_taught_to_first_error(self) -> bool:
        """Return whether rollouts should end where they stop teaching; see `CollabConfig.can_end_at_first_error`."""
        return self.is_judged and self.end_at_first_error and self.pairs.stop_at_first_error

    @property
    def has_adversary(self) -> bool:
        """Return whether a source of pairs needs invented rejected replies."""
        return self.objective == "dpo" and self.pairs.adversary > 0


class CollabConfig(CriticConfig):
    """A training by credit re-assignment: the team, its critic and its adversary."""

    method: SerializeAsAny[CollabMethod]
    adversary: dict[str, Any]
    """The adversary, with the content of its files: `AdversaryChoice.as_json`."""

    @property
    def can_end_at_first_error(self) -> bool:
        """Return whether rollouts end their episodes with the first error."""
        # What judges must be what ends: the episode's end would tell the team more than an inexact critic knows.
        return self.method.is_taught_to_first_error and self.critic.kind == ORACLE and not self.critic.flip

    def explore(self, run: RunConfig) -> RunConfig:
        """Return a run played as a rollout, which may end its episodes with their first error."""
        team = super().explore(run)
        if not self.can_end_at_first_error:
            return team
        limits = team.environment.limits.model_copy(update={"stop_at_first_error": True})
        return team.model_copy(update={"environment": team.environment.model_copy(update={"limits": limits})})

    @property
    def erring(self) -> AdversaryChoice:
        """The adversary."""
        return choice_from_json(self.adversary)


ABLATIONS: dict[str, Ablation] = {
    "no-cr": Ablation(
        description="no credit re-assignment: DPO between whole trajectories, solved against unsolved",
        settings=(
            "objective=trajectory-dpo",
            "pairs.anchors=0",
            "pairs.stop_at_first_error=false",
            "replay_fraction=0",
        ),
    ),
    "rft": Ablation(
        description="rejective fine-tuning in place of preferences: learn the rewarded replies alone",
        settings=("objective=rft", "pairs.anchors=0"),
    ),
    "no-edge-update": Ablation(
        description="one graph in every epoch, the declared one or one draw of it, instead of edges drawn anew",
        settings=("edges=null",),
    ),
    "single-agent": Ablation(
        description="one agent alone, on the graph single; without disagreement, rejected replies are invented",
        settings=("pairs.adversary=1", "pairs.contrast=0", "pairs.correction=0"),
        graph="single",
    ),
    "adversary-pairs": Ablation(
        description="rejected replies from the adversary alone, as in the paper",
        settings=("pairs.adversary=1", "pairs.contrast=0", "pairs.correction=0"),
    ),
    "contrast-pairs": Ablation(
        description="rejected replies from the team's own disagreement alone",
        settings=("pairs.adversary=0", "pairs.contrast=1", "pairs.correction=0"),
    ),
    "correction-pairs": Ablation(
        description="cells that erred learn a rewarded cell's reply, under their own input",
        settings=("pairs.adversary=0", "pairs.contrast=0", "pairs.correction=1"),
    ),
    "mixed-pairs": Ablation(
        description="rejected replies from the adversary and from disagreement, half and half",
        settings=("pairs.adversary=1", "pairs.contrast=1", "pairs.correction=0"),
    ),
    "all-steps": Ablation(
        description="episodes teach to their end, not up to their first error",
        settings=("pairs.stop_at_first_error=false",),
    ),
    "anchor": Ablation(
        description="a loss term with weight 5 keeps the likelihood of chosen replies from falling",
        settings=("dpo.anchor=5",),
    ),
    "no-anchor": Ablation(
        description="plain DPO: no loss term keeps the likelihood of chosen replies from falling",
        settings=("dpo.anchor=0", "pairs.anchors=0"),
    ),
}
"""Name → ablation, in listing order."""
