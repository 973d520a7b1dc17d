"""Decoders written in Python: what they return becomes fields, what they raise the error of the record."""

from __future__ import annotations

import gc
import io
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import numpy
import pytest
from conftest import HANGS_AFTER, framework, run_script

import percolator


def feed(numbers: str, decode: Any, **options: Any) -> percolator.Feed:
    defaults = {"tfrecord": numbers, "decode": decode, "batch_size": 10, "epochs": 1}
    return percolator.Feed(**{**defaults, **options})


def test_fields_are_those_of_the_first_record(numbers: str) -> None:
    def decode(record: percolator.Record) -> dict[str, Any]:
        return {
            "image": numpy.full((2, 3), record.index, numpy.uint8),
            "index": record.index,
            "half": record.index / 2,
            "is_even": record.index % 2 == 0,
            "raw": bytes([record.index, 7]),
            "pose": numpy.float64(record.index),
        }

    running = feed(numbers, decode)
    assert running.fields == {
        "image": ("u8", (2, 3)),
        "index": ("i64", ()),
        "half": ("f32", ()),
        "is_even": ("bool", ()),
        "raw": ("u8", (2,)),
        "pose": ("f64", ()),
    }
    seen = 0
    for batch in running:
        for row in range(10):
            assert (batch["image"].numpy()[row] == seen).all()
            assert batch["index"].numpy()[row] == seen and batch["half"].numpy()[row] == seen / 2
            assert batch["is_even"].numpy()[row] == (seen % 2 == 0)
            assert batch["raw"].numpy()[row].tolist() == [seen, 7] and batch["pose"].numpy()[row] == seen
            seen += 1
    assert seen == 100


def test_declared_fields_take_any_array(numbers: str) -> None:
    torch = framework("torch")
    makers = [
        lambda index: numpy.full((2, 2), index, numpy.float32),
        lambda index: torch.full((2, 2), index, dtype=torch.float32),
        lambda index: numpy.full((2, 2), index, numpy.float32).T[::-1],
        lambda index: memoryview(numpy.full((2, 2), index, numpy.float32)),
        lambda index: numpy.full((2, 2), index, numpy.float32).tobytes(),
        lambda index: bytearray(numpy.full((2, 2), index, numpy.float32)),
    ]
    for make in makers:
        running = feed(
            numbers,
            lambda record: {"x": make(record.index), "y": record.index},
            decode_fields={"x": ("float32", (2, 2)), "y": numpy.int16},
        )
        assert running.fields == {"x": ("f32", (2, 2)), "y": ("i16", ())}
        rows = [row for batch in running for row in batch["x"].numpy().tolist()]
        assert rows == [[[index] * 2] * 2 for index in range(100)]


def test_lengths_may_vary(numbers: str) -> None:
    running = feed(
        numbers,
        lambda record: {"t": list(range(record.index % 5)), "p": numpy.arange(record.index % 3, dtype="i4")},
        decode_fields="t:i64[<=4],p:i32[<=2]=-1",
    )
    batch = next(iter(running))
    assert batch.keys() == ["t", "t.offsets", "p", "p.lengths"]
    offsets = batch["t.offsets"].numpy()
    assert [batch["t"].numpy()[start:end].tolist() for start, end in zip(offsets, offsets[1:])] == [
        list(range(index % 5)) for index in range(10)
    ]
    assert batch["p"].numpy()[:3].tolist() == [[-1, -1], [0, -1], [0, 1]]


def test_a_record_says_what_it_is(numbers: str) -> None:
    seen: dict[tuple[int, int], tuple[bytes, int]] = {}

    def decode(record: percolator.Record) -> dict[str, int]:
        assert isinstance(record.key, bytes) and isinstance(record.value, bytes) and record.companion is None
        seen[record.epoch, record.index] = (record.value, record.seed)
        return {"x": 0}

    for batch in feed(numbers, decode, epochs=2, seed=7, shuffle=True, threads=2):
        pass
    first = dict(seen)
    assert set(first) == {(epoch, index) for epoch in range(2) for index in range(100)}
    assert len({seed for _, seed in first.values()}) == 200, "each record and epoch has its own numbers"
    for batch in feed(numbers, decode, epochs=2, seed=7, shuffle=True, threads=1, batch_size=3):
        pass
    assert seen == first, "and the same ones every time"


def test_an_exception_is_the_errors_cause(numbers: str) -> None:
    def decode(record: percolator.Record) -> dict[str, int]:
        if record.index == 42:
            raise LookupError("no such thing")
        return {"x": record.index}

    with pytest.raises(percolator.RecordError, match="decode raised LookupError: no such thing") as caught:
        for _ in feed(numbers, decode):
            pass
    error = caught.value
    assert isinstance(error.__cause__, LookupError) and error.__cause__.__traceback__ is not None
    assert error.record == 42 and str(error.file) == numbers and error.key is not None
    assert 'raise LookupError("no such thing")' in str(error), "the traceback is part of the message"


@pytest.mark.parametrize("shuffle", [False, True])
def test_the_cause_is_there_if_all_records_fail(numbers: str, shuffle: bool) -> None:
    def decode(record: percolator.Record) -> dict[str, int]:
        raise LookupError(record.index)

    options = {"batch_size": 50, "threads": 4, "shuffle": shuffle, "prefetch": 8, "decode_fields": "x:i64"}
    for _ in range(10):
        with pytest.raises(percolator.RecordError) as caught:
            next(iter(feed(numbers, decode, epochs=4, **options)))
        cause = caught.value.__cause__
        assert isinstance(cause, LookupError) and cause.args == (caught.value.record,)


def test_an_exception_of_the_first_record_fails_the_build(numbers: str) -> None:
    with pytest.raises(percolator.FeedError, match="decode raised ZeroDivisionError") as caught:
        feed(numbers, lambda record: {"x": 1 // 0})
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("first", [True, False])
def test_a_request_to_end_the_program_is_passed_on(numbers: str, first: bool) -> None:
    def decode(record: percolator.Record) -> dict[str, int]:
        if first or record.index == 3:
            raise SystemExit("leave")
        return {"x": record.index}

    with pytest.raises(SystemExit, match="leave"):
        list(batch.size for batch in feed(numbers, decode, batch_size=1))


def test_a_feed_that_only_its_decoder_refers_to_is_collected(numbers: str) -> None:
    class Trainer:
        def __init__(self) -> None:
            self.feed = feed(numbers, self.decode, threads=1)
            self.batches, self.lanes = iter(self.feed), []

        def decode(self, record: percolator.Record) -> dict[str, int]:
            return {"x": record.index}

    for uses in [lambda t: None, lambda t: next(t.batches), lambda t: t.lanes.extend(t.feed.take_lanes())]:
        trainer = Trainer()
        uses(trainer)
        gone = weakref.ref(trainer)
        del trainer
        gc.collect()
        assert gone() is None
    # While an iterator is held, everything it needs stays.
    trainer = Trainer()
    batches = trainer.batches
    del trainer
    gc.collect()
    assert sum(batch.size for batch in batches) == 100


def test_a_feed_whose_decoder_raised_is_collected(numbers: str) -> None:
    class Trainer:
        def __init__(self) -> None:
            self.feed = feed(numbers, self.decode, threads=1)

        def decode(self, record: percolator.Record) -> dict[str, int]:
            if record.index == 3:
                # The traceback has this frame, which has the trainer, which has the feed.
                raise ValueError("no")
            return {"x": record.index}

    trainer = Trainer()
    with pytest.raises(percolator.RecordError) as caught:
        list(trainer.feed)
    assert isinstance(caught.value.__cause__, ValueError)
    gone = weakref.ref(trainer)
    del trainer, caught
    gc.collect()
    assert gone() is None


WRONG = [
    (lambda record: 7, "decode returned <class 'int'>; it returns a dict"),
    (lambda record: {"y": 1}, r'decode returned no field "x"; it returned \[\'y\'\]'),
    (lambda record: {"x": 1, "y": 2}, "of which some are not among the batch's: x"),
    (lambda record: {"x": 1.5}, 'field "x" takes i32, but decode returned 1.5'),
    (lambda record: {"x": 2**40}, 'field "x" takes i32, but decode returned 1099511627776'),
    (lambda record: {"x": numpy.int64(1)}, 'field "x" takes i32, but decode returned i64'),
    (lambda record: {"x": numpy.zeros(2, numpy.int32)}, r"takes another shape than the \[2\]"),
    (lambda record: {"x": b"123"}, r'field "x" holds i32, of 4 bytes each, but was given 3 byte\(s\)'),
    (lambda record: {"x": b"1234" * 2}, r'field "x" takes exactly 1 element\(s\) a record, but was given 2'),
    (lambda record: {"x": "text"}, 'decode returned <class .str.> for "x"|decode returned str for "x"'),
    (lambda record: {"x": numpy.array([1], ">i4")}, 'elements of the type ">i"'),
    (lambda record: {"x": None}, 'decode returned NoneType for "x"'),
]


@pytest.mark.parametrize("decode, message", WRONG, ids=range(len(WRONG)))
def test_what_does_not_fit_its_field(numbers: str, decode: Any, message: str) -> None:
    with pytest.raises(percolator.RecordError, match=message):
        next(iter(feed(numbers, decode, decode_fields={"x": "int32"})))


INFINITE, INEXACT = "and would be infinite", "does not have this integer, and would make "
CHANGED = [
    ("f16", 1e10, INFINITE),
    ("f16", -65520, INFINITE),
    ("bf16", 3.4e38, INFINITE),
    ("f32", 1e300, INFINITE),
    ("f64", 10**400, "int too large to convert to float"),
    ("f16", 2049, INEXACT),
    ("bf16", 257, INEXACT),
    ("f32", 2**24 + 1, INEXACT),
    ("f64", 2**53 + 1, INEXACT),
]


@pytest.mark.parametrize("dtype, value, message", CHANGED, ids=lambda value: str(value)[:20])
def test_a_number_does_not_become_another(numbers: str, dtype: str, value: Any, message: str) -> None:
    for made, fields in [(value, {"x": dtype}), ([0, value], {"x": (dtype, 2)})]:
        with pytest.raises(percolator.RecordError, match=rf'field "x" takes {dtype}, .*{message}'):
            next(iter(feed(numbers, lambda record: {"x": made}, decode_fields=fields)))


def test_a_number_is_rounded_to_the_nearest(numbers: str) -> None:
    made = [0.1, 65504, float("inf"), float("-inf"), float("nan"), 2048, float(2049)]
    for dtype in ["float16", "float32", "float64"]:
        fields = {"x": (dtype, len(made))}
        batch = next(iter(feed(numbers, lambda record: {"x": made}, decode_fields=fields)))
        numpy.testing.assert_array_equal(batch["x"].numpy()[0], numpy.array(made, dtype))


def test_a_list_is_not_guessed(numbers: str) -> None:
    with pytest.raises(percolator.FeedError, match='decode returned a list for "x"'):
        feed(numbers, lambda record: {"x": [1, 2]})


def test_workers_share_the_interpreter_with_the_consumer(numbers: str) -> None:
    """Whoever waits for a worker lets it have the interpreter: no deadlock, whichever end drops first."""
    threads = set()

    def decode(record: percolator.Record) -> dict[str, int]:
        threads.add(threading.get_ident())
        return {"x": record.index}

    for batches in range(30):
        running = feed(numbers, decode, threads=4, batch_size=1, epochs=0)
        for _ in range(batches):
            next(iter(running))
        if batches % 3 == 0:
            running.close()
        elif batches % 3 == 1:
            running.seek(5, 50)
            assert next(iter(running)).records == [(5, 50)]
        del running
    assert len(threads - {threading.get_ident()}) > 1, "it ran on the workers"


def test_a_program_may_end_while_workers_decode(numbers: str) -> None:
    for end in ["", "sys.exit(0)", "import os, signal; os.kill(os.getpid(), signal.SIGINT)"]:
        script = f"""
            import sys, percolator
            kept = []
            def decode(record):
                return {{"x": sum(range(1000))}}
            for _ in range(3):
                feed = percolator.Feed(tfrecord=sys.argv[1], decode=decode, batch_size=1, threads=4, epochs=0)
                kept += [feed, next(iter(feed))]
                kept += feed.take_lanes() if _ == 2 else []
            try:
                {end or "pass"}
            except KeyboardInterrupt:
                pass
        """
        run_script(script, numbers)


def test_a_decoder_is_attached_to_a_spec_again(numbers: str) -> None:
    def decode(record: percolator.Record) -> dict[str, int]:
        return {"x": record.index}

    spec = feed(numbers, decode).spec()
    with pytest.raises(percolator.ConfigError, match="decoder was attached by the program"):
        percolator.Feed.from_spec(spec)
    assert sum(batch.size for batch in percolator.Feed.from_spec(spec, decode=decode)) == 100


def test_folders_of_files_may_be_several(tmp_path: Path) -> None:
    for shard in range(3):
        with percolator.TfRecordWriter(tmp_path / f"shard-{shard}.tfrecord") as out:
            for record in range(4):
                out.write(bytes([shard, record]))

    def decode(record: percolator.Record) -> dict[str, int]:
        return {"shard": record.value[0], "record": record.value[1]}

    paths = sorted(tmp_path.glob("*.tfrecord"))
    for tfrecord in [paths, str(tmp_path / "shard-*.tfrecord"), tmp_path]:
        batch = next(iter(percolator.Feed(tfrecord=tfrecord, decode=decode, batch_size=12, once=True)))
        assert batch["shard"].numpy().tolist() == [0] * 4 + [1] * 4 + [2] * 4


class Numbers:
    """Reads the number of each record from one shared file, and notes how many calls run at once."""

    def __init__(self, folder: Path) -> None:
        path = folder / "shared.bin"
        path.write_bytes(numpy.arange(100, dtype="<u4").tobytes())
        self.file = path.open("rb", buffering=0)
        self.inside, self.most, self.calls = 0, 0, 0

    def decode(self, record: percolator.Record) -> dict[str, int]:
        self.inside, self.calls = self.inside + 1, self.calls + 1
        self.most = max(self.most, self.inside)
        self.file.seek(4 * record.index)
        # Lets go of the interpreter, as reading a file does.
        time.sleep(0.0001)
        number = int.from_bytes(self.file.read(4), "little")
        self.inside -= 1
        return {"number": number, "index": record.index}


def test_calls_come_one_after_the_other(numbers: str, tmp_path: Path) -> None:
    shared = Numbers(tmp_path)
    for batch in feed(numbers, shared.decode, threads=4, batch_size=3):
        assert batch["number"].numpy().tolist() == batch["index"].numpy().tolist()
    assert shared.most == 1 and shared.calls >= 100


def test_feeds_whose_decoders_are_methods_of_one_object_take_turns(numbers: str, tmp_path: Path) -> None:
    shared = Numbers(tmp_path)
    two = [feed(numbers, shared.decode, threads=2, batch_size=3) for _ in range(2)]
    for one, other in zip(*two):
        for batch in one, other:
            assert batch["number"].numpy().tolist() == batch["index"].numpy().tolist()
    assert shared.most == 1


def test_calls_overlap_if_that_is_said(numbers: str) -> None:
    entered, both = 0, threading.Condition()

    def decode(record: percolator.Record) -> dict[str, int]:
        nonlocal entered
        with both:
            entered += 1
            both.notify_all()
            assert both.wait_for(lambda: entered >= 2, HANGS_AFTER), "a second call begins before this ends"
        return {"x": record.index}

    options = {"decode_fields": {"x": "i64"}, "threads": 2, "batch_size": 1, "decode_overlaps": True}
    assert [batch["x"].numpy()[0] for batch in feed(numbers, decode, **options)] == list(range(100))


FILE = io.BytesIO(b"shared")


def test_an_open_file_is_not_shared_by_calls_that_overlap(numbers: str, tmp_path: Path) -> None:
    inner = io.BytesIO(b"shared")

    def encloses(record: percolator.Record) -> dict[str, int]:
        return {"x": inner.read(1)[0]}

    def uses(record: percolator.Record) -> dict[str, int]:
        return {"x": FILE.read(1)[0]}

    for decode, name in [(Numbers(tmp_path).decode, "file"), (encloses, "inner"), (uses, "FILE")]:
        with pytest.raises(percolator.ConfigError, match=f'decode has the open file "{name}"'):
            feed(numbers, decode, decode_overlaps=True)
    with pytest.raises(percolator.ConfigError, match="decode_overlaps is set without decode"):
        percolator.Feed(tfrecord=numbers, decode_overlaps=True)


class Both:
    """An object of which both methods decode."""

    def __init__(self) -> None:
        self.use: Any = None
        self.decoded: list[int] = []

    def inner(self, record: percolator.Record) -> dict[str, int]:
        self.decoded.append(record.index)
        return {"x": record.index}

    def outer(self, record: percolator.Record) -> dict[str, int]:
        self.use()
        return {"x": record.index}


def test_a_function_that_would_wait_for_itself_is_an_error(numbers: str) -> None:
    both, other = Both(), Both()
    declared = {"decode_fields": {"x": "i64"}, "threads": 1}
    for is_own, inner in [(True, both.inner), (False, other.inner)]:
        read = feed(numbers, inner, **declared)
        lane = feed(numbers, inner, **declared).take_lanes()[0]
        for use in [
            lambda: next(iter(read)),
            lambda: next(lane),
            lambda: read.replay(0, 0),
            lambda: read.seek(0, 1),
            lambda: lane.close(),
            lambda: feed(numbers, inner, **declared).close(),
        ]:
            both.use = use
            outer = iter(feed(numbers, both.outer, batch_size=1, **declared))
            if is_own:
                with pytest.raises(percolator.RecordError, match="would wait for itself") as caught:
                    next(outer)
                assert isinstance(caught.value.__cause__, percolator.FeedError)
            else:
                assert next(outer)["x"].numpy().tolist() == [0]


@pytest.mark.parametrize("end", ["close", "drop", "drop of a lane"])
def test_a_feed_ends_within_the_function_that_its_own_waits_for(numbers: str, end: str) -> None:
    both, begun, go_on = Both(), threading.Event(), threading.Event()
    inner: list[Any] = []

    def use() -> None:
        begun.set()
        assert go_on.wait(HANGS_AFTER)
        if inner and end == "close":
            inner.pop().close()
        inner.clear()

    both.use = use
    declared = {"decode_fields": {"x": "i64"}, "threads": 1}
    outer = iter(feed(numbers, both.outer, batch_size=1, **declared))
    assert begun.wait(HANGS_AFTER)
    # Its worker waits for the turn that the other feed's worker has.
    inner.append(feed(numbers, both.inner, **declared))
    if end == "drop of a lane":
        inner[:] = inner[0].take_lanes()
    go_on.set()
    assert next(outer)["x"].numpy().tolist() == [0]
    assert both.decoded == [], "a worker that a close wakes decodes nothing"


@pytest.mark.parametrize("overlaps", [False, True])
def test_a_close_ends_after_the_records_at_hand(numbers: str, overlaps: bool) -> None:
    go_on, calls = threading.Event(), []

    def decode(record: percolator.Record) -> dict[str, int]:
        calls.append(record.index)
        if record.index > 0:
            assert go_on.wait(HANGS_AFTER)
        return {"x": record.index}

    options = {"decode_fields": {"x": "i64"}, "threads": 3, "prefetch": 20, "decode_overlaps": overlaps}
    running = feed(numbers, decode, batch_size=4, **options)
    while not any(calls):
        time.sleep(0.001)
    closes = threading.Thread(target=running.close)
    closes.start()
    while not running.closed:
        time.sleep(0.001)
    begun = len(calls)
    go_on.set()
    closes.join()
    # A thread that had looked before the close waits for the interpreter.
    assert len(calls) <= begun + 3 <= 7, "at most one more for each thread"


def test_the_end_of_a_program_does_not_wait_for_what_is_still_to_come(numbers: str) -> None:
    script = """
        import atexit, sys, threading, time
        calls, begun, go_on = [], [], threading.Event()
        # What is registered later runs first: the feed is closed before this.
        atexit.register(lambda: print(len(calls) <= begun[0] + 2, len(calls) <= 4))
        import percolator
        def decode(record):
            calls.append(record.index)
            go_on.wait()
            return {"x": record.index}
        def release():
            while not feed.closed:
                time.sleep(0.001)
            begun.append(len(calls))
            go_on.set()
        feed = percolator.Feed(
            tfrecord=sys.argv[1], decode=decode, decode_fields="x:i64", batch_size=1, prefetch=90, threads=2
        )
        threading.Thread(target=release, daemon=True).start()
        while not calls:
            time.sleep(0.001)
    """
    assert run_script(script, numbers) == "True True\n"


def test_views_of_bytes_are_bytes(numbers: str) -> None:
    for kind in [bytes, bytearray, memoryview]:
        made = kind(numpy.arange(3, dtype="<f4").tobytes())
        batch = next(iter(feed(numbers, lambda record: {"x": made}, decode_fields={"x": ("f32", 3)})))
        assert batch["x"].numpy()[0].tolist() == [0, 1, 2]
        guessed = next(iter(feed(numbers, lambda record: {"x": made})))
        assert guessed["x"].dtype == "u8" and guessed["x"].shape == (10, 12)


def test_the_value_of_a_listed_file_is_a_datum(tmp_path: Path) -> None:
    (tmp_path / "a b.bin").write_bytes(b"content")
    (tmp_path / "list.txt").write_text("a b.bin 7\n")

    def decode(record: percolator.Record) -> dict[str, Any]:
        assert record.key == b"a b.bin"
        return {"value": record.value}

    options = {"image_list": tmp_path / "list.txt", "root_folder": tmp_path, "decode": decode, "batch_size": 1}
    listed = percolator.Feed(**options)
    value = next(iter(listed))["value"].numpy()[0].tobytes()
    # The fields label, encoded and data of Caffe's Datum.
    assert value == b"\x28\x07\x38\x01\x22\x07content"
