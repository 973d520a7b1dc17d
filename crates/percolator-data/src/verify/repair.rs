//! A clean copy of a data set: every record that is whole, and no other.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use percolator::record::Datum;
use percolator::source::ImageList;
use percolator_files::{shown, whole_file};
use serde::Serialize;

use super::{Fault, Verified, VerifyOptions, scan};
use crate::open::{DataSet, Kind};
use crate::scan::{Progress, ScanError, Seen};
use crate::store::{Backend, Existing, NewStore, StoreError};

/// What a repair wrote.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Repaired {
    /// How many records the copy has.
    pub written: u64,
    /// What was found.
    #[serde(flatten)]
    pub verified: Verified,
}

/// Why there is no copy.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    /// The data set cannot be read.
    #[error(transparent)]
    Scan(#[from] ScanError),
    /// The copy cannot be begun.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The copy cannot be completed.
    #[error("{cause}; nothing is left of the copy")]
    Removed {
        /// Why.
        cause: StoreError,
    },
    /// No record is whole, or the copy would be in the place of something else.
    #[error("{}: {message}", shown::path(path))]
    Refused {
        /// The data set, or the copy's path.
        path: PathBuf,
        /// Why, and what to do about it.
        message: &'static str,
    },
}

fn refused(path: &Path, message: &'static str) -> RepairError {
    RepairError::Refused { path: path.to_owned(), message }
}

/// Where a copy is written.
enum Copy {
    Store(NewStore),
    /// A list of images is copied, and not the images.
    List {
        path: PathBuf,
        text: Vec<u8>,
        existing: Existing,
    },
}

/// Verifies a data set as [`verify`](super::verify) does, and writes all records that are whole to a new one
/// of the same kind, with their keys and in their order. Several TFRecord files become one, which is not
/// compressed, and whose keys count its own records. The copy is whole, or absent.
///
/// # Errors
///
/// [`RepairError`]; nothing is then written.
pub fn repair(
    data: &DataSet,
    out: &Path,
    existing: Existing,
    options: &VerifyOptions,
    progress: &Progress,
    found: impl FnMut(&Fault),
) -> Result<Repaired, RepairError> {
    let mut copy = Copy::create(data, out, existing)?;
    let record = |seen: Seen<'_>| (seen.key.to_owned(), seen.value.to_owned());
    let put = |(key, value): (Vec<u8>, Vec<u8>)| copy.put(&key, &value);
    let verified = scan(data, options, progress, record, put, found)?;
    if verified.whole == 0 {
        return Err(refused(data.path(), "no record of it is whole, so there is no copy"));
    }
    copy.finish()?;
    Ok(Repaired { written: verified.whole, verified })
}

impl Copy {
    fn create(data: &DataSet, out: &Path, existing: Existing) -> Result<Self, RepairError> {
        let place = place_of(out);
        let is_same = |source: &Path| match (fs::canonicalize(source), &place) {
            (Ok(source), Some(place)) => source.starts_with(place) || place.starts_with(&source),
            _ => false,
        };
        let is_among = data.kind() == Kind::TfRecord && percolator_tfrecord::is_among(out, "", data.path());
        if is_among || data.sources().iter().any(|source| is_same(source.path())) || is_same(data.path()) {
            return Err(refused(
                out,
                "this is the data set itself, or would be a part of it: give the copy another path",
            ));
        }
        let backend = match data.kind() {
            Kind::Lmdb => Backend::Lmdb,
            Kind::LevelDb => Backend::LevelDb,
            Kind::TfRecord => Backend::TfRecord,
            Kind::Files => {
                let message = "it is of another library, whose files are not written: copy what is damaged \
                               again, or let a feed pass over it (`--bad-records`)";
                return Err(refused(data.path(), message));
            }
            Kind::ImageList => {
                existing.check(out).map_err(|error| unwritten(out, error))?;
                // One of the images, perhaps.
                if out.is_file() && !is_list(out).map_err(|error| unwritten(out, error))? {
                    return Err(refused(
                        out,
                        "it is no list of images, so it is not replaced: give the copy another path",
                    ));
                }
                whole_file::check(out).map_err(|error| unwritten(out, error))?;
                return Ok(Copy::List { path: out.to_owned(), text: Vec::new(), existing });
            }
        };
        let created = NewStore::create(out, backend, existing);
        Ok(Copy::Store(created.map_err(|cause| match cause.is_full() {
            true => RepairError::Removed { cause },
            false => cause.into(),
        })?))
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), RepairError> {
        match self {
            Copy::Store(store) => store.put(key, value).map_err(removed)?,
            Copy::List { text, .. } => {
                // It was parsed before.
                let label = Datum::parse(value).map_or(0, |datum| datum.label);
                text.extend_from_slice(key);
                text.extend_from_slice(format!(" {label}\n").as_bytes());
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<(), RepairError> {
        match self {
            Copy::Store(store) => store.finish().map_err(removed),
            Copy::List { path, text, existing } => {
                let written = whole_file::write_over(&path, &[&text], existing);
                written.map_err(|error| removed(unwritten(&path, error)))
            }
        }
    }
}

fn removed(cause: StoreError) -> RepairError {
    RepairError::Removed { cause }
}

fn unwritten(path: &Path, error: io::Error) -> StoreError {
    match error.kind() {
        io::ErrorKind::AlreadyExists => StoreError::Exists { path: path.to_owned() },
        _ => StoreError::io(path, "write the list")(error),
    }
}

/// The place that a path leads to, even if nothing is there yet.
fn place_of(path: &Path) -> Option<PathBuf> {
    fs::canonicalize(path).ok().or_else(|| {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        Some(place_of(folder.unwrap_or(Path::new(".")))?.join(path.file_name()?))
    })
}

/// Whether a file is empty, or is a list of images. Any bytes can be a line of a list, except 0, which every
/// image file has.
fn is_list(path: &Path) -> io::Result<bool> {
    Ok(fs::metadata(path)?.len() == 0 || ImageList::open(path).is_ok() && !fs::read(path)?.contains(&0))
}
