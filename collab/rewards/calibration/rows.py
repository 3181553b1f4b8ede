"""A critic's questions about known steps with the right answers, to fine-tune a judge of one's own.

    rows = await write_rows(config, Path("data/judge"))
    # collab finetune --stage sft --base DIR --data data/judge

The questions are those that the critic would ask about these steps, by its own prompt and settings. The answers score
each proposal by its worth on a copy of the environment (`collab.envs.solution`), for a reason that names the worth. Of
a process reward model they call good actions right and all others wrong. The steps are those of the training split that
a calibration with this seed has: calibrate the judge with another seed.

Each known step has one good action. A judge that met no other questions would look for the best proposal, and in a
training reward one where a team is wrong as a whole. So a critic that reads several proposals is asked about each step
twice, the second time about a drawn part of them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol, TypeAlias, runtime_checkable

from collab.data.example import Example, Provenance
from collab.data.parquet import ExampleWriter
from collab.errors import UsageError
from collab.rewards.base import CriticInput
from collab.rewards.calibration.cases import WORTH, KnownCase, KnownWorth
from collab.rewards.calibration.config import CalibrationConfig, open_resources
from collab.rewards.flip import find_asked
from collab.rewards.llm import ScoredProposal
from collab.rewards.process_reward import JUDGMENT, ProcessRewardModel
from collab.seeds import derive, generator
from collab.types import Prompt

FILE = "demonstration.parquet"
_SCORES: Mapping[KnownWorth, float] = {worth: score for score, worth in WORTH.items()}
_REASONS: Mapping[KnownWorth, str] = {
    "good": "The task needs it now.",
    "neutral": "It changes nothing that the task needs.",
    "bad": "It leads away from what the task needs.",
}


@runtime_checkable
class Questioning(Protocol):
    """A critic whose questions name proposals."""

    def list_questions(self, case: CriticInput) -> list[tuple[Prompt, tuple[ScoredProposal, ...]]]:
        """Return the prompt and the proposals of each question about a step."""
        ...


async def write_rows(config: CalibrationConfig, out: Path, *, plain: bool = False) -> list[Example]:
    """Write the rows of all known steps into a new directory, and return them; no model is asked.

    Args:
        out: is made, with `FILE` in it.
        plain: answers of a critic of kind llm name each agent's score alone, {"ada": 1.0}, as a prompt may ask for;
            else they are the list of agent, round, reason and score that the built-in prompts ask for.

    Raises:
        UsageError: the directory is there; a part cannot be built, no step is of known worth, the critic asks no such
            questions, or answers are plain and it is a process reward model or agents have several proposals in a
            question.
        EnvironmentFailure: the environment broke.
        StoreFailure: the file cannot be written.
    """
    if out.exists():
        raise UsageError(f"--out {out}: is there already; name another directory, or remove it")
    async with open_resources(config, asks=False) as place:
        critic = find_asked(place.build_critic(0, 0))
        if not isinstance(critic, Questioning):
            raise UsageError(
                f"--critic {config.critic_name}: a critic of kind {config.critic.kind} asks nothing in words; "
                "name one of kind llm or prm, such as critic-llm"
            )
        # Rows answer in the form that the critic will read.
        asks_one = isinstance(critic, ProcessRewardModel)
        if plain and asks_one:
            raise UsageError("--plain: a critic of kind prm answers with True or False anyway; leave it out")
        form = _format_judgment if asks_one else _format_plain if plain else _format_list
        rows: list[Example] = []
        for known in await place.build_known():
            part = None if asks_one else _draw_part(known.case, config.seed)
            for case in (known.case, part):
                asked = [] if case is None else critic.list_questions(case)
                rows += [_build_row(known, prompt, proposals, form) for prompt, proposals in asked]
    with ExampleWriter(out / FILE) as file:
        for row in rows:
            file.add(row)
    return rows


def _draw_part(case: CriticInput, seed: int) -> CriticInput | None:
    """Return the step with a drawn part of its proposals, at least one; None if it has fewer than two."""
    cells = case.matrix.utterances
    if len(cells) < 2:
        return None
    rng = generator(derive(seed, "part", *case.key))
    kept = {cell.cell for cell in rng.sample(cells, rng.randint(1, len(cells) - 1))}
    # The others stay as cells that proposed nothing, so that the matrix is a whole one.
    part = tuple(cell if cell.cell in kept else replace(cell, action=None) for cell in cells)
    return replace(case, matrix=replace(case.matrix, utterances=part))


Form: TypeAlias = Callable[[Sequence[ScoredProposal], Sequence[KnownWorth]], str]
"""Writes the answer to a question about some proposals of known worth."""


def _build_row(known: KnownCase, prompt: Prompt, proposals: Sequence[ScoredProposal], form: Form) -> Example:
    case = known.case
    origin = Provenance.of_step(case, step=case.step, screen=case.observation.digest, teacher="oracle")
    worth = [known.worth[proposal.cells[-1]] for proposal in proposals]
    reply = form(proposals, worth)
    return Example(level="demonstration", kind="judgement", prompt=prompt, reply=reply, provenance=origin)


def _format_list(proposals: Sequence[ScoredProposal], worth: Sequence[KnownWorth]) -> str:
    items = [
        {"agent": one.agent, "round": one.round, "reason": _REASONS[found], "score": _SCORES[found]}
        for one, found in zip(proposals, worth, strict=True)
    ]
    return json.dumps({"scores": items}, ensure_ascii=False)


def _format_plain(proposals: Sequence[ScoredProposal], worth: Sequence[KnownWorth]) -> str:
    agent, many = Counter(one.agent for one in proposals).most_common(1)[0]
    if many > 1:
        raise UsageError(f"--plain: {agent} has {many} proposals in a question; ask round by round (per: round)")
    return json.dumps({one.agent: _SCORES[found] for one, found in zip(proposals, worth, strict=True)})


def _format_judgment(proposals: Sequence[ScoredProposal], worth: Sequence[KnownWorth]) -> str:
    (found,) = worth
    return JUDGMENT.format(found == "good", _REASONS[found])
