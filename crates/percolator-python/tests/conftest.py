"""What several tests share: data made on the spot, golden databases, scripts in processes of their own.

A test that needs what is not here (TORCH, JAX, TENSORFLOW, STANDIN, GPU) is skipped, and pytest's summary says
so. The variables of tests/common/need.rs make that a failure: PERCOLATOR_NEED_ALL=1, or one for each need.
"""

from __future__ import annotations

import faulthandler
import importlib
import os
import shutil
import struct
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

import percolator

REPOSITORY = Path(__file__).resolve().parents[3]
DATA = REPOSITORY / "tests" / "data"
DIGITS = REPOSITORY / "examples" / "digits"

# Longer than anything here takes on a busy machine: a process that is still there then hangs.
HANGS_AFTER = 300


def missing(need: str, why: str) -> NoReturn:
    """Skips the test, or fails it where it is needed."""
    stated = [os.environ.get(f"PERCOLATOR_NEED_{name}") for name in (need, "ALL")]
    if next((value for value in stated if value is not None), "0") != "0":
        pytest.fail(f"did not run, and PERCOLATOR_NEED_{need} or PERCOLATOR_NEED_ALL is set: {why}")
    pytest.skip(why)


def framework(name: str) -> Any:
    """The module of a framework, or a skip."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        missing(name.split(".")[0].upper(), f"{name} is not installed")


def write_numbers(path: Path, records: int) -> str:
    """Writes Examples: record i has ``x``, four integers from 4i on, and ``label``, which is i."""
    with percolator.TfRecordWriter(path) as out:
        for record in range(records):
            out.write_example({"x": [4 * record + at for at in range(4)], "label": record})
    return str(path)


FIELDS = "x:i64[4],label:i64"


def run_script(code: str, *arguments: str) -> str:
    """Runs Python in a process of its own, which must succeed; returns what it prints."""
    command = [sys.executable, "-c", textwrap.dedent(code), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANGS_AFTER)
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def read_idx(path: Path) -> tuple[tuple[int, ...], bytes]:
    """The extents and the bytes of an IDX file of MNIST's kind."""
    data = path.read_bytes()
    axes = data[3]
    extents = struct.unpack(f">{axes}I", data[4 : 4 + 4 * axes])
    return extents, data[4 + 4 * axes :]


@pytest.fixture(autouse=True)
def hangs_are_failures() -> Iterator[None]:
    """Ends the tests, with the stacks of all threads, if one of them hangs."""
    faulthandler.dump_traceback_later(2 * HANGS_AFTER, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture
def numbers(tmp_path: Path) -> str:
    """100 records of `write_numbers`."""
    return write_numbers(tmp_path / "numbers.tfrecord", 100)


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    """A copy of the golden nets and databases, beside which indexes may be written. Whoever fed the original
    may have left its index there."""
    indexes = shutil.ignore_patterns("*.percolator-index*")
    return Path(shutil.copytree(DATA / "golden", tmp_path / "golden", ignore=indexes))


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The 1,437 digits for training, as Examples."""
    (count, height, width), pixels = read_idx(DIGITS / "train-images-idx3-ubyte")
    _, labels = read_idx(DIGITS / "train-labels-idx1-ubyte")
    path = tmp_path_factory.mktemp("digits") / "train.tfrecord"
    size = height * width
    with percolator.TfRecordWriter(path) as out:
        for record in range(count):
            image = pixels[record * size : (record + 1) * size]
            out.write_example({"image": image, "label": labels[record]})
    return str(path)
