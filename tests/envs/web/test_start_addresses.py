"""Start addresses with credentials, and hosts with unsigned certificates."""

import asyncio
import base64
import http.server
import json
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from collab.cli.main import app
from collab.envs.grammar import WEB
from collab.envs.web import window
from collab.envs.web.browser import Browser
from collab.envs.web.live import LiveSuite
from collab.errors import ConfigError, EnvironmentFailure
from collab.types import StepResult
from collab.utils.redact import hide_in_addresses

CERTIFICATE = Path(__file__).parents[2] / "fixtures" / "web" / "self-signed.pem"
SECRET, TOKEN = "pa55", "t0k3n-0123456789"


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("http://ada:pa55@host.test/a", "http://[redacted]@host.test/a"),
        ("http://ada:p%40@ss@host.test/a", "http://[redacted]@host.test/a"),
        ("Go to http://ada@host.test, then http://b.test.", "Go to http://[redacted]@host.test, then http://b.test."),
        ("http://a.test/?access_token=0123456789&q=mug", "http://a.test/?access_token=[redacted]&q=mug"),
        ("http://a.test/#id-token=0123456789", "http://a.test/#id-token=[redacted]"),
        (
            "http://a.test/?q=1&api_key=0123456789&sig=0123456789",
            "http://a.test/?q=1&api_key=[redacted]&sig=[redacted]",
        ),
        ("http://a.test/?key=mug&monkey=0123456789", "http://a.test/?key=mug&monkey=0123456789"),
        ("ada@host.test", "ada@host.test"),
        (
            {"tasks": [{"start": "http://u:p@h.test/"}], "n": 1},
            {"tasks": [{"start": "http://[redacted]@h.test/"}], "n": 1},
        ),
    ],
)
def test_what_is_secret_in_an_address_is_hidden(text: Any, hidden: Any) -> None:
    assert hide_in_addresses(text) == hidden
    assert hide_in_addresses(hidden) == hidden


class Server:
    """A page behind a sign-in prompt, over https where a certificate is given."""

    def __init__(self, *, certificate: Path | None = None) -> None:
        self.asked: list[str] = []
        wanted = "Basic " + base64.b64encode(f"ada:{SECRET}".encode()).decode()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                is_in = certificate is not None or "to=" in self.path or self.headers.get("Authorization") == wanted
                body = b"<title>Inside</title><p>welcome</p><img src='/picture.png'>" if is_in else b"who are you?"
                if "to=" in self.path:
                    to = self.path.partition("to=")[2]
                    body = f"<a href={to}>Same tab</a> <a href={to} target=_blank>New tab</a>".encode()
                self.send_response(200 if is_in else 401)
                if not is_in:
                    self.send_header("WWW-Authenticate", 'Basic realm="x"')
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def locked() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.mark.medium
@pytest.mark.browser
def test_credentials_of_a_start_address_open_the_page_and_are_nowhere_in_the_run(
    locked: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = f"http://ada:{SECRET}@127.0.0.1:{locked.port}/?token={TOKEN}"
    task = {"name": "in", "start": start, "goal": f"Sign in at {start}.", "max_steps": 1, "success": {"selector": "p"}}
    options = {"allow_private": True, "tasks": [task]}
    environment = {"backend": "a", "backends": {"a": {"kind": "web", "options": options}}}
    (tmp_path / "envs").mkdir()
    (tmp_path / "envs" / "lab.yaml").write_text(yaml.safe_dump(environment))
    (tmp_path / "agents").mkdir()
    script = {"kind": "scripted", "options": {"replies": ["Action: finish()"]}}
    (tmp_path / "agents" / "idler.yaml").write_text(yaml.safe_dump(script))
    monkeypatch.chdir(tmp_path)
    library = ["--library", str(tmp_path)]
    arguments = ["--env", "lab", "--agents", "idler", "--episodes", "1", "--out", "run"]
    played = CliRunner().invoke(app, ["rollout", *arguments, *library])
    assert played.exit_code == 0, played.output
    listed = CliRunner().invoke(app, ["env", "tasks", "lab", "--json", *library])
    files = [path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert files
    texts = [*files, played.output.encode(), listed.output.encode()]
    assert [text for text in texts if SECRET.encode() in text or TOKEN.encode() in text] == []
    head = json.loads((tmp_path / "run" / "run.json").read_text())
    assert "[redacted]@127.0.0.1" in json.dumps(head)
    assert f"/?token={TOKEN}" in locked.asked
    assert b"welcome" in b"".join(files)


def _refuse_start(runner: asyncio.Runner, browser: Browser, task: dict[str, Any]) -> str:
    """Return why a task's start address is not opened."""
    suite = LiveSuite(tasks=[task], allow_private=True)
    suite._browser = browser

    async def main() -> None:
        environment = await suite.open()
        try:
            await environment.reset(suite.instance("in", 0))
        finally:
            await environment.close()

    with pytest.raises(EnvironmentFailure) as found:
        runner.run(main())
    return str(found.value)


@pytest.mark.browser
def test_credentials_are_in_no_error_and_a_run_says_that_it_has_not_kept_them(
    locked: Server, runner: asyncio.Runner, browser: Browser
) -> None:
    start = f"http://ada:wrong-{SECRET}@127.0.0.1:{locked.port}/?token={TOKEN}"
    task = {"name": "in", "start": start, "goal": "In.", "success": {"selector": "p"}}
    problem = _refuse_start(runner, browser, task)
    assert "401" in problem
    assert SECRET not in problem
    assert TOKEN not in problem
    for made in (task, task | {"start": hide_in_addresses(start)}):
        with pytest.raises(ConfigError, match=r"private address|not kept in a run") as found:
            LiveSuite(tasks=[made])
        assert SECRET not in str(found.value)


@pytest.mark.medium
@pytest.mark.browser
@pytest.mark.parametrize("is_own", [True, False])
def test_a_prompt_is_answered_where_the_credentials_belong_whoever_the_browser_asks(
    locked: Server, runner: asyncio.Runner, browser: Browser, monkeypatch: pytest.MonkeyPatch, is_own: bool
) -> None:
    """Browsers differ in whom they ask: the driver, or what watches the window's documents."""
    context = browser.context
    monkeypatch.setattr(browser, "context", lambda **options: context(**options | {"http_credentials": None}))
    other = Server()
    start = f"http://ada:{SECRET}@127.0.0.1:{locked.port}/"
    task = {"name": "in", "start": start, "goal": "In.", "success": {"selector": "p"}}
    suite = LiveSuite(tasks=[task], allow_private=True)
    suite._browser = browser

    async def main() -> tuple[str, StepResult]:
        environment = await suite.open()
        try:
            seen = await environment.reset(suite.instance("in", 0))
            port = locked.port if is_own else other.port
            return seen.title, await environment.step(
                WEB.make("jump_to", url=f"http://127.0.0.1:{port}/more", new_tab=False)
            )
        finally:
            await environment.close()

    try:
        title, step = runner.run(main())
    finally:
        other.close()
    assert title == "Inside"
    assert step.observation.title == ("Inside" if is_own else "")
    assert ("who are you?" in str(step)) != is_own


@pytest.mark.browser
def test_a_start_behind_a_prompt_without_credentials_is_refused_as_the_site_says(
    locked: Server, runner: asyncio.Runner, browser: Browser
) -> None:
    task = {"name": "in", "start": f"http://127.0.0.1:{locked.port}/", "goal": "In.", "success": {"selector": "p"}}
    assert "401" in _refuse_start(runner, browser, task)


def _start_tls(runner: asyncio.Runner, browser: Browser, options: dict[str, Any]) -> tuple[str, list[str]]:
    """What opening a page of a self-signed host comes to, and what its server was asked for."""
    server = Server(certificate=CERTIFICATE)
    filled = json.loads(json.dumps(options).replace("PORT", str(server.port)))
    task = {"name": "in", "start": f"https://localhost:{server.port}/", "goal": "In.", "success": {"answer": "x"}}
    suite = LiveSuite(tasks=[task], allow_private=True, **filled)
    suite._browser = browser

    async def main() -> str:
        environment = await suite.open()
        try:
            seen = await environment.reset(suite.instance("in", 0))
            other = WEB.make("jump_to", url=f"https://127.0.0.1:{server.port}/", new_tab=True)
            return f"{seen.title}; {(await environment.step(other)).info['effect']}"
        except EnvironmentFailure as error:
            return str(error)
        finally:
            await environment.close()

    try:
        return runner.run(main()), server.asked
    finally:
        server.close()


@pytest.mark.browser
@pytest.mark.parametrize(
    "hosts",
    [
        ["localhost:PORT"],
        *(pytest.param(one, marks=pytest.mark.slow) for one in (["*.localhost", "other.test"], ["localhost"])),
    ],
)
def test_self_signed_hosts_are_believed_one_by_one(runner: asyncio.Runner, browser: Browser, hosts: list[str]) -> None:
    told, asked = _start_tls(runner, browser, {"self_signed_hosts": hosts})
    assert told.startswith("Inside; ")
    # On a busy machine the browser may name its own end of the page before the certificate.
    assert "was not opened: net::ERR_" in told, "another host with the same certificate is not"
    assert "/picture.png" in asked


@pytest.mark.browser
@pytest.mark.parametrize("options", [{}, {"self_signed_hosts": ["other.test", "localhost:1"]}])
def test_other_self_signed_hosts_are_refused_with_what_to_do(
    runner: asyncio.Runner, browser: Browser, options: dict[str, Any]
) -> None:
    told, asked = _start_tls(runner, browser, options)
    assert "ERR_CERT_AUTHORITY_INVALID" in told
    assert "self_signed_hosts" in told
    assert asked == []


def _follow_link(
    runner: asyncio.Runner, browser: Browser, label: str, hosts: list[str] | None
) -> tuple[StepResult, str, list[str]]:
    """Return what a link to another, self-signed host came to, that address, and what that host was asked for."""
    first, other = Server(certificate=CERTIFICATE if hosts else None), Server(certificate=CERTIFICATE)
    first_url = f"https://localhost:{first.port}" if hosts else f"http://127.0.0.1:{first.port}"
    other_url = f"https://127.0.0.1:{other.port}/inside"
    start = f"{first_url}/?to={other_url}"
    task = {"name": "in", "start": start, "goal": "In.", "success": {"answer": "x"}}
    suite = LiveSuite(tasks=[task], allow_private=True, self_signed_hosts=hosts)
    suite._browser = browser

    async def main() -> StepResult:
        environment = await suite.open()
        try:
            seen = await environment.reset(suite.instance("in", 0))
            [link] = [one.index for one in seen.elements if one.label == label]
            return await environment.step(WEB.make("click", id=link))
        finally:
            await environment.close()

    try:
        result = runner.run(main())
    finally:
        first.close()
        other.close()
    return result, other_url, other.asked


@pytest.mark.browser
@pytest.mark.parametrize(
    ("label", "hosts"),
    [
        ("Same tab", None),
        ("New tab", ["localhost", "127.0.0.1"]),
        pytest.param("New tab", ["localhost"], marks=pytest.mark.slow),
        pytest.param("New tab", None, marks=pytest.mark.slow),
        pytest.param("Same tab", ["localhost"], marks=pytest.mark.slow),
        pytest.param("Same tab", ["localhost", "127.0.0.1"], marks=pytest.mark.slow),
    ],
)
def test_a_link_opens_a_self_signed_host_only_if_it_is_named_and_no_warning_can_be_passed(
    runner: asyncio.Runner, browser: Browser, label: str, hosts: list[str] | None
) -> None:
    result, other_url, asked = _follow_link(runner, browser, label, hosts)
    seen = result.observation
    if hosts and "127.0.0.1" in hosts:
        assert (seen.title, seen.url) == ("Inside", other_url)
        return
    assert f"{other_url} was not opened: its certificate is not trusted (ERR_CERT" in str(result.info["effect"])
    assert seen.notice == result.info["effect"]
    assert "Privacy error" not in seen.text
    assert asked == []


@pytest.mark.browser
@pytest.mark.parametrize("failures", [3, 10**6, pytest.param(1, marks=pytest.mark.slow)])
def test_a_new_tab_is_guarded_also_when_its_process_changes_meanwhile(
    runner: asyncio.Runner, browser: Browser, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    from playwright.async_api import CDPSession, Error

    left, send, shown = failures, CDPSession.send, 0
    if failures > 10:
        monkeypatch.setattr(window, "_TAB_S", 1.0)

    async def send_or_fail(session: CDPSession, method: str, *options: Any) -> Any:
        nonlocal left, shown
        shown += method == "Security.enable"
        # The first tab is the one with the link; Chromium says this while a page changes its process.
        if method == "Security.enable" and shown > 1 and left:
            left -= 1
            raise Error("Protocol error (Security.enable): Not attached to an active page")
        return await send(session, method, *options)

    monkeypatch.setattr(CDPSession, "send", send_or_fail)
    result, url, asked = _follow_link(runner, browser, "New tab", ["localhost", "127.0.0.1"])
    if failures < 10:
        assert result.observation.url == url
    else:
        assert "Privacy error" not in result.observation.text
        assert "the tab was closed" in str(result.info["effect"])
        assert asked == []
