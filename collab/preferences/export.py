"""Export runs as one folder for `datasets.load_dataset` and TRL's trainers.

    exported = export_runs([Path("runs/first")], Path("tables"))      # rows of `collab synth`: export_rows
    load_dataset("tables", "preferences")                             # its README.md names the tables

Tables: episodes, steps and cells (`collab.store.parquet`); rewards, a line per critic and cell; pairs, with both
replies, their scores and their prompt. Two are in TRL's form of messages: preferences with `prompt`, `chosen` and
`rejected` (DPOTrainer), demonstrations with `prompt` and `completion` (SFTTrainer).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from collab.data.example import LEVELS
from collab.data.example import Example as TrainingExample
from collab.data.parquet import read_rows
from collab.errors import UsageError
from collab.preferences.explain import read_current_labels
from collab.preferences.pairs import is_heard_alike
from collab.preferences.store import PairSet, find_last_name, list_pair_sets, read_pairs
from collab.rewards.base import Judgement, hash_input
from collab.rewards.labels import LabelSet, list_label_sets, read_labels
from collab.store.parquet import COLUMNS, MESSAGES, Kinds, ParquetFolder, Row, add_episode, clean, read_prompt, split_of
from collab.store.reader import RunReader
from collab.store.rewards import PreferencePair, ReplyRef
from collab.store.run import RunStore
from collab.types import Step, Trajectory, Utterance
from collab.utils.files import report_write_errors, write_atomic

README = "README.md"
FIRST = ("cells", "demonstrations")
"""Tables that are loaded when none is named: the first of these that exists."""

MORE: Mapping[str, Kinds] = {
    "rewards": {
        "string": "run trajectory task split agent labels critic score_reason missing",
        "int64": "step round reward",
        "double": "score",
    },
    "pairs": {
        "string": "run name id source critic adversary trajectory task split agent system user chosen rejected"
        " chosen_trajectory rejected_trajectory",
        "int64": "step round seed",
        "double": "chosen_score rejected_score",
        "bool": "off_context privileged",
    },
    "preferences": {
        MESSAGES: "prompt chosen rejected",
        "string": "run id source trajectory task split agent",
        "int64": "step round seed",
    },
    "demonstrations": {
        MESSAGES: "prompt completion",
        "string": "run trajectory task split agent level",
        "int64": "step round seed",
        "double": "score",
    },
}
"""Tables that exist only where they have rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedPairs:
    """The written files and their rows."""

    files: tuple[Path, ...]
    rows: Mapping[str, int]
    """Table → rows, except episodes, steps and cells."""
    privileged: bool
    """Whether a rehearsal is among the runs."""
    left_out: Mapping[str, int]
    """Why a pair is in no table of preferences → how many."""


def export_runs(runs: Sequence[Path], out: Path) -> ExportedPairs:
    """Write runs into one folder.

    Raises:
        MissingExtra: pyarrow is not installed.
        UsageError: something is in the folder already.
        RunFormatError: a run, its labels or its pairs cannot be read.
        StoreFailure: the folder cannot be written.
    """
    _check_free(out)
    rows, left_out, privileged = Counter[str](), Counter[str](), False
    with ParquetFolder(out, {**COLUMNS, **MORE}) as folder:
        for path in runs:
            with RunStore.open(path).open_reader() as reader:
                run = _RunExport.of(folder, path, reader)
                _add_run(run)
                privileged = privileged or reader.manifest.privileged
            rows, left_out = rows + run.rows, left_out + run.left_out
    _describe(out, folder.files)
    return ExportedPairs(files=tuple(folder.files), rows=rows, privileged=privileged, left_out=left_out)


def export_rows(data: Path, out: Path) -> ExportedPairs:
    """Write the rows of `collab synth` into one folder, in TRL's form; raises as `export_runs` does."""
    _check_free(out)
    rows = Counter[str]()
    tables = {name: MORE[name] for name in ("preferences", "demonstrations")}
    # The folder appears whole: a trainer must never load half of it.
    with ParquetFolder(out, tables) as folder:
        for level in LEVELS:
            path = data / f"{level}.parquet"
            for example in read_rows(path) if path.exists() else ():
                name = "demonstrations" if example.rejected is None else "preferences"
                rows[name] += 1
                folder.add(name, _build_example(data, example))
    _describe(out, folder.files)
    return ExportedPairs(files=tuple(folder.files), rows=rows, privileged=False, left_out={})


def is_data(path: Path) -> bool:
    """Return whether a folder holds rows that `collab synth` made."""
    return any((path / f"{level}.parquet").is_file() for level in LEVELS)


# ------------------------------------------------------------------------------------------------------- of a run


@dataclass(slots=True, kw_only=True)
class _RunExport:
    """A run that is being written, with its labels and pairs."""

    folder: ParquetFolder
    name: str
    reader: RunReader
    labels: Mapping[str, LabelSet]
    deciding: LabelSet | None
    """The labels whose scores stand beside cells: those of the last pairs, else the first ones."""
    pairs: Mapping[str, list[tuple[PairSet, LabelSet | None, PreferencePair]]]
    """Trajectory → its pairs, each with its set and the labels that decided it."""
    rows: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    preferred: set[str] = field(default_factory=set)
    """IDs of exported preferences: sets of one run may share pairs."""
    _digests: dict[tuple[str, int], str] = field(default_factory=dict)
    """Hash of the step that was looked up last."""

    @classmethod
    def of(cls, folder: ParquetFolder, run: Path, reader: RunReader) -> _RunExport:
        """Read a run's labels and pairs; raises as `read_labels` and `read_pairs` do."""
        stored = [read_pairs(run, name) for name in list_pair_sets(run)]
        labels = {name: read_labels(run, name) for name in list_label_sets(run)}
        last = next((one.head.labels for one in stored if one.name == find_last_name(run)), None)
        pairs: dict[str, list[tuple[PairSet, LabelSet | None, PreferencePair]]] = {}
        for one in stored:
            decided = read_current_labels(run, one.head)
            for pair in one.pairs:
                pairs.setdefault(pair.place.trajectory, []).append((one, decided, pair))
        deciding = labels.get(last or "") or next(iter(labels.values()), None)
        return cls(folder=folder, name=str(run), reader=reader, labels=labels, deciding=deciding, pairs=pairs)

    def add(self, table: str, row: Row) -> None:
        """Add a row that names the run and its split."""
        self.rows[table] += 1
        self.folder.add(table, {"run": self.name, "split": split_of(self.reader.manifest), **row})

    def find_judgement(self, labels: LabelSet | None, trajectory: Trajectory, step: Step) -> Judgement | None:
        """Return the judgement of exactly this step; None without one, or if its episode was played again since."""
        found = None if labels is None else labels.judged.get((trajectory.id, step.index))
        if found is None:
            return None
        key = trajectory.id, step.index
        if key not in self._digests:
            self._digests = {key: hash_input(trajectory.task.goal, step.observation, step.matrix)}
        return found if found.case == self._digests[key] else None


def _add_run(run: _RunExport) -> None:
    def score(trajectory: Trajectory, step: Step, cell: Utterance) -> Row:
        return _score(run.find_judgement(run.deciding, trajectory, step), cell)

    for episode in run.reader.list_episodes():
        trajectory = add_episode(run.folder, run.name, run.reader, episode, score)
        for step in trajectory.steps:
            _add_rewards(run, trajectory, step)
            _add_demonstrations(run, trajectory, step)
        for stored, decided, pair in run.pairs.get(episode.id, ()):
            _add_pair(run, trajectory, stored, decided, pair)


def _score(judgement: Judgement | None, cell: Utterance) -> Row:
    if judgement is None:
        return {}
    word = judgement.of(cell.cell)
    critic = judgement.rewards.critic
    return {"critic": critic, "score": word.score, "reward": word.reward, "score_reason": clean(word.reason)}


def _place(trajectory: Trajectory, step: Step, cell: Utterance) -> Row:
    return {
        "trajectory": trajectory.id,
        "task": trajectory.task.name,
        "agent": cell.agent,
        "step": step.index,
        "round": cell.round,
    }


def _add_rewards(run: _RunExport, trajectory: Trajectory, step: Step) -> None:
    """Add a row per label set and judged cell."""
    for name, labels in run.labels.items():
        judgement = run.find_judgement(labels, trajectory, step)
        for cell in step.matrix if judgement is not None else ():
            assert judgement is not None
            missing = judgement.of(cell.cell).missing
            run.add(
                "rewards",
                {**_place(trajectory, step, cell), **_score(judgement, cell), "labels": name, "missing": missing},
            )


def _add_demonstrations(run: _RunExport, trajectory: Trajectory, step: Step) -> None:
    """Add each reply worth learning: rewarded ones, and vote winners of solved episodes if the step is not judged."""
    judgement = run.find_judgement(run.deciding, trajectory, step)
    winners = set(step.vote.ballots[0].cells) if step.vote.ballots and trajectory.success else set()
    # A vote won in a solved episode is the best evidence for a reply that no critic judged.
    for cell in step.matrix:
        word = None if judgement is None else judgement.of(cell.cell)
        good = cell.cell in winners if word is None else bool(word.reward)
        system, user = read_prompt(run.reader, cell)
        # Replies that saw the solution would teach what no policy can know.
        if good and not cell.privileged and user is not None:
            run.add(
                "demonstrations",
                {
                    **_place(trajectory, step, cell),
                    "prompt": _format_prompt(system, user),
                    "completion": _format_reply(cell.text),
                    "score": None if word is None else word.score,
                    "seed": trajectory.task.seed,
                },
            )


def _add_pair(
    run: _RunExport, trajectory: Trajectory, stored: PairSet, labels: LabelSet | None, pair: PreferencePair
) -> None:
    """Add a row for a pair, and one in TRL's form where both sides answer one prompt that is still stored."""
    # These fields hold for every pair, also where its prompt is gone.
    told: Row = {
        "name": stored.name,
        "id": pair.id,
        "source": pair.source,
        "critic": pair.critic,
        "adversary": pair.adversary,
        "trajectory": trajectory.id,
        "task": trajectory.task.name,
        "seed": trajectory.task.seed,
        "chosen_trajectory": pair.chosen[0].trajectory,
        "rejected_trajectory": pair.rejected[0].trajectory if pair.rejected else None,
        "privileged": trajectory.privileged,
    }
    # A resumed episode may have been played again: then the pair's cell is no longer what it was.
    steps = {step.index: step for step in trajectory.steps}
    step = None if pair.answered is None else steps.get(pair.answered.step)
    if pair.answered is None or step is None or step.matrix[pair.answered.cell].prompt.hash != pair.prompt:
        run.left_out["whole trajectories" if pair.answered is None else "played again since"] += 1
        run.add("pairs", told)
        return
    cell, judgement = step.matrix[pair.answered.cell], run.find_judgement(labels, trajectory, step)
    # From here on the pair has a prompt: its texts are read where they were recorded.
    better, worse = pair.chosen[0], next(iter(pair.rejected), None)
    chosen = step.matrix[better.cell].text
    # Synthesised replies have no cell; their text is in the pair.
    rejected = step.matrix[worse.cell].text if worse is not None else pair.synthetic or ""
    system, user = read_prompt(run.reader, cell)
    others = [step.matrix[ref.cell] for ref in (*pair.chosen, *pair.rejected)]
    told |= {
        **_place(trajectory, step, cell),
        "system": system,
        "user": user,
        "chosen": clean(chosen),
        "rejected": clean(rejected),
        "chosen_score": _to_value(judgement, better),
        "rejected_score": None if worse is None else _to_value(judgement, worse),
        # Off-context: a side was written under other messages than the prompt shows.
        "off_context": any(not is_heard_alike(cell, other) for other in others),
    }
    run.add("pairs", told)
    # Sets overlap; a row for training must not be there twice, whatever set it comes from.
    if user is None or pair.id in run.preferred:
        run.left_out["in another set, too" if user else "without their prompt"] += 1
        return
    run.preferred.add(pair.id)
    # The preference file holds what trainers read, and where it comes from.
    kept = {name: told[name] for name in ("id", "source", "trajectory", "task", "agent", "step", "round", "seed")}
    sides = {
        "prompt": _format_prompt(system, user),
        "chosen": _format_reply(chosen),
        "rejected": _format_reply(rejected),
    }
    run.add("preferences", kept | sides)


def _to_value(judgement: Judgement | None, where: ReplyRef) -> float | None:
    return None if judgement is None else judgement.of(where.cell).score


# ---------------------------------------------------------------------------------------------------- of made data


def _build_example(data: Path, example: TrainingExample) -> Row:
    origin, reply = example.provenance, _format_reply(example.reply)
    told: Row = {
        "run": str(data),
        "trajectory": None,
        "task": origin.task,
        "seed": origin.seed,
        "step": origin.step,
        "prompt": _format_prompt(example.prompt.system, example.prompt.user),
    }
    if example.rejected is None:
        return told | {"completion": reply, "level": example.level}
    return told | {
        "id": example.id,
        "source": example.kind,
        "chosen": reply,
        "rejected": _format_reply(example.rejected),
    }


# ---------------------------------------------------------------------------------------------------------- inside


def _format_prompt(system: str | None, user: str) -> list[dict[str, str | None]]:
    """Format a prompt as turns; without a system turn where it is empty."""
    first = [{"role": "system", "content": clean(system)}] if system else []
    return [*first, {"role": "user", "content": clean(user)}]


def _format_reply(text: str) -> list[dict[str, str | None]]:
    return [{"role": "assistant", "content": clean(text)}]


def _check_free(out: Path) -> None:
    """Raise UsageError for a folder that holds other files than tables that a kill left half written."""
    half_written = {f".{name}.parquet" for name in (*COLUMNS, *MORE)}
    if out.is_dir() and any(path.name not in half_written for path in out.iterdir()):
        raise UsageError(f"{out}: is not empty, and nothing is overwritten; name another folder with --parquet")


def _describe(out: Path, files: Sequence[Path]) -> None:
    """Write what `datasets` reads to find the tables of a folder, each a configuration of its own."""
    names = [file.stem for file in files]
    first = next((name for name in FIRST if name in names), names[0] if names else "")
    lines = ["---", "configs:"]
    for name in names:
        lines += [f"- config_name: {name}", f"  data_files: {name}.parquet", *["  default: true"] * (name == first)]
    tables = [f"- `{name}`: {_ABOUT[name]}" for name in names]
    code = f'from datasets import load_dataset\n\nload_dataset({json.dumps(str(out))}, "{names[-1] if names else ""}")'
    text = "\n".join([*lines, "---", "", "Made by Collab.", "", *tables, "", "```python", code, "```", ""])
    with report_write_errors(out, "export again"):
        write_atomic(out / README, text.encode())


_ABOUT = {
    "episodes": "one line per episode",
    "steps": "one line per step: the screen, which agent heard which, the vote, the executed action",
    "cells": "one line per reply: its whole prompt, text, action, tokens, and the critic's score where there is one",
    "rewards": "one line per critic and reply",
    "pairs": "one line per preference pair, with its scores",
    "preferences": "`prompt`, `chosen` and `rejected` as messages, for TRL's DPOTrainer",
    "demonstrations": "`prompt` and `completion` as messages, for TRL's SFTTrainer: rewarded replies, or, without a "
    "critic's judgement, those that won the vote in solved episodes",
}
"""Table → what it holds."""
