"""Attention and scores of packed rows equal those of single rows, in value and gradient."""

import copy
import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import AutoModelForCausalLM, MistralConfig, MistralForCausalLM, Qwen2Config, Qwen2ForCausalLM
from trl.trainer.utils import add_fused_lm_head

from collab.errors import ConfigError
from collab.trainers import packed_attention
from collab.trainers import prefix_sharing as packed_module
from collab.trainers.batching import Packing, pack
from collab.trainers.dpo import unwrap_model
from collab.trainers.packed_attention import attend, plan_attention
from collab.trainers.prefix_sharing import pack_batch, share

OUTPUTS = ("log_probs", "entropy", "mean_logits", "is_top1")
SIZES = {"vocab_size": 60, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
SIZES |= {"num_attention_heads": 4, "num_key_value_heads": 2}


def state(seed: int, *, shared: int = 40, pairs: int = 3) -> list[list[int]]:
    """Pairs of a state: a prefix, messages that grow, replies of unequal length, one of them in two pairs."""
    rng = random.Random(seed)

    def some(count: int) -> list[int]:
        return [rng.randrange(5, 60) for _ in range(count)]

    prefix, chosen, rejected = some(shared), [], []
    for number in range(pairs):
        prompt = prefix + some(3 * number)
        chosen.append((prompt, some(4 + number)))
        rejected.append((prompt, some(9 - 2 * number)))
    chosen.append(chosen[0])
    rejected.append((chosen[0][0], chosen[0][1][:2] + some(5)))
    return [*chosen, *rejected]


def batch_of(sides: list[tuple[list[int], list[int]]], device: str = "cpu") -> dict[str, torch.Tensor]:
    """As TRL's collator makes it, there."""
    width = max(len(prompt) + len(reply) for prompt, reply in sides)
    ids, mask, completion = (torch.zeros(len(sides), width, dtype=torch.long) for _ in range(3))
    for row, (prompt, reply) in enumerate(sides):
        stop = len(prompt) + len(reply)
        ids[row, :stop], mask[row, :stop] = torch.tensor([*prompt, *reply]), 1
        completion[row, len(prompt) : stop] = 1
    batch = {"input_ids": ids, "attention_mask": mask, "completion_mask": completion}
    return {name: value.to(device) for name, value in batch.items()}


def dense_mask(packing: Packing) -> torch.Tensor:
    """Which token sees which, written out, (T, T)."""
    mask = torch.zeros(len(packing), len(packing), dtype=torch.bool)
    for places in map(torch.from_numpy, packing.places):
        for number, place in enumerate(places):
            mask[place, places[: number + 1]] = True
    return mask


def score(model, batch) -> torch.Tensor:
    """Log-probabilities of scored tokens as TRL asks for them, packed if the batch is."""
    labels = batch["input_ids"].masked_fill(batch["completion_mask"] == 0, -100)
    kept = {name: value for name, value in batch.items() if name != "completion_mask"}
    return model(**kept, labels=labels, fused_lm_head=True)


def rows_alone(model, batch) -> torch.Tensor:
    """Sums of log-probabilities of replies, every row by itself and without padding, from whole logits."""
    sums = []
    for ids, mask, completion in zip(*(batch[name] for name in batch), strict=True):
        length = int(mask.sum())
        logps = model(input_ids=ids[None, :length]).logits[0].float().log_softmax(-1)
        at = completion[1:length].nonzero()[:, 0]
        sums.append(logps[at, ids[at + 1]].sum())
    return torch.stack(sums)


def gradient(model) -> torch.Tensor:
    found = torch.cat([one.grad.flatten() for one in model.parameters() if one.grad is not None])
    model.zero_grad()
    return found


def apart(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found - expected).norm().detach() / expected.norm().detach())


@pytest.fixture
def model(base: Path):
    """Weights large enough that what a token sees matters: a fresh model hardly looks at what stands before."""
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, attn_implementation="sdpa")
    with torch.no_grad():
        for weight in model.model.layers.parameters():
            weight *= 8 if weight.dim() == 2 else 1
    return model


def shared(model):
    model = copy.deepcopy(model)
    add_fused_lm_head(unwrap_model(model), outputs=OUTPUTS)
    share(unwrap_model(model))
    return model


def with_adapter(model):
    """An adapter that has learned something; the base stays as it is."""
    model = get_peft_model(model, LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM"))
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.1)
    return model


# ------------------------------------------------------------------------------------------------------- attention


@pytest.mark.parametrize("kernels", ["flash", "products"])
@pytest.mark.parametrize("shortest", [1, 50])
def test_attention_is_that_of_a_dense_mask(kernels: str, shortest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if kernels == "products":  # what other devices compute by; in many pieces
        monkeypatch.setattr(packed_attention, "compute_part", packed_attention.compute_by_products)
        monkeypatch.setattr(packed_attention, "compute_part_backward", packed_attention.compute_by_products_backward)
        monkeypatch.setattr(packed_attention, "_SCORES_AT_ONCE", 200)
    monkeypatch.setattr(packed_attention, "_SHORT", 30)
    rows = [prompt + reply for seed in range(2) for prompt, reply in state(seed)]
    packing = pack(rows, shortest=shortest)
    torch.manual_seed(0)
    inputs = [torch.randn(heads, len(packing), 8, requires_grad=True) for heads in (6, 2, 2)]
    found = attend(*inputs, plan_attention(packing.nodes), 0.3)
    query, key, value = inputs
    scores = query @ key.repeat_interleave(3, 0).transpose(1, 2) * 0.3
    weights = scores.masked_fill(~dense_mask(packing), -torch.inf).softmax(-1)
    expected = weights @ value.repeat_interleave(3, 0)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    given = torch.randn_like(found)
    ours, theirs = (torch.autograd.grad(one, inputs, given) for one in (found, expected))
    assert all(apart(one, other) < 1e-5 for one, other in zip(ours, theirs, strict=True))


def test_kernels_of_a_gpu_are_asked_for_as_they_take_it() -> None:
    """Without a GPU: PyTorch's own description of them says what they would give."""
    with FakeTensorMode():
        query, key = (torch.empty(2, 4, length, 64, device="cuda", dtype=torch.bfloat16) for length in (7, 9))
        output, lse = packed_attention.compute_on_gpu(query, key, key, 0.3, causal=False)
        grads = packed_attention.compute_on_gpu_backward(output, query, key, key, output, lse, 0.3, causal=False)
    assert (output.shape, lse.shape, lse.dtype) == (query.shape, query.shape[:3], torch.float32)
    assert [one.shape for one in grads] == [query.shape, key.shape, key.shape]
    assert {one.dtype for one in (output, *grads)} == {torch.bfloat16}


def test_kernels_of_a_gpu_are_tried_before_they_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a processor in their place: they pass, and what leaves out the other part does not."""
    fused, cpu, gpu = packed_attention.is_fused, torch.device("cpu"), torch.device("cuda")
    part, part_backward = packed_attention.compute_part, packed_attention.compute_part_backward
    error_on = packed_attention.measure_kernel_error
    monkeypatch.setattr(packed_attention, "measure_kernel_error", lambda device, *rest: error_on(cpu, *rest))
    monkeypatch.setattr(packed_attention, "compute_on_gpu", part)
    monkeypatch.setattr(packed_attention, "compute_on_gpu_backward", part_backward)
    fused.cache_clear()
    assert fused(gpu, torch.bfloat16, 64)
    assert fused(gpu, torch.float16, 128)
    assert not fused(gpu, torch.float32, 64)
    assert not fused(gpu, torch.bfloat16, 20)
    assert not fused(cpu, torch.bfloat16, 64)

    def of_its_own(grad, query, key, value, output, lse, scale, *, causal):
        own, sums = part(query, key, value, scale, causal=causal)
        return part_backward(grad, query, key, value, own, sums, scale, causal=causal)

    monkeypatch.setattr(packed_attention, "compute_on_gpu_backward", of_its_own)
    fused.cache_clear()
    with pytest.warns(UserWarning, match="shared prefixes on cuda: slower products .* off by"):
        assert not fused(gpu, torch.bfloat16, 64)

    def missing(*args, **named):
        raise RuntimeError("No available kernel.\nAborting.")

    monkeypatch.setattr(packed_attention, "compute_on_gpu", missing)
    with pytest.warns(UserWarning, match=r"flash kernels: No available kernel\.$"):
        assert not fused(gpu, torch.bfloat16, 128)
    fused.cache_clear()


@pytest.mark.gpu
@pytest.mark.parametrize("device", ["cuda"], indirect=True)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("size", [64, 128])
def test_flash_kernels_are_used_on_a_gpu(size: int, dtype: torch.dtype, device: str) -> None:
    packed_attention.is_fused.cache_clear()
    assert packed_attention.is_fused(torch.device(device), dtype, size)


@pytest.mark.gpu
@pytest.mark.parametrize("device", ["cuda"], indirect=True)
@pytest.mark.parametrize(("dtype", "limit"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
def test_attention_on_a_gpu_is_that_of_a_dense_mask(dtype: torch.dtype, limit: float, device: str) -> None:
    packing = pack([prompt + reply for seed in range(2) for prompt, reply in state(seed)], shortest=1)
    torch.manual_seed(0)
    inputs = [
        torch.randn(heads, len(packing), 64, device=device, dtype=dtype, requires_grad=True) for heads in (6, 2, 2)
    ]
    found = attend(*inputs, plan_attention(packing.nodes).to(torch.device(device)), 0.1)
    query, key, value = (one.double() for one in inputs)
    scores = query @ key.repeat_interleave(3, 0).transpose(1, 2) * 0.1
    weights = scores.masked_fill(~dense_mask(packing).to(device), -torch.inf).softmax(-1)
    expected = weights @ value.repeat_interleave(3, 0)
    given = torch.randn_like(found)
    ours = torch.autograd.grad(found, inputs, given)
    theirs = torch.autograd.grad(expected, inputs, given.double())
    assert apart(found.double(), expected) < limit
    assert all(apart(one.double(), other.double()) < limit for one, other in zip(ours, theirs, strict=True))


# ---------------------------------------------------------------------------------------------------------- scores


@pytest.mark.parametrize("trained", ["all weights", "an adapter"])
def test_scores_and_gradients_are_those_of_rows_alone(trained: str, device: str, model) -> None:
    model = (with_adapter(model) if trained == "an adapter" else model).to(device)
    batch = batch_of(state(0) + state(1, shared=9), device)
    expected = rows_alone(model, batch)
    torch.manual_seed(0)
    weights = torch.randn(len(expected)).to(device)  # as if each reply mattered differently
    (expected * weights).sum().backward()
    ours = shared(model)
    output = score(ours, {**batch, "packed": pack_batch(batch)})
    found = output.log_probs.sum(1)
    assert float((found - expected).detach().abs().max()) <= 1e-4
    (found * weights).sum().backward()
    assert apart(gradient(ours), gradient(model)) <= 1e-5


def test_the_packed_pass_computes_what_is_different_only(model) -> None:
    batch = batch_of(state(0))
    ours = shared(model)
    seen = []
    ours.model.register_forward_pre_hook(
        lambda module, args, kwargs: seen.append(kwargs["input_ids"].shape), with_kwargs=True
    )
    ours.lm_head.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].shape))
    packed = pack_batch(batch, shortest=1)
    score(ours, {**batch, "packed": packed})
    rows = [ids[: mask.sum()].tolist() for ids, mask in zip(batch["input_ids"], batch["attention_mask"], strict=True)]
    different = {tuple(row[: length + 1]) for row in rows for length in range(len(row))}
    asked = {
        tuple(row[: at + 1]) for row, done in zip(rows, batch["completion_mask"], strict=True) for at in done.nonzero()
    }
    assert seen == [torch.Size([1, len(different)]), torch.Size([len(asked), 32])]
    assert len(different) < sum(map(len, rows)) / 4


def test_metrics_are_those_of_trl(model) -> None:
    batch = batch_of(state(0))
    theirs = copy.deepcopy(model)
    add_fused_lm_head(theirs, outputs=OUTPUTS)
    expected, found = score(theirs, batch), score(shared(model), {**batch, "packed": pack_batch(batch)})
    torch.testing.assert_close(found.loss, expected.loss)
    assert torch.equal(found.label_mask, batch["completion_mask"][:, 1:].bool())
    for name in OUTPUTS:
        torch.testing.assert_close(getattr(found, name), getattr(expected, name), rtol=1e-4, atol=1e-5)


def test_logits_in_pieces_are_the_same(model, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = batch_of(state(0))
    ours = shared(model)
    packed = {**batch, "packed": pack_batch(batch)}
    whole = score(ours, packed).log_probs
    (whole.sum() ** 2).backward()
    expected = gradient(ours)
    monkeypatch.setattr(packed_module, "_LOGITS_AT_ONCE", 7 * model.config.vocab_size)
    pieces = score(ours, packed).log_probs
    torch.testing.assert_close(pieces, whole)
    (pieces.sum() ** 2).backward()
    assert apart(gradient(ours), expected) <= 1e-5


def test_a_mask_that_lets_siblings_be_seen_is_noticed(device: str, model) -> None:
    """The gate is worth something: one node that reaches over its neighbours' tokens fails it."""
    model, batch = model.to(device), batch_of(state(0), device)
    expected = rows_alone(model, batch)
    packed = pack_batch(batch, shortest=1)
    above = packed.plan.above
    wrong = replace(above[-1], end=above[-1].end + 2)
    broken = replace(packed, plan=replace(packed.plan, above=(*above[:-1], wrong)))
    missing = replace(packed, plan=replace(packed.plan, above=above[:-1]))
    ours = shared(model)
    for one in (broken, missing):
        assert (
            float((score(ours, {**batch, "packed": one}).log_probs.detach().sum(1) - expected.detach()).abs().max())
            > 1e-3
        )
    moved = replace(packed, positions=torch.arange(packed.ids.shape[1])[None])
    assert (
        float((score(ours, {**batch, "packed": moved}).log_probs.detach().sum(1) - expected.detach()).abs().max())
        > 1e-3
    )


def test_half_precision_is_no_noisier_than_without_sharing(device: str, model) -> None:
    """At most three times the noise between two unshared ways: fused attention of rows alone, plain of a batch."""
    batch = batch_of(state(0) + state(1), device)
    plain, ours = model.to(device).bfloat16(), shared(model)
    one = rows_alone(plain, batch)
    found = score(ours, {**batch, "packed": pack_batch(batch)}).log_probs.sum(1)
    plain.set_attn_implementation("eager")
    add_fused_lm_head(plain, outputs=OUTPUTS)
    other = score(plain, batch).log_probs.sum(1)
    noise = float((other - one).detach().norm())
    assert 0 < float((found - one).detach().norm()) <= 3 * noise


def test_passes_that_are_not_packed_are_as_before(model) -> None:
    """Padded on the left, too, as in generation."""
    ids = torch.tensor([[0, 0, 8, 3, 9], [5, 6, 7, 8, 9]])
    mask = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
    expected = model(input_ids=ids, attention_mask=mask).logits
    ours = shared(model)
    torch.testing.assert_close(ours(input_ids=ids, attention_mask=mask).logits, expected)
    options = {"attention_mask": mask, "max_new_tokens": 4, "do_sample": False}
    assert torch.equal(ours.generate(ids, **options), model.generate(ids, **options))


def test_batches_that_cannot_be_packed_are_refused(model) -> None:
    batch = batch_of(state(0))
    with pytest.raises(ValueError, match="without its packing"):
        score(shared(model), batch)
    with pytest.raises(ValueError, match="padded on the right"):
        pack_batch({**batch, "attention_mask": batch["attention_mask"].flip(1)})


# --------------------------------------------------------------------------------------------------- what is refused


def tiny(kind=Qwen2ForCausalLM, config=Qwen2Config, **changes):
    torch.manual_seed(0)
    return kind(config(**SIZES, **changes))


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (lambda: tiny(attention_dropout=0.1), "has dropout 0.1"),
        (lambda: tiny(use_sliding_window=True, sliding_window=8, max_window_layers=1), "not all full attention"),
        (lambda: tiny(MistralForCausalLM, MistralConfig, sliding_window=8), "sliding_window|full attention"),
        (lambda: tiny(rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}), "positions depend"),
    ],
)
def test_what_would_break_it_is_refused(made, reason: str) -> None:
    model = made()
    own, forward = model.config._attn_implementation, model.forward
    with pytest.raises(ConfigError, match=reason) as refused:
        share(model)
    assert "sharing: none" in str(refused.value)
    assert (model.config._attn_implementation, model.forward) == (own, forward)


def test_a_recurrent_model_is_refused() -> None:
    from transformers import MambaConfig, MambaForCausalLM

    model = MambaForCausalLM(MambaConfig(vocab_size=60, hidden_size=16, num_hidden_layers=1, state_size=4))
    with pytest.raises(ConfigError, match="prefixes cannot be shared"):
        share(model)


def test_attention_of_its_own_is_refused(model) -> None:
    """A layer that does not ask transformers for its attention would see siblings."""
    layer = model.model.layers[1].self_attn
    layer.config = copy.deepcopy(layer.config)
    layer.config._attn_implementation = "eager"
    with pytest.raises(ConfigError, match="prefixes cannot be shared"):
        share(model)
