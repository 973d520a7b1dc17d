//! What a record's bytes must be verified against, where that was left to whoever uses them.
//!
//! A feed's workers read a record's bytes anyway, so it is they who verify them: a reader that did would read
//! every byte once more, on one thread. A seal goes the way of the record: from the cursor with the
//! [`Entry`](super::Entry) into the [`Run`](super::Run), whose consumer checks it. A cursor seals nothing unless
//! it was asked to ([`VerifiesLater`](super::VerifiesLater)), and verifies itself what nobody took over.

use percolator_table::{DeferredChecksum, Unverified};

use super::SourceError;

/// Who keeps sealed tables, and can therefore check a seal.
pub(crate) trait Keeper: Send + Sync {
    /// Verifies the block that the seal is of.
    ///
    /// # Errors
    ///
    /// [`SourceError`] if the block is damaged.
    fn check_block(&self, checksum: TableChecksum) -> Result<(), SourceError>;

    /// Looks at what lies around a value, if it is one of the keeper's, and its cursor did not.
    ///
    /// # Errors
    ///
    /// [`SourceError`] if that is damaged.
    fn check_value(&self, _value: &[u8]) -> Result<(), SourceError> {
        Ok(())
    }

    /// Looks whether all that was read of its values until now was as it lay there when it was lent.
    ///
    /// # Errors
    ///
    /// [`SourceError`] if somebody may have written to them.
    fn check_used(&self) -> Result<(), SourceError> {
        Ok(())
    }
}

/// The seal of a block of one of a keeper's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TableChecksum {
    /// The table's number at its keeper.
    pub(crate) table: usize,
    pub(crate) checksum: DeferredChecksum,
}

/// The same, as a cursor shows it that is in the block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnverifiedTable<'a> {
    pub(crate) table: usize,
    pub(crate) unverified: &'a Unverified,
}

impl UnverifiedTable<'_> {
    pub(crate) fn checksum(self) -> TableChecksum {
        TableChecksum { table: self.table, checksum: self.unverified.checksum() }
    }

    /// The seal, for whoever checks it before a byte of the block is used.
    pub(crate) fn take(self) -> TableChecksum {
        TableChecksum { table: self.table, checksum: self.unverified.take() }
    }
}

/// What a run keeps of each record besides, where records are sealed.
pub(crate) const CHECKSUM_BYTES: usize = size_of::<ChecksumAt>();

/// A seal in a run.
#[derive(Debug)]
pub(super) struct ChecksumAt {
    /// The first of the run's records that lies in the block.
    pub(super) position: usize,
    pub(super) checksum: TableChecksum,
    /// The number of the block's keeper among the run's lenders.
    pub(super) lender: usize,
}
