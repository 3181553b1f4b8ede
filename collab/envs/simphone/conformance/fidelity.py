"""One task instance on one phone: AndroidWorld sets it up, our oracle solves it, AndroidWorld judges it.

States are judged by them and by us: untouched, solved through the phone's screens, and solved but for one change
(see `spoil`).

AndroidWorld's judgement, from a process that runs under AndroidWorld's own interpreter.

Its packages clash with ours, so the two never share a process: requests and replies are JSON lines on the child's
standard input and output, which nobody else can reach, and the child finds the phone on the loopback adb server.

Who executes the actions of our solution: SimPhone's engine, or AndroidWorld with adb taps, keys and intents.

Solved phones with one thing changed, to see how careful a judge is.

    spoilt      one decisive field, far beyond what fuzzy matching forgives: must not pass any more
    blurred     the same field, only in upper and lower case: fuzzy matching forgives that, exact matching does not
    disturbed   something that nobody asked for: a row or a file that had nothing to do with the task

What was done is found by comparing the phones before and after.
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
from collab.envs.simphone.core import lived_in
from collab.envs.simphone.state import ROOT, Phone, Row, go_home, keep, put_field, put_setting, remember
from collab.envs.simphone.tasks import BY_NAME
from collab.envs.simphone.tasks.plans import Lost
from collab.envs.simphone.tasks.spec import Params, TaskSpec
from collab.envs.simphone.touch import act
from collab.envs.simphone.ui.screen import Frame, look
from collab.errors import EnvironmentFailure, UsageError
from collab.seeds import derive, generator
from collab.types import Action, Scalar

OTHER = "Qwxz 0000"
"""A text that resembles none that a task asks for."""
Changed: TypeAlias = tuple[str, Phone]
"""(what was changed, the phone after that)."""


def spoilt(name: str, start: Phone, solved: Phone) -> Changed | None:
    """Change one decisive field of a solved phone; None when nothing in it tells that the task was solved.

    Args:
        name: the task's name.
        start: the phone before the task was solved.
    """
    if name in _SCREENS:
        what, change = _SCREENS[name]
        return what, change(solved)
    if solved.answer is not None:
        return "answer", replace(solved, answer=_other_answer(solved.answer))
    setting = next((setting for word, setting in _SETTINGS.items() if word in name), None)
    if setting is not None:
        return setting, put_setting(solved, setting, _other_setting(setting, solved.settings[setting]))
    return _row(start, solved) or _file(start, solved) or _clipboard(start, solved, OTHER)


def blurred(start: Phone, solved: Phone) -> Changed | None:
    """Swap upper and lower case in one text that solving the task wrote; None when it wrote none with letters."""
    if solved.answer is not None:
        made: Changed | None = "answer", replace(solved, answer=solved.answer.swapcase())
    else:
        made = (
            _blurred_row(start, solved)
            or _blurred_file(start, solved)
            or _clipboard(start, solved, solved.clipboard.swapcase())
        )
    return None if made is None or made[1] == solved else made


def disturbed(start: Phone, solved: Phone) -> Changed | None:
    """Change a row or remove a file beside those of the task; None when it is not about rows or files."""
    return _bystanding_row(start, solved) or _bystanding_file(start, solved)


_SCREENS: Mapping[str, tuple[str, Callable[[Phone], Phone]]] = {
    "ClockTimerEntry": ("a digit of the timer", lambda phone: keep(phone, digits=_other_digits(phone))),
    "ClockStopWatchRunning": ("stopwatch paused", lambda phone: _with_stopwatch(phone, None)),
    "ClockStopWatchPausedVerify": ("stopwatch runs", lambda phone: _with_stopwatch(phone, phone.now_ms)),
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


def _other_digits(phone: Phone) -> str:
    digits = str(phone.page.data["digits"])
    return digits[:-1] + ("1" if digits[-1:] != "1" else "2")


def _with_stopwatch(phone: Phone, since_ms: int | None) -> Phone:
    return remember(phone, clock.PACKAGE, stopwatch=(since_ms, 0, ()))


def _other_answer(answer: str) -> str:
    return str(int(answer) + 1) if answer.strip().isdecimal() else OTHER


def _other_setting(setting: str, value: str) -> str:
    if setting == "system/screen_brightness":
        return "128"
    return "0" if value != "0" else "1"


def _clipboard(start: Phone, solved: Phone, text: str) -> Changed | None:
    return None if solved.clipboard == start.clipboard else ("clipboard", replace(solved, clipboard=text))


# ----------------------------------------------------------------------------------------------------------- rows

Change: TypeAlias = Callable[[Row], dict[str, Scalar]]
_TEXTS: Mapping[str, str] = {"sms": "body", "data": "data1", "expense": "name", "events": "title", "recipes": "title"}
"""A column of words in each table that tasks change."""


def _more(column: str, by: int) -> Change:
    return lambda row: {column: int(row[column] or 0) + by}


def _reworded(column: str) -> Change:
    return lambda row: {column: OTHER}


def _swapped(column: str) -> Change:
    return lambda row: {column: str(row[column]).swapcase()}


_ROWS: Mapping[str, Change] = {
    **{table: _reworded(column) for table, column in _TEXTS.items()},
    "expense": _more("amount", 100),
    "events": _more("start_ts", 3600),
}
"""The decisive change in each of them."""


def _row(start: Phone, solved: Phone) -> Changed | None:
    """Change the last row that was added, or put back the last that was removed."""
    for key, before, after in _tables(start, solved):
        added = [row for row in after if _key(row) not in set(map(_key, before))]
        removed = [row for row in before if _key(row) not in set(map(_key, after))]
        if removed:
            return f"{key[1]}: a row put back", _with_rows(solved, key, tuple(sorted((*after, removed[-1]), key=_key)))
        if added:
            return _altered(solved, key, added[-1], _ROWS[key[1]])
    return None


def _blurred_row(start: Phone, solved: Phone) -> Changed | None:
    for key, before, after in _tables(start, solved):
        added = [row for row in after if _key(row) not in set(map(_key, before))]
        if added:
            return _altered(solved, key, added[-1], _swapped(_TEXTS[key[1]]))
    return None


def _bystanding_row(start: Phone, solved: Phone) -> Changed | None:
    """Reword a row that is as it was, in a table that the task changed."""
    for key, before, after in _tables(start, solved):
        same = [row for row in after if row in before]
        if same and len(same) < max(len(before), len(after)):
            return _altered(solved, key, same[-1], _reworded(_TEXTS[key[1]]))
    return None


def _tables(start: Phone, solved: Phone) -> Iterator[tuple[tuple[str, str], tuple[Row, ...], tuple[Row, ...]]]:
    """(path and name, rows before, rows after) of the tables that tasks change."""
    for key in sorted(set(start.rows) | set(solved.rows)):
        if key[1] in _ROWS:
            yield key, start.rows.get(key, ()), solved.rows.get(key, ())


def _altered(phone: Phone, key: tuple[str, str], row: Row, change: Change) -> Changed:
    changes = change(row)
    rows = tuple({**one, **changes} if one is row else one for one in phone.rows[key])
    return f"{key[1]}.{next(iter(changes))}", _with_rows(phone, key, rows)


def _key(row: Row) -> int:
    """The primary key, which stands first."""
    return int(str(next(iter(row.values()))))


def _with_rows(phone: Phone, key: tuple[str, str], rows: tuple[Row, ...]) -> Phone:
    return replace(phone, rows={**phone.rows, key: rows})


# ---------------------------------------------------------------------------------------------------------- files


def _file(start: Phone, solved: Phone) -> Changed | None:
    """Put back a file that is gone, reword one that is new or changed, or remove a new folder."""
    for path, entry in start.files.items():
        if _mine(path) and path not in solved.files:
            return "a file put back", replace(solved, files={**solved.files, path: entry})
    for path in _written(start, solved):
        if solved.files[path].content is None:
            return "the folder removed", _without(solved, path)
        return "content of a file", _with_content(solved, path, OTHER)
    return None


def _blurred_file(start: Phone, solved: Phone) -> Changed | None:
    for path in _written(start, solved):
        content = solved.files[path].content
        if content:
            return "content of a file", _with_content(solved, path, content.swapcase())
    return None


def _bystanding_file(start: Phone, solved: Phone) -> Changed | None:
    """Remove a file that is as it was, when the task changed files."""
    if start.files == solved.files:
        return None
    same = [path for path in start.files if _mine(path) and solved.files.get(path) == start.files[path]]
    path = next((path for path in reversed(same) if start.files[path].content is not None), None)
    return None if path is None else ("a file removed", _without(solved, path))


def _written(start: Phone, solved: Phone) -> list[str]:
    """Paths of files and folders that are new or have another content."""
    return [
        path
        for path, entry in solved.files.items()
        if _mine(path) and (path not in start.files or start.files[path].content != entry.content)
    ]


def _with_content(phone: Phone, path: str, content: str) -> Phone:
    return replace(phone, files={**phone.files, path: replace(phone.files[path], content=content)})


def _without(phone: Phone, path: str) -> Phone:
    return replace(phone, files={name: entry for name, entry in phone.files.items() if name != path})


def _mine(path: str) -> bool:
    return path.startswith(ROOT + "/")


CLIENT = Path(__file__).parent / "client" / "simphone_judge.py"
TIMEOUT_S = 120.0
"""For one request; starting takes seconds, anything else less than one."""
MAX_REPLY = 16 * 1024 * 1024


class Refused(Exception):
    """AndroidWorld's code raised; the message says what."""


class Judge:
    """A running judge; see `judging`."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process, self._log = process, log

    def ask(self, do: str, **values: Any) -> Mapping[str, Any]:
        """Send a request and wait for its reply; what can be asked stands at the top of `client/simphone_judge.py`.

        Raises:
            Refused: AndroidWorld raised.
            EnvironmentFailure: the process died, or took too long and was ended.
        """
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has died: the reply below is empty and tells
            self._process.stdin.write(json.dumps({"do": do, **values}) + "\n")
            self._process.stdin.flush()
        reply = self.reply(do)
        if not reply["ok"]:
            raise Refused(reply["error"])
        return reply

    def reply(self, do: str) -> Mapping[str, Any]:
        """The next reply; EnvironmentFailure when none comes."""
        assert self._process.stdout is not None
        timer = threading.Timer(TIMEOUT_S, self._process.kill)
        timer.start()
        try:
            line = self._process.stdout.readline(MAX_REPLY)
        finally:
            timer.cancel()
        if not line.endswith("\n"):
            last = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
            said = last[0] if last else "it said nothing"
            raise EnvironmentFailure(f"AndroidWorld's process ended during {do!r}: {said} (all of it: {self._log})")
        reply: Mapping[str, Any] = json.loads(line)
        return reply


@contextlib.contextmanager
def judging(python: Path, package: Path, *, port: int, serial: str, log: Path) -> Iterator[Judge]:
    """A judge of the phone `serial` on the adb server at `port`, while the block runs.

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
    command = [str(python), str(CLIENT), "--package", str(package), "--port", str(port), "--serial", serial]
    with log.open("w", encoding="utf-8") as printed:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=printed, encoding="utf-8"
            )
        except OSError as problem:
            raise UsageError(f"AndroidWorld: interpreter {python}: {problem.strerror}") from None
        try:
            judge = Judge(process, log)
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
class Instance:
    """A task as AndroidWorld has set it up."""

    spec: TaskSpec
    params: Params
    start: Phone

    def score(self, phone: Phone) -> float:
        """Our score of a phone, in [0, 1]."""
        return self.spec.score(self.start, phone, self.params)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hands:
    """Who carries out actions."""

    execute: Callable[[Action, Frame], None]
    """Carry out an action on the phone behind the handle, which shows this frame."""
    typed: Callable[[str], str] = str
    """What appears when a text is typed."""


MAX_ACTIONS = 120


class Stuck(Exception):
    """The solution does not reach its end; the message says where it stands still."""


def play(instance: Instance, handle: PhoneHandle, hands: Hands) -> tuple[int, Phone]:
    """Plan on SimPhone's screens and execute to the end: (number of actions, `status` included; the phone then).

    Raises:
        Stuck: the end is not reached.
    """
    handle.put(instance.start)
    params = _with_texts(instance.params, hands.typed)
    for count in range(1, MAX_ACTIONS + 1):
        frame = look(handle.phone)
        try:
            planned = MOBILE.canonical(instance.spec.plan(frame, params, instance.start), frame.observation)
            if planned.type == "status":
                return count, handle.phone
            hands.execute(planned, frame)
        except (Lost, Refused) as problem:
            raise Stuck(f"step {count}: {problem}") from None
        if replace(handle.phone, now_ms=frame.phone.now_ms) == frame.phone:
            raise Stuck(f"step {count} changes nothing: {MOBILE.describe(planned, frame.observation)[:80]}")
    raise Stuck(f"the goal is not reached after {MAX_ACTIONS} actions")


def _with_texts(params: Any, change: Callable[[str], str]) -> Any:
    """Parameters with every text changed; names of parameters stay."""
    if isinstance(params, Mapping):
        return {name: _with_texts(value, change) for name, value in params.items()}
    if isinstance(params, (list, tuple)):
        return [_with_texts(value, change) for value in params]
    return change(params) if isinstance(params, str) else params


def our_hands(handle: PhoneHandle) -> Hands:
    """SimPhone's engine."""
    return Hands(execute=lambda action, frame: handle.put(act(frame, action)))


def their_hands(handle: PhoneHandle, judge: Judge) -> Hands:
    """AndroidWorld; an answer goes to whoever asked, not to the phone, so it is noted here."""

    def execute(action: Action, frame: Frame) -> None:
        if action.type == "answer":
            handle.put(act(frame, action))
        else:
            judge.ask("act", action=as_json(action, frame))

    return Hands(execute=execute, typed=ascii_only)


def ascii_only(text: str) -> str:
    """A text as AndroidWorld types it: letters without their accents, and nothing else outside ASCII."""
    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode("ascii")


def as_json(action: Action, frame: Frame) -> dict[str, Any]:
    """AndroidWorld's form of an action.

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


State: TypeAlias = Literal["untouched", "solved", "spoilt", "blurred", "disturbed"]
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
        """Whether both say the same."""
        return self.theirs == self.ours


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of one instance."""

    task: str
    suite_seed: int
    marks: Mapping[State, Mark]
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
        """What is not as it should be; empty when all is."""
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
        hands: who executes our solution's actions.
    """

    def __init__(self, judge: Judge, handle: PhoneHandle, *, hands: Hands) -> None:
        self._judge, self._handle, self._hands = judge, handle, hands

    def examine(self, name: str, suite_seed: int) -> Verdict:
        """Set up, judge, solve, judge, spoil, judge, tear down.

        Args:
            name: AndroidWorld's name of the task; it must be one of ours.
            suite_seed: AndroidWorld's seed of a suite; the task's first instance in it is taken.

        Raises:
            EnvironmentFailure: the judge's process ended.
        """
        self._handle.put(lived_in(generator(derive(suite_seed, "fidelity", name))))
        try:
            told = self._judge.ask("start", task=name, suite_seed=suite_seed)
        except Refused as refused:
            return Verdict(task=name, suite_seed=suite_seed, marks={}, problem=f"set-up: AndroidWorld raised {refused}")
        verdict = self._judged(name, suite_seed, told)
        try:
            self._judge.ask("end")
        except Refused as refused:
            return Verdict(
                task=name, suite_seed=suite_seed, marks={}, problem=f"tear-down: AndroidWorld raised {refused}"
            )
        return verdict

    def _judged(self, name: str, suite_seed: int, told: Mapping[str, Any]) -> Verdict:
        params, start = told["params"], self._handle.phone
        instance = Instance(spec=BY_NAME[name], params=params, start=start)
        marks: dict[State, Mark] = {"untouched": self._mark(instance, start)}
        nothing_to_do = name in MAY_SAMPLE_NOTHING and not params.get("row_objects", True)
        steps, changed, problem = None, None, None
        try:
            steps, solved = play(instance, self._handle, self._hands)
        except Stuck as stuck:
            problem = str(stuck)
        else:
            marks["solved"] = self._mark(instance, solved)
            changes: dict[State, Changed | None] = {
                "spoilt": spoilt(name, start, solved),
                "blurred": blurred(start, solved),
                "disturbed": disturbed(start, solved),
            }
            marks |= {state: self._mark(instance, made[1]) for state, made in changes.items() if made is not None}
            changed = None if changes["spoilt"] is None else changes["spoilt"][0]
        return Verdict(
            task=name,
            suite_seed=suite_seed,
            marks=marks,
            steps=steps,
            max_steps=told["max_steps"],
            changed=changed,
            problem=problem,
            solved_from_the_start=name in VERIFY or nothing_to_do,
        )

    def _mark(self, instance: Instance, phone: Phone) -> Mark:
        """Both scores of a state; the phone is in it afterwards, whatever judging did to it."""
        self._handle.put(phone)
        self._judge.ask("answer", text=phone.answer)
        theirs, error = None, None
        try:
            theirs = float(self._judge.ask("score")["score"])
        except Refused as refused:
            error = str(refused)
        self._handle.put(phone)
        return Mark(theirs=theirs, ours=instance.score(phone), error=error)
