"""A fork has none of a feed's threads: using one there is an error, dropping it does nothing, and the parent
does not notice."""

from __future__ import annotations

from conftest import run_script

BEGIN = """
    import gc, multiprocessing, os, sys, warnings
    import percolator

    warnings.simplefilter("ignore", DeprecationWarning)

    def build(**options):
        return percolator.Feed(tfrecord=sys.argv[1], fields="x:i64[4],label:i64", batch_size=10, **options)

    def labels(batch):
        return [batch["label"].numpy()[0] // 10]

    def in_a_fork(run):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                run()
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0, status
"""


def test_every_use_says_what_to_do(numbers: str) -> None:
    run_script(
        BEGIN
        + """
    feed = build(epochs=1)
    batches, steps = iter(feed), feed.steps()
    lane = build(epochs=1).take_lanes()[0]
    loader = percolator.DataLoader(tfrecord=sys.argv[1], fields="label:i64", framework="numpy")
    next(batches)

    def use():
        uses = [
            lambda: next(batches), lambda: next(steps), lambda: next(lane), lambda: iter(feed), feed.epoch,
            feed.snapshot, feed.stats, feed.receipt, lambda: feed.plan, lambda: feed.seek(0, 0),
            lambda: feed.replay(0, 0), feed.cancel, feed.pause, lane.snapshot, lambda: iter(loader),
            loader.state_dict,
        ]
        for use in uses:
            try:
                use()
            except percolator.ForkError as error:
                assert "start processes with multiprocessing.set_start_method(\\"spawn\\")" in str(error)
                assert "no worker processes are needed" in str(error)
            else:
                raise AssertionError(use)

    in_a_fork(use)
    assert [batch.records[0][1] for batch in batches] == list(range(10, 100, 10))
    """,
        numbers,
    )


def test_what_is_inherited_is_forgotten(numbers: str) -> None:
    run_script(
        BEGIN
        + """
    feed = build(epochs=1)
    lanes = build(epochs=1).take_lanes()
    batches = iter(feed)
    batch = next(batches)
    array, capsule = batch["label"].numpy(), batch["label"].__dlpack__()

    def drop():
        global feed, lanes, batches, batch, array, capsule
        # Memory is readable.
        assert array.tolist() == batch["label"].numpy().tolist() == list(range(10))
        feed.close()
        feed = lanes = batches = batch = array = capsule = None
        gc.collect()

    for _ in range(20):
        in_a_fork(drop)
    # What the children dropped is still the parent's, and not written to.
    rest = [batch.records[0][1] for batch in batches]
    assert rest == list(range(10, 100, 10)) and array.tolist() == list(range(10))
    assert [batch.records[0][1] for batch in lanes[0]] == list(range(0, 100, 10))
    """,
        numbers,
    )


def test_a_file_is_written_by_who_began_it(numbers: str) -> None:
    run_script(
        BEGIN
        + """
    path = sys.argv[1] + ".other"
    out = percolator.TfRecordWriter(path)
    out.write_example({"label": 1})

    def end():
        global out
        for use in [lambda: out.write(b""), out.close, lambda: out.records]:
            try:
                use()
            except percolator.ForkError:
                pass
            else:
                raise AssertionError(use)
        out = None

    in_a_fork(end)
    out.write_example({"label": 2})
    out.close()
    feed = percolator.Feed(tfrecord=path, fields="label:i64", batch_size=2, once=True)
    assert [batch["label"].numpy().tolist() for batch in feed] == [[1, 2]]
    """,
        numbers,
    )


def test_a_child_builds_its_own(numbers: str) -> None:
    run_script(
        BEGIN
        + """
    feed = build(epochs=1)
    batches = iter(feed)
    next(batches)

    def own():
        assert [batch.records[0][1] for batch in build(epochs=1)] == list(range(0, 100, 10))

    in_a_fork(own)
    assert [batch.records[0][1] for batch in batches] == list(range(10, 100, 10))
    """,
        numbers,
    )


def test_pythons_own_processes(numbers: str) -> None:
    out = run_script(
        BEGIN
        + """
    feed = build(epochs=1)

    def child():
        try:
            next(iter(feed))
        except percolator.ForkError as error:
            print(type(error).__name__, flush=True)

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join()
    assert process.exitcode == 0
    assert sum(batch.size for batch in feed) == 100
    """,
        numbers,
    )
    assert out == "ForkError\n"


def test_a_child_that_ends_as_a_program_does(numbers: str) -> None:
    run_script(
        BEGIN
        + """
    feed = build(epochs=1)
    if os.fork() == 0:
        sys.exit(0)  # atexit handlers, and all objects, as usual
    _, status = os.wait()
    assert os.waitstatus_to_exitcode(status) == 0, status
    assert sum(batch.size for batch in feed) == 100
    """,
        numbers,
    )
