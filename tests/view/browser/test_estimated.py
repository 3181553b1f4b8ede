"""A training with estimates: V under each step, the rest where one points, and what was learned over its epochs."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from collab.trainers.rl.candidates import CandidateEstimate, write_candidates
from collab.trainers.rl.step_estimates import ESTIMATES, read_estimates, write_estimates
from collab.utils.files import write_json
from collab.view.estimates import build_calibrations
from collab.view.schema.episodes import EpisodeFilter

pytestmark = pytest.mark.browser

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture
def training(estimated, serving):
    """The training, shown: address, inspector and its id."""
    address, inspector = serving(estimated.path)
    return address, inspector, inspector.list_ids()[0]


@pytest.fixture
def episode(training):
    """The first episode of its first rollout, which both epochs estimated."""
    _, inspector, id = training
    return inspector.list_episodes(id, EpisodeFilter(epoch=1)).rows[0]


@pytest.mark.medium
def test_v_stands_under_each_step_and_the_rest_where_one_points(training, episode, open_page, turn, step_place):
    address, inspector, _ = training
    (newest, own) = inspector.get_episode(episode.run, episode.id).estimates
    page = open_page(address)
    turn(page, step_place(episode.run, episode.id, 0))
    marks = page.locator(".tick .value-mark")
    assert marks.all_inner_texts() == [f"{one.value:.2f}" for one in newest.steps]
    kept = marks.evaluate_all("all => all.map((one) => one.classList.contains('kept'))")
    assert kept == [one.weight > 0 for one in newest.steps]
    panel = page.get_by_role("region", name="Estimates")
    told = panel.locator(".estimate")
    facts = dict(zip(told.locator("dt").all_inner_texts(), told.locator("dd").all_inner_texts(), strict=True))
    assert facts == {
        **{"reward": "1", "V": "0.2", "V next": "0.3", "A": "0.8", "threshold": "0.05", "weight": "1"},
        **{"V of its task": "0.9", "A over its task": "0.1"},
    }
    assert told.locator("p").inner_text() == "Step 0: learned"
    page.locator("#step-1").hover()
    assert f"Step 1: not learned, {HOSTILE}" in told.locator("p").inner_text()
    assert "0.7" in told.locator("dl").inner_text()
    page.locator("h1").hover()
    assert told.locator("p").inner_text() == "Step 0: learned"
    page.locator("#step-1").focus()
    assert told.locator("p").inner_text().startswith("Step 1: not learned")
    for attribute in ("aria-label", "title"):
        assert f"V 0.3, A 0.7, {HOSTILE}" in page.locator("#step-1").get_attribute(attribute)
    assert page.locator("main img[src=x]").count() == 0
    # The epoch in which it was played estimated it as well; a choice holds from step to step and stands in the address.
    choice = page.get_by_label("Which epoch's estimates")
    assert [one.strip("\u2068\u2069") for one in choice.locator("option").all_inner_texts()] == [
        *("epoch 2, the newest", "epoch 1, in which it was played")
    ]
    choice.select_option("1/shared")
    page.wait_for_function("value => document.querySelector('.value-mark')?.textContent === value", arg="0.10")
    assert marks.all_inner_texts() == [f"{one.value:.2f}" for one in own.steps]
    page.keyboard.press("ArrowRight")
    page.wait_for_selector(".tick#step-1[aria-current]")
    assert "estimates=1%2Fshared" in page.evaluate("location.hash")
    assert marks.first.inner_text() == "0.10"


@pytest.mark.medium
def test_what_was_learned_stands_in_a_panel(training, open_page, turn):
    address, inspector, id = training
    found = inspector.get_overview(id)
    page = open_page(address)
    turn(page, f"#/run/{id}")
    panel = page.get_by_role("region", name="What was learned from")
    titles = panel.locator("h3").all_inner_texts()
    assert titles == [
        *("Kept, of what was remembered", "Steps left out, by cause", "Accuracy on episodes held out"),
        *("AUC on episodes held out", "Calibration error (ECE) on episodes held out", "How often V came true, epoch 2"),
    ]
    calibration = panel.locator("figure").last
    calibration.locator("summary").click()
    shown = [row.all_inner_texts() for row in (one.locator("th, td") for one in calibration.locator("tbody tr").all())]
    (_, states, tasks) = [one.bins for one in found.calibrations[1:]]
    assert shown == [
        [f"{one.low:.0%}–{one.high:.0%}", *(f"100% of {bin.count}" if bin.count else "–" for bin in (one, other))]
        for one, other in zip(states, tasks, strict=True)
        if one.count or other.count
    ]
    panel.get_by_label("Which epoch's calibration").select_option("1/shared")
    assert panel.locator("h3").last.inner_text() == "How often V came true, epoch 1"
    # What this algorithm has not is not drawn: neither pairs nor agents' rewards.
    drawn = page.get_by_role("region", name="Over epochs").locator("h3, figcaption").all_inner_texts()
    assert "Agreement" in drawn
    assert not {"Pairs by source", "Without a pair, by cause", "Reward rate by agent"} & set(drawn)
    epoch = page.get_by_role("region", name="One epoch").inner_text()
    part, whole = found.epochs[-1].kept["steps"]
    assert f"{part} of {whole}" in epoch
    assert "accuracy 0.75, AUC 0.63, ECE 0.13, n = 9" in epoch
    assert f"{HOSTILE}" in epoch
    assert page.locator("main img[src=x]").count() == 0


@pytest.mark.medium
def test_estimates_that_are_missing_are_told_in_words(estimated, training, episode, open_page, turn, step_place):
    address, _, id = training
    for number in (1, 2):
        (estimated.get_epoch(number).examples / "shared" / ESTIMATES).unlink()
    page = open_page(address)
    turn(page, f"#/run/{id}")
    panel = page.get_by_role("region", name="What was learned from")
    assert "How often V came true" not in panel.inner_text()
    said = f"epochs/1/examples/shared/{ESTIMATES}: is missing"
    assert said in panel.locator(".note").inner_text()
    turn(page, step_place(episode.run, episode.id, 0))
    assert page.get_by_role("region", name="Estimates").count() == 0
    assert page.locator(".value-mark").count() == 0
    assert said in page.locator("main .note").first.inner_text()


@pytest.mark.medium
@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_estimates_can_be_read_by_all_on_all_windows(training, episode, open_page, turn, step_place, faults, theme):
    address, _, id = training
    page = open_page(address, color_scheme=theme)
    found = {}
    for place, quick in ((f"#/run/{id}", (1280,)), (step_place(episode.run, episode.id, 1), (390,))):
        turn(page, place)
        found[place] = faults(page, quick if theme == "light" else (390, 1280))
    assert {place: told for place, told in found.items() if told} == {}


@pytest.mark.medium
def test_candidates_stand_beside_the_executed_reply(estimated, serving, open_page, turn, step_place):
    """Sorted by Q, with advantage and truth; texts from outside stay texts."""
    lesson = estimated.get_epoch(2).examples / "shared"
    steps = list(read_estimates(lesson))
    first = steps[0]
    place = {"run": first.run, "trajectory": first.trajectory, "step": 0}
    write_estimates([replace(one, target=1.2, step_reward=1.0, value_next=None) for one in steps], lesson)
    write_candidates(
        [
            CandidateEstimate(**place, count=3, text="Go.", action="click(1)", value=0.25, advantage=-0.5, truth=0.0),
            CandidateEstimate(**place, count=1, text=HOSTILE, action=None, value=1.75, advantage=1.5, truth=None),
            CandidateEstimate(**place, count=1, text="On.", action="click(2)", value=0.5, advantage=0.1, truth=1.0),
        ],
        lesson,
    )
    address, inspector = serving(estimated.path)
    page = open_page(address)
    episode = inspector.list_episodes(inspector.list_ids()[0], EpisodeFilter(epoch=1)).rows[0]
    turn(page, step_place(episode.run, episode.id, 0))
    panel = page.get_by_role("region", name="Estimates", exact=True)
    names = panel.locator("dl dt").all_inner_texts()
    assert "Q after the fit" in names
    assert {"return", "reward of the step"} <= set(names)
    assert "V" not in names
    table = panel.get_by_role("table", name="Other replies to the state of step 0, not executed")
    rows = [row.locator("th, td").all_inner_texts() for row in table.locator("tbody tr").all()]
    assert rows == [
        ["no action", "1×", "1.75", "1.5", "–", HOSTILE],
        ["click(2)", "1×", "0.5", "0.1", "leads on", "On."],
        ["click(1)", "3×", "0.25", "-0.5", "leads astray", "Go."],
    ]
    assert page.locator("main img[src=x]").count() == 0
    page.locator("#step-1").hover()
    assert panel.get_by_role("table").count() == 0
    # What is fitted to a return is no probability of success, so nothing is drawn of how well it fits outcomes.
    assert [one.epoch for one in build_calibrations(estimated.path)[0] if one.rated == "states"] == [1]


@pytest.mark.slow
def test_how_right_q_is_is_drawn_over_epochs(estimated, serving, open_page, turn):
    for number in (1, 2):
        truth = {"states": 9, "pairs": 7, "rank_accuracy": 0.5 + number / 10, "auc": None, "regret": 0.2, "chance": 0.4}
        told = {
            **{"states": 10, "apart": 4, "distinct": 0.5, "distinct_actions": 0.4, "failed": {}},
            **{"explained": None, "mean_return": 1.2, "mean_length": 3.0, "length_correlation": None, "truth": truth},
        }
        path = estimated.get_epoch(number).record
        record = json.loads(path.read_text())
        write_json(path, {**record, "algorithm": "coach", "metrics": {"solved": 3, "coach": told}})
    head = estimated.read()
    estimated.write({**head, "config": {**head["config"], "algorithm": "coach"}})
    address, inspector = serving(estimated.path)
    page = open_page(address)
    turn(page, f"#/run/{inspector.list_ids()[0]}")
    panel = page.get_by_role("region", name="What was learned from")
    titles = panel.locator("figcaption, .chart h3").all_inner_texts()
    assert {"Replies to one state", "Q in truth: worth lost by its choice", "Returns"} <= set(titles)
    assert not any("episodes held out" in title for title in titles)
    chart = panel.locator("figure", has_text="Q in truth: pairs that it ranks right")
    chart.get_by_text("Numbers").click()
    assert [row.locator("th, td").all_inner_texts() for row in chart.locator("tbody tr").all()] == [
        ["1", "0.60"],
        ["2", "0.70"],
    ]
