"""What a decoder in Python costs: records a second with it, and with the feed's own decoder of Examples.

    python3 crates/percolator-python/benches/decoder.py

Each record is an Example with one feature of bytes. The function finds them at the end of the record and
passes them on, which is as little as a decoder can do. Medians of five turns of one second each.
"""

import statistics
import tempfile
import time
from pathlib import Path

import percolator

SIZES = [64, 3 * 1024, 196_608]
TURNS, SECONDS, BATCH = 5, 1.0, 64


def write(path, size):
    with percolator.TfRecordWriter(path) as out:
        for _ in range(max(BATCH, min(20_000, (256 << 20) // size))):
            out.write_example({"x": bytes(size)})


def rate(feed):
    """Records a second that a loop takes which drops each batch."""
    batches = iter(feed)
    for _ in range(8):
        next(batches)
    records, begin = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - begin) < SECONDS:
        records += next(batches).size
    feed.close()
    return records / elapsed


def main():
    print("| bytes a record | own decoder, records/s | Python's, records/s | share, of the same turn |")
    print("|---|---|---|---|")
    for size in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder) / "records.tfrecord")
            write(path, size)
            asked = {"tfrecord": path, "batch_size": BATCH}
            own, pythons = [], []
            for _ in range(TURNS):
                own.append(rate(percolator.Feed(**asked, fields=f"x:bytes[{size}]")))
                fields = {"x": ("u8", (size,))}
                decode = lambda record: {"x": record.value[-size:]}  # noqa: E731
                pythons.append(rate(percolator.Feed(**asked, decode=decode, decode_fields=fields)))
        share = statistics.median(python / mine for python, mine in zip(pythons, own))
        print(f"| {size:,} | {statistics.median(own):,.0f} | {statistics.median(pythons):,.0f} | {share:.2f} |")


if __name__ == "__main__":
    main()
