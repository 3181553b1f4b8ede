"""A resumed training keeps its budget and device unless others are given."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import collab.loop.loop as training
from collab.config import Budget, PartDefinition
from collab.errors import RunFormatError, UsageError
from collab.loop.loop import resume, start
from collab.loop.record import TrainingDir
from collab.loop.state import Halted, LoopState
from collab.testing.fake_server import FakeServer
from collab.types import Usage


def test_what_was_granted_is_granted_again(configure_toy, tiny: Path, tmp_path: Path, monkeypatch) -> None:
    seen: list[tuple[Budget, str, tuple[str, ...]]] = []

    async def looked(loop: LoopState, algorithm: object, records: object) -> None:
        seen.append((loop.budget, loop.device, tuple(loop.reports)))
        raise Halted("enough was seen")

    monkeypatch.setattr(training, "run_epochs", looked)
    monkeypatch.setattr(training, "check_reports", lambda names: None)  # which need not be installed
    out, begun = tmp_path / "run", Budget(tokens=500)
    config = configure_toy(f"run.agents.*.options.path={tiny}")
    asyncio.run(
        start(config, out, options={"allow_uncalibrated": True}, budget=begun, device="cpu", report_to=["tensorboard"])
    )
    asyncio.run(resume(out))
    asyncio.run(resume(out, budget=Budget(minutes=1), device="auto", report_to=[]))
    asyncio.run(resume(out))
    own = (begun, "cpu", ("tensorboard",))
    assert seen == [own, own, (Budget(minutes=1), "auto", ()), own]


def test_a_limit_on_what_a_critic_does_not_count_is_refused_before_anything_is_played(
    configure_toy, tiny: Path, tmp_path: Path, monkeypatch
) -> None:
    async def played(loop: LoopState, algorithm: object, records: object) -> None:
        raise Halted("something was played")

    monkeypatch.setattr(training, "run_epochs", played)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-nobody")
    out, config = (
        tmp_path / "run",
        configure_toy(f"run.agents.*.options.path={tiny}", "critic=critic-llm", "min_critic_auc=null"),
    )
    with FakeServer() as server:
        asked = PartDefinition(kind="openai", options={"model": "fake", "base_url": server.url})
        critic = config.critic.model_copy(update={"options": {"model": asked.model_dump()}})
        config = config.model_copy(update={"critic": critic})
        asyncio.run(start(config, out, device="cpu"))
        asyncio.run(resume(out, budget=Budget(tokens=5)))
        with pytest.raises(UsageError, match=r"--budget usd: .* does not say what it costs"):
            asyncio.run(resume(out, budget=Budget(usd=2)))
        assert asyncio.run(resume(out)).stopped == "something was played"


def test_what_a_process_spent_is_told_and_no_more(configure_toy, tiny: Path, tmp_path: Path, monkeypatch) -> None:
    """Not what an earlier one spent on the same epoch."""

    async def spent(loop: LoopState, algorithm: object, records: object) -> None:
        loop.spend(Usage(calls=1, prompt_tokens=30, completion_tokens=4, cost_usd=0.5))
        raise Halted("enough was spent")

    monkeypatch.setattr(training, "run_epochs", spent)
    out, config = tmp_path / "run", configure_toy(f"run.agents.*.options.path={tiny}")
    first = asyncio.run(start(config, out, options={"allow_uncalibrated": True}, device="cpu"))
    again = asyncio.run(resume(out))
    assert (first.spent.tokens, first.spent.cost_usd) == (again.spent.tokens, again.spent.cost_usd) == (34, 0.5)


def test_a_training_of_another_format_is_one_line(tmp_path: Path) -> None:
    folder = TrainingDir(tmp_path / "run")
    folder.begin({})
    folder.file.write_text('{"format": 1}')
    with pytest.raises(RunFormatError, match=r"has format 1, this version reads format 4; .*begin another training"):
        asyncio.run(resume(folder.path))
    folder.write({"config": {}})
    with pytest.raises(RunFormatError, match="names no budget and no device"):
        asyncio.run(resume(folder.path))
