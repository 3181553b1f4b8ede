"""Adapters of a model behind a server: loaded, told apart, replaced, lost and loaded again."""

import asyncio
import json
import struct
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from collab.config import RunConfig
from collab.errors import ConfigError, ModelFailure
from collab.library import Library
from collab.models.base import Request
from collab.models.openai import OpenAIModel
from collab.models.vllm import build_served_name, check_adapter, check_fit
from collab.rollout.build import build_team, with_prompts
from collab.testing.fake_server import FakeServer
from collab.types import PolicyRef, Prompt, Sampling, Segment


def make_adapter(folder: Path, weights: bytes = b"weights", rank: int = 8) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": rank}))
    (folder / "adapter_model.safetensors").write_bytes(weights)
    return str(folder)


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer({"adapters"}) as running:
        yield running


_opened: list[OpenAIModel] = []


def model_of(server: FakeServer, **options: Any) -> OpenAIModel:
    model = OpenAIModel(model="fake", base_url=server.url, api_key_env="", **options)
    model.wait = lambda seconds: asyncio.sleep(0.01)
    _opened.append(model)
    return model


def request(text: str = "Hello") -> Request:
    return Request(prompt=Prompt(system="", shared=text, segments=(Segment(text="."),)), sampling=Sampling(), seed=1)


def play(scene: Callable[[], Awaitable[Any]]) -> Any:
    async def limited() -> Any:
        try:
            async with asyncio.timeout(60):
                return await scene()
        finally:
            while _opened:
                await _opened.pop()._transport.close()  # the connections alone: what was loaded is looked at

    return asyncio.run(limited())


# ----------------------------------------------------------------------------------------------------- the names


def test_a_name_carries_directory_version_and_weights(tmp_path: Path) -> None:
    folder = Path(make_adapter(tmp_path / "ada", b"one"))
    name = build_served_name(folder, 3)
    assert name.startswith("ada-v3-")
    assert name == build_served_name(folder, 3)
    assert build_served_name(folder, 4) != name
    make_adapter(folder, b"two")
    assert build_served_name(folder, 3) != name, "the same name for other weights would be served from a stale cache"


@pytest.mark.parametrize(
    ("place", "called"),
    [
        ("marl/epochs/3/training/final", "marl-epoch3"),
        ("marl/epochs/12/training/ada/final", "marl-epoch12-ada"),
        ("sft/final", "final"),
        ("epochs/3/training", "training"),
    ],
)
def test_what_a_training_left_is_called_after_run_and_epoch(place: str, called: str, tmp_path: Path) -> None:
    (tmp_path / place).mkdir(parents=True)
    assert build_served_name(tmp_path / place, 3).startswith(f"{called}-v3-")


def test_what_is_no_adapter_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no such directory"):
        OpenAIModel(model="fake", base_url="http://127.0.0.1:1/v1", adapter=str(tmp_path / "missing"))
    with pytest.raises(ConfigError, match=r"no PEFT adapter, adapter_config\.json is missing"):
        check_adapter(str(tmp_path))
    folder = Path(make_adapter(tmp_path / "half"))
    (folder / "adapter_model.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"adapter_model\.safetensors is missing"):
        check_adapter(str(folder))
    (folder / "adapter_model.bin").write_bytes(b"older form")
    assert check_adapter(str(folder)) == folder
    assert check_adapter("a-name") is None


def tensors(**shapes: tuple[int, int]) -> bytes:
    """The head of a safetensors file: one layer each, its two matrices."""
    head: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    for layer, (wide, tall) in shapes.items():
        for half, shape in (("lora_A", [8, wide]), ("lora_B", [tall, 8])):
            name = f"base_model.model.model.layers.0.self_attn.{layer}.{half}.weight"
            head[name] = {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]}
    text = json.dumps(head).encode()
    return struct.pack("<Q", len(text)) + text


@pytest.mark.parametrize(
    ("shapes", "fits"),
    [
        ({"q_proj": (64, 32), "o_proj": (32, 64)}, True),
        ({"some_layer": (7, 9)}, True),
        ({"q_proj": (128, 64)}, False),
        ({"q_proj": (64, 64), "down_proj": (256, 128)}, False),
    ],
)
def test_an_adapter_for_a_model_of_another_width_is_refused(
    tmp_path: Path, shapes: dict[str, tuple[int, int]], fits: bool
) -> None:
    base = tmp_path / "base"
    base.mkdir()
    (base / "config.json").write_text(json.dumps({"hidden_size": 64}))
    path = make_adapter(tmp_path / "ada", tensors(**shapes))
    check_fit(Path(path), "org/model-that-is-not-here")  # nothing is known about its width
    if fits:
        check_fit(Path(path), str(base))
        return
    with pytest.raises(ConfigError, match=r"is for a model of width 128, .*base has 64"):
        OpenAIModel(model=str(base), base_url="http://127.0.0.1:1/v1", adapter=path)


def test_an_adapter_for_a_deeper_model_is_refused(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    path = make_adapter(tmp_path / "ada", tensors(q_proj=(64, 64)).replace(b"layers.0.", b"layers.2."))
    for layers, fits in ((3, True), (2, False)):
        (base / "config.json").write_text(json.dumps({"hidden_size": 64, "num_hidden_layers": layers}))
        if fits:
            check_fit(Path(path), str(base))
            continue
        with pytest.raises(ConfigError, match=r"is for a model of at least 3 layers, .*base has 2"):
            OpenAIModel(model=str(base), base_url="http://127.0.0.1:1/v1", adapter=path)


def test_a_broken_adapter_is_refused(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    (base / "config.json").write_text(json.dumps({"hidden_size": 64}))
    for weights in (b"", b"12345678", struct.pack("<Q", 4) + b"[1]", struct.pack("<Q", 2) + b"{}garbage"):
        folder = Path(make_adapter(tmp_path / "ada", weights))
        if weights.endswith(b"garbage"):
            check_fit(folder, str(base))  # no layer is there that could be wrong
            continue
        with pytest.raises(ConfigError, match="cannot be read"):
            check_fit(folder, str(base))


# --------------------------------------------------------------------------------------------------- on the server


def test_an_adapter_is_loaded_before_the_first_call_and_unloaded_at_the_end(tmp_path: Path, server: FakeServer) -> None:
    path = make_adapter(tmp_path / "ada")
    name = build_served_name(Path(path), 2)
    model = model_of(server, adapter=path, version=2)
    assert model.policy == PolicyRef(base="fake", adapter=path, version=2)

    async def scene() -> None:
        reply = await model.generate(request())
        assert reply.text == f"{name}: Hello."
        assert server.adapters == {name: path}
        await model.close()
        assert server.adapters == {}
        assert (await model.generate(request())).text == f"{name}: Hello."  # a closed model opens again
        await model.close()

    play(scene)
    assert {body["model"] for body in server.requests} == {name}
    assert server.commands[:2] == [("load", name), ("unload", name)]


def test_another_adapter_that_fails_leaves_the_first_one_speaking(tmp_path: Path, server: FakeServer) -> None:
    one, big = make_adapter(tmp_path / "one"), make_adapter(tmp_path / "big", rank=64)
    model = model_of(server, adapter=one)

    async def scene() -> str:
        await model.probe()
        with pytest.raises(ModelFailure, match="rank 64"):
            await model.with_adapter(big, 1).generate(request())
        return (await model.generate(request())).text

    assert play(scene) == f"{build_served_name(Path(one), 0)}: Hello."
    assert model.policy.version == 0


def test_an_adapter_of_the_server_itself_is_used_and_left_alone(server: FakeServer) -> None:
    model = model_of(server, adapter="fake-adapter")

    async def scene() -> None:
        await model.generate(request())
        await model.close()

    play(scene)
    assert server.commands == []
    assert server.requests[-1]["model"] == "fake-adapter"


def test_an_adapter_that_others_use_too_is_shared(tmp_path: Path, server: FakeServer) -> None:
    path = make_adapter(tmp_path / "ada")
    first, second = model_of(server, adapter=path), model_of(server, adapter=path)

    async def scene() -> str:
        await first.probe()
        await second.probe()
        await first.close()  # whoever loaded it unloads it
        text = (await second.generate(request())).text
        await second.close()
        return text

    assert play(scene).endswith(": Hello.")
    assert server.adapters == {}


def test_a_server_that_has_started_anew_gets_the_adapter_again(tmp_path: Path, server: FakeServer) -> None:
    path = make_adapter(tmp_path / "ada")
    model = model_of(server, adapter=path)

    async def scene() -> list[str]:
        await model.probe()
        server.die()
        server.revive()
        replies = await asyncio.gather(*(model.generate(request(f"Task {number}")) for number in range(6)))
        return [reply.text for reply in replies]

    name = build_served_name(Path(path), 0)
    assert play(scene) == [f"{name}: Task {number}." for number in range(6)]
    assert list(server.adapters) == [name]


def test_calls_under_way_when_the_server_dies_are_answered_once_each_by_their_own_adapter(tmp_path: Path) -> None:
    paths = [make_adapter(tmp_path / name, name.encode()) for name in ("one", "two")]
    names = [build_served_name(Path(path), 3) for path in paths]
    with FakeServer({"adapters"}, delay_s=0.05) as server:
        base = model_of(server, concurrency=8, retries=100)
        models = [base.with_adapter(path, 3) for path in paths]
        for model in models:
            model.wait = lambda seconds: asyncio.sleep(0.01)

        async def scene() -> list[str]:
            await asyncio.gather(*(model.probe() for model in models))
            server.delivered.clear()
            asked = [model.generate(request(f"Task {number}")) for number in range(8) for model in models]
            calls = list(map(asyncio.ensure_future, asked))
            while len(server.delivered) < 4:
                await asyncio.sleep(0.005)
            await asyncio.to_thread(server.die)
            assert not all(call.done() for call in calls)
            server.revive()
            texts = [reply.text for reply in await asyncio.gather(*calls)]
            assert sorted(server.adapters) == sorted(names)
            await asyncio.gather(*(model.close() for model in (base, *models)))
            return texts

        said = play(scene)
    assert said == [f"{name}: Task {number}." for number in range(8) for name in names]
    answered = [(body["model"], body["messages"][-1]["content"]) for body in server.delivered]
    assert sorted(answered) == sorted((name, f"Task {number}.") for number in range(8) for name in names)
    assert sum(model.meter.snapshot().failures for model in models) == 0


def test_adapters_of_one_base_share_the_server_and_nothing_else(tmp_path: Path) -> None:
    paths = [make_adapter(tmp_path / name, name.encode()) for name in ("one", "two")]
    names = [build_served_name(Path(path), 3) for path in paths]
    with FakeServer({"adapters"}, delay_s=0.02) as server:
        base = model_of(server, concurrency=3)
        models = [base, *(base.with_adapter(path, 3) for path in paths)]

        async def scene() -> list[str]:
            asked = [model.generate(request(f"Task {number}")) for number in range(4) for model in models]
            texts = [reply.text for reply in await asyncio.gather(*asked)]
            await models[1].close()
            assert list(server.adapters) == [names[1]]
            texts.append((await models[2].generate(request("later"))).text)  # whose connections are still there
            await asyncio.gather(*(model.close() for model in models))
            return texts

        said = play(scene)
        assert server.adapters == {}
        assert server.most_at_once == 3, "one window for one server"
    expected = [f"{who}Task {number}." for number in range(4) for who in ("", *(f"{name}: " for name in names))]
    assert said == [*expected, f"{names[1]}: later."]
    assert [model.policy.version for model in models] == [0, 3, 3]
    assert len(server.requests) - 13 <= 7, "probed once"
    assert [model.meter.snapshot().calls for model in models] == [4 + 1, 4, 4 + 1]  # one question of the probe


def test_a_team_with_an_adapter_each_is_built_on_one_server(tmp_path: Path, server: FakeServer) -> None:
    def agent(name: str | None) -> dict[str, Any]:
        chosen = {} if name is None else {"adapter": make_adapter(tmp_path / name, name.encode()), "version": 1}
        return {"kind": "openai", "options": {"model": "fake", "base_url": server.url, "api_key_env": "", **chosen}}

    slots = {"ada": "one", "ben": "two", "cyd": None}
    config = RunConfig.model_validate(
        {
            "environment_name": "fake",
            "environment": {"backend": "fake", "backends": {"fake": {"kind": "fake"}}},
            "graph_name": "trio",
            "graph": {"slots": list(slots)},
            "agents": {slot: agent(name) for slot, name in slots.items()},
            "agent_names": dict.fromkeys(slots, "served"),
            "tasks": ["OpenDoors"],
            "episodes": 1,
        }
    )
    team = build_team(with_prompts(config, Library()))

    async def scene() -> None:
        await team.probe()
        assert len(server.adapters) == 2
        await team.close()

    play(scene)
    assert server.adapters == {}
    assert [model.policy.version for model in team.models] == [1, 1, 0]


# --------------------------------------------------------------------------------------------------------- errors


def failure(model: OpenAIModel) -> str:
    with pytest.raises(ModelFailure) as caught:
        play(model.probe)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_server_that_loads_nothing_while_it_runs(tmp_path: Path) -> None:
    with FakeServer() as server:
        said = failure(model_of(server, adapter=make_adapter(tmp_path / "ada")))
    assert "answered 404" in said
    assert "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True and --enable-lora" in said
    assert "base_url" not in said


def test_a_rank_that_the_server_was_not_started_for(tmp_path: Path, server: FakeServer) -> None:
    waits: list[float] = []
    model = model_of(server, adapter=make_adapter(tmp_path / "big", rank=64))
    model.wait = lambda seconds: asyncio.sleep(0, waits.append(seconds))
    said = failure(model)
    assert "LoRA rank 64 is greater than max_lora_rank 16" in said
    assert "larger --max-lora-rank" in said
    assert waits == [], "the same request would fail the same way"


def test_a_directory_that_the_server_cannot_read(tmp_path: Path, server: FakeServer) -> None:
    path = make_adapter(tmp_path / "ada")
    model = model_of(server, adapter=path)
    (Path(path) / "adapter_config.json").unlink()
    assert "the server must be able to read the same directory" in failure(model)


def test_a_name_that_the_server_does_not_have(server: FakeServer) -> None:
    said = failure(model_of(server, adapter="fake-adaptor"))
    assert "'fake-adaptor'; the server has fake-adapter" in said
