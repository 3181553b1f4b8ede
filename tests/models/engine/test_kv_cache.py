import torch
from hypothesis import given
from hypothesis import strategies as st

from collab.models.engine.kv_cache import CacheShape, PrefixCache, PrefixNode, RowStore

SHAPE = CacheShape(layers=2, groups=2, size=4, dtype=torch.float32, device=torch.device("cpu"))


def computed(cache: PrefixCache, path: list[PrefixNode]) -> None:
    for node in path:
        cache.allocate(node)
        node.ready = True


def test_memory_of_a_token_by_hand() -> None:
    assert SHAPE.token_bytes == 2 * 2 * 2 * 4 * 4  # layers, keys and values, groups, size, bytes of a float
    assert SHAPE.empty(3).nbytes == 3 * SHAPE.token_bytes


def test_the_same_beginning_is_the_same_node_and_the_same_words_elsewhere_are_not() -> None:
    cache = PrefixCache(SHAPE, 1 << 20)
    first, again = cache.path("p", [(1, 2), (3,)]), cache.path("p", [(1, 2), (3,)])
    assert [id(node) for node in first] == [id(node) for node in again]
    other, elsewhere = cache.path("q", [(1, 2), (3,)]), cache.path("p", [(5,), (3,)])
    assert len({id(node) for node in (*first, *other, *elsewhere)}) == 6
    assert [(node.start, len(node.ids)) for node in first] == [(0, 2), (2, 1)]


def test_what_was_used_last_stays_longest() -> None:
    cache = PrefixCache(SHAPE, 4 * SHAPE.token_bytes)
    paths = [cache.path("p", [(number,) * 2]) for number in range(2)]
    for path in paths:
        computed(cache, path)
        cache.release(path)
    cache.release(cache.path("p", [(0, 0)]))  # 0 is wanted again, 1 is not
    third = cache.path("p", [(7, 7)])
    computed(cache, third)
    assert len(cache) == 3, "what is in use takes nothing from the others"
    cache.release(third)
    assert {node.ids for node in cache} == {(0, 0), (7, 7)}
    assert cache.held_bytes == 4 * SHAPE.token_bytes


def test_what_was_never_computed_is_forgotten() -> None:
    cache = PrefixCache(SHAPE, 1 << 20)
    path = cache.path("p", [(1,), (2,), (3,)])
    computed(cache, path[:1])
    cache.release(path)
    assert [node.ids for node in cache] == [(1,)]


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["enter", "leave", "shrink", "forget"]),
            st.sampled_from("pq"),
            st.lists(st.tuples(st.integers(0, 2)) | st.tuples(st.integers(0, 1), st.integers(0, 1)), max_size=4),
            st.integers(0, 12),
        ),
        max_size=40,
    )
)
def test_nothing_in_use_is_dropped_and_all_memory_is_counted(
    steps: list[tuple[str, str, list[tuple[int, ...]], int]],
) -> None:
    cache = PrefixCache(SHAPE, 6 * SHAPE.token_bytes)
    using: list[list[PrefixNode]] = []
    for kind, policy, pieces, number in steps:
        if kind == "enter":
            path = cache.path(policy, pieces)
            computed(cache, path)
            using.append(path)
        elif kind == "leave" and using:
            cache.release(using.pop(number % len(using)))
        elif kind == "shrink":
            cache.shrink(number * SHAPE.token_bytes)
        else:
            cache.forget(policy)
        held = {id(node) for node in cache}
        assert {id(node) for path in using for node in path} <= held
        assert all(node.kv is not None for path in using for node in path)
        assert cache.held_bytes == sum(len(node.ids) for node in cache if node.kv is not None) * SHAPE.token_bytes
        assert all(node.parent is None or id(node.parent) in held for node in cache)
        idle = sum(len(node.ids) for node in cache if node.kv is not None and not node.users) * SHAPE.token_bytes
        assert cache.idle_bytes == idle <= cache.budget_bytes
        if kind == "shrink":
            assert idle <= number * SHAPE.token_bytes
    for path in using:
        cache.release(path)
    cache.shrink(0)
    assert (len(cache), cache.held_bytes, cache.idle_bytes) == (0, 0, 0)


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["add", "grow", "remove"]), st.integers(1, 300), st.integers(0, 20)), max_size=25
    )
)
def test_rows_keep_what_was_put_in(steps: list[tuple[str, int, int]]) -> None:
    """Against a plain list of tensors."""
    store, mirror = RowStore(SHAPE), []
    generator = torch.Generator().manual_seed(0)
    for kind, length, number in steps:
        if kind == "add":
            pieces = [torch.randn(2, 2, 2, part, 4, generator=generator) for part in (length, number) if part]
            store.reserve(len(mirror) + 1, length + number + 5)
            held = store.bytes
            store.add(pieces)
            assert store.bytes == held
            mirror.append(torch.cat(pieces, 3))
        elif mirror and kind == "remove":
            row = number % len(mirror)
            moved = store.remove(row)
            assert moved == len(mirror) - 1
            mirror[row] = mirror[moved]
            mirror.pop()
        elif mirror and kind == "grow":
            row = number % len(mirror)
            if mirror[row].shape[3] < store.kv.shape[4]:
                new = torch.randn(2, 2, 2, 1, 4, generator=generator)
                store.kv[:, :, row, :, store.lengths[row]] = new[:, :, :, 0]
                store.lengths[row] += 1
                mirror[row] = torch.cat([mirror[row], new], 3)
        assert store.lengths == [one.shape[3] for one in mirror]
        for row, expected in enumerate(mirror):
            assert torch.equal(store.kv[:, :, row, :, : expected.shape[3]], expected)
            assert not store.kv[:, :, row, :, expected.shape[3] :].any(), "what was there before is wiped"
    assert (store.bytes == 0) == (not mirror)
