"""A run trained by several processes: each computes its share of every step, with the whole model or a part of it.

    prepared = prepare(task, rows, processes=8)
    result = launch(prepared, begin(prepared, out), parallelism="fsdp")

They are started by `accelerate launch` with one of the configurations in `accelerate/`, over all GPUs of this machine
or, with device "cpu", over its processors. This process trains nothing: it watches the metrics that they write, asks
them to stop, and says why they failed. Everything else is as in one process: the same order of steps, the same
directory, the same checkpoints. If this process dies, they stop with a checkpoint.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collab.errors import Diverged, TrainingFailure, UsageError
from collab.learn.finetune import LOWER, Result
from collab.learn.folder import RunFolder
from collab.learn.prepare import Prepared
from collab.learn.process import DIVERGED, ERROR, STOP
from collab.learn.sharded import Parallelism
from collab.store.files import writing

if TYPE_CHECKING:
    from collab.learn.watch import Progress

CONFIGS = Path(__file__).parent / "accelerate"
LOG = "processes.log"
"""In the run's directory: all that the processes and their launcher said."""
_LOOK_S = 0.5
"""Between two looks at what they write."""


def launch(
    prepared: Prepared,
    folder: RunFolder,
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
        parallelism: what each process holds; see `collab.learn.sharded`.
        report_to: as of `collab.learn.finetune.train`.

    Raises:
        UsageError: there are fewer GPUs than processes.
        Diverged: loss, gradient or weights are no longer numbers.
        TrainingFailure: the processes failed, or refuse to train the run; their reason is the message.
        StoreFailure: nothing can be written.
    """
    check_processes(prepared.world, device, parallelism)
    folder.place(prepared.manifest())
    folder.forget_metrics_after(_resumed_at(folder))  # or what is trained again would be told as done
    _give_back_gpus()
    words = command(prepared.world, folder.path, device, parallelism, folder.resume, report_to)
    started = _started(words, folder, device)
    try:
        code = _watched(started, prepared, folder, watch, stopping)
    finally:
        if started.poll() is None:
            started.terminate()
            started.wait()
        (folder.path / STOP).unlink(missing_ok=True)
    if code:
        raise _failed(folder, code)
    return _result(prepared, folder)


def command(
    processes: int,
    out: Path,
    device: str,
    parallelism: Parallelism = "ddp",
    resume: str | None = None,
    report_to: Sequence[str] = (),
) -> list[str]:
    """What is run; `resume` as of `RunFolder`."""
    machines = "gpus" if _gpus(device) else "cpus"
    names = {"ddp": machines, "fsdp": f"fsdp-{machines}", "zero2": "zero2", "zero3": "zero3"}
    return [
        *(sys.executable, "-m", "accelerate.commands.launch"),
        *("--config_file", str(CONFIGS / f"{names[parallelism]}.yaml"), "--main_process_port", "0"),
        *("--num_processes", str(processes)),
        *("-m", "collab.learn.process", str(out), "--device", device, "--while-alive", str(os.getpid())),
        *([] if resume is None else ["--resume", resume]),
        *(word for name in report_to for word in ("--report-to", name)),
    ]


def _started(words: Sequence[str], folder: RunFolder, device: str) -> subprocess.Popen[bytes]:
    with writing(folder.path, folder.resume):
        (folder.path / STOP).unlink(missing_ok=True)
        log = (folder.path / LOG).open("wb")
    with log:
        # In a session of their own: Ctrl-C is for this process, which lets them end with a checkpoint.
        hidden = {"CUDA_VISIBLE_DEVICES": ""} if device == "cpu" else {}  # what is sharded lies where torch finds room
        return subprocess.Popen(
            words, stdout=log, stderr=subprocess.STDOUT, start_new_session=True, env={**os.environ, **hidden}
        )


def _watched(
    started: subprocess.Popen[bytes],
    prepared: Prepared,
    folder: RunFolder,
    watch: Callable[[Any], None],
    stopping: Callable[[], bool],
) -> int:
    """Look after the processes until they end; returns their exit code."""
    first = told = _resumed_at(folder)
    while True:
        code = started.poll()
        if stopping():
            with writing(folder.path, folder.resume):
                (folder.path / STOP).touch()
        lines = folder.read_metrics()
        if lines and lines[-1]["step"] > told:
            told = lines[-1]["step"]
            watch(_progress(lines[-1], prepared, first))
        if code is not None:
            return code
        time.sleep(_LOOK_S)


def _progress(line: Mapping[str, Any], prepared: Prepared, first: int) -> Progress:
    """How far a run is, as a process of its own would tell it.

    Args:
        line: of the metrics.
        first: step from which the processes go on.
    """
    from collab.learn.watch import Progress

    steps, seconds = len(prepared.steps), line["seconds"]
    trained = sum(prepared.step_tokens[first : line["step"]])
    return Progress(
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


def _result(prepared: Prepared, folder: RunFolder) -> Result:
    """How a run ended, from what is there."""
    lines, steps = folder.read_metrics(), len(prepared.steps)
    loss = lines[-1]["loss"] if lines else None
    if folder.final.is_dir():
        return Result(step=steps, steps=steps, final=folder.final, loss=loss)
    return Result(step=_resumed_at(folder), steps=steps, final=None, loss=loss)


def _resumed_at(folder: RunFolder) -> int:
    """The step of the newest checkpoint; 0 where there is none yet."""
    checkpoint = folder.checkpoint()
    return 0 if checkpoint is None else int(checkpoint.name.removeprefix("step-"))


def _failed(folder: RunFolder, code: int) -> TrainingFailure:
    """The processes' own reason, or where to look for it."""
    path = folder.path / LOG
    said = path.read_text(encoding="utf-8", errors="replace").splitlines()
    lost = [line.partition(DIVERGED)[2] for line in said if line.startswith(DIVERGED)]
    if lost:
        return Diverged(lost[-1], LOWER)
    reasons = [line.partition(ERROR)[2] for line in said if line.startswith(ERROR)]
    reason = reasons[-1] if reasons else f"the launcher ended with exit code {code}"
    return TrainingFailure(f"{folder.path}: the processes that train failed: {reason} (all they said: {path})")


def _gpus(device: str) -> int:
    """How many are to be used; 0 for processors."""
    import torch

    return torch.cuda.device_count() if device != "cpu" and torch.cuda.is_available() else 0


def check_processes(processes: int, device: str, parallelism: Parallelism = "ddp") -> None:
    """UsageError where several processes would have to share a GPU, or DeepSpeed has none or is not installed."""
    gpus = _gpus(device) if processes > 1 else 0
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
    """What this process keeps of the first GPU for later is needed by others now."""
    import torch

    torch.cuda.empty_cache()  # does nothing where no GPU was used
