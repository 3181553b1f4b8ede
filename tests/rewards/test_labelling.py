"""Many steps are labelled at once, each once, also after a failure, a stop or a kill."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from collab.config import Budget
from collab.errors import ConfigError, EnvironmentFailure, ModelFailure
from collab.library import find_builtin_root
from collab.models.openai import OpenAIModel
from collab.rewards.base import (
    ABSENT,
    NO_NUMBER,
    OUT_OF_RANGE,
    UNREAD,
    CellScore,
    CriticInput,
    Judgement,
    build_inputs,
    build_judgement,
)
from collab.rewards.labelling import LabellingProgress, label_cases
from collab.rewards.labels import LabelHead, LabelWriter, count_missing, read_labels
from collab.rewards.llm import TOO_LONG, LanguageCritic, read_critic_prompts
from collab.rewards.oracle import SolutionCritic
from collab.rewards.restore import StateRebuilder
from collab.store.rewards import CellReward, RewardMatrix
from collab.testing.corridor import CorridorEnvironment, CorridorSuite
from collab.testing.fake_server import FakeServer
from collab.testing.scripted import ScriptedModel
from collab.types import Trajectory
from collab.utils.concurrency import PATIENCE

HEAD = LabelHead(critic="test-1")


@pytest.fixture
def run(phone, tmp_path: Path) -> Path:  # type: ignore[no-untyped-def]
    shutil.copytree(phone[1], tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def found(phone) -> list[CriticInput]:  # type: ignore[no-untyped-def]
    suite, _, episodes = phone
    return [case for episode in episodes for case in build_inputs(episode, suite.space, StateRebuilder(suite))]


def label_into(
    run: Path, found: list[CriticInput], critic: Any, name: str = "one", **options: Any
) -> LabellingProgress:
    with LabelWriter(run, name, HEAD) as writer:
        return asyncio.run(label_cases(found, critic, writer, **options))


@dataclass
class Wrapped:
    """A critic that notes what it is asked, and misbehaves on demand."""

    name: str = "wrapped"
    version: str = "1"
    asked: list[tuple[str, int]] = field(default_factory=list)
    at_once: int = 0
    most_at_once: int = 0
    trouble: Any = lambda number: None

    async def judge(self, case: CriticInput) -> Judgement:
        self.asked.append(case.key)
        self.at_once += 1
        self.most_at_once = max(self.at_once, self.most_at_once)
        try:
            await asyncio.sleep(0)
            self.trouble(len(self.asked) - 1)
            return await SolutionCritic().judge(case)
        finally:
            self.at_once -= 1


def test_a_run_is_labelled_whole_and_only_once(run: Path, found: list[CriticInput]) -> None:
    first = label_into(run, found, SolutionCritic())
    assert (first.judged, first.known, first.failed, first.stopped) == (len(found), 0, 0, None)
    labels = read_labels(run, "one")
    rewards = [one for judgement in labels.judged.values() for one in judgement.rewards.rewards]
    assert len(rewards) == 6 * len(found)
    assert first.cells == sum(one.score is not None for one in rewards)
    assert first.rewarded == sum(one.reward == 1 for one in rewards) > 0
    assert first.missing == count_missing(labels)
    assert set(first.missing) <= {UNREAD}
    critic = Wrapped()
    again = label_into(run, found, critic)
    assert (again.known, again.judged, critic.asked) == (len(found), 0, [])


def test_a_reward_is_a_score_above_the_threshold(run: Path, found: list[CriticInput]) -> None:
    """The oracle says 0, one half or 1."""
    low, usual, high = (
        label_into(run, found, SolutionCritic(), f"at{at}", so_far=LabellingProgress(threshold=at))
        for at in (0.4, 0.5, 1)
    )
    assert low.rewarded > usual.rewarded > high.rewarded == 0
    assert low.cells == high.cells


def test_so_many_are_judged_at_once_and_no_more(run: Path, found: list[CriticInput]) -> None:
    critic = Wrapped()
    label_into(run, found, critic, concurrency=3)
    assert critic.most_at_once == 3
    assert len(critic.asked) == len(set(critic.asked)) == len(found)


class OfFour(CorridorSuite):
    """Four corridors and no more, and as many copies of them; who finds none for a second gets none."""

    most_environments = 4

    def __init__(self) -> None:
        super().__init__(slow_s=0.002)
        self.places = [asyncio.Semaphore(self.most_environments) for _ in ("corridors", "copies")]
        self.most_open = 0

    async def take(self, depth: int, state: Any = None) -> CorridorEnvironment:
        try:
            await asyncio.wait_for(self.places[depth].acquire(), 1)
        except TimeoutError:
            raise EnvironmentFailure("all 4 corridors are in use") from None
        if not depth:
            self.most_open = max(self.most_open, self.most_environments - self.places[0]._value)
        return OneOfFour(self, state, depth)

    async def open(self) -> CorridorEnvironment:
        return await self.take(0)


class OneOfFour(CorridorEnvironment):
    """Makes room when it is closed."""

    def __init__(self, suite: OfFour, state: Any, depth: int) -> None:
        super().__init__(suite, state)
        self._depth = depth

    async def fork(self) -> CorridorEnvironment:
        assert isinstance(self._suite, OfFour)
        return await self._suite.take(self._depth + 1, self._state)

    async def close(self) -> None:
        assert isinstance(self._suite, OfFour)
        if self._open:
            self._suite.places[self._depth].release()
        await super().close()


def test_as_many_states_are_judged_at_once_as_there_are_environments(
    corridor: tuple[CorridorSuite, Path, list[Trajectory]], tmp_path: Path
) -> None:
    """More judges than environments: all are used, and none fails for want of one."""
    _, run, episodes = corridor
    shutil.copytree(run, tmp_path / "run")
    suite = OfFour()
    states = StateRebuilder(suite)
    found = [case for episode in episodes for case in build_inputs(episode, suite.space, states)]
    assert len(found) > 4
    told = label_into(tmp_path / "run", found, SolutionCritic(), concurrency=16)
    assert (told.judged, told.failed, suite.active, suite.most_open) == (len(found), 0, 0, 4)


def test_a_case_that_fails_is_asked_about_again_and_its_siblings_are_not(run: Path, found: list[CriticInput]) -> None:
    def trouble(number: int) -> None:
        if number in (1, 2):
            raise ModelFailure("the server is gone") if number == 1 else KeyError("a critic's own mistake")

    first = label_into(run, found, Wrapped(trouble=trouble), concurrency=1)
    assert (first.judged, first.failed, first.stopped) == (len(found) - 2, 2, None)
    failed = read_labels(run, "one").failed
    assert [(one.step, one.error) for one in failed.values()] == [(found[n].step, "ModelFailure") for n in (1, 2)]
    assert "KeyError" in failed[found[2].key].message
    critic = Wrapped()
    label_into(run, found, critic)
    assert critic.asked == [found[1].key, found[2].key]
    assert not read_labels(run, "one").failed


def test_failures_in_a_row_stop_it(run: Path, found: list[CriticInput]) -> None:
    def trouble(number: int) -> None:
        raise ModelFailure("the server is gone")

    many = [replace(found[0], step=step) for step in range(3 * PATIENCE)]
    critic = Wrapped(trouble=trouble)
    stopped = label_into(run, many, critic, concurrency=1)
    assert (len(critic.asked), stopped.failed) == (PATIENCE, PATIENCE)
    assert stopped.stopped == "10 failures in a row, the last: the server is gone"


def test_failures_in_a_row_are_counted_over_the_calls_that_count_on(run: Path, found: list[CriticInput]) -> None:
    """A rollout is judged a few steps at a time: a critic that is down is not asked about all of it."""

    def trouble(number: int) -> None:
        if number != 3:
            raise ModelFailure("the server is gone")

    critic, told = Wrapped(trouble=trouble), LabellingProgress()
    many = [replace(found[0], step=step) for step in range(3 * PATIENCE)]
    many[3] = found[3]
    for begin in range(0, len(many), 4):
        label_into(run, many[begin : begin + 4], critic, concurrency=1, so_far=told)
    assert (len(critic.asked), told.judged, told.failed) == (4 + PATIENCE, 1, 3 + PATIENCE)
    assert str(told.stopped).startswith(f"{PATIENCE} failures in a row")


def test_who_plays_the_rollout_can_end_its_judging(run: Path, found: list[CriticInput]) -> None:
    """`stopped` is set from outside while a step is judged: no further one is asked about, and the reason stays."""

    def trouble(number: int) -> None:
        if number == 2:
            told.stopped = "the device is gone"

    critic, told = Wrapped(trouble=trouble), LabellingProgress()
    label_into(run, [replace(found[0], step=step) for step in range(12)], critic, concurrency=1, so_far=told)
    assert (len(critic.asked), told.judged, told.stopped) == (3, 3, "the device is gone")


@pytest.mark.parametrize(
    ("score", "cause"),
    [
        (1.7, OUT_OF_RANGE),
        (-3, OUT_OF_RANGE),
        (float("inf"), OUT_OF_RANGE),
        (10**400, OUT_OF_RANGE),
        (float("nan"), NO_NUMBER),
        ("good", NO_NUMBER),
        (True, NO_NUMBER),
        (None, ABSENT),
    ],
)
def test_what_is_no_score_is_missing_whoever_made_it(
    run: Path, found: list[CriticInput], score: Any, cause: str
) -> None:
    class Odd:
        name, version = "odd", "1"

        async def judge(self, case: CriticInput) -> Judgement:
            rewards = tuple(CellReward(cell=cell.cell, score=score) for cell in case.matrix)
            matrix = RewardMatrix(trajectory=case.trajectory, step=case.step, critic="odd-1", rewards=rewards)
            return Judgement(case=case.digest, rewards=matrix)

    told = label_into(run, found[:1], Odd())
    assert told.missing == {cause: len(found[0].matrix.utterances)}
    (judgement,) = read_labels(run, "one").judged.values()
    assert {one.score for one in judgement.rewards.rewards} == {None}


def test_a_step_about_which_no_model_was_asked_does_not_break_a_row_of_silence(
    run: Path, found: list[CriticInput]
) -> None:
    """It is too long, say: nothing was said about it, neither a score nor prose."""
    many = [replace(found[0], step=step) for step in range(3 * PATIENCE)]
    texts = read_critic_prompts(find_builtin_root() / "prompts" / "critic")
    talks = LanguageCritic(model=ScriptedModel(replies=["I like all of these."]), texts=texts, seed=0)

    class Narrow:
        name, version = talks.name, talks.version

        async def judge(self, case: CriticInput) -> Judgement:
            too_long = {cell.cell: CellScore.none(TOO_LONG) for cell in case.matrix if cell.action is not None}
            return await talks.judge(case) if case.step % 2 else build_judgement(case, self, too_long)

    told = label_into(run, many, Narrow(), concurrency=1)
    assert (told.silent_in_a_row, told.judged) == (PATIENCE, 2 * PATIENCE)
    assert told.stopped is not None


def test_answers_without_a_score_in_a_row_stop_it_and_stay(run: Path, found: list[CriticInput]) -> None:
    """A critic behind a model that talks: what it said was paid, and is kept; a score in between begins anew."""
    many = [replace(found[0], step=step) for step in range(3 * PATIENCE)]
    texts = read_critic_prompts(find_builtin_root() / "prompts" / "critic")
    names = {cell.cell.agent for cell in found[0].matrix}
    rounds = range(1, found[0].matrix.rounds + 1)
    scored = json.dumps([{"agent": name, "round": number, "score": 0.9} for name in names for number in rounds])
    prose = "I like all of these proposals."
    model = ScriptedModel(replies=[*[prose] * 4, scored, *[prose] * 30])
    told = label_into(run, many, LanguageCritic(model=model, texts=texts, seed=0), concurrency=1)
    judged = list(read_labels(run, "one").judged.values())
    assert [one.silent for one in judged] == [True] * 4 + [False] + [True] * PATIENCE
    assert told.stopped == (
        f"no score in {PATIENCE} judgements in a row; "
        f"the last answer begins {prose!r} (the critic: the reply is not JSON); "
        f"they are kept: remove {run / 'labels' / 'one'} to have this critic asked about them again"
    )
    again = label_into(run, many, LanguageCritic(model=model, texts=texts, seed=0), concurrency=1)
    assert (again.known, again.judged) == (5 + PATIENCE, PATIENCE)


def test_a_misfit_is_raised_plainly_and_what_was_judged_stays(run: Path, found: list[CriticInput]) -> None:
    def trouble(number: int) -> None:
        if number == 3:
            raise ConfigError("the critic does not fit")

    with pytest.raises(ConfigError, match="does not fit"):
        label_into(run, found, Wrapped(trouble=trouble), concurrency=1)
    assert len(read_labels(run, "one").judged) == 3


def test_a_judgement_on_something_else_does_not_count(run: Path, found: list[CriticInput]) -> None:
    @dataclass
    class Confused(Wrapped):
        async def judge(self, case: CriticInput) -> Judgement:
            whole = await SolutionCritic().judge(case)
            rewards = replace(whole.rewards, rewards=whole.rewards.rewards[1:])
            return replace(whole, rewards=rewards)

    result = label_into(run, found[:2], Confused())
    assert (result.judged, result.failed) == (0, 2)
    assert "not about this step with its 6 cells" in read_labels(run, "one").failed[found[0].key].message


def test_a_stop_ends_it_behind_what_is_in_flight(run: Path, found: list[CriticInput]) -> None:
    stop = asyncio.Event()
    critic = Wrapped(trouble=lambda number: stop.set() if number == 2 else None)
    stopped = label_into(run, found, critic, concurrency=1, stop=stop)
    assert (stopped.judged, stopped.stopped) == (3, "stopped on request")
    assert label_into(run, found, Wrapped()).judged == len(found) - 3


# ----------------------------------------------------------------------------------------------- a model over HTTP


def says(body: Mapping[str, Any]) -> str:
    asked = [json.loads(line) for line in re.findall(r'^\{"agent".*\}$', body["messages"][-1]["content"], re.MULTILINE)]
    return json.dumps({"scores": [{**one, "score": len(one["action"]) % 10 / 9, "reason": "so"} for one in asked]})


def questions(server: FakeServer) -> int:
    return sum("Proposed for the next step" in body["messages"][-1]["content"] for body in server.requests)


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret-0123456789")


def ask(
    server: FakeServer, run: Path, found: list[CriticInput], name: str = "one", **options: Any
) -> LabellingProgress:
    async def go() -> LabellingProgress:
        model = OpenAIModel(model="fake", base_url=server.url, retries=0, usd_per_million_prompt=1.0)
        critic = LanguageCritic(
            model=model, texts=read_critic_prompts(find_builtin_root() / "prompts" / "critic"), seed=2
        )
        try:
            with LabelWriter(run, name, HEAD) as writer:
                return await label_cases(found, critic, writer, **options)
        finally:
            await model.close()

    return asyncio.run(go())


def test_what_a_model_cost_is_counted_and_a_budget_holds(run: Path, found: list[CriticInput]) -> None:
    with FakeServer(says=says) as server:
        stopped = ask(server, run, found, concurrency=1, budget=Budget(tokens=1500))
        assert stopped.stopped is not None
        assert stopped.stopped.startswith("budget used up: ")
        spent = stopped.spent
        assert spent.calls == questions(server) < len(found)
        assert spent.prompt_tokens + spent.completion_tokens >= 1500
        rest = ask(server, run, found)
        assert rest.stopped is None
        assert rest.known == spent.calls
        assert questions(server) == len(found)


def test_answers_beside_a_call_that_failed_are_counted_and_the_case_is_not_judged(
    run: Path, found: list[CriticInput]
) -> None:
    model = ScriptedModel(replies=["{}"], fail_calls=[0])
    critic = LanguageCritic(
        model=model,
        texts=read_critic_prompts(find_builtin_root() / "prompts" / "critic"),
        per="round",
        context_tokens=50_000,
    )
    told = label_into(run, found[:1], critic)
    assert (told.judged, told.failed, told.failed_in_a_row) == (0, 1, 1)
    assert (told.spent.calls, model.calls) == (1, 2)
    assert told.spent.prompt_tokens == model.meter.snapshot().prompt_tokens > 0
    assert [(one.error, one.spent) for one in read_labels(run, "one").failed.values()] == [("ModelFailure", told.spent)]
    label_into(run, found[:1], critic)
    labels = read_labels(run, "one")
    assert (len(labels.failed), list(labels.lost)) == (0, [told.spent])


CHILD = """
import asyncio, sys
from pathlib import Path
from collab.rewards.base import build_inputs
from collab.rewards.labelling import label_cases
from collab.rewards.labels import LabelHead, LabelWriter
from collab.rewards.llm import LanguageCritic
from collab.rewards.llm import read_critic_prompts
from collab.envs.grammar import MOBILE
from collab.library import find_builtin_root
from collab.models.openai import OpenAIModel
from collab.store.run import RunStore

run, url = Path(sys.argv[1]), sys.argv[2]
with RunStore.open(run).open_reader() as reader:
    found = [case for episode in reader.iterate_trajectories() for case in build_inputs(episode, MOBILE)]
critic = LanguageCritic(
    model=OpenAIModel(model="fake", base_url=url, retries=0),
    texts=read_critic_prompts(find_builtin_root() / "prompts" / "critic"),
    seed=2,
)
with LabelWriter(run, "one", LabelHead(critic="test-1")) as writer:
    asyncio.run(label_cases(found, critic, writer, concurrency=2))
"""


@pytest.mark.slow
def test_after_a_kill_nothing_that_was_judged_is_asked_again(run: Path, found: list[CriticInput]) -> None:
    with FakeServer(says=says, delay_s=0.05) as server:
        child = subprocess.Popen([sys.executable, "-c", CHILD, str(run), server.url])
        try:
            deadline = time.monotonic() + 60
            while questions(server) < len(found) // 2 and time.monotonic() < deadline:
                assert child.poll() is None, "it ended before it was killed"
                time.sleep(0.01)
        finally:
            child.send_signal(signal.SIGKILL)
            child.wait()
        kept = read_labels(run, "one").judged
        asked = questions(server)
        assert 0 < len(kept) <= asked <= len(kept) + 2  # what was in flight is lost, and nothing else
        rest = ask(server, run, found)
        assert (rest.known, rest.judged) == (len(kept), len(found) - len(kept))
        assert questions(server) == asked + rest.judged
        ask(server, run, found, name="whole")
    one, whole = (read_labels(run, name).judged for name in ("one", "whole"))
    assert {key: judgement.rewards for key, judgement in one.items()} == {
        key: judgement.rewards for key, judgement in whole.items()
    }
    assert {key: judgement.calls[0].prompt for key, judgement in one.items() if judgement.calls} == {
        key: judgement.calls[0].prompt for key, judgement in whole.items() if judgement.calls
    }
