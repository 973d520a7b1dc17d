"""Bad input: each gets its own exception, which says where in the data it was found, and never a crash."""

from __future__ import annotations

import copy
import errno
import os
import pickle
import re
from pathlib import Path
from typing import Any

import pytest
from conftest import FIELDS, run_script

import percolator


def feed(numbers: str, **options: Any) -> percolator.Feed:
    return percolator.Feed(**{"tfrecord": numbers, "fields": FIELDS, "batch_size": 10, **options})


def test_a_damaged_record_is_named(golden: Path) -> None:
    data = golden / "raw_lmdb" / "data.mdb"
    content = bytearray(data.read_bytes())
    # A raw Datum begins with its channels, rows and columns; the third record loses its first tag.
    start, at = b"\x08\x03\x10\x28\x18\x24", -1
    for _ in range(3):
        at = content.index(start, at + 1)
    content[at] = 0xFF
    data.write_bytes(content)
    batches = iter(percolator.Feed(lmdb=golden / "raw_lmdb", batch_size=1))
    assert [next(batches).records for _ in range(2)] == [[(0, 0)], [(0, 1)]], "what is complete comes first"
    with pytest.raises(percolator.RecordError) as caught:
        next(batches)
    error = caught.value
    assert error.file == str(golden / "raw_lmdb")
    assert error.record == 2 and isinstance(error.key, bytes) and error.key.startswith(b"00000002")
    assert error.reason and error.reason in str(error)
    assert str(golden) in str(error) and str(golden) not in error.reason
    assert isinstance(error, RuntimeError) and isinstance(error, percolator.FeedError)
    assert list(batches) == [], "the error comes once"


def test_a_damaged_file_is_named(numbers: str) -> None:
    content = bytearray(Path(numbers).read_bytes())
    content[len(content) // 2] ^= 0xFF
    Path(numbers).write_bytes(content)
    with pytest.raises(percolator.SourceError, match="the file is damaged") as caught:
        for _ in feed(numbers, epochs=1):
            pass
    error = caught.value
    assert error.file == numbers and numbers not in str(error.reason)
    assert error.record is not None and f"record {error.record} at byte" in str(error)


def test_bad_records_are_skipped_or_replaced_and_named(tmp_path: Path) -> None:
    path, bad = str(tmp_path / "some.tfrecord"), {3, 4, 13}
    with percolator.TfRecordWriter(path) as out:
        for record in range(20):
            out.write_example({"x": [record] * 4} if record in bad else {"x": [record] * 4, "label": record})
    quarantine = str(tmp_path / "bad.tfrecord")
    policy = {"action": "skip", "at_most_rate": 1.0, "quarantine": quarantine}
    skipped = feed(path, epochs=1, bad_records=policy, receipts=True)
    batches = list(skipped)
    assert [batch.size for batch in batches] == [8, 9]
    assert [record for batch in batches for _, record in batch.records] == sorted(set(range(20)) - bad)
    first = batches[0].bad_records[0]
    assert first["record"] == (0, 3) and first["file"] == path and first["replaced_by"] is None
    assert first["key"] == b"00000003" and '"label"' in first["reason"]
    assert sum(lane["bad_records"] for lane in skipped.stats().lanes) == 3
    named = list(percolator.Feed(tfrecord=quarantine, fields="number:i64", batch_size=3, once=True))
    assert sorted(named[0]["number"].numpy().ravel().tolist()) == sorted(bad)

    replaced = list(feed(path, epochs=1, bad_records="replace"))
    assert [[record for _, record in batch.records] for batch in replaced] == [
        [0, 1, 2, 5, 5, 5, 6, 7, 8, 9],
        [10, 11, 12, 14, 14, 15, 16, 17, 18, 19],
    ]
    assert [bad["replaced_by"] for bad in replaced[0].bad_records] == [(0, 5), (0, 5)]
    with pytest.raises(percolator.RecordError, match="2 of the first 10 records") as caught:
        list(feed(path, epochs=1, bad_records={"action": "skip", "at_most": 1}))
    assert caught.value.file == path and caught.value.record == 4
    with pytest.raises(percolator.ConfigError, match="from 0 to 1"):
        feed(path, bad_records={"action": "skip", "at_most_rate": 2.0})
    with pytest.raises(ValueError, match="bad_records"):
        feed(path, bad_records="ignore")


def test_a_missing_feature_is_named(tmp_path: Path) -> None:
    path = tmp_path / "some.tfrecord"
    with percolator.TfRecordWriter(path) as out:
        for record in range(20):
            out.write_example({"x": [0] * 4} if record == 13 else {"x": [0] * 4, "label": 1})
    with pytest.raises(percolator.RecordError, match='"label"') as caught:
        list(feed(str(path), batch_size=1, epochs=1, prefetch=32))
    assert caught.value.record == 13


def test_a_missing_database_is_an_error_of_the_source(tmp_path: Path) -> None:
    with pytest.raises(percolator.SourceError, match=os.strerror(errno.ENOENT)) as caught:
        percolator.Feed(lmdb=tmp_path / "none")
    assert caught.value.file == str(tmp_path / "none")
    assert (caught.value.key, caught.value.record) == (None, None)


def test_a_users_own_words_are_said_as_they_are(numbers: str, tmp_path: Path) -> None:
    words = "Shuffle::Global .epochs(3) LogGaps::Allow once() index"
    path = tmp_path / words
    with pytest.raises(percolator.SourceError) as caught:
        percolator.Feed(lmdb=path)
    assert str(caught.value).startswith(f"{path}: ") and caught.value.reason

    def decode(record: percolator.Record) -> dict[str, int]:
        raise ValueError(words)

    with pytest.raises(percolator.RecordError) as refused:
        next(iter(feed(numbers, fields=None, decode=decode, decode_fields="x:i64")))
    assert f"ValueError: {words}" in str(refused.value) and words in str(refused.value.reason)


UNKNOWN = [
    ({"shufle": True}, r'Feed\(\) has no keyword "shufle" \(did you mean "shuffle"\?\)'),
    ({"batchsize": 2}, r'Feed\(\) has no keyword "batchsize" \(did you mean "batch_size"\?\)'),
    ({"folder": "x"}, r'Feed\(\) has no keyword "folder": images in a folder are read by a list'),
    ({"normalize": True}, r'Feed\(\) has no keyword "normalize": use mean and std'),
    ({"rgb": True}, r'Feed\(\) has no keyword "rgb": use color="rgb"'),
    ({"pad": True}, r'Feed\(\) has no keyword "pad": use last_batch="pad"'),
    ({"blend": True}, r'Feed\(\) has no keyword "blend"$'),
    ({"zzz": 1}, r'Feed\(\) has no keyword "zzz"$'),
]


@pytest.mark.parametrize("options, message", UNKNOWN, ids=lambda value: str(value)[:30])
def test_keywords_that_are_none(numbers: str, options: dict, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        percolator.Feed(tfrecord=numbers, **options)


UNFIT = [
    ({"batch_size": "ten"}, "batch_size='ten': "),
    ({"batch_size": -1}, "batch_size=-1: "),
    ({"devices": [1]}, "devices=1: "),
    ({"mirror": "yes"}, "mirror='yes': "),
    ({"decode": 7}, "decode takes a function of a record, and not int"),
    ({"resume": 7}, "resume takes a Snapshot or its text, and not int"),
    ({"receipts": 7}, "receipts=7: "),
    ({"target": {"from": {1, 2}}}, "target={'from': {1, 2}}: "),
    ({"image": {"feature": "x", "shape": 7}}, "shape=7: "),
    ({"image": 7}, "image takes the name of a feature"),
    ({"decode": len, "decode_fields": 7}, "decode_fields takes a dict"),
    ({"decode": len, "decode_fields": {7: "f32"}}, "decode_fields={7: 'f32'}: "),
    ({"decode": len, "decode_fields": {"x": ("f32", "3x4")}}, "decode_fields="),
    ({"decode": len, "decode_fields": {"x": float}}, 'dtype="float" does not say how wide'),
    ({"devices": []}, r"devices=\[\]: give at least one, or leave devices out"),
    ({"mean_values": []}, r"mean_values=\[\]: give at least one"),
]


@pytest.mark.parametrize("options, message", UNFIT, ids=lambda value: str(value)[:40])
def test_keywords_of_another_type(numbers: str, options: dict, message: str) -> None:
    with pytest.raises(percolator.ConfigError, match=message) as caught:
        percolator.Feed(tfrecord=numbers, **options)
    assert caught.value.reason == str(caught.value)


CONTRADICTIONS = [
    ({}, "a feed needs a source: lmdb=, leveldb=, tfrecord= or image_list=$"),
    ({"lmdb": "x", "batch_size": 1, "global_batch_size": 2}, "batch_size and global_batch_size are both set"),
    ({"lmdb": "x", "batch_size": 0}, "is 0; it must be at least 1"),
    ({"lmdb": "x", "once": True, "epochs": 2}, "once=True is one pass, but epochs=2"),
    ({"lmdb": "x", "shuffle": True}, "shuffle needs epochs, and the feed deals in Caffe's round-robin order, "
     "which has none: set epochs=n, or epochs=0 for no end$"),
    ({"lmdb": "x", "shuffle_bytes": 5}, "shuffle needs epochs"),
    ({"lmdb": ["x", "y"], "mix": [1, 2]}, "mix needs epochs"),
    ({"lmdb": "x", "last_batch": "drop"}, "last_batch needs epochs"),
    ({"lmdb": "x", "assignment": "caffe"}, "assignment needs epochs"),
    ({"lmdb": "x", "policy": "off"}, "policy needs epochs"),
    ({"lmdb": "x", "rank": 0, "world_size": 2}, "world_size .or environment=True. needs epochs"),
    ({"lmdb": "x", "shuffle": True, "once": True}, "once=True delivers one pass in Caffe's order, which has "
     "none: set epochs=1 instead$"),
    ({"lmdb": "x", "seed": 1, "caffe_seed": 1}, "seed and caffe_seed are both set"),
    ({"lmdb": "x", "caffe_era": "today"}, "caffe_era is set without caffe_seed"),
    ({"lmdb": "x", "shuffle": True, "shuffle_bytes": 5}, "shuffle and shuffle_bytes are both set"),
    ({"lmdb": "x", "rank": 1}, "rank and world_size belong together"),
    ({"lmdb": "x", "rank": 2, "world_size": 2}, "there is no rank 2 in a job of 2"),
    ({"lmdb": "x", "decode_fields": "x:i64"}, "decode_fields is set without decode"),
    ({"lmdb": "x", "decode": len, "fields": "x:i64"}, "leave one of the two out"),
    ({"lmdb": "x", "decode": len, "decode_fields": "x:f32", "crop": 3}, "transform is for Caffe's image"),
    ({"tfrecord": "x", "lmdb_name": "y"}, "lmdb_name is set without lmdb"),
    ({"tfrecord": "x", "root_folder": "y"}, "root_folder is set without image_list"),
    ({"lmdb": "x", "transform": percolator.Transform(crop=3), "mirror": True}, "put all of them into the Tr"),
    ({"lmdb": "x", "devices": "mps"}, r"no device \"mps\"; there are host, host:N, cuda and cuda:N$"),
    ({"lmdb": "x", "mix": [1, 1], "epochs": 1, "receipts": True}, "leave out receipts, or mix"),
    ({"lmdb": "x", "once": True, "receipts": True}, "use epochs=n, or, for the same order, epochs=0, assign"),
    ({"lmdb": "x", "color": "bgr"}, 'channels in the order BGR, as OpenCV has them, are "color"'),
    ({"lmdb": "x", "recipe": "imagenet"}, "there is no recipe .*imagenet-train"),
    ({"lmdb": "x", "padding": 4}, "there is no random crop"),
    ({"lmdb": "x", "recipe": "cifar-train", "flip": True}, "single operations cannot be set"),
    ({"lmdb": "x", "filter": "box"}, "no operation resizes"),
    ({"lmdb": "x", "filter": "cubic"}, "cubic.*bicubic"),
    ({"lmdb": "x", "operations": [{"resize": {"height": 3}}]}, "operations: missing field `width`"),
]


@pytest.mark.parametrize("options, message", CONTRADICTIONS, ids=lambda value: str(value)[:40])
def test_options_that_contradict(options: dict, message: str) -> None:
    with pytest.raises((percolator.ConfigError, percolator.DeviceError), match=message) as caught:
        percolator.Feed(**options)
    rust = r"::|\.[a-z_]+\(|\b(?!rank\b)[a-z_]+\(\)"
    assert not re.search(rust, str(caught.value)) and caught.value.reason == str(caught.value)


VALUES = [
    ({"dtype": "f31"}, "unknown variant `f31`"),
    ({"dtype": float}, 'dtype="float" does not say how wide: write one of f16, bf16, f32, f64, i8'),
    ({"dtype": "float"}, 'dtype="float" does not say how wide'),
    ({"dtype": int}, 'dtype="int" does not say how wide'),
    ({"shuffle": 1}, 'shuffle=1 is a window of one record, which shuffles nothing: write True, or "global"'),
    ({"layout": "chwn"}, "unknown variant `chwn`, expected `nchw` or `nhwc`"),
    ({"shuffle": "often"}, "unknown variant `often`"),
    ({"shuffle": 0.5}, "give True, False"),
    ({"last_batch": "lose"}, "last_batch=\"lose\": unknown variant"),
    ({"give_up_after": -1}, "give_up_after=-1"),
    ({"fields": "x:i64[4]]"}, "fields: the fields cannot be read at character"),
    ({"image": {}}, "image has no feature"),
    ({"target": {"from": "nowhere"}}, "target: unknown variant `nowhere`"),
    ({"transform": 5}, "transform takes a percolator.Transform"),
]


@pytest.mark.parametrize("options, message", VALUES, ids=lambda value: str(value)[:40])
def test_values_that_are_none(numbers: str, options: dict, message: str) -> None:
    with pytest.raises(percolator.ConfigError, match=message):
        percolator.Feed(tfrecord=numbers, **options)


def test_steps_that_are_none(numbers: str) -> None:
    running = feed(numbers, epochs=2, shuffle=True)
    plan = running.plan
    assert plan is not None
    for use in [
        lambda: plan.share(0, 10),
        lambda: plan.share(0, 0, 1),
        lambda: running.replay(0, 10),
        lambda: running.replay(2, 0),
        lambda: running.replay(0, 0, 1),
        lambda: running.seek(0, 10),
    ]:
        with pytest.raises(percolator.ConfigError) as caught:
            use()
        assert "resume" not in str(caught.value) and caught.value.reason == str(caught.value)
    assert sum(batch.size for batch in running) == 200, "the feed goes on"


def test_a_field_that_is_none(numbers: str) -> None:
    batch = next(iter(feed(numbers)))
    for use in [lambda: batch["y"], lambda: batch.field("y")]:
        with pytest.raises(percolator.FieldError) as caught:
            use()
        error = caught.value
        assert isinstance(error, percolator.UnknownFieldError) and isinstance(error, KeyError)
        assert str(error) == error.reason == 'there is no field "y"; there are x, label'
    with pytest.raises(KeyError):
        batch["y"]


def test_a_net_that_is_none(golden: Path) -> None:
    for options in [{}, {"layer": "data"}]:
        with pytest.raises(percolator.ConfigError) as caught:
            percolator.Feed.from_prototxt(golden / "none.prototxt", **options)
        assert caught.value.file == str(golden / "none.prototxt")
        assert caught.value.reason and str(golden) not in caught.value.reason


def test_a_layer_that_is_none(golden: Path) -> None:
    net = golden / "net" / "raw_train_mirror.prototxt"
    with pytest.raises(percolator.ConfigError) as caught:
        percolator.Feed.from_prototxt(net, "train", layer="nobody")
    message = f'{net}: there is no data layer "nobody" in phase TRAIN; there are: "data"'
    assert str(caught.value) == message
    assert percolator.Feed.from_prototxt(net, "train", layer="data", root=golden).fields


def test_a_gpu_that_is_not_there(numbers: str) -> None:
    with pytest.raises(percolator.DeviceError, match="no CUDA driver|there is no cuda:99"):
        feed(numbers, devices="cuda:99")


def test_too_little_memory(numbers: str) -> None:
    with pytest.raises(percolator.ConfigError, match="but 10 are allowed"):
        feed(numbers, memory_limit=10)


def test_a_thread_that_cannot_start_is_named(numbers: str) -> None:
    script = """
        import os, sys

        # No stack of this size can be had.
        os.environ["RUST_MIN_STACK"] = str(1 << 60)
        import percolator

        try:
            percolator.Feed(tfrecord=sys.argv[1], fields="label:i64")
        except percolator.FeedError as error:
            print(error)
    """
    assert run_script(script, numbers).startswith("cannot start the thread build: ")


def test_feeds_are_closed_at_exit_even_if_no_thread_can_start(numbers: str) -> None:
    script = """
        import atexit, os, resource, sys

        os.environ["RUST_MIN_STACK"] = str(1 << 30)
        atexit.register(lambda: print("closed:", feed.closed))
        # What is registered later runs first.
        import percolator

        feed = percolator.Feed(tfrecord=sys.argv[1], fields="label:i64", threads=1)
        next(iter(feed))
        pages = int(open("/proc/self/statm").read().split()[0])
        limit = pages * resource.getpagesize() + (1 << 28)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    """
    assert run_script(script, numbers) == "closed: True\n"


def test_several_devices_come_as_steps(numbers: str) -> None:
    two = feed(numbers, devices=["host:0", "host:1"], once=True)
    for use in [two.__iter__, two.epoch]:
        with pytest.raises(percolator.ConfigError, match="the feed has 2 devices: iterate over all of them"):
            use()
    assert [len(step) for step in two.steps()] == [2] * 5


def test_nothing_with_threads_is_pickled(numbers: str) -> None:
    running = feed(numbers)
    batch = next(iter(running))
    for value, message in [
        (running, "Worker processes are not needed"),
        (batch, "pickle copies of its fields"),
        (batch["x"], "pickle a copy"),
        (percolator.DataLoader(tfrecord=numbers, fields=FIELDS), "save its state_dict"),
    ]:
        for how in [pickle.dumps, copy.copy]:
            with pytest.raises(TypeError, match=message):
                how(value)


def test_texts_that_are_none() -> None:
    for kind, error in [
        (percolator.Snapshot, percolator.SnapshotError),
        (percolator.Receipt, percolator.ReceiptError),
    ]:
        with pytest.raises(error) as caught:
            kind("percolator")
        assert isinstance(caught.value, ValueError) and caught.value.reason


def test_examples_that_nothing_is_said_of(numbers: str) -> None:
    with pytest.raises(percolator.RecordError, match="a tf.train.Example, and not a Datum") as caught:
        percolator.Feed(tfrecord=numbers)
    assert "fields=" in caught.value.reason and "image=" in caught.value.reason


def test_a_misspelt_feature_that_may_be_missing_is_said(
    numbers: str, caplog: pytest.LogCaptureFixture
) -> None:
    feed(numbers, fields="x as tokens:i64[<=4]").close()
    assert not caplog.messages
    running = feed(numbers, fields="y as tokens:i64[<=4]")
    next(iter(running))
    (message,) = caplog.messages
    assert 'feature="y"' in message and 'has=["label", "x"]' in message


def test_the_host_may_be_called_a_cpu(numbers: str) -> None:
    for devices in ["cpu", "cpu:0", "host"]:
        assert next(iter(feed(numbers, devices=devices)))["x"].device == "cpu"


def test_what_has_no_order_is_no_feature() -> None:
    for value in [{"a": 1}, {1, 2}, frozenset([1])]:
        with pytest.raises(TypeError, match="which has no order of values"):
            percolator.example({"x": value})
    written = {kind: percolator.example({"x": kind(b"ab")}) for kind in [bytes, bytearray, memoryview]}
    assert len(set(written.values())) == 1
    assert percolator.example({"x": [memoryview(b"ab")]}) == written[bytes]


def test_records_are_written_of_any_bytes(tmp_path: Path) -> None:
    path = str(tmp_path / "some.tfrecord")
    with percolator.TfRecordWriter(path) as out:
        for kind in [bytes, bytearray, memoryview]:
            out.write(kind(b"ab"))
        with pytest.raises(TypeError):
            out.write("ab")  # type: ignore[arg-type]
    decode = lambda record: {"x": record.value}  # noqa: E731
    batch = next(iter(percolator.Feed(tfrecord=path, decode=decode, batch_size=3)))
    assert batch["x"].numpy().tolist() == [[97, 98]] * 3
