"""AndroidWorld's own emulator during an episode, however it is reached.

AndroidWorld prepares the task, executes the actions and judges the end with its own checkers; both ends count as its
runner counts them: whatever status the agent declares is judged, steps that run out are not. Every action is logged
before it is executed. The screen is looked at again before it is touched (`device_targets`).

AndroidWorld's screens and actions in this project's terms, and back.

AndroidWorld tells a screen as a flat list of UI elements (leaves, described and scrollable views), so what belongs to
one row is several elements here; roles and words are those of every device. Actions are AndroidWorld's own JSON form.
An element is aimed at by its middle, as AndroidWorld does with an index, because AndroidWorld numbers the elements
anew before it acts; only scrolling inside an element needs its number (and number 0 scrolls the whole screen there).
Its swipes to the left and to the right move the finger the other way round than its own swipes up and down; here a
swipe names the way of the finger, so these two are exchanged.

Step budget and difficulty of AndroidWorld's tasks, for where only their names can be asked for.

A budget is int(10 · complexity) steps, as AndroidWorld's runner allots them. Facts of its registry and its
task_metadata.json (Apache-2.0), all 116 tasks of the family "android_world".
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from collab.envs.android.device import CHANGED, describe_effect
from collab.envs.android.device_adb import title_package
from collab.envs.android.device_guard import TOUCHING
from collab.envs.android.device_screen import observe, read_views
from collab.envs.android.device_targets import find_again, has_same_look
from collab.envs.grammar import MOBILE
from collab.envs.text import MAX_NOTICE, cut_middle, find_direction, find_place
from collab.errors import EnvironmentFailure, UnknownName, UsageError
from collab.types import Action, ElementTarget, Observation, Outcome, Point, StepResult, Task

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


_TEXTS = {
    "text": "text",
    "content_description": "content-desc",
    "hint_text": "hint",
    "class_name": "class",
    "package_name": "package",
    "resource_name": "resource-id",
}
_FLAGS = {
    "is_checkable": "checkable",
    "is_checked": "checked",
    "is_clickable": "clickable",
    "is_enabled": "enabled",
    "is_focusable": "focusable",
    "is_focused": "focused",
    "is_long_clickable": "long-clickable",
    "is_scrollable": "scrollable",
    "is_selected": "selected",
    "is_visible": "visible-to-user",
}
"""AndroidWorld's names → those of a UiAutomator dump."""
_EXCHANGED = {"left": "right", "right": "left"}


def read_screen(told: Mapping[str, Any]) -> tuple[Observation, tuple[int, ...]]:
    """Return what the helper's `look` tells: the observation, and each element's index in AndroidWorld's list."""
    width, height = int(told["width"]), int(told["height"])
    screen, numbers = read_views([_describe_view(one) for one in told["elements"]], width=width, height=height)
    package = str(told["activity"]).partition("/")[0] or screen.package
    return observe(screen, app=title_package(package, {}), notice=None, width=width, height=height), numbers


def _describe_view(element: Mapping[str, Any]) -> dict[str, str]:
    view = {name: str(element[key]) for key, name in _TEXTS.items() if element.get(key)}
    view |= {name: "true" if element[key] else "false" for key, name in _FLAGS.items() if element.get(key) is not None}
    if "box" in element:
        left, top, right, bottom = element["box"]
        view["bounds"] = f"[{left},{top}][{right},{bottom}]"
    return view


def as_json_action(action: Action, observation: Observation, numbers: Sequence[int]) -> dict[str, Any] | str:
    """Convert a canonical action to the fields of AndroidWorld's JSONAction; a text says why there is none.

    Args:
        numbers: each element's index in AndroidWorld's list.
    """
    if action.type in ("press_keys", "open_recents", "ask_user"):
        return f"AndroidWorld has no action {action.type}"
    if action.type == "input_text" and not action["text"]:
        return "AndroidWorld does nothing for an empty text"
    end = MOBILE.find_end(action)
    if action.target is not None and end is not None:
        # It swipes by direction alone, from a start.
        start, stop = find_place(action.target, observation), find_place(end, observation)
        if start is None or stop is None:
            return "the screen has no such element"
        action = replace(action, type="swipe", arguments=(("direction", find_direction(start, stop)),))
    fields: dict[str, Any] = {"action_type": action.type, **dict(action.arguments)}
    fields.pop("press_enter", None)  # it types with Enter alone
    if action.type == "swipe":
        # AndroidWorld swipes left where our actions say right, and the other way round.
        fields["direction"] = _EXCHANGED.get(fields["direction"], fields["direction"])
    if isinstance(action.target, Point):
        fields |= {"x": round(action.target.x), "y": round(action.target.y)}
    elif isinstance(action.target, ElementTarget):
        index = action.target.index
        if index >= len(observation.elements):
            return f"the screen has no element {index}"
        box = observation.elements[index].box
        # Scrolling is by element there; taps are by place, which is where the element is now.
        if action.type == "scroll":
            fields["index"] = numbers[index]
        elif box is not None:
            fields["x"], fields["y"] = box.center
    return fields


logger = logging.getLogger(__name__)

AnswerT = TypeVar("AnswerT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A screen of AndroidWorld."""

    observation: Observation
    numbers: tuple[int, ...] = ()
    """For each element of the observation, its index in AndroidWorld's list."""
    png: bytes | None = None
    """The picture, where it comes with the look."""
    pixels: NDArray[np.uint8] | None = None
    """The same picture as colours, height × width × 3."""


class Remote(Protocol):
    """AndroidWorld somewhere else. Calls block, and raise EnvironmentFailure when it fails."""

    label: str

    def begin(self, task: Task) -> str:
        """Put the emulator into the task's initial state; an episode that still runs is torn down. Gives the goal."""
        ...

    def look(self) -> Look:
        """Return the screen as soon as it stands still."""
        ...

    def picture(self) -> bytes:
        """Return what was looked at last, as PNG."""
        ...

    def act(self, fields: dict[str, Any]) -> str | None:
        """Execute an action in AndroidWorld's JSON form; why it was not executed, or None."""
        ...

    def finish(self, *, judge: bool) -> float | None:
        """Tear the task down and return AndroidWorld's score in [0, 1], if asked for."""
        ...


class AndroidWorldEnvironment:
    """One emulator behind the `Environment` protocol; also `HasScreenshot` and `HasGoal`."""

    space = MOBILE

    def __init__(self, remote: Remote) -> None:
        self._remote = remote
        self._task: Task | None = None
        self._look: Look | None = None
        self._goal = ""
        self._steps = 0
        self._has_answered = False
        self.closed = False
        """Whether `close` was called."""

    async def reset(self, task: Task) -> Observation:
        """Let AndroidWorld make the task's initial state."""
        self._task, self._steps, self._has_answered = None, 0, False
        logger.info("%s: begin %s, seed %d", self._remote.label, task.name, task.seed)
        self._goal = await self._do(partial(self._remote.begin, task))
        self._task = task
        return await self._see()

    def goal(self) -> str:
        """Return the goal as AndroidWorld states it for the episode; a few tasks put the present time into it."""
        return self._goal

    async def step(self, action: Action | None) -> StepResult:
        """Execute the canonical form of an action; None waits a second."""
        # Without a look there is nothing that indices could mean.
        if self._task is None or self._look is None or self.closed:
            raise EnvironmentFailure(f"{self._remote.label}: step without a running episode; call reset(task) first")
        # Counted for the log even if the action is refused: it is a step of the episode.
        self._steps += 1
        before = self._look
        action = MOBILE.canonical(action or MOBILE.make("wait"), before.observation)
        said = MOBILE.describe(action, before.observation)
        # `status` ends the episode in AndroidWorld's own words, and is never sent to the device.
        if action.type == "status":
            logger.info("%s step %d: %s", self._remote.label, self._steps, said)
            # The last word of some models holds the answer; one that was given before counts.
            if action.get("answer") and not self._has_answered:
                await self._do(partial(self._remote.act, {"action_type": "answer", "text": str(action["answer"])}))
            return await self._end_episode(before.observation, str(action["goal_status"]))
        # Screens move while a team deliberates: the element is looked for again where it is now.
        aimed = await self._aim_again(action, before)
        # What is gone is not tapped at its old place, where something else may lie by now.
        if aimed is None:
            logger.warning("%s step %d: not done: %s (%s)", self._remote.label, self._steps, said, CHANGED)
            return await self._continue_episode(self._task, before, self._look, action, CHANGED)
        action, before = aimed
        fields = as_json_action(action, before.observation, before.numbers)
        # A text says why AndroidWorld has no such action; that costs a step and no crash.
        if isinstance(fields, str):
            return await self._continue_episode(self._task, before, before, action, fields)
        logger.info("%s step %d: %s %s", self._remote.label, self._steps, said, fields)
        refused = await self._do(partial(self._remote.act, fields))
        self._has_answered = self._has_answered or action.type == "answer"
        # Looked at in any case: a refused action may still have changed the screen.
        await self._see()
        return await self._continue_episode(self._task, before, self._look, action, refused)

    async def screenshot(self, marks: bool = False) -> bytes:
        """Return what was looked at last, as PNG bytes; `marks` draws a numbered box on every element."""
        png = await self._do(self._remote.picture)
        if not marks or self._look is None or not self._look.observation.elements:
            return png
        from collab.envs.overlay import mark_png  # Pillow loads only for a look

        return mark_png(png, self._look.observation)

    async def close(self) -> None:
        """Tear a running task down and let the emulator be."""
        if self._task is not None and not self.closed:
            self._task = None
            await self._do(partial(self._remote.finish, judge=False))
        self.closed = True

    # -------------------------------------------------------------------------------------------------- internal

    async def _aim_again(self, action: Action, before: Look) -> tuple[Action, Look] | None:
        """Look again before a touch: the action on the present screen, and the look; None when its target is gone."""
        if action.type not in TOUCHING:
            return action, before
        now = self._look = await self._do(self._remote.look)
        again = find_again(action, before.observation, now.observation)
        if (
            before.pixels is not None
            and now.pixels is not None
            and not has_same_look(action, before.pixels, now.pixels)
        ):
            again = None
        return None if again is None else (again, now)

    async def _see(self) -> Observation:
        self._look = await self._do(self._remote.look)
        return self._look.observation

    async def _end_episode(self, observation: Observation, status: str) -> StepResult:
        score = await self._do(partial(self._remote.finish, judge=True))
        self._task = None
        if score is None:
            raise EnvironmentFailure(f"{self._remote.label}: AndroidWorld gave no score")
        reason = f"AndroidWorld's checker gives {score:g}"
        outcome = Outcome(success=score == 1.0, score=score, reason=reason)
        info = {"effect": f"declared the task {status}"}
        return StepResult(observation=observation, terminated=True, outcome=outcome, info=info)

    async def _continue_episode(
        self, task: Task, before: Look, after: Look, action: Action, refused: str | None
    ) -> StepResult:
        said = _describe_effect(before, after, action) if refused is None else CHANGED
        if refused not in (None, CHANGED):
            said = f"nothing changed: {cut_middle(refused or '', MAX_NOTICE)}"
        info = {"effect": said}
        if self._steps < task.max_steps:
            return StepResult(observation=after.observation, info=info)
        self._task = None
        await self._do(partial(self._remote.finish, judge=False))
        outcome = Outcome(success=False, score=0.0, reason="the step budget ended before the agent said status")
        return StepResult(observation=after.observation, truncated=True, outcome=outcome, info=info)

    async def _do(self, function: Callable[[], AnswerT]) -> AnswerT:
        """Run a blocking call in a thread; what was there when the run began and is gone now is a failure."""
        try:
            return await asyncio.to_thread(function)
        except UnknownName:
            raise
        except UsageError as error:
            raise EnvironmentFailure(str(error)) from error


def _describe_effect(before: Look, after: Look, action: Action) -> str:
    if action.type == "answer":
        return "noted the answer"
    if after.png is None or action.type == "wait":
        effect = describe_effect(before.observation, after.observation, action)
    else:
        effect = "the picture changed" if after.png != before.png else "the picture did not change"
    return effect if action.get("press_enter", True) else f"{effect}; Enter was pressed, as AndroidWorld always does"


BUDGETS: Mapping[str, tuple[int, str]] = {
    "AudioRecorderRecordAudio": (12, "easy"),
    "AudioRecorderRecordAudioWithFileName": (20, "easy"),
    "BrowserDraw": (20, "easy"),
    "BrowserMaze": (20, "easy"),
    "BrowserMultiply": (22, "hard"),
    "CameraTakePhoto": (10, "easy"),
    "CameraTakeVideo": (10, "medium"),
    "ClockStopWatchPausedVerify": (10, "easy"),
    "ClockStopWatchRunning": (10, "easy"),
    "ClockTimerEntry": (10, "easy"),
    "ContactsAddContact": (12, "easy"),
    "ContactsNewContactDraft": (12, "easy"),
    "ExpenseAddMultiple": (60, "medium"),
    "ExpenseAddMultipleFromGallery": (60, "hard"),
    "ExpenseAddMultipleFromMarkor": (60, "hard"),
    "ExpenseAddSingle": (12, "easy"),
    "ExpenseDeleteDuplicates": (12, "medium"),
    "ExpenseDeleteDuplicates2": (18, "medium"),
    "ExpenseDeleteMultiple": (20, "easy"),
    "ExpenseDeleteMultiple2": (34, "hard"),
    "ExpenseDeleteSingle": (10, "easy"),
    "FilesDeleteFile": (22, "medium"),
    "FilesMoveFile": (20, "medium"),
    "MarkorAddNoteHeader": (12, "medium"),
    "MarkorChangeNoteContent": (12, "medium"),
    "MarkorCreateFolder": (10, "easy"),
    "MarkorCreateNote": (16, "medium"),
    "MarkorCreateNoteAndSms": (18, "hard"),
    "MarkorCreateNoteFromClipboard": (14, "medium"),
    "MarkorDeleteAllNotes": (14, "easy"),
    "MarkorDeleteNewestNote": (10, "easy"),
    "MarkorDeleteNote": (10, "easy"),
    "MarkorEditNote": (12, "easy"),
    "MarkorMergeNotes": (78, "hard"),
    "MarkorMoveNote": (14, "medium"),
    "MarkorTranscribeReceipt": (18, "medium"),
    "MarkorTranscribeVideo": (20, "hard"),
    "NotesIsTodo": (10, "easy"),
    "NotesMeetingAttendeeCount": (10, "easy"),
    "NotesRecipeIngredientCount": (10, "easy"),
    "NotesTodoItemCount": (10, "medium"),
    "OpenAppTaskEval": (10, "easy"),
    "OsmAndFavorite": (13, "medium"),
    "OsmAndMarker": (20, "hard"),
    "OsmAndTrack": (120, "hard"),
    "RecipeAddMultipleRecipes": (60, "medium"),
    "RecipeAddMultipleRecipesFromImage": (60, "hard"),
    "RecipeAddMultipleRecipesFromMarkor": (60, "hard"),
    "RecipeAddMultipleRecipesFromMarkor2": (60, "hard"),
    "RecipeAddSingleRecipe": (24, "easy"),
    "RecipeDeleteDuplicateRecipes": (10, "easy"),
    "RecipeDeleteDuplicateRecipes2": (24, "medium"),
    "RecipeDeleteDuplicateRecipes3": (34, "medium"),
    "RecipeDeleteMultipleRecipes": (24, "easy"),
    "RecipeDeleteMultipleRecipesWithConstraint": (40, "hard"),
    "RecipeDeleteMultipleRecipesWithNoise": (34, "medium"),
    "RecipeDeleteSingleRecipe": (10, "easy"),
    "RecipeDeleteSingleWithRecipeWithNoise": (20, "easy"),
    "RetroCreatePlaylist": (24, "medium"),
    "RetroPlayingQueue": (32, "easy"),
    "RetroPlaylistDuration": (30, "medium"),
    "RetroSavePlaylist": (50, "hard"),
    "SaveCopyOfReceiptTaskEval": (16, "hard"),
    "SimpleCalendarAddOneEvent": (34, "hard"),
    "SimpleCalendarAddOneEventInTwoWeeks": (34, "medium"),
    "SimpleCalendarAddOneEventRelativeDay": (34, "easy"),
    "SimpleCalendarAddOneEventTomorrow": (34, "easy"),
    "SimpleCalendarAddRepeatingEvent": (34, "easy"),
    "SimpleCalendarAnyEventsOnDate": (10, "easy"),
    "SimpleCalendarDeleteEvents": (14, "easy"),
    "SimpleCalendarDeleteEventsOnRelativeDay": (12, "medium"),
    "SimpleCalendarDeleteOneEvent": (12, "easy"),
    "SimpleCalendarEventOnDateAtTime": (10, "medium"),
    "SimpleCalendarEventsInNextWeek": (10, "easy"),
    "SimpleCalendarEventsInTimeRange": (10, "easy"),
    "SimpleCalendarEventsOnDate": (10, "medium"),
    "SimpleCalendarFirstEventAfterStartTime": (10, "easy"),
    "SimpleCalendarLocationOfEvent": (10, "easy"),
    "SimpleCalendarNextEvent": (10, "easy"),
    "SimpleCalendarNextMeetingWithPerson": (10, "medium"),
    "SimpleDrawProCreateDrawing": (18, "easy"),
    "SimpleSmsReply": (12, "easy"),
    "SimpleSmsReplyMostRecent": (12, "medium"),
    "SimpleSmsResend": (12, "medium"),
    "SimpleSmsSend": (12, "medium"),
    "SimpleSmsSendClipboardContent": (12, "easy"),
    "SimpleSmsSendReceivedAddress": (18, "medium"),
    "SportsTrackerActivitiesCountForWeek": (10, "easy"),
    "SportsTrackerActivitiesOnDate": (20, "hard"),
    "SportsTrackerActivityDuration": (10, "easy"),
    "SportsTrackerLongestDistanceActivity": (10, "easy"),
    "SportsTrackerTotalDistanceForCategoryOverInterval": (20, "hard"),
    "SportsTrackerTotalDurationForCategoryThisWeek": (10, "hard"),
    "SystemBluetoothTurnOff": (10, "easy"),
    "SystemBluetoothTurnOffVerify": (10, "easy"),
    "SystemBluetoothTurnOn": (10, "easy"),
    "SystemBluetoothTurnOnVerify": (10, "easy"),
    "SystemBrightnessMax": (10, "easy"),
    "SystemBrightnessMaxVerify": (10, "easy"),
    "SystemBrightnessMin": (10, "easy"),
    "SystemBrightnessMinVerify": (10, "easy"),
    "SystemCopyToClipboard": (10, "easy"),
    "SystemWifiTurnOff": (10, "easy"),
    "SystemWifiTurnOffVerify": (10, "easy"),
    "SystemWifiTurnOn": (10, "easy"),
    "SystemWifiTurnOnVerify": (10, "easy"),
    "TasksCompletedTasksForDate": (10, "medium"),
    "TasksDueNextWeek": (10, "medium"),
    "TasksDueOnDate": (10, "easy"),
    "TasksHighPriorityTasks": (10, "medium"),
    "TasksHighPriorityTasksDueOnDate": (10, "medium"),
    "TasksIncompleteTasksOnDate": (10, "easy"),
    "TurnOffWifiAndTurnOnBluetooth": (20, "medium"),
    "TurnOnWifiAndOpenApp": (20, "easy"),
    "VlcCreatePlaylist": (28, "medium"),
    "VlcCreateTwoPlaylists": (48, "medium"),
}
"""Task → (steps, difficulty)."""
