"""What some servers offer more: replies held to a form, prefix caches; and servers that die and come back."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from collab.envs.grammar import MOBILE, WEB
from collab.library import Library
from collab.models.base import Reply, Request
from collab.models.completion import Completion
from collab.models.openai import OpenAIModel
from collab.prompts.render import Template, read_templates
from collab.testing.fake_server import END, END_LOGPROB, MASKED, PLAIN, FakeServer, Fault
from collab.types import Prompt, Sampling, Segment

SYSTEM = Template("default", read_templates(Library().find_path("prompts", "default"))).render_system(MOBILE)
RICH = {"logprobs", "token_ids", "patterns", "scores"}


def model_of(server: FakeServer, **options: Any) -> OpenAIModel:
    model = OpenAIModel(model="fake", base_url=server.url, api_key_env="", **options)
    model.wait = lambda seconds: asyncio.sleep(0.02)
    return model


def request(text: str = "Task: wait.", *, system: str = SYSTEM, cell: bool = True, **sampling: Any) -> Request:
    prompt = Prompt(system=system, shared=text, segments=(Segment(text=" Go."),) if cell else ())
    return Request(prompt=prompt, sampling=Sampling(**sampling), seed=5)


def play(scene: Callable[[], Awaitable[Any]]) -> Any:
    async def limited() -> Any:
        async with asyncio.timeout(30):
            return await scene()

    return asyncio.run(limited())


def ask(model: OpenAIModel, one: Request) -> Reply:
    async def scene() -> Reply:
        try:
            return await model.generate(one)
        finally:
            await model.close()

    reply: Reply = play(scene)
    return reply


# ---------------------------------------------------------------------------------------------- held to the format


def test_a_structured_reply_comes_with_the_plain_policys_logprobs() -> None:
    with FakeServer(RICH) as server:
        model = model_of(server, structured=True)
        reply = ask(model, request(temperature=1.0))
        assert {"patterns: yes", "scores: yes"} < set(play(model.probe).notes)
    assert reply.text == 'Reason: A pattern says so.\nAction: {"action_type": "wait"}'
    assert reply.tokens == tuple(reply.text.encode())
    assert reply.logprobs == (PLAIN,) * len(reply.text), "asked for in a second request"
    assert reply.behaviour_logprobs == (MASKED,) * len(reply.text), "of what was sampled from"
    assert (reply.end_token, reply.end_logprob, reply.end_behaviour_logprob) == (END, PLAIN, END_LOGPROB)


def test_a_bent_distribution_has_no_behaviour_logprobs() -> None:
    with FakeServer(RICH) as server:
        reply = ask(model_of(server, structured=True), request(temperature=0.3))
    assert reply.behaviour_logprobs is None
    assert reply.logprobs is not None


def test_masked_logprobs_never_pass_for_the_policys() -> None:
    with FakeServer(RICH - {"scores"}) as server:
        reply = ask(model_of(server, structured=True), request(temperature=1.0))
    assert reply.text.startswith("Reason:")
    assert (reply.logprobs, reply.behaviour_logprobs) == (None, (MASKED,) * len(reply.text))
    assert (reply.end_logprob, reply.end_behaviour_logprob) == (None, END_LOGPROB)


@pytest.mark.parametrize("one", [request(cell=False), request(system="Be kind.")], ids=["summary", "no actions"])
def test_only_replies_that_must_hold_an_action_are_held(one: Request) -> None:
    with FakeServer(RICH) as server:
        reply = ask(model_of(server, structured=True), one)
    assert "structured_outputs" not in server.requests[-1]
    assert reply.text == one.prompt.user
    assert reply.logprobs == (PLAIN,) * len(reply.text)


@pytest.mark.parametrize("ignores", [False, True])
def test_nothing_is_held_where_the_server_cannot(ignores: bool) -> None:
    with FakeServer({"logprobs"}, ignores=ignores) as server:
        model = model_of(server, structured=True)
        reply = ask(model, request())
        notes = play(model.probe).notes
    assert "structured_outputs" not in server.requests[-1]
    assert reply.text == "Task: wait. Go."
    assert f"patterns: {'accepted and ignored' if ignores else 'refused (400)'}" in notes


def test_nothing_is_held_or_asked_about_unless_wanted() -> None:
    with FakeServer(RICH) as server:
        ask(model_of(server), request())
    assert not any("structured_outputs" in body for body in server.requests)


def test_a_page_is_answered_in_calls() -> None:
    system = Template("default", read_templates(Library().find_path("prompts", "default"))).render_system(WEB)
    with FakeServer(RICH) as server:
        reply = ask(model_of(server, structured=True), request(system=system))
    assert reply.text.endswith("Action: finish()")


# ---------------------------------------------------------------------------------------------------- prefix cache


def test_the_hit_rate_is_read_from_the_servers_metrics() -> None:
    with FakeServer({"metrics"}) as server:
        model = model_of(server)

        async def scene() -> tuple[float, float]:
            await model.generate(request("A long task. " * 20))
            first = await model.prefix_cache()
            assert first is not None
            await model.generate(request("A long task. " * 20 + "Another end."))
            second = await model.prefix_cache()
            assert second is not None
            await model.close()
            return first.rate, second.since(first).rate

        before, after = play(scene)
    assert before < 0.5
    assert 0.9 < after < 1


def test_a_server_without_metrics_says_nothing() -> None:
    with FakeServer() as server:
        model = model_of(server)

        async def scene() -> object:
            found = await model.prefix_cache()
            await model.close()
            return found

        assert play(scene) is None


def test_cached_tokens_are_read_where_they_are_told() -> None:
    choices = [{"message": {"content": "x"}}]
    usage = {"prompt_tokens": 9, "completion_tokens": 1}
    told = Completion.model_validate(
        {"choices": choices, "usage": usage | {"prompt_tokens_details": {"cached_tokens": 4}}}
    )
    assert (told.cached_tokens, told.computed_tokens) == (4, 5)
    for silent in (usage, usage | {"prompt_tokens_details": None}, usage | {"prompt_tokens_details": {}}, None):
        quiet = Completion.model_validate({"choices": choices, "usage": silent})
        assert (quiet.cached_tokens, quiet.computed_tokens) == (None, None)


# ------------------------------------------------------------------------------------------- dying and coming back


@pytest.mark.parametrize("dead_s", [0.0, pytest.param(0.3, marks=pytest.mark.slow)])
def test_a_server_that_dies_and_comes_back_loses_no_call_and_answers_none_twice(dead_s: float) -> None:
    with FakeServer(delay_s=0.05) as server:
        model = model_of(server, concurrency=6, retries=200)

        async def scene() -> list[Reply]:
            await model.probe()
            server.delivered.clear()
            calls = [asyncio.create_task(model.generate(request(f"Task {number}."))) for number in range(24)]
            for _ in range(2):
                done = len(server.delivered)
                while len(server.delivered) < done + 5:
                    await asyncio.sleep(0.005)
                await asyncio.to_thread(server.die)
                await asyncio.sleep(dead_s)
                assert not all(call.done() for call in calls)
                server.revive()
            replies = await asyncio.gather(*calls)
            await model.close()
            return replies

        replies = play(scene)
    assert [reply.text for reply in replies] == [f"Task {number}. Go." for number in range(24)]
    answered = Counter(body["messages"][-1]["content"] for body in server.delivered)
    assert answered == {f"Task {number}. Go.": 1 for number in range(24)}
    reading = model.meter.snapshot()
    assert reading.retries > 0
    assert reading.failures == 0


@pytest.mark.slow
def test_every_kind_of_fault_in_one_batch_loses_no_call_and_answers_none_twice() -> None:
    faults = [
        Fault(status=429),
        Fault(status=503),
        Fault(status=500),
        Fault(broken="close"),
        Fault(broken="hang"),
        Fault(status=429, headers={"Retry-After": "0.05"}),
    ]
    with FakeServer(delay_s=0.01) as server:
        model = model_of(server, concurrency=8, retries=20, timeout_s=1.0)

        async def scene() -> list[Reply]:
            await model.probe()
            server.delivered.clear()
            server.faults.extend(faults * 3)
            replies = await asyncio.gather(*(model.generate(request(f"Task {number}.")) for number in range(20)))
            await model.close()
            return replies

        replies = play(scene)
    assert [reply.text for reply in replies] == [f"Task {number}. Go." for number in range(20)]
    assert Counter(body["messages"][-1]["content"] for body in server.delivered).most_common(1)[0][1] == 1
    assert len(server.delivered) == 20
    assert model.meter.snapshot().retries >= len(faults) * 3
    assert model.window.size < 8
