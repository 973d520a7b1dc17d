#!/usr/bin/env python3
"""Databases as C++ LevelDB leaves them, and what is in them.

    make.py FOLDER [--scale N]

Needs plyvel (pip install plyvel). Writes one database a case to FOLDER, and FOLDER/expected.json: for each
case the number of records and the SHA-256 over all of them in key order, each key and each value behind its
length (4 bytes, little-endian). What is expected is what was put and not deleted, kept in a dictionary; it is
checked here against what LevelDB itself reads from a copy.
"""

import argparse
import hashlib
import json
import os
import pathlib
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile

import plyvel

# The least that LevelDB takes.
SMALL_BUFFER = 64 << 10


def key(index):
    return b"%08d" % index


def text(index, length):
    """Compresses well."""
    return (b"record %d " % index * (length // 8 + 1))[:length]


def noise(index, length):
    """Does not compress, so that LevelDB stores its blocks as they are, whatever was asked for."""
    return random.Random(index).randbytes(length)


class Writer:
    """A database, and a dictionary that should equal it."""

    def __init__(self, path, **options):
        self.path, self.options, self.model = path, options, {}
        self.db = plyvel.DB(str(path), create_if_missing=True, **options)

    def put(self, key, value):
        self.db.put(key, value)
        self.model[key] = value

    def delete(self, key):
        self.db.delete(key)
        self.model.pop(key, None)

    def batch(self, records):
        """As Caffe writes: many records a batch."""
        with self.db.write_batch() as batch:
            for key, value in records:
                batch.put(key, value)
                self.model[key] = value

    def reopen(self):
        """LevelDB turns its log into a table when it opens a database."""
        self.close()
        self.db = plyvel.DB(str(self.path), **self.options)

    def close(self):
        self.db.close()


def in_tables(path, scale, **options):
    writer = Writer(path, **options)
    writer.batch((key(index), text(index, 300) if index % 3 else noise(index, 90)) for index in range(60 * scale))
    writer.reopen()
    return writer


def snappy(path, scale):
    return in_tables(path, scale, compression="snappy", block_size=1024)


def uncompressed(path, scale):
    return in_tables(path, scale, compression=None, block_size=1024)


def noise_and_text(path, scale):
    """LevelDB keeps a block that snappy shortens by less than an eighth as it is: both kinds in one table."""
    writer = Writer(path, compression="snappy", block_size=4096)
    make = lambda index: noise(index, 400) if index // 12 % 2 else text(index, 400)
    writer.batch((key(index), make(index)) for index in range(48 * scale))
    writer.reopen()
    return writer


def bloom(path, scale):
    return in_tables(path, scale, bloom_filter_bits=10)


def overwritten(path, scale):
    writer = Writer(path)
    for round in range(4):
        for index in range(round * 5, 50 * scale, round + 1):
            writer.put(key(index), text(index + round, 40))
        if round < 3:
            writer.reopen()
    return writer


def deleted(path, scale):
    writer = Writer(path)
    for index in range(120 * scale):
        writer.put(key(index), text(index, 30))
    writer.reopen()
    for index in range(0, 120 * scale, 2):
        writer.delete(key(index))
    writer.reopen()
    for index in range(0, 120 * scale, 3):
        writer.delete(key(index))
    for index in range(0, 120 * scale, 12):
        writer.put(key(index), text(index, 30))
    return writer


def all_deleted(path, scale):
    writer = Writer(path)
    for index in range(30 * scale):
        writer.put(key(index), text(index, 30))
    writer.reopen()
    for index in range(30 * scale):
        writer.delete(key(index))
    return writer


def reopened(path, scale):
    """Tables, and newer records in a log."""
    writer = Writer(path)
    for part in range(3):
        writer.batch((key(index), text(index, 60)) for index in range(part * 40 * scale, (part + 1) * 40 * scale))
        writer.reopen()
    writer.batch((key(index), text(index + 1, 60)) for index in range(100 * scale, 140 * scale))
    return writer


def levels(path, scale):
    """A memtable that overlaps nothing goes to level 2, the next to level 1, the next to level 0."""
    writer = Writer(path, write_buffer_size=SMALL_BUFFER)
    rng = random.Random(1)
    for index in range(420 * scale):
        index = rng.randrange(200 * scale)
        if index % 7:
            writer.put(key(index), text(index + len(writer.model), 700))
        else:
            writer.delete(key(index))
    writer.reopen()
    for index in range(0, 200 * scale, 9):
        writer.put(key(index), b"last")
    return writer


def compacted(path, scale):
    writer = levels(path, scale)
    writer.db.compact_range()
    return writer


def big_values(path, scale):
    """Values that span the blocks of a log, and keys that lie on their borders."""
    writer = Writer(path)
    for index in range(2 * scale):
        writer.put(key(index), noise(index, 33_000 - index * 30_000 // (2 * scale)))
    writer.batch((key(1000 + index), text(index, 500 + index)) for index in range(30))
    return writer


def empty_strings(path, scale):
    writer = Writer(path)
    writer.put(b"", b"the empty key")
    writer.put(b"no value", b"")
    writer.put(b"\x00", b"\x00")
    writer.put(b"\xff" * 300, b"")
    writer.reopen()
    writer.put(b"", b"")
    return writer


def nothing(path, scale):
    return Writer(path)


# What a writer does until it kills itself.
def killed_writes(path, scale):
    writer = Writer(path, write_buffer_size=SMALL_BUFFER)
    rng = random.Random(2)
    for step in range(1 << 40):
        index = rng.randrange(5_000 * scale)
        writer.delete(key(index)) if step % 10 == 9 else writer.put(key(index), b"%d" % (step // 100))
        # Two logs: the older one is just being written to a table.
        if step > 3_000 * scale and sum(name.endswith(".log") for name in os.listdir(path)) > 1:
            return step + 1


def killed(path, scale):
    """Killed with two logs: what the writer was told it wrote is there, and old tables still may be."""
    while True:
        child = subprocess.run([sys.executable, __file__, str(path), "--scale", str(scale), "--kill"], stdout=subprocess.PIPE)
        assert child.returncode == -signal.SIGKILL, child.returncode
        steps = int(child.stdout)
        if sum(name.endswith(".log") for name in os.listdir(path)) > 1:
            break
        shutil.rmtree(path)
    rng = random.Random(2)
    model = {}
    for step in range(steps):
        index = rng.randrange(5_000 * scale)
        if step % 10 == 9:
            model.pop(key(index), None)
        else:
            model[key(index)] = b"%d" % (step // 100)
    return model


def comparator(path, scale):
    """Is not read: its keys are in an order of its own."""
    reversed_order = lambda one, other: (one < other) - (one > other)
    writer = Writer(path, comparator=reversed_order, comparator_name=b"percolator.reversed")
    writer.put(b"a", b"1")
    writer.put(b"b", b"2")
    return writer


CASES = [
    snappy, uncompressed, noise_and_text, bloom, overwritten, deleted, all_deleted, reopened, levels, compacted,
    big_values, empty_strings, nothing, killed,
]


def listing(records):
    digest = hashlib.sha256()
    count = 0
    for key, value in records:
        for part in key, value:
            digest.update(struct.pack("<I", len(part)))
            digest.update(part)
        count += 1
    return {"records": count, "sha256": digest.hexdigest()}


def leveldb_reads(path):
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copytree(path, pathlib.Path(folder, "copy"))
        with plyvel.DB(str(copy), paranoid_checks=True) as db:
            return listing(db)


def make(folder, scale):
    expected = {}
    for case in CASES:
        path = folder / case.__name__
        made = case(path, scale)
        model = made if isinstance(made, dict) else made.model
        if isinstance(made, Writer):
            made.close()
        for name in "LOCK", "LOG", "LOG.old":
            (path / name).unlink(missing_ok=True)
        expected[case.__name__] = listing(sorted(model.items()))
        assert leveldb_reads(path) == expected[case.__name__], case.__name__
    comparator(folder / "comparator", scale).close()
    for name in "LOCK", "LOG":
        (folder / "comparator" / name).unlink()
    (folder / "expected.json").write_text(json.dumps(expected, indent=2) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--scale", type=int, default=1)
    parser.add_argument("--kill", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.kill:
        print(killed_writes(args.folder, args.scale), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    make(args.folder, args.scale)


if __name__ == "__main__":
    main()
