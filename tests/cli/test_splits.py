"""Splits on the command line: shown, kept to, recorded, and compared with what was recorded."""

import json
from pathlib import Path
from typing import Any

import pytest

from collab.config import RunConfig
from collab.data.splits import NAMES, list_kept_instances

COMMITTED = Path(__file__).parents[2] / "docs" / "splits"
ROLLOUT = ("rollout", "--graph", "single", "--agents", "rehearsal")

Result = tuple[int, str, str]


@pytest.fixture
def collab(run_command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Runs a command in an empty folder: (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    return run_command


def read(result: Result) -> Any:
    assert result[0] == 0, result[2]
    return json.loads(result[1])


def config(run: str) -> RunConfig:
    return RunConfig.model_validate(json.loads((Path(run) / "run.json").read_text())["config"])


@pytest.mark.parametrize("env", sorted(path.stem for path in COMMITTED.glob("*.json")))
def test_splits_are_what_is_committed(collab, env):
    """Fixed: results of different times are only comparable while this holds. Meant to change? Then say so in
    CHANGELOG.md, and: collab env splits ENV --json > docs/splits/ENV.json"""
    if "miniwob" in env:
        pytest.importorskip("miniwob")
    assert read(collab("env", "splits", env, "--json")) == json.loads((COMMITTED / f"{env}.json").read_text())


def test_the_phones_splits_are_committed():
    splits = json.loads((COMMITTED / "androidworld.json").read_text())
    assert tuple(split["split"] for split in splits) == NAMES
    assert [len(split["tasks"]) for split in splits] == [50, 50, 22, 8, 8]


def test_the_readme_shows_these_hashes(collab):
    _, out, _ = collab("env", "splits", "androidworld")
    assert out.strip() in (COMMITTED.parent / "tour.md").read_text(encoding="utf-8")


def test_splits_are_shown_as_a_table(collab):
    code, out, _ = collab("env", "splits", "androidworld")
    assert code == 0
    assert [line.split()[:2] for line in out.splitlines()[1:]] == [
        ["train", "50"],
        ["new-seeds", "50"],
        ["unseen-tasks", "22"],
        ["unseen-app", "8"],
        ["hopeless", "8"],
    ]


def test_tasks_of_a_split_are_listed(collab):
    found = read(collab("env", "tasks", "androidworld", "--split", "unseen-tasks", "--json"))
    assert len(found["tasks"]) == 22
    none = read(collab("env", "tasks", "androidworld", "--split", "train", "--tasks", "tag:pro expense", "--json"))
    assert none["tasks"] == []


def test_training_is_played_without_the_unseen_app_and_recorded_so(collab):
    found = read(collab(*ROLLOUT, "--split", "train", "--episodes", "4", "--out", "run", "--json"))
    assert found["environment"] == "androidworld[simphone, without Pro Expense]"
    played, (train, *_) = config("run"), json.loads((COMMITTED / "androidworld.json").read_text())
    assert played.split is not None
    assert (played.split.name, played.split.hash) == ("train", train["hash"])
    assert sorted(played.tasks) == sorted(train["tasks"])
    assert all(one["seed"] not in list_kept_instances(one["task"]) for one in found["episodes"])


def test_evaluation_takes_the_whole_phone_and_kept_instances(collab):
    found = read(
        collab("eval", "--graph", "single", "--agents", "rehearsal", "--split", "unseen-app", "--out", "run", "--json")
    )
    assert found["environment"] == "androidworld[simphone]"
    assert len(found["episodes"]) == 8
    assert all(one["seed"] in list_kept_instances(one["task"]) for one in found["episodes"])
    assert "without" not in config("run").environment.part.options


def test_a_run_without_a_split_names_none_and_older_runs_know_of_none(collab):
    read(collab(*ROLLOUT, "--tasks", "SystemWifiTurnOn", "--out", "run", "--json"))
    written = json.loads((Path("run") / "run.json").read_text())
    assert written["config"].pop("split") is None
    assert written["config"]["environment"].pop("unseen")["apps"] == ["pro expense"]
    (Path("run") / "run.json").write_text(json.dumps(written))
    assert config("run").split is None
    assert collab("runs", "resume", "run")[0] == 0
    assert collab("runs", "overlap", "run")[0] == 0


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ((*ROLLOUT, "--split", "train", "--seed", "30"), "run seed 30 is not one of split train of androidworld (all"),
        ((*ROLLOUT, "--split", "train", "--set", "seed=39"), "run seed 39 is not one of split train"),
        ((*ROLLOUT, "--split", "unseen-tasks"), "(30 to 49); take one of these, e.g. 30"),
        (("eval", "--split", "train"), "(all but 30 to 49); take one of these, e.g. 0"),
        ((*ROLLOUT, "--split", "trian"), "no split called 'trian'; did you mean train?"),
        ((*ROLLOUT, "--split", "train", "--tasks", "ExpenseAddSingle"), "none of the 1 chosen tasks is in split train"),
        (
            ("eval", "--split", "unseen-app", "--episodes", "801"),
            "keeps 100 instances of a task per seed, asked for 101",
        ),
        ((*ROLLOUT, "--env", "web", "--split", "unseen-app"), "has no task in split unseen-app"),
    ],
)
def test_what_is_not_of_a_split_is_refused_before_anything_is_played(collab, command, message):
    code, out, err = collab(*command, "--out", "run")
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1
    assert not Path("run").exists()


def test_named_tasks_that_a_split_leaves_out_are_told(collab):
    asked = "SystemWifiTurnOn,ExpenseAddSingle,tag:contacts"
    code, _, err = collab(*ROLLOUT, "--split", "train", "--tasks", asked, "--episodes", "1", "--out", "run")
    assert code == 0
    assert "left out, because they are not in split train: ExpenseAddSingle\n" in err
    assert "ExpenseAddSingle" not in config("run").tasks
    assert "left out" not in collab(*ROLLOUT, "--tasks", asked, "--episodes", "1", "--out", "free")[2]


def test_an_environment_of_nothing_but_an_unseen_app_has_nothing_to_train_on(collab, tmp_path):
    (tmp_path / "envs").mkdir()
    (tmp_path / "envs" / "hall.yaml").write_text(
        "{backend: fake, backends: {fake: {kind: fake}}, unseen: {apps: [corridor]}}", encoding="utf-8"
    )
    code, _, err = collab(*ROLLOUT, "--library", str(tmp_path), "--env", "hall", "--split", "train")
    assert code == 2
    assert "has no task in split train" in err


# ------------------------------------------------------------------------------------------- recorded runs


def test_a_training_run_overlaps_with_nothing(collab):
    read(collab(*ROLLOUT, "--split", "train", "--episodes", "12", "--out", "run", "--json"))
    code, out, _ = collab("runs", "overlap", "run")
    assert (code, out) == (0, "12 episodes, none overlaps with new-seeds, unseen-tasks, unseen-app, hopeless\n")


@pytest.mark.variations
@pytest.mark.parametrize(
    ("chosen", "reason"),
    [
        (
            ("--tasks", "SystemCopyToClipboard"),
            "run: SystemCopyToClipboard/0 'SystemCopyToClipboard': its task is kept (unseen-tasks)",
        ),
        (("--tasks", "ExpenseAddSingle"), "its task is kept (unseen-app)"),
        (("--tasks", "SystemWifiTurnOn", "--seed", "30"), "its instance seed 3688789235 is kept (new-seeds)"),
    ],
)
def test_a_run_that_overlaps_is_refused_unless_this_is_allowed(collab, chosen, reason):
    read(collab(*ROLLOUT, *chosen, "--out", "run", "--json"))
    code, out, err = collab("runs", "overlap", "run")
    assert (code, out) == (2, "")
    assert err.startswith("error: 1 of 1 instances overlap with what is kept for evaluation")
    assert reason in err
    found = read(collab("runs", "overlap", "run", "--allow-overlap", "--json"))
    assert (found["checked"], found["offenders"]) == (1, 1)


def test_a_screen_that_shows_the_unseen_app_is_found(collab):
    """The agent opens the app drawer of a whole phone, on a task that is otherwise fit for training."""
    Path("swiper/agents").mkdir(parents=True)
    reply = 'Reason: Look. Action: {"action_type": "swipe", "direction": "up"}'
    Path("swiper/agents/swiper.yaml").write_text(
        f"kind: scripted\noptions:\n  replies: ['{reply}']\n", encoding="utf-8"
    )
    command = (
        "--library",
        "swiper",
        "--graph",
        "single",
        "--agents",
        "swiper",
        "--tasks",
        "SystemWifiTurnOn",
        "--json",
    )
    read(collab("rollout", *command, "--out", "whole"))
    read(collab("rollout", *command, "--split", "train", "--out", "training"))
    assert collab("runs", "overlap", "training")[0] == 0
    code, _, err = collab("runs", "overlap", "whole")
    assert code == 2
    assert "whole: SystemWifiTurnOn/0 'SystemWifiTurnOn': contains 'expense' (unseen-app)" in err
