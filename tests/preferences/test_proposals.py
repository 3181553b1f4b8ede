"""Replies of adversaries are kept beside the run: no question is asked twice, and a kill loses none."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from collab.errors import ModelFailure, RunFormatError, UsageError
from collab.library import find_builtin_root
from collab.preferences.adversary import (
    AdversaryProposal,
    CannotPropose,
    LanguageAdversary,
    MixtureAdversary,
    Occasion,
    SamplerAdversary,
    read_adversary_prompts,
)
from collab.preferences.proposals import ProposalMemory, RememberingAdversary
from collab.prompts.render import rebuild
from collab.rewards.base import build_inputs
from collab.store.fingerprint import hash_run
from collab.store.reader import RunReader
from collab.store.run import RunStore
from collab.testing.scripted import ScriptedModel
from collab.types import Usage

WRONG = 'Reason: I would rather leave \ud83d.\nAction: {"action_type": "navigate_home"}'


@pytest.fixture
def run(corridor, tmp_path: Path) -> Path:  # type: ignore[no-untyped-def]
    shutil.copytree(corridor[1], tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def occasions(corridor) -> list[Occasion]:  # type: ignore[no-untyped-def]
    suite, directory, (doors, _) = corridor
    with RunReader(directory) as reader:
        return [
            Occasion(
                case=case,
                cell=cell,
                prompt=rebuild(reader.read_prefix(cell.prompt.prefix), cell.prompt),
                rewarded=frozenset({cell.action}),
                seed=number,
            )
            for case in build_inputs(doors, suite.space)
            for number, cell in enumerate(case.matrix)
            if cell.action is not None
        ]


def model(**options: object) -> ScriptedModel:
    return ScriptedModel(replies=[WRONG], **options)  # type: ignore[arg-type]


def ask(run: Path, asked: list[Occasion], speaker: ScriptedModel, **options: object) -> list[AdversaryProposal | None]:
    async def all_of_them(adversary: RememberingAdversary) -> list[AdversaryProposal | None]:
        return [await adversary.propose(one) for one in asked]

    inner = LanguageAdversary(
        model=speaker, texts=read_adversary_prompts(find_builtin_root() / "prompts" / "adversary")
    )
    with ProposalMemory(run) as memory:
        return asyncio.run(all_of_them(RememberingAdversary(inner, memory, options=options)))


def test_what_was_said_is_said_again_without_asking_and_costs_nothing(run, occasions) -> None:  # type: ignore[no-untyped-def]
    before = hash_run(RunStore.open(run))
    first = ask(run, occasions, model())
    silent = model()
    again = ask(run, occasions, silent)
    assert silent.calls == 0
    assert len(list((run / "proposals" / "events").iterdir())) == 1  # who writes nothing leaves no file behind
    assert [one.text for one in again if one] == [one.text for one in first if one] == [WRONG] * len(occasions)
    assert {one.spent.calls for one in first if one} == {1}
    assert {one.spent for one in again if one} == {Usage()}
    assert hash_run(RunStore.open(run)) == before


def test_whatever_decides_the_answer_is_asked_about_anew(run, occasions) -> None:  # type: ignore[no-untyped-def]
    one, other = occasions[0], next(each for each in occasions if each.right != occasions[0].right)
    ask(run, [one], model(), temperature=0.7)
    for asked, options in (
        (replace(one, seed=99), {"temperature": 0.7}),
        (replace(one, cell=other.cell), {"temperature": 0.7}),
        (replace(one, prompt=replace(one.prompt, shared="Another screen")), {"temperature": 0.7}),
        (one, {"temperature": 0.1}),
    ):
        speaker = model()
        ask(run, [asked], speaker, **options)
        assert speaker.calls == 1


def test_what_else_was_rewarded_is_asked_about_anew_where_it_is_read(run, occasions) -> None:  # type: ignore[no-untyped-def]
    """A model reads what the cell read: under another threshold its answer is the one that was paid for."""
    one, other = occasions[0], next(each for each in occasions if each.right != occasions[0].right)
    changed = replace(one, rewarded=one.rewarded | {other.right})
    ask(run, [one], model())
    silent = model()
    assert ask(run, [changed], silent)[0] is not None
    assert silent.calls == 0
    language = LanguageAdversary(
        model=model(), texts=read_adversary_prompts(find_builtin_root() / "prompts" / "adversary")
    )
    alone, mixed = MixtureAdversary([(language, 1)]), MixtureAdversary([(language, 1), (SamplerAdversary(), 1)])
    with ProposalMemory(run) as memory:
        for adversary, known in ((alone, True), (SamplerAdversary(), False), (mixed, False)):
            remembering = RememberingAdversary(adversary, memory, options={})
            keys = {remembering._build_key(asked) for asked in (one, changed)}
            assert (len(keys) == 1) == known


def test_a_secret_is_kept_nowhere_and_changes_nothing_between_the_first_time_and_the_next(
    run, occasions, monkeypatch: pytest.MonkeyPatch
) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("OPENAI_API_KEY", "sk-0123456789abcdef")
    speaker = ScriptedModel(replies=[WRONG.replace("leave", "say sk-0123456789abcdef")])
    (first,) = ask(run, occasions[:1], speaker)
    (again,) = ask(run, occasions[:1], model())
    assert first is not None
    assert again is not None
    assert first.text == again.text
    (segment, *_) = sorted((run / "proposals" / "events").iterdir())
    assert b"sk-0123456789abcdef" not in segment.read_bytes()


def test_a_failure_is_no_answer_and_what_came_before_it_stays(run, occasions) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ModelFailure):
        ask(run, occasions[:3], model(fail_calls=[2]))
    speaker = model()
    ask(run, occasions[:3], speaker)
    assert speaker.calls == 1


def test_a_refusal_is_no_answer_either(run, occasions) -> None:  # type: ignore[no-untyped-def]
    texts = read_adversary_prompts(find_builtin_root() / "prompts" / "adversary")
    tight = LanguageAdversary(model=model(), texts=texts, context_tokens=320)
    with ProposalMemory(run) as memory, pytest.raises(CannotPropose):
        asyncio.run(RememberingAdversary(tight, memory, options={}).propose(occasions[0]))
    speaker = model()
    ask(run, occasions[:1], speaker)
    assert speaker.calls == 1


def test_a_half_written_line_is_asked_again_and_a_spoilt_one_is_named(run, occasions) -> None:  # type: ignore[no-untyped-def]
    ask(run, occasions[:2], model())
    (segment,) = (run / "proposals" / "events").iterdir()
    whole = segment.read_bytes()
    segment.write_bytes(whole[:-10])
    speaker = model()
    ask(run, occasions[:2], speaker)
    assert speaker.calls == 1
    segment.write_bytes(whole.replace(b'"occasion"', b'"occassion"', 1))
    with pytest.raises(RunFormatError, match=r"\.jsonl:1: is spoilt"):
        ask(run, occasions[:2], model())


def test_one_process_writes_at_a_time_and_only_beside_a_run(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    with ProposalMemory(run):
        with pytest.raises(UsageError, match="is being written"):
            ProposalMemory(run)
    ProposalMemory(run).close()
    with pytest.raises(RunFormatError):
        ProposalMemory(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()
