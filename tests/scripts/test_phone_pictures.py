"""The script that draws all screens."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest
from PIL import Image

from collab.envs.simphone.apps import STANDARD
from collab.envs.simphone.suite import SimPhoneSuite

ROOT = Path(__file__).parents[2]


@pytest.fixture
def phone_pictures(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import phone_pictures

    return phone_pictures


@pytest.mark.slow
def test_sheets_are_written_and_what_was_not_found_is_told(
    phone_pictures: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    infos = [info for info in SimPhoneSuite().tasks() if info.name in ("SystemBrightnessMax", "ContactsAddContact")]
    monkeypatch.setattr(SimPhoneSuite, "tasks", lambda suite: infos)
    monkeypatch.setattr(phone_pictures, "STRANGE", phone_pictures.STRANGE[:1])
    monkeypatch.setattr(sys, "argv", ["phone_pictures.py", "--out", str(tmp_path), "--rounds", "1", "--dark"])
    assert phone_pictures.main() == 1
    *sheets, told = capsys.readouterr().out.splitlines()
    assert {Path(sheet) for sheet in sheets} == set(tmp_path.glob("sheet *.png"))
    assert "recipe.editor" in told.partition("not found: ")[2]
    brightness = Image.open(tmp_path / "screens settings.brightness (sheet).png")
    assert brightness.size == (1080, 2400)
    assert sum(Image.open(sheets[0]).size) > 2000


@pytest.mark.slow
def test_random_steps_find_what_solutions_do_not_pass(phone_pictures: ModuleType) -> None:
    suite = SimPhoneSuite()
    album = phone_pictures.Album(dark=False)
    phone_pictures.walk_oracles(album, suite)
    on_the_way = set(album.screens)
    phone_pictures.wander(album, suite, rounds=1)
    assert on_the_way < album.screens <= set(STANDARD.screens)
