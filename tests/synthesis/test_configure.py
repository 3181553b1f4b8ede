"""From names to a configuration: always the training split, and only what the teacher can teach."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from collab.data.splits import EVALUATION_SEEDS, list_kept_instances
from collab.errors import ConfigError, OverlapError, UnknownName, UsageError
from collab.library import Library
from collab.rollout.collector import RolloutProgress
from collab.synthesis.config import SynthConfig, SynthesisRequest, configure, list_units
from collab.synthesis.conversation import Reader
from collab.synthesis.oracle_teacher import OracleTeacher
from collab.synthesis.run import open_synthesis
from collab.synthesis.units import Ledger, SynthesisProgress

Wanted = Callable[..., SynthConfig]


def built_in(env: str, **asked: object) -> SynthConfig:
    return asyncio.run(configure(Library(), SynthesisRequest(env=env, **asked)))  # type: ignore[arg-type]


def test_the_training_split_is_implied_and_the_unseen_app_is_not_installed():
    config = built_in("androidworld")
    assert config.split.name == "train"
    assert config.environment.part.options["without"] == ["pro expense"]
    assert config.episodes == len(config.tasks) == 50
    assert not any("Expense" in task for task in config.tasks)


def test_no_unit_plays_what_is_kept_for_evaluation():
    units = list_units(built_in("androidworld", screens=3000, episodes=1000))
    assert len(units) == 1300
    assert not [unit for unit in units if unit.instance in list_kept_instances(unit.task)]
    assert len({(unit.task, unit.instance) for unit in units}) == len(units)


@pytest.mark.parametrize("seed", EVALUATION_SEEDS)
def test_seeds_of_evaluation_are_refused(build_config: Wanted, seed: int):
    with pytest.raises(UsageError, match=f"run seed {seed} is not one of split train"):
        build_config(seed=seed)


def test_an_instance_that_is_kept_by_chance_is_refused(build_config: Wanted, monkeypatch: pytest.MonkeyPatch):
    unit = list_units(build_config())[0]
    monkeypatch.setattr("collab.data.splits.list_kept_instances", lambda task: frozenset({unit.instance}))
    with pytest.raises(OverlapError, match=f"its instance seed {unit.instance} is kept"):
        build_config()


def test_unseen_tasks_cannot_be_asked_for():
    with pytest.raises(UsageError, match="none of the 1 chosen tasks is in split train"):
        built_in("androidworld", tasks=["ExpenseAddSingle"])


def test_tasks_without_a_solution_are_left_out_and_named():
    config = built_in("mobile-miniwob")
    assert "bisect-angle" in config.unsolved
    assert "click-button" in config.tasks
    assert not set(config.tasks) & set(config.unsolved)
    assert built_in("mobile-miniwob", teacher="openai").unsolved == []


def test_teachers_have_their_own_sampling(build_config: Wanted):
    config = built_in("androidworld", teacher="openai")
    assert config.teacher.sampling.temperature == 0.3
    assert (config.sampling.temperature, config.sampling.max_tokens) == (0.1, 2048)
    assert build_config(teacher="tutor", settings=["sampling.temperature=0.5"]).sampling.temperature == 0.5


def test_levels_are_put_in_the_order_of_the_curriculum(build_config: Wanted):
    assert build_config(levels=["preference", "basic"]).levels == ["basic", "preference"]
    with pytest.raises(UnknownName):
        build_config(levels=["basic", "advanced"])
    for levels in ("[preference, basic]", "[basic, basic]"):
        with pytest.raises(ConfigError, match="levels must stand once and in this order") as refused:
            build_config(settings=[f"levels={levels}"])
        assert len(str(refused.value)) < 200


def test_a_synthesis_of_nothing_is_refused_in_one_short_line(build_config: Wanted):
    with pytest.raises(ConfigError, match=r"^neither screens nor episodes are asked for; give --screens or --episodes"):
        build_config(screens=0, episodes=0)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("environment.unseen.apps=[]", "what is kept for evaluation is not changed"),
        ("environment.unseen={}", "what is kept for evaluation is not changed"),
        ("split={name: train, hash: '0', tasks: 1, check: []}", "what is kept for evaluation|--set: split"),
        ("teacher_name=gpt", "say it with --teacher"),
        ("tasks=[ExpenseAddSingle]", "say it with --tasks"),
        ("episodes=2", "say it with --episodes"),
        ("unsolved=[a]", "unsolved: cannot be set"),
    ],
)
def test_settings_neither_let_in_what_is_kept_nor_are_passed_over(setting: str, message: str):
    with pytest.raises((UsageError, ConfigError), match=message):
        built_in("androidworld", settings=[setting])


@pytest.mark.parametrize("setting", ["mistakes=0.1", "seats=2", "talk=1", "renamed=0.3", "two_steps=0.5", "hurry=0.5"])
def test_a_model_is_given_no_setting_of_the_oracle(build_config: Wanted, setting: str):
    name = setting.partition("=")[0]
    with pytest.raises(UsageError, match=f"--set {name}: is for the oracle as a teacher, and means nothing to tutor"):
        build_config(teacher="tutor", settings=[setting])
    assert name in type(build_config(settings=[setting])).model_fields


def test_the_oracle_is_given_no_setting_of_models(build_config: Wanted):
    with pytest.raises(
        UsageError, match="--set instructions, sampling: is for a model as a teacher, and means nothing"
    ):
        build_config(settings=["sampling.temperature=0.5", "elements=2", "instructions=3"])
    assert build_config(teacher="tutor", settings=["elements=2", "instructions=3"]).instructions == 3


def test_walks_teach_as_many_screens_as_were_asked_for(build_config: Wanted):
    units = list_units(build_config(screens=34, episodes=2))
    assert [unit.id for unit in units] == ["walk/0", "walk/1", "walk/2", "walk/3", "episode/0", "episode/1"]
    assert [len(unit.scenes) for unit in units] == [10, 10, 10, 4, 0, 0]


def test_teachers_prompts_may_be_ones_own(build_config: Wanted, folder: Path):
    own = folder / "prompts" / "teacher"
    own.mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"a teacher's prompts need system\.jinja"):
        build_config(teacher="tutor")
    for name, text in wanted_texts().items():
        (own / f"{name}.jinja").write_text(text + "\nBe brief.")
    assert build_config(teacher="tutor").teacher_prompts["critic"].endswith("Be brief.")


def wanted_texts() -> dict[str, str]:
    return built_in("androidworld", teacher="openai").teacher_prompts


def reader_of(config: SynthConfig) -> Reader:
    async def look() -> Reader:
        async with open_synthesis(config, Ledger(SynthesisProgress(calls=RolloutProgress(planned=0)))) as opened:
            teacher = opened.resources.teacher
            assert isinstance(teacher, OracleTeacher)
            return teacher.talk.reader

    return asyncio.run(look())


def test_rows_are_made_for_the_policy_that_the_settings_describe(build_config: Wanted) -> None:
    """What is left of the context for a screen depends on all three; they are those of who will play."""
    plain = reader_of(build_config())
    assert (plain.context_tokens, plain.history, plain.max_tokens) == (8192, 5, 256)
    pocket = reader_of(build_config(settings=["context_tokens=2048", "history=4", "max_tokens=128"]))
    assert (pocket.context_tokens, pocket.history, pocket.max_tokens) == (2048, 4, 128)
