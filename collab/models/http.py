"""The way to a chat-completions server and back: connections, waiting line, retries, and errors in plain words.

    transport = Transport(model="my-model", url="http://127.0.0.1:8000/v1", …)
    answer = await transport.ask("/chat/completions", body, Completion, seed=7)

The `openai` client carries the bytes and nothing else: its own retries are off; ours are below.
How many calls are in flight at once is found out by `collab.models.concurrency`, what an answer holds is read by
`collab.models.answer`. No message that leaves this module contains the key.

Model calls are retried here and nowhere else. An attempt that may succeed next time raises `TryAgain`; anything else it
raises ends the call. Waits double from half a second to half a minute, shortened by a seeded jitter of up to a half, so
that many calls that failed together do not come back together. A server's own Retry-After takes their place, up to a
minute. A wait that the call's limit would cut short is not begun: the call fails at once, with what the server said.
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
from collab.utils.redact import redact, register

T = TypeVar("T")

FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 30.0
LONGEST_ASKED_S = 60.0
"""The longest wait that a server may ask for; one that asks for more is asked again after this."""

_AGES_S = 1e9
"""Seconds from which on a wait is told without its number."""


class TryAgain(Exception):
    """An attempt failed in a way that may pass.

    Args:
        message: what happened, complete and without secrets.
        status: HTTP status; None when there was no answer.
        words: what the server said, and nothing else.
        after_s: how long the server asked to wait; None when it did not say.
        congested: whether the server has too much to do, so that fewer calls at once would help.
        unknown_cost: whether the server may have worked for an answer that never came.
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
        message: what happened, complete and without secrets.
        status: HTTP status.
        words: what the server said, and nothing else.
    """

    def __init__(self, message: str, status: int, words: str = "") -> None:
        super().__init__(message)
        self.status, self.words = status, words


@dataclass(frozen=True, slots=True, kw_only=True)
class CallObserver:
    """What a call reports to its caller, and asks it."""

    begun: Callable[[], None] = lambda: None
    """Called when the first attempt has its slot; later waiting counts as part of the call."""
    failed: Callable[[str], None] = lambda problem: None
    """Given the message of every attempt after which another follows."""
    seconds_left: Callable[[], float | None] = lambda: None
    """Returns what is left of the call's limit; None for no limit."""


NO_OBSERVER = CallObserver()
"""A call without a listener and without a limit."""


async def call_with_retries(
    attempt: Callable[[], Awaitable[T]],
    *,
    retries: int,
    rng: random.Random,
    wait: Callable[[float], Awaitable[object]],
    caller: CallObserver = NO_OBSERVER,
) -> T:
    """Call `attempt` until it succeeds, at most `retries` more times than once.

    Args:
        wait: sleeps for so many seconds; `asyncio.sleep` except in tests.

    Raises:
        ServerRefusal: the last attempt was answered with an error status.
        ModelFailure: the last attempt got no usable answer.
    """
    # Retries are our own: the client's would neither know the call's limit nor give their slot back while waiting.
    for number in range(retries + 1):
        try:
            return await attempt()
        except TryAgain as problem:
            pause, left = choose_delay_s(number, problem.after_s, rng), caller.seconds_left()
            # A wait beyond the call's limit can only end in a worse error later: fail now, with the server's words.
            if number < retries and (left is None or pause < left):
                caller.failed(str(problem))
                await wait(pause)
                continue
            tried = f"{number + 1} attempt{'s' if number else ''}"
            if number < retries:
                tried += f"; the next after {pause:.0f} s, beyond the call's limit"
            message = f"{problem} ({tried}){_format_asked_wait(problem.after_s)}"
            # With a status the server has decided; without one it may never have seen the request.
            if problem.status is None:
                raise ModelFailure(message) from None
            raise ServerRefusal(message, problem.status, problem.words) from None
    raise AssertionError("unreachable: the last attempt returns or raises")


def choose_delay_s(number: int, after_s: float | None, rng: random.Random) -> float:
    """Return the seconds to wait after attempt `number` (from 0), at most `LONGEST_ASKED_S`."""
    # The server's own wish, a little longer at random: all that it sent away must not come back at once.
    if after_s is not None:
        return min(LONGEST_ASKED_S, after_s * (1 + 0.1 * rng.random()))
    # Exponential with full jitter above one half; the exponent is bounded, for 2.0 ** 1024 raises.
    return min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** min(number, 60)) * (0.5 + 0.5 * rng.random())


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Read `Retry-After` (seconds or a date) or `retry-after-ms`; None when absent, unreadable or negative."""
    # Milliseconds first: servers that send both mean the finer one.
    for name, scale in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers[name]) / scale
        except (KeyError, ValueError):
            continue
        if math.isfinite(seconds) and seconds >= 0:
            return seconds
    # RFC 9110 allows a date, too; one in the past means now.
    try:
        return max(0.0, email.utils.parsedate_to_datetime(headers["retry-after"]).timestamp() - time.time())
    except (KeyError, ValueError, OverflowError):
        return None


def _format_asked_wait(after_s: float | None) -> str:
    """Format a wait that is longer than what is waited for; empty for others."""
    if after_s is None or after_s <= LONGEST_ASKED_S:
        return ""
    return f"; it asks to wait {after_s:.0f} s" if after_s < _AGES_S else "; it asks to wait for ever"


AnswerModel = TypeVar("AnswerModel", bound=BaseModel)


_NO_KEY = "none"
"""The client insists on a key; servers of one's own take any."""
_LONGEST_QUOTE = 300
"""Characters of a server's error that a message repeats."""
_HINTS = {
    401: "check the key",
    403: "check what the key may do",
    404: "check base_url (it usually ends in /v1) and the model's name",
}
_CONGESTED = (408, 429, 503, 504)
"""Statuses by which a server says that it has too much to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Session:
    """What belongs to one event loop."""

    loop: asyncio.AbstractEventLoop
    client: openai.AsyncOpenAI
    slots: Slots


@dataclass(slots=True, kw_only=True)
class _AttemptLine:
    """What all transports to one server share."""

    window: CallWindow
    """As it was when the last session ended."""
    session: _Session | None = None
    users: set[int] = field(default_factory=set)
    """Transports that have not closed yet, by identity."""


class Transport:
    """Requests to one server.

    Args:
        model: named in messages.
        url: address up to and including /v1.
        key: sent with every request.
        concurrency: upper bound of the calls in flight at once.
        timeout_s: of one attempt.
        retries: attempts beyond the first.
        wait: sleeps for so many seconds between attempts.
        on_retry: called for every attempt beyond a call's first.
        on_lost: called for every attempt that was sent and whose cost is not known: it was cancelled, timed out or cut
            off.
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
    ) -> None:
        self.who = f"{model} at {redact(url, key)}"
        """Model and server, for messages."""
        self._url = url
        self._key = key
        self._line = _AttemptLine(window=CallWindow.fresh(concurrency))
        self._timeout_s = timeout_s
        self._retries = retries
        self._wait = wait
        self._on_retry = on_retry
        self._on_lost = on_lost

    def make_sibling(
        self,
        *,
        wait: Callable[[float], Awaitable[object]],
        on_retry: Callable[[], None],
        on_lost: Callable[[], None],
    ) -> Transport:
        """Return another one that shares connections and waiting line: a server has one window for all."""
        other = copy.copy(self)
        other._wait, other._on_retry, other._on_lost = wait, on_retry, on_lost
        return other

    @property
    def window(self) -> CallWindow:
        """Return how many calls may be in flight now."""
        return self._line.window if self._line.session is None else self._line.session.slots.window

    async def ask(
        self,
        path: str,
        body: dict[str, Any],
        schema: type[AnswerModel],
        seed: int,
        caller: CallObserver = NO_OBSERVER,
        *,
        retries: int | None = None,
    ) -> AnswerModel:
        """Make one call of the model, in a slot of its own for every attempt.

        Args:
            path: below `url`.
            seed: of the waits between attempts.
            caller: hears how the call goes; its limit also bounds the waits.
            retries: attempts beyond the first; None for as many as calls have.

        Raises:
            ServerRefusal: the server said no, at once or in the last attempt.
            ModelFailure: the last attempt got no usable answer.
        """
        session = self._open()
        again = False

        # Each attempt takes a slot of its own: one that waits for its retry must not block others.
        async def attempt() -> AnswerModel:
            nonlocal again
            async with session.slots.one(again=again) as era:
                if not again:
                    # The call's clock starts with its first slot: waiting for a turn is not the server's slowness.
                    caller.begun()
                again = True
                try:
                    async with self._send_once():
                        response = await session.client.post(path, cast_to=httpx2.Response, body=body)
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
                    # Cancelled while on its way: the server may work on, unseen.
                    self._on_lost()
                    raise
                # Answers widen the window again.
                session.slots.note_answer(era)
                return answer

        return await self._note_retry(attempt, seed, retries, caller)

    async def look(self, path: str, schema: type[AnswerModel], *, retries: int | None = None) -> AnswerModel:
        """Get a JSON document, outside the waiting line. Raises like `ask`."""
        client = self._open().client

        async def attempt() -> AnswerModel:
            async with self._send_once():
                return read_answer(await client.get(path, cast_to=httpx2.Response), schema)

        return await self._note_retry(attempt, seed=0, retries=retries)

    async def read(self, url: str) -> str:
        """Get the text at a whole address, in one attempt. Raises like `ask`."""
        client = self._open().client

        async def attempt() -> str:
            async with self._send_once():
                return read_text(await client.get(url, cast_to=httpx2.Response))

        return await self._note_retry(attempt, seed=0, retries=0)

    async def command(self, path: str, body: dict[str, Any], *, retries: int | None = None) -> None:
        """Post something that changes the server, outside the waiting line. Raises like `ask`, without hints.

        Args:
            retries: attempts beyond the first; None for as many as calls have. Unlike a call's, an internal error
                (500) is final: doing the same again would end the same way.
        """
        client = self._open().client

        async def attempt() -> None:
            try:
                async with self._send_once(hints=False):
                    await client.post(path, cast_to=httpx2.Response, body=body)
            except TryAgain as problem:
                # An internal error after a command may come from having done it: the same again would end the same way.
                if problem.status == 500:
                    raise ServerRefusal(str(problem), 500, problem.words) from None
                raise

        await self._note_retry(attempt, seed=0, retries=retries)

    async def close(self) -> bool:
        """Close the connections, if no sibling needs them; the next request would open new ones.

        Returns:
            Whether no sibling needs them.
        """
        line, session = self._line, self._line.session
        # Siblings share the connections; the last one to leave closes them.
        line.users.discard(id(self))
        if line.users:
            return False
        if session is not None:
            # The window is kept: what was learned of the server's capacity outlives the connections.
            line.window, line.session = session.slots.window, None
            # A client belongs to its event loop; that of a dead loop cannot be closed any more.
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
        def failed(problem: str) -> None:
            self._on_retry()
            caller.failed(problem)

        return await call_with_retries(
            attempt,
            retries=self._retries if retries is None else retries,
            # Seeded, so that a run's waits can be repeated; by call, so that parallel calls do not wait in step.
            rng=random.Random(derive(seed, "retry")),
            wait=self._wait,
            caller=replace(caller, failed=failed),
        )

    @contextlib.asynccontextmanager
    async def _send_once(self, *, hints: bool = True) -> AsyncIterator[None]:
        """Translate the errors of one request: TryAgain where another may succeed, ServerRefusal where not."""
        try:
            async with asyncio.timeout(self._timeout_s):  # the client's limit is per read
                yield
        except (TimeoutError, openai.APITimeoutError):
            # Our limit or the client's: either way the server was too slow, and may have worked for nothing.
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
            # Broken answers may be whole the next time, but the tokens behind them are gone.
            message = f"{self.who} sent a broken answer: {self._clean(str(error))}"
            raise TryAgain(message, unknown_cost=True) from None

    def _note_lost(self, error: openai.APIConnectionError) -> TryAgain:
        cause = error.__cause__ or error
        words = self._clean(str(cause) or type(cause).__name__)
        # The order is from the finest cause to the coarsest: each leads to another next move.
        if isinstance(cause, httpx2.DecodingError):
            return TryAgain(f"{self.who} sent a broken answer: not what its Content-Encoding says", unknown_cost=True)
        # Never connected: nothing was sent, so nothing can have been paid.
        if isinstance(cause, httpx2.ConnectError | httpx2.UnsupportedProtocol | httpx2.ProxyError):
            next_move = "start the server or correct base_url, then try: collab agents check NAME"
            return TryAgain(f"{self.who} cannot be reached: {words}; {next_move}; vLLM's own: collab serve")
        return TryAgain(f"{self.who} broke off: {words}; see what the server says", unknown_cost=True)

    def _translate_status(
        self, status: int, words: str, response: httpx2.Response, hints: bool
    ) -> TryAgain | ServerRefusal:
        words = self._clean(words)
        message = f"{self.who} answered {status}: {words or 'nothing'}"
        # These may pass: timeouts, conflicts, limits and the server's own errors. Any other refusal is final.
        if status in (408, 409, 425, 429) or status >= 500:
            after_s = retry_after_s(response.headers)
            return TryAgain(message, status=status, words=words, after_s=after_s, congested=status in _CONGESTED)
        hint = f"; {_HINTS[status]}" if hints and status in _HINTS else ""
        return ServerRefusal(message + hint, status, words)

    def _clean(self, text: str) -> str:
        """Return foreign text in one short line without secrets."""
        # Servers quote requests, keys included: whatever leaves this module is redacted and cut.
        text = redact(flatten(text), self._key)
        return text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}…"

    def _open(self) -> _Session:
        """Return the session of the running event loop; a transport may outlive a loop."""
        loop, line = asyncio.get_running_loop(), self._line
        line.users.add(id(self))
        # A transport outlives its loop (each `asyncio.run` has its own), but sockets do not.
        if line.session is None or line.session.loop is not loop:
            client = openai.AsyncOpenAI(
                api_key=self._key,
                base_url=self._url,
                # Retries are off here and done above, where the call's limit is known.
                max_retries=0,
                timeout=self._timeout_s,
                http_client=BoundedClient(),
            )
            line.session = _Session(loop=loop, client=client, slots=Slots(self.window))
        return line.session


def check_address(base_url: str | None) -> None:
    """Check that it is an address without a password; else ConfigError. None is OpenAI's own."""
    if base_url is not None and not base_url.startswith(("http://", "https://")):
        raise ConfigError(f"openai: base_url {redact(base_url)!r} is no address; write it as http://host:port/v1")
    if base_url is not None and "@" in base_url.split("://", 1)[1].split("/", 1)[0]:
        raise ConfigError("openai: base_url holds a user name or password; keys stand in the environment only")


def find_key(variable: str, base_url: str | None) -> str:
    """Return the key in an environment variable, hidden everywhere from now on; a stand-in where none is needed.

    Raises:
        ConfigError: it is no key, or OpenAI's own server is meant and the variable is not set.
    """
    key = os.environ.get(variable, "").strip() if variable else ""
    # A key with other characters was copied wrongly, and would fail inside the HTTP client.
    if not key.isascii():
        raise ConfigError(f"openai: the value of {variable} is no key: keys are plain ASCII")
    # Only the default address needs a key; servers of one's own take any.
    if not key and base_url is None:
        raise ConfigError(
            f"openai: the environment variable {variable or 'OPENAI_API_KEY'} is not set; "
            "export your key in it, or give base_url for a server of your own: "
            f"export {variable or 'OPENAI_API_KEY'}=…"
        )
    # Registered before anything can go wrong with it, so that no message ever shows it.
    if key:
        register(key)
    return key or _NO_KEY
