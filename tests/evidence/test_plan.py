"""What is compared: commands and methods that `collab` knows, equal budgets, equal instances."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from collab.algorithms.collabuiagents.config import ABLATIONS
from collab.config import override
from collab.data.splits import EVALUATION_SEEDS
from collab.errors import ConfigError
from collab.evidence.plan import EvidenceUnit, Plan, read_plan
from collab.evidence.record import read_all
from collab.library import find_builtin_root
from collab.loop.configure import apply_ablation
from collab.loop.interfaces import load_algorithm, load_method

COLLAB = load_algorithm("collabuiagents")
WORK = Path("runs/tables")
FOLDER = find_builtin_root() / "docs" / "results"
PLAN, QUICK = (read_plan(FOLDER / f"{name}.yaml") for name in ("plan", "quick"))
PAGES, TRAINED_PAGES = (PLAN.words[name].split(",") for name in ("pages", "trained_pages"))


def option(words: Sequence[str], name: str) -> str | None:
    return words[words.index(name) + 1] if name in words else None


def given(words: Sequence[str], name: str) -> list[str]:
    return [words[place + 1] for place, word in enumerate(words) if word == name]


@pytest.mark.parametrize("plan", [PLAN, QUICK], ids=["plan", "quick"])
def test_every_command_is_one_that_collab_reads(plan: Plan) -> None:
    from typer.main import get_command

    from collab.cli.main import app

    commands = get_command(app).commands  # type: ignore[attr-defined]
    for unit in (one for one in plan.units if one.seed in (None, 0)):
        name, *words = plan.command(unit, WORK)
        commands[name].make_context(name, list(words))


@pytest.mark.parametrize("plan", [PLAN, QUICK], ids=["plan", "quick"])
def test_methods_are_ones_that_collab_knows(plan: Plan) -> None:
    trained = [unit for unit in plan.units if plan.trains(unit) and unit.seed == 0]
    told = {}
    for unit in trained:
        words = plan.command(unit, WORK)
        method, ablation = load_method(COLLAB, option(words, "--preset")), option(words, "--ablation")
        graph = "team"
        if ablation is not None:
            method, graph = apply_ablation(COLLAB, method, ablation, graph=graph)
        method = override(method, [one for one in given(words, "--set") if not one.startswith("run.")])
        assert graph == plan.arms[unit.arm].graph
        assert method.critic == "critic-oracle"
        assert method.adversary == override(load_method(COLLAB), ["adversary=sampler"]).adversary
        told[unit] = (method.epochs, method.steps, method.tasks, str(method.held_out), method.dpo.temperature)
    for phase in plan.phases:
        assert len({told[unit] for unit in trained if unit.phase == phase}) <= 1, "arms have equal budgets"


@pytest.mark.parametrize("plan", [PLAN, QUICK], ids=["plan", "quick"])
def test_what_is_measured_is_played_with_seeds_that_nothing_is_trained_on(plan: Plan) -> None:
    for phase in (one for one in plan.phases.values() if one.kind == "eval"):
        seeds = [int(seed) for seed in (option(phase.options.split(), "--seeds") or "").split(",")]
        assert set(seeds) <= set(EVALUATION_SEEDS)


def test_every_ablation_is_an_arm_unless_the_full_method_is_like_it() -> None:
    used = {option(arm.method.split(), "--ablation") for arm in PLAN.arms.values() if arm.method}
    assert set(ABLATIONS) - used == {"mixed-pairs", "correction-pairs", "all-steps", "anchor"}


def test_evaluations_of_a_place_play_the_same_instances_for_every_arm() -> None:
    for phase in ("new-seeds", "new-seeds-cold", "unseen-tasks", "pages"):
        asked = [PLAN.command(unit, WORK) for unit in PLAN.units if unit.phase.removesuffix("-continued") == phase]
        alike = {
            tuple(option(words, name) for name in ("--env", "--split", "--tasks", "--episodes", "--seeds"))
            for words in asked
        }
        ((*_, episodes, seeds),) = alike
        assert seeds == "30,31,32"
        assert 3 * int(episodes or 0) >= 300


def test_what_matters_most_comes_first_and_trainings_before_what_plays_them() -> None:
    names = [unit.name for unit in PLAN.units]
    assert names[:2] == ["untrained-team/new-seeds", "untrained-team/unseen-tasks"]
    first = names.index("full/seed-0/train")
    assert all(name.startswith("untrained-") for name in names[:first])
    assert names[first + 1] == "full/seed-0/new-seeds"
    places = {unit: place for place, unit in enumerate(PLAN.units)}
    assert all(places[before] < places[unit] for unit in places if (before := PLAN.needs(unit)))
    assert all(PLAN.phases[unit.phase].minutes <= 40 for unit in places)


def test_a_trained_team_is_played_as_it_was_last_and_gone_on_with_from_there() -> None:
    words = PLAN.command(EvidenceUnit(arm="full", seed=1, phase="new-seeds"), WORK)
    assert option(words, "--agents") == "runs/tables/full/seed-1/train@last"
    words = PLAN.command(EvidenceUnit(arm="full", seed=1, phase="continual"), WORK)
    assert option(words, "--agents") == "runs/tables/full/seed-1/train@last"
    words = PLAN.command(EvidenceUnit(arm="full", seed=1, phase="new-seeds-continued"), WORK)
    assert option(words, "--agents") == "runs/tables/full/seed-1/continual@last"
    assert (
        option(PLAN.command(EvidenceUnit(arm="untrained-team", seed=None, phase="pages"), WORK), "--agents") == "pocket"
    )


def test_pages_are_those_of_the_rule() -> None:
    text = (find_builtin_root() / "scripts" / "evaluate_pocket.sh").read_text(encoding="utf-8").replace("\\\n", "")
    assert f"readonly pages={','.join(PAGES)}\n" in text
    from collab.envs.web.solutions import SOLVED

    splits = json.loads((find_builtin_root() / "docs" / "splits" / "mobile-miniwob.json").read_text(encoding="utf-8"))
    trained = next(set(split["tasks"]) for split in splits if split["split"] == "train")
    assert [page for page in PAGES if page in trained & SOLVED] == TRAINED_PAGES


def test_all_teams_sample_alike_and_are_trained_as_what_sampled() -> None:
    trained = PLAN.command(EvidenceUnit(arm="full", seed=0, phase="train"), WORK)
    played = PLAN.command(EvidenceUnit(arm="full", seed=0, phase="new-seeds"), WORK)
    assert [f"run.{one}" for one in given(played, "--set")] == [one for one in given(trained, "--set") if "run." in one]
    assert {"run.agents.*.sampling.temperature=1.5", "dpo.temperature=1.5"} <= set(given(trained, "--set"))
    cold = given(PLAN.command(EvidenceUnit(arm="full", seed=0, phase="new-seeds-cold"), WORK), "--set")
    assert cold == [*given(played, "--set"), "agents.*.sampling.temperature=0.3"]


def test_what_the_plan_says_of_minutes_is_what_the_committed_units_took() -> None:
    known = read_all(FOLDER / "units", PLAN)
    took = {unit: record.seconds.whole / 60 for unit, record in known.items() if record.epochs}
    phone, pages = ({unit: took[unit] for unit in took if unit.phase == phase} for phase in ("train", "continual"))
    full = [minutes for unit, minutes in phone.items() if unit.arm == "full"]
    long, long_on_pages = (sum(minutes > PLAN.most_minutes for minutes in those.values()) for those in (phone, pages))
    text = " ".join((FOLDER / "plan.yaml").read_text(encoding="utf-8").replace("\n#", " ").split())
    assert f"Two epochs of the full method took {min(full):.0f} to {max(full):.0f} minutes." in text
    assert f"{long} of {len(phone)} trainings on the phone took more than 40 minutes" in text
    assert f"and {long_on_pages} of {len(pages)} on the pages." in text
    assert f"two epochs of 800 steps there took {min(pages.values()):.0f} to {max(pages.values()):.0f} minutes." in text


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("stages: [{arms: [full], phases: [nothing]}]", "'nothing' is neither an arm nor a phase of this plan"),
        ("stages: [{arms: [nobody], phases: [train]}]", "'nobody' is neither an arm nor a phase of this plan"),
        ("stages: []\ngoals: {one: {label: x, first: full/pages, second: full/train}}", "'pages' is neither"),
        ("stages: []\nsteps: 5", r"plan.yaml:7: .*steps"),
    ],
)
def test_a_plan_that_names_what_it_has_not_is_refused(tmp_path: Path, line: str, told: str) -> None:
    text = "agents: pocket\nseeds: [0]\narms: {full: {label: x, method: --preset collab}}\nphases:\n"
    (tmp_path / "plan.yaml").write_text(f"{text}  train: {{kind: train-marl, options: --env x, minutes: 1}}\n{line}\n")
    with pytest.raises(ConfigError, match=told):
        read_plan(tmp_path / "plan.yaml")
