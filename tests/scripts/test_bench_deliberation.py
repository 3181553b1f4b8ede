"""The benchmark of the local model, made small: what it compares, and that it ends badly when replies differ."""

import argparse
import json
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

SMALL = ["bench_deliberation.py", "--prefix", "60", "--reply", "3", "--repeat", "1", "--steps", "1"]
SMALL += ["--hidden", "32", "--layers", "1", "--device", "cpu"]


@pytest.fixture
def bench(monkeypatch):
    torch.set_num_threads(1)
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "scripts")
    import bench_deliberation

    return bench_deliberation


@pytest.mark.slow
def test_all_arms_say_the_same_and_every_shared_token_is_computed_once(bench, monkeypatch, capsys, tmp_path):
    out = tmp_path / "bench.json"
    monkeypatch.setattr(sys, "argv", [*SMALL, "--out", str(out)])
    bench.main()
    _, text = capsys.readouterr().out.strip().splitlines()
    assert json.loads(text) == json.loads(out.read_text())
    [figures] = json.loads(text)["prefixes"]
    assert figures["replies_must_be_equal"]
    repetitions, steps = 2, 1 + 1 + 1 + 1 + 4  # three arms against serial, one and four environments against sixteen
    assert figures["replies_compared"] == repetitions * steps * 12
    assert figures["replies_different"] == 0
    assert 1 <= figures["computed_vs_unique"] <= 1.05
    assert 0 < figures["scheduler_share"] < 1
    assert figures["peak_cache_mb"] > 0
    assert set(figures["steps_per_s"]) == {"serial", "1", "4", "16", "limit"}


@pytest.mark.slow
def test_one_different_reply_ends_it_badly(bench, monkeypatch, capsys):
    serial = bench.serial

    def wrong(*arguments):
        spoken = serial(*arguments)
        spoken.replies[0][7] = (*spoken.replies[0][7], 5)
        return spoken

    monkeypatch.setattr(bench, "serial", wrong)
    monkeypatch.setattr(sys, "argv", SMALL)
    with pytest.raises(SystemExit, match="6 replies differ") as ended:
        bench.main()
    assert isinstance(ended.value.code, str), "a text is exit code 1"
    assert "different replies 6/" in capsys.readouterr().out


def test_a_published_shape_is_that_of_the_published_model(bench, monkeypatch, tmp_path):
    monkeypatch.setitem(bench.SHAPES, "0.5b", bench.SHAPES["0.5b"] | {"num_hidden_layers": 1, "vocab_size": 600})
    options = argparse.Namespace(prefix=[100], hidden=32, layers=1, shape="0.5b")
    folder = bench.make_checkpoint(tmp_path, options)
    config = AutoConfig.from_pretrained(folder)
    assert (config.hidden_size, config.num_attention_heads, config.num_key_value_heads) == (896, 14, 2)
    assert config.dtype == torch.bfloat16
    with torch.device("meta"):
        sizes = {}
        for name, shape in bench.SHAPES.items():
            whole = {"num_hidden_layers": 24 if name == "0.5b" else 28, "vocab_size": 151_936}
            made = type(config)(**shape | whole, tie_word_embeddings=True)
            sizes[name] = AutoModelForCausalLM.from_config(made).num_parameters()
    assert sizes == {"0.5b": 494_032_768, "1.5b": 1_543_714_304}
