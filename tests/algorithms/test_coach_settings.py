"""Android Coach before anything is played: what its settings mean, what they cost, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collab.algorithms import value_store
from collab.algorithms.candidates import list_foreign
from collab.algorithms.coach.config import ABLATIONS, CoachMethod
from collab.algorithms.coach.fitting import compare
from collab.cli.main import main
from collab.config import override
from collab.loop.configure import apply_ablation
from collab.loop.interfaces import load_algorithm, load_method
from collab.seeds import generator
from collab.testing.corridor import CorridorSuite
from collab.testing.tiny_checkpoint import make_tiny_checkpoint
from collab.testing.toy_team import write_library, write_toy_candidates
from collab.trainers.base_model import open_base
from collab.trainers.rl.token_values import TokenValues, ValueRow

COACH = load_algorithm("coach")


def make_method(*settings: str) -> CoachMethod:
    method = override(load_method(COACH), settings)
    assert isinstance(method, CoachMethod)
    return method


def test_each_ablation_changes_what_it_says() -> None:
    values, counts = [0.2, 0.5, 0.8], [1, 1, 2]
    changed = {}
    for name in ABLATIONS:
        method = apply_ablation(COACH, load_method(COACH), name, graph="single")[0]
        assert isinstance(method, CoachMethod)
        changed[name] = method
    assert {name: changed[name].k for name in ("k-1", "k-2", "k-8")} == {"k-1": 1, "k-2": 2, "k-8": 8}
    assert compare([0.7], [1], changed["k-1"]).tolist() == [0.7], "a single reply is rated by its Q"
    assert compare([0.2, 0.8], [1, 1], changed["k-2"]) == pytest.approx([-0.6, 0.6])
    for preset in ("sound", "paper", "released"):
        for k in (1, 2, 8):
            method = apply_ablation(COACH, load_method(COACH, preset), f"k-{k}", graph="single")[0]
            assert isinstance(method, CoachMethod)
            assert [len(step) for step in method.draw(1, 40, generator(0))] == [16, 16, 8], (
                "as many states as with four"
            )
    assert compare(values, counts, changed["no-loo"]).tolist() == values
    assert compare(values, counts, make_method()) == pytest.approx([0.2 - 0.7, 0.5 - 0.6, 0.8 - 0.5])
    assert changed["no-prm"].why_unasked == "step_weight=0 learns from outcomes alone"
    assert make_method().why_unasked is None
    taught = ["pretraining=made", "rehearsed=9", "warmup_epochs=2"]
    for name, epochs in (("critic-scratch", 0), ("critic-online", 5)):
        method = override(make_method(), [*taught, *ABLATIONS[name].settings])
        assert (method.pretraining, method.rehearsed, method.warmup_epochs) == (None, 0, epochs)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["pretraining=nowhere"], "has no candidate.parquet; make it with: collab synth --levels candidate"),
        (
            ["rehearsed=8"],
            "rehearsed=8 takes candidates of pretraining, which is null; --set pretraining=DIR",
        ),
        (["critic=critic-prm"], "agents/critic-prm: options.model: checkpoints/my-prm: no such directory"),
        (["k=0"], "k: "),
        (["exploration_temperatures=0"], "temperature=0 is greedy"),
        (["values.lora={rank: 2, dropout: 0.1}"], "dropout and merge are not for values; leave them out"),
        (["values.lora={rank: 2, targets: [query_proj]}"], "values.lora: Target modules"),
        (["pretraining=MADE", "rl.context=20"], "fits into rl.context=20, the longest has"),
    ],
)
def test_what_does_not_fit_is_one_line(
    settings: list[str], message: str, tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    library = write_library(tmp_path / "library", tiny)
    asked = ["--env", "corridor", "--graph", "single", "--agents", "toy", "--library", str(library.own)]
    if "pretraining=MADE" in settings:
        write_toy_candidates(tmp_path / "made")
    more = [word for one in settings for word in ("--set", one.replace("MADE", str(tmp_path / "made")))]
    out = tmp_path / "run"
    assert main(["train", "--algo", "coach", *asked, *more, "--device", "cpu", "--out", str(out)]) == 2
    told = capsys.readouterr().err.strip()
    assert message in told
    assert "\n" not in told.split("error: ")[-1]
    assert not out.exists()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_plan_names_what_each_part_takes(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    library = write_library(tmp_path / "library", tiny)
    asked = ["--env", "corridor", "--graph", "single", "--agents", "toy", "--library", str(library.own)]
    more = [word for one in ("epochs=2", "steps=20", "rl.context=2048", "warmup_epochs=0") for word in ("--set", one)]
    assert main(["train", "--algo", "coach", *asked, *more, "--device", "cpu", "--plan"]) == 0
    told = capsys.readouterr().out
    for part in ("playing", "judging", "valuing", "sampling", "training"):
        assert part in told
    assert "steps     40 to 64 to learn from" in told
    assert "160 to 256 of the samples" in told, "four calls for each step"
    assert "turns     0 to 256" in told, "four replies to each of them, at most"
    assert "Q begins at 0" in told


@pytest.mark.medium
@pytest.mark.timeout(600)
def test_a_plan_counts_passes_once_and_candidates_that_are_learned_again(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By hand, if a row takes 1000 s to learn and 1 s to read."""
    fit, passes = TokenValues.fit, []

    def count(self: TokenValues, *given: Any, **options: Any) -> Any:
        passes.append(options["passes"])
        return fit(self, *given, **options)

    def time_fit(*given: Any) -> tuple[float, float]:
        learn_s, read_s = value_store.time_fit(*given)
        assert learn_s > 0 < read_s
        return 1000.0, 1.0

    monkeypatch.setattr(TokenValues, "fit", count)
    monkeypatch.setattr("collab.algorithms.coach.algorithm.time_fit", time_fit)
    rows = write_toy_candidates(tmp_path / "made")
    library = write_library(tmp_path / "library", tiny)
    asked = ["--env", "corridor", "--graph", "single", "--agents", "toy", "--library", str(library.own)]
    made = (f"pretraining={tmp_path / 'made'}", "pretraining_passes=2", "rehearsed=5", "values.passes=3")
    sets = ("epochs=2", "steps=20", "rl.context=2048", "k=4", *made)
    more = [word for one in sets for word in ("--set", one)]
    assert main(["train", "--algo", "coach", *asked, *more, "--device", "cpu", "--plan", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert set(passes) == {1}, "a pass is timed, whatever number the recipe has"
    (valuing,) = [one for one in told["labels"] if one["name"] == "values"]
    # A state: read before the fit, learned in three passes, read behind it with four candidates.
    state, known = 1 + 3 * 1000 + 5, rows * 2 * 1000 + 2 * 5 * (1 + 3 * 1000)
    assert valuing["seconds"] == {end: told["steps"][end] * state + known for end in ("low", "high")}


def test_what_cannot_share_prefixes_is_refused_for_values_too_and_dropout_is_no_obstacle(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Values are read without dropout, whatever a checkpoint says of training; layers that slide are another matter."""
    transformers = pytest.importorskip("transformers")
    tiny = make_tiny_checkpoint(tmp_path / "tiny", hidden=32, layers=1, context=4096)
    shape = json.loads((tiny / "config.json").read_text())
    (tiny / "config.json").write_text(json.dumps({**shape, "attention_dropout": 0.1}))
    values = make_method().values
    row = ValueRow(ids=np.arange(5, 25, dtype=np.int32), places=(18, 19))
    model = TokenValues(values, open_base(str(tiny), make_method().rl), device="cpu")
    model.fit([row], [1.0], seed=0)
    assert model.compute([row])[0].tolist() == model.compute([row, row])[1].tolist()

    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny)
    config = transformers.Gemma2Config(
        **{"vocab_size": len(tokenizer), "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2},
        **{"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "sliding_window": 16},
        **{"bos_token_id": None, "eos_token_id": 2, "pad_token_id": 0},
    )
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "gemma")
    tokenizer.save_pretrained(tmp_path / "gemma")
    library = write_library(tmp_path / "library", tmp_path / "gemma")
    asked = ["--env", "corridor", "--graph", "single", "--agents", "toy", "--library", str(library.own)]
    asked += ["--set", "rl.sharing=none", "--set", "rl.context=2048", "--device", "cpu", "--out", str(tmp_path / "run")]
    capsys.readouterr()
    assert main(["train", "--algo", "coach", *asked]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert "prefixes cannot be shared while its values are fitted: its layers are not all full attention" in line
    assert line.endswith("; set values.sharing=none")
    assert not (tmp_path / "run").exists()


def test_candidates_of_another_environment_are_doubted(tmp_path: Path) -> None:
    count = write_toy_candidates(tmp_path / "made")
    assert list_foreign(make_method(f"pretraining={tmp_path / 'made'}"), CorridorSuite().label) == []
    assert list_foreign(make_method(f"pretraining={tmp_path / 'made'}"), "fake[corridor] instructions by oracle") == []
    (doubt,) = list_foreign(make_method(f"pretraining={tmp_path / 'made'}"), "mobile-miniwob")
    assert (
        f"{count} of {count} candidates are of another environment than mobile-miniwob (fake[corridor] {count})"
        in doubt
    )
    assert list_foreign(make_method(), "mobile-miniwob") == []
