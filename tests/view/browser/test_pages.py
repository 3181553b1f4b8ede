"""The pages on a run that is judged and paired: by mouse and by keys, by address, for every reader."""

from __future__ import annotations

import json
import re
import shutil
from urllib.parse import quote

import pytest

from collab.view.schema.episodes import EpisodeFilter

pytestmark = pytest.mark.browser

EPISODE = "ContactsAddContact/0"


def test_from_the_runs_to_a_single_cell_by_mouse_and_by_keys(team, open_page, step_place):
    address, inspector, run = team
    page = open_page(address)
    page.get_by_role("link", name=re.compile(r"team$")).click()
    page.get_by_role("link", name="Episodes", exact=True).click()
    page.get_by_role("link", name=EPISODE).click()
    page.wait_for_selector("table.matrix")
    step = inspector.get_step(run, EPISODE, 0)
    assert page.locator("button.cell").count() == len(step.cells) == 8
    shown = page.locator("button.cell .words").all_inner_texts()
    assert [text for text in shown if not text.startswith("no action")] == [
        cell.action.words for agent in step.agents for cell in step.cells if cell.agent == agent and cell.action
    ]
    placed = sum(one.action.spot is not None or "direction" in one.action.arguments for one in step.vote.ballots)
    assert page.locator(".overlay .mark").count() == placed
    assert page.locator(".stage .chip").count() == len(step.vote.ballots) - placed
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("h1:has-text('step 1')")
    assert page.evaluate("location.hash") == step_place(run, EPISODE, 1)
    kept = inspector.get_step(run, EPISODE, 1).vote.representative
    name = next(agent for agent in step.agents if agent != kept.agent)
    page.keyboard.press(str(step.agents.index(name) + 1))
    assert page.evaluate("location.hash") == step_place(run, EPISODE, 1, f"/{name}/{kept.round + 1}")
    page.keyboard.press("ArrowLeft")
    page.wait_for_selector("h1:has-text('step 0')")
    assert page.evaluate("document.activeElement.id") == f"cell {name} {kept.round}"
    assert page.locator(".crumbs li").all_inner_texts() == ["Runs", inspector.get_row(run).path, "Episodes"]
    page.keyboard.press("?")
    assert page.get_by_role("dialog").is_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "search"


@pytest.mark.slow
def test_a_cell_has_an_address_that_shows_its_exact_words(team, open_page, turn, step_place):
    address, inspector, run = team
    step = inspector.get_step(run, EPISODE, 1)
    cell = step.cells[-1]
    whole = inspector.get_cell(run, EPISODE, 1, cell.agent, cell.round)
    page = open_page(address)
    turn(page, step_place(run, EPISODE, 1, f"/{cell.agent}/{cell.round + 1}"))
    page.reload()
    page.wait_for_selector("main:not([aria-busy]) h1")
    assert page.locator("button.cell[aria-pressed=true]").get_attribute("id") == f"cell {cell.agent} {cell.round}"
    page.get_by_text("Raw reply", exact=True).click()
    assert page.get_by_label("Raw reply").inner_text().strip() == whole.reply.strip()
    page.get_by_text("Exact prompt", exact=True).click()
    assert page.get_by_label("Task, history and screen").text_content().startswith(whole.shared[:500])
    assert page.locator(".talk .message").count() == len(step.edges)
    assert page.locator(".pair").count() == len([one for one in step.pairs if one.id in cell.pairs])
    turn(page, step_place(run, EPISODE, 1, "/zoe/9"))
    page.get_by_text("There is no cell of zoe in round 9.").wait_for()
    page.keyboard.press("1")
    page.get_by_text("There is no cell of zoe").wait_for(state="detached")


@pytest.mark.medium
def test_a_cell_says_how_its_reply_ended(recorded, serving, open_page, turn, step_place, tmp_path):
    """Two replies of a step: one that was cut, and one with the log-probability of its end."""
    run = shutil.copytree(recorded, tmp_path / "run", ignore=shutil.ignore_patterns("index.sqlite*", "lock"))
    for log in (run / "events").iterdir():
        lines = log.read_text(encoding="utf-8").splitlines(keepends=True)
        for at, line in enumerate(lines):
            event = json.loads(line)
            if event["type"] == "step":
                first, second = event["step"]["matrix"]["utterances"][:2]
                first |= {"finish": "length", "completion_tokens": 128, "logprobs": [-1.0, -2.0]}
                second |= {"completion_tokens": 2, "logprobs": [-1.0, -0.5], "end_token": 2, "end_logprob": -0.25}
                lines[at] = json.dumps(event) + "\n"
        log.write_text("".join(lines), encoding="utf-8")
    address, inspector = serving(run)
    shown = inspector.list_runs().runs[0].id
    cut, ended = inspector.get_step(shown, EPISODE, 0).cells[:2]
    page = open_page(address)
    for cell, words in ((cut, "128 tokens, cut by max_tokens"), (ended, "-1.5 nats, its end -0.25")):
        turn(page, step_place(shown, EPISODE, 0, f"/{cell.agent}/{cell.round + 1}"))
        assert words in page.locator(".one-cell .facts").inner_text()


@pytest.mark.medium
def test_up_and_down_follow_the_list_that_one_came_from(team, open_page, turn):
    address, inspector, run = team
    listed = inspector.list_episodes(run, EpisodeFilter(q="a", sort="task", descending=True)).rows
    page = open_page(address)
    turn(page, f"#/run/{run}/episodes?q=a&offset=500")
    page.get_by_text(f"{len(listed)} episodes, none behind the first 500").wait_for()
    turn(page, f"#/run/{run}/episodes?q=a&sort=task&descending=true")
    page.locator("main a.run-link").first.click()
    for row in listed:
        page.wait_for_selector(f"h1:has-text('{row.id}')")
        page.keyboard.press("ArrowDown")
    page.get_by_role("link", name="Episodes, filtered").click()
    page.wait_for_selector("a.run-link")
    assert page.locator("main a.run-link").all_inner_texts() == [row.id for row in listed]
    first, *others = inspector.search(run, "a").rows
    turn(page, f"#/run/{run}/search?q=a")
    page.locator(".found a").first.click()
    page.wait_for_selector(f"h1:has-text('{first.episode}')")
    page.keyboard.press("ArrowDown")
    page.wait_for_selector(f"h1:has-text('{next(row.episode for row in others if row.episode != first.episode)}')")


@pytest.mark.medium
@pytest.mark.parametrize(
    "theme", [None, pytest.param("light", marks=pytest.mark.slow), pytest.param("dark", marks=pytest.mark.slow)]
)
def test_every_page_can_be_read_by_all_on_all_windows(team, open_page, turn, step_place, faults, theme):
    """Without a theme, axe looks at the page that holds the most, and every page fits its window."""
    address, _, run = team
    page = open_page(address, color_scheme=theme or "light")
    places = ["#/", "#/nowhere", f"#/run/{run}", f"#/run/{run}/episodes", f"#/run/{run}/highlights/overruled"]
    episode = quote(EPISODE, safe="")
    places += [f"#/run/{run}/search?q=contact", f"#/compare/{run}/{run}", f"#/compare/{run}/{run}/{episode}/{episode}"]
    found = {}
    for place in [*places, step_place(run, EPISODE, 1)]:
        turn(page, place)
        is_rich = place == step_place(run, EPISODE, 1)
        found[place] = faults(page, (390, 1280) if theme else (1280,) if is_rich else ())
    assert {place: told for place, told in found.items() if told} == {}


def test_colours_follow_the_system_until_a_reader_says_otherwise(team, open_page):
    page = open_page(team[0], color_scheme="light")
    to_light, to_dark = (page.get_by_role("button", name=f"Use {one} colours") for one in ("light", "dark"))
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    light = page.evaluate(ground)
    assert to_dark.is_visible()
    page.emulate_media(color_scheme="dark")
    to_light.wait_for()
    assert page.evaluate(ground) != light
    to_light.click()
    to_dark.wait_for()
    page.emulate_media(color_scheme="light")
    page.emulate_media(color_scheme="dark")
    assert to_dark.is_visible()
    assert page.evaluate(ground) == light


def test_the_step_that_is_shown_stands_in_the_visible_part_of_its_rail(team, open_page, turn, step_place):
    address, inspector, run = team
    last = inspector.get_step(run, EPISODE, 0).steps - 1
    page = open_page(address, viewport={"width": 160, "height": 800})
    turn(page, step_place(run, EPISODE, last))
    box = page.locator(".tick[aria-current]").bounding_box()
    assert page.evaluate("document.querySelector('.rail').scrollLeft") > 0
    assert box["x"] + box["width"] <= 160


@pytest.mark.medium
def test_what_was_left_out_of_lists_is_told(team, open_page, turn, step_place):
    address, _, run = team
    page = open_page(address)

    def longer(route) -> None:
        answer = route.fetch()
        step = answer.json()
        step["changes"]["more"], step["screen"]["more"], step["screen"]["picture"] = 120, 1, None
        route.fulfill(response=answer, body=json.dumps(step))

    page.route("**/step?*step=1*", longer)
    turn(page, step_place(run, EPISODE, 1))
    page.get_by_text("and 120 more changes, left out here").wait_for()
    page.get_by_text("and 1 more element, left out here").wait_for()


def test_a_text_that_was_asked_for_whole_stays_so_when_it_is_drawn_again(team, open_page):
    page = open_page(team[0])
    drawn = """async () => {
      const [{ keeping }, { passage }] = await Promise.all([import("/static/keep.js"), import("/static/words.js")]);
      const holder = document.querySelector("main");
      const long = (letter, label) => passage(letter.repeat(9000), { label });
      const draw = () => holder.replaceChildren(long("a", "Reason"), long("b", "Reply"));
      draw();
      holder.querySelector("button.whole").click();
      keeping(holder, draw);
      return [...holder.querySelectorAll("pre")].map((one) => one.textContent.match(/^[ab]*/)[0].length);
    }"""
    whole, cut = page.evaluate(drawn)
    assert whole == 9000
    assert 0 < cut < 9000


def test_numbers_are_rounded_before_they_are_told(team, open_page):
    page = open_page(team[0])
    given = {
        "duration": [0.9997, 59.97, 119.6, 3599.7],
        "amount": [9_999, 999_960, 1_234_567],
        "percent": [0, 1e-17, 1 / 1500, 1e-5, 0.5, 263 / 264, 1],
        "precise": [-0.00041234, -12.345, -0.0, -1e-9],
        "decimal": [-0.001, 0.5],
    }
    told = page.evaluate(
        """async (given) => {
          const figures = await import("/static/figures.js");
          const tell = ([name, values]) => [name, values.map((value) => figures[name](value))];
          return Object.fromEntries(Object.entries(given).map(tell));
        }""",
        given,
    )
    assert told == {
        "duration": ["1.0 s", "1 min 0 s", "2 min 0 s", "1 h 0 min"],
        "amount": ["9,999", "1.0M", "1.2M"],
        "percent": ["0%", "0%", "0.1%", "<0.1%", "50%", "99.6%", "100%"],
        "precise": ["-0.000412", "-12.3", "0", "-1e-9"],
        "decimal": ["0.00", "0.50"],
    }


@pytest.mark.slow
def test_lines_that_cannot_be_read_are_told_on_the_page(recorded, serving, open_page, turn, tmp_path):
    run = tmp_path / "spoilt"
    shutil.copytree(recorded, run)
    spoilt = next((run / "labels").glob("*/events/*.jsonl"))
    spoilt.write_bytes(b"{}\n" + spoilt.read_bytes())
    address, inspector = serving(run)
    page = open_page(address)
    turn(page, f"#/run/{inspector.list_runs().runs[0].id}")
    page.get_by_role("heading", name="What cannot be read").wait_for()
    assert spoilt.name in page.locator(".problems").inner_text()


@pytest.mark.slow
def test_a_score_that_was_flipped_on_purpose_is_marked(recorded, serving, open_page, turn, step_place, aside, tmp_path):
    run, wrong = tmp_path / "judged", tmp_path / "wrong.yaml"
    shutil.copytree(recorded, run)
    wrong.write_text("kind: oracle\nflip: 0.9\n")
    assert aside("pairs", "rebuild", str(run), "--critic", str(wrong)) == 0
    address, inspector = serving(run)
    id = inspector.list_runs().runs[0].id
    flipped = [cell for cell in inspector.get_step(id, EPISODE, 1, "wrong").cells if cell.original is not None]
    page = open_page(address)
    turn(page, step_place(id, EPISODE, 1, "?labels=wrong"))
    assert flipped
    assert page.locator("table.matrix .tag.score", has_text="⇄").count() == len(flipped)
    page.locator("button.cell", has_text="⇄").first.click()
    page.get_by_text("flipped on purpose: the critic itself gave").wait_for()


@pytest.mark.slow
def test_two_critics_are_compared_and_chosen(recorded, serving, open_page, turn, step_place, aside, tmp_path):
    run = tmp_path / "judged"
    shutil.copytree(recorded, run)
    assert aside("pairs", "rebuild", str(run), "--critic", "outcome", "--name", "second") == 0
    address, inspector = serving(run)
    id = inspector.list_runs().runs[0].id
    page = open_page(address)
    turn(page, step_place(id, EPISODE, 1))
    page.get_by_text("Compare 2 critics on this step", exact=True).click()
    table = page.get_by_role("region", name="Critics side by side")
    table.wait_for()
    found = inspector.get_critics(id, EPISODE, 1)
    assert table.locator("thead th").all_inner_texts()[2:] == [one.labels for one in found.critics]
    assert table.locator("tr.disputed").count() == len(found.disputed)
    for place in (f"#/run/{id}", f"#/run/{id}/highlights/overruled"):
        turn(page, place)
        other = inspector.get_run(id).label_sets[1]
        page.get_by_label("critic").select_option(other)
        page.wait_for_function("labels => location.hash.endsWith('labels=' + labels)", arg=other)
        page.wait_for_selector("main:not([aria-busy]) h1")
        assert page.get_by_label("critic").input_value() == other
    turn(page, step_place(id, EPISODE, 1, f"?labels={other}"))
    page.get_by_text("Messages read in round").click()
    links = page.locator("main a[href*='/episode/']").evaluate_all("all => all.map((one) => one.getAttribute('href'))")
    assert [link for link in links if f"labels={other}" not in link] == []
    assert all(page.locator(where).count() for where in (".heard a", ".pair a"))
    page.keyboard.press("ArrowUp")
    page.wait_for_selector(f"h1:not(:has-text('{EPISODE}'))")
    assert page.locator("#labels").input_value() == other


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory, aside):
    """A folder with two runs of the same twelve instances, played with other luck; often unsolved."""
    folder = tmp_path_factory.mktemp("two")
    for luck in (1, 2):
        tasks = "ClockStopWatchRunning,ContactsAddContact,ExpenseDeleteDuplicates,FilesDeleteFile,MarkorCreateFolder"
        asked = ["--env", "androidworld", "--agents", "rehearsal", "--graph", "layered4", "--episodes", "12"]
        asked += ["--tasks", f"{tasks},MarkorDeleteAllNotes", "--seed", "3", "--set", f"sampling_seed={luck}"]
        asked += ["--set", "agents.*.options.error_base=0.6"]
        asked += ["--out", str(folder / f"a-team-of-four-with-a-long-name-and-luck-{luck}")]
        assert aside("rollout", *asked) == 0
    return folder


@pytest.mark.medium
def test_a_comparison_marks_what_differs_and_gives_the_paired_interval(two_runs, serving, open_page, turn):
    address, inspector = serving(two_runs)
    page = open_page(address)
    a, b = sorted(inspector.list_runs().runs, key=lambda row: row.path)
    turn(page, f"#/compare/{a.id}/{b.id}")
    assert page.locator("h1").inner_text() == f"{a.path} and {b.path}"
    found = inspector.compare(a.id, b.id)
    solved = [(one.a.success is True, one.b.success is True) for one in found.both]
    won, lost = solved.count((False, True)), solved.count((True, False))
    assert (found.difference.won, found.difference.lost, found.difference.instances) == (won, lost, 12)
    assert found.difference.value == pytest.approx((won - lost) / 12)
    assert found.difference.low <= found.difference.value <= found.difference.high
    told = page.locator("#difference").inner_text()
    assert re.match(r"B minus A: [+−]?\d+\.\d percentage points over 12 equal instances \(95% interval ", told)
    assert told.endswith(f"B alone solved {won}, A alone {lost}.")
    assert ("not separable" in told) == (found.difference.low <= 0 <= found.difference.high)
    rows = page.locator("tr.differs")
    assert rows.count() == won + lost > 0
    for words in rows.all_inner_texts():
        assert re.search("solved by [AB] alone", words)


@pytest.mark.parametrize(("width", "names"), [(390, ["Success"]), (1440, ["Success", "Last written ↓"])])
def test_the_table_of_runs_shows_what_is_looked_for_first(two_runs, serving, open_page, width, names):
    address, _ = serving(two_runs)
    page = open_page(address, viewport={"width": width, "height": 800})
    heads = page.locator("thead th").all_inner_texts()
    for name in names:
        for cell in page.locator(f"tbody tr > :nth-child({heads.index(name) + 1})").all():
            box = cell.bounding_box()
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= width, name


def test_shares_that_are_near_each_other_can_be_told_apart_in_a_heat_map(team, open_page):
    page = open_page(team[0])
    colours = page.evaluate("""async () => {
      const { heatMap } = await import("/static/bars.js");
      const shares = [0.71, 0.94];
      const ada = { name: "ada", place: 0, letter: "A", tint: "tint-0", shape: 0 };
      const map = heatMap([ada], 2, (agent, round) => shares[round], "test");
      document.querySelector("main").replaceChildren(map);
      const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
      return [...map.querySelectorAll("td.heat")].map((cell) => {
        canvas.fillStyle = getComputedStyle(cell).backgroundColor;
        canvas.fillRect(0, 0, 1, 1);
        return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
      });
    }""")
    assert sum(abs(one - other) for one, other in zip(*colours, strict=True)) > 100
