//! The index of an LMDB's records: for each, its leaf page and its number there.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::page::{Fault, IS_READ_HERE, Meta, Pages};
use super::{Lmdb, ReadTransaction, tree};
use crate::source::index::{Damage, IndexPlace, Kind, RecordIndex, Subject};
use crate::source::{Source as _, SourceError};

/// How often one looks for what a read transaction sees, while a writer commits again and again.
const LOOKS: usize = 8;

/// An index, and which commit of the database it is of.
#[derive(Clone, Debug)]
pub(super) struct Indexed {
    transaction: u64,
    /// As it was asked for.
    place: IndexPlace,
    index: Arc<RecordIndex>,
}

impl Indexed {
    pub(super) fn held_bytes(&self) -> usize {
        self.index.held_bytes()
    }
}

impl Lmdb {
    pub(super) fn make_seekable(&self, place: &IndexPlace) -> Result<(), SourceError> {
        if !IS_READ_HERE {
            tracing::info!(path = %self.path.display(), "databases of this kind of machine are not indexed");
            return Ok(());
        }
        let environment = &self.environment;
        let pages = environment.pages.get_or_try_init(|| self.open_pages())?;
        // The transaction stays until the index is made: no writer uses the pages anew that it sees.
        let (_transaction, meta) = self.newest(pages)?;
        let is_there = |indexed: &Indexed| indexed.transaction == meta.transaction && indexed.place == *place;
        if self.indexed.lock().as_ref().is_some_and(is_there) {
            return Ok(());
        }
        let subject = self.subject(pages, &meta, place)?;
        let index = match RecordIndex::find(&subject) {
            Some(index) if index.records() == meta.entries => index,
            _ => self.make_index(pages, &meta, &subject)?,
        };
        let index = Arc::new(index);
        *self.indexed.lock() = Some(Indexed { transaction: meta.transaction, place: place.clone(), index });
        Ok(())
    }

    /// The index of the database as a transaction sees it, if there is one.
    pub(super) fn index_within(&self, transaction: u64) -> Option<Arc<RecordIndex>> {
        let indexed = self.indexed.lock().clone()?;
        if indexed.transaction != transaction {
            tracing::debug!(path = %self.path.display(), "the index is of another commit than the walk: it walks");
            return None;
        }
        if let Some(pages) = self.environment.pages.get() {
            pages.read_singly();
        }
        Some(indexed.index)
    }

    /// Makes the index anew that turned out to be damaged. The caller is within a transaction of this number.
    #[cold]
    pub(super) fn mend(&self, transaction: u64, damage: &Damage) -> Result<Arc<RecordIndex>, SourceError> {
        tracing::warn!(path = %self.path.display(), %damage, "the record index is damaged: it is made anew");
        let environment = &self.environment;
        let pages = environment.pages.get_or_try_init(|| self.open_pages())?;
        let place = self.indexed.lock().as_ref().map_or(IndexPlace::Memory, |indexed| indexed.place.clone());
        let meta = pages.meta(transaction).map_err(|error| self.io_error(&error))?;
        let meta = meta.ok_or_else(|| self.written_to())?;
        let index = Arc::new(self.make_index(pages, &meta, &self.subject(pages, &meta, &place)?)?);
        *self.indexed.lock() = Some(Indexed { transaction, place, index: index.clone() });
        Ok(index)
    }

    fn make_index(
        &self,
        pages: &Pages,
        meta: &Meta,
        subject: &Subject<'_>,
    ) -> Result<RecordIndex, SourceError> {
        let places = tree::places(pages, meta).map_err(|fault| self.page_error(fault))?;
        Ok(RecordIndex::keep(subject, places))
    }

    fn subject<'a>(
        &'a self,
        pages: &Pages,
        meta: &Meta,
        place: &'a IndexPlace,
    ) -> Result<Subject<'a>, SourceError> {
        let data = &self.environment.data;
        // The sidecar of a folder lies beside the folder.
        let folder = data.parent().filter(|_| data.file_name().is_some_and(|name| name == "data.mdb"));
        let database: &Path = folder.unwrap_or(data);
        let identity = pages.identity(meta).map_err(|error| self.io_error(&error))?;
        Ok(Subject { kind: Kind::Lmdb, database, identity, place })
    }

    fn open_pages(&self) -> Result<Pages, SourceError> {
        let environment = &self.environment;
        let pages =
            Pages::open(&environment.data, environment.file).map_err(|error| self.io_error(&error))?;
        pages.ok_or_else(|| SourceError::NoPositions {
            path: self.path.clone(),
            found: "another file has taken its place since it was opened".to_owned(),
            hint: "open it again",
        })
    }

    /// The newest commit, and a transaction that sees it.
    fn newest(&self, pages: &Pages) -> Result<(ReadTransaction, Meta), SourceError> {
        for _ in 0..LOOKS {
            let transaction = ReadTransaction::begin(&self.environment)?;
            if let Some(meta) = pages.meta(transaction.id).map_err(|error| self.io_error(&error))? {
                return Ok((transaction, meta));
            }
        }
        Err(self.written_to())
    }

    fn written_to(&self) -> SourceError {
        SourceError::NoPositions {
            path: self.path.clone(),
            found: "somebody writes to it all the while".to_owned(),
            hint: "wait until it is written",
        }
    }

    fn io_error(&self, error: &io::Error) -> SourceError {
        SourceError::io(&self.environment.data, "read the data file", error)
    }

    pub(super) fn page_error(&self, fault: Fault) -> SourceError {
        let path = self.path().to_owned();
        match fault {
            Fault::Page { number, message } => SourceError::BrokenPage { path, page: number, message },
            Fault::OtherTrees => SourceError::NoPositions {
                path,
                found: "it holds several values of one key, or databases within it".to_owned(),
                hint: "write each record under a key of its own in the unnamed database",
            },
        }
    }
}
