"""A phone server in a thread of its own, for programs and tests that are not asynchronous.

with serving({"emulator-5554": PhoneHandle()}) as port:
    ...
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from collab.envs.phone.adb.handle import PhoneHandle
from collab.envs.phone.adb.server import PhoneServer


@contextmanager
def serving(phones: Mapping[str, PhoneHandle], *, port: int = 0) -> Iterator[int]:
    """Serve phones while the block runs; gives the port.

    Raises:
        UsageError: the port is taken, or a serial is none.
    """
    server = PhoneServer(phones, port=port)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="phone-server", daemon=True)
    thread.start()
    try:
        yield asyncio.run_coroutine_threadsafe(server.start(), loop).result()
    finally:
        asyncio.run_coroutine_threadsafe(server.close(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
