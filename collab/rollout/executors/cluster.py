"""The Ray cluster: joining or starting it, its room, its workers, and its errors in one line.

    is_shared = connect(start=True)            # the one that RAY_ADDRESS names; False: one of this process was started
    for state in await read_workers(): ...     # what all workers do, those of other commands included

Ray's own output is switched off, since losses are printed in the words of this project; so are its usage reports.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import signal
import socket
from collections.abc import Iterator
from typing import Any

from collab.errors import MissingExtra, UsageError
from collab.rollout.executors.worker import WorkerState
from collab.utils.concurrency import note_doing
from collab.utils.text import format_amount

NAMESPACE = "collab"
"""Namespace of workers in a cluster."""
_STORE_BYTES = 100_000_000
"""Ray's object store in a cluster of our own: messages of episodes are small."""
_ANSWER_S = 5.0
"""Seconds in which the head of a cluster has to answer."""
_VERSION = re.compile(r"Ray: (\S+)\s+Python: (\S+)")
_VERSIONS = re.compile(rf"Version mismatch:.*?{_VERSION.pattern}.*?{_VERSION.pattern}", re.DOTALL)
"""How Ray says, over several lines, that a cluster has other versions than this process."""
_QUIET: dict[str, Any] = {"namespace": NAMESPACE, "log_to_driver": False, "logging_level": logging.CRITICAL}
_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".*",
}
"""Ray reports no usage, leaves GPUs visible, and prints nothing. A variable that is set already stays."""


def connect(*, start: bool) -> bool:
    """Join the Ray cluster that RAY_ADDRESS names, once per process; return whether it names one.

    Args:
        start: whether to start a cluster of this process where it names none.

    Raises:
        MissingExtra: Ray is not installed.
        UsageError: the cluster cannot be joined, or none is named and none is to be started.
    """
    MissingExtra.unless("ray", extra="ray", purpose="--executor ray" if start else "a look at a Ray cluster")
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    import ray

    address = os.environ.get("RAY_ADDRESS", "")
    if ray.is_initialized():
        return bool(address)
    if not address and not start:
        raise UsageError(
            "RAY_ADDRESS is not set: name the cluster's head, e.g. export RAY_ADDRESS=HOST:6379, or a run that is "
            "played on this machine: collab workers status RUN"
        )
    with _keep_signals():
        if address:
            _join(address)
        else:
            _start_own()
    return bool(address)


def _join(address: str) -> None:
    import ray

    where = f"RAY_ADDRESS={address}"
    if "://" in address:
        raise UsageError(f"{where}: is no address of a cluster's head; on a machine of the cluster, use HOST:6379")
    # Ray itself would try for minutes and print each attempt.
    host, colon, port = address.rpartition(":")
    if colon and port.isdecimal():
        try:
            socket.create_connection((host, int(port)), timeout=_ANSWER_S).close()
        except OSError as error:
            raise UsageError(
                f"{where}: no Ray cluster answers there ({error}); start one with: ray start --head --port={port}"
            ) from None
    with note_doing(f"joining the Ray cluster at {address}"):
        try:
            ray.init(address=address, **_QUIET)
        except (ConnectionError, ray.exceptions.AuthenticationError):
            # Its port answers, so what fails is the token; Ray names it only in its own output.
            raise UsageError(
                f"{where}: no Ray cluster admits this process there; copy ~/.ray/auth_token from the cluster's head "
                "and set RAY_AUTH_MODE=token"
            ) from None
        except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
            raise UsageError(f"{where}: the cluster cannot be joined: {describe_ray_error(error)}") from None


def _start_own() -> None:
    """Start a cluster that ends with this process; its workers take no CPUs, so there is room for any number."""
    import ray

    with note_doing("starting Ray"):
        ray.init(address="local", num_cpus=1, object_store_memory=_STORE_BYTES, include_dashboard=False, **_QUIET)


@contextlib.contextmanager
def _keep_signals() -> Iterator[None]:
    """Put this process's signal handlers back: Ray sets its own."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # not in the main thread, where Ray sets none either
            for number, handler in handlers.items():
                signal.signal(number, handler)


def check_room(workers: int) -> None:
    """Refuse more workers than the joined cluster has CPUs, with a UsageError."""
    cpus = _count_cpus()
    if workers > cpus:
        raise UsageError(
            f"--workers {workers}: the Ray cluster has {format_amount(cpus, 'CPU')}, and each worker takes one; "
            f"use --workers {cpus}, or join another machine to it with: ray start --address=HOST:PORT"
        )


def describe_room(workers: int) -> str:
    """Return so many workers and the CPUs that the joined or started cluster has for them, in words."""
    return f"{format_amount(workers, 'worker')} on {format_amount(_count_cpus(), 'CPU')}"


def _count_cpus() -> int:
    import ray

    return int(ray.cluster_resources().get("CPU", 0))


async def read_workers() -> list[WorkerState]:
    """Return what all workers in the cluster of this machine do, those of other runs included."""
    connect(start=False)
    import ray

    names = [one["name"] for one in ray.util.list_named_actors(all_namespaces=True) if one["namespace"] == NAMESPACE]
    found = await asyncio.gather(*map(_read_worker, sorted(names)))
    return [state for state in found if state is not None]


async def _read_worker(name: str) -> WorkerState | None:
    """Return what a worker does; None if it has ended meanwhile."""
    import ray

    try:
        actor = ray.get_actor(name, namespace=NAMESPACE)
        async with asyncio.timeout(5):
            state: WorkerState = await actor.report.remote()
            return state
    except TimeoutError:
        return WorkerState(name=name, node="", process=0, version="", problem="no answer for 5 s")
    except (ValueError, ray.exceptions.RayError):
        return None


def is_store_full(error: BaseException) -> bool:
    """Return whether Ray's object store is full, and the disk, where Ray puts what does not fit; also in a worker."""
    import ray

    kinds = (ray.exceptions.ObjectStoreFullError, ray.exceptions.OutOfDiskError)
    return isinstance(error, kinds) or isinstance(getattr(error, "cause", None), kinds)


def describe_ray_error(error: BaseException) -> str:
    """Return an error of Ray in one line: its messages are pages."""
    import ray

    text = str(error)
    if is_store_full(error):
        return "Ray's object store and its disk are full; free space in /tmp/ray on that machine"
    if (versions := _VERSIONS.search(text)) is not None:
        theirs, ours = (
            f"Ray {ray_version} on Python {python}" for ray_version, python in _VERSION.findall(versions[0])
        )
        return f"it runs {theirs}, and this machine has {ours}; install the same on all machines"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if isinstance(error, ray.exceptions.ActorDiedError):
        if "raised in its creation task" in text:  # the last line is that of a traceback
            missing = "; install its package there, or name its folder in PYTHONPATH"
            return f"its process cannot begin: {lines[-1]}{missing if 'ModuleNotFoundError' in lines[-1] else ''}"
        return "its machine left the cluster" if "its node has died" in text else "its process died"
    if isinstance(error, ray.exceptions.ActorUnavailableError):
        return "it does not answer any more"
    if isinstance(error, ray.exceptions.RayTaskError):
        return lines[-1] if lines else type(error).__name__
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__
