"""Guidance and demonstrations: what a played run, a critic and an adversary read when a prompt with them is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from collab.cli.main import main
from collab.envs.grammar import SPACES
from collab.library import Library, find_builtin_root
from collab.models.tokenizer import estimate_tokens
from collab.preferences.registry import parse_adversary
from collab.prompts.render import Template, read_templates
from collab.rewards.llm import read_critic_prompts
from collab.rollout.run import read_stored_config
from collab.store.run import RunStore
from collab.testing.fake_server import FakeServer
from collab.testing.toy_team import write_library

PROMPTS = find_builtin_root() / "prompts"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A library whose agents wait for ever, and a critic that asks no server yet."""
    library = tmp_path / "library"
    write_library(library, Path("none"))
    (library / "agents/idle.yaml").write_text(
        'kind: scripted\noptions: {replies: [\'Action: {"action_type": "wait"}\']}\n'
    )
    return library


def read_system(run: Path) -> str:
    """The system part that the first cell of a run read."""
    with RunStore.open(run).open_reader() as reader:
        cell = next(iter(next(reader.iterate_trajectories()).steps[0].matrix))
        return reader.read_prefix(cell.prompt.prefix).partition("\f")[0]


def test_a_played_team_reads_guidance_only_where_it_is_named(home: Path, tmp_path: Path) -> None:
    asked = ["rollout", "--library", str(home), "--env", "corridor", "--graph", "pair", "--agents", "idle"]
    assert main([*asked, "--episodes", "1", "--out", str(tmp_path / "plain")]) == 0
    guided = [*asked, "--episodes", "1", "--set", "agents.*.prompt=guided", "--out", str(tmp_path / "guided")]
    assert main(guided) == 0
    plain, more = read_system(tmp_path / "plain"), read_system(tmp_path / "guided")
    assert "General guidance" not in plain
    assert "General guidance:\n- Read the task again" in more
    # The guidance is all that differs, and the texts of the other templates are the usual ones.
    before, _, rest = more.partition("General guidance:\n")
    assert before + rest.partition("\n\n")[2] == plain
    (texts,) = read_stored_config(tmp_path / "guided").prompts.values()
    assert texts["header"] == (PROMPTS / "default/header.jinja").read_text()


def test_a_critic_reads_demonstrations_and_its_reply_is_scored(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    def say(body: dict[str, object]) -> str:
        asked = str(body["messages"][-1]["content"])  # type: ignore[index]
        lines = [json.loads(line) for line in asked.splitlines() if line.startswith('{"agent"')]
        return json.dumps({"scores": [{**line, "score": 0.9} for line in lines]})

    with FakeServer(supports={"seed"}, says=say) as server:
        engine = f"{{kind: openai, options: {{model: fake, base_url: '{server.url}', retries: 0}}}}"
        (home / "agents/judge.yaml").write_text(f"kind: llm\noptions: {{model: {engine}}}\n")
        asked = ["critic", "calibrate", "--library", str(home), "--env", "corridor", "--critic", "judge"]
        small = ["--cases", "1", "--set", "permutations=0", "--json"]
        for prompt in ("critic", "critic-guided", "critic-few-shot"):
            assert main([*asked, *small, "--set", f"critic.prompt={prompt}", "--out", prompt]) == 0
        read = [str(one["messages"][0]["content"]) for one in server.requests if len(one["messages"]) > 1]
    shown = [{"General guidance" in text: "examples of judgements" in text} for text in read]
    assert [one for at, one in enumerate(shown) if one not in shown[:at]] == [
        {False: False},
        {True: False},
        {True: True},
    ]
    digests = {
        json.loads(Path(name, "calibration.json").read_text())["digest"] for name in ("critic", "critic-few-shot")
    }
    assert len(digests) == 2
    assert json.loads(Path("critic-few-shot/calibration.json").read_text())["numbers"]["missing"] == {}


def test_demonstrations_name_no_agent_and_show_the_form_that_is_asked_for() -> None:
    system = read_critic_prompts(PROMPTS / "critic-few-shot")["system"]
    shown = [json.loads(line)["scores"] for line in system.splitlines() if line.startswith('{"scores"')]
    assert len(shown) == 3
    scores = [one["score"] for scores in shown for one in scores]
    assert min(scores) < 0.5 < max(scores)
    assert 0.5 in scores
    assert {tuple(one) for scores in shown for one in scores} == {("agent", "round", "reason", "score")}


def test_an_adversary_takes_the_prompt_that_is_named(home: Path) -> None:
    library = Library(own=home)
    (home / "agents/clumsy.yaml").write_text("kind: openai\noptions: {model: fake}\n")
    usual = parse_adversary(library, "{kind: llm, agent: clumsy}")
    guided = parse_adversary(library, "{kind: llm, agent: clumsy, prompt: adversary-guided}")
    assert "breaks one of them" in guided.texts["clumsy"]
    assert "breaks one of them" not in usual.texts["clumsy"]


@pytest.mark.parametrize("name", ["guided", "default"])
def test_guidance_leaves_room_for_a_screen(name: str) -> None:
    for space in SPACES.values():
        assert estimate_tokens(Template(name, read_templates(PROMPTS / name)).render_system(space)) < 1500
