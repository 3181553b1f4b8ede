"""Presets: how a family of checkpoints is trained, one recipe per stage, as YAML.

preset = load_preset("pocket")
recipe = override(preset.get_recipe("sft"), ["learning_rate=5e-4"])
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import ConfigDict, Field, field_validator, model_validator

from collab.config import Definition
from collab.data.example import LEVELS, POLICY_LEVELS, Level
from collab.errors import ConfigError
from collab.library import list_presets, read_preset

Stage: TypeAlias = Literal["copy", "sft", "dpo", "rl"]
STAGES: tuple[Stage, ...] = ("copy", "sft", "dpo")
"""Those that learn from files of rows, in the order in which a checkpoint passes them; "rl" learns from a lesson."""

Share = Annotated[float, Field(ge=0, le=1)]
Sharing: TypeAlias = Literal["prefix", "none"]
BelowOne = Annotated[float, Field(ge=0, lt=1)]
_FINITE = ConfigDict(allow_inf_nan=False)
"""Numbers are numbers: neither infinity nor NaN trains anything."""


class Architecture(Definition):
    """Sizes of a Qwen2 that is made from nothing."""

    model_config = _FINITE

    layers: int = Field(ge=1)
    """Transformer blocks."""
    hidden: int = Field(ge=8)
    """Width; a multiple of twice the heads, because each head rotates pairs."""
    intermediate: int = Field(ge=8)
    """Width inside the feed-forward part."""
    heads: int = Field(ge=1)
    """Attention heads; `hidden` is a multiple of twice their number."""
    key_value_heads: int = Field(ge=1)
    """Heads of keys and values; divides `heads`."""
    vocabulary: int = Field(ge=300)
    """Tokens at most; the 256 bytes and the control tokens are among them."""
    context: int = Field(default=4096, ge=64)
    """Longest sequence."""
    rope_theta: float = Field(default=10000.0, gt=0)
    """Base of the rotary angles."""
    tied: bool = True
    """Whether the embedding is also the output layer."""
    whole_numbers: int = Field(default=0, ge=0, le=1000)
    """Numbers below this are one token each where they stand alone, as in "[42]"; 0 splits all into digits."""
    deviation: float = Field(default=0.02, gt=0)
    """Standard deviation of the random weights."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Data type of the written weights."""

    @model_validator(mode="after")
    def _divides(self) -> Architecture:
        if self.hidden % (2 * self.heads) or self.heads % self.key_value_heads:
            raise ValueError(
                f"hidden {self.hidden} must be a multiple of 2 x heads ({self.heads}), "
                f"and heads a multiple of key_value_heads ({self.key_value_heads})"
            )
        return self


class Lora(Definition):
    """Low-rank adapters (PEFT) in place of full weights."""

    model_config = _FINITE

    rank: int = Field(default=64, ge=1)
    """Width of the adapter; its size grows with it."""
    alpha: float = Field(default=128, gt=0)
    """The adapter's output is multiplied by alpha / rank."""
    dropout: BelowOne = 0.0
    """Dropout of the adapter's input during training; none in preference training."""
    targets: Annotated[list[str], Field(min_length=1)] | Literal["all-linear"] = "all-linear"
    """Names of the modules that get an adapter; "all-linear" is every linear layer but the output."""
    merge: bool = False
    """Whether the result is a whole checkpoint with the adapter added to its weights, or the adapter alone."""


SHOWN: Mapping[str, str] = {"epochs": "epochs", "learning_rate": "learning rate", "beta": "β", "context": "context"}
"""Settings of a recipe on a model card, where it has them, and their names there."""


class Recipe(Definition):
    """Settings that all stages share."""

    model_config = _FINITE

    date: datetime.date | None = None
    """That a chat template tells which tells the date. None is the day on which the run begins, which notes it; of a
    team it is that of its agents."""
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)
    """Variables for the chat template, e.g. {enable_thinking: false}; of a team those of its agents."""
    context: int = Field(default=4096, ge=16)
    """Longest row in tokens, reply and turn end included; longer rows are dropped and counted."""
    epochs: int = Field(default=3, ge=1)
    """Passes over the rows."""
    max_steps: int | None = Field(default=None, ge=1)
    """Optimizer steps at most: a training stops early with them, on the first rows of its order. None takes all. The
    schedule ends with the last step that is taken."""
    learning_rate: float = Field(gt=0)
    """Learning rate of the optimizer after the warm-up."""
    schedule: Literal["constant", "linear", "cosine"] = "cosine"
    """Schedule of the learning rate after the warm-up; "linear" and "cosine" end at 0."""
    warmup: Share = 0.03
    """Share of the steps over which the learning rate rises from 0."""
    weight_decay: float = Field(default=0.0, ge=0)
    """Weight decay of the optimizer, decoupled from the gradient as in AdamW."""
    optimizer: Literal["adamw", "muon"] = "adamw"
    """"muon" trains the matrices inside the network with Muon and everything else with AdamW (see `optim`)."""
    betas: tuple[BelowOne, BelowOne] = (0.9, 0.999)
    """Betas of AdamW."""
    max_grad_norm: float = Field(default=1.0, gt=0)
    """The gradient of a step is scaled down to this norm where it is longer."""
    batch_rows: int = Field(default=64, ge=1)
    """Rows per optimizer step at most, over all processes; up to one less than its forward passes are added where
    the rest of a window is too little for a step of its own."""
    batch_tokens: int | None = Field(default=None, ge=1)
    """Tokens per optimizer step at most, padding included (rows x the longest of them), or where prefixes are shared
    those that are computed; None for no limit."""
    rows_at_once: int | None = Field(default=None, ge=1)
    """Rows per forward pass of one process at most; None computes a step in one pass per process. Where prefixes are
    shared, pairs of one state are together up to this number."""
    window: int = Field(default=50, ge=1)
    """Steps whose rows are sorted by length together, so that little is padded; 1 sorts within a step only."""
    precision: Literal["float32", "bfloat16"] = "bfloat16"
    """Data type of computation; with "bfloat16" weights and optimizer keep the type of `weights` (autocast)."""
    temperature: float = Field(default=1.0, gt=0)
    """Divisor of the logits before probabilities are taken. Replies sampled at a temperature came from the policy
    whose logits are divided by it; with the same number here that policy is trained (as DistRL evaluates its policies
    under the transform that was sampled from), with another number another one."""
    weights: Literal["float32", "bfloat16"] = "float32"
    """Data type of the weights during training. Weights that are trained should be "float32": what an optimizer
    adds is smaller than bfloat16 can tell from nothing. An adapter is float32 whatever its base is."""
    saved: Literal["float32", "bfloat16"] = "bfloat16"
    """Data type of the written result."""
    checkpointing: bool = False
    """Compute activations again in the backward pass instead of keeping them: a third more work, less memory."""
    lora: Lora | None = None
    """None trains all weights."""
    log_every: int = Field(default=10, ge=1)
    """Steps between two lines of metrics."""
    save_every: int = Field(default=200, ge=1)
    """Steps between two checkpoints to resume from."""
    keep: int = Field(default=2, ge=1)
    """Checkpoints that are kept."""


class SftRecipe(Recipe):
    """Next-token loss on replies."""

    prompt_weight: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Weight of the mean −log p per prompt token beside that of replies (see `pretrain`); 0 is the loss on replies
    alone, as it should be for a base that has read much."""
    levels: tuple[Level, ...] = POLICY_LEVELS[:-1]
    """Which rows, in the order of the curriculum; those of a policy unless "judgement" is named."""
    order: Literal["curriculum", "mixed"] = "curriculum"
    """"curriculum" finishes a level before the next begins; "mixed" draws from all of them in every epoch."""
    weights_by_level: dict[Level, Annotated[float, Field(ge=0)]] = Field(default={})
    """Passes over a level's rows in one epoch; default 1. 0.5 sees each row every other epoch."""

    @model_validator(mode="after")
    def _no_preferences(self) -> SftRecipe:
        if "preference" in self.levels or not self.levels:
            known = ", ".join(level for level in LEVELS if level not in ("preference", "candidate"))
            raise ValueError(f"levels {list(self.levels)}: name some of {known}; preferences are for dpo")
        if "candidate" in self.levels:
            raise ValueError(f"levels {list(self.levels)}: half of the rows of level candidate are wrong; leave it out")
        if len(set(self.levels)) < len(self.levels):
            raise ValueError(f"levels {list(self.levels)}: name each once; weights_by_level says how often it is seen")
        return self


class CopyRecipe(Recipe):
    """Random tokens that repeat once: forms the circuit that copies (see `pretrain`)."""

    epochs: Literal[1] = 1
    """Sequences are made, not read; there are as many as the steps need."""
    steps: int = Field(default=800, ge=1)
    """Optimizer steps."""
    shortest: int = Field(default=4, ge=2)
    """Tokens of the repeated part at least."""
    simple: Share = 0.7
    """Share of the steps, from the first, with short sequences: neither gap nor separator nor small alphabets."""
    simple_longest: int = Field(default=24, ge=2)
    """Tokens of the repeated part of these at most."""
    longest: int = Field(default=96, ge=1)
    """Tokens of the repeated part at most; `context` bounds the whole sequence."""
    gap: int = Field(default=32, ge=0)
    """Random tokens between the two occurrences at most."""
    alphabets: tuple[Annotated[int, Field(ge=2)], ...] = (10, 40, 1000000)
    """Numbers of different tokens. Each sequence draws one of these numbers; one above the vocabulary means all of it.
    With few different tokens, one alone does not show the position, so the model must look further back."""

    @model_validator(mode="after")
    def _fits(self) -> CopyRecipe:
        most = max(self.longest, self.simple_longest)
        short = self.shortest > min(self.longest, self.simple_longest)
        if short or 2 * most + self.gap + 1 > self.context or not self.alphabets:
            raise ValueError(
                f"shortest {self.shortest} to longest {most}, gap {self.gap}: the repeated part twice, the gap "
                f"and a separator must fit into context {self.context}; alphabets names at least one size"
            )
        return self


class DpoRecipe(Recipe):
    """Direct preference optimisation on process preferences (CollabUIAgents, eq. 8)."""

    beta: float = Field(default=0.1, gt=0)
    """Strength β of the preference: a larger one flattens the loss at smaller margins. The paper gives none."""
    anchor: float = Field(default=0.0, ge=0)
    """Weight of the mean negative log-likelihood per token of the chosen replies; 0 is plain DPO."""
    sharing: Sharing = "none"
    """"prefix" computes once what the pairs of a forward pass have in common from their start, with the same losses
    (see `collab.trainers.dpo`; a model that it would compute otherwise is refused); "none" is TRL's own way."""

    @model_validator(mode="after")
    def _no_dropout(self) -> DpoRecipe:
        if self.lora is not None and self.lora.dropout:
            raise ValueError(
                f"lora.dropout {self.lora.dropout}: preference training compares with a reference and needs 0"
            )
        return self


class RLRecipe(Recipe):
    """Log-likelihood or clipped ratio of recorded replies, each with a weight (see `rl.policy_gradient`)."""

    epochs: Literal[1] = 1
    """Turns are drawn, as many as the method has updates for."""
    loss: Literal["likelihood", "ppo-clip", "importance"] = "likelihood"
    """"likelihood" multiplies log π of a reply by its weight. "ppo-clip" takes the weight as an advantage, multiplies
    the ratio of π to the policy before the epoch's updates by it, and clips that ratio. "importance" multiplies log π
    by the weight and by the ratio of π to the policy that said the reply, cut at 1, without a gradient."""
    clip: float = Field(default=0.2, gt=0, lt=1)
    """ε: a ratio that has left 1 ± ε on the side that its advantage pushes to has no gradient. Of "ppo-clip"."""
    per_token: bool = False
    """Whether the loss is a mean over tokens, so that long replies count more, or over replies. With "ppo-clip" also
    whether the ratio is that of a token or of a whole reply."""
    sharing: Sharing = "none"
    """"prefix" computes once what the turns of a forward pass have in common from their start, e.g. the prompt of
    several replies to one state, with the same losses; a model that it would compute otherwise is refused."""
    entropy_weight: float = Field(default=0.0, ge=0)
    """β: weight of the mean entropy of π over reply tokens, which the loss rewards; 0 leaves it out."""
    keeps_optimizer: bool = True
    """Whether each epoch begins with the optimizer's moments of the one before; else each begins with none, and its
    first steps are as long as its gradients are steady."""

    @model_validator(mode="after")
    def _weighs_replies(self) -> RLRecipe:
        if self.loss == "importance" and self.per_token:
            raise ValueError("per_token: true, but the ratio of loss importance is of a whole reply; leave it out")
        return self

    @model_validator(mode="after")
    def _has_moments(self) -> RLRecipe:
        if self.optimizer != "adamw":
            raise ValueError(f"optimizer {self.optimizer}: turns are learned with adamw")
        if self.temperature != 1:
            raise ValueError(
                f"temperature {self.temperature:g}: each turn is learned at the temperature that it was sampled at; "
                "leave it out"
            )
        return self


class ValueRecipe(Definition):
    """A small network on frozen features that predicts an episode's outcome (DigiRL, section 4; see `values`)."""

    model_config = _FINITE

    layers: int = Field(default=2, ge=1)
    """Linear layers, with ReLU between them; 1 is logistic regression."""
    hidden: int = Field(default=256, ge=1)
    """Width between layers."""
    heads: Literal[1, 2] = 1
    """Networks that are fitted side by side; the value is the smaller of two."""
    loss: Literal["cross-entropy", "mse"] = "cross-entropy"
    """"cross-entropy" classifies success and failure, "mse" regresses the outcome."""
    learning_rate: float = Field(default=1e-3, gt=0)
    """Rate of AdamW, constant, without weight decay."""
    max_grad_norm: float = Field(default=1.0, gt=0)
    """The gradient of a step is scaled down to this norm where it is longer."""
    batch: int = Field(default=128, ge=1)
    """States per optimizer step, drawn with replacement."""
    held_out: BelowOne = 0.2
    """Share of the trajectories (or tasks) that are never trained on; accuracy and calibration are measured there."""


class TokenValueRecipe(Definition):
    """A language model with a value per token, which predicts returns (see `rl.token_values`)."""

    model_config = _FINITE

    learning_rate: float = Field(default=1e-5, gt=0)
    """Rate of AdamW behind the warm-up, constant, without weight decay."""
    warmup: Share = 0.0
    """Share of a fit's optimizer steps in which the rate rises from 0, rounded: a fit of few steps has none."""
    passes: int = Field(default=1, ge=1)
    """How often a fit reads each row."""
    batch_rows: int = Field(default=64, ge=1)
    """Rows per optimizer step."""
    rows_at_once: int = Field(default=8, ge=1)
    """Rows per forward pass."""
    clip: float = Field(default=0.5, gt=0)
    """ε_v: a value moves by about this much in a fit at most (Android Coach, eq. 2)."""
    sharing: Sharing = "none"
    """"prefix" computes once what rows of a forward pass have in common from their start, with the same values; a model
    that it would compute otherwise is refused."""
    level: Literal["action", "token"] = "action"
    """Whether the loss is of a row's mean value, or of each of its tokens."""
    max_grad_norm: float = Field(default=1.0, gt=0)
    """The gradient of a step is scaled down to this norm where it is longer."""
    lora: Lora | None = None
    """Its rank, alpha and targets; None trains all weights."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Data type in which the body is computed (autocast); weights, head and values are float32."""

    @field_validator("lora")
    @classmethod
    def _is_kept_apart(cls, lora: Lora | None) -> Lora | None:
        # Values of one state may not differ, and are nobody's checkpoint.
        if lora is not None and (lora.dropout or lora.merge):
            raise ValueError("dropout and merge are not for values; leave them out")
        return lora


class Preset(Definition):
    """`presets/*.yaml`."""

    description: str
    architecture: Architecture | None = None
    """Architecture of a checkpoint made from nothing; None where the base is a published one."""
    copying: CopyRecipe | None = None
    """None where the base can copy already."""
    sft: SftRecipe
    dpo: DpoRecipe | None = None
    """None where nothing is preferred: of a judge."""

    def get_recipe(self, stage: Stage) -> Recipe:
        """Return the recipe of a stage; ConfigError without one."""
        recipes: dict[Stage, Recipe | None] = {"copy": self.copying, "sft": self.sft, "dpo": self.dpo}
        found = recipes.get(stage)
        if found is None:
            had = ", ".join(name for name, recipe in recipes.items() if recipe is not None)
            raise ConfigError(f"--stage {stage}: the preset has no recipe for it; it has {had}; take another preset")
        return found


def list_builtin_presets() -> dict[str, Path]:
    """Return the built-in presets by name."""
    return list_presets(Path(__file__).parent / "presets")


def load_preset(name: str) -> Preset:
    """Load a preset by name, or from a YAML file.

    Raises:
        UnknownName: no preset has that name.
        ConfigError: the file cannot be read or does not fit.
    """
    return read_preset(name, list_builtin_presets(), Preset)
