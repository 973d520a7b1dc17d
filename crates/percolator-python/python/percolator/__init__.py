"""Keeps every accelerator fed: training records in, device-ready batches out.

>>> import percolator
>>> for images, labels in percolator.DataLoader(lmdb=percolator.sample_data(), batch_size=64):
...     print(images.shape)
torch.Size([64, 3, 16, 16])

Pixels are in the order BGR, as OpenCV and Caffe have them: `images[:, [2, 1, 0]]` is RGB.

`DataLoader` is the loop that most programs have. `Feed` is everything else: steps of several devices, lanes
for threads of their own, seeking, receipts. `Server` runs feeds for the loaders of other processes. The
package needs no other; NumPy, PyTorch, JAX and TensorFlow take the fields of a batch without a copy, if they
are installed.
"""

from __future__ import annotations

from percolator._core import (
    Batch,
    Batches,
    Feed,
    Field,
    Lane,
    Plan,
    Process,
    Receipt,
    Record,
    Server,
    Snapshot,
    Stats,
    Steps,
    TfRecordWriter,
    Transform,
    Verdict,
    __version__,
    environment,
    example,
    verify,
)
from percolator._errors import (
    AllHeldError,
    ClosedError,
    ConfigError,
    DeviceError,
    FeedError,
    FieldError,
    ForkError,
    ReceiptError,
    RecordError,
    ServerError,
    SnapshotError,
    SourceError,
    UnknownFieldError,
)
from percolator._loader import DataLoader
from percolator._sample import sample_data

__all__ = [
    "AllHeldError",
    "Batch",
    "Batches",
    "ClosedError",
    "ConfigError",
    "DataLoader",
    "DeviceError",
    "Feed",
    "FeedError",
    "Field",
    "FieldError",
    "ForkError",
    "Lane",
    "Plan",
    "Process",
    "Receipt",
    "ReceiptError",
    "Record",
    "RecordError",
    "Server",
    "ServerError",
    "Snapshot",
    "SnapshotError",
    "SourceError",
    "Stats",
    "Steps",
    "TfRecordWriter",
    "Transform",
    "UnknownFieldError",
    "Verdict",
    "__version__",
    "environment",
    "example",
    "sample_data",
    "verify",
]
