"""Chat templates that tell the date or open a thought: what is played, resumed, trained and exported is one prompt."""

from __future__ import annotations

import datetime
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

torch = pytest.importorskip("torch")

from collab.data.example import Example, Provenance  # noqa: E402
from collab.data.parquet import ExampleWriter  # noqa: E402
from collab.library import Library  # noqa: E402
from collab.models import tokenizer  # noqa: E402
from collab.preferences.registry import parse_adversary  # noqa: E402
from collab.testing.tiny_checkpoint import CHAT_TEMPLATE, make_tiny_checkpoint  # noqa: E402
from collab.types import Prompt, Segment  # noqa: E402

DATED = "{{ '<|im_start|>system\nToday is ' + strftime_now('%Y-%m-%d %H:%M') + '.<|im_end|>\n' }}" + CHAT_TEMPLATE
THINKING = CHAT_TEMPLATE.replace(
    "{{ '<|im_start|>assistant\n' }}",
    "{{ '<|im_start|>assistant\n' }}"
    "{% if enable_thinking is not defined or enable_thinking %}{{ '<think>\n' }}{% endif %}",
)
MONDAY, TUESDAY = datetime.date(2026, 3, 2), datetime.date(2026, 3, 3)
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def collab(run_command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Call:
    monkeypatch.setenv("COLLAB_LIBRARY", str(Path(__file__).parents[1] / "library"))
    monkeypatch.chdir(tmp_path)
    torch.set_num_threads(1)
    return run_command


def on(day: datetime.date, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("collab.models.tokenizer", "collab.rollout.build", "collab.trainers.prepare"):
        monkeypatch.setattr(f"{place}.get_prompt_date", lambda: day)


def checkpoint(folder: Path, template: str) -> Path:
    make_tiny_checkpoint(folder, hidden=32, context=2048)
    (folder / "chat_template.jinja").write_text(template)
    return folder


def agents(place: Path, folder: Path, **options: Any) -> str:
    told = {"description": "-", "kind": "local", "options": {"path": str(folder), **options}, "prompt": "default"}
    place.write_text(yaml.safe_dump(told | {"context_tokens": 1500, "sampling": {"max_tokens": 4}}))
    return str(place)


def said(run: Path) -> list[Any]:
    """All that was sampled."""
    text = "".join(file.read_text() for file in sorted((run / "events").glob("*.jsonl")))
    return [one["tokens"] for one in _dicts([json.loads(line) for line in text.splitlines()]) if "tokens" in one]


def _dicts(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, dict):
        return [value, *(found for inner in value.values() for found in _dicts(inner))]
    return [found for inner in value for found in _dicts(inner)] if isinstance(value, list) else []


@pytest.mark.slow
def test_a_run_notes_the_date_that_its_template_tells_and_keeps_it(
    collab: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    who = agents(tmp_path / "who.yaml", checkpoint(tmp_path / "dated", DATED))
    asked = ("eval", "--env", "corridor", "--agents", who, "--graph", "single", "--episodes", "2", "--seeds", "3,4")
    on(MONDAY, monkeypatch)
    assert collab(*asked, "--out", "runs")[0] == 0
    for seed in (3, 4):
        config = json.loads((tmp_path / f"runs/seed-{seed}/run.json").read_text())["config"]
        assert [agent["options"]["date"] for agent in config["agents"].values()] == ["2026-03-02"]
    shutil.rmtree(tmp_path / "runs/seed-4")
    on(TUESDAY, monkeypatch)
    code, _, err = collab(*asked, "--out", "runs")
    assert code == 0, err  # what was played on Monday is gone on with as on Monday
    assert collab(*asked, "--set", "agents.*.options.date=2026-03-03", "--out", "runs")[0] == 2
    plain = agents(tmp_path / "plain.yaml", checkpoint(tmp_path / "plain", CHAT_TEMPLATE))
    assert collab("rollout", "--env", "corridor", "--agents", plain, "--graph", "single", "--out", "plain-run")[0] == 0
    config = json.loads((tmp_path / "plain-run/run.json").read_text())["config"]
    assert "date" not in next(iter(config["agents"].values()))["options"]


def test_the_date_decides_the_prompt_and_midnight_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = checkpoint(tmp_path / "dated", DATED)
    prompt = Prompt(system="Rules.", shared="Task", segments=())
    on(MONDAY, monkeypatch)
    read = tokenizer.ChatTokenizer(str(folder))
    on(TUESDAY, monkeypatch)
    assert "Today is 2026-03-02 12:00." in read.decode(read.prompt_ids(prompt).ids)
    given = tokenizer.ChatTokenizer(str(folder), date=MONDAY)
    assert given.prompt_ids(prompt) == read.prompt_ids(prompt)
    assert tokenizer.ChatTokenizer(str(folder)).prompt_ids(prompt) != read.prompt_ids(prompt)


def rows(folder: Path) -> str:
    origin = Provenance(
        environment="nowhere[test]",
        environment_version="1",
        task="TaskOne",
        seed=1,
        step=0,
        screen="0" * 64,
        apps=(),
        teacher="oracle",
    )
    with ExampleWriter(folder / "basic.parquet") as out:
        for number in range(8):
            prompt = Prompt(system="Rules.", shared=f"tap {number}", segments=(Segment(text="You are ada."),))
            fields = {"level": "basic", "kind": "one-step", "reply": f"Action: {number}", "rejected": None}
            out.add(Example(prompt=prompt, provenance=origin, **fields))
    return str(folder)


@pytest.mark.slow
def test_a_training_notes_the_date_and_what_it_exports_plays_with_it(
    collab: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rows").mkdir()
    base, data = checkpoint(tmp_path / "dated", DATED), rows(tmp_path / "rows")
    small = [f"--set={one}" for one in ("context=200", "batch_rows=4", "epochs=1", "save_every=1")]
    on(MONDAY, monkeypatch)
    asked = ("finetune", "--stage", "sft", "--base", str(base), "--data", data, *small, "--out", "tuned")
    assert collab(*asked, "--max-minutes", "0.000001", "--device", "cpu")[0] in (0, 1)
    assert json.loads((tmp_path / "tuned/finetune.json").read_text())["recipe"]["date"] == "2026-03-02"
    on(TUESDAY, monkeypatch)
    if not (tmp_path / "tuned/final").is_dir():
        code, _, err = collab("finetune", "--resume", "tuned", "--device", "cpu")
        assert code == 0, err
    assert collab("export", "tuned", "--out", "given")[0] == 0
    assert yaml.safe_load((tmp_path / "given/agents.yaml").read_text())["options"]["date"] == "2026-03-02"


@pytest.mark.slow
def test_a_template_that_opens_a_thought_is_warned_of_with_what_would_do(collab: Call, tmp_path: Path) -> None:
    base = checkpoint(tmp_path / "thinking", THINKING)
    (tmp_path / "rows").mkdir()
    data = rows(tmp_path / "rows")
    who = agents(tmp_path / "who.yaml", base)
    still = agents(tmp_path / "still.yaml", base, chat_template_kwargs={"enable_thinking": False})
    play = ("rollout", "--env", "corridor", "--graph", "single", "--episodes", "1")
    train = ("finetune", "--stage", "sft", "--base", str(base), "--data", data, "--set", "context=200", "--plan")
    over = ("--set", "chat_template_kwargs={enable_thinking: false}")
    for loud, quiet in (
        (("agents", "check", who), ("agents", "check", still)),
        ((*play, "--agents", who, "--out", "a"), (*play, "--agents", still, "--out", "b")),
        (train, (*train, *over)),
    ):
        code, out, err = collab(*loud)
        assert code == 0, err
        assert "opens a reply with '<think>\\n'" in out + err
        assert 'set chat_template_kwargs, e.g. {"enable_thinking": false}' in " ".join((out + err).split())
        code, out, err = collab(*quiet)
        assert code == 0, err
        assert "<think>" not in out + err
    config = json.loads((tmp_path / "b/run.json").read_text())["config"]
    assert next(iter(config["agents"].values()))["options"]["chat_template_kwargs"] == {"enable_thinking": False}


@pytest.mark.parametrize("name", ["tokenize", "add_generation_prompt", "strftime_now"])
def test_what_is_no_variable_of_a_template_is_one_line(name: str, collab: Call, tmp_path: Path) -> None:
    who = agents(
        tmp_path / "who.yaml", checkpoint(tmp_path / "plain", CHAT_TEMPLATE), chat_template_kwargs={name: True}
    )
    code, _, err = collab("agents", "check", who)
    assert code == 2
    assert f"chat_template_kwargs: '{name}' is no variable of a chat template" in err.splitlines()[-1]


def dated_judge(place: Path, folder: Path, how: str) -> str:
    """A critic's file whose checkpoint tells the date: a reward model, or a language model that is asked."""
    if how == "model":
        make_tiny_checkpoint(folder, hidden=32, context=2048, labels=1)
        (folder / "chat_template.jinja").write_text(DATED)
        options: dict[str, Any] = {"path": str(folder)}
    else:
        options = {"model": {"kind": "local", "options": {"path": str(checkpoint(folder, DATED))}}}
    told = {
        "description": "-",
        "kind": how,
        "options": options,
        "prompt": f"critic{'-model' if how == 'model' else ''}",
    }
    place.write_text(yaml.safe_dump(told | {"context_tokens": 1500, "sampling": {"max_tokens": 4}}))
    return str(place)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["model", "llm"])
def test_a_judges_date_is_noted_and_kept(
    how: str, collab: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = dated_judge(tmp_path / "judge.yaml", tmp_path / "dated", how)
    play = ("rollout", "--env", "corridor", "--agents", "parrot", "--graph", "single", "--episodes", "2")
    assert collab(*play, "--out", "run")[0] == 0
    asked = ("pairs", "rebuild", "run", "--critic", judge, "--name", "again", "--source", "contrast")
    for day in (MONDAY, TUESDAY):
        on(day, monkeypatch)
        code, _, err = collab(*asked)
        # A random model writes no scores: ten without one stop it, and the next day judges the six steps that are left.
        assert code == int(how == "llm" and day == MONDAY), err
        assert "were made with" not in err  # the next day it is no other critic
        noted = [
            text
            for file in sorted((tmp_path / "run/labels").rglob("*"))
            if file.is_file() and "2026-03-0" in (text := file.read_text())
        ]
        assert noted
        assert all("2026-03-02" in text and "2026-03-03" not in text for text in noted)


def test_an_adversarys_date_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    who = agents(tmp_path / "who.yaml", checkpoint(tmp_path / "dated", DATED))
    on(MONDAY, monkeypatch)
    chosen = parse_adversary(Library(), who)
    assert chosen.as_json["agent"]["options"]["date"] == "2026-03-02"


@pytest.mark.slow
@pytest.mark.parametrize("opening", ["[THINK]", "<|channel|>analysis<|message|>", "<|begin_of_thought|>"])
def test_a_thought_of_any_name_that_is_left_open_is_warned_of(opening: str, collab: Call, tmp_path: Path) -> None:
    start = "{{ '<|im_start|>assistant\n' }}"
    base = checkpoint(tmp_path / "open", CHAT_TEMPLATE.replace(start, start[:-4] + opening + "' }}"))
    who = agents(tmp_path / "who.yaml", base)
    play = ("rollout", "--env", "corridor", "--graph", "single", "--episodes", "1", "--agents", who, "--out", "run")
    code, out, err = collab(*play)
    assert code == 0, err
    assert f"opens a reply with '{opening}'" in out + err
