"""Training on packed rows gives TRL's losses, metrics and weights in any division into micro-batches."""

import math
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer

from collab.errors import ConfigError
from collab.trainers.base_model import silence_libraries
from collab.trainers.dpo import ByPairs, SharedPrefixDPOTrainer, build_state_batches
from collab.trainers.prefix_sharing import pack_batch
from collab.trainers.run_dir import FinetuneDir

LOSSES = {"loss_type": ["sigmoid", "sft"], "loss_weights": [1.0, 0.5]}


def pairs_of(sizes: list[int]) -> tuple[Dataset, list[int]]:
    """So many pairs of each state, in an order that mixes them; and the state of each."""
    rng = random.Random(0)

    def some(least: int, most: int) -> list[int]:
        return [rng.randrange(5, 400) for _ in range(rng.randint(least, most))]

    rows = []
    for state, count in enumerate(sizes):
        shared = some(20, 40)
        for _ in range(count):
            prompt = shared + some(0, 6)
            rows.append((state, {"prompt_ids": prompt, "chosen_ids": some(2, 9), "rejected_ids": some(1, 12)}))
    rng.shuffle(rows)
    return Dataset.from_list([row for _, row in rows]), [state for state, _ in rows]


class Tokenised:
    """These are token ids already."""

    def _prepare_dataset(self, dataset, *rest):
        return dataset

    def get_train_dataloader(self):
        """The batches of a step as they stand in `written`, for both trainers."""
        return torch.utils.data.DataLoader(
            self.train_dataset, batch_sampler=self.written, collate_fn=self.data_collator
        )


class Theirs(Tokenised, DPOTrainer):
    """TRL's."""


class Ours(Tokenised, SharedPrefixDPOTrainer):
    """Ours, on given batches."""


def load(base: Path):
    """A model for which it matters what stands before."""
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, attn_implementation="sdpa")
    with torch.no_grad():
        for weight in model.model.layers.parameters():
            weight *= 8 if weight.dim() == 2 else 1
    return model


def trainer_of(kind, base: Path, out: Path, data: Dataset, written=(), *, adapter=None, loaded=False, **changes):
    options = {
        "learning_rate": 1e-3,
        "per_device_train_batch_size": 8,
        "num_train_epochs": 1,
        "logging_steps": 1,
        "lr_scheduler_type": "constant",
        "bf16": False,
        "gradient_checkpointing": False,
        "max_length": None,
        "report_to": "none",
        "save_strategy": "no",
        "use_cpu": True,
        "disable_tqdm": True,
        "seed": 3,
        "beta": 0.3,
        **LOSSES,
        **changes,
    }
    config = DPOConfig(output_dir=str(out), **options)
    config._n_gpu = min(config.n_gpu, 1)  # of several GPUs, one
    model, reference = load(base), None
    if loaded:
        torch.manual_seed(1)
        model = get_peft_model(model, adapter)
        for name, weight in model.named_parameters():
            if "lora_B" in name:  # an adapter that has learned something
                torch.nn.init.normal_(weight, std=0.1)
    elif adapter is None and not changes.get("precompute_ref_log_probs"):
        reference = load(base)
    with silence_libraries():
        trainer = kind(
            model=model,
            ref_model=reference,
            args=config,
            train_dataset=data,
            processing_class=AutoTokenizer.from_pretrained(base),
            peft_config=None if loaded else adapter,
        )
    trainer.written = list(written)
    return trainer


def trained(*args, **changes) -> tuple[list[dict[str, float]], dict[str, torch.Tensor]]:
    """Metrics of each step, and the weights in the end."""
    trainer = trainer_of(*args, **changes)
    with silence_libraries():
        trainer.train()
    lines = [line for line in trainer.state.log_history if "loss" in line]
    return lines, {name: weight.detach() for name, weight in trainer.model.named_parameters() if weight.requires_grad}


ADAPTER = {"r": 4, "lora_alpha": 8, "lora_dropout": 0.0, "target_modules": "all-linear", "task_type": "CAUSAL_LM"}
WAYS = {
    "full": {},
    "lora": {"adapter": LoraConfig(**ADAPTER), "learning_rate": 1e-2},
    "a loaded adapter": {"adapter": LoraConfig(**ADAPTER), "loaded": True, "learning_rate": 1e-2},
    "reference first": {"precompute_ref_log_probs": True},
    "checkpointing": {"gradient_checkpointing": True, "adapter": LoraConfig(**ADAPTER), "learning_rate": 1e-2},
    "plain": {"loss_type": ["sigmoid"], "loss_weights": [1.0]},
}


@pytest.mark.slow
def test_what_is_compared_with_itself_is_held_by_the_anchor_alone(base: Path, tmp_path: Path) -> None:
    """The preference loss has no pair and no gradient; what is left is the anchor's."""
    data, states = pairs_of([3])
    data = data.map(lambda row: {"rejected_ids": row["chosen_ids"]})
    written = build_state_batches(states, 3, seed=0)
    plain, _ = trained(Ours, base, tmp_path / "plain", data, written, **WAYS["plain"])
    held, _ = trained(Ours, base, tmp_path / "held", data, written)
    assert plain[0]["loss"] == pytest.approx(0, abs=1e-6)
    assert plain[0]["grad_norm"] < 1e-4 < 1e-1 < held[0]["grad_norm"]
    assert held[0]["rewards/margins"] == pytest.approx(0, abs=1e-5)


class Unshared(ByPairs, Tokenised, DPOTrainer):
    """The same weights without packed rows."""


@pytest.mark.medium
@pytest.mark.variations
@pytest.mark.parametrize("kind", [Ours, Unshared])
def test_rows_that_are_held_on_to_do_not_weaken_the_preference_term(kind, base: Path, tmp_path: Path) -> None:
    """Three pairs in two passes teach the same with and without five rows whose replies are the same."""
    data, _ = pairs_of([3, 5])
    rows = list(data)
    held = [{**row, "rejected_ids": row["chosen_ids"]} for row in rows[3:]]
    options = {**WAYS["plain"], "optim": "sgd", "gradient_accumulation_steps": 2}
    alone, expected = trained(kind, base, tmp_path / "a", Dataset.from_list(rows[:3]), [(0, 1), (2,)], **options)
    beside = Dataset.from_list(rows[:3] + held)
    among, found = trained(kind, base, tmp_path / "b", beside, [(0, 1, 3), (2, 4, 5, 6, 7)], **options)
    assert alone[0]["loss"] == pytest.approx(math.log(2), abs=1e-5)
    assert among[0]["loss"] == pytest.approx(alone[0]["loss"], abs=1e-5)
    assert among[0]["grad_norm"] == pytest.approx(alone[0]["grad_norm"], rel=1e-3)
    for name, weight in expected.items():
        torch.testing.assert_close(found[name], weight, rtol=1e-3, atol=1e-6)


@pytest.mark.medium
@pytest.mark.parametrize("way", [way if way == "full" else pytest.param(way, marks=pytest.mark.slow) for way in WAYS])
def test_five_steps_are_those_of_trl(way: str, device: str, base: Path, tmp_path: Path) -> None:
    """Losses to 1e-6 and all metrics, over states of 1 to 5 pairs."""
    data, states = pairs_of([5, 1, 3, 2, 4])
    written = build_state_batches(states, 3, seed=0)
    assert len(written) == 5
    options = {**WAYS[way], "use_cpu": device == "cpu"}
    theirs, expected = trained(Theirs, base, tmp_path / "theirs", data, written, **options)
    ours, found = trained(Ours, base, tmp_path / "ours", data, written, **options)
    assert len(ours) == len(theirs) == 5
    first, last = theirs[0], theirs[-1]
    assert abs(last["rewards/margins"] - first["rewards/margins"]) > 0.01  # something was learned meanwhile
    for one, other in zip(ours, theirs, strict=True):
        assert one.keys() == other.keys()
        assert one["loss"] == pytest.approx(other["loss"], abs=1e-6)
        equal = abs(other["rewards/margins"]) < 1e-5  # the policy is the reference: rounding says which side is better
        for name in one.keys() - {"loss"} - ({"rewards/accuracies"} if equal else set()):
            assert one[name] == pytest.approx(other[name], rel=1e-4, abs=1e-4), name
    assert {weight.device.type for weight in (*expected.values(), *found.values())} == {device}
    for name, weight in expected.items():
        torch.testing.assert_close(found[name], weight, rtol=1e-3, atol=5e-5)


@pytest.mark.slow
def test_micro_batches_of_unequal_size_are_one_mean(base: Path, tmp_path: Path) -> None:
    """Four pairs as 3 + 1 have the loss and the step of TRL's four at once, anchor included."""
    data, states = pairs_of([3, 1])
    whole = [tuple(range(4))]
    parts = [tuple(i for i in range(4) if states[i] == state) for state in (0, 1)]
    theirs, expected = trained(Theirs, base, tmp_path / "theirs", data, whole, optim="sgd")
    ours, found = trained(Ours, base, tmp_path / "ours", data, parts, optim="sgd", gradient_accumulation_steps=2)
    assert [line["loss"] for line in ours] == pytest.approx([line["loss"] for line in theirs], abs=1e-6)
    for name, weight in expected.items():
        torch.testing.assert_close(found[name], weight, rtol=1e-4, atol=1e-6)
    apart, _ = trained(Theirs, base, tmp_path / "apart", data, parts, optim="sgd", gradient_accumulation_steps=2)
    assert abs(apart[0]["loss"] - theirs[0]["loss"]) > 1e-3  # a mean of means is something else


def run(command: list[str]) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.slow
def test_two_processes_are_one_mean(base: Path, tmp_path: Path) -> None:
    """One process has a state of 3 pairs, the other one of 1: losses and weights are those of one process with both."""
    script = tmp_path / "train.py"
    script.write_text(PROCESS.format(tests=str(Path(__file__).parent), base=str(base), out=str(tmp_path)))
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", str(script)]
    run(launch)
    found = torch.load(tmp_path / "two.pt", weights_only=True)
    data, states = pairs_of([3, 1])
    parts = [tuple(i for i in range(4) if states[i] == state) for state in (0, 1)] * 2
    lines, weights = trained(Ours, base, tmp_path / "one", data, parts, optim="sgd", gradient_accumulation_steps=2)
    assert found["losses"] == pytest.approx([line["loss"] for line in lines], abs=1e-5)
    whole, _ = trained(Theirs, base, tmp_path / "whole", data, [tuple(range(4))] * 2, optim="sgd")
    assert found["margins"] == pytest.approx([line["rewards/margins"] for line in whole], abs=1e-4)
    for name, weight in weights.items():
        torch.testing.assert_close(found[name], weight, rtol=1e-4, atol=1e-6)


PROCESS = """
import os, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
import torch
import test_prefix_dpo as shared
data, states = shared.pairs_of([3, 1])
rank = int(os.environ["RANK"])
part = tuple(i for i in range(4) if states[i] == rank)
out = Path({out!r})
lines, weights = shared.trained(shared.Ours, Path({base!r}), out / "two", data, [part] * 2, optim="sgd")
if rank == 0:
    names = {{name.removeprefix("module."): weight for name, weight in weights.items()}}
    kept = {{"losses": [line["loss"] for line in lines], "margins": [line["rewards/margins"] for line in lines]}}
    torch.save({{**kept, **names}}, out / "two.pt")
"""


@pytest.mark.slow
@pytest.mark.parametrize("sharing", ["prefix", "none"])
def test_a_step_of_five_pairs_is_divided_among_two_processes(sharing, samples, base: Path, tmp_path: Path) -> None:
    """Three pairs here and two there; with shared prefixes the losses are those of one process."""
    data = samples.write(tmp_path / "data", samples.rows(5, ["preference"]))
    settings = ["context=200", "batch_rows=5", "precision=float32", "log_every=1", "epochs=3", "learning_rate=1e-3"]
    options = ["--stage", "dpo", "--base", str(base), "--data", str(data), "--preset", "pocket", "--device", "cpu"]
    options += [word for one in (*settings, f"sharing={sharing}") for word in ("--set", one)]
    alone = [sys.executable, "-m", "collab.__main__", "finetune", *options]
    two = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", *alone[1:]]
    lines = {}
    for name, command in (("one", alone), ("two", two)):
        run([*command, "--out", str(tmp_path / name)])
        lines[name] = FinetuneDir(tmp_path / name).read_metrics()
    assert len(lines["two"]) == 3
    margins = [[line["margin"] for line in lines[name]] for name in ("one", "two")]
    if sharing == "prefix":
        losses = [[line["loss"] for line in lines[name]] for name in ("one", "two")]
        assert losses[1] == pytest.approx(losses[0], abs=1e-5)
        assert margins[1] == pytest.approx(margins[0], abs=1e-4)
    assert margins[1][-1] > 0


def test_states_stay_together_and_prompts_are_computed_once(base: Path, tmp_path: Path) -> None:
    data, states = pairs_of([4, 2, 3])
    trainer = trainer_of(SharedPrefixTokenised, base, tmp_path, data, per_device_train_batch_size=4)
    trainer._states = states
    for batch, numbers in zip(trainer.get_train_dataloader(), build_state_batches(states, 4, seed=3), strict=True):
        assert len({states[number] for number in numbers}) == 1
        prompt = min(len(data[number]["prompt_ids"]) for number in numbers) - 6
        tokens = int(batch["attention_mask"].sum())
        assert batch["packed"].ids.shape[1] <= tokens - (2 * len(numbers) - 1) * prompt


class SharedPrefixTokenised(SharedPrefixDPOTrainer):
    """Ours, with its own batches."""

    def _prepare_dataset(self, dataset, *rest):
        return dataset


def test_a_run_over_states_sees_every_pair_once_an_epoch(base: Path, tmp_path: Path) -> None:
    data, states = pairs_of([4, 2, 3])
    trainer = trainer_of(SharedPrefixTokenised, base, tmp_path, data, num_train_epochs=2, per_device_train_batch_size=5)
    trainer._states = states
    with silence_libraries():
        trainer.train()
    lines = [line for line in trainer.state.log_history if "loss" in line]
    assert trainer.state.global_step == len(lines) == 2 * len(build_state_batches(states, 5, seed=3))
    rows = sum(len(row["chosen_ids"]) + len(row["rejected_ids"]) + 2 * len(row["prompt_ids"]) for row in data)
    assert lines[-1]["num_tokens"] == 2 * rows


def test_evaluation_is_that_of_trl(base: Path, tmp_path: Path) -> None:
    data, _ = pairs_of([3, 2])
    found = []
    for kind in (Theirs, Ours):
        trainer = trainer_of(kind, base, tmp_path, data, [tuple(range(5))])
        with silence_libraries():
            found.append(trainer.evaluate(data))
    assert found[1]["eval_loss"] == pytest.approx(found[0]["eval_loss"], abs=1e-6)
    assert found[1]["eval_rewards/margins"] == pytest.approx(found[0]["eval_rewards/margins"], abs=1e-4)


def test_a_saved_model_knows_nothing_of_it(base: Path, tmp_path: Path) -> None:
    data, _ = pairs_of([2])
    trainer = trainer_of(Ours, base, tmp_path, data, [(0, 1)])
    trainer.save_model(str(tmp_path / "saved"))
    assert "collab" not in (tmp_path / "saved" / "config.json").read_text()
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "saved")
    assert again.config._attn_implementation == "sdpa"


def test_the_reference_is_computed_in_the_precision_of_the_policy(base: Path, tmp_path: Path) -> None:
    """Before the first step policy and reference are the same, so margins are exactly 0, in bfloat16, too."""
    data, _ = pairs_of([3])
    lines, _ = trained(Ours, base, tmp_path, data, [(0, 1, 2)], bf16=True)
    assert lines[0]["rewards/margins"] == 0.0


@pytest.mark.parametrize(
    ("changes", "reason"), [({"use_weighting": True}, "use_weighting"), ({"disable_dropout": False}, "dropout 0.5")]
)
def test_what_would_break_it_is_refused(changes, reason: str, base: Path, tmp_path: Path) -> None:
    data, _ = pairs_of([2])
    adapter = LoraConfig(**{**ADAPTER, "lora_dropout": 0.5})
    with pytest.raises(ConfigError, match=reason):
        trainer_of(Ours, base, tmp_path, data, adapter=adapter, **changes)


def test_a_mixture_of_experts_is_refused_while_it_balances_them(base: Path, tmp_path: Path) -> None:
    from transformers import MixtralConfig, MixtralForCausalLM

    sizes = {"vocab_size": 512, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    sizes |= {"num_attention_heads": 2, "num_key_value_heads": 1, "num_local_experts": 2, "sliding_window": None}
    data, _ = pairs_of([2])
    models = [MixtralForCausalLM(MixtralConfig(**sizes, router_aux_loss_coef=0.1)) for _ in range(2)]
    with silence_libraries(), pytest.raises(ConfigError, match="balances experts"):
        Ours(
            model=models[0],
            ref_model=models[1],
            args=DPOConfig(output_dir=str(tmp_path), report_to="none", use_cpu=True, bf16=False),
            train_dataset=data,
            processing_class=AutoTokenizer.from_pretrained(base),
        )


def test_as_many_states_as_pairs(base: Path, tmp_path: Path) -> None:
    data, states = pairs_of([2, 1])
    with silence_libraries(), pytest.raises(ConfigError, match="2 states for 3 pairs"):
        SharedPrefixTokenised(
            model=load(base),
            ref_model=load(base),
            args=DPOConfig(output_dir=str(tmp_path), report_to="none", use_cpu=True, bf16=False),
            train_dataset=data,
            processing_class=AutoTokenizer.from_pretrained(base),
            states=states[:2],
        )


# ---------------------------------------------------------------------------------------------------------- batches


def test_batches_by_hand() -> None:
    """Whole states, as many as fit; a state of more is one of its own."""
    states = ["a", "b", "a", "a", "c", "b", "a"]
    for seed in range(5):
        found = build_state_batches(states, 3, seed=seed)
        assert (0, 2, 3, 6) in found
        assert {frozenset(batch) for batch in found} in (
            {frozenset({0, 2, 3, 6}), frozenset({1, 5, 4})},
            {frozenset({0, 2, 3, 6}), frozenset({1, 5}), frozenset({4})},
        )
    assert len({tuple(build_state_batches(states, 3, seed=0, epoch=epoch)) for epoch in range(8)}) > 1


@given(states=st.lists(st.integers(0, 9), max_size=60), most=st.integers(1, 8), seed=st.integers(0, 3))
def test_every_pair_is_in_one_batch_and_no_state_in_two(states: list[int], most: int, seed: int) -> None:
    batches = build_state_batches(states, most, seed)
    assert sorted(number for batch in batches for number in batch) == list(range(len(states)))
    held = Counter(state for batch in batches for state in {states[number] for number in batch})
    assert all(count == 1 for count in held.values())
    for batch in batches:
        assert len(batch) <= most or len({states[number] for number in batch}) == 1
    assert batches == build_state_batches(states, most, seed)


def test_a_batch_is_packed_as_it_comes(base: Path, tmp_path: Path) -> None:
    data, _ = pairs_of([2])
    trainer = trainer_of(Ours, base, tmp_path, data, [(0, 1)])
    batch = next(iter(trainer.get_train_dataloader()))
    assert torch.equal(batch["packed"].ids, pack_batch(batch).ids)
    assert batch["packed"].to(torch.device("meta")).ids.device.type == "meta"
