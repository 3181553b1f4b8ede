"""Values of tokens: a language model with a number per token in place of the next token's distribution.

    model = TokenValues(recipe, base, device="cpu")
    found = model.compute([ValueRow(ids=prompt, places=(len(prompt) - 1,))])       # one array per row
    metrics = model.fit(rows, targets, seed=1)                                     # metrics.loss, metrics.steps
    model.save(folder)
    model = TokenValues.load(folder, recipe, base, device="cpu")                   # the same numbers

Read at the last token of a prompt, it is V of that state, as PPO needs it. Read at the tokens of a reply, whose mean it
takes, it is Q of that reply in its state, as Android Coach (section 3.2) trains it. Body and start are those of the
policy's checkpoint, the head is one linear layer that is 0 at first, so an unfitted model values all alike, and no
random number decides anything. A fit minimises (Android Coach, eq. 2; `losses.mse_clipped`)

    ½ mean max((Q − R)², (clip(Q, Q_old ± ε) − R)²),   Q_old before the fit

over shuffled rows, with AdamW whose moments last from fit to fit. A fit whose loss, gradient, weights or values are no
numbers is undone.
"""

from __future__ import annotations

import copy
import hashlib
import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from collab.data.parquet import read_rows
from collab.data.tokenize import EncodedExample, Ids, encode_replies
from collab.errors import ConfigError, Diverged, RunFormatError
from collab.models.checkpoint import choose_device
from collab.models.tokenizer import ChatTokenizer, take_first_line
from collab.seeds import generator
from collab.synthesis.judgement import RIGHT, WRONG
from collab.trainers.base_model import Base, load_weights
from collab.trainers.prefix_sharing import (
    compute_shared_hidden,
    find_obstacle,
    find_structural_obstacle,
    switch_attention,
)
from collab.trainers.recipe import TokenValueRecipe
from collab.trainers.rl.losses import mse_clipped
from collab.trainers.rl.policy_gradient import read_moments, write_moments
from collab.trainers.rl.turns import fill_passes
from collab.utils.concurrency import note_doing
from collab.utils.files import hash_file, read_json, write_json

_WEIGHTS, _MOMENTS, _HEAD = "weights.safetensors", "moments.safetensors", "values.json"
_REMEDY = "remove its folder, and it is fitted again"

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ValueRow:
    """Tokens, and where their values are read."""

    ids: Ids
    """(tokens,)."""
    places: tuple[int, ...]
    """Positions in `ids`, at least one: the last of a prompt, or all of a reply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedReplies:
    """Replies of a synthesis (`collab synth --levels candidate`), each of them right or wrong."""

    rows: list[ValueRow]
    targets: list[float]
    """1 for right, 0 for wrong."""
    states: list[bytes]
    """Prompt of each: equal ones are one state."""
    dropped: int = 0
    """How many were longer than the context."""

    @classmethod
    def read(cls, path: Path, chat: ChatTokenizer, context: int) -> JudgedReplies:
        """Read a file of candidates.

        Raises:
            UsageError, ConfigError: it cannot be read, or no right one or no wrong one fits into the context.
        """
        every, found = list(read_rows(path)), list[tuple[EncodedExample, float]]()
        for kind, target in ((RIGHT, 1.0), (WRONG, 0.0)):
            encoded = encode_replies((row for row in every if row.kind == kind), chat, context)
            found += [(one, target) for one in encoded.items]
        return cls(
            rows=[ValueRow(ids=one.ids, places=tuple(range(one.scored_from, len(one)))) for one, _ in found],
            targets=[target for _, target in found],
            states=[one.ids[: one.scored_from].tobytes() for one, _ in found],
            dropped=len(every) - len(found),
        )

    def draw(self, least: int, seed: int) -> JudgedReplies:
        """Return at least so many, whole states in a drawn order; all if there are fewer."""
        members = defaultdict[bytes, list[int]](list)
        for place, prompt in enumerate(self.states):
            members[prompt].append(place)
        order, kept = list(members), list[int]()
        generator(seed).shuffle(order)
        for prompt in order:
            if len(kept) >= least:
                break
            kept += members[prompt]
        return JudgedReplies(
            rows=[self.rows[place] for place in kept],
            targets=[self.targets[place] for place in kept],
            states=[self.states[place] for place in kept],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FitMetrics:
    """Result of a fit."""

    steps: int
    """Optimizer steps."""
    loss: float
    """Mean of the steps."""


class _ValuedModel(nn.Module):
    """A body without its output layer, and a number per token."""

    def __init__(self, body: Any, width: int) -> None:
        super().__init__()
        self.body = body
        self.head = nn.Linear(width, 1)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def rate(self, hidden: Tensor) -> Tensor:
        """Return the value of what the body puts out, (…, width) → (…), float32."""
        values: Tensor = self.head(hidden.float())[..., 0]
        return values


class TokenValues:
    """One value function on tokens.

    Args:
        base: checkpoint of the body; of a policy with an adapter, the base under it.
        device: "auto" takes a GPU when there is one, or "cpu".

    Raises:
        ConfigError: the weights cannot be loaded, or do not allow `sharing`.
    """

    def __init__(self, recipe: TokenValueRecipe, base: Base, *, device: str) -> None:
        self.recipe, self.base = recipe, base
        self.steps = 0
        """Optimizer steps so far."""
        self._device = torch.device(choose_device(device))
        is_lower = recipe.precision == "bfloat16"
        self._autocast = torch.autocast(self._device.type, dtype=torch.bfloat16, enabled=is_lower)
        whole = load_weights(base, "float32")
        _drop_nothing(whole)
        if recipe.sharing == "prefix":
            switch_attention(whole)
        body = whole.base_model
        width = int(body.get_input_embeddings().weight.shape[1])
        if recipe.lora is not None:
            body = _adapt(body, recipe)
        self._model = _ValuedModel(body, width).to(self._device)
        self._model.eval()  # a layer that acts otherwise in training would make the values of one state differ
        self._optimizer = self._build_optimizer()

    def compute(self, rows: Sequence[ValueRow]) -> list[Floats]:
        """Return the values at the places of each row, (places,) each.

        With `sharing`, rows that begin alike should be neighbours.

        Raises:
            Diverged: a value is NaN or infinite.
        """
        found: list[Floats] = [np.empty(0)] * len(rows)
        with torch.inference_mode():
            for part in self._split_passes(range(len(rows)), rows):
                for row, values in zip(part, self._read([rows[row] for row in part]), strict=True):
                    found[row] = values.double().cpu().numpy()
        if not all(np.isfinite(one).all() for one in found):
            raise Diverged(f"values of tokens, step {self.steps}: some are no numbers")
        return found

    def fit(
        self,
        rows: Sequence[ValueRow],
        targets: Sequence[float],
        *,
        seed: int,
        is_clipped: bool = True,
        groups: Sequence[Hashable] | None = None,
        passes: int | None = None,
        known: Sequence[Floats] = (),
    ) -> FitMetrics:
        """Take optimizer steps towards targets, R of each row.

        Args:
            seed: of the order of rows.
            is_clipped: whether a value may move by the recipe's `clip` alone.
            groups: of each row; those of one stand together in the order, e.g. replies to one state. None: each alone.
            passes: over all rows; None for the recipe's.
            known: what `compute` gave for the first rows, so that their values before the fit are not computed again.

        Raises:
            Diverged: the loss, a gradient, a weight or a value is NaN or infinite; the model is as before.
            ValueError: rows and targets differ in number, or there are none.
        """
        if not rows or len(rows) != len(targets):
            raise ValueError(f"{len(rows)} rows, {len(targets)} targets; as many of both, at least one, are needed")
        before = {name: weight.detach().clone() for name, weight in self._name_trained()}
        moments, steps = copy.deepcopy(self._optimizer.state_dict()), self.steps  # the optimizer writes into its own
        try:
            order = _draw_order(range(len(rows)) if groups is None else groups, passes or self.recipe.passes, seed)
            old = [*known, *self.compute(rows[len(known) :])] if is_clipped else None
            losses = self._train(rows, targets, order, old)
            # Finite weights may be too large to compute with: one pass over what was just fitted shows it.
            self.compute(rows[: self.recipe.rows_at_once])
        except BaseException:  # also when stopped: half a fit is no state to go on from
            with torch.no_grad():
                for name, weight in self._name_trained():
                    weight.copy_(before[name])
            self._optimizer.load_state_dict(moments)
            self.steps = steps
            raise
        return FitMetrics(steps=len(losses), loss=math.fsum(losses) / len(losses))

    def save(self, folder: Path) -> None:
        """Write what is trained with its moments as safetensors, and their description, which is written last."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _HEAD).unlink(missing_ok=True)
        weights = {name: weight.detach().cpu().contiguous() for name, weight in self._name_trained()}
        save_file(dict(sorted(weights.items())), folder / _WEIGHTS)
        write_moments(folder / _MOMENTS, self._model, self._optimizer)
        files = {name: hash_file(folder / name) for name in (_WEIGHTS, _MOMENTS)}
        write_json(folder / _HEAD, {"steps": self.steps, "base": self.base.digest, "files": files})

    @classmethod
    def load(cls, folder: Path, recipe: TokenValueRecipe, base: Base, *, device: str) -> TokenValues:
        """Load what `save` wrote over the same base.

        Raises:
            RunFormatError: a file is missing, cannot be read, or belongs to another model.
        """
        head = read_json(folder / _HEAD, f"{folder}: no {_HEAD}: no values, or not written to their end; {_REMEDY}")
        model = cls(recipe, base, device=device)
        try:
            if head["base"] != base.digest:
                raise RunFormatError(f"{folder}: values over another checkpoint than {base}; {_REMEDY}")
            for name, digest in head["files"].items():
                if hash_file(folder / name) != digest:
                    raise RunFormatError(f"{folder / name}: not what {_HEAD} describes; {_REMEDY}")
            found, trained = load_file(folder / _WEIGHTS), dict(model._name_trained())
            if found.keys() != trained.keys():
                raise RunFormatError(f"{folder}: values of another recipe; {_REMEDY}")
            with torch.no_grad():
                for name, weight in trained.items():
                    weight.copy_(found[name])
            model.steps = int(head["steps"])
        except (OSError, SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as error:
            raise RunFormatError(f"{folder}: cannot be read: {error!r}; {_REMEDY}") from None
        if model.steps:
            read_moments(folder / _MOMENTS, model._model, model._optimizer)
        return model

    @property
    def digest(self) -> str:
        """SHA-256 of what is trained: equal ones give equal values."""
        digest = hashlib.sha256()
        for name, weight in sorted(self._name_trained()):
            digest.update(name.encode() + weight.detach().cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    # -------------------------------------------------------------------------------------------------- inside

    def _train(
        self,
        rows: Sequence[ValueRow],
        targets: Sequence[float],
        passes: Sequence[Sequence[int]],
        old: Sequence[Floats] | None,
    ) -> list[float]:
        """Take the steps of all passes and return their losses; Diverged leaves the model half-trained.

        Args:
            old: values before the fit, from which `clip` counts; None does not clip.
        """
        recipe = self.recipe
        before = None if old is None else [torch.tensor(values, dtype=torch.float32) for values in old]
        steps = [step for order in passes for step in _split(order, recipe.batch_rows)]
        weights = [weight for _, weight in self._name_trained()]
        warm, losses = round(recipe.warmup * len(steps)), []
        with note_doing("fitting values of tokens") as doing:
            for number, step in enumerate(steps, 1):
                doing.what = f"fitting values of tokens: step {number} of {len(steps)}"
                for group in self._optimizer.param_groups:
                    group["lr"] = recipe.learning_rate * (min(1.0, number / warm) if warm else 1.0)
                self._optimizer.zero_grad()
                losses.append(self._add_gradients(rows, targets, before, step))
                norm = nn.utils.clip_grad_norm_(weights, recipe.max_grad_norm)
                # A step with such a gradient would destroy all weights at once.
                for name, value in (("loss", losses[-1]), ("grad_norm", float(norm))):
                    if not math.isfinite(value):
                        raise Diverged(f"values of tokens, step {self.steps + 1}: {name} is {value}")
                self._optimizer.step()
                self.steps += 1
        if not all(weight.isfinite().all() for weight in weights):
            raise Diverged(f"values of tokens, step {self.steps}: some weights are no numbers")
        return losses

    def _add_gradients(
        self,
        rows: Sequence[ValueRow],
        targets: Sequence[float],
        old: Sequence[Tensor] | None,
        step: Sequence[int],
    ) -> float:
        """Compute the gradient of an optimizer step, pass by pass, and return its loss."""
        recipe, loss = self.recipe, 0.0
        per_token = recipe.level == "token"
        total = float(sum(len(rows[row].places) for row in step)) if per_token else float(len(step))
        for part in self._split_passes(step, rows):
            values = self._read([rows[row] for row in part])
            before = [one.detach() for one in values] if old is None else [old[row].to(self._device) for row in part]
            wanted = torch.tensor([targets[row] for row in part], device=self._device)
            if per_token:
                wanted = wanted.repeat_interleave(torch.tensor([len(one) for one in values], device=self._device))
                found, known = torch.cat(values), torch.cat(before)
            else:
                found, known = (torch.stack([one.mean() for one in each]) for each in (values, before))
            part_loss = mse_clipped(found, known, wanted, clip=math.inf if old is None else recipe.clip, total=total)
            torch.autograd.backward(part_loss)
            loss += float(part_loss.detach())
        return loss

    def _read(self, rows: Sequence[ValueRow]) -> list[Tensor]:
        """Return the values at the places of rows of one forward pass, (places,) each."""
        if self.recipe.sharing == "prefix":
            with self._autocast:
                hidden = compute_shared_hidden(self._model.body, [row.ids for row in rows], self._device)
            return [self._model.rate(one[list(row.places)]) for one, row in zip(hidden, rows, strict=True)]
        shape = (len(rows), max(len(row.ids) for row in rows))
        ids, mask = (torch.zeros(shape, dtype=torch.long) for _ in range(2))
        for place, row in enumerate(rows):
            ids[place, : len(row.ids)] = torch.from_numpy(np.asarray(row.ids, np.int64))
            mask[place, : len(row.ids)] = 1
        ids, mask = ids.to(self._device), mask.to(self._device)
        with self._autocast:
            hidden = self._model.body(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
        return [self._model.rate(hidden[place, list(row.places)]) for place, row in enumerate(rows)]

    def _split_passes(self, step: Iterable[int], rows: Sequence[ValueRow]) -> Sequence[Sequence[int]]:
        """Return the forward passes of a step: rows of similar length, or with `sharing` whole states."""
        if self.recipe.sharing == "prefix":
            states = groupby(step, key=lambda row: rows[row].ids[: rows[row].places[0]].tobytes())
            return fill_passes((list(neighbours) for _, neighbours in states), self.recipe.rows_at_once)
        return _split(sorted(step, key=lambda row: len(rows[row].ids)), self.recipe.rows_at_once)

    def _name_trained(self) -> Iterator[tuple[str, Any]]:
        return ((name, weight) for name, weight in self._model.named_parameters() if weight.requires_grad)

    def _build_optimizer(self) -> torch.optim.AdamW:
        weights = [weight for _, weight in self._name_trained()]
        return torch.optim.AdamW(weights, lr=self.recipe.learning_rate, betas=(0.9, 0.99), weight_decay=0.0)


def check_shape(recipe: TokenValueRecipe, model: Any, named: str) -> None:
    """Refuse a checkpoint that cannot carry values by this recipe, as far as a causal LM without weights tells.

    Args:
        recipe: the method's `values`.
        model: on the meta device; it is changed.
        named: name of the checkpoint in messages.

    Raises:
        ConfigError: it cannot share prefixes, or lacks a layer that the adapter names.
    """
    _drop_nothing(model)
    reason = (find_obstacle(model) or find_structural_obstacle(model)) if recipe.sharing == "prefix" else None
    if reason is not None:
        raise ConfigError(
            f"{named}: prefixes cannot be shared while its values are fitted: {reason}; set values.sharing=none"
        )
    if recipe.lora is not None:
        try:
            _adapt(model.base_model, recipe)
        except ValueError as error:
            raise ConfigError(f"{named}: values.lora: {take_first_line(error)[:200]}") from None


def _drop_nothing(model: Any) -> None:
    """Set all dropout to 0: it would make the values of one state differ, and what rows share would lose it."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        elif isinstance(getattr(module, "attention_dropout", None), float):
            module.attention_dropout = 0.0


def _draw_order(groups: Sequence[Hashable], passes: int, seed: int) -> list[list[int]]:
    """Return the order of rows in each pass: groups are shuffled, and the rows of one stay together."""
    rng, members = generator(seed), dict[Hashable, list[int]]()
    for row, group in enumerate(groups):
        members.setdefault(group, []).append(row)
    found = []
    for _ in range(passes):
        order = list(members)
        rng.shuffle(order)
        found.append([row for group in order for row in members[group]])
    return found


def _split(rows: Sequence[int], size: int) -> list[Sequence[int]]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def _adapt(body: Any, recipe: TokenValueRecipe) -> Any:
    """Return the body under a fresh LoRA adapter, which alone is trained."""
    from peft import LoraConfig, get_peft_model

    assert recipe.lora is not None, "asked only with an adapter"
    config = LoraConfig(
        r=recipe.lora.rank,
        lora_alpha=recipe.lora.alpha,
        target_modules=recipe.lora.targets,
        task_type="FEATURE_EXTRACTION",
    )
    # Matrices A are drawn from torch's global generator; a fixed seed keeps a training repeatable.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return get_peft_model(body, config)
