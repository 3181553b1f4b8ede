"""Compare our judge with AndroidWorld's: AndroidWorld sets a task up, our oracle solves it, both judge.

They judge three states: untouched, solved through the phone's screens, and solved with one change (see `spoil`).
SimPhone's engine executes the solution, or AndroidWorld with adb taps, keys and intents.

AndroidWorld runs under its own interpreter, as its packages clash with ours. Requests and replies are JSON lines on the
child's standard input and output; the child finds the phone on the loopback adb server.

The changes of a solved phone, found by comparing it with the phone before:

    spoilt      one decisive field, beyond fuzzy matching: must not pass any more
    blurred     the same field in other case: passes fuzzy matching, but not exact matching
    disturbed   a row or a file that has nothing to do with the task
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

from collab.envs.grammar import MOBILE
from collab.envs.simphone.adb.automator import PhoneHandle
from collab.envs.simphone.apps import clock
from collab.envs.simphone.core import add_noise
from collab.envs.simphone.state import ROOT, Phone, TableRow, go_home, keep, put_field, put_setting, remember
from collab.envs.simphone.tasks import BY_NAME
from collab.envs.simphone.tasks.plans import PlanError
from collab.envs.simphone.tasks.spec import Params, TaskSpec
from collab.envs.simphone.touch import act
from collab.envs.simphone.ui.screen import Frame, look
from collab.errors import EnvironmentFailure, UsageError
from collab.seeds import derive, generator
from collab.types import Action, Scalar

OTHER = "Qwxz 0000"
"""A text that resembles none that a task asks for."""
ChangedPhone: TypeAlias = tuple[str, Phone]
"""(what was changed, the phone after that)."""


def spoil(name: str, start: Phone, solved: Phone) -> ChangedPhone | None:
    """Change one decisive field of a solved phone; None when nothing in it tells that the task was solved.

    Args:
        name: the task's name.
        start: the phone before the task was solved.
    """
    if name in _SCREENS:
        what, change = _SCREENS[name]
        return what, change(solved)
    if solved.answer is not None:
        return "answer", replace(solved, answer=_change_answer(solved.answer))
    setting = next((setting for word, setting in _SETTINGS.items() if word in name), None)
    if setting is not None:
        return setting, put_setting(solved, setting, _change_setting(setting, solved.settings[setting]))
    return _change_row(start, solved) or _change_file(start, solved) or _change_clipboard(start, solved, OTHER)


def blur(start: Phone, solved: Phone) -> ChangedPhone | None:
    """Swap upper and lower case in one text that solving the task wrote; None when it wrote none with letters."""
    if solved.answer is not None:
        made: ChangedPhone | None = "answer", replace(solved, answer=solved.answer.swapcase())
    else:
        made = (
            _blur_row(start, solved)
            or _blur_file(start, solved)
            or _change_clipboard(start, solved, solved.clipboard.swapcase())
        )
    return None if made is None or made[1] == solved else made


def disturb(start: Phone, solved: Phone) -> ChangedPhone | None:
    """Change a row or remove a file beside those of the task; None when it is not about rows or files."""
    return _change_bystanding_row(start, solved) or _remove_bystanding_file(start, solved)


_SCREENS: Mapping[str, tuple[str, Callable[[Phone], Phone]]] = {
    "ClockTimerEntry": ("a digit of the timer", lambda phone: keep(phone, digits=_change_digits(phone))),
    "ClockStopWatchRunning": ("stopwatch paused", lambda phone: _change_stopwatch(phone, None)),
    "ClockStopWatchPausedVerify": ("stopwatch runs", lambda phone: _change_stopwatch(phone, phone.now_ms)),
    "ContactsNewContactDraft": ("phone field", lambda phone: put_field(phone, "phone", "000")),
    "OpenAppTaskEval": ("app in front", go_home),
}
"""Tasks that are judged by what the screen shows."""
_SETTINGS = {
    "Wifi": "global/wifi_on",
    "Bluetooth": "global/bluetooth_on",
    "Brightness": "system/screen_brightness",
}
"""Setting by the word for it in a task's name."""


def _change_digits(phone: Phone) -> str:
    digits = str(phone.page.data["digits"])
    return digits[:-1] + ("1" if digits[-1:] != "1" else "2")


def _change_stopwatch(phone: Phone, since_ms: int | None) -> Phone:
    return remember(phone, clock.PACKAGE, stopwatch=(since_ms, 0, ()))


def _change_answer(answer: str) -> str:
    return str(int(answer) + 1) if answer.strip().isdecimal() else OTHER


def _change_setting(setting: str, value: str) -> str:
    if setting == "system/screen_brightness":
        return "128"
    return "0" if value != "0" else "1"


def _change_clipboard(start: Phone, solved: Phone, text: str) -> ChangedPhone | None:
    return None if solved.clipboard == start.clipboard else ("clipboard", replace(solved, clipboard=text))


# ----------------------------------------------------------------------------------------------------------- rows

RowChange: TypeAlias = Callable[[TableRow], dict[str, Scalar]]
_TEXTS: Mapping[str, str] = {"sms": "body", "data": "data1", "expense": "name", "events": "title", "recipes": "title"}
"""A column of words in each table that tasks change."""


def _make_increment(column: str, by: int) -> RowChange:
    return lambda row: {column: int(row[column] or 0) + by}


def _make_rewording(column: str) -> RowChange:
    return lambda row: {column: OTHER}


def _make_case_swap(column: str) -> RowChange:
    return lambda row: {column: str(row[column]).swapcase()}


_ROWS: Mapping[str, RowChange] = {
    **{table: _make_rewording(column) for table, column in _TEXTS.items()},
    "expense": _make_increment("amount", 100),
    "events": _make_increment("start_ts", 3600),
}
"""The decisive change in each of them."""


def _change_row(start: Phone, solved: Phone) -> ChangedPhone | None:
    """Change the last row that was added, or put back the last that was removed."""
    for key, before, after in _compare_tables(start, solved):
        added = [row for row in after if _read_key(row) not in set(map(_read_key, before))]
        removed = [row for row in before if _read_key(row) not in set(map(_read_key, after))]
        if removed:
            return f"{key[1]}: a row put back", _replace_rows(
                solved, key, tuple(sorted((*after, removed[-1]), key=_read_key))
            )
        if added:
            return _alter_row(solved, key, added[-1], _ROWS[key[1]])
    return None


def _blur_row(start: Phone, solved: Phone) -> ChangedPhone | None:
    for key, before, after in _compare_tables(start, solved):
        added = [row for row in after if _read_key(row) not in set(map(_read_key, before))]
        if added:
            return _alter_row(solved, key, added[-1], _make_case_swap(_TEXTS[key[1]]))
    return None


def _change_bystanding_row(start: Phone, solved: Phone) -> ChangedPhone | None:
    """Reword a row that is as it was, in a table that the task changed."""
    for key, before, after in _compare_tables(start, solved):
        same = [row for row in after if row in before]
        if same and len(same) < max(len(before), len(after)):
            return _alter_row(solved, key, same[-1], _make_rewording(_TEXTS[key[1]]))
    return None


def _compare_tables(
    start: Phone, solved: Phone
) -> Iterator[tuple[tuple[str, str], tuple[TableRow, ...], tuple[TableRow, ...]]]:
    """Yield (path and name, rows before, rows after) of the tables that tasks change."""
    for key in sorted(set(start.rows) | set(solved.rows)):
        if key[1] in _ROWS:
            yield key, start.rows.get(key, ()), solved.rows.get(key, ())


def _alter_row(phone: Phone, key: tuple[str, str], row: TableRow, change: RowChange) -> ChangedPhone:
    changes = change(row)
    rows = tuple({**one, **changes} if one is row else one for one in phone.rows[key])
    return f"{key[1]}.{next(iter(changes))}", _replace_rows(phone, key, rows)


def _read_key(row: TableRow) -> int:
    """Return the primary key, which stands first."""
    return int(str(next(iter(row.values()))))


def _replace_rows(phone: Phone, key: tuple[str, str], rows: tuple[TableRow, ...]) -> Phone:
    return replace(phone, rows={**phone.rows, key: rows})


# ---------------------------------------------------------------------------------------------------------- files


def _change_file(start: Phone, solved: Phone) -> ChangedPhone | None:
    """Put back a file that is gone, reword one that is new or changed, or remove a new folder."""
    for path, entry in start.files.items():
        if _is_own(path) and path not in solved.files:
            return "a file put back", replace(solved, files={**solved.files, path: entry})
    for path in _list_written(start, solved):
        if solved.files[path].content is None:
            return "the folder removed", _remove_path(solved, path)
        return "content of a file", _replace_content(solved, path, OTHER)
    return None


def _blur_file(start: Phone, solved: Phone) -> ChangedPhone | None:
    for path in _list_written(start, solved):
        content = solved.files[path].content
        if content:
            return "content of a file", _replace_content(solved, path, content.swapcase())
    return None


def _remove_bystanding_file(start: Phone, solved: Phone) -> ChangedPhone | None:
    """Remove a file that is as it was, when the task changed files."""
    if start.files == solved.files:
        return None
    same = [path for path in start.files if _is_own(path) and solved.files.get(path) == start.files[path]]
    path = next((path for path in reversed(same) if start.files[path].content is not None), None)
    return None if path is None else ("a file removed", _remove_path(solved, path))


def _list_written(start: Phone, solved: Phone) -> list[str]:
    """Return the paths of files and folders that are new or have another content."""
    return [
        path
        for path, entry in solved.files.items()
        if _is_own(path) and (path not in start.files or start.files[path].content != entry.content)
    ]


def _replace_content(phone: Phone, path: str, content: str) -> Phone:
    return replace(phone, files={**phone.files, path: replace(phone.files[path], content=content)})


def _remove_path(phone: Phone, path: str) -> Phone:
    return replace(phone, files={name: entry for name, entry in phone.files.items() if name != path})


def _is_own(path: str) -> bool:
    return path.startswith(ROOT + "/")


CLIENT = Path(__file__).parent / "client" / "simphone_judge.py"
TIMEOUT_S = 120.0
"""For one request; starting takes seconds, anything else less than one."""
MAX_REPLY = 16 * 1024 * 1024


class JudgeRefusal(Exception):
    """AndroidWorld's code raised; the message says what."""


class JudgeClient:
    """A running judge; see `start_judge`."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process, self._log = process, log

    def ask(self, do: str, **values: Any) -> Mapping[str, Any]:
        """Send a request and wait for its reply; what can be asked stands at the top of `client/simphone_judge.py`.

        Raises:
            JudgeRefusal: AndroidWorld raised.
            EnvironmentFailure: the process died, or took too long and was ended.
        """
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has died: the reply below is empty and tells
            self._process.stdin.write(json.dumps({"do": do, **values}) + "\n")
            self._process.stdin.flush()
        reply = self.reply(do)
        if not reply["ok"]:
            raise JudgeRefusal(reply["error"])
        return reply

    def reply(self, do: str) -> Mapping[str, Any]:
        """Read the next reply; EnvironmentFailure when none comes."""
        assert self._process.stdout is not None
        # A timer and not a limit of `readline`, which has none.
        timer = threading.Timer(TIMEOUT_S, self._process.kill)
        timer.start()
        try:
            line = self._process.stdout.readline(MAX_REPLY)
        finally:
            timer.cancel()
        # Half a line means that the process has ended in the middle of it.
        if not line.endswith("\n"):
            last = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
            said = last[0] if last else "it said nothing"
            raise EnvironmentFailure(f"AndroidWorld's process ended during {do!r}: {said} (all of it: {self._log})")
        reply: Mapping[str, Any] = json.loads(line)
        return reply


@contextlib.contextmanager
def start_judge(python: Path, package: Path, *, port: int, serial: str, log: Path) -> Iterator[JudgeClient]:
    """Yield a judge of the phone `serial` on the adb server at `port`, while the block runs.

    Args:
        python: AndroidWorld's interpreter.
        package: folder that holds `android_world`, its protocol buffers compiled.
        log: file for what AndroidWorld prints.

    Raises:
        UsageError: the package or the interpreter is not there.
        EnvironmentFailure: AndroidWorld cannot be imported; the message has the last line it printed.
    """
    if not (package / "android_world" / "registry.py").is_file():
        raise UsageError(f"AndroidWorld: no android_world/registry.py in {package}; give the folder of its source code")
    # AndroidWorld runs in a Python of its own: its packages do not fit into ours.
    command = [str(python), str(CLIENT), "--package", str(package), "--port", str(port), "--serial", serial]
    with log.open("w", encoding="utf-8") as printed:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=printed, encoding="utf-8"
            )
        except OSError as problem:
            raise UsageError(f"AndroidWorld: interpreter {python}: {problem.strerror}") from None
        try:
            judge = JudgeClient(process, log)
            judge.reply("start-up")
            yield judge
        finally:
            process.kill()
            _close(process)


def _close(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(BrokenPipeError):  # a request that it did not live to read
        process.stdin.close()
    process.stdout.close()
    process.wait()


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedInstance:
    """A task as AndroidWorld has set it up."""

    spec: TaskSpec
    params: Params
    start: Phone

    def score(self, phone: Phone) -> float:
        """Return our score of a phone, in [0, 1]."""
        return self.spec.score(self.start, phone, self.params)


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionExecutor:
    """Device that executes actions."""

    execute: Callable[[Action, Frame], None]
    """Carry out an action on the phone behind the handle, which shows this frame."""
    typed: Callable[[str], str] = str
    """What appears when a text is typed."""


MAX_ACTIONS = 120


class Stuck(Exception):
    """The solution does not reach its end; the message says where it stands still."""


def play(instance: JudgedInstance, handle: PhoneHandle, executor: ActionExecutor) -> tuple[int, Phone]:
    """Plan on SimPhone's screens and execute to the end: (number of actions, `status` included; the phone then).

    Raises:
        Stuck: the end is not reached.
    """
    handle.put(instance.start)
    params = _map_texts(instance.params, executor.typed)
    for count in range(1, MAX_ACTIONS + 1):
        frame = look(handle.phone)
        try:
            planned = MOBILE.canonical(instance.spec.plan(frame, params, instance.start), frame.observation)
            if planned.type == "status":
                return count, handle.phone
            executor.execute(planned, frame)
        except (PlanError, JudgeRefusal) as problem:
            raise Stuck(f"step {count}: {problem}") from None
        # An action without an effect would be planned again for ever; the clock may differ.
        if replace(handle.phone, now_ms=frame.phone.now_ms) == frame.phone:
            raise Stuck(f"step {count} changes nothing: {MOBILE.describe(planned, frame.observation)[:80]}")
    raise Stuck(f"the goal is not reached after {MAX_ACTIONS} actions")


def _map_texts(params: Any, change: Callable[[str], str]) -> Any:
    """Return parameters with every text changed; names of parameters stay."""
    if isinstance(params, Mapping):
        return {name: _map_texts(value, change) for name, value in params.items()}
    if isinstance(params, (list, tuple)):
        return [_map_texts(value, change) for value in params]
    return change(params) if isinstance(params, str) else params


def build_own_executor(handle: PhoneHandle) -> ActionExecutor:
    """Build SimPhone's own executor."""
    return ActionExecutor(execute=lambda action, frame: handle.put(act(frame, action)))


def build_androidworld_executor(handle: PhoneHandle, judge: JudgeClient) -> ActionExecutor:
    """Build AndroidWorld's executor; it notes answers itself, since they never reach the phone."""

    def execute(action: Action, frame: Frame) -> None:
        if action.type == "answer":
            handle.put(act(frame, action))
        else:
            judge.ask("act", action=as_json(action, frame))

    return ActionExecutor(execute=execute, typed=strip_non_ascii)


def strip_non_ascii(text: str) -> str:
    """Return a text as AndroidWorld types it: letters without their accents, and nothing else outside ASCII."""
    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode("ascii")


def as_json(action: Action, frame: Frame) -> dict[str, Any]:
    """Return AndroidWorld's form of an action.

    An element, which AndroidWorld counts differently, becomes its middle. Its swipes begin in the middle of the
    screen, so that what moves a slider to its end is a tap there.
    """
    said: dict[str, Any] = json.loads(MOBILE.format(action))
    index = said.pop("index", None)
    box = None if index is None else frame.observation.elements[index].box
    if box is None:
        return said
    middle = (box.top + box.bottom) // 2
    if action.type == "swipe" and frame.observation.elements[index].role == "slider":
        end = box.right - 1 if said["direction"] == "right" else box.left
        return {"action_type": "click", "x": end, "y": middle}
    return {**said, "x": (box.left + box.right) // 2, "y": middle}


JudgedState: TypeAlias = Literal["untouched", "solved", "spoilt", "blurred", "disturbed"]
_ONLY_AGREED = ("blurred", "disturbed")
"""States in which either score may be right, as long as both judges give it."""
VERIFY = frozenset(name for name in BY_NAME if name.startswith("System") and name.endswith("Verify"))
"""Tasks that are set up solved: the agent only has to say so. (A stopwatch must still be brought to the screen.)"""
MAY_SAMPLE_NOTHING = frozenset({"RecipeDeleteMultipleRecipesWithConstraint"})
"""Tasks whose generator may draw an instance without a target, which is solved from the start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Both scores of one state."""

    theirs: float | None
    """AndroidWorld's; None when it raised."""
    ours: float
    error: str | None = None
    """What it raised."""

    @property
    def agreed(self) -> bool:
        """Return whether both say the same."""
        return self.theirs == self.ours


@dataclass(frozen=True, slots=True, kw_only=True)
class FidelityVerdict:
    """Result of one instance."""

    task: str
    suite_seed: int
    marks: Mapping[JudgedState, Mark]
    """A state that could not be made is missing."""
    steps: int | None = None
    """Actions of our solution, `status` included; None when there is none."""
    max_steps: int | None = None
    """AndroidWorld's step budget."""
    changed: str | None = None
    """The decisive field that was changed; None when the task has none."""
    problem: str | None = None
    """Why a state is missing: setting up failed, or our oracle knew no way."""
    solved_from_the_start: bool = False
    """Whether the untouched phone has to count as solved."""

    @property
    def misses(self) -> list[str]:
        """Return the differences from what is expected; empty without any."""
        wrong = [] if self.problem is None else [self.problem]
        for state, mark in self.marks.items():
            reached = state == "solved" or (state == "untouched" and self.solved_from_the_start)
            if mark.theirs is None:
                wrong.append(f"{state}: AndroidWorld raised {mark.error}")
            elif state not in _ONLY_AGREED and (mark.theirs == 1.0) != reached:
                wrong.append(f"{state}: AndroidWorld says {mark.theirs:g}")
            if mark.theirs is not None and not mark.agreed:
                wrong.append(f"{state}: AndroidWorld says {mark.theirs:g}, SimPhone {mark.ours:g}")
        return wrong


class Examiner:
    """Examines instances one after the other.

    Args:
        handle: the phone that the judge reaches through adb.
        executor: what executes our solution's actions.
    """

    def __init__(self, judge: JudgeClient, handle: PhoneHandle, *, executor: ActionExecutor) -> None:
        self._judge, self._handle, self._executor = judge, handle, executor

    def examine(self, name: str, suite_seed: int) -> FidelityVerdict:
        """Set up, judge, solve, judge, spoil, judge, tear down.

        Args:
            name: AndroidWorld's name of the task; it must be one of ours.
            suite_seed: AndroidWorld's seed of a suite; the task's first instance in it is taken.

        Raises:
            EnvironmentFailure: the judge's process ended.
        """
        # Noise, so that a judge that looks at the wrong place finds something there.
        self._handle.put(add_noise(generator(derive(suite_seed, "fidelity", name))))
        try:
            told = self._judge.ask("start", task=name, suite_seed=suite_seed)
        except JudgeRefusal as refused:
            return FidelityVerdict(
                task=name, suite_seed=suite_seed, marks={}, problem=f"set-up: AndroidWorld raised {refused}"
            )
        verdict = self._judge_instance(name, suite_seed, told)
        try:
            self._judge.ask("end")
        except JudgeRefusal as refused:
            return FidelityVerdict(
                task=name, suite_seed=suite_seed, marks={}, problem=f"tear-down: AndroidWorld raised {refused}"
            )
        return verdict

    def _judge_instance(self, name: str, suite_seed: int, told: Mapping[str, Any]) -> FidelityVerdict:
        # AndroidWorld has set the phone up; our start is its end.
        params, start = told["params"], self._handle.phone
        instance = JudgedInstance(spec=BY_NAME[name], params=params, start=start)
        # Untouched must not count as solved, or the task would be won by doing nothing.
        marks: dict[JudgedState, Mark] = {"untouched": self._mark(instance, start)}
        # A few tasks may draw nothing to do: then untouched and solved are the same.
        nothing_to_do = name in MAY_SAMPLE_NOTHING and not params.get("row_objects", True)
        steps, changed, problem = None, None, None
        try:
            steps, solved = play(instance, self._handle, self._executor)
        except Stuck as stuck:
            problem = str(stuck)
        else:
            marks["solved"] = self._mark(instance, solved)
            # Changed by one detail, blurred and disturbed: AndroidWorld's judge and ours must agree on all of them.
            changes: dict[JudgedState, ChangedPhone | None] = {
                "spoilt": spoil(name, start, solved),
                "blurred": blur(start, solved),
                "disturbed": disturb(start, solved),
            }
            marks |= {state: self._mark(instance, made[1]) for state, made in changes.items() if made is not None}
            changed = None if changes["spoilt"] is None else changes["spoilt"][0]
        # All that was found is returned; which combination is a fault, the caller decides.
        return FidelityVerdict(
            task=name,
            suite_seed=suite_seed,
            marks=marks,
            steps=steps,
            max_steps=told["max_steps"],
            changed=changed,
            problem=problem,
            solved_from_the_start=name in VERIFY or nothing_to_do,
        )

    def _mark(self, instance: JudgedInstance, phone: Phone) -> Mark:
        """Return both scores of a state; the phone is in it afterwards, whatever judging did to it."""
        self._handle.put(phone)
        self._judge.ask("answer", text=phone.answer)
        theirs, error = None, None
        try:
            theirs = float(self._judge.ask("score")["score"])
        except JudgeRefusal as refused:
            error = str(refused)
        self._handle.put(phone)
        return Mark(theirs=theirs, ours=instance.score(phone), error=error)
