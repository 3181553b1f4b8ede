import asyncio
import ipaddress
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collab.envs.web.gate import HostPolicy, RefusedAddress
from collab.errors import UsageError

PUBLIC = "93.184.216.34"


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("file:///etc/passwd", "files of this machine"),
        ("FILE:///etc/passwd", "files of this machine"),
        ("ftp://example.org/", "scheme"),
        ("javascript:alert(1)", "scheme"),
        ("data:text/html,hello", "scheme"),
        ("chrome://settings", "scheme"),
        ("view-source:http://example.org/", "scheme"),
        ("", "scheme"),
        ("http://", "no host"),
        ("http://[::1", "not an address"),
        ("http://example.org:port/", "not an address"),
        ("http://localhost/", "private"),
        ("http://app.localhost:3000/", "private"),
        ("http://127.0.0.1:8000/", "private"),
        ("http://127.1/", "private"),
        ("http://2130706433/", "private"),
        ("http://0x7f.0.0.1/", "private"),
        ("http://0/", "private"),
        ("http://10.1.2.3/", "private"),
        ("http://192.168.0.1/", "private"),
        ("http://100.64.0.1/", "private"),
        ("http://[::1]/", "private"),
        ("http://[fc00::1]/", "private"),
        ("http://[::ffff:127.0.0.1]/", "private"),
        ("http://[::ffff:10.0.0.1]/", "private"),
        ("http://[64:ff9b::7f00:1]/", "private"),
        ("http://[2002:7f00:1::]/", "private"),
        ("http://169.254.169.254/latest/meta-data/", "link-local"),
        ("http://[fe80::1]/", "link-local"),
        ("http://[fd00:ec2::254]/", "link-local"),
    ],
)
def test_what_leads_inside_is_refused_by_default(url: str, word: str) -> None:
    assert word in (HostPolicy().explain_refusal(url) or "allowed")


@pytest.mark.parametrize(
    "url", ["about:blank", "https://example.org/a?b#c", f"http://{PUBLIC}:8080/", "http://[2606:2800:220:1::1]/"]
)
def test_public_addresses_are_allowed_by_default(url: str) -> None:
    assert HostPolicy().explain_refusal(url) is None


def test_private_addresses_can_be_allowed_but_link_local_ones_only_by_name() -> None:
    private = HostPolicy(allow_private=True)
    assert private.explain_refusal("http://127.0.0.1:8000/") is None
    assert private.explain_refusal("http://192.168.0.1/") is None
    assert "link-local" in str(private.explain_refusal("http://169.254.169.254/"))
    assert "link-local" in str(private.explain_refusal("http://[::ffff:169.254.169.254]/"))
    named = HostPolicy(allow_private=True, allow_hosts=("169.254.169.254",))
    assert named.explain_refusal("http://169.254.169.254/") is None
    assert "link-local" in str(HostPolicy(allow_hosts=("169.254.169.254",)).explain_refusal("http://169.254.169.254/"))


def test_files_can_be_allowed() -> None:
    assert HostPolicy(allow_files=True).explain_refusal("file:///srv/page.html") is None


@pytest.mark.parametrize(
    ("entry", "url", "allowed"),
    [
        ("example.org", "https://example.org/", True),
        ("example.org", "https://EXAMPLE.org./", True),
        ("example.org", "https://www.example.org/", False),
        ("example.org", "https://example.org.evil.net/", False),
        ("example.org", "https://user:example.org@evil.net/", False),
        ("*.example.org", "https://www.example.org/", True),
        ("*.example.org", "https://a.b.example.org/", True),
        ("*.example.org", "https://example.org/", True),
        ("*.example.org", "https://notexample.org/", False),
        ("example.org:8443", "https://example.org:8443/", True),
        ("example.org:8443", "https://example.org/", False),
        ("example.org", "https://example.org:8443/", True),
    ],
)
def test_the_list_decides_by_whole_names_and_ports(entry: str, url: str, allowed: bool) -> None:
    assert (HostPolicy(allow_hosts=(entry,)).explain_refusal(url) is None) is allowed


def test_an_ipv6_entry_may_have_a_port() -> None:
    policy = HostPolicy(allow_hosts=("[::1]:8000",), allow_private=True)
    assert policy.explain_refusal("http://[::1]:8000/") is None
    assert policy.explain_refusal("http://[::1]:8001/") is not None


@pytest.mark.parametrize("entry", ["http://example.org", "example.org/path", "*", "ex*mple.org", ""])
def test_an_entry_that_is_no_host_is_refused_with_examples(entry: str) -> None:
    with pytest.raises(UsageError, match=r"allow_hosts has the entry .*allowed: a host such as"):
        HostPolicy(allow_hosts=(entry,))


def test_a_site_is_allowed_on_its_own_port_only(tmp_path) -> None:
    policy = HostPolicy(allow_hosts=("other.test",), sites={"shop.test": tmp_path})
    assert policy.explain_refusal("http://SHOP.test/cart") is None
    assert policy.explain_refusal("http://shop.test:81/") is not None
    assert policy.explain_refusal("https://shop.test/") is not None


@given(st.text(max_size=60))
def test_no_text_raises(url: str) -> None:
    told = HostPolicy().explain_refusal(url)
    assert told is None or isinstance(told, str)


@given(st.ip_addresses())
def test_an_allowed_literal_is_a_global_address(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    host = f"[{address}]" if address.version == 6 else str(address)
    if HostPolicy().explain_refusal(f"http://{host}/") is None:
        assert address.is_global
        assert not address.is_multicast


def test_names_are_judged_by_every_address_they_stand_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async def resolve(answers: list[str], policy: HostPolicy) -> list[str]:
        async def getaddrinfo(host: str, port: int, **_: object) -> list[object]:
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (answer, port)) for answer in answers]

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
        return await policy.resolve("rebound.example", 80)

    assert asyncio.run(resolve([PUBLIC, PUBLIC], HostPolicy())) == [PUBLIC]
    for inside in ("127.0.0.1", "169.254.169.254", "::1", "fe80::1%eth0"):
        with pytest.raises(RefusedAddress, match="address"):
            asyncio.run(resolve([PUBLIC, inside], HostPolicy()))
    assert asyncio.run(resolve(["10.0.0.1"], HostPolicy(allow_private=True))) == ["10.0.0.1"]
    with pytest.raises(RefusedAddress, match="not on the list"):
        asyncio.run(resolve([PUBLIC], HostPolicy(allow_hosts=("example.org",))))
