"""Configuration of a training by any algorithm: a *method* (preset or YAML file), a team and an environment.

    method = override(load_method(algorithm), ["epochs=2", "steps=600"])

An algorithm adds its own fields to `Method` and to `TrainingConfig`. A `TrainingConfig` holds everything, so that a
directory can be resumed from its own `training.json`.

Fields that make the arms of a comparison equal:

    steps        environment steps per epoch, the same for every arm, whatever its episodes are like
    tasks        different tasks per epoch; with fewer tasks than episodes each is played several times, without which
                 no two trajectories can be compared

In `epoch.json` of every epoch: `steps` (environment steps that were learned from), `hashes`, `hash`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import ConfigDict, Field, SerializeAsAny, field_validator, model_validator

from collab.config import Definition, EdgeSampler, RunConfig, SamplingDefinition, SuccessCheck, Temperature
from collab.data.splits import EVALUATION_SEEDS
from collab.errors import ConfigError
from collab.trainers.distributed import Parallelism, find_obstacle
from collab.trainers.recipe import Recipe


class HeldOut(Definition):
    """The evaluation behind each epoch, by which the best one is chosen."""

    seeds: list[int] = Field(default=[39], min_length=1)
    """Run seeds. The default is kept for evaluation and is not among 40, 41 and 42, which results report: an epoch must
    not be chosen by the instances that it is measured on."""
    episodes: int | None = Field(default=None, ge=1)
    """Per seed; None plays every task once."""
    before: bool = True
    """Whether the untrained team is measured, too; then it can be the best."""
    every: int = Field(default=1, ge=1)
    """Measure behind each so many epochs, and behind the last."""

    @field_validator("seeds")
    @classmethod
    def _differ(cls, seeds: list[int]) -> list[int]:
        if len(set(seeds)) != len(seeds):
            raise ValueError("a seed is given twice")
        return seeds


class Method(Definition):
    """Method of training a team: the fields that all algorithms share. Each adds the recipe that it fine-tunes by."""

    model_config = ConfigDict(allow_inf_nan=False)

    RECIPE: ClassVar[str]
    """Name of the field that holds the recipe, e.g. "sft"."""
    SEES: ClassVar[bool] = False
    """Whether policies that see pictures are trained, too."""
    NEEDS: ClassVar[tuple[Literal["tokens", "probabilities"], ...]] = ()
    """What a model has to report of each reply that it samples."""

    description: str = ""
    """What it is for, in words."""
    epochs: int = Field(default=3, ge=1)
    """Rounds of playing, labelling and learning."""
    episodes: int | None = Field(default=None, ge=1)
    """Per epoch; None plays every task once, or as many as `steps` need. The order of the tasks is drawn anew for each
    epoch."""
    tasks: int | None = Field(default=None, ge=1)
    """Different tasks per epoch, drawn anew for each; None plays all. With fewer than `episodes`, each is played
    several times."""
    steps: int | None = Field(default=None, ge=1)
    """Environment steps per epoch. It ends with the episode, in planned order, that reaches them, or with the last of
    its `episodes`; None plays all `episodes`."""
    policies: Literal["shared", "per_agent"] = "shared"
    """One policy for all, or one per slot, each trained on its own cells."""
    edges: EdgeSampler | None = EdgeSampler(sampler="ordered", p=0.5)
    """How each epoch's graph is drawn; None keeps one in all epochs, the declared edges or one draw of them per run
    seed."""
    exploration_temperatures: Temperature | list[Temperature] | None = None
    """Temperatures at which rollouts are sampled: one for all slots, or one per slot in the order of the graph, begun
    again where there are more slots. None samples as the agents do. Evaluations and the trained team are played as
    their agents files say."""
    success_check: SuccessCheck = "end"
    """When rollouts and held-out evaluations ask the environment whether a task is solved; see the run's setting."""
    retokenised: Literal["keep", "refuse"] = "keep"
    """Whether examples are kept whose sampled reply has unknown tokens; counted either way."""
    learning_rate_decay: float = Field(default=1.0, gt=0, le=1)
    """Factor on the recipe's learning rate from one epoch to the next; 1 keeps it. Each epoch teaches less than the
    one before, so at a full rate later updates are mostly noise."""
    held_out: HeldOut = HeldOut()
    patience: int | None = Field(default=None, ge=1)
    """Stop after so many epochs without a better one; None trains all."""
    determinism: Literal["fast", "exact"] = "fast"
    """Sampling of the policies; "exact" samples one sequence at a time, so that a run repeats bit for bit."""
    processes: int = Field(default=1, ge=1)
    """Processes that train a policy together, each with a GPU of its own where there are any. Playing and labelling
    stay in one. Fewer train where an epoch has fewer examples."""
    parallelism: Parallelism = "ddp"
    """What each of them holds: "ddp" the whole model, "fsdp" a share of it (see `collab.trainers.distributed`)."""

    @field_validator("exploration_temperatures")
    @classmethod
    def _hold_one(cls, found: float | list[float] | None) -> float | list[float] | None:
        if found == []:
            raise ValueError("no temperature; give a number, one per slot, or null to sample as the agents do")
        return found

    @model_validator(mode="after")
    def _keeps_precision(self) -> Method:
        recipe = self.recipe
        if recipe.lora is not None and not recipe.lora.merge and recipe.saved != "float32":
            raise ValueError(
                f"{self.RECIPE}.saved: {recipe.saved} would round what every epoch adds to its adapter; set "
                f"{self.RECIPE}.saved=float32, or {self.RECIPE}.lora.merge=true for whole checkpoints"
            )
        return self

    @model_validator(mode="after")
    def _split(self) -> Method:
        if self.parallelism != "ddp" and self.processes == 1:
            raise ValueError(
                f"parallelism: {self.parallelism} divides a model among processes; set processes above 1, or "
                "parallelism=ddp"
            )
        reason = find_obstacle(self.recipe, self.parallelism)
        if reason is not None:
            raise ValueError(reason)
        return self

    @property
    def recipe(self) -> Recipe:
        """The recipe that policies are fine-tuned by."""
        recipe: Recipe = getattr(self, self.RECIPE)
        return recipe

    def is_measured(self, number: int) -> bool:
        """Return whether the policy behind an epoch, 0 for the first one, is evaluated on the held-out seeds."""
        if number == 0:
            return self.held_out.before
        return number % self.held_out.every == 0 or number == self.epochs

    def is_played(self, number: int) -> bool:
        """Return whether an epoch, from 1, plays; one that does not learns again from all rollouts before it."""
        return True

    def get_steps(self, number: int) -> int | None:
        """Return the step budget of an epoch, from 1; an algorithm's epochs may differ."""
        return self.steps

    @property
    def branches(self) -> int:
        """Return how many more episodes begin in states of each one that a rollout plays (`Algorithm.branch`)."""
        return 0

    @property
    def is_continuous(self) -> bool:
        """Return whether episodes are played on while the policy learns; see `collab.loop.continuous`."""
        return False

    def get_episodes(self, number: int) -> int | None:
        """Return how many episodes an epoch plays at most, if it is another number than the run's."""
        return None

    def build_recipe(self, number: int) -> Recipe:
        """Return the recipe of an epoch, from 1: `learning_rate_decay` times the rate of the epoch before."""
        rate = self.recipe.learning_rate * self.learning_rate_decay ** (number - 1)
        return self.recipe.model_copy(update={"learning_rate": rate})

    @property
    def is_adapter_kept(self) -> bool:
        """Return whether a policy is a LoRA adapter over the first checkpoint, trained further from epoch to epoch."""
        return self.recipe.lora is not None and not self.recipe.lora.merge

    def explore(self, run: RunConfig) -> RunConfig:
        """Return a run sampled as a rollout, at `exploration_temperatures`."""
        wanted = self.exploration_temperatures
        if wanted is None:
            return run
        listed = wanted if isinstance(wanted, list) else [wanted]
        agents = dict(run.agents)
        for position, slot in enumerate(run.sampling):
            agent, found = run.agents[slot], {"temperature": listed[position % len(listed)]}
            agents[slot] = agent.model_copy(update={"sampling": agent.sampling.model_copy(update=found)})
        return run.model_copy(update={"agents": agents})


class Origin(Definition):
    """Training that a team was taken from."""

    run: str
    """Directory of the training."""
    epoch: int = Field(ge=0)
    """After which it was taken; 0 before any."""


class RecordedInput(Definition):
    """A recorded run that the first epoch learns from, instead of playing."""

    run: str
    """Its directory."""
    hash: str
    """Run hash; a training is resumed with the same episodes or not at all."""
    episodes: int
    """Episodes that are over, without broken ones."""
    steps: int = Field(ge=1)
    """Environment steps of these."""
    privileged: bool = False
    """Whether a model in it looked at solutions: its episodes are demonstrations."""


class TrainingConfig(Definition):
    """Everything that decides a training; an algorithm adds what it needs beside the team."""

    algorithm: str
    """Name of the algorithm, built in or an entry point."""
    preset: str
    """Name of the method, for the record."""
    ablation: str | None = None
    """What was changed of the method, for the record; None for nothing. `method` has it applied."""
    method: SerializeAsAny[Method]
    run: RunConfig
    """What every epoch's rollout is made from, prompts included; its seed is the seed of the whole training."""
    held_out: list[RunConfig]
    """One evaluation per held-out seed, of the untrained team; sampled as `run` is."""
    declared: dict[str, SamplingDefinition] = Field(default_factory=dict)
    """Slot → how its agents file samples, without overrides. `RUN@best` plays so, whatever the
    rollouts' temperatures were. Slots that are missing are played as in `run`."""
    origin: Origin | None = None
    """Another training that the team comes from; None for agents files."""
    recorded: list[RecordedInput] = Field(default_factory=list)
    """Runs that epoch 1 learns from; empty where every epoch plays."""
    overlap: str | None = None
    """What these runs share with evaluations, in words, where that was allowed; None for nothing."""
    library: str | None = None
    """Folder of the user's own definitions; None when there is none."""

    def is_recorded(self, number: int) -> bool:
        """Return whether an epoch, from 1, learns from runs that were recorded before the training."""
        return number == 1 and bool(self.recorded)

    def is_played(self, number: int) -> bool:
        """Return whether an epoch, from 1, plays its rollout."""
        return not self.is_recorded(number) and self.method.is_played(number)

    @property
    def called(self) -> str:
        """Preset and ablation in a word."""
        return self.preset if self.ablation is None else f"{self.preset}, ablation {self.ablation}"

    @property
    def size(self) -> str:
        """Return how much an epoch plays, in words."""
        steps = self.method.steps
        number, noun = (self.run.episodes, "episode") if steps is None else (steps, "step")
        return f"{number} {noun}" if number == 1 else f"{number} {noun}s"

    def explore(self, run: RunConfig) -> RunConfig:
        """Return a run played as a rollout; an algorithm may change more than `Method.explore` does."""
        return self.method.explore(run)

    @property
    def as_explored(self) -> RunConfig:
        """`run`, played as the first rollout is."""
        return self.explore(self.run)

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
        """Separately trained policies: name → slots; a shared policy is "shared" → all slots."""
        slots = tuple(self.run.graph.slots)
        return {"shared": slots} if self.method.policies == "shared" else {slot: (slot,) for slot in slots}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ablation:
    """A method with one thing left out or exchanged, so that it differs from the full method in that alone."""

    description: str
    settings: tuple[str, ...] = ()
    """Overrides of the method."""
    graph: str | None = None
    """Graph that is played instead of the requested one; None for that one."""
    leaves_out: tuple[str, ...] = ()
    """Settings of which a method has one, or there is nothing to leave out; none are asked for if this is empty."""

    def __str__(self) -> str:
        return ", ".join((*self.settings, *([f"graph {self.graph}"] if self.graph else [])))

    def check_settings(self, name: str, settings: Sequence[str]) -> None:
        """Raise a ConfigError if a setting repeats, in part or as a whole, what the ablation changes."""
        for setting in settings:
            path = setting.partition("=")[0]
            if any(
                f"{one}.".startswith(f"{other}.")
                for key in self._list_keys()
                for one, other in ((path, key), (key, path))
            ):
                raise ConfigError(f"--set {setting}: --ablation {name} stands for {self}; leave out one of the two")

    def _list_keys(self) -> Iterator[str]:
        yield from (one.partition("=")[0] for one in self.settings)
        if self.graph:
            yield "run.graph"


def check_seeds(seed: int, held_out: HeldOut) -> None:
    """Raise a ConfigError if the run seed is also held out, or is kept for evaluation."""
    if seed in held_out.seeds:
        raise ConfigError(f"run seed {seed} is among held_out.seeds {held_out.seeds}; choose another --seed")
    if seed in EVALUATION_SEEDS:
        raise ConfigError(
            f"run seed {seed} is kept for evaluation ({EVALUATION_SEEDS.start} to {EVALUATION_SEEDS.stop - 1}); "
            "choose another --seed"
        )
