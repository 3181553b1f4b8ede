"""Values and advantages of PPO's own states.

In an epoch, with r the verdict on an episode (1 or 0), paid at its last step, and V as the epoch before left it:

    V_t  =  the value head at the last token of the state's prompt                 (`token_values.TokenValues`)
    A_t  =  Σ (γλ)^k δ_{t+k},   δ_t = r_t + γ V_{t+1} − V_t                        (`estimators.gae`)
    R_t  =  A_t + V_t                                                              what V is fitted to
    w_t  =  (A_t − mean(A)) / (deviation(A) + 1e-8), if `whiten`                   what multiplies the ratio

Advantages rest on V before it is fitted to these very episodes, so how well it predicts is told on episodes that no fit
has seen. V begins at 0 or, with `pretraining`, fitted to candidates of a synthesis, to 1 for the state of a right reply
and to 0 for that of a wrong one. Where V gives a state no number, no step of the epoch is learned, and the next one
begins with a new V.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from collab.algorithms.candidates import (
    PretrainedMethod,
    check_candidates,
    count_candidates,
    narrow_pretrained,
    pretrain,
    read_candidates,
)
from collab.algorithms.experience import JudgedEpisode, open_turn_builders
from collab.algorithms.turn_learner import VALUING, Experience, TurnLearner, estimate_alike, hash_beside_lessons
from collab.algorithms.value_store import (
    NO_NUMBERS,
    VALUES,
    advise_lower_rate,
    check_values,
    compute_values,
    load_values,
    make_values,
    read_value_metrics,
    save_values,
    time_fit,
)
from collab.config import Definition
from collab.data.tokenize import Ids
from collab.errors import Diverged
from collab.loop.config import TrainingConfig
from collab.loop.examples import OTHER_PROMPT
from collab.loop.interfaces import TriedStep
from collab.loop.policy import Policy, build_chat_tokenizer
from collab.loop.ranges import NONE_ASKED, LabelEstimate
from collab.loop.state import LoopState
from collab.rewards.calibration.metrics import (
    KnownStep,
    compute_accuracy,
    compute_auc,
    compute_ece,
    compute_reliability,
)
from collab.seeds import derive
from collab.trainers.recipe import TokenValueRecipe
from collab.trainers.rl.estimators import gae
from collab.trainers.rl.step_estimates import StepEstimate
from collab.utils.concurrency import run_in_background
from collab.utils.text import format_amount

if TYPE_CHECKING:
    from collab.trainers.rl.token_values import TokenValues, ValueRow

AS_EXPECTED = "its advantage is 0"


class PPOMethod(PretrainedMethod):
    """Settings of PPO."""

    values: TokenValueRecipe = TokenValueRecipe()
    """The value model, and how it is fitted in each epoch."""
    gamma: float = Field(default=1.0, gt=0, le=1)
    """γ: discount per step."""
    decay: float = Field(default=1.0, ge=0, le=1)
    """λ: at 1 an advantage is the outcome less V, at 0 the next V less this one."""
    whiten: bool = True
    """Whether advantages are shifted and scaled to mean 0 and deviation 1 over the epoch's turns."""


class StateValues(Definition):
    """Quality of an epoch's values before they were fitted to it, and their fit."""

    states: int
    """States that the numbers below are of."""
    explained: float | None = None
    """1 − var(R − V) / var(R); None where all returns are equal."""
    accuracy: float | None = None
    auc: float | None = None
    ece: float | None = None
    """As in `collab.rewards.calibration.metrics`, of V against the outcome of its episode; None if undefined."""
    steps: int = 0
    """Optimizer steps of the fit."""
    pretrained: int = 0
    """Synthesised candidates that V was fitted to before this epoch; 0 in all but the first, and without any."""
    loss: float | None = None
    """Mean of these; None where the fit was lost."""
    lost: str | None = None
    """Why the fit was undone; None if it was not."""
    unread: str | None = None
    """Why no state has a value, and nothing is learned or fitted; None where they have."""


class PPOLearner(TurnLearner):
    """Learns every turn by its advantage."""

    def check(self, config: TrainingConfig, first: Policy) -> None:
        """Refuse checkpoints that the recipe cannot train, or that cannot carry values."""
        super().check(config, first)
        assert isinstance(config.method, PPOMethod), "the loop gives each algorithm its own method"
        check_values(config, first, config.method.values)
        check_candidates(narrow_pretrained(config), first)

    async def estimate(self, state: LoopState, group: str, experience: Experience) -> list[StepEstimate]:
        """Value the states, estimate every step, and fit the values to the returns."""
        with state.time_part(VALUING, whole=True):
            return await run_in_background(_estimate_and_fit, state, group, experience)

    def read_metrics(self, state: LoopState, number: int, group: str) -> dict[str, Any]:
        """Return how well values predicted."""
        found = read_value_metrics(state, number, group)
        return {"values": found} if found else {}

    def read_obstacle(self, state: LoopState, number: int, group: str) -> str | None:
        """Return that values were no numbers, if they were not."""
        return advise_lower_rate(read_value_metrics(state, number, group).get("unread"))

    def read_hashes(self, state: LoopState, number: int) -> dict[str, str]:
        """Return the digest of the value models."""
        return {"values": hash_beside_lessons(state, number, VALUES)}


# ------------------------------------------------------------------------------------------------------ estimates


def compute_advantages(
    method: PPOMethod, episodes: Sequence[JudgedEpisode], values: Sequence[NDArray[np.float64]]
) -> list[NDArray[np.float64]]:
    """Return the advantage of each step of each episode, (steps,) each; `values` likewise."""
    return [
        gae(np.array([0.0] * (one.steps - 1) + [one.reward]), found, gamma=method.gamma, decay=method.decay)
        for one, found in zip(episodes, values, strict=True)
    ]


def whiten(advantages: Sequence[NDArray[np.float64]]) -> list[NDArray[np.float64]]:
    """Return advantages with mean 0 and deviation 1 over all steps; equal ones become 0."""
    every = np.concatenate(advantages)
    return [(one - every.mean()) / (every.std() + 1e-8) for one in advantages]


def _estimate_and_fit(state: LoopState, group: str, experience: Experience) -> list[StepEstimate]:
    method, number = state.config.method, experience.number
    assert isinstance(method, PPOMethod), "the loop gives each algorithm its own method"
    prompts = _list_prompts(state, experience)
    known = [one for one in experience.episodes if one.key in prompts]
    valued: dict[tuple[str, str], list[StepEstimate]] = {}
    if known:
        # Advantages first: they rest on values that have not seen these episodes.
        model, start = load_values(state, group, number, method.values)
        begun = _pretrain(state, group, model) if start is None else {}
        rows = [_build_row(ids) for one in known for ids in prompts[one.key]]
        read, unread = compute_values(model, rows)
        if read is None:
            valued = {one.key: estimate_alike(one, weight=0.0, why=NO_NUMBERS) for one in known}
            del model  # two would not fit where one just does
            fresh = make_values(state, group, method.values)
            begun = _pretrain(state, group, fresh)
            told = StateValues(states=0, unread=f"{unread}; the next epoch begins with new ones", **begun)
            save_values(state, group, number, fresh, start, told)
        else:
            values = np.split(np.concatenate(read), np.cumsum([one.steps for one in known])[:-1])
            advantages = compute_advantages(method, known, values)
            weights = whiten(advantages) if method.whiten else advantages
            valued = {
                one.key: _describe(one, *found) for one, *found in zip(known, values, advantages, weights, strict=True)
            }
            _fit(state, group, number, model, rows, start, known, read, advantages, begun)
    return [
        estimate
        for one in experience.episodes
        for estimate in valued.get(one.key) or estimate_alike(one, weight=0.0, why=OTHER_PROMPT)
    ]


def _describe(
    episode: JudgedEpisode,
    values: NDArray[np.float64],
    advantages: NDArray[np.float64],
    weights: NDArray[np.float64],
) -> list[StepEstimate]:
    """Return the estimates of an episode's steps."""
    return [
        StepEstimate(
            run=episode.run,
            trajectory=episode.trajectory,
            step=step,
            reward=episode.reward,
            value=float(values[step]),
            value_next=float(values[step + 1]) if step + 1 < episode.steps else 0.0,
            advantage=float(advantages[step]),
            weight=float(weights[step]),
            why="kept" if weights[step] else AS_EXPECTED,
        )
        for step in range(episode.steps)
    ]


# -------------------------------------------------------------------------------------------------------- values


def _list_prompts(state: LoopState, experience: Experience) -> dict[tuple[str, str], list[tuple[int, ...]]]:
    """Return episode → the tokens of each of its prompts; one that cannot be made again is missing."""
    runs = [one.run for one in experience.episodes]
    with open_turn_builders(state.config, state.folder, runs, experience.policy) as builders:
        found = {one.key: builders[one.run].list_prompts(one.trajectory) for one in experience.episodes}
    return {key: prompts for key, prompts in found.items() if prompts is not None}


def _build_row(ids: Sequence[int] | Ids) -> ValueRow:
    """Return a prompt whose value is read at its end."""
    from collab.trainers.rl.token_values import ValueRow

    return ValueRow(ids=np.array(ids, np.int32), places=(len(ids) - 1,))


def _pretrain(state: LoopState, group: str, model: TokenValues) -> dict[str, Any]:
    """Fit V of each state to whether replies to it were right, and return the fit as fields of `StateValues`."""
    known = read_candidates(state, group)
    if known is None:
        return {}
    # Of a candidate V reads the prompt alone, so it learns how often the replies to such a state are right.
    rows = [_build_row(row.ids[: row.places[0]]) for row in known.rows]
    return pretrain(state, group, model, known, rows)


def _fit(
    state: LoopState,
    group: str,
    number: int,
    model: TokenValues,
    rows: Sequence[ValueRow],
    start: int | None,
    known: Sequence[JudgedEpisode],
    read: Sequence[NDArray[np.float64]],
    advantages: Sequence[NDArray[np.float64]],
    begun: Mapping[str, Any],
) -> None:
    """Fit the values to the returns, and write them with how well they predicted before.

    Args:
        read: values of the rows.
        begun: fit to candidates, as `_pretrain` tells it.
    """
    before = np.concatenate(read)
    returns = np.concatenate(advantages) + before
    quality = measure_values(before, returns, np.repeat([one.reward for one in known], [one.steps for one in known]))
    try:
        seed = derive(state.config.run.seed, "value updates", number, group)
        fitted = model.fit(rows, returns.tolist(), seed=seed, known=read)
        found = quality.model_copy(update={"steps": fitted.steps, "loss": fitted.loss, **begun})
    except Diverged as diverged:
        # The policy learns all the same: its advantages rest on the values before.
        found = quality.model_copy(update={**begun, "lost": f"{diverged.what}; its fit was undone"})
    save_values(state, group, number, model, start, found)


def measure_values(
    values: NDArray[np.float64], returns: NDArray[np.float64], outcomes: NDArray[np.float64]
) -> StateValues:
    """Return how well values predicted returns and outcomes, (n,) each; none of a fit."""
    spread = float(np.var(returns))
    steps = [
        KnownStep(score=float(one), good=bool(outcome > 0.5))
        for one, outcome in zip(values.clip(0, 1), outcomes, strict=True)
    ]
    return StateValues(
        states=len(values),
        explained=None if not spread else 1 - float(np.var(returns - values)) / spread,
        accuracy=compute_accuracy(steps),
        auc=compute_auc(steps),
        ece=compute_ece(compute_reliability(steps)),
    )


def format_quality(found: StateValues) -> str:
    """Format the quality of values, e.g. "of states: explained variance 0.21, accuracy 0.70, AUC 0.75 …"."""
    told = {
        "explained variance": found.explained,
        "accuracy": found.accuracy,
        "AUC": found.auc,
        "ECE": found.ece,
    }
    numbers = ", ".join(f"{name} {'-' if one is None else f'{one:.2f}'}" for name, one in told.items())
    first = f"fitted to {format_amount(found.pretrained, 'candidate')} at first; " if found.pretrained else ""
    why = found.unread or found.lost
    return f"{first}of states: {numbers} before the fit, n = {found.states}" + (f"; {why}" if why else "")


# --------------------------------------------------------------------------------------------------------- plan


async def estimate_values(config: TrainingConfig, tried: TriedStep) -> LabelEstimate:
    """Estimate what values take, for `--plan`: each state is valued, and fitted as often as there are passes."""
    seconds, first = await run_in_background(_time_state, config, tried)
    return LabelEstimate(name="values", doing="valuing", asked=NONE_ASKED, seconds=seconds, fixed_s=first)


def _time_state(config: TrainingConfig, tried: TriedStep) -> tuple[float, float]:
    """Value and fit the tried step; return its seconds, and those of the fit to candidates."""
    method, slots = config.method, next(iter(config.groups.values()))
    assert isinstance(method, PPOMethod), "the loop gives each algorithm its own method"
    policy: Policy = tried.policy
    chat = build_chat_tokenizer(config.run.agents[slots[0]], policy.of(slots))
    row = _build_row(chat.prompt_ids(tried.select_cells(slots)[1][0]).ids)
    learn_s, read_s = time_fit(config, tried, method.values, row)
    return read_s + method.values.passes * learn_s, count_candidates(method) * method.pretraining_passes * learn_s
