"""What a replay buffer holds, whatever is added to it, and that it comes back from its state as it was."""

import json
import time
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collab.seeds import generator
from collab.trainers.rl.estimators import draw_probabilities, trajectory_priority
from collab.trainers.rl.replay import EpisodeRef, PrioritisedReplay, ReplayBuffer, SumTree, Surprise


def episode(number: int, steps: int = 1) -> EpisodeRef:
    return EpisodeRef(run="epochs/0/rollout", trajectory=str(number), steps=steps, versions=(number, number + 1))


def fill(capacity: int, lengths: list[int]) -> ReplayBuffer:
    buffer = ReplayBuffer(capacity)
    for number, length in enumerate(lengths):
        buffer.add(episode(number, length))
    return buffer


capacities = st.integers(1, 30)
lengths = st.lists(st.integers(1, 40), max_size=40)


@given(capacities, lengths)
def test_it_holds_the_newest_whole_episodes_that_fit(capacity: int, lengths: list[int]) -> None:
    """Against a list: never more steps than the capacity, never half an episode, and none leaves without need."""
    buffer = ReplayBuffer(capacity)
    fitting: list[EpisodeRef] = []
    for number, length in enumerate(lengths):
        one = episode(number, length)
        before = buffer.episodes
        left = buffer.add(one)
        if length > capacity:
            assert (left, buffer.episodes) == ((), before)
            continue
        fitting.append(one)
        assert buffer.episodes == tuple(fitting[len(fitting) - len(buffer) :])
        assert left + buffer.episodes == (*before, one), "the oldest leave, whole"
        assert buffer.steps == sum(held.steps for held in buffer.episodes) <= capacity
        assert not left or buffer.steps + left[-1].steps > capacity
    assert buffer.refused == sum(length > capacity for length in lengths)


@given(capacities, lengths, st.integers(0, 99))
def test_it_comes_back_from_json(capacity: int, lengths: list[int], seed: int) -> None:
    buffer = fill(capacity, lengths)
    back = ReplayBuffer.of(json.loads(json.dumps(buffer.state())))
    assert back.state() == buffer.state()
    assert (back.episodes, back.steps, back.refused) == (buffer.episodes, buffer.steps, buffer.refused)
    assert back.sample(20, generator(seed)) == buffer.sample(20, generator(seed))
    assert back.add(episode(100, 1)) == buffer.add(episode(100, 1))


def test_a_small_buffer_fills_a_batch() -> None:
    buffer = fill(10, [4, 3])
    drawn = buffer.sample(200, generator(0))
    assert {one.trajectory for one in drawn} == {"0", "1"}
    assert 60 < sum(one.trajectory == "0" for one in drawn) < 140, "uniform over episodes, however long"
    assert drawn == buffer.sample(200, generator(0)) != buffer.sample(200, generator(1))


def test_an_empty_one_gives_nothing() -> None:
    assert ReplayBuffer(10).sample(3, generator(0)) == []


def test_an_episode_is_held_once_and_has_steps() -> None:
    buffer = fill(10, [4])
    with pytest.raises(ValueError, match="episode 0 of epochs/0/rollout is in the replay buffer already"):
        buffer.add(episode(0, 4))
    with pytest.raises(ValueError, match="episode 1 of epochs/0/rollout has no step to learn from"):
        buffer.add(episode(1, 0))
    with pytest.raises(ValueError, match="a capacity of 0"):
        ReplayBuffer(0)
    assert buffer.episodes == (episode(0, 4),)


def test_a_state_that_does_not_fit_is_refused() -> None:
    state = fill(10, [4, 5]).state()
    for capacity in (8, 4):
        with pytest.raises(ValueError, match=f"more than its capacity of {capacity} steps"):
            ReplayBuffer.of({**state, "capacity": capacity})


# ------------------------------------------------------------------------------------------------------ priorities


def surprise(error: float = 0.5, ratio: float = 1.0, entropy: float = 0.0) -> Surprise:
    return Surprise(error=error, ratio=ratio, entropy=entropy, most_error=error, most_entropy=entropy)


weights = st.one_of(st.just(0.0), st.floats(1e-6, 1e3))


@given(st.integers(1, 40), st.data())
def test_a_sum_tree_finds_what_a_list_of_sums_finds(size: int, data: st.DataObject) -> None:
    tree, dense = SumTree(size), np.zeros(size)
    for _ in range(data.draw(st.integers(1, 60))):
        place, weight = data.draw(st.integers(0, size - 1)), data.draw(weights)
        tree[place] = dense[place] = weight
    assert [tree[place] for place in range(size)] == dense.tolist()
    assert tree.total == pytest.approx(dense.sum())
    if not dense.any():
        return
    shares = np.array(data.draw(st.lists(st.floats(0, 0.999), min_size=1, max_size=20)))
    found = tree.find(shares * tree.total)
    assert all(dense[place] > 0 for place in found), "a weight of 0 is never drawn"
    ends = dense.cumsum()
    near = 1e-9 * dense.sum()
    for wanted, place in zip(shares * tree.total, found, strict=True):
        assert ends[place] - dense[place] - near <= wanted <= ends[place] + near


def test_a_sum_tree_draws_a_million_times_in_seconds() -> None:
    tree, rng = SumTree(10_000), np.random.default_rng(0)
    for place in range(10_000):
        tree[place] = 1 + place % 3
    began = time.perf_counter()
    found = tree.find(rng.random(1_000_000) * tree.total)
    assert time.perf_counter() - began < 5
    shares = np.bincount(found % 3, minlength=3) / len(found)
    assert shares == pytest.approx([1 / 6, 2 / 6, 3 / 6], abs=0.005)


def test_episodes_are_drawn_by_their_priority() -> None:
    """P ∝ p^α with p as `trajectory_priority` gives it, whatever was the largest error when each was measured."""
    found = [surprise(0.1), surprise(0.4, 0.5, 0.2), surprise(0.8, 0.1, 0.6)]
    buffer = PrioritisedReplay(100)
    for number, one in enumerate(found):
        buffer.add(episode(number), one, epoch=1)
    expected = draw_probabilities(
        [
            trajectory_priority([one.error], [one.ratio], [one.entropy], most_error=0.8, most_entropy=0.6)
            for one in found
        ]
    )
    drawn = Counter(one.trajectory for one in buffer.draw(10_000, generator(0)))
    assert [drawn[str(number)] / 10_000 for number in range(3)] == pytest.approx(expected.tolist(), abs=0.015)
    buffer.measure(episode(0).key, surprise(0.0, 0.0), epoch=2)
    again = Counter(one.trajectory for one in buffer.draw(3_000, generator(0)))
    assert again["0"] < 0.01 * 3_000, "what teaches nothing any more is hardly drawn"
    assert [one.trajectory for one in buffer.list_stalest(2)] == ["1", "2"]


def test_episodes_are_drawn_whole_and_alike_without_an_exponent() -> None:
    buffer = PrioritisedReplay(100, exponent=0)
    buffer.add(episode(0, 7), surprise(0.9), epoch=1)
    buffer.add(episode(1, 3), surprise(0.1), epoch=1)
    drawn = buffer.draw(10_000, generator(0))
    assert 10_000 <= sum(one.steps for one in drawn) < 10_007
    assert sum(one.trajectory == "0" for one in drawn) / len(drawn) == pytest.approx(0.5, abs=0.05)
    assert PrioritisedReplay(5).draw(10, generator(0)) == []


surprises = st.builds(surprise, st.floats(0, 2), st.floats(0, 1), st.floats(0, 2))


@given(st.integers(1, 12), st.lists(st.tuples(st.integers(1, 14), surprises), max_size=30), st.integers(0, 99))
def test_priorities_come_back_from_json(capacity: int, added: list[tuple[int, Surprise]], seed: int) -> None:
    """A resumed process draws the same episodes, before and after more are added, also where the circle begins anew."""
    buffer = PrioritisedReplay(capacity)
    for number, (steps, one) in enumerate(added):
        buffer.add(episode(number, steps), one, epoch=number // 4)
    back = PrioritisedReplay.of(json.loads(json.dumps(buffer.state())))
    assert back.state() == buffer.state()
    assert len(back) == len(buffer) <= capacity
    for each in (buffer, back):
        each.add(episode(100, 1), surprise(3.0), epoch=9)
    assert back.draw(50, generator(seed)) == buffer.draw(50, generator(seed))
    assert back.state() == buffer.state()
    assert [back.get_priority(one.key) for one in back.buffer.episodes] == [
        buffer.get_priority(one.key) for one in buffer.buffer.episodes
    ]
