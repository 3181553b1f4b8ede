"""A reward model as the critic: a checkpoint of one's own that says how good each proposed action is.

    critic = ModelCritic(scorer=RewardModel(path="checkpoints/my-critic"), texts=read_scoring_prompts(folder))
    judgement = await critic.judge(case)

All distinct actions of a step are scored in one batch behind the state that they share, each once, and all cells that
proposed the same action share its score. What is read is told in `collab.credit.scoring_prompt`, what becomes of the
head's numbers in `score_of`. The same weights give a step the same scores, whatever else is judged at the same time.

Beyond the paper, whose critic is a language model that is asked (CollabUIAgents, eq. 6).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from collab.credit.asking import prompt_hash
from collab.credit.case import Case
from collab.credit.critic import NO_NUMBER, CriticCall, Judgement, Word, judgement_of, to_all_equal
from collab.credit.language_prompt import TOO_LONG
from collab.credit.scoring_prompt import ScoringPrompts
from collab.errors import ConfigError
from collab.models.reward import RewardModel, Scored
from collab.types import Prompt, Segment, Utterance


def score_of(logits: Sequence[float]) -> float | None:
    """The head's numbers → a score in [0, 1].

    Args:
        logits: one number l, or two, of "bad" and "good".

    Returns:
        σ(l), or the softmax's share of "good", σ(l₂ − l₁); so a margin of 0 is exactly 0.5, which earns nothing. None
        where the margin is no finite number.
    """
    margin = logits[0] if len(logits) == 1 else logits[1] - logits[0]
    if not math.isfinite(margin):
        return None
    return 1 / (1 + math.exp(-margin)) if margin >= 0 else math.exp(margin) / (1 + math.exp(margin))


class ModelCritic:
    """Judges actions by a reward model; kind `model`.

    Args:
        scorer: is not closed.
        texts: templates, see `collab.credit.scoring_prompt.read_scoring_prompts`.
        history: steps that are told, the last ones; fewer where they do not fit.
        context_tokens: of everything that is read; the checkpoint's own context where that is less.

    Raises:
        ConfigError: a template does not fit, or `history` is negative.
    """

    name = "model"
    version = "1"

    def __init__(
        self, *, scorer: RewardModel, texts: Mapping[str, str], history: int = 10, context_tokens: int = 8500
    ) -> None:
        if history < 0:
            raise ConfigError(f"critic model: history {history} must be at least 0")
        self._scorer, self._prompts, self._history = scorer, ScoringPrompts(texts), history
        self._room = min(context_tokens, scorer.context)

    async def judge(self, case: Case) -> Judgement:
        """Judge a step; ModelFailure when the model could not compute."""
        proposed = case.proposals()
        endings = [self._prompts.action(case, action) for action in proposed]
        state = self._fitting(case, endings)
        if state is None:
            return judgement_of(case, self, to_all_equal(case, dict.fromkeys(proposed, Word.none(TOO_LONG))))
        found = await self._scorer.score(state, endings)
        words = {action: _word(one) for action, one in zip(proposed, found, strict=True)}
        calls = [self._call(*each) for each in zip(_asked(state, endings), proposed.values(), found, strict=True)]
        return judgement_of(case, self, to_all_equal(case, words), calls)

    def prompts(self, case: Case) -> list[Prompt]:
        """What is read about a step, action by action, the assistant's turn as the last segment; nothing is scored."""
        endings = [self._prompts.action(case, action) for action in case.proposals()]
        state = self._fitting(case, endings)
        return [] if state is None else _asked(state, endings)

    def _fitting(self, case: Case, endings: Sequence[str]) -> Prompt | None:
        """The state with as much of the history as fits; None when it does not fit without any."""
        for history in range(min(self._history, len(case.history)), -1, -1):
            prompt = self._prompts.state(case, history)
            if self._scorer.length(prompt, endings) <= self._room:
                return prompt
        return None

    def _call(self, asked: Prompt, cells: Sequence[Utterance], found: Scored) -> CriticCall:
        return CriticCall(
            prompt=prompt_hash(asked),
            model=self._scorer.policy.base,
            seed=0,
            reply=_told(found.logits),
            cells=tuple(cell.cell for cell in cells),
            prompt_tokens=found.tokens,
            completion_tokens=0,
            latency_s=found.seconds,
            cost_usd=0.0,
        )


def _asked(state: Prompt, endings: Sequence[str]) -> list[Prompt]:
    return [replace(state, segments=(Segment(text=ending),)) for ending in endings]


def _word(found: Scored) -> Word:
    score = score_of(found.logits)
    return Word.none(NO_NUMBER) if score is None else Word(score=score, reason=_told(found.logits))


def _told(logits: Sequence[float]) -> str:
    return ("logit " if len(logits) == 1 else "logits ") + ", ".join(f"{logit:.6g}" for logit in logits)
