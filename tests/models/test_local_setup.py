"""Setting up a model in this process: what is named as missing or damaged, and adapters over one base."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from collab.errors import ConfigError, ModelFailure
from collab.library import Library
from collab.models.base import Reply
from collab.models.checkpoint import choose_device
from collab.models.local import LocalModel
from collab.rollout.build import build_team, with_prompts
from collab.rollout.plan import run_config
from collab.testing.tiny_checkpoint import make_tiny_checkpoint
from tests.models.tiny_local import play, requests, said, together


def test_probe_tells_what_is_there(checkpoint: Path) -> None:
    model = LocalModel(path=str(checkpoint))
    able = play(model, model.probe)
    assert (able.counts_tokens, able.knows_price) == (True, True), "a limit in money fits, too"
    assert (able.logprobs, able.seed, able.token_ids, able.structured, able.images) == (True, True, True, False, False)
    assert f"device {choose_device('auto')}, float32, context 600 tokens" in able.notes[0]


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


@pytest.mark.medium
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
