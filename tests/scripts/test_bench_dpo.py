"""The benchmark of shared prefixes, made small: what it compares, resumes, and that it ends badly on a difference."""

import json
import sys
from argparse import Namespace
from pathlib import Path

import pytest
import torch

from collab.trainers.prefix_sharing import pack_batch

HERE = {"device": "this", "threads": 1, "load": 0.5, "gemm_gflops": 100.0}
SMALL = ["bench_dpo.py", "--repeat", "1", "--device", "cpu"]
SHAPE = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 512,
}


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch):
    torch.set_num_threads(1)
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "scripts"))
    import bench_dpo

    monkeypatch.setattr(bench_dpo, "CELLS", ((60, 6),))
    monkeypatch.setitem(bench_dpo.SHAPES, "pocket", SHAPE)
    return bench_dpo


def test_the_shape_is_that_of_the_base_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(__file__).parents[2]
    monkeypatch.syspath_prepend(str(root / "scripts"))
    import bench_dpo

    config = json.loads((root / "agents" / "pocket" / "config.json").read_text())
    assert bench_dpo.SHAPES["pocket"] == {name: config[name] for name in SHAPE}


def run(bench, monkeypatch: pytest.MonkeyPatch, *options: str) -> None:
    monkeypatch.setattr(sys, "argv", [*SMALL, *options])
    bench.main()


@pytest.mark.slow
def test_arms_agree_and_missing_cells_are_added(bench, monkeypatch, capsys, tmp_path) -> None:
    out = tmp_path / "dpo.json"
    run(bench, monkeypatch, "--pairs", "2", "--out", str(out))
    report = json.loads(out.read_text())
    [first] = report["cells"]
    assert first["equal"]
    assert first["machine"] == {name: report["machine"][name] for name in ("device", "threads", "load", "gemm_gflops")}
    assert first["packed_tokens"] == 60 + 4 * 6
    assert first["token_ratio"] == pytest.approx(4 * 66 / 84, abs=0.005)
    assert set(first["seconds"]) == set(first["memory_mb"]) == {"trl", "unshared", "ours"}
    capsys.readouterr()
    run(bench, monkeypatch, "--pairs", "2", "3", "--out", str(out))
    again, second = json.loads(out.read_text())["cells"]
    assert again == first
    assert second["pairs"] == 3
    line, text = capsys.readouterr().out.strip().splitlines()
    assert line.startswith("P=60 C=6 K=3: ")
    assert json.loads(text) == json.loads(out.read_text())
    with pytest.raises(SystemExit, match=r"other settings \(direct 100000, now 10\); name another file"):
        run(bench, monkeypatch, "--pairs", "2", "--direct", "10", "--out", str(out))


def test_figures_of_another_meaning_are_not_mixed_in(bench, monkeypatch, tmp_path) -> None:
    """Files from before figures had a version, whose memory was that of all pairs at once."""
    out = tmp_path / "dpo.json"
    monkeypatch.setattr(sys, "argv", [*SMALL, "--out", str(out)])
    options = bench.arguments()
    older = bench.settings(options)
    del older["version"]
    out.write_text(json.dumps({"settings": older, "cells": [{"prefix_tokens": 60, "pairs": 1}]}))
    with pytest.raises(SystemExit, match=r"other settings \(version None, now 4\)"):
        bench.read_known_cells(options, HERE)


@pytest.mark.parametrize(
    ("there", "told"),
    [
        (HERE | {"load": 9.0, "gemm_gflops": 5.0}, None),
        (HERE | {"device": "other"}, r"dpo\.json was measured on another machine \(device other, now this\); name"),
        (HERE | {"threads": 8}, r"on another machine \(threads 8, now 1\); name another file$"),
        (None, r"dpo\.json does not say what its cells were measured on; name another file$"),
    ],
)
def test_cells_of_another_machine_are_not_mixed_in(bench, monkeypatch, tmp_path, there, told) -> None:
    """Nor those of files from before cells had one."""
    out = tmp_path / "dpo.json"
    monkeypatch.setattr(sys, "argv", [*SMALL, "--pairs", "1", "--out", str(out)])
    monkeypatch.setattr(bench, "describe_device", lambda device, dtype: HERE)
    options = bench.arguments()
    cells = [
        {"prefix_tokens": 60, "pairs": 1, "equal": True, "machine": HERE},
        {"prefix_tokens": 60, "pairs": 2, "equal": True} | ({} if there is None else {"machine": there}),
    ]
    text = json.dumps({"machine": HERE, "settings": bench.settings(options), "cells": cells})
    out.write_text(text)
    if told is None:
        assert bench.read_known_cells(options, HERE) == cells
        return
    with pytest.raises(SystemExit, match=told):
        bench.main()
    assert out.read_text() == text


def test_the_number_of_pairs_at_once_is_searched_among_all_divisors(bench, monkeypatch) -> None:
    """Each is tried twice, and the better try counts; at 6 of 12 a step is fastest here."""
    seconds = {1: [9, 9], 2: [8, 8], 3: [1.5, 7], 4: [6, 6], 6: [5, 1], 12: [4, 4]}
    arm = bench.Arm(trainer=None, at_once=12)
    monkeypatch.setattr(bench.Arm, "step", lambda arm, pairs: (seconds[arm.at_once].pop(), 0.0))
    sizes = bench.divisors(12)
    assert sizes == [1, 2, 3, 4, 6, 12]
    assert bench.find_fastest(arm, [{}] * 12, sizes) == 6
    assert not any(seconds.values())


def test_memory_is_that_of_the_configuration_that_is_timed(bench, monkeypatch, capsys) -> None:
    monkeypatch.setattr(bench, "find_fastest", lambda arm, pairs, sizes: sizes[0])
    measured, stepped = [], []
    grown, step = bench.measure_growth, bench.Arm.step

    def seen(arm, pairs, device):
        measured.append((type(arm.trainer).__name__, arm.at_once))
        return grown(arm, pairs, device)

    def timed(arm, *rest):
        stepped.append(arm.at_once)
        return step(arm, *rest)

    monkeypatch.setattr(bench, "measure_growth", seen)
    monkeypatch.setattr(bench.Arm, "step", timed)
    run(bench, monkeypatch, "--pairs", "2")
    assert measured == [("Trl", 1), ("Trl", 1), ("Ours", 2)]
    assert stepped == [1, 1, 2] * 2  # one for memory, one that is timed
    line, text = capsys.readouterr().out.strip().splitlines()
    assert json.loads(text)["cells"][0]["pairs_at_once"] == {"trl": 1, "unshared": 1, "ours": 2}
    assert line.count("(1 of 2 pairs)") == 2
    assert "(2 of 2 pairs)" not in line


def test_large_baselines_compute_one_pair(bench, monkeypatch, capsys) -> None:
    run(bench, monkeypatch, "--pairs", "3", "--direct", "100")
    line, text = capsys.readouterr().out.strip().splitlines()
    [cell] = json.loads(text)["cells"]
    assert (cell["baseline_pairs"], cell["pairs_at_once"]) == (1, {"trl": 1, "unshared": 1, "ours": 3})
    assert line.count("(1 of 3 pairs)") == 2  # memory is of one pair, too
    assert cell["equal"]


def test_one_difference_ends_it_badly(bench, monkeypatch, capsys) -> None:
    from bench_dpo_arms import Ours

    logps = bench.Arm.logps

    def wrong(arm, pairs):
        return logps(arm, pairs) + 2e-4 * isinstance(arm.trainer, Ours)

    monkeypatch.setattr(bench.Arm, "logps", wrong)
    with pytest.raises(SystemExit, match="worth nothing") as ended:
        run(bench, monkeypatch, "--pairs", "2")
    assert isinstance(ended.value.code, str), "a text is exit code 1"
    assert "MORE THAN ROUNDING" in capsys.readouterr().out


def test_operations_by_hand(bench, tmp_path) -> None:
    """Two rows of a 3-token prompt and one token each: 5 tokens that see 1, 2, 3, 4 and 4; two are scored."""
    model = bench.make_model(tmp_path, Namespace(cells=[(60, 6)], shape="pocket"))
    ids = torch.tensor([[5, 6, 7, 8], [5, 6, 7, 9]])
    every = torch.ones_like(ids)
    completion = torch.tensor([[0, 0, 0, 1]] * 2)
    packed = pack_batch({"input_ids": ids, "attention_mask": every, "completion_mask": completion}, shortest=1)
    weights = (32 * 32 + 32) + 2 * (32 * 16 + 16) + 32 * 32 + 3 * 32 * 64 + 2 * 32
    head = 2 * 32 * model.config.vocab_size * 2
    assert bench.operations(model, packed) == 4 * (2 * weights * 5 + 4 * 32 * (1 + 2 + 3 + 4 + 4) + head)
