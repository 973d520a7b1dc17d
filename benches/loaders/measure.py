"""Measures one loader: a PyTorch step over its batches, for some seconds, after a pass over the data.

    python3 measure.py LOADER JOB DATA --batch 64 --workers 2 --seconds 4

Prints one line of JSON: records a second; processor time a record and the most memory, of this process and
of all that it has started; and the time from the loader's construction to its first batch.
"""

import argparse
import importlib
import json
import os
import threading
import time
from pathlib import Path

import torch
from loaders import DATA, SIDE

TICKS = os.sysconf("SC_CLK_TCK")
CLASSES = 10


def family():
    """This process, and all that it has started."""
    found = [os.getpid()]
    for process in found:
        for thread in Path(f"/proc/{process}/task").glob("*"):
            try:
                found += [int(child) for child in (thread / "children").read_text().split()]
            except OSError:
                pass  # it has ended
    return found


def cpu_seconds():
    """The processor time of the family so far, and of those of it that have ended."""
    ticks = 0
    for process in family():
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += sum(int(fields[at]) for at in (11, 12, 13, 14))  # utime, stime, and those of ended children
    return ticks / TICKS


def memory_bytes():
    """The family's memory that is no file's; what several share is counted once."""
    total = 0
    for process in family():
        try:
            lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith(("Pss_Anon:", "Pss_Shmem:")))
    return total * 1024


class Memory:
    """Samples the memory until it is asked for the peak."""

    def __init__(self):
        self.before, self.peak = memory_bytes(), 0
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.sample, daemon=True)
        self.thread.start()

    def sample(self):
        while not self.ended.wait(0.1):
            self.peak = max(self.peak, memory_bytes())

    def above_before(self):
        self.ended.set()
        self.thread.join()
        return self.peak - self.before


class Step:
    """A step of training that costs little beside loading: a linear model over every eighth pixel."""

    def __init__(self, side):
        torch.manual_seed(0)
        self.model = torch.nn.Linear(3 * len(range(0, side, 8)) ** 2, CLASSES)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-6)

    def __call__(self, images, labels):
        loss = torch.nn.functional.cross_entropy(self.model(images[:, :, ::8, ::8].flatten(1)), labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def check(images, labels, job, batch):
    """Each loader delivers the same kind of batch."""
    assert images.shape == (batch, 3, SIDE[job], SIDE[job]), images.shape
    assert images.dtype == torch.float32, images.dtype
    assert labels.shape == (batch,) and labels.dtype == torch.int64, (labels.shape, labels.dtype)
    least, most = (-2.2, 2.7) if job == "imagenet" else (-130, 160)
    assert least < images.min() < images.max() < most, (images.min(), images.max())
    assert 0 <= labels.min() and labels.max() < CLASSES, labels


def main():
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("loader")
    parser.add_argument("job")
    parser.add_argument("data", type=Path)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=4.0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    loader = importlib.import_module(f"loaders.{options.loader}")
    step, memory = Step(SIDE[options.job]), Memory()

    begin = time.perf_counter()
    folder = options.data / DATA[options.job]
    batches = iter(loader.batches(folder, options.job, options.batch, options.workers))
    images, labels = next(batches)
    first = time.perf_counter() - begin
    check(images, labels, options.job, options.batch)
    # A pass over the data: files come into the page cache, code is compiled, queues fill.
    for _ in range(4_000 // options.batch):
        step(*next(batches))

    records, cpu, begin = 0, cpu_seconds(), time.perf_counter()
    while (elapsed := time.perf_counter() - begin) < options.seconds:
        images, labels = next(batches)
        step(images, labels)
        records += len(labels)
    cpu = cpu_seconds() - cpu
    print(json.dumps({
        "rate": records / elapsed,
        "cpu_us": cpu / records * 1e6,
        "memory_mb": memory.above_before() / 1e6,
        "first_batch_ms": first * 1e3,
    }), flush=True)
    # Some loaders hang when their workers are stopped in the middle of an epoch.
    os._exit(0)


if __name__ == "__main__":
    main()
