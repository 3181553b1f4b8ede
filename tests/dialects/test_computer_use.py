"""The computer-use interfaces of three vendors: what goes over the wire, what comes back, and what is refused."""

import asyncio
import base64
import io
import json
from collections.abc import Mapping
from typing import Any

import pytest
from PIL import Image

from collab.config import AgentDefinition
from collab.dialects.base import Verb
from collab.dialects.computer_use import NOT_DONE
from collab.dialects.ground import read_in_dialect
from collab.dialects.prompt import DialectWriter, resize_picture
from collab.dialects.registry import DIALECTS
from collab.envs.grammar import WEB
from collab.envs.web.miniwob import MiniwobSuite
from collab.errors import ConfigError, ModelFailure
from collab.models.base import Reply, Request
from collab.models.computer_use import ComputerUseModel
from collab.rollout.dialects import load_dialect
from collab.testing.fake_server import FakeServer, Fault
from collab.types import Observation, Prompt, Sampling

EACH = pytest.mark.parametrize("vendor", ["openai", "anthropic", "gemini"])
SCREEN = Observation(space="web", title="", text="", elements=(), width=320, height=240)
USAGE = {"input_tokens": 900, "output_tokens": 30}


def answer(vendor: str, x: float, y: float, *, check: bool = False, cut: bool = False) -> dict[str, Any]:
    """A click as the vendor documents it."""
    if vendor == "openai":
        checks = [{"id": "1", "code": "malicious_instructions", "message": "Look out"}] if check else []
        call = {"type": "computer_call", "id": "cu_1", "call_id": "call_1", "status": "completed"}
        action = {"type": "click", "button": "left", "x": x, "y": y}
        output = [
            {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "There it is."}]},
            call | {"pending_safety_checks": checks, "actions": [action]},
        ]
        ending = {"incomplete_details": {"reason": "max_output_tokens"}} if cut else {}
        return {"id": "resp_1", "object": "response", "output": [] if cut else output, "usage": USAGE, **ending}
    if vendor == "anthropic":
        use = {"type": "tool_use", "id": "toolu_1", "name": "computer"}
        content = [
            {"type": "text", "text": "There it is."},
            use | {"input": {"action": "left_click", "coordinate": [x, y]}},
        ]
        ending = {"stop_reason": "max_tokens" if cut else "tool_use"}
        return {"id": "msg_1", "type": "message", "content": [] if cut else content, "usage": USAGE, **ending}
    decision = {"decision": "require_confirmation", "explanation": "Look out"}
    arguments = {"x": x, "y": y, **({"safety_decision": decision} if check else {})}
    parts = [{"text": "There it is."}, {"functionCall": {"name": "click_at", "args": arguments}}]
    candidate = {"finishReason": "MAX_TOKENS"} if cut else {"content": {"parts": parts}, "finishReason": "STOP"}
    return {
        "candidates": [candidate],
        "usageMetadata": {"promptTokenCount": 900, "candidatesTokenCount": 30},
    }


def build(vendor: str, server: FakeServer, **options: Any) -> ComputerUseModel:
    base_url = server.url if vendor != "gemini" else server.url.replace("/v1", "/v1beta")
    return ComputerUseModel(vendor=vendor, model="seer", base_url=base_url, **options)  # type: ignore[arg-type]


def draw() -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (320, 240), "white").save(buffer, "PNG")
    return buffer.getvalue()


def ask(model: ComputerUseModel, picture: bytes | None = None) -> Reply:
    prompt = Prompt(system="Be quick.", shared="Click it.", segments=(), images=("a",), layout="1")
    request = Request(
        prompt=prompt, sampling=Sampling(temperature=0.5, max_tokens=200), seed=7, images=(picture or draw(),)
    )

    async def run() -> Reply:
        try:
            return await model.generate(request)
        finally:
            await model.close()

    return asyncio.run(run())


@EACH
def test_a_turn_goes_over_the_wire_as_the_vendor_documents_it(vendor: str, monkeypatch) -> None:
    monkeypatch.setenv("MY_KEY", "secret-key")
    with FakeServer(answers=lambda body: answer(vendor, 100, 50)) as server:
        reply = ask(build(vendor, server, api_key_env="MY_KEY", usd_per_million_prompt=1, usd_per_million_completion=2))
        body, headers, path = server.requests[-1], server.headers[-1], server.paths[-1]
    assert (reply.prompt_tokens, reply.completion_tokens, reply.finish) == (900, 30, "stop")
    assert reply.cost_usd == pytest.approx(0.00096)
    headers = {name.lower(): value for name, value in headers.items()}
    if vendor == "openai":
        assert path == "/v1/responses"
        assert headers["authorization"] == "Bearer secret-key"
        assert body["instructions"] == "Be quick."
        assert body["tools"] == [{"type": "computer"}]
        picture, text = body["input"][0]["content"]
        assert (picture["type"], text) == ("input_image", {"type": "input_text", "text": "Click it."})
        assert body["max_output_tokens"] == 200
    elif vendor == "anthropic":
        assert path == "/v1/messages"
        assert headers["x-api-key"] == "secret-key"
        assert "authorization" not in headers
        assert headers["anthropic-version"] == "2023-06-01"
        assert headers["anthropic-beta"] == "computer-use-2025-01-24"
        tool = {"type": "computer_20250124", "name": "computer", "display_width_px": 320, "display_height_px": 240}
        assert body["tools"] == [tool]
        picture, text = body["messages"][0]["content"]
        assert picture["source"]["media_type"] == "image/png"
        assert base64.b64decode(picture["source"]["data"]) == draw()
        assert (body["system"], body["max_tokens"], body["temperature"]) == ("Be quick.", 200, 0.5)
    else:
        assert path == "/v1beta/models/seer:generateContent"
        assert headers["x-goog-api-key"] == "secret-key"
        assert "authorization" not in headers
        excluded = ["key_down", "key_up", "mouse_down", "mouse_up", "search"]
        tool = {"environment": "ENVIRONMENT_BROWSER", "excludedPredefinedFunctions": excluded}
        assert body["tools"] == [{"computerUse": tool}]
        assert body["systemInstruction"] == {"parts": [{"text": "Be quick."}]}
        assert body["generationConfig"] == {"maxOutputTokens": 200, "seed": 7, "temperature": 0.5}
        assert body["contents"][0]["parts"][0]["inlineData"]["mimeType"] == "image/png"
    parsed = read_in_dialect(reply.text, DIALECTS[f"{vendor}-computer"], WEB, SCREEN)
    place = (100, 50) if vendor != "gemini" else (32, 12)
    assert parsed.action == WEB.make("click", x=place[0], y=place[1])
    assert parsed.reason == "There it is."


@pytest.mark.parametrize("vendor", NOT_DONE)
def test_what_no_page_can_do_is_not_offered(vendor: str) -> None:
    rows = DIALECTS[f"{vendor}-computer"].verbs

    def can_be_done(row: Verb) -> bool:
        reply = json.dumps([_spell(vendor, row)])
        failure = read_in_dialect(reply, DIALECTS[f"{vendor}-computer"], WEB, SCREEN).failure
        return failure is None or failure.kind != "unsupported"

    unknown = set(NOT_DONE[vendor]) - {row.says for row in rows}
    undone = {row.says for row in rows if row.says != "text" and not can_be_done(row)}
    looks = {row.says for row in rows if row.kind == "zoom"}
    assert undone | looks | unknown == set(NOT_DONE[vendor])
    assert unknown == ({"search"} if vendor == "gemini" else set())


def _spell(vendor: str, row: Verb) -> dict[str, Any]:
    """Write an action with values for all of its arguments."""
    values = {"coordinate": [1, 2], "start_coordinate": [3, 4], "scroll_direction": "down", "direction": "down"}
    numbers = dict.fromkeys(("x", "y", "duration", "seconds", "repeat", "scroll_amount", "magnitude"), 1)
    given = {name: (values | numbers).get(name, "a") for name in row.argument_names}
    given |= {name: 9 for name in row.argument_names if name.startswith("destination_")}
    if vendor == "anthropic":
        return {"type": "tool_use", "name": "computer", "input": {"action": row.says, **given}}
    return {"function_call": {"name": row.says, "args": given}}


@EACH
def test_faults_are_retried_and_told_in_one_line(vendor: str) -> None:
    with FakeServer(answers=lambda body: answer(vendor, 1, 2)) as server:
        server.faults += [Fault(status=429, headers={"Retry-After": "0"}), Fault(broken="truncate")]
        assert ask(build(vendor, server)).text
        assert len(server.requests) == 3
        server.faults.append(Fault(status=400, message="no such model"))
        with pytest.raises(ModelFailure, match=r"seer at .* answered 400: no such model"):
            ask(build(vendor, server))
        server.faults.append(Fault(raw=b'{"choices": []}'))
        with pytest.raises(ModelFailure, match="sent a broken answer"):
            ask(build(vendor, server, retries=0))


@EACH
def test_a_reply_that_was_cut_or_wants_consent_gives_no_action(vendor: str) -> None:
    with FakeServer(answers=lambda body: answer(vendor, 1, 2, cut=True)) as server:
        reply = ask(build(vendor, server))
    assert (reply.text, reply.finish) == ("", "length")
    if vendor == "anthropic":
        return
    with FakeServer(answers=lambda body: answer(vendor, 1, 2, check=True)) as server:
        reply = ask(build(vendor, server))
        confirmed = ask(build(vendor, server, confirm_safety_checks=True))
    assert (reply.text, reply.finish, reply.aside) == ("", "refusal", "it asks for the user's consent: Look out")
    parsed = read_in_dialect(
        reply.text, DIALECTS[f"{vendor}-computer"], WEB, SCREEN, finish=reply.finish, aside=reply.aside
    )
    assert parsed.failure is not None
    assert parsed.failure.kind == "refusal"
    assert confirmed.finish == "stop"


def test_the_set_of_tools_has_no_header_no_name_and_no_size() -> None:
    use = {"type": "tool_use", "id": "toolu_1", "name": "left_click", "input": {"coordinate": [100, 50]}}
    said = {"id": "msg_1", "type": "message", "content": [use], "usage": USAGE, "stop_reason": "tool_use"}
    with FakeServer(answers=lambda body: said) as server:
        reply = ask(build("anthropic", server, tool="computer_toolset_20260801"))
        body, headers = server.requests[-1], server.headers[-1]
    members = {name: {"enabled": False} for name in ("hold_key", "left_mouse_down", "left_mouse_up", "zoom")}
    assert body["tools"] == [{"type": "computer_toolset_20260801", "configs": members}]
    assert "anthropic-beta" not in {name.lower() for name in headers}
    parsed = read_in_dialect(reply.text, DIALECTS["anthropic-computer"], WEB, SCREEN)
    assert parsed.action == WEB.make("click", x=100, y=50)


@pytest.mark.parametrize("arguments", [None, [], "now"])
def test_arguments_that_are_none_break_no_reply(arguments: Any) -> None:
    call = {"name": "open_web_browser", "args": arguments}
    candidate = {"content": {"parts": [{"functionCall": call}]}, "finishReason": "STOP"}
    with FakeServer(answers=lambda body: {"candidates": [candidate]}) as server:
        reply = ask(build("gemini", server))
    parsed = read_in_dialect(reply.text, DIALECTS["gemini-computer"], WEB, SCREEN, finish=reply.finish)
    if isinstance(arguments, str):
        assert parsed.failure is not None
        assert parsed.failure.kind == "no_action"
    else:
        assert parsed.action == WEB.make("wait")


@pytest.mark.parametrize(
    ("name", "given", "told"),
    [
        ("key", {"text": "Down", "repeat": 3}, ("in part: keys 'down' by 3",)),
        ("key", {"text": "Down", "repeat": 1}, ()),
        ("wait", {"duration": 10}, ("in part: wait for 10 s",)),
        ("wait", {"duration": 1}, ()),
        ("zoom", {"region": [0, 0, 10, 10]}, ("in part: zoom",)),
        ("left_click", {"coordinate": [1, 2], "repeat": 2}, ("ignored: repeat=2",)),
    ],
)
def test_what_is_done_in_part_is_remarked(name: str, given: dict[str, Any], told: tuple[str, ...]) -> None:
    text = json.dumps([{"type": "tool_use", "name": "computer", "input": {"action": name, **given}}])
    parsed = read_in_dialect(text, DIALECTS["anthropic-computer"], WEB, SCREEN)
    assert parsed.action is not None
    assert parsed.remarks == told


def test_a_key_that_is_not_set_is_named(monkeypatch) -> None:
    monkeypatch.delenv("GEMINI_API_KEY", raising=False)
    with pytest.raises(ConfigError, match="computer-use: the environment variable GEMINI_API_KEY is not set"):
        ComputerUseModel(vendor="gemini", model="seer")


def test_only_the_vendors_own_dialect_fits() -> None:
    def define(**fields: Any) -> AgentDefinition:
        options = {"vendor": "anthropic", "model": "seer"}
        return AgentDefinition.model_validate(
            {"kind": "computer-use", "options": options, "modality": "image", **fields}
        )

    found = load_dialect(define(), "agents/mine")
    assert found is not None
    assert found.name == "anthropic-computer"
    with pytest.raises(ConfigError, match="dialect is 'qwen3-vl', allowed with this vendor: anthropic-computer"):
        load_dialect(define(dialect="qwen3-vl"), "agents/mine")
    with pytest.raises(ConfigError, match="answers to a picture, but modality: text shows none"):
        load_dialect(define(modality="text"), "agents/mine")
    with pytest.raises(ConfigError, match=r"tool is 'mouse', allowed for openai: computer, computer_use_preview"):
        ComputerUseModel(vendor="openai", model="seer", base_url="http://127.0.0.1:1/v1", tool="mouse")


@pytest.mark.medium
@pytest.mark.browser
@pytest.mark.variations
@EACH
def test_a_page_is_solved_by_typed_items(vendor: str) -> None:
    dialect = DIALECTS[f"{vendor}-computer"]
    spot: list[float] = []

    def say(body: Mapping[str, Any]) -> dict[str, Any]:
        return answer(vendor, *spot)

    async def run(server: FakeServer) -> None:
        suite, model = MiniwobSuite(), build(vendor, server)
        environment = await suite.open()
        try:
            seen = await environment.reset(suite.instance("click-test", 3))
            (button,) = (one for one in seen.elements if one.role == "button")
            assert button.box is not None
            screen = (seen.width, seen.height)
            spot[:] = dialect.grid.from_pixel(*button.box.center, dialect.resize.fit(*screen), screen)
            picture = resize_picture(await environment.screenshot(), dialect.resize)
            prompt = Prompt(
                system=DialectWriter(dialect, screen).render_system(WEB),
                shared=environment.goal(),
                segments=(),
                images=("a",),
                layout="1",
            )
            reply = await model.generate(Request(prompt=prompt, sampling=Sampling(), seed=0, images=(picture,)))
            parsed = read_in_dialect(reply.text, dialect, WEB, seen)
            assert parsed.action == WEB.make("click", id=button.index)
            result = await environment.step(parsed.action)
            assert result.outcome is not None
            assert result.outcome.success
        finally:
            await environment.close()
            await suite.close()
            await model.close()

    with FakeServer(answers=say) as server:
        asyncio.run(run(server))
