"""An adversary's questions about a run's rewarded replies, with plausible mistakes as answers, to fine-tune one.

    collab pairs rebuild runs/first --source adversary      # the sampler's mistakes, without any model
    rows, left_out = await write_rows(Path("runs/first"), Path("data/adversary"), texts)
    # collab finetune --stage sft --base DIR --data data/adversary

The questions are those that `LanguageAdversary` would ask about the same replies: the cell's own input, then the role.
The answers are the rejected replies that were synthesised for the run's pairs. A model that is trained on them errs as
the adversary did that wrote them, and can do so behind any server.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from collab.data.example import Example, Provenance
from collab.data.parquet import ExampleWriter
from collab.errors import UsageError
from collab.preferences.adversary import AdversaryPrompt, Occasion
from collab.preferences.rebuild import build_stored_suite
from collab.preferences.store import PairSet, find_last_name, read_pairs
from collab.prompts.render import rebuild
from collab.rewards.base import CriticInput, build_inputs
from collab.store.reader import RunReader
from collab.store.rewards import PreferencePair

FILE = "demonstration.parquet"


async def write_rows(
    run: Path, out: Path, texts: Mapping[str, str], *, name: str | None = None
) -> tuple[list[Example], int]:
    """Write a row for each pair whose rejected reply was synthesised into a new directory; no model is asked.

    Args:
        out: is made, with `FILE` in it.
        texts: the role, from `read_adversary_prompts`.
        name: of the pairs; None for the last stored ones.

    Returns:
        The rows, and how many pairs were left out because their episode was played again since.

    Raises:
        UsageError: the directory is there; the run has no pairs, or none of them gives a row.
        ConfigError: the role does not fit.
        RunFormatError: the run or its pairs cannot be read.
        StoreFailure: the file cannot be written.
    """
    if out.exists():
        raise UsageError(f"--out {out}: is there already; name another directory, or remove it")
    last = name or find_last_name(run)
    if last is None:
        raise UsageError(f"{run}: has no pairs; make some: collab pairs rebuild {run} --source adversary")
    stored, role = read_pairs(run, last), AdversaryPrompt.read(texts)
    async with build_stored_suite(run) as suite:
        with RunReader(run) as reader:
            cases = (case for episode in reader.iterate_trajectories() for case in build_inputs(episode, suite.space))
            rows = list(_build_rows(stored, cases, reader, role))
    if not rows:
        raise UsageError(
            f"{run}: none of the {len(stored.pairs)} pairs {last!r} has a synthesised reply to what was played last; "
            f"make such pairs: collab pairs rebuild {run} --source adversary"
        )
    with ExampleWriter(out / FILE) as file:
        for row in rows:
            file.add(row)
    return rows, sum(pair.synthetic is not None for pair in stored.pairs) - len(rows)


def _build_rows(
    stored: PairSet, cases: Iterator[CriticInput], reader: RunReader, role: AdversaryPrompt
) -> Iterator[Example]:
    """Yield the rows in the order of the run's steps."""
    asked = defaultdict[tuple[str, int], list[PreferencePair]](list)
    for pair in stored.pairs:
        if pair.synthetic is not None:
            asked[pair.place.trajectory, pair.place.step].append(pair)
    for case in cases:
        for pair in asked[case.trajectory, case.step]:
            cell = case.matrix[pair.place.cell]
            if cell.prompt.hash != pair.prompt:
                continue  # the episode was played again since
            read = rebuild(reader.read_prefix(cell.prompt.prefix), cell.prompt)
            occasion = Occasion(case=case, cell=cell, prompt=read, rewarded=frozenset(), seed=0)
            screen, maker = case.observation.digest, pair.adversary or ""
            origin = Provenance.of_step(case, step=case.step, screen=screen, teacher=maker)
            yield Example(
                level="demonstration",
                kind="mistake",
                prompt=role.build_prompt(occasion),
                reply=pair.synthetic or "",
                provenance=origin,
            )
