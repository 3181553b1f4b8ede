"""The policy that comes with Collab: small, with the weights that it names, and able to speak."""

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

POCKET = find_builtin_root() / "agents" / "pocket"


def test_it_is_small_and_its_weights_are_those_it_names() -> None:
    assert sum(file.stat().st_size for file in POCKET.iterdir()) <= 16 * 2**20
    named = json.loads((POCKET / "collab.json").read_text())["weights"]
    there = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in POCKET.glob("*.safetensors")}
    assert named == there
    assert there


def test_it_says_what_to_do_on_a_phone() -> None:
    """As it is shipped: its own prompt, context and length of a reply; greedy, so that it says the same every time."""
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    definition = Library().load("agents", "pocket", AgentDefinition)

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
        model: Model = build("models", definition, "agents/pocket")
        try:
            reply = await model.generate(Request(prompt=prompt, sampling=sampling, seed=0))
        finally:
            await model.close()
        assert reply.finish == "stop"
        return read_reply(reply.text, phones.space, screen)

    said = asyncio.run(ask())
    assert said.action is not None, said
    assert said.reason
