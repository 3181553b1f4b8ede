"""Whole runs: made, killed, resumed, and the same as if nothing had happened."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

import collab
from collab.config import Budget
from collab.errors import ConfigError, ModelFailure, RunFormatError, UnknownName, UsageError
from collab.evaluation.report import read_run
from collab.library import find_builtin_root
from collab.rollout.run import resume
from collab.store.fingerprint import hash_run
from collab.store.run import RunStore
from collab.testing.corridor import CorridorSuite
from collab.testing.fake_server import FakeServer

DEFINITIONS = {
    "envs/corridor.yaml": "backend: fake\nbackends:\n  fake: {kind: fake}\n",
    "envs/slow.yaml": "backend: fake\nbackends:\n  fake: {kind: fake, options: {slow_s: 0.03}}\n",
    "envs/shaky.yaml": "backend: fake\nbackends:\n  fake: {kind: fake, options: {fail_at: 1, troubled: [TypeWord]}}\n",
    "envs/stopping.yaml": (
        "backend: fake\nbackends:\n  fake: {kind: fake, options: {slow_s: 0.03}}\nlimits: {stop_at_first_error: true}\n"
    ),
    "agents/erring.yaml": "kind: rehearsal\noptions: {error_base: 0.5}\n",
    "agents/actor.yaml": "kind: rehearsal\nsampling: {temperature: [0.1, 0.3, 0.5, 0.8]}\n",
    "agents/sure.yaml": "kind: rehearsal\noptions: {error_base: 0, error_slope: 0}\n",
}


@pytest.fixture
def library(tmp_path: Path) -> Path:
    for name, text in DEFINITIONS.items():
        path = tmp_path / "library" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "library"


def hash_of(path: Path) -> str:
    return hash_run(RunStore.open(path))


def play(library: Path, out: Path, **changes: object) -> collab.RunResult:
    arguments = {"env": "corridor", "agents": "actor", "graph": "team", "episodes": 6, "library": library, "out": out}
    return asyncio.run(collab.collect(**(arguments | changes)))


def test_a_run_is_read_back_as_it_was_played(library: Path, tmp_path: Path) -> None:
    result = play(library, tmp_path / "run")
    reader = RunStore.open(tmp_path / "run").open_reader()
    assert reader.status == "finished"
    assert reader.manifest.privileged
    assert reader.manifest.environment == "fake[corridor]"
    assert {one.id for one in reader.list_episodes()} == {trajectory.id for trajectory in result.trajectories}
    for trajectory in result.trajectories:
        assert reader.read_trajectory(trajectory.id) == trajectory
        for step in trajectory.steps:
            for utterance in step.matrix:
                assert reader.read_prefix(utterance.prompt.prefix)


def test_same_seed_same_run_whatever_the_concurrency(library: Path, tmp_path: Path) -> None:
    play(library, tmp_path / "one", concurrency=1)
    play(library, tmp_path / "many", concurrency=6)
    play(library, tmp_path / "other", seed=1)
    assert hash_of(tmp_path / "one") == hash_of(tmp_path / "many")
    assert hash_of(tmp_path / "one") != hash_of(tmp_path / "other")


def test_the_same_instances_are_played_with_other_luck(library: Path, tmp_path: Path) -> None:
    usual = play(library, tmp_path / "usual")
    other = play(library, tmp_path / "other", settings=["sampling_seed=1"])
    play(library, tmp_path / "again", settings=["sampling_seed=1"])
    assert [(one.id, one.task) for one in usual.trajectories] == [(one.id, one.task) for one in other.trajectories]
    first, second = (result.trajectories[0].steps[0].matrix for result in (usual, other))
    assert first.edges == second.edges
    assert all(one.seed != two.seed for one, two in zip(first, second, strict=True))
    assert hash_of(tmp_path / "usual") != hash_of(tmp_path / "other") == hash_of(tmp_path / "again")
    told = [str(RunStore.open(tmp_path / name).open_reader().manifest.seeds) for name in ("usual", "other")]
    assert told == ["0", "0 (sampled with 1)"]


def test_evaluation_draws_one_graph_per_task_whatever_the_team(library: Path, tmp_path: Path) -> None:
    def graphs(agents: str, out: str) -> dict[str, set[tuple[tuple[str, str], ...]]]:
        made = asyncio.run(
            collab.evaluate(
                env="corridor", agents=agents, graph="team", episodes=6, library=library, out=tmp_path / out
            )
        )
        found: dict[str, set[tuple[tuple[str, str], ...]]] = {}
        for trajectory in made.trajectories:
            found.setdefault(trajectory.task.name, set()).update(step.matrix.edges for step in trajectory.steps)
        return found

    ours, theirs = graphs("actor", "a"), graphs("sure", "b")
    assert ours == theirs
    assert all(len(edges) == 1 for edges in ours.values())
    assert len({frozenset(edges) for edges in ours.values()}) > 1


PLAY = """
import asyncio, sys, collab
asyncio.run(collab.collect(env=sys.argv[3], agents=sys.argv[4], graph="team", episodes=12, concurrency=3,
                           library=sys.argv[1], out=sys.argv[2]))
"""
RESUME = """
import asyncio, sys
from pathlib import Path
from collab.evaluation.report import read_run
from collab.rollout.run import resume
asyncio.run(resume(Path(sys.argv[2])))
"""


def recorded_steps(run: Path) -> int:
    if not (run / "run.json").exists():
        return 0
    with RunStore.open(run).open_reader() as reader:
        return sum(one.steps for one in reader.list_episodes())


def kill_when(run: Path, library: Path, moment: int, script: str, env: str = "slow", agents: str = "actor") -> None:
    """Start a process and kill it once the run holds `moment` steps."""
    process = subprocess.Popen([sys.executable, "-c", script, str(library), str(run), env, agents])
    deadline = time.monotonic() + 100
    while recorded_steps(run) < moment and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()


def check_resumed(killed: Path, whole: Path, library: Path) -> None:
    """Resume a killed run: it ends like the whole one, and nothing that was recorded is asked for again."""
    dead = RunStore.open(killed).open_reader()
    assert dead.status == "dead"
    before = {
        (one.id, step.index): step.matrix for one in dead.list_episodes() for step in dead.read_trajectory(one.id).steps
    }
    result = asyncio.run(resume(killed))
    assert result.stopped is None
    assert result.progress.steps > 0, "something was left to do"
    assert hash_of(killed) == hash_of(whole)
    after = RunStore.open(killed).open_reader()
    assert all(after.step(id, step).matrix == matrix for (id, step), matrix in before.items())


@pytest.mark.medium
@pytest.mark.parametrize("moments", [(4,), pytest.param((2, 15, 20), marks=pytest.mark.slow)])
def test_kill_and_resume_is_as_if_nothing_had_happened(library: Path, tmp_path: Path, moments: tuple[int, ...]) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    play(library, whole, env="slow", episodes=12, concurrency=3)
    for number, moment in enumerate(moments):
        kill_when(killed, library, moment, PLAY if number == 0 else RESUME)
    check_resumed(killed, whole, library)


@pytest.mark.slow
def test_a_killed_run_whose_episodes_end_with_their_first_error_continues(library: Path, tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    result = play(library, whole, env="stopping", agents="erring", episodes=12, concurrency=3)
    assert 0 < result.report.planned.successes < 12
    kill_when(killed, library, 6, PLAY, "stopping", "erring")
    check_resumed(killed, whole, library)


@pytest.mark.slow
def test_kill_and_resume_with_a_language_model(library: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from collab.testing.tiny_checkpoint import make_tiny_checkpoint

    checkpoint = make_tiny_checkpoint(tmp_path / "tiny", seed=2)
    options = f"{{path: {checkpoint}, determinism: exact}}"
    sampling = "{temperature: 1.0, max_tokens: 24}"
    (library / "agents" / "actor.yaml").write_text(f"kind: local\noptions: {options}\nsampling: {sampling}\n")
    (library / "graphs").mkdir()
    (library / "graphs" / "team.yaml").write_text("slots: [ada, ben]\nrounds: 2\nedges: [[ada, ben]]\n")
    (library / "envs" / "slow.yaml").write_text(DEFINITIONS["envs/slow.yaml"] + "limits: {max_steps: 2}\n")
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    play(library, whole, env="slow", episodes=12, concurrency=3)
    for script, moment in ((PLAY, 5), (RESUME, 12)):
        kill_when(killed, library, moment, script)
    check_resumed(killed, whole, library)


def test_broken_episodes_are_played_again(library: Path, tmp_path: Path) -> None:
    result = play(library, tmp_path / "run", env="shaky", agents="sure")
    assert result.report.broken == 2
    (library / "envs" / "shaky.yaml").write_text(DEFINITIONS["envs/corridor.yaml"])
    again = asyncio.run(resume(tmp_path / "run"))
    assert again.report.broken == 2, "the run keeps the configuration it was made with"
    assert again.progress.done == 6


def test_a_run_keeps_the_prompts_it_began_with(library: Path, tmp_path: Path) -> None:
    own = library / "prompts" / "default"
    shutil.copytree(find_builtin_root() / "prompts" / "default", own)
    (own / "header.jinja").write_text("{{ agent }}, {{ round }}/{{ rounds }}: speak as you always did.")
    play(library, tmp_path / "whole", env="slow")
    play(library, tmp_path / "run", env="slow", budget=Budget(minutes=0.002))
    shutil.rmtree(library)
    assert asyncio.run(resume(tmp_path / "run", budget=Budget(minutes=5))).stopped is None
    assert hash_of(tmp_path / "run") == hash_of(tmp_path / "whole")


def test_a_dead_server_burns_no_episode_and_loses_no_step(library: Path, tmp_path: Path) -> None:
    server = "{kind: openai, options: {model: tiny, base_url: 'URL', retries: 0, timeout_s: 2}}"
    silent = FakeServer(delay_s=0.01)
    with silent:
        (library / "agents" / "actor.yaml").write_text(server.replace("URL", silent.url))
        play(library, tmp_path / "run", env="slow", episodes=4, budget=Budget(tokens=300_000))
    before = recorded_steps(tmp_path / "run")
    assert before > 0
    with pytest.raises(ModelFailure, match="cannot be reached"):
        asyncio.run(resume(tmp_path / "run"))
    assert recorded_steps(tmp_path / "run") == before
    with RunStore.open(tmp_path / "run").open_reader() as reader:
        assert not any(one.error for one in reader.list_episodes())


def test_what_a_server_broke_continues_behind_its_last_step(library: Path, tmp_path: Path) -> None:
    (library / "agents" / "actor.yaml").write_text(
        'kind: scripted\noptions: {replies: [\'Action: {"action_type": "wait"}\'], fail_calls: [40]}\n'
    )
    broken = play(library, tmp_path / "run", env="corridor", episodes=1, tasks=["PressButton"])
    assert broken.report.broken == 1
    steps = recorded_steps(tmp_path / "run")
    assert steps == 3, "twelve calls a step"
    assert asyncio.run(resume(tmp_path / "run")).report.broken == 1, "its call 40 fails again, three steps later"
    assert recorded_steps(tmp_path / "run") == 6
    result = asyncio.run(resume(tmp_path / "run"))
    assert (result.report.broken, result.progress.steps) == (0, 2)
    with RunStore.open(tmp_path / "run").open_reader() as reader:
        assert reader.read_trajectory("PressButton/0") == result.trajectories[0]
        assert reader.problems == ()


def test_another_version_of_the_environment_is_refused(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(library, tmp_path / "run")
    monkeypatch.setattr(CorridorSuite, "version", "2")
    with pytest.raises(RunFormatError, match=r"recorded with fake\[corridor\] version 1, this is version 2"):
        asyncio.run(resume(tmp_path / "run"))


def test_other_weights_in_the_same_place_are_refused(library: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from collab.models.checkpoint_card import hash_weights
    from collab.testing.tiny_checkpoint import make_tiny_checkpoint

    checkpoint = make_tiny_checkpoint(tmp_path / "tiny", seed=2)
    before = hash_weights(checkpoint)
    (library / "agents" / "actor.yaml").write_text(
        f"kind: local\noptions: {{path: {checkpoint}}}\nsampling: {{max_tokens: 2}}\n"
    )
    (library / "envs" / "brief.yaml").write_text(DEFINITIONS["envs/corridor.yaml"] + "limits: {max_steps: 1}\n")
    play(library, tmp_path / "run", env="brief", episodes=1)
    assert read_run(tmp_path / "run").team["policies"]["ada"][1] == before
    asyncio.run(resume(tmp_path / "run"))
    shutil.rmtree(checkpoint)
    after = hash_weights(make_tiny_checkpoint(checkpoint, seed=3))
    with pytest.raises(
        RunFormatError, match=f"ada played with weights {before[:12]}, the same path holds {after[:12]}"
    ):
        asyncio.run(resume(tmp_path / "run"))


@pytest.mark.slow
def test_worlds_that_cannot_be_replayed_start_again_with_the_same_seed(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CorridorSuite, "capabilities", frozenset({"oracle"}))
    play(library, tmp_path / "whole", env="slow")
    play(library, tmp_path / "run", env="slow", budget=Budget(minutes=0.002))
    assert asyncio.run(resume(tmp_path / "run", budget=Budget(minutes=5))).stopped is None
    assert hash_of(tmp_path / "run") == hash_of(tmp_path / "whole")


def test_a_budget_that_nothing_counts_towards_is_refused(library: Path, tmp_path: Path) -> None:
    for budget, words in ((Budget(usd=1), "does not say what it costs"), (Budget(tokens=1), "does not count tokens")):
        with pytest.raises(UsageError, match=words):
            play(library, tmp_path / "run", budget=budget)
    assert not (tmp_path / "run").exists()


def test_a_rehearsal_is_refused_where_solutions_are_missing(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    infos = CorridorSuite().tasks()
    for known, move in ((["TypeWord"], "choose with --tasks tag:oracle"), ([], "choose other --agents: see collab")):
        found = [replace(info, oracle=info.name in known) for info in infos]
        monkeypatch.setattr(CorridorSuite, "tasks", lambda self, found=found: found)
        with pytest.raises(UsageError, match=rf"{3 - len(known)} of 3 tasks have none .*; {move}"):
            play(library, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_rehearsal_writes_no_summaries(library: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="summary: true needs a language model"):
        play(library, tmp_path / "run", settings=[f"agents.{slot}.summary=true" for slot in ("ada", "ben")])


def test_a_finished_run_is_left_as_it_is(library: Path, tmp_path: Path) -> None:
    first = play(library, tmp_path / "run")
    again = asyncio.run(resume(tmp_path / "run"))
    assert list(again.trajectories) == list(first.trajectories)
    assert again.progress.spent.calls == 0


def test_budget_stops_and_resume_finishes(library: Path, tmp_path: Path) -> None:
    play(library, tmp_path / "whole", env="slow")
    stopped = play(library, tmp_path / "run", env="slow", budget=Budget(minutes=0.002))
    assert stopped.stopped is not None
    assert RunStore.open(tmp_path / "run").open_reader().status == "stopped"
    result = asyncio.run(resume(tmp_path / "run", budget=Budget(minutes=5)))
    assert result.stopped is None
    assert hash_of(tmp_path / "run") == hash_of(tmp_path / "whole")


def test_a_world_that_cannot_be_opened_leaves_no_run_behind(library: Path, tmp_path: Path) -> None:
    kind = "fixtures.no_such_module:Nothing"
    (library / "envs" / "gone.yaml").write_text(f"backend: gone\nbackends: {{gone: {{kind: '{kind}'}}}}\n")
    with pytest.raises(ConfigError, match="cannot be imported"):
        play(library, tmp_path / "run", env="gone")
    assert not (tmp_path / "run").exists()


def test_usage_errors_start_nothing(library: Path, tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="did you mean TypeWord"):
        play(library, tmp_path / "run", tasks=["TypeWrd"])
    with pytest.raises(UnknownName, match="did you mean press"):
        play(library, tmp_path / "run", tasks=["tag:pres"])
    assert not (tmp_path / "run").exists()
    play(library, tmp_path / "run")
    with pytest.raises(UsageError, match="is there already"):
        play(library, tmp_path / "run")
    with pytest.raises(RunFormatError, match="not a run directory"):
        asyncio.run(resume(tmp_path / "nothing"))


def test_what_is_no_run_says_what_resumes_it(tmp_path: Path) -> None:
    for file, command in (("training.json", "collab train"), ("transfer.json", "collab transfer")):
        folder = tmp_path / command
        folder.mkdir()
        (folder / file).write_text("{}")
        with pytest.raises(RunFormatError, match=f"no run.json.*resumes it with: {command} --resume '{folder}'"):
            asyncio.run(resume(folder))


def test_agents_that_read_are_refused_where_there_are_only_pictures(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CorridorSuite, "pictures_only", "it is dark", raising=False)
    with pytest.raises(UsageError, match=r"shows pictures only, and agents/actor reads text: .*both.*; it is dark"):
        play(library, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert play(library, tmp_path / "run", settings=["agents.*.modality=both"]).trajectories


def test_every_task_is_played_once_unless_a_number_is_given(library: Path, tmp_path: Path) -> None:
    assert len(play(library, tmp_path / "all", episodes=None).trajectories) == 3
    assert len(play(library, tmp_path / "two", episodes=None, settings=["episodes=2"]).trajectories) == 2


def test_tags_choose_tasks(library: Path, tmp_path: Path) -> None:
    result = play(library, tmp_path / "run", tasks=["tag:press"])
    assert {trajectory.task.name for trajectory in result.trajectories} == {"PressButton", "OpenDoors"}


def test_secrets_of_the_environment_are_never_stored(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = 'sk-"ünsafe"-0123456789'
    monkeypatch.setenv("MY_SERVER_KEY", secret)
    (library / "agents" / "leaky.yaml").write_text(
        f"kind: scripted\noptions:\n  replies: ['Reason: the key is {secret}']\n  name: '{secret}'\n", encoding="utf-8"
    )
    play(library, tmp_path / "run", agents="leaky", episodes=1)
    stored = [path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert any(b"[redacted]" in content for content in stored)
    forms = [secret.encode(), b"0123456789", json.dumps(secret)[1:-1].encode()]
    assert not any(form in content for form in forms for content in stored)
