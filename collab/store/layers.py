"""At which depth of its graph a cell was asked: what decides on how many calls it had to wait for.

layers(("ada", "ben", "cyd"), (("ada", "cyd"), ("ben", "cyd")))  # {"ada": 0, "ben": 0, "cyd": 1}
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache


@lru_cache(maxsize=1024)
def layers(agents: tuple[str, ...], edges: tuple[tuple[str, str], ...]) -> Mapping[str, int]:
    """The layer of every agent, from 0: those whose speakers all stand in layers before.

    What was recorded is taken as it is: agents on a cycle, and those behind one, have no layer.
    """
    waiting = {agent: {speaker for speaker, hearer in edges if hearer == agent} for agent in agents}
    found: dict[str, int] = {}
    depth = 0
    while ready := [agent for agent, speakers in waiting.items() if speakers <= found.keys()]:
        for agent in ready:
            found[agent] = depth
            del waiting[agent]
        depth += 1
    return found
