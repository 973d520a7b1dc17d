"""The exceptions of a feed."""

from __future__ import annotations


class FeedError(RuntimeError):
    """An error that ends a feed, or a use of it that is not possible.

    ``reason`` says what is wrong, without the place. ``file``, ``key`` and ``record`` say where in the data
    it was found: the file or folder, the key of the record as bytes, its position in the data set, or its
    number in a damaged TFRecord file. Each is ``None`` where it is not known.
    """

    file: str | None = None
    key: bytes | None = None
    record: int | None = None
    reason: str | None = None


class ConfigError(FeedError, ValueError):
    """Options that cannot be met, values that are none, or a net whose layer cannot be fed."""


class SourceError(FeedError):
    """The data cannot be opened or read."""


class RecordError(FeedError):
    """A record is not valid. If a function of Python raised, that exception is the ``__cause__``."""


class FieldError(FeedError, TypeError):
    """A field of a batch was asked for as something that it is not."""


class UnknownFieldError(FieldError, KeyError):
    """A batch has no such field."""

    # A KeyError shows its key, in quotation marks, and this has a message.
    __str__ = Exception.__str__


class ServerError(FeedError):
    """A server cannot be reached, does not want this client, has no room for it, or failed."""


class DeviceError(FeedError):
    """A device failed, or does not exist."""


class SnapshotError(FeedError, ValueError):
    """A run cannot resume from a snapshot, or none can be taken."""


class ReceiptError(FeedError, ValueError):
    """Receipts cannot be read, or do not belong together."""


class AllHeldError(FeedError):
    """The consumer holds all batches of the ring and waits for one more."""


class ClosedError(FeedError):
    """The feed was closed or cancelled, or the batch was released."""


class ForkError(FeedError):
    """A forked process used what its parent built."""
