"""A key in the wrong field is refused with one line that says where it belongs, and is never printed or recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from collab.cli.main import main

KEY = "sk-proj-Ab3dEf6hIj9kLmNoPqRsTuVw"
PLAIN = "0a1b2c3d4e5f60718293a4b5c6d7e8f9"
LETTERS = "qwXcVbNmAsDfGhJkLpOiUyTrEwQzXsWd"
BASE = "kind: openai\noptions:\n  model: m\n"
URL = "  base_url: http://127.0.0.1:9/v1\n"
FILES = {
    "in api_key_env": f"{BASE}{URL}  api_key_env: {KEY}\n",
    "in api_key_env, of no known form": f"{BASE}{URL}  api_key_env: {PLAIN}\n",
    "in api_key_env, like a name": f"{BASE}{URL}  api_key_env: hf_AbCdEfGhIjKlMnOpQrStUv\n",
    "in api_key_env, in capitals": f"{BASE}{URL}  api_key_env: {PLAIN.upper()}\n",
    "in api_key_env, of letters": f"{BASE}{URL}  api_key_env: {LETTERS}\n",
    "in api_key_env, in a list": f"{BASE}{URL}  api_key_env: [{PLAIN}]\n",
    "as an option": f"{BASE}{URL}  api_key: {PLAIN}\n",
    "at the top": f"api_key: {PLAIN}\n{BASE}{URL}",
    "as the model": f"kind: openai\noptions:\n  model: {KEY}\n{URL}",
    "in extra": f"{BASE}{URL}  extra: {{api_key: {PLAIN}}}\n",
    "in extra, hyphenated": f"{BASE}{URL}  extra: {{x-api-key: {PLAIN}}}\n",
    "in extra, as camels": f"{BASE}{URL}  extra: {{apiKey: {PLAIN}}}\n",
    "in extra, nested": f"{BASE}{URL}  extra: {{a: {{b: [{{auth-token: {PLAIN}}}]}}}}\n",
    "in extra, as a number": f"{BASE}{URL}  extra: {{password: 1234567890}}\n",
    "in headers": f"{BASE}{URL}  extra: {{extra_headers: {{Authorization: Bearer {PLAIN}}}}}\n",
    "in headers, as pairs": f"{BASE}{URL}  extra: {{headers: [[Authorization, Bearer {PLAIN}]]}}\n",
    "in headers, as objects": f"{BASE}{URL}  extra: {{headers: [{{name: X-Auth, value: Bearer {PLAIN}}}]}}\n",
    "in a cookie": f"{BASE}{URL}  extra: {{extra_headers: {{Cookie: session={PLAIN}}}}}\n",
    "in extra, under any name": f"{BASE}{URL}  extra: {{note: 'use {KEY}'}}\n",
    "in extra, as a name": f"{BASE}{URL}  extra: {{{KEY}: 1}}\n",
    "in the query": f"{BASE}  base_url: http://127.0.0.1:9/v1?api_key={PLAIN}\n",
    "in the query, hyphenated": f"{BASE}  base_url: http://127.0.0.1:9/v1?v=1&subscription-key={PLAIN}\n",
    "in the query, escaped": f"{BASE}  base_url: http://127.0.0.1:9/v1?api%2Dkey={PLAIN}\n",
    "behind the query": f"{BASE}  base_url: 'http://127.0.0.1:9/v1#key={PLAIN}'\n",
    "in the path": f"{BASE}  base_url: http://127.0.0.1:9/{KEY}/v1\n",
    "as the user": f"{BASE}  base_url: http://{PLAIN}@127.0.0.1:9/v1\n",
    "as the password": f"{BASE}  base_url: http://me:{PLAIN}@127.0.0.1:9/v1\n",
    "of a critic's engine": "kind: llm\noptions:\n  model: {kind: openai, options: {model: m, "
    f"base_url: 'http://127.0.0.1:9/v1', api_key: {PLAIN}}}}}\n",
}


def refused(capsys: pytest.CaptureFixture[str], tmp_path: Path, *command: str) -> str:
    """The one line that a command ends with; no key is in it, nor in any file that was written."""
    assert main(command) == 2
    shown = capsys.readouterr()
    assert not shown.out
    [line] = shown.err.splitlines()
    written = [path for path in tmp_path.rglob("*") if path.is_file() and path.parent.name != "agents"]
    for text in (line, *(path.read_text(errors="replace") for path in written)):
        assert not [key for key in (KEY, PLAIN, PLAIN.upper(), LETTERS, "AbCdEfGhIjKl", "1234567890") if key in text]
    return line


@pytest.mark.parametrize("where", FILES)
def test_a_key_in_a_file(
    where: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "odd.yaml").write_text(FILES[where])
    library = ["--library", str(tmp_path)]
    if where.startswith("of a critic"):
        line = refused(capsys, tmp_path, "critic", "calibrate", "--critic", "odd", "--env", "androidworld", *library)
    else:
        line = refused(capsys, tmp_path, "rollout", "--agents", "odd", "--episodes", "1", *library)
    assert "keys stand in the environment only" in line
    assert "api_key_env" in line
    assert "odd" in line


@pytest.mark.parametrize(
    "setting",
    [
        f"agents.*.options.api_key_env={KEY}",
        f"agents.*.options.api_key_env={PLAIN}",
        f"agents.*.options.api_key={PLAIN}",
        f"agents.*.api_key={PLAIN}",
        f"agents.nobody.api_key={PLAIN}",
        f"agents.*.options.extra={{x-api-key: {PLAIN}}}",
        f"agents.*.options.base_url=http://me:{PLAIN}@h/v1",
        f"agents.*.options.api_key='{PLAIN}",
        f"agents.*.sampling={KEY}",
    ],
)
def test_a_key_in_a_setting(
    setting: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused(capsys, tmp_path, "rollout", "--agents", "openai", "--episodes", "1", "--set", setting)


@pytest.mark.parametrize(
    "name", ["OPENAI_API_KEY", "my_key", "TEAM_2_TOKEN", "key_of_project_2024_b", "OPENROUTERACCESS2024", ""]
)
def test_names_of_variables_are_no_keys(name: str) -> None:
    from collab.utils.redact import find_misplaced_key

    replies = ["Basic navigation: open 3 menus", "Bearer of news"]
    extra = {
        "top_k": 3,
        "replies": replies,
        "eos_token": "<|end|>",
        "max_tokens": 5,
        "use_token": True,
        "chat_template_kwargs": {"a": "b"},
    }
    url = "https://host.example/v1?api-version=2024-06-01"
    assert find_misplaced_key({"api_key_env": name or "OPENAI_API_KEY", "base_url": url, "extra": extra}) is None
