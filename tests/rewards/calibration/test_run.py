"""A calibration from its configuration to its files: numbers, what is missing, and nothing paid for twice."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from collab.config import Budget
from collab.errors import RunFormatError, UsageError
from collab.models.checkpoint_card import hash_weights
from collab.rewards.base import ABSENT, OUT_OF_RANGE
from collab.rewards.calibration.config import CalibrationConfig
from collab.rewards.calibration.record import FILE, PICTURE, CalibrationDir
from collab.rewards.calibration.run import CalibrationProgress, estimate, resume, start
from collab.rewards.labels import list_label_sets, read_labels
from collab.testing.fake_server import FakeServer, Fault
from collab.testing.tiny_checkpoint import make_tiny_checkpoint

Wanted = Callable[..., CalibrationConfig]
PASSES = ["again", "first", "longer", "names-1"]


def content(path: Path) -> dict[str, Any]:
    """The file of a calibration but for the moment at which it was begun."""
    found = json.loads((path / FILE).read_text())
    assert found.pop("created")
    return dict(found)


def recorded(path: Path) -> int:
    return sum(len(read_labels(path, name).judged) for name in list_label_sets(path))


def test_the_oracle_is_found_to_be_right(build_config: Wanted, tmp_path: Path) -> None:
    result = asyncio.run(start(build_config(critic="critic-oracle"), tmp_path / "out"))
    assert result.stopped is None
    record = CalibrationDir(tmp_path / "out").read_record()
    assert record == result.record
    assert record.numbers is not None
    assert (record.numbers.cases, record.numbers.accuracy, record.numbers.auc) == (4, 1.0, 1.0)
    assert (record.label, record.asked, record.model, record.prompts) == ("oracle-2", None, {}, {})
    assert list_label_sets(tmp_path / "out") == PASSES
    assert (tmp_path / "out" / PICTURE).read_text().startswith("<svg")


def test_a_model_is_asked_as_planned_and_its_faults_are_found(
    build_config: Wanted, tmp_path: Path, questions: Callable[[], int]
) -> None:
    config = build_config()
    planned = asyncio.run(estimate(config))
    assert questions() == 0
    record = asyncio.run(start(config, tmp_path / "out")).record
    assert record.numbers is not None
    assert record.spent is not None
    assert questions() == planned.calls == record.spent.calls == 4 * len(PASSES)
    assert sum(planned.worth.values()) == record.numbers.cells
    assert planned.worth["good"] == 4
    assert (record.numbers.position_bias, record.numbers.length_bias) == (pytest.approx(0), pytest.approx(0))
    assert record.numbers.accuracy is not None
    assert record.numbers.accuracy < 1  # it likes what claims to be complete, and most of these claims are wrong
    assert set(record.prompts) == {"system", "step"}
    assert set(record.seeds) == set(PASSES)
    assert record.seeds["first"] == record.seeds["again"] != record.seeds["names-1"]
    assert record.model["policy"]["base"] == "fake"


def test_scores_in_quotes_or_said_twice_are_the_same_numbers(build_config: Wanted, tmp_path: Path, voice: Any) -> None:
    config = build_config(cases=2, settings=["permutations=0"])
    whole = asyncio.run(start(config, tmp_path / "whole")).record
    plain, forms = voice.says, itertools.cycle([True, False])

    def says(body: Any) -> str:
        scores = json.loads(plain(body))["scores"]
        quoted = [{**one, "score": str(one["score"])} for one in scores]
        return json.dumps({"scores": quoted if next(forms) else [*scores, *quoted]})

    voice.says = says
    record = asyncio.run(start(config, tmp_path / "other")).record
    assert record.numbers == whole.numbers
    assert record.numbers is not None
    assert sum(record.numbers.missing.values()) == 0


def test_what_does_not_fit_is_told_before_any_call(build_config: Wanted) -> None:
    planned = asyncio.run(estimate(build_config(settings=["critic.context_tokens=2100"])))
    assert (planned.calls, planned.unfit) == (0, 4 * planned.passes)
    assert asyncio.run(estimate(build_config())).unfit == 0


def test_a_reward_model_is_measured_with_its_weights_and_without_words(
    build_config: Wanted, tmp_path: Path, folder: Path
) -> None:
    weights = make_tiny_checkpoint(tmp_path / "critic", labels=1, hidden=16, layers=1)
    (folder / "agents" / "scorer.yaml").write_text(
        f"kind: model\noptions: {{path: {json.dumps(str(weights))}, device: cpu}}\nprompt: critic-model\n"
    )
    config = build_config(critic="scorer", settings=["permutations=0"], budget=Budget(tokens=1_000_000, usd=1))
    planned = asyncio.run(estimate(config))
    record = asyncio.run(start(config, tmp_path / "out")).record
    assert record.numbers is not None
    assert record.spent is not None
    assert (record.label, set(record.prompts)) == ("model-1", {"system", "state", "action"})
    assert record.model["capabilities"]["weights"] == hash_weights(weights)
    assert record.numbers.cells == sum(planned.worth.values()) > 4
    assert planned.calls == record.spent.calls == 3 * record.numbers.cells
    assert planned.prompt_tokens is not None
    assert planned.prompt_tokens < record.spent.prompt_tokens  # which counts the chat template, too
    assert (planned.completion_tokens, record.spent.completion_tokens) == (0, 0)
    assert record.numbers.auc is not None
    assert record.numbers.retest is not None
    assert (record.numbers.retest.difference, record.numbers.length_bias) == (0, 0)
    assert record.spent.cost_usd == 0  # what is computed here costs nothing, so that a limit of money can be kept


def test_without_other_names_nothing_is_said_of_places(build_config: Wanted, tmp_path: Path) -> None:
    numbers = asyncio.run(start(build_config(cases=1, settings=["permutations=0"]), tmp_path / "out")).record.numbers
    assert numbers is not None
    assert (numbers.position_effects, numbers.position_bias) == ({}, None)
    assert list_label_sets(tmp_path / "out") == ["again", "first", "longer"]


@pytest.mark.slow
def test_nonsense_is_counted_by_cause_and_never_a_zero(build_config: Wanted, tmp_path: Path, voice: Any) -> None:
    voice.score = lambda place, one: (7.0, 0.5, None, 0.5)[place]
    numbers = asyncio.run(start(build_config(), tmp_path / "some")).record.numbers
    assert numbers is not None
    assert numbers.missing[OUT_OF_RANGE] == 4
    assert numbers.missing[ABSENT] > 0
    assert sum(column.count for column in numbers.picture) == numbers.cells - sum(numbers.missing.values())
    voice.says = lambda body: "I would rather not say."
    numbers = asyncio.run(start(build_config(), tmp_path / "none")).record.numbers
    assert numbers is not None
    assert sum(numbers.missing.values()) == numbers.cells
    assert (numbers.accuracy, numbers.auc, numbers.ece, numbers.retest) == (None, None, None, None)


@pytest.mark.slow
def test_one_that_was_stopped_resumes_and_asks_nothing_twice(
    build_config: Wanted, tmp_path: Path, voice: Any, questions: Callable[[], int]
) -> None:
    config = build_config()
    asyncio.run(start(config, tmp_path / "whole"))
    whole = questions()

    async def halfway(path: Path) -> str | None:
        stop, scores = asyncio.Event(), voice.says
        loop = asyncio.get_running_loop()

        def says(body: Any) -> str:
            if questions() == whole + whole // 2:
                loop.call_soon_threadsafe(stop.set)
            return str(scores(body))

        voice.says = says
        stopped = (await start(config, path, stop=stop)).stopped
        voice.says = scores
        return stopped

    out = tmp_path / "out"
    assert asyncio.run(halfway(out)) == "stopped on request"
    assert CalibrationDir(out).read_record().numbers is None
    assert not (out / PICTURE).exists()
    there, before = recorded(out), questions()
    assert 0 < there < whole
    seen: list[CalibrationProgress] = []
    assert asyncio.run(resume(out, watch=seen.append)).stopped is None
    assert questions() - before == whole - there
    assert (seen[0].done, seen[0].labelling.known) == (whole, there)
    assert content(out) == content(tmp_path / "whole")
    assert (out / PICTURE).read_bytes() == (tmp_path / "whole" / PICTURE).read_bytes()
    again, finished = (out / FILE).read_bytes(), questions()
    assert asyncio.run(resume(out)).record.numbers is not None
    assert ((out / FILE).read_bytes(), questions()) == (again, finished)


@pytest.mark.slow
def test_a_question_that_failed_is_asked_again(build_config: Wanted, tmp_path: Path, server: FakeServer) -> None:
    async def gone() -> str | None:
        result = start(wanted_config, tmp_path / "out", watch=lambda progress: server.faults.append(Fault(status=500)))
        return (await result).stopped

    wanted_config = build_config()
    stopped = asyncio.run(gone())
    assert stopped is not None
    assert stopped.startswith("1 of 16 judgements failed (")
    assert asyncio.run(resume(tmp_path / "out")).stopped is None


@pytest.mark.slow
def test_a_budget_counts_all_passes(build_config: Wanted, tmp_path: Path) -> None:
    whole = asyncio.run(start(build_config(), tmp_path / "whole")).record.spent
    assert whole is not None
    tokens = (whole.prompt_tokens + whole.completion_tokens) // 2  # more than one pass costs
    result = asyncio.run(start(build_config(budget=Budget(tokens=tokens)), tmp_path / "out"))
    assert result.stopped is not None
    assert result.stopped.startswith("budget used up: ")
    assert 4 < result.progress.done < 16


def test_what_is_not_as_it_was_is_not_mixed(build_config: Wanted, tmp_path: Path) -> None:
    out = tmp_path / "out"
    asyncio.run(start(build_config(budget=Budget(tokens=1)), out))
    text = (out / FILE).read_text()
    (out / FILE).write_text(text.replace('"digest": "', '"digest": "0', 1))
    with pytest.raises(RunFormatError, match="judged otherwise than llm-3 does now"):
        asyncio.run(resume(out))
    (out / FILE).write_text(text.replace('"environment_version": "1"', '"environment_version": "0"'))
    with pytest.raises(RunFormatError, match="version 0, this is version 1"):
        asyncio.run(resume(out))
    with pytest.raises(UsageError, match="a calibration is there already; give another --out, or resume it: collab"):
        asyncio.run(start(build_config(), out))
    with pytest.raises(RunFormatError, match="so it is no calibration"):
        asyncio.run(resume(tmp_path / "library"))
