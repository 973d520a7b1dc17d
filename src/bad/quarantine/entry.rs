//! An entry of a quarantine file: how it is written, read and recognised.

use std::collections::TryReserveError;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use percolator_files::checksum::Crc32c;
use percolator_files::input_file;
use percolator_messages::example::{Example, ExampleWriter, NameFirst};
use percolator_tfrecord::{FrameFault, HEAD_BYTES, read_frame};

use super::QuarantineError;
use crate::bad::BadRecord;
use crate::record::Key;

/// The features of an entry.
pub(super) mod feature {
    pub(in crate::bad::quarantine) const SOURCE: &str = "source";
    pub(in crate::bad::quarantine) const KEY: &str = "key";
    pub(in crate::bad::quarantine) const NUMBER: &str = "number";
    pub(in crate::bad::quarantine) const EPOCH: &str = "epoch";
    pub(in crate::bad::quarantine) const REASON: &str = "reason";
    pub(in crate::bad::quarantine) const VALUE: &str = "value";
    pub(in crate::bad::quarantine) const COMPANION: &str = "companion";
}

/// A bad record, as a quarantine file names it.
///
/// The file is a TFRecord file of `tf.train.Example`s, which any tool for them reads. Its features are those
/// named here; `companion` is absent if the record has none.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quarantined {
    /// The database or file that has the record: an absolute path without links, unless it is not a file.
    pub source: PathBuf,
    /// The record's key.
    pub key: Key,
    /// Its number in the data set, from 0. A list's lines keep their numbers in whatever order they come.
    pub number: u64,
    /// The epoch in which it was found.
    pub epoch: u64,
    /// Why it could not be used.
    pub reason: String,
    /// Its bytes, as far as they could be read.
    pub value: Vec<u8>,
    /// The bytes of its companion.
    pub companion: Option<Vec<u8>>,
}

impl Quarantined {
    /// Reads a quarantine file. A partial entry at its end is skipped: its writer was killed, or is writing
    /// it.
    ///
    /// # Errors
    ///
    /// [`QuarantineError`] if the file cannot be read, is damaged, or names no bad records.
    pub fn read(file: impl AsRef<Path>) -> Result<Vec<Quarantined>, QuarantineError> {
        let path = file.as_ref();
        let io = |error| QuarantineError::io(path, "read it", error);
        let (file, bytes) = input_file::open(path).map_err(io)?;
        let mut entries = Vec::new();
        read_entries(path, &file, 0..bytes, |entry| {
            entries.push(entry.to_owned()?);
            Ok(())
        })?;
        Ok(entries)
    }
}

/// An entry where it was read.
pub(super) struct Entry<'a> {
    source: &'a [u8],
    key: &'a [u8],
    number: u64,
    epoch: u64,
    reason: &'a str,
    value: &'a [u8],
    companion: Option<&'a [u8]>,
}

impl<'a> Entry<'a> {
    fn parse(bytes: &'a [u8]) -> Option<Self> {
        let features = Example::parse(bytes).ok()?.features();
        let text = |name: &str| features.get(name)?.bytes()?.iter().next();
        let number = |name: &str| u64::try_from(features.get(name)?.ints()?.iter().next()?).ok();
        Some(Entry {
            source: text(feature::SOURCE)?,
            key: text(feature::KEY)?,
            number: number(feature::NUMBER)?,
            epoch: number(feature::EPOCH)?,
            reason: std::str::from_utf8(text(feature::REASON)?).ok()?,
            value: text(feature::VALUE)?,
            companion: text(feature::COMPANION),
        })
    }

    fn source(&self) -> PathBuf {
        PathBuf::from(OsString::from_vec(self.source.to_vec()))
    }

    pub(super) fn name(&self) -> Name {
        Name::new(self.source(), self.number, self.key, self.value, self.companion)
    }

    /// An error if there is no memory for the record's bytes.
    fn to_owned(&self) -> Result<Quarantined, TryReserveError> {
        Ok(Quarantined {
            source: self.source(),
            key: Key(copied(self.key)?),
            number: self.number,
            epoch: self.epoch,
            reason: self.reason.to_owned(),
            value: copied(self.value)?,
            companion: self.companion.map(copied).transpose()?,
        })
    }
}

fn copied(bytes: &[u8]) -> Result<Vec<u8>, TryReserveError> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(bytes.len())?;
    copy.extend_from_slice(bytes);
    Ok(copy)
}

/// What names a record.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Name {
    /// Where the source is, if it is a file or a folder.
    source: PathBuf,
    number: u64,
    /// Of its bytes, and where each part ends: a data set may be rebuilt at the same path.
    checksum: u32,
}

impl Name {
    pub(super) fn new(
        source: PathBuf,
        number: u64,
        key: &[u8],
        value: &[u8],
        companion: Option<&[u8]>,
    ) -> Self {
        let mut checksum = Crc32c::new();
        for part in [Some(key), Some(value), companion] {
            checksum.update(&part.map_or(u64::MAX, |bytes| bytes.len() as u64).to_le_bytes());
            checksum.update(part.unwrap_or_default());
        }
        Name { source, number, checksum: checksum.masked() }
    }
}

/// The features of an entry that come before the record's bytes.
pub(super) fn facts(name: &Name, bad: &BadRecord) -> Vec<u8> {
    let number = |number: u64| [i64::try_from(number).unwrap_or(i64::MAX)];
    let mut writer = ExampleWriter::new();
    writer
        .bytes(feature::SOURCE, [name.source.as_os_str().as_bytes()])
        .bytes(feature::KEY, [&bad.key.0])
        .ints(feature::NUMBER, number(name.number))
        .ints(feature::EPOCH, number(bad.id.epoch))
        .bytes(feature::REASON, [&bad.reason]);
    writer.into_features()
}

/// Reads the entries in a part of the file. Returns the end of the last one that is whole.
pub(super) fn read_entries(
    path: &Path,
    file: &File,
    mut part: Range<u64>,
    mut found: impl FnMut(Entry<'_>) -> Result<(), TryReserveError>,
) -> Result<u64, QuarantineError> {
    let mut data = Vec::new();
    while !part.is_empty() {
        let not_one =
            |found: String| QuarantineError::NotOne { path: path.to_owned(), offset: part.start, found };
        let read = |into: &mut [u8], offset| file.read_exact_at(into, offset);
        match read_frame(part.clone(), &mut data, read) {
            Ok(end) => {
                let entry = Entry::parse(&data);
                let kept = found(entry.ok_or_else(|| not_one("names no bad record".to_owned()))?);
                kept.map_err(|error| QuarantineError::io(path, "read it", error.into()))?;
                part.start = end;
            }
            Err(FrameFault::Cut) => {
                // A truncated record with nothing whole before it may be a user's own file.
                let io = |error| QuarantineError::io(path, "read it", error);
                if part.start == 0 && !begins_with_entry(file, part.end).map_err(io)? {
                    return Err(not_one("is none".to_owned()));
                }
                break;
            }
            Err(FrameFault::Damaged(what)) => return Err(not_one(what.to_owned())),
            Err(FrameFault::Io(error)) => return Err(QuarantineError::io(path, "read it", error)),
        }
    }
    Ok(part.start)
}

/// Whether a file continues after a frame's head like the first entry of a quarantine file, as far as it
/// goes. If it ends before that can be seen, the answer is no.
fn begins_with_entry(file: &File, bytes: u64) -> io::Result<bool> {
    let first = NameFirst(feature::SOURCE);
    let behind = usize::try_from(bytes.saturating_sub(HEAD_BYTES as u64)).unwrap_or(usize::MAX);
    let mut front = vec![0; behind.min(first.bytes_max())];
    file.read_exact_at(&mut front, HEAD_BYTES as u64)?;
    Ok(first.is_in(&front))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn parts_that_end_elsewhere_are_another_record() {
        let name = |key: &[u8], value: &[u8], companion| Name::new("data".into(), 5, key, value, companion);
        let names = [
            name(b"ab", b"c", None),
            name(b"a", b"bc", None),
            name(b"a", b"b", Some(b"c")),
            name(b"ab", b"c", Some(b"")),
        ];
        assert_eq!(names.into_iter().collect::<HashSet<_>>().len(), 4);
    }
}
