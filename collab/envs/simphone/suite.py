"""SimPhone as an environment suite: the embedded default behind `--env androidworld`.

Results carry the label "androidworld[simphone]" and are never called AndroidWorld success rates.

Tasks from outside without an app of their own are set in the apps that every phone has.
"""

from __future__ import annotations

from collections.abc import Sequence

from collab.envs.base import TaskInfo
from collab.envs.grammar import MOBILE
from collab.envs.simphone.app import App
from collab.envs.simphone.apps import INSTALLED, build_apps, camera, clock, contacts, dialer, messages, settings
from collab.envs.simphone.core import SimPhone, build_factory
from collab.envs.simphone.distractions.presets import (
    DistractionPreset,
    Noise,
    Tongue,
    adjust_preset,
    describe_distractions,
)
from collab.envs.simphone.outside import bring
from collab.envs.simphone.tasks import BY_NAME, TASKS
from collab.envs.simphone.tasks.spec import TaskSpec
from collab.errors import ConfigError, UnknownName
from collab.seeds import derive, generator
from collab.types import Action, Observation, StepResult, Task

NAME = "androidworld"
ESSENTIAL = frozenset(
    app.package for app in (camera.APP, clock.APP, contacts.APP, dialer.APP, messages.APP, settings.APP)
)
"""Packages of apps that others open, or that a task may ask to open: no phone is without them."""


class PhoneEnvironment:
    """One phone behind the `Environment` protocol; also `Forkable`, `HasOracle` and `HasScreenshot`."""

    space = MOBILE

    def __init__(self, core: SimPhone) -> None:
        self.core = core
        """The synchronous phone that does the work."""

    async def reset(self, task: Task) -> Observation:
        """Make the task's initial state; UnknownName when it is not a task of this phone."""
        return self.core.reset(task)

    async def step(self, action: Action | None) -> StepResult:
        """Execute the canonical form of an action; None waits a second."""
        return self.core.step(action)

    async def fork(self) -> PhoneEnvironment:
        """Return an independent copy in the same state."""
        return PhoneEnvironment(self.core.fork())

    def oracle(self) -> tuple[Action, ...] | None:
        """Return the remaining best actions from the present state; None when the task cannot be solved from here."""
        return self.core.oracle()

    async def screenshot(self, marks: bool = False) -> bytes:
        """Return the present screen as PNG bytes; `marks` draws numbered boxes."""
        from collab.envs.simphone.ui.render import render_png  # Pillow loads only for a look

        return render_png(self.core.frame.observation, marks)

    async def close(self) -> None:
        """Give nothing back."""


class SimPhoneSuite:
    """All SimPhone tasks.

    Args:
        preset: how distracting the phone is. The arguments from `interruptions` to `noise` set single knobs of it
            otherwise (`distractions.presets.Distractions`); None leaves them as the preset has them.
        apps: importable packages that bring an app, tasks, or both (docs/simphone.md).
        without: visible names of apps that are not installed, as tasks name them; their tasks are left out.

    Raises:
        ConfigError: an app cannot be imported, clashes with another, or cannot be left out.
        UnknownName: there is no app to leave out by that name.
    """

    name = NAME
    space = MOBILE
    capabilities = frozenset({"fork", "oracle", "screenshot", "deterministic"})

    def __init__(
        self,
        *,
        preset: DistractionPreset = "calm",
        interruptions: float | None = None,
        slowness: float | None = None,
        longest_wait: int | None = None,
        share: float | None = None,
        shuffle: bool | None = None,
        restyle: bool | None = None,
        rename: bool | None = None,
        language: Tongue | None = None,
        noise: Noise | None = None,
        apps: Sequence[str] = (),
        without: Sequence[str] = (),
    ) -> None:
        changes: dict[str, object] = {"interruptions": interruptions, "slowness": slowness, "share": share}
        changes |= {"longest_wait": longest_wait, "shuffle": shuffle, "restyle": restyle, "rename": rename}
        changes |= {"language": language, "noise": noise}
        self._distractions = adjust_preset(preset, changes)
        brought = [bring(module) for module in apps]
        every = [*INSTALLED, *(one.app for one in brought if one.app is not None)]
        missing = _find_missing(every, without)
        names = {name.casefold() for app in missing for name in app.names}
        specs = [*TASKS, *(spec for one in brought for spec in one.tasks)]
        self._factory = build_factory(build_apps(app for app in every if app not in missing))
        self._tasks = _index_by_name([spec for spec in specs if not names.intersection(map(str.casefold, spec.apps))])
        lacks = "".join(f", without {app.name}" for app in missing)
        hard = "".join(f", {words}" for words in describe_distractions(preset, self._distractions))
        self.label = f"androidworld[{'+'.join(('simphone', *apps))}{lacks}{hard}]"
        self.version = "+".join(("simphone-2", *(one.version for one in brought))) + lacks + hard

    def tasks(self) -> Sequence[TaskInfo]:
        """Return all tasks, by name."""
        return [
            TaskInfo(
                name=spec.name,
                apps=spec.apps,
                difficulty=spec.difficulty,
                max_steps=spec.max_steps,
                tags=(*_tag_origin(spec), *spec.apps, *(("verify",) if spec.verify else ())),
                oracle=True,
            )
            for spec in self._tasks.values()
        ]

    def instance(self, name: str, seed: int) -> Task:
        """Draw an instance; UnknownName when there is no such task."""
        spec = self._tasks.get(name)
        if spec is None:
            raise UnknownName.of("task", name, self._tasks, "see them with: collab env tasks androidworld")
        params = spec.draw(generator(derive(seed, "params", name)))
        return Task(
            environment=NAME,
            name=name,
            seed=seed,
            goal=spec.goal(params, generator(derive(seed, "goal", name))),
            params=params,
            max_steps=spec.max_steps,
            difficulty=spec.difficulty,
            apps=spec.apps,
        )

    async def open(self) -> PhoneEnvironment:
        """Return a fresh phone; as many as the caller likes."""
        return PhoneEnvironment(self.phone())

    def phone(self) -> SimPhone:
        """Return a fresh phone for callers that are not asynchronous."""
        return SimPhone(distractions=self._distractions, factory=self._factory, tasks=self._tasks)

    async def close(self) -> None:
        """Give nothing back."""


def _tag_origin(spec: TaskSpec) -> tuple[str, ...]:
    """Return the tag of AndroidWorld's tasks; a task from outside is none of them, whatever it says."""
    return (f"wave-{spec.wave}",) if BY_NAME.get(spec.name) is spec else ()


def _find_missing(every: Sequence[App], without: Sequence[str]) -> list[App]:
    """Return the apps that are called by these names."""
    called = {name.casefold(): app for app in every for name in app.names}
    found = []
    for name in without:
        app = called.get(name.casefold())
        if app is None:
            raise UnknownName.of("app to leave out (simphone, option without)", name, called)
        if app.package in ESSENTIAL:
            free = sorted(other.name for other in every if other.package not in ESSENTIAL)
            raise ConfigError(f"simphone: without {name!r}: other apps and tasks need it; free: {', '.join(free)}")
        found.append(app)
    return [app for app in every if app in found]


def _index_by_name(specs: Sequence[TaskSpec]) -> dict[str, TaskSpec]:
    found: dict[str, TaskSpec] = {}
    for spec in sorted(specs, key=lambda spec: spec.name):
        if spec.name in found:
            raise ConfigError(f"simphone: two tasks are called {spec.name!r}; give the one from outside another name")
        found[spec.name] = spec
    return found
