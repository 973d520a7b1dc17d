"""A small convolutional net learns 1,437 digits, and goes on from a checkpoint exactly where it was.

    python crates/percolator-python/examples/digits_torch.py

It needs the packages percolator and torch, and the repository's digits. It makes TFRecord files of them,
trains, tests on the 360 others, then stops a second training in the middle of an epoch, saves model,
optimiser and loader, loads all of it into new objects, and goes on: every loss is that of the training that
was not stopped, bit for bit.
"""

from __future__ import annotations

import argparse
import struct
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import torch
from torch import nn

import percolator

DIGITS = Path(__file__).resolve().parents[3] / "examples" / "digits"
SIDE = 8


class Trainer:
    """A model, its optimiser and its data: what a checkpoint consists of."""

    def __init__(self, train: Path, options: argparse.Namespace) -> None:
        torch.manual_seed(options.seed)
        self.model = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
            nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(64 * 4 * 4, 10),
        )  # fmt: skip
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=2e-3)
        self.loader = digits(train, batch_size=options.batch_size, shuffle=True, seed=options.seed)

    def train(self) -> Iterator[float]:
        """Trains without end, and yields the loss of each step."""
        while True:
            for images, labels in self.loader:
                loss = nn.functional.cross_entropy(self.model(images), labels)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                yield loss.item()

    def save(self, path: Path) -> None:
        parts = {"model": self.model, "optimizer": self.optimizer, "loader": self.loader}
        torch.save({name: part.state_dict() for name, part in parts.items()}, path)

    def load(self, path: Path) -> None:
        saved = torch.load(path, weights_only=True)
        self.model.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.loader.load_state_dict(saved["loader"])


def digits(path: Path, **options: object) -> percolator.DataLoader:
    """The digits of a file, as tensors between 0 and 1."""
    image = {"feature": "image", "label": "label", "shape": (1, SIDE, SIDE)}
    return percolator.DataLoader(tfrecord=path, image=image, scale=1 / 16, framework="torch", **options)


def accuracy(model: nn.Module, test: Path) -> tuple[float, int]:
    """How many of the test digits the model knows, each of which comes exactly once."""
    right = seen = 0
    model.eval()
    with torch.no_grad():
        for images, labels in digits(test, batch_size=64):
            right += int((model(images).argmax(1) == labels).sum())
            seen += len(labels)
    return right / seen, seen


def write_tfrecord(folder: Path, name: str) -> Path:
    """Writes the digits of two IDX files as Examples."""

    def read(path: Path) -> bytes:
        data = path.read_bytes()
        (axes,) = struct.unpack("3xB", data[:4])
        return data[4 + 4 * axes :]

    pixels = read(DIGITS / f"{name}-images-idx3-ubyte")
    labels = read(DIGITS / f"{name}-labels-idx1-ubyte")
    path = folder / f"{name}.tfrecord"
    with percolator.TfRecordWriter(path) as out:
        for number, label in enumerate(labels):
            image = pixels[number * SIDE * SIDE : (number + 1) * SIDE * SIDE]
            out.write_example({"image": image, "label": label})
    return path


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--epochs", type=int, default=12)
    arguments.add_argument("--batch-size", type=int, default=32)
    arguments.add_argument("--seed", type=int, default=7)
    options = arguments.parse_args()
    # One seed, and the same sums in the same order, give the same bits.
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)

    with tempfile.TemporaryDirectory() as folder:
        train, test = (write_tfrecord(Path(folder), name) for name in ("train", "t10k"))
        whole, losses = Trainer(train, options), []
        steps, steps_per_epoch = whole.train(), len(whole.loader)
        for epoch in range(options.epochs):
            start = time.perf_counter()
            losses += (of_epoch := list(islice(steps, steps_per_epoch)))
            rate = whole.loader.feed.records / (time.perf_counter() - start)
            print(f"epoch {epoch}: loss {sum(of_epoch) / steps_per_epoch:.4f}, {rate:,.0f} records/s")
        share, seen = accuracy(whole.model, test)
        print(f"{share:.1%} of {seen} test digits are right")

        # A second training stops in the middle of an epoch ...
        stopped, middle = Trainer(train, options), len(losses) // 2 + steps_per_epoch // 3
        begun = list(islice(stopped.train(), middle))
        checkpoint = Path(folder) / "checkpoint.pt"
        stopped.save(checkpoint)
        # ... and a third one, which knows only what was saved, goes on.
        resumed = Trainer(train, options)
        resumed.load(checkpoint)
        begun += islice(resumed.train(), len(losses) - middle)

    if begun != losses:
        print(f"the losses differ after a resume at step {middle}", file=sys.stderr)
        return 1
    rest = len(losses) - middle
    print(f"stopped after step {middle} of {len(losses)} and resumed: all {rest} losses are equal")
    if share <= 0.95 or seen != 360:
        print("more than 95 % of 360 digits were expected", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
