"""A server in a process of its own: started, watched until it is healthy, and stopped by its process id.

    async with ServerProcess(command, environment, told=print) as server:
        await server.healthy("http://127.0.0.1:8000/health", limit_s=600)
        …

What it prints is passed on line by line; when it dies, its last errors stand in ours, or its last lines where it
printed none.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from collab.errors import ModelFailure
from collab.redact import redact

_PATIENCE_S = 30.0
"""How long it has to end after it was asked to."""
_POLL_S = 0.1
_ANSWER_S = 2.0
"""How long the first line of an answer is waited for."""
_LAST_LINES = 4
_LONGEST_QUOTE = 300
"""Characters of one line in a message."""
_ERROR = re.compile(r"\b\w*(?:Error|Exception)\b:? ")
_LONGEST_LINE = 2**20


class ServerProcess:
    """One process and those that it starts.

    Args:
        command: program and arguments; no shell reads them.
        environment: variables set beside those inherited.
        told: given every line that it prints, without secrets.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], told: Callable[[str], None]) -> None:
        self._command = tuple(command)
        self._environment = dict(environment)
        self._told = told
        self._last: deque[str] = deque(maxlen=_LAST_LINES)
        self._errors: deque[str] = deque(maxlen=_LAST_LINES)
        """Shutting down can take hundreds of lines that say nothing."""
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Start it; ModelFailure when it cannot be."""
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env=os.environ | self._environment,
                start_new_session=True,  # a Ctrl-C reaches it through us, once
                limit=_LONGEST_LINE,
            )
        except OSError as error:
            raise ModelFailure(f"{self._command[0]} cannot be started: {error.strerror}") from None
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def healthy(self, url: str, limit_s: float) -> None:
        """Wait until it answers there.

        Raises:
            ModelFailure: it ended first, or did not answer in time.
        """
        deadline = time.monotonic() + limit_s
        while not await _answers(url):
            if self._running.returncode is not None:
                raise await self.obituary()
            if time.monotonic() > deadline:
                raise ModelFailure(f"the server was not healthy within {limit_s:g} s; it said last: {self._said()}")
            await asyncio.sleep(_POLL_S)

    async def ended(self) -> int:
        """Wait until it ends by itself: its exit code, or minus the signal that killed it."""
        while (code := self._running.returncode) is None:  # wait() would also wait for whoever holds its output open
            await asyncio.sleep(_POLL_S)
        return code

    async def obituary(self) -> ModelFailure:
        """The error that tells how it ended."""
        code = await self.ended()
        if self._reading is not None:
            await asyncio.wait({self._reading}, timeout=1.0)  # its children may hold the pipe open
        how = f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"
        return ModelFailure(f"the server ended with {how}; it said last: {self._said()}")

    async def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Ask it to end, and make it after half a minute. Nothing happens when it has ended."""
        process = self._running
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(how)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.ended(), _PATIENCE_S)
        self.kill()
        await process.wait()
        if self._reading is not None:
            self._reading.cancel()

    def kill(self) -> None:
        """Kill whatever is left of it and of its children. Nothing happens when it was not started or has ended."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)  # it leads a group of its own

    @property
    def _running(self) -> asyncio.subprocess.Process:
        if self._process is None:
            raise RuntimeError("the server was not started")
        return self._process

    async def _read(self) -> None:
        stream = self._running.stdout
        while stream is not None and (line := await stream.readline()):
            text = redact(line.decode(errors="replace").rstrip().rpartition("\r")[2])  # of a progress bar, its end
            if text.strip():
                self._last.append(text)
            if _ERROR.search(text):
                self._errors.append(text)
            self._told(text)

    def _said(self) -> str:
        """The last errors, or else the last lines."""
        lines = [line.strip()[:_LONGEST_QUOTE] for line in self._errors or self._last]
        return " | ".join(lines) or "nothing"


async def _answers(url: str) -> bool:
    """Whether something answers with 200 there; no thread is left waiting for an answer that never ends."""
    parts = urlsplit(url)
    question = f"GET {parts.path or '/'} HTTP/1.0\r\nHost: {parts.netloc}\r\n\r\n"
    try:
        async with asyncio.timeout(_ANSWER_S):
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port or 80)
            try:
                writer.write(question.encode())
                status = await reader.readline()
            finally:
                writer.close()
    except (OSError, TimeoutError, ValueError):  # ValueError: a line without an end
        return False
    return status.split()[1:2] == [b"200"]
