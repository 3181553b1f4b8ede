"""Export a report: one HTML file that shows chosen episodes of a run or training, without server and network.

A packing holds the inspector's own answers for chosen episodes, under the addresses of its pages.

    packing = Packing(inspector, id, chosen, known=rows, labels=labels)
    for row in packing.chosen:
        packing.add(row)
    packing.data(), packing.parts

The answers about the run are plain; those about an episode are packed together and compressed, one part per episode,
because the twelve prompts of a step are almost the same. Each picture is stored once, under a name made of its content.
`static/packed.js` reads all this.

    written = export(inspector, run.id, Path("report.html"))

A report consists of the inspector's own pages: their modules become one script (`bundle`), their style sheets one
style, and the answers that they would request stand beside them as JSON that is never executed. A policy in its head
lets run this very script and this very style, by their SHA-256, and lets pictures come from the file itself; everything
else is forbidden: other scripts, event handlers in markup, connections, frames, forms.

A report does not reveal the run's path on this machine. Recorded text stays as it is: prompts, the configuration,
errors, and folders named in them.

Pictures are 360 pixels wide. A report holds the scores of one label set; token ids and the log-probability of each
token stay in the run, for they would be half of the file.

The pages' modules become one script:

    script = bundle(folder, "main.js")

Every module becomes a function that is called once and returns its exports, in the order of their dependencies. The
bundler knows the static imports and exports of our modules. Anything else (default exports, exported variables that
change, dynamic imports, cycles) is an error, so that a report never differs from the pages.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from collab.errors import (
    CollabError,
    EnvironmentFailure,
    RunFormatError,
    StoreFailure,
    UnknownName,
    UsageError,
    boundary,
)
from collab.types import Observation
from collab.utils.files import write_atomic
from collab.view.common import to_json
from collab.view.episodes import filter_episodes
from collab.view.inspector import Inspector
from collab.view.schema.episodes import EpisodeFilter, EpisodeKey, EpisodeRow, FoundStepsView
from collab.view.schema.runs import ProblemsView, RunOverview, RunRow, RunView
from collab.view.schema.step import ScreenView, StepView, WholeScreenView
from collab.view.step import PIXELS, draw_image

if TYPE_CHECKING:
    from PIL import Image


_IMPORT = re.compile(r'^import\s+(?:(?P<what>\{[^}]*\}|\*\s+as\s+\w+)\s+from\s+)?"\./(?P<from>[\w.-]+)";?[ \t]*$', re.M)
_EXPORT = re.compile(r"^export\s+(?P<kind>async\s+function\*?|function\*?|class|const)\s+(?P<name>[\w$]+)", re.M)
_LIST = re.compile(r"^export\s+\{(?P<names>[^}]*)\};?[ \t]*$", re.M)
_LEFT = re.compile(r"^(?:import|export)\b.*$|\bimport\s*\(|\bimport\.meta\b", re.M)
_COMMENT = re.compile(r"^[ \t]*/\*\*.*?\*/[ \t]*\n", re.M | re.S)
"""Comments on lines of their own: a report does not need them, and they may quote markup."""
_TYPED = re.compile(r"/\*\*.*?\*/", re.S)
_NAMED = re.compile(r"([\w$]+)(?:\s+as\s+([\w$]+))?")


class NotBundled(ValueError):
    """A module is written in a way that one script cannot repeat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Module:
    name: str
    needs: tuple[str, ...]
    body: str
    """Wrap a module: imports are read from the other modules, and exports are returned."""


def bundle(folder: Path, entry: str) -> str:
    """Return one script with the effect of the module `entry` in a folder.

    Raises:
        NotBundled: a module uses something else than static imports and exports by name, or they need one another.
        OSError: a module cannot be read.
    """
    parts = ['"use strict";', "(() => {", "const modules = Object.create(null);"]
    parts += [f'modules["{one.name}"] = (() => {{\n{one.body}\n}})();' for one in _order_modules(folder, entry)]
    script = "\n".join([*parts, "})();"]) + "\n"
    if "</script" in script.lower() or "<!--" in script:
        raise NotBundled("a module holds </script or <!--, which would end the script early; write it in two pieces")
    return script


def _order_modules(folder: Path, entry: str) -> Iterator[_Module]:
    """Order the modules, each behind those that it needs."""
    done: set[str] = set()

    # Depth first: a module stands behind all that it needs.
    def visit(name: str, way: tuple[str, ...]) -> Iterator[_Module]:
        # A circle would never end, and the bundle would not run.
        if name in way:
            raise NotBundled(f"{' → '.join([*way, name])}: modules need one another in a circle")
        if name in done:
            return
        module = _read(folder / name)
        for other in module.needs:
            yield from visit(other, (*way, name))
        done.add(name)
        yield module

    return visit(entry, ())


def _read(path: Path) -> _Module:
    source = _COMMENT.sub("", path.read_text(encoding="utf-8").replace("\r\n", "\n"))
    needs = list(dict.fromkeys(found["from"] for found in _IMPORT.finditer(source)))
    exports = [(found["name"], found["name"]) for found in _EXPORT.finditer(source)]
    for found in _LIST.finditer(source):
        exports += [(own, other or own) for own, other in _NAMED.findall(found["names"])]
    body = _IMPORT.sub(_translate_import, source)
    body = _LIST.sub("", _EXPORT.sub(lambda found: f"{found['kind']} {found['name']}", body))
    left = _LEFT.search(_TYPED.sub("", body))
    if left is not None:
        raise NotBundled(f"{path.name}: {left[0].strip()[:80]!r} is no static import or export by name")
    return _Module(name=path.name, needs=tuple(needs), body=f"{body.rstrip()}\n{_translate_export(exports)}")


def _translate_import(found: re.Match[str]) -> str:
    """Translate an import into a read of another module's exports."""
    what, source = found["what"], f'modules["{found["from"]}"]'
    if what is None:
        return ""
    if what.startswith("*"):
        return f"const {what.split()[-1]} = {source};"
    names = ", ".join(f"{name}: {own}" if own else name for name, own in _NAMED.findall(what))
    return f"const {{ {names} }} = {source};"


def _translate_export(exports: Sequence[tuple[str, str]]) -> str:
    return f"return {{ {', '.join(f'{name}: {own}' if name != own else own for own, name in exports)} }};"


_EFFORT = 2
"""WebP method, 0 to 6: three times as fast as 4, for files larger by a twentieth."""
WIDTH = 360
"""Pixels; smaller pictures stay as they are."""
_QUALITY = 40
"""WebP quality: words on screens stay sharp, and 50 episodes make a file that can be sent."""


def make_thumbnail(observation: Observation, recorded: bytes | None) -> bytes:
    """Convert a screen's picture to a small WebP.

    Args:
        recorded: its picture as WebP; None to draw it from its elements.

    Raises:
        RunFormatError, EnvironmentFailure: the recorded data makes no picture.
        UnknownName: no renderer can draw it.
    """
    from PIL import Image

    if recorded is None:
        return _shrink(draw_image(observation))
    with boundary(EnvironmentFailure, "its picture cannot be read"):  # recorded data may cause any error
        with Image.open(io.BytesIO(recorded), formats=("WEBP",)) as image:
            if image.width * image.height > PIXELS:
                raise RunFormatError(f"a picture of {image.width} × {image.height} pixels is not shown")
            return recorded if image.width <= WIDTH else _shrink(image.convert("RGB"))


def hash_looks(observation: Observation) -> str:
    """Return a key that is equal for screens with the same picture."""
    if observation.screenshot is not None:
        return observation.screenshot
    drawn = repr((observation.elements, observation.drawing, observation.width, observation.height))
    return hashlib.sha256(drawn.encode("utf-8", "surrogatepass")).hexdigest()


def _shrink(image: Image.Image) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    if image.width % WIDTH == 0:  # as phones are: the same as below, several times as fast
        image = image.reduce(image.width // WIDTH)
    elif image.width > WIDTH:
        image = image.resize((WIDTH, max(1, round(image.height * WIDTH / image.width))), Image.Resampling.LANCZOS)
    image.save(buffer, "WEBP", quality=_QUALITY, method=_EFFORT)
    return buffer.getvalue()


_KINDS: tuple[Literal["first-wrong", "overruled", "disagrees"], ...] = ("first-wrong", "overruled", "disagrees")
_FINAL = "final"

PathAnswer = tuple[str, Any]
"""Address below /api/ → its answer."""


class ReportPacker:
    """A report in the making.

    Args:
        id: of a run or training.
        chosen: episodes of it, in the order in which they are leafed through; those that cannot be opened are left out.
        known: all that it has, from which they were chosen.
        labels: whose scores to show, in the runs that have them; None for those that each run shows first.
    """

    def __init__(
        self,
        inspector: Inspector,
        id: str,
        chosen: Sequence[EpisodeRow],
        *,
        known: Sequence[EpisodeRow],
        labels: str | None,
    ) -> None:
        self.parts: list[bytes] = []
        """Compressed answers of each episode, by number."""
        self.pictures: dict[str, str] = {}
        """Address → data URI."""
        self.steps = 0
        self.unread: list[str] = []
        """Why episodes and steps of the run are not in the report."""
        self._inspector, self._id, self._asked = inspector, id, labels
        self._known, self._place = tuple(known), Path(inspector.get_row(id).path)
        self._chosen = [one for one in chosen if self._can_open(one)]
        self._places: dict[str, int] = {}
        self._named: dict[str, str] = {}
        self._whose: dict[str, str | None] = {}

    @property
    def chosen(self) -> Sequence[EpisodeRow]:
        """The chosen episodes that can be opened, and so are packed."""
        return tuple(self._chosen)

    def add(self, row: EpisodeRow) -> None:
        """Pack an episode."""
        answers = dict(self._pack_episode(row))
        self._places[f"{_encode_piece(row.run)}?episode={_encode_piece(row.id)}"] = len(self.parts)
        self.parts.append(gzip.compress(to_json(answers), compresslevel=9, mtime=0))

    def data(self) -> dict[str, Any]:
        """Return everything but the parts; call it when all episodes are packed."""
        known = dict.fromkeys([self._id, *(one.run for one in self._chosen)])
        row = _hide_run_place(self._inspector.get_row(self._id))
        answers: dict[str, Any] = {"runs": replace(self._inspector.list_runs(), runs=[row], parts={})}
        for run in known:
            answers |= dict(self._run(run, set(known)))
        counts = {run: [len(self._select(rows, run)) for rows in (self._chosen, self._known)] for run in known}
        held = {run: {"episodes": few, "of": of} for run, (few, of) in counts.items()}
        return {"answers": answers, "parts": self._places, "pictures": self.pictures, "held": held}

    # -------------------------------------------------------------------------------------------------- inside

    def _can_open(self, row: EpisodeRow) -> bool:
        """Return whether an episode can be opened: the index also lists episodes whose start is damaged."""
        try:
            self._inspector.get_episode(row.run, row.id, "")
        except CollabError as error:
            self.unread.append(f"{row.id}: {error}")
            return False
        return True

    def _choose_labels(self, run: str) -> str | None:
        """Return the label set to show of a run: "" where it lacks the chosen one."""
        if run not in self._whose:
            has = not self._asked or self._asked in self._inspector.get_run(run).label_sets
            self._whose[run] = self._asked if has else ""
        return self._whose[run]

    def _select(self, rows: Sequence[EpisodeRow], run: str) -> list[EpisodeRow]:
        """Select the run's own items; all of them for the training of this report."""
        return [one for one in rows if run in (self._id, one.run)]

    def _run(self, run: str, known: set[str]) -> Iterator[PathAnswer]:
        """Return the report's answers about a run or a training."""
        at, ask = f"run/{_encode_piece(run)}", self._inspector
        rows = self._select(self._chosen, run)
        labels = self._choose_labels(run)
        overview = ask.get_overview(run, labels)
        yield at, _build_view(ask.get_run(run), overview, known)
        yield f"{at}/overview", _build_overview(overview, known)
        problems = [replace(one, reason=self._hide_place(one.reason)) for one in ask.list_problems(run).problems]
        yield f"{at}/problems", ProblemsView(problems=problems)
        # All rows at once: the report has no server to ask for more.
        yield f"{at}/episodes", replace(filter_episodes(rows, EpisodeFilter()), rows=rows, total=len(rows))
        places = {(one.run, one.id) for one in rows}
        for kind in _KINDS:
            found: FoundStepsView = ask.find_steps(run, kind, labels)
            yield (
                f"{at}/highlights?kind={kind}",
                # Found steps of episodes that were left out would lead nowhere.
                replace(found, rows=[o for o in found.rows if (o.run, o.episode) in places]),
            )

    def _pack_episode(self, row: EpisodeRow) -> Iterator[PathAnswer]:
        """Pack an episode: steps first, then the words of all cells, as similar content side by side packs better."""
        view = self._inspector.get_episode(row.run, row.id, self._choose_labels(row.run))
        before, behind = self._find_neighbours(row)
        final = list(self._pack_readable(row, "last screen", self._pack_final(row))) if view.final else []
        yield _build_address(row, "episode"), replace(view, previous=before, next=behind, final=bool(final))
        steps = [one.step for one in view.steps]
        for step in steps:
            yield from self._pack_readable(row, f"step {step}", self._step(row, step))
        yield from final
        for step in steps:
            yield from self._pack_readable(row, f"step {step}", self._pack_cells(row, step))

    def _pack_readable(self, row: EpisodeRow, what: str, answers: Iterator[PathAnswer]) -> Iterator[PathAnswer]:
        try:
            yield from answers
        except CollabError as error:
            self.unread.append(f"{row.id}, {what}: {error}")

    def _step(self, row: EpisodeRow, step: int) -> Iterator[PathAnswer]:
        found: StepView = self._inspector.get_step(row.run, row.id, step, self._choose_labels(row.run))
        self.steps += 1
        label_sets = [] if found.labels is None else [found.labels]
        screen = self._pack_screen(found.screen, row, str(step))
        yield _build_address(row, "step", step=step), replace(found, screen=screen, label_sets=label_sets)
        if found.screen.text.cut:
            yield _build_address(row, "screen", step=step), self._pack_words(row, str(step))

    def _pack_final(self, row: EpisodeRow) -> Iterator[PathAnswer]:
        found = self._inspector.get_final_screen(row.run, row.id)
        yield _build_address(row, "final"), self._pack_screen(found, row, _FINAL)
        if found.text.cut:
            yield _build_address(row, "screen", step=_FINAL), self._pack_words(row, _FINAL)

    def _pack_words(self, row: EpisodeRow, step: str) -> WholeScreenView:
        """Pack a screen's whole text; its elements stay in the run, for they may be of any size and number."""
        return replace(self._inspector.get_screen(row.run, row.id, step), elements=())

    def _pack_cells(self, row: EpisodeRow, step: int) -> Iterator[PathAnswer]:
        for cell in self._inspector.list_cells(row.run, row.id, step, self._choose_labels(row.run)):
            at = _build_address(row, "cell", step=step, agent=cell.agent, round=cell.round)
            unread = None if cell.unread is None else self._hide_place(cell.unread)
            yield at, replace(cell, tokens=None, logprobs=None, unread=unread)

    def _pack_screen(self, screen: ScreenView, row: EpisodeRow, step: str) -> ScreenView:
        """Return the screen with the address of its small picture, or with the reason why there is none."""
        if screen.picture is None:
            why = screen.unpictured
            return screen if why is None else replace(screen, unpictured=self._hide_place(why))
        try:
            return replace(screen, picture=f"/api/{self._pack_picture(row, step)}")
        except CollabError as error:
            return replace(screen, picture=None, unpictured=self._hide_place(str(error)))

    def _hide_place(self, words: str) -> str:
        """Replace the run's path in a message by its name."""
        for place in (self._place.resolve(), self._place.absolute(), self._place):
            words = words.replace(f"{place}", self._place.resolve().name) if len(place.parts) > 1 else words
        return words

    def _pack_picture(self, row: EpisodeRow, step: str) -> str:
        """Return where in the report the picture of a screen is."""
        observation = self._inspector.get_observation(row.run, row.id, step)
        known = hash_looks(observation)
        if known not in self._named:
            hash = observation.screenshot
            content = make_thumbnail(observation, None if hash is None else self._inspector.read_picture(row.run, hash))
            name = f"picture/{hashlib.sha256(content).hexdigest()[:16]}"
            self.pictures[name] = f"data:image/webp;base64,{base64.b64encode(content).decode('ascii')}"
            self._named[known] = name
        return self._named[known]

    def _find_neighbours(self, row: EpisodeRow) -> tuple[EpisodeKey | None, EpisodeKey | None]:
        """Return the chosen episodes before and behind one of them."""
        order = [(one.run, one.id) for one in self._chosen]
        place = order.index((row.run, row.id))
        keys = [EpisodeKey(run=run, episode=id) for run, id in order]
        return keys[place - 1] if place else None, keys[place + 1] if place + 1 < len(keys) else None


def _build_address(row: EpisodeRow, what: str, **values: str | int) -> str:
    """Build an address about an episode, as `static/data.js` does."""
    given = "".join(f"&{name}={_encode_piece(str(value))}" for name, value in values.items())
    return f"run/{_encode_piece(row.run)}/{what}?episode={_encode_piece(row.id)}{given}"


def _encode_piece(text: str) -> str:
    """Encode a piece of an address, as `to_json` in `static/place.js` does: half surrogates become U+FFFD."""
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return quote(whole, safe="-_.!~*'()")


def _hide_run_place(row: RunRow) -> RunRow:
    """Replace the run's path by its name: a report does not reveal places on this machine."""
    return replace(row, path=Path(row.path).name or row.path)


def _build_view(view: RunView, overview: RunOverview, known: set[str]) -> RunView:
    return replace(
        view,
        run=_hide_run_place(view.run),
        training=view.training if view.training in known else None,
        parts=[one for one in view.parts if one.id in known],
        label_sets=[] if overview.labels is None else [overview.labels],
    )


def _build_overview(overview: RunOverview, known: set[str]) -> RunOverview:
    epochs = [replace(one, runs=[part for part in one.runs if part.id in known]) for one in overview.epochs]
    return replace(overview, run=_hide_run_place(overview.run), epochs=epochs)


STATIC = Path(__file__).parent / "static"
PAGE, ENTRY = "index.html", "app.js"
MOST = 50
"""Episodes of a report where none are chosen."""

_SHEET = re.compile(r'^[ \t]*<link rel="stylesheet" href="/static/([\w.-]+)">\n', re.M)
_SCRIPT = re.compile(r'^[ \t]*<script type="module" src="/static/([\w.-]+)"></script>\n', re.M)
_TITLE = re.compile(r"<title>.*?</title>")
_CHARSET = '    <meta charset="utf-8">\n'
"""The policy comes right behind it, before everything that it governs."""
_END = "  </body>"
_PAGE = 1000
"""Episodes that are read at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedReport:
    """A report that was written."""

    path: Path
    episodes: int
    of: int
    """Episodes of the run."""
    steps: int
    pictures: int
    """Different pictures."""
    size: int
    """Bytes."""
    unread: Sequence[str]
    """Why episodes and steps of the run are not in it."""


ExportWatch = Callable[[int, int], None]
"""Called after each episode with the number of packed and of all episodes."""


def export(
    inspector: Inspector,
    id: str,
    out: Path,
    *,
    episodes: Sequence[str] = (),
    most: int = MOST,
    labels: str | None = None,
    watch: ExportWatch = lambda done, whole: None,
) -> ExportedReport:
    """Write a report, replacing an older one.

    Args:
        id: of a run or training.
        episodes: ids of episodes to take; empty takes the first `most` in the order of the run.
        labels: whose scores to show; None for those that the pages show first, "" for none.

    Raises:
        UnknownName: the run has no such episode or label set.
        RunFormatError: nothing of it can be read.
        UsageError: `out` is a folder.
        StoreFailure: the file cannot be written; an older one is still there.
    """
    # Cheap refusals first: collecting episodes may take minutes.
    if out.is_dir():
        raise UsageError(f"{out}: is a folder; name the file to write, e.g. {out / 'report.html'}")
    row = inspector.get_row(id)
    if row.unreadable is not None:
        raise RunFormatError(row.unreadable)
    # A label set may be named that this run has not; "" asks for none.
    names = inspector.get_run(id).label_sets
    if labels and labels not in names:
        raise UnknownName.of(f"label set of {row.path}", labels, names)
    # All ids, so that the page can say how many were left out.
    known = _list_all(inspector, id)
    chosen = _list_chosen(row, known, episodes, most)
    packing = ReportPacker(inspector, id, chosen, known=known, labels=labels)
    # Damaged episodes are skipped as long as one can be opened; a report of none would be empty pages.
    if chosen and not packing.chosen:
        raise RunFormatError(f"no episode that was to be taken can be opened: {packing.unread[0]}")
    # One episode at a time, so that memory holds the packed pages and no run.
    for done, one in enumerate(packing.chosen, start=1):
        packing.add(one)
        watch(done, len(packing.chosen))
    content = build_page(packing.data(), packing.parts, title=f"{Path(row.path).name} · Collab").encode("utf-8")
    try:
        # Written as a whole: an older report stays until the new one is there.
        write_atomic(out, content)
    except OSError as error:
        raise StoreFailure(f"{out}: cannot be written: {error.strerror or error}") from None
    return ExportedReport(
        path=out,
        episodes=len(packing.chosen),
        of=len(known),
        steps=packing.steps,
        pictures=len(packing.pictures),
        size=len(content),
        unread=tuple(packing.unread),
    )


def build_page(data: object, parts: Sequence[bytes], *, title: str) -> str:
    """Return the whole document.

    Args:
        data: what `packed.js` calls held: answers, parts and pictures.
        parts: compressed answers of each episode, by number.
    """
    source = (STATIC / PAGE).read_text(encoding="utf-8")
    style = "\n".join((STATIC / name).read_text(encoding="utf-8") for name in _SHEET.findall(source))
    script = bundle(STATIC, ENTRY)
    fits = _SCRIPT.findall(source) == [ENTRY] and source.count(_CHARSET) == source.count(_END) == 1
    if not fits or "</style" in style.lower():
        raise ValueError(f"{PAGE}: a report is made of its style sheets and of {ENTRY}, and of nothing else")
    blocks = [_write_data_block("collab-data", to_json(data))]
    blocks += [
        _write_data_block(f"collab-part-{number}", b'"' + base64.b64encode(part) + b'"')
        for number, part in enumerate(parts)
    ]
    policy = build_security_policy(script, style)
    head = "\n".join(
        [
            f'{_CHARSET}    <meta http-equiv="Content-Security-Policy" content="{policy}">',
            '    <meta name="referrer" content="no-referrer">',
            f"    <style>{style}</style>",
            *blocks,  # in the head, for the pages put what they show in place of the whole body
            "",
        ]
    )
    plain = _TITLE.sub(lambda _: f"<title>{_escape(title)}</title>", _SCRIPT.sub("", _SHEET.sub("", source)))
    before, _, behind = plain.partition(_CHARSET)
    return before + head + behind.replace(_END, f"<script>{script}</script>\n{_END}")


def build_security_policy(script: str, style: str) -> str:
    """Build the content security policy of a document with this script and this style."""
    return (
        f"default-src 'none'; script-src '{_hash_source(script)}'; style-src '{_hash_source(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


# ------------------------------------------------------------------------------------------------------ inside


def _hash_source(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode("utf-8")).digest()).decode("ascii")


def _write_data_block(id: str, content: bytes) -> str:
    """Format a block of JSON that is never executed and that its content cannot end: it has no < and is ASCII."""
    inert = content.decode("ascii").replace("<", "\\u003c")
    return f'<script type="application/json" id="{id}">{inert}</script>'


def _escape(text: str) -> str:
    return escape("".join(letter if letter.isprintable() else " " for letter in text))


def _list_all(inspector: Inspector, id: str) -> list[EpisodeRow]:
    """List every episode, in the order of the run."""
    rows: list[EpisodeRow] = []
    while True:
        found = inspector.list_episodes(id, EpisodeFilter(offset=len(rows), limit=_PAGE))
        rows += found.rows
        if not found.rows or len(rows) >= found.total:
            return rows


def _list_chosen(row: RunRow, known: Sequence[EpisodeRow], wanted: Sequence[str], most: int) -> list[EpisodeRow]:
    """List the chosen episodes, in the order of the run."""
    ids = {one.id for one in known}
    for one in wanted:
        if one not in ids:
            raise UnknownName.of("episode", one, ids, f"collab view {row.path} shows all of them")
    return [one for one in known if one.id in set(wanted)] if wanted else list(known[:most])
