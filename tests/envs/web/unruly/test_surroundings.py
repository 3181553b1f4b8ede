"""What pages learn of the machine, and which parts of a page are read beyond plain elements."""

import asyncio

import pytest

from collab.envs.web.browser import Browser
from collab.envs.web.live import LiveSuite
from collab.types import Observation, StepResult
from tests.envs.web.unruly.site import Play, Player, Server

pytestmark = pytest.mark.browser


def test_what_a_page_learns_of_the_machine_is_part_of_the_environment(play: Play, suite: LiveSuite) -> None:
    async def script(player: Player) -> None:
        await player.start()
        told = await player.run(
            """[Intl.DateTimeFormat().resolvedOptions().timeZone, new Date(0).getHours(), navigator.language,
            (1234.5).toLocaleString(), innerWidth, screen.width, screen.height, devicePixelRatio,
            matchMedia("(prefers-color-scheme: dark)").matches]"""
        )
        assert told == ["UTC", 0, "de-DE", "1.234,5", 800, 800, 600, 2, True]
        assert suite.version == "2 (800×600, scale 2, de-DE, UTC, dark)"

    play("<p>", script)


def test_shapes_of_a_dense_screen_are_told_in_the_pixels_of_their_boxes(play: Play) -> None:
    """A live page is seen in CSS pixels, whatever it learns of the screen."""

    async def script(player: Player) -> None:
        (box,) = (await player.start()).elements
        assert (box.label, box.box) == ("box blue, 20×10 at 110,25", (100, 20, 120, 30))

    play('<i style="position: fixed; left: 100px; top: 20px; width: 20px; height: 10px; background: blue">', script)


@pytest.mark.medium
def test_frames_and_tabs_of_other_sites_learn_the_same_of_the_machine(
    server: Server, runner: asyncio.Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    told = "[Intl.DateTimeFormat().resolvedOptions().timeZone, screen.width, screen.height, devicePixelRatio]"
    other = f"http://localhost:{server.port}/machine"
    server.pages["/machine"] = f"<p></p><script>document.querySelector('p').append({told}.join(' '))</script>"
    server.pages["/framed"] = (
        f"<iframe src={other}></iframe><a href={other} target=_blank>New</a><a href={other}>Go</a>"
    )
    task = {"name": "in", "start": f"http://127.0.0.1:{server.port}/framed", "goal": "In.", "success": {"answer": "x"}}
    suite = LiveSuite(tasks=[task], allow_private=True, width=900, height=700, scale=2.0, timezone="Europe/Paris")
    expected = "Europe/Paris 900 700 2"

    async def main() -> list[Observation]:
        environment = await suite.open()
        player = Player(suite, environment)
        try:
            screens = [await player.start("in")]
            screens.append((await player.do("click", "New")).observation)
            await player.do("switch_tab", i=0)
            return [*screens, (await player.do("click", "Go")).observation]
        finally:
            await environment.close()
            await suite.close()

    for seen in runner.run(main()):
        assert expected in [element.label for element in seen.elements]


def test_a_page_that_moves_to_another_process_is_read_in_our_own_world(
    server: Server, runner: asyncio.Runner, browser: Browser
) -> None:
    """The browser numbers worlds anew there: our number is then the frame's own."""
    server.pages["/inner"] = "<button>Inside</button><script>document.querySelectorAll = () => [1]</script>"
    server.pages["/outer"] = "<button>Outside</button><iframe src=/inner></iframe>"
    other = f"http://localhost:{server.port}/outer"
    server.pages["/first"] = f"<a href={other}>Go</a>"
    start = f"http://127.0.0.1:{server.port}/first"
    task = {"name": "moves", "start": start, "goal": "Go.", "success": {"selector": "#nowhere"}}
    suite = LiveSuite(tasks=[task], allow_private=True)
    suite._browser = browser

    async def main() -> list[StepResult]:
        environment = await suite.open()
        player = Player(suite, environment)
        try:
            await player.start("moves")
            first = await player.do("click", "Go")
            await player.do("go", direction="backward")
            return [first, await player.do("click", "Go")]
        finally:
            await environment.close()

    results = runner.run(main())
    for result in results:
        assert [element.label for element in result.observation.elements] == ["Outside", "Inside"]
        assert result.outcome is None


def test_closed_shadow_roots_are_read_and_the_page_does_not_notice(play: Play) -> None:
    html = """<div id=plain></div><p id=full>old text</p><x-box><b>slotted</b></x-box>
        <section id=lit><i>unlit</i></section><iframe id=frame srcdoc="<div id=inner></div>"></iframe>
        <x-late>Later</x-late><script>
        const attach = (el, inside) => {
          const root = el.attachShadow({ mode: "closed" });
          root.innerHTML = inside;
          for (const b of root.querySelectorAll("button")) b.onclick = () => (window.heard = b.textContent);
          return root;
        };
        const root = attach(plain, "<button>In closed</button><input aria-label=Name><div id=more></div>");
        attach(root.getElementById("more"), "<button>Deeper</button>");
        attach(full, "<button>Instead</button>");
        attach(document.querySelector("x-box"), "<button>Around</button><slot></slot>");
        attach(lit, "<a href='#there'>Shadowed link</a>");
        const late = document.querySelector("x-late"), told = [];
        window.come = () => attach(late, "<button>Came late</button>");
        for (const name of ["attachShadow", "getRootNode", "attachInternals"]) {
          const own = Element.prototype[name] ?? HTMLElement.prototype[name];
          Element.prototype[name] = function (...args) { told.push(name); return own.apply(this, args); };
        }
        const everything = { subtree: true, childList: true, attributes: true };
        new MutationObserver(() => told.push("changed")).observe(root.firstChild, everything);
        frame.onload = () => attach(frame.contentDocument.getElementById("inner"), "<button>In frame</button>");
        window.noticed = () => told.join();
        </script>"""

    async def script(player: Player) -> None:
        await player.start()
        assert player.labels == [
            "In closed", "Name", "Deeper", "Instead", "Around", "slotted", "Shadowed link", "In frame", "Later",
        ]  # fmt: skip
        for label in ("Deeper", "Around", "In frame"):
            await player.do("click", label)
            assert await player.heard() == label
        await player.do("type_string", "Name", content="Ada")
        assert player.find("Name").value == "Ada"
        assert "focused" in player.find("Name").flags
        await player.do("click", "Shadowed link")
        assert str(player.seen.url).endswith("#there")
        assert await player.run("noticed()") == ""
        await player.run("come()")
        await player.do("hover", "In closed")
        assert "Came late" in player.labels

    play(html, script)


def test_what_a_bar_covers_comes_into_sight_by_scrolling(play: Play) -> None:
    bar = "position: sticky; top: 0; height: 150px; background: red; z-index: 9"
    rows = "".join(f"<button style='display: block; height: 50px'>Row {i}</button>" for i in range(40))

    async def script(player: Player) -> None:
        await player.start()
        seen = set(player.labels)
        for _ in range(8):
            await player.do("scroll_page", direction="down")
            seen |= set(player.labels)
        assert seen >= {f"Row {i}" for i in range(40)}

    play(f"<div style='{bar}'>Bar</div>{rows}", script)


def test_links_of_image_maps_and_names_that_show_nothing(play: Play) -> None:
    html = """<body style="margin:0"><map name=m><area shape=rect coords="0,0,50,50" href="#rect" alt=Rectangle>
        <area shape=circle coords="80,80,10" href="#circle" alt=Circle></map>
        <img usemap="#m" width=100 height=100 style="display:block" src="data:image/gif;base64,R0lGODlhAQABAAAAACw=">
        <button title=Delete>\u200b</button><p>\u200b\u2060</p>"""

    async def script(player: Player) -> None:
        await player.start()
        assert [label for label in player.labels if label] == ["Rectangle", "Circle", "Delete"]
        for name in ("Circle", "Rectangle"):
            await player.do("click", name)
            assert str(player.seen.url).endswith({"Circle": "#circle", "Rectangle": "#rect"}[name])

    play(html, script)


@pytest.mark.parametrize(
    ("label", "address"),
    [
        ("Call", "tel:+4912"),
        ("Ring", "tel:+4913"),
        ("Join", "zoommtg://"),
        pytest.param("Write", "mailto:a@b.de", marks=pytest.mark.slow),
        pytest.param("Send", "myapp:", marks=pytest.mark.slow),
    ],
)
def test_links_to_other_programs_are_told_and_leave_the_page_alive(
    play: Play, server: Server, label: str, address: str
) -> None:
    """The browser asks in a window of its own whether to open the program; behind it the page hears no mouse."""
    server.pages["/found"] = "<h1>Found</h1>"
    html = """<a href="tel:+4912">Call</a> <a href="mailto:a@b.de">Write</a> <a href="tel:+4913" target=_blank>Ring</a>
        <button onclick="location.href = 'zoommtg://join'">Join</button>
        <form action="myapp:send"><button>Send</button></form>
        <form action="/found" target=_blank><button>Search</button></form>"""

    async def script(player: Player) -> None:
        await player.start()
        await player.do("click", label)
        assert player.effect.startswith(address), player.effect
        assert player.effect.endswith("was not opened: it is for another program")
        assert len(player.seen.tabs) == 1
        await player.do("click", "Search")
        assert [tab.url.endswith("/found?") for tab in player.seen.tabs] == [False, True], player.effect

    play(html, script)
