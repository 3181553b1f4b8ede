"""The pointer and the keyboard on a live page: points, all buttons, drags, keys, and typing at the cursor."""

from collections.abc import Callable

import pytest

from collab.envs.grammar import WEB
from collab.envs.text import find_element_at
from tests.envs.web.live.site import Player

pytestmark = pytest.mark.browser

PAGE = """<title>Pointer</title>
<style>body {margin: 0} div, button, input {position: absolute; box-sizing: border-box}</style>
<button id="b" style="left: 20px; top: 20px; width: 200px; height: 60px">Press me</button>
<div id="s" style="left: 300px; top: 20px; width: 200px; height: 100px; overflow: auto">
  <p style="margin: 900px 0 0">Deep</p></div>
<input id="f" aria-label="Name" value="Ada" style="left: 20px; top: 140px; width: 200px; height: 40px">
<div id="i" draggable="true" style="left: 20px; top: 220px; width: 80px; height: 40px; background: red">Item</div>
<div id="t" style="left: 300px; top: 220px; width: 150px; height: 100px; border: 1px solid">Bin</div>
<div role="status" id="log" style="left: 20px; top: 400px; width: 900px; height: 40px">nothing</div>
<script>
const held = (e) => `${e.altKey ? " alt" : ""}${e.shiftKey ? " shift" : ""}`;
const log = (text) => { document.getElementById("log").textContent = text; };
for (const kind of ["click", "dblclick", "auxclick", "contextmenu"])
  addEventListener(kind, (e) => log(`${kind} ${e.button} ${e.detail} at ${e.clientX},${e.clientY}${held(e)}`));
document.getElementById("s").onscroll = () => log("scrolled inside");
document.getElementById("t").ondragover = (e) => e.preventDefault();
document.getElementById("t").ondrop = (e) => { e.preventDefault(); log("dropped"); };
addEventListener("keydown", (e) => { if (e.ctrlKey && e.key === "k") { e.preventDefault(); log("ctrl+k"); } });
</script>"""


@pytest.mark.medium
def test_points_and_numbers_are_one_action_and_all_buttons_work(on_page: Callable[..., None]) -> None:
    async def script(player: Player) -> None:
        seen = await player.start("page")
        (button,) = (one.index for one in seen.elements if one.label == "Press me")
        assert WEB.canonical(WEB.make("click", x=40.5, y=33), seen) == WEB.make("click", id=button)
        await player.do("click", x=40, y=33)
        assert "click 0 1 at 120,50" in player.seen.text
        await player.do("double_click", id=button)
        assert "dblclick 0 2" in player.seen.text
        await player.do("triple_click", x=700, y=300)
        assert "click 0 3 at 700,300" in player.seen.text
        await player.do("right_click", id=button)
        assert "contextmenu 2" in player.seen.text or "auxclick 2" in player.seen.text
        await player.do("middle_click", id=button)
        assert "auxclick 1" in player.seen.text
        await player.do("wait")
        assert "outside the screen" in (await player.do("click", x=5000, y=3)).info["effect"]

    on_page(PAGE, script)


def test_dragging_scrolling_and_keys(on_page: Callable[..., None]) -> None:
    async def script(player: Player) -> None:
        await player.start("page")
        await player.do("drag", x=60, y=240, to_x=370, to_y=270)
        assert "dropped" in player.seen.text
        await player.do("scroll_at", x=400, y=60, direction="down")
        assert "scrolled inside" in player.seen.text
        await player.do("press_keys", keys="Control+K")
        assert "ctrl+k" in player.seen.text
        told = await player.do("press_keys", keys="hyper+k")
        assert told.info["effect"] == "the keyboard has no key 'hyper'; nothing happened"

    on_page(PAGE, script)


def test_a_drag_begins_where_the_mouse_is_and_keys_are_held(on_page: Callable[..., None]) -> None:
    async def script(player: Player) -> None:
        await player.start("page")
        await player.do("hover", x=60, y=240)
        await player.do("drag", to_x=370, to_y=270)
        assert "dropped" in player.seen.text
        await player.do("drag", x=620, y=350, to_x=700, to_y=300, hold="shift")
        assert "click 0 1 at 700,300 shift" in player.seen.text
        await player.do("click", x=700, y=350, hold="Shift+Alt")
        assert "at 700,350 alt shift" in player.seen.text
        await player.do("click", x=710, y=350)
        assert " shift" not in player.seen.text
        told = await player.do("click", x=700, y=300, hold="hyper")
        assert told.info["effect"] == "the keyboard has no key 'hyper'; nothing happened"

    on_page(PAGE, script)


def test_text_is_typed_at_the_cursor_and_in_place_of_a_selection(on_page: Callable[..., None]) -> None:
    async def script(player: Player) -> None:
        await player.start("page")
        await player.do("click", x=200, y=160)
        await player.do("press_keys", keys="end")
        await player.do("insert_text", content=" Lovelace")
        assert 'input "Name": "Ada Lovelace"' in player.seen.text
        await player.do("triple_click", x=50, y=160)
        await player.do("insert_text", content="Bob")
        assert 'input "Name": "Bob"' in player.seen.text
        await player.do("type_string", x=50, y=160, content="Cy")
        assert 'input "Name": "Cy"' in player.seen.text

    on_page(PAGE, script)


def test_a_point_is_not_touched_when_something_else_lies_there(on_page: Callable[..., None]) -> None:
    late = (
        PAGE
        + """<script>change = () => { const n = document.createElement("button"); n.textContent = "Buy";
    n.style = "left: 600px; top: 200px; width: 200px; height: 200px"; n.onclick = () => log("bought");
    document.body.append(n); };</script>"""
    )

    async def script(player: Player) -> None:
        seen = await player.start("page")
        assert find_element_at(seen, 700, 300) is None
        await player.environment.window.page.evaluate("change()")  # while the team talks
        told = await player.do("click", x=700, y=300)
        assert told.info["effect"].startswith("the page changed; nothing happened: something else lies there now")
        assert "bought" not in player.seen.text

    on_page(late, script)
