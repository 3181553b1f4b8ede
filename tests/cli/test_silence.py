"""What gave no action, and what could not be played, is told by every command and never passes for a result."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

PLAY = ("--env", "corridor", "--graph", "single", "--tasks", "TypeWord", "--episodes", "1")


class Server:
    """A chat-completions server that gives one answer, whatever it is asked."""

    def __init__(self) -> None:
        self.status, self.kind = 200, "application/json"
        self.body = ""
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self._give(server.status, server.body)

            def do_GET(self) -> None:
                self._give(200, json.dumps({"data": [{"id": "fake"}]}))

            def _give(self, status: int, body: str) -> None:
                self.send_response(status)
                self.send_header("Content-Type", server.kind)
                self.send_header("Content-Length", str(len(body.encode())))
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}/v1"
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    def says(self, finish: str = "stop", **message: Any) -> None:
        choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
        self.body = json.dumps({"choices": [choice], "usage": {"prompt_tokens": 3, "completion_tokens": 2}})

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.close()


@pytest.fixture
def collab(run_command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, server: Server):
    """Runs a command with definitions of its own in an empty folder: (exit code, stdout, stderr)."""
    library = tmp_path / "library"
    own = {
        "envs/corridor.yaml": "backend: fake\n"
        "backends: {fake: {kind: fake}, broken: {kind: fake, options: {fail_at: 1}}, slow: {kind: fake}}\n",
        "agents/served.yaml": f"kind: openai\noptions: {{model: fake, base_url: '{server.url}', retries: 0}}\n",
        "agents/clicker.yaml": "kind: scripted\nprompt: calls\noptions: {replies: ['Action: click(id=1)']}\n",
        "agents/mute.yaml": "kind: scripted\noptions: {replies: ['I would rather not say.']}\n",
    }
    for name, text in own.items():
        (library / name).parent.mkdir(parents=True, exist_ok=True)
        (library / name).write_text(text)
    prompts = library / "prompts/calls"
    prompts.mkdir(parents=True)
    texts = {"system": "Write click(id=7) or finish().", "shared": "{{ goal }} {{ screen }}", "header": "{{ agent }}"}
    texts |= {"message": "{{ message }}", "summary": "{{ goal }}"}
    for name, text in texts.items():
        (prompts / f"{name}.jinja").write_text(text)
    (prompts / "question.jinja").write_text("{{ screen }} {{ question }}")
    monkeypatch.setenv("COLLAB_LIBRARY", str(library))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return run_command


# ------------------------------------------------------------------------------------- replies without an action

WITHHELD: dict[str, tuple[dict[str, Any], str, str]] = {
    "reasoning_content": ({"content": None, "reasoning_content": "Let me think."}, "all reasoning", "reasoning"),
    "reasoning": ({"content": "", "reasoning": "Let me think.", "finish": "length"}, "all reasoning", "cut"),
    "thought": ({"content": "<think>First I", "finish": "length"}, "all reasoning", "never closed"),
    "an action in a thought": (
        {"content": '<think>Perhaps\n\nAction: {"action_type": "wait"}', "finish": "length"},
        "all reasoning",
        "never closed, and max_tokens cut it",
    ),
    "only a thought": ({"content": "<think>I see.</think>\n"}, "all reasoning", "nothing follows the thought"),
    "refusal": ({"content": None, "refusal": "I cannot help with that."}, "refused", "I cannot help with that."),
    "tool": (
        {"content": None, "tool_calls": [{"function": {"name": "tap_screen"}}], "finish": "tool_calls"},
        "tool calls",
        "tap_screen",
    ),
    "filter": ({"content": None, "finish": "content_filter"}, "ended by a content filter", "content_filter"),
    "safety": ({"content": "Rea", "finish": "SAFETY"}, "ended by a content filter", "safety"),
    "cut": ({"content": "I think that we", "finish": "length"}, "cut by max_tokens", "max_tokens"),
    "empty": ({"content": None}, "empty", "the reply is empty"),
    "other space": ({"content": "Action: click(id=1)"}, "an action of another action space", "the space web"),
}


@pytest.mark.parametrize("case", WITHHELD)
def test_replies_without_an_action_are_counted_by_cause_and_explained(collab, server, case):
    message, words, detail = WITHHELD[case]
    server.says(**message)
    code, out, _ = collab(
        "rollout", *PLAY, "--agents", "served", "--set", "environment.limits.max_steps=2", "--out", "r"
    )
    assert code == 0
    assert f"replies without an action: 2 of 2 (2 {words})" in out
    assert "why      collab runs show r --episode TypeWord/0 --step 0" in out
    code, out, _ = collab("runs", "show", "r", "--episode", "TypeWord/0", "--step", "0")
    assert code == 0
    reason = next(line for line in out.splitlines() if "-> no action" in line)
    assert detail in reason


def test_a_reply_that_was_cut_behind_its_action_is_shown_as_cut(collab, server):
    server.says(content='Action: {"action_type": "wait"} because I', finish="length")
    collab("rollout", *PLAY, "--agents", "served", "--set", "environment.limits.max_steps=1", "--out", "r")
    _, out, _ = collab("runs", "show", "r", "--episode", "TypeWord/0", "--step", "0")
    assert "    -> cut by max_tokens, after its action" in out
    found = json.loads(collab("runs", "show", "r", "--episode", "TypeWord/0", "--step", "0", "--json")[1])
    assert [cell["finish"] for cell in found["step"]["cells"]] == ["length"]


@pytest.mark.parametrize(
    ("finish", "words"), [("stop", "the reply is empty"), ("length", "max_tokens cut the reply before its text")]
)
def test_checking_agents_says_when_a_reply_is_empty(collab, server, finish: str, words: str):
    server.says(finish, content=" ")
    code, out, _ = collab("agents", "check", "served")
    assert (code, f"warning: no text came: {words}" in out) == (0, True)


def test_checking_agents_says_when_no_text_comes(collab, server):
    server.says(content=None, refusal="I cannot help with that.")
    code, out, _ = collab("agents", "check", "served")
    assert (code, "warning: no text came: the model refused: I cannot help with that." in out) == (0, True)


def test_every_summary_counts_replies_without_an_action(collab):
    two = (*PLAY[:4], "--tasks", "TypeWord", "--episodes", "2", "--set", "environment.limits.max_steps=3")
    told = "replies without an action: 6 of 6 (6 no action in the text)"
    for command in (
        ("rollout", *two, "--agents", "mute", "--out", "r"),
        ("eval", *two, "--agents", "mute", "--out", "e"),
        ("eval", *two, "--agents", "mute", "--seeds", "30", "--out", "s"),
        ("runs", "resume", "r"),
        ("runs", "show", "r"),
    ):
        code, out, _ = collab(*command)
        assert (code, told in out) == (0, True), (command, out)
        assert "\nwhy      collab runs show " in out, command
    assert "6/6" in collab("runs", "list", ".")[1]
    assert "replies without an action: 3 of 3" in collab("runs", "show", "r", "--episode", "TypeWord/0")[1]
    expected = {"total": 6, "without_action": 6, "by_cause": {"no_action": 6}}
    for command in (("runs", "show", "r", "--json"), ("eval", *two, "--agents", "mute", "--seeds", "31", "--json")):
        assert json.loads(collab(*command)[1])["replies"] == expected
    assert "Replies without an action: s 6 of 6." in collab("runs", "table", "s")[1]
    code, out, _ = collab("report", "r")
    assert "Replies without an action: 6 of 6" in out


def test_a_prompt_of_another_action_space_is_warned_of_before_playing(collab):
    _, out, err = collab("rollout", *PLAY, "--agents", "clicker", "--set", "environment.limits.max_steps=2")
    warning, playing = err.splitlines()[:2]
    assert warning.startswith("warning: agents/clicker uses the actions of web (prompts/calls)")
    assert playing.startswith("playing 1 episode")
    assert "replies without an action: 2 of 2 (2 an action of another action space)" in out
    assert "warning" not in collab("rollout", *PLAY, "--agents", "mute", "--set", "environment.limits.max_steps=1")[2]


# --------------------------------------------------------------------------------------------- nothing was played


def test_a_run_of_which_every_episode_broke_has_failed(collab):
    play = ("--env", "corridor", "--backend", "broken", "--graph", "single", "--agents", "mute", "--episodes", "3")
    for command in (
        ("rollout", *play, "--out", "r"),
        ("eval", *play, "--out", "e"),
        ("eval", *play, "--seeds", "30,31", "--out", "s"),
        ("runs", "resume", "r"),
    ):
        code, out, err = collab(*command)
        assert code == 1, command
        assert "success  0.0%" in out
        assert err.splitlines()[-1].startswith("error: nothing was played: "), err
    code, out, _ = collab("rollout", *play, "--json", "--out", "j")
    assert (code, json.loads(out)["broken"]) == (1, 3)


# -------------------------------------------------------------------------------------------- what a server says

JSON = "application/json"
PROXY = (
    "<!DOCTYPE html><html><head><title>502 Bad Gateway</title><style>p{color:red}</style></head>"
    "<body><p>nginx is &amp; down</p></body></html>"
)
BEHIND = {"error": {"message": "Provider returned error", "metadata": {"raw": "quota is over"}}}
SAID: dict[str, tuple[int, str, Any, str]] = {
    "openai": (400, JSON, {"error": {"message": "too hot", "code": 4}}, "answered 400: too hot"),
    "gemini": (400, JSON, [{"error": {"code": 400, "message": "bad key"}}], "answered 400: bad key"),
    "tgi": (422, JSON, {"error": "Template error", "error_type": "t"}, "answered 422: Template error"),
    "ollama": (404, JSON, {"error": "model 'x' not found"}, "answered 404: model 'x' not found"),
    "fastapi": (
        422,
        JSON,
        {"detail": [{"loc": ["body"], "msg": "field required"}]},
        "answered 422: body: field required",
    ),
    "proxy": (502, "text/html", PROXY, "answered 502: 502 Bad Gateway nginx is & down"),
    "openrouter": (429, JSON, BEHIND, "answered 429: Provider returned error: quota is over"),
    "plain": (500, "text/plain", "out of memory\n" * 500, "answered 500: out of memory"),
    "error with 200": (200, JSON, {"error": {"message": "overloaded"}}, "answered 502: overloaded"),
    "page with 200": (200, "text/html", "<html><body>Please log in</body></html>", "it says: Please log in"),
}


@pytest.mark.variations
@pytest.mark.parametrize("kind", SAID)
def test_what_a_server_says_reaches_the_user_in_one_bounded_line(collab, server, kind):
    server.status, server.kind, body, words = SAID[kind]
    server.body = body if isinstance(body, str) else json.dumps(body)
    code, _, err = collab("rollout", *PLAY, "--agents", "served")
    *_, line = err.splitlines()
    assert code == 1
    assert words in line
    assert "<" not in line
    assert "{'" not in line
    assert len(line) < 800
