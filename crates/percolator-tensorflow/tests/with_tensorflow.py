"""What real TensorFlow writes and reads, for the tests of this package.

with_tensorflow.py tensors FOLDER SEED    writes checkpoints of random tensors, FOLDER/random-N; prints their names
with_tensorflow.py read PREFIX...         prints what it reads at each prefix
with_tensorflow.py manage FOLDER SEED     runs managers by a random plan; prints the plan and what was there after each step
with_tensorflow.py latest FOLDER          prints the latest checkpoint, and saves another one by its own manager
"""

import hashlib
import json
import os
import random
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np
import tensorflow as tf
from tensorflow.python.checkpoint import checkpoint_management
from tensorflow.python.training import saver as saver_module

NUMBERS = [
    "float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32",
    "uint64", "bool", "complex64", "complex128", "qint8", "quint8", "qint16", "quint16", "qint32", "float8_e5m2",
    "float8_e4m3fn", "float8_e4m3fnuz", "float8_e4m3b11fnuz", "float8_e5m2fnuz", "int4", "uint4",
]


def random_name(draw):
    """Names that share fronts, of any characters, short and long."""
    front = draw.choice(["", "a/", "a/b/", "\u00e9", "layer_1/very/long/front/", "\x7f", "~", "\u00ff\uffff", "\U0010ffff"])
    return front + "".join(draw.choice("ab/_.019 ~\u00fc\n\"'\x01") for _ in range(draw.choice([1, 2, 5, 40])))


def random_tensor(draw, shape=None):
    if shape is None:
        shape = [draw.choice([0, 1, 2, 3, 7, 130]) for _ in range(draw.choice([0, 1, 1, 2, 3]))]
    count = int(np.prod(shape, dtype=np.int64))
    if draw.random() < 0.2:
        lengths = [0, 1, 3, 127, 128, 20000] if count < 50 else [0, 1, 3]
        strings = [draw.randbytes(draw.choice(lengths)) for _ in range(count)]
        return tf.constant(strings, tf.string, shape)
    kind = tf.dtypes.as_dtype(draw.choice(NUMBERS))
    if kind == tf.bool:
        return tf.constant([draw.random() < 0.5 for _ in range(count)], tf.bool, shape)
    if kind.name.startswith("q"):
        plain = {1: np.int8, 2: np.int16, 4: np.int32}[kind.size]
        numbers = [draw.randrange(0, 100) for _ in range(count)]
        return tf.bitcast(tf.constant(np.array(numbers, plain).reshape(shape)), kind)
    if kind.name.startswith(("int4", "uint4", "float8")):
        numbers = np.array([draw.randrange(0, 7) for _ in range(count)], np.float32)
        return tf.constant(numbers.astype(kind.as_numpy_dtype).reshape(shape))
    data = np.frombuffer(draw.randbytes(count * kind.size), kind.as_numpy_dtype).reshape(shape)
    return tf.constant(data)


def random_variant(draw):
    """A list of tensors as a variant; several as a tensor of variants."""
    lists = [
        tf.raw_ops.TensorListFromTensor(
            tensor=tf.constant([[draw.random()] * draw.choice([1, 40])] * draw.choice([0, 1, 3]), tf.float32, None)
            if draw.random() < 0.8 else tf.zeros([0, 2]),
            element_shape=tf.constant(-1))
        for _ in range(draw.choice([1, 3]))
    ]
    return lists[0] if len(lists) == 1 else tf.stack(lists)


def random_parts(draw, size):
    cuts = sorted(draw.sample(range(1, size), draw.randrange(0, min(size, 4)))) if size > 1 else []
    return list(zip([0] + cuts, cuts + [size]))


def random_slices(draw):
    """The slices of a tensor, with what TensorFlow's save op wants to know of each."""
    shape = [draw.choice([1, 2, 5, 300]) for _ in range(draw.choice([1, 2, 3]))]
    tensor = random_tensor(draw, shape)
    while tensor.dtype.name.startswith("q"):
        tensor = random_tensor(draw, shape)
    kind, tensor = tensor.dtype, tensor.numpy()
    rows, columns = random_parts(draw, shape[0]), random_parts(draw, shape[-1])
    slices = []
    for start, end in rows:
        if len(shape) == 1:
            slices.append((f"{shape[0]} {start},{end - start}", tf.constant(tensor[start:end], kind)))
            continue
        for left, right in columns:
            first = "-" if len(rows) == 1 and draw.random() < 0.5 else f"{start},{end - start}"
            middle = ":-" * (len(shape) - 2)
            whole = " ".join(map(str, shape))
            slices.append((f"{whole} {first}{middle}:{left},{right - left}", tf.constant(tensor[start:end, ..., left:right], kind)))
    draw.shuffle(slices)
    return slices


def save(prefix, tensors):
    tf.raw_ops.SaveV2(prefix=prefix, tensor_names=[name for name, _, _ in tensors],
                      shape_and_slices=[spec for _, spec, _ in tensors],
                      tensors=[tensor for _, _, tensor in tensors])


def tensors(folder, seed):
    draw = random.Random(int(seed))
    prefixes = []
    for number in range(12):
        named = {}
        while len(named) < draw.choice([1, 3, 20]):
            named[random_name(draw)] = [("", random_tensor(draw))]
        for each in range(draw.choice([0, 1, 3])):
            named[f"sliced {each}" + draw.choice(["", "\u00ff\u0001x"])] = random_slices(draw)
        for each in range(draw.choice([0, 2])):
            named[f"variant {each}"] = [("", random_variant(draw))]
        if number == 0:
            # An index of many blocks.
            for each in range(6000):
                named[f"model/variable_{draw.randrange(10**9):09}/{'x' * draw.randrange(150)}"] = [
                    ("", tf.constant(each, tf.int16))]
            named["long " + "n" * 600_000] = [("", tf.constant(1.0))]
            named["long " + "n" * 300_000] = [("", tf.constant(2.0))]
        all_tensors = [(name, spec, tensor) for name, pieces in named.items() for spec, tensor in pieces]
        draw.shuffle(all_tensors)
        prefix = os.path.join(folder, f"random-{number}")
        shards = draw.choice([1, 1, 2, 3]) if number else 1
        if shards == 1:
            save(prefix, all_tensors)
        else:
            parts = [f"{prefix}_temp/part-{part:05}-of-{shards:05}" for part in range(shards)]
            for part, where in enumerate(parts):
                # None is empty.
                mine = all_tensors[part::shards] or [(f"only {part}", "", tf.constant(part))]
                save(where, mine)
            tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=parts, destination_prefix=prefix)
        prefixes.append(prefix)
    return prefixes


def digest(value):
    value = np.asarray(value)
    if value.dtype == object:
        return hashlib.sha256(b"\0".join(value.ravel().tolist())).hexdigest()
    return hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()


def read(prefixes):
    found = {}
    for prefix in prefixes:
        reader = tf.train.load_checkpoint(prefix)
        shapes, kinds = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
        found[prefix] = {
            name: [kinds[name].name, shape, digest(reader.get_tensor(name))] for name, shape in shapes.items()
        }
    return found


class Clock:
    """Takes the place of the module `time`."""

    nanoseconds = 0

    def time(self):
        return self.nanoseconds / 1e9


def listed(folder):
    with open(os.path.join(folder, "checkpoint"), encoding="utf-8", newline="") as file:
        return [file.read(), sorted(name for name in os.listdir(folder) if name.endswith((".index", ".meta")))]


def manage(folder, seed):
    draw = random.Random(int(seed))
    clock = Clock()
    checkpoint_management.time = clock
    saver_module.time = clock
    plans = []
    for number in range(10):
        is_saver = number % 2 == 1
        where = os.path.join(folder, f"managed-{number}", draw.choice(["plain", "od'd \"\u00e9"]))
        os.makedirs(where)
        hours = draw.choice([None, None, 0.5, 2.0]) if not is_saver else draw.choice([10000.0, 0.5])
        most = draw.choice([None, 1, 2, 3]) if not is_saver else draw.choice([None, 1, 2, 5])
        relative = draw.random() < 0.5
        clock.nanoseconds = draw.randrange(10**15, 9 * 10**18)
        plan = {"folder": where, "saver": is_saver, "hours": hours, "most": most, "relative": relative, "steps": []}
        manager = None
        for each in range(draw.randrange(3, 14)):
            if manager is None or (not is_saver and draw.random() < 0.2):
                opened = clock.nanoseconds
                manager = open_manager(plan)
            else:
                opened = None
            clock.nanoseconds += int(draw.choice([0.25, 60.0, 1800.0, 3600.0, 7200.0, 7201.5, 1e7]) * 1e9)
            step = draw.choice([each, each, each, draw.randrange(0, each + 1)])
            manager(step)
            plan["steps"].append({"opened": opened, "step": step, "now": clock.nanoseconds, "after": listed(where)})
        plans.append(plan)
    return plans


def open_manager(plan):
    if not plan["saver"]:
        manager = tf.train.CheckpointManager(
            tf.train.Checkpoint(v=tf.Variable(1.0)), plan["folder"], max_to_keep=plan["most"],
            keep_checkpoint_every_n_hours=plan["hours"])
        return lambda step: manager.save(checkpoint_number=step)
    graph = tf.Graph()
    with graph.as_default():
        tf.compat.v1.get_variable("v", initializer=1.0, use_resource=True)
        saver = tf.compat.v1.train.Saver(
            max_to_keep=plan["most"], keep_checkpoint_every_n_hours=plan["hours"],
            save_relative_paths=plan["relative"])
        session = tf.compat.v1.Session(graph=graph)
        session.run(tf.compat.v1.global_variables_initializer())

    def save_step(step):
        with graph.as_default():
            saver.save(session, os.path.join(plan["folder"], "model"), global_step=step)

    return save_step


def latest(folder):
    found = tf.train.latest_checkpoint(folder)
    manager = tf.train.CheckpointManager(tf.train.Checkpoint(v=tf.Variable(1.0)), folder, max_to_keep=3)
    managed = manager.checkpoints
    number = int(found.rsplit("-", 1)[1]) + 1
    return {"latest": found, "managed": managed, "saved": manager.save(checkpoint_number=number)}


def main():
    what, *arguments = sys.argv[1:]
    run = {"tensors": tensors, "manage": manage, "latest": latest, "read": lambda *prefixes: read(prefixes)}[what]
    print(json.dumps(run(*arguments)))


main()
