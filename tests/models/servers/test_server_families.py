"""The families of servers that people use, each by what it refuses or says in its own way: all are probed and played.

Sources of the quirks stand in docs/models.md.
"""

import asyncio
import re
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from collab.config import AgentDefinition, SamplingDefinition
from collab.errors import ModelFailure
from collab.models.base import Capabilities, Reply, Request
from collab.models.openai import OpenAIModel
from collab.rollout.build import build
from collab.testing.fake_server import FakeServer, Fault
from collab.types import Prompt, Sampling, Segment

Body = Mapping[str, Any]


def raw(status: int, text: str, **headers: str) -> Fault:
    return Fault(status=status, raw=text.encode(), headers=headers)


def error(status: int, message: str, param: str = "") -> Fault:
    return (
        Fault(status=status, message=message)
        if not param
        else raw(
            status, f'{{"error": {{"message": "{message}", "type": "invalid_request_error", "param": "{param}"}}}}'
        )
    )


def has_system(body: Body) -> bool:
    return bool(body["messages"][0]["role"] == "system")


def openai_reasoning(body: Body) -> Fault | None:
    if "max_tokens" in body:
        words = (
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
        )
        return error(400, words, "max_tokens")
    if body["max_completion_tokens"] < 16:
        return error(400, "Could not finish the message because max_tokens or model output limit was reached.")
    if body.get("logprobs"):
        return error(403, "You are not allowed to request logprobs from this model")
    if body.get("temperature", 1) != 1:
        words = "Unsupported value: 'temperature' does not support 0.1. Only the default (1) value is supported."
        return error(400, words, "temperature")
    for name in ("top_p", "stop"):
        if name in body:
            return error(400, f"Unsupported parameter: '{name}' is not supported with this model.", name)
    return None


def openai_without_system(body: Body) -> Fault | None:
    if has_system(body):
        words = "Unsupported value: 'messages[0].role' does not support 'system' with this model."
        return error(400, words, "messages[0].role")
    return openai_reasoning(body)


def claude(body: Body) -> Fault | None:
    if "temperature" in body and "top_p" in body:
        return error(400, "`temperature` and `top_p` cannot both be specified for this model. Please use only one.")
    if any(not one.strip() for one in body.get("stop", ())):
        return error(400, "stop_sequences: each stop sequence must contain non-whitespace")
    return None


def gemini(body: Body) -> Fault | None:
    def say(message: str) -> Fault:
        return raw(400, f'[{{"error": {{"code": 400, "message": "{message}", "status": "INVALID_ARGUMENT"}}}}]')

    if body.get("logprobs"):
        return say("Logprobs is not enabled for models/gemini")
    if body.get("seed", 0) >= 2**31:
        return say("Invalid value at 'generation_config.seed' (TYPE_INT32), 4611686018427387904")
    if "return_token_ids" in body:
        return say("Invalid JSON payload received. Unknown name: Cannot find field.")
    return None


def mistral(body: Body) -> Fault | None:
    known = {"model", "messages", "temperature", "top_p", "max_tokens", "stop", "random_seed", "response_format"}
    for name in body:
        if name not in known:
            detail = (
                f'{{"type": "extra_forbidden", "loc": ["body", "{name}"], "msg": "Extra inputs are not permitted"}}'
            )
            return raw(422, f'{{"object": "error", "message": {{"detail": [{detail}]}}, "code": null}}')
    return None


def together(body: Body) -> Fault | None:
    if isinstance(body.get("logprobs"), bool):
        return error(400, "Input validation error: 'logprobs' must be an integer", "logprobs")
    return None


def openrouter(body: Body) -> Fault | None:
    if body.get("logprobs") or "return_token_ids" in body:
        return error(404, "No endpoints found that can handle the requested parameters.")
    if "response_format" in body:
        return raw(200, '{"error": {"message": "Provider returned error", "code": 400, "metadata": {"raw": "no"}}}')
    return None


def llama_cpp(body: Body) -> Fault | None:
    if has_system(body):
        words = "Jinja Exception: System role not supported"
        return raw(500, f'{{"error": {{"code": 500, "message": "{words}", "type": "server_error"}}}}')
    return None


def lm_studio(body: Body) -> Fault | None:
    if body.get("response_format", {}).get("type", "text") != "text":
        return raw(400, "{\"error\": \"'response_format.type' must be 'text'\"}")
    return None


def vllm_gemma(body: Body) -> Fault | None:
    if has_system(body):
        return raw(400, '{"object": "error", "message": "System role not supported", "type": "BadRequestError"}')
    return None


def vllm_alternating(body: Body) -> Fault | None:
    if has_system(body):
        words = "Conversation roles must alternate user/assistant/user/assistant/..."
        return raw(400, f'{{"error": {{"message": "{words}", "code": 400}}}}')
    return None


def sglang(body: Body) -> Fault | None:
    return raw(500, "Internal Server Error") if body.get("logprobs") else None


def tgi(body: Body) -> Fault | None:
    def say(words: str) -> Fault:
        return raw(422, f'{{"error": "{words}", "error_type": "validation"}}')

    if not 0 < body.get("top_p", 0.5) < 1:
        return say("Input validation error: `top_p` must be > 0.0 and < 1.0")
    if len(body.get("stop", ())) > 4:
        return say("Input validation error: `stop` supports up to 4 stop sequences")
    return say("Template error: the system role is not supported") if has_system(body) else None


def litellm(body: Body) -> Fault | None:
    if body.get("logprobs") or "seed" in body:
        name = "logprobs" if body.get("logprobs") else "seed"
        return error(400, f"litellm.UnsupportedParamsError: bedrock does not support: ['{name}'], for model=x")
    return None


def tight_lipped(body: Body) -> Fault | None:
    """Refuses what it does not take, without a word on what that is."""
    takes = not has_system(body) and "temperature" not in body and "logprobs" not in body
    return None if takes else error(400, "Bad Request")


def small_seeds(body: Body) -> Fault | None:
    return error(400, "seed must be between 0 and 2147483647") if body.get("seed", 0) > 2**31 - 1 else None


def no_optional(body: Body) -> Fault | None:
    """Refuse every request for more than plain fields: with a status that says nothing about fields."""
    more = {"logprobs", "seed", "response_format", "return_token_ids"} & body.keys()
    return error(401, "who are you?") if more else None


def in_parts(answer: dict[str, Any]) -> dict[str, Any]:
    message = answer["choices"][0]["message"]
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}
    message["content"] = [thought, {"type": "text", "text": message["content"]}]
    return answer


def sparse(answer: dict[str, Any]) -> dict[str, Any]:
    """Much is null, as gateways send it."""
    choice = answer["choices"][0]
    choice |= {"logprobs": None, "finish_reason": None, "matched_stop": 2}
    choice["message"] |= {"reasoning": None, "refusal": None, "tool_calls": None, "annotations": []}
    return answer | {"id": None, "system_fingerprint": None, "usage": None}


def owned_by(name: str) -> dict[str, Any]:
    return {"object": "list", "data": [{"id": "fake", "owned_by": name}]}


@dataclass(frozen=True, kw_only=True)
class Family:
    name: str
    refuses: Callable[[Body], Fault | None] = lambda body: None
    shapes: Callable[[dict[str, Any]], Any] | None = None
    models: Any = None
    supports: frozenset[str] = frozenset({"seed", "logprobs", "response_format", "images"})
    lacks: frozenset[str] = frozenset()
    """Of temperature, top_p, stop, seed, logprobs and system: what is not in a request in the end."""
    sends: Mapping[str, Any] = field(default_factory=dict)
    """What is."""

    def __str__(self) -> str:
        return self.name


SERVERS = [
    Family(
        name="OpenAI reasoning",
        refuses=openai_reasoning,
        lacks=frozenset({"max_tokens", "temperature", "top_p", "stop", "logprobs"}),
        sends={"max_completion_tokens": 64},
    ),
    Family(
        name="OpenAI without system turns", refuses=openai_without_system, lacks=frozenset({"system", "temperature"})
    ),
    Family(name="Claude", refuses=claude, supports=frozenset({"images"}), lacks=frozenset({"top_p", "logprobs"})),
    Family(
        name="Gemini",
        refuses=gemini,
        models={"object": "list", "data": [{"id": "models/fake", "object": "model", "owned_by": "google"}]},
        lacks=frozenset({"logprobs"}),
    ),
    Family(
        name="Mistral",
        refuses=mistral,
        shapes=in_parts,
        lacks=frozenset({"seed", "logprobs"}),
        sends={"random_seed": 2**62 % 2**31 + 5},
    ),
    Family(
        name="Together", refuses=together, models=[{"id": "other", "object": "model"}], lacks=frozenset({"logprobs"})
    ),
    Family(name="OpenRouter", refuses=openrouter, shapes=sparse, lacks=frozenset({"logprobs"})),
    Family(name="Ollama", models=owned_by("library"), supports=frozenset({"seed"}), sends={"temperature": 0.1}),
    Family(name="llama.cpp", refuses=llama_cpp, models=owned_by("llamacpp"), lacks=frozenset({"system"})),
    Family(
        name="LM Studio",
        refuses=lm_studio,
        models=raw(200, '{"error": "Unexpected endpoint or method. (GET /v1/models)"}'),
    ),
    Family(name="vLLM with Gemma", refuses=vllm_gemma, models=owned_by("vllm"), lacks=frozenset({"system"})),
    Family(name="vLLM with an alternating template", refuses=vllm_alternating, lacks=frozenset({"system"})),
    Family(name="SGLang", refuses=sglang, models=owned_by("sglang"), lacks=frozenset({"logprobs"})),
    Family(name="TGI", refuses=tgi, models=raw(404, ""), lacks=frozenset({"system", "top_p"})),
    Family(name="LiteLLM", refuses=litellm, shapes=sparse, lacks=frozenset({"logprobs", "seed"})),
]
"""Those of docs/models.md."""
FAMILIES = [
    *SERVERS,
    Family(name="says nothing", refuses=tight_lipped, lacks=frozenset({"system", "temperature", "logprobs"})),
    Family(name="31-bit seeds", refuses=small_seeds, sends={"seed": 2**62 % 2**31 + 5}),
    Family(name="401 for each optional field", refuses=no_optional, lacks=frozenset({"seed", "logprobs"})),
    Family(name="no list of models", models=Fault(broken="close")),
    Family(name="an HTML list of models", models=raw(200, "<html>hello</html>")),
    Family(name="odd cards", models={"data": [None, 7, {"id": None}, {"id": "fake", "max_model_len": "long"}]}),
    Family(name="a list of models without this one", models={"object": "list", "data": [{"id": "other"}]}),
]


def play(family: Family, sampling: Sampling) -> tuple[Capabilities, Reply, list[dict[str, Any]]]:
    """What the probe found, a reply, and the requests that were sent for it."""
    with FakeServer(
        family.supports, ignores=True, refuses=family.refuses, shapes=family.shapes, models=family.models
    ) as server:
        definition = AgentDefinition(
            kind="openai",
            options={"model": "fake", "base_url": server.url, "api_key_env": "", "retries": 1},
            sampling=SamplingDefinition(
                temperature=sampling.temperature,
                top_p=sampling.top_p,
                max_tokens=sampling.max_tokens,
                stop=list(sampling.stop),
            ),
        )
        model: OpenAIModel = build("models", definition, "agents/fake")
        model.wait = lambda seconds: asyncio.sleep(0)

        async def scene() -> tuple[Capabilities, Reply]:
            async with asyncio.timeout(60):
                found = await model.probe()
                server.requests.clear()
                reply = await model.generate(request(sampling))
                await model.close()
                return found, reply

        found, reply = asyncio.run(scene())
        return found, reply, server.requests


def closed(model: OpenAIModel, work: Coroutine[Any, Any, Any]) -> Any:
    """What some work with a model gives, and the model closed."""

    async def whole() -> Any:
        try:
            return await work
        finally:
            await model.close()

    return asyncio.run(whole())


def request(sampling: Sampling) -> Request:
    prompt = Prompt(system="Rules.", shared="Task: greet.", segments=(Segment(text=" Go."),))
    return Request(prompt=prompt, sampling=sampling, seed=2**62 + 5)


@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_every_family_is_probed_and_answers_in_one_request(family: Family) -> None:
    found, reply, requests = play(family, Sampling(temperature=0.1, max_tokens=64))
    assert reply.text.endswith("Task: greet. Go.")
    assert len(requests) == 1, "what the probe has learned holds"
    (body,) = requests
    present = {*body, *(["system"] if has_system(body) else [])}
    assert not family.lacks & present
    assert {"temperature", "system"} - family.lacks <= present
    assert dict(body) | dict(family.sends) == body
    assert "Rules." in str(body["messages"])
    assert found.notes


@pytest.mark.parametrize("family", [one for one in FAMILIES if "system" not in one.lacks], ids=str)
def test_a_bent_sampling_is_sent_as_far_as_it_is_taken(family: Family) -> None:
    _, reply, requests = play(family, Sampling(temperature=0.7, top_p=0.9, max_tokens=64, stop=("Go",)))
    assert reply.text.endswith("Task: greet. "), "a stop string that a server does not take is cut here"
    bent = {"temperature", "top_p", "stop"}
    assert bent & requests[-1].keys() == bent - family.lacks


def test_every_family_that_people_use_has_a_server_here_and_sources_in_the_docs() -> None:
    page = (Path(__file__).parents[3] / "docs/models.md").read_text(encoding="utf-8")
    lines = [line for line in page.partition("## Families")[2].splitlines() if line.startswith("|")][2:]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    people_use = "OpenAI Claude Gemini Mistral Together OpenRouter Ollama llama.cpp LM vLLM SGLang TGI LiteLLM".split()
    first_words = [re.split("[ ,]", name)[0] for name, _, _ in rows]
    assert first_words == people_use
    assert {one.name.split()[0] for one in SERVERS} == set(people_use)
    for name, quirks, sources in rows:
        assert quirks, name
        assert re.fullmatch(r"\[[^]]+\]\(https://\S+\)(, \[[^]]+\]\(https://\S+\))*", sources), name


def test_defaults_are_left_out_but_where_a_server_has_others() -> None:
    hot = Sampling(temperature=1.0, max_tokens=64)
    _, _, (body,) = play(Family(name="plain"), hot)
    assert not {"temperature", "top_p"} & body.keys()
    _, _, (body,) = play(Family(name="vLLM", models=owned_by("vllm")), hot)
    assert (body["temperature"], body["top_p"]) == (1.0, 1.0)


def test_the_probe_asks_with_the_definitions_own_sampling() -> None:
    with FakeServer() as server:
        sampling = SamplingDefinition(temperature=0.3, top_p=0.8, max_tokens=99, stop=["END"])
        options = {"model": "fake", "base_url": server.url, "api_key_env": ""}
        model = build("models", AgentDefinition(kind="openai", options=options, sampling=sampling), "agents/fake")
        closed(model, model.probe())
        for body in server.requests:
            assert (body["temperature"], body["top_p"], body["max_tokens"], body["stop"]) == (0.3, 0.8, 99, ["END"])
            assert has_system(body)


def test_what_is_refused_in_the_middle_of_a_run_is_left_out_from_then_on() -> None:
    strict: list[bool] = []

    def refuses(body: Body) -> Fault | None:
        return error(400, "temperature is deprecated for this model") if strict and "temperature" in body else None

    with FakeServer(refuses=refuses) as server:
        model = OpenAIModel(model="fake", base_url=server.url, api_key_env="")

        async def scene() -> list[Reply]:
            await model.probe()
            strict.append(True)
            server.requests.clear()
            one = request(Sampling(temperature=0.4))
            return [await model.generate(one), await model.generate(one)]

        assert [reply.text for reply in closed(model, scene())] == ["Task: greet. Go."] * 2
        assert ["temperature" in body for body in server.requests] == [True, False, False]


def test_a_prompt_that_is_too_long_is_not_taken_for_a_refused_field() -> None:
    def refuses(body: Body) -> Fault | None:
        long = "maximum context length is 100 tokens, however you requested 356 (256 in max_tokens)"
        return error(400, long) if "Task" in str(body["messages"]) else None

    with FakeServer(refuses=refuses) as server:
        model = OpenAIModel(model="fake", base_url=server.url, api_key_env="")
        with pytest.raises(ModelFailure, match="maximum context length"):
            closed(model, model.generate(request(Sampling())))
        assert sum("Task" in str(body["messages"]) for body in server.requests) == 1


def test_a_refusal_of_everything_is_told_as_the_server_says_it() -> None:
    with FakeServer(refuses=lambda body: error(400, "this model is retired")) as server:
        model = OpenAIModel(model="fake", base_url=server.url, api_key_env="")
        with pytest.raises(ModelFailure, match="answered 400: this model is retired"):
            closed(model, model.probe())
        assert len(server.requests) < 10
