//! TFRecord files, plain and compressed, and the sidecar of an index.

use std::io::Write as _;
use std::path::Path;

use percolator::source::{Access, IndexPlace, TfRecord};
use percolator_tfrecord::{Compression, Options, Reader, RecordFile};

use crate::accepted::accepted;
use crate::files::{Folder, Walked, check_positions, walk};
use crate::frames::{Frames, frames};
use crate::memory::{Budget, uncounted, within};
use crate::{lmdb, repair};

/// Buffers of the sequential read, and what is walked.
const PLAIN: Budget = Budget::mebibytes(4, 64);
/// Deflate makes at most 1,032 bytes of one, and a record is at most the whole of them.
const PACKED: Budget = Budget::mebibytes(4, 1_032 * 4);

/// A plain file, mapped and read, by a source and by a reader: all ways give the records that a naive reader
/// finds.
pub(crate) fn tfrecord(bytes: &[u8]) {
    repair::both(bytes, repair::tfrecord, |bytes| {
        let folder = Folder::new();
        let path = folder.with("file.tfrecord", bytes);
        let due = naive(bytes);
        if due.is_whole {
            accepted();
        }
        for access in [Access::Mapped, Access::Read] {
            let options = TfRecord::options().access(access).compression(Compression::Plain);
            within(bytes, PLAIN, || {
                let source = options.open(&path).expect("any file can be opened");
                let walked = walk(&source, bytes.len());
                check_positions(&source, &IndexPlace::Memory, &walked);
                assert_eq!(walked, due);
            });
            within(bytes, PLAIN, || assert_eq!(read(&path, access), due));
        }
        // Whatever it is taken for when nobody says.
        let _ = within(bytes, PACKED, || {
            TfRecord::open(&path).map(|source| walk(&source, 2000 * bytes.len() + 1))
        });
    });
}

/// A compressed file: as it is, in both formats; and what such a file may unpack to, which is then read as a
/// plain file of the same bytes is.
pub(crate) fn tfrecord_packed(bytes: &[u8]) {
    let folder = Folder::new();
    let path = folder.with("file.tfrecord", bytes);
    let most = 2000 * bytes.len() + 1;
    for compression in [Compression::Gzip, Compression::Zlib] {
        let source = TfRecord::options().compression(compression).open(&path);
        let source = source.expect("any file can be opened");
        let walked = within(bytes, PACKED, || walk(&source, most));
        if walked.is_whole {
            accepted();
        }
    }
    repair::both(bytes, repair::tfrecord, |bytes| {
        let folder = Folder::new();
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(bytes).expect("a vector takes all");
        let path = folder.with("file.gz", &packed.finish().expect("a vector takes all"));
        let source = TfRecord::options().compression(Compression::Gzip).open(&path);
        let source = source.expect("any file can be opened");
        let walked = within(bytes, PACKED, || walk(&source, most));
        assert_eq!(walked, naive(bytes));
    });
}

/// The sidecar of an index: see [`lmdb::lmdb_sidecar`].
pub(crate) fn tfrecord_sidecar(bytes: &[u8]) {
    const DATA: &[u8] = include_bytes!("../seeds/few.tfrecord");

    let folder = Folder::new();
    let path = folder.with("few.tfrecord", DATA);
    let open = || TfRecord::open(&path).expect("it is whole");
    let walked = walk(&open(), DATA.len());
    lmdb::sidecar(bytes, &folder, &|| Box::new(open()), &walked);
}

/// What a reader of a plain file finds up to the end or to damage.
fn read(path: &Path, access: Access) -> Walked {
    let options = Options { access, compression: Some(Compression::Plain) };
    let mut reader = Reader::new(&RecordFile::open(path, &options).expect("any file can be opened"));
    let mut records = Vec::new();
    let is_whole = loop {
        match reader.advance() {
            Ok(Some(data)) => {
                uncounted(|| records.push((format!("{:08}", records.len()).into_bytes(), data.to_vec())));
            }
            ended => break ended.is_ok(),
        }
    };
    Walked { records, is_whole }
}

/// The records up to the end or to damage.
fn naive(file: &[u8]) -> Walked {
    let Frames { records: frames, rest, .. } = frames(file);
    let whole = frames.iter().map_while(|data| *data).enumerate();
    let records: Vec<_> =
        whole.map(|(number, data)| (format!("{number:08}").into_bytes(), data.to_vec())).collect();
    let is_whole = rest.is_empty() && records.len() == frames.len();
    Walked { records, is_whole }
}
