"""One episode and many: who hears whom, what is recorded, what a broken world costs, how a run is taken up again."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import pytest

from collab.agents.agent import Agent
from collab.config import Budget, Limits
from collab.envs.base import HasOracle
from collab.errors import ModelFailure, StoreFailure
from collab.graphs.dag import Dag
from collab.graphs.deliberation import Network
from collab.library import find_builtin_root
from collab.models.base import Capabilities, Reply, Request
from collab.prompts.parse import write_reply
from collab.prompts.render import Template, read_templates, rebuild
from collab.rollout.collector import Collection, RolloutProgress, Workload, collect
from collab.rollout.episode import Episode, Stage, play
from collab.seeds import Seeds
from collab.testing.corridor import CorridorEnvironment, CorridorSuite
from collab.types import Action, CellRef, PolicyRef, Sampling, Step, StepResult, Trajectory

DIAMOND = Dag(
    slots=("ada", "ben", "cyd", "dan"), edges=(("ada", "ben"), ("ada", "cyd"), ("ben", "dan"), ("cyd", "dan"))
)


@dataclass
class Follower:
    """Does what the oracle says; may misbehave on demand."""

    policy: PolicyRef = field(default_factory=lambda: PolicyRef(base="follower"))
    privileged: bool = True
    calls: list[Request] = field(default_factory=list)
    trouble: Callable[[int, Request], None] = lambda number, request: None
    slow_s: float = 0.0

    async def generate(self, request: Request) -> Reply:
        self.trouble(len(self.calls), request)
        self.calls.append(request)
        await asyncio.sleep(self.slow_s)
        assert request.privilege is not None
        actions = request.privilege.oracle()
        assert actions is not None
        text = write_reply("Rehearsed.", actions[0], request.privilege.space)
        return Reply(text=text, prompt_tokens=100, completion_tokens=10, cost_usd=0.001)

    async def probe(self) -> Capabilities:
        return Capabilities()

    def count_tokens(self, text: str) -> int:
        return len(text) // 4

    async def close(self) -> None:
        pass


@dataclass
class Log:
    """Remembers what it was told."""

    begun: list[str] = field(default_factory=list)
    resumed: list[tuple[str, int]] = field(default_factory=list)
    steps: list[tuple[str, Step]] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    ended: list[Trajectory] = field(default_factory=list)

    def with_worker(self, worker: str) -> Log:
        return self

    def begin(self, trajectory: Trajectory) -> None:
        self.begun.append(trajectory.id)

    def resume(self, trajectory: str, step: int) -> None:
        self.resumed.append((trajectory, step))

    def store_text(self, key: str, text: str) -> None:
        self.texts[key] = text

    def store_picture(self, png: bytes) -> str:
        return hashlib.sha256(png).hexdigest()

    def step(self, trajectory: str, step: Step) -> None:
        self.steps.append((trajectory, step))

    def end(self, trajectory: Trajectory) -> None:
        self.ended.append(trajectory)


def team(model: Follower, dag: Dag = DIAMOND, rounds: int = 3, **changes: object) -> Network:
    template = Template("default", read_templates(find_builtin_root() / "prompts" / "default"))
    agents = {
        slot: Agent(slot=slot, definition="x", model=model, template=template, sampling=Sampling(), **changes)
        for slot in dag.slots
    }
    return Network(dag=dag, agents=agents, rounds=rounds)


def stage(suite: CorridorSuite | None = None, **limits: float) -> Stage:
    return Stage(suite=suite or CorridorSuite(), seeds=Seeds(7), limits=Limits(**limits))


def episode(task: str = "OpenDoors", number: int = 0) -> Episode:
    return Episode(task=task, number=number, seed=Seeds(7).task(task, number))


def run(network: Network, where: Stage, log: Log, which: Episode | None = None, **more: object) -> Trajectory:
    async def go() -> Trajectory:
        environment = await where.suite.open()
        return await play(environment, network, which or episode(), where, log, **more)

    return asyncio.run(go())


def gather(plan: list[Episode], network: Network, where: Stage, log: Log, **more: object) -> SimpleNamespace:
    """Why a collection stopped, and the episodes that are over in the order of the plan."""
    collection = asyncio.run(collect(plan, lambda _: network, where, log, **more))
    ended = {trajectory.id: trajectory for trajectory in log.ended}
    return SimpleNamespace(stopped=collection.stopped, trajectories=tuple(ended[id] for id in collection.over))


def test_an_episode_is_recorded_whole() -> None:
    log, model = Log(), Follower()
    trajectory = run(team(model), stage(), log)
    assert trajectory.success
    assert trajectory.privileged
    assert trajectory.environment == "fake[corridor]"
    assert log.begun == [trajectory.id] == ["OpenDoors/0"]
    assert [step for _, step in log.steps] == list(trajectory.steps)
    assert log.ended == [trajectory]
    assert len(model.calls) == 12 * len(trajectory.steps)
    assert trajectory.steps[-1].terminated
    assert trajectory.final is not None


def test_what_an_environment_says_of_a_step_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = CorridorEnvironment.step

    async def wordy(self: CorridorEnvironment, action: Action | None) -> StepResult:
        result = await usual(self, action)
        return replace(result, info={"effect": "ä" * 20_000, "refused": ["a"], "why": "y" * 20_000})

    monkeypatch.setattr(CorridorEnvironment, "step", wordy)
    log, model = Log(), Follower()
    step = run(team(model), stage(), log).steps[0]
    assert len(step.history.effect) <= 4010
    assert "characters left out" in step.history.effect
    assert step.info["effect"] == step.history.effect
    assert len(step.info["why"]) <= 4010
    assert step.info["refused"] == ["a"]


def test_every_cell_hears_its_last_word_and_its_predecessors_of_this_round() -> None:
    log = Log()
    matrix = run(team(Follower()), stage(), log).steps[0].matrix
    assert [utterance.cell for utterance in matrix] == [
        CellRef(agent, round) for round in range(3) for agent in ("ada", "ben", "cyd", "dan")
    ]
    assert matrix[("ada", 0)].heard == ()
    assert matrix[("dan", 0)].heard == (("ben", 0), ("cyd", 0))
    assert matrix[("dan", 2)].heard == (("dan", 1), ("ben", 2), ("cyd", 2))
    assert matrix[("ada", 2)].heard == (("ada", 1),), "memory of exactly one"


def test_prompts_are_rebuilt_from_the_record_byte_for_byte() -> None:
    log, model = Log(), Follower()
    trajectory = run(team(model), stage(), log)
    sent = {(call.prompt.system, call.prompt.user) for call in model.calls}
    rebuilt = set()
    for step in trajectory.steps:
        for utterance in step.matrix:
            prompt = rebuild(log.texts[utterance.prompt.prefix], utterance.prompt)
            rebuilt.add((prompt.system, prompt.user))
    assert rebuilt == sent
    assert len(log.texts) == len(trajectory.steps), "one shared prefix per step"


def test_history_tells_executed_actions_by_label() -> None:
    log = Log()
    steps = run(team(Follower()), stage(), log).steps
    assert steps[0].history.action.startswith('tap button "')
    assert steps[0].history.effect == "the next room opened"
    assert steps[0].history.reason == "Rehearsed."
    assert steps[0].history.action in log.texts[steps[1].matrix.utterances[0].prompt.prefix]


def test_a_cell_waits_for_its_own_predecessors_only() -> None:
    # ben is slow; cyd's whole conversation does not depend on him.
    order: list[tuple[str, int]] = []

    class Slow(Follower):
        async def generate(self, request: Request) -> Reply:
            header = request.prompt.segments[-1].text
            agent, round = header.split("You are ")[1][:3], int(header.split("Round ")[1][0])
            if agent == "ben":
                await asyncio.sleep(0.05)
            order.append((agent, round))
            return await super().generate(request)

    dag = Dag(slots=("ada", "ben", "cyd"), edges=(("ada", "ben"), ("ada", "cyd")))
    run(team(Slow(), dag), stage(), Log(), episode("PressButton"))
    first_step = order[:9]
    assert first_step.index(("cyd", 3)) < first_step.index(("ben", 1))


def test_seeds_are_named_and_differ() -> None:
    log = Log()
    trajectory = run(team(Follower()), stage(), log)
    seeds = [utterance.seed for step in trajectory.steps for utterance in step.matrix]
    assert len(set(seeds)) == len(seeds)
    again = run(team(Follower()), stage(), Log())
    assert [utterance.seed for step in again.steps for utterance in step.matrix] == seeds


def test_no_parsable_cell_lets_a_phone_wait() -> None:
    class Mumbler(Follower):
        async def generate(self, request: Request) -> Reply:
            return Reply(text="I would rather not.")

    trajectory = run(team(Mumbler()), stage(), Log(), episode("PressButton"))
    assert trajectory.outcome is not None
    assert not trajectory.success
    assert all(step.no_action and step.executed and step.executed.type == "wait" for step in trajectory.steps)
    assert trajectory.steps[-1].truncated
    assert len(trajectory.steps) == trajectory.task.max_steps


def test_a_broken_environment_is_an_error_not_an_outcome() -> None:
    log = Log()
    trajectory = run(team(Follower()), stage(CorridorSuite(fail_at=2)), log)
    assert trajectory.outcome is None
    assert trajectory.error is not None
    assert (trajectory.error.type, trajectory.error.step) == ("EnvironmentFailure", 2)
    assert len(log.steps) == 2, "what happened before it broke is kept"


def test_a_hanging_environment_is_given_up() -> None:
    trajectory = run(team(Follower()), stage(CorridorSuite(hang_at=1), step_s=0.2), Log())
    assert trajectory.error is not None
    assert "timed out" in trajectory.error.message
    trajectory = run(team(Follower()), stage(CorridorSuite(hang_at=1), episode_s=0.2), Log())
    assert trajectory.error is not None
    assert "limit 0.2 s) timed out" in trajectory.error.message


def test_a_failing_model_breaks_its_episode() -> None:
    def refuse(number: int, request: Request) -> None:
        if number == 17:
            raise ModelFailure("the server is gone")

    trajectory = run(team(Follower(trouble=refuse)), stage(), Log())
    assert trajectory.error is not None
    assert (trajectory.error.type, trajectory.error.message) == ("ModelFailure", "the server is gone")


def test_foreign_errors_are_relabelled_once() -> None:
    def crash(number: int, request: Request) -> None:
        raise KeyError("choices")

    trajectory = run(team(Follower(trouble=crash)), stage(), Log())
    assert trajectory.error is not None
    assert trajectory.error.type == "ModelFailure"
    assert "KeyError" in trajectory.error.message


def test_a_slow_call_is_cut() -> None:
    trajectory = run(team(Follower(slow_s=5), call_s=0.1), stage(), Log())
    assert trajectory.error is not None
    assert "call of ada to follower (limit 0.1 s) timed out" in trajectory.error.message


@pytest.mark.slow
def test_waiting_in_line_is_no_part_of_a_call() -> None:
    class Narrow(Follower):
        line = asyncio.Semaphore(1)

        async def generate(self, request: Request) -> Reply:
            assert request.clock is not None
            request.clock.hold()
            async with self.line:
                request.clock.go()
                return await super().generate(request)

    silent = Dag(slots=("ada", "ben", "cyd", "dee"))
    trajectory = run(team(Narrow(slow_s=0.15), silent, call_s=0.5), stage(), Log(), episode("PressButton"))
    assert trajectory.success, "four calls of 0.15 s behind one another, none of them longer than 0.5 s"


def strip(trajectory: Trajectory) -> Trajectory:
    """Without times."""
    steps = tuple(
        replace(
            step,
            deliberation_s=0,
            environment_s=0,
            matrix=replace(step.matrix, utterances=tuple(replace(utterance, latency_s=0) for utterance in step.matrix)),
        )
        for step in trajectory.steps
    )
    return replace(trajectory, steps=steps, seconds=0)


def test_a_half_played_episode_resumes_as_if_nothing_had_happened() -> None:
    whole = run(team(Follower()), stage(), Log())
    model, log = Follower(), Log()
    resumed = run(team(model), stage(), log, done=whole.steps[:2])
    assert strip(resumed) == strip(whole)
    assert len(model.calls) == 12 * (len(whole.steps) - 2), "a logged reply is never asked for again"
    assert [step.index for _, step in log.steps] == [step.index for step in whole.steps[2:]]
    assert (log.begun, log.resumed) == ([], [("OpenDoors/0", 2)])


def test_a_replay_that_leads_elsewhere_is_an_error() -> None:
    whole = run(team(Follower()), stage(), Log())
    wrong = replace(whole.steps[1], observation=replace(whole.steps[1].observation, title="Elsewhere"))
    log = Log()
    resumed = run(team(Follower()), stage(), log, done=(whole.steps[0], wrong))
    assert resumed.error is not None
    assert (log.begun, log.resumed) == ([], [("OpenDoors/0", 2)]), "what was recorded stays"
    assert "not the recorded one" in resumed.error.message


def test_one_broken_episode_disturbs_no_other() -> None:
    suite = CorridorSuite(fail_at=0, troubled=["TypeWord"])
    plan = [episode(task, number) for number in range(4) for task in ("OpenDoors", "TypeWord", "PressButton")]
    log = Log()
    collection = gather(plan, team(Follower()), stage(suite), log, concurrency=5)
    assert collection.stopped is None
    assert [trajectory.id for trajectory in collection.trajectories] == [item.id for item in plan]
    assert [trajectory.success for trajectory in collection.trajectories] == [True, False, True] * 4
    assert suite.active == 0, "every environment was given back"


def test_concurrency_changes_nothing_but_time() -> None:
    plan = [episode("OpenDoors", number) for number in range(6)]
    one = gather(plan, team(Follower()), stage(), Log(), concurrency=1)
    many = gather(plan, team(Follower()), stage(), Log(), concurrency=6)
    assert [strip(trajectory) for trajectory in one.trajectories] == [
        strip(trajectory) for trajectory in many.trajectories
    ]


def test_one_slow_episode_slows_no_other() -> None:
    suite = CorridorSuite(slow_s=0.3, troubled=["TypeWord"])
    plan = [episode("TypeWord"), *(episode("PressButton", number) for number in range(8))]
    log = Log()
    gather(plan, team(Follower()), stage(suite), log, concurrency=2)
    assert log.ended[-1].task.name == "TypeWord"


@pytest.mark.slow
def test_an_episode_asks_before_each_step_and_its_limit_stands_still_meanwhile() -> None:
    asked: list[str] = []

    async def admit(name: str) -> None:
        asked.append(name)
        await asyncio.sleep(1.5 if len(asked) == 2 else 0)

    log = Log()
    trajectory = run(team(Follower()), stage(episode_s=1.0), log, admit=admit)
    assert (trajectory.success, trajectory.error) == (True, None)
    assert asked == [trajectory.id] * len(log.steps)
    trajectory = run(team(Follower()), stage(CorridorSuite(hang_at=1), episode_s=1.0), Log(), admit=admit)
    assert trajectory.error is not None
    assert "limit 1 s) timed out" in trajectory.error.message


def test_an_episode_that_is_not_wanted_any_more_takes_no_further_step() -> None:
    """It is taken up again where another one turns out not to count."""
    plan = [episode("OpenDoors"), episode("OpenDoors", 1)]
    last, log = plan[1].id, Log()
    back = asyncio.Event()

    async def admit(name: str) -> None:
        if name == last and len([own for own, _ in log.steps if own == last]) == 2:
            await back.wait()

    async def go() -> tuple[int, Collection]:
        going = asyncio.ensure_future(collect(plan, lambda _: team(Follower()), stage(), log, admit=admit))
        while not log.ended:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        paused = len([own for own, _ in log.steps if own == last])
        back.set()
        return paused, await going

    paused, collection = asyncio.run(go())
    assert paused == 2
    assert collection.over == (plan[0].id, last)
    assert [one.success for one in log.ended] == [True, True]


def test_a_world_that_exists_once_is_played_by_one_worker() -> None:
    class Single(CorridorSuite):
        most_environments = 1
        most = 0

        async def open(self):
            environment = await super().open()
            self.most = max(self.most, self.active)
            return environment

    suite = Single()
    plan = [episode("PressButton", number) for number in range(4)]
    assert len(gather(plan, team(Follower()), stage(suite), Log(), concurrency=4).trajectories) == 4
    assert suite.most == 1


def test_ten_failures_in_a_row_stop_the_collection() -> None:
    plan = [episode("OpenDoors", number) for number in range(30)]
    collection = gather(plan, team(Follower()), stage(CorridorSuite(fail_at=0)), Log(), concurrency=1)
    assert collection.stopped is not None
    assert "10 infrastructure failures in a row" in collection.stopped
    assert len(collection.trajectories) == 10


def test_an_environment_that_cannot_be_opened_breaks_episodes_only() -> None:
    class Locked(CorridorSuite):
        async def open(self):
            raise OSError("no device")

    collection = gather([episode()], team(Follower()), stage(Locked()), Log())
    error = collection.trajectories[0].error
    assert error is not None
    assert "OSError: no device" in error.message


@pytest.mark.parametrize(
    ("budget", "words"),
    [(Budget(tokens=5000), "tokens"), (Budget(usd=0.02), "USD"), (Budget(minutes=0.01), "minutes")],
)
def test_budgets_stop_a_collection(budget: Budget, words: str) -> None:
    plan = [episode("OpenDoors", number) for number in range(50)]
    progress = RolloutProgress(planned=50)
    collection = gather(
        plan, team(Follower(slow_s=0.01)), stage(), Log(), budget=budget, progress=progress, concurrency=2
    )
    assert collection.stopped is not None
    assert words in collection.stopped
    assert progress.done < 50


def test_a_request_to_stop_is_honoured_while_a_step_hangs() -> None:
    async def go() -> Collection:
        stop = asyncio.Event()
        asyncio.get_running_loop().call_later(0.1, stop.set)
        suite = CorridorSuite(hang_at=1)
        return await collect([episode()], lambda _: team(Follower()), stage(suite), Log(), stop=stop)

    collection = asyncio.run(go())
    assert collection.stopped == "stopped on request"
    assert collection.over == ()


def test_a_full_disk_ends_the_collection() -> None:
    class Full(Log):
        def step(self, trajectory: str, step: Step) -> None:
            raise StoreFailure("no space left")

    with pytest.raises(StoreFailure, match="no space left"):
        gather([episode("OpenDoors", number) for number in range(4)], team(Follower()), stage(), Full())


def test_progress_counts() -> None:
    progress = RolloutProgress(planned=2)
    plan = [episode("PressButton", number) for number in range(2)]
    collection = gather(plan, team(Follower()), stage(), Log(), progress=progress)
    steps = sum(len(trajectory.steps) for trajectory in collection.trajectories)
    assert (progress.done, progress.succeeded, progress.broken, progress.steps) == (2, 2, 0, steps)
    assert progress.spent.calls == 12 * steps
    assert progress.tokens == 12 * steps * 110
    assert progress.spent.cost_usd == pytest.approx(12 * steps * 0.001)


def test_a_cell_keeps_what_its_call_told_and_progress_adds_up_what_is_told() -> None:
    class Cached(Follower):
        async def generate(self, request: Request) -> Reply:
            reply = await super().generate(request)
            told = "You are ada" not in request.prompt.suffix
            return replace(reply, computed_tokens=25, queue_s=0.5, work_s=1.5, width=2.5) if told else reply

    progress = RolloutProgress(planned=1)
    collection = gather([episode()], team(Cached()), stage(), Log(), progress=progress)
    cells = [cell for step in collection.trajectories[0].steps for cell in step.matrix]
    told = [cell for cell in cells if cell.computed_tokens is not None]
    assert 0 < len(told) < len(cells)
    assert {(cell.computed_tokens, cell.queue_s, cell.width) for cell in told} == {(25, 0.5, 2.5)}
    assert {(cell.queue_s, cell.width) for cell in cells if cell not in told} == {(None, None)}
    assert (progress.computed_tokens, progress.cacheable_tokens) == (25 * len(told), 100 * len(told))
    assert progress.hit_rate == 0.75
    assert (progress.mean_width, progress.wide_calls) == (2.5, len(told))
    assert (progress.queue_s, progress.work_s) == (0.5 * len(told), 1.5 * len(told))
    assert progress.timed_calls == len(told)
    assert RolloutProgress(planned=1).mean_width is None
    assert RolloutProgress(planned=1).hit_rate is None


def test_what_a_broken_step_cost_is_counted_too() -> None:
    def refuse(number: int, request: Request) -> None:
        if number == 8:
            raise ModelFailure("the server is gone")

    progress = RolloutProgress(planned=1)
    gather([episode()], team(Follower(trouble=refuse)), stage(), Log(), progress=progress)
    assert (progress.steps, progress.broken) == (0, 1)
    assert progress.spent.calls >= 8
    assert progress.tokens == 110 * progress.spent.calls


def test_a_budget_that_ends_with_the_last_episode_stopped_nothing() -> None:
    whole = RolloutProgress(planned=1)
    gather([episode()], team(Follower()), stage(), Log(), progress=whole)
    collection = gather([episode()], team(Follower()), stage(), Log(), budget=Budget(tokens=whole.tokens))
    assert len(collection.trajectories) == 1
    assert collection.stopped is None


def paced(steps: int, seconds: float) -> Workload:
    """What was done so many steps of in so many seconds."""
    workload = Workload()
    workload.plan("Task/0", 2 * steps)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("collab.rollout.collector.time.monotonic", lambda: 100.0)
        workload.begin("Task/0")
        patch.setattr("collab.rollout.collector.time.monotonic", lambda: 100.0 + seconds)
        workload.count("Task/0", steps)
    return workload


def test_time_left_is_reckoned_from_what_this_process_did() -> None:
    assert RolloutProgress(planned=10, done=5, before=5).seconds_left is None
    steps = RolloutProgress(planned=800, wanted_steps=800, steps_before=500, steps=100, workload=paced(100, seconds=10))
    assert steps.seconds_left == pytest.approx(20, rel=0.05)
    assert RolloutProgress(planned=800, done=3, wanted_steps=800, steps_before=500).seconds_left is None
    beyond = RolloutProgress(
        planned=800, wanted_steps=600, steps_before=500, steps=101, workload=paced(101, seconds=10)
    )
    assert beyond.seconds_left is None, "episodes that were begun are still played"


def test_summaries_are_an_option() -> None:
    class Writer(Follower):
        async def generate(self, request: Request) -> Reply:
            if request.privilege is None or "at most three sentences" in request.prompt.shared:
                return Reply(text=f"Summary number {len(self.calls)}.")
            return await super().generate(request)

    log = Log()
    steps = run(team(Writer(), summary=True), stage(), log).steps
    assert steps[0].summary == ""
    assert steps[1].summary.startswith("Summary number")
    assert steps[1].summary in log.texts[steps[1].matrix.utterances[0].prompt.prefix]


def test_the_corridor_has_an_oracle() -> None:
    assert isinstance(asyncio.run(CorridorSuite().open()), HasOracle)
