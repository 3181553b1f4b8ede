"""A model that sees as the verifier: it looks at the last screenshots and reads the last actions.

More context lowers the agreement with people (DistRL, Wang et al. 2024, section 6.3): one screenshot and two actions
are the default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from collab.models.base import Model
from collab.rewards.verifiers.base import Sight
from collab.rewards.verifiers.judge import EpisodeJudge
from collab.types import Sampling


class ScreenshotJudge(EpisodeJudge):
    """Judges episodes by asking a model that takes pictures; kind `screenshot-judge`.

    Args:
        pictures: last screenshots that are shown.
        actions: last actions that are told.
    """

    name = "screenshot-judge"
    sees: ClassVar[frozenset[Sight]] = frozenset({"screenshot"})
    prompts = "verifier-vision"

    def __init__(
        self,
        *,
        model: Model,
        texts: Mapping[str, str],
        sampling: Sampling,
        context_tokens: int = 8500,
        call_s: float = 120.0,
        seed: int = 0,
        pictures: int = 1,
        actions: int = 2,
    ) -> None:
        super().__init__(
            model=model,
            texts=texts,
            sampling=sampling,
            history=actions,
            screens=pictures,
            context_tokens=context_tokens,
            call_s=call_s,
            seed=seed,
        )
