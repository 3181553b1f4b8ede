from pathlib import Path

import pytest

from collab.envs.web.live import LiveSuite
from collab.envs.web.live_tasks import load_tasks
from collab.errors import ConfigError, UnknownName, UsageError

TASK = {"name": "look", "start": "http://shop.test/", "goal": "Look.", "success": {"prefix": "http://shop.test/"}}


def write(folder: Path, text: str) -> Path:
    path = folder / "tasks.yaml"
    path.write_text(text)
    return path


def test_a_file_and_a_list_say_the_same(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "tasks:\n- name: look\n  start: http://shop.test/\n  goal: Look.\n  success: {prefix: 'http://shop.test/'}\n",
    )
    assert load_tasks(path) == load_tasks([TASK])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sucess": {}}, ["no key called 'sucess'", "did you mean success"]),
        ({"success": {}}, ["give at least one of address"]),
        ({"success": {"text": "x", "answer": "y"}}, ["need a selector"]),
        ({"success": {"address": "("}}, ["not a regular expression"]),
        ({"success": {"selector": "p", "count": -1}}, ["count", "-1"]),
        ({"max_steps": 0}, ["max_steps", "0"]),
        ({"difficulty": "brutal"}, ["difficulty", "'easy'"]),
        ({"name": "two words"}, ["name", "two words"]),
        ({"goal": ""}, ["goal"]),
    ],
)
def test_a_wrong_field_is_named_with_what_is_allowed(change: dict[str, object], words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        load_tasks([TASK | change])
    assert all(word in str(caught.value) for word in words), caught.value
    assert "\n" not in str(caught.value)


def test_an_error_in_a_file_names_its_line(tmp_path: Path) -> None:
    path = write(tmp_path, "tasks:\n- name: look\n  start: http://shop.test/\n  goal: Look.\n  succes: {}\n")
    with pytest.raises(ConfigError, match=r"tasks\.yaml:\d+"):
        load_tasks(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        load_tasks(tmp_path / "none.yaml")


def test_two_tasks_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="two tasks are called 'look'"):
        load_tasks([TASK, TASK])


@pytest.mark.parametrize("start", ["file:///srv/page.html", "http://localhost:8000/", "http://10.0.0.1/", "shop.test"])
def test_a_start_address_that_is_not_allowed_is_found_before_anything_starts(start: str) -> None:
    with pytest.raises(ConfigError, match="web task look: start"):
        LiveSuite(tasks=[TASK | {"start": start}])


def test_a_host_off_the_list_and_a_missing_folder_are_found_too(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not on the list"):
        LiveSuite(tasks=[TASK], allow_hosts=["example.org"])
    with pytest.raises(ConfigError, match="is not a folder"):
        LiveSuite(tasks=[TASK], sites={"shop.test": str(tmp_path / "none")})


def test_a_suite_tells_its_tasks_without_a_browser() -> None:
    suite = LiveSuite(tasks=[TASK | {"max_steps": 7, "tags": ["a"], "apps": ["shop"], "difficulty": "easy"}])
    (info,) = suite.tasks()
    assert (info.name, info.max_steps, info.tags, info.apps, info.difficulty) == ("look", 7, ("a",), ("shop",), "easy")
    task = suite.instance("look", seed=3)
    assert (task.goal, task.seed, task.params["start"]) == ("Look.", 3, "http://shop.test/")
    with pytest.raises(UnknownName, match="did you mean look"):
        suite.instance("lok", seed=0)


def test_wrong_hosts_are_usage_errors() -> None:
    with pytest.raises(UsageError, match="allow_hosts"):
        LiveSuite(tasks=[TASK], allow_hosts=["http://shop.test/"])
