"""What frameworks make of a field: arrays at its own address, with its type and its values."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
from conftest import FIELDS, framework

import percolator

TYPES = ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "f32", "f64"]


def first(numbers: str, fields: str = FIELDS, **options: Any) -> percolator.Batch:
    return next(iter(percolator.Feed(tfrecord=numbers, fields=fields, batch_size=8, **options)))


EXPECTED = numpy.arange(32).reshape(8, 4)


@pytest.mark.parametrize("dtype", TYPES)
def test_numpy_has_the_fields_memory(numbers: str, dtype: str) -> None:
    field = next(iter(percolator.Feed(tfrecord=numbers, batch_size=8, decode=decode_as(dtype))))["x"]
    for array in [numpy.asarray(field), field.numpy(), numpy.from_dlpack(field)]:
        assert array.ctypes.data == field.address
        assert array.dtype == numpy.dtype(numpy_name(dtype))
        assert array.shape == field.shape == (8, 4)
        assert (array == EXPECTED).all()
    assert numpy.asarray(field).flags.writeable


def numpy_name(dtype: str) -> str:
    return {"i": "int", "u": "uint", "f": "float"}[dtype[0]] + dtype[1:]


def decode_as(dtype: str) -> Any:
    def decode(record: percolator.Record) -> dict[str, Any]:
        return {"x": numpy.arange(4 * record.index, 4 * record.index + 4).astype(numpy_name(dtype))}

    return decode


@pytest.mark.parametrize("dtype", TYPES)
def test_torch_has_the_fields_memory(numbers: str, dtype: str) -> None:
    torch = framework("torch")
    field = next(iter(percolator.Feed(tfrecord=numbers, batch_size=8, decode=decode_as(dtype))))["x"]
    of_capsule = torch.utils.dlpack.from_dlpack(field.__dlpack__())
    for tensor in [torch.from_dlpack(field), field.torch(), of_capsule]:
        assert tensor.data_ptr() == field.address
        assert tensor.dtype == getattr(torch, numpy_name(dtype))
        assert tuple(tensor.shape) == (8, 4)
        assert tensor.tolist() == EXPECTED.tolist()


def test_torch_takes_bf16_and_numpy_says_that_it_does_not(golden: Any) -> None:
    torch = framework("torch")
    feed = percolator.Feed(lmdb=golden / "raw_lmdb", batch_size=2, dtype=torch.bfloat16)
    plain = next(iter(percolator.Feed(lmdb=golden / "raw_lmdb", batch_size=2)))["data"].torch()
    field = next(iter(feed))["data"]
    tensor = torch.from_dlpack(field)
    assert tensor.dtype == torch.bfloat16 and tensor.data_ptr() == field.address
    assert torch.equal(tensor, plain.to(torch.bfloat16))
    with pytest.raises(TypeError, match="bf16, which NumPy does not have: take it with torch.from_dlpack"):
        numpy.asarray(field)


@pytest.mark.parametrize("dtype", ["i8", "i16", "i32", "u8", "u16", "u32", "f16", "f32"])
def test_jax_has_the_fields_memory(numbers: str, dtype: str) -> None:
    jax = framework("jax")
    import jax.dlpack

    field = next(iter(percolator.Feed(tfrecord=numbers, batch_size=8, decode=decode_as(dtype))))["x"]
    for array in [jax.dlpack.from_dlpack(field), field.jax()]:
        assert array.unsafe_buffer_pointer() == field.address
        assert array.dtype == numpy.dtype(numpy_name(dtype))
        assert numpy.asarray(array).tolist() == EXPECTED.tolist()


def test_jax_takes_images_of_two_types(golden: Any) -> None:
    framework("jax")
    for dtype in ["bf16", "f32"]:
        field = next(iter(percolator.Feed(lmdb=golden / "raw_lmdb", batch_size=2, dtype=dtype)))["data"]
        array = field.jax()
        assert array.unsafe_buffer_pointer() == field.address
        assert str(array.dtype) == {"bf16": "bfloat16", "f32": "float32"}[dtype]


@pytest.mark.parametrize("dtype", ["i32", "i64", "u8", "f32"])
def test_tensorflow_has_the_fields_memory(numbers: str, dtype: str) -> None:
    tensorflow = framework("tensorflow")
    field = next(iter(percolator.Feed(tfrecord=numbers, batch_size=8, decode=decode_as(dtype))))["x"]
    tensor = field.tensorflow()
    assert tensor.dtype.name == numpy_name(dtype)
    assert tensor.numpy().tolist() == EXPECTED.tolist()
    # Its method numpy() copies; its own capsule says where it is.
    again = Capsule(tensorflow.experimental.dlpack.to_dlpack(tensor))
    assert numpy.from_dlpack(again).ctypes.data == field.address


class Capsule:
    """A capsule, as an object that NumPy takes."""

    def __init__(self, capsule: Any) -> None:
        self.capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


def test_a_field_describes_itself(numbers: str) -> None:
    field = first(numbers)["x"]
    assert (field.name, field.dtype, field.shape, field.nbytes) == ("x", "i64", (8, 4), 256)
    assert (field.device, field.__dlpack_device__(), len(field)) == ("cpu", (1, 0), 8)
    assert repr(field) == 'Field("x": i64 [8x4] on cpu)'
    assert field.address % 64 == 0


def test_consumers_share_one_memory(numbers: str) -> None:
    torch = framework("torch")
    field = first(numbers)["x"]
    array, tensor = field.numpy(), field.torch()
    array[0, 0] = -7
    assert tensor[0, 0] == -7
    assert torch.equal(tensor, torch.from_dlpack(array))


def test_capsules_are_of_the_version_that_is_asked_for(numbers: str) -> None:
    field = first(numbers)["x"]
    assert '"dltensor"' in repr(field.__dlpack__())
    assert '"dltensor"' in repr(field.__dlpack__(max_version=(0, 8)))
    assert '"dltensor_versioned"' in repr(field.__dlpack__(max_version=(1, 1)))


def test_a_copy_is_a_copy(numbers: str) -> None:
    field = first(numbers)["x"]
    copy = numpy.from_dlpack(field, copy=True)
    assert copy.ctypes.data != field.address
    assert (copy == EXPECTED).all()
    copy[:] = 0
    assert (field.numpy() == EXPECTED).all()


def test_another_device_is_refused(numbers: str) -> None:
    field = first(numbers)["x"]
    with pytest.raises(BufferError, match="is on cpu, and is not copied to another device"):
        field.__dlpack__(dl_device=(2, 0))
    field.__dlpack__(dl_device=(1, 0))


def test_another_type_is_refused(numbers: str) -> None:
    batch = first(numbers)
    assert batch.field("x", "int64").dtype == "i64"
    assert batch["x"].expect(numpy.int64).dtype == "i64"
    with pytest.raises(percolator.FieldError, match='field "x" holds i64, but f32 was requested'):
        batch.field("x", numpy.float32)
    with pytest.raises(TypeError, match='field "x" holds i64, but f16 was requested'):
        batch["x"].expect("float16")
    with pytest.raises(ValueError, match="unknown variant `f31`"):
        batch.field("x", "f31")
    with pytest.raises(KeyError, match='there is no field \\\\?"y\\\\?"; there are x, label'):
        batch["y"]


def test_varying_lengths_have_arrays_beside_them(numbers: str) -> None:
    batch = first(numbers, "x as r:i64[<=8]")
    assert batch.keys() == ["r", "r.offsets"]
    assert batch["r"].numpy().tolist() == list(range(32))
    assert batch["r.offsets"].numpy().tolist() == list(range(0, 36, 4))
    batch = first(numbers, "x as p:i64[<=6]=-1")
    assert batch.keys() == ["p", "p.lengths"]
    assert batch["p"].numpy()[1].tolist() == [4, 5, 6, 7, -1, -1]
    assert batch["p.lengths"].numpy().tolist() == [4] * 8


def test_a_batch_is_a_mapping(numbers: str) -> None:
    batch = first(numbers)
    assert list(batch) == batch.keys() == ["x", "label"] and len(batch) == 2
    assert "x" in batch and "y" not in batch
    assert [name for name, _ in batch.items()] == ["x", "label"]
    assert {name: field.shape for name, field in dict(batch).items()} == {"x": (8, 4), "label": (8,)}
    assert batch.size == batch.rows == 8 and batch.mask == [True] * 8
    assert batch.records == [(0, index) for index in range(8)]


def test_padding_is_no_record(numbers: str) -> None:
    feed = percolator.Feed(tfrecord=numbers, fields=FIELDS, batch_size=64, epochs=1, last_batch="pad")
    *_, last = feed
    assert (last.size, last.rows, last.epoch, last.step, last.is_last) == (36, 64, 0, 1, True)
    assert sum(last.mask) == 36
    assert last["label"].numpy().tolist() == [*range(64, 100), *[0] * 28]
