"""A training that learns old replies: how old and how likely each of them is, and how many there are of each kind."""

from __future__ import annotations

import asyncio

import pytest

from collab.loop.interfaces import load_algorithm
from collab.loop.loop import start
from collab.testing.toy_team import configure_toy_training, write_library
from collab.view.schema.episodes import EpisodeFilter

pytestmark = [pytest.mark.browser, pytest.mark.slow]

DISTRL = load_algorithm("distrl")
SETTINGS = (
    *("epochs=2", "determinism=fast", "held_out.before=false", "held_out.every=9"),
    "advantage_range=[-1.0,1.0]",  # what was worse than expected, such as a repetition, is learned too
)
ROWS = {
    "penalty": "penalty",
    "ratio": "ratio",
    "entropy": "entropy",
    "versions behind": "staleness",
    "priority of its episode": "priority",
}
"""Names of the panel's numbers → fields of an estimate."""


@pytest.fixture(scope="module")
def training(finetuned, tmp_path_factory):
    """Two epochs; begun before the browser, for its driver keeps a loop of its own. Not to be changed."""
    folder = tmp_path_factory.mktemp("distrl")
    library = write_library(folder / "library", finetuned)
    config = asyncio.run(configure_toy_training(library, *SETTINGS, algorithm="distrl", seed=3))
    return asyncio.run(start(config, folder / "run", device="cpu"))


def list_learned(inspector):
    """Yield row and estimate of each step of the first rollout that the last epoch learned."""
    for row in inspector.list_episodes(inspector.list_ids()[0], EpisodeFilter(epoch=1)).rows:
        for found in inspector.get_episode(row.run, row.id).estimates[:1]:
            yield from ((row, one) for one in found.steps if one.weight and one.staleness)


def test_a_step_tells_how_old_and_how_likely_its_reply_is(training, serving, open_page, turn, step_place):
    address, inspector = serving(training.path)
    learned = list(list_learned(inspector))
    row, estimate = min(learned, key=lambda found: found[1].penalty)
    assert estimate.penalty < 0, "a repetition was learned"
    page = open_page(address)
    turn(page, step_place(row.run, row.id, estimate.step))
    told = page.get_by_role("region", name="Estimates").locator(".estimate")
    facts = dict(zip(told.locator("dt").all_inner_texts(), told.locator("dd").all_inner_texts(), strict=True))
    shown = {name: float(facts[name]) for name in ROWS}
    assert shown == pytest.approx({name: getattr(estimate, field) for name, field in ROWS.items()}, rel=0.005)
    assert facts["versions behind"] == "1"


def test_an_epoch_counts_what_it_drew_and_what_it_remembers(training, serving, open_page, turn):
    address, inspector = serving(training.path)
    page = open_page(address)
    turn(page, f"#/run/{inspector.list_ids()[0]}")
    panel = page.get_by_role("region", name="One epoch")
    first, last = (DISTRL.summarize(one).histograms for one in training.records[1:])
    titles = ["Drawn replies, by versions since", "Drawn replies, by ratio", "Remembered episodes, by priority"]
    assert list(last) == titles
    assert set(last[titles[0]]) == {"0", "1"}
    for epoch, histograms in (("2", last), ("1", first)):
        panel.get_by_label("Which epoch").select_option(epoch)
        for title, bins in histograms.items():
            table = panel.get_by_role("table", name=title)
            rows = [row.locator("th, td").all_inner_texts() for row in table.locator("tbody tr").all()]
            assert [(name, int(count)) for name, count, *_ in rows] == list(bins.items()), (epoch, title)
