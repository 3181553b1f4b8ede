"""Replies are trained in the tokens in which they were sampled, under prompts in the tokens in which they were read."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import collab
from collab.algorithms.collabuiagents.labeller import JudgedRollout
from collab.algorithms.collabuiagents.learner import FILES as FILES_OF
from collab.algorithms.collabuiagents.learner import (
    CollabExamples,
    add_anchors,
    build_examples,
    build_trajectory_examples,
    pair_rows,
    read_trajectories,
    store_examples,
)
from collab.data.tokenize import Encoded, EncodedExample, encode_pairs, encode_replies, read_data
from collab.loop.examples import RETOKENISED, ExampleBuilder, RecordedRun, get_examples_file
from collab.loop.finetuning import build_task
from collab.loop.interfaces import Rollout
from collab.loop.policy import Policy
from collab.loop.record import TrainingDir
from collab.models.engine.sampling import DecodeRequest
from collab.models.engine.scheduler import Engine
from collab.models.tokenizer import ChatTokenizer
from collab.rewards.base import Judgement, build_inputs
from collab.rewards.labels import LabelHead, LabelSet
from collab.rollout.run import read_stored_config
from collab.store.rewards import CellReward, PreferencePair, ReplyRef, RewardMatrix
from collab.store.run import RunStore
from collab.testing import toy_team
from collab.testing.corridor import CorridorSuite
from collab.trainers.trajectory_dpo import prepare_trajectories
from collab.types import Utterance

SPACE = CorridorSuite().space
CONTEXT = 4096


@pytest.fixture(scope="module")
def chat(tiny: Path) -> ChatTokenizer:
    return ChatTokenizer(str(tiny))


@pytest.fixture(scope="module")
def spoken(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """Two episodes of an untrained checkpoint, which spells in odd tokens; and what its engine read, by seed."""
    out, read = tmp_path_factory.mktemp("spoken") / "run", dict[int, tuple[int, ...]]()
    library = toy_team.write_library(tmp_path_factory.mktemp("team"), tiny)
    submit = Engine.submit

    def noted(self: Engine, job: DecodeRequest) -> None:
        read[job.seed] = job.prompt.ids
        submit(self, job)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Engine, "submit", noted)
        asyncio.run(
            collab.collect(env="corridor", agents="toy", graph="pair", episodes=2, library=library.own, out=out)
        )
    reader = RunStore.open(out).open_reader()
    trajectories = {one.id: one for one in reader.iterate_trajectories()}
    record = RecordedRun(run=read_stored_config(out), trajectories=trajectories, prefix=reader.read_prefix)
    return SimpleNamespace(record=record, read=read)


def cells(record: RecordedRun) -> list[tuple[ReplyRef, Utterance]]:
    """All that was said and is no empty word."""
    return [
        (ReplyRef(trajectory=one.id, step=step.index, cell=cell.cell), cell)
        for one in record.trajectories.values()
        for step in one.steps
        for cell in step.matrix
        if cell.text
    ]


def against(ref: ReplyRef, cell: Utterance, other: ReplyRef | None) -> PreferencePair:
    """A reply that is preferred to another one, or to a text."""
    return PreferencePair(
        id="0" * 64,
        source="adversary" if other is None else "contrast",
        chosen=(ref,),
        rejected=() if other is None else (other,),
        synthetic="Action: nothing of use" if other is None else None,
        prompt=cell.prompt.hash,
        critic="oracle-2",
    )


def scribe_of(record: RecordedRun, chat: ChatTokenizer, configure_toy, *settings: str) -> ExampleBuilder:
    return ExampleBuilder.of(record, {"ada": chat, "ben": chat}, configure_toy(*settings))


def through_the_disk(made: CollabExamples, scribe: ExampleBuilder, place: Path) -> Path:
    """Rows written as the loop does; the directory that it trains from."""
    store_examples(scribe.config, TrainingDir(place), 1, made)
    return get_examples_file(TrainingDir(place), 1, "shared", FILES_OF[scribe.config.method.objective]).parent


def said(cell: Utterance, chat: ChatTokenizer) -> list[int]:
    """What a policy should learn to say: as it was sampled, and the end."""
    assert cell.tokenizer == chat.fingerprint
    return [*(cell.tokens or ()), chat.turn_end]


def labelled(record: RecordedRun) -> LabelSet:
    """Every cell rewarded."""
    judged = {}
    for one in record.trajectories.values():
        for case in build_inputs(one, SPACE):
            rewards = tuple(CellReward(cell=cell.cell, score=0.9) for cell in case.matrix)
            matrix = RewardMatrix(trajectory=one.id, step=case.step, critic="critic-1", rewards=rewards)
            judged[case.key] = Judgement(case=case.digest, rewards=matrix)
    head = LabelHead(critic="critic-1", options={}, seed=0)
    return LabelSet(name="training", head=head, judged=judged, failed={})


def acting(record: RecordedRun, change_cells) -> RecordedRun:
    """The same words, each with an action, so that they can be rewarded."""
    action = SPACE.make("click", index=1)
    return change_cells(record, lambda cell: replace(cell, action=action, failure=None))


@pytest.mark.medium
def test_what_is_played_is_spelt_as_no_tokenizer_would(spoken: SimpleNamespace, chat: ChatTokenizer) -> None:
    """Else the tests below would say nothing."""
    odd = [cell for _, cell in cells(spoken.record) if cell.tokens != chat.encode(cell.text)]
    assert len(odd) > len(cells(spoken.record)) // 2
    heard = {replace(ref, cell=other) for ref, cell in cells(spoken.record) for other in cell.heard}
    assert heard & {ref for ref, cell in cells(spoken.record) if cell in odd}


def test_pairs_are_learned_in_what_the_engine_read_and_sampled(
    spoken: SimpleNamespace, chat: ChatTokenizer, configure_toy, tmp_path: Path
) -> None:
    record, scribe = spoken.record, scribe_of(spoken.record, chat, configure_toy)
    those = cells(record)
    others = [None if number % 3 == 0 else those[number - 1] for number in range(len(those))]
    pairs = [against(*one, None if other is None else other[0]) for one, other in zip(those, others, strict=True)]
    made = pair_rows(pairs, scribe)
    assert made.retokenised["shared"] == made.refused["shared"].total() == 0
    rows = read_data([through_the_disk(made, scribe, tmp_path)], ["preference"]).rows
    assert list(rows) == made.rows["shared"]
    items = encode_pairs(rows, chat, CONTEXT).items
    for item, (_, cell), other in zip(items, those, others, strict=True):
        assert tuple(item.prompt.tolist()) == spoken.read[cell.seed]
        assert item.chosen.tolist() == said(cell, chat)
        worse = [*chat.encode("Action: nothing of use"), chat.turn_end] if other is None else said(other[1], chat)
        assert item.rejected.tolist() == worse


def test_anchors_hold_on_to_what_was_sampled(
    spoken: SimpleNamespace, chat: ChatTokenizer, configure_toy, tmp_path: Path, change_cells
) -> None:
    record = acting(spoken.record, change_cells)
    scribe = scribe_of(
        record, chat, configure_toy, "pairs.anchors=4", "dpo.anchor=0.5", "pairs.stop_at_first_error=false"
    )
    (first, *alone) = cells(record)
    made = pair_rows([against(*first, None)], scribe)
    add_anchors(made, [against(*first, None)], record.trajectories.values(), labelled(record), SPACE, scribe)
    rows = read_data([through_the_disk(made, scribe, tmp_path)], ["preference"]).rows[1:]
    items = encode_pairs(rows, chat, CONTEXT).items
    assert {tuple(item.chosen.tolist()) for item in items} == {tuple(said(cell, chat)) for _, cell in alone}
    assert all(item.chosen.tolist() == item.rejected.tolist() for item in items)
    assert {tuple(item.prompt.tolist()) for item in items} == {spoken.read[cell.seed] for _, cell in alone}


def learned(
    encoded: Encoded[EncodedExample], spoken: SimpleNamespace, those: Sequence[Utterance], chat: ChatTokenizer
) -> bool:
    """Whether these are the sequences of some cells, in any order."""
    wanted = Counter((*spoken.read[cell.seed], *said(cell, chat)) for cell in those)
    assert {item.scored_from for item in encoded.items} <= {len(spoken.read[cell.seed]) for cell in those}
    return Counter(tuple(item.ids.tolist()) for item in encoded.items) == wanted


def test_rewarded_replies_are_learned_as_they_were_sampled(
    spoken: SimpleNamespace, chat: ChatTokenizer, configure_toy, tmp_path: Path, change_cells
) -> None:
    record = acting(spoken.record, change_cells)
    scribe = scribe_of(record, chat, configure_toy, "objective=rft", "pairs.stop_at_first_error=false")
    played = list(record.trajectories.values())
    rollout = Rollout(number=1, run=record.run, path=tmp_path, trajectories=played, reader=None)
    made = build_examples(rollout, JudgedRollout(labels=labelled(record), pairs=None), SPACE, scribe)
    rows = read_data([through_the_disk(made, scribe, tmp_path)], ["demonstration"]).rows
    assert learned(encode_replies(rows, chat, CONTEXT), spoken, [cell for _, cell in cells(record)], chat)


def test_whole_trajectories_are_learned_as_they_were_sampled(
    spoken: SimpleNamespace, chat: ChatTokenizer, configure_toy, process, tiny: Path, tmp_path: Path
) -> None:
    settings = ("objective=trajectory-dpo", "tasks=1", "episodes=4")
    scribe, those = scribe_of(spoken.record, chat, configure_toy, *settings), cells(spoken.record)
    good, bad = ([ref for ref, _ in those if ref.trajectory == one] for one in spoken.record.trajectories)
    pair = PreferencePair(id="1" * 64, source="trajectory", chosen=tuple(good), rejected=tuple(bad))
    made = build_trajectory_examples([pair], scribe)
    assert made.retokenised["shared"] == 0
    through_the_disk(made, scribe, tmp_path)
    path = get_examples_file(TrainingDir(tmp_path), 1, "shared", FILES_OF[scribe.config.method.objective])
    policy = Policy(version=0, weights={"ada": str(tiny), "ben": str(tiny)})
    loop = process(scribe.config, tmp_path)
    recipe = scribe.config.method.dpo.model_copy(update={"context": CONTEXT})
    task = build_task(loop, 1, "shared", policy, recipe, "dpo")
    prepared = prepare_trajectories(replace(task, reference=None), read_trajectories(path, made.replies["shared"]))
    assert learned(prepared.encoded, spoken, [cell for _, cell in those], chat)


def test_tokens_of_another_tokenizer_or_none_leave_the_text_and_are_counted(
    spoken: SimpleNamespace, chat: ChatTokenizer, configure_toy, change_cells
) -> None:
    for tokens in ("others", "none"):

        def foreign(cell: Utterance, tokens: str = tokens) -> Utterance:
            known = cell.tokens if tokens == "others" else None
            return replace(cell, tokens=known, tokenizer=None if known is None else "another")

        record = change_cells(spoken.record, foreign)
        pairs = [against(*one, None) for one in cells(record)]
        made = pair_rows(pairs, scribe_of(record, chat, configure_toy))
        assert made.retokenised["shared"] == len(pairs)
        for item, (_, cell) in zip(encode_pairs(made.rows["shared"], chat, CONTEXT).items, cells(record), strict=True):
            assert item.chosen.tolist() == [*chat.encode(cell.text), chat.turn_end]
        refused = pair_rows(pairs, scribe_of(record, chat, configure_toy, "retokenised=refuse"))
        assert (refused.rows["shared"], refused.refused["shared"]) == ([], {RETOKENISED: len(pairs)})


def test_a_worse_side_that_was_sampled_elsewhere_counts(
    spoken: SimpleNamespace, chat: ChatTokenizer, configure_toy, change_cells
) -> None:
    (good, cell), (bad, other) = cells(spoken.record)[:2]
    record = change_cells(spoken.record, lambda one: replace(one, tokenizer="another") if one == other else one)
    made = pair_rows([against(good, cell, bad)], scribe_of(record, chat, configure_toy))
    assert made.retokenised["shared"] == 1
    (item,) = encode_pairs(made.rows["shared"], chat, CONTEXT).items
    assert item.chosen.tolist() == said(cell, chat)
    assert item.rejected.tolist() == [*chat.encode(other.text), chat.turn_end]


def test_rows_of_canonical_text_hold_no_tokens(
    spoken: SimpleNamespace, chat: ChatTokenizer, configure_toy, change_cells
) -> None:
    """So they are the same rows as those of which nothing was sampled: both are trained in the same tokens."""

    def canonical(cell: Utterance) -> Utterance:
        return replace(cell, tokens=chat.encode(cell.text), tokenizer=chat.fingerprint)

    def plain(cell: Utterance) -> Utterance:
        return replace(cell, tokens=None, tokenizer=None)

    made, without = (
        pair_rows([against(*one, None) for one in cells(record)], scribe_of(record, chat, configure_toy))
        for record in (change_cells(spoken.record, canonical), change_cells(spoken.record, plain))
    )
    assert made.rows == without.rows
    assert (made.retokenised["shared"], without.retokenised["shared"]) == (0, len(cells(spoken.record)))
