"""Contacts tasks: one stored contact, and one form left open."""

from __future__ import annotations

import random

from collab.envs.simphone.apps.contacts import PACKAGE
from collab.envs.simphone.content.people import extract_digits, list_people
from collab.envs.simphone.content.pools import draw_name, draw_number
from collab.envs.simphone.state import Phone
from collab.envs.simphone.tasks import plans
from collab.envs.simphone.tasks.spec import Params, TaskSpec, as_it_is, is_similar, make_phrasings
from collab.envs.simphone.ui.screen import Frame
from collab.types import Action

_ID = PACKAGE + ":id/"


def _to_form(frame: Frame) -> Action | None:
    """Walk to the form of a new contact; a form of another contact is thrown away."""
    if not plans.is_in_app(frame, PACKAGE):
        return plans.open_app("Contacts")
    if frame.page.screen == "contacts.editor" and frame.page.data["id"] is None:
        return None
    if frame.page.screen == "contacts.list":
        return plans.aim_at(frame, _ID + "floating_action_button")
    if frame.page.screen == "contacts.discard":
        about = frame.phone.stacks[PACKAGE][-2].data["id"]
        return plans.aim_at(frame, _ID + ("keep" if about is None else "discard"))
    return plans.press_back()


def _fill_form(frame: Frame, first: str, last: str, number: str) -> Action | None:
    for key, text in (("first", first), ("last", last), ("phone", number)):
        step = plans.fill(frame, _ID + key, text)
        if step is not None:
            return step
    return None


def _is_stored(phone: Phone, params: Params) -> bool:
    wanted = str(params["name"]), extract_digits(str(params["number"]))
    return any((one.name, extract_digits(one.number)) == wanted for one in list_people(phone))


def _add_plan(frame: Frame, params: Params, start: Phone) -> Action:
    if _is_stored(frame.phone, params):
        return plans.finish()
    first, _, last = str(params["name"]).partition(" ")
    step = _to_form(frame) or _fill_form(frame, first, last, str(params["number"]))
    return step or plans.aim_at(frame, _ID + "toolbar_button")


def _plan_draft(frame: Frame, params: Params, start: Phone) -> Action:
    if frame.page.screen == "contacts.label":
        return plans.aim_at(frame, f"{_ID}label/{params['phone_label']}")
    step = _to_form(frame) or _fill_form(frame, str(params["first"]), str(params["last"]), str(params["phone"]))
    if step is not None:
        return step
    return plans.finish() if frame.page.data["label"] == params["phone_label"] else plans.aim_at(frame, _ID + "label")


def _score_draft(start: Phone, end: Phone, params: Params) -> float:
    page = end.page
    if page.screen != "contacts.editor" or page.data["id"] is not None:
        return 0.0
    names = all(is_similar(page.fields.get(key, ""), str(params[key])) for key in ("first", "last"))
    number = extract_digits(page.fields.get("phone", "")) == extract_digits(str(params["phone"]))
    return float(names and number and page.data["label"] == params["phone_label"])


def _draw_contact(rng: random.Random) -> dict[str, str]:
    return {"name": draw_name(rng), "number": draw_number(rng)}


def _draw_draft(rng: random.Random) -> dict[str, str]:
    first, _, last = draw_name(rng).partition(" ")
    number = f"{rng.randint(100, 999)}-{rng.randint(100, 999)}-{rng.randint(1000, 9999)}"
    return {"first": first, "last": last, "phone": number, "phone_label": rng.choice(("Home", "Work"))}


TASKS: tuple[TaskSpec, ...] = (
    TaskSpec(
        name="ContactsAddContact",
        apps=("contacts",),
        complexity=1.2,
        difficulty="easy",
        goal=make_phrasings(
            "Save a contact named {name} with the phone number {number}.",
            "Add {name} to my contacts; the number is {number}.",
            "I met {name}. Please store the number {number} under that name in Contacts.",
        ),
        draw=_draw_contact,
        prepare=as_it_is,
        score=lambda start, end, params: float(_is_stored(end, params)),
        plan=_add_plan,
    ),
    TaskSpec(
        name="ContactsNewContactDraft",
        apps=("contacts",),
        complexity=1.2,
        difficulty="easy",
        goal=make_phrasings(
            "Fill in the form for a new contact, first name {first}, last name {last}, phone {phone} with the label "
            "{phone_label}, and leave it open without saving.",
            "Begin a new contact without saving it: {first} (first name), {last} (last name), {phone} as {phone_label} "
            "number.",
            "On the screen for creating a contact, enter First name: {first}, Last name: {last}, Phone: {phone}, "
            "Phone label: {phone_label}. Stop before saving it.",
        ),
        draw=_draw_draft,
        prepare=as_it_is,
        score=_score_draft,
        plan=_plan_draft,
    ),
)
