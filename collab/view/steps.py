"""One step whole: what was seen, said, voted, done, judged and learned from."""

from __future__ import annotations

import math
from collections.abc import Sequence

from collab.envs.actions import SPACES
from collab.prompts.parse import read_reply
from collab.store.layers import layers
from collab.types import CellRef, Observation, PreferencePair, ReplyRef, Step, Trajectory
from collab.view import answer
from collab.view.cells import cell_view
from collab.view.changes import changes
from collab.view.finds import worth
from collab.view.pool import Opened
from collab.view.roots import Root
from collab.view.screens import action_view, screen_view
from collab.view.shapes.common import Edge
from collab.view.shapes.screen import ActionView, Changes
from collab.view.shapes.step import BallotView, Message, PairView, ReplyKey, StepView, VoteView
from collab.view.verdicts import Judged, judged

_SIDES = 50
"""Replies of a side that are named; pairs of whole trajectories have as many as steps."""


def step_view(root: Root, run: Opened, episode: str, step: int, labels: str | None) -> StepView:
    """A step of an episode.

    Args:
        labels: whose scores to show; None for none.

    Raises:
        UnknownName: there is no such episode or step.
    """
    one, head = run.reader.step(episode, step), run.reader.head(episode)
    told = judged(run, labels, episode, head.task.goal, one)
    pairs = run.beside.pairs_of(episode, step)
    before, behind, count = _around(run, episode, step)
    depths = layers(one.matrix.agents, one.matrix.edges)
    effect = one.history.effect
    return StepView(
        run=root.id,
        episode=episode,
        step=step,
        steps=count,
        previous=before,
        next=behind,
        task=answer.short(head.task.name),
        goal=answer.text(head.task.goal),
        screen=screen_view(one.observation, run=root.id, directory=root.path, episode=episode, step=step),
        summary=answer.text(one.summary),
        agents=[answer.short(agent) for agent in one.matrix.agents],
        rounds=one.matrix.rounds,
        edges=short_edges(one.matrix.edges),
        layers=graph_layers(one.matrix.agents, one.matrix.edges),
        messages=_messages(one),
        cells=[
            cell_view(
                cell,
                one,
                layer=depths.get(cell.agent),
                judged=told,
                pairs=_sides_of(ReplyRef(trajectory=episode, step=step, cell=cell.cell), pairs),
            )
            for cell in one.matrix
        ],
        vote=_vote(one, told),
        executed=None if one.executed is None else action_view(one.executed, one.observation),
        no_action=one.no_action,
        effect=answer.text(effect),
        terminated=one.terminated,
        truncated=one.truncated,
        deliberation_s=one.deliberation_s,
        environment_s=one.environment_s,
        changes=_changes(run, one, head, behind, count),
        labels=labels,
        labellings=run.beside.labellings(),
        critic=_short(told.critic),
        unjudged=_short(told.unjudged),
        pairs=[_pair(name, pair, one.observation) for name, pair in pairs],
    )


def graph_layers(agents: Sequence[str], edges: Sequence[Edge]) -> list[list[str]]:
    """Agents that can speak at the same time, first to last."""
    depths = layers(tuple(agents), tuple((speaker, hearer) for speaker, hearer in edges))
    found: list[list[str]] = [[] for _ in range(max(depths.values(), default=-1) + 1)]
    for agent in agents:
        if agent in depths:
            found[depths[agent]].append(answer.short(agent))
    return found


def short_edges(edges: Sequence[Edge]) -> list[Edge]:
    """The same edges, with names as they are shown."""
    return [(answer.short(speaker), answer.short(hearer)) for speaker, hearer in edges]


# ------------------------------------------------------------------------------------------------------ inside


def _around(run: Opened, episode: str, step: int) -> tuple[int | None, int | None, int]:
    """The nearest readable steps, and how many the episode has."""
    rows = run.reader.query(
        "SELECT (SELECT max(step) FROM steps WHERE steps.key = episodes.key AND step < ?),"
        " (SELECT min(step) FROM steps WHERE steps.key = episodes.key AND step > ?),"
        " max(coalesce(steps, 0), (SELECT max(step) + 1 FROM steps WHERE steps.key = episodes.key))"
        " FROM episodes WHERE trajectory = ?",
        *(step, step, episode),
    )
    before, behind, count = rows[0]
    return before, behind, count


def _changes(run: Opened, step: Step, head: Trajectory, behind: int | None, count: int) -> Changes | None:
    if behind == step.index + 1:
        return changes(step.observation, run.reader.step(head.id, behind).observation)
    if step.index + 1 == count and head.final is not None:
        return changes(step.observation, head.final)
    return None


def _messages(step: Step) -> list[Message]:
    return [
        Message(speaker=answer.short(said.agent), said=said.round, hearer=answer.short(cell.agent), round=cell.round)
        for cell in step.matrix
        for said in cell.heard
    ]


def _vote(step: Step, told: Judged) -> VoteView:
    vote = step.vote
    winners = set(vote.ballots[0].cells) if vote.ballots else set()
    scores = {cell.cell: told.score(cell.cell) for cell in step.matrix}
    scored = [(*cell, cell in winners, score) for cell, score in scores.items() if score is not None]
    found = worth("", step.index, scored)
    return VoteView(
        ballots=[
            BallotView(
                action=action_view(ballot.action, step.observation),
                cells=[answer.key(cell) for cell in ballot.cells],
                score=_mean([scores.get(cell) for cell in ballot.cells]),
            )
            for ballot in vote.ballots
        ],
        abstained=[answer.key(cell) for cell in vote.abstained],
        representative=None if vote.representative is None else answer.key(vote.representative),
        entropy=vote.entropy,
        tie=vote.tie,
        agreement=step.agreement,
        overruled=answer.key(CellRef(*found.best)) if found is not None and found.overruled else None,
    )


def _pair(name: str, pair: PreferencePair, observation: Observation) -> PairView:
    return PairView(
        id=answer.short(pair.id),
        set=name,
        source=answer.short(pair.source),
        chosen=[_reply(one) for one in pair.chosen[:_SIDES]],
        rejected=[_reply(one) for one in pair.rejected[:_SIDES]],
        more=sum(max(0, len(side) - _SIDES) for side in (pair.chosen, pair.rejected)),
        synthetic=None if pair.synthetic is None else answer.text(pair.synthetic),
        synthetic_action=_read(pair.synthetic, observation),
        adversary=_short(pair.adversary),
        critic=_short(pair.critic),
    )


def _read(synthetic: str | None, observation: Observation) -> ActionView | None:
    space = SPACES.get(observation.space)
    if synthetic is None or space is None:
        return None
    action = read_reply(synthetic, space, observation).action
    return None if action is None else action_view(action, observation)


def _sides_of(reply: ReplyRef, pairs: Sequence[tuple[str, PreferencePair]]) -> list[str]:
    return [answer.short(pair.id) for _, pair in pairs if reply in pair.chosen or reply in pair.rejected]


def _reply(one: ReplyRef) -> ReplyKey:
    return ReplyKey(episode=one.trajectory, step=one.step, agent=answer.short(one.cell.agent), round=one.cell.round)


def _short(text: str | None) -> str | None:
    return None if text is None else answer.short(text)


def _mean(scores: Sequence[float | None]) -> float | None:
    known = [one for one in scores if one is not None]
    return math.fsum(known) / len(known) if known else None
