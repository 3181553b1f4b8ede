"""The reliability picture: bars, dots and counts stand where the numbers say."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import pytest
from matplotlib.figure import Figure

from collab.rewards.calibration.metrics import Calibration, KnownStep, compute_auc, compute_ece, compute_reliability
from collab.rewards.calibration.record import CalibrationRecord
from collab.rewards.calibration.run import draw_reliability
from collab.utils.plotting import to_svg

SVG = "{http://www.w3.org/2000/svg}"
KNOWN = [
    *(KnownStep(score=0.25, good=good) for good in (True, False, False, False)),
    *(KnownStep(score=0.95, good=good) for good in (True, True, False)),
]


def drawn(known: list[KnownStep], bins: int = 10) -> Figure:
    picture = compute_reliability(known, bins)
    numbers = Calibration(
        critic="llm-1",
        cases=1,
        cells=len(known),
        missing={},
        mean_scores={},
        accuracy=None,
        auc=compute_auc(known),
        picture=picture,
        ece=compute_ece(picture),
        retest=None,
        position_effects={},
        position_bias=None,
        length_bias=None,
    )
    record = CalibrationRecord(
        critic="a <critic> & more", label="llm-1", digest="", config={}, environment="fake", environment_version="1"
    )
    return draw_reliability(replace(record, numbers=numbers))


def words(picture: Figure) -> list[str | None]:
    return [text.text for text in ElementTree.fromstring(to_svg(picture)).iter(f"{SVG}text")]


def test_bars_and_dots_are_as_high_as_the_share_of_good_actions() -> None:
    axes = drawn(KNOWN).axes[0]
    bars = {bar.get_x(): bar.get_height() for bar in axes.patches if bar.get_height()}
    assert bars == pytest.approx({0.2: 0.25, 0.9: 2 / 3})
    diagonal, dots = (line.get_xydata().ravel() for line in axes.lines)
    assert dots == pytest.approx([0.25, 0.25, 0.95, 2 / 3])
    assert list(diagonal) == [0, 0, 1, 1]


def test_every_column_says_how_many_actions_it_has() -> None:
    said = words(drawn(KNOWN))
    start = said.index("actions with such a score") + 1
    assert said[start : start + 10] == ["0", "0", "4", "0", "0", "0", "0", "0", "0", "3"]
    assert "a <critic> & more (llm-1)" in said
    error = compute_ece(compute_reliability(KNOWN))
    counted = f"AUC {compute_auc(KNOWN):.3f}, calibration error {error:.3f}, 7 scored actions"
    assert f"on fake; {counted}" in said


def test_without_scores_there_are_axes_and_no_bars() -> None:
    picture = drawn([], bins=4)
    axes = picture.axes[0]
    assert not any(bar.get_height() for bar in axes.patches)
    assert len(axes.lines[1].get_xdata()) == 0
    assert "on fake; AUC not known, calibration error not known, 0 scored actions" in words(picture)
    assert words(picture)[-4:] == ["0"] * 4


def test_the_same_numbers_give_the_same_file() -> None:
    assert to_svg(drawn(KNOWN)) == to_svg(drawn(KNOWN))
