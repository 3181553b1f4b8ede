"""Serve the inspector on a socket until it is asked to stop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from collab.errors import UsageError

if TYPE_CHECKING:
    from types import FrameType

    from collab.view.guard import Gate
    from collab.view.inspector import Inspector

PORT = 8477
"""Taken where no other is named and it is free."""
_PATIENCE_S = 2
"""For answers under way when the server is asked to stop."""


def listening(host: str, port: int | None) -> socket.socket:
    """A socket that listens.

    Args:
        port: 0 for a free one; None for `PORT`, or a free one where that is taken.

    Raises:
        UsageError: the address cannot be had.
    """
    wanted = [PORT, 0] if port is None else [port]
    for number in wanted:
        try:
            return _bound(host, number)
        except OSError as error:
            why = error
    raise UsageError(
        f"--host {host} --port {wanted[-1]}: cannot be listened on ({why.strerror or why}); "
        "name another, --port 0 for a free one"
    )


def serve(inspector: Inspector, gate: Gate, listener: socket.socket, ready: Callable[[], None]) -> None:
    """Answer until Ctrl-C or a signal to end.

    Args:
        ready: called once, when requests are answered.
    """
    import uvicorn

    from collab.view.routes import application

    config = uvicorn.Config(
        application(inspector, gate, stopped=lambda: server.should_exit),
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_PATIENCE_S,
    )

    class Server(uvicorn.Server):
        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            self.should_exit = True  # uvicorn would raise the signal again at its end: a second one, see `interrupt`

    server = Server(config)

    async def go() -> None:
        running = asyncio.create_task(server.serve(sockets=[listener]))
        while not server.started and not running.done():
            await asyncio.sleep(0.02)
        if server.started:
            await asyncio.to_thread(ready)  # requests are answered meanwhile
        await running

    with contextlib.suppress(KeyboardInterrupt):  # before or after the server hears signals itself
        asyncio.run(go())


def _bound(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(64)
    except OSError:
        listener.close()
        raise
    return listener
