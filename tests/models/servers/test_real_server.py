"""Against a real chat-completions server: `transformers serve` on a tiny checkpoint."""

import asyncio
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from collab.errors import ModelFailure
from collab.models.base import Request
from collab.models.openai import OpenAIModel
from collab.testing.tiny_checkpoint import make_tiny_checkpoint
from collab.types import Prompt, Sampling, Segment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """(address, model name) of a running server."""
    folder = make_tiny_checkpoint(tmp_path_factory.mktemp("served"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(Path(sys.executable).with_name("transformers")), "serve", "--host", "127.0.0.1", "--port", str(port)]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    log = folder / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen([*command, "--device", "cpu"], stdout=output, stderr=output, env=environment)
    try:
        deadline = time.monotonic() + 120
        while not _healthy(port):
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"the server did not start:\n{log.read_text()[-2000:]}")
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}/v1", str(folder)
    finally:
        process.terminate()
        process.wait(timeout=20)


def _healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


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
