"""SimPhone's synchronous core: one episode at a time, without a clock or a thread of its own.

phone = SimPhone()
observation = phone.reset(task)
result = phone.step(MOBILE.make("open_app", app_name="Settings"))
"""

from __future__ import annotations

from collab.envs.actions import MOBILE
from collab.envs.phone.fresh import FACTORY, lived_in
from collab.envs.phone.screen import Frame, look
from collab.envs.phone.state import Phone
from collab.envs.phone.tasks import BY_NAME, TaskSpec
from collab.envs.phone.tasks.plans import Lost
from collab.envs.phone.touch import act
from collab.errors import EnvironmentFailure, UnknownName
from collab.seeds import derive, generator
from collab.types import Action, ElementTarget, Observation, Outcome, StepResult, Task

_WAIT = MOBILE.make("wait")
_LONGEST_SOLUTION = 120
"""Steps after which a plan counts as going round in circles."""


class SimPhone:
    """A phone with one running episode.

    Args:
        noise: whether the phone holds data that no task asks about.
    """

    def __init__(self, *, noise: bool = True) -> None:
        self._noise = noise
        self._task: Task | None = None
        self._spec: TaskSpec | None = None
        self._start: Phone = FACTORY
        self._frame: Frame = look(FACTORY)
        self._steps = 0
        self._done = False
        self._solution: tuple[Action, ...] | None = None
        self._solved = False

    @property
    def phone(self) -> Phone:
        """The present state."""
        return self._frame.phone

    @property
    def frame(self) -> Frame:
        """The present look: state, screen and observation together."""
        return self._frame

    def reset(self, task: Task) -> Observation:
        """Make the task's initial state; UnknownName when it is not a task of this phone."""
        spec = BY_NAME.get(task.name)
        if spec is None:
            raise UnknownName.of("task", task.name, BY_NAME, "see them with: collab env tasks androidworld")
        self._start = initial_state(spec, task, noise=self._noise)
        self._task, self._spec = task, spec
        self._frame = look(self._start)
        self._steps, self._done, self._solved = 0, False, False
        return self._frame.observation

    def step(self, action: Action | None) -> StepResult:
        """Execute the canonical form of an action; None waits.

        Raises:
            EnvironmentFailure: no episode is running.
        """
        if self._task is None or self._spec is None or self._done:
            raise EnvironmentFailure("SimPhone: step without a running episode; call reset(task) first")
        before = self._frame
        self._steps += 1
        if action is None:
            action = _WAIT
        if action.space != "mobile":
            return self._result(f"nothing changed: {action.type} is not an action of a phone")
        action = MOBILE.canonical(action, before.observation)
        if action.type == "status":
            return self._ended(action)
        after = act(before, action)
        if after is not before.phone:
            self._frame = look(after)
        self._follow(action)
        return self._result(effect(before, self._frame, action))

    def fork(self) -> SimPhone:
        """An independent copy in the same state: the state is immutable, so nothing is copied."""
        twin = object.__new__(SimPhone)
        twin.__dict__.update(self.__dict__)
        return twin

    def score(self) -> float:
        """How far the goal holds now, in [0, 1], whatever the agent has said."""
        if self._task is None or self._spec is None:
            raise EnvironmentFailure("SimPhone: no episode is running; call reset(task) first")
        return self._spec.score(self._start, self.phone, self._task.params)

    def oracle(self) -> tuple[Action, ...] | None:
        """Remaining best actions, ending with `status`; () when the episode is over, None when no way is known."""
        if self._done or self._task is None or self._spec is None:
            return ()
        if not self._solved:
            self._solution = solve(self._spec, self._task, self._start, self._frame)
            self._solved = True
        return self._solution

    # -------------------------------------------------------------------------------------------------- internal

    def _follow(self, action: Action) -> None:
        """Keep the known solution when the action was its first step."""
        self._solved = (
            self._solved and bool(self._solution) and self._solution is not None and self._solution[0] == action
        )
        if self._solved and self._solution:
            self._solution = self._solution[1:]

    def _ended(self, action: Action) -> StepResult:
        complete = action["goal_status"] == "complete"
        score = self.score() if complete else 0.0
        self._done = True
        if complete:
            reason = f"the goal holds to {score:.0%} on the phone"
        else:
            reason = "the agent called the task infeasible"
        outcome = Outcome(success=score == 1.0, score=score, reason=reason)
        info = {"effect": f"declared the task {action['goal_status']}"}
        return StepResult(observation=self._frame.observation, terminated=True, outcome=outcome, info=info)

    def _result(self, words: str) -> StepResult:
        assert self._task is not None
        truncated = self._steps >= self._task.max_steps
        outcome = None
        if truncated:
            self._done = True
            outcome = Outcome(success=False, score=0.0, reason="the step budget ended before the agent said status")
        return StepResult(
            observation=self._frame.observation, truncated=truncated, outcome=outcome, info={"effect": words}
        )


def initial_state(spec: TaskSpec, task: Task, *, noise: bool) -> Phone:
    """The phone at the start of an instance: a function of the task's name, seed and parameters."""
    phone = lived_in(generator(derive(task.seed, "noise", task.name))) if noise else FACTORY
    return spec.prepare(phone, task.params, generator(derive(task.seed, "state", task.name)))


def solve(spec: TaskSpec, task: Task, start: Phone, frame: Frame) -> tuple[Action, ...] | None:
    """Play the plan to its end on a copy; None when it gets lost, stuck, or ends without full score."""
    actions: list[Action] = []
    while len(actions) < _LONGEST_SOLUTION:
        try:
            action = MOBILE.canonical(spec.plan(frame, task.params, start), frame.observation)
        except Lost:
            return None
        actions.append(action)
        if action.type == "status":
            return tuple(actions) if spec.score(start, frame.phone, task.params) == 1.0 else None
        phone = act(frame, action)
        if phone == frame.phone:
            return None
        frame = look(phone)
    return None


def effect(before: Frame, after: Frame, action: Action) -> str:
    """What the screen did, in a few words for the history."""
    target = action.target.index if isinstance(action.target, ElementTarget) else None
    if target is not None and target >= len(before.observation.elements):
        return f"nothing changed: the screen has no element {target}"
    if after.phone.notice:
        return f'the phone said "{after.phone.notice}"'
    if action.type == "wait":
        return "one second passed"
    if after.phone == before.phone:
        return "nothing changed"
    if after.observation.title != before.observation.title:
        return f"{'went back to' if _closed(before, after) else 'opened'} {after.observation.title}"
    return _change_on_screen(before, after, action, target)


def _change_on_screen(before: Frame, after: Frame, action: Action, target: int | None) -> str:
    if action.type == "answer":
        return "noted the answer"
    if action.type == "input_text" and before.page.fields != after.page.fields:
        focus = after.page.focus if target is None else before.placed.nodes[target].field
        label = next((node.label for node in after.placed.nodes if node.field == focus and focus), "")
        return f"typed into {label}" if label else "typed"
    if before.page.scroll != after.page.scroll:
        return "scrolled"
    if target is not None:
        node = before.observation.elements[target]
        index = after.index(node.key)
        now = after.observation.elements[index] if index is not None else None
        if now is not None and ("checked" in now.flags) != ("checked" in node.flags):
            return f"turned {'on' if 'checked' in now.flags else 'off'} {node.label}"
        if now is not None and "focused" in now.flags and "focused" not in node.flags:
            return f"put the cursor into {node.label}"
        if now is not None and now.value != node.value and now.role == "slider":
            return f"set {node.label} to {now.value}"
    if before.phone.keyboard and not after.phone.keyboard:
        return "closed the keyboard"
    return "the screen changed" if before.observation.text != after.observation.text else "nothing visible changed"


def _closed(before: Frame, after: Frame) -> bool:
    package = after.phone.foreground
    if package != before.phone.foreground:
        return False
    return len(after.phone.stacks[package]) < len(before.phone.stacks[package])
