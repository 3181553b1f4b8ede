"""The copy warm-up: what is scored can be known from what stands before, and from nothing simpler."""

from collab.trainers.pretrain import copy_sequences


def test_what_is_scored_stood_there_before(samples, chat) -> None:
    recipe = samples.recipe("copy", "steps=4")
    made = copy_sequences(recipe, chat, 0)
    assert len(made) == 4 * recipe.batch_rows
    for one in made:
        scored = one.ids[one.scored_from :].tolist()
        repeated = one.ids[one.scored_from - 1 :].tolist()
        assert one.ids[: len(repeated)].tolist() == repeated
        assert len(scored) == len(repeated) - 1 >= 1
        assert len(one) <= recipe.context
        assert chat.control.isdisjoint(one.ids.tolist())


def test_neither_distance_nor_alphabet_nor_separator_is_fixed(samples, chat) -> None:
    made = copy_sequences(samples.recipe("copy", "steps=40", "alphabets=[3,1000000]", "simple=0"), chat, 0)
    halves = [one.ids[one.scored_from - 1 :].tolist() for one in made]
    assert len({len(one) - len(half) for one, half in zip(made, halves, strict=True)}) > 15
    assert len({int(one.ids[one.scored_from - 2]) for one in made}) > 3
    sizes = {len(set(half)) for half in halves if len(half) > 12}
    assert min(sizes) <= 3 < 10 < max(sizes)


def test_the_first_ones_are_short_and_plain(samples, chat) -> None:
    recipe = samples.recipe("copy", "steps=20", "simple=0.5", "simple_longest=6", "batch_rows=10")
    made = copy_sequences(recipe, chat, 0)
    assert max(map(len, made[:100])) <= 12
    assert all(len(one) == 2 * (one.scored + 1) for one in made[:100])
    assert max(map(len, made[100:])) > 30


def test_the_seed_decides(samples, chat) -> None:
    recipe = samples.recipe("copy", "steps=2")
    ids = [[one.ids.tolist() for one in copy_sequences(recipe, chat, seed)] for seed in (0, 0, 1)]
    assert ids[0] == ids[1] != ids[2]
