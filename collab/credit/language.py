"""A language model as the critic (CollabUIAgents, eq. 6): it reads a step's proposals and scores each in [0, 1].

    critic = LanguageCritic(model=model, texts=read_critic_prompts(folder))
    judgement = await critic.judge(case)

It sees the task, what was done before, the screen, and each proposal with its reason and action: o_t, H_{t−1}, A_t, q.

Deviations from the paper, each an option: equal actions are sent once, with the latest reason, and all cells that
proposed them share the score (`score: all` sends every cell); agents are shown under permuted names, against position
bias (`permute: false`); a step can be asked about round by round (`per: round`), and then equal actions of different
rounds are scored apart.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence

from collab.agents.agent import prefix_limit
from collab.credit.asking import PartlyAnswered, ask, first_failure, prompt_hash
from collab.credit.case import Case
from collab.credit.critic import CriticCall, Judgement, Word, judgement_of, spent_on
from collab.credit.language_prompt import TOO_LONG, CriticPrompts, Per, Proposal, Scored, permuted, questions
from collab.credit.language_scores import read_scores
from collab.errors import ConfigError, ModelFailure
from collab.models.base import Model
from collab.models.meter import lost_by
from collab.prompts.parse import read_withheld
from collab.seeds import derive
from collab.types import CellRef, Prompt, Sampling

SAMPLING = Sampling(temperature=0.1, max_tokens=2048)
"""The paper's temperature; room for a sentence on each of 12 cells."""


class LanguageCritic:
    """Judges actions by asking a model; kind `llm`.

    Args:
        model: is not closed.
        texts: templates, see `collab.credit.language_prompt.read_critic_prompts`.
        per: what one call is about, "step" or "round".
        score: "distinct" sends equal actions once, "all" sends every cell.
        permute: show agents under permuted names.
        history: steps that are told, the last ones; fewer where they do not fit.
        context_tokens: of prompt, reply and a chat's frame together.
        call_s: limit of one call in seconds, retries included and waiting in line not.
        seed: decides names and the seeds of calls, with the names of episode and step.
        attempt: another one asks the very same questions with other seeds.

    Raises:
        ConfigError: a template does not fit, the context leaves no room for a prompt, or the model looks at solutions.
    """

    name = "llm"
    version = "3"

    def __init__(
        self,
        *,
        model: Model,
        texts: Mapping[str, str],
        sampling: Sampling = SAMPLING,
        per: Per = "step",
        score: Scored = "distinct",
        permute: bool = True,
        history: int = 10,
        context_tokens: int = 8500,
        call_s: float = 120.0,
        seed: int = 0,
        attempt: int = 0,
    ) -> None:
        if model.privileged:
            raise ConfigError(f"{model.policy.base} looks at solutions; a critic that is asked is a language model")
        room = prefix_limit(context_tokens, messages=0, max_tokens=sampling.max_tokens)
        if room < 1 or history < 0:
            raise ConfigError(
                f"critic llm: context_tokens {context_tokens} must be above {context_tokens - room}, which a reply of "
                f"max_tokens {sampling.max_tokens} and a chat's frame take; history {history} must be at least 0"
            )
        self._model, self._prompts, self._sampling = model, CriticPrompts(texts), sampling
        self._per, self._scored, self._permute = per, score, permute
        self._history, self._room, self._call_s = history, room, call_s
        self._seed, self._attempt = seed, attempt

    @property
    def lost(self) -> int:
        """Calls that were sent and never answered whole: what they cost is not known."""
        return lost_by(self._model)

    async def judge(self, case: Case) -> Judgement:
        """Judge a step, all its calls at once; where one fails, the others are still waited for.

        Raises:
            PartlyAnswered: a call failed for good, and others were answered and paid.
            ModelFailure: a call failed for good, and none was answered.
        """
        names = self._names(case)
        asked = questions(case, names, self._per, self._scored)
        asking = [self._ask(case, proposals, names, number) for number, proposals in enumerate(asked)]
        found = await asyncio.gather(*asking, return_exceptions=True)
        answers = [one for one in found if not isinstance(one, BaseException)]
        calls = [call for call, _ in answers if call is not None]
        failure = first_failure(found)
        if isinstance(failure, ModelFailure) and calls:
            raise PartlyAnswered(failure, spent_on(calls)) from failure
        if failure is not None:
            raise failure
        words: dict[CellRef, Word] = {}
        for proposals, (_, told) in zip(asked, answers, strict=True):
            words |= {cell: word for one, word in zip(proposals, told, strict=True) for cell in one.cells}
        return judgement_of(case, self, words, calls)

    def prompts(self, case: Case) -> list[Prompt]:
        """What is asked about a step, call by call, without asking: to show what a recorded call answered."""
        asked = questions(case, self._names(case), self._per, self._scored)
        return [prompt for proposals in asked if (prompt := self._fitting(case, proposals)) is not None]

    def _names(self, case: Case) -> dict[str, str]:
        agents = case.matrix.agents
        return permuted(agents, self._seed_of(case, "names")) if self._permute else {name: name for name in agents}

    def _seed_of(self, case: Case, *names: str | int) -> int:
        return derive(self._seed, "critic", *case.key, *names)

    def _fitting(self, case: Case, proposals: Sequence[Proposal]) -> Prompt | None:
        """The question with as much of the history as fits; None when it does not fit without any."""
        for history in range(min(self._history, len(case.history)), -1, -1):
            prompt = self._prompts.prompt(case, proposals, history)
            if self._model.count_tokens(prompt.system) + self._model.count_tokens(prompt.user) <= self._room:
                return prompt
        return None

    async def _ask(
        self, case: Case, proposals: Sequence[Proposal], names: Mapping[str, str], number: int
    ) -> tuple[CriticCall | None, list[Word]]:
        """The call and a word on each proposal; no call where the question does not fit."""
        prompt = self._fitting(case, proposals)
        if prompt is None:
            return None, [Word.none(TOO_LONG)] * len(proposals)
        seed, started = self._seed_of(case, "call", number, self._attempt), time.perf_counter()
        reply = await ask(self._model, prompt, self._sampling, seed=seed, call_s=self._call_s, who="the critic")
        policy = self._model.policy
        call = CriticCall(
            prompt=prompt_hash(prompt),
            model=policy.base if policy.adapter is None else f"{policy.base} + {policy.adapter}",
            seed=seed,
            reply=reply.text,
            cells=tuple(cell for proposal in proposals for cell in proposal.cells),
            shown=names,
            prompt_tokens=reply.prompt_tokens,
            completion_tokens=reply.completion_tokens,
            cost_usd=reply.cost_usd,
            latency_s=time.perf_counter() - started,
        )
        withheld = read_withheld(reply.finish, reply.aside)
        if withheld is not None:
            return call, [Word.none(f"the critic: {withheld.detail}")] * len(proposals)
        return call, read_scores(reply.text, proposals, cut=reply.finish == "length")
