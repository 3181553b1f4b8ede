"""Server behind tcp:9008 of the phone: HTTP/1.1 with GET /ping and POST /jsonrpc/0, as uiautomator2 speaks it.

Only this phone has the service `collab:`. It sets up AndroidWorld-named tasks and judges them itself.

A client opens a transport, names the service `collab:` with a JSON object behind it, and reads one JSON object until
the end. On any other device the service is closed, which tells the client that no judge of such a task is there.

    {"ask": "tasks"}                                        {"tasks": [{"name": …, "max_steps": …}, …]}
    {"ask": "instance", "name": "SimpleSmsSend", "seed": 7} {"goal": …, "params": …, "max_steps": …}
    {"ask": "begin", "name": "SimpleSmsSend", "seed": 7}    {}              the phone as the task begins
    {"ask": "answer", "text": "42"}                         {}              what the agent said to its user
    {"ask": "oracle"}                                       {"actions": ["{…}", …]}, or null when no way is known
    {"ask": "score"}                                        {"score": 1.0}

A question that cannot be answered gets {"error": "…"}.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from collab.envs.grammar import MOBILE
from collab.envs.simphone.adb.automator import PhoneHandle, RpcError, call
from collab.envs.simphone.adb.sync import ProtocolError
from collab.envs.simphone.touch import act
from collab.envs.simphone.ui.screen import look
from collab.errors import UnknownName

MAX_HEAD = 16 * 1024
MAX_BODY = 8 * 1024 * 1024
IDLE_S = 60.0
"""An HTTP connection without a request is closed after this many seconds."""


async def serve_http(handle: PhoneHandle, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer requests until the peer closes or says so."""
    while True:
        acknowledge_at_once(writer)
        head = await asyncio.wait_for(_read_head(reader), IDLE_S)
        if head is None:
            return
        method, path, headers = head
        length = headers.get("content-length", "0")
        # Bodies without a bounded length are refused: the server runs beside other things on this machine.
        if not length.isdecimal() or len(length) > 9 or int(length) > MAX_BODY or "transfer-encoding" in headers:
            writer.write(_build_response(413, b"body is too large or has no length", close=True))
            return
        body = await asyncio.wait_for(reader.readexactly(int(length)), IDLE_S)
        close = headers.get("connection", "").lower() == "close"
        writer.write(await _answer(handle, method, path, body, close=close))
        await writer.drain()
        if close:
            return


def acknowledge_at_once(writer: asyncio.StreamWriter) -> None:
    """Do not hold back acknowledgements: clients send head and body apart, and the body waits for the head's."""
    option = getattr(socket, "TCP_QUICKACK", None)  # Linux only, and only for what comes next
    if option is not None:
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, option, 1)


async def _read_head(reader: asyncio.StreamReader) -> tuple[str, str, dict[str, str]] | None:
    """Read method, path and headers (lower case); None when the peer has closed."""
    data = b""
    while not data.endswith(b"\r\n\r\n"):
        try:
            line = await reader.readline()
        except ValueError:  # longer than the stream's limit
            raise ProtocolError("no HTTP head") from None
        if not line and not data:
            return None
        data += line
        if not line.endswith(b"\n") or len(data) > MAX_HEAD:
            raise ProtocolError("no HTTP head")
    first, *rest = data.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise ProtocolError("no HTTP request")
    pairs = (line.partition(":") for line in rest if line)
    return words[0], words[1], {name.strip().lower(): value.strip() for name, _, value in pairs}


async def _answer(handle: PhoneHandle, method: str, path: str, body: bytes, *, close: bool) -> bytes:
    if method == "GET" and path == "/ping":
        return _build_response(200, b"pong", close=close)
    if path.startswith("/jsonrpc/0") and method == "POST":
        return _build_response(
            200, json.dumps(await _answer_rpc(handle, body)).encode(), "application/json", close=close
        )
    return _build_response(404, b"not found", close=close)


async def _answer_rpc(handle: PhoneHandle, body: bytes) -> dict[str, Any]:
    """Return a JSON-RPC 2.0 answer to a request; never raises for what stands in it."""
    number: Any = None
    try:
        request = json.loads(body)
        if not isinstance(request, dict) or not isinstance(request.get("method"), str):
            return _build_error(None, -32600, "invalid request")
        # The id is read first, so that an error can be answered to the right call.
        number = request.get("id")
        if not isinstance(number, (int, str, type(None))):
            number = None
        return {"jsonrpc": "2.0", "id": number, "result": await call(handle, request["method"], request.get("params"))}
    except (ValueError, RecursionError):
        return _build_error(number, -32700, "parse error")
    except RpcError as error:
        return _build_error(number, error.code, str(error))


def _build_error(number: Any, code: int, message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": message, "data": message}}


def _build_response(status: int, body: bytes, kind: str = "text/plain", *, close: bool = False) -> bytes:
    reason = {200: "OK", 404: "Not Found", 413: "Payload Too Large"}[status]
    head = f"HTTP/1.1 {status} {reason}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
    return (head + f"Connection: {'close' if close else 'keep-alive'}\r\n\r\n").encode() + body


def examine(handle: PhoneHandle, question: str) -> dict[str, Any]:
    """Answer one question; never raises for what stands in it."""
    try:
        asked = json.loads(question)
        return _ANSWERS[asked.pop("ask")](handle, **asked)
    except UnknownName as error:
        return {"error": str(error)}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {"error": f"not a question: {question[:200]!r}; known: {', '.join(_ANSWERS)}"}


def _list_tasks(handle: PhoneHandle) -> dict[str, Any]:
    return {"tasks": [asdict(info) for info in handle.suite.tasks()]}


def _start_instance(handle: PhoneHandle, *, name: str, seed: int) -> dict[str, Any]:
    task = handle.suite.instance(name, seed)
    told = ("goal", "params", "max_steps", "difficulty", "apps")
    return {field: value for field, value in asdict(task).items() if field in told}


def begin(handle: PhoneHandle, *, name: str, seed: int) -> dict[str, Any]:
    """Put the phone into the initial state of an instance; UnknownName when there is no such task."""
    phone = handle.suite.phone()
    phone.reset(handle.suite.instance(name, seed))
    handle.exam = phone.episode
    handle.put(phone.phone)
    return {}


def _read_answer(handle: PhoneHandle, *, text: str) -> dict[str, Any]:
    handle.put(act(look(handle.phone), MOBILE.make("answer", text=text)))
    return {}


def _ask_oracle(handle: PhoneHandle) -> dict[str, Any]:
    if handle.exam is None:
        return {"error": "no task has begun"}
    actions = handle.exam.solve(look(handle.phone))
    return {"actions": None if actions is None else [MOBILE.format(action) for action in actions]}


def _score(handle: PhoneHandle) -> dict[str, Any]:
    if handle.exam is None:
        return {"error": "no task has begun"}
    return {"score": handle.exam.score(handle.phone)}


_ANSWERS: dict[str, Callable[..., dict[str, Any]]] = {
    "tasks": _list_tasks,
    "instance": _start_instance,
    "begin": begin,
    "answer": _read_answer,
    "oracle": _ask_oracle,
    "score": _score,
}
