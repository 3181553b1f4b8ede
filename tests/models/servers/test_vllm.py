"""Against the real vLLM, started by `collab serve` on a tiny checkpoint: COLLAB_VLLM must name its program."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from collab.config import AgentDefinition
from collab.envs.grammar import MOBILE
from collab.errors import ConfigError, ModelFailure
from collab.library import Library
from collab.loop.export import export, find
from collab.loop.loop import start
from collab.models.base import Reply, Request
from collab.models.completion import build_chat_messages
from collab.models.concurrency import START
from collab.models.openai import OpenAIModel
from collab.prompts.parse import read_reply
from collab.prompts.render import Template, read_templates
from collab.rollout.build import build
from collab.testing import toy_team
from collab.testing.tiny_checkpoint import make_tiny_checkpoint
from collab.types import Observation, Prompt, Sampling, Segment

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not os.environ.get("COLLAB_VLLM"), reason="COLLAB_VLLM does not name a vllm program"),
]

SYSTEM = Template("default", read_templates(Library().find_path("prompts", "default"))).render_system(MOBILE)
SCREEN = "Task: Turn bluetooth on.\n" + "".join(f'button "Save {number}" [{number}]\n' for number in range(40))


def make_adapter(base: Path, folder: Path, seed: int, rank: int = 8) -> str:
    """A LoRA adapter with random weights, large enough to be heard."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.manual_seed(seed)
    targets = ["q_proj", "v_proj", "o_proj"]
    config = LoraConfig(r=rank, lora_alpha=64, target_modules=targets, init_lora_weights=False, task_type="CAUSAL_LM")
    get_peft_model(AutoModelForCausalLM.from_pretrained(base), config).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A base model and adapters for it: two that fit, one of too large a rank, one for a narrower model."""
    folder = tmp_path_factory.mktemp("served")
    base = make_tiny_checkpoint(folder / "base", hidden=256)  # the CPU kernels want heads of at least 32
    narrow = make_tiny_checkpoint(folder / "narrow", hidden=128)
    return {
        "base": str(base),
        "one": make_adapter(base, folder / "one", seed=1),
        "two": make_adapter(base, folder / "two", seed=2),
        "large": make_adapter(base, folder / "large", seed=3, rank=16),
        "alien": make_adapter(narrow, folder / "alien", seed=4),
    }


@contextlib.contextmanager
def serving(path: str, log: Path) -> Iterator[dict[str, Any]]:
    """`collab serve` at work; options of the agents file that it prints."""
    command = [sys.executable, "-c", "from collab.cli.main import run; run()", "serve", path]
    command += ["--port", "0", "--dtype", "float32", "--max-model-len", "4096", "--lora-rank", "8"]
    command += ["--arg=--no-enable-chunked-prefill", "--arg=--max-num-batched-tokens=8192"]  # see the README
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
    with log.open("wb") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, env=environment, text=True)
        try:
            assert process.stdout is not None
            lines = []
            for line in process.stdout:
                lines.append(line)
                if "# adapter:" in line:
                    break
            assert lines, log.read_text()[-3000:]
            definition = AgentDefinition.model_validate(yaml.safe_load("".join(lines)))
            assert isinstance(build("models", definition, "served"), OpenAIModel)
            yield definition.options | {"timeout_s": 120}
        finally:
            process.send_signal(signal.SIGINT)
            code = process.wait(timeout=60)
    assert code == 0, log.read_text()[-3000:]


@pytest.fixture(scope="module")
def options(files: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Of a server of the base."""
    with serving(files["base"], tmp_path_factory.mktemp("log") / "server.log") as served:
        yield served


def request(text: str = SCREEN, seed: int = 1, cell: bool = True, **sampling: Any) -> Request:
    segments = (Segment(text="You are ada."),) if cell else ()
    prompt = Prompt(system=SYSTEM, shared=text, segments=segments)
    return Request(prompt=prompt, sampling=Sampling(**sampling), seed=seed)


def play(model: OpenAIModel, scene: Callable[[], Awaitable[Any]]) -> Any:
    async def whole() -> Any:
        try:
            return await scene()
        finally:
            await model.close()

    return asyncio.run(whole())


IDS = {"return_token_ids": True}
GREEDY: dict[str, Any] = {"temperature": 0.0, "max_tokens": 16}


def test_two_adapters_speak_beside_each_other(files: dict[str, str], options: dict[str, Any]) -> None:
    model = OpenAIModel(**options)

    async def ask(one: OpenAIModel) -> tuple[int, ...]:
        reply = await one.generate(request(**GREEDY))
        assert reply.tokens is not None
        return reply.tokens

    async def scene() -> list[list[tuple[int, ...]]]:
        adapted = [
            model.with_adapter(files[name], version) for version, name in enumerate(("one", "two", "one"), start=1)
        ]
        said = await asyncio.gather(*(ask(one) for one in (model, *adapted) for _ in range(4)))
        for one in adapted:
            await one.close()
        return [said[first : first + 4] for first in range(0, len(said), 4)]

    tokens = [set(batch) for batch in play(model, scene)]
    assert [len(each) for each in tokens] == [1] * 4, "greedy replies of one policy are equal"
    assert tokens[1] == tokens[3], "the same weights say the same, also under another version"
    assert len(tokens[0] | tokens[1] | tokens[2]) == 3, "different weights say different things"


def test_the_prefix_cache_finds_what_prompts_share(options: dict[str, Any]) -> None:
    model = OpenAIModel(**options)

    async def scene() -> tuple[float, list[Reply]]:
        first = await model.generate(request("A prompt of this test. " + SCREEN, **GREEDY))
        before = await model.prefix_cache()
        asked = [request("A prompt of this test. " + SCREEN + f"{number}", **GREEDY) for number in range(8)]
        replies = await asyncio.gather(*map(model.generate, asked))
        after = await model.prefix_cache()
        assert before is not None
        assert after is not None
        return after.since(before).rate, [first, *replies]

    rate, replies = play(model, scene)
    assert rate > 0.9
    for reply in replies[1:]:
        assert reply.computed_tokens is not None
        assert reply.prompt_tokens is not None
        assert 0 < reply.computed_tokens < 0.1 * reply.prompt_tokens


def test_a_crowd_of_agents_is_answered_and_the_window_opens(options: dict[str, Any]) -> None:
    model = OpenAIModel(**options)

    async def scene() -> list[Reply]:
        asked = [request(f"Crowd {number}. {SCREEN}", seed=number, **GREEDY) for number in range(48)]
        return await asyncio.gather(*map(model.generate, asked))

    replies = play(model, scene)
    assert all(reply.completion_tokens for reply in replies)
    reading = model.meter.snapshot()
    assert (reading.failures, reading.retries) == (0, 0)
    assert START < model.window.size <= 64


def test_held_replies_are_well_formed_and_keep_the_plain_policys_logprobs(options: dict[str, Any]) -> None:
    model = OpenAIModel(**options, structured=True)
    screen = Observation(space="mobile", title="", elements=(), text="")

    async def scene() -> list[Reply]:
        able = await model.probe()
        assert {"patterns: yes", "scores: yes"} < set(able.notes)
        asked = [request(seed=seed, temperature=1.0, max_tokens=2500) for seed in range(6)]
        return await asyncio.gather(*map(model.generate, asked))

    for reply in play(model, scene):
        assert reply.finish == "stop"
        parsed = read_reply(reply.text, MOBILE, screen)
        assert parsed.failure is None or parsed.failure.kind in ("bad_field", "missing_field", "no_such_element")
        assert reply.logprobs is not None
        assert reply.behaviour_logprobs is not None
        assert reply.tokens is not None
        assert len(reply.logprobs) == len(reply.behaviour_logprobs) == len(reply.tokens)
        assert reply.end_token is not None
        assert reply.end_logprob is not None
        assert reply.end_behaviour_logprob is not None
        gains = [masked - plain for plain, masked in zip(reply.logprobs, reply.behaviour_logprobs, strict=True)]
        assert min(gains) > -1e-3, "what the pattern leaves can only gain probability"
        assert sum(gains) > 1, "and here it gains a lot"


def test_scoring_a_free_reply_gives_the_logprobs_it_was_sampled_with(options: dict[str, Any]) -> None:
    model = OpenAIModel(**options, structured=True)

    async def scene() -> None:
        reply = await model.generate(request(cell=False, temperature=1.0, max_tokens=32))
        read = await model._ask({"messages": build_chat_messages(request(cell=False)), "max_tokens": 1, **IDS})
        assert reply.tokens is not None
        assert read.prompt_token_ids is not None
        scored = (await model._score([*read.prompt_token_ids, *reply.tokens])).of(reply.tokens)
        assert scored == pytest.approx(reply.logprobs, abs=1e-3)

    play(model, scene)


def test_adapters_that_do_not_fit_are_refused_and_harm_no_other(files: dict[str, str], options: dict[str, Any]) -> None:
    model = OpenAIModel(**options)

    async def scene() -> None:
        before = await model.generate(request(**GREEDY))
        with pytest.raises(ModelFailure, match=r"rank 16 is greater than max_lora_rank.*--lora-rank"):
            await model.with_adapter(files["large"], 1).generate(request(**GREEDY))
        with pytest.raises(ConfigError, match="is for a model of width 128"):
            await model.with_adapter(files["alien"], 1).generate(request(**GREEDY))
        after = await model.generate(request(**GREEDY))
        assert (after.tokens, model.policy.adapter) == (before.tokens, None)

    play(model, scene)


def test_a_training_is_played_by_the_server(tmp_path: Path) -> None:
    """Two epochs: what each leaves is loaded under run and epoch, and plain transformers says the same exported."""
    taught = toy_team.finetune(make_tiny_checkpoint(tmp_path / "tiny", hidden=128, layers=2), tmp_path).resolve()
    log = tmp_path / "server.log"
    with serving(str(taught), log) as served:
        library = toy_team.write_library(tmp_path / "library", taught)
        agents: dict[str, Any] = {"kind": "openai", "options": served, "prompt": "pocket", "context_tokens": 2048}
        agents["sampling"] = {"temperature": 0.7, "max_tokens": 40}
        (tmp_path / "library/agents/served.yaml").write_text(yaml.safe_dump(agents))
        settings = (
            "determinism=fast",
            "epochs=2",
            "episodes=8",
            "dpo.learning_rate=0.002",
            "dpo.lora={rank: 4, alpha: 8}",
        )
        config = asyncio.run(toy_team.configure_toy_training(library, *settings, agents="served"))
        result = asyncio.run(start(config, tmp_path / "marl", device="cpu"))
        assert [bool(record.trained) for record in result.records] == [False, True, True]
        adapter = str(tmp_path / "marl/epochs/2/training/final")
        options = served | {"adapter": adapter, "version": 2}
        model = OpenAIModel(**options)
        said = play(model, lambda: model.generate(request(**GREEDY)))
    loaded = log.read_text(errors="replace")
    assert all(f"marl-epoch{number}-v{number}-" in loaded for number in (1, 2))
    merged = export(find(f"{tmp_path / 'marl'}@epoch2"), tmp_path / "merged", merge=True, dtype=None)
    assert greedy(merged.path) == said.text.strip()


def greedy(path: Path) -> str:
    """What plain transformers says to the same request."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(path), AutoModelForCausalLM.from_pretrained(path)
    messages = build_chat_messages(request(**GREEDY))
    ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    made = model.generate(**ids, max_new_tokens=GREEDY["max_tokens"], do_sample=False)
    return str(tokenizer.decode(made[0, ids["input_ids"].shape[1] :], skip_special_tokens=True)).strip()


def test_an_exported_policy_is_served_as_it_was(files: dict[str, str], options: dict[str, Any], tmp_path: Path) -> None:
    def said(model: OpenAIModel, adapter: str | None = None) -> tuple[int, ...] | None:
        speaking = model if adapter is None else model.with_adapter(adapter, 1)

        async def scene() -> Reply:
            try:
                return await speaking.generate(request(**GREEDY))
            finally:
                await speaking.close()

        return play(model, scene).tokens  # type: ignore[no-any-return]

    done = export(find(files["one"]), tmp_path / "exported", merge=True, dtype=None)
    with serving(str(done.path), tmp_path / "server.log") as served:
        alone = said(OpenAIModel(**served))
    kept = export(find(files["one"]), tmp_path / "kept", merge=False, dtype=None)
    assert alone == said(OpenAIModel(**options), files["one"]) == said(OpenAIModel(**options), str(kept.path))
    assert alone != said(OpenAIModel(**options))
