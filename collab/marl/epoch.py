"""One epoch: rewire, play, judge, pair, train, measure (CollabUIAgents, section 3.2).

Each part reads what is there already, goes on with what was begun, or makes what is missing. `epoch.json` is written
last; an epoch that has it is over and never looked into again.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from collab.comparison import TOLERATED_FAILURES, is_spoilt
from collab.config import RunConfig
from collab.credit.critic import spent_on
from collab.credit.labels import labellings, read_labels
from collab.errors import RunError
from collab.evaluation import Report
from collab.learn.folder import write_json
from collab.marl.ahead import judging_ahead
from collab.marl.heat import heat_of
from collab.marl.judge import NAME, compared, judged
from collab.marl.layout import EpochFolder
from collab.marl.loop_state import Loop
from collab.marl.play import (
    evaluate,
    measured,
    paid_for,
    rewired,
    roll_out,
    rollout_config,
    rollout_report,
    trajectories_of,
)
from collab.marl.policy import Policy, chat_of, first_policy, template_of
from collab.marl.record import Parts, of_judging, of_pairs, of_play, record_of, record_of_start
from collab.marl.row_store import store, stored
from collab.marl.rows import Evidence, rows_of
from collab.marl.scribe import Record as Told
from collab.marl.scribe import Scribe
from collab.marl.summary import Record, RowCounts, Trained, read_record
from collab.marl.train import clear_checkpoints, is_begun, learn
from collab.models.chat import ChatTokenizer
from collab.report import runs_in
from collab.resolve import build_suite
from collab.store.cost import total
from collab.store.files import writing
from collab.store.manifest import FILE
from collab.store.run import RunStore
from collab.types import Trajectory
from collab.wording import amount


async def run_epoch(loop: Loop, number: int, policy: Policy) -> Record:
    """Go through an epoch, from wherever it stands.

    Args:
        number: from 1.
        policy: that the epoch before left.

    Raises:
        Halted: it stopped before its end, and can be gone on with.
        UsageError, RunError: as its parts; what is there stays.
    """
    folder = loop.folder.epoch(number)
    if folder.record.exists():
        return _known(loop, folder)
    _count_earlier(loop, folder)
    dag = rewired(loop.config, number, folder, loop.folder.resume)
    method, threshold = loop.config.method, loop.config.method.pairs.threshold
    heat = heat_of(method, policy, first_policy(loop.config.run, method))
    run = await rollout_config(loop.config, number, policy, dag, heat)
    played, rollout = await _play(loop, run, folder)
    loop.progress.tell(heat=heat, **of_play(run, played, rollout))
    labels = await judged(loop, run, folder, played)
    loop.progress.tell(**of_judging(labels, run, threshold))
    pairs = await compared(loop, run, folder.rollout, played, labels)
    loop.progress.tell(**of_pairs(pairs))
    rows = await _rows(loop, number, Evidence(run=run, played=played, labels=labels, pairs=pairs), policy)
    loop.progress.tell(rows=rows)
    with loop.timed("training", whole=not is_begun(folder, loop.config.groups)):
        trained, untrained = await learn(loop, number, policy)
    policy = _updated(loop, number, policy, trained)
    report = await _measure(loop, policy, folder)
    made = Parts(
        run=run,
        heat=heat,
        played=played,
        rollout=rollout,
        labels=labels,
        pairs=pairs,
        rows=rows,
        trained=trained,
        untrained=untrained,
        report=report,
        measured=measured(loop.config, folder.evaluation),
        rollout_paid=paid_for([folder.rollout]),
        measured_paid=paid_for(runs_in(folder.evaluation)),
    )
    return _close(loop, folder, record_of(number, made, policy, loop.folder.path, loop.seconds, threshold))


async def measure_start(loop: Loop, policy: Policy) -> Record:
    """Epoch 0: how the team does before any training, where that is to be measured."""
    folder = loop.folder.epoch(0)
    if folder.record.exists():
        return _known(loop, folder)
    _count_earlier(loop, folder)
    report = await _measure(loop, policy, folder) if loop.config.method.held_out.before else None
    episodes = measured(loop.config, folder.evaluation)
    return _close(
        loop,
        folder,
        record_of_start(report, episodes, paid_for(runs_in(folder.evaluation)), policy, loop.folder.path, loop.seconds),
    )


def _count_earlier(loop: Loop, folder: EpochFolder) -> None:
    """Count what an earlier process spent on an epoch that is not over."""
    parts = [paid_for([folder.rollout, *runs_in(folder.evaluation)])]
    if NAME in labellings(folder.rollout):
        known = read_labels(folder.rollout, NAME)
        parts += [*(spent_on(judgement.calls) for judgement in known.judged.values()), *known.lost]
    spent = total(parts)
    loop.progress.tokens += spent.prompt_tokens + spent.completion_tokens
    loop.progress.cost_usd += spent.cost_usd


def require_played(loop: Loop, report: Report, place: Path) -> Report:
    """The report; RunError where not one of its episodes could be played. Whoever goes on plays them again."""
    if not report.is_lost:
        return report
    raise _unplayed(loop, report, f"{place}: none of {amount(len(report.results), 'episode')} could be played")


def require_measured(loop: Loop, report: Report, place: Path) -> Report:
    """The report of an evaluation; RunError where too many of its episodes broke to choose an epoch by it.

    Whoever goes on plays those again.
    """
    require_played(loop, report, place)
    if not is_spoilt(report.broken, report.planned.episodes):
        return report
    broken = (
        f"{report.broken} of {amount(report.planned.episodes, 'episode')} broke (allowed: {TOLERATED_FAILURES:.0%})"
    )
    raise _unplayed(loop, report, f"{place}: {broken}, too many to choose an epoch by")


def _unplayed(loop: Loop, report: Report, what: str) -> RunError:
    epoch, first = loop.progress.epoch, next(one.error for one in report.results if one.error is not None)
    trained = (
        "; where the policy itself is lost, begin another training with the policy of an earlier epoch (--agents "
        f"{shlex.quote(f'{loop.folder.path}@epoch{epoch - 1}')}) and a lower dpo.learning_rate"
    )
    return RunError(
        f"{what}, the first broke with {first}; mend that, and play them again with: {loop.folder.resume}"
        f"{trained if epoch > 0 else ''}"
    )


async def _play(loop: Loop, run: RunConfig, folder: EpochFolder) -> tuple[list[Trajectory], Report]:
    """What is learned from, and how all of it went."""
    loop.begin("rollout")
    async with judging_ahead(loop, run, folder.rollout):
        with loop.timed("rollout", whole=not (folder.rollout / FILE).exists()):
            await roll_out(loop, run, folder.rollout)
    steps = loop.config.method.steps
    report = require_played(loop, rollout_report(folder.rollout, steps), folder.rollout)
    return trajectories_of(folder.rollout, steps), report


async def _measure(loop: Loop, policy: Policy, folder: EpochFolder) -> Report:
    loop.begin("evaluation")
    with loop.timed("evaluation", whole=not runs_in(folder.evaluation)):
        return require_measured(loop, await evaluate(loop, policy, folder.evaluation), folder.evaluation)


async def _rows(loop: Loop, number: int, found: Evidence, policy: Policy) -> dict[str, RowCounts]:
    """The rows of an epoch, as they were written, or written now."""
    folder = loop.folder.epoch(number)
    counts = stored(folder.rows)
    if counts is not None:
        return counts
    loop.begin("rows")
    known: dict[str, ChatTokenizer] = {}
    chats = {}
    for slot, path in policy.weights.items():
        agent = found.run.agents[slot]
        key = f"{path} {template_of(agent)}"
        chats[slot] = known[key] = known.get(key) or chat_of(agent, path)
    suite = build_suite(found.run)
    try:
        with RunStore.open(folder.rollout).reader() as reader:
            said = {one.id: one for one in found.played}
            record = Told(run=found.run, trajectories=said, prefix=reader.prefix)
            made = rows_of(found, suite.space, Scribe.of(record, chats, loop.config))
    finally:
        await suite.close()
    return store(made, loop.config, loop.folder, number)


def _updated(loop: Loop, number: int, policy: Policy, trained: Mapping[str, Trained]) -> Policy:
    """The policy with what was trained; one of which nothing was trained stays as it is."""
    root = loop.folder.path.resolve()
    groups = loop.config.groups
    new = {slot: str(root / one.checkpoint) for group, one in trained.items() for slot in groups[group]}
    return policy.updated(number, new, adapters=loop.config.method.keeps_adapters)


def _known(loop: Loop, folder: EpochFolder) -> Record:
    record = read_record(folder.record)
    clear_checkpoints(folder, loop.config.groups)  # of a process that was killed before it did
    loop.progress.close(record)
    return record


def _close(loop: Loop, folder: EpochFolder, record: Record) -> Record:
    with writing(folder.record, loop.folder.resume):
        folder.path.mkdir(parents=True, exist_ok=True)
        write_json(folder.record, record.model_dump(mode="json"))
    clear_checkpoints(folder, loop.config.groups)
    loop.seconds.clear()
    loop.progress.close(record)
    return record
