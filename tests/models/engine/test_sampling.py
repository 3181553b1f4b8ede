import math

import pytest
import torch

from collab.models.engine.sampling import draw

PROBABILITIES = [0.5, 0.3, 0.15, 0.05]


def drawn(uniforms: list[float], *, temperature: float = 1.0, top_p: float = 1.0, order: list[float] | None = None):
    rows = len(uniforms)
    return draw(
        torch.tensor([order or PROBABILITIES]).log().expand(rows, -1),
        temperature=torch.full((rows,), temperature),
        top_p=torch.full((rows,), top_p, dtype=torch.float64),
        uniforms=torch.tensor(uniforms, dtype=torch.float64),
    )


def test_the_cumulative_distribution_is_inverted() -> None:
    assert drawn([0.0, 0.49, 0.51, 0.79, 0.81, 0.94, 0.96, math.nextafter(1, 0)]).tokens.tolist() == [
        0, 0, 1, 1, 2, 2, 3, 3,
    ]  # fmt: skip


@pytest.mark.parametrize(("top_p", "kept"), [(0.4, 1), (0.5, 1), (0.6, 2), (0.9, 3), (0.99, 4)])
def test_top_p_keeps_the_smallest_set_that_reaches_it(top_p: float, kept: int) -> None:
    result = drawn([index / 200 for index in range(200)], top_p=top_p)
    assert set(result.tokens.tolist()) == set(range(kept))
    mass = sum(PROBABILITIES[:kept])
    for token, plain, behaviour in zip(
        result.tokens.tolist(), result.logprobs.tolist(), result.behaviour.tolist(), strict=True
    ):
        assert plain == pytest.approx(math.log(PROBABILITIES[token]), abs=1e-5)
        assert behaviour == pytest.approx(math.log(PROBABILITIES[token] / mass), abs=1e-5)


def test_temperature_bends_and_zero_is_greedy() -> None:
    squared = [p**2 for p in PROBABILITIES]
    result = drawn([0.0, 0.99], temperature=0.5)
    expected = [math.log(squared[token] / sum(squared)) for token in result.tokens.tolist()]
    assert result.behaviour.tolist() == pytest.approx(expected, abs=1e-5)
    greedy = drawn([0.99], temperature=0.0, order=[0.1, 0.2, 0.7])
    assert greedy.tokens.tolist() == [2]
    assert greedy.behaviour.tolist() == [0.0]
    assert greedy.logprobs.tolist() == pytest.approx([math.log(0.7)], abs=1e-5)


def test_impossible_tokens_are_never_drawn() -> None:
    logits = torch.tensor([[0.0, -1e9, 0.0, -1e9]])
    for top_p in (1.0, 0.999):
        for uniform in (0.0, 0.4999999, 0.5, math.nextafter(1, 0)):
            result = draw(
                logits,
                temperature=torch.ones(1),
                top_p=torch.tensor([top_p], dtype=torch.float64),
                uniforms=torch.tensor([uniform], dtype=torch.float64),
            )
            assert result.tokens.tolist()[0] in (0, 2)


def test_companions_do_not_matter() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(30, 50, generator=generator)
    temperature = torch.tensor([0.0, 0.5, 1.0] * 10)
    top_p = torch.tensor([1.0, 0.9] * 15, dtype=torch.float64)
    uniforms = torch.rand(30, dtype=torch.float64, generator=generator)
    together = draw(logits, temperature, top_p, uniforms)
    for row in range(30):
        one = slice(row, row + 1)
        alone = draw(logits[one], temperature[one], top_p[one], uniforms[one])
        assert alone.tokens.tolist() == together.tokens[one].tolist()
        assert alone.behaviour.tolist() == pytest.approx(together.behaviour[one].tolist(), abs=1e-6)
