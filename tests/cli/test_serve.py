"""`collab serve` around a program that behaves like vLLM where it matters: it starts slowly, answers, dies, hangs."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from collab.cli.main import main
from collab.config import AgentDefinition
from collab.models.vllm import Launch, free_port
from collab.rollout.build import build

PROGRAM = f"""#!{sys.executable}
import http.server, json, os, signal, subprocess, sys, time

arguments = sys.argv[1:]
with open(os.environ["FAKE_VLLM_LOG"], "a") as log:
    log.write(json.dumps([os.getpid(), arguments, os.environ.get("VLLM_ALLOW_RUNTIME_LORA_UPDATING")]) + "\\n")
print("INFO starting\\r10%\\r100% loaded", flush=True)
if arguments[1] == "dying":
    print("INFO key " + os.environ["MY_TOKEN"], flush=True)
    sys.exit("ValueError: no such architecture")
if arguments[1] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
if arguments[1] == "hanging":
    time.sleep(60)
if arguments[1] == "stubborn":
    helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    with open(os.environ["FAKE_VLLM_LOG"] + ".helper", "w") as log:
        log.write(str(helper.pid))

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()

def told(number, frame):
    print("INFO told " + signal.Signals(number).name, flush=True)
    if arguments[1] != "deaf":
        os._exit(0)

signal.signal(signal.SIGINT, told)
signal.signal(signal.SIGTERM, told)
port = int(arguments[arguments.index("--port") + 1])
with http.server.HTTPServer(("127.0.0.1", port), Handler) as server:
    if arguments[1] == "short":
        for _ in range(3):
            server.handle_request()
        sys.exit("RuntimeError: engine core died")
    server.serve_forever()
"""


@pytest.fixture
def vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = tmp_path / "vllm"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    monkeypatch.setenv("FAKE_VLLM_LOG", str(tmp_path / "log"))
    monkeypatch.setenv("MY_TOKEN", "a-secret-value")
    monkeypatch.delenv("COLLAB_VLLM", raising=False)
    return program


@pytest.fixture
def serving(vllm: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """Started processes, ended at the end."""
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=10)


def start(serving: list[subprocess.Popen[str]], *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", "from collab.cli.main import run; run()", "serve", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    serving.append(process)
    return process


def until(stream: Iterator[str], text: str) -> str:
    """What came up to the line with that text."""
    seen = ""
    for line in stream:
        seen += line
        if text in line:
            return seen
    raise AssertionError(f"{text!r} never came: {seen}")


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] == "Z"


def adapter_in(folder: Path, rank: int = 8, **more: object) -> Path:
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({"r": rank, **more}))
    (folder / "adapter_model.safetensors").write_bytes(b"")
    return folder


# ------------------------------------------------------------------------------------------------------ it serves


@pytest.mark.medium
@pytest.mark.variations
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_serves_until_it_is_told_to_stop(vllm: Path, serving: list[subprocess.Popen[str]], how: signal.Signals) -> None:
    process = start(serving, "stubborn", "--vllm", str(vllm), "--port", "0", "--arg=--seed=1", "--lora-rank", "12")
    assert process.stderr is not None
    seen = until(process.stderr, "healthy at http://127.0.0.1:")
    assert "running: VLLM_ALLOW_RUNTIME_LORA_UPDATING=True " in seen
    assert "100% loaded" in seen
    assert "10%" not in seen.replace("100%", "")
    process.send_signal(how)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 0
    assert f"told {how.name}" in err
    (line,) = (vllm.parent / "log").read_text().splitlines()
    pid, arguments, runtime = json.loads(line)
    assert gone(pid)
    assert gone(int((vllm.parent / "log.helper").read_text())), "nothing that it started is left"
    assert runtime == "True"
    port = arguments[arguments.index("--port") + 1]
    expected = f"--host 127.0.0.1 --port {port} --enable-prefix-caching --enable-prompt-tokens-details "
    expected += "--enable-lora --max-lora-rank 16 --max-loras 4 --seed=1"
    assert arguments == ["serve", "stubborn", *expected.split()]
    options = yaml.safe_load(out)["options"]
    assert options["base_url"] == f"http://127.0.0.1:{port}/v1"
    assert "# adapter: path/to/adapter" in out


def test_a_second_signal_ends_a_server_that_does_not_stop(
    vllm: Path, serving: list[subprocess.Popen[str]], soon: Callable[[Callable[[], bool]], bool]
) -> None:
    process = start(serving, "deaf", "--vllm", str(vllm), "--port", "0")
    assert process.stderr is not None
    until(process.stderr, "healthy at http://127.0.0.1:")
    process.send_signal(signal.SIGTERM)
    until(process.stderr, "told SIGTERM")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    assert process.returncode == 1
    pid, *_ = json.loads((vllm.parent / "log").read_text())
    assert soon(lambda: gone(pid))


def test_a_server_that_dies_while_starting_is_told_with_its_last_lines(vllm: Path, capsys) -> None:
    assert main(["serve", "dying", "--vllm", str(vllm), "--port", "0"]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("error: the server ended with exit code 1; its last output: ")
    assert last.endswith("ValueError: no such architecture")
    assert "a-secret-value" not in last


def test_a_server_that_is_killed_is_told_with_the_signal(vllm: Path, capsys) -> None:
    assert main(["serve", "killed", "--vllm", str(vllm), "--port", "0"]) == 1
    assert "ended with signal SIGKILL" in capsys.readouterr().err


@pytest.mark.slow
def test_a_server_that_dies_later_is_told(vllm: Path, capsys) -> None:
    """It answers one question about its health and two more of ours."""
    port = free_port(0)
    asking = subprocess.Popen([sys.executable, "-c", ASKING.format(port=port)])
    try:
        assert main(["serve", "short", "--vllm", str(vllm), "--port", str(port)]) == 1
    finally:
        asking.wait(timeout=10)
    shown = capsys.readouterr()
    assert "kind: openai" in shown.out
    assert "RuntimeError: engine core died" in shown.err.splitlines()[-1]


ASKING = """
import time, urllib.request
left = 2
while left:
    try:
        urllib.request.urlopen("http://127.0.0.1:{port}/health", timeout=1)
        left -= 1
    except OSError:
        pass
    time.sleep(0.3)
"""


def test_a_server_that_is_never_healthy_is_stopped(vllm: Path, capsys) -> None:
    started = time.monotonic()
    assert main(["serve", "hanging", "--vllm", str(vllm), "--port", "0", "--wait", "1"]) == 1
    assert time.monotonic() - started < 20
    assert "not healthy within 1 s; its last output: 100% loaded" in capsys.readouterr().err
    assert gone(json.loads((vllm.parent / "log").read_text())[0])


# ------------------------------------------------------------------------------------------------------ bad input


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    code = main(["serve", *arguments])
    err = capsys.readouterr().err
    assert (code, err.count("\n")) == (2, 1)
    return err


def test_without_vllm_it_says_how_to_get_one(capsys, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("COLLAB_VLLM", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "python3 -m venv vllm-env && vllm-env/bin/pip install vllm" in refused(capsys, "some/model")
    assert "--vllm 'nowhere'" in refused(capsys, "some/model", "--vllm", "nowhere")
    monkeypatch.setenv("COLLAB_VLLM", str(tmp_path))
    assert "COLLAB_VLLM" in refused(capsys, "some/model")


def test_the_environment_variable_and_the_path_are_looked_at(vllm: Path, capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLLAB_VLLM", str(vllm))
    assert main(["serve", "dying", "--port", "0"]) == 1
    monkeypatch.delenv("COLLAB_VLLM")
    monkeypatch.setenv("PATH", str(vllm.parent), prepend=os.pathsep)
    assert main(["serve", "dying", "--port", "0"]) == 1
    assert len((vllm.parent / "log").read_text().splitlines()) == 2


def test_what_cannot_be_served_is_refused_before_anything_starts(vllm: Path, capsys, tmp_path: Path) -> None:
    here = ("--vllm", str(vllm), "--port", "0")
    small, large = adapter_in(tmp_path / "small"), adapter_in(tmp_path / "large", rank=8, rank_pattern={"q_proj": 64})
    (tmp_path / "broken").mkdir()
    for arguments, said in (
        (("./no-such-model", *here), "there is no such directory"),
        (("m", *here, "--adapter", "ada"), "write it as NAME=PATH"),
        (("m", *here, "--adapter", f"ada={tmp_path / 'missing'}"), "there is no such directory"),
        (("m", *here, "--adapter", f"ada={tmp_path / 'broken'}"), "adapter_config.json is missing"),
        (("m", *here, "--adapter", f"ada={small}", "--adapter", f"ada={large}"), "given twice"),
        (("m", *here, "--adapter", f"ada={large}", "--lora-rank", "16"), "has rank 64, at most 16"),
        (("m", *here, "--lora-rank", "1000"), "allowed are 1 to 512"),
        (("m", *here, "--arg=--api-key=secret"), "export it as VLLM_API_KEY"),
    ):
        assert said in refused(capsys, *arguments), arguments
    assert not (tmp_path / "log").exists()


def test_a_port_that_is_taken_is_refused(vllm: Path, capsys) -> None:
    import socket

    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert f"--port {port}: Address already in use" in refused(
            capsys, "m", "--vllm", str(vllm), "--port", str(port)
        )


# -------------------------------------------------------------------------------------------------- the agents file


def test_the_agents_file_can_be_used_as_it_stands(tmp_path: Path) -> None:
    folder = adapter_in(tmp_path / "ada", rank=40)
    launch = Launch(executable=Path("vllm"), model="my org/model: 1", port=8123, adapters=(("ada", folder),))
    definition = AgentDefinition.model_validate(yaml.safe_load(launch.agents_file))
    model = build("models", definition, "agents/served")
    assert (model.policy.base, model.policy.adapter) == ("my org/model: 1", "ada")
    assert "--max-lora-rank 64" in launch.shell_line
    assert f"--lora-modules ada={folder}" in launch.shell_line
    plain = Launch(executable=Path("vllm"), model="m", port=1)
    assert "lora" not in plain.shell_line.lower()
    assert "adapter" not in plain.agents_file
