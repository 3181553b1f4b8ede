"""Proves that environments keep their promises, and lists where they do not.

    report = await check_env(suite, options={})
    for finding in report.failures:
        print(finding.task, finding.claim, finding.detail)

Every suite is held to what `envs.base` says of all environments; a suite that names capabilities is held to those
too. What an environment does when it is stepped after the end of an episode is its own affair and is not checked.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from collab.envs import claims
from collab.envs.base import Suite, TaskInfo
from collab.envs.claims import Claim, Subject, require_same_episode
from collab.envs.replay import Recording, replay_elsewhere
from collab.envs.soundness import require
from collab.errors import CollabError, EnvironmentFailure, UnknownName, boundary
from collab.wording import amount

SUITE = "(suite)"
"""Stands where a task's name would, in findings about the suite as a whole."""

CAPABILITIES = ("fork", "oracle", "screenshot", "deterministic")

CLAIMS: tuple[tuple[str, str | None, Claim], ...] = (
    ("same start", None, claims.seeded),
    ("observations", None, claims.sound),
    ("junk actions", None, claims.unshaken),
    ("agent's end", None, claims.ends),
    ("budget", None, claims.bounded),
    ("fork", "fork", claims.forks),
    ("oracle", "oracle", claims.solved),
    ("rebuild", "deterministic", claims.rebuilt),
    ("screenshot", "screenshot", claims.pictured),
)
"""Name of each claim, the capability that declares it (None: every suite), and its check."""

FRESH_PROCESS = "rebuild in a fresh process"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What came of one claim on one task."""

    task: str
    claim: str
    status: Literal["passed", "failed", "skipped"]
    detail: str
    """One line: what was seen, what was broken, or why it was left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """What came of a whole check."""

    label: str
    """Label of the suite."""
    version: str
    findings: tuple[Finding, ...]
    seconds: float

    @property
    def failures(self) -> tuple[Finding, ...]:
        """The broken promises."""
        return tuple(finding for finding in self.findings if finding.status == "failed")

    @property
    def ok(self) -> bool:
        """Whether no promise was broken."""
        return not self.failures


async def check_env(
    suite: Suite,
    *,
    tasks: Sequence[str] | None = None,
    seeds: Sequence[int] = (0, 1),
    junk_steps: int = 30,
    options: Mapping[str, Any] | None = None,
    timeout_s: float = 120.0,
    progress: Callable[[Finding], None] | None = None,
) -> CheckReport:
    """Hold a suite to its claims.

    Args:
        suite: is not closed.
        tasks: names; None for all.
        seeds: instances of each task; a claim passes when it holds on all of them.
        junk_steps: length of the random episodes.
        options: keyword arguments that make the same suite again, so that episodes can be rebuilt in a fresh
            process; None leaves that claim out.
        timeout_s: seconds for one claim on one instance; more counts as hanging.
        progress: told every finding as it is made.

    Raises:
        UnknownName: a name in `tasks` is no task of the suite.
    """
    start = time.perf_counter()
    findings: list[Finding] = []

    def note(finding: Finding) -> None:
        findings.append(finding)
        if progress is not None:
            progress(finding)

    recordings: list[Recording] = []
    chosen = _chosen(suite, tasks)
    note(_check_suite(suite))
    for info in chosen:
        for name, capability, claim in CLAIMS:
            reason = _left_out(suite, info, capability)
            if reason:
                note(Finding(task=info.name, claim=name, status="skipped", detail=reason))
                continue
            subjects = [
                Subject(suite=suite, info=info, seed=seed, junk_steps=junk_steps, recordings=recordings)
                for seed in seeds
            ]
            note(await _judge(info.name, name, claim, subjects, timeout_s))
            await asyncio.sleep(0)  # a world in pure Python never waits; here it can be cancelled
    if "deterministic" in suite.capabilities:
        for finding in await _rebuild_elsewhere(suite, options, recordings, timeout_s):
            note(finding)
    return CheckReport(
        label=suite.label, version=suite.version, findings=tuple(findings), seconds=time.perf_counter() - start
    )


def _chosen(suite: Suite, names: Sequence[str] | None) -> list[TaskInfo]:
    infos = {info.name: info for info in suite.tasks()}
    for name in names or ():
        if name not in infos:
            raise UnknownName.of("task", name, infos)
    return [info for info in infos.values() if names is None or info.name in names]


def _left_out(suite: Suite, info: TaskInfo, capability: str | None) -> str:
    """Why a claim is not checked on a task; empty when it is."""
    if capability is not None and capability not in suite.capabilities:
        return "not claimed"
    if capability == "oracle" and not info.oracle:
        return "no known solution"
    return ""


def _check_suite(suite: Suite) -> Finding:
    """Names, capabilities, the task list, and what happens to a wrong name."""
    try:
        infos = list(suite.tasks())
        names = [info.name for info in infos]
        require(bool(names), "has no tasks")
        require(len(set(names)) == len(names), "two tasks have the same name")
        require(infos == list(suite.tasks()), "tasks() changes between two calls")
        require(bool(suite.version), "has no version")
        unknown = suite.capabilities - set(CAPABILITIES)
        require(not unknown, f"claims {', '.join(sorted(unknown))}, known: {', '.join(CAPABILITIES)}")
        solvable = [info.name for info in infos if info.oracle]
        require(not solvable or "oracle" in suite.capabilities, "tasks have solutions, but oracle is not claimed")
        with boundary(EnvironmentFailure, "a name that is no task must raise UnknownName, it raised"):
            suite.instance("no such task", 0)
        raise EnvironmentFailure("a name that is no task must raise UnknownName, it was accepted")
    except UnknownName:
        return Finding(task=SUITE, claim="suite", status="passed", detail=f"{amount(len(names), 'task')}")
    except EnvironmentFailure as broken:
        return Finding(task=SUITE, claim="suite", status="failed", detail=str(broken))


async def _judge(task: str, name: str, claim: Claim, subjects: Sequence[Subject], timeout_s: float) -> Finding:
    """One claim on all instances of a task; the first that breaks it speaks."""
    detail = "no seeds given"
    for subject in subjects:
        try:
            with boundary(EnvironmentFailure, "raised"):
                async with asyncio.timeout(timeout_s):
                    detail = await claim(subject)
        except CollabError as broken:
            return Finding(task=task, claim=name, status="failed", detail=f"seed {subject.seed}: {broken}")
    return Finding(task=task, claim=name, status="passed" if subjects else "skipped", detail=detail)


async def _rebuild_elsewhere(
    suite: Suite, options: Mapping[str, Any] | None, recordings: Sequence[Recording], timeout_s: float
) -> list[Finding]:
    """All recorded episodes again, in one fresh process."""

    def finding(task: str, status: Literal["passed", "failed", "skipped"], detail: str) -> Finding:
        return Finding(task=task, claim=FRESH_PROCESS, status=status, detail=detail)

    if options is None:
        return [finding(SUITE, "skipped", "options= was not given")]
    try:
        with boundary(EnvironmentFailure, "the fresh process"):
            async with asyncio.timeout(timeout_s * max(1, len(recordings))):
                episodes = [(recording.task, recording.actions) for recording in recordings]
                rebuilt = await replay_elsewhere(suite, options, episodes)
    except CollabError as broken:
        return [finding(SUITE, "failed", str(broken))]
    findings = []
    for recording, seen in zip(recordings, rebuilt, strict=True):
        try:
            require_same_episode(recording, seen, "a fresh process")
        except EnvironmentFailure as broken:
            findings.append(finding(recording.task.name, "failed", f"seed {recording.task.seed}: {broken}"))
    return findings or [finding(SUITE, "passed", f"{amount(len(recordings), 'episode')} equal")]
