"""What services say about themselves, as far as tools read it: dumpsys, ps, ime, service."""

from __future__ import annotations

import datetime

from collab.envs.phone.shell import panels
from collab.envs.phone.shell.activities import ADB_KEYBOARD, activity_of, front, recents, task_id
from collab.envs.phone.shell.session import Done, Session
from collab.envs.phone.state import HEIGHT, START_MS, WIDTH, Phone, put_setting

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


def dumpsys(session: Session, args: list[str], stdin: str) -> Done:
    """What a service says about itself."""
    names = [arg for arg in args if not arg.startswith("-")]
    name, phone = names[0] if names else "", session.phone
    if name == "activity":
        return Done(_activity(phone, names[1] if len(names) > 1 else ""))
    if name == "package":
        return Done(_package(session.phone, names[1] if len(names) > 1 else ""))
    if name == "window":
        window = "NotificationShade" if phone.panel is not None else "/".join(front(phone))
        focus = f"  mCurrentFocus=Window{{5c0ffee u0 {window}}}\n  mFocusedApp={_record(phone)}\n"
        return Done(focus + "  mCurrentRotation=ROTATION_0\n  mAwake=true mScreenOnEarly=true\n")
    if name == "notification":
        return Done(panels.dumped(phone))
    if name == "input_method":
        return Done(f"  mInputShown={str(phone.keyboard).lower()}\n  mCurMethodId={_ime(phone)}\n")
    if name == "wifi":
        return Done(f"Wi-Fi is {'disabled' if phone.settings.get('global/wifi_on') == '0' else 'enabled'}\n")
    return Done(_SAID[name]) if name in _SAID else Done(err=f"Can't find service: {name}\n" if name else "")


def _record(phone: Phone) -> str:
    package, activity = front(phone)
    return f"ActivityRecord{{5c0ffee u0 {package}/{activity} t{task_id(phone, phone.foreground)}}}"


def _activity(phone: Phone, part: str) -> str:
    if part == "recents":
        return recents(phone)
    if part == "top":
        package, activity = front(phone)
        return (
            f"TASK {phone.foreground} id={task_id(phone, phone.foreground)}\n"
            f"  ACTIVITY {package}/{activity} 5c0ffee pid={pid_of(phone, phone.foreground)}\n"
        )
    record = _record(phone)
    return f"  mResumedActivity: {record}\n  topResumedActivity={record}\n  ResumedActivity: {record}\n"


def _package(phone: Phone, name: str) -> str:
    app = phone.apps.by_package.get(name)
    if app is None:
        return f"Unable to find package: {name}\n"
    since = datetime.datetime.fromtimestamp(START_MS // 1000 - 30 * 86_400, tz=datetime.UTC)
    return (
        f"Packages:\n  Package [{name}] (5c0ffee):\n    versionCode=1 minSdk=24 targetSdk=33\n    versionName=1.0\n"
        f"    signatures=PackageSignatures{{5c0ffee version:3, signatures:[5c0ffee], past signatures:[]}}\n"
        f"    pkgFlags=[ HAS_CODE ]\n    firstInstallTime={since:%Y-%m-%d %H:%M:%S}\n"
        f"    lastUpdateTime={since:%Y-%m-%d %H:%M:%S}\n    {activity_of(app)}\n"
    )


def pid_of(phone: Phone, package: str) -> int:
    """The process number of an app."""
    return 1000 + task_id(phone, package)


def ps(session: Session, args: list[str], stdin: str) -> Done:
    """Running apps."""
    lines = ["USER           PID  PPID     VSZ    RSS WCHAN            ADDR S NAME\n"]
    phone = session.phone
    for name in phone.stacks:
        pid = pid_of(phone, name)
        lines.append(f"u0_a{task_id(phone, name):<4} {pid:>8}   300 1010000  27580 0                   0 S {name}\n")
    return Done("".join(lines))


def pidof(session: Session, args: list[str], stdin: str) -> Done:
    """Process numbers of running apps."""
    found = [str(pid_of(session.phone, name)) for name in args if name in session.phone.stacks]
    return Done(" ".join(found) + "\n" if found else "", code=int(not found))


# ------------------------------------------------------------------------------------------------------------ ime


def _ime(phone: Phone) -> str:
    return phone.settings.get("secure/default_input_method", KEYBOARD)


def ime(session: Session, args: list[str], stdin: str) -> Done:
    """List and choose keyboards; the one that uiautomator2 types with is installed."""
    verb, rest = (args[0], args[1:]) if args else ("", [])
    if verb == "list":
        return Done(f"{KEYBOARD}\n{ADB_KEYBOARD}\n")
    if verb in ("enable", "disable", "set", "reset"):
        if verb == "set" and rest[:1] in ([KEYBOARD], [ADB_KEYBOARD]):
            session.phone = put_setting(session.phone, "secure/default_input_method", rest[0])
            return Done(f"Input method {rest[0]} selected for user #0\n")
        if verb == "set":
            return Done(err=f"Unknown input method {' '.join(rest[:1])} cannot be selected for user #0\n", code=255)
        return Done(f"Input method {' '.join(rest[:1])}: now {verb}d for user #0\n")
    return Done(err=f"Unknown command: {verb}\n", code=255)


def service(session: Session, args: list[str], stdin: str) -> Done:
    """`service call …`: the status bar obeys; all else is accepted and without effect, the time zone is always UTC."""
    if args[:1] == ["call"] and len(args) >= 3:
        if args[1] == "statusbar":
            session.phone = panels.call(session.phone, args[2])
        return Done("Result: Parcel(00000000 00000001   '........')\n")
    if args[:1] in (["list"], ["check"]):
        return Done("Found 1 services:\n0\talarm: [android.app.IAlarmManager]\n")
    return Done(err="service: Bad arguments\n", code=10)
