"""Against a real chat-completions server: `transformers serve` on a tiny checkpoint."""

import asyncio

import pytest

from collab.errors import ModelFailure
from collab.models.base import Request
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
