"""Stored pairs beside a run, under a name, with the recipe by which they were made.

    RUN/pairs/NAME/pairs.jsonl     one preference pair per line, in the order that training uses
    RUN/pairs/NAME/pairs.json      critic, recipe, adversary, counts, and the SHA-256 of the pairs
    RUN/pairs/lock                 held for the instant in which a set is put in its place

    write_pairs(run, "epoch-0", made, recipe=recipe, labels=labels, adversary="sampler-1")
    read_pairs(run, "epoch-0").pairs

A set appears whole or not at all, and never changes. Writing the same pairs of the same origin again leaves it as it
is, so that work after a kill may simply repeat. Other pairs need another name.

Short names of pairs are unique beginnings of their IDs:

    short = shorten_ids(pair.id for pair in stored.pairs)
    stored, pair = find_pair(run, "8a3f21c0")
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from collab.errors import ConfigError, RunFormatError, UnknownName, UsageError
from collab.preferences.pairs import PairRecipe, RunPairs
from collab.rewards.labels import NAME, LabelHead, LabelSet, check_called
from collab.store.manifest import collect_versions, find_manifest, format_now
from collab.store.rewards import PreferencePair
from collab.store.run_dir import RunLock, read_versioned
from collab.types import Usage
from collab.utils.files import read_plain, report_write_errors, sync_directory, write_atomic
from collab.utils.redact import hide_values

FOLDER = "pairs"
HEAD = "pairs.json"
FILE = "pairs.jsonl"
FORMAT = 1
"""Version of the folder that this code reads and writes."""

_RESERVED = "lock"
_NEXT_MOVE = "make the pairs again: what was judged and answered is not asked again"


@dataclass(frozen=True, slots=True, kw_only=True)
class PairHead:
    """`pairs.json`: origin and counts of a set of pairs."""

    recipe: PairRecipe
    labels: str | None
    """Name of the label set that decided; None for pairs by the outcome alone."""
    critic: str | None
    """The critic, as in `LabelHead.critic`."""
    critic_digest: str | None
    """`hash_critic` of that label set's head: equal for equal critic, options and seed."""
    adversary: str | None
    """Name and version (`collab.preferences.adversary.label_of`); None when none was needed."""
    adversary_options: Mapping[str, Any]
    """How the adversary was made; JSON values, no secrets."""
    pairs: int
    """Lines of `pairs.jsonl`."""
    sha256: str
    """Hash of `pairs.jsonl`, hexadecimal."""
    counts: Mapping[str, int]
    """`CountedPairs.counts`: pairs by source, and why a rewarded cell has none or a negative was dropped."""
    off_context: int
    """Pairs of two cells that heard different messages."""
    refused: Mapping[str, int]
    """Dropped replies of the adversary, by cause."""
    failed: Mapping[str, int]
    """Steps about which it could not be asked, by class of error."""
    unjudged: int
    """Steps without a judgement."""
    untried: int
    """Negatives that could not be tried, as their state cannot be rebuilt."""
    spent: Usage = Usage()
    """Cost of the adversary in the process that wrote this; recalled answers cost nothing. Calls of unknown cost are
    those of all processes. For the pairs of a training, it is the cost of all its processes."""
    versions: Mapping[str, str] = field(default_factory=collect_versions)
    created: str = field(default_factory=format_now)
    """UTC, ISO 8601."""
    format: int = FORMAT

    @property
    def origin(self) -> tuple[Any, ...]:
        """All that decides the pairs, beside the run: two sets of one origin were made the same way."""
        return self.recipe, self.labels, self.critic_digest, self.adversary, dict(self.adversary_options)

    def is_same_as(self, other: PairHead) -> bool:
        """Return whether both describe the same pairs of the same origin; time and cost do not count."""
        return (self.origin, self.sha256) == (other.origin, other.sha256)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairSet:
    """A set of pairs that was read back."""

    name: str
    head: PairHead
    pairs: tuple[PreferencePair, ...]
    """By epoch, task, episode, step, agent and round."""


_PAIR: TypeAdapter[PreferencePair] = TypeAdapter(PreferencePair)
_HEAD: TypeAdapter[PairHead] = TypeAdapter(PairHead)


def hash_critic(head: LabelHead) -> str:
    """Return the SHA-256 of all that decides a label set's scores, beside the run: critic, options and seed."""
    said = json.dumps([head.critic, head.options, head.seed], sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(said.encode("ascii")).hexdigest()


def list_pair_sets(run: Path) -> list[str]:
    """List the names of a run's sets of pairs, oldest first; sets with an unreadable time come before all others."""
    folder = run / FOLDER
    names = [path.parent.name for path in folder.glob(f"*/{HEAD}") if NAME.fullmatch(path.parent.name)]
    return sorted(names, key=lambda name: (_read_created(run, name), name))


def find_last_name(run: Path) -> str | None:
    """Return the name of the set that was stored last, or None.

    Raises:
        RunFormatError: the time of a set cannot be read; it may be the last.
    """
    names = list_pair_sets(run)
    if not names:
        return None
    read_pair_head(run, names[0])  # an unreadable one stands first
    return names[-1]


def _read_created(run: Path, name: str) -> str:
    """Return when a set was made, or "" where that cannot be read."""
    try:
        return read_pair_head(run, name).created
    except RunFormatError:
        return ""


def read_pair_head(run: Path, name: str) -> PairHead:
    """Read the head of a set of pairs.

    Raises:
        UnknownName: the run has no pairs of that name.
        RunFormatError: they cannot be read by this version.
    """
    path = _get_pairs_directory(run, name) / HEAD
    if not path.exists():
        known = sorted(path.parent.name for path in (run / FOLDER).glob(f"*/{HEAD}"))
        raise UnknownName.of(f"pairs of {run}", name, known, f"make them with: collab pairs rebuild {run}")
    try:
        return read_versioned(path, _HEAD, readable=FORMAT)
    except ConfigError as error:
        raise RunFormatError(f"{path}: recipe: {error}; {_format_hint(path)}") from None
    except RunFormatError as error:
        raise RunFormatError(f"{error}; {_format_hint(path)}") from None


def read_pairs(run: Path, name: str) -> PairSet:
    """Read a set of pairs, exactly as it was written.

    Raises:
        UnknownName: the run has no pairs of that name.
        RunFormatError: they cannot be read by this version, or are not what was written.
    """
    head, path = read_pair_head(run, name), _get_pairs_directory(run, name) / FILE
    try:
        content = read_plain(path, within=run)
    except OSError as error:
        raise RunFormatError(f"{path}: cannot be read: {error.strerror or error}; {_format_hint(path)}") from None
    pairs = tuple(_read_lines(path, content))
    if len(pairs) != head.pairs or hashlib.sha256(content).hexdigest() != head.sha256:
        raise RunFormatError(
            f"{path}: holds {len(pairs)} pairs that are not the {head.pairs} of {HEAD}; {_format_hint(path)}"
        )
    return PairSet(name=name, head=head, pairs=pairs)


def write_pairs(
    run: Path,
    name: str,
    made: RunPairs,
    *,
    recipe: PairRecipe,
    labels: LabelSet | None,
    adversary: str | None,
    options: Mapping[str, Any] | None = None,
) -> Path:
    """Write pairs beside their run, whole or not at all.

    Args:
        run: directory of a run, finished or not; nothing in it but `pairs/` is touched.
        labels: the judgements that decided; None for pairs by the outcome alone.
        adversary: name and version; None when none was needed.
        options: how the adversary was made; JSON values.

    Returns:
        The folder; unchanged where it holds the same pairs of the same origin.

    Raises:
        UsageError: the name is not allowed, or holds other pairs already.
        RunFormatError: there is no run, or the set of that name cannot be read.
        StoreFailure: the disk is full or rights are missing; half-written files do not count.
    """
    find_manifest(run)
    directory = _get_pairs_directory(run, name)
    # The content is hashed before it is written, so that head and pairs cannot be of two makings.
    content = b"".join(map(_write_line, made.pairs))
    head = _read_head(made, hashlib.sha256(content).hexdigest(), recipe, labels, adversary, options or {})
    # Secrets are hidden before the comparison below, as they are in what is stored.
    text = json.dumps(hide_values(_HEAD.dump_python(head, mode="json")), indent=2, ensure_ascii=True).encode()
    head = _HEAD.validate_json(text)
    with report_write_errors(directory, _NEXT_MOVE):
        directory.parent.mkdir(exist_ok=True)
        with RunLock(directory.parent, "wait for it or stop it, then: make the pairs again"):
            if not (directory / HEAD).exists():
                _place(directory, {FILE: content, HEAD: text + b"\n"})
            elif not read_pair_head(run, name).is_same_as(head):
                # The same pairs again are no error: a repeated command finds its work done.
                raise UsageError(f"{directory}: holds other pairs, or pairs made in another way; choose another name")
    return directory


def check_name(name: str) -> None:
    """Raise UsageError for a name that pairs cannot have."""
    check_called("pairs", name)
    if name == _RESERVED:
        raise UsageError(f"pairs called {name!r}: a file of that name lies beside pairs; choose another")


# ------------------------------------------------------------------------------------------------------ inside


def _get_pairs_directory(run: Path, name: str) -> Path:
    check_name(name)
    return run / FOLDER / name


def _read_head(
    made: RunPairs,
    sha256: str,
    recipe: PairRecipe,
    labels: LabelSet | None,
    adversary: str | None,
    options: Mapping[str, Any],
) -> PairHead:
    return PairHead(
        recipe=recipe,
        labels=None if labels is None else labels.name,
        critic=None if labels is None else labels.head.critic,
        critic_digest=None if labels is None else hash_critic(labels.head),
        adversary=adversary,
        adversary_options=options,
        pairs=len(made.pairs),
        sha256=sha256,
        counts=made.counts,
        off_context=made.off_context,
        refused=made.refused,
        failed=made.failed,
        unjudged=made.unjudged,
        untried=made.untried,
        spent=made.spent,
    )


def _write_line(pair: PreferencePair) -> bytes:
    content = hide_values(_PAIR.dump_python(pair, mode="json"))
    return json.dumps(content, ensure_ascii=True, separators=(",", ":")).encode("ascii") + b"\n"


def _read_lines(path: Path, content: bytes) -> Iterator[PreferencePair]:
    for number, line in enumerate(content.splitlines(), start=1):
        try:
            yield _PAIR.validate_python(json.loads(line))
        except ValueError as error:
            reason = str(error.errors()[0]["msg"] if isinstance(error, ValidationError) else error)
            raise RunFormatError(f"{path}:{number}: is spoilt ({reason}); {_format_hint(path)}") from None


def _format_hint(path: Path) -> str:
    """Format what to do about an unreadable file of a set of pairs."""
    folder = path.parent
    return f"put {folder} somewhere else and make its pairs again: collab pairs rebuild {folder.parent.parent}"


def _place(directory: Path, files: Mapping[str, bytes]) -> None:
    """Create a folder with these files in one rename, and remove what a killed process left of an earlier try."""
    # Left by a kill between making and renaming; nothing refers to it.
    for left in directory.parent.glob(f".{directory.name}.*"):
        shutil.rmtree(left)
    beside = directory.with_name(f".{directory.name}.{secrets.token_hex(4)}")
    try:
        beside.mkdir()
        for name, content in files.items():
            write_atomic(beside / name, content)
        sync_directory(beside)
        # The rename makes it whole at once; the sync before makes it last.
        beside.rename(directory)
        sync_directory(directory.parent)
    except OSError:
        shutil.rmtree(beside, ignore_errors=True)
        raise


LETTERS = 8
"""The shortest length of a short ID."""


def shorten_ids(ids: Iterable[str]) -> dict[str, str]:
    """Return ID → its shortest unique beginning of at least `LETTERS` letters; all have the same length."""
    distinct = set(ids)
    letters = next(count for count in itertools.count(LETTERS) if len({id[:count] for id in distinct}) == len(distinct))
    return {id: id[:letters] for id in distinct}


def read_short_ids(run: Path) -> dict[str, str]:
    """Return ID → short ID, over all pairs of a run; sets that cannot be read are left out."""
    ids: list[str] = []
    for name in list_pair_sets(run):
        with contextlib.suppress(RunFormatError):
            ids += [pair.id for pair in read_pairs(run, name).pairs]
    return shorten_ids(ids)


def find_pair(run: Path, beginning: str, name: str | None = None) -> tuple[PairSet, PreferencePair]:
    """Return the pair whose ID begins so, with its set.

    Args:
        name: the set to search; None searches all, the last stored set first. Unreadable sets are skipped as long as
            another one has the pair.

    Raises:
        UnknownName: no pair begins so, or there is no such set.
        UsageError: several pairs begin so.
        RunFormatError: a set that may hold the pair cannot be read.
    """
    # The last set first: of equal pairs in several sets, the newest is shown.
    names = list_pair_sets(run)[::-1] if name is None else [name]
    found: dict[str, tuple[PairSet, PreferencePair]] = {}
    spoilt: RunFormatError | None = None
    for each in names:
        # One damaged set must not hide a pair of another.
        try:
            stored = read_pairs(run, each)
        except RunFormatError as error:
            spoilt = error
            continue
        for pair in stored.pairs:
            # An empty beginning would match every pair.
            if beginning and pair.id.startswith(beginning.lower()):
                found.setdefault(pair.id, (stored, pair))
    if spoilt is not None and not found:
        raise spoilt
    if not found:
        where = f"among {', '.join(names)}" if names else f"for there are none: collab pairs rebuild {run}"
        raise UnknownName(f"{run}: no pair {beginning[:64]!r} {where}; see them with: collab pairs list {run}")
    # IDs are hashes: a few more letters always decide.
    if len(found) > 1:
        shown = ", ".join(list(shorten_ids(found).values())[:4])
        raise UsageError(
            f"{run}: {len(found)} pairs begin with {beginning!r} ({shown}{' …' if len(found) > 4 else ''}); "
            "give more letters"
        )
    (only,) = found.values()
    return only
