"""Android Coach: sample several replies to each visited state, and learn from how a critic of actions tells them apart.

    collab train --algo coach --env androidworld --graph single --agents early --out runs/coach

Where a step of the environment is dear, one that was paid teaches more: besides the reply that was executed, others to
the same state are rated by Q(s, a), and none of them costs a step. Parts: `learner` (returns, Q, candidates,
advantages), `samples`, `truth` (whether Q is right), `metrics` (numbers of an epoch, in words).

Labels are a verdict on each episode and a critic's reward of each executed action. Both lie beside the rollout, under
the name `training`. The action of a step without a reward is left out of its episode's sums, and counted by cause. An
epoch stops where the critic failed, was asked and gave no score, or had no room for the step, if these are more than a
tenth of its steps. Steps about which there is nothing to ask, as of a task without a known solution, stop none.

Source: Android Coach (`docs/algorithms/coach.md`), sections 3.2 to 3.4. Deviations:

- eq. 1 prints γ^{T−τ}; here late rewards are discounted, as its text says
- eq. 4 lacks the minus, and takes the ratio of a whole reply; the preset `sound` clips that of each token, as the
  public code does
- the advantage is the paper's ("ACLOO", eq. 3); states whose replies have one Q are left out of the mean that the loss
  is, where the paper counts them with 0
- the judge of executed actions is any critic of `docs/critics.md`; the paper's is a fine-tuned model, as `critic-prm`
- replies are sampled at the temperature of the rollout, whose policy has not changed meanwhile
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from collab.algorithms.candidates import count_candidates, list_foreign
from collab.algorithms.coach.config import (
    ABLATIONS,
    CoachConfig,
    CoachMethod,
    hash_pretraining,
    narrow_config,
)
from collab.algorithms.coach.learner import PART, CoachLearner
from collab.algorithms.coach.metrics import format_metrics, list_curves, read_metrics
from collab.algorithms.coach.samples import VisitedState, time_sampling
from collab.algorithms.experience import has_experience
from collab.algorithms.judging import (
    admit_critic,
    build_first_input,
    check_critic_answers,
    configure_critic,
    estimate_critic_questions,
    hash_judgements,
    judge_rollout,
    list_critic_doubts,
)
from collab.algorithms.on_policy import OnPolicyAlgorithm
from collab.algorithms.turn_algorithm import OutcomeLabeller
from collab.algorithms.value_store import time_fit
from collab.config import Budget
from collab.envs.base import Suite
from collab.library import Library
from collab.loop.config import Method, TrainingConfig
from collab.loop.estimate import build_questions, count_prompt_tokens
from collab.loop.interfaces import Checked, EpochSummary, Labels, Rollout, TriedStep
from collab.loop.policy import build_chat_tokenizer
from collab.loop.ranges import NONE_ASKED, Estimate, LabelEstimate, Range
from collab.loop.record import LABELS, EpochRecord
from collab.loop.state import LoopState
from collab.prompts.render import PromptContext
from collab.rewards.labels import list_label_sets, read_labels
from collab.rollout.build import build_suite, build_team
from collab.types import Usage
from collab.utils.concurrency import run_in_background

CRITIC = "critic"
"""Name of the judging in the records of an epoch."""


class CoachLabeller(OutcomeLabeller):
    """Judges episodes and their steps; see `Labeller`."""

    async def label(self, state: LoopState, rollouts: Sequence[Rollout]) -> Sequence[Labels]:
        """Judge what is not judged yet, and read all labels; raises as its two parts."""
        verdicts = await super().label(state, rollouts)
        if narrow_config(state.config).method.why_unasked is not None:
            return verdicts
        return [await self._judge_steps(state, *both) for both in zip(rollouts, verdicts, strict=True)]

    async def _judge_steps(self, state: LoopState, rollout: Rollout, verdicts: Labels) -> Labels:
        """Return the verdicts of a rollout together with the critic's judgements of its steps."""
        # What is learned was decided by the rewards that were known then: an epoch that went further asks no more.
        if has_experience(state.folder, rollout.number):
            labels = read_labels(rollout.path, LABELS)
        else:
            labels = await judge_rollout(state, rollout.run, rollout.path, rollout.trajectories)
        return Labels(
            value=verdicts.value,
            metrics=verdicts.metrics,
            spent={**verdicts.spent, CRITIC: labels.spent},
            hashes={**verdicts.hashes, CRITIC: hash_judgements(labels.judged.values())},
        )

    def read_spent(self, rollout: Path) -> Usage:
        """Return the usage of a rollout's verdicts and judgements."""
        judged = read_labels(rollout, LABELS).spent if LABELS in list_label_sets(rollout) else Usage()
        return super().read_spent(rollout) + judged


class Coach(OnPolicyAlgorithm):
    """Several actions of one state, rated by a critic of actions."""

    name = "coach"
    description = "Android Coach: several replies to each visited state are sampled, and a critic of actions rates them"
    method = CoachMethod
    config = CoachConfig
    presets = Path(__file__).parent / "presets"
    default_preset = "sound"
    ablations = ABLATIONS
    can_replay = False  # it samples candidates
    toy = (
        *("episodes=12", "warmup_epochs=0", "rl.batch_rows=8"),
        *("values={learning_rate: 1e-3, batch_rows: 8, sharing: prefix}",),
        "run.environment.backends.fake.options.declared=false",
    )
    labeller, learner = CoachLabeller(), CoachLearner()

    def configure(self, library: Library, method: Method) -> dict[str, Any]:
        """Return verifier and critic with the content of their files."""
        assert isinstance(method, CoachMethod), "the loop gives each algorithm its own method"
        return {
            **super().configure(library, method),
            **configure_critic(library, method),
            "pretraining_digest": hash_pretraining(method),
        }

    def list_doubts(self, config: TrainingConfig, suite: Suite) -> list[str]:
        """Refuse what has no ratio, and an oracle without solutions; return doubts about verifier, critic and Q."""
        mine = narrow_config(config)
        return [
            *super().list_doubts(config, suite),
            *list_critic_doubts(mine, suite),
            *list_foreign(mine.method, suite.label),
            *([] if mine.method.pretraining else [_describe_blank_q(mine.method)]),
        ]

    async def check(self, config: TrainingConfig, suite: Suite, budget: Budget, options: Mapping[str, Any]) -> Checked:
        """Check verifier and critic; `options` as for `TurnAlgorithm.check`, for both."""
        mine, allow_uncalibrated = narrow_config(config), bool(options["allow_uncalibrated"])
        known = await admit_critic(
            mine, suite, calibrations=Path(options["calibrations"]), allow_uncalibrated=allow_uncalibrated
        )
        found = await super().check(config, suite, budget, options)
        await check_critic_answers(mine, budget)
        head = {**found.head, "calibration": known, "allow_uncalibrated": allow_uncalibrated}
        return Checked(notes=(f"critic {mine.method.critic}: {known}", *found.notes), head=head)

    async def check_budget(self, config: TrainingConfig, budget: Budget) -> None:
        """Open verifier and critic with the budget and close them again."""
        await super().check_budget(config, budget)
        await check_critic_answers(narrow_config(config), budget)

    async def estimate(self, config: TrainingConfig, tried: TriedStep, rolled: Range) -> Estimate:
        """Estimate verdicts, judgements, values, candidates, and learning from them."""
        mine = narrow_config(config)
        found = await super().estimate(config, tried, rolled)
        labels = [*found.labels]
        if mine.method.why_unasked is None:
            choice = mine.build_critic_choice("plan", tried.run.seed)
            asked = await estimate_critic_questions(choice, mine.method.critic, await build_first_input(tried))
            seconds = 0.0 if choice.free else None
            labels.append(LabelEstimate(name=CRITIC, doing="judging", asked=asked, seconds=seconds))
        valued, first = await run_in_background(_time_values, config, tried)
        labels.append(LabelEstimate(name="values", doing="valuing", asked=NONE_ASKED, seconds=valued, fixed_s=first))
        labels.append(await _estimate_samples(mine, tried))
        return replace(found, labels=tuple(labels))

    def build_columns(self, record: EpochRecord) -> dict[str, object]:
        """Return at how many states replies differ in Q, and how right Q is, beside the columns of all learners."""
        told = read_metrics(record)
        if told is None:
            return super().build_columns(record)
        right = None if told.truth is None else told.truth.rank_accuracy
        return {
            **super().build_columns(record),
            "states apart": f"{told.apart} of {told.states}",
            "Q ranks right": None if right is None else f"{right:.0%}",
        }

    def summarize(self, record: EpochRecord) -> EpochSummary:
        """Return candidates and Q in numbers, beside what all learners of turns tell."""
        told, found = read_metrics(record), super().summarize(record)
        if told is None:
            return found
        curves = {
            title: {name: value for name, value in lines.items() if value is not None}
            for title, lines in list_curves(told).items()
        }
        curves = {title: lines for title, lines in curves.items() if lines}
        return replace(found, rewards=told.rewards, curves=curves)

    def format_lines(self, record: EpochRecord) -> list[str]:
        """Format candidates and Q behind what all learners of turns tell, line by line."""
        told = read_metrics(record)
        return [*super().format_lines(record), *([] if told is None else format_metrics(told))]


def _describe_blank_q(method: CoachMethod) -> str:
    """Return what Q without candidates knows, and what to give it."""
    untaught = "" if method.warmup_epochs else ", and --set warmup_epochs=N lets it learn alone first"
    return (
        "Q begins at 0 and learns from executed replies alone, which say little about the others to a state; --set "
        "pretraining=DIR fits it to candidates first (collab synth --levels candidate), --set rehearsed=1000 keeps "
        f"what they taught{untaught}"
    )


def _time_values(config: TrainingConfig, tried: TriedStep) -> tuple[float, float]:
    """Fit Q to the tried step's reply and value it, for `--plan`.

    Returns:
        Seconds per state, with those of its candidates, and those of all fits to candidates of `pretraining`.
    """
    from collab.trainers.rl.token_values import ValueRow

    method, slots = narrow_config(config).method, next(iter(config.groups.values()))
    chat = build_chat_tokenizer(config.run.agents[slots[0]], tried.policy.of(slots))
    said, read = tried.select_cells(slots)
    prompt, reply = chat.prompt_ids(read[0]).ids, said[0].tokens or chat.encode_reply(said[0].text)
    ids = np.array((*prompt, *reply), np.int32)
    row = ValueRow(ids=ids, places=tuple(range(len(prompt), len(ids))))
    learn_s, read_s = time_fit(config, tried, method.values, row)
    fit_s = read_s + method.values.passes * learn_s
    given = count_candidates(method)
    rehearsed = method.epochs * min(method.rehearsed, given)
    # Behind the fit, the executed reply is read once more, with its candidates.
    return fit_s + (1 + method.k) * read_s, given * method.pretraining_passes * learn_s + rehearsed * fit_s


async def _estimate_samples(config: CoachConfig, tried: TriedStep) -> LabelEstimate:
    """Sample candidates at the tried step, and estimate what they take per state."""
    suite, team = build_suite(tried.run), build_team(tried.run)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(suite.close)
        stack.push_async_callback(team.close)
        step, prompt = tried.trajectory.steps[0], tried.prompts[0]
        cell = next(iter(step.matrix))
        state = VisitedState(
            trajectory=tried.trajectory.id,
            step=0,
            cell=cell,
            prompt=prompt,
            agent=team.network.agents[cell.agent],
            scene=PromptContext(goal=tried.trajectory.task.goal, space=suite.space, observation=step.observation),
        )
        seconds = await time_sampling(state, config.method.k, tried.run.concurrency)
        # At most: replies may use all their tokens.
        calls, agent, epochs = config.method.k, tried.run.agents[cell.agent], config.method.epochs
        # At least: an epoch in which Q learns alone samples few states, or none.
        least = calls * max(0, epochs - config.method.warmup_epochs) / epochs
        read = count_prompt_tokens(state.agent.model, prompt)
        asked = build_questions(
            Range(low=least, high=calls),
            Range(low=least * read, high=calls * read),
            Range(low=0, high=calls * agent.sampling.max_tokens),
            agent,
        )
        return LabelEstimate(name=PART, doing="sampling", asked=asked, seconds=seconds)
