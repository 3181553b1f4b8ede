"""`collab agents`: list agents, critics, verifiers and dialects, and check that they answer.

`collab serve`: serve a model with vLLM on this machine, ready for agents of the kind openai.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from collab.cli import options
from collab.cli.output import REHEARSAL, emit, print_table, say, to_data
from collab.cli.progress import handle_signals, run_interruptible
from collab.utils.progress import note

if TYPE_CHECKING:
    from collab.config import AgentDefinition, AgentsFile
    from collab.dialects.base import Dialect
    from collab.library import Library
    from collab.models.base import Capabilities, Model, Reply, Scorer
    from collab.models.vllm import Launch, ServerProcess
    from collab.rewards.registry import CriticDefinition, JudgeDefinition
    from collab.rewards.verifiers.registry import VerifierChoice
    from collab.types import Sampling


app = typer.Typer(help="Agents, critics and verifiers.", no_args_is_help=True)

TRY = "Answer with the single word: ready"
"""The tiny prompt of `collab agents check`."""


@app.command("list")
def list_agents(*, library: options.LibraryFolder = None, as_json: options.Json = False) -> None:
    """List all agents, critics and verifiers."""
    from collab.config import AgentsFile
    from collab.rollout.build import is_critic, is_verifier

    # Files that cannot be read are listed with their error, and hide no others.
    found, broken = options.read_definitions(options.open_library(library), "agents", AgentsFile)
    if as_json:
        emit(
            {
                name: {
                    **agent.model_dump(mode="json", exclude=_list_foreign_keys(agent.kind)),
                    "critic": is_critic(agent.kind),
                    "verifier": is_verifier(agent.kind),
                }
                for name, agent in found.items()
            }
            | options.build_error_data(broken)
        )
        return
    # Apart, as a critic or a verifier cannot play, and an agent cannot judge.
    rows = [
        (name, agent.kind, agent.sampling.temperature, agent.prompt, agent.description)
        for name, agent in found.items()
        if not is_critic(agent.kind) and not is_verifier(agent.kind)
    ]
    print_table(["agents", "kind", "temperature", "prompt", "description"], rows)
    for noun, is_one in (("critics", is_critic), ("verifiers", is_verifier)):
        judges = [(name, agent.kind, agent.description) for name, agent in found.items() if is_one(agent.kind)]
        if judges:
            say()
            print_table([noun, "kind", "description"], judges)


def _list_foreign_keys(kind: str) -> set[str]:
    """List the keys of an agents file that belong to other kinds."""
    from collab.rollout.build import is_critic, is_verifier

    return ({"flip"} if not is_critic(kind) else set()) | (
        {"false_positives", "false_negatives"} if not is_verifier(kind) else set()
    )


@app.command("dialects")
def list_dialects(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Dialect to explain, with its prompt and a reply.")
    ] = None,
    *,
    as_json: options.Json = False,
) -> None:
    """List the dialects of model families, or explain one: points, pictures, prompt and reply."""
    from collab.dialects.registry import DIALECTS, find_dialect

    shown = list(DIALECTS.values()) if name is None else [find_dialect(name)]
    if as_json:
        emit({one.name: _describe_dialect(one) for one in shown})
        return
    if name is None:
        rows = [
            (one.name, one.title, " and ".join(one.worlds), one.points, one.resize.title, _describe_order(one))
            for one in shown
        ]
        print_table(["dialects", "models", "actions", "points", "picture", "order"], rows)
        say(
            "\nset it in an agents file: dialect: NAME, with modality: image; auto guesses it from the model's name or "
            "config.json"
        )
        return
    for title, text in _describe_dialect(shown[0]).items():
        say(f"{title}: {text}" if "\n" not in str(text) else f"\n{title}:\n{text}")


def _describe_order(dialect: Dialect) -> str:
    if dialect.typed_items:
        return "typed items"
    return "picture, text" if dialect.is_picture_first else "text, picture"


def _describe_dialect(dialect: Dialect) -> dict[str, str]:
    """Return what is to be known of a dialect, by its title."""
    from collab.dialects.base import PastStep, build_example

    steps = [PastStep(action="open the app Clock", effect="opened Clock", reason="The clock tells the time.")]
    words = [one for one in dialect.list_verbs(dialect.worlds[0]) if one.doc or dialect.typed_items]
    return {
        "dialect": dialect.name,
        "models": dialect.title,
        "actions": " and ".join(dialect.worlds),
        "points": dialect.points,
        "picture": dialect.resize.title,
        "order": _describe_order(dialect),
        "several actions": "all are recorded, the first that is more than a look is executed",
        "documented": dialect.source,
        "system text": dialect.render_system(dialect.worlds[0], (1080, 2400)),
        "task and history": dialect.render_user("Set an alarm.", steps),
        "a reply": dialect.write([build_example(words[0], dialect.grid)], "It is there."),
    }


@app.command("check")
def check_agents(
    names: Annotated[list[str], typer.Argument(metavar="NAMES...", help="Agents or YAML files.")],
    *,
    call: Annotated[bool, typer.Option("--call/--no-call", help="Send one tiny prompt to each model.")] = True,
    timeout: Annotated[
        float,
        typer.Option("--timeout", metavar="S", min=0.1, help="Seconds allowed for all questions to one agent's model."),
    ] = 120.0,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="agents.a.b=c",
            help="Override one setting, as in collab rollout: agents.*.options.path=DIR. May be repeated.",
        ),
    ] = None,
    library: options.LibraryFolder = None,
    as_json: options.Json = False,
) -> None:
    """Check a definition, what its model supports, and that it answers one tiny prompt; a judge's model, too."""
    from collab.config import AgentDefinition, AgentsFile, Cast, load_agent, override
    from collab.rewards.registry import load_critic
    from collab.rewards.verifiers.registry import find_verifier

    definitions = options.open_library(library)
    # All definitions are read before any model is asked: a misspelt name must not cost a call.
    files = {name: definitions.load("agents", name, AgentsFile) for name in names}
    critics = {name: load_critic(definitions, name) for name in names if _is_judge("critics", files[name])}
    verifiers = {name: find_verifier(definitions, name) for name in names if _is_judge("verifiers", files[name])}
    speaking = [name for name in names if name not in critics and name not in verifiers]
    cast = Cast(agents={name: load_agent(definitions, name, AgentDefinition) for name in speaking})
    agents = override(cast, settings or ()).agents

    def check(name: str) -> Coroutine[Any, Any, dict[str, Any]]:
        if name in critics:
            return _check_critic(definitions, name, critics[name], call=call, timeout_s=timeout)
        if name in verifiers:
            return _check_verifier(name, verifiers[name], call=call, timeout_s=timeout)
        return _check(definitions, name, agents[name], call=call, timeout_s=timeout)

    found = {name: run_interruptible(check, name) for name in names}
    # Everything is known before a line is printed, so JSON and text agree.
    if as_json:
        emit(found)
        return
    for name, answer in found.items():
        # Only what is certain: an unknown ability is neither promised nor denied.
        able = ", ".join(word for word, yes in (answer["capabilities"] or {}).items() if yes is True)
        said = answer["reply"]
        say(f"{name}: ok ({answer['kind']}, {'no model' if answer['model'] is None else 'model ' + answer['model']})")
        for line in filter(None, (answer["note"], answer["dialect"])):
            say(f"  {line}")
        if able:
            say(f"  supports {able}")
        # Notes record the request form that the server accepts: the first place to look when a run differs.
        for seen in (answer["capabilities"] or {}).get("notes", ()):
            say(f"    {seen}")
        cache = answer["prefix_cache"]
        if cache is not None:
            say(f"  prefix cache: {cache['rate']:.0%} of {cache['queries']} prompt tokens found since the server began")
        if said is not None:
            say(f"  answered {said['text'][:60]!r} in {said['seconds']:.2f} s")
            # An answer without text is no failure of the call, but an agent with it would only abstain.
            if said["withheld"]:
                say(f"  warning: no text came: {said['withheld']}")


def _is_judge(group: Literal["critics", "verifiers"], file: AgentsFile) -> bool:
    """Return whether an agents file is of such a kind, or its class has the methods of one."""
    from collab.errors import ConfigError
    from collab.rollout.build import is_critic, is_verifier, load_class

    if ":" not in file.kind:
        return is_critic(file.kind) if group == "critics" else is_verifier(file.kind)
    try:
        load_class(group, file, "agents")
    except ConfigError:  # no such judge, or it cannot be imported, which the check of a model then tells
        return False
    return True


async def _check(
    definitions: Library, name: str, definition: AgentDefinition, *, call: bool, timeout_s: float
) -> dict[str, Any]:
    from collab.config import build_check_command
    from collab.models.probe import HasPrefixCache
    from collab.prompts.render import Template, read_templates
    from collab.rollout.build import build_model, check_sees
    from collab.rollout.dialects import describe_dialect

    # A mistake in a template or a dialect must not cost a call.
    texts = read_templates(definitions.find_path("prompts", definition.prompt), definition.second_calls)
    Template(definition.prompt, texts, build_check_command(f"agents/{name}", definition))
    dialect = describe_dialect(definition, f"agents/{name}")
    model = build_model(definition, f"agents/{name}")
    sampling = definition.sampling.of(0, 1, f"agents/{name}")
    capabilities = reply = cache = None
    try:
        if call and not model.privileged:
            async with _probe_within(model, name, timeout_s) as capabilities:
                check_sees(definition, capabilities, f"agents/{name}")
                reply = await _try(model, sampling, name)
                cache = await model.prefix_cache() if isinstance(model, HasPrefixCache) else None
    finally:
        await model.close()
    return {
        "kind": definition.kind,
        "critic": False,
        "verifier": False,
        "model": model.policy.base,
        "privileged": model.privileged,
        "note": f"{REHEARSAL}; its definition was checked, it answers only in an episode" if model.privileged else None,
        "dialect": dialect,
        "capabilities": to_data(capabilities),
        "prefix_cache": None if cache is None else {**to_data(cache), "rate": cache.rate},
        "reply": reply,
    }


async def _check_critic(
    definitions: Library, name: str, definition: CriticDefinition, *, call: bool, timeout_s: float
) -> dict[str, Any]:
    from collab.rewards.registry import CriticResources, read_critic_texts

    resources = CriticResources.of(name, definition, read_critic_texts(definitions, definition))
    try:
        resources.build_critic()
        found = await _check_judge(name, definition, resources.model, call=call, timeout_s=timeout_s)
    finally:
        await resources.close()
    return {**found, "critic": True, "note": f"how far it can be trusted: collab critic calibrate --critic {name}"}


async def _check_verifier(name: str, choice: VerifierChoice, *, call: bool, timeout_s: float) -> dict[str, Any]:
    from collab.rewards.verifiers.registry import open_verifier

    async with open_verifier(choice, asks=False) as resources:
        resources.build_verifier()
        found = await _check_judge(name, choice.definition, resources.model, call=call, timeout_s=timeout_s)
        if call:
            await resources.check_answers()
    note = f"how far it can be trusted: collab verifier agree --verifier {name} --runs RUN"
    return {**found, "verifier": True, "note": note}


async def _check_judge(
    name: str, definition: JudgeDefinition, model: Model | Scorer | None, *, call: bool, timeout_s: float
) -> dict[str, Any]:
    """Return what a judge's model supports and replies, if it has one."""
    from collab.models.base import Model

    capabilities = reply = None
    if call and model is not None:
        async with _probe_within(model, name, timeout_s) as capabilities:
            # A reward model says nothing: its weights are loaded by now.
            if isinstance(model, Model):
                reply = await _try(model, definition.sampling.of(0, 1, f"agents/{name}"), name)
    return {
        "kind": definition.kind,
        "critic": False,
        "verifier": False,
        "model": None if model is None else model.policy.base,
        "privileged": False,
        "dialect": None,
        "capabilities": to_data(capabilities),
        "prefix_cache": None,
        "reply": reply,
    }


@contextlib.asynccontextmanager
async def _probe_within(model: Model | Scorer, name: str, timeout_s: float) -> AsyncIterator[Capabilities]:
    """Yield what a model supports, with a limit on the time of all calls to it."""
    from collab.models.base import AskedAlike

    if not isinstance(model, AskedAlike):
        await model.probe()  # loads its weights, which takes as long as it takes
    async with _limit(f"agents/{name}", model, timeout_s):
        yield await model.probe()


@contextlib.asynccontextmanager
async def _limit(who: str, model: Model | Scorer, timeout_s: float) -> AsyncIterator[None]:
    """Bound the time of calls to a model.

    Raises:
        ModelFailure: the time is up; the message has the model's last problem.
    """
    from collab.errors import ModelFailure

    try:
        async with asyncio.timeout(timeout_s):
            yield
    except TimeoutError:
        # The last problem explains more than "timeout": it is what the retries met.
        problem = getattr(model, "problem", "")
        why = f"; before that: {problem}" if problem else ""
        raise ModelFailure(f"{who}: not all was answered within {timeout_s:g} s (--timeout){why}") from None


async def _try(model: Model, sampling: Sampling, name: str) -> dict[str, Any]:
    """Send the tiny prompt with the definition's sampling; raises ModelFailure."""
    import time

    from collab.errors import ModelFailure, boundary
    from collab.models.base import Request
    from collab.prompts.parse import read_withheld
    from collab.types import Prompt

    # With the definition's sampling: a model that refuses its temperature must fail here.
    request = Request(prompt=Prompt(system="", shared=TRY, segments=()), sampling=sampling, seed=0)
    started = time.perf_counter()
    with boundary(ModelFailure, f"agents/{name}"):
        reply: Reply = await model.generate(request)
    # Some models answer with thoughts alone, or are cut before their text: the reply is then empty.
    withheld = read_withheld(reply.finish, reply.aside)
    empty = "max_tokens cut the reply before its text" if reply.finish == "length" else "the reply is empty"
    return {
        "text": reply.text,
        "withheld": withheld.detail if withheld is not None else None if reply.text.strip() else empty,
        "seconds": round(time.perf_counter() - started, 3),
        "prompt_tokens": reply.prompt_tokens,
        "completion_tokens": reply.completion_tokens,
    }


def serve(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A Hugging Face directory or model hub id.")],
    *,
    vllm: Annotated[
        Path | None,
        typer.Option("--vllm", metavar="PATH", help="The vllm program; default: COLLAB_VLLM, then the PATH."),
    ] = None,
    port: Annotated[
        int, typer.Option("--port", metavar="N", min=0, max=65535, help="Port to listen on; 0 for a free one.")
    ] = 8000,
    adapter: Annotated[
        list[str] | None,
        typer.Option("--adapter", metavar="NAME=PATH", help="LoRA adapter to load at the start. May be repeated."),
    ] = None,
    lora_rank: Annotated[
        int | None,
        typer.Option("--lora-rank", metavar="N", min=1, help="Also accept LoRA adapters of up to this rank later."),
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option("--dtype", metavar="TYPE", help="Data type: float32, bfloat16 …; default: the checkpoint's."),
    ] = None,
    max_model_len: Annotated[
        int | None, typer.Option("--max-model-len", metavar="N", min=1, help="Longest prompt plus reply in tokens.")
    ] = None,
    argument: Annotated[
        list[str] | None,
        typer.Option("--arg", metavar="ARG", help="A further argument for vLLM: --arg=--seed=1. May be repeated."),
    ] = None,
    wait: Annotated[
        float, typer.Option("--wait", metavar="S", min=1, help="Seconds to wait until the server is healthy.")
    ] = 600,
) -> None:
    """Serve a model with vLLM on the loopback interface until Ctrl-C, with prefix caching.

    Prints the command it runs and, when the server is healthy, an agents file that uses it.
    """
    from collab.models.vllm import Launch, find_vllm, free_port, read_adapters

    # Everything is resolved before vLLM starts, which takes minutes.
    launch = Launch(
        executable=find_vllm(vllm),
        model=_resolve_model(model),
        port=free_port(port),
        adapters=read_adapters(adapter or ()),
        lora_rank=lora_rank,
        dtype=dtype,
        max_model_len=max_model_len,
        extra=_without_keys(argument or []),
    )
    # The whole command is shown, so that it can be repeated without Collab.
    note(f"running: {launch.shell_line}")
    run_interruptible(_serve, launch, wait)


def _resolve_model(model: str) -> str:
    """Return the model's name or path; UsageError for a path that does not exist."""
    from collab.errors import UsageError

    if model.startswith((".", "/", "~")) and not Path(model).expanduser().is_dir():
        raise UsageError(f"MODEL {model!r}: there is no such directory")
    return str(Path(model).expanduser()) if model.startswith("~") else model


def _without_keys(arguments: list[str]) -> tuple[str, ...]:
    """Return the arguments; UsageError for an API key among them, which every user of the machine could read."""
    from collab.errors import UsageError

    if any(argument.partition("=")[0] == "--api-key" for argument in arguments):
        raise UsageError("--arg holds an API key; export it as VLLM_API_KEY, which vLLM and the agents file both read")
    return tuple(arguments)


async def _serve(launch: Launch, wait_s: float) -> None:
    from collab.models.vllm import ServerProcess

    asked: asyncio.Future[signal.Signals] = asyncio.get_running_loop().create_future()

    def ask(name: signal.Signals) -> None:
        if not asked.done():
            asked.set_result(name)

    server, loop = ServerProcess(launch.command, launch.environment, told=note), asyncio.get_running_loop()
    with handle_signals(lambda name: loop.call_soon_threadsafe(ask, name), clean_up=server.kill):
        await _serve_until(asked, server, launch, wait_s)


async def _serve_until(
    asked: asyncio.Future[signal.Signals], server: ServerProcess, launch: Launch, wait_s: float
) -> None:
    """Run the server until a signal asks for its end; ModelFailure when it ends by itself."""
    async with server:
        ready = asyncio.create_task(server.wait_healthy(f"{launch.address}/health", wait_s))
        # Waiting for health and for a signal at once: a start may take minutes and has to be stoppable.
        await _wait_for_first(ready, asked)
        if not asked.done():
            await ready
            say(launch.agents_file.rstrip())
            note(f"healthy at {launch.address}; keep the lines above as agents/NAME.yaml. Stop with Ctrl-C.")
            await _wait_for_first(asyncio.create_task(server.wait_ended()), asked)
        # The server ended by itself: its last words are the error.
        if not asked.done():
            raise await server.make_exit_error()
        note("stopping the server; once more to end it at once")
        ready.cancel()
        await server.stop(asked.result())


async def _wait_for_first(*events: asyncio.Future[Any]) -> None:
    """Wait for one of several."""
    await asyncio.wait(events, return_when=asyncio.FIRST_COMPLETED)
