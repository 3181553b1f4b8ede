from concurrent.futures import ThreadPoolExecutor

from collab.models.base import Meter, Metered
from collab.models.rehearsal import RehearsalModel


def test_counts_from_many_threads() -> None:
    meter = Meter()

    def work(number: int) -> None:
        meter.count_retry()
        meter.count_answer(latency_s=0.5, prompt_tokens=10, completion_tokens=None, cost_usd=0.25)
        if number % 10 == 0:
            meter.count_failure(latency_s=1.0)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(500)))
    reading = meter.snapshot()
    assert (reading.calls, reading.failures, reading.retries) == (550, 50, 500)
    assert (reading.prompt_tokens, reading.completion_tokens, reading.cost_usd) == (5000, 0, 125.0)
    assert reading.latency_s == 500 * 0.5 + 50


def test_computed_tokens_are_those_of_the_calls_that_tell() -> None:
    meter = Meter()
    meter.count_answer(latency_s=0.5, prompt_tokens=1000, completion_tokens=5)
    meter.count_answer(latency_s=0.5, prompt_tokens=100, completion_tokens=5, computed_tokens=25)
    meter.count_answer(latency_s=0.5, prompt_tokens=100, completion_tokens=5, computed_tokens=0)
    meter.add_queue_time(0.25)
    reading = meter.snapshot()
    assert (reading.computed_tokens, reading.cacheable_tokens) == (25, 200)
    assert (reading.prompt_tokens, reading.queue_s, reading.calls) == (1200, 0.25, 3)


def test_a_snapshot_does_not_change() -> None:
    meter = Meter()
    before = meter.snapshot()
    meter.count_failure(latency_s=1.0)
    assert before.calls == 0


def test_models_are_metered() -> None:
    assert isinstance(RehearsalModel(), Metered)
