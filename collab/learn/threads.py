"""How many threads torch computes in: it splits sums among them, so the last bits of a sum depend on their number.

head |= threads_head()
...
with as_begun(head, "finetune.json", tell):
    ...
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from collab.errors import RunFormatError

KEY = "threads"
"""Of a head file. Without it nobody knows the number, and none is set."""


def threads_head() -> dict[str, int]:
    """The entry of a head file for what is computed from here on."""
    import torch

    return {KEY: torch.get_num_threads()}


@contextlib.contextmanager
def as_begun(head: Mapping[str, Any], where: str, tell: Callable[[str], None] = lambda text: None) -> Iterator[None]:
    """Compute in as many threads as what is gone on with began in, and in as many as before afterwards.

    It holds for threads of Python that compute for the first time afterwards; one that has computed keeps its number.

    Args:
        head: what the head file holds.
        where: it was read, for errors.
        tell: takes a line where the number was another one.

    Raises:
        RunFormatError: the head has something else than a number of threads.
    """
    wanted = head.get(KEY)
    if wanted is None:
        yield
        return
    if type(wanted) is not int or wanted < 1:
        raise RunFormatError(f"{where}: threads {wanted!r}: allowed are whole numbers from 1; begin anew")
    import torch

    found = torch.get_num_threads()
    if found == wanted:
        yield
        return
    tell(f"computing with threads={wanted}, as it began, not {found}: sums depend on it to the last bit")
    torch.set_num_threads(wanted)
    try:
        yield
    finally:
        torch.set_num_threads(found)
