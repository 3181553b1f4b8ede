"""The estimate of `--plan`: checked by hand on a given step, and on a step that is really tried."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from collab.algorithms.collabuiagents.algorithm import (
    CollabUIAgents,
    _forecast_training,
    count_examples,
    estimate_adversary_questions,
    estimate_critic_questions,
)
from collab.algorithms.collabuiagents.learner import build_sft_recipe
from collab.config import AgentDefinition, PartDefinition, SamplingDefinition
from collab.data.tokenize import EncodedExample, turn_end
from collab.library import Library
from collab.loop.estimate import (
    Probe,
    TrainingPlan,
    _limit_steps,
    _play_first_steps,
    _sum_cost,
    build_plan,
    compute_cost,
    format_plan,
    plan,
    read_prices,
)
from collab.loop.interfaces import EpochPlan, TriedStep
from collab.loop.phases import DrawnTasks
from collab.loop.policy import Policy
from collab.loop.ranges import NONE_ASKED, LabelEstimate, Questions, Range
from collab.loop.state import LoopState
from collab.models.tokenizer import ChatTokenizer
from collab.preferences.registry import AdversaryChoice
from collab.rewards.base import build_inputs
from collab.rewards.calibration.cases import build_calibration_set
from collab.rewards.oracle import SolutionCritic
from collab.rewards.restore import StateRebuilder
from collab.rollout.build import build_suite
from collab.rollout.plan import run_config
from collab.testing.corridor import CorridorSuite
from collab.trainers.estimate import Forecast, MemoryEstimate
from collab.trainers.prepare import FinetuneTask
from collab.types import Prompt, Segment

GIB = 1 << 30
TRAINING = Forecast(
    seconds_per_item=0.5,
    measured=True,
    tokens_per_item=100,
    least=MemoryEstimate(weights=GIB, gradients=GIB, optimizer=2 * GIB, activations=0),
    most=MemoryEstimate(weights=GIB, gradients=GIB, optimizer=2 * GIB, activations=GIB),
    parameters=1000,
    trainable=1000,
)
STEPS = (Range(low=2, high=6), Range(low=2, high=6))
"""Of a rollout of two episodes of at most three steps, and of an evaluation of as many."""
ASKED = Questions(
    calls=Range(low=1, high=1),
    prompt_tokens=Range(low=900, high=900),
    completion_tokens=Range(low=0, high=100),
    usd=Range(low=0.0009, high=0.0011),
)


CRITIC = LabelEstimate(name="critic", doing="judging", asked=NONE_ASKED, seconds=0.1)
ADVERSARY = LabelEstimate(name="adversary", doing="pairing", asked=NONE_ASKED, seconds=0.2)


def made(
    configure_toy,
    *settings: str,
    critic: LabelEstimate = CRITIC,
    adversary: LabelEstimate = ADVERSARY,
    usd: float | None = 0.0,
    **choices: str,
) -> TrainingPlan:
    """The plan from a step of four calls in two seconds, 400 tokens read and 40 said."""
    config = configure_toy("dpo.epochs=1", *settings, **choices)
    found = count_examples(config, STEPS[0].times(config.method.epochs), (critic, adversary), TRAINING)
    tried = Probe(calls=4, at_once=4, seconds=2.0, prompt_tokens=400, completion_tokens=40, usd=usd, estimate=found)
    return build_plan(config, (STEPS[0].times(config.method.epochs), STEPS[1]), tried)


def seconds(found: TrainingPlan, name: str) -> Range | None:
    return next(one.seconds for one in found.labels if one.name == name)


def test_a_plan_by_hand(configure_toy) -> None:
    """Two epochs, three evaluations, four cells, one pass over the pairs; 4 to 12 steps are learned from."""
    found = made(configure_toy)
    assert found.episodes == 2 * 2 + 3 * 2
    assert found.calls == Range(low=4 * 10, high=4 * 30)
    assert found.tokens == Range(low=110 * 40, high=110 * 120)
    assert (found.steps, found.examples) == (Range(low=4, high=12), Range(low=0, high=48))
    assert found.trained == Range(low=0, high=4800)
    assert (found.play_s, found.train_s) == (Range(low=20, high=60), Range(low=0, high=24))
    judged = seconds(found, "critic")
    assert judged is not None
    assert judged.high == pytest.approx(1.2)
    assert found.total_s is not None
    assert found.total_s.high == pytest.approx(60 + 1.2 + 2.4 + 24)
    # Half of each budget: 6 steps of rollouts, 9 of evaluations; of the 48 pairs of whole budgets half, and a quarter.
    assert found.likely_s == pytest.approx(15 * 2 + 6 * 0.1 + 6 * 0.2 + 24 / 2 / 4)
    assert found.memory == Range(low=4 * GIB, high=5 * GIB)
    assert found.usd == Range(low=0, high=0)
    # Two checkpoints of 1,000 numbers in four bytes, and three states of 12 bytes for each while one is trained.
    assert found.disk == Range(low=3000 * 40, high=3000 * 120 + 2 * 4000 + 3 * 12000)


def test_a_plan_asks_the_curriculum_of_the_algorithm(
    configure_toy, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that plays a single episode where the method says two."""
    config = configure_toy()
    stepped = made(configure_toy).probe

    class OneEpisode(DrawnTasks):
        async def plan(self, state: LoopState, number: int, policy: Policy) -> EpochPlan:
            drawn = await super().plan(state, number, policy)
            return replace(drawn, run=drawn.run.model_copy(update={"episodes": 1}))

    class Short(CollabUIAgents):
        curriculum = OneEpisode()
        learner = SimpleNamespace(check=lambda config, first: None)  # type: ignore[assignment]

    async def tried(config, run, *rest) -> Probe:
        assert run.episodes == 1
        return stepped

    monkeypatch.setattr("collab.loop.estimate.load_algorithm", lambda name: Short())
    monkeypatch.setattr("collab.loop.estimate.probe", tried)
    found = asyncio.run(plan(config, library))
    assert found.episodes == 2 * 1 + 3 * 2
    assert found.steps == Range(low=2, high=6)


def test_the_text_names_one_likely_time_beside_the_range(configure_toy) -> None:
    """The sum above, 30 + 0.6 + 1.2 + 3 seconds, beside the least and the most that it can be."""
    (line,) = [line for line in format_plan(made(configure_toy)).splitlines() if line.startswith("time ")]
    assert line.startswith("time      likely 0:00:35, "), line


def test_caps_older_pairs_and_passes_count(configure_toy) -> None:
    found = made(configure_toy, "pairs.cap=2", "replay_fraction=0.5", "dpo.epochs=3")
    assert found.examples.high == 12 * 2
    assert found.trained.high == 12 * 2 * 100 * 3 / 0.5


def test_whole_trajectories_are_counted_by_episodes_and_computed_once_more(configure_toy) -> None:
    """Two epochs of two episodes: a pair each; every one of 48 replies on one side, with five passes for four."""
    found = made(configure_toy, ablation="no-cr")
    assert found.examples == Range(low=0, high=2)
    assert (found.trained, found.train_s) == (Range(low=0, high=2400), Range(low=0, high=24 * 0.5 * 1.25))
    assert made(configure_toy, ablation="rft").examples == made(configure_toy).examples


def test_an_epoch_of_steps_ends_with_them_and_what_was_begun(configure_toy) -> None:
    found = made(configure_toy, "episodes=null", "steps=8")
    assert (found.episodes, found.epoch_steps) == (2 * 8 + 3 * 2, 8)
    assert "episodes  at most 22, an epoch plays until it has 8 steps" in format_plan(found)
    assert "sampled   rollouts at temperature 0.7, held-out evaluations at temperature 0.7" in format_plan(found)
    assert _limit_steps(Range(low=600, high=1800), 8, beyond=12) == Range(low=8, high=20)
    assert _limit_steps(Range(low=2, high=6), 8, beyond=12) == Range(low=2, high=6)
    assert _limit_steps(Range(low=2, high=6), None, beyond=12) == Range(low=2, high=6)


def test_models_that_are_asked_cost_what_their_files_say(configure_toy) -> None:
    found = made(configure_toy, critic=replace(CRITIC, asked=ASKED, seconds=None))
    asked = found.labels[0].asked
    assert asked is not None
    assert asked.calls == Range(low=4, high=12)
    assert found.usd == Range(low=pytest.approx(0.0036), high=pytest.approx(0.0132))
    assert (seconds(found, "critic"), found.total_s) == (None, None)
    lines = dict(line.split(maxsplit=1) for line in format_plan(found).splitlines())
    assert lines["calls"] == "40 to 120 of the policies, 4 to 12 of the critic"
    assert lines["tokens"].endswith("3,600 to 12,000 of the critic")
    assert lines["money"].startswith("0.00 to 0.01 USD")
    assert lines["time"] == (
        "unknown: playing 0:00:20 to 0:01:00, judging unknown, pairing 0:00:01 to 0:00:02, training 0:00:00 to 0:00:24"
    )


def test_what_is_not_known_is_told_as_unknown(configure_toy) -> None:
    for changes in (
        {"critic": replace(CRITIC, asked=replace(ASKED, usd=None))},
        {"critic": replace(CRITIC, asked=None)},
        {"adversary": replace(ADVERSARY, asked=None)},
        {"usd": None},
    ):
        found = made(configure_toy, **changes)
        assert found.usd is None
        assert "money     unknown: an agents file names no prices" in format_plan(found)


def test_a_team_on_a_server_costs_what_its_files_say(configure_toy) -> None:
    """What the tried step cost, for 10 to 30 steps of rollouts and evaluations; the critic judges 4 to 12 of them."""
    found = made(configure_toy, usd=0.5)
    assert found.usd == Range(low=5, high=15)
    assert "money     5.00 to 15.00 USD, by the prices in the agents files" in format_plan(found)
    both = made(configure_toy, usd=0.5, critic=replace(CRITIC, asked=ASKED)).usd
    assert both == Range(low=pytest.approx(5.0036), high=pytest.approx(15.0132))


def test_what_a_step_costs_is_known_where_every_slot_tells() -> None:
    def step(*costs: float | None) -> SimpleNamespace:
        cells = [SimpleNamespace(cost_usd=cost) for cost in costs]
        return SimpleNamespace(matrix=SimpleNamespace(utterances=cells))

    assert _sum_cost(step(0.0, 0.25, 0.5)) == 0.75
    assert _sum_cost(step(0.0, None)) is None


def test_several_processes_may_share_the_training(configure_toy) -> None:
    alone, shared = made(configure_toy), made(configure_toy, "processes=8")
    assert (alone.processes, alone.shared_s) == (1, alone.train_s)
    assert (shared.processes, shared.train_s, shared.shared_s) == (8, alone.train_s, Range(low=0, high=3))
    assert format_plan(alone).count("processes") == 0
    assert "in one process; 8 processes take 0:00:00 to 0:00:03 at best" in format_plan(shared)


def test_prices_are_those_of_the_engine() -> None:
    assert read_prices(PartDefinition(kind="local")) == (0, 0)
    assert read_prices(PartDefinition(kind="openai", options={"usd_per_million_prompt": 0.5})) is None
    both = {"usd_per_million_prompt": 0.5, "usd_per_million_completion": 2}
    assert read_prices(PartDefinition(kind="openai", options=both)) == (0.5, 2)
    assert compute_cost(Range(low=2e6, high=4e6), Range(low=0, high=1e6), (0.5, 2)) == Range(low=1, high=4)


def test_an_adversary_may_be_asked_about_every_cell_in_any_turn(configure_toy) -> None:
    """No cell may have a contrast, the model may be drawn each time, and each of its three tries may be in vain."""
    options = {"model": "m", "base_url": "http://127.0.0.1:9/v1"}
    options |= {f"usd_per_million_{name}": 1 for name in ("prompt", "completion")}
    agent = AgentDefinition(kind="openai", options=options, sampling=SamplingDefinition(max_tokens=256))
    asking = AdversaryChoice(part=PartDefinition(kind="llm"), agent=agent, texts={"clumsy": "Be clumsy."})
    sampler = AdversaryChoice(part=PartDefinition(kind="sampler"))
    mixture = AdversaryChoice(part=PartDefinition(kind="mixture"), turns=((asking, 1.0), (sampler, 1.0)))
    prompts = [Prompt(system="Rules.", shared=" Screen.", segments=(Segment(text=" You are ada."),))] * 4

    def asked(choice: AdversaryChoice, weight: int = 1) -> Questions | None:
        pairs = f"pairs={{adversary: {weight}, contrast: 1}}"
        config = configure_toy(pairs).model_copy(update={"adversary": choice.as_json})
        return asyncio.run(estimate_adversary_questions(config, prompts))

    found = asked(mixture)
    assert found is not None
    assert found.calls == Range(low=0, high=3 * 4)
    assert found.completion_tokens.high == 3 * 4 * 256
    assert found.usd is not None
    assert found.usd.high == pytest.approx((found.prompt_tokens.high + found.completion_tokens.high) / 1e6)
    assert found == asked(asking), "whatever the weights"
    assert asked(asking, weight=0) == NONE_ASKED
    assert asked(sampler) == NONE_ASKED
    assert asked(AdversaryChoice(part=PartDefinition(kind="somewhere.else:Adversary"))) is None


def test_what_would_be_asked_is_counted_without_a_key(configure_toy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    config = configure_toy("critic=critic-llm", "adversary=openai", "pairs={adversary: 1}")
    case = asyncio.run(build_calibration_set(CorridorSuite(), ["PressButton"], seed=0))[0].case
    critic = asyncio.run(estimate_critic_questions(config.build_critic_choice("plan", 0), "critic-llm", case))
    assert critic is not None
    assert critic.calls == Range(low=1, high=1)
    prompts = [Prompt(system="Rules.", shared=" Screen.", segments=(Segment(text=" You are ada."),))]
    adversary = asyncio.run(estimate_adversary_questions(config, prompts))
    assert adversary is not None
    assert adversary.calls == Range(low=0, high=3)


def test_what_rft_takes_is_tried_on_replies_alone(configure_toy, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the recipe that trains them: no rejected reply, no reference, no prefix that pairs would share."""
    seen: list[tuple[FinetuneTask, list[EncodedExample]]] = []

    def forecast(task: FinetuneTask, items: list[EncodedExample], *_: object, **__: object) -> Forecast:
        seen.append((task, items))
        return TRAINING

    monkeypatch.setattr("collab.trainers.estimate.forecast", forecast)
    chat, prompt = ChatTokenizer(str(tiny)), Prompt(system="Rules.", shared=" Screen.", segments=())
    cell = SimpleNamespace(agent="ada", text="Action: 1", prompt=SimpleNamespace(prefix="p"))
    step = SimpleNamespace(matrix=SimpleNamespace(utterances=[cell]))
    policy = Policy(version=0, weights={"ada": str(tiny), "ben": str(tiny)})
    config = configure_toy("epochs=2", "reference=initial", ablation="rft")
    tried = TriedStep(
        run=config.run,
        library=Library(),
        policy=policy,
        device="cpu",
        out=tiny,
        trajectory=SimpleNamespace(steps=[step]),
        prompts=[prompt],
    )
    assert _forecast_training(config, tried) == TRAINING
    ((task, (example,)),) = seen
    assert (task.stage, task.recipe, task.reference) == ("sft", build_sft_recipe(config.method.dpo), None)
    read, said = chat.prompt_ids(prompt).ids, chat.encode("Action: 1")
    assert example.ids.tolist() == [*read, *said, turn_end(chat)]
    assert (example.group, example.scored_from) == ("demonstration", len(read))


def test_the_step_that_is_tried_is_one_of_a_whole_episode(tmp_path: Path) -> None:
    """Its task keeps its steps: with one alone no action leads on, and no cell is rewarded."""
    library = Library()
    names = {"env": "androidworld", "graph": "single", "agents": "rehearsal", "tasks": ["ContactsAddContact"]}
    run = run_config(purpose="rollout", library=library, episodes=1, seed=1, **names)
    (played,) = asyncio.run(_play_first_steps(run, library, tmp_path / "run"))
    suite = build_suite(run)
    assert len(played.steps) == 1
    assert played.task.max_steps == suite.instance(played.task.name, played.task.seed).max_steps > 1
    (case,) = build_inputs(played, suite.space, StateRebuilder(suite))
    rewards = asyncio.run(SolutionCritic().judge(case)).rewards.rewards
    assert all(one.score is not None for one in rewards)


def test_as_many_steps_are_tried_together_as_are_played(tmp_path: Path) -> None:
    library, tasks = Library(), ["ContactsAddContact", "SystemWifiTurnOn", "MarkorCreateNote"]
    names = {"env": "androidworld", "graph": "single", "agents": "rehearsal", "tasks": tasks, "concurrency": 3}
    run = run_config(purpose="rollout", library=library, episodes=3, seed=1, **names)
    played = asyncio.run(_play_first_steps(run, library, tmp_path / "run"))
    assert sorted(one.task.name for one in played) == sorted(tasks)
    assert {len(one.steps) for one in played} == {1}


@pytest.mark.slow
def test_a_step_is_really_tried(configure_finetuned, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the oracle everything is measured; of a critic that asks a model, what it would be asked is counted."""
    config = configure_finetuned()
    probe = asyncio.run(plan(config, Library(own=Path(config.library)), "cpu")).probe
    found = probe.estimate
    assert (probe.calls, [one.asked for one in found.labels]) == (4, [NONE_ASKED, NONE_ASKED])
    assert min(probe.seconds, *(one.seconds or 0 for one in found.labels), found.training.seconds_per_item) > 0
    assert found.training.measured
    assert found.training.tokens_per_item > probe.prompt_tokens / probe.calls / 2
    assert 0 < found.training.least.total < found.training.most.total
    rft = asyncio.run(plan(configure_finetuned(ablation="rft"), Library(own=Path(config.library)), "cpu"))
    alone = rft.probe.estimate.training
    assert alone.measured
    assert alone.least.weights == found.training.least.weights // 2, "no reference"
    assert alone.tokens_per_item > found.training.tokens_per_item, "nothing is shared"
    assert 0 < alone.least.total < alone.most.total
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    whole = asyncio.run(plan(configure_finetuned("critic=critic-llm"), Library(own=Path(config.library)), "cpu"))
    critic = whole.labels[0]
    assert critic.asked is not None
    assert critic.asked.calls == whole.steps
    assert critic.asked.prompt_tokens.low > 100 * whole.steps.low
    assert [one.seconds for one in whole.labels] == [None, None]
    assert (whole.total_s, whole.usd) == (None, None)


@pytest.mark.slow
def test_imitation_is_planned_without_any_label(configure_finetuned) -> None:
    config = configure_finetuned(algorithm="filtered-bc")
    found = asyncio.run(plan(config, Library(own=Path(config.library)), "cpu"))
    assert (found.labels, found.noun) == ((), "turns")
    drawn = config.method.epochs * 2 * 4  # epochs, updates, turns of each
    assert found.examples == Range(low=drawn, high=drawn)
    assert "judging" not in format_plan(found)
