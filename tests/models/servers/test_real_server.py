"""Against a real chat-completions server: `transformers serve` on a tiny checkpoint and on shipped policies."""

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from collab.errors import ModelFailure
from collab.library import find_builtin_root
from collab.models.base import Request
from collab.models.local import LocalModel
from collab.models.openai import OpenAIModel
from collab.testing.tiny_checkpoint import make_tiny_checkpoint
from collab.types import Prompt, Sampling, Segment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def server(real_server: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """(address, model name) of a running server."""
    return real_server, str(make_tiny_checkpoint(tmp_path_factory.mktemp("served")))


def test_a_real_server_is_probed_and_answers(server: tuple[str, str]) -> None:
    url, name = server
    model = OpenAIModel(model=name, base_url=url, api_key_env="", concurrency=4, timeout_s=60)

    async def scene() -> None:
        able = await model.probe()
        assert not any((able.logprobs, able.structured, able.images, able.token_ids)), able.notes
        prompt = Prompt(system="Rules.", shared="Task: tap.\n", segments=(Segment(text="You are ada."),))
        asked = [Request(prompt=prompt, sampling=Sampling(temperature=1.0, max_tokens=8), seed=s) for s in range(8)]
        replies = await asyncio.gather(*map(model.generate, asked))
        assert len(replies) == 8
        for reply in replies:
            assert reply.prompt_tokens is not None
            assert reply.prompt_tokens > 10
            assert reply.completion_tokens is not None
            assert reply.finish == ("length" if reply.completion_tokens >= 8 else "stop")
        assert len({reply.text for reply in replies}) > 1
        assert model.meter.snapshot().failures == 0
        await model.close()

    asyncio.run(scene())


def test_a_model_the_server_does_not_have_is_one_clear_line(server: tuple[str, str]) -> None:
    model = OpenAIModel(model="no/such-model", base_url=server[0], api_key_env="", retries=0)
    with pytest.raises(ModelFailure, match="no/such-model at http://127") as caught:
        asyncio.run(model.probe())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["early", "trained"])
def test_a_shipped_policy_answers_a_real_server_as_in_this_process(real_server: str, name: str) -> None:
    """The server knows by the checkpoint where its replies begin."""
    path = str(find_builtin_root() / "agents" / name)
    prompt = Prompt(system="Rules.", shared="Task: Turn Wi-Fi on.\nScreen: Home\n", segments=(Segment(text="Act."),))
    asked = Request(prompt=prompt, sampling=Sampling(temperature=0.0, max_tokens=48), seed=0)
    served = OpenAIModel(model=path, base_url=real_server, api_key_env="", timeout_s=60)
    here = LocalModel(path=path, device="cpu", max_batch=1)

    async def scene() -> tuple[str, str]:
        try:
            return (await served.generate(asked)).text, (await here.generate(asked)).text
        finally:
            await served.close()
            await here.close()

    answer, own = asyncio.run(scene())
    assert answer == own
    assert "Rules." not in answer


def test_a_server_that_sends_the_prompt_back_is_refused(real_server: str, tmp_path: Path) -> None:
    shutil.copytree(find_builtin_root() / "agents/early", tmp_path / "unmarked")
    config = tmp_path / "unmarked/tokenizer_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"response_template": None}))
    model = OpenAIModel(model=str(tmp_path / "unmarked"), base_url=real_server, api_key_env="")
    with pytest.raises(ModelFailure, match="sends the whole prompt back in front of its reply") as caught:
        asyncio.run(model.probe())
    assert "\n" not in str(caught.value)
