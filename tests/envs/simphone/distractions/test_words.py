"""Synonyms and the second language: complete, and only the phone's own words."""

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from collab.envs.grammar import MOBILE
from collab.envs.simphone.app import NodeLine, UiNode, View
from collab.envs.simphone.apps import INSTALLED
from collab.envs.simphone.content.people import add_person
from collab.envs.simphone.core import FACTORY, SimPhone
from collab.envs.simphone.distractions.interruptions import KINDS, STAGES, begin, build_covering
from collab.envs.simphone.distractions.looks import (
    is_label,
    load_english_names,
    load_table,
    place_of,
    reword,
    reword_view,
    translate,
    translate_at,
)
from collab.envs.simphone.state import USUAL, Manner, Page, push, start
from collab.envs.simphone.suite import SimPhoneSuite
from collab.envs.simphone.tasks import TASKS
from collab.envs.simphone.touch import act
from collab.envs.simphone.ui.screen import Frame, build_view, list_inputs, look

SUITE = SimPhoneSuite()
GERMAN = Manner(language="german")
HOLE = re.compile(r"\{\w+\}")


def nodes_of(view: View) -> Iterator[UiNode]:
    single = (*view.actions, view.navigation, view.fab)
    for item in (*view.body, view.footer, *single):
        if item is not None:
            yield from item.nodes if isinstance(item, NodeLine) else (item,)


def texts_of(frame: Frame) -> Iterator[tuple[str, str]]:
    """Every text of a screen and its place, those out of sight included."""
    view = build_view(frame.phone)
    yield view.title, f"title/{frame.page.screen}"
    yield frame.phone.notice or "", "notice"
    for node in nodes_of(view):
        yield node.label, place_of(node.key)
        if node.field is None:
            yield node.value or "", place_of(node.key) + "="


@pytest.fixture(scope="module")
def frames() -> list[Frame]:
    """What the oracles of all tasks see."""
    found = []
    for spec in TASKS:
        phone = SimPhone()
        phone.reset(SUITE.instance(spec.name, 4))
        found.append(phone.frame)
        for action in phone.oracle() or ():
            phone.step(action)
            found.append(phone.frame)
    return found


# ------------------------------------------------------------------------------------------------------- complete


def test_every_label_that_the_oracles_see_has_a_german_translation(frames: list[Frame]) -> None:
    missing = {
        (place, text)
        for frame in frames
        for text, place in texts_of(frame)
        if is_label(text, place) and translate_at(text, place) is None
    }
    assert not missing, f"give them a line in tables/german.yaml, or their place one in tables/data.yaml: {missing}"


def test_an_unknown_label_would_be_found() -> None:
    assert is_label("Brand-new label", "org.tasks:id/anything")
    assert translate_at("Brand-new label", "org.tasks:id/anything") is None


def test_every_app_has_a_german_name() -> None:
    names = load_table("german")["apps"]
    assert {app.name for app in INSTALLED} <= set(names)
    assert len(set(names.values())) == len(names)


@pytest.mark.parametrize("kind", KINDS)
def test_interruptions_speak_german(kind: str) -> None:
    for seed in range(12):
        phone = begin(FACTORY, kind, seed)
        assert phone.cover is not None
        for stage in (stage for name, stage in STAGES if name == phone.cover.kind):
            cover = replace(phone.cover, stage=stage)
            for text in (node for node in nodes_of(build_covering(phone, cover))):
                assert not is_label(text.label, place_of(text.key)) or translate(text.label), text


def test_translations_have_the_holes_of_their_text() -> None:
    known = load_table("german")
    for text, translation in (known["texts"] | known["beside_data"]).items():
        assert sorted(HOLE.findall(text)) == sorted(HOLE.findall(translation)), text


def test_templates_at_places_of_data_have_translations() -> None:
    known = load_table("german")["texts"] | load_table("german")["beside_data"]
    assert all(one in known for allowed in load_table("data").values() for one in allowed)


@pytest.mark.parametrize(
    ("text", "place", "shown"),
    [
        ("Save", "x:id/save", "Speichern"),
        ("Sun, Oct 15", "x:id/clock", "So, 15. Okt."),
        (
            "Fri, 20 October 2023, 11:30 · High priority",
            "org.tasks:id/task/*=",
            "Fr, 20. Oktober 2023, 11:30 · Hohe Priorität",
        ),
        ("$4.50 · Food · 02 Oct 2023", "com.arduia.expense:id/expense/*=", "$4.50 · Essen · 02. Okt. 2023"),
        ("3 selected", "title/markor.list", "3 ausgewählt"),
        ("Delete 2 items?", "title/files.delete", "2 Elemente löschen?"),
        ("Home", "com.google.android.contacts:id/label/*", "Privat"),
        ("Home", "title/launcher.home", "Startbildschirm"),
        ("Do you like Clock?", "title/cover", "Gefällt dir Uhr?"),
        ("15:34", "x:id/anything", "15:34"),
        ("A label of an app from elsewhere", "y:id/z", "A label of an app from elsewhere"),
    ],
)
def test_german(text: str, place: str, shown: str) -> None:
    assert reword(text, place, GERMAN) == shown


# --------------------------------------------------------------------------------------------- only the phone's own


@pytest.mark.parametrize(
    ("text", "place", "shown"),
    [
        ("Save", "com.google.android.contacts:id/contact/*", "Save"),
        ("Save", "title/messages.conversation", "Save"),
        ("Save (unread)", "com.simplemobiletools.smsmessenger:id/conversation/*", "Save (ungelesen)"),
        ("Cancel · Oct 11", "com.simplemobiletools.smsmessenger:id/conversation/*=", "Cancel · 11. Okt."),
        ("You: Delete", "com.simplemobiletools.smsmessenger:id/message/*", "Du: Delete"),
        ("Complete Search", "org.tasks:id/complete/*", "Erledigen Search"),
        ("Search", "net.gsantner.markor:id/item/*", "Search"),
    ],
)
def test_what_users_wrote_is_kept(text: str, place: str, shown: str) -> None:
    assert reword(text, place, GERMAN) == shown
    assert reword(text, place, Manner(wording=1)) == text


def test_a_contact_called_like_a_button_keeps_the_name() -> None:
    phone, id = add_person(replace(FACTORY, manner=GERMAN), "Save", "", "123")
    package = "com.google.android.contacts"
    frame = look(start(phone, package, phone.apps.by_package[package].pages))
    labels = {one.key: one.label for one in frame.observation.elements}
    assert labels[f"{package}:id/contact/{id}"] == "Save"
    assert labels[f"{package}:id/search"] == "Kontakte durchsuchen"
    assert frame.observation.title == "Kontakte"


def test_what_is_typed_and_every_key_stay(frames: list[Frame]) -> None:
    for frame in frames:
        view, screen = build_view(frame.phone), frame.page.screen
        for manner in (GERMAN, Manner(wording=3)):
            other = reword_view(view, screen, manner)
            assert [node.key for node in nodes_of(other)] == [node.key for node in nodes_of(view)]
            assert [node.value for node in list_inputs(other)] == [node.value for node in list_inputs(view)]
        assert reword_view(view, screen, USUAL) is view


# ----------------------------------------------------------------------------------------------------------- synonyms


def test_no_synonym_is_a_label_of_its_own() -> None:
    own = load_table("german")
    labels = {"english": {*own["texts"], *own["apps"]}, "german": {*own["texts"].values(), *own["apps"].values()}}
    for language, words in load_table("synonyms").items():
        taken = {other for others in words.values() for other in others} & labels[language]
        assert not taken, (language, taken)
        assert set(words) <= labels[language]
        assert not set(words) & {*own["apps"], *own["apps"].values()}


@pytest.mark.parametrize("language", ["english", "german"])
def test_labels_of_a_screen_stay_different(frames: list[Frame], language: str) -> None:
    for seed in range(3):
        manner = Manner(language=language, wording=seed)  # type: ignore[arg-type]
        for frame in frames[::3]:
            view = build_view(frame.phone)
            usual = [node.label for node in nodes_of(view) if node.tap or node.field]
            other = [
                node.label for node in nodes_of(reword_view(view, frame.page.screen, manner)) if node.tap or node.field
            ]
            assert len(set(other)) >= len(set(usual)), (usual, other)


def test_synonyms_are_drawn_by_seed_and_mean_the_same_all_along() -> None:
    shown = {reword("Delete", "x:id/delete", Manner(wording=seed)) for seed in range(40)}
    assert shown == {"Delete", *load_table("synonyms")["english"]["Delete"]}
    assert {reword("Delete", f"x:id/{number}", Manner(wording=9)) for number in range(9)} == {
        reword("Delete", "x:id/delete", Manner(wording=9))
    }


# --------------------------------------------------------------------------------------------------------------- apps


@pytest.mark.parametrize("manner", [USUAL, GERMAN], ids=["english", "german"])
def test_apps_open_by_either_name(manner: Manner) -> None:
    phone = replace(FACTORY, manner=manner)
    for name in ("Settings", "Einstellungen", "einstellungen"):
        action = MOBILE.canonical(MOBILE.make("open_app", app_name=name), look(phone).observation)
        assert act(look(phone), action).foreground == "com.android.settings"


def test_the_drawer_finds_apps_by_either_name() -> None:
    for typed in ("clock", "uhr"):
        page = Page(screen="launcher.drawer", fields={"search": typed})
        labels = [one.label for one in look(push(replace(FACTORY, manner=GERMAN), page)).observation.elements]
        assert "Uhr" in labels, typed


def test_german_names_hide_no_english_one() -> None:
    for name, english in load_english_names().items():
        there = FACTORY.apps.by_name.get(name)
        assert there is None or there is FACTORY.apps.by_name.get(english)
