"""What the benchmarks share: the machine, what is aimed at, published shapes of models, and how figures are printed."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from collab.evidence.gather import read_processor_model

Figures = dict[str, Any]

_PUBLISHED = {"num_key_value_heads": 2, "vocab_size": 151_936}
SHAPES: dict[str, dict[str, int]] = {
    "0.5b": _PUBLISHED
    | {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14},
    "1.5b": _PUBLISHED
    | {"hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28, "num_attention_heads": 12},
}
"""Sizes of published Qwen2 models."""


@dataclass(frozen=True, slots=True)
class Target:
    """What one figure of a part is aimed at."""

    part: str
    name: str
    unit: str
    target: float
    at_least: bool = False
    """Whether more is better."""

    def judge(self, value: float) -> Figures:
        """The figure against the target; a ratio above 1 is better than aimed at."""
        ratio = value / self.target if self.at_least else self.target / value
        told = {"figure": f"{self.part} {self.name}", "value": value, "ratio": round(ratio, 2)}
        return asdict(self) | told


def judge_all(measured: Mapping[str, Figures], targets: Sequence[Target]) -> list[Figures]:
    """Every figure that has a target and was measured."""
    return [one.judge(measured[one.part][one.name]) for one in targets if one.name in measured.get(one.part, {})]


def report(measured: Mapping[str, Figures], targets: Sequence[Target], *, quick: bool, out: Path | None) -> Figures:
    """Print a line per target and all figures as one line of JSON, which `out` gets, too; returns them."""
    goals = judge_all(measured, targets)
    facts = {"machine": describe_machine(), "quick": quick, **measured, "goals": goals}
    for goal in goals:
        aim = f"aim {'≥' if goal['at_least'] else '≤'} {goal['target']:g}"
        print(f"{goal['figure']:32} {goal['value']:>10g} {goal['unit']:8} {aim}  ×{goal['ratio']:g}")
    text = json.dumps(facts)
    if out:
        out.write_text(text + "\n", encoding="utf-8")
    print(text)
    return facts


def describe_machine() -> Figures:
    """The facts without which no rate means anything."""
    return {
        "cpu": read_processor_model() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def describe_device(device: str, dtype: str = "float32") -> Figures:
    """What a model ran on, with the measured peak of matrix products in GFLOP/s."""
    import torch

    size = 1024 if device == "cpu" else 8192
    left, right = (torch.randn(size, size, device=device, dtype=getattr(torch, dtype)) for _ in range(2))
    best = min(measure_ms(lambda: (left @ right)[0, 0].item()) for _ in range(8))
    return {
        "device": platform.processor() or platform.machine() if device == "cpu" else torch.cuda.get_device_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": os.getloadavg()[0],
        "torch": torch.__version__,
        "gemm_gflops": round(2 * size**3 / best / 1e6, 1),
    }


def measure_ms(call: Callable[[], object], times: int = 1) -> float:
    """Milliseconds of one call, on the wall, in the mean of several."""
    start = time.perf_counter()
    for _ in range(times):
        call()
    return 1000 * (time.perf_counter() - start) / times
