import pytest

from collab.envs.web.actions import complete_address


@pytest.mark.parametrize(
    ("typed", "opened"),
    [
        ("https://a.example/x", "https://a.example/x"),
        ("a.example", "https://a.example"),
        ("a.example:8443/x", "https://a.example:8443/x"),
        ("localhost:8000", "https://localhost:8000"),
        ("//a.example/x", "https://a.example/x"),
        ("/cart", "http://shop.test/cart"),
        ("?q=1", "http://shop.test/list?q=1"),
        ("#end", "http://shop.test/list?p=2#end"),
        ("about:blank", "about:blank"),
        ("javascript:alert(1)", "javascript:alert(1)"),
        ("file:///etc/passwd", "file:///etc/passwd"),
        ("nonsense", "nonsense"),
    ],
)
def test_an_address_is_read_as_an_address_bar_reads_it(typed: str, opened: str) -> None:
    assert complete_address(typed, "http://shop.test/list?p=2") == opened
