"""Tables of Android 13's contacts database that tools read.

Left out: its views, triggers, indices and search tables, and the collation PHONEBOOK, which no other SQLite has.
"""

from __future__ import annotations

from collab.envs.phone.databases import Table

CONTACTS_DATABASE = "/data/data/com.android.providers.contacts/databases/contacts2.db"
NAME, PHONE = "vnd.android.cursor.item/name", "vnd.android.cursor.item/phone_v2"
"""Kinds of data."""
_KEY = ("_id", "INTEGER PRIMARY KEY AUTOINCREMENT")
_FLAG = "INTEGER NOT NULL DEFAULT 0"
_CONTACTED = (
    ("x_times_contacted", _FLAG),
    ("x_last_time_contacted", "INTEGER"),
    ("times_contacted", _FLAG),
    ("last_time_contacted", "INTEGER"),
    ("starred", _FLAG),
    ("pinned", _FLAG),
)
ACCOUNTS = Table(
    path=CONTACTS_DATABASE,
    name="accounts",
    columns=(
        _KEY,
        ("account_name", "TEXT"),
        ("account_type", "TEXT"),
        ("data_set", "TEXT"),
        ("sim_slot_index", "INTEGER"),
        ("sim_ef_type", "INTEGER"),
        ("ungrouped_visible", _FLAG),
        ("should_sync", "INTEGER NOT NULL DEFAULT 1"),
        ("sync1", "TEXT"),
        ("sync2", "TEXT"),
        ("sync3", "TEXT"),
    ),
    used=("_id",),
    initial=({"_id": 1},),
)
"""One account: contacts that are on the phone alone."""
CONTACTS = Table(
    path=CONTACTS_DATABASE,
    name="contacts",
    columns=(
        _KEY,
        ("name_raw_contact_id", "INTEGER REFERENCES raw_contacts(_id)"),
        ("photo_id", "INTEGER REFERENCES data(_id)"),
        ("photo_file_id", "INTEGER REFERENCES photo_files(_id)"),
        ("custom_ringtone", "TEXT"),
        ("send_to_voicemail", _FLAG),
        *_CONTACTED,
        ("has_phone_number", _FLAG),
        ("lookup", "TEXT"),
        ("status_update_id", "INTEGER REFERENCES data(_id)"),
        ("contact_last_updated_timestamp", "INTEGER"),
    ),
    used=("_id", "name_raw_contact_id", "has_phone_number", "lookup", "contact_last_updated_timestamp"),
)
RAW_CONTACTS = Table(
    path=CONTACTS_DATABASE,
    name="raw_contacts",
    columns=(
        _KEY,
        ("account_id", "INTEGER REFERENCES accounts(_id)"),
        ("sourceid", "TEXT"),
        ("backup_id", "TEXT"),
        ("raw_contact_is_read_only", _FLAG),
        ("version", "INTEGER NOT NULL DEFAULT 1"),
        ("dirty", _FLAG),
        ("deleted", _FLAG),
        ("metadata_dirty", _FLAG),
        ("contact_id", "INTEGER REFERENCES contacts(_id)"),
        ("aggregation_mode", _FLAG),
        ("aggregation_needed", "INTEGER NOT NULL DEFAULT 1"),
        ("custom_ringtone", "TEXT"),
        ("send_to_voicemail", _FLAG),
        *_CONTACTED,
        ("display_name", "TEXT"),
        ("display_name_alt", "TEXT"),
        ("display_name_source", _FLAG),
        ("phonetic_name", "TEXT"),
        ("phonetic_name_style", "TEXT"),
        ("sort_key", "TEXT"),
        ("phonebook_label", "TEXT"),
        ("phonebook_bucket", "INTEGER"),
        ("sort_key_alt", "TEXT"),
        ("phonebook_label_alt", "TEXT"),
        ("phonebook_bucket_alt", "INTEGER"),
        ("name_verified", _FLAG),
        *((f"sync{number}", "TEXT") for number in range(1, 5)),
    ),
    used=("_id", "account_id", "contact_id", "display_name", "display_name_alt", "display_name_source", "sort_key"),
)
DATA = Table(
    path=CONTACTS_DATABASE,
    name="data",
    columns=(
        _KEY,
        ("package_id", "INTEGER REFERENCES package(_id)"),
        ("mimetype_id", "INTEGER REFERENCES mimetypes(_id) NOT NULL"),
        ("raw_contact_id", "INTEGER REFERENCES raw_contacts(_id) NOT NULL"),
        ("hash_id", "TEXT"),
        ("is_read_only", _FLAG),
        ("is_primary", _FLAG),
        ("is_super_primary", _FLAG),
        ("data_version", _FLAG),
        *((f"data{number}", "TEXT") for number in range(1, 16)),
        *((f"data_sync{number}", "TEXT") for number in range(1, 5)),
        ("carrier_presence", _FLAG),
        ("preferred_phone_account_component_name", "TEXT"),
        ("preferred_phone_account_id", "TEXT"),
    ),
    used=("_id", "mimetype_id", "raw_contact_id", "data1", "data2", "data3"),
)
_KINDS = (
    *("email_v2", "im", "nickname", "organization", "phone_v2", "sip_address", "name", "postal-address_v2"),
    *("identity", "photo", "group_membership"),
)
MIMETYPES = Table(
    path=CONTACTS_DATABASE,
    name="mimetypes",
    columns=(_KEY, ("mimetype", "TEXT NOT NULL")),
    initial=tuple({"_id": id, "mimetype": f"vnd.android.cursor.item/{kind}"} for id, kind in enumerate(_KINDS, 1)),
)
CONTACT_TABLES = (ACCOUNTS, CONTACTS, RAW_CONTACTS, DATA, MIMETYPES)
"""All of them."""
