"""Data to begin with."""

from __future__ import annotations

import shutil
from os import PathLike
from pathlib import Path


def sample_data(folder: str | PathLike[str] = "percolator_sample") -> Path:
    """Writes a small LMDB of Caffe's kind into a folder, which it makes, and returns its path: 64 pictures of
    3 x 16 x 16, whose pixels are in the order BGR, with labels from 0 to 9. The examples of the documentation
    run on it."""
    lmdb = Path(folder) / "train_lmdb"
    lmdb.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(Path(__file__).parent / "sample" / "data.mdb", lmdb / "data.mdb")
    return lmdb
