import pytest

from collab.envs.android.device_drive import Driver
from collab.envs.android.device_screen import DumpError, observe, read_dump
from collab.envs.simphone.apps import clock, messages, settings
from collab.envs.simphone.apps.system import open_quick_settings, open_recents, open_shade
from collab.envs.simphone.core import FACTORY, SimPhone
from collab.envs.simphone.state import HEIGHT, WIDTH, start
from collab.envs.simphone.suite import SimPhoneSuite
from collab.envs.simphone.ui.hierarchy import build_hierarchy, dump
from collab.envs.simphone.ui.screen import look

SUITE = SimPhoneSuite()


def through_dump(phone):
    return read_dump(dump(build_hierarchy(phone)), width=WIDTH, height=HEIGHT)


@pytest.mark.parametrize("name", [info.name for info in SUITE.tasks()])
def test_a_dump_gives_back_the_elements_of_every_screen_on_the_way_to_the_solution(name):
    phone = SimPhone()
    phone.reset(SUITE.instance(name, seed=3))
    actions = phone.oracle()
    assert actions
    for action in actions:
        seen, read = phone.frame.observation.elements, through_dump(phone.phone).elements
        assert [_plain(one) for one in read] == [_plain(one) for one in seen], phone.frame.observation.title
        phone.step(action)


def test_a_dump_gives_back_the_elements_of_the_systems_own_screens():
    phone = FACTORY
    for package in (clock.PACKAGE, settings.PACKAGE):
        phone = start(phone, package, phone.apps.by_package[package].pages)
    phone = messages.receive(phone, "+15550001", "Are you in?")
    for shown in (open_shade(phone), open_shade(FACTORY), open_quick_settings(phone), open_recents(phone)):
        seen, read = look(shown).observation, through_dump(shown)
        assert [_plain(one) for one in read.elements] == [_plain(one) for one in seen.elements], seen.title


def _plain(element):
    """What both sides must agree on; text in attributes loses nothing but the emptiness of a second line."""
    flags = frozenset(element.flags)
    value = element.value if element.role == "input" else element.value or None
    return element.role, element.label, value, flags, element.box, element.key


def view(text="", kind="TextView", bounds="[0,200][1080,300]", children="", **flags):
    more = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in flags.items())
    return f'<node text="{text}" class="android.widget.{kind}" package="p" bounds="{bounds}"{more}>{children}</node>'


def read(*views, window="[0,0][1080,2400]"):
    inside = "".join(views)
    xml = f'<hierarchy><node package="p" class="FrameLayout" bounds="{window}">{inside}</node></hierarchy>'
    return read_dump(xml, width=1080, height=2400)


def test_a_touchable_layout_takes_over_its_texts_and_its_switch():
    parts = view("Wi-Fi") + view("Connected") + view(kind="Switch", checkable="true", checked="true")
    (row,) = read(view(kind="LinearLayout", clickable="true", children=parts)).elements
    assert (row.role, row.label, row.value, row.flags) == ("switch", "Wi-Fi", "Connected", ("checked",))


def test_a_layout_as_large_as_the_screen_swallows_nothing():
    screen = read(view(kind="FrameLayout", clickable="true", bounds="[0,0][1080,2400]", children=view("a") + view("b")))
    assert [one.label for one in screen.elements] == ["a", "b"]


def test_a_button_inside_a_touchable_row_stays_an_element():
    parts = view("Ada") + view("Call", kind="Button", clickable="true")
    elements = read(view(kind="LinearLayout", clickable="true", children=parts)).elements
    assert [(one.role, one.label) for one in elements] == [("list item", "Ada"), ("button", "Call")]


def test_keyboard_and_status_bar_are_no_elements():
    bar = '<node package="com.android.systemui" bounds="[0,0][1080,100]" text="15:34" class="TextView"/>'
    keys = '<node package="org.inputmethod.x" bounds="[0,1500][1080,2400]" text="q" class="Key"/>'
    screen = read_dump(f"<hierarchy>{bar}{view('hello')}{keys}</hierarchy>", width=1080, height=2400)
    assert [one.label for one in screen.elements] == ["hello"]
    assert screen.keyboard
    assert screen.package == "p"
    observation = observe(screen, app="P", notice="Saved", width=1080, height=2400)
    assert "Message: Saved" in observation.text
    assert "The keyboard is open." in observation.text


def test_an_input_that_shows_its_hint_is_empty():
    elements = read(view("Name", kind="EditText", hint="Name"), view("Ada", kind="EditText", hint="Name")).elements
    assert [(one.label, one.value) for one in elements] == [("Name", ""), ("Name", "Ada")]


@pytest.mark.parametrize("xml", ["", "<hierarchy>", "not xml", "<a>&undefined;</a>"])
def test_a_broken_dump_is_one_clear_error(xml):
    with pytest.raises(DumpError):
        read_dump(xml, width=1080, height=2400)


def test_views_beside_the_screen_are_left_out_and_others_cut():
    elements = read(view("gone", bounds="[0,2500][100,2600]"), view("cut", bounds="[-50,0][100,5000]")).elements
    assert [(one.label, tuple(one.box)) for one in elements] == [("cut", (0, 0, 100, 2400))]


@pytest.mark.parametrize("levels", [60, 3000])
def test_a_view_is_seen_however_deep_it_lies(levels):
    layouts = "".join(view(kind="FrameLayout", bounds="[0,0][1080,2400]")[: -len("</node>")] for _ in range(levels))
    screen = read(layouts + view("deep down", kind="Button", clickable="true") + "</node>" * levels)
    assert [(one.role, one.label) for one in screen.elements] == [("button", "deep down")]


def test_the_whole_depth_of_a_device_is_asked_for(monkeypatch):
    asked = {}

    class Device:
        def dump_hierarchy(self, **options):
            asked.update(options)
            return "<hierarchy />"

        def window_size(self):
            return 1080, 2400

    driver = Driver.__new__(Driver)
    driver._device = Device()
    assert driver.screen(0).elements == ()
    assert asked["max_depth"] > 500
