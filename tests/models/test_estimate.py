import pytest
from hypothesis import given
from hypothesis import strategies as st

from collab.models.estimate import estimate_tokens


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
