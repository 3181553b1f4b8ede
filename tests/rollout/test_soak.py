"""A process that plays for long does not grow: hundreds of toy episodes, recorded, with their memory and open files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from collab.testing.fake_server import FakeServer

CHILD = """
import json, os, sys, threading
from collab.cli.main import main

agents, library, out, episodes = sys.argv[1:]

def count_handles():
    return len(os.listdir("/proc/self/fd")), threading.active_count()

def measure_mib():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20

def play(name, episodes):
    asked = ["--env", "corridor", "--graph", "single", "--agents", agents, "--library", library, "--seed", "0"]
    assert main(["rollout", *asked, "--episodes", episodes, "--out", f"{out}/{name}", "--json"]) == 0

def watch():
    while not over.wait(0.02):
        seen.append(measure_mib())

play("first", "20")  # loads what is loaded once
before, seen, over = count_handles(), [], threading.Event()
watcher = threading.Thread(target=watch)
watcher.start()
play("long", episodes)
over.set()
watcher.join()
after = count_handles()
with open(f"{out}/seen.json", "w") as told:
    json.dump({"before": before, "after": after, "mib": seen}, told)
"""
ENVIRONMENT = "backend: fake\nbackends:\n  fake: {kind: fake, options: {max_steps: 4}}\n"
SERVED = "kind: openai\noptions: {model: fake, api_key_env: '', base_url: %s}\n"


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory and open files are counted in /proc")
@pytest.mark.parametrize("agents", ["rehearsal", "served"])
def test_memory_and_open_files_do_not_grow_over_episodes(agents: str, tmp_path: Path) -> None:
    library = tmp_path / "library"
    (library / "envs").mkdir(parents=True)
    (library / "envs/corridor.yaml").write_text(ENVIRONMENT)
    says = 'Reason: wait.\nAction: {"action_type": "wait"}'
    with FakeServer(says=lambda body: says) as server:
        (library / "agents").mkdir()
        (library / "agents/served.yaml").write_text(SERVED % server.url)
        asked = [agents, str(library), str(tmp_path), "600" if agents == "rehearsal" else "300"]
        done = subprocess.run([sys.executable, "-c", CHILD, *asked], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "seen.json").read_text())
    assert found["after"] == found["before"], "open files and threads"
    mib = found["mib"]
    assert len(mib) > 50
    early, late = sorted(mib[len(mib) // 4 : len(mib) // 2]), sorted(mib[-len(mib) // 4 : -len(mib) // 20])
    grown = late[len(late) // 2] - early[len(early) // 2]
    assert grown < (3 if agents == "rehearsal" else 2), "MiB over half of the episodes; kept whole, they would be more"
