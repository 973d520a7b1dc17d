from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike
from typing import Any, Literal, NoReturn, TypedDict, final

from typing_extensions import Self, Unpack

__all__ = [
    "Batch",
    "Batches",
    "Feed",
    "Field",
    "Lane",
    "Plan",
    "Process",
    "Receipt",
    "Record",
    "Server",
    "Snapshot",
    "Stats",
    "Steps",
    "TfRecordWriter",
    "Transform",
    "Verdict",
    "_ServerFeed",
    "__version__",
    "environment",
    "example",
    "verify",
]

__version__: str

_Path = str | PathLike[str]
_Several = _Path | list[_Path] | tuple[_Path, ...]
_Waits = tuple[int, float]

# Pixels are in the order BGR unless color is "rgb" or "upright", and mean_values are in theirs.
class _TransformOptions(TypedDict, total=False):
    crop: int | None
    mirror: bool | None
    mean_values: float | Sequence[float] | None
    mean_file: _Path | None
    scale: float | None
    color: Literal["native", "color", "gray", "rgb", "upright"] | None
    recipe: str | None
    operations: Sequence[str | Mapping[str, object]] | None
    resize_shorter: int | None
    random_resized_crop: int | None
    center_crop: int | None
    random_crop: int | None
    padding: int | None
    flip: bool | None
    filter: Literal["nearest", "nearest_exact", "box", "bilinear", "hamming", "bicubic", "lanczos"] | None
    antialias: bool | None
    resize_law: Literal["pillow", "pillow13", "torch"] | None
    mean: float | Sequence[float] | None
    std: float | Sequence[float] | None
    resize: tuple[int, int] | None
    scaled_decode: bool | None

class _Image(TypedDict, total=False):
    feature: str
    label: str | None
    shape: str | tuple[int, int, int] | None
    order: Literal["chw", "hwc"] | None

class _BadRecords(TypedDict, total=False):
    action: Literal["fail", "skip", "replace"]
    at_most: int | None
    at_most_rate: float
    quarantine: str | None

class _BadRecord(TypedDict):
    record: tuple[int, int]
    file: str
    key: bytes
    reason: str
    replaced_by: tuple[int, int] | None

class _LoaderOptions(_TransformOptions, total=False):
    # Where records are stored.
    lmdb: _Several | None
    lmdb_name: str | None
    leveldb: _Several | None
    tfrecord: _Several | None
    image_list: _Several | None
    root_folder: _Path | None
    files: _Several | None
    format: str | None
    format_options: dict[str, str] | None
    root: _Path | None
    access: Literal["auto", "mapped", "read"] | None
    log_gaps: Literal["refuse", "allow"] | None
    index: _Path | None
    # What becomes of them.
    transform: Transform | None
    views: list[dict[str, Any]] | None
    transform_on: Literal["host", "device"] | None
    dtype: Any
    layout: str | None
    labels_i64: bool | None
    soft_labels: int | None
    mixup: float | None
    cutmix: float | None
    mix_probability: float | None
    target: dict[str, Any] | None
    phase: str | None
    layer: str | None
    fields: str | None
    image: str | _Image | None
    decode: Callable[[Record], dict[str, Any]] | None
    decode_fields: str | dict[str, Any] | None
    decode_overlaps: bool | None
    # Which record comes when.
    shuffle: bool | int | Literal["global", "files", "no"] | None
    shuffle_bytes: int | None
    mix: list[int] | tuple[int, ...] | None
    last_batch: Literal["keep", "drop", "pad", "wrap"] | None
    assignment: Literal["tensorflow", "caffe"] | None
    policy: Literal["auto", "file", "data", "off", "hint"] | None
    seed: int | None
    caffe_seed: int | None
    caffe_era: Literal["today", "data_reader"] | None
    rank: int | None
    world_size: int | None
    resume: Snapshot | str | None
    # What a loader says of the feed that it replaces.
    _replaces: Feed | None
    # Batches, devices, threads and memory.
    batch_size: int | None
    global_batch_size: int | None
    devices: str | list[str] | tuple[str, ...] | None
    threads: int | None
    prefetch: int | None
    memory_limit: int | None
    receipts: bool | Literal["off", "positions", "contents"] | None
    bad_records: Literal["fail", "skip", "replace"] | _BadRecords | None
    warn_after: float | None
    give_up_after: float | None

class _FeedOptions(_LoaderOptions, total=False):
    epochs: int | None
    once: bool | None
    environment: bool | None

class _DataLoaderOptions(_LoaderOptions, total=False):
    # Where the feed runs, if not here, and who shares it.
    server: str | None
    share: Literal["divided", "in_step", "windowed"] | None
    clients: int | None
    window: int | None
    group: str | None
    token: str | None
    authorities: _Path | None
    identity: tuple[_Path, _Path] | None

class _ServerOptions(TypedDict, total=False):
    unix: _Path | None
    key: _Path | None
    token: str | list[str] | tuple[str, ...] | None
    certificate: _Path | None
    private_key: _Path | None
    client_authorities: _Path | None
    insecure: bool | None
    memory_limit: int | None
    threads: int | None
    window: int | None
    patience: float | None
    join_within: float | None

@final
class Feed:
    """A running feed: one data set, read once, dealt to one lane for each device.

    Keywords, each as in Rust's `FeedBuilder`; `None` counts as not given:

    - the data: `lmdb` (`lmdb_name`), `leveldb`, `tfrecord`, `image_list` (`root_folder`), or `files` of other
      libraries, such as tar and Parquet (`format`, `format_options`): a path, or several in a list; `root`,
      `access`, `log_gaps`, `index`
    - images: `recipe`, `color`, `operations` and those that have keywords of their own (`Transform` lists
      them), `mean`, `std`; Caffe's `crop`, `mirror`, `mean_values`, `mean_file`, `scale`, `resize`,
      `scaled_decode`; or a `transform` of all these; `views`, `mixup`, `cutmix`, `mix_probability`;
      `transform_on`, `dtype`, `layout`, `labels_i64`, `soft_labels`, `target`, `phase`, `layer`. Pixels are
      in the order BGR, as in OpenCV and Caffe, unless `color` is `"rgb"` or `"upright"`
    - `tf.train.Example`s, and the named parts of `files`: `fields`, `image`
    - a function of a record that returns a dict of its fields: `decode`, `decode_fields`. Its calls come one
      after the other, on several threads, unless `decode_overlaps=True`
    - the order: `epochs`, `once`, `shuffle`, `shuffle_bytes`, `mix`, `last_batch`, `assignment`, `policy`,
      `seed`, `caffe_seed` (`caffe_era`), `rank`, `world_size`, `environment`, `resume`. Those from `shuffle`
      to `policy`, `rank` and `environment` need `epochs`, of which 0 has no end
    - the rest: `batch_size` or `global_batch_size`, `devices`, `threads`, `prefetch`, `memory_limit`,
      `receipts`, `warn_after`, `give_up_after`

    With one device, it is an iterable of batches. Threads that wait let go of the interpreter.
    """
    def __new__(cls, **options: Unpack[_FeedOptions]) -> Self: ...
    @classmethod
    def from_prototxt(
        cls, path: _Path, phase: str = "train", *, layer: str | None = None, **options: Any
    ) -> Feed:
        """The feed of a Caffe net's data layer. Further options replace the layer's."""
    @classmethod
    def from_spec(cls, spec: str | dict[str, Any], **options: Any) -> Feed:
        """The feed that a spec describes: a dict, or JSON. Further options replace the spec's."""
    def __iter__(self) -> Batches: ...
    def epoch(self) -> Batches:
        """The batches of one epoch, or of the rest of it; after the last, the first again."""
    def _converted(self, convert: Callable[[Batch], Any]) -> Batches: ...
    def steps(self) -> Steps:
        """The steps of all devices."""
    def take_lanes(self) -> list[Lane]:
        """One iterator for each device, each for a thread of its own."""
    def seek(self, epoch: int, step: int) -> None:
        """Continues with another step."""
    def replay(self, epoch: int, step: int, replica: int = 0) -> Batch:
        """One batch alone, as any replica of the job gets it."""
    def snapshot(self) -> Snapshot:
        """Where the run is, after the batch that was taken last: what a feed with `resume` goes on from."""
    def receipt(self) -> Receipt | None:
        """What was delivered, if `receipts` are kept."""
    def stats(self) -> Stats:
        """What was done so far, and who waited for whom."""
    @property
    def plan(self) -> Plan | None:
        """Which record comes when, if the feed follows a plan."""
    @property
    def next_steps(self) -> list[tuple[int, int]]:
        """The next epoch and step of each device."""
    @property
    def records(self) -> int | None:
        """The number of records of the data set, if it is known."""
    @property
    def fields(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """What a batch consists of: each field's type and a record's shape."""
    @property
    def _arrays(self) -> list[str]: ...
    @property
    def memory_budget(self) -> list[tuple[str, int, int]]:
        """The memory that it uses, holder by holder: the holder, the number of pieces, the bytes of each."""
    def spec(self) -> dict[str, Any]:
        """The options that it was built with, as a dict for `from_spec`."""
    def pause(self) -> None:
        """Stops the reader until `unpause`; what it has dealt is still delivered."""
    def unpause(self) -> None:
        """Lets the reader go on after `pause`."""
    def cancel(self) -> None:
        """Ends the feed, from any thread: what is complete is delivered, then `ClosedError`."""
    def close(self) -> None:
        """Ends its threads. Batches that are held stay valid."""
    @property
    def closed(self) -> bool:
        """Whether it was closed."""
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: object) -> None: ...
    def __reduce_ex__(self, _protocol: Any, /) -> NoReturn: ...

@final
class Batches:
    """The batches of a feed with one device."""
    def __iter__(self) -> Self: ...
    def __next__(self) -> Batch: ...
    @property
    def _is_over(self) -> bool: ...

@final
class Steps:
    """The steps of a feed: each is a list with the next batch of every device."""
    def __iter__(self) -> Self: ...
    def __next__(self) -> list[Batch]: ...

@final
class Lane:
    """One device's batches, for a thread of their own."""
    @property
    def number(self) -> int:
        """Its number in the feed, which is that of its device."""
    @property
    def device(self) -> str:
        """The name of its device."""
    def __iter__(self) -> Self: ...
    def __next__(self) -> Batch: ...
    def snapshot(self) -> Snapshot:
        """Where the training run is, after the batch that was taken last."""
    def receipt(self) -> Receipt | None:
        """What was delivered, if receipts are kept."""
    def close(self) -> None:
        """Ends its threads."""

@final
class Batch:
    """A complete batch. Its memory goes back to the feed when the batch, its fields, and all that frameworks
    made of them are gone."""
    def __getitem__(self, name: str, /) -> Field: ...
    def field(self, name: str, dtype: Any = None) -> Field:
        """A field whose elements must have a type."""
    def __len__(self) -> int: ...
    def __contains__(self, name: object, /) -> bool: ...
    def __iter__(self) -> Iterator[str]: ...
    def keys(self) -> list[str]:
        """The names of the fields."""
    def values(self) -> list[Field]:
        """The fields."""
    def items(self) -> list[tuple[str, Field]]:
        """The fields with their names."""
    @property
    def size(self) -> int:
        """The number of records."""
    @property
    def rows(self) -> int:
        """The number of rows: the records, and the padding after them."""
    @property
    def mask(self) -> list[bool]:
        """Which rows are records, and not padding."""
    @property
    def records(self) -> list[tuple[int, int]]:
        """The epoch and the position of each record."""
    @property
    def bad_records(self) -> list[_BadRecord]:
        """The bad records that the batch goes without."""
    @property
    def lane(self) -> int:
        """The number of its lane, which is that of its device."""
    @property
    def epoch(self) -> int | None:
        """The epoch of its step."""
    @property
    def step(self) -> int | None:
        """The step in its epoch."""
    @property
    def is_last(self) -> bool:
        """Whether its step is the last of the epoch."""
    def release(self) -> None:
        """Gives up this hold on the memory."""
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: object) -> None: ...
    def __reduce_ex__(self, _protocol: Any, /) -> NoReturn: ...

@final
class Field:
    """One array of a batch; pixels are in the order BGR. It keeps the batch's memory as long as it lives, and
    so does whatever a framework makes of it."""
    @property
    def name(self) -> str:
        """Its name in the batch."""
    @property
    def dtype(self) -> str:
        """The type of the elements, such as `"f32"`."""
    @property
    def shape(self) -> tuple[int, ...]:
        """The extents, rows first."""
    @property
    def nbytes(self) -> int:
        """The bytes of all elements."""
    @property
    def device(self) -> str:
        """`"cpu"`, or `"cuda:N"`."""
    @property
    def address(self) -> int:
        """The address of the first element."""
    def __len__(self) -> int: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any: ...
    @property
    def __array_interface__(self) -> dict[str, Any]: ...
    def numpy(self) -> Any:
        """The array as a `numpy.ndarray`, without a copy."""
    def torch(self) -> Any:
        """The array as a `torch.Tensor`, without a copy."""
    def jax(self) -> Any:
        """The array as a `jax.Array`, without a copy."""
    def tensorflow(self) -> Any:
        """The array as a `tf.Tensor`, without a copy, unless it is in a server's memory. It must be on the
        host: TensorFlow does not say on which streams it works, so the memory could be filled again while it
        is read."""
    def expect(self, dtype: Any) -> Field:
        """Checks the type of the elements."""
    def __reduce_ex__(self, _protocol: Any, /) -> NoReturn: ...

@final
class _ServerFeed:
    """A feed that runs at a server: one rank of it."""
    def __new__(cls, server: str, **options: Any) -> Self: ...
    def _converted(self, convert: Callable[[Batch], Any], epoch: int | None = None) -> Batches: ...
    def go_on(self, ticket: str, next: tuple[int, int] | None = None) -> None: ...
    @property
    def ticket(self) -> str: ...
    @property
    def beginning(self) -> str: ...
    @property
    def next_step(self) -> tuple[int, int] | None: ...
    @property
    def missed(self) -> int: ...
    @property
    def plan(self) -> Plan | None: ...
    @property
    def fields(self) -> dict[str, tuple[str, tuple[int, ...]]]: ...
    @property
    def _arrays(self) -> list[str]: ...
    def spec(self) -> dict[str, Any]: ...
    def close(self) -> None: ...
    @property
    def closed(self) -> bool: ...

@final
class Server:
    """A server of feeds, on threads of this process: clients may ask for what lies below the folder `root`,
    and for nothing else. `percolator serve` is the same as a program of its own.

    It listens at `listen` ("HOST:PORT"), by default at a port of 127.0.0.1 that the system chooses, or at
    the Unix socket `unix` alone. Tickets are signed with the key in the file `key`, which is made if it is
    not there; without one they are of no use to another server. Clients need `token` (one, or one of
    several), if it is set, or a certificate of one of the `client_authorities`. Addresses that other machines
    reach need a `certificate` and its `private_key`, or `insecure=True`. `memory_limit` (in bytes) and
    `threads` are for all feeds together, `window` is how many batches a client may have and not acknowledge,
    and `patience` and `join_within` are how many seconds a client may do nothing, and how many the first
    batch waits for clients.
    """
    def __new__(
        cls, root: _Path, listen: str | None = None, **options: Unpack[_ServerOptions]
    ) -> Self: ...
    @property
    def address(self) -> str:
        """The address for clients, as `DataLoader(server=...)` takes it; the first, if there are several."""
    @property
    def addresses(self) -> list[str]:
        """The addresses for clients."""
    def status(self) -> dict[str, Any]:
        """What it does at the moment: its feeds, their clients, memory and threads."""
    def close(self, drain: float = 0.0) -> None:
        """Ends it. Its clients get so many seconds (`drain`) to take their leave, with tickets to go on with
        at another server; it takes no new ones meanwhile."""
    @property
    def closed(self) -> bool:
        """Whether it was closed."""
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: object) -> None: ...
    def __reduce_ex__(self, _protocol: Any, /) -> NoReturn: ...

@final
class Record:
    """A record, as `decode` gets it."""
    @property
    def key(self) -> bytes:
        """The record's key: of an `image_list`, the name of the file as it is listed."""
    @property
    def value(self) -> bytes:
        """The record's value, as the data set has it. Of an `image_list`, it is what a Caffe database would
        have: a Datum with the file's bytes and the label."""
    @property
    def companion(self) -> bytes | None:
        """The companion's value, if there is a companion."""
    @property
    def epoch(self) -> int:
        """The epoch."""
    @property
    def index(self) -> int:
        """The position in the data set."""
    @property
    def seed(self) -> int:
        """64 random bits, a function of the feed's seed, the epoch and the position."""

@final
class Transform:
    """What is done to every image. Channels are in the order BGR, as in OpenCV and Caffe, unless color is
    "rgb" or "upright".

    - `color`: how encoded images are decoded: `"rgb"` to 3 channels in the order RGB, as Pillow does;
      `"upright"` the same, in the orientation that EXIF says; `"color"` to 3 in the order BGR, and
      `"gray"` to 1, both in that orientation; `"native"` to as many as the file has, as it lies there
    - `recipe`: `"imagenet-train[:SIDE]"`, `"imagenet-eval[:SHORTER:SIDE]"` or `"cifar-train"`
    - operations, in this order: `resize_shorter`, `random_resized_crop`, `center_crop`, `random_crop` (after
      `padding`), all of them sides in pixels; `flip`; or `operations`, a list of them as in a spec;
      `filter`, `antialias` and `resize_law` say how all of them resize
    - `mean` and `std`, of levels from 0 to 1, one or one for each channel, in the order of the channels
    - `resize`: to (height, width); `scaled_decode`: to decode large JPEGs smaller
    - `crop`: to a square, at a random place in phase train, and at the centre in phase test
    - `mirror`: at random, in every phase, as in Caffe: leave it out for validation
    - `mean_values` (one, or one for each channel, in the order BGR) or `mean_file`, which are subtracted;
      `scale`, by which all is multiplied then
    """
    def __new__(cls, **options: Unpack[_TransformOptions]) -> Self: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...

@final
class Snapshot:
    """Where a training run is: a small text."""
    def __new__(cls, text: str) -> Self: ...
    @staticmethod
    def load(path: _Path) -> Snapshot:
        """Reads a file that `save` wrote."""
    def save(self, path: _Path) -> None:
        """Writes a file that is whole or absent."""
    @staticmethod
    def join(snapshots: Sequence[Snapshot]) -> Snapshot:
        """Joins the snapshots of a job's processes, if they are of different steps."""
    def next(self, replica: int = 0) -> tuple[int, int] | None:
        """The next epoch and step of a replica, if it is known."""
    @property
    def replicas(self) -> int:
        """The number of replicas of the job."""
    @property
    def plan(self) -> Plan | None:
        """Which record comes when, if the run follows a plan."""
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __getnewargs__(self) -> tuple[str]: ...

@final
class Receipt:
    """What was delivered, written down: text."""
    def __new__(cls, text: str) -> Self: ...
    @staticmethod
    def load(path: _Path) -> Receipt:
        """Reads a file that `save` wrote."""
    def save(self, path: _Path) -> None:
        """Writes a file that is whole or absent."""
    def merge(self, other: Receipt) -> Receipt:
        """This receipt and another of the same plan."""
    @property
    def delivered(self) -> list[tuple[int, int]]:
        """The number of records delivered in each epoch."""
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __getnewargs__(self) -> tuple[str]: ...

@final
class Verdict:
    """What receipts prove."""
    @property
    def is_sound(self) -> bool:
        """Whether each epoch has every record exactly once, or is still under way."""
    def first_not_covered(self, epochs: int) -> int | None:
        """The first of these epochs that was not covered."""
    def __bool__(self) -> bool: ...

@final
class Plan:
    """Which record comes when, for every replica of a job."""
    def steps(self, epoch: int = 0) -> int:
        """The number of steps in an epoch."""
    def share(self, epoch: int, step: int, replica: int = 0) -> list[tuple[int, int]]:
        """The epoch and the position of each record that a replica gets at a step, in the order of the rows.
        """
    @property
    def records(self) -> int:
        """The number of records of the data set."""
    @property
    def replicas(self) -> int:
        """The number of replicas of the job."""
    @property
    def workers(self) -> int:
        """The number of processes of the job."""
    @property
    def batch_size_max(self) -> int:
        """The most records that a replica gets at a step."""

@final
class Stats:
    """What a feed has done so far, and who waited for whom."""
    @property
    def elapsed(self) -> float:
        """Seconds since the feed was built, until its last lane ended."""
    @property
    def records(self) -> int:
        """Records delivered."""
    @property
    def records_per_second(self) -> float:
        """Records delivered a second."""
    @property
    def bottleneck(self) -> str:
        """The stage that limits the feed, in words."""
    @property
    def busy(self) -> dict[str, float]:
        """How busy each stage is, from 0 to 1."""
    @property
    def reader(self) -> dict[str, int | _Waits]:
        """What the reader did, by name; waits are their number and their seconds."""
    @property
    def workers(self) -> dict[str, int | _Waits]:
        """What the threads that decode did, by name."""
    @property
    def lanes(self) -> list[dict[str, Any]]:
        """What each device's lane did, by name."""

@final
class Process:
    """A process of a job, and the number of processes."""
    @property
    def rank(self) -> int:
        """The number of this process in the job, from 0."""
    @property
    def world_size(self) -> int:
        """The number of processes of the job."""
    @property
    def local_rank(self) -> int | None:
        """The number of this process on its host, if it is known."""
    @property
    def local_world_size(self) -> int | None:
        """The number of the job's processes on this host, if it is known."""
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...

@final
class TfRecordWriter:
    """Writes a TFRecord file."""
    def __new__(cls, path: _Path, *, compression: Literal["plain", "gzip", "zlib"] = "plain") -> Self: ...
    def write(self, record: bytes | bytearray | memoryview) -> None:
        """Adds a record of these bytes: a bytes, a bytearray or a memoryview."""
    def write_example(self, features: dict[str, Any]) -> None:
        """Adds a record that is a `tf.train.Example` of these features."""
    def close(self) -> None:
        """Completes the file."""
    @property
    def records(self) -> int | None:
        """The number of records so far; `None` once it is closed."""
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: object) -> None: ...

def environment(rank: int | None = None, world_size: int | None = None) -> Process | None:
    """Which process of its job this is: as torch.distributed says, if it is initialised, or else the
    launcher's variables; `rank` and `world_size` give what these leave out. `None` if nothing says that
    there is a job."""
def example(features: dict[str, Any]) -> bytes:
    """The bytes of a `tf.train.Example` of these features."""
def verify(receipts: Sequence[Receipt], *, digest: _Path | None = None) -> Verdict:
    """Verifies the receipts of a run, and, with the file of a digest of the data set, the bytes."""
