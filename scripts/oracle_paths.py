"""Set the length of each oracle's path beside the steps that AndroidWorld's authors count as optimal.

    python scripts/oracle_paths.py --metadata PATH/android_world/task_metadata.json > docs/androidworld-tasks.md

`task_metadata.json` is a file of AndroidWorld's package; without it, its column is left empty. Every task is played
by its oracle on the instances of suite seeds 30, 31 and 32, the three that the fidelity test uses. Exit code 1 when an
oracle does not end with a score of 1.0.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from collab.envs.base import TaskInfo
from collab.envs.simphone.core import SimPhone
from collab.envs.simphone.suite import SimPhoneSuite
from collab.seeds import Seeds

SUITE_SEEDS = (30, 31, 32)
HEAD = """# AndroidWorld's tasks on SimPhone

These are the 88 tasks of AndroidWorld on SimPhone, by AndroidWorld's names. *Budget*: steps until an episode ends.
*Optimal*: steps that AndroidWorld's authors give in `task_metadata.json`. *Oracle*: mean length of our solution over
the instances of suite seeds 30, 31 and 32, the closing `status` included. *Score*: the lowest score it reached.

The two counts differ for reasons that are not flaws. An oracle opens apps by name and ends with `status`. It types into
a field in one step (tap, text and Enter, as AndroidWorld executes `input_text`). Some of SimPhone's forms and pickers
are simpler than the apps' own. And the number of rows to add or to delete is drawn by seed.

`python scripts/oracle_paths.py --metadata PATH/android_world/task_metadata.json > docs/androidworld-tasks.md` makes it.

| task | apps | difficulty | budget | optimal | oracle | score |
|---|---|---|---:|---:|---:|---:|"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What the oracle did on a task's instances."""

    steps: float
    """Mean over the instances, `status` included."""
    score: float
    """The lowest."""


def play(suite: SimPhoneSuite, name: str) -> Played:
    """Let the oracle of a task solve one instance of each suite seed; a missing solution scores 0 in 0 steps."""
    lengths, scores = [], []
    for seed in SUITE_SEEDS:
        phone = SimPhone()
        phone.reset(suite.instance(name, Seeds(seed).task(name, 0)))
        solution = phone.oracle() or ()
        outcomes = [phone.step(action).outcome for action in solution]
        ended = outcomes[-1] if outcomes else None
        lengths.append(len(solution))
        scores.append(ended.score if ended else 0.0)
    return Played(steps=statistics.mean(lengths), score=min(scores))


def row(info: TaskInfo, played: Played, optimal: Mapping[str, int]) -> str:
    """A task's line of the table."""
    cells = (
        *(info.name, ", ".join(info.apps), info.difficulty or "", str(info.max_steps)),
        *(str(optimal.get(info.name, "")), f"{played.steps:.1f}", f"{played.score:.1f}"),
    )
    return f"| {' | '.join(cells)} |"


def summary(infos: Sequence[TaskInfo], played: Mapping[str, Played], optimal: Mapping[str, int]) -> str:
    """What the table adds up to."""
    known = [info.name for info in infos if info.name in optimal]
    solved = sum(one.score == 1.0 for one in played.values())
    text = f"{solved} of {len(infos)} oracles reach 1.0 on all three instances"
    if not known:
        return text + "."
    steps = statistics.mean(played[name].steps for name in known)
    theirs = statistics.mean(optimal[name] for name in known)
    return f"{text}; mean path {steps:.1f} steps, AndroidWorld's optimal mean {theirs:.1f}."


def optimal_steps(metadata: Path | None) -> dict[str, int]:
    """Task → optimal steps, from AndroidWorld's file; empty without one."""
    if metadata is None:
        return {}
    return {task["task_name"]: int(task["optimal_steps"]) for task in json.loads(metadata.read_text(encoding="utf-8"))}


def main() -> int:
    """Print the table; the exit code."""
    parser = argparse.ArgumentParser(description="Compare our oracles' paths with AndroidWorld's optimal steps.")
    parser.add_argument("--metadata", type=Path, help="AndroidWorld's task_metadata.json")
    optimal = optimal_steps(parser.parse_args().metadata)
    suite = SimPhoneSuite()
    infos = suite.tasks()
    played = {info.name: play(suite, info.name) for info in infos}
    print(HEAD, *(row(info, played[info.name], optimal) for info in infos), sep="\n")
    print(f"\n{summary(infos, played, optimal)}")
    return int(any(one.score < 1.0 for one in played.values()))


if __name__ == "__main__":
    sys.exit(main())
