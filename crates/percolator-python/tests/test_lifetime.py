"""A batch that Python still holds is never written to, whoever holds it and however long."""

from __future__ import annotations

import gc
import queue
import threading

import numpy
import pytest
from conftest import FIELDS, framework, run_script

import percolator


def endless(numbers: str, **options: object) -> percolator.Feed:
    return percolator.Feed(tfrecord=numbers, fields=FIELDS, batch_size=10, epochs=0, **options)


def expected(number: int) -> list[int]:
    return [(10 * number + at) % 100 for at in range(10)]


def test_many_that_are_held_stay_as_they_were(numbers: str) -> None:
    torch = framework("torch")
    feed = endless(numbers, prefetch=16)
    batches = iter(feed)
    held = []
    for number in range(12):
        batch = next(batches)
        # In every way at once; the batch and its fields themselves are let go.
        label = batch["label"]
        held.append((number, label.numpy(), torch.from_dlpack(label), label.__dlpack__()))
    del batch, label
    gc.collect()
    # The other four go round and round, and are written again and again.
    for number in range(12, 412):
        assert next(batches)["label"].numpy().tolist() == expected(number)
    for number, array, tensor, capsule in held:
        assert array.tolist() == tensor.tolist() == expected(number)
    # A capsule that nobody takes gives its memory back, and one that is taken later is as good.
    for number, array, tensor, capsule in held[::2]:
        assert torch.utils.dlpack.from_dlpack(capsule).tolist() == expected(number)
    addresses = {item[1].ctypes.data for item in held}
    held.clear()
    del array, tensor, capsule
    again = {next(batches)["label"].address for _ in range(64)}
    assert addresses <= again, "all of their memory is used again"


def test_they_may_be_dropped_on_another_thread(numbers: str) -> None:
    torch = framework("torch")
    feed = endless(numbers, prefetch=8)
    passed: queue.Queue = queue.Queue(maxsize=3)
    seen: list[list[int]] = []

    def consume() -> None:
        while (item := passed.get()) is not None:
            tensor, array = item
            assert tensor.tolist() == array.tolist()
            seen.append(tensor.tolist())
            del item, tensor, array

    thread = threading.Thread(target=consume)
    thread.start()
    for _, batch in zip(range(500), feed):
        passed.put((torch.from_dlpack(batch["label"]), batch["label"].numpy()))
    passed.put(None)
    thread.join()
    assert seen == [expected(number) for number in range(500)]


def test_batches_outlive_their_feed(numbers: str) -> None:
    feed = endless(numbers)
    batch = next(iter(feed))
    array = batch["x"].numpy()
    feed.close()
    del feed
    gc.collect()
    assert batch["label"].numpy().tolist() == expected(0)
    del batch
    gc.collect()
    assert (array == numpy.arange(40).reshape(10, 4)).all()


def test_a_released_batch_says_so_and_its_arrays_stay(numbers: str) -> None:
    with next(iter(endless(numbers))) as batch:
        field, array = batch["label"], batch["label"].numpy()
    with pytest.raises(percolator.ClosedError, match="the batch was released"):
        batch["label"]
    assert field.numpy().tolist() == array.tolist() == expected(0)


def test_releasing_makes_room_in_the_ring(numbers: str) -> None:
    kept = []
    for number, batch in zip(range(20), endless(numbers, prefetch=2)):
        kept.append(batch)
        assert batch["label"].numpy().tolist() == expected(number)
        batch.release()


def test_a_consumer_that_holds_all_is_told(numbers: str) -> None:
    batches = iter(endless(numbers, prefetch=3, give_up_after=0.01))
    held = [next(batches) for _ in range(3)]
    with pytest.raises(percolator.AllHeldError, match="all 3 batches of the feed are held") as caught:
        next(batches)
    assert "copy=True" in str(caught.value) and "::" not in str(caught.value)
    assert held[2]["label"].numpy().tolist() == expected(2)


def test_a_closed_feed_says_so(numbers: str) -> None:
    feed = endless(numbers)
    batches = iter(feed)
    next(batches)
    assert not feed.closed
    feed.close()
    feed.close()
    assert feed.closed
    for use in [lambda: next(batches), feed.snapshot, lambda: feed.seek(0, 0), lambda: feed.records]:
        with pytest.raises(percolator.ClosedError, match="the feed is closed: build another one"):
            use()
    assert feed.stats().records >= 10, "what it did is still known"


def test_a_cancelled_feed_ends_with_an_error(numbers: str) -> None:
    feed = endless(numbers)
    threading.Thread(target=feed.cancel).start()
    with pytest.raises(percolator.ClosedError, match="the feed was cancelled"):
        for _ in feed:
            pass
    assert list(feed) == []


def test_a_consumer_that_nobody_can_help_is_told_at_once(numbers: str) -> None:
    """In a process of its own, which has no other thread, and imports neither JAX nor TensorFlow. Had it to
    wait for a minute, what is said of that would come first."""
    script = """
        import logging, sys, percolator
        loader = percolator.DataLoader(
            tfrecord=sys.argv[1], fields="x:i64[4],label:i64", batch_size=5, framework="numpy", prefetch=2,
            shuffle=True, warn_after=30,
        )
        warned = []
        logging.getLogger("percolator").addFilter(lambda record: warned.append(record))
        kept = []
        try:
            for x, label in loader:
                kept.append(x)
        except percolator.AllHeldError as error:
            print(len(kept), warned, "copy=True" in str(error))
        # It was not the end: once some are dropped, the rest comes.
        state = loader.state_dict()
        kept.clear()
        loader.load_state_dict(state)
        print(sum(1 for _ in loader))
    """
    assert run_script(script, numbers) == "2 [] True\n18\n"


def test_batches_that_only_a_cycle_holds_come_back(numbers: str) -> None:
    gc.disable()
    try:
        batches = iter(endless(numbers, prefetch=2))
        for _ in range(6):
            cycle: list[object] = [next(batches)]
            cycle.append(cycle)
            del cycle
    finally:
        gc.enable()
