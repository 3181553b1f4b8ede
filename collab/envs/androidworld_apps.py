"""Apps by the names under which AndroidWorld opens them.

AndroidWorld takes the first entry that has a name with which the agent's text begins: "Settings app" opens the settings
and "Simple Calendar" the calendar. Facts of its `adb_utils` (Apache-2.0).
"""

from __future__ import annotations

NAMES: tuple[tuple[tuple[str, ...], str], ...] = (
    (("google chrome", "chrome"), "com.android.chrome"),
    (("google chat",), "com.google.android.apps.dynamite"),
    (("settings", "system settings"), "com.android.settings"),
    (("youtube", "yt"), "com.google.android.youtube"),
    (("google play", "play store", "gps"), "com.android.vending"),
    (("gmail", "gemail", "google mail", "google email", "google mail client"), "com.google.android.gm"),
    (("google maps", "gmaps", "maps", "google map"), "com.google.android.apps.maps"),
    (
        ("google photos", "gphotos", "photos", "google photo", "google pics", "google images"),
        "com.google.android.apps.photos",
    ),
    (("google calendar", "gcal"), "com.google.android.calendar"),
    (("camera",), "com.android.camera2"),
    (("audio recorder",), "com.dimowner.audiorecorder"),
    (("google drive", "gdrive", "drive"), "com.google.android.apps.docs"),
    (("google keep", "gkeep", "keep"), "com.google.android.keep"),
    (("grubhub",), "com.grubhub.android"),
    (("tripadvisor",), "com.tripadvisor.tripadvisor"),
    (("starbucks",), "com.starbucks.mobilecard"),
    (("google docs", "gdocs", "docs"), "com.google.android.apps.docs.editors.docs"),
    (("google sheets", "gsheets", "sheets"), "com.google.android.apps.docs.editors.sheets"),
    (("google slides", "gslides", "slides"), "com.google.android.apps.docs.editors.slides"),
    (("google voice", "voice"), "com.google.android.apps.googlevoice"),
    (("clock",), "com.google.android.deskclock"),
    (("google search", "google"), "com.google.android.googlequicksearchbox"),
    (("contacts",), "com.google.android.contacts"),
    (("facebook", "fb"), "com.facebook.katana"),
    (("whatsapp", "wa"), "com.whatsapp"),
    (("instagram", "ig"), "com.instagram.android"),
    (("twitter", "tweet"), "com.twitter.android"),
    (("snapchat", "sc"), "com.snapchat.android"),
    (("telegram", "tg"), "org.telegram.messenger"),
    (("linkedin",), "com.linkedin.android"),
    (("spotify", "spot"), "com.spotify.music"),
    (("netflix",), "com.netflix.mediaclient"),
    (("amazon shopping", "amazon", "amzn"), "com.amazon.mShop.android.shopping"),
    (("tiktok", "tt"), "com.zhiliaoapp.musically"),
    (("discord",), "com.discord"),
    (("reddit",), "com.reddit.frontpage"),
    (("pinterest",), "com.pinterest"),
    (("android world",), "com.example.androidworld"),
    (("files",), "com.google.android.documentsui"),
    (("markor",), "net.gsantner.markor"),
    (("clipper",), "ca.zgrs.clipper"),
    (("messages",), "com.google.android.apps.messaging"),
    (("simple sms messenger", "simple sms"), "com.simplemobiletools.smsmessenger"),
    (("dialer", "phone"), "com.google.android.dialer"),
    (("simple calendar pro", "simple calendar"), "com.simplemobiletools.calendar.pro"),
    (("simple gallery pro", "simple gallery"), "com.simplemobiletools.gallery.pro"),
    (("miniwob",), "com.google.androidenv.miniwob"),
    (("simple draw pro",), "com.simplemobiletools.draw.pro"),
    (("pro expense", "pro expense app"), "com.arduia.expense"),
    (("broccoli", "broccoli app", "broccoli recipe app", "recipe app"), "com.flauschcode.broccoli"),
    (("caa", "caa test", "context aware access"), "com.google.ccc.hosted.contextawareaccess.thirdpartyapp"),
    (("osmand",), "net.osmand"),
    (("tasks", "tasks app", "tasks.org:"), "org.tasks"),
    (("open tracks sports tracker", "activity tracker", "open tracks", "opentracks"), "de.dennisguse.opentracks"),
    (("joplin", "joplin app"), "net.cozic.joplin"),
    (("vlc", "vlc app", "vlc player"), "org.videolan.vlc"),
    (("retro music", "retro", "retro player"), "code.name.monkey.retromusic"),
)
"""(names in lower case, package), in the order in which they are tried."""


def find_app_package(name: str) -> str | None:
    """Return the package of the app that AndroidWorld opens by a name; None when it takes the name for a package."""
    said = name.lower()
    return next((package for names, package in NAMES if said.startswith(names)), None)
