"""The loader: epochs, lengths, states, ranks, and the arrays of each framework."""

from __future__ import annotations

import io
import os
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy
import pytest
from conftest import FIELDS, framework, run_script, write_numbers

import percolator


def loader(numbers: str, **options: Any) -> percolator.DataLoader:
    return percolator.DataLoader(
        **{"tfrecord": numbers, "fields": FIELDS, "batch_size": 8, "framework": "numpy", **options}
    )


def labels(batches: Any) -> list[list[int]]:
    return [label.tolist() for _, label in batches]


def flat(batches: Any) -> list[int]:
    return [label for batch in labels(batches) for label in batch]


def test_the_loop_that_people_have(golden: Path) -> None:
    torch = framework("torch")
    images = percolator.DataLoader(lmdb=golden / "raw_lmdb", batch_size=10, shuffle=True)
    assert len(images) == 7
    seen = 0
    for pixels, label in images:
        assert pixels.dtype == torch.float32 and label.dtype == torch.int64
        assert pixels.shape[1:] == (3, 40, 36) and len(pixels) == len(label)
        seen += len(label)
    assert seen == 64


def test_each_iteration_is_an_epoch(numbers: str) -> None:
    batches = loader(numbers, shuffle=True)
    epochs = [flat(batches) for _ in range(3)]
    assert all(sorted(epoch) == list(range(100)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3, "each has its own order"
    assert batches.epoch == 2 and len(batches) == 13
    batches.set_epoch(1)
    assert flat(batches) == epochs[1] and flat(batches) == epochs[2]
    with pytest.raises(ValueError, match="there is no epoch -1"):
        batches.set_epoch(-1)
    # One that is left early is over: the next iteration is the next epoch.
    batches.set_epoch(0)
    next(iter(batches))
    assert flat(batches) == epochs[1]


def test_old_iterators_end_with_an_error(numbers: str) -> None:
    batches = loader(numbers)
    old = iter(batches)
    next(old)
    iter(batches)
    with pytest.raises(percolator.FeedError, match="the loader began another epoch"):
        next(old)


def test_short_batches(numbers: str) -> None:
    assert [len(label) for _, label in loader(numbers)][-1] == 4 and len(loader(numbers)) == 13
    dropping = loader(numbers, drop_last=True)
    assert [len(label) for _, label in dropping] == [8] * 12 and len(dropping) == 12
    with pytest.raises(percolator.ConfigError, match="drop_last and last_batch are both set"):
        loader(numbers, drop_last=True, last_batch="keep")


@pytest.mark.parametrize("stop", [0, 1, 5, 12, 13, 20])
def test_a_state_goes_on_exactly(numbers: str, stop: int) -> None:
    options = {"shuffle": True, "seed": 11, "prefetch": 6}
    whole = loader(numbers, **options)
    expected = [batch for _ in range(3) for batch in labels(whole)]

    begun, seen = loader(numbers, **options), []
    while len(seen) < stop:
        for _, label in begun:
            seen.append(label.tolist())
            if len(seen) == stop:
                break
    state = begun.state_dict()
    assert set(state) == {"version", "snapshot", "epoch", "made_by"} and isinstance(state["snapshot"], str)

    resumed = loader(numbers, **options)
    resumed.load_state_dict(state)
    assert len(resumed) == 13
    for epoch in range(begun.epoch, 3):
        resumed.set_epoch(epoch)  # as many loops do; the epoch that was loaded goes on all the same
        seen += labels(resumed)
    assert seen == expected


def test_a_state_may_be_loaded_into_the_same_loader(numbers: str) -> None:
    batches = loader(numbers, shuffle=True)
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
    assert not list(iteration), "one that had ended has nothing more to say"
    assert flat(batches) == rest
    batches.load_state_dict(state)
    batches.set_epoch(0)
    assert flat(batches) == rest, "the same epoch goes on"
    batches.load_state_dict(state)
    batches.set_epoch(1)
    assert sorted(flat(batches)) == list(range(100)), "another one is whole"


def test_a_state_that_does_not_suit_leaves_the_loader_as_it_was(numbers: str, tmp_path: Path) -> None:
    batches = loader(numbers, shuffle=True)
    expected = labels(loader(numbers, shuffle=True))
    iteration = iter(batches)
    seen = labels([next(iteration)])
    others = loader(write_numbers(tmp_path / "others.tfrecord", 30)).state_dict()
    own = batches.state_dict()
    del own["snapshot"]
    for state, message in [
        (others, "snapshot"),
        ({}, "the state has version None"),
        (own, "the state has no 'snapshot'"),
        (None, "the state is NoneType: give what state_dict\\(\\) returned"),
        ({**others, "snapshot": 7}, "the state's snapshot is int"),
        ({**others, "snapshot": "percolator"}, "snapshot"),
        ({**batches.state_dict(), "epoch": "1"}, "the state's epoch is str, and not int"),
        ({**batches.state_dict(), "made_by": None}, "the state's made_by is NoneType, and not dict"),
    ]:
        with pytest.raises(percolator.SnapshotError, match=message) as caught:
            batches.load_state_dict(state)
        assert caught.value.reason
    assert seen + labels(iteration) == expected
    assert sorted(flat(batches)) == list(range(100))


def test_a_loader_has_one_device(numbers: str) -> None:
    devices = ["host:0", "host:1"]
    with pytest.raises(percolator.ConfigError, match="a loader has one device, and was given 2") as caught:
        loader(numbers, devices=devices)
    assert caught.value.reason == str(caught.value)
    spec = percolator.Feed(tfrecord=numbers, fields=FIELDS, devices=devices, batch_size=5).spec()
    with pytest.raises(percolator.ConfigError, match="a loader has one device"):
        percolator.DataLoader.from_spec(spec, framework="numpy")


def test_torch_saves_it_with_the_model(numbers: str) -> None:
    torch = framework("torch")
    batches = loader(numbers, shuffle=True, framework="torch")
    iteration = iter(batches)
    next(iteration)
    file = io.BytesIO()
    torch.save({"model": torch.nn.Linear(2, 2).state_dict(), "loader": batches.state_dict()}, file)
    rest = flat(iteration)
    file.seek(0)
    resumed = loader(numbers, shuffle=True, framework="torch")
    resumed.load_state_dict(torch.load(file, weights_only=True)["loader"])
    assert flat(resumed) == rest


def test_its_state_is_used_as_torchdatas(numbers: str) -> None:
    """The same program runs with torchdata's loader and with this one, and both go on where they were."""
    framework("torch")
    stateful = framework("torchdata.stateful_dataloader").StatefulDataLoader
    dataset = list(range(100))

    def program(stop: int, make: Any, of: Any) -> list[list[Any]]:
        first, seen, state = make(), [], None
        for number, batch in enumerate(first):
            seen.append(of(batch))
            if number == stop:
                state = first.state_dict()
                break
        second = make()
        second.load_state_dict(state or first.state_dict())
        assert len(second) == len(first) == 13
        return [seen] + [[of(batch) for batch in second] for _ in range(2)]

    # The last but one is the last batch of the epoch; after the last, the loop has ended.
    for stop in [4, 12, 13]:
        theirs = program(stop, lambda: stateful(dataset, batch_size=8), lambda batch: batch.tolist())
        ours = program(stop, lambda: loader(numbers), lambda batch: batch[1].tolist())
        assert ours == theirs


def test_ranks_are_those_of_the_environment(numbers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: Counter[int] = Counter()
    for rank in range(3):
        for name, value in [("RANK", rank), ("WORLD_SIZE", 3), ("LOCAL_RANK", rank), ("LOCAL_WORLD_SIZE", 3)]:
            monkeypatch.setenv(name, str(value))
        process = percolator.environment()
        assert process is not None
        assert (process.rank, process.world_size, process.local_rank) == (rank, 3, rank)
        share = loader(numbers, shuffle=True, environment=True, last_batch="keep")
        assert len(share) == 5, "24 records a step, 8 for each"
        given = flat(share)
        assert given == flat(loader(numbers, shuffle=True, rank=rank, world_size=3, last_batch="keep"))
        assert len(flat(loader(numbers, environment=False))) == 100
        seen.update(given)
    assert seen == Counter(range(100)), "together every record once"
    monkeypatch.setenv("RANK", "three")
    with pytest.raises(ValueError, match="RANK=three: not a number of processes"):
        percolator.environment()
    with pytest.raises(percolator.ConfigError, match="RANK=three"):
        loader(numbers)
    monkeypatch.setenv("RANK", "3")
    with pytest.raises(percolator.ConfigError, match="there is no process 3 in a job of 3"):
        loader(numbers)


def test_a_gpu_is_chosen_by_the_local_rank(numbers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in [("RANK", 1), ("WORLD_SIZE", 2), ("LOCAL_RANK", 1)]:
        monkeypatch.setenv(name, str(value))
    with pytest.raises(percolator.DeviceError, match="no CUDA driver|there is no cuda:1"):
        loader(numbers, devices="cuda")


def test_a_state_goes_on_with_other_ranks(numbers: str) -> None:
    def of(rank: int, ranks: int) -> percolator.DataLoader:
        options: dict[str, Any] = {"shuffle": True, "batch_size": 5, "last_batch": "keep"}
        return loader(numbers, rank=rank, world_size=ranks, **options)

    seen: Counter[int] = Counter()
    states = []
    for rank in range(2):
        begun = of(rank, 2)
        for _, (_, label) in zip(range(4), begun):
            seen.update(label.tolist())
        states.append(begun.state_dict())
    for rank in range(3):
        resumed = of(rank, 3)
        # Any process's state serves, because all were at one step.
        resumed.load_state_dict(states[rank % 2])
        assert len(resumed) == 7, "of the whole epoch, although 60 records are left, 15 a step"
        given = flat(resumed)
        assert len(resumed) == 7, "of the next epoch"
        seen.update(given)
        assert sorted(flat(resumed)) == sorted(flat_of(numbers, rank)), "the next epoch is whole"
    assert seen == Counter(range(100)), "the epoch, across both jobs, has every record once"


def test_ranks_of_two_epochs_go_on_in_the_earlier_one(numbers: str) -> None:
    ranks = [loader(numbers, rank=rank, world_size=2, batch_size=5, environment=False) for rank in range(2)]
    seen = Counter(flat(ranks[0]))
    iter(ranks[0])
    for _, (_, label) in zip(range(4), ranks[1]):
        seen.update(label.tolist())
    states = [rank.state_dict() for rank in ranks]
    joined = percolator.Snapshot.join([percolator.Snapshot(state["snapshot"]) for state in states])
    alone = loader(numbers, batch_size=10)
    alone.load_state_dict({**states[0], "snapshot": str(joined)})
    seen.update(flat(alone))
    assert alone.epoch == 0 and seen == Counter(range(100))
    assert flat(alone) == list(range(100)) and alone.epoch == 1


def test_an_epoch_of_which_less_than_a_step_was_left_is_empty(numbers: str) -> None:
    begun = loader(numbers, batch_size=40)
    taken = [label.tolist() for _, (_, label) in zip(range(2), begun)]
    assert sum(map(len, taken)) == 80
    resumed = loader(numbers, batch_size=30, drop_last=True)
    resumed.load_state_dict(begun.state_dict())
    assert len(resumed) == 3 and flat(resumed) == [] and resumed.epoch == 0
    for epoch in (1, 2):
        assert flat(resumed) == list(range(90)) and resumed.epoch == epoch
    resumed.set_epoch(0)
    assert flat(resumed) == []


def flat_of(numbers: str, rank: int) -> list[int]:
    other = loader(numbers, shuffle=True, rank=rank, world_size=3, batch_size=5, last_batch="keep")
    other.set_epoch(1)
    return flat(other)


def test_frameworks(numbers: str) -> None:
    kinds = {"numpy": "ndarray", "torch": "Tensor", "jax": "ArrayImpl", "tensorflow": "EagerTensor"}
    for name, kind in kinds.items():
        try:
            framework(name)
        except pytest.skip.Exception:
            continue
        for copy in [False, True]:
            batches = loader(numbers, fields="x as y:i32[4]", framework=name, copy=copy)
            (first,) = next(iter(batches))
            assert type(first).__name__ == kind
            assert numpy.asarray(first).tolist() == numpy.arange(32).reshape(8, 4).tolist()
    with pytest.raises(ValueError, match="framework='mxnet': there are"):
        loader(numbers, framework="mxnet")


def test_jax_gets_labels_without_a_copy(golden: Path) -> None:
    framework("jax")
    loader_of_jax = percolator.DataLoader(lmdb=golden / "raw_lmdb", batch_size=8, framework="jax")
    images, labels = next(iter(loader_of_jax))
    (batch,) = percolator.Feed(lmdb=golden / "raw_lmdb", batch_size=64, epochs=1)
    assert str(images.dtype) == "float32" and str(labels.dtype) == "int32"
    assert labels.tolist() == batch["label"].numpy()[:8].tolist()


def test_copies_may_be_collected(numbers: str) -> None:
    framework("torch")
    for name in ["numpy", "torch"]:
        collected = list(loader(numbers, copy=True, framework=name, prefetch=2))
        assert [label.tolist() for _, label in collected] == labels(loader(numbers))


def test_names_and_dicts(numbers: str) -> None:
    (first,) = next(iter(loader(numbers, names=["label"])))
    assert first.tolist() == list(range(8))
    batch = next(iter(loader(numbers, as_dict=True)))
    assert list(batch) == ["x", "label"] and batch["label"].tolist() == list(range(8))
    for name in ["y", "x.lengths", "label.offsets"]:
        with pytest.raises(KeyError, match=f"there is no field '{name}'; there are x, label") as caught:
            loader(numbers, names=["label", name])
        assert isinstance(caught.value, percolator.FieldError) and caught.value.reason == str(caught.value)
    varying = loader(numbers, fields="x:i64[<=4],label:i64", names=["x.offsets"])
    assert next(iter(varying))[0].tolist() == list(range(0, 33, 4))


def test_nets_and_specs(golden: Path) -> None:
    net = percolator.DataLoader.from_prototxt(
        golden / "net" / "raw_none.prototxt", "test", root=golden, framework="numpy"
    )
    spec = percolator.DataLoader.from_spec(net.feed.spec(), framework="numpy")
    for one, other in zip(net, spec, strict=True):
        assert (one[0] == other[0]).all() and (one[1] == other[1]).all()
    assert net.epoch == 0


def test_a_spec_of_examples(numbers: str) -> None:
    feed = percolator.Feed(tfrecord=numbers, fields=FIELDS, batch_size=8, once=True)
    spec = percolator.DataLoader.from_spec(feed.spec(), framework="numpy")
    assert flat(spec) == flat(spec) == list(range(100)), "a loader goes through the epochs"


def test_torchs_keywords_say_what_to_do(numbers: str) -> None:
    for name in ["num_workers", "collate_fn", "pin_memory", "sampler", "dataset", "epochs", "once"]:
        with pytest.raises(TypeError, match=rf"DataLoader\(\) has no keyword '{name}': "):
            loader(numbers, **{name: 1})
    dataset: Any = list(range(100))
    with pytest.raises(TypeError, match=r"takes keywords, and no dataset: name the data: lmdb, leveldb"):
        percolator.DataLoader(dataset, batch_size=8)
    with pytest.raises(TypeError, match=r"DataLoader\(\) has no keyword .shufle. \(did you mean"):
        loader(numbers, shufle=True)


def test_two_loaders_at_once(numbers: str) -> None:
    for (_, one), (_, other) in zip(loader(numbers), loader(numbers), strict=True):
        assert one.tolist() == other.tolist()


def test_without_any_framework(tmp_path: Path) -> None:
    numbers = write_numbers(tmp_path / "x.tfrecord", 10)
    run_script(
        """
        import sys
        # No module is found but Python's own and this one.
        class Nothing:
            def find_spec(self, name, path=None, target=None):
                if name.split(".")[0] in ("numpy", "torch", "jax", "tensorflow"):
                    raise ModuleNotFoundError(name=name)
        sys.meta_path.insert(0, Nothing())
        import percolator
        feed = percolator.Feed(tfrecord=sys.argv[1], fields="label:i64", batch_size=4, once=True)
        for batch in feed:
            field = batch["label"]
            assert field.__array_interface__["data"] == (field.address, False)
            field.__dlpack__()
        """,
        numbers,
    )


def test_environment_variables_are_left_alone() -> None:
    assert percolator.environment() is None or "RANK" in os.environ
    process = percolator.environment(rank=1, world_size=4)
    assert process is not None and repr(process) == "Process(rank=1, world_size=4)"
    with pytest.raises(ValueError, match="nothing says how many there are"):
        percolator.environment(rank=1)


def test_labels_may_be_kept(numbers: str) -> None:
    for name in ["numpy", "torch"]:
        framework(name)
        targets = [label for _, label in loader(numbers, framework=name, prefetch=2)]
        assert [label.tolist() for label in targets] == labels(loader(numbers))


def test_a_mask_tells_records_from_padding(numbers: str) -> None:
    for name in ["numpy", "torch", "jax"]:
        try:
            framework(name)
        except pytest.skip.Exception:
            continue
        for rank in range(2):
            padded = loader(
                numbers, framework=name, last_batch="pad", mask=True, rank=rank, world_size=2, batch_size=30
            )
            seen = [(label.tolist(), mask.tolist()) for _, label, mask in padded]
            last = 30 if rank == 0 else 10
            assert [sum(mask) for _, mask in seen] == [30, last] and all(len(row) == 30 for row, _ in seen)
            assert seen[1][0][last:] == [0] * (30 - last)
            assert seen[1][1] == [True] * last + [False] * (30 - last)
    batch = next(iter(loader(numbers, mask=True, as_dict=True)))
    assert list(batch) == ["x", "label", "mask"] and batch["mask"].all() and batch["mask"].dtype == bool
    with pytest.raises(percolator.ConfigError, match="with rows of zeros: set mask=True"):
        loader(numbers, last_batch="pad")
    assert len(next(iter(loader(numbers, last_batch="pad", mask=False)))) == 2


def said(*arguments: Any, **options: Any) -> list[str]:
    """What a loader warns of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loader(*arguments, **options).close()
    assert all(warning.filename == __file__ for warning in caught), "it names the program's line"
    return [str(warning.message) for warning in caught]


def test_uneven_steps_of_a_job_are_said(numbers: str) -> None:
    job = {"world_size": 2, "batch_size": 33}
    odd = write_numbers(Path(numbers).parent / "129.tfrecord", 129)
    (message,) = said(odd, rank=0, world_size=2, batch_size=64)
    assert "the last step of an epoch has 0 to 1 records a process" in message
    assert len(said(odd, rank=0, **job)) == 1
    assert not said(odd, rank=1, **job), "one process says it for all"
    for options in [{"last_batch": "keep"}, {"drop_last": True}, {"last_batch": "wrap"}]:
        assert not said(odd, rank=0, **job, **options)
    assert not said(numbers, rank=0, world_size=2, batch_size=25), "all have the same"
    # What is advised for training: full batches only, and every record of the first epoch.
    seen: Counter[int] = Counter()
    for rank in range(2):
        wraps = loader(odd, rank=rank, last_batch="wrap", **job)
        batches = labels(wraps) + labels(wraps)
        assert {len(batch) for batch in batches} == {33}
        seen.update(label for batch in batches for label in batch)
    assert set(seen) == set(range(129)) and max(seen.values()) <= 3


def test_a_share_that_nobody_asked_for_is_said(numbers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_NTASKS", "4")
    for rank, is_said in [(0, True), (1, False)]:
        monkeypatch.setenv("SLURM_PROCID", str(rank))
        messages = said(numbers, batch_size=5)
        assert [message[:25] for message in messages] == ["this is process 0 of 4, a"] * is_said
        for environment in [True, False]:
            assert not said(numbers, batch_size=5, environment=environment)


def test_a_warning_that_is_an_error_leaves_no_feed(numbers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    built = []

    def build(**options: Any) -> percolator.Feed:
        built.append(percolator.Feed(**options))
        return built[-1]

    monkeypatch.setattr("percolator._loader.Feed", build)
    odd = write_numbers(Path(numbers).parent / "odd.tfrecord", 129)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="the last step of an epoch has"):
            loader(odd, rank=0, world_size=2, batch_size=64)
        monkeypatch.setenv("SLURM_NTASKS", "4")
        monkeypatch.setenv("SLURM_PROCID", "0")
        with pytest.raises(UserWarning, match="this is process 0 of 4"):
            loader(numbers, batch_size=5)
    assert [feed.closed for feed in built] == [True, True]


def test_an_initialised_process_group_decides(numbers: str) -> None:
    framework("torch.distributed")
    out = run_script(
        """
        import os, sys, types, warnings
        import torch.distributed as distributed
        import percolator

        def share(**options):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                loader = percolator.DataLoader(
                    tfrecord=sys.argv[1], fields="label:i64", batch_size=5, framework="numpy", **options
                )
                records = sum(len(label) for label, in loader)
            print(records, *(str(warning.message).split(":")[0][:58] for warning in caught), sep="; ")

        # A group of one, whose other half is not there: what it says is all that is asked for.
        distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
        share()
        distributed.get_world_size = lambda: 2
        share()
        share(environment=True)
        share(environment=False)
        # Lightning's variables, which leave out the rank.
        os.environ.update(LOCAL_RANK="0", NODE_RANK="0", WORLD_SIZE="2")
        share(environment=True)
        process = percolator.environment()
        print(process.rank, process.world_size, process.local_rank)
        del os.environ["WORLD_SIZE"]
        # Those that another job left.
        os.environ.update(SLURM_PROCID="0", SLURM_NTASKS="4")
        share(environment=True)
        try:
            share(rank=1, world_size=4)
        except percolator.ConfigError as error:
            print(error)
        share(rank=1, world_size=4, environment=False)
        """,
        numbers,
    )
    disagrees = "torch.distributed says process 0 of 2, and the environment"
    lines = [line for line in out.splitlines() if not line.startswith("[Gloo]")]
    assert lines[:6] == ["100", "50; this is process 0 of 2, as torch.distributed or the enviro", *map(
        str, [50, 100, 50]
    ), "0 2 0"]
    assert lines[6].startswith(f"50; {disagrees}")
    assert lines[7].startswith("torch.distributed says process 0 of 2, and was given rank=1, world_size=4: ")
    assert lines[8] == "25"


def test_a_state_of_a_loader_that_makes_something_else_is_said(golden: Path) -> None:
    def images(**options: Any) -> percolator.DataLoader:
        return percolator.DataLoader(lmdb=golden / "raw_lmdb", framework="numpy", batch_size=8, **options)

    begun = images(crop=32)
    next(iter(begun))
    state = begun.state_dict()
    for options, name in [
        ({"crop": 24}, "transform"),
        ({"crop": 32, "mirror": True}, "transform"),
        ({"crop": 32, "dtype": "f16"}, "dtype"),
        ({"crop": 32, "phase": "test"}, "phase"),
    ]:
        with pytest.warns(UserWarning, match=f"the state is of a loader with {name}="):
            images(**options).load_state_dict(state)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        images(crop=32, shuffle=False, threads=1, prefetch=2).load_state_dict(state)
        del state["made_by"]
        images(crop=24).load_state_dict(state)


def test_a_warning_that_is_an_error_leaves_the_loader_as_it_was(golden: Path) -> None:
    def images(**options: Any) -> percolator.DataLoader:
        return percolator.DataLoader(lmdb=golden / "raw_lmdb", framework="numpy", batch_size=8, **options)

    begun = images(crop=32)
    next(iter(begun))
    other = images(crop=24)
    feed, state = other.feed, other.state_dict()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="the state is of a loader with transform="):
            other.load_state_dict(begun.state_dict())
    assert other.feed is feed and not feed.closed and other.state_dict() == state


def test_a_length_is_that_of_the_whole_epoch_after_a_load(numbers: str) -> None:
    begun = loader(numbers, batch_size=10)
    for _ in zip(range(3), begun):
        pass
    for batch_size, steps in [(10, 10), (5, 20)]:
        resumed = loader(numbers, batch_size=batch_size)
        resumed.load_state_dict(begun.state_dict())
        assert len(resumed) == steps and len(flat(resumed)) == 70 and len(resumed) == steps


def test_a_load_has_one_feed_at_a_time(numbers: str) -> None:
    old: percolator.Feed | None = None
    seen = []

    def decode(record: percolator.Record) -> dict[str, int]:
        if old is not None:
            seen.append(old.closed)
        return {"index": record.index}

    options = {"fields": None, "decode": decode, "decode_fields": "index:i64", "prefetch": 2}
    loads = loader(numbers, **options)
    # From here on the feed has nothing to do.
    while loads.stats().lanes[0]["ready"] < 2:
        time.sleep(0.001)
    old = loads.feed
    loads.load_state_dict(loads.state_dict())
    assert loads.feed is not old and next(iter(loads))[0].tolist() == list(range(8))
    assert seen and all(seen)
