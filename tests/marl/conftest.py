"""A tiny checkpoint that proposes actions in the corridor, good and bad ones, and a small method that trains it."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from collab.config import override
from collab.envs.fake import CorridorSuite
from collab.learn.finetune import begin, train
from collab.learn.prepare import Task, prepare
from collab.learn.preset import load_preset
from collab.library import Library, root
from collab.marl.config import MarlConfig, load_method
from collab.marl.configure import configure
from collab.models.tiny import make_tiny_checkpoint
from collab.prompts.parse import write_reply
from collab.prompts.render import Context, Template, read_templates
from collab.synth.reader import Reader
from collab.synth.rows import Provenance, Row

DEFINITIONS = {
    "envs/corridor.yaml": (
        "backend: fake\nbackends:\n  fake: {kind: fake, options: {max_steps: 3}}\ntasks: [PressButton]\n"
    ),
    "graphs/pair.yaml": "slots: [ada, ben]\nrounds: 2\nedges: [[ada, ben]]\n",
    "agents/scholar.yaml": (
        "kind: local\noptions: {path: PATH, device: cpu}\nprompt: pocket\ncontext_tokens: 2048\n"
        "sampling: {temperature: 0.7, max_tokens: 40}\n"
    ),
    "agents/show.yaml": "kind: rehearsal\n",
}
SMALL = (
    "epochs=2",
    "episodes=2",
    "held_out.episodes=2",
    "determinism=exact",
    "dpo.context=2048",
    "dpo.batch_rows=4",
    "dpo.rows_at_once=4",
    "dpo.learning_rate=0.001",
    "dpo.log_every=1",
    "dpo.save_every=1",
)

Configured = Callable[..., MarlConfig]


def write_library(folder: Path, checkpoint: Path) -> Library:
    """Definitions of one's own, the agents on that checkpoint."""
    for name, text in DEFINITIONS.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("PATH", str(checkpoint)))
    return Library(own=folder)


def configure_small(library: Library, *settings: str, agents: str = "scholar", **choices: object) -> MarlConfig:
    """A small training in the corridor."""
    arguments: dict[str, object] = {"env": "corridor", "graph": "pair", "agents": agents, "preset": "collab"}
    return asyncio.run(
        configure(library, method=load_method("collab"), settings=[*SMALL, *settings], **(arguments | choices))  # type: ignore[arg-type]
    )


async def lessons() -> list[Row]:
    """Screens of the corridor with a button to press, any of the four: a taught policy errs three times of four."""
    suite = CorridorSuite()
    reader = Reader(template=Template("pocket", read_templates(root() / "prompts" / "pocket")), max_tokens=40)
    rows: list[Row] = []
    for seed in range(8):
        environment = await suite.open()
        task = suite.instance("PressButton", seed)
        screen = await environment.reset(task)
        prompt = reader.decision(Context(goal=task.goal, space=suite.space, observation=screen), reader.alone(), {})
        for index in range(1, 5):
            reply = write_reply("Press it.", suite.space.make("click", index=index), suite.space)
            rows.append(
                Row(level="instruction", kind="one-step", prompt=prompt, reply=reply, provenance=_nowhere(seed))
            )
    return rows


def _nowhere(seed: int) -> Provenance:
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


def teach(base: Path, out: Path) -> Path:
    """Fine-tune a checkpoint on the lessons; returns the new one."""
    settings = [
        "context=2048",
        "batch_rows=8",
        "epochs=30",
        "learning_rate=0.01",
        "precision=float32",
        "prompt_weight=0",
    ]
    recipe = override(load_preset("pocket").recipe("sft"), [*settings, "saved=float32"])
    prepared = prepare(Task(stage="sft", base=str(base), preset="pocket", recipe=recipe), asyncio.run(lessons()))
    final = train(prepared, begin(prepared, out / "sft"), device="cpu").final
    assert final is not None
    return final


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint that knows nothing; not to be changed."""
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    return make_tiny_checkpoint(tmp_path_factory.mktemp("marl") / "tiny", hidden=32, layers=2, context=4096)


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    """An environment, a graph and agents whose checkpoint nobody looks for yet."""
    return write_library(tmp_path_factory.mktemp("library"), Path("checkpoints/none"))


@pytest.fixture(scope="session")
def scholar(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint that was taught to press this or that button: some of what it proposes is right."""
    return teach(tiny, tmp_path_factory.mktemp("taught"))


@pytest.fixture(scope="session")
def configured(library: Library) -> Configured:
    """Puts a small training in the corridor together, from settings and choices."""
    return functools.lru_cache(functools.partial(configure_small, library))


@pytest.fixture(scope="session")
def schooled(scholar: Path, tmp_path_factory: pytest.TempPathFactory) -> Configured:
    """The same with the taught checkpoint in place of one that is not there."""
    library = write_library(tmp_path_factory.mktemp("school"), scholar)
    return functools.lru_cache(functools.partial(configure_small, library))
