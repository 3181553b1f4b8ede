"""Models in this process: batches give the replies of single requests, and one failure harms no other."""

import asyncio
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from collab.errors import ModelFailure
from collab.models.base import CallClock, Reading, Reply, Request
from collab.models.local import LocalModel
from collab.types import Prompt, Sampling
from tests.models.tiny_local import play, requests, said, together


@pytest.mark.medium
def test_batched_greedy_equals_one_by_one(checkpoint: Path) -> None:
    asked = requests(36, temperature=0.0)
    batched = together(checkpoint, asked, max_batch=16)
    alone = together(checkpoint, asked, determinism="exact")
    assert [reply.tokens for reply in batched] == [reply.tokens for reply in alone]
    for one, other in zip(batched, alone, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-5)
        assert one.behaviour_logprobs == (0.0,) * len(one.tokens or ())


def test_logprobs_equal_a_plain_forward_pass(checkpoint: Path) -> None:
    asked = requests(12, temperature=0.7, top_p=0.8)
    replies = together(checkpoint, asked)
    reader = LocalModel(path=str(checkpoint))
    model = transformers.AutoModelForCausalLM.from_pretrained(checkpoint)
    for request, reply in zip(asked, replies, strict=True):
        prompt, reply_ids = list(reader.prompt_ids(request.prompt).ids), list(reply.tokens or ())
        assert (reply.end_token, reply.end_logprob, reply.end_behaviour_logprob) == (None,) * 3, "it was cut"
        with torch.no_grad():
            logits = model(torch.tensor([prompt + reply_ids])).logits[0, len(prompt) - 1 : -1].float()
        plain = logits.log_softmax(-1).gather(-1, torch.tensor(reply_ids)[:, None])[:, 0]
        assert reply.logprobs == pytest.approx(plain.tolist(), abs=1e-5)
        bent = (logits / 0.7).softmax(-1)
        for row, token, behaviour in zip(bent, reply_ids, reply.behaviour_logprobs or (), strict=True):
            sorted_, _ = row.sort(descending=True)
            size = int((sorted_.cumsum(0) < 0.8).sum()) + 1  # the smallest set that reaches 0.8
            assert behaviour == pytest.approx(float((row[token] / sorted_[:size].sum()).log()), abs=1e-3)


def test_exact_replies_depend_on_their_request_alone(checkpoint: Path) -> None:
    asked = requests(10, temperature=1.0)
    crowd = together(checkpoint, asked, determinism="exact")
    backwards = together(checkpoint, asked[::-1], determinism="exact")[::-1]
    alone = together(checkpoint, asked[3:4], determinism="exact")[0]
    assert [said(reply) for reply in crowd] == [said(reply) for reply in backwards]
    assert said(crowd[3]) == said(alone)


def test_a_batch_gives_each_row_its_own_seed_and_settings(checkpoint: Path) -> None:
    asked = [
        request
        for settings in (
            {"temperature": 0.0},
            {"temperature": 1.0},
            {"temperature": 0.8, "top_p": 0.5, "max_tokens": 5},
        )
        for request in requests(5, **settings)
    ]
    batched = together(checkpoint, asked, max_batch=15)
    alone = [together(checkpoint, [request], determinism="exact")[0] for request in (asked[0], asked[6], asked[12])]
    assert [batched[index].tokens for index in (0, 6, 12)] == [reply.tokens for reply in alone]
    assert all(len(reply.tokens or ()) <= 5 for reply in batched[10:])


def test_seeds_change_replies(checkpoint: Path) -> None:
    prompt = requests(1)[0].prompt
    asked = [Request(prompt=prompt, sampling=Sampling(temperature=1.0, max_tokens=8), seed=seed) for seed in (1, 2, 1)]
    first, other, again = together(checkpoint, asked)
    assert first.tokens == again.tokens
    assert first.tokens != other.tokens


def test_length_and_counts(checkpoint: Path) -> None:
    [reply] = together(checkpoint, requests(1, temperature=0.0, max_tokens=3))
    assert reply.finish == "length"
    assert len(reply.tokens or ()) == reply.completion_tokens == 3
    assert reply.prompt_tokens == len(LocalModel(path=str(checkpoint)).prompt_ids(requests(1)[0].prompt))


def test_a_reply_tells_what_it_cost(checkpoint: Path) -> None:
    """Three calls of one prompt, two at a time: who waited, how wide it ran, and what was there already."""
    asked = requests(1, temperature=0.0) * 3
    first, _, last = together(checkpoint, asked, max_batch=2)
    assert first.queue_s is not None
    assert last.queue_s is not None
    assert 0 <= first.queue_s < last.queue_s
    assert first.work_s is not None
    assert 0 < first.work_s <= last.queue_s, "who came last waited for the first"
    assert first.width is not None
    assert 1 < first.width <= 2
    assert first.computed_tokens == first.prompt_tokens
    closing = len(LocalModel(path=str(checkpoint)).prompt_ids(asked[0].prompt).pieces[-1])
    assert last.computed_tokens == closing, "all but the piece that ends every prompt"


def test_the_end_of_the_turn_stops_a_reply_and_is_no_part_of_it(checkpoint: Path, tmp_path: Path) -> None:
    """With every weight that leads to other tokens at zero, the first token is the end."""
    ending = shutil.copytree(checkpoint, tmp_path / "ending")
    model = transformers.AutoModelForCausalLM.from_pretrained(ending)
    tokenizer = transformers.AutoTokenizer.from_pretrained(ending)
    with torch.no_grad():
        # all hidden states point along one axis, which only the end's embedding has
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        model.model.embed_tokens.weight.zero_()
        model.model.embed_tokens.weight[:, 0] = 0.1
        model.model.embed_tokens.weight[tokenizer.eos_token_id, 0] = 5.0
    model.save_pretrained(ending)
    [reply] = together(ending, requests(1, temperature=1.0))
    assert (reply.text, reply.tokens, reply.finish, reply.completion_tokens) == ("", (), "stop", 1)
    prompt = list(LocalModel(path=str(ending)).prompt_ids(requests(1)[0].prompt).ids)
    plain = model(torch.tensor([prompt])).logits[0, -1].detach()
    assert reply.end_token == tokenizer.eos_token_id
    assert reply.end_logprob == pytest.approx(float(plain.log_softmax(-1)[reply.end_token]), abs=1e-5)
    [hot] = together(ending, requests(1, temperature=3.0))
    assert hot.end_token == tokenizer.eos_token_id
    assert hot.end_logprob == pytest.approx(reply.end_logprob, abs=1e-5)
    assert hot.end_behaviour_logprob == pytest.approx(float((plain / 3).log_softmax(-1)[hot.end_token]), abs=1e-5)
    assert hot.end_behaviour_logprob < hot.end_logprob


def test_stop_strings_end_text_and_tokens(checkpoint: Path) -> None:
    [free] = together(checkpoint, requests(1, temperature=1.0, max_tokens=40))
    model = LocalModel(path=str(checkpoint))
    full = free.text
    for at in range(3, 25):
        stop = full[at : at + 3]
        if "\ufffd" in stop or full.find(stop) != at:
            continue
        [reply] = together(checkpoint, requests(1, temperature=1.0, max_tokens=40, stop=("never said", stop)))
        kept = reply.tokens or ()
        assert (reply.finish, reply.text) == ("stop", full[:at])
        assert kept == (free.tokens or ())[: len(kept)]
        assert len(model.chat.decode(kept[:-1])) < at <= len(model.chat.decode(kept))
        assert len(reply.logprobs or ()) == len(reply.behaviour_logprobs or ()) == len(kept)
        assert (reply.end_token, reply.end_logprob, reply.end_behaviour_logprob) == (None,) * 3
        assert (reply.completion_tokens or 0) > len(kept)
        break
    else:
        pytest.fail(f"nothing to stop at in {full!r}")


# -------------------------------------------------------------------------------------------------------- failures


def test_a_prompt_beyond_the_context_fails_alone_and_with_numbers(checkpoint: Path) -> None:
    long = Request(prompt=Prompt(system="", shared="🙂" * 400, segments=()), sampling=Sampling(temperature=0.0), seed=0)
    model = LocalModel(path=str(checkpoint))

    async def scene() -> list[Reply | BaseException]:
        return await asyncio.gather(*map(model.generate, [long, *requests(2)]), return_exceptions=True)

    failed, *fine = play(model, scene)
    assert isinstance(failed, ModelFailure)
    assert "the prompt has 1" in str(failed)
    assert "context is 600" in str(failed)
    assert all(isinstance(reply, Reply) for reply in fine)
    assert model.meter.snapshot().failures == 1


def test_a_reply_ends_where_the_context_does(checkpoint: Path) -> None:
    model = LocalModel(path=str(checkpoint))
    spare = 600 - len(model.prompt_ids(Prompt(system="", shared="", segments=())))
    prompt = Prompt(system="", shared="\x01" * (spare - 4), segments=())
    [reply] = together(checkpoint, [Request(prompt=prompt, sampling=Sampling(temperature=0.0), seed=0)])
    assert (reply.finish, reply.completion_tokens) == ("length", 4)


def test_nan_is_a_failure(checkpoint: Path, tmp_path: Path) -> None:
    broken = shutil.copytree(checkpoint, tmp_path / "broken")
    model = transformers.AutoModelForCausalLM.from_pretrained(broken)
    with torch.no_grad():
        model.model.norm.weight[0] = float("nan")
    model.save_pretrained(broken)
    with pytest.raises(ModelFailure, match="NaN or infinite logits"):
        together(broken, requests(1))


def test_a_cancelled_caller_does_not_break_its_batch(checkpoint: Path) -> None:
    model = LocalModel(path=str(checkpoint))
    asked = requests(6, temperature=0.0)

    async def scene() -> list[Reply]:
        tasks = [asyncio.create_task(model.generate(request)) for request in asked]
        await asyncio.sleep(0.005)
        tasks[2].cancel()
        return [await task for task in tasks if task is not tasks[2]]

    replies = play(model, scene)
    expected = together(checkpoint, asked, determinism="exact")
    assert [reply.tokens for reply in replies] == [reply.tokens for reply in expected[:2] + expected[3:]]


def test_an_abandoned_reply_is_not_written_to_its_end(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = LocalModel(path=str(checkpoint))
    endless = Request(prompt=requests(1)[0].prompt, sampling=Sampling(temperature=0.0, max_tokens=500), seed=0)
    passes: list[int] = []

    async def scene() -> None:
        await model.probe()
        assert model.engine is not None
        forward = model.engine.checkpoint.forward
        monkeypatch.setattr(
            model.engine.checkpoint, "forward", lambda *arguments: passes.append(1) or forward(*arguments)
        )
        task = asyncio.create_task(model.generate(endless))
        while len(passes) < 5:
            await asyncio.sleep(0.001)
        task.cancel()
        async with asyncio.timeout(10.0):
            while model.engine.busy:
                await asyncio.sleep(0.001)

    play(model, scene)
    assert 5 <= len(passes) < 200
    reading = model.meter.snapshot()
    assert (reading.lost, reading.calls) == (1, 0)


def test_a_call_cancelled_in_the_queue_is_not_lost(checkpoint: Path) -> None:
    model = LocalModel(path=str(checkpoint))

    async def scene() -> None:
        task = asyncio.create_task(model.generate(requests(1)[0]))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])

    play(model, scene)
    assert model.meter.snapshot() == Reading()


@pytest.mark.slow
def test_going_back_to_the_line_is_no_call_time(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory for one sequence only: the others wait longer than a call may take, and are answered."""
    model = LocalModel(path=str(checkpoint))
    refused: list[int] = []

    async def timed(request: Request) -> Reply:
        clock = CallClock(2.0)
        async with clock.running():
            return await model.generate(replace(request, clock=clock))

    async def scene() -> list[Reply]:
        await model.probe()
        assert model.engine is not None
        checkpoint_ = model.engine.checkpoint
        forward = checkpoint_.forward

        def limited(ids: Any, positions: Any, keep: Any, plan: Any) -> Any:
            time.sleep(0.04)
            if len(keep) > 1:
                refused.append(len(keep))
                raise torch.OutOfMemoryError("injected")
            return forward(ids, positions, keep, plan)

        monkeypatch.setattr(checkpoint_, "forward", limited)
        return await asyncio.gather(*map(timed, requests(6, temperature=0.0, max_tokens=12)))

    started = time.perf_counter()
    replies = play(model, scene)
    assert time.perf_counter() - started > 2.0
    assert refused
    assert all(reply.completion_tokens for reply in replies)


def test_the_event_loop_stays_free_while_the_model_works(checkpoint: Path) -> None:
    model = LocalModel(path=str(checkpoint))
    ticks = 0

    async def scene() -> None:
        nonlocal ticks
        await model.probe()
        task = asyncio.create_task(model.generate(requests(1, temperature=0.0, max_tokens=100)[0]))
        while not task.done():
            await asyncio.sleep(0.001)
            ticks += 1

    play(model, scene)
    assert ticks > 10


def test_after_close_calls_fail_and_waiting_ones_too(checkpoint: Path) -> None:
    model = LocalModel(path=str(checkpoint), max_batch=1)

    async def scene() -> list[Any]:
        tasks = [asyncio.create_task(model.generate(request)) for request in requests(4, max_tokens=300)]
        await asyncio.sleep(0.01)
        await model.close()
        return await asyncio.gather(*tasks, return_exceptions=True)

    assert all(isinstance(outcome, ModelFailure) for outcome in play(model, scene))
    with pytest.raises(ModelFailure, match="was closed"):
        asyncio.run(model.generate(requests(1)[0]))


def test_one_model_serves_two_event_loops(checkpoint: Path) -> None:
    model = LocalModel(path=str(checkpoint))
    asked = requests(1, temperature=0.0)[0]
    first, second = (asyncio.run(model.generate(asked)) for _ in range(2))
    assert first.tokens == second.tokens
    asyncio.run(model.close())


def test_pictures_are_refused(checkpoint: Path) -> None:
    request = Request(prompt=requests(1)[0].prompt, sampling=Sampling(), seed=0, images=(b"png",))
    with pytest.raises(ModelFailure, match="text only"):
        asyncio.run(LocalModel(path=str(checkpoint)).generate(request))
