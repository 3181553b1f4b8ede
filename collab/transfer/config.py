"""What decides a transfer: who plays where, on which seeds, and how training goes on.

A `TransferConfig` holds everything, so that a directory can be gone on with from its own `transfer.json`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field, SerializeAsAny, model_validator

from collab.config import Definition, RunConfig
from collab.loop.config import TrainingConfig
from collab.loop.interfaces import load_config
from collab.splits.split import NEW_SEEDS

Mode: TypeAlias = Literal["direct", "continual"]
Place: TypeAlias = Literal["second", "first"]
"""The environment that is transferred to, and the one where the team was trained."""
Arm: TypeAlias = Literal["base", "transferred", "continued"]
"""The untrained start, the team as it was trained in the first environment, the team after training in the second."""

SEEDS = (30, 31, 32)
"""Run seeds from which results are told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """A transfer as a user asks for it."""

    mode: Mode
    agents: str
    """The team: an epoch of a training (`RUN@best`, `RUN@epoch3`, `RUN@last`); for direct also agents files."""
    env: str
    """The second environment."""
    base: str | None = None
    """What the team is held against, named as `agents`; None for the policy that its training began with."""
    graph: str = "team"
    """Who hears whom in the second environment."""
    backend: str | None = None
    """Of the second environment; None for what its file says."""
    tasks: tuple[str, ...] = ()
    """Of the second environment; empty takes what its file says."""
    split: str | None = NEW_SEEDS
    """What the second environment is measured on; None keeps neither evaluation nor training to a split."""
    seeds: tuple[int, ...] = SEEDS
    """Run seeds of all evaluations."""
    episodes: int | None = None
    """Per seed and evaluation; None plays every task once."""
    concurrency: int = 4
    """Episodes at once."""
    algorithm: str | None = None
    """Continual: that trains, by its name; None for the one that trained the team."""
    preset: str | None = None
    """Continual: the method; None for the algorithm's own."""
    ablation: str | None = None
    """Continual: what is changed of it, by its name; None for nothing."""
    seed: int = 0
    """Continual: of the training."""
    settings: tuple[str, ...] = ()
    """Overrides: "epochs=2" of the method; "run.graph.rounds=2" of all that is played in the second environment."""


def _load(training: Any) -> Any:
    """The training as its algorithm understands it."""
    return load_config(training, "training") if isinstance(training, Mapping) else training


class TransferConfig(Definition):
    """Everything that decides what a transfer does."""

    mode: Mode
    agents: str
    """The team as it was named, for the record."""
    base_name: str
    """Its base as it was named."""
    base: list[RunConfig]
    """The base in the second environment, an evaluation per seed."""
    transferred: list[RunConfig]
    """The team in the second environment, on the same instances."""
    first: list[RunConfig] = Field(default_factory=list)
    """The team in the first environment; empty for direct."""
    training: Annotated[SerializeAsAny[TrainingConfig] | None, BeforeValidator(_load)] = None
    """In the second environment; None for direct."""
    library: str | None = None
    """Folder of the user's own definitions; None when there is none."""
    first_library: str | None = None
    """The same, of the first training."""

    @model_validator(mode="after")
    def _whole(self) -> TransferConfig:
        if (self.mode == "continual") is not (self.training is not None and bool(self.first)):
            raise ValueError(f"{self.mode}: training and first belong to continual, and to it alone")
        return self

    @property
    def seeds(self) -> list[int]:
        """Run seeds of all evaluations."""
        return [run.seed for run in self.transferred]
