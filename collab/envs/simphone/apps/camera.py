"""Camera: asks for its permissions, then takes pictures into DCIM."""

from __future__ import annotations

from functools import partial

from collab.envs.simphone.app import App, UiNode, View, button, icon, line, tab, text
from collab.envs.simphone.state import ROOT, Page, Phone, keep, list_children, pop, recall, remember, toast, write

PACKAGE = "com.android.camera2"
PERMISSIONS_PACKAGE = "com.android.permissioncontroller"
_ID = PACKAGE + ":id/"
_ASK = PERMISSIONS_PACKAGE + ":id/"
_PERMISSIONS = {
    "camera": "Allow Camera to take pictures and record video?",
    "location": "Allow Camera to access this device's location?",
}


def main(phone: Phone, page: Page) -> View:
    """Show the viewfinder, or the first permission that has not been decided."""
    # Permissions are asked one after the other, each until it is decided.
    for permission, question in _PERMISSIONS.items():
        if recall(phone, PACKAGE, permission) is None:
            return _permission_dialog(permission, question)
    mode = str(page.data["mode"])
    return View(
        title="Camera",
        style="plain",
        body=[UiNode("image", "Viewfinder", _ID + "preview", height=1500)],
        footer=line(
            tab("Photo", _ID + "photo", mode == "photo", partial(keep, mode="photo")),
            icon("Shutter", _ID + "shutter_button", _shoot),
            tab("Video", _ID + "video", mode == "video", partial(keep, mode="video")),
        ),
    )


def _permission_dialog(permission: str, question: str) -> View:
    allow = partial(_decide, permission=permission, granted=True)
    return View(
        title="Permission",
        style="dialog",
        package=PERMISSIONS_PACKAGE,
        body=[
            text(question, _ASK + "permission_message"),
            button("While using the app", _ASK + "permission_allow_foreground_only_button", allow),
            button("Only this time", _ASK + "permission_allow_one_time_button", allow),
            button("Don't allow", _ASK + "permission_deny_button", partial(_deny, permission=permission)),
        ],
    )


def _deny(phone: Phone, permission: str) -> Phone:
    """Deny the permission: without the camera the app closes, without the location it works."""
    return pop(phone) if permission == "camera" else _decide(phone, permission, granted=False)


def _decide(phone: Phone, permission: str, *, granted: bool) -> Phone:
    return remember(phone, PACKAGE, **{permission: granted})


def _shoot(phone: Phone) -> Phone:
    folder = f"{ROOT}/DCIM/Camera"
    video = phone.page.data["mode"] == "video"
    name = f"{'VID' if video else 'IMG'}_20231015_{len(list_children(phone, folder)):04d}.{'mp4' if video else 'jpg'}"
    return toast(write(phone, f"{folder}/{name}", ""), "Video saved" if video else "Picture saved")


APP = App(
    package=PACKAGE,
    names=("Camera",),
    activity="com.android.camera.CameraLauncher",
    pages=(Page(screen="camera.main", data={"mode": "photo"}),),
    screens={"camera.main": main},
)
