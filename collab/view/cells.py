"""What one agent said in one round: in the matrix, and its exact words."""

from __future__ import annotations

import math
from collections.abc import Sequence

from collab.errors import CollabError, UnknownName
from collab.prompts.render import rebuild
from collab.store.reader import RunReader
from collab.types import CellRef, Step, Utterance
from collab.view import answer
from collab.view.screens import action_view
from collab.view.shapes.cell import CellKey, CellView, CellWhole, Failure, PolicyView
from collab.view.verdicts import Judged, call_view, rewarded

_TRIMMED = 20
"""Things cut out of a prompt that are named."""


def cell_view(cell: Utterance, step: Step, *, layer: int | None, judged: Judged, pairs: Sequence[str]) -> CellView:
    """A cell of a step.

    Args:
        layer: its depth in the graph; None on a cycle.
        pairs: ids of those that it is a side of.
    """
    word = judged.word(cell.cell)
    score = None if word is None else word.score
    return CellView(
        agent=answer.short(cell.agent),
        round=cell.round,
        layer=layer,
        text=answer.text(cell.text),
        reason=answer.text(cell.reason),
        action=None if cell.action is None else action_view(cell.action, step.observation),
        failure=_failure(cell),
        ballot=_ballot(cell.cell, step),
        representative=cell.cell == step.vote.representative,
        logprob=None if cell.logprobs is None else math.fsum(cell.logprobs),
        prompt_tokens=cell.prompt_tokens,
        completion_tokens=cell.completion_tokens,
        computed_tokens=cell.computed_tokens,
        latency_s=cell.latency_s,
        queue_s=cell.queue_s,
        width=cell.width,
        cost_usd=cell.cost_usd,
        temperature=cell.sampling.temperature,
        top_p=cell.sampling.top_p,
        seed=str(cell.seed),
        policy=PolicyView(
            base=answer.short(cell.policy.base),
            adapter=None if cell.policy.adapter is None else answer.short(cell.policy.adapter),
            version=cell.policy.version,
        ),
        privileged=cell.privileged,
        trimmed=[answer.short(what) for what in cell.prompt.trimmed[:_TRIMMED]],
        trimmed_more=max(0, len(cell.prompt.trimmed) - _TRIMMED),
        score=score,
        rewarded=rewarded(score),
        because=answer.text("" if word is None else word.reason),
        missing=None if word is None or word.missing is None else answer.short(word.missing),
        pairs=pairs,
    )


def cell_whole(reader: RunReader, step: Step, agent: str, round: int, judged: Judged) -> CellWhole:
    """The prompt that a cell read and its reply, uncut; UnknownName when the step has no such cell."""
    asked = CellKey(agent=answer.short(agent), round=round)
    cell = next((one for one in step.matrix if answer.key(one.cell) == asked), None)
    if cell is None:
        raise UnknownName(f"step {step.index} has no cell of {agent[:80]!r} in round {round}")
    system, shared, unread = _prompt(reader, cell)
    word, call = judged.word(cell.cell), judged.call(cell.cell)
    return CellWhole(
        agent=answer.short(cell.agent),
        round=cell.round,
        system=system,
        shared=shared,
        suffix=cell.prompt.suffix,
        unread=unread,
        prompt=cell.prompt.hash,
        layout=answer.short(cell.prompt.layout),
        reply=cell.text,
        tokens=cell.tokens,
        logprobs=cell.logprobs,
        because="" if word is None else word.reason,
        call=None if call is None else call_view(call),
    )


def _prompt(reader: RunReader, cell: Utterance) -> tuple[str | None, str | None, str | None]:
    """System text, shared part, and why they cannot be read."""
    try:
        prompt = rebuild(reader.prefix(cell.prompt.prefix), cell.prompt)
    except CollabError as error:
        return None, None, str(error)
    return prompt.system, prompt.shared, None


def _failure(cell: Utterance) -> Failure | None:
    if cell.failure is None:
        return None
    return Failure(kind=answer.short(cell.failure.kind), detail=answer.short(cell.failure.detail))


def _ballot(cell: CellRef, step: Step) -> int | None:
    return next((number for number, ballot in enumerate(step.vote.ballots) if cell in ballot.cells), None)
