"""Feeds: plans, seeking, snapshots, receipts, specs, statistics, files that are written."""

from __future__ import annotations

import errno
import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy
import pytest
from conftest import FIELDS, read_idx, DATA, DIGITS, run_script, write_numbers

import percolator


def feed(numbers: str, **options: Any) -> percolator.Feed:
    return percolator.Feed(**{"tfrecord": numbers, "fields": FIELDS, "batch_size": 8, **options})


def labels(batch: percolator.Batch) -> list[int]:
    return batch["label"].numpy().tolist()


def test_a_plan_is_what_comes(numbers: str) -> None:
    running = feed(numbers, epochs=2, shuffle=True, seed=3)
    plan = running.plan
    assert plan is not None
    assert (plan.steps(), plan.records, plan.batch_size_max) == (13, 100, 8)
    assert (plan.replicas, plan.workers) == (1, 1)
    for number, batch in enumerate(running):
        assert batch.records == plan.share(number // 13, number % 13)
        assert (batch.epoch, batch.step, batch.is_last) == (number // 13, number % 13, number % 13 == 12)
        assert labels(batch) == [index for _, index in batch.records]
    with pytest.raises(ValueError, match="step 13"):
        plan.share(0, 13)
    assert feed(numbers).plan is None, "round-robin order has none"


def test_shuffles(numbers: str) -> None:
    def order(**options: Any) -> list[int]:
        return [label for batch in feed(numbers, epochs=1, **options) for label in labels(batch)]

    plain = list(range(100))
    assert order() == order(shuffle=False) == order(shuffle="no") == order(shuffle="files") == plain
    shuffled = order(shuffle=True)
    assert shuffled == order(shuffle="global") != plain and sorted(shuffled) == plain
    assert shuffled != order(shuffle=True, seed=1)
    windows = order(shuffle=10)
    assert {tuple(sorted(windows[at : at + 10])) for at in range(0, 100, 10)} == {
        tuple(range(at, at + 10)) for at in range(0, 100, 10)
    }


def test_epochs_one_after_the_other(numbers: str) -> None:
    running = feed(numbers, epochs=2, shuffle=True)
    epochs = [[label for batch in running.epoch() for label in labels(batch)] for _ in range(4)]
    assert all(sorted(epoch) == list(range(100)) for epoch in epochs)
    assert epochs[0] != epochs[1] and epochs[2:] == epochs[:2], "after the last, the first again"
    part = running.epoch()
    begun = [label for _, batch in zip(range(5), part) for label in labels(batch)]
    assert begun + [label for batch in running.epoch() for label in labels(batch)] == epochs[0]


def test_an_epoch_has_its_own_batches_and_no_others(numbers: str) -> None:
    # Nobody knows how many records there are before the end, which is not looked for.
    running = feed(numbers, once=True)
    for _ in range(3):
        epoch = [label for _, batch in zip(range(13), running.epoch()) for label in labels(batch)]
        assert epoch == list(range(100))
    # The first step takes all of the second epoch.
    running = feed(numbers, epochs=3, batch_size=250, last_batch="wrap")
    assert [[batch.epoch for batch in running.epoch()] for _ in range(4)] == [[0], [], [2], [0]]


def test_seeking_and_replaying(numbers: str) -> None:
    running = feed(numbers, epochs=3, shuffle=True)
    batches = [labels(batch) for batch in running]
    running.seek(1, 5)
    assert running.next_steps == [(1, 5)]
    assert [labels(batch) for batch in running] == batches[18:]
    assert labels(running.replay(2, 7)) == batches[33]
    with pytest.raises(percolator.ConfigError, match="there is no step 0 in epoch 3"):
        running.seek(3, 0)


@pytest.mark.parametrize("how", ["object", "text", "file", "pickle"])
def test_resuming_is_exact(numbers: str, tmp_path: Path, how: str) -> None:
    options = {"epochs": 3, "shuffle": True, "seed": 5}
    whole = [labels(batch) for batch in feed(numbers, **options)]
    begun = feed(numbers, **options)
    head = [labels(batch) for _, batch in zip(range(17), begun)]
    snapshot: Any = begun.snapshot()
    assert snapshot.next() == (1, 4) and snapshot.replicas == 1 and snapshot.plan.steps() == 13
    begun.close()
    if how == "text":
        snapshot = str(snapshot)
    elif how == "file":
        snapshot.save(tmp_path / "snapshot")
        snapshot = percolator.Snapshot.load(tmp_path / "snapshot")
    elif how == "pickle":
        assert pickle.loads(pickle.dumps(snapshot)) == snapshot
        snapshot = pickle.loads(pickle.dumps(snapshot))
    resumed = feed(numbers, resume=snapshot, **options)
    assert head + [labels(batch) for batch in resumed] == whole


def test_a_run_does_not_resume_on_other_data(numbers: str, tmp_path: Path) -> None:
    snapshot = feed(numbers, epochs=1).snapshot()
    other = write_numbers(tmp_path / "other.tfrecord", 99)
    with pytest.raises(percolator.SnapshotError):
        feed(other, epochs=1, resume=snapshot)
    with pytest.raises(percolator.SnapshotError):
        percolator.Snapshot("nonsense")


def test_receipts_prove_an_epoch(numbers: str, tmp_path: Path) -> None:
    receipts = []
    for rank in range(3):
        running = feed(numbers, epochs=2, shuffle=True, receipts=True, rank=rank, world_size=3)
        for _ in running:
            pass
        receipt = running.receipt()
        assert receipt is not None
        receipt.save(tmp_path / f"{rank}")
        receipts.append(percolator.Receipt.load(tmp_path / f"{rank}"))
        assert receipts[-1] == receipt == percolator.Receipt(str(receipt))
    verdict = percolator.verify(receipts)
    assert verdict and verdict.is_sound and verdict.first_not_covered(2) is None
    assert "every record" in str(verdict) or "once" in str(verdict)
    merged = receipts[0].merge(receipts[1])
    assert merged.delivered == [(0, sum(r.delivered[0][1] for r in receipts[:2])), merged.delivered[1]]
    missing = percolator.verify(receipts[:2])
    assert not missing and "no receipt of replica 2" in str(missing)
    assert feed(numbers).receipt() is None
    with pytest.raises(percolator.ReceiptError):
        percolator.verify([])


def test_a_file_that_cannot_be_read_or_written_says_why(numbers: str, tmp_path: Path) -> None:
    running = feed(numbers, epochs=1, receipts=True)
    receipt = running.receipt()
    assert receipt is not None
    missing = tmp_path / "no" / "such"
    why = os.strerror(errno.ENOENT)
    with pytest.raises(percolator.SnapshotError, match=f"cannot read the snapshot: {why}"):
        percolator.Snapshot.load(missing)
    with pytest.raises(percolator.SnapshotError, match=f"cannot write the snapshot: {why}"):
        running.snapshot().save(missing)
    with pytest.raises(percolator.ReceiptError, match=f"cannot read this receipt: {why}"):
        percolator.Receipt.load(missing)
    with pytest.raises(percolator.ReceiptError, match=f"cannot write the receipt: {why}"):
        receipt.save(missing)


def test_a_spec_is_a_feed(numbers: str) -> None:
    options = {"epochs": 1, "shuffle": True, "seed": 9, "last_batch": "drop", "threads": 2, "prefetch": 3}
    running = feed(numbers, **options)
    spec = running.spec()
    expected = [labels(batch) for batch in running]
    for form in [spec, json.dumps(spec)]:
        again = percolator.Feed.from_spec(form)
        assert again.spec() == spec
        assert [labels(batch) for batch in again] == expected
    changed = percolator.Feed.from_spec(spec, seed=10)
    assert changed.spec() == {**spec, "seed": {"indexed": 10}}
    with pytest.raises(ValueError, match="unknown field `batchsize`"):
        percolator.Feed.from_spec({"batchsize": 3})


def test_transforms_are_what_their_keywords_say(golden: Path) -> None:
    options = {"crop": 20, "mirror": True, "mean_values": [104, 117, 123], "scale": 0.5}
    flat = percolator.Feed(lmdb=golden / "raw_lmdb", batch_size=4, **options)
    whole = percolator.Feed(lmdb=golden / "raw_lmdb", batch_size=4, transform=percolator.Transform(**options))
    assert flat.spec() == whole.spec()
    one, other = next(iter(flat)), next(iter(whole))
    assert one["data"].shape == (4, 3, 20, 20)
    assert (one["data"].numpy() == other["data"].numpy()).all()
    assert percolator.Transform(crop=3) == percolator.Transform(crop=3) != percolator.Transform(crop=4)
    means = {**options, "mean_values": numpy.array([104, 117, 123])}
    assert percolator.Transform(**means) == percolator.Transform(**options)
    nhwc = percolator.Feed(lmdb=golden / "raw_lmdb", batch_size=4, layout="NHWC", dtype="uint8")
    assert nhwc.fields["data"] == ("u8", (40, 36, 3))


def test_raw_images_in_examples(digits: str) -> None:
    (count, height, width), pixels = read_idx(DIGITS / "train-images-idx3-ubyte")
    image = {"feature": "image", "shape": (1, height, width), "label": "label"}
    running = percolator.Feed(tfrecord=digits, image=image, batch_size=count, once=True, dtype="u8")
    batch = next(iter(running))
    assert batch["data"].shape == (count, 1, height, width)
    assert batch["data"].numpy().tobytes() == pixels
    assert batch["label"].numpy().tolist() == list(read_idx(DIGITS / "train-labels-idx1-ubyte")[1])


def test_statistics_and_memory(numbers: str) -> None:
    running = feed(numbers, epochs=1, threads=1, prefetch=2)
    for _ in running:
        pass
    stats = running.stats()
    assert stats.records == 100 and stats.records_per_second > 0 and stats.elapsed > 0
    assert stats.bottleneck in str(stats) and stats.bottleneck in stats.busy
    assert stats.workers["threads"] == 1 and stats.reader["records"] == 100
    assert stats.lanes[0]["batches"] == 13 and stats.lanes[0]["device"] == "host:0"
    assert sum(count * each for _, count, each in running.memory_budget) > 2 * 8 * 5 * 8
    assert running.records == 100


def test_writing_and_reading(tmp_path: Path) -> None:
    for compression in ["plain", "gzip", "zlib"]:
        path = tmp_path / f"{compression}.tfrecord"
        features = {"i": -1, "is": [1, 2], "f": 0.5, "fs": numpy.array([0.25, 2]), "b": b"\x00\xff"}
        features["s"] = ["a", "b"]
        with percolator.TfRecordWriter(path, compression=compression) as out:
            out.write_example(features)
            out.write(percolator.example(features))
            assert out.records == 2
        with pytest.raises(percolator.ClosedError, match="the file is closed"):
            out.write(b"")
        fields = "i:i64,is:i32[2],f:f32,fs:f64[2],b:bytes,s:strings[2]"
        batch = next(iter(percolator.Feed(tfrecord=path, fields=fields, batch_size=2, once=True)))
        assert batch["i"].numpy().tolist() == [-1] * 2 and batch["is"].numpy().tolist() == [[1, 2]] * 2
        assert batch["f"].numpy().tolist() == [0.5] * 2 and batch["fs"].numpy().tolist() == [[0.25, 2.0]] * 2
        assert batch["b.lengths"].numpy().tolist() == [2, 2]
        assert batch["b"].numpy()[1, :3].tolist() == [0, 255, 0]
    for value, error, message in [
        ([1e300], OverflowError, r"holds 1e\+300: it is too large for f32, and would be infinite"),
        ([0.5, 2**24 + 1], ValueError, "holds 16777217: f32 does not have this integer"),
        ([1, 2**63], OverflowError, "holds 9223372036854775808: "),
    ]:
        with pytest.raises(error, match=f'feature "a" {message}'):
            percolator.example({"a": value})
    with pytest.raises(TypeError, match="holds dict|holds NoneType"):
        percolator.example({"x": [None]})
    with pytest.raises(percolator.SourceError):
        percolator.TfRecordWriter(tmp_path / "none" / "x")


def test_a_file_whose_writing_is_broken_off_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "numbers.tfrecord"
    for has_earlier in [False, True]:
        whole = Path(write_numbers(path, 3)).read_bytes() if has_earlier else None
        with pytest.raises(ZeroDivisionError), percolator.TfRecordWriter(path) as out:
            out.write(b"one of many")
            1 / 0
        assert out.records is None, "it is closed"
        out.close()
        assert (path.read_bytes() if path.exists() else None) == whole
        assert [entry.name for entry in tmp_path.iterdir()] == ([path.name] if has_earlier else [])
    with percolator.TfRecordWriter(path) as out:
        out.write(b"all")
    assert path.read_bytes() != whole, "the next one replaces it"


def test_other_threads_run_while_a_file_is_written(tmp_path: Path) -> None:
    script = """
        import random, sys, threading, time
        import percolator

        record, ticks, is_over = random.Random(1).randbytes(30_000_000), 0, False

        def tick():
            global ticks
            while not is_over:
                time.sleep(0.001)
                ticks += 1

        thread = threading.Thread(target=tick)
        thread.start()
        # Nobody takes the interpreter from a thread that does not let go of it by itself.
        sys.setswitchinterval(1000)
        out = percolator.TfRecordWriter(sys.argv[1], compression="gzip")
        before = ticks
        out.write(record)
        during = ticks - before
        is_over = True
        out.close()
        assert during > 0
    """
    run_script(script, str(tmp_path / "numbers.tfrecord"))


def test_a_feed_is_a_context(numbers: str) -> None:
    with feed(numbers) as running:
        next(iter(running))
    assert running.closed


def test_a_recipe_is_its_operations() -> None:
    recipe = percolator.Transform(recipe="imagenet-eval:20:16")
    normalized: dict[str, Any] = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
    assert recipe == percolator.Transform(color="rgb", resize_shorter=20, center_crop=16, **normalized)
    operations = [
        {"resize_shorter": {"side": 20}},
        {"center_crop": {"height": 16, "width": 16}},
    ]
    assert recipe == percolator.Transform(color="rgb", operations=operations, **normalized)
    assert recipe != percolator.Transform(recipe="imagenet-eval:20:16", filter="bicubic")


def test_images_are_mixed_and_seen_several_times(golden: Path) -> None:
    common: dict[str, Any] = {
        "lmdb": golden / "jpg_color_lmdb", "recipe": "imagenet-train:16", "batch_size": 4, "epochs": 1,
        "last_batch": "drop", "labels_i64": True,
    }
    plain = percolator.Feed(**common)
    feed = percolator.Feed(**common, mixup=0.4, cutmix=1.0, soft_labels=1000)
    for own_batch, mixed in zip(plain, feed, strict=True):
        own, found = own_batch["data"].numpy(), mixed["data"].numpy()
        other, (weight, *weights) = numpy.roll(own, 1, 0), mixed["label_weight"].numpy()
        assert weights == [weight] * 3
        assert (mixed["label_mixed"].numpy() == numpy.roll(own_batch["label_i64"].numpy(), 1)).all()
        assert numpy.allclose(mixed["label_soft"].numpy().sum(1), 1)
        is_share = numpy.allclose(found, other * (1 - weight) + own * weight, atol=1e-5)
        assert is_share or ((found == own) | (found == other)).all()
    view = {"name": "local", "count": 3, "transform": {
        "decode": {"color": "rgb"}, "operations": [{"random_resized_crop": {"height": 8, "width": 8}}]}}
    batch = next(iter(percolator.Feed(**common, views=[view])))
    assert batch["local"].numpy().shape == (4, 3, 3, 8, 8)


def test_a_loader_gives_the_labels_that_a_loss_takes(golden: Path) -> None:
    common: dict[str, Any] = {
        "lmdb": golden / "jpg_color_lmdb", "recipe": "imagenet-train:16", "batch_size": 4,
        "framework": "numpy",
    }

    def names(**more: Any) -> list[str]:
        return list(next(iter(percolator.DataLoader(**common, **more, as_dict=True))))

    assert names() == ["data", "label_i64"]
    assert names(soft_labels=1000) == ["data", "label_soft"]
    assert names(mixup=0.2) == ["data", "label_i64", "label_mixed", "label_weight"]
    assert names(mixup=0.2, soft_labels=1000) == ["data", "label_soft"]


def test_orientation_is_a_colour_mode(golden: Path) -> None:
    def images(color: str) -> list[bytes]:
        running = percolator.Feed(lmdb=golden / "jpg_exif_lmdb", batch_size=1, epochs=1, color=color)
        return [batch["data"].numpy().tobytes() for batch in running]

    as_stored, upright = images("rgb"), images("upright")
    assert len(as_stored) == len(upright) and as_stored != upright
    assert [sorted(one) for one in as_stored] == [sorted(one) for one in upright]
    with pytest.raises(ValueError, match="upright"):
        percolator.Transform(color="turned")
