"""Every unit by itself: how long it took, what it left, by which code, on what machine, by which command."""

from __future__ import annotations

import re
from collections.abc import Iterable

from evidence.figures import MISSING, filled, table
from evidence.plan import MOST
from evidence.record import Records, UnitRecord

_AGAIN = """`python scripts/reproduce_tables.py` makes what is missing, `--list` shows it. A repeated unit plays the
same instances. Policies answer in batches here (`determinism: fast`), so a few replies may differ, and with them the
hash. `collab verify-resume` proves exact repetition on one machine; two machines may give different bits.
"""
_CODE = """Code is the SHA-256 of the package's sources in each process that worked on a unit: {codes} below. Units are
compared with today's commands and configurations before a table joins them, and not with today's code.
"""
_MINUTES = """Minutes are wall time, while the machine had other work, too. A unit should take {most:g} at most; {long}
of {units} took longer{names}. Units were computed on several machines, by AMD and Intel. Some trained ones used a
library that makes products faster ([benchmarks](benchmarks.md)). So minutes of different units say little about
methods. """


def unit_lines(records: Records) -> list[str]:
    """The commands that were given, in their order, and the hashes that came of them."""
    lines = filled(_AGAIN)
    if not records:
        return [*lines, "", f"Run hashes: {MISSING}.", ""]
    for text in (_code(records), _minutes_of(records), _silent(records)):
        lines += ["", *filled(text)] if text else []
    rows = [
        [
            f"[{unit}](results/units/{unit}.json)",
            _minutes(record),
            _hashes(record),
            ", ".join(f"`{one[:12]}`" for one in record.code),
        ]
        for unit, record in records.items()
    ]
    machines = dict.fromkeys(_machine(record) for record in records.values())
    lines += ["", *table(["unit", "minutes", "run hash", "code"], rows), "", *(f"- {told}" for told in machines), ""]
    return [*lines, "```console", *_commands(records), "```", ""]


def _code(records: Records) -> str:
    digests = {digest for record in records.values() for digest in record.code}
    return _CODE.format(codes="one digest" if len(digests) == 1 else f"{len(digests)} digests")


def _minutes_of(records: Records) -> str:
    long = [unit.name for unit, record in records.items() if _is_long(record)]
    names = f": {', '.join(f'`{name}`' for name in long)}" if long else ""
    return _MINUTES.format(most=MOST, long=len(long), units=len(records), names=names)


def _silent(records: Records) -> str:
    """What files do not tell that newer ones do."""
    units, trainings = list(records.values()), [record for record in records.values() if record.epochs]
    nameless = sum("model" not in record.machine for record in units)
    judged = [record for record in trainings if record.config.get("method", {}).get("objective") != "trajectory-dpo"]
    unjudged = sum(record.critics is None for record in judged)
    told = []
    if nameless:
        told.append(
            f"{nameless} of {len(units)} files name neither the processor's model nor libraries that were preloaded "
            "(`LD_PRELOAD`)"
        )
    if unjudged:
        told.append(f"{unjudged} of {len(judged)} trainings that a critic judged do not name its version")
    return f"{'; '.join(told)}: they were written before that was noted." if told else ""


def _commands(records: Records) -> list[str]:
    """What was given, once for trainings that differ in their run seed alone."""
    alike: dict[str, list[tuple[int | None, str]]] = {}
    for unit, record in records.items():
        alike.setdefault(_any_seed(record.command, unit.seed), []).append((unit.seed, record.command))
    return [
        f"$ {given[0][1]}" if len(given) == 1 else f"$ for seed in {_words(given)}; do {command}; done"
        for command, given in alike.items()
    ]


def _words(given: Iterable[tuple[int | None, str]]) -> str:
    return " ".join(sorted(str(seed) for seed, _ in given))


def _any_seed(command: str, seed: int | None) -> str:
    """The command with the shell's `$seed` where it names its run seed; unchanged where it has none."""
    return command if seed is None else re.sub(rf"(--seed |/seed-){seed}\b", r"\1$seed", command)


def _is_long(record: UnitRecord) -> bool:
    return record.seconds.whole / 60 > MOST


def _minutes(record: UnitRecord) -> str:
    """What it took, in bold where that is more than a unit is meant to take."""
    minutes = f"{record.seconds.whole / 60:.0f}"
    return f"**{minutes}**" if _is_long(record) else minutes


def _hashes(record: UnitRecord) -> str:
    return ", ".join(f"{name} `{digest[:12]}`" for name, digest in record.hashes.items())


def _machine(record: UnitRecord) -> str:
    told = record.machine
    words = [
        f"{told['processors']} processors",
        str(told.get("model") or ""),
        "" if told["threads"] is None else f"{told['threads']} thread{'s' if told['threads'] != '1' else ''} a process",
        f"preloaded {told['preloaded']}" if told.get("preloaded") else "",
    ]
    return f"{', '.join(filter(None, words))}, {told['system']}, Python {told['python']}, torch {told['torch']}"
