"""`collab finetune` and `collab checkpoint new`: from rows to a checkpoint that the local engine plays; bad input."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

torch = pytest.importorskip("torch")

from collab.cli.main import main  # noqa: E402
from collab.config import load_environment  # noqa: E402
from collab.data.example import Example, Level, Provenance  # noqa: E402
from collab.data.parquet import ExampleWriter  # noqa: E402
from collab.library import Library  # noqa: E402
from collab.loop.record import TrainingDir  # noqa: E402
from collab.models.base import Request  # noqa: E402
from collab.models.local import LocalModel  # noqa: E402
from collab.rollout.plan import load_splits  # noqa: E402
from collab.testing.tiny_checkpoint import make_tiny_checkpoint  # noqa: E402
from collab.trainers.run_dir import FinetuneDir  # noqa: E402
from collab.types import Prompt, Sampling, Segment  # noqa: E402

ORIGIN = Provenance(
    environment="nowhere[test]",
    environment_version="1",
    task="TaskOne",
    seed=1,
    step=0,
    screen="0" * 64,
    apps=(),
    teacher="oracle",
)
SMALL = ["context=200", "batch_rows=8", "epochs=1", "rows_at_once=4"]


def row(number: int, level: Level = "basic") -> Example:
    text = f'Task ({level}): tap number {number}.\nbutton "Save {number}" [{number}]\n'
    return Example(
        level=level,
        kind="one-step",
        prompt=Prompt(system="Rules.", shared=text, segments=(Segment(text="You are ada."),)),
        reply=f"Reason: it is there.\nAction: {number}",
        rejected="Action: 0" if level == "preference" else None,
        provenance=ORIGIN,
    )


def write(folder: Path, rows: list[Example]) -> str:
    for level in {one.level for one in rows}:
        with ExampleWriter(folder / f"{level}.parquet") as out:
            for one in rows:
                if one.level == level:
                    out.add(one)
    return str(folder)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    torch.set_num_threads(1)
    return str(make_tiny_checkpoint(tmp_path_factory.mktemp("cli") / "base", hidden=32, context=512))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    levels: tuple[Level, ...] = ("basic", "instruction", "preference")
    return write(
        tmp_path_factory.mktemp("cli-data"), [row(number, level) for level in levels for number in range(1, 17)]
    )


@pytest.fixture
def finetune(base: str, data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple]:
    """Run the command with small settings; exit code, stdout, stderr."""

    def run(
        stage: str = "sft", *more: str, settings: tuple[str, ...] = (), **options: str | None
    ) -> tuple[int, str, str]:
        given = {"base": base, "data": None if stage == "copy" else data, "out": str(tmp_path / "out"), **options}
        arguments = [f"--{name}={value}" for name, value in given.items() if value is not None]
        chosen = [text for text in SMALL if stage != "copy" or not text.startswith("epochs")]
        sets = [part for text in (*chosen, *settings) for part in ("--set", text)]
        code = main(["finetune", "--stage", stage, *arguments, *sets, *more])
        return code, *capsys.readouterr()

    return run


# ------------------------------------------------------------------------------------------------------- the way


def test_a_checkpoint_made_from_nothing_is_trained_and_played(
    data: str, tmp_path: Path, finetune: Callable[..., tuple], capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = ["layers=2", "hidden=32", "heads=2", "key_value_heads=1", "intermediate=64", "vocabulary=420"]
    new = ["checkpoint", "new", "--data", data, "--out", str(tmp_path / "new")]
    assert main([*new, *(part for size in sizes for part in ("--set", size))]) == 0
    assert "untrained" in capsys.readouterr().out
    code, said, told = finetune(base=str(tmp_path / "new"))
    assert code == 0, told
    assert f"base: {tmp_path / 'new'} (digest " in told
    assert "data: 32 rows (basic 16, instruction 16)" in told
    assert "no rows of level demonstration" in told
    assert str(tmp_path / "out" / "final") in said
    model = LocalModel(path=str(tmp_path / "out" / "final"))

    async def asked() -> str:
        reply = await model.generate(Request(prompt=row(1).prompt, sampling=Sampling(max_tokens=3), seed=0))
        await model.close()
        return reply.finish

    assert asyncio.run(asked()) in ("length", "stop")


@pytest.mark.slow
def test_the_plan_counts_what_is_trained(finetune: Callable[..., tuple], tmp_path: Path) -> None:
    """Tokens and steps of the plan are those of the run, token by token."""
    code, said, _ = finetune("sft", "--plan", "--json")
    assert code == 0
    plan = json.loads(said)
    assert not (tmp_path / "out").exists()
    assert plan["rows"] == {"basic": 16, "instruction": 16}
    assert plan["trainable"] == plan["parameters"] > 0
    assert plan["time"]["measured"] is True
    assert plan["time"]["seconds"] > 0
    assert finetune("sft", "--json", settings=("log_every=1",))[0] == 0
    lines = [json.loads(line) for line in (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()]
    assert len(lines) == plan["steps"] == 4
    assert plan["passes"] == 8
    assert lines[-1]["tokens"] == plan["tokens"]
    assert 0 < plan["scored"] < plan["tokens"]


@pytest.mark.parametrize(
    ("stage", "precision", "ratio", "warned"),
    [
        (
            "sft",
            "bfloat16",
            30,
            "warning: precision bfloat16: on this processor a matrix product takes 30 times as long",
        ),
        ("sft", "bfloat16", 0.5, None),
        pytest.param("sft", "float32", 30, None, marks=pytest.mark.slow),
        pytest.param("copy", "bfloat16", 30, "faster: --set precision=float32", marks=pytest.mark.slow),
    ],
)
def test_a_processor_that_only_emulates_bfloat16_is_told_of_before_hours_are_lost(
    finetune: Callable[..., tuple], monkeypatch: pytest.MonkeyPatch, stage, precision, ratio, warned
) -> None:
    from collab.trainers import estimate

    taken = {torch.bfloat16: ratio * 1e-4, torch.float32: 1e-4}
    monkeypatch.setattr(estimate, "_time_product", lambda dtype, size, device: taken[dtype])
    more = ("steps=1", "longest=20", "gap=5") if stage == "copy" else ()
    code, _, said = finetune(stage, "--plan", "--device=cpu", settings=(f"precision={precision}", *more))
    assert code == 0, said
    assert (warned in said) if warned else ("bfloat16" not in said)


@pytest.mark.slow
def test_a_plan_can_be_read_by_people(finetune: Callable[..., tuple]) -> None:
    code, said, _ = finetune("dpo", "--plan", settings=("lora={rank: 4}",))
    assert code == 0
    assert [line.split()[0] for line in said.splitlines()] == [
        *("rows", "dropped", "longest", "tokens", "steps", "parameters", "memory", "time")
    ]


@pytest.mark.slow
def test_a_run_that_is_out_of_time_stops_and_is_resumed(finetune: Callable[..., tuple], tmp_path: Path, capsys) -> None:
    code, said, told = finetune("sft", "--max-minutes", "0")
    assert (code, said) == (1, "")
    assert "stopped after step 1 of 4; resume with: collab finetune --resume" in told
    assert main(["runs", "resume", str(tmp_path / "out"), "--budget", "minutes=0.000001"]) == 1
    assert "stopped after step 2 of 4" in capsys.readouterr().err
    assert main(["runs", "resume", str(tmp_path / "out")]) == 0
    said, told = capsys.readouterr()
    assert "from step-2" in told
    assert "trained 4 steps" in said
    for command in (["finetune", "--resume"], ["runs", "resume"]):
        assert main([*command, str(tmp_path / "out")]) == 0
        again, told = capsys.readouterr()
        assert again == said
        assert f"{tmp_path / 'out'} is finished; to train on, begin another: " in told
        assert f"collab finetune --base {tmp_path / 'out' / 'final'} --out DIR" in told


@pytest.mark.slow
def test_ctrl_c_stops_with_a_checkpoint(
    base: str, data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = [part for text in (*SMALL, "epochs=3000", "log_every=1") for part in ("--set", text)]
    asked = ["finetune", "--stage=sft", f"--base={base}", f"--data={data}", f"--out={tmp_path / 'out'}", *settings]
    process = subprocess.Popen(
        [sys.executable, "-m", "collab.__main__", *asked],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    told = next(line for line in process.stderr if line.startswith("step "))
    process.send_signal(signal.SIGINT)
    left = process.stderr.read()
    assert process.wait(60) == 1, told + left
    assert "stopping with a checkpoint after this step" in left
    assert "resume with: collab finetune --resume" in left
    assert main(["finetune", "--resume", str(tmp_path / "out"), "--max-minutes", "0"]) == 1
    assert "resuming" in capsys.readouterr().err


@pytest.mark.slow
def test_two_processes_train_what_one_does(
    finetune: Callable[..., tuple], base: str, data: str, tmp_path: Path
) -> None:
    """accelerate with the shipped configuration; the same order, so the same weights but for rounding."""
    from safetensors.torch import load_file

    plain = ("precision=float32", "saved=float32")
    assert finetune(settings=plain, out=str(tmp_path / "one"))[0] == 0
    config = Path(__file__).parents[3] / "collab" / "trainers" / "accelerate" / "cpus.yaml"
    settings = [part for text in (*SMALL, *plain) for part in ("--set", text)]
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(config)]
    launch += ["-m", "collab.__main__"]
    asked = ["finetune", "--stage=sft", f"--base={base}", f"--data={data}", f"--out={tmp_path / 'two'}", *settings]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*launch, *asked], env=environment, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("trained 4 steps") == 1
    assert json.loads((tmp_path / "two" / "finetune.json").read_text())["processes"] == 2
    one, two = (load_file(tmp_path / name / "final" / "model.safetensors") for name in ("one", "two"))
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, rtol=1e-3, atol=2e-4)


# -------------------------------------------------------------------------------------------------------- refused


@pytest.mark.parametrize(
    ("stage", "options", "message"),
    [
        ("rl", {}, "--stage rl: allowed are copy, sft, dpo"),
        ("sft", {"base": None}, "--base is missing"),
        ("sft", {"out": None}, "--out is missing"),
        ("sft", {"data": None}, "--stage sft: needs --data"),
        ("sft", {"base": "nowhere"}, "--base nowhere: no such model directory"),
        ("sft", {"data": "nowhere"}, "--data nowhere: no such directory"),
        ("sft", {"levels": "demonstration"}, "no rows of level demonstration; files there: basic.parquet"),
        ("sft", {"levels": "preference"}, "preferences are for dpo"),
        ("dpo", {"levels": "basic"}, "--levels means nothing to --stage dpo"),
        ("sft", {"preset": "pockets"}, "no preset called 'pockets'; did you mean pocket"),
        ("sft", {"preset": "mine.yaml"}, "--preset mine.yaml: no such file"),
        ("copy", {"preset": "qwen2.5-0.5b"}, "--stage copy: the preset has no recipe for it"),
        ("sft", {"settings": ("optimiser=adamw",)}, "did you mean optimizer?"),
        ("sft", {"settings": ("learning_rate=-1",)}, "learning_rate: Input should be greater than 0"),
        ("sft", {"device": "banana"}, "no device called 'banana'; known: auto, cpu"),
        ("sft", {"max-minutes": "nan"}, "--max-minutes nan: allowed are numbers from 0"),
        ("sft", {"max-minutes": "-1"}, "--max-minutes -1.0: allowed are numbers from 0"),
        ("sft", {"data": __file__}, "is a file; name the directory that holds it"),
        ("sft", {"settings": ("context=900",)}, "reads 512 tokens, the recipe has context 900"),
        ("sft", {"settings": ("context=16",)}, "none of 32 rows fits into context 16"),
    ],
)
def test_what_does_not_fit_is_one_line(finetune: Callable[..., tuple], stage: str, options: dict, message: str) -> None:
    code, said, told = finetune(stage, **options)
    last = told.strip().splitlines()[-1]
    assert (code, said) == (2, "")
    assert last.startswith("error: ")
    assert message in last


def broken_base(base: str, folder: Path, without: str) -> str:
    shutil.copytree(base, folder)
    (folder / without).unlink()
    return str(folder)


@pytest.mark.parametrize(
    ("without", "message"),
    [
        ("chat_template.jinja", "has no chat template"),
        ("model.safetensors", "no *.safetensors weights"),
        ("config.json", "no config.json"),
        ("tokenizer.json", "no tokenizer"),
    ],
)
def test_a_base_that_lacks_something_is_named(
    finetune: Callable[..., tuple], base: str, tmp_path: Path, without: str, message: str
) -> None:
    code, _, told = finetune(base=broken_base(base, tmp_path / "base", without))
    assert code == 2
    assert message in told


def test_weights_that_changed_since_they_were_written_are_refused(
    finetune: Callable[..., tuple], tmp_path: Path
) -> None:
    assert finetune("copy", settings=("steps=1", "longest=10", "gap=0"))[0] == 0
    weights = tmp_path / "out" / "final" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(bytes(content))
    code, _, told = finetune(base=str(tmp_path / "out" / "final"), out=str(tmp_path / "next"))
    assert code == 2
    assert "not the weights that this checkpoint was written with" in told


@pytest.mark.slow
def test_a_broken_row_is_named_or_counted(finetune: Callable[..., tuple], tmp_path: Path) -> None:
    import pyarrow.parquet

    folder = tmp_path / "data"
    write(folder, [row(number) for number in range(1, 17)])
    table = pyarrow.parquet.read_table(folder / "basic.parquet").to_pylist()
    table[4]["reply"] = ""
    schema = pyarrow.parquet.read_schema(folder / "basic.parquet")
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(table, schema=schema), folder / "basic.parquet")
    code, _, told = finetune(data=str(folder))
    assert code == 2
    assert f"{folder / 'basic.parquet'}: row 5: reply: is empty" in told
    code, _, told = finetune("sft", "--max-broken", "1", data=str(folder))
    assert code == 0
    assert "left out: 1 broken rows, reply" in told


def test_rows_that_are_kept_for_evaluation_are_refused(finetune: Callable[..., tuple], tmp_path: Path) -> None:
    splits = asyncio.run(load_splits("androidworld", load_environment(Library(), "androidworld")))
    kept = splits["unseen-tasks"].tasks[0]
    origin = replace(ORIGIN, environment="androidworld[simphone]", task=kept)
    folder = write(tmp_path / "data", [row(1), replace(row(2), provenance=origin)])
    code, _, told = finetune(data=folder)
    assert code == 2
    assert "1 of 1 instances overlap with what is kept for evaluation (unseen-tasks 1)" in told
    assert kept in told


def test_a_preset_of_ones_own(finetune: Callable[..., tuple], tmp_path: Path) -> None:
    recipe = {"learning_rate": 1e-3, "log_every": 1}
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump({"description": "mine", "sft": recipe, "dpo": recipe}))
    code, _, told = finetune(preset=str(path))
    assert code == 0, told
    manifest = json.loads((tmp_path / "out" / "finetune.json").read_text())
    assert (manifest["preset"], manifest["recipe"]["learning_rate"]) == (str(path), 1e-3)


def test_a_run_resumes_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["finetune", "--resume", str(tmp_path), "--stage", "sft"]) == 2
    assert "leave out --stage" in capsys.readouterr().err
    assert main(["finetune", "--resume", str(tmp_path), "--seed", "0", "--preset", "pocket"]) == 2
    assert "leave out --preset, --seed" in capsys.readouterr().err
    assert main(["finetune", "--resume", str(tmp_path)]) == 2
    assert "it is no fine-tuning run" in capsys.readouterr().err
    (tmp_path / "finetune.json").write_text('{"format": 1, "stage": "sft"}')
    for command in (["finetune", "--resume"], ["runs", "resume"], ["runs", "resume", "--budget=minutes=3"]):
        assert main([*command, str(tmp_path)]) == 2
        assert "finetune.json: damaged, 'base' is missing" in capsys.readouterr().err
    assert main(["runs", "resume", str(tmp_path), "--budget", "tokens=9,minutes=3"]) == 2
    assert "is a fine-tuning run, which costs neither money nor tokens; limit minutes" in capsys.readouterr().err


def test_a_part_of_a_training_is_left_to_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Which knows its device, and whether anything was kept of it."""
    training = TrainingDir(tmp_path / "team")
    training.begin({})
    for group in ("shared", "ada"):
        part = training.get_epoch(1).get_training_dir(group)
        FinetuneDir(part).begin({"stage": "dpo"})
        for command in (["finetune", "--resume"], ["finetune", "--plan", "--resume"], ["runs", "resume"]):
            assert main([*command, str(part)]) == 2
            told = f"{part}: is a part of the training {training.path}, which alone resumes it: {training.resume}"
            assert told in capsys.readouterr().err
        shutil.rmtree(part)
    own = tmp_path / "own"
    FinetuneDir(own).begin({"stage": "dpo"})
    assert main(["finetune", "--resume", str(own)]) == 2
    assert "damaged" in capsys.readouterr().err
