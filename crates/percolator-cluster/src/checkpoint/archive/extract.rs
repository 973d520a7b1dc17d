//! Writes a checkpoint's bytes to a file.

use std::io::{self, Read, Write};
use std::path::Path;

use percolator_files::whole_file::{Existing, WholeFile};

use super::{Archive, ArchiveError};
use crate::checkpoint::parts::copy_part;
use crate::checkpoint::restore::{Origin, Rejected, Restored, first_whole};
use crate::store::Id;

/// How often it is looked again because the record changed.
const LOOKS_MAX: usize = 5;

/// What was taken out.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Extracted {
    /// Which checkpoint it was, and why not a newer one.
    pub restored: Restored,
    /// How many bytes were written.
    pub bytes: u64,
}

/// The file that is being written. Its failure is no fault of the checkpoint.
struct Target {
    file: WholeFile,
    failed: Option<io::Error>,
}

impl Write for Target {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes).map_err(|error| {
            let kind = error.kind();
            self.failed = Some(error);
            kind.into()
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Copies a checkpoint, or a part of it, into a new file. Returns the file, and how many bytes it has.
fn copy(
    from: &mut dyn Read,
    id: &Id,
    part: Option<&str>,
    path: &Path,
) -> Result<io::Result<(WholeFile, u64)>, ArchiveError> {
    let file = WholeFile::create(path).map_err(|error| ArchiveError::target(path, error))?;
    let mut target = Target { file, failed: None };
    let copied = match part {
        Some(part) => copy_part(from, part, &mut target),
        None => io::copy(from, &mut target),
    };
    if let Some(error) = target.failed {
        return Err(ArchiveError::target(path, error));
    }
    match (part, copied) {
        // The file is whole, so an older one is no better: its part may be another thing of that name.
        (Some(part), Err(error)) if error.kind() == io::ErrorKind::InvalidData => {
            Err(ArchiveError::NoPart { id: id.clone(), part: part.to_owned(), source: error.into() })
        }
        (_, copied) => Ok(copied.map(|bytes| (target.file, bytes))),
    }
}

impl Archive {
    /// Writes the newest checkpoint of an id that is whole to a file; if `part` is given, the bytes of this
    /// part of [`Parts`](crate::checkpoint::Parts) alone. It is found and verified as a process finds it that
    /// begins, but the id is not taken: a training may go on. The file has a temporary name until it is
    /// whole.
    ///
    /// # Errors
    ///
    /// [`ArchiveError::NoRecord`] if there is no checkpoint; [`ArchiveError::NoneWhole`], with every reason,
    /// if none can be read; [`ArchiveError::NoPart`] if the newest that is whole has no such part;
    /// [`ArchiveError::Exists`] if there is a file at `path` that is to stay;
    /// [`ArchiveError::Target`] if it cannot be written; [`ArchiveError::Checkpoint`].
    pub fn extract(
        &self,
        id: &Id,
        part: Option<&str>,
        path: &Path,
        existing: Existing,
    ) -> Result<Extracted, ArchiveError> {
        existing.check(path).map_err(|error| ArchiveError::target(path, error))?;
        let mut looks = 1..=LOOKS_MAX;
        loop {
            looks.next();
            let (kept, revision) = self.look_at(id)?;
            let mut rejected = Vec::new();
            let record = match &kept.record {
                None => {
                    let (metadata, store) = (self.metadata.place(), self.store.place());
                    let files = kept.files.len();
                    return Err(ArchiveError::NoRecord { id: id.clone(), metadata, store, files });
                }
                Some(Ok(record)) => Some(record),
                Some(Err(error)) => {
                    rejected.push(Rejected { entry: None, fault: error.clone().into() });
                    None
                }
            };
            let found =
                first_whole(&*self.store, id, record, &mut rejected, |from| copy(from, id, part, path))?;
            let is_newest = matches!(found, Some((_, Origin::Newest(_))));
            if !is_newest && !looks.is_empty() && self.revision(id)? != revision {
                continue;
            }
            let Some(((file, bytes), origin)) = found else {
                return Err(ArchiveError::NoneWhole { id: id.clone(), rejected });
            };
            file.finish_over(existing).map_err(|error| ArchiveError::target(path, error))?;
            return Ok(Extracted { restored: Restored { origin, rejected }, bytes });
        }
    }
}
