"""Trainings that were resumed or are not over, beside other runs: what numbers are of, and that all of it fits."""

from __future__ import annotations

import json
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from collab.loop.record import EpochRecord, Spending, TrainingDir
from collab.utils.files import write_json
from collab.view.markdown import report

pytestmark = pytest.mark.browser

DAY_S = 86_400
WIDTHS = (390, 1024, 1440)
BEYOND = """() => {
  const scrolls = (one) => ["auto", "scroll"].includes(getComputedStyle(one).overflowX);
  const isBoxed = (one) => one.closest(".unseen, .skip") || (one.parentElement?.closest(".scroll") ?? null) !== null;
  const found = [...document.body.querySelectorAll("*")].filter((one) => {
    const box = one.getBoundingClientRect();
    const isCut = getComputedStyle(one).overflowX === "hidden" && one.scrollWidth > one.clientWidth + 1;
    return !isBoxed(one) && box.width > 0 && (box.right > innerWidth + 1 || (isCut && !scrolls(one)));
  });
  const page = document.documentElement;
  return [...(page.scrollWidth > innerWidth ? ["the page"] : []), ...found.map((one) => one.outerHTML.slice(0, 120))];
}"""
"""What stands beyond the window and not in a box that scrolls."""


@pytest.fixture
def runs(recorded, tmp_path) -> Path:
    """A run, and a training in its second epoch, whose critic has labelled half of it; the first epoch was resumed."""
    folder = TrainingDir(tmp_path / "runs" / "marl")
    for number in (1, 2):
        shutil.copytree(recorded, rollout := folder.get_epoch(number).rollout)
        (rollout / "labels" / "oracle").rename(rollout / "labels" / "training")
    (labels,) = (folder.get_epoch(2).rollout / "labels" / "training" / "events").iterdir()
    lines = labels.read_text().splitlines(keepends=True)
    labels.write_text("".join(lines[: len(lines) // 2]))
    shutil.copytree(recorded, folder.get_epoch(1).evaluation / "seed-30")
    folder.write(
        {
            "config": {"algorithm": "collabuiagents", "method": {"epochs": 2}, "run": {}},
            "created": "2026-11-22T00:00:00.000Z",
        }
    )
    spent = {
        "rollout": Spending(calls=5),
        "critic": Spending(),
        "training": Spending(prompt_tokens=9),
        "evaluation": Spending(seconds=61.0, calls=3),
    }
    metrics = {"rewards": {"ada": [0.5, 1.0]}}
    record = EpochRecord(
        algorithm="collabuiagents", epoch=1, version=1, weights={}, metrics=metrics, spent=spent, hash=""
    )
    write_json(folder.get_epoch(1).record, record.model_dump(mode="json"))
    trained = folder.get_epoch(1).get_training_dir("shared")
    trained.mkdir()
    lines = [json.dumps({"step": step, "loss": 0.5, "seconds": seconds}) for step, seconds in ((1, 2.0), (4, 305.5))]
    (trained / "metrics.jsonl").write_text("\n".join([*lines, ""]))
    shutil.copytree(recorded, tmp_path / "runs" / "alone")
    return tmp_path / "runs"


def write_at(place: Path, days: float) -> None:
    """Let all files of a run be written so many days after the first one."""
    for path in (one for one in place.rglob("*") if one.is_file()):
        os.utime(path, (1.7e9 + days * DAY_S,) * 2)


@pytest.mark.medium
def test_rewards_of_a_critic_that_is_not_through_are_not_final(runs, serving, open_page, turn):
    address, inspector = serving(runs / "marl")
    id = inspector.list_runs().runs[0].id
    epochs = inspector.get_overview(id).epochs
    assert epochs[0].rewards.labelled == epochs[0].rewards.cells
    labelled, cells = epochs[1].rewards.labelled, epochs[1].rewards.cells
    assert 0 < labelled < cells == epochs[0].rewards.cells
    page = open_page(address)
    turn(page, f"#/run/{id}")
    told = f"{labelled} of {cells} cells labelled"
    assert page.locator(".epoch-body .note").inner_text() == f"Not final: {told}."
    assert f"Rewards of epoch 2 are not final: {told}." in page.locator("main").inner_text()
    page.get_by_label("Which epoch").select_option("1")
    assert page.locator(".epoch-body .note").count() == 0
    assert f"Epoch 2 is not final: {told}." in report(inspector.get_run(id), inspector.get_overview(id))


@pytest.mark.medium
def test_after_a_resume_times_come_from_logs_or_it_is_said_why_not(runs, serving, open_page, turn):
    address, inspector = serving(runs / "marl")
    row = inspector.list_runs().runs[0]
    played = [inspector.get_row(part.id) for part in inspector.get_run(row.id).parts]
    assert row.seconds == pytest.approx(61 + 305.5 + played[0].seconds + played[2].seconds)
    page = open_page(address)
    turn(page, f"#/run/{row.id}")
    page.get_by_label("Which epoch").select_option("1")
    table = page.get_by_role("region", name="What the parts took")
    shown = {one.locator("th bdi").inner_text(): one for one in table.locator("tbody tr").all()}
    times = {name: one.locator("td").first.inner_text() for name, one in shown.items()}
    assert times == times | {"training": "5 min 6 s", "evaluation": "1 min 1 s", "critic": "–"}
    assert times["rollout"].endswith("s")
    notes = {name: one.locator("small").all_inner_texts() for name, one in shown.items()}
    assert notes["evaluation"] == []
    assert notes["rollout"] == ["time by its log, as the training was resumed"]
    assert notes["training"] == ["time of its logged steps, as the training was resumed"]
    assert notes["critic"] == ["time not known: the training was resumed, and no log tells it"]
    text = report(inspector.get_run(row.id), inspector.get_overview(row.id))
    assert "- Epoch 1, critic: time not known: the training was resumed, and no log tells it." in text


@pytest.mark.medium
def test_nothing_is_cut_at_the_right_of_a_window(runs, serving, open_page, turn, step_place):
    address, inspector = serving(runs)
    alone, marl = sorted(inspector.list_runs().runs, key=lambda row: row.path)
    row = inspector.compare(alone.id, marl.id).both[0].a
    places = ["#/", f"#/compare/{alone.id}/{marl.id}", step_place(row.run, row.id, 0)]
    for id in (marl.id, inspector.get_run(marl.id).parts[0].id):
        places += [f"#/run/{id}", f"#/run/{id}/episodes", f"#/run/{id}/highlights/overruled"]
    page = open_page(address)
    found = {}
    for place in places:
        turn(page, place)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 800})
            found[place, width] = page.evaluate(BEYOND)
    assert {place: told for place, told in found.items() if told} == {}
    turn(page, f"#/run/{marl.id}")
    page.set_viewport_size({"width": 390, "height": 800})
    tables = page.locator(".scroll[aria-label='Success by task'], .chart .scroll")
    sizes = tables.evaluate_all("all => all.map((one) => one.scrollWidth - one.clientWidth)")
    assert set(sizes) == {0}, "small tables fit"


def test_a_picture_of_one_epoch_is_whole(team, open_page):
    page = open_page(team[0], viewport={"width": 390, "height": 800})
    drawn = """async () => {
      const { lineChart } = await import("/static/chart.js");
      const { duration } = await import("/static/figures.js");
      const parts = ["rollout", "critic", "adversary", "training", "evaluation", "rollout, not learned from"];
      const options = { title: "Time by part", kind: "time", show: duration };
      const points = (epochs, place) => epochs.map((x) => ({ x, y: 107 + place }));
      const series = (epochs) => parts.map((name, place) => ({ name, points: points(epochs, place) }));
      const charts = [lineChart(series([1]), options), lineChart(series([0, 1]), options)];
      document.querySelector("main").replaceChildren(...charts);
      const boxes = charts.map((one) => one.querySelector(".scroll"));
      boxes.forEach((one) => one.closest("details")?.setAttribute("open", ""));
      return [
        boxes.map((one) => one.scrollWidth - one.clientWidth),
        [...boxes[0].querySelectorAll("tbody th")].map((one) => one.textContent),
        [...charts[1].querySelectorAll(".tick")].map((one) => one.textContent),
      ];
    }"""
    hidden, names, ticks = page.evaluate(drawn)
    assert hidden == [0, 0]
    assert names == ["rollout", "critic", "adversary", "training", "evaluation", "rollout, not learned from"]
    assert ticks[0] == "0", "heights of times can be compared"


@pytest.mark.medium
def test_the_list_of_runs_begins_with_what_was_written_last(runs, recorded, serving, open_page):
    shutil.copytree(recorded, runs / "old")
    for name, days in (("old", 0), ("alone", 2), ("marl", 1)):
        write_at(runs / name, days)
    os.utime(
        next((runs / "marl" / "epochs" / "2" / "rollout" / "labels" / "training" / "events").iterdir()), (2e9, 2e9)
    )
    address, _ = serving(runs)
    page = open_page(address)

    def names() -> list[str]:
        return [name.rpartition("/runs/")[2] for name in page.locator("tbody a.run-link").all_inner_texts()]

    assert names() == ["marl", "alone", "old"]
    assert page.locator("p[role=status]").first.inner_text() == "3 runs, last written first"
    head = page.locator("th[aria-sort]")
    assert (head.inner_text(), head.get_attribute("aria-sort")) == ("Last written ↓", "descending")
    when = datetime.fromtimestamp(2e9, UTC)
    assert f"{when:%H:%M} UTC" in page.locator("tbody tr").first.inner_text()
    page.get_by_role("button", name="3 runs of it").click()
    parts = ["epochs/1/rollout", "epochs/1/evaluation/seed-30", "epochs/2/rollout"]
    assert names() == ["marl", *parts, "alone", "old"]
    page.get_by_role("button", name="Run", exact=True).click()
    assert names() == ["alone", "marl", *parts, "old"], "parts stay below their training"
    page.get_by_label("Name, environment, team").fill("seed-30")
    assert names() == ["marl", "epochs/1/evaluation/seed-30"]
    page.locator("tr.part a.run-link").click()
    page.wait_for_selector("h1:has-text('seed-30')")


def test_columns_mean_the_same_for_runs_and_trainings(runs, serving, open_page):
    address, _ = serving(runs)
    page = open_page(address)
    heads = page.locator("thead th").all_inner_texts()
    rows = {
        row.locator("a.run-link").inner_text().rpartition("/")[2]: dict(
            zip(heads, row.locator("th, td").all_inner_texts(), strict=True)
        )
        for row in page.locator("tbody tr").all()
    }
    assert (rows["marl"]["Epochs"], rows["marl"]["Episodes"]) == ("1/2", "9")
    assert (rows["alone"]["Epochs"], rows["alone"]["Episodes"]) == ("", "3/3")
    assert "of its last rollout" in rows["marl"]["Success"]
    told = page.locator("main").inner_text()
    assert "Episodes, steps, tokens and cost of a training are those of all its runs" in told


@pytest.mark.medium
def test_a_training_shows_the_metrics_that_it_logged_and_no_others(runs, serving, open_page, turn):
    trained = TrainingDir(runs / "marl").get_epoch(2).get_training_dir("shared")
    trained.mkdir()
    lines = [json.dumps({"step": step, "loss": 1 / step, "token_accuracy": 0.5, "margin": None}) for step in (1, 2)]
    (trained / "metrics.jsonl").write_text("\n".join([*lines, ""]))
    address, inspector = serving(runs / "marl")
    page = open_page(address)
    turn(page, f"#/run/{inspector.list_runs().runs[0].id}")
    policy = page.locator(".epoch-body .trained")
    assert policy.locator("p").first.inner_text() == "2 steps, 0 tokens, loss 0.500, token accuracy 0.500"
    titles = [one.removesuffix(", by step") for one in policy.locator("figure h3").all_inner_texts()]
    assert titles == ["Loss", "Accuracy: tokens that are the likeliest"]
    trends = page.get_by_role("region", name="Over epochs").inner_text()
    assert "Accuracy: tokens that are the likeliest" in trends
    assert "argin" not in page.locator("main").inner_text()
