"""A program that a type checker reads, and nobody runs: `mypy --strict` finds what it says in the stubs."""

from __future__ import annotations

from typing import Any

import numpy

import percolator


def decode(record: percolator.Record) -> dict[str, Any]:
    value: bytes = record.value
    return {"x": numpy.frombuffer(value, numpy.uint8), "y": record.index}


def train() -> int:
    loader = percolator.DataLoader(lmdb=["a", "b"], batch_size=64, shuffle=True, framework="numpy")
    for epoch in range(3):
        loader.set_epoch(epoch)
        for images, labels in loader:
            print(images.shape, labels.shape)
    state: dict[str, Any] = loader.state_dict()
    loader.load_state_dict(state)

    feed = percolator.Feed(
        tfrecord="*.tfrecord",
        decode=decode,
        decode_fields={"x": ("u8", (12,)), "y": "i64"},
        epochs=3,
        shuffle=1000,
        devices=["host:0", "host:1"],
        resume=percolator.Snapshot.load("snapshot"),
    )
    records = 0
    for step in feed.steps():
        for batch in step:
            records += batch.size
            field: percolator.Field = batch["x"]
            array = numpy.asarray(field.numpy())
            print(array.sum(), field.shape[0], batch.records[0][1], batch.step)
    for lane in feed.take_lanes():
        print(next(lane).mask, lane.device)
    plan = feed.plan
    if plan is not None:
        print(plan.steps(0), plan.share(0, 1))
    receipt = feed.receipt()
    if receipt is not None and not percolator.verify([receipt]):
        raise RuntimeError
    try:
        feed.snapshot().save("snapshot")
    except percolator.FeedError as error:
        file: str | None = error.file
        key: bytes | None = error.key
        print(file, key, error.record, error.reason)
    feed.close()
    return records


def serve() -> str:
    with percolator.Server("data", "127.0.0.1:0", key="key", token=["a", "b"], window=2) as server:
        address: str = server.address
        loader = percolator.DataLoader(
            server=address,
            lmdb="train_lmdb",
            batch_size=64,
            share="in_step",
            clients=2,
            token="a",
            identity=("certificate.pem", "key.pem"),
        )
        try:
            for images, labels in loader:
                print(images.shape, labels.shape, loader.missed, server.status()["feeds"])
        except percolator.ServerError as error:
            print(error.reason)
        server.close(drain=1.5)
    return address
