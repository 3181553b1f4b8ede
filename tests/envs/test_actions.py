"""The laws of the action grammar, for both spaces, and every way an action can be refused."""

import json
import re
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from collab.envs.grammar import MOBILE, SPACES, WEB, ActionSpace, ActionSpec, FieldSpec
from collab.envs.text import find_element_at
from collab.prompts.parse import read_reply
from collab.types import Action, Box, Element, Observation, ParseFailure, Point
from tests.properties import examples

BOTH = pytest.mark.parametrize("space", [MOBILE, WEB], ids=["mobile", "web"])
COUNTS = st.integers(0, 10**8)
PIXELS = st.one_of(st.integers(-(10**6), 10**6), st.floats(-1e6, 1e6))
FRACTIONS = st.one_of(st.sampled_from([0, 1, 0.5]), st.floats(0, 1))


def field_values(field: FieldSpec):
    if field.choices:
        return st.sampled_from(field.choices)
    return {"text": st.text(), "integer": st.integers(-(10**8), 10**8), "boolean": st.booleans()}[field.kind]


def targets(space: ActionSpace, spec: ActionSpec, *, needed: bool = False):
    index = COUNTS.map(lambda number: {space.index_field: number})
    kinds = [index] if spec.target != "none" else []
    if spec.target != "required" and not needed:
        kinds.append(st.just({}))
    if space.points and spec.target != "none":
        kinds.append(st.builds(lambda x, y: {"x": x, "y": y}, PIXELS, PIXELS))
    if space.points and spec.target != "none" and not spec.has_end:
        kinds.append(st.builds(lambda x, y: {"x": x, "y": y, "normalised": True}, FRACTIONS, FRACTIONS))
    return st.one_of(kinds)


@st.composite
def keyword_arguments(draw, space: ActionSpace):
    """A type of the space and fields that fit it."""
    spec = draw(st.sampled_from(space.specs))
    fields = dict(draw(targets(space, spec)))
    if spec.has_end:
        fields |= {f"to_{field}": value for field, value in draw(targets(space, spec, needed=True)).items()}
    for field in spec.fields:
        if not field.optional or draw(st.booleans()):
            fields[field.name] = draw(field_values(field))
    return spec.name, fields


def actions(space: ActionSpace):
    return keyword_arguments(space).map(lambda drawn: space.make(drawn[0], **drawn[1]))


any_space = st.sampled_from([MOBILE, WEB])
any_action = any_space.flatmap(lambda space: st.tuples(st.just(space), actions(space)))


@st.composite
def screens(draw):
    """Up to eight elements on a small screen, nested and overlapping at random; some without a box."""
    width, height = draw(st.integers(1, 60)), draw(st.integers(1, 60))
    elements = []
    for index in range(draw(st.integers(0, 8))):
        left, right = sorted((draw(st.integers(0, width)), draw(st.integers(0, width))))
        top, bottom = sorted((draw(st.integers(0, height)), draw(st.integers(0, height))))
        box = Box(left, top, right, bottom) if draw(st.integers(0, 5)) else None
        flags = ("surface",) if draw(st.integers(0, 3)) == 0 else ()
        elements.append(Element(index=index, role="button", label=draw(st.text(max_size=5)), box=box, flags=flags))
    return Observation(space="mobile", title="t", text="", elements=tuple(elements), width=width, height=height)


def innermost(observation: Observation, x: int, y: int) -> Element | None:
    """The law in other words: of all boxes around the point the smallest, the later of two equal ones."""
    best = None
    for element in observation.elements:
        if element.box and element.box.left <= x < element.box.right and element.box.top <= y < element.box.bottom:
            area = (element.box.right - element.box.left) * (element.box.bottom - element.box.top)
            if best is None or area <= best[0]:
                best = (area, element)
    return best[1] if best else None


# ------------------------------------------------------------------------------------------------ round trips


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(600))
@given(any_action)
def test_parse_reads_what_format_writes(drawn):
    space, action = drawn
    text = space.format(action)
    assert "\n" not in text
    assert space.parse(text) == action


@settings(deadline=None, max_examples=examples(300))
@given(keyword_arguments(MOBILE), st.randoms(use_true_random=False))
def test_json_fields_may_come_in_any_order(drawn, rng):
    name, fields = drawn
    pairs = [("action_type", name), *fields.items()]
    rng.shuffle(pairs)
    assert MOBILE.parse(json.dumps(dict(pairs))) == MOBILE.make(name, **fields)


@settings(deadline=None, max_examples=examples(300))
@given(keyword_arguments(WEB), st.randoms(use_true_random=False))
def test_call_arguments_may_come_in_any_order(drawn, rng):
    name, fields = drawn
    pairs = list(fields.items())
    rng.shuffle(pairs)
    text = f"{name}({', '.join(f'{key}={value!r}' for key, value in pairs)})"
    assert WEB.parse(text) == WEB.make(name, **fields)


@settings(deadline=None)
@given(keyword_arguments(WEB))
def test_call_arguments_may_be_positional(drawn):
    name, fields = drawn
    spec = WEB.spec(name)
    assume("x" not in fields and "to_x" not in fields)  # points have names
    order = (["id"] if spec.target != "none" else []) + ["to_id"] * spec.has_end + [field.name for field in spec.fields]
    parts = [repr(fields.get(key)) for key in order if key != "hold"]
    parts += [f"hold={fields['hold']!r}"] if "hold" in fields else []  # by its name alone
    assert WEB.parse(f"{name}({', '.join(parts)})") == WEB.make(name, **fields)


@BOTH
def test_null_fields_count_as_left_out(space):
    spec = space.spec("click")
    if space.syntax == "json":
        text = json.dumps({"action_type": spec.name, "index": 3, "x": None, "y": None, "text": None})
    else:
        text = f"{spec.name}(id=3, option=None, content=null)"
    assert space.parse(text) == space.make(spec.name, **{space.index_field: 3})


@pytest.mark.parametrize(
    ("space", "text", "same"),
    [
        (MOBILE, '{"action_type": "click", "index": "7"}', '{"action_type": "click", "index": 7}'),
        (MOBILE, '{"action_type": "click", "index": 7.0}', '{"action_type": "click", "index": 7}'),
        (MOBILE, '{"action_type": "answer", "text": 7}', '{"action_type": "answer", "text": "7"}'),
        (
            MOBILE,
            '{"action_type": "scroll", "direction": " Down "}',
            '{"action_type": "scroll", "direction": "down"}',
        ),
        (
            MOBILE,
            '{"action_type": "input_text", "text": "a", "clear_text": "False"}',
            '{"action_type": "input_text", "text": "a"}',
        ),
        (MOBILE, '\n {"action_type": "wait"}\t', '{"action_type": "wait"}'),
        (WEB, "click('7')", "click(id=7)"),
        (WEB, " click( id = 7 ) ", "click(id=7)"),
        (WEB, "type_string(3, 'a', press_enter=true)", "type_string(id=3, content='a', press_enter=True)"),
        (WEB, "type_string(3, 'a', press_enter=false)", "type_string(3, 'a')"),
        (WEB, "finish(None)", "finish()"),
        (WEB, r"jump_to('C:\dir')", r"jump_to('C:\\dir')"),
    ],
)
def test_spellings_of_one_action(space, text, same):
    assert isinstance(space.parse(text), Action)
    assert space.parse(text) == space.parse(same)


@BOTH
def test_the_prompt_lists_what_the_grammar_parses(space):
    lines = space.listing().splitlines()
    assert len(lines) == len(space.listed_specs)
    for line, spec in zip(lines, space.listed_specs, strict=True):
        form, doc = line.split(" - ", 1)
        assert doc == spec.doc
        for choice in re.findall(r"[a-z]+(?:\|[a-z]+)+", form)[:1] or [""]:
            for word in choice.split("|"):
                filled = (form.replace(choice, word) if choice else form).replace("N", "7")
                filled = filled if space.syntax == "json" else filled.replace(f"={word}", f"='{word}'" if word else "=")
                parsed = space.parse(filled)
                assert isinstance(parsed, Action), (filled, parsed)
                assert parsed.type == spec.name


def test_the_two_spaces():
    assert len(MOBILE.listed_specs) == 14
    assert len(WEB.listed_specs) == 10
    assert set(MOBILE.types) - {spec.name for spec in MOBILE.listed_specs} == {
        *("drag", "press_keys", "open_recents", "ask_user")
    }
    assert {"mobile": MOBILE, "web": WEB} == SPACES


# --------------------------------------------------------------------------------------------- canonical form


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(400))
@given(any_action, screens())
def test_canonical_is_idempotent_and_stays_in_the_grammar(drawn, screen):
    space, action = drawn
    once = space.canonical(action, screen)
    assert space.canonical(once, screen) == once
    assert space.parse(space.format(once)) == once
    assert not isinstance(once.target, Point) or (once.target.space == "pixel" and isinstance(once.target.x, int))


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(400))
@given(screens(), st.data())
def test_a_point_and_the_element_under_it_are_one_target(screen, data):
    x = data.draw(st.integers(0, screen.width - 1))
    y = data.draw(st.integers(0, screen.height - 1))
    inside = data.draw(st.sampled_from([0, 0.5, 0.99]))
    canonical = MOBILE.canonical(MOBILE.make("click", x=x + inside, y=y + inside), screen)
    element = innermost(screen, x, y)
    assert find_element_at(screen, x, y) == element
    if element is None or "surface" in element.flags:
        assert canonical.target == Point(x=x, y=y)
    else:
        assert canonical == MOBILE.canonical(MOBILE.make("click", index=element.index), screen)


@settings(deadline=None)
@given(screens(), FRACTIONS, FRACTIONS)
def test_fractions_and_pixels_are_one_point(screen, x, y):
    pixels = {"x": min(x * screen.width, screen.width - 1), "y": min(y * screen.height, screen.height - 1)}
    fractions = MOBILE.make("long_press", x=x, y=y, normalised=True)
    assert MOBILE.canonical(fractions, screen) == MOBILE.canonical(MOBILE.make("long_press", **pixels), screen)


@settings(deadline=None)
@given(screens(), st.integers(100, 1000), st.integers(-1000, -1))
def test_a_point_outside_all_boxes_stays(screen, x, y):
    assert MOBILE.canonical(MOBILE.make("click", x=x, y=y), screen).target == Point(x=x, y=y)


@settings(deadline=None)
@given(st.lists(actions(MOBILE), min_size=2, max_size=2), screens())
def test_canonical_keeps_type_and_fields_apart(pair, screen):
    one, other = (MOBILE.canonical(action, screen) for action in pair)
    if pair[0].type != pair[1].type:
        assert one != other
    for before, after in zip(pair, (one, other), strict=True):
        # An end of a drag may become an element, as its start may.
        if before.type != "drag":
            assert [name for name, _ in before.arguments] == [name for name, _ in after.arguments]


BOARD = Observation(
    space="web",
    title="",
    text="",
    elements=(
        Element(index=0, role="button", label="a", box=Box(0, 0, 40, 40)),
        Element(index=1, role="item", label="b", box=Box(60, 0, 100, 40)),
        Element(index=2, role="canvas", label="", box=Box(0, 60, 100, 100), flags=("surface",)),
        Element(index=3, role="text", label="words", box=Box(0, 120, 100, 140)),
    ),
    width=200,
    height=200,
)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("click", {"x": 3, "y": 3}), ("click", {"id": 0})),
        (("right_click", {"x": 39.9, "y": 39}), ("right_click", {"id": 0})),
        (("click", {"x": 0.1, "y": 0.1, "normalised": True}), ("click", {"id": 0})),
        (("type_string", {"x": 20, "y": 20, "content": "a"}), ("type_string", {"id": 0, "content": "a"})),
        (("drag", {"x": 15, "y": 20, "to_x": 85, "to_y": 25}), ("drag", {"id": 0, "to_id": 1})),
        (("drag", {"id": 0, "to_x": 85, "to_y": 25.5}), ("drag", {"id": 0, "to_id": 1})),
        (("drag", {"x": 15, "y": 20, "to_x": 50, "to_y": 80}), ("drag", {"id": 0, "to_x": 50, "to_y": 80})),
        (("click", {"id": 0, "hold": "Shift+Control"}), ("click", {"x": 3, "y": 3, "hold": "ctrl+shift"})),
        (("hover", {"x": 20, "y": 20}), ("hover", {"id": 0})),
        (("hover", {"x": 0.1, "y": 0.1, "normalised": True}), ("hover", {"id": 0})),
        (("press_keys", {"keys": "Control+A"}), ("press_keys", {"keys": "ctrl + a"})),
        (("press_keys", {"keys": "shift+ctrl+Return"}), ("press_keys", {"keys": "ctrl+shift+enter"})),
        (("press_keys", {"keys": "ctrl++"}), ("press_keys", {"keys": "ctrl+plus"})),
    ],
)
def test_votes_for_an_index_and_for_a_point_in_its_box_are_one_action(one, other):
    first, second = (WEB.canonical(WEB.make(name, **fields), BOARD) for name, fields in (one, other))
    assert first == second


@pytest.mark.parametrize(
    "fields",
    [
        {"x": 1, "y": 20, "to_x": 80, "to_y": 39},  # at the rims
        {"x": 50, "y": 80, "to_x": 80, "to_y": 90},  # on a surface
        {"x": 20, "y": 130, "to_x": 70, "to_y": 130},  # over a text
        {"x": 15, "y": 20, "to_x": 25, "to_y": 20},  # within one element
        {"to_x": 80, "to_y": 90, "hold": "shift"},  # from where the mouse is
    ],
)
def test_a_drag_keeps_the_points_that_mean_more_than_an_element(fields):
    drag = WEB.make("drag", **fields)
    assert WEB.canonical(drag, BOARD) == drag


def test_a_hover_over_a_text_keeps_the_point_where_a_drag_may_begin():
    hover = WEB.make("hover", x=3, y=130)
    assert WEB.canonical(hover, BOARD) == hover


EMPTY = Observation(space="mobile", title="", text="", elements=())


@pytest.mark.parametrize(
    ("space", "one", "other", "equal"),
    [
        (MOBILE, ("open_app", {"app_name": " Simple Calendar"}), ("open_app", {"app_name": "simple calendar "}), True),
        (MOBILE, ("answer", {"text": " 7 "}), ("answer", {"text": "7"}), True),
        (MOBILE, ("answer", {"text": "Yes"}), ("answer", {"text": "yes"}), False),
        (MOBILE, ("input_text", {"text": "a "}), ("input_text", {"text": "a"}), False),
        (MOBILE, ("input_text", {"text": "a", "clear_text": True}), ("input_text", {"text": "a"}), False),
        (MOBILE, ("scroll", {"direction": "up"}), ("scroll", {"direction": "down"}), False),
        (MOBILE, ("scroll", {"direction": "up", "index": 1}), ("scroll", {"direction": "up"}), False),
        (WEB, ("select", {"id": 1, "option": "Red "}), ("select", {"id": 1, "option": "Red"}), True),
        (WEB, ("type_string", {"id": 1, "content": "a "}), ("type_string", {"id": 1, "content": "a"}), False),
        (WEB, ("finish", {"answer": "7 "}), ("finish", {"answer": "7"}), True),
        (WEB, ("finish", {}), ("finish", {"answer": "7"}), False),
    ],
)
def test_which_fields_make_a_difference(space, one, other, equal):
    first, second = (space.canonical(space.make(name, **fields), EMPTY) for name, fields in (one, other))
    assert (first == second) is equal


# ---------------------------------------------------------------------------------------------------- in words


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(300))
@given(any_action, screens())
def test_describe_gives_one_line(drawn, screen):
    space, action = drawn
    for observation in (None, screen, EMPTY):
        words = space.describe(action, observation)
        assert words
        assert not re.search(r"[\x00-\x1f]", words)


def test_describe_names_the_element():
    screen = Observation(
        space="mobile",
        title="",
        text="",
        elements=(
            Element(index=0, role="button", label="Save\nall"),
            Element(index=1, role="input", label=""),
        ),
    )
    said = [
        (MOBILE.make("click", index=0), 'tap button "Save all"'),
        (MOBILE.make("click", index=9), "tap element 9"),
        (MOBILE.make("click", x=3, y=4.5), "tap (3, 4.5)"),
        (MOBILE.make("click", x=0.25, y=1, normalised=True), "tap (0.25, 1) of the screen"),
        (MOBILE.make("input_text", text='say "hi"\n', index=1), 'type "say \\"hi\\"\\n" into input without a label'),
        (MOBILE.make("input_text", text="{target}"), 'type "{target}"'),
        (MOBILE.make("scroll", direction="down"), "scroll down"),
        (MOBILE.make("scroll", direction="down", index=0), 'scroll down in button "Save all"'),
        (MOBILE.make("status", goal_status="complete"), "declare the task complete"),
        (WEB.make("select", id=0, option="Red"), 'select "Red" in button "Save all"'),
        (WEB.make("switch_tab", i=2), "switch to tab 2"),
        (WEB.make("finish"), "finish"),
        (WEB.make("drag", id=0, to_x=3, to_y=4), 'drag to (3, 4) from button "Save all"'),
        (WEB.make("drag", to_x=3, to_y=4), "drag to (3, 4)"),
        (WEB.make("click", id=0, hold="Control"), 'click button "Save all" with Control held'),
        (WEB.make("right_click", id=0), 'right-click button "Save all"'),
        (WEB.make("press_keys", keys="ctrl+a"), 'press the keys "ctrl+a"'),
        (MOBILE.make("open_recents"), "open the recent apps"),
        (MOBILE.make("ask_user", question="Which?"), 'ask the user "Which?"'),
    ]
    for action, words in said:
        assert SPACES[action.space].describe(action, screen) == words


# --------------------------------------------------------------------------------------------------- refusals

MOBILE_TYPES = ", ".join(MOBILE.types)
WEB_TYPES = ", ".join(WEB.types)

REFUSED = [
    (MOBILE, "", "malformed", "not JSON: '' (JSONDecodeError)"),
    (MOBILE, "click 7", "malformed", "not JSON: 'click 7' (JSONDecodeError)"),
    (MOBILE, "[1]", "malformed", "not a JSON object: '[1]'"),
    (MOBILE, '{"action_type": "wait"} {}', "malformed", """not JSON: '{"action_type": "wait"} {}' (JSONDecodeError)"""),
    (MOBILE, "{}", "unknown_type", f"action None, allowed: {MOBILE_TYPES}"),
    (MOBILE, '{"action_type": "tap", "index": 1}', "unknown_type", f"action 'tap', allowed: {MOBILE_TYPES}"),
    (MOBILE, '{"action_type": ["click"]}', "unknown_type", f"action ['click'], allowed: {MOBILE_TYPES}"),
    (MOBILE, '{"type": "click", "index": 1}', "bad_field", "no field 'type', allowed: action_type"),
    (MOBILE, '{"action_type": "click", "index": 1, "index": 2}', "bad_field", "'index' given twice"),
    (MOBILE, '{"action_type": "click"}', "missing_field", "click needs index or x and y"),
    (MOBILE, '{"action_type": "click", "index": null}', "missing_field", "click needs index or x and y"),
    (MOBILE, '{"action_type": "scroll"}', "missing_field", "scroll needs direction"),
    (MOBILE, '{"action_type": "status"}', "missing_field", "status needs goal_status"),
    (MOBILE, '{"action_type": "click", "index": -1}', "bad_field", "click: index is -1, allowed: one index ≥ 0"),
    (MOBILE, '{"action_type": "click", "index": 1.5}', "bad_field", "click: index is 1.5, allowed: one index ≥ 0"),
    (MOBILE, '{"action_type": "click", "index": true}', "bad_field", "click: index is True, allowed: one index ≥ 0"),
    (MOBILE, '{"action_type": "click", "index": 1e400}', "bad_field", "click: index is inf, allowed: one index ≥ 0"),
    (MOBILE, '{"action_type": "click", "index": 1, "x": 2}', "bad_field", "click: index is 1, allowed: one index ≥ 0"),
    (
        MOBILE,
        '{"action_type": "click", "index": 1, "normalised": true}',
        "bad_field",
        "click: index is 1, allowed: one index ≥ 0",
    ),
    (MOBILE, '{"action_type": "click", "x": 2}', "bad_field", "click: point (2, None), allowed: two numbers"),
    (MOBILE, '{"action_type": "click", "x": NaN, "y": 1}', "bad_field", "click: point (nan, 1), allowed: two numbers"),
    (
        MOBILE,
        '{"action_type": "click", "x": 2, "y": 0, "normalised": true}',
        "bad_field",
        "click: normalised point (2, 0), allowed: fractions in [0, 1]",
    ),
    (
        MOBILE,
        '{"action_type": "click", "x": 1, "y": 0, "normalised": "maybe"}',
        "bad_field",
        "click: normalised is 'maybe', allowed: true or false",
    ),
    (MOBILE, '{"action_type": "wait", "index": 1}', "bad_field", "wait takes no target"),
    (MOBILE, '{"action_type": "wait", "normalised": true}', "bad_field", "wait takes no target"),
    (MOBILE, '{"action_type": "wait", "text": "a"}', "bad_field", "wait has no field 'text', allowed: none"),
    (
        MOBILE,
        '{"action_type": "scroll", "direction": "down", "text": "a"}',
        "bad_field",
        "scroll has no field 'text', allowed: index, direction",
    ),
    (
        MOBILE,
        '{"action_type": "scroll", "direction": "in"}',
        "bad_field",
        "scroll: direction is 'in', allowed: up or down or left or right",
    ),
    (MOBILE, '{"action_type": "answer", "text": {}}', "bad_field", "answer: text is {}, allowed: text"),
    (MOBILE, '{"action_type": "answer", "text": "\\ud800"}', "bad_field", "answer: text is '\\ud800', allowed: text"),
    (MOBILE, '{"action_type": "answer", "text": NaN}', "bad_field", "answer: text is nan, allowed: text"),
    (
        MOBILE,
        '{"action_type": "input_text", "text": "a", "clear_text": 1}',
        "bad_field",
        "input_text: clear_text is 1, allowed: true or false",
    ),
    (WEB, "", "malformed", "not a call: '' (SyntaxError)"),
    (WEB, "click(id=", "malformed", "not a call: 'click(id=' (SyntaxError)"),
    (WEB, "click", "malformed", "not a call: 'click'"),
    (WEB, "page.click(1)", "malformed", "not a call: 'page.click(1)'"),
    (WEB, "tap(1)", "unknown_type", f"action 'tap', allowed: {WEB_TYPES}"),
    (WEB, "click()", "missing_field", "click needs id or x and y"),
    (WEB, "drag(1)", "missing_field", "drag needs to_id or to_x and to_y"),
    (WEB, "drag(1, to_x=3)", "bad_field", "drag: point (3, None), allowed: two numbers"),
    (WEB, "drag(1, to_id=2, to_x=3)", "bad_field", "drag: to_id is 2, allowed: one index ≥ 0"),
    (WEB, "drag(1, 2, keys='a')", "bad_field", "drag has no field 'keys', allowed: id, to_id, hold"),
    (WEB, "drag(to_x=3)", "bad_field", "drag: point (3, None), allowed: two numbers"),
    (WEB, "drag()", "missing_field", "drag needs to_id or to_x and to_y"),
    (WEB, "select(1)", "missing_field", "select needs option"),
    (WEB, "click(1, 2)", "bad_field", "click takes 1 arguments, got 2"),
    (WEB, "click(1, id=1)", "bad_field", "click: argument 'id' given twice or unpacked"),
    (WEB, "click(**{})", "bad_field", "click: argument None given twice or unpacked"),
    (WEB, "click(*[1])", "bad_field", "click: an argument is not a plain value"),
    (WEB, "click(id=open('x'))", "bad_field", "click: an argument is not a plain value"),
    (WEB, "click(id=[1])", "bad_field", "click: id is [1], allowed: one index ≥ 0"),
    (WEB, "click(id=1, x=3)", "bad_field", "click: id is 1, allowed: one index ≥ 0"),
    (WEB, f"click(id=0x{'f' * 5000})", "bad_field", "click: id is something huge, allowed: one index ≥ 0"),
    (WEB, f"select(1, 0x{'f' * 5000})", "bad_field", "select: option is something huge, allowed: text"),
    (WEB, "switch_tab(i='last')", "bad_field", "switch_tab: i is 'last', allowed: a whole number"),
    (WEB, "go('sideways')", "bad_field", "go: direction is 'sideways', allowed: forward or backward"),
]


@pytest.mark.parametrize(("space", "text", "kind", "detail"), REFUSED)
def test_a_refusal_says_what_stood_there_and_what_is_allowed(space, text, kind, detail):
    assert space.parse(text) == ParseFailure(kind=kind, detail=detail)


def test_an_index_that_is_not_on_the_screen():
    screen = replace(
        EMPTY, elements=(Element(index=0, role="text", label="a"), Element(index=1, role="text", label="b"))
    )
    assert MOBILE.check(MOBILE.make("click", index=1), screen) is None
    assert MOBILE.check(MOBILE.make("click", x=500, y=500), screen) is None
    assert MOBILE.check(MOBILE.make("wait"), EMPTY) is None
    assert MOBILE.check(MOBILE.make("click", index=2), screen) == ParseFailure(
        kind="no_such_element", detail="index 2, the screen has 0 to 1"
    )
    assert WEB.check(WEB.make("click", id=0), EMPTY) == ParseFailure(
        kind="no_such_element", detail="id 0, the screen has no elements"
    )
    assert WEB.check(WEB.make("drag", id=0, to_id=7), BOARD) == ParseFailure(
        kind="no_such_element", detail="to_id 7, the screen has 0 to 3"
    )


def test_a_point_that_is_not_on_the_screen():
    assert WEB.check(WEB.make("click", x=199, y=0), BOARD) is None
    for action in (WEB.make("click", x=200, y=9), WEB.make("drag", id=0, to_x=200, to_y=9)):
        assert WEB.check(action, BOARD) == ParseFailure(
            kind="outside", detail="point (200, 9) is outside the screen of 200 × 200 pixels"
        )
    refused = read_reply("Action: click(x=5000, y=3)", WEB, BOARD)
    assert refused.failure is not None
    assert refused.failure.kind == "outside"


def test_make_raises_where_parse_refuses():
    with pytest.raises(ValueError, match=r"mobile\.click: click needs index or x and y"):
        MOBILE.make("click")
    with pytest.raises(ValueError, match=r"web\.tap: action 'tap', allowed: click"):
        WEB.make("tap", id=1)
    with pytest.raises(KeyError):
        MOBILE.spec("tap")


def test_arguments_follow_the_grammar_and_leave_defaults_out():
    action = WEB.make("type_string", press_enter=True, content="a", id=1)
    assert action.arguments == (("content", "a"), ("press_enter", True))
    assert WEB.make("type_string", press_enter=False, content="a", id=1).arguments == (("content", "a"),)
    assert action["content"] == "a"
    assert action.get("press_enter", False) is True
    assert WEB.make("finish").get("answer", "none") == "none"
    with pytest.raises(KeyError):
        WEB.make("finish")["answer"]


# ------------------------------------------------------------------------------------------------------ hostile

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
field_names = st.sampled_from(["index", "x", "y", "normalised", "text", "direction", "clear_text", "id", "type"])
wild_objects = st.builds(
    lambda type, fields: {"action_type": type, **fields},
    st.sampled_from(MOBILE.types) | json_values,
    st.dictionaries(field_names, json_values, max_size=4),
)
wild_calls = st.builds(
    lambda name, fields: f"{name}({', '.join(f'{key}={value!r}' for key, value in fields.items())})",
    st.sampled_from(WEB.types) | st.text(max_size=5),
    st.dictionaries(st.sampled_from(["id", "option", "content", "press_enter", "i", "x"]), json_values, max_size=3),
)


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(500))
@given(wild_objects.map(json.dumps) | wild_calls | st.text(st.characters()))
def test_whatever_is_read_gives_an_action_or_a_failure(text):
    for space in (MOBILE, WEB):
        parsed = space.parse(text)
        if isinstance(parsed, Action):
            assert space.parse(space.format(parsed)) == parsed
            space.format(parsed).encode()
        else:
            assert isinstance(parsed, ParseFailure)
            assert parsed.detail
            parsed.detail.encode()


@pytest.mark.variations
@pytest.mark.parametrize("depth", [*range(150, 1000, 50), *range(960, 1000), 100_000])
def test_deep_nesting_is_refused(depth):
    nest = "[" * depth + "]" * depth
    assert isinstance(MOBILE.parse(f'{{"action_type": {nest}}}'), ParseFailure)
    assert isinstance(MOBILE.parse(f'{{"action_type": "click", "index": {nest}}}'), ParseFailure)
    assert isinstance(WEB.parse(f"click(id={nest})"), ParseFailure)
    assert isinstance(WEB.parse(f"click(id={'-' * depth}1)"), ParseFailure)
