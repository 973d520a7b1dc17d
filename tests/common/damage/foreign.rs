//! Whole files of other formats: what is under a name when somebody copied the wrong file.

macro_rules! file {
    ($what:expr, $path:literal) => {
        ($what, include_bytes!(concat!("../../../", $path)))
    };
}

const FILES: [(&str, &[u8]); 21] = [
    file!("an LMDB", "tests/data/golden/gray_lmdb/data.mdb"),
    file!("a table of a LevelDB", "tests/data/leveldb/snappy/000005.ldb"),
    file!("a log of a LevelDB", "tests/data/leveldb/reopened/000012.log"),
    file!("a MANIFEST", "tests/data/leveldb/reopened/MANIFEST-000010"),
    file!("a CURRENT", "tests/data/leveldb/reopened/CURRENT"),
    file!("a TFRecord file", "tests/data/tensorflow/sequence.tfrecord"),
    file!("a TFRecord file, GZIP", "tests/data/tensorflow/examples.gz.tfrecord"),
    file!("a TFRecord file, ZLIB", "tests/data/tensorflow/examples.zlib.tfrecord"),
    file!("a JPEG file", "tests/data/images/420.jpg"),
    file!("a PNG file", "tests/data/images/grey_8.png"),
    file!("MNIST's images", "examples/digits/t10k-images-idx3-ubyte"),
    file!("MNIST's labels", "examples/digits/t10k-labels-idx1-ubyte"),
    file!("a mean file", "tests/data/golden/float_mean.binaryproto"),
    file!("a net", "tests/data/golden/net/raw_none.prototxt"),
    file!("a JSON text", "tests/data/golden/net/nets.json"),
    file!("another text", "tests/data/golden/README.md"),
    file!("a checkpoint's index", "crates/percolator-tensorflow/tests/data/types/model.index"),
    file!("a checkpoint's data", "crates/percolator-tensorflow/tests/data/types/model.data-00000-of-00001"),
    file!("a SavedModel", "crates/percolator-tensorflow/tests/data/module/saved_model.pb"),
    file!("a list of checkpoints", "crates/percolator-tensorflow/tests/data/object/checkpoint"),
    file!("an archive", "crates/percolator-tensorflow/tests/data/article_ref_io.npz"),
];

/// What each is, and its bytes.
pub fn files() -> Vec<(&'static str, Vec<u8>)> {
    FILES.iter().map(|(what, bytes)| (*what, bytes.to_vec())).collect()
}
