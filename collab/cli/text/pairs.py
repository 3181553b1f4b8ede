"""Format preference pairs of replies and of whole trajectories, for people and as JSON data."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collab.cli.output import REHEARSAL, describe_lost, print_table, say, to_data
from collab.utils.progress import note
from collab.utils.text import clean_line, format_amount, format_causes, format_count

if TYPE_CHECKING:
    from collab.preferences.explain import PairExplanation, PairSide
    from collab.preferences.rebuild import ExplainedDifference, RebuiltPairs
    from collab.preferences.store import PairHead, PairSet
    from collab.preferences.trajectory_pairs import TrajectoryPair
    from collab.store.rewards import PreferencePair
    from collab.types import PolicyRef


_SHOWN = 5
"""Most changed pairs that are listed one by one."""


def mark_of(run: Path) -> str | None:
    """Return the mark of a run whose agents read solutions; None for all others."""
    from collab.store.manifest import find_manifest

    manifest = find_manifest(run)
    return REHEARSAL if manifest is not None and manifest.privileged else None


def add_mark(line: str, run: Path) -> str:
    """Add the mark of its run to a line, where it has one."""
    mark = mark_of(run)
    return line if mark is None else f"{line}  ({mark})"


def build_row(pair: PreferencePair, letters: str, sides: tuple[PairSide, PairSide] | None) -> dict[str, Any]:
    """Build the row of a pair.

    Args:
        letters: by which it is known here.
        sides: None for whole trajectories, and where the pair's step is not stored any more.
    """
    where, single = pair.place, pair.answered is not None
    row = {
        "id": pair.id,
        "short": letters,
        "episode": where.trajectory,
        "step": where.step if single else None,
        "agent": where.cell.agent if single else None,
        "round": where.cell.round if single else None,
        "source": pair.source,
    }
    # Three kinds: sides that can be looked up, a cell that was played again, and whole episodes.
    if sides is not None:
        better, worse = sides
        told = {"better": better.action, "worse": worse.action, "score": better.score, "worse_score": worse.score}
    elif single:
        told = {"better": "was played again since", "worse": None, "score": None, "worse_score": None}
    else:
        told = {"better": "solved", "worse": pair.rejected[0].trajectory, "score": None, "worse_score": None}
    return row | told


def say_rows(rows: list[dict[str, Any]]) -> None:
    """Print pairs as a table."""
    columns = ("id", "episode", "step", "cell", "source", "better", "worse", "score")
    print_table(
        columns,
        [
            (
                row["short"],
                row["episode"],
                row["step"],
                None if row["agent"] is None else f"{row['agent']} {row['round'] + 1}",
                row["source"],
                row["better"],
                row["worse"],
                format_scores(row["score"], row["worse_score"]),
            )
            for row in rows
        ],
    )


def format_scores(better: float | None, worse: float | None) -> str | None:
    """Format the critic's scores; None when the chosen reply has none."""
    if better is None:
        return None
    return f"{better:.2f}" if worse is None else f"{better:.2f} > {worse:.2f}"


def say_sides(run: Path, stored: PairSet, told: PairExplanation) -> None:
    """Print both replies in full."""
    _say_head(run, stored, told)
    for word, side in (("better", told.chosen), ("worse", told.rejected)):
        say(f"\n{word}: {_format_speaker(told, side)}")
        _say_indented(side.text)


def say_explained(run: Path, stored: PairSet, told: PairExplanation, *, prompt: bool) -> None:
    """Print what a pair rests on: scores and words, the screen, and the prompt where it is asked for."""
    _say_head(run, stored, told)
    say(f"goal     {clean_line(told.goal)}")
    # What was preferred first, then why: the order in which a doubtful pair is read.
    for word, side in (("better", told.chosen), ("worse", told.rejected)):
        say(f"{word:<8} {clean_line(side.action)}, {_format_speaker(told, side)}")
        say(f"         {_format_judgement(told.pair, side)}")
    say(f"context  {_format_context(told)}")
    # One call may have judged both sides; it is printed once.
    calls = {id(side.call): side.call for side in (told.chosen, told.rejected) if side.call is not None}
    for call in calls.values():
        seen = ", ".join(f"{slot} as {name}" for slot, name in call.shown.items())
        say(f"\nthe critic's call: {call.model}, seed {call.seed}, asked {call.prompt[:12]}")
        if seen:
            say(f"it saw   {clean_line(seen)}")
        _say_indented(call.reply)
    say(f"\nscreen before the step: {clean_line(told.screen.title)}")
    _say_indented(told.screen.text)
    # Prompts are long, so they are printed on request alone.
    if prompt:
        say("\ninput that both sides answer: system")
        _say_indented(told.prompt.system)
        say("\ninput that both sides answer: the rest")
        _say_indented(told.prompt.user)
    else:
        say(f"\ninput that both sides answer: {told.pair.prompt}; print it with --prompt")


def build_explanation_data(run: Path, stored: PairSet, told: PairExplanation) -> dict[str, Any]:
    """Return an explained pair as JSON data."""
    found: dict[str, Any] = to_data(told)
    found["prompt"] = {"hash": told.pair.prompt, "system": told.prompt.system, "user": told.prompt.user}
    return {"run": str(run), "note": mark_of(run), "name": stored.name, "labels": stored.head.labels, **found}


def say_rebuilt(run: Path, result: RebuiltPairs, stored: PairSet, letters: Mapping[str, str]) -> None:
    """Print the new pairs, their counts, and the difference to the earlier pairs."""
    from collab.preferences.explain import count_lines

    head, changes = stored.head, result.changes
    # The same command twice makes nothing new, and must not look as if it had.
    there = "stored" if result.new else "which are there already"
    say(add_mark(f"{run}: {format_amount(head.pairs, 'pair')}, {there} as {stored.name!r}", run))
    say(f"recipe   {_format_recipe(head)}")
    # Missing scores stand with the counts: they explain why there are so few pairs.
    _say_lines([*count_lines(head), *format_causes("no score", result.missing)])
    if result.left_out:
        say(f"left out {format_amount(result.left_out, 'episode')} broken or not finished")
    if result.beyond:
        say(f"left out {format_amount(result.beyond, 'episode')} beyond the steps that the training learns from")
    spent = result.spent
    cost = f", {format_amount(spent.calls, 'call')}, {format_count(spent.tokens, 'token')}" if spent.calls else ""
    # The calls and cost of this process; earlier ones printed theirs.
    say(
        f"asked    {format_amount(result.judged, 'step')} judged and "
        f"{format_amount(result.asked, 'rejected side')} proposed now{cost}"
    )
    if lost := max(spent.lost, head.spent.lost):
        say(f"         {describe_lost(lost)}")
    # The difference to the pairs before is what a rebuild is for.
    if changes is None:
        say("changes  none: the run had no pairs before")
    else:
        _say_changes(changes, stored.name, letters)
    # Steps without a judgement may be asked again; the others are settled.
    if left := head.unjudged + sum(head.failed.values()):
        note(
            f"{format_amount(left, 'step')} not judged, or not to be asked about; the same command without --name, or "
            "with "
            "another, asks again where it can"
        )
    if stored.pairs:
        say(f"\nlook closer: collab pairs list {shlex.quote(str(run))} --name {stored.name}")
    else:
        note(f"no pair was made: {_explain_none(result, head)}")


def _explain_none(result: RebuiltPairs, head: PairHead) -> str:
    from collab.rewards.llm import TOO_LONG

    # From the plainest cause to the vaguest.
    if not result.counted:
        return "no episode counts, for all of them broke or are not finished"
    if TOO_LONG in result.missing and not head.counts:
        return (
            "nothing was rewarded: raise context_tokens in the critic's agents file, and --labels NEW has all of it "
            "judged again"
        )
    if result.missing and not head.counts:
        return "nothing was rewarded, and above is what has no score; --labels NEW has all of it judged again"
    return "nothing was rewarded, or nothing was worse; the counts above say which"


def build_rebuilt_data(run: Path, result: RebuiltPairs) -> dict[str, Any]:
    """Return a rebuild's result as JSON data; pairs by their IDs."""
    stored, changes = result.stored, result.changes
    return {
        "run": str(run),
        "note": mark_of(run),
        "name": None if stored is None else stored.name,
        "new": result.new,
        "head": None if stored is None else to_data(stored.head),
        "changes": None if changes is None else _build_changes_data(changes),
        "judged": result.judged,
        "asked": result.asked,
        "missing": dict(result.missing),
        "spent": to_data(result.spent),
        "left_out": result.left_out,
        "beyond": result.beyond,
        "stopped": result.stopped,
    }


# ------------------------------------------------------------------------------------------------------ inside


def _say_head(run: Path, stored: PairSet, told: PairExplanation) -> None:
    pair, where = told.pair, told.pair.answered
    assert where is not None, "pairs of whole trajectories have their own format"
    say(f"pair     {pair.id}")
    say(add_mark(f"of       {stored.name!r} of {run}, source {pair.source}", run))
    policy = pair.policy
    by = "several policies" if policy is None else _format_policy(policy)
    say(f"where    {where.trajectory}, step {where.step}, {where.cell.agent} in round {where.cell.round + 1}")
    say(f"policy   {by}{', which wrote the chosen reply' if pair.source == 'correction' else ''}")


def _format_policy(policy: PolicyRef) -> str:
    """Format base, adapter where there is one, and the number of updates."""
    adapter = "" if policy.adapter is None else f" + {policy.adapter}"
    return f"{policy.base}{adapter}, version {policy.version}"


def _format_speaker(told: PairExplanation, side: PairSide) -> str:
    if side.cell is None:
        return f"synthesised by {told.pair.adversary}"
    return f"said by {side.cell.agent} in round {side.cell.round + 1}"


def _format_judgement(pair: PreferencePair, side: PairSide) -> str:
    if side.cell is None:
        return "not judged: it passed the linter"
    if side.score is None:
        return f"the words of {pair.critic} are not stored any more"
    flipped = "" if side.original is None else f", flipped on purpose from {side.original:.2f}"
    return f"{pair.critic} gives {side.score:.2f}{flipped}: {clean_line(side.because) or 'without a word'}"


def _format_context(told: PairExplanation) -> str:
    if told.off_context:
        other, own = ("chosen", "rejected") if told.pair.source == "correction" else ("rejected", "chosen")
        heard = f"the {other} reply was written after hearing other messages"
        return f"off-context: {heard}; both are trained under the input of the {own} one"
    return "both sides answer the same input" if told.rejected.cell is None else "both sides heard the same messages"


def _say_indented(text: str) -> None:
    say("\n".join(f"    {_clean_indented(line)}" for line in text.splitlines()))


def _clean_indented(line: str) -> str:
    """Clean a line of control characters, but keep its indent."""
    return " " * (len(line) - len(line.lstrip(" "))) + clean_line(line)


def _format_recipe(head: PairHead) -> str:
    recipe = head.recipe
    sources = " and ".join(f"{name} {weight:g}" for name, weight in recipe.sources.weights.items())
    cap = "no cap" if recipe.cap is None else f"at most {recipe.cap} per state"
    who = "" if head.adversary is None else f", rejected replies by {head.adversary}"
    end = ", up to each episode's first error" if recipe.stop_at_first_error else ""
    return f"{sources}; rewarded above {recipe.threshold:g} by {head.critic} (labels {head.labels!r}); {cap}{end}{who}"


def _say_lines(lines: Sequence[str]) -> None:
    for line in lines:
        say(line)


def _say_changes(changes: ExplainedDifference, name: str, letters: Mapping[str, str]) -> None:
    found = changes.difference
    # Compared with itself there is nothing to say.
    if changes.against == name:
        say(f"changes  none: {name!r} is what it was compared with")
        return
    counts = (
        f"{len(found.added)} added, {len(found.dropped)} dropped, {len(found.flipped)} flipped, {len(found.kept)} kept"
    )
    say(f"changes  to {changes.against!r}: {counts}")
    for word, when, pairs, causes in (
        ("added", "before", found.added, changes.added),
        ("dropped", "now", found.dropped, changes.dropped),
    ):
        if pairs:
            told = ", ".join(f"{count} {cause}" for cause, count in causes.items())
            say(f"{word:<8} {len(pairs)} ({when}: {told})")
            _say_ids(pairs, letters)
    if found.flipped:
        # Flipped pairs are named apart: the critic has changed its mind about the same two replies.
        say(f"{'flipped':<8} {len(found.flipped)}: the same two replies, the other way round")
        _say_ids([after for _, after in found.flipped], letters)


def _say_ids(pairs: Sequence[PreferencePair], letters: Mapping[str, str]) -> None:
    if pairs:
        more = f" and {len(pairs) - _SHOWN} more" if len(pairs) > _SHOWN else ""
        say(f"         {', '.join(letters[pair.id] for pair in pairs[:_SHOWN])}{more}")


def _build_changes_data(changes: ExplainedDifference) -> dict[str, Any]:
    found = changes.difference
    return {
        "against": changes.against,
        "added": [pair.id for pair in found.added],
        "dropped": [pair.id for pair in found.dropped],
        "flipped": [[before.id, after.id] for before, after in found.flipped],
        "kept": len(found.kept),
        "added_causes": dict(changes.added),
        "dropped_causes": dict(changes.dropped),
    }


def say_whole(run: Path, stored: PairSet, told: TrajectoryPair) -> None:
    """Print which episodes a pair compares, and how each of them ended."""
    say(f"pair     {told.pair.id}")
    say(add_mark(f"of       {stored.name!r} of {run}, source {told.pair.source}", run))
    for word, one, replies in (
        # Both episodes in the same words, so that they can be compared line by line.
        ("better", told.chosen, told.pair.chosen),
        ("worse", told.rejected, told.pair.rejected),
    ):
        ended = "solved" if one.success else "not solved"
        why = "" if one.outcome is None or not one.outcome.reason else f": {clean_line(one.outcome.reason)}"
        say(f"{word:<8} {one.id}, {ended} after {len(one.steps)} steps with {len(replies)} replies{why}")
        say(f"         goal: {clean_line(one.task.goal)}")
        say(f"         look: collab runs show {shlex.quote(str(run))} --episode {shlex.quote(one.id)}")
    say("context  it rests on how the episodes ended, and no critic was asked; all replies of a side are trained")


def build_whole_data(run: Path, stored: PairSet, told: TrajectoryPair) -> dict[str, Any]:
    """Return a pair of whole trajectories as JSON data."""
    sides = {
        name: {"episode": one.id, "seed": one.task.seed, "steps": len(one.steps), "outcome": to_data(one.outcome)}
        for name, one in (("chosen", told.chosen), ("rejected", told.rejected))
    }
    return {"run": str(run), "note": mark_of(run), "name": stored.name, "pair": to_data(told.pair), **sides}
