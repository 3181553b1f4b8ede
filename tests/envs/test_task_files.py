import pytest
from pydantic import BaseModel, ConfigDict

from collab.envs.task_files import load_tasks
from collab.errors import ConfigError


class Chore(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str
    goal: str = "Do it."


def test_a_file_and_a_list_give_the_same_tasks(tmp_path):
    (tmp_path / "chores.yaml").write_text("tasks:\n  - name: wash\n  - {name: dry, goal: Dry it.}\n")
    wanted = (Chore(name="wash"), Chore(name="dry", goal="Dry it."))
    assert load_tasks(tmp_path / "chores.yaml", Chore, "chores") == wanted
    assert load_tasks([{"name": "wash"}, {"name": "dry", "goal": "Dry it."}], Chore, "chores") == wanted


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            "tasks:\n  - name: wash\n    gaol: x\n",
            r"chores\.yaml:3: tasks\.0\.gaol: no key called .gaol.; did you mean goal",
        ),
        ("tasks:\n  - goal: x\n", r"chores\.yaml:2: tasks\.0\.name: Field required"),
        ("tasks: [{name: wash}, {name: wash}]\n", "two tasks are called 'wash'"),
        ("chores: []\n", r"chores\.yaml:1: chores: no key called 'chores'; known: tasks"),
        ("tasks: [\n", "not YAML"),
    ],
)
def test_a_mistake_is_told_with_its_line(tmp_path, text, error):
    (tmp_path / "chores.yaml").write_text(text)
    with pytest.raises(ConfigError, match=error):
        load_tasks(tmp_path / "chores.yaml", Chore, "chores")


def test_a_mistake_in_a_list_names_the_kind_of_tasks():
    with pytest.raises(ConfigError, match=r"chores: tasks\.0\.gaol: no key called 'gaol'"):
        load_tasks([{"name": "wash", "gaol": "x"}], Chore, "chores")


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read"):
        load_tasks(tmp_path / "none.yaml", Chore, "chores")
