import base64
import hashlib
import io
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from collab.cli.main import main
from collab.errors import RunFormatError, StoreFailure, UnknownName, UsageError
from collab.loop.record import TrainingDir
from collab.store.manifest import Manifest
from collab.store.run import RunStore
from collab.types import Observation
from collab.view.common import to_json
from collab.view.export import STATIC, WIDTH, NotBundled, bundle, export, hash_looks, make_thumbnail
from collab.view.inspector import Inspector
from collab.view.schema.episodes import EpisodeFilter


@pytest.fixture(scope="module")
def report(recorded, read_report, tmp_path_factory):
    """All episodes of the recorded run: what the export says, and the file as a browser takes it apart."""
    folder = tmp_path_factory.mktemp("report")
    inspector = Inspector([recorded], index_cache=folder / "index_cache")
    made = export(inspector, run_of(inspector), folder / "report.html")
    inspector.close()
    return made, read_report(made.path)


def run_of(inspector):
    return inspector.list_runs().runs[0].id


def plain(answer):
    return json.loads(to_json(answer))


def without_picture(step):
    return {**step, "screen": {**step["screen"], "picture": None}}


@pytest.mark.medium
def test_a_report_answers_what_the_server_answers(inspector, report):
    made, page = report
    run, answers = run_of(inspector), page.answers
    episodes = plain(inspector.list_episodes(run, EpisodeFilter()))
    assert answers[f"run/{run}/episodes"] == episodes
    assert answers[f"run/{run}/overview"]["epochs"] == plain(inspector.get_overview(run))["epochs"]
    assert answers[f"run/{run}/problems"] == {"problems": []}
    steps = 0
    for row in episodes["rows"]:
        key = row["id"].replace("/", "%2F")
        view = answers[f"run/{run}/episode?episode={key}"]
        assert view["steps"] == plain(inspector.get_episode(run, row["id"]))["steps"]
        for one in view["steps"]:
            steps += 1
            found = answers[f"run/{run}/step?episode={key}&step={one['step']}"]
            assert without_picture(found) == without_picture(plain(inspector.get_step(run, row["id"], one["step"])))
            for cell in found["cells"]:
                at = f"run/{run}/cell?episode={key}&step={one['step']}&agent={cell['agent']}&round={cell['round']}"
                whole = plain(inspector.get_cell(run, row["id"], one["step"], cell["agent"], cell["round"]))
                assert answers[at] == {**whole, "tokens": None, "logprobs": None}
                assert answers[at]["shared"], "the exact prompt"
    assert (made.episodes, made.of, made.steps) == (3, 3, steps)


def test_nothing_in_it_leads_elsewhere(report):
    _, page = report
    kinds = {tag for tag, _ in page.tags}
    assert kinds <= {"html", "head", "meta", "title", "link", "style", "body", "noscript", "script"}
    for tag, given in page.tags:
        assert not [name for name in given if name.startswith("on") or name in ("src", "style", "action")]
        assert tag != "link" or given["href"] == "data:,"
        assert tag != "script" or set(given) in ({"type", "id"}, set())
    assert "/api/" not in json.dumps(page.data["pictures"])


def test_its_policy_allows_its_own_script_and_style_alone(report):
    _, page = report
    metas = [given for tag, given in page.tags if tag == "meta"]
    policy = metas[1]
    assert metas[0] == {"charset": "utf-8"}, "the policy is the first thing behind the encoding"
    rules = dict(rule.strip().split(" ", 1) for rule in policy["content"].split(";"))
    assert rules == {
        "default-src": "'none'",
        "script-src": f"'{_hash(page.texts['script'])}'",
        "style-src": f"'{_hash(page.texts['style'])}'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }


def test_pictures_are_small_and_each_is_there_once(inspector, report):
    made, page = report
    run, pictures = run_of(inspector), page.data["pictures"]
    for content in pictures.values():
        image = Image.open(io.BytesIO(base64.b64decode(content.removeprefix("data:image/webp;base64,"))))
        assert (image.format, image.size) == ("WEBP", (360, 800))
    assert len(set(pictures.values())) == len(pictures) == made.pictures
    seen, shown = {}, set()
    for address, answer in page.answers.items():
        if "/step?" in address:
            one = inspector.get_observation(run, answer["episode"], str(answer["step"]))
            shown.add(answer["screen"]["picture"])
            assert seen.setdefault(hash_looks(one), answer["screen"]["picture"]) == answer["screen"]["picture"]
    assert len(seen) == len(shown) < made.steps, "home screens are alike"
    assert {f"/api/{name}" for name in pictures} >= shown


@pytest.mark.slow
def test_the_same_run_makes_the_same_file(inspector, tmp_path):
    run = run_of(inspector)
    sizes = [export(inspector, run, tmp_path / name, most=1).size for name in ("a.html", "b.html")]
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()
    assert sizes[0] == (tmp_path / "a.html").stat().st_size


def test_chosen_episodes_are_leafed_through_among_themselves(inspector, read_report, tmp_path):
    run, out = run_of(inspector), tmp_path / "few.html"
    ids = [row.id for row in inspector.list_episodes(run, EpisodeFilter()).rows]
    made = export(inspector, run, out, episodes=[ids[2], ids[0]])
    answers = read_report(out).answers
    assert (made.episodes, made.of) == (2, 3)
    assert [row["id"] for row in answers[f"run/{run}/episodes"]["rows"]] == [ids[0], ids[2]]
    first = answers[f"run/{run}/episode?episode={ids[0].replace('/', '%2F')}"]
    assert (first["previous"], first["next"]) == (None, {"run": run, "episode": ids[2]})
    assert {row["episode"] for row in answers[f"run/{run}/highlights?kind=overruled"]["rows"]} <= {ids[0], ids[2]}
    assert answers["runs"]["runs"][0]["path"] == "team", "its name, and not where it lies on this machine"
    assert read_report(out).data["held"] == {run: {"episodes": 2, "of": 3}}


def test_what_is_left_out_of_a_step_is_counted_in_a_report_as_on_the_server(recorded, inspect, read_report, tmp_path):
    with RunStore.open(recorded).open_reader() as reader:
        played = next(reader.iterate_trajectories())
    step = played.steps[0]
    seen = replace(step.observation, elements=(step.observation.elements * 2003)[:2003], renderer=None)
    cell = step.matrix.utterances[0]
    cell = replace(cell, prompt=replace(cell.prompt, trimmed=("history",) * 23))
    matrix = replace(step.matrix, utterances=(cell, *step.matrix.utterances[1:]))
    store = RunStore.create(tmp_path / "run", Manifest(command="rollout", config={}, seed=0))
    with store.open_writer() as writer:
        writer.begin_episode("Task/0", played.task, episode=0, epoch=0, environment="x", environment_version="1")
        writer.step("Task/0", replace(step, observation=seen, matrix=matrix))
    inspector = inspect(store.path)
    id = inspector.list_ids()[0]
    view = inspector.get_step(id, "Task/0", 0)
    assert (len(view.screen.elements), view.screen.more) == (2000, 3)
    assert (len(view.cells[0].trimmed), view.cells[0].trimmed_more) == (20, 3)
    export(inspector, id, tmp_path / "report.html")
    (told,) = [one for address, one in read_report(tmp_path / "report.html").answers.items() if "/step?" in address]
    assert (told["screen"]["more"], told["cells"][0]["trimmed_more"]) == (3, 3)


def test_a_training_is_leafed_through_over_its_epochs(recorded, inspect, read_report, tmp_path):
    folder = TrainingDir(tmp_path / "marl")
    for number in (1, 2):
        shutil.copytree(recorded, folder.get_epoch(number).rollout)
    shutil.copytree(recorded, folder.get_epoch(1).evaluation / "seed-30")
    folder.write({"config": {"method": {"epochs": 2}, "run": {"seed": 5}}, "created": "2026-11-22T00:00:00.000Z"})
    inspector = inspect(tmp_path / "marl")
    training = run_of(inspector)
    rollouts = [part.id for part in inspector.get_run(training).parts if part.role == "rollout"]
    out = tmp_path / "report.html"
    made = export(inspector, training, out, episodes=["ContactsAddContact/0"])
    assert (made.episodes, made.of) == (2, 6), "the same task in both epochs"
    answers = read_report(out).answers
    assert [row["run"] for row in answers[f"run/{training}/episodes"]["rows"]] == rollouts
    assert [part["id"] for part in answers[f"run/{training}"]["parts"]] == rollouts, "none that the report lacks"
    for run, other in zip(rollouts, reversed(rollouts), strict=True):
        assert answers[f"run/{run}"]["training"] == training
        assert [row["run"] for row in answers[f"run/{run}/episodes"]["rows"]] == [run]
        view = answers[f"run/{run}/episode?episode=ContactsAddContact%2F0"]
        [around] = [key for key in (view["previous"], view["next"]) if key is not None]
        assert around == {"run": other, "episode": "ContactsAddContact/0"}
    assert len(read_report(out).data["pictures"]) < made.steps / 2 + 1, "equal screens of both epochs are one picture"


def test_a_mistake_in_what_is_asked_leaves_an_older_report_alone(inspector, tmp_path):
    run, out = run_of(inspector), tmp_path / "report.html"
    out.write_text("older")
    with pytest.raises(UnknownName, match="no episode called 'ContactsAddContact/7'"):
        export(inspector, run, out, episodes=["ContactsAddContact/7"])
    with pytest.raises(UsageError, match="is a folder"):
        export(inspector, run, tmp_path)
    with pytest.raises(UnknownName, match="nobody"):
        export(inspector, run, out, labels="nobody")
    with pytest.raises(StoreFailure, match="cannot be written"):
        export(inspector, run, tmp_path / "no" / "folder.html", most=0)
    assert out.read_text() == "older"


def test_what_lost_its_head_is_refused(recorded, inspect, tmp_path):
    spoilt = tmp_path / "spoilt"
    (spoilt / "events").mkdir(parents=True)
    (spoilt / "run.json").write_text("{")
    inspector = inspect(spoilt)
    with pytest.raises(RunFormatError):
        export(inspector, run_of(inspector), tmp_path / "report.html")


def test_a_picture_is_shrunk_to_its_width_and_a_small_one_is_kept():
    screen = Observation(space="web", title="t", elements=(), text="t", screenshot="0" * 64)
    for size, expected in (((1080, 300), (360, 100)), ((700, 7), (360, 4)), ((160, 210), (160, 210))):
        buffer = io.BytesIO()
        Image.new("RGB", size, "#0072B2").save(buffer, "WEBP", lossless=True)
        small = make_thumbnail(screen, buffer.getvalue())
        assert Image.open(io.BytesIO(small)).size == expected
        assert (small == buffer.getvalue()) == (size[0] <= WIDTH)


def test_the_command_writes_a_report_and_says_what_is_in_it(recorded, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    out = tmp_path / "report.html"
    assert main(["view", str(recorded), "--export", str(out), "--most", "1"]) == 0
    shown = capsys.readouterr()
    assert shown.out == f"{out}  ({out.stat().st_size / 1e6:.1f} MB)\n"
    assert "1 of 3 episodes" in shown.err
    assert "choose others with --episode ID" in shown.err


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--most", "1"], "--most chooses what --export takes along"),
        (["--episode", "ContactsAddContact/0"], "--episode chooses"),
        (["--export", "x.html", "--episode", "ContactsAddContact/0", "--most", "1"], "leave one of them out"),
        (["--export", "x.html", "--episode", "ContactsAddContact/9"], "did you mean ContactsAddContact/0"),
        (["--export", "x.html", "."], "2 are named"),
        (["--export", "x.html", "--port", "8000"], "--port is about serving pages, and --export serves none"),
        (["--export", "x.html", "--host", "0.0.0.0"], "--host is about"),
        (["--export", "x.html", "--no-token"], "--no-token is about"),
    ],
)
def test_options_that_do_not_fit_are_one_line_and_leave_no_file(recorded, tmp_path, capsys, monkeypatch, options, why):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert main(["view", str(recorded), *options]) == 2
    assert why in capsys.readouterr().err
    assert not (tmp_path / "x.html").exists()


@pytest.mark.medium
def test_every_module_of_the_pages_is_in_the_report(report):
    _, page = report
    script = page.texts["script"]
    assert [path.name for path in sorted(STATIC.glob("*.js")) if f'modules["{path.name}"] = ' not in script] == []
    style = page.texts["style"]
    assert [path.name for path in sorted(STATIC.glob("*.css")) if path.read_text() not in style] == []


def _hash(content):
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


# ------------------------------------------------------------------------------------------------------ browser


@pytest.mark.medium
@pytest.mark.browser
def test_it_opens_from_a_file_without_server_and_network(report, offline):
    made, _ = report
    page, said, asked = offline(made.path)
    page.get_by_role("link", name="team", exact=True).click()
    page.get_by_role("link", name="Episodes", exact=True).click()
    page.get_by_role("link", name="ContactsAddContact/0").click()
    picture = page.locator("img")
    picture.wait_for()
    assert picture.evaluate("image => image.decode().then(() => image.naturalWidth)") == 360
    assert page.get_by_text("Save a contact named").first.is_visible()
    page.get_by_text("Exact prompt").click()
    page.get_by_text(re.compile(r"You are \w+\. Round \d of 2\.")).first.wait_for()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("location.hash.endsWith('/1')")
    assert said == []
    assert {address.split(":")[0] for address in asked} <= {"file", "data", "blob"}
    assert len([address for address in asked if address.startswith("file")]) == 1


@pytest.mark.browser
@pytest.mark.slow
def test_a_report_of_some_episodes_says_so(inspector, report, offline, tmp_path):
    run, out = run_of(inspector), tmp_path / "few.html"
    export(inspector, run, out, most=2)
    told = "This report holds 2 of 3 episodes"
    for path, shown in ((out, 1), (report[0].path, 0)):
        page, said, _ = offline(path)
        page.goto(f"{path.as_uri()}#/run/{run}")
        page.get_by_role("heading", name="How it was made").wait_for()
        assert page.get_by_text(told).count() == shown
        assert said == []


@pytest.mark.browser
@pytest.mark.slow
def test_a_script_that_is_smuggled_in_does_not_run(report, offline, tmp_path):
    made, _ = report
    text = made.path.read_text()
    spoilt = tmp_path / "spoilt.html"
    harm = "<script>window.harmed = 1</script><img src=x onerror='window.harmed = 1'><body"
    spoilt.write_text(text.replace("<body", harm, 1))
    page, said, _ = offline(spoilt)
    page.get_by_role("link", name="team", exact=True).wait_for()
    assert page.evaluate("window.harmed") is None
    assert len([line for line in said if "Content Security Policy" in line]) >= 2


def write_modules(folder: Path, **modules: str) -> Path:
    for name, source in modules.items():
        (folder / f"{name}.js").write_text(source)
    return folder


def test_modules_stand_behind_those_they_need(tmp_path):
    folder = write_modules(
        tmp_path,
        main='import { b } from "./b.js";\nimport * as c from "./c.js";\nimport "./d.js";\nexport const a = b + c.c;\n',
        b='import { c as d } from "./c.js";\nexport const b = d;\n',
        c="/** </script> in a comment. */\nexport function c() {}\nclass Own {}\nexport { Own as Named };\n",
        d="export async function d() {}\n",
    )
    script = bundle(folder, "main.js")
    places = [script.index(f'modules["{name}.js"] = ') for name in ("c", "b", "d", "main")]
    assert places == sorted(places)
    assert 'const { c: d } = modules["c.js"];' in script
    assert 'const c = modules["c.js"];' in script
    assert "return { c, Named: Own };" in script
    assert "export" not in script
    assert "import" not in script


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("export default 3;\n", "export default"),
        ("export let changing = 3;\n", "export let"),
        ('const later = () => import("./main.js");\n', r"import\("),
        ("const here = import.meta.url;\n", "import.meta"),
        ('import { a } from "https://cdn.example/a.js";\n', "no static import"),
        ('import { a } from "./main.js";\n', "circle"),
        ('const text = "</script>";\n', "end the script early"),
    ],
)
def test_what_one_script_cannot_repeat_is_refused(tmp_path, source, why):
    with pytest.raises(NotBundled, match=why):
        bundle(write_modules(tmp_path, main=source), "main.js")
