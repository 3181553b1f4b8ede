"""Name and memory of this machine."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path
from typing import Literal

from collab.errors import UsageError


def read_processor_model(source: Path = Path("/proc/cpuinfo")) -> str | None:
    """Return the processor's name; None where the system does not tell it.

    Args:
        source: where Linux tells it.
    """
    try:
        lines = source.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    pairs = (line.partition(":") for line in lines)
    return next((value.strip() for name, _, value in pairs if name.strip() == "model name"), "") or (
        platform.processor() or None
    )


def read_memory_mb(kind: Literal["VmRSS", "VmHWM"] = "VmRSS", process: int | None = None) -> float:
    """Return the memory of a process that is in RAM (VmRSS), or was at its peak (VmHWM), in MB (10^6 bytes).

    Args:
        process: its number; None for this one.

    Raises:
        UsageError: the system does not say.
    """
    try:
        lines = Path(f"/proc/{process or os.getpid()}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        raise UsageError("memory is read from /proc, which does not tell it here; measure on Linux") from None
    return next(int(line.split()[1]) for line in lines.splitlines() if line.startswith(kind)) * 1024 / 1e6


def read_commit(folder: Path) -> str | None:
    """Return the commit of the checkout that holds a folder; None outside of one."""
    asked = ["git", "-C", str(folder), "rev-parse", "HEAD"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
