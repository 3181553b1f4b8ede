"""Training that begins with recorded runs: what is learned, what is refused, and that it goes on where it stopped."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import collab
from collab.algorithms import turn_learner
from collab.cli.main import main
from collab.config import override
from collab.library import Library
from collab.loop.config import RecordedInput
from collab.loop.interfaces import load_algorithm, load_method
from collab.loop.phases import load_trajectories
from collab.loop.record import TrainingDir
from collab.loop.recorded import list_doubts
from collab.loop.state import Halted
from collab.store.reader import RunReader
from collab.store.run import RunStore
from collab.testing.corridor import CorridorSuite
from collab.testing.fake_server import FakeServer
from collab.testing.toy_team import configure_toy_training, write_library
from collab.trainers.rl.turns import read_lesson
from collab.types import Trajectory, Utterance

EASY = "environment.backends.fake.options.declared=false"
SMALL = (
    *("epochs=2", "episodes=2", "steps=null", "updates=2", "held_out.episodes=2", "determinism=exact"),
    *("exploration_temperatures=null", "rl.context=2048", "rl.batch_rows=4", f"run.{EASY}"),
)
VALUES = ("curriculum.top=0.5", "curriculum.least=2", "values.hidden=8")
Train = Callable[..., int]


@pytest.fixture(scope="module")
def library(finetuned: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    own = write_library(tmp_path_factory.mktemp("toy"), finetuned).own
    assert own is not None
    (own / "agents/show.yaml").write_text("kind: rehearsal\noptions: {error_base: 0.6}\n")
    (own / "agents/guide.yaml").write_text("kind: rehearsal\noptions: {error_base: 0.2, error_slope: 0}\n")
    (own / "graphs/trio.yaml").write_text("slots: [ada, ben, cyd]\nrounds: 1\n")
    return own


def record(library: Path, out: Path, *, seed: int = 5, episodes: int = 6, agents: str = "toy", **choices: str) -> Path:
    asked = {"env": "corridor", "graph": "single", "agents": agents, "library": library, "settings": [EASY], **choices}
    asyncio.run(collab.collect(**asked, episodes=episodes, seed=seed, out=out, progress=False))  # type: ignore[arg-type]
    return out


@pytest.fixture(scope="module")
def played(library: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two runs, some of whose episodes are solved."""
    folder = tmp_path_factory.mktemp("played")
    return [record(library, folder / "one"), record(library, folder / "two", seed=6, episodes=3)]


@pytest.fixture
def train(library: Path) -> Train:
    def run(*words: object, algo: str = "filtered-bc", graph: str = "single", settings: tuple[str, ...] = ()) -> int:
        sets = [word for one in (*SMALL, *settings) for word in ("--set", one)]
        asked = ["--env", "corridor", "--graph", graph, "--agents", "toy", "--library", str(library), *sets]
        return main(["train", "--algo", algo, *asked, "--device", "cpu", *map(str, words)])

    return run


def offline(*runs: Path) -> list[str]:
    return [word for one in runs for word in ("--offline", str(one))]


def test_a_method_learns_all_recorded_steps_offline() -> None:
    bc, digirl = (load_algorithm(name) for name in ("filtered-bc", "digirl"))
    given = [
        RecordedInput(run="/a", hash="0", episodes=2, steps=10),
        RecordedInput(run="/b", hash="1", episodes=3, steps=20),
    ]
    own = bc.learn_recorded(override(load_method(bc), ["updates=7"]), given)
    assert (own.offline.steps, own.offline.updates) == (30, 7)  # type: ignore[attr-defined]
    kept = digirl.learn_recorded(load_method(digirl), given)
    assert (kept.offline.steps, kept.offline.updates) == (30, 80)  # type: ignore[attr-defined]
    new = digirl.learn_recorded(override(load_method(digirl), ["offline=null"]), given)
    assert new.offline.values.step == 100  # type: ignore[attr-defined]


@pytest.mark.slow
def test_epoch_1_learns_recorded_runs_and_plays_nothing(
    train: Train, played: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "bc"
    assert train(*offline(*played), "--out", out) == 0, capsys.readouterr().err
    shown = capsys.readouterr().out
    assert "epoch 1 | recorded" in shown
    assert "of 9 episodes" in shown
    folder = TrainingDir(out)
    first, second = (json.loads(folder.get_epoch(number).record.read_text()) for number in (1, 2))
    assert first["recorded"] == [str(one) for one in played]
    assert second["recorded"] == []
    assert not folder.get_epoch(1).rollout.exists()
    assert first["spent"]["rollout"]["calls"] == 0 < second["spent"]["rollout"]["calls"]
    assert first["played"]["episodes"] == 9
    assert first["metrics"]["solved"] == first["played"]["successes"] > 0
    experience = json.loads((folder.get_epoch(1).examples / "experience.json").read_text())
    assert {one["run"] for one in experience} == set(map(str, played))
    assert {one.run for one in read_lesson(folder.get_epoch(1).examples / "shared").turns} <= set(map(str, played))
    assert main(["runs", "show", str(out)]) == 0
    assert "recorded" in capsys.readouterr().out


@pytest.mark.slow
def test_demonstrations_are_imitated_and_named(
    train: Train, library: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Episodes in which a model looked at solutions; the offline phase is the whole training."""
    shown, out = record(library, tmp_path / "shown", agents="guide"), tmp_path / "bc"
    assert train(*offline(shown), "--out", out, settings=("epochs=1",)) == 0, capsys.readouterr().err
    said = capsys.readouterr()
    line = f"{shown}: a model in it looked at solutions; its episodes are learned as demonstrations"
    assert line in said.out + said.err
    (given,) = json.loads((out / "training.json").read_text())["config"]["recorded"]
    assert given["privileged"] is True
    solved = {one.id for one in load_trajectories(shown) if one.success}
    learned = {one.ref.trajectory for one in read_lesson(TrainingDir(out).get_epoch(1).examples / "shared").turns}
    assert learned
    assert learned <= solved


@pytest.mark.slow
def test_a_plan_counts_no_playing_in_epoch_1(
    train: Train, played: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(*offline(*played), "--plan", "--json", settings=("epochs=1", "held_out.before=false")) == 0
    found = json.loads(capsys.readouterr().out)
    steps = sum(_count_steps(one) for one in played)
    assert (found["episodes"], found["recorded"]) == (2, 9), "two episodes are measured, none is played"
    assert found["steps"] == {"low": steps, "high": steps}
    assert found["calls"] == {"low": 2, "high": 6}
    assert train("--plan", settings=("epochs=1",)) == 0
    assert "recorded" not in capsys.readouterr().out
    assert train(*offline(*played), "--plan", settings=("epochs=1",)) == 0
    assert "epoch 1 plays none and learns from 9 recorded ones" in capsys.readouterr().out


def _count_steps(run: Path) -> int:
    return sum(len(one.steps) for one in load_trajectories(run))


@pytest.mark.slow
def test_resume_wants_the_same_runs_and_ends_as_if_undisturbed(
    train: Train, library: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, out = record(library, tmp_path / "run", episodes=3), tmp_path / "digirl"

    def stop(*_: object) -> None:
        raise Halted("for now")

    with monkeypatch.context() as changed:
        changed.setattr(turn_learner, "finetune", stop)  # in epoch 1, behind its lesson
        assert train(*offline(run), "--out", out, algo="digirl", settings=VALUES) == 1
    capsys.readouterr()
    kept = tmp_path / "kept"
    shutil.copytree(run, kept)
    shutil.rmtree(run)
    assert read_refusal(capsys, "train", "--resume", str(out)) == (
        f"error: {run}: the training learns from this run, and it is not there; put back what was there, or begin "
        "another training"
    )
    record(library, run, seed=7, episodes=3)
    assert "has changed since the training began to learn from it: its run hash is" in read_refusal(
        capsys, "train", "--resume", str(out)
    )
    shutil.rmtree(run)
    shutil.copytree(kept, run)
    assert main(["train", "--resume", str(out)]) == 0
    resumed = capsys.readouterr().out.splitlines()[-1]
    assert train(*offline(run), "--out", tmp_path / "whole", algo="digirl", settings=VALUES) == 0
    assert resumed.startswith("hash")
    assert resumed == capsys.readouterr().out.splitlines()[-1]


@pytest.mark.slow
def test_what_cannot_be_learned_is_told(
    train: Train, library: Path, played: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Runs without a success, and more steps than the buffer holds."""
    hard = record(library, tmp_path / "hard", settings=[], episodes=2)  # solved only by a declaration, never made
    for algo, settings in (("filtered-bc", ()), ("digirl", VALUES)):
        assert train(*offline(hard), "--out", tmp_path / f"none-{algo}", algo=algo, settings=settings) == 1
        assert capsys.readouterr().err.splitlines()[-1] == (
            f"error: {hard}: there is nothing to learn from this first rollout: 0 of 2 judged episodes solved; steps "
            f"without a turn to learn: {_count_steps(hard)} not solved; begin another training with other runs "
            "(--offline)"
        )
    # An offline phase learns from all its episodes, however little later epochs remember.
    out = tmp_path / "some"
    assert train(*offline(*played), "--out", out, settings=("capacity=8", "epochs=1")) == 0
    found = json.loads(TrainingDir(out).get_epoch(1).record.read_text())
    assert "beyond_capacity" not in found["metrics"]
    assert found["metrics"]["remembered"]["steps"] == sum(map(_count_steps, played)) > 8


# ----------------------------------------------------------------------------------------------------- refusals


LISTS = """
from dataclasses import replace
from pathlib import Path

from collab.envs.base import TaskInfo
from collab.testing.corridor import CorridorSuite


class Lists(CorridorSuite):
    def __init__(self, *, files: list[str]) -> None:
        super().__init__(max_steps=2, declared=False)
        self.goals = {
            f"{Path(file).stem}-{number}": line
            for file in files
            for number, line in enumerate(Path(file).read_text().splitlines())
        }

    def tasks(self):
        return [TaskInfo(name=name, max_steps=2) for name in self.goals]

    def instance(self, name, seed):
        return replace(CorridorSuite().instance("PressButton", seed), name=name, goal=self.goals[name])
"""


def press(body: Mapping[str, Any]) -> str:
    """Press the button that the task names."""
    said = "\n".join(str(message["content"]) for message in body["messages"])
    label = re.findall(r"Press the button (\w+)", said)
    found = re.search(rf'button "{label[-1]}" \[(\d+)\]', said) if label else None
    return f'Reason: It is named.\nAction: {{"action_type": "click", "index": {found[1] if found else 1}}}'


@pytest.fixture(scope="module")
def server() -> Iterator[FakeServer]:
    """A model that gives no tokens and no log-probabilities, and does not say how its replies end."""

    def shape(answer: dict[str, Any]) -> dict[str, Any]:
        return {**answer, "choices": [{**one, "finish_reason": None} for one in answer["choices"]]}

    with FakeServer(says=press, shapes=shape) as running:
        yield running


@pytest.fixture(scope="module")
def definitions(server: FakeServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Definitions of one's own whose policy lies nowhere: what is refused is refused before it is looked at."""
    folder = tmp_path_factory.mktemp("definitions")
    own = write_library(folder / "library", folder / "none").own
    assert own is not None
    (own / "agents/served.yaml").write_text(f"kind: openai\noptions: {{model: fake, base_url: '{server.url}'}}\n")
    (own / "agents/show.yaml").write_text("kind: rehearsal\n")
    (own / "envs/corridor.yaml").write_text(
        "backend: fake\nbackends:\n  fake: {kind: fake, options: {max_steps: 2, declared: false}}\n"
        "tasks: [PressButton]\n"
    )
    return own


def ask(
    definitions: Path, *words: object, algo: str = "digirl", env: str = "corridor", graph: str = "single"
) -> list[str]:
    asked = ["--env", env, "--graph", graph, "--agents", "toy", "--library", str(definitions)]
    return ["train", "--algo", algo, *asked, *map(str, words)]


def play(definitions: Path, out: Path, *, agents: str = "served", **choices: Any) -> Path:
    asked = {"env": "corridor", "graph": "single", "episodes": 2, "seed": 5} | choices
    asyncio.run(collab.collect(agents=agents, library=definitions, out=out, progress=False, **asked))
    return out


def test_what_kept_instances_hold_is_not_learned(
    definitions: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = play(definitions, tmp_path / "kept", seed=39)
    said = read_refusal(capsys, *ask(definitions, *offline(kept), "--out", tmp_path / "out"))
    assert said.startswith(
        "error: 2 of 2 instances overlap with what is kept for evaluation (new-seeds 2, held-out seeds 2): "
        f"{kept}: PressButton/0 'PressButton': its instance seed "
    )
    assert said.endswith(f"is kept (new-seeds); --offline {kept}: give other runs, or add --allow-overlap")
    # Without a split, what the training's own held-out seeds play is still kept.
    said = read_refusal(capsys, *ask(definitions, *offline(kept), "--split", "none", "--plan"))
    assert "(held-out seeds 2)" in said
    other = play(definitions, tmp_path / "other", seed=7)
    said = read_refusal(
        capsys, *ask(definitions, *offline(other), "--set", "held_out.seeds=[7]", "--split", "none", "--plan")
    )
    assert "(held-out seeds 2)" in said
    assert not (tmp_path / "out").exists()
    # It may be allowed; then the training says so for ever.
    chosen = configure_toy_training(
        Library(own=definitions), algorithm="digirl", recorded=[kept], allow_overlap=True, env="corridor"
    )
    assert "2 of 2 instances overlap with what is kept for evaluation" in str(asyncio.run(chosen).overlap)


def test_lists_of_instructions_that_share_lines_overlap(
    definitions: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in published lists, an instruction stands in the list for training and in that for testing."""
    (tmp_path / "lists_of_tasks.py").write_text(LISTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    training, test = (tmp_path / f"{name}.txt" for name in ("training", "test"))
    training.write_text("Open the radio app\nFind a bakery in 'Porto'\nWhat is the tallest tree?\n")
    test.write_text('find a  Bakery in "Porto"\nShow the weather\n')

    def define(name: str, files: list[Path], *more: str) -> None:
        part = json.dumps({"kind": "lists_of_tasks:Lists", "options": {"files": list(map(str, files))}})
        lines = ["backend: own", f"backends: {{own: {part}}}", "tasks: all", *more]
        (definitions / f"envs/{name}.yaml").write_text("\n".join(lines))

    define("training", [training])
    define("test", [test])
    define("both", [training, test], "unseen: {hopeless: [test-0, test-1]}")
    run = play(definitions, tmp_path / "run", env="training", episodes=3, trust=True)
    more = ["--plan", "--trust", "--set", "held_out.episodes=2"]
    # Another environment evaluates on its own tasks: instructions are compared, whatever they are called.
    said = read_refusal(capsys, *ask(definitions, *offline(run), *more, "--split", "none", env="test"))
    assert "1 of 3 instances overlap with what is kept for evaluation (held-out seeds 1)" in said
    assert "'training-1': its instruction is that of 'test-0' (held-out seeds)" in said
    # One environment with both lists keeps the second for evaluation.
    run = play(definitions, tmp_path / "again", env="both", tasks=["training-0", "training-1"], trust=True)
    said = read_refusal(capsys, *ask(definitions, *offline(run), *more, env="both"))
    assert "1 of 2 instances overlap" in said
    assert "'training-1': its instruction is that of 'test-0' (hopeless)" in said


def test_runs_that_no_policy_of_the_training_could_have_played_are_refused(
    definitions: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = play(definitions, tmp_path / "run")

    def say(*runs: Path, **choices: str) -> str:
        return read_refusal(capsys, *ask(definitions, *offline(*runs), "--plan", **choices))

    assert say(run, tmp_path) == f"error: --offline {run}: is given twice; name it once"
    assert "run.json" in say(tmp_path / "nowhere")
    assert say(run, graph="pair", algo="filtered-bc").startswith(
        f"error: --offline {run}: was played by ada in 1 round, and the graph pair has ada, ben in 2 rounds; give other"
    )
    assert "--allow-overlap: speaks of --offline runs, and there is none" in read_refusal(
        capsys, *ask(definitions, "--allow-overlap", "--plan")
    )
    assert "learns from its own rollouts alone; leave it out" in say(run, graph="pair", algo="collabuiagents")
    shown = play(definitions, tmp_path / "shown", agents="show")
    assert say(shown) == (
        f"error: --offline {shown}: a model in it looked at solutions, which no policy can; give other runs, or "
        "imitate it by --algo filtered-bc and give digirl the trained team: --agents RUN@last"
    )
    broken = tmp_path / "broken"
    play(definitions, broken, settings=["environment.backends.fake.options.fail_at=0"])
    assert "no episode of it came to its end with a step to learn from" in say(broken)


def test_replies_without_tokens_are_taken_and_told(definitions: Path, tmp_path: Path) -> None:
    """By a server that gives no log-probabilities, or recorded before replies told how they ended."""
    run = play(definitions, tmp_path / "run")
    config = asyncio.run(configure_toy_training(Library(own=definitions), algorithm="digirl", recorded=[run]))
    assert list_doubts(config) == [
        f"{run}: 2 of 2 replies do not tell how they ended (recorded before run format 1.2, ended by a stop string, "
        "or by a server that does not say); each is learned with an end",
        f"{run}: 2 of 2 replies have no tokens or log-probabilities of the policy; their text is tokenised again and "
        "counted as retokenised",
    ]


@pytest.mark.parametrize(
    ("sampling", "options", "obstacle"),
    [
        ("top_p: 0.9", "", "sampling.top_p=0.9 cuts the distribution"),
        ("stop: [x]", "", "sampling.stop=['x'] cuts replies where the policy did not end"),
        ("temperature: 0", "", "sampling.temperature=0 is greedy"),
        (
            "temperature: 0.7",
            "",
            "sampling.temperature=0.7 is not 1, the only one at which a server reports that probability",
        ),
        ("temperature: 1", "structured: true", "options.structured=true masks tokens that the policy could have said"),
        ("temperature: 1", "extra: {top_k: 20}", "options.extra.top_k=20 changes the distribution"),
    ],
)
def test_runs_whose_replies_have_no_ratio_are_refused_where_one_is_needed(
    sampling: str,
    options: str,
    obstacle: str,
    server: FakeServer,
    tiny: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Those that imitate learn them all the same."""
    own = write_library(tmp_path / "library", tiny).own
    assert own is not None
    (own / "agents/cut.yaml").write_text(
        f"kind: openai\noptions: {{model: fake, base_url: '{server.url}', {options}}}\nsampling: {{{sampling}}}\n"
    )
    run = play(own, tmp_path / "run", agents="cut")
    out = tmp_path / "out"
    said = read_refusal(capsys, *ask(own, *offline(run), "--device", "cpu", "--out", out, algo="distrl"))
    assert said == (
        f"error: --offline {run}: --algo distrl needs the probability of each reply, and there agents.ada.{obstacle}; "
        "give other runs"
    )
    assert not out.exists()
    config = asyncio.run(configure_toy_training(Library(own=own), algorithm="digirl", recorded=[run]))
    assert load_algorithm("digirl").list_doubts(config, CorridorSuite()) == []


def test_runs_without_probabilities_are_refused_where_they_are_needed(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All of whose replies have none; where some have, the others are counted, and no longer as tokenised again."""
    run = record(library, tmp_path / "run", episodes=2)
    config = asyncio.run(configure_toy_training(Library(own=library), algorithm="distrl", recorded=[run]))
    assert list_doubts(config) == []
    known, hidden = RunReader.iterate_trajectories, set[str]()

    def hide(reader: RunReader) -> Iterator[Trajectory]:
        for one in known(reader):
            steps = [
                replace(step, matrix=replace(step.matrix, utterances=tuple(map(hide_probability, step.matrix))))
                for step in one.steps
            ]
            yield replace(one, steps=tuple(steps)) if one.id in hidden else one

    def hide_probability(cell: Utterance) -> Utterance:
        return replace(cell, end_behaviour_logprob=None)

    with RunStore.open(run).open_reader() as reader:
        first, second = known(reader)
    monkeypatch.setattr(RunReader, "iterate_trajectories", hide)
    hidden.add(first.id)
    assert list_doubts(config) == [
        f"{run}: {len(first.steps)} of {len(first.steps) + len(second.steps)} replies do not tell with which "
        "probability they were sampled; an episode with such a reply is not learned"
    ]
    hidden.add(second.id)
    said = read_refusal(capsys, *ask(library, *offline(run), "--device", "cpu", "--out", tmp_path / "o", algo="distrl"))
    assert said.startswith(
        f"error: --offline {run}: --algo distrl needs the probability with which each reply was sampled, and none of "
    )
    assert said.endswith("replies tells it; give other runs, played by kind: local or by a server that reports them")


def test_replies_that_a_server_withheld_are_told(
    definitions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = play(definitions, tmp_path / "run")
    config = asyncio.run(configure_toy_training(Library(own=definitions), algorithm="digirl", recorded=[run]))
    known = RunReader.iterate_trajectories

    def withhold(reader: RunReader) -> Iterator[Trajectory]:
        for one in known(reader):
            steps = [
                replace(step, matrix=replace(step.matrix, utterances=tuple(map(withhold_reply, step.matrix))))
                for step in one.steps
            ]
            yield replace(one, steps=tuple(steps))

    def withhold_reply(cell: Utterance) -> Utterance:
        return replace(cell, finish="content_filter")

    monkeypatch.setattr(RunReader, "iterate_trajectories", withhold)
    assert f"{run}: 2 of 2 replies were withheld by a server and are not learned" in list_doubts(config)


def read_refusal(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line of a command that was refused."""
    assert main(list(words)) == 2
    return last_line(capsys)


def last_line(capsys: pytest.CaptureFixture[str]) -> str:
    shown = capsys.readouterr()
    assert shown.out == ""
    return shown.err.splitlines()[-1]
