"""While a consumer waits, other threads run, Ctrl-C works, and nothing is lost."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading

import pytest
from conftest import FIELDS, HANGS_AFTER

import percolator


def waits(feed: percolator.Feed) -> int:
    """How often the feed's consumer has begun to wait; a wait counts from its beginning."""
    return feed.stats().lanes[0]["waits_for_batch"][0]


def test_another_thread_runs_while_one_waits(numbers: str) -> None:
    feed = percolator.Feed(tfrecord=numbers, fields=FIELDS, batch_size=1, epochs=0, prefetch=2)
    batches = iter(feed)
    feed.pause()
    done = threading.Event()

    def end_the_wait() -> None:
        # This is Python: it runs only while the waiting thread does not have the interpreter. The consumer
        # waits while its count grows: every turn of a wait counts.
        while not done.is_set():
            before = waits(feed)
            while waits(feed) == before and not done.is_set():
                pass
            feed.unpause()

    thread = threading.Thread(target=end_the_wait)
    thread.start()
    # More than the ring and the reader's runs have: the consumer has to wait.
    for number in range(5000):
        assert next(batches).records[0][1] == number % 100
        if number % 500 == 0:
            feed.pause()
    done.set()
    thread.join()


def test_a_second_thread_is_refused(numbers: str) -> None:
    feed = percolator.Feed(tfrecord=numbers, batch_size=1, epochs=1, decode=decode_slowly)
    first, errors = iter(feed), []
    thread = threading.Thread(target=lambda: [None for _ in first])
    thread.start()
    assert ENTERED.wait(HANGS_AFTER)
    before = waits(feed)
    while waits(feed) == before:
        pass
    # The first thread waits now, and in every turn until the decoder goes on.
    for other in [first, iter(feed), feed.steps()]:
        with pytest.raises(percolator.FeedError, match="the iterator is in use by another thread") as caught:
            next(other)
        assert str(caught.value).endswith("a thread of its own with feed.take_lanes()")
        errors.append(caught.value)
    with pytest.raises(percolator.FeedError, match="in use by another thread"):
        feed.seek(0, 0)
    GO_ON.set()
    thread.join()
    assert len(errors) == 3


ENTERED, GO_ON = threading.Event(), threading.Event()


def decode_slowly(record: percolator.Record) -> dict[str, int]:
    if record.index == 50:
        ENTERED.set()
        assert GO_ON.wait(HANGS_AFTER)
    return {"index": record.index}


def interruptible(script: str, *arguments: str) -> subprocess.Popen[str]:
    """Starts Python in a process that Ctrl-C interrupts, even if this one ignores it: so does all that a shell
    script starts in the background."""
    heed = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    command = [sys.executable, "-c", heed + textwrap.dedent(script), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_ctrl_c_ends_a_wait_and_loses_nothing(numbers: str) -> None:
    script = """
        import sys, threading
        import percolator

        held = threading.Event()

        def decode(record):
            if record.index == 50:
                held.wait()
            return {"index": record.index}

        # One worker: a call keeps out that of an earlier record which another worker has.
        feed = percolator.Feed(tfrecord=sys.argv[1], decode=decode, batch_size=1, threads=1, epochs=1)
        count = lambda: feed.stats().lanes[0]["waits_for_batch"][0]

        def announce():
            while feed.next_steps[0][1] < 50:
                pass
            before = count()
            while count() == before:
                pass
            print("waiting", flush=True)

        threading.Thread(target=announce, daemon=True).start()
        seen = []
        try:
            for batch in feed:
                seen.append(batch.records[0][1])
        except KeyboardInterrupt:
            print("interrupted after", len(seen), flush=True)
        held.set()
        seen += [batch.records[0][1] for batch in feed]
        assert seen == list(range(100)), seen
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
    assert (child.returncode, out) == (0, "interrupted after 50\ncomplete\n"), err


def run_interrupted(script: str, *arguments: str) -> str:
    """Runs a script that interrupts itself; returns what it prints."""
    child = interruptible(script, *arguments)
    try:
        out, err = child.communicate(timeout=HANGS_AFTER)
    finally:
        child.kill()
    assert child.returncode == 0, f"exit code {child.returncode}\n{out}\n{err}"
    return out


@pytest.mark.parametrize("how", ["feed", "epoch", "steps", "lane", "loader"])
def test_ctrl_c_just_before_a_batch_arrives_does_not_lose_it(numbers: str, how: str) -> None:
    script = """
        import signal, sys, time
        import percolator

        def decode(record):
            if record.index == 50:
                # One worker: this call would keep out that of an earlier record which another worker has.
                while len(seen) < 50:
                    time.sleep(0.001)
                # The consumer has everything before this one. Most often it waits by the end of this sleep, and
                # the batch arrives in the same turn of its wait as the signal.
                time.sleep(0.02)
                signal.raise_signal(signal.SIGINT)
            return {"index": record.index}

        seen, how = [], sys.argv[2]
        options = {"tfrecord": sys.argv[1], "decode": decode, "batch_size": 1, "threads": 1}
        if how == "loader":
            loader = percolator.DataLoader(**options, framework="numpy", copy=True)
            batches, index = iter(loader), lambda batch: int(batch[0][0])
        else:
            feed = percolator.Feed(**options, epochs=1)
            index = lambda batch: (batch[0] if how == "steps" else batch).records[0][1]
            if how == "lane":
                batches = feed.take_lanes()[0]
            else:
                batches = {"feed": feed.__iter__, "epoch": feed.epoch, "steps": feed.steps}[how]()
        try:
            # Unlike a loop, a call may be interrupted before its result is anywhere.
            while True:
                seen.append(index(next(batches)))
        except KeyboardInterrupt:
            print("interrupted after", len(seen))
        seen += [index(batch) for batch in batches]
        assert seen == list(range(100)), seen
    """
    assert run_interrupted(script, numbers, how) == "interrupted after 50\n"


def test_ctrl_c_at_any_time_leaves_a_loader_a_state_that_is_exact(numbers: str) -> None:
    script = """
        import os, random, signal, sys, threading, time
        import percolator

        chance, delay = random.Random(1), 0.0

        def decode(record):
            time.sleep(delay)
            return {"index": record.index}

        def loader(seed):
            return percolator.DataLoader(
                tfrecord=sys.argv[1], decode=decode, batch_size=1, threads=1, prefetch=2,
                framework="numpy", copy=True, shuffle=True, seed=seed, receipts=True,
            )

        def interrupt(after):
            time.sleep(after)
            os.kill(os.getpid(), signal.SIGINT)

        for attempt in range(20):
            first, seen, batch, delay = loader(attempt), [], None, chance.uniform(0.001, 0.005)
            thread = threading.Thread(target=interrupt, args=(chance.uniform(0.0, 0.15),))
            try:
                thread.start()
                for batch in first:
                    seen.append(batch)
                thread.join()
                time.sleep(60)
            except KeyboardInterrupt:
                pass
            thread.join()
            # The loop has a batch as soon as its variable does.
            if batch is not None and (not seen or seen[-1] is not batch):
                seen.append(batch)
            state, receipt, delay = first.state_dict(), first.receipt(), 0.0
            first.close()
            rest = loader(attempt)
            rest.load_state_dict(state)
            seen += list(rest)
            assert sorted(int(index[0]) for index, in seen) == list(range(100)), (attempt, len(seen))
            verdict = percolator.verify([receipt, rest.receipt()])
            assert verdict and verdict.first_not_covered(1) is None, str(verdict)
            rest.close()
        print("complete")
    """
    assert run_interrupted(script, numbers) == "complete\n"


def test_ctrl_c_while_tensors_are_made_does_not_lose_the_batch(numbers: str) -> None:
    script = """
        import signal, sys
        import percolator

        def loader():
            return percolator.DataLoader(
                tfrecord=sys.argv[1], fields="label:i64", batch_size=1, framework="numpy", copy=True
            )

        def of(batches):
            return [int(label[0]) for label, in batches]

        class Exit(BaseException):
            pass

        def interrupts(number, how):
            first, calls = loader(), [0]
            make = first._keep

            def convert(field):
                calls[0] += 1
                if calls[0] == number:
                    how()
                return make(field)

            first._keep = convert
            return first

        def leave():
            raise Exit

        # The batch is handed over, and only then Ctrl-C comes: the last one of the epoch, too.
        for number in [1, 50, 100]:
            first, seen, batch = interrupts(number, lambda: signal.raise_signal(signal.SIGINT)), [], None
            try:
                for batch in first:
                    seen.append(batch)
                raise AssertionError("not interrupted")
            except KeyboardInterrupt:
                if batch is not None and (not seen or seen[-1] is not batch):
                    seen.append(batch)
            assert len(seen) == number, len(seen)
            rest = loader()
            rest.load_state_dict(first.state_dict())
            assert of(seen + list(rest)) == list(range(100))

        # What else breaks it off comes at once; the iterator still has the batch.
        for number in [1, 50, 100]:
            batches, seen = iter(interrupts(number, leave)), []
            try:
                for batch in batches:
                    seen.append(batch)
                raise AssertionError("not interrupted")
            except Exit:
                assert len(seen) == number - 1, len(seen)
            assert of(seen + list(batches)) == list(range(100))

        # Ctrl-C comes, and then the conversion fails: neither Ctrl-C nor the batch is lost.
        first, calls = loader(), [0]
        make = first._keep

        def fails(field):
            calls[0] += 1
            if calls[0] == 50:
                signal.raise_signal(signal.SIGINT)
            if calls[0] == 51:
                raise ValueError("on purpose")
            return make(field)

        first._keep = fails
        batches, seen = iter(first), []
        try:
            for batch in batches:
                seen.append(batch)
            raise AssertionError("not interrupted")
        except KeyboardInterrupt:
            assert len(seen) == 49, len(seen)
        assert of(seen + list(batches)) == list(range(100))
        print("complete")
    """
    assert run_interrupted(script, numbers) == "complete\n"


def test_ctrl_c_ends_the_wait_for_a_feed(numbers: str) -> None:
    script = """
        import sys, threading
        import percolator

        held = threading.Event()

        def decode(record):
            print("building", flush=True)
            held.wait()
            return {"index": record.index}

        try:
            percolator.Feed(tfrecord=sys.argv[1], decode=decode)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        held.set()
    """
    child = interruptible(script, numbers)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "building\n"
        child.send_signal(signal.SIGINT)
        assert child.stdout.readline() == "interrupted\n"
        _, err = child.communicate(timeout=HANGS_AFTER)
    finally:
        child.kill()
    assert child.returncode == 0, err


def test_ctrl_c_may_end_the_program_while_a_feed_is_built(numbers: str) -> None:
    script = """
        import sys
        import percolator

        def decode(record):
            print("building", flush=True)
            return {"index": sum(range(3_000_000))}

        percolator.Feed(tfrecord=sys.argv[1], decode=decode, threads=2)
    """
    child = interruptible(script, numbers)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "building\n"
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=HANGS_AFTER)
    finally:
        child.kill()
    # Python's way to end: no thread is killed while it decodes.
    assert child.returncode == -signal.SIGINT and "KeyboardInterrupt" in err, (child.returncode, err)


def test_lanes_are_for_threads_of_their_own(numbers: str) -> None:
    feed = percolator.Feed(
        tfrecord=numbers, fields=FIELDS, batch_size=5, epochs=3, devices=["host:0", "host:1"]
    )
    lanes = feed.take_lanes()
    assert [(lane.number, lane.device) for lane in lanes] == [(0, "host:0"), (1, "host:1")]
    seen: list[list[int]] = [[], []]

    def consume(lane: percolator.Lane) -> None:
        for batch in lane:
            seen[lane.number] += batch["label"].numpy().tolist()

    threads = [threading.Thread(target=consume, args=(lane,)) for lane in lanes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen[0] + seen[1]) == sorted(list(range(100)) * 3)
    with pytest.raises(percolator.FeedError, match="lanes were handed over before"):
        feed.take_lanes()


def test_an_error_of_one_device_ends_the_wait_for_all(numbers: str) -> None:
    go_on = threading.Event()

    def decode(record: percolator.Record) -> dict[str, int]:
        if record.index == 5:
            assert go_on.wait(HANGS_AFTER)
        return {"index": record.index}

    feed = percolator.Feed(
        tfrecord=numbers, decode=decode, batch_size=1, epochs=1, devices=["host:0", "host:1"], prefetch=2,
        give_up_after=0.01,
    )
    steps = feed.steps()
    # All batches of the first device are held. The second one's next would be record 5.
    held = [next(steps)[0] for _ in range(2)]
    with pytest.raises(percolator.AllHeldError, match="lane 0"):
        next(steps)
    go_on.set()
    assert [batch.records[0][1] for batch in held] == [0, 2]


def test_a_warning_reaches_pythons_log(numbers: str, caplog: pytest.LogCaptureFixture) -> None:
    released = threading.Event()

    def decode(record: percolator.Record) -> dict[str, int]:
        if record.index == 3:
            # Released by the warning that this causes.
            assert released.wait(HANGS_AFTER)
        return {"index": record.index}

    class Release:
        def filter(self, record: object) -> bool:
            released.set()
            return True

    import logging

    logger, release = logging.getLogger("percolator"), Release()
    logger.addFilter(release)
    try:
        feed = percolator.Feed(tfrecord=numbers, decode=decode, batch_size=1, epochs=1, warn_after=0.01)
        assert len(list(batch.records for batch in feed)) == 100
    finally:
        logger.removeFilter(release)
    assert any("waiting for data" in record.getMessage() for record in caplog.records)
