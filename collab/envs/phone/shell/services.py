"""What services say about themselves, as far as tools read it: dumpsys, ps, ime, service."""

from __future__ import annotations

import datetime

from collab.envs.phone.apps import BY_PACKAGE
from collab.envs.phone.shell.activities import ADB_KEYBOARD, TASK_IDS, activity_of, front, recents
from collab.envs.phone.shell.session import Done, Session
from collab.envs.phone.state import HEIGHT, START_MS, WIDTH, Phone, put_setting

KEYBOARD = "com.google.android.inputmethod.latin/com.android.inputmethod.latin.LatinIME"


def dumpsys(session: Session, args: list[str], stdin: str) -> Done:
    """What services say about themselves, as far as tools read it."""
    rest = [arg for arg in args if not arg.startswith("-")]
    name = rest[0] if rest else ""
    phone = session.phone
    package, activity = front(phone)
    focus = f"{package}/{activity}"
    task = TASK_IDS[phone.foreground]
    record = f"ActivityRecord{{5c0ffee u0 {focus} t{task}}}"
    if name == "activity" and rest[1:2] == ["recents"]:
        return Done(recents(phone))
    if name == "activity" and rest[1:2] == ["top"]:
        return Done(f"TASK {phone.foreground} id={task}\n  ACTIVITY {focus} 5c0ffee pid={pid_of(phone.foreground)}\n")
    if name == "activity":
        return Done(f"  mResumedActivity: {record}\n  topResumedActivity={record}\n  ResumedActivity: {record}\n")
    if name == "package":
        return _package(rest[1] if len(rest) > 1 else "")
    answers = {
        "window": f"  mCurrentFocus=Window{{5c0ffee u0 {focus}}}\n  mFocusedApp={record}\n"
        "  mCurrentRotation=ROTATION_0\n  mAwake=true mScreenOnEarly=true mShowingLockscreen=false\n",
        "input": f"    Viewport INTERNAL: displayId=0, orientation=0, logicalFrame=[0, 0, {WIDTH}, {HEIGHT}], "
        f"physicalFrame=[0, 0, {WIDTH}, {HEIGHT}], deviceSize=[{WIDTH}, {HEIGHT}]\n",
        "display": f"  DisplayViewport{{type=INTERNAL, valid=true, displayId=0, uniqueId='local:0', physicalPort=0, "
        f"orientation=0, logicalFrame=Rect(0, 0 - {WIDTH}, {HEIGHT}), deviceWidth={WIDTH}, deviceHeight={HEIGHT}}}\n",
        "power": "  mWakefulness=Awake\n  mHoldingDisplaySuspendBlocker=true\n",
        "battery": "Current Battery Service state:\n  AC powered: true\n  USB powered: false\n  status: 2\n"
        "  health: 2\n  present: true\n  level: 100\n  scale: 100\n  voltage: 5000\n  temperature: 250\n"
        "  technology: Li-ion\n",
        "telephony.registry": "last known state:\n  mCallState=0\n  mCallIncomingNumber=\n",
        "input_method": f"  mInputShown={str(phone.keyboard).lower()}\n  mCurMethodId={_ime(phone)}\n",
        "SurfaceFlinger": 'Display 4619827259835644672 (HWC display 0): port=0 pnpId=GGL displayName="EMU_display_0"\n',
        "notification": "Current Notification Manager state:\n",
        "meminfo": "",
        "cpuinfo": "",
        "wifi": f"Wi-Fi is {'disabled' if phone.settings.get('global/wifi_on') == '0' else 'enabled'}\n",
    }
    return Done(answers[name]) if name in answers else Done(err=f"Can't find service: {name}\n" if name else "")


def _package(name: str) -> Done:
    if name not in BY_PACKAGE:
        return Done(f"Unable to find package: {name}\n")
    since = datetime.datetime.fromtimestamp(START_MS // 1000 - 30 * 86_400, tz=datetime.UTC)
    return Done(
        f"Packages:\n  Package [{name}] (5c0ffee):\n    versionCode=1 minSdk=24 targetSdk=33\n    versionName=1.0\n"
        f"    signatures=PackageSignatures{{5c0ffee version:3, signatures:[5c0ffee], past signatures:[]}}\n"
        f"    pkgFlags=[ HAS_CODE ]\n    firstInstallTime={since:%Y-%m-%d %H:%M:%S}\n"
        f"    lastUpdateTime={since:%Y-%m-%d %H:%M:%S}\n    {activity_of(BY_PACKAGE[name])}\n"
    )


def pid_of(package: str) -> int:
    """The process number of an app."""
    return 1000 + TASK_IDS[package]


def ps(session: Session, args: list[str], stdin: str) -> Done:
    """Running apps."""
    head = "USER           PID  PPID     VSZ    RSS WCHAN            ADDR S NAME\n"
    return Done(
        head
        + "".join(
            f"u0_a{TASK_IDS[name]:<4} {pid_of(name):>8}   300 1010000  27580 0                   0 S {name}\n"
            for name in session.phone.stacks
        )
    )


def pidof(session: Session, args: list[str], stdin: str) -> Done:
    """Process numbers of running apps."""
    found = [str(pid_of(name)) for name in args if name in session.phone.stacks]
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
    """`service call …`: accepted and without effect; the time zone is always UTC."""
    if args[:1] == ["call"] and len(args) >= 3:
        return Done("Result: Parcel(00000000 00000001   '........')\n")
    if args[:1] in (["list"], ["check"]):
        return Done("Found 1 services:\n0\talarm: [android.app.IAlarmManager]\n")
    return Done(err="service: Bad arguments\n", code=10)
