//! What became of the records that a feed named as bad.

use std::fmt;
use std::path::Path;

use percolator::bad::Quarantined;
use percolator::source::{Cursor, Source, SourceError};

use crate::open::DataSet;
use crate::scan::Progress;

/// What a data set now has in the place of a record that a quarantine file names.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Since {
    /// The same bytes: the record is as bad as it was.
    Same,
    /// Other bytes, or another key: the record was changed.
    Changed,
    /// It cannot be read.
    Unreadable(SourceError),
    /// No record has this number.
    Absent,
    /// It is a record of another data set.
    OfAnother,
}

impl fmt::Display for Since {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Since::Same => f.write_str("the data set has the same bytes"),
            Since::Changed => f.write_str("the data set has others by now"),
            Since::Unreadable(error) => write!(f, "it cannot be read: {error}"),
            Since::Absent => f.write_str("the data set has no record of this number"),
            Since::OfAnother => f.write_str("it is of another data set"),
        }
    }
}

/// Compares the records that a quarantine file names with what a data set has now, in one pass over it.
/// Returns the entries in the order of their numbers, or nothing if the progress is told to stop.
#[must_use]
pub fn quarantined(
    data: &DataSet,
    mut named: Vec<Quarantined>,
    progress: &Progress,
) -> Option<Vec<(Quarantined, Since)>> {
    named.sort_by(|one, other| (one.number, &one.source).cmp(&(other.number, &other.source)));
    let mut since: Vec<Option<Since>> = vec![None; named.len()];
    let mut begin = 0;
    for source in data.sources() {
        let mut walk = Walk::of(&**source, progress);
        for (entry, since) in named.iter().zip(&mut since).filter(|(_, since)| since.is_none()) {
            // A number counts over all sources.
            let Some(number) = entry.number.checked_sub(begin) else { continue };
            let found = walk.look(number, entry);
            if progress.is_stopped() {
                return None;
            }
            match found {
                Some(_) if !is_same_place(&entry.source, source.path()) => *since = Some(Since::OfAnother),
                Some(found) => *since = Some(found),
                None => break,
            }
        }
        begin += walk.records();
    }
    let since = since.into_iter().map(|since| since.unwrap_or(Since::Absent));
    Some(named.into_iter().zip(since).collect())
}

/// Whether two paths lead to one place, however they are written.
fn is_same_place(one: &Path, other: &Path) -> bool {
    one == other
        || one.canonicalize().ok().is_some_and(|one| other.canonicalize().is_ok_and(|other| one == other))
}

/// A pass over a source, from record to record.
struct Walk<'a> {
    source: &'a dyn Source,
    progress: &'a Progress,
    /// Opened when it is needed.
    cursor: Option<Box<dyn Cursor>>,
    /// The number of the next record in the source.
    at: u64,
}

impl<'a> Walk<'a> {
    fn of(source: &'a dyn Source, progress: &'a Progress) -> Self {
        Walk { source, progress, cursor: None, at: 0 }
    }

    /// The number of records, once the walk is at their end.
    fn records(&self) -> u64 {
        self.source.records().unwrap_or(self.at)
    }

    /// Compares the record of this number with the entry; `None` if the source ends before it.
    fn look(&mut self, number: u64, entry: &Quarantined) -> Option<Since> {
        if self.source.records().is_some_and(|records| number >= records) {
            return None;
        }
        self.find(number, entry).unwrap_or_else(|error| Some(Since::Unreadable(error)))
    }

    fn find(&mut self, number: u64, entry: &Quarantined) -> Result<Option<Since>, SourceError> {
        let cursor = match &mut self.cursor {
            Some(cursor) => cursor,
            none => none.insert(self.source.cursor()?),
        };
        if self.at > number {
            // Another entry had this number.
            cursor.seek(number)?;
            self.at = number;
        }
        while self.at < number {
            if self.progress.is_stopped() || !cursor.skip()? {
                return Ok(None);
            }
            self.at += 1;
        }
        // Passed whether it can be read or not.
        self.at += 1;
        let Some(found) = cursor.advance()? else { return Ok(None) };
        let is_same = found.key() == entry.key.0 && found.value() == entry.value;
        Ok(Some(if is_same { Since::Same } else { Since::Changed }))
    }
}
