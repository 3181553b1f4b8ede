"""A recorded run becomes pairs, and other pairs: by another critic, threshold, source or adversary; once paid for."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections import Counter
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from collab.config import Budget
from collab.errors import ConfigError, UsageError
from collab.library import Library
from collab.models.checkpoint_card import hash_weights
from collab.preferences.adversary import SamplerAdversary
from collab.preferences.explain import IN_NO_PAIR, NOT_REWARDED, OTHER_WORSE
from collab.preferences.pairs import NOTHING
from collab.preferences.rebuild import RebuildRequest, RebuiltPairs, parse_sources, rebuild
from collab.preferences.store import list_pair_sets, read_pairs
from collab.rewards.base import UNREAD, CellScore, CriticInput, Judgement, build_inputs, build_judgement
from collab.rewards.labels import LabelHead, LabelWriter, count_missing, read_labels
from collab.rewards.oracle import SolutionCritic
from collab.store.reader import RunReader
from collab.testing.corridor import CorridorSuite
from collab.testing.tiny_checkpoint import make_tiny_checkpoint
from collab.types import Utterance

Score = Callable[[CriticInput, Utterance], float | None]


class Killed(BaseException):
    """The process is gone."""


def rebuild_pairs(run: Path, library: Library, **given: Any) -> RebuiltPairs:
    if isinstance(source := given.pop("source", None), str):
        given["sources"] = parse_sources(source)
    return asyncio.run(rebuild(RebuildRequest(run=run, **given), library))


def ids(result: RebuiltPairs) -> list[str]:
    assert result.stored is not None
    return [pair.id for pair in result.stored.pairs]


def judged_by_hand(run: Path, name: str, score: Score, steps: int | None = None) -> None:
    """Judgements beside a run: of its first steps, or of all."""

    class ByHand:
        name, version = "hand", "1"

        async def judge(self, case: CriticInput) -> Judgement:
            raise AssertionError("nobody asks")

    with LabelWriter(run, name, LabelHead(critic="hand-1")) as writer, RunReader(run) as reader:
        every = [case for one in reader.iterate_trajectories() for case in build_inputs(one, CorridorSuite().space)]
        for case in every[:steps]:
            scores = {cell.cell: score(case, cell) for cell in case.matrix if cell.action is not None}
            words = {
                cell: CellScore.none("unsure") if value is None else CellScore(score=value)
                for cell, value in scores.items()
            }
            writer.record(build_judgement(case, ByHand(), words))


def cases_of(run: Path) -> list[CriticInput]:
    """All steps of a run."""
    with RunReader(run) as reader:
        return [case for one in reader.iterate_trajectories() for case in build_inputs(one, CorridorSuite().space)]


def executed_best(case: CriticInput, cell: Utterance) -> float:
    return 0.6 if cell.action == case.executed else 0.2


def executed_worst(case: CriticInput, cell: Utterance) -> float:
    return 0.2 if cell.action == case.executed else 0.6


def test_only_episodes_that_count_are_judged_and_paired(run: Path, library: Library) -> None:
    first = cases_of(run)[0].trajectory
    result = asyncio.run(
        rebuild(RebuildRequest(run=run), library, played=lambda reader: islice(reader.iterate_trajectories(), 1))
    )
    assert result.stored is not None
    assert {pair.chosen[0].trajectory for pair in result.stored.pairs} == {first}
    assert (result.judged, result.left_out, result.beyond) == (
        sum(case.trajectory == first for case in cases_of(run)),
        0,
        3,
    )
    assert rebuild_pairs(run, library).beyond == 0


def test_a_run_without_pairs_is_judged_by_the_oracle_and_paired_with_the_sampler(run: Path, library: Library) -> None:
    result, steps = rebuild_pairs(run, library), len(cases_of(run))
    assert result.stored is not None
    head = result.stored.head
    assert (result.stored.name, result.new, result.changes, result.stopped) == ("oracle", True, None, None)
    assert (head.labels, head.critic, head.adversary) == ("oracle", "oracle-2", "sampler-1")
    assert result.judged == steps == len(read_labels(run, "oracle").judged)
    assert head.pairs == head.counts["adversary"] > 0
    assert result.asked >= head.pairs
    assert result.stored == read_pairs(run, "oracle")


@pytest.mark.parametrize(("asked", "most"), [(None, 4), (2, 2)])
def test_so_many_steps_are_asked_about_at_once(
    run: Path, library: Library, monkeypatch: pytest.MonkeyPatch, asked: int | None, most: int
) -> None:
    """As many as the run's episodes were played at once, unless something else is said."""
    judge, now, seen = SolutionCritic.judge, Counter[str](), Counter[str]()

    async def slowly(critic: SolutionCritic, case: CriticInput) -> Judgement:
        now["judged"] += 1
        seen["judged"] = max(seen["judged"], now["judged"])
        await asyncio.sleep(0.01)
        now["judged"] -= 1
        return await judge(critic, case)

    monkeypatch.setattr(SolutionCritic, "judge", slowly)
    rebuild_pairs(run, library, concurrency=asked)
    assert seen["judged"] == most


def test_the_same_again_asks_no_model_and_changes_nothing(run: Path, library: Library) -> None:
    first, again = rebuild_pairs(run, library), rebuild_pairs(run, library)
    assert (again.new, again.judged, again.asked) == (False, 0, 0)
    assert again.stored == first.stored
    assert again.changes is not None
    assert again.changes.difference.empty
    named = rebuild_pairs(run, library, name="copy")
    assert (named.new, ids(named)) == (True, ids(first))
    assert named.changes is not None
    assert named.changes.difference.empty
    assert list_pair_sets(run) == ["oracle", "copy"]


def test_a_threshold_keeps_and_drops_as_counted_by_hand(run: Path, library: Library) -> None:
    judged_by_hand(run, "hand", executed_best)
    every = [(case, cell) for case in cases_of(run) for cell in case.matrix if cell.action is not None]
    best = [cell for case, cell in every if cell.action == case.executed]
    before = rebuild_pairs(run, library, critic="hand", threshold=0.5)
    assert before.stored is not None
    head = before.stored.head
    assert head.pairs + sum(count for cause, count in head.counts.items() if cause != "adversary") == len(best) > 0
    none = rebuild_pairs(run, library, threshold=0.6)
    assert none.changes is not None
    assert (len(ids(none)), len(none.changes.difference.dropped)) == (0, head.pairs)
    assert none.changes.dropped == {NOT_REWARDED: head.pairs}
    back = rebuild_pairs(run, library, threshold=0.5)
    assert (ids(back), back.new, back.asked) == (ids(before), False, 0)


def test_the_opposite_critic_turns_every_contrast_round(run: Path, library: Library) -> None:
    judged_by_hand(run, "up", executed_best)
    judged_by_hand(run, "down", executed_worst)
    apart = [
        case
        for case in cases_of(run)
        if len({cell.action for cell in case.matrix} - {None}) == 2 == len(case.matrix.utterances)
    ]
    up = rebuild_pairs(run, library, critic="up", source="contrast")
    assert (len(ids(up)), up.asked) == (len(apart), 0)
    assert apart
    down = rebuild_pairs(run, library, critic="down")
    assert down.changes is not None
    found = down.changes.difference
    assert (len(found.flipped), found.added, found.dropped, found.kept) == (len(apart), (), (), ())
    assert {before.critic for before, _ in found.flipped} == {"hand-1"}
    assert not (run / "proposals").exists()


def test_a_killed_rebuilding_resumes_and_pays_for_nothing_twice(
    run: Path, library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(run, tmp_path / "whole")
    whole = rebuild_pairs(tmp_path / "whole", library)
    judged, asked = SolutionCritic.judge, SamplerAdversary.propose
    calls = {"judged": 0, "asked": 0}

    async def dying_judge(self: Any, case: Any) -> Any:
        calls["judged"] += 1
        if calls["judged"] == 3:
            raise Killed
        return await judged(self, case)

    async def dying_propose(self: Any, occasion: Any) -> Any:
        calls["asked"] += 1
        if calls["asked"] == 2:
            raise Killed
        return await asked(self, occasion)

    monkeypatch.setattr(SolutionCritic, "judge", dying_judge)
    monkeypatch.setattr(SamplerAdversary, "propose", dying_propose)
    for _ in ("while judging", "while pairing"):
        with pytest.raises((Killed, BaseExceptionGroup)) as died:
            rebuild_pairs(run, library)
        assert died.type is Killed or died.group_contains(Killed, depth=None)
        assert list_pair_sets(run) == []
    result = rebuild_pairs(run, library)
    assert result.judged == 0
    assert calls["judged"] == whole.judged + 1
    assert calls["asked"] == whole.asked + 1
    assert ids(result) == ids(whole)


def test_steps_that_are_not_judged_yet_are_judged_by_who_judged_the_others(run: Path, library: Library) -> None:
    rebuild_pairs(run, library)
    folder = run / "labels" / "oracle" / "events"
    (log,) = folder.glob("*.jsonl")
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join(lines[:-2]))
    result = rebuild_pairs(run, library)
    assert (result.judged, result.new) == (2, False)


def test_the_agents_file_of_a_critic_judges_each_step_once(run: Path, library: Library) -> None:
    rebuild_pairs(run, library)
    result = rebuild_pairs(run, library, critic="judge")
    assert result.stored is not None
    assert result.changes is not None
    assert (result.stored.name, result.changes.against) == ("judge", "oracle")
    assert (result.judged, result.spent.calls) == (len(cases_of(run)), len(cases_of(run)))
    by_ada = [case for case in cases_of(run) if case.matrix.utterances[0].action is not None]
    assert len(result.stored.pairs) == len(by_ada) - result.stored.head.counts.get(NOTHING, 0) > 0
    assert {(pair.critic, pair.chosen[0].cell.agent, len(pair.calls)) for pair in result.stored.pairs} == {
        ("llm-3", "ada", 1)
    }
    (log,) = (run / "labels" / "judge" / "events").glob("*.jsonl")
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:-1]))
    again = rebuild_pairs(run, library)
    assert (again.judged, again.spent.calls, again.new, ids(again)) == (1, 1, False, ids(result))
    with pytest.raises(ConfigError, match="speaks and does not judge"):
        rebuild_pairs(run, library, critic="clumsy")


@pytest.mark.slow
def test_a_reward_model_judges_with_the_weights_that_are_recorded(run: Path, tmp_path: Path, library: Library) -> None:
    weights = make_tiny_checkpoint(tmp_path / "critic", labels=2, hidden=16, layers=1)
    scorer = tmp_path / "scorer.yaml"
    scorer.write_text(f"kind: model\noptions: {{path: {json.dumps(str(weights))}}}\nprompt: critic-model\n")
    first = rebuild_pairs(run, library, critic=str(scorer), budget=Budget(tokens=500))
    assert first.stopped is not None
    assert 0 < first.judged < len(cases_of(run))
    result = rebuild_pairs(run, library, critic=str(scorer))
    assert result.stored is not None
    assert first.judged + result.judged == len(cases_of(run))
    assert (result.stored.name, result.stored.head.critic) == ("scorer", "model-1")
    labels = read_labels(run, "scorer")
    assert labels.head.options["weights"] == hash_weights(weights)
    missing = count_missing(labels)
    assert not missing - Counter({UNREAD: missing[UNREAD]})
    rewards = {key: judgement.rewards.rewards for key, judgement in labels.judged.items()}
    rewarded = {(*key, one.cell) for key, each in rewards.items() for one in each if one.reward}
    better = [side for pair in result.stored.pairs for side in pair.chosen]
    assert {(side.trajectory, side.step, side.cell) for side in better} <= rewarded
    assert rebuild_pairs(run, library, critic=str(scorer)).judged == 0
    make_tiny_checkpoint(weights, labels=2, hidden=16, layers=1, seed=1)
    with pytest.raises(UsageError, match=r"labels 'scorer' of .* were made with other weights; .* --labels scorer-2 "):
        rebuild_pairs(run, library, critic=str(scorer))
    assert (rebuild_pairs(run, library).judged, rebuild_pairs(run, library, labels="scorer").judged) == (0, 0)
    (log,) = sorted((run / "labels" / "scorer" / "events").glob("*.jsonl"))[:1]
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(UsageError, match=r"lack 1 step, were made with other weights; .* --labels scorer-2"):
        rebuild_pairs(run, library)
    renewed = rebuild_pairs(run, library, critic=str(scorer), labels="scorer-2")
    assert renewed.judged == len(cases_of(run))
    assert read_labels(run, "scorer-2").head.options["weights"] == hash_weights(weights)


@pytest.mark.variations
@pytest.mark.parametrize("whole", [True, False])
def test_a_changed_file_is_not_taken_for_the_critic_that_judged(run: Path, tmp_path: Path, whole: bool) -> None:
    (tmp_path / "own" / "agents").mkdir(parents=True)
    mine, own = tmp_path / "own" / "agents" / "mine.yaml", Library(own=tmp_path / "own")
    mine.write_text("kind: outcome\n")
    rebuild_pairs(run, own, critic="mine")
    if not whole:
        (log,) = (run / "labels" / "mine" / "events").glob("*.jsonl")
        log.write_text("".join(log.read_text().splitlines(keepends=True)[:-1]))
    mine.write_text("kind: oracle\n")
    refusal = (
        "were made with critic 'outcome-1', now it is 'oracle-2'; "
        "keep both with --labels mine-2 beside it, or take what is there with --labels mine instead"
    )
    for name in ("mine", str(mine)):
        with pytest.raises(UsageError, match=f"^--critic {name}: labels 'mine' of {run} {refusal}$"):
            rebuild_pairs(run, own, critic=name)
    new = rebuild_pairs(run, own, critic="mine", labels="mine-2")
    assert new.stored is not None
    assert (new.judged, new.stored.head.critic, new.stored.head.labels) == (len(cases_of(run)), "oracle-2", "mine-2")
    assert rebuild_pairs(run, own, critic="mine", labels="mine-2").judged == 0
    old = rebuild_pairs(run, own, labels="mine")
    assert old.stored is not None
    assert (old.judged, old.stored.head.critic, old.stored.head.labels) == (int(not whole), "outcome-1", "mine")


def test_two_files_with_one_stem_are_two_critics(run: Path, tmp_path: Path, library: Library) -> None:
    told = {"one": "kind: outcome\n", "other": "kind: outcome\noptions: {replay: true}\n"}
    files = {name: tmp_path / name / "critic.yaml" for name in told}
    for name, file in files.items():
        file.parent.mkdir()
        file.write_text(told[name])
    rebuild_pairs(run, library, critic=str(files["one"]))
    with pytest.raises(UsageError, match=r"'critic' of .* were made with options\.replay None, now it is True; "):
        rebuild_pairs(run, library, critic=str(files["other"]))
    files["other"].write_text("description: The same.\nkind: outcome\n")
    assert rebuild_pairs(run, library, critic=str(files["other"])).judged == 0


def test_a_name_that_is_only_a_labelling_continues_meaning_it(run: Path, library: Library) -> None:
    """Also if an agent is called so; a critic of that name is another than the one by hand."""
    for name in ("hand", "clumsy", "oracle"):
        judged_by_hand(run, name, executed_best)
    for name in ("hand", "clumsy"):
        result = rebuild_pairs(run, library, critic=name)
        assert result.stored is not None
        assert (result.judged, result.stored.head.labels, result.stored.head.critic) == (0, name, "hand-1")
    with pytest.raises(UsageError, match=r"'oracle' of .* were made with critic 'hand-1', now it is 'oracle-2'"):
        rebuild_pairs(run, library, critic="oracle")
    assert rebuild_pairs(run, library, labels="oracle").judged == 0
    with pytest.raises(UsageError, match=r"--labels new: --critic hand names labels that are there already"):
        rebuild_pairs(run, library, critic="hand", labels="new")


def test_an_agents_file_that_cannot_be_read_hides_no_labels_but_those_of_an_agents_file(
    run: Path, tmp_path: Path
) -> None:
    (tmp_path / "own" / "agents").mkdir(parents=True)
    mine, own = tmp_path / "own" / "agents" / "mine.yaml", Library(own=tmp_path / "own")
    mine.write_text("kind: outcome\n")
    rebuild_pairs(run, own, critic="mine")
    for name in ("mine", "hand"):
        (mine.parent / f"{name}.yaml").write_text("kind: [\n")
    judged_by_hand(run, "hand", executed_best)
    result = rebuild_pairs(run, own, critic="hand")
    assert result.stored is not None
    assert (result.judged, result.stored.head.labels, result.stored.head.critic) == (0, "hand", "hand-1")
    with pytest.raises(ConfigError, match=r"mine\.yaml.*: not YAML"):
        rebuild_pairs(run, own, critic="mine")


def test_errors_name_the_agents_file_and_not_the_labels(run: Path, tmp_path: Path, library: Library) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("kind: llm\noptions: {model: openai}\n")
    with pytest.raises(ConfigError, match=rf"^agents/{mine}: options\.model: got 'openai'"):
        rebuild_pairs(run, library, critic=str(mine), labels="mine-2")
    mine.write_text("kind: llm\noptions: {model: {kind: scripted, options: {replies: [x]}}}\n")
    with pytest.raises(UsageError, match=rf"^--budget usd: agents/{mine} does not say what it costs"):
        rebuild_pairs(run, library, critic=str(mine), labels="mine-2", budget=Budget(usd=1.0))


def test_changes_are_not_explained_by_labels_of_another_critic(run: Path, library: Library) -> None:
    """The labels by which the earlier pairs were made are removed, and made anew by another critic."""
    judged_by_hand(run, "hand", executed_worst)
    rebuild_pairs(run, library, critic="hand", name="earlier")
    shutil.copytree(run, run.parent / "kept")
    shutil.rmtree(run / "labels")
    rebuild_pairs(run, library, critic="judge", labels="hand", name="other")
    kept, renewed = (
        rebuild_pairs(each, library, critic="oracle", against="earlier").changes for each in (run.parent / "kept", run)
    )
    assert kept is not None
    assert renewed is not None
    assert kept.added[NOT_REWARDED] > 0
    assert renewed.added[IN_NO_PAIR] == sum(kept.added.values()) - kept.added[OTHER_WORSE]


def test_steps_that_an_unknown_critic_left_out_are_counted(run: Path, library: Library) -> None:
    judged_by_hand(run, "hand", executed_best, steps=3)
    result = rebuild_pairs(run, library)
    assert result.stored is not None
    head = result.stored.head
    assert (head.labels, result.judged, head.unjudged) == ("hand", 0, len(cases_of(run)) - 3)
    assert {(pair.chosen[0].trajectory, pair.chosen[0].step) for pair in result.stored.pairs} <= {
        case.key for case in cases_of(run)[:3]
    }


def test_whose_labels_decide_is_asked_where_it_is_not_clear(run: Path, library: Library) -> None:
    judged_by_hand(run, "hand", executed_best)
    with LabelWriter(run, "model", LabelHead(critic="llm-1", options={"model": "m"})):
        pass
    with pytest.raises(UsageError, match=r"has labels by hand, model; choose which decide"):
        rebuild_pairs(run, library)
    with pytest.raises(UsageError, match="nothing is judged yet, and they do not record how llm is asked"):
        rebuild_pairs(run, library, critic="model")


def test_an_agents_file_makes_worse_sides_up_once(run: Path, library: Library) -> None:
    first = rebuild_pairs(run, library, adversary="clumsy", name="clumsy")
    assert first.stored is not None
    assert first.stored.head.adversary == "llm-1"
    assert {pair.adversary for pair in first.stored.pairs} == {"llm-1: scripted"}
    assert first.spent.calls == first.asked > 0
    again = rebuild_pairs(run, library, cap=1)
    assert again.stored is not None
    assert (again.stored.name, again.asked, again.spent.calls) == ("oracle", 0, 0)
    assert (again.stored.head.recipe.cap, again.stored.head.adversary) == (1, "llm-1")
    assert rebuild_pairs(run, library, cap=0).stored == first.stored
    sampler = rebuild_pairs(run, library, adversary="sampler", cap=0)
    assert sampler.stored is not None
    assert {pair.adversary for pair in sampler.stored.pairs} != {"llm-1: scripted"}


def test_pairs_end_at_the_first_error_until_something_else_is_said(run: Path, library: Library) -> None:
    whole = rebuild_pairs(run, library, name="whole")
    cut = rebuild_pairs(run, library, stop_at_first_error=True, name="cut")
    capped = rebuild_pairs(run, library, cap=1)
    assert cut.stored is not None
    assert capped.stored is not None
    assert set(ids(cut)) < set(ids(whole))
    assert (cut.stored.head.recipe.stop_at_first_error, capped.stored.head.recipe.stop_at_first_error) == (True, True)
    assert ids(rebuild_pairs(run, library, cap=0, stop_at_first_error=False)) == ids(whole)


def test_adversaries_take_turns_by_weight(run: Path, library: Library) -> None:
    mixed = rebuild_pairs(run, library, adversary="sampler=1,clumsy=1", name="mixed")
    assert mixed.stored is not None
    assert mixed.stored.head.adversary == "mixture-sampler-1+llm-1"
    makers = {str(pair.adversary).partition(":")[0] for pair in mixed.stored.pairs}
    assert makers == {"sampler-1", "llm-1"}
    assert 0 < mixed.spent.calls < mixed.asked
    again = rebuild_pairs(run, library, cap=1)
    assert again.stored is not None
    assert (again.asked, again.stored.head.adversary) == (0, "mixture-sampler-1+llm-1")


def test_a_budget_stops_before_the_adversary_is_asked_again(run: Path, library: Library) -> None:
    whole = rebuild_pairs(run, library, adversary="clumsy", name="whole")
    shutil.rmtree(run / "pairs")
    shutil.rmtree(run / "proposals")
    given: dict[str, Any] = {"adversary": "clumsy", "budget": Budget(tokens=1)}
    result = rebuild_pairs(run, library, **given)
    assert result.stopped is not None
    assert "of 1 token" in result.stopped
    assert (result.stored, result.changes) == (None, None)
    assert 0 < result.asked < whole.asked
    rest = rebuild_pairs(run, library, adversary="clumsy")
    assert result.asked + rest.asked == whole.asked
    assert ids(rest) == ids(whole)


def test_stopping_on_request_keeps_what_was_judged(run: Path, library: Library) -> None:
    async def stopped() -> RebuiltPairs:
        stop = asyncio.Event()
        stop.set()
        return await rebuild(RebuildRequest(run=run), library, stop=stop)

    result = asyncio.run(stopped())
    assert (result.stopped, result.stored) == ("stopped on request", None)
    assert rebuild_pairs(run, library).stopped is None


def test_an_adversary_that_is_gone_ends_it_and_stores_nothing(run: Path, library: Library) -> None:
    gone = rebuild_pairs(run, library, adversary="gone")
    assert gone.stored is None
    assert gone.stopped is not None
    assert re.match(
        r"asking for rejected replies, or trying them, failed for 10 steps in a row, the last: .*scripted", gone.stopped
    )
    assert list_pair_sets(run) == []


def test_no_model_is_asked_to_err_on_a_picture_that_it_is_not_shown(run: Path, library: Library) -> None:
    head = json.loads((run / "run.json").read_text())
    for agent in head["config"]["agents"].values():
        agent["modality"] = "image"
    (run / "run.json").write_text(json.dumps(head))
    for adversary in ("clumsy", "sampler=1,clumsy=1"):
        with pytest.raises(UsageError, match=r"saw pictures alone .* use --adversary sampler, or pairs of"):
            rebuild_pairs(run, library, adversary=adversary)
    assert rebuild_pairs(run, library, adversary="sampler").stored is not None


def test_what_decides_no_answer_makes_nobody_answer_again(run: Path, library: Library) -> None:
    """Another description, more calls at once: neither changes what the adversary says."""
    assert library.own is not None
    file = library.own / "agents" / "clumsy.yaml"
    whole, text = rebuild_pairs(run, library, adversary="clumsy"), file.read_text()
    assert whole.asked > 0
    try:
        file.write_text(f"description: Other words.\nhistory: 2\nprompt: pocket\n{text}")
        again = rebuild_pairs(run, library, adversary="clumsy")
    finally:
        file.write_text(text)
    assert (again.asked, again.new) == (0, False)
    assert ids(again) == ids(whole)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"critic": "orcale"}, "no label set, critic or agents file called 'orcale'; did you mean oracle"),
        ({"labels": "orcale"}, "no label set of .* called 'orcale'; .*say who judges: --critic NAME"),
        ({"critic": "oracle", "labels": "../x"}, "labels called '../x': a name has letters"),
        ({"adversary": "smapler"}, "no adversary called 'smapler'; did you mean sampler"),
        ({"against": "first"}, "no pairs of .* called 'first'"),
        ({"threshold": 1.0}, "threshold 1.0"),
        ({"name": "../x"}, "a name has letters"),
        ({"budget": Budget(usd=1)}, "cost neither money nor tokens"),
        ({"adversary": "sampler", "source": "contrast"}, "ask no adversary"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_asked(
    run: Path, library: Library, given: dict[str, Any], told: str
) -> None:
    with pytest.raises(UsageError, match=told):
        rebuild_pairs(run, library, **given)
    assert not (run / "labels").exists()


def test_a_name_with_other_pairs_is_refused_before_any_call(run: Path, library: Library) -> None:
    rebuild_pairs(run, library)
    proposals = sorted((run / "proposals" / "events").iterdir())
    with pytest.raises(UsageError, match="has other pairs of that name"):
        rebuild_pairs(run, library, name="oracle", threshold=0.2)
    assert sorted((run / "proposals" / "events").iterdir()) == proposals


def test_pairs_of_an_unknown_adversary_ask_for_a_name(run: Path, library: Library) -> None:
    rebuild_pairs(run, library)
    head = run / "pairs" / "oracle" / "pairs.json"
    content = json.loads(head.read_text()) | {"adversary": "odd-1", "adversary_options": {"agent": "who"}}
    head.write_text(json.dumps(content))
    with pytest.raises(UsageError, match="name the adversary: --adversary NAME"):
        rebuild_pairs(run, library, threshold=0.3)
    assert rebuild_pairs(run, library, threshold=0.3, adversary="sampler").new


@pytest.mark.parametrize(
    ("text", "weights"),
    [
        ("adversary", {"adversary": 1}),
        ("mix", {"adversary": 1, "contrast": 1}),
        ("correction", {"correction": 1}),
        ("contrast=2, correction=0.5", {"contrast": 2, "correction": 0.5}),
    ],
)
def test_sources_by_name(text: str, weights: dict[str, float]) -> None:
    assert parse_sources(text).weights == weights


@pytest.mark.parametrize("text", ["both", "adversary=1,adversary=2", "weights=1", "mix,correction"])
def test_a_source_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="allowed are adversary, contrast, correction, mix, or weights"):
        parse_sources(text)


def test_sources_by_weight() -> None:
    assert (parse_sources("adversary=3,contrast=1").adversary, parse_sources("contrast=2").contrast) == (3, 2)
    for wrong in ("adversary=x", "adversary=1,adversary=2", "adversary=-1", "contrast=0", "adversary=nan"):
        with pytest.raises(ConfigError):
            parse_sources(wrong)
