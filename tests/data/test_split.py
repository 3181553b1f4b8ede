"""The rule of the splits: every task in one group, every seed on one side, a hash that notices any change."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collab.config import Unseen
from collab.data.splits import (
    EVALUATION_SEEDS,
    HOPELESS,
    INSTANCES,
    NAMES,
    NEW_SEEDS,
    TRAIN,
    UNSEEN_APP,
    UNSEEN_TASKS,
    find_split,
    is_unseen,
    list_kept_instances,
    read_splits,
)
from collab.envs.base import TaskInfo
from collab.errors import ConfigError, UnknownName
from collab.seeds import Seeds

APPS = ("mail", "Maps", "notes")
INFOS = st.lists(
    st.builds(TaskInfo, name=st.text(min_size=1), apps=st.lists(st.sampled_from(APPS), max_size=3).map(tuple)),
    unique_by=lambda info: info.name,
    max_size=30,
)
SEVEN = [TaskInfo(name=name, apps=("mail",)) for name in "abcdefg"]


def test_a_name_is_unseen_by_its_sha256() -> None:
    """Worked out apart: `printf NAME | sha256sum`, then the hexadecimal number modulo five."""
    remainders = {"SystemWifiTurnOff": 0, "TasksDueNextWeek": 0, "ContactsAddContact": 3, "SystemWifiTurnOn": 1}
    assert {name: is_unseen(name, 5) for name in remainders} == {name: rest == 0 for name, rest in remainders.items()}


@given(INFOS, st.integers(2, 6), st.randoms())
def test_every_task_belongs_to_one_group_and_groups_follow_the_rule(infos: list[TaskInfo], share: int, rng) -> None:
    hard = {info.name for info in infos if rng.random() < 0.2}
    apps = ["maps"] if any("Maps" in info.apps for info in infos) else []
    unseen = Unseen(apps=apps, share=share, hopeless=sorted(hard))
    splits = read_splits("world", infos, unseen)
    assert tuple(splits) == NAMES
    assert splits[NEW_SEEDS].tasks == splits[TRAIN].tasks
    groups = [splits[name].tasks for name in (TRAIN, UNSEEN_TASKS, UNSEEN_APP, HOPELESS)]
    assert sorted(task for group in groups for task in group) == sorted(info.name for info in infos)
    for info in infos:
        assert (info.name in splits[UNSEEN_APP].tasks) == ("Maps" in info.apps)
        elsewhere = "Maps" in info.apps or info.name in hard
        assert (info.name in splits[UNSEEN_TASKS].tasks) == (is_unseen(info.name, share) and not elsewhere)


@given(INFOS, st.randoms())
def test_a_task_keeps_its_group_whatever_others_there_are(infos: list[TaskInfo], rng) -> None:
    some = [info for info in infos if rng.random() < 0.5]
    every, fewer = read_splits("world", infos, Unseen()), read_splits("world", some, Unseen())
    for name in NAMES:
        assert fewer[name].tasks == tuple(task for task in every[name].tasks if task in {info.name for info in some})


@given(st.integers())
def test_a_run_seed_is_for_training_or_for_evaluation(seed: int) -> None:
    splits = read_splits("world", SEVEN, Unseen())
    assert {split.can_use_seed(seed) for name, split in splits.items() if name != TRAIN} == {30 <= seed <= 49}
    assert splits[TRAIN].can_use_seed(seed) is not splits[NEW_SEEDS].can_use_seed(seed)


def test_kept_instances_are_those_that_evaluation_plays() -> None:
    kept = list_kept_instances("ContactsAddContact")
    assert Seeds(30).task("ContactsAddContact", 0) in kept
    assert Seeds(49).task("ContactsAddContact", INSTANCES - 1) in kept
    assert Seeds(30).task("ContactsAddContact", INSTANCES) not in kept
    assert Seeds(29).task("ContactsAddContact", 0) not in kept
    assert Seeds(30).task("ContactsNewContactDraft", 0) not in kept
    assert len(kept) == len(EVALUATION_SEEDS) * INSTANCES


@given(st.integers(0, 10**6).filter(lambda seed: seed not in EVALUATION_SEEDS), st.text(max_size=20))
def test_training_seeds_lead_to_other_instances(seed: int, task: str) -> None:
    planned = {Seeds(seed).task(task, number, epoch) for number in range(5) for epoch in range(3)}
    assert planned.isdisjoint(list_kept_instances(task))


def test_the_hash_notices_tasks_names_and_what_training_does_without() -> None:
    split = read_splits("world", SEVEN, Unseen())[TRAIN]
    assert len(split.hash) == 64
    changed = [
        replace(split, tasks=split.tasks[:-1]),
        replace(split, tasks=split.tasks[::-1]),
        replace(split, name=NEW_SEEDS),
        replace(split, environment="other"),
        replace(split, unseen=Unseen(apps=["mail"])),
        replace(split, unseen=Unseen(words=["inbox"])),
    ]
    assert len({one.hash for one in (split, *changed)}) == 7
    assert replace(split, unseen=Unseen(words=["a", "b"])).hash == replace(split, unseen=Unseen(words=["b", "a"])).hash


def test_what_is_not_there_is_named() -> None:
    splits = read_splits("world", SEVEN, Unseen())
    with pytest.raises(UnknownName, match=r"did you mean unseen-tasks.*: collab env splits 'my phone\.yaml'$"):
        find_split(splits, "unseen-task", "my phone.yaml")
    with pytest.raises(
        UnknownName, match=r"world has no task in split unseen-app; splits with tasks: train, new-seeds, unseen-tasks"
    ):
        find_split(splits, UNSEEN_APP, "androidworld")
    with pytest.raises(ConfigError, match="no task touches 'post'; apps: mail"):
        read_splits("world", SEVEN, Unseen(apps=["post"]))
    with pytest.raises(UnknownName, match=r"no task called 'bb'; .*; in envs/world: unseen\.hopeless"):
        read_splits("world", SEVEN, Unseen(hopeless=["bb"]))
