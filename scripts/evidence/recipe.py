"""Whether what is there of a unit was made as the plan, the presets and the definitions of today would make it.

    check_records(plan, records, folder, work)      # of finished units
    check_begun(plan, unit, work, base=base, began=command)

A command alone does not tell: the same words give another training once a preset, a graph or an agents file was
changed. So what the words stood for is compared, too. Descriptions do not count, nor does what weights an agent plays,
which is checked by their digest. What a record says nothing of was at its default when the record was made.
"""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from collab.config import RUN, RunConfig, override, run_config, validate
from collab.errors import ConfigError, UsageError
from collab.library import Library
from collab.loop.config import Method
from collab.loop.configure import apply_ablation
from collab.loop.interfaces import load_algorithm, load_config, load_method
from collab.loop.record import TrainingDir
from collab.rollout.build import with_prompts
from evidence.gather import placeless
from evidence.plan import Plan
from evidence.record import Records, UnitRecord, file_of
from evidence.units import SHOWN, Unit, command, phase_of, players, shown_command

Told: TypeAlias = Mapping[str, Any]
"""Name → value of all that decides a unit beside its command, e.g. "method.dpo.beta" → 0.3."""
_COMMENT = re.compile(r"\{#.*?#\}\n?", re.DOTALL)
"""A template's comment, with the line break that goes with it: no model reads it."""
ALGORITHM = "collabuiagents"
"""That all units train by."""
SHORT = 60
"""Characters of a value that a message repeats."""


def today(plan: Plan, unit: Unit) -> Told:
    """What a unit's command stands for now.

    Raises:
        UsageError: a definition that it names is not there or does not fit.
    """
    _, *words = command(plan, unit, SHOWN)
    options: dict[str, list[str]] = {}
    for name, value in zip(words[::2], words[1::2], strict=True):
        options.setdefault(name, []).append(value)
    library = Library(own=Path(options["--library"][-1]) if "--library" in options else None)
    graph, settings, method = options.get("--graph", ["team"])[-1], options.get("--set", []), None
    if phase_of(plan, unit).kind == "train-marl":
        algorithm = load_algorithm(ALGORITHM)
        method = load_method(algorithm, options["--preset"][-1])
        if "--ablation" in options:
            method, graph = apply_ablation(algorithm, method, options["--ablation"][-1], graph=graph)
        method = override(method, [one for one in settings if not one.startswith(RUN)])
        settings = [one.removeprefix(RUN) for one in settings if one.startswith(RUN)]
    run = run_config(library=library, env=options["--env"][-1], graph=graph, agents=plan.agents, settings=settings)
    return _decisive(with_prompts(run, library), method)


def then(config: Mapping[str, Any], source: str) -> Told:
    """What a configuration stands for that was recorded; ConfigError where it does not fit those of today.

    Args:
        config: of a training, or of a run.
        source: where it was read, for messages.
    """
    if "method" not in config:
        return _decisive(validate(RunConfig, config, source), None)
    training = load_config(config, source)
    return _decisive(training.run, training.method)


def check_records(plan: Plan, records: Records, folder: Path, work: Path) -> None:
    """Refuse finished units of another recipe than today's.

    Args:
        folder: of the units' files.
        work: what `collab` writes, of all bases.

    Raises:
        UsageError: there is one; the message names file, difference and what to remove.
    """
    known: dict[tuple[str, str], Told] = {}  # run seeds have one recipe
    for unit, record in records.items():
        kind = (unit.arm, unit.phase)
        if kind not in known:
            known[kind] = today(plan, unit)
        file = file_of(folder, unit)
        found = _differences(record.command, shown_command(plan, unit, record.base))
        found += _changes(record.config, known[kind], str(file))
        if found:
            raise UsageError(
                f"{file}: was made by another recipe than today's ({_listed(found)}); "
                f"{_way_out(plan, record, records, work)}, and it is done again"
            )


def check_begun(plan: Plan, unit: Unit, work: Path, *, base: str, began: str | None) -> None:
    """Refuse to go on with, or to play, what was begun by another recipe than today's.

    Args:
        work: folder of all units of this base; the unit's own need not exist.
        base: digest of the weights that every arm begins with.
        began: the command that began it, as `shown_command`; None where nobody noted it.

    Raises:
        UsageError: it was; the message names folder, difference and what to remove. What was begun of an evaluation is
            compared with the configuration of today by `collab` itself.
        RunFormatError: the training cannot be read.
    """
    folder = work / unit.name
    if not folder.exists():
        return
    found = [] if began is None else _differences(began, shown_command(plan, unit, base))
    training = TrainingDir(folder)
    if phase_of(plan, unit).kind == "train-marl" and training.file.exists():
        found += _changes(training.read()["config"], today(plan, unit), str(training.file))
    if found:
        raise UsageError(
            f"{folder}: was begun by another recipe than today's ({_listed(found)}); "
            "remove that folder, and it is begun anew"
        )


# ---------------------------------------------------------------------------------------------- what decides a unit


def _decisive(run: RunConfig, method: Method | None) -> Told:
    """Where, by whom and how; not which tasks and seeds, which the command tells."""
    environment, part = run.environment, run.environment.part
    told = {
        "environment": {
            "name": run.environment_name,
            "kind": part.kind,
            "options": {name: value for name, value in part.options.items() if name != "without"},  # by the split
            "limits": environment.limits.model_dump(mode="json"),
            "unseen": environment.unseen.apps,
        },
        "graph": run.graph.model_dump(mode="json", exclude={"description"}),
        "agents": {
            slot: agent.model_dump(mode="json", exclude={"description", "options"})
            for slot, agent in run.agents.items()
        },
        "prompts": {
            name: {part: _COMMENT.sub("", text) for part, text in texts.items()} for name, texts in run.prompts.items()
        },
    }
    if method is not None:
        told["method"] = method.model_dump(mode="json", exclude={"description"})
    return dict(_flat(placeless(told, SHOWN)))


def _flat(told: Mapping[str, Any], head: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in told.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{head}{name}.")
        else:
            yield f"{head}{name}", value


# ------------------------------------------------------------------------------------------------ what is different


def _differences(there: str, now: str) -> list[str]:
    """Of two commands; empty where they are the same."""
    if there == now:
        return []
    first, second = Counter(shlex.split(there)), Counter(shlex.split(now))
    gone, new = (shlex.join(one.elements()) for one in (first - second, second - first))
    return [f"command: {gone or 'nothing'} there, {new or 'nothing'} today" if gone or new else "order of its options"]


def _changes(config: Mapping[str, Any], now: Told, source: str) -> list[str]:
    """Between a recorded configuration and that of today; empty where it gives the same."""
    try:
        there = then(config, source)
    except ConfigError as error:
        return [f"configuration of another version: {error}"]
    names = [name for name in dict.fromkeys([*now, *there]) if there.get(name) != now.get(name)]
    return [_change(name, there.get(name), now.get(name)) for name in names]


def _change(name: str, there: Any, now: Any) -> str:
    one, other = (json.dumps(value, ensure_ascii=False) for value in (there, now))
    long = max(len(one), len(other)) > SHORT
    return f"{name}: another text today" if long else f"{name}: {one} there, {other} today"


def _listed(found: Sequence[str]) -> str:
    most = 3
    more = f"; {len(found) - most} more" if len(found) > most else ""
    return "; ".join(found[:most]) + more


def _way_out(plan: Plan, record: UnitRecord, records: Records, work: Path) -> str:
    """What to remove: with a training goes what plays it."""
    also = [one.name for one in players(plan, record.unit) if one in records]
    beside = f", and both of {', '.join(also)}" if also else ""
    return f"remove it and its folder {work / record.base[:12] / record.unit.name}{beside}"
