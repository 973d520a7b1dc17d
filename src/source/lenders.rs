//! The lenders of the bytes that a run holds: usually one; several if its records are from several databases.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use percolator_leveldb::Store;

use super::SourceError;
use super::checksum::{TableChecksum, Verifier};

/// The owner of lent bytes, which keeps them valid and in place: a read transaction, a mapped file.
#[derive(Clone)]
pub struct Lender(Owner);

/// What the user of an owner's bytes still has to verify.
#[derive(Clone)]
enum Owner {
    /// Nothing.
    Plain(Arc<dyn Any + Send + Sync>),
    /// Each value has to be verified.
    Values(Arc<dyn Verifier>),
    /// Blocks have to be verified whose deferred checksums come with their records.
    Tables(Arc<Store>),
}

impl Lender {
    /// Wraps the owner of the bytes.
    #[must_use]
    pub fn new(owner: Arc<dyn Any + Send + Sync>) -> Self {
        Lender(Owner::Plain(owner))
    }

    /// Wraps the owner of values that may not have been verified yet. A feed's workers have it verify each
    /// value before they use it. Only a [deferring cursor](super::Source::deferring_cursor) may lend a value
    /// that nobody has verified.
    #[must_use]
    pub fn verifying(owner: Arc<dyn Verifier>) -> Self {
        Lender(Owner::Values(owner))
    }

    /// Wraps a LevelDB's store. A record of an unverified block has the block's deferred checksum.
    pub(super) fn of_store(store: Arc<Store>) -> Self {
        Lender(Owner::Tables(store))
    }

    pub(super) fn check(&self, TableChecksum { table, checksum }: TableChecksum) -> Result<(), SourceError> {
        match &self.0 {
            Owner::Tables(store) => Ok(store.check_block(table, checksum)?),
            Owner::Plain(_) | Owner::Values(_) => Ok(()),
        }
    }

    #[inline]
    pub(super) fn check_value(&self, value: &[u8]) -> Result<(), SourceError> {
        match &self.0 {
            Owner::Values(owner) => owner.check_value(value),
            Owner::Plain(_) | Owner::Tables(_) => Ok(()),
        }
    }

    pub(super) fn check_used(&self) -> Result<(), SourceError> {
        match &self.0 {
            Owner::Values(owner) => owner.check_used(),
            Owner::Plain(_) | Owner::Tables(_) => Ok(()),
        }
    }

    /// Whether both have one owner, and leave the same to whoever uses its bytes.
    fn is(&self, other: &Lender) -> bool {
        match (&self.0, &other.0) {
            (Owner::Plain(one), Owner::Plain(other)) => Arc::ptr_eq(one, other),
            (Owner::Values(one), Owner::Values(other)) => Arc::ptr_eq(one, other),
            (Owner::Tables(one), Owner::Tables(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

impl fmt::Debug for Lender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lender")
    }
}

/// Bytes that a run keeps for each record in addition, if its records and their companions may have several
/// lenders.
pub(crate) const LENDERS_BYTES: usize = 2 * size_of::<Lender>();

/// How many of the latest lenders are searched for one that occurs again.
const LOOKED_AT: usize = 8;

/// The lenders of the bytes that a run holds.
///
/// # Invariant
///
/// A lender that was added stays until [`begin`](Self::begin), which is called only when nothing that it lent
/// is held.
#[derive(Debug, Default)]
pub(super) struct Lenders {
    /// Kept across `begin` while the next first lender is the same: a run that one cursor fills again and
    /// again clones the lender once.
    first: Option<Lender>,
    /// Whether the first one has lent anything since `begin`.
    first_lends: bool,
    others: Vec<Lender>,
}

impl Lenders {
    /// Starts over when no lent bytes are held. `next` is the lender of the next record, if that is lent.
    pub(super) fn begin(&mut self, next: Option<&Lender>) {
        self.others.clear();
        self.first_lends = false;
        if let Some(next) = next
            && !self.first.as_ref().is_some_and(|first| first.is(next))
        {
            self.first = Some(next.clone());
        }
    }

    /// Room for this many records, each with its own lender.
    pub(super) fn with_capacity(records: usize) -> Self {
        Lenders { first: None, first_lends: false, others: Vec::with_capacity(records) }
    }

    /// Adds a lender unless it is found; returns its number.
    pub(super) fn adopt(&mut self, lender: &Lender) -> usize {
        if self.first.get_or_insert_with(|| lender.clone()).is(lender) {
            self.first_lends = true;
            return 0;
        }
        // A cursor that alternates between a few lenders finds them here. If every record has its own lender,
        // a full search would take quadratic time. Holding a lender twice does no harm.
        let looked_at = self.others.len().saturating_sub(LOOKED_AT);
        if let Some(position) = self.others[looked_at..].iter().rposition(|other| other.is(lender)) {
            return looked_at + position + 1;
        }
        self.others.push(lender.clone());
        self.others.len()
    }

    /// All lenders of what is held.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Lender> {
        self.first.iter().filter(|_| self.first_lends).chain(&self.others)
    }

    /// The lender with this number, which something that is lent has.
    pub(super) fn numbered(&self, number: usize) -> &Lender {
        let lender = match number.checked_sub(1) {
            None => self.first.as_ref(),
            Some(position) => self.others.get(position),
        };
        lender.expect("what is lent has the number of a lender")
    }
}
