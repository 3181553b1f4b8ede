"""The gate between live pages and the network: a small loopback proxy that enforces the host policy.

The browser reaches the network only through the gate, so no page can bypass the policy: redirects, frames, pictures,
web sockets and workers all connect here. The gate resolves a name once, checks all its addresses and connects only to
these. It remembers refusals for the environment's report.

    gate = HostGate(policy)
    await gate.start()
    context = await browser.context(proxy={"server": gate.address})
    gate.take_refusals()   # what was refused since the last call
    await gate.close()

`HostPolicy` decides which addresses a live page may reach:

    policy = HostPolicy(allow_hosts=("shop.example", "*.cdn.example"))
    policy.refusal("http://192.168.0.1/")          # "192.168.0.1 is a private address"
    policy.refusal("https://shop.example/cart")    # None: allowed as far as the name tells
    await policy.resolve("shop.example", 443)      # the addresses to connect to, every one of them checked

It applies to everything that a page loads:

- schemes: http and https (and `about:blank`); `file:` only with `allow_files`;
- hosts: with a list, only its entries; "*.example.org" stands for the name and everything below it, an entry with a
  port allows that port alone; an empty list allows every public host;
- addresses: a name that resolves to a private, loopback or otherwise not public address is refused, unless
  `allow_private`; link-local addresses (169.254.0.0/16 and fe80::/10, where clouds keep their metadata) are refused
  even then, unless the list names them literally.

Static sites exist only behind the gate: a folder of files under a host name, without a server. The built-in example
shop is `http://shop.test/`, so live pages work offline with a fixed address.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import mimetypes
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from urllib.parse import unquote, urlsplit

from collab.envs.text import cut
from collab.errors import ConfigError, UsageError
from collab.utils.redact import hide_in_addresses

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

MOST_ADDRESS = 2000
"""Characters of an address that are told."""

_PORTS = {"http": 80, "https": 443}
_METADATA = ipaddress.IPv6Address("fd00:ec2::254")


class RefusedAddress(Exception):
    """An address the policy does not allow; its text says why. Caught where the connection would be made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPolicy:
    """Hosts that may be reached (see the module's page)."""

    allow_hosts: tuple[str, ...] = ()
    allow_private: bool = False
    allow_files: bool = False
    sites: Mapping[str, Path] = field(default_factory=dict)
    """Hosts that are folders on this machine, on plain http and port 80; always allowed."""

    self_signed_hosts: tuple[str, ...] = ()
    """Hosts whose certificates are believed without regard to the signer; entries as in `allow_hosts`."""

    def __post_init__(self) -> None:
        named = [("allow_hosts", entry) for entry in self.allow_hosts]
        for option, entry in [*named, *(("self_signed_hosts", entry) for entry in self.self_signed_hosts)]:
            if not entry or "/" in entry or "*" in entry.removeprefix("*."):
                raise UsageError(
                    f"{option} has the entry {entry!r}, allowed: a host such as 'example.org', '*.example.org',"
                    " 'localhost:8000' or '[::1]:8000', without a scheme or a path"
                )

    def explain_refusal(self, url: str) -> str | None:
        """Return why this URL may not be opened, as far as its text tells; None when it may. Asks no name server."""
        # The empty page is where every tab begins.
        if url == "about:blank":
            return None
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            return "it is not an address"
        if parts.scheme == "file":
            return None if self.allow_files else "files of this machine are not allowed"
        # Only what the gate can forward and check.
        if parts.scheme not in _PORTS:
            return f"the scheme {parts.scheme[:20] or 'none'!r} is not allowed, only http and https"
        if not host:
            return "it names no host"
        port = port or _PORTS[parts.scheme]
        # Names alone: whether they lead to a private address is seen when they are resolved.
        return None if self.find_site(host, port) else self.explain_host_refusal(host, port)

    def can_trust_certificate(self, url: str) -> bool:
        """Return whether this https address may show a certificate that no authority has signed."""
        try:
            parts = urlsplit(url)
            host, port = (parts.hostname or "").rstrip("."), parts.port or _PORTS.get(parts.scheme, 443)
        except ValueError:
            return False
        return any(_matches_pattern(entry, host, port) for entry in self.self_signed_hosts)

    def find_site(self, host: str, port: int) -> Path | None:
        """Return the folder that stands for a host; None for every other host."""
        return self.sites.get(host.lower()) if port == 80 else None

    def explain_host_refusal(self, host: str, port: int) -> str | None:
        """Return why this host may not be reached, as far as its name tells; None when it may."""
        host = host.strip("[]").rstrip(".").lower()
        if self.allow_hosts and not any(_matches_pattern(entry, host, port) for entry in self.allow_hosts):
            return f"{cut(host, 100)}:{port} is not on the list of allowed hosts"
        address = _parse_literal(host)
        return None if address is None else self._refuse_address(host, address)

    async def resolve(self, host: str, port: int) -> list[str]:
        """Return the host's addresses, once all of them are found allowed; connect to these, not to the name.

        Raises:
            RefusedAddress: the policy says no.
            OSError: the name has no address.
        """
        refusal = self.explain_host_refusal(host, port)
        if refusal:
            raise RefusedAddress(refusal)
        found = await asyncio.get_running_loop().getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
        addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
        for text in addresses:
            refusal = self._refuse_address(host, ipaddress.ip_address(text.partition("%")[0]))
            if refusal:
                raise RefusedAddress(refusal)
        return addresses

    def _refuse_address(self, host: str, address: Address) -> str | None:
        address = _unwrap(address)
        told = host if host == str(address) else f"{host} ({address})"
        if address.is_link_local or address == _METADATA:
            named = {entry.strip("[]").lower() for entry in self.allow_hosts}
            return None if self.allow_private and str(address) in named else f"{told} is a link-local address"
        if (not address.is_global or address.is_multicast) and not self.allow_private:
            return f"{told} is a private address"
        return None


def is_same_origin(address: str, other: str) -> bool:
    """Return whether two addresses share scheme, host and port."""
    first, second = urlsplit(address), urlsplit(other)
    ports = [parts.port or _PORTS.get(parts.scheme) for parts in (first, second)]
    return (first.scheme, first.hostname) == (second.scheme, second.hostname) and ports[0] == ports[1]


def shorten_address(url: str) -> str:
    """Return an address for messages and records, shortened and without secrets."""
    shown = str(hide_in_addresses(url[: 2 * MOST_ADDRESS]))
    return shown if len(shown) <= MOST_ADDRESS else shown[: MOST_ADDRESS - 1] + "…"


def _matches_pattern(entry: str, host: str, port: int) -> bool:
    name, entry_port = _split(entry.lower())
    if entry_port is not None and entry_port != port:
        return False
    if name.startswith("*."):
        return host == name[2:] or host.endswith(name[1:])
    return host == name


def _split(entry: str) -> tuple[str, int | None]:
    """Split a list entry into host and port; None for no port."""
    if entry.startswith("["):
        name, _, port = entry[1:].partition("]")
        port = port.removeprefix(":")
    elif entry.count(":") == 1:
        name, _, port = entry.partition(":")
    else:
        name, port = entry, ""
    return name.rstrip("."), int(port) if port.isdecimal() else None


def _parse_literal(host: str) -> Address | None:
    """Parse an address in any spelling that asks no server: 127.0.0.1, 127.1, 0x7f000001, ::1."""
    try:
        return ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        pass
    try:
        return ipaddress.IPv4Address(socket.inet_aton(host))
    except (OSError, ValueError):
        return ipaddress.ip_address("127.0.0.1") if host == "localhost" or host.endswith(".localhost") else None


def _unwrap(address: Address) -> Address:
    """Return the IPv4 address inside an IPv6 one that only carries it."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address.ipv4_mapped or address.sixtofour:
        return address.ipv4_mapped or address.sixtofour or address
    if address in ipaddress.IPv6Network("64:ff9b::/96") or address in ipaddress.IPv6Network("::/96"):
        low = int(address) & 0xFFFFFFFF
        return address if low <= 1 else ipaddress.IPv4Address(low)
    return address


BUILT_IN = "built-in"
"""Stands for the folder of the example shop."""


def find_site_folder(host: str, folder: str) -> Path:
    """Return the folder that a site's definition names; ConfigError when there is none."""
    if folder == BUILT_IN:
        return Path(str(resources.files(__package__).joinpath("shop")))
    path = Path(folder).expanduser()
    if not path.is_dir():
        raise ConfigError(f"sites: {host}: {folder!r} is not a folder; give a folder of HTML files or {BUILT_IN!r}")
    return path.resolve()


def build_response(folder: Path, method: str, path: str) -> bytes:
    """Return the whole HTTP response to a request for `path` (with or without a query) in a site's folder.

    `/` and folders stand for their index.html. Archives are sent as downloads. Nothing outside the folder is served.
    """
    if method not in ("GET", "HEAD"):
        return _build_message(405, "text/plain", b"This site only has pages to read.", method)
    wanted = (folder / unquote(urlsplit(path).path).lstrip("/")).resolve()
    if wanted.is_dir():
        wanted = wanted / "index.html"
    if not wanted.is_relative_to(folder) or not wanted.is_file():
        return _build_message(404, "text/plain", b"There is no such page.", method)
    kind = mimetypes.guess_type(wanted.name)[0] or "application/octet-stream"
    return _build_message(200, kind, wanted.read_bytes(), method)


def _build_message(status: int, kind: str, body: bytes, method: str) -> bytes:
    reason = {200: "OK", 404: "Not Found", 405: "Method Not Allowed"}[status]
    charset = "; charset=utf-8" if kind.startswith("text/") else ""
    saved = "Content-Disposition: attachment\r\n" if kind.startswith("application/") and "script" not in kind else ""
    head = (
        f"HTTP/1.1 {status} {reason}\r\nContent-Type: {kind}{charset}\r\n{saved}"
        f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode("latin-1") + (b"" if method == "HEAD" else body)


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
"""Services that Chromium itself calls. The gate refuses them silently: no page asked for them, and they must not learn
what is typed here."""


class HostGate:
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
        """Return why connections were refused since the last call, each reason once, in order; at most 20."""
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
        method, target, host, port = _parse_destination(head)
        # Sites on disk answer here and never reach the network.
        folder = None if method == "CONNECT" else self._policy.find_site(host, port)
        if folder is not None:
            writer.write(build_response(folder, method, _extract_path(target)))
            return await writer.drain()
        # The browser's own errands (updates, metrics) are refused without being reported as the page's.
        if host in _BROWSER_OWN:
            return await _answer(writer, 403, "Refused.")
        try:
            # Connecting resolves the name and checks every address, so that a name cannot lead to a private one.
            far_reader, far_writer = await self._connect(host, port)
        except RefusedAddress as refusal:
            # Bounded: a page can ask for any number of addresses.
            if len(self._refusals) < _REMEMBERED:
                self._refusals[cut(str(refusal), 200)] = None
            return await _answer(writer, 403, f"Refused: {refusal}.")
        except (OSError, TimeoutError) as error:
            return await _answer(writer, 502, f"{host} cannot be reached: {type(error).__name__}.")
        try:
            # Encrypted traffic is passed through as it is; only its destination was checked.
            if method == "CONNECT":
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                # Plain requests are rewritten from the proxy's form to the server's.
                far_writer.write(_rewrite_head(head, target))
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


def _parse_destination(head: bytes) -> tuple[str, str, str, int]:
    """Parse method, target, host and port of a proxy request; ValueError when it is none."""
    method, target, _ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    if method == "CONNECT":
        authority, default = target, 443
    else:
        scheme, separator, rest = target.partition("://")
        # Plain requests come with a whole address, as proxies get them.
        if not separator or scheme.lower() not in ("http", "ws"):
            raise ValueError(target)
        # Credentials in an address are no part of the host.
        authority, default = rest.partition("/")[0].partition("?")[0].rpartition("@")[2], 80
    # A bracketed IPv6 address has colons of its own.
    if authority.endswith("]") or ":" not in authority:
        return method, target, authority, default
    host, _, port = authority.rpartition(":")
    return method, target, host, int(port)


def _rewrite_head(head: bytes, target: str) -> bytes:
    """Return the request as the server itself reads it: path instead of address, one request per connection.

    One request only, because the next one on the same connection could go to another host.
    """
    lines = head.decode("latin-1").split("\r\n")[:-2]
    method, _, version = lines[0].split(" ")
    upgrades = any(line.lower().startswith("upgrade:") for line in lines[1:])
    dropped = ("proxy-", "keep-alive:") if upgrades else ("proxy-", "keep-alive:", "connection:")
    kept = [line for line in lines[1:] if not line.lower().startswith(dropped)]
    closing = [] if upgrades else ["Connection: close"]
    return "\r\n".join([f"{method} {_extract_path(target)} {version}", *kept, *closing, "", ""]).encode("latin-1")


def _extract_path(target: str) -> str:
    """Return path and query of a full address."""
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
