"""Text in scripts that the bundled font does not know."""

from __future__ import annotations

import pytest
from PIL import features

from collab.envs.simphone.ui import paint
from collab.envs.simphone.ui.paint import Canvas, measure_text

FONTS = pytest.mark.skipif(
    not (paint._list_installed() and features.check("fribidi")), reason="no font with more scripts, or no libfribidi"
)


def drawn(text: str) -> bytes:
    canvas = Canvas(900, 100, (255, 255, 255))
    canvas.line(text, 20, 50, 42, (0, 0, 0), width=860)
    return canvas.image.tobytes()


@FONTS
def test_hebrew_runs_from_right_to_left() -> None:
    aleph, lamed = (paint._draw_text_mask(letter, 42, False) for letter in "אל")
    word = paint._draw_text_mask("אל", 42, False)
    left = word.crop((0, 0, lamed.width - 4, word.height))
    assert left.tobytes() == lamed.crop((0, 0, lamed.width - 4, word.height)).tobytes()
    assert left.tobytes() != aleph.crop((0, 0, lamed.width - 4, word.height)).tobytes()


@FONTS
def test_arabic_letters_join() -> None:
    assert measure_text("ععع", 42) < 3 * measure_text("ع", 42)


@FONTS
def test_latin_between_hebrew_keeps_its_direction() -> None:
    assert drawn("אב Milk") != drawn("אב kliM")
    assert drawn("אב 12") != drawn("אב 21")


@pytest.mark.parametrize("text", ["🎉🚀👩‍👩‍👧", "日本語", "ไทย", "שלום مرحبا", "\ud83d half", "\u202eabc\u202c"])
def test_whatever_is_written_is_drawn_in_its_width(text: str) -> None:
    canvas = Canvas(400, 100, (255, 255, 255))
    end = canvas.line(text, 20, 50, 42, (0, 0, 0), width=200)
    assert 20 <= end <= 220
    assert canvas.image.crop((230, 0, 400, 100)).getcolors() == [(17000, (255, 255, 255))]


def test_without_any_other_font_the_bundled_one_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paint, "_list_installed", lambda: ())
    assert paint._choose_font("שלום 🎉", 42).getname() == paint.load_font(42).getname()
