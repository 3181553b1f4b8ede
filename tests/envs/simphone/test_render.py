import io
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageChops

from collab.envs.overlay import COLOURS, draw_marks, mark_png
from collab.envs.simphone.ui.icons import find_sketch
from collab.envs.simphone.ui.render import RENDERER, render, render_png
from collab.envs.simphone.ui.roles import PAINTERS
from collab.errors import UsageError
from collab.types import Box, Element, Observation
from tests.properties import examples

ROW = Box(0, 400, 1080, 600)
BARE = Observation(
    space="mobile",
    title="Contacts",
    text="",
    elements=(),
    renderer=RENDERER,
    drawing={"app": "Contacts", "app_bar": "Contacts", "clock": "15:34"},
)


def screen(*elements: Element, **drawing) -> Observation:
    return replace(BARE, elements=elements, drawing={**BARE.drawing, **drawing})


def thing(role: str, label: str = "Ada", box: Box = ROW, index: int = 0, **rest) -> Element:
    return Element(index=index, role=role, label=label, box=box, **rest)


def changed(one: Image.Image, other: Image.Image) -> Box | None:
    """Smallest box around all pixels that differ."""
    box = ImageChops.difference(one, other).getbbox()
    return None if box is None else Box(*box)


def inside(box: Box | None, outer: Box) -> bool:
    return (
        box is not None
        and outer.left <= box.left
        and outer.top <= box.top
        and box.right <= outer.right
        and box.bottom <= outer.bottom
    )


@pytest.mark.parametrize("role", [*PAINTERS, "something new"])
def test_every_role_is_drawn_in_its_box(role):
    empty = render(screen(thing("app", "", Box(0, 0, 0, 0))) if role == "app" else BARE)
    drawn = render(screen(thing(role)))
    assert drawn.size == (1080, 2400)
    if role == "app":  # the launcher's wallpaper differs too
        assert drawn.getpixel((540, 470)) != render(screen(thing("app", "", Box(0, 0, 1, 1)))).getpixel((540, 470))
    else:
        assert inside(changed(empty, drawn), ROW)


@pytest.mark.parametrize(
    ("role", "plain", "other"),
    [
        ("switch", {}, {"flags": ("checked",)}),
        ("checkbox", {}, {"flags": ("checked",)}),
        ("radio", {}, {"flags": ("checked",)}),
        ("chip", {}, {"flags": ("selected",)}),
        ("tab", {}, {"flags": ("selected",)}),
        ("list item", {}, {"flags": ("selected",)}),
        ("list item", {}, {"value": "second line"}),
        ("button", {}, {"flags": ("disabled",)}),
        ("input", {"value": ""}, {"value": "", "flags": ("focused",)}),
        ("input", {"value": "abc"}, {"value": "abc", "flags": ("password",)}),
        ("slider", {"value": "10%"}, {"value": "90%"}),
        ("text", {}, {"value": "more"}),
        ("icon", {"label": "Search"}, {"label": "Delete"}),
    ],
)
def test_a_state_shows_and_stays_in_its_box(role, plain, other):
    one, two = (render(screen(thing(role, **rest))) for rest in (plain, other))
    assert inside(changed(one, two), ROW)


def test_a_slider_shows_its_position():
    def thumb(value: str) -> int:
        image = render(screen(thing("slider", value=value)))
        row = [image.getpixel((x, ROW.bottom - 48 - 25)) for x in range(1080)]
        blue = [x for x, colour in enumerate(row) if colour[2] > colour[0] + 60]
        return sum(blue) // len(blue)

    positions = [thumb(value) for value in ("0%", "25%", "50%", "100%")]
    assert positions == sorted(set(positions))
    assert abs(positions[2] - 540) < 5


@pytest.mark.parametrize(
    ("drawing", "where"),
    [
        ({"clock": "16:00"}, Box(0, 0, 400, 128)),
        ({"keyboard": True}, Box(0, 1517, 1080, 2400)),
        ({"toast": "Contact saved"}, Box(0, 2000, 1080, 2200)),
        ({"app_bar": None}, Box(0, 0, 1080, 296)),
        ({"dark": True}, Box(0, 0, 1080, 2400)),
        ({"dialog": [120, 800, 960, 1400]}, Box(0, 0, 1080, 2400)),
    ],
)
def test_the_drawing_around_the_elements(drawing, where):
    difference = changed(render(BARE), render(screen(**drawing)))
    assert inside(difference, where)


def test_a_dialog_is_lighter_than_its_scrim():
    image = render(screen(dialog=[120, 800, 960, 1400]))
    assert sum(image.getpixel((540, 1100))) > sum(image.getpixel((540, 500))) + 100


def test_the_same_screen_gives_the_same_picture():
    observation = screen(thing("input", value="Zürich"), keyboard=True)
    assert render_png(observation) == render_png(observation)
    picture = Image.open(io.BytesIO(render_png(observation)))
    assert picture.format == "PNG"
    assert picture.size == (1080, 2400)


def test_a_screen_of_another_renderer_is_refused():
    for other in (None, "simphone-2"):
        with pytest.raises(UsageError, match="simphone-1"):
            render(replace(BARE, renderer=other))


def test_the_phone_names_this_renderer():
    from collab.envs.simphone.ui.screen import RENDERER as named

    assert named == RENDERER


def test_icons_are_found_by_words():
    assert find_sketch("Navigate up") is find_sketch("Back")
    assert find_sketch("Delete note") is not find_sketch("Add note")
    assert find_sketch("Xylophone") is None


boxes = st.builds(
    lambda left, top, width, height: Box(left, top, left + width, top + height),
    st.integers(-50, 1200),
    st.integers(-50, 2500),
    st.integers(-5, 1200),
    st.integers(-5, 700),
)
hostile = st.text(st.characters(), max_size=30) | st.sampled_from(
    [
        "😀👨‍👩‍👧",
        "שלום",
        "مرحبا",
        "漢字",
        "a\nb\tc",
        "x" * 300,
        "\ud800",
        "\x00",
        "100%",
        "nan%",
        "1e9%",
        "²%",
        "\u200f",
    ]
)
elements = st.lists(
    st.builds(
        lambda role, label, value, box, flags: Element(
            index=0, role=role, label=label, value=value, box=box, flags=tuple(flags)
        ),
        st.sampled_from([*PAINTERS, "?"]),
        hostile,
        st.none() | hostile,
        st.none() | boxes,
        st.lists(st.sampled_from(["checked", "selected", "focused", "disabled", "password"]), max_size=2),
    ),
    max_size=4,
)


@settings(deadline=None, max_examples=examples(150))
@given(elements, hostile, st.booleans(), st.sampled_from([None, "shade", "overview"]))
def test_no_screen_breaks_the_renderer(drawn, words, marks, surface):
    numbered = tuple(replace(element, index=index) for index, element in enumerate(drawn))
    observation = screen(
        *numbered, toast=words, clock=words, keyboard=marks, surface=surface, notifications=[words] * 9
    )
    assert render(observation, marks=marks, taps=[(5, 2399, words)]).size == (1080, 2400)


@pytest.mark.parametrize(("surface", "role"), [("shade", "switch"), ("shade", "list item"), ("overview", "app")])
def test_the_systems_screens_draw_in_their_box_and_in_another_way(surface, role):
    box = Box(0, 400, 540, 1400) if role == "app" else ROW
    card = thing(role, "Clock: Time's up", box, value="now", flags=("checked",))
    empty, drawn = render(screen(surface=surface)), render(screen(card, surface=surface))
    assert inside(changed(empty, drawn), box)
    assert changed(drawn, render(screen(replace(card, value="then"), surface=surface))) is not None
    assert drawn.crop((0, 400, 1080, 600)).tobytes() != render(screen(card)).crop((0, 400, 1080, 600)).tobytes()


def test_notifications_have_icons_beside_the_clock():
    told = render(screen(notifications=["Clock", "com.unknown"]))
    assert inside(changed(render(BARE), told), Box(52, 0, 500, 128))


# --------------------------------------------------------------------------------------------- numbered boxes


def colours_of(image: Image.Image) -> dict[tuple[int, int, int], int]:
    return {colour: count for count, colour in image.getcolors(1 << 24)}


def test_every_element_gets_a_numbered_box_in_its_colour():
    rows = [thing("text", f"Row {n}", Box(0, 400 + 150 * n, 1080, 550 + 150 * n), n) for n in range(7)]
    before, after = (colours_of(render(screen(*rows), marks=marks)) for marks in (False, True))
    for colour in COLOURS:
        assert after.get(colour, 0) > before.get(colour, 0) + 2000


def test_numbers_in_one_corner_do_not_cover_each_other():
    box = Box(100, 100, 500, 400)
    nested = [thing("text", "", box, index) for index in range(3)]
    image = Image.new("RGB", (1080, 2400), "white")
    draw_marks(image, screen(*nested))
    filled = colours_of(image.crop((110, 110, 490, 390)))
    assert all(filled.get(colour, 0) > 500 for colour in COLOURS[:3])


def test_marks_scale_with_the_picture_and_stay_on_it():
    element = thing("text", "", Box(540, 1200, 1200, 2600))
    buffer = io.BytesIO()
    Image.new("RGB", (540, 1200), "white").save(buffer, "PNG")
    marked = Image.open(io.BytesIO(mark_png(buffer.getvalue(), screen(element)))).convert("RGB")
    assert marked.size == (540, 1200)
    difference = changed(Image.new("RGB", (540, 1200), "white"), marked)
    assert difference == Box(270, 600, 540, 1200)


def test_elements_without_a_place_are_not_marked():
    image = Image.new("RGB", (1080, 2400), "white")
    draw_marks(
        image,
        screen(
            thing("text", "", None), thing("text", "", Box(10, 10, 10, 20)), thing("text", "", Box(2000, 0, 2100, 9))
        ),
    )
    assert changed(image, Image.new("RGB", (1080, 2400), "white")) is None


def test_small_pages_can_be_marked():
    page = replace(BARE, width=160, height=210, elements=(thing("button", "ok", Box(5, 60, 45, 80)),))
    image = Image.new("RGB", (160, 210), "white")
    draw_marks(image, page)
    assert changed(image, Image.new("RGB", (160, 210), "white")) == Box(5, 60, 45, 80)


def test_touches_are_shown():
    difference = changed(render(BARE), render(BARE, taps=[(500, 900, "a")]))
    assert inside(difference, Box(450, 850, 550, 950))
