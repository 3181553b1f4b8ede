"""A report: one HTML file that shows chosen episodes of a run or training, without a server and without a network.

    with_export = export(inspector, run.id, Path("report.html"))

It is made of the inspector's own pages: their modules become one script (`bundle`), their style sheets one style, and
the answers that they would ask for stand beside them as JSON that nothing executes (`packed`). A policy in its head
lets run this very script and this very style, by their SHA-256, and lets pictures come from the file itself; everything
else is forbidden: other scripts, event handlers in markup, connections, frames, forms.

Where the run lies on this machine is not told. What was recorded is, as it was recorded: prompts, the configuration,
errors, and folders that they name.

Pictures are 360 pixels wide. A report holds the scores of one labelling; token ids and the log-probability of each
token stay in the run, for they would be half of the file.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from collab.errors import RunFormatError, StoreFailure, UnknownName, UsageError
from collab.store.files import write_atomic
from collab.view.answer import encoded
from collab.view.bundle import bundled
from collab.view.inspector import Inspector
from collab.view.packed import Packing
from collab.view.shapes.episodes import EpisodeFilter, EpisodeRow
from collab.view.shapes.runs import RunRow

STATIC = Path(__file__).parent / "static"
PAGE, ENTRY = "index.html", "app.js"
MOST = 50
"""Episodes that a report has where none are chosen."""

_SHEET = re.compile(r'^[ \t]*<link rel="stylesheet" href="/static/([\w.-]+)">\n', re.M)
_SCRIPT = re.compile(r'^[ \t]*<script type="module" src="/static/([\w.-]+)"></script>\n', re.M)
_TITLE = re.compile(r"<title>.*?</title>")
_CHARSET = '    <meta charset="utf-8">\n'
"""The policy comes right behind it, before everything that it is about."""
_END = "  </body>"
_PAGE = 1000
"""Episodes that are asked for at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """A report that was written."""

    path: Path
    episodes: int
    of: int
    """Episodes that the run has."""
    steps: int
    pictures: int
    """Different ones."""
    size: int
    """Bytes."""
    unread: Sequence[str]
    """Why episodes and steps that the run has are not in it."""


Watch = Callable[[int, int], None]
"""Told after each episode: how many are packed, of how many."""


def export(
    inspector: Inspector,
    id: str,
    out: Path,
    *,
    episodes: Sequence[str] = (),
    most: int = MOST,
    labels: str | None = None,
    watch: Watch = lambda done, whole: None,
) -> Exported:
    """Write a report, replacing an older one.

    Args:
        id: of a run or training.
        episodes: ids of episodes to take; empty takes the first `most` in the order of the run.
        labels: whose scores to show; None for those that the pages show first, "" for none.

    Raises:
        UnknownName: the run has no such episode or labelling.
        RunFormatError: nothing of it can be read.
        UsageError: `out` is a folder.
        StoreFailure: the file cannot be written; an older one is still there.
    """
    if out.is_dir():
        raise UsageError(f"{out}: is a folder; name the file to write, e.g. {out / 'report.html'}")
    row = inspector.row(id)
    if row.unreadable is not None:
        raise RunFormatError(row.unreadable)
    names = inspector.run(id).labellings
    if labels and labels not in names:
        raise UnknownName.of(f"labelling of {row.path}", labels, names)
    known = _all(inspector, id)
    chosen = _chosen(row, known, episodes, most)
    packing = Packing(inspector, id, chosen, known=known, labels=labels)
    if chosen and not packing.chosen:
        raise RunFormatError(f"no episode that was to be taken can be opened: {packing.unread[0]}")
    for done, one in enumerate(packing.chosen, start=1):
        packing.add(one)
        watch(done, len(packing.chosen))
    content = html_page(packing.data(), packing.parts, title=f"{Path(row.path).name} · Collab").encode("utf-8")
    try:
        write_atomic(out, content)
    except OSError as error:
        raise StoreFailure(f"{out}: cannot be written: {error.strerror or error}") from None
    return Exported(
        path=out,
        episodes=len(packing.chosen),
        of=len(known),
        steps=packing.steps,
        pictures=len(packing.pictures),
        size=len(content),
        unread=tuple(packing.unread),
    )


def html_page(data: object, parts: Sequence[bytes], *, title: str) -> str:
    """The whole document.

    Args:
        data: what `packed.js` calls held: answers, parts and pictures.
        parts: compressed answers of each episode, by number.
    """
    source = (STATIC / PAGE).read_text(encoding="utf-8")
    style = "\n".join((STATIC / name).read_text(encoding="utf-8") for name in _SHEET.findall(source))
    script = bundled(STATIC, ENTRY)
    fits = _SCRIPT.findall(source) == [ENTRY] and source.count(_CHARSET) == source.count(_END) == 1
    if not fits or "</style" in style.lower():
        raise ValueError(f"{PAGE}: a report is made of its style sheets and of {ENTRY}, and of nothing else")
    blocks = [_data("collab-data", encoded(data))]
    blocks += [
        _data(f"collab-part-{number}", b'"' + base64.b64encode(part) + b'"') for number, part in enumerate(parts)
    ]
    head = "\n".join(
        [
            f'{_CHARSET}    <meta http-equiv="Content-Security-Policy" content="{policy(script, style)}">',
            '    <meta name="referrer" content="no-referrer">',
            f"    <style>{style}</style>",
            *blocks,  # in the head, for the pages put what they show in place of the whole body
            "",
        ]
    )
    plain = _TITLE.sub(lambda _: f"<title>{_escaped(title)}</title>", _SCRIPT.sub("", _SHEET.sub("", source)))
    before, _, behind = plain.partition(_CHARSET)
    return before + head + behind.replace(_END, f"<script>{script}</script>\n{_END}")


def policy(script: str, style: str) -> str:
    """The content security policy of a document with this script and this style."""
    return (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


# ------------------------------------------------------------------------------------------------------ inside


def _digest(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode("utf-8")).digest()).decode("ascii")


def _data(id: str, content: bytes) -> str:
    """A block of JSON that nothing executes and nothing in it can end: it has no < and is ASCII."""
    inert = content.decode("ascii").replace("<", "\\u003c")
    return f'<script type="application/json" id="{id}">{inert}</script>'


def _escaped(text: str) -> str:
    return escape("".join(letter if letter.isprintable() else " " for letter in text))


def _all(inspector: Inspector, id: str) -> list[EpisodeRow]:
    """Every episode, in the order of the run."""
    rows: list[EpisodeRow] = []
    while True:
        found = inspector.episodes(id, EpisodeFilter(offset=len(rows), limit=_PAGE))
        rows += found.rows
        if not found.rows or len(rows) >= found.total:
            return rows


def _chosen(row: RunRow, known: Sequence[EpisodeRow], wanted: Sequence[str], most: int) -> list[EpisodeRow]:
    """The episodes that were asked for, in the order of the run."""
    ids = {one.id for one in known}
    for one in wanted:
        if one not in ids:
            raise UnknownName.of("episode", one, ids, f"collab view {row.path} shows all of them")
    return [one for one in known if one.id in set(wanted)] if wanted else list(known[:most])
