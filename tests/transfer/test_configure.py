"""From a request to a transfer: who plays where, and what is refused."""

from __future__ import annotations

import asyncio
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collab.config import override
from collab.errors import ConfigError, GraphError, RunFormatError, UsageError
from collab.library import Library
from collab.loop.loop import hash_base_weights
from collab.loop.policy import build_first_policy
from collab.loop.record import EpochRecord, Success, TrainingDir
from collab.synthesis.config import SynthesisRequest
from collab.synthesis.config import configure as configure_synthesis
from collab.synthesis.run import start as synthesise
from collab.testing import toy_team
from collab.transfer.config import TransferConfig, TransferRequest, configure
from collab.transfer.result import list_parts_after, list_parts_before


@pytest.fixture(scope="module")
def trained(library: Library, tmp_path_factory: pytest.TempPathFactory) -> TrainingDir:
    """A training in the corridor whose second epoch is over and the best."""
    folder = TrainingDir(tmp_path_factory.mktemp("trained") / "run")
    config = asyncio.run(toy_team.configure_toy_training(library))
    base = hash_base_weights(build_first_policy(config.run, config.method))
    head = {"config": config.model_dump(mode="json"), "base": base, "summary": {"best": 2}}
    folder.begin(head)
    success = Success(successes=1, episodes=2, low=0.1, high=0.9, broken=0)
    weights = {slot: "./epochs/2/training/final" for slot in config.run.graph.slots}
    record = EpochRecord(algorithm="collabuiagents", epoch=2, version=2, weights=weights, success=success, hash="")
    folder.get_epoch(2).path.mkdir(parents=True)
    folder.get_epoch(2).record.write_text(record.model_dump_json())
    return folder


@pytest.fixture
def transfer_request(trained: TrainingDir) -> TransferRequest:
    return TransferRequest(
        mode="continual", agents=f"{trained.path}@best", env="street", graph="pair", seeds=(30, 31), episodes=2
    )


def put(library: Library, transfer_request: TransferRequest, **changes: Any) -> TransferConfig:
    return asyncio.run(configure(library, replace(transfer_request, **changes)))


def test_the_training_plays_instructions_and_every_evaluation_the_tasks(
    library: Library, transfer_request: TransferRequest, tmp_path: Path
) -> None:
    asked = SynthesisRequest(env="street", levels=("instruction",), episodes=2, screens=2)
    asyncio.run(synthesise(asyncio.run(configure_synthesis(library, asked)), tmp_path / "data"))
    config, plain = put(library, transfer_request, instructions=tmp_path / "data"), put(library, transfer_request)
    assert config.training is not None
    assert plain.training is not None
    assert config.training.run.environment.part.kind == "instructions"
    assert config.training.run.tasks != plain.training.run.tasks == ["PressButton"]
    assert config.training.held_out == plain.training.held_out
    assert config.model_copy(update={"training": None}) == plain.model_copy(update={"training": None})


def test_both_play_the_same_with_other_weights(
    library: Library, transfer_request: TransferRequest, trained: TrainingDir
) -> None:
    config = put(library, transfer_request, mode="direct")
    assert (config.training, config.first, list_parts_after(config)) == (None, [], [])
    for base, team in zip(config.base, config.transferred, strict=True):
        assert {agent.options["path"] for agent in team.agents.values()} == {
            str(trained.path.resolve() / "epochs/2/training/final")
        }
        assert {agent.options["version"] for agent in base.agents.values()} == {0}
        apart = {"agents", "agent_names"}
        assert base.model_dump(exclude=apart) == team.model_dump(exclude=apart)
        assert set(team.agent_names.values()) == {"run@best"}
        assert (team.purpose, team.environment_name, team.episodes) == ("eval", "street", 2)
        assert team.split is not None
        assert team.split.name == "new-seeds"
    assert config.base_name == f"{trained.path}@epoch0"


def test_continual_trains_from_the_team_and_measures_at_home(
    library: Library, transfer_request: TransferRequest
) -> None:
    config = put(library, transfer_request, settings=("epochs=1", "run.agents.*.sampling.temperature=0"))
    assert [part.name for part in list_parts_before(config)] == [
        "second/base",
        "second/transferred",
        "first/transferred",
    ]
    assert [part.name for part in list_parts_after(config)] == ["second/continued", "first/continued"]
    training = config.training
    assert training is not None
    assert training.run.environment_name == "street"
    assert training.run.split is not None
    assert training.run.split.name == "train"
    assert training.method.epochs == 1
    for slot, agent in training.run.agents.items():
        assert agent == config.transferred[0].agents[slot]
        assert agent.sampling.temperature == 0
        assert config.first[0].agents[slot].sampling.temperature == 0.7, "at home it plays as it was trained"
    assert [run.environment_name for run in config.first] == ["corridor", "corridor"]
    assert [run.seed for run in config.first] == config.seeds == [30, 31]
    assert TransferConfig.model_validate_json(config.model_dump_json()) == config


def test_all_parts_are_played_in_one_place_wherever_the_first_training_was(
    library: Library, transfer_request: TransferRequest, trained: TrainingDir, tmp_path: Path
) -> None:
    elsewhere = Path(shutil.copytree(trained.path, tmp_path / "run"))
    head = json.loads((elsewhere / "training.json").read_text())
    for run in (head["config"]["run"], *head["config"]["held_out"]):
        run.update({"executor": "ray", "concurrency": 32})
    (elsewhere / "training.json").write_text(json.dumps(head))
    for settings, executor in ((transfer_request.settings, "local"), (("run.executor=ray",), "ray")):
        found = put(library, transfer_request, agents=f"{elsewhere}@best", settings=settings, concurrency=3)
        assert found.training is not None
        runs = [*found.base, *found.transferred, *found.first, found.training.run]
        assert {(run.executor, run.concurrency) for run in runs} == {(executor, 3)}


@pytest.mark.slow
def test_an_ablation_changes_how_training_continues_and_nothing_that_is_measured(
    library: Library, transfer_request: TransferRequest
) -> None:
    alone = {
        "settings": (*transfer_request.settings, "replay_fraction=0")
    }  # pairs cannot be rehearsed as single replies
    whole, changed = put(library, transfer_request, **alone), put(library, transfer_request, ablation="rft", **alone)
    assert whole.training is not None
    assert changed.training is not None
    assert (whole.training.called, changed.training.called) == ("collab", "collab, ablation rft")
    assert changed.training.method == override(whole.training.method, ["objective=rft", "pairs.anchors=0"])
    apart = {"training"}
    assert changed.model_dump(exclude=apart) == whole.model_dump(exclude=apart)


def test_every_task_is_played_once_unless_a_number_is_asked_for(
    library: Library, transfer_request: TransferRequest
) -> None:
    config = put(library, transfer_request, episodes=None, tasks=("PressButton", "TypeWord"))
    assert [run.episodes for run in (*config.base, *config.transferred)] == [2] * 4
    assert [run.episodes for run in config.first] == [1, 1]


@pytest.mark.variations
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"seeds": (30, 5)}, "--seeds: 5 is a seed for training"),
        ({"seeds": (30, 30)}, "name each seed once"),
        ({"seeds": (30, 39)}, "an epoch of the first training is chosen on seed 39; measure on others$"),
        ({"mode": "direct", "seeds": (30, 39)}, "an epoch of the first training is chosen on seed 39"),
        ({"settings": ("held_out.seeds=[31]",)}, "an epoch of the second training is chosen on seed 31"),
        ({"split": "train"}, "--split train: is learned from"),
        ({"settings": ("run.seed=3",)}, "--set run.seed: say it with --seeds"),
        ({"mode": "direct", "settings": ("run.budget.tokens=3",)}, "--set run.budget: say it with --budget"),
        ({"mode": "direct", "settings": ("epochs=2",)}, "direct trains nothing; leave it out, or add --mode continual"),
        ({"mode": "direct", "settings": ("episodes=2",)}, "direct trains nothing; say it with --episodes"),
        ({"agents": "toy"}, "continual continues a training"),
        ({"mode": "direct", "agents": "presser"}, "name what to compare with: --base"),
        ({"mode": "direct", "agents": "presser", "base": "show"}, "is a rehearsal"),
        ({"env": "corridor"}, r"was trained there, on 1 of these tasks \(PressButton …\)"),
        ({"seed": 33}, "choose another --seed"),
        ({"graph": "alone"}, "was trained as ada, ben, the graph has ada"),
        ({"agents": "nowhere@best"}, "nowhere: no such directory; name the directory of a training"),
        ({"ablation": "no-rc"}, "no ablation of collabuiagents called 'no-rc'; did you mean no-cr"),
        ({"ablation": "anchor"}, "--ablation anchor: changes nothing"),
        ({"ablation": "rft", "settings": ("objective=dpo",)}, "--set objective=dpo: --ablation rft stands for"),
        ({"ablation": "single-agent"}, "a team is transferred with its own graph"),
    ],
)
def test_what_does_not_fit_is_refused(
    library: Library, transfer_request: TransferRequest, changes: dict[str, Any], said: str
) -> None:
    with pytest.raises((UsageError, ConfigError, GraphError, RunFormatError), match=said):
        put(library, transfer_request, **changes)


def test_other_tasks_of_the_same_environment_are_elsewhere(library: Library, transfer_request: TransferRequest) -> None:
    config = put(library, transfer_request, mode="direct", env="corridor", tasks=("TypeWord",))
    assert config.transferred[0].tasks == ["TypeWord"]


def test_a_base_that_changed_since_is_no_base(
    library: Library, transfer_request: TransferRequest, trained: TrainingDir, tmp_path: Path
) -> None:
    other = TrainingDir(tmp_path / "run")
    head = trained.read()
    other.begin({**head, "base": dict.fromkeys(head["base"], "0" * 64)})
    with pytest.raises(RunFormatError, match="its first checkpoint has changed; name what to compare with: --base"):
        put(library, transfer_request, mode="direct", agents=f"{other.path}@epoch0")


def test_prompts_that_changed_since_are_refused(
    library: Library, transfer_request: TransferRequest, tmp_path: Path, trained: TrainingDir
) -> None:
    other, head = TrainingDir(tmp_path / "run"), trained.read()
    for run in head["config"]["held_out"]:
        run["prompts"]["pocket"] = dict.fromkeys(run["prompts"]["pocket"], "other words")
    other.begin(head)
    with pytest.raises(UsageError, match="prompts/pocket has changed since"):
        put(library, transfer_request, agents=f"{other.path}@epoch0")


def test_a_team_that_is_its_own_base_is_compared_with_nothing(
    library: Library, transfer_request: TransferRequest, trained: TrainingDir
) -> None:
    start = f"{trained.path}@epoch0"
    with pytest.raises(UsageError, match=r"@epoch0: its weights are those of .*@epoch0, so there is nothing"):
        put(library, transfer_request, mode="direct", agents=start)
    assert put(library, transfer_request, agents=start).training is not None, (
        "what training goes on to is compared with it"
    )
