"""Episodes judged by a verifier: what is learned, paid, printed, and asked again after a stop or a kill."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import collab
from collab.algorithms.experience import write_experience
from collab.algorithms.turn_algorithm import OutcomeLabeller, read_counts
from collab.algorithms.turn_learner import read_rewards
from collab.cli.main import main
from collab.config import Budget
from collab.errors import NothingToLearn, UnknownName
from collab.library import Library
from collab.loop.continuous import read_arrivals
from collab.loop.interfaces import Labels, Rollout, load_algorithm
from collab.loop.loop import start
from collab.loop.phases import load_trajectories
from collab.loop.policy import build_first_policy
from collab.loop.record import EpochRecord, TrainingDir
from collab.loop.state import Halted, LoopState, TrainingProgress
from collab.rollout.run import read_stored_config
from collab.store.run import RunStore
from collab.testing.fake_server import FakeServer, Fault
from collab.testing.tiny_checkpoint import make_tiny_checkpoint
from collab.testing.toy_team import configure_toy_training, create_toy_team, write_library

EPISODES = 24
Says = Callable[[Mapping[str, Any]], str]
BC = load_algorithm("filtered-bc")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    tiny = make_tiny_checkpoint(tmp_path_factory.mktemp("bc") / "tiny", hidden=32, layers=1, context=4096)
    library = write_library(tmp_path_factory.mktemp("library"), tiny)
    assert library.own is not None
    (library.own / "agents/show.yaml").write_text("kind: rehearsal\noptions: {error_base: 0.6}\n")
    (library.own / "agents/wrong.yaml").write_text("kind: rules\nfalse_positives: 0.3\nfalse_negatives: 0.3\n")
    return library


@pytest.fixture
def rollout(library: Library, tmp_path: Path) -> Rollout:
    """Episodes of a first epoch, of which some are solved."""
    out = tmp_path / "training/epochs/1/rollout"
    play = collab.collect(
        env="corridor",
        agents="show",
        graph="pair",
        episodes=EPISODES,
        seed=3,
        library=library.own,
        out=out,
        progress=False,
    )
    asyncio.run(play)
    played = load_trajectories(out)
    assert 0 < sum(bool(one.success) for one in played) < len(played) == EPISODES
    return Rollout(
        number=1, run=read_stored_config(out), path=out, trajectories=played, reader=RunStore.open(out).open_reader()
    )


def write_judge(server: FakeServer, place: Path) -> str:
    options = {"model": "fake", "base_url": server.url, "api_key_env": "", "retries": 0}
    definition = {"kind": "text-judge", "options": {"model": {"kind": "openai", "options": options}}}
    (place / "mine.yaml").write_text(json.dumps(definition))
    return str(place / "mine.yaml")


def open_state(library: Library, rollout: Rollout, verifier: str, notes: list[str] | None = None) -> LoopState:
    """One more process that trains."""
    config = asyncio.run(configure_toy_training(library, f"verifier={verifier}", algorithm="filtered-bc"))
    return LoopState(
        config=config,
        folder=TrainingDir(rollout.path.parents[2]),
        library=library,
        budget=Budget(),
        stop=asyncio.Event(),
        device="cpu",
        progress=TrainingProgress(algorithm="filtered-bc", epochs=1),
        first=build_first_policy(config.run, config.method),
        note=(notes if notes is not None else []).append,
    )


def label(state: LoopState, rollout: Rollout) -> Labels:
    (labels,) = asyncio.run(OutcomeLabeller().label(state, [rollout]))
    return labels


def format_lines(labels: Labels) -> list[str]:
    record = EpochRecord(
        algorithm="filtered-bc", epoch=1, version=1, weights={}, hash="", metrics={**labels.metrics, "solved": 1}
    )
    return BC.format_lines(record)


def halt(state: LoopState, rollout: Rollout) -> str:
    with pytest.raises(Halted) as caught:
        label(state, rollout)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def get_outcomes(rollout: Rollout) -> dict[str, bool]:
    return {one.id: bool(one.success) for one in rollout.trajectories}


def get_text(body: Mapping[str, Any]) -> str:
    content = body["messages"][-1]["content"]
    return content if isinstance(content, str) else str(content[-1]["text"])


def count_asked(server: FakeServer) -> int:
    """Count the questions about episodes; a server is also asked what it supports."""
    return sum("Is the task done?" in get_text(body) for body in server.requests)


def see_truth(body: Mapping[str, Any]) -> str:
    """Judge the corridor rightly: solved is what was declared complete behind the last room."""
    return f"I looked.\nVerdict: {'On The end: declare the task complete' in get_text(body)}"


def test_the_rules_ask_and_write_nothing(library: Library, rollout: Rollout) -> None:
    assert label(open_state(library, rollout, "rules"), rollout) == Labels()
    assert label(open_state(library, rollout, "verifier-rules"), rollout) == Labels()
    assert not (rollout.path / "verdicts").exists()
    assert format_lines(Labels()) == ["solved   1"]


def test_inverted_verdicts_are_learned_kept_and_said(library: Library, rollout: Rollout) -> None:
    notes: list[str] = []
    first = label(open_state(library, rollout, "wrong", notes), rollout)
    outcomes = get_outcomes(rollout)
    wrong = {name for name, reward in first.value.items() if bool(reward) is not outcomes[name]}
    assert first.value.keys() == outcomes.keys()
    assert 0 < len(wrong) < EPISODES / 2
    (events,) = (rollout.path / "verdicts/training/events").glob("*.jsonl")
    stored = [json.loads(line) for line in events.read_text().splitlines()]
    assert {one["trajectory"] for one in stored if one["original"] is not None} == wrong
    assert read_rewards(rollout, first) == first.value
    calls = int(sum(first.value.values()))
    assert format_lines(first) == [
        f"verdicts wrong calls {calls} of 24 episodes successes; {len(wrong)} inverted on purpose; the "
        f"environment agrees in {EPISODES - len(wrong)}"
    ]
    assert notes == []
    # A resumed process draws nothing anew.
    assert label(open_state(library, rollout, "wrong"), rollout) == first
    assert list(first.hashes) == ["verifier"]


def test_a_stopped_labelling_pays_for_no_verdict_twice(library: Library, rollout: Rollout, tmp_path: Path) -> None:
    begun = []

    def say(body: Mapping[str, Any]) -> str:
        if "Is the task done?" in get_text(body):
            begun.append(body)
        if len(begun) == 7:
            state.stop.set()
        return see_truth(body)

    with FakeServer(says=say) as server:
        state = open_state(library, rollout, write_judge(server, tmp_path))
        assert "stop" in halt(state, rollout)
        before = count_asked(server)
        assert 7 <= before < EPISODES
        paid = OutcomeLabeller().read_spent(rollout.path)
        assert state.spent.calls == paid.calls == before
        again = open_state(library, rollout, write_judge(server, tmp_path))
        labels = label(again, rollout)
        assert count_asked(server) == EPISODES
    assert (again.spent.calls, labels.spent["verifier"].calls) == (EPISODES - before, EPISODES)
    assert {name: bool(one) for name, one in labels.value.items()} == get_outcomes(rollout)
    # All is known: the server is not needed any more.
    assert label(open_state(library, rollout, str(tmp_path / "mine.yaml")), rollout) == labels


def test_the_budget_of_a_training_limits_its_verdicts(library: Library, rollout: Rollout, tmp_path: Path) -> None:
    with FakeServer(says=see_truth) as server:
        state = open_state(library, rollout, write_judge(server, tmp_path))
        state.budget = Budget(tokens=3000)
        assert halt(state, rollout) == "budget used up: tokens=3000"
        before = count_asked(server)
        assert 0 < before < EPISODES
        assert state.spent.tokens >= 3000
        assert len(label(open_state(library, rollout, str(tmp_path / "mine.yaml")), rollout).value) == EPISODES
        assert count_asked(server) == EPISODES


@pytest.mark.parametrize(("reply", "cause"), [("All well.", "the reply has no verdict"), ("", "the reply is empty")])
def test_one_that_answers_prose_or_nothing_stops_the_epoch_in_one_line(
    library: Library, rollout: Rollout, tmp_path: Path, reply: str, cause: str
) -> None:
    with FakeServer(says=lambda body: reply) as server:
        mine = write_judge(server, tmp_path)
        told = halt(open_state(library, rollout, mine), rollout)
        assert told.startswith(f"verifier {mine} gave no verdict on 1")
        assert f" of 24 episodes, at most 10% may be missing: the last answer begins {reply!r} ({cause}); begin" in told
        assert told.endswith(f"or remove {rollout.path / 'verdicts/training'} to have this one asked again")


def test_a_few_missing_verdicts_are_left_out_and_counted_and_many_stop_it(
    library: Library, rollout: Rollout, tmp_path: Path
) -> None:
    silent: list[str] = []

    def say(body: Mapping[str, Any]) -> str:
        if len(silent) < 2 and "Is the task done?" in get_text(body):
            silent.append(get_text(body))
            return "Hm."
        return see_truth(body)

    with FakeServer(says=say) as server:
        labels = label(open_state(library, rollout, write_judge(server, tmp_path)), rollout)
    outcomes = get_outcomes(rollout)
    assert len(labels.value) == EPISODES - 2
    assert all(bool(reward) is outcomes[name] for name, reward in labels.value.items())
    assert "; 2 missing and not learned: 2 the reply has no verdict; the environment agrees in 22" in " ".join(
        format_lines(labels)
    )
    learned = write_experience(TrainingDir(rollout.path.parents[2]), 1, [(rollout, read_rewards(rollout, labels))])
    assert {one.trajectory for one in learned} == labels.value.keys()


def test_missing_verdicts_count_by_epoch_and_not_by_the_runs_that_it_takes_episodes_of(
    library: Library, rollout: Rollout, tmp_path: Path
) -> None:
    """One that plays on takes a few episodes of one run and more of another: 2 of 24 may be missing, 3 may not."""
    few, many = (replace(rollout, trajectories=part) for part in (rollout.trajectories[:4], rollout.trajectories[4:]))
    many = replace(many, path=tmp_path / "training/epochs/2/rollout")
    shutil.copytree(rollout.path, many.path)
    many = replace(many, reader=RunStore.open(many.path).open_reader())
    asked, silent, notes = list[str](), 2, list[str]()

    def say(body: Mapping[str, Any]) -> str:
        if "Is the task done?" in get_text(body):
            asked.append(get_text(body))
        return "Hm." if len(asked) <= silent else see_truth(body)

    with FakeServer(says=say) as server:
        state = open_state(library, rollout, write_judge(server, tmp_path), notes)
        found = asyncio.run(OutcomeLabeller().label(state, [few, many]))
        assert [len(labels.value) for labels in found] == [2, 20]
        assert [labels.spent["verifier"].calls for labels in found] == [4, 20], "each its own"
        assert notes == [], "verdicts that are all alike in one run choose among those of both"

        for one in (few, many):
            shutil.rmtree(one.path / "verdicts")
        asked.clear()
        silent = 3
        with pytest.raises(Halted) as caught:
            asyncio.run(OutcomeLabeller().label(state, [few, many]))
    assert "gave no verdict on 3 of 24 episodes, at most 10% may be missing" in str(caught.value)
    assert f"or remove {few.path / 'verdicts/training'} to have this one asked again" in str(caught.value)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_training_that_plays_on_learns_from_verdicts(finetuned: Path, tmp_path: Path) -> None:
    library = write_library(tmp_path / "library", finetuned)
    settings = ("collection=async", "steps=12", "held_out.before=false", "held_out.every=9", "run.concurrency=4")
    with FakeServer(says=see_truth) as server:
        toy = (*load_algorithm("distrl").toy, *settings, f"verifier={write_judge(server, tmp_path)}")
        config = asyncio.run(configure_toy_training(library, *toy, algorithm="distrl", seed=3))
        out, options = tmp_path / "run", {"allow_uncalibrated": True}
        result = asyncio.run(start(config, out, device="cpu", options=options))
        judged = count_asked(server)
    folder, arrived = TrainingDir(out), 0
    for record in result.records[1:]:
        arrivals = read_arrivals(folder.get_epoch(record.epoch))
        counts = read_counts(record)
        assert arrivals is not None
        assert counts is not None
        assert counts.judged == len(arrivals) == record.spent["verifier"].calls
        arrived += len(arrivals)
    assert judged == arrived, "no episode is asked about twice"


def test_a_server_that_is_down_is_asked_again_and_never_once_turns_are_chosen(
    library: Library, rollout: Rollout, tmp_path: Path
) -> None:
    down = [True]

    def refuse(body: Mapping[str, Any]) -> Fault | None:
        return Fault(status=400, message="not today") if down[0] and "Is the task done?" in get_text(body) else None

    with FakeServer(says=see_truth, refuses=refuse) as server:
        mine = write_judge(server, tmp_path)
        told = halt(open_state(library, rollout, mine), rollout)
        assert "at most 10% may be missing: it could not be asked about " in told
        assert "not today" in told
        assert "begin another training" not in told
        down[0] = False
        labels = label(open_state(library, rollout, mine), rollout)
        assert len(labels.value) == EPISODES
        # An episode that was left out is not learned later: what was chosen stays chosen.
        (rollout.path.parents[2] / "epochs/1/examples").mkdir()
        write_experience(TrainingDir(rollout.path.parents[2]), 1, [(rollout, read_rewards(rollout, labels))])
        (events,) = (rollout.path / "verdicts/training/events").glob("0002*.jsonl")
        lines = events.read_text().splitlines()
        events.write_text("\n".join(lines[:-1]) + "\n")
        asked = count_asked(server)
        assert len(label(open_state(library, rollout, mine), rollout).value) == EPISODES - 1
        assert count_asked(server) == asked


@pytest.mark.parametrize(("said", "number", "word"), [(True, 1, "successes"), (False, 2, "failures")])
def test_verdicts_that_are_all_alike_are_told_in_one_line(
    library: Library, rollout: Rollout, tmp_path: Path, said: bool, number: int, word: str
) -> None:
    notes: list[str] = []
    with FakeServer(says=lambda body: f"Verdict: {said}") as server:
        mine = write_judge(server, tmp_path)
        late = Rollout(
            number=number,
            run=rollout.run,
            path=rollout.path,
            trajectories=rollout.trajectories,
            reader=rollout.reader,
        )
        label(open_state(library, rollout, mine, notes), late)
    agreeing = sum(outcome is said for outcome in get_outcomes(rollout).values())
    assert notes == [
        f"epoch {number}: verifier {mine} calls all 24 episodes {word}, so its verdicts choose nothing; the "
        f"environment agrees in {agreeing}"
    ]


def test_a_first_rollout_that_is_called_failed_names_who_said_so(
    library: Library, rollout: Rollout, tmp_path: Path
) -> None:
    notes: list[str] = []
    with FakeServer(says=lambda body: "Verdict: False") as server:
        mine = write_judge(server, tmp_path)
        state = open_state(library, rollout, mine, notes)
        labels = label(state, rollout)
    with pytest.raises(NothingToLearn) as caught:
        asyncio.run(BC.learner.update(state, rollout, labels, state.first))
    assert f": 0 of 24 judged episodes solved by verdict of {mine}; steps without a turn to learn: " in str(
        caught.value
    )
    assert "begin another training with another verifier, another base (--agents)" in str(caught.value)
    assert notes == []


def test_one_that_was_not_measured_is_refused_before_anything_is_played(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    asked = ["train", "--algo", "digirl", "--env", "androidworld", "--graph", "single", "--agents", "early"]
    more = ["--device", "cpu", "--out", str(tmp_path / "run"), "--calibrations", str(tmp_path)]
    assert main([*asked, *more, "--set", "verifier=verifier-noisy"]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert "verifier verifier-noisy: not measured in androidworld[simphone" in said
    assert said.endswith("or let it judge all the same: --allow-uncalibrated")
    assert main([*asked, *more, "--set", "verifier=verifier-nosy"]) == 2
    assert "did you mean verifier-noisy" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_what_a_training_learned_from_is_told_on_its_card(library: Library) -> None:
    config = asyncio.run(configure_toy_training(library, "verifier=verifier-noisy", algorithm="filtered-bc"))
    assert BC.describe(config).endswith(
        "; episodes judged by verifier verifier-noisy (verdicts inverted on purpose, 0.1 of failures and 0.1 of "
        "successes)"
    )
    with pytest.raises(UnknownName, match="verifier"):
        asyncio.run(configure_toy_training(library, "verifier=nobody", algorithm="filtered-bc"))


def format_command(*words: str) -> list[str]:
    return [sys.executable, "-m", "collab.__main__", *words]


def ask(*words: str) -> str:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(format_command(*words), capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_training_judged_by_a_model_is_killed_between_verdicts_and_resumed(tmp_path: Path) -> None:
    library = create_toy_team(tmp_path / "toy")
    assert library.own is not None
    settings = ("episodes=12", "epochs=1", "updates=2", "held_out.episodes=2", "rl.context=2048", "rl.batch_rows=4")
    easy = "run.environment.backends.fake.options.declared=false"
    asked = ["--algo", "filtered-bc", "--env", "corridor", "--graph", "pair", "--agents", "toy", "--device", "cpu"]
    count = [0]

    def say(body: Mapping[str, Any]) -> str:
        count[0] += "Is the task done?" in get_text(body)
        return f"Verdict: {count[0] % 2 == 0}"

    with FakeServer(says=say, delay_s=0.3) as server:
        more = [*settings, "steps=null", easy, "run.concurrency=1", f"verifier={write_judge(server, tmp_path)}"]
        asked += ["--library", str(library.own), *(word for one in more for word in ("--set", one))]
        planned = ask("train", *asked, "--plan")
        assert "12 to 12 of the verifier" in planned
        assert "verifying unknown" in planned
        assert server.requests == []
        out = tmp_path / "bc"
        begin = format_command("train", *asked, "--allow-uncalibrated", "--out", str(out))
        dying = subprocess.Popen(begin, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        events = out / "epochs/1/rollout/verdicts/training/events"
        while sum(len(one.read_text().splitlines()) for one in events.glob("*.jsonl")) < 4:
            assert dying.poll() is None, "it ended before it was killed"
            time.sleep(0.02)
        dying.send_signal(signal.SIGKILL)
        dying.wait()
        assert 4 <= count_asked(server) < 12
        told = json.loads(ask("train", "--resume", str(out), "--json"))
        # At most the verdict on its way was lost.
        assert count_asked(server) <= 13
    epoch = told["epochs"][1]
    assert list(epoch["hashes"]) == ["rollout", "verifier", "examples", "weights", "evaluation"]
    assert epoch["spent"]["verifier"]["calls"] == 12
    counts = epoch["metrics"]["verdicts"]
    remembered = json.loads((out / "epochs/1/examples/experience.json").read_text())
    lines = [json.loads(line) for one in events.glob("*.jsonl") for line in one.read_text().splitlines()]
    verdicts = {one["trajectory"]: one["success"] for one in lines if "success" in one}
    assert {one["trajectory"]: bool(one["reward"]) for one in remembered} == verdicts
    assert epoch["metrics"]["solved"] == counts["successes"] == sum(verdicts.values())
    shown = ask("runs", "show", str(out))
    assert f"mine.yaml calls {counts['successes']} of 12 episodes successes; the environment agrees in" in shown
    # Success that is not learned from stays the environment's.
    assert epoch["played"]["successes"] == sum(bool(one.success) for one in load_trajectories(out / "epochs/1/rollout"))
    ask("export", f"{out}@last", "--out", str(tmp_path / "exported"))
    assert "episodes judged by verifier" in (tmp_path / "exported/README.md").read_text()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_killed_training_by_inverted_verdicts_ends_like_an_undisturbed_one() -> None:
    more = ("--algo", "filtered-bc", "--set", "verifier=verifier-noisy", "--quick", "--seed", "2")
    told = ask("verify-resume", *more)
    assert "the same: killed 2 times" in told
    assert "verifier" in told
