"""Value models: small networks on frozen features that predict whether an episode will be solved.

    model = ValueModel(recipe, size=encoder.size, seed=0)
    metrics = model.fit(features, outcomes, names, steps=100, seed=1)    # metrics.auc, metrics.ece, metrics.curve
    model.values(features)                                               # (n,), probability of success
    model.save(folder)
    model = ValueModel.load(folder)                                      # the same bytes

DigiRL fits two of them to the outcome r_H of each trajectory, V_step on the features of a state and V_instruct on those
of an instruction, by cross-entropy (paper, eq. 2.5 and 2.6):

    loss = −E[ r_H log V + (1 − r_H) log (1 − V) ]

Its network is an MLP of two layers on frozen features (appendix A). The released code has two heads of three layers and
takes the smaller value, clips gradients at 0.01 and divides a trajectory's list 80 : 20 into training and validation.
`loss: mse` is the paper's ablation (figure 6): one output per state, fitted to r_H by its squared error.

What deviates from both: features are standardised by mean and deviation of the first fit, and cut at ±10 deviations;
AdamW's state lasts from fit to fit; an episode is held out by a draw on its name, so it stays held out in a growing
buffer. A fit whose loss, gradient or weights are no numbers is undone.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import ValidationError
from torch import Tensor, nn

from collab.errors import Diverged, RunFormatError
from collab.rewards.calibration.metrics import (
    Bin,
    KnownStep,
    compute_accuracy,
    compute_auc,
    compute_ece,
    compute_reliability,
)
from collab.seeds import derive, generator
from collab.trainers.recipe import ValueRecipe
from collab.trainers.rl.losses import bce_soft, value_mse
from collab.utils.files import read_json, read_plain, write_atomic, write_json

_WEIGHTS, _HEAD = "values.safetensors", "values.json"
_FARTHEST = 10.0
"""Standard deviations at which a feature is cut: one that hardly varied in the first buffer must not drown the rest."""
_CONSTANT = 1e-6
"""Deviation below which a feature is constant, relative to its mean; it is centred and not scaled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueMetrics:
    """Result of a fit, and how good the values are on states that no fit has seen."""

    steps: int
    """Optimizer steps of this fit; 0 where all rows are held out."""
    loss: float | None
    """Mean of the steps; None without any."""
    trained: int
    """Rows that steps could draw."""
    solved: float | None
    """Share of them with an outcome above ½; at 0 and at 1 there is one class to learn. None without rows."""
    held_out: int
    """Rows that the numbers below are of."""
    accuracy: float | None
    """Share of rows whose value is on the outcome's side of ½; None without rows."""
    auc: float | None
    """Probability that a solved episode's state has the higher value; None where all outcomes are equal."""
    ece: float | None
    """Expected calibration error; None without rows."""
    curve: tuple[Bin, ...]
    """Calibration curve: mean value beside the share of solved episodes, in ten columns."""


class ValueModel:
    """One value function: its heads, the scale of its features, its optimizer.

    Args:
        size: features per state.
        seed: of the first weights, and of which names are held out.
    """

    def __init__(self, recipe: ValueRecipe, *, size: int, seed: int) -> None:
        self.recipe = recipe
        self.size = size
        self.seed = seed
        self.steps = 0
        """Optimizer steps so far."""
        rng = torch.Generator().manual_seed(derive(seed, "values"))
        self._heads = nn.ModuleList(_build_network(recipe, size, rng) for _ in range(recipe.heads))
        self._scale: tuple[Tensor, Tensor] | None = None
        """Mean and deviation of each feature, (size,); None before the first fit."""
        self._optimizer = self._build_optimizer()

    @property
    def digest(self) -> str:
        """SHA-256 of weights, scale and optimizer: equal ones give equal values, now and after equal fits."""
        return hashlib.sha256(self._pack()).hexdigest()

    def is_held_out(self, name: str) -> bool:
        """Return whether a trajectory (or task) of this name is never trained on."""
        return derive(self.seed, "held-out values", name) < self.recipe.held_out * 2**32

    def values(self, features: NDArray[Any]) -> NDArray[np.float64]:
        """Return the value of each state, (n,); within [0, 1] unless the loss is "mse".

        Args:
            features: (n, size).

        Raises:
            Diverged: a feature or a value is NaN or infinite.
        """
        with torch.inference_mode():
            self._check(features)
            found: Tensor = self._predict(self._read(features)).amin(0)
        if not found.isfinite().all():
            raise Diverged(f"value model, step {self.steps}: some values are no numbers")
        return found.double().numpy()

    def fit(
        self, features: NDArray[Any], outcomes: Sequence[float], names: Sequence[str], *, steps: int, seed: int
    ) -> ValueMetrics:
        """Take optimizer steps on rows that are not held out, and measure the values on those that are.

        Args:
            features: (n, size).
            outcomes: target of each row, in [0, 1]: r_H of its trajectory.
            names: trajectory (or task) of each row.
            steps: each on `recipe.batch` rows, drawn uniformly with replacement.
            seed: of the draws.

        Raises:
            Diverged: a feature, the loss, the gradient, a weight or a value is NaN or infinite; the model is as before.
            ValueError: an outcome is outside [0, 1], or the rows differ in number.
        """
        targets = torch.tensor(np.asarray(outcomes, dtype=np.float64))
        if not len(features) == len(targets) == len(names):
            raise ValueError(f"{len(features)} rows of features, {len(targets)} outcomes, {len(names)} names")
        if not ((targets >= 0) & (targets <= 1)).all():
            raise ValueError("outcomes must lie in [0, 1]")
        rows = [place for place, name in enumerate(names) if not self.is_held_out(name)]
        before, steps_before, scale_before = self._pack(), self.steps, self._scale
        try:
            losses = self._train(features, targets.float(), rows, steps if rows else 0, seed)
            values = self.values(features)
        except BaseException:  # also when stopped: half a fit is no state to go on from
            self.steps, self._scale = steps_before, scale_before
            self._unpack(before)
            raise
        kept = sorted(set(range(len(names))) - set(rows))
        return _measure(values[kept], targets[kept].tolist(), losses, targets[rows].tolist())

    def save(self, folder: Path) -> None:
        """Write weights, scale and optimizer as safetensors, and their description as JSON, which is written last."""
        folder.mkdir(parents=True, exist_ok=True)
        content = self._pack()
        write_atomic(folder / _WEIGHTS, content)
        head = {
            "size": self.size,
            "seed": self.seed,
            "steps": self.steps,
            "digest": hashlib.sha256(content).hexdigest(),
        }
        write_json(folder / _HEAD, {"recipe": self.recipe.model_dump(mode="json"), **head})

    @classmethod
    def load(cls, folder: Path) -> ValueModel:
        """Load a model that `save` wrote.

        Raises:
            RunFormatError: a file is missing, cannot be read, or belongs to another one.
        """
        head = read_json(
            folder / _HEAD, f"{folder}: no {_HEAD}: no value model, or one that was not written to its end"
        )
        path, next_move = folder / _WEIGHTS, "copy the whole directory again, or resume from an earlier one"
        try:
            content = read_plain(path)
            if hashlib.sha256(content).hexdigest() != head["digest"]:
                raise RunFormatError(f"{path}: not the weights that {_HEAD} describes; {next_move}")
            model = cls(ValueRecipe.model_validate(head["recipe"]), size=int(head["size"]), seed=int(head["seed"]))
            model.steps = int(head["steps"])
            model._unpack(content)
        except OSError as error:
            raise RunFormatError(f"{path}: cannot be read: {error.strerror}; {next_move}") from None
        except (ValidationError, KeyError, TypeError, ValueError, RuntimeError) as error:
            raise RunFormatError(f"{folder / _HEAD}: does not fit its weights: {error!r}; {next_move}") from None
        return model

    # -------------------------------------------------------------------------------------------------- inside

    def _train(
        self, features: NDArray[Any], targets: Tensor, rows: Sequence[int], steps: int, seed: int
    ) -> list[float]:
        """Take the steps and return their losses; Diverged leaves the model half-trained."""
        self._check(features)
        # The scale is that of the first rows for good: a moving one would change what the weights mean.
        if self._scale is None and rows:
            self._scale = _measure_scale(features[rows])
        inputs, rng = self._read(features), generator(seed)
        weights = list(self._heads.parameters())
        losses: list[float] = []
        for _ in range(steps):
            drawn = rng.choices(rows, k=self.recipe.batch)
            loss = self._compute_loss(inputs[drawn], targets[drawn])
            self._optimizer.zero_grad()
            torch.autograd.backward(loss)
            norm = nn.utils.clip_grad_norm_(weights, self.recipe.max_grad_norm)
            losses.append(float(loss.detach()))
            # A step with such a gradient would destroy all weights at once.
            for name, number in (("loss", losses[-1]), ("grad_norm", float(norm))):
                if not math.isfinite(number):
                    raise Diverged(f"value model, step {self.steps + 1}: {name} is {number}")
            self._optimizer.step()
            self.steps += 1
        if not all(weight.isfinite().all() for weight in weights):
            raise Diverged(f"value model, step {self.steps}: some weights are no numbers")
        return losses

    def _compute_loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss, averaged over the heads and the states of a batch."""
        outputs = [head(inputs) for head in self._heads]  # (batch, 2) each, (batch, 1) for mse
        if self.recipe.loss == "mse":
            return torch.stack([value_mse(one[:, 0], targets) for one in outputs]).mean()
        return torch.stack([bce_soft(one, targets) for one in outputs]).mean()

    def _predict(self, inputs: Tensor) -> Tensor:
        """Return the value of each head, (heads, n)."""
        outputs = torch.stack([head(inputs) for head in self._heads])
        return outputs[..., 0] if self.recipe.loss == "mse" else outputs.softmax(-1)[..., 1]

    def _check(self, features: NDArray[Any]) -> None:
        """Check shape and numbers of features; ValueError, and Diverged where one is NaN or infinite."""
        if features.ndim != 2 or features.shape[1] != self.size:
            raise ValueError(f"features of shape {features.shape}; (n, {self.size}) is needed")
        if not np.isfinite(features).all():
            raise Diverged(f"value model, step {self.steps}: some features are no numbers")

    def _read(self, features: NDArray[Any]) -> Tensor:
        """Return standardised features, (n, size), float32."""
        given = torch.tensor(features, dtype=torch.float32)
        if self._scale is None:
            return given
        mean, deviation = self._scale
        return ((given - mean) / deviation).clamp(-_FARTHEST, _FARTHEST)

    def _build_optimizer(self) -> torch.optim.AdamW:
        return torch.optim.AdamW(self._heads.parameters(), lr=self.recipe.learning_rate, weight_decay=0.0)

    def _pack(self) -> bytes:
        """Return all tensors as safetensors: weights, scale, and the optimizer's state."""
        from safetensors.torch import save

        tensors = {f"weight.{name}": weight.detach() for name, weight in self._heads.named_parameters()}
        for name, weight in self._heads.named_parameters():
            # All weights step together, so `steps` is the optimizer's own count.
            state = self._optimizer.state.get(weight, {})
            tensors |= {f"{part}.{name}": state[part] for part in _MOMENTS if part in state}
        if self._scale is not None:
            tensors |= dict(zip(("mean", "deviation"), self._scale, strict=True))
        return save({name: tensors[name].contiguous() for name in sorted(tensors)})

    def _unpack(self, content: bytes) -> None:
        """Take over what `_pack` returned at step `steps`; ValueError or KeyError where it is another model's."""
        from safetensors import SafetensorError
        from safetensors.torch import load

        try:
            tensors = load(content)
        except SafetensorError as error:
            raise ValueError(str(error)) from None
        self._optimizer = self._build_optimizer()
        with torch.no_grad():
            for name, weight in self._heads.named_parameters():
                weight.copy_(tensors[f"weight.{name}"])
                if self.steps:
                    moments = {part: tensors[f"{part}.{name}"] for part in _MOMENTS}
                    self._optimizer.state[weight] = {"step": torch.tensor(float(self.steps)), **moments}
        self._scale = (tensors["mean"], tensors["deviation"]) if "mean" in tensors else None


_MOMENTS = ("exp_avg", "exp_avg_sq")
"""AdamW's names for its means of gradients and of their squares."""


def _measure(
    values: NDArray[np.float64], outcomes: Sequence[float], losses: Sequence[float], trained: Sequence[float]
) -> ValueMetrics:
    """Return the metrics of a fit.

    Args:
        values: of the rows that are held out.
        outcomes: their targets.
        losses: of the steps.
        trained: targets of the other rows.
    """
    # Regression may leave [0, 1], where no column of the curve is.
    found = values.clip(0, 1).tolist()
    known = [KnownStep(score=one, good=outcome > 0.5) for one, outcome in zip(found, outcomes, strict=True)]
    curve = compute_reliability(known)
    return ValueMetrics(
        steps=len(losses),
        loss=sum(losses) / len(losses) if losses else None,
        trained=len(trained),
        solved=sum(one > 0.5 for one in trained) / len(trained) if trained else None,
        held_out=len(known),
        accuracy=compute_accuracy(known),
        auc=compute_auc(known),
        ece=compute_ece(curve),
        curve=curve,
    )


def _build_network(recipe: ValueRecipe, size: int, rng: torch.Generator) -> nn.Sequential:
    """Build linear layers with ReLU between them, drawn as torch draws them: U(−1/√inputs, 1/√inputs)."""
    widths = [size, *(recipe.hidden,) * (recipe.layers - 1), 1 if recipe.loss == "mse" else 2]
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(widths):
        # Drawn by hand, because torch's own layers draw from the global generator.
        linear = nn.Linear(inputs, outputs, device="meta").to_empty(device="cpu")
        for weight in linear.parameters():
            nn.init.uniform_(weight, -(inputs**-0.5), inputs**-0.5, generator=rng)
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def _measure_scale(features: NDArray[Any]) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation of each feature, (size,), computed in float64."""
    rows = features.astype(np.float64)
    mean, deviation = rows.mean(0), rows.std(0)
    deviation[deviation <= _CONSTANT * np.maximum(1.0, np.abs(mean))] = 1.0
    return torch.tensor(mean, dtype=torch.float32), torch.tensor(deviation, dtype=torch.float32)
