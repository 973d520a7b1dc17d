"""The loop that people have: ``for images, labels in loader``."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, NoReturn, cast

from percolator._core import Batch, Batches, Feed, Field, Plan, Receipt, Snapshot, Stats
from percolator._errors import ConfigError, FeedError, SnapshotError

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from percolator._core import _LoaderOptions

STATE_VERSION = 1

# The labels of images, the same in several types.
LABELS = {"label", "label_f32", "label_i64"}

# What torch's DataLoader takes, and what does it here.
INSTEAD = {
    "batch_sampler": "use shuffle, seed and global_batch_size",
    "collate_fn": "a decoder writes each record into its place of the batch: use decode",
    "dataset": "name the data: lmdb, leveldb, tfrecord or image_list",
    "epochs": "one iter() is one epoch; percolator.Feed(epochs=...) runs through several",
    "generator": "use seed",
    "num_workers": "no worker processes are needed: a feed decodes on threads of its own; use threads",
    "once": "one iter() is one epoch",
    "persistent_workers": "there are no worker processes",
    "pin_memory": "feed the device itself: devices=\"cuda\"",
    "prefetch_factor": "use prefetch, the number of batches that exist at a time",
    "sampler": "use shuffle and seed; ranks come from the environment, or from rank and world_size",
    "timeout": "use give_up_after",
    "worker_init_fn": "there are no worker processes",
}


# What makes a framework's array of a field.
Converter = Callable[[Field], Any]


class DataLoader:
    """Iterates over a data set, epoch by epoch; each ``iter()`` is one epoch.

    A drop-in for ``torch.utils.data.DataLoader`` in a loop, with the state of torchdata's
    ``StatefulDataLoader``. It takes the keywords of `Feed` except ``epochs`` and ``once``, and these:

    framework: what the fields become: ``"torch"``, ``"numpy"``, ``"jax"`` or ``"tensorflow"``. By default
        torch if it is installed, and else numpy.
    names: which fields, in this order. By default images and their labels (``data`` and ``label_i64``; for
        JAX ``label``, which is i32), or, of other records, all fields.
    as_dict: whether a batch is a dict of the fields by name, and not a tuple.
    copy: whether tensors are copies. Without, their memory is the feed's, which has a few batches: do not
        collect more of them than ``prefetch``, less one.
    drop_last: whether the last records are left out if they do not fill a batch.
    environment: whether the launcher's variables (RANK, WORLD_SIZE, LOCAL_RANK, ...) say which process of a
        job this is. It then gets its share of each epoch.
    """

    # The epoch of the present iter(), or of the last, and that of the next.
    _epoch: int
    _next_epoch: int
    # The epoch that goes on where the feed is, instead of at its beginning.
    _rest: int | None
    # From iter() on until its loop has ended, not only its last batch.
    _is_under_way: bool

    def __init__(
        self,
        *dataset: NoReturn,
        framework: str | None = None,
        names: Sequence[str] | None = None,
        as_dict: bool = False,
        copy: bool = False,
        drop_last: bool = False,
        environment: bool = True,
        **options: Unpack[_LoaderOptions],
    ) -> None:
        if dataset:
            raise TypeError(f"DataLoader() takes keywords, and no dataset: {INSTEAD['dataset']}")
        self._start(
            Feed,
            cast(dict[str, Any], options),
            framework=framework,
            names=names,
            as_dict=as_dict,
            copy=copy,
            drop_last=drop_last,
            environment=environment,
        )

    @classmethod
    def from_prototxt(cls, path: str | PathLike[str], phase: str = "train", **options: Any) -> DataLoader:
        """A loader of a Caffe net's data layer. Further keywords replace what the layer says."""
        return cls._of(lambda **feed: Feed.from_prototxt(path, phase, **feed), options, is_spec=False)

    @classmethod
    def from_spec(cls, spec: str | dict[str, Any], **options: Any) -> DataLoader:
        """A loader of a feed that a spec describes (`Feed.spec`), which also says whether images have labels
        in i64. Further keywords replace what it says."""
        return cls._of(lambda **feed: Feed.from_spec(spec, **feed), options, is_spec=True)

    @classmethod
    def _of(cls, build: Callable[..., Feed], options: dict[str, Any], *, is_spec: bool) -> DataLoader:
        loader = cls.__new__(cls)
        own: dict[str, Any] = {
            "framework": None,
            "names": None,
            "as_dict": False,
            "copy": False,
            "drop_last": False,
            "environment": True,
        }
        taken = {name: options.pop(name, default) for name, default in own.items()}
        loader._start(build, options, is_spec=is_spec, **taken)
        return loader

    def _start(
        self,
        build: Callable[..., Feed],
        options: dict[str, Any],
        *,
        framework: str | None,
        names: Sequence[str] | None,
        as_dict: bool,
        copy: bool,
        drop_last: bool,
        environment: bool,
        is_spec: bool = False,
    ) -> None:
        for name, instead in INSTEAD.items():
            if name in options:
                raise TypeError(f"DataLoader() has no keyword {name!r}: {instead}")
        if drop_last:
            if options.get("last_batch") not in (None, "drop"):
                raise config("drop_last and last_batch are both set: use one of the two")
            options["last_batch"] = "drop"
        makes_images = options.get("decode") is None and (
            options.get("fields") is None or options.get("image") is not None
        )
        # JAX makes 32-bit integers of 64-bit ones, so it gets those that are there already.
        if makes_images and framework != "jax" and not is_spec:
            options.setdefault("labels_i64", True)
        self._convert = converter(framework, copy)
        self._names = None if names is None else list(names)
        self._as_dict = as_dict
        self._build = build
        self._options = {**options, "environment": environment, "epochs": 0, "once": False}
        self._feed = self._built()
        self._plan = plan_of(self._feed)
        self._iterations = 0
        self._begin_at(self._feed.next_steps[0][0])

    @property
    def feed(self) -> Feed:
        """The feed: for statistics, receipts, and what it is built of."""
        return self._feed

    @property
    def epoch(self) -> int:
        """The epoch that is iterated over, or was last."""
        return self._epoch

    def __len__(self) -> int:
        """The number of steps of this process in the epoch that is iterated over, or else in the next."""
        return self._plan.steps(self._epoch if self._is_under_way else self._next_epoch)

    def __iter__(self) -> Iterator[Any]:
        epoch = self._next_epoch
        # The rest of an epoch may be empty. So is an epoch of which less than a step was left, and dropped.
        has_steps = self._plan.steps(epoch) > 0
        if has_steps and epoch != self._rest and self._feed.next_steps[0] != (epoch, 0):
            self._feed.seek(epoch, 0)
        is_over = not has_steps or self._feed.next_steps[0][0] > epoch
        self._rest = None
        self._epoch = epoch
        self._next_epoch = epoch + 1
        self._is_under_way = True
        self._iterations += 1
        return Iteration(self, self._iterations, is_over)

    def set_epoch(self, epoch: int) -> None:
        """Makes the next ``iter()`` that of this epoch, whose order only the seed and its number decide.

        Without a call, each ``iter()`` is the epoch after the one before. An epoch that was loaded in its
        middle goes on, if it is this one. An epoch before a state of other processes has no batch.
        """
        if epoch < 0:
            raise config(f"there is no epoch {epoch}: they are counted from 0")
        self._next_epoch = epoch

    def state_dict(self) -> dict[str, Any]:
        """Where the training is, after the last batch that was handed over: plain data, to be saved with the
        model. What was prefetched counts as still to come."""
        # After the last batch of an epoch, the snapshot is already of the next, and the loop is not.
        epoch = self._epoch if self._is_under_way else None
        return {"version": STATE_VERSION, "snapshot": str(self._feed.snapshot()), "epoch": epoch}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on where a state was taken: the next ``iter()`` is the rest of that epoch, bit for bit. After
        the last batch of an epoch, and before the loop over it has ended, that is no batch.

        The number of processes may be another one: then what is left of the epoch, for all of them together,
        is divided among the new ones. After an error, the loader is where it was.
        """
        version = state.get("version")
        if version != STATE_VERSION:
            raise no_state(f"the state has version {version!r}; this package reads {STATE_VERSION}")
        missing = [name for name in ("snapshot", "epoch") if name not in state]
        if missing:
            raise no_state(f"the state has no {missing[0]!r}: give what state_dict() returned")
        snapshot, epoch = Snapshot(state["snapshot"]), state["epoch"]
        # The feed that there is goes on if the state does not suit it.
        feed = self._built(resume=snapshot)
        self._feed.close()
        self._feed, self._plan = feed, plan_of(feed)
        self._iterations += 1
        # Joined snapshots may be of an earlier epoch than the one that this process was in.
        start = self._feed.next_steps[0][0]
        self._begin_at(start if epoch is None else min(epoch, start))

    def stats(self) -> Stats:
        """What was done so far, and who waited for whom."""
        return self._feed.stats()

    def receipt(self) -> Receipt | None:
        """What was delivered, if ``receipts`` are kept."""
        return self._feed.receipt()

    def close(self) -> None:
        """Ends the feed's threads. Tensors that are held stay valid."""
        self._feed.close()

    def __enter__(self) -> DataLoader:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(
            "a DataLoader has a feed's threads, and is not pickled: build it in the process that uses it, "
            "and save its state_dict()"
        )

    def _built(self, **more: Any) -> Feed:
        feed = self._build(**{**self._options, **more})
        devices = len(feed.next_steps)
        if devices != 1:
            feed.close()
            raise config(
                f"a loader has one device, and was given {devices}: start a process for each of them, with its "
                "rank, or take batches of several at a time with percolator.Feed(...).steps()"
            )
        return feed

    def _begin_at(self, epoch: int) -> None:
        """Makes the next ``iter()`` that of this epoch, in which the feed may have some steps behind it."""
        self._epoch = self._next_epoch = self._rest = epoch
        self._is_under_way = False

    def _end(self, number: int) -> None:
        """Notes that the loop of an iteration has ended."""
        if number == self._iterations:
            self._is_under_way = False

    def _taken(self, batch: Batch) -> Any:
        """The batch as its consumer wants it."""
        if self._names is None:
            self._names = chosen(batch.keys())
        fields = [self._convert(batch[name]) for name in self._names]
        return dict(zip(self._names, fields)) if self._as_dict else tuple(fields)


class Iteration:
    """One epoch of a loader, or the rest of it."""

    def __init__(self, loader: DataLoader, number: int, is_over: bool) -> None:
        self._loader = loader
        self._number = number
        self._batches: Batches | None = None if is_over else loader.feed._converted(loader._taken)

    def __iter__(self) -> Iteration:
        return self

    def __next__(self) -> Any:
        batches = self._batches
        if batches is None or batches._is_over:
            self._batches = None
            self._loader._end(self._number)
            raise StopIteration
        if self._number != self._loader._iterations:
            raise FeedError(
                "the loader began another epoch, or loaded a state, after this iterator: a loader has one "
                "iterator at a time; for two at once, build two loaders"
            )
        # Python handles signals after a call, but not between the next of a loop and its return. So Ctrl-C
        # never comes between a batch's taking and its consumer, as it would after next(batches).
        for arrays in batches:
            return arrays
        self._batches = None
        self._loader._end(self._number)
        raise StopIteration


def config(message: str) -> ConfigError:
    """An error of what the loader was given."""
    error = ConfigError(message)
    error.reason = message
    return error


def no_state(message: str) -> SnapshotError:
    error = SnapshotError(message)
    error.reason = message
    return error


def chosen(names: list[str]) -> list[str]:
    """All fields, with one kind of labels if they are those of images."""
    if not {"data", "label", "label_f32"} <= set(names):
        return names
    label = "label_i64" if "label_i64" in names else "label"
    return [name for name in names if name == label or name not in LABELS]


def plan_of(feed: Feed) -> Plan:
    plan = feed.plan
    assert plan is not None, "a feed with epochs follows a plan"
    return plan


def converter(framework: str | None, copy: bool) -> Converter:
    """What makes a framework's array of a field."""
    if framework is None:
        framework = "torch" if importlib.util.find_spec("torch") else "numpy"
    if framework not in ("torch", "numpy", "jax", "tensorflow"):
        raise config(f"framework={framework!r}: there are 'torch', 'numpy', 'jax' and 'tensorflow'")
    if importlib.util.find_spec(framework) is None:
        message = f"framework={framework!r}, but {framework} is not installed"
        raise ModuleNotFoundError(message, name=framework)
    if framework == "torch":
        from_dlpack = importlib.import_module("torch").from_dlpack
        return (lambda field: from_dlpack(field).clone()) if copy else cast(Converter, from_dlpack)
    if framework == "jax":
        from_dlpack = importlib.import_module("jax.dlpack").from_dlpack
        array = importlib.import_module("jax.numpy").array
        return (lambda field: array(from_dlpack(field))) if copy else cast(Converter, from_dlpack)
    if framework == "tensorflow":
        identity = importlib.import_module("tensorflow").identity
        return lambda field: identity(field.tensorflow()) if copy else field.tensorflow()
    numpy = importlib.import_module("numpy")
    return cast(Converter, numpy.array if copy else numpy.asarray)
