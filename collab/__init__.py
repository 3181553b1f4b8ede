"""Teams of language-model agents that operate phones and web pages.

A training is collect → label → learn → evaluate; every room of this package serves one of these verbs.

    import asyncio, collab

    result = asyncio.run(collab.collect(agents="rehearsal", episodes=20))      # in a notebook: await collab.collect(…)
    print(result.report.planned)

Heavy modules are imported on first use.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collab.api import collect, evaluate, open_run, train
    from collab.errors import CollabError
    from collab.library import Library
    from collab.rollout.run import RunResult

__version__ = "0.1.0"

# Idle threads of torch's OpenMP sleep instead of spinning: beside other programs spinning costs most of the time. Read
# when torch is first imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

_HOMES = {
    "CollabError": "collab.errors",
    "Library": "collab.library",
    "RunResult": "collab.rollout.run",
    "collect": "collab.api",
    "evaluate": "collab.api",
    "open_run": "collab.api",
    "train": "collab.api",
}

__all__ = ["CollabError", "Library", "RunResult", "collect", "evaluate", "open_run", "train"]


def __dir__() -> list[str]:
    """List the public names, for completion in notebooks."""
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module 'collab' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
