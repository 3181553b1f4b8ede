"""The status bar and the notifications, as `cmd`, `service` and `dumpsys` reach them."""

from __future__ import annotations

from collab.envs.phone.apps.system_shade import open_quick_settings, open_shade
from collab.envs.phone.shell.session import Done, Session
from collab.envs.phone.state import Notification, Phone, close_panel, notify

SHELL_PACKAGE = "com.android.shell"
"""Who posts what `cmd notification post` says."""
_VERBS = {"expand-notifications": open_shade, "expand-settings": open_quick_settings, "collapse": close_panel}
_CALLS = {"1": open_shade, "2": close_panel}
"""Transactions of the status bar's service."""


def statusbar(session: Session, args: list[str], stdin: str) -> Done:
    """`cmd statusbar expand-notifications|expand-settings|collapse`; what else it knows has no effect here."""
    if args[:1] and args[0] in _VERBS:
        session.phone = _VERBS[args[0]](session.phone)
    return Done()


def call(phone: Phone, code: str) -> Phone:
    """`service call statusbar CODE`."""
    return _CALLS[code](phone) if code in _CALLS else phone


def notification(session: Session, args: list[str], stdin: str) -> Done:
    """`cmd notification post [-t TITLE] TAG TEXT` and `cmd notification list`."""
    verb, rest = (args[0], args[1:]) if args else ("", [])
    if verb == "list":
        return Done("".join(_name(one) + "\n" for one in session.phone.notifications))
    if verb != "post":
        return Done(err=f"Unknown command: {verb}\n" if verb else "", code=255)
    title, words = "Shell command", []
    waiting = iter(rest)
    for arg in waiting:
        if arg in ("-t", "--title"):
            title = next(waiting, "")
        elif arg in ("-i", "--icon", "-I", "--large-icon", "-S", "--style", "-c", "--content-intent"):
            next(waiting, "")
        elif not arg.startswith("-"):
            words.append(arg)
    if len(words) < 2:
        return Done(err="error: not enough arguments: post [-t TITLE] TAG TEXT\n", code=255)
    posted = Notification(key=f"shell/{words[0]}", package=SHELL_PACKAGE, title=title, text=" ".join(words[1:]))
    session.phone = notify(session.phone, posted)
    return Done(f"posting:\n  Notification(pri=0 key={posted.key})\n")


def dumped(phone: Phone) -> str:
    """What `dumpsys notification` says."""
    records = "".join(
        f"    NotificationRecord(0x{0x5C0FFEE + place:08x}: pkg={one.package} user=UserHandle{{0}} key={_name(one)})\n"
        f"          extras={{\n"
        f"                android.title=String ({one.title})\n"
        f"                android.text=String ({one.text})\n"
        f"          }}\n"
        for place, one in enumerate(phone.notifications)
    )
    return "Current Notification Manager state:\n  Notification List:\n" + records


def _name(one: Notification) -> str:
    return f"0|{one.package}|0|{one.key}|10000"
