"""A rollout is judged and paired once; a part that one process did as a whole is timed."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import pytest

from collab.algorithms.collabuiagents.labeller import label_rollout, pair_judged, pair_rollout
from collab.algorithms.collabuiagents.metrics import (
    describe,
    format_lines,
    label_metrics,
)
from collab.algorithms.judging import hash_judgements, judge_rollout
from collab.config import Budget, RunConfig
from collab.errors import ModelFailure, RunFormatError, UsageError
from collab.library import Library
from collab.loop.examples import COUNTS
from collab.loop.interfaces import Rollout
from collab.loop.phases import load_trajectories
from collab.loop.record import LABELS, EpochDir, EpochRecord, TrainingDir, find_training
from collab.loop.state import Halted, LoopState
from collab.preferences.adversary import AdversaryProposal, Occasion, SamplerAdversary
from collab.preferences.rebuild import RebuildRequest, parse_sources, rebuild
from collab.preferences.store import list_pair_sets, read_pair_head
from collab.rewards.base import CellScore, CriticCall, build_inputs, build_judgement
from collab.rewards.labels import FOLDER, LabelHead, LabelSet, LabelWriter, list_label_sets, read_labels
from collab.rewards.llm import TOO_LONG
from collab.rewards.oracle import SolutionCritic
from collab.rollout.build import with_prompts
from collab.rollout.plan import resolve_run, run_config
from collab.rollout.run import build_suite, start
from collab.store.run import RunStore
from collab.types import Trajectory, Usage
from collab.utils.concurrency import PATIENCE

EVERY = list(range(60))
OTHER_SAMPLER = "collab.preferences.adversary:SamplerAdversary"
"""Another origin, though it says the same."""


@pytest.fixture(scope="module")
def rehearsed(library: Library, tmp_path_factory: pytest.TempPathFactory) -> tuple[RunConfig, Path]:
    """Two unjudged episodes; do not change them."""
    out = tmp_path_factory.mktemp("judge") / "run"

    async def play() -> RunConfig:
        planned = run_config(library=library, env="corridor", graph="pair", agents="show", episodes=2)
        run = with_prompts(await resolve_run(planned, once_per_task=False), library)
        await start(run, library, out)
        return run

    return asyncio.run(play()), out


@pytest.fixture
def epoch(rehearsed: tuple[RunConfig, Path], tmp_path: Path) -> EpochDir:
    """An epoch whose rollout is over."""
    folder = TrainingDir(tmp_path).get_epoch(1)
    shutil.copytree(rehearsed[1], folder.rollout)
    return folder


def forget_one(epoch: EpochDir) -> None:
    """Make asking about the last step fail."""
    (log,) = (epoch.rollout / FOLDER / LABELS / "events").glob("*.jsonl")
    lines = log.read_bytes().splitlines(keepends=True)
    assert json.loads(lines[-1])["type"] == "judged"
    log.write_bytes(b"".join(lines[:-1]))


def rollout(run: RunConfig, out: Path, played: Sequence[Trajectory]) -> Rollout:
    return Rollout(number=1, run=run, path=out, trajectories=played, reader=RunStore.open(out).open_reader())


def told(labels: LabelSet | None) -> tuple[int, str]:
    assert labels is not None
    return len(labels.judged), hash_judgements(labels.judged.values())


def test_an_epoch_records_what_was_paid_for_answers_of_steps_that_failed(
    rehearsed: tuple[RunConfig, Path], epoch: EpochDir, tmp_path: Path
) -> None:
    (run, _), out = rehearsed, epoch.rollout
    played = load_trajectories(out)
    paid = Usage(calls=2, prompt_tokens=70, completion_tokens=9, cost_usd=0.25)
    with LabelWriter(out, LABELS, LabelHead(critic="test-1")) as writer:
        case = next(build_inputs(played[0], build_suite(run).space))
        writer.fail(case, ModelFailure("the server is gone"), paid)
        writer.record(
            build_judgement(case, SolutionCritic(), {cell.cell: CellScore(score=1.0) for cell in case.matrix}, [])
        )
    spent = read_labels(out, LABELS).spent
    assert (spent.calls, spent.prompt_tokens, spent.completion_tokens, spent.cost_usd) == (2, 70, 9, 0.25)


def test_an_epoch_counts_labels_that_were_flipped_on_purpose_and_a_resume_flips_the_same(
    configure_toy, process, rehearsed: tuple[RunConfig, Path], epoch: EpochDir, tmp_path: Path
) -> None:
    (run, _), out = rehearsed, epoch.rollout
    played, config = load_trajectories(out), configure_toy("critic_flip=0.6")
    whole = asyncio.run(judge_rollout(process(config, tmp_path), run, out, played))
    forget_one(epoch)
    again = asyncio.run(judge_rollout(process(config, tmp_path), run, out, played))
    assert told(again) == told(whole)
    cells = [one for judged in again.judged.values() for one in judged.rewards.rewards]
    flipped = sum(one.original is not None for one in cells)
    assert 0 < flipped < len(cells)
    metrics = label_metrics(again, None, run, 0.5).model_dump(mode="json")
    record = EpochRecord(algorithm="collabuiagents", epoch=1, version=1, weights={}, hash="", metrics=metrics)
    assert f"labels flipped on purpose: {flipped} of {len(cells)}" in format_lines(record)
    assert "(0.6 of its labels flipped on purpose)" in describe(config.method, config.critic.flip)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (("critic_flip=1",), "critic_flip: Input should be less than 1"),
        (("critic_flip=0.1", "pairs.threshold=0.7"), "set pairs.threshold=0.5 or critic_flip=0"),
        (("critic_flip=0.1", "objective=trajectory-dpo"), "no critic is asked"),
    ],
)
def test_a_share_of_flipped_labels_that_means_nothing_is_refused(
    configure_toy, settings: tuple[str, ...], said: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        configure_toy(*settings)


def test_only_who_did_all_of_a_part_tells_its_seconds(
    configure_toy, process, rehearsed: tuple[RunConfig, Path], epoch: EpochDir, tmp_path: Path
) -> None:
    (run, _), out = rehearsed, epoch.rollout
    played = load_trajectories(out)
    first, second, third = (process(configure_toy(), tmp_path) for _ in range(3))
    labels = asyncio.run(judge_rollout(first, run, out, played))
    asyncio.run(judge_rollout(second, run, out, played))
    assert (set(first.seconds), set(second.seconds)) == ({"critic"}, set())
    asyncio.run(pair_judged(second, rollout(run, out, played), labels))
    asyncio.run(pair_judged(third, rollout(run, out, played), labels))
    assert (set(second.seconds), set(third.seconds)) == ({"adversary"}, set())
    shutil.rmtree(out / "pairs")  # killed before they were there, with what the adversary had said
    asyncio.run(pair_judged(third, rollout(run, out, played), labels))
    assert third.seconds == {}


@pytest.mark.parametrize("made", ["pairs", "examples"])
def test_a_step_is_not_asked_about_again_once_its_label_was_used(
    made: str, configure_toy, process, rehearsed: tuple[RunConfig, Path], epoch: EpochDir, tmp_path: Path
) -> None:
    (run, _), played = rehearsed, load_trajectories(epoch.rollout)
    loop = process(configure_toy(*(["objective=rft"] if made == "examples" else [])), tmp_path)
    whole = told(asyncio.run(label_rollout(loop, rollout(run, epoch.rollout, played))))
    forget_one(epoch)
    labels = asyncio.run(label_rollout(loop, rollout(run, epoch.rollout, played[:0])))
    assert labels is not None
    short = told(labels)
    assert short[0] == whole[0] - 1
    if made == "pairs":
        asyncio.run(pair_judged(loop, rollout(run, epoch.rollout, played), labels))
    else:
        epoch.examples.mkdir()
        (epoch.examples / COUNTS).write_text("{}")
    assert told(asyncio.run(label_rollout(loop, rollout(run, epoch.rollout, played)))) == short
    shutil.rmtree(epoch.rollout / "pairs" if made == "pairs" else epoch.examples)
    assert told(asyncio.run(label_rollout(loop, rollout(run, epoch.rollout, played)))) == whole


def test_other_pairs_of_a_rollout_never_become_those_that_a_training_learns_from(
    configure_toy, process, library: Library, rehearsed: tuple[RunConfig, Path], epoch: EpochDir, tmp_path: Path
) -> None:
    """Judged and unpaired when `collab pairs` pairs the rollout in another way, with or without a name."""
    (run, _), out, played = rehearsed, epoch.rollout, load_trajectories(epoch.rollout)
    loop = process(configure_toy(), tmp_path)
    labels = asyncio.run(judge_rollout(loop, run, out, played))
    other = RebuildRequest(run=out, sources=parse_sources("contrast"), kept=frozenset({LABELS}))
    made = asyncio.run(rebuild(other, library)).stored
    assert made is not None
    assert (made.name, made.head.labels) == (f"{LABELS}-2", LABELS)
    with pytest.raises(UsageError, match=r"--name training: .* belongs to a training"):
        asyncio.run(rebuild(RebuildRequest(run=out, name=LABELS, kept=frozenset({LABELS})), library))
    pairs = asyncio.run(pair_rollout(loop, rollout(run, out, played), labels))
    assert pairs is not None
    assert (pairs.head.recipe, list_pair_sets(out)) == (
        loop.config.method.pairs.build_recipe(run.seed),
        [f"{LABELS}-2", LABELS],
    )


def test_pairs_that_were_made_in_another_way_are_not_learned_from(
    configure_toy, process, library: Library, rehearsed: tuple[RunConfig, Path], epoch: EpochDir, tmp_path: Path
) -> None:
    (run, _), out, played = rehearsed, epoch.rollout, load_trajectories(epoch.rollout)
    loop = process(configure_toy(), tmp_path)
    labels = asyncio.run(judge_rollout(loop, run, out, played))
    refusal = f"{out}: its pairs 'training' were made {{}}.*; remove {out / 'pairs' / LABELS}, and they are made again"
    mixed = parse_sources("adversary=1,contrast=1,correction=0.5")
    otherwise = {
        "by the recipe contrast=1 ": RebuildRequest(run=out, name=LABELS, sources=parse_sources("contrast")),
        "with another adversary": RebuildRequest(run=out, name=LABELS, sources=mixed, adversary=OTHER_SAMPLER),
    }
    for reason, given in otherwise.items():
        asyncio.run(rebuild(given, library))
        with pytest.raises(RunFormatError, match=re.escape(refusal).replace(re.escape("{}.*"), reason + ".*")):
            asyncio.run(pair_rollout(loop, rollout(run, out, played), labels))
        shutil.rmtree(out / "pairs")
    made = asyncio.run(pair_rollout(loop, rollout(run, out, played), labels))
    assert made is not None
    assert made.head == read_pair_head(out, LABELS)
    head = replace(labels.head, seed=labels.head.seed + 1)
    with pytest.raises(RunFormatError, match="asked in another way or with another seed"):
        asyncio.run(pair_rollout(loop, rollout(run, out, played), replace(labels, head=head)))


def test_an_epoch_without_an_answering_critic_is_not_over(
    configure_toy, process, rehearsed: tuple[RunConfig, Path], epoch: EpochDir, tmp_path: Path
) -> None:
    """Fewer steps than make labelling give up, so every one of them fails."""
    (run, _), played, mute = rehearsed, load_trajectories(epoch.rollout), tmp_path / "mute.yaml"
    assert sum(len(one.steps) for one in played) < PATIENCE
    mute.write_text(
        f"kind: llm\noptions: {{model: {{kind: scripted, options: {{replies: [x], fail_calls: {EVERY}}}}}}}\n"
    )
    loop = process(configure_toy(f"critic={mute}"), tmp_path)
    with pytest.raises(Halted, match=r"could not be asked about (\d+) of \1 steps; the last: .*scripted"):
        asyncio.run(judge_rollout(loop, run, epoch.rollout, played))


def test_an_epoch_of_answers_without_scores_is_not_over(
    configure_toy, process, rehearsed: tuple[RunConfig, Path], epoch: EpochDir, tmp_path: Path
) -> None:
    """Too few to stop labelling; they were paid for, so a resume does not ask again until they are removed."""
    (run, _), played, talks = rehearsed, load_trajectories(epoch.rollout), tmp_path / "talks.yaml"
    talks.write_text("kind: llm\noptions: {model: {kind: scripted, options: {replies: [All are fine.]}}}\n")
    config = configure_toy(f"critic={talks}")
    first, second = process(config, tmp_path), process(config, tmp_path)
    silence = r"the critic gave no score about (\d+) of \1 steps; the last answer begins 'All are fine.*remove (.*) to"
    for loop in (first, second):
        with pytest.raises(Halted, match=silence) as halted:
            asyncio.run(judge_rollout(loop, run, epoch.rollout, played))
    assert (first.spent.tokens > 0, second.spent.tokens) == (True, 0)
    found = re.search(silence, str(halted.value))
    assert found is not None
    shutil.rmtree(found[2])
    assert LABELS not in list_label_sets(epoch.rollout)


def test_an_epoch_of_steps_that_do_not_fit_into_the_critics_context_is_not_over(
    configure_toy, process, rehearsed: tuple[RunConfig, Path], epoch: EpochDir, tmp_path: Path
) -> None:
    """No model could be asked: each epoch would be played for nothing."""
    (run, _), played, narrow = rehearsed, load_trajectories(epoch.rollout), tmp_path / "narrow.yaml"
    narrow.write_text("kind: llm\ncontext_tokens: 2100\noptions: {model: {kind: scripted, options: {replies: [x]}}}\n")
    loop = process(configure_toy(f"critic={narrow}"), tmp_path)
    with pytest.raises(Halted, match=r"(\d+) of \1 steps do not fit into the critic's context; begin another training"):
        asyncio.run(judge_rollout(loop, run, epoch.rollout, played))


def test_causes_for_which_steps_stay_unjudged_are_added_up(
    configure_toy, process, rehearsed: tuple[RunConfig, Path], epoch: EpochDir, tmp_path: Path
) -> None:
    """Too long for some, prose about others: neither is most, both together are."""
    (run, _), out, played = rehearsed, epoch.rollout, load_trajectories(epoch.rollout)
    every = [case for one in played for case in build_inputs(one, build_suite(run).space)]
    third = (len(every) + 2) // 3
    assert 2 * third <= len(every) < 2 * 2 * third
    with LabelWriter(out, LABELS, LabelHead(critic="test-1")) as writer:
        for number, case in enumerate(every):
            cells = [cell.cell for cell in case.matrix if cell.action is not None]
            said = CriticCall(prompt="0", model="talks", seed=0, reply="All are fine.", cells=tuple(cells))
            kind = number // third
            word = (CellScore.none(TOO_LONG), CellScore.none("the reply is not JSON"), CellScore(score=1.0))[kind]
            writer.record(build_judgement(case, SolutionCritic(), dict.fromkeys(cells, word), [said] if kind else []))
    told = (
        rf"{third} of {len(every)} steps do not fit into the critic's context, "
        rf"the critic gave no score about {third} of {len(every)} steps; begin another training"
    )
    with pytest.raises(Halted, match=told):
        asyncio.run(judge_rollout(process(configure_toy(), tmp_path), run, out, played))


def test_where_steps_that_are_asked_about_again_decide_they_are_told_first(
    configure_toy,
    process,
    rehearsed: tuple[RunConfig, Path],
    epoch: EpochDir,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As many were too long as were judged, and two more could not be asked about: resuming is enough."""
    (run, _), out, played = rehearsed, epoch.rollout, load_trajectories(epoch.rollout)
    every = [case for one in played for case in build_inputs(one, build_suite(run).space)]
    many = (len(every) - 2) // 2
    with LabelWriter(out, LABELS, LabelHead(critic="test-1")) as writer:
        for number, case in enumerate(every):
            word = CellScore.none(TOO_LONG) if number < many else CellScore(score=1.0)
            if number < len(every) - 2:
                writer.record(build_judgement(case, SolutionCritic(), {cell.cell: word for cell in case.matrix}))
            else:
                writer.fail(case, ModelFailure("the server is gone"))
    monkeypatch.setattr("collab.algorithms.judging._is_left", lambda *asked: False)
    told = (
        rf"could not be asked about 2 of {len(every)} steps, {many} of {len(every)} steps do not fit into the critic's "
        "context; the last: the server is gone"
    )
    with pytest.raises(Halted, match=told):
        asyncio.run(judge_rollout(process(configure_toy(), tmp_path), run, out, played))


def test_an_adversary_that_no_source_needs_is_neither_asked_nor_named(
    configure_toy, process, rehearsed: tuple[RunConfig, Path], epoch: EpochDir, tmp_path: Path
) -> None:
    """Its key is missing; `collab` and the ablations of contrasts and corrections have no use for it."""
    (run, _), out, played = rehearsed, epoch.rollout, load_trajectories(epoch.rollout)
    config = configure_toy("pairs={adversary: 0, contrast: 1, correction: 0}", "adversary=openai")
    assert not config.method.has_adversary
    loop = process(config, tmp_path)
    made = asyncio.run(pair_judged(loop, rollout(run, out, played), asyncio.run(judge_rollout(loop, run, out, played))))
    assert made.pairs
    assert (made.head.adversary, dict(made.head.adversary_options)) == (None, {})
    assert asyncio.run(pair_rollout(loop, rollout(run, out, played), read_labels(out, LABELS))) == made


Asked: TypeAlias = tuple[LoopState, RunConfig, Path, list[Trajectory], LabelSet]


@pytest.fixture
def asked(configure_toy, process, rehearsed: tuple[RunConfig, Path], epoch: EpochDir, tmp_path: Path) -> Asked:
    """A judged rollout whose pairs an adversary alone is asked for."""
    (run, _), out, played = rehearsed, epoch.rollout, load_trajectories(epoch.rollout)
    loop = process(configure_toy("pairs={adversary: 1, contrast: 0, correction: 0}"), tmp_path)
    labels = asyncio.run(judge_rollout(loop, run, out, played))
    return loop, run, out, played, labels


def test_pairs_that_an_adversary_could_mostly_not_be_asked_about_are_made_by_a_resume(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fewer steps than ten failures in a row; what answers half of the time is enough."""
    loop, run, out, played, labels = asked

    async def refuse(self: SamplerAdversary, occasion: Occasion) -> None:
        raise ModelFailure("the server is gone")

    with monkeypatch.context() as patched:
        patched.setattr(SamplerAdversary, "propose", refuse)
        with pytest.raises(
            Halted,
            match=r"asking the adversary, or trying its answers, failed for (\d+) of \1 steps \(\1 ModelFailure\)",
        ):
            asyncio.run(pair_judged(loop, rollout(run, out, played), labels))
    assert list_pair_sets(out) == []
    assert asyncio.run(pair_judged(loop, rollout(run, out, played), labels)).pairs


def test_a_limit_that_an_adversary_reaches_is_told_for_all_that_a_process_does(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, run, out, played, labels = asked
    loop.budget, loop.spent = Budget(tokens=1000), Usage(prompt_tokens=990)
    propose = SamplerAdversary.propose

    async def paid(self: SamplerAdversary, occasion: Occasion) -> AdversaryProposal | None:
        said = await propose(self, occasion)
        return (
            None
            if said is None
            else replace(said, spent=Usage(calls=1, prompt_tokens=20, completion_tokens=0, cost_usd=0.0))
        )

    monkeypatch.setattr(SamplerAdversary, "propose", paid)
    with pytest.raises(Halted, match=r"^budget used up: tokens=1000$"):
        asyncio.run(pair_judged(loop, rollout(run, out, played), labels))
    assert loop.spent.tokens >= 1010


def test_the_pairs_of_a_training_tell_what_a_process_spent_that_died(
    configure_toy, process, rehearsed: tuple[RunConfig, Path], epoch: EpochDir, tmp_path: Path
) -> None:
    """It dies between the adversary's answers and the pairs that are made of them."""
    (run, _), out, played = rehearsed, epoch.rollout, load_trajectories(epoch.rollout)
    clumsy = tmp_path / "clumsy.yaml"
    clumsy.write_text("kind: scripted\noptions: {replies: ['I would rather not.']}\n")
    config = configure_toy(f"adversary={clumsy}", "pairs.contrast=0")
    first, second = process(config, tmp_path), process(config, tmp_path)
    labels = asyncio.run(judge_rollout(first, run, out, played))
    spent = asyncio.run(pair_judged(first, rollout(run, out, played), labels)).head.spent
    assert spent.calls > 0
    shutil.rmtree(out / "pairs")
    assert asyncio.run(pair_judged(second, rollout(run, out, played), labels)).head.spent == spent
    assert second.spent.tokens == 0, "and it paid for nothing itself"


def test_only_the_rollout_of_a_training_belongs_to_one(epoch: EpochDir, tmp_path: Path) -> None:
    assert find_training(epoch.rollout) is None
    TrainingDir(tmp_path).file.write_text("{}")
    assert find_training(epoch.rollout) == TrainingDir(tmp_path.resolve())
    assert find_training(epoch.evaluation) is None
    assert find_training(Path("/")) is None
