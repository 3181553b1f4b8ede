"""An action hits the element that was seen, or nothing, if the page changes under the hand."""

import asyncio
from typing import Any

import pytest

from tests.envs.web.unruly.site import CHANGED, Play, Player, Server

pytestmark = pytest.mark.browser


ROWS = """<ul id=list></ul><script>
    heard = []; rows = ["Bob", "Eve"];
    row = (name) => { const li = document.createElement("li"); li.textContent = NAMED ? "" : name + " ";
        const button = document.createElement("button"); button.textContent = NAMED ? "Delete " + name : "Delete";
        button.onclick = () => heard.push(name); li.append(button); return li; };
    anew = () => list.replaceChildren(...rows.map(row));
    inPlace = () => rows.forEach((name, i) => { const li = list.children[i] ?? list.appendChild(row(name));
        if (!NAMED) li.firstChild.data = name + " ";
        const button = li.querySelector("button"); if (NAMED) button.textContent = "Delete " + name;
        button.onclick = () => heard.push(name); });
    anew();
</script>"""


WHATEVER_NAMED = (
    ("list.prepend(row('Ann'))", "Bob"),  # the node that was seen is still there
    ("list.append(row('Ann'))", "Bob"),
    ("list.remove()", ""),
    ("list.children[0].style.opacity = 0", ""),
    ("list.children[0].hidden = true", ""),
)
"""Changes behind which it makes no difference whether buttons have names of their own."""
BY_NAME = (
    ("anew()", "Bob"),  # new nodes, the same list
    ("rows.unshift('Ann'); anew()", ""),
    ("rows.unshift('Ann'); inPlace()", ""),  # the same node now stands for another row
    ("rows = ['Ann', 'Eve']; anew()", ""),
    ("rows = ['Ann']; inPlace()", ""),
)


@pytest.mark.parametrize(
    ("change", "expected", "is_named"),
    [
        *((*one, False) for one in (*WHATEVER_NAMED, *BY_NAME)),
        *((*one, True) for one in BY_NAME),
        *(pytest.param(*one, True, marks=pytest.mark.slow) for one in WHATEVER_NAMED),
    ],
)
def test_what_a_list_has_become_never_hits_another_row(play: Play, change: str, expected: str, is_named: bool) -> None:
    async def script(player: Player) -> None:
        await player.start()
        target = "Delete Bob" if is_named else "Delete"
        await player.run(change)
        await player.do("click", target)
        assert await player.heard() == expected
        assert (CHANGED in player.effect) == (expected == ""), player.effect

    play(f"<script>NAMED = {str(is_named).lower()}</script>" + ROWS, script)


@pytest.mark.medium
def test_after_a_redirect_nothing_of_the_new_page_is_touched(play: Play, server: Server) -> None:
    delete = "<button onclick='heard = 1'>Delete my account</button><p>text</p><input aria-label=Name>"
    server.pages["/other"] = delete.replace("Delete my account", "Continue")
    server.pages["/danger"] = delete

    async def script(player: Player) -> None:
        for address, act in [("/danger", "click"), ("/danger", "hover"), ("/other", "click")]:
            await player.start()
            await player.run(f"location = '{address}'")
            await player.environment.window.page.wait_for_url(f"**{address}")
            await player.do(act, "Continue")
            assert CHANGED in player.effect
            assert await player.heard() == ""
            assert player.seen.url is not None
            assert player.seen.url.endswith(address), "the episode goes on, on the new page"
        await player.start()
        await player.run("location.reload()")
        await player.environment.window.page.wait_for_function("window.fresh === 1")
        await player.do("click", "Continue")
        assert await player.heard() == "1", "the same page again has the same button"

    fresh = "<script>fresh = performance.getEntriesByType('navigation')[0].type === 'reload' ? 1 : 0</script>"
    play("<button onclick='heard = 1'>Continue</button>" + fresh, script)


def test_in_a_list_without_rows_the_words_between_equal_buttons_tell_them_apart(play: Play) -> None:
    row = "<b>NAME</b><button onclick='heard = this.previousSibling.textContent'>×</button>"
    html = f"<div id=list>{row.replace('NAME', 'Bob')}{row.replace('NAME', 'Eve')}</div>"
    changes = [
        ("list.children[0].textContent = 'Ann'", ""),  # the same nodes now stand for somebody else
        ("list.innerHTML = list.innerHTML.replace('Bob', 'Ann')", ""),
        ("list.innerHTML = list.innerHTML", "Bob"),
        ("list.prepend(Object.assign(document.createElement('button'), {textContent: '×'}))", "Bob"),
    ]

    async def script(player: Player) -> None:
        for change, expected in changes:
            await player.start()
            await player.run(change)
            await player.do("click", "×")
            assert (await player.heard(), CHANGED in player.effect) == (expected, expected == ""), change

    play(html, script)


def test_pictures_and_fields_beside_equal_buttons_tell_them_apart(play: Play) -> None:
    row = "<li>BESIDE<button onclick='heard = this.parentNode.firstChild.outerHTML'>×</button></li>"
    for beside, change in [
        ("<img alt=NAME width=20 height=20>", "list.innerHTML = list.innerHTML.replace('Bob', 'Ann')"),
        ("<input value=NAME>", "list.innerHTML = list.innerHTML.replace('Bob', 'Ann')"),
        ("<input value=NAME>", "list.querySelector('input').value = 'Ann'"),
    ]:
        rows = "".join(row.replace("BESIDE", beside.replace("NAME", name)) for name in ("Bob", "Eve"))

        async def script(player: Player, change: str = change) -> None:
            await player.start()
            await player.run(change)
            await player.do("click", "×")
            assert (await player.heard(), CHANGED in player.effect) == ("", True)
            await player.do("click", "×")
            assert await player.heard() != "", "now it was seen"

        play(f"<ul id=list>{rows}</ul>", script)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("box.innerHTML = box.innerHTML", "sent"),
        ("box.innerHTML = box.innerHTML.replace('5 min', '4 min')", "sent"),
        ("rest.textContent = 'other'; box.innerHTML = box.innerHTML", "sent"),
        ("box.innerHTML = box.innerHTML.replace('Send', 'Delete').replace('sent', 'deleted')", ""),
    ],
)
def test_a_new_button_among_other_words_is_another_one(play: Play, change: str, expected: str) -> None:
    async def script(player: Player) -> None:
        await player.start()
        await player.run(change)
        await player.do("click", "Yes")
        assert (await player.heard(), CHANGED in player.effect) == (expected, expected == ""), player.effect

    html = "<div id=box><p>Send it within 5 min?</p><button onclick='heard = \"sent\"'>Yes</button></div>"
    play(f"{html}<button>No</button><p id=rest>words</p>", script)


def test_another_page_in_a_frame_or_another_view_is_not_touched(play: Play, server: Server) -> None:
    server.pages["/first"] = "<button onclick='parent.heard = 1'>Continue</button>"
    server.pages["/second"] = "<button onclick='parent.heard = 2'>Continue</button>"
    view = "main.innerHTML = \"<p>Delete all?</p><button onclick='heard = 2'>Go on</button>\""

    async def script(player: Player) -> None:
        await player.start()
        await player.run("new Promise((done) => { frame.onload = done; frame.src = '/second'; })")
        await player.do("click", "Continue")
        assert (CHANGED in player.effect, await player.heard()) == (True, "")
        await player.do("click", "Continue")
        assert await player.heard() == "2", "now it was seen"
        await player.start()
        await player.run(f"history.pushState(null, '', '/sure'); {view}")
        await player.do("click", "Go on")
        assert (CHANGED in player.effect, await player.heard()) == (True, "")

    main = "<main id=main><p>Step</p><button onclick='heard = 1'>Go on</button></main>"
    play("<iframe id=frame src=/first></iframe>" + main, script)


@pytest.mark.parametrize(
    ("type", "fields"),
    [
        ("click", {}),
        ("hover", {}),
        ("type_string", {"content": "x"}),
        ("select", {"option": "two"}),
    ],
)
def test_every_action_leaves_an_element_alone_that_became_another(
    play: Play, type: str, fields: dict[str, Any]
) -> None:
    html = """<div id=box><label id=label for=field>Old</label>FIELD</div>
        <script>heard = []; for (const kind of ["mousedown", "mouseover", "keydown", "input", "change"])
        field.addEventListener(kind, () => heard.push(kind))</script>"""
    field = "<select id=field><option>one<option>two</select>" if type == "select" else "<input id=field>"

    async def script(player: Player) -> None:
        await player.start()
        await player.run("label.textContent = 'New'")
        await player.do(type, "Old", nth=0, **fields)
        assert CHANGED in player.effect
        assert await player.heard() == ""
        await player.do(type, "New", **fields)
        assert await player.heard() != ""

    play(html.replace("FIELD", field), script)


def test_texts_and_options_are_found_again_or_not_at_all(play: Play) -> None:
    html = """<div id=top></div><p id=word onclick="heard = 'word'">Open this</p>
        <select id=list aria-label=List onchange="heard = list.value"><option>Ann<option>Bob</select>
        <div id=danger style="display:none;height:30px" onclick="heard = 'danger'">danger</div>"""

    async def script(player: Player) -> None:
        await player.start()
        await player.run("word.before(danger); danger.style.display = 'block'")  # pushes the text down
        await player.do("click", "Open this")
        assert await player.heard() == "word"
        await player.start()
        await player.run("word.textContent = 'Close that'")
        await player.do("click", "Open this")
        assert (CHANGED in player.effect, await player.heard()) == (True, "")
        await player.start()
        await player.run("list.prepend(new Option('Zoe'))")
        await player.do("click", "Bob")
        assert await player.heard() == "Bob"
        await player.start()
        await player.run("list.replaceChildren(new Option('Zoe'), new Option('Ann'))")
        await player.do("click", "Bob")
        assert (CHANGED in player.effect, await player.heard()) == (True, "")

    play(html, script)


def test_what_ticks_or_changes_its_class_is_the_same(play: Play) -> None:
    async def script(player: Player) -> None:
        await player.start()
        await player.run("pay.textContent = 'Pay within 9:58'; icon.className = 'icon busy'")
        await player.do("click", "Pay within")
        assert await player.heard() == "paid"
        await player.do("click", "icon")
        assert await player.heard() == "icon"

    play(
        """<button id=pay onclick="heard = 'paid'">Pay within 9:59</button>
        <button id=icon class=icon style="width:40px;height:20px" onclick="heard = 'icon'"></button>
        <script>icon.removeAttribute('id'); icon = document.querySelector('.icon')</script>""",
        script,
    )


def test_what_the_mouse_brings_up_is_not_clicked_instead(play: Play) -> None:
    html = """<button onmouseover="cover.hidden = false" onclick="heard = 'next'">Next</button>
        <button onmouseover="this.textContent = 'Unfollow'" onclick="heard = 'followed'">Following</button>
        <div id=cover hidden style="position:fixed;inset:0;z-index:9" onclick="heard = 'cover'">.</div>"""

    async def script(player: Player) -> None:
        await player.start()
        await player.do("click", "Following")
        assert await player.heard() == "followed"
        await player.do("click", "Next")
        assert "covered" in player.effect
        assert await player.heard() == "followed"

    play(html, script)


@pytest.mark.medium
def test_tabs_are_those_that_were_seen(play: Play, server: Server) -> None:
    server.pages["/two"] = "<title>Two</title><button onclick='heard = 1'>Same</button>"
    server.pages["/three"] = "<title>Three</title>"

    async def script(player: Player) -> None:
        await player.start()
        context = player.environment.window.page.context
        for name in ("two", "three"):
            await player.do("jump_to", url=f"/{name}", new_tab=True)
        await player.do("switch_tab", i=0)
        first, second, _ = context.pages
        await second.close()
        await player.do("switch_tab", i=2)
        assert player.seen.title == "Three", "not the third of those that are left"
        await player.do("switch_tab", i=0)
        await first.evaluate("window.open('/two')")
        while not player.environment.window.page.url.endswith("/two"):
            await asyncio.sleep(0.02)
        acts: list[tuple[str, str | None, dict[str, Any]]] = [
            ("click", "Same", {}),
            ("scroll_page", None, {"direction": "down"}),
            ("go", None, {"direction": "backward"}),
            ("jump_to", None, {"url": "/three"}),
        ]
        for type, label, fields in acts:
            seen = player.seen
            await player.do(type, label, **fields)
            assert CHANGED in player.effect
            assert await player.heard() == ""
            assert player.seen.title == "Two"
            await player.environment.window.show(0)  # the same surprise for the next action
            player.seen = (await player.environment.step(None)).observation
            await player.environment.window.show(len(player.seen.tabs) - 1)
            assert seen.tabs

        await player.environment.step(None)
        last = len(player.environment.window.tabs()) - 1
        await player.environment.window.page.close()
        await player.do("switch_tab", i=last)
        assert f"{CHANGED}: tab {last} is closed" in player.effect

    play("<title>One</title><button onclick='heard = 1'>Same</button>", script)
