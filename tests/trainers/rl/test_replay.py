"""What a replay buffer holds, whatever is added to it, and that it comes back from its state as it was."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collab.seeds import generator
from collab.trainers.rl.replay import EpisodeRef, ReplayBuffer


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
