"""Pages that shadow properties, nest without end or never finish are read, played and cut within bounds."""

import asyncio
from dataclasses import replace

import pytest

from tests.envs.web.unruly.site import Play, Player, Server

pytestmark = pytest.mark.browser


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


@pytest.mark.parametrize(
    "part",
    [
        "<p>Here</p><img src=/stuck.png>",
        "<p>Here</p><script src=/stuck.js></script>",
        "<head><link rel=stylesheet href=/stuck.css></head><p>Here</p>",
        "<style>@font-face { font-family: F; src: url(/stuck.woff) }</style><p>Here</p><p style='font-family:F'>F</p>",
        *(
            pytest.param(part, marks=pytest.mark.slow)
            for part in (
                "<script src=/stuck.js defer></script><p>Here</p>",
                "<script src=/stuck.js async></script><p>Here</p>",
                "<link rel=stylesheet href=/stuck.css media=print><p>Here</p>",
                "<p>Here</p><iframe src=/stuck.html></iframe>",
                "<p>Here</p><script>fetch('/stuck.json'); new EventSource('/stuck.txt')</script>",
            )
        ),
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


@pytest.mark.slow
def test_a_page_whose_first_script_never_comes_has_a_blank_picture(play: Play, server: Server) -> None:
    server.stuck.add("/stuck.js")

    async def script(player: Player) -> None:
        await player.start()
        assert (await player.environment.screenshot()).startswith(b"\x89PNG")
        await player.environment.step(None)  # tells what the picture did not wait for
        assert "Here" not in player.labels

    play("<head><script src=/stuck.js></script></head><p>Here</p>", script)


@pytest.mark.medium
@pytest.mark.parametrize(
    "way", ["location = '/stuck.html'", pytest.param("document.forms[0].submit()", marks=pytest.mark.slow)]
)
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


@pytest.mark.medium
def test_notices_effects_and_values_are_bounded_and_say_what_is_cut(play: Play) -> None:
    html = """<button onclick="for (let i = 0; i < 12; i++) alert('alert ' + i + 'x'.repeat(5000))">Alerts</button>
        <button onclick="prompt('p'.repeat(9999), 'd'.repeat(9999))">Prompt</button>
        <button onclick="document.title = 't'.repeat(99999); location.hash = 'h'.repeat(99999)">Title</button>
        <input type=password id=secret aria-label=Secret><textarea id=text aria-label=Text></textarea>
        <div role=slider aria-label=Slide tabindex=0 id=slide style="width:9px;height:9px"></div>
        <select id=many multiple aria-label=Many></select><input id=name aria-label=Name>
        <button id=label onclick="location = '/none?' + 'q'.repeat(9999)">Label</button><script>
        secret.value = "s".repeat(99999); text.value = "v".repeat(99999); name.value = "n".repeat(9999);
        slide.setAttribute("aria-valuetext", "a".repeat(99999)); label.title = "l".repeat(99999);
        for (let i = 0; i < 310; i++) many.append(new Option("option " + i + "o".repeat(300), i, true, true))
        </script>"""

    async def script(player: Player) -> None:
        await player.start()
        assert max(len(element.value or "") for element in player.seen.elements) <= 320
        assert " … 99739 characters left out … " in str(player.find("Text").value)
        await player.do("hover", "Many")
        assert any("10 more options" in label for label in player.labels)
        await player.do("click", "Alerts")
        assert len(str(player.seen.notice)) < 4000
        assert len(player.effect) < 4000
        assert "4 more notices were left out" in str(player.seen.notice)
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
        "<div id=field contenteditable aria-label=Field><p>old</p><p>text</p></div>",
        "<textarea id=field aria-label=Field>old</textarea>",
        *(
            pytest.param(field, marks=pytest.mark.slow)
            for field in (
                "<div id=field contenteditable aria-label=Field>old</div>",
                "<div id=field contenteditable=plaintext-only role=textbox aria-label=Field>old</div>",
                "<div id=field role=textbox aria-label=Field><div contenteditable>old</div></div>",
            )
        ),
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
