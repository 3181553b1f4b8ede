"""Commands of the system: settings, svc, getprop, date, wm, dumpsys, ime and the like."""

from __future__ import annotations

import datetime
import re
import struct
from dataclasses import replace

from collab.envs.phone.adb.hierarchy import dump, hierarchy
from collab.envs.phone.apps.settings import forget
from collab.envs.phone.apps.settings_pages import DEFAULTS
from collab.envs.phone.shell import tree
from collab.envs.phone.shell.activities import am
from collab.envs.phone.shell.arguments import split_flags, whole
from collab.envs.phone.shell.packages import pm
from collab.envs.phone.shell.panels import notification, statusbar
from collab.envs.phone.shell.services import ime
from collab.envs.phone.shell.session import Done, Session
from collab.envs.phone.state import HEIGHT, WIDTH, Phone, put_setting

NAMESPACES = ("system", "secure", "global")
PROPERTIES = {
    "ro.build.version.sdk": "33",
    "ro.build.version.release": "13",
    "ro.build.version.codename": "REL",
    "ro.build.type": "userdebug",
    "ro.debuggable": "1",
    "ro.product.brand": "google",
    "ro.product.manufacturer": "Google",
    "ro.product.model": "SimPhone",
    "ro.product.name": "simphone",
    "ro.product.device": "simphone",
    "ro.product.cpu.abi": "x86_64",
    "ro.product.cpu.abilist": "x86_64,arm64-v8a",
    "ro.serialno": "SIMPHONE",
    "ro.sf.lcd_density": "420",
    "ro.kernel.qemu": "1",
    "ro.hardware": "simphone",
    "sys.boot_completed": "1",
    "dev.bootcomplete": "1",
    "persist.sys.timezone": "UTC",
    "persist.sys.locale": "en-US",
}


# ------------------------------------------------------------------------------------------------------- settings


def settings(session: Session, args: list[str], stdin: str) -> Done:
    """Read and write the settings tables."""
    if args[:1] == ["--user"]:
        args = args[2:]
    verb, space, rest = (args[0], args[1], args[2:]) if len(args) >= 2 else ("", "", [])
    if space not in NAMESPACES:
        return Done(err="Invalid namespace\n" if space else "Bad arguments\n", code=255)
    values = session.phone.settings
    if verb == "list":
        prefix = space + "/"
        names = sorted(name for name in values if name.startswith(prefix))
        return Done("".join(f"{name.removeprefix(prefix)}={values[name]}\n" for name in names))
    if not rest:
        return Done(err="Bad arguments\n", code=255)
    name = f"{space}/{rest[0]}"
    if verb == "get":
        return Done(values.get(name, "null") + "\n")
    if verb == "put" and len(rest) > 1:
        return _put(session, name, rest[1])
    if verb == "delete":
        session.phone = forget(session.phone, name)
        return Done(f"Deleted {int(name in values)} rows\n")
    return Done(err="Bad arguments\n", code=255)


def _put(session: Session, name: str, value: str) -> Done:
    """Android checks the system table alone; what is in the others is read as its default when it makes no sense."""
    numeric = name.startswith("system/") and DEFAULTS.get(name, "").isdecimal()
    if numeric and not (value.isascii() and value.isdecimal() and len(value) < 11 and int(value) < 2**31):
        short = name.partition("/")[2]
        return Done(err=f"java.lang.IllegalArgumentException: Invalid value: {value} for setting: {short}\n", code=255)
    session.phone = put_setting(session.phone, name, value)
    return Done()


def svc(session: Session, args: list[str], stdin: str) -> Done:
    """Switch Wi-Fi, Bluetooth, mobile data and NFC."""
    names = {"wifi": "global/wifi_on", "bluetooth": "global/bluetooth_on", "data": "global/mobile_data"}
    names |= {"nfc": "global/nfc_on"}
    if len(args) == 2 and args[0] in names and args[1] in ("enable", "disable"):
        session.phone = put_setting(session.phone, names[args[0]], "1" if args[1] == "enable" else "0")
        return Done()
    if args[:1] == ["power"]:
        return Done()
    return Done(err="Available commands:\n    help     Show information about the subcommands\n", code=1)


def getprop(session: Session, args: list[str], stdin: str) -> Done:
    """Read system properties."""
    if args:
        return Done(PROPERTIES.get(args[0], args[1] if len(args) > 1 else "") + "\n")
    return Done("".join(f"[{name}]: [{value}]\n" for name, value in sorted(PROPERTIES.items())))


# ---------------------------------------------------------------------------------------------------------- clock


def date(session: Session, args: list[str], stdin: str) -> Done:
    """Show the clock, or set it: `date MMDDhhmm[[CC]YY][.ss]`."""
    flags, rest = split_flags(args, "sd")
    form = "%a %b %d %H:%M:%S UTC %Y"
    if "s" in flags:
        rest = [flags["s"], *rest]
    if rest and rest[0].startswith("+"):
        form = rest[0][1:]
    elif rest:
        moment = _moment(rest[0], session.phone)
        if moment is None:
            return Done(err=f"date: bad date '{rest[0]}'\n", code=1)
        session.phone = replace(session.phone, now_ms=int(moment.timestamp() * 1000))
    now = datetime.datetime.fromtimestamp(session.phone.now_ms // 1000, tz=datetime.UTC)
    form = form.replace("%s", str(session.phone.now_ms // 1000)).replace("%N", "000000000")
    return Done(tree.decode(now.strftime(form).encode("utf-8", "replace")) + "\n")


def _moment(text: str, phone: Phone) -> datetime.datetime | None:
    match = re.fullmatch(r"(\d\d)(\d\d)(\d\d)(\d\d)(\d{4}|\d\d)?(?:\.(\d\d))?", text)
    if text.startswith("@") and whole(text[1:]) is not None and len(text) < 12:
        return datetime.datetime.fromtimestamp(int(text[1:]), tz=datetime.UTC)
    if match is None:
        return None
    month, day, hour, minute, year, second = (int(part) if part else 0 for part in match.groups())
    if not year:
        year = datetime.datetime.fromtimestamp(phone.now_ms // 1000, tz=datetime.UTC).year
    elif year < 100:
        year += 2000 if year < 69 else 1900
    try:
        return datetime.datetime(year, month, day, hour, minute, second, tzinfo=datetime.UTC)
    except ValueError:
        return None


def sleep(session: Session, args: list[str], stdin: str) -> Done:
    """Let time pass on the phone: its clock goes on, and nobody has to wait."""
    try:
        seconds = sum(float(arg) for arg in args)
    except ValueError:
        return Done(err=f"sleep: not '{args[0]}'\n", code=1)
    if not 0 <= seconds <= 86_400:
        return Done(err="sleep: bad time\n", code=1)
    session.phone = replace(session.phone, now_ms=session.phone.now_ms + round(seconds * 1000))
    return Done()


# --------------------------------------------------------------------------------------------------------- screen


def wm(session: Session, args: list[str], stdin: str) -> Done:
    """Say how large the screen is; it cannot be changed."""
    if args == ["size"]:
        return Done(f"Physical size: {WIDTH}x{HEIGHT}\n")
    if args == ["density"]:
        return Done(f"Physical density: {PROPERTIES['ro.sf.lcd_density']}\n")
    if args[:1] in (["size"], ["density"]) and args[1:] == ["reset"]:
        return Done()
    return Done(err="Error: this screen has one size\n", code=255)


def screencap(session: Session, args: list[str], stdin: str) -> Done:
    """Take a picture of the screen: PNG for `-p` or a file of that name, else raw RGBA behind Android's 16 bytes."""
    from collab.envs.phone.render import render, render_png  # Pillow loads only when somebody looks
    from collab.envs.phone.screen import look

    flags, paths = split_flags(args, "d")
    observation = look(session.phone).observation
    if "p" in flags or (paths and paths[0].endswith(".png")):
        data = render_png(observation)
    else:
        data = struct.pack("<4I", WIDTH, HEIGHT, 1, 1) + render(observation).convert("RGBA").tobytes()
    if not paths:
        return Done(tree.decode(data))
    session.phone = tree.write_bytes(session.phone, session.path(paths[0]), data)
    return Done()


def uiautomator(session: Session, args: list[str], stdin: str) -> Done:
    """`uiautomator dump [--compressed] [FILE]`: the elements of the screen as XML."""
    _, rest = split_flags(args)
    if rest[:1] != ["dump"]:
        return Done(err="Usage: uiautomator <subcommand> [options]\n", code=1)
    path = rest[1] if len(rest) > 1 else "/sdcard/window_dump.xml"
    xml = dump(hierarchy(session.phone))
    if path == "/dev/tty":
        return Done(xml + "UI hierchary dumped to: /dev/tty\n")
    session.phone = tree.write_bytes(session.phone, session.path(path), tree.encode(xml))
    return Done(f"UI hierchary dumped to: {path}\n")


def cmd(session: Session, args: list[str], stdin: str) -> Done:
    """Call a service by its name."""
    name, rest = (args[0], args[1:]) if args else ("", [])
    direct = {"package": pm, "activity": am, "settings": settings, "input_method": ime, "window": wm}
    direct |= {"statusbar": statusbar, "notification": notification}
    if name in direct:
        return direct[name](session, rest, stdin)
    if name == "-l":
        return Done("Currently running services:\n" + "".join(f"  {one}\n" for one in sorted(direct)))
    if name == "uimode" and rest[:1] == ["night"] and rest[1:2] in (["yes"], ["no"]):
        session.phone = put_setting(session.phone, "secure/dark_theme", "1" if rest[1] == "yes" else "0")
        return Done(f"Night mode: {rest[1]}\n")
    return Done(err=f"cmd: Can't find service: {name}\n", code=20)


def whoami(session: Session, args: list[str], stdin: str) -> Done:
    """Who runs this shell."""
    return Done("root\n")
