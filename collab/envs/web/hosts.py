"""Which addresses a live page may reach, as one pure rule.

    policy = HostPolicy(allow_hosts=("shop.example", "*.cdn.example"))
    policy.refusal("http://192.168.0.1/")          # "192.168.0.1 is a private address"
    policy.refusal("https://shop.example/cart")    # None: allowed as far as the name tells
    await policy.resolve("shop.example", 443)      # the addresses to connect to, every one of them checked

The rule, for everything a page loads and not only for what it navigates to:

- schemes: http and https (and `about:blank`); `file:` only with `allow_files`;
- hosts: with a list, only its entries; "*.example.org" stands for the name and everything below it, an entry with a
  port allows that port alone; an empty list allows every public host;
- addresses: a name that resolves to a private, loopback or otherwise not public address is refused, unless
  `allow_private`; link-local addresses (169.254.0.0/16 and fe80::/10, where clouds keep their metadata) are refused
  even then, unless the list names them literally.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from collab.envs.text import cut
from collab.errors import UsageError
from collab.redact import hide_in_addresses

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

MOST_ADDRESS = 2000
"""Characters of an address that are told."""

_PORTS = {"http": 80, "https": 443}
_METADATA = ipaddress.IPv6Address("fd00:ec2::254")


class RefusedAddress(Exception):
    """An address the policy does not allow; its text says why. Caught where the connection would be made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPolicy:
    """What may be reached (see the module's page)."""

    allow_hosts: tuple[str, ...] = ()
    allow_private: bool = False
    allow_files: bool = False
    sites: Mapping[str, Path] = field(default_factory=dict)
    """Hosts that are folders on this machine, on plain http and port 80; always allowed."""

    self_signed_hosts: tuple[str, ...] = ()
    """Hosts whose certificates are believed whoever signed them; entries as in `allow_hosts`."""

    def __post_init__(self) -> None:
        named = [("allow_hosts", entry) for entry in self.allow_hosts]
        for option, entry in [*named, *(("self_signed_hosts", entry) for entry in self.self_signed_hosts)]:
            if not entry or "/" in entry or "*" in entry.removeprefix("*."):
                raise UsageError(
                    f"{option} has the entry {entry!r}, allowed: a host such as 'example.org', '*.example.org',"
                    " 'localhost:8000' or '[::1]:8000', without a scheme or a path"
                )

    def refusal(self, url: str) -> str | None:
        """Why this URL may not be opened, as far as its text tells; None when it may. Asks no name server."""
        if url == "about:blank":
            return None
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            return "it is not an address"
        if parts.scheme == "file":
            return None if self.allow_files else "files of this machine are not allowed"
        if parts.scheme not in _PORTS:
            return f"the scheme {parts.scheme[:20] or 'none'!r} is not allowed, only http and https"
        if not host:
            return "it names no host"
        port = port or _PORTS[parts.scheme]
        return None if self.site(host, port) else self.host_refusal(host, port)

    def accepts_certificate(self, url: str) -> bool:
        """Whether this https address may show a certificate that no authority has signed."""
        try:
            parts = urlsplit(url)
            host, port = (parts.hostname or "").rstrip("."), parts.port or _PORTS.get(parts.scheme, 443)
        except ValueError:
            return False
        return any(_matches(entry, host, port) for entry in self.self_signed_hosts)

    def site(self, host: str, port: int) -> Path | None:
        """The folder that stands for a host; None for every other host."""
        return self.sites.get(host.lower()) if port == 80 else None

    def host_refusal(self, host: str, port: int) -> str | None:
        """Why this host may not be reached, as far as its name tells; None when it may."""
        host = host.strip("[]").rstrip(".").lower()
        if self.allow_hosts and not any(_matches(entry, host, port) for entry in self.allow_hosts):
            return f"{cut(host, 100)}:{port} is not on the list of allowed hosts"
        address = _literal(host)
        return None if address is None else self._address_refusal(host, address)

    async def resolve(self, host: str, port: int) -> list[str]:
        """The host's addresses, once all of them are found allowed; connect to these, not to the name.

        Raises:
            RefusedAddress: the policy says no.
            OSError: the name has no address.
        """
        refusal = self.host_refusal(host, port)
        if refusal:
            raise RefusedAddress(refusal)
        found = await asyncio.get_running_loop().getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
        addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
        for text in addresses:
            refusal = self._address_refusal(host, ipaddress.ip_address(text.partition("%")[0]))
            if refusal:
                raise RefusedAddress(refusal)
        return addresses

    def _address_refusal(self, host: str, address: Address) -> str | None:
        address = _unwrapped(address)
        told = host if host == str(address) else f"{host} ({address})"
        if address.is_link_local or address == _METADATA:
            named = {entry.strip("[]").lower() for entry in self.allow_hosts}
            return None if self.allow_private and str(address) in named else f"{told} is a link-local address"
        if (not address.is_global or address.is_multicast) and not self.allow_private:
            return f"{told} is a private address"
        return None


def shown_address(url: str) -> str:
    """An address as it is told and recorded: of sensible length, and without what is secret in it."""
    shown = str(hide_in_addresses(url[: 2 * MOST_ADDRESS]))
    return shown if len(shown) <= MOST_ADDRESS else shown[: MOST_ADDRESS - 1] + "…"


def _matches(entry: str, host: str, port: int) -> bool:
    name, entry_port = _split(entry.lower())
    if entry_port is not None and entry_port != port:
        return False
    if name.startswith("*."):
        return host == name[2:] or host.endswith(name[1:])
    return host == name


def _split(entry: str) -> tuple[str, int | None]:
    """Host and port of a list entry; None for no port."""
    if entry.startswith("["):
        name, _, port = entry[1:].partition("]")
        port = port.removeprefix(":")
    elif entry.count(":") == 1:
        name, _, port = entry.partition(":")
    else:
        name, port = entry, ""
    return name.rstrip("."), int(port) if port.isdecimal() else None


def _literal(host: str) -> Address | None:
    """The address that a host is, in any of the spellings that name no server: 127.0.0.1, 127.1, 0x7f000001, ::1."""
    try:
        return ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        pass
    try:
        return ipaddress.IPv4Address(socket.inet_aton(host))
    except (OSError, ValueError):
        return ipaddress.ip_address("127.0.0.1") if host == "localhost" or host.endswith(".localhost") else None


def _unwrapped(address: Address) -> Address:
    """The IPv4 address inside an IPv6 one that only carries it."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address.ipv4_mapped or address.sixtofour:
        return address.ipv4_mapped or address.sixtofour or address
    if address in ipaddress.IPv6Network("64:ff9b::/96") or address in ipaddress.IPv6Network("::/96"):
        low = int(address) & 0xFFFFFFFF
        return address if low <= 1 else ipaddress.IPv4Address(low)
    return address
