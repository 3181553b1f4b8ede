import pytest
from hypothesis import given
from hypothesis import strategies as st

from collab.models.tokenizer import estimate_least_tokens, estimate_tokens


@pytest.mark.parametrize(
    ("text", "least"),
    [
        ("", 0),
        ("button", 1),
        ('button "Save" [7]', 7),  # button| "|Save|"| [|7|] in common vocabularies
        ("2023-10-15", 10),  # one token per digit
        ("Zürich", 2),
        ("电话", 2),
        ("🙂", 2),
        ("a\n\n\nb", 3),
    ],
)
def test_not_too_low(text: str, least: int) -> None:
    assert least <= estimate_tokens(text) <= 2 * least


@given(st.text(), st.text())
def test_grows_with_the_text_and_never_exceeds_its_bytes(first: str, second: str) -> None:
    both = first + second
    assert estimate_tokens(both) <= len(both.encode("utf-8", "surrogatepass"))
    assert estimate_tokens(first + "\n" + second) >= max(estimate_tokens(first), estimate_tokens(second))


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("The quick brown fox jumps over the lazy dog.", 10),
        ('{"action_type": "click", "index": 12}', 13),
        ("2026-11-24 12:30:00", 12),
        ("设置 显示 亮度", 5),
        ("Настройки экрана", 5),
        ("3f9a2b7c8d1e", 8),
        ("", 0),
    ],
)
def test_the_fewest_tokens_err_downwards(text: str, tokens: int) -> None:
    """Rough counts, by hand, of how few tokens a large vocabulary may make of these texts."""
    assert estimate_least_tokens(text) <= tokens <= estimate_tokens(text) + 1
