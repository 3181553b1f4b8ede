"""A language model as the verifier: it reads the task, the actions and the last screens as text.

Earlier screens are named by their titles, and the last `screens` whole. Where not all fits, earlier screens are left
out first, then the oldest actions. A checkpoint that was trained on this question (`collab verifier rows`) is asked in
the same way, with the short prompt `prompts/verifier-model`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from collab.models.base import Model
from collab.rewards.verifiers.base import Sight
from collab.rewards.verifiers.judge import FOLDER, EpisodeJudge
from collab.types import Sampling


class TextJudge(EpisodeJudge):
    """Judges episodes by asking a model that reads; kind `text-judge`.

    Args:
        screens: last screens that are shown whole.
    """

    name = "text-judge"
    sees: ClassVar[frozenset[Sight]] = frozenset({"text"})
    prompts = FOLDER

    def __init__(
        self,
        *,
        model: Model,
        texts: Mapping[str, str],
        sampling: Sampling,
        history: int = 30,
        context_tokens: int = 8500,
        call_s: float = 120.0,
        seed: int = 0,
        screens: int = 1,
    ) -> None:
        super().__init__(
            model=model,
            texts=texts,
            sampling=sampling,
            history=history,
            screens=screens,
            context_tokens=context_tokens,
            call_s=call_s,
            seed=seed,
        )
