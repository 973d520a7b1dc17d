"""Batches on a GPU, as PyTorch and JAX see them there: the bytes of the host, while kernels are in flight.

Without a GPU, or without the framework's own build for one, a test is skipped (GPU in conftest.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import framework, missing

import percolator


@pytest.fixture
def torch() -> Any:
    """PyTorch that sees a GPU."""
    module = framework("torch")
    if not module.cuda.is_available():
        missing("GPU", "PyTorch sees no GPU here")
    return module


def feed(golden: Path, device: str, **options: Any) -> percolator.Feed:
    transform = {"crop": 32, "mirror": True, "mean_values": [104, 117, 123], "scale": 0.017}
    return percolator.Feed(lmdb=golden / "raw_lmdb", batch_size=4, devices=device, **{**transform, **options})


def on_host(golden: Path, batches: int, **options: Any) -> Iterator[tuple[Any, Any]]:
    for _, batch in zip(range(batches), feed(golden, "host", **options), strict=False):
        yield batch["data"].torch().clone(), batch["label"].torch().clone()


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("transform_on", ["host", "device"])
def test_torch_has_the_hosts_values_on_the_gpu(
    torch: Any, golden: Path, dtype: str, transform_on: str
) -> None:
    there = feed(golden, "cuda:0", dtype=dtype, transform_on=transform_on)
    batches = 0
    for batch, (images, labels) in zip(there, on_host(golden, 40, dtype=dtype), strict=False):
        data = batch["data"]
        tensor = data.torch()
        assert (tensor.device, tensor.data_ptr()) == (torch.device("cuda:0"), data.address)
        assert torch.equal(tensor.cpu(), images)
        assert torch.equal(batch["label"].torch().cpu(), labels)
        batches += 1
    assert batches == 40


def test_kernels_in_flight_read_their_own_batch(torch: Any, golden: Path) -> None:
    # Each batch is dropped while the work that reads it waits behind a long kernel on a stream of its own.
    streams = [torch.cuda.Stream() for _ in range(3)]
    sums = []
    batches = 60
    for number, batch in zip(range(batches), feed(golden, "cuda:0"), strict=False):
        with torch.cuda.stream(streams[number % 3]):
            torch.cuda._sleep(2_000_000)
            sums.append(torch.from_dlpack(batch["data"]).double().sum())
        del batch
    torch.cuda.synchronize()
    due = [images.double().sum() for images, _ in on_host(golden, batches)]
    assert torch.allclose(torch.stack(sums).cpu(), torch.stack(due), rtol=1e-9)


def test_a_tensor_outlives_its_batch_and_its_feed(torch: Any, golden: Path) -> None:
    some = feed(golden, "cuda:0")
    tensors = [batch["data"].torch() for _, batch in zip(range(2), some, strict=False)]
    del some
    for tensor, (images, _) in zip(tensors, on_host(golden, 2), strict=True):
        assert torch.equal(tensor.cpu(), images)


def test_a_model_learns_the_same_from_either_device(torch: Any, golden: Path) -> None:
    def losses(device: str) -> list[float]:
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 40 * 36, 10)).cuda()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        loader = percolator.DataLoader(
            lmdb=golden / "raw_lmdb",
            batch_size=8,
            shuffle=True,
            devices=device,
            framework="torch",
            scale=1 / 255,
        )
        seen = []
        for epoch in range(20):
            loader.set_epoch(epoch)
            for images, labels in loader:
                assert images.is_cuda == labels.is_cuda == (device == "cuda")
                loss = torch.nn.functional.cross_entropy(model(images.cuda()), labels.cuda().long() % 10)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                seen.append(loss.item())
        return seen

    on_gpu = losses("cuda")
    assert on_gpu == losses("host")
    assert sum(on_gpu[-8:]) < sum(on_gpu[:8])


def test_jax_has_the_hosts_values_on_the_gpu(golden: Path) -> None:
    jax = framework("jax")
    if jax.default_backend() != "gpu":
        missing("GPU", "JAX sees no GPU here")
    numpy = framework("numpy")
    host = feed(golden, "host")
    batches = 0
    for _, batch, other in zip(range(20), feed(golden, "cuda:0"), host, strict=False):
        array = jax.dlpack.from_dlpack(batch["data"])
        assert "cuda" in str(array.device).lower()
        numpy.testing.assert_array_equal(numpy.asarray(array), other["data"].numpy())
        batches += 1
    assert batches == 20
