"""From a pair back to the screen, the prompt and the critic's words."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collab.errors import UnknownName, UsageError
from collab.preferences.adversary import SamplerAdversary
from collab.preferences.explain import PairExplainer, read_current_labels
from collab.preferences.pairs import PairRecipe, Sources, build_run_pairs
from collab.preferences.store import read_pair_head, write_pairs
from collab.preferences.trajectory_pairs import build_trajectory_pairs
from collab.rewards.base import CellScore, CriticCall, CriticInput, build_inputs, build_judgement
from collab.rewards.labels import LabelHead, LabelSet, LabelWriter, read_labels
from collab.rewards.oracle import SolutionCritic
from collab.rewards.restore import StateRebuilder
from collab.store.reader import RunReader
from collab.store.rewards import PreferencePair


class Spoken:
    """The environment's own critic, as if a model had been asked about each step."""

    name, version = "spoken", "1"

    async def judge(self, case: CriticInput) -> Any:
        known = await SolutionCritic().judge(case)
        words = {
            one.cell: CellScore(score=one.score, reason=one.reason, missing=one.missing)
            for one in known.rewards.rewards
        }
        asked = f"about step {case.step}"
        return build_judgement(
            case, self, words, [CriticCall(prompt=asked, model="m", seed=0, reply="…", cells=(*words,))]
        )


@pytest.fixture(scope="module")
def judged(phone) -> LabelSet:  # type: ignore[no-untyped-def]
    suite, _, trajectories = phone

    async def judge() -> LabelSet:
        found = [
            await Spoken().judge(case)
            for trajectory in trajectories
            for case in build_inputs(trajectory, suite.space, StateRebuilder(suite))
        ]
        return LabelSet(
            name="spoken", head=LabelHead(critic="spoken-1"), judged={one.key: one for one in found}, failed={}
        )

    return asyncio.run(judge())


@pytest.fixture
def reader(phone) -> Iterator[RunReader]:  # type: ignore[no-untyped-def]
    with RunReader(phone[1]) as opened:
        yield opened


MIX = Sources(adversary=1, contrast=1)


def pairs(phone: Any, reader: RunReader, labels: LabelSet, sources: Sources = MIX) -> tuple[PreferencePair, ...]:
    suite, _, trajectories = phone
    recipe = PairRecipe(sources=sources)
    made = build_run_pairs(
        trajectories, labels, recipe, space=suite.space, prefix=reader.read_prefix, adversary=SamplerAdversary()
    )
    return asyncio.run(made).pairs


def test_every_pair_leads_back_to_screen_prompt_and_words(phone, reader, judged) -> None:  # type: ignore[no-untyped-def]
    made = pairs(phone, reader, judged)
    assert {one.source for one in made} == {"adversary", "contrast"}
    steps = {(one.id, step.index): step for one in phone[2] for step in one.steps}
    for one in made:
        told, (where,) = PairExplainer(reader, judged, phone[0].space).explain(one), one.chosen
        step = steps[where.trajectory, where.step]
        assert told.screen == step.observation
        assert told.prompt.suffix == step.matrix[where.cell].prompt.suffix
        assert told.goal in told.prompt.shared
        assert (told.chosen.text, told.chosen.score) == (step.matrix[where.cell].text, 1.0)
        assert "left" in told.chosen.because or "success" in told.chosen.because
        assert told.chosen.call is not None
        assert (told.chosen.call.prompt,) == one.calls
        assert told.chosen.action != told.rejected.action != "none"
        if one.source == "adversary":
            assert (told.rejected.text, told.rejected.cell, told.rejected.score) == (one.synthetic, None, None)
            assert not told.off_context
        else:
            assert told.rejected.cell == one.rejected[0].cell
            assert told.rejected.score in (0.0, 0.5)


def test_a_correction_shows_what_the_cell_that_erred_had_read(phone: Any, reader: RunReader, judged: LabelSet) -> None:
    made = pairs(phone, reader, judged, Sources(adversary=0, correction=1))
    assert made
    steps = {(one.id, step.index): step for one in phone[2] for step in one.steps}
    for one in made:
        told, (good,), (bad,) = PairExplainer(reader, judged, phone[0].space).explain(one), one.chosen, one.rejected
        step = steps[bad.trajectory, bad.step]
        assert told.prompt.suffix == step.matrix[bad.cell].prompt.suffix != step.matrix[good.cell].prompt.suffix
        assert (told.chosen.text, told.rejected.text) == (step.matrix[good.cell].text, step.matrix[bad.cell].text)
        assert told.chosen.score == 1.0
        assert told.rejected.score in (0.0, 0.5)


def test_words_of_another_critic_are_not_shown_as_the_pairs(phone, reader, judged) -> None:  # type: ignore[no-untyped-def]
    one = pairs(phone, reader, judged)[0]
    for critic, labels in (("oracle-2", judged), ("spoken-1", None)):
        told = PairExplainer(reader, labels, phone[0].space).explain(replace(one, critic=critic))
        assert (told.chosen.score, told.chosen.because, told.chosen.call) == (None, "", None)


def test_labels_that_were_made_anew_by_another_are_not_those_of_the_pairs(
    phone: Any, reader: RunReader, judged: LabelSet, tmp_path: Path
) -> None:
    run, recipe = tmp_path / "run", PairRecipe(sources=MIX)
    shutil.copytree(phone[1], run)

    def written(seed: int) -> LabelSet:
        shutil.rmtree(run / "labels", ignore_errors=True)
        with LabelWriter(run, "spoken", replace(judged.head, seed=seed)) as writer:
            for one in judged.judged.values():
                writer.record(one)
        return read_labels(run, "spoken")

    by = build_run_pairs(
        phone[2], judged, recipe, space=phone[0].space, prefix=reader.read_prefix, adversary=SamplerAdversary()
    )
    labels, made = written(0), asyncio.run(by)
    write_pairs(run, "spoken", made, recipe=recipe, labels=labels, adversary="sampler-1")
    write_pairs(run, "whole", made, recipe=recipe, labels=None, adversary=None)
    head = read_pair_head(run, "spoken")
    assert read_current_labels(run, head) == labels
    assert read_current_labels(run, read_pair_head(run, "whole")) is None
    written(1)
    assert read_current_labels(run, head) is None
    shutil.rmtree(run / "labels")
    assert read_current_labels(run, head) is None


def test_what_is_not_there_is_said(phone, reader, judged) -> None:  # type: ignore[no-untyped-def]
    one, space = pairs(phone, reader, judged)[0], phone[0].space
    with pytest.raises(UsageError, match="was played again since"):
        PairExplainer(reader, judged, space).explain(replace(one, prompt="other"))
    (where,) = one.chosen
    with pytest.raises(UnknownName, match="no step 999"):
        PairExplainer(reader, judged, space).explain(replace(one, chosen=(replace(where, step=999),)))
    first = phone[2][0]
    lost = replace(first, id="x/1", outcome=replace(first.outcome, success=not first.success))
    whole = build_trajectory_pairs([first, lost], seed=0)
    with pytest.raises(UsageError, match="whole trajectories"):
        PairExplainer(reader, judged, space).explain(whole[0])


def test_many_pairs_are_looked_up_as_each_alone(phone, reader, judged) -> None:  # type: ignore[no-untyped-def]
    made, look = pairs(phone, reader, judged), PairExplainer(reader, judged, phone[0].space)
    for one in (*made, made[0]):
        told = PairExplainer(reader, judged, phone[0].space).explain(one)
        assert look.explain(one) == told
        assert look.find_sides(one) == (told.chosen, told.rejected)
