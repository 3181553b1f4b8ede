"""The gate between live pages and the network: a small proxy on loopback that asks the host policy first.

A browser that can reach the network only through this gate cannot be led around the policy: redirects, frames,
pictures, web sockets and workers all connect here, the gate looks a name up once, checks every address it stands for
and connects to exactly those. What it refuses it remembers, so that the environment can say so.

    gate = Gate(policy)
    await gate.start()
    context = await browser.context(proxy={"server": gate.address})
    gate.take_refusals()   # what was refused since the last call
    await gate.close()
"""

from __future__ import annotations

import asyncio
import contextlib

from collab.envs.text import cut
from collab.envs.web.hosts import HostPolicy, RefusedAddress
from collab.envs.web.sites import response

_HEAD_LIMIT = 65536
_CHUNK = 65536
_CONNECT_TIMEOUT_S = 15.0
_REMEMBERED = 20
_BROWSER_OWN = frozenset(
    {
        "content-autofill.googleapis.com",
        "optimizationguide-pa.googleapis.com",
        "safebrowsing.googleapis.com",
        "update.googleapis.com",
    }
)
"""Services that Chromium itself calls; no page asked for them, and they are not told of what is typed here."""


class Gate:
    """An HTTP proxy that lets through what the policy allows, and answers for the policy's sites itself."""

    def __init__(self, policy: HostPolicy) -> None:
        self._policy = policy
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._refusals: dict[str, None] = {}

    @property
    def address(self) -> str:
        """The proxy's own address, once started."""
        assert self._server is not None, "start the gate first"
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def take_refusals(self) -> tuple[str, ...]:
        """Why connections were refused since the last call, each reason once, in order; at most 20."""
        told = tuple(self._refusals)
        self._refusals.clear()
        return told

    async def start(self) -> None:
        """Listen on a free port of 127.0.0.1."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=_HEAD_LIMIT)

    async def close(self) -> None:
        """Stop listening and end every connection. May be called twice."""
        if self._server is not None:
            self._server.close()
            for connection in self._connections:
                connection.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)
            self._server = None

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            with contextlib.suppress(OSError, EOFError, ValueError, asyncio.LimitOverrunError, asyncio.CancelledError):
                await self._serve(reader, writer)
        finally:
            self._connections.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        method, target, host, port = _destination(head)
        folder = None if method == "CONNECT" else self._policy.site(host, port)
        if folder is not None:
            writer.write(response(folder, method, _path(target)))
            return await writer.drain()
        if host in _BROWSER_OWN:
            return await _answer(writer, 403, "Refused.")
        try:
            far_reader, far_writer = await self._connect(host, port)
        except RefusedAddress as refusal:
            if len(self._refusals) < _REMEMBERED:
                self._refusals[cut(str(refusal), 200)] = None
            return await _answer(writer, 403, f"Refused: {refusal}.")
        except (OSError, TimeoutError) as error:
            return await _answer(writer, 502, f"{host} cannot be reached: {type(error).__name__}.")
        try:
            if method == "CONNECT":
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                far_writer.write(_forwarded(head, target))
            await _pump_both(reader, writer, far_reader, far_writer)
        finally:
            far_writer.close()

    async def _connect(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        async with asyncio.timeout(_CONNECT_TIMEOUT_S):
            failure: OSError | None = None
            for address in await self._policy.resolve(host, port):
                try:
                    return await asyncio.open_connection(address, port)
                except OSError as error:
                    failure = error
            raise failure or OSError("no address")


def _destination(head: bytes) -> tuple[str, str, str, int]:
    """Method, target, host and port of a proxy request; ValueError when it is none."""
    method, target, _ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    if method == "CONNECT":
        authority, default = target, 443
    else:
        scheme, separator, rest = target.partition("://")
        if not separator or scheme.lower() not in ("http", "ws"):
            raise ValueError(target)
        authority, default = rest.partition("/")[0].partition("?")[0].rpartition("@")[2], 80
    if authority.endswith("]") or ":" not in authority:
        return method, target, authority, default
    host, _, port = authority.rpartition(":")
    return method, target, host, int(port)


def _forwarded(head: bytes, target: str) -> bytes:
    """The request as the server itself reads it: path instead of address, one request per connection.

    One request only, because the next one on the same connection could go to another host.
    """
    lines = head.decode("latin-1").split("\r\n")[:-2]
    method, _, version = lines[0].split(" ")
    upgrades = any(line.lower().startswith("upgrade:") for line in lines[1:])
    dropped = ("proxy-", "keep-alive:") if upgrades else ("proxy-", "keep-alive:", "connection:")
    kept = [line for line in lines[1:] if not line.lower().startswith(dropped)]
    closing = [] if upgrades else ["Connection: close"]
    return "\r\n".join([f"{method} {_path(target)} {version}", *kept, *closing, "", ""]).encode("latin-1")


def _path(target: str) -> str:
    """Path and query of a full address."""
    rest = target.partition("://")[2]
    path = rest[len(rest.partition("/")[0].partition("?")[0]) :]
    return path if path.startswith("/") else "/" + path


async def _pump_both(
    near_reader: asyncio.StreamReader,
    near_writer: asyncio.StreamWriter,
    far_reader: asyncio.StreamReader,
    far_writer: asyncio.StreamWriter,
) -> None:
    """Copy both ways until the far end is done; what the near end still sends then has no reader."""
    up = asyncio.create_task(_pump(near_reader, far_writer))
    try:
        await _pump(far_reader, near_writer)
    finally:
        up.cancel()
        await asyncio.gather(up, return_exceptions=True)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()
    with contextlib.suppress(OSError):
        if writer.can_write_eof():
            writer.write_eof()


async def _answer(writer: asyncio.StreamWriter, status: int, text: str) -> None:
    body = text.encode()
    reason = {403: "Forbidden", 502: "Bad Gateway"}[status]
    writer.write(
        f"HTTP/1.1 {status} {reason}\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
        + body
    )
    await writer.drain()
