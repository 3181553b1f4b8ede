"""One recorded episode as a person reads it: step by step, or all that was said before one of its steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from collab.cli.output import REHEARSAL, data, emit, plain, say, table

if TYPE_CHECKING:
    from collab.types import Step, Trajectory


def show_episode(trajectory: Trajectory, *, as_json: bool) -> None:
    """Goal and outcome, then every step with its screen, action, votes and effect."""
    from collab.evaluation import Replies

    if as_json:
        emit({**_episode_data(trajectory), "steps": [_step_data(step) for step in trajectory.steps]})
        return
    _say_episode(trajectory)
    say(f"replies without an action: {Replies.of(trajectory.steps)}")
    say()
    table(
        ["step", "screen", "action", "votes", "effect"],
        [
            (step.index, step.observation.title, step.history.action, _votes(step), step.history.effect)
            for step in trajectory.steps
        ],
    )


def show_step(trajectory: Trajectory, step: Step, *, as_json: bool) -> None:
    """The screen, everything said about it in conversation order, and what was executed."""
    if as_json:
        emit({**_episode_data(trajectory), "step": _step_data(step) | {"observation": step.observation.text}})
        return
    _say_episode(trajectory)
    say(f"\n{step.observation.text}\n")
    for utterance in step.matrix:
        heard = ", ".join(f"{cell.agent} {cell.round + 1}" for cell in utterance.heard)
        say(f"{utterance.agent}, round {utterance.round + 1}{f' (heard {heard})' if heard else ''}:")
        say("\n".join(f"    {plain(line)}" for line in utterance.text.splitlines() or ["(no text)"]))
        if utterance.failure is not None:
            say(f"    -> no action ({utterance.failure.kind}): {plain(utterance.failure.detail)}")
    action, effect = plain(step.history.action), plain(step.history.effect)
    say(f"\nexecuted {action} with {_votes(step)} votes; effect: {effect or '-'}")


def _say_episode(trajectory: Trajectory) -> None:
    mark = f"  ({REHEARSAL})" if trajectory.privileged else ""
    say(f"{trajectory.id} of {trajectory.environment}, seed {trajectory.task.seed}{mark}")
    say(f"goal     {plain(trajectory.task.goal)}")
    say(f"outcome  {plain(_outcome(trajectory))}")


def _outcome(trajectory: Trajectory) -> str:
    if trajectory.error is not None:
        return f"broken at step {trajectory.error.step}: {trajectory.error.message}"
    if trajectory.outcome is None:
        return "unfinished"
    word = "solved" if trajectory.outcome.success else "not solved"
    return f"{word}, {trajectory.outcome.reason}" if trajectory.outcome.reason else word


def _votes(step: Step) -> str:
    cells = len(step.matrix.utterances)
    best = len(step.vote.ballots[0].cells) if step.vote.ballots else 0
    return f"{best}/{cells}{' (tie)' if step.vote.tie else ''}"


def _episode_data(trajectory: Trajectory) -> dict[str, Any]:
    found: dict[str, Any] = data(
        {
            "id": trajectory.id,
            "environment": trajectory.environment,
            "privileged": trajectory.privileged,
            "note": REHEARSAL if trajectory.privileged else None,
            "task": trajectory.task,
            "outcome": trajectory.outcome,
            "error": trajectory.error,
        }
    )
    return found


def _step_data(step: Step) -> dict[str, Any]:
    cells = [
        {"agent": one.agent, "round": one.round, "text": one.text, "failure": data(one.failure)} for one in step.matrix
    ]
    found: dict[str, Any] = data(
        {
            "index": step.index,
            "title": step.observation.title,
            "action": step.history.action,
            "effect": step.history.effect,
            "votes": [len(ballot.cells) for ballot in step.vote.ballots],
            "abstained": len(step.vote.abstained),
            "tie": step.vote.tie,
            "cells": cells,
        }
    )
    return found
