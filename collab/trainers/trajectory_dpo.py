"""DPO between whole trajectories: the log-ratios of a side are summed over all replies of an episode.

    loss = −log σ(M),  M = β [ Σ_k r(a⁺_k, x⁺_k) − Σ_k r(a⁻_k, x⁻_k) ],  r(a, x) = log π(a|x) − log π_ref(a|x)

for an episode with replies a⁺_k to prompts x⁺_k that is preferred to another; the mean over the pairs of a step; plus,
where there is an anchor, its weight times the mean −log p per token of the chosen replies.

An episode has a hundred replies and more, too many for one backward pass. But all that ties them together is one number
per pair: the gradient is the sum over replies of ∓β σ(−M) / pairs · ∇ log π(a_k|x_k). So a step first computes every
log-probability without a gradient, then goes through the replies again, a few at a time, each with its factor. What
results is the gradient of the formula above and no approximation of it; the price is one more forward pass.

Source: CollabUIAgents, table 3 ("w/o CR"), which says no more than "DPO on whole trajectories".

`prepare_trajectories` tokenises and orders such preferences:

    prepared = prepare_trajectories(task, [TrajectoryRows(chosen=solved, rejected=unsolved), …])

Each side of a pair has all replies of an episode with their prompts. An optimizer step takes whole pairs, at least one,
until their chosen sides have `batch_rows` replies, so it is about as large as a step on single replies. Its
replies are computed a few at a time, those of one state together.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch import Tensor
from trl import DPOTrainer
from trl.trainer.utils import use_adapter

from collab.data.example import Example
from collab.data.tokenize import (
    Encoded,
    EncodedExample,
    NothingFits,
    TrajectoryPart,
    encode_replies,
    hash_examples,
)
from collab.errors import ConfigError, UsageError
from collab.prompts.render import hash_prefix
from collab.seeds import derive, generator
from collab.trainers.base_model import REFERENCE, Base, open_adapter, open_base, silence_libraries
from collab.trainers.batching import BatchStep
from collab.trainers.dpo import PASSES, unwrap_model
from collab.trainers.prefix_sharing import pack_batch, score_labels_only, score_replies, share
from collab.trainers.prepare import FinetuneTask, Prepared, check_installed, get_world, open_reference
from collab.trainers.recipe import Recipe


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighed:
    """Loss, margins and gradient factors of a step."""

    loss: Tensor
    """()."""
    margins: Tensor
    """M of each pair, (P,)."""
    factors: Tensor
    """By which each reply's log-probability enters the gradient, (N,)."""


def weigh(
    logps: Tensor, reference: Tensor, sides: Tensor, pairs: Tensor, tokens: Tensor, *, beta: float, anchor: float = 0.0
) -> Weighed:
    """Return the loss of a step and its derivative by each reply's log-probability.

    Args:
        logps: log-probability of each reply under the policy, (N,).
        reference: and under the reference, (N,).
        sides: 1 for a reply of a chosen trajectory, -1 for one of a rejected one, (N,).
        pairs: to which pair it belongs, numbers in any order, (N,).
        tokens: how many tokens it has, (N,).
        beta: β.
        anchor: weight of the mean −log p per token of the chosen replies.
    """
    # Pairs of a step numbered from 0, so that sums land in a (P,) vector.
    _, belongs = torch.unique(pairs, return_inverse=True)
    count = int(belongs.max()) + 1
    # M = β Σ_k side_k · r(a_k, x_k), the formula above, (P,).
    margins = beta * logps.new_zeros(count).index_add(0, belongs, sides * (logps - reference))
    chosen = (sides > 0).to(logps.dtype)  # (N,)
    # At least 1: a step without chosen tokens has an anchor of 0, not NaN.
    scored = (chosen * tokens).sum().clamp(min=1)
    # −log σ(M) = softplus(−M), which does not overflow for large margins.
    loss = torch.nn.functional.softplus(-margins).mean() - anchor * (chosen * logps).sum() / scored
    # ∂loss/∂log π(a_k|x_k) = ∓β σ(−M) / P − anchor / T for chosen ones: constants of the second pass.
    factors = -beta / count * sides * torch.sigmoid(-margins)[belongs] - anchor * chosen / scored
    return Weighed(loss=loss, margins=margins, factors=factors)


class TrajectoryDPOTrainer(DPOTrainer):  # type: ignore[misc]
    """TRL's DPO trainer with the loss of whole trajectories; model, reference, adapter and configuration are TRL's.

    A batch is a step, as `collate_trajectories` makes it. Metrics have TRL's names: margins and accuracies are of pairs
    of trajectories, log-probabilities and rewards are means per reply, so that they compare with other trainings.
    """

    anchor: float = 0.0
    sharing: bool = False

    def score_as(self, sharing: bool, anchor: float) -> None:
        """Decide, once, what is computed and how.

        Args:
            sharing: compute once what replies of a pass have in common, or each reply by itself.
            anchor: weight of the mean −log p per token of the chosen replies.

        Raises:
            ConfigError: a model would compute something else when it shares.
            UsageError: the model is split over processes.
        """
        if self.is_deepspeed_enabled or self.is_fsdp_enabled or self.accelerator.num_processes > 1:
            raise UsageError("whole trajectories are trained by one process; start it without a launcher")
        self.sharing, self.anchor = sharing, anchor
        for model in filter(None, (self.model, self.ref_model)):
            scoring = share if sharing else score_labels_only
            scoring(unwrap_model(model), self.accelerator.autocast)

    def training_step(self, model: Any, inputs: Any, *_: Any, **__: Any) -> Tensor:
        """Run one step: all log-probabilities, then the gradient, pass by pass."""
        model.train()
        # Prepared once: both passes over the replies read the same tensors.
        passes = [self._pack_pass(one) for one in self._prepare_inputs(inputs)[PASSES]]
        sides, pairs, tokens = (torch.cat([one[name] for one in passes]) for name in ("sides", "pairs", "tokens"))
        # First all log-probabilities, without a gradient: M of a pair needs every reply of both episodes.
        with torch.no_grad():
            logps = torch.cat([self._compute_logps(model, one) for one in passes])
            reference = self._compute_reference(passes)
        # The factors are constants from here on, so each pass can be differentiated by itself.
        found = weigh(logps, reference, sides, pairs, tokens, beta=self.beta, anchor=self.anchor)
        for one, factors in zip(passes, torch.split(found.factors, [len(one["sides"]) for one in passes]), strict=True):
            # Σ factor · log π has the gradient of the whole loss, a few replies at a time.
            self.accelerator.backward((factors * self._compute_logps(model, one)).sum())
        self._note(found, logps, logps - reference, sides)
        # The sum of factors and log-probabilities has the right gradient but is not the loss; this is.
        return found.loss

    def _compute_reference(self, passes: Sequence[Mapping[str, Any]]) -> Tensor:
        """Return log-probabilities of the reference: a model of its own, or the policy with another adapter or none."""
        # A reference of its own where all weights are trained; else an adapter, or none, over the same base.
        if self.ref_model is not None:
            return torch.cat([self._compute_logps(self.ref_model, one) for one in passes])
        model = self.accelerator.unwrap_model(self.model)
        with use_adapter(model, REFERENCE if REFERENCE in model.peft_config else None):
            return torch.cat([self._compute_logps(self.model, one) for one in passes])

    def _pack_pass(self, one: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**one, "packed": pack_batch(one)} if self.sharing else one

    def _compute_logps(self, model: Any, one: Mapping[str, Any]) -> Tensor:
        """Return the log-probability of each reply of a pass, (rows,), in float32."""
        # (rows,): log π(a|x) = Σ_t log π(a_t | x, a_<t)
        summed: Tensor = score_replies(model, one).log_probs.float().sum(1)
        return summed

    def _note(self, found: Weighed, logps: Tensor, ratios: Tensor, sides: Tensor) -> None:
        metrics = self._metrics["train"]
        metrics["rewards/margins"].append(found.margins.mean().item())
        metrics["rewards/accuracies"].append((found.margins > 0).float().mean().item())
        # Means per reply, so that they compare with trainings of single replies.
        for name, of in (("chosen", sides > 0), ("rejected", sides < 0)):
            metrics[f"logps/{name}"].append(logps[of].mean().item())
            metrics[f"rewards/{name}"].append(self.beta * ratios[of].mean().item())


def collate_trajectories(
    examples: Sequence[EncodedExample], parts: Sequence[TrajectoryPart], padding: int
) -> Callable[[Sequence[Sequence[Sequence[int]]]], dict[str, Any]]:
    """Return a function that makes a step into a batch.

    Args:
        examples: all replies with their prompts.
        parts: where each of them belongs.
        padding: id that fills rows up on the right.

    Returns:
        Function of a list with one step, its forward passes as positions of examples, to {PASSES: […]}; a pass has
        input_ids, attention_mask and completion_mask, (rows, longest), and sides, pairs and tokens, (rows,).
    """

    def collate(found: Sequence[Sequence[Sequence[int]]]) -> dict[str, Any]:
        (step,) = found
        return {
            PASSES: [
                _collate_pass([examples[row] for row in rows], [parts[row] for row in rows], padding) for rows in step
            ]
        }

    return collate


def _collate_pass(
    examples: Sequence[EncodedExample], parts: Sequence[TrajectoryPart], padding: int
) -> dict[str, Tensor]:
    shape = (len(examples), max(map(len, examples)))  # (rows, longest)
    ids, mask, completion = (torch.full(shape, value) for value in (padding, 0, 0))
    for place, one in enumerate(examples):
        ids[place, : len(one)] = torch.from_numpy(one.ids)
        mask[place, : len(one)] = 1
        # Only the reply is scored; its prompt is read.
        completion[place, one.scored_from : len(one)] = 1
    return {
        "input_ids": ids,
        "attention_mask": mask,
        "completion_mask": completion,
        "sides": torch.tensor([part.side for part in parts]),
        "pairs": torch.tensor([part.pair for part in parts]),
        "tokens": torch.tensor([one.scored for one in examples]),
    }


GROUP = "trajectory"
"""Level of the steps, for the record."""
_ANY = 1 << 62
"""A context that no row exceeds: a reply that is too long takes its whole pair with it, and that is seen here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrajectoryRows:
    """A pair: all replies of two episodes."""

    chosen: Sequence[Example]
    """Replies of the preferred episode, each with its own prompt."""
    rejected: Sequence[Example]

    @property
    def rows(self) -> tuple[Example, ...]:
        """Return the rows of both sides, the chosen one first."""
        return (*self.chosen, *self.rejected)


def prepare_trajectories(task: FinetuneTask, pairs: Sequence[TrajectoryRows]) -> Prepared:
    """Tokenise and order pairs of trajectories; nothing is written and no weight is loaded.

    A pair with a reply that is longer than the recipe's context is left out whole and counted.

    Raises:
        NothingFits: no pair is short enough.
        ConfigError: base, rows and recipe do not fit together, or several processes should train it.
        MissingExtra: a package is not installed.
    """
    check_installed()
    # Margins tie a pair's replies together, so one process must see all of them.
    if get_world()[1] > 1:
        raise ConfigError("whole trajectories are trained by one process; start it without a launcher")
    base = open_base(task.base, task.recipe)
    # Without a limit: a reply that is too long takes its whole pair with it, which is decided below.
    with silence_libraries():
        found = [_encode_pair(pair, base) for pair in pairs]
    # A trajectory without one of its replies would be another trajectory.
    kept = [number for number, one in enumerate(found) if max(map(len, one)) <= task.recipe.context]
    longest = max((len(item) for one in found for item in one), default=0)
    if not kept:
        raise NothingFits(len(pairs), task.recipe.context, longest)
    # Positions in `items`, `steps` and `trajectories` all count replies of these pairs, in this order.
    chosen = [pairs[number] for number in kept]
    return Prepared(
        task=task,
        base=base,
        encoded=Encoded(
            items=[item for number in kept for item in found[number]],
            dropped={GROUP: len(pairs) - len(kept)} if len(kept) < len(pairs) else {},
            longest=longest,
        ),
        steps=build_trajectory_steps(chosen, task.recipe, task.seed),
        # Over all pairs, also those left out, so that another context is seen as the same data.
        rows=hash_trajectory_pairs(pairs),
        world=1,
        reference=open_reference(task, base),
        adapter=open_adapter(task.adapter, task.recipe, task.base),
        reference_adapter=open_adapter(task.reference_adapter, task.recipe, task.base),
        trajectories=tuple(_list_parts(chosen)),
    )


def build_trajectory_steps(pairs: Sequence[TrajectoryRows], recipe: Recipe, seed: int) -> list[BatchStep]:
    """Return the order of training; positions are those of the replies of all pairs, one pair after the other.

    Args:
        seed: the same seed gives the same order.
    """
    # Counted on chosen sides: then a step learns from about as much as one of pairs between replies.
    places = list(_iterate_places(pairs))
    most = 2 * (recipe.rows_at_once or recipe.batch_rows)
    steps: list[BatchStep] = []
    for number in range(recipe.epochs):
        # Another order each time, by seed and number, so that a resumed training repeats it.
        order = list(range(len(pairs)))
        generator(derive(seed, "pass", GROUP, number)).shuffle(order)
        taken: list[int] = []
        for pair in order:
            taken.append(pair)
            if sum(len(pairs[one].chosen) for one in taken) >= recipe.batch_rows:
                steps.append(_step(pairs, places, taken, most))
                taken = []
        # The rest is a smaller step: dropping it would leave the same pairs out of every pass.
        if taken:
            steps.append(_step(pairs, places, taken, most))
    return steps[: recipe.max_steps]


def hash_trajectory_pairs(pairs: Sequence[TrajectoryRows]) -> str:
    """Return the SHA-256 over what pairs teach, in their order."""
    digest = hashlib.sha256()
    for pair in pairs:
        digest.update(f"{hash_examples(pair.chosen)} {hash_examples(pair.rejected)}\n".encode())
    return digest.hexdigest()


# ------------------------------------------------------------------------------------------------------ inside


def _encode_pair(pair: TrajectoryRows, base: Base) -> Sequence[EncodedExample]:
    return encode_replies(pair.rows, base.chat, _ANY).items


def _list_parts(pairs: Sequence[TrajectoryRows]) -> Iterator[TrajectoryPart]:
    for number, pair in enumerate(pairs):
        yield from (TrajectoryPart(pair=number, side=1) for _ in pair.chosen)
        yield from (TrajectoryPart(pair=number, side=-1) for _ in pair.rejected)


def _iterate_places(pairs: Sequence[TrajectoryRows]) -> Iterator[range]:
    """Yield the positions of each pair's replies."""
    start = 0
    for pair in pairs:
        yield range(start, start + len(pair.rows))
        start += len(pair.rows)


def _step(pairs: Sequence[TrajectoryRows], places: Sequence[range], taken: Sequence[int], most: int) -> BatchStep:
    """Return a step of these pairs, its replies in passes of at most so many, a state's together where they fit."""
    # Neighbours of one state share a prompt, so they go into one pass where they fit.
    said = [(place, row) for pair in taken for place, row in zip(places[pair], pairs[pair].rows, strict=True)]
    states = [[place for place, _ in those] for _, those in groupby(said, key=lambda one: _hash_state(one[1]))]
    passes: list[list[int]] = [[]]
    for state in states:
        # A state larger than a pass is cut; its pieces compute the prompt once each.
        for start in range(0, len(state), most):
            piece = state[start : start + most]
            if passes[-1] and len(passes[-1]) + len(piece) > most:
                passes.append([])
            passes[-1] += piece
    return BatchStep(group=GROUP, parts=tuple(map(tuple, passes)))


def _hash_state(row: Example) -> str:
    return hash_prefix(row.prompt.system, row.prompt.shared)
