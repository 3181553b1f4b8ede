"""Small whole trainings: they end, resume exactly after a kill, and leave policies that can be played."""

from __future__ import annotations

import asyncio
import json
import resource
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, get_args

import pytest

from collab.algorithms.collabuiagents.learner import NO_PAIR
from collab.algorithms.collabuiagents.metrics import read_metrics
from collab.config import Budget
from collab.errors import RunFormatError, StoreFailure, UsageError
from collab.loop import phases
from collab.loop.config import TrainingConfig
from collab.loop.finetuning import NO_NUMBER
from collab.loop.loop import TrainingResult, resume, start
from collab.loop.record import TrainingDir
from collab.loop.state import LoopState
from collab.loop.trained import PolicyName, load_policy_agents
from collab.models.local import LocalModel
from collab.models.tokenizer import ChatTokenizer, build_chat
from collab.preferences.pairs import PairSource
from collab.rollout import build
from collab.rollout import run as rollout
from collab.rollout.run import read_stored_config
from collab.store import manifest, reader
from collab.store.reader import RunReader
from collab.trainers.run_dir import FinetuneDir

pytestmark = pytest.mark.slow

CHILD = """
import asyncio, json, os, signal, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
import collab.trainers.trainer, collab.models.local, peft, pyarrow.parquet  # once, for all that are born here
from collab.trainers.run_dir import FinetuneDir
from collab.loop.interfaces import load_config
from collab.loop.record import TrainingDir
from collab.loop.loop import resume, start
from collab.loop.state import LoopState
from collab.store.run import RunWriter

out, told, points = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
begin, keep, step = LoopState.begin, FinetuneDir.keep_checkpoint, RunWriter.step

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def until(epoch, part):
    def begun(loop, name):
        begin(loop, name)
        if (loop.progress.epoch, name) == (epoch, part):
            die()

    def kept(folder, *rest):
        keep(folder, *rest)
        if part == "checkpoint" and f"epochs/{epoch}/" in str(folder.path):
            die()

    def recorded(writer, *rest, **named):
        step(writer, *rest, **named)
        if part == "step" and f"epochs/{epoch}/rollout" in str(writer.directory):
            die()
        if part == "held-out" and f"epochs/{epoch}/evaluation" in str(writer.directory):
            die()

    LoopState.begin, FinetuneDir.keep_checkpoint, RunWriter.step = begun, kept, recorded
    if TrainingDir(out).file.exists():
        asyncio.run(resume(out, device="cpu"))
    else:
        asyncio.run(start(load_config(json.loads(told.read_text()), str(told)), out, device="cpu"))

for point in points:
    epoch, _, part = point.partition(":")
    born = os.fork()
    if not born:
        until(int(epoch), part)
        os._exit(0)
    print(point, os.waitstatus_to_exitcode(os.waitpid(born, 0)[1]), flush=True)
"""
"""Trains in one process after the other; each kills itself at a point. argv: directory, configuration, epoch:point …"""

POINTS = ("0:evaluation", "1:step", "1:critic", "1:examples", "1:checkpoint", "2:adversary", "2:training")


class Died(BaseException):
    """The process of a training would have ended here."""


def run(config: TrainingConfig, out: Path, **options: object) -> TrainingResult:
    return asyncio.run(start(config, out, device="cpu", **options))


@pytest.fixture(scope="module")
def whole(configure_finetuned, tmp_path_factory: pytest.TempPathFactory) -> TrainingResult:
    """An undisturbed training of two epochs, two episodes each, of three steps."""
    return run(configure_finetuned(), tmp_path_factory.mktemp("whole") / "run")


def test_every_epoch_plays_judges_pairs_trains_and_measures(whole: TrainingResult) -> None:
    assert whole.summary is not None
    assert [record.epoch for record in whole.records] == [0, 1, 2]
    for record in whole.records[1:]:
        trained, rows, counts = record.trained["shared"], record.examples["shared"], read_metrics(record).pairs.counts
        assert rows.examples == sum(counts.get(source, 0) for source in get_args(PairSource)) > 0
        assert trained.steps > 0
        assert record.weights == dict.fromkeys(("ada", "ben"), f"./epochs/{record.epoch}/training/final")
        assert record.spent["rollout"].calls == 2 * 3 * 4
        assert record.version == record.epoch
    digests = [record.trained["shared"].digest for record in whole.records[1:]]
    assert len(set(digests)) == 2
    assert json.loads((whole.path / "training.json").read_text())["summary"] == whole.summary.model_dump()


def test_an_epoch_makes_each_thing_once(configure_finetuned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three runs: an evaluation before and one behind the rollout. What holds much is given back before it trains."""
    made: Counter[str] = Counter()

    def count(owner: object, name: str) -> None:
        before = getattr(owner, name)

        def counted(*args: Any, **named: Any) -> Any:
            made[name if name != "__init__" else owner.__name__] += 1
            return before(*args, **named)

        monkeypatch.setattr(owner, name, counted)

    config = configure_finetuned("epochs=1")
    for owner, name in ((ChatTokenizer, "__init__"), (RunReader, "__init__"), (build, "build_environment")):
        count(owner, name)
    for module in (phases, rollout):
        count(module, "plan_episodes")
    for module in (reader, manifest):
        count(module, "read_manifest")
    build_chat.cache_clear()
    run(config, tmp_path / "run")
    assert made == {
        "ChatTokenizer": 3,  # of the base, once more in the thread that trains, and of what was trained
        "RunReader": 6,  # the report of each run, what each evaluation measured, the rollout
        "build_environment": 3,  # the checks before anything is written, the epoch, what is behind its training
        "plan_episodes": 4,  # each run, and whether it plays no instance that is kept for evaluation
        "read_manifest": 9,  # each run as it was written and read, and labels, replies and pairs beside the rollout
    }


def test_the_first_policy_stays_the_reference(whole: TrainingResult) -> None:
    """In epoch 1 the base is the reference, in epoch 2 the base of the training and not that of the epoch."""
    first, second = (FinetuneDir(whole.path / f"epochs/{number}/training").read() for number in (1, 2))
    assert first["reference"] is None
    assert second["reference"]["digest"] == first["base"]["digest"] != second["base"]["digest"]
    assert FinetuneDir(whole.path / "epochs/1/training").read_metrics()[0]["margin"] == 0
    assert FinetuneDir(whole.path / "epochs/2/training").read_metrics()[0]["margin"] != 0


def test_the_same_again_gives_the_same_hash_and_another_seed_another(
    whole: TrainingResult, configure_finetuned, tmp_path: Path
) -> None:
    assert run(configure_finetuned(), tmp_path / "same").summary == whole.summary
    other = run(configure_finetuned(seed=1), tmp_path / "other").summary
    assert other is not None
    assert other.hash != whole.summary.hash


def test_what_was_killed_anywhere_ends_with_the_same_hash(
    whole: TrainingResult, configure_finetuned, tmp_path: Path
) -> None:
    told, out = tmp_path / "config.json", tmp_path / "run"
    told.write_text(configure_finetuned().model_dump_json())
    command = [sys.executable, "-c", CHILD, str(out), str(told), *POINTS, "0:never"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [*(f"{point} -9" for point in POINTS), "0:never 0"], done.stderr
    assert TrainingDir(out).read()["summary"] == whole.summary.model_dump()
    again = asyncio.run(resume(out, device="cpu"))
    assert (again.summary, again.stopped) == (whole.summary, None)


def test_one_that_died_is_moved_and_resumed_elsewhere(
    whole: TrainingResult, configure_finetuned, tmp_path: Path
) -> None:
    """Rollout and evaluation play with weights that the training made itself, and find them where it lies now."""
    told, out = tmp_path / "config.json", tmp_path / "run"
    told.write_text(configure_finetuned().model_dump_json())
    for number, point in enumerate(("1:held-out", "2:step", "2:held-out")):
        command = [sys.executable, "-c", CHILD, str(out), str(told), point]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.stdout.split() == [point, "-9"], done.stderr
        out = out.rename(tmp_path / f"moved-{number}")
    assert asyncio.run(resume(out, device="cpu")).summary == whole.summary


def test_a_moved_training_names_weights_where_they_lie_now(whole: TrainingResult, tmp_path: Path) -> None:
    """Head and log of its runs name no place outside it, so nothing has to be rewritten."""
    moved = Path(shutil.copytree(whole.path, tmp_path / "moved"))
    for part in ("rollout", "evaluation/seed-39"):
        run, epoch = moved / "epochs/2" / part, 1 if part == "rollout" else 2
        head = json.loads((run / "run.json").read_text())
        assert (run / head["home"]).resolve() == moved
        assert {agent["options"]["path"] for agent in head["config"]["agents"].values()} == {
            f"./epochs/{epoch}/training/final"
        }
        paths = {agent.options["path"] for agent in read_stored_config(run).agents.values()}
        assert paths == {str(moved / f"epochs/{epoch}/training/final")}
        assert asyncio.run(LocalModel(path=paths.pop(), device="cpu").probe()).token_ids


def test_a_budget_stops_it_and_the_rest_follows(whole: TrainingResult, configure_finetuned, tmp_path: Path) -> None:
    stopped = run(configure_finetuned(), tmp_path / "run", budget=Budget(tokens=9000))
    assert stopped.stopped is not None
    assert "budget" in stopped.stopped
    assert 0 < len(stopped.records) < 3
    assert asyncio.run(resume(tmp_path / "run", budget=Budget(tokens=10**9))).summary == whole.summary


def test_a_trained_team_can_be_played(whole: TrainingResult) -> None:
    agents = load_policy_agents(PolicyName(run=whole.path, epoch=2), ("ada", "ben"))
    model = LocalModel(**agents["ada"].options)
    assert asyncio.run(model.probe()).token_ids
    asyncio.run(model.close())


def test_agents_with_policies_of_their_own_end_up_with_different_ones(configure_finetuned, tmp_path: Path) -> None:
    result = run(configure_finetuned("policies=per_agent", "epochs=1", "episodes=4"), tmp_path / "run")
    record = result.records[1]
    assert set(record.trained) | set(record.untrained) == {"ada", "ben"}
    assert record.trained
    for slot, one in record.trained.items():
        assert record.weights[slot] == f"./epochs/1/training/{slot}/final"
        assert one.digest != json.loads((result.path / "training.json").read_text())["base"][slot]


def test_two_checkpoints_are_loaded_at_once(finetuned: Path, tiny: Path) -> None:
    """Each by a thread of its own; transformers alone would leave one of them without weights."""

    async def probed() -> int:
        models = [LocalModel(path=str(path), device="cpu") for path in (finetuned, tiny)]
        found = await asyncio.gather(*(model.probe() for model in models))
        await asyncio.gather(*(model.close() for model in models))
        return len(found)

    for _ in range(3):
        assert asyncio.run(probed()) == 2


def test_a_later_epoch_without_a_pair_is_named_and_the_loop_continues(
    configure_finetuned, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint that knows nothing proposes nothing that can be judged."""
    # Otherwise only a first epoch is like that, and ends the training.
    monkeypatch.setattr("collab.algorithms.collabuiagents.labeller.refuse_barren_rollout", lambda *facts: None)
    result = run(configure_finetuned(f"run.agents.*.options.path={tiny}"), tmp_path / "run")
    assert [record.untrained for record in result.records] == [{}, {"shared": NO_PAIR}, {"shared": NO_PAIR}]
    assert result.records[2].version == 0
    assert set(result.records[2].weights.values()) == {str(tiny.resolve())}
    assert read_metrics(result.records[1]).missing["its reply did not parse"] == 24
    assert result.summary is not None
    assert result.summary.best == 0


def test_a_loss_that_is_no_number_is_named_and_the_loop_continues(
    configure_finetuned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = ("dpo.learning_rate=1e30", "dpo.max_grad_norm=1e30", "dpo.epochs=4", "episodes=4", "dpo.warmup=0")
    config = configure_finetuned(*lost)
    whole = run(config, tmp_path / "whole")
    assert whole.summary is not None
    begun = {slot: one.options["path"] for slot, one in config.run.agents.items()}
    for record in whole.records[1:]:
        assert record.untrained["shared"].startswith(f"{NO_NUMBER} (step ")
        assert (record.trained, record.version, record.weights) == ({}, 0, begun)
        assert record.examples["shared"].examples > 0
    place = tmp_path / "whole/epochs/1/training"
    assert FinetuneDir(place).read_metrics()
    assert not (place / "checkpoints").exists()
    begin, keep = LoopState.begin, FinetuneDir.keep_checkpoint

    def dying(out: Path) -> None:
        with pytest.raises(Died):
            asyncio.run(resume(out, device="cpu") if out.exists() else start(config, out, device="cpu"))

    def kept(folder: FinetuneDir, *rest: int) -> None:
        keep(folder, *rest)
        raise Died

    def begun_with(loop: LoopState, part: str) -> None:
        begin(loop, part)
        if (loop.progress.epoch, part) == (1, "evaluation"):
            raise Died

    with monkeypatch.context() as patch:
        patch.setattr(FinetuneDir, "keep_checkpoint", kept)
        dying(tmp_path / "killed")
    with monkeypatch.context() as patch:
        patch.setattr(LoopState, "begin", begun_with)
        dying(tmp_path / "killed")
    again = asyncio.run(resume(tmp_path / "killed", device="cpu"))
    assert again.summary == whole.summary
    assert [one.untrained for one in again.records] == [one.untrained for one in whole.records]


def test_what_parts_tell_is_shown_before_their_epoch_is_over(configure_finetuned, tmp_path: Path, monkeypatch) -> None:
    begin, seen = LoopState.begin, {}

    def begun(loop: LoopState, part: str) -> None:
        begin(loop, part)
        if loop.progress.epoch == 1:
            seen[part] = loop.progress.so_far

    monkeypatch.setattr(LoopState, "begin", begun)
    record = run(configure_finetuned("epochs=1"), tmp_path / "run").records[1]
    assert seen["rollout"] is None
    told = {
        "critic": ("epoch", "played", "steps", "agreement"),
        "training": ("examples",),
        "evaluation": ("trained", "untrained"),
    }
    for part, names in told.items():
        assert [getattr(seen[part], name) for name in names] == [getattr(record, name) for name in names], part
    judged, paired, whole = (read_metrics(one) for one in (seen["adversary"], seen["examples"], record))
    assert (judged.rewards, judged.missing, judged.unasked) == (whole.rewards, whole.missing, whole.unasked)
    assert paired.pairs == whole.pairs
    assert (seen["critic"].metrics, seen["examples"].examples) == ({}, {})


def test_a_full_disk_during_a_checkpoint_is_one_line_and_the_rest_follows(
    whole: TrainingResult, configure_finetuned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit on a file's size, from where a policy is trained: its weights do not fit."""
    begin, before, out = LoopState.begin, resource.getrlimit(resource.RLIMIT_FSIZE), tmp_path / "run"

    def begun(loop: LoopState, part: str) -> None:
        begin(loop, part)
        if part == "training":
            resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, before[1]))

    monkeypatch.setattr(LoopState, "begin", begun)
    try:
        with pytest.raises(StoreFailure) as told:
            run(configure_finetuned(), out)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        monkeypatch.undo()
    said = str(told.value)
    assert said.startswith(f"{out}/epochs/1/training: cannot write: ")
    assert said.endswith(f"make room or fix the rights, then {TrainingDir(out).resume}")
    assert (said.count("--resume"), "\n" in said) == (1, False)
    assert FinetuneDir(out / "epochs/1/training").find_checkpoint() is None
    assert asyncio.run(resume(out, device="cpu")).summary == whole.summary


def test_another_base_or_a_taken_directory_is_refused(
    whole: TrainingResult, configure_finetuned, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="a training is there already"):
        run(configure_finetuned(), whole.path)
    folder = TrainingDir(tmp_path / "run")
    head = TrainingDir(whole.path).read()
    folder.begin({**head, "base": dict.fromkeys(head["base"], "0" * 64)})
    with pytest.raises(RunFormatError, match="its first checkpoint has changed"):
        asyncio.run(resume(folder.path, device="cpu"))
