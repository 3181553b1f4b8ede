"""Content providers from the command line, as tools use them on a device."""

from __future__ import annotations

import re

import pytest

from collab.envs.simphone.apps import messages
from collab.envs.simphone.content.messages import INBOX, SENT, add_message
from collab.envs.simphone.content.people import add_person, list_people
from collab.envs.simphone.core import FACTORY
from collab.envs.simphone.shell import run
from collab.envs.simphone.state import Phone, start
from collab.envs.simphone.ui.screen import look

ADA, ADA_ID = add_person(FACTORY, "Ada", "Lovelace", "+44 20 7946", "Work")
CONTACTS = "content://com.android.contacts"


def after(command: str, phone: Phone) -> Phone:
    result = run(phone, command)
    assert result.exit_code == 0, result.output
    return result.phone


def rows(query: str, phone: Phone) -> list[dict[str, str]]:
    """The printed rows, by column."""
    result = run(phone, f"content query --uri {query}")
    assert result.exit_code == 0, result.output
    lines = [line for line in result.stdout.splitlines() if line.startswith("Row: ")]
    return [dict(re.findall(r"(\w+)=(.*?)(?=, \w+=|$)", line.partition(" ")[2].partition(" ")[2])) for line in lines]


def test_numbers_have_the_columns_of_both_generations_of_the_provider() -> None:
    (new,) = rows(f"{CONTACTS}/data/phones", ADA)
    assert (new["display_name"], new["data1"], new["data2"], new["mimetype"]) == (
        *("Ada Lovelace", "+44 20 7946", "3"),
        "vnd.android.cursor.item/phone_v2",
    )
    assert new["contact_id"] == new["raw_contact_id"] == str(ADA_ID)
    (old,) = rows("content://contacts/phones", ADA)
    assert (old["display_name"], old["number"], old["type"], old["number_key"]) == (
        *("Ada Lovelace", "+44 20 7946", "3"),
        "64970244",
    )


def test_contacts_and_what_they_are_made_of() -> None:
    (contact,) = rows(f"{CONTACTS}/contacts", ADA)
    assert (contact["display_name"], contact["display_name_alt"]) == ("Ada Lovelace", "Lovelace, Ada")
    assert (contact["has_phone_number"], contact["name_raw_contact_id"]) == ("1", contact["_id"])
    (raw,) = rows(f"{CONTACTS}/raw_contacts --projection _id:display_name:deleted", ADA)
    assert raw == {"_id": "1", "display_name": "Ada Lovelace", "deleted": "0"}
    kinds = rows(f"{CONTACTS}/data --projection mimetype:data1 --where raw_contact_id={ADA_ID}", ADA)
    assert [kind["data1"] for kind in kinds] == ["Ada Lovelace", "+44 20 7946"]


def test_a_contact_is_made_of_three_inserts_and_seen_by_the_app() -> None:
    name, number = "vnd.android.cursor.item/name", "vnd.android.cursor.item/phone_v2"
    insert = f"content insert --uri {CONTACTS}"
    phone = after(f"{insert}/raw_contacts --bind account_type:n: --bind account_name:n:", ADA)
    phone = after(f"{insert}/data --bind raw_contact_id:i:2 --bind mimetype:s:{name} --bind data1:s:'Max Born'", phone)
    phone = after(f"{insert}/data --bind raw_contact_id:i:2 --bind mimetype:s:{number} --bind data1:s:0777", phone)
    born = list_people(phone)[1]
    assert (born.name, born.first, born.last, born.number) == ("Max Born", "Max", "Born", "0777")
    parts = after(
        f"{insert}/data --bind raw_contact_id:i:2 --bind mimetype:s:{name} --bind data2:s:Max --bind data3:s:Planck",
        phone,
    )
    assert list_people(parts)[1].name == "Max Planck"
    left = after(f"content delete --uri {CONTACTS}/raw_contacts --where \"display_name='Ada Lovelace'\"", phone)
    assert [one.name for one in list_people(left)] == ["Max Born"]
    assert rows(f"{CONTACTS}/data --where raw_contact_id=1", left) == []


@pytest.mark.parametrize("table", ["system", "secure", "global"])
def test_settings_are_a_provider_too(table: str) -> None:
    put = f"content insert --uri content://settings/{table} --bind name:s:made_up --bind value:s:7"
    phone = after(put, FACTORY)
    assert run(phone, f"settings get {table} made_up").stdout == "7\n"
    (row,) = rows(f"content://settings/{table} --where \"name='made_up'\"", phone)
    assert (row["name"], row["value"]) == ("made_up", "7")
    gone = after(f"content delete --uri content://settings/{table} --where \"name='made_up'\"", phone)
    assert gone.settings == FACTORY.settings


def test_a_setting_that_the_phone_needs_falls_back_when_it_is_deleted() -> None:
    phone = after("settings put global wifi_on 0", FACTORY)
    phone = after("content delete --uri content://settings/global --where \"name='wifi_on'\"", phone)
    assert phone.settings["global/wifi_on"] == "1"


def test_conversations_are_counted() -> None:
    phone = add_message(FACTORY, "+1555", "Hi", INBOX, date=1)
    phone = add_message(add_message(phone, "+1555", "Yo", SENT, date=2), "+1666", "Hello", INBOX, date=3)
    found = rows("content://sms/conversations", phone)
    assert sorted((one["msg_count"], one["snippet"]) for one in found) == [("1", "Hello"), ("2", "Yo")]


@pytest.mark.parametrize("date", [-1, 0, 10**17, -(10**17)])
def test_a_message_of_any_date_is_shown(date: int) -> None:
    phone = after(f"content insert --uri content://sms --bind address:s:1 --bind date:l:{date}", FACTORY)
    frame = look(start(phone, messages.PACKAGE, messages.APP.pages))
    assert any(element.label.startswith("1") for element in frame.observation.elements)
