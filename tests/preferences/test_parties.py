"""An adversary is the same after it was stored, whatever its file left open."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from collab.credit.adversary import FREE
from collab.credit.adversary_language import SAMPLING
from collab.credit.pair_store import read_head, write_pairs
from collab.credit.pairing import Paired, Recipe
from collab.credit.pairs import Pairing
from collab.library import Library
from collab.preferences.parties import adversary_named, adversary_of
from collab.store.manifest import Manifest
from collab.store.run import RunStore
from collab.types import Sampling

NOTHING = Paired(pairing=Pairing(pairs=()), refused=Counter(), failed=Counter(), unjudged=0, untried=0, spent=FREE)


@pytest.mark.parametrize(
    ("sampling", "meant"),
    [
        ("", SAMPLING),
        ("sampling: {temperature: 0.1}\n", Sampling(temperature=0.1, max_tokens=256)),
        ("sampling: {temperature: [0.2, 0.3], stop: [x]}\n", Sampling(temperature=0.2, max_tokens=256, stop=("x",))),
    ],
)
def test_what_a_file_leaves_open_is_written_out_and_read_back(tmp_path: Path, sampling: str, meant: Sampling) -> None:
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "clumsy.yaml").write_text(f"kind: scripted\noptions: {{replies: [x]}}\n{sampling}")
    choice = adversary_named(Library(own=tmp_path), "clumsy")
    assert choice.agent is not None
    assert choice.agent.sampling.of(0, 1, "a test") == meant
    run = RunStore.create(tmp_path / "run", Manifest(command="rollout", config={}, seed=0)).path
    write_pairs(run, "one", NOTHING, recipe=Recipe(), labels=None, adversary="llm-1", options=choice.told)
    again = adversary_of(read_head(run, "one"))
    assert (again, again.told) == (choice, choice.told)
