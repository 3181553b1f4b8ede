"""A reward model as the critic: a checkpoint that scores each proposed action.

    critic = ModelCritic(scorer=RewardModel(path="checkpoints/my-critic"), texts=read_scoring_prompts(folder))
    judgement = await critic.judge(case)

All distinct actions of a step are scored once, in one batch behind the state that they share, and all cells that
proposed the same action share its score. `score_of` turns the head's numbers into scores. The same weights give a step
the same scores, whatever else is judged at the same time. Beyond the paper, whose critic is a language model that is
asked (CollabUIAgents, eq. 6).

The model reads:

    system    what a good step is                                    the same for every step
    state     task, summary, history and screen: the user's turn     the same for all actions of a step
    action    one action, in words and as policies write it          the assistant's turn, at whose end the head is read

Reasons are not shown: an action has one score, in whatever words it was proposed. The built-in templates are
`prompts/critic-model`; a folder of that name in the user's own library comes before it. Training data for a reward
model should be built with `ScoringPrompts`, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from collab.errors import ConfigError
from collab.models.base import RewardScore, Scorer
from collab.prompts.render import Templates, read_texts
from collab.rewards.base import NO_NUMBER, CellScore, CriticCall, CriticInput, Judgement, build_judgement, to_all_equal
from collab.rewards.llm import TOO_LONG, WORLDS, clean_for_sending
from collab.rewards.structured_replies import hash_prompt
from collab.types import Action, Prompt, Segment, Utterance

FOLDER = "critic-model"
"""Name of the folder in `prompts/`."""
FILES = ("system", "state", "action")


def read_scoring_prompts(folder: Path, default: str = FOLDER) -> dict[str, str]:
    """Return a folder's templates by name; ConfigError when one is missing or unreadable.

    Args:
        default: the built-in folder whose templates stand in for missing ones.
    """
    return read_texts(folder, FILES, "the prompts of a critic of kind model need", default)


class ScoringPrompts:
    """The templates, ready to be filled in.

    Args:
        texts: template name → text, from `read_scoring_prompts`.

    Raises:
        ConfigError: a text is missing or no template; from its methods: it uses an undefined name.
    """

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._templates = Templates(FOLDER, texts, FILES)

    def render_state(self, case: CriticInput, history: int) -> Prompt:
        """Render system and user turn, with the last `history` steps."""
        first = max(0, len(case.history) - history)
        entries = [
            {"number": number, "action": entry.action, "effect": entry.effect}
            for number, entry in enumerate(case.history[first:], start=first + 1)
        ]
        world = WORLDS.get(case.space.name, case.space.name)
        text = self._templates.render(
            "state", goal=case.task.goal, summary=case.summary, history=entries, screen=case.observation.text
        )
        return Prompt(system=self._templates.render("system", world=world), shared=clean_for_sending(text), segments=())

    def render_action(self, case: CriticInput, action: Action) -> str:
        """Render the assistant's turn; ConfigError where it is empty."""
        words, written = case.space.describe(action, case.observation), case.space.format(action)
        text = clean_for_sending(self._templates.render("action", words=words, written=written)).strip()
        if not text:
            raise ConfigError(f"prompts/{FOLDER}/action.jinja: says nothing of an action; use words, written or both")
        return text


def score_of(logits: Sequence[float]) -> float | None:
    """Convert the head's numbers to a score in [0, 1].

    Args:
        logits: one number l, or two, of "bad" and "good".

    Returns:
        σ(l), or the softmax's share of "good", σ(l₂ − l₁); a margin of 0 is exactly 0.5, which earns nothing. None
            where the margin is not finite.
    """
    margin = logits[0] if len(logits) == 1 else logits[1] - logits[0]
    if not math.isfinite(margin):
        return None
    return 1 / (1 + math.exp(-margin)) if margin >= 0 else math.exp(margin) / (1 + math.exp(margin))


class ModelCritic:
    """Judges actions by a reward model; kind `model`.

    Args:
        scorer: is not closed.
        texts: templates from `read_scoring_prompts`.
        history: last steps in the prompt; fewer where they do not fit.
        context_tokens: limit of the whole input; the checkpoint's own context where that is less.

    Raises:
        ConfigError: a template does not fit, or `history` is negative.
    """

    name = "model"
    version = "1"
    prompts = FOLDER

    def __init__(
        self, *, scorer: Scorer, texts: Mapping[str, str], history: int = 10, context_tokens: int = 8500
    ) -> None:
        if history < 0:
            raise ConfigError(f"critic model: history {history} must be at least 0")
        self._scorer, self._prompts, self._history = scorer, ScoringPrompts(texts), history
        self._room = min(context_tokens, scorer.context)

    async def judge(self, case: CriticInput) -> Judgement:
        """Judge a step; ModelFailure when the model could not compute."""
        proposed = case.group_proposals()
        endings = [self._prompts.render_action(case, action) for action in proposed]
        state = self._fit_state(case, endings)
        if state is None:
            return build_judgement(case, self, to_all_equal(case, dict.fromkeys(proposed, CellScore.none(TOO_LONG))))
        found = await self._scorer.score(state, endings)
        words = {action: _build_score(one) for action, one in zip(proposed, found, strict=True)}
        calls = [
            self._call(*each) for each in zip(_collect_asked(state, endings), proposed.values(), found, strict=True)
        ]
        return build_judgement(case, self, to_all_equal(case, words), calls)

    def build_prompts(self, case: CriticInput) -> list[Prompt]:
        """Build the prompt of each distinct action, the assistant's turn as the last segment; nothing is scored."""
        endings = [self._prompts.render_action(case, action) for action in case.group_proposals()]
        state = self._fit_state(case, endings)
        return [] if state is None else _collect_asked(state, endings)

    def _fit_state(self, case: CriticInput, endings: Sequence[str]) -> Prompt | None:
        """Render the state with as much of the history as fits; None when it does not fit without any."""
        for history in range(min(self._history, len(case.history)), -1, -1):
            prompt = self._prompts.render_state(case, history)
            if self._scorer.length(prompt, endings) <= self._room:
                return prompt
        return None

    def _call(self, asked: Prompt, cells: Sequence[Utterance], found: RewardScore) -> CriticCall:
        return CriticCall(
            prompt=hash_prompt(asked),
            model=self._scorer.policy.base,
            seed=0,
            reply=_format(found.logits),
            cells=tuple(cell.cell for cell in cells),
            prompt_tokens=found.tokens,
            completion_tokens=0,
            latency_s=found.seconds,
            cost_usd=0.0,
        )


def _collect_asked(state: Prompt, endings: Sequence[str]) -> list[Prompt]:
    return [replace(state, segments=(Segment(text=ending),)) for ending in endings]


def _build_score(found: RewardScore) -> CellScore:
    score = score_of(found.logits)
    return CellScore.none(NO_NUMBER) if score is None else CellScore(score=score, reason=_format(found.logits))


def _format(logits: Sequence[float]) -> str:
    return ("logit " if len(logits) == 1 else "logits ") + ", ".join(f"{logit:.6g}" for logit in logits)
