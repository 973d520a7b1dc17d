//! Deferred checksums: the verification of a record, or of its block, left to the thread that uses the
//! record.
//!
//! A feed's workers read a record's bytes anyway, so they verify them: if the reader did, it would read every
//! byte once more, on one thread. A deferred checksum travels with its record: from the cursor in the
//! [`Entry`](super::Entry) to the [`Run`](super::Run), whose consumer verifies it. A cursor defers checksums
//! only if requested ([`VerifiesLater`](super::VerifiesLater)), and itself verifies every block that no run
//! took over.
//!
//! A checksum that is stored beside its value, as in a TFRecord, need not travel: the value's lender finds it
//! by the value's address ([`Verifier::check_value`]).

use std::rc::Rc;
use std::sync::Arc;

use percolator_leveldb::table::{DeferredChecksum, Unverified};

use super::SourceError;
use super::leveldb::Pool;
use crate::base::offload::Helpers;

/// A feed's promise to verify the deferred checksums of a run's records before their values are used, and the
/// threads that help the cursor meanwhile. It covers one cursor and the cursors inside it, such as those of
/// [joined](super::Joined) sources, which share the helpers. Only a feed can give it.
#[derive(Clone, Debug)]
pub struct VerifiesLater {
    /// The blocks that helpers unpack ahead. Only a LevelDB's cursors use it; those of joined LevelDBs share
    /// one.
    pool: Option<Rc<Pool>>,
    /// Whether blocks are left to the caller as well, and not only values that have their own checksum.
    of_blocks: bool,
}

impl VerifiesLater {
    /// The promise of a feed's stages, whose workers verify and help.
    pub(crate) fn promised(helpers: Option<Arc<dyn Helpers>>) -> Self {
        VerifiesLater { pool: helpers.map(Pool::new), of_blocks: true }
    }

    /// The part of the promise that covers values with checksums of their own. Blocks are verified by the
    /// cursor, which needs no help: for a source that combines the records of several.
    #[must_use]
    pub fn of_values(self) -> Self {
        VerifiesLater { pool: None, of_blocks: false }
    }

    /// Whether blocks are left to the caller.
    pub(super) fn is_of_blocks(&self) -> bool {
        self.of_blocks
    }

    /// The pool of blocks that the helpers unpack ahead of the cursor.
    pub(super) fn pool(self) -> Option<Rc<Pool>> {
        self.pool
    }
}

/// Owns values that nobody may have verified yet, and verifies each when it is used.
/// [`Lender::verifying`](super::Lender::verifying) wraps it.
///
/// Only a [deferring cursor](super::Source::deferring_cursor) lends such values. A worker has each verified
/// right before it reads the value's bytes, so they are read from memory once. The cursor verifies keys
/// itself.
pub trait Verifier: Send + Sync {
    /// Verifies a value that was lent, if its cursor did not: by a checksum beside it, for example. The value
    /// has the address and the length that it had in its [`Entry`](super::Entry). Several threads may call
    /// this at the same time, and more than once for a value.
    ///
    /// # Errors
    ///
    /// [`SourceError`] if the value is damaged: then the record is [bad](crate::bad), and no other is in
    /// doubt. The error should name the record, as the cursor's own would: nobody adds it to the message.
    fn check_value(&self, value: &[u8]) -> Result<(), SourceError>;

    /// Checks that every value read until now was still as it was when it was lent. Override this if another
    /// process may write to the values; in this one, nobody may. It is called after they were used.
    ///
    /// # Errors
    ///
    /// [`SourceError`] if somebody may have written to the values.
    fn check_used(&self) -> Result<(), SourceError> {
        Ok(())
    }
}

/// The deferred checksum of a block in one of a LevelDB's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TableChecksum {
    /// The store's number for the table.
    pub(crate) table: usize,
    pub(crate) checksum: DeferredChecksum,
}

/// A block that is not verified yet, borrowed from the cursor that is in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnverifiedTable<'a> {
    pub(crate) table: usize,
    pub(crate) unverified: &'a Unverified,
}

impl UnverifiedTable<'_> {
    pub(crate) fn checksum(self) -> TableChecksum {
        TableChecksum { table: self.table, checksum: self.unverified.checksum() }
    }

    /// Takes the deferred checksum over. The caller verifies it before it uses a byte of the block.
    pub(crate) fn take(self) -> TableChecksum {
        TableChecksum { table: self.table, checksum: self.unverified.take() }
    }
}

/// Bytes that a run keeps for each record in addition, if checksums are deferred.
pub(crate) const CHECKSUM_BYTES: usize = size_of::<ChecksumAt>();

/// A deferred checksum in a run.
#[derive(Debug)]
pub(super) struct ChecksumAt {
    /// The first of the run's records that is in the block.
    pub(super) position: usize,
    pub(super) checksum: TableChecksum,
    /// The number of the block's lender among the run's.
    pub(super) lender: usize,
}
