"""The Python interface of `collab rollout`, `eval`, `train` and `runs show`; it takes the same values as the commands.

    import asyncio, collab

    result = asyncio.run(collab.collect(agents="rehearsal", episodes=20))       # in a notebook: await collab.collect(…)
    print(result.report.planned)                    # 85.0% [64.0%, 94.8%] (17/20)
    for trajectory in result.trajectories:
        print(trajectory.id, trajectory.success, len(trajectory.steps))

Names are looked up as on the command line: a path, the user's `library`, the built-in definitions.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from collab.config import Budget, RunConfig, SplitChoice, strip_run_prefix
from collab.data.splits import TRAIN
from collab.errors import UsageError
from collab.evaluation.metrics import Report
from collab.evaluation.report import find_recorded, report_of, suggest_commands
from collab.library import Library
from collab.rollout.build import has_parameter
from collab.rollout.plan import has_episode_count, resolve_run, run_config
from collab.rollout.run import RunResult, choose_out, start
from collab.rollout.seeds import SeriesResult, build_series_result, plan_series, play_missing
from collab.store.reader import RunReader
from collab.utils.progress import Job, ResultT, note, show_work
from collab.utils.redact import redact
from collab.utils.text import format_amount, read_numbers, split_names
from collab.utils.trust import trust_all

if TYPE_CHECKING:
    from collab.loop.loop import TrainingResult

Names: TypeAlias = str | Sequence[str]
"""Names with commas, or one by one."""
Agents: TypeAlias = str | os.PathLike[str] | Mapping[str, str]
"""A name for all slots, "ada=x,ben=y", "runs/marl@best", or slot → name."""
Settings: TypeAlias = str | Sequence[str] | Mapping[str, Any]
"""Values of --set: "graph.rounds=2", several of them, or {"graph.rounds": 2}."""


async def collect(
    *,
    env: str | os.PathLike[str] = "androidworld",
    agents: Agents = "pocket",
    graph: str | os.PathLike[str] = "team",
    backend: str | None = None,
    tasks: Names = (),
    split: str | None = None,
    episodes: int | None = None,
    seed: int = 0,
    serial: str | None = None,
    allow_apps: Names = (),
    allow_effects: bool = False,
    executor: str = "local",
    workers: int | None = None,
    concurrency: int = 4,
    budget: Budget | str | None = None,
    settings: Settings = (),
    out: Path | str | None = None,
    library: Path | str | None = None,
    trust: bool = False,
    progress: bool = True,
) -> RunResult:
    """Play a team and record it.

    Args:
        env: environment, e.g. "androidworld"; a name or a path to a YAML file. So is `graph`.
        agents: a name for all slots, "ada=x,ben=y", {"ada": "x"}, or a trained team: "runs/marl@best".
        tasks: names, "tag:word" or "all", with commas or one by one; empty uses the environment's file.
        split: keep to one of the environment's splits (`collab env splits`), e.g. "train"; None keeps to none.
        episodes: in all; None plays every chosen task once.
        serial: of the device, like `allow_apps` and `allow_effects`; see `collab rollout --help`.
        executor: "local" plays in this process, "ray" in `workers` workers; see `collab rollout --help`.
        budget: e.g. "usd=2,minutes=30".
        settings: overrides like --set, e.g. "graph.rounds=2" or {"graph.rounds": 2}.
        out: run directory to create; None chooses one under `runs/`.
        library: folder with your own definitions; None uses the one that COLLAB_LIBRARY names, if any.
        progress: whether progress is shown on stderr.

    Raises:
        UsageError: something does not fit; nothing was started.
        StoreFailure: the run cannot be written.
    """
    # Types first: Python callers have no command line that would have refused a wrong one.
    _check_types(collect, locals())
    trust_all(trust)
    definitions = _open_library(library)
    named = _split_names("tasks", tasks)
    # Through the same function as the command, so that both refuse the same things.
    config = await configure_run(
        definitions,
        "rollout",
        env=os.fspath(env),
        agents=_join_agents(agents),
        graph=os.fspath(graph),
        backend=backend,
        tasks=named,
        split=split,
        episodes=episodes,
        seed=seed,
        serial=serial,
        allow_apps=_split_names("allow_apps", allow_apps),
        allow_effects=allow_effects,
        executor=executor,
        workers=workers,
        concurrency=concurrency,
        budget=budget,
        settings=_list_settings(settings),
    )
    return await _play(config, definitions, named, out, progress=progress)


async def evaluate(
    *,
    env: str | os.PathLike[str] = "androidworld",
    agents: Agents = "pocket",
    graph: str | os.PathLike[str] = "team",
    backend: str | None = None,
    tasks: Names = (),
    split: str | None = None,
    episodes: int | None = None,
    seed: int | None = None,
    seeds: str | Sequence[int] | None = None,
    serial: str | None = None,
    allow_apps: Names = (),
    allow_effects: bool = False,
    executor: str = "local",
    workers: int | None = None,
    concurrency: int = 4,
    budget: Budget | str | None = None,
    settings: Settings = (),
    out: Path | str | None = None,
    library: Path | str | None = None,
    trust: bool = False,
    progress: bool = True,
) -> RunResult | SeriesResult:
    """Measure a team: like `collect`, with the evaluation seed and one graph per task, the same for every team.

    Args:
        seed: None for 30.
        seeds: several, e.g. [30, 31] or "30,31": a run for each in `out`, and one common result. `episodes` counts per
            seed, `budget` is for all. The same call again plays what is missing.

    Returns:
        A `RunResult`; of several seeds a `collab.rollout.seeds.SeriesResult`, with `report` and `by_seed`.

    Raises:
        UsageError, StoreFailure: as `collect`.
    """
    # As in `collect`: types, trust, library, then the configuration of the command.
    _check_types(evaluate, locals())
    trust_all(trust)
    definitions = _open_library(library)
    named, overrides = _split_names("tasks", tasks), _list_settings(settings)
    # Seeds as the command line spells them, so that one parser decides what they mean.
    several = seeds if seeds is None or isinstance(seeds, str) else ",".join(map(str, seeds))
    chosen = choose_seeds(seed, None if several is None else [several], overrides)
    # All configurations before the first run: a mistake in the third must not cost two runs.
    configs = [
        await configure_run(
            definitions,
            "eval",
            env=os.fspath(env),
            agents=_join_agents(agents),
            graph=os.fspath(graph),
            backend=backend,
            tasks=named,
            split=split,
            episodes=episodes,
            seed=one,
            serial=serial,
            allow_apps=_split_names("allow_apps", allow_apps),
            allow_effects=allow_effects,
            executor=executor,
            workers=workers,
            concurrency=concurrency,
            budget=budget,
            settings=overrides,
        )
        for one in chosen
    ]
    if seeds is None:
        return await _play(configs[0], definitions, named, out, progress=progress)
    return await _play_series(configs, definitions, named, out, progress=progress)


async def train(
    *,
    agents: Agents,
    out: Path | str,
    env: str | os.PathLike[str] = "androidworld",
    graph: str | os.PathLike[str] = "team",
    algo: str = "collabuiagents",
    preset: str | None = None,
    ablation: str | None = None,
    backend: str | None = None,
    tasks: Names = (),
    instructions: Path | str | None = None,
    offline: Sequence[Path | str] = (),
    allow_overlap: bool = False,
    fork: str | None = None,
    split: str | None = TRAIN,
    seed: int = 0,
    calibrations: Path | str | None = None,
    allow_uncalibrated: bool = False,
    device: str = "auto",
    report_to: Names = (),
    executor: str = "local",
    workers: int | None = None,
    concurrency: int | None = None,
    budget: Budget | str | None = None,
    settings: Settings = (),
    library: Path | str | None = None,
    trust: bool = False,
    progress: bool = True,
) -> TrainingResult:
    """Train a team, epoch by epoch, as `collab train` does; `collab train --resume` resumes a stopped training.

    Args:
        agents: the policy to begin with, e.g. "pocket" or "runs/marl@best".
        out: directory to create.
        algo: the algorithm, e.g. "collabuiagents", "filtered-bc" or one of an installed package.
        preset: its method: a name, or a YAML file; None for its own.
        ablation: what to change of it; see `collab train --help`, like `calibrations`, `device` and
            `allow_uncalibrated`.
        instructions: directory of `collab synth`; its instructions are trained on, the own tasks measured.
        offline: recorded runs that epoch 1 learns from instead of playing; `allow_overlap` takes even those that hold
            what is kept for evaluation.
        fork: "RUN@epochN": begin with the epochs of this training up to N; settings of the method may differ then.
        split: "train" keeps to the training split and measures on new seeds; None keeps to none.
        executor: as for `collect`, with `workers`.
        concurrency: episodes at once; None for as many as fill the engine of a local policy, from 4 to 48.
        settings: of the method or of the run, e.g. {"epochs": 2, "graph.rounds": 2}.

    Raises:
        UsageError: something does not fit; nothing was started.
        RunError: something failed while working; its results stay.
    """
    _check_types(train, locals())
    from collab.loop.configure import configure as configure_training
    from collab.loop.loop import start as start_training
    from collab.loop.report import format_epochs

    trust_all(trust)
    config = await configure_training(
        _open_library(library),
        algorithm=algo,
        preset=preset,
        ablation=ablation,
        env=os.fspath(env),
        graph=os.fspath(graph),
        agents=_join_agents(agents),
        backend=backend,
        tasks=_split_names("tasks", tasks),
        instructions=None if instructions is None else Path(instructions),
        split=split,
        seed=seed,
        executor=executor,
        workers=workers,
        concurrency=concurrency,
        settings=_list_settings(settings),
        recorded=[Path(one) for one in offline],
        allow_overlap=allow_overlap,
    )
    if config.overlap is not None and progress:
        note(config.overlap)
    # Begun only when the display is there, which also turns Ctrl-C into a stop.
    begin = partial(
        start_training,
        config,
        Path(out),
        options=build_check_options(calibrations, allow_uncalibrated),
        fork=fork,
        budget=Budget.parse(budget) if isinstance(budget, str) else budget,
        device=device,
        report_to=_split_names("report_to", report_to),
        note=note if progress else _say_nothing,
    )
    return await _run_with_progress(
        lambda watch, stop: begin(watch=watch, stop=stop),
        progress,
        opening=f"training by {config.called}, in {out}",
        news=lambda going: format_epochs(going.records),
    )


def open_run(path: Path | str) -> Run:
    """Read a recorded run, also while it is being written.

        with collab.open_run("runs/first") as run:
            print(run.report.planned)
            for trajectory in run.iterate_trajectories():
                print(trajectory.id, trajectory.success)

    Raises:
        RunFormatError: there is no run, or it cannot be read.
        UsageError: several runs lie there: a training, a transfer, an evaluation over several seeds; or it is no path.
    """
    _check_types(open_run, locals())
    found = find_recorded(Path(path))
    if found.kind != "run":
        raise UsageError(suggest_commands(found, 'collab.open_run("{}")'))
    return Run(found.path)


class Run(RunReader):
    """A recorded run: `report`, `status`, `manifest`, `list_episodes()`, `read_trajectory(id)` and the rest."""

    @property
    def report(self) -> Report:
        """Results of the team, over all planned episodes."""
        return report_of(self)

    def __repr__(self) -> str:
        return f"<Run {self.directory}: {self.status}, {self.manifest.environment}, success {self.report.planned}>"


# ---------------------------------------------------------------------------------------------- what was given


def _check_types(function: Callable[..., object], given: Mapping[str, object]) -> None:
    """Check the type of each argument of a public function; None is allowed where it is the default.

    Numbers are left to the checks of a run's configuration, which know their bounds, too.

    Raises:
        UsageError: a type is wrong.
    """
    parameters = inspect.signature(function).parameters
    for name, value in given.items():
        fits, allowed = _TAKES.get(name, (_is_anything, ""))
        if fits(value) or (value is None and parameters[name].default is None):
            continue
        call, got = f"collab.{function.__name__}", " ".join(redact(repr(value)).split())
        raise UsageError(f"{call}: {name} takes {allowed}; got {got:.80} ({type(value).__name__}); see help({call})")


def _is_anything(_: object) -> bool:
    return True


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_path(value: object) -> bool:
    return isinstance(value, str | os.PathLike) and isinstance(os.fspath(value), str)


def _is_list(value: object, fits: Callable[[object], bool] = _is_text) -> bool:
    """Return whether it is a text, or a finite collection of values that fit."""
    if isinstance(value, str):
        return True
    return isinstance(value, Collection) and not isinstance(value, bytes | Mapping) and all(map(fits, value))


def _is_agents(value: object) -> bool:
    if isinstance(value, Mapping):
        return bool(value) and all(map(_is_text, value)) and all(map(_is_path, value.values()))
    return _is_path(value)


def _is_settings(value: object) -> bool:
    return all(map(_is_text, value)) if isinstance(value, Mapping) else _is_list(value)


_NAMES = (_is_list, 'names, as "a,b" or ["a", "b"]')
_DEFINITION = (_is_path, "a name or the path of a YAML file")
_FOLDER = (_is_path, "the path of a folder")
_TEXT = (_is_text, "a text")
_FLAG = (lambda value: isinstance(value, bool), "True or False")
_TAKES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "env": _DEFINITION,
    "agents": (_is_agents, 'a name, "ada=x,ben=y", {"ada": "x", "ben": "y"} or "runs/marl@best"'),
    "graph": _DEFINITION,
    "algo": _TEXT,
    "preset": _TEXT,
    "ablation": _TEXT,
    "fork": _TEXT,
    "backend": _TEXT,
    "tasks": _NAMES,
    "split": _TEXT,
    "seeds": (partial(_is_list, fits=_is_anything), 'several whole numbers, as [30, 31] or "30,31"'),
    "serial": _TEXT,
    "executor": _TEXT,
    "device": _TEXT,
    "allow_apps": _NAMES,
    "report_to": _NAMES,
    "budget": (lambda value: isinstance(value, str | Budget), 'a text, e.g. "usd=2,minutes=30"'),
    "settings": (_is_settings, '"graph.rounds=2", several of them in a list, or {"graph.rounds": 2}'),
    "out": _FOLDER,
    "path": _FOLDER,
    "library": _FOLDER,
    "calibrations": _FOLDER,
    "instructions": _FOLDER,
    "offline": (partial(_is_list, fits=_is_path), "a list of paths of runs"),
    "allow_overlap": _FLAG,
    "allow_effects": _FLAG,
    "allow_uncalibrated": _FLAG,
    "trust": _FLAG,
    "progress": _FLAG,
}
"""Parameter of the public functions → check of a value, and allowed values in words."""


def _open_library(folder: Path | str | None) -> Library:
    own = folder or os.environ.get("COLLAB_LIBRARY")
    return Library(own=Path(own) if own else None)


def _join_agents(given: Agents) -> str:
    if isinstance(given, Mapping):
        return ",".join(f"{slot}={name}" for slot, name in given.items())
    return os.fspath(given)


def _list_settings(given: Settings) -> list[str]:
    if isinstance(given, str):
        return [given]
    if isinstance(given, Mapping):
        return [f"{name}={_format_setting(name, value)}" for name, value in given.items()]
    return list(given)


def _format_setting(name: str, value: object) -> str:
    """Format a setting's value as --set reads it; UsageError if a file could not hold it."""
    try:
        return json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        got = " ".join(redact(repr(value)).split())
        raise UsageError(
            f"settings: {name} takes what a YAML file holds: a number, a text, True, None, a list or a dict of them; "
            f"got {got:.80} ({type(value).__name__})"
        ) from None


def _split_names(name: str, given: Names) -> list[str]:
    return split_names(name, [given] if isinstance(given, str) else list(given))


# ------------------------------------------------------------------------------------- from names to a configuration

EVALUATION_SEED = 30
"""Suite seed of evaluations if none is named."""


async def configure_run(
    library: Library,
    purpose: Literal["rollout", "eval"],
    *,
    agents: str,
    graph: str,
    split: str | None,
    episodes: int | None,
    budget: Budget | str | None,
    settings: Sequence[str],
    serial: str | None,
    allow_apps: Sequence[str],
    allow_effects: bool,
    tells: bool = True,
    **choices: Any,
) -> RunConfig:
    """Configure a run from names, with its tasks resolved; every task once unless a number is given.

    Args:
        split: keep to this split of the environment; None keeps to none.
        serial: of the device, like `allow_apps` and `allow_effects`: options of the backend with flags of their own.
        tells: whether to report what differs from how a trained team was measured.
        choices: as for `collab.rollout.plan.run_config`.

    Raises:
        UsageError: something does not fit.
    """
    trained, may_be_trained = None, "@" in agents or os.path.isfile(os.path.join(agents, "training.json"))
    if may_be_trained:  # only then is the code that reads trainings imported
        from collab.loop.trained import list_differences, load_trained_agents

        trained = load_trained_agents(library, agents, graph)
    config = run_config(
        library=library,
        purpose=purpose,
        graph=graph,
        agents=agents if trained is None else Path(agents).name,
        filled=trained,
        episodes=episodes,
        budget=Budget.parse(budget) if isinstance(budget, str) else budget,
        settings=settings,
        **choices,
    )
    for told in list_differences(agents, config) if tells and may_be_trained else ():
        note(told)
    device = {"serial": serial, "allow_apps": list(allow_apps), "allow_effects": allow_effects}
    config = _with_device(config, {option: value for option, value in device.items() if value})
    return await resolve_run(config, once_per_task=not has_episode_count(episodes, settings), split=split)


def _with_device(config: RunConfig, asked: Mapping[str, Any]) -> RunConfig:
    """Return the run with these options of its backend; UsageError if it has no such option."""
    environment = config.environment
    # An option that the backend does not take would be ignored silently.
    for option in asked:
        taking = [name for name, part in environment.backends.items() if has_parameter(part, option)]
        if environment.backend not in taking:
            raise UsageError(
                f"--{option.replace('_', '-')} means nothing to the backend {environment.backend} of "
                f"{config.environment_name}; it is for: {', '.join(taking) or 'none of its backends'}"
            )
    part = environment.part.model_copy(update={"options": environment.part.options | dict(asked)})
    backends = environment.backends | {environment.backend: part}
    return config.model_copy(update={"environment": environment.model_copy(update={"backends": backends})})


def choose_seeds(seed: int | None, seeds: Sequence[str] | None, settings: Sequence[str]) -> list[int]:
    """Return all run seeds; UsageError if something beside `--seeds` names one, too, or one is no whole number."""
    if seeds is None:
        return [EVALUATION_SEED if seed is None else seed]
    if seed is not None:
        raise UsageError("--seed and --seeds both say which; leave one of them out")
    if any(strip_run_prefix(setting).partition("=")[0] == "seed" for setting in settings):
        raise UsageError("--set seed=… and --seeds both say which; leave one of them out")
    return read_numbers("--seeds", seeds)


def build_check_options(calibrations: Path | str | None, allow_uncalibrated: bool) -> dict[str, Any]:
    """Return the given options of the algorithm beside the configuration (see `Algorithm.check`)."""
    folder = {} if calibrations is None else {"calibrations": Path(calibrations)}
    return {**folder, **({"allow_uncalibrated": True} if allow_uncalibrated else {})}


def report_left_out(asked: Iterable[str], split: SplitChoice | None, kept: Collection[str]) -> None:
    """Report which tasks that were requested by name a split left out.

    Args:
        asked: items of --tasks; tags and "all" request only those in the split.
        split: None if no split was chosen.
        kept: tasks of the run.
    """
    outside = [one for one in asked if one != "all" and not one.startswith("tag:") and one not in kept]
    if split is not None and outside:
        note(f"left out, because they are not in split {split.name}: {', '.join(outside)}")


# ------------------------------------------------------------------------------------------------ what is done


async def _play(
    config: RunConfig, library: Library, named: Sequence[str], out: Path | str | None, *, progress: bool
) -> RunResult:
    path = choose_out(config) if out is None else Path(out)
    if progress:
        report_left_out(named, config.split, config.tasks)
    return await _run_with_progress(
        lambda watch, stop: start(config, library, path, note=_warn, watch=watch, stop=stop),
        progress,
        opening=format_opening(config, path),
    )


def format_opening(config: RunConfig, path: Path) -> str:
    """Format the first line of a run."""
    agents = "+".join(dict.fromkeys(config.agent_names.values()))
    what = f"{format_amount(config.episodes, 'episode')} of {config.environment_name}"
    return f"playing {what} with {agents} on {config.graph_name}, recorded in {path}"


async def _play_series(
    configs: Sequence[RunConfig], library: Library, named: Sequence[str], out: Path | str | None, *, progress: bool
) -> SeriesResult:
    folder = choose_out(configs[0]) if out is None else Path(out)
    if progress:
        report_left_out(named, configs[0].split, configs[0].tasks)
    runs = await plan_series(configs, library, folder)
    play = partial(play_missing, runs, library, budget=configs[0].budget, note=note if progress else _say_nothing)
    stopped = await _run_with_progress(lambda watch, stop: play(watch=watch, stop=stop), progress)
    return build_series_result(folder, runs, stopped)


async def _run_with_progress(job: Job[ResultT], progress: bool, **shown: Any) -> ResultT:
    """Await a job, with progress on stderr if wanted."""
    return await (show_work(job, **shown) if progress else job(_say_nothing, asyncio.Event()))


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=2)


def _say_nothing(_: object) -> None:
    """Ignore an update."""
