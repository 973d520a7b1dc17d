"""Percolator, over an LMDB."""

import torch

from . import CROP, MEAN, SIDE


def batches(data, job, batch, workers):
    import percolator

    if job == "imagenet":
        transform = {"recipe": f"imagenet-train:{SIDE[job]}"}
    else:
        transform = {"crop": CROP, "mirror": True, "mean_values": MEAN}
    feed = percolator.Feed(
        lmdb=str(data / "lmdb"), batch_size=batch, epochs=0, shuffle="global", last_batch="drop",
        labels_i64=True, threads=workers, **transform)
    for found in feed:
        yield torch.from_dlpack(found["data"]), torch.from_dlpack(found["label_i64"])
