"""Draw every screen of every SimPhone app on contact sheets, for somebody to look at.

    python scripts/phone_pictures.py --out pictures          # sheets, and each screen at full size
    python scripts/phone_pictures.py --out pictures --dark   # in the dark theme

The oracles of all tasks are walked; what they do not pass is looked for with random actions. A screen is shown once
for each way it can look: with and without the keyboard. Two more sheets show what is drawn on top: numbered boxes and
the action that is about to happen, and long, right-to-left and emoji texts. Printed: the files, and every screen that
was not found.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from collab.envs.grammar import MOBILE
from collab.envs.overlay import draw_touch
from collab.envs.random_actions import draw_action
from collab.envs.simphone.apps import STANDARD
from collab.envs.simphone.core import SimPhone
from collab.envs.simphone.shell import run
from collab.envs.simphone.state import put_setting
from collab.envs.simphone.suite import SimPhoneSuite
from collab.envs.simphone.ui.render import render
from collab.envs.simphone.ui.screen import OVERLAYS, Frame, look
from collab.types import Action, Observation, Task

COLUMNS, WIDTH, CAPTION = 5, 400, 40
ROWS = 2
STRANGE = (
    "שלום עולם, קנה חלב",
    "مرحبا بالعالم",
    "Grüße aus Zürich 🎉🚀",
    "日本語のメモ",
    "A name that is so long that it cannot possibly fit on one line of a phone, whatever the font",
)
"""Texts that are hard to draw."""


@dataclass(slots=True)
class Album:
    """Looks by name, and the action that was about to happen there; the fullest look of a name stays."""

    dark: bool
    looks: dict[str, tuple[Observation, Action | None]] = field(default_factory=dict)
    screens: set[str] = field(default_factory=set)
    """Those that have been seen."""

    def add(self, frame: Frame, coming: Action | None = None) -> None:
        """Keep a look when it is a new one, or shows more than the one before."""
        about = str(frame.page.data.get("page") or "")
        marks: list[str] = [frame.view.style] if frame.view.style in OVERLAYS else []
        marks += ["keyboard"] if frame.phone.keyboard else []
        name = (
            frame.page.screen + (f".{about}" if about.isalpha() else "") + (f" ({', '.join(marks)})" if marks else "")
        )
        if name not in self.looks or len(frame.placed.nodes) > len(self.looks[name][0].elements):
            shown = put_setting(frame.phone, "secure/dark_theme", "1") if self.dark else frame.phone
            self.looks[name] = (look(shown).observation, coming)
            self.screens.add(frame.page.screen)


def instances(suite: SimPhoneSuite, seed: int) -> Iterator[Task]:
    """One instance of every task, with steps to spare."""
    for info in suite.tasks():
        yield replace(suite.instance(info.name, seed), max_steps=10_000)


def walk_oracles(album: Album, suite: SimPhoneSuite) -> None:
    """Look at every step of every solution."""
    for task in instances(suite, 30):
        phone = SimPhone()
        phone.reset(task)
        for action in phone.oracle() or ():
            album.add(phone.frame, action)
            phone.step(action)


def wander(album: Album, suite: SimPhoneSuite, rounds: int) -> None:
    """Look for what the solutions do not pass: a piece of a solution, then random touches."""
    for seed in range(rounds):
        for task in instances(suite, seed):
            phone, rng = SimPhone(), random.Random(f"{task.name}/{seed}")
            phone.reset(task)
            solution = phone.oracle() or ()
            for action in solution[: rng.randrange(len(solution) or 1)]:
                phone.step(action)
            for _ in range(25):
                action = draw_action(MOBILE, phone.frame.observation, rng, ending=False)
                album.add(phone.frame, action)
                phone.step(action)
            album.add(look(run(phone.phone, "input keyevent KEYCODE_APP_SWITCH").phone))
            if album.screens == set(STANDARD.screens):
                return


def strange_looks() -> Iterator[tuple[str, Observation]]:
    """Texts that are hard to draw: in a field while they are typed, and in a list of short and long lines."""
    phone = SimPhone()
    for number, text in enumerate(STRANGE, 1):
        phone.reset(replace(SimPhoneSuite().instance("SystemCopyToClipboard", 0), max_steps=100))
        for action in (MOBILE.make("open_app", app_name="Clipper"), *_copying(text)):
            phone.step(action)
            if phone.frame.page.focus and phone.frame.page.fields.get("text"):
                yield f"typed {number}", phone.frame.observation
    for text in STRANGE:
        for action in _copying(text):
            phone.step(action)
    yield "in a list", phone.frame.observation


def _copying(text: str) -> tuple[Action, Action]:
    """Type a text into Clipper and copy it."""
    typing = MOBILE.make("input_text", index=2, text=text, clear_text=True)
    return typing, MOBILE.make("click", index=3)


def sheets(pictures: Sequence[tuple[str, Image.Image]]) -> Iterator[Image.Image]:
    """Contact sheets of named pictures."""
    for start in range(0, len(pictures), COLUMNS * ROWS):
        chosen = pictures[start : start + COLUMNS * ROWS]
        height = round(WIDTH * pictures[0][1].height / pictures[0][1].width) + CAPTION
        lines = -(-len(chosen) // COLUMNS)
        sheet = Image.new("RGB", (COLUMNS * (WIDTH + 10), lines * (height + 10)), (90, 90, 90))
        draw = ImageDraw.Draw(sheet)
        for place, (name, picture) in enumerate(chosen):
            left, top = place % COLUMNS * (WIDTH + 10), place // COLUMNS * (height + 10)
            draw.text((left + 4, top + 8), name, fill=(255, 255, 255), font=ImageFont.load_default(22))
            sheet.paste(picture.resize((WIDTH, height - CAPTION), Image.Resampling.LANCZOS), (left, top + CAPTION))
        yield sheet


def draw_looks(looks: Mapping[str, tuple[Observation, Action | None]]) -> list[tuple[str, Image.Image]]:
    """Every look as a picture."""
    return [(name, render(observation)) for name, (observation, _) in sorted(looks.items())]


def draw_overlays(looks: Mapping[str, tuple[Observation, Action | None]]) -> list[tuple[str, Image.Image]]:
    """A look for every kind of action: numbered boxes, and the action on top."""
    chosen: dict[str, tuple[str, Image.Image]] = {}
    for name, (observation, action) in sorted(looks.items()):
        if action is not None and action.type not in chosen:
            picture = render(observation, marks=True)
            draw_touch(picture, action, observation)
            chosen[action.type] = (f"{action.type} on {name}", picture)
    return list(chosen.values())


def main() -> int:
    """Write the sheets; 1 when a screen was not found."""
    parser = argparse.ArgumentParser(description="Draw every screen of every SimPhone app.")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for the pictures")
    parser.add_argument("--dark", action="store_true", help="in the dark theme")
    parser.add_argument("--rounds", type=int, default=20, help="how long to look for screens off the solutions' paths")
    options = parser.parse_args()
    suite, album = SimPhoneSuite(), Album(dark=options.dark)
    walk_oracles(album, suite)
    wander(album, suite, options.rounds)
    options.out.mkdir(parents=True, exist_ok=True)
    groups = {
        "screens": draw_looks(album.looks),
        "overlays": draw_overlays(album.looks),
        "texts": [(name, render(observation)) for name, observation in strange_looks()],
    }
    for group, pictures in groups.items():
        for name, picture in pictures:
            picture.save(options.out / f"{group} {name.replace('/', '_')}.png", compress_level=1)
        for number, sheet in enumerate(sheets(pictures), 1):
            path = options.out / f"sheet {group} {number:02}.png"
            sheet.save(path)
            print(path)
    missing = set(STANDARD.screens) - album.screens
    print(
        f"{len(album.looks)} looks of {len(album.screens)} screens; not found: {', '.join(sorted(missing)) or 'none'}"
    )
    return int(bool(missing))


if __name__ == "__main__":
    sys.exit(main())
