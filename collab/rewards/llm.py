"""A language model as the critic (CollabUIAgents, eq. 6): it reads a step's proposals and scores each in [0, 1].

    critic = LanguageCritic(model=model, texts=read_critic_prompts(folder))
    judgement = await critic.judge(case)

It sees the task, the earlier actions, the screen, and each proposal with its reason and action: o_t, H_{t−1}, A_t, q.

Deviations from the paper, each an option. Equal actions are sent once, with the latest reason, and all cells that
proposed them share the score (`score: all` sends every cell). Agents are shown under permuted names, against position
bias (`permute: false`). A step can be asked about round by round (`per: round`); then equal actions of different rounds
are scored apart.

A prompt has two parts:

    system    the role, the action list, the scale                          the same for every call
    step      task, history, screen, and the proposals of one question      one call

Each proposal is one line of JSON, so that an agent's text stays inside its own quotes. Proposals are sorted by round
and by the name shown, and names are permuted: the order does not reveal the agent. The built-in templates are
`prompts/critic`; a folder of that name in the user's own library comes before it.

Replies are lists of {agent, round, score, reason}, read as generously as `collab.rewards.structured_replies` reads
everything. The paper's own form, {"agent_0": 0.9, "agent_1": 0.2}, is read where each of these agents made one
proposal. Nothing is repaired: a score outside [0, 1] is not clipped, one of two that differ is not chosen, an absent
one is not 0. Such a score is missing, with its cause.
"""

from __future__ import annotations

import abc
import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import BeforeValidator, StrictInt

from collab.agents.agent import compute_prefix_limit
from collab.envs.grammar import ActionSpace
from collab.errors import ConfigError, ModelFailure
from collab.models.base import Model, Reply, count_lost_calls
from collab.prompts.parse import read_withheld
from collab.prompts.render import Templates, read_texts
from collab.rewards.base import ABSENT, CellScore, CriticCall, CriticInput, Judgement, build_judgement, sum_spent
from collab.rewards.structured_replies import (
    NO_ITEM,
    ContradictoryKey,
    PartlyAnswered,
    ReplyItem,
    ReplyItems,
    ask,
    find_first_failure,
    hash_prompt,
    read_items,
    read_objects,
)
from collab.seeds import derive, generator
from collab.types import CellRef, Prompt, Sampling, Utterance

FOLDER = "critic"
"""Name of the folder in `prompts/`."""
FILES = ("system", "step")
TOO_LONG = "the step does not fit into the critic's context"
"""Cause of missing scores: the question does not fit even without any history, so the model is not asked."""
Per: TypeAlias = Literal["step", "round"]
ScoredScope: TypeAlias = Literal["distinct", "all"]
WORLDS = {"mobile": "a phone", "web": "web pages"}
"""Action space → the critic's word for the environment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredProposal:
    """A proposal to be scored."""

    agent: str
    """The name under which it is shown."""
    round: int
    """The round as it is shown, from 1."""
    action: str
    """In words, its element by label."""
    reason: str
    cells: tuple[CellRef, ...]
    """The cells that get the score."""

    @property
    def line(self) -> str:
        """The proposal's line in the prompt."""
        told = {"agent": self.agent, "round": self.round, "action": self.action, "reason": self.reason}
        return json.dumps(told, ensure_ascii=False)


def permute_names(agents: Sequence[str], seed: int) -> dict[str, str]:
    """Return slot → name shown, a permutation of the team's own names."""
    names = sorted(agents)
    generator(seed).shuffle(names)
    return dict(zip(sorted(agents), names, strict=True))


def build_questions(
    case: CriticInput, names: Mapping[str, str], per: Per, scored: ScoredScope
) -> list[tuple[ScoredProposal, ...]]:
    """Return the proposals of each call; empty where no cell of the step, or of a round, parsed.

    Args:
        per: "step": all cells at once; "round": the cells of each round by themselves.
        scored: "distinct": equal actions of one question once, with the latest cell and its reason; "all": each cell by
            itself.
    """
    rounds = [case.matrix.utterances]
    if per == "round":
        rounds = [tuple(cell for cell in case.matrix if cell.round == round) for round in range(case.matrix.rounds)]
    asked = [_list_proposals(case, cells, names, scored) for cells in rounds]
    return [proposals for proposals in asked if proposals]


def _list_proposals(
    case: CriticInput, cells: Sequence[Utterance], names: Mapping[str, str], scored: ScoredScope
) -> tuple[ScoredProposal, ...]:
    groups: dict[object, list[Utterance]] = {}
    for cell in cells:
        if cell.action is not None:
            groups.setdefault(cell.action if scored == "distinct" else cell.cell, []).append(cell)
    found = [_build_proposal(case, group, names) for group in groups.values()]
    return tuple(sorted(found, key=lambda one: (one.round, one.agent)))


def _build_proposal(case: CriticInput, cells: Sequence[Utterance], names: Mapping[str, str]) -> ScoredProposal:
    latest = cells[-1]
    return ScoredProposal(
        agent=names[latest.agent],
        round=latest.round + 1,
        action="" if latest.action is None else case.space.describe(latest.action, case.observation),
        reason=latest.reason,
        cells=tuple(cell.cell for cell in cells),
    )


def read_critic_prompts(folder: Path, default: str = FOLDER) -> dict[str, str]:
    """Return a folder's templates by name; ConfigError when one is missing or unreadable.

    Args:
        default: the built-in folder whose templates stand in for missing ones.
    """
    return read_texts(folder, FILES, "a critic's prompts need", default)


class CriticPrompts:
    """The templates, ready to be filled in.

    Args:
        texts: template name → text, from `read_critic_prompts`.

    Raises:
        ConfigError: a text is missing or no template; from `build_prompt`: it uses an undefined name.
    """

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._templates = Templates(FOLDER, texts, FILES)
        self._system = lru_cache(maxsize=8)(self._render_system)

    def build_prompt(self, case: CriticInput, proposals: Sequence[ScoredProposal], history: int) -> Prompt:
        """Build the prompt of one question, with the last `history` steps."""
        # Older steps are cut first: the last ones matter most for the next action.
        first = max(0, len(case.history) - history)
        entries = [
            {"number": number, "action": entry.action, "effect": entry.effect, "reason": entry.reason}
            for number, entry in enumerate(case.history[first:], start=first + 1)
        ]
        text = self._templates.render(
            "step",
            goal=case.task.goal,
            summary=case.summary,
            history=entries,
            screen=case.observation.text,
            proposals=[proposal.line for proposal in proposals],
        )
        # Cleaned: control characters of a page must not reach a model.
        return Prompt(system=self._system(case.space), shared=clean_for_sending(text), segments=())

    def _render_system(self, space: ActionSpace) -> str:
        return self._templates.render("system", world=WORLDS.get(space.name, space.name), actions=space.listing())


def clean_for_sending(text: str) -> str:
    """Replace half surrogates, which pages and broken tokenizers produce and no server accepts."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


CUT = "the critic's reply was cut before its score"
TWICE = "the critic gave two scores"
"""Cause for scores that differ; equal ones count as one."""
ROUNDLESS = "the critic did not say which round"
"""Cause for one score by an agent's name where the agent made several proposals."""
STRAY = "the critic counted rounds from 0"
"""Cause for a whole reply: its rounds cannot be matched with those of the prompt."""


def _number(given: Any) -> Any:
    """Convert a round written as 1.0 or "1" to an integer; leave other values."""
    if isinstance(given, float) and given.is_integer():
        return int(given)
    return int(given) if isinstance(given, str) and given.isascii() and given.isdigit() and len(given) < 9 else given


class ScoredItem(ReplyItem):
    """One item of a critic's reply; its score is checked afterwards, so that the cause can be reported."""

    agent: str
    round: Annotated[StrictInt, BeforeValidator(_number)]
    score: Any = None
    reason: Any = ""


def read_scores(text: str, proposals: Sequence[ScoredProposal], *, cut: bool = False) -> list[CellScore]:
    """Return one score per proposal, in their order; items about anything else are left unread.

    But an item about a round before the first makes all scores missing.

    Args:
        cut: whether the reply ended because it was too long.
    """
    found = read_items(text, ScoredItem)
    agents = {proposal.agent for proposal in proposals}
    # Names are read without case as long as that cannot confuse two agents.
    name = str.casefold if len({agent.casefold() for agent in agents}) == len(agents) else str
    # Rounds count from 1 in the prompt; a smaller one means that the reply counts otherwise, so none can be trusted.
    if any(item.round < 1 and name(item.agent) in map(name, agents) for item in found.good):
        return [CellScore.none(STRAY)] * len(proposals)
    said: dict[tuple[str, int], list[ScoredItem]] = {}
    for item in found.good:
        said.setdefault((name(item.agent), item.round), []).append(item)
    absent = CellScore.none(_explain_absent(found, cut))
    plain = _group_by_agent(text, {name(agent) for agent in agents}, name)
    # A plain {"ada": 0.7} is read where an agent has one proposal; with several it could mean any of them.
    many = Counter(name(proposal.agent) for proposal in proposals)
    words = []
    for proposal in proposals:
        own = [_build_score(item) for item in said.get((name(proposal.agent), proposal.round), [])]
        alone = plain.get(name(proposal.agent), [])
        if own or not alone:
            words.append(_choose_one(own) or absent)
        else:
            words.append(_choose_one(alone) or absent if many[name(proposal.agent)] == 1 else CellScore.none(ROUNDLESS))
    return words


def _group_by_agent(text: str, agents: Container[str], name: Callable[[str], str]) -> dict[str, list[CellScore]]:
    """Return agent → its scores, from objects with agents as keys and a score or {score, reason} as values."""
    found: dict[str, list[CellScore]] = {}
    for one in read_objects(text):
        if "agent" in one or "score" in one:  # an item of the list
            continue
        for key, given in one.items():
            if name(key.strip()) in agents and not isinstance(given, list):
                words = map(_read_plain_score, given if isinstance(given, ContradictoryKey) else (given,))
                found.setdefault(name(key.strip()), []).extend(words)
    return found


def _read_plain_score(given: Any) -> CellScore:
    score, reason = (given.get("score"), given.get("reason")) if isinstance(given, dict) else (given, "")
    return CellScore.of(score, " ".join(reason.split()) if isinstance(reason, str) else "")


def _choose_one(words: Sequence[CellScore]) -> CellScore | None:
    """Return the only score, or the first of equal ones; a missing score where they differ, None without any."""
    if not words:
        return None
    alike = all((word.score, word.missing) == (words[0].score, words[0].missing) for word in words)
    return words[0] if alike else CellScore.none(TWICE)


def _explain_absent(found: ReplyItems[ScoredItem], cut: bool) -> str:
    """Explain why a proposal has no item, by the reply or by its refused items."""
    if cut:
        return CUT
    if NO_ITEM in found.refused:
        return ABSENT
    return f"the critic: {next(iter(found.refused))}" if found.refused else ABSENT


def _build_score(item: ScoredItem) -> CellScore:
    return CellScore.of(item.score, " ".join(item.reason.split()) if isinstance(item.reason, str) else "")


SAMPLING = Sampling(temperature=0.1, max_tokens=2048)
"""The paper's temperature; room for a sentence on each of 12 cells."""


async def ask_and_record(
    model: Model,
    prompt: Prompt,
    sampling: Sampling,
    *,
    seed: int,
    call_s: float,
    who: str,
    images: tuple[bytes, ...] = (),
) -> tuple[Reply, CriticCall]:
    """Ask a model once; return its reply, and the call to be stored. Arguments and errors as of `ask`."""
    started = time.perf_counter()
    reply = await ask(model, prompt, sampling, seed=seed, call_s=call_s, who=who, images=images)
    policy = model.policy
    # The whole call is kept: a score must be traceable to its question and answer.
    call = CriticCall(
        prompt=hash_prompt(prompt),
        model=policy.base if policy.adapter is None else f"{policy.base} + {policy.adapter}",
        seed=seed,
        reply=reply.text,
        cells=(),
        prompt_tokens=reply.prompt_tokens,
        completion_tokens=reply.completion_tokens,
        cost_usd=reply.cost_usd,
        latency_s=time.perf_counter() - started,
    )
    return reply, call


class AskingCritic(abc.ABC):
    """Asks a model about the proposals of a step; a subclass decides the questions and reads the replies.

    Args:
        model: is not closed.
        context_tokens: for prompt, reply and chat template together.
        call_s: limit of one call in seconds, with retries, without waiting in line.
        seed: decides names and the seeds of calls, with the names of episode and step.
        attempt: another number asks the very same questions with other seeds.

    Raises:
        ConfigError: the context leaves no room for a prompt, or the model reads solutions.
    """

    name: ClassVar[str]
    version: ClassVar[str]
    prompts: ClassVar[str]
    """Folder of its built-in templates."""

    def __init__(
        self, *, model: Model, sampling: Sampling, context_tokens: int, call_s: float, seed: int, attempt: int
    ) -> None:
        # A model that sees solutions would judge by them, and its scores would mean nothing elsewhere.
        if model.privileged:
            raise ConfigError(f"{model.policy.base} looks at solutions; a critic that is asked is a language model")
        room = compute_prefix_limit(context_tokens, messages=0, max_tokens=sampling.max_tokens)
        if room < 1:
            raise ConfigError(
                f"critic {self.name}: context_tokens {context_tokens} must be above {context_tokens - room}, which a "
                f"reply of max_tokens {sampling.max_tokens} and a chat's frame take"
            )
        self._model, self._sampling, self._room, self._call_s = model, sampling, room, call_s
        self._seed, self._attempt = seed, attempt

    @property
    def lost(self) -> int:
        """Calls without a complete answer; their cost is unknown."""
        return count_lost_calls(self._model)

    async def judge(self, case: CriticInput) -> Judgement:
        """Judge a step, all its calls at once; where one fails, the others are still waited for.

        Raises:
            PartlyAnswered: a call failed for good, and others were answered and paid for.
            ModelFailure: a call failed for good, and none was answered.
        """
        # Names are permuted by the seed, so that a critic cannot favour a slot by its name.
        names = self._choose_names(case)
        asked = self._select_proposals(case, names)
        asking = [self._ask(case, proposals, names, number) for number, proposals in enumerate(asked)]
        # Wait for all calls even if one fails: those in flight are paid for.
        found = await asyncio.gather(*asking, return_exceptions=True)
        answers = [one for one in found if not isinstance(one, BaseException)]
        calls = [call for call, _ in answers if call is not None]
        failure = find_first_failure(found)
        if isinstance(failure, ModelFailure) and calls:
            # The cost is kept, but half a judgement is none, so the step stays unjudged.
            raise PartlyAnswered(failure, sum_spent(calls)) from failure
        if failure is not None:
            raise failure
        words: dict[CellRef, CellScore] = {}
        for proposals, (_, told) in zip(asked, answers, strict=True):
            # Cells that proposed the same share a score: they were one line of the question.
            words |= {cell: word for one, word in zip(proposals, told, strict=True) for cell in one.cells}
        return build_judgement(case, self, words, calls)

    def build_prompts(self, case: CriticInput) -> list[Prompt]:
        """Build the prompts of a step's calls without asking, to show the question behind a recorded call."""
        return [prompt for prompt, _ in self.list_questions(case)]

    def list_questions(self, case: CriticInput) -> list[tuple[Prompt, tuple[ScoredProposal, ...]]]:
        """Return the prompt and the proposals of each of a step's calls, but for those that fit no context."""
        asked = self._select_proposals(case, self._choose_names(case))
        return [(prompt, one) for one in asked if (prompt := self._fit_prompt(case, one)) is not None]

    def _choose_names(self, case: CriticInput) -> dict[str, str]:
        """Return slot → name shown; empty where questions show none."""
        return {}

    @abc.abstractmethod
    def _select_proposals(self, case: CriticInput, names: Mapping[str, str]) -> list[tuple[ScoredProposal, ...]]:
        """Return the proposals of each call."""

    @abc.abstractmethod
    def _fit_prompt(self, case: CriticInput, proposals: Sequence[ScoredProposal]) -> Prompt | None:
        """Build the question about some proposals; None when it does not fit."""

    @abc.abstractmethod
    def _read(self, text: str, proposals: Sequence[ScoredProposal], *, cut: bool) -> list[CellScore]:
        """Return one score per proposal, in their order.

        Args:
            cut: whether the reply ended because it was too long.
        """

    def _derive_seed(self, case: CriticInput, *names: str | int) -> int:
        return derive(self._seed, "critic", *case.key, *names)

    def _fits(self, prompt: Prompt) -> bool:
        return self._model.count_tokens(prompt.system) + self._model.count_tokens(prompt.user) <= self._room

    async def _ask(
        self, case: CriticInput, proposals: Sequence[ScoredProposal], names: Mapping[str, str], number: int
    ) -> tuple[CriticCall | None, list[CellScore]]:
        """Return the call and a score for each proposal; no call where the question does not fit."""
        prompt = self._fit_prompt(case, proposals)
        if prompt is None:
            return None, [CellScore.none(TOO_LONG)] * len(proposals)
        # A seed per call, so that asking again, or in another order, gives the same answer.
        seed = self._derive_seed(case, "call", number, self._attempt)
        reply, call = await ask_and_record(
            self._model, prompt, self._sampling, seed=seed, call_s=self._call_s, who="the critic"
        )
        cells = tuple(cell for proposal in proposals for cell in proposal.cells)
        call = replace(call, cells=cells, shown=names)
        # Withheld replies hold no scores, but their format is not at fault.
        withheld = read_withheld(reply.finish, reply.aside)
        if withheld is not None:
            return call, [CellScore.none(f"the critic: {withheld.detail}")] * len(proposals)
        # A reply that was cut may still have scored the first proposals.
        return call, self._read(reply.text, proposals, cut=reply.finish == "length")


class LanguageCritic(AskingCritic):
    """Judges actions by asking a model; kind `llm`.

    Args:
        model: is not closed.
        texts: templates from `read_critic_prompts`.
        per: scope of one call, "step" or "round".
        score: "distinct" sends equal actions once, "all" sends every cell.
        permute: show agents under permuted names.
        history: last steps in the prompt; fewer where they do not fit.

    Raises:
        ConfigError: as `AskingCritic`; or a template does not fit, or `history` is negative.
    """

    name = "llm"
    version = "3"
    prompts = FOLDER

    def __init__(
        self,
        *,
        model: Model,
        texts: Mapping[str, str],
        sampling: Sampling = SAMPLING,
        per: Per = "step",
        score: ScoredScope = "distinct",
        permute: bool = True,
        history: int = 10,
        context_tokens: int = 8500,
        call_s: float = 120.0,
        seed: int = 0,
        attempt: int = 0,
    ) -> None:
        super().__init__(
            model=model, sampling=sampling, context_tokens=context_tokens, call_s=call_s, seed=seed, attempt=attempt
        )
        if history < 0:
            raise ConfigError(f"critic llm: history {history} must be at least 0")
        self._prompts, self._history = CriticPrompts(texts), history
        self._per, self._scored, self._permute = per, score, permute

    def _select_proposals(self, case: CriticInput, names: Mapping[str, str]) -> list[tuple[ScoredProposal, ...]]:
        return build_questions(case, names, self._per, self._scored)

    def _choose_names(self, case: CriticInput) -> dict[str, str]:
        agents = case.matrix.agents
        return (
            permute_names(agents, self._derive_seed(case, "names"))
            if self._permute
            else {name: name for name in agents}
        )

    def _fit_prompt(self, case: CriticInput, proposals: Sequence[ScoredProposal]) -> Prompt | None:
        """Build the question with as much of the history as fits; None when it does not fit without any."""
        for history in range(min(self._history, len(case.history)), -1, -1):
            prompt = self._prompts.build_prompt(case, proposals, history)
            if self._fits(prompt):
                return prompt
        return None

    def _read(self, text: str, proposals: Sequence[ScoredProposal], *, cut: bool) -> list[CellScore]:
        return read_scores(text, proposals, cut=cut)
