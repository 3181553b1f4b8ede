from __future__ import annotations

import errno
import hashlib
import io
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from collab.errors import StoreFailure, UnknownName, UsageError
from collab.store.blobs import get_blob_path
from collab.store.run import RunStore


def pixels(picture: bytes) -> tuple[tuple[int, int], bytes]:
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    return image.size, image.tobytes()


def test_a_picture_is_named_at_once_and_keeps_every_pixel(store: RunStore, make: SimpleNamespace) -> None:
    pictures = [make.png(color, (97, 41)) for color in ("red", "green", "navy")]
    with store.open_writer() as writer:
        names = [writer.store_picture(picture) for picture in pictures * 2]
    assert names == [hashlib.sha256(picture).hexdigest() for picture in pictures * 2]
    reader = store.open_reader()
    for name, picture in zip(names, pictures * 2, strict=True):
        stored = reader.read_blob(name)
        assert stored[8:12] == b"WEBP"
        assert pixels(stored) == pixels(picture)
    assert len([path for path in (store.path / "blobs").rglob("*") if path.is_file()]) == 3


def test_a_later_writer_does_not_encode_again(store: RunStore, make: SimpleNamespace) -> None:
    with store.open_writer() as writer:
        name = writer.store_picture(make.png())
    path = get_blob_path(store.path, name)
    before = path.stat().st_mtime_ns
    with store.open_writer() as writer:
        assert writer.store_picture(make.png()) == name
    assert path.stat().st_mtime_ns == before


def test_bytes_that_are_no_picture_are_noted_and_stop_nothing(store: RunStore, make: SimpleNamespace) -> None:
    with store.open_writer() as writer:
        for junk in (b"", b"no picture", make.png()[:60]):
            with pytest.raises(UnknownName, match="no picture"):
                store.open_reader().read_blob(writer.store_picture(junk))
        make.play(writer, "A/0", 1)
    notes = [record.data["text"] for record in store.open_reader().iterate_events() if record.type == "note"]
    assert len(notes) == 3
    assert all("is unreadable" in note for note in notes)


@pytest.mark.medium
def test_more_pictures_than_may_wait(store: RunStore, make: SimpleNamespace) -> None:
    with store.open_writer() as writer:
        names = {writer.store_picture(make.png(f"#{number:02x}0000")) for number in range(150)}
    assert all(store.open_reader().read_blob(name) for name in names)


@given(st.text(max_size=80))
def test_no_name_leads_out_of_the_run(name: str) -> None:
    with pytest.raises(UsageError, match="64 hexadecimal digits"):
        get_blob_path(Path("/run"), name)


@pytest.mark.parametrize(
    "name", ["../" * 20 + "etc/passwd", "A" * 64, "0" * 63, "0" * 65, "0" * 64 + "\n", "/" * 64, "\ud800" * 64]
)
def test_nor_do_these(store: RunStore, name: str) -> None:
    with pytest.raises(UsageError, match="64 hexadecimal digits"):
        store.open_reader().read_blob(name)


def test_a_full_disk_shows_at_the_next_call_and_leaves_no_half_picture(
    store: RunStore, make: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with store.open_writer() as writer:
        monkeypatch.setattr("collab.utils.files.os.fsync", full)
        name = writer.store_picture(make.png())
        writer._blobs._pool.submit(lambda: None).result()
        while not all(future.done() for future in writer._blobs._futures):
            pass
        monkeypatch.undo()
        with pytest.raises(StoreFailure, match="No space left on device"):
            writer.store_picture(make.png("blue"))
    assert [path.name for path in (store.path / "blobs" / name[:2]).iterdir()] == []
    assert os.listdir(store.path / "blobs") == [name[:2]]
