"""A tiny checkpoint in this process, and requests for it."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from collab.models.base import Reply, Request
from collab.models.local import LocalModel
from collab.types import Prompt, Sampling, Segment

WORDS = ["tap", "the", "Save", "button", "7", "Zürich", "\n", "[3]", "type", "🙂", "scroll down", "{}"]


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


def said(reply: Reply) -> tuple[Any, ...]:
    return reply.text, reply.tokens, reply.logprobs, reply.behaviour_logprobs
