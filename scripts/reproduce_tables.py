"""Measure what training teaches a team, unit by unit, and put the results into `docs/results.md`.

    python scripts/reproduce_tables.py --list                    # every unit and how far it is
    python scripts/reproduce_tables.py                           # does what is missing, then writes the page
    python scripts/reproduce_tables.py --only 'full/*' --limit-minutes 90
    python scripts/reproduce_tables.py --jobs 2                  # two units at a time
    python scripts/reproduce_tables.py --render                  # writes the page, does nothing else
    python scripts/reproduce_tables.py --quick                   # under twenty minutes: is a trained team better?

A unit is an arm, a run seed and a phase, e.g. full/seed-0/train, and is meant to take at most 40 minutes on one core of
two; one that took longer is named. A finished one leaves a file in `docs/results/units`, and is done when that file is
there; to have it done again, remove the file and its folder in --work. One that was stopped or killed is gone on with.
One that plays a training waits for it, and is lost where that training's file is there but its weights are not on this
machine: remove that file, and the training is done again. What is done, and for how long, stands in
`scripts/evidence/plan.py`, with reasons.

Every file names the weights that all began with. Results of several checkpoints are refused, not mixed. So is what was
made, or begun, by another recipe than that of today's plan, presets and definitions. Exit code 1 when something failed
while working, or was asked for and could not be done, with --quick also when the team is not shown to be better; 2 for
a mistake in what was asked.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

from evidence.document import render
from evidence.gather import base_of, code_digest
from evidence.plan import PLAN, QUICK, Plan
from evidence.quick import verdict
from evidence.recipe import check_records
from evidence.record import Records, check_base, read_all
from evidence.units import SHOWN, queue
from evidence.work import Place, check_recipe, left, state, too_long, undone, work_off

from collab.errors import CollabError, UsageError
from collab.library import Library, find_builtin_root

QUICK_JOBS = 2
"""Units that the quick form works on side by side, unless it is told otherwise."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what is asked; the exit code."""
    parser = _parser()
    asked = parser.parse_args(arguments)
    try:
        _check_options(parser, asked)
        return _quick(asked.work, asked.jobs or QUICK_JOBS) if asked.quick else _measure(asked, PLAN)
    except CollabError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code


_USELESS = {
    "quick": ("only", "limit_minutes", "out"),
    "render": ("only", "limit_minutes", "jobs"),
    "list": ("limit_minutes", "jobs"),
}
"""Form → options that say nothing beside it."""


def _check_options(parser: argparse.ArgumentParser, asked: argparse.Namespace) -> None:
    """Refuse what says nothing beside the rest; UsageError."""
    form = next((form for form in _USELESS if getattr(asked, form)), None)
    for name in _USELESS.get(form or "", ()):
        if getattr(asked, name) != parser.get_default(name):
            raise UsageError(f"--{name.replace('_', '-')} has no meaning beside --{form}; leave one of them out")
    if asked.jobs is not None and asked.jobs < 1:
        raise UsageError(f"--jobs {asked.jobs}: at least one unit is worked on at a time")
    if asked.limit_minutes is not None and not 0 < asked.limit_minutes < math.inf:
        raise UsageError(f"--limit-minutes {asked.limit_minutes:g}: must be a number of minutes above 0")


def _measure(asked: argparse.Namespace, plan: Plan) -> int:
    units = asked.out / "results" / "units"
    records = read_all(units, plan)
    check_records(plan, records, units, asked.work)
    page = asked.out / "results.md"
    if asked.render:
        render(plan, records, page, asked.out / "results")
        print(page)
        return 0
    place = _place(plan, asked.work, units, records)
    if not any(fnmatch(unit.name, asked.only) for unit in queue(plan)):
        raise UsageError(f"--only {asked.only}: no unit is called so; --list shows all")
    if asked.list:
        _show(plan, records, place, asked.only)
        return 0
    try:
        done = work_off(plan, place, records, only=asked.only, minutes=asked.limit_minutes, jobs=asked.jobs or 1)
    finally:
        render(plan, read_all(units, plan), page, asked.out / "results")
    print(page)
    left_out = undone(plan, place, done, asked.only)
    for line in left_out:
        print(line, file=sys.stderr)
    return 1 if left_out else 0


def _place(plan: Plan, work: Path, units: Path, records: Records) -> Place:
    """Where everything lies; UsageError where finished units began with other weights."""
    base = base_of(plan.agents, Library())
    check_base(records, units, base)
    return Place(work=work / base[:12], units=units, base=base)


def _quick(work: Path, jobs: int) -> int:
    """Train a little, and tell whether the team is better than before: exit code 0 when that is shown, 1 when not.

    What other code did is left where it is and not told: each state of the code has a folder of its own.
    """
    base, own = base_of(QUICK.agents, Library()), work / "quick" / code_digest()[:12]
    place = Place(work=own / base[:12], units=own / base[:12] / "units", base=base)
    records = read_all(place.units, QUICK)
    check_records(QUICK, records, place.units, own)
    began = time.monotonic()
    done = work_off(QUICK, place, records, jobs=jobs)
    text, better = verdict(QUICK, done)
    print(f"{text}\n\n{(time.monotonic() - began) / 60:.1f} minutes this time, {jobs} units side by side")
    return 0 if better else 1


def _show(plan: Plan, records: Records, place: Place, only: str) -> None:
    """A line per unit, and how long the rest takes."""
    rest = 0.0
    for unit in (one for one in queue(plan) if fnmatch(one.name, only)):
        found = state(plan, unit, records, place)
        if found == "begun":
            check_recipe(plan, unit, place)
        minutes = 0.0 if found == "done" else left(plan, unit, records, place)
        rest += minutes
        told = (too_long(records[unit]) or "") if found == "done" else f"{minutes:4.0f} min"
        print(f"{unit.name:44}{found:10}{told}".rstrip())
    print(f"\n{rest / 60:.1f} hours are left on one core")


def _parser() -> argparse.ArgumentParser:
    about, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(description=about, epilog=rest, formatter_class=argparse.RawTextHelpFormatter)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--list", action="store_true", help="show every unit and how far it is")
    what.add_argument("--render", action="store_true", help="make the page from the files that are there")
    what.add_argument("--quick", action="store_true", help="a small training: is the team better than before?")
    parser.add_argument("--only", metavar="GLOB", default="*", help="units by name, e.g. 'full/*' or '*/train'")
    parser.add_argument(
        "--limit-minutes", metavar="M", type=float, help="stop before a unit that would not fit into so many minutes"
    )
    parser.add_argument(
        "--jobs",
        metavar="N",
        type=int,
        help=f"units worked on side by side; default: 1, with --quick {QUICK_JOBS}",
    )
    parser.add_argument("--work", metavar="DIR", type=Path, default=SHOWN, help=f"what collab writes; default: {SHOWN}")
    parser.add_argument(
        "--out",
        metavar="DIR",
        type=Path,
        default=find_builtin_root() / "docs",
        help="page, pictures and units; default: docs",
    )
    return parser


def run() -> int:
    """The command of this process; exit code 1 where whoever read its output has gone."""
    try:
        try:
            code = main()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python's own last flush is silent then
        return 1
    return code


if __name__ == "__main__":
    sys.exit(run())
