from hypothesis import given
from hypothesis import strategies as st

from collab.models.probe import PrefixCacheCounts, build_metrics_url, read_prefix_cache

TEXT = """\
# HELP vllm:prefix_cache_queries_total Prefix cache queries, in terms of number of queried tokens.
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{engine="0",model_name="a{b}"} 1000.0
vllm:prefix_cache_queries_total{engine="1",model_name="a{b}"} 2.0e+02 1700000000000
# TYPE vllm:prefix_cache_queries_created gauge
vllm:prefix_cache_queries_created{engine="0",model_name="a{b}"} 1.7e+09
vllm:prefix_cache_hits_total{engine="0",model_name="a{b}"} 750.0
vllm:prefix_cache_hits_total{engine="1",model_name="a{b}"} 150.0
vllm:external_prefix_cache_hits_total{engine="0",model_name="a{b}"} 5.0
"""


def test_reads_and_adds_up_the_engines() -> None:
    read = read_prefix_cache(TEXT)
    assert read == PrefixCacheCounts(queries=1200, hits=900)
    assert read.rate == 0.75


def test_reads_the_older_names() -> None:
    text = "vllm:gpu_prefix_cache_queries_total 10\nvllm:gpu_prefix_cache_hits_total 4\n"
    assert read_prefix_cache(text) == PrefixCacheCounts(queries=10, hits=4)


def test_a_server_without_such_counters_tells_nothing() -> None:
    assert read_prefix_cache("vllm:num_requests_running 1.0\n# vllm:prefix_cache_hits_total 3\n") is None
    assert read_prefix_cache("vllm:prefix_cache_hits_total 3\n") is None
    assert read_prefix_cache("") is None


def test_no_look_up_is_a_rate_of_nothing() -> None:
    assert PrefixCacheCounts(queries=0, hits=0).rate == 0.0


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 10**6), st.integers(0, 10**6))
def test_the_difference_is_what_came_later(queries: int, hits: int, more: int, found: int) -> None:
    earlier = PrefixCacheCounts(queries=queries, hits=hits)
    later = PrefixCacheCounts(queries=queries + more, hits=hits + found)
    assert later.since(earlier) == PrefixCacheCounts(queries=more, hits=found)


def test_after_a_new_start_all_is_later() -> None:
    fresh = PrefixCacheCounts(queries=5, hits=1)
    assert fresh.since(PrefixCacheCounts(queries=100, hits=50)) == fresh


def test_metrics_stand_beside_the_api() -> None:
    assert build_metrics_url("http://127.0.0.1:8000/v1/") == build_metrics_url("http://127.0.0.1:8000/v1")
    assert build_metrics_url("http://127.0.0.1:8000/v1") == "http://127.0.0.1:8000/metrics"


def test_values_that_are_no_counts_are_none() -> None:
    odd = "vllm:prefix_cache_queries_total 1.2.3\nvllm:prefix_cache_hits_total 1e999\n"
    assert read_prefix_cache(odd) == PrefixCacheCounts(queries=0, hits=0)
