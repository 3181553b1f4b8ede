"""Examining instances with a stand-in for AndroidWorld, and how the results are told; then with AndroidWorld itself."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from collab.envs.simphone.adb.automator import PhoneHandle
from collab.envs.simphone.adb.server import serve_phones
from collab.envs.simphone.conformance import table
from collab.envs.simphone.conformance.fidelity import (
    CLIENT,
    Examiner,
    FidelityVerdict,
    JudgeRefusal,
    Mark,
    build_own_executor,
)
from collab.envs.simphone.shell import run

ROOT = Path(__file__).parents[4]
PACKAGE = os.environ.get("COLLAB_ANDROIDWORLD_PACKAGE")
PYTHON = os.environ.get("COLLAB_ANDROIDWORLD_PYTHON") or f"{PACKAGE}/.venv/bin/python"


class StandIn:
    """Judges Wi-Fi, seen through the shell, as AndroidWorld would."""

    def __init__(self, handle, **replies):
        self.handle, self.replies = handle, replies
        self.asked = []

    def ask(self, do, **values):
        self.asked.append(do)
        if isinstance(self.replies.get(do), Exception):
            raise self.replies[do]
        if do == "start":
            self.handle.put(run(self.handle.phone, "svc wifi enable").phone)
            return {"goal": "Wi-Fi off", "params": {"on_or_off": "off"}, "max_steps": 10}
        if do == "score":
            wifi = run(self.handle.phone, "settings get global wifi_on").stdout.strip()
            self.handle.put(run(self.handle.phone, "input keyevent HOME").phone)  # judging may disturb the phone
            return {"score": self.replies.get("score", float(wifi == "0"))}
        return {}


def examined(name="SystemWifiTurnOff", **replies):
    handle = PhoneHandle()
    judge = StandIn(handle, **replies)
    return Examiner(judge, handle, executor=build_own_executor(handle)).examine(name, 30), judge


def test_three_states_are_judged_by_both():
    verdict, judge = examined()
    assert verdict.misses == []
    assert verdict.marks == {
        "untouched": Mark(theirs=0.0, ours=0.0),
        "solved": Mark(theirs=1.0, ours=1.0),
        "spoilt": Mark(theirs=0.0, ours=0.0),
    }
    assert verdict.changed == "global/wifi_on"
    assert judge.asked == ["start", *(["answer", "score"] * 3), "end"]


def test_a_judge_that_is_always_content_is_a_miss_in_two_states():
    verdict, _ = examined(score=1.0)
    assert verdict.misses == [
        "untouched: AndroidWorld says 1",
        "untouched: AndroidWorld says 1, SimPhone 0",
        "spoilt: AndroidWorld says 1",
        "spoilt: AndroidWorld says 1, SimPhone 0",
    ]


def test_a_judge_that_is_never_content_is_a_miss_in_one():
    verdict, _ = examined(score=0.5)
    assert "solved: AndroidWorld says 0.5" in verdict.misses
    assert "untouched: AndroidWorld says 0.5, SimPhone 0" in verdict.misses


def test_a_forgiving_or_a_strict_judge_is_a_miss_only_where_ours_differs():
    verdict = FidelityVerdict(
        task="ExpenseAddSingle",
        suite_seed=30,
        marks={"blurred": Mark(theirs=1.0, ours=1.0), "disturbed": Mark(theirs=1.0, ours=0.0)},
    )
    assert verdict.misses == ["disturbed: AndroidWorld says 1, SimPhone 0"]


def test_tasks_that_are_set_up_solved_must_score_from_the_start():
    verdict, _ = examined("SystemWifiTurnOffVerify")  # the stand-in sets them up unsolved
    assert "untouched: AndroidWorld says 0" in verdict.misses


def test_what_androidworld_raises_is_a_miss_with_its_words():
    verdict, _ = examined(start=JudgeRefusal("RuntimeError: no storage"))
    assert verdict.misses == ["set-up: AndroidWorld raised RuntimeError: no storage"]
    verdict, _ = examined(score=JudgeRefusal("ValueError: bad row"))
    assert verdict.misses == [
        f"{state}: AndroidWorld raised ValueError: bad row" for state in ("untouched", "solved", "spoilt")
    ]
    verdict, _ = examined(end=JudgeRefusal("OSError: gone"))
    assert verdict.misses == ["tear-down: AndroidWorld raised OSError: gone"]


# ------------------------------------------------------------------------------------------------------- telling

RIGHT = FidelityVerdict(
    task="SystemWifiTurnOff",
    suite_seed=30,
    marks={"untouched": Mark(theirs=0.0, ours=0.0), "solved": Mark(theirs=1.0, ours=1.0)},
    steps=5,
    max_steps=10,
)
WRONG = FidelityVerdict(
    task="SystemWifiTurnOff", suite_seed=31, marks={"untouched": Mark(theirs=0.5, ours=0.0)}, problem="lost"
)
VERIFY = FidelityVerdict(
    task="SystemWifiTurnOffVerify",
    suite_seed=30,
    marks={"untouched": Mark(theirs=None, ours=1.0, error="OSError: gone")},
    solved_from_the_start=True,
)


def test_the_summary_counts_tasks_instances_and_states():
    assert table.format_summary([RIGHT, WRONG, VERIFY]) == (
        "0 of 2 tasks and 1 of 3 instances are as they should be; both judges give the same score in 2 of 4 states"
    )
    assert table.format_summary([RIGHT]).startswith("1 of 1 tasks and 1 of 1 instances")


def test_the_table_has_a_row_for_each_task():
    rows = table.format_table([RIGHT, WRONG, VERIFY]).splitlines()[2:]
    assert rows == [
        "| SystemWifiTurnOff | 0 0.5 | 1 – | – – | – | – – | – – | 5 – | 10 |",
        "| SystemWifiTurnOffVerify ¹ | error | – | – | – | – | – | – | – |",
    ]


def test_the_page_lists_every_miss_and_what_made_it():
    page = table.format_page([RIGHT, WRONG], command="python it", commit="abc", by_their_executor=[RIGHT])
    assert "- SystemWifiTurnOff, suite seed 31: lost; untouched: AndroidWorld says 0.5, SimPhone 0" in page
    assert "seeds 30, 31 was taken" in page
    assert "$ python it" in page
    assert "`abc`" in page
    assert page.count("\nNone.\n") == 1  # with their executor
    assert "AndroidWorld's executor" not in table.format_page([RIGHT], command="", commit="")


def test_instances_without_a_target_are_listed():
    name = "RecipeDeleteMultipleRecipesWithConstraint"
    empty = FidelityVerdict(task=name, suite_seed=30, marks={}, solved_from_the_start=True)
    assert table.list_flawed([empty, FidelityVerdict(task=name, suite_seed=32, marks={}), VERIFY]) == [
        f"{name}, suite seed 30"
    ]


# ---------------------------------------------------------------------------------------------------- the script


def script(*args):
    command = [sys.executable, str(ROOT / "scripts" / "androidworld_fidelity.py"), *args]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


@pytest.mark.slow
def test_bad_options_end_with_one_line(tmp_path):
    for args, said in [
        (["--package", str(tmp_path)], "no android_world/registry.py in"),
        (["--package", str(tmp_path), "--tasks", "SystemWifiTurnOf"], "did you mean SystemWifiTurnOff"),
        (["--package", str(tmp_path), "--seeds", "30;31"], "allowed: whole numbers separated by commas"),
    ]:
        done = script(*args)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
        assert said in done.stderr


needs_androidworld = pytest.mark.skipif(
    PACKAGE is None, reason="set COLLAB_ANDROIDWORLD_PACKAGE to AndroidWorld's source code; see the fidelity page"
)


@pytest.mark.slow
@needs_androidworld
def test_androidworld_judges_every_task_as_we_do():
    done = script("--package", PACKAGE, "--python", PYTHON, "--seeds", "30")
    assert done.returncode == 0, done.stderr
    assert "88 of 88 tasks and 88 of 88 instances" in done.stdout


@pytest.mark.slow
@needs_androidworld
def test_androidworld_executes_our_solutions_through_adb():
    names = "ExpenseAddSingle,FilesMoveFile,SimpleSmsResend,TasksDueOnDate,SimpleCalendarAddRepeatingEvent"
    done = script("--package", PACKAGE, "--python", PYTHON, "--seeds", "30", "--tasks", names, "--their-executor")
    assert done.returncode == 0, done.stderr
    assert "androidworld's executor: 5 of 5 tasks" in done.stdout


LOOK = """
import sys
sys.path[:0] = [sys.argv[1], sys.argv[2]]
import numpy, simphone_env
env = simphone_env.connect(int(sys.argv[3]), "emulator-5554")
state = env.reset(go_home=True)
assert state.pixels.shape == (2400, 1080, 3) and len(numpy.unique(state.pixels)) > 50
assert env.logical_screen_size == env.device_screen_size == (1080, 2400) and env.orientation == 0
(app,) = [element for element in state.ui_elements if element.text == "Contacts"]
x, y = app.bbox_pixels.center
for kind in (0, 1):
    env.controller.step({"action_type": numpy.int32(kind), "touch_position": numpy.array([x / 1080, y / 2400])})
assert "PeopleActivity" in env.foreground_activity_name, env.foreground_activity_name
"""


@pytest.mark.slow
@needs_androidworld
def test_androidworld_sees_and_touches_the_phone():
    handle = PhoneHandle()
    with serve_phones({"emulator-5554": handle}) as port:
        command = [PYTHON, "-c", LOOK, str(CLIENT.parent), PACKAGE, str(port)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert handle.phone.foreground == "com.google.android.contacts"
