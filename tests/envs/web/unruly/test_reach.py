"""What a user sees and reaches is seen and reached: wrapped links, scrolled areas, frames."""

import pytest

from tests.envs.web.unruly.site import CHANGED, Play, Player, Server

pytestmark = pytest.mark.browser


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
        pytest.param(
            f'<body><iframe width=600 height=400 srcdoc="{AREA}"></iframe>',
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "<body><iframe width=600 height=400 srcdoc=\"<p style='height:1500px'>top</p><p>bottom</p>\"></iframe>",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            f'<body><div id=host></div><script>host.attachShadow({{mode: "open"}}).innerHTML = "{AREA}"</script>',
            marks=pytest.mark.slow,
        ),
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


@pytest.mark.parametrize("direction", ["rtl", pytest.param("ltr", marks=pytest.mark.slow)])
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


@pytest.mark.medium
@pytest.mark.variations
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


@pytest.mark.variations
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


@pytest.mark.medium
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
