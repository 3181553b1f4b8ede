"""How often a server finds the beginning of a prompt in its prefix cache, read from its metrics.

    before = read_prefix_cache(metrics)
    …
    read_prefix_cache(metrics).since(before).rate      0.93: that share of the prompt tokens was not computed again

vLLM counts tokens, for all its clients together: looked up and found.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

_QUERIES = ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total")
"""Newest name first; a server that has two of them counts the same thing twice."""
_HITS = ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total")
_SAMPLE = re.compile(r"^(?P<name>[A-Za-z_:][A-Za-z0-9_:]*)(?:\{.*\})?[ \t]+(?P<value>[0-9.eE+]+)", re.MULTILINE)
"""One line of the Prometheus text format; lines of comment start with #."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixCache:
    """Counts since the server's start, or between two moments."""

    queries: int
    """Prompt tokens that were looked up."""
    hits: int
    """Of them, those that were found."""

    @property
    def rate(self) -> float:
        """Share of the tokens that were found; 0 when none was looked up."""
        return self.hits / self.queries if self.queries else 0.0

    def since(self, earlier: PrefixCache) -> PrefixCache:
        """What was counted after an earlier reading; all of it when the server has started anew in between."""
        if earlier.queries > self.queries or earlier.hits > self.hits:
            return self
        return PrefixCache(queries=self.queries - earlier.queries, hits=self.hits - earlier.hits)


@runtime_checkable
class PrefixCached(Protocol):
    """A model whose server may have a prefix cache."""

    async def prefix_cache(self) -> PrefixCache | None:
        """Its counts since the server's start; None when the server does not tell."""
        ...


def read_prefix_cache(metrics: str) -> PrefixCache | None:
    """Read a Prometheus text, summed over all engines of the server; None when it has no such counters."""
    sums: dict[str, float] = {}
    for sample in _SAMPLE.finditer(metrics):
        if sample["name"] in (*_QUERIES, *_HITS):
            sums[sample["name"]] = sums.get(sample["name"], 0.0) + _count(sample["value"])
    queries = next((sums[name] for name in _QUERIES if name in sums), None)
    hits = next((sums[name] for name in _HITS if name in sums), None)
    return None if queries is None or hits is None else PrefixCache(queries=round(queries), hits=round(hits))


def _count(written: str) -> float:
    """Read one value; 0 for what is no count."""
    try:
        value = float(written)
    except ValueError:
        return 0.0
    return value if math.isfinite(value) else 0.0


def metrics_url(base_url: str) -> str:
    """Where vLLM's metrics are: beside /v1, not below it."""
    return f"{base_url.rstrip('/').removesuffix('/v1')}/metrics"
