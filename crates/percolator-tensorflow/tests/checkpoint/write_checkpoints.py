"""Writes checkpoints with TensorFlow into a folder, and a manifest of what TensorFlow's own reader gives.

    write_checkpoints.py FOLDER
"""
import hashlib
import json
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import numpy as np
import tensorflow as tf

folder = sys.argv[1]
random = np.random.default_rng(17)
manifest = {}


def entry(tensor):
    """What the manifest has of a tensor."""
    found = {"dtype": tensor.dtype.name, "shape": tensor.shape.as_list()}
    if tensor.dtype == tf.variant:
        return found
    if tensor.dtype == tf.string:
        # NumPy drops NUL bytes at the end of the strings of an array; one string alone keeps them.
        strings = [string.numpy() for string in tf.unstack(tf.reshape(tensor, [-1]))]
        return found | {"sha256": hashlib.sha256(b"\0".join(strings)).hexdigest()}
    same_size = {
        tf.qint8: tf.int8, tf.quint8: tf.uint8, tf.qint16: tf.int16, tf.quint16: tf.uint16, tf.qint32: tf.int32,
    }
    if tensor.dtype in same_size:
        tensor = tf.bitcast(tensor, same_size[tensor.dtype])
    return found | {"sha256": hashlib.sha256(tensor.numpy().tobytes()).hexdigest()}


def record(case, prefix):
    """Reads a checkpoint back with TensorFlow, and records it."""
    reader = tf.train.load_checkpoint(prefix)
    tensors = {}
    for name, dtype in sorted(reader.get_variable_to_dtype_map().items()):
        (tensor,) = tf.raw_ops.RestoreV2(
            prefix=prefix, tensor_names=[name], shape_and_slices=[""], dtypes=[tf.as_dtype(dtype)]
        )
        tensors[name] = entry(tensor)
    manifest[case] = {"prefix": os.path.relpath(prefix, folder), "tensors": tensors}


def save(case, tensors, slices=None, prefix=None, is_recorded=True):
    """Saves (name, tensor) with the raw op."""
    prefix = prefix or os.path.join(folder, case, "model")
    os.makedirs(os.path.dirname(prefix), exist_ok=True)
    names = [name for name, _ in tensors]
    tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=names,
        shape_and_slices=slices or [""] * len(names),
        tensors=[tensor for _, tensor in tensors],
    )
    if is_recorded:
        record(case, prefix)
    return prefix


def large():
    big = random.standard_normal([3000, 2500]).astype(np.float32)
    save("large", [("small", tf.constant([1, 2, 3])), ("big", tf.constant(big)), ("last", tf.constant(big[:70]))])


def types():
    numbers = random.integers(-3, 4, [5, 3])
    tensors = []
    for name in [
        "bfloat16", "half", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32",
        "uint64", "bool", "complex64", "complex128", "float8_e5m2", "float8_e4m3fn", "float8_e4m3fnuz",
        "float8_e4m3b11fnuz", "float8_e5m2fnuz", "int4", "uint4", "int2", "uint2", "float4_e2m1fn",
    ]:
        try:
            dtype = getattr(tf, name, None) or getattr(tf.dtypes.experimental, name)
            tensor = tf.constant(np.abs(numbers).astype(dtype.as_numpy_dtype))
            save("probe", [(name, tensor)])
            tensors.append(("types/" + name, tensor))
        except Exception as error:  # This TensorFlow does not save the type.
            print(f"{name} is left out: {str(error)[:100]}", file=sys.stderr)
    for dtype, same in [(tf.qint8, tf.int8), (tf.quint8, tf.uint8), (tf.qint16, tf.int16), (tf.quint16, tf.uint16),
                        (tf.qint32, tf.int32)]:
        tensors.append(("types/" + dtype.name, tf.bitcast(tf.constant(np.abs(numbers), same), dtype)))
    assert len(tensors) >= 20, [name for name, _ in tensors]
    save("types", tensors)


def strings():
    texts = [b"", b"a", b"\0", b"ends with \0", bytes(range(256)), b"x" * 127, b"y" * 128, b"z" * 70000, "ü".encode()]
    save("strings", [
        ("scalar", tf.constant(b"only")),
        ("empty", tf.constant("")),
        ("none", tf.constant([], tf.string)),
        ("many", tf.constant([str(i).encode() * (i % 5) for i in range(6000)], shape=[2, 3, 1000])),
        ("texts", tf.stack([tf.constant(t) for t in texts])),
        ("names/ü ñ\n", tf.constant(1)),
    ])


def variants():
    element_shape = tf.constant([], tf.int32)
    lists = [tf.raw_ops.TensorListFromTensor(tensor=tf.range(i + 2), element_shape=element_shape) for i in range(3)]
    save("variants", [("list", lists[0]), ("lists", tf.stack(lists))])


def sliced():
    tensors, slices = [], []

    def add(name, tensor, regions):
        for region in regions:
            index = tuple(slice(start, start + size) for start, size in region)
            spec = ":".join(
                "-" if (start, size) == (0, extent) and use_dash else f"{start},{size}"
                for (start, size), extent in zip(region, tensor.shape)
            )
            tensors.append((name, tf.constant(tensor[index])))
            slices.append(" ".join(map(str, tensor.shape)) + " " + spec)

    use_dash = True
    add("rows", random.standard_normal([11, 4]).astype(np.float32),
        [[(0, 1), (0, 4)], [(1, 7), (0, 4)], [(8, 3), (0, 4)]])
    add("wheel", random.integers(0, 99, [3, 3]),
        [[(0, 1), (0, 2)], [(0, 2), (2, 1)], [(2, 1), (1, 2)], [(1, 2), (0, 1)], [(1, 1), (1, 1)]])
    use_dash = False
    # Places of more than 63 take two bytes of a key.
    add("cube", random.standard_normal([150, 5, 4]),
        [[a, b, (d, 2)] for a in ((0, 66), (66, 84)) for b in ((0, 2), (2, 3)) for d in (0, 2)])
    tensors.append(("whole", tf.constant([1.5])))
    slices.append("")
    save("sliced", tensors, slices)


def merged():
    """Three data files, and a variable with slices in two of them."""
    table = random.standard_normal([9, 5]).astype(np.float32)
    base = os.path.join(folder, "merged")
    parts = [
        save("part0", [("a", tf.constant([1])), ("table", tf.constant(table[:4]))], ["", "9 5 0,4:-"],
             os.path.join(base, "part0"), False),
        save("part1", [("table", tf.constant(table[4:]))], ["9 5 4,5:-"], os.path.join(base, "part1"), False),
        save("part2", [("b", tf.constant("text")), ("c", tf.zeros([0, 2]))], None, os.path.join(base, "part2"), False),
    ]
    prefix = os.path.join(base, "model")
    tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=parts, destination_prefix=prefix, delete_old_dirs=False)
    record("merged", prefix)


def objects():
    class Layer(tf.Module):
        def __init__(self, size):
            super().__init__()
            self.kernel = tf.Variable(random.standard_normal([size, 2]).astype(np.float32))
            self.bias = tf.Variable(tf.zeros([2]))

    net = tf.Module()
    net.layers = [Layer(3), Layer(2)]
    net.heads = {"a/b": Layer(1), "c.d": tf.Variable(3.0), "plain": [tf.Variable(1), tf.Variable(2)]}
    net.again = net.layers[0]
    net.itself = net
    table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
    table.insert(tf.constant(["x", "y"]), tf.constant([1, 2], tf.int64))
    optimizer = tf.compat.v1.train.AdamOptimizer(0.1)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(net.layers[0].kernel ** 2) + net.heads["c.d"] ** 2
    variables = [net.layers[0].kernel, net.heads["c.d"]]
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
    checkpoint = tf.train.Checkpoint(net=net, optimizer=optimizer, table=table, step=tf.Variable(5, dtype=tf.int64))
    prefix = checkpoint.save(os.path.join(folder, "objects", "ckpt"))
    record("objects", prefix)
    view = {}
    for name, _ in tf.train.list_variables(prefix):
        if "/.ATTRIBUTES/" in name:
            path, attribute = name.split("/.ATTRIBUTES/")
            view.setdefault(path, []).append([attribute, name])
    manifest["objects"]["paths"] = view


def first_format():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        v = tf.compat.v1.get_variable("v", initializer=[1.0, 2.0], use_resource=False)
        session.run(v.initializer)
        saver = tf.compat.v1.train.Saver([v], write_version=tf.compat.v1.train.SaverDef.V1)
        os.makedirs(os.path.join(folder, "first"))
        saver.save(session, os.path.join(folder, "first", "model.ckpt"))


for case in [large, types, strings, variants, sliced, merged, objects, first_format]:
    case()
manifest.pop("probe")
with open(os.path.join(folder, "manifest.json"), "w") as file:
    json.dump(manifest, file)
