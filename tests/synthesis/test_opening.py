"""What a synthesis is opened with follows from its configuration."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from collab.rollout.collector import RolloutProgress as Calls
from collab.synthesis.config import SynthConfig
from collab.synthesis.conversation import Reader
from collab.synthesis.oracle_teacher import OracleTeacher
from collab.synthesis.run import open_synthesis
from collab.synthesis.units import Ledger, SynthesisProgress


def reader_of(config: SynthConfig) -> Reader:
    async def look() -> Reader:
        async with open_synthesis(config, Ledger(SynthesisProgress(calls=Calls(planned=0)))) as opened:
            teacher = opened.resources.teacher
            assert isinstance(teacher, OracleTeacher)
            return teacher.talk.reader

    return asyncio.run(look())


def test_rows_are_made_for_the_policy_that_the_settings_describe(build_config: Callable[..., SynthConfig]) -> None:
    """What is left of the context for a screen depends on all three; they are those of who will play."""
    plain = reader_of(build_config())
    assert (plain.context_tokens, plain.history, plain.max_tokens) == (8192, 5, 256)
    pocket = reader_of(build_config(settings=["context_tokens=2048", "history=4", "max_tokens=128"]))
    assert (pocket.context_tokens, pocket.history, pocket.max_tokens) == (2048, 4, 128)
