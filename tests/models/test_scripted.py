import asyncio

import pytest

from collab.errors import ConfigError, ModelFailure
from collab.models.base import Request
from collab.testing.scripted import ScriptedModel
from collab.types import Prompt, Sampling


def request(seed: int = 0, text: str = "Task: none\n") -> Request:
    return Request(prompt=Prompt(system="Rules.", shared=text, segments=()), sampling=Sampling(), seed=seed)


def ask(model: ScriptedModel, *requests: Request) -> list[str]:
    async def all_of_them() -> list[str]:
        return [(await model.generate(one)).text for one in requests]

    return asyncio.run(all_of_them())


def test_replies_come_by_position_and_over_again() -> None:
    model = ScriptedModel(replies=["one", "two"])
    assert ask(model, request(), request(), request()) == ["one", "two", "one"]
    assert model.calls == 3
    assert model.requests[0].prompt.system == "Rules."


def test_a_rule_sees_prompt_and_seed() -> None:
    model = ScriptedModel(rule=lambda prompt, seed: f"{prompt.shared.strip()} {seed}")
    assert ask(model, request(seed=7), request(seed=8, text="Task: b")) == ["Task: none 7", "Task: b 8"]


@pytest.mark.parametrize("options", [{}, {"replies": []}, {"replies": ["a"], "rule": lambda prompt, seed: "b"}])
def test_needs_exactly_one_source(options: dict) -> None:
    with pytest.raises(ConfigError, match="either replies"):
        ScriptedModel(**options)


def test_fails_hangs_and_dawdles_on_demand() -> None:
    model = ScriptedModel(replies=["fine"], fail_calls=[0], hang_calls=[1], delay_s=0.01)

    async def play() -> str:
        with pytest.raises(ModelFailure, match="call 0"):
            await model.generate(request())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await model.generate(request())
        return (await model.generate(request())).text

    assert asyncio.run(play()) == "fine"
    reading = model.meter.snapshot()
    assert (reading.calls, reading.failures) == (2, 1)
    assert reading.latency_s >= 0.02
    assert reading.prompt_tokens > 0
