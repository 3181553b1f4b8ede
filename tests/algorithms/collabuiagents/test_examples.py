"""Examples hold the prompts and replies as recorded; those that cannot be rebuilt exactly are refused and counted."""

from __future__ import annotations

import asyncio
import re
import resource
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import collab
from collab.algorithms.collabuiagents.learner import FILES as FILES_OF
from collab.algorithms.collabuiagents.learner import (
    WHOLE,
    CollabExamples,
    add_anchors,
    build_rewarded_examples,
    build_trajectory_examples,
    pair_rows,
    read_trajectories,
    store_examples,
)
from collab.algorithms.collabuiagents.metrics import CollabCounts
from collab.data.parquet import read_rows
from collab.data.tokenize import read_data
from collab.errors import RunFormatError, StoreFailure
from collab.library import Library
from collab.loop.config import Origin
from collab.loop.examples import (
    EMPTY,
    OLDER,
    OTHER_PROMPT,
    RETOKENISED,
    ExampleBuilder,
    RecordedRun,
    get_examples_file,
    read_counts,
    rebuild_prompt,
)
from collab.loop.record import TrainingDir
from collab.models.tokenizer import ChatTokenizer
from collab.prompts.render import Template
from collab.rewards.base import Judgement, build_inputs
from collab.rewards.credit import BEHIND_ERROR
from collab.rewards.labels import LabelHead, LabelSet
from collab.rollout.run import read_stored_config
from collab.store.rewards import CellReward, PreferencePair, ReplyRef, RewardMatrix
from collab.store.run import RunStore
from collab.testing.corridor import CorridorSuite
from collab.types import Utterance

SPACE = CorridorSuite().space
FILES = resource.RLIMIT_FSIZE


@pytest.fixture(scope="module")
def chat(tiny: Path) -> ChatTokenizer:
    return ChatTokenizer(str(tiny))


@pytest.fixture(scope="module")
def played(library: Library, tmp_path_factory: pytest.TempPathFactory) -> RecordedRun:
    """Two episodes of two rehearsing agents over two rounds."""
    out = tmp_path_factory.mktemp("rows") / "run"
    play = collab.collect(env="corridor", agents="show", graph="pair", episodes=2, library=library.own, out=out)
    asyncio.run(play)
    reader = RunStore.open(out).open_reader()
    return RecordedRun(
        run=read_stored_config(out),
        trajectories={one.id: one for one in reader.iterate_trajectories()},
        prefix=reader.read_prefix,
    )


def cells(played: RecordedRun) -> list[tuple[ReplyRef, Utterance]]:
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
        critic="oracle-2",
    )
    return replace(made, **changes)


def all_rows(
    played: RecordedRun, chat: ChatTokenizer, configure_toy, *settings: str, **changes: object
) -> SimpleNamespace:
    config = configure_toy(*settings)
    pairs = [pair(ref, cell, **changes) for ref, cell in cells(played)]
    scribe = ExampleBuilder.of(played, {"ada": chat, "ben": chat}, config)
    return SimpleNamespace(made=pair_rows(pairs, scribe), config=config, scribe=scribe)


def test_every_recorded_prompt_is_made_again_byte_for_byte(
    played: RecordedRun, chat: ChatTokenizer, configure_toy
) -> None:
    found = all_rows(played, chat, configure_toy)
    assert found.made.refused["shared"].total() == 0
    for row, (_, cell) in zip(found.made.rows["shared"], cells(played), strict=True):
        assert row.prompt.suffix == cell.prompt.suffix
        assert f"{row.prompt.system}\f{row.prompt.shared}" == played.prefix(cell.prompt.prefix)
        assert len(row.prompt.segments) == 3 * len(cell.heard) + 1  # before, said, after; and the header
        assert (row.reply, row.rejected) == (cell.text, "Action: nothing of use")
        assert row.provenance.teacher == "oracle-2"


def test_a_correction_is_learned_under_the_input_of_who_erred_and_by_its_policy(
    played: RecordedRun, chat: ChatTokenizer, configure_toy
) -> None:
    said = [(ref, cell) for ref, cell in cells(played) if ref.step == 0 and cell.round == 1]
    (good, better), (bad, worse) = (next(one for one in said if one[1].agent == agent) for agent in ("ada", "ben"))
    found = pair(good, worse, source="correction", rejected=(bad,), synthetic=None)
    scribe = ExampleBuilder.of(played, {"ada": chat, "ben": chat}, configure_toy("policies=per_agent"))
    made = pair_rows([found], scribe)
    assert made.rows["ada"] == []
    (row,) = made.rows["ben"]
    assert (row.reply, row.rejected, row.kind) == (better.text, worse.text, "correction")
    assert row.prompt.suffix == worse.prompt.suffix != better.prompt.suffix


def test_a_message_that_was_not_heard_makes_another_prompt(played: RecordedRun) -> None:
    template = Template("default", played.run.prompts["default"])
    ref, cell = next((ref, cell) for ref, cell in cells(played) if len(cell.heard) == 2)
    heard = [played.step(ref).matrix[other] for other in cell.heard]
    prefix = played.prefix(cell.prompt.prefix)
    assert rebuild_prompt(cell, heard, prefix, template, 2) is not None
    assert rebuild_prompt(cell, heard[::-1], prefix, template, 2) is None
    assert rebuild_prompt(cell, [replace(heard[0], text="other"), heard[1]], prefix, template, 2) is None
    assert rebuild_prompt(cell, heard, prefix + " ", template, 2) is None
    assert rebuild_prompt(cell, heard, prefix, template, 3) is None


def test_pairs_that_become_no_row_are_counted_by_cause(played: RecordedRun, chat: ChatTokenizer, configure_toy) -> None:
    refs = [ref for ref, _ in cells(played)]
    whole = all_rows(played, chat, configure_toy, chosen=(refs[0], refs[1])).made
    assert whole.refused["shared"] == {WHOLE: len(refs)}
    assert all_rows(played, chat, configure_toy, synthetic="").made.refused["shared"] == {EMPTY: len(refs)}
    changed = replace(played, prefix=lambda hash: "Other rules.\fOther screen.")
    assert all_rows(changed, chat, configure_toy).made.refused["shared"] == {OTHER_PROMPT: len(refs)}


def test_replies_in_other_tokens_are_counted_and_left_out_if_asked(
    played: RecordedRun, chat: ChatTokenizer, configure_toy
) -> None:
    """A rehearsal has no tokens: nothing says that its text has those that were sampled."""
    count = len(cells(played))
    kept = all_rows(played, chat, configure_toy).made
    assert (len(kept.rows["shared"]), kept.retokenised["shared"]) == (count, count)
    left = all_rows(played, chat, configure_toy, "retokenised=refuse").made
    assert (left.rows["shared"], left.refused["shared"]) == ([], {RETOKENISED: count})


def test_sampled_tokens_that_are_those_of_the_text_are_not_counted(
    played: RecordedRun, chat: ChatTokenizer, configure_toy, change_cells
) -> None:
    def spoken(cell: Utterance) -> Utterance:
        return replace(cell, tokens=chat.encode(cell.text), tokenizer=chat.fingerprint)

    assert all_rows(change_cells(played, spoken), chat, configure_toy).made.retokenised["shared"] == 0


def test_agents_with_policies_of_their_own_learn_from_their_own_cells(
    played: RecordedRun, chat: ChatTokenizer, configure_toy
) -> None:
    made = all_rows(played, chat, configure_toy, "policies=per_agent").made
    for slot in ("ada", "ben"):
        assert [row.prompt.suffix for row in made.rows[slot]] == [
            cell.prompt.suffix for _, cell in cells(played) if cell.agent == slot
        ]


def test_older_pairs_are_mixed_in_by_share(
    played: RecordedRun, chat: ChatTokenizer, configure_toy, tmp_path: Path
) -> None:
    """A third of what is trained: half as many older rows as own ones."""
    found = all_rows(played, chat, configure_toy, "replay_fraction=0.3333333333")
    folder = TrainingDir(tmp_path)
    for number in (1, 2):
        counts = store_examples(found.config, folder, number, found.made)
    own = len(found.made.rows["shared"])
    assert (counts["shared"].examples, counts["shared"].older) == (own, round(own / 2))
    assert read_counts(folder.get_epoch(2).examples, CollabCounts) == counts
    assert [
        row.id for row in read_rows(get_examples_file(folder, 2, "shared", FILES_OF[found.config.method.objective]))
    ] == [row.id for row in found.made.rows["shared"]]
    assert counts["shared"].digest != read_counts(folder.get_epoch(1).examples, CollabCounts)["shared"].digest
    assert read_counts(folder.get_epoch(3).examples, CollabCounts) is None


def test_pairs_of_the_training_that_a_team_comes_from_are_rehearsed(
    played: RecordedRun, chat: ChatTokenizer, configure_toy, tmp_path: Path
) -> None:
    """Those of the epochs behind it, from the first epoch on, and never without being told that they are gone."""
    learned = all_rows(played, chat, configure_toy)
    first = TrainingDir(tmp_path / "first")
    first.begin({})
    store_examples(learned.config, first, 1, learned.made)
    store_examples(learned.config, first, 2, all_rows(played, chat, configure_toy, source="contrast").made)
    found = all_rows(played, chat, configure_toy, "replay_fraction=0.5", source="adversary")
    config = found.config.model_copy(update={"origin": Origin(run=str(first.path), epoch=1)})
    second = TrainingDir(tmp_path / "second")
    counts = store_examples(config, second, 1, found.made)["shared"]
    assert counts.older == len(found.made.rows["shared"])
    rehearsed = read_rows(second.get_epoch(1).examples / "shared" / OLDER)
    assert [row.id for row in rehearsed] == [row.id for row in learned.made.rows["shared"]]
    first.file.unlink()
    with pytest.raises(RunFormatError, match=f"{first.path}: the training with the examples to mix in is missing"):
        store_examples(config, second, 2, found.made)
    store_examples(learned.config, second, 2, found.made)  # nothing of it is wanted
    first.file.write_text("{}")
    rows = get_examples_file(first, 1, "shared", FILES_OF[learned.config.method.objective])
    rows.unlink()
    with pytest.raises(RunFormatError, match=f"{rows}: the examples to mix in are missing"):
        store_examples(config, second, 1, found.made)
    shutil.rmtree(first.get_epoch(1).examples)
    with pytest.raises(RunFormatError, match=f"{rows}: the examples to mix in are missing"):
        store_examples(config, second, 1, found.made)


def test_an_epoch_that_taught_nothing_is_no_lost_one(
    played: RecordedRun, chat: ChatTokenizer, configure_toy, tmp_path: Path
) -> None:
    found = all_rows(played, chat, configure_toy, "replay_fraction=0.5")
    folder = TrainingDir(tmp_path)
    store_examples(found.config, folder, 1, CollabExamples.of(found.config))
    assert store_examples(found.config, folder, 2, found.made)["shared"].older == 0


def labels_of(played: RecordedRun, scores: dict[tuple[str, int], float | None]) -> LabelSet:
    """Every step judged, a cell's score by agent and round."""
    judged = {}
    for one in played.trajectories.values():
        for case in build_inputs(one, SPACE):
            rewards = tuple(
                CellReward(cell=cell.cell, score=scores[cell.cell], missing=None if scores[cell.cell] else "none")
                for cell in case.matrix
            )
            matrix = RewardMatrix(trajectory=one.id, step=case.step, critic="critic-1", rewards=rewards)
            judged[case.key] = Judgement(case=case.digest, rewards=matrix)
    head = LabelHead(critic="critic-1", options={}, seed=0)
    return LabelSet(name="training", head=head, judged=judged, failed={})


def test_rewarded_replies_are_learned_without_a_comparison(
    played: RecordedRun, chat: ChatTokenizer, configure_toy
) -> None:
    """Exactly the threshold earns nothing, and neither does a missing score; a cap keeps so many of a state."""
    labels = labels_of(played, {("ada", 0): 0.9, ("ada", 1): 0.5, ("ben", 0): None, ("ben", 1): 0.6})
    everything = played.trajectories.values()
    scribe = all_rows(played, chat, configure_toy, "objective=rft").scribe
    made = build_rewarded_examples(everything, labels, SPACE, scribe)
    good = [cell for _, cell in cells(played) if cell.cell in (("ada", 0), ("ben", 1)) and cell.action is not None]
    assert sorted(row.prompt.suffix for row in made.rows["shared"]) == sorted(cell.prompt.suffix for cell in good)
    assert {(row.level, row.kind, row.rejected, row.provenance.teacher) for row in made.rows["shared"]} == {
        ("demonstration", "rewarded", None, "critic-1")
    }
    steps = sum(len(one.steps) for one in everything)
    capped = all_rows(played, chat, configure_toy, "objective=rft", "pairs.cap=1").scribe
    assert len(build_rewarded_examples(everything, labels, SPACE, capped).rows["shared"]) == steps < len(good)


def test_rewarded_replies_without_a_pair_of_their_own_are_anchors(
    played: RecordedRun, chat: ChatTokenizer, configure_toy
) -> None:
    """Ada's first reply is in a pair; of the two others that are rewarded in each state one is held on to."""
    labels = labels_of(played, {("ada", 0): 0.9, ("ada", 1): 0.8, ("ben", 0): None, ("ben", 1): 0.6})
    scribe = all_rows(played, chat, configure_toy, "pairs.anchors=1", "dpo.anchor=0.5").scribe
    pairs = [pair(ref, cell) for ref, cell in cells(played) if cell.cell == ("ada", 0)]
    made = pair_rows(pairs, scribe)
    add_anchors(made, pairs, played.trajectories.values(), labels, SPACE, scribe)
    rows, steps = made.rows["shared"], sum(len(one.steps) for one in played.trajectories.values())
    assert [row.kind for row in rows] == ["adversary"] * len(pairs) + ["anchor"] * steps
    assert all(row.level == "preference" and row.reply == row.rejected for row in rows[len(pairs) :])
    first = {cell.prompt.suffix for _, cell in cells(played) if cell.cell == ("ada", 0)}
    assert not first & {row.prompt.suffix for row in rows[len(pairs) :]}
    counts = made.count_group("shared", older=[])
    assert (counts.examples, counts.anchors) == (len(pairs), steps)
    nothing = pair_rows([], scribe)
    add_anchors(nothing, [], played.trajectories.values(), labels, SPACE, scribe)
    assert nothing.rows["shared"] == [], "without a pair there is nothing to hold on against"


@pytest.mark.parametrize("objective", ["dpo", "rft"])
def test_what_stands_behind_an_error_is_neither_held_on_to_nor_learned(
    objective: str, played: RecordedRun, chat: ChatTokenizer, configure_toy
) -> None:
    """All is rewarded but what the team does first, so that only the first steps teach."""
    everything = played.trajectories.values()
    labels = labels_of(played, dict.fromkeys([("ada", 0), ("ada", 1), ("ben", 0), ("ben", 1)], 0.9))

    def spoilt(judgement: Judgement) -> Judgement:
        trajectory, number = judgement.key
        first = played.trajectories[trajectory].steps[0]
        scores = (0.0 if first.matrix[one.cell].action == first.executed else 0.9 for one in judgement.rewards.rewards)
        rewards = tuple(replace(one, score=score) for one, score in zip(judgement.rewards.rewards, scores, strict=True))
        return replace(judgement, rewards=replace(judgement.rewards, rewards=rewards)) if number == 0 else judgement

    labels = replace(labels, judged={key: spoilt(one) for key, one in labels.judged.items()})
    settings = ("objective=rft",) if objective == "rft" else ("pairs.anchors=4", "dpo.anchor=0.5")

    def made(stop_at_first_error: str) -> CollabExamples:
        scribe = all_rows(
            played, chat, configure_toy, *settings, f"pairs.stop_at_first_error={stop_at_first_error}"
        ).scribe
        if objective == "rft":
            return build_rewarded_examples(everything, labels, SPACE, scribe)
        found = pair_rows([pair(*cells(played)[0])], scribe)
        add_anchors(found, [], everything, labels, SPACE, scribe)
        return found

    whole, cut = made("false"), made("true")
    assert {row.provenance.step for row in whole.rows["shared"]} > {0}
    assert {row.provenance.step for row in cut.rows["shared"]} == {0}
    if objective == "rft":
        assert cut.refused["shared"] == {
            BEHIND_ERROR: len([row for row in whole.rows["shared"] if row.provenance.step])
        }


def test_the_surest_reply_is_held_on_to_and_one_that_corrects_another_cell_may_be_it(
    played: RecordedRun, chat: ChatTokenizer, configure_toy
) -> None:
    def sure(cell: Utterance) -> Utterance:
        return replace(cell, logprobs={"ada": (-0.5, -2.0), "ben": (-1.0, -1.0)}[cell.agent])

    told = {
        one.id: replace(
            one,
            steps=tuple(
                replace(step, matrix=replace(step.matrix, utterances=tuple(sure(cell) for cell in step.matrix)))
                for step in one.steps
            ),
        )
        for one in played.trajectories.values()
    }
    record = replace(played, trajectories=told)
    labels = labels_of(played, {("ada", 0): 0.9, ("ada", 1): 0.0, ("ben", 0): 0.0, ("ben", 1): 0.6})
    scribe = all_rows(record, chat, configure_toy, "pairs.anchors=1", "dpo.anchor=0.5").scribe
    refs = {(ref.trajectory, ref.step, *ref.cell): ref for ref, _ in cells(record)}
    correction = [
        pair(refs[one, step, "ben", 1], record.get_cell(ref), source="correction", rejected=(ref,), synthetic=None)
        for (one, step, *cell), ref in refs.items()
        if cell == ["ben", 0]
    ]
    made = pair_rows(correction, scribe)
    add_anchors(made, correction, told.values(), labels, SPACE, scribe)
    held = {row.prompt.suffix for row in made.rows["shared"] if row.kind == "anchor"}
    assert held == {cell.prompt.suffix for _, cell in cells(record) if cell.cell == ("ben", 1)}


def test_unjudged_steps_are_counted(played: RecordedRun, chat: ChatTokenizer, configure_toy) -> None:
    labels = labels_of(played, dict.fromkeys([("ada", 0), ("ada", 1), ("ben", 0), ("ben", 1)], 0.9))
    (first, *_), everything = labels.judged, played.trajectories.values()
    known = replace(labels, judged={key: one for key, one in labels.judged.items() if key != first})
    scribe = all_rows(played, chat, configure_toy, "objective=rft").scribe
    assert build_rewarded_examples(everything, labels, SPACE, scribe).count_group("shared", []).unjudged == 0
    made = build_rewarded_examples(everything, known, SPACE, scribe)
    assert made.count_group("shared", []).unjudged == 1
    assert 0 < made.count_group("shared", []).examples < len(cells(played))


def test_rows_that_say_the_same_are_counted_once_more_than_they_are_learned(
    played: RecordedRun, chat: ChatTokenizer, configure_toy, tmp_path: Path
) -> None:
    """Every pair is there twice, and older ones are those of this epoch."""
    found = all_rows(played, chat, configure_toy, "replay_fraction=0.5")
    found.made.rows["shared"] *= 2
    for number in (1, 2):
        counts = store_examples(found.config, TrainingDir(tmp_path), number, found.made)["shared"]
    data = read_data([TrainingDir(tmp_path).get_epoch(2).examples / "shared"], ["preference"])
    assert counts.older == counts.examples == len(found.made.rows["shared"])
    assert (counts.repeated, counts.examples + counts.older - counts.repeated) == (data.repeated, len(data.rows))
    assert counts.repeated >= 3 * len(data.rows) > 0


def whole_pair(played: RecordedRun) -> PreferencePair:
    """The first episode preferred to the second."""
    good, bad = ([ref for ref, _ in cells(played) if ref.trajectory == one] for one in played.trajectories)
    return PreferencePair(id="1" * 64, source="trajectory", chosen=tuple(good), rejected=tuple(bad))


@pytest.mark.parametrize("policies", ["shared", "per_agent"])
def test_whole_trajectories_keep_all_replies_of_both_sides(
    policies: str, played: RecordedRun, chat: ChatTokenizer, configure_toy, tmp_path: Path
) -> None:
    found = all_rows(
        played, chat, configure_toy, "objective=trajectory-dpo", f"policies={policies}", "tasks=1", "episodes=4"
    )
    pair = whole_pair(played)
    made = build_trajectory_examples([pair, pair], found.scribe)
    counts = store_examples(found.config, TrainingDir(tmp_path), 1, made)
    for group, slots in found.config.groups.items():
        good, bad = (sum(ref.cell.agent in slots for ref in side) for side in (pair.chosen, pair.rejected))
        assert (counts[group].examples, counts[group].replies) == (2, [(good, bad)] * 2)
        assert counts[group].repeated == 0
        path = get_examples_file(TrainingDir(tmp_path), 1, group, FILES_OF[found.config.method.objective])
        read = read_trajectories(
            path, read_counts(TrainingDir(tmp_path).get_epoch(1).examples, CollabCounts)[group].replies
        )
        assert [(len(one.chosen), len(one.rejected)) for one in read] == [(good, bad)] * 2
        said = [played.get_cell(ref).text for ref in (*pair.chosen, *pair.rejected) if ref.cell.agent in slots]
        assert [row.reply for row in read[1].rows] == said
        assert {row.kind for row in read[0].chosen} == {"solved"}
    with pytest.raises(RunFormatError, match="train anew"):
        read_trajectories(path, [(1, 1)])


def test_a_trajectory_with_a_reply_that_is_none_takes_its_pair_with_it(
    played: RecordedRun, chat: ChatTokenizer, configure_toy
) -> None:
    """Without it the sum would be that of another episode."""
    found = all_rows(played, chat, configure_toy, "objective=trajectory-dpo", "tasks=1", "episodes=4")
    name, one = next(iter(played.trajectories.items()))
    mute = [replace(cell, text="") for cell in one.steps[0].matrix]
    step = replace(one.steps[0], matrix=replace(one.steps[0].matrix, utterances=tuple(mute)))
    changed = replace(played, trajectories={**played.trajectories, name: replace(one, steps=(step, *one.steps[1:]))})
    made = build_trajectory_examples([whole_pair(played)], ExampleBuilder.of(changed, found.scribe.chats, found.config))
    assert (made.rows["shared"], made.refused["shared"]) == ([], {EMPTY: 1})


@pytest.mark.parametrize("blocked", ["full", "file"])
def test_a_full_disk_is_told_with_what_resumes_the_training(
    played: RecordedRun, chat: ChatTokenizer, configure_toy, tmp_path: Path, blocked: str
) -> None:
    found, folder, before = all_rows(played, chat, configure_toy), TrainingDir(tmp_path), resource.getrlimit(FILES)
    if blocked == "full":
        resource.setrlimit(FILES, (100, before[1]))
    else:
        folder.get_epoch(1).examples.mkdir(parents=True)
        (folder.get_epoch(1).examples / "shared").touch()
    try:
        with pytest.raises(StoreFailure, match=rf"make room or fix the rights, then {re.escape(folder.resume)}$"):
            store_examples(found.config, folder, 1, found.made)
    finally:
        resource.setrlimit(FILES, before)
    assert read_counts(folder.get_epoch(1).examples, CollabCounts) is None
