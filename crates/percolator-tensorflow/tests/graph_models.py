"""Makes models with TensorFlow, says what TensorFlow says of them, and reads what was printed of them.

    graph_models.py make FOLDER     writes models, and expected.json
    graph_models.py check FOLDER    reads FOLDER/*.ours.pbtxt, and compares them with the messages
"""

import hashlib
import json
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np
import tensorflow as tf
from google.protobuf import text_format
from tensorflow.core.framework import versions_pb2
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

v1 = tf.compat.v1


class Loop(tf.Module):
    def __init__(self):
        super().__init__()
        self.v = tf.Variable([1.0, 2.0], name="v")
        self.parts = [tf.Variable(tf.zeros([3, 2]), name="p"), {"a.b/c": tf.Variable(7, name="v")}]

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, "x"), tf.TensorSpec([], tf.int32, "n")])
    def __call__(self, x, n):
        i = tf.constant(0)
        while i < n:
            x = x * self.v[0] + 1.0
            i += 1
        if tf.reduce_sum(x) > 10.0:
            x = x / 2.0
        else:
            x = x * 2.0
        return {"y": x, "n": n}


class Kinds(tf.Module):
    @tf.function(
        input_signature=[
            tf.TensorSpec(None, tf.float32, "any"),
            tf.TensorSpec([None], tf.string, "s"),
            tf.TensorSpec([None, None, 3], tf.uint8, "image"),
        ]
    )
    def kinds(self, any, s, image):
        return {"out": tf.shape(any), "len": tf.strings.length(s), "image": image}

    @tf.function(input_signature=[tf.RaggedTensorSpec([None, None], tf.int64)])
    def ragged(self, r):
        return {"sum": tf.reduce_sum(r, axis=1)}

    @tf.function(input_signature=[tf.SparseTensorSpec([None, 5], tf.float32)])
    def sparse(self, r):
        return {"sum": tf.sparse.reduce_sum(r)}


def constants():
    """A few of every type."""
    types = [tf.float16, tf.bfloat16, tf.float32, tf.float64, tf.int8, tf.int16, tf.int32, tf.int64]
    types += [tf.uint8, tf.uint16, tf.uint32, tf.uint64, tf.complex64, tf.complex128]
    for of in types:
        value = np.array([[1, 2, 3], [0, 7 if of.is_unsigned else -1, 5]]).astype(of.as_numpy_dtype)
        tf.constant(value, name="whole_" + of.name)
        tf.constant(3, dtype=of, shape=[2, 5], name="same_" + of.name)
        tf.constant(np.zeros([0, 2]).astype(of.as_numpy_dtype), name="none_" + of.name)
        tf.constant(-0.0 if of.is_floating else 1, dtype=of, name="scalar_" + of.name)
    tf.constant([True, False, True], name="whole_bool")
    tf.constant(True, shape=[4], name="same_bool")
    tf.constant([[b"a", b"\xff\x00b"], [b"", b"\xc3\xa4'\"\n\\"]], name="whole_string")
    tf.constant("same", shape=[2, 2], name="same_string")


def old(folder):
    """A graph of TensorFlow 1: a loop, a condition, a variable in parts, several meta graphs."""
    graph = v1.Graph()
    with graph.as_default():
        x = v1.placeholder(tf.float32, [None, 3], name="x")
        sparse = v1.sparse_placeholder(tf.int64, [None, 7], name="sparse")
        w = v1.get_variable(
            "w", [6, 3], initializer=v1.ones_initializer(), partitioner=v1.fixed_size_partitioner(2)
        )
        with v1.variable_scope("resource", use_resource=True):
            v1.get_variable("r", [2], dtype=tf.int32, initializer=v1.zeros_initializer(), trainable=False)
        y = v1.while_loop(lambda i, a: i < 5, lambda i, a: (i + 1, a * 2.0), [tf.constant(0), x])[1]
        c = v1.cond(tf.reduce_sum(y) > 1.0, lambda: y + 1.0, lambda: y - 1.0)
        v1.placeholder_with_default([1, 2], [2], name="d")
        with tf.device("/cpu:0"), tf.control_dependencies([c]):
            z = tf.matmul(c, tf.transpose(w), name="z")
        constants()
        init = v1.global_variables_initializer()
        with v1.Session() as session:
            session.run(init)
            utils = v1.saved_model.signature_def_utils
            info = v1.saved_model.build_tensor_info
            one = utils.build_signature_def({"x": info(x), "sparse": info(sparse)}, {"z": info(z), "y": info(y)}, "m")
            two = utils.predict_signature_def({"in": x}, {"out": y})
            two.defaults["in"].CopyFrom(tf.make_tensor_proto([[1.0, 2.0, 3.0]]))
            builder = v1.saved_model.Builder(folder + "/tags")
            builder.add_meta_graph_and_variables(
                session, ["serve", "gpu"], signature_def_map={"one": one, "two": two}, main_op=init
            )
            builder.add_meta_graph(["serve"], signature_def_map={"small": two}, strip_default_attrs=True)
            builder.add_meta_graph([])
            builder.save()
            os.makedirs(folder + "/tags_text")
            builder.save(as_text=True)
            os.rename(folder + "/tags/saved_model.pbtxt", folder + "/tags_text/saved_model.pbtxt")
            saver = v1.train.Saver([w, *v1.global_variables("resource")])
            saver.save(session, folder + "/v1/model")
            saver.export_meta_graph(folder + "/v1/text.meta", as_text=True)
            v1.train.write_graph(graph.as_graph_def(add_shapes=True), folder + "/v1", "graph.pbtxt")
            v1.train.write_graph(graph.as_graph_def(), folder + "/v1", "graph.pb", as_text=False)


def odd_text(folder):
    """A meta graph whose text is odd: messages of type Any, defaults in maps, numbers."""
    message = meta_graph_pb2.MetaGraphDef()
    message.meta_info_def.any_info.Pack(versions_pb2.VersionDef(producer=7))
    function = message.graph_def.library.function.add()
    for key in ("", "a", "Z", "\u00e9"):
        function.ret[key] = key * (key != "a")
    for key in (0, 5, 3):
        function.resource_arg_unique_id[key] = key - 3 if key > 3 else 0
        function.arg_attr[key].SetInParent()
    function.attr[""].i = 0
    debug = message.graph_def.debug_info
    debug.frames_by_id[2**63].line = 0
    debug.frames_by_id[0].col = 2
    debug.name_to_trace_id["x"] = 0
    random = np.random.RandomState(7)
    bits = np.concatenate([np.arange(300), 1 << np.arange(31), random.randint(0, 255 << 23, 20000)])
    message.collection_def["f"].float_list.value.extend(bits.astype(np.uint32).view(np.float32).tolist())
    bits = np.concatenate([np.arange(300), 1 << np.arange(63), random.randint(0, 2047 << 52, 5000)])
    doubles = function.attr["d"].tensor.double_val
    doubles.extend(bits.astype(np.uint64).view(np.float64).tolist())
    os.makedirs(folder + "/odd_text")
    model = saved_model_pb2.SavedModel(meta_graphs=[message])
    with open(folder + "/odd_text/saved_model.pbtxt", "w") as file:
        file.write(str(model))
    with open(folder + "/v1/odd_text.meta", "w") as file:
        file.write(text_format.MessageToString(message))


def described(tensor):
    """A tensor of a signature: its names, its type, its shape."""
    encoding = tensor.WhichOneof("encoding")
    if encoding == "name":
        names = [tensor.name]
    elif encoding == "coo_sparse":
        sparse = tensor.coo_sparse
        names = [sparse.values_tensor_name, sparse.indices_tensor_name, sparse.dense_shape_tensor_name]
    else:
        names = [part.name for part in tensor.composite_tensor.components]
    shape = tf.TensorShape(tensor.tensor_shape)
    extents = None if shape.rank is None else [-1 if extent is None else extent for extent in shape]
    of = tf.dtypes.as_dtype(tensor.dtype).name if tensor.dtype else None
    return [encoding, names, of, extents]


def constant_values(graph_def):
    """What TensorFlow computes for the constants, in hexadecimal."""
    found = {}
    # Alone: a constant of a loop has no value outside it.
    alone = v1.GraphDef(versions=graph_def.versions)
    for node in graph_def.node:
        if node.op == "Const":
            alone.node.add(name=node.name, op="Const", attr={key: node.attr[key] for key in ("dtype", "value")})
    graph = v1.Graph()
    with graph.as_default():
        v1.import_graph_def(alone, name="")
    with v1.Session(graph=graph) as session:
        for node in graph_def.node:
            if node.op == "Const":
                of = tf.dtypes.as_dtype(node.attr["dtype"].type)
                # NumPy's own strings lose their last zeros.
                value = session.run(node.name + ":0")
                value = np.array(value, dtype=object) if of == tf.string else np.asarray(value)
                if of == tf.string:
                    values = [one.hex() for one in value.reshape(-1)]
                else:
                    values = value.tobytes().hex()
                found[node.name] = [of.name, list(value.shape), values]
    return found


def meta_graph(message, checkpoint=None):
    graph_def = message.graph_def
    signatures = {
        name: {
            "method": signature.method_name,
            "inputs": {key: described(tensor) for key, tensor in signature.inputs.items()},
            "outputs": {key: described(tensor) for key, tensor in signature.outputs.items()},
        }
        for name, signature in message.signature_def.items()
    }
    outputs = [node.name for node in graph_def.node][-3:]
    for signature in message.signature_def.values():
        for tensor in signature.outputs.values():
            outputs.append(tensor.name.split(":")[0])
    outputs = sorted(set(outputs))
    needed = v1.graph_util.extract_sub_graph(graph_def, outputs)
    return {
        "tags": list(message.meta_info_def.tags),
        "tensorflow": message.meta_info_def.tensorflow_version,
        "producer": graph_def.versions.producer,
        "nodes": [
            [node.name, node.op, list(node.input), node.device, sorted(node.attr)] for node in graph_def.node
        ],
        "functions": [
            [function.signature.name, [node.name for node in function.node_def]]
            for function in graph_def.library.function
        ],
        "signatures": signatures,
        "constants": constant_values(graph_def),
        "outputs": outputs,
        "needed": sorted(node.name for node in needed.node),
        "checkpoint": None if checkpoint is None else [key for key, _ in tf.train.list_variables(checkpoint)],
    }


def files(folder):
    """The files with messages, and the messages as protobuf reads them."""
    found = {}
    for name in sorted(os.listdir(folder)):
        for file in ("saved_model.pb", "saved_model.pbtxt"):
            path = os.path.join(folder, name, file)
            if os.path.exists(path):
                message = saved_model_pb2.SavedModel()
                found[name + "/" + file] = read(path, message)
    for file, message in [
        ("model.meta", meta_graph_pb2.MetaGraphDef()),
        ("text.meta", meta_graph_pb2.MetaGraphDef()),
        ("odd_text.meta", meta_graph_pb2.MetaGraphDef()),
        ("graph.pb", v1.GraphDef()),
        ("graph.pbtxt", v1.GraphDef()),
    ]:
        found["v1/" + file] = read(os.path.join(folder, "v1", file), message)
    return found


def read(path, message):
    with open(path, "rb") as file:
        data = file.read()
    if path.endswith("txt") or path.endswith("text.meta"):
        text_format.Parse(data.decode(), message)
    else:
        message.ParseFromString(data)
    return message


def make(folder):
    loop = Loop()
    tf.saved_model.save(loop, folder + "/loop", signatures=loop.__call__)
    kinds = Kinds()
    tf.saved_model.save(kinds, folder + "/kinds", signatures={"kinds": kinds.kinds})
    for name in ("ragged", "sparse"):
        function = getattr(kinds, name).get_concrete_function()
        tf.saved_model.save(kinds, folder + "/" + name, signatures={name: function})
    with v1.Graph().as_default():
        v1.disable_control_flow_v2()
        old(folder)
    odd_text(folder)
    expected = {}
    for path, message in files(folder).items():
        prefix = os.path.join(folder, os.path.dirname(path), "variables", "variables")
        prefix = prefix if os.path.exists(prefix + ".index") else None
        if isinstance(message, saved_model_pb2.SavedModel):
            expected[path] = [meta_graph(one, prefix) for one in message.meta_graphs]
        elif isinstance(message, meta_graph_pb2.MetaGraphDef):
            prefix = os.path.join(folder, "v1", "model") if message.graph_def.node else None
            expected[path] = [meta_graph(message, prefix)]
        else:
            whole = meta_graph_pb2.MetaGraphDef(graph_def=message)
            expected[path] = [meta_graph(whole)]
    with open(folder + "/expected.json", "w") as file:
        json.dump(expected, file)


def check(folder):
    for path, message in files(folder).items():
        ours = os.path.join(folder, path.replace("/", ".") + ".ours.pbtxt")
        with open(ours) as file:
            text = file.read()
        again = text_format.Parse(text, type(message)())
        assert again == message, path + " is another message in our text"
        with open(ours.removesuffix("txt"), "rb") as file:
            again = type(message).FromString(file.read())
        assert again == message, path + " is another message in our bytes"


if __name__ == "__main__":
    {"make": make, "check": check}[sys.argv[1]](sys.argv[2])
