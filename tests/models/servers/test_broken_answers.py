"""Answers that are broken, endless or enormous, and optional parts that are odd: read within bounds, or tried again."""

import asyncio
import functools
import gzip
import json
import resource
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from collab.errors import ModelFailure
from collab.models.answer import find_words
from collab.models.base import Reply, Request
from collab.models.openai import OpenAIModel
from collab.testing.fake_server import END, FakeServer, Fault, build_completion
from collab.types import Prompt, Sampling, Segment


def model_of(server: FakeServer, waits: list[float] | None = None, **options: Any) -> OpenAIModel:
    model = OpenAIModel(model="fake", base_url=server.url, **{"api_key_env": "", **options})

    async def note(seconds: float) -> None:
        if waits is not None:
            waits.append(seconds)

    model.wait = note
    return model


def request(text: str = "Task: greet.", **sampling: Any) -> Request:
    return Request(
        prompt=Prompt(system="Rules.", shared=text, segments=(Segment(text=" Go."),)),
        sampling=Sampling(**sampling),
        seed=5,
    )


def play(model: OpenAIModel, scene: Callable[[], Awaitable[Any]]) -> Any:
    async def limited() -> Any:
        async with asyncio.timeout(60):
            try:
                return await scene()
            finally:
                await model.close()

    return asyncio.run(limited())


def ask_with(fault: Fault, times: int = 1, **options: Any) -> tuple[Reply, OpenAIModel]:
    """The reply after so many faults, and the model that was asked."""
    with FakeServer() as server:
        model = model_of(server, **options)

        async def scene() -> Reply:
            await model.probe()
            server.faults.extend([fault] * times)
            return await model.generate(request())

        return play(model, scene), model


def answered(**parts: Any) -> Reply:
    """The reply to an answer with other parts than usual."""

    def shape(answer: dict[str, Any]) -> Any:
        choice = answer["choices"][0]
        choice |= {name: value for name, value in parts.items() if name in ("message", "finish_reason", "logprobs")}
        choice |= {"token_ids": parts["token_ids"]} if "token_ids" in parts else {}
        return answer | {name: value for name, value in parts.items() if name in ("usage", "id", "choices", "created")}

    with FakeServer({"logprobs", "token_ids"}) as server:
        model = model_of(server, retries=1)

        async def scene() -> Reply:
            await model.probe()
            server._shapes = shape
            return await model.generate(request(temperature=1.0))

        reply: Reply = play(model, scene)
        return reply


BOMB = b" " * (900 * 2**20 // 1000)
OK = json.dumps({"choices": [{"message": {"content": "Task: greet. Go."}}]}).encode()


@pytest.mark.parametrize(
    "fault",
    [
        Fault(raw=OK[:40]),
        Fault(raw=b""),
        Fault(raw=b"null"),
        Fault(raw=b"[]"),
        Fault(raw=b'{"choices": null}'),
        Fault(raw=b'{"choices": [null]}'),
        Fault(raw=b'{"choices": [{"message": null}]}'),
        Fault(raw=b'{"choices": [{"message": {"content": 7}}]}'),
        Fault(raw=b"[" * 100_000),
        Fault(raw=b"<html><body>Bad gateway</body></html>", headers={"Content-Type": "text/html"}),
        Fault(raw=OK.replace(b"greet", b"\xff\xfe")),
        Fault(raw=b'data: {"choices": []}\n\ndata: [DONE]\n\n', headers={"Content-Type": "text/event-stream"}),
        Fault(raw=b"no gzip at all", headers={"Content-Encoding": "gzip"}),
        Fault(raw=gzip.compress(OK, mtime=0)[:20], headers={"Content-Encoding": "gzip"}),
        Fault(raw=b"no brotli", headers={"Content-Encoding": "br"}),
        Fault(raw=b'{"error": {"message": "busy", "code": 503}}'),
        Fault(raw=b'{"error": "the engine is gone"}'),
        Fault(raw=b'{"choices": [{"error": {"code": 502, "message": "upstream"}, "message": {"content": ""}}]}'),
        Fault(broken="close"),
        Fault(broken="flood"),
        Fault(raw=OK[:40], headers={"Content-Length": "4000", "Connection": "close"}),
    ],
    ids=lambda fault: str(fault.broken or fault.raw[:30]),
)
def test_whatever_is_broken_in_an_answer_is_tried_again_alike(fault: Fault) -> None:
    waits: list[float] = []
    if fault.headers.get("Content-Length"):
        with FakeServer() as server:
            model = model_of(server, waits, timeout_s=1.0)

            async def scene() -> Reply:
                await model.probe()
                server.faults.append(fault)
                return await model.generate(request())

            assert play(model, scene).text == "Task: greet. Go."
        return
    reply, model = ask_with(fault, times=2, waits=waits)
    assert reply.text == "Task: greet. Go."
    assert len(waits) == 2
    assert model.meter.snapshot().retries == 2


def test_json_is_read_whatever_its_content_type_says() -> None:
    odd = Fault(raw=b"\xef\xbb\xbf" + OK, headers={"Content-Type": "text/html; charset=utf-16"})
    waits: list[float] = []
    assert ask_with(odd, waits=waits)[0].text == "Task: greet. Go."
    assert waits == []


@functools.cache
def squeezed(encoding: str) -> bytes:
    """About 0.2 MB that unfold into 200 MB."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16 if encoding == "gzip" else zlib.MAX_WBITS)
    block = b" " * 2**20
    return b"".join(compressor.compress(block) for _ in range(200)) + compressor.flush()


@functools.cache
def squeezed_twice(encoding: str) -> bytes:
    return gzip.compress(squeezed(encoding), mtime=0)


@pytest.mark.variations
@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
@pytest.mark.parametrize("status", [200, 400])
def test_a_small_body_that_unfolds_into_a_huge_one_takes_no_memory(encoding: str, status: int) -> None:
    bomb = squeezed(encoding)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    fault = Fault(status=status, raw=bomb, headers={"Content-Encoding": encoding})
    if status == 200:
        assert ask_with(fault)[0].text == "Task: greet. Go."
    else:
        with pytest.raises(ModelFailure, match="answered 400"):
            ask_with(fault)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 150_000, "kB"


@pytest.mark.parametrize(
    "encoding",
    [
        *("gzip, gzip", "br", "zstd", "gzip, identity, gzip"),
        pytest.param("deflate, gzip", marks=pytest.mark.slow),
    ],
)
def test_a_body_that_may_unfold_without_bound_is_not_read(encoding: str) -> None:
    bomb = squeezed_twice("deflate" if "deflate" in encoding else "gzip")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    waits: list[float] = []
    assert ask_with(Fault(raw=bomb, headers={"Content-Encoding": encoding}), waits=waits)[0].text == "Task: greet. Go."
    assert len(waits) == 1
    with pytest.raises(ModelFailure, match=f"it is compressed as {encoding}; read are gzip and deflate, once"):
        ask_with(Fault(raw=bomb, headers={"Content-Encoding": encoding}), retries=0)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 50_000, "kB"


def test_numbers_of_thousands_of_digits_are_absent_like_any_odd_count() -> None:
    digits = "9" * 5000
    usage = f'{{"prompt_tokens": -{digits}}}'
    raw = f'{{"created": {digits}, "choices": [{{"message": {{"content": "hi"}}}}], "usage": {usage}}}'
    waits: list[float] = []
    reply, _ = ask_with(Fault(raw=raw.encode()), waits=waits)
    assert (reply.text, reply.prompt_tokens, waits) == ("hi", None, [])


def test_a_filters_words_are_bounded() -> None:
    assert len(answered(finish_reason="content_filter" * 50_000).aside) < 300


@pytest.mark.parametrize(
    "usage",
    [
        None,
        "much",
        [],
        {"prompt_tokens": -5, "completion_tokens": -1},
        {"prompt_tokens": 2**70, "completion_tokens": 2**70},
        {"prompt_tokens": None, "completion_tokens": "3"},
        {"prompt_tokens": 1.5, "completion_tokens": True},
        {"prompt_tokens": float("nan"), "completion_tokens": float("inf"), "prompt_tokens_details": 4},
        {"prompt_tokens": {}, "completion_tokens": [3], "prompt_tokens_details": {"cached_tokens": -2}},
    ],
    ids=str,
)
def test_odd_counts_are_absent(usage: Any) -> None:
    reply = answered(usage=usage)
    assert reply.text == "Task: greet. Go."
    assert (reply.prompt_tokens, reply.completion_tokens, reply.computed_tokens) == (None, None, None)


@pytest.mark.parametrize(
    "parts",
    [
        {"id": None, "created": "today"},
        {"finish_reason": None},
        {"finish_reason": 7},
        {"finish_reason": {"type": "stop"}},
        {"logprobs": []},
        {"logprobs": {"content": "none"}},
        {"logprobs": {"content": [{"token": "T", "logprob": None}]}},
        {"logprobs": {"content": [{"token": "T", "logprob": float("nan")}]}},
        {"logprobs": {"content": [{"token": 7, "logprob": -1.0}]}},
        {"token_ids": "none"},
        {"token_ids": [-1, 2**80]},
        {"token_ids": [None]},
    ],
    ids=str,
)
def test_odd_optional_parts_are_absent(parts: dict[str, Any]) -> None:
    reply = answered(**parts)
    assert (reply.text, reply.finish) == ("Task: greet. Go.", "stop")
    if "logprobs" in parts:
        assert reply.logprobs is None
    if "token_ids" in parts:
        assert reply.tokens is None


@pytest.mark.parametrize(("finish", "are_known"), [("stop", False), ("length", True)])
def test_ids_that_may_end_with_the_end_of_the_turn_are_absent(finish: str, are_known: bool) -> None:
    """Only log-probabilities tell whether the last id is the end of the turn, which is no part of a reply."""
    reply = answered(finish_reason=finish, logprobs=None, token_ids=[5, 6, 7])
    assert reply.tokens == ((5, 6, 7) if are_known else None)
    assert (reply.end_token, reply.end_logprob, reply.end_behaviour_logprob) == (None, None, None)


def test_a_server_that_does_not_say_how_a_reply_ended_is_not_answered_for() -> None:
    reply = answered(finish_reason=None, logprobs=None, token_ids=[5, 6, 7])
    assert (reply.finish, reply.tokens) == (None, None)
    reply = answered(finish_reason=None)
    assert (reply.finish, reply.end_token) == ("stop", END), "the end of the turn stands behind the text"


def test_odd_bytes_of_a_token_are_absent() -> None:
    reply = answered(logprobs={"content": [{"token": "Task: greet. Go.", "logprob": -0.5, "bytes": [300, -1]}]})
    assert reply.logprobs == (-0.5,)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("Go \ud83d\ude00", "Go \U0001f600"),
        ("half \ud83d here", "half \ufffd here"),
        ("\udc00\ud800", "\ufffd\ufffd"),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b\ud83d"}], "ab\ufffd"),
        ([{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "c"}], "c"),
        (["d", None, 7, {"type": "image_url"}, {"type": "output_text", "text": "e"}], "de"),
        ({"type": "text", "text": "f"}, "f"),
        ([], ""),
        (None, ""),
    ],
)
def test_a_text_is_read_whole_in_parts_and_without_half_characters(content: Any, text: str) -> None:
    reply = answered(message={"role": "assistant", "content": content})
    assert reply.text == text
    reply.text.encode()


def test_half_a_character_in_a_prompt_can_be_sent() -> None:
    with FakeServer() as server:
        model = model_of(server)
        assert play(model, lambda: model.generate(request("Page \ud83d."))).text == "Page \ufffd. Go."


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"error": {"message": "no"}}, "no"),
        ([{"error": {"code": 400, "message": "Logprobs is not enabled", "status": "INVALID_ARGUMENT"}}], "Logprobs is"),
        ({"error": "model 'x' not found"}, "model 'x' not found"),
        ({"error": "Input validation error", "error_type": "validation"}, "Input validation error"),
        ({"detail": [{"loc": ["body", "seed"], "msg": "Extra inputs are not permitted"}]}, "body.seed: Extra inputs"),
        ({"object": "error", "message": "too long", "code": 400}, "too long"),
        ({"error": {"message": "Provider error", "metadata": {"raw": '{"error": "quota"}'}}}, "quota"),
        ({"error": {"message": "Unsupported", "param": "stop"}}, "param: stop"),
        ({"a": {"b": 1}}, ""),
    ],
)
def test_what_a_server_says_is_found_wherever_it_stands(body: Any, words: str) -> None:
    assert words in find_words(body)


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b'[{"error": {"code": 400, "message": "API key not valid"}}]', "answered 422: API key not valid"),
        (b'{"error": "model is loading"}', "answered 422: model is loading"),
        (b"<html><head><style>b {}</style></head><h1>Forbidden</h1> by proxy</html>", "422: Forbidden by proxy"),
        (b"plain words", "answered 422: plain words"),
        (b"", "answered 422: Unprocessable"),
    ],
)
def test_what_a_server_says_reaches_the_user(raw: bytes, words: str) -> None:
    with pytest.raises(ModelFailure, match=words):
        ask_with(Fault(status=422, raw=raw))


def test_an_error_with_status_200_is_told() -> None:
    with pytest.raises(ModelFailure, match=r"answered 502: the engine is gone \(2 attempts\)"):
        ask_with(Fault(raw=b'{"error": "the engine is gone"}'), times=2, retries=1)
    with pytest.raises(ModelFailure, match="answered 402: no credits"):
        ask_with(Fault(raw=b'{"error": {"message": "no credits", "code": 402}}'))


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_that_cannot_be_followed_says_where_to(status: int) -> None:
    """A POST does not become a GET, and a circle ends."""
    place = {"Location": "/v1/chat/completions"}
    with pytest.raises(ModelFailure, match=rf"answered {status}: it redirects to /v1/chat/completions; correct base"):
        ask_with(Fault(status=status, raw=b"", headers=place), times=9)
    with pytest.raises(ModelFailure, match=f"answered {status}: "):
        ask_with(Fault(status=status, raw=b""))


@pytest.mark.parametrize("status", [307, 308])
def test_the_key_does_not_follow_to_another_host(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVER_KEY", "sk-of-the-first-host")
    with FakeServer() as other:
        moved = Fault(status=status, raw=b"", headers={"Location": f"{other.url}/chat/completions"})
        reply, _ = ask_with(moved, api_key_env="SERVER_KEY")
        (headers,) = other.headers
    assert reply.text == "Task: greet. Go."
    assert "sk-of-the-first-host" not in str(headers)


def test_a_wait_without_end_is_told_in_words() -> None:
    with pytest.raises(ModelFailure, match=r"\(2 attempts\); it asks to wait for ever$"):
        ask_with(Fault(status=429, headers={"Retry-After": "1e300"}), times=2, retries=1)


@pytest.mark.parametrize("wraps", ["{system}\n{user}\nHi.", "<|system|>{system}<|end|><|user|>{user}<|end|>Hi."])
def test_a_server_that_sends_the_prompt_back_is_refused_before_a_run(wraps: str) -> None:
    def send_back(body: Any, *others: Any) -> dict[str, Any]:
        system, user = (one["content"] for one in body["messages"])
        answer = build_completion(body, (), text="Hi.")
        answer["choices"][0]["message"]["content"] = wraps.format(system=system, user=user)
        return answer

    with FakeServer() as server, pytest.MonkeyPatch.context() as patch:
        patch.setattr("collab.testing.fake_server.build_completion", send_back)
        model = model_of(server)
        with pytest.raises(ModelFailure, match="sends the whole prompt back in front of its reply"):
            play(model, model.probe)
        assert len(server.requests) == 2


def test_a_model_that_repeats_the_prompt_is_no_such_server() -> None:
    """Within one token it cannot."""
    with FakeServer(says=lambda body: "\n".join(one["content"] for one in body["messages"])) as server:
        model = model_of(server)
        play(model, model.probe)
        limits = [body["max_tokens"] for body in server.requests]
    assert limits[1] == 1
    assert set(limits) == {limits[0], 1}


def test_a_limit_of_the_users_own_makes_no_model_such_a_server() -> None:
    """`extra` overrides the limit, so the model may repeat the prompt then, too."""
    with FakeServer(says=lambda body: "\n".join(one["content"] for one in body["messages"])) as server:
        model = model_of(server, extra={"max_tokens": 64})
        play(model, model.probe)
        assert {body["max_tokens"] for body in server.requests} == {64}
