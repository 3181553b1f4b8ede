import pytest
from hypothesis import given
from hypothesis import strategies as st

from collab.utils.redact import HIDDEN, hide_values, is_secret_name, redact, register


def test_values_of_secret_variables_are_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SERVICE_KEY", "abcdefgh-1234")
    monkeypatch.setenv("MY_LONGER_TOKEN", "abcdefgh-1234-5678")
    monkeypatch.setenv("HARMLESS", "harmless-value")
    text = redact("got abcdefgh-1234-5678 and abcdefgh-1234, harmless-value")
    assert text == f"got {HIDDEN} and {HIDDEN}, harmless-value"


def test_short_values_are_placeholders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SERVICE_KEY", "EMPTY")
    assert redact("the list is EMPTY") == "the list is EMPTY"


def test_headers_addresses_and_given_secrets() -> None:
    text = redact(
        "Authorization: Bearer sk-123456789 at http://me:pass@host/v1 with hunter2-hunter2", "hunter2-hunter2"
    )
    assert text == f"Authorization: Bearer {HIDDEN} at http://{HIDDEN}@host/v1 with {HIDDEN}"


def test_plain_addresses_stay() -> None:
    assert redact("http://127.0.0.1:8000/v1?user=a@b") == "http://127.0.0.1:8000/v1?user=a@b"


@given(st.text(), st.text(alphabet="xyz789", min_size=8), st.text())
def test_no_given_secret_survives(before: str, secret: str, after: str) -> None:
    assert secret not in redact(before + secret + after, secret).replace(HIDDEN, "")


def test_a_registered_secret_is_hidden_whatever_its_variable_is_called() -> None:
    register("whatever-it-is-called-0815")
    assert redact("key whatever-it-is-called-0815!") == f"key {HIDDEN}!"
    assert hide_values({"a": "whatever-it-is-called-0815"}) == {"a": HIDDEN}


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        *((name, True) for name in ("OPENAI_API_KEY", "APIKEY", "HF_TOKEN", "AWS_ACCESS_KEY_ID", "DB_PASSWD")),
        *((name, False) for name in ("MONKEY", "KEYBOARD", "PATH", "max_tokens")),
    ],
)
def test_names_of_secrets(name: str, secret: bool) -> None:
    assert is_secret_name(name) is secret
