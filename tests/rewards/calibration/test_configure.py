"""From names to what is asked: tasks of the training split alone, and one line for every mistake."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from collab.errors import CollabError, EnvironmentFailure
from collab.rewards.calibration.config import CalibrationConfig
from collab.rewards.calibration.run import start

Wanted = Callable[..., CalibrationConfig]


def test_steps_come_from_the_training_split(build_config: Wanted) -> None:
    config = build_config(env="androidworld", critic="critic-oracle", cases=1)
    assert config.split is not None
    assert config.split.name == "train"
    assert config.environment.part.options["without"] == ["pro expense"]
    assert not [task for task in config.tasks if task.startswith("Expense")]


def test_settings_reach_the_critic(build_config: Wanted) -> None:
    config = build_config(settings=["critic.options.per=round", "critic.options.model.options.model=other", "steps=2"])
    assert (config.critic.options["per"], config.critic.options["model"]["options"]["model"]) == ("round", "other")
    assert config.steps == 2
    assert set(config.texts) == {"system", "step"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"env": "web"}, "web cannot be copied or rebuilt, or knows no solutions"),
        ({"env": "nowhere"}, "no environment called 'nowhere'"),
        ({"critic": "nobody"}, "no agents file called 'nobody'"),
        ({"critic": "rehearsal"}, "agents/rehearsal: kind rehearsal speaks and does not judge"),
        ({"tasks": ["Nothing"]}, "no task of corridor called 'Nothing'"),
        ({"seed": 30}, "run seed 30 is not one of split train"),
        ({"settings": ["cases=0"]}, "cases"),
        ({"settings": ["critic_name=other"]}, "--set critic_name: cannot be set; say it with --critic"),
        ({"settings": ["critic.modality=both"]}, "modality"),
    ],
)
def test_a_mistake_is_one_line(build_config: Wanted, given: dict[str, Any], message: str) -> None:
    with pytest.raises(CollabError) as refused:
        build_config(**given)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
    assert refused.value.exit_code == 2


def test_a_world_that_breaks_is_a_failure(build_config: Wanted, tmp_path: Any) -> None:
    with pytest.raises(EnvironmentFailure, match="broke at step 0"):
        asyncio.run(start(build_config(env="broken", critic="critic-oracle"), tmp_path / "out"))
