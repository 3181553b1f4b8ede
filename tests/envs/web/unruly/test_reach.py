"""Live pages that change under the hand, shadow what they are read with, hide things or never finish."""

import asyncio
import http.server
import threading
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from typing import Any

import pytest

from collab.envs.grammar import WEB
from collab.envs.web.browser import Browser
from collab.envs.web.live import LiveEnvironment, LiveSuite
from collab.types import Element, Observation, StepResult

pytestmark = pytest.mark.browser

CHANGED = "the page changed; nothing happened"


class Server:
    """Pages on loopback by path; a path of `stuck` never answers, one of `endless` never comes to its end."""

    def __init__(self) -> None:
        self.pages: dict[str, str] = {}
        self.stuck: set[str] = set()
        self.endless: set[str] = set()
        self.over = threading.Event()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                if path in outer.stuck:
                    outer.over.wait(60)
                    return
                body = outer.pages.get(path, "").encode()
                if path in outer.endless:
                    self.send_response(200)
                    self.send_header("Content-Type", "text/html; charset=utf-8")
                    self.end_headers()
                    self.wfile.write(body + b" " * 2000)
                    self.wfile.flush()
                    outer.over.wait(60)
                    return
                self.send_response(200 if path in outer.pages else 404)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.over.set()
        self._server.shutdown()
        self._server.server_close()


class Player:
    """Plays one page by labels; what a test does to the page happens while the team talks."""

    def __init__(self, suite: LiveSuite, environment: LiveEnvironment) -> None:
        self.suite, self.environment = suite, environment
        self.can_go_on = False
        """Whether the environment has one tab, in which the next page can be shown."""
        self.seen: Observation
        self.effect = ""

    async def start(self, name: str = "page") -> Observation:
        """Show the page: in the tab that is open already, which takes far less long than a fresh window."""
        if not self.can_go_on or name != "page" or len(self.seen.tabs) != 1:
            self.seen = await self.environment.reset(self.suite.instance(name, seed=0))
            self.can_go_on = name == "page"
        else:
            await self.do("jump_to", url=self.suite.instance(name, seed=0).params["start"])
        return self.seen

    def find(self, label: str, nth: int = 0) -> Element:
        hits = [element for element in self.seen.elements if label in element.label]
        assert len(hits) > nth, f"no {label!r} number {nth} on:\n{self.seen.text}"
        return hits[nth]

    async def do(self, type: str, label: str | None = None, nth: int = 0, **fields: Any) -> StepResult:
        if label is not None:
            fields["id"] = self.find(label, nth).index
        result = await self.environment.step(WEB.make(type, **fields))
        self.seen, self.effect = result.observation, str(result.info["effect"])
        return result

    async def run(self, script: str) -> Any:
        return await self.environment.window.page.evaluate(script)

    async def heard(self) -> str:
        return str(await self.run("String(window.heard ?? '')"))

    @property
    def labels(self) -> list[str]:
        return [element.label for element in self.seen.elements]


Script = Callable[[Player], Coroutine[Any, Any, None]]
Play = Callable[[str, Script], None]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture(scope="module")
def suite(browser: Browser, server: Server) -> LiveSuite:
    start = f"http://127.0.0.1:{server.port}/page"
    task = {"start": start, "goal": "Do it.", "max_steps": 10_000, "success": {"answer": "yes"}}
    suite = LiveSuite(
        tasks=[task | {"name": "page"}, task | {"name": "done", "success": {"selector": "#done", "text": "yes"}}],
        allow_private=True,
        width=800,
        height=600,
        settle_s=1.0,
        locale="de-DE",
        colours="dark",
        scale=2.0,
        answer_timeout_s=30.0,
    )
    suite._browser = browser
    return suite


@pytest.fixture(scope="module")
def player(runner: asyncio.Runner, suite: LiveSuite) -> Iterator[Player]:
    """The player of all tests of this module."""
    player = Player(suite, runner.run(suite.open()))
    yield player
    runner.run(player.environment.close())


@pytest.fixture
def play(runner: asyncio.Runner, server: Server, player: Player) -> Play:
    """Play a script on a page, with a window that all tests share that leave it whole."""

    def play(html: str, script: Script) -> None:
        server.pages["/page"] = html

        async def main() -> None:
            is_whole = False
            try:
                await script(player)
                is_whole = len(player.environment.window.tabs()) == 1
            finally:
                player.can_go_on = player.can_go_on and is_whole

        runner.run(main())

    return play


# ------------------------------------------------------------------------------------- the element that was seen

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


@pytest.mark.parametrize("is_named", [True, False], ids=["named", "unnamed"])
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("list.prepend(row('Ann'))", "Bob"),  # the node that was seen is still there
        ("list.append(row('Ann'))", "Bob"),
        ("anew()", "Bob"),  # new nodes, the same list
        ("rows.unshift('Ann'); anew()", ""),
        ("rows.unshift('Ann'); inPlace()", ""),  # the same node now stands for another row
        ("rows = ['Ann', 'Eve']; anew()", ""),
        ("rows = ['Ann']; inPlace()", ""),
        ("list.remove()", ""),
        ("list.children[0].style.opacity = 0", ""),
        ("list.children[0].hidden = true", ""),
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


# --------------------------------------------------------------------------- nothing in a page may hide the page

NAMES = (
    "children parentNode parentElement tagName localName nodeType id className getAttribute hasAttribute attributes"
    " innerText textContent querySelector querySelectorAll shadowRoot ownerDocument getRootNode matches closest title"
    " childNodes childElementCount firstElementChild getBoundingClientRect getClientRects onclick tabIndex isConnected"
    " scrollTop scrollLeft scrollHeight clientHeight contains style dispatchEvent scrollIntoViewIfNeeded host open"
).split()


def test_fields_named_like_properties_hide_nothing(play: Play) -> None:
    fields = "".join(f"<input type=hidden name={name}><input type=hidden id={name}>" for name in NAMES)
    images = "".join(f"<img name={name}>" for name in ("body", "title", "activeElement", "defaultView", "createRange"))
    form = f"""<form onsubmit="heard = 'sent'; return false">{fields}<p>Please</p><ul><li>one <b>two</b></li></ul>
        <input aria-label=Name><button>Send</button></form>
        <form tabindex=0 onclick=";">{fields}Clickable form</form>{images}"""

    async def script(player: Player) -> None:
        await player.start()
        assert player.labels == ["Please", "one two", "Name", "Send", "Clickable form"]
        await player.do("type_string", "Name", content="Ada")
        assert player.find("Name").value == "Ada"
        await player.do("click", "Send")
        assert await player.heard() == "sent"

    play(form, script)


HOSTILE = """<script>
  const bad = () => { throw new Error("no") };
  Array.prototype.map = Array.prototype.filter = Array.prototype.push = Array.prototype.join = bad;
  Array.prototype[Symbol.iterator] = bad; Array.prototype.toJSON = Object.prototype.toJSON = () => "x";
  String.prototype.replace = String.prototype.trim = String.prototype.slice = String.prototype.split = bad;
  JSON.stringify = () => "{}"; Object.keys = Object.entries = Object.defineProperty = bad; Reflect.get = bad;
  Map = Set = WeakMap = Proxy = URL = class { constructor() { bad() } };
  Element.prototype.getBoundingClientRect = Element.prototype.getClientRects = () => ({ left: 0 });
  Object.defineProperty(Element.prototype, "children", { get: bad });
  Object.defineProperty(Node.prototype, "textContent", { get: bad });
  Object.defineProperty(Document.prototype, "body", { get: bad });
  Element.prototype.getAttribute = Element.prototype.matches = Document.prototype.querySelectorAll = bad;
  Document.prototype.elementFromPoint = getComputedStyle = bad; innerWidth = 1; name = Array;
  globalThis.__collabLook = bad; Promise.prototype.then = Symbol = Math.min = Math.max = parseFloat = bad;
</script><a id=__collabLook></a><a id=JSON></a>"""


def test_what_scripts_overwrite_changes_nothing_that_is_read_or_judged(play: Play) -> None:
    html = """<div id=host></div><p>Words</p><button id=done>yes</button>
        <input aria-label=Name><select aria-label=List><option>a<option>b</select>
        <iframe srcdoc="<button>Framed</button>" height=40></iframe>
        <script>host.attachShadow({mode: 'open'}).innerHTML = '<b>In shadow</b>'</script>"""

    async def script(player: Player) -> None:
        await player.start()
        assert [label for label in player.labels if label not in ("a", "b")] == [
            "In shadow", "Words", "yes", "Name", "List", "Framed",
        ]  # fmt: skip
        await player.do("type_string", "Name", content="Ada")
        await player.do("select", "List", option="b")
        assert (player.find("Name").value, player.find("List").value) == ("Ada", "b")
        await player.start("done")
        assert (await player.environment.step(None)).terminated

    play(html + HOSTILE, script)


def test_texts_are_cut_between_characters_and_halves_are_replaced(play: Play) -> None:
    face = "\U0001f600"
    long = "".join(f"<p>{'x' * n}{face}{'y' * 30}</p>" for n in range(195, 202))
    html = f"""<title>{"x" * 198}{face}yyy</title>{long}<button aria-label="{"b" * 198}{face}{face}">b</button>
        <input aria-label=Long value="{"v" * 179}{face}{"w" * 300}{face}{"z" * 79}"><p id=half></p>
        <select aria-label=List><option>{"o" * 198}{face}{face}</select><input aria-label=Half id=field>
        <script>half.textContent = "half \\ud83d end"; field.value = "\\ude00 half";
        field.name = "\\ud83d"; document.title += "\\ud83d"</script>"""

    async def script(player: Player) -> None:
        seen = await player.start()
        texts = [seen.title, seen.text, *player.labels, *(element.value or "" for element in seen.elements)]
        for text in texts:
            text.encode()  # no half character is left
        assert "half \ufffd end" in player.labels
        assert player.find("Half").value == "\ufffd half"
        assert max(map(len, player.labels)) <= 200
        await player.do("type_string", "Half", content="whole")
        assert player.find("Half").value == "whole"

    play(html, script)


def test_a_page_nested_without_end_is_seen_as_far_as_it_goes(play: Play) -> None:
    html = """<button>First</button><script>let at = document.body;
        for (let i = 0; i < 1500; i++) at = at.appendChild(document.createElement("div"));
        at.textContent = "deep"; document.body.append("last")</script>"""

    async def script(player: Player) -> None:
        await player.start()
        assert player.labels[0] == "First"
        assert "last" in player.labels[-1]

    play(html, script)


def test_handlers_that_scripts_set_are_seen(play: Play) -> None:
    async def script(player: Player) -> None:
        await player.start()
        assert [(e.role, e.label) for e in player.seen.elements] == [("item", "Open"), ("link", "deep"), ("text", "no")]
        await player.do("click", "Open")
        assert await player.heard() == "open"

    play(
        """<div id=one>Open</div><div id=host></div><p>no</p><script>one.onclick = () => heard = 'open';
        host.attachShadow({mode: 'open'}).innerHTML = '<span>deep</span>';
        host.shadowRoot.firstChild.onclick = () => 1</script>""",
        script,
    )


# ------------------------------------------------------------------------------------ what a user sees and reaches


def test_a_link_that_wraps_is_seen_and_clicked(play: Play) -> None:
    html = """<div style="width:300px;font:16px monospace">Some words stand here and then <a href="#there">a link
        goes</a> on.</div><a href=#c style="display:contents"><b>contents</b></a>
        <a href=#f><i style="float:left">floated</i></a>"""

    async def script(player: Player) -> None:
        await player.start()
        assert [e.label for e in player.seen.elements if e.role == "link"] == ["a link goes", "contents", "floated"]
        for label, mark in [("a link goes", "#there"), ("contents", "#c"), ("floated", "#f")]:
            await player.do("click", label)
            assert await player.run("location.hash") == mark

    play(html, script)


def test_what_no_user_sees_is_left_out(play: Play) -> None:
    hidden = "".join(
        f"<div style='{style}'><button>{style}</button><p>{style}</p><img alt=i width=20 height=20 src=data:,></div>"
        for style in (
            "opacity:0",
            "opacity:0.0",
            "opacity:0.0001",
            "clip-path:circle(0)",
            "clip-path:inset(0 100% 0 0)",
            "filter:opacity(0)",
            "visibility:hidden",
            "position:absolute;clip:rect(0,0,0,0)",
            "position:absolute;clip:rect(1px,1px,1px,1px)",
            "clip-path:inset(50%)",
            "position:absolute;width:1px;height:1px;overflow:hidden",
            "transform:scale(0)",
            "height:0;overflow:hidden",
        )
    )
    html = f"""<div style="opacity:0.01"><button>faint</button></div><p>plain</p>
        <label><input type=checkbox style="position:absolute;width:1px;height:1px;clip:rect(0,0,0,0)">Agree</label>
        <label style="opacity:0"><input type=radio style="display:none">ghost</label>
        <div style="opacity:0"><div style="opacity:1"><a href=#>nested</a></div>
        <iframe height=30 srcdoc="<button>framed</button>"></iframe><svg width=50 height=50><circle r=20 /></svg></div>
        {hidden}"""

    async def script(player: Player) -> None:
        await player.start()
        assert [(e.role, e.label) for e in player.seen.elements] == [
            ("button", "faint"),
            ("text", "plain"),
            ("checkbox", "Agree"),
        ]
        await player.do("click", "Agree")
        assert "checked" in player.find("Agree").flags

    play(html, script)


AREA = "<div class=area style='height:150px;overflow:auto'><p style='height:900px'>top</p><p>bottom</p></div>"


@pytest.mark.parametrize(
    "html",
    [
        f'<body><iframe width=600 height=400 srcdoc="{AREA}"></iframe>',
        "<body><iframe width=600 height=400 srcdoc=\"<p style='height:1500px'>top</p><p>bottom</p>\"></iframe>",
        f'<body><div id=host></div><script>host.attachShadow({{mode: "open"}}).innerHTML = "{AREA}"</script>',
        f"""<body><iframe width=600 height=400 srcdoc="<div id=host></div><script>
        host.attachShadow({{mode: 'open'}}).innerHTML = `{AREA}`</script>"></iframe>""",
        "<html style='overflow:hidden;height:100%'><body style='overflow:auto;height:100%'>"
        "<p style='height:1500px'>top</p><p>bottom</p>",
        "<body><iframe width=600 height=400 src='http://localhost:PORT/long'></iframe>",
    ],
    ids=["frame", "framed page", "shadow", "shadow in a frame", "body", "foreign frame"],
)
def test_every_part_that_scrolls_can_be_scrolled(play: Play, server: Server, html: str) -> None:
    server.pages["/long"] = "<p style='height:1500px'>top</p><p>bottom</p>"

    async def script(player: Player) -> None:
        await player.start()
        assert "top" in player.labels
        for _ in range(12):
            if "bottom" in player.labels:
                break
            await player.do("scroll_page", direction="down")
            assert "any further" not in player.effect
        assert "bottom" in player.labels
        await player.do("scroll_page", direction="up")
        assert "any further" not in player.effect

    play(html.replace("PORT", str(server.port)), script)


@pytest.mark.parametrize("direction", ["ltr", "rtl"])
def test_a_wide_page_is_scrolled_sideways(play: Play, direction: str) -> None:
    ahead, back = ("right", "left") if direction == "ltr" else ("left", "right")

    async def script(player: Player) -> None:
        await player.start()
        assert "Far" not in player.labels
        way = "0 to the left, 1200 to the right" if ahead == "right" else "1200 to the left, 0 to the right"
        assert way in player.seen.text
        for _ in range(2):
            await player.do("scroll_page", direction=ahead)
        assert "Far" in player.labels
        await player.do("click", "Far")
        assert await player.heard() == "far"
        await player.do("scroll_page", direction=ahead)
        assert f"cannot scroll {ahead} any further" in player.effect
        for _ in range(2):
            await player.do("scroll_page", direction=back)
        assert "Near" in player.labels

    play(
        f"""<html dir={direction}><body style="margin:0"><div style="width:2000px;display:flex;
        justify-content:space-between"><button>Near</button><button onclick="heard = 'far'">Far</button></div>""",
        script,
    )


FAR = "<button onclick='heard = 1'>Far</button>"


@pytest.mark.parametrize(
    ("direction", "html"),
    [
        ("up", f"<div style='DIV;flex-direction:column-reverse'><div style='flex:none;height:700px'>{FAR}</div></div>"),
        ("left", f"<div style='DIV;flex-direction:row-reverse'><div style='flex:none;width:700px'>{FAR}</div></div>"),
        ("left", f"<html style='writing-mode:vertical-rl'><body><div style='width:1200px'>near</div>{FAR}"),
        ("left", f"<body dir=rtl><div style='width:1400px;display:flex'><p style='width:1300px'>near</p>{FAR}</div>"),
    ],
    ids=["chat", "row from its end", "columns from the right", "body from right to left"],
)
def test_what_begins_at_its_end_is_scrolled_to_its_beginning(play: Play, direction: str, html: str) -> None:
    async def script(player: Player) -> None:
        await player.start()
        assert "Far" not in player.labels
        for _ in range(8):
            if "Far" not in player.labels:
                await player.do("scroll_page", direction=direction)
        await player.do("click", "Far")
        assert await player.heard() == "1"

    play(html.replace("DIV", "height:200px;width:300px;overflow:auto;display:flex"), script)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"], ids=["process of its own", "same process"])
def test_frames_of_other_origins_are_entered(play: Play, server: Server, host: str) -> None:
    other = Server()
    other.pages["/consent"] = """<p>We use cookies</p><button onclick="done()">Accept all</button>
        <input aria-label=Mail oninput="parent.postMessage(this.value, '*')">
        <script>done = () => parent.postMessage("accepted", "*"); Array.prototype.map = null</script>
        <div style="height:900px"></div><button onclick="done()">Far down</button>
        <iframe src="http://127.0.0.1:INNER/deep" height=60></iframe>""".replace("INNER", str(server.port))
    server.pages["/deep"] = """<button onclick="top.postMessage('deep', '*')">Deep</button>"""
    html = f"""<p>Before</p><iframe style="position:fixed;top:100px;left:50px;width:500px;height:300px;border:7px solid"
        src="http://{host}:{other.port}/consent"></iframe><p>After</p><script>addEventListener("message", (event) =>
        {{ heard = event.data; if (heard === "gone") document.querySelector("iframe").remove() }})</script>"""

    async def script(player: Player) -> None:
        await player.start()
        assert player.labels[:5] == ["Before", "We use cookies", "Accept all", "Mail", "After"]
        box = player.find("Accept all").box
        assert box is not None
        assert 57 < box.left < 200
        assert 107 < box.top < 300
        await player.do("type_string", "Mail", content="a@b.c")
        assert await player.heard() == "a@b.c"
        assert player.find("Mail").value == "a@b.c"
        await player.do("click", "Accept all")
        assert await player.heard() == "accepted"
        for _ in range(4):
            await player.do("scroll_page", direction="down")
        await player.do("click", "Deep")
        assert await player.heard() == "deep"
        await player.run("document.querySelector('iframe').src = 'about:blank'")
        await player.do("click", "Deep")
        assert CHANGED in player.effect
        assert await player.heard() == "deep"

    play(html, script)
    other.close()


@pytest.mark.parametrize("around", ["transform:scale(.5)", "transform:scale(1.5)", "zoom:2"])
def test_scaled_frames_are_clicked_where_they_are_drawn(play: Play, server: Server, around: str) -> None:
    button = "<div style='height:60px'></div><button onclick=\"parent.postMessage('NAME', '*')\">NAME</button>"
    server.pages["/inner"] = button.replace("NAME", "own")
    other = button.replace("NAME", "other").replace('"', "&quot;")
    html = f"""<div style="{around};transform-origin:0 0"><iframe src=/inner style="border:5px solid;padding:9px">
        </iframe>
        <iframe sandbox=allow-scripts srcdoc="{other}"></iframe></div>
        <script>onmessage = (event) => {{ heard = event.data }}</script>"""

    async def script(player: Player) -> None:
        await player.start()
        for name in ("own", "other"):
            await player.do("click", name)
            assert await player.heard() == name

    play(html, script)


@pytest.mark.parametrize("tag", ["<object data=/inner></object>", "<embed src=/inner>"])
def test_pages_in_objects_are_entered(play: Play, server: Server, tag: str) -> None:
    server.pages["/inner"] = "<button onclick='parent.heard = 1'>Accept</button>"

    async def script(player: Player) -> None:
        await player.start()
        await player.do("click", "Accept")
        assert await player.heard() == "1"

    play(tag, script)


def test_what_lies_under_something_else_is_not_reached_in_a_frame(play: Play, server: Server) -> None:
    server.pages["/in"] = "<button onclick='parent.postMessage(1, \"*\")'>Inside</button>"
    html = f"""<iframe src="http://localhost:{server.port}/in"></iframe>
        <iframe srcdoc="<button onclick='parent.heard = 1'>Same origin</button>"></iframe>
        <script>onmessage = () => heard = 1</script>"""

    async def script(player: Player) -> None:
        await player.start()
        cover = "document.body.insertAdjacentHTML('beforeend', '<i style=position:fixed;inset:0></i>')"
        await player.run(cover)
        for label in ("Inside", "Same origin"):
            await player.start()
            await player.run(cover)
            await player.do("click", label)
            assert "covered" in player.effect or CHANGED in player.effect
            assert await player.heard() == ""
            assert label not in player.labels

    play(html, script)


# ------------------------------------------------------------------------------------------- what never comes


@pytest.mark.parametrize(
    "part",
    [
        "<p>Here</p><img src=/stuck.png>",
        "<p>Here</p><script src=/stuck.js></script>",
        "<script src=/stuck.js defer></script><p>Here</p>",
        "<script src=/stuck.js async></script><p>Here</p>",
        "<link rel=stylesheet href=/stuck.css media=print><p>Here</p>",
        "<head><link rel=stylesheet href=/stuck.css></head><p>Here</p>",
        "<p>Here</p><iframe src=/stuck.html></iframe>",
        "<style>@font-face { font-family: F; src: url(/stuck.woff) }</style><p>Here</p><p style='font-family:F'>F</p>",
        "<p>Here</p><script>fetch('/stuck.json'); new EventSource('/stuck.txt')</script>",
    ],
)
def test_a_start_page_is_played_though_a_part_of_it_never_comes(play: Play, server: Server, part: str) -> None:
    server.stuck |= {f"/stuck.{kind}" for kind in ("png", "js", "css", "html", "woff", "json", "txt")}

    async def script(player: Player) -> None:
        began = asyncio.get_running_loop().time()
        seen = await player.start()
        assert "Here" in player.labels
        assert seen.notice is None
        assert (await player.environment.screenshot()).startswith(b"\x89PNG")
        await player.environment.step(None)  # tells what the picture did not wait for
        assert asyncio.get_running_loop().time() - began < 25, "the time that a navigation has is not waited for"

    play(part, script)


def test_a_page_without_an_end_is_played_as_far_as_it_came(play: Play, server: Server) -> None:
    server.pages["/endless"] = "<p>Here</p><button onclick='heard = 1'>Press</button>"
    server.endless.add("/endless")

    async def script(player: Player) -> None:
        await player.start()
        began = asyncio.get_running_loop().time()
        await player.do("jump_to", url="/endless")
        assert "Here" in player.labels
        await player.do("click", "Press")
        assert await player.heard() == "1"
        assert asyncio.get_running_loop().time() - began < 25, "the time that a navigation has is not waited for"

    play("<p>", script)


def test_a_page_whose_first_script_never_comes_has_a_blank_picture(play: Play, server: Server) -> None:
    server.stuck.add("/stuck.js")

    async def script(player: Player) -> None:
        await player.start()
        assert (await player.environment.screenshot()).startswith(b"\x89PNG")
        await player.environment.step(None)  # tells what the picture did not wait for
        assert "Here" not in player.labels

    play("<head><script src=/stuck.js></script></head><p>Here</p>", script)


@pytest.mark.parametrize("way", ["location = '/stuck.html'", "document.forms[0].submit()"])
def test_a_page_is_played_on_where_the_next_one_never_comes(play: Play, server: Server, way: str) -> None:
    server.stuck.add("/stuck.html")

    async def script(player: Player) -> None:
        environment = player.environment
        whole, environment._options = environment._options, replace(environment._options, nav_timeout_s=1.0)
        try:
            await player.start()
            await player.do("click", "Go")
            assert player.effect == "the next page did not come within 1 s and is waited for no longer"
            await player.run("setTimeout(() => location = '/stuck.html', 1)")  # while the team talks
            await player.do("click", "Stay")
            assert await player.heard() == "1"
        finally:
            environment._options = whole

    form = "<form action=/stuck.html></form>"
    play(f"{form}<button onclick=\"{way}\">Go</button><button onclick='heard = 1'>Stay</button>", script)


# ------------------------------------------------------------------------------------- bounded texts, line breaks


def test_notices_effects_and_values_are_bounded_and_say_what_is_cut(play: Play) -> None:
    html = """<button onclick="for (let i = 0; i < 60; i++) alert('alert ' + i + 'x'.repeat(5000))">Alerts</button>
        <button onclick="prompt('p'.repeat(9999), 'd'.repeat(9999))">Prompt</button>
        <button onclick="document.title = 't'.repeat(99999); location.hash = 'h'.repeat(99999)">Title</button>
        <input type=password id=secret aria-label=Secret><textarea id=text aria-label=Text></textarea>
        <div role=slider aria-label=Slide tabindex=0 id=slide style="width:9px;height:9px"></div>
        <select id=many multiple aria-label=Many></select><input id=name aria-label=Name>
        <button id=label onclick="location = '/none?' + 'q'.repeat(9999)">Label</button><script>
        secret.value = "s".repeat(99999); text.value = "v".repeat(99999); name.value = "n".repeat(9999);
        slide.setAttribute("aria-valuetext", "a".repeat(99999)); label.title = "l".repeat(99999);
        for (let i = 0; i < 900; i++) many.append(new Option("option " + i + "o".repeat(300), i, true, true))
        </script>"""

    async def script(player: Player) -> None:
        await player.start()
        assert max(len(element.value or "") for element in player.seen.elements) <= 320
        assert " … 99739 characters left out … " in str(player.find("Text").value)
        await player.do("hover", "Many")
        assert any("600 more options" in label for label in player.labels)
        await player.do("click", "Alerts")
        assert len(str(player.seen.notice)) < 4000
        assert len(player.effect) < 4000
        assert "52 more notices were left out" in str(player.seen.notice)
        assert "…" in str(player.seen.notice)
        await player.do("click", "Prompt")
        assert len(str(player.seen.notice)) < 400
        await player.do("click", "Title")
        assert len(str(player.seen.url)) <= 2000
        assert len(player.seen.title) <= 200
        assert len(player.effect) < 400
        await player.do("jump_to", url="http://" + "h" * 9999 + "/")
        assert len(player.effect) < 600
        await player.do("jump_to", url="ftp://" + "h" * 9999 + "/")
        assert len(player.effect) < 600

    play(html, script)


@pytest.mark.parametrize(
    "field",
    [
        "<div id=field contenteditable aria-label=Field>old</div>",
        "<div id=field contenteditable=plaintext-only role=textbox aria-label=Field>old</div>",
        "<div id=field contenteditable aria-label=Field><p>old</p><p>text</p></div>",
        "<div id=field role=textbox aria-label=Field><div contenteditable>old</div></div>",
        "<textarea id=field aria-label=Field>old</textarea>",
    ],
)
def test_line_breaks_stay_line_breaks_and_send_nothing(play: Play, field: str) -> None:
    html = f"""{field}<script>heard = 0; field.addEventListener("keydown", (event) => {{
        if (event.key === "Enter" && !event.shiftKey) {{ event.preventDefault(); heard += 1; }} }})</script>"""

    async def script(player: Player) -> None:
        await player.start()
        for content in ("one\ntwo\n\nfour", "x" * 400 + "\nlast"):
            await player.do("type_string", "Field", content=content)
            assert (await player.run("field.value ?? field.innerText")).rstrip("\n") == content
            assert await player.heard() == "0"
        await player.do("type_string", "Field", content="one\ntwo", press_enter=True)
        assert await player.heard() == "1"
        assert player.find("Field").value == "one two"

    play(html, script)


# --------------------------------------------------------------------------------------------- the surroundings


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


def test_a_page_that_moves_to_another_process_is_read_in_our_own_world(server: Server, runner: asyncio.Runner) -> None:
    """The browser numbers worlds anew there: our number is then the frame's own."""
    server.pages["/inner"] = "<button>Inside</button><script>document.querySelectorAll = () => [1]</script>"
    server.pages["/outer"] = "<button>Outside</button><iframe src=/inner></iframe>"
    other = f"http://localhost:{server.port}/outer"
    server.pages["/first"] = f"<a href={other}>Go</a>"
    start = f"http://127.0.0.1:{server.port}/first"
    task = {"name": "moves", "start": start, "goal": "Go.", "success": {"selector": "#nowhere"}}
    suite = LiveSuite(tasks=[task], allow_private=True)

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
            await suite.close()

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


def test_links_to_other_programs_are_told_and_leave_the_page_alive(play: Play, server: Server) -> None:
    """The browser asks in a window of its own whether to open the program; behind it the page hears no mouse."""
    server.pages["/found"] = "<h1>Found</h1>"
    html = """<a href="tel:+4912">Call</a> <a href="mailto:a@b.de">Write</a> <a href="tel:+4913" target=_blank>Ring</a>
        <button onclick="location.href = 'zoommtg://join'">Join</button>
        <form action="myapp:send"><button>Send</button></form>
        <form action="/found" target=_blank><button>Search</button></form>"""
    links = {"Call": "tel:+4912", "Write": "mailto:a@b.de", "Ring": "tel:+4913", "Join": "zoommtg://", "Send": "myapp:"}

    async def script(player: Player) -> None:
        for label, address in links.items():
            await player.start()
            await player.do("click", label)
            assert player.effect.startswith(address), player.effect
            assert player.effect.endswith("was not opened: it is for another program")
            assert len(player.seen.tabs) == 1
            await player.do("click", "Search")
            assert [tab.url.endswith("/found?") for tab in player.seen.tabs] == [False, True], (label, player.effect)

    play(html, script)
