//! The record index: where each record of a database is stored, by position. It has one or two numbers of 8
//! bytes per record, and is kept in a file (a *sidecar*) so that it is built only once.
//!
//! Each kind of database defines its own places and checks them. What this module or a sidecar says about a
//! database is never trusted. A sidecar belongs to one state of the database, named by its identity. A
//! sidecar of another state, or a damaged one, is rebuilt.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

mod folders;
mod places;
mod sidecar;

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use self::folders::sidecars;
pub use self::places::PlaceIndex;
pub(super) use self::sidecar::{Damage, Kind};
use self::sidecar::{Sidecar, Unusable};
use super::Identity;
use percolator_files::caller::words;
use percolator_files::shown;

/// Where the index of a database's records is kept.
///
/// An index that cannot be written there is kept in memory, for this process only, and a warning is logged.
///
/// ```no_run
/// use percolator::source::{IndexPlace, Lmdb, Source};
///
/// let digits = Lmdb::open("mnist_train_lmdb")?;
/// digits.index(&IndexPlace::Beside)?;
/// let mut cursor = digits.cursor()?;
/// cursor.seek(59_999)?;
/// let last = cursor.advance()?;
/// # Ok::<(), percolator::source::SourceError>(())
/// ```
#[non_exhaustive]
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum IndexPlace {
    /// In a file beside the database: for the folder `train_lmdb`, the file `train_lmdb.percolator-index`. If
    /// that cannot be written, in the user's cache folder: `$XDG_CACHE_HOME/percolator/indexes` or
    /// `~/.cache/percolator/indexes`.
    #[default]
    Beside,
    /// In a file in this folder, which is created if it does not exist. The file name is derived from the
    /// database's path, so one folder serves many databases.
    Folder(PathBuf),
    /// In memory only. Each process builds it again.
    Memory,
}

/// What an index belongs to, and where it is kept.
#[derive(Debug)]
pub(super) struct Subject<'a> {
    pub(super) kind: Kind,
    /// The database's canonical path.
    pub(super) database: Cow<'a, Path>,
    pub(super) identity: Identity,
    pub(super) place: &'a IndexPlace,
}

/// Where the records of one state of a database are stored: a fixed count of numbers for each, which depends
/// on the kind of database.
#[derive(Debug)]
pub(super) struct RecordIndex {
    body: Body,
    /// The count of numbers per record.
    numbers: u64,
}

#[derive(Debug)]
enum Body {
    Memory(Vec<u64>),
    File(Sidecar),
}

impl RecordIndex {
    /// Finds an existing index of this state. Logs why others cannot be used.
    pub(super) fn find(subject: &Subject<'_>) -> Option<Self> {
        sidecars(subject.place, &subject.database).into_iter().find_map(|path| {
            let Subject { kind, identity, .. } = subject;
            let found = match Sidecar::open(&path, *kind, identity) {
                Ok(sidecar) => {
                    let index = RecordIndex { body: Body::File(sidecar), numbers: kind.numbers() };
                    let records = index.records();
                    tracing::debug!(index = %shown::path(&path), records, "a record index is used");
                    return Some(index);
                }
                Err(found) => found,
            };
            let index = shown::path(&path);
            match found {
                Unusable::Missing => {}
                Unusable::Stale { found, wanted } => tracing::info!(
                    %index, %found, %wanted,
                    "a record index is of another state of the database: rebuilding it"
                ),
                Unusable::Damaged(damage) => {
                    tracing::warn!(%index, %damage, "a record index cannot be used: rebuilding it");
                }
            }
            None
        })
    }

    /// Wraps a new index, and writes it to the first place that can be written.
    pub(super) fn keep(subject: &Subject<'_>, places: Vec<u64>) -> Self {
        Self::write(subject, &places);
        RecordIndex { body: Body::Memory(places), numbers: subject.kind.numbers() }
    }

    fn write(subject: &Subject<'_>, places: &[u64]) {
        let records = (places.len() as u64).checked_div(subject.kind.numbers());
        let database = shown::path(&subject.database);
        let mut refused = None;
        for path in sidecars(subject.place, &subject.database) {
            match sidecar::write(&path, subject.kind, &subject.identity, places) {
                Ok(()) => {
                    let index = shown::path(&path);
                    tracing::info!(%database, %index, records, "a record index was built");
                    return;
                }
                Err(error) => {
                    let index = shown::path(&path);
                    tracing::info!(%database, %index, %error, "a record index cannot be kept there");
                    refused.get_or_insert(format!("{index}: {error}"));
                }
            }
        }
        if *subject.place != IndexPlace::Memory {
            tracing::warn!(
                %database,
                why = refused.as_deref().unwrap_or("there is no place for it"),
                "the record index is kept in memory only, so each process rebuilds it: name a folder for it \
                 that can be written ({})",
                words("IndexPlace::Folder", "--index FOLDER", "index=FOLDER")
            );
        }
    }

    /// The number of records.
    pub(super) fn records(&self) -> u64 {
        let numbers = match &self.body {
            Body::Memory(places) => places.len() as u64,
            Body::File(sidecar) => sidecar.numbers(),
        };
        numbers.checked_div(self.numbers).unwrap_or_default()
    }

    /// A checksum of all places: of the checksums of the parts that a sidecar divides them into.
    pub(super) fn checksum(&self) -> u32 {
        match &self.body {
            Body::Memory(places) => sidecar::checksum_of(places),
            Body::File(sidecar) => sidecar.checksum(),
        }
    }

    /// The memory that the index uses, or may use later.
    pub(super) fn held_bytes(&self) -> usize {
        let numbers = self.records().saturating_mul(self.numbers);
        usize::try_from(numbers).unwrap_or(usize::MAX).saturating_mul(size_of::<u64>())
    }

    /// The place of the record at a position, for a kind of database with this count of numbers; `None` past
    /// the last record.
    #[inline]
    pub(super) fn place<const NUMBERS: usize>(
        &self,
        position: u64,
    ) -> Result<Option<[u64; NUMBERS]>, Damage> {
        debug_assert_eq!(self.numbers, NUMBERS as u64);
        let Some(first) = position.checked_mul(NUMBERS as u64).and_then(|first| usize::try_from(first).ok())
        else {
            return Ok(None);
        };
        let numbers = match &self.body {
            Body::Memory(places) => places.get(first..),
            Body::File(sidecar) => sidecar.numbers_from(first)?,
        };
        Ok(numbers.and_then(<[u64]>::first_chunk).copied())
    }
}
