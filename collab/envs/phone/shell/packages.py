"""`pm`: which apps there are, their data and their permissions."""

from __future__ import annotations

from dataclasses import replace

from collab.envs.phone.apps import camera
from collab.envs.phone.apps.system_shade import PACKAGE as SYSTEM_UI
from collab.envs.phone.contacts_schema import CONTACTS_DATABASE
from collab.envs.phone.shell.arguments import split_flags
from collab.envs.phone.shell.session import Done, Session
from collab.envs.phone.state import LAUNCHER, Phone, close_app, remember
from collab.envs.phone.texts import SMS_DATABASE

_PROVIDERS = {
    "com.android.providers.contacts": (CONTACTS_DATABASE,),
    "com.android.providers.telephony": (SMS_DATABASE,),
}
"""Packages without a screen, and the databases that are theirs."""
_WITHOUT_SCREENS = (*_PROVIDERS, SYSTEM_UI)
_SYSTEM = ("com.android.settings", LAUNCHER, *_WITHOUT_SCREENS)
_PERMISSIONS = {
    (camera.PACKAGE, "CAMERA"): "camera",
    (camera.PACKAGE, "RECORD_AUDIO"): "camera",
    (camera.PACKAGE, "ACCESS_FINE_LOCATION"): "location",
    (camera.PACKAGE, "ACCESS_COARSE_LOCATION"): "location",
}
"""(package, permission) → under which name the app remembers the answer."""


def pm(session: Session, args: list[str], stdin: str) -> Done:
    """Talk to the package manager."""
    verb, rest = (args[0], args[1:]) if args else ("", [])
    _, names = split_flags(rest, "u")
    names = [name for name in names if name != "0"]
    if verb == "list":
        return _list(session.phone, rest)
    if verb == "path":
        known = names and (names[0] in session.phone.apps.by_package or names[0] in _WITHOUT_SCREENS)
        return Done(f"package:/data/app/{names[0]}/base.apk\n") if known else Done(code=1)
    if verb == "clear":
        return _clear(session, names)
    if verb in ("grant", "revoke"):
        return _grant(session, names, granted=verb == "grant")
    if verb in ("install", "install-create", "uninstall"):
        return Done("Failure [INSTALL_FAILED_USER_RESTRICTED: apps are part of SimPhone]\n", code=1)
    return Done(err=f"Error: Unknown command: {verb}\n", code=255)


def _list(phone: Phone, args: list[str]) -> Done:
    if args[:1] != ["packages"]:
        return Done(err=f"Error: unknown list type '{' '.join(args[:1])}'\n", code=1)
    flags, words = split_flags(args[1:], "u")
    names = sorted([*(app.package for app in phone.apps.all), *_WITHOUT_SCREENS])
    if "3" in flags:
        names = [name for name in names if name not in _SYSTEM and not name.startswith(("com.android", "com.google"))]
    if "s" in flags:
        names = [name for name in names if name in _SYSTEM or name.startswith(("com.android", "com.google"))]
    if words and words[0] not in ("0", "None"):
        names = [name for name in names if words[0] in name]
    if "f" in flags:
        names = [f"/data/app/{name}/base.apk={name}" for name in names]
    return Done("".join(f"package:{name}\n" for name in names))


def _clear(session: Session, names: list[str]) -> Done:
    if not names or (names[0] not in session.phone.apps.by_package and names[0] not in _PROVIDERS):
        return Done("Failed\n", code=1)
    session.phone = cleared(session.phone, names[0])
    return Done("Success\n")


def cleared(phone: Phone, package: str) -> Phone:
    """The phone after a package has lost all its data; the app is stopped."""
    bases = (
        *_PROVIDERS.get(package, ()),
        *(path for path in phone.apps.tables if path.startswith(f"/data/data/{package}/")),
    )
    rows = {key: content for key, content in phone.rows.items() if key[0] not in bases}
    memory = {name: kept for name, kept in phone.memory.items() if name != package}
    folder = f"/data/data/{package}/"
    files = {path: entry for path, entry in phone.files.items() if not path.startswith(folder)}
    phone = replace(phone, rows=rows, memory=memory, files=files)
    return close_app(phone, package) if package in phone.stacks and package != LAUNCHER else phone


def _grant(session: Session, names: list[str], *, granted: bool) -> Done:
    if len(names) < 2:
        return Done(err="Error: no permission specified\n", code=255)
    package, permission = names[0], names[1].rpartition(".")[2]
    if package not in session.phone.apps.by_package and package not in _PROVIDERS:
        return Done(err=f"Error: java.lang.IllegalArgumentException: Unknown package: {package}\n", code=255)
    name = _PERMISSIONS.get((package, permission))
    if name is not None:
        session.phone = remember(session.phone, package, **{name: granted or None})
    return Done()
