"""If memory runs out anywhere, batches shrink and replies stay the same: none is lost, none comes twice."""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st

from collab.errors import ModelFailure
from collab.models.checkpoint import Checkpoint
from collab.models.engine import sampling
from collab.models.engine.kv_cache import RowStore
from collab.models.engine.padded import PaddedEngine
from collab.models.engine.request_queue import Bound, RequestQueue
from collab.models.engine.sampling import DecodeRequest, SampledReply
from collab.models.engine.scheduler import Engine
from collab.models.tokenizer import ChatTokenizer, PromptIds
from collab.testing.tiny_checkpoint import make_tiny_checkpoint
from collab.types import Sampling

DRAWN = Sampling(temperature=1.0, max_tokens=8)
LIMIT = 3
"""Sequences that fit."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return make_tiny_checkpoint(tmp_path_factory.mktemp("tiny"), context=1500)


@pytest.fixture(scope="module")
def adapter(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from peft import LoraConfig, get_peft_model

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        config = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
        made = get_peft_model(transformers.AutoModelForCausalLM.from_pretrained(folder), config)
    where = tmp_path_factory.mktemp("adapter")
    made.save_pretrained(where)
    return where


def checkpoint_of(folder: Path, adapter: Path | None = None) -> Checkpoint:
    checkpoint = Checkpoint(ChatTokenizer(str(folder)), device="cpu", dtype="float32")
    assert checkpoint.share_prefixes() is None
    if adapter is not None:
        checkpoint.add_adapter("other", str(adapter))
    return checkpoint


def engine_of(checkpoint: Checkpoint, **options: Any) -> Engine:
    return Engine(checkpoint, **{"exact": False, "width": 16, "prefill": 512, "cache_bytes": 1 << 26, **options})


def jobs(count: int, *, adapters: tuple[str | None, ...] = (None,), sampling: Sampling = DRAWN) -> list[DecodeRequest]:
    """Prompts with two long beginnings in common, some messages, an end of one's own."""
    rng = random.Random(count)

    def piece(shortest: int, longest: int) -> tuple[int, ...]:
        return tuple(rng.randrange(3, 400) for _ in range(rng.randint(shortest, longest)))

    screens, messages = [piece(200, 300) for _ in range(2)], [piece(5, 50) for _ in range(4)]
    return [
        DecodeRequest(
            prompt=PromptIds(pieces=(rng.choice(screens), *rng.sample(messages, rng.randint(0, 2)), piece(1, 20))),
            sampling=sampling,
            seed=number,
            adapter=adapters[number % len(adapters)],
        )
        for number in range(count)
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


def said(found: list[SampledReply | ModelFailure]) -> list[tuple[int, ...]]:
    assert all(isinstance(one, SampledReply) for one in found), found
    return [one.tokens for one in found if isinstance(one, SampledReply)]


# -------------------------------------------------------------------------------------------------- where it runs out

Limit = Callable[[pytest.MonkeyPatch, Engine], list[int]]
"""Lets memory run out at one place where more than `LIMIT` sequences run; returns what was refused."""


def at_the_pass(patch: pytest.MonkeyPatch, engine: Engine) -> list[int]:
    forward, refused = engine.checkpoint.forward, []

    def limited(*arguments: Any) -> torch.Tensor:
        if engine._running > LIMIT:
            refused.append(engine._running)
            raise torch.OutOfMemoryError("injected")
        return forward(*arguments)

    patch.setattr(engine.checkpoint, "forward", limited)
    return refused


def after_the_pass(patch: pytest.MonkeyPatch, engine: Engine) -> list[int]:
    """In the drawing of tokens, when the keys of a pass have been written."""
    draw, refused = sampling.draw, []

    def limited(logits: torch.Tensor, **options: Any) -> Any:
        if len(logits) > LIMIT:
            refused.append(len(logits))
            raise torch.OutOfMemoryError("injected")
        return draw(logits, **options)

    patch.setattr(sampling, "draw", limited)
    return refused


def at_the_rows(patch: pytest.MonkeyPatch, engine: Engine) -> list[int]:
    reserve, refused = RowStore.reserve, []

    def limited(self: RowStore, rows: int, tokens: int) -> None:
        if rows > LIMIT:
            refused.append(rows)
            raise MemoryError("injected")
        reserve(self, rows, tokens)

    patch.setattr(RowStore, "reserve", limited)
    return refused


def at_the_cache(patch: pytest.MonkeyPatch, engine: Engine) -> list[int]:
    """One beginning and its messages fit, two do not."""
    allocate, refused, token_bytes = engine.cache.allocate, [], engine.cache.shape.token_bytes

    def limited(node: Any) -> torch.Tensor:
        if node.kv is None and engine.cache.held_bytes + len(node.ids) * token_bytes > 500 * token_bytes:
            refused.append(engine.cache.held_bytes)
            raise RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: not enough memory")
        return allocate(node)

    patch.setattr(engine.cache, "allocate", limited)
    return refused


@pytest.mark.variations
@pytest.mark.parametrize("adapters", [(None,), (None, "other")], ids=["one policy", "two policies"])
@pytest.mark.parametrize("limit", [at_the_pass, after_the_pass, at_the_rows, at_the_cache])
def test_wherever_memory_runs_out_replies_stay_what_they_are(
    limit: Limit, adapters: tuple[str | None, ...], folder: Path, adapter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = jobs(14, adapters=adapters)
    expected = said(answer(engine_of(checkpoint_of(folder, adapter)), asked))
    engine = engine_of(checkpoint_of(folder, adapter))
    refused = limit(monkeypatch, engine)
    assert said(answer(engine, asked)) == expected
    assert refused
    assert not any(node.users for node in engine.cache)


def test_the_memory_of_all_sequences_is_given_back_before_one_is_called_too_big(
    folder: Path, adapter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys that rows hold, in use or not, of this policy or another, count; each sequence alone would fit."""
    asked = jobs(12, adapters=(None, "other"))
    expected = said(answer(engine_of(checkpoint_of(folder, adapter)), asked))
    engine = engine_of(checkpoint_of(folder, adapter))
    room = 800 * engine.cache.shape.token_bytes  # a row has room for 256 tokens, a beginning takes up to 300
    forward, refused = engine.checkpoint.forward, []

    def limited(*arguments: Any) -> torch.Tensor:
        held = engine.cache.held_bytes + sum(lane.bytes for lane in engine._lanes.values())
        if held > room:
            refused.append(held)
            raise torch.OutOfMemoryError("injected")
        return forward(*arguments)

    monkeypatch.setattr(engine.checkpoint, "forward", limited)
    assert said(answer(engine, asked)) == expected
    assert refused


@pytest.mark.parametrize("pass_", [0, 1, 4, 9])
def test_an_exact_reply_is_exact_although_memory_ran_out(
    pass_: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was sampled before is computed token by token again, not as a piece of the prompt: to the last bit."""
    [asked] = jobs(1, sampling=Sampling(temperature=1.0, max_tokens=12))
    expected = answer(engine_of(checkpoint_of(folder), exact=True), [asked])[0]
    engine = engine_of(checkpoint_of(folder), exact=True)
    forward, passes = engine.checkpoint.forward, []

    def once(*arguments: Any) -> torch.Tensor:
        passes.append(1)
        if len(passes) == pass_ + 1:
            raise torch.OutOfMemoryError("injected")
        return forward(*arguments)

    monkeypatch.setattr(engine.checkpoint, "forward", once)
    [found] = answer(engine, [asked])
    assert isinstance(found, SampledReply)
    assert isinstance(expected, SampledReply)
    assert (found.tokens, found.logprobs) == (expected.tokens, expected.logprobs)
    assert found.width == 1


@pytest.mark.parametrize("place", ["forward", "draw"])
def test_a_padded_batch_that_does_not_fit_draws_the_same_again(
    place: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = jobs(7)
    expected = said(answer(PaddedEngine(checkpoint_of_its_own(folder), width=1), asked))
    engine = PaddedEngine(checkpoint_of_its_own(folder), width=7)
    holder = engine.checkpoint.model if place == "forward" else sampling
    whole, refused = getattr(holder, place), []

    def limited(*arguments: Any, **options: Any) -> Any:
        count = len(options["input_ids"] if place == "forward" else arguments[0])
        if count > LIMIT:
            refused.append(count)
            raise torch.OutOfMemoryError("injected")
        return whole(*arguments, **options)

    monkeypatch.setattr(holder, place, limited)
    assert said(answer(engine, asked)) == expected
    assert refused == [7]


def checkpoint_of_its_own(folder: Path) -> Checkpoint:
    """In the model's own attention."""
    return Checkpoint(ChatTokenizer(str(folder)), device="cpu", dtype="float32")


# ---------------------------------------------------------------------------------------------------- and comes back


@pytest.mark.slow
def test_batches_grow_again_when_there_is_memory_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_of(checkpoint_of(folder))
    with monkeypatch.context() as patch:
        at_the_pass(patch, engine)
        said(answer(engine, jobs(16)))
    assert engine._width.size <= LIMIT
    long = jobs(32, sampling=Sampling(temperature=1.0, max_tokens=400))
    found = [one for one in answer(engine, long) if isinstance(one, SampledReply)]
    assert len(found) == 32
    assert engine._width.size > LIMIT + 2


def test_who_goes_back_stands_before_those_who_never_left_in_the_old_order(folder: Path) -> None:
    line = RequestQueue(checkpoint_of_its_own(folder))
    held: list[int] = []
    for job in jobs(5):
        line.submit(replace(job, put_back=lambda: held.append(1)))
    first, second, third = (line.next() for _ in range(3))
    assert first is not None
    assert second is not None
    assert third is not None
    second.start()
    line.put_back([third, first, second])
    order = [line.next() for _ in range(5)]
    assert [one.job.seed for one in order if one is not None] == [0, 1, 2, 3, 4]
    assert held == [1], "told to whom had begun"
    assert len(line) == 0
    assert line.next() is None


def test_a_bound_by_hand() -> None:
    bound = Bound(most=16, patience=2)
    assert (bound.halve(16), bound.halve(8), bound.size, bound.patience) == (True, True, 4, 2)
    bound.note_fit(4)
    bound.note_fit(3)  # less than the bound proves nothing
    assert bound.size == 4
    bound.note_fit(4)
    assert bound.size == 5
    assert (bound.halve(5), bound.size, bound.patience) == (True, 2, 4), "five were tried again, and did not fit again"
    assert (bound.halve(1), bound.size) == (False, 2)
    assert (bound.halve(2), bound.halve(1), bound.size) == (True, False, 1)


@given(st.integers(1, 40), st.integers(1, 8), st.lists(st.tuples(st.booleans(), st.integers(0, 50)), max_size=300))
def test_a_bound_stays_between_its_ends(most: int, least: int, news: list[tuple[bool, int]]) -> None:
    bound = Bound(most=max(most, least), least=least, patience=1)
    for fitted, used in news:
        before = bound.size
        if fitted:
            bound.note_fit(used)
            assert bound.size >= before
        else:
            smaller = bound.halve(used)
            assert smaller == (bound.size < before)
        assert bound.least <= bound.size <= bound.most


# -------------------------------------------------------------------------------------------------------- how much


def test_sequences_on_one_beginning_hold_it_once(folder: Path) -> None:
    shared = tuple(random.Random(0).randrange(3, 400) for _ in range(1000))
    engine = engine_of(checkpoint_of(folder), prefill=4096)
    asked = [
        DecodeRequest(prompt=PromptIds(pieces=(shared, (number + 3, 7))), sampling=DRAWN, seed=number)
        for number in range(16)
    ]
    said(answer(engine, asked))
    rows = 16 * 256  # the least that a row has room for
    assert engine.peak_bytes <= (len(shared) + rows) * engine.cache.shape.token_bytes


def test_a_beginning_waits_for_its_next_speaker_however_much_others_use(folder: Path) -> None:
    """Between two cells of a step its prefix is unused for a moment; long prompts elsewhere must not evict it."""
    checkpoint = checkpoint_of(folder)
    engine = engine_of(checkpoint, cache_bytes=400 * checkpoint.shape.token_bytes)
    rng = random.Random(5)
    others, mine = (tuple(rng.randrange(3, 400) for _ in range(length)) for length in (1000, 300))
    short = Sampling(temperature=0.0, max_tokens=1)
    engine.submit(DecodeRequest(prompt=PromptIds(pieces=(others, (5,))), sampling=Sampling(max_tokens=400), seed=0))
    engine.step()
    first, second = (
        DecodeRequest(prompt=PromptIds(pieces=(mine, (number,))), sampling=short, seed=0) for number in (8, 9)
    )
    elsewhere = DecodeRequest(prompt=PromptIds(pieces=(others, (6,) * 80, (7,))), sampling=short, seed=0)
    for job, computed in ((first, 301), (elsewhere, 81), (second, 1)):
        engine.submit(job)
        found: dict[DecodeRequest, SampledReply | ModelFailure] = {}
        while job not in found:
            found |= dict(engine.step())
        answered = found[job]
        assert isinstance(answered, SampledReply)
        assert answered.computed_tokens == computed


# ------------------------------------------------------------------------------------------------------ broken numbers


def test_a_sequence_that_computes_nan_spoils_nobody_who_comes_after_it(folder: Path, tmp_path: Path) -> None:
    """A row's memory is read beyond its end, with weight zero: nothing may be left there that zero does not cancel."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        model.model.embed_tokens.weight[401] = torch.nan  # so are the logits of this token, for everybody
        model.config.tie_word_embeddings = False
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().nan_to_num(-1.0))
    model.save_pretrained(tmp_path)
    transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(tmp_path)
    rng = random.Random(1)
    ends = [tuple(rng.randrange(3, 400) for _ in range(length)) for length in (180, 150, 4, 4)]
    asked = [
        DecodeRequest(prompt=PromptIds(pieces=(end,)), sampling=Sampling(temperature=0.0, max_tokens=20), seed=0)
        for end in (ends[0], (*ends[1], 401), ends[2], ends[3])
    ]
    alone = [answer(engine_of(checkpoint_of(tmp_path)), [job])[0] for job in asked]
    long, broken, *after = answer(engine_of(checkpoint_of(tmp_path), width=2), asked)
    assert isinstance(broken, ModelFailure)
    assert "NaN or infinite logits after 0 tokens" in str(broken)
    assert said([long, *after]) == said([alone[0], *alone[2:]])
