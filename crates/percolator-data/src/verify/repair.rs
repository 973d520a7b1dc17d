//! A clean copy of a data set: every record that is whole, and no other.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use percolator::decoder::ImageFileDecoder;
use percolator::record::Datum;
use percolator::{shown, whole_file};
use serde::Serialize;

use super::{Fault, Verified, VerifyOptions, check, scan};
use crate::content::Content;
use crate::open::{DataSet, Kind};
use crate::scan::{Event, Progress, ScanError, Seen};
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
    /// The copy cannot be written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No record is whole.
    #[error("{}: no record of it is whole, so there is no copy", shown::path(path))]
    Nothing {
        /// The data set.
        path: PathBuf,
    },
    /// The copy would take the place of the data set.
    #[error("{}: this is the data set itself: give the copy another path", shown::path(path))]
    Same {
        /// The path.
        path: PathBuf,
    },
}

/// Where a copy is written.
enum Copy {
    Store(NewStore),
    /// A list of images is copied, and not the images.
    List {
        path: PathBuf,
        text: Vec<u8>,
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
    mut found: impl FnMut(&Fault),
) -> Result<Repaired, RepairError> {
    let mut copy = Copy::create(data, out, existing)?;
    let content = Content::find(data, options.content, progress)?;
    let mut verified = Verified::new(content);
    let work = |decoder: &mut ImageFileDecoder, seen: Seen<'_>| {
        check(seen, content, decoder).map(|()| (seen.key.to_owned(), seen.value.to_owned()))
    };
    scan(options).run(data, progress, ImageFileDecoder::default, work, |event| {
        let fault = match event {
            Event::Done(Ok((key, value))) => {
                verified.whole += 1;
                return copy.put(&key, &value);
            }
            Event::Done(Err(fault)) => *fault,
            Event::Unreadable(unreadable) => Fault::Unreadable(unreadable),
        };
        verified.count(&fault);
        found(&fault);
        Ok::<(), RepairError>(())
    })?;
    if verified.whole == 0 {
        return Err(RepairError::Nothing { path: data.path().to_owned() });
    }
    copy.finish()?;
    Ok(Repaired { written: verified.whole, verified })
}

impl Copy {
    fn create(data: &DataSet, out: &Path, existing: Existing) -> Result<Self, RepairError> {
        let is_same = |source: &Path| match (fs::canonicalize(source), fs::canonicalize(out)) {
            (Ok(source), Ok(out)) => source.starts_with(&out) || out.starts_with(&source),
            _ => false,
        };
        if data.sources().iter().any(|source| is_same(source.path())) || is_same(data.path()) {
            return Err(RepairError::Same { path: out.to_owned() });
        }
        let backend = match data.kind() {
            Kind::Lmdb => Backend::Lmdb,
            Kind::LevelDb => Backend::LevelDb,
            Kind::TfRecord => Backend::TfRecord,
            Kind::ImageList => {
                let path = out.to_owned();
                if fs::symlink_metadata(out).is_ok() && existing == Existing::Refuse {
                    return Err(StoreError::Exists { path }.into());
                }
                whole_file::check(out).map_err(|error| unwritten(out, error))?;
                return Ok(Copy::List { path, text: Vec::new() });
            }
        };
        Ok(Copy::Store(NewStore::create(out, backend, existing)?))
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), RepairError> {
        match self {
            Copy::Store(store) => store.put(key, value)?,
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
            Copy::Store(store) => Ok(store.finish()?),
            Copy::List { path, text } => {
                whole_file::write(&path, &[&text]).map_err(|error| unwritten(&path, error))
            }
        }
    }
}

fn unwritten(path: &Path, source: io::Error) -> RepairError {
    StoreError::Io { path: path.to_owned(), action: "write the list", source }.into()
}
