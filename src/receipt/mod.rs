//! Receipts: what was delivered, written down by the feed that delivers it. This module makes, writes, reads
//! and merges them. What they prove is not judged here, but by the package `percolator-proof`, which only
//! reads them.
//!
//! Each lane adds the records that it hands over to an order-free [`Digest`] and to a sketch. If two digests
//! differ by few records, the sketches can name these. The lane also notes the steps it was given. Together
//! these are a [`Receipt`]: a page of text per epoch, whatever its number of records, with an
//! [`EpochAccount`] of each. A [`DataDigest`] is of a whole data set: receipts that keep the hashes of
//! contents are compared with it.
//!
//! `percolator-proof` takes the receipts of all ranks of a run, from before and after each resume. It says
//! either that the plan's records for those steps were delivered, and that those steps have every record
//! exactly once; or which records are missing, and which came twice.

mod account;
pub(crate) mod content;
mod data;
mod digest;
mod error;
pub(crate) mod file;
mod ledger;
mod multiset;
mod sketch;
#[cfg(test)]
mod tests;
mod text;

use std::collections::BTreeSet;

pub use self::account::EpochAccount;
pub use self::data::{DataDigest, DigestDetail};
pub use self::digest::Digest;
pub use self::error::ReceiptError;
pub(crate) use self::ledger::Ledger;
pub use self::multiset::Multiset;
pub use percolator_files::checked_text::TextFault;

use self::account::{Entries, account_of};
use crate::order::Plan;
use crate::source::Identity;

/// What was delivered to some lanes of a training run. [`Feed::receipt`](crate::Feed::receipt) and
/// [`Lane::receipt`](crate::Lane::receipt) return one, and `percolator_proof::Verdict::of` takes those of the
/// whole run.
///
/// It is text ([`Display`](std::fmt::Display), [`FromStr`](std::str::FromStr)), with a checksum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// For messages only: ranks may have the same data in different places.
    source: String,
    /// Samples of the data: ranks whose samples differ have different data.
    samples: Identity,
    plan: Plan,
    /// The replicas it covers, whether they were given anything or not.
    replicas: BTreeSet<usize>,
    entries: Entries,
}

impl Receipt {
    /// An empty receipt.
    pub(crate) fn new(source: &str, identity: &Identity, plan: &Plan) -> Self {
        let (source, samples) = (one_line(source), identity.of_records());
        Receipt { source, samples, plan: plan.clone(), replicas: BTreeSet::new(), entries: Entries::new() }
    }

    /// Adds a lane's ledger.
    pub(crate) fn add(&mut self, ledger: &Ledger) {
        self.replicas.insert(ledger.replica);
        self.add_entries(&ledger.entries);
    }

    fn add_entries(&mut self, entries: &Entries) {
        for (&epoch, entry) in entries {
            account_of(&mut self.entries, epoch).merge(entry);
        }
    }

    /// The path of the source, as the feed was configured.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The plan by which the records were delivered.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The replicas of the job that the receipt covers.
    pub fn replicas(&self) -> impl Iterator<Item = usize> {
        self.replicas.iter().copied()
    }

    /// Samples of the data that were delivered. Receipts whose samples
    /// [contradict](Identity::contradiction) each other are of different data.
    #[must_use]
    pub fn samples(&self) -> &Identity {
        &self.samples
    }

    /// What was delivered of each epoch, in order; for epochs of which a step or a record was.
    pub fn epochs(&self) -> impl Iterator<Item = &EpochAccount> {
        self.entries.values()
    }

    /// What was delivered of an epoch, if a step or a record was.
    #[must_use]
    pub fn epoch(&self, epoch: u64) -> Option<&EpochAccount> {
        self.entries.get(&epoch)
    }

    /// Adds what other lanes of the same plan were given, or the same lanes before or after a resume.
    ///
    /// # Errors
    ///
    /// [`ReceiptError::Differ`] if the other receipt is of another plan or of other data.
    pub fn merge(&mut self, other: &Receipt) -> Result<(), ReceiptError> {
        let differ = |of, (one_says, other_says)| {
            let (one, other) = ("this receipt".to_owned(), "the one to be added".to_owned());
            Err(ReceiptError::Differ { of, one, one_says, other, other_says })
        };
        if let Some(says) = self.plan.difference(&other.plan, |_| true) {
            return differ("plan", says);
        }
        if let Some(says) = self.samples.contradiction(&other.samples) {
            return differ("data set", says);
        }
        self.samples.merge(&other.samples);
        self.replicas.extend(&other.replicas);
        self.add_entries(&other.entries);
        Ok(())
    }
}

/// Replaces control characters: a fact is one line.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}
