"""What NumPy, safetensors and TensorFlow write, and what they find in files that Rust wrote.

write FOLDER   writes files, and expected.json: what is in them
read PATH...   prints what the libraries find in files (a folder is one of .npy files; a prefix a checkpoint)
"""

import json
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import ml_dtypes
import numpy as np
import safetensors.numpy
import tensorflow as tf
from safetensors import safe_open


def described(array, name=None):
    """The type by TensorFlow's name, the shape, the bytes or strings in hexadecimal."""
    array = np.asarray(array)
    shape = list(array.shape)
    kind = name or {"S": "string", "U": "string", "O": "string"}.get(array.dtype.kind)
    if kind is None and array.dtype.names:
        [kind] = array.dtype.names
    if kind is None and array.dtype == np.dtype("V2"):
        kind = "bfloat16"
    if kind == "string":
        strings = [item.encode() if isinstance(item, str) else bytes(item) for item in array.reshape(-1).tolist()]
        return {"dtype": kind, "shape": shape, "hex": [item.hex() for item in strings]}
    little = array.astype(array.dtype.newbyteorder("<")) if array.dtype.byteorder == ">" else array
    return {"dtype": kind or array.dtype.name, "shape": shape, "hex": [little.tobytes().hex()]}


def arrays():
    """Arrays of all types that np.save keeps, in several shapes."""
    random = np.random.default_rng(5)
    found = {}
    for shape in [(), (1,), (0,), (3, 4), (2, 0, 5), (2, 3, 2), (70,), (1,) * 9, (1,) * 20]:
        count = int(np.prod(shape))
        for code in ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1", "c8", "c16"]:
            raw = random.integers(0, 2 if code == "b1" else 256, count * np.dtype(code).itemsize, dtype=np.uint8)
            found[f"{code}/{len(shape)}.{count}"] = raw.view(code).reshape(shape)
        found[f"bfloat16/{len(shape)}.{count}"] = random.random(count).astype(ml_dtypes.bfloat16).reshape(shape)
        for kind in [tf.qint8, tf.quint8, tf.qint16, tf.quint16, tf.qint32]:
            dtype = np.dtype(kind.as_numpy_dtype)
            raw = random.integers(0, 256, count * dtype.itemsize, dtype=np.uint8)
            found[f"{kind.name}/{len(shape)}.{count}"] = raw.view(dtype).reshape(shape)
        words = np.array([b"x" * int(size) + b"\0y" for size in random.integers(0, 9, count)], dtype="S12")
        found[f"strings/{len(shape)}.{count}"] = words.reshape(shape)
    return found


def write(folder):
    expected = []

    def note(file, tensors, same):
        expected.append({"file": file, "same": same, "tensors": tensors})

    found = arrays()
    for number, (name, array) in enumerate(found.items()):
        file = f"{number}.npy"
        np.save(os.path.join(folder, file), array)
        # Strings of 12 bytes are written with as many as the longest has.
        note(file, {str(number): described(array)}, array.dtype.kind != "S")
    same = {name: array for name, array in found.items() if array.dtype.kind != "S"}
    np.savez(os.path.join(folder, "all.npz"), **same)
    note("all.npz", {name: described(array) for name, array in same.items()}, True)
    odd = {"../up": np.zeros(2), "/root": np.ones(1, "i1"), "a//b": np.arange(3), "ü": np.zeros((), "f2"), "": np.ones(3)}
    np.savez(os.path.join(folder, "odd.npz"), **odd)
    note("odd.npz", {name: described(array) for name, array in odd.items()}, True)
    np.savez(os.path.join(folder, "none.npz"))
    note("none.npz", {}, True)
    np.savez_compressed(os.path.join(folder, "deflated.npz"), **found)
    note("deflated.npz", {name: described(array) for name, array in found.items()}, False)

    other = {
        "fortran": np.asfortranarray(np.arange(24, dtype="i2").reshape(2, 3, 4)),
        "big": np.arange(6, dtype=">f8").reshape(2, 3),
        "big_fortran": np.asfortranarray(np.arange(6, dtype=">c8").reshape(2, 3)),
        "text": np.array([["ü", "", "abc\U0001F600"]]),
        "big_text": np.array(["ä", "bc"]).astype(">U2"),
        "padded": np.array([b"ab", b"", b"\0c"]),
    }
    for name, array in other.items():
        np.save(os.path.join(folder, f"{name}.npy"), array)
        note(f"{name}.npy", {name: described(array)}, False)
    # float8 by itself loses its name; as a field it keeps it.
    one = np.array([1, 2, -4], ml_dtypes.float8_e4m3fn)
    np.save(os.path.join(folder, "field.npy"), one.view([("float8_e4m3fn", "V1")]))
    note("field.npy", {"field": described(one, "float8_e4m3fn")}, True)
    np.save(os.path.join(folder, "f1.npy"), one.astype(ml_dtypes.float8_e5m2))
    note("f1.npy", {"f1": described(one.astype(ml_dtypes.float8_e5m2), "float8_e5m2")}, False)
    for version in [(1, 0), (2, 0), (3, 0)]:
        name = f"version{version[0]}"
        with open(os.path.join(folder, f"{name}.npy"), "wb") as file:
            np.lib.format.write_array(file, np.arange(5, dtype="u4"), version)
        note(f"{name}.npy", {name: described(np.arange(5, dtype="u4"))}, version == (1, 0))

    kept = {name: np.ascontiguousarray(array) for name, array in found.items()
            if array.dtype.kind in "fiubc" and array.dtype != "c16" or array.dtype.name == "bfloat16"}
    safetensors.numpy.save_file(kept, os.path.join(folder, "all.safetensors"), {"made": "by \"Python\" ü"})
    note("all.safetensors", {name: described(array) for name, array in kept.items()}, True)
    safetensors.numpy.save_file({}, os.path.join(folder, "none.safetensors"))
    note("none.safetensors", {}, True)

    saved = {name: array for name, array in found.items() if array.dtype.kind not in "SV" or not array.dtype.names}
    values = {name: tf.constant(array.tolist() if array.dtype.kind == "S" else array,
                                tf.string if array.dtype.kind == "S" else None, array.shape)
              for name, array in saved.items()}
    names = list(values)
    tf.raw_ops.SaveV2(prefix=os.path.join(folder, "model"), tensor_names=names, shape_and_slices=[""] * len(names),
                      tensors=[values[name] for name in names])
    note("model", {name: described(value.numpy()) if value.dtype != tf.string else described(saved[name])
                   for name, value in values.items()}, True)
    with open(os.path.join(folder, "expected.json"), "w") as file:
        json.dump(expected, file)


def in_file(path):
    if path.endswith(".npz"):
        with np.load(path) as archive:
            return {name: described(archive[name]) for name in archive.files}
    if path.endswith(".npy"):
        return {os.path.basename(path)[:-4]: described(np.load(path))}
    if path.endswith(".safetensors"):
        with safe_open(path, "np") as file:
            # The library finds no types for float8 in NumPy.
            names = [name for name in file.keys() if not file.get_slice(name).get_dtype().startswith("F8")]
            return {name: described(file.get_tensor(name)) for name in names}
    if os.path.isdir(path):
        found = {}
        for folder, _, files in os.walk(path):
            for file in files:
                name = os.path.relpath(os.path.join(folder, file), path)[:-4]
                found[name] = described(np.load(os.path.join(folder, file)))
        return found
    reader = tf.train.load_checkpoint(path)
    found = {}
    for name, dtype in reader.get_variable_to_dtype_map().items():
        found[name] = described(reader.get_tensor(name), dtype.name)
    return found


if sys.argv[1] == "write":
    write(sys.argv[2])
else:
    print(json.dumps({path: in_file(path) for path in sys.argv[2:]}))
