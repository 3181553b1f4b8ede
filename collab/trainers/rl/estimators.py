"""Turn rewards, values and log-probabilities into returns, advantages and weights: pure functions in float64.

No function here needs torch and none has a gradient: what multiplies a loss is computed first, written down, then used.

    returns       discounted_returns, coach_returns
    advantages    step_advantage (DigiRL), gae (PPO), group_relative (GRPO), leave_one_out (Android Coach),
                  retrace_advantage (DistRL)
    off-policy    importance_ratios, retrace_values, trajectory_priority, draw_probabilities
    filters       keep_steps, keep_episodes, awr_weights

Conventions of all of them:

    h, t      1 … T, the executed steps of one trajectory; T is the last one
    r_t       environment reward; 0 before the end, the outcome at T
    V_{T+1}   0, for success and step limit alike: the limit is part of the task. An episode that broke is left out
    (T,)      one number per step, oldest first. No steps give no numbers; a number that is not finite is a ValueError

Sources: DigiRL (Bai et al. 2024), DistRL (Wang et al. 2024), Android Coach, AWR (Peng et al. 2019), GAE (Schulman et
al. 2016), GRPO (Shao et al. 2024), V-trace (Espeholt et al. 2018), Retrace (Munos et al. 2016), prioritised replay
(Schaul et al. 2016). Each function says where it computes something else than its paper prints.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Vector: TypeAlias = NDArray[np.float64]
Mask: TypeAlias = NDArray[np.bool_]

UNDERFLOW = -80.0
"""Log-ratio below which an importance ratio is 0."""
LEAST_PRIORITY = 1e-6
"""Priority of a trajectory that holds nothing new: it may be drawn still."""
RELEASED_MARGIN = 0.05
"""What DigiRL's public code subtracts from every advantage, instead of asking for 1/H."""


# ----------------------------------------------------------------------------------------------------- returns


def discounted_returns(rewards: ArrayLike, gamma: float) -> Vector:
    """Return G_t = Σ_{k≥t} γ^{k−t} r_k of each step, (T,)."""
    (r,) = _read(rewards=rewards)
    return _accumulate(r, np.full(len(r), gamma))


def coach_returns(
    process: ArrayLike,
    outcome: float,
    *,
    gamma: float = 0.95,
    process_weight: float = 0.2,
    outcome_weight: float = 1.0,
    outcome_gamma: float = 1.0,
    form: Literal["sound", "printed"] = "sound",
) -> Vector:
    """Return R_t = ω_p Σ_{τ≥t} γ^{τ−t} r^p_τ + ω_o r_o of each step, (T,): what Android Coach's critic learns.

    Section 3.2 prints γ^{T−τ}, which discounts early steps instead of late ones (form "printed"). The outcome is not
    discounted there; in the released code it is. Because process rewards add up, a long episode of right steps is worth
    more than a short one.

    Args:
        process: r^p of each step, (T,). NaN where the judge gave none: it adds nothing, as 0 does.
        outcome: r_o of the episode.
        gamma: γ.
        process_weight: ω_p.
        outcome_weight: ω_o.
        outcome_gamma: discount of the outcome per step that follows, γ_o^{T−1−t}; 1 for none.
        form: which exponent.
    """
    given = np.asarray(process, dtype=np.float64)
    (r,) = _read(process=np.where(np.isnan(given), 0.0, given))
    if form == "printed":
        # γ^{T−τ} does not depend on t, so the terms are weighted first and their sums are plain.
        sums = _accumulate(r * gamma ** np.arange(len(r))[::-1], np.ones(len(r)))
    else:
        sums = discounted_returns(r, gamma)
    return process_weight * sums + outcome_weight * _read_outcome(outcome) * outcome_gamma ** np.arange(len(r))[::-1]


# -------------------------------------------------------------------------------------------------- advantages


def step_advantage(
    outcome: float,
    values: ArrayLike,
    *,
    decay: float,
    form: Literal["published", "printed", "released"] = "published",
    last: float = 0.0,
) -> Vector:
    """Return DigiRL's doubly robust advantage of each step, (T,).

        published   λ^{T−h} r_T + (1 − λ^{T−h}) (V_{h+1} + r_h − V_h)
        printed     λ^{T−h} r_T + V_{h+1} + r_h − V_h
        released    clip(V_{h+1} + r_h − V_h − 0.05 + γ^{T−h} r_T, 0, 1)

    The first balances the outcome, which varies, against the values' difference, which is biased. At the last step it
    is the outcome alone. Eq. 2.3 of the workshop version prints the second. The public code computes the third: there γ
    is 0.5, V is the smaller of two heads, and the value behind the last step is that of the screen after it.

    Args:
        outcome: r_T of the episode.
        values: V of the state before each step, (T,).
        decay: λ; γ of the form "released".
        form: which of the three.
        last: V_{T+1}, 0 but in the public code.
    """
    (v,) = _read(values=values)
    rewards = np.zeros_like(v)
    rewards[-1:] = _read_outcome(outcome)
    differences = np.append(v, last)[1:] + rewards - v  # V_{h+1} + r_h − V_h, (T,)
    near = decay ** np.arange(len(v) - 1.0, -1.0, -1.0)  # λ^{T−h}, 1 at the last step, (T,)
    if form == "published":
        return near * outcome + (1 - near) * differences
    if form == "printed":
        return near * outcome + differences
    return np.clip(differences - RELEASED_MARGIN + near * outcome, 0.0, 1.0)


def gae(rewards: ArrayLike, values: ArrayLike, *, gamma: float, decay: float) -> Vector:
    """Return A_t = Σ_{k≥t} (γλ)^{k−t} (r_k + γ V_{k+1} − V_k) of each step, (T,) (Schulman et al. 2016, eq. 16).

    With λ = 1 this is G_t − V_t; with λ = 0 it is the one-step difference.

    Args:
        rewards: r, (T,).
        values: V of the state before each step, (T,).
        gamma: γ.
        decay: λ.
    """
    r, v = _read(rewards=rewards, values=values)
    return _accumulate(_differences(r, v, gamma), np.full(len(r), gamma * decay))


def group_relative(rewards: ArrayLike) -> Vector:
    """Return (r_i − mean) / (std + 10⁻⁶) of episodes of one instance, (n,) (Shao et al. 2024, section 4.1.2).

    std is the sample's, with n − 1. Where all rewards are equal, or there is only one, everything is exactly 0: that
    group teaches nothing, and the caller counts it. A broken episode is left out, not given as 0.
    """
    (r,) = _read(rewards=rewards)
    # Tested first: the mean of equal numbers may be off by a rounding, which the division would blow up.
    if len(r) < 2 or np.ptp(r) == 0:
        return np.zeros_like(r)
    relative: Vector = (r - r.mean()) / (r.std(ddof=1) + 1e-6)
    return relative


def leave_one_out(values: ArrayLike) -> Vector:
    """Return Q_i − mean of Q_j, j ≠ i, of the candidates of one state, (k,) (Android Coach, eq. 3, "ACLOO").

    It sums to 0, and adding a constant to every Q changes nothing. Equal values give exactly 0. A single candidate
    keeps its Q, as with k = 1; the caller leaves out one whose companions were lost.
    """
    (q,) = _read(values=values)
    if len(q) < 2:
        return q.copy()
    if np.ptp(q) == 0:
        return np.zeros_like(q)
    centred: Vector = q - q.mean()
    return centred * (len(q) / (len(q) - 1))


# -------------------------------------------------------------------------------------------------- off-policy


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ImportanceRatios:
    """Ratios of how likely replies are now to how likely they were when they were sampled."""

    values: Vector
    """ρ of each step, in [0, 1], (T,)."""
    clipped: int
    """Steps whose reply is likelier now, so that ρ was cut to 1."""
    underflowed: int
    """Steps whose log-ratio is below −80, so that ρ is 0: they teach nothing."""


def importance_ratios(policy: ArrayLike, behaviour: ArrayLike) -> ImportanceRatios:
    """Return ρ_t = min(1, exp(Σ log π − Σ log μ)) of each step; the sums are over the whole reply.

    Clipped before exp, so nothing overflows. Both sums run over the same tokens, the end of the turn included where the
    reply has one, and under the same temperature.

    Args:
        policy: Σ log π(a_t|s_t) of the policy that learns, (T,); −∞ gives ρ = 0.
        behaviour: Σ log μ(a_t|s_t) recorded when the reply was sampled, (T,).
    """
    log_pi = np.asarray(policy, dtype=np.float64)
    # −∞ is a probability of 0, not a fault; NaN and +∞ still are.
    now, then = _read(policy=np.where(np.isneginf(log_pi), np.finfo(np.float64).min, log_pi), behaviour=behaviour)
    logs = now - then
    under = logs < UNDERFLOW
    ratios = np.where(under, 0.0, np.exp(np.minimum(logs, 0.0)))
    return ImportanceRatios(values=ratios, clipped=int((logs > 0).sum()), underflowed=int(under.sum()))


def retrace_values(
    rewards: ArrayLike,
    values: ArrayLike,
    ratios: ArrayLike,
    *,
    gamma: float,
    trace: float,
    form: Literal["v", "q"] = "v",
) -> Vector:
    """Return off-policy corrected values v_t of the states before each step, (T,).

        v   V_t + Σ_{k≥t} γ^{k−t} (Π_{i=t}^{k−1} c_i) ρ̄_k δ_k
        q   V_t + Σ_{k≥t} γ^{k−t} (Π_{i=t+1}^{k} c_i) δ_k

    with δ_k = r_k + γ V_{k+1} − V_k, ρ̄ = min(1, ρ), c = λ ρ̄. The first is V-trace (Espeholt et al. 2018, eq. 1 with the
    λ of remark 2). DistRL (section 5.2) prints the second: Retrace (Munos et al. 2016, eq. 3), whose product starts
    behind the step because Q is already given its action. A state's value is not, so the first action stays uncorrected
    there. If every ρ and λ is 1, both are the returns.

    Args:
        rewards: r, (T,); no penalties.
        values: V of the state before each step, (T,).
        ratios: ρ, (T,); larger ones than 1 are cut.
        gamma: γ.
        trace: λ, in [0, 1].
        form: which product.
    """
    r, v, ratio = _read(rewards=rewards, values=values, ratios=ratios)
    capped = np.minimum(ratio, 1.0)
    differences = _differences(r, v, gamma)
    traces = gamma * trace * capped  # γ c_t, (T,)
    if form == "v":
        return v + _accumulate(capped * differences, traces)
    # The product of step t starts with c_{t+1}; behind the last step nothing is added, whatever stands there.
    return v + _accumulate(differences, np.append(traces, 0.0)[1:])


def retrace_advantage(
    rewards: ArrayLike, values: ArrayLike, targets: ArrayLike, *, gamma: float, penalties: ArrayLike | None = None
) -> Vector:
    """Return A_t = r_t + pen_t + γ v_{t+1} − V_t of each step, (T,).

    DistRL (appendix A.4.2) takes the Monte Carlo return from t + 1 as the reward and adds γ V_{t+1}, which counts the
    future twice and leaves out r_t. Here v, the corrected value, stands for the future, once.

    Args:
        rewards: r, (T,).
        values: V of the state before each step, (T,).
        targets: v of `retrace_values`, (T,).
        gamma: γ.
        penalties: pen, at most 0 each, (T,). They are no rewards: no return and no value holds them.
    """
    given = np.zeros(np.shape(rewards)) if penalties is None else penalties
    r, v, target, penalty = _read(rewards=rewards, values=values, targets=targets, penalties=given)
    return r + penalty + gamma * np.append(target, 0.0)[1:] - v


# ----------------------------------------------------------------------------------------------------- filters


def trajectory_priority(
    errors: ArrayLike,
    ratios: ArrayLike,
    entropies: ArrayLike,
    *,
    most_error: float,
    most_entropy: float,
    weights: tuple[float, float, float] = (1.0, 0.5, 0.3),
) -> float:
    """Return how much a remembered trajectory is worth learning again (DistRL, section 5.3 and appendix A.4.3).

    p = w · (mean |δ| / δ_max, mean ρ̄, mean H / H_max), at least `LEAST_PRIORITY`. A maximum of 0 leaves its part out:
    nothing was ever surprising.

    Args:
        errors: δ_t, (T,).
        ratios: ρ̄_t, clipped to [0, 1], (T,); the paper does not divide them, as they are within [0, 1] already.
        entropies: H_t, (T,), of the policy at each step.
        most_error, most_entropy: largest |δ| and H of all trajectories so far.
        weights: w; the paper compares several, and these are ours.
    """
    d, r, h = _read(errors=errors, ratios=ratios, entropies=entropies)
    if not len(d):
        raise ValueError("a trajectory without a step has no priority")
    parts = (
        float(np.abs(d).mean()) / most_error if most_error > 0 else 0.0,
        float(r.mean()),
        float(h.mean()) / most_entropy if most_entropy > 0 else 0.0,
    )
    return max(LEAST_PRIORITY, math.fsum(weight * part for weight, part in zip(weights, parts, strict=True)))


def draw_probabilities(priorities: ArrayLike, exponent: float = 0.5) -> Vector:
    """Return the probability by which each trajectory is drawn, (n,): p^α over their sum (Schaul et al. 2016, eq. 1).

    Args:
        priorities: p, (n,), each above 0.
        exponent: α; 0 draws uniformly.
    """
    (p,) = _read(priorities=priorities)
    if (p <= 0).any():
        raise ValueError("a priority is 0 or below, and its trajectory would never be drawn")
    powers: Vector = p**exponent
    return powers / powers.sum() if len(p) else powers


def keep_steps(advantages: ArrayLike, threshold: float) -> Mask:
    """Return which steps are learned, (T,): those with A > threshold (DigiRL, section 2.2).

    A step with A ≥ 1, a certain success, is always kept. That matters for tasks of a single step alone: there 1/H is 1,
    which no advantage of the published form exceeds.

    Args:
        advantages: of `step_advantage`, (T,).
        threshold: 1/H, where H is the step limit of the task; 0 for the form "released".
    """
    (a,) = _read(advantages=advantages)
    return (a > threshold) | (a >= 1)


def keep_episodes(
    advantages: ArrayLike,
    *,
    top: float,
    least: int = 1,
    positive: bool = True,
    form: Literal["top", "quantile"] = "top",
) -> Mask:
    """Return which episodes are learned, (n,): the largest r_T − V_instruct(c) (DigiRL, eq. 2.4 and section 2.3).

    The public code keeps all at or above the quantile 1 − p (form "quantile"). There, equal ones pass together: given
    bare outcomes, of which fewer than the share are successes, it keeps every failure.

    Args:
        advantages: r_T − V_instruct(c) of each episode, oldest first, (n,). Of equal ones the newest come first.
        top: p, the share that is kept, rounded up; the paper does not say it, the public code has 0.1.
        least: keep so many even if that is more than the share.
        positive: drop what is not above 0 afterwards; without it, failures fill up the share.
        form: whether so many are kept, or all above a quantile; `least` is of the first alone.
    """
    (a,) = _read(advantages=advantages)
    above = a > 0 if positive else np.ones(len(a), dtype=np.bool_)
    if form == "quantile":
        return above & (a >= np.quantile(a, 1 - top)) if len(a) else above
    # 0.07 · 100 is 7.000000000000001 in binary: rounded, so that ceil keeps 7 and not 8.
    count = min(len(a), max(math.ceil(round(top * len(a), 9)), least))
    # Stable and ascending, so equal ones are in order of age and the newest stand last.
    chosen = np.argsort(a, kind="stable")[len(a) - count :]
    kept = np.zeros(len(a), dtype=np.bool_)
    kept[chosen] = True
    return above & kept


def awr_weights(advantages: ArrayLike, temperature: float, *, most: float = 20.0) -> Vector:
    """Return exp(A / τ) of each step, (T,): weights of advantage-weighted regression (DigiRL, eq. 2.1).

    Args:
        advantages: A, (T,).
        temperature: τ; DigiRL writes β.
        most: largest weight, as in Peng et al. 2019; DigiRL names none.
    """
    (a,) = _read(advantages=advantages)
    # Cut before exp, so that a small temperature does not overflow.
    return np.exp(np.minimum(a / temperature, math.log(most)))


# ------------------------------------------------------------------------------------------------------ shared


def _differences(rewards: Vector, values: Vector, gamma: float) -> Vector:
    """Return δ_t = r_t + γ V_{t+1} − V_t with V_{T+1} = 0, (T,)."""
    return rewards + gamma * np.append(values, 0.0)[1:] - values


def _accumulate(terms: Vector, decays: Vector) -> Vector:
    """Return x_t = term_t + decay_t x_{t+1} with x_{T+1} = 0, (T,)."""
    sums = np.zeros_like(terms)
    later = 0.0
    for step in reversed(range(len(terms))):
        later = terms[step] + decays[step] * later
        sums[step] = later
    return sums


def _read(**vectors: ArrayLike) -> list[Vector]:
    """Return each as a float64 vector; ValueError where one is no vector, not finite, or longer than another."""
    read = {name: np.asarray(given, dtype=np.float64) for name, given in vectors.items()}
    for name, vector in read.items():
        if vector.ndim != 1:
            raise ValueError(f"{name}: has the shape {vector.shape}; one number per step is expected")
        if not np.isfinite(vector).all():
            place = int(np.flatnonzero(~np.isfinite(vector))[0])
            raise ValueError(f"{name}: number {place + 1} of {len(vector)} is {vector[place]}; all must be finite")
    # numpy would repeat a single number to any length without a word.
    if len({len(vector) for vector in read.values()}) > 1:
        lengths = ", ".join(f"{name} {len(vector)}" for name, vector in read.items())
        raise ValueError(f"one number per step is expected of each; got {lengths}")
    return list(read.values())


def _read_outcome(outcome: float) -> float:
    if not math.isfinite(outcome):
        raise ValueError(f"outcome: is {outcome}; leave out an episode whose verdict is missing")
    return outcome
