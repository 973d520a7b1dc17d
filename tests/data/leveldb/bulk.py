#!/usr/bin/env python3
"""Bulk loads as C++ LevelDB leaves them: closed, reopened, compacted, or killed while it wrote.

    bulk.py FOLDER [--count N] [--seed S]
    bulk.py FOLDER --endless

Needs plyvel. Writes FOLDER/0, FOLDER/1 ... and FOLDER/expected.json, as make.py does: what LevelDB itself reads
from a copy of each. --endless fills FOLDER itself, key by key and compacting now and then, until it is killed.
"""

import argparse
import json
import os
import pathlib
import random
import signal
import sys
import time

import plyvel

from make import key, leveldb_reads


def load(path, seed):
    """Fills a database in one of many ways; does not always come back."""
    rng = random.Random(seed)
    kills_itself = rng.random() < 0.4
    options = dict(
        write_buffer_size=rng.choice([64, 64, 100, 256, 1024]) << 10,
        block_size=rng.choice([1024, 4096, 65536]),
        compression=rng.choice([None, "snappy"]),
        create_if_missing=True,
    )
    in_order, value_bytes = rng.random() < 0.6, rng.choice([20, 300, 3000, 20_000])
    total = rng.randrange(1, 1_500_000) // (value_bytes + 40)
    per_batch = rng.choice([1, 1, 10, 100, 1000])
    db, batch, in_batch = plyvel.DB(str(path), **options), None, 0
    for step in range(total):
        if batch is None:
            batch, in_batch = db.write_batch(), 0
        index = step if in_order else rng.randrange(total)
        if rng.random() < 0.05:
            batch.delete(key(index))
        else:
            batch.put(key(index), rng.randbytes(value_bytes))
        in_batch += 1
        if in_batch == per_batch:
            batch.write()
            batch = None
        if rng.random() < 3 / total:
            match rng.choice(["reopen", "compact", "part"]):
                case "reopen":
                    batch = None
                    db.close()
                    db = plyvel.DB(str(path), **options)
                case "compact":
                    db.compact_range()
                case "part":
                    db.compact_range(start=key(index), stop=key(index + total // 10))
    if batch is not None and rng.random() < 0.9:
        batch.write()
    if kills_itself:
        os.kill(os.getpid(), signal.SIGKILL)
    if rng.random() < 0.3:
        db.compact_range()
    db.close()
    for _ in range(rng.choice([0, 0, 1, 2])):
        plyvel.DB(str(path), **options).close()


def endless(path):
    """Says what number it is at."""
    db = plyvel.DB(str(path), write_buffer_size=64 << 10, create_if_missing=True)
    for index in range(1 << 40):
        db.put(key(index), b"%d" % index + b"." * 1000)
        if index % 500 == 0:
            print(index, flush=True)
        if index % 3000 == 0:
            db.compact_range()


def fork(run):
    """Runs a function in a process of its own: LevelDB's thread, once started, does not come along with a fork."""
    child = os.fork()
    if child == 0:
        try:
            run()
        except BaseException as error:
            print(repr(error), file=sys.stderr)
            os._exit(1)
        os._exit(0)
    return child


def make(folder, count, seed):
    expected = {}
    for number in range(count):
        path, rng = folder / str(number), random.Random(f"{seed}/{number}")
        writer = fork(lambda: load(path, rng.random()))
        if rng.random() < 0.4:
            time.sleep(rng.random() * 0.3)
            os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)
        if (path / "CURRENT").exists():
            found = folder / "found.json"
            reader = fork(lambda: found.write_text(json.dumps(leveldb_reads(path))))
            assert os.waitpid(reader, 0)[1] == 0, path
            expected[path.name] = json.loads(found.read_text())
    (folder / "expected.json").write_text(json.dumps(expected, indent=2) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--endless", action="store_true")
    args = parser.parse_args()
    if args.endless:
        endless(args.folder)
    make(args.folder, args.count, args.seed)


if __name__ == "__main__":
    sys.exit(main())
