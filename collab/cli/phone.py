"""`collab phone`: SimPhones that real adb and uiautomator2 clients can drive."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Annotated

import typer

from collab.cli.output import note, say

if TYPE_CHECKING:
    from collab.envs.phone.adb.handle import PhoneHandle
    from collab.envs.phone.state import Phone
    from collab.types import Task

app = typer.Typer(help="Simulated phones for adb and uiautomator2.", no_args_is_help=True)

FIRST_PORT = 5554
"""Console port of the first emulator; serials count on in twos, as the emulator's do."""


@app.command("serve")
def serve(
    *,
    phones: Annotated[int, typer.Option("--phones", metavar="N", min=1, max=64, help="How many.")] = 1,
    port: Annotated[int, typer.Option("--port", metavar="PORT", min=0, max=65535, help="0 for a free one.")] = 0,
    task: Annotated[
        str | None,
        typer.Option("--task", metavar="NAME", help="Start from this task's initial state; scored at the end."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="S", help="Phone k gets instance S + k of the task.")] = 0,
) -> None:
    """Serve phones on the loopback interface until Ctrl-C, as an adb server would."""
    from collab.envs.phone.adb.handle import PhoneHandle
    from collab.envs.phone.suite import SimPhoneSuite

    suite = SimPhoneSuite()
    serials = [f"emulator-{FIRST_PORT + 2 * place}" for place in range(phones)]
    tasks = [] if task is None else [suite.instance(task, seed + place) for place in range(phones)]
    states = [_at_start(one) for one in tasks] or [PhoneHandle() for _ in serials]
    starts = [handle.phone for handle in states]
    asyncio.run(_serve(dict(zip(serials, states, strict=True)), tasks, port))
    for serial, one, start, handle in zip(serials, tasks, starts, states, strict=False):
        say(f"{serial}: {one.name} holds to {_scored(one, start, handle):.0%}")


def _at_start(task: Task) -> PhoneHandle:
    from collab.envs.phone.adb.handle import PhoneHandle
    from collab.envs.phone.core import SimPhone

    phone = SimPhone()
    phone.reset(task)
    return PhoneHandle(phone.phone)


def _scored(task: Task, start: Phone, handle: PhoneHandle) -> float:
    from collab.envs.phone.tasks import BY_NAME

    return BY_NAME[task.name].score(start, handle.phone, task.params)


async def _serve(phones: dict[str, PhoneHandle], tasks: list[Task], port: int) -> None:
    from collab.envs.phone.adb.server import HOST, PhoneServer

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, stop.set)
    async with PhoneServer(phones, port=port) as server:
        say(f"export ANDROID_ADB_SERVER_PORT={server.port}")
        for serial, task in zip(phones, tasks, strict=False):
            say(f"# {serial}: {task.goal}")
        note(f"serving {len(phones)} phones on {HOST}:{server.port}; try: adb devices. Stop with Ctrl-C.")
        await stop.wait()
