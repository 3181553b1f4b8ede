"""Whatever of the evaluation is planted in training data is found, named and refused."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collab.config import Unseen
from collab.data.splits import (
    HOPELESS,
    INSTANCES,
    UNSEEN_APP,
    UNSEEN_TASKS,
    HeldOutInstances,
    TrainingInstance,
    fold_all,
    is_unseen,
    list_kept_by,
    read_splits,
    refuse_overlap,
    split_words,
)
from collab.envs.base import TaskInfo
from collab.errors import OverlapError
from collab.seeds import Seeds

INFOS = [
    *(TaskInfo(name=f"Write{number}", apps=("mail",)) for number in range(12)),
    TaskInfo(name="Route", apps=("mail", "Maps")),
]
SPLITS = read_splits("world", INFOS, Unseen(apps=["maps"], words=["detour"], hopeless=["Write11"]))
KEPT = list_kept_by(SPLITS.values())
SEEN = SPLITS["train"].tasks
CLEAN = st.builds(
    TrainingInstance,
    task=st.sampled_from(SEEN),
    seed=st.integers(0, 29).map(lambda seed: Seeds(seed).task(SEEN[0], 0)),
    apps=st.just(("mail",)),
    texts=st.just(("Write to Ada", "A tour and de tours")),
)
PLANTED = st.one_of(
    st.builds(
        lambda task, seed, number: TrainingInstance(task=task, seed=Seeds(seed).task(task, number)),
        *(st.sampled_from(SEEN), st.integers(30, 49), st.integers(0, INSTANCES - 1)),
    ),
    st.builds(TrainingInstance, task=st.sampled_from(SPLITS[UNSEEN_TASKS].tasks), seed=st.integers(0, 2**32 - 1)),
    st.builds(TrainingInstance, task=st.sampled_from(SPLITS[HOPELESS].tasks), seed=st.integers(0, 2**32 - 1)),
    st.builds(TrainingInstance, task=st.sampled_from(SPLITS[UNSEEN_APP].tasks), seed=st.integers(0, 2**32 - 1)),
    st.builds(TrainingInstance, task=st.just("Brand new"), apps=st.sampled_from([("MAPS",), ("mail", "maps")])),
    st.builds(TrainingInstance, task=st.sampled_from(SEEN), seed=st.none()),
    st.builds(
        TrainingInstance,
        task=st.just("Brand new"),
        texts=st.sampled_from([("fine", "Take the DETOUR."), ("openDetourDialog",), ('"detour_2"',)]),
    ),
)


def test_the_world_of_these_tests_has_tasks_on_all_sides() -> None:
    assert all(split.tasks for split in SPLITS.values())
    assert not is_unseen(SEEN[0], 5)


@given(st.lists(CLEAN, max_size=10))
def test_clean_data_passes(training: list[TrainingInstance]) -> None:
    found = refuse_overlap(training, KEPT)
    assert (found.checked, found.offenders, found.first) == (len(training), 0, ())


@given(st.lists(CLEAN, max_size=10), PLANTED, st.randoms())
def test_one_planted_instance_is_found_among_many(
    training: list[TrainingInstance], planted: TrainingInstance, rng
) -> None:
    training.insert(rng.randint(0, len(training)), planted)
    with pytest.raises(
        OverlapError, match=f"1 of {len(training)} instances overlap with what is kept for evaluation"
    ) as caught:
        refuse_overlap(training, KEPT)
    assert repr(planted.task) in str(caught.value)
    found = refuse_overlap(training, KEPT, allow_overlap=True)
    assert found.offenders == 1
    assert sum(found.by_name.values()) >= 1


def test_the_message_counts_names_and_says_what_to_do() -> None:
    leaks = [
        TrainingInstance(task=SPLITS[UNSEEN_TASKS].tasks[0], source="rows:1"),
        TrainingInstance(task="Other", texts=("a detour",), source="rows:2"),
        TrainingInstance(task="Route", apps=("maps",), source="rows:3"),
        TrainingInstance(task=SEEN[0], seed=Seeds(31).task(SEEN[0], 2), source="rows:4"),
    ]
    with pytest.raises(OverlapError) as caught:
        refuse_overlap([*leaks, TrainingInstance(task="Other")], KEPT)
    assert str(caught.value) == (
        "4 of 5 instances overlap with what is kept for evaluation (new-seeds 1, unseen-tasks 1, unseen-app 2): "
        f"rows:1 {leaks[0].task!r}: its task is kept (unseen-tasks); rows:2 'Other': contains 'detour' (unseen-app); "
        "rows:3 'Route': its task is kept (unseen-app); "
        "leave these out (--split train plays none of them), or add --allow-overlap"
    )
    assert caught.value.exit_code == 2


def test_words_are_whole_words() -> None:
    assert split_words("ExpenseAddSingle: 3 cars, self_made é") == {
        "expense",
        "add",
        "single",
        "cars",
        "self",
        "made",
        "é",
    }


AITW = Path(__file__).parents[3] / "shared" / "data" / "aitw"


def lines(name: str) -> list[str]:
    return [line for line in (AITW / name).read_text(encoding="utf-8").splitlines() if line.strip()]


def test_a_test_list_inside_the_training_list_is_found() -> None:
    """The situation of a published benchmark's instructions, in words of our own."""
    train = ["Find a bakery in Porto", "What is the tallest tree?", "find  a Bakery in porto ", "Open the radio app"]
    kept = HeldOutInstances(name="test", tasks=fold_all(["Find a bakery in Porto", "Open the radio app"]))
    found = refuse_overlap([TrainingInstance(task=line) for line in train], [kept], allow_overlap=True)
    assert (found.offenders, found.checked) == (3, 4)
    with pytest.raises(OverlapError, match="3 of 4"):
        refuse_overlap([TrainingInstance(task=line) for line in train], [kept])


@pytest.mark.skipif(not AITW.is_dir(), reason="DigiRL's task lists are not beside the checkout")
@pytest.mark.parametrize(
    ("kind", "rows", "shared", "offenders"), [("general", 545, 432, 432), ("webshop", 438, 77, 238)]
)
def test_published_task_lists(kind: str, rows: int, shared: int, offenders: int) -> None:
    """All 432 general test tasks stand in the training list, too; 77 of the others do but for the kind of quotes."""
    train, test = lines(f"{kind}_train.txt"), fold_all(lines(f"{kind}_test.txt"))
    kept = [HeldOutInstances(name="test", tasks=test)]
    found = refuse_overlap([TrainingInstance(task=line) for line in train], kept, allow_overlap=True)
    assert (found.checked, found.offenders, len(test & fold_all(train))) == (rows, offenders, shared)
    with pytest.raises(OverlapError, match=f"{offenders} of {rows} instances overlap with what is kept for evaluation"):
        refuse_overlap([TrainingInstance(task=line) for line in train], kept)
