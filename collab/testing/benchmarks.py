"""Shared code of benchmarks: clocks, machines, random models of published sizes, targets, and printing of figures."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collab.testing.tiny_checkpoint import make_tiny_checkpoint
from collab.utils.files import write_json
from collab.utils.machine import read_processor_model

if TYPE_CHECKING:
    from transformers import Qwen2ForCausalLM

Figures = dict[str, Any]

_PUBLISHED = {"num_key_value_heads": 2, "vocab_size": 151_936}
SHAPES: dict[str, dict[str, int]] = {
    "0.5b": _PUBLISHED
    | {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14},
    "1.5b": _PUBLISHED
    | {"hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28, "num_attention_heads": 12},
}
"""Sizes of published Qwen2 models."""


def build_random_model(folder: Path, shape: Mapping[str, int], *, context: int, dtype: str) -> Qwen2ForCausalLM:
    """Build a random Qwen2 of a shape; its folder gets the tokenizer of a tiny checkpoint, and the tiny weights.

    Args:
        context: longest sequence in tokens.
        dtype: of the weights.
    """
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    tiny = Qwen2Config.from_pretrained(make_tiny_checkpoint(folder, context=context))
    config = Qwen2Config(
        **shape,
        max_position_embeddings=context,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tiny.eos_token_id,
        pad_token_id=tiny.pad_token_id,
        dtype=getattr(torch, dtype),
        attn_implementation="sdpa",
    )
    torch.manual_seed(0)
    return Qwen2ForCausalLM(config).to(getattr(torch, dtype))


# --------------------------------------------------------------------------------------------------------- targets


@dataclass(frozen=True, slots=True)
class BenchTarget:
    """Target of one figure."""

    part: str
    name: str
    unit: str
    target: float
    at_least: bool = False
    """Whether more is better."""

    def judge(self, value: float) -> Figures:
        """Return the figure beside the target; a ratio above 1 is better than the target."""
        ratio = value / self.target if self.at_least else self.target / value
        told = {"figure": f"{self.part} {self.name}", "value": value, "ratio": round(ratio, 2)}
        return asdict(self) | told


def judge_all(measured: Mapping[str, Figures], targets: Sequence[BenchTarget]) -> list[Figures]:
    """Return every figure that has a target and was measured."""
    return [one.judge(measured[one.part][one.name]) for one in targets if one.name in measured.get(one.part, {})]


def report(
    measured: Mapping[str, Figures],
    targets: Sequence[BenchTarget],
    *,
    quick: bool,
    out: Path | None,
    say: Callable[[str], None],
) -> Figures:
    """Say a line per target and all figures as one line of JSON, which `out` gets, too; return them."""
    goals = judge_all(measured, targets)
    facts = {"machine": describe_machine(), "quick": quick, **measured, "goals": goals}
    for goal in goals:
        aim = f"aim {'≥' if goal['at_least'] else '≤'} {goal['target']:g}"
        say(f"{goal['figure']:32} {goal['value']:>10g} {goal['unit']:8} {aim}  ×{goal['ratio']:g}")
    if out is not None:
        write_json(out, facts)
    say(json.dumps(facts))
    return facts


# ------------------------------------------------------------------------------------------- machines and clocks


def describe_machine() -> Figures:
    """Return the facts without which no rate means anything."""
    return {
        "cpu": read_processor_model() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def describe_device(device: str, dtype: str = "float32") -> Figures:
    """Return what a model runs on, with the measured peak of matrix products in GFLOP/s."""
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


@dataclass(slots=True)
class Clock:
    """Seconds of several stretches, of wall time and of processor time."""

    wall: float = 0.0
    cpu: float = 0.0

    def start(self) -> None:
        """Begin a stretch."""
        self.wall -= time.perf_counter()
        self.cpu -= time.process_time()

    def stop(self) -> None:
        """End it."""
        self.wall += time.perf_counter()
        self.cpu += time.process_time()


def measure_ms(call: Callable[[], object], times: int = 1) -> float:
    """Return the wall time of one call in milliseconds, in the mean of several."""
    start = time.perf_counter()
    for _ in range(times):
        call()
    return 1000 * (time.perf_counter() - start) / times
