"""From what `collab` recorded in a unit's folder to the file that the unit leaves."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from collab.config import AgentDefinition
from collab.errors import RunFormatError, UsageError
from collab.evaluation.metrics import EpisodeResult
from collab.evaluation.report import EvaluatedRun, find_runs, read_run
from collab.library import Library, find_builtin_root, resolve_checkpoint
from collab.loop.config import TrainingConfig
from collab.loop.interfaces import load_config
from collab.loop.phases import is_over as has_ended
from collab.loop.phases import load_trajectories
from collab.loop.record import EpochRecord, Trained, TrainingDir, read_record
from collab.models.checkpoint import hash_played_weights
from collab.rewards.labels import list_labellings, read_label_head
from collab.store.fingerprint import run_hash
from collab.store.run import RunStore
from evidence.plan import Plan
from evidence.playing import played_in
from evidence.record import EpochNumbers, Measured, Row, Seconds, UnitRecord
from evidence.units import SHOWN, Unit, phase_of, shown_command


def base_of(agents: str, library: Library) -> str:
    """Digest of the weights that an agents file plays with.

    Raises:
        UsageError: there is no such file, or it plays by other means than a checkpoint in this process.
    """
    definition = library.load("agents", agents, AgentDefinition)
    if definition.kind != "local" or "path" not in definition.options:
        raise UsageError(f"agents/{agents}: of kind {definition.kind}; name an agents file of kind local")
    return hash_played_weights(
        Path(resolve_checkpoint(str(definition.options["path"]))), definition.options.get("adapter")
    )


def code_digest() -> str:
    """SHA-256 over everything of the package that can change what a run does, weights aside."""
    digest, home = hashlib.sha256(), find_builtin_root()
    package = Path(__file__).parents[2] / "collab"
    files = [file for file in package.rglob("*") if file.suffix in {".py", ".yaml", ".js"}]
    rooms = [file for room in ("agents", "graphs", "envs", "prompts") for file in (home / room).glob("**/*")]
    texts = [file for file in rooms if file.suffix in {".yaml", ".jinja"}]
    for file in sorted({*files, *texts}):
        digest.update(f"{file.relative_to(home)}\x1f{hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()


def commit() -> str | None:
    """The checkout's commit; None outside of one."""
    asked = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    told = subprocess.run(asked, capture_output=True, text=True, check=False)
    return told.stdout.strip() if told.returncode == 0 else None


def machine() -> dict[str, str | int | None]:
    """The machine in words, and what else decides how fast products are and how they are rounded."""
    return {
        "processors": os.cpu_count(),
        "model": processor_model(),
        "threads": os.environ.get("OMP_NUM_THREADS"),
        "preloaded": preloaded(os.environ.get("LD_PRELOAD", "")),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": importlib.metadata.version("torch"),
    }


def processor_model(told: Path = Path("/proc/cpuinfo")) -> str | None:
    """What the processor calls itself; None where nobody tells.

    Args:
        told: where Linux tells it.
    """
    try:
        lines = told.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = (
        value.strip() for name, _, value in (line.partition(":") for line in lines) if name.strip() == "model name"
    )
    return next(named, "") or platform.processor() or None


def preloaded(told: str) -> str | None:
    """File names of the libraries that LD_PRELOAD loads before all others, without their places; None for none."""
    return " ".join(Path(one).name for one in told.replace(":", " ").split()) or None


def is_over(plan: Plan, unit: Unit, work: Path) -> bool:
    """Whether nothing of a unit is left to do."""
    folder = work / unit.name
    if phase_of(plan, unit).kind == "train-marl":
        training = TrainingDir(folder)
        return training.file.exists() and "summary" in training.read()
    found, wanted = find_runs(folder), _seeds(plan, unit)
    return len(found) == len(wanted) and all(has_ended(path) for path in found)


def gathered(plan: Plan, unit: Unit, work: Path, *, base: str, code: Sequence[str], seconds: float) -> UnitRecord:
    """The record of a unit that is over.

    Args:
        code: digests of the package in all processes that worked on it.
        seconds: that they took.

    Raises:
        RunFormatError: what was recorded cannot be read.
    """
    told = _training if phase_of(plan, unit).kind == "train-marl" else _evaluation
    common: dict[str, Any] = {
        "arm": unit.arm,
        "seed": unit.seed,
        "phase": unit.phase,
        "base": base,
        "code": list(dict.fromkeys(code)),
        "commit": commit(),
        "command": shown_command(plan, unit, base),
        "machine": machine(),
    }
    return UnitRecord(**common, **told(work / unit.name, work, seconds))


# ------------------------------------------------------------------------------------------------- an evaluation


def _evaluation(folder: Path, work: Path, seconds: float) -> dict[str, Any]:
    runs = [read_run(path) for path in find_runs(folder)]
    results = [result for run in runs for result in run.report.results]
    first = runs[0]
    return {
        "policy": _policy(runs),
        "config": placeless(_config(first.path), work),
        "seeds": sorted(run.seeds.run for run in runs),
        "steps": sum(result.steps for result in results),
        "seconds": Seconds(whole=seconds, **_playing(find_runs(folder))),
        "hashes": {str(run.seeds.run): run_hash(RunStore.open(run.path)) for run in runs},
        "measured": Measured(
            environment=first.setting.environment,
            version=first.report.environment_version,
            split=first.setting.split,
            episodes=_rows(results),
        ),
    }


def _policy(runs: Sequence[EvaluatedRun]) -> str:
    """Digest of the weights that spoke in all runs; RunFormatError where there were several."""
    spoke = {weights for run in runs for _, weights in run.team["policies"].values()}
    if len(spoke) != 1 or None in spoke:
        raise RunFormatError(f"{runs[0].path.parent}: several policies spoke, or their weights are not known")
    return str(spoke.pop())


def _seeds(plan: Plan, unit: Unit) -> list[str]:
    options = phase_of(plan, unit).options
    return options[options.index("--seeds") + 1].split(",")


def _config(path: Path) -> dict[str, Any]:
    with RunStore.open(path).open_reader() as reader:
        return dict(reader.manifest.config)


# ---------------------------------------------------------------------------------------------------- a training


def _training(folder: Path, work: Path, seconds: float) -> dict[str, Any]:
    training = TrainingDir(folder)
    head = training.read()
    config, summary = load_config(head["config"], str(training.file)), head["summary"]
    numbers = range(summary["epochs"] + 1)
    records = [read_record(training.get_epoch(number).record) for number in numbers]
    epochs = [_epoch(training, config, head["base"], record) for record in records]
    began = set(head["base"].values())
    return {
        "policy": "+".join(sorted(began)),
        "config": placeless(head["config"], work),
        "seeds": config.method.held_out.seeds,
        "steps": sum(epoch.steps for epoch in epochs),
        "seconds": _seconds_of(training, records, seconds),
        "hashes": {"training": summary["hash"]},
        "critics": _critics(training, records),
        "best": summary["best"],
        "epochs": epochs,
    }


def _critics(training: TrainingDir, records: Iterable[EpochRecord]) -> list[str]:
    """Names and versions of all that judged."""
    rollouts = [path for record in records if (path := training.get_epoch(record.epoch).rollout).exists()]
    return sorted({read_label_head(path, name).critic for path in rollouts for name in list_labellings(path)})


def _epoch(training: TrainingDir, config: TrainingConfig, base: Mapping[str, str], record: EpochRecord) -> EpochNumbers:
    folder = training.get_epoch(record.epoch)
    played = load_trajectories(folder.rollout, config.method.steps) if folder.rollout.exists() else []
    rollout = _rows(EpisodeResult.of(one) for one in played)
    runs = [read_run(path) for path in find_runs(folder.evaluation)]
    trained = next(iter(record.trained.values()), None)
    return EpochNumbers(
        epoch=record.epoch,
        steps=sum(row[4] for row in rollout),
        rollout=rollout,
        held_out=_rows(result for run in runs for result in run.report.results),
        pairs=sum(one.examples + one.older for one in record.examples.values()),
        agreement=record.agreement,
        weights={
            name: speaking_after(config, base[config.groups[name][0]], one) for name, one in record.trained.items()
        },
        hash=record.hash,
        **_numbers(trained),
    )


def speaking_after(config: TrainingConfig, began: str, trained: Trained) -> str:
    """Digest of the weights that speak after an epoch: an adapter that stays one speaks over the first checkpoint."""
    return f"{began.partition('+')[0]}+{trained.digest}" if config.method.keeps_adapters else trained.digest


def _numbers(trained: Trained | None) -> dict[str, Any]:
    names = ("margin", "accuracy", "logp_chosen", "logp_chosen_first", "chosen_gain")
    if trained is None:
        return {}
    return {"loss": trained.loss, "alarm": trained.alarm, **{name: trained.metrics.get(name) for name in names}}


def _seconds_of(training: TrainingDir, records: Sequence[EpochRecord], whole: float) -> Seconds:
    """By part, where the processes that ended the parts told; 0 for parts in which nothing was asked."""
    rollouts = [training.get_epoch(record.epoch).rollout for record in records]
    measured = [path for record in records for path in find_runs(training.get_epoch(record.epoch).evaluation)]
    return Seconds(
        whole=whole,
        **_playing([*(path for path in rollouts if path.exists()), *measured]),
        critic=_sum(records, "critic"),
        adversary=_sum(records, "adversary"),
        training=_sum(records, "training"),
    )


def _sum(records: Iterable[EpochRecord], part: str) -> float | None:
    """Seconds of a part over all epochs; None where one of them does not tell."""
    told = [record.spent[part].seconds for record in records if part in record.spent]
    known = [seconds for seconds in told if seconds is not None]
    return sum(known) if len(known) == len(told) else None


# --------------------------------------------------------------------------------------------------------- both


def _rows(results: Iterable[EpisodeResult]) -> list[Row]:
    """Without messages of errors: they may name places."""
    return [
        (one.task, one.seed, one.max_steps, one.success, one.steps, one.error and one.error.partition(":")[0])
        for one in results
    ]


def _playing(runs: Iterable[Path]) -> dict[str, float]:
    """What playing took, and of it environments and the rest; see `playing`."""
    found = played_in(runs)
    return {
        "playing": found.whole,
        "environment": found.environment,
        "inference": found.whole - found.environment,
    }


def placeless(value: Any, work: Path) -> Any:
    """A configuration without places of this machine: what lies in `work` by its shown name, the rest by its last.

    Args:
        work: folder of all units of this base.
    """
    if isinstance(value, Mapping):
        return {key: placeless(one, work) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [placeless(one, work) for one in value]
    if not isinstance(value, str) or not value.startswith("/"):
        return value
    place = Path(value)
    home = work.resolve()
    return str(SHOWN / home.name / place.relative_to(home)) if place.is_relative_to(home) else f"…/{place.name}"
