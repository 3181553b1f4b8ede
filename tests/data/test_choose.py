"""A run within a split: what becomes of its configuration, and plans that do not fit."""

import pytest

from collab.config import Unseen
from collab.data.splits import (
    INSTANCES,
    NEW_SEEDS,
    TRAIN,
    TrainingInstance,
    check_plan,
    read_splits,
    restore_apps,
    restrict_run,
)
from collab.envs.base import TaskInfo
from collab.errors import OverlapError, UsageError
from collab.library import Library
from collab.rollout.plan import plan_episodes, run_config
from collab.seeds import Seeds

INFOS = [
    *(TaskInfo(name=f"Write{number}", apps=("mail",)) for number in range(12)),
    TaskInfo(name="Go", apps=("maps",)),
]
SPLITS = read_splits("world", INFOS, Unseen(apps=["maps"]))
SEEN = SPLITS[TRAIN].tasks
CONFIG = run_config(library=Library(), env="androidworld", graph="single", agents="rehearsal", tasks=["Go", *SEEN[:3]])


def test_training_leaves_the_unseen_apps_out_beside_what_was_left_out_before() -> None:
    part = CONFIG.environment.part
    environment = CONFIG.environment.model_copy(
        update={
            "backends": {"simphone": part.model_copy(update={"options": {"noise": "none", "without": ["clipper"]}})}
        }
    )
    found = restrict_run(CONFIG.model_copy(update={"environment": environment}), SPLITS[TRAIN])
    assert found.tasks == list(SEEN[:3])
    assert found.environment.part.options == {"noise": "none", "without": ["clipper", "pro expense"]}
    assert restore_apps(found.environment).part.options == {"noise": "none"}
    assert found.split is not None
    assert found.split.hash == SPLITS[TRAIN].hash


def test_evaluation_changes_nothing_but_the_tasks() -> None:
    config = CONFIG.model_copy(update={"seed": 31})
    found = restrict_run(config, SPLITS[NEW_SEEDS])
    assert found.environment == config.environment
    assert found.model_copy(update={"tasks": config.tasks, "split": None}) == config


def test_a_training_seed_that_meets_a_kept_instance_by_chance_is_refused() -> None:
    plan = [TrainingInstance(task=SEEN[0], seed=Seeds(0).task(SEEN[0], number)) for number in range(5)]
    check_plan(SPLITS[TRAIN], SPLITS.values(), plan)
    met = TrainingInstance(task=SEEN[0], seed=Seeds(34).task(SEEN[0], 7), source=f"{SEEN[0]}/5")
    with pytest.raises(
        OverlapError, match=f"1 of 6 instances overlap with what is kept for evaluation .* seed {met.seed} is kept"
    ):
        check_plan(SPLITS[TRAIN], SPLITS.values(), [*plan, met])


def test_an_evaluation_ends_where_the_kept_instances_do() -> None:
    config = restrict_run(CONFIG.model_copy(update={"seed": 30}), SPLITS[NEW_SEEDS])
    for extra in (0, 1):
        episodes = plan_episodes(config.model_copy(update={"episodes": len(config.tasks) * INSTANCES + extra}))
        plan = [TrainingInstance(task=one.task, seed=one.seed) for one in episodes]
        if extra:
            with pytest.raises(UsageError, match="asked for 101"):
                check_plan(SPLITS[NEW_SEEDS], SPLITS.values(), plan)
        else:
            check_plan(SPLITS[NEW_SEEDS], SPLITS.values(), plan)
