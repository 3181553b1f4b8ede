"""A tiny team for trying a training: a random checkpoint, fine-tuned in seconds to press buttons of a corridor.

    config = await configure_toy_training(create_toy_team(out), "epochs=1")

It is often wrong and often right, so a critic has something to reward and an epoch has pairs.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from collab.config import RUN, override
from collab.data.example import Example, Provenance
from collab.data.parquet import ExampleWriter
from collab.library import Library, find_builtin_root
from collab.loop.config import TrainingConfig
from collab.loop.configure import configure
from collab.loop.interfaces import load_algorithm, load_method
from collab.prompts.parse import write_reply
from collab.prompts.render import PromptContext, Template, read_templates
from collab.synthesis.conversation import Reader
from collab.testing.corridor import CorridorSuite
from collab.testing.tiny_checkpoint import make_tiny_checkpoint
from collab.trainers.prepare import FinetuneTask, prepare
from collab.trainers.recipe import load_preset
from collab.trainers.run import begin, train

_DEFINITIONS = {
    "envs/corridor.yaml": (
        "backend: fake\nbackends:\n  fake: {kind: fake, options: {max_steps: 3}}\ntasks: [PressButton]\n"
    ),
    "graphs/pair.yaml": "slots: [ada, ben]\nrounds: 2\nedges: [[ada, ben]]\n",
    "agents/toy.yaml": (
        "kind: local\noptions: {path: PATH, device: cpu}\nprompt: pocket\ncontext_tokens: 2048\n"
        "sampling: {temperature: 0.7, max_tokens: 40}\n"
    ),
}
SMALL = (
    "epochs=2",
    "episodes=2",
    "steps=null",
    "held_out.episodes=2",
    "determinism=exact",
    "exploration_temperatures=null",
)
"""Settings of a training that takes seconds …"""
_SMALL_RECIPE = (
    "context=2048",
    "batch_rows=4",
    "rows_at_once=4",
    "learning_rate=0.001",
    "log_every=1",
    "save_every=1",
)
"""… and of its recipe, with an optimizer step and a checkpoint every few examples."""
_RECIPE = (
    "context=2048",
    "batch_rows=8",
    "epochs=30",
    "learning_rate=0.01",
    "precision=float32",
    "prompt_weight=0",
    "saved=float32",
)


def create_toy_team(folder: Path) -> Library:
    """Write definitions and a fine-tuned checkpoint into a directory."""
    tiny = make_tiny_checkpoint(folder / "tiny", hidden=32, layers=2, context=4096)
    return write_library(folder / "library", finetune(tiny, folder).resolve())


def write_library(folder: Path, checkpoint: Path) -> Library:
    """Write definitions into a directory, with agents on that checkpoint."""
    for name, text in _DEFINITIONS.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("PATH", json.dumps(str(checkpoint))), encoding="utf-8")
    return Library(own=folder)


async def configure_toy_training(
    library: Library, *settings: str, algorithm: str = "collabuiagents", agents: str = "toy", **choices: Any
) -> TrainingConfig:
    """Return a training of seconds by an algorithm's preset and `list_toy_settings`. Arguments as `configure`."""
    known, small = load_algorithm(algorithm), list_toy_settings(algorithm)
    asked = {"env": "corridor", "graph": known.toy_graph or "pair", "agents": agents, "algorithm": algorithm, **choices}
    method = override(load_method(known), [one for one in small if not one.startswith(RUN)])
    own = [one for one in small if one.startswith(RUN)]
    return await configure(library, method=method, settings=[*own, *settings], **asked)


def list_toy_settings(algorithm: str) -> list[str]:
    """Return the settings by which an algorithm's default preset trains for seconds, as `--set` takes them."""
    known = load_algorithm(algorithm)
    return [*SMALL, *(f"{known.method.RECIPE}.{one}" for one in _SMALL_RECIPE), *known.toy]


def finetune(base: Path, out: Path, examples: Sequence[Example] | None = None) -> Path:
    """Fine-tune a checkpoint on examples, None for the toy ones, into `out`/sft; return the new one."""
    recipe = override(load_preset("pocket").get_recipe("sft"), _RECIPE)
    prepared = prepare(
        FinetuneTask(stage="sft", base=str(base), preset="pocket", recipe=recipe),
        asyncio.run(build_toy_examples()) if examples is None else examples,
    )
    begun = begin(prepared, out / "sft")
    train(prepared, begun, device="cpu")
    return begun.final


async def build_toy_examples() -> list[Example]:
    """Build examples that press any of the four buttons of a screen: a policy then errs three times of four."""
    suite = CorridorSuite()
    reader = Reader(
        template=Template("pocket", read_templates(find_builtin_root() / "prompts" / "pocket")), max_tokens=40
    )
    rows: list[Example] = []
    # Every button with every screen: the policy learns the form, and errs three times of four.
    for seed in range(8):
        environment = await suite.open()
        task = suite.instance("PressButton", seed)
        screen = await environment.reset(task)
        prompt = reader.build_decision(
            PromptContext(goal=task.goal, space=suite.space, observation=screen), reader.seat_alone(), {}
        )
        for index in range(1, 5):
            reply = write_reply("Press it.", suite.space.make("click", index=index), suite.space)
            rows.append(
                Example(
                    level="instruction", kind="one-step", prompt=prompt, reply=reply, provenance=_build_provenance(seed)
                )
            )
    return rows


def write_toy_candidates(folder: Path) -> int:
    """Write candidates: every button of every screen as right, giving up there as wrong; returns the number of rows."""
    space = CorridorSuite.space
    stop = write_reply("Press it.", space.make("status", goal_status="complete"), space)
    rows = asyncio.run(build_toy_examples())
    folder.mkdir()
    with ExampleWriter(folder / "candidate.parquet") as out:
        for row in rows:
            out.add(replace(row, level="candidate", kind="right"))
            out.add(replace(row, level="candidate", kind="wrong", reply=stop))
    return 2 * len(rows)


def _build_provenance(seed: int) -> Provenance:
    return Provenance(
        environment="fake[corridor]",
        environment_version="1",
        task="PressButton",
        seed=seed,
        step=0,
        screen="0" * 64,
        apps=("corridor",),
        teacher="oracle",
    )
