//! An open database, and cursors over it that lend its bytes.

#![expect(unsafe_code, reason = "bytes of the store are lent past the borrow of a cursor")]

use std::rc::Rc;
use std::sync::Arc;

use percolator_leveldb::table::Verify;
use percolator_leveldb::{self as stored, Database, Home, LevelDbError, MergeCursor, RecordPlace};

use super::ahead::{Ahead, Pool};
use crate::record::RecordId;
use crate::source::{Cursor, Entry, HeldBytes, Lender, Run, SourceError, UnverifiedTable};

/// An open database, and the only lender of what is in its store.
#[derive(Debug)]
pub(super) struct Opened {
    database: Arc<Database>,
    /// Holds the database's store.
    lender: Lender,
}

impl Opened {
    pub(super) fn new(database: Arc<Database>) -> Arc<Self> {
        let lender = Lender::of_store(database.store().clone());
        Arc::new(Opened { database, lender })
    }

    pub(super) fn database(&self) -> &Arc<Database> {
        &self.database
    }

    /// Lends an entry's bytes, as far as they are in the store.
    ///
    /// # Safety
    ///
    /// The entry must be of a cursor over this database.
    #[inline]
    unsafe fn lend<'a>(&'a self, entry: stored::Entry<'a>) -> Entry<'a> {
        let stored::Entry { key, value, home } = entry;
        match home {
            // SAFETY: both are in the database's store, in which nothing changes or is freed before it is
            // dropped. `lender` holds it.
            Home::Log => unsafe { Entry::lent(key, value, &self.lender) },
            Home::Table { table, unverified } => {
                // SAFETY: the value is in the store, as above.
                let entry = unsafe { Entry::lent_value(key, value, &self.lender) };
                match unverified {
                    Some(unverified) => entry.unverified(UnverifiedTable { table, unverified }),
                    None => entry,
                }
            }
            Home::Cursor { is_whole: true } => Entry::borrowed(key, value).whole(),
            Home::Cursor { is_whole: false } => Entry::borrowed(key, value),
        }
    }
}

/// A walk over an open database.
#[derive(Debug)]
pub(super) struct Walk {
    opened: Arc<Opened>,
    /// It is over this database.
    merge: MergeCursor<Ahead>,
    /// What helpers unpack ahead of it, if there are helpers.
    pool: Option<Rc<Pool>>,
}

impl Walk {
    /// Returns a walk over the keys from `start` (inclusive) to `end` (exclusive).
    pub(super) fn new(
        opened: &Arc<Opened>,
        (start, end): (&[u8], Option<&[u8]>),
        verify: Verify,
        pool: Option<Rc<Pool>>,
    ) -> Self {
        let ahead = || pool.as_ref().map(Ahead::new);
        let merge = MergeCursor::new(&opened.database, start, end, verify, ahead);
        Walk { opened: opened.clone(), merge, pool }
    }

    pub(super) fn go_after(&mut self, key: &[u8]) {
        self.merge.go_after(key);
    }

    pub(super) fn rest(&mut self) {
        self.merge.rest();
    }

    pub(super) fn reads_until(&mut self, place: Option<RecordPlace>) {
        self.merge.reads_until(place);
    }
}

impl Cursor for Walk {
    fn advance(&mut self) -> Result<Option<Entry<'_>>, SourceError> {
        let entry = self.merge.advance()?;
        // SAFETY: the entry is of `merge`, which is over this database.
        Ok(entry.map(|entry| unsafe { self.opened.lend(entry) }))
    }

    fn rewind(&mut self) -> Result<(), SourceError> {
        self.merge.rewind();
        Ok(())
    }

    fn give(&mut self, id: RecordId, run: &mut Run) -> bool {
        let Some((key, buffer, value)) = self.merge.whole() else { return false };
        run.exchange(id, key, buffer, value);
        true
    }

    fn held_bytes(&mut self, _value_bytes: usize) -> HeldBytes {
        let (tables, packed) = self.merge.tables();
        // Tables of other databases that share the pool count as compressed too.
        let pool = self.pool.as_ref().filter(|_| packed > 0);
        let shared = pool.map(|pool| pool.held_bytes(packed + pool.tables().saturating_sub(tables)));
        HeldBytes { own: self.merge.read_bytes_max(), shared: shared.unwrap_or_default() }
    }
}

/// A cursor that goes to records of an open database.
#[derive(Debug)]
pub(super) struct RecordCursor {
    opened: Arc<Opened>,
    /// It is over this database.
    records: stored::RecordCursor,
}

impl RecordCursor {
    pub(super) fn new(opened: &Arc<Opened>) -> Self {
        RecordCursor { opened: opened.clone(), records: stored::RecordCursor::new(&opened.database) }
    }

    pub(super) fn go_to(&mut self, place: RecordPlace, verify: Verify) -> Result<(), LevelDbError> {
        self.records.go_to(place, verify)
    }

    pub(super) fn clear(&mut self) {
        self.records.clear();
    }

    /// Returns the record that the cursor is at; `None` if it is at none.
    pub(super) fn entry(&self) -> Option<Entry<'_>> {
        // SAFETY: the entry is of `records`, which is over this database.
        self.records.entry().map(|entry| unsafe { self.opened.lend(entry) })
    }
}
