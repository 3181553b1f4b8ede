"""`collab checkpoint`: which rows a new tokenizer learns from, and what a policy keeps that gets eyes."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
from PIL import Image

from collab.cli.main import main
from collab.config import load_environment
from collab.data.example import Example, Provenance
from collab.data.parquet import ExampleWriter
from collab.envs.overlay import encode
from collab.library import Library, find_builtin_root
from collab.rollout.plan import load_splits
from collab.synthesis.journal import Head, SynthesisDir
from collab.types import Prompt, Segment
from tests.models.vision.tiny_vision import asked, together


def row(environment: str, task: str) -> Example:
    origin = Provenance(
        environment=environment,
        environment_version="1",
        task=task,
        seed=1,
        step=0,
        screen="0" * 64,
        apps=(),
        teacher="oracle",
    )
    prompt = Prompt(system="Rules.", shared="Task: tap Save.", segments=(Segment(text="You are ada."),))
    return Example(level="basic", kind="one-step", prompt=prompt, reply=f"On {environment}: 1", provenance=origin)


def test_nothing_is_learned_from_what_is_kept_for_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    kept = asyncio.run(load_splits("androidworld", load_environment(Library(), "androidworld")))["unseen-tasks"].tasks[
        0
    ]
    (tmp_path / "rows, all").mkdir()
    with ExampleWriter(tmp_path / "rows, all" / "basic.parquet") as out:
        for one in (row("abroad[test]", "TaskOne"), row("androidworld[simphone]", kept)):
            out.add(one)
    assert main(["checkpoint", "new", "--data=~/rows, all", f"--out={tmp_path / 'new'}"]) == 2
    told = capsys.readouterr().err
    assert "rows of abroad: not checked against evaluation splits: no environment of that name is defined" in told
    assert "1 of 1 instances overlap with what is kept for evaluation (unseen-tasks 1)" in told
    assert not (tmp_path / "new").exists()


def test_broken_rows_may_be_left_out_and_an_unfinished_set_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    data = tmp_path / "data"
    SynthesisDir(data).begin(Head(config={}, environment="abroad[test]", environment_version="1"))
    path = data / "basic.parquet"
    with ExampleWriter(path) as file:
        for number in range(3):
            file.add(row("abroad[test]", f"Task{number}"))
    fields = parquet.read_table(path).to_pylist()
    fields[0]["reply"] = ""
    parquet.write_table(pyarrow.Table.from_pylist(fields, schema=parquet.read_schema(path)), path)
    command = ["checkpoint", "new", f"--data={data}", f"--out={tmp_path / 'new'}", "--set=layers=0"]
    assert main(command) == 2
    assert "row 1: reply: is empty" in capsys.readouterr().err
    assert main([*command, "--max-broken=1"]) == 2
    told = capsys.readouterr().err
    assert "left out: 1 broken rows, reply" in told
    assert f"{data}: is not finished; resume it with: collab synth --resume {data}" in told
    assert "layers" in told


def test_a_policy_with_eyes_reads_as_before(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A text without a picture has the base's log-probabilities; pictures change what follows them."""
    torch = pytest.importorskip("torch")
    import transformers

    made = tmp_path / "seeing"
    given = ["checkpoint", "add-vision", "--base", "built-in:pocket", "--set", "layers=1", "--set", "hidden=32"]
    assert main([*given, "--set", "heads=2", "--out", str(made)]) == 0
    assert "2,052 tokens, its vision tower is untrained" in capsys.readouterr().out
    texts = ["Task: Switch Wi-Fi on.\nReason: it is off.", 'click [7] {"action_type": "click", "index": 7}']
    seeing = transformers.Qwen2VLForConditionalGeneration.from_pretrained(made, dtype=torch.float32)
    base = find_builtin_root() / "agents" / "pocket"
    reading = transformers.Qwen2ForCausalLM.from_pretrained(base, dtype=torch.float32)
    for text in texts:
        ids = transformers.AutoTokenizer.from_pretrained(base)(text, return_tensors="pt").input_ids
        assert torch.equal(ids, transformers.AutoTokenizer.from_pretrained(made)(text, return_tensors="pt").input_ids)
        with torch.no_grad():
            before, after = reading(ids).logits, seeing(ids).logits
        assert torch.allclose(before, after[..., : before.shape[-1]], atol=1e-4)

    asking = tuple(asked("What is it?", encode(Image.new("RGB", (60, 90), one))) for one in ("black", "white"))
    black, white = together(made, asking)
    assert black.logprobs != white.logprobs


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--base", "nowhere"], "--base nowhere: no checkpoint is there (no config.json)"),
        (["--base", "built-in:pocket", "--set", "heads=3"], "hidden 128 must be a multiple of 4 x heads (3)"),
        (["--base", "built-in:pocket", "--set", "pixels=100"], "pixels 100 must be at least those of one token, 784"),
    ],
)
def test_what_gets_no_eyes_is_refused_in_one_line(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["checkpoint", "add-vision", *arguments, "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        (
            "config.json",
            '{"model_type": "llama"}',
            "a model of type llama; allowed: a Qwen2 that collab checkpoint new",
        ),
        (
            "chat_template.jinja",
            "{{ messages }}",
            "its chat template is none of Collab's; allowed: a Qwen2 that collab",
        ),
    ],
)
def test_a_base_of_another_family_gets_no_eyes(
    file: str, content: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    base = shutil.copytree(find_builtin_root() / "agents" / "pocket", tmp_path / "base")
    (base / file).write_text(content)
    assert main(["checkpoint", "add-vision", "--base", str(base), "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert f"--base {base}: {said}" in error
    assert len(error.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()
