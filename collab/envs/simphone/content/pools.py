"""Pools of names, numbers, sentences and file names, drawn by seed."""

from __future__ import annotations

import datetime
import random
import string
from collections.abc import Sequence

_GIVEN = (
    "Ada Alma Anders Ben Bianca Carla Cyrus Dana Diego Edith Elif Emre Farid Fiona Gita Greta Hassan Helena "
    "Imani Ines Ivo Jana Jonas Kaito Karin Lena Luan Magnus Marta Milan Nadia Nils Olga Pablo Priya Quinn Rafael "
    "Rosa Selma Tariq Tessa Uma Viktor Wanda Xenia Yara Yusuf Zoe"
).split()
_FAMILY = (
    "Adeyemi Bauer Castro Dahl Eriksen Fontaine Gupta Haddad Ivanov Jensen Kimura Larsen Mbeki Novak Okafor "
    "Petrov Quintero Rossi Schmidt Tanaka Ueda van_Dijk Weber Yilmaz Zeman da_Costa"
).split()
"""Underscores stand for blanks."""
SENTENCES = (
    "The train to the coast leaves at seven.",
    "Bring an umbrella, it will rain tonight.",
    "Dinner is at our place on Friday.",
    "The library closes early this week.",
    "Please water the plants while I am away.",
    "Our meeting moved to the small room.",
    "Two tickets are waiting at the front desk.",
    "The bakery has fresh rolls until noon.",
    "I found your blue scarf under the sofa.",
    "Choir practice starts half an hour later.",
    "The garden gate needs a new lock.",
    "Thanks for the book, I finished it yesterday.",
    "Let us take the bikes to the lake.",
    "The dentist can see you on Monday.",
    "Do not forget to charge the camera.",
    "A parcel for you is at the neighbour's.",
    "We should repaint the fence in spring.",
    "The soup needs more salt and pepper.",
    "Her flight lands shortly after midnight.",
    "Slow and steady wins the race.",
    "The keys are in the top drawer.",
    "Tomorrow is the last day of the sale.",
    "Call me when you reach the station.",
    "Coffee first, then everything else.",
)
"""What notes and messages say; all short, no two alike."""
ADDRESSES = (
    "12 Harbour Lane, Portland, ME 04101",
    "480 Juniper Ave, Boise, ID 83702",
    "77 Millstone Rd, Madison, WI 53703",
    "905 Larkspur Ct, Tucson, AZ 85701",
    "31 Quarry Hill, Burlington, VT 05401",
    "2260 Sunset Blvd, Eugene, OR 97401",
    "8 Lantern St, Savannah, GA 31401",
    "146 Prairie View, Lincoln, NE 68508",
)
CLIPS = (
    "48 Birch Road, Dover",
    "Gate code 7731",
    "lena.novak@example.org",
    "Order 55-20417",
    "Voucher SPRING15",
    "Call back at 555-0182",
    "Locker 12, level B",
    "Flight QX 218, seat 14C",
    "Invoice 2023-0911",
    "Room 305, ask for Marta",
    "Parcel 9Z-88410-K",
    "Member ID 60317",
)
"""What people copy."""
NOTE_TITLES = (
    "shopping_list book_club_notes garden_plan birthday_ideas bike_repairs holiday_budget piano_practice "
    "recipe_lentil_soup moving_checklist film_wishlist chess_openings team_retro language_goals house_insurance "
    "hiking_routes camera_settings"
).split()
NOTE_FOLDERS = ("Ideas Journal Kitchen Lectures Letters Meetings Projects Reading Receipts Travel").split()
FILES_BY_FOLDER: dict[str, tuple[str, ...]] = {
    "Alarms": ("rooster.mp3", "soft_bells.mp3", "sunrise.mp3", "kitchen_timer.mp3", "weekday_wakeup.mp3"),
    "Audiobooks": ("sea_stories.mp3", "short_history.mp3", "island_chapter_2.mp3", "poems_read_aloud.mp3"),
    "DCIM": ("lake_trip.jpg", "old_bridge.jpg", "cat_on_sofa.jpg", "market_day.jpg", "first_snow.jpg"),
    "Documents": ("lease.pdf", "warranty_fridge.pdf", "tax_letter.pdf", "course_outline.pdf", "floor_plan.pdf"),
    "Download": ("boarding_pass.pdf", "fonts.zip", "wallpaper.png", "manual_printer.pdf", "song_sheet.pdf"),
    "Movies": ("concert_clip.mp4", "train_ride.mp4", "school_play.mp4", "timelapse_harbour.mp4"),
    "Music": ("river_song.mp3", "slow_waltz.mp3", "night_bus.mp3", "brass_band.mp3", "paper_moon.mp3"),
    "Notifications": ("ping.mp3", "drop.mp3", "two_tone.mp3", "whistle.mp3", "marimba_short.mp3"),
    "Pictures": ("mural.jpg", "tide_pools.jpg", "graduation.jpg", "kites.jpg", "tram_stop.jpg"),
    "Podcasts": ("city_walks_04.mp3", "kitchen_science.mp3", "chess_talk.mp3", "news_digest.mp3"),
    "Recordings": ("choir_rehearsal.mp3", "lecture_week_3.mp3", "interview_two.mp3", "bird_calls.mp3"),
    "Ringtones": ("classic_bell.mp3", "harp.mp3", "retro_phone.mp3", "two_birds.mp3", "waves.mp3"),
}
"""Files that could lie in Android's standard folders."""
_ADJECTIVES = (
    "amber brave calm clever crisp early gentle golden hidden kind lucky mellow nimble quiet rapid silver sunny "
    "tidy vivid warm"
).split()
_NOUNS = (
    "anchor basket candle daisy ember falcon garden harbor island jigsaw kettle lantern meadow nectar otter "
    "pebble quill ribbon saddle teapot"
).split()
_MARKS = ("backup", "copy", "final", "draft")


def draw_name(rng: random.Random) -> str:
    """Draw a person's name: given name, blank, family name."""
    return f"{rng.choice(_GIVEN)} {rng.choice(_FAMILY).replace('_', ' ')}"


def draw_number(rng: random.Random) -> str:
    """Draw a North American phone number with country code."""
    return "+1" + "".join(rng.choice(string.digits) for _ in range(10))


def draw_word(rng: random.Random, length: int) -> str:
    """Draw letters and digits without sense."""
    return "".join(rng.choices(string.ascii_letters + string.digits, k=length))


def draw_variant(rng: random.Random, name: str) -> str:
    """Return the name with a date, a word or random characters before or after its stem."""
    stem, dot, extension = name.rpartition(".") if "." in name else (name, "", "")
    day = datetime.date(2023, 1, 1) + datetime.timedelta(days=rng.randint(0, 286))
    mark = rng.choice((day.strftime("%Y_%m_%d"), draw_word(rng, 4), rng.choice(_MARKS)))
    return f"{mark}_{stem}{dot}{extension}" if rng.random() < 0.5 else f"{stem}_{mark}{dot}{extension}"


def draw_file_name(rng: random.Random) -> str:
    """Draw a file name without extension."""
    return draw_variant(rng, f"{rng.choice(_ADJECTIVES)}_{rng.choice(_NOUNS)}")


def draw_note_name(rng: random.Random) -> str:
    """Draw a note's file name with extension."""
    return draw_file_name(rng) + rng.choice((".md", ".txt"))


def draw_other(rng: random.Random, choices: Sequence[str], *taken: str) -> str:
    """Return one of the choices that is not taken."""
    return rng.choice([choice for choice in choices if choice not in taken])
