"""The kinds of data, and several of them as one data set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import pytest
from conftest import DATA

import percolator


def labels(**options: Any) -> list[int]:
    feed = percolator.Feed(batch_size=8, once=True, **options)
    return [label for batch in feed for label in batch["label"].numpy().tolist()]


def test_a_leveldb_is_its_lmdb(golden: Path) -> None:
    expected = labels(lmdb=golden / "raw_lmdb")
    assert len(expected) == 64
    for leveldb in ["raw_leveldb_ldb", "raw_leveldb_log"]:
        assert labels(leveldb=golden / leveldb) == expected
        assert labels(leveldb=leveldb, root=golden) == expected


def test_several_are_joined_in_the_order_in_which_they_are_given(golden: Path) -> None:
    lmdb, leveldb = golden / "raw_lmdb", golden / "raw_leveldb_ldb"
    raw = labels(lmdb=lmdb)
    assert labels(lmdb=[lmdb, lmdb]) == labels(lmdb=(lmdb,), leveldb=leveldb) == raw * 2
    other = labels(lmdb=golden / "png_color_lmdb", crop=8)
    assert labels(leveldb=leveldb, lmdb=golden / "png_color_lmdb", crop=8) == raw + other
    assert labels(lmdb=golden / "png_color_lmdb", leveldb=leveldb, crop=8) == other + raw


def test_mixtures_have_exact_proportions(golden: Path) -> None:
    feed = percolator.Feed(
        lmdb=[golden / "raw_lmdb", golden / "png_color_lmdb"], mix=[3, 1], batch_size=8, epochs=1, crop=8
    )
    positions = [index for batch in feed for _, index in batch.records]
    for start in range(0, len(positions) - 4, 4):
        assert sum(index < 64 for index in positions[start : start + 4]) == 3


def test_lists_of_images(tmp_path: Path) -> None:
    names = ["444.jpg", "420.jpg", "exif_3.jpg"]
    listed = tmp_path / "list.txt"
    listed.write_text("".join(f"{name} {label}\n" for label, name in enumerate(names)))
    options = {"image_list": listed, "color": "color", "resize": (16, 12)}
    for folder in [DATA / "images", f"{DATA / 'images'}/", str(DATA / "images")]:
        feed = percolator.Feed(root_folder=folder, batch_size=3, once=True, dtype="u8", **options)
        (batch,) = feed
        assert batch["data"].shape == (3, 3, 16, 12) and batch["label"].numpy().tolist() == [0, 1, 2]
        assert numpy.asarray(batch["data"]).std() > 1
    with pytest.raises(percolator.SourceError, match="cannot read") as caught:
        list(percolator.Feed(batch_size=3, once=True, **options))
    assert str(caught.value.file).endswith("444.jpg")


def test_indexes_are_kept_where_they_are_wanted(golden: Path, tmp_path: Path) -> None:
    def files(folder: Path) -> set[Path]:
        return {path for path in folder.rglob("*") if path.name != "lock.mdb"}

    folder = tmp_path / "indexes"
    folder.mkdir()
    for index, where in [("memory", None), (folder, folder), ("beside", golden)]:
        before = {place: files(place) for place in [folder, golden]}
        feed = percolator.Feed(lmdb=golden / "raw_lmdb", index=index, shuffle=True, epochs=1, batch_size=8)
        assert sum(batch.size for batch in feed) == 64
        changed = [place for place, old in before.items() if files(place) != old]
        assert changed == ([] if where is None else [where])


def test_sample_data_may_be_written_again_while_it_is_read(tmp_path: Path) -> None:
    lmdb = percolator.sample_data(tmp_path / "samples")
    batches = iter(percolator.Feed(lmdb=lmdb, batch_size=16, epochs=2))
    first = next(batches)["data"].numpy().copy()
    written = (lmdb / "data.mdb").stat()
    assert percolator.sample_data(tmp_path / "samples") == lmdb
    assert (lmdb / "data.mdb").stat() == written
    (lmdb / "data.mdb").unlink()
    (lmdb / "data.mdb").write_bytes(b"something else")
    percolator.sample_data(str(tmp_path / "samples"))
    assert sum(batch.size for batch in batches) == 112
    again = next(iter(percolator.Feed(lmdb=lmdb, batch_size=16)))
    assert (again["data"].numpy() == first).all() and first.shape == (16, 3, 16, 16)
    assert sorted(path.name for path in lmdb.iterdir() if path.name != "lock.mdb") == ["data.mdb"]
