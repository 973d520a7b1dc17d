//! Who lends the bytes that a run holds: one lender, as a rule; several, where its records are of several databases.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use super::SourceError;
use super::checksum::{Keeper, TableChecksum};

/// Whatever must stay alive for lent bytes to stay where they are: a read transaction, a mapped file.
#[derive(Clone)]
pub struct Lender {
    owner: Arc<dyn Any + Send + Sync>,
    /// The owner again, where it can check seals.
    keeper: Option<Arc<dyn Keeper>>,
}

impl Lender {
    /// Wraps the owner of the bytes.
    #[must_use]
    pub fn new(owner: Arc<dyn Any + Send + Sync>) -> Self {
        Lender { owner, keeper: None }
    }

    /// Wraps the owner of bytes that are sealed.
    pub(crate) fn keeping(owner: Arc<impl Keeper + 'static>) -> Self {
        Lender { owner: owner.clone(), keeper: Some(owner) }
    }

    pub(super) fn check(&self, checksum: TableChecksum) -> Result<(), SourceError> {
        self.keeper.as_ref().map_or(Ok(()), |keeper| keeper.check_block(checksum))
    }

    #[inline]
    pub(super) fn check_value(&self, value: &[u8]) -> Result<(), SourceError> {
        self.keeper.as_ref().map_or(Ok(()), |keeper| keeper.check_value(value))
    }

    pub(super) fn check_used(&self) -> Result<(), SourceError> {
        self.keeper.as_ref().map_or(Ok(()), |keeper| keeper.check_used())
    }

    fn is(&self, other: &Lender) -> bool {
        Arc::ptr_eq(&self.owner, &other.owner)
    }
}

impl fmt::Debug for Lender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lender")
    }
}

/// What a run keeps of each record besides, where its records, and their companions, may be of several lenders.
pub(crate) const LENDERS_BYTES: usize = 2 * size_of::<Lender>();

/// How many of the last lenders are looked at for one that comes again.
const LOOKED_AT: usize = 8;

/// Those who lend what a run holds.
///
/// # Invariant
///
/// Whoever was taken in stays until [`begin`](Self::begin), which is for when nothing is held that they lent.
#[derive(Debug, Default)]
pub(super) struct Lenders {
    /// Kept over a beginning, for as long as the next one is the same: a run filled again and again by one cursor
    /// clones the lender once.
    first: Option<Lender>,
    others: Vec<Lender>,
}

impl Lenders {
    /// Nothing is held any more; what comes next is of this lender, or is not lent.
    pub(super) fn begin(&mut self, next: Option<&Lender>) {
        self.others.clear();
        if let Some(next) = next
            && !self.first.as_ref().is_some_and(|first| first.is(next))
        {
            self.first = Some(next.clone());
        }
    }

    /// For so many records, each of a lender of its own.
    pub(super) fn with_capacity(records: usize) -> Self {
        Lenders { first: None, others: Vec::with_capacity(records) }
    }

    /// Takes a lender in, unless it is there; its number.
    pub(super) fn take_in(&mut self, lender: &Lender) -> usize {
        match &self.first {
            Some(first) if first.is(lender) => return 0,
            Some(_) => {}
            None => {
                self.first = Some(lender.clone());
                return 0;
            }
        }
        // A walk that goes back and forth between few finds them here. Where each record has one of its own, to look
        // through all of them would take as long as there are pairs; and one that is held twice does no harm.
        let looked_at = self.others.len().saturating_sub(LOOKED_AT);
        if let Some(position) = self.others[looked_at..].iter().rposition(|other| other.is(lender)) {
            return looked_at + position + 1;
        }
        self.others.push(lender.clone());
        self.others.len()
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Lender> {
        self.first.iter().chain(&self.others)
    }

    /// The lender of a number.
    pub(super) fn get(&self, number: usize) -> Option<&Lender> {
        match number.checked_sub(1) {
            None => self.first.as_ref(),
            Some(position) => self.others.get(position),
        }
    }
}
