"""Measure what training teaches a team, unit by unit, and put the results into `docs/results.md`.

    python scripts/reproduce_tables.py --list              # every unit and how far it is
    python scripts/reproduce_tables.py --only 'full/*'     # does what is missing of these, then writes the page
    python scripts/reproduce_tables.py --render            # writes the page, does nothing else
    python scripts/reproduce_tables.py --quick             # under twenty minutes: is a trained team better?

A unit is an arm, a run seed and a phase, e.g. full/seed-0/train; `docs/results/plan.yaml` holds all with reasons, and
`page.md.jinja` beside it the page. A finished unit leaves a file in `docs/results/units`; to have it done again, remove
the file and its folder in --work. One that was stopped or killed is resumed. One that plays a training waits for it.
`--plan docs/algorithms/results/plan.yaml` compares the other algorithms.

Results of several checkpoints, or of another recipe than today's, are refused. Exit code 1 when something failed or
could not be done, with --quick also when the team is not shown to be better; 2 for a mistake in what was asked.
"""

from __future__ import annotations

import argparse
import functools
import math
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from collab.errors import CollabError, RunError, UsageError
from collab.evidence.gather import hash_code
from collab.evidence.page import judge_training, render_page
from collab.evidence.plan import SHOWN, Plan, read_plan
from collab.evidence.queue import Workspace, describe_undone, list_units, select_units, work_off
from collab.evidence.record import check_records, read_all
from collab.evidence.tables import Results
from collab.library import find_builtin_root

DOCS = find_builtin_root() / "docs"
USELESS = {"quick": "only limit_minutes out plan", "render": "only limit_minutes jobs", "list": "limit_minutes jobs"}
"""Form → options that change nothing beside it."""
say = functools.partial(print, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what is asked; the exit code. A reader that has gone, e.g. `head`, ends it quietly."""
    about, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(description=about, epilog=rest, formatter_class=argparse.RawTextHelpFormatter)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--list", action="store_true", help="show every unit and how far it is")
    what.add_argument("--render", action="store_true", help="make the page from the files that are there")
    what.add_argument("--quick", action="store_true", help="a small training: is the team better than before?")
    parser.add_argument("--only", metavar="GLOB", default="*", help="units by name, e.g. 'full/*' or '*/train'")
    parser.add_argument("--limit-minutes", metavar="M", type=float, help="stop before a unit that would not fit in")
    parser.add_argument("--jobs", metavar="N", type=int, help="units side by side; default: 1, with --quick 2")
    parser.add_argument("--plan", metavar="FILE", type=Path, default=DOCS / "results/plan.yaml", help="all units")
    parser.add_argument("--work", metavar="DIR", type=Path, default=SHOWN, help=f"what collab writes; default: {SHOWN}")
    parser.add_argument(
        "--out", metavar="DIR", type=Path, help="pictures, units; DIR.md is the page; default: by --plan"
    )
    asked = parser.parse_args(arguments)
    try:
        for form, name in ((form, name) for form, names in USELESS.items() for name in names.split()):
            if getattr(asked, form) and getattr(asked, name) != parser.get_default(name):
                raise UsageError(f"--{name.replace('_', '-')} has no meaning beside --{form}; leave one of them out")
        if asked.jobs is not None and asked.jobs < 1:
            raise UsageError(f"--jobs {asked.jobs}: at least one unit is worked on at a time")
        if asked.limit_minutes is not None and not 0 < asked.limit_minutes < math.inf:
            raise UsageError(f"--limit-minutes {asked.limit_minutes:g}: must be a number of minutes above 0")
        code = train_a_little(asked.work, asked.jobs or 2) if asked.quick else measure(asked, read_plan(asked.plan))
        sys.stdout.flush()
        return code
    except CollabError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python's own last flush is silent then
        return 1


def measure(asked: argparse.Namespace, plan: Plan) -> int:
    """Do what is missing, unless only a list or the page is asked for."""
    folder = asked.out or asked.plan.parent
    units, page, template = folder / "units", folder.with_suffix(".md"), asked.plan.with_name("page.md.jinja")
    records, listed = read_all(units, plan), select_units(plan, asked.only)
    check_records(plan, records, units, asked.work)
    place = None if asked.render else Workspace.find(plan, asked.work, units, records)
    if place and asked.list:
        print(list_units(plan, place, records, listed))
        return 0
    try:
        if place:
            jobs, minutes = asked.jobs or 1, asked.limit_minutes
            records = work_off(plan, place, records, say=say, asked=listed, minutes=minutes, jobs=jobs)
    finally:
        render_page(Results(plan, read_all(units, plan)), template, page)
    print(page)
    if place and (undone := describe_undone(plan, place, records, listed)):
        raise RunError("\n".join(undone))
    return 0


def train_a_little(work: Path, jobs: int) -> int:
    """Print whether a small training makes the team better; each state of the code has a folder of its own."""
    plan, own, began = read_plan(DOCS / "results/quick.yaml"), work / "quick" / hash_code()[:12], time.monotonic()
    place = Workspace.find(plan, own)
    records = read_all(place.units, plan)
    check_records(plan, records, place.units, own)
    text, is_better = judge_training(Results(plan, work_off(plan, place, records, say=say, jobs=jobs)))
    print(f"{text}\n\n{(time.monotonic() - began) / 60:.1f} minutes this time, {jobs} units side by side")
    return 0 if is_better else 1


if __name__ == "__main__":
    sys.exit(main())
