"""Every answer of the inspector as a function of ids, for routes and exports.

    inspector = Inspector([Path("runs/first")])
    (run,) = inspector.list_runs().runs
    inspector.get_step(run.id, "ContactsAddContact/0", 3)

Methods raise UnknownName for missing things, RunFormatError for unreadable ones, and UsageError for a request that does
not fit; `collab.view.schema` describes the answers. Safe to use from several threads.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import collab
from collab.errors import RunFormatError, UnknownName, UsageError
from collab.store import events
from collab.types import Observation
from collab.view import episodes as compared
from collab.view import overview, runs, search, training
from collab.view import step as screens
from collab.view.common import SHORT, shorten
from collab.view.episodes import ActionTrace, build_episode_view, filter_episodes, list_episode_rows
from collab.view.estimates import stamp_estimates
from collab.view.readers import OpenRun, get_index_cache
from collab.view.runs import ListedRun
from collab.view.schema.episodes import (
    ComparisonView,
    EpisodeFilter,
    EpisodePairView,
    EpisodeRow,
    EpisodesView,
    EpisodeView,
    FoundStepsView,
    HitsView,
)
from collab.view.schema.runs import GrowthView, ProblemsView, ProblemView, RunOverview, RunRow, RunsView, RunView
from collab.view.schema.step import CriticsView, ScreenView, StepView, WholeCellView, WholeScreenView
from collab.view.search import build_critics, read_judged
from collab.view.step import (
    FINAL,
    build_screen_view,
    build_step_view,
    build_whole_cell,
    build_whole_screen,
    draw_screen,
    load_picture,
)
from collab.view.training import UNREADABLE, ViewContext

_FIRST = "SELECT trajectory, step FROM steps JOIN episodes USING (key) LIMIT 1"


class Inspector:
    """Looks into the runs that were named and into nothing else.

    Args:
        paths: runs, trainings, or folders with some.
        index_cache: folder for indices of runs whose own is of no use; None for the user's cache.

    Raises:
        UsageError: a path holds none.
    """

    def __init__(self, paths: Sequence[Path], *, index_cache: Path | None = None) -> None:
        self._context = ViewContext(paths, index_cache or get_index_cache())

    def warm_up(self) -> None:
        """Load the readers, open the named runs or a folder's newest ones, and read a step of each.

        The first request then need not wait for it.
        """
        events.prepare()
        screens.prepare()
        for root in self._context.roots.list_named() or self._context.roots.find_newest():
            with contextlib.suppress(*UNREADABLE), self._context.open_run(root.path) as run:  # requests tell why
                for episode, step in run.reader.query(_FIRST):
                    build_step_view(root, run, episode, step, None)  # loads what reads and draws it
                run.beside.read()

    def close(self) -> None:
        """Free memory."""
        self._context.close()

    # ------------------------------------------------------------------------------------------------ the runs

    def list_runs(self) -> RunsView:
        """Return all runs and trainings, the one written last first, unreadable ones last, and trainings' runs."""
        roots = self._context.roots.top()
        rows = [self.get_row(root.id) for root in roots]
        trainings = [root for root in roots if root.kind == "training"]
        return RunsView(
            collab=collab.__version__,
            runs=sorted(rows, key=lambda row: (row.unreadable is None, row.updated), reverse=True),
            parts={root.id: [self.get_row(part.id) for part in self._context.roots.parts(root)] for root in trainings},
        )

    def list_ids(self) -> list[str]:
        """Return the ids of all listed runs and trainings."""
        return [root.id for root in self._context.roots.top()]

    def get_row(self, id: str) -> RunRow:
        """Return the row of a run or training."""
        return self._context.row(id)

    def get_run(self, id: str) -> RunView:
        """Return one of them, and where it belongs."""
        # A training has no log of its own: its row, parts and label sets come from the runs inside it.
        root = self._context.roots.find(id)
        if root.kind == "training":
            return RunView(
                run=self.get_row(id),
                training=None,
                parts=training.list_part_rows(self._context, root),
                versions={},
                label_sets=training.list_label_sets(self._context, root),
                pair_sets=(),
                config=runs.format_config(root, None),
            )
        with self._context.open_run(root.path) as run:
            return RunView(
                run=self.get_row(id),
                training=root.training,
                parts=(),
                # Names and versions come from files, so they are cut before they reach a page.
                versions={shorten(name): shorten(version) for name, version in run.reader.manifest.versions.items()},
                label_sets=run.beside.list_label_sets(),
                pair_sets=run.beside.pair_sets(),
                config=runs.format_config(root, run.reader),
            )

    def get_overview(self, id: str, labels: str | None = None) -> RunOverview:
        """Return a run or a training in numbers."""
        root = self._context.roots.find(id)
        return self._context.fresh(root, f"overview {labels!r}", lambda: self._overview(root, labels))

    def list_problems(self, id: str) -> ProblemsView:
        """Return all problems: the parts that cannot be read."""
        root = self._context.roots.find(id)
        if root.kind == "training":
            own = runs.list_training_problems(root)
            # Of a training, the problems of all its runs, with the run's folder in front.
            inside = [
                replace(one, file=f"{part.path.relative_to(root.path)}/{one.file}")
                for part in self._context.roots.parts(root)
                for one in self.list_problems(part.id).problems
            ]
            return ProblemsView(problems=[*own, *inside])
        try:
            with self._context.open_run(root.path) as run:
                found = [*run.reader.problems, *run.beside.problems()]
        except RunFormatError as error:
            # A run that cannot be opened at all is one problem, not an error of the page.
            return ProblemsView(problems=[ProblemView(file=".", line=None, reason=str(error))])
        return ProblemsView(
            problems=[ProblemView(file=one.file, line=one.line, reason=shorten(one.reason)) for one in found]
        )

    def get_growth(self, id: str) -> GrowthView:
        """Return how far a run has grown, cheaply, for clients that wait for news."""
        root, state = self._context.roots.find(id), self.describe_state(id)
        row = self.get_row(id) if root.kind == "training" else self._context.get_known_row(root)
        if row is not None:
            return GrowthView(id=id, state=state, status=row.status, done=row.done, steps=row.steps)
        with self._context.run(id) as (_, run):
            done, steps = run.reader.query(
                "SELECT (SELECT count(*) FROM episodes WHERE state != 'unfinished'), (SELECT count(*) FROM steps)"
            )[0]
            return GrowthView(id=id, state=state, status=run.reader.status, done=done, steps=steps)

    def describe_state(self, id: str) -> str:
        """Return a text that changes when something is written; reads no run."""
        root = self._context.roots.find(id)
        # Estimates of a rollout's steps are written beside it, once it is over.
        return f"{self._context.state(root)} {stamp_estimates(root.path)}".rstrip()

    # -------------------------------------------------------------------------------------------- the episodes

    def list_episodes(self, id: str, wanted: EpisodeFilter) -> EpisodesView:
        """Return the episodes that pass a filter; of a training, those of its rollouts."""
        return filter_episodes(self._episodes(id), wanted)

    def find_steps(
        self, id: str, kind: Literal["first-wrong", "overruled", "disagrees"], labels: str | None = None
    ) -> FoundStepsView:
        """Find steps of one kind; in a training, those of its rollouts."""
        found = [
            search.find_steps(
                root, run, list_episode_rows(root, run), kind, run.beside.choose_label_set(labels, known=False)
            )
            for root, run in self._context.iterate_readable(id)
        ]
        named = next((one.labels for one in found if one.labels is not None), None)
        rows = [row for one in found for row in one.rows]
        return FoundStepsView(kind=kind, labels=named, judged=sum(one.judged for one in found), rows=rows)

    def search(self, id: str, q: str) -> HitsView:
        """Search words; in a training, in its rollouts."""
        q, most = q[:SHORT], search.MOST_HITS + 1
        rows: list[Any] = []
        for root, run in self._context.iterate_readable(id):
            rows += search.search_words(root, run, q, most - len(rows))
            if len(rows) >= most:
                break
        return HitsView(q=q, rows=rows[: most - 1], more=len(rows) >= most)

    def get_episode(self, id: str, episode: str, labels: str | None = None) -> EpisodeView:
        """Return an episode with its steps as rows."""
        with self._context.run(id) as (root, run):
            return build_episode_view(root, run, episode, run.beside.choose_label_set(labels))

    # ----------------------------------------------------------------------------------------------- the steps

    def get_step(self, id: str, episode: str, step: int, labels: str | None = None) -> StepView:
        """Return a step whole."""
        with self._context.run(id) as (root, run):
            return build_step_view(root, run, episode, step, run.beside.choose_label_set(labels))

    def get_final_screen(self, id: str, episode: str) -> ScreenView:
        """Return the screen after the last action."""
        with self._context.run(id) as (root, run):
            seen = _get_screen(run, episode, FINAL)
            return build_screen_view(seen, run=id, directory=root.path, episode=episode, step=None)

    def get_cell(
        self, id: str, episode: str, step: int, agent: str, round: int, labels: str | None = None
    ) -> WholeCellView:
        """Return the exact words of a cell."""
        with self._context.run(id) as (_, run):
            one, goal = run.reader.step(episode, step), run.reader.read_head(episode).task.goal
            told = read_judged(run, run.beside.choose_label_set(labels), episode, goal, one)
            return build_whole_cell(run.reader, one, agent, round, told)

    def list_cells(self, id: str, episode: str, step: int, labels: str | None = None) -> list[WholeCellView]:
        """Return the exact words of all cells of a step, in conversation order."""
        with self._context.run(id) as (_, run):
            one, goal = run.reader.step(episode, step), run.reader.read_head(episode).task.goal
            told = read_judged(run, run.beside.choose_label_set(labels), episode, goal, one)
            return [build_whole_cell(run.reader, one, cell.agent, cell.round, told) for cell in one.matrix]

    def get_screen(self, id: str, episode: str, step: str) -> WholeScreenView:
        """Return the long parts of a screen; `step` is a number or "final"."""
        with self._context.run(id) as (_, run):
            return build_whole_screen(_get_screen(run, episode, step))

    def get_critics(self, id: str, episode: str, step: int) -> CriticsView:
        """Return every label set's judgement of a step."""
        with self._context.run(id) as (_, run):
            one, goal = run.reader.step(episode, step), run.reader.read_head(episode).task.goal
            return build_critics(run, run.beside.list_label_sets(), episode, goal, one)

    def read_picture(self, id: str, hash: str) -> bytes:
        """Return a recorded picture as WebP."""
        return load_picture(self._context.roots.find(id).path, hash)

    def draw_screen(self, id: str, episode: str, step: str) -> bytes:
        """Draw a screen from its elements as PNG; `step` as in `screen`."""
        with self._context.run(id) as (_, run):
            seen = _get_screen(run, episode, step)
        return draw_screen(seen)

    def get_observation(self, id: str, episode: str, step: str) -> Observation:
        """Return a screen as it was recorded; `step` as in `screen`."""
        with self._context.run(id) as (_, run):
            return _get_screen(run, episode, step)

    # ------------------------------------------------------------------------------------------- two beside each

    def compare(self, a: str, b: str) -> ComparisonView:
        """Compare two runs or trainings on equal instances."""
        return compared.compare_runs(self._compare(a), self._compare(b))

    def compare_episodes(
        self, a: str, b: str, episode_a: str, episode_b: str, labels: str | None = None
    ) -> EpisodePairView:
        """Compare two episodes step by step; a label set that one of their runs lacks is not shown for it."""
        with self._context.run(a) as (root_a, run_a), self._context.run(b) as (root_b, run_b):
            return compared.pair_episodes(
                (root_a, run_a, episode_a, run_a.beside.choose_label_set(labels, known=False)),
                (root_b, run_b, episode_b, run_b.beside.choose_label_set(labels, known=False)),
            )

    # -------------------------------------------------------------------------------------------------- inside

    def _overview(self, root: ListedRun, labels: str | None) -> RunOverview:
        if root.kind == "training":
            return training.build_training_overview(self._context, root, labels)
        with self._context.open_run(root.path) as run:
            return overview.build_overview(self.get_row(root.id), root, run, run.beside.choose_label_set(labels))

    def _episodes(self, id: str) -> list[EpisodeRow]:
        return [row for root, run in self._context.iterate_readable(id) for row in list_episode_rows(root, run)]

    def _compare(self, id: str) -> tuple[RunRow, Sequence[EpisodeRow], dict[tuple[str, str], ActionTrace]]:
        traces: dict[tuple[str, str], ActionTrace] = {}
        for root, run in self._context.iterate_readable(id):
            traces |= {(root.id, episode): trace for episode, trace in compared.read_traces(run).items()}
        return self.get_row(id), self._episodes(id), traces


def _get_screen(run: OpenRun, episode: str, step: str) -> Observation:
    """Return the screen before a step, or the last one."""
    if step != FINAL:
        if not step.isascii() or not step.isdecimal() or len(step) > 9:
            raise UsageError(f"step {step[:80]!r}: a number from 0, or {FINAL!r}")
        return run.reader.step(episode, int(step)).observation
    final = run.reader.read_head(episode).final
    if final is None:
        raise UnknownName(f"episode {episode[:80]!r}: has no screen after its last action")
    return final
