"""An adb server on the loopback interface whose devices are SimPhones.

    server = PhoneServer({"emulator-5554": PhoneHandle(phone)})
    port = await server.start()          # ANDROID_ADB_SERVER_PORT=<port> adb -s emulator-5554 shell
    await server.close()

It binds 127.0.0.1 only and refuses any peer that is not on this machine. A peer that does not speak the protocol is
disconnected; no client can make the server run a program, open a file or stop.

A phone server in a thread of its own, for programs and tests that are not asynchronous.

with serving({"emulator-5554": PhoneHandle()}) as port:
    ...

Shell services of a transport: one command, or a terminal that runs line after line.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import logging
import re
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType

from collab.envs.simphone.adb import sync
from collab.envs.simphone.adb.automator import PhoneHandle
from collab.envs.simphone.adb.http import examine, serve_http
from collab.envs.simphone.adb.sync import HELPER, ProtocolError, fail, pack_okay, pack_text, serve_sync
from collab.envs.simphone.shell import ShellResult, console, run, tree
from collab.errors import UsageError

PROMPT = "simphone:/ # "
MAX_LINE = 64 * 1024
_DIGEST = re.compile(rf"(?:toybox )?md5(?:sum)? {HELPER}")
_SERVER = re.compile(r"(?:CLASSPATH=\S+ )?app_process / com\.wetest\.uia2\.Main\b")


def answer(handle: PhoneHandle, command: str) -> ShellResult:
    """Run a command on the shared phone."""
    if _DIGEST.fullmatch(command.strip()) and handle.helper is not None:
        text = f"{handle.helper[0]}  {HELPER}\n"
        return ShellResult(phone=handle.phone, stdout=text, stderr="", exit_code=0, output=text)
    result = run(handle.phone, command)
    handle.put(result.phone)
    return result


async def serve_plain(
    handle: PhoneHandle, command: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Serve `shell:` and `exec:`: both streams of output as they are, then the end."""
    if _SERVER.match(command):  # the automation program, whose work this server does: runs until it is killed
        await reader.read(1)
        return
    if command:
        writer.write(answer(handle, command).output_bytes)
        await writer.drain()
        return
    await _run_terminal(handle, _Raw(reader, writer))


async def serve_packets(
    handle: PhoneHandle, command: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, echo: bool
) -> None:
    """Serve `shell,v2:`: output and errors apart, and an exit code.

    Args:
        echo: whether the peer's terminal leaves echoing to us.
    """
    code = 0
    if command:
        result = answer(handle, command)
        writer.write(_build_packets(sync.STDOUT, tree.encode(result.stdout)))
        writer.write(_build_packets(sync.STDERR, tree.encode(result.stderr)))
        code = result.exit_code
    else:
        code = await _run_terminal(handle, _Packets(reader, writer, echo=echo))
    writer.write(sync.pack_shell(sync.EXIT, bytes([code])))
    await writer.drain()


def _build_packets(stream: int, data: bytes) -> bytes:
    step = 32 * 1024
    return b"".join(sync.pack_shell(stream, data[start : start + step]) for start in range(0, len(data), step))


class _Raw:
    """A terminal on a plain stream."""

    echo = True

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def read(self) -> bytes:
        """Return what was typed; empty at the end."""
        return await self._reader.read(4096)

    def write(self, data: bytes) -> None:
        """Show something."""
        self._writer.write(data)


class _Packets:
    """A terminal in packets."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, echo: bool) -> None:
        self._reader, self._writer, self.echo = reader, writer, echo

    async def read(self) -> bytes:
        """Return what was typed; empty at the end."""
        while True:
            stream, data = await sync.read_shell_packet(self._reader)
            if stream == sync.CLOSE_STDIN:
                return b""
            if stream == sync.STDIN and data:
                return data

    def write(self, data: bytes) -> None:
        """Show something."""
        self._writer.write(_build_packets(sync.STDOUT, data))


async def _run_terminal(handle: PhoneHandle, peer: _Raw | _Packets) -> int:
    """Run line after line until `exit` or the end of input; returns the last exit code."""
    line, code = b"", 0
    _show(peer, PROMPT.encode() if peer.echo else b"")
    while data := await peer.read():
        # Letter by letter: a packet may hold half a line or several.
        for letter in (data[place : place + 1] for place in range(len(data))):
            # Ctrl-D ends the shell on an empty line alone, as in every shell.
            if letter == b"\x04" and not line:
                return code
            if letter in (b"\x7f", b"\x08"):
                _show(peer, b"\b \b" if line and peer.echo else b"")
                line = line[:-1]
            elif letter == b"\x03":
                line = b""
                _show(peer, b"^C\r\n" + PROMPT.encode())
            elif letter not in (b"\r", b"\n"):
                # Bounded: a client that never ends its line must not fill memory.
                if len(line) >= MAX_LINE:
                    raise sync.ProtocolError("line is too long")
                line += letter
                _show(peer, letter if peer.echo else b"")
            else:
                command, line = line.decode("utf-8", "replace").strip(), b""
                # `exit` is the terminal's: run as a command it would only end its own subshell.
                if re.fullmatch(r"exit(\s+\d+)?", command):
                    return int(command[4:] or code) & 255
                code = _run_line(handle, peer, command, code)
    # Input may end without a line break; the last line is run all the same.
    if line.strip():
        code = _run_line(handle, peer, line.decode("utf-8", "replace"), code)
    return code


def _show(peer: _Raw | _Packets, data: bytes) -> None:
    if data:
        peer.write(data)


def _run_line(handle: PhoneHandle, peer: _Raw | _Packets, command: str, code: int) -> int:
    output = b""
    if command:
        result = answer(handle, command)
        output, code = result.output_bytes, result.exit_code
    if peer.echo:
        output = b"\r\n" + output.replace(b"\n", b"\r\n") + PROMPT.encode()
    _show(peer, output)
    return code


logger = logging.getLogger(__name__)

HOST = "127.0.0.1"
VERSION = 41
"""Version of adb's host protocol, 1.0.41."""
FEATURES = "shell_v2,cmd,stat_v2,ls_v2,fixed_push_mkdir,apex"
AUTOMATION_PORT = 9008
"""Where uiautomator2's program listens on a phone."""
MAX_CONNECTIONS = 256
BEGIN_S = 30.0
"""A peer that has not named a service after this many seconds is disconnected."""
LINGER_S = 5.0
"""How long a peer may take to read the rest after the end."""
_GONE = (ConnectionError, asyncio.IncompleteReadError, TimeoutError)


class PhoneServer:
    """Serves phones to adb clients.

    Args:
        phones: serial number → phone; as adb shows them, e.g. "emulator-5554".
        port: 0 for a free one.
    """

    def __init__(self, phones: Mapping[str, PhoneHandle], *, port: int = 0) -> None:
        bad = [serial for serial in phones if not serial or not serial.isprintable() or set(serial) & set(" \t:;")]
        if bad:
            raise UsageError(f"phone server: serial {bad[0]!r}, allowed: letters, digits, '-', '.'")
        self.phones = dict(phones)
        self.port = port
        """Set by `start` when it was 0."""
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> int:
        """Listen and return the port.

        Raises:
            UsageError: the port is taken.
        """
        try:
            self._server = await asyncio.start_server(self._accept, HOST, self.port)
        except OSError as problem:
            raise UsageError(f"phone server: port {self.port} on {HOST}: {problem.strerror or problem}") from None
        self.port = self._server.sockets[0].getsockname()[1]
        logger.info("serving %d phones on %s:%d", len(self.phones), HOST, self.port)
        return self.port

    async def close(self) -> None:
        """Stop listening and end all connections. May be called twice."""
        if self._server is None:
            return
        self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._server = None

    async def __aenter__(self) -> PhoneServer:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # ----------------------------------------------------------------------------------------------- connections

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            if len(self._tasks) < MAX_CONNECTIONS and is_loopback(writer.get_extra_info("peername")):
                self._tasks.add(task)
                await _Connection(self.phones, reader, writer).serve()
        except _GONE:
            pass
        except asyncio.CancelledError:  # the server closes; the task ends here, so nothing is swallowed
            pass
        except ProtocolError as problem:
            logger.debug("disconnected: %s", problem)
        finally:
            writer.close()
            with contextlib.suppress(OSError, TimeoutError, asyncio.CancelledError):
                await asyncio.wait_for(writer.wait_closed(), LINGER_S)
            writer.transport.abort()  # for a peer that does not read what is still to be sent
            self._tasks.discard(task)


def is_loopback(peer: object) -> bool:
    """Return whether a socket's peer name is on this machine."""
    return isinstance(peer, tuple) and ipaddress.ip_address(str(peer[0]).partition("%")[0]).is_loopback


class _Connection:
    """One connection to the server: services of the host, until one hands it over to a phone."""

    def __init__(
        self, phones: Mapping[str, PhoneHandle], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._phones = phones
        self._reader, self._writer = reader, writer

    async def serve(self) -> None:
        """Serve one host service, and one service of the phone that it hands the connection to."""
        service = await self._read_service()
        handle = None if service is None else await self._answer_host(service)
        await self._writer.drain()
        inner = None if handle is None else await self._read_service()
        if handle is not None and inner is not None:
            await self._answer_device(handle, inner)
            await self._writer.drain()

    async def _read_service(self) -> str | None:
        return await asyncio.wait_for(sync.read_service(self._reader), BEGIN_S)

    # ------------------------------------------------------------------------------------------------------ host

    async def _answer_host(self, service: str) -> PhoneHandle | None:
        """Answer a host service; the phone when the connection is its from now on."""
        write = self._writer.write
        simple: dict[str, Callable[[], bytes]] = {
            "host:version": lambda: pack_okay(f"{VERSION:04x}"),
            "host:devices": lambda: pack_okay(self._list_phones()),
            "host:devices-l": lambda: pack_okay(self._list_phones(long=True)),
            "host:host-features": lambda: pack_okay(FEATURES),
            "host:list-forward": lambda: pack_okay(""),
            "host:kill": lambda: fail("this server is SimPhone's: stop it where it was started"),
        }
        if service in simple:
            write(simple[service]())
        elif service in ("host:track-devices", "host:track-devices-l"):
            write(pack_okay(self._list_phones(long=service.endswith("-l"))))
            await self._writer.drain()
            await self._reader.read(1)  # the list never changes: wait until the peer goes
        elif service.startswith(("host:connect:", "host:disconnect:")):
            write(pack_okay(f"failed to connect to {service.split(':', 2)[2]}: this server has only its own phones"))
        else:
            return await self._choose_phone(service)
        return None

    async def _choose_phone(self, service: str) -> PhoneHandle | None:
        """Answer a service that names a phone: a transport to it, or a question about it."""
        prefix, serial, rest = _split(service, self._phones)
        if prefix is None:
            self._writer.write(fail(f"unknown host service '{service[:80]}'"))
            return None
        # Without a serial there must be one phone only, or the request could reach the wrong one.
        serials = [serial] if serial else list(self._phones)
        if serial not in ("", *self._phones) or len(serials) != 1:
            found = "no devices/emulators found" if not self._phones else "more than one device/emulator"
            self._writer.write(fail(f"device '{serial}' not found" if serial else found))
            return None
        handle = self._phones[serials[0]]
        if prefix == "tport":
            self._writer.write(b"OKAY" + struct.pack("<Q", 1 + list(self._phones).index(serials[0])))
            return handle
        if prefix == "transport":
            self._writer.write(b"OKAY")
            return handle
        self._writer.write(self._describe_phone(serials[0], rest))
        return None

    def _describe_phone(self, serial: str, question: str) -> bytes:
        if question.startswith("wait-for-"):
            gone = question.endswith(("-disconnect", "-recovery", "-bootloader", "-sideload", "-rescue"))
            return fail("this phone is always online") if gone else b"OKAYOKAY"
        if question == "list-forward":
            return pack_okay("")
        if question.startswith(("forward:", "killforward", "reverse:")):
            return fail("ports are not forwarded: connect through the transport")
        answers = {"get-state": "device", "get-serialno": serial, "get-devpath": f"simphone:{serial}"}
        answers["features"] = FEATURES
        return pack_okay(answers[question]) if question in answers else fail(f"unknown service '{question[:80]}'")

    def _list_phones(self, *, long: bool = False) -> str:
        if not long:
            return "".join(f"{serial}\tdevice\n" for serial in self._phones)
        return "".join(
            f"{serial:<22} device product:simphone model:SimPhone device:simphone transport_id:{place}\n"
            for place, serial in enumerate(self._phones, 1)
        )

    # ---------------------------------------------------------------------------------------------------- device

    async def _answer_device(self, handle: PhoneHandle, service: str) -> None:
        """Serve one service of a phone until its end."""
        reader, writer = self._reader, self._writer
        name, _, rest = service.partition(":")
        name, *options = name.split(",")
        if name in ("shell", "exec"):
            writer.write(b"OKAY")
            if "v2" in options:
                await serve_packets(handle, rest, reader, writer, echo="pty" in options)
            else:
                await serve_plain(handle, rest, reader, writer)
        elif service == "sync:":
            writer.write(b"OKAY")
            await serve_sync(handle, reader, writer)
        elif service == f"tcp:{AUTOMATION_PORT}":
            writer.write(b"OKAY")
            await serve_http(handle, reader, writer)
        elif name in ("root", "unroot", "remount", "tcpip", "usb"):
            text = "adbd is already running as root\n" if name == "root" else f"{name}: not supported\n"
            writer.write(b"OKAY" + text.encode())
        elif name == "collab":
            writer.write(b"OKAY" + json.dumps(examine(handle, rest)).encode())
        elif name == "emu":  # what adb sends to the emulator's console, a port of its own there
            result = console(handle.phone, rest)
            handle.put(result.phone)
            writer.write(b"OKAY" + result.output_bytes)
        elif service == "reverse:list-forward":
            writer.write(b"OKAY" + pack_text(""))
        else:
            writer.write(fail("connection refused" if name == "tcp" else "closed"))


def _split(service: str, phones: Mapping[str, PhoneHandle]) -> tuple[str | None, str, str]:
    """Return (kind, serial, question) of a service that names a phone; the serial is empty for "the only one"."""
    # The forms of the real protocol, from the most specific on.
    for prefix in ("host:tport:serial:", "host:transport:"):
        if service.startswith(prefix):
            return prefix.split(":")[1], service.removeprefix(prefix), ""
    if service in ("host:tport:any", "host:tport:local", "host:transport-any", "host:transport-local"):
        return ("tport" if "tport" in service else "transport"), "", ""
    for prefix in ("host:transport-id:", "host-transport-id:"):
        number, _, question = service.removeprefix(prefix).partition(":")
        if service.startswith(prefix) and number.isdecimal() and number.isascii() and len(number) < 10:
            serial = dict(enumerate(phones, 1)).get(int(number), f"#{number}")
            return ("transport" if prefix == "host:transport-id:" else "question"), serial, question
    if service.startswith("host-serial:"):
        serial, _, question = service.removeprefix("host-serial:").partition(":")
        return "question", serial, question
    if service.startswith(("host-local:", "host:")):
        return "question", "", service.partition(":")[2]
    return None, "", ""


@contextmanager
def serve_phones(phones: Mapping[str, PhoneHandle], *, port: int = 0) -> Iterator[int]:
    """Serve phones while the block runs; gives the port.

    Raises:
        UsageError: the port is taken, or a serial is none.
    """
    server = PhoneServer(phones, port=port)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="phone-server", daemon=True)
    thread.start()
    try:
        yield asyncio.run_coroutine_threadsafe(server.start(), loop).result()
    finally:
        asyncio.run_coroutine_threadsafe(server.close(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
