"""`collab pairs`: what it prints, what it refuses, and with which exit code."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collab.cli.main import main
from collab.errors import UsageError
from collab.preferences.pairs import PairRecipe, RunPairs
from collab.preferences.store import read_pairs, write_pairs
from collab.preferences.trajectory_pairs import build_trajectory_pairs, read_trajectory_pair
from collab.store.reader import RunReader

REHEARSAL = "rehearsal: not a language model"
LIBRARY = str(Path(__file__).parent / "library")

Result = tuple[int, str, str]
Command = Callable[..., Result]


@pytest.fixture(scope="module")
def paired(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with pairs by the oracle, of two kinds: `oracle` from the sampler, `oracle-2` by contrast."""
    run = tmp_path_factory.mktemp("paired") / "run"
    made = ["--env", "corridor", "--agents", "rehearsal", "--graph", "chain4", "--episodes", "2", "--out", str(run)]
    assert main(["rollout", *made, "--library", LIBRARY, "--set", "graph.rounds=1"]) == 0
    assert main(["pairs", "rebuild", str(run)]) == 0
    assert main(["pairs", "rebuild", str(run), "--source", "contrast"]) == 0
    return run


@pytest.fixture
def collab(
    paired: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Command:
    """Runs `collab pairs` in a folder with that run as `run`: (exit code, stdout, stderr)."""
    monkeypatch.setenv("COLLAB_LIBRARY", LIBRARY)
    monkeypatch.chdir(tmp_path)
    shutil.copytree(paired, tmp_path / "run")
    capsys.readouterr()

    def call(*arguments: str) -> Result:
        code = main(["pairs", *arguments])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return call


def read(result: Result, code: int = 0) -> Any:
    assert result[0] == code, result[2]
    return json.loads(result[1])


def test_list_tells_one_line_per_pair_and_filters(collab: Command) -> None:
    found = read(collab("list", "run", "--name", "oracle", "--json"))
    rows = found["pairs"]
    assert (found["name"], len(rows)) == ("oracle", found["head"]["pairs"])
    assert all(row["id"].startswith(row["short"]) and row["score"] == 1 for row in rows)
    assert all(row["better"] != row["worse"] != "none" and row["source"] == "adversary" for row in rows)
    code, out, err = collab("list", "run", "--name", "oracle", "--limit", "2")
    head, first, second, summary, hint = out.splitlines()
    assert (code, err) == (0, "")
    assert head.split() == ["id", "episode", "step", "cell", "source", "better", "worse", "score"]
    assert [first.split()[0], second.split()[0]] == [row["short"] for row in rows[:2]]
    assert summary == f"2 shown, {len(rows)} pairs in 'oracle' of run  ({REHEARSAL})"
    assert found["note"] == REHEARSAL
    assert hint == f"look closer: collab pairs explain run {rows[0]['short']} --name oracle"
    for option, field in (("--agent", "agent"), ("--source", "source"), ("--task", "episode")):
        value = rows[0][field].split("/")[0]
        mine = read(collab("list", "run", "--name", "oracle", option, value, "--json"))["pairs"]
        assert mine == [row for row in rows if row[field].split("/")[0] == value]


def test_list_shows_the_last_pairs_and_both_scores_of_a_contrast(collab: Command) -> None:
    found = read(collab("list", "run", "--json"))
    assert found["name"] == "oracle-2"
    assert all(row["worse_score"] <= 0.5 < row["score"] for row in found["pairs"])
    assert " > 0." in collab("list", "run")[1]


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one task, four times solved and twice not, whose whole trajectories are set against each other."""
    run = tmp_path_factory.mktemp("compared") / "run"
    made = ["--env", "corridor", "--agents", "rehearsal", "--graph", "chain4", "--tasks", "PressButton"]
    made += ["--episodes", "6", "--set", "graph.rounds=1", "--set", "agents.*.options.error_base=0.5"]
    assert main(["rollout", *made, "--out", str(run), "--library", LIBRARY]) == 0
    with RunReader(run) as reader:
        pairs = build_trajectory_pairs(reader.iterate_trajectories(), seed=0)
    paired = RunPairs(pairs=pairs, counts=Counter(trajectory=2))
    write_pairs(run, "marl", paired, recipe=PairRecipe(), labels=None, adversary=None)
    return run


@pytest.mark.parametrize("words", [["list"], ["show", "x1"], ["explain", "x1"]], ids=lambda words: words[0])
def test_a_synthesis_is_no_run_without_pairs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    """Though it has a log, too."""
    (tmp_path / "synth.json").write_text("{}")
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "0001-bf0c0e53.jsonl").touch()
    verb, *more = words
    assert main(["pairs", verb, str(tmp_path), *more]) == 2
    assert "not a run directory (no run.json); collab synth made it" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["show", "explain"])
def test_whole_trajectories_are_told_by_episode_and_outcome(
    compared: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("COLLAB_LIBRARY", LIBRARY)
    pair = read_pairs(compared, "marl").pairs[0]
    better, worse = pair.chosen[0].trajectory, pair.rejected[0].trajectory
    capsys.readouterr()
    assert main(["pairs", command, str(compared), pair.id]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"pair     {pair.id}"
    assert lines[2].startswith(
        f"better   {better}, solved after {len(pair.chosen) // 4} steps with {len(pair.chosen)} "
    )
    assert lines[4] == f"         look: collab runs show {compared} --episode {better}"
    assert lines[5].startswith(f"worse    {worse}, not solved after {len(pair.rejected) // 4} steps with ")
    assert main(["pairs", command, str(compared), pair.id, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [(told[side]["episode"], told[side]["outcome"]["success"]) for side in ("chosen", "rejected")] == [
        (better, True),
        (worse, False),
    ]


def test_whole_trajectories_have_no_agent_to_choose_by(compared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["pairs", "list", str(compared), "--agent", "ada"]) == 2
    assert "--agent: these pairs are of whole episodes" in capsys.readouterr().err


def test_trajectories_that_were_played_again_are_not_taken_for_those(compared: Path) -> None:
    pair, other = read_pairs(compared, "marl").pairs
    with RunReader(compared) as reader:
        assert read_trajectory_pair(pair, reader).pair == pair
        with pytest.raises(UsageError, match="was played again since; make its pairs again"):
            read_trajectory_pair(replace(pair, id=other.id), reader)
        with pytest.raises(UsageError, match="was played again since"):
            read_trajectory_pair(replace(pair, chosen=pair.rejected, rejected=pair.chosen), reader)


def test_show_prints_both_replies_whole(collab: Command) -> None:
    short = read(collab("list", "run", "--name", "oracle", "--json"))["pairs"][0]["short"]
    told = read(collab("show", "run", short, "--json"))
    code, out, _ = collab("show", "run", short)
    assert code == 0
    for side in ("chosen", "rejected"):
        assert all(f"    {line}" in out for line in told[side]["text"].splitlines())
    assert "worse: synthesised by sampler-1: " in out


def test_show_and_explain_name_the_policy_with_its_version(collab: Command) -> None:
    short = read(collab("list", "run", "--json"))["pairs"][0]["short"]
    for command in ("show", "explain"):
        assert "\npolicy   rehearsal, version 0\n" in collab(command, "run", short)[1]


def test_words_of_labels_that_were_made_anew_are_not_told_as_the_pairs(collab: Command) -> None:
    found = read(collab("list", "run", "--name", "oracle", "--json"))["pairs"][0]
    head = Path("run/labels/oracle/label.json")
    head.write_text(json.dumps(json.loads(head.read_text()) | {"seed": 1}))
    told = collab("explain", "run", found["short"])[1]
    assert "the words of oracle-2 are not stored any more" in told
    assert read(collab("list", "run", "--name", "oracle", "--json"))["pairs"][0]["score"] is None


def test_another_critic_is_not_taken_for_the_one_that_made_the_labels(collab: Command) -> None:
    Path("mine.yaml").write_text("kind: outcome\n")
    assert collab("rebuild", "run", "--critic", "mine.yaml")[0] == 0
    Path("mine.yaml").write_text("kind: oracle\n")
    assert collab("rebuild", "run", "--critic", "mine.yaml") == (
        2,
        "",
        "error: --critic mine.yaml: labels 'mine' of run were made with critic 'outcome-1', now it is 'oracle-2'; "
        "keep both with --labels mine-2 beside it, or take what is there with --labels mine instead\n",
    )
    code, out, _ = collab("rebuild", "run", "--critic", "mine.yaml", "--labels", "mine-2")
    assert (code, "by oracle-2 (labels 'mine-2')" in out) == (0, True)
    code, out, _ = collab("rebuild", "run", "--labels", "mine")
    assert (code, "by outcome-1 (labels 'mine')" in out, "asked    0 steps judged" in out) == (0, True, True)


def test_explain_walks_to_words_screen_and_prompt(collab: Command) -> None:
    short = read(collab("list", "run", "--json"))["pairs"][0]["short"]
    told = read(collab("explain", "run", short, "--json"))
    code, out, _ = collab("explain", "run", short)
    assert code == 0
    assert f"oracle-2 gives 1.00: {told['chosen']['because']}" in out
    assert f"oracle-2 gives {told['rejected']['score']:.2f}: {told['rejected']['because']}" in out
    assert ("off-context" in out) == told["off_context"]
    assert all(f"    {line}".rstrip() in out for line in told["screen"]["text"].splitlines())
    assert told["prompt"]["system"] not in out
    whole = collab("explain", "run", short, "--prompt")[1]
    assert all(line in whole for line in told["prompt"]["system"].splitlines())
    assert told["prompt"]["user"].splitlines()[0] in whole


def test_rebuild_tells_what_changed_and_the_same_again_nothing(collab: Command) -> None:
    code, out, err = collab("rebuild", "run", "--against", "oracle", "--cap", "1", "--name", "few")
    assert (code, err) == (0, "")
    before = read(collab("list", "run", "--name", "oracle", "--json"))["head"]["pairs"]
    few = read(collab("list", "run", "--name", "few", "--json"))["head"]["pairs"]
    assert f"run: {few} pairs, stored as 'few'  ({REHEARSAL})" in out
    assert f"changes  to 'oracle': 0 added, {before - few} dropped, 0 flipped, {few} kept" in out
    assert f"dropped  {before - few} (now: {before - few} the chosen reply is rewarded and has no pair)" in out
    again = read(collab("rebuild", "run", "--json"))
    assert (again["name"], again["new"], again["judged"], again["asked"]) == ("few", False, 0, 0)
    assert (again["changes"]["added"], again["changes"]["dropped"], again["changes"]["kept"]) == ([], [], few)
    assert "changes  none: 'few' is what it was compared with" in collab("rebuild", "run")[1]


def test_a_rebuilding_that_stops_says_how_to_resume(collab: Command) -> None:
    shutil.rmtree("run/labels")
    code, out, err = collab("rebuild", "run", "--budget", "minutes=0.0000001", "--name", "new")
    assert (code, out) == (1, "")
    assert err.startswith("stopped: budget used up: ")
    assert "resume with the same command" in err
    assert collab("rebuild", "run", "--name", "new")[0] == 0


def test_a_rebuilding_shows_how_much_is_done_and_the_time_left(
    collab: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree("run/labels")
    monkeypatch.setattr("collab.utils.progress._Lines.interval_s", 0.0)
    code, _, err = collab("rebuild", "run", "--name", "new")
    assert code == 0
    assert re.search(r"\n\d+/\d+ steps judged \| about \d:\d\d left\n", err)
    assert re.search(r" judged \| (\d+)/\1 steps paired\n", err)


def test_a_run_whose_every_pair_goes_says_why(collab: Command) -> None:
    code, out, err = collab("rebuild", "run", "--critic", "outcome", "--threshold", "0.99", "--source", "contrast")
    assert code == 0
    assert "0 pairs, stored as 'outcome'" in out
    assert re.search(r"^no score \d+: .*\d+ it was not carried out", out, re.MULTILINE)
    assert err.startswith("no pair was made")
    assert collab("list", "run")[1] == f"0 shown, 0 pairs in 'outcome' of run  ({REHEARSAL})\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["list", "nowhere"], "not a run directory"),
        (["list", "run", "--name", "orcale"], "did you mean oracle"),
        (["list", "run", "--task", "Nothing"], "no task among these"),
        (["list", "run", "--name", "../run"], "a name has letters"),
        (["show", "run", "zz"], "no pair 'zz'"),
        (["explain", "run", ""], "no pair ''"),
        (["rebuild", "run", "--critic", "orcale"], "did you mean oracle"),
        (["rebuild", "run", "--source", "both"], "allowed are adversary, contrast, correction, mix"),
        (["rebuild", "run", "--threshold", "1"], "threshold 1.0"),
        (["rebuild", "run", "--budget", "usd=1"], "cost neither money nor tokens"),
        (["rebuild", "nowhere"], "not a run directory"),
    ],
)
def test_what_does_not_fit_is_one_line_and_exit_code_2(collab: Command, arguments: list[str], told: str) -> None:
    code, out, err = collab(*arguments)
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert err.startswith("error: ")
    assert told in err


def test_a_run_without_pairs_says_how_to_make_them(collab: Command) -> None:
    shutil.rmtree("run/pairs")
    for arguments in (["list", "run"], ["show", "run", "a"]):
        code, _, err = collab(*arguments)
        assert code == 2
        assert "collab pairs rebuild run" in err
