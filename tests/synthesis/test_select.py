"""What is kept: each row once, no group in excess, nothing that evaluation keeps."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collab.config import EnvironmentDefinition
from collab.data.example import Example, Provenance
from collab.data.splits import Split, list_kept_instances, read_splits
from collab.envs.simphone.suite import SimPhoneSuite
from collab.errors import OverlapError, UsageError
from collab.library import Library
from collab.synthesis.card import group_of, refuse_leaks, select
from collab.types import Prompt


def row(text: str, kind: str = "solution", app: str = "Clock", action: str | None = "click") -> Example:
    return Example(
        level="demonstration",
        kind=kind,
        prompt=Prompt(system="", shared=text, segments=()),
        reply="Reason: so\nAction: {}",
        action_type=action,
        provenance=Provenance(
            environment="e",
            environment_version="1",
            task="t",
            seed=1,
            step=0,
            screen="s",
            apps=(app,),
            teacher="oracle",
        ),
    )


ROWS = st.lists(
    st.builds(row, st.sampled_from("abcdefgh"), st.sampled_from(["solution", "recovery"]), st.sampled_from(["A", "B"])),
    min_size=1,
    max_size=40,
)


@given(ROWS, st.integers(1, 4), st.integers(0, 9))
def test_nothing_is_lost_uncounted_and_no_group_is_too_large(rows: list[Example], cap: int, seed: int) -> None:
    chosen = select(rows, seed=seed, cap=cap)
    assert len(chosen.rows) + sum(chosen.dropped.values()) == len(rows)
    assert len({one.id for one in chosen.rows}) == len(chosen.rows)
    assert max(Counter(map(group_of, chosen.rows)).values()) <= cap
    assert set(map(group_of, chosen.rows)) <= set(map(group_of, rows))


@given(ROWS, st.randoms(use_true_random=False))
def test_what_stays_does_not_depend_on_the_order_in_which_rows_were_made(rows: list[Example], shuffler) -> None:  # type: ignore[no-untyped-def]
    unique = list({one.id: one for one in rows}.values())
    other = shuffler.sample(unique, len(unique))
    one, two = (select(made, seed=3, cap=2) for made in (unique, other))
    assert {kept.id for kept in one.rows} == {kept.id for kept in two.rows}


def test_causes_are_counted_apart() -> None:
    chosen = select([row("a"), row("a"), row("b"), row("c")], seed=0, cap=2)
    assert chosen.dropped == {"already there": 1, "more than 2 of a kind, app and action type": 1}
    assert select([row("a")], seed=0).dropped == {}


def test_an_empty_set_is_refused() -> None:
    with pytest.raises(UsageError, match="no row was made"):
        select([], seed=0)
    with pytest.raises(UsageError, match="no rows to check"):
        refuse_leaks([], splits())
    with pytest.raises(UsageError, match="at most 0 rows"):
        select([row("a")], seed=0, cap=0)


def splits() -> list[Split]:
    unseen = Library().load("envs", "androidworld", EnvironmentDefinition).unseen
    return list(read_splits("androidworld", SimPhoneSuite().tasks(), unseen).values())


def test_rows_of_the_train_split_pass(rows: tuple[Example, ...]) -> None:
    found = refuse_leaks(rows, splits())
    assert found.checked == len(rows) > 50
    assert found.offenders == 0


@pytest.mark.parametrize("leak", ["task", "app", "word", "seed"])
def test_a_leak_is_refused_by_name(rows: tuple[Example, ...], leak: str) -> None:
    known, origin = splits(), rows[0].provenance
    unseen = next(split for split in known if split.name == "unseen-tasks").tasks[0]
    bad = {
        "task": replace(rows[0], provenance=replace(origin, task=unseen)),
        "app": replace(rows[0], provenance=replace(origin, apps=("settings", "Pro Expense"))),
        "word": replace(rows[0], reply="Add it to the expenses."),
        "seed": replace(rows[0], provenance=replace(origin, seed=min(list_kept_instances(origin.task)))),
    }[leak]
    with pytest.raises(OverlapError, match=bad.id[:12]):
        refuse_leaks([*rows[1:20], bad], known)
