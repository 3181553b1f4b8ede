"""A fine-tuning run from rows to a checkpoint: which weights learn, and from which loss."""

import asyncio
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM
from trl import SFTConfig

from collab.data.example import Example
from collab.errors import TrainingFailure
from collab.models.base import Reply, Request
from collab.models.local import LocalModel
from collab.models.tokenizer import ChatTokenizer
from collab.trainers.base_model import silence_libraries
from collab.trainers.prepare import prepare
from collab.trainers.run import begin, train
from collab.trainers.run_dir import FinetuneDir
from collab.trainers.trainer import _as_said, build_trainer
from collab.types import Sampling
from tests.trainers.finetuned import first_loss, same, trained, weights


@pytest.mark.variations
@pytest.mark.parametrize("temperature", [1.0, 1.5])
def test_the_loss_is_the_mean_over_reply_tokens(temperature: float, samples, base: Path, tmp_path: Path) -> None:
    """By hand: −log p of each reply token after its prompt, over the tokens of a step, prompts not counted."""
    settings = ("epochs=1", "batch_rows=3", "rows_at_once=2", f"temperature={temperature}")
    prepared = prepare(samples.task(base, "sft", *settings), samples.rows(3, ["basic"]))
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    total, count = 0.0, 0
    for row in prepared.steps[0].rows:
        item = prepared.encoded.items[row]
        with torch.no_grad():
            logps = (model(input_ids=torch.tensor(item.ids)[None]).logits[0] / temperature).log_softmax(-1)
        for place in range(item.scored_from, len(item)):
            total -= float(logps[place - 1, item.ids[place]])
            count += 1
    assert first_loss(prepared, tmp_path / "out") == pytest.approx(total / count, rel=1e-5)


@pytest.mark.slow
def test_a_step_in_several_passes_learns_the_same(samples, base: Path, tmp_path: Path) -> None:
    """Accumulated passes are weighted by their tokens, so the division into passes changes nothing but rounding."""
    rows = samples.rows(4)
    made = [
        weights(
            trained(prepare(samples.task(base, "sft", "epochs=1", f"rows_at_once={size}"), rows), tmp_path / str(size))
        )
        for size in (2, 8)
    ]
    for name, value in made[0].items():
        torch.testing.assert_close(value, made[1][name], rtol=1e-3, atol=2e-4)


@pytest.mark.slow
def test_it_learns_the_replies(samples, base: Path, tmp_path: Path) -> None:
    prepared = prepare(
        samples.task(base, "sft", "epochs=40", "learning_rate=2e-2", "schedule=constant"), samples.rows(4, ["basic"])
    )
    final = trained(prepared, tmp_path / "out")
    lines = FinetuneDir(tmp_path / "out").read_metrics()
    assert lines[0]["loss"] > 5 > 1 > lines[-1]["loss"]
    assert [line["step"] for line in lines] == list(range(1, len(prepared.steps) + 1))
    assert lines[-1]["tokens"] == sum(prepared.step_tokens)
    assert ChatTokenizer(str(final)).fingerprint == ChatTokenizer(str(base)).fingerprint
    assert json.loads((final / "card.json").read_text())["base"]["digest"] == prepared.base.digest


@pytest.mark.slow
def test_with_lora_the_base_stays_as_it_is(samples, base: Path, tmp_path: Path) -> None:
    """Every adapter gets a gradient; nothing else has one. The merged result differs where there are adapters alone."""
    task = samples.task(base, "sft", "epochs=2", "lora={rank: 4, alpha: 8, merge: true}")
    prepared = prepare(task, samples.rows(4))
    with silence_libraries():
        trainer = build_trainer(prepared, FinetuneDir(tmp_path / "look"), "cpu", ())
    names = {name for name, weight in trainer.model.named_parameters() if weight.requires_grad}
    assert names == {name for name, _ in trainer.model.named_parameters() if "lora_" in name}
    assert len(names) == 2 * 7 * 2  # two matrices for seven linear layers in two blocks
    before, after = weights(base), weights(trained(prepared, tmp_path / "out"))
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {name for name in before if name.endswith("_proj.weight")}


@pytest.mark.slow
def test_an_adapter_that_is_not_merged_is_played_over_its_base(samples, base: Path, tmp_path: Path) -> None:
    """The engine's log-probability of a reply under base and adapter is that of the trained model."""
    task = samples.task(base, "sft", "epochs=20", "learning_rate=1e-2", "lora={rank: 8}")
    rows = samples.rows(4, ["basic"])
    final = trained(prepare(task, rows), tmp_path / "out")
    assert not (final / "model.safetensors").exists()

    async def asked() -> Reply:
        model = LocalModel(path=str(base), adapter=str(final))
        request = Request(prompt=rows[0].prompt, sampling=Sampling(temperature=0.0, max_tokens=4), seed=0)
        reply = await model.generate(request)
        await model.close()
        return reply

    def by_hand(model, reply: Reply) -> list[float]:
        prompt = ChatTokenizer(str(base)).prompt_ids(rows[0].prompt).ids
        with torch.no_grad():
            logps = model(input_ids=torch.tensor([[*prompt, *reply.tokens]])).logits[0].log_softmax(-1)
        return [float(logps[len(prompt) + place - 1, token]) for place, token in enumerate(reply.tokens)]

    reply, plain = asyncio.run(asked()), AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    assert by_hand(plain, reply) != pytest.approx(reply.logprobs, abs=0.05)
    assert by_hand(PeftModel.from_pretrained(plain, final), reply) == pytest.approx(reply.logprobs, abs=1e-3)


def test_full_weights_all_learn(samples, base: Path, tmp_path: Path) -> None:
    before, after = (
        weights(base),
        weights(trained(prepare(samples.task(base, "sft"), samples.rows(4)), tmp_path / "out")),
    )
    assert not [name for name in before if torch.equal(before[name], after[name])]


@pytest.mark.slow
def test_a_result_is_written_in_the_type_that_was_asked(samples, base: Path, tmp_path: Path) -> None:
    prepared = prepare(samples.task(base, "sft", "epochs=1", "saved=bfloat16"), samples.rows(2))
    assert {value.dtype for value in weights(trained(prepared, tmp_path / "out")).values()} == {torch.bfloat16}


def test_levels_are_trained_in_order(samples, base: Path, tmp_path: Path) -> None:
    prepared = prepare(samples.task(base, "sft", "epochs=1", "levels=[instruction, basic]"), samples.rows(8))
    trained(prepared, tmp_path / "out")
    assert [line["group"] for line in FinetuneDir(tmp_path / "out").read_metrics()] == ["instruction", "basic"]


@pytest.mark.medium
def test_a_training_that_stops_early_is_the_beginning_of_a_whole_one(samples, base: Path, tmp_path: Path) -> None:
    def train(name: str, *settings: str) -> list[float]:
        task = samples.task(base, "sft", "epochs=2", "schedule=constant", "warmup=0", *settings)
        trained(prepare(task, samples.rows(8)), tmp_path / name)
        return [line["loss"] for line in FinetuneDir(tmp_path / name).read_metrics()]

    whole, short = train("whole"), train("short", "max_steps=3")
    assert len(whole) > 3
    assert short == whole[:3]


@pytest.mark.slow
def test_the_copy_stage_needs_no_rows(samples, base: Path, tmp_path: Path) -> None:
    prepared = prepare(samples.task(base, "copy", "steps=6", "simple=0.5"), [])
    assert [step.group for step in prepared.steps] == ["copy"] * 3 + ["copy-varied"] * 3
    uneven = prepare(samples.task(base, "copy", "steps=3", "simple=0.5"), [])
    assert [len(step.rows) for step in uneven.steps] == [uneven.task.recipe.batch_rows] * 3
    trained(prepared, tmp_path / "out")


@pytest.mark.slow
def test_activations_computed_twice_train_the_same(samples, base: Path, tmp_path: Path) -> None:
    """With and without an adapter, whose first layer has no input with a gradient of its own."""
    for lora in ("null", "{rank: 4, merge: true}"):
        one, two = (
            weights(
                trained(
                    prepare(samples.task(base, "sft", "epochs=1", f"lora={lora}", f"checkpointing={how}"), rows), out
                )
            )
            for rows in [samples.rows(4)]
            for how, out in (("true", tmp_path / f"{lora[:2]}t"), ("false", tmp_path / f"{lora[:2]}f"))
        )
        assert not same(one, weights(base))
        for name, value in one.items():
            torch.testing.assert_close(value, two[name], rtol=1e-5, atol=1e-6)


def test_the_recipe_alone_decides_the_precision(samples, base: Path, tmp_path: Path, monkeypatch) -> None:
    """A launcher's own configuration says it in the environment, and would win."""
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    with silence_libraries():
        trainer = build_trainer(prepare(samples.task(base, "sft"), samples.rows(2)), FinetuneDir(tmp_path), "cpu", ())
    assert trainer.accelerator.mixed_precision == "no"


@pytest.mark.parametrize(("optimizer", "known"), [("adamw", ["betas"]), ("muon", ["momentum"])])
def test_optimizer_and_adapter_are_those_of_the_recipe(
    samples, base: Path, tmp_path: Path, optimizer: str, known: list[str]
) -> None:
    numbers = ["betas=[0.8, 0.95]", "weight_decay=0.07", "max_grad_norm=0.3", "lora={rank: 2, alpha: 6, dropout: 0.25}"]
    task = samples.task(base, "sft", *numbers, f"optimizer={optimizer}")
    with silence_libraries():
        trainer = build_trainer(prepare(task, samples.rows(2)), FinetuneDir(tmp_path), "cpu", ())
    groups = trainer.create_optimizer().param_groups
    assert [name for group in groups for name in ("momentum", "betas") if group["params"] and name in group] == known
    assert {group["betas"] for group in groups if "betas" in group} == {(0.8, 0.95)}
    assert {group["weight_decay"] for group in groups if group["params"]} == {0.07}
    assert trainer.args.max_grad_norm == 0.3
    adapter = trainer.model.base_model.model.model.layers[0].self_attn.q_proj
    assert adapter.scaling["default"] == 6 / 2
    assert adapter.lora_dropout["default"].p == 0.25


def test_precision_checkpointing_and_seed_reach_the_model(samples, base: Path, tmp_path: Path) -> None:
    def made(how: str, seed: int):
        settings = [f"checkpointing={how}", "precision=bfloat16", "lora={rank: 2}"]
        with silence_libraries():
            task = samples.task(base, "sft", *settings, seed=seed)
            return build_trainer(prepare(task, samples.rows(2)), FinetuneDir(tmp_path), "cpu", ())

    one, two, other = made("true", 0), made("false", 0), made("false", 1)
    assert {trainer.accelerator.mixed_precision for trainer in (one, two, other)} == {"bf16"}
    assert (one.args.gradient_checkpointing, two.args.gradient_checkpointing) == (True, False)
    assert len({trainer.args.seed for trainer in (one, two, other)}) == 2


def test_a_process_takes_one_of_several_gpus(tmp_path: Path) -> None:
    """More than one would be driven by threads over one model, whose forward pass is ours."""
    config = SFTConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False)
    config._n_gpu = 4
    _as_said(config)
    assert config.n_gpu == 1


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [
        pytest.param("constant", [0, 0.5, 1, 1, 1, 1, 1, 1], marks=pytest.mark.slow),
        pytest.param("linear", [0, 0.5, 1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6], marks=pytest.mark.slow),
        ("cosine", [0, 0.5, 1, 0.9330, 0.75, 0.5, 0.25, 0.0670]),
    ],
)
def test_the_learning_rate_rises_and_falls(samples, base: Path, tmp_path: Path, schedule: str, rates) -> None:
    """Two of eight steps of warm-up, then (1 + cos π x) / 2, 1 − x or 1, with x from 0 on over the six that follow."""
    task = samples.task(base, "sft", "epochs=4", f"schedule={schedule}", "warmup=0.25", "learning_rate=1e-3")
    trained(prepare(task, samples.rows(16, ["basic"])), tmp_path / "out")
    found = [line["learning_rate"] for line in FinetuneDir(tmp_path / "out").read_metrics()]
    assert found == pytest.approx([1e-3 * rate for rate in rates], abs=1e-7)


def test_a_loss_that_is_no_number_ends_the_run(samples, base: Path, tmp_path: Path) -> None:
    prepared = prepare(samples.task(base, "sft", "epochs=4", "learning_rate=1e30"), samples.rows(8, ["basic"]))
    folder = begin(prepared, tmp_path / "out")
    with pytest.raises(TrainingFailure, match=r"step \d: \w+ is nan; .* lower learning_rate"):
        train(prepared, folder, device="cpu")
    assert not folder.final.exists()
    assert "NaN" not in folder.metrics.read_text()


@pytest.mark.slow
@pytest.mark.parametrize(("steps", "rate", "lost"), [(4, "1e30", 2), (1, "1e38", 1)])
def test_no_checkpoint_is_kept_of_weights_that_are_no_numbers(
    samples, base: Path, tmp_path: Path, steps: int, rate: str, lost: int
) -> None:
    """No logged loss tells of it: they are lost in a step that is not logged, or by the last step of all."""
    asked = (f"epochs={steps}", f"learning_rate={rate}", "log_every=100", "save_every=2", "optimizer=adamw")
    prepared = prepare(samples.task(base, "sft", *asked, "schedule=constant"), samples.rows(8, ["basic"]))
    assert len(prepared.steps) == steps
    folder = begin(prepared, tmp_path / "out")
    with pytest.raises(TrainingFailure, match=rf"^step {lost}: some weights are no numbers; .* lower learning_rate"):
        train(prepared, folder, device="cpu")
    assert [line["step"] for line in folder.read_metrics()] == [1]
    assert folder.find_checkpoint() is None
    assert not folder.final.exists()


# ----------------------------------------------------------------------------------------------------- preferences


@pytest.mark.slow
def test_dpo_starts_at_the_loss_of_equal_policies(samples, base: Path, tmp_path: Path) -> None:
    """Policy and reference are equal at first: −log σ(0) = log 2, margin 0; the anchor adds mean −log p."""
    rows = samples.rows(4, ["preference"])
    plain = first_loss(prepare(samples.task(base, "dpo", "anchor=0", "batch_rows=4"), rows), tmp_path / "plain")
    assert plain == pytest.approx(0.693147, abs=1e-5)
    prepared = prepare(samples.task(base, "dpo", "anchor=0.5", "batch_rows=4"), rows)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    total, count = 0.0, 0
    for pair in prepared.encoded.items:
        ids = [*pair.prompt, *pair.chosen]
        with torch.no_grad():
            logps = model(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1)
        total -= sum(float(logps[place - 1, ids[place]]) for place in range(len(pair.prompt), len(ids)))
        count += len(pair.chosen)
    anchored = first_loss(prepared, tmp_path / "anchored")
    assert anchored == pytest.approx(0.693147 + 0.5 * total / count, rel=1e-5)


@pytest.mark.slow
@pytest.mark.variations
@pytest.mark.parametrize("sharing", ["none", "prefix"])
@pytest.mark.parametrize("held", [5, 13])
def test_anchors_leave_the_preference_term_its_weight(
    sharing: str, held: int, samples, base: Path, tmp_path: Path
) -> None:
    """Three pairs, and replies that are only held on to: metrics have the loss and the gradient of the pairs."""
    rows = samples.rows(3 + held, ["preference"])
    anchors = [replace(row, rejected=row.reply) for row in rows[3:]]
    small = ("epochs=1", "batch_rows=16", "rows_at_once=8", f"sharing={sharing}")

    def first(rows: list[Example], out: Path, anchor: float = 0) -> dict[str, float]:
        trained(prepare(samples.task(base, "dpo", *small, f"anchor={anchor}"), rows), out)
        return FinetuneDir(out).read_metrics()[0]

    alone, among = first(rows[:3], tmp_path / "alone"), first(rows[:3] + anchors, tmp_path / "among")
    assert alone["loss"] == pytest.approx(math.log(2), abs=1e-5)
    assert among["loss"] == pytest.approx(alone["loss"], abs=1e-5)
    assert among["grad_norm"] == pytest.approx(alone["grad_norm"], rel=2e-3)
    assert first(rows[:3] + anchors, tmp_path / "anchored", anchor=1)["loss"] > 1


@pytest.mark.parametrize("settings", [[], pytest.param(["lora={rank: 4}"], marks=pytest.mark.slow)])
def test_dpo_widens_the_margin_over_a_reference_that_stays(samples, base: Path, tmp_path: Path, settings) -> None:
    rows = samples.rows(8, ["preference"])
    task = samples.task(base, "dpo", "anchor=0", "epochs=6", "learning_rate=2e-3", "schedule=constant", *settings)
    prepared = prepare(task, rows)
    trained(prepared, tmp_path / "out")
    lines = FinetuneDir(tmp_path / "out").read_metrics()
    assert lines[0]["margin"] == pytest.approx(0, abs=1e-6)
    assert lines[-1]["margin"] > 0.3
    assert lines[-1]["preference_accuracy"] == 1
    beta = prepared.task.recipe.beta
    reference = [line["logp_chosen"] - line["reward_chosen"] / beta for line in lines]
    assert max(reference) - min(reference) < 0.02 * abs(reference[0]) + 1e-3  # every step holds all eight pairs


@pytest.mark.slow
@pytest.mark.variations
@pytest.mark.parametrize("sharing", ["prefix", "none"])
def test_the_reference_is_computed_in_the_precision_of_the_policy(sharing, samples, base: Path, tmp_path: Path) -> None:
    """They are equal at first, so the margin is exactly 0; a reference in full precision differs by its rounding."""
    task = samples.task(base, "dpo", "precision=bfloat16", "epochs=1", f"sharing={sharing}")
    trained(prepare(task, samples.rows(8, ["preference"])), tmp_path / "out")
    assert FinetuneDir(tmp_path / "out").read_metrics()[0]["margin"] == 0.0


@pytest.mark.medium
@pytest.mark.parametrize(
    "settings",
    [
        pytest.param([], marks=pytest.mark.slow),
        pytest.param(["lora={rank: 4}"], marks=pytest.mark.slow),
        ["temperature=1.5", "epochs=2"],
        pytest.param(["temperature=1.5", "lora={rank: 4}"], marks=pytest.mark.slow),
        pytest.param(["rows_at_once=3"], marks=pytest.mark.slow),
    ],
)
def test_shared_prefixes_train_the_same(settings, samples, base: Path, tmp_path: Path) -> None:
    rows = samples.rows(6, ["preference"])
    found = []
    for sharing in ("none", "prefix"):
        options = ["epochs=5", "batch_rows=6", "learning_rate=1e-3", "anchor=0.5", f"sharing={sharing}", *settings]
        final = trained(prepare(samples.task(base, "dpo", *options), rows), tmp_path / sharing)
        found.append((FinetuneDir(tmp_path / sharing).read_metrics(), weights(final)))
    (unshared, expected), (shared, ours) = found
    assert [line["loss"] for line in shared] == pytest.approx([line["loss"] for line in unshared], abs=1e-6)
    assert unshared[-1]["margin"] > 1e-4
    assert len(shared) == len(unshared) > 1
    for name, weight in expected.items():
        torch.testing.assert_close(ours[name], weight, rtol=1e-3, atol=5e-5)


@pytest.mark.slow
def test_the_policy_that_sampled_is_the_one_that_is_trained(samples, base: Path, tmp_path: Path) -> None:
    """At a temperature other probabilities are compared, those of the reference too; the result is as ever."""
    rows, found = samples.rows(6, ["preference"]), {}
    for temperature in (1, 1.5):
        task = samples.task(base, "dpo", "epochs=2", "anchor=1", f"temperature={temperature}")
        final = trained(prepare(task, rows), tmp_path / f"{temperature}")
        found[temperature] = FinetuneDir(tmp_path / f"{temperature}").read_metrics()
        assert set(weights(final)) == set(weights(base))
    plain, tempered = (found[temperature][0] for temperature in (1, 1.5))
    assert plain["margin"] == tempered["margin"] == 0.0
    assert abs(plain["logp_chosen"] - tempered["logp_chosen"]) > 1e-3
