import random
import time
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collab.models.http import LONGEST_WAIT_S, choose_delay_s, retry_after_s


@given(st.integers(0, 40), st.integers())
def test_waits_double_within_their_jitter_and_are_bounded(number: int, seed: int) -> None:
    full = min(LONGEST_WAIT_S, 0.5 * 2**number)
    wait = choose_delay_s(number, None, random.Random(seed))
    assert full / 2 <= wait <= full
    assert wait == choose_delay_s(number, None, random.Random(seed))


@given(st.floats(0, 1e4), st.integers())
def test_a_servers_word_is_kept_up_to_a_minute(after: float, seed: int) -> None:
    assert min(after, 60) <= choose_delay_s(3, after, random.Random(seed)) <= min(1.1 * after, 60)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": formatdate(0, usegmt=True)}, 0.0),
    ],
)
def test_reads_what_servers_write(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_s(headers) == seconds


def test_reads_a_date() -> None:
    seconds = retry_after_s({"retry-after": formatdate(time.time() + 60, usegmt=True)})
    assert seconds == pytest.approx(60, abs=2)
