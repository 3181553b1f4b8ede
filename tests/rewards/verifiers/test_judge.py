"""The question about an episode, and the reading of its reply."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collab.errors import ConfigError, ModelFailure
from collab.library import find_builtin_root
from collab.models.base import Reply, Request
from collab.models.rehearsal import RehearsalModel
from collab.rewards.answers import EMPTY
from collab.rewards.verifiers.base import Verdict, VerifierInput
from collab.rewards.verifiers.judge import (
    NO_PICTURE,
    TOO_LONG,
    VERDICT,
    EpisodeJudge,
    JudgeQuestion,
    ScreenshotJudge,
    TextJudge,
    read_judge_prompts,
)
from collab.testing.scripted import ScriptedModel
from collab.types import Sampling, Trajectory

PROMPTS = find_builtin_root() / "prompts"


@pytest.mark.parametrize("success", [True, False])
@given(reason=st.text(max_size=200))
def test_what_is_written_is_read(success: bool, reason: str) -> None:
    assert VERDICT.read(VERDICT.format(success, reason)).value is success


@pytest.mark.parametrize("folder", ["verifier", "verifier-vision", "verifier-model"])
@pytest.mark.parametrize("success", [True, False])
def test_every_prompt_asks_for_what_is_read(folder: str, success: bool, corridor: Any) -> None:
    kind = ScreenshotJudge if folder == "verifier-vision" else TextJudge
    question = make(kind, folder).build_question(show(corridor[2][0]))
    assert isinstance(question, JudgeQuestion)
    asked = question.prompt.system + question.prompt.user
    assert VERDICT.ask(success) in asked
    assert VERDICT.read(f"It is so.\n{VERDICT.ask(success)}").value is success
    assert VERDICT.read(question.prompt.user).value is None, "a model that repeats the question has not answered it"


@pytest.mark.parametrize(
    ("text", "success", "reason"),
    [
        ("Verdict: True", True, ""),
        ("verdict: FALSE.", False, ""),
        ("The contact is there.\n**Verdict:** True", True, "The contact is there."),
        ("**Verdict: False**", False, ""),
        ("`Verdict` = true", True, ""),
        ("First I thought Verdict: True.\nBut it was not saved.\nVerdict: False", False, None),
        ("<think>Verdict: True</think>It is not saved. Verdict: False", False, "It is not saved."),
        ("<think>It is\nsaved.</think> Verdict: True", True, "It is saved."),
    ],
)
def test_the_last_verdict_counts_however_it_is_emphasised(text: str, success: bool, reason: str | None) -> None:
    found = VERDICT.read(text)
    assert (found.value, found.missing) == (success, None)
    assert reason is None or found.reason == reason


@pytest.mark.parametrize(
    ("text", "cut", "missing"),
    [
        ("", False, EMPTY),
        ("   \n", False, EMPTY),
        ("I believe that the task was carried out.", False, VERDICT.absent),
        ("Verdict: it is true that the contact is there", False, VERDICT.absent),
        ("The answer is either Verdict: True or False", False, VERDICT.absent),
        ("Verdict: True/False", False, VERDICT.absent),
        ("The verdict: truely done", False, VERDICT.absent),
        ("<think>Verdict: True</think>", False, EMPTY),
        ("The first field holds", True, VERDICT.cut),
    ],
)
def test_prose_has_no_verdict(text: str, cut: bool, missing: str) -> None:
    found = VERDICT.read(text, cut=cut)
    assert (found.value, found.missing) == (None, missing)


def test_a_cut_reply_with_a_verdict_has_one() -> None:
    assert VERDICT.read("Verdict: True\nbecause", cut=True).value is True


def show(episode: Trajectory, **fields: Any) -> VerifierInput:
    return VerifierInput(episode=episode, pictures=lambda screen: screen.title.encode(), **fields)


def make(kind: type[EpisodeJudge], folder: str = "", model: Any = None, **options: Any) -> EpisodeJudge:
    model = model or ScriptedModel(replies=["Well done. Verdict: True"])
    texts = read_judge_prompts(PROMPTS / (folder or kind.prompts), kind.prompts)
    return kind(model=model, texts=texts, **{"sampling": Sampling(max_tokens=64), **options})


def ask(judge: EpisodeJudge, case: VerifierInput) -> Verdict:
    return asyncio.run(judge.verify(case))


def test_a_text_judge_reads_task_actions_and_the_last_screens(corridor: Any) -> None:
    episode = corridor[2][0]
    model = ScriptedModel(replies=["Well done. Verdict: True"])
    verdict = ask(make(TextJudge, model=model, seed=3), show(episode))
    assert (verdict.success, verdict.reason, verdict.missing) == (True, "Well done.", None)
    (request,) = model.requests
    user = request.prompt.user
    assert episode.task.goal in user
    for number, step in enumerate(episode.steps, start=1):
        line = f"{number}. On {step.observation.title}: {step.history.action} -> {step.history.effect}"
        assert line in user.splitlines()
    assert user.count("\nScreen: ") == 1
    assert episode.final.text in user
    assert not request.images
    (call,) = verdict.calls
    assert (call.reply, call.seed) == ("Well done. Verdict: True", request.seed)
    two = make(TextJudge, screens=2).build_question(show(episode))
    assert isinstance(two, JudgeQuestion)
    assert episode.steps[-1].observation.text in two.prompt.user
    assert episode.final.text in two.prompt.user


def test_in_the_middle_it_sees_what_was_there_then(corridor: Any) -> None:
    episode = corridor[2][0]
    question = make(TextJudge).build_question(show(episode, step=1))
    assert isinstance(question, JudgeQuestion)
    assert episode.steps[1].observation.text in question.prompt.user
    assert "\n1. On " in question.prompt.user
    assert "\n2. On " not in question.prompt.user


def test_what_does_not_fit_is_left_out_from_the_oldest_and_never_the_task_or_the_end(corridor: Any) -> None:
    episode = corridor[2][0]
    whole = make(TextJudge, screens=3).build_question(show(episode))
    assert isinstance(whole, JudgeQuestion)
    every = [line for line in whole.prompt.user.splitlines() if " -> " in line]
    model = ScriptedModel(replies=["x"])
    seen = []
    for context in range(4000, 100, -20):
        question = make(TextJudge, screens=3, context_tokens=context, model=model).build_question(show(episode))
        if isinstance(question, str):
            assert question == TOO_LONG
            break
        user = question.prompt.user
        assert episode.task.goal in user
        assert episode.final.text in user
        actions = [line for line in user.splitlines() if " -> " in line]
        assert actions == every[len(every) - len(actions) :]
        seen.append((user.count("Screen: "), len(actions)))
    else:
        pytest.fail("it fits everywhere")
    assert seen == sorted(seen, reverse=True)
    assert seen[0] == (3, len(episode.steps))
    assert seen[-1] == (1, 0)
    verdict = ask(make(TextJudge, context_tokens=context, model=model), show(episode))
    assert (verdict.success, verdict.missing, verdict.calls) == (None, TOO_LONG, ())
    assert not model.requests


def test_a_screenshot_judge_sees_the_last_pictures_and_two_actions(corridor: Any) -> None:
    episode = corridor[2][0]
    model = ScriptedModel(replies=["Verdict: False"])
    verdict = ask(make(ScreenshotJudge, model=model), show(episode))
    assert verdict.success is False
    (request,) = model.requests
    assert request.images == (episode.final.title.encode(),)
    assert request.prompt.images == (hashlib.sha256(request.images[0]).hexdigest(),)
    assert sum(" -> " in line for line in request.prompt.user.splitlines()) == 2
    assert episode.final.text not in request.prompt.user
    both = make(ScreenshotJudge, pictures=2, actions=0).build_question(show(episode))
    assert isinstance(both, JudgeQuestion)
    assert both.images == (episode.steps[-1].observation.title.encode(), episode.final.title.encode())
    assert "The last picture shows the screen at the end." in both.prompt.user
    blind = ask(make(ScreenshotJudge), VerifierInput(episode=episode))
    assert (blind.success, blind.missing, blind.calls) == (None, NO_PICTURE, ())


class Withholding(ScriptedModel):
    """Refuses, or is cut."""

    async def generate(self, request: Request) -> Reply:
        return Reply(text="", finish=self.policy.base, aside="no")


@pytest.mark.parametrize(
    ("finish", "missing"),
    [("refusal", "the model refused: no"), ("content_filter", "the server's content filter ended the reply: no")],
)
def test_a_reply_that_was_withheld_is_told_by_its_cause(corridor: Any, finish: str, missing: str) -> None:
    verdict = ask(make(TextJudge, model=Withholding(replies=["x"], name=finish)), show(corridor[2][0]))
    assert (verdict.success, verdict.missing) == (None, missing)


def test_a_failed_call_is_no_verdict(corridor: Any) -> None:
    with pytest.raises(ModelFailure):
        ask(make(TextJudge, model=ScriptedModel(replies=["x"], fail_calls=[0])), show(corridor[2][0]))


def test_what_cannot_judge_is_refused() -> None:
    with pytest.raises(ConfigError, match="looks at solutions"):
        make(TextJudge, model=RehearsalModel())
    with pytest.raises(ConfigError, match="context_tokens 64 must be above 112"):
        make(TextJudge, context_tokens=64)
    with pytest.raises(ConfigError, match="screens 0 at least 1"):
        make(TextJudge, screens=0)
