"""Every address answers with exactly the fields of its shape, and every mistake with one line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest

pytest.importorskip("fastapi")

from starlette.testclient import TestClient

from collab.view.auth import Gate
from collab.view.inspector import Inspector
from collab.view.schema import episodes, runs, step
from collab.view.server import STATIC, build_application


@pytest.fixture(scope="module")
def client(inspector: Inspector) -> Iterator[TestClient]:
    gate = Gate("127.0.0.1", 8477, open_to_all=True)
    with TestClient(build_application(inspector, gate), base_url="http://127.0.0.1:8477") as client:
        yield client


def check_fits(value: Any, kind: Any, where: str) -> None:
    """Whether a JSON value is what a shape says, field by field."""
    if kind is Any or isinstance(kind, str):
        return
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        options = [one for one in get_args(kind) if one is not type(None)]
        if value is None:
            assert type(None) in get_args(kind), f"{where}: null is not foreseen"
        elif len(options) == 1:
            check_fits(value, options[0], where)
    elif is_dataclass(kind):
        assert isinstance(value, dict), where
        hints = get_type_hints(kind)
        assert list(value) == [field.name for field in fields(kind)], where
        for name, hint in hints.items():
            check_fits(value[name], hint, f"{where}.{name}")
    elif isinstance(value, list):
        for one in value:
            check_fits(one, get_args(kind)[0], f"{where}[]")
    elif kind in (str, int, bool):
        assert type(value) is kind, f"{where}: {value!r}"
    elif kind is float:
        assert isinstance(value, float | int), f"{where}: {value!r}"


def answer(client: TestClient, address: str, **query: object) -> Any:
    response = client.get(address, params=query)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/json"
    return response.json()


def test_every_answer_has_exactly_the_fields_of_its_shape(client: TestClient) -> None:
    every = answer(client, "/api/runs")
    check_fits(every, runs.RunsView, "runs")
    run = every["runs"][0]["id"]
    page = answer(client, f"/api/run/{run}/episodes")
    check_fits(page, episodes.EpisodesView, "episodes")
    episode = page["rows"][0]["id"]
    at = {"episode": episode, "step": 1}
    for path, kind, query in (
        ("", runs.RunView, {}),
        ("/overview", runs.RunOverview, {}),
        ("/problems", runs.ProblemsView, {}),
        ("/highlights", episodes.FoundStepsView, {"kind": "overruled"}),
        ("/search", episodes.HitsView, {"q": "contact"}),
        ("/episode", episodes.EpisodeView, {"episode": episode}),
        ("/final", step.ScreenView, {"episode": episode}),
        ("/step", step.StepView, at),
        ("/screen", step.WholeScreenView, at),
        ("/critics", step.CriticsView, at),
        ("/cell", step.WholeCellView, {**at, "agent": "ada", "round": 1}),
    ):
        check_fits(answer(client, f"/api/run/{run}{path}", **query), kind, path)
    check_fits(answer(client, "/api/compare", a=run, b=run), episodes.ComparisonView, "compare")
    two = {"a": run, "b": run, "episode_a": episode, "episode_b": page["rows"][1]["id"]}
    check_fits(answer(client, "/api/compare/episode", **two), episodes.EpisodePairView, "pair")


def test_a_drawn_screen_is_a_picture_and_the_last_one_too(client: TestClient) -> None:
    run = answer(client, "/api/runs")["runs"][0]["id"]
    episode = answer(client, f"/api/run/{run}/episodes")["rows"][0]["id"]
    step = answer(client, f"/api/run/{run}/step", episode=episode, step=0)
    last = answer(client, f"/api/run/{run}/final", episode=episode)
    for address in (step["screen"]["picture"], last["picture"]):
        picture = client.get(address)
        assert picture.headers["content-type"] == "image/png"
        assert picture.content.startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("address", "status", "word"),
    [
        ("/api/run/nothing-1234567890", 404, "nothing-1234567890"),
        ("/api/run/{run}/episode?episode=Nothing/0", 404, "Nothing/0"),
        ("/api/run/{run}/step?episode=Nothing/0&step=0", 404, "Nothing/0"),
        ("/api/run/{run}/step?episode={episode}&step=999", 404, "999"),
        ("/api/run/{run}/step?episode={episode}&step=one", 400, "step"),
        ("/api/run/{run}/step?episode={episode}", 400, "step"),
        ("/api/run/{run}/step?episode={episode}&step=99999999999999999999", 400, "too large"),
        ("/api/run/{run}/screen?episode={episode}&step=last", 400, "last"),
        ("/api/run/{run}/cell?episode={episode}&step=0&agent=zoe&round=0", 404, "zoe"),
        ("/api/run/{run}/overview?labels=nobody", 404, "nobody"),
        ("/api/run/{run}/episodes?outcome=odd", 400, "outcome"),
        ("/api/run/{run}/episodes?min_steps=few", 400, "min_steps"),
        ("/api/run/{run}/highlights?kind=odd", 400, "kind"),
        ("/api/run/{run}/picture/" + "0" * 64, 404, "no picture"),
        ("/api/run/{run}/picture/abc", 400, "64 hexadecimal digits"),
        ("/api/compare?a={run}", 400, "b"),
        ("/api/nothing", 404, "nothing"),
        ("/static/nothing.js", 404, "nothing.js"),
    ],
)
def test_a_mistake_is_one_line(client: TestClient, address: str, status: int, word: str) -> None:
    run = answer(client, "/api/runs")["runs"][0]["id"]
    episode = answer(client, f"/api/run/{run}/episodes")["rows"][0]["id"]
    response = client.get(address.format(run=run, episode=episode))
    assert response.status_code == status, response.text
    (error,) = response.json().values()
    assert word in error
    assert "\n" not in error


def test_nothing_but_reading_is_answered(client: TestClient) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        assert client.request(method, "/api/runs").status_code == 405


def test_page_files_are_served_as_they_are(client: TestClient) -> None:
    scripts = sorted(STATIC.glob("*.js"))
    for path in scripts[:3]:
        found = client.get(f"/static/{path.name}")
        assert found.content == path.read_bytes()
        assert found.headers["content-type"] == "text/javascript; charset=utf-8"
    assert client.get("/").headers["content-type"] == "text/html; charset=utf-8"
