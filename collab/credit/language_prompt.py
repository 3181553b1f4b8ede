"""What a language model is asked as a critic: which proposals, under which names, in which words.

    system    who is asked, the action list, the scale                          the same for every call
    step      task, history, screen, and the proposals of one question          one call

Proposals are told one per line as JSON, so that whatever an agent wrote stays inside its own quotes. They are sorted by
round and by the name shown, and names are permuted: who stands where does not follow from who it is.

The built-in templates are `prompts/critic`; a folder of that name in the user's own library comes before it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal, TypeAlias

from collab.credit.case import Case
from collab.envs.grammar import ActionSpace
from collab.prompts.templates import Templates, read_texts
from collab.seeds import generator
from collab.types import CellRef, Prompt, Utterance

FOLDER = "critic"
"""Name of the folder in `prompts/`."""
FILES = ("system", "step")
TOO_LONG = "the step does not fit into the critic's context"
"""Cause of missing scores: nothing was asked, also where no history is told."""
Per: TypeAlias = Literal["step", "round"]
Scored: TypeAlias = Literal["distinct", "all"]
WORLDS = {"mobile": "a phone", "web": "web pages"}
"""Action space → what a critic is told that it looks at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """One thing to be scored."""

    agent: str
    """The name under which it is shown."""
    round: int
    """From 1, as it is shown."""
    action: str
    """In words, its element by label."""
    reason: str
    cells: tuple[CellRef, ...]
    """Whose score it will be."""

    @property
    def line(self) -> str:
        """As it stands in the prompt."""
        told = {"agent": self.agent, "round": self.round, "action": self.action, "reason": self.reason}
        return json.dumps(told, ensure_ascii=False)


def permuted(agents: Sequence[str], seed: int) -> dict[str, str]:
    """Slot → name shown: the team's own names, given out anew."""
    names = sorted(agents)
    generator(seed).shuffle(names)
    return dict(zip(sorted(agents), names, strict=True))


def questions(case: Case, names: Mapping[str, str], per: Per, scored: Scored) -> list[tuple[Proposal, ...]]:
    """What is asked, one tuple per call; nothing where no cell of the step, or of a round, parsed.

    Args:
        per: "step": all cells at once; "round": the cells of each round by themselves.
        scored: "distinct": equal actions of one question once, told by the latest cell and its reason; "all": each
            cell by itself.
    """
    rounds = [case.matrix.utterances]
    if per == "round":
        rounds = [tuple(cell for cell in case.matrix if cell.round == round) for round in range(case.matrix.rounds)]
    asked = [_proposals(case, cells, names, scored) for cells in rounds]
    return [proposals for proposals in asked if proposals]


def _proposals(
    case: Case, cells: Sequence[Utterance], names: Mapping[str, str], scored: Scored
) -> tuple[Proposal, ...]:
    groups: dict[object, list[Utterance]] = {}
    for cell in cells:
        if cell.action is not None:
            groups.setdefault(cell.action if scored == "distinct" else cell.cell, []).append(cell)
    found = [_proposal(case, group, names) for group in groups.values()]
    return tuple(sorted(found, key=lambda one: (one.round, one.agent)))


def _proposal(case: Case, cells: Sequence[Utterance], names: Mapping[str, str]) -> Proposal:
    latest = cells[-1]
    return Proposal(
        agent=names[latest.agent],
        round=latest.round + 1,
        action="" if latest.action is None else case.space.describe(latest.action, case.observation),
        reason=latest.reason,
        cells=tuple(cell.cell for cell in cells),
    )


def read_critic_prompts(folder: Path) -> dict[str, str]:
    """The texts of a folder by template name; ConfigError when one is missing or unreadable."""
    return read_texts(folder, FILES, "a critic's prompts need", FOLDER)


class CriticPrompts:
    """The templates, ready to be filled in.

    Args:
        texts: template name → text, see `read_critic_prompts`.

    Raises:
        ConfigError: a text is missing or no template; from `prompt`: it asks for something that no critic is told.
    """

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._templates = Templates(FOLDER, texts, FILES)
        self._system = lru_cache(maxsize=8)(self._render_system)

    def prompt(self, case: Case, proposals: Sequence[Proposal], history: int) -> Prompt:
        """One question, with the last `history` steps."""
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
        return Prompt(system=self._system(case.space), shared=sendable(text), segments=())

    def _render_system(self, space: ActionSpace) -> str:
        return self._templates.render("system", world=WORLDS.get(space.name, space.name), actions=space.listing())


def sendable(text: str) -> str:
    """The text without half characters, which pages and broken tokenizers produce and no server takes."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
