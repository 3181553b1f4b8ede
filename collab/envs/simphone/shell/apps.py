"""`am` and `monkey`: starting and stopping apps, intents and broadcasts.

`pm`: which apps there are, their data and their permissions.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field, replace
from urllib.parse import unquote

from collab.envs.simphone.app import App
from collab.envs.simphone.apps import camera, clipper, contacts, dialer, messages
from collab.envs.simphone.apps.system import PACKAGE as SYSTEM_UI
from collab.envs.simphone.content.messages import SMS_DATABASE
from collab.envs.simphone.content.people import CONTACTS_DATABASE
from collab.envs.simphone.shell import input
from collab.envs.simphone.shell.session import Output, ShellSession, split_flags
from collab.envs.simphone.state import (
    LAUNCHER,
    Page,
    Phone,
    close_app,
    close_panel,
    go_home,
    list_recent_apps,
    push,
    put_field,
    remember,
    start,
)
from collab.envs.simphone.ui.screen import find_foreground_package, leave

ADB_KEYBOARD = "com.github.uiautomator/.AdbKeyboard"


def compute_task_id(phone: Phone, package: str) -> int:
    """Return the number by which the activity manager knows an app."""
    return 10 + list(phone.apps.by_package).index(package)


def name_activity(app: App) -> str:
    """Complete class name of an app's main activity."""
    return app.package + app.activity if app.activity.startswith(".") else app.activity


def find_front(phone: Phone) -> tuple[str, str]:
    """Return (package, activity) in front: a permission dialog is the system's; the shade is no activity."""
    package = find_foreground_package(close_panel(phone))
    if package != phone.foreground:
        return package, f"{package}.ui.GrantPermissionsActivity"
    return package, name_activity(phone.apps.by_package[package])


def launch(phone: Phone, package: str) -> Phone:
    """Bring an app to the front as it was left; the app before it gets to save."""
    if package == LAUNCHER:
        return go_home(leave(phone))
    if phone.foreground == package:
        return close_panel(phone)
    return start(leave(phone), package, phone.apps.by_package[package].pages)


# ------------------------------------------------------------------------------------------------------------- am


def am(session: ShellSession, args: list[str], stdin: str) -> Output:
    """Talk to the activity manager."""
    verb, rest = (args[0], args[1:]) if args else ("", [])
    if verb in ("start", "start-activity"):
        return _start(session, rest)
    if verb == "broadcast":
        return _broadcast(session, _parse_intent(rest))
    # All three stop an app; what differs on a phone cannot be seen here.
    if verb in ("force-stop", "kill", "stop-app"):
        packages = [arg for arg in rest if not arg.startswith("-")]
        for package in packages:
            session.phone = _stop_app(session.phone, package)
        return Output() if packages else Output(err='Error: Argument expected after "force-stop"\n', code=255)
    if verb in ("stack", "task"):
        return _stack(session, rest)
    if verb in ("startservice", "start-service", "start-foreground-service", "stopservice", "stop-service"):
        return Output(f"Starting service: Intent {{ {_parse_intent(rest).component or ''} }}\n")
    # Known and without an effect: scripts call them before they begin.
    if verb in ("kill-all", "idle-maintenance", "wait-for-broadcast-idle", "set-debug-app", "clear-debug-app"):
        return Output()
    if verb == "get-current-user":
        return Output("0\n")
    return Output(err=f"Error: unknown command '{verb}'\n", code=255)


@dataclass(slots=True)
class _Intent:
    action: str = ""
    data: str = ""
    type: str = ""
    component: str = ""
    package: str = ""
    extras: dict[str, str] = field(default_factory=dict)
    flags: set[str] = field(default_factory=set)

    def __str__(self) -> str:
        parts = {"act": self.action, "dat": self.data, "typ": self.type, "cmp": self.component}
        return "Intent { " + " ".join(f"{name}={value}" for name, value in parts.items() if value) + " }"


def _parse_intent(args: list[str]) -> _Intent:
    intent = _Intent()
    waiting = iter(args)
    for arg in waiting:
        if arg in ("-a", "-d", "-t", "-n", "-p"):
            name = {"-a": "action", "-d": "data", "-t": "type", "-n": "component", "-p": "package"}[arg]
            setattr(intent, name, next(waiting, ""))
        elif arg in ("-c", "-f", "--user", "--display", "--activity-brought-to-front", "--windowingMode"):
            next(waiting, "")
        # "-e", "--es", "--ei" and the like all carry a name and a value.
        elif arg.startswith("-e") or arg.startswith("--e"):
            name = next(waiting, "")
            intent.extras[name] = "" if arg == "--esn" else next(waiting, "")
        elif arg.startswith("-"):
            intent.flags.add(arg)
        elif "/" in arg and ":" not in arg:
            intent.component = arg
        elif ":" in arg:
            intent.data = arg
        else:
            intent.package = arg
    return intent


def _start(session: ShellSession, args: list[str]) -> Output:
    intent = _parse_intent(args)
    starting = f"Starting: {intent}\n"
    if intent.component:
        return _start_component(session, intent, starting)
    # A package without an action means its launcher page.
    if intent.package and not intent.action:
        if intent.package not in session.phone.apps.by_package:
            return Output(starting, f"Error: Activity not started, unable to resolve {intent}\n", 1)
        session.phone = launch(session.phone, intent.package)
        return Output(starting)
    opened = _resolve_intent(session.phone, intent)
    if opened is None:
        return Output(starting, f"Error: Activity not started, unable to resolve {intent}\n", 1)
    session.phone = opened
    return Output(starting)


def _start_component(session: ShellSession, intent: _Intent, starting: str) -> Output:
    package, _, activity = intent.component.partition("/")
    app = session.phone.apps.by_package.get(package)
    activity = package + activity if activity.startswith(".") else activity
    # Activities that do not exist fail as on a phone, so that scripts notice.
    if app is None or activity != name_activity(app):
        return Output(
            starting,
            f"Error type 3\nError: Activity class {{{package}/{activity}}} does not exist.\n",
            1,
        )
    # -S stops the app first, so that it starts on its first page.
    if "-S" in intent.flags:
        session.phone = _stop_app(session.phone, package)
    running = session.phone.foreground == package
    session.phone = launch(session.phone, package)
    if "-W" in intent.flags:
        starting += (
            f"Status: ok\nLaunchState: WARM\nActivity: {package}/{activity}\nTotalTime: 0\nWaitTime: 0\nComplete\n"
        )
    if running:
        return Output(starting, "Warning: Activity not started, its current task has been brought to the front\n")
    return Output(starting)


_VIEWERS = {
    "content://contacts": contacts.PACKAGE,
    "content://com.android.contacts": contacts.PACKAGE,
    "tel:": dialer.PACKAGE,
    "content://sms": messages.PACKAGE,
    "content://com.android.calendar": "com.simplemobiletools.calendar.pro",
}


def _resolve_intent(phone: Phone, intent: _Intent) -> Phone | None:
    """Return the phone after an implicit intent; None when no app takes it."""
    kind, data = intent.action.rpartition(".")[2], intent.data
    if kind == "MAIN":
        package = intent.package or LAUNCHER
        # In the order in which a phone resolves them: the most specific kind first.
        return launch(phone, package) if package in phone.apps.by_package else None
    if kind == "INSERT" and "contact" in intent.type + data:
        return _open_contact_form(phone, intent.extras)
    if kind in ("CALL", "DIAL") and data.startswith("tel:"):
        return _dial(phone, unquote(data[4:]))
    if kind in ("SENDTO", "VIEW") and data.startswith(("sms:", "smsto:")):
        return _write_message(phone, unquote(data.partition(":")[2]), intent.extras.get("sms_body", ""))
    if kind == "VIEW":
        return next((launch(phone, app) for uri, app in _VIEWERS.items() if data.startswith(uri)), None)
    wanted = kind.startswith("SETTINGS") or kind.endswith("_SETTINGS")
    return launch(phone, "com.android.settings") if wanted else None


def _open_contact_form(phone: Phone, extras: dict[str, str]) -> Phone:
    first, _, last = extras.get("name", "").strip().partition(" ")
    fields = {"first": first, "last": last.strip(), "phone": extras.get("phone", ""), "email": extras.get("email", "")}
    phone = launch(phone, contacts.PACKAGE)
    page = Page(screen="contacts.editor", data={"id": None, "label": "Mobile"}, fields=fields)
    return push(phone, page)


def _dial(phone: Phone, number: str) -> Phone:
    phone = launch(phone, dialer.PACKAGE)
    digits = "".join(letter for letter in number if letter in "0123456789*#+")
    return push(phone, Page(screen="dialer.keypad", data={"number": digits}))


def _write_message(phone: Phone, number: str, body: str) -> Phone:
    phone = messages.open_conversation(leave(phone), number)
    return put_field(phone, "message", body) if body else phone


def _stop_app(phone: Phone, package: str) -> Phone:
    return close_app(phone, package) if package != LAUNCHER else phone


def _stack(session: ShellSession, args: list[str]) -> Output:
    apps = session.phone.apps.by_package
    if args[:1] == ["list"]:
        lines = []
        for package in _list_recent(session.phone):
            shown = package == session.phone.foreground
            owner, activity = find_front(session.phone) if shown else (package, name_activity(apps[package]))
            lines.append(
                f"  taskId={compute_task_id(session.phone, package)}: {package}/{name_activity(apps[package])} "
                f"bounds=[0,0][1080,2400] userId=0 visible={str(shown).lower()} "
                f"topActivity=ComponentInfo{{{owner}/{activity}}}\n"
            )
        return Output("RootTask id=1 bounds=[0,0][1080,2400] displayId=0 userId=0\n" + "".join(lines))
    if args[:1] == ["remove"] and len(args) == 2:
        for package in apps:
            if str(compute_task_id(session.phone, package)) == args[1]:
                session.phone = _stop_app(session.phone, package)
        return Output()
    return Output(err="Error: unknown command for stack\n", code=255)


def _list_recent(phone: Phone) -> list[str]:
    """Return running apps, the one in front first."""
    packages = (*list_recent_apps(phone), LAUNCHER)
    return [phone.foreground, *(package for package in packages if package != phone.foreground)]


def format_recents(phone: Phone) -> str:
    """Return what `dumpsys activity recents` says."""
    recent = [(compute_task_id(phone, package), package) for package in _list_recent(phone) if package != LAUNCHER]
    lines = [
        f"  * Recent #{place}: Task{{{0x5C0FFEE + place:x} #{number} type=standard A={package}}}\n"
        f"    mRootProcess=null taskAffinity={package} id={number} stackId={number}\n"
        for place, (number, package) in enumerate(recent)
    ]
    return "ACTIVITY MANAGER RECENT TASKS (dumpsys activity recents)\n" + "".join(lines)


# ----------------------------------------------------------------------------------------------------- broadcasts


def _broadcast(session: ShellSession, intent: _Intent) -> Output:
    """Send a broadcast; the clipboard app and the keyboard of uiautomator2 listen."""
    begun = f"Broadcasting: Intent {{ act={intent.action} flg=0x400000 (has extras) }}\n"
    phone = session.phone
    text = intent.extras.get("text", "")
    if intent.action in ("clipper.get", "clipper.set"):
        # The clipboard app reads only while it is in front, as Android wants it.
        if phone.foreground != clipper.PACKAGE:
            return Output(begun + "Broadcast completed: result=0\n")
        if intent.action == "clipper.set":
            session.phone = replace(phone, clipboard=text)
        data = "Text is copied into clipboard." if intent.action == "clipper.set" else phone.clipboard
        return Output(begun + f'Broadcast completed: result=-1, data="{data}"\n')
    if intent.action.startswith("ADB_KEYBOARD_"):
        session.phone = _keyboard(phone, intent.action.removeprefix("ADB_KEYBOARD_"), text)
        return Output(begun + "Broadcast completed: result=-1\n")
    return Output(begun + "Broadcast completed: result=0\n")


def _keyboard(phone: Phone, order: str, text: str) -> Phone:
    if order == "INPUT_TEXT":
        try:
            return input.type_text(phone, base64.b64decode(text, validate=True).decode("utf-8", "replace"))
        except binascii.Error:
            return phone
    if order == "CLEAR_TEXT":
        return input.put_text(phone, "")
    if order in ("EDITOR_CODE", "SMART_ENTER"):
        return input.press(phone, input.KEYS["ENTER"])
    return replace(phone, keyboard=False) if order == "HIDE" else phone


# --------------------------------------------------------------------------------------------------------- monkey


def monkey(session: ShellSession, args: list[str], stdin: str) -> Output:
    """Start an app by its package: `monkey -p PACKAGE 1`; no random events are made."""
    packages = [args[place + 1] for place, arg in enumerate(args[:-1]) if arg == "-p"]
    if not packages or packages[0] not in session.phone.apps.by_package:
        return Output("", "** No activities found to run, monkey aborted.\n", 252)
    session.phone = launch(session.phone, packages[0])
    return Output("Events injected: 1\n## Network stats: elapsed time=0ms (0ms mobile, 0ms wifi, 0ms not connected)\n")


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


def pm(session: ShellSession, args: list[str], stdin: str) -> Output:
    """Talk to the package manager."""
    verb, rest = (args[0], args[1:]) if args else ("", [])
    _, names = split_flags(rest, "u")
    names = [name for name in names if name != "0"]
    if verb == "list":
        return _list(session.phone, rest)
    # Only what a script could ask of a phone whose apps are fixed.
    if verb == "path":
        known = names and (names[0] in session.phone.apps.by_package or names[0] in _WITHOUT_SCREENS)
        return Output(f"package:/data/app/{names[0]}/base.apk\n") if known else Output(code=1)
    if verb == "clear":
        return _clear(session, names)
    if verb in ("grant", "revoke"):
        return _grant(session, names, granted=verb == "grant")
    if verb in ("install", "install-create", "uninstall"):
        return Output("Failure [INSTALL_FAILED_USER_RESTRICTED: apps are part of SimPhone]\n", code=1)
    return Output(err=f"Error: Unknown command: {verb}\n", code=255)


def _list(phone: Phone, args: list[str]) -> Output:
    if args[:1] != ["packages"]:
        return Output(err=f"Error: unknown list type '{' '.join(args[:1])}'\n", code=1)
    flags, words = split_flags(args[1:], "u")
    names = sorted([*(app.package for app in phone.apps.all), *_WITHOUT_SCREENS])
    # -3 leaves out what belongs to the system, -s everything else.
    if "3" in flags:
        names = [name for name in names if name not in _SYSTEM and not name.startswith(("com.android", "com.google"))]
    if "s" in flags:
        names = [name for name in names if name in _SYSTEM or name.startswith(("com.android", "com.google"))]
    if words and words[0] not in ("0", "None"):
        names = [name for name in names if words[0] in name]
    if "f" in flags:
        names = [f"/data/app/{name}/base.apk={name}" for name in names]
    return Output("".join(f"package:{name}\n" for name in names))


def _clear(session: ShellSession, names: list[str]) -> Output:
    if not names or (names[0] not in session.phone.apps.by_package and names[0] not in _PROVIDERS):
        return Output("Failed\n", code=1)
    session.phone = clear_data(session.phone, names[0])
    return Output("Success\n")


def clear_data(phone: Phone, package: str) -> Phone:
    """Return the phone after a package has lost all its data; the app is stopped."""
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


def _grant(session: ShellSession, names: list[str], *, granted: bool) -> Output:
    if len(names) < 2:
        return Output(err="Error: no permission specified\n", code=255)
    package, permission = names[0], names[1].rpartition(".")[2]
    if package not in session.phone.apps.by_package and package not in _PROVIDERS:
        return Output(err=f"Error: java.lang.IllegalArgumentException: Unknown package: {package}\n", code=255)
    name = _PERMISSIONS.get((package, permission))
    if name is not None:
        session.phone = remember(session.phone, package, **{name: granted or None})
    return Output()
