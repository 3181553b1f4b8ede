"""Files: the shared storage, folder by folder, with a selection mode to delete and move."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial

from collab.envs.simphone.app import (
    App,
    Item,
    NodeLine,
    UiNode,
    View,
    button,
    icon,
    item,
    line,
    list_selected,
    select,
    text,
    text_field,
    toggle,
    unselect,
)
from collab.envs.simphone.content.pools import FILES_BY_FOLDER
from collab.envs.simphone.state import (
    ROOT,
    Page,
    Phone,
    delete,
    edit_page,
    find_folder,
    is_folder,
    keep,
    list_children,
    move,
    name_of,
    pop,
    push,
    swap,
    toast,
    write,
)

PACKAGE = "com.google.android.documentsui"
_ID = PACKAGE + ":id/"
STORAGE = "sdk_gphone_x86_64"
"""What the app calls the shared storage."""
_RECENT = 10
"""How many files the first page lists."""


def entry_key(path: str) -> str:
    """Return the key of a file or folder in a list."""
    return f"{_ID}item{path.removeprefix(ROOT)}"


def recent(phone: Phone, page: Page) -> View:
    """Show the files changed last."""
    files = [(entry.changed_ms, path) for path, entry in phone.files.items() if entry.content is not None]
    files = sorted((one for one in files if one[1].startswith(ROOT)), reverse=True)[:_RECENT]
    body: list[Item] = [
        item(name_of(path), entry_key(path), _open_file, value=name_of(find_folder(path))) for _, path in files
    ]
    return View(
        title="Recent",
        body=body or [text("No items", _ID + "empty")],
        navigation=icon("Show roots", _ID + "roots", _show_roots),
    )


def roots(phone: Phone, page: Page) -> View:
    """Show the drawer with the places files can be in."""
    places = {"Recent": None, "Downloads": f"{ROOT}/Download", STORAGE: ROOT}
    body: list[Item] = [
        item(name, f"{_ID}root/{name}", partial(_go_to_root, folder=folder)) for name, folder in places.items()
    ]
    return View(title="Open from", style="sheet", body=body)


def folder_list(phone: Phone, page: Page) -> View:
    """Show one folder; a long press starts the selection."""
    folder = str(page.data["folder"])
    selected = list_selected(page)
    entries = [path for path, _ in list_children(phone, folder)]
    body: list[Item] = [_entry(phone, path, path in selected, bool(selected)) for path in entries]
    if not body:
        body = [text("No items", _ID + "empty")]
    # With a selection, title, actions and the way back are those of the selection.
    if not selected:
        return View(title=_choose_title(folder), body=body)
    more = Page(screen="files.menu", data={"folder": folder, "paths": selected})
    return View(
        title=f"{len(selected)} selected",
        body=body,
        actions=(
            icon("Delete", _ID + "action_menu_delete", partial(_ask, screen="files.delete", paths=selected)),
            icon("More options", _ID + "more", partial(push, page=more)),
        ),
        navigation=icon("Done", _ID + "action_mode_close", unselect),
        back=unselect,
    )


def _entry(phone: Phone, path: str, selected: bool, selecting: bool) -> UiNode:
    folder = is_folder(phone, path)
    choose = partial(toggle, name=path)
    tap = choose if selecting else partial(_enter, path=path) if folder else _open_file
    value = "Folder" if folder else f"{len(phone.files[path].content or '')} B"
    return item(name_of(path), entry_key(path), tap, value=value, hold=choose, selected=selected)


def _choose_title(folder: str) -> str:
    return STORAGE if folder == ROOT else name_of(folder)


def _show_roots(phone: Phone) -> Phone:
    return push(phone, Page(screen="files.roots"))


def _go_to_root(phone: Phone, folder: str | None) -> Phone:
    phone = replace(phone, stacks={**phone.stacks, PACKAGE: APP.pages}, keyboard=False)
    return phone if folder is None else _enter(phone, folder)


def _enter(phone: Phone, path: str) -> Phone:
    return push(phone, Page(screen="files.folder", data={"folder": path}))


def _open_file(phone: Phone) -> Phone:
    return toast(phone, "No app can open this file")


def _ask(phone: Phone, screen: str, paths: tuple[str, ...]) -> Phone:
    return push(phone, Page(screen=screen, data={"paths": paths}))


# -------------------------------------------------------------------------------------------- delete, move, rename


def menu(phone: Phone, page: Page) -> View:
    """Show more that can be done with the selection."""
    picker = Page(screen="files.picker", data=page.data)
    body: list[Item] = [
        item("Select all", _ID + "action_menu_select_all", partial(_select_all, folder=str(page.data["folder"]))),
        item("Move to…", _ID + "action_menu_move_to", partial(swap, page=picker)),
    ]
    if len(page.data["paths"]) == 1:
        path = page.data["paths"][0]
        rename = Page(screen="files.rename", data={"path": path}, fields={"name": name_of(path)}, focus="name")
        body.append(item("Rename", _ID + "action_menu_rename", partial(swap, page=rename)))
    return View(title="More options", style="menu", body=body)


def _select_all(phone: Phone, folder: str) -> Phone:
    return select(pop(phone), tuple(path for path, _ in list_children(phone, folder)))


def delete_dialog(phone: Phone, page: Page) -> View:
    """Show the question before files are deleted; it names them."""
    paths: tuple[str, ...] = page.data["paths"]
    return View(
        title=f"Delete {len(paths)} item{'s' * (len(paths) > 1)}?",
        style="dialog",
        body=[text("\n".join(name_of(path) for path in paths), _ID + "message")],
        actions=(button("Cancel", _ID + "cancel", pop), button("OK", _ID + "ok", _delete)),
    )


def _delete(phone: Phone) -> Phone:
    paths: tuple[str, ...] = phone.page.data["paths"]
    for path in paths:
        phone = delete(phone, path)
    return toast(unselect(pop(phone)), f"Deleted {len(paths)} item{'s' * (len(paths) > 1)}")


def rename_dialog(phone: Phone, page: Page) -> View:
    """Ask for the new name of one file."""
    return View(
        title="Rename",
        style="dialog",
        body=[text_field(page, "name", "Name", _ID + "name", enter=_rename)],
        actions=(button("Cancel", _ID + "cancel", pop), button("OK", _ID + "ok", _rename)),
    )


def _rename(phone: Phone) -> Phone:
    path, name = str(phone.page.data["path"]), phone.page.fields.get("name", "").strip()
    moved = move(phone, path, f"{find_folder(path)}/{name}") if name and "/" not in name else phone
    return toast(phone, "Choose another name") if moved is phone else unselect(pop(moved))


def picker(phone: Phone, page: Page) -> View:
    """Ask for the folder to move to: walk there by folders and the path above them, then confirm."""
    folder = str(page.data["folder"])
    # The path above the folder, each part a place to go back to.
    trail = [ROOT]
    for part in folder.removeprefix(ROOT).split("/")[1:]:
        trail.append(f"{trail[-1]}/{part}")
    chips = tuple(
        UiNode(
            "chip", _choose_title(path), f"{_ID}breadcrumb{path.removeprefix(ROOT)}", tap=partial(_walk, folder=path)
        )
        for path in trail
    )
    # Folders alone: files cannot be moved into.
    body: list[Item] = [
        item(name_of(path), entry_key(path), partial(_walk, folder=path))
        for path, entry in list_children(phone, folder)
        if entry.content is None
    ]
    return View(
        title=f"Move to: {_choose_title(folder)}",
        # All chips in one line, whatever their number: the trail must keep its order.
        body=[NodeLine(chips, columns=max(3, len(chips))), *body],
        navigation=icon("Cancel", _ID + "close", pop),
        footer=line(button("Cancel", _ID + "cancel", pop), button("Move", _ID + "move", _move)),
    )


def _walk(phone: Phone, folder: str) -> Phone:
    return edit_page(keep(phone, folder=folder), scroll=0)


def _move(phone: Phone) -> Phone:
    folder, paths = str(phone.page.data["folder"]), phone.page.data["paths"]
    moved = phone
    for path in paths:
        moved = move(moved, path, f"{folder}/{name_of(path)}")
    if moved is phone:
        return toast(phone, "These items cannot be moved here")
    return toast(unselect(pop(moved)), f"Moved to {_choose_title(folder)}")


def _add_noise(phone: Phone, rng: random.Random) -> Phone:
    for folder in rng.sample(sorted(FILES_BY_FOLDER), 3):
        for name in rng.sample(FILES_BY_FOLDER[folder], 2):
            phone = write(
                phone, f"{ROOT}/{folder}/{name}", "", changed_ms=phone.now_ms - rng.randint(1, 90) * 86_400_000
            )
    return phone


APP = App(
    package=PACKAGE,
    names=("Files",),
    activity="com.android.documentsui.files.FilesActivity",
    pages=(Page(screen="files.recent"),),
    screens={
        "files.recent": recent,
        "files.roots": roots,
        "files.folder": folder_list,
        "files.menu": menu,
        "files.delete": delete_dialog,
        "files.rename": rename_dialog,
        "files.picker": picker,
    },
    noise=_add_noise,
)
