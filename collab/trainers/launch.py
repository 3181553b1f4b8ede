"""A run trained by several processes: each computes its share of every step, with the whole model or a part of it.

    prepared = prepare(task, rows, processes=8)
    result = launch(prepared, begin(prepared, out), parallelism="fsdp")

`accelerate launch` starts them with one of the configurations in `accelerate/`, over all GPUs of this machine or, with
device "cpu", over its CPUs. This process trains nothing: it watches their metrics, stops them, and reports failures.
Order of steps, directory and checkpoints are as in one process. If this process dies, they stop with a checkpoint.

Each process reads the run's directory and is started as:

    accelerate launch --num_processes 2 -m collab.trainers.launch OUT --device cpu --while-alive 4242

It stops with a checkpoint when `OUT/stop` exists or the launching process is gone. Exit codes: 0 (trained, or stopped),
1 (failed while working), 2 (cannot be trained), with the reason in one line.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collab.data.tokenize import read_data
from collab.errors import CollabError, Diverged, TrainingFailure, UsageError
from collab.trainers.distributed import Parallelism
from collab.trainers.prepare import Prepared, get_world, list_levels, prepare, read_task
from collab.trainers.run import Result, check_same, train
from collab.trainers.run_dir import FinetuneDir
from collab.utils.files import report_write_errors

if TYPE_CHECKING:
    from collab.trainers.callbacks import FinetuneProgress


STOP = "stop"
"""A file of this name in a run's directory asks its processes to stop."""
ERROR = "error: "
"""Begins the line that says what went wrong …"""
DIVERGED = "diverged: "
"""… and this one that of a loss that is no number."""


def train_as_asked(
    folder: FinetuneDir, device: str, wanted: Callable[[], bool], report_to: Sequence[str] = ()
) -> Result:
    """Resume a run as its manifest says.

    Args:
        device: as `collab.trainers.run.train`.
        wanted: asked after every step; False stops with a checkpoint.
        report_to: as `collab.trainers.run.train`.

    Raises:
        UsageError: base, data, order or number of processes are not those of the manifest.
        RunError: as `collab.trainers.run.train`.
    """
    manifest = folder.read()
    task = read_task(manifest)
    # Everything is made anew from the manifest, in each process, and must come out the same.
    rows = read_data([Path(one) for one in task.data], list_levels(task), max_broken=task.max_broken).rows
    prepared = prepare(task, rows)
    check_same(prepared, manifest)
    return train(
        prepared,
        folder,
        device=device,
        # Stopped by a file, as processes share nothing else; an orphan stops by itself.
        stopping=lambda: (folder.path / STOP).exists() or not wanted(),
        report_to=report_to,
    )


def is_alive(process: int) -> bool:
    """Return whether a process exists, of any owner."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def main(arguments: Sequence[str]) -> int:
    """Train; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m collab.trainers.launch")
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--while-alive", type=int, required=True, metavar="PROCESS")
    parser.add_argument("--resume", metavar="COMMAND", help="resumes the run; printed when it fails")
    parser.add_argument("--report-to", action="append", default=[], metavar="NAME")
    asked = parser.parse_args(arguments)
    folder = FinetuneDir(asked.out, asked.resume)
    try:
        train_as_asked(folder, asked.device, lambda: is_alive(asked.while_alive), asked.report_to)
    except CollabError as error:
        if get_world()[0] == 0 or type(error) is TrainingFailure:  # which may befall one of them alone
            why = f"{DIVERGED}{error.what}" if isinstance(error, Diverged) else f"{ERROR}{error}"
            os.write(2, f"{why}\n".encode())
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))


CONFIGS = Path(__file__).parent / "accelerate"
LOG = "processes.log"
"""File in the run's directory with all output of the processes and their launcher."""
_LOOK_S = 0.5
"""Between two looks at what they write."""


def launch(
    prepared: Prepared,
    folder: FinetuneDir,
    *,
    watch: Callable[[Any], None] = lambda progress: None,
    stopping: Callable[[], bool] = lambda: False,
    device: str = "auto",
    parallelism: Parallelism = "ddp",
    report_to: Sequence[str] = (),
) -> Result:
    """Train to the end, or until asked to stop, by as many processes as the run was prepared for.

    Args:
        prepared: its data must lie where its task says: each process reads it anew.
        folder: begun.
        watch: called with every logged step.
        stopping: asked twice a second; True stops with a checkpoint after the step at hand.
        device: "auto" takes the GPUs when there are any, or "cpu".
        parallelism: what each process holds; see `collab.trainers.distributed`.
        report_to: as of `collab.trainers.run.train`.

    Raises:
        UsageError: there are fewer GPUs than processes.
        Diverged: loss, gradient or weights are no longer numbers.
        TrainingFailure: the processes failed, or refuse to train the run; their reason is the message.
        StoreFailure: nothing can be written.
    """
    check_processes(prepared.world, device, parallelism)
    folder.place(prepared.build_manifest())
    folder.forget_metrics_after(_find_resume_step(folder))  # or what is trained again would be told as done
    _give_back_gpus()
    words = build_command(prepared.world, folder.path, device, parallelism, folder.resume, report_to)
    started = _start_processes(words, folder, device)
    try:
        code = _watch_processes(started, prepared, folder, watch, stopping)
    finally:
        if started.poll() is None:
            started.terminate()
            started.wait()
        (folder.path / STOP).unlink(missing_ok=True)
    if code:
        raise _build_failure(folder, code)
    return _read_result(prepared, folder)


def build_command(
    processes: int,
    out: Path,
    device: str,
    parallelism: Parallelism = "ddp",
    resume: str | None = None,
    report_to: Sequence[str] = (),
) -> list[str]:
    """Build the launcher's command; `resume` as in `FinetuneDir`."""
    machines = "gpus" if _count_gpus(device) else "cpus"
    names = {"ddp": machines, "fsdp": f"fsdp-{machines}", "zero2": "zero2", "zero3": "zero3"}
    return [
        *(sys.executable, "-m", "accelerate.commands.launch"),
        *("--config_file", str(CONFIGS / f"{names[parallelism]}.yaml"), "--main_process_port", "0"),
        *("--num_processes", str(processes)),
        *("-m", "collab.trainers.launch", str(out), "--device", device, "--while-alive", str(os.getpid())),
        *([] if resume is None else ["--resume", resume]),
        *(word for name in report_to for word in ("--report-to", name)),
    ]


def _start_processes(words: Sequence[str], folder: FinetuneDir, device: str) -> subprocess.Popen[bytes]:
    with report_write_errors(folder.path, folder.resume):
        (folder.path / STOP).unlink(missing_ok=True)
        log = (folder.path / LOG).open("wb")
    with log:
        # In a session of their own: Ctrl-C is for this process, which lets them end with a checkpoint.
        hidden = {"CUDA_VISIBLE_DEVICES": ""} if device == "cpu" else {}  # what is sharded lies where torch finds room
        return subprocess.Popen(
            words, stdout=log, stderr=subprocess.STDOUT, start_new_session=True, env={**os.environ, **hidden}
        )


def _watch_processes(
    started: subprocess.Popen[bytes],
    prepared: Prepared,
    folder: FinetuneDir,
    watch: Callable[[Any], None],
    stopping: Callable[[], bool],
) -> int:
    """Watch the processes until they end; return their exit code."""
    first = told = _find_resume_step(folder)
    before = folder.read_seconds()
    while True:
        code = started.poll()
        # Touched at every look, which does no harm: a process that starts late sees it, too.
        if stopping():
            with report_write_errors(folder.path, folder.resume):
                (folder.path / STOP).touch()
        lines = folder.read_metrics()
        # Only new steps: a resumed run's earlier lines are known.
        if lines and lines[-1]["step"] > told:
            told = lines[-1]["step"]
            watch(_build_progress(lines[-1], prepared, first, before))
        if code is not None:
            return code
        time.sleep(_LOOK_S)


def _build_progress(line: Mapping[str, Any], prepared: Prepared, first: int, before: float) -> FinetuneProgress:
    """Build the progress from a line of metrics.

    Args:
        first: step that the processes resumed from.
        before: seconds that earlier processes took up to it.
    """
    from collab.trainers.callbacks import FinetuneProgress

    steps, seconds = len(prepared.steps), line["seconds"] - before
    trained = sum(prepared.step_tokens[first : line["step"]])
    return FinetuneProgress(
        step=line["step"],
        steps=steps,
        group=line["group"],
        loss=line["loss"],
        margin=line.get("margin"),
        accuracy=line.get("preference_accuracy"),
        tokens_per_s=trained / max(seconds, 1e-9),
        left_s=seconds / max(line["step"] - first, 1) * (steps - line["step"]),
        alarm=line.get("alarm"),
    )


def _read_result(prepared: Prepared, folder: FinetuneDir) -> Result:
    """Read how a run ended from its directory."""
    lines, steps = folder.read_metrics(), len(prepared.steps)
    loss = lines[-1]["loss"] if lines else None
    if folder.final.is_dir():
        return Result(step=steps, steps=steps, final=folder.final, loss=loss)
    return Result(step=_find_resume_step(folder), steps=steps, final=None, loss=loss)


def _find_resume_step(folder: FinetuneDir) -> int:
    """Return the step of the newest checkpoint; 0 without one."""
    checkpoint = folder.find_checkpoint()
    return 0 if checkpoint is None else int(checkpoint.name.removeprefix("step-"))


def _build_failure(folder: FinetuneDir, code: int) -> TrainingFailure:
    """Build the error with the processes' own reason, or the exit code."""
    path = folder.path / LOG
    said = path.read_text(encoding="utf-8", errors="replace").splitlines()
    lost = [line.partition(DIVERGED)[2] for line in said if line.startswith(DIVERGED)]
    if lost:
        return Diverged(lost[-1])
    reasons = [line.partition(ERROR)[2] for line in said if line.startswith(ERROR)]
    reason = reasons[-1] if reasons else f"the launcher ended with exit code {code}"
    return TrainingFailure(f"{folder.path}: the processes that train failed: {reason} (whole output: {path})")


def _count_gpus(device: str) -> int:
    """Return the number of GPUs to use; 0 for CPUs."""
    import torch

    return torch.cuda.device_count() if device != "cpu" and torch.cuda.is_available() else 0


def check_processes(processes: int, device: str, parallelism: Parallelism = "ddp") -> None:
    """Check that each process has a GPU and that DeepSpeed is installed if needed; else UsageError."""
    gpus = _count_gpus(device) if processes > 1 else 0
    if processes > 1 and parallelism.startswith("zero") and not (gpus and importlib.util.find_spec("deepspeed")):
        raise UsageError(
            f"parallelism: {parallelism} needs GPUs and DeepSpeed here (pip install deepspeed); use parallelism=fsdp"
        )
    if 0 < gpus < processes:
        raise UsageError(
            f"{processes} processes, but this machine has {gpus} GPUs; each process needs its own: train with at most "
            f"{gpus}, or on processors with --device cpu"
        )


def _give_back_gpus() -> None:
    """Free this process's cached GPU memory for the training processes."""
    import torch

    torch.cuda.empty_cache()  # does nothing where no GPU was used
