"""The server: its addresses, events that report growth, and serving until it is asked to stop."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import TypeAdapter, ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp

from collab.errors import (
    CollabError,
    RunError,
    RunFormatError,
    UnknownName,
    UsageError,
    describe_error,
    outside_place,
)
from collab.view.auth import Gate, Guard, build_error_response
from collab.view.common import to_json
from collab.view.inspector import Inspector
from collab.view.labels import take_first_line
from collab.view.schema.episodes import EpisodeFilter
from collab.view.schema.runs import GrowthView
from collab.view.training import UNREADABLE

PORT = 8477
"""Default port, if it is free."""
_PATIENCE_S = 2
"""Seconds for open answers when the server is asked to stop."""


def open_listening_socket(host: str, port: int | None) -> socket.socket:
    """Open a socket that listens.

    Args:
        port: 0 for a free one; None for `PORT`, or a free one where that is taken.

    Raises:
        UsageError: the address cannot be had.
    """
    wanted = [PORT, 0] if port is None else [port]
    for number in wanted:
        try:
            return _bind_socket(host, number)
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

    config = uvicorn.Config(
        build_application(inspector, gate, stopped=lambda: server.should_exit),
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_PATIENCE_S,
    )

    class Server(uvicorn.Server):
        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            self.should_exit = (
                True  # uvicorn would raise the signal again at its end: a second one, see `collab.cli.progress`
            )

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


def _bind_socket(host: str, port: int) -> socket.socket:
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


PAUSE_S = 1.0
"""Seconds between two looks at the disk."""
WALK_S = 5.0
"""Seconds between two searches of the named folders for new runs."""
_BREATH_S = 0.2
"""Seconds between two checks of whether the server stops."""
_ALIVE_S = 15.0
"""Seconds between two signs of life, for proxies between server and page."""


async def stream_growth(
    inspector: Inspector,
    ids: Sequence[str],
    *,
    stopped: Callable[[], bool],
    pause_s: float = PAUSE_S,
    walk_s: float = WALK_S,
) -> AsyncIterator[bytes]:
    """Yield server-sent events of type "run", each a `GrowthView`: first of every run, then of each that changed.

    Args:
        ids: of runs and trainings; without any, all that are listed, new ones included.
        stopped: ends the stream.
    """
    told: dict[str, str] = {}
    alive = time.monotonic()
    listed, walk = list(ids), alive
    yield b"retry: 2000\n\n"
    while not stopped():
        if not ids and time.monotonic() >= walk:
            listed = await asyncio.to_thread(inspector.list_ids)
            walk = time.monotonic() + walk_s
        for event in await asyncio.to_thread(_find_news, inspector, listed, told):
            alive = time.monotonic()
            yield b"event: run\ndata: " + to_json(event) + b"\n\n"
        if time.monotonic() - alive > _ALIVE_S:
            alive = time.monotonic()
            yield b": still here\n\n"
        until = time.monotonic() + pause_s
        while not stopped() and time.monotonic() < until:
            await asyncio.sleep(min(_BREATH_S, pause_s))


def _find_news(inspector: Inspector, ids: Sequence[str], told: dict[str, str]) -> list[GrowthView]:
    """Find runs that have grown since the last event; missing runs are skipped."""
    found: list[GrowthView] = []
    for id in ids:
        try:
            state = inspector.describe_state(id)
            if told.get(id) != state:
                found.append(inspector.get_growth(id))
                told[id] = state
        except UNREADABLE:
            continue
    return found


STATIC = Path(__file__).parent / "static"
"""The pages."""

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".webp": "image/webp",
}
_JSON = "application/json"
_KEEP = {"Cache-Control": "private, max-age=31536000, immutable"}
"""A picture that is named by its hash never changes."""
_LONGEST = 2000
"""Most shown characters of an error: it may quote recorded text."""
_STATUS = ((UnknownName, 404), (RunFormatError, 410), (UsageError, 400), (RunError, 410))

_FILTER: TypeAdapter[EpisodeFilter] = TypeAdapter(EpisodeFilter)


def build_application(
    inspector: Inspector, gate: Gate, *, stopped: Callable[[], bool] = lambda: False, pause_s: float = PAUSE_S
) -> ASGIApp:
    """Build the whole server, guarded.

    Args:
        stopped: ends streams of events.
        pause_s: seconds between two looks at the disk for them.
    """
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    _add_errors(app)
    _add_answers(app, inspector)
    _add_pictures(app, inspector)
    _add_pages(app)

    async def live(request: Request) -> Response:
        events = stream_growth(inspector, request.query_params.getlist("run"), stopped=stopped, pause_s=pause_s)
        return StreamingResponse(events, media_type="text/event-stream")

    app.add_api_route("/api/live", live, response_model=None)
    return Guard(app, gate)


def _add_answers(app: FastAPI, inspector: Inspector) -> None:
    def episodes(id: str, request: Request) -> Response:
        given = {name: value for name, value in request.query_params.items() if value != ""}
        return _to_response(inspector.list_episodes(id, _FILTER.validate_python(given)))

    def add(address: str, ask: Callable[..., Any]) -> None:
        app.add_api_route(address, _answer_json(ask), response_model=None)

    add("/api/runs", inspector.list_runs)
    add("/api/compare", inspector.compare)
    add("/api/compare/episode", inspector.compare_episodes)
    app.add_api_route("/api/run/{id}/episodes", episodes, response_model=None)
    of_a_run: dict[str, Callable[..., Any]] = {
        "": inspector.get_run,
        "/overview": inspector.get_overview,
        "/problems": inspector.list_problems,
        "/highlights": inspector.find_steps,
        "/search": inspector.search,
        "/episode": inspector.get_episode,
        "/step": inspector.get_step,
        "/final": inspector.get_final_screen,
        "/cell": inspector.get_cell,
        "/screen": inspector.get_screen,
        "/critics": inspector.get_critics,
    }
    for address, ask in of_a_run.items():  # the arguments of each are the query's
        add(f"/api/run/{{id}}{address}", ask)


def _add_pictures(app: FastAPI, inspector: Inspector) -> None:
    def picture(id: str, hash: str) -> Response:
        return Response(inspector.read_picture(id, hash), media_type="image/webp", headers=_KEEP)

    def draw_screen(id: str, episode: str, step: str) -> Response:
        return Response(inspector.draw_screen(id, episode, step), media_type="image/png")

    app.add_api_route("/api/run/{id}/picture/{hash}", picture, response_model=None)
    app.add_api_route("/api/run/{id}/drawn", draw_screen, response_model=None)


def _add_pages(app: FastAPI) -> None:
    def page() -> Response:
        return _serve_file("index.html")

    def file(name: str) -> Response:
        return _serve_file(name)

    app.add_api_route("/", page, response_model=None)
    app.add_api_route("/static/{name:path}", file, response_model=None)


def _add_errors(app: FastAPI) -> None:
    # The first class that fits: subclasses stand before their bases in the table.
    def handle_failure(request: Request, error: Exception) -> Response:
        status = next(status for kind, status in _STATUS if isinstance(error, kind))
        return build_error_response(status, str(error)[:_LONGEST])

    def handle_unfit(request: Request, error: Exception) -> Response:
        # One problem at a time, named by the parameter and not by the model behind it.
        first = error.errors()[0] if isinstance(error, RequestValidationError | ValidationError) else {}
        where = ".".join(str(one) for one in first.get("loc", ()) if one not in ("query", "path"))
        return build_error_response(400, f"{where}: {first.get('msg', 'does not fit')}")

    def unread(request: Request, error: Exception) -> Response:
        # A run that is being written may be moved or removed while it is read: gone, and no bug.
        return build_error_response(410, f"the run changed while it was read; ask again ({error})")

    def large(request: Request, error: Exception) -> Response:
        # SQLite takes 64 bits; larger numbers in an address are no step's number.
        return build_error_response(400, "a number is too large for any run")

    def bug(request: Request, error: Exception) -> Response:
        # A part from outside that fails is named as such; everything else is a bug of ours, and is called one.
        if outside_place(error) is not None:
            return build_error_response(500, describe_error(error)[:_LONGEST])
        return build_error_response(500, f"a bug of collab: {type(error).__name__}: {take_first_line(error)}")

    def handle_unknown(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 404
        return build_error_response(status, f"{request.method} {request.url.path[:200]}: nothing answers to that")

    # Most specific first, the catch-all last.
    handlers: tuple[tuple[type[Exception], Callable[[Request, Exception], Response]], ...] = (
        (CollabError, handle_failure),
        (RequestValidationError, handle_unfit),
        (ValidationError, handle_unfit),
        (sqlite3.Error, unread),
        (OSError, unread),
        (OverflowError, large),
        (HTTPException, handle_unknown),
        (Exception, bug),
    )
    for kind, handler in handlers:
        app.add_exception_handler(kind, handler)


def _answer_json(ask: Callable[..., Any]) -> Callable[..., Response]:
    """Wrap a function so that it answers in JSON; its parameters stay those of the address."""

    @functools.wraps(ask)
    def answer(*args: Any, **parameters: Any) -> Response:
        return _to_response(ask(*args, **parameters))

    return answer


def _to_response(value: Any) -> Response:
    return Response(to_json(value), media_type=_JSON)


def _serve_file(name: str) -> Response:
    """Serve a file of the pages, found in their list: no name leads anywhere else."""
    found = {path.relative_to(STATIC).as_posix(): path for path in STATIC.rglob("*") if path.is_file()}
    path = found.get(name)
    if path is None or path.suffix not in _TYPES:
        raise UnknownName(f"no page file {name[:80]!r}")
    return Response(path.read_bytes(), media_type=_TYPES[path.suffix], headers={"Cache-Control": "no-cache"})
