import asyncio
import json
import random
import shutil
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from collab.errors import ConfigError, ModelFailure
from collab.library import Library
from collab.models.base import CallClock, Reading, Reply, Request
from collab.models.local import LocalModel
from collab.rollout.build import build_team, with_prompts
from collab.rollout.plan import run_config
from collab.testing.tiny_checkpoint import make_tiny_checkpoint
from collab.types import Prompt, Sampling, Segment

WORDS = ["tap", "the", "Save", "button", "7", "Zürich", "\n", "[3]", "type", "🙂", "scroll down", "{}"]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)  # tiny matrices: threads only get in each other's way
    return make_tiny_checkpoint(tmp_path_factory.mktemp("tiny"), context=600)


def requests(count: int, **sampling: Any) -> list[Request]:
    rng = random.Random(count)
    made = []
    for number in range(count):
        text = " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, 60)))
        prompt = Prompt(system="Rules.", shared=text, segments=(Segment(text=f"\nYou are agent {number}."),))
        made.append(Request(prompt=prompt, sampling=Sampling(**{"max_tokens": 12, **sampling}), seed=number))
    return made


def play(model: LocalModel, scene: Callable[[], Awaitable[Any]]) -> Any:
    async def whole() -> Any:
        try:
            return await scene()
        finally:
            await model.close()
            await model.close()

    return asyncio.run(whole())


def together(checkpoint: Path, asked: list[Request], **options: Any) -> list[Reply]:
    model = LocalModel(path=str(checkpoint), **options)

    async def scene() -> list[Reply]:
        return await asyncio.gather(*map(model.generate, asked))

    replies: list[Reply] = play(model, scene)
    return replies


# ---------------------------------------------------------------------------------------------------- generation


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


def said(reply: Reply) -> tuple[Any, ...]:
    return reply.text, reply.tokens, reply.logprobs, reply.behaviour_logprobs


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


# ---------------------------------------------------------------------------------------------------------- set-up


def test_probe_tells_what_is_there(checkpoint: Path) -> None:
    model = LocalModel(path=str(checkpoint))
    able = play(model, model.probe)
    assert (able.counts_tokens, able.knows_price) == (True, True), "a limit in money fits, too"
    assert (able.logprobs, able.seed, able.token_ids, able.structured, able.images) == (True, True, True, False, False)
    assert "device cpu, float32, context 600 tokens" in able.notes[0]


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("config.json", "no config.json"),
        ("model.safetensors", "other formats can hold code"),
        ("tokenizer.json", "tokenizer"),
        ("chat_template.jinja", "no chat template"),
    ],
)
def test_an_incomplete_directory_is_named(checkpoint: Path, tmp_path: Path, missing: str, message: str) -> None:
    folder = shutil.copytree(checkpoint, tmp_path / "model")
    (folder / missing).unlink()
    with pytest.raises(ConfigError, match=message):
        LocalModel(path=str(folder))


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "adapter_model.safetensors"])
def test_what_git_has_not_fetched_is_named(name: str, checkpoint: Path, adapters: list[str], tmp_path: Path) -> None:
    folder = shutil.copytree(checkpoint, tmp_path / "model")
    adapter = shutil.copytree(adapters[0], tmp_path / "adapter")
    file = (adapter if name.startswith("adapter") else folder) / name
    file.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 1234\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=rf"{name}: a Git LFS pointer, .* git lfs pull$"):
        LocalModel(path=str(folder), adapter=str(adapter))


def test_paths_that_are_not_there(checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such model directory"):
        LocalModel(path=str(tmp_path / "nowhere"))
    with pytest.raises(ConfigError, match="set download: true"):
        LocalModel(path="nobody/no-such-model")
    with pytest.raises(ConfigError, match="an adapter is a PEFT directory"):
        LocalModel(path=str(checkpoint), adapter=str(tmp_path))


def test_damaged_weights_and_foreign_tokenizers_are_found_at_first_use(checkpoint: Path, tmp_path: Path) -> None:
    damaged = shutil.copytree(checkpoint, tmp_path / "damaged")
    (damaged / "model.safetensors").write_bytes(b"not weights")
    with pytest.raises(ConfigError, match="weights cannot be loaded"):
        together(damaged, requests(1))
    small = make_tiny_checkpoint(tmp_path / "small", vocabulary=300)
    shutil.copy(checkpoint / "tokenizer.json", small)
    with pytest.raises(ConfigError, match="belongs to another model"):
        together(small, requests(1))
    large = shutil.copytree(checkpoint, tmp_path / "large")
    shutil.copy(make_tiny_checkpoint(tmp_path / "other", vocabulary=300) / "tokenizer.json", large)
    transformers.GenerationConfig(eos_token_id=[2, 450]).save_pretrained(large)
    with pytest.raises(ConfigError, match="ends replies with token 450, the tokenizer has 300"):
        together(large, requests(1))


@pytest.mark.parametrize(("option", "message"), [({"device": "gpu9"}, "device 'gpu9'"), ({"dtype": "int3"}, "float32")])
def test_wrong_devices_and_dtypes(checkpoint: Path, option: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        together(checkpoint, requests(1), **option)


@pytest.fixture
def adapters(checkpoint: Path, tmp_path: Path) -> list[str]:
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    made = []
    for number in range(2):
        base = transformers.AutoModelForCausalLM.from_pretrained(checkpoint)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(number)
            peft.get_peft_model(base, config).save_pretrained(tmp_path / f"adapter{number}")
        made.append(str(tmp_path / f"adapter{number}"))
    return made


def test_adapters_speak_over_the_same_weights(checkpoint: Path, adapters: list[str]) -> None:
    base = LocalModel(path=str(checkpoint))
    models = [base, *(base.with_adapter(adapter, version=0) for adapter in adapters)]
    assert [model.policy.adapter for model in models] == [None, *adapters]
    asked = requests(3, temperature=0.0)

    async def scene() -> list[list[Reply]]:
        return [list(await asyncio.gather(*map(model.generate, asked))) for model in [*models, *models]]

    first = [[said(reply)[1] for reply in replies] for replies in play(base, scene)]
    assert first[:3] == first[3:]
    assert len({tuple(one) for one in map(tuple, first)}) == 3
    alone = [[said(reply)[1] for reply in together(checkpoint, asked, adapter=adapter)] for adapter in adapters]
    assert first[1:3] == alone


def test_a_base_closes_when_its_last_model_does(checkpoint: Path, adapters: list[str]) -> None:
    base = LocalModel(path=str(checkpoint))
    adapted = base.with_adapter(adapters[0], version=0)

    async def scene() -> None:
        await base.close()
        with pytest.raises(ModelFailure, match="was closed"):
            await base.generate(requests(1)[0])
        assert (await adapted.generate(requests(1)[0])).text
        await adapted.close()

    asyncio.run(scene())


def test_a_new_version_of_an_adapter_shares_nothing_with_the_old_one(
    checkpoint: Path, adapters: list[str], tmp_path: Path
) -> None:
    """The directory is the same, the weights are not: what was computed with the old ones is never attended to."""
    place = str(shutil.copytree(adapters[0], tmp_path / "current"))
    asked = requests(3, temperature=0.0)
    expected = [[said(reply)[1] for reply in together(checkpoint, asked, adapter=adapter)] for adapter in adapters]
    base = LocalModel(path=str(checkpoint))

    async def replies(version: int) -> list[Any]:
        model = base.with_adapter(place, version)
        found = [said(reply)[1] for reply in await asyncio.gather(*map(model.generate, asked))]
        await model.close()
        return found

    async def scene() -> None:
        assert await replies(0) == expected[0]
        shutil.copytree(adapters[1], place, dirs_exist_ok=True)
        assert await replies(1) == expected[1]
        await base.generate(asked[0])
        assert base.engine is not None
        assert not [name for name, _ in base.engine.checkpoint.model.named_parameters() if "lora" in name]
        assert await replies(1) == expected[1]

    play(base, scene)


def test_closing_one_model_leaves_those_beside_it_alone(checkpoint: Path, adapters: list[str]) -> None:
    base = LocalModel(path=str(checkpoint))
    models = [base.with_adapter(adapter, version=0) for adapter in adapters]
    long = requests(2, temperature=0.0, max_tokens=200)

    async def scene() -> list[Any]:
        tasks = [asyncio.create_task(model.generate(long[0])) for model in [base, *models]]
        await asyncio.sleep(0.05)
        await models[0].close()
        return await asyncio.gather(*tasks, return_exceptions=True)

    first, closed, other = play(base, scene)
    assert isinstance(closed, ModelFailure)
    assert isinstance(first, Reply)
    assert isinstance(other, Reply)


def test_an_adapter_of_another_base_is_refused(checkpoint: Path, adapters: list[str], tmp_path: Path) -> None:
    for options in ({"layers": 1}, {"layers": 3}, {"hidden": 32}):
        other = make_tiny_checkpoint(tmp_path / "other", **options)
        with pytest.raises(ConfigError, match=r"another base|cannot be loaded"):
            together(other, requests(1), adapter=adapters[0])
        model = LocalModel(path=str(other), adapter=adapters[0])
        with pytest.raises(ConfigError, match=r"another base|cannot be loaded"):
            play(model, model.probe)  # before any call, so before anything is recorded
        assert together(other, requests(1))  # without it, all is well


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"alora_invocation_tokens": [5, 6]}, r"an activated LoRA \(alora_invocation_tokens\), which cannot be used"),
        ({"peft_type": "FUTURE"}, r"there is no 'FUTURE'$"),
        ({"peft_type": "IA3", "feedforward_modules": []}, r"an adapter of kind IA3; only LoRA adapters can be used"),
    ],
)
def test_an_adapter_that_would_not_speak_as_it_should_is_refused(
    changes: dict[str, Any], message: str, checkpoint: Path, adapters: list[str], tmp_path: Path
) -> None:
    folder = shutil.copytree(adapters[0], tmp_path / "adapter")
    config = folder / "adapter_config.json"
    config.write_text(json.dumps(json.loads(config.read_text(encoding="utf-8")) | changes), encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        together(checkpoint, requests(1), adapter=str(folder))


@pytest.mark.variations
@pytest.mark.parametrize("options", [{"layers": 1}, {"layers": 3}, {"hidden": 32}], ids=str)
def test_an_adapter_that_was_refused_changes_nothing(
    options: dict[str, int], adapters: list[str], tmp_path: Path
) -> None:
    peft = pytest.importorskip("peft")
    other = make_tiny_checkpoint(tmp_path / "other", **options)
    fitting = transformers.AutoModelForCausalLM.from_pretrained(other)
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    peft.get_peft_model(fitting, config).save_pretrained(tmp_path / "fitting")
    asked = requests(3, temperature=0.0)
    expected = [
        [said(reply)[1] for reply in together(other, asked, adapter=adapter)]
        for adapter in (None, str(tmp_path / "fitting"))
    ]
    base = LocalModel(path=str(other))

    async def replies(model: LocalModel) -> list[Any]:
        return [said(reply)[1] for reply in await asyncio.gather(*map(model.generate, asked))]

    async def scene() -> None:
        wrong, right = (
            base.with_adapter(adapters[0], version=0),
            base.with_adapter(str(tmp_path / "fitting"), version=0),
        )
        for _ in range(2):
            with pytest.raises(ConfigError, match=r"another base|cannot be loaded"):
                await wrong.generate(asked[0])
            assert await replies(base) == expected[0]
            assert await replies(right) == expected[1]
        assert await replies(base) == expected[0]

    play(base, scene)


def test_a_team_of_adapters_holds_its_base_once(checkpoint: Path, adapters: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "library" / "agents"
    folder.mkdir(parents=True)
    for name, adapter in zip(("one", "two"), adapters, strict=True):
        options = f"{{path: {checkpoint}, adapter: {adapter}}}"
        (folder / f"{name}.yaml").write_text(f"kind: local\noptions: {options}\ncontext_tokens: 600\n")
    (tmp_path / "library" / "graphs").mkdir()
    (tmp_path / "library" / "graphs" / "pair.yaml").write_text("slots: [ada, ben]\nrounds: 1\nedges: []\n")
    library = Library(own=tmp_path / "library")
    config = run_config(library=library, env="androidworld", graph="pair", agents="ada=one,ben=two", episodes=1)
    team = build_team(with_prompts(config, library))
    first, second = (team.network.agents[slot].model for slot in ("ada", "ben"))
    assert isinstance(first, LocalModel)
    assert isinstance(second, LocalModel)
    assert [first.policy.adapter, second.policy.adapter] == adapters

    async def scene() -> None:
        await team.probe()
        assert first.engine is second.engine is not None
        await team.close()

    asyncio.run(scene())
