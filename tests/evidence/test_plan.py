"""What is compared: commands and methods that `collab` knows, equal budgets, equal instances."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from collab.algorithms.collabuiagents.config import ABLATIONS, CollabMethod
from collab.config import override
from collab.data.splits import EVALUATION_SEEDS
from collab.errors import ConfigError
from collab.evidence.plan import EvidenceUnit, Phase, Plan, read_plan
from collab.evidence.record import Records, UnitRecord, derive_recipe, read_all
from collab.library import find_builtin_root
from collab.loop.configure import apply_ablation
from collab.loop.interfaces import load_algorithm, load_method
from collab.preferences.registry import AdversarySpec

MakeRecord = Callable[..., UnitRecord]
COLLAB = load_algorithm("collabuiagents")
WORK = Path("runs/tables")
DOCS = find_builtin_root() / "docs"
FOLDER = DOCS / "results"
PLAN, QUICK = (read_plan(FOLDER / f"{name}.yaml") for name in ("plan", "quick"))
ALONE, PAGES, WRONG, EDGES = (
    read_plan(DOCS / f"{name}/results/plan.yaml") for name in ("algorithms", "pages", "wrong-credit", "edges")
)
team_plan = pytest.mark.parametrize("plan", [PLAN, QUICK], ids=["plan", "quick"])
each_plan = pytest.mark.parametrize(
    "plan",
    [PLAN, QUICK, ALONE, PAGES, WRONG, EDGES],
    ids=["plan", "quick", "algorithms", "pages", "wrong-credit", "edges"],
)
TEMPERATURES = {f"agents.{slot}.sampling.temperature" for slot in ("ada", "ben", "cyd", "dee")}
LIKE_FULL = {"correction-pairs", "anchor"}
"""Ablations that change nothing of the full method."""
NOT_MEASURED = {"adversary-pairs", "contrast-pairs", "mixed-pairs", "no-anchor", "all-steps"}
"""Ablations that no arm has: other sources of pairs, and what docs/recipe.md compares."""


def change_plan(plan: Plan, **parts: Any) -> Plan:
    """Return the plan with other parts."""
    return Plan.model_validate(plan.model_dump() | parts)


def read_options(words: Sequence[str]) -> dict[str, list[str]]:
    """Return the values of each option of a command, in their order."""
    options: dict[str, list[str]] = {}
    for name, value in zip(words[1::2], words[2::2], strict=True):
        options.setdefault(name, []).append(value)
    return options


def ask(plan: Plan, arm: str, phase: str, seed: int | None = 0) -> dict[str, list[str]]:
    """Return the options of a unit's command."""
    return read_options(plan.command(EvidenceUnit(arm=arm, seed=seed, phase=phase), WORK))


def load_asked(plan: Plan, arm: str, phase: str = "train") -> tuple[CollabMethod, str]:
    """Return the method and the graph that an arm is trained by."""
    options, graph = ask(plan, arm, phase), "team"
    method = load_method(COLLAB, options["--preset"][-1])
    if "--ablation" in options:
        method, graph = apply_ablation(COLLAB, method, options["--ablation"][-1], graph=graph)
    method = override(method, [one for one in options["--set"] if not one.startswith("run.")])
    assert isinstance(method, CollabMethod)
    return method, graph


def find_changes(plan: Plan, first: tuple[str, str], second: tuple[str, str]) -> dict[str, tuple[Any, Any]]:
    """Return what of the recipes of two arms in a phase differs: name → both values."""
    there, here = (derive_recipe(plan, EvidenceUnit(arm=arm, seed=0, phase=phase)) for arm, phase in (first, second))
    return {name: (there.get(name), here.get(name)) for name in {**there, **here} if there.get(name) != here.get(name)}


# ------------------------------------------------------------------------------------------- commands and methods


@each_plan
def test_every_command_is_one_that_collab_reads(plan: Plan) -> None:
    from typer.main import get_command

    from collab.cli.main import app

    commands = get_command(app).commands  # type: ignore[attr-defined]
    for unit in (one for one in plan.units if one.seed in (None, 0)):
        name, *words = plan.command(unit, WORK)
        commands[name].make_context(name, list(words))


@team_plan
def test_arms_have_equal_budgets_and_methods_that_collab_knows(plan: Plan) -> None:
    budgets = set()
    for arm in plan.trained:
        method, graph = load_asked(plan, arm)
        assert graph == plan.arms[arm].graph
        assert method.critic == "critic-oracle"
        assert method.adversary == AdversarySpec(kind="sampler")
        played = (method.epochs, method.steps, method.episodes, method.tasks, str(method.held_out))
        budgets.add((*played, method.dpo.epochs, method.dpo.max_steps, method.dpo.batch_rows, method.dpo.temperature))
    assert len(budgets) == 1
    assert not any(name in (arm.method or "") for arm in plan.arms.values() for name in ("max_steps", " steps="))


def test_the_budgets_are_those_that_the_plan_tells() -> None:
    method, _ = load_asked(PLAN, "full")
    assert (method.epochs, method.steps, method.dpo.max_steps) == (2, 800, 80)
    splits = json.loads((DOCS / "splits/androidworld.json").read_text(encoding="utf-8"))
    tasks = {split["split"]: len(split["tasks"]) for split in splits}
    played = {name: 3 * int(ask(PLAN, "full", name)["--episodes"][-1]) for name in PLAN.phases if name != "train"}
    text = " ".join((FOLDER / "plan.yaml").read_text(encoding="utf-8").replace("\n#", " ").split())
    assert "two epochs of 800 environment steps, and 80 optimizer steps in each" in text
    assert f"{method.held_out.episodes} held-out episodes on seed 39" in text
    assert (
        f"The {tasks['new-seeds']} trained tasks have {played['new-seeds']} instances there, "
        f"the {tasks['unseen-tasks']} unseen ones {played['unseen-tasks']}, "
        f"the {tasks['unseen-app']} of the unseen app {played['unseen-app']}."
    ) in text


def test_algorithms_differ_in_what_they_learn_alone() -> None:
    changes = find_changes(ALONE, ("digirl", "train"), ("filtered-bc", "train"))
    # A single agent has no edges; `horizon` 1.0 changes no step limit. All else is DigiRL's own.
    own = {name.split(".")[1] for name in changes} - {"edges", "horizon"}
    assert own == {"advantage", "curriculum", "values", "value_updates", "offline"}
    assert {name for name in changes if name.startswith("method.offline.")} == {
        f"method.offline.values.{one}" for one in ("step", "instruct")
    }
    recipe = derive_recipe(ALONE, EvidenceUnit(arm="digirl", seed=0, phase="train"))
    assert recipe["method.offline.steps"] + 32 * recipe["method.steps"] == 6400
    assert recipe["method.held_out.seeds"] == [39]
    played = {ask(ALONE, "digirl", phase)["--seeds"][-1] for phase in ALONE.phases if phase != "train"}
    assert played == {"40,41,42"}


def test_arms_of_appvlm_differ_in_where_the_final_fine_tuning_begins_alone() -> None:
    for arm, start in (("appvlm-no-final", "previous"), ("appvlm-awo", "undemonstrated")):
        changes = find_changes(ALONE, ("appvlm", "train"), (arm, "train"))
        assert changes.pop("method.final_from") == ("base", start)
        assert set(changes) <= {"method.undemonstrated"}
        assert ask(ALONE, arm, "train")["--fork"] == [f"{WORK}/appvlm/seed-0/train@epoch8"]
        played = [phase for phase in ALONE.phases if ALONE.units_of(f"{arm}/{phase}")]
        assert played == ["train", "new-seeds-greedy", "solved-greedy"]
    recipe = derive_recipe(ALONE, EvidenceUnit(arm="appvlm", seed=0, phase="train"))
    assert (recipe["method.epochs"], recipe["method.rounds"], recipe["method.steps"]) == (9, 2, 400)
    assert (recipe["method.held_out.seeds"], recipe["method.demonstrations"]) == ([39], 24)
    temperatures = {value for name, value in recipe.items() if name.endswith(".sampling.temperature")}
    assert temperatures == {0}, "what a round taught is measured greedily"
    rounds = {spot for goal in ALONE.goals.values() for spot in (goal.first, goal.second) if "@" in spot}
    assert rounds == {"appvlm/train@2", "appvlm/train@8", "appvlm/train@9"}


def test_a_recipe_is_the_same_where_the_folder_that_it_names_does_not_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    unit = EvidenceUnit(arm="appvlm-awo", seed=0, phase="train")
    without = derive_recipe(ALONE, unit)
    (tmp_path / "runs/undemonstrated/final/final").mkdir(parents=True)
    assert derive_recipe(ALONE, unit) == without
    assert without["method.undemonstrated"] == "…/final"


def test_android_coach_and_its_ablation_differ_in_their_replies_to_a_state_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the candidates that they name do not exist here
    changes = find_changes(ALONE, ("coach", "train"), ("coach-k1", "train"))
    assert changes.pop("method.k") == (4, 1)
    assert changes.pop("method.rl.batch_rows") == (64, 16), "16 states to an optimizer step"
    assert set(changes) <= {"method.baseline"}, "one reply has no others to be compared with"
    recipes = [
        derive_recipe(ALONE, EvidenceUnit(arm=arm, seed=0, phase="train"))
        for arm in ("coach", "ppo", "grpo", "coach-k1")
    ]
    assert {recipe["method.epochs"] * recipe["method.steps"] for recipe in recipes} == {6400}
    assert len({str(recipe["method.held_out.every"]) for recipe in recipes}) == 1
    assert recipes[0]["method.pretraining"] == "…/candidates"


def test_distrl_and_digirl_have_one_schedule_on_slow_phones() -> None:
    digirl, distrl = (
        derive_recipe(ALONE, EvidenceUnit(arm=f"{name}-slow", seed=0, phase="train")) for name in ("digirl", "distrl")
    )
    alike = ("epochs", "steps", "updates", "offline.steps", "offline.updates", "rl.batch_rows", "held_out.every")
    assert [digirl[f"method.{name}"] for name in alike] == [distrl[f"method.{name}"] for name in alike]
    assert digirl["method.held_out.every"] > digirl["method.epochs"], "nothing is evaluated meanwhile"
    slow = [ask(ALONE, f"{name}-slow", "train") for name in ("digirl", "distrl")]
    assert [one["--concurrency"] for one in slow] == [["8"]] * 2
    assert all("run.environment.delay.spread=100" in one["--set"] for one in slow)
    half = EvidenceUnit(arm="digirl-slow", seed=0, phase="half-greedy")
    assert ALONE.command(half, Path("w"))[-3] == "w/digirl-slow/seed-0/train@epoch7"
    for name in ("no-dper", "no-retrace", "no-rho"):
        assert find_changes(ALONE, ("distrl-slow", "train"), (f"distrl-{name}", "train"))


def test_every_ablation_is_an_arm_unless_it_is_known_not_to_be() -> None:
    used = [name for arm in PLAN.trained for name in ask(PLAN, arm, "train").get("--ablation", [])]
    assert sorted([*used, *LIKE_FULL, *NOT_MEASURED]) == sorted(ABLATIONS)
    full, _ = load_asked(PLAN, "full")
    for name in LIKE_FULL:
        with pytest.raises(ConfigError, match="changes nothing"):
            apply_ablation(COLLAB, full, name, graph="team")
    for name in NOT_MEASURED:
        assert apply_ablation(COLLAB, full, name, graph="team")[0] != full


def test_the_paper_s_arms_differ_in_the_rate_alone() -> None:
    rates = {arm: load_asked(PLAN, arm)[0].dpo.learning_rate for arm in PLAN.arms if arm.startswith("paper")}
    swept = {f"paper-{rate}": float(rate) for rate in ("5e-6", "5e-5", "5e-4")}
    assert {arm: rate for arm, rate in rates.items() if arm != "paper"} == swept
    assert load_method(COLLAB, "paper").recipe.learning_rate == swept["paper-5e-6"]
    for arm, rate in rates.items():
        assert rate in swept.values(), "the arm that is measured has one of the three"
        changes = find_changes(PLAN, ("paper-5e-6", "train"), (arm, "train"))
        assert changes == ({"method.dpo.learning_rate": (5e-6, rate)} if rate != 5e-6 else {})


# --------------------------------------------------------------------------------------------- what is played, how


@team_plan
def test_evaluations_play_seeds_that_nothing_was_trained_or_chosen_on(plan: Plan) -> None:
    # The policies before a training play its held-out instances too, for its curve.
    known = (
        {"sweep": {33}, "held-out": {39}} if plan is PLAN else {f"new-seeds-{seed}": {seed} for seed in (43, 44, 45)}
    )
    phases = [name for name, phase in plan.phases.items() if phase.kind == "eval"]
    assert set(known) <= set(phases)
    held_out = {seed for arm in plan.trained for seed in load_asked(plan, arm)[0].held_out.seeds}
    assert held_out == {39}
    for phase in phases:
        (seeds,) = ask(plan, "full", phase)["--seeds"]
        played = {int(seed) for seed in seeds.split(",")}
        assert played == known.get(phase, {40, 41, 42})
        assert played <= set(EVALUATION_SEEDS) - (set() if phase == "held-out" else held_out)


@each_plan
def test_no_evaluation_plays_a_seed_of_a_training_or_of_its_held_out_episodes(plan: Plan) -> None:
    trainings = [unit for unit in plan.units if plan.is_training(unit) and unit.seed == 0]
    held_out = {seed for unit in trainings for seed in derive_recipe(plan, unit)["method.held_out.seeds"]}
    assert held_out == {39}
    for unit in (one for one in plan.units if not plan.is_training(one)):
        (seeds,) = read_options(plan.command(unit, WORK))["--seeds"]
        played = {int(seed) for seed in seeds.split(",")}
        # What an untrained policy solves of them is the beginning of a training's curve.
        before = plan is PLAN and unit.name == "untrained-team/held-out"
        assert played <= set(EVALUATION_SEEDS) - (set() if before else held_out), unit.name


def test_arms_of_wrong_credit_differ_in_their_pairs_and_in_wrong_rewards_alone() -> None:
    """Equal steps, and where they are measured equal optimizer steps."""
    allowed = {"method.critic_flip", "method.objective", "method.pairs.anchors"}
    allowed |= {f"method.pairs.{source}" for source in ("adversary", "contrast", "correction")}
    for arm in WRONG.trained:
        assert set(find_changes(WRONG, ("correction-0", "train"), (arm, "train"))) <= allowed, arm
    done = [one for one in read_all(DOCS / "wrong-credit/results/units", WRONG).values() if one.measured is None]
    assert {sum(epoch.updates for epoch in one.epochs) for one in done} == {80}
    assert all(abs(one.steps - 800) < 40 for one in done)


@each_plan
def test_evaluations_of_a_phase_play_the_same_instances_for_every_arm(plan: Plan) -> None:
    names = ("--env", "--split", "--tasks", "--episodes", "--seeds")
    for phase in (name for name, one in plan.phases.items() if one.kind == "eval"):
        asked = [read_options(plan.command(unit, WORK)) for unit in plan.units if unit.phase == phase]
        assert len({tuple(str(options.get(name)) for name in names) for options in asked}) == 1


@pytest.mark.parametrize(
    ("arm", "cold", "other", "differs", "temperature"),
    [
        ("full", "new-seeds", "new-seeds-greedy", {"--episodes"}, 0),
        ("full", "unseen-tasks", "unseen-greedy", {"--episodes"}, 0),
        ("full", "unseen-app", "app-greedy", {"--episodes"}, 0),
    ],
)
def test_cold_and_greedy_play_differ_in_temperature_and_instances_alone(
    arm: str, cold: str, other: str, differs: set[str], temperature: float
) -> None:
    first, second = (ask(PLAN, arm, phase, PLAN.units_of(f"{arm}/{phase}")[0].seed) for phase in (cold, other))
    changed = {name for name in {**first, **second} if first.get(name) != second.get(name)}
    assert changed == {"--set", "--out", *differs}
    assert "--set" not in first, "cold is what the agents file says"
    assert int(second["--episodes"][-1]) <= int(first["--episodes"][-1])
    changes = find_changes(PLAN, (arm, cold), (arm, other))
    assert changes == dict.fromkeys(TEMPERATURES, (0.3, temperature))


@pytest.mark.parametrize("phase", ["new-seeds", "unseen-tasks"])
def test_the_sharpened_team_differs_from_the_untrained_one_in_temperature_alone(phase: str) -> None:
    first, second = (ask(PLAN, arm, phase, None) for arm in ("untrained-team", "untrained-sharpened"))
    assert {name for name in {**first, **second} if first.get(name) != second.get(name)} == {"--set", "--out"}
    changes = find_changes(PLAN, ("untrained-team", phase), ("untrained-sharpened", phase))
    assert changes == dict.fromkeys(TEMPERATURES, (0.3, 0.15))


def test_what_matters_most_comes_first_and_trainings_before_what_plays_them() -> None:
    names = [unit.name for unit in PLAN.units]
    assert names[:3] == ["untrained-team/new-seeds", "full/seed-0/train", "full/seed-0/new-seeds"]
    places = {unit: place for place, unit in enumerate(PLAN.units)}
    assert all(places[before] < places[unit] for unit in places if (before := PLAN.needs(unit)))
    assert all(PLAN.phases[unit.phase].minutes <= PLAN.most_minutes == 40 for unit in places)


def test_a_stage_may_limit_run_seeds() -> None:
    assert {unit.seed for unit in PLAN.units if unit.phase == "sweep"} == {None, 0}
    assert {unit.seed for unit in PLAN.units_of("full/train")} == {0, 1, 2}
    stages: list[dict[str, Any]] = [
        {"arms": ["full", "untrained-team"], "phases": ["train", "new-seeds"], "seeds": [2]},
        {"arms": ["full"], "phases": ["new-seeds", "sweep"]},
    ]
    assert [unit.name for unit in change_plan(PLAN, stages=stages).units] == [
        *("full/seed-2/train", "full/seed-2/new-seeds", "untrained-team/new-seeds"),
        *(f"full/seed-{seed}/{phase}" for seed in (0, 1) for phase in ("new-seeds", "sweep")),
        "full/seed-2/sweep",
    ]


def test_a_trained_team_is_played_as_it_was_last_and_trained_further_from_there() -> None:
    assert ask(PLAN, "full", "new-seeds", seed=1)["--agents"] == ["runs/tables/full/seed-1/train@last"]
    assert ask(PLAN, "untrained-team", "new-seeds", seed=None)["--agents"] == ["early"]
    assert ask(PLAN, "full", "train")["--agents"] == ["early"]
    more = {
        "more": Phase(kind="train-marl", after="train", minutes=1, options="--env androidworld"),
        "new-seeds-more": PLAN.phases["new-seeds"].model_copy(update={"after": "more"}),
    }
    stages = [{"arms": ["full"], "phases": ["train", "new-seeds", *more]}]
    plan = change_plan(PLAN, phases=PLAN.phases | more, stages=stages)
    assert ask(plan, "full", "more")["--agents"] == ["runs/tables/full/seed-0/train@last"]
    assert ask(plan, "full", "new-seeds-more")["--agents"] == ["runs/tables/full/seed-0/more@last"]
    train, *players = (unit for unit in plan.units if unit.seed == 0)
    assert plan.players(train) == players


# ------------------------------------------------------------------------------------------------ what was measured


def find_other_budgets(records: Records) -> list[str]:
    """Return the units that had another budget than the plan gives them: instances, environment or optimizer steps."""
    wrong = []
    for unit, record in records.items():
        if record.measured is not None:
            options = ask(PLAN, unit.arm, unit.phase, unit.seed)
            seeds = [int(seed) for seed in options["--seeds"][-1].split(",")]
            fits = record.seeds == seeds
            fits &= len(record.measured.episodes) == len(seeds) * int(options["--episodes"][-1])
        else:
            method, _ = load_asked(PLAN, unit.arm, unit.phase)
            trained = [epoch for epoch in record.epochs if epoch.epoch]
            fits = len(trained) == method.epochs
            for epoch in trained:
                longest = max((row[2] for row in epoch.rollout), default=0)  # the last episode is played to its end
                # One pair, or none, has no more steps than passes.
                most = method.dpo.epochs * epoch.pairs if epoch.pairs <= 1 else method.dpo.max_steps
                fits &= epoch.updates == min(most, method.dpo.max_steps)
                fits &= 0 <= epoch.steps - (method.steps or 0) < longest
        wrong += [] if fits else [unit.name]
    return wrong


def test_committed_units_had_the_budgets_of_the_plan() -> None:
    assert find_other_budgets(read_all(FOLDER / "units", PLAN)) == []


@pytest.mark.parametrize(
    ("steps", "updates", "fits"),
    [(800, 80, True), (809, 80, True), (799, 80, False), (810, 80, False), (800, 79, False)],
)
def test_a_training_of_another_budget_is_found(make_record: MakeRecord, steps: int, updates: int, fits: bool) -> None:
    made = make_record("full", 0, "train", epochs=["1"] * 3)
    more = {"steps": steps, "updates": updates, "pairs": 1000, "rollout": [("Task", 1, 10, True, 4, None)]}
    made = made.model_copy(update={"epochs": [one.model_copy(update=more) for one in made.epochs]})
    assert find_other_budgets({made.unit: made}) == ([] if fits else ["full/seed-0/train"])


@pytest.mark.parametrize(("episodes", "fits"), [(48, True), (47, False)])
def test_an_evaluation_of_another_budget_is_found(make_record: MakeRecord, episodes: int, fits: bool) -> None:
    made = make_record("full", 0, "app-greedy", "1" * episodes, seeds=[40, 41, 42])
    assert find_other_budgets({made.unit: made}) == ([] if fits else ["full/seed-0/app-greedy"])


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("stages: [{arms: [full], phases: [nothing]}]", "'nothing' is neither an arm nor a phase of this plan"),
        ("stages: [{arms: [nobody], phases: [train]}]", "'nobody' is neither an arm nor a phase of this plan"),
        ("stages: []\ngoals: {one: {label: x, first: full/pages, second: full/train}}", "'pages' is neither"),
        ("stages: []\ngoals: {one: {label: x, first: full/train@2, second: full/pages@2}}", "'pages' is neither"),
        ("stages: []\ngoals: {one: {label: x, first: full/train@last, second: full/train}}", "'last' is no epoch"),
        (
            "  early: {kind: eval, options: --env x, minutes: 1, epoch: 3}\nstages: []",
            "phases.early: epoch 3 of no phase",
        ),
        ("stages: []\nsteps: 5", r"plan.yaml:7: .*steps"),
        ("stages: [{arms: [full], phases: [train], seeds: [7]}]", r"run seed 7 is none of \[0\]"),
    ],
)
def test_a_plan_that_names_what_it_has_not_is_refused(tmp_path: Path, line: str, told: str) -> None:
    text = "agents: pocket\nseeds: [0]\narms: {full: {label: x, method: --preset collab}}\nphases:\n"
    (tmp_path / "plan.yaml").write_text(f"{text}  train: {{kind: train-marl, options: --env x, minutes: 1}}\n{line}\n")
    with pytest.raises(ConfigError, match=told):
        read_plan(tmp_path / "plan.yaml")


def test_an_arm_and_a_phase_do_not_both_give_a_setting() -> None:
    """The arm's would win, and a greedy phase would be played at its temperature."""
    stages = [*PLAN.model_dump()["stages"], {"arms": ["untrained-sharpened"], "phases": ["new-seeds-greedy"]}]
    with pytest.raises(
        ValueError, match=r"untrained-sharpened: plays gives agents\.\*\.sampling\.temperature, as phases"
    ):
        change_plan(PLAN, stages=stages)


def test_a_fork_names_the_last_epoch_that_it_takes_over() -> None:
    arms = {**PLAN.model_dump()["arms"], "half": {"label": "x", "method": "--preset collab", "fork": "full/train"}}
    with pytest.raises(ValueError, match=r"arms.half: fork full/train names no epoch; write e.g. full/train@2"):
        change_plan(PLAN, arms=arms)
