"""Rows that teach an adversary: the questions that a model would be asked, with synthesised mistakes as answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from collab.data.parquet import read_rows
from collab.preferences.store import read_pairs
from collab.testing.fake_server import FakeServer

Collab = Callable[..., tuple[int, str, str]]
PLAY = ("--env", "corridor", "--agents", "rehearsal", "--graph", "chain4", "--episodes", "2", "--out", "run")


def test_they_ask_what_an_adversary_behind_a_server_is_asked(collab: Collab) -> None:
    assert collab("rollout", *PLAY)[0] == 0
    assert collab("pairs", "rebuild", "run", "--source", "adversary", "--name", "sampled")[0] == 0
    code, out, err = collab("pairs", "rows", "run", "--out", "rows", "--json")
    assert code == 0, err
    rows, pairs = list(read_rows(Path("rows/demonstration.parquet"))), read_pairs(Path("run"), "sampled").pairs
    assert json.loads(out) == {"file": "rows/demonstration.parquet", "rows": len(rows), "left_out": 0}
    assert len(rows) == len(pairs) > 0
    assert sorted(one.reply for one in rows) == sorted(str(one.synthetic) for one in pairs)
    assert {one.provenance.teacher.partition(":")[0] for one in rows} == {"sampler-1"}

    # The same replies, with a model in the sampler's place.
    with FakeServer(says=lambda body: "I would rather not.") as server:
        options = {"model": "fake", "base_url": server.url, "api_key_env": "", "retries": 0}
        Path("clumsy.yaml").write_text(json.dumps({"kind": "openai", "options": options}))
        assert collab("pairs", "rebuild", "run", "--source", "adversary", "--adversary", "clumsy.yaml")[0] == 0
        asked = [one["messages"][-1]["content"] for one in server.requests if "messages" in one]
    assert all(one.prompt.user in asked for one in rows)
    assert all("Play a very clumsy user" in one.prompt.user for one in rows)


def test_what_cannot_be_written_is_one_line(collab: Collab) -> None:
    def refuse(*given: str) -> str:
        code, _, err = collab("pairs", "rows", *given)
        assert code == 2
        return err.splitlines()[-1]

    assert refuse("run") == "error: --out is missing: name the directory that is to be made"
    assert "run: not a run directory" in refuse("run", "--out", "rows")
    assert collab("rollout", *PLAY)[0] == 0
    assert "run: has no pairs; make some: collab pairs rebuild run --source adversary" in refuse("run", "--out", "rows")
    assert collab("pairs", "rebuild", "run", "--source", "contrast", "--name", "own")[0] == 0
    line = refuse("run", "--out", "rows")
    assert "pairs 'own' has a synthesised reply to what was played last; make such pairs: collab pairs" in line
    assert collab("pairs", "rebuild", "run", "--source", "adversary")[0] == 0
    assert "nowhere" in refuse("run", "--out", "rows", "--prompt", "nowhere")
    Path("rows").mkdir()
    assert "--out rows: is there already" in refuse("run", "--out", "rows")
