"""Requests to a chat-completions server: connections, queue, retries, and errors in plain words.

    transport = Transport(model="my-model", url="http://127.0.0.1:8000/v1", …)
    answer = await transport.ask("/chat/completions", body, Completion, seed=7)

The `openai` client only transports bytes; its retries are off. `collab.models.concurrency` bounds the calls in flight,
`collab.models.answer` reads the answers. No message from this module contains the key.

Model calls are retried only here. An attempt that may succeed next time raises `TryAgain`; any other error ends the
call. Waits double from half a second to half a minute. A seeded jitter shortens them by up to a half, so that calls
that failed together do not return together. A server's Retry-After takes precedence, up to a minute. A wait beyond
the call's limit fails the call at once, with the server's words.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import email.utils
import math
import os
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import httpx2
import openai
from pydantic import BaseModel

from collab.envs.text import flatten
from collab.errors import ConfigError, ModelFailure
from collab.models.answer import BoundedClient, Broken, ErrorInAnswer, TooLong, quote_error, read_answer, read_text
from collab.models.concurrency import CallWindow, Slots
from collab.seeds import derive
from collab.utils.concurrency import note_doing
from collab.utils.redact import redact, register

T = TypeVar("T")

FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 30.0
LONGEST_ASKED_S = 60.0
"""Longest wait in seconds; a server that asks for more is tried again after this."""

_TOLD_FROM_S = 1.0
"""Shortest wait in seconds that is told."""

_AGES_S = 1e9
"""From so many seconds on, a message says "for ever" in place of the number."""


class TryAgain(Exception):
    """An attempt failed temporarily.

    Args:
        message: complete description without secrets.
        status: HTTP status; None without an answer.
        words: only the server's own words.
        after_s: seconds that the server asked to wait; None if it did not.
        congested: whether the server is overloaded, so that fewer concurrent calls would help.
        unknown_cost: whether the server may bill an answer that never arrived.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        words: str = "",
        after_s: float | None = None,
        congested: bool = False,
        unknown_cost: bool = False,
    ) -> None:
        super().__init__(message)
        self.status, self.words = status, words
        self.after_s = after_s
        self.congested = congested
        self.unknown_cost = unknown_cost


class ServerRefusal(ModelFailure):
    """A server answered, but not with a completion.

    Args:
        message: complete description without secrets.
        status: HTTP status.
        words: only the server's own words.
    """

    def __init__(self, message: str, status: int, words: str = "") -> None:
        super().__init__(message)
        self.status, self.words = status, words


@dataclass(frozen=True, slots=True, kw_only=True)
class CallObserver:
    """Callbacks of one call."""

    on_begin: Callable[[], None] = lambda: None
    """Called when the first attempt has its slot; later waits count towards the call's limit."""
    on_failure: Callable[[str], None] = lambda problem: None
    """Called with the message of every failed attempt that is retried."""
    seconds_left: Callable[[], float | None] = lambda: None
    """Returns the seconds left of the call's limit; None for no limit."""


NO_OBSERVER = CallObserver()
"""No callbacks and no limit."""


async def call_with_retries(
    attempt: Callable[[], Awaitable[T]],
    *,
    retries: int,
    rng: random.Random,
    wait: Callable[[float], Awaitable[object]],
    caller: CallObserver = NO_OBSERVER,
) -> T:
    """Call `attempt` until it succeeds, at most 1 + `retries` times.

    Args:
        wait: sleeps for given seconds; `asyncio.sleep` except in tests.

    Raises:
        ServerRefusal: the last attempt got an error status.
        ModelFailure: the last attempt got no usable answer.
    """
    # The client's own retries would ignore the call's limit and hold their slot while waiting.
    for number in range(retries + 1):
        try:
            return await attempt()
        except TryAgain as problem:
            pause, left = choose_delay_s(number, problem.after_s, rng), caller.seconds_left()
            # A wait beyond the call's limit would only end in a worse error: fail now with the server's words.
            if number < retries and (left is None or pause < left):
                caller.on_failure(str(problem))
                with _note_wait(f"{problem}; attempt {number + 2} of {retries + 1}", pause):
                    await wait(pause)
                continue
            tried = f"{number + 1} attempt{'s' if number else ''}"
            if number < retries:
                tried += f"; the next after {pause:.0f} s, beyond the call's limit"
            message = f"{problem} ({tried}){_format_asked_wait(problem.after_s)}"
            # A status is the server's decision; without one it may never have seen the request.
            if problem.status is None:
                raise ModelFailure(message) from None
            raise ServerRefusal(message, problem.status, problem.words) from None
    raise AssertionError("unreachable: the last attempt returns or raises")


def _note_wait(what: str, pause: float) -> contextlib.AbstractContextManager[object]:
    """Tell what a long wait is for; short ones are over before a user wonders."""
    return contextlib.nullcontext() if pause < _TOLD_FROM_S else note_doing(f"{what} in {pause:.0f} s")


def choose_delay_s(number: int, after_s: float | None, rng: random.Random) -> float:
    """Return the seconds to wait after attempt `number` (from 0), at most `LONGEST_ASKED_S`."""
    # The server's own wait plus jitter, so that refused calls do not return at once.
    if after_s is not None:
        return min(LONGEST_ASKED_S, after_s * (1 + 0.1 * rng.random()))
    # Exponential with jitter in [0.5, 1]; bound the exponent, as 2.0 ** 1024 raises.
    return min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** min(number, 60)) * (0.5 + 0.5 * rng.random())


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Read `Retry-After` (seconds or a date) or `retry-after-ms`; None when absent, unreadable or negative."""
    # Milliseconds first, as the finer value.
    for name, scale in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers[name]) / scale
        except (KeyError, ValueError):
            continue
        if math.isfinite(seconds) and seconds >= 0:
            return seconds
    # RFC 9110 also allows a date; a past one means now.
    try:
        return max(0.0, email.utils.parsedate_to_datetime(headers["retry-after"]).timestamp() - time.time())
    except (KeyError, ValueError, OverflowError):
        return None


def _format_asked_wait(after_s: float | None) -> str:
    """Format a server's wait if it is longer than `LONGEST_ASKED_S`; else return an empty text."""
    if after_s is None or after_s <= LONGEST_ASKED_S:
        return ""
    return f"; it asks to wait {after_s:.0f} s" if after_s < _AGES_S else "; it asks to wait for ever"


AnswerModel = TypeVar("AnswerModel", bound=BaseModel)


_NO_KEY = "none"
"""The client requires a key; the user's own servers accept any."""
_LONGEST_QUOTE = 300
"""Characters of a server's error that a message repeats."""
_HINTS = {
    401: "check the key",
    403: "check what the key may do",
    404: "check base_url (it usually ends in /v1) and the model's name",
}
_CONGESTED = (408, 429, 503, 504)
"""Statuses of an overloaded server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Session:
    """Connections of one event loop."""

    loop: asyncio.AbstractEventLoop
    client: openai.AsyncOpenAI
    slots: Slots


@dataclass(slots=True, kw_only=True)
class _AttemptLine:
    """State shared by all transports to one server."""

    window: CallWindow
    """The window at the end of the last session."""
    session: _Session | None = None
    users: set[int] = field(default_factory=set)
    """Open transports by `id`."""


class Transport:
    """Requests to one server.

    Args:
        model: named in messages.
        url: address up to and including /v1.
        key: sent with every request.
        concurrency: upper bound of the calls in flight.
        timeout_s: of one attempt.
        retries: attempts beyond the first.
        wait: sleeps for given seconds between attempts.
        on_retry: called for every attempt beyond a call's first.
        on_lost: called for every attempt with unknown cost: cancelled, timed out or cut off.
        headers: sent in place of the key as a bearer's; None for a bearer's.
    """

    def __init__(
        self,
        *,
        model: str,
        url: str,
        key: str,
        concurrency: int,
        timeout_s: float,
        retries: int,
        wait: Callable[[float], Awaitable[object]],
        on_retry: Callable[[], None],
        on_lost: Callable[[], None],
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.who = f"{model} at {redact(url, key)}"
        """Model and server, for messages."""
        self.check_command = ""
        """Checks the agents file that it comes from; empty if that is unknown."""
        self._url = url
        self._key = key
        self._line = _AttemptLine(window=CallWindow.fresh(concurrency))
        self._timeout_s = timeout_s
        self._retries = retries
        self._wait = wait
        self._on_retry = on_retry
        self._on_lost = on_lost
        self._headers: dict[str, Any] = {} if headers is None else {"Authorization": openai.Omit(), **headers}

    def make_sibling(
        self,
        *,
        wait: Callable[[float], Awaitable[object]],
        on_retry: Callable[[], None],
        on_lost: Callable[[], None],
    ) -> Transport:
        """Return a transport that shares connections and queue: a server has one window for all."""
        other = copy.copy(self)
        other._wait, other._on_retry, other._on_lost = wait, on_retry, on_lost
        return other

    @property
    def window(self) -> CallWindow:
        """The current bound of calls in flight."""
        return self._line.window if self._line.session is None else self._line.session.slots.window

    async def ask(
        self,
        path: str,
        body: dict[str, Any],
        schema: type[AnswerModel],
        seed: int,
        caller: CallObserver = NO_OBSERVER,
    ) -> AnswerModel:
        """Call the model; every attempt waits for a slot of its own.

        Args:
            path: below `url`.
            seed: of the jitter between attempts.
            caller: callbacks; its limit also bounds the waits.

        Raises:
            ServerRefusal: the server refused, at once or in the last attempt.
            ModelFailure: the last attempt got no usable answer.
        """
        session = self._open()
        again = False

        # An attempt that waits for its retry must not hold a slot.
        async def attempt() -> AnswerModel:
            nonlocal again
            async with session.slots.one(again=again) as era:
                if not again:
                    # The call's clock starts with its first slot: the queue is not the server's slowness.
                    caller.on_begin()
                again = True
                try:
                    async with self._send_once():
                        response = await session.client.post(
                            path, cast_to=httpx2.Response, body=body, options={"headers": self._headers}
                        )
                        answer = read_answer(response, schema)
                except TryAgain as problem:
                    # An attempt without an answer may still be billed, so it is counted as lost.
                    if problem.unknown_cost:
                        self._on_lost()
                    # Congestion narrows the window; `era` makes one burst of refusals narrow it once.
                    if problem.congested:
                        session.slots.note_refusal(era)
                    raise
                except asyncio.CancelledError:
                    # Cancelled in flight: the server may continue and bill it.
                    self._on_lost()
                    raise
                # Answers widen the window again.
                session.slots.note_answer(era)
                return answer

        return await self._note_retry(attempt, seed, caller=caller)

    async def look(self, path: str, schema: type[AnswerModel], *, retries: int | None = None) -> AnswerModel:
        """Get a JSON document without a slot; raises like `ask`."""
        client = self._open().client

        async def attempt() -> AnswerModel:
            async with self._send_once():
                return read_answer(await client.get(path, cast_to=httpx2.Response), schema)

        return await self._note_retry(attempt, seed=0, retries=retries)

    async def read(self, url: str) -> str:
        """Get the text at an absolute address in one attempt; raises like `ask`."""
        client = self._open().client

        async def attempt() -> str:
            async with self._send_once():
                return read_text(await client.get(url, cast_to=httpx2.Response))

        return await self._note_retry(attempt, seed=0, retries=0)

    async def command(self, path: str, body: dict[str, Any], *, retries: int | None = None) -> None:
        """Post a command that changes the server, without a slot; raises like `ask`, without hints.

        An internal error (500) is final here, unlike a call's.
        """
        client = self._open().client

        async def attempt() -> None:
            try:
                async with self._send_once(hints=False):
                    await client.post(path, cast_to=httpx2.Response, body=body, options={"headers": self._headers})
            except TryAgain as problem:
                # The command itself may have caused the error, so a retry would fail again.
                if problem.status == 500:
                    raise ServerRefusal(str(problem), 500, problem.words) from None
                raise

        await self._note_retry(attempt, seed=0, retries=retries)

    async def close(self) -> bool:
        """Close the connections if no sibling needs them, and return whether that is so.

        The next request opens new ones.
        """
        line, session = self._line, self._line.session
        # Siblings share the connections; the last one to leave closes them.
        line.users.discard(id(self))
        if line.users:
            return False
        if session is not None:
            # Keep the window: the server's capacity outlives the connections.
            line.window, line.session = session.slots.window, None
            # A client belongs to its event loop and cannot be closed after it.
            if session.loop is asyncio.get_running_loop():
                await session.client.close()
        return True

    # ---------------------------------------------------------------------------------------------------- parts

    async def _note_retry(
        self,
        attempt: Callable[[], Awaitable[T]],
        seed: int,
        retries: int | None = None,
        caller: CallObserver = NO_OBSERVER,
    ) -> T:
        def note_failure(problem: str) -> None:
            self._on_retry()
            caller.on_failure(problem)

        return await call_with_retries(
            attempt,
            retries=self._retries if retries is None else retries,
            # Seeded to make waits repeatable; per call, so that parallel calls do not wait in step.
            rng=random.Random(derive(seed, "retry")),
            wait=self._wait,
            caller=replace(caller, on_failure=note_failure),
        )

    @contextlib.asynccontextmanager
    async def _send_once(self, *, hints: bool = True) -> AsyncIterator[None]:
        """Translate the errors of one request: TryAgain where another may succeed, ServerRefusal where not."""
        try:
            async with asyncio.timeout(self._timeout_s):  # the client's limit is per read
                yield
        except (TimeoutError, openai.APITimeoutError):
            # Our limit or the client's: the server was too slow and may bill the attempt.
            message = f"{self.who} gave no answer within {self._timeout_s:g} s"
            raise TryAgain(message, congested=True, unknown_cost=True) from None
        except openai.APIConnectionError as error:
            raise self._note_lost(error) from None
        except openai.APIStatusError as error:
            raise self._translate_status(
                error.status_code, quote_error(error.response), error.response, hints
            ) from None
        except ErrorInAnswer as error:
            raise self._translate_status(error.status, error.words, error.response, hints) from None
        except (Broken, TooLong, openai.APIResponseValidationError) as error:
            # A broken answer may be complete the next time, but its tokens are billed.
            message = f"{self.who} sent a broken answer: {self._clean(str(error))}"
            raise TryAgain(message, unknown_cost=True) from None

    def _note_lost(self, error: openai.APIConnectionError) -> TryAgain:
        cause = error.__cause__ or error
        words = self._clean(str(cause) or type(cause).__name__)
        # From the most specific cause to the most general: each has its own next move.
        if isinstance(cause, httpx2.DecodingError):
            return TryAgain(f"{self.who} sent a broken answer: not what its Content-Encoding says", unknown_cost=True)
        # Never connected: nothing was sent, so nothing can have been paid.
        if isinstance(cause, httpx2.ConnectError | httpx2.UnsupportedProtocol | httpx2.ProxyError):
            check = f", then try: {self.check_command}" if self.check_command else ""
            next_move = f"start the server or correct base_url{check}; vLLM's own: collab serve"
            return TryAgain(f"{self.who} cannot be reached: {words}; {next_move}")
        return TryAgain(f"{self.who} broke off: {words}; see what the server says", unknown_cost=True)

    def _translate_status(
        self, status: int, words: str, response: httpx2.Response, hints: bool
    ) -> TryAgain | ServerRefusal:
        words = self._clean(words)
        message = f"{self.who} answered {status}: {words or 'nothing'}"
        # Timeouts, conflicts, limits and the server's own errors are temporary; any other refusal is final.
        if status in (408, 409, 425, 429) or status >= 500:
            after_s = retry_after_s(response.headers)
            return TryAgain(message, status=status, words=words, after_s=after_s, congested=status in _CONGESTED)
        hint = f"; {_HINTS[status]}" if hints and status in _HINTS else ""
        return ServerRefusal(message + hint, status, words)

    def _clean(self, text: str) -> str:
        """Return a server's text as one short line without secrets; servers quote requests, keys included."""
        text = redact(flatten(text), self._key)
        return text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}…"

    def _open(self) -> _Session:
        """Return the session of the running event loop; open one if needed."""
        loop, line = asyncio.get_running_loop(), self._line
        line.users.add(id(self))
        # A transport may outlive its loop (each `asyncio.run` has its own), but sockets do not.
        if line.session is None or line.session.loop is not loop:
            client = openai.AsyncOpenAI(
                api_key=self._key,
                base_url=self._url,
                # `call_with_retries` retries, as it knows the call's limit.
                max_retries=0,
                timeout=self._timeout_s,
                http_client=BoundedClient(),
            )
            line.session = _Session(loop=loop, client=client, slots=Slots(self.window))
        return line.session


def check_address(base_url: str | None, kind: str = "openai") -> None:
    """Check that base_url is an address without a password; else ConfigError, which names the kind of model.

    None is the vendor's own.
    """
    if base_url is not None and not base_url.startswith(("http://", "https://")):
        raise ConfigError(f"{kind}: base_url {redact(base_url)!r} is no address; write it as http://host:port/v1")
    if base_url is not None and "@" in base_url.split("://", 1)[1].split("/", 1)[0]:
        raise ConfigError(f"{kind}: base_url holds a user name or password; keys stand in the environment only")


def find_key(variable: str, base_url: str | None, kind: str = "openai") -> str:
    """Return the key in an environment variable and register it as a secret; a placeholder where none is needed.

    Raises:
        ConfigError: it is no key, or the variable is not set for the vendor's own server.
    """
    key = os.environ.get(variable, "").strip() if variable else ""
    # Other characters would fail inside the HTTP client.
    if not key.isascii():
        raise ConfigError(f"{kind}: the value of {variable} is no key: keys are plain ASCII")
    # Only the default address needs a key.
    if not key and base_url is None:
        raise ConfigError(
            f"{kind}: the environment variable {variable or 'OPENAI_API_KEY'} is not set; "
            "export your key in it, or give base_url for a server of your own: "
            f"export {variable or 'OPENAI_API_KEY'}=…"
        )
    # Registered before any use, so that no message ever shows it.
    if key:
        register(key)
    return key or _NO_KEY
