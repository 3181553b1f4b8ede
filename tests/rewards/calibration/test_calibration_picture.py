"""The reliability picture: bars, dots and counts stand where the numbers say."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import pytest

from collab.rewards.calibration.metrics import Calibration, KnownStep, auc, ece, reliability
from collab.rewards.calibration.plot import to_svg
from collab.rewards.calibration.record import CalibrationRecord

SVG = "{http://www.w3.org/2000/svg}"
KNOWN = [
    *(KnownStep(score=0.25, good=good) for good in (True, False, False, False)),
    *(KnownStep(score=0.95, good=good) for good in (True, True, False)),
]


def drawn(known: list[KnownStep], bins: int = 10) -> ElementTree.Element:
    picture = reliability(known, bins)
    numbers = Calibration(
        critic="llm-1",
        cases=1,
        cells=len(known),
        missing={},
        mean_scores={},
        accuracy=None,
        auc=auc(known),
        picture=picture,
        ece=ece(picture),
        retest=None,
        position_effects={},
        position_bias=None,
        length_bias=None,
    )
    record = CalibrationRecord(
        critic="a <critic> & more", label="llm-1", digest="", config={}, environment="fake", environment_version="1"
    )
    return ElementTree.fromstring(to_svg(replace(record, numbers=numbers)))


def test_bars_and_dots_are_as_high_as_the_share_of_good_actions() -> None:
    picture = drawn(KNOWN)
    bars = [bar for bar in picture.iter(f"{SVG}rect") if bar.find(f"{SVG}title") is not None]
    side = float(bars[0].attrib["height"]) / 0.25
    assert [float(bar.attrib["height"]) / side for bar in bars] == pytest.approx([0.25, 2 / 3], abs=1e-3)
    dots = [(float(dot.attrib["cx"]), float(dot.attrib["cy"])) for dot in picture.iter(f"{SVG}circle")]
    assert (dots[1][0] - dots[0][0]) / side == pytest.approx(0.95 - 0.25, abs=1e-3)
    assert (dots[0][1] - dots[1][1]) / side == pytest.approx(2 / 3 - 0.25, abs=1e-3)


def test_every_column_says_how_many_actions_it_has() -> None:
    words = [text.text for text in drawn(KNOWN).iter(f"{SVG}text")]
    assert words[-11:-1] == ["0", "0", "4", "0", "0", "0", "0", "0", "0", "3"]
    assert words[0] == "a <critic> & more (llm-1)"
    assert words[2] == f"AUC {auc(KNOWN):.3f}, calibration error {ece(reliability(KNOWN)):.3f}, 7 scored actions"


def test_without_scores_there_are_axes_and_no_bars() -> None:
    picture = drawn([], bins=4)
    assert not list(picture.iter(f"{SVG}circle"))
    words = [text.text for text in picture.iter(f"{SVG}text")]
    assert words[2] == "AUC not known, calibration error not known, 0 scored actions"
    assert words[-5:-1] == ["0"] * 4
