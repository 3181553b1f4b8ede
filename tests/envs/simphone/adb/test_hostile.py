"""Peers that mean harm: on other machines, with frames that break the rules, with paths that lead out of the phone."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from collab.envs.simphone.adb import sync
from collab.envs.simphone.adb.automator import PhoneHandle
from collab.envs.simphone.adb.server import PhoneServer, serve_phones
from collab.envs.simphone.apps import STANDARD
from collab.envs.simphone.content.messages import SMS_DATABASE
from collab.envs.simphone.core import FACTORY, add_noise
from collab.envs.simphone.shell import run
from collab.envs.simphone.ui.screen import look
from collab.seeds import generator

SERIAL = "emulator-5554"
LETTERS = "abc{}[]:,\"'\\/%?&=#\r\n\t\x00é🙂\x80 "


def service(name: str) -> bytes:
    data = name.encode("utf-8", "surrogatepass")
    return b"%04x" % len(data) + data


ENTER = service(f"host:transport:{SERIAL}")
AUTOMATION = ENTER + service("tcp:9008")


def number(order: bytes, count: int) -> bytes:
    return order + count.to_bytes(4, "little")


def ask(port: int, data: bytes) -> bytes:
    """Send and read until the server closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as peer:
        peer.sendall(data)
        peer.shutdown(socket.SHUT_WR)
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while chunk := peer.recv(65536):
                answer += chunk
        return answer


# ------------------------------------------------------------------------------------------------ other machines


class Stranger:
    """A stream writer whose peer is another machine; it remembers what it was sent."""

    def __init__(self, address: str) -> None:
        self.address, self.sent, self.closed = address, b"", False
        self.transport = self

    def get_extra_info(self, name: str) -> Any:
        return (self.address, 4242) if name == "peername" else None

    def write(self, data: bytes) -> None:
        self.sent += data

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    async def drain(self) -> None:
        pass

    async def wait_closed(self) -> None:
        pass


@pytest.mark.parametrize(
    ("address", "answer"),
    [("127.0.0.1", b"OKAY00040029"), ("10.0.0.7", b""), ("192.168.1.2", b""), ("2001:db8::1", b"")],
)
def test_a_peer_from_another_machine_is_not_answered(address: str, answer: bytes) -> None:
    async def scenario() -> Stranger:
        reader, writer = asyncio.StreamReader(), Stranger(address)
        reader.feed_data(service("host:version"))
        reader.feed_eof()
        await PhoneServer({SERIAL: PhoneHandle()})._accept(reader, writer)  # type: ignore[arg-type]
        return writer

    writer = asyncio.run(scenario())
    assert writer.closed
    assert writer.sent == answer


def own_address() -> str | None:
    """An address of this machine that is not the loopback's; None without a network. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return None
        address = str(probe.getsockname()[0])
    return None if address.startswith("127.") else address


@pytest.mark.skipif(own_address() is None, reason="this machine has no address but the loopback's")
def test_nobody_listens_on_the_machines_own_address() -> None:
    with serve_phones({SERIAL: PhoneHandle()}) as port, pytest.raises(OSError, match=r"refused|timed out|unreachable"):
        socket.create_connection((str(own_address()), port), timeout=2)


# ------------------------------------------------------------------------------------------------- message sizes


def test_a_file_that_is_too_large_is_refused_and_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sync, "MAX_FILE_BYTES", 100_000)
    handle = PhoneHandle()
    target = b"/sdcard/big,33206"
    chunk = number(b"DATA", 60_000) + bytes(60_000)
    with serve_phones({SERIAL: handle}) as port:
        answer = ask(port, ENTER + service("sync:") + number(b"SEND", len(target)) + target + chunk + chunk)
        assert b"file is too large" in answer
        assert ask(port, service("host:version")) == b"OKAY00040029"
    assert handle.phone == FACTORY


def test_a_body_longer_than_allowed_is_refused_before_it_is_sent() -> None:
    with serve_phones({SERIAL: PhoneHandle()}) as port:
        start = time.monotonic()
        head = f"POST /jsonrpc/0 HTTP/1.1\r\nContent-Length: {8 * 1024 * 1024 + 1}\r\n\r\n"
        assert b" 413 " in ask(port, AUTOMATION + head.encode())
        assert time.monotonic() - start < 5


# ---------------------------------------------------------------------------------------------------- HTTP frames


def junk(rng: random.Random, most: int) -> str:
    return "".join(rng.choice(LETTERS) for _ in range(rng.randrange(most)))


def request_line(rng: random.Random) -> str:
    method = rng.choice(["GET", "POST", "PUT", "post", "", "CONNECT", junk(rng, 5)])
    path = rng.choice(["/ping", "/jsonrpc/0", "/", "/jsonrpc/1", "/../../etc/passwd", "http://x/", "*", junk(rng, 40)])
    return f"{method} {path} {rng.choice(['HTTP/1.1', 'HTTP/1.0', 'HTTP/9', '', junk(rng, 8)])}"


def headers(rng: random.Random, size: int) -> str:
    length = rng.choice(
        [str(size), str(size + 7), "-1", "1e3", "٣", "0x10", "99999999", "", " 5 ", str(max(0, size - 3))]
    )
    lines = [f"Content-Length: {length}"] * rng.randrange(3)
    lines += [
        rng.choice(["Connection: close", "Transfer-Encoding: chunked", ": x", "x", f"{junk(rng, 9)}: {junk(rng, 20)}"])
    ]
    rng.shuffle(lines)
    return "".join(f"{line}\r\n" for line in lines)


def rpc(rng: random.Random) -> str:
    method = rng.choice(
        ["click", "objInfo", "setText", "swipe", "count", "dumpWindowHierarchy", "pressKey", "getText", 7]
    )
    selector = rng.choice(
        [{}, {"text": None}, {"textMatches": "(" * 40}, {"mask": 2**70}, {"childOrSibling": "child"}, 3]
    )
    params = rng.choice([None, [selector], [selector, junk(rng, 9)], {"a": selector}, [1e308, -1, None, []], "x"])
    text = json.dumps({"jsonrpc": "2.0", "id": rng.choice([1, None, [], "x"]), "method": method, "params": params})
    return rng.choice([text, text[: len(text) // 2], junk(rng, 60), "[" * 5000, "{" + text, "NaN", '"\\ud800"', ""])


def malformed_http(rng: random.Random) -> bytes:
    """One to three HTTP requests that are wrong somewhere, cut off anywhere."""
    frames = []
    for _ in range(rng.randrange(1, 4)):
        body = rpc(rng).encode("utf-8", "surrogatepass")
        end = rng.choice(["\r\n", "\n", "", "\r\n\r\n"])
        head = f"{request_line(rng)}\r\n{headers(rng, len(body))}{end}".encode("utf-8", "surrogatepass")
        frames.append(head + body)
    data = b"".join(frames)
    return data if rng.random() < 0.6 else data[: rng.randrange(len(data) + 1)]


async def send_all(port: int, frames: list[bytes]) -> None:
    """Each on a connection of its own, fifty at a time; half of the peers hang up without reading."""
    gate = asyncio.Semaphore(50)

    async def send(place: int, frame: bytes) -> None:
        async with gate:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            with contextlib.suppress(ConnectionError):
                writer.write(AUTOMATION + frame)
                await writer.drain()
                writer.write_eof()
                if place % 2:
                    await asyncio.wait_for(reader.read(), 20)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    await asyncio.gather(*(send(place, frame) for place, frame in enumerate(frames)))


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files are counted in /proc")
@pytest.mark.parametrize("count", [500, pytest.param(10_000, marks=pytest.mark.slow)])
def test_malformed_http_neither_breaks_the_server_nor_leaks_handles(
    count: int, caplog: pytest.LogCaptureFixture, soon: Callable[[Callable[[], bool]], bool]
) -> None:
    rng = random.Random(count)
    handle = PhoneHandle()
    with serve_phones({SERIAL: handle}) as port:
        asyncio.run(send_all(port, [malformed_http(rng) for _ in range(50)]))
        before = len(os.listdir("/proc/self/fd"))
        asyncio.run(send_all(port, [malformed_http(rng) for _ in range(count)]))
        assert soon(lambda: len(os.listdir("/proc/self/fd")) <= before)
        assert ask(port, AUTOMATION + b"GET /ping HTTP/1.1\r\n\r\n").endswith(b"\r\n\r\npong")
    look(handle.phone)
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


# ------------------------------------------------------------------------------------------ paths out of the phone


class Watch:
    """Names of host files, folders and programs that Python was asked for while it is on."""

    def __init__(self) -> None:
        self.on, self.seen = False, list[tuple[str, Any]]()
        sys.addaudithook(self._hear)  # hooks stay for good: this one is made once

    def _hear(self, event: str, args: tuple[Any, ...]) -> None:
        files = event in ("open", "sqlite3.connect")
        if self.on and (files or event.startswith(("os.", "shutil.", "subprocess.", "socket.", "glob."))):
            self.seen.append((event, args))

    @contextlib.contextmanager
    def watching(self) -> Iterator[list[tuple[str, Any]]]:
        self.seen.clear()
        self.on = True
        try:
            yield self.seen
        finally:
            self.on = False


WATCH = Watch()


def commands(secret: Path) -> list[str]:
    """Every way we know to ask a shell for a file."""
    up = "../" * 12
    link = f"ln -s {secret} /sdcard/link; cat /sdcard/link; ls -l /sdcard/link"
    return [
        f"cat {secret}",
        f"cat {up}{str(secret)[1:]}",
        f"cat /sdcard/{up}{str(secret)[1:]}",
        f"cat < {secret}",
        f"echo $(<{secret})",
        f"cat {secret.parent}/*",
        f"ls -la {secret.parent}; find {secret.parent}; stat {secret}; wc {secret}; head {secret}; tail {secret}",
        f"grep -r secret {secret.parent}; md5sum {secret}; base64 {secret}; tar cf - {secret}",
        f"cp {secret} /sdcard/copy; cat /sdcard/copy",
        f"mv {secret} /sdcard/moved; cat /sdcard/moved",
        link,
        f"ln {secret} /sdcard/hard; cat /sdcard/hard",
        f"cd {secret.parent} && cat {secret.name}",
        f"echo gone > {secret}; echo more >> {secret}; truncate -s 0 {secret}; rm -rf {secret.parent}; touch {secret}",
        f"mkdir -p {secret.parent}/deeper; tee {secret} < /dev/null; chmod 777 {secret}; dd if={secret} of=/sdcard/x",
        f"sqlite3 {secret} .dump; sqlite3 /sdcard/new.db \"ATTACH '{secret}' AS x\"",
        f"sqlite3 {secret} 'CREATE TABLE t (x)'",
        f"content read --uri file://{secret}; am start -d file://{secret}; run-as x cat {secret}",
        f"sh -c 'cat {secret}'; eval cat {secret}; exec cat {secret}; . {secret}; source {secret}",
        f"screencap -p {secret}; uiautomator dump {secret}; logcat -f {secret}; screenrecord {secret}",
        f"cat /proc/self/environ /proc/self/cwd/{secret.name} /proc/1/root{secret}; ls ~; echo $HOME $PATH",
        "python3 -c 'print(1)'; /bin/sh -c id; curl http://127.0.0.1/; nc 127.0.0.1 22; su -c id; ps -A",
    ]


def test_no_command_reaches_the_host(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("the host's own secret")
    phone = add_noise(generator(5))
    run(phone, "ls -la /sdcard; date; ps; screencap -p /sdcard/x.png; uiautomator dump")  # what Python loads once
    run(phone, f"sqlite3 {SMS_DATABASE} .dump")
    for command in commands(secret):
        with WATCH.watching() as seen:
            result = run(phone, command)
            asked = [one for one in seen if one != ("sqlite3.connect", (":memory:",))]
        assert asked == [], command
        assert "own secret" not in result.output, command
    assert secret.read_text() == "the host's own secret"
    assert sorted(tmp_path.iterdir()) == [secret]


def test_no_push_pull_or_listing_reaches_the_host(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("the host's own secret")
    handle = PhoneHandle(run(FACTORY, f"ln -s {secret} /sdcard/link; ln -s / /sdcard/root").phone)
    paths = [
        *(str(secret), f"/sdcard/../../../..{secret}", f"//{secret}", "/sdcard/link", f"/sdcard/root{secret}"),
        *("/etc/passwd", "/proc/self/environ", "/dev/kmsg", f"/data/local/tmp/{'../' * 9}{str(secret)[1:]}"),
        f"/sdcard/{secret}\x00.txt",
    ]
    with serve_phones({SERIAL: handle}) as port:
        for path in paths:
            data = path.encode()
            answers = b""
            for order in (b"RECV", b"LIST", b"STAT", b"STA2", b"LST2", b"LIS2"):
                answers += ask(port, ENTER + service("sync:") + number(order, len(data)) + data)
            target = data + b",33206"
            push = number(b"SEND", len(target)) + target + number(b"DATA", 4) + b"evil" + number(b"DONE", 0)
            answers += ask(port, ENTER + service("sync:") + push)
            assert b"own secret" not in answers, path
            assert b"root:" not in answers, path
    assert secret.read_text() == "the host's own secret"
    assert sorted(tmp_path.iterdir()) == [secret]


# ------------------------------------------------------------------------------------------------ broken databases


@pytest.mark.parametrize("path", sorted(STANDARD.tables))
@pytest.mark.parametrize("kind", ["garbage", "nothing", "cut", "without tables", "other columns"])
def test_whatever_is_pushed_over_a_database_the_phone_continues(path: str, kind: str) -> None:
    handle = PhoneHandle(add_noise(generator(7)))
    with serve_phones({SERIAL: handle}) as port:
        pulled = ask(port, ENTER + service("sync:") + number(b"RECV", len(path)) + path.encode())
        whole = run(handle.phone, f"cat {path}").output_bytes
        assert whole[:15] == b"SQLite format 3"
        assert whole[:1000] in pulled
        data = {
            "garbage": random.Random(3).randbytes(9000),
            "nothing": b"",
            "cut": whole[: len(whole) // 2],
            "without tables": made("CREATE TABLE other (x)"),
            "other columns": made(
                *(
                    f'CREATE TABLE "{table.name}" (x); INSERT INTO "{table.name}" VALUES (1)'
                    for table in STANDARD.tables[path]
                )
            ),
        }[kind]
        target = f"{path},33206".encode()
        chunks = b"".join(
            number(b"DATA", len(part)) + part for part in (data[i : i + 60_000] for i in range(0, len(data), 60_000))
        )
        answer = ask(
            port, ENTER + service("sync:") + number(b"SEND", len(target)) + target + chunks + number(b"DONE", 0)
        )
        assert answer.endswith(b"OKAY" + bytes(4))
    for app in STANDARD.all[1:]:
        phone = run(handle.phone, f"monkey -p {app.package} 1").phone
        assert phone.foreground == app.package
        look(phone)
    assert run(handle.phone, f"sqlite3 {path} 'PRAGMA integrity_check'").stdout == "ok\n"
    for table in STANDARD.tables[path]:
        count = run(handle.phone, f"sqlite3 {path} 'SELECT count(*) FROM \"{table.name}\"'").stdout
        assert count.strip().isdecimal()
        if kind != "cut":
            assert count == f"{len(table.initial)}\n"


def made(*scripts: str) -> bytes:
    """A database from statements."""
    import sqlite3

    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        for script in scripts:
            connection.executescript(script)
        connection.commit()
        return connection.serialize()
