"""Lessons: what is written is what is trained, whatever happens in between, and a step has the loss of the formula."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from collab.config import override
from collab.data.tokenize import NothingFits
from collab.errors import ConfigError, RunFormatError
from collab.models.checkpoint_card import hash_weights
from collab.store.rewards import ReplyRef
from collab.testing.tiny_checkpoint import make_tiny_checkpoint
from collab.trainers.prepare import FinetuneTask
from collab.trainers.recipe import RLRecipe
from collab.trainers.rl.step_estimates import StepEstimate, read_estimates
from collab.trainers.rl.turns import (
    TURNS,
    Lesson,
    Turn,
    prepare_turns,
    read_lesson,
    write_lesson,
)
from collab.trainers.run import begin, train
from collab.trainers.run_dir import FinetuneDir
from collab.types import CellRef

SETTINGS = ("context=200", "batch_rows=4", "rows_at_once=2", "precision=float32", "saved=float32", "log_every=1")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_tiny_checkpoint(tmp_path_factory.mktemp("rl") / "tiny", hidden=32, layers=1, context=512))


def make_turn(number: int, *, temperature: float = 1.0, prompt: int = 9) -> Turn:
    rng = np.random.default_rng(number)
    reply = rng.integers(5, 200, 3 + number % 4).astype(np.int32)
    return Turn(
        run="./epochs/1/rollout",
        ref=ReplyRef(trajectory=f"Task/{number}", step=number % 3, cell=CellRef("ada", 1)),
        prompt=rng.integers(5, 200, prompt).astype(np.int32),
        reply=reply,
        behaviour=None if number % 2 else np.linspace(-1, -0.1, len(reply)).astype(np.float32),
        version=number % 2,
        temperature=temperature,
        state=f"state {number}",
        instance=f"Task#{number}",
        invalid=number == 2,
    )


def make_lesson(
    turns: Sequence[Turn], steps: Sequence[Sequence[int]], weights: Sequence[float] | None = None
) -> Lesson:
    estimate = StepEstimate(run="r", trajectory="t", step=0, reward=1.0, value=0.25, weight=1.0, why="kept")
    return Lesson(turns=turns, weights=weights or [1.0] * len(turns), order=steps, estimates=[estimate])


def run_lesson(
    tiny: str, lesson: Lesson, out: Path, *settings: str, base: str | None = None, **rest: str
) -> FinetuneDir:
    recipe = override(RLRecipe(learning_rate=1e-2, schedule="constant", warmup=0), [*SETTINGS, *settings])
    task = FinetuneTask(stage="rl", base=base or tiny, preset="none", recipe=recipe, **rest)
    prepared = prepare_turns(task, lesson)
    folder = begin(prepared, out)
    train(prepared, folder, device="cpu")
    return folder


@functools.lru_cache(maxsize=2)
def load_float(checkpoint: str) -> Any:
    return AutoModelForCausalLM.from_pretrained(checkpoint).float()


def compute_logp(checkpoint: str, turn: Turn) -> float:
    """Σ log π of a turn's reply at its temperature, by transformers alone."""
    return float(list_logps(checkpoint, turn).sum())


def list_logps(checkpoint: str, turn: Turn) -> Any:
    """Log π of each token of a turn's reply."""
    model = load_float(checkpoint)
    ids = torch.tensor(np.concatenate((turn.prompt, turn.reply)), dtype=torch.long)[None]
    with torch.no_grad():
        logits = model(ids).logits[0, :-1] / turn.temperature
    chosen = logits.log_softmax(-1).gather(-1, ids[0, 1:, None])[:, 0]
    return chosen[len(turn.prompt) - 1 :].double().numpy()


@pytest.mark.medium
@pytest.mark.parametrize("per_token", ["true", pytest.param("false", marks=pytest.mark.slow)])
def test_a_shared_prompt_is_computed_once_with_the_same_weights_behind(
    tiny: str, tmp_path: Path, per_token: str
) -> None:
    """Candidates of two states, one of them taken three times, in steps that also hold a turn of another heat."""
    first, second, hot = make_turn(1, prompt=40), make_turn(2, prompt=30), make_turn(3, temperature=1.5)
    turns = [first, *(replace(first, reply=make_turn(n).reply) for n in (4, 5)), second]
    turns += [replace(second, reply=make_turn(6).reply), hot]
    lesson = make_lesson(turns, [[0, 1, 2, 3, 5], [4, 3, 1, 1, 1, 0]], [1.0, -0.5, 0.25, 2.0, -1.0, 0.5])
    settings = ("loss=ppo-clip", f"per_token={per_token}", "rows_at_once=4", "learning_rate=1e-3")
    found = {one: run_lesson(tiny, lesson, tmp_path / one, *settings, f"sharing={one}") for one in ("none", "prefix")}
    packed, padded = (load_file(found[one].final / "model.safetensors") for one in ("prefix", "none"))
    before = load_file(Path(tiny) / "model.safetensors")
    assert any((packed[name] - before[name]).abs().max() > 1e-4 for name in packed)
    assert all(torch.allclose(packed[name], padded[name], atol=2e-5) for name in packed)
    # Four rows of the second step share a prompt of 40 tokens, and three of them are the same.
    recipe = override(RLRecipe(learning_rate=1e-2), [*SETTINGS, "rows_at_once=4", "sharing=prefix"])
    prepared = prepare_turns(FinetuneTask(stage="rl", base=tiny, preset="none", recipe=recipe), lesson)
    assert prepared.steps[1].parts == ((3, 4), (0, 1, 1, 1))
    lengths = [len(turn.reply) for turn in turns]
    assert prepared.count_computed(prepared.steps[1].parts[1]) <= 40 + lengths[0] + lengths[1]


def test_what_is_written_is_read_again_and_a_change_is_refused(tmp_path: Path) -> None:
    lesson = make_lesson([make_turn(one) for one in range(5)], [(0, 1, 1), (4, 2)], [1.0, 0.5, 2.0, 1.0, 0.0])
    digest = write_lesson(lesson, tmp_path / "lesson", "resume")
    found = read_lesson(tmp_path / "lesson")
    assert found.order == [(0, 1, 1), (4, 2)]
    assert found.weights == [1.0, 0.5, 2.0, 1.0, 0.0]
    for was, now in zip(lesson.turns, found.turns, strict=True):
        for name in ("prompt", "reply", "behaviour"):
            np.testing.assert_array_equal(getattr(was, name), getattr(now, name))
        blank = {"prompt": now.prompt, "reply": now.reply, "behaviour": now.behaviour}
        assert replace(was, **blank).ref == now.ref
        assert (was.version, was.temperature, was.state) == (now.version, now.temperature, now.state)
        assert (was.instance, was.invalid) == (now.instance, now.invalid)
    (estimate,) = read_estimates(tmp_path / "lesson")
    assert (estimate.value, estimate.value_next, estimate.why) == (0.25, None, "kept")
    other = make_lesson([make_turn(9), *lesson.turns[1:]], lesson.order, lesson.weights)
    assert write_lesson(other, tmp_path / "other", "resume") != digest
    (tmp_path / "other" / TURNS).replace(tmp_path / "lesson" / TURNS)
    with pytest.raises(RunFormatError, match="the lesson has changed since it was written"):
        read_lesson(tmp_path / "lesson")


@pytest.mark.medium
def test_the_loss_of_a_step_is_the_weighted_mean_at_each_turns_own_temperature(tiny: str, tmp_path: Path) -> None:
    turns = [make_turn(0), make_turn(1, temperature=0.5), make_turn(2), make_turn(3, temperature=0.5)]
    weights = [1.0, 2.0, 0.0, 0.5]
    folder = run_lesson(tiny, make_lesson(turns, [(0, 1, 2, 3)], weights), tmp_path / "run")
    wanted = -sum(weight * compute_logp(tiny, turn) for weight, turn in zip(weights, turns, strict=True)) / 4
    assert folder.read_metrics()[0]["loss"] == pytest.approx(wanted, rel=1e-4)
    tokens = sum(len(turn.reply) for turn in turns)
    folder = run_lesson(tiny, make_lesson(turns, [(0, 1, 2, 3)], weights), tmp_path / "tokens", "per_token=true")
    assert folder.read_metrics()[0]["loss"] == pytest.approx(wanted * 4 / tokens, rel=1e-4)


@pytest.mark.medium
def test_a_lesson_makes_its_turns_likelier_and_weights_of_zero_change_nothing(tiny: str, tmp_path: Path) -> None:
    turns = [make_turn(one) for one in range(4)]
    before = [compute_logp(tiny, one) for one in turns]
    final = run_lesson(tiny, make_lesson(turns, [(0, 1, 2, 3)] * 5), tmp_path / "run").final
    assert all(compute_logp(str(final), turn) > was + 0.5 for turn, was in zip(turns, before, strict=True))
    nothing = run_lesson(tiny, make_lesson(turns, [(0, 1, 2, 3)] * 2, [0.0] * 4), tmp_path / "nothing").final
    same = [AutoModelForCausalLM.from_pretrained(one).state_dict() for one in (tiny, nothing)]
    assert all(torch.equal(same[0][name], same[1][name]) for name in same[0])


@pytest.mark.medium
def test_a_clipped_ratio_is_taken_to_the_policy_before_the_first_step(tiny: str, tmp_path: Path) -> None:
    """Also by a process that resumes after the first step: π_old is not the policy that it finds."""
    turns = [make_turn(one, temperature=1.0 if one % 2 else 0.5) for one in range(4)]
    advantages, order, ppo = [1.0, -1.0, 2.0, 0.5], [(0, 1, 2, 3)] * 2, ("loss=ppo-clip", "per_token=true")
    lesson = make_lesson(turns, order, advantages)
    lines = run_lesson(tiny, lesson, tmp_path / "run", *ppo).read_metrics()
    # At first both are equal: every ratio is 1, and the loss is the mean advantage over tokens.
    tokens = [len(turn.reply) for turn in turns]
    mean = np.average(advantages, weights=tokens)
    assert lines[0]["loss"] == pytest.approx(-mean, rel=1e-5)
    assert (lines[0]["ratio"], lines[0]["clipped"]) == (pytest.approx(1, abs=1e-6), 0)
    # Then π is what the first step made, and π_old what it began with; a ratio may have left the clip on one side.
    first = str(run_lesson(tiny, make_lesson(turns, order[:1], advantages), tmp_path / "first", *ppo).final)
    old, new = ([list_logps(one, turn) for turn in turns] for one in (tiny, first))
    ratios = [np.exp(after - before) for before, after in zip(old, new, strict=True)]
    terms = [
        np.minimum(ratio * advantage, ratio.clip(0.8, 1.2) * advantage)
        for ratio, advantage in zip(ratios, advantages, strict=True)
    ]
    assert lines[1]["loss"] == pytest.approx(-np.concatenate(terms).mean(), rel=1e-3)
    away = np.concatenate(ratios)
    assert lines[1]["ratio"] == pytest.approx(away.mean(), rel=1e-3)
    assert 0 < lines[1]["clipped"] == pytest.approx((abs(away - 1) > 0.2).mean(), abs=0.01)
    # What was recorded is another policy's here: random numbers.
    apart = np.concatenate([abs(old[one] - turns[one].behaviour) for one in (0, 2)])
    assert lines[0]["mismatch"] == pytest.approx(apart.mean(), rel=1e-3)

    recipe = override(RLRecipe(learning_rate=1e-2, schedule="constant", warmup=0), [*SETTINGS, *ppo])
    task = FinetuneTask(stage="rl", base=tiny, preset="none", recipe=recipe)
    folder = begin(prepare_turns(task, lesson), tmp_path / "killed")
    assert train(prepare_turns(task, lesson), folder, device="cpu", stopping=lambda: True).final is None
    train(prepare_turns(task, lesson), folder, device="cpu")
    assert folder.read_metrics()[1]["loss"] == lines[1]["loss"]


def test_a_reply_whose_ratio_left_the_clip_is_not_pushed_on(tiny: str, tmp_path: Path) -> None:
    """With one reply to learn from, ever the same, the first steps leave ε behind, and later ones change nothing."""
    lesson = make_lesson([make_turn(1)], [(0,)] * 4, [1.0])
    lines = run_lesson(tiny, lesson, tmp_path / "run", "loss=ppo-clip", "clip=0.01").read_metrics()
    assert lines[0]["grad_norm"] > 0
    assert [line["grad_norm"] for line in lines[1:]] == [0, 0, 0]


@pytest.mark.parametrize("merge", [True, False])
def test_an_adapter_hands_moments_on_only_if_it_is_kept(tiny: str, tmp_path: Path, merge: bool) -> None:
    turns = [make_turn(one) for one in range(4)]
    lora = f"lora={{rank: 4, merge: {str(merge).lower()}}}"
    folder = run_lesson(tiny, make_lesson(turns, [(0, 1, 2, 3)] * 2), tmp_path / "run", lora)
    assert folder.moments.exists() is not merge
    assert (folder.final / "adapter_config.json").exists() is not merge


@pytest.mark.parametrize("loss", ["ppo-clip", pytest.param("likelihood", marks=pytest.mark.slow)])
def test_learning_with_an_adapter_reaches_the_adapter_alone(tiny: str, tmp_path: Path, loss: str) -> None:
    turns = [make_turn(one) for one in range(4)]
    folder = run_lesson(
        tiny,
        make_lesson(turns, [(0, 1, 2, 3)] * 2, [1.0, -1.0, 2.0, 0.5]),
        tmp_path / "run",
        "lora={rank: 4, merge: false}",
        f"loss={loss}",
    )
    written = load_file(folder.final / "adapter_model.safetensors")
    # Nothing else is written; matrices B, which are 0 at first, have moved.
    assert {name.rsplit(".", 2)[1] for name in written} == {"lora_A", "lora_B"}
    assert all(one.abs().max() > 0 for name, one in written.items() if "lora_B" in name)


@pytest.mark.medium
def test_two_runs_that_hand_moments_on_end_like_one(tiny: str, tmp_path: Path) -> None:
    turns = [make_turn(one) for one in range(6)]
    steps = [(0, 1, 2), (3, 4), (5, 0), (1, 3, 5)]
    whole = run_lesson(tiny, make_lesson(turns, steps), tmp_path / "whole")
    first = run_lesson(tiny, make_lesson(turns, steps[:2]), tmp_path / "first")
    second = run_lesson(
        tiny, make_lesson(turns, steps[2:]), tmp_path / "second", base=str(first.final), moments=str(first.moments)
    )
    assert hash_weights(second.final) == hash_weights(whole.final)
    fresh = run_lesson(tiny, make_lesson(turns, steps[2:]), tmp_path / "fresh", base=str(first.final))
    assert hash_weights(fresh.final) != hash_weights(whole.final)
    assert not run_lesson(
        tiny, make_lesson(turns, steps[:1]), tmp_path / "none", "keeps_optimizer=false"
    ).moments.exists()
    first.moments.write_bytes(b"no moments")
    with pytest.raises(RunFormatError, match="moments cannot be read"):
        run_lesson(tiny, make_lesson(turns, steps[:1]), tmp_path / "bad", moments=str(first.moments))


def test_turns_that_are_too_long_are_left_out_of_their_steps_and_counted(tiny: str) -> None:
    turns = [make_turn(0), make_turn(1, prompt=400), make_turn(2)]
    recipe = override(RLRecipe(learning_rate=1e-2), SETTINGS)
    task = FinetuneTask(stage="rl", base=tiny, preset="none", recipe=recipe)
    prepared = prepare_turns(task, make_lesson(turns, [(0, 1), (1,), (2, 1, 0)]))
    assert [sorted(step.rows) for step in prepared.steps] == [[0], [0, 2]]
    assert prepared.encoded.dropped == {"turn": 1}
    with pytest.raises(NothingFits, match="none of 1 row fits into context 200"):
        prepare_turns(task, make_lesson([make_turn(1, prompt=400)], [(0,)]))


def test_passes_of_a_step_have_one_temperature_each(tiny: str) -> None:
    turns = [make_turn(one, temperature=0.5 if one % 2 else 1.0) for one in range(6)]
    task = FinetuneTask(stage="rl", base=tiny, preset="none", recipe=override(RLRecipe(learning_rate=1e-2), SETTINGS))
    (step,) = prepare_turns(task, make_lesson(turns, [range(6)])).steps
    assert sorted(step.rows) == list(range(6))
    assert all(len({turns[row].temperature for row in part}) == 1 and len(part) <= 2 for part in step.parts)


@pytest.mark.parametrize("setting", ["optimizer=muon", "temperature=0.5"])
def test_what_turns_cannot_be_learned_with_is_refused(setting: str) -> None:
    with pytest.raises(ConfigError, match=setting.partition("=")[0]):
        override(RLRecipe(learning_rate=1e-2), [setting])
