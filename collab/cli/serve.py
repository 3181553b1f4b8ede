"""`collab serve`: a model behind vLLM on this machine, ready for agents of the kind openai."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from collab.cli.interrupt import asking
from collab.cli.output import note, say

if TYPE_CHECKING:
    from collab.models.process import ServerProcess
    from collab.models.vllm import Launch


def serve(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A Hugging Face directory or model hub id.")],
    *,
    vllm: Annotated[
        Path | None,
        typer.Option("--vllm", metavar="PATH", help="The vllm program; default: COLLAB_VLLM, then the PATH."),
    ] = None,
    port: Annotated[int, typer.Option("--port", metavar="N", min=0, max=65535, help="0 for a free one.")] = 8000,
    adapter: Annotated[
        list[str] | None,
        typer.Option("--adapter", metavar="NAME=PATH", help="A LoRA adapter to have from the start. May be repeated."),
    ] = None,
    lora_rank: Annotated[
        int | None,
        typer.Option("--lora-rank", metavar="N", min=1, help="Take LoRA adapters up to this rank while running, too."),
    ] = None,
    dtype: Annotated[
        str | None, typer.Option("--dtype", metavar="TYPE", help="float32, bfloat16 …; default: the checkpoint's.")
    ] = None,
    max_model_len: Annotated[
        int | None, typer.Option("--max-model-len", metavar="N", min=1, help="Longest prompt plus reply in tokens.")
    ] = None,
    argument: Annotated[
        list[str] | None,
        typer.Option("--arg", metavar="ARG", help="A further argument for vLLM: --arg=--seed=1. May be repeated."),
    ] = None,
    wait: Annotated[float, typer.Option("--wait", metavar="S", min=1, help="Seconds until it must be healthy.")] = 600,
) -> None:
    """Serve a model with vLLM on the loopback interface until Ctrl-C, with prefix caching.

    Prints the command it runs and, when the server is healthy, an agents file that uses it.
    """
    from collab.models.vllm import Launch, find_vllm, free_port, read_adapters

    launch = Launch(
        executable=find_vllm(vllm),
        model=_known(model),
        port=free_port(port),
        adapters=read_adapters(adapter or ()),
        lora_rank=lora_rank,
        dtype=dtype,
        max_model_len=max_model_len,
        extra=_without_keys(argument or []),
    )
    note(f"running: {launch.shell_line}")
    asyncio.run(_serve(launch, wait))


def _known(model: str) -> str:
    """The model; UsageError when it is written as a path and nothing is there."""
    from collab.errors import UsageError

    if model.startswith((".", "/", "~")) and not Path(model).expanduser().is_dir():
        raise UsageError(f"MODEL {model!r}: there is no such directory")
    return str(Path(model).expanduser()) if model.startswith("~") else model


def _without_keys(arguments: list[str]) -> tuple[str, ...]:
    """The arguments; UsageError for a key among them, which everybody on the machine could read."""
    from collab.errors import UsageError

    if any(argument.partition("=")[0] == "--api-key" for argument in arguments):
        raise UsageError("--arg holds an API key; export it as VLLM_API_KEY, which vLLM and the agents file both read")
    return tuple(arguments)


async def _serve(launch: Launch, wait_s: float) -> None:
    from collab.models.process import ServerProcess

    asked: asyncio.Future[signal.Signals] = asyncio.get_running_loop().create_future()

    def ask(name: signal.Signals) -> None:
        if not asked.done():
            asked.set_result(name)

    server, loop = ServerProcess(launch.command, launch.environment, told=note), asyncio.get_running_loop()
    with asking(lambda name: loop.call_soon_threadsafe(ask, name), clean_up=server.kill):
        await _serve_until(asked, server, launch, wait_s)


async def _serve_until(
    asked: asyncio.Future[signal.Signals], server: ServerProcess, launch: Launch, wait_s: float
) -> None:
    """Run the server until a signal asks for its end; ModelFailure when it ends by itself."""
    async with server:
        ready = asyncio.create_task(server.healthy(f"{launch.address}/health", wait_s))
        await _first(ready, asked)
        if not asked.done():
            await ready
            say(launch.agents_file.rstrip())
            note(f"healthy at {launch.address}; keep the lines above as agents/NAME.yaml. Stop with Ctrl-C.")
            await _first(asyncio.create_task(server.ended()), asked)
        if not asked.done():
            raise await server.obituary()
        note("stopping the server; once more to end it at once")
        ready.cancel()
        await server.stop(asked.result())


async def _first(*events: asyncio.Future[Any]) -> None:
    """Wait for one of several."""
    await asyncio.wait(events, return_when=asyncio.FIRST_COMPLETED)
