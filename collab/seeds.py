"""Named randomness: a seed is a hash of its purpose, never a counter.

Every random choice in the project draws from a generator seeded here. So the same run seed gives the same choices in
any order, with any concurrency and after any restart. A sampling seed beside it keeps instances and graphs and draws
other replies.
"""

from __future__ import annotations

import hashlib
import math
import random
from dataclasses import dataclass


def derive(seed: int, purpose: str, *names: str | int) -> int:
    """Return a 32-bit seed: the first four bytes of SHA-256 over the run seed, the purpose and its names."""
    text = "\x1f".join([str(seed), purpose, *(str(name) for name in names)])
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:4], "big")


@dataclass(frozen=True, slots=True)
class Seeds:
    """All seeds of one run.

    seeds = Seeds(run=0)
    rng = random.Random(seeds.edges(epoch=0))
    """

    run: int
    sampling: int | None = None
    """Draws replies, together with the run's seed, and nothing else. None: the run's seed alone; 0 is another draw."""

    def edges(self, epoch: int) -> int:
        """Return the seed of the graph of an epoch."""
        return derive(self.run, "edges", epoch)

    def task_edges(self, task: str) -> int:
        """Return the seed of an evaluation graph, by task alone, so that every arm gets the same graphs."""
        return derive(self.run, "evaluation edges", task)

    def task(self, task: str, episode: int, epoch: int = 0) -> int:
        """Return the seed of a task instance (its parameters and initial state).

        In epoch 0 this is AndroidWorld's own rule, SHA-256 of "{suite seed}_{task}_{i}" modulo 2^32, so that instances
        have the same seeds in both; the drawn values differ.
        """
        suite_seed = self.run if epoch == 0 else derive(self.run, "tasks of epoch", epoch)
        return int(hashlib.sha256(f"{suite_seed}_{task}_{episode}".encode()).hexdigest(), 16) % 2**32

    def cell(self, epoch: int, task: str, episode: int, step: int, agent: str, round: int) -> int:
        """Return the seed of one model call."""
        return derive(self._sampled, "cell", epoch, task, episode, step, agent, round)

    def summary(self, epoch: int, task: str, episode: int, step: int) -> int:
        """Return the seed of the call that writes the summary before a step."""
        return derive(self._sampled, "summary", epoch, task, episode, step)

    def __str__(self) -> str:
        """Format for people, e.g. "30", or "30 (sampled with 1)"."""
        return f"{self.run}" if self.sampling is None else f"{self.run} (sampled with {self.sampling})"

    @property
    def _sampled(self) -> int:
        return self.run if self.sampling is None else derive(self.run, "sampling", self.sampling)


def draw_lognormal(rng: random.Random, median: float, spread: float) -> float:
    """Draw from the lognormal distribution of this median whose 99th percentile is `spread` times the first."""
    sigma = math.log(spread) / (2 * 2.3263)  # 2.3263 deviations on either side hold 98 %
    return median * rng.lognormvariate(0.0, sigma)


def generator(seed: int) -> random.Random:
    """Return a private random generator; the project never uses the global one."""
    return random.Random(seed)
