"""Another language than the goal's: what the two tests see, and what they say they do not."""

from __future__ import annotations

import pytest

from collab.synthesis.llm_prompts import detect_language, find_scripts, is_foreign

GOAL = "Save a contact named Marta Castro with the phone number +14754051057."
SCREEN = 'Screen: Contacts\nbutton "Create contact" [1]\ntext "Ada Lovelace" [2]'


@pytest.mark.parametrize(
    "reply",
    [
        "这个屏幕显示联系人列表。",
        "Этот экран показывает список контактов.",
        "Der Bildschirm zeigt die Kontakte und ist für das Anlegen von neuen Kontakten da.",
        "Cet écran est la liste des contacts pour les appels et les messages qui sont sur le téléphone.",
        "Esta pantalla muestra los contactos y el botón que se usa para crear una lista con las personas.",
    ],
)
def test_other_languages_are_seen(reply):
    assert is_foreign(reply, "", SCREEN)
    assert is_foreign(reply, GOAL, SCREEN)


@pytest.mark.parametrize(
    "reply",
    [
        "The contact list is on the screen and the button opens a form for a new one.",
        "Tap “Kontakt und Adresse für die Familie” to open it.",
        "Marta Castro",
        "+14754051057",
        "OK",
        "",
        "Café: the résumé is on the screen.",
        'It says "Der Kontakt ist nicht für die Liste und das Feld".',
    ],
)
def test_english_passes_with_whatever_it_quotes(reply):
    assert not is_foreign(reply, GOAL, SCREEN)


def test_the_language_of_the_goal_is_wanted():
    goal = "Lege einen Kontakt für Marta an und trage die Nummer ein, die auf dem Zettel ist."
    assert detect_language(goal) == "german"
    assert not is_foreign("Die Nummer ist noch nicht da und der Name auch nicht.", goal, SCREEN)
    assert is_foreign("The number is not there and the name is missing on the form.", goal, SCREEN)


def test_scripts_of_the_screen_are_allowed():
    assert is_foreign("短信", GOAL, SCREEN)
    assert not is_foreign("短信", GOAL, f'{SCREEN}\nbutton "联系人" [3]')


def test_what_cannot_be_seen_passes_as_the_docstring_says():
    assert not is_foreign("To jest ekran z listą kontaktów.", GOAL, SCREEN)  # Polish: no list of its own
    assert not is_foreign("Kontakte anzeigen.", GOAL, SCREEN)  # too few words


def test_scripts_are_counted_by_letter():
    assert find_scripts("abc Жя 中 12 é") == {"LATIN", "CYRILLIC", "CJK"}
