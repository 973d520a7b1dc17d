//! What a file is, by its first and last bytes, and by its name where those say little.

use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use super::{COPY, ImageFormat, Kind, Thing, UNREAD, read_as_it_is, text};
use crate::checksum::masked_crc32c;
use crate::input_file;

/// How much of a file is read, from its front and from its end.
const HEAD_BYTES: u64 = 4096;
const TAIL_BYTES: u64 = 64;

/// A file that is examined.
pub(super) struct Looked<'a> {
    pub(super) path: &'a Path,
    pub(super) head: &'a [u8],
    pub(super) tail: &'a [u8],
    pub(super) bytes: u64,
}

pub(super) fn what(path: &Path) -> Option<Thing> {
    let (file, bytes) = input_file::open(path).ok()?;
    let read = |from: u64, most: u64| {
        let mut part = vec![0; usize::try_from(most.min(bytes)).ok()?];
        file.read_exact_at(&mut part, from).ok()?;
        Some(part)
    };
    let (head, tail) = (read(0, HEAD_BYTES)?, read(bytes.saturating_sub(TAIL_BYTES), TAIL_BYTES)?);
    let looked = Looked { path, head: &head, tail: &tail, bytes };
    if bytes == 0 {
        return Thing::new(Kind::Damaged, "an empty file", COPY);
    }
    if head.iter().all(|&byte| byte == 0) {
        return zeros(&file, bytes);
    }
    // Its checksum says so; what follows goes by a few bytes.
    if begins_with_record(&head, bytes) {
        return Thing::new(Kind::TfRecord, "a TFRecord file", "");
    }
    stands_for_another(&looked)
        .or_else(|| database(&looked))
        .or_else(|| model(&looked))
        .or_else(|| container(&looked))
        .or_else(|| image(&looked))
        .or_else(|| records(&looked))
        .or_else(|| text::what(&looked))
}

/// A file that begins with zeros: no format that is read begins like that, except for small numbers in a few.
fn zeros(file: &File, bytes: u64) -> Option<Thing> {
    /// A longer file is not read to its end.
    const WHOLE_MAX: u64 = 1 << 20;

    let is_zero = bytes <= WHOLE_MAX && {
        let mut whole = vec![1; usize::try_from(bytes).ok()?];
        file.read_exact_at(&mut whole, 0).is_ok() && whole.iter().all(|&byte| byte == 0)
    };
    let (kind, what) = match is_zero {
        true => (Kind::Other, format!("{bytes} bytes of zeros, as a download that did not end leaves them")),
        false if bytes >= HEAD_BYTES => {
            let what = "a file that begins with zeros, as a download that did not end leaves it";
            (Kind::Damaged, what.to_owned())
        }
        false => return None,
    };
    Thing::new(kind, what, COPY)
}

/// A text in the place of the data.
fn stands_for_another(file: &Looked<'_>) -> Option<Thing> {
    const POINTER: &[u8] = b"version https://git-lfs.github.com/spec/";

    if file.head.starts_with(POINTER) {
        let text = String::from_utf8_lossy(file.head);
        let size = text.lines().find_map(|line| line.strip_prefix("size ")?.parse::<u64>().ok());
        let size = size.map(|size| format!(" of {size} bytes")).unwrap_or_default();
        let what = format!("a Git LFS pointer, which stands for a file{size}");
        return Thing::new(Kind::Other, what, "fetch that with `git lfs pull`");
    }
    if file.head.starts_with(b"/annex/objects/") || file.head.starts_with(b"../.git/annex/") {
        return Thing::new(Kind::Other, "a git-annex pointer", "fetch the file with `git annex get`");
    }
    None
}

/// A file of a database.
fn database(file: &Looked<'_>) -> Option<Thing> {
    /// Where an LMDB's first page has its magic number, and that number.
    const LMDB: (std::ops::Range<usize>, [u8; 4]) = (16..20, [0xde, 0xc0, 0xef, 0xbe]);
    /// The end of a table: LevelDB's, and RocksDB's.
    const TABLE: [u8; 8] = [0x57, 0xfb, 0x80, 0x8b, 0x24, 0x75, 0x47, 0xdb];
    const ROCKSDB: [u8; 8] = [0xf7, 0xcf, 0xf4, 0x85, 0xb7, 0x41, 0xe2, 0x88];

    let name = file.path.file_name().map(OsStrExt::as_bytes).unwrap_or_default();
    let folder = file.path.parent().map(|folder| match folder.as_os_str().is_empty() {
        true => Path::new("."),
        false => folder,
    })?;
    let give = |what: &'static str, kind: Kind| Thing::new(kind, what, "give its folder");
    if file.head.get(LMDB.0) == Some(&LMDB.1) {
        return Thing::new(Kind::Lmdb, "an LMDB's data file", "");
    }
    if name == b"lock.mdb" {
        return give("an LMDB's lock file", Kind::Other);
    }
    let is_beside = folder.join("CURRENT").is_file();
    let is_rocksdb = is_beside && super::folder::is_rocksdb(folder);
    if file.tail.ends_with(&ROCKSDB) || is_rocksdb && is_of_database(name) {
        return Thing::new(Kind::Other, "a file of a RocksDB, which is no LevelDB", super::folder::ROCKSDB);
    }
    if is_beside && is_of_database(name) {
        return give("a file of a LevelDB", Kind::Other);
    }
    let is_old_model = name.ends_with(b".ckpt") || name.windows(6).any(|part| part == b".ckpt-");
    match file.tail.ends_with(&TABLE) {
        true if name.ends_with(b".index") => {
            Thing::new(Kind::Model, "the index of a TensorFlow checkpoint", "")
        }
        true if is_old_model => {
            Thing::new(Kind::Model, "a TensorFlow checkpoint of the first format (V1), which is one file", V1)
        }
        true if name.ends_with(b".ldb") || name.ends_with(b".sst") => {
            Thing::new(Kind::Other, "a table of a LevelDB whose CURRENT is not beside it", COPY)
        }
        true => Thing::new(
            Kind::Model,
            "a table, as a TensorFlow checkpoint of the first format (V1) is one, and a LevelDB has some",
            V1,
        ),
        false => None,
    }
}

/// What to do about a checkpoint of TensorFlow's first format.
const V1: &str =
    "restore it in TensorFlow, and save it with tf.compat.v1.train.Saver(write_version=SaverDef.V2)";

/// Whether a name beside a CURRENT is that of one of a database's files.
fn is_of_database(name: &[u8]) -> bool {
    let has_number = name.first().is_some_and(u8::is_ascii_digit);
    [&b"CURRENT"[..], b"LOG", b"LOCK", b"IDENTITY", b"LOG.old"].contains(&name)
        || name.starts_with(b"MANIFEST-")
        || name.starts_with(b"OPTIONS-")
        || has_number && [&b".ldb"[..], b".sst", b".log"].iter().any(|end| name.ends_with(end))
}

/// A model of this or another framework.
fn model(file: &Looked<'_>) -> Option<Thing> {
    const PYTORCH: &str = "read it with torch.load, and save its tensors with safetensors.torch.save_file";
    /// The pickled number that began PyTorch's files before the version 1.6.
    const OLD_PYTORCH: &[u8] = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.";

    let head = file.head;
    if head.starts_with(b"PK\x03\x04") {
        let names = zip_names(head);
        let has = |part: &[u8]| names.iter().any(|name| name.windows(part.len()).any(|at| at == part));
        if has(b"data.pkl") || has(b".format_version") || has(b"constants.pkl") {
            return Thing::new(Kind::Other, "a PyTorch file (a ZIP archive with a pickle)", PYTORCH);
        }
        if names.first().is_some_and(|name| name.ends_with(b".npy")) || file.is_named(b".npz") {
            return Thing::new(Kind::Model, "a NumPy archive (.npz)", "");
        }
        if has(b"model.weights.h5") || has(b"metadata.json") && file.is_named(b".keras") {
            return Thing::new(Kind::Other, "a Keras model (.keras)", UNREAD);
        }
        return Thing::new(Kind::Other, "a ZIP archive", "unpack it, and give what is in it");
    }
    if head.starts_with(b"PK\x05\x06") {
        return Thing::new(Kind::Model, "an empty ZIP archive, as NumPy writes it (.npz)", "");
    }
    if head.starts_with(OLD_PYTORCH) {
        return Thing::new(Kind::Other, "a PyTorch file from before version 1.6", PYTORCH);
    }
    if matches!(head, [0x80, 2..=5, ..]) && file.tail.ends_with(b".") {
        return Thing::new(Kind::Other, "a Python pickle", "load it in Python, and write its records anew");
    }
    if head.starts_with(b"\x89HDF\r\n\x1a\n") {
        return Thing::new(Kind::Other, "an HDF5 file", read_as_it_is());
    }
    if head.starts_with(b"\x93NUMPY") {
        return Thing::new(Kind::Model, "a NumPy array (.npy)", "");
    }
    if is_safetensors(file) {
        return Thing::new(Kind::Model, "a file of safetensors", "");
    }
    if head.starts_with(b"GGUF") || head.get(4..8) == Some(b"TFL3") {
        return Thing::new(Kind::Other, "a model of another framework (GGUF, or TensorFlow Lite)", UNREAD);
    }
    None
}

/// A length of a JSON object, and the object.
fn is_safetensors(file: &Looked<'_>) -> bool {
    let Some((length, rest)) = file.head.split_first_chunk() else { return false };
    let length = u64::from_le_bytes(*length);
    length >= 2 && length.saturating_add(8) <= file.bytes && rest.starts_with(b"{\"")
}

/// The names in the local headers that the front of an archive has.
fn zip_names(head: &[u8]) -> Vec<&[u8]> {
    let starts = head.windows(4).enumerate().filter(|(_, at)| at == b"PK\x03\x04").map(|(at, _)| at);
    let name = |at: usize| {
        let length = usize::from(u16::from_le_bytes(*head.get(at + 26..)?.first_chunk()?));
        head.get(at + 30..at + 30 + length)
    };
    starts.filter_map(name).collect()
}

/// An archive, or a file of columns or records of another kind.
fn container(file: &Looked<'_>) -> Option<Thing> {
    const UNPACK: &str = "unpack it, and give what is in it";
    const WRITE: &str = "nothing here reads it: write its records to TFRecord files or an LMDB";

    let head = file.head;
    let begins = |magic: &[u8]| head.starts_with(magic);
    let packed: &[(&[u8], &str)] = &[
        (b"\x1f\x8b\x08", "a file packed with gzip"),
        (b"\x28\xb5\x2f\xfd", "a file packed with zstd"),
        (b"\xfd7zXZ\0", "a file packed with xz"),
        (b"\x04\x22\x4d\x18", "a file packed with lz4"),
        (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
        (b"Rar!\x1a\x07", "a RAR archive"),
    ];
    if let Some((_, what)) = packed.iter().find(|(magic, _)| begins(magic)) {
        return Thing::new(Kind::Other, *what, UNPACK);
    }
    if begins(b"BZh") && head.get(4..10) == Some(b"1AY&SY") {
        return Thing::new(Kind::Other, "a file packed with bzip2", UNPACK);
    }
    if head.get(257..262) == Some(b"ustar") {
        return Thing::new(Kind::Other, "a tar archive", "unpack it with `tar -xf`, and give what is in it");
    }
    let others: &[(&[u8], &str)] = &[
        (b"PAR1", "a Parquet file"),
        (b"ARROW1\0\0", "an Arrow file (Feather, version 2)"),
        (b"FEA1", "a Feather file of version 1"),
        (b"\xff\xff\xff\xff\x10\0\0\0", "an Arrow stream"),
        (b"Obj\x01", "an Avro file"),
        (b"ORC", "an ORC file"),
        (b"\x0a\x23\xd7\xce", "a RecordIO file, as MXNet writes it"),
        (b"SEQ\x06", "a SequenceFile of Hadoop"),
        (b"SQLite format 3\0", "an SQLite database"),
        (b"MATLAB 5.0 MAT-file", "a MATLAB file"),
        (b"\x7fELF", "a program"),
        (b"%PDF-", "a PDF file"),
    ];
    if let Some((_, what)) = others.iter().find(|(magic, _)| begins(magic)) {
        return Thing::new(Kind::Other, *what, WRITE);
    }
    None
}

/// The name of an image's or a sound's format, with its article, by the first bytes of a file.
#[must_use]
pub fn picture(bytes: &[u8], length: u64) -> Option<&'static str> {
    let begins = |magic: &[u8]| bytes.starts_with(magic);
    let of_bitmap = |bytes: &[u8]| Some(u64::from(u32::from_le_bytes(*bytes.get(2..)?.first_chunk()?)));
    let format = ImageFormat::of(bytes);
    Some(match bytes {
        _ if format == Some(ImageFormat::Jpeg) => "a JPEG image",
        _ if format == Some(ImageFormat::Png) => "a PNG image",
        _ if begins(b"GIF87a") || begins(b"GIF89a") => "a GIF image",
        _ if begins(b"RIFF") && bytes.get(8..12) == Some(b"WEBP") => "a WebP image",
        _ if begins(b"RIFF") && bytes.get(8..12) == Some(b"WAVE") => "a WAVE sound",
        _ if begins(b"BM") && of_bitmap(bytes) == Some(length) => "a BMP image",
        _ if begins(b"II*\0") || begins(b"MM\0*") => "a TIFF image",
        _ if bytes.get(4..12).is_some_and(|at| at.starts_with(b"ftypavif")) => "an AVIF image",
        _ if bytes.get(4..12).is_some_and(|at| at.starts_with(b"ftyphei")) => "a HEIC image",
        _ if bytes.get(4..8) == Some(b"ftyp") => "an MP4 video",
        _ if begins(b"\0\0\0\x0cjP  \r\n\x87\n") => "a JPEG 2000 image",
        _ if begins(b"fLaC") => "a FLAC sound",
        _ => return None,
    })
}

fn image(file: &Looked<'_>) -> Option<Thing> {
    const LIST: &str = "list images and labels in a text file, a name, a space and a label on each line";

    let what = picture(file.head, file.bytes)?;
    Thing::new(Kind::Other, what, if what.ends_with("image") { LIST } else { UNREAD })
}

/// Files of records that are known by their numbers.
fn records(file: &Looked<'_>) -> Option<Thing> {
    // Two zeros, a type, a number of axes, and their extents.
    if let [0, 0, kind @ 8..=14, axes @ 1..=4, extents @ ..] = file.head {
        let extents = extents.as_chunks::<4>().0.iter().take(usize::from(*axes));
        let elements = extents.map(|extent| u64::from(u32::from_be_bytes(*extent)));
        let size = [1, 1, 0, 2, 4, 4, 8].get(usize::from(*kind - 8)).copied().unwrap_or(0);
        let bytes = elements.fold(size, u64::saturating_mul);
        if bytes > 0 && bytes + 4 + 4 * u64::from(*axes) == file.bytes {
            return Thing::new(Kind::Idx, "an IDX file, as MNIST's are", "");
        }
    }
    // A BlobProto with the dimensions of old: num 1, channels, height, width, packed floats.
    if file.is_named(b".binaryproto") && matches!(file.head, [0x08 | 0x2a | 0x3a, ..]) {
        return Thing::new(Kind::Mean, "a blob of Caffe, as a mean image is one", "");
    }
    if file.is_named(b".caffemodel") {
        return Thing::new(Kind::Other, "the weights of a Caffe net", UNREAD);
    }
    None
}

/// Whether a file of this many bytes, which begins like this, has a record of TensorFlow's at its start: a
/// length, and the length's checksum.
#[must_use]
pub fn begins_with_record(head: &[u8], bytes: u64) -> bool {
    /// What a record takes besides its data.
    const BESIDE: u64 = 16;

    let Some((length, rest)) = head.split_first_chunk::<8>() else { return false };
    let is_right =
        rest.first_chunk().is_some_and(|&sum| u32::from_le_bytes(sum) == masked_crc32c(length, &[]));
    is_right && u64::from_le_bytes(*length).saturating_add(BESIDE) <= bytes
}

impl Looked<'_> {
    pub(super) fn is_named(&self, ending: &[u8]) -> bool {
        self.path.as_os_str().as_bytes().ends_with(ending)
    }
}
