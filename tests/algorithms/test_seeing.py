"""Policies that see: their turns hold what they were shown, and are trained as they were sampled."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import transformers
from safetensors.torch import load_file

import collab
from collab.algorithms.appvlm.learner import StepAccuracy, compare_with_solutions
from collab.algorithms.experience import PICTURE_SAID, SeenPictures, TurnBuilder
from collab.algorithms.turn_learner import get_lesson_dir
from collab.cli.main import main
from collab.dialects.registry import DIALECTS
from collab.envs.grammar import MOBILE
from collab.envs.simphone.suite import SimPhoneSuite
from collab.errors import ConfigError, ModelFailure, UsageError
from collab.library import Library
from collab.loop.configure import configure
from collab.loop.examples import RecordedRun
from collab.loop.interfaces import Labels, NoLabels, Rollout, load_algorithm
from collab.loop.loop import start
from collab.loop.policy import build_chat_tokenizer, build_first_policy
from collab.loop.record import TrainingDir
from collab.loop.state import LoopState
from collab.models.base import Privilege, Reply, Request
from collab.models.local import LocalModel
from collab.models.rehearsal import RehearsalModel
from collab.models.vision import Picture
from collab.models.weights import FAMILIES
from collab.rollout.collector import UsageMeter
from collab.rollout.run import read_stored_config
from collab.store.rewards import ReplyRef
from collab.store.run import RunStore
from collab.trainers.base_model import load_weights, open_base
from collab.trainers.prepare import FinetuneTask
from collab.trainers.recipe import RLRecipe
from collab.trainers.rl.turns import Lesson, Turn, prepare_turns, read_lesson
from collab.trainers.run import begin, train
from tests.models.vision.tiny_vision import MAKERS

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module", params=["qwen2_vl", "paligemma"])
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Library]:
    """Agents on a tiny checkpoint: one sees numbered boxes and speaks as AppVLM, the other reads the text first."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp(request.param)
    checkpoint = MAKERS[request.param](folder / request.param)
    (folder / "library/agents").mkdir(parents=True)
    (folder / "library/agents/reading.yaml").write_text("kind: rehearsal\n")
    (folder / "library/agents/teacher.yaml").write_text(
        "kind: rehearsal\noptions: {error_base: 0, error_slope: 0}\nmodality: image\ndialect: appvlm\n"
    )
    for name, dialect in (("seeing", "appvlm"), ("behind", "mai-ui")):
        (folder / f"library/agents/{name}.yaml").write_text(
            f"kind: local\noptions: {{path: {checkpoint}, device: cpu}}\nmodality: image\ndialect: {dialect}\n"
            "context_tokens: 4000\nsampling: {temperature: 0.8, max_tokens: 8}\n"
        )
    yield Library(own=folder / "library")
    torch.set_num_threads(threads)


def compute_own_loss(path: str, turn: Turn, pictures: tuple[Picture, ...]) -> float:
    """Return the loss that transformers' model of the family computes of a turn."""
    model = transformers.AutoModelForImageTextToText.from_pretrained(path, dtype=torch.float32)
    ids = torch.tensor([[*turn.prompt.tolist(), *turn.reply.tolist()]])
    is_reply = torch.arange(ids.shape[1])[None] >= len(turn.prompt)
    kinds = {"mm_token_type_ids": (ids == model.config.image_token_id).int()}
    if model.config.model_type == "paligemma":
        kinds = {"token_type_ids": is_reply.long()}  # as its processor marks a suffix
    inputs = {name: torch.cat([one.inputs[name] for one in pictures]) for name in pictures[0].inputs}
    with torch.no_grad():
        return float(model(input_ids=ids, labels=ids.masked_fill(~is_reply, -100), **inputs, **kinds).loss)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("library", FAMILIES, indirect=True)
@pytest.mark.parametrize("agents", ["seeing", "behind"])
def test_what_was_shown_is_learned_as_it_was_sampled(library: Library, tmp_path: Path, agents: str) -> None:
    """Recorded log-probabilities are those that the trainer computes before its first step, given the same pictures."""
    out = tmp_path / "run"
    if agents == "behind" and (library.own.parent / "paligemma").exists():
        pytest.skip("PaliGemma reads no text before a picture")
    asyncio.run(
        collab.collect(
            env="androidworld",
            agents=agents,
            graph="single",
            tasks=["SystemBluetoothTurnOn"],
            episodes=1,
            settings=["environment.limits.max_steps=3"],
            library=library.own,
            out=out,
            progress=False,
        )
    )
    run = read_stored_config(out)
    (slot,) = run.graph.slots
    agent, path = run.agents[slot], str(run.agents[slot].options["path"])
    chat = build_chat_tokenizer(agent, path)
    with RunStore.open(out).open_reader() as reader:
        builder = TurnBuilder.of(RecordedRun.of(run, reader), run=str(out), path=out, chats={slot: chat})
        (episode,) = reader.iterate_trajectories()
        refs = [
            ReplyRef(trajectory=episode.id, step=step.index, cell=next(iter(step.matrix)).cell)
            for step in episode.steps
        ]
        built = [(turn, step) for (turn, _), step in zip(map(builder.build, refs), episode.steps, strict=True)]
    # A policy that knows nothing may say the token of a picture, which is not learned.
    known = [(turn, step) for turn, step in built if isinstance(turn, Turn)]
    assert {turn for turn, _ in built if isinstance(turn, str)} <= {PICTURE_SAID}
    turns = [turn for turn, _ in known]
    assert turns
    assert [one.pictures for one in turns] == [(step.observation.screenshot,) for _, step in known]
    assert [len(one.prompt) for one in turns] == [next(iter(step.matrix)).prompt_tokens for _, step in known]
    seen = SeenPictures.of(agent, agents, chat)
    assert seen is not None
    told = seen

    def look(turn: Turn) -> tuple[Picture, ...]:
        return told.read(out, turn.pictures)

    def look_away(turn: Turn) -> tuple[Picture, ...]:
        return tuple(
            replace(one, inputs={name: -each if name == "pixel_values" else each for name, each in one.inputs.items()})
            for one in look(turn)
        )

    recipe = RLRecipe(
        loss="ppo-clip",
        learning_rate=1e-6,
        context=4000,
        batch_rows=8,
        precision="float32",
        saved="float32",
        log_every=1,
    )
    lesson = Lesson(turns=turns, weights=[1.0] * len(turns), order=[tuple(range(len(turns)))])
    task = FinetuneTask(stage="rl", base=path, preset="none", recipe=recipe)
    apart = []
    for name, way in (("right", look), ("wrong", look_away)):
        folder = begin(prepare_turns(task, lesson, way), tmp_path / name)
        assert train(prepare_turns(task, lesson, way), folder, device="cpu").final is not None
        apart.append(folder.read_metrics()[0]["mismatch"])
        assert (folder.final / "preprocessor_config.json").is_file()
    assert apart[0] < 1e-4 < apart[1]
    # And the loss of one turn is that of the family's own model, which means it per token of the reply.
    turn = replace(turns[0], temperature=1.0)
    lesson = Lesson(turns=[turn], weights=[1.0], order=[(0,)])
    likely = recipe.model_copy(update={"loss": "likelihood"})
    folder = begin(prepare_turns(replace(task, recipe=likely), lesson, look), tmp_path / "likely")
    assert train(prepare_turns(replace(task, recipe=likely), lesson, look), folder, device="cpu").final is not None
    own = compute_own_loss(path, turn, look(turn)) * len(turn.reply)
    assert folder.read_metrics()[0]["loss"] == pytest.approx(own, rel=1e-5)


SMALL = (
    *("episodes=4", "steps=null", "rl.context=4000", "rl.batch_rows=8", "held_out.episodes=1", "held_out.before=false"),
    "run.environment.limits.max_steps=2",
)
"""Of a training of two tasks and seconds."""
OWN = {"appvlm": ("epochs=3", "final_passes=1", "demonstrations=1"), "filtered-bc": ("epochs=1", "updates=2")}
"""Algorithm → its own part of that."""


class OddLabeller(NoLabels):
    """Calls every second episode a success: a policy that knows nothing solves none."""

    async def label(self, state: LoopState, rollouts: Sequence[Rollout]) -> Sequence[Labels]:
        """Return a verdict by place."""
        return [
            Labels(value={one.id: float(place % 2 == 0) for place, one in enumerate(rollout.trajectories)})
            for rollout in rollouts
        ]


TASKS = ["SystemBluetoothTurnOn", "SystemWifiTurnOn"]
PLAY: dict[str, Any] = {"env": "androidworld", "graph": "single", "tasks": TASKS}


def ask(library: Library, *settings: str, algorithm: str = "appvlm", **choices: Any) -> Any:
    settings = (*OWN.get(algorithm, ()), *SMALL, *settings)
    return configure(library, algorithm=algorithm, settings=settings, **{"agents": "seeing", **PLAY, **choices})


def record(library: Library, out: Path, agents: str, *settings: str) -> Path:
    play: dict[str, Any] = {"episodes": 4, "settings": settings, "library": library.own, "progress": False}
    asyncio.run(collab.collect(agents=agents, seed=5, out=out, **PLAY, **play))
    return out


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_policy_that_sees_is_trained_by_appvlm(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load_algorithm("appvlm"), "labeller", OddLabeller())
    result = asyncio.run(start(asyncio.run(ask(library)), tmp_path / "run", device="cpu"))
    assert result.summary is not None
    lesson = read_lesson(get_lesson_dir(TrainingDir(result.path), 3, "shared"))
    assert lesson.turns
    assert all(len(one.pictures) == 1 for one in lesson.turns)
    assert result.records[3].trained["shared"].steps > 0
    assert result.records[3].weights != result.records[2].weights


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_policy_that_sees_imitates_recorded_runs(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load_algorithm("filtered-bc"), "labeller", OddLabeller())
    played = record(library, tmp_path / "played", "seeing", "environment.limits.max_steps=2")
    config = asyncio.run(ask(library, algorithm="filtered-bc", recorded=[played]))
    result = asyncio.run(start(config, tmp_path / "run", device="cpu"))
    assert result.summary is not None
    assert not TrainingDir(result.path).get_epoch(1).rollout.exists()
    lesson = read_lesson(get_lesson_dir(TrainingDir(result.path), 1, "shared"))
    assert {one.run for one in lesson.turns} == {str(played)}
    assert all(len(one.pictures) == 1 for one in lesson.turns)
    assert result.records[1].trained["shared"].steps == 2


@pytest.mark.variations
@pytest.mark.parametrize("agents", ["seeing", "behind"])
def test_what_demonstrates_a_solution_is_right_at_every_step(
    library: Library, monkeypatch: pytest.MonkeyPatch, agents: str
) -> None:
    """Fields are clicked, emptied and typed into by steps that are no action of the solution."""
    opened, own = list[Any](), SimPhoneSuite.open
    teacher, dialect = RehearsalModel(error_base=0, error_slope=0), {"seeing": "appvlm", "behind": "mai-ui"}[agents]

    async def open_noted(self: SimPhoneSuite) -> Any:
        opened.append(await own(self))
        return opened[-1]

    async def imitate(self: LocalModel, request: Request) -> Reply:
        phone = opened[-1]
        privilege = Privilege(
            oracle=phone.oracle, observation=phone.core.frame.observation, space=MOBILE, dialect=DIALECTS[dialect]
        )
        with contextlib.suppress(ModelFailure):  # no word for it
            return await teacher.generate(replace(request, privilege=privilege))
        return Reply(text="I do not know.")

    monkeypatch.setattr(SimPhoneSuite, "open", open_noted)
    monkeypatch.setattr(LocalModel, "generate", imitate)

    async def measure(tasks: list[str]) -> StepAccuracy:
        settings = ("demonstrations=1", "run.environment.limits.max_steps=40")
        config = await ask(library, *settings, agents=agents, tasks=tasks)
        first = build_first_policy(config.run, config.method)
        state = SimpleNamespace(config=config, library=library, compute_left=lambda: None)
        suite = SimPhoneSuite()
        return await compare_with_solutions(state, first, suite, UsageMeter())  # type: ignore[arg-type]

    found = asyncio.run(measure(["ContactsAddContact"]))
    assert found.right == found.steps > 5
    # Less by the answer, for which AppVLM has no word.
    asked = asyncio.run(measure(["NotesTodoItemCount"]))
    assert asked.right == asked.steps == (3 if agents == "seeing" else 4)


@pytest.mark.variations
@pytest.mark.parametrize("algorithm", ["filtered-bc", "appvlm"])
def test_prefixes_with_pictures_are_not_shared(library: Library, tmp_path: Path, algorithm: str) -> None:
    config = asyncio.run(ask(library, "rl.sharing=prefix", algorithm=algorithm))
    with pytest.raises(ConfigError, match=r"rl\.sharing: prefix, but agents/seeing sees pictures"):
        asyncio.run(start(config, tmp_path / "shared", device="cpu"))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_adapter_is_trained_on_pictures_resumed_and_played(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(load_algorithm("appvlm"), "labeller", OddLabeller())
    tasks = ["--tasks", ",".join(TASKS), "--library", str(library.own)]
    settings = [*OWN["appvlm"], *SMALL, "rl.lora={rank: 2, alpha: 4, merge: false}"]
    words = ["train", "--algo", "appvlm", "--env", "androidworld", "--graph", "single", "--agents", "seeing", *tasks]
    words += [word for setting in settings for word in ("--set", setting)]
    assert main([*words, "--device", "cpu", "--out", str(tmp_path / "run")]) == 0
    # Both fine-tunings left an adapter over the first checkpoint, which reaches the vision tower, too.
    folder = TrainingDir(tmp_path / "run")
    written = [next((folder.get_epoch(number).path).rglob("final/adapter_model.safetensors")) for number in (2, 3)]
    moved = [{name: one.abs().max() for name, one in load_file(path).items() if "lora_B" in name} for path in written]
    assert all(
        any(peak > 0 and re.search(part, name) for name, peak in found.items())
        for found in moved
        for part in (r"\.(visual|vision_tower)\.", r"\.language_model\.")
    )
    # Resumed in its last epoch, it ends with the same weights.
    again = TrainingDir(shutil.copytree(folder.path, tmp_path / "again"))
    shutil.rmtree(again.get_epoch(3).path)
    again.write({name: part for name, part in again.read().items() if name != "summary"})
    assert main(["train", "--resume", str(again.path)]) == 0
    assert again.read()["summary"] == folder.read()["summary"]
    # It is played from pictures, and its greedy replies are less or more likely than those of the untrained policy.
    said = list[list[tuple[float, ...] | None]]()
    for agents in ("seeing", f"{folder.path}@last"):
        out = tmp_path / f"played-{len(said)}"
        play = ["rollout", "--env", "androidworld", "--graph", "single", "--agents", agents, *tasks, "--episodes", "2"]
        play += ["--set", "environment.limits.max_steps=2", "--set", "agents.*.sampling.temperature=0"]
        assert main([*play, "--out", str(out)]) == 0
        with RunStore.open(out).open_reader() as reader:
            steps = [step for episode in reader.iterate_trajectories() for step in episode.steps]
        assert all(step.observation.screenshot for step in steps)
        said.append([one.logprobs for step in steps for one in step.matrix])
        assert {one.policy.adapter is None for step in steps for one in step.matrix} == {agents == "seeing"}
    assert said[0] != said[1]
    capsys.readouterr()


def test_passes_that_mark_no_reply_refuse_a_prompt_that_attends_in_both_directions(tmp_path: Path) -> None:
    """Fine-tuning on texts would compute PaliGemma's prompts otherwise than it plays."""
    recipe = RLRecipe(learning_rate=1e-6, context=1000, precision="float32", saved="float32")
    base = open_base(str(MAKERS["paligemma"](tmp_path / "paligemma")), recipe)
    with pytest.raises(ConfigError, match="models of type paligemma cannot be trained here: its tokens see those that"):
        load_weights(base, "float32")
    assert load_weights(base, "float32", marks_replies=True) is not None


def test_runs_that_were_shown_the_screen_in_another_way_are_refused(library: Library, tmp_path: Path) -> None:
    read = record(library, tmp_path / "read", "reading")
    with pytest.raises(UsageError) as refused:
        asyncio.run(ask(library, algorithm="filtered-bc", recorded=[read]))
    (slot,) = read_stored_config(read).graph.slots
    assert str(refused.value) == (
        f"--offline {read}: was played by {slot} with modality: text, and agents/seeing has modality: image and "
        "dialect: appvlm; give other runs, or set both alike: a policy learns from what it will read"
    )


def test_other_methods_still_ask_for_text(library: Library) -> None:
    with pytest.raises(ConfigError, match=r"agents/seeing: modality image; .* --algo filtered-bc or appvlm"):
        asyncio.run(ask(library, "values.hidden=8", algorithm="digirl"))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_demonstrations_with_pictures_make_a_base(library: Library, tmp_path: Path) -> None:
    """Solutions that a rehearsal plays in the policy's dialect are imitated, and AppVLM continues from the result."""
    demos = record(library, tmp_path / "demos", "teacher", "success_check=every_step")
    config = asyncio.run(ask(library, algorithm="filtered-bc", recorded=[demos]))
    base = asyncio.run(start(config, tmp_path / "base", device="cpu"))
    assert base.summary is not None
    lesson = read_lesson(get_lesson_dir(TrainingDir(base.path), 1, "shared"))
    (slot,) = config.run.graph.slots
    chat = build_chat_tokenizer(config.run.agents[slot], str(config.run.agents[slot].options["path"]))
    with RunStore.open(demos).open_reader() as reader:
        recorded = RecordedRun.of(read_stored_config(demos), reader)
        for one in lesson.turns:
            cell = recorded.get_cell(one.ref)
            assert cell.privileged
            assert one.pictures == (recorded.step(one.ref).observation.screenshot,)
            assert chat.decode(one.reply[:-1].tolist()) == cell.text
    assert lesson.turns
    again = asyncio.run(ask(library, agents=f"{base.path}@last"))
    assert again.origin is not None
    assert again.run.agents[slot].modality == "image"
