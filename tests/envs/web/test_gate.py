import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from collab.envs.web.gate import HostGate, HostPolicy


@contextlib.asynccontextmanager
async def server(heard: list[bytes]) -> AsyncIterator[int]:
    """A server that remembers what it hears and answers each connection once."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
        await writer.drain()
        writer.close()

    running = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield running.sockets[0].getsockname()[1]
    finally:
        running.close()


def through(
    policy: HostPolicy, talk: Callable[[HostGate, Callable[[bytes], Awaitable[bytes]]], Awaitable[None]]
) -> None:
    async def main() -> None:
        gate = HostGate(policy)
        await gate.start()
        port = int(gate.address.rpartition(":")[2])

        async def ask(request: bytes) -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request)
            reply = await asyncio.wait_for(reader.read(), 5)
            writer.close()
            return reply

        try:
            await talk(gate, ask)
        finally:
            await gate.close()
            await gate.close()

    asyncio.run(main())


def test_a_request_is_passed_on_as_the_server_reads_it() -> None:
    heard: list[bytes] = []

    async def talk(gate: HostGate, ask: Callable[[bytes], Awaitable[bytes]]) -> None:
        async with server(heard) as port:
            head = f"GET http://127.0.0.1:{port}/a?b=c HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
            reply = await ask((head + "Proxy-Connection: keep-alive\r\nX-Mine: yes\r\n\r\n").encode())
            assert reply.endswith(b"hello")
            assert heard[0].startswith(b"GET /a?b=c HTTP/1.1\r\n")
            assert b"Proxy-Connection" not in heard[0]
            assert b"X-Mine: yes" in heard[0]
            assert gate.take_refusals() == ()

    through(HostPolicy(allow_private=True), talk)


def test_a_tunnel_carries_bytes_both_ways() -> None:
    heard: list[bytes] = []

    async def talk(gate: HostGate, ask: Callable[[bytes], Awaitable[bytes]]) -> None:
        async with server(heard) as port:
            reply = await ask(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\nGET /inside HTTP/1.1\r\n\r\n".encode())
            assert reply.startswith(b"HTTP/1.1 200")
            assert reply.endswith(b"hello")
            assert heard == [b"GET /inside HTTP/1.1\r\n\r\n"]

    through(HostPolicy(allow_private=True), talk)


def test_what_the_policy_refuses_is_never_contacted_and_told_once() -> None:
    heard: list[bytes] = []

    async def talk(gate: HostGate, ask: Callable[[bytes], Awaitable[bytes]]) -> None:
        async with server(heard) as port:
            for request in (f"GET http://127.0.0.1:{port}/ HTTP/1.1", f"CONNECT 127.0.0.1:{port} HTTP/1.1") * 2:
                assert b" 403 " in await ask(f"{request}\r\n\r\n".encode())
            assert gate.take_refusals() == ("127.0.0.1 is a private address",)
            assert gate.take_refusals() == ()
            assert heard == []

    through(HostPolicy(), talk)


def test_services_of_the_browser_itself_are_refused_silently() -> None:
    async def talk(gate: HostGate, ask: Callable[[bytes], Awaitable[bytes]]) -> None:
        assert b" 403 " in await ask(b"CONNECT content-autofill.googleapis.com:443 HTTP/1.1\r\n\r\n")
        assert gate.take_refusals() == ()

    through(HostPolicy(), talk)


def test_nonsense_ends_the_connection_and_nothing_else() -> None:
    async def talk(gate: HostGate, ask: Callable[[bytes], Awaitable[bytes]]) -> None:
        for request in (b"hello\r\n\r\n", b"GET /relative HTTP/1.1\r\n\r\n", b"CONNECT host:port HTTP/1.1\r\n\r\n"):
            assert await ask(request) == b""
        assert b" 502 " in await ask(b"GET http://127.0.0.1:1/ HTTP/1.1\r\n\r\n")

    through(HostPolicy(allow_private=True), talk)


def test_a_site_is_a_folder_and_nothing_around_it(tmp_path: Path) -> None:
    folder = tmp_path / "site"
    (folder / "sub").mkdir(parents=True)
    (folder / "index.html").write_text("<p>front")
    (folder / "sub" / "index.html").write_text("<p>below")
    (folder / "all.zip").write_bytes(b"PK")
    (tmp_path / "secret.txt").write_text("secret")
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")

    async def talk(gate: HostGate, ask: Callable[[bytes], Awaitable[bytes]]) -> None:
        async def get(path: str, method: str = "GET") -> bytes:
            return await ask(f"{method} http://site.test{path} HTTP/1.1\r\n\r\n".encode())

        assert (await get("/?q=1")).endswith(b"<p>front")
        assert (await get("/sub")).endswith(b"<p>below")
        assert b"attachment" in await get("/all.zip")
        assert (await get("/", "HEAD")).endswith(b"\r\n\r\n")
        assert b" 405 " in await get("/", "POST")
        for outside in ("/none.html", "/../secret.txt", "/%2e%2e/secret.txt", "/sub/../../secret.txt", "/link.txt"):
            reply = await get(outside)
            assert b" 404 " in reply
            assert b"secret" not in reply

    through(HostPolicy(sites={"site.test": folder}), talk)
