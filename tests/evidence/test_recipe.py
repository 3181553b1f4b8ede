"""What was made by another recipe than today's is told from what was made by the same, whatever changed beside it."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import reproduce_tables  # type: ignore[import-not-found]

from collab.errors import UsageError
from collab.evidence.gather import hash_base
from collab.evidence.plan import Arm, EvidenceUnit, Phase, Plan, read_plan
from collab.evidence.record import (
    UnitRecord,
    check_records,
    derive_recipe,
    file_of,
    read_all,
    recipe_of_config,
    write,
)
from collab.library import Library, find_builtin_root
from collab.loop.configure import configure
from collab.loop.record import TrainingDir
from collab.rollout.build import with_prompts
from collab.rollout.plan import run_config
from collab.synthesis.config import SynthesisRequest
from collab.synthesis.config import configure as configure_synthesis
from collab.synthesis.run import start as synthesise
from collab.testing.toy_team import write_library

MakeRecord = Callable[..., UnitRecord]
WORK = Path("runs/tables")
PLAN = read_plan(find_builtin_root() / "docs/results/plan.yaml")
BASE = "b" * 64
TRAIN = EvidenceUnit(arm="full", seed=0, phase="train")
PLAYED = EvidenceUnit(arm="full", seed=0, phase="new-seeds")


def configure_training(unit: EvidenceUnit) -> dict[str, Any]:
    """What `collab train-marl` makes of a unit's words."""
    words = PLAN.command(unit, WORK)[1:]
    pairs = list(zip(words[::2], words[1::2], strict=True))
    given = dict(pairs)
    config = configure(
        Library(),
        algorithm="collabuiagents",
        preset=given["--preset"],
        ablation=given.get("--ablation"),
        env=given["--env"],
        graph="team",
        agents=given["--agents"],
        seed=int(given["--seed"]),
        settings=[value for name, value in pairs if name == "--set"],
    )
    return asyncio.run(config).model_dump(mode="json")


def configure_evaluation(unit: EvidenceUnit) -> dict[str, Any]:
    """What `collab eval` makes of them, by a policy that a training left."""
    words = PLAN.command(unit, WORK)[1:]
    settings = [value for name, value in zip(words[::2], words[1::2], strict=True) if name == "--set"]
    run = run_config(
        purpose="eval",
        library=Library(),
        env="androidworld",
        graph=PLAN.arms[unit.arm].graph,
        agents=PLAN.agents,
        tasks=["OpenAppTaskEval"],
        seed=40,
        settings=[*settings, "agents.*.options.path=elsewhere", "agents.*.options.version=3"],
    )
    return with_prompts(run, Library()).model_dump(mode="json")


@pytest.fixture(scope="module")
def config() -> dict[str, Any]:
    """Of a training by the full method."""
    return configure_training(TRAIN)


def record_finished(make_record: MakeRecord, unit: EvidenceUnit, config: dict[str, Any], **more: Any) -> UnitRecord:
    given = {"base": BASE, "command": PLAN.shown_command(unit, BASE), "config": config, **more}
    return make_record(unit.arm, unit.seed, unit.phase, "10", epochs=["1"] if unit.phase == "train" else (), **given)


def check_made(*made: UnitRecord) -> None:
    check_records(PLAN, {one.unit: one for one in made}, Path("docs/units"), WORK)


@pytest.mark.parametrize("arm", ["full", "paper-5e-6", "single-agent"])
def test_today_s_recipe_is_what_collab_makes_of_the_command(arm: str) -> None:
    unit = EvidenceUnit(arm=arm, seed=1, phase="train")
    assert recipe_of_config(configure_training(unit), "config") == derive_recipe(PLAN, unit)


@pytest.mark.parametrize(
    "unit",
    [
        PLAYED,
        EvidenceUnit(arm="untrained-single", seed=None, phase="unseen-tasks"),
        EvidenceUnit(arm="full", seed=2, phase="new-seeds-greedy"),
    ],
)
def test_and_of_evaluations_whatever_weights_they_play(unit: EvidenceUnit) -> None:
    assert recipe_of_config(configure_evaluation(unit), "config") == derive_recipe(PLAN, unit)


def test_a_training_on_instructions_is_one_in_the_environment_in_which_they_were_made(tmp_path: Path) -> None:
    request = SynthesisRequest(env="androidworld", levels=("instruction",), episodes=1, screens=4)
    asyncio.run(synthesise(asyncio.run(configure_synthesis(Library(), request)), tmp_path / "data"))
    arms = {"full": Arm(label="", method=f"--preset collab --instructions {tmp_path / 'data'}")}
    plan = PLAN.model_copy(update={"arms": arms})
    arguments: dict[str, Any] = {"env": "androidworld", "graph": "team", "agents": PLAN.agents}
    settings = [value for name, value in pairwise(plan.command(TRAIN, WORK)) if name == "--set"]
    made = {"algorithm": "collabuiagents", "preset": "collab", "settings": settings, **arguments}
    asked = asyncio.run(configure(Library(), instructions=tmp_path / "data", **made))
    recipe = derive_recipe(plan, TRAIN)
    assert asked.run.environment.part.kind == "instructions"
    assert recipe_of_config(asked.model_dump(mode="json"), "config") == recipe
    own = recipe_of_config(asyncio.run(configure(Library(), **made)).model_dump(mode="json"), "config")
    assert own.keys() == recipe.keys()
    assert {name for name in own if own[name] != recipe[name]} == {"environment.unseen"}


def test_definitions_of_one_s_own_are_looked_up_where_the_command_says(tmp_path: Path) -> None:
    library = write_library(tmp_path / "library", tmp_path / "base")
    options = f"--env corridor --library {library.own} --graph pair --split none --set epochs=2"
    plan = Plan(
        agents="toy",
        arms={"full": PLAN.arms["full"].model_copy(update={"graph": "pair"})},
        phases={"train": Phase(kind="train-marl", options=options, minutes=1)},
        stages=[],
        seeds=[0],
    )
    there: dict[str, Any] = {
        "env": "corridor",
        "graph": "pair",
        "agents": "toy",
        "split": None,
        "settings": ["epochs=2"],
    }
    began = asyncio.run(configure(library, algorithm="collabuiagents", preset="collab", **there))
    assert recipe_of_config(began.model_dump(mode="json"), "config") == derive_recipe(plan, TRAIN)


@pytest.mark.slow
def test_committed_units_are_of_today_s_recipe() -> None:
    folder = Path(__file__).parents[2] / "docs" / "results" / "units"
    check_records(PLAN, read_all(folder, PLAN), folder, WORK)


def change_value(config: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy with another value; a value of ... removes it."""
    name, _, rest = path.partition(".")
    if rest:
        return {**config, name: change_value(config[name], rest, value)}
    return {key: one for key, one in config.items() if key != name} | ({} if value is ... else {name: value})


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        ("method.dpo.learning_rate", 5e-5, "method.dpo.learning_rate: 5e-05 there, 2e-05 today"),
        ("method.learning_rate_decay", ..., "method.learning_rate_decay: 1.0 there, 0.8 today"),
        (
            "method.pairs",
            {"adversary": 1},
            "method.pairs.adversary: 1.0 there, 0.0 today; method.pairs.correction: 0.0 there, 1.0 today; "
            "method.pairs.stop_at_first_error: false there, true today; 1 more",
        ),
        ("method.left_out", 1, "configuration of another version: .*left_out"),
        ("run.graph.rounds", 2, "graph.rounds: 2 there, 3 today"),
        ("run.agents.ada.history", 9, "agents.ada.history: 9 there, 4 today"),
        ("run.prompts.pocket.shared", "x", "prompts.pocket.shared: another text today"),
    ],
)
def test_a_unit_of_another_recipe_is_refused(
    make_record: MakeRecord, config: dict[str, Any], path: str, value: Any, told: str
) -> None:
    check_made(record_finished(make_record, TRAIN, config))
    with pytest.raises(UsageError, match=rf"{file_of(Path('docs/units'), TRAIN)}: was made by another .*\({told}"):
        check_made(record_finished(make_record, TRAIN, change_value(config, path, value)))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("method.description", "told otherwise"),
        ("method.dpo.window", ...),
        ("method.processes", ...),
        ("run.graph.description", "told otherwise"),
        ("run.environment.description", "told otherwise"),
        ("run.environment.backends.emulator.options.grpc_port", 1),
        ("run.environment.backends.simphone.options.without", ["pro expense"]),
        ("run.seed", 1),
    ],
)
def test_what_decides_nothing_may_differ(
    make_record: MakeRecord, config: dict[str, Any], path: str, value: Any
) -> None:
    check_made(record_finished(make_record, TRAIN, change_value(config, path, value)))


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("steps=800", "steps=500", "command: steps=500 there, steps=800 today"),
        ("--env androidworld", "", "command: nothing there, --env androidworld today"),
        ("--set epochs=2 --set steps=800", "--set steps=800 --set epochs=2", "order of its options"),
    ],
)
def test_so_is_one_of_another_command(
    make_record: MakeRecord, config: dict[str, Any], old: str, new: str, told: str
) -> None:
    other = shlex.join(shlex.split(PLAN.shown_command(TRAIN, BASE).replace(old, new)))
    with pytest.raises(UsageError, match=rf"\({told}\)"):
        check_made(record_finished(make_record, TRAIN, config, command=other))


def test_with_a_training_goes_what_plays_it(make_record: MakeRecord, config: dict[str, Any]) -> None:
    evaluation = record_finished(make_record, PLAYED, configure_evaluation(PLAYED))
    check_made(evaluation)
    with pytest.raises(UsageError) as refused:
        check_made(record_finished(make_record, TRAIN, change_value(config, "method.epochs", 6)), evaluation)
    assert str(refused.value).endswith(
        "remove it and its folder runs/tables/bbbbbbbbbbbb/full/seed-0/train, "
        "and both of full/seed-0/new-seeds, and it is done again"
    )


def test_the_list_refuses_both_what_is_done_and_what_is_begun_by_another_recipe(
    tmp_path: Path, make_record: MakeRecord, config: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    base, other, work = hash_base(PLAN.agents, Library()), change_value(config, "method.epochs", 7), tmp_path / "work"
    training = TrainingDir(work / base[:12] / TRAIN.name)
    training.begin({"config": other})
    places = ["--out", str(tmp_path / "results"), "--work", str(work)]
    assert reproduce_tables.main(["--list", *places]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"error: {training.path}: was begun by another recipe than today's (method.epochs: 7 there")

    units = tmp_path / "results" / "units"
    command = PLAN.shown_command(TRAIN, base)
    write(units, record_finished(make_record, TRAIN, other, base=base, policy=base, command=command))
    for way in ("--list", "--render"):
        assert reproduce_tables.main([way, *places]) == 2
        told = capsys.readouterr().err
        assert told.startswith(
            f"error: {file_of(units, TRAIN)}: was made by another recipe than today's (method.epochs"
        )
        assert f"remove it and its folder {training.path}, and it is done again" in told
        assert told.count("\n") == 1
    assert not (tmp_path / "results.md").exists()
