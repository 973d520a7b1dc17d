"""Feeds one PyTorch step from files of other libraries: by Percolator and by each format's own loader, in turns.

    python3 benches/loaders/formats.py [--formats tar,parquet,...] [--rounds 3] [--seconds 3] [--out TABLE.md]

Installs each loader in a virtual environment beside those of compare.py, writes the same 20,000 records of 3 KB
by each library's own writer, measures each loader in a process of its own, and prints a table. A loader that
cannot be installed, or that fails, is named with the reason: it is not left out in silence.
"""

import argparse
import json
import os
import signal
import statistics
import sys
import time
from pathlib import Path

from compare import COMMON, FIGURES, ROOT, install, run

RECORDS, FILES, SHAPE = 20_000, 4, (3, 32, 32)
BYTES = 3 * 32 * 32
HERE = Path(__file__).resolve()

# What each format's own loader needs, its name, and how Percolator is told what to read.
FORMATS = {
    "tar": (["webdataset==1.0.2"], "webdataset", ("*.tar", "bin", "cls")),
    "parquet": (["datasets==5.2.0"], "Hugging Face datasets", ("*.parquet", "image", "label")),
    "hugging-face": (["datasets==5.2.0"], "Hugging Face datasets", ("set", "image", "label")),
    "mds": (["mosaicml-streaming==0.13.0"], "MosaicML Streaming", ("set", "image", "label")),
    "litdata": (["litdata==0.2.76"], "LitData", ("set", "image", "label")),
    "array-record": (["array_record==0.8.6", "grain==0.2.18"], "Grain", ("*.array_record", "record", None)),
    "hdf5": (["h5py==3.16.0"], "h5py, PyTorch's DataLoader", ("a.h5", "image", "label")),
}


def records(file=None):
    """The pixels and the label of each record, of all or of one of the files."""
    import numpy

    drawn = numpy.random.default_rng(0)
    for number in range(RECORDS):
        pixels = drawn.bytes(BYTES)
        if file is None or number * FILES // RECORDS == file:
            yield pixels, number % 10


def parts(pixels, label):
    return {"image": pixels, "label": label}


def litdata_item(record):
    return parts(*record)


def table(file=None):
    import pyarrow

    images, labels = zip(*records(file))
    return pyarrow.table({"image": pyarrow.array(images, pyarrow.binary()), "label": labels})


def write(kind, folder):
    """Writes the records as the format's own library does."""
    names = [folder / f"{file}.{kind}" for file in range(FILES)]
    if kind == "tar":
        from webdataset import TarWriter

        for file, name in enumerate(names):
            with TarWriter(str(name)) as writer:
                for number, (pixels, label) in enumerate(records(file)):
                    writer.write({"__key__": f"{file}{number:06}", "bin": pixels, "cls": label})
    elif kind == "parquet":
        from pyarrow import parquet

        for file, name in enumerate(names):
            parquet.write_table(table(file), name, row_group_size=1000)
    elif kind == "hugging-face":
        from datasets import Dataset

        Dataset(table()).save_to_disk(str(folder / "set"), num_shards=FILES)
    elif kind == "mds":
        from streaming import MDSWriter

        columns = {"image": "bytes", "label": "int"}
        with MDSWriter(out=str(folder / "set"), columns=columns, size_limit=BYTES * RECORDS // FILES) as writer:
            for pixels, label in records():
                writer.write(parts(pixels, label))
    elif kind == "litdata":
        from litdata import optimize

        optimize(fn=litdata_item, inputs=list(records()), output_dir=str(folder / "set"), num_workers=1,
                 chunk_bytes=BYTES * RECORDS // FILES)
    elif kind == "array-record":
        from array_record.python.array_record_module import ArrayRecordWriter

        for file in range(FILES):
            writer = ArrayRecordWriter(str(folder / f"{file}.array_record"), "group_size:1")
            for pixels, label in records(file):
                writer.write(pixels + label.to_bytes(8, "little"))
            writer.close()
    elif kind == "hdf5":
        import h5py
        import numpy

        images, labels = zip(*records())
        with h5py.File(folder / "a.h5", "w") as file:
            file["image"] = numpy.frombuffer(b"".join(images), numpy.uint8).reshape(-1, *SHAPE)
            file["label"] = numpy.array(labels, numpy.int64)


def tensor(pixels):
    import torch

    return torch.frombuffer(bytearray(pixels), dtype=torch.uint8).view(SHAPE)


def decoded(sample):
    return tensor(sample["image"]), sample["label"]


def endless(loader):
    while True:
        yield from loader


class Hdf5:
    """A map-style data set: each worker opens the file for itself."""

    def __init__(self, path):
        self.path, self.file = path, None

    def __len__(self):
        return RECORDS

    def __getitem__(self, index):
        import h5py
        import torch

        if self.file is None:
            self.file = h5py.File(self.path, "r")
        return torch.from_numpy(self.file["image"][index]), int(self.file["label"][index])


class Decoded:
    """A map-style data set of samples with an image and a label."""

    def __init__(self, samples):
        self.samples = samples

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        return decoded(self.samples[index])


def batches_of_its_own(kind, folder, batch, workers):
    """Shuffled batches of the format's own loader."""
    from torch.utils.data import DataLoader

    loading = {"batch_size": batch, "num_workers": workers, "drop_last": True, "persistent_workers": True}
    if kind == "tar":
        import webdataset

        names = [str(name) for name in sorted(folder.glob("*.tar"))]
        shuffled = webdataset.WebDataset(names, shardshuffle=FILES).shuffle(1000)
        samples = shuffled.map(lambda sample: (tensor(sample["bin"]), int(sample["cls"])))
        loader = webdataset.WebLoader(samples.batched(batch, partial=False), batch_size=None, num_workers=workers)
        return endless(loader)
    if kind in ("parquet", "hugging-face"):
        import datasets

        if kind == "parquet":
            names = [str(name) for name in sorted(folder.glob("*.parquet"))]
            samples = datasets.load_dataset("parquet", data_files=names, split="train", cache_dir=folder / "cache")
        else:
            samples = datasets.load_from_disk(str(folder / "set"))
        return endless(DataLoader(Decoded(samples), shuffle=True, **loading))
    if kind == "mds":
        from streaming import StreamingDataset

        samples = StreamingDataset(local=str(folder / "set"), shuffle=True, batch_size=batch)
        return endless(DataLoader(samples, collate_fn=collated, **loading))
    if kind == "litdata":
        from litdata import StreamingDataLoader, StreamingDataset

        samples = StreamingDataset(str(folder / "set"), shuffle=True, drop_last=True)
        return endless(StreamingDataLoader(
            samples, batch_size=batch, num_workers=workers, collate_fn=collated, drop_last=True))
    if kind == "array-record":
        import grain
        from array_record.python.array_record_data_source import ArrayRecordDataSource

        names = [str(name) for name in sorted(folder.glob("*.array_record"))]
        source = ArrayRecordDataSource(names)
        sampler = grain.samplers.IndexSampler(num_records=len(source), shuffle=True, seed=0, num_epochs=None)
        loader = grain.DataLoader(
            data_source=source, sampler=sampler, worker_count=workers,
            operations=[Split(), grain.transforms.Batch(batch, drop_remainder=True)])
        return map(as_tensors, loader)
    return endless(DataLoader(Hdf5(folder / "a.h5"), shuffle=True, **loading))


def collated(samples):
    from torch.utils.data import default_collate

    return default_collate([decoded(sample) for sample in samples])


def as_tensors(found):
    import torch

    return torch.from_numpy(found[0]), torch.from_numpy(found[1])


try:
    from grain.transforms import Map
except ImportError:
    Map = object


class Split(Map):
    """A record of Grain's: pixels and a label."""

    def map(self, record):
        import numpy

        pixels = numpy.frombuffer(record, numpy.uint8, BYTES).reshape(SHAPE)
        return pixels, numpy.int64(int.from_bytes(record[BYTES:], "little"))


def batches_of_percolator(kind, folder, batch, workers):
    import percolator
    import torch

    path, image, label = FORMATS[kind][2]
    fields = f"{image}:bytes[{BYTES + 8}]" if label is None else f"{image}:bytes[3x32x32],{label}:i64"
    loader = percolator.Feed(
        files=str(folder / path), fields=fields, batch_size=batch, epochs=0, shuffle="global", last_batch="drop",
        threads=workers)
    for found in loader:
        images = torch.from_dlpack(found[image])
        if label is None:
            yield images[:, :BYTES].view(-1, *SHAPE), images[:, BYTES:].contiguous().view(torch.int64)[:, 0]
        else:
            yield images, torch.from_dlpack(found[label])


def measure_one(kind, loader, folder, options):
    """Prints one line of JSON, as measure.py does."""
    import torch
    from measure import Memory, Step, cpu_seconds, family

    torch.set_num_threads(1)
    step, memory = Step(32), Memory()
    make = batches_of_percolator if loader == "percolator" else batches_of_its_own
    begin = time.perf_counter()
    batches = iter(make(kind, folder, options.batch, options.workers))
    images, labels = next(batches)
    first = time.perf_counter() - begin
    assert images.shape == (options.batch, *SHAPE) and images.dtype == torch.uint8, (images.shape, images.dtype)
    assert labels.shape == (options.batch,) and 0 <= labels.min() and labels.max() < 10, labels

    for _ in range(RECORDS // options.batch):
        images, labels = next(batches)
        step(images.float(), labels)
    done, cpu, begin = 0, cpu_seconds(), time.perf_counter()
    while (elapsed := time.perf_counter() - begin) < options.seconds:
        images, labels = next(batches)
        step(images.float(), labels)
        done += len(labels)
    cpu = cpu_seconds() - cpu
    print(json.dumps({
        "rate": done / elapsed, "cpu_us": cpu / done * 1e6, "memory_mb": memory.above_before() / 1e6,
        "first_batch_ms": first * 1e3,
    }), flush=True)
    # Workers of some loaders outlive the process, and keep its output open.
    for process in family()[1:]:
        os.kill(process, signal.SIGKILL)
    os._exit(0)


def lines_of(kind, results, failure):
    """The rows of one format."""
    name = FORMATS[kind][1]
    if failure:
        return [f"| {kind} | {name} | {failure.replace('|', '/')} |"]
    lines = []
    for loader, rounds in results.items():
        cells = [form.format(statistics.median(found[figure] for found in rounds)) for figure, _, form in FIGURES]
        ratio = ""
        if loader != "percolator":
            pairs = zip(results["percolator"], rounds, strict=True)
            ratio = f"{statistics.median(ours['rate'] / theirs['rate'] for ours, theirs in pairs):.1f}"
        shown = "Percolator" if loader == "percolator" else name
        lines.append(f"| {kind} | {shown} | " + " | ".join(cells) + f" | {ratio} |")
    return lines


def options():
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "percolator-loaders"
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--formats", default=",".join(FORMATS), help="which formats")
    parser.add_argument("--rounds", type=int, default=3, help="in each, both loaders are measured once")
    parser.add_argument("--seconds", type=float, default=3.0, help="how long each measurement lasts")
    parser.add_argument("--batch", type=int, default=64, help="records in a batch")
    parser.add_argument("--workers", type=int, default=2, help="threads, or worker processes")
    parser.add_argument("--cache", type=Path, default=cache, help="where environments and data are kept")
    parser.add_argument("--out", type=Path, help="the table is written there as well")
    parser.add_argument("--write", metavar="FORMAT", help=argparse.SUPPRESS)
    parser.add_argument("--measure", nargs=2, metavar=("FORMAT", "LOADER"), help=argparse.SUPPRESS)
    return parser.parse_args()


def compare(kind, ours, chosen):
    """The figures of both loaders over one format, or why there are none."""
    environments, folder = chosen.cache / "environments", chosen.cache / "data" / "formats" / kind
    needs = FORMATS[kind][0]
    try:
        theirs = install(environments / f"format-{kind}", needs, beside=environments / "torch")
        if not (folder / "written").exists():
            folder.mkdir(parents=True, exist_ok=True)
            run([theirs, HERE, "--write", kind, "--cache", chosen.cache])
            (folder / "written").touch()
        results = {"percolator": [], "own": []}
        for number in range(chosen.rounds):
            for loader, python in (("percolator", ours), ("own", theirs)):
                print(f"{kind}: round {number + 1} of {chosen.rounds}: {loader}", file=sys.stderr)
                command = [python, HERE, "--measure", kind, loader, "--cache", chosen.cache]
                command += ["--batch", chosen.batch, "--workers", chosen.workers, "--seconds", chosen.seconds]
                results[loader].append(json.loads(run(command).splitlines()[-1]))
        return results, None
    except RuntimeError as error:
        return {}, str(error)


def main():
    chosen = options()
    kinds = chosen.formats.split(",")
    if unknown := {*kinds} - {*FORMATS}:
        sys.exit(f"there is no {', '.join(sorted(unknown))}: formats are {', '.join(FORMATS)}")
    data = chosen.cache / "data" / "formats"
    if chosen.write:
        return write(chosen.write, data / chosen.write)
    if chosen.measure:
        kind, loader = chosen.measure
        return measure_one(kind, loader, data / kind, chosen)
    environments = chosen.cache / "environments"
    install(environments / "torch", COMMON)
    package = str(ROOT / "crates" / "percolator-python")
    ours = install(environments / "percolator", [package], beside=environments / "torch")
    lines = ["| format | loader | " + " | ".join(name for _, name, _ in FIGURES) + " | Percolator's rate to it |"]
    lines.append("|---" * (len(FIGURES) + 3) + "|")
    failed = False
    for kind in kinds:
        results, failure = compare(kind, ours, chosen)
        failed = failed or failure is not None
        lines += lines_of(kind, results, failure)
        if chosen.out:
            chosen.out.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
