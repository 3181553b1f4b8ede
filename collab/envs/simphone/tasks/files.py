"""Files tasks: judged by the file tree."""

from __future__ import annotations

import random
from functools import partial

from collab.envs.simphone.app import list_selected
from collab.envs.simphone.apps.files import PACKAGE, STORAGE, entry_key
from collab.envs.simphone.content.pools import FILES_BY_FOLDER, draw_file_name, draw_other, draw_variant
from collab.envs.simphone.state import ROOT, STANDARD_FOLDERS, Phone, delete, find_folder, make_folder, write
from collab.envs.simphone.tasks import plans
from collab.envs.simphone.tasks.spec import Params, TaskSpec, find_move_paths, make_phrasings, score_move
from collab.envs.simphone.ui.screen import Frame
from collab.types import Action

_ID = PACKAGE + ":id/"


# -------------------------------------------------------------------------------------------------------- planning


def _to_folder(frame: Frame, folder: str) -> Action | None:
    """Walk from the drawer of places down to a folder's list."""
    if not plans.is_in_app(frame, PACKAGE):
        return plans.open_app("Files")
    if frame.page.screen == "files.recent":
        return plans.aim_at(frame, _ID + "roots")
    if frame.page.screen == "files.roots":
        return plans.aim_at(frame, f"{_ID}root/{STORAGE}")
    if frame.page.screen != "files.folder" or list_selected(frame.page):
        return plans.press_back()
    return plans.enter_folder(frame, folder, entry_key)


def _select(frame: Frame, path: str) -> Action | None:
    return plans.select_file(frame, path, "files.folder", _to_folder, entry_key)


def _delete_plan(frame: Frame, params: Params, start: Phone) -> Action:
    path = _find_deleted_path(params)
    if path not in frame.phone.files:
        return plans.finish()
    if frame.page.screen == "files.delete" and frame.page.data["paths"] == (path,):
        return plans.aim_at(frame, _ID + "ok")
    return _select(frame, path) or plans.aim_at(frame, _ID + "action_menu_delete")


def _move_plan(frame: Frame, params: Params, start: Phone) -> Action:
    source, target = find_move_paths(params, ROOT)
    if source not in frame.phone.files and target in frame.phone.files:
        return plans.finish()
    about_it = plans.is_in_app(frame, PACKAGE) and frame.page.data.get("paths") == (source,)
    if about_it and frame.page.screen == "files.menu":
        return plans.aim_at(frame, _ID + "action_menu_move_to")
    if not (about_it and frame.page.screen == "files.picker"):
        return _select(frame, source) or plans.aim_at(frame, _ID + "more")
    here, wanted = str(frame.page.data["folder"]), find_folder(target)
    if here == wanted:
        return plans.aim_at(frame, _ID + "move")
    return plans.aim_at(frame, entry_key(wanted) if here == ROOT else _ID + "breadcrumb")


# ------------------------------------------------------------------------------------------- judging and preparing


def _find_deleted_path(params: Params) -> str:
    return "/".join(part for part in (ROOT, str(params.get("subfolder", "")), str(params["file_name"])) if part)


def _delete_score(start: Phone, end: Phone, params: Params) -> float:
    return float(_find_deleted_path(params) not in end.files)


def _prepare(phone: Phone, params: Params, rng: random.Random, *, folder: str) -> Phone:
    """Prepare empty standard folders, then the file among up to 20 others in its folder."""
    for name in STANDARD_FOLDERS:
        phone = make_folder(delete(phone, f"{ROOT}/{name}"), f"{ROOT}/{name}")
    directory = "/".join(part for part in (ROOT, str(params.get(folder, ""))) if part)
    file_name = str(params["file_name"])
    phone = write(phone, f"{directory}/{file_name}", "")
    for _ in range(rng.randint(1, 20)):
        name = draw_variant(rng, rng.choice(params["noise_candidates"]) if rng.random() < 0.85 else file_name)
        phone = write(phone, f"{directory}/{name}", "", changed_ms=phone.now_ms - rng.randint(60, 90_000) * 60_000)
    return phone


def _draw_move(rng: random.Random) -> dict[str, object]:
    source = rng.choice(STANDARD_FOLDERS)
    destination = draw_other(rng, STANDARD_FOLDERS, source)
    return {
        "file_name": rng.choice(FILES_BY_FOLDER[destination]),
        "source_folder": source,
        "destination_folder": destination,
        "noise_candidates": list(FILES_BY_FOLDER[source]),
    }


def _draw_delete(rng: random.Random) -> dict[str, object]:
    folder = rng.choice(STANDARD_FOLDERS)
    candidates = FILES_BY_FOLDER[folder]
    return {
        "file_name": f"{draw_file_name(rng)}.{candidates[0].rpartition('.')[2]}",
        "subfolder": folder,
        "noise_candidates": list(candidates),
    }


TASKS: tuple[TaskSpec, ...] = (
    TaskSpec(
        name="FilesDeleteFile",
        apps=("files",),
        complexity=2.2,
        difficulty="medium",
        goal=make_phrasings(
            "Remove {file_name} from the folder {subfolder} of the storage sdk_gphone_x86_64.",
            "The storage sdk_gphone_x86_64 has a file {file_name} in {subfolder}. Delete it.",
            "Use Files to delete {file_name}; it is in sdk_gphone_x86_64, folder {subfolder}.",
        ),
        draw=_draw_delete,
        prepare=partial(_prepare, folder="subfolder"),
        score=_delete_score,
        plan=_delete_plan,
    ),
    TaskSpec(
        name="FilesMoveFile",
        apps=("files",),
        complexity=2,
        difficulty="medium",
        goal=make_phrasings(
            "In the storage sdk_gphone_x86_64, move {file_name} from {source_folder} to {destination_folder}.",
            "Take {file_name} out of {source_folder} and put it into {destination_folder} (storage sdk_gphone_x86_64).",
            "The file {file_name} in {source_folder} belongs into {destination_folder}. Both are folders of "
            "sdk_gphone_x86_64; move it there.",
        ),
        draw=_draw_move,
        prepare=partial(_prepare, folder="source_folder"),
        score=partial(score_move, root=ROOT),
        plan=_move_plan,
    ),
)
