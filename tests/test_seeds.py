import hashlib
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from collab.seeds import Seeds, derive, generator

NAMES = st.lists(st.text(max_size=6) | st.integers(), max_size=4)


def test_seeds_never_change_between_versions():
    """Recorded runs name these numbers: a change here makes every stored seed lie."""
    assert derive(0, "edges", 1) == 2784460410 == int(hashlib.sha256(b"0\x1fedges\x1f1").hexdigest()[:8], 16)
    assert Seeds(run=7).task("ContactsAddContact", 3, 2) == 60165302
    assert Seeds(run=7).cell(0, "t", 1, 2, "ada", 0) == 3064176999
    assert Seeds(run=7).edges(0) == 1335021262
    assert Seeds(run=7).task_edges("t") == 1083626147


@settings(deadline=None)
@given(st.integers(), st.text(max_size=8), NAMES)
def test_a_seed_is_a_32_bit_function_of_its_name(seed, purpose, names):
    value = derive(seed, purpose, *names)
    assert 0 <= value < 2**32
    assert derive(seed, purpose, *names) == value


def test_every_part_of_the_name_counts():
    base = (7, "cell", 0, "task", 1, 2, "ada", 0)
    values = {derive(*base)}
    for position in range(len(base)):
        other = list(base)
        other[position] = other[position] + 1 if isinstance(other[position], int) else other[position] + "x"
        values.add(derive(*other))
    assert len(values) == len(base) + 1


def test_names_do_not_run_together():
    assert derive(0, "task", "a", "bc") != derive(0, "task", "ab", "c")
    assert derive(0, "task", "ab") != derive(0, "taska", "b")
    assert derive(1, "1", "x") != derive(11, "", "x")


def test_purposes_are_apart():
    seeds = Seeds(run=0)
    assert len({seeds.edges(0), seeds.task_edges("0"), seeds.task("0", 0), derive(0, "cell", 0)}) == 4
    assert seeds.task("t", 0, epoch=0) != seeds.task("t", 0, epoch=1)
    assert seeds.task("t", 1) != seeds.task("t", 0)


def test_cells_differ():
    seeds = Seeds(run=3)
    cells = {
        seeds.cell(0, "t", episode, step, agent, round)
        for episode in range(5)
        for step in range(5)
        for agent in ("ada", "ben", "cyd", "dan")
        for round in range(3)
    }
    assert len(cells) == 5 * 5 * 4 * 3


def test_another_sampling_seed_changes_what_is_said_and_nothing_else():
    plain, first, second = Seeds(7), Seeds(7, sampling=1), Seeds(7, sampling=2)
    assert Seeds(7, sampling=None) == plain
    for of_instance in (lambda s: s.task("t", 1), lambda s: s.edges(2), lambda s: s.task_edges("t")):
        assert of_instance(plain) == of_instance(first)
    for of_reply in (lambda s: s.cell(0, "t", 1, 2, "ada", 0), lambda s: s.summary(0, "t", 1, 2)):
        replies = [of_reply(one) for one in (plain, first, second, Seeds(8, sampling=1))]
        assert len(set(replies)) == len(replies), "nor do two run seeds share their luck"


def test_generators_are_private():
    random.seed(1)
    before = random.random()
    random.seed(1)
    draws = [generator(5).random() for _ in range(2)]
    assert draws[0] == draws[1]
    assert random.random() == before


def test_half_characters_in_a_task_name_have_a_seed():
    assert 0 <= derive(0, "task", "\ud800") < 2**32
