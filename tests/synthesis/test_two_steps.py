"""Two steps in one sentence: each moment shows the screen that the steps before it really led to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from collab.envs.base import Forkable
from collab.seeds import generator
from collab.synthesis.conversation import Reader, Talk
from collab.synthesis.instructions import build_two_steps, join_wordings, propose_instructions
from collab.synthesis.oracle_teacher import Amounts, OracleTeacher
from collab.synthesis.teacher import Scene
from collab.synthesis.wording import PHRASES


def test_every_moment_is_what_the_steps_lead_to(exploring: Callable[..., int]) -> None:
    met = 0

    async def visit(scene: Scene) -> None:
        nonlocal met
        first = next(iter(propose_instructions(scene, generator(scene.seed))["do"]), None)
        moments = () if first is None else await build_two_steps(scene, first, generator(scene.seed))
        if not moments:
            return
        assert isinstance(scene.environment, Forkable)
        fork = await scene.environment.fork()
        now, told = scene.observation, 0
        for moment in moments[:-1]:
            assert moment.scene.observation.digest == now.digest
            assert len(moment.instruction.history) == told
            now, told = (await fork.step(moment.instruction.action)).observation, told + 1
        end = moments[-1]
        assert end.scene.observation.digest == now.digest
        assert end.instruction.action.type == "status"
        assert len({moment.instruction.goal for moment in moments}) == 1
        met += 1

    exploring("MarkorDeleteNewestNote", visit, 12)
    assert met >= 5


def test_rows_of_two_steps_are_asked_at_each_moment(exploring: Callable[..., int], reader: Reader) -> None:
    teacher = OracleTeacher(talk=Talk(reader=reader), amounts=Amounts(two_steps=0.999))
    found: Counter[str] = Counter()

    async def visit(scene: Scene) -> None:
        for row in (await teacher.teach(scene, "instruction")).rows:
            if row.kind == "two-step":
                found[f"{row.provenance.step - scene.step} done"] += 1
                found[str(row.action_type)] += 1

    exploring("MarkorDeleteNewestNote", visit, 6)
    assert found["0 done"] == found["1 done"] == found["2 done"] == found["status"] >= 3


@given(seed=st.integers(0, 2**32))
def test_both_wordings_stand_in_the_sentence(seed: int) -> None:
    first, second = 'Type "Ada L." into Name.', 'Press the "OK" button.'
    said = join_wordings(first, second, generator(seed))
    assert said.startswith('Type "Ada L." into Name')
    assert said.endswith('ress the "OK" button.')
    assert join_wordings(first, '"OK" should be ticked.', generator(seed)) == f'{first} "OK" should be ticked.'


WORDINGS = sorted({one for wordings in PHRASES.values() for one in wordings if not one.endswith("?")})
NAMES = ("Open", "Set files", "OK", 'the "Press" button')


@given(
    asked=st.tuples(st.sampled_from(WORDINGS), st.sampled_from(WORDINGS)),
    names=st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)),
    seed=st.integers(0, 2**32),
)
def test_any_two_wordings_make_a_sentence_that_keeps_its_names(
    asked: tuple[str, str], names: tuple[str, str], seed: int
) -> None:
    first, second = (one.format(it=name, text="Ada") for one, name in zip(asked, names, strict=True))
    said = join_wordings(first, second, generator(seed))
    assert said.casefold().startswith(first.removesuffix(".").removesuffix(", please").casefold())
    assert said.casefold().endswith(second.casefold())
    assert " i want" not in said
    assert ", please and" not in said
    assert ", please, then" not in said
    assert not asked[1].startswith("{it}") or said == f"{first} {second}"
    for wording, name in zip(asked, names, strict=True):
        assert "{it}" not in wording or name in said
