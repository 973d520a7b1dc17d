"""C++ LevelDB through plyvel: makes the databases of the bench, and times its iterator over them."""

import os
import random
import shutil
import sys
import tempfile
import time

import plyvel


def make(path, records, size, kind):
    database = plyvel.DB(path, create_if_missing=True, block_size=65536, max_open_files=100)
    for start in range(0, records, 100):
        with database.write_batch() as batch:
            for index in range(start, min(records, start + 100)):
                noise = random.Random(index)
                value = noise.randbytes(size if kind == "noise" else size // 2).ljust(size, b"\x07")
                batch.put(b"%08d_image.jpg" % index, value)
    database.compact_range()
    database.close()


def rate(iterator):
    start = time.perf_counter()
    records = sum(1 for _ in iterator)
    return records / (time.perf_counter() - start)


def measure(path):
    # LevelDB writes to what it opens: it gets files of its own.
    with tempfile.TemporaryDirectory(dir=os.path.dirname(path)) as folder:
        copy = os.path.join(folder, "copy")
        shutil.copytree(path, copy, copy_function=os.link)
        for name in os.listdir(copy):
            if not name.endswith((".ldb", ".sst")):
                os.remove(os.path.join(copy, name))
                shutil.copy(os.path.join(path, name), copy)
        database = plyvel.DB(copy, block_size=65536, max_open_files=1000)
        rate(database)
        print(rate(database), rate(database.iterator(verify_checksums=True)))
        database.close()


if sys.argv[1] == "make":
    make(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
else:
    measure(sys.argv[2])
