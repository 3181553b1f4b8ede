"""`docs/results.md`: what was measured, what is missing, how each number came to be.

Made from the files of finished units alone; the same files give the same document, wherever it is made.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from collab.utils.files import report_write_errors, write_atomic
from collab.utils.plotting import to_svg
from evidence.curves import draw_curves, likelihood_curves, success_curves
from evidence.figures import (
    MISSING,
    ablation_table,
    cold_table,
    filled,
    learned_table,
    likelihood_table,
    main_table,
    seed_table,
    transfer_table,
)
from evidence.goals import beside, goal_table
from evidence.listing import unit_lines
from evidence.plan import Plan
from evidence.reasons import reasons
from evidence.record import Records, UnitRecord
from evidence.times import time_table, time_words
from evidence.units import queue

_HEAD = """# Results

This page measures what training teaches a team of the [pocket policy](../agents/pocket/README.md), on a processor.
Training is on the phone (`androidworld[simphone]`, training split). Evaluation is on new instances of the same tasks,
on unseen tasks, and on pages of `mobile-miniwob`, before and after further training there. The critic is the
environment's own solution (`critic-oracle`), the adversary draws plausible mistakes (`sampler`); no other model is
used. Success on SimPhone is not a success rate on AndroidWorld.

{state}

`python scripts/reproduce_tables.py --render` makes this page from the files of finished units in
`docs/results/units`, and from nothing else.

All arms begin with the same checkpoint{base} and train with the same number of environment
steps. They are measured on the same instances (run seeds 30, 31 and 32) after the last epoch, with the same sampling:
"hot" is temperature 1.5, "cold" is 0.3. At the pocket's own temperatures (0.1 to 0.8) the agents of a team agree in
nearly all steps, and agreement teaches nothing. So they play hot. A high temperature costs success. The column beside
shows what an untrained team loses by it; a training that makes a policy more confident regains some of that. Only the
section after the goals compares trained and untrained teams that are both cold.

[`scripts/evidence/plan.py`](../scripts/evidence/plan.py) holds arms, budgets and the reasons for them. It was written
before any measurement, and changed after that:

- The full method's recipe changed three times, each time chosen on other seeds than those of this page.
- The tasks of all arms changed once, because tasks that a first epoch had left out gained nothing on these seeds.
- Two more runs of the untrained team, at the same temperature with other sampling seeds, were added at the end. A goal
  had been missed, and the first run might have been lucky. Goals are still judged by that first run.
- Training on the pages changed three times, because it gained nothing either. Two of these changes were chosen on other
  seeds. Then one training at twice today's rate forgot nine points of the phone on instances of seed 30, and the rate
  was halved. So the numbers on forgetting are not independent of the choice of the rate.

[How the recipe was chosen](recipe.md) has the numbers, including earlier measurements of this page.

Success is in percent with 95 % Wilson intervals, followed by the number of trainings and of instances. Differences are
in percentage points with 95 % bootstrap intervals that resample tasks, then their instances. Each instance is paired
with itself, for every run seed of a training. Trainings of one arm are measured on the same instances and behave alike
on them. So intervals count an instance once, however many trainings played it. Intervals describe other tasks and
instances rather than other trainings; a section below shows each training separately.
"""
_ORDER = """Two faults have been fixed since, and none of these trainings was repeated. Within an epoch, tasks were
played in alphabetical order, whatever order was drawn, so epochs below a whole pass learned from the first names. And
anchored replies weakened the preference term.
"""
_COLD = """A high temperature costs the untrained team more than any training gained. The table compares hot arms with
the untrained team at the low temperature. An arm above it would be better than any untrained team here. "Not separable"
is a difference with 0 in its interval.
"""
_TRANSFER = """Direct transfer evaluates the trained team; continual training is one more training that begins with it.
`collab transfer` does both in one command ([transfer](transfer.md)); here they are units.
"""
_JUDGED = "Judged on the pages by {critics}: {trainings}.\n"
_GAINS = """The table shows the gain of chosen replies over the reference in nats, in the last quarter of an epoch's
logged steps. "Alarm" means that at some logged step chosen replies had lost two nats or more while the margin grew.
Then the margin came from rejected replies, and training may have cost earlier knowledge.
"""
_LEARNS = """The table shows what trainings learned from, and how many examples an epoch had, without anchored replies.
Further training on the pages includes rows of older epochs, anchored replies included. Sources of pairs can be mixed
(`pairs` of a method; the ablation `mixed-pairs`); this page has no such arm. """
_STEPS = """An optimizer step takes {rows} rows at most, anchored replies included, or pairs of whole episodes with as
many chosen replies. The number of steps was not recorded."""
_PICTURES = {
    "success.svg": ("Success on the held-out seed", "percent of tasks, by epoch", success_curves),
    "likelihood.svg": ("What training does to chosen replies", "nats above the reference", likelihood_curves),
}


def render(plan: Plan, records: Records, page: Path, folder: Path) -> None:
    """Write the page and its pictures.

    Args:
        page: `docs/results.md`.
        folder: of the pictures and of the units' files, beside it.

    Raises:
        UsageError: results cannot be compared.
        StoreFailure: something cannot be written.
    """
    drawn = {
        name: to_svg(draw_curves(title, unit, curves))
        for name, (title, unit, of) in _PICTURES.items()
        if (curves := of(plan, records))
    }
    text = document(plan, records)
    with report_write_errors(page, "give the same command again"):
        folder.mkdir(parents=True, exist_ok=True)
        for name, picture in drawn.items():
            write_atomic(folder / name, picture.encode())
        for name in _PICTURES.keys() - drawn.keys():
            (folder / name).unlink(missing_ok=True)
        write_atomic(page, text.encode())


def document(plan: Plan, records: Records) -> str:
    """The page as Markdown; UsageError where results cannot be compared."""
    parts = [
        _head(plan, records),
        _section("Goals", [*goal_table(plan, records), "", *beside(plan, records), *reasons(plan, records)]),
        _section("Against the untrained team, cold", [*filled(_COLD), "", *cold_table(plan, records)]),
        _section("Teams, trained and untrained", main_table(plan, records)),
        _section("What the method is made of", [*ablation_table(plan, records), "", *_learned(plan, records)]),
        _section("Another environment", [_TRANSFER, *_judged(records), *transfer_table(plan, records)]),
        _section("Each training by itself", [*seed_table(plan, records), "", "Success on new seeds."]),
        _section("Over the epochs", [*_pictures(plan, records), *_likelihood(plan, records)]),
        _section("What a training takes", [*filled(time_words(records)), "", *time_table(plan, records)]),
        _section("Every unit", unit_lines(records)),
    ]
    return "\n".join(parts)


def _section(head: str, lines: Iterable[str]) -> str:
    return "\n".join(["", f"## {head}", "", *lines])


def _head(plan: Plan, records: Records) -> str:
    """What all is about, and how far it is."""
    units = queue(plan)
    done = len(records)
    if not done:
        state = f"**Nothing has been measured yet**: none of {len(units)} units is done."
    else:
        state = f"{done} of {len(units)} units are done." if done < len(units) else f"All {done} units are done."
    base = next((f" (weights `{record.base[:12]}`)" for record in records.values()), "")
    return f"{_HEAD.replace('{state}', state).replace('{base}', base).rstrip()}\n\n{_ORDER.rstrip()}"


def _pictures(plan: Plan, records: Records) -> list[str]:
    drawn = {name: bool(curves(plan, records)) for name, (_, _, curves) in _PICTURES.items()}
    shown = [
        line
        for name, (title, unit, _) in _PICTURES.items()
        for line in (f"![{title}](results/{name})" if drawn[name] else f"{title}, {unit}: {MISSING}.", "")
    ]
    return [*shown, "A point is a training, a line the mean of an arm."] if any(drawn.values()) else shown[:-1]


def _likelihood(plan: Plan, records: Records) -> list[str]:
    """What the second picture is made of, and the alarms, which it does not show."""
    lines = likelihood_table(plan, records)
    return ["", *_GAINS.rstrip().splitlines(), "", *lines] if lines else []


def _learned(plan: Plan, records: Records) -> list[str]:
    """What each arm learned from, and how much there was of it."""
    sizes = {_step_of(record) for record in records.values() if record.epochs} - {None}
    step = _STEPS.format(rows=sizes.pop()) if len(sizes) == 1 else ""
    return [*filled(_LEARNS + step), "", *learned_table(plan, records)]


def _step_of(record: UnitRecord) -> int | None:
    """Rows that an optimizer step of a training takes."""
    rows: int | None = record.config.get("method", {}).get("dpo", {}).get("batch_rows")
    return rows


def _judged(records: Records) -> list[str]:
    """By which critics trainings were judged on the pages: each version says something else of some of them."""
    judged: dict[tuple[str, ...], list[str]] = {}
    for unit, record in records.items():
        if unit.phase == "continual" and record.critics:
            judged.setdefault(tuple(record.critics), []).append(f"run seed {unit.seed}")
    return [
        _JUDGED.format(trainings=", ".join(trainings), critics=" and ".join(f"`{one}`" for one in critics))
        for critics, trainings in judged.items()
    ]
