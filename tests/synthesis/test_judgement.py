"""Rows of a process reward model: a policy's candidates, right or wrong, with the words of a teacher who knows."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collab.config import Budget
from collab.data.example import Example
from collab.data.parquet import read_rows
from collab.envs.grammar import MOBILE
from collab.errors import UsageError
from collab.library import Library
from collab.rewards.process_reward import JUDGMENT
from collab.rewards.registry import load_critic, read_critic_texts
from collab.synthesis.card import select
from collab.synthesis.config import SynthConfig
from collab.synthesis.estimate import estimate
from collab.synthesis.journal import Said, read_records
from collab.synthesis.judgement import is_demonstrated
from collab.synthesis.run import resume, start
from collab.testing.fake_server import FakeServer
from collab.testing.scripted import answer_as_teacher
from collab.types import Action, Box, Element, ElementTarget, Observation, Point
from tests.synthesis.test_select import row

Wanted = Callable[..., SynthConfig]
_BUTTON = re.compile(r'button "[^"]+" \[(\d+)\]')


def guess(body: Any) -> str:
    """Answer as a teacher, and as a policy that taps any button, types nothing and is sometimes silent."""
    asked = str(body["messages"][-1]["content"])
    if body["model"] != "learner":
        return answer_as_teacher(body)
    seed = int(body.get("seed", 0))
    buttons = _BUTTON.findall(asked)
    if seed % 9 == 0:
        return "I do not know."
    if not buttons or seed % 5 == 0:
        return 'Reason: all is done\nAction: {"action_type": "status", "goal_status": "complete"}'
    return f'Reason: a door\nAction: {{"action_type": "click", "index": {buttons[seed % len(buttons)]}}}'


@pytest.fixture
def judged(build_config: Wanted, folder: Path, server: FakeServer, voice: Any) -> Wanted:
    """The configuration of a synthesis of judgements of a policy behind the server."""
    options = f"{{model: learner, base_url: '{server.url}', retries: 0, timeout_s: 5}}"
    (folder / "agents" / "learner.yaml").write_text(
        f"kind: openai\noptions: {options}\nsampling: {{temperature: 0.3, max_tokens: 99}}\nhistory: 2\n"
    )
    voice.says = guess

    def make(**asked: Any) -> SynthConfig:
        return build_config(**{"levels": ["judgement"], "agents": "learner", "screens": 0, "episodes": 6, **asked})

    return make


def read(path: Path) -> list[Example]:
    return list(read_rows(path / "judgement.parquet"))


# ---------------------------------------------------------------------------------------------------- right or wrong

SCREEN = Observation(
    space="mobile",
    title="Map",
    text="",
    elements=(
        Element(index=0, role="button", label="Save", box=Box(0, 0, 400, 100)),
        Element(index=1, role="button", label="Delete", box=Box(400, 0, 800, 100)),
        Element(index=2, role="canvas", label="Map", box=Box(0, 200, 1000, 1200), flags=("surface",)),
    ),
    width=1000,
)


def tap(target: Point | ElementTarget) -> Action:
    return replace(MOBILE.make("click", index=0), target=target)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (ElementTarget(index=0), ElementTarget(index=0), True),
        (ElementTarget(index=0), ElementTarget(index=1), False),
        (Point(x=500, y=1500), Point(x=639, y=1500), True),  # within 14 % of 1000 pixels
        (Point(x=500, y=1500), Point(x=641, y=1500), False),
        (Point(x=500, y=1500), Point(x=600, y=1600), False),
        (Point(x=990, y=1190), ElementTarget(index=2), True),  # in its box, however far from its middle
        (Point(x=500, y=130), ElementTarget(index=0), False),
        (Point(x=300, y=130), ElementTarget(index=0), True),
    ],
)
def test_a_point_is_right_near_the_demonstrated_one(one: Any, other: Any, same: bool) -> None:
    assert is_demonstrated(tap(one), tap(other), SCREEN) is same
    assert is_demonstrated(tap(other), tap(one), SCREEN) is same
    held = replace(MOBILE.make("long_press", index=0), target=one)
    assert not is_demonstrated(held, tap(other), SCREEN)


def test_other_words_are_wrong_wherever_they_are_typed() -> None:
    right, other = (MOBILE.make("input_text", index=0, text=text) for text in ("Ada", "Bea"))
    assert is_demonstrated(right, right, SCREEN)
    assert not is_demonstrated(other, right, SCREEN)


def judgement(text: str, kind: str, task: str) -> Example:
    made = row(text, kind)
    return replace(made, level="judgement", reply=f"{kind} {task}", provenance=replace(made.provenance, task=task))


JUDGEMENTS = st.lists(
    st.builds(
        judgement, st.text("abcdef", min_size=3, max_size=3), st.sampled_from(["right", "wrong"]), st.sampled_from("xy")
    ),
    max_size=40,
)


@given(JUDGEMENTS, st.none() | st.integers(2, 20), st.integers(0, 5))
def test_as_many_are_right_as_wrong_in_each_task(rows: list[Example], most: int | None, seed: int) -> None:
    others = [row("another level")]
    chosen = select([*others, *rows], seed=seed, judgements=most)
    kept = [one for one in chosen.rows if one.level == "judgement"]
    counts = Counter((one.provenance.task, one.kind) for one in kept)
    for task in "xy":
        assert counts[task, "right"] == counts[task, "wrong"]
    unique = {one.id: one for one in rows}.values()
    made = Counter((one.provenance.task, one.kind) for one in unique)
    possible = sum(2 * min(made[task, "right"], made[task, "wrong"]) for task in "xy")
    assert len(kept) == min(possible, possible if most is None else most // 2 * 2)
    assert len(rows) + 1 == len(chosen.rows) + sum(chosen.dropped.values())
    assert chosen.rows[0] == others[0]
    assert select([*others, *rows], seed=seed, judgements=most) == chosen


@pytest.mark.parametrize("seed", range(5))
def test_steps_that_have_both_kinds_stay_first(seed: int) -> None:
    def at(step: int, kind: str) -> Example:
        made = judgement(f"{step} {kind}", kind, "x")
        return replace(made, provenance=replace(made.provenance, step=step))

    both = [at(step, kind) for step in (3, 8) for kind in ("right", "wrong")]
    alone = [at(step, "right") for step in (0, 1, 2, 4, 5, 6)] + [at(step, "wrong") for step in (7, 9)]
    assert {one.id for one in both} <= {one.id for one in select([*alone, *both], seed=seed).rows}
    assert set(select([*alone, *both], seed=seed, judgements=4).rows) == set(both)


def test_a_set_that_would_be_empty_says_how_to_get_another() -> None:
    with pytest.raises(UsageError, match=r"all 2 candidates are right in their tasks.*sampling\.temperature=1\.5"):
        select([judgement("a", "right", "x"), judgement("b", "right", "y")], seed=0)


# -------------------------------------------------------------------------------------------------- a whole synthesis


@pytest.mark.medium
def test_candidates_of_a_policy_become_questions_with_the_right_answers(
    judged: Wanted, tmp_path: Path, server: FakeServer, folder: Path
) -> None:
    result = asyncio.run(start(judged(), tmp_path / "out"))
    assert result.report is not None
    rows = read(tmp_path / "out")
    own = list(read_rows(tmp_path / "out" / "candidate.parquet"))
    assert result.report.by_kind == {
        f"{level} / {kind}": len(each) / 2
        for level, each in (("judgement", rows), ("candidate", own))
        for kind in ("right", "wrong")
    }
    assert len(rows) > 10
    # The candidates themselves, in the policy's own prompt and words: a critic of actions learns from these.
    assert all("Task: " in one.prompt.user and "Action: " in one.reply for one in own)
    assert not {one.reply for one in own} & {one.reply for one in rows}
    library = Library(own=folder)
    system = read_critic_texts(library, load_critic(library, "critic-prm"))["system"].splitlines()[1]
    for one in rows:
        assert JUDGMENT.read(one.reply).value is (one.kind == "right")
        assert one.reply.startswith("The next step is: ")
        assert ("This is that step." in one.reply) is (one.kind == "right")
        assert (one.action_type, one.provenance.teacher) == (None, "oracle")
        assert system in one.prompt.system
        # The action that is judged is the last line; nothing of what was done before is told.
        assert '{"action_type"' in one.prompt.user.splitlines()[-1]
        assert "- tap" not in one.prompt.user
    # Eight candidates per step, at the paper's temperature and not at the file's, each with a seed of its own.
    asked = [body for body in server.requests if body["model"] == "learner" and "Task: " in str(body["messages"])]
    assert {body.get("temperature", 1.0) for body in asked} == {1.0}
    prompts = Counter(str(body["messages"]) for body in asked)
    assert all(count % 8 == 0 for count in prompts.values())
    assert len({body["seed"] for body in asked}) == len(asked)
    card = (tmp_path / "out" / "card.md").read_text()
    assert "8 per step of learner: the model learner, temperature 1.0; questions of critic-prm" in card
    assert "a candidate without an action" in card
    assert "--agents learner --critic critic-prm" in card


def test_a_model_as_teacher_is_told_the_label(judged: Wanted, tmp_path: Path, server: FakeServer) -> None:
    asyncio.run(start(judged(teacher="tutor"), tmp_path / "out"))
    rows = read(tmp_path / "out")
    assert {JUDGMENT.read(one.reply).reason for one in rows} == {
        "The corridor needs another door here, or this very one."
    }
    assert {one.kind for one in rows} == {"right", "wrong"}
    assert all(one.provenance.teacher_prompt for one in rows)
    told = [str(body["messages"][-1]["content"]) for body in server.requests if "So the proposal is" in str(body)]
    assert any("So the proposal is right." in one for one in told)
    assert any("So the proposal is wrong." in one for one in told)


@pytest.mark.medium
@pytest.mark.parametrize("teacher", ["oracle", pytest.param("tutor", marks=pytest.mark.slow)])
def test_a_stopped_one_is_resumed_and_pays_for_no_candidate_twice(judged: Wanted, tmp_path: Path, teacher: str) -> None:
    whole = asyncio.run(start(judged(teacher=teacher), tmp_path / "whole"))
    assert whole.report is not None
    stopped = asyncio.run(start(judged(teacher=teacher, budget=Budget(tokens=15_000)), tmp_path / "out"))
    assert stopped.stopped is not None
    ended = asyncio.run(resume(tmp_path / "out", budget=Budget(minutes=5)))
    assert ended.report is not None
    files = [tmp_path / name / "judgement.parquet" for name in ("whole", "out")]
    assert len({hashlib.sha256(file.read_bytes()).hexdigest() for file in files}) == 1
    said = [one.said for one in read_records(tmp_path / "out") if isinstance(one, Said)]
    assert len(set(said)) == len(said)
    assert ended.report.spent.calls == whole.report.spent.calls


def test_fewer_rows_and_candidates_can_be_asked_for(judged: Wanted, tmp_path: Path, server: FakeServer) -> None:
    config = judged(
        settings=["judgement.rows=6", "judgement.candidates=3", "judgement.policy.sampling.temperature=0.5"]
    )
    result = asyncio.run(start(config, tmp_path / "out"))
    assert result.report is not None
    assert result.report.by_level == {"candidate": 6, "judgement": 6}
    assert result.report.dropped["more than 6 of level judgement"] > 0
    assert {
        body["temperature"] for body in server.requests if body["model"] == "learner" and body.get("max_tokens") == 99
    } == {0.5}


def test_a_plan_asks_no_policy(judged: Wanted, server: FakeServer) -> None:
    found = asyncio.run(estimate(judged(levels=["demonstration", "judgement"])))
    assert server.requests == []
    assert found.calls["candidates"] == round(6 * found.steps) * 8
    assert found.rows["judgement"] == found.calls["candidates"]
    assert found.rows["demonstration"] > 0
    by_model = asyncio.run(estimate(judged(teacher="tutor")))
    assert by_model.calls["analyses"] == by_model.calls["candidates"]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"agents": None}, "--levels judgement: the actions of a policy are judged; name it with --agents"),
        ({"levels": ["basic"]}, "--agents: is for level judgement, which is not asked for"),
        ({"levels": ["basic"], "agents": None, "critic": "critic-prm"}, "--critic: is for level judgement"),
        (
            {"critic": "critic-llm"},
            "--critic critic-llm: a critic of kind llm learns no such rows; name one of kind prm",
        ),
        ({"agents": "critic-prm"}, "a critic (kind prm) judges and does not speak"),
        (
            {"settings": ["judgement.policy_name=early"]},
            "--set judgement.policy_name: cannot be set; say it with --agents",
        ),
        ({"settings": ["judgement.rows=1"]}, "greater than or equal to 2"),
        ({"episodes": 0, "screens": 3}, "only episodes teach candidate and judgement"),
    ],
)
def test_what_does_not_fit_is_one_line(judged: Wanted, asked: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        judged(**asked)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_policy_that_looks_at_solutions_is_refused(judged: Wanted, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="agents/rehearsal looks at solutions"):
        asyncio.run(start(judged(agents="rehearsal"), tmp_path / "out"))


def test_the_questions_may_be_those_of_the_guided_prompt(judged: Wanted) -> None:
    config = judged(settings=["judgement.critic.prompt=critic-prm-guided"])
    assert config.judgement is not None
    assert "meticulous" in config.judgement.critic_prompt["system"]
