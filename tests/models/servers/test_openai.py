import asyncio
import gc
import socket
import warnings
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from collab.errors import ConfigError, ModelFailure
from collab.models.base import Reply, Request
from collab.models.openai import OpenAIModel
from collab.models.probe import _is_fitting, make_small_picture
from collab.testing.fake_server import END, END_LOGPROB, FakeServer, Fault
from collab.types import Prompt, Sampling, Segment

KEY = "sk-very-secret-0123456789"


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as running:
        yield running


def model_of(server: FakeServer, waits: list[float] | None = None, **options: Any) -> OpenAIModel:
    model = OpenAIModel(model="fake", base_url=server.url, **options)
    noted = [] if waits is None else waits

    async def note(seconds: float) -> None:
        noted.append(seconds)

    model.wait = note
    return model


def request(text: str = "Task: greet.", seed: int = 5, sampling: Sampling | None = None, **extra: Any) -> Request:
    prompt = Prompt(system="Rules.", shared=text, segments=(Segment(text=" Go."),))
    return Request(prompt=prompt, sampling=sampling or Sampling(), seed=seed, **extra)


def play(model: OpenAIModel, scene: Callable[[], Awaitable[Any]]) -> Any:
    async def whole() -> Any:
        try:
            return await scene()
        finally:
            await model.close()
            await model.close()  # twice is allowed

    return asyncio.run(whole())


def ask_with_faults(server: FakeServer, *faults: Fault, waits: list[float] | None = None, **options: Any) -> Reply:
    model = model_of(server, waits, **options)

    async def scene() -> Reply:
        await model.probe()
        server.faults.extend(faults)
        return await model.generate(request())

    reply: Reply = play(model, scene)
    return reply


# ------------------------------------------------------------------------------------------------- what is sent


def test_a_plain_server_gets_plain_fields_only(server: FakeServer) -> None:
    model = model_of(server, extra={"top_k": 3})
    sampling = Sampling(temperature=0.3, top_p=0.9, max_tokens=17, stop=("\n\n",))
    reply = play(model, lambda: model.generate(request(sampling=sampling)))
    assert reply.text == "Task: greet. Go."
    assert reply.finish == "stop"
    assert (reply.tokens, reply.tokenizer, reply.logprobs, reply.cost_usd) == (None, None, None, None)
    assert server.requests[-1] == {
        "model": "fake",
        "messages": [{"role": "system", "content": "Rules."}, {"role": "user", "content": "Task: greet. Go."}],
        "temperature": 0.3,
        "top_p": 0.9,
        "max_tokens": 17,
        "stop": ["\n\n"],
        "top_k": 3,
    }
    assert server.headers[-1]["authorization"] == f"Bearer {KEY}"


def test_a_rich_server_gets_seed_and_gives_logprobs_and_ids() -> None:
    with FakeServer({"seed", "logprobs", "token_ids", "response_format", "images", "adapters"}) as server:
        model = model_of(server, usd_per_million_prompt=2.0, usd_per_million_completion=10.0)
        able = play(model, model.probe)
        assert (able.seed, able.logprobs, able.token_ids, able.structured, able.images) == (True,) * 5
        assert able.adapters
        assert {"adapters: fake-adapter", "context: 4096 tokens"} < set(able.notes)
        reply = play(model, lambda: model.generate(request(sampling=Sampling(temperature=1.0), seed=9)))
    assert server.requests[-1]["seed"] == 9
    assert reply.tokens == tuple(b"Task: greet. Go.")  # without the end of the turn
    assert reply.tokenizer is not None
    assert reply.logprobs == reply.behaviour_logprobs == (-0.5,) * 16
    assert (reply.finish, reply.end_token) == ("stop", END)
    assert reply.end_logprob == reply.end_behaviour_logprob == END_LOGPROB
    assert reply.cost_usd == pytest.approx((reply.prompt_tokens * 2 + reply.completion_tokens * 10) / 1e6)


def test_ids_without_the_end_of_the_turn_are_none() -> None:
    """Nothing could be learned from such replies, so it is found out before a training plays."""

    def leave_out(*parts: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
        def shape(answer: dict[str, Any]) -> dict[str, Any]:
            for choice in answer["choices"]:
                if "ids" in parts:
                    choice["token_ids"] = choice.get("token_ids", [])[:-1]
                if "scores" in parts and "logprobs" in choice:
                    choice["logprobs"]["content"].pop()
            return answer

        return shape

    for parts in (("ids", "scores"), ("ids",), ("scores",)):
        with FakeServer({"logprobs", "token_ids"}, shapes=leave_out(*parts)) as server:
            able = play(model := model_of(server), model.probe)
        assert (able.logprobs, able.token_ids) == (True, False), parts
        assert "token ids up to the end of the turn: accepted and ignored" in able.notes


def test_behaviour_logprobs_are_unknown_where_sampling_bends_the_policy() -> None:
    with FakeServer({"logprobs"}) as server:
        model = model_of(server)
        reply = play(model, lambda: model.generate(request(sampling=Sampling(temperature=0.5))))
    assert reply.logprobs is not None
    assert reply.behaviour_logprobs is None
    assert (reply.end_logprob, reply.end_behaviour_logprob) == (END_LOGPROB, None)


def test_the_end_is_unknown_where_stop_strings_may_have_taken_its_place() -> None:
    with FakeServer({"logprobs", "token_ids"}) as server:
        model = model_of(server)
        reply = play(model, lambda: model.generate(request(sampling=Sampling(temperature=1.0, stop=("never said",)))))
    assert reply.tokens == tuple(b"Task: greet. Go.")
    assert (reply.end_token, reply.end_logprob, reply.end_behaviour_logprob) == (None, None, None)


@pytest.mark.parametrize("ignores", [False, True])
def test_the_probe_believes_answers_not_acceptance(ignores: bool) -> None:
    with FakeServer(ignores=ignores) as server:
        model = model_of(server)
        able = play(model, model.probe)
    assert not any((able.logprobs, able.structured, able.images, able.token_ids, able.adapters))
    assert able.seed == ignores  # an echo server says the same under any seed
    word = "accepted and ignored" if ignores else "refused (400)"
    assert f"logprobs: {word}" in able.notes


def test_the_probe_runs_once_for_many_callers(server: FakeServer) -> None:
    model = model_of(server)

    async def scene() -> list[Reply]:
        return await asyncio.gather(*(model.generate(request(f"Task {number}.")) for number in range(20)))

    replies = play(model, scene)
    assert [reply.text for reply in replies] == [f"Task {number}. Go." for number in range(20)]
    probes = [body for body in server.requests if not str(body["messages"][-1]["content"]).startswith("Task")]
    assert len(probes) <= 7
    assert len(server.requests) == len(probes) + 20


def test_a_cancelled_caller_does_not_break_the_probe_of_the_others() -> None:
    with FakeServer(delay_s=0.02) as server:
        model = model_of(server)

        async def scene() -> Reply:
            first = asyncio.create_task(model.generate(request()))
            second = asyncio.create_task(model.generate(request("Other.")))
            await asyncio.sleep(0.03)
            first.cancel()
            return await second

        assert play(model, scene).text == "Other. Go."


def test_a_server_with_the_newer_name_of_the_length_limit(server: FakeServer) -> None:
    server.faults.append(Fault(status=400, message="use max_completion_tokens instead of max_tokens"))
    model = model_of(server)
    play(model, lambda: model.generate(request()))
    assert server.requests[-1]["max_completion_tokens"] == 256
    assert "max_tokens" not in server.requests[-1]


def test_pictures_travel_as_data_urls_before_the_text() -> None:
    with FakeServer({"images"}) as server:
        model = model_of(server)
        play(model, lambda: model.generate(request(images=(make_small_picture(), b"RIFF....WEBP...."))))
    parts = server.requests[-1]["messages"][1]["content"]
    assert [part["type"] for part in parts] == ["image_url", "image_url", "text"]
    assert parts[0]["image_url"]["url"].startswith("data:image/png;base64,")
    assert parts[1]["image_url"]["url"].startswith("data:image/webp;base64,")


def test_pictures_are_not_sent_to_the_blind(server: FakeServer) -> None:
    model = model_of(server)
    with pytest.raises(ModelFailure, match="takes no pictures"):
        play(model, lambda: model.generate(request(images=(make_small_picture(),))))


def test_no_more_in_flight_than_allowed() -> None:
    with FakeServer(delay_s=0.1) as server:
        model = model_of(server, concurrency=3)

        async def scene() -> list[Reply]:
            await model.probe()
            return await asyncio.gather(*(model.generate(request(f"{number}")) for number in range(12)))

        replies = play(model, scene)
        assert server.most_at_once == 3
    waited = sorted(reply.queue_s for reply in replies)
    assert waited[-1] > 3 * 0.02, "the last three wait for three rounds of the others"
    assert all(0.02 <= reply.work_s for reply in replies)


def test_a_prompt_beyond_the_context_is_not_sent(server: FakeServer) -> None:
    model = model_of(server, max_context=300)
    with pytest.raises(ModelFailure, match=r"need about \d+ tokens, max_context is 300"):
        play(model, lambda: model.generate(request("long words " * 100)))


# ------------------------------------------------------------------------------------------------------- faults


def test_rate_limit_waits_as_long_as_it_is_told(server: FakeServer) -> None:
    waits: list[float] = []
    reply = ask_with_faults(server, Fault(status=429, headers={"Retry-After": "3"}), waits=waits)
    assert reply.text == "Task: greet. Go."
    assert len(waits) == 1
    assert 3 <= waits[0] <= 3.3


@pytest.mark.parametrize(
    "fault",
    [Fault(status=500), Fault(status=503), Fault(broken="truncate"), Fault(broken="close"), Fault(broken="shape")],
    ids=["500", "503", "truncated", "closed", "shape"],
)
def test_passing_faults_are_retried(server: FakeServer, fault: Fault) -> None:
    waits: list[float] = []
    assert ask_with_faults(server, fault, fault, waits=waits).text == "Task: greet. Go."
    assert len(waits) == 2
    assert 0.25 <= waits[0] <= 0.5 <= waits[1] <= 1.0


@pytest.mark.slow
def test_a_hanging_server_times_out_and_is_retried(server: FakeServer) -> None:
    assert ask_with_faults(server, Fault(broken="hang"), timeout_s=1.0).text == "Task: greet. Go."
    with pytest.raises(ModelFailure, match=r"no answer within 1 s \(2 attempts\)"):
        ask_with_faults(server, *[Fault(broken="hang")] * 2, timeout_s=1.0, retries=1)


def test_lasting_faults_fail_after_the_last_retry(server: FakeServer) -> None:
    model = model_of(server, retries=2)

    async def scene() -> None:
        await model.probe()
        server.faults.extend([Fault(status=500, message="no memory")] * 3)
        await model.generate(request())

    with pytest.raises(ModelFailure, match=r"fake at http://127.* answered 500: no memory \(3 attempts\)"):
        play(model, scene)
    reading = model.meter.snapshot()
    assert (reading.failures, reading.retries) == (1, 2)  # what the probe was refused is no failure


@pytest.mark.parametrize(("status", "hint"), [(401, "check the key"), (404, "base_url"), (422, "")])
def test_a_refusal_is_not_retried(server: FakeServer, status: int, hint: str) -> None:
    waits: list[float] = []
    with pytest.raises(ModelFailure, match=f"answered {status}.*{hint}"):
        ask_with_faults(server, Fault(status=status), waits=waits)
    assert waits == []


def test_no_secret_leaves_in_a_message(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTHER_SERVICE_TOKEN", "another-secret-value")
    leak = f"bad key {KEY}, header Bearer {KEY}, token another-secret-value"
    with pytest.raises(ModelFailure) as caught:
        ask_with_faults(server, Fault(status=401, message=leak))
    shown = "".join(str(error) for error in (caught.value, caught.value.__cause__))
    assert KEY not in shown
    assert "another-secret-value" not in shown
    assert "[redacted]" in shown


def test_a_dead_server_is_one_clear_line() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    model = OpenAIModel(model="fake", base_url=f"http://127.0.0.1:{port}/v1", retries=1)
    with pytest.raises(
        ModelFailure, match=rf"127\.0\.0\.1:{port}/v1 cannot be reached: All.*start the server or correct base_url"
    ) as caught:
        play(model, lambda: model.generate(request()))
    assert "\n" not in str(caught.value)


def test_a_lost_server_fails_all_callers_and_heals_with_it(server: FakeServer) -> None:
    model = model_of(server, retries=0)

    async def scene() -> Reply:
        server.faults.append(Fault(broken="close"))
        failed = await asyncio.gather(*(model.generate(request()) for _ in range(3)), return_exceptions=True)
        assert all(isinstance(error, ModelFailure) for error in failed)
        return await model.generate(request())

    assert play(model, scene).text == "Task: greet. Go."


# -------------------------------------------------------------------------------------------------------- set-up


def test_a_missing_key_is_named_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MY_KEY", raising=False)
    with pytest.raises(ConfigError, match="MY_KEY is not set"):
        OpenAIModel(model="gpt", api_key_env="MY_KEY")
    OpenAIModel(model="gpt", api_key_env="MY_KEY", base_url="http://127.0.0.1:1/v1")


def test_options_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="concurrency 0"):
        OpenAIModel(model="gpt", concurrency=0)
    with pytest.raises(ConfigError, match="write it as http"):
        OpenAIModel(model="gpt", base_url="localhost:8000/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "schlüssel-0123456789")
    with pytest.raises(ConfigError, match="OPENAI_API_KEY is no key") as caught:
        OpenAIModel(model="gpt")
    assert "schlüssel" not in str(caught.value)


def test_one_model_serves_two_event_loops(server: FakeServer) -> None:
    model = model_of(server)

    async def last() -> Reply:
        reply = await model.generate(request("b"))
        await model.close()
        return reply

    first, second = asyncio.run(model.generate(request("a"))), asyncio.run(last())
    assert (first.text, second.text) == ("a Go.", "b Go.")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # a loop that is over cannot close what was opened in it
        gc.collect()


@pytest.mark.parametrize(("said", "fits"), [('{"ok": true}', True), ('{"ok": 1}', False), ("[" * 100_000, False)])
def test_a_greeting_keeps_to_the_schema_or_does_not(said: str, fits: bool) -> None:
    assert _is_fitting(said) is fits
