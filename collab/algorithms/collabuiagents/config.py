"""The method of CollabUIAgents: what a critic, an adversary and DPO add to every training.

    method = override(load_method(algorithm, "collab"), ["epochs=2", "dpo.beta=0.3"])

`objective` says what is learned from an epoch: "dpo", "trajectory-dpo" (ablation no-cr) or "rft" (ablation rft).

Ablations of CollabUIAgents by name: each changes one thing of a preset.

Source: CollabUIAgents, table 3 (w/o CR, PO → RFT, w/o edge update, single-agent systems); the pair sources and the
anchor are ours. The untrained team is none of these, because nothing is trained: `collab eval` plays it, and epoch 0 of
every training measures it on the held-out seeds.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import Field, SerializeAsAny, model_validator

from collab.config import Definition
from collab.loop.config import Ablation, Method, TrainingConfig
from collab.preferences.pairs import PairRecipe, Sources
from collab.preferences.registry import AdversaryChoice, AdversarySpec, choice_from_json
from collab.rewards.registry import CriticChoice, CriticDefinition
from collab.trainers.recipe import DpoRecipe

Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Objective: TypeAlias = Literal["dpo", "trajectory-dpo", "rft"]


class Pairs(Definition):
    """How pairs are made of judgements; see `collab.preferences.pairs`."""

    adversary: Weight = 1.0
    """Weight of synthesised worse sides (the paper's)."""
    contrast: Weight = 0.0
    """Weight of worse sides that another cell of the same step said."""
    correction: float = Field(default=0.0, ge=0, le=1)
    """The chance with which a cell that erred learns, under its own input, what a rewarded one said in its place."""
    threshold: float = Field(default=0.5, ge=0, lt=1)
    """A score above it is rewarded."""
    cap: int | None = Field(default=None, ge=1)
    """The most pairs of one state; None for all."""
    attempts: int = Field(default=3, ge=1)
    """How often the adversary is asked about a cell."""
    stop_at_first_error: bool = False
    """Whether an episode teaches only up to its first error, that step included. An error is a step without a parsed
    action, or one whose executed action was judged and not rewarded; an unjudged action is none. Holds for anchors and
    rewarded replies (`rft`), too."""
    anchors: int = Field(default=0, ge=0)
    """Rewarded replies of a state, at most, that are learned though there is no pair under their own input, the surest
    first (by the likelihood of the whole reply): a row compares each with itself, which the preference loss has no
    gradient for and its anchor has. Where agents disagree about few states, the policy is held in all others by nothing
    else. A policy without any pair in an epoch learns nothing in it."""

    @model_validator(mode="after")
    def _some(self) -> Pairs:
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


class CollabMethod(Method):
    """How credit re-assignment trains a team: `presets/*.yaml`."""

    RECIPE: ClassVar[str] = "dpo"

    objective: Objective = "dpo"
    """What is learned from an epoch: "dpo" from better against worse replies; "trajectory-dpo" from solved against
    unsolved episodes of a task, whatever any critic says (ablation "w/o CR"); "rft" from rewarded replies, with nothing
    to compare them with (ablation "PO → RFT")."""
    reference: Literal["initial", "previous"] = "initial"
    """What DPO compares with: the policy before any training, or that of the epoch before."""
    critic: str = "critic-llm"
    """Agents file of the critic; its rewards are learned from."""
    min_critic_auc: float | None = Field(default=0.7, ge=0, le=1)
    """What the critic's last calibration must have reached (`collab critic calibrate`); None lets any critic judge. The
    oracle needs no calibration."""
    adversary: AdversarySpec = AdversarySpec(kind="sampler")
    """The adversary of worse sides: a name, names with weights ("sampler=3,openai=1"), or written out."""
    pairs: Pairs = Pairs()
    replay_fraction: float = Field(default=0.0, ge=0, lt=1)
    """Share of pairs of older epochs among those that are trained, as far as there are enough. Where the team comes
    from another training (`--agents RUN@last`), its epochs are older ones, too: what was learned there is rehearsed."""
    dpo: DpoRecipe

    @model_validator(mode="after")
    def _anchored(self) -> CollabMethod:
        if self.pairs.anchors and not (self.dpo.anchor and self.objective == "dpo"):
            raise ValueError(
                f"pairs.anchors: {self.pairs.anchors}, but with objective {self.objective} and dpo.anchor "
                f"{self.dpo.anchor:g} nothing holds on to them; set pairs.anchors=0"
            )
        return self

    @model_validator(mode="after")
    def _compares_whole_epochs(self) -> CollabMethod:
        # Each of these has no meaning between whole episodes, and would be ignored silently.
        if self.objective != "trajectory-dpo":
            return self
        if self.pairs.stop_at_first_error:
            raise ValueError(
                "pairs.stop_at_first_error: true, but whole trajectories are compared; "
                "set pairs.stop_at_first_error=false"
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
        """Whether a critic is asked at all."""
        return self.objective != "trajectory-dpo"

    @property
    def asks_an_adversary(self) -> bool:
        """Whether some source of pairs needs worse sides that are made up."""
        return self.objective == "dpo" and self.pairs.adversary > 0


class CollabConfig(TrainingConfig):
    """A training by credit re-assignment: the team, its critic and its adversary."""

    method: SerializeAsAny[CollabMethod]
    critic: CriticDefinition
    """The critic."""
    critic_texts: dict[str, str] = Field(default_factory=dict)
    """Template → text of what it asks; empty when it asks nothing."""
    adversary: dict[str, Any]
    """The adversary, with all that stood in files: `AdversaryChoice.as_json`."""

    def build_critic_choice(self, labels: str, seed: int) -> CriticChoice:
        """Return the critic, for labels of that name and a run of that seed."""
        told = {"critic": self.critic.model_dump(mode="json", exclude={"description"}), "texts": self.critic_texts}
        name, definition, texts = self.method.critic, self.critic, self.critic_texts
        return CriticChoice(labels=labels, name=name, seed=seed, options=told, definition=definition, texts=texts)

    @property
    def erring(self) -> AdversaryChoice:
        """Return the adversary."""
        return choice_from_json(self.adversary)


ABLATIONS: dict[str, Ablation] = {
    "no-cr": Ablation(
        description="no credit re-assignment: DPO between whole trajectories, solved against unsolved",
        settings=("objective=trajectory-dpo", "pairs.anchors=0", "pairs.stop_at_first_error=false"),
    ),
    "rft": Ablation(
        description="rejective fine-tuning in place of preferences: learn the rewarded replies, compare with nothing",
        settings=("objective=rft", "pairs.anchors=0"),
    ),
    "no-edge-update": Ablation(
        description="one graph in every epoch, the declared one or one draw of it, instead of edges drawn anew",
        settings=("edges=null",),
    ),
    "single-agent": Ablation(
        description="one agent that hears nobody, on the graph single; nobody disagrees, so worse sides are made up",
        settings=("pairs.adversary=1", "pairs.contrast=0", "pairs.correction=0"),
        graph="single",
    ),
    "adversary-pairs": Ablation(
        description="worse sides from the adversary alone, as in the paper",
        settings=("pairs.adversary=1", "pairs.contrast=0", "pairs.correction=0"),
    ),
    "contrast-pairs": Ablation(
        description="worse sides from the team's own disagreement alone",
        settings=("pairs.adversary=0", "pairs.contrast=1", "pairs.correction=0"),
    ),
    "correction-pairs": Ablation(
        description="cells that erred learn what a rewarded one said, under their own input",
        settings=("pairs.adversary=0", "pairs.contrast=0", "pairs.correction=1"),
    ),
    "mixed-pairs": Ablation(
        description="worse sides from the adversary and from disagreement, half and half",
        settings=("pairs.adversary=1", "pairs.contrast=1", "pairs.correction=0"),
    ),
    "all-steps": Ablation(
        description="episodes teach to their end, not up to their first error",
        settings=("pairs.stop_at_first_error=false",),
    ),
    "anchor": Ablation(
        description="the loss holds on to the likelihood of chosen replies, with weight 5",
        settings=("dpo.anchor=5",),
    ),
    "no-anchor": Ablation(
        description="plain DPO: nothing holds on to the likelihood of chosen replies",
        settings=("dpo.anchor=0", "pairs.anchors=0"),
    ),
}
"""By name, in the order in which they are listed."""
