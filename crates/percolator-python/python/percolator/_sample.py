"""Data to begin with."""

from __future__ import annotations

import os
import shutil
from os import PathLike
from pathlib import Path


def sample_data(folder: str | PathLike[str] = "percolator_sample") -> Path:
    """Writes a small LMDB of Caffe's kind into a folder, which it makes, and returns its path: 64 pictures of
    3 x 16 x 16, whose pixels are in the order BGR, with labels from 0 to 9. The examples of the documentation
    run on it."""
    lmdb = Path(folder) / "train_lmdb"
    lmdb.mkdir(parents=True, exist_ok=True)
    here, there = Path(__file__).parent / "sample" / "data.mdb", lmdb / "data.mdb"
    if not there.exists() or there.read_bytes() != here.read_bytes():
        # A feed may read what is there: it is replaced, and not written to.
        part = lmdb / f"data.mdb.{os.getpid()}"
        shutil.copyfile(here, part)
        part.replace(there)
    return lmdb
