"""Makes the files in this folder, and the corpus, out of the repository's golden files and of nothing.

    python3 crates/percolator-fuzz/seeds/make.py

Inputs that a fuzzer found (`corpus/*/found-*`) stay as they are.
"""

import base64
import gzip
import json
import struct
import zlib
from pathlib import Path

HERE = Path(__file__).resolve().parent
CORPUS = HERE.parent / "corpus"
ROOT = HERE.parent.parent.parent
DATA = ROOT / "tests/data"
FORMATS = ROOT / "crates/percolator-formats/tests/data/golden"
MODELS = ROOT / "crates/percolator-tensorflow/tests/data"


def crc32c(data, table=[]):
    if not table:
        for byte in range(256):
            for _ in range(8):
                byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
            table.append(byte)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return (crc >> 15 | crc << 17) + 0xA282EAD8 & 0xFFFFFFFF


def varint(number):
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def field(number, value):
    """A field of protobuf: an integer, a float, or bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value & 2**64 - 1)
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def message(*fields):
    return b"".join(field(number, value) for number, value in fields)


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)


def seed(target, name, data):
    write(CORPUS / target / name, data)


def copy(target, paths):
    for path in paths:
        seed(target, path.name, path.read_bytes())


def checked(*lines):
    """A text of Percolator's, with its last line."""
    text = "".join(line + "\n" for line in lines)
    return f"{text}checksum {crc32c(text.encode()):08x}\n"


def lmdb(page_bytes, records, inline_max):
    """A data file of one leaf, with longer values on pages of their own."""
    pages, nodes = [], []
    for key, value in records:
        if len(value) <= inline_max:
            flags, rest = 0, value
        else:
            count = -(-(16 + len(value)) // page_bytes)
            number = 2 + sum(len(page) for page in pages) // page_bytes
            head = struct.pack("<QHHI", number, 0, 4, count)
            pages.append((head + value).ljust(count * page_bytes, b"\0"))
            flags, rest = 1, struct.pack("<Q", number)
        node = struct.pack("<IHH", len(value), flags, len(key)) + key + rest
        nodes.append(node + b"\0" * (len(node) % 2))
    body = b"".join(pages)
    root, upper, offsets, end = 2 + len(body) // page_bytes, page_bytes, b"", b""
    for node in nodes:
        upper -= len(node)
        offsets += struct.pack("<H", upper)
        end = node + end
    head = struct.pack("<QHHHH", root, 0, 2, 16 + len(offsets), upper)
    leaf = head + offsets + b"\0" * (upper - 16 - len(offsets)) + end
    none, overflow = 2**64 - 1, len(body) // page_bytes
    metas = b""
    for number in range(2):
        has = number == 1
        free = struct.pack("<IHHQQQQQ", page_bytes, 8, 0, 0, 0, 0, 0, none)
        counts = (1, 0, 1, overflow, len(records), root) if has else (0, 0, 0, 0, 0, none)
        main = struct.pack("<IHHQQQQQ", 0, 0, *counts)
        head = struct.pack("<QHHI", number, 0, 8, 0) + struct.pack("<IIQQ", 0xBEEFC0DE, 1, 0, 1 << 30)
        metas += (head + free + main + struct.pack("<QQ", root if has else 1, number)).ljust(page_bytes, b"\0")
    return metas + body + leaf


def tfrecord(records):
    out = b""
    for record in records:
        length = struct.pack("<Q", len(record))
        out += length + struct.pack("<I", masked(length)) + record + struct.pack("<I", masked(record))
    return out


def fragment(kind, payload):
    body = bytes([kind]) + payload
    return struct.pack("<IH", masked(body), len(payload)) + body


def datum(label, data, **more):
    sides = [(1, 1), (2, 1), (3, len(data))] if not more else []
    return message(*sides, (4, data), (5, label)) + (field(7, 1) if more.get("encoded") else b"")


def example(**features):
    entries = []
    for name, values in features.items():
        if isinstance(values[0], int):
            kind = (3, field(1, b"".join(varint(value & 2**64 - 1) for value in values)))
        elif isinstance(values[0], float):
            kind = (2, field(1, struct.pack(f"<{len(values)}f", *values)))
        else:
            kind = (1, b"".join(field(1, value) for value in values))
        entries.append((1, message((1, name), (2, message(kind)))))
    return message(*entries)


def job(files="7 5", batch="global 3", workers=1, replicas=2, shuffle="window 4"):
    return [
        f"files {files}", f"batch {batch}", f"workers {workers}", f"replicas {replicas}", "policy auto",
        "assignment tensorflow", "last-batch keep", f"shuffle {shuffle}", "seed 1701",
    ]


def fixtures():
    jpeg = (DATA / "images/exif_0.jpg").read_bytes()
    # Without its EXIF: the first segments are JFIF's and EXIF's.
    out, at = jpeg[:2], 2
    while at < len(jpeg):
        marker, length = jpeg[at + 1], struct.unpack(">H", jpeg[at + 2 : at + 4])[0]
        if marker == 0xDA:
            out += jpeg[at:]
            break
        if marker != 0xE1:
            out += jpeg[at : at + 2 + length]
        at += 2 + length
    write(HERE / "27x16.jpg", out)
    few = [(f"{number:08}".encode(), bytes([number] * (20 + 250 * (number == 3)))) for number in range(7)]
    write(HERE / "few.mdb", lmdb(512, few, 100))
    write(HERE / "few.tfrecord", tfrecord(value for _, value in few))
    for path in sorted((DATA / "leveldb/deleted").iterdir()):
        write(HERE / "leveldb" / path.name, path.read_bytes())


def records():
    seed("datum", "raw", datum(3, bytes(range(12))))
    seed("datum", "floats", message((1, 2), (2, 1), (3, 2), (6, 1.0), (6, -0.5), (6, 2.0), (6, 3.0), (5, -1)))
    seed("datum", "packed", message((1, 1), (2, 1), (3, 2), (6, struct.pack("<2f", 1, 2)), (5, 9)))
    seed("datum", "encoded", datum(7, (DATA / "images/1x1.jpg").read_bytes(), encoded=True))
    seed("datum", "groups", bytes([0x43, 0x0B, 0x0C, 0x44]) + datum(1, b"abc"))
    whole = example(
        label=[7], ints=[1, -2, 3], floats=[0.5, 2.0], name=[b"cat"], words=[b"a", b"bc"], tags=[b"x"],
        image=[b"\1\2\3\4"],
    )
    seed("example", "whole", field(1, whole))
    seed("example", "empty", field(1, b""))
    seed("example", "unpacked", field(1, field(1, message((1, "ints"), (2, field(3, message((1, 1), (1, 2))))))))
    lists = field(1, message((1, "a"), (2, message((1, message((3, field(1, b"\1\2")))), (1, b"")))))
    seed("sequence_example", "whole", field(1, whole) + field(2, lists))
    seed("sequence_example", "lists", field(2, lists + lists))
    for number, text in enumerate([
        "input:i64[128],label:i64=0,name:bytes,ragged:i64[<=8]=-1", '"image.width" as width:f32[3x4]=0.5',
        'names:strings[2]=["a","b\\""],b:bytes[<=8]=0', "s:strings[2x3](16),mean:f32[3]=[0.5,0.4,0.4]", "x:i64[<=]",
    ]):
        seed("example_fields", str(number), text)


def nets():
    for path in sorted((DATA / "nets").glob("*.prototxt")):
        # Its data layers are at the front.
        lines, depth, out = path.read_text().splitlines(), 0, []
        for line in lines:
            out.append(line)
            depth += line.count("{") - line.count("}")
            if len(out) > 60 and depth == 0:
                break
        seed("net_text", path.stem, "\n".join(out) + "\n")
    seed("net_text", "odd", 'name: "a\\x41\\101" \'b\' layers { type: DATA top: "x" data_param < batch_size: 0x10 > }'
         " # comment\ninput_dim: [1, 2] [ext.a/b] { x: -inf } layer { include { phase: TRAIN min_level: -1 } }\n")
    layer = message((1, "data"), (2, "Data"), (4, "data"), (107, message((1, "train_lmdb"), (4, 64), (8, 1))),
                    (100, message((1, 0.5), (3, 227), (4, "mean.binaryproto"))), (8, field(1, 0)))
    seed("net_binary", "v2", message((1, "net"), (100, layer), (100, message((1, "ip"), (2, "InnerProduct")))))
    old = message((2, message((4, "data"), (5, 5), (3, "top"), (11, message((1, "x"), (2, 0.5), (4, 3))))))
    seed("net_binary", "v1", field(1, "old") + old)
    floats = struct.pack("<12f", *range(12))
    seed("mean", "legacy", message((1, 1), (2, 3), (3, 2), (4, 2), (5, floats)))
    seed("mean", "shape", message((7, field(1, bytes([3, 2, 2]))), (8, struct.pack("<12d", *range(12)))))
    seed("mean", "unpacked", message((1, 1), (2, 1), (3, 1), (4, 2), (5, 1.0), (5, 2.0)))


def images():
    formats = HERE.parent.parent / "percolator-image/tests/data/formats"
    for target, endings in [("bmp", "bmp"), ("gif", "gif"), ("pnm", "p[bgp]m"), ("tiff", "tif"), ("webp", "webp")]:
        copy(target, [path for path in sorted(formats.glob(f"*.{endings}")) if path.stat().st_size < 1500][::3])
    # The ways through a TIFF that few others take.
    ways = ["tiles_beyond", "tiles_grey", "offsets_64", "lzw", "planar"]
    copy("tiff", [formats / f"{way}.tif" for way in ways])
    for target, ending in [("jpeg", "jpg"), ("png", "png")]:
        copy(target, (path for path in sorted((DATA / "images").glob(f"*.{ending}"))
                      if path.stat().st_size < 1300 and not path.stem.startswith("exif_")
                      or path.stem in ("exif_6", "exif_before", "palette_icc")))

    def tiff(order, *entries):
        pack = "<" if order == b"II" else ">"
        body = order + struct.pack(f"{pack}HIH", 42, 8, len(entries))
        return body + b"".join(struct.pack(f"{pack}HHII", *entry) for entry in entries)

    seed("exif", "little", tiff(b"II", (0x0112, 3, 1, 6)))
    seed("exif", "big", tiff(b"MM", (0x010F, 2, 3, 0x61620000), (0x0112, 3, 1, 8 << 16)))
    seed("exif", "rationals", tiff(b"II", (0x011A, 5, 1, 8), (0x013F, 5, 6, 8), (0x0112, 3, 1, 3)) + bytes(64))
    seed("exif", "two", tiff(b"MM", (0x0112, 3, 1, 5 << 16), (0x0112, 3, 1, 2 << 16)))


def databases():
    few = (HERE / "few.mdb").read_bytes()
    seed("lmdb", "few", few)
    seed("lmdb", "none", lmdb(512, [], 100)[:1024])
    branch = [(f"{number:04}".encode(), b"v" * 90) for number in range(4)]
    seed("lmdb", "one", lmdb(512, branch, 100))
    identity = b"file bytes 3584\nmodified 1.2\npage bytes 512\ntransaction 1\nroot page 6\nentries 7\n"
    for target, kind, count in [("lmdb_sidecar", 1, 7), ("leveldb_sidecar", 2, 60), ("tfrecord_sidecar", 3, 7)]:
        places = b"".join(struct.pack("<Q", number << 12 | number) for number in range(count))
        head_bytes = -(-(36 + len(identity) + 8) // 8) * 8
        head = b"PRCLidx\n" + struct.pack("<IIQQI", 1, kind, head_bytes + len(places), count, len(identity))
        head = (head + identity + struct.pack("<I", crc32c(places))).ljust(head_bytes - 4, b"\0")
        seed(target, "whole", head + struct.pack("<I", crc32c(head)) + places)
        far = b"".join(struct.pack("<Q", number << 40) for number in range(count))
        seed(target, "far", head + struct.pack("<I", crc32c(head)) + far)
    tables = ["deleted/000005.ldb", "snappy/000005.ldb", "empty_strings/000005.ldb", "all_deleted/000005.ldb",
              "bloom/000005.ldb", "reopened/000008.ldb"]
    for name in tables:
        for target in ("table", "leveldb_table"):
            seed(target, name.replace("/", "-"), (DATA / "leveldb" / name).read_bytes())
    copy("table", [MODELS / "object/ckpt-3.index"])
    logs = ["deleted/000009.log", "overwritten/000012.log", "all_deleted/000006.log", "empty_strings/000006.log"]
    for name in logs:
        # Its first write is number 1, as in a database that consists of it.
        log = bytearray((DATA / "leveldb" / name).read_bytes())
        log[7:15] = struct.pack("<Q", 1)
        seed("leveldb_log", name.replace("/", "-"), bytes(log))
    write_batch = struct.pack("<QI", 1, 2) + b"\1\1a\1b" + b"\0\1a"
    seed("leveldb_log", "small", fragment(1, write_batch))
    seed("leveldb_log", "parts", fragment(2, write_batch[:7]) + fragment(3, write_batch[7:9]) + fragment(4, write_batch[9:]))
    # Of the files beside it, and one with a table less, and a record in two parts.
    manifest = (DATA / "leveldb/deleted/MANIFEST-000007").read_bytes()
    seed("leveldb_manifest", "whole", manifest)
    edit = bytes([1, 26]) + b"leveldb.BytewiseComparator" + bytes([2, 9, 9, 0, 3, 10, 4, 127])
    seed("leveldb_manifest", "log-alone", fragment(2, edit[:9]) + fragment(4, edit[9:]) + fragment(1, bytes([6, 1, 5])))
    seed("leveldb_manifest", "compacted", (DATA / "leveldb/compacted/MANIFEST-000010").read_bytes())
    few = (HERE / "few.tfrecord").read_bytes()
    seed("tfrecord", "few", few)
    seed("tfrecord", "empty-record", tfrecord([b"", b"x"]))
    seed("tfrecord", "gzip", gzip.compress(tfrecord([b"abc", b"d" * 50]), mtime=0))
    seed("tfrecord_packed", "few", few[:150])
    seed("tfrecord_packed", "gzip", gzip.compress(few, mtime=0))
    seed("tfrecord_packed", "members", gzip.compress(few, mtime=0) + gzip.compress(tfrecord([b"x"]), mtime=0) + bytes(9))
    seed("tfrecord_packed", "zlib", zlib.compress(few))
    seed("tfrecord_packed", "zeros", zlib.compress(tfrecord([bytes(20000)]), 9))
    seed("any_file", "list", "a.jpg 3\nmy cat.png -1\n")
    seed("any_file", "tfrecord", tfrecord([b"abc"]))
    seed("any_file", "gzip", gzip.compress(tfrecord([b"abc"]), mtime=0))
    seed("any_file", "lmdb", lmdb(512, branch[:2], 100))
    seed("any_file", "text", "layer { }\n")


def texts():
    sketch = " ".join(["2.7.1f"] + ["-"] * (CELLS - 1))
    digest = "0123456789abcdef0123456789abcdef of 12"
    seed("snapshot", "plan", checked(
        "percolator snapshot 2", "source /data/train_lmdb", "data file bytes 99",
        'clue last "k": 9 bytes, checksum 9f8e2d00', *job(), "draws seed 1701",
        "next epoch 3 step 1 replicas 0 to 1"))
    seed("snapshot", "ring", checked(
        "percolator snapshot 2", "source a", "ring 64 records 4 ranks", "passes 1", "draws caffe 7",
        "next epoch 0 step 5 replicas 0 to 2", "next epoch 0 step 4 replicas 3 to 3"))
    seed("snapshot", "rest", checked(
        "percolator snapshot 2", "source a", *job("30 20", "global 7", 2, 2, "global"), "rest 4",
        "left data 0 2 3 2 10", "left data 1 2 0 1 9", "draws caffe-2015 7", "next epoch 4 step 0 replicas 0 to 1"))
    snapshot = checked("percolator snapshot 1", "source a", *job(), "draws seed 1", "next epoch 0 step 1 replicas 0 to 1")
    carried = checked("percolator carried-receipt 1", "place receipt", "line percolator receipt 2", "line x")
    seed("snapshot", "carrying", snapshot + carried)
    seed("receipt", "whole", checked(
        "percolator receipt 2", "source /data/train_lmdb", 'clue last "k": 9 bytes, checksum 9f8e2d00', *job(),
        "replicas 0..2", "epoch 0", f"digest {digest}", f"sketch {sketch}", f"contents {digest}", "steps 0 0..4",
        "steps 1 0..2 2..3*2", "epoch 1", f"digest {digest}", f"sketch {sketch}", "steps 0 0..1"))
    seed("receipt", "many", checked(
        "percolator receipt 1", "source a", *job("12", "replica 1", 4, 65536, "no"), "replicas 0..65536"))
    each = "".join(f"{number:016x}" for number in (1, 2, 3))
    seed("digest", "each", checked("percolator digest 1", "source a", f"contents {'0' * 31}6 of 3", f"each {each}"))
    seed("digest", "sum", checked("percolator digest 1", "source a", 'clue first "k": 1 bytes, checksum 0',
                                  f"contents {digest}"))
    seed("image_list", "list", "a.jpg 3\r\nmy cat.png -12\nsub/dir/x 2.5\n../../etc/passwd 7\n/dev/zero +1")
    seed("image_list", "odd", "nolabel\nx  \ny 99999999999\n")
    seed("feed_spec", "guide", json.dumps({
        "sources": [{"lmdb": {"path": "train_0_lmdb"}}, {"leveldb": {"path": "train_1_leveldb"}}],
        "batch_size": {"global": 256}, "schedule": {"epochs": 90, "shuffle": {"by": "global"}, "last_batch": "pad"},
        "seed": {"indexed": 1701}, "devices": ["host:0", "host:1"]}))
    seed("feed_spec", "all", json.dumps({
        "sources": [{"tfrecord": {"path": "a-*.gz"}}], "batch_size": {"per_replica": 8}, "threads": 4, "prefetch": 3,
        "transform": {"scale": 0.5, "crop": 227, "mirror": True, "mean_values": [1, 2, 3]}, "dtype": "f16",
        "world": {"workers": 2, "replicas": 4}, "index": {"folder": "x"}}))
    figures = {"records_per_s": 1000.5, "cpu_s_per_1000": 0.1, "first_batch_ms": 3.0, "limits": {}, "share_of": {"memory": 0.5}}
    seed("results", "line", json.dumps({"job": "raw256", "rounds": 1, "each_round": [figures], "batch_size": 64}) + "\n")
    seed("metrics", "feed", "# HELP x y\nother 1\n"
         'percolator_reader_records_total{feed="train"} 7\n'
         'percolator_batches_total{feed="train",lane="0",device="host:0"} 3\n'
         'percolator_reader_waits_seconds_total{feed="train",on="disk"} 1.5\n'
         'percolator_memory_budget_bytes{feed="a\\"b\\\\\\n",holder="ring"} 1e3\n')


def conversions():
    # What conversions of four items to two outputs leave behind the third: a test compares them.
    line = "1\t00000001\tit is torn\n"
    state = {"next": 3, "shard": 1, "records": 2, "bytes": 48, "skipped": 1, "skipped_bytes": len(line),
             "size": None}
    marks = {"lmdb": {"records": 1, "transaction": 1, "bytes": 12288}, "leveldb": {"bytes": 91},
             "tfrecord": {"bytes": 40}}
    for name, mark in marks.items():
        whole = {"about": {"input": "items"}} | state | {"mark": {name: mark}}
        seed("convert_state", name, json.dumps(whole))
    # The first output has 40 bytes as well.
    mark = {"tfrecord": {"bytes": 40}}
    back = state | {"next": 2, "shard": 0, "records": 1, "mark": mark, "size": [3, 2, 2]}
    seed("convert_state", "back", json.dumps({"about": {}} | back))


def quarantined():
    def entry(source, key, number, reason, value, **more):
        facts = example(source=[source], key=[key], number=[number], epoch=[2], reason=[reason],
                        value=[value], **more)
        return tfrecord([field(1, facts)])

    one = entry(b"/data/train_lmdb", b"00000007", 7, "its PNG is cut: \u2026".encode(), bytes(range(40)))
    two = entry(b"\xff/x", b"", 2**63 - 1, b"", b"", companion=[b"abc"])
    feeds = entry(b"made", b"00000000", 0, b"of an earlier run", b"bad")
    seed("quarantine", "two", one + two)
    seed("quarantine", "named", one + feeds + two)
    seed("quarantine", "cut", one + two[:-5])
    seed("quarantine", "begun", one[:60])
    seed("quarantine", "not-one", one + tfrecord([b"abc"]))


def models():
    def bundle(index, data):
        index = index.read_bytes()
        return struct.pack("<H", len(index)) + index + data.read_bytes()

    for name in ["types/model", "sliced/model", "object/ckpt-3", "module/variables/variables", "more/variants/model",
                 "more/types/model"]:
        index, data = MODELS / f"{name}.index", MODELS / f"{name}.data-00000-of-00001"
        seed("checkpoint", name.replace("/", "-"), bundle(index, data))
    copy("checkpoint_state", [MODELS / "object/checkpoint"])
    seed("checkpoint_state", "relative", 'model_checkpoint_path: "../../x\\n\\303\\274"\n'
         'all_model_checkpoint_paths: "/etc/y" # z\nall_model_checkpoint_timestamps: [1, 2]\n')
    # A graph of every kind of attribute, with a constant, a signature and an asset.
    shape = field(2, message((2, field(1, 3)), (2, field(1, -1))))
    tensor = message((1, 1), (2, field(2, field(1, 2))), (4, struct.pack("<2f", 1, 2)))
    tensor_of_one = message((1, 3), (2, field(2, field(1, 1000))), (7, 5))
    attrs = [("value", field(8, tensor)), ("dtype", field(6, 1)), ("shape", field(7, shape)),
             ("list", field(1, message((3, 1), (3, 2), (2, "s")))), ("f", field(10, field(1, "body"))), ("i", field(3, 7))]
    node = message((1, "a"), (2, "Const"), *((5, message((1, name), (2, value))) for name, value in attrs))
    other = message((1, "b"), (2, "Identity"), (3, "a:0"), (3, "^a"), (5, message((1, "value"), (2, field(8, tensor_of_one)))))
    graph = message((1, node), (1, other), (4, field(1, 1987)))
    info = message((1, "a:0"), (2, 1), (3, shape))
    signature = message((1, message((1, "x"), (2, info))), (2, message((1, "y"), (2, info))), (3, "predict"))
    asset = message((1, message((1, "b:0"))), (2, "../vocab.txt"))
    meta = message((1, field(4, "serve")), (2, graph), (5, message((1, "default"), (2, signature))), (6, asset))
    model = message((1, 1), (2, meta))
    seed("saved_model", "small", model)
    seed("saved_model", "none", field(1, 1))
    seed("meta_graph", "small", meta)
    text = ('meta_info_def { tags: "serve" } graph_def { node { name: "a" op: "Const" attr { key: "value" value { tensor '
            '{ dtype: DT_FLOAT tensor_shape { dim { size: 2 } } tensor_content: "\\000\\001\\x7f" } } } } node { name: "b" '
            'op: "NoOp" input: ["a:0", "^a"] device: \'/cpu:0\' } } signature_def { key: "s" value { inputs { key: "x" '
            'value { name: "a:0" dtype: DT_FLOAT tensor_shape { dim { size: -1 } unknown_rank: true } } } } }\n')
    seed("meta_graph", "text", text)
    seed("saved_model_text", "small", "saved_model_schema_version: 1\nmeta_graphs {\n" + text + "}\n")
    seed("saved_model_text", "floats", "meta_graphs < graph_def { node { attr { key: \"f\" value { f: -1.5e-3 } } } } >")
    header = json.dumps({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
                         "b": {"dtype": "I64", "shape": [], "data_offsets": [8, 16]}, "__metadata__": {"x": "y"}}).encode()
    safetensors = struct.pack("<Q", len(header)) + header + bytes(range(16))
    seed("tensors", "two", safetensors)

    def npy(descr, shape, data, version=1):
        head = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".encode()
        head += b" " * (63 - (len(head) + 10) % 64) + b"\n"
        length = struct.pack("<H" if version == 1 else "<I", len(head))
        return b"\x93NUMPY" + bytes([version, 0]) + length + head + data

    floats = npy("<f4", "(2,)", bytes(8))
    seed("npy", "floats", floats)
    seed("npy", "fortran", npy(">i2", "(2, 3)", bytes(12)).replace(b"False", b"True "))
    seed("npy", "strings", npy("|S3", "(2,)", b"ab\0c\0\0", 2))

    def archive(members):
        out, central = b"", b""
        for name, data, packs in members:
            deflated = zlib.compressobj(9, zlib.DEFLATED, -15) if packs else None
            stored = deflated.compress(data) + deflated.flush() if packs else data
            fixed = struct.pack("<HHHHHIIIHH", 20, 0, 8 * packs, 0, 33, zlib.crc32(data), len(stored), len(data), len(name), 0)
            central += b"PK\1\2" + struct.pack("<H", 20) + fixed + struct.pack("<HHHII", 0, 0, 0, 0, len(out)) + name
            out += b"PK\3\4" + fixed + name + stored
        end = struct.pack("<HHHHIIH", 0, 0, len(members), len(members), len(central), len(out), 0)
        return out + central + b"PK\5\6" + end

    seed("npz", "stored", archive([(b"a.npy", floats, False)]))
    seed("npz", "deflated", archive([(b"a.npy", floats, True), (b"x/b.npy", npy("<i8", "()", bytes(8)), False)]))
    seed("rename_rules", "rules", "^layer1/W$=embeddings.weight\n^layer(\\d+)/W$=layers.$1.w\n/=.\n"
         "^global_step$\n/Adam(_\\d+)?$\n")


def language():
    words = ["<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>", "\u2581", "\u2581hello",
             "a", "aa", "1", ",", "000", "wor", "ld", "\u2581<unk>"]
    kinds = {0: 2, 1: 3, 2: 3, 5: 4, 6: 4}
    pieces = [(1, message((1, word), (2, -float(number)), *([(3, kinds[number])] if number in kinds else [])))
              for number, word in enumerate(words)]
    model = message(*pieces, (2, message((3, 1))), (3, message((3, 1))))
    seed("sentencepiece", "small", model)
    # A map of one unit: a root without children.
    charsmap = struct.pack("<I", 4) + struct.pack("<I", 0) + b"x\0"
    seed("sentencepiece", "mapped", message(*pieces, (3, message((2, charsmap), (3, 0)))))
    fallback = [(1, message((1, f"<0x{byte:02X}>"), (2, -1.0), (3, 6))) for byte in range(256)]
    seed("sentencepiece", "bytes", message(pieces[0], *fallback, (2, message((35, 1)))))
    seed("record_info", "script", '{"filenames": ["/a/train-0-0.tfrecords", "\\u00e4.x"], "num_batch": 12}')
    seed("record_info", "mended", '{"filenames": [], "num_batch": 0, "fix_quirks": true}')
    preparation = {"num_task": 2, "num_core_per_host": 1, "use_eod": True, "from_raw_text": True,
                   "model": "0" * 16, "input": "cbf29ce484222325"}
    seed("record_info", "prepared", json.dumps({"filenames": ["a"], "num_batch": 3, "preparation": preparation}))


def cluster():
    uuid, md5 = "67e55044-10b1-426f-9247-bb680e5fe0c8", "d41d8cd98f00b204e9800998ecf8427e"
    entry = {"uuid": uuid, "md5": md5, "timestamp": -3}
    seed("checkpoint_record", "short", json.dumps(entry))
    seed("checkpoint_record", "long", json.dumps(
        entry | {"sha256": "0" * 64, "bytes": 5, "step": 9, "writer": {"host": "node", "pid": 7}, "version": 1,
                 "kept": [entry], "spared": [entry]}))

    def part(name, *pieces):
        data = b"".join(pieces)
        head = b"\1" + struct.pack("<H", len(name)) + name
        return head + b"".join(struct.pack("<I", len(piece)) + piece for piece in pieces) + struct.pack(
            "<IQI", 0, len(data), crc32c(data))

    header = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode().ljust(64)
    tensors = struct.pack("<Q", len(header)) + header + bytes(8)
    parts = b"percolator parts 1\n" + part(b"model", tensors[:30], tensors[30:])
    seed("checkpoint_parts", "tensors", parts + part(b"feed") + b"\0")
    snapshot = (CORPUS / "snapshot/ring").read_bytes()
    seed("checkpoint_parts", "both", parts + part(b"feed", snapshot) + b"\0")
    about = {"version": 1, "schedule": "0" * 64, "source": "a", "epochs": 2, "steps_per_block": 4, "steps": 10}
    who = {"host": "h", "pid": 1, "since": 2}
    worker = {"who": who, "pace": {"under_way": {"steps": 1, "micros": 2}, "before": None}}
    receipt = (CORPUS / "receipt/whole").read_text()
    seed("job_records", "whole", json.dumps({
        "live/job": about, "live/next": {"epoch": 1, "number": 1}, "live/workers/a": worker, "live/drain": {},
        "live/open/0000000001-000000000000": {"times": 1, "acknowledged": 2},
        "live/held/0000000001-000000000000/a": who, "receipts/0/a/5": {"last": "x", "receipt": receipt}}))
    seed("job_records", "endless", json.dumps({"live/job": about | {"epochs": 0, "steps": 2**64 - 1, "steps_per_block": 1},
                                               "live/next": {"epoch": 2**64 - 1, "number": 3}}))


class Flatbuffer:
    """Built from its end: what a table refers to is there before it. A reference is a distance from the end."""

    def __init__(self):
        self.data = b""

    def put(self, data, alignment, before=0):
        """Puts data, so that what begins `before` bytes into it is aligned."""
        self.data = b"\0" * (-(len(self.data) + len(data) - before) % alignment) + self.data
        self.data = data + self.data
        return len(self.data)

    def string(self, text):
        text = text.encode()
        return self.put(struct.pack("<I", len(text)) + text + b"\0", 4)

    def vector(self, references):
        self.put(b"", 4)
        end = len(self.data)
        places = [end + 4 * (len(references) - number) for number in range(len(references))]
        offsets = [place - reference for place, reference in zip(places, references)]
        return self.put(struct.pack(f"<{len(offsets) + 1}I", len(offsets), *offsets), 4)

    def structs(self, pairs):
        """Of two 64-bit numbers each."""
        data = b"".join(struct.pack("<qq", *pair) for pair in pairs)
        return self.put(struct.pack("<I", len(pairs)) + data, 8, 4)

    def table(self, *fields):
        """Of (slot, format, value); a reference has the format R."""
        sizes = {"b": 1, "h": 2, "i": 4, "q": 8, "R": 4}
        at, places = 4, {}
        for slot, kind, _ in sorted(fields, key=lambda field: -sizes[field[1]]):
            at += -at % sizes[kind]
            places[slot] = at
            at += sizes[kind]
        size = at + -at % 8
        self.data = b"\0" * (-(len(self.data) + size) % 8) + self.data
        place, body = len(self.data) + size, bytearray(size)
        for slot, kind, value in fields:
            value = place - places[slot] - value if kind == "R" else value
            struct.pack_into("<I" if kind == "R" else "<" + kind, body, places[slot], value)
        slots = max(places, default=-1) + 1
        vtable = struct.pack(f"<{slots + 2}H", 4 + 2 * slots, size, *(places.get(slot, 0) for slot in range(slots)))
        struct.pack_into("<i", body, 0, len(vtable))
        self.data = vtable + bytes(body) + self.data
        return place

    def whole(self, root):
        self.data = b"\0" * (-(len(self.data) + 4) % 8) + self.data
        return struct.pack("<I", len(self.data) + 4 - root) + self.data


def arrow_message(kind, make, body_bytes):
    """A message of Arrow (1 is a schema, 3 a batch) whose header `make` puts into it."""
    flat = Flatbuffer()
    header = make(flat)
    return flat.whole(flat.table((0, "h", 4), (1, "b", kind), (2, "R", header), (3, "q", body_bytes)))


def arrow_schema(flat, columns):
    def metadata(pairs):
        return flat.vector([flat.table((0, "R", flat.string(key)), (1, "R", flat.string(value)))
                            for key, value in pairs.items()])

    def number(kind):
        if kind.startswith("f"):
            return 3, flat.table((0, "h", {"f2": 0, "f4": 1, "f8": 2}[kind]))
        return 2, flat.table((0, "i", 8 * int(kind[1:])), (1, "b", kind[0] == "i"))

    def field(name, kind, notes):
        of, children = kind, []
        if isinstance(kind, tuple):
            shape, item = kind
            children = [field("item", item, {})]
            of = 21, flat.table()
            if shape is not None:
                of = 16, flat.table((0, "i", shape))
        else:
            of = number(kind)
        parts = [(0, "R", flat.string(name)), (2, "b", of[0]), (3, "R", of[1]), (5, "R", flat.vector(children))]
        return flat.table(*parts, *([(6, "R", metadata(notes))] if notes else []))

    fields = [field(*column) for column in columns]
    return flat.table((1, "R", flat.vector(fields)), (2, "R", metadata({"percolator.version": "1"})))


def served():
    """What a server of feeds and its clients say."""
    feed = {"sources": [{"lmdb": {"path": "train_lmdb"}}], "batch_size": {"per_replica": 64}, "schedule": {"epochs": 2}}
    request = {"version": 1, "feed": feed}
    shares = {"divided": "divided", "in-step": {"in_step": {"clients": 8}}, "windowed": {"windowed": {"batches": 16}}}
    for name, share in shares.items():
        seed("feed_request", name, json.dumps(request | {"share": share, "group": "job-7", "columns": ["epoch", "mask"]}))
    net = ('layer { name: "data" type: "Data" top: "data" top: "label" data_param { source: "db" batch_size: 8 } }'
           'layer { name: "other" type: "Data" top: "x" data_param { source: "db" batch_size: 8 backend: LMDB } }')
    seed("feed_request", "net", json.dumps({"version": 1, "net": {"text": net, "phase": "train", "layer": "other", "ranks": 3}}))
    seed("feed_request", "net-of-several", json.dumps({"version": 1, "net": {"text": net}}))

    def ticket(name, *position):
        stream = base64.urlsafe_b64encode(json.dumps({"request": request, "rank": 1}).encode()).decode().rstrip("=")
        seed("ticket", name, ".".join(["percolator1", stream, "A" * 43, *position]))

    ticket("beginning")
    ticket("step", "3-77", "A" * 43)
    ticket("end", "end", "A" * 43)

    def framed(data):
        return b"\0" + struct.pack(">I", len(data)) + data

    descriptor = field(1, message((1, 2), (2, "percolator1.x.y")))
    said = [descriptor + field(3, '{"window": 2}'), field(3, '{"acknowledged": 1}'), b""]
    seed("grpc_messages", "exchange", b"\2" + b"".join(map(framed, said)))
    seed("grpc_messages", "cut", b"\5" + b"".join(map(framed, said))[:-3])
    seed("grpc_messages", "compressed", b"\1" + framed(b"abc") + b"\1" + framed(b"d")[1:])
    seed("grpc_messages", "long", b"\7" + framed(b"abc") + b"\0\xff\xff\xff\xff")

    def note(number):
        return json.dumps({"number": number, "epoch": 0, "step": number, "is_last": number == 1, "records": 2, "rows": 3,
                           "missed": 0, "ticket": f".0-{number + 1}.{'A' * 43}"})

    def noted(dtype, kind, shape, **more):
        return {"percolator.field": json.dumps({"dtype": dtype, "kind": kind, "shape": shape} | more)}

    columns = [
        ("image", (6, "u1"), noted("u8", "fixed", [2, 3], layout="nchw")), ("half", "u2", noted("bf16", "fixed", [])),
        ("scale", "f4", noted("f32", "fixed", [])), ("tokens", (None, "i4"), noted("i32", "ragged", [], max=9)),
        ("words", (2, "i8"), noted("i64", "padded", [2], max=2)), ("words.lengths", "i8", {}),
        ("percolator.epoch", "u8", {}),
    ]
    # The buffers of each array: where elements are missing, of which there are none, and then its own.
    arrays = [
        (3, []), (18, [bytes(range(18))]), (3, [struct.pack("<3H", 1, 2, 3)]), (3, [struct.pack("<3f", 1, 2, 3)]),
        (3, [struct.pack("<4q", 0, 2, 2, 3)]), (3, [struct.pack("<3i", 5, 6, 7)]), (3, []), (6, [struct.pack("<6q", *range(6))]),
        (3, [struct.pack("<3q", 2, 1, 0)]), (3, [struct.pack("<3Q", 4, 4, 0)]),
    ]
    body, places = b"", []
    for _, data in arrays:
        for data in [b"", *data]:
            places.append((len(body), len(data)))
            body += data + b"\0" * (-len(data) % 64)
    schema = arrow_message(1, lambda flat: arrow_schema(flat, columns), 0)
    batch = arrow_message(3, lambda flat: flat.table(
        (0, "q", 3), (1, "R", flat.structs([(length, 0) for length, _ in arrays])), (2, "R", flat.structs(places))), len(body))
    batches = [field(2, batch) + field(3, note(number)) + field(1000, body) for number in range(2)]
    seed("flight_stream", "two", b"\x0b" + framed(field(2, schema)) + b"".join(map(framed, batches)))
    seed("flight_stream", "none", b"\3" + framed(field(2, schema)))
    # In another order, and with what nobody knows.
    odd = field(1000, body) + field(3, note(0)) + field(7, 1) + field(77, "x") + field(2, batch)
    seed("flight_stream", "odd", b"\x1f" + framed(field(1, "x") + field(2, schema)) + framed(odd))

    def told(*messages):
        texts = [json.dumps(one).encode() for one in messages]
        return b"".join(struct.pack("<I", len(text)) + text for text in texts)

    hello = {"ticket": "percolator1.x.y", "token": "secret", "window": 2}
    seed("local_messages", "client", b"\3C" + told(hello, {"acknowledged": 0}, {"released": 0}, {"acknowledged": 1}))
    place = {"region": 7, "region_bytes": 4096, "is_new": True, "arrays": [[0, 18], [64, 6]], "columns": [[4, 4, 0]]}
    batches = [{"batch": {"note": json.loads(note(number))} | place | ({"gone": [3]} if number else {})} for number in range(2)]
    seed("local_messages", "server", b"\5S" + told({"schema": "AAAA"}, *batches, {"end": None}))
    seed("local_messages", "refused", b"\1S" + told({"end": [14, "it is about to end"]}))


def inputs():
    images = struct.pack(">IIII", 2051, 2, 2, 3) + bytes(range(12))
    labels = struct.pack(">II", 2049, 2) + b"\1\2"
    seed("idx", "plain", struct.pack("<H", len(images)) + images + labels)
    packed = gzip.compress(images, mtime=0)
    seed("idx", "gzip", struct.pack("<H", len(packed)) + packed + gzip.compress(labels, mtime=0))
    seed("cifar", "ten", bytes([3]) + bytes(3072))
    seed("cifar", "hundred", bytes([3, 4]) + bytes(3072))


def formats():
    """Small files of other libraries; of two files, the length of the first goes before them."""
    def both(target, name, first, second):
        first = first if isinstance(first, bytes) else first.read_bytes()
        second = second.read_bytes()
        seed(target, name, struct.pack("<H", len(first)) + first + second)

    def all_of(target, pattern, most=9000):
        copy(target, [path for path in sorted(FORMATS.glob(pattern)) if path.stat().st_size <= most])

    for target, pattern in [("arrow_ipc", "arrow/*.arrow*"), ("bagz", "bagz/*.bag*"), ("csv", "csv/*.[ct]sv"),
                            ("hdf5", "hdf5/*.h5"), ("json_lines", "jsonl/*"), ("lst", "csv/*.lst"),
                            ("lst", "recordio/*.lst"), ("npy_rows", "npy/*.npy"), ("npz_rows", "npy/*.npz"),
                            ("parquet", "parquet/*.parquet")]:
        all_of(target, pattern)
    all_of("tar", "webdataset/*.tar*", 15000)
    for name in ["group1_blocks", "group7_zstd", "empty"]:
        seed("array_record", name, (FORMATS / f"array_record/{name}.array_record").read_bytes())
    # An index that names several files is cut to the first.
    for target, listed, file, most in [("litdata", "chunks", "chunk-0-0.bin", 5000),
                                       ("mds", "shards", "shard.00000.mds", 7000)]:
        for index in sorted(FORMATS.glob(f"{target}/*/index.json")):
            data = index.with_name(file)
            if data.exists() and data.stat().st_size < most:
                one = json.loads(index.read_text())
                one[listed] = one[listed][:1]
                both(target, index.parent.name, json.dumps(one).encode(), data)
    for index in sorted(FORMATS.glob("megatron/*.idx")):
        both("megatron", index.stem, index, index.with_suffix(".bin"))
    for index in sorted(FORMATS.glob("recordio/*.idx")):
        if index.with_suffix(".rec").stat().st_size < 7000:
            both("recordio", index.stem, index, index.with_suffix(".rec"))
    seed("recordio", "no_idx", b"\0\0" + (FORMATS / "recordio/no_idx.rec").read_bytes())


CELLS = 0


def main():
    global CELLS
    text = (ROOT / "src/receipt/sketch.rs").read_text()
    number = lambda name: int(text.split(f"const {name}: usize = ")[1].split(";")[0])
    CELLS = number("PARTS") * number("PART_CELLS")
    for make in (fixtures, records, nets, images, databases, conversions, quarantined, texts, models,
                 language, cluster, served, inputs, formats):
        make()


main()
