"""Commands of the system: settings, svc, getprop, date, wm, dumpsys, ime and the like.

What services say about themselves, as far as tools read it: dumpsys, ps, ime, service.

The status bar and the notifications, as `cmd`, `service` and `dumpsys` reach them.
"""

from __future__ import annotations

import datetime
import re
import struct
from dataclasses import replace

from collab.envs.simphone.apps.settings import DEFAULTS, forget
from collab.envs.simphone.apps.system import open_quick_settings, open_shade
from collab.envs.simphone.shell import tree
from collab.envs.simphone.shell.apps import (
    ADB_KEYBOARD,
    am,
    compute_task_id,
    find_front,
    format_recents,
    name_activity,
    pm,
)
from collab.envs.simphone.shell.session import Output, ShellSession, parse_whole, split_flags
from collab.envs.simphone.state import HEIGHT, START_MS, WIDTH, Notification, Phone, close_panel, notify, put_setting
from collab.envs.simphone.ui.hierarchy import build_hierarchy, dump

SHELL_PACKAGE = "com.android.shell"
"""The poster of what `cmd notification post` says."""
_VERBS = {"expand-notifications": open_shade, "expand-settings": open_quick_settings, "collapse": close_panel}
_CALLS = {"1": open_shade, "2": close_panel}
"""Transactions of the status bar's service."""


def statusbar(session: ShellSession, args: list[str], stdin: str) -> Output:
    """Run `cmd statusbar expand-notifications|expand-settings|collapse`; its other commands have no effect here."""
    if args[:1] and args[0] in _VERBS:
        session.phone = _VERBS[args[0]](session.phone)
    return Output()


def call(phone: Phone, code: str) -> Phone:
    """Run `service call statusbar CODE`."""
    return _CALLS[code](phone) if code in _CALLS else phone


def notification(session: ShellSession, args: list[str], stdin: str) -> Output:
    """Run `cmd notification post [-t TITLE] TAG TEXT` and `cmd notification list`."""
    verb, rest = (args[0], args[1:]) if args else ("", [])
    if verb == "list":
        return Output("".join(_name(one) + "\n" for one in session.phone.notifications))
    if verb != "post":
        return Output(err=f"Unknown command: {verb}\n" if verb else "", code=255)
    title, words = "Shell command", []
    waiting = iter(rest)
    for arg in waiting:
        # These have a value, which is read over.
        if arg in ("-t", "--title"):
            title = next(waiting, "")
        elif arg in ("-i", "--icon", "-I", "--large-icon", "-S", "--style", "-c", "--content-intent"):
            next(waiting, "")
        elif not arg.startswith("-"):
            words.append(arg)
    if len(words) < 2:
        return Output(err="error: not enough arguments: post [-t TITLE] TAG TEXT\n", code=255)
    posted = Notification(key=f"shell/{words[0]}", package=SHELL_PACKAGE, title=title, text=" ".join(words[1:]))
    session.phone = notify(session.phone, posted)
    return Output(f"posting:\n  Notification(pri=0 key={posted.key})\n")


def dump_notifications(phone: Phone) -> str:
    """Return what `dumpsys notification` says."""
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


KEYBOARD = "com.google.android.inputmethod.latin/com.android.inputmethod.latin.LatinIME"


_SAID = {
    "input": f"    Viewport INTERNAL: displayId=0, orientation=0, logicalFrame=[0, 0, {WIDTH}, {HEIGHT}], "
    f"physicalFrame=[0, 0, {WIDTH}, {HEIGHT}], deviceSize=[{WIDTH}, {HEIGHT}]\n",
    "display": "  DisplayViewport{type=INTERNAL, valid=true, displayId=0, uniqueId='local:0', physicalPort=0, "
    f"orientation=0, logicalFrame=Rect(0, 0 - {WIDTH}, {HEIGHT}), deviceWidth={WIDTH}, deviceHeight={HEIGHT}}}\n",
    "power": "  mWakefulness=Awake\n  mHoldingDisplaySuspendBlocker=true\n",
    "battery": "Current Battery Service state:\n  AC powered: true\n  USB powered: false\n  status: 2\n  health: 2\n"
    "  present: true\n  level: 100\n  scale: 100\n  voltage: 5000\n  temperature: 250\n  technology: Li-ion\n",
    "telephony.registry": "last known state:\n  mCallState=0\n  mCallIncomingNumber=\n",
    "SurfaceFlinger": 'Display 4619827259835644672 (HWC display 0): port=0 pnpId=GGL displayName="EMU_display_0"\n',
}
"""What never changes."""


def dumpsys(session: ShellSession, args: list[str], stdin: str) -> Output:
    """Print what a service says about itself."""
    names = [arg for arg in args if not arg.startswith("-")]
    name, phone = names[0] if names else "", session.phone
    if name == "activity":
        return Output(_dump_activity(phone, names[1] if len(names) > 1 else ""))
    if name == "package":
        return Output(_dump_package(session.phone, names[1] if len(names) > 1 else ""))
    if name == "window":
        window = "NotificationShade" if phone.panel is not None else "/".join(find_front(phone))
        focus = f"  mCurrentFocus=Window{{5c0ffee u0 {window}}}\n  mFocusedApp={_record(phone)}\n"
        return Output(focus + "  mCurrentRotation=ROTATION_0\n  mAwake=true mScreenOnEarly=true\n")
    if name == "notification":
        return Output(dump_notifications(phone))
    if name == "input_method":
        return Output(f"  mInputShown={str(phone.keyboard).lower()}\n  mCurMethodId={_dump_ime(phone)}\n")
    if name == "wifi":
        return Output(f"Wi-Fi is {'disabled' if phone.settings.get('global/wifi_on') == '0' else 'enabled'}\n")
    return Output(_SAID[name]) if name in _SAID else Output(err=f"Can't find service: {name}\n" if name else "")


def _record(phone: Phone) -> str:
    package, activity = find_front(phone)
    return f"ActivityRecord{{5c0ffee u0 {package}/{activity} t{compute_task_id(phone, phone.foreground)}}}"


def _dump_activity(phone: Phone, part: str) -> str:
    if part == "recents":
        return format_recents(phone)
    if part == "top":
        package, activity = find_front(phone)
        return (
            f"TASK {phone.foreground} id={compute_task_id(phone, phone.foreground)}\n"
            f"  ACTIVITY {package}/{activity} 5c0ffee pid={compute_pid(phone, phone.foreground)}\n"
        )
    record = _record(phone)
    return f"  mResumedActivity: {record}\n  topResumedActivity={record}\n  ResumedActivity: {record}\n"


def _dump_package(phone: Phone, name: str) -> str:
    app = phone.apps.by_package.get(name)
    if app is None:
        return f"Unable to find package: {name}\n"
    since = datetime.datetime.fromtimestamp(START_MS // 1000 - 30 * 86_400, tz=datetime.UTC)
    return (
        f"Packages:\n  Package [{name}] (5c0ffee):\n    versionCode=1 minSdk=24 targetSdk=33\n    versionName=1.0\n"
        f"    signatures=PackageSignatures{{5c0ffee version:3, signatures:[5c0ffee], past signatures:[]}}\n"
        f"    pkgFlags=[ HAS_CODE ]\n    firstInstallTime={since:%Y-%m-%d %H:%M:%S}\n"
        f"    lastUpdateTime={since:%Y-%m-%d %H:%M:%S}\n    {name_activity(app)}\n"
    )


def compute_pid(phone: Phone, package: str) -> int:
    """Return the process number of an app."""
    return 1000 + compute_task_id(phone, package)


def ps(session: ShellSession, args: list[str], stdin: str) -> Output:
    """Print running apps."""
    lines = ["USER           PID  PPID     VSZ    RSS WCHAN            ADDR S NAME\n"]
    phone = session.phone
    for name in phone.stacks:
        pid = compute_pid(phone, name)
        lines.append(
            f"u0_a{compute_task_id(phone, name):<4} {pid:>8}   300 1010000  27580 0                   0 S {name}\n"
        )
    return Output("".join(lines))


def pidof(session: ShellSession, args: list[str], stdin: str) -> Output:
    """Print process ids of running apps."""
    found = [str(compute_pid(session.phone, name)) for name in args if name in session.phone.stacks]
    return Output(" ".join(found) + "\n" if found else "", code=int(not found))


# ------------------------------------------------------------------------------------------------------------ ime


def _dump_ime(phone: Phone) -> str:
    return phone.settings.get("secure/default_input_method", KEYBOARD)


def ime(session: ShellSession, args: list[str], stdin: str) -> Output:
    """List and choose keyboards; the one that uiautomator2 types with is installed."""
    verb, rest = (args[0], args[1:]) if args else ("", [])
    if verb == "list":
        return Output(f"{KEYBOARD}\n{ADB_KEYBOARD}\n")
    if verb in ("enable", "disable", "set", "reset"):
        if verb == "set" and rest[:1] in ([KEYBOARD], [ADB_KEYBOARD]):
            session.phone = put_setting(session.phone, "secure/default_input_method", rest[0])
            return Output(f"Input method {rest[0]} selected for user #0\n")
        if verb == "set":
            return Output(err=f"Unknown input method {' '.join(rest[:1])} cannot be selected for user #0\n", code=255)
        return Output(f"Input method {' '.join(rest[:1])}: now {verb}d for user #0\n")
    return Output(err=f"Unknown command: {verb}\n", code=255)


def service(session: ShellSession, args: list[str], stdin: str) -> Output:
    """Run `service call …`: only the status bar reacts; other calls are accepted. The time zone is always UTC."""
    if args[:1] == ["call"] and len(args) >= 3:
        if args[1] == "statusbar":
            session.phone = call(session.phone, args[2])
        return Output("Result: Parcel(00000000 00000001   '........')\n")
    if args[:1] in (["list"], ["check"]):
        return Output("Found 1 services:\n0\talarm: [android.app.IAlarmManager]\n")
    return Output(err="service: Bad arguments\n", code=10)


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


def settings(session: ShellSession, args: list[str], stdin: str) -> Output:
    """Read and write the settings tables."""
    # One user: which one is asked about makes no difference.
    if args[:1] == ["--user"]:
        args = args[2:]
    verb, space, rest = (args[0], args[1], args[2:]) if len(args) >= 2 else ("", "", [])
    # Messages as the real command words them, for agents that read them.
    if space not in NAMESPACES:
        return Output(err="Invalid namespace\n" if space else "Bad arguments\n", code=255)
    # Settings are kept as "namespace/name", so that one table holds all.
    values = session.phone.settings
    if verb == "list":
        prefix = space + "/"
        names = sorted(name for name in values if name.startswith(prefix))
        return Output("".join(f"{name.removeprefix(prefix)}={values[name]}\n" for name in names))
    if not rest:
        return Output(err="Bad arguments\n", code=255)
    name = f"{space}/{rest[0]}"
    if verb == "get":
        # A missing setting reads as "null", as on a real phone.
        return Output(values.get(name, "null") + "\n")
    if verb == "put" and len(rest) > 1:
        return _put(session, name, rest[1])
    if verb == "delete":
        session.phone = forget(session.phone, name)
        return Output(f"Deleted {int(name in values)} rows\n")
    return Output(err="Bad arguments\n", code=255)


def _put(session: ShellSession, name: str, value: str) -> Output:
    """Store a setting; Android checks only the system table and reads other nonsense as the default."""
    numeric = name.startswith("system/") and DEFAULTS.get(name, "").isdecimal()
    if numeric and not (value.isascii() and value.isdecimal() and len(value) < 11 and int(value) < 2**31):
        short = name.partition("/")[2]
        return Output(
            err=f"java.lang.IllegalArgumentException: Invalid value: {value} for setting: {short}\n", code=255
        )
    session.phone = put_setting(session.phone, name, value)
    return Output()


def svc(session: ShellSession, args: list[str], stdin: str) -> Output:
    """Switch Wi-Fi, Bluetooth, mobile data and NFC."""
    names = {"wifi": "global/wifi_on", "bluetooth": "global/bluetooth_on", "data": "global/mobile_data"}
    names |= {"nfc": "global/nfc_on"}
    if len(args) == 2 and args[0] in names and args[1] in ("enable", "disable"):
        session.phone = put_setting(session.phone, names[args[0]], "1" if args[1] == "enable" else "0")
        return Output()
    if args[:1] == ["power"]:
        return Output()
    return Output(err="Available commands:\n    help     Show information about the subcommands\n", code=1)


def getprop(session: ShellSession, args: list[str], stdin: str) -> Output:
    """Read system properties."""
    if args:
        return Output(PROPERTIES.get(args[0], args[1] if len(args) > 1 else "") + "\n")
    return Output("".join(f"[{name}]: [{value}]\n" for name, value in sorted(PROPERTIES.items())))


# ---------------------------------------------------------------------------------------------------------- clock


def date(session: ShellSession, args: list[str], stdin: str) -> Output:
    """Show the clock, or set it: `date MMDDhhmm[[CC]YY][.ss]`."""
    flags, rest = split_flags(args, "sd")
    form = "%a %b %d %H:%M:%S UTC %Y"
    if "s" in flags:
        rest = [flags["s"], *rest]
    if rest and rest[0].startswith("+"):
        form = rest[0][1:]
    # Without a plus sign the word is a moment to set the clock to.
    elif rest:
        moment = _parse_moment(rest[0], session.phone)
        if moment is None:
            return Output(err=f"date: bad date '{rest[0]}'\n", code=1)
        session.phone = replace(session.phone, now_ms=int(moment.timestamp() * 1000))
    now = datetime.datetime.fromtimestamp(session.phone.now_ms // 1000, tz=datetime.UTC)
    form = form.replace("%s", str(session.phone.now_ms // 1000)).replace("%N", "000000000")
    return Output(tree.decode(now.strftime(form).encode("utf-8", "replace")) + "\n")


def _parse_moment(text: str, phone: Phone) -> datetime.datetime | None:
    match = re.fullmatch(r"(\d\d)(\d\d)(\d\d)(\d\d)(\d{4}|\d\d)?(?:\.(\d\d))?", text)
    if text.startswith("@") and parse_whole(text[1:]) is not None and len(text) < 12:
        return datetime.datetime.fromtimestamp(int(text[1:]), tz=datetime.UTC)
    if match is None:
        return None
    month, day, hour, minute, year, second = (int(part) if part else 0 for part in match.groups())
    if not year:
        year = datetime.datetime.fromtimestamp(phone.now_ms // 1000, tz=datetime.UTC).year
    # Two digits mean 1969 to 2068, as in POSIX.
    elif year < 100:
        year += 2000 if year < 69 else 1900
    try:
        return datetime.datetime(year, month, day, hour, minute, second, tzinfo=datetime.UTC)
    except ValueError:
        return None


def sleep(session: ShellSession, args: list[str], stdin: str) -> Output:
    """Advance the phone's clock without waiting."""
    try:
        seconds = sum(float(arg) for arg in args)
    except ValueError:
        return Output(err=f"sleep: not '{args[0]}'\n", code=1)
    if not 0 <= seconds <= 86_400:
        return Output(err="sleep: bad time\n", code=1)
    session.phone = replace(session.phone, now_ms=session.phone.now_ms + round(seconds * 1000))
    return Output()


# --------------------------------------------------------------------------------------------------------- screen


def wm(session: ShellSession, args: list[str], stdin: str) -> Output:
    """Say how large the screen is; it cannot be changed."""
    if args == ["size"]:
        return Output(f"Physical size: {WIDTH}x{HEIGHT}\n")
    if args == ["density"]:
        return Output(f"Physical density: {PROPERTIES['ro.sf.lcd_density']}\n")
    if args[:1] in (["size"], ["density"]) and args[1:] == ["reset"]:
        return Output()
    return Output(err="Error: this screen has one size\n", code=255)


def screencap(session: ShellSession, args: list[str], stdin: str) -> Output:
    """Take a picture of the screen: PNG for `-p` or a file of that name, else raw RGBA behind Android's 16 bytes."""
    from collab.envs.simphone.ui.render import render, render_png  # Pillow loads only for a look
    from collab.envs.simphone.ui.screen import look

    flags, paths = split_flags(args, "d")
    observation = look(session.phone).observation
    if "p" in flags or (paths and paths[0].endswith(".png")):
        data = render_png(observation)
    else:
        data = struct.pack("<4I", WIDTH, HEIGHT, 1, 1) + render(observation).convert("RGBA").tobytes()
    if not paths:
        return Output(tree.decode(data))
    session.phone = tree.write_bytes(session.phone, session.path(paths[0]), data)
    return Output()


def uiautomator(session: ShellSession, args: list[str], stdin: str) -> Output:
    """Run `uiautomator dump [--compressed] [FILE]`: the elements of the screen as XML."""
    _, rest = split_flags(args)
    if rest[:1] != ["dump"]:
        return Output(err="Usage: uiautomator <subcommand> [options]\n", code=1)
    path = rest[1] if len(rest) > 1 else "/sdcard/window_dump.xml"
    xml = dump(build_hierarchy(session.phone))
    if path == "/dev/tty":
        return Output(xml + "UI hierchary dumped to: /dev/tty\n")
    session.phone = tree.write_bytes(session.phone, session.path(path), tree.encode(xml))
    return Output(f"UI hierchary dumped to: {path}\n")


def cmd(session: ShellSession, args: list[str], stdin: str) -> Output:
    """Call a service by its name."""
    name, rest = (args[0], args[1:]) if args else ("", [])
    direct = {"package": pm, "activity": am, "settings": settings, "input_method": ime, "window": wm}
    direct |= {"statusbar": statusbar, "notification": notification}
    if name in direct:
        return direct[name](session, rest, stdin)
    if name == "-l":
        return Output("Currently running services:\n" + "".join(f"  {one}\n" for one in sorted(direct)))
    if name == "uimode" and rest[:1] == ["night"] and rest[1:2] in (["yes"], ["no"]):
        session.phone = put_setting(session.phone, "secure/dark_theme", "1" if rest[1] == "yes" else "0")
        return Output(f"Night mode: {rest[1]}\n")
    return Output(err=f"cmd: Can't find service: {name}\n", code=20)


def whoami(session: ShellSession, args: list[str], stdin: str) -> Output:
    """Print the user of this shell."""
    return Output("root\n")
