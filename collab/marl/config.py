"""What decides a training: a *method* (preset or YAML of one's own) applied to a team in an environment.

    method = override(load_method("collab"), ["epochs=2", "dpo.beta=0.3"])

A `MarlConfig` holds everything, so that a directory can be gone on with from its own `marl.json`.

Arms of a comparison. `collab train-marl --preset collab --ablation NAME --set …` changes one thing of a preset (names:
`collab.marl.ablation`). Beside it stand the fields of the method that make arms equal:

    objective    what is learned from an epoch: "dpo", "trajectory-dpo" (ablation no-cr), "rft" (ablation rft)
    steps        environment steps per epoch, the same for every arm, whatever its episodes are like
    tasks        different tasks per epoch; with fewer tasks than episodes each is played several times, without which
                 no two trajectories can be compared

In `epoch.json` of every epoch: `steps` (environment steps that were learned from), `rows.GROUP.digest` (of what was
learned), `hash`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import ConfigDict, Field, field_validator, model_validator

from collab.config import Definition, EdgeSampler, RunConfig, SamplingDefinition, validate
from collab.credit.pairing import Recipe
from collab.credit.pairs import Sources
from collab.critics import CriticDefinition
from collab.errors import ConfigError
from collab.learn.preset import DpoRecipe
from collab.learn.sharded import Parallelism, obstacle
from collab.library import presets_in, read_preset
from collab.marl.layout import MarlFolder
from collab.preferences.adversaries import AdversaryChoice, Asked, choice_told
from collab.preferences.parties import CriticChoice
from collab.splits.split import EVALUATION_SEEDS

Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Exploration: TypeAlias = Literal["as_declared", "as_first"]
Objective: TypeAlias = Literal["dpo", "trajectory-dpo", "rft"]


class Pairs(Definition):
    """How pairs are made of judgements; see `collab.credit.pairs`."""

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
    until_error: bool = False
    """Whether an episode teaches up to its first error alone, that step included: the first one in which nobody named
    an action, or whose executed action was judged and not rewarded; what nobody judged is no error. Holds for anchors
    and rewarded replies (`rft`), too."""
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

    def recipe(self, seed: int) -> Recipe:
        """The same as the pairing takes it."""
        return Recipe(
            sources=Sources(adversary=self.adversary, contrast=self.contrast, correction=self.correction),
            threshold=self.threshold,
            cap=self.cap,
            attempts=self.attempts,
            until_error=self.until_error,
            seed=seed,
        )


class HeldOut(Definition):
    """The evaluation behind each epoch, by which the best one is chosen."""

    seeds: list[int] = Field(default=[39], min_length=1)
    """Run seeds. The default is kept for evaluation and not among 30, 31 and 32, from which results are told: an epoch
    must not be chosen by the instances that it is measured on."""
    episodes: int | None = Field(default=None, ge=1)
    """Per seed; None plays every task once."""
    before: bool = True
    """Whether the untrained team is measured, too; then it can be the best."""

    @field_validator("seeds")
    @classmethod
    def _differ(cls, seeds: list[int]) -> list[int]:
        if len(set(seeds)) != len(seeds):
            raise ValueError("a seed stands twice")
        return seeds


class Method(Definition):
    """How a team is trained: `presets/*.yaml`."""

    model_config = ConfigDict(allow_inf_nan=False)

    description: str = ""
    objective: Objective = "dpo"
    """What is learned from an epoch: "dpo" from better against worse replies; "trajectory-dpo" from solved against
    unsolved episodes of a task, whatever any critic says (ablation "w/o CR"); "rft" from rewarded replies, with nothing
    to compare them with (ablation "PO → RFT")."""
    epochs: int = Field(default=3, ge=1)
    episodes: int | None = Field(default=None, ge=1)
    """Per epoch; None plays every task once, or where `steps` are given as many as these need. Which tasks come first
    is drawn anew for each epoch."""
    tasks: int | None = Field(default=None, ge=1)
    """Different tasks per epoch, drawn anew for each; None plays all. With fewer than `episodes`, each is played
    several times."""
    steps: int | None = Field(default=None, ge=1)
    """Environment steps per epoch: it ends with the episode, in the order of the plan, with which there are as many, or
    with the last of its `episodes` where these have fewer; None plays all `episodes`."""
    policies: Literal["shared", "per_agent"] = "shared"
    """One policy for all, or one per slot, each trained on its own cells."""
    reference: Literal["initial", "previous"] = "initial"
    """What DPO compares with: the policy before any training, or that of the epoch before."""
    edges: EdgeSampler | None = EdgeSampler(sampler="ordered", p=0.5)
    """How each epoch's graph is drawn; None keeps one in all epochs, the declared edges or one draw of them per run
    seed (ablation "w/o edge update")."""
    explore: Exploration = "as_declared"
    """How hot rollouts are played: "as_declared", or "as_first", as hot as the first epoch was, with temperatures that
    grow as the gain of the last norm does (see `heat`); where that has no rate of its own, both are the same.
    Evaluations are played as declared."""
    heat: float = Field(default=1.0, gt=0)
    """What temperatures of all rollouts are multiplied by, beside what `explore` makes of them: above 1 for a team that
    another training made surer, so that its agents disagree in what is new to them. Evaluations are played as
    declared."""
    critic: str = "critic-llm"
    """Agents file of who judges; its rewards are what is learned from."""
    least_auc: float | None = Field(default=0.7, ge=0, le=1)
    """What the critic's last calibration must have reached (`collab critic calibrate`); None lets any critic judge. The
    oracle needs no calibration."""
    adversary: Asked = Asked(kind="sampler")
    """Who makes worse sides up: a name, names with weights ("sampler=3,openai=1"), or written out."""
    pairs: Pairs = Pairs()
    older: float = Field(default=0.0, ge=0, lt=1)
    """Share of pairs of older epochs among those that are trained, as far as there are enough. Where the team comes
    from another training (`--agents RUN@last`), its epochs are older ones, too: what was learned there is rehearsed."""
    retokenised: Literal["keep", "refuse"] = "keep"
    """What becomes of pairs with a sampled reply whose tokens are not known; counted either way."""
    dpo: DpoRecipe
    rate_decay: float = Field(default=1.0, gt=0, le=1)
    """What the recipe's learning rates are multiplied by from one epoch to the next; 1 keeps them. Each epoch teaches
    less than the one before, and what an optimizer adds at a full rate then is mostly noise."""
    held_out: HeldOut = HeldOut()
    patience: int | None = Field(default=None, ge=1)
    """Stop after so many epochs without a better one; None trains all."""
    determinism: Literal["fast", "exact"] = "fast"
    """Of the policies; "exact" samples one sequence at a time, so that a run can be repeated bit for bit."""
    processes: int = Field(default=1, ge=1)
    """Processes that train a policy together, each with a GPU of its own where there are any. Playing and judging stay
    in one. Fewer train where an epoch has fewer rows."""
    parallelism: Parallelism = "ddp"
    """What each of them holds: "ddp" the whole model, "fsdp" a share of it (see `collab.learn.sharded`)."""

    @field_validator("dpo")
    @classmethod
    def _exact(cls, recipe: DpoRecipe) -> DpoRecipe:
        if recipe.lora is not None and not recipe.lora.merge and recipe.saved != "float32":
            raise ValueError(
                f"saved: {recipe.saved} would round what every epoch adds to its adapter; set saved=float32, or "
                "lora.merge=true for whole checkpoints"
            )
        return recipe

    @model_validator(mode="after")
    def _anchored(self) -> Method:
        if self.pairs.anchors and not (self.dpo.anchor and self.objective == "dpo"):
            raise ValueError(
                f"pairs.anchors: {self.pairs.anchors}, but with objective {self.objective} and dpo.anchor "
                f"{self.dpo.anchor:g} nothing holds on to them; set pairs.anchors=0"
            )
        return self

    @model_validator(mode="after")
    def _whole_epochs(self) -> Method:
        if self.objective == "trajectory-dpo" and self.pairs.until_error:
            raise ValueError(
                "pairs.until_error: true, but whole trajectories are compared; set pairs.until_error=false"
            )
        if self.objective == "trajectory-dpo" and self.older:
            raise ValueError(
                f"older: {self.older:g}, but whole trajectories are compared within their epoch; set older=0"
            )
        return self

    @model_validator(mode="after")
    def _divisible(self) -> Method:
        if self.objective == "trajectory-dpo" and self.processes > 1:
            raise ValueError(
                f"processes: {self.processes}, but whole trajectories are trained by one process; set processes=1"
            )
        return self

    @model_validator(mode="after")
    def _split(self) -> Method:
        if self.parallelism != "ddp" and self.processes == 1:
            raise ValueError(
                f"parallelism: {self.parallelism} divides a model among processes; set processes above 1, or "
                "parallelism=ddp"
            )
        reason = obstacle(self.dpo, self.parallelism)
        if reason is not None:
            raise ValueError(reason)
        return self

    @property
    def keeps_adapters(self) -> bool:
        """Whether a policy is a LoRA adapter over the first checkpoint, gone on with from epoch to epoch."""
        return self.dpo.lora is not None and not self.dpo.lora.merge

    @property
    def grows_hotter(self) -> bool:
        """Whether rollouts of later epochs may be hotter than declared: asked for, and the last norm has its rate."""
        return self.explore == "as_first" and self.dpo.final_norm_learning_rate is not None

    @property
    def is_judged(self) -> bool:
        """Whether a critic is asked at all."""
        return self.objective != "trajectory-dpo"

    @property
    def asks_an_adversary(self) -> bool:
        """Whether some source of pairs needs worse sides that are made up."""
        return self.objective == "dpo" and self.pairs.adversary > 0


class Origin(Definition):
    """Where a team was taken from."""

    run: str
    """Directory of the training."""
    epoch: int = Field(ge=0)
    """After which it was taken; 0 before any."""


class MarlConfig(Definition):
    """Everything that decides what a training does."""

    preset: str
    """Name of the method, for the record."""
    ablation: str | None = None
    """What was changed of it, for the record; None for nothing. `method` has it applied."""
    method: Method
    run: RunConfig
    """What every epoch's rollout is made from, prompts included; its seed is the seed of all."""
    held_out: list[RunConfig]
    """One evaluation per held-out seed, of the untrained team; sampled as `run` is."""
    declared: dict[str, SamplingDefinition] = Field(default_factory=dict)
    """Slot → how its agents file samples, without overrides: the trained team is played so wherever it is named
    (`RUN@best`), however hot the training was. Slots that are missing are played as in `run`."""
    origin: Origin | None = None
    """Another training that the team comes from; None of agents files."""
    library: str | None = None
    """Folder of the user's own definitions; None when there is none."""
    critic: CriticDefinition
    """Who judges."""
    critic_texts: dict[str, str] = Field(default_factory=dict)
    """Template → text of what it asks; empty when it asks nothing."""
    adversary: dict[str, Any]
    """Who makes worse sides up, with all that stood in files: `AdversaryChoice.told`."""

    @property
    def called(self) -> str:
        """Preset and ablation in a word."""
        return self.preset if self.ablation is None else f"{self.preset}, ablation {self.ablation}"

    @property
    def size(self) -> str:
        """How much an epoch plays, in words."""
        steps = self.method.steps
        number, noun = (self.run.episodes, "episode") if steps is None else (steps, "step")
        return f"{number} {noun}" if number == 1 else f"{number} {noun}s"

    def judging(self, labels: str, seed: int) -> CriticChoice:
        """The critic, for labels of that name and a run of that seed."""
        told = {"critic": self.critic.model_dump(mode="json", exclude={"description"}), "texts": self.critic_texts}
        name, definition, texts = self.method.critic, self.critic, self.critic_texts
        return CriticChoice(labels=labels, name=name, seed=seed, options=told, definition=definition, texts=texts)

    @property
    def erring(self) -> AdversaryChoice:
        """The adversary."""
        return choice_told(self.adversary)

    @property
    def as_declared(self) -> RunConfig:
        """`run`, sampled as the agents files say."""
        agents = {
            slot: agent.model_copy(update={"sampling": self.declared.get(slot, agent.sampling)})
            for slot, agent in self.run.agents.items()
        }
        return self.run.model_copy(update={"agents": agents})

    @property
    def groups(self) -> dict[str, tuple[str, ...]]:
        """Policies that are trained apart: name → slots; of a shared one, "shared" → all."""
        slots = tuple(self.run.graph.slots)
        return {"shared": slots} if self.method.policies == "shared" else {slot: (slot,) for slot in slots}


def read_training(folder: MarlFolder) -> tuple[dict[str, Any], MarlConfig]:
    """What `marl.json` of a training holds, and the configuration in it.

    Raises:
        RunFormatError: there is no training, or another version wrote it.
        ConfigError: the configuration does not fit.
    """
    head = folder.read()
    return head, validate(MarlConfig, head.get("config", {}), str(folder.file))


def presets() -> dict[str, Path]:
    """The methods that come with the package, by name."""
    return presets_in(Path(__file__).parent / "presets")


def load_method(name: str) -> Method:
    """A method by name, or from a YAML file of one's own.

    Raises:
        UnknownName: no preset has that name.
        ConfigError: the file cannot be read or does not fit.
    """
    return read_preset(name, presets(), Method)


def check_seeds(seed: int, held_out: HeldOut) -> None:
    """ConfigError where a team would be trained and measured with one seed, or trained with one kept for evaluation."""
    if seed in held_out.seeds:
        raise ConfigError(f"run seed {seed} is among held_out.seeds {held_out.seeds}; choose another --seed")
    if seed in EVALUATION_SEEDS:
        raise ConfigError(
            f"run seed {seed} is kept for evaluation ({EVALUATION_SEEDS.start} to {EVALUATION_SEEDS.stop - 1}); "
            "choose another --seed"
        )
