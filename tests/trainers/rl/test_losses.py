"""Losses against numbers computed by hand, and which weights their gradients reach."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from collab.trainers.rl.estimators import importance_ratios, leave_one_out, retrace_advantage, retrace_values
from collab.trainers.rl.losses import (
    bce_soft,
    entropy_bonus,
    mse_clipped,
    nll,
    policy_gradient,
    ppo_clip,
    value_mse,
)

MASK = torch.tensor([[True, True, True], [True, False, False]])
"""A reply of three tokens and one of one."""


def vector(*numbers: float, grad: bool = False) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64, requires_grad=grad)


def logps(grad: bool = True) -> Tensor:
    """Whatever stands behind a reply's end must not matter, not even if it is no number."""
    rows = [[-0.1, -0.2, -0.3], [-0.5, float("nan"), -9.0]]
    return torch.tensor(rows, dtype=torch.float64, requires_grad=grad)


def exactly(expected: Any) -> Any:
    return pytest.approx(expected, rel=0, abs=1e-12)


def gradient(loss: Tensor, by: Tensor) -> list[Any]:
    (found,) = torch.autograd.grad(loss, by)
    return found.tolist()  # type: ignore[no-any-return]


# --------------------------------------------------------------------------------------------------- imitation


def test_nll_is_summed_over_tokens_and_averaged_over_turns() -> None:
    """(.6 + .5) / 2; per token (.6 + .5) / 4; weighted (2 · .6 + 0) / 2."""
    given = logps()
    loss = nll(given, MASK)
    assert loss.item() == exactly(0.55)
    assert gradient(loss, given) == [[-0.5, -0.5, -0.5], [-0.5, 0, 0]]
    assert nll(given, MASK, per_token=True).item() == exactly(0.275)
    assert nll(given, MASK, vector(2, 0)).item() == exactly(0.6)


def test_weights_of_zero_have_a_gradient_of_exactly_zero() -> None:
    given = logps()
    assert gradient(nll(given, MASK, vector(0, 0)), given) == [[0, 0, 0], [0, 0, 0]]


# --------------------------------------------------------------------------------------------- policy gradient


def test_policy_gradient_is_weighted_by_ratio_and_advantage() -> None:
    """-(.5 · .4 · -.6 + 1 · -1 · -.5) / 2 = (.12 - .5) / 2."""
    given = logps()
    loss = policy_gradient(given, MASK, vector(0.4, -1.0), vector(0.5, 1.0))
    assert loss.item() == exactly(-0.19)
    assert gradient(loss, given)[0] == exactly([-0.1, -0.1, -0.1])
    assert gradient(policy_gradient(given, MASK, vector(0.4, -1.0)), given)[1] == exactly([0.5, 0, 0])


@pytest.mark.parametrize(("weight", "sign"), [(0.0, -1), (0.3, -1), (0.4, 0), (0.5, 1)])
def test_an_invalid_reply_becomes_less_likely_where_the_penalty_exceeds_its_advantage(weight: float, sign: int) -> None:
    """The sign is of the gradient: a negative one makes the reply likelier."""
    given = logps()
    loss = policy_gradient(
        given, MASK, vector(0.4, 0.4), vector(0.5, 0.5), invalid=torch.tensor([1, 0]), invalid_weight=weight
    )
    invalid, valid = gradient(loss, given)
    assert [(one > 0) - (one < 0) for one in invalid] == [sign] * 3
    assert invalid[0] == exactly(-0.5 * (0.4 - weight) / 2)
    assert valid[0] == exactly(-0.1)


# ---------------------------------------------------------------------------------------------------------- PPO


@pytest.mark.parametrize("level", ["token", "reply"])
@pytest.mark.parametrize(
    ("ratio", "advantage", "expected", "slope"),
    [(1.5, 1, -1.2, 0.0), (0.5, 1, -0.5, -0.5), (1.5, -1, 1.5, 1.5), (0.5, -1, 0.8, 0.0), (1.0, 1, -1.0, -1.0)],
)
def test_clipped_ratios(level: Any, ratio: float, advantage: float, expected: float, slope: float) -> None:
    """The slope is by log π; where ρ has left the region in A's direction it is exactly 0."""
    given = vector(ratio).log()[None].requires_grad_()
    loss = ppo_clip(given, torch.zeros_like(given), vector(advantage), torch.tensor([[True]]), level=level)
    assert loss.item() == exactly(expected)
    ((found,),) = gradient(loss, given)
    assert found == exactly(slope)
    assert slope or found == 0


def test_ratios_of_tokens_are_averaged_over_tokens_and_those_of_replies_over_replies() -> None:
    """Tokens: ρ = 1.1, 1.1 of the first reply and 1.5, cut to 1.2, of the second: -(1.1 + 1.1 + 1.2) / 3.

    Replies: ρ = 1.21, cut to 1.2, and 1.5, cut to 1.2.
    """
    ratios = torch.tensor([[1.1, 1.1], [1.5, 77.0]], dtype=torch.float64)
    mask = torch.tensor([[True, True], [True, False]])
    given, old = ratios.log() - 1, torch.full_like(ratios, -1)
    assert ppo_clip(given, old, vector(1, 1), mask).item() == exactly(-3.4 / 3)
    assert ppo_clip(given, old, vector(1, 1), mask, level="reply").item() == exactly(-1.2)


# ------------------------------------------------------------------------------------------------------ entropy


def test_the_entropy_bonus_lowers_the_loss_of_an_unsure_policy() -> None:
    """-.01 times the mean of ½ over 4 tokens."""
    entropy = torch.full((2, 3), 0.5, dtype=torch.float64, requires_grad=True)
    loss = entropy_bonus(entropy, MASK, 0.01)
    assert loss.item() == exactly(-0.005)
    assert gradient(loss, entropy) == [exactly([-0.0025] * 3), exactly([-0.0025, 0, 0])]


def test_an_entropy_without_a_gradient_is_refused_where_it_should_have_one() -> None:
    entropy = torch.full((2, 3), 0.5)
    with pytest.raises(ValueError, match="computed without a gradient, so its bonus would do nothing"):
        entropy_bonus(entropy, MASK, 0.01)
    assert entropy_bonus(entropy, MASK, 0.0).item() == 0
    with torch.no_grad():
        assert entropy_bonus(entropy, MASK, 0.01).item() == pytest.approx(-0.005)


# ------------------------------------------------------------------------------------------------------- values


def test_cross_entropy_with_soft_targets() -> None:
    """V = ¾ (logits 0 and ln 3): -ln ¾ for y = 1, -ln ¼ for y = 0, half of each for y = ½."""
    logits = torch.stack([vector(0, 0, 1), vector(0, 0, 1) + torch.log(vector(3, 3, 3))], 1).requires_grad_()
    loss = bce_soft(logits, vector(1, 0, 0.5))
    assert loss.item() == exactly((0.28768207245178085 + 1.3862943611198906 + 0.8369882167858357) / 3)
    # By the second logit V - y, by the first its opposite, each a third.
    found = gradient(loss, logits)
    assert [second for _, second in found] == exactly([-0.25 / 3, 0.75 / 3, 0.25 / 3])
    assert [first for first, _ in found] == exactly([0.25 / 3, -0.75 / 3, -0.25 / 3])


def test_hard_targets_are_those_of_a_classifier() -> None:
    logits = torch.randn(7, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    classes = torch.tensor([0, 1, 1, 0, 1, 0, 0])
    assert bce_soft(logits, classes).item() == exactly(nn.functional.cross_entropy(logits, classes).item())


@pytest.mark.parametrize("target", [-0.01, 1.5, float("nan")])
def test_a_target_that_is_no_probability_is_refused(target: float) -> None:
    with pytest.raises(ValueError, match="outside"):
        bce_soft(torch.zeros(1, 2), torch.tensor([target]))


def test_regression() -> None:
    values = vector(0.5, 1.0, grad=True)
    loss = value_mse(values, vector(1, 0))
    assert loss.item() == exactly(0.625)
    assert gradient(loss, values) == exactly([-0.5, 1.0])


@pytest.mark.parametrize(("value", "expected", "slope"), [(2.0, 1.125, 0.0), (0.2, 3.92, -2.8), (1.2, 1.62, -1.8)])
def test_clipped_regression(value: float, expected: float, slope: float) -> None:
    values = vector(value, grad=True)
    loss = mse_clipped(values, vector(1), vector(3), clip=0.5)
    assert loss.item() == exactly(expected)
    (found,) = gradient(loss, values)
    assert found == exactly(slope)
    assert slope or found == 0


def test_clipped_regression_of_tokens_gives_each_its_replys_return() -> None:
    """½ (1 + 0 + 1 + 4) / 4: the tokens' errors are 1, 0, -1 and -2."""
    values = torch.tensor([[2.0, 1.0, 0.0], [0.0, 99.0, 99.0]], dtype=torch.float64)
    loss = mse_clipped(values, values, vector(1, 2), clip=0.5, mask=MASK)
    assert loss.item() == exactly(0.75)


# ------------------------------------------------------------------------------------------- passes of one step

LOSSES: dict[str, Callable[[Tensor, slice, float | None], Tensor]] = {
    "nll": lambda given, part, total: nll(given[part], MASK[part], total=total),
    "policy_gradient": lambda given, part, total: policy_gradient(
        given[part], MASK[part], vector(0.4, -1)[part], total=total
    ),
    "reply": lambda given, part, total: ppo_clip(
        given[part], logps(False)[part] + 0.1, vector(0.4, -1)[part], MASK[part], level="reply", total=total
    ),
    "token": lambda given, part, total: ppo_clip(
        given[part], logps(False)[part] + 0.1, vector(0.4, -1)[part], MASK[part], total=total and 4
    ),
    "entropy": lambda given, part, total: entropy_bonus(given[part], MASK[part], 0.1, total=total and 4),
    "clipped": lambda given, part, total: mse_clipped(
        given[part], logps(False)[part], vector(1, 0)[part], clip=0.1, mask=MASK[part], total=total and 4
    ),
    "values": lambda given, part, total: value_mse(given[:, 0][part], vector(1, 0)[part], total=total),
    "classifier": lambda given, part, total: bce_soft(given[:, :1].repeat(1, 2)[part], vector(1, 0)[part], total=total),
}


@pytest.mark.parametrize("name", LOSSES)
def test_passes_add_up_to_the_step_although_they_differ_in_size(name: str) -> None:
    given = logps()
    whole = LOSSES[name](given, slice(None), None)
    parts = LOSSES[name](given, slice(0, 1), 2) + LOSSES[name](given, slice(1, 2), 2)
    assert parts.item() == exactly(whole.item())
    assert torch.autograd.grad(parts, given)[0].nan_to_num().tolist() == [
        exactly(row) for row in torch.autograd.grad(whole, given)[0].nan_to_num().tolist()
    ]


# ----------------------------------------------------------------------------------------- reach of a gradient


class Learners:
    """A policy over seven tokens, a value of features, and a critic with a body of its own."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.policy = nn.Sequential(nn.Embedding(7, 5), nn.Linear(5, 7))
        self.encoder = nn.Linear(4, 5)
        self.value = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 2))
        self.critic = nn.Sequential(nn.Embedding(7, 5), nn.Linear(5, 1))
        self.encoder.requires_grad_(False)
        self.states = torch.randn(2, 4)
        self.prompts, self.replies = torch.tensor([[0, 1, 2], [3, 0, 0]]), torch.tensor([[1, 2, 3], [4, 0, 0]])

    def score(self) -> tuple[Tensor, Tensor]:
        """Return log π and H of each reply token, (2, 3) each."""
        table = self.policy(self.prompts).log_softmax(-1)
        return table.gather(-1, self.replies[..., None])[..., 0], -(table.exp() * table).sum(-1)

    def logits(self) -> Tensor:
        return self.value(self.encoder(self.states))  # type: ignore[no-any-return]

    def judge(self) -> Tensor:
        """Return Q of each reply, the mean over its tokens, (2,)."""
        tokens = self.critic(self.replies)[..., 0]
        return torch.where(MASK, tokens, 0.0).sum(1) / MASK.sum(1)

    def reached(self, loss: Tensor) -> set[str]:
        """Return the networks whose weights the loss has a gradient of."""
        loss.backward()
        networks = {"policy": self.policy, "encoder": self.encoder, "value": self.value, "critic": self.critic}
        return {
            name
            for name, network in networks.items()
            if any(weight.grad is not None and bool(weight.grad.any()) for weight in network.parameters())
        }


@pytest.fixture
def learners() -> Learners:
    return Learners()


def test_a_policy_loss_reaches_the_policy_alone(learners: Learners) -> None:
    """Although advantages, ratios and penalties are given with a gradient of the value, the critic and the policy."""
    logps, _ = learners.score()
    advantages = learners.logits().softmax(-1)[:, 1] - learners.judge()
    ratios = logps.sum(1).exp()
    loss = (
        policy_gradient(logps, MASK, advantages, ratios, invalid=advantages, invalid_weight=0.1)
        + nll(logps, MASK, advantages)
        + ppo_clip(logps, logps, advantages, MASK)
        + ppo_clip(logps, logps, advantages, MASK, level="reply")
    )
    assert learners.reached(loss) == {"policy"}


def test_given_with_or_without_a_gradient_factors_give_the_same_one(learners: Learners) -> None:
    logps, _ = learners.score()
    advantages, ratios = learners.judge(), logps.sum(1).exp()
    weights = list(learners.policy.parameters())
    free = torch.autograd.grad(policy_gradient(logps, MASK, advantages, ratios), weights, retain_graph=True)
    fixed = torch.autograd.grad(policy_gradient(logps, MASK, advantages.detach(), ratios.detach()), weights)
    assert all(torch.equal(one, other) for one, other in zip(free, fixed, strict=True))


def test_the_entropy_bonus_reaches_the_policy_and_raises_its_entropy(learners: Learners) -> None:
    _, before = learners.score()
    assert learners.reached(entropy_bonus(before, MASK, 0.5)) == {"policy"}
    with torch.no_grad():
        for weight in learners.policy.parameters():
            weight -= 0.1 * weight.grad
    assert learners.score()[1][MASK].mean() > before[MASK].mean()


@pytest.mark.parametrize("kind", ["cross-entropy", "regression"])
def test_a_value_loss_reaches_the_value_alone(learners: Learners, kind: str) -> None:
    """Neither what encodes the states nor, through the targets, what estimated them."""
    targets = learners.judge().sigmoid()
    logits = learners.logits()
    loss = bce_soft(logits, targets) if kind == "cross-entropy" else value_mse(logits.softmax(-1)[:, 1], targets)
    assert learners.reached(loss) == {"value"}


def test_a_critics_loss_reaches_the_critic_with_its_body(learners: Learners) -> None:
    judged, returns = learners.judge(), learners.logits().softmax(-1)[:, 1]
    assert learners.reached(mse_clipped(judged, judged, returns, clip=0.5)) == {"critic"}
    assert learners.critic[0].weight.grad is not None
    assert learners.critic[0].weight.grad.any()


def test_a_clipped_region_leaves_the_weights_as_they_are(learners: Learners) -> None:
    """Every ratio has left the region in its advantage's direction, every Q is more than ε nearer to its return."""
    logps, _ = learners.score()
    judged = learners.judge()
    gone = ppo_clip(logps, logps.detach() - 1, torch.ones(2), MASK) + ppo_clip(
        logps, logps.detach() + 1, -torch.ones(2), MASK, level="reply"
    )
    loss = gone + mse_clipped(judged, judged.detach() - 1, judged.detach() + 1, clip=0.5)
    assert learners.reached(loss) == set()


@pytest.mark.parametrize("step", [-0.3, 0.0, 0.3])
def test_what_is_compared_with_carries_no_gradient(step: float) -> None:
    """Neither π_old nor Q_old, inside the clipped region or outside it."""
    old = logps().nan_to_num().detach().requires_grad_()
    given, advantages = (old.detach() + step).requires_grad_(), vector(0.4, -1)
    for loss in (
        ppo_clip(given, old, advantages, MASK),
        ppo_clip(given, old, advantages, MASK, level="reply"),
        mse_clipped(given, old, vector(1, -9), clip=0.1, mask=MASK),
    ):
        reached, compared = torch.autograd.grad(loss, [given, old], allow_unused=True)
        assert reached.any()
        assert compared is None


def test_estimates_are_learned_from_and_not_through(learners: Learners) -> None:
    """A step of DistRL and one of Android Coach, from values to the policy."""
    logps, entropy = learners.score()
    values = learners.logits().softmax(-1)[:, 1].detach().numpy()
    sums = torch.where(MASK, logps, 0.0).sum(1).detach().numpy()
    ratios = importance_ratios(sums, sums + 0.1)
    targets = retrace_values([0, 1], values, ratios.values, gamma=1, trace=1)
    advantages = retrace_advantage([0, 1], values, targets, gamma=1)
    tensors: Sequence[Tensor] = [torch.from_numpy(one) for one in (advantages, ratios.values)]
    loss = policy_gradient(logps, MASK, *tensors) + entropy_bonus(entropy, MASK, 0.01)
    coach = ppo_clip(logps, logps, torch.from_numpy(leave_one_out(learners.judge().detach().numpy())), MASK)
    assert learners.reached(loss + coach) == {"policy"}
