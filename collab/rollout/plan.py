"""From what was asked for to the episodes of a run: its configuration, tasks and their order, splits."""

from __future__ import annotations

import random
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from collab.config import (
    FEW_AT_ONCE,
    AgentDefinition,
    Budget,
    EnvironmentDefinition,
    GraphDefinition,
    RunConfig,
    fill_slots,
    load_agent,
    load_environment,
    override,
    shorten_name,
    strip_run_prefix,
    validate,
)
from collab.data.splits import Split, TrainingInstance, check_plan, find_split, read_splits, restore_apps, restrict_run
from collab.envs.base import Suite, TaskInfo
from collab.errors import (
    UnknownName,
    UsageError,
)
from collab.library import Library
from collab.rollout.build import build_environment, build_suite, describe_place, refuse_critics
from collab.rollout.episode import Episode
from collab.rollout.protocols import list_tasks
from collab.seeds import derive, generator

_MOST_AT_ONCE = 48
_MAX_BATCH = 64
"""Default of a local engine (`collab.models.local.LocalModel`)."""


def run_config(
    *,
    library: Library,
    env: str,
    graph: str,
    agents: str,
    filled: Mapping[str, AgentDefinition] | None = None,
    backend: str | None = None,
    tasks: Sequence[str] = (),
    episodes: int | None = None,
    seed: int = 0,
    executor: str = "local",
    workers: int | None = None,
    concurrency: int | None = FEW_AT_ONCE,
    budget: Budget | None = None,
    purpose: Literal["rollout", "eval"] = "rollout",
    settings: Sequence[str] = (),
) -> RunConfig:
    """Configure a run from names; the suite resolves task names later ("all", "tag:…").

    Args:
        filled: slot → agent, if agents files do not define them; `agents` only names them then.
        workers: number of Ray workers, in place of `concurrency`; None keeps that.
        concurrency: None for `choose_concurrency`.

    Raises:
        UnknownName, ConfigError, GraphError: see the library and `fill_slots`; a number is out of its bounds.
        UsageError: workers are counted where none play.
    """
    # Environment and graph before agents: how many slots must be filled is the graph's to say.
    environment = load_environment(library, env)
    if backend is not None:
        if backend not in environment.backends:
            raise UnknownName.of(f"backend of {env}", backend, environment.backends, "see them with: collab env list")
        environment = environment.model_copy(update={"backend": backend})
    graph_definition = library.load("graphs", graph, GraphDefinition)
    names = fill_slots(agents, graph_definition.slots) if filled is None else dict.fromkeys(filled, agents)
    if filled is None:
        filled = {slot: load_agent(library, name, AgentDefinition) for slot, name in names.items()}
    # `*_name` fields are for people; the definitions themselves go into the run, so that files may change later.
    chosen = {
        "purpose": purpose,
        "environment_name": shorten_name(env),
        "environment": environment,
        "graph_name": shorten_name(graph),
        "graph": graph_definition,
        "agents": dict(filled),
        "agent_names": {slot: shorten_name(name) for slot, name in names.items()},
        "tasks": list(tasks) or environment.own_tasks,
        "episodes": 1 if episodes is None else episodes,
        "seed": seed,
        "executor": executor,
        "concurrency": next((number for number in (workers, concurrency) if number is not None), FEW_AT_ONCE),
        "budget": budget or Budget(),
    }
    # Settings last, on the validated whole: `--set` reaches every field, and is checked like one.
    run = override(validate(RunConfig, chosen, "what was asked for"), settings)
    # Chosen by the agents as they are after the settings; a setting of the number itself stays.
    if workers is not None:
        check_workers(run.executor, workers)
    elif concurrency is None and not any(one.startswith("concurrency=") for one in settings):
        run = run.model_copy(update={"concurrency": choose_concurrency(run)})
    return run


def check_workers(executor: str, workers: int) -> None:
    """Refuse a number of workers where none play."""
    if executor == "local":
        raise UsageError(
            f"--workers {workers}: counts Ray workers, and this run is played in this process; "
            f"add --executor ray, or use --concurrency {workers}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The place where the rest of some work is played, which decides no episode; None keeps what its runs have."""

    executor: Literal["local", "ray"] | None = None
    workers: int | None = None
    """Number of Ray workers."""
    concurrency: int | None = None
    """Episodes at once; `workers` counts before it."""

    def apply(self, run: RunConfig) -> RunConfig:
        """Return the run with its place changed; UsageError if workers are counted where none play."""
        executor = self.executor or run.executor
        if self.workers is not None:
            check_workers(executor, self.workers)
        asked = (self.workers, self.concurrency, run.concurrency)
        number = next(one for one in asked if one is not None)
        return run.model_copy(update={"executor": executor, "concurrency": number})


UNMOVED = Placement()
"""Everything stays where it is."""


def choose_concurrency(run: RunConfig) -> int:
    """Return how many episodes to play at once where the agents' engine decides.

    A checkpoint in this process computes up to `max_batch` cells together: as many episodes fill that as have one cell
    per slot, from 4 to 48. Other engines, and one that computes cell by cell, get 4.
    """
    engines = list(run.agents.values())
    if any(one.kind != "local" or one.options.get("determinism") == "exact" for one in engines):
        return FEW_AT_ONCE
    batches = [one.options.get("max_batch", _MAX_BATCH) for one in engines]
    batch = min((one for one in batches if isinstance(one, int)), default=_MAX_BATCH)
    return max(FEW_AT_ONCE, min(_MOST_AT_ONCE, batch // len(engines)))


# -------------------------------------------------------------------------------------------------------- plan


def resolve_task_names(suite: Suite, wanted: Sequence[str], env: str, definition: EnvironmentDefinition) -> list[str]:
    """Resolve task names: "all", "tag:word" (every task with that tag) or plain names.

    Args:
        env: the user's name of the environment, for messages.
        definition: of the environment; if `wanted` is its own choice, messages name its file.

    Returns:
        Each name once: first the plain names, in their order, then the others in the suite's.

    Raises:
        UnknownName: a name or tag that no task has.
        UsageError: nothing is left.
    """
    # Listed once: suites may read their tasks from a server.
    infos = list_tasks(suite)
    known = {info.name for info in infos}
    tags = {tag for info in infos for tag in (*info.tags, *info.apps, info.difficulty or "", "oracle" * info.oracle)}
    # A set, as tasks may be named and tagged at once; the order is restored below.
    chosen: set[str] = set()
    for item in wanted:
        tag = item.removeprefix("tag:")
        if item == "all":
            chosen |= known
        elif item.startswith("tag:"):
            if tag not in tags:
                raise _build_unknown_error("tag", tag, tags - {""}, wanted, env, definition)
            chosen |= {
                info.name
                for info in infos
                if tag in (*info.tags, *info.apps, info.difficulty) or (tag == "oracle" and info.oracle)
            }
        elif item in known:
            chosen.add(item)
        else:
            raise _build_unknown_error("task", item, known, wanted, env, definition)
    if not chosen:
        where = definition.file or env
        raise UsageError(f"{where}: no task was chosen; name some, or give the environment tasks to offer")
    # Tasks that were named come in the order of naming; tags have none, so theirs is the suite's.
    named = dict.fromkeys(item for item in wanted if item in known)
    return [*named, *(info.name for info in infos if info.name in chosen and info.name not in named)]


def _build_unknown_error(
    noun: str, item: str, known: Iterable[str], wanted: Sequence[str], env: str, definition: EnvironmentDefinition
) -> UnknownName:
    """Return the error for an unknown task or tag; it names the file if the file asks for it."""
    place = env if definition.file is None else str(definition.file)
    see = f"see them with: collab env tasks {shlex.quote(place)}{'' if definition.tasks == 'all' else ' --tasks all'}"
    if definition.file is None or list(wanted) != definition.own_tasks:
        return UnknownName.of(f"{noun} of {env}", item, known, see)
    return UnknownName(f"{definition.file}: tasks: {UnknownName.of(noun, item, known, see)}")


def order_tasks(suite: Suite, wanted: Sequence[str], names: Sequence[str], seed: int) -> list[str]:
    """Return tasks in the order in which they are played.

    Args:
        wanted: as for `resolve_task_names`. Its plain names come first, in its order; the rest is drawn.
        names: the tasks, resolved.
        seed: of the run, for the draw.
    """
    named = [item for item in dict.fromkeys(wanted) if item in names]
    rest = [info for info in suite.tasks() if info.name in names and info.name not in named]
    return [*named, *draw_order(rest, derive(seed, "order of tasks"))]


def draw_order(infos: Iterable[TaskInfo], seed: int) -> list[str]:
    """Draw an order of tasks whose every beginning is spread over difficulties, and within each over apps.

    If a share of the tasks is played, about that share of each difficulty is, and within it of each app. Over many
    seeds all tasks come equally early, also those of rare apps.
    """
    rng = generator(seed)
    shuffled = sorted(infos, key=lambda info: info.name)
    rng.shuffle(shuffled)
    by_difficulty = _group_tasks(shuffled, lambda info: info.difficulty)
    orders = [_spread(_group_tasks(group, lambda info: info.apps[:1]), rng) for group in by_difficulty]
    return [info.name for info in _spread(orders, rng)]


def _group_tasks(infos: Iterable[TaskInfo], key: Callable[[TaskInfo], object]) -> list[list[TaskInfo]]:
    """Group tasks by key."""
    groups: dict[object, list[TaskInfo]] = {}
    for info in infos:
        groups.setdefault(key(info), []).append(info)
    return list(groups.values())


def _spread(groups: Sequence[Sequence[TaskInfo]], rng: random.Random) -> list[TaskInfo]:
    """Merge groups so that each is spread evenly over the whole, from a drawn start (systematic sampling).

    The members of a group keep their order.
    """
    placed: list[tuple[float, TaskInfo]] = []
    for group in groups:
        start = rng.random()
        placed += [((rank + start) / len(group), info) for rank, info in enumerate(group)]
    return [info for _, info in sorted(placed, key=lambda place: place[0])]


async def load_splits(name: str, environment: EnvironmentDefinition, built: Suite | None = None) -> dict[str, Split]:
    """Load all splits of an environment, including apps that a run left out; see `build` and `read_splits`.

    Args:
        built: suite of this environment, used if nothing was left out; None builds one.
    """
    given = built if restore_apps(environment) == environment else None
    suite = given or build_environment(name, restore_apps(environment))
    try:
        return read_splits(suite.name, suite.tasks(), environment.unseen, describe_place(name, environment))
    finally:
        if given is None:
            await suite.close()


def plan_episodes(config: RunConfig) -> list[Episode]:
    """Plan episodes: group k plays task k mod len(tasks), which spreads a task's instances over the run."""
    seeds, tasks, size = config.seeds, config.tasks, config.group
    members = range(size) if config.members is None else config.members
    found = []
    for episode in range(config.episodes):
        group, place = divmod(episode, len(members))
        instance, position = divmod(group, len(tasks))
        task = tasks[position]
        # Members differ in their number alone, which is what replies are sampled by.
        found.append(Episode(task=task, number=instance * size + members[place], seed=seeds.task(task, instance)))
    return found


def has_episode_count(episodes: int | None, settings: Sequence[str]) -> bool:
    """Return whether a number of episodes is given; by default every task is played once."""
    return episodes is not None or any(strip_run_prefix(setting).startswith("episodes=") for setting in settings)


async def resolve_run(
    config: RunConfig, *, once_per_task: bool, split: str | None = None, redraw: bool = False
) -> RunConfig:
    """Return the run with its task names resolved and, on request, one episode per task, within a split.

    Plain names of tasks keep their order. The run's seed draws the order of all others (`draw_order`), so that fewer
    episodes than tasks are a sample of them.

    Args:
        redraw: draw the order of all tasks, because another run's seed decided the current one.

    Raises:
        UsageError: an unknown task or split, or a seed or tasks that are not the split's.
        OverlapError: a training episode would play an instance that is kept for evaluation.
    """
    refuse_critics(config)  # before anything is said or opened
    wanted = config.tasks
    suite = build_suite(config)
    try:
        splits = {} if split is None else await load_splits(config.environment_name, config.environment, suite)
        config = config.model_copy(
            update={"tasks": resolve_task_names(suite, wanted, config.environment_name, config.environment)}
        )
        if split is not None:
            config = restrict_run(config, find_split(splits, split, config.environment.file or config.environment_name))
        config = config.model_copy(
            update={"tasks": order_tasks(suite, () if redraw else wanted, config.tasks, config.seed)}
        )
    finally:
        await suite.close()
    if once_per_task:
        config = config.model_copy(update={"episodes": len(config.tasks)})
    if split is not None:
        plan = [TrainingInstance(task=one.task, seed=one.seed, source=one.id) for one in plan_episodes(config)]
        check_plan(splits[split], splits.values(), plan)
    return config
