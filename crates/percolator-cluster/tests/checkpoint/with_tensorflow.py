"""What real TensorFlow writes and reads, for the tests of checkpoints.

with_tensorflow.py write FOLDER           writes FOLDER/objects and FOLDER/plain; prints what it reads of each
with_tensorflow.py read OBJECTS PLAIN     prints what it reads at these prefixes
"""

import hashlib
import json
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np
import tensorflow as tf


def objects(start):
    """What a training would keep: all of it is restored by its objects, and not by names."""
    model = tf.Module()
    model.weights = tf.Variable(np.arange(300 * 17, dtype=np.float32).reshape(300, 17) * start)
    model.half = tf.Variable(tf.cast([1.5 * start, -2.0], tf.bfloat16))
    model.words = tf.Variable([f"word {number * start}" for number in range(40)])
    return tf.train.Checkpoint(step=tf.Variable(7 * start, dtype=tf.int64), model=model)


def plain(prefix):
    """Two data files, and a variable in slices."""
    whole = np.arange(60, dtype=np.int16).reshape(5, 12)
    parts = [f"{prefix}_temp/part-{part:05}-of-00002" for part in range(2)]
    tf.raw_ops.SaveV2(prefix=parts[0], tensor_names=["b/sliced", "flags"], shape_and_slices=["5 12 0,2:-", ""],
                      tensors=[tf.constant(whole[:2]), tf.constant([True, False, True])])
    tf.raw_ops.SaveV2(prefix=parts[1], tensor_names=["b/sliced", "a complex number", "empty"],
                      shape_and_slices=["5 12 2,3:-", "", ""],
                      tensors=[tf.constant(whole[2:]), tf.constant(1 + 2j), tf.zeros([0, 4])])
    tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=parts, destination_prefix=prefix)


def digest(value):
    value = np.asarray(value)
    raw = b"\0".join(value.ravel().tolist()) if value.dtype == object else np.ascontiguousarray(value).tobytes()
    return hashlib.sha256(raw).hexdigest()


def found(prefix):
    reader = tf.train.load_checkpoint(prefix)
    shapes, kinds = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
    return {name: [kinds[name].name, shape, digest(reader.get_tensor(name))] for name, shape in shapes.items()}


def read(of_objects, of_plain):
    restored = objects(2)
    restored.read(of_objects).assert_consumed()
    model = restored.model
    assert int(restored.step) == 7 and model.words.numpy()[39] == b"word 39" and float(model.half[0]) == 1.5
    assert (model.weights.numpy().ravel() == np.arange(300 * 17)).all()
    return {"objects": found(of_objects), "plain": found(of_plain)}


command, *rest = sys.argv[1:]
if command == "write":
    [folder] = rest
    rest = [os.path.join(folder, "objects"), os.path.join(folder, "plain")]
    objects(1).write(rest[0])
    plain(rest[1])
print(json.dumps(read(*rest), sort_keys=True))
