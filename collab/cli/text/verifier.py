"""Text and JSON of `collab verifier`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from collab.cli.output import describe_lost, print_table, say, to_data
from collab.utils.text import format_amount, shorten_number

if TYPE_CHECKING:
    from collab.rewards.verifiers.agreement import Agreement, Share
    from collab.rewards.verifiers.gate import AgreementRecord
    from collab.rewards.verifiers.measure import AgreementResult
    from collab.types import Usage


def build_agreement_data(result: AgreementResult) -> dict[str, Any]:
    """Return a comparison, also one that stopped, as JSON data."""
    progress = result.progress
    return {
        "out": str(result.out),
        "stopped": result.stopped,
        "verdicts": {"planned": progress.planned, "done": progress.known + progress.judged},
        "left_out": result.left_out,
        "spent": to_data(progress.spent),
        "agreement": to_data(result.record),
    }


def show_agreement(result: AgreementResult, record: AgreementRecord, numbers: Agreement) -> None:
    """Print how far a verifier agrees."""
    from collab.rewards.verifiers.gate import FILE, explain_refusal

    counted = f"{format_amount(numbers.episodes, 'episode')}, {format_amount(len(numbers.by_task), 'task')}"
    say(f"{record.verifier} ({record.label}) against {record.against} on {record.environment}: {counted}\n")
    kappa = None if numbers.kappa is None else f"{numbers.kappa:.3f}"
    # Each number with its meaning, as few readers know them all.
    print_table(
        ["number", "value", "what it is"],
        [
            ("agreement", str(numbers.agreement), "episodes on which both say the same"),
            ("kappa", kappa, "Cohen's: agreement beyond chance; 0 is chance, 1 is always"),
            ("false positives", str(numbers.positives), "of the failures, those that it calls successes"),
            ("false negatives", str(numbers.negatives), "of the successes, those that it calls failures"),
        ],
    )
    found = numbers.confusion
    say()
    print_table(
        ["", f"{record.against}: success", f"{record.against}: failure"],
        [
            (f"{record.label}: success", found.true_positives, found.false_positives),
            (f"{record.label}: failure", found.false_negatives, found.true_negatives),
        ],
    )
    say()
    print_table(
        ["task", "agreement", "false positives", "false negatives"],
        [
            (
                one.task,
                _count(one.agreement),
                _count(one.confusion.wrong_successes),
                _count(one.confusion.wrong_failures),
            )
            for one in numbers.by_task
        ],
    )
    say()
    for who, missing in (("missing", numbers.missing), ("", numbers.reference_missing)):
        if missing or who:
            causes = ", ".join(f"{count} {cause}" for cause, count in missing.items())
            of = "" if who else f" of {record.against}"
            say(f"{who:<8} {sum(missing.values())} of {numbers.episodes}{of}{f': {causes}' if causes else ''}")
    if result.left_out:
        say(f"left out {format_amount(result.left_out, 'episode')} without an outcome")
    say(f"spent    {_format_spent(record.spent)}")
    if record.spent.lost:
        say(f"         {describe_lost(record.spent.lost)}")
    refused = explain_refusal(record)
    say(f"gate     {'its verdicts may be learned from' if refused is None else f'not to be learned from: {refused}'}")
    say(f"written  {result.out / FILE}")


def _count(share: Share) -> str:
    return f"{share.count}/{share.total}" if share.total else "-"


def _format_spent(spent: Usage) -> str:
    if not spent.calls:
        return "nothing: no model is asked"
    tokens = f"{format_amount(spent.calls, 'call')}, {shorten_number(spent.tokens)} tokens"
    return tokens + (f", {spent.cost_usd:.4f} USD" if spent.cost_usd else "")
