"""Replies of adversaries beside a run: each occasion is asked about once, even after a kill.

    RUN/proposals/events/*.jsonl    one line per answered occasion
    RUN/proposals/lock              held by the one process that writes

    with ProposalMemory(run) as memory:
        adversary = RememberingAdversary(LanguageAdversary(model=model, texts=texts), memory, options=options)

An occasion's key holds all that decides the answer: adversary, options, prompt, right action and seed. It holds the
rewarded actions where the adversary reads them; another threshold or critic changes those. Lines are only ever
appended, so that pairs that are made again rest on the very same replies.
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
from collab.preferences.adversary import Adversary, AdversaryProposal, Occasion, is_given_rewards, label_of
from collab.rewards.structured_replies import hash_prompt
from collab.store import log
from collab.store.manifest import find_manifest
from collab.store.run_dir import RunLock
from collab.types import Usage
from collab.utils.files import hash_text, report_write_errors
from collab.utils.redact import hide_values, list_secrets

FOLDER = "proposals"
_NEXT_MOVE = "make the pairs again: what was answered is not asked again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A line: an occasion and the adversary's answer."""

    occasion: str
    """SHA-256 of all that decided the answer."""
    proposal: AdversaryProposal | None
    """None where the adversary found nothing worse."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnansweredProposal:
    """A line: the unanswered calls of one process."""

    lost: int
    """Calls without a complete answer; their cost is unknown."""


_ANSWERED: TypeAdapter[Answered] = TypeAdapter(Answered)
_UNANSWERED: TypeAdapter[UnansweredProposal] = TypeAdapter(UnansweredProposal)


class ProposalMemory:
    """The only writer of a run's proposals, from construction to `close`.

    Args:
        run: directory of a run, finished or not; nothing in it but `proposals/` is touched.

    Raises:
        UsageError: another process is writing.
        RunFormatError: there is no run, or a complete line is damaged.
        StoreFailure: from every method: the disk is full or rights are missing; half-written lines do not count.
    """

    def __init__(self, run: Path) -> None:
        # Replies beside a missing run would never be found.
        find_manifest(run)
        self.directory = run / FOLDER
        self._secrets = list_secrets()
        self._open = True
        with report_write_errors(self.directory, _NEXT_MOVE):
            (self.directory / log.FOLDER).mkdir(parents=True, exist_ok=True)
            self._lock = RunLock(self.directory, "wait for it or stop it")
        # From here on the lock is held; a failure below releases it.
        try:
            self._known, self.lost = _read(self.directory)
            self._unanswered: Callable[[], int] = lambda: 0
            self._log = log.LazyAppender(self.directory)
        except BaseException:
            self._lock.release()
            raise

    def recall(self, occasion: str) -> Answered | None:
        """Return the stored answer to an occasion, or None."""
        return self._known.get(occasion)

    def keep(self, answered: Answered) -> Answered:
        """Append an answer to the disk, and return it as it will be recalled: with secrets of this machine hidden."""
        line = self._append(_ANSWERED.dump_python(answered, mode="json"))
        kept = self._known[answered.occasion] = _ANSWERED.validate_python(json.loads(line))
        return kept

    def watch(self, unanswered: Callable[[], int]) -> None:
        """Set the function that returns the number of unanswered calls; `close` appends that number."""
        self._unanswered = unanswered

    def _append(self, content: Any) -> bytes:
        line = json.dumps(hide_values(content, self._secrets), ensure_ascii=True, separators=(",", ":")).encode()
        with report_write_errors(self.directory, _NEXT_MOVE):
            self._log.append(line + b"\n")
        return line

    def close(self) -> None:
        """Sync everything to the disk and release the lock. May be called twice."""
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
    """Asks another adversary about each occasion once.

    Args:
        options: all that decides its answers beside the occasion (model, temperature, weights); JSON values.
    """

    def __init__(self, adversary: Adversary, memory: ProposalMemory, *, options: Mapping[str, Any]) -> None:
        self._adversary, self._memory = adversary, memory
        self._options = json.dumps(options, sort_keys=True)
        begun = count_lost_calls(adversary)
        memory.watch(lambda: count_lost_calls(adversary) - begun)
        self.before = Usage(lost=memory.lost)
        """Lost calls of earlier processes."""
        self.recalled: list[Usage] = [self.before] if memory.lost else []
        """Original cost of each recalled answer, and the lost calls of earlier processes."""

    @property
    def name(self) -> str:
        """The other adversary's."""
        return self._adversary.name

    @property
    def version(self) -> str:
        """The other adversary's."""
        return self._adversary.version

    @property
    def lost(self) -> int:
        """Calls without a complete answer; their cost is unknown."""
        return count_lost_calls(self._adversary)

    async def propose(self, occasion: Occasion) -> AdversaryProposal | None:
        """Return the stored answer at no cost, or ask the other adversary and store its answer.

        Raises:
            CannotPropose, ModelFailure: from the other adversary; nothing is stored then.
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
        read = occasion.rewarded if is_given_rewards(self._adversary) else ()
        rewarded = sorted(space.format(action) for action in read)
        asked = [label_of(self._adversary), self._options, hash_prompt(occasion.prompt), occasion.case.digest]
        return hash_text(json.dumps([*asked, space.format(occasion.right), rewarded, occasion.seed]))


def _read(directory: Path) -> tuple[dict[str, Answered], int]:
    """Return the answers by occasion, and the number of calls that were never answered."""
    known: dict[str, Answered] = {}
    lost = 0
    for segment in log.list_segments(directory):
        for line in log.scan(directory, segment):
            try:
                content = json.loads(line.content)
                # Calls without an answer are logged, too: they may have cost something.
                if "lost" in content:
                    lost += _UNANSWERED.validate_python(content).lost
                    continue
                answered = _ANSWERED.validate_python(content)
            except (ValueError, TypeError) as error:
                reason = str(error).splitlines()[0]
                # A damaged line is an error and not skipped: its answer was paid for.
                raise RunFormatError(
                    f"{directory}/{log.FOLDER}/{segment}:{line.number}: is spoilt ({reason}); remove that line, "
                    "and its occasion is asked about again"
                ) from None
            known[answered.occasion] = answered
    return known, lost
