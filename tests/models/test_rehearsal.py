import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from collab.dialects.base import Dialect
from collab.dialects.ground import read_in_dialect
from collab.dialects.registry import DIALECTS
from collab.envs.grammar import MOBILE, WEB, ActionSpace
from collab.envs.random_actions import ENDINGS
from collab.errors import ConfigError, ModelFailure
from collab.models.base import Privilege, Reply, Request
from collab.models.rehearsal import ENDING_SHARE, RehearsalModel
from collab.prompts.parse import read_reply
from collab.types import Action, Box, Element, Observation, Prompt, Sampling

ELEMENTS = tuple(
    Element(index=index, role="button", label=f"B{index}", box=Box(0, 100 * index, 100, 100 * index + 100))
    for index in range(6)
)
SCREEN = Observation(space="mobile", title="Home", elements=ELEMENTS, text="")
PROMPT = Prompt(system="", shared="", segments=())


def ask_all(
    solution: tuple[Action, ...] | None,
    seeds: range,
    *,
    temperature: float = 0.0,
    model: RehearsalModel | None = None,
    space: ActionSpace = MOBILE,
    screen: Observation = SCREEN,
    dialect: Dialect | None = None,
) -> list[Reply]:
    speaker = model or RehearsalModel(error_base=0)
    privilege = Privilege(oracle=lambda: solution, observation=screen, space=space, dialect=dialect)
    sampling = Sampling(temperature=temperature)

    async def scene() -> list[Reply]:
        requests = [Request(prompt=PROMPT, sampling=sampling, seed=seed, privilege=privilege) for seed in seeds]
        return [await speaker.generate(request) for request in requests]

    return asyncio.run(scene())


def ask(solution: tuple[Action, ...] | None, seed: int = 0, **options: Any) -> Reply:
    return ask_all(solution, range(seed, seed + 1), **options)[0]


def action_of(reply: Reply, space: ActionSpace = MOBILE, screen: Observation = SCREEN) -> Action:
    parsed = read_reply(reply.text, space, screen)
    assert parsed.action is not None, parsed.failure
    return parsed.action


def test_without_errors_it_follows_the_oracle() -> None:
    steps = (MOBILE.make("click", index=3), MOBILE.make("navigate_back"))
    assert {action_of(reply) for reply in ask_all(steps, range(50))} == {steps[0]}


@pytest.mark.parametrize(
    ("space", "ending"), [(MOBILE, MOBILE.make("status", goal_status="complete")), (WEB, WEB.make("finish"))]
)
def test_nothing_left_to_do_is_said_to_be_complete(space: ActionSpace, ending: Action) -> None:
    assert action_of(ask((), space=space), space) == ending


def test_where_no_way_leads_on_it_gives_up_and_lets_the_environment_judge() -> None:
    assert action_of(ask(None)) == MOBILE.make("status", goal_status="complete")


def test_without_an_oracle_it_refuses() -> None:
    with pytest.raises(ModelFailure, match="no oracle was handed over"):
        asyncio.run(RehearsalModel().generate(Request(prompt=PROMPT, sampling=Sampling(), seed=0)))


def test_error_rate_grows_with_temperature_up_to_a_bound() -> None:
    model = RehearsalModel(error_base=0.05, error_slope=0.5)
    assert [model.error_rate(t) for t in (0.0, 0.1, 0.5, 9.0)] == pytest.approx([0.05, 0.1, 0.3, 0.95])
    right = MOBILE.make("click", index=3)
    for temperature, rate in ((0.1, 0.1), (0.8, 0.45)):
        replies = ask_all((right,), range(2000), temperature=temperature, model=model)
        wrong = sum(action_of(reply) != right for reply in replies)
        assert wrong / 2000 == pytest.approx(rate, abs=0.04)  # four standard errors are 0.027 and 0.044


def test_mistakes_are_valid_wrong_spread_out_and_seldom_endings() -> None:
    """A point that means the right element is no mistake either: compared in canonical form."""
    right = MOBILE.make("click", x=50, y=350)
    model = RehearsalModel(error_base=1.0)
    said = Counter[Action]()
    for reply in ask_all((right,), range(3000), model=model):
        assert ("a drawn mistake" in reply.text) != ("the oracle's next action" in reply.text)
        if "a drawn mistake" in reply.text:
            said[action_of(reply)] += 1
    assert MOBILE.canonical(right, SCREEN) not in said
    assert sum(said.values()) == pytest.approx(2850, abs=60)
    endings = sum(count for action, count in said.items() if action.type in ENDINGS)
    assert 0 < endings / sum(said.values()) < 2 * ENDING_SHARE
    assert max(said.values()) < 0.15 * sum(said.values())


def test_the_same_seed_says_the_same() -> None:
    model = RehearsalModel(error_base=0.5)
    right = (MOBILE.make("click", index=0),)
    assert ask_all(right, range(40), model=model) == [ask(right, seed, model=model) for seed in range(40)]


def test_an_empty_web_page_still_allows_mistakes() -> None:
    screen = Observation(space="web", title="", elements=(), text="")
    reply = ask((), model=RehearsalModel(error_base=1.0), space=WEB, screen=screen, seed=1)
    assert action_of(reply, WEB, screen).type != "finish"


def test_rates_are_checked() -> None:
    with pytest.raises(ConfigError, match=r"error_base 1\.5"):
        RehearsalModel(error_base=1.5)


@pytest.mark.parametrize(("dialect", "said"), [("appvlm", '"target-element": 3'), ("qwen2.5-vl", '"coordinate": [')])
def test_it_speaks_the_dialect_of_its_agent(dialect: str, said: str) -> None:
    steps = (MOBILE.make("click", index=3),)
    reply = ask(steps, dialect=DIALECTS[dialect])
    assert said in reply.text
    parsed = read_in_dialect(reply.text, DIALECTS[dialect], MOBILE, SCREEN)
    assert parsed.action == steps[0], parsed.failure
    mistakes = ask_all(steps, range(50), model=RehearsalModel(error_base=1.0), dialect=DIALECTS[dialect])
    read = [read_in_dialect(one.text, DIALECTS[dialect], MOBILE, SCREEN) for one in mistakes]
    assert not any(one.failure for one in read)
    assert 0 < sum(one.action == steps[0] for one in read) < 10  # one in twenty is none


def test_of_several_steps_it_says_the_one_that_is_still_to_be_done() -> None:
    steps = (MOBILE.make("input_text", index=0, text="Ada", clear_text=True, press_enter=True),)

    def say(value: str, *flags: str) -> Action | None:
        field = replace(ELEMENTS[0], role="input", label="Name", value=value, flags=("editable", *flags))
        screen = replace(SCREEN, elements=(field, *ELEMENTS[1:]))
        reply = ask(steps, dialect=DIALECTS["appvlm"], screen=screen)
        return read_in_dialect(reply.text, DIALECTS["appvlm"], MOBILE, screen).action

    assert say("") == MOBILE.make("click", index=0)
    typed = say("", "focused")
    assert typed is not None
    assert (typed.type, typed["text"], typed.target) == ("input_text", "Ada", None)
    held = say("Bo", "focused")
    assert held is not None
    assert held.type == "long_press", "its menu empties the field"


def test_without_a_word_in_the_dialect_the_call_fails_and_is_counted() -> None:
    model = RehearsalModel(error_base=0)
    with pytest.raises(ModelFailure) as failed:
        ask((MOBILE.make("answer", text="42"),), model=model, dialect=DIALECTS["appvlm"])
    assert str(failed.value) == (
        "rehearsal: appvlm has no word for: answer '42'; choose other tasks, or another dialect"
    )
    assert model.meter.snapshot().failures == 1
