"""A process reward model as the critic: it says of one action, in words and then with True or False, if it leads on.

    critic = ProcessRewardModel(model=model, texts=read_critic_prompts(folder, FOLDER))
    judgement = await critic.judge(case)          # scores 1 or 0, the analysis as the reason

It is asked once per distinct action about the task, the screen and the action, without any history (Android Coach,
section 3.2 and figure 10). Prompts ask for what `JUDGMENT` reads (`collab.rewards.answers`): an analysis, then the
judgment. A reply without one leaves the cells of its action missing, with the cause.

    system    the role, what is right and wrong, the two answers     the same for every call
    step      task, screen and one action                            one call

The built-in templates are `prompts/critic-prm`. `ProcessPrompts` also builds the questions of training rows
(`collab synth --levels judgement`), so a judge reads later what it was trained on.

Deviations: the built-in templates show no thought of the agent, so an action has one score, in whatever words it was
proposed. Templates of one's own may show it (`reason`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from collab.envs.grammar import ActionSpace
from collab.models.base import Model
from collab.prompts.render import Templates
from collab.rewards.answers import AnswerForm
from collab.rewards.base import CellScore, CriticInput
from collab.rewards.llm import FILES, WORLDS, AskingCritic, ScoredProposal, build_questions, clean_for_sending
from collab.types import Action, Observation, Prompt, Sampling

FOLDER = "critic-prm"
"""Name of the folder in `prompts/`."""
JUDGMENT = AnswerForm("Judgment")
"""How a reply ends that calls an action right or wrong."""
SAMPLING = Sampling(temperature=0.0, max_tokens=256)
"""Greedy; room for an analysis of a few sentences."""


class ProcessPrompts:
    """The templates, ready to be filled in.

    Args:
        texts: template name → text, from `collab.rewards.llm.read_critic_prompts`.

    Raises:
        ConfigError: a text is missing or no template; from `build_prompt`: it uses an undefined name.
    """

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._templates = Templates(FOLDER, texts, FILES)

    def build_prompt(
        self, goal: str, observation: Observation, action: Action, space: ActionSpace, reason: str
    ) -> Prompt:
        """Build the question about one action; `reason` is the agent's thought, which templates may show."""
        right, wrong = JUDGMENT.ask(True), JUDGMENT.ask(False)
        world = WORLDS.get(space.name, space.name)
        system = self._templates.render("system", world=world, right=right, wrong=wrong)
        text = self._templates.render(
            "step",
            goal=goal,
            screen=observation.text,
            action=space.describe(action, observation),
            written=space.format(action),
            reason=reason,
            right=right,
            wrong=wrong,
        )
        return Prompt(system=system, shared=clean_for_sending(text), segments=())


class ProcessRewardModel(AskingCritic):
    """Judges actions one by one by asking a model for an analysis and True or False; kind `prm`.

    Args:
        model: is not closed.
        texts: templates from `collab.rewards.llm.read_critic_prompts`.

    Raises:
        ConfigError: as `AskingCritic`; or a template does not fit.
    """

    name = "prm"
    version = "1"
    prompts = FOLDER

    def __init__(
        self,
        *,
        model: Model,
        texts: Mapping[str, str],
        sampling: Sampling = SAMPLING,
        context_tokens: int = 8500,
        call_s: float = 120.0,
        seed: int = 0,
        attempt: int = 0,
    ) -> None:
        super().__init__(
            model=model, sampling=sampling, context_tokens=context_tokens, call_s=call_s, seed=seed, attempt=attempt
        )
        self._prompts = ProcessPrompts(texts)

    def _select_proposals(self, case: CriticInput, names: Mapping[str, str]) -> list[tuple[ScoredProposal, ...]]:
        shown = {agent: agent for agent in case.matrix.agents}
        return [(one,) for proposals in build_questions(case, shown, "step", "distinct") for one in proposals]

    def _fit_prompt(self, case: CriticInput, proposals: Sequence[ScoredProposal]) -> Prompt | None:
        (one,) = proposals
        action = case.matrix[one.cells[0]].action
        assert action is not None
        prompt = self._prompts.build_prompt(case.task.goal, case.observation, action, case.space, one.reason)
        return prompt if self._fits(prompt) else None

    def _read(self, text: str, proposals: Sequence[ScoredProposal], *, cut: bool) -> list[CellScore]:
        found = JUDGMENT.read(text, cut=cut)
        if found.value is None:
            return [CellScore.none(f"the critic: {found.missing}")]
        return [CellScore(score=float(found.value), reason=found.reason)]
