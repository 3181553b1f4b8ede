"""The scheduler against a model's own one-by-one generation."""

import copy
import inspect
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from collab.errors import ConfigError, ModelFailure
from collab.models.checkpoint import Checkpoint
from collab.models.engine import attention
from collab.models.engine.attention import Rows
from collab.models.engine.padded import PaddedEngine, measure_trusted_width
from collab.models.engine.sampling import DecodeRequest, SampledReply
from collab.models.engine.scheduler import Engine
from collab.models.tokenizer import ChatTokenizer, PromptIds
from collab.testing.tiny_checkpoint import make_tiny_checkpoint
from collab.types import Sampling

GREEDY = Sampling(temperature=0.0, max_tokens=8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)  # tiny matrices: threads only get in each other's way
    return make_tiny_checkpoint(tmp_path_factory.mktemp("tiny"), context=1200)


@pytest.fixture(scope="module")
def adapters(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    from peft import LoraConfig, get_peft_model

    made = {}
    for number, name in enumerate(("one#0", "two#0")):
        base = transformers.AutoModelForCausalLM.from_pretrained(folder)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(number)
            config = LoraConfig(r=4, target_modules=["q_proj", "v_proj", "down_proj"], init_lora_weights=False)
            made[name] = tmp_path_factory.mktemp(f"adapter{number}")
            get_peft_model(base, config).save_pretrained(made[name])
    return made


def load(folder: Path, **options: Any) -> Checkpoint:
    return Checkpoint(ChatTokenizer(str(folder)), device="cpu", dtype=options.pop("dtype", "float32"))


def engine_of(checkpoint: Checkpoint, **options: Any) -> Engine:
    assert checkpoint.share_prefixes() is None
    return Engine(checkpoint, **{"exact": False, "width": 16, "prefill": 512, "cache_bytes": 1 << 26, **options})


def piece(rng: random.Random, shortest: int, longest: int) -> tuple[int, ...]:
    return tuple(rng.randrange(3, 400) for _ in range(rng.randint(shortest, longest)))


def prompts(count: int, seed: int = 0) -> list[PromptIds]:
    """Prompts as a team's: three long beginnings, messages that some share, an end of one's own."""
    rng = random.Random(seed)
    rules = piece(rng, 30, 30)
    screens = [piece(rng, 150, 400) for _ in range(3)]
    messages = [piece(rng, 1, 60) for _ in range(5)]
    return [
        PromptIds(pieces=(rules, rng.choice(screens), *rng.sample(messages, rng.randint(0, 3)), piece(rng, 1, 20)))
        for _ in range(count)
    ]


def jobs(all_prompts: Iterable[PromptIds], sampling: Sampling = GREEDY, **fields: Any) -> list[DecodeRequest]:
    return [
        DecodeRequest(prompt=prompt, sampling=sampling, seed=number, **fields)
        for number, prompt in enumerate(all_prompts)
    ]


def answer(engine: Engine | PaddedEngine, asked: list[DecodeRequest]) -> list[SampledReply | ModelFailure]:
    for job in asked:
        engine.submit(job)
    found: dict[DecodeRequest, SampledReply | ModelFailure] = {}
    while engine.busy:
        for job, result in engine.step():
            assert job not in found, "answered twice"
            found[job] = result
    return [found[job] for job in asked]


def answers(engine: Engine | PaddedEngine, asked: list[DecodeRequest]) -> list[SampledReply]:
    found = answer(engine, asked)
    assert all(isinstance(one, SampledReply) for one in found), found
    return [one for one in found if isinstance(one, SampledReply)]


def generated(folder: Path, prompt: PromptIds, count: int = 8) -> list[int]:
    """What the model's own `generate` writes."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    ids = torch.tensor([prompt.ids])
    written = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=count)
    return [int(token) for token in written[0, ids.shape[1] :]]


def best_tokens(model: Any, prompt: PromptIds, tokens: tuple[int, ...]) -> tuple[tuple[int, ...], list[float]]:
    """What one plain pass over prompt and reply finds most probable at each place, with its log-probability."""
    with torch.no_grad():
        logits = model(torch.tensor([prompt.ids + tokens])).logits[0, len(prompt) - 1 : -1].float()
    best = logits.log_softmax(-1).max(-1)
    return tuple(best.indices.tolist()), best.values.tolist()


# ------------------------------------------------------------------------------------------------------ same replies


@pytest.mark.slow
def test_hundreds_of_prompts_get_the_tokens_and_logprobs_of_the_model_itself(folder: Path) -> None:
    asked = jobs(prompts(300))
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    for job, found in zip(asked, answers(engine_of(load(folder)), asked), strict=True):
        tokens, expected = best_tokens(model, job.prompt, found.tokens)
        assert found.tokens == tokens
        assert found.logprobs == pytest.approx(expected, abs=1e-5)


SMALL = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
FAMILIES: dict[str, Any] = {
    "llama": transformers.LlamaConfig(**SMALL, num_key_value_heads=1),
    "qwen3": transformers.Qwen3Config(**SMALL, num_key_value_heads=2, head_dim=32),
    "gpt2": transformers.GPT2Config(n_embd=64, n_layer=2, n_head=4, n_positions=1200),
    "phi3": transformers.Phi3Config(**SMALL, num_key_value_heads=2, pad_token_id=0),
    "gpt_neox": transformers.GPTNeoXConfig(**SMALL),
    "gemma2": transformers.Gemma2Config(**SMALL, num_key_value_heads=2, head_dim=16, sliding_window=64),
    "mixtral": transformers.MixtralConfig(**SMALL, num_key_value_heads=2, num_local_experts=4),
    "mistral": transformers.MistralConfig(**SMALL, num_key_value_heads=2, sliding_window=64),
    "phi3 of two scales": transformers.Phi3Config(
        **SMALL,
        num_key_value_heads=2,
        pad_token_id=0,
        max_position_embeddings=1200,
        original_max_position_embeddings=300,
        rope_parameters={
            "rope_type": "longrope",
            "rope_theta": 10000.0,
            "long_factor": [8.0, 4.0] * 4,
            "short_factor": [1.0] * 8,
        },
    ),
    "gptj": transformers.GPTJConfig(n_embd=64, n_layer=2, n_head=4, rotary_dim=8, n_positions=1200),
    "bloom": transformers.BloomConfig(hidden_size=64, n_layer=2, n_head=4),
    "mamba": transformers.MambaConfig(hidden_size=32, num_hidden_layers=2, state_size=8),
}
APART = {
    "gemma2": "its layers are not all full attention",
    "mistral": "its attention has sliding_window",
    "phi3 of two scales": "its positions depend on the longest sequence",
    "gptj": "some of its layers compute attention of their own",
    "bloom": "some of its layers compute attention of their own",
    "mamba": "its layers are not all full attention",
}
"""Those whose prompts are computed one by one, and why."""


LIKE_OTHERS = {"llama", "phi3", "mixtral", "gptj"}
"""Those that are computed in the way of another one."""


@pytest.mark.parametrize(
    "family", [pytest.param(name, marks=pytest.mark.slow) if name in LIKE_OTHERS else name for name in FAMILIES]
)
def test_any_family_is_answered_as_by_its_own_generate(family: str, folder: Path, tmp_path: Path) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    config = copy.deepcopy(FAMILIES[family])
    config.vocab_size = len(tokenizer)
    config.eos_token_id = config.bos_token_id = None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = transformers.AutoModelForCausalLM.from_config(config)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    checkpoint = load(tmp_path)
    reason = checkpoint.share_prefixes()
    assert (reason or "").startswith(APART.get(family, "")), reason
    assert (reason is None) == (family not in APART)
    engine = (
        engine_of(checkpoint)
        if reason is None
        else PaddedEngine(checkpoint, width=measure_trusted_width(checkpoint, 4))
    )
    asked = jobs(prompts(6, seed=2))
    for job, found in zip(asked, answers(engine, asked), strict=True):
        expected = generated(tmp_path, job.prompt)
        assert list(found.tokens) == expected[: len(found.tokens)]
        assert found.finish == "length" or expected[len(found.tokens)] in checkpoint.ends


def test_a_family_that_cannot_be_continued_is_refused_by_name(folder: Path, tmp_path: Path) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    config = transformers.RwkvConfig(vocab_size=len(tokenizer), hidden_size=64, num_hidden_layers=2)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    checkpoint = load(tmp_path)
    assert checkpoint.share_prefixes() is not None
    with pytest.raises(ConfigError, match="models of type rwkv cannot be computed here: its forward pass fails"):
        measure_trusted_width(checkpoint, 4)


def test_sequences_that_change_one_another_are_computed_one_by_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where padding is not masked."""
    checkpoint = load(folder)
    assert measure_trusted_width(checkpoint, 4) == 4
    forward = checkpoint.model.forward

    def unmasked(*, attention_mask: Any = None, **options: Any) -> Any:
        return forward(attention_mask=None if attention_mask is None else torch.ones_like(attention_mask), **options)

    unmasked.__signature__ = inspect.signature(forward)  # type: ignore[attr-defined]
    monkeypatch.setattr(checkpoint.model, "forward", unmasked)
    assert measure_trusted_width(checkpoint, 4) == 1


def test_sampling_is_the_requests_own(folder: Path) -> None:
    """Temperature, top-p, seed, length and stop belong to each sequence, whatever is beside it."""
    settings = [
        Sampling(temperature=1.0, max_tokens=9),
        Sampling(temperature=0.7, top_p=0.6, max_tokens=4),
        GREEDY,
        Sampling(temperature=1.0, max_tokens=40, stop=("e",)),
    ]
    asked = [
        DecodeRequest(prompt=prompt, sampling=settings[number % 4], seed=number % 5)
        for number, prompt in enumerate(prompts(24))
    ]
    together = answers(engine_of(load(folder)), asked)
    exact = engine_of(load(folder), exact=True)
    for job, found in zip(asked, together, strict=True):
        [alone] = answers(exact, [job])
        assert (found.tokens, found.text, found.finish) == (alone.tokens, alone.text, alone.finish)
        assert found.behaviour_logprobs == pytest.approx(alone.behaviour_logprobs, abs=1e-4)


# --------------------------------------------------------------------------------------------------------- exactness


@pytest.mark.slow
def test_exact_replies_are_functions_of_their_requests(folder: Path) -> None:
    """Bit for bit: whatever was computed before, in whatever order, with however little memory for it."""
    asked = jobs(prompts(20, seed=4), Sampling(temperature=1.0, max_tokens=12))
    reference = [_said(answers(engine_of(load(folder), exact=True), [job])[0]) for job in asked[:8]]
    warm, cold = engine_of(load(folder), exact=True), engine_of(load(folder), exact=True, cache_bytes=0)
    shuffled = random.Random(0).sample(asked, len(asked))
    for engine in (warm, cold):
        found = dict(zip(shuffled, answers(engine, shuffled), strict=True))
        assert [_said(found[job]) for job in asked[:8]] == reference
    assert sum(one.computed_tokens for one in answers(warm, asked)) < sum(
        one.prompt_tokens for one in answers(cold, asked)
    )


def test_exact_replies_do_not_know_how_a_prompt_was_cut(folder: Path) -> None:
    whole = prompts(1)[0]
    engine = engine_of(load(folder), exact=True)
    cut = PromptIds(pieces=tuple((token,) for token in whole.ids))
    first, second = answers(engine, jobs([whole, cut], Sampling(temperature=0.0, max_tokens=12)))
    assert _said(first) == _said(second)


@pytest.mark.medium
def test_exact_replies_do_not_know_who_else_speaks_over_the_same_weights(
    folder: Path, adapters: dict[str, Path]
) -> None:
    names = (None, *adapters)
    sampling = Sampling(temperature=1.0, max_tokens=12)
    asked = {name: jobs(prompts(4, seed=9), sampling, adapter=name) for name in names}
    alone = {}
    for name in names:
        checkpoint = load(folder)
        assert checkpoint.share_prefixes() is None
        if name is not None:
            checkpoint.add_adapter(name, str(adapters[name]))
        alone[name] = [_said(found) for found in answers(engine_of(checkpoint, exact=True), asked[name])]
    for name, path in adapters.items():
        checkpoint.add_adapter(name, str(path))
    mixed = [asked[name][number] for number in range(4) for name in names]
    found = [_said(one) for one in answers(engine_of(checkpoint, exact=True), mixed)]
    assert {name: found[place :: len(names)] for place, name in enumerate(names)} == alone


def _said(found: SampledReply) -> tuple[Any, ...]:
    return found.text, found.tokens, found.logprobs, found.behaviour_logprobs


# ------------------------------------------------------------------------------------------------------ shared work


def test_every_shared_token_is_computed_once(folder: Path) -> None:
    asked = jobs(prompts(60))
    found = answers(engine_of(load(folder), width=60, prefill=100_000), asked)
    unique = {job.prompt.pieces[:depth] for job in asked for depth in range(1, len(job.prompt.pieces))}
    expected = sum(len(pieces[-1]) for pieces in unique) + sum(len(job.prompt.pieces[-1]) for job in asked)
    assert sum(one.computed_tokens for one in found) == expected
    assert sum(one.prompt_tokens for one in found) > 4 * expected


def test_short_rows_are_not_computed_as_long_as_the_longest(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of 12, 90 and 150 tokens answered together: no product is longer than twice what its rows hold."""
    products: list[tuple[int, list[int]]] = []
    attend_rows = attention._attend_rows

    def watched(rows: Rows, layer: int, *others: Any) -> Any:
        products.append((rows.longest, rows.lengths.tolist()))
        return attend_rows(rows, layer, *others)

    monkeypatch.setattr(attention, "_attend_rows", watched)
    rng = random.Random(0)
    asked = [PromptIds(pieces=(piece(rng, length, length),)) for length in (12, 90, 150) for _ in range(3)]
    answers(engine_of(load(folder)), jobs(asked))
    assert max(len(lengths) for _, lengths in products) == 3
    assert {longest > 100 for longest, _ in products} == {False, True}
    for longest, lengths in products:
        assert longest == max(lengths) + 1 <= 2 * max(min(lengths), 32)


def test_pieces_that_follow_each_other_are_attended_to_in_one_product(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two prompts that part after two of their five pieces: what is missing of each is one run, and sees its past in
    one product more."""
    runs: list[int] = []
    attend, attend_causal = attention.attend, attention.attend_causal
    pasts: list[int] = []

    def past(query: torch.Tensor, *others: Any) -> Any:
        pasts.append(len(query))
        return attend(query, *others)

    def causal(query: torch.Tensor, *others: Any) -> Any:
        runs.append(len(query))
        return attend_causal(query, *others)

    checkpoint = load(folder)
    engine = engine_of(checkpoint)
    monkeypatch.setattr(attention, "attend", past)
    monkeypatch.setattr(attention, "attend_causal", causal)
    rng = random.Random(0)
    head = (piece(rng, 10, 10), piece(rng, 4, 4))
    asked = [PromptIds(pieces=(*head, piece(rng, 3, 3), piece(rng, 5, 5), piece(rng, 2, 2))) for _ in range(2)]
    answers(engine, jobs(asked))
    layers = checkpoint.shape.layers
    assert runs == [24, 10] * layers
    assert pasts == [10] * layers


def test_two_adapters_never_share_keys(folder: Path, adapters: dict[str, Path]) -> None:
    prompt = prompts(1)[0]
    alone = {}
    for name, path in adapters.items():
        checkpoint = load(folder)
        assert checkpoint.share_prefixes() is None
        checkpoint.add_adapter(name, str(path))
        [alone[name]] = answers(engine_of(checkpoint), jobs([prompt], adapter=name))
    [alone[None]] = answers(engine_of(load(folder)), jobs([prompt]))  # type: ignore[index]
    checkpoint = load(folder)
    for name, path in adapters.items():
        checkpoint.add_adapter(name, str(path))
    engine = engine_of(checkpoint)
    names = [*adapters, None] * 2
    for name, found in zip(names, answers(engine, [jobs([prompt], adapter=name)[0] for name in names]), strict=True):
        assert found.tokens == alone[name].tokens  # type: ignore[index]
        assert found.logprobs == pytest.approx(alone[name].logprobs, abs=1e-5)  # type: ignore[index]
    assert len({one.logprobs for one in alone.values()}) == 3


def test_memory_for_what_is_not_in_use_is_bounded(folder: Path) -> None:
    checkpoint = load(folder)
    budget = 500 * checkpoint.shape.token_bytes
    engine = engine_of(checkpoint, cache_bytes=budget, width=2)
    asked = jobs(prompts(40, seed=7))
    found = answers(engine, asked)
    assert [one.tokens for one in found] == [one.tokens for one in answers(engine_of(load(folder)), asked)]
    assert 0 < engine.cache.held_bytes <= budget
    assert engine.peak_bytes > budget
    assert not any(node.users for node in engine.cache)


# -------------------------------------------------------------------------------------------------------- scheduling


def test_a_sequence_that_ends_makes_room_at_once(folder: Path) -> None:
    engine = engine_of(load(folder), width=2)
    lengths = [40, 3, 3, 3, 3]
    asked = [
        DecodeRequest(prompt=prompt, sampling=Sampling(temperature=0.0, max_tokens=length), seed=0)
        for prompt, length in zip(prompts(5), lengths, strict=True)
    ]
    for job in asked:
        engine.submit(job)
    order = []
    while engine.busy:
        order += [asked.index(job) for job, _ in engine.step()]
    assert order == [1, 2, 3, 4, 0]


def test_who_comes_later_joins_those_who_run(folder: Path) -> None:
    engine = engine_of(load(folder))
    early, late = jobs(prompts(2), Sampling(temperature=0.0, max_tokens=30))
    engine.submit(early)
    for _ in range(10):
        assert engine.step() == []
    engine.submit(late)
    found: dict[DecodeRequest, Any] = {}
    while engine.busy:
        found |= dict(engine.step())
    assert found[early].width > 1.5
    assert found[late].width < 2


def test_long_prompts_come_in_portions(folder: Path) -> None:
    asked = jobs(prompts(12))
    small = engine_of(load(folder), prefill=64)
    assert [one.tokens for one in answers(small, asked)] == [
        one.tokens for one in answers(engine_of(load(folder)), asked)
    ]


@pytest.mark.parametrize("padded", [False, True])
def test_abandoned_jobs_are_not_computed(padded: bool, folder: Path) -> None:
    checkpoint = load(folder)
    engine = PaddedEngine(checkpoint, width=4) if padded else engine_of(checkpoint)
    gone = [DecodeRequest(prompt=prompt, sampling=GREEDY, seed=0, abandoned=lambda: True) for prompt in prompts(3)]
    for job in gone:
        engine.submit(job)
    assert engine.step() == []
    assert not engine.busy


@pytest.mark.parametrize("passes", [1, 2, 6], ids=["first part of the prompt", "second part", "reply"])
def test_who_is_abandoned_on_the_way_is_let_go_at_once(passes: int, folder: Path) -> None:
    left: list[bool] = []
    sampling = Sampling(temperature=0.0, max_tokens=200)
    gone = DecodeRequest(
        prompt=PromptIds(pieces=((9,) * 250,)), sampling=sampling, seed=0, abandoned=lambda: bool(left)
    )
    [stays] = jobs([PromptIds(pieces=((9,) * 100, (4,)))], Sampling(temperature=0.0, max_tokens=20))
    expected = answers(engine_of(load(folder), prefill=100), [stays])
    engine = engine_of(load(folder), prefill=100)
    engine.submit(gone)
    for _ in range(passes):
        assert engine.step() == []
    left.append(True)
    engine.submit(stays)
    found, steps = {}, 0
    while engine.busy:
        found |= dict(engine.step())
        steps += 1
    assert steps <= 22, "200 tokens would have taken 200"
    assert isinstance(found[stays], SampledReply)
    assert found[stays].tokens == expected[0].tokens
    assert (gone in found) == (passes == 6), "a prompt that nobody waits for is not computed to its end"
    assert not any(node.users for node in engine.cache)


# ----------------------------------------------------------------------------------------------------------- trouble


@pytest.mark.parametrize("largest", [400, 300])
def test_too_little_memory_makes_smaller_batches_and_loses_nothing(
    folder: Path, largest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = jobs(prompts(20, seed=3), Sampling(temperature=1.0, max_tokens=10))
    expected = answers(engine_of(load(folder)), asked)
    checkpoint = load(folder)
    engine = engine_of(checkpoint)
    forward, refused = checkpoint.forward, []

    def limited(ids: torch.Tensor, *others: Any) -> torch.Tensor:
        if len(ids) > largest:
            refused.append(len(ids))
            raise torch.OutOfMemoryError("injected")
        return forward(ids, *others)

    monkeypatch.setattr(checkpoint, "forward", limited)
    found = answers(engine, asked)
    assert refused
    assert [one.tokens for one in found] == [one.tokens for one in expected]


def test_a_prompt_that_never_fits_fails_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = load(folder)
    engine = engine_of(checkpoint)
    forward = checkpoint.forward
    asked = jobs([*prompts(3), PromptIds(pieces=((7,) * 1000, (8,)))])

    def limited(ids: torch.Tensor, *others: Any) -> torch.Tensor:
        if (ids == 7).sum() > 100:
            raise RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: not enough memory")
        return forward(ids, *others)

    monkeypatch.setattr(checkpoint, "forward", limited)
    *fine, lost = answer(engine, asked)
    assert all(isinstance(one, SampledReply) for one in fine)
    assert isinstance(lost, ModelFailure)
    assert "does not fit into the memory of cpu" in str(lost)


def test_padded_batches_shrink_where_the_processors_memory_ends_too(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = jobs(prompts(6))
    expected = [one.tokens for one in answers(PaddedEngine(load(folder), width=1), asked)]
    checkpoint = load(folder)
    forward, refused = checkpoint.model.forward, []

    def limited(*args: Any, **options: Any) -> Any:
        if options["input_ids"].shape[0] > 2:
            refused.append(options["input_ids"].shape[0])
            raise RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: not enough memory")
        return forward(*args, **options)

    monkeypatch.setattr(checkpoint.model, "forward", limited)
    assert [one.tokens for one in answers(PaddedEngine(checkpoint, width=6), asked)] == expected
    assert refused == [6, 3]


def test_a_prompt_longer_than_the_context_is_told_both_numbers(folder: Path) -> None:
    engine = engine_of(load(folder))
    long = PromptIds(pieces=((5,) * 1200, (6,)))
    failed, fine = answer(engine, jobs([long, prompts(1)[0]]))
    assert "the prompt has 1201 tokens, the model's context is 1200" in str(failed)
    assert isinstance(fine, SampledReply)


@pytest.mark.parametrize("padded", [False, True])
def test_an_empty_prompt_fails_alone(padded: bool, folder: Path) -> None:
    checkpoint = load(folder)
    engine = PaddedEngine(checkpoint, width=4) if padded else engine_of(checkpoint)
    failed, fine = answer(engine, jobs([PromptIds(pieces=((), ())), prompts(1)[0]]))
    assert str(failed).endswith("the prompt is empty")
    assert isinstance(fine, SampledReply)


def test_an_error_that_is_no_lack_of_memory_is_not_taken_for_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = load(folder)
    engine = engine_of(checkpoint)
    engine.submit(jobs(prompts(1))[0])

    def broken(*_: Any) -> torch.Tensor:
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    monkeypatch.setattr(checkpoint, "forward", broken)
    with pytest.raises(RuntimeError, match="mat1"):
        engine.step()
