"""Measure the inspector on a run of 1,000 episodes, 20,000 steps and 240,000 judged cells.

    python scripts/bench_view.py                         # makes the run (about a minute, 1 GB), measures, deletes it
    python scripts/bench_view.py --run runs/big          # one that view_run.py has made
    python scripts/bench_view.py --quick                 # 30 episodes of 8 steps: whether it works, not how fast it is

start    From the command to the printed address; what is named is opened meanwhile.
open     From the first request of a fresh server to the last answer that the overview needs.
steps    Steps at random places, none twice, so that no answer comes out of a cache: the answers about the episode and
         about the step (step_ms is both, episode_ms the first), the exact words of one cell, the picture, drawn anew.
         first_ms is the first one, of a fresh server that has listed nothing.
folder   The first step of a run that was not named itself but lies in a folder.
bare     A few steps of the run without its own index, once the server has built one, which takes index_s.
finds    The three jumps, a search and a page of episodes.
memory   The most memory that a server had in all this.
export   50 episodes as one file, by a process of its own.

What is measured is `collab view` as people start it, asked over HTTP by another process. Printed: a table, one line of
JSON (also to --out).
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from view_run import Size, make_run

from collab.testing.benchmarks import BenchTarget, Figures, measure_ms, report
from collab.utils.machine import read_memory_mb
from collab.view.inspector import Inspector

COLLAB = (sys.executable, "-c", "from collab.__main__ import run; run()")
QUICK = Size(episodes=30, steps=8, played=12)
BARE = 50
"""Steps that are asked for without the run's own index."""

TARGETS = (
    BenchTarget("open", "open_s", "s", 1.0),
    BenchTarget("steps", "step_ms_max", "ms", 100.0),
    BenchTarget("memory", "server_mb", "MB", 300.0),
    BenchTarget("export", "report_mb", "MB", 15.0),
)


@dataclass(frozen=True, slots=True)
class Server:
    """A started `collab view`, and the one connection over which it is asked."""

    process: subprocess.Popen[str]
    connection: http.client.HTTPConnection
    start_s: float
    """From the command to its address."""

    def get(self, path: str, **query: str | int) -> bytes:
        """An answer below /api/; RuntimeError when it is none."""
        self.connection.request("GET", f"/api/{path}" + (f"?{urlencode(query)}" if query else ""))
        response = self.connection.getresponse()
        content = response.read()
        if response.status != 200:
            raise RuntimeError(f"/api/{path}: {response.status} {content[:200]!r}")
        return content

    def ask(self, path: str, **query: str | int) -> Any:
        """The same as data."""
        return json.loads(self.get(path, **query))

    def most_mb(self) -> float:
        """The most memory that it had in RAM, in MB (10^6 bytes)."""
        return read_memory_mb("VmHWM", self.process.pid)


@contextlib.contextmanager
def serve(run: Path, *, cache: Path | None = None) -> Iterator[Server]:
    """`collab view` on a run, until the end of the block; `cache` in place of the user's."""
    command = [*COLLAB, "view", str(run), "--port", "0", "--no-open", "--no-token"]
    given = None if cache is None else {**os.environ, "XDG_CACHE_HOME": str(cache)}
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=given) as process:
        try:
            address = urlsplit(process.stdout.readline().strip() if process.stdout else "")
            start_s = time.perf_counter() - start
            if address.hostname is None or address.port is None:
                raise RuntimeError("collab view did not start; run it by hand to see why")
            connection = http.client.HTTPConnection(address.hostname, address.port, timeout=120)
            yield Server(process, connection, start_s)
            connection.close()
        finally:
            process.terminate()


def bench_open(server: Server) -> tuple[Figures, str]:
    """Everything that the overview of a run asks for, of a server that has answered nothing yet; and the run's id."""
    start = time.perf_counter()
    run = server.ask("runs")["runs"][0]["id"]
    listed = time.perf_counter()
    server.get(f"run/{run}")
    overview = server.ask(f"run/{run}/overview")
    server.get(f"run/{run}/problems")
    whole = time.perf_counter()
    cells = sum(
        len(one["rewards"]["agents"]) * one["rewards"]["rounds"] for one in overview["epochs"] if one["rewards"]
    )
    steps = overview["run"]["steps"]
    return {
        "episodes": overview["run"]["done"],
        "steps": steps,
        "cells": steps * cells,
        "runs_s": round(listed - start, 3),
        "open_s": round(whole - start, 3),
    }, run


def places(server: Server, run: str, count: int) -> list[tuple[str, int]]:
    """Steps at random, by seed; none twice."""
    rows: list[dict[str, Any]] = []
    whole = 1
    while len(rows) < whole:
        page = server.ask(f"run/{run}/episodes", offset=len(rows), limit=1000)
        rows += page["rows"]
        whole = page["total"]
    every = [(row["id"], step) for row in rows for step in range(row["steps"])]
    return random.Random(7).sample(every, min(count, len(every)))


def bench_steps(server: Server, run: str, wanted: Sequence[tuple[str, int]]) -> Figures:
    """Milliseconds for the answers about single steps."""
    spent: dict[str, list[float]] = {"episode": [], "step": [], "cell": [], "picture": []}
    for episode, step in wanted:
        at: dict[str, str | int] = {"episode": episode, "step": step}
        _time_call(spent["episode"], lambda episode=episode: server.get(f"run/{run}/episode", episode=episode))
        found = _time_call(spent["step"], lambda at=at: server.ask(f"run/{run}/step", **at))
        spent["step"][-1] += spent["episode"][-1]
        cell = found["cells"][-1]
        who = {"agent": cell["agent"], "round": cell["round"]}
        _time_call(spent["cell"], lambda at=at, who=who: server.get(f"run/{run}/cell", **at, **who))
        _time_call(spent["picture"], lambda at=at: server.get(f"run/{run}/drawn", **at))
    return {"first_ms": round(spent["step"][0], 1)} | {
        f"{what}_ms{suffix}": round(of(values), 1)
        for what, values in spent.items()
        for suffix, of in (("", statistics.median), ("_p95", _p95), ("_max", max))
    }


def bench_bare(run: Path, folder: Path, wanted: Sequence[tuple[str, int]]) -> Figures:
    """Seconds until the overview of a copy without an index, and milliseconds for its steps from then on."""
    bare = folder / "bare"
    shutil.copytree(run, bare, copy_function=_link, ignore=shutil.ignore_patterns("index.sqlite*"))
    with serve(bare, cache=folder / "cache") as server:
        opened, id = bench_open(server)
        asked = bench_steps(server, id, wanted)
    return {"index_s": opened["open_s"], **{name: asked[name] for name in ("step_ms", "step_ms_max")}}


def bench_folder(run: Path, folder: Path, wanted: Sequence[tuple[str, int]]) -> Figures:
    """Milliseconds for a step of the run as one in a folder."""
    shelf = folder / "shelf"
    shutil.copytree(run, shelf / "one", copy_function=_link)
    (id,) = Inspector([shelf]).list_ids()  # the server has listed nothing
    with serve(shelf) as server:
        return {"first_ms": bench_steps(server, id, wanted)["first_ms"]}


def bench_finds(server: Server, run: str) -> Figures:
    """Milliseconds for what looks at all steps."""
    figures: Figures = {}
    for kind in ("first-wrong", "overruled", "disagrees"):
        figures[f"{kind}_ms"] = round(measure_ms(partial(server.get, f"run/{run}/highlights", kind=kind)), 1)
    figures["search_ms"] = round(measure_ms(lambda: server.get(f"run/{run}/search", q="contacts")), 1)
    page = measure_ms(lambda: server.get(f"run/{run}/episodes", sort="agreement", limit=200))
    return figures | {"page_ms": round(page, 1)}


def bench_export(run: Path, folder: Path) -> Figures:
    """Size of a report, and what it took."""
    out = folder / "report.html"
    start = time.perf_counter()
    done = subprocess.run([*COLLAB, "view", str(run), "--export", str(out)], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"collab view --export failed: {done.stderr[-500:]}")
    return {"report_mb": round(out.stat().st_size / 1e6, 2), "export_s": round(time.perf_counter() - start, 1)}


def measure(run: Path, folder: Path, *, steps: int) -> dict[str, Figures]:
    """All parts on one run."""
    with serve(run) as server:
        opened, id = bench_open(server)
        wanted = places(server, id, steps)
        most, started = server.most_mb(), {"start_s": round(server.start_s, 2)}
    with serve(run) as server:  # which has answered nothing yet
        asked = bench_steps(server, id, wanted)
        parts = {"start": started, "open": opened, "steps": asked, "finds": bench_finds(server, id)}
        parts["memory"] = {"server_mb": round(max(most, server.most_mb()), 1)}
    parts["folder"] = bench_folder(run, folder, wanted[:1])
    return {**parts, "bare": bench_bare(run, folder, wanted[:BARE]), "export": bench_export(run, folder)}


def main() -> None:
    """Make a run if none is named, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a small run: whether it works, not how fast it is")
    parser.add_argument("--run", type=Path, help="measure on this run and make none")
    parser.add_argument("--steps", type=int, default=300, help="steps that are asked for")
    parser.add_argument("--out", type=Path, help="write the JSON here, too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, start = Path(name), time.perf_counter()
        run = options.run or make_run(folder / "big", QUICK if options.quick else Size())
        made = {} if options.run else {"make": {"seconds": round(time.perf_counter() - start, 1)}}
        measured = measure(run, folder, steps=20 if options.quick else options.steps)
    report(made | measured, TARGETS, quick=options.quick, out=options.out, say=print)


def _link(source: str, target: str) -> None:
    """The same file under another name; a copy where both are not on one disk."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _time_call(into: list[float], call: Any) -> Any:
    start = time.perf_counter()
    found = call()
    into.append(1000 * (time.perf_counter() - start))
    return found


def _p95(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=20)[-1] if len(values) > 1 else values[0]


if __name__ == "__main__":
    main()
