"""The server's own rules: bounds, refusals, and what it survives."""

import asyncio
import contextlib
import json
import os
import random
import socket
import struct
import time
from dataclasses import replace

import pytest

from collab.envs.simphone.adb.automator import PhoneHandle
from collab.envs.simphone.adb.server import MAX_CONNECTIONS, PhoneServer, is_loopback, serve_phones
from collab.envs.simphone.core import FACTORY
from collab.envs.simphone.shell import run
from collab.envs.simphone.ui.screen import look
from collab.errors import UsageError

SERIAL = "emulator-5554"


def service(name):
    data = name.encode()
    return b"%04x" % len(data) + data


ENTER = service(f"host:transport:{SERIAL}")


def ask(port, *parts, timeout=5.0):
    """Send and read until the server closes or falls silent."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout) as peer:
        for part in parts:
            peer.sendall(part)
        peer.shutdown(socket.SHUT_WR)
        answer = b""
        with contextlib.suppress(ConnectionResetError):  # closed before all was read
            while chunk := peer.recv(65536):
                answer += chunk
        return answer


@pytest.fixture
def served():
    handle = PhoneHandle()
    with serve_phones({SERIAL: handle}) as port:
        yield port, handle


# -------------------------------------------------------------------------------------------------- the protocols


def test_host_services(served):
    port, _ = served
    assert ask(port, service("host:version")) == b"OKAY00040029"
    assert ask(port, service("host:devices")) == b"OKAY0015emulator-5554\tdevice\n"
    assert ask(port, service("host:track-devices")) == b"OKAY0015emulator-5554\tdevice\n"
    assert ask(port, service(f"host:tport:serial:{SERIAL}"))[:12] == b"OKAY" + struct.pack("<Q", 1)
    assert ask(port, service(f"host-serial:{SERIAL}:wait-for-any-device")) == b"OKAYOKAY"
    assert b"shell_v2" in ask(port, service("host:features"))
    assert ask(port, service("host:kill")).startswith(b"FAIL")
    assert ask(port, service("host:nonsense")).startswith(b"FAIL")
    assert ask(port, service("host:transport:other")).startswith(b"FAIL")
    assert ask(port, service("host:connect:10.0.0.1:5555")).startswith(b"OKAY")


def test_device_services(served):
    port, _ = served
    assert ask(port, ENTER, service("shell:echo hi; nosuch")).startswith(b"OKAYOKAYhi\n/system/bin/sh: nosuch")
    packets = ask(port, ENTER, service("shell,v2:nosuch"))
    assert packets.endswith(struct.pack("<BIB", 3, 1, 127))
    assert ask(port, ENTER, service("emu:sms send +15550001 Hi there")) == b"OKAYOKAYOK\n"
    assert b"body=Hi there" in ask(port, ENTER, service("shell:content query --uri content://sms/inbox"))
    assert ask(port, ENTER, service("reboot:")).startswith(b"OKAYFAIL")
    assert ask(port, ENTER, service("tcp:22")).startswith(b"OKAYFAIL")


def test_the_first_version_of_sync_lists_and_sends(served):
    port, handle = served
    push = b"SEND" + struct.pack("<I", 20) + b"/sdcard/x.txt,33206 "[:19] + b"0"
    data = b"DATA" + struct.pack("<I", 5) + b"hello" + b"DONE" + struct.pack("<I", 0)
    assert b"OKAY" in ask(port, ENTER, service("sync:"), push, data)[8:]
    recv = b"RECV" + struct.pack("<I", 13) + b"/sdcard/x.txt"
    assert ask(port, ENTER, service("sync:"), recv)[8:] == b"DATA" + struct.pack("<I", 5) + b"hello" + b"DONE" + bytes(
        4
    )
    listing = ask(port, ENTER, service("sync:"), b"LIST" + struct.pack("<I", 7) + b"/sdcard")
    assert b"x.txt" in listing
    assert listing.endswith(b"DONE" + bytes(16))
    gone = ask(port, ENTER, service("sync:"), b"STAT" + struct.pack("<I", 5) + b"/nope")
    assert gone[8:] == b"STAT" + bytes(12)
    assert f"{handle.phone.files['/storage/emulated/0/x.txt'].content}" == "hello"


def http(method="POST", path="/jsonrpc/0", body=b"", headers=""):
    head = f"{method} {path} HTTP/1.1\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
    return head.encode() + body


def rpc(port, method, *params):
    body = json.dumps({"jsonrpc": "2.0", "id": 7, "method": method, "params": list(params)}).encode()
    answer = ask(port, ENTER, service("tcp:9008"), http(body=body))
    return json.loads(answer.partition(b"\r\n\r\n")[2])


def test_http_and_json_rpc(served):
    port, _ = served
    assert ask(port, ENTER, service("tcp:9008"), http("GET", "/ping")).endswith(b"\r\n\r\npong")
    assert b" 404 " in ask(port, ENTER, service("tcp:9008"), http("GET", "/etc/passwd"))
    twice = ask(port, ENTER, service("tcp:9008"), http("GET", "/ping") * 2)
    assert twice.count(b"pong") == 2
    assert rpc(port, "deviceInfo")["result"]["displayWidth"] == 1080
    assert rpc(port, "noSuchMethod")["error"]["code"] == -32601
    assert rpc(port, "click")["error"]["code"] == -32602
    assert rpc(port, "objInfo", {"text": "nowhere"})["error"]["message"].startswith(
        "androidx.test.uiautomator.UiObject"
    )
    assert rpc(port, "count", {"textMatches": "("})["error"]["code"] == -32602
    assert rpc(port, "count", {"textMatches": "(a+)+"})["error"]["code"] == -32602
    for wrong in (
        [None],
        ["x"],
        [float("inf")],
        [{"text": "Phone"}, True, float("inf")],
        [{}] * 9,
        [[], []],
        [True] * 5,
    ):
        assert rpc(port, "scrollToEnd", *wrong).keys() & {"result", "error"}
        assert rpc(port, "swipe", *wrong).keys() & {"result", "error"}
    assert rpc(port, "setClipboard", None, "\ud800x")["result"] is None
    assert rpc(port, "getClipboard")["result"] == "\ufffdx"


def test_waiting_for_something_that_appears_later(served):
    port, handle = served
    start = time.monotonic()
    assert rpc(port, "waitForExists", {"text": "Network & internet"}, 200)["result"] is False
    assert time.monotonic() - start >= 0.2
    handle.put(run(handle.phone, "monkey -p com.android.settings 1").phone)
    assert rpc(port, "waitForExists", {"text": "Network & internet"}, 5000)["result"] is True
    assert rpc(port, "waitUntilGone", {"text": "Nothing like it"}, 5000)["result"] is True


# --------------------------------------------------------------------------------------------------------- bounds


@pytest.mark.parametrize(
    "frame",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"zzzz",
        b"00",
        ENTER + service("sync:") + b"STAT" + struct.pack("<I", 2_000_000_000),
        ENTER + service("sync:") + b"SEND" + struct.pack("<I", 4) + b"nope",
        ENTER + service("sync:") + b"SEND" + struct.pack("<I", 4) + b"/x,7" + b"DATA" + struct.pack("<I", 2**31),
        ENTER + service("sync:") + b"EVIL" + bytes(4),
        ENTER + service("shell,v2,raw:") + struct.pack("<BI", 0, 2**31),
        ENTER + service("tcp:9008") + b"\x00\xff\r\n\r\n",
        ENTER + service("tcp:9008") + b"POST / HTTP/1.1\r\nX: " + b"x" * 100_000,
        ENTER + service("tcp:9008") + b"POST /jsonrpc/0 HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n",
        ENTER + service("tcp:9008") + b"POST /jsonrpc/0 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
)
def test_a_frame_that_breaks_the_rules_ends_its_connection_only(served, frame):
    port, _ = served
    ask(port, frame)
    assert ask(port, service("host:version")) == b"OKAY00040029"


@pytest.mark.slow
def test_too_many_connections_are_refused_and_the_rest_served(soon):
    with serve_phones({SERIAL: PhoneHandle()}) as port:
        idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(MAX_CONNECTIONS)]
        try:
            assert soon(lambda: ask(port, service("host:version")) == b"")
        finally:
            for one in idle:
                one.close()
        assert soon(lambda: ask(port, service("host:version")) == b"OKAY00040029")


@pytest.mark.parametrize(
    ("peer", "welcome"),
    [
        (("127.0.0.1", 1), True),
        (("127.9.9.9", 1), True),
        (("::1", 1, 0, 0), True),
        (("10.0.0.5", 1), False),
        (None, False),
    ],
)
def test_only_this_machine_is_a_peer(peer, welcome):
    assert is_loopback(peer) is welcome


def test_it_listens_on_the_loopback_interface_only():
    async def where():
        async with PhoneServer({SERIAL: PhoneHandle()}) as server:
            return [one.getsockname()[0] for one in server._server.sockets]

    assert asyncio.run(where()) == ["127.0.0.1"]


def test_a_port_that_is_taken_and_a_bad_serial_are_users_mistakes(served):
    port, _ = served
    with pytest.raises(UsageError, match=f"port {port}"), serve_phones({SERIAL: PhoneHandle()}, port=port):
        pass
    with pytest.raises(UsageError, match="serial 'a b'"):
        PhoneServer({"a b": PhoneHandle()})


def test_closing_ends_open_connections():
    handle = PhoneHandle()
    with serve_phones({SERIAL: handle}) as port:
        peer = socket.create_connection(("127.0.0.1", port), timeout=5)
        peer.sendall(service("host:track-devices"))
        assert peer.recv(4) == b"OKAY"
    while peer.recv(4096):
        pass
    peer.close()


def test_a_peer_that_does_not_read_does_not_hold_the_server():
    with serve_phones({SERIAL: PhoneHandle()}) as port:
        peer = socket.create_connection(("127.0.0.1", port), timeout=5)
        peer.sendall(
            ENTER + service("exec:x=aaaaaaaa; for i in 1 2 3 4 5 6 7 8; do x=$x$x$x$x; done; echo $x$x$x$x$x$x")
        )
        assert peer.recv(4) == b"OKAY"
        time.sleep(0.3)
        start = time.monotonic()
    assert time.monotonic() - start < 8
    peer.close()


def test_an_app_that_cannot_show_itself_is_closed_as_android_does():
    handle = PhoneHandle(run(FACTORY, "monkey -p com.android.settings 1").phone)
    page = replace(handle.phone.page, data={"page": "nowhere"})
    stacks = {**handle.phone.stacks, "com.android.settings": (page,)}
    handle.put(replace(handle.phone, stacks=stacks))
    assert handle.phone.foreground.endswith("nexuslauncher")
    assert handle.phone.notice == "com.android.settings keeps stopping"


# ----------------------------------------------------------------------------------------------------------- fuzz


def malformed(rng):
    """A frame that is wrong somewhere: at the host, in a transport, in sync, in a shell, in HTTP or JSON."""
    junk = rng.randbytes(rng.randrange(1, 80))
    words = rng.choice(["host:", "host:transport:", "host-serial:", f"host-serial:{SERIAL}:", "sync:", "shell:", ""])
    name = words + "".join(chr(rng.randrange(32, 400)) for _ in range(rng.randrange(30)))
    number = struct.pack("<I", rng.choice([0, 1, 5, 70_000, 2**31, 2**32 - 1]))
    order = rng.choice([b"STAT", b"LIST", b"RECV", b"SEND", b"STA2", b"LIS2", b"DATA", b"DONE", junk[:4]])
    body = json.dumps(
        {
            "method": rng.choice(
                ["click", "objInfo", "setText", "swipe", "count", "dumpWindowHierarchy", "pressKey", "x"]
            ),
            "params": rng.choice(
                [None, [], [1], [None, "x"], {"a": 1}, [{"text": 1}], [{"childOrSibling": ["child"]}], ["{"]]
            ),
        }
    ).encode()
    tail = rng.choice([body, junk, body[: len(body) // 2], b"[" * 3000])
    return rng.choice(
        [
            junk,
            b"%04x" % rng.randrange(65536) + junk,
            service(name),
            service(name)[: rng.randrange(1, 8)],
            ENTER + junk,
            ENTER + service(rng.choice(["shell,v2:", "shell,v2,pty:", "exec:"])) + junk,
            ENTER + service("shell:" + name),
            ENTER + service("sync:") + order + number + junk,
            ENTER + service("sync:") + order + struct.pack("<I", len(junk)) + junk + order + number,
            ENTER + service("tcp:9008") + junk,
            ENTER + service("tcp:9008") + http(body=tail),
            ENTER + service("tcp:9008") + http(body=tail, headers=f"X: {name}\r\n")[: rng.randrange(20, 120)],
        ]
    )


async def send_all(port, frames):
    """Each frame on a connection of its own, fifty at a time; half of the peers hang up without reading."""
    gate = asyncio.Semaphore(50)

    async def send(number, frame):
        async with gate:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(frame)
                await writer.drain()
                writer.write_eof()
                if number % 2:
                    await asyncio.wait_for(reader.read(), 20)
            except ConnectionError:
                pass
            finally:
                writer.close()
                with contextlib.suppress(ConnectionError):
                    await writer.wait_closed()

    await asyncio.gather(*(send(number, frame) for number, frame in enumerate(frames)))


@pytest.mark.parametrize("count", [500, pytest.param(10_000, marks=pytest.mark.slow)])
def test_malformed_frames_neither_break_the_server_nor_leak_handles(count, caplog, soon):
    rng = random.Random(count)
    handle = PhoneHandle()
    with serve_phones({SERIAL: handle}) as port:
        asyncio.run(send_all(port, [malformed(rng) for _ in range(50)]))
        before = len(os.listdir("/proc/self/fd"))
        asyncio.run(send_all(port, [malformed(rng) for _ in range(count)]))
        assert soon(lambda: len(os.listdir("/proc/self/fd")) <= before)
        assert ask(port, service("host:version")) == b"OKAY00040029"
        assert ask(port, ENTER, service("shell:echo alive")) == b"OKAYOKAYalive\n"
    look(handle.phone)
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
