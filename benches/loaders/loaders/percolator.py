"""Percolator, over an LMDB."""

import torch

from . import CROP, MEAN


def batches(data, job, batch, workers):
    import percolator

    feed = percolator.Feed(
        lmdb=str(data / "lmdb"), batch_size=batch, crop=CROP, mirror=True, mean_values=MEAN,
        epochs=0, shuffle="global", last_batch="drop", labels_i64=True, threads=workers)
    for found in feed:
        yield torch.from_dlpack(found["data"]), torch.from_dlpack(found["label_i64"])
