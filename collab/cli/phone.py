"""`collab phone`: SimPhones that real adb and uiautomator2 clients can drive."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from collab.cli.interrupt import asking
from collab.cli.output import note, say
from collab.wording import amount

if TYPE_CHECKING:
    from collab.envs.phone.adb.handle import PhoneHandle

phone_app = typer.Typer(help="Simulated phones for adb and uiautomator2.", no_args_is_help=True)

FIRST_PORT = 5554
"""Console port of the first emulator; serials count on in twos, as the emulator's do."""


@phone_app.command("serve")
def serve(
    *,
    phones: Annotated[int, typer.Option("--phones", metavar="N", min=1, max=64, help="How many.")] = 1,
    port: Annotated[int, typer.Option("--port", metavar="PORT", min=0, max=65535, help="0 for a free one.")] = 0,
    task: Annotated[
        str | None,
        typer.Option("--task", metavar="NAME", help="Start from this task's initial state; scored at the end."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="S", help="Phone k gets instance S + k of the task.")] = 0,
    apps: Annotated[
        list[str] | None, typer.Option("--app", metavar="PACKAGE", help="An app from outside; may be repeated.")
    ] = None,
) -> None:
    """Serve phones on the loopback interface until Ctrl-C, as an adb server would.

    A client can begin other tasks on them: collab rollout --env androidworld --backend device.
    """
    from collab.envs.phone.adb.exam import begin
    from collab.envs.phone.adb.handle import PhoneHandle
    from collab.envs.phone.suite import SimPhoneSuite

    suite = SimPhoneSuite(apps=apps or [])
    handles = {f"emulator-{FIRST_PORT + 2 * place}": PhoneHandle(suite=suite) for place in range(phones)}
    for place, handle in enumerate(handles.values()):
        if task is not None:
            begin(handle, name=task, seed=seed + place)
    asyncio.run(_serve(handles, port))
    for serial, handle in handles.items():
        if handle.exam is not None:
            say(f"{serial}: {handle.exam.task.name} holds to {handle.exam.score(handle.phone):.0%}")


async def _serve(phones: dict[str, PhoneHandle], port: int) -> None:
    from collab.envs.phone.adb.server import HOST, PhoneServer

    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    with asking(lambda number: loop.call_soon_threadsafe(stop.set)):
        async with PhoneServer(phones, port=port) as server:
            say(f"export ANDROID_ADB_SERVER_PORT={server.port}")
            for serial, handle in phones.items():
                if handle.exam is not None:
                    say(f"# {serial}: {handle.exam.task.goal}")
            note(f"serving {amount(len(phones), 'phone')} on {HOST}:{server.port}; try: adb devices. Stop with Ctrl-C.")
            await stop.wait()
