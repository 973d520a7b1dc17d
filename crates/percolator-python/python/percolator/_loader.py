"""The loop that people have: ``for images, labels in loader``."""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, NoReturn, cast

from percolator import _tickets
from percolator._core import Batch, Batches, Feed, Field, Plan, Receipt, Snapshot, Stats
from percolator._core import _ServerFeed as ServerFeed
from percolator._core import environment as process_of
from percolator._errors import ConfigError, FeedError, ServerError, SnapshotError, UnknownFieldError

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from percolator._core import _DataLoaderOptions

STATE_VERSION = 1

# Where a feed runs, if not here, and who shares it.
SERVER = ("server", "share", "clients", "window", "group", "token", "authorities", "identity")

# The labels of images, the same in several types.
LABELS = {"label", "label_f32", "label_i64", "label_soft"}

# What a loss needs beside the labels, if images are mixed and there are no shares of classes.
MIXED = {"label_mixed", "label_weight"}

# What torch's DataLoader takes, and what does it here.
INSTEAD = {
    "batch_sampler": "use shuffle, seed and global_batch_size",
    "collate_fn": "a decoder writes each record into its place of the batch: use decode",
    "dataset": "name the data: lmdb, leveldb, tfrecord, image_list or files",
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

# The parts of a spec that say what a record becomes.
MADE_BY = (
    "transform", "views", "dtype", "layout", "phase", "target", "labels_i64", "soft_labels", "mixing", "decoder",
)


class DataLoader:
    """Iterates over a data set, epoch by epoch; each ``iter()`` is one epoch.

    Pixels are in the order **BGR**, as OpenCV and Caffe have them, and so are ``mean_values``, unless
    ``color="rgb"``, ``color="upright"`` or a ``recipe`` says otherwise.

    A drop-in for ``torch.utils.data.DataLoader`` in a loop, with the state of torchdata's
    ``StatefulDataLoader``. It takes the keywords of `Feed` except ``epochs`` and ``once``, and these:

    framework: what the fields become: ``"torch"``, ``"numpy"``, ``"jax"`` or ``"tensorflow"``. By default
        torch if it is installed, and else numpy.
    names: which fields, in this order. By default images and their labels (``data`` and ``label_i64``; for
        JAX ``label``, which is i32), or, of other records, all fields. With ``soft_labels=CLASSES`` labels
        are ``label_soft``, a share of each class; without it, ``mixup`` and ``cutmix`` add ``label_mixed``
        and ``label_weight``.
    as_dict: whether a batch is a dict of the fields by name, and not a tuple.
    copy: whether all tensors are copies. Without, only fields of one number a record are, as labels: they may
        be kept. The memory of the others is the feed's, which has a few batches: do not collect more of them
        than ``prefetch``, less one.
    mask: whether a batch has, after its fields, which of its rows are records, and not padding
        (``last_batch="pad"``): an array of bools.
    drop_last: whether the last records are left out if they do not fill a batch.
    environment: whether an initialised ``torch.distributed``, or else the launcher's variables (RANK,
        WORLD_SIZE, LOCAL_RANK, ...), say which process of a job this is. It then gets its share of each
        epoch, of which the first process warns, unless ``environment=True`` says that it is meant. With
        ``False`` every process gets everything.

    With ``server``, the feed runs elsewhere, and its records are those of the server's folder:

    server: the address of a `Server` or of ``percolator serve``: ``grpc://HOST:PORT``, ``grpc+tls://...``,
        ``grpc+unix:///PATH``, or ``shared:///PATH``, which reads batches in the memory of a server of this
        machine. Arrays are then read only: write to a copy (``copy=True``, ``clone()``).
    share: ``"divided"``, by default: each record goes to one loader, of this rank. ``"in_step"``: each of so
        many ``clients`` gets every batch. ``"windowed"``: each gets the batches that it is in time for, of
        the ``window`` (8) that are kept; `missed` counts the others. Those who ask for the same share a feed,
        if they name the same ``group``. Only a divided feed asks the environment for ranks by itself.
    token, authorities, identity: what the server wants to hear, the PEM file of those who signed its
        certificate, and the PEM files of this client's certificate and key.

    Its epochs come one after the other: the rest of one that is left early is received, and dropped.
    """

    # The epoch of the present iter(), or of the last, and that of the next.
    _epoch: int
    _next_epoch: int
    # The epoch that goes on where the feed is, instead of at its beginning.
    _rest: int | None
    # From iter() on until its loop has ended, not only its last batch.
    _is_under_way: bool
    # Whether the next epoch is whatever a server sends: others may have begun before.
    _joins: bool

    def __init__(
        self,
        *dataset: NoReturn,
        framework: str | None = None,
        names: Sequence[str] | None = None,
        as_dict: bool = False,
        copy: bool = False,
        mask: bool | None = None,
        drop_last: bool = False,
        environment: bool | None = None,
        **options: Unpack[_DataLoaderOptions],
    ) -> None:
        if dataset:
            raise TypeError(f"DataLoader() takes keywords, and no dataset: {INSTEAD['dataset']}")
        self._start(
            Feed,
            {},
            cast(dict[str, Any], options),
            framework=framework,
            names=names,
            as_dict=as_dict,
            copy=copy,
            mask=mask,
            drop_last=drop_last,
            environment=environment,
        )

    @classmethod
    def from_prototxt(cls, path: str | PathLike[str], phase: str = "train", **options: Any) -> DataLoader:
        """A loader of a Caffe net's data layer. Further keywords replace what the layer says."""
        base = {"_net": (path, phase)}
        return cls._of(lambda **feed: Feed.from_prototxt(path, phase, **feed), base, options)

    @classmethod
    def from_spec(cls, spec: str | dict[str, Any], **options: Any) -> DataLoader:
        """A loader of a feed that a spec describes (`Feed.spec`), which also says whether images have labels
        in i64. Further keywords replace what it says."""
        return cls._of(lambda **feed: Feed.from_spec(spec, **feed), {"_spec": spec}, options)

    @classmethod
    def _of(cls, build: Callable[..., Feed], base: dict[str, Any], options: dict[str, Any]) -> DataLoader:
        loader = cls.__new__(cls)
        own: dict[str, Any] = {
            "framework": None,
            "names": None,
            "as_dict": False,
            "copy": False,
            "mask": None,
            "drop_last": False,
            "environment": None,
        }
        taken = {name: options.pop(name, default) for name, default in own.items()}
        loader._start(build, base, options, **taken)
        return loader

    def _start(
        self,
        build: Callable[..., Feed | ServerFeed],
        base: dict[str, Any],
        options: dict[str, Any],
        *,
        framework: str | None,
        names: Sequence[str] | None,
        as_dict: bool,
        copy: bool,
        mask: bool | None,
        drop_last: bool,
        environment: bool | None,
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
        if makes_images and framework != "jax" and "_spec" not in base:
            options.setdefault("labels_i64", True)
        framework = chosen_framework(framework)
        self._convert = converter(framework, copy)
        self._keep = converter(framework, copy=True)
        self._mask_of = array_of_bools(framework) if mask else None
        self._as_dict = as_dict
        place = {name: options.pop(name) for name in SERVER if name in options}
        place = {name: value for name, value in place.items() if value is not None}
        self._build = build
        self._is_divided = place.get("share", "divided") == "divided"
        server = place.pop("server", None)
        if server is not None:
            self._build = partial(ServerFeed, server, **base, **place)
        elif place:
            raise config(f"{next(iter(place))} is set without server: give the address of one, as server")
        # Without a word, ranks are asked for, and the warning below says what came of it.
        asks = environment is not False and (self._is_divided or environment is True)
        self._options = {**options, "environment": asks, "epochs": 0, "once": False}
        self._feed = self._built()
        # Any warning may be an error, too.
        try:
            self._plan = self._feed.plan
            spec = self._feed.spec()
            # What makes a batch of records, as plain data.
            self._made_by = {name: spec.get(name) for name in MADE_BY}
            fields = self._feed._arrays
            self._names = chosen(fields) if names is None else known(list(names), fields)
            self._kept = {name for name, (_, shape) in self._feed.fields.items() if shape == ()}
            self._check_last_batch(mask, options.get("last_batch"))
            if environment is None and options.get("rank") is None and self._is_divided:
                warn_of_share(options)
        except BaseException:
            self._feed.close()
            raise
        self._iterations = 0
        self._loaded: int | None = None
        self._begin_at(0 if isinstance(self._feed, ServerFeed) else self._feed.next_steps[0][0])

    def _check_last_batch(self, mask: bool | None, given: str | None) -> None:
        """Refuses batches with rows that nobody tells from records, and warns of steps in which processes get
        different numbers of records."""
        schedule = self._feed.spec()["schedule"]
        if mask is None and schedule.get("last_batch") == "pad":
            raise config(
                'last_batch="pad" fills the last batch with rows of zeros: set mask=True, which adds to each '
                "batch which rows are records, or mask=False, if you tell them apart yourself"
            )
        plan = self._plan
        if plan is None or plan.replicas == 1 or given is not None:
            return
        steps = plan.steps(0)
        if steps == 0 or not is_first(self._options):
            return
        shares = [len(plan.share(0, steps - 1, replica)) for replica in range(plan.replicas)]
        if len(set(shares)) > 1:
            warnings.warn(
                f"the last step of an epoch has {min(shares)} to {max(shares)} records a process: a mean of "
                "none is not a number, and gradients of fewer weigh more. Set drop_last=True or "
                'last_batch="wrap" for training, last_batch="pad" with mask=True for validation, or '
                'last_batch="keep" if that is what you want',
                stacklevel=4,
            )

    @property
    def feed(self) -> Feed:
        """The feed: for statistics, receipts, and what it is built of. One at a server is not here."""
        return self._here("feed")

    @property
    def epoch(self) -> int:
        """The epoch that is iterated over, or was last."""
        return self._epoch

    def __len__(self) -> int:
        """The number of steps of this process in the epoch that is iterated over, or else in the next: of the
        whole epoch, also if a state was loaded of which only the rest comes."""
        epoch = self._epoch if self._is_under_way else self._next_epoch
        if self._plan is None:
            raise TypeError("the server does not know the number of steps: it mixes, or cannot count")
        # With other batches or processes, the plan has of the loaded epoch only what was left.
        is_rest = self._loaded is not None and epoch <= self._loaded
        return self._plan.steps(epoch if self._loaded is None or not is_rest else self._loaded + 1)

    def __iter__(self) -> Iterator[Any]:
        epoch, feed = self._next_epoch, self._feed
        batches: Batches | None = None
        if isinstance(feed, ServerFeed):
            # The first epoch is the one that others are in, unless another was asked for.
            self._joins = self._joins and epoch == self._rest
            if feed.next_step is None or feed.next_step[0] <= epoch:
                batches = feed._converted(self._taken, None if self._joins else epoch)
        else:
            # The rest of an epoch may be empty. So is one of which less than a step was left, and dropped.
            has_steps = plan_of(feed).steps(epoch) > 0
            if has_steps and epoch != self._rest and feed.next_steps[0] != (epoch, 0):
                feed.seek(epoch, 0)
            if has_steps and feed.next_steps[0][0] <= epoch:
                batches = feed._converted(self._taken)
        self._rest = None
        self._epoch = epoch
        self._next_epoch = epoch + 1
        self._is_under_way = True
        self._iterations += 1
        return Iteration(self, self._iterations, batches)

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
        model. What was prefetched counts as still to come. Of a server's feed, it has the ticket."""
        # After the last batch of an epoch, the snapshot is already of the next, and the loop is not.
        epoch = self._epoch if self._is_under_way else None
        if isinstance(self._feed, ServerFeed):
            ticket, step = self._feed.ticket, self._feed.next_step
            return {"version": STATE_VERSION, "ticket": ticket, "next": step, "epoch": epoch}
        snapshot = str(self._feed.snapshot())
        return {"version": STATE_VERSION, "snapshot": snapshot, "epoch": epoch, "made_by": self._made_by}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on where a state was taken: the next ``iter()`` is the rest of that epoch, bit for bit. After
        the last batch of an epoch, and before the loop over it has ended, that is no batch.

        The number of processes may be another one: then what is left of the epoch, for all of them together,
        is divided among the new ones. If this loader makes something else of a record than the one that the
        state is of (another crop or type, say), that is a warning. After an error, the loader is where it
        was, unless the new threads could not start: then it is closed.

        The state of a server's feed goes on with the same feed, as the same rank, at any server that has the
        data and the key; what differs is a `SnapshotError`.
        """
        text, epoch = checked(state, "ticket" if isinstance(self._feed, ServerFeed) else "snapshot")
        if isinstance(self._feed, ServerFeed):
            self._go_on(self._feed, text, state.get("next"), epoch)
            return
        snapshot = Snapshot(text)
        # States of earlier versions do not say it.
        theirs, made_by = state.get("made_by", self._made_by), self._made_by
        if not isinstance(theirs, dict):
            found = type(theirs).__name__
            raise no_state(f"the state's made_by is {found}, and not dict: give what state_dict() returned")
        # A warning may be an error: the loader is then where it was.
        for name in (name for name in MADE_BY if theirs.get(name) != made_by.get(name)):
            warnings.warn(
                f"the state is of a loader with {name}={theirs.get(name)}, and this one has {name}="
                f"{made_by.get(name)}: the same records come, and are made into something else",
                stacklevel=2,
            )
        # Closed once the state was found to suit it, before the new one has memory and threads.
        feed = self._built(resume=snapshot, _replaces=self._feed)
        self._feed, self._plan = feed, feed.plan
        self._iterations += 1
        # Joined snapshots may be of an earlier epoch than the one that this process was in.
        start = self._here("feed").next_steps[0][0]
        self._begin_at(start if epoch is None else min(epoch, start))
        self._loaded = start

    def _go_on(self, feed: ServerFeed, ticket: str, step: object, epoch: int | None) -> None:
        """Goes on with a ticket, if it is one of this feed."""
        wrong = _tickets.difference(ticket, feed.beginning)
        if wrong is not None:
            raise no_state(wrong)
        start: tuple[int, int] | None = None
        if step is not None:
            match step:
                case [int(of_epoch), int(of_step)] if of_epoch >= 0 and of_step >= 0:
                    start = (of_epoch, of_step)
                case _:
                    raise no_state(f"the state's next is {step!r}: give what state_dict() returned")
        feed.go_on(ticket, start)
        self._iterations += 1
        begin = 0 if start is None else start[0]
        self._begin_at(begin if epoch is None else min(epoch, begin))

    @property
    def missed(self) -> int:
        """How many batches of a windowed feed at a server came too early for this loader."""
        return self._feed.missed if isinstance(self._feed, ServerFeed) else 0

    def stats(self) -> Stats:
        """What was done so far, and who waited for whom, by a feed that runs here."""
        return self._here("stats()").stats()

    def receipt(self) -> Receipt | None:
        """What was delivered, if ``receipts`` are kept."""
        return None if isinstance(self._feed, ServerFeed) else self._feed.receipt()

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

    def _here(self, what: str) -> Feed:
        """The feed, if it runs here."""
        if isinstance(self._feed, ServerFeed):
            raise FeedError(f"{what} is of a feed that runs here, and this loader's runs at a server")
        return self._feed

    def _built(self, **more: Any) -> Feed | ServerFeed:
        try:
            feed = self._build(**{**self._options, **more})
        except TypeError as error:
            raise TypeError(str(error).replace("Feed()", "DataLoader()")) from None
        if isinstance(feed, ServerFeed):
            return feed
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
        is_new = isinstance(self._feed, ServerFeed) and self._feed.next_step is None
        self._joins = is_new and not self._is_divided

    def _end(self, number: int) -> None:
        """Notes that the loop of an iteration has ended."""
        if number == self._iterations:
            self._is_under_way = False

    def _taken(self, batch: Batch) -> Any:
        """The batch as its consumer wants it."""
        if self._joins and batch.epoch is not None:
            self._epoch, self._next_epoch = batch.epoch, batch.epoch + 1
            self._joins = False
        arrays = {
            name: self._keep(batch[name]) if name in self._kept else self._convert(batch[name])
            for name in self._names
        }
        if self._mask_of is not None:
            arrays["mask"] = self._mask_of(batch.mask)
        return arrays if self._as_dict else tuple(arrays.values())


class Iteration:
    """One epoch of a loader, or the rest of it."""

    def __init__(self, loader: DataLoader, number: int, batches: Batches | None) -> None:
        self._loader = loader
        self._number = number
        self._batches = batches
        self._error: ServerError | None = None

    def __iter__(self) -> Iteration:
        return self

    def __next__(self) -> Any:
        batches = self._batches
        if self._error is not None:
            raise self._error
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
        try:
            for arrays in batches:
                return arrays
        except ServerError as error:
            # The epoch is not over: the next iterator goes on in it.
            self._error, self._loader._next_epoch = error, self._loader._epoch
            raise
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


def checked(state: object, text: str) -> tuple[str, int | None]:
    """What a state has of its feed, a text of this name, and the epoch of its loop."""
    if not isinstance(state, dict):
        raise no_state(f"the state is {type(state).__name__}: give what state_dict() returned")
    version = state.get("version")
    if version != STATE_VERSION:
        raise no_state(f"the state has version {version!r}; this package reads {STATE_VERSION}")
    if text not in state and ("ticket" in state or "snapshot" in state):
        theirs, ours = ("with", "without") if "ticket" in state else ("without", "with")
        raise no_state(
            f"the state is of a loader {theirs} server, and this one is {ours}: a feed goes on where it ran"
        )
    for name in (text, "epoch"):
        if name not in state:
            raise no_state(f"the state has no {name!r}: give what state_dict() returned")
    found, epoch = state[text], state["epoch"]
    if not isinstance(found, str):
        kind = type(found).__name__
        raise no_state(f"the state's {text} is {kind}: give what state_dict() returned")
    if not isinstance(epoch, int | None):
        kind = type(epoch).__name__
        raise no_state(f"the state's epoch is {kind}, and not int: give what state_dict() returned")
    return found, epoch


def chosen(names: list[str]) -> list[str]:
    """All fields, with one kind of labels if they are those of images."""
    if not {"data", "label", "label_f32"} <= set(names):
        return names
    label = next(name for name in ("label_soft", "label_i64", "label") if name in names)
    others = LABELS | MIXED if label == "label_soft" else LABELS
    return [name for name in names if name == label or name not in others]


def known(names: list[str], fields: list[str]) -> list[str]:
    """The names, if a batch has all of them."""
    for name in names:
        if name not in fields:
            message = f"names={names}: there is no field {name!r}; there are {', '.join(fields)}"
            error = UnknownFieldError(message)
            error.reason = message
            raise error
    return names


def is_first(options: dict[str, Any]) -> bool:
    """Whether this is the first process of its job, which warns for all."""
    if not options.get("environment"):
        return options.get("rank") in (None, 0)
    process = process_of(options.get("rank"), options.get("world_size"))
    return process is None or process.rank == 0


def warn_of_share(options: dict[str, Any]) -> None:
    """Says that this process gets a part of the data, if that was not asked for."""
    process = process_of(None, options.get("world_size"))
    if process is None or process.world_size == 1 or process.rank != 0:
        return
    warnings.warn(
        f"this is process {process.rank} of {process.world_size}, as torch.distributed or the environment's "
        "variables say (percolator.environment()), so the loader gives it its share of each epoch, for "
        "training as for validation: environment=True says that this is meant; environment=False gives every "
        "process everything",
        stacklevel=4,
    )


def plan_of(feed: Feed) -> Plan:
    plan = feed.plan
    assert plan is not None, "a feed with epochs follows a plan"
    return plan


def chosen_framework(framework: str | None) -> str:
    """The framework, or the one that is installed."""
    if framework is None:
        framework = "torch" if importlib.util.find_spec("torch") else "numpy"
    if framework not in ("torch", "numpy", "jax", "tensorflow"):
        raise config(f"framework={framework!r}: there are 'torch', 'numpy', 'jax' and 'tensorflow'")
    if importlib.util.find_spec(framework) is None:
        message = f"framework={framework!r}, but {framework} is not installed"
        raise ModuleNotFoundError(message, name=framework)
    return framework


def converter(framework: str, copy: bool) -> Converter:
    """What makes a framework's array of a field."""
    if framework == "torch":
        from_dlpack = importlib.import_module("torch").from_dlpack
        return (lambda field: from_dlpack(field).clone()) if copy else cast(Converter, from_dlpack)
    if framework == "jax":
        importlib.import_module("jax.dlpack")
        array = importlib.import_module("jax.numpy").array
        return lambda field: array(field.jax()) if copy else field.jax()
    if framework == "tensorflow":
        identity = importlib.import_module("tensorflow").identity
        return lambda field: identity(field.tensorflow()) if copy else field.tensorflow()
    numpy = importlib.import_module("numpy")
    return cast(Converter, numpy.array if copy else numpy.asarray)


def array_of_bools(framework: str) -> Callable[[list[bool]], Any]:
    """What makes a framework's array of a list of bools."""
    module, function = {
        "torch": ("torch", "tensor"),
        "jax": ("jax.numpy", "array"),
        "tensorflow": ("tensorflow", "constant"),
        "numpy": ("numpy", "array"),
    }[framework]
    return cast(Callable[[list[bool]], Any], getattr(importlib.import_module(module), function))
