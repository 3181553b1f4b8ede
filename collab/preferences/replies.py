"""What adversaries said, beside a run: no occasion is asked about twice, whoever was killed in between.

    RUN/proposals/events/*.jsonl    one line per answered occasion
    RUN/proposals/lock              held by the one process that writes

    with ProposalMemory(run) as memory:
        adversary = RememberingAdversary(LanguageAdversary(model=model, texts=texts), memory, options=options)

An occasion is known again by all that decides the answer: adversary, options, prompt, right action, seed, and where the
adversary reads them the rewarded actions, which another threshold or critic changes. Lines are only ever appended, so
that pairs that are made again, for another critic or after a kill, rest on the very same replies.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from pydantic import TypeAdapter

from collab.errors import RunFormatError
from collab.models.base import count_lost_calls
from collab.preferences.adversary import Adversary, AdversaryProposal, Occasion, label_of, reads_rewarded
from collab.rewards.query import hash_prompt, hash_text
from collab.store import log
from collab.store.manifest import find_manifest
from collab.store.run_dir import RunLock
from collab.types import Usage
from collab.utils.files import report_write_errors
from collab.utils.redact import hide_values, list_secrets

FOLDER = "proposals"
_NEXT_MOVE = "make the pairs again: what was answered is not asked again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A line: an occasion, and what was said to it."""

    occasion: str
    """SHA-256 of all that decided the answer."""
    proposal: AdversaryProposal | None
    """None where nothing worse was known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnansweredProposal:
    """A line: what one process asked in vain."""

    lost: int
    """Calls that were sent and never answered whole: what they cost is not known."""


_ANSWERED: TypeAdapter[Answered] = TypeAdapter(Answered)
_UNANSWERED: TypeAdapter[UnansweredProposal] = TypeAdapter(UnansweredProposal)


class ProposalMemory:
    """The only writer of a run's proposals, from construction to `close`.

    Args:
        run: directory of a run, finished or not; nothing in it but `proposals/` is touched.

    Raises:
        UsageError: somebody else is writing.
        RunFormatError: there is no run, or a whole line is not what was written.
        StoreFailure: from every method: the disk is full or the rights are missing; nothing half-written counts.
    """

    def __init__(self, run: Path) -> None:
        # The run must exist: replies beside nothing would never be found.
        find_manifest(run)
        self.directory = run / FOLDER
        self._secrets = list_secrets()
        self._open = True
        with report_write_errors(self.directory, _NEXT_MOVE):
            (self.directory / log.FOLDER).mkdir(parents=True, exist_ok=True)
            self._lock = RunLock(self.directory, "wait for it or stop it")
        # From here on the lock is held; what fails below gives it back.
        try:
            self._known, self.lost = _read(self.directory)
            self._unanswered: Callable[[], int] = lambda: 0
            self._log = log.LazyAppender(self.directory)
        except BaseException:
            self._lock.release()
            raise

    def recall(self, occasion: str) -> Answered | None:
        """What was answered to an occasion; None when nobody was asked about it yet."""
        return self._known.get(occasion)

    def keep(self, answered: Answered) -> Answered:
        """Append an answer: when this returns, no death of this process loses it.

        Returns:
            What will be recalled: the same, with secrets of this machine hidden.
        """
        line = self._append(_ANSWERED.dump_python(answered, mode="json"))
        kept = self._known[answered.occasion] = _ANSWERED.validate_python(json.loads(line))
        return kept

    def watch(self, unanswered: Callable[[], int]) -> None:
        """Append in the end how many calls were sent and never answered whole.

        Args:
            unanswered: tells their number until then.
        """
        self._unanswered = unanswered

    def _append(self, content: Any) -> bytes:
        line = json.dumps(hide_values(content, self._secrets), ensure_ascii=True, separators=(",", ":")).encode()
        with report_write_errors(self.directory, _NEXT_MOVE):
            self._log.append(line + b"\n")
        return line

    def close(self) -> None:
        """Bring everything to the disk and let others write. May be called twice."""
        if self._open:
            self._open = False
            try:
                if lost := self._unanswered():
                    self._append(_UNANSWERED.dump_python(UnansweredProposal(lost=lost), mode="json"))
                with report_write_errors(self.directory, _NEXT_MOVE):
                    self._log.close()
            finally:
                self._lock.release()

    def __enter__(self) -> ProposalMemory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class RememberingAdversary:
    """Another adversary that is asked about each occasion once.

    Args:
        options: as that one was made: all that decides its answers beside the occasion (model, temperature, weights);
            JSON values.
    """

    def __init__(self, adversary: Adversary, memory: ProposalMemory, *, options: Mapping[str, Any]) -> None:
        self._adversary, self._memory = adversary, memory
        self._options = json.dumps(options, sort_keys=True)
        begun = count_lost_calls(adversary)
        memory.watch(lambda: count_lost_calls(adversary) - begun)
        self.before = Usage(lost=memory.lost)
        """What earlier processes asked in vain."""
        self.recalled: list[Usage] = [self.before] if memory.lost else []
        """What the answers cost that were recalled, when they were given; and what was asked in vain."""

    @property
    def name(self) -> str:
        """Of the one that is asked."""
        return self._adversary.name

    @property
    def version(self) -> str:
        """Of the one that is asked."""
        return self._adversary.version

    @property
    def lost(self) -> int:
        """Calls that were sent and never answered whole: what they cost is not known."""
        return count_lost_calls(self._adversary)

    async def propose(self, occasion: Occasion) -> AdversaryProposal | None:
        """What was said before, which costs nothing any more, or what is said now.

        Raises:
            Refusal, ModelFailure: as the other raises them; nothing is kept then.
        """
        key = self._build_key(occasion)
        known = self._memory.recall(key)
        if known is not None:
            return None if known.proposal is None else self._replay_proposal(known.proposal)
        proposal = await self._adversary.propose(occasion)
        return self._memory.keep(Answered(occasion=key, proposal=proposal)).proposal

    def _replay_proposal(self, said: AdversaryProposal) -> AdversaryProposal:
        self.recalled.append(said.spent)
        return replace(said, spent=Usage())

    def _build_key(self, occasion: Occasion) -> str:
        space = occasion.case.space
        read = occasion.rewarded if reads_rewarded(self._adversary) else ()
        rewarded = sorted(space.format(action) for action in read)
        asked = [label_of(self._adversary), self._options, hash_prompt(occasion.prompt), occasion.case.digest]
        return hash_text(json.dumps([*asked, space.format(occasion.right), rewarded, occasion.seed]))


def _read(directory: Path) -> tuple[dict[str, Answered], int]:
    """What was answered, by occasion, and how many calls never were."""
    known: dict[str, Answered] = {}
    lost = 0
    for segment in log.list_segments(directory):
        for line in log.scan(directory, segment):
            try:
                content = json.loads(line.content)
                # Calls without an answer stand in the log, too: they may have cost something.
                if "lost" in content:
                    lost += _UNANSWERED.validate_python(content).lost
                    continue
                answered = _ANSWERED.validate_python(content)
            except (ValueError, TypeError) as error:
                reason = str(error).splitlines()[0]
                # A spoilt line is an error and not skipped: what it held was paid for.
                raise RunFormatError(
                    f"{directory}/{log.FOLDER}/{segment}:{line.number}: is spoilt ({reason}); remove that line, "
                    "and what it held is asked again"
                ) from None
            known[answered.occasion] = answered
    return known, lost
