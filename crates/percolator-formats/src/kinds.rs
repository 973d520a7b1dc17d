//! Which format a path has.

use std::path::Path;
use std::sync::Arc;

use crate::data_set::{head_of, places};
use crate::{FormatError, Options, Shard};

/// Tells a format by a path and its first bytes, which are none for a folder.
type Is = fn(&Path, &[u8]) -> bool;

/// Opens the shards at a path.
type Open = fn(&Path, &Options) -> Result<Vec<Arc<dyn Shard>>, FormatError>;

/// A format.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    name: &'static str,
    is: Is,
    open: Open,
}

/// All formats, those first whose bytes tell most.
const KINDS: &[Kind] = &[
    #[cfg(feature = "arrow")]
    Kind { name: "hugging-face", is: crate::hugging_face::is, open: crate::hugging_face::open },
    #[cfg(feature = "arrow")]
    Kind { name: "arrow", is: crate::arrow_ipc::is, open: crate::arrow_ipc::open },
    Kind { name: "mds", is: crate::mds::is, open: crate::mds::open },
    Kind { name: "litdata", is: crate::litdata::is, open: crate::litdata::open },
    #[cfg(feature = "parquet")]
    Kind { name: "parquet", is: crate::parquet_file::is, open: crate::parquet_file::open },
    #[cfg(feature = "hdf5")]
    Kind { name: "hdf5", is: crate::hdf5::is, open: crate::hdf5::open },
    Kind { name: "npy", is: crate::npy::is, open: crate::npy::open },
    Kind { name: "npz", is: crate::npz::is, open: crate::npz::open },
    Kind { name: "array-record", is: crate::array_record::is, open: crate::array_record::open },
    Kind { name: "bagz", is: crate::bagz::is, open: crate::bagz::open },
    Kind { name: "recordio", is: crate::record_io::is, open: crate::record_io::open },
    Kind { name: "megatron", is: crate::megatron::is, open: crate::megatron::open },
    Kind { name: "tar", is: crate::tar::is, open: crate::tar::open },
    #[cfg(feature = "hdf5")]
    Kind { name: "caffe-hdf5", is: crate::caffe_hdf5::is, open: crate::caffe_hdf5::open },
    Kind { name: "jsonl", is: crate::jsonl::is, open: crate::jsonl::open },
    Kind { name: "csv", is: crate::csv::is, open: crate::csv::open },
    Kind { name: "lst", is: crate::lst::is, open: crate::lst::open },
    Kind { name: "list", is: crate::list::is, open: crate::list::open },
    Kind { name: "class-folder", is: crate::class_folder::is, open: crate::class_folder::open },
    #[cfg(feature = "feed")]
    Kind { name: "lmdb-ocr", is: crate::feed::pairs::is, open: crate::feed::pairs::open },
    #[cfg(feature = "feed")]
    Kind { name: "lmdb-msgpack", is: crate::feed::msgpack::is, open: crate::feed::msgpack::open },
];

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        self.name
    }

    pub(crate) fn open(self, path: &Path, options: &Options) -> Result<Vec<Arc<dyn Shard>>, FormatError> {
        (self.open)(path, options)
    }
}

/// The format of a path: the one that is stated, or the first that its bytes and its name tell.
pub(crate) fn of(path: &Path, options: &Options) -> Result<Kind, FormatError> {
    if let Some(stated) = &options.format {
        return KINDS.iter().find(|kind| kind.name == stated).copied().ok_or_else(|| {
            let known: Vec<_> = KINDS.iter().map(|kind| kind.name).collect();
            let what = format!("there is no format {stated:?}; there are {}", known.join(", "));
            FormatError::refused(path, what)
        });
    }
    find(path)?.ok_or_else(|| {
        let known: Vec<_> = KINDS.iter().map(|kind| kind.name).collect();
        FormatError::refused(path, format!("it has none of the formats that are read: {}", known.join(", ")))
    })
}

/// The format that a path's bytes and its name tell.
pub(crate) fn find(path: &Path) -> Result<Option<Kind>, FormatError> {
    if is_virtual(path) {
        return Ok(KINDS.iter().find(|kind| (kind.is)(path, &[])).copied());
    }
    let head = head_of(path)?;
    Ok(KINDS.iter().find(|kind| (kind.is)(path, &head)).copied())
}

/// Whether a folder is one data set, and not a folder of files.
pub(crate) fn is_folder_of_one(path: &Path) -> bool {
    path.is_dir() && KINDS.iter().any(|kind| (kind.is)(path, &[]))
}

/// Whether a path means files by a name that is none of theirs: `name@4.bag`.
pub(crate) fn is_virtual(path: &Path) -> bool {
    !path.exists() && KINDS.iter().any(|kind| (kind.is)(path, &[]))
}

/// The name of the format of a path, if it has one that is read: of a pattern or a folder of files, that of
/// its first file. Texts that may be anything, such as lists, do not make a folder a data set.
///
/// # Errors
///
/// [`FormatError`] if it cannot be read.
pub fn format_of(path: &Path) -> Result<Option<&'static str>, FormatError> {
    const OF_FOLDERS: [&str; 6] = ["arrow", "array-record", "bagz", "jsonl", "parquet", "tar"];

    if is_virtual(path) || is_folder_of_one(path) || path.is_file() {
        return Ok(find(path)?.map(Kind::name));
    }
    let Some(first) = places(Path::new(""), path)?.into_iter().next() else { return Ok(None) };
    let format = find(&first)?.map(Kind::name);
    Ok(format.filter(|format| !path.is_dir() || OF_FOLDERS.contains(format)))
}
