"""Solutions read screens; what they read here is written by hand. The pages themselves are in test_miniwob.py."""

from __future__ import annotations

from dataclasses import replace

import pytest

from collab.envs.grammar import MOBILE, WEB
from collab.envs.text import describe_screen
from collab.envs.web.miniwob_page import ALL
from collab.envs.web.solutions import SOLVED, Deed, solve
from collab.types import Box, Element, Observation


def screen(*parts: tuple[str, str] | Element, space: str = "web") -> Observation:
    elements = tuple(
        replace(part, index=index)
        if isinstance(part, Element)
        else Element(index=index, role=part[0], label=part[1], key=f"html1/div{index}")
        for index, part in enumerate(parts)
    )
    return Observation(space=space, title="Page", elements=elements, text=describe_screen("Page", elements))


def field(label: str, value: str = "", *flags: str) -> Element:
    return Element(index=0, role="input", label=label, value=value, flags=("editable", *flags), key=f"input/{label}")


def told(name: str, goal: str, shown: Observation, *deeds: Deed) -> list[str] | None:
    space = MOBILE if shown.space == "mobile" else WEB
    plan = solve(name, goal, shown, deeds)
    return None if plan is None else [space.format(action) for action in plan]


def test_every_solution_belongs_to_a_page() -> None:
    assert set(ALL) >= SOLVED
    assert len(SOLVED) >= 40


def test_a_form_is_told_to_its_end() -> None:
    shown = screen(("text", "Username"), field("username"), field("password", "", "password"), ("button", "Login"))
    goal = 'Enter the username "ada" and the password "x7" into the text fields and press login.'
    assert told("login-user", goal, shown) == [
        "type_string(id=1, content='ada')",
        "type_string(id=2, content='x7')",
        "click(id=3)",
    ]


def test_what_is_done_is_not_told_again() -> None:
    goal = 'Enter the username "ada" and the password "x7" into the text fields and press login.'
    shown = screen(field("username", "ada"), field("password", "••", "password"), ("button", "Login"))
    assert told("login-user", goal, shown) == ["click(id=2)"]
    wrong = screen(field("username", "bob"), field("password", "••", "password"), ("button", "Login"))
    assert told("login-user", goal, wrong) == ["type_string(id=0, content='ada')", "click(id=2)"]


def test_the_same_solution_serves_the_phone() -> None:
    shown = screen(field("tt"), ("button", "Submit"), space="mobile")
    assert told("enter-text", 'Enter "Ada" into the text field and press Submit.', shown) == [
        '{"action_type": "input_text", "index": 0, "text": "Ada", "clear_text": true}',
        '{"action_type": "click", "index": 1}',
    ]


def test_wrong_ticks_are_taken_back() -> None:
    ticked = Element(index=0, role="checkbox", label="b", flags=("checked",))
    shown = screen(("checkbox", "a"), ticked, ("button", "Submit"))
    assert told("click-checkboxes", "Select a and click Submit.", shown) == [
        "click(id=0)",
        "click(id=1)",
        "click(id=2)",
    ]
    assert told("click-checkboxes", "Select nothing and click Submit.", shown) == ["click(id=1)", "click(id=2)"]


def test_a_screen_that_is_not_understood_gives_nothing() -> None:
    assert told("click-button", 'Click on the "Ok" button.', screen(("button", "Cancel"))) is None
    assert told("click-button", "no quotation marks", screen(("button", "Cancel"))) is None


def test_a_list_is_chosen_from_in_both_views() -> None:
    parts = [
        Element(index=0, role="drop-down", label="options", value="Rome"),
        ("option", "Oslo"),
        ("button", "Submit"),
    ]
    goal = "Select Oslo from the list and click Submit."
    assert told("choose-list", goal, screen(*parts)) == ["select(id=0, option='Oslo')", "click(id=2)"]
    phone = told("choose-list", goal, screen(*parts, space="mobile"))
    assert phone == ['{"action_type": "click", "index": 1}', '{"action_type": "click", "index": 2}']
    closed = told("choose-list", goal, screen(parts[0], parts[2], space="mobile"))
    assert closed is not None
    assert closed[0] == '{"action_type": "click", "index": 0}'


def test_search_turns_pages() -> None:
    goal = 'Use the textbox to enter "Ada" and press "Search", then find and click the 5th search result.'
    start = screen(field("search text"), ("button", "Search"))
    assert told("search-engine", goal, start) == ["type_string(id=0, content='Ada')", "click(id=1)"]
    found = screen(
        field("search text", "Ada"), ("button", "Search"), *(("link", name) for name in "UVW123"), ("link", ">")
    )
    search, two = (Deed("click", found.elements[at]) for at in (1, 6))
    assert told("search-engine", goal, found, search) == ["click(id=6)"]
    assert told("search-engine", goal, found, search, two) == ["click(id=3)"]


@pytest.mark.parametrize(
    ("name", "text", "answer"),
    [
        ("simple-arithmetic", "5 - 9 =", "-4"),
        ("simple-arithmetic", "-3 x 4 =", "-12"),
        ("simple-arithmetic", "2 + 40 =", "42"),
        ("simple-algebra", "5 - x = 90", "-85"),
        ("simple-algebra", "x + 5 = 3", "-2"),
        ("simple-algebra", "x - 5 = 3", "8"),
        ("simple-algebra", "7 + x = 3", "-4"),
    ],
)
def test_sums(name: str, text: str, answer: str) -> None:
    plan = told(name, "Solve.", screen(("text", text), field("math answer"), ("button", "Submit")))
    assert plan == [f"type_string(id=1, content='{answer}')", "click(id=2)"]


def test_a_grid_point_is_counted_from_the_middle() -> None:
    dots = [
        Element(index=0, role="shape", label="circle blue, 8×8", box=Box(x, y, x + 8, y + 8))
        for x in (0, 30, 60)
        for y in (0, 30, 60)
    ]
    assert told("grid-coordinate", "Click on the grid coordinate (1,-1).", screen(*dots)) == ["click(id=8)"]
    assert told("grid-coordinate", "Click on the grid coordinate (2,0).", screen(*dots)) is None
