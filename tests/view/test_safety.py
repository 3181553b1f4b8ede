"""Who may ask, what every answer forbids, and that what was recorded comes out as text and nothing else."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("fastapi")

from starlette.testclient import TestClient

from collab.cli.main import main
from collab.errors import UsageError
from collab.store.manifest import Manifest
from collab.store.run import RunStore
from collab.types import Element, ElementTarget, Observation, Step, Trajectory
from collab.view.auth import POLICY, Gate
from collab.view.inspector import Inspector
from collab.view.schema.runs import CUT
from collab.view.server import build_application, open_listening_socket

BASE = "http://127.0.0.1:8477"
HOSTILE = "".join(
    (
        "<script>alert(1)</script>",
        '"><img src=x onerror=alert(1)>',
        "javascript:alert(1)",
        "<svg onload=alert(1)><style>*{display:none}</style>",
        "\u202e\u2066 right to left \u2069",
        "half a character: \ud83d, nothing: \x00, line: \u2028, bell: \x07",
        "</script><!--",
    )
)


@pytest.fixture
def gate() -> Gate:
    return Gate("127.0.0.1", 8477)


@pytest.fixture
def client(inspector: Inspector, gate: Gate) -> Iterator[TestClient]:
    with TestClient(build_application(inspector, gate), base_url=BASE) as client:
        yield client


# ------------------------------------------------------------------------------------------------------ who may ask


def test_the_token_opens_one_session_once(client: TestClient, gate: Gate, inspector: Inspector) -> None:
    assert client.get("/api/runs").status_code == 401
    assert client.get("/?token=wrong", follow_redirects=False).status_code == 303
    assert client.get("/api/runs").status_code == 401
    address = gate.address
    entered = client.get(address, follow_redirects=False)
    assert (entered.status_code, entered.headers["location"]) == (303, "/")
    cookie = entered.headers["set-cookie"]
    assert cookie.startswith("collab-view-8477=")
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= {part.strip() for part in cookie.split(";")}
    assert "token" not in gate.address
    assert client.get("/api/runs").status_code == 200
    with TestClient(build_application(inspector, gate), base_url=BASE) as other:
        assert "set-cookie" not in other.get(address, follow_redirects=False).headers
        assert other.get("/api/runs").status_code == 401
        assert other.get("/api/runs", headers={"cookie": "collab-view-8477=guessed"}).status_code == 401
        assert other.get("/api/runs", headers={"cookie": b"\x01;;=\xe9"}).status_code == 401


def test_only_the_get_of_a_page_uses_the_token_up(client: TestClient, gate: Gate) -> None:
    assert client.head(gate.address, follow_redirects=False).status_code == 405
    assert "set-cookie" in client.get(gate.address, follow_redirects=False).headers


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8477", "127.0.0.1.evil.example", "10.0.0.7:8477", ""])
def test_a_name_of_another_server_is_refused(client: TestClient, gate: Gate, host: str) -> None:
    client.get(gate.address)
    for path in ("/", "/api/runs", "/static/app.js"):
        assert client.get(path, headers={"host": host}).status_code == 403


@pytest.mark.parametrize("host", ["localhost:8477", "127.0.0.1:9000", "[::1]:8477", "LOCALHOST"])
def test_names_of_this_machine_are_known_at_any_port(client: TestClient, gate: Gate, host: str) -> None:
    assert client.get("/", headers={"host": host}).status_code != 403


def test_beyond_loopback_its_addresses_are_known_and_other_names_are_not() -> None:
    gate = Gate("0.0.0.0", 8477)
    assert gate.is_known_host("10.0.0.7:8477")
    assert gate.is_known_host("[fe80::1]:8477")
    assert not gate.is_known_host("evil.example:8477")
    assert Gate("box.example", 1).is_known_host("box.example:1")


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "https://127.0.0.1:8477"},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_pages_from_elsewhere_are_refused(client: TestClient, gate: Gate, headers: dict[str, str]) -> None:
    client.get(gate.address)
    assert client.get("/api/runs", headers=headers).status_code == 403
    mine = {"origin": BASE, "sec-fetch-site": "same-origin"}
    answered = client.get("/api/runs", headers=mine)
    assert answered.status_code == 200
    assert not [name for name in answered.headers if name.startswith("access-control")]


def test_every_answer_forbids_what_it_can(client: TestClient, gate: Gate) -> None:
    answers = [client.get(path) for path in ("/api/runs", "/nothing", "/static/nothing.js", "/")]
    answers.append(client.get("/api/runs", headers={"host": "evil.example"}))
    answers.append(client.get(gate.address))
    answers += [client.get(path) for path in ("/api/runs", "/api/run/x")]
    for answer in answers:
        assert answer.headers["content-security-policy"] == POLICY
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cache-control"] in ("no-store", "no-cache")
        assert "server" not in answer.headers
    assert "unsafe" not in POLICY


def test_an_address_that_is_taken_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with open_listening_socket("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr("collab.view.server.PORT", port)
        with open_listening_socket("127.0.0.1", None) as other:
            assert other.getsockname()[1] != port
        with pytest.raises(UsageError, match=f"--port {port}.*in use"):
            open_listening_socket("127.0.0.1", port)
    assert Gate("::", 1).address.startswith("http://[::1]:1/?token=")


def test_without_the_extra_pages_are_one_line_and_a_report_is_written(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in [one for one in sys.modules if one.startswith(("fastapi", "starlette", "uvicorn"))]:
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("auth", "server"):
        monkeypatch.setattr(f"collab.view.{name}", sys.modules[f"collab.view.{name}"])  # put back afterwards, too
        monkeypatch.delitem(sys.modules, f"collab.view.{name}")
    assert main(["view", str(recorded)]) == 2
    assert "collab-marl[view]" in (said := capsys.readouterr().err)
    assert said.count("\n") == 1
    out = tmp_path / "report.html"
    assert main(["view", str(recorded), "--export", str(out), "--most", "1"]) == 0
    assert out.is_file()
    for unfit in (["--port", "0"], ["--host", "::1"], ["--no-token"]):
        assert main(["view", str(recorded), "--export", str(out), *unfit]) == 2
        assert unfit[0] in capsys.readouterr().err


def test_a_bug_is_one_line_of_json(inspector: Inspector, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(id: str) -> None:
        raise KeyError(f"{id}\nmore")

    monkeypatch.setattr(inspector, "list_problems", broken)
    app = build_application(inspector, Gate("127.0.0.1", 1, open_to_all=True))
    with TestClient(app, base_url=BASE, raise_server_exceptions=False) as client:
        answer = client.get("/api/run/x/problems")
    assert answer.status_code == 500
    assert answer.json()["error"].startswith("a bug of collab: KeyError")
    assert answer.headers["content-security-policy"] == POLICY


# ------------------------------------------------------------------------------------------------- where paths lead


def test_no_name_leads_out_of_the_runs(recorded: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.webp").write_bytes(b"RIFF....WEBP")
    shutil.copytree(recorded, run := tmp_path / "runs" / "one")
    (folder := run / "blobs" / "ab").mkdir(parents=True)
    hash = "ab" + "0" * 62
    (folder / f"{hash}.webp").symlink_to(tmp_path / "secret.webp")
    (folder / f"ab{'1' * 62}.webp").write_bytes(b"<script>alert(1)</script>")
    (tmp_path / "runs" / "linked").symlink_to(recorded)
    one = Inspector([tmp_path / "runs"], index_cache=tmp_path / "index_cache")
    with TestClient(build_application(one, Gate("127.0.0.1", 1, open_to_all=True)), base_url=BASE) as client:
        (id,) = [row.id for row in one.list_runs().runs]
        assert client.get(f"/api/run/{id}/picture/{hash}").status_code == 410
        assert client.get(f"/api/run/{id}/picture/ab{'1' * 62}").status_code == 410
        for path in (
            f"/api/run/{id}/picture/..%2f..%2f..%2fsecret",
            "/api/run/..%2f..%2fsecret/overview",
            "/static/..%2fguard.py",
            "/static/%2e%2e/guard.py",
            "/static//etc/passwd",
        ):
            assert client.get(path).status_code in (400, 404), path
        outside = client.get(f"/api/run/{id}/overview", params={"labels": "../../one/labels/oracle"})
        assert outside.status_code in (404, 410)
    one.close()


# ---------------------------------------------------------------------------------------- what was said by others


def hostile(played: Trajectory, text: str, long: str) -> tuple[Trajectory, Step]:
    """The same episode of one step, with that text wherever a model or a page can put one."""
    step = played.steps[0]
    first = step.observation.elements[0]
    element = Element(index=0, role=text, label=text, box=first.box, value=text, flags=(text,))
    much = [replace(element, index=1 + place, role=long, label=long, flags=(long,) * 11) for place in range(2)]
    many = tuple(replace(first, index=3 + place) for place in range(3000))
    screen: Observation = replace(
        step.observation, title=text, elements=(element, *much, *many), text=long, url=text, notice=text, renderer=None
    )
    said = step.matrix.utterances[0]
    action = replace(said.action, type=text, target=ElementTarget(index=0), arguments=((text, text), (long, long)))
    policy = replace(said.policy, base=long, adapter=long)
    prompt = replace(said.prompt, trimmed=(long,) * 21)
    cell = replace(said, text=long, reason=text, action=action, policy=policy, prompt=prompt)
    matrix = replace(step.matrix, utterances=(cell, *step.matrix.utterances[1:]))
    history = replace(step.history, action=text, reason=text, effect=text)
    vote = replace(step.vote, ballots=(replace(step.vote.ballots[0], action=action),))
    changed = replace(
        step, observation=screen, matrix=matrix, executed=action, history=history, vote=vote, summary=text
    )
    task = replace(played.task, name=long, goal=text, params={"word": text}, apps=(text,))
    return replace(played, task=task, final=screen), changed


@pytest.mark.slow
def test_what_was_recorded_comes_out_as_it_was_and_as_text(recorded: Path, tmp_path: Path) -> None:
    with RunStore.open(recorded).open_reader() as reader:
        played = next(reader.iterate_trajectories())
    text, long = HOSTILE, HOSTILE + "x" * 1_000_000
    made, step = hostile(played, text, long)
    store = RunStore.create(tmp_path / "run", Manifest(command=long, config={"note": text}, seed=0, graph=long))
    with store.open_writer() as writer:
        where = {"episode": 0, "epoch": 0, "environment": text, "environment_version": "1"}
        writer.begin_episode("Task/0", made.task, **where)
        writer.step("Task/0", step)
        writer.end_episode("Task/0", outcome=replace(played.outcome, reason=text), final=made.final, seconds=1.0)
    one = Inspector([store.path], index_cache=tmp_path / "index_cache")
    with TestClient(build_application(one, Gate("127.0.0.1", 1, open_to_all=True)), base_url=BASE) as client:
        id = one.list_runs().runs[0].id
        told = client.get(f"/api/run/{id}/step", params={"episode": "Task/0", "step": 0})
        assert told.content.isascii()
        assert told.headers["content-type"] == "application/json"
        found = told.json()
        assert found["screen"]["title"] == found["screen"]["url"] == found["screen"]["notice"] == text
        assert found["screen"]["text"] == {"text": long[:CUT], "cut": len(long) - CUT}
        element, *more = found["screen"]["elements"]
        assert (len(more), found["screen"]["more"]) == (1999, 1003)
        assert {(len(one["role"]), len(one["flags"])) for one in more[:2]} == {(300, 10)}
        assert found["changes"]["same"] is True
        assert (element["label"], element["value"], element["flags"]) == (text, text, [text])
        cell = found["cells"][0]
        assert cell["reason"] == {"text": text, "cut": 0}
        assert cell["text"]["cut"] == len(long) - CUT
        assert (cell["action"]["type"], cell["action"]["arguments"]) == (
            text,
            {text: text, long[:299] + "…": long[:299] + "…"},
        )
        assert (len(cell["policy"]["base"]), len(cell["trimmed"])) == (300, 20)
        assert len(told.content) < 600_000
        assert len(client.get("/api/runs").content) < 10_000
        cell = {"episode": "Task/0", "step": 0, "agent": cell["agent"], "round": cell["round"]}
        assert client.get(f"/api/run/{id}/cell", params=cell).json()["reply"] == long
        for path in ("", "/overview", "/episodes", "/episode?episode=Task/0", "/final?episode=Task/0", "/problems"):
            answer = client.get(f"/api/run/{id}{path}")
            assert (answer.status_code, answer.content.isascii()) == (200, True), path
    one.close()
