"""The policies that come with Collab: small, with the weights that they name, and able to speak."""

from __future__ import annotations

import asyncio
import hashlib
import json

import pytest

from collab.config import AgentDefinition
from collab.envs.simphone.suite import SimPhoneSuite
from collab.library import Library, find_builtin_root
from collab.models.base import Model, Request
from collab.prompts.parse import ParsedReply, read_reply
from collab.prompts.render import PromptContext, Template, read_templates
from collab.rollout.build import build
from collab.synthesis.conversation import Reader
from collab.types import Sampling

AGENTS = find_builtin_root() / "agents"
SHIPPED = pytest.mark.parametrize("name", ["pocket", "early", "trained"])


@pytest.mark.parametrize(("name", "most_mb"), [("pocket", 8), ("early", 8), ("trained", 8), ("sighted", 16)])
def test_it_is_small_and_its_weights_are_those_it_names(name: str, most_mb: int) -> None:
    folder = AGENTS / name
    assert sum(file.stat().st_size for file in folder.iterdir()) <= most_mb * 2**20
    named = json.loads((folder / "collab.json").read_text())["weights"]
    there = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.glob("*.safetensors")}
    assert named == there
    assert there


@SHIPPED
def test_it_says_what_to_do_on_a_phone(name: str) -> None:
    """As it is shipped: its own prompt, context and length of a reply; greedy, so that it says the same every time."""
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    definition = Library().load("agents", name, AgentDefinition)

    async def ask() -> ParsedReply:
        phones = SimPhoneSuite()
        phone, task = await phones.open(), phones.instance("SystemWifiTurnOn", 5)
        screen = await phone.reset(task)
        reader = Reader(
            template=Template(definition.prompt, read_templates(find_builtin_root() / "prompts" / definition.prompt)),
            context_tokens=definition.context_tokens,
            history=definition.history,
        )
        context = PromptContext(goal=task.goal, space=phones.space, observation=screen)
        prompt = reader.build_decision(context, reader.seat_alone(), {})
        sampling = Sampling(temperature=0.0, max_tokens=definition.sampling.max_tokens)
        model: Model = build("models", definition, f"agents/{name}")
        try:
            reply = await model.generate(Request(prompt=prompt, sampling=sampling, seed=0))
        finally:
            await model.close()
        assert reply.finish == "stop"
        return read_reply(reply.text, phones.space, screen)

    said = asyncio.run(ask())
    assert said.action is not None, said
    assert said.reason
