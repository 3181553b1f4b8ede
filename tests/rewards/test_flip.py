"""Labels that are wrong on purpose: which, how many, and the same ones in every process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from collab.cli.main import main
from collab.rewards.base import CellScore, CriticInput, Judgement, build_inputs, build_judgement
from collab.rewards.flip import FlippedCritic
from collab.rewards.labelling import label_cases
from collab.rewards.labels import LabelHead, LabelWriter, read_labels
from collab.rewards.oracle import SolutionCritic
from collab.rewards.restore import StateRebuilder
from collab.rollout.build import build_suite, with_prompts
from collab.rollout.plan import resolve_run, run_config
from collab.rollout.run import read_stored_config, start
from collab.store.run import RunStore
from collab.testing.toy_team import write_library
from collab.view.inspector import Inspector

EPISODES = 12


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Agents of which each presses another button, in a corridor."""
    home = tmp_path_factory.mktemp("flip")
    library = write_library(home / "library", Path("none"))
    for slot, button in (("ada", 1), ("ben", 2)):
        reply = f'Reason: this one. Action: {{"action_type": "click", "index": {button}}}'
        (home / f"library/agents/{slot}.yaml").write_text(f"kind: scripted\noptions: {{replies: ['{reply}']}}\n")

    async def play() -> Path:
        planned = run_config(library=library, env="corridor", graph="pair", agents="ada=ada,ben=ben", episodes=EPISODES)
        await start(with_prompts(await resolve_run(planned, once_per_task=False), library), library, home / "run")
        return home / "run"

    return asyncio.run(play())


def list_cases(run: Path) -> list[CriticInput]:
    suite = build_suite(read_stored_config(run))
    with RunStore.open(run).open_reader() as reader:
        states = StateRebuilder(suite)
        return [case for one in reader.iterate_trajectories() for case in build_inputs(one, suite.space, states)]


def judge(run: Path, name: str, cases: Sequence[CriticInput], share: float, concurrency: int = 1, seed: int = 0):
    critic = FlippedCritic(critic=SolutionCritic(), share=share, seed=seed)
    with LabelWriter(run, name, LabelHead(critic="oracle", seed=seed)) as writer:
        asyncio.run(label_cases(cases, critic, writer, concurrency=concurrency))
    judged = read_labels(run, name).judged
    return {key: [(one.cell, one.score, one.original) for one in judged[key].rewards.rewards] for key in sorted(judged)}


def test_flips_are_the_same_in_another_process_and_order_and_after_a_kill(run: Path) -> None:
    cases = list_cases(run)
    whole = judge(run, "whole", cases, 0.4)
    judge(run, "killed", cases[: len(cases) // 2], 0.4)
    assert judge(run, "killed", list_cases(run), 0.4) == whole
    assert judge(run, "otherwise", cases[::-1], 0.4, concurrency=4) == whole
    assert judge(run, "seed", cases, 0.4, seed=1) != whole


def test_a_flipped_label_earns_the_other_reward_and_keeps_the_score_that_the_critic_gave(run: Path) -> None:
    cases = list_cases(run)
    plain = judge(run, "plain", cases, 0.0)
    flipped = judge(run, "flipped", cases, 0.4)
    pairs = [pair for key in plain for pair in zip(plain[key], flipped[key], strict=True)]
    changed = [(before, after) for before, after in pairs if after[2] is not None]
    # The last step of the budget has no score: nothing is flipped there.
    assert {before[1] for before, _ in pairs} == {0.5, 1.0, None}
    assert 0.1 < len(changed) / len(pairs) < 0.6
    assert all(after[2] == before[1] for before, after in changed)
    assert all((before[1] > 0.5) != (after[1] > 0.5) for before, after in changed)
    assert all(before == after for before, after in pairs if after[2] is None)


def test_cells_with_the_same_action_are_flipped_together(run: Path) -> None:
    case_of = {case.key: case for case in list_cases(run)}
    flipped = judge(run, "together", list(case_of.values()), 0.5)
    for key, case in case_of.items():
        originals = {cell: original for cell, _, original in flipped[key]}
        for cells in case.group_proposals().values():
            assert len({originals[cell.cell] is None for cell in cells}) == 1


def test_a_neutral_score_becomes_a_reward_and_a_missing_or_invalid_one_stays_missing(run: Path) -> None:
    class Odd:
        name, version = "odd", "1"

        async def judge(self, case: CriticInput) -> Judgement:
            words = [CellScore(score=0.5), CellScore.none("no word"), CellScore(score=7.0)]
            return build_judgement(case, self, {cell.cell: words[at % 3] for at, cell in enumerate(case.matrix)})

    (case, *_) = list_cases(run)
    found = asyncio.run(FlippedCritic(critic=Odd(), share=0.999, seed=3).judge(case)).rewards
    assert found.critic == "odd-1+flip0.999"
    first, second, third, *_ = found.rewards
    assert (first.score, first.original) == (1.0, 0.5)
    assert (second.score, second.missing, second.original) == (None, "no word", None)
    assert (third.score, third.original) == (None, None)


def test_labels_of_a_run_keep_what_was_flipped_and_never_mix_with_another_share(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("kind: oracle\nflip: 0.3\n")
    arguments = ["pairs", "rebuild", str(run), "--critic", str(wrong), "--source", "contrast=1"]
    assert main(arguments) == 0, capsys.readouterr().err
    (log,) = (run / "labels/wrong/events").glob("*.jsonl")
    rewards = [one for line in log.read_text().splitlines() for one in json.loads(line)["rewards"]["rewards"]]
    flipped = [one for one in rewards if one["original"] is not None]
    assert 0 < len(flipped) < len(rewards)
    assert "oracle-2+flip0.3" in capsys.readouterr().out
    # The inspector's detail of a cell shows the score that the critic itself gave.
    first = json.loads(log.read_text().splitlines()[0])["rewards"]
    inspector = Inspector([run], index_cache=tmp_path / "index_cache")
    try:
        shown = inspector.get_step(inspector.list_ids()[0], first["trajectory"], first["step"], "wrong")
        assert shown.critic == "oracle-2+flip0.3"
        found = {(cell.agent, cell.round): (cell.score, cell.original) for cell in shown.cells}
        assert found == {tuple(one["cell"]): (one["score"], one["original"]) for one in first["rewards"]}
    finally:
        inspector.close()
    (run.parent / "library/agents/wrong.yaml").write_text(wrong.read_text())
    assert main(["agents", "list", "--library", str(run.parent / "library")]) == 0
    assert "no key called" not in "".join(capsys.readouterr())
    wrong.write_text("kind: oracle\nflip: 0.1\n")
    assert main(arguments) == 2
    assert "made with critic 'oracle-2+flip0.3', now it is 'oracle-2+flip0.1'" in capsys.readouterr().err


def test_a_share_of_one_is_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], run: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    for share in ("1", "-0.1", ".nan", "often"):
        wrong.write_text(f"kind: oracle\nflip: {share}\n")
        assert main(["pairs", "rebuild", str(run), "--critic", str(wrong)]) == 2
        (line,) = capsys.readouterr().err.strip().splitlines()[-1:]
        assert "flip" in line
