"""What is taken along: plots as files, and a whole run as one file."""

from __future__ import annotations

import io
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from collab.view.export import export
from collab.view.inspector import Inspector

pytestmark = pytest.mark.browser

EPISODE = "ContactsAddContact/0"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def saved():
    """Presses a button that saves a figure; gives the name and the bytes of the file."""

    def make(page, title: str, kind: str) -> tuple[str, bytes]:
        with page.expect_download() as download:
            page.get_by_role("button", name=f"Save {title} as {kind}", exact=True).first.click()
        return download.value.suggested_filename, Path(download.value.path()).read_bytes()

    return make


@pytest.mark.medium
def test_a_plot_is_saved_as_it_stands(team, open_page, turn, saved):
    address, inspector, run = team
    page = open_page(address, color_scheme="dark")
    turn(page, f"#/run/{run}")
    heat = inspector.get_overview(run).epochs[0].rewards
    title = f"Rewarded cells, by {heat.critic}"
    name, content = saved(page, title, "SVG")
    drawing = ElementTree.fromstring(content)
    told = [text.text for text in drawing.iter(f"{SVG}text")]
    assert name.endswith(f"-rewarded-cells-by-{heat.critic}.svg")
    assert told[0] == title
    assert {*heat.agents, "round 1", *page.locator("td.heat").all_inner_texts()} <= set(told)
    ground = page.evaluate("getComputedStyle(document.querySelector('.panel')).backgroundColor")
    assert drawing.find(f"{SVG}rect").get("fill") == ground
    assert {one.get("fill") for one in drawing.iter(f"{SVG}rect")} > {ground}
    assert b"var(" not in content
    assert b"oklab" not in content


@pytest.mark.slow
def test_a_plot_is_saved_in_pixels(team, open_page, turn, saved):
    from PIL import Image

    address, _, run = team
    page = open_page(address)
    turn(page, f"#/run/{run}")
    drawing = ElementTree.fromstring(saved(page, "Graph", "SVG")[1])
    picture = Image.open(io.BytesIO(saved(page, "Graph", "PNG")[1]))
    assert picture.format == "PNG"
    assert picture.size == (3 * int(drawing.get("width")), 3 * int(drawing.get("height")))
    assert len(picture.convert("RGB").getcolors(1 << 20)) > 8


@pytest.mark.slow
def test_a_report_opens_from_a_file_without_a_network(recorded, open_page, turn, step_place, saved, faults, tmp_path):
    inspector = Inspector([recorded], index_cache=tmp_path / "index_cache")
    out = tmp_path / "report.html"
    export(inspector, run := inspector.list_runs().runs[0].id, out)
    inspector.close()
    page = open_page(out.as_uri(), offline=True)
    turn(page, f"#/run/{run}")
    assert saved(page, "Graph", "SVG")[1].startswith(b"<svg")
    assert saved(page, "Graph", "PNG")[1].startswith(b"\x89PNG")
    turn(page, f"#/run/{run}/episodes?outcome=solved")
    turn(page, step_place(run, EPISODE, 1))
    page.wait_for_selector("table.matrix")
    assert page.evaluate("document.querySelector('.frame img').naturalWidth") == 360
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("h1:has-text('step 2')")
    page.get_by_text("Exact prompt", exact=True).click()
    assert page.get_by_label("System", exact=True).inner_text()
    assert faults(page) == []
    page.set_viewport_size({"width": 1280, "height": 800})
    found = {}
    for place in ("#/", f"#/run/{run}", f"#/run/{run}/episodes", step_place(run, EPISODE, 1)):
        turn(page, place)
        found[place] = faults(page)
    assert {place: told for place, told in found.items() if told} == {}
