"""Rows hold what was really read and said; what cannot be made again exactly is refused and counted."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import collab
from collab.library import Library
from collab.marl.layout import MarlFolder
from collab.marl.rows import EMPTY, OTHER_PROMPT, OWN, RETOKENISED, WHOLE, Record, prompt_of, rows_of, store, stored
from collab.models.chat import ChatTokenizer
from collab.prompts.render import Template
from collab.runs import stored_config
from collab.store.run import RunStore
from collab.synth.table import read_rows
from collab.types import PreferencePair, ReplyRef, Utterance


@pytest.fixture(scope="module")
def chat(tiny: Path) -> ChatTokenizer:
    return ChatTokenizer(str(tiny))


@pytest.fixture(scope="module")
def played(library: Library, tmp_path_factory: pytest.TempPathFactory) -> Record:
    """Two episodes of two rehearsing agents over two rounds."""
    out = tmp_path_factory.mktemp("rows") / "run"
    play = collab.collect(env="corridor", agents="show", graph="pair", episodes=2, library=library.own, out=out)
    asyncio.run(play)
    reader = RunStore.open(out).reader()
    return Record(
        run=stored_config(out), trajectories={one.id: one for one in reader.trajectories()}, prefix=reader.prefix
    )


def cells(played: Record) -> list[tuple[ReplyRef, Utterance]]:
    return [
        (ReplyRef(trajectory=one.id, step=step.index, cell=cell.cell), cell)
        for one in played.trajectories.values()
        for step in one.steps
        for cell in step.matrix
    ]


def pair(ref: ReplyRef, cell: Utterance, **changes: object) -> PreferencePair:
    made = PreferencePair(
        id="0" * 64,
        source="adversary",
        chosen=(ref,),
        rejected=(),
        synthetic="Action: nothing of use",
        prompt=cell.prompt.hash,
        critic="oracle-1",
    )
    return replace(made, **changes)


def all_rows(played: Record, chat: ChatTokenizer, configured, *settings: str, **changes: object) -> SimpleNamespace:
    config = configured(*settings)
    pairs = [pair(ref, cell, **changes) for ref, cell in cells(played)]
    made = rows_of(pairs, played, {"ada": chat, "ben": chat}, config)
    return SimpleNamespace(made=made, config=config, pairs=pairs)


def test_every_recorded_prompt_is_made_again_byte_for_byte(played: Record, chat: ChatTokenizer, configured) -> None:
    found = all_rows(played, chat, configured)
    assert found.made.refused["shared"].total() == 0
    for row, (_, cell) in zip(found.made.rows["shared"], cells(played), strict=True):
        assert row.prompt.suffix == cell.prompt.suffix
        assert f"{row.prompt.system}\f{row.prompt.shared}" == played.prefix(cell.prompt.prefix)
        assert len(row.prompt.segments) == 3 * len(cell.heard) + 1  # before, said, after; and the header
        assert (row.reply, row.rejected) == (cell.text, "Action: nothing of use")
        assert row.provenance.teacher == "oracle-1"


def test_a_message_that_was_not_heard_makes_another_prompt(played: Record) -> None:
    template = Template("default", played.run.prompts["default"])
    ref, cell = next((ref, cell) for ref, cell in cells(played) if len(cell.heard) == 2)
    heard = [played.step(ref).matrix[other] for other in cell.heard]
    prefix = played.prefix(cell.prompt.prefix)
    assert prompt_of(cell, heard, prefix, template, 2) is not None
    assert prompt_of(cell, heard[::-1], prefix, template, 2) is None
    assert prompt_of(cell, [replace(heard[0], text="other"), heard[1]], prefix, template, 2) is None
    assert prompt_of(cell, heard, prefix + " ", template, 2) is None
    assert prompt_of(cell, heard, prefix, template, 3) is None


def test_pairs_that_become_no_row_are_counted_by_cause(played: Record, chat: ChatTokenizer, configured) -> None:
    refs = [ref for ref, _ in cells(played)]
    whole = all_rows(played, chat, configured, chosen=(refs[0], refs[1])).made
    assert whole.refused["shared"] == {WHOLE: len(refs)}
    assert all_rows(played, chat, configured, synthetic="").made.refused["shared"] == {EMPTY: len(refs)}
    changed = replace(played, prefix=lambda hash: "Other rules.\fOther screen.")
    assert all_rows(changed, chat, configured).made.refused["shared"] == {OTHER_PROMPT: len(refs)}


def test_replies_in_other_tokens_are_counted_and_left_out_if_asked(
    played: Record, chat: ChatTokenizer, configured
) -> None:
    """A rehearsal has no tokens: nothing says that its text has those that were sampled."""
    count = len(cells(played))
    kept = all_rows(played, chat, configured).made
    assert (len(kept.rows["shared"]), kept.retokenised["shared"]) == (count, count)
    left = all_rows(played, chat, configured, "retokenised=refuse").made
    assert (left.rows["shared"], left.refused["shared"]) == ([], {RETOKENISED: count})


def test_sampled_tokens_that_are_those_of_the_text_are_not_counted(
    played: Record, chat: ChatTokenizer, configured
) -> None:
    def spoken(cell: Utterance) -> Utterance:
        return replace(cell, tokens=chat.encode(cell.text), tokenizer=chat.fingerprint)

    def said(record: Record) -> Record:
        trajectories = {
            one.id: replace(
                one,
                steps=tuple(
                    replace(step, matrix=replace(step.matrix, utterances=tuple(map(spoken, step.matrix))))
                    for step in one.steps
                ),
            )
            for one in record.trajectories.values()
        }
        return replace(record, trajectories=trajectories)

    assert all_rows(said(played), chat, configured).made.retokenised["shared"] == 0


def test_agents_with_policies_of_their_own_learn_from_their_own_cells(
    played: Record, chat: ChatTokenizer, configured
) -> None:
    made = all_rows(played, chat, configured, "policies=per_agent").made
    for slot in ("ada", "ben"):
        assert [row.prompt.suffix for row in made.rows[slot]] == [
            cell.prompt.suffix for _, cell in cells(played) if cell.agent == slot
        ]


def test_older_pairs_are_mixed_in_by_share(played: Record, chat: ChatTokenizer, configured, tmp_path: Path) -> None:
    """A third of what is trained: half as many older rows as own ones."""
    found = all_rows(played, chat, configured, "older=0.3333333333")
    folder = MarlFolder(tmp_path)
    for number in (1, 2):
        counts = store(found.made, found.config, folder, number)
    own = len(found.made.rows["shared"])
    assert (counts["shared"].pairs, counts["shared"].older) == (own, round(own / 2))
    assert stored(folder.epoch(2).rows) == counts
    assert [row.id for row in read_rows(folder.epoch(2).rows / "shared" / OWN)] == [
        row.id for row in found.made.rows["shared"]
    ]
    assert stored(folder.epoch(3).rows) is None
