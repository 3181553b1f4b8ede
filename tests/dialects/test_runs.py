"""Agents that speak in a model family's dialect: what their model is sent, what its replies do, and what is refused."""

import base64
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from collab.dialects.registry import DIALECTS
from collab.store.reader import RunReader
from collab.testing.fake_server import FakeServer

PHONE = ("rollout", "--env", "androidworld", "--graph", "single", "--tasks", "ContactsAddContact", "--seed", "3")


def write_agent(
    server: FakeServer, dialect: str, *, model: str = "fake", modality: str = "image", kind: str = "openai"
) -> str:
    options = {"base_url": server.url, "model": model} if kind != "rehearsal" else {}
    options |= {"vendor": "openai"} if kind == "computer-use" else {}
    Path("mine.yaml").write_text(
        f"kind: {kind}\noptions: {json.dumps(options)}\ndialect: {dialect}\nmodality: {modality}\n"
    )
    return "mine.yaml"


def play(collab, server: FakeServer, dialect: str, steps: int, out: str = "run") -> list[Any]:
    """Play one episode of so many steps; its utterances."""
    limit = ("--set", f"environment.limits.max_steps={steps}")
    code, _, err = collab(*PHONE, "--agents", write_agent(server, dialect), *limit, "--out", out)
    assert code == 0, err
    with RunReader(Path(out)) as reader:
        (trajectory,) = reader.iterate_trajectories()
    return [step.matrix.utterances[0] for step in trajectory.steps]


def list_questions(server: FakeServer) -> list[dict[str, Any]]:
    """The requests of the episode, without those that ask what the model supports."""
    return [body for body in server.requests if is_question(body)]


def is_question(body: Mapping[str, Any]) -> bool:
    return body["messages"][0]["role"] == "system" and "contact" in str(body["messages"][-1])


def replying(*texts: str) -> Iterator[str]:
    yield from texts
    while True:
        yield texts[-1]


def speak(*texts: str) -> FakeServer:
    replies = replying(*texts)

    def say(body: Mapping[str, Any]) -> str:
        return next(replies) if is_question(body) else "ok"

    return FakeServer(["images"], says=say)


def call(**arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': 'mobile_use', 'arguments': arguments})}\n</tool_call>"


def test_a_family_gets_its_own_prompt_and_picture_and_its_points_reach_the_screen(collab) -> None:
    with speak(
        call(action="open", text="Contacts"),
        call(action="click", coordinate=[546, 1204]) + call(action="type", text="a"),
        call(action="terminate", status="failure"),
    ) as server:
        first, second, third = play(collab, server, "qwen2.5-vl", 5)
        body = list_questions(server)[1]
    system, user = body["messages"]
    assert "mobile_use" in system["content"]
    assert "1092x2408" in system["content"]
    assert [part["type"] for part in user["content"]] == ["image_url", "text"]
    assert "Step 1: open the app" in user["content"][1]["text"]
    assert "Round" not in user["content"][1]["text"]
    picture = base64.b64decode(user["content"][0]["image_url"]["url"].partition(",")[2])
    assert Image.open(io.BytesIO(picture)).size == (1092, 2408)
    assert (first.action.type, first.action["app_name"]) == ("open_app", "contacts")
    # (546, 1204) of 1092 × 2408 is the middle of 1080 × 2400.
    assert second.action.type == "click"
    assert second.remarks == ("also said: type 'a'",)
    assert third.action["goal_status"] == "infeasible"


def test_typing_presses_enter_only_where_the_family_means_it(collab) -> None:
    with speak(
        "Thought: t\nAction: open_app(app_name='Contacts')",
        "Thought: t\nAction: type(content='Ada')",
        "Thought: t\nAction: type(content='Ada\\n')",
        "Thought: t\nAction: scroll(direction='down')",
        "Thought: t\nAction: type(content='\\n')",
    ) as server:
        _, plain, submitted, scrolled, empty = play(collab, server, "ui-tars-1.5", 5)
    assert (empty.action.type, empty.failure) == ("keyboard_enter", None)
    assert plain.action.get("press_enter", True) is False
    assert submitted.action.get("press_enter", True) is True
    assert scrolled.action["direction"] == "down"
    assert scrolled.action.type == "scroll"


def test_appvlm_is_taught_and_read_as_its_paper_says(collab) -> None:
    listed = (
        '{"action-type": "open-app", "app-name": "text"}',
        '{"action-type": "click", "target-element": 7}',
        '{"action-type": "long-press", "target-element": 7}',
        '{"action-type": "input-text", "text": "text"}',
        *(f'{{"action-type": "scroll-{way}"}}' for way in ("up", "down", "left", "right")),
        *(f'{{"action-type": "{one}"}}' for one in ("navigate-home", "navigate-back", "wait")),
    )
    with speak('{"action-type":"scroll-up"}', '{"action-type":"scroll-left"}') as server:
        up, left = play(collab, server, "appvlm", 2)
        system = list_questions(server)[0]["messages"][0]["content"]
    taught = [line.partition(" - ")[0] for line in system.splitlines() if line.startswith("{")]
    assert sorted(taught) == sorted(listed)
    assert [(one.action.type, one.action["direction"]) for one in (up, left)] == [("scroll", "up"), ("scroll", "left")]


def test_a_picture_may_come_behind_the_text(collab) -> None:
    with speak(call(action="wait")) as server:
        play(collab, server, "mai-ui", 1)
        (body,) = list_questions(server)
    assert [part["type"] for part in body["messages"][1]["content"]] == ["text", "image_url"]


def test_what_cannot_be_done_is_counted_by_its_cause(collab) -> None:
    with speak(
        '<think>t</think><answer>do(action="Tap", element=[1040,500])</answer>',
        '<think>t</think><answer>do(action="Tap", element=[2000,500])</answer>',
        '<think>t</think><answer>do(action="Take_over", message="Log in")</answer>',
        "Thought: t\nAction: click(start_box='(1,2)')",
        "I am not sure.",
    ) as server:
        clamped, outside, asked, other, nothing = play(collab, server, "autoglm", 5)
    assert clamped.action.type == "click"
    assert clamped.remarks == ("moved to the edge: (1040, 500)",)
    assert (outside.failure.kind, outside.failure.detail) == (
        "outside",
        "point (2000, 500) is outside the screen, allowed: 0 to 1000",
    )
    assert (asked.action.type, asked.action["question"]) == ("ask_user", "Log in")
    assert other.failure.kind == "other_dialect"
    assert other.failure.detail == (
        "the reply looks like ui-tars-1.0 or ui-tars-1.5, and the agent's dialect is autoglm"
    )
    assert nothing.failure.kind == "no_action"
    assert 'expected e.g. <think></think> <answer>do(action="Tap"' in nothing.failure.detail
    code, out, _ = collab("runs", "show", "run")
    assert code == 0
    assert "replies with remarks: 1 with a point moved to the edge of the screen" in out
    for words in ("in another dialect", "a point outside the screen"):
        assert words in out, out


@pytest.mark.medium
@pytest.mark.browser
def test_points_beyond_the_edge_of_a_page_are_moved_or_refused(collab) -> None:
    points = iter([[1040, 1000], [2000, 500], [-1, -1], [500, -20]])

    def say(body: Mapping[str, Any]) -> str:
        if "computer_use" not in str(body["messages"][0]["content"]):
            return "ok"  # asked what it supports
        arguments = {"action": "left_click", "coordinate": next(points)}
        return f"<tool_call>{json.dumps({'name': 'computer_use', 'arguments': arguments})}</tool_call>"

    with FakeServer(["images"], says=say) as server:
        agents = write_agent(server, "qwen3-vl")
        page = ("rollout", "--env", "miniwob", "--graph", "single", "--tasks", "focus-text", "--seed", "3")
        code, _, err = collab(*page, "--agents", agents, "--set", "environment.limits.max_steps=4", "--out", "run")
    assert code == 0, err
    with RunReader(Path("run")) as reader:
        (trajectory,) = reader.iterate_trajectories()
    moved, *outside = [step.matrix.utterances[0] for step in trajectory.steps]
    assert moved.action.type == "click"
    assert moved.remarks == ("moved to the edge: (1040, 1000)",)
    assert [(one.failure.kind, one.failure.detail) for one in outside] == [
        ("outside", f"point {point} is outside the screen, allowed: 0 to 1000")
        for point in ("(2000, 500)", "(-1, -1)", "(500, -20)")
    ]
    out = collab("runs", "show", "run")[1]
    assert "replies with remarks: 1 with a point moved to the edge of the screen" in out
    assert "a point outside the screen" in out


def test_pointer_and_keys_reach_the_phone_and_what_it_has_not_is_counted(collab) -> None:
    with speak(
        "<think>t</think><action>Drag(start=(500,700), end=(500,300))</action>",
        "<think>t</think><action>PressRecent()</action>",
        "<think>t</think><action>Hover(point=(500,300))</action>",
    ) as server:
        drag, recents, unsupported = play(collab, server, "ui-venus-1.5", 3)
    assert drag.action.type == "drag"
    assert recents.action.type == "open_recents"
    assert unsupported.failure.kind == "unsupported"
    assert unsupported.failure.detail.startswith("hover (500, 300): this environment has no such action, it has click")
    assert "an action that the environment has not" in collab("runs", "show", "run")[1]


def test_an_action_in_other_words_is_named(collab) -> None:
    """Those of an agent without a dialect under a dialect, and those of dialects without one."""
    with speak('{"action_type": "navigate_back"}', "Action: go(direction='backward')") as server:
        phone, page = play(collab, server, "qwen2.5-vl", 2)
    assert [one.failure.kind for one in (phone, page)] == ["other_dialect"] * 2
    assert phone.failure.detail == (
        "the reply looks like glm-4.5v or the mobile actions of an agent without a dialect, and the agent's dialect is "
        "qwen2.5-vl"
    )
    assert "the web actions of an agent without a dialect" in page.failure.detail
    tap = call(action="click", coordinate=[1, 2])
    with speak(tap, "Action: click(start_box='(1,2)')", "Done.", "I do not know.") as server:
        qwen, ui_tars, done, none = play(collab, server, "null", 4, out="plain")
    assert qwen.failure.kind == "other_dialect"
    assert qwen.failure.detail.startswith("the reply looks like qwen2.5-vl, qwen3-vl, ")
    assert qwen.failure.detail.endswith(", and the agent has no dialect")
    assert "ui-tars-1.0 or ui-tars-1.5" in ui_tars.failure.detail
    assert [one.failure.kind for one in (done, none)] == ["no_action"] * 2
    assert "in another dialect" in collab("runs", "show", "plain")[1]


def test_menu_shows_the_recent_apps_and_remarks_are_counted(collab) -> None:
    cut = call(action="click", coordinate=[546, 1204], text="x") + '<tool_call>{"name": "mob'
    with speak(call(action="system_button", button="Menu"), call(action="wait", time=10), cut) as server:
        menu, wait, click = play(collab, server, "qwen2.5-vl", 3)
        system = list_questions(server)[0]["messages"][0]["content"]
    assert menu.action.type == "open_recents"
    assert "Menu to show the recent apps" in system
    assert wait.remarks == ("in part: wait for 10 s",)
    assert click.action.type == "click"
    assert click.remarks == ('not read: a tool call is not JSON: \'<tool_call>{"name": "mob\'', "ignored: text='x'")
    out = collab("runs", "show", "run")[1]
    assert "1 with an action that was done in part" in out
    assert "1 with something behind the action that cannot be read, 1 with arguments that were ignored" in out


def test_a_guessed_dialect_is_printed(collab) -> None:
    with speak("Thought: t\nAction: wait()") as server:
        agents = write_agent(server, "auto", model="UI-TARS-1.5-7B")
        code, _, err = collab(*PHONE, "--agents", agents, "--set", "environment.limits.max_steps=1", "--out", "run")
    assert code == 0, err
    assert "agents/mine: dialect ui-tars-1.5, guessed from the model UI-TARS-1.5-7B" in err


def test_a_dialect_that_is_known_and_not_set_is_printed(collab) -> None:
    with speak('{"action_type": "wait"}') as server:
        agents = write_agent(server, "null", model="Qwen3-VL-8B-Instruct")
        code, _, err = collab(*PHONE, "--agents", agents, "--set", "environment.limits.max_steps=1", "--out", "run")
    assert code == 0, err
    told = "no dialect is set, and Qwen3-VL-8B-Instruct speaks qwen3-vl: set dialect: qwen3-vl and modality: image"
    assert f"agents/mine: {told}" in err


@pytest.mark.parametrize(
    ("kind", "dialect", "modality", "message"),
    [
        ("openai", "qwen25", "image", "no dialect called 'qwen25'; did you mean"),
        ("openai", "openai-computer", "image", "dialect: openai-computer speaks in typed items"),
        (
            "openai",
            "qwen3-vl",
            "text",
            "dialect: qwen3-vl answers to a picture, but modality: text shows none; set modality: image",
        ),
        *(
            ("openai", dialect, "image", message)
            for dialect, message in (
                ("auto", "dialect: auto knows no dialect of the model 'fake'; name one, see: collab agents dialects"),
                ("glm-4.5v-desktop", "is for web actions, the environment takes mobile actions; allowed: qwen2.5-vl,"),
            )
        ),
        (
            *("computer-use", "null", "image"),
            "dialect: openai-computer is for web actions, the environment takes mobile actions; its interface is for "
            "pages: choose an environment of pages, or another kind",
        ),
        (
            *("rehearsal", "auto", "image"),
            "dialect: auto is guessed from options.model or options.path, and neither is set; set one, or name",
        ),
    ],
)
def test_a_dialect_that_does_not_fit_is_refused_in_one_line(collab, kind, dialect, modality, message) -> None:
    with FakeServer(["images"]) as server:
        agents = write_agent(server, dialect, modality=modality, kind=kind)
        code, out, err = collab(*PHONE, "--agents", agents, "--out", "run")
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.strip().splitlines()) == 1


def test_dialects_are_listed_and_explained(collab) -> None:
    code, out, _ = collab("agents", "dialects")
    assert code == 0
    assert "ui-tars-1.5" in out
    assert "multiples of 28, 78,400 to 12,845,056 pixels" in out
    assert "auto guesses it from the model's name or config.json" in out
    code, out, _ = collab("agents", "dialects", "os-atlas")
    assert code == 0
    assert "points: 0-1000" in out
    assert "CLICK <point>[[250, 200]]</point> - tap or click a point" in out
    listed = json.loads(collab("agents", "dialects", "--json")[1])
    assert len(listed) >= 15
    assert listed["mai-ui"]["order"] == "text, picture"
    assert "did you mean qwen" in collab("agents", "dialects", "qwen")[2]


def test_the_check_says_which_dialect_is_spoken_and_where_it_comes_from(collab) -> None:
    with FakeServer(["images"]) as server:
        agents = write_agent(server, "auto", model="UI-TARS-1.5-7B")
        out = collab("agents", "check", agents)[1]
        assert "dialect ui-tars-1.5, guessed from the model UI-TARS-1.5-7B" in out
        agents = write_agent(server, "null", model="Qwen3-VL-8B", modality="text")
        out = collab("agents", "check", agents)[1]
    assert "no dialect is set, and Qwen3-VL-8B speaks qwen3-vl: set dialect: qwen3-vl and modality: image" in out


TEACHER = "kind: rehearsal\noptions: {error_base: 0, error_slope: 0}\nmodality: image\n"


@pytest.mark.medium
@pytest.mark.parametrize("dialect", ["appvlm", pytest.param("qwen2.5-vl", marks=pytest.mark.slow)])
def test_solutions_are_played_in_a_dialect(collab, dialect: str) -> None:
    """Demonstrations for a policy that sees: the family's prompt and replies, and a picture of every screen."""
    Path("teacher.yaml").write_text(f"{TEACHER}dialect: {dialect}\n")
    tasks = ("--tasks", "SystemWifiTurnOn,ContactsAddContact,MarkorDeleteNote", "--set", "success_check=every_step")
    play = ("rollout", "--env", "androidworld", "--graph", "single", "--seed", "3")
    code, out, err = collab(*play, *tasks, "--agents", "teacher.yaml", "--out", "run")
    assert code == 0, err
    assert "rehearsal: not a language model" in out
    with RunReader(Path("run")) as reader:
        played = list(reader.iterate_trajectories())
    assert [one.success for one in played] == [True] * 3
    steps = [step for one in played for step in one.steps]
    assert all(step.observation.screenshot for step in steps)
    texts = [step.matrix.utterances[0].text for step in steps]
    assert all(DIALECTS[dialect].read(one, "mobile").actions for one in texts), texts


@pytest.mark.medium
def test_where_the_dialect_has_no_word_the_episode_fails_in_one_line(collab) -> None:
    Path("teacher.yaml").write_text(f"{TEACHER}dialect: appvlm\n")
    tasks = ("--env", "androidworld", "--tasks", "SystemWifiTurnOn", "--seed", "3")
    collab("rollout", *tasks, "--graph", "single", "--agents", "teacher.yaml", "--out", "run")
    # Without an end at success, the last action is to say that the task is complete.
    assert "appvlm has no word for: done; choose other tasks, or another dialect" in collab("runs", "show", "run")[1]
