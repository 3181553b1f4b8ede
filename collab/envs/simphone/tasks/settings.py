"""Settings tasks: Wi-Fi, Bluetooth, brightness, and opening apps."""

from __future__ import annotations

import random
from functools import partial

from collab.envs.grammar import MOBILE
from collab.envs.simphone.apps import STANDARD
from collab.envs.simphone.apps.settings import BLUETOOTH, BRIGHTEST, BRIGHTNESS, DARKEST, PACKAGE, WIFI
from collab.envs.simphone.state import Phone, put_setting
from collab.envs.simphone.tasks import plans
from collab.envs.simphone.tasks.spec import Params, TaskSpec, draw_nothing, make_phrasings
from collab.envs.simphone.ui.screen import Frame, find_foreground_package
from collab.types import Action

_ID = PACKAGE + ":id/"
_MAIN = {"settings.page/main": _ID + "network", "settings.page/network": _ID + "internet", "settings.internet": ""}
_ROUTES = {
    WIFI: _MAIN,
    BLUETOOTH: {
        "settings.page/main": _ID + "devices",
        "settings.page/devices": _ID + "connection",
        "settings.page/connection": _ID + "bluetooth",
        "settings.page/bluetooth": "",
    },
}
_BRIGHTNESS_ROUTE = {
    "settings.page/main": _ID + "display",
    "settings.page/display": _ID + "brightness",
    "settings.brightness": "",
}


# -------------------------------------------------------------------------------------------------------- switches


def _switch_plan(frame: Frame, params: Params, start: Phone, *, name: str, on: bool) -> Action:
    step = plans.follow(frame, "Settings", PACKAGE, _ROUTES[name])
    if step is not None:
        return step
    return plans.finish() if (frame.phone.settings[name] != "0") == on else plans.aim_at(frame, _ID + name)


def _set(phone: Phone, params: Params, rng: random.Random, *, values: dict[str, str]) -> Phone:
    for name, value in values.items():
        phone = put_setting(phone, name, value)
    return phone


def _is(start: Phone, end: Phone, params: Params, *, name: str, allowed: tuple[str, ...]) -> float:
    return float(end.settings[name] in allowed)


def _switch_task(kind: str, name: str, word: str, *, verify: bool) -> TaskSpec:
    on = word == "on"
    before = on if verify else not on
    target = {"WiFi": "Wi-Fi", "Bluetooth": "Bluetooth"}[kind]
    system = {"WiFi": "Wifi", "Bluetooth": "Bluetooth"}[kind]
    return TaskSpec(
        name=f"System{system}Turn{word.capitalize()}{'Verify' if verify else ''}",
        apps=("settings",),
        complexity=1,
        difficulty="easy",
        goal=make_phrasings(
            f"Switch {target} {{on_or_off}}.",
            f"Please make sure that {target} is {{on_or_off}}.",
            f"I want {target} to be {{on_or_off}} on this phone.",
        ),
        draw=lambda rng: {"on_or_off": word},
        prepare=partial(_set, values={name: "1" if before else "0"}),
        score=partial(_is, name=name, allowed=("1", "2") if on and name == WIFI else ("1",) if on else ("0",)),
        plan=partial(_switch_plan, name=name, on=on),
        verify=verify,
    )


# ------------------------------------------------------------------------------------------------------ brightness


def _plan_brightness(frame: Frame, params: Params, start: Phone, *, level: int) -> Action:
    step = plans.follow(frame, "Settings", PACKAGE, _BRIGHTNESS_ROUTE)
    if step is not None:
        return step
    if frame.phone.settings[BRIGHTNESS] == str(level):
        return plans.finish()
    direction = "right" if level == BRIGHTEST else "left"
    return MOBILE.make("swipe", direction=direction, index=frame.index(_ID + "slider"))


def _build_brightness_task(word: str, *, verify: bool) -> TaskSpec:
    level, other = (BRIGHTEST, DARKEST) if word == "max" else (DARKEST, BRIGHTEST)
    start = level if verify else other
    return TaskSpec(
        name=f"SystemBrightness{word.capitalize()}{'Verify' if verify else ''}",
        apps=("settings",),
        complexity=1,
        difficulty="easy",
        goal=make_phrasings(
            "Set the screen brightness to its {max_or_min} level.",
            "The brightness of the display should be at {max_or_min}.",
            "Bring the brightness to the {max_or_min}imum.",
        ),
        draw=lambda rng: {"max_or_min": word},
        prepare=partial(_set, values={BRIGHTNESS: str(start)}),
        score=partial(_is, name=BRIGHTNESS, allowed=(str(level),)),
        plan=partial(_plan_brightness, level=level),
        verify=verify,
    )


# ------------------------------------------------------------------------------------------------------ composites


def _plan_both(frame: Frame, params: Params, start: Phone) -> Action:
    if frame.phone.settings[WIFI] != "0":
        return _switch_plan(frame, params, start, name=WIFI, on=False)
    return _switch_plan(frame, params, start, name=BLUETOOTH, on=True)


def _score_both(start: Phone, end: Phone, params: Params) -> float:
    return (float(end.settings[WIFI] == "0") + float(end.settings[BLUETOOTH] == "1")) / 2


def _plan_wifi_then_app(frame: Frame, params: Params, start: Phone) -> Action:
    if frame.phone.settings[WIFI] == "0":
        return _switch_plan(frame, params, start, name=WIFI, on=True)
    return open_plan(frame, params, start)


def _score_wifi_then_app(start: Phone, end: Phone, params: Params) -> float:
    return (float(end.settings[WIFI] in ("1", "2")) + open_score(start, end, params)) / 2


def open_plan(frame: Frame, params: Params, start: Phone) -> Action:
    """Open the app and grant what it asks for."""
    app = frame.phone.apps.by_name[str(params["app_name"])]
    if not plans.is_in_app(frame, app.package):
        return plans.open_app(app.name)
    if (frame.view.package or app.package) == app.package:
        return plans.finish()
    allow = next((node.key for node in frame.placed.nodes if "permission_allow" in node.key), None)
    return plans.press_back() if allow is None else plans.aim_at(frame, allow)


def open_score(start: Phone, end: Phone, params: Params) -> float:
    """Return whether the app is in front, with no permission dialog over it."""
    return float(find_foreground_package(end) == end.apps.by_name[str(params["app_name"])].package)


OPENABLE = ("camera", "clock", "contacts", "settings", "dialer")


def _draw_app(rng: random.Random) -> dict[str, str]:
    return {"app_name": rng.choice([name for name in OPENABLE if name in STANDARD.by_name])}


TASKS: tuple[TaskSpec, ...] = (
    *(
        _switch_task(kind, name, word, verify=verify)
        for kind, name in (("Bluetooth", BLUETOOTH), ("WiFi", WIFI))
        for word in ("off", "on")
        for verify in (False, True)
    ),
    *(_build_brightness_task(word, verify=verify) for word in ("max", "min") for verify in (False, True)),
    TaskSpec(
        name="TurnOffWifiAndTurnOnBluetooth",
        apps=("settings",),
        complexity=2,
        difficulty="medium",
        goal=make_phrasings(
            "First switch Wi-Fi off, after that switch Bluetooth on.",
            "I need Bluetooth instead of Wi-Fi: disable Wi-Fi and enable Bluetooth.",
            "Disable the Wi-Fi connection and then activate Bluetooth.",
        ),
        draw=draw_nothing,
        prepare=partial(_set, values={WIFI: "1", BLUETOOTH: "0"}),
        score=_score_both,
        plan=_plan_both,
    ),
    TaskSpec(
        name="TurnOnWifiAndOpenApp",
        apps=("settings",),
        complexity=2,
        difficulty="easy",
        goal=make_phrasings(
            "Switch Wi-Fi on and open the {app_name} app afterwards.",
            "Enable Wi-Fi. When it is on, start {app_name}.",
            "Get Wi-Fi running, then bring up the app called {app_name}.",
        ),
        draw=_draw_app,
        prepare=partial(_set, values={WIFI: "0"}),
        score=_score_wifi_then_app,
        plan=_plan_wifi_then_app,
    ),
    TaskSpec(
        name="OpenAppTaskEval",
        apps=("camera", "clock", "contacts", "settings", "dialer"),
        complexity=1,
        difficulty="easy",
        goal=make_phrasings(
            "Start the {app_name} app; if it asks for permissions, allow them.",
            "Open {app_name} and accept every permission it needs.",
            "Bring the {app_name} app to the screen and grant whatever pop-ups request.",
        ),
        draw=_draw_app,
        prepare=partial(_set, values={}),
        score=open_score,
        plan=open_plan,
    ),
)
