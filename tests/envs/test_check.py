"""The checker passes an honest suite and catches every way of breaking a promise."""

import asyncio
import itertools
import json
from dataclasses import replace

import pytest

from collab.envs.base import TaskInfo
from collab.envs.check import CLAIMS, FRESH_PROCESS, SUITE, Subject, check_env
from collab.envs.grammar import MOBILE, WEB
from collab.envs.text import describe_screen
from collab.errors import EnvironmentFailure, UnknownName
from collab.testing.corridor import CorridorSuite
from collab.types import Box, Element, ElementTarget, Observation, Outcome, StepResult, Task

PIXEL = (
    b"\x89PNG\r\n\x1a\n"
    + b"\x00\x00\x00\rIHDR"
    + (1080).to_bytes(4, "big")
    + (2400).to_bytes(4, "big")
    + b"\x08\x02..."
)
DONE = MOBILE.make("status", goal_status="complete")


class Counter:
    """An honest world with changing insides: press "more" until the number is the wanted one."""

    def __init__(self, suite):
        self.suite = suite
        self.state = {}

    async def reset(self, task):
        self.task = task
        self.state = {"count": 0, "steps": 0}
        return self.look()

    def elements(self):
        labels = [("text", str(self.state["count"])), ("button", "more"), ("button", "less")]
        return tuple(
            Element(index=index, role=role, label=label, box=Box(0, 200 * index, 1080, 200 * index + 200))
            for index, (role, label) in enumerate(labels)
        )

    def look(self):
        elements = self.elements()
        return Observation(
            space="mobile", title="Counter", elements=elements, text=describe_screen("Counter", elements)
        )

    def do(self, action):
        action = MOBILE.canonical(action, self.look())
        if action.type == "click" and isinstance(action.target, ElementTarget):
            self.state["count"] += {1: 1, 2: -1}.get(action.target.index, 0)

    async def step(self, action):
        if action is not None:
            self.do(action)
        self.state["steps"] += 1
        terminated = action is not None and action.type == "status"
        truncated = not terminated and self.state["steps"] >= self.task.max_steps
        outcome = None
        if terminated or truncated:
            success = terminated and action == DONE and self.state["count"] == self.task.params["wanted"]
            outcome = Outcome(success=success, score=float(success))
        return StepResult(
            observation=self.look(),
            terminated=terminated,
            truncated=truncated,
            outcome=outcome,
            info={"effect": "done"},
        )

    async def fork(self):
        twin = type(self)(self.suite)
        twin.task, twin.state = self.task, dict(self.state)
        return twin

    def oracle(self):
        missing = self.task.params["wanted"] - self.state["count"]
        return (*[MOBILE.make("click", index=1 if missing > 0 else 2)] * abs(missing), DONE)

    def score(self):
        return float(self.state["count"] == self.task.params["wanted"])

    async def screenshot(self, marks=False):
        return PIXEL

    async def close(self):
        pass


class CounterSuite:
    name = label = "counter"
    version = "1"
    space = MOBILE
    capabilities = frozenset({"fork", "oracle", "score", "screenshot", "deterministic"})
    world = Counter

    def tasks(self):
        return [TaskInfo(name="Count", max_steps=12, oracle=True)]

    def instance(self, name, seed):
        if name != "Count":
            raise UnknownName.of("task", name, ["Count"])
        wanted = 2 + seed % 3
        return Task(
            environment="counter",
            name=name,
            seed=seed,
            goal=f"Count to {wanted}",
            params={"wanted": wanted},
            max_steps=12,
        )

    async def open(self):
        return self.world(self)

    async def close(self):
        pass


def check(suite, **arguments):
    return asyncio.run(check_env(suite, **arguments))


def broken(name="Broken", suite=None, **methods):
    """The honest suite with some methods of its world, or of itself, replaced."""
    world = type(name, (Counter,), methods)
    return type("BrokenSuite", (CounterSuite,), {"world": world, **(suite or {})})()


def test_an_honest_suite_passes():
    told = []
    report = check(CounterSuite(), progress=told.append)
    assert report.ok, report.failures
    assert tuple(told) == report.findings
    by_claim = {finding.claim: finding for finding in report.findings}
    assert [*by_claim] == ["suite", *(name for name, _, _ in CLAIMS), FRESH_PROCESS]
    assert {finding.status for finding in report.findings if finding.claim != FRESH_PROCESS} == {"passed"}
    assert by_claim[FRESH_PROCESS].status == "skipped"
    assert by_claim["oracle"].detail == "solved in 4 of 12 steps"
    assert by_claim["budget"].detail == "truncated after 12 steps"
    assert by_claim["screenshot"].detail.startswith("1080 × 2400")


def test_a_check_of_a_world_that_never_waits_can_be_cancelled():
    told = []

    async def cancelled():
        job = asyncio.create_task(check_env(CounterSuite(), seeds=(0,), progress=lambda _: told.append(job.cancel())))
        await asyncio.gather(job, return_exceptions=True)
        return job.cancelled()

    assert asyncio.run(cancelled())
    assert len(told) == 2, "the suite itself, and the first claim"


def test_the_fake_passes_and_can_be_rebuilt_in_a_fresh_process():
    report = check(
        CorridorSuite(max_steps=7), options={"max_steps": 7}, seeds=(0, 1, 2), tasks=["TypeWord", "PressButton"]
    )
    assert report.ok, report.failures
    fresh = [finding for finding in report.findings if finding.claim == FRESH_PROCESS]
    assert [(finding.status, finding.detail) for finding in fresh] == [("passed", "6 episodes equal")]
    assert {finding.task for finding in report.findings} == {SUITE, "TypeWord", "PressButton"}


def test_what_is_not_claimed_is_left_out():
    modest = broken(
        suite={"capabilities": frozenset(), "tasks": lambda self: [TaskInfo(name="Count", max_steps=12)]},
    )
    report = check(modest)
    assert report.ok
    skipped = {finding.claim: finding.detail for finding in report.findings if finding.status == "skipped"}
    assert skipped == dict.fromkeys(("fork", "oracle", "score", "rebuild", "screenshot"), "not claimed")


def test_a_task_without_a_solution_is_left_out():
    unsolved = broken(suite={"tasks": lambda self: [TaskInfo(name="Count", max_steps=12)]}, oracle=lambda self: None)
    report = check(unsolved)
    assert report.ok, report.failures
    assert [f.detail for f in report.findings if f.claim == "oracle"] == ["no known solution"]


def test_an_unknown_task_is_a_mistake_of_the_caller():
    with pytest.raises(UnknownName, match="did you mean Count"):
        check(CounterSuite(), tasks=["Counts"])


# ----------------------------------------------------------------------------------------- broken on purpose

ticker = itertools.count()


def edited(**changes):
    """A look() whose observation has other fields."""

    def look(self):
        return replace(Counter.look(self), **changes)

    return {"look": look}


def with_element(**changes):
    """Element 1 with other fields, everywhere."""

    def elements(self):
        zero, one, two = Counter.elements(self)
        return zero, replace(one, **changes), two

    return {"elements": elements}


def result_with(**changes):
    """A step() whose result has other fields."""

    async def step(self, action):
        return replace(await Counter.step(self, action), **changes)

    return {"step": step}


async def forgetful_reset(self, task):
    old = self.state.get("count", 0)
    await Counter.reset(self, task)
    self.state["count"] = old
    return self.look()


async def counting_reset(self, task):
    await Counter.reset(self, task)
    self.state["count"] = next(ticker)
    return self.look()


async def shaken_step(self, action):
    if action is not None and isinstance(action.target, ElementTarget):
        self.elements()[action.target.index]
    return await Counter.step(self, action)


async def impatient_step(self, action):
    result = await Counter.step(self, action)
    if self.state["steps"] == 11 and not result.done:
        return replace(result, truncated=True, outcome=Outcome(success=False, score=0))
    return result


async def endless_step(self, action):
    result = await Counter.step(self, action)
    return replace(result, truncated=False, outcome=None) if result.truncated else result


async def deaf_step(self, action):
    return await Counter.step(self, None if action == DONE else action)


async def hanging_step(self, action):
    await asyncio.Event().wait()


async def shared_fork(self):
    twin = type(self)(self.suite)
    twin.task, twin.state = self.task, self.state
    return twin


async def fresh_fork(self):
    twin = type(self)(self.suite)
    await twin.reset(self.task)
    twin.state["count"] = 99
    return twin


async def leaking_fork(self):
    twin = await Counter.fork(self)
    twin.parent = self
    return twin


async def leaking_step(self, action):
    if hasattr(self, "parent"):
        self.parent.state["count"] += 1
    return await Counter.step(self, action)


def half_oracle(self):
    return Counter.oracle(self)[:-1]


def greedy_oracle(self):
    return (DONE,)


def idle_oracle(self):
    return (MOBILE.make("wait"),)


def blind_oracle(self):
    return (MOBILE.make("click", index=7),)


def wordless_oracle(self):
    return (replace(MOBILE.make("click", index=1), arguments=(("speed", 3),)),)


def silent_oracle(self):
    return None


async def unsteady_step(self, action):
    self.state["count"] += next(ticker)
    return await Counter.step(self, action)


async def no_picture(self, marks=False):
    return b"GIF89a"


async def small_picture(self, marks=False):
    return PIXEL.replace((2400).to_bytes(4, "big"), (240).to_bytes(4, "big"))


async def unmarkable(self, marks=False):
    if marks:
        raise NotImplementedError("marks")
    return PIXEL


async def close_once(self):
    if getattr(self, "closed", False):
        raise RuntimeError("closed twice")
    self.closed = True


def drifting_instance(self, name, seed):
    task = CounterSuite.instance(self, name, seed)
    return replace(task, params={"wanted": next(ticker)})


def goalless_instance(self, name, seed):
    return replace(CounterSuite.instance(self, name, seed), goal="")


def counting_score(self):
    self.state["count"] += 1
    return 0.5


BROKEN = [
    ("same start", "instance() gives two different tasks for one seed", {"suite": {"instance": drifting_instance}}),
    ("same start", "there is no goal, neither in the task nor after reset", {"suite": {"instance": goalless_instance}}),
    ("same start", "two environments start differently: 'text", {"reset": counting_reset}),
    ("same start", "reset after an episode starts differently: 'text", {"reset": forgetful_reset}),
    ("same start", "raised: RuntimeError: closed twice", {"close": close_once}),
    ("observations", "after 0 steps: element 1 says it is 2", with_element(index=2)),
    ("observations", "element 1 lies beside the screen: (0, 0, 1081, 5)", with_element(box=Box(0, 0, 1081, 5))),
    ("observations", "element 1 lies beside the screen: (9, 0, 5, 5)", with_element(box=Box(9, 0, 5, 5))),
    ("observations", "the text does not name [0]", edited(text="Counter")),
    ("observations", "made for space 'web'", edited(space="web")),
    ("observations", "the screen has no size", edited(width=0)),
    ("observations", "the text cannot be stored", edited(title="\ud800")),
    ("junk actions", "raised: IndexError", {"step": shaken_step}),
    ("junk actions", "timed out", {"step": hanging_step}),
    ("junk actions", "terminated and truncated at once", result_with(terminated=True, truncated=True)),
    (
        "junk actions",
        "an outcome, done is False",
        result_with(outcome=Outcome(success=True, score=1), terminated=False),
    ),
    ("budget", "no outcome, done is True", result_with(outcome=None)),
    ("agent's end", "score 2, allowed: 0 to 1", result_with(outcome=Outcome(success=True, score=2))),
    ("junk actions", "info is not JSON", result_with(info={"effect": "x", "what": object()})),
    ("junk actions", 'info["effect"] is 3, allowed: text', result_with(info={"effect": 3})),
    ("agent's end", "status does not terminate the episode", {"step": deaf_step}),
    ("budget", "truncated after 11 steps, the budget is 12", {"step": impatient_step}),
    ("budget", "still not over after the budget of 12 steps", {"step": endless_step}),
    ("fork", "the fork differs 1 step later", {"fork": shared_fork}),
    ("fork", "the fork differs 1 step later: 'text", {"fork": fresh_fork}),
    ("fork", "the fork differs 1 step later", {"fork": leaking_fork, "step": leaking_step}),
    ("fork", "the environment has no fork()", {"fork": None}),
    ("oracle", "from the start: no solution after", {"oracle": half_oracle}),
    ("oracle", "from the start: no solution after 0 steps", {"oracle": silent_oracle}),
    ("oracle", "from the start: no success in 1 step", {"oracle": greedy_oracle}),
    ("oracle", "from the start: not over after 12 steps", {"oracle": idle_oracle}),
    ("oracle", "from the start: solution names index 7, the screen has 0 to 2", {"oracle": blind_oracle}),
    ("oracle", "from the start: solution is not in the grammar", {"oracle": wordless_oracle}),
    ("rebuild", "a fresh environment shows another screen after 1 of", {"step": unsteady_step}),
    ("screenshot", "not a PNG: it starts with b'GIF89a'", {"screenshot": no_picture}),
    ("screenshot", "1080 × 240 pixels, the observation says (1080, 2400)", {"screenshot": small_picture}),
    ("screenshot", "raised: NotImplementedError: marks", {"screenshot": unmarkable}),
    ("score", "score 2.0, allowed: 0 to 1", {"score": lambda self: 2.0}),
    ("score", "asking for the score changes what follows", {"score": counting_score}),
]


@pytest.mark.parametrize(("claim", "words", "methods"), BROKEN)
def test_a_broken_promise_is_caught(claim, words, methods):
    report = check(broken(**methods), timeout_s=0.1 if words == "timed out" else 60)
    failed = {finding.claim: finding.detail for finding in report.failures}
    assert claim in failed, report.failures
    assert failed[claim].startswith("seed ")
    assert words in failed[claim]
    assert not report.ok


class Nothing:
    """A world without extras."""

    def __init__(self, suite):
        self.inner = Counter(suite)
        self.reset, self.step, self.close = self.inner.reset, self.inner.step, self.inner.close


def test_a_claim_without_the_method_is_caught():
    report = check(broken(suite={"world": Nothing}))
    details = {finding.claim: finding.detail for finding in report.failures}
    assert details == {
        "fork": "seed 0: claims fork, but the environment has no fork()",
        "oracle": "seed 0: claims oracle, but the environment has no oracle()",
        "score": "seed 0: claims score, but the environment has no score()",
        "screenshot": "seed 0: claims screenshot, but the environment has no screenshot()",
    }


def accepts_anything(self, name, seed):
    return CounterSuite.instance(self, "Count", seed)


def key_error(self, name, seed):
    return {"Count": CounterSuite.instance(self, "Count", seed)}[name]


def growing_tasks(self):
    return [TaskInfo(name="Count", max_steps=12 + next(ticker), oracle=True)]


@pytest.mark.parametrize(
    ("words", "suite"),
    [
        ("must raise UnknownName, it was accepted", {"instance": accepts_anything}),
        ("must raise UnknownName, it raised: KeyError", {"instance": key_error}),
        ("two tasks have the same name", {"tasks": lambda self: CounterSuite.tasks(self) * 2}),
        ("has no tasks", {"tasks": lambda self: []}),
        ("tasks() changes between two calls", {"tasks": growing_tasks}),
        ("has no version", {"version": ""}),
        ("claims flying, known: fork, oracle", {"capabilities": frozenset({"flying"})}),
        ("tasks have solutions, but oracle is not claimed", {"capabilities": frozenset()}),
    ],
)
def test_a_broken_suite_is_caught(words, suite):
    report = check(broken(suite=suite), seeds=())
    assert [words in finding.detail for finding in report.failures] == [True], report.failures
    assert report.failures[0].task == SUITE


def test_instances_that_share_a_fork_only_through_the_original_are_caught():
    """A fork that changes the original behind its back, in a way that the twin sees too."""

    async def step(self, action):
        self.shared["count"] += self.loner
        self.state["count"] = self.shared["count"]
        return await Counter.step(self, action)

    async def fork(self):
        twin = await Counter.fork(self)
        twin.shared, twin.loner = self.shared, int(getattr(self, "forked", False))
        self.forked = True
        return twin

    async def reset(self, task):
        self.shared, self.loner = {"count": 0}, 0
        return await Counter.reset(self, task)

    report = check(broken(step=step, fork=fork, reset=reset))
    assert "stepping a fork changed the original" in str(report.failures)


# ------------------------------------------------------------------------------------------- fresh process

PROCESS_BOUND = """
import os
from collab.testing.corridor import CorridorSuite

class PidSuite(CorridorSuite):
    def instance(self, name, seed):
        return super().instance(name, seed)

    async def open(self):
        print("chatter")
        environment = await super().open()
        inner = environment.reset
        async def reset(task):
            observation = await inner(task)
            from dataclasses import replace
            return replace(observation, text=observation.text + str(os.getpid()))
        environment.reset = reset
        return environment

class PickySuite(CorridorSuite):
    def __init__(self, *, word="none"):
        super().__init__()
        if word == "boom":
            raise RuntimeError("no such word")
"""


@pytest.fixture
def outside(tmp_path, monkeypatch):
    (tmp_path / "process_bound.py").write_text(PROCESS_BOUND)
    monkeypatch.syspath_prepend(tmp_path)
    import process_bound

    return process_bound


def test_what_depends_on_the_process_is_caught(outside):
    report = check(outside.PidSuite(), options={}, tasks=["TypeWord"])
    assert [(f.task, f.claim) for f in report.failures] == [("TypeWord", FRESH_PROCESS)] * 2
    assert report.failures[0].detail.startswith("seed 0: a fresh process shows another screen after 0 of ")


def test_a_suite_that_cannot_be_made_again_is_caught(outside):
    report = check(outside.PickySuite(), options={"word": "boom"}, tasks=["TypeWord"])
    assert [f.detail for f in report.failures] == [
        "a fresh process could not rebuild the episode: RuntimeError: no such word"
    ]


def test_no_environment_is_left_open():
    suite = CorridorSuite()
    check(suite)
    assert suite.active == 0


def test_web_suites_are_held_to_the_same():
    def look(self):
        return replace(Counter.look(self), space="web")

    def do(self, action):
        pass

    async def step(self, action):
        result = await Counter.step(self, None if action is None or action.type != "finish" else DONE)
        return result

    suite = broken(suite={"space": WEB, "capabilities": frozenset({"deterministic"})}, look=look, step=step)
    suite.tasks = lambda: [TaskInfo(name="Count", max_steps=12)]
    report = check(suite)
    assert report.ok, report.failures


def test_a_report_can_be_written_as_json():
    from dataclasses import asdict

    report = check(CorridorSuite(), tasks=["TypeWord"], seeds=(0,), junk_steps=3)
    assert json.loads(json.dumps(asdict(report)))["label"] == "fake[corridor]"


def test_a_claim_can_be_run_by_itself():
    info = CounterSuite().tasks()[0]
    claim = {name: check for name, _, check in CLAIMS}["oracle"]
    subject = Subject(suite=CounterSuite(), info=info, seed=0, junk_steps=3)
    assert asyncio.run(claim(subject)) == "solved in 3 of 12 steps"
    with pytest.raises(EnvironmentFailure, match="no solution"):
        asyncio.run(claim(replace_suite(subject, broken(oracle=silent_oracle))))


def replace_suite(subject, suite):
    return Subject(suite=suite, info=subject.info, seed=subject.seed, junk_steps=subject.junk_steps)
