"""The method of AppVLM: rounds and iterations, the balance of tasks, the final fine-tuning; and its ablations.

    method = override(load_method(algorithm, "sound"), ["epochs=5", "tau=5"])

Presets: `paper` as published, `sound` at the size of a small policy on a processor.
"""

from __future__ import annotations

import random
import sys
from typing import ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from collab.algorithms.turn_learner import TurnMethod, draw_passes
from collab.loop.config import Ablation
from collab.loop.policy import make_path_absolute
from collab.loop.ranges import Range


class AppVLMMethod(TurnMethod):
    """Settings of AppVLM."""

    SEES: ClassVar[bool] = True
    rounds: int = Field(default=2, ge=1)
    """Epochs of an iteration. The first plays all tasks, the others those with fewer than `tau` solutions so far; the
    last one learns. The last epoch of all is the final fine-tuning and plays nothing, so `epochs` is one more than a
    multiple of `rounds`."""
    tau: int | None = Field(default=10, ge=1)
    """τ: the solutions of a task that has fewer are repeated until it has so many. None plays all tasks in every round
    and repeats nothing."""
    drop_repeats: bool = True
    """Whether a step that leaves the screen as it was is left out."""
    passes: int = Field(default=3, ge=1)
    """How often the fine-tuning of an iteration reads each turn."""
    final_passes: int = Field(default=3, ge=1)
    """The same of the final one."""
    final_from: Literal["base", "previous", "undemonstrated"] = "base"
    """Where the final fine-tuning begins: with the first policy, that of the last iteration, or `undemonstrated`."""
    undemonstrated: str | None = None
    """Checkpoint that the first policy was before it learned demonstrations; for `final_from=undemonstrated` alone."""
    demonstrations: int = Field(default=0, ge=0)
    """Held-out instances whose solution by the environment is compared, step by step, with what the policy would do;
    0 for none."""

    @field_validator("undemonstrated")
    @classmethod
    def _make_absolute(cls, path: str | None) -> str | None:
        # So that a training resumes from anywhere.
        return None if path is None else make_path_absolute(path)

    @model_validator(mode="after")
    def _has_iterations(self) -> AppVLMMethod:
        if self.epochs <= self.rounds or (self.epochs - 1) % self.rounds:
            allowed = ", ".join(str(self.rounds * iterations + 1) for iterations in (1, 2, 3))
            raise ValueError(
                f"epochs: {self.epochs}, but iterations of {self.rounds} rounds and the final fine-tuning take "
                f"{allowed}, …; set epochs to one of these, or rounds"
            )
        return self

    @model_validator(mode="after")
    def _imitates(self) -> AppVLMMethod:
        if self.rl.loss != "likelihood":
            raise ValueError(f"rl.loss: {self.rl.loss}, but solutions are imitated by likelihood; leave it out")
        if self.rl.keeps_optimizer:
            raise ValueError("rl.keeps_optimizer: true, but each fine-tuning begins with a new optimizer; set it false")
        if self.is_adapter_kept and self.final_from == "undemonstrated":
            raise ValueError(
                "final_from: undemonstrated begins with another checkpoint than the adapters of this recipe lie over; "
                "set rl.lora.merge=true"
            )
        return self

    @property
    def iterations(self) -> int:
        """Return how often it collects and learns before the final fine-tuning."""
        return (self.epochs - 1) // self.rounds

    def is_final(self, number: int) -> bool:
        """Return whether an epoch is the final fine-tuning."""
        return number == self.epochs

    def is_learning(self, number: int) -> bool:
        """Return whether an epoch learns, or only collects."""
        return self.is_final(number) or number % self.rounds == 0

    def is_played(self, number: int) -> bool:
        """Return whether an epoch collects."""
        return not self.is_final(number)

    def is_measured(self, number: int) -> bool:
        """Return whether the policy behind an epoch is evaluated: not where it is that of the epoch before."""
        return (number == 0 or self.is_learning(number)) and super().is_measured(number)

    def get_capacity(self, number: int) -> int:
        """Return that everything is remembered."""
        return sys.maxsize

    def draw(self, number: int, turns: int, rng: random.Random) -> list[list[int]]:
        """Return every turn once per pass, in an order of its own."""
        passes = self.final_passes if self.is_final(number) else self.passes
        return draw_passes(turns, passes, self.rl.batch_rows, rng)

    def count_drawn(self, rolled: Range) -> Range:
        """Return from none to every step so far in every pass; repeated solutions come on top."""
        each = rolled.high / self.iterations
        high = sum(each * iteration for iteration in range(1, self.iterations + 1)) * self.passes
        return Range(low=0, high=high + rolled.high * self.final_passes)


ABLATIONS: dict[str, Ablation] = {
    "no-final": Ablation(
        description="the final fine-tuning continues from the last iteration", settings=("final_from=previous",)
    ),
    "no-tau": Ablation(description="every round plays all tasks, and no solution is repeated", settings=("tau=null",)),
    "keep-repeats": Ablation(
        description="steps that leave the screen as it was are learned, too", settings=("drop_repeats=false",)
    ),
    "awo": Ablation(
        description="the final fine-tuning begins with a checkpoint that learned no demonstration",
        settings=("final_from=undemonstrated",),
    ),
}
