"""Text and JSON of one episode and one of its steps (`collab runs show RUN --episode ID`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from collab.cli.output import REHEARSAL, emit, print_table, say, to_data
from collab.cli.text.failures import format_failure
from collab.utils.text import clean_line, format_amount

if TYPE_CHECKING:
    from collab.rewards.verifiers.base import Verdict
    from collab.store.reader import RunReader
    from collab.types import Step, Trajectory


def show_episode(trajectory: Trajectory, reader: RunReader, *, as_json: bool) -> None:
    """Print goal, outcome and known failure, then every step with its screen, action, votes and effect."""
    from collab.evaluation.failures import find_failure, read_failures
    from collab.evaluation.metrics import Replies

    summary = next(one for one in reader.list_episodes() if one.id == trajectory.id)
    failure = find_failure(read_failures(reader.directory), summary)
    verdicts = _read_verdicts(trajectory, reader)
    if as_json:
        steps = [_step_data(step) for step in trajectory.steps]
        more = {"failure": to_data(failure), "verdicts": to_data(verdicts), "steps": steps}
        emit({**_build_episode_data(trajectory), **more})
        return
    _say_episode(trajectory)
    for name, verdict in verdicts.items():
        said = "missing" if verdict.success is None else "success" if verdict.success else "failure"
        mark = "" if verdict.original is None else ", inverted on purpose"
        why = clean_line(verdict.missing or verdict.reason)
        say(f"verdict  {name}: {said}{mark}{f', {why}' if why else ''}")
    if failure is not None:
        say(f"failure  {format_failure(failure)}")
    own = trajectory.steps[trajectory.copied_steps :]
    if trajectory.copied_steps:
        taken = format_amount(trajectory.copied_steps, "step")
        say(f"begins   behind {taken} taken over from another episode of the instance")
    say(f"replies without an action: {Replies.of(own)}")
    say()
    # A line per step; --step shows all of its replies.
    print_table(
        ["step", "screen", "action", "votes", "effect"],
        [
            (step.index, step.observation.title, step.history.action, _format_votes(step), step.history.effect)
            for step in trajectory.steps
        ],
    )


def _read_verdicts(trajectory: Trajectory, reader: RunReader) -> dict[str, Verdict]:
    """Return each name of verdicts beside the run → the verdict on this episode as it is now."""
    from collab.rewards.verifiers.base import VerifierInput
    from collab.rewards.verifiers.store import VERDICTS

    case, run = VerifierInput(episode=trajectory), reader.directory
    found = {name: VERDICTS.read(run, name).of(case) for name in VERDICTS.list_names(run)}
    return {name: one for name, one in found.items() if one is not None}


def show_step(trajectory: Trajectory, step: Step, *, as_json: bool) -> None:
    """Print the screen, all replies in conversation order, and the executed action."""
    if as_json:
        emit({**_build_episode_data(trajectory), "step": _step_data(step) | {"observation": step.observation.text}})
        return
    _say_episode(trajectory)
    if step.copied:
        say(f"step     {step.index}, taken over from another episode of the instance")
    say(f"\n{step.observation.text}\n")
    if step.summary_reply is not None:
        say(f"{step.summary_reply.agent}, about the step before:")
        _say_reply(step.summary_reply.text)
    # In conversation order, so that each message stands after those that it answers.
    for utterance in step.matrix:
        if utterance.proposal is not None:
            say(f"{utterance.agent}, round {utterance.round + 1}, before it chose:")
            _say_reply(utterance.proposal.text)
        heard = ", ".join(f"{cell.agent} {cell.round + 1}" for cell in utterance.heard)
        say(f"{utterance.agent}, round {utterance.round + 1}{f' (heard {heard})' if heard else ''}:")
        _say_reply(utterance.text)
        if utterance.failure is not None:
            say(f"    -> no action ({utterance.failure.kind}): {clean_line(utterance.failure.detail)}")
        elif utterance.finish == "length":
            say("    -> cut by max_tokens, after its action")
    action, effect = clean_line(step.history.action), clean_line(step.history.effect)
    say(f"\nexecuted {action} with {_format_votes(step)} votes; effect: {effect or '-'}")


def _say_reply(text: str) -> None:
    say("\n".join(f"    {clean_line(line)}" for line in text.splitlines() or ["(no text)"]))


def _say_episode(trajectory: Trajectory) -> None:
    mark = f"  ({REHEARSAL})" if trajectory.privileged else ""
    say(f"{trajectory.id} of {trajectory.environment}, seed {trajectory.task.seed}{mark}")
    say(f"goal     {clean_line(trajectory.task.goal)}")
    say(f"outcome  {clean_line(_format_outcome(trajectory))}")


def _format_outcome(trajectory: Trajectory) -> str:
    if trajectory.error is not None:
        return f"broken at step {trajectory.error.step}: {trajectory.error.message}"
    if trajectory.outcome is None:
        return "unfinished"
    word = "solved" if trajectory.outcome.success else "not solved"
    return f"{word}, {trajectory.outcome.reason}" if trajectory.outcome.reason else word


def _format_votes(step: Step) -> str:
    cells = len(step.matrix.utterances)
    best = len(step.vote.ballots[0].cells) if step.vote.ballots else 0
    return f"{best}/{cells}{' (tie)' if step.vote.tie else ''}"


def _build_episode_data(trajectory: Trajectory) -> dict[str, Any]:
    found: dict[str, Any] = to_data(
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
    shown = ("agent", "round", "text", "finish", "failure")
    cells = [{name: to_data(getattr(one, name)) for name in shown} for one in step.matrix]
    found: dict[str, Any] = to_data(
        {
            "index": step.index,
            "copied": step.copied,
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
