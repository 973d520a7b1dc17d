"""Loaders of feeds at a server: the batches of a local loader, whatever becomes of the server."""

from __future__ import annotations

import io
import json
import logging
import pickle
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
from conftest import FIELDS, HANGS_AFTER, framework, write_numbers
from test_waiting import interruptible

import percolator


def eventually(condition: Callable[[], object], seen: Callable[[], object]) -> None:
    """Waits until something holds; what is seen instead is the failure."""
    deadline = time.monotonic() + HANGS_AFTER
    while not condition():
        assert time.monotonic() < deadline, seen()
        time.sleep(0.01)


@pytest.fixture
def server(numbers: str) -> Any:
    """A server of the folder with `numbers`."""
    with percolator.Server(Path(numbers).parent) as server:
        yield server


def loader(address: str | None, path: str = "numbers.tfrecord", **options: Any) -> percolator.DataLoader:
    return percolator.DataLoader(
        **{
            "server": address, "tfrecord": path, "fields": FIELDS, "batch_size": 8, "framework": "numpy",
            **options,
        }
    )


def local(numbers: str, **options: Any) -> percolator.DataLoader:
    return loader(None, numbers, **options)


def labels(batches: Any) -> list[list[int]]:
    return [label.tolist() for _, label in batches]


def flat(batches: Any) -> list[int]:
    return [label for batch in labels(batches) for label in batch]


def as_bytes(batches: Any) -> list[list[tuple[str, tuple[int, ...], bytes]]]:
    """All that batches of NumPy's arrays are."""
    return [[(str(array.dtype), array.shape, array.tobytes()) for array in batch] for batch in batches]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"shuffle": True, "seed": 5},
        {"drop_last": True, "shuffle": 10},
        {"last_batch": "pad", "mask": True},
        {"last_batch": "wrap"},
        {"fields": "x as r:i64[<=8],label:i64", "names": ["r", "r.offsets", "label"]},
        {"fields": "x as p:i64[<=6]=-1,label:i64", "names": ["p", "p.lengths", "label"]},
        {"environment": False, "global_batch_size": 16, "batch_size": None, "copy": True},
    ],
)
def test_batches_are_those_of_a_local_loader(
    numbers: str, server: percolator.Server, options: dict[str, Any]
) -> None:
    remote, here = loader(server.address, **options), local(numbers, **options)
    assert len(remote) == len(here)
    for epoch in range(3):
        assert as_bytes(remote) == as_bytes(here)
        assert remote.epoch == here.epoch == epoch
    # One that is left early is over: the next iteration is the next epoch.
    for batches in (remote, here):
        next(iter(batches))
    assert as_bytes(remote) == as_bytes(here)
    remote.close()
    eventually(lambda: server.status()["feeds"] == [], server.status)


@pytest.mark.parametrize("dtype", ["f32", "f16", "u8"])
def test_images_are_those_of_a_local_loader(golden: Path, dtype: str) -> None:
    options: dict[str, Any] = {"batch_size": 10, "framework": "numpy", "dtype": dtype, "shuffle": True}
    if dtype != "u8":
        options.update(crop=32, mirror=True, mean_values=[1, 2, 3], scale=0.5)
    with percolator.Server(golden) as server:
        remote = percolator.DataLoader(server=server.address, lmdb="raw_lmdb", **options)
        here = percolator.DataLoader(lmdb=golden / "raw_lmdb", **options)
        for _ in range(2):
            assert as_bytes(remote) == as_bytes(here)
        net = golden / "net" / "raw_none.prototxt"
        remote = percolator.DataLoader.from_prototxt(net, "test", server=server.address, framework="numpy")
        here = percolator.DataLoader.from_prototxt(net, "test", root=golden, framework="numpy")
        assert as_bytes(remote) == as_bytes(here)
        remote = percolator.DataLoader.from_spec(
            {**here.feed.spec(), "root": ""}, server=server.address, framework="numpy"
        )
        assert as_bytes(remote) == as_bytes(here)


def test_the_loop_that_people_have(golden: Path) -> None:
    torch = framework("torch")
    with percolator.Server(golden) as server:
        for options in [{}, {"dtype": "bf16"}]:
            remote = percolator.DataLoader(server=server.address, lmdb="raw_lmdb", batch_size=16, **options)
            here = percolator.DataLoader(lmdb=golden / "raw_lmdb", batch_size=16, **options)
            for (images, label), (images_here, label_here) in zip(remote, here, strict=True):
                assert images.dtype == images_here.dtype and label.dtype == torch.int64
                assert torch.equal(images, images_here) and torch.equal(label, label_here)
                # The memory is the loop's.
                images.zero_()


def test_jax_gets_the_same(golden: Path) -> None:
    framework("jax")
    with percolator.Server(golden) as server:
        options: dict[str, Any] = {"batch_size": 16, "framework": "jax"}
        remote = percolator.DataLoader(server=server.address, lmdb="raw_lmdb", **options)
        here = percolator.DataLoader(lmdb=golden / "raw_lmdb", **options)
        assert as_bytes([map(numpy.asarray, batch) for batch in remote]) == as_bytes(
            [map(numpy.asarray, batch) for batch in here]
        )


def test_nothing_is_copied(server: percolator.Server) -> None:
    remote = loader(server.address)
    found = []

    def convert(field: percolator.Field) -> Any:
        found.append(field)
        return field.numpy()

    remote._convert = convert
    arrays = [x for x, _ in remote]
    for number, (array, field) in enumerate(zip(arrays, found, strict=True)):
        assert array.ctypes.data == field.address == numpy.from_dlpack(field).ctypes.data
        assert array.flags.writeable and field.device == "cpu" and field.dtype == "i64"
        # All of them are held, and stay as they were.
        assert array.ravel().tolist() == list(range(32 * number, 32 * number + array.size))
    assert len(arrays) == 13


def test_frameworks_take_the_memory_that_came(server: percolator.Server) -> None:
    remote = loader(server.address, fields="x as y:i32[4]", names=["y"])
    fields: list[percolator.Field] = []
    remote._convert = fields.append
    next(iter(remote))
    (field,) = fields
    expected = numpy.arange(32).reshape(8, 4).tolist()
    for name in ["torch", "jax", "tensorflow"]:
        try:
            framework(name)
        except pytest.skip.Exception:
            continue
        array = getattr(field, name)()
        assert numpy.asarray(array).tolist() == expected
        if name == "torch":
            assert array.data_ptr() == field.address
        if name == "jax":
            assert array.unsafe_buffer_pointer() == field.address


def on_threads(*work: Callable[[], object]) -> list[Any]:
    """What each of them returns."""
    returned: list[Any] = [None] * len(work)

    def run(number: int) -> None:
        try:
            returned[number] = work[number]()
        except BaseException as error:
            returned[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(work))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANGS_AFTER)
    assert not any(isinstance(one, BaseException) for one in returned), returned
    return returned


def test_two_ranks_divide_one_feed(numbers: str, server: percolator.Server) -> None:
    options: dict[str, Any] = {"shuffle": True, "last_batch": "keep", "batch_size": 5}
    both_are_there, feeds = threading.Barrier(2, timeout=HANGS_AFTER), []

    def of(rank: int) -> list[list[list[int]]]:
        remote = loader(server.address, rank=rank, world_size=2, **options)
        assert len(remote) == 10
        epochs, is_first = [], True
        for _ in range(2):
            batches = []
            for _, label in remote:
                batches.append(label.tolist())
                if is_first and both_are_there.wait() == 0:
                    feeds.extend(server.status()["feeds"])
                if is_first:
                    both_are_there.wait()
                is_first = False
            epochs.append(batches)
        return epochs

    found = on_threads(lambda: of(0), lambda: of(1))
    (feed,) = feeds
    assert feed["ranks"] == 2 and sorted(client["rank"] for client in feed["clients"]) == [0, 1]
    here = percolator.Feed(
        tfrecord=numbers, fields=FIELDS, devices=["host:0", "host:1"], epochs=2, **options
    )
    due = [[batch["label"].numpy().tolist() for batch in step] for step in here.steps()]
    for rank in range(2):
        assert [batch for epoch in found[rank] for batch in epoch] == [step[rank] for step in due]
    assert Counter(label for epochs in found for batch in epochs[0] for label in batch) == Counter(range(100))


def test_loaders_in_step_get_all(numbers: str, server: percolator.Server) -> None:
    options: dict[str, Any] = {"shuffle": True, "share": "in_step", "clients": 3}
    here = local(numbers, shuffle=True)
    due = [labels(here) for _ in range(2)]

    def one() -> list[list[list[int]]]:
        remote = loader(server.address, **options)
        return [labels(remote) for _ in range(2)]

    assert on_threads(one, one, one) == [due] * 3


def test_one_that_is_late_joins_the_epoch_that_others_are_in(server: percolator.Server) -> None:
    options: dict[str, Any] = {"share": "windowed", "window": 8}
    first = loader(server.address, **options)
    batches = [label for _ in range(4) for _, label in first]
    assert len(batches) == 52 and first.missed == 0
    late = loader(server.address, **options)
    seen = flat(late)
    # The last of eight that are kept, or the ninth after it.
    assert late.epoch in (3, 4) and seen == list(range(seen[0], 100)) and seen[0] % 8 == 0
    assert flat(late) == list(range(100)), "the next epoch is whole, since nobody else takes from it"
    late.set_epoch(1)
    assert flat(late) == [], "one that is over has nothing"


def test_one_that_is_closed_while_it_waits_has_left(server: percolator.Server) -> None:
    waiting = loader(server.address, share="in_step", clients=2)
    caught: list[percolator.ClosedError] = []

    def wait() -> None:
        with pytest.raises(percolator.ClosedError) as closed:
            next(iter(waiting))
        caught.append(closed.value)

    thread = threading.Thread(target=wait)
    thread.start()
    eventually(lambda: server.status()["feeds"], lambda: "it does not come")
    waiting.close()
    thread.join(HANGS_AFTER)
    eventually(lambda: not server.status()["feeds"], lambda: "it is still counted")
    assert len(caught) == 1


def test_groups_do_not_share(server: percolator.Server) -> None:
    options: dict[str, Any] = {"share": "in_step", "clients": 1}
    begun = [loader(server.address, group=group, **options) for group in ["a", "b"]]
    for one in begun:
        assert next(iter(one))[1].tolist() == list(range(8))
    assert len(server.status()["feeds"]) == 2


@pytest.mark.parametrize("stop", [0, 1, 5, 12, 13, 20])
def test_a_state_goes_on_exactly(numbers: str, server: percolator.Server, stop: int) -> None:
    options = {"shuffle": True, "seed": 11}
    whole = local(numbers, **options)
    expected = [batch for _ in range(3) for batch in labels(whole)]
    begun, seen = loader(server.address, **options), []
    while len(seen) < stop:
        for _, label in begun:
            seen.append(label.tolist())
            if len(seen) == stop:
                break
    state = json.loads(json.dumps(begun.state_dict()))
    assert set(state) == {"version", "ticket", "next", "epoch"}
    resumed = loader(server.address, **options)
    resumed.load_state_dict(state)
    assert len(resumed) == 13
    for epoch in range(begun.epoch, 3):
        resumed.set_epoch(epoch)  # as many loops do; the epoch that was loaded goes on all the same
        seen += labels(resumed)
    assert seen == expected


def test_a_state_may_be_loaded_into_the_same_loader(server: percolator.Server) -> None:
    batches = loader(server.address, shuffle=True)
    iteration = iter(batches)
    next(iteration)
    state = batches.state_dict()
    rest = flat(iteration)
    batches.load_state_dict(state)
    unfinished = iter(batches)
    next(unfinished)
    batches.load_state_dict(state)
    with pytest.raises(percolator.FeedError, match="loaded a state"):
        next(unfinished)
    assert flat(batches) == rest
    batches.load_state_dict(state)
    batches.set_epoch(1)
    assert sorted(flat(batches)) == list(range(100)), "another one is whole"


def test_ranks_go_on_with_their_states(server: percolator.Server) -> None:
    options: dict[str, Any] = {"world_size": 2, "last_batch": "keep", "batch_size": 5, "shuffle": True}

    def begin(rank: int) -> tuple[list[list[int]], dict[str, Any]]:
        with loader(server.address, rank=rank, **options) as begun:
            seen = [label.tolist() for _, (_, label) in zip(range(4), begun)]
            return seen, begun.state_dict()

    def go_on(rank: int, state: dict[str, Any]) -> list[list[int]]:
        with loader(server.address, rank=rank, **options) as resumed:
            resumed.load_state_dict(state)
            return labels(resumed)

    begun = on_threads(lambda: begin(0), lambda: begin(1))
    rest = on_threads(lambda: go_on(0, begun[0][1]), lambda: go_on(1, begun[1][1]))
    seen = Counter(label for part in [begun[0][0], begun[1][0], *rest] for batch in part for label in batch)
    assert seen == Counter(range(100)), "the epoch has every record once"


def test_torch_saves_it_with_the_model(server: percolator.Server) -> None:
    torch = framework("torch")
    batches = loader(server.address, shuffle=True, framework="torch")
    iteration = iter(batches)
    next(iteration)
    file = io.BytesIO()
    torch.save({"model": torch.nn.Linear(2, 2).state_dict(), "loader": batches.state_dict()}, file)
    rest = flat(iteration)
    file.seek(0)
    resumed = loader(server.address, shuffle=True, framework="torch")
    resumed.load_state_dict(torch.load(file, weights_only=True)["loader"])
    assert flat(resumed) == rest


def test_a_state_that_does_not_suit_is_refused(numbers: str, server: percolator.Server) -> None:
    batches = loader(server.address, shuffle=True)
    iteration = iter(batches)
    seen = labels([next(iteration)])
    own = batches.state_dict()
    other = loader(server.address, shuffle=True, batch_size=5).state_dict()
    rank = loader(server.address, shuffle=True, rank=1, world_size=2, last_batch="keep").state_dict()
    group = loader(server.address, shuffle=True, group="a").state_dict()
    with percolator.Server(Path(numbers).parent) as elsewhere:
        key = loader(elsewhere.address, shuffle=True).state_dict()
    for state, message in [
        (other, "is of a loader with batch_size={'per_replica': 5}, and this one has batch_size="),
        (rank, "is of a loader with rank=1, and this one has rank=0"),
        (group, "is of a loader with group=a, and this one has group="),
        (key, "is of a server that has another key"),
        (local(numbers).state_dict(), "is of a loader without server, and this one is with"),
        (None, "the state is NoneType"),
        ({**own, "version": 2}, "the state has version 2"),
        ({**own, "ticket": 7}, "the state's ticket is int"),
        ({**own, "ticket": "percolator1.x"}, "the state's ticket is none"),
        ({**own, "next": [1]}, "the state's next is"),
        ({**own, "epoch": "0"}, "the state's epoch is str"),
    ]:
        with pytest.raises(percolator.SnapshotError, match=message) as caught:
            batches.load_state_dict(state)
        assert caught.value.reason
    assert seen + labels(iteration) == labels(local(numbers, shuffle=True))
    with pytest.raises(percolator.SnapshotError, match="is of a loader with server, and this one is without"):
        local(numbers).load_state_dict(own)
    # What only concerns how much is prefetched is not part of it.
    widened = loader(server.address, shuffle=True, prefetch=9, memory_limit=1 << 30)
    widened.load_state_dict(own)
    assert len(flat(widened)) == 92
    # A position that nobody signed is found by the server.
    parts = own["ticket"].split(".")
    forged = ".".join([*parts[:3], "0-3", parts[4]])
    batches.load_state_dict({**own, "ticket": forged})
    with pytest.raises(percolator.SnapshotError, match="not signed with this server's key"):
        next(iter(batches))


def connects_again() -> threading.Event:
    """Is set when a loader notices that its server is gone."""
    noticed = threading.Event()

    class Notice(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            if "connects again" in record.getMessage():
                noticed.set()
            return True

    notice = Notice()
    logging.getLogger("percolator").addFilter(notice)
    return noticed


def test_a_server_may_end_and_come_back(numbers: str, tmp_path: Path) -> None:
    folder, socket, key = Path(numbers).parent, tmp_path / "s", tmp_path / "key"
    servers = [percolator.Server(folder, unix=socket, key=key)]
    noticed = connects_again()

    def come_back() -> None:
        assert noticed.wait(HANGS_AFTER)
        servers.append(percolator.Server(folder, unix=socket, key=key))

    remote, seen = loader(servers[0].address, shuffle=True), []
    comes_back = threading.Thread(target=come_back)
    for number, (_, label) in enumerate(remote):
        seen.append(label.tolist())
        if number == 4:
            servers[0].close()
            comes_back.start()
    comes_back.join()
    assert seen == labels(local(numbers, shuffle=True)) and len(servers) == 2
    # With its key, it also takes what was saved before.
    state = remote.state_dict()
    servers[1].close()
    with percolator.Server(folder, unix=socket, key=key) as third:
        resumed = loader(third.address, shuffle=True)
        resumed.load_state_dict(state)
        assert sorted(flat(resumed)) == list(range(100)) and resumed.epoch == 1


def test_a_server_that_does_not_come_back_is_an_error(numbers: str, tmp_path: Path) -> None:
    folder, socket, key = Path(numbers).parent, tmp_path / "s", tmp_path / "key"
    first = percolator.Server(folder, unix=socket, key=key)
    remote, seen = loader(first.address, shuffle=True, give_up_after=0.05), []
    iteration = iter(remote)
    with pytest.raises(percolator.ServerError, match="gave no batch for .*, and the lane gave up") as caught:
        for _, label in iteration:
            seen.append(label.tolist())
            first.close()
    assert caught.value.reason and 1 <= len(seen) < 13
    with pytest.raises(percolator.ServerError):
        next(iteration)
    # The epoch is not over, and the next loop has the rest of it.
    with percolator.Server(folder, unix=socket, key=key):
        assert seen + labels(remote) == labels(local(numbers, shuffle=True))


def test_a_drain_lets_a_loader_go_on_elsewhere(numbers: str, tmp_path: Path) -> None:
    folder, key = Path(numbers).parent, tmp_path / "key"
    first = percolator.Server(folder, key=key)
    remote = loader(first.address, shuffle=True, give_up_after=0.05)
    ends = threading.Thread(target=lambda: first.close(drain=HANGS_AFTER))
    seen = []

    def is_ending() -> bool:
        try:
            return bool(first.status()["is_draining"])
        except percolator.ClosedError:
            return True

    with pytest.raises(percolator.ServerError):
        for _, label in remote:
            seen.append(label.tolist())
            if len(seen) == 1:
                ends.start()
                eventually(is_ending, lambda: "it does not end")
    remote.close()
    ends.join(HANGS_AFTER)
    assert first.closed
    with percolator.Server(folder, key=key) as second:
        resumed = loader(second.address, shuffle=True)
        resumed.load_state_dict(remote.state_dict())
        assert seen + labels(resumed) == labels(local(numbers, shuffle=True))


def test_a_feed_goes_on_at_the_next_of_several_servers(numbers: str, tmp_path: Path) -> None:
    key = tmp_path / "key"
    servers = [percolator.Server(Path(numbers).parent, key=key) for _ in range(2)]
    with servers[0], servers[1]:
        remote = loader(", ".join(server.address for server in servers), shuffle=True)
        seen = []
        for _, label in remote:
            seen.append(label.tolist())
            if len(seen) == 1:
                (busy,) = [server for server in servers if server.status()["feeds"]]
                busy.close()
        assert seen == labels(local(numbers, shuffle=True))


def test_tokens(numbers: str) -> None:
    with percolator.Server(Path(numbers).parent, token=["first", "second"]) as server:
        assert len(flat(loader(server.address, token="second"))) == 100
        for token, message in [("third", "does not know the token"), (None, "this server wants a token")]:
            with pytest.raises(percolator.ServerError, match=message) as caught:
                loader(server.address, token=token)
            assert message in str(caught.value.reason)
        with pytest.raises(percolator.ConfigError, match="characters that cannot be sent"):
            loader(server.address, token="one\ntwo")


def test_errors_have_the_servers_words(numbers: str, server: percolator.Server, tmp_path: Path) -> None:
    root = Path(numbers).parent
    outside = write_numbers(tmp_path.parent / f"{tmp_path.name}-outside.tfrecord", 3)
    (root / "link.tfrecord").symlink_to(outside)
    for path, message in [
        (outside, "is not below the folder that this server serves"),
        ("../outside.tfrecord", "is not below the folder that this server serves"),
        ("link.tfrecord", "leads out of the folder that this server serves, by a link"),
        ("none.tfrecord", "none.tfrecord: No such file or directory"),
    ]:
        with pytest.raises(percolator.SourceError, match=message) as caught:
            loader(server.address, path)
        assert server.address in str(caught.value) and server.address not in str(caught.value.reason)
    with pytest.raises(percolator.ConfigError, match="batch"):
        loader(server.address, batch_size=0)
    with pytest.raises(percolator.RecordError, match='"y"'):
        list(loader(server.address, fields="y:i64[4]", names=None))
    with percolator.Server(root, memory_limit=1) as small:
        with pytest.raises(percolator.FeedError, match="memory"):
            next(iter(loader(small.address)))
    closed = percolator.Server(root, unix=tmp_path / "s")
    closed.close()
    with pytest.raises(percolator.ServerError, match="cannot connect to grpc.unix.*: is a server listening"):
        loader(closed.address)
    for address, message in [
        ("localhost", "is no address of a server .it has no scheme."),
        ("http://localhost:1", "is no address of a server .its scheme is another."),
        ("grpc+tls://localhost:1", "name who signed its certificate, a PEM file, by `authorities`"),
    ]:
        with pytest.raises(percolator.ConfigError, match=message):
            loader(address)


def test_damage_is_told_after_the_batches_before_it(numbers: str, server: percolator.Server) -> None:
    content = bytearray(Path(numbers).read_bytes())
    content[-20] ^= 0xFF
    Path(numbers).write_bytes(content)
    seen = []
    with pytest.raises(percolator.RecordError, match="numbers.tfrecord.*the file is damaged"):
        for _, label in loader(server.address):
            seen += label.tolist()
    assert seen == list(range(96)), "all batches before the last"


def decode(record: percolator.Record) -> dict[str, int]:
    return {"index": record.index}


def test_what_cannot_be_sent_is_said(numbers: str, server: percolator.Server) -> None:
    for options, message in [
        ({"decode": decode, "fields": None}, "decode is set, and so is server: a function of Python"),
        ({"resume": "x"}, "resume is set, and so is server: .*use load_state_dict"),
        ({"threads": 2}, "threads is set, and so is server: the server has threads"),
        ({"index": "memory"}, "index is set, and so is server"),
        ({"policy": "file"}, "policy is set, and so is server"),
        ({"receipts": True}, "receipts are kept where records are read"),
        ({"devices": "cuda"}, "devices=\"cuda\", and server is set: a server's batches come to the host"),
        ({"devices": ["host:0", "host:1"]}, "a loader has one device, and was given 2"),
        ({"transform_on": "device"}, "a server transforms on its host"),
        ({"bad_records": {"action": "skip", "quarantine": "q"}}, "a server writes no files"),
        ({"share": "equal"}, 'share="equal": there are "divided", "in_step" and "windowed"'),
        ({"share": "in_step"}, 'share="in_step" without clients'),
        ({"share": "in_step", "clients": 0}, "clients=0: give 1 or more"),
        ({"clients": 2}, 'set share="in_step" as well'),
        ({"share": "in_step", "clients": 2, "window": 3}, 'set share="windowed" as well'),
        ({"rank": 1}, "nothing says how many there are"),
        ({"rank": 1, "environment": False}, "rank and world_size belong together"),
        ({"rank": 2, "world_size": 2}, "no (rank|process) 2"),
    ]:
        with pytest.raises(percolator.ConfigError, match=message):
            loader(server.address, **options)
    spec = percolator.Feed(tfrecord=numbers, decode=decode).spec()
    with pytest.raises(percolator.ConfigError, match="the spec names a decoder or a source of a program"):
        percolator.DataLoader.from_spec(spec, server=server.address)
    with pytest.raises(TypeError, match=r"DataLoader\(\) has no keyword .shufle. \(did you mean"):
        loader(server.address, shufle=True)
    for name, value in [("share", "divided"), ("token", "x"), ("group", "x")]:
        with pytest.raises(percolator.ConfigError, match=f"{name} is set without server"):
            local(numbers, **{name: value})


def test_what_is_elsewhere_is_not_here(server: percolator.Server) -> None:
    remote = loader(server.address)
    for use in [lambda: remote.feed, remote.stats]:
        with pytest.raises(percolator.FeedError, match="is of a feed that runs here, and this loader's"):
            use()
    assert remote.receipt() is None and remote.missed == 0
    assert len(loader(server.address, fields="label:i64", names=["label"])) == 13
    remote.close()
    with pytest.raises(percolator.ClosedError, match="the feed is closed"):
        iter(remote)


def test_a_length_that_nobody_knows_is_no_length(numbers: str, server: percolator.Server) -> None:
    write_numbers(Path(numbers).parent / "others.tfrecord", 50)
    mixed = loader(server.address, tfrecord=["numbers.tfrecord", "others.tfrecord"], mix=[1, 1])
    with pytest.raises(TypeError, match="does not know the number of steps"):
        len(mixed)
    assert len(list(mixed)) > 13


def test_a_share_that_nobody_asked_for_is_said(
    server: percolator.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_NTASKS", "4")
    monkeypatch.setenv("SLURM_PROCID", "0")
    with pytest.warns(UserWarning, match="this is process 0 of 4"):
        assert len(loader(server.address, batch_size=5)) == 5
    with pytest.warns(UserWarning, match="the last step of an epoch has"):
        loader(server.address, batch_size=9, environment=True)
    # Those who get everything have no shares.
    assert len(loader(server.address, batch_size=5, share="windowed")) == 20


def test_ctrl_c_ends_a_wait_and_loses_nothing(numbers: str) -> None:
    script = """
        import sys, threading, pathlib
        import percolator

        numbers = pathlib.Path(sys.argv[1])
        server = percolator.Server(numbers.parent)

        def loader():
            return percolator.DataLoader(
                server=server.address, share="in_step", clients=2, tfrecord=numbers.name, fields="label:i64",
                batch_size=8, framework="numpy",
            )

        def announce():
            while server.status()["streams_total"] == 0:
                pass
            print("waiting", flush=True)

        threading.Thread(target=announce, daemon=True).start()
        batches, seen = iter(loader()), []
        try:
            for label, in batches:
                seen += label.tolist()
        except KeyboardInterrupt:
            print("interrupted after", len(seen), flush=True)
        others = []
        thread = threading.Thread(target=lambda: others.extend(label.tolist() for label, in loader()))
        thread.start()
        for label, in batches:
            seen += label.tolist()
        thread.join()
        assert seen == list(range(100)) == sum(others, []), (seen, others)
        print("complete", flush=True)
    """
    child = interruptible(script, numbers)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "waiting\n"
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=HANGS_AFTER)
    finally:
        child.kill()
    assert (child.returncode, out) == (0, "interrupted after 0\ncomplete\n"), err


def test_a_program_may_end_while_it_waits(numbers: str) -> None:
    script = """
        import sys, threading, pathlib
        import percolator

        numbers = pathlib.Path(sys.argv[1])
        server = percolator.Server(numbers.parent)
        loader = percolator.DataLoader(
            server=server.address, share="in_step", clients=2, tfrecord=numbers.name, fields="label:i64"
        )
        def announce():
            while server.status()["streams_total"] == 0:
                pass
            print("waiting", flush=True)

        threading.Thread(target=announce, daemon=True).start()
        next(iter(loader))
    """
    child = interruptible(script, numbers)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "waiting\n"
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=HANGS_AFTER)
    finally:
        child.kill()
    assert child.returncode == -signal.SIGINT and "KeyboardInterrupt" in err, (child.returncode, err)


@pytest.fixture
def shared(numbers: str, tmp_path: Path) -> Any:
    """The address at which batches are read in the server's memory."""
    socket = tmp_path / "s"
    with percolator.Server(Path(numbers).parent, unix=socket) as server:
        assert server.address == f"grpc+unix://{socket}"
        yield f"shared://{socket}"


def test_memory_of_the_server_is_read_only(numbers: str, shared: str) -> None:
    remote, here = loader(shared, shuffle=True), local(numbers, shuffle=True)
    for _ in range(2):
        assert as_bytes(remote) == as_bytes(here)
    fields: list[percolator.Field] = []
    remote = loader(shared, fields="x as y:i32[4]", names=["y"])
    remote._convert = fields.append
    next(iter(remote))
    # Wherever it stands among several addresses.
    elsewhere = loader(f"grpc+unix://{shared.removeprefix('shared://')}, {shared}")
    assert not next(iter(elsewhere))[0].flags.writeable
    (field,) = fields
    expected = numpy.arange(32).reshape(8, 4).tolist()
    for array in [field.numpy(), numpy.from_dlpack(field)]:
        assert array.ctypes.data == field.address and array.tolist() == expected
        assert not array.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            array[:] = 0
        array.copy()[:] = 0
    copy = numpy.from_dlpack(field, copy=True)
    copy[:] = 0
    # Those who do not know that memory may be read only do not get it.
    with pytest.raises(BufferError, match="is a server's memory, which is only read"):
        field.__dlpack__()
    for name in ["torch", "jax", "tensorflow"]:
        try:
            framework(name)
        except pytest.skip.Exception:
            continue
        array = getattr(field, name)()
        assert numpy.asarray(array).tolist() == expected
        if name == "torch":
            assert array.data_ptr() == field.address
            array.clone().zero_()
        if name == "jax":
            assert array.unsafe_buffer_pointer() == field.address
    assert field.numpy().tolist() == expected


def test_a_loop_that_collects_the_servers_memory_is_told(shared: str) -> None:
    remote = loader(shared, prefetch=3, give_up_after=0.2)
    kept = []
    with pytest.raises(percolator.AllHeldError, match="of the server's memory are held here") as caught:
        for x, _ in remote:
            kept.append(x)
    assert "copy=True" in str(caught.value) and len(kept) == 3
    assert [x.ravel().tolist() for x in kept] == [
        list(range(32 * number, 32 * number + 32)) for number in range(len(kept))
    ]
    copies = loader(shared, copy=True)
    assert [len(x) for x in [x for x, _ in copies]] == [8] * 12 + [4]


def test_a_server_says_what_it_does(numbers: str, tmp_path: Path) -> None:
    root = Path(numbers).parent
    with percolator.Server(root, "127.0.0.1:0", unix=tmp_path / "s", threads=1, window=2) as server:
        assert len(server.addresses) == 2 and server.addresses[0] == server.address
        assert server.address.startswith("grpc://") and server.addresses[1] == f"grpc+unix://{tmp_path}/s"
        assert repr(server) == f"Server({', '.join(server.addresses)})"
        remote = loader(server.address, shuffle=True)
        next(iter(remote))
        (feed,) = server.status()["feeds"]
        assert feed["ranks"] == 1 and feed["clients"][0]["unacknowledged"] >= 1
        for address in server.addresses:
            assert len(flat(loader(address))) == 100
    assert server.closed
    server.close()
    with pytest.raises(percolator.ClosedError, match="the server is closed"):
        server.status()
    with pytest.raises(TypeError, match="send its address"):
        pickle.dumps(server)


def test_a_server_that_cannot_be_says_why(numbers: str, tmp_path: Path) -> None:
    root = Path(numbers).parent
    for arguments, options, error, message in [
        ([root / "none"], {}, percolator.ConfigError, "cannot serve .*none"),
        ([root, "0.0.0.0:0"], {}, percolator.ConfigError, "or set insecure=True"),
        ([root, "here"], {}, percolator.ConfigError, 'listen="here": .*give "HOST:PORT"'),
        ([root], {"window": 0}, percolator.ConfigError, "window=0: give 1 or more"),
        ([root], {"patience": -1.0}, percolator.ConfigError, "patience=-1"),
        ([root], {"certificate": "c.pem"}, percolator.ConfigError, "certificate and private_key belong"),
        ([root], {"certificate": "c", "private_key": "k"}, percolator.ServerError, "c: "),
        ([root], {"key": root}, percolator.ServerError, "key"),
        ([root], {"unix": root / "no" / "s"}, percolator.ServerError, "cannot listen at the socket"),
        ([root], {"tokens": "x"}, TypeError, r"Server\(\) has no keyword .tokens. \(did you mean"),
    ]:
        with pytest.raises(error, match=message):
            percolator.Server(*arguments, **options)
    with percolator.Server(root, "0.0.0.0:0", insecure=True) as server:
        port = server.address.rsplit(":", 1)[1]
        assert len(flat(loader(f"grpc://127.0.0.1:{port}"))) == 100
